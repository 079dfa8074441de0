package worker

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"capri"
	"capri/internal/testenv"
	"capri/sql/sqltest"
)

// Jobs of the types that `capri job` runs go through the real program, shim and logs. What each type does with its
// command is tried in worker/job.
func TestA_job_of_type_http_is_called_judged_and_killed(t *testing.T) {
	called := make(chan string, 4)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called <- r.Header.Get("Capri-Attempt") + " " + r.URL.RequestURI()
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
		}
		io.WriteString(w, `{"state": "DONE"}`)
	}))
	defer server.Close()
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) { o.Program = testenv.Binary(t, "capri") })
	with := func(want string) func(*capri.Spec) {
		return func(s *capri.Spec) {
			s.Job.Type, s.Job.Params = "http", map[string]string{"day": "$(id) &"}
			s.Job.HTTP = capri.HTTP{Success: capri.HTTPRule{Path: "state", In: []string{want}}}
		}
	}
	id := c.launch("n1", server.URL+"/run/${yyyy}", with("DONE"))
	c.wants(id, capri.Success, "")
	if got, want := <-called, (capri.Attempt{Batch: id, Number: 1}).String()+" /run/2026?day=%24%28id%29+%26"; got != want {
		t.Errorf("the server was asked %q, want %q", got, want)
	}
	if got := n.output(id, 1, false); !strings.Contains(got, "200 OK") || !strings.HasSuffix(got, "{\"state\": \"DONE\"}\n") {
		t.Errorf("its log is %q", got)
	}
	c.wants(c.launch("n1", server.URL, with("FAILED")), capri.Failed, `exit code 1: state is "DONE", want FAILED`)

	hangs := c.launch("n1", server.URL+"/hang", with("DONE"))
	<-called
	<-called
	c.kill(hangs)
	c.wants(hangs, capri.Killed, "")
}

func TestAn_application_of_a_recorded_client_is_killed_with_its_batch(t *testing.T) {
	dir := dataDir(t) + ".d"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"spark-submit": "echo 'INFO YarnClientImpl: Submitted application application_1700000000001_0042' >&2; trap '' TERM; while :; do sleep 0.1; done",
		"yarn":         `echo "yarn was asked: $*"`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) {
		o.Program, o.KillGrace = testenv.Binary(t, "capri"), 5*time.Second
		o.Clients = map[string]string{"spark": filepath.Join(dir, "spark-submit"), "yarn": filepath.Join(dir, "yarn")}
	})
	id := c.launch("n1", "etl.py", func(s *capri.Spec) { s.Job.Type = "spark" })
	c.started(id)
	c.until("the client to say its id", func() bool {
		data, _, _, err := n.ReadLog(c.ctx, c.batch(id), 1, true, 0, 0)
		return err == nil && strings.Contains(string(data), "capri: the job has started application")
	}, func() string { return "nothing" })
	c.kill(id)
	c.wants(id, capri.Killed, "")
	if got := n.output(id, 1, true); !strings.Contains(got, "yarn was asked: application -kill application_1700000000001_0042") {
		t.Errorf("its log is %q", got)
	}
}

func TestA_client_that_is_absent_fails_the_batch_with_the_cure(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	c.run(func(o *Options) { o.Path = t.TempDir() })
	c.wants(c.launch("n1", "SELECT 1", func(s *capri.Spec) { s.Job.Type = "hive" }), capri.Failed, "set worker.clients.hive")
}
