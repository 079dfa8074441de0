package channel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/alerting"
	"capri/conf"
	"capri/internal/testenv"
)

// request is what a gateway got.
type request struct {
	method, uri, contentType, key, authorization, body string
}

// far is a gateway that answers with status and body, and keeps what it was sent.
type far struct {
	*httptest.Server
	status int
	answer string
	got    []request
	mu     sync.Mutex
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{status: http.StatusOK}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		f.got = append(f.got, request{r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization"), string(body)})
		f.mu.Unlock()
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, f.answer)
	}))
	t.Cleanup(f.Close)
	return f
}

func sms(address, more string) string {
	return fmt.Sprintf("gateways:\n- {name: sms, preset: generic-sms, url: %q%s}\n", address, more)
}

func one(t *testing.T, gateways string) alerting.Sender {
	t.Helper()
	_, senders, err := configured(t, gateways)
	require.NoError(t, err)
	require.Len(t, senders, 1)
	for _, s := range senders {
		return s
	}
	return nil
}

var text = alerting.Message{Key: "17-sms-3", Incident: 17, To: "+8613800000000", Name: "李雷", Level: capri.Severe, Subject: "主题", Text: "第一行 \"q\" <!channel> & more\nnext"}

func TestPresets_send_what_each_service_expects(t *testing.T) {
	const quoted = `"第一行 \"q\" \u003c!channel\u003e \u0026 more\nnext"`
	for _, c := range []struct{ name, preset, body, good, bad string }{
		{"sms", "generic-sms", `{"to": "+8613800000000", "text": ` + quoted + `, "key": "17-sms-3"}`, `{"id": "m-1"}`, ""},
		{"phone", "generic-phone", `{"to": "+8613800000000", "name": "李雷", "text": ` + quoted + `, "level": "severe", "incident": 17, "key": "17-sms-3"}`, "", ""},
		{"ops", "dingtalk", `{"msgtype": "text", "text": {"content": ` + quoted + `}}`, `{"errcode":0,"errmsg":"ok"}`, `{"errcode":310000,"errmsg":"sign not match"}`},
		{"ops", "wecom", `{"msgtype": "text", "text": {"content": ` + quoted + `}}`, `{"errcode":0,"errmsg":"ok"}`, `{"errcode":93000,"errmsg":"invalid webhook url"}`},
		{"ops", "feishu", `{"msg_type": "post", "content": {"post": {"zh_cn": {"title": "主题", "content": [[{"tag": "text", "text": ` + quoted + `}]]}}}}`, `{"StatusCode":0,"code":0,"data":{},"msg":"success"}`, `{"code":9499,"msg":"Bad Request","data":{}}`},
		{"ops", "slack", `{"text": ` + strings.NewReplacer(`\u0026`, `\u0026amp;`, `\u003c`, `\u0026lt;`, `\u003e`, `\u0026gt;`).Replace(quoted) + `}`, "ok", "no_service"},
	} {
		t.Run(c.preset, func(t *testing.T) {
			f := newFar(t)
			s := one(t, fmt.Sprintf("gateways: [{name: %s, preset: %s, url: %q}]", c.name, c.preset, f.URL+"/robot/send?access_token=geheim"))
			f.answer = c.good
			require.NoError(t, s.Send(t.Context(), text))
			require.Equal(t, request{"POST", "/robot/send?access_token=geheim", "application/json", "17-sms-3", "", c.body}, f.got[0])
			if c.bad != "" {
				f.answer = c.bad
				err := s.Send(t.Context(), text)
				var refusal *alerting.Refusal
				require.ErrorContains(t, err, c.bad, "it answers 200 and means no")
				require.NotErrorAs(t, err, &refusal)
			}
			f.status = http.StatusInternalServerError
			require.ErrorContains(t, s.Send(t.Context(), text), "500")
		})
	}
}

func TestASecretSigns_as_DingTalk_wants_it(t *testing.T) {
	f := newFar(t)
	f.answer = `{"errcode":0}`
	s := one(t, fmt.Sprintf("gateways: [{name: ops, preset: dingtalk, url: %q, secrets: {key: %q}, sign: key}]", f.URL+"/robot/send?access_token=x", file(t, "SECtest\n")))
	s.(*gateway).now = func() time.Time { return time.UnixMilli(1600000000000) }
	require.NoError(t, s.Send(t.Context(), text))
	require.Equal(t, "/robot/send?access_token=x&timestamp=1600000000000&sign=J1ROuI0lRhdAs5lXpASksT0u9NwWl4DNkvcHISJRBoY%3D", f.got[0].uri)
	require.Equal(t, "https://h/x?timestamp=1&sign=", sign("https://h/x", "s", time.UnixMilli(1))[:len("https://h/x?timestamp=1&sign=")])
}

func TestAnAnswer_means_what_the_configuration_says(t *testing.T) {
	rules := `, success: {status: [200, 202], field: result.code, equals: [0, OK], contains: done}, refusal: {status: [404], field: result.code, equals: ["7"], contains: "no such number"}, id: result.ids.1`
	for _, c := range []struct {
		status        int
		answer        string
		want, receipt string // want: what the error says; "": none
		final         bool
	}{
		{200, `{"result": {"code": 0, "ids": ["a", "b"]}, "x": "done"}`, "", "b", false},
		{202, `{"result": {"code": "OK"}, "x": "done"}`, "", "", false},
		{201, `{"result": {"code": 0}, "x": "done"}`, "this status is no success", "", false},
		{200, `{"result": {"code": 1}, "x": "done"}`, "its field result.code is no 0 or OK", "", false},
		{200, `{"result": {"code": 0}}`, `does not contain "done"`, "", false},
		{200, `{"result": {"code": {}}, "x": "done"}`, "it has no field result.code", "", false},
		{200, `{"result": [], "x": "done"}`, "it has no field", "", false},
		{200, `{"result": {"code": 0}, "x": "done"`, "it has no field", "", false},
		{200, `{"result": {"code": 0}, "x": "done"} {}`, "it has no field", "", false},
		{200, "<html>done</html>", "it has no field result.code: <html>done</html>", "", false},
		{200, "", "it has no field", "", false},
		{404, "", "404", "", true},
		{200, `{"result": {"code": 7}}`, `"code": 7`, "", true},
		{500, "there is no such number", "no such number", "", true},
		{500, "\x1b[31mline\none\r\ntwo", "500 Internal Server Error, but this status is no success: ?[31mline one two", "", false},
		{500, strings.Repeat("long ", 1000), "…", "", false},
	} {
		f := newFar(t)
		f.status, f.answer = c.status, c.answer
		receipt, err := Send(t.Context(), one(t, sms(f.URL, rules)), text)
		require.Equal(t, c.receipt, receipt, c.answer)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
		var refusal *alerting.Refusal
		require.Equal(t, c.final, errors.As(err, &refusal), "%d %s", c.status, c.answer)
		require.Less(t, len(err.Error()), 400)
	}
}

func TestARedirect_is_not_followed(t *testing.T) {
	elsewhere := newFar(t)
	srv := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer srv.Close()
	require.ErrorContains(t, one(t, sms(srv.URL, "")).Send(t.Context(), text), "redirects are not followed")
	require.Empty(t, elsewhere.got)
}

func TestAHugeAnswer_is_read_only_in_part(t *testing.T) {
	f := newFar(t)
	f.answer = `{"code": 0, "x": "` + strings.Repeat("x", 4<<20) + `"}`
	require.NoError(t, one(t, sms(f.URL, "")).Send(t.Context(), text), "its status says enough")
	require.ErrorContains(t, one(t, sms(f.URL, ", success: {field: code, equals: [0]}")).Send(t.Context(), text), "only the first 65536 bytes were read")
}

// raw serves each connection with serve, which is told when the test is over.
func raw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return "http://" + l.Addr().String() + "/geheim"
}

func TestAnAnswerThatIsCutOff_is_no_success(t *testing.T) {
	address := raw(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 64<<10))
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"errcode\":0}")
		_ = conn.(*net.TCPConn).SetLinger(0)
	})
	err := one(t, sms(address, "")).Send(t.Context(), text)
	require.ErrorContains(t, err, "read the answer of sms")
	var refusal *alerting.Refusal
	require.NotErrorAs(t, err, &refusal)
}

func TestAGatewayThatStaysSilent_costs_no_more_than_the_time_limit(t *testing.T) {
	for name, says := range map[string]string{"from the start": "", "after the status": "HTTP/1.1 200 OK\r\n", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"} {
		t.Run(name, func(t *testing.T) {
			address := raw(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 64<<10))
				_, _ = io.WriteString(conn, says)
				_, _ = io.Copy(io.Discard, conn)
			})
			err := one(t, sms(address, ", timeout: 100ms")).Send(t.Context(), text)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotContains(t, err.Error(), "geheim")
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			require.ErrorIs(t, one(t, sms(address, "")).Send(ctx, text), context.Canceled)
		})
	}
}

func TestSecrets_are_sent_and_never_told(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // it repeats whatever it is told
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Set-Cookie", "session=geheim")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "cannot %s %s with %s %s by %s", r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), r.Header.Get("X-Token"), body)
	}))
	defer srv.Close()
	c, senders, err := configured(t, fmt.Sprintf(`
gateways:
- name: sms
  url_file: %q
  headers: {Authorization: 'Bearer {{secret "token"}}', X-Token: literal-geheim}
  secrets: {token: %q, pin: %q}
  body: '{"to": {{json .To}}, "pin": {{json (secret "pin")}}}'
`, file(t, srv.URL+"/hooks/T0-path-geheim?key=query-geheim\n"), file(t, "header-geheim\n"), file(t, "pin\"&<geheim")))
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(c.Values()), "geheim")
	said, err := Talk(t.Context(), senders["sms"], text)
	require.ErrorContains(t, err, "403 Forbidden")
	require.NotContains(t, err.Error(), "geheim")
	require.NotContains(t, said, "geheim")
	require.Contains(t, said, "> POST "+srv.URL+"/****\n> Authorization: ****\n> Content-Type: application/json\n> Idempotency-Key: 17-sms-3\n> X-Token: ****\n>\n> {\"to\": \"+8613800000000\", \"pin\": \"****\"}\n< HTTP/1.1 403 Forbidden\n")
	require.Contains(t, said, "< Set-Cookie: ****\n")
	require.Contains(t, said, "\n<\n< cannot POST **** with **** **** by {\"to\": \"+8613800000000\", \"pin\": \"****\"}\n* sms answers 403")

	srv.Close()
	said, err = Talk(t.Context(), senders["sms"], text)
	require.ErrorContains(t, err, "call sms")
	require.NotContains(t, err.Error()+said, "geheim")
}

func TestTalk_shows_a_conversation_by_HTTP(t *testing.T) {
	f := newFar(t)
	f.answer = "{\"id\": \"m-1\"}\n"
	said, err := Talk(t.Context(), one(t, sms(f.URL, "")), text)
	require.NoError(t, err)
	require.Contains(t, said, "< HTTP/1.1 200 OK\n")
	require.True(t, strings.HasSuffix(said, "\n<\n< {\"id\": \"m-1\"}\n<\n* taken as m-1\n"), said)
}

func TestNothingOfAMessage_leaves_its_place_in_a_request(t *testing.T) {
	f := newFar(t)
	s := one(t, fmt.Sprintf(`
gateways:
- name: sms
  method: GET
  url: '%s/send?to={{query .To}}&text={{.Text | query}}&end=1'
  headers: {X-Name: 'to {{query .Name}}'}
`, f.URL))
	m := text
	m.To, m.Text, m.Name, m.Key = "1&to=2#", "a b\r\nc%41", "x\r\nEvil: 1", "k\r\nEvil: 2"
	require.NoError(t, s.Send(t.Context(), m))
	require.Equal(t, request{"GET", "/send?to=1%26to%3D2%23&text=a+b%0D%0Ac%2541&end=1", "", "k%0D%0AEvil:%202", "", ""}, f.got[0])

	var refusal *alerting.Refusal
	m.To = ""
	require.ErrorAs(t, s.Send(t.Context(), m), &refusal)
	require.Len(t, f.got, 1)
}

func TestTemplates_that_could_let_something_out_are_refused(t *testing.T) {
	for _, c := range []struct{ gateway, want string }{
		{`body: '{"to": {{.To}}}'`, "gateways[0].body: want each value in a JSON body to be written by json"},
		{`body: '{"to": "{{query .To}}"}'`, "written by json"},
		{`body: '{"to": {{json .To | printf "%s"}}}'`, "written by json"},
		{`body: '{"to": {{printf "%s" (json .To)}}}'`, "written by json"},
		{`body: '{{define "x"}}{{.To}}{{end}}{"to": {{template "x" .}}}'`, "written by json"},
		{`body: '{"to": {{if .To}}{{json .To}}{{else}}{{.Name}}{{end}}}'`, "written by json"},
		{`body: '{{range $i, $c := .To}}{{$c}}{{end}}'`, "written by json"},
		{`body: '{{with $x := .To}}{{$x}}{{end}}'`, "written by json"},
		{`body: '{"to": "{{json .To}}"}'`, "it is no JSON; {{json …}} writes the quotes"},
		{`body: '{"to": {{json .Too}}}'`, "can't evaluate field Too"},
		{`body: '{"to": {{json (slice .To 0 3)}}}'`, "for an empty one"},
		{`body: '{"to": {{json .To}'`, "gateways[0].body: want a template"},
		{`body: '{"pin": {{json (secret "pin")}}}'`, `the secret "pin" is not among`},
		{`{content_type: text/xml, body: '<to>{{json .To}}</to>'}`, "written by xml"},
		{`{content_type: text/xml, body: '<to a={{xml .To}}/>'}`, "an XML body for every message"},
		{`{content_type: text/xml, body: '<!-- {{xml .To}} --><to/>'}`, "an XML body for every message"},
		{`{content_type: application/x-www-form-urlencoded, body: 'to={{xml .To}}'}`, "written by query"},
		{`{content_type: text/plain, body: '{{json .To}}'}`, "gateways[0].content_type"},
		{`{headers: {X-Name: '{{json .Name}}'}}`, "gateways[0].headers.X-Name: want each value in a header"},
		{`{headers: {"X Name": a}}`, "gateways[0].headers"},
		{`{headers: {idempotency-key: a}}`, "gateways[0].headers"},
		{`{headers: {X: "a\nb"}}`, "it holds a control character"},
		{`{url: 'http://h/geheim?to={{.To}}'}`, "gateways[0].url: want each value in an address to be written by query"},
		{`{url: 'http://h/geheim?to={{query .To}}&%zz'}`, ""},
		{`{sign: key}`, "gateways[0].sign: \"key\""},
	} {
		more := "name: hook, " + strings.TrimSuffix(strings.TrimPrefix(c.gateway, "{"), "}")
		if !strings.HasPrefix(c.gateway, "{") {
			more = "name: hook, " + c.gateway
		}
		if !strings.Contains(c.gateway, "url:") {
			more += ", url: 'http://h/'"
		}
		_, senders, err := configured(t, "gateways: [{"+more+"}]")
		if c.want == "" {
			require.NoError(t, err, c.gateway)
			continue
		}
		require.ErrorIs(t, err, capri.ErrInvalid, c.gateway)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "geheim")
		require.Nil(t, senders)
	}
	_, _, err := configured(t, `gateways: [{name: a, url: "http://h", body: "{{.To}}"}, {name: b, url: "http://h", headers: {X: "{{.To}}"}, body: "{{.To}}"}]`)
	for _, want := range []string{"gateways[0].body", "gateways[1].body", "gateways[1].headers.X"} {
		require.ErrorContains(t, err, want, "all at once")
	}
}

func TestEachGateway_keeps_its_limits(t *testing.T) {
	c, senders, err := configured(t, `
gateways:
- {name: sms, preset: generic-sms, url: "http://h", timeout: 3s, tries: 0, parallel: 1, per_minute: 30}
- {name: ops, preset: dingtalk, url: "http://h"}
`)
	require.NoError(t, err)
	require.Len(t, senders, 2)
	require.Equal(t, map[string]conf.Limits{"sms": {Timeout: 3 * time.Second, Parallel: 1, PerMinute: 30}, "ops": {Timeout: 10 * time.Second, Tries: 3, Parallel: 4, PerMinute: 20}}, LimitsFromConfig(c))
}

func TestTheExamplesOfTheDocumentation_are_taken(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "alerting.md"))
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(page), "```yaml\ngateways:")
	example, _, found := strings.Cut(example, "```")
	require.True(t, found)
	holds := file(t, "https://h/x?access_token=y") // it does as a secret, too
	_, senders, err := configured(t, "gateways:"+regexp.MustCompile(`/etc/capri/[a-z-]+`).ReplaceAllString(example, holds))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"sms", "phone", "ops-room", "old-sms"}, slices.Collect(maps.Keys(senders)))
}

func TestCut_keeps_characters_whole(t *testing.T) {
	require.Equal(t, "数据", cut(6, "数据"))
	require.Equal(t, "数…", cut(7, "数据库"))
	require.Equal(t, "…", cut(5, "数据库"))
	require.Equal(t, "…", cut(0, "数据库"))
	wecom := one(t, `gateways: [{name: ops, preset: wecom, url: "http://h"}]`).(*gateway)
	body, err := render(wecom.body, alerting.Message{Text: strings.Repeat("数", 5000)})
	require.NoError(t, err)
	var doc struct{ Text struct{ Content string } }
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	require.LessOrEqual(t, len(doc.Text.Content), 2048)
	require.True(t, strings.HasSuffix(doc.Text.Content, "数…"))
}
