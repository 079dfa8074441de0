package worker

import (
	"testing"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestA_job_says_how_far_it_has_come_by_printing_it(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	one, two := n.fifo(t), n.fifo(t)
	id := c.launch("n1", "echo capri:progress 7; echo 'capri:progress 1000'; echo 'not capri:progress 90'; read x <"+one+"; for i in $(seq 30 64); do echo capri:progress $i; done; read x <"+two, nil)
	progress := func(percent int) {
		t.Helper()
		c.untilBatch(id, "its progress", func(b store.BatchRow) bool { return b.Progress == percent })
	}
	progress(7)
	n.releaseOnly(0)
	progress(64)
	n.release()
	if b := c.wants(id, capri.Success, ""); b.Progress != 100 {
		t.Errorf("it has ended at %d %%", b.Progress)
	}
}
