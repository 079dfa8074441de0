package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"capri"
	"capri/sql/store"
)

// list: pages of a list of a million batches, by each filter and by pairs of them. Its data is uneven as it is in life: a
// few large groups and many small ones, one owner with a single task, few failures, one node that runs little.
func (b *Bench) list(ctx context.Context, d *db) error {
	const tasks, days = 10_000, 90
	n := 1_000_000
	if !b.Million {
		n = 100_000
	}
	d.fillTasks(ctx, tasks)
	d.exec(ctx, "UPDATE task SET task_group = 'large', owner = 'many' WHERE id <= 3000")
	d.exec(ctx, "UPDATE task SET task_group = 'middle', owner = 'some' WHERE id > 3000 AND id <= 3400")
	d.exec(ctx, "UPDATE task SET task_group = 'small', owner = 'rare' WHERE id > 9000 AND id <= 9003")
	d.exec(ctx, "INSERT INTO user (name, department, created_at) VALUES ('some', 'data', 1), ('rare', 'ops', 1)")
	r := rand.New(rand.NewPCG(1, 2)) // the same each time
	columns, finished := []string{"id", "task_id", "task_version", "period", "batch_no", "run_no", "latest", "origin", "schedule_time", "data_start", "data_end", "create_time",
		"state", "finish_state", "unmet", "kinds", "not_before", "priority", "slots", "memory_mb", "concurrency", "pool", "strategy", "node", "finish_time"}, 0
	rows := make([][]any, 0, 5000)
	flush := func() {
		tx, err := d.plain.BeginTx(ctx, nil)
		d.must(err)
		insertPlain(ctx, tx, "task_work", columns, rows, 500)
		d.must(tx.Commit())
		rows = rows[:0]
	}
	began := time.Now()
	for id := 1; id <= n; id++ {
		task := (id*7919)%tasks + 1
		at := int64(benchNow) - int64(n-id)*days*24*3600_000/int64(n)
		period, state, end, node := int(capri.Day), int(capri.Finished), int(capri.Success), fmt.Sprintf("node-%02d", r.IntN(20))
		var finish, latest any = at + int64(r.IntN(3600_000)), 1
		switch {
		case task > 9995:
			period = int(capri.Month)
		case task > 9900:
			period = int(capri.Week)
		case task > 5000:
			period = int(capri.Hour)
		}
		switch x := r.IntN(1000); {
		case id > n-n/50: // the newest wait
			state, end, finish, node = int(capri.Waiting), int(capri.None), nil, ""
			if x < 30 {
				state, node = int(capri.Running), fmt.Sprintf("node-%02d", r.IntN(20))
			} else if x < 60 {
				end = int(capri.DependencyTimeout)
			}
		case x < 10:
			end = int(capri.Failed)
		case x == 10 && r.IntN(10) == 0:
			end = int(capri.Killed)
		case x == 11 && r.IntN(10) == 0:
			node = "rare"
		}
		if r.IntN(20) == 0 {
			latest = nil
		}
		rows = append(rows, []any{id, task, 1, period, strconv.FormatInt(int64(id), 10), 0, latest, 0, at, at - 24*3600_000, at, at, state, end, 0, 0, at, 5, 1, 0, 1, "default", "least_loaded", node, finish})
		if finished++; len(rows) == cap(rows) {
			flush()
		}
	}
	flush()
	d.analyze(ctx)
	b.note("%d batches of %d tasks over %d days, written in %v", finished, tasks, days, time.Since(began).Round(time.Second))

	ago := func(days int) capri.Instant { return benchNow - capri.Instant(days*24*3600_000) }
	type filter struct {
		name string
		set  func(*store.BatchFilter)
	}
	filters := []filter{
		{"task", func(f *store.BatchFilter) { f.Task = 4711 }},
		{"prefix", func(f *store.BatchFilter) { f.Name = "bench_pipeline_00047*" }},
		{"waiting", func(f *store.BatchFilter) { f.States = []capri.State{capri.Waiting} }},
		{"running", func(f *store.BatchFilter) { f.States = []capri.State{capri.Running} }},
		{"finished", func(f *store.BatchFilter) { f.States = []capri.State{capri.Finished} }},
		{"failed", func(f *store.BatchFilter) { f.FinishStates = []capri.FinishState{capri.Failed} }},
		{"killed", func(f *store.BatchFilter) { f.FinishStates = []capri.FinishState{capri.Killed} }},
		{"day", func(f *store.BatchFilter) { f.Period = capri.Day }},
		{"month", func(f *store.BatchFilter) { f.Period = capri.Month }},
		{"large group", func(f *store.BatchFilter) { f.Group = "large" }},
		{"middle group", func(f *store.BatchFilter) { f.Group = "middle" }},
		{"rare owner", func(f *store.BatchFilter) { f.Owner = "rare" }},
		{"department", func(f *store.BatchFilter) { f.Department = "data" }},
		{"node", func(f *store.BatchFilter) { f.Node = "node-07" }},
		{"rare node", func(f *store.BatchFilter) { f.Node = "rare" }},
		{"late", func(f *store.BatchFilter) { f.Late = true }},
		{"range", func(f *store.BatchFilter) { f.From, f.To = ago(60), ago(50) }},
		{"all runs", func(f *store.BatchFilter) { f.AllRuns = true }},
		{"oldest", func(f *store.BatchFilter) { f.Order.Oldest = true }},
	}
	var all, pairs []time.Duration
	measure := func(sets ...func(*store.BatchFilter)) []time.Duration {
		f := store.BatchFilter{Limit: 101}
		for _, set := range sets {
			set(&f)
		}
		var times []time.Duration
		for range 3 { // a walk over pages, from its beginning
			f.After = store.BatchPosition{}
			for range 7 {
				began := time.Now()
				rows, err := d.store.Batches(ctx, f)
				times = append(times, time.Since(began))
				d.must(err)
				if len(rows) <= 100 {
					break
				}
				f.After = f.Order.Position(&rows[99].Batch)
			}
		}
		slices.Sort(times)
		return times
	}
	b.note("%-30s %10s %10s", "filter", "p50", "p99")
	show := func(name string, times []time.Duration) {
		b.note("%-30s %10v %10v", name, times[len(times)/2].Round(10*time.Microsecond), times[len(times)*99/100].Round(10*time.Microsecond))
	}
	for i, x := range filters {
		times := measure(x.set)
		show(x.name, times)
		all = append(all, times...)
		for _, y := range filters[:i] {
			name := y.name + " + " + x.name
			times := measure(y.set, x.set)
			pairs = append(pairs, times...)
			if times[len(times)*99/100] > 25*time.Millisecond {
				show(name, times)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(pairs)
	show("all filters", all)
	show("all pairs", pairs)
	p99 := func(times []time.Duration) float64 { return times[len(times)*99/100].Seconds() * 1000 }
	b.atMost("a page of one filter, p99/"+d.kind, p99(all), 50, "ms", 1)
	b.atMost("a page of two filters, p99/"+d.kind, p99(pairs), 50, "ms", 1)
	return nil
}
