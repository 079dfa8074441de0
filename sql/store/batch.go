package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// batchColumns are read by every query that returns whole batches, in the order of scanBatch.
var batchColumns = []string{"w.id", "w.task_id", "w.task_version", "w.period", "w.batch_no", "w.run_no", "w.latest", "w.origin", "w.schedule_time", "w.data_start",
	"w.data_end", "w.create_time", "w.state", "w.finish_state", "w.unmet", "w.held", "w.kill_request", "w.node", "w.attempt", "w.avoid_node", "w.assign_time",
	"w.start_time", "w.finish_time", "w.not_before", "w.skip_at", "w.priority", "w.slots", "w.memory_mb", "w.concurrency", "w.pool", "w.strategy", "w.nodes",
	"w.account", "w.quality_state", "w.quality_ask", "w.failures", "w.rejections", "w.losses", "w.dependency_timeout_at", "w.output_timeout_at", "w.notified_at",
	"w.actual_memory_mb", "w.actual_processes", "w.progress", "w.application_id", "w.message", "w.run_now", "w.params"}

func scanBatch(r *sql.Rows, more ...any) (capri.Batch, error) {
	var b capri.Batch
	var latest sql.NullInt64
	var nodes, params sql.NullString
	err := r.Scan(append([]any{&b.ID, &b.TaskID, &b.TaskVersion, &b.Period, &b.BatchNo, &b.RunNo, &latest, &b.Origin, &b.ScheduleTime, &b.DataStart,
		&b.DataEnd, &b.CreateTime, &b.State, &b.FinishState, &b.Unmet, &b.Held, &b.KillRequest, &b.Node, &b.Attempt, &b.AvoidNode, instant{&b.AssignTime},
		instant{&b.StartTime}, instant{&b.FinishTime}, &b.NotBefore, instant{&b.SkipAt}, &b.Priority, &b.Slots, &b.MemoryMB, &b.Concurrency, &b.Pool, &b.Strategy, &nodes,
		&b.Account, &b.QualityState, &b.QualityAsk, &b.Failures, &b.Rejections, &b.Losses, instant{&b.DependencyTimeoutAt}, instant{&b.OutputTimeoutAt}, instant{&b.NotifiedAt},
		&b.ActualMemoryMB, &b.ActualProcesses, &b.Progress, &b.ApplicationID, &b.Message, &b.RunNow, &params}, more...)...)
	b.Latest = latest.Valid
	if nodes.Valid {
		b.Nodes = strings.Split(nodes.String, "\n")
	}
	if err == nil && params.Valid {
		err = json.Unmarshal([]byte(params.String), &b.Params)
	}
	return b, err
}

// Batch reads one batch, an archived one too.
func (s *Store) Batch(ctx context.Context, id capri.BatchID) (BatchRow, error) {
	rows, err := s.BatchesByID(ctx, []capri.BatchID{id})
	if err != nil {
		return BatchRow{}, err
	}
	row, ok := rows[id]
	if !ok {
		return row, capri.NotFound("there is no batch %d", id)
	}
	return row, nil
}

// batchesByID reads whole batches, in the order of the ids.
func (s *Store) batchesByID(ctx context.Context, ids []capri.BatchID) ([]capri.Batch, error) {
	by := make(map[capri.BatchID]capri.Batch, len(ids))
	for _, part := range chunks(ids, s.d.ChunkRows) {
		err := query(ctx, s.read, sq.Select(batchColumns...).From("task_work w").Where(idIn("w.id", part)), func(r *sql.Rows) error {
			b, err := scanBatch(r)
			by[b.ID] = b
			return err
		})
		if err != nil {
			return nil, s.fault("read batches", err)
		}
	}
	out := make([]capri.Batch, 0, len(ids))
	for _, id := range ids {
		if b, ok := by[id]; ok {
			out = append(out, b)
		}
	}
	return out, nil
}

func (s *Store) batchIDs(ctx context.Context, q sq.SelectBuilder) ([]capri.BatchID, error) {
	return column[capri.BatchID](ctx, s.read, q)
}

// LatestRuns reads the run that counts of each of a task's batch_nos that exist, archived ones too.
func (s *Store) LatestRuns(ctx context.Context, task capri.TaskID, nos []capri.BatchNo) (map[capri.BatchNo]capri.Batch, error) {
	latest, err := s.LatestOf(ctx, []capri.TaskID{task}, nos)
	out := make(map[capri.BatchNo]capri.Batch, len(latest))
	for k, b := range latest {
		out[k.No] = b
	}
	return out, err
}

// LatestRunsIn reads the runs that count of some tasks with schedule_time in [from, to].
func (s *Store) LatestRunsIn(ctx context.Context, tasks []capri.TaskID, from, to capri.Instant) ([]capri.Batch, error) {
	var out []capri.Batch
	for _, part := range chunks(tasks, s.d.ChunkRows) {
		err := query(ctx, s.read, sq.Select(batchColumns...).From("task_work w").Where(idIn("w.task_id", part)).
			Where("w.latest = 1 AND w.schedule_time >= ? AND w.schedule_time <= ?", int64(from), int64(to)).OrderBy("w.task_id", "w.schedule_time"), func(r *sql.Rows) error {
			b, err := scanBatch(r)
			out = append(out, b)
			return err
		})
		if err != nil {
			return nil, s.fault("read latest runs", err)
		}
	}
	return out, nil
}

// WaitingOf lists a task's batches that have not been assigned, for an edit of its dependencies.
func (s *Store) WaitingOf(ctx context.Context, task capri.TaskID) ([]capri.Batch, error) {
	var out []capri.Batch
	err := query(ctx, s.read, sq.Select(batchColumns...).From("task_work w").Where(sq.Eq{"w.task_id": int64(task), "w.state": int(capri.Waiting)}).OrderBy("w.id"), func(r *sql.Rows) error {
		b, err := scanBatch(r)
		out = append(out, b)
		return err
	})
	return out, s.fault("list waiting batches", err)
}

// Event is one line of a batch's history.
type Event struct {
	At          capri.Instant
	State       capri.State
	FinishState capri.FinishState
	Attempt     int
	Node        string
	Held        bool
	KillRequest bool
	Latest      bool
	Epoch       capri.Epoch
	Who, Why    string
}

// Events reads a batch's history, oldest first. Its birth is the row itself.
func (s *Store) Events(ctx context.Context, id capri.BatchID) ([]Event, error) {
	byID := map[int64]Event{}
	for _, table := range []string{"batch_event", "batch_event_archive"} { // in this order: they move while we read
		err := query(ctx, s.read, sq.Select("id", "at", "state", "finish_state", "attempt", "node", "held", "kill_request", "latest", "epoch", "who", "why").From(table).
			Where(sq.Eq{"batch_id": int64(id)}), func(r *sql.Rows) error {
			var n int64
			var e Event
			var latest sql.NullInt64
			err := r.Scan(&n, &e.At, &e.State, &e.FinishState, &e.Attempt, &e.Node, &e.Held, &e.KillRequest, &latest, &e.Epoch, &e.Who, &e.Why)
			e.Latest = latest.Valid
			byID[n] = e
			return err
		})
		if err != nil {
			return nil, s.fault("read a batch's history", err)
		}
	}
	out := make([]Event, 0, len(byID))
	for _, n := range slices.Sorted(maps.Keys(byID)) {
		out = append(out, byID[n])
	}
	return out, nil
}

// RequestKill ends batches that run nowhere yet at once, and asks the worker of the others.
func (tx *Tx) RequestKill(ids []capri.BatchID, why string) (killed, asked []capri.BatchID, err error) {
	ending := tx.ending(capri.Killed, why)
	ending.from = func(r locked) bool { return r.State == capri.Waiting || r.State == capri.Assigned }
	rows, err := tx.change(ids, ending)
	if err != nil {
		return nil, nil, err
	}
	running, err := tx.change(ids, change{from: func(r locked) bool { return r.State == capri.Running && !r.KillRequest }, set: sq.Eq{"kill_request": 1}, why: why})
	return idsOf(rows), idsOf(running), err
}

// Hold keeps unstarted batches from being placed until Release; an assigned one goes back to waiting.
func (tx *Tx) Hold(ids []capri.BatchID, why string) ([]capri.BatchID, error) {
	rows, err := tx.change(ids, change{from: func(r locked) bool { return r.State <= capri.Assigned && !r.Held },
		set: sq.Eq{"held": 1, "state": int(capri.Waiting), "node": "", "assign_time": nil, "message": cut("held: "+why, 1000)}, why: why})
	return idsOf(rows), err
}

// Release ends a Hold.
func (tx *Tx) Release(ids []capri.BatchID, why string) ([]capri.BatchID, error) {
	rows, err := tx.change(ids, change{from: func(r locked) bool { return r.Held && r.State != capri.Finished }, set: sq.Eq{"held": 0, "message": ""}, why: why})
	return idsOf(rows), err
}

// ForceSuccess makes a success of what waits, or has finished otherwise and has no newer run: a person's word in place of
// a run. What rests on it is met by the ordinary way. A batch that is assigned or runs is left alone.
func (tx *Tx) ForceSuccess(ids []capri.BatchID, why string) ([]capri.BatchID, error) {
	c := tx.ending(capri.Success, why)
	c.from = func(r locked) bool {
		return r.Latest && (r.State == capri.Waiting || r.State == capri.Finished && r.FinishState != capri.Success)
	}
	c.set["held"] = 0
	rows, err := tx.change(ids, c)
	if err != nil {
		return nil, err
	}
	return idsOf(rows), tx.succeeded(rows)
}

// RunNow lets waiting batches start without their conditions and before their time. None of their conditions counts any
// more within this run (kinds), so nobody can make it wait again; limits, pauses, nodes and a quality gate hold as ever.
func (tx *Tx) RunNow(ids []capri.BatchID, why string) ([]capri.BatchID, error) {
	rows, err := tx.change(ids, change{from: func(r locked) bool { return r.State == capri.Waiting && !r.Held && !r.RunNow },
		set: sq.Eq{"run_now": 1, "unmet": 0, "kinds": sq.Expr("kinds & ?", kindOutputs|kindNotifies), "not_before": 0, "skip_at": nil, "message": ""}, why: why})
	return idsOf(rows), err
}

// NewRun inserts the next run of a finished batch_no: see NewRuns. nb.ID comes from ReserveBatchIDs.
func (tx *Tx) NewRun(old capri.BatchID, nb *capri.NewBatch) error {
	return tx.NewRuns([]Again{{old, nb}}, nil)
}

// Again is a finished run and the one that takes its place.
type Again struct {
	Old  capri.BatchID
	Next *capri.NewBatch
}

// NewRuns inserts the next runs of finished batch_nos, and first runs of others with them: an old run, archived or not,
// hands over latest, and what rested on its success waits again. capri.ErrConflict says what is in the way. A run's number
// is one more than any there was: the run that counts need not be the newest, where a newer one was undone.
func (tx *Tx) NewRuns(again []Again, fresh []*capri.NewBatch) error {
	return tx.newRuns(again, fresh, tx.s.d.ForShare)
}

// newRuns is NewRuns; lock says how what rested on the old runs is read. Whoever may have read something in its transaction
// before the old runs' rows were locked has a snapshot from before, and has to lock to see what has been met since.
func (tx *Tx) newRuns(again []Again, fresh []*capri.NewBatch, lock string) error {
	olds := make([]capri.BatchID, len(again))
	nexts := make([]*capri.NewBatch, len(again))
	next := make(map[capri.BatchID]*capri.NewBatch, len(again))
	for i, a := range again {
		olds[i], nexts[i], next[a.Old] = a.Old, a.Next, a.Next
	}
	const why = "a new run of this batch_no takes its place"
	rows, err := tx.lockWhere(olds, "latest = 1 AND state = 3")
	if err != nil {
		return err
	}
	for i := range rows { // it is of the same task and batch_no
		rows[i].TaskID, rows[i].BatchNo = next[rows[i].ID].TaskID, next[rows[i].ID].BatchNo
	}
	if err := tx.changeLocked(rows, change{set: sq.Eq{"latest": nil}, why: why}); err != nil {
		return err
	}
	if len(rows) < len(olds) {
		for _, r := range rows {
			olds = slices.DeleteFunc(olds, func(id capri.BatchID) bool { return id == r.ID })
		}
		archived, err := tx.takeFromArchived(olds, why)
		if err != nil {
			return err
		}
		for _, a := range again {
			if slices.Contains(olds, a.Old) && !slices.ContainsFunc(archived, func(r locked) bool { return r.ID == a.Old }) {
				return capri.Conflict("batch %d (%s) has not finished, or a newer run exists", a.Old, a.Next.BatchNo)
			}
		}
		rows = append(rows, archived...)
	}
	if err := tx.numberRuns(rows, nexts); err != nil {
		return err
	}
	all := slices.Concat(nexts, fresh)
	slices.SortFunc(all, func(a, b *capri.NewBatch) int { return cmp.Compare(a.ID, b.ID) })
	if err := tx.insert(all); err != nil {
		if tx.s.d.IsDuplicate(err) {
			return capri.Conflict("a run of batch_no %s (or of another of %d) exists already", all[0].BatchNo, len(all))
		}
		return err
	}
	return tx.revokeRuns(rows, nexts, fresh, lock)
}

// numberRuns gives the next runs their numbers. Whoever makes or undoes a run of these batch_nos holds the rows that are
// locked here, so what is read does not change any more.
func (tx *Tx) numberRuns(olds []locked, nexts []*capri.NewBatch) error {
	newest := map[LatestKey]int{}
	for _, part := range chunks(olds, manyKeys) {
		for _, table := range []string{"task_work", archiveTable} {
			err := tx.query(sq.Select("task_id", "batch_no", "MAX(run_no)").From(table).Where(keysIn("task_id", "batch_no", part)).GroupBy("task_id", "batch_no"), func(r *sql.Rows) error {
				var k LatestKey
				n := 0
				err := r.Scan(&k.Task, &k.No, &n)
				newest[k] = max(newest[k], n)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	for _, nb := range nexts {
		nb.RunNo = newest[LatestKey{nb.TaskID, nb.BatchNo}] + 1
	}
	return nil
}

// manyKeys is how many batch_nos of tasks one statement names.
const manyKeys = 250

// keysIn compares with the batch_nos of tasks: those of one task, or those of one batch_no, together, whichever are fewer. Each
// of them is a few steps on the index where a comparison for each batch is a text of its own to be read.
func keysIn(task, no string, of []locked) sq.Or {
	byTask, byNo := map[capri.TaskID][]string{}, map[capri.BatchNo][]capri.TaskID{}
	for _, r := range of {
		byTask[r.TaskID] = append(byTask[r.TaskID], string(r.BatchNo))
		byNo[r.BatchNo] = append(byNo[r.BatchNo], r.TaskID)
	}
	var any sq.Or
	if len(byNo) <= len(byTask) {
		for _, n := range slices.Sorted(maps.Keys(byNo)) {
			any = append(any, sq.And{sq.Eq{no: string(n)}, idIn(task, byNo[n])})
		}
		return any
	}
	for _, t := range slices.Sorted(maps.Keys(byTask)) {
		any = append(any, sq.And{sq.Eq{task: int64(t)}, sq.Eq{no: byTask[t]}})
	}
	return any
}

func ints[T ~int](in []T) []int {
	out := make([]int, len(in))
	for i, v := range in {
		out[i] = int(v)
	}
	return out
}

func texts[T ~string](in []T) []string {
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = string(v)
	}
	return out
}

// Actor is who makes batches: a service under its lease, or somebody by hand.
type Actor struct {
	lease *capri.Lease
	who   string
}

// ByService and ByPerson name an Actor.
func ByService(l capri.Lease) Actor { return Actor{lease: &l, who: l.Service} }
func ByPerson(who string) Actor     { return Actor{who: who} }

func (s *Store) writeBy(ctx context.Context, what string, by Actor, fn func(*Tx) error) error {
	if by.lease != nil {
		return s.WriteAs(ctx, what, *by.lease, fn)
	}
	return s.Write(ctx, what, by.who, fn)
}

// ReserveBatchIDs gives the first of n fresh batch ids.
func (s *Store) ReserveBatchIDs(ctx context.Context, n int) (capri.BatchID, error) {
	id, err := s.reserve(ctx, "batch", n)
	return capri.BatchID(id), err
}

// Inserted says which batches are new, and which had a run 0 already and were left alone.
type Inserted struct {
	Made, Present []*capri.NewBatch
}

// InsertBatches inserts batches with their conditions in one transaction and sets their ids; also, if given,
// writes what has to be true together with them. A batch_no that exists already is left alone, whoever
// made it, and none of its conditions are written again.
func (s *Store) InsertBatches(ctx context.Context, by Actor, batches []*capri.NewBatch, also func(*Tx, Inserted) error) (Inserted, error) {
	first, err := s.ReserveBatchIDs(ctx, len(batches))
	if err != nil {
		return Inserted{}, err
	}
	for i, b := range batches {
		b.ID = first + capri.BatchID(i)
	}
	in := Inserted{Made: batches}
	attempt := func() error {
		return s.writeBy(ctx, "insert batches", by, func(tx *Tx) error {
			if err := tx.refuseArchived(in.Made); err != nil {
				return err
			}
			if err := tx.insert(in.Made); err != nil {
				return err
			}
			if also != nil {
				return also(tx, in)
			}
			return nil
		})
	}
	for range tries {
		if err = attempt(); err == nil || !s.d.IsDuplicate(errors.Unwrap(err)) && !s.d.IsDuplicate(err) && !errors.Is(err, errArchived) {
			return in, err
		}
		// Somebody made some of them before us, or our own commit got through and its answer did not. The
		// transaction is rolled back; see which stand, and insert the rest.
		is, ours, e := s.present(ctx, batches)
		if in = is; e != nil || ours {
			return in, e
		}
	}
	return Inserted{}, err // what is in the way is none of these batches: nothing was inserted
}

// runs are the ids of batches that exist, by what makes them unique.
type runs map[runKey]capri.BatchID

type runKey struct {
	task capri.TaskID
	no   capri.BatchNo
	run  int
}

const thatCounts = -1 // in place of a run's number

// read adds what one table has of some batches' batch_nos.
func (known runs) read(ctx context.Context, q querier, table string, batches []*capri.NewBatch, suffix string) error {
	tasks, nos := make([]capri.TaskID, len(batches)), make([]string, len(batches))
	for i, b := range batches {
		tasks[i], nos[i] = b.TaskID, string(b.BatchNo)
	}
	return query(ctx, q, sq.Select("id", "task_id", "batch_no", "run_no", "latest").From(table).Where(idIn("task_id", tasks)).Where(sq.Eq{"batch_no": distinct(nos)}).Suffix(suffix), func(r *sql.Rows) error {
		var k runKey
		var id capri.BatchID
		var latest sql.NullInt64
		err := r.Scan(&id, &k.task, &k.no, &k.run, &latest)
		known[k] = id
		if latest.Valid {
			known[runKey{k.task, k.no, thatCounts}] = id
		}
		return err
	})
}

// of is what stands in a batch's place: its run, or another run that counts; 0: nothing.
func (known runs) of(b *capri.NewBatch) capri.BatchID {
	return cmp.Or(known[runKey{b.TaskID, b.BatchNo, b.RunNo}], known[runKey{b.TaskID, b.BatchNo, thatCounts}])
}

// present splits batches into those whose run exists, or whose batch_no has a run that counts, and those to be made. ours
// says that the transaction had committed after all, with all that belongs to it: the rows carry the ids that were
// reserved for it.
func (s *Store) present(ctx context.Context, batches []*capri.NewBatch) (in Inserted, ours bool, err error) {
	exists := runs{}
	for _, part := range chunks(batches, s.d.ChunkRows) {
		for _, table := range []string{"task_work", archiveTable} {
			if err := exists.read(ctx, s.write, table, part, ""); err != nil {
				return Inserted{}, false, s.fault("see which batches exist", err)
			}
		}
	}
	for _, b := range batches {
		switch id := exists.of(b); id {
		case 0:
			in.Made = append(in.Made, b)
		case b.ID:
			ours = true
			in.Made = append(in.Made, b)
		default:
			in.Present = append(in.Present, b)
		}
	}
	return in, ours, nil
}
