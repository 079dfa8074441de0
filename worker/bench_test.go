package worker

import (
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"capri"
	"capri/sql/sqltest"
)

// bareLoop is the limit: how many times a second this machine can start and reap /bin/sh -c true, a loop on each of
// its CPUs.
const bareLoop = `i=0; while [ $i -lt %d ]; do /bin/sh -c true; i=$((i+1)); done`

func bareRate(b *testing.B, each int) float64 {
	b.Helper()
	var wg sync.WaitGroup
	began := time.Now()
	for range runtime.NumCPU() {
		wg.Go(func() {
			if out, err := exec.Command("/bin/sh", "-c", fmt.Sprintf(bareLoop, each)).CombinedOutput(); err != nil {
				b.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	return float64(each*runtime.NumCPU()) / time.Since(began).Seconds()
}

// BenchmarkNoop runs batches of `true` from assigned to finished, through the database, the worker, the shim, the
// logs and back, and prints the rate as a share of the bare loop's, measured before and after.
//
//	go test ./worker -run - -bench Noop -benchtime 5000x        (MariaDB: under scripts/with-servers)
func BenchmarkNoop(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { noop(b, sqltest.SQLite(b)) })
	b.Run("mysql", func(b *testing.B) { noop(b, sqltest.MySQL(b)) })
}

func noop(b *testing.B, db *sqltest.DB) {
	c := newCluster(b, db)
	n := c.run(func(o *Options) {
		o.Node.Slots = 500
		o.PollInterval = 500 * time.Millisecond
		o.audit = 30 * time.Second
		o.Log = slog.New(slog.DiscardHandler)
	})
	c.until("the worker to run", func() bool { return n.registered() != "" }, func() string { return "" })
	task := c.task("true", nil)
	var ids []capri.BatchID
	for left := b.N; left > 0; left -= 500 {
		ids = append(ids, c.batches(task, min(left, 500), nil)...)
	}
	before := bareRate(b, 500)
	b.ResetTimer()
	began := time.Now()
	c.assign("n1", ids...)
	c.until("all to end", func() bool {
		time.Sleep(20 * time.Millisecond)
		if c.batch(ids[len(ids)-1]).State != capri.Finished { // one row: the looking is not to cost much
			return false
		}
		left, err := db.Store.HeldAttempts(c.ctx, "n1")
		return err == nil && len(left) == 0
	}, func() string { left, _ := db.Store.HeldAttempts(c.ctx, "n1"); return fmt.Sprint(len(left), " left") })
	took := time.Since(began)
	b.StopTimer()
	after := bareRate(b, 500)
	for _, id := range []capri.BatchID{ids[0], ids[len(ids)/2], ids[len(ids)-1]} {
		c.wants(id, capri.Success, "")
	}
	rate, bare := float64(b.N)/took.Seconds(), (before+after)/2
	b.ReportMetric(rate, "batches/s")
	b.ReportMetric(bare, "bare/s")
	b.ReportMetric(rate/bare, "ratio")
	b.ReportMetric(0, "ns/op")
}
