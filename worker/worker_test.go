package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestA_job_that_ends_with_0_is_a_success(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		n := c.run(nil)
		id := c.launch("n1", "echo out; echo err >&2", nil)
		b := c.wants(id, capri.Success, "")
		if got := n.output(id, b.Attempt, false); got != "out\n" {
			t.Errorf("stdout is %q", got)
		}
		if got := n.output(id, b.Attempt, true); got != "err\n" {
			t.Errorf("stderr is %q", got)
		}
		left := func() []string {
			dirs, _ := filepath.Glob(filepath.Join(n.o.Dir, jobDir, "*"))
			return dirs
		}
		c.until("the job's directory to be gone", func() bool { return len(left()) == 0 }, func() string { return strings.Join(left(), " ") })
		var states []string
		events, err := db.Store.Events(c.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			states = append(states, e.Why)
		}
		if got := strings.Join(states, ", "); got != "assigned, claimed, started, succeeded" {
			t.Errorf("its history is %s", got)
		}
		if _, err := os.Stat(filepath.Join(n.o.Dir, idFile)); err != nil {
			t.Error(err)
		}
	})
}

func TestA_failed_attempt_is_tried_again_after_its_interval(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		c.run(nil)
		id := c.launch("n1", "echo first >&2; printf 'no \\033[31mspace\\n\\n' >&2; exit 7", func(s *capri.Spec) {
			s.Retry.Failed, s.Retry.FailedIntervalS = 1, 60
		})
		b := c.untilBatch(id, "waiting again", func(b store.BatchRow) bool { return b.State == capri.Waiting && b.Failures == 1 })
		if b.Message != "exit code 7: no [31mspace" && b.Message != "exit code 7: no  [31mspace" {
			t.Errorf("message is %q", b.Message)
		}
		if b.NotBefore != db.Clock.Now()+60_000 {
			t.Errorf("not before %s, want a minute after %s", b.NotBefore, db.Clock.Now())
		}
		c.assign("n1", id)
		b = c.wants(id, capri.Failed, "exit code 7: no")
		if b.Attempt != 2 || b.Failures != 2 {
			t.Errorf("ended at attempt %d with %d failures", b.Attempt, b.Failures)
		}
	})
}
