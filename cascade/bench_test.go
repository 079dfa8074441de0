package cascade

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"capri"
	"capri/internal/workload"

	"github.com/stretchr/testify/require"
)

// cpu reports the processor's time beside the wall's, which on a busy machine says little.
func cpu(b *testing.B) func() {
	used := func() time.Duration {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := used()
	return func() { b.ReportMetric(float64((used()-began).Microseconds())/1000/float64(b.N), "cpu-ms/op") }
}

// What a preview may take: 20,000 descendants of one root in 0.3 s, 100,000 in 2 s, both with their order.
func BenchmarkReach(b *testing.B) {
	for _, bb := range []struct {
		name       string
		tasks      int
		days, most int
	}{{"20000 tasks", 20_000, 1, 200_000}, {"100000 tasks", 100_000, 1, 200_000}, {"1000 tasks, 100 days", 1000, 100, 200_000}} {
		b.Run(bb.name, func(b *testing.B) {
			w, err := newWorld("Europe/Berlin", 0, workload.Descendants(bb.tasks)...)
			require.NoError(b, err)
			now := at(b, w.c, "2026-11-20 09:00")
			for id, ref := range w.refs {
				ref.First = at(b, w.c, "2020-01-01")
				w.refs[id] = ref
			}
			g := w.graph()
			root := Root{Task: w.task("root").ID}
			for iv := w.c.EndedBy(capri.Day, at(b, w.c, "2026-10-05")); len(root.Intervals) < bb.days; iv = w.c.Shift(capri.Day, iv, -1) {
				root.Intervals = append(root.Intervals, iv)
			}
			var items []Item
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				if items, err = g.Reach([]Root{root}, Both, now, bb.most); err != nil {
					b.Fatal(err)
				}
			}
			edges := 0
			for i := range items {
				edges += len(items[i].Before)
			}
			b.ReportMetric(float64(len(items)), "items")
			b.ReportMetric(float64(edges), "edges")
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{20_000, 100_000} {
		b.Run(fmt.Sprintf("%d tasks", n), func(b *testing.B) {
			w, err := newWorld("Europe/Berlin", 0, workload.Descendants(n)...)
			require.NoError(b, err)
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				w.graph()
			}
		})
	}
}

func BenchmarkEstimate(b *testing.B) {
	w, err := newWorld("Europe/Berlin", 0, workload.Descendants(100_000)...)
	require.NoError(b, err)
	root := Root{w.task("root").ID, []capri.Interval{w.c.EndedBy(capri.Day, at(b, w.c, "2026-10-05"))}}
	items, err := w.graph().Reach([]Root{root}, Both, at(b, w.c, "2026-11-20 09:00"), 200_000)
	require.NoError(b, err)
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		Estimate(items, func(it *Item) Rate { return Rate{Minutes: float64(it.Task.ID%90) + 1} }, Resources{AtOnce: 200, Slots: map[string]int{"default": 300}})
	}
}
