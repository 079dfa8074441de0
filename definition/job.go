package definition

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"capri"
	"capri/calendar"
)

// typeRule says what a definition of a job type may have besides what every job has.
type typeRule struct{ options, mainClass, http, paramsUnseen bool }

var typeRules = map[string]typeRule{
	"shell":     {},
	"python":    {options: true},
	"java":      {options: true, mainClass: true},
	"http":      {http: true},
	"hive":      {options: true},
	"spark":     {options: true, mainClass: true},
	"trino":     {options: true, paramsUnseen: true},
	"mapreduce": {options: true, mainClass: true},
}

// Bounds of a job of type http. maxCall keeps what its runner is told within what one variable of an environment may hold.
const (
	maxTimeoutS    = 60 * 60
	maxPollMinutes = 7 * 24 * 60
	maxCall        = 100 << 10
)

// The methods without a body, and the one whose answer has none.
const get, head = "GET", "HEAD"

var (
	className   = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*$`)
	headerValue = regexp.MustCompile(`^[^\x00-\x08\x0a-\x1f\x7f]*$`)
	template    = regexp.MustCompile(`\$\{[^}]*\}`)

	httpMethods = []string{get, "POST", "PUT", "PATCH", "DELETE", head}
	// Who sets these could make one request look like two to a server behind a proxy, or reach another host than the
	// address says.
	ownHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Expect", "Proxy-Authorization"}
	secretWord = regexp.MustCompile(`(?i)authorization|cookie|token|secret|password|api-?key`)
)

// jobType checks the type and what hangs on it.
func (v *validator) jobType(j *capri.Job) {
	rule, ok := typeRules[j.Type]
	if !ok {
		var names []string
		for _, name := range capri.JobTypes {
			for alias, of := range capri.JobTypeAliases {
				if of == name {
					name += " (alias " + alias + ")"
				}
			}
			names = append(names, name)
		}
		v.fail("job.type", j.Type, strings.Join(names, ", ")+didYouMean(j.Type, slices.Concat(capri.JobTypes, slices.Sorted(maps.Keys(capri.JobTypeAliases)))))
		return
	}
	if len(j.Options) > 0 && !rule.options {
		v.fail("job.options", j.Options[0], "to be left out: type "+j.Type+" starts no client or interpreter that would take them")
	}
	v.count("job.options", len(j.Options), maxItems)
	for i, o := range j.Options {
		field := fmt.Sprintf("job.options[%d]", i)
		v.text(field, o)
		_, err := calendar.ParseTemplate(o, calendar.CommandTemplate)
		v.failWith(field, o, err)
		if j.Type == "hive" && o == "-p" {
			v.warn(field, "a password on a command line is seen by everybody on the worker; beeline takes -w and a file that holds it")
		}
	}
	switch {
	case j.MainClass == "":
	case !rule.mainClass:
		v.fail("job.main_class", j.MainClass, "to be left out: type "+j.Type+" runs no class")
	case !className.MatchString(j.MainClass):
		v.fail("job.main_class", j.MainClass, "the full name of a class, such as com.example.etl.Orders")
	}
	if rule.paramsUnseen && len(j.Params) > 0 {
		v.warn("job.params", "%s has no variables: the client gets params as environment, and no statement sees them", j.Type)
	}
	if rule.http {
		v.http(j)
	} else if !reflect.ValueOf(j.HTTP).IsZero() {
		v.fail("job.http", "", "to be left out, or type to be http; type is "+j.Type)
	}
}

func (v *validator) http(j *capri.Job) {
	h := &j.HTTP
	if strings.TrimSpace(j.Command) != "" { // an empty one is reported with every type's
		v.address("job.command", j.Command, nil)
	}
	if h.Method != "" && !slices.Contains(httpMethods, h.Method) {
		v.fail("job.http.method", h.Method, strings.Join(httpMethods, ", "))
	}
	bodiless := h.Method == "" || h.Method == get || h.Method == head
	if h.Body != "" && bodiless {
		v.fail("job.http.body", "", "to be left out, or method to be POST, PUT, PATCH or DELETE; "+cmp.Or(h.Method, get)+" sends no body")
	}
	v.text("job.http.body", h.Body)
	v.times("job.http.body", h.Body)
	v.count("job.http.headers", len(h.Headers), 100)
	canonical := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		field, value := "job.http.headers."+name, h.Headers[name]
		key := textproto.CanonicalMIMEHeaderKey(name)
		switch other, twice := canonical[key]; {
		case !capri.IsWord(name, "!#$%&'*+.^_`|~-"):
			v.fail(field, "", "the name of a header: letters, digits and -")
		case slices.Contains(ownHeaders, key):
			v.fail(field, "", "to be left out: it follows from the address and the body")
		case twice:
			v.fail(field, "", "each header once; "+other+" is the same")
		case !headerValue.MatchString(value) || len(value) > 8<<10:
			v.fail(field, "", "one line of at most 8 KB") // no value: it may be a secret
		}
		canonical[key] = name
		v.times(field, value)
		if secretWord.MatchString(name) {
			v.warn(field, "it is part of the definition, which everybody who may see the task can read")
		}
	}
	v.between("job.http.timeout_s", h.TimeoutS, 0, maxTimeoutS)
	if _, ok := capri.StatusIn(h.Status, 200); !ok && h.Status != "" {
		v.fail("job.http.status", h.Status, "statuses from 100 to 599, such as 200-299 or 200,202")
	}
	v.rule("job.http.success", h.Success, false)
	if h.Method == head && (h.Success.Path != "" || h.Poll.ID != "") {
		v.fail("job.http.method", h.Method, "another method: the answer to HEAD has no body to look into")
	}
	v.poll(j)
	if told, err := json.Marshal(j); err == nil && len(told) > maxCall {
		v.fail("job.http.body", fmt.Sprintf("%d KB with the rest of the job", len(told)>>10), fmt.Sprintf("at most %d KB; let the called system fetch what is larger", maxCall>>10))
	}
}

func (v *validator) poll(j *capri.Job) {
	p := &j.HTTP.Poll
	if p.URL == "" {
		if !reflect.ValueOf(*p).IsZero() {
			v.fail("job.http.poll.url", "", "the address to ask, such as /jobs/"+capri.HTTPID+", or no poll at all")
		}
		return
	}
	base, err := url.Parse(template.ReplaceAllString(j.Command, "0"))
	if err == nil {
		v.address("job.http.poll.url", p.URL, base)
	}
	switch holds := strings.Contains(p.URL, capri.HTTPID); {
	case holds && p.ID == "":
		v.fail("job.http.poll.id", "", "where the call's answer has what "+capri.HTTPID+" stands for, such as data.id")
	case !holds && p.ID != "":
		v.fail("job.http.poll.url", p.URL, capri.HTTPID+" in it, where poll.id goes, or no poll.id")
	case p.ID != "" && !capri.IsJSONPath(p.ID):
		v.fail("job.http.poll.id", p.ID, pathForm)
	}
	v.rule("job.http.poll.until", p.Until, true)
	v.between("job.http.poll.every_s", p.EveryS, 0, maxTimeoutS)
	v.between("job.http.poll.limit_minutes", p.LimitMinutes, 0, maxPollMinutes)
}

const pathForm = "names joined by dots, [n] for an item of a list, such as data.jobs[0].state"

func (v *validator) rule(field string, r capri.HTTPRule, needed bool) {
	switch {
	case r.Path == "" && len(r.In) == 0 && !needed:
		return
	case !capri.IsJSONPath(r.Path):
		v.fail(field+".path", r.Path, pathForm)
	}
	if len(r.In) == 0 {
		v.fail(field+".in", "", "the values that it is to have, such as [SUCCEEDED]")
	}
	v.count(field+".in", len(r.In), maxItems)
}

// address checks the address of a call; with base it may be relative to that one.
func (v *validator) address(field, text string, base *url.URL) {
	v.times(field, text)
	read := func(with string) (*url.URL, error) {
		plain := strings.ReplaceAll(template.ReplaceAllString(text, with), capri.HTTPID, with)
		if base != nil {
			return base.Parse(plain)
		}
		return url.Parse(plain)
	}
	u, err := read("0")
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		v.fail(field, text, "an address such as https://host/path")
		return
	case u.User != nil:
		v.fail(field, "", "an address without user and password; they would stand in each log")
		return
	}
	// Which host is called must not depend on an answer or a date: that would be a way around whatever lets this worker
	// reach some hosts only.
	if other, err := read("1"); err != nil || other.Host != u.Host || other.Scheme != u.Scheme {
		v.fail(field, text, "an address whose host is written out; "+capri.HTTPID+" and ${…} stand behind it")
	}
}

// times checks a text in which nothing but times may stand as ${…}: no shell reads it.
func (v *validator) times(field, text string) {
	_, err := calendar.ParseTemplate(text, calendar.PathTemplate)
	v.failWith(field, text, err)
}

// fillHTTP writes out the defaults of a job of type http.
func fillHTTP(h *capri.HTTP) {
	h.Method = strings.ToUpper(cmp.Or(h.Method, get))
	h.Status = cmp.Or(h.Status, "200-299")
	h.TimeoutS = cmp.Or(h.TimeoutS, 60)
	if h.Poll.URL != "" {
		h.Poll.EveryS = cmp.Or(h.Poll.EveryS, 10)
		h.Poll.LimitMinutes = cmp.Or(h.Poll.LimitMinutes, 60)
	}
}

// clients warns of a task whose nodes lack the program that its type needs.
func (v *validator) clients(s *capri.Spec) {
	needed := capri.JobClients[s.Job.Type]
	if needed == "" {
		return
	}
	var of, without []string
	for _, n := range v.known.Nodes {
		if n.Lost || len(s.Worker.Nodes) > 0 && !slices.Contains(s.Worker.Nodes, n.Name) || len(s.Worker.Nodes) == 0 && n.Pool != s.Worker.Pool {
			continue
		}
		of = append(of, n.Name)
		if !n.HasClient(needed) {
			without = append(without, n.Name)
		}
	}
	switch {
	case len(without) == 0:
	case len(without) == len(of):
		v.warn("job.type", "none of the nodes that may run it (%s) has %s: its batches will fail; install it there, or set worker.clients.%s", some(of), needed, needed)
	default:
		v.warn("job.type", "of the nodes that may run it %s have no %s, and its batches fail there: install it, set worker.clients.%s, or name the others in worker.nodes or a pool", some(without), needed, needed)
	}
}

// some names the first of many.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
