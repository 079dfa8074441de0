package worker

import (
	"testing"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestA_job_finds_the_token_of_its_attempt_and_is_judged_by_the_code_it_reports(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	secret := []byte("of the cluster")
	n := c.run(func(o *Options) { o.Secret = secret })
	gate := n.fifo(t)
	id := c.launch("n1", `printf %s "$CAPRI_ATTEMPT_TOKEN"; read x <`+gate+`; exit 3`, func(s *capri.Spec) { s.Check = capri.CheckUserCode })
	c.started(id)
	want := capri.Attempt{Batch: id, Number: 1}
	var token string
	c.until("its token", func() bool {
		data, _, _, err := n.ReadLog(c.ctx, c.batch(id), 1, false, 0, 0)
		token = string(data)
		return err == nil && len(token) >= len(store.AttemptToken(secret, want))
	}, func() string { return token })
	if a, ok := store.ParseAttemptToken(secret, token); !ok || a != want {
		t.Fatalf("the token is of attempt %v (%v)", a, ok)
	}
	if err := c.db.Store.ReportCode(c.ctx, want, 0, "4711 rows"); err != nil {
		t.Fatal(err)
	}
	n.release()
	c.wants(id, capri.Success, "4711 rows")
}
