package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"capri"
	"capri/birth"
	"capri/cascade"
	"capri/sql/store"
	"capri/wake"
)

// What a cold start and a rerun have in common: tasks × the intervals of a range, each looked up, decided and made.
//
//	rangeItems ──▶ rangeActions ──▶ run ──▶ insertRange (run 0) · runAgain (the next run)
//
// They differ in who is meant, in what happens to batches that have not finished, and in the words of the audit log.

// What happens to a batch_no of a range.
const (
	ItemNew       = "new"        // run 0 is made
	ItemLeftAlone = "left_alone" // it has not finished
	ItemExists    = "exists"     // it has finished, and that is enough
	ItemNewRun    = "new_run"    // it has finished, and runs again
	ItemRefused   = "refused"    // it cannot be made
	ItemKillAsked = "kill_asked" // it runs, and its worker has been told to end it
)

// Which batches of a range are meant.
const (
	onlyMissing = "missing"
	onlyAll     = "all"
	onlyFailed  = "failed"
)

func checkOnly(only string) error {
	if !slices.Contains([]string{"", onlyMissing, onlyAll, onlyFailed}, only) {
		return capri.Invalid("only", only, "missing, all or failed")
	}
	return nil
}

// RangeItem is one batch_no.
type RangeItem struct {
	Task         string
	BatchNo      capri.BatchNo
	ScheduleTime capri.Instant // 0 where a task is refused as a whole
	Action       string
	Reason       string

	task  *birth.Task
	iv    capri.Interval
	old   capri.Batch // where there is a run
	depth int         // how many of the range's tasks stand above this one
}

// rangeRun is what is to be made.
type rangeRun struct {
	who    string
	origin capri.Origin
	now    capri.Instant
	items  []RangeItem
	note   func(tx *store.Tx, count map[string]int) error // writes the audit log; nil: a preview
}

// maxRange bounds one range: more cannot be looked through by anybody, and would be held in memory.
const maxRange = 100_000

// compile reads all of a task that a range needs, so that what is wrong is known before anything is made.
func (a *Actions) compile(t *capri.Task) (*birth.Task, error) {
	compiled, err := birth.Compile(t)
	if err != nil {
		return nil, err
	}
	if _, err := expression(t); err != nil {
		return nil, err
	}
	_, _, err = a.validity(&t.Spec)
	return compiled, err
}

// rangeItems lists every interval of the range in which a task is valid.
func (a *Actions) rangeItems(period capri.Period, fromText, toText string, byData bool, tasks []*birth.Task, now capri.Instant) ([]RangeItem, error) {
	from, to, err := a.timeRange(fromText, toText, !byData)
	if err != nil {
		return nil, err
	}
	if from > now {
		return nil, capri.Invalid("from", fromText, "not later than now")
	}
	// The end of today is later than now, and yet "today" is what people write: a date counts by its beginning.
	if begins, err := a.calendar.ParseTime(toText); err != nil || begins > now {
		return nil, capri.Invalid("to", toText, "not later than now")
	}
	r := cascade.Range{From: from, To: to, ByData: byData}

	var shared []capri.Interval // every calendar task of the period has the same
	if period.Calendar() {
		shared = r.Intervals(a.calendar, period, nil, now, maxRange+1)
	}
	var items []RangeItem
	for _, t := range tasks {
		ivs := shared
		if period == capri.Cron {
			e, err := expression(t.Task)
			if err != nil {
				return nil, err
			}
			ivs = r.Intervals(a.calendar, period, e, now, maxRange+1)
		}
		first, last, err := a.validity(&t.Spec)
		if err != nil {
			return nil, err
		}
		for _, iv := range ivs {
			if iv.Mark < first || last != 0 && iv.Mark >= last {
				continue
			}
			items = append(items, RangeItem{Task: t.Name, BatchNo: iv.BatchNo, ScheduleTime: iv.Mark, task: t, iv: iv})
		}
		if len(items) > maxRange {
			return nil, capri.Invalid("to", toText, fmt.Sprintf("a range with at most %d batches; split it", maxRange))
		}
	}
	return items, nil
}

// timeRange reads a range of times that people wrote and gives it half open. included tells whether its end belongs
// to it, as in a range on schedule_time.
func (a *Actions) timeRange(fromText, toText string, included bool) (from, to capri.Instant, err error) {
	if from, err = a.calendar.ParseTime(fromText); err != nil {
		return 0, 0, named("from", err)
	}
	if to, err = a.calendar.ParseRangeEnd(toText, included); err != nil {
		return 0, 0, named("to", err)
	}
	if to < from || included && to == from {
		return 0, 0, capri.Invalid("to", toText, "not before from ("+fromText+")")
	}
	return from, to, nil
}

func named(field string, err error) error {
	var fe *capri.FieldError
	if errors.As(err, &fe) {
		return capri.Invalid(field, fe.Value, fe.Want)
	}
	return err
}

// rangeActions decides what happens to each batch_no by what there is of it. Items that nothing is said about
// (missing ones where only failed are meant) keep an empty action.
func (a *Actions) rangeActions(ctx context.Context, only string, items []RangeItem) error {
	byTask := map[capri.TaskID]bool{}
	byNo := map[capri.BatchNo]bool{}
	var tasks []capri.TaskID
	var nos []capri.BatchNo
	for _, it := range items {
		if id := it.task.ID; !byTask[id] {
			byTask[id], tasks = true, append(tasks, id)
		}
		if !byNo[it.BatchNo] {
			byNo[it.BatchNo], nos = true, append(nos, it.BatchNo)
		}
	}
	latest, err := a.store.LatestOf(ctx, tasks, nos)
	if err != nil {
		return err
	}
	for i := range items {
		it := &items[i]
		old, exists := latest[store.LatestKey{Task: it.task.ID, No: it.BatchNo}]
		it.old = old
		ended := fmt.Sprintf("batch %d ended as %s", old.ID, old.FinishState)
		switch {
		case !exists && only == onlyFailed:
		case !exists:
			it.Action = ItemNew
		case old.State != capri.Finished:
			it.Action, it.Reason = ItemLeftAlone, fmt.Sprintf("batch %d is %s", old.ID, old.State)
		case only == onlyAll, only == onlyFailed && old.FinishState != capri.Success && old.FinishState != capri.Skipped:
			it.Action, it.Reason = ItemNewRun, ended
		default:
			it.Action, it.Reason = ItemExists, ended
		}
	}
	return nil
}

// rangeMaker makes batches for which the tasks' earliest batches are those that this range makes.
func (a *Actions) rangeMaker(ctx context.Context, items []RangeItem) (*birth.Maker, error) {
	rows, err := a.store.ParentRefs(ctx)
	if err != nil {
		return nil, err
	}
	refs := birth.Refs(rows)
	for i := range items {
		it := &items[i]
		if ref, ok := refs[it.task.ID]; ok && it.iv.Mark < ref.First {
			ref.First = it.iv.Mark
			refs[it.task.ID] = ref
		}
	}
	depths := depthsOf(items)
	for i := range items {
		items[i].depth = depths[items[i].task.ID]
	}
	return birth.New(a.calendar, refs), nil
}

// depthsOf counts for each task how many of the others stand above it on the longest way. Tasks that wait for
// each other's earlier intervals have no order; there the schedule time decides.
func depthsOf(items []RangeItem) map[capri.TaskID]int {
	tasks := map[capri.TaskID]*birth.Task{}
	for _, it := range items {
		tasks[it.task.ID] = it.task
	}
	const open = -1
	depth := map[capri.TaskID]int{}
	var visit func(t *birth.Task) int
	visit = func(t *birth.Task) int {
		if d, seen := depth[t.ID]; seen {
			return max(d, 0)
		}
		depth[t.ID] = open
		d := 0
		for _, p := range t.Parents {
			if above := tasks[p.TaskID]; above != nil && above != t {
				d = max(d, visit(above)+1)
			}
		}
		depth[t.ID] = d
		return d
	}
	for _, t := range tasks {
		visit(t)
	}
	return depth
}

func byDepth(items []RangeItem) {
	slices.SortStableFunc(items, func(x, y RangeItem) int {
		return cmp.Or(x.depth-y.depth, cmp.Compare(x.ScheduleTime, y.ScheduleTime), strings.Compare(x.Task, y.Task))
	})
}

// rangeChunk is how many batches one transaction makes; a quick one keeps SQLite's single writer free for others.
const rangeChunk = 200

// run makes what the items say, parents first, and brings them into the order of their times.
func (a *Actions) run(ctx context.Context, r *rangeRun) error {
	maker, err := a.rangeMaker(ctx, r.items)
	if err != nil {
		return err
	}
	byDepth(r.items)
	if r.note != nil {
		if err := a.rangeMake(ctx, r, maker); err != nil {
			return err
		}
	}
	slices.SortStableFunc(r.items, func(x, y RangeItem) int {
		return cmp.Or(cmp.Compare(x.ScheduleTime, y.ScheduleTime), strings.Compare(x.Task, y.Task))
	})
	return nil
}

func (a *Actions) rangeMake(ctx context.Context, r *rangeRun, maker *birth.Maker) error {
	items := r.items
	batches := make([]*capri.NewBatch, len(items))
	count := map[string]int{}
	former := map[store.VersionKey]*birth.Task{}
	for i := range items {
		it := &items[i]
		if it.Action == ItemNew || it.Action == ItemNewRun {
			runNo := 0
			if it.Action == ItemNewRun {
				runNo = it.old.RunNo + 1
			}
			var err error
			if batches[i], err = maker.Batch(it.task, it.iv, r.origin, runNo, r.now); err != nil {
				it.Action, it.Reason = ItemRefused, err.Error()
			} else if batches[i].Former, err = a.formerOutputs(ctx, maker, it.old, former); err != nil {
				return err
			}
		}
		count[it.Action]++
	}
	// What is about to happen is noted first: a process that dies in the middle leaves no batches that nobody asked for.
	if err := a.store.Write(ctx, "note what is run", r.who, func(tx *store.Tx) error { return r.note(tx, count) }); err != nil {
		return err
	}
	for from := 0; from < len(items); {
		to := from
		for to < len(items) && to-from < rangeChunk && items[to].Action == items[from].Action {
			to++
		}
		var err error
		switch items[from].Action {
		case ItemNew:
			err = a.insertRange(ctx, r.who, items[from:to], batches[from:to])
		case ItemNewRun:
			err = a.runAgain(ctx, r.who, items[from:to], batches[from:to])
		}
		if err != nil {
			return err
		}
		from = to
	}
	a.wake.Wake(wake.Dependency, wake.Dispatch)
	return nil
}

func (a *Actions) insertRange(ctx context.Context, who string, items []RangeItem, batches []*capri.NewBatch) error {
	in, err := a.store.InsertBatches(ctx, store.ByPerson(who), batches, func(tx *store.Tx, in store.Inserted) error { return lowerFirstMarks(tx, items) })
	if err != nil {
		return err
	}
	for _, b := range in.Present {
		for i := range items {
			if batches[i] == b {
				items[i].Action, items[i].Reason = ItemLeftAlone, "it was made by somebody else at this moment"
			}
		}
	}
	return nil
}

// lowerFirstMarks: whatever is generated from now on waits for these batches.
func lowerFirstMarks(tx *store.Tx, items []RangeItem) error {
	earliest := map[capri.TaskID]capri.Instant{}
	for _, it := range items {
		if at, ok := earliest[it.task.ID]; !ok || it.iv.Mark < at {
			earliest[it.task.ID] = it.iv.Mark
		}
	}
	for id, at := range earliest {
		if err := tx.LowerFirstMark(id, at); err != nil {
			return err
		}
	}
	return nil
}

// runAgain makes new runs, all in one transaction; where one of them is in the way by now, each in its own.
func (a *Actions) runAgain(ctx context.Context, who string, items []RangeItem, batches []*capri.NewBatch) error {
	first, err := a.store.ReserveBatchIDs(ctx, len(batches))
	if err != nil {
		return err
	}
	for i, b := range batches {
		b.ID = first + capri.BatchID(i)
	}
	run := func(from, to int) error {
		return a.store.Write(ctx, "run batches again", who, func(tx *store.Tx) error {
			for i := from; i < to; i++ {
				if err := tx.NewRun(items[i].old.ID, batches[i]); err != nil {
					return err
				}
			}
			return lowerFirstMarks(tx, items[from:to])
		})
	}
	if err = run(0, len(items)); !errors.Is(err, capri.ErrConflict) {
		return err
	}
	for i := range items {
		err := run(i, i+1)
		switch {
		case errors.Is(err, capri.ErrConflict):
			items[i].Action, items[i].Reason = ItemLeftAlone, err.Error()
		case err != nil:
			return err
		}
	}
	return nil
}
