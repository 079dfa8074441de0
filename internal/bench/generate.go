package bench

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"capri"
	"capri/definition"
	"capri/services"
	"capri/services/generate"
	"capri/sql/store"
)

func benchSpec(name string) capri.Spec {
	spec := definition.Default()
	spec.Name, spec.Period = name, capri.Day
	spec.Job = capri.Job{Type: "shell", Command: "true"}
	return spec
}

// fillTasks defines n day tasks with three conditions each: an input path, a third party, a parent (the root task).
func (d *db) fillTasks(ctx context.Context, n int) {
	d.fillTasksWith(ctx, n, func(id int, spec *capri.Spec) {
		if id > 1 {
			spec.Inputs = []capri.Input{{Path: fmt.Sprintf("/warehouse/bench/source_%07d/dt=${yyyyMMdd}", id), Flag: "_SUCCESS"}}
			spec.ThirdParty = []capri.ThirdParty{{Code: "bench_closed"}}
			spec.Parents = []capri.Parent{parentTask(1)}
		}
	})
}

func taskName(id int) string { return fmt.Sprintf("bench_pipeline_%07d_daily", id) }

func parentTask(id int) capri.Parent {
	return capri.Parent{Task: taskName(id), TaskID: capri.TaskID(id), Policy: capri.All}
}

// fillTasksWith defines n tasks, of a day where change says nothing else.
func (d *db) fillTasksWith(ctx context.Context, n int, change func(id int, spec *capri.Spec)) {
	made := int64(benchNow) - 30*24*3600_000
	taskColumns := []string{"id", "name", "version", "task_group", "owner", "output_period", "cron_expression", "task_begin_time", "check_type", "priority", "enabled", "valid_from", "valid_to",
		"first_mark", "definition", "expected_minutes", "app", "submitter", "created_at", "updated_at", "deleted_at"}
	historyColumns := []string{"task_id", "version", "output_period", "enabled", "deleted", "valid_from", "valid_to", "definition", "changed_at", "changed_by"}
	var tasks, history [][]any
	flush := func() {
		tx, err := d.plain.BeginTx(ctx, nil)
		if err != nil {
			panic(err)
		}
		insertPlain(ctx, tx, "task", taskColumns, tasks, 500)
		insertPlain(ctx, tx, "task_history", historyColumns, history, 500)
		if err := tx.Commit(); err != nil {
			panic(err)
		}
		tasks, history = tasks[:0], history[:0]
	}
	for id := 1; id <= n; id++ {
		spec := benchSpec(taskName(id))
		change(id, &spec)
		text, err := store.EncodeSpec(&spec)
		d.must(err)
		tasks = append(tasks, []any{id, spec.Name, 1, spec.Group, spec.Owner, int(spec.Period), "", -1, string(spec.Check), spec.Priority, 1, 0, 0, made, text, 0, "", "bench", made, made, nil})
		history = append(history, []any{id, 1, int(spec.Period), 1, 0, 0, 0, text, made, "bench"})
		if len(tasks) == 5000 {
			flush()
		}
	}
	flush()
	d.exec(ctx, fmt.Sprintf("UPDATE id_block SET next_id = %d WHERE name = 'task'", n+1))
}

// lease gives the bench the lease of a service.
func (d *db) lease(ctx context.Context, service string) capri.Lease {
	locks, err := d.store.Locks(ctx)
	if err != nil {
		panic(err)
	}
	for _, l := range locks {
		if l.Service == service {
			lease, ok, err := d.store.AcquireLease(ctx, service, "bench", l)
			if err != nil || !ok {
				panic(fmt.Sprint("lease: ", ok, err))
			}
			return lease
		}
	}
	panic("no lease row")
}

// day starts the mark log so that exactly yesterday's day mark is due, and generates it.
func (d *db) day(ctx context.Context, lease capri.Lease, n int) time.Duration {
	for _, p := range []capri.Period{capri.Month, capri.Week, capri.Hour} {
		d.must(d.store.StartMarkLog(ctx, lease, p, benchNow))
	}
	d.must(d.store.StartMarkLog(ctx, lease, capri.Day, benchNow-1))
	s := generate.New(d.store, d.cal, slog.New(slog.DiscardHandler))
	began := time.Now()
	res, err := s.Run(ctx, services.Turn{Now: benchNow, Lease: lease})
	took := time.Since(began)
	d.must(err)
	if res.Counts["made"] != n {
		panic(fmt.Sprintf("made %d of %d", res.Counts["made"], n))
	}
	return took
}

func (d *db) must(err error) {
	if err != nil {
		panic(err)
	}
}

// plainInserts times the limit: the same rows into the same tables and indexes by multi-row INSERTs on so many
// connections.
func (d *db) plainInserts(ctx context.Context, copies map[string][][]any, columns map[string][]string, connections, perStatement int) time.Duration {
	tables := []string{"task_work", "task_data", "tthird_data", "tparent_data", "batch_event"}
	type piece struct {
		table string
		rows  [][]any
	}
	work := make(chan piece, 10_000)
	for _, t := range tables {
		for part := range slices.Chunk(copies[t], perStatement) {
			work <- piece{t, part}
		}
	}
	close(work)
	began := time.Now()
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			for {
				tx, err := d.plain.BeginTx(ctx, nil)
				d.must(err)
				n := 0
				for p := range work {
					insertPlain(ctx, tx, p.table, columns[p.table], p.rows, perStatement)
					if n++; n == 4 {
						break
					}
				}
				d.must(tx.Commit())
				if n < 4 {
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

func (b *Bench) generate(ctx context.Context, d *db) error {
	sizes := []int{10_000, 100_000}
	if b.Million {
		sizes = append(sizes, 1_000_000)
	}
	perBatch := map[int][2]float64{} // ours, plain: seconds a batch
	for _, n := range sizes {
		runs, judge, how := b.Runs, median, "median"
		switch {
		case n < 100_000:
			runs *= 3 // a step of half a second is easily disturbed
		case n > 100_000:
			// The first of ours writes while the server still flushes the definitions that were made for it.
			runs, judge, how = 2, slices.Min[[]time.Duration], "best"
		}
		d.empty(ctx, append([]string{"task", "task_history"}, batchTables...)...)
		d.fillTasks(ctx, n)
		lease := d.lease(ctx, "generate")
		connections := []int{1}
		if d.kind == "mariadb" {
			connections = []int{1, 4}
		}
		ours := []time.Duration{}
		plain := map[int][]time.Duration{}
		var copies map[string][][]any
		columns := map[string][]string{}
		for range runs {
			d.empty(ctx, batchTables...)
			runtime.GC()
			ours = append(ours, d.day(ctx, lease, n))
			copies = map[string][][]any{}
			for _, t := range []string{"task_work", "task_data", "tthird_data", "tparent_data"} {
				columns[t], copies[t] = d.rows(ctx, t)
				columns[t], copies[t] = withoutDefaults(columns[t], copies[t])
			}
			for _, c := range connections {
				d.empty(ctx, batchTables...)
				runtime.GC()
				plain[c] = append(plain[c], d.plainInserts(ctx, copies, columns, c, 500))
			}
		}
		best, with := time.Duration(0), 0
		for _, c := range connections {
			if m := judge(plain[c]); best == 0 || m < best {
				best, with = m, c
			}
			b.note("limit on %d connection(s): %v, %s of %v", c, judge(plain[c]), how, plain[c])
		}
		for _, t := range []string{"task_work", "task_data", "tthird_data", "tparent_data"} {
			b.note("limit: %d rows by %s… 500 rows a statement, 4 statements a transaction", len(copies[t]), short(insertText(t, columns[t], 1)))
		}
		us := judge(ours)
		b.note("ours: %v, %s of %v", us, how, ours)
		perBatch[n] = [2]float64{us.Seconds() / float64(n), best.Seconds() / float64(n)}
		if n == 100_000 {
			b.rate(fmt.Sprintf("generate 100,000 (limit: %d conn)/%s", with, d.kind), float64(n)/us.Seconds(), float64(n)/best.Seconds(), "batches/s", 0.7)
		}
	}
	small, large := sizes[0], sizes[len(sizes)-1]
	ours := perBatch[large][0] / perBatch[small][0]
	theirs := perBatch[large][1] / perBatch[small][1]
	b.atMost(fmt.Sprintf("generate growth %d to %d/%s", small, large, d.kind), ours, theirs, "x", 1.15)
	return nil
}

// withoutDefaults leaves out columns that hold their default in every row, as our own INSERT does: the limit must not
// be slowed by values that nobody needs to send.
func withoutDefaults(columns []string, rows [][]any) ([]string, [][]any) {
	hasDefault := map[string]bool{}
	for _, c := range []string{"kill_request", "node", "attempt", "avoid_node", "assign_time", "start_time", "failures", "rejections", "losses",
		"dependency_timeout_at", "output_timeout_at", "notified_at", "actual_memory_mb", "actual_processes", "progress", "application_id"} {
		hasDefault[c] = true
	}
	var keep []int
	var names []string
	for i, c := range columns {
		if !hasDefault[c] {
			keep, names = append(keep, i), append(names, c)
		}
	}
	out := make([][]any, len(rows))
	for r, row := range rows {
		out[r] = make([]any, len(keep))
		for k, i := range keep {
			out[r][k] = row[i]
		}
	}
	return names, out
}
