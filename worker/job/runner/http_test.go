package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"capri"
)

// did runs a call and gives what it said.
func did(t *testing.T, c Call) (code int, stdout, stderr string) {
	t.Helper()
	told, err := json.Marshal(Spec{HTTP: &c})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(Variable, string(told))
	var out, errs bytes.Buffer
	code = Run(context.Background(), &out, &errs, nil)
	return code, out.String(), errs.String()
}

func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestA_call_is_judged_by_status_and_rule(t *testing.T) {
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		io.WriteString(w, `{"data": {"n": 12345678901234567890, "ok": true, "none": null, "list": [{"state": "DONE"}], "o": {}}}`)
	})
	rule := func(path string, in ...string) capri.HTTP {
		return capri.HTTP{Success: capri.HTTPRule{Path: path, In: in}}
	}
	for _, row := range []struct {
		path string
		http capri.HTTP
		want string // of stderr; "": success
	}{
		{"/", capri.HTTP{}, ""},
		{"/busy", capri.HTTP{}, "status 503, want 200-299"},
		{"/busy", capri.HTTP{Status: "404,500-503"}, ""},
		{"/", capri.HTTP{Status: "202"}, "status 200, want 202"},
		{"/", rule("data.list[0].state", "OK", "DONE"), ""},
		{"/", rule("data.list[0].state", "FAILED"), `data.list[0].state is "DONE", want FAILED`},
		{"/", rule("data.n", "12345678901234567890"), ""},
		{"/", rule("data.ok", "true"), ""},
		{"/", rule("data.none", "null"), ""},
		{"/", rule("data.o", "{}"), `data.o is "", want {}`},
		{"/", rule("data.list[1].state", "DONE"), `is ""`},
		{"/", rule("data.ok.more", "true"), `is ""`},
	} {
		code, _, said := did(t, Call{URL: at + row.path, HTTP: row.http})
		if (code == 0) != (row.want == "") || !strings.Contains(said, row.want) {
			t.Errorf("%s %+v: exit code %d, %s", row.path, row.http, code, said)
		}
	}
	if code, _, said := did(t, Call{URL: "http://127.0.0.1:1/x?key=secret"}); code != 1 || !strings.Contains(said, "http://127.0.0.1:1/x?…") || strings.Contains(said, "secret") {
		t.Errorf("nobody there: exit code %d, %s", code, said)
	}
}

func TestWhat_is_sent(t *testing.T) {
	var got, body string
	at := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = fmt.Sprint(r.Method, " ", r.URL.RawQuery, " ", r.Header.Get("Content-Type"), " ", r.Header.Get("X-Key"), " ", r.Header.Get("Capri-Batch-No"), " ", r.Header.Get("Idempotency-Key"))
		body = string(b)
	})
	t.Setenv("CAPRI_BATCH_NO", "20261120")
	t.Setenv("CAPRI_ATTEMPT", "5.2")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // nobody asks it
	evil := "$(id) \"'\n&b=c#%41 日本"
	for _, row := range []struct {
		call       Call
		sent, body string
	}{
		{Call{URL: "/p?k=a%20b", Params: map[string]string{"x": evil}}, "GET k=a%20b&x=%24%28id%29+%22%27%0A%26b%3Dc%23%2541+%E6%97%A5%E6%9C%AC   20261120 ", ""},
		{Call{URL: "/", HTTP: capri.HTTP{Method: "POST"}, Params: map[string]string{"x": "1 \""}}, "POST  application/json  20261120 5.2", `{"x":"1 \""}`},
		{Call{URL: "/", HTTP: capri.HTTP{Method: "PUT", Body: `{"a": 1}`, Headers: map[string]string{"x-key": "secret"}}, Params: map[string]string{"x": "1"}}, "PUT x=1 application/json secret 20261120 5.2", `{"a": 1}`},
		{Call{URL: "/", HTTP: capri.HTTP{Method: "POST", Body: "a=b", Headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}}, "POST  application/x-www-form-urlencoded  20261120 5.2", "a=b"},
		{Call{URL: "/", HTTP: capri.HTTP{Method: "POST", Body: "text"}}, "POST  text/plain; charset=utf-8  20261120 5.2", "text"},
	} {
		row.call.URL = at + row.call.URL
		code, out, said := did(t, row.call)
		if code != 0 || got != row.sent || body != row.body {
			t.Errorf("%+v: exit code %d %s\nsent %q %q\nwant %q %q", row.call, code, said, got, body, row.sent, row.body)
		}
		if strings.Contains(out+said, "secret") {
			t.Errorf("the log tells a header's value: %s", out)
		}
	}
}

func TestPolling_goes_on_until_the_rule_holds(t *testing.T) {
	var asked atomic.Int32
	var paths []string
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			io.WriteString(w, `{"job": {"id": "a/../b c?d"}}`)
			return
		}
		paths = append(paths, r.RequestURI+" "+r.Header.Get("Authorization"))
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		case 2:
			io.WriteString(w, `{"state": "RUNNING"}`)
		default:
			io.WriteString(w, `{"state": "DONE", "result": "good"}`)
		}
	})
	c := Call{URL: at + "/run", HTTP: capri.HTTP{Method: "POST", Headers: map[string]string{"Authorization": "k"},
		Poll: capri.HTTPPoll{URL: "/jobs/{id}?n={id}", ID: "job.id", Until: capri.HTTPRule{Path: "state", In: []string{"DONE", "FAILED"}}, EveryS: 1}}}
	code, out, said := did(t, c)
	if code != 0 || asked.Load() != 3 || paths[2] != "/jobs/a%2F%2E%2E%2Fb%20c%3Fd?n=a%2F%2E%2E%2Fb%20c%3Fd k" {
		t.Errorf("exit code %d after %d: %q; %s", code, asked.Load(), paths, said)
	}
	for _, line := range []string{"→ 202 Accepted", "502 Bad Gateway", `state is "RUNNING"`, `"result": "good"`} {
		if !strings.Contains(out, line) {
			t.Errorf("the log has no %s: %s", line, out)
		}
	}
	c.HTTP.Success = capri.HTTPRule{Path: "result", In: []string{"better"}}
	if code, _, said := did(t, c); code != 1 || !strings.Contains(said, `result is "good", want better`) {
		t.Errorf("the last answer is not judged: %d, %s", code, said)
	}
	c.HTTP.Poll.ID = "job"
	if code, _, said := did(t, c); code != 1 || !strings.Contains(said, "no text or number at job") {
		t.Errorf("without an id: %d, %s", code, said)
	}
	// Another host is not sent what was meant for this one.
	asked.Store(9)
	paths = nil
	c.HTTP.Poll.ID, c.HTTP.Success = "job.id", capri.HTTPRule{}
	c.HTTP.Poll.URL = strings.Replace(at, "127.0.0.1", "localhost", 1) + "/{id}"
	if code, _, said := did(t, c); code != 0 || !strings.HasSuffix(paths[0], " ") {
		t.Errorf("exit code %d: %q; %s", code, paths, said)
	}
}

func TestA_poll_that_is_refused_fails_at_once(t *testing.T) {
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
		}
	})
	until := capri.HTTPRule{Path: "a", In: []string{"b"}}
	code, _, said := did(t, Call{URL: at, HTTP: capri.HTTP{Poll: capri.HTTPPoll{URL: "/gone", Until: until}}})
	if code != 1 || !strings.Contains(said, "status 410 while asking") {
		t.Errorf("exit code %d, %s", code, said)
	}
	code, _, said = did(t, Call{URL: at, HTTP: capri.HTTP{Poll: capri.HTTPPoll{URL: "http://169.254.169.254/x", Until: until}}})
	if code != 1 || !strings.Contains(said, "metadata") {
		t.Errorf("exit code %d, %s", code, said)
	}
}

func TestAddresses_that_keep_a_machines_secrets_are_not_called(t *testing.T) {
	for _, row := range []struct {
		address string
		refused bool
	}{
		{"169.254.169.254", true}, {"::ffff:169.254.169.254", true}, {"64:ff9b::a9fe:a9fe", true}, {"2002:a9fe:a9fe::1", true}, {"::a9fe:a9fe", true},
		{"fe80::1%eth0", true}, {"fd00:ec2::254", true}, {"fd20:ce::254", true}, {"100.100.100.200", true}, {"168.63.129.16", true}, {"0.0.0.0", true}, {"::", true}, {"224.0.0.1", true},
		{"10.0.0.1", false}, {"127.0.0.1", false}, {"::1", false}, {"8.8.8.8", false}, {"2001:db8::1", false},
	} {
		err := reachable(netip.MustParseAddr(row.address), nil)
		if (err != nil) != row.refused {
			t.Errorf("%s: %v", row.address, err)
		}
	}
	if err := reachable(netip.MustParseAddr("169.254.169.254"), prefixes("169.254.169.0/24")); err != nil {
		t.Errorf("an exception: %v", err)
	}
	// Other spellings of a number lead to the same address.
	for _, host := range []string{"169.254.169.254", "[::ffff:a9fe:a9fe]", "0.0.0.0:1"} {
		code, out, said := did(t, Call{URL: "http://" + host + "/latest/meta-data/", HTTP: capri.HTTP{TimeoutS: 5}})
		if code != 1 || !strings.Contains(said, "jobs of type http do not call") {
			t.Errorf("%s: exit code %d, %s %s", host, code, out, said)
		}
	}
}

func TestRedirects_stay_on_their_host(t *testing.T) {
	reached := false
	other := serve(t, func(http.ResponseWriter, *http.Request) { reached = true })
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/away":
			http.Redirect(w, r, other+"/x?key=secret", http.StatusTemporaryRedirect)
		case "/metadata":
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		}
	})
	for path, want := range map[string]string{"/here": "", "/loop": "more than five times", "/away": "redirects to other hosts", "/metadata": "redirects to other hosts"} {
		code, out, said := did(t, Call{URL: at + path})
		if (code == 0) != (want == "") || !strings.Contains(said, want) || strings.Contains(out+said, "secret") {
			t.Errorf("%s: exit code %d, %s", path, code, said)
		}
	}
	if reached {
		t.Error("the other host was called")
	}
}

func TestA_large_answer_is_cut_in_the_log_and_not_judged(t *testing.T) {
	at := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"a": "`+strings.Repeat("x", 2*mostAnswer)+`"}`)
	})
	code, out, _ := did(t, Call{URL: at})
	if code != 0 || len(out) > mostLogged+500 || !strings.Contains(out, "the log keeps 16 KB") {
		t.Errorf("exit code %d, %d bytes of log", code, len(out))
	}
	code, _, said := did(t, Call{URL: at, HTTP: capri.HTTP{Success: capri.HTTPRule{Path: "a", In: []string{"x"}}}})
	if code != 1 || !strings.Contains(said, "more than 1024 KB, so its a is not known") {
		t.Errorf("exit code %d, %s", code, said)
	}
}

func TestA_server_that_says_nothing_is_given_up(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	code, _, said := did(t, Call{URL: "http://" + l.Addr().String() + "/", HTTP: capri.HTTP{TimeoutS: 1}})
	if code != 1 || !strings.Contains(said, "no answer within 1 s") {
		t.Errorf("exit code %d, %s", code, said)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	var out, errs bytes.Buffer
	if code := call(ctx, &Call{URL: "http://" + l.Addr().String() + "/"}, &out, &errs); code != exitTold || !strings.Contains(errs.String(), "told to end") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}

func TestA_runner_without_its_variable_says_whose_it_is(t *testing.T) {
	for _, told := range []string{"", "{", "{}", `{"client": {"argv": []}}`, `{"client": {"argv": ["/bin/true"], "remote": "mesos"}}`} {
		t.Setenv(Variable, told)
		var out, errs bytes.Buffer
		if code := Run(context.Background(), &out, &errs, nil); code != exitUsage || errs.Len() == 0 {
			t.Errorf("%q: exit code %d, %s", told, code, errs.String())
		}
	}
}
