package placement

import (
	"fmt"
	"testing"

	"capri"
)

// The sharpest hour: 100,000 day batches are ready at once.
func BenchmarkAssign100k(b *testing.B) {
	for _, c := range []struct {
		name         string
		nodes, slots int
		each         func(i int, b *Batch)
	}{
		{"all_fit/100_nodes", 100, 1000, func(int, *Batch) {}},
		{"all_fit/1000_nodes", 1000, 100, func(int, *Batch) {}},
		{"all_fit/100_nodes_round_robin", 100, 1000, func(_ int, b *Batch) { b.Strategy = capri.RoundRobin }},
		{"all_fit/100_nodes_random", 100, 1000, func(_ int, b *Batch) { b.Strategy = capri.Random }},
		{"soon_full/100_nodes", 100, 16, func(int, *Batch) {}},
		{"each_asks_another_memory/100_nodes", 100, 1000, func(i int, b *Batch) { b.MemoryMB = 1 + i*7919%5000 }},
		{"memory_runs_out_before_slots/1000_nodes", 1000, 100, func(i int, b *Batch) { b.MemoryMB = 1000 + i*7919%3000 }},
		{"concurrency_blocks_most/100_nodes", 100, 1000, func(i int, b *Batch) { b.Task = capri.TaskID(i % 100) }},
		{"node_lists/100_nodes", 100, 1000, func(i int, b *Batch) { b.Nodes = lists[i%len(lists)] }},
	} {
		b.Run(c.name, func(b *testing.B) {
			f := &Facts{MaxRunning: -1, Loads: map[string]capri.Load{}}
			for i := range c.nodes {
				f.Nodes = append(f.Nodes, capri.Node{Name: fmt.Sprintf("n%04d", i), Pool: "default", Slots: c.slots, MemoryMB: 256 << 10})
			}
			ready := batches(100_000, Batch{Pool: "default", Slots: 1, Concurrency: 1})
			for i := range ready {
				c.each(i, &ready[i])
			}
			b.ReportAllocs()
			for b.Loop() {
				assigned, _ := assignAll(ready, f, seeded())
				b.ReportMetric(float64(len(assigned)), "placed")
			}
		})
	}
}

var lists = func() (all [][]string) {
	for i := range 50 {
		all = append(all, []string{fmt.Sprintf("n%04d", i), fmt.Sprintf("n%04d", i+50), "gone"})
	}
	return all
}()
