package conf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"capri"
)

// Gateway is somebody who is called by HTTP to send a message on: an SMS or phone gateway, or the webhook of a chat.
// Gateways are a list, so they have a file of their own (alerting.gateways_file); docs/alerting.md explains each key:
//
//	gateways:
//	  - name: sms                             # sms, phone, or a name of your own for a webhook
//	    preset: generic-sms                   # what is left out is taken from it
//	    url: https://sms.example.org/v1/send  # or url_file, a file that holds it: such addresses often hold a key
//	    headers: {Authorization: 'Bearer {{secret "token"}}'}
//	    secrets: {token: /etc/capri/sms-token}
//	    body: '{"to": {{json .To}}, "text": {{json .Text}}}'
//	    success: {status: [200], field: code, equals: [0]}
//	    refusal: {status: [400]}
//	    id: data.message_id
//	    timeout: 10s
type Gateway struct {
	Name        string
	Method      string
	URL         string            // a template, behind its "?"
	Headers     map[string]string // templates
	ContentType string
	Body        string            // a template
	Secrets     map[string]string // what the files hold, by name
	Sign        string            // the name of the secret that signs the address, as DingTalk wants it; "": none does
	Success     Answer            // all that is given holds
	Refusal     Answer            // one of what is given holds: for good
	ID          string            // where an answer names the message, as "data.message_id"
	Limits
}

// Answer is what an answer looks like.
type Answer struct {
	Status   []int    `yaml:"status"` // of a success nothing means 200 to 299
	Field    string   `yaml:"field"`  // of a JSON document, as "data.code"; and what it equals
	Equals   []string `yaml:"equals"`
	Contains string   `yaml:"contains"`
}

// Limits are those of one channel.
type Limits struct {
	Timeout   time.Duration // of one sending
	Tries     int           // after the first one
	Parallel  int           // sendings at once
	PerMinute int           // 0: no limit
}

// The limits of a channel that says nothing else.
var builtInLimits = Limits{Timeout: 10 * time.Second, Tries: 3, Parallel: 4}

// gatewayLine is a gateway as the file writes it.
type gatewayLine struct {
	Name        string            `yaml:"name"`
	Preset      string            `yaml:"preset"`
	Method      string            `yaml:"method"`
	URL         string            `yaml:"url"`
	URLFile     string            `yaml:"url_file"`
	Headers     map[string]string `yaml:"headers"`
	ContentType string            `yaml:"content_type"`
	Body        string            `yaml:"body"`
	Secrets     map[string]string `yaml:"secrets"` // files
	Sign        string            `yaml:"sign"`
	Success     *Answer           `yaml:"success"`
	Refusal     *Answer           `yaml:"refusal"`
	ID          string            `yaml:"id"`
	Timeout     string            `yaml:"timeout"`
	Tries       *int              `yaml:"tries"`
	Parallel    *int              `yaml:"parallel"`
	PerMinute   *int              `yaml:"per_minute"`
}

// wrongMessage are the statuses by which HTTP says that a message is wrong, and not merely the moment, a key or an address.
var wrongMessage = &Answer{Status: []int{400, 413, 422}}

// presets are gateways that only lack a name and an address. Texts are sent as plain text throughout: in Markdown, what
// a job wrote could become a link, or call for everybody in a room. The rates are those that the services allow.
var presets = map[string]gatewayLine{
	"generic-sms": {Refusal: wrongMessage, ID: "id",
		Body: `{"to": {{json .To}}, "text": {{json .Text}}, "key": {{json .Key}}}`},
	"generic-phone": {Refusal: wrongMessage, ID: "id",
		Body: `{"to": {{json .To}}, "name": {{json .Name}}, "text": {{json .Text}}, "level": {{json (print .Level)}}, "incident": {{json .Incident}}, "key": {{json .Key}}}`},
	"dingtalk": {Success: &Answer{Field: "errcode", Equals: []string{"0"}}, PerMinute: ptr(20),
		Body: `{"msgtype": "text", "text": {"content": {{json (cut 20000 .Text)}}}}`},
	"wecom": {Success: &Answer{Field: "errcode", Equals: []string{"0"}}, PerMinute: ptr(20),
		Body: `{"msgtype": "text", "text": {"content": {{json (cut 2048 .Text)}}}}`},
	"feishu": {Success: &Answer{Field: "code", Equals: []string{"0"}}, PerMinute: ptr(100),
		Body: `{"msg_type": "post", "content": {"post": {"zh_cn": {"title": {{json .Subject}}, "content": [[{"tag": "text", "text": {{json (cut 20000 .Text)}}}]]}}}}`},
	"slack": {Success: &Answer{Contains: "ok"}, Refusal: wrongMessage, PerMinute: ptr(60),
		Body: `{"text": {{json (slack (cut 20000 .Text))}}}`},
}

func ptr(n int) *int { return &n }

// readGateways reads the file; everything that is wrong is said at once. Templates are for alerting/channel to judge.
func readGateways(file string) ([]Gateway, capri.FieldErrors) {
	fail := func(value, want string) ([]Gateway, capri.FieldErrors) {
		return nil, capri.FieldErrors{{Field: "alerting.gateways_file", Value: value, Want: want}}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return fail(file, "a file that can be read: "+reason(err))
	}
	var doc struct {
		Gateways []gatewayLine `yaml:"gateways"`
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true) // a mistyped key would be a gateway that does something else
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return fail(file, "a list of gateways: "+strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
	}
	var gateways []Gateway
	var wrong capri.FieldErrors
	names := map[string]bool{"mail": true}
	for i, l := range doc.Gateways {
		say := func(field, value, want string) {
			wrong = append(wrong, &capri.FieldError{Field: fmt.Sprintf("gateways[%d].%s", i, field), Value: value, Want: want, Where: filepath.ToSlash(file)})
		}
		if !validName(l.Name) {
			say("name", l.Name, nameRule)
		} else if names[l.Name] {
			say("name", l.Name, "a name that no other channel has")
		}
		names[l.Name] = true
		gateways = append(gateways, l.gateway(say))
	}
	return gateways, wrong
}

// gateway reads one line of the file, over its preset.
func (l gatewayLine) gateway(say func(field, value, want string)) Gateway {
	preset, known := presets[l.Preset]
	if !known && l.Preset != "" {
		say("preset", l.Preset, strings.Join(slices.Sorted(maps.Keys(presets)), ", ")+", or nothing")
	}
	file := func(field, name string) string {
		data, err := os.ReadFile(name)
		text := strings.TrimSpace(string(data))
		switch {
		case err != nil:
			say(field, name, "a file that can be read: "+reason(err))
		case text == "" || strings.ContainsAny(text, "\r\n"):
			say(field, name, "a file that holds one line")
		case isSample(text): // how long theirs is, the gateway's people decide
			say(field, name, "a file that holds what the gateway's people gave you, and not what an example has there")
		}
		return text
	}
	number := func(field string, is, preset *int, builtIn, least, most int) int {
		n := *cmp.Or(is, preset, &builtIn)
		if n < least || n > most {
			say(field, strconv.Itoa(n), fmt.Sprintf("%d to %d", least, most))
		}
		return n
	}
	g := Gateway{Name: l.Name, URL: l.URL, Headers: l.Headers, Sign: l.Sign, Secrets: map[string]string{},
		Method:      cmp.Or(l.Method, preset.Method, "POST"),
		ContentType: cmp.Or(l.ContentType, preset.ContentType, "application/json"),
		Body:        cmp.Or(l.Body, preset.Body),
		ID:          cmp.Or(l.ID, preset.ID),
		Success:     *cmp.Or(l.Success, preset.Success, &Answer{}),
		Refusal:     *cmp.Or(l.Refusal, preset.Refusal, &Answer{}),
		Limits: Limits{Timeout: builtInLimits.Timeout,
			Tries:     number("tries", l.Tries, nil, builtInLimits.Tries, 0, 10),
			Parallel:  number("parallel", l.Parallel, nil, builtInLimits.Parallel, 1, 100),
			PerMinute: number("per_minute", l.PerMinute, preset.PerMinute, builtInLimits.PerMinute, 0, 60_000)}}
	switch {
	case (l.URL == "") == (l.URLFile == ""):
		say("url", "", "either url or url_file")
	case l.URLFile != "":
		g.URL = file("url_file", l.URLFile)
	}
	if g.URL != "" { // it is never shown: such addresses often hold a key
		fixed, _, _ := strings.Cut(g.URL, "{{")
		if u, err := url.Parse(fixed); err != nil || u.Host == "" || !oneOf(u.Scheme, "http", "https") {
			say("url", mask, "http://HOST… or https://HOST…")
		} else if fixed != g.URL && !strings.Contains(fixed, "?") {
			say("url", mask, "values only behind the ?, such as https://HOST/send?to={{query .To}}; a key in a path belongs into url_file")
		}
	}
	if !oneOf(g.Method, "GET", "POST", "PUT") {
		say("method", g.Method, "GET, POST or PUT")
	}
	for _, name := range slices.Sorted(maps.Keys(l.Secrets)) {
		g.Secrets[name] = file("secrets."+name, l.Secrets[name])
	}
	for _, a := range []struct {
		field string
		Answer
	}{{"success", g.Success}, {"refusal", g.Refusal}} {
		for _, status := range a.Status {
			if status < 200 || status > 599 {
				say(a.field+".status", strconv.Itoa(status), "statuses from 200 to 599")
			}
		}
		if (a.Field == "") != (len(a.Equals) == 0) {
			say(a.field+".equals", strings.Join(a.Equals, ", "), "to be there with field, and only then")
		}
	}
	if l.Timeout != "" {
		d, err := time.ParseDuration(l.Timeout)
		if err != nil || !validTimeout(d) {
			say("timeout", l.Timeout, timeoutRule)
		}
		g.Timeout = d
	}
	return g
}

const timeoutRule = "a duration from 100ms to 1m"

func validTimeout(d time.Duration) bool { return d >= 100*time.Millisecond && d <= time.Minute }
