package worker

import (
	"strings"
	"testing"

	"capri"
	"capri/sql/sqltest"
)

func TestA_node_that_is_short_of_disk_or_busy_takes_nothing_until_it_clearly_has_more(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n, err := New(c.options()) // it does not run: nobody else measures
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	d, err := n.disk()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what         string
		least        int64
		load, most   float64
		want         string
		clearlyMore  int64
		clearlyMoreL float64
	}{
		{"disk", d.freeMB * 2, 0, 0, "worker.min_free_mb", d.freeMB / 3, 0},
		{"load", 1, 3, 2, "its load is 300%", 1, 10},
	} {
		n.o.MinFreeMB, n.o.MaxLoad = step.least, step.most
		node := &capri.Node{CPULoad: step.load}
		if got := n.shortOf(node); !strings.Contains(got, step.want) {
			t.Errorf("%s: it is short of %q", step.what, got)
		}
		// A little more than the least is not enough to begin again.
		if step.what == "disk" {
			n.o.MinFreeMB = d.freeMB * 9 / 10
		} else {
			n.o.MaxLoad = step.load * 1.1
		}
		if got := n.shortOf(node); got == "" {
			t.Errorf("%s: it takes batches again at the edge", step.what)
		}
		n.o.MinFreeMB, n.o.MaxLoad = step.clearlyMore, step.clearlyMoreL
		if got := n.shortOf(node); got != "" {
			t.Errorf("%s: it is still short of %q", step.what, got)
		}
	}
}
