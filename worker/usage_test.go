package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// hog keeps mb megabytes until it is told to end.
func hog(mb int) string {
	return fmt.Sprintf("x=$(head -c %dM /dev/zero | tr '\\0' x); while :; do sleep 0.05; done", mb)
}

func TestWhat_a_job_uses_is_told_while_it_runs(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	c.run(func(o *Options) { o.usage = 200 * time.Millisecond })
	id := c.launch("n1", hog(60), func(s *capri.Spec) { s.Worker.MemoryMB = 30 })
	b := c.untilBatch(id, "its memory to be known", func(b store.BatchRow) bool { return b.ActualMemoryMB >= 60 })
	if b.State != capri.Running || b.ActualProcesses < 1 {
		t.Errorf("it is %s with %d processes", b.State, b.ActualProcesses)
	}
	c.until("its owner to be told", func() bool { return c.told("over_memory", id) }, func() string { return "no alert" })
	c.kill(id)
	c.finished(id)
}

func TestA_job_that_has_more_memory_than_its_task_asks_for_is_ended_where_that_is_configured(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	c.run(func(o *Options) { o.EndOverMemory = true })
	greedy := c.launch("n1", hog(60), func(s *capri.Spec) { s.Worker.MemoryMB = 30 })
	free := c.launch("n1", hog(60), nil)
	b := c.wants(greedy, capri.Failed, "more than the 30 MB of its worker.memory_mb, and was ended")
	if b.ActualMemoryMB < 60 {
		t.Errorf("it had %d MB", b.ActualMemoryMB)
	}
	if !c.told("over_memory", greedy) {
		t.Error("nobody was told")
	}
	if b := c.batch(free); b.State != capri.Running {
		t.Errorf("the one that asks for nothing is %s: %s", b.State, b.Message)
	}
	c.kill(free)
	c.finished(free)
}

// told: there is an alert of a kind about a batch.
func (c *cluster) told(kind string, id capri.BatchID) bool {
	c.t.Helper()
	alerts, err := c.db.Store.Alerts(c.ctx, nil, 0, 100)
	if err != nil {
		c.t.Fatal(err)
	}
	return slices.ContainsFunc(alerts, func(a store.AlertRow) bool { return a.Kind == kind && a.Batch == id })
}
