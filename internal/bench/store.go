package bench

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/services"
	"capri/services/dependency"
	"capri/services/dispatch"
	"capri/sql/store"
)

const many = 100_000

// newBatches makes n waiting batches of n tasks, without inserting them.
func newBatches(n int, c func(i int) capri.Conditions) []*capri.NewBatch {
	out := make([]*capri.NewBatch, n)
	for i := range out {
		out[i] = &capri.NewBatch{Batch: capri.Batch{TaskID: capri.TaskID(i + 1), TaskVersion: 1, Period: capri.Day, BatchNo: "20261119", Latest: true,
			ScheduleTime: benchNow, DataStart: benchNow - 24*3600_000, DataEnd: benchNow, Priority: 5, Slots: 1, Concurrency: 1, Pool: "default", Strategy: capri.LeastLoaded}}
		if c != nil {
			out[i].Conditions = c(i)
		}
	}
	return out
}

func (d *db) insert(ctx context.Context, batches []*capri.NewBatch) {
	for part := range slices.Chunk(batches, 1000) {
		_, err := d.store.InsertBatches(ctx, store.ByPerson("bench"), part, nil)
		d.must(err)
	}
}

// transaction times plain statements in one transaction.
func (d *db) transaction(ctx context.Context, run func(tx *sql.Tx)) time.Duration {
	began := time.Now()
	tx, err := d.plain.BeginTx(ctx, nil)
	d.must(err)
	run(tx)
	d.must(tx.Commit())
	return time.Since(began)
}

func must2(_ any, err error) {
	if err != nil {
		panic(err)
	}
}

// meet: a hundred thousand children of one parent, which succeeds.
func (b *Bench) meet(ctx context.Context, d *db) error {
	d.fillTasks(ctx, 1)
	var ours, plain []time.Duration
	conditions := "UPDATE tparent_data SET state = 1 WHERE parent_task_id = 1 AND parent_batch_no = '20261119' AND state = 0"
	batches := "UPDATE task_work SET unmet = unmet - 1 WHERE state = 0 AND id IN (SELECT batch_id FROM tparent_data WHERE parent_task_id = 1 AND parent_batch_no = '20261119')"
	for range 2*b.Runs + 1 { // a step of a second is easily disturbed
		reset := func() {
			d.empty(ctx, batchTables...)
			parent := newBatches(1, nil)
			parent[0].State, parent[0].FinishState = capri.Finished, capri.Success
			d.insert(ctx, parent)
			children := newBatches(many+1, func(int) capri.Conditions {
				return capri.Conditions{Parents: []capri.ParentCondition{{TaskID: 1, BatchNo: "20261119"}}}
			})[1:]
			d.insert(ctx, children)
			d.empty(ctx, "dependency_change")
			d.exec(ctx, "INSERT INTO dependency_change (kind, task_id, batch_no) VALUES (1, 1, '20261119')")
		}
		reset()
		lease := d.lease(ctx, "dependency")
		began := time.Now()
		res, err := dependency.Changes{Store: d.store, Soon: &dependency.Soon{}}.Run(ctx, services.Turn{Now: benchNow, Lease: lease})
		ours = append(ours, time.Since(began))
		d.must(err)
		if res.Counts["met"] != many {
			return fmt.Errorf("met %d of %d", res.Counts["met"], many)
		}
		reset()
		plain = append(plain, d.transaction(ctx, func(tx *sql.Tx) {
			must2(tx.ExecContext(ctx, conditions))
			must2(tx.ExecContext(ctx, batches))
		}))
	}
	b.note("limit: %s", conditions)
	b.note("limit: %s  (both in one transaction: %v)", batches, plain)
	b.note("ours: a turn of the dependency service, proved and recounted: %v", ours)
	b.rate("meet 100,000 parent conditions/"+d.kind, many/median(ours).Seconds(), many/median(plain).Seconds(), "batches/s", 0.6)
	return nil
}

// ready: what is ready is found among what waits and what has finished.
func (b *Bench) ready(ctx context.Context, d *db) error {
	d.fillTasks(ctx, 1000)
	finished := 1_000_000
	if !b.Million {
		finished = 100_000
	}
	measure := func() time.Duration {
		var times []time.Duration
		for range 20 * b.Runs {
			began := time.Now()
			ready, err := d.store.Ready(ctx, benchNow, 0, store.ReadyAfter{}, 2000)
			times = append(times, time.Since(began))
			d.must(err)
			if len(ready) != 1000 {
				panic(fmt.Sprintf("%d ready", len(ready)))
			}
		}
		return median(times)
	}
	tasks := func(batches []*capri.NewBatch, no string, change func(*capri.NewBatch)) []*capri.NewBatch {
		for i, nb := range batches {
			nb.TaskID = capri.TaskID(i%1000 + 1)
			nb.BatchNo = capri.BatchNo(fmt.Sprintf("%s%07d", no, i/1000))
			if change != nil {
				change(nb)
			}
		}
		return batches
	}
	waits := func(int) capri.Conditions {
		return capri.Conditions{ThirdParty: []capri.ThirdPartyCondition{{Code: "never", Period: capri.Day, BatchNo: "20261119"}}}
	}
	d.empty(ctx, batchTables...)
	d.insert(ctx, tasks(newBatches(1000, waits), "w", nil))
	d.insert(ctx, tasks(newBatches(1000, nil), "r", nil))
	d.analyze(ctx)
	small := measure()
	d.insert(ctx, tasks(newBatches(many-1000, waits), "x", nil))
	d.insert(ctx, tasks(newBatches(finished, nil), "f", func(nb *capri.NewBatch) { nb.State, nb.FinishState = capri.Finished, capri.Success }))
	d.analyze(ctx)
	big := measure()
	b.note("limit: the same query with 1,000 waiting, 1,000 ready and no history: %v", small)
	b.note("ours: with 100,000 waiting, 1,000 ready and %d finished: %v", finished, big)
	b.atMost("ready query grows/"+d.kind, big.Seconds()*1000, small.Seconds()*1000, "ms", 1.5)
	return nil
}

func (d *db) analyze(ctx context.Context) {
	if d.kind == "sqlite" {
		d.exec(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
		return
	}
	rows, err := d.plain.QueryContext(ctx, "ANALYZE TABLE task_work")
	d.must(err)
	defer rows.Close()
	for rows.Next() { // its answer is a result set
	}
	d.must(rows.Err())
}

// dispatch: a hundred thousand ready batches to a hundred nodes.
func (b *Bench) dispatch(ctx context.Context, d *db) error {
	d.fillTasks(ctx, many)
	var ours, plain []time.Duration
	const perStatement = 300
	for n := range 100 {
		d.must(d.store.RegisterNode(ctx, capri.Node{Name: fmt.Sprintf("node-%03d", n), BootID: "b", Pool: "default", Slots: 1000, CheckInterval: 5}, "d"))
	}
	for range b.Runs {
		reset := func() {
			d.empty(ctx, batchTables...)
			d.insert(ctx, newBatches(many, nil))
		}
		reset()
		lease := d.lease(ctx, "dispatch")
		s := dispatch.New(d.store, d.cal, rand.New(rand.NewPCG(1, 1)))
		began := time.Now()
		res, err := s.Run(ctx, services.Turn{Now: benchNow, Lease: lease})
		ours = append(ours, time.Since(began))
		d.must(err)
		if res.Counts["assigned"] != many {
			return fmt.Errorf("assigned %d of %d", res.Counts["assigned"], many)
		}
		reset()
		_, ids := d.rows(ctx, "(SELECT id FROM task_work ORDER BY id) x")
		began = time.Now()
		n := 0
		for part := range slices.Chunk(ids, perStatement) {
			tx, err := d.plain.BeginTx(ctx, nil)
			d.must(err)
			text := make([]string, len(part))
			for i, id := range part {
				text[i] = fmt.Sprint(id[0])
			}
			must2(tx.ExecContext(ctx, fmt.Sprintf("UPDATE task_work SET state = 1, attempt = attempt + 1, node = 'node-%03d', assign_time = %d WHERE id IN (%s)", n%100, benchNow, strings.Join(text, ","))))
			d.must(tx.Commit())
			n++
		}
		plain = append(plain, time.Since(began))
	}
	b.note("limit: %d × UPDATE task_work SET state = 1, attempt = attempt + 1, node = …, assign_time = … WHERE id IN (%d ids), a transaction each: %v", many/perStatement, perStatement, plain)
	b.note("ours: a turn of the dispatch service, events included: %v", ours)
	b.rate("dispatch 100,000 to 100 nodes/"+d.kind, many/median(ours).Seconds(), many/median(plain).Seconds(), "batches/s", 0.5)
	return nil
}
