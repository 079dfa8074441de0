package api_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
)

// What follows reads the API's own description and asks every operation in it for sense and nonsense. Whatever is added to
// the API is asked, too.

type schema = map[string]any

// described is the API's description.
type described struct {
	doc        schema
	compiler   *jsonschema.Compiler
	compiled   map[string]*jsonschema.Schema
	operations []operation
}

type operation struct {
	method, path string
	parameters   []schema
	body         schema // of JSON; nil: none
	bodyRequired bool
	responses    schema
	pointer      string
}

const docAddress = "mem:///openapi.json"

func describe(t testing.TB, text []byte) *described {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	d := &described{doc: doc.(schema), compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, d.compiler.AddResource(docAddress, doc))
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	paths := d.doc["paths"].(schema)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for _, method := range slices.Sorted(maps.Keys(paths[path].(schema))) {
			op := paths[path].(schema)[method].(schema)
			o := operation{method: strings.ToUpper(method), path: path, responses: op["responses"].(schema), pointer: "/paths/" + escape.Replace(path) + "/" + method}
			if list, ok := op["parameters"].([]any); ok {
				for _, p := range list {
					o.parameters = append(o.parameters, p.(schema))
				}
			}
			if b, ok := op["requestBody"].(schema); ok {
				if media, ok := b["content"].(schema)["application/json"].(schema); ok {
					o.body = media["schema"].(schema)
					o.bodyRequired = b["required"] == true
				}
			}
			d.operations = append(d.operations, o)
		}
	}
	return d
}

// valid tells whether a value fits the schema at a place of the document.
func (d *described) valid(pointer string, v any) error {
	s := d.compiled[pointer]
	if s == nil {
		var err error
		if s, err = d.compiler.Compile(docAddress + "#" + (&url.URL{Path: pointer}).EscapedPath()); err != nil {
			return err
		}
		d.compiled[pointer] = s
	}
	return s.Validate(v)
}

// validText is valid for JSON as it goes over the wire.
func (d *described) validText(pointer string, text []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return d.valid(pointer, v)
}

func (d *described) resolve(s schema) schema {
	for {
		ref, ok := s["$ref"].(string)
		if !ok {
			return s
		}
		at := any(d.doc)
		for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(schema)[step]
		}
		s = at.(schema)
	}
}

// nasty are texts that have broken programs.
var nasty = []string{"", " ", "'", "' OR '1'='1", "'; DROP TABLE task; --", "\"; --", "1; SELECT 1", "%", "_", "*", "**", "!", "!%", "\\", "`id`", "$(touch /tmp/capri-was-here)", "; touch /tmp/capri-was-here",
	"|", "&&", "../../etc/passwd", "/", "//", "?", "#", "%00", "\x00", "a\x00b", "\xff\xfe", "a\xc3", "\x1b[31m", "\r\nX-Injected: yes", "ｄａｙ", "d\u0430y", "\u202eyad", "e\u0301", "\u0130", "\U0001F4A9",
	strings.Repeat("a", 10_000), strings.Repeat("é", 300), "-1", "0", "1e309", "9223372036854775808", "null", "true", "2026-02-30", "9999-12-31T23:59:60Z", "0000-00-00", "day", "child", "nobody", "g", "alice", "mail"}

func text(rt *rapid.T, what string) string {
	if rapid.IntRange(0, 3).Draw(rt, what+" by chance") == 0 {
		return rapid.String().Draw(rt, what)
	}
	return rapid.SampledFrom(nasty).Draw(rt, what)
}

func number(v any, otherwise float64) float64 {
	if n, ok := v.(json.Number); ok {
		f, _ := n.Float64()
		return f
	}
	return otherwise
}

// value makes something of a schema; wild: often not what it says.
func (d *described) value(rt *rapid.T, s schema, what string, depth int, wild bool) any {
	s = d.resolve(s)
	if wild && rapid.IntRange(0, 9).Draw(rt, what+" wild") == 0 {
		return rapid.SampledFrom([]any{nil, true, -1, 0, 1.5, math.MaxInt64, -9.3e18, "", "x", []any{}, []any{nil}, schema{}, schema{"a": 1}}).Draw(rt, what)
	}
	if of, ok := s["enum"].([]any); ok {
		return rapid.SampledFrom(of).Draw(rt, what)
	}
	kind, _ := s["type"].(string)
	if several, ok := s["type"].([]any); ok {
		kind, _ = rapid.SampledFrom(several).Draw(rt, what+" type").(string)
	}
	switch kind {
	case "boolean":
		return rapid.Bool().Draw(rt, what)
	case "integer", "number":
		from, to := number(s["minimum"], -5), number(s["maximum"], 1e6)
		if rapid.IntRange(0, 3).Draw(rt, what+" small") > 0 {
			to = min(to, max(from, 5))
		}
		return rapid.Int64Range(int64(from), int64(to)).Draw(rt, what)
	case "string":
		switch {
		case s["format"] == "date-time":
			return rapid.SampledFrom([]string{"2026-11-20T09:30:00Z", "2026-11-20T00:00:00+08:00"}).Draw(rt, what)
		case s["pattern"] != nil && rapid.Bool().Draw(rt, what+" fits"):
			return rapid.StringMatching(s["pattern"].(string)).Draw(rt, what)
		}
		if rapid.IntRange(0, 2).Draw(rt, what+" sane") == 0 {
			return rapid.SampledFrom([]string{"day", "child", "tick", "g", "alice", "2026-11-19", "2026-11-20", "20261119", "x"}).Draw(rt, what)
		}
		return text(rt, what)
	case "array":
		list := []any{}
		items, _ := s["items"].(schema)
		for i := range rapid.IntRange(int(number(s["minItems"], 0)), 3).Draw(rt, what+" length") {
			list = append(list, d.value(rt, items, fmt.Sprint(what, "[", i, "]"), depth+1, wild))
		}
		return list
	case "object":
		o := schema{}
		properties, _ := s["properties"].(schema)
		required, _ := s["required"].([]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if slices.Contains(required, any(name)) && (!wild || rapid.IntRange(0, 19).Draw(rt, name+" left out") > 0) || depth < 4 && rapid.Bool().Draw(rt, "with "+name) {
				o[name] = d.value(rt, properties[name].(schema), what+"."+name, depth+1, wild)
			}
		}
		if more, ok := s["additionalProperties"].(schema); ok {
			o[text(rt, what+" key")] = d.value(rt, more, what+" more", depth+1, wild)
		} else if wild && rapid.IntRange(0, 19).Draw(rt, what+" unknown key") == 0 {
			o["frobnicate"] = 1
		}
		return o
	}
	return nil
}

// request is one that was made up, and whether the description forbids it.
type request struct {
	method, target string
	body           []byte
	forbidden      string
}

func (d *described) request(rt *rapid.T, o operation) request {
	r := request{method: o.method}
	wild := rapid.Bool().Draw(rt, "wild")
	path, query := o.path, url.Values{}
	for i, p := range o.parameters {
		name, s := p["name"].(string), d.resolve(p["schema"].(schema))
		if p["in"] == "header" || p["in"] == "query" && p["required"] != true && rapid.IntRange(0, 2).Draw(rt, "with "+name) > 0 {
			continue
		}
		kind, _ := s["type"].(string)
		var written []string
		var v any
		if (kind == "integer" || kind == "boolean") && wild && rapid.IntRange(0, 3).Draw(rt, name+" as text") == 0 {
			t := text(rt, name)
			written = []string{t}
			n := json.Number(t)
			if _, err := n.Int64(); kind == "integer" && err == nil {
				v = n
			} else if b, known := map[string]bool{"true": true, "false": false, "1": true, "0": false}[t]; kind == "boolean" && known {
				v = b
			} else {
				v = t
			}
		} else {
			v = d.value(rt, s, name, 0, false)
			if list, ok := v.([]any); ok {
				for _, x := range list {
					written = append(written, fmt.Sprint(x))
				}
			} else {
				written = []string{fmt.Sprint(v)}
			}
		}
		if p["in"] == "path" {
			if written[0] == "" || written[0] == "." || written[0] == ".." {
				written[0], v = "x", "x" // another route
				if kind == "integer" {
					written[0], v = "1", json.Number("1")
				}
			}
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(written[0]))
		} else {
			query.Set(name, strings.Join(written, ","))
		}
		if _, isList := v.([]any); !isList && written[0] != "" {
			data, _ := json.Marshal(v)
			if err := d.validText(fmt.Sprintf("%s/parameters/%d/schema", o.pointer, i), data); err != nil {
				r.forbidden = name + ": " + err.Error()
			}
		}
	}
	if wild && rapid.IntRange(0, 9).Draw(rt, "unknown parameter") == 0 {
		query.Set("frobnicate", text(rt, "frobnicate"))
		r.forbidden = "frobnicate"
	}
	r.target = path
	if len(query) > 0 {
		r.target += "?" + query.Encode()
	}
	if o.body != nil && (o.bodyRequired || rapid.Bool().Draw(rt, "with a body")) {
		switch {
		case wild && rapid.IntRange(0, 19).Draw(rt, "no JSON") == 0:
			r.body = []byte(rapid.SampledFrom([]string{"{", "", "\x00", "[1,2", `{"a":}`, "\xff", strings.Repeat("[", 20_000), "null", `{"a":1}{"a":2}`}).Draw(rt, "body"))
		default:
			r.body, _ = json.Marshal(d.value(rt, o.body, "body", 0, wild))
			if rapid.IntRange(0, 9).Draw(rt, "in another encoding") == 0 {
				r.body = bytes.ReplaceAll(r.body, []byte(`\ufffd`), []byte("\xff"))
			}
		}
		if len(r.body) == 0 && !o.bodyRequired {
			return r // no text is no body
		}
		if err := d.validText(o.pointer+"/requestBody/content/application~1json/schema", r.body); err != nil {
			r.forbidden = "body: " + err.Error()
		}
	}
	return r
}

func streams(o operation) bool {
	ok, _ := o.responses["200"].(schema)
	content, _ := ok["content"].(schema)
	return content["text/event-stream"] != nil
}

func TestWhateverIsAsked_the_answer_is_one_that_is_described(t *testing.T) {
	whateverIsAsked(t, actiontest.SQLite(t)) // texts that a database may stumble over come to both, below
}

func whateverIsAsked(t *testing.T, w *actiontest.World) {
	r := newRig(t, w)
	r.Apply(some)
	require.Equal(t, 200, r.ask(auth.SuperAdmin, "POST", "/api/v1/cold-starts", `{"period":"day","from":"2026-11-18","to":"2026-11-20"}`).Code)
	for n := range 3 {
		r.alert(n)
	}
	d := describe(t, r.ask("", "GET", "/openapi.json", "").Body.Bytes())
	operations := slices.DeleteFunc(slices.Clone(d.operations), streams)
	key := r.keys[auth.SuperAdmin]
	answers := map[int]int{}
	rapid.Check(t, func(rt *rapid.T) {
		for range 10 {
			o := operations[rapid.IntRange(0, len(operations)-1).Draw(rt, "operation")]
			q := d.request(rt, o)
			req, err := http.NewRequest(q.method, "http://capri"+q.target, bytes.NewReader(q.body))
			if err != nil {
				rt.Fatalf("%s: %v", q.target, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			req = req.WithContext(ctx)
			req.RemoteAddr = "192.0.2.1:1234"
			req.Header.Set("Authorization", "Bearer "+key)
			if len(q.body) > 0 {
				req.Header.Set("Content-Type", "application/json")
			}
			rec := httptest.NewRecorder()
			r.handler.ServeHTTP(rec, req)
			answers[rec.Code]++
			told := fmt.Sprintf("%s %s %.600q: %d %.600q", q.method, q.target, q.body, rec.Code, rec.Body.String())
			if rec.Code == 500 {
				rt.Fatalf("%s\n%s", told, r.log.String()[max(0, r.log.Len()-2000):])
			}
			if q.forbidden != "" && rec.Code < 400 {
				rt.Fatalf("%s: accepted, though %s", told, q.forbidden)
			}
			if !utf8.Valid(rec.Body.Bytes()) && !strings.HasPrefix(rec.Header().Get("Content-Type"), "application/octet-stream") {
				rt.Fatalf("%s: no text", told)
			}
			for name := range rec.Header() {
				if name == "X-Injected" {
					rt.Fatal(told)
				}
			}
			d.answered(rt, o, rec, told)
		}
	})
	t.Logf("answers: %v", answers)
	require.Greater(t, answers[200]+answers[204]+answers[201], 50, "the requests made sense")
}

// answered holds an answer against the description.
func (d *described) answered(rt *rapid.T, o operation, rec *httptest.ResponseRecorder, told string) {
	if rec.Code >= 400 {
		if got := rec.Header().Get("Content-Type"); got != "application/problem+json" {
			rt.Fatalf("%s: a problem of type %q", told, got)
		}
		if err := d.validText("/components/schemas/Problem", rec.Body.Bytes()); err != nil {
			rt.Fatalf("%s: %v", told, err)
		}
		return
	}
	code := fmt.Sprint(rec.Code)
	described, ok := o.responses[code].(schema)
	if !ok {
		rt.Fatalf("%s: this answer is not described", told)
	}
	content, _ := described["content"].(schema)
	if content["application/json"] == nil {
		return
	}
	if err := d.validText(o.pointer+"/responses/"+code+"/content/application~1json/schema", rec.Body.Bytes()); err != nil {
		rt.Fatalf("%s: %v", told, err)
	}
}

// metacharacters are what SQL, its LIKE, a shell, a header or a file system would make something else of than text.
var metacharacters = []string{"' OR 1=1 -- \\' OR '1'='1", "$(touch /tmp/capri-was-here)`id`; id | cat && id\n\"../\U0001F4A9", "%", "_", "a\x00b", strings.Repeat("x'", 5_000)}

// asked is an operation with one of its texts exchanged for another; everything else is as its example, or left out.
func (d *described) asked(o operation, place, name, text string) (target string, body []byte) {
	path, query := o.path, url.Values{}
	for _, p := range o.parameters {
		is := p["name"].(string)
		value := map[string]string{"id": "1", "from": "2026-11-18", "to": "2026-11-20", "place": "primary"}[is]
		if p["in"] == place && is == name {
			value = text
		}
		switch {
		case p["in"] == "path":
			path = strings.ReplaceAll(path, "{"+is+"}", url.PathEscape(cmp.Or(value, "day")))
		case p["in"] == "query" && (is == name && place == "query" || p["required"] == true):
			query.Set(is, value)
		}
	}
	if o.body != nil {
		example := maps.Clone(d.doc["paths"].(schema)[o.path].(schema)[strings.ToLower(o.method)].(schema)["requestBody"].(schema)["content"].(schema)["application/json"].(schema)["example"].(schema))
		if place == "body" {
			example[name] = text
			if fields := d.resolve(o.body)["properties"].(schema); d.isList(fields[name]) {
				example[name] = []any{text}
			}
		}
		body, _ = json.Marshal(example)
	}
	return path + "?" + query.Encode(), body
}

// texts are the places of an operation where a text can stand: parameters, and fields of its body.
func (d *described) texts(o operation) (places [][2]string) {
	isText := func(s any) bool {
		at := d.resolve(s.(schema))
		if d.isList(s) {
			at = d.resolve(at["items"].(schema))
		}
		return at["type"] == "string" && at["format"] != "date-time"
	}
	for _, p := range o.parameters {
		if p["in"] != "header" && isText(p["schema"]) {
			places = append(places, [2]string{p["in"].(string), p["name"].(string)})
		}
	}
	if o.body != nil {
		fields, _ := d.resolve(o.body)["properties"].(schema)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if isText(fields[name]) {
				places = append(places, [2]string{"body", name})
			}
		}
	}
	return places
}

func (d *described) isList(s any) bool { return d.resolve(s.(schema))["type"] == "array" }

func TestMetacharacters_in_each_parameter_and_field_are_text_and_nothing_else(t *testing.T) {
	actiontest.Each(t, metacharactersAreText)
}

func metacharactersAreText(t *testing.T, w *actiontest.World) {
	r := newRig(t, w)
	r.Apply(some)
	require.Equal(t, 200, r.ask(auth.SuperAdmin, "POST", "/api/v1/cold-starts", `{"period":"day","from":"2026-11-18","to":"2026-11-20"}`).Code)
	r.alert(1)
	d := describe(t, r.ask("", "GET", "/openapi.json", "").Body.Bytes())
	held := func() (n int) {
		var counts []string
		for _, table := range []string{"task", "task_work", "user", "department", "action_log", "campaign", "credential", "dispatch_stop", "tthird_item"} {
			counts = append(counts, "(SELECT COUNT(*) FROM "+table+")")
		}
		require.NoError(t, w.Store.DB().QueryRowContext(t.Context(), "SELECT "+strings.Join(counts, " + ")).Scan(&n))
		return n
	}
	before, asked := held(), 0
	for _, o := range slices.SortedStableFunc(slices.Values(d.operations), func(x, y operation) int { return cmp.Compare(x.method, y.method) }) {
		if o.method == "POST" && before >= 0 { // all that reads and deletes comes first
			require.Equal(t, before, held(), "what was read and deleted by such names has changed something")
			before = -1
		}
		for _, place := range d.texts(o) {
			for _, text := range metacharacters {
				target, body := d.asked(o, place[0], place[1], text)
				rec := r.ask(auth.SuperAdmin, o.method, target, string(body))
				asked++
				told := fmt.Sprintf("%s %.300s %.300q: %d %.300q", o.method, target, body, rec.Code, rec.Body.String())
				require.NotEqual(t, 500, rec.Code, told+r.log.String()[max(0, r.log.Len()-2000):])
				if rec.Code >= 400 {
					require.NoError(t, d.validText("/components/schemas/Problem", rec.Body.Bytes()), told)
					continue
				}
				require.NotNil(t, o.responses[fmt.Sprint(rec.Code)], told)
				if o.method == "GET" && !streams(o) { // a filter that fits nothing
					require.Contains(t, []string{"[]", `{"items":[],"next":""}`}, strings.TrimSpace(rec.Body.String()), told)
				}
			}
		}
	}
	require.Greater(t, asked, 1000)
	require.NoFileExists(t, "/tmp/capri-was-here")
}

func TestNull_is_no_value_where_the_description_has_none(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	for body, field := range map[string]string{`{"name":"x","title":null}`: "title", `null`: ""} {
		rec := r.ask(auth.SuperAdmin, "PUT", "/api/v1/departments/x", body)
		require.Contains(t, []int{400, 422}, rec.Code, body)
		if field != "" {
			require.Equal(t, field, r.problem(rec).Errors[0].Field)
		}
	}
}

func TestHEAD_is_answered_as_GET_without_a_body(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	srv := httptest.NewServer(r.handler)
	defer srv.Close()
	ask := func(method, path string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+r.keys[auth.SuperAdmin])
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		if method == "HEAD" {
			require.Empty(t, data, path)
		}
		return resp
	}
	for _, path := range []string{"/docs", "/healthz", "/readyz", "/openapi.json", "/metrics", "/api/v1/tasks", "/api/v1/tasks/nothing", "/nothing"} {
		get, head := ask("GET", path), ask("HEAD", path)
		require.Equal(t, get.StatusCode, head.StatusCode, path)
		require.Equal(t, get.Header.Get("Content-Type"), head.Header.Get("Content-Type"), path)
	}
	for path, allow := range map[string][]string{"/api/v1/tasks:apply": {"POST"}, "/api/v1/events": {"GET"}} {
		resp := ask("HEAD", path)
		require.Equal(t, 405, resp.StatusCode, path)
		require.Equal(t, allow, resp.Header["Allow"], path)
	}
}

func TestProblemsOutsideOfOperations_are_problem_documents(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	for _, c := range []struct {
		method, path, kind, body string
		code                     int
		kindOfProblem            string
	}{
		{"GET", "/nothing", "", "", 404, "not-found"},
		{"GET", "/api/v1/nothing", "", "", 404, "not-found"},
		{"PATCH", "/api/v1/tasks", "", "", 405, "method-not-allowed"},
		{"GET", "/api/v1/tasks?group=" + strings.Repeat("g", 33<<10), "", "", 414, "address-too-long"},
		{"POST", "/api/v1/batches:kill", "text/csv", "1", 415, "unsupported-media-type"},
		{"POST", "/api/v1/batches:kill", "application/json", "{", 400, "bad-request"},
		{"POST", "/api/v1/batches:kill", "application/json", "{}", 422, "invalid"},
		{"POST", "/api/v1/batches:kill", "application/json", strings.Repeat(" ", 17<<20), 413, "too-large"},
	} {
		req := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		req.Header.Set("Authorization", "Bearer "+r.keys[auth.SuperAdmin])
		req.Header.Set("Content-Type", c.kind)
		rec := httptest.NewRecorder()
		r.handler.ServeHTTP(rec, req)
		require.Equal(t, c.code, rec.Code, c.method+" "+c.path+" "+c.kind)
		require.Equal(t, c.code, r.problem(rec).Status)
		require.Equal(t, wire.ProblemType+c.kindOfProblem, r.problem(rec).Type)
	}
}
