package worker

import (
	"strings"
	"testing"

	"capri"
	"capri/sql/sqltest"
)

func TestA_job_that_prints_without_end_does_not_fill_the_disk(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) { o.LogLimitMB = 1 })
	id := c.launch("n1", `echo first; head -c 100M /dev/zero | tr '\0' x; echo; echo last`, nil)
	c.wants(id, capri.Success, "")
	said := n.output(id, 1, false)
	if !strings.HasPrefix(said, "first\n") || !strings.HasSuffix(said, "\nlast\n") || strings.Count(said, "bytes are missing here") != 1 {
		t.Errorf("of its log there is %d bytes, from %.20q to %q", len(said), said, said[max(0, len(said)-20):])
	}
	if len(said) > 2<<20 {
		t.Errorf("%d bytes of its log are left", len(said))
	}
}
