package worker

import (
	"os"
	"strings"
	"testing"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/worker/logs"
)

// peek reads what a running job has written so far.
func (n *node) peek(id capri.BatchID) string {
	n.c.t.Helper()
	data, _, _, err := n.ReadLog(n.c.ctx, n.c.batch(id), 1, false, 0, 0)
	if err != nil {
		n.c.t.Fatal(err)
	}
	return string(data)
}

func TestA_job_finds_the_token_of_its_attempt_and_is_judged_by_the_code_it_reports(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	secret := []byte("of the cluster")
	n := c.run(func(o *Options) { o.Secret = secret })
	gate := n.fifo(t)
	id := c.launch("n1", `printf %s "$CAPRI_ATTEMPT_TOKEN"; read x <`+gate+`; exit 3`, func(s *capri.Spec) { s.Check = capri.CheckUserCode })
	c.started(id)
	want := capri.Attempt{Batch: id, Number: 1}
	var token string
	path, err := n.logPath(n.table.get(want), logs.Out) // what is read of a log has no tokens
	if err != nil {
		t.Fatal(err)
	}
	c.until("its token", func() bool {
		data, _ := os.ReadFile(path)
		token = string(data)
		return len(token) >= len(store.AttemptToken(secret, want))
	}, func() string { return token })
	if said := n.peek(id); strings.Contains(said, token) || !strings.Contains(said, "capri_***") {
		t.Errorf("who reads the log sees %q", said)
	}
	if a, ok := store.ParseAttemptToken(secret, token); !ok || a != want {
		t.Fatalf("the token is of attempt %v (%v)", a, ok)
	}
	if err := c.db.Store.ReportCode(c.ctx, want, 0, "4711 rows"); err != nil {
		t.Fatal(err)
	}
	n.release()
	c.wants(id, capri.Success, "4711 rows")
}
