package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"capri"
	"capri/birth"
	"capri/sql/store"
	"capri/wake"
)

// ColdStartRequest asks for a range of batches to be made. From and To are as people wrote them.
type ColdStartRequest struct {
	Period   capri.Period
	From, To string
	Group    string
	Tasks    []string
	Only     string // missing (default), all, failed
	ByData   bool   // the range is on data intervals, its end excluded
	Preview  bool
}

// What happens to a batch_no of a cold start.
const (
	ColdNew       = "new"        // run 0 is made
	ColdLeftAlone = "left_alone" // it has not finished
	ColdExists    = "exists"     // it has finished, and that is enough
	ColdNewRun    = "new_run"    // it has finished, and runs again
	ColdRefused   = "refused"    // it cannot be made
)

// ColdStartItem is one batch_no.
type ColdStartItem struct {
	Task         string
	BatchNo      capri.BatchNo
	ScheduleTime capri.Instant
	Action       string
	Reason       string

	task  *birth.Task
	iv    capri.Interval
	old   capri.Batch // where there is a run
	depth int         // how many of the cold start's tasks stand above this one
}

// maxColdStart bounds one cold start: more cannot be looked through by anybody, and would be held in memory.
const maxColdStart = 100_000

// ColdStart makes the batches of a range, by today's definitions and their validity: `enabled` is asked of now and
// not of then. What has not finished is left alone, and admins are told of it.
//
// Nothing of a cold start can begin before what it waits for in the same cold start: conditions name the parent's
// batch_no and begin unmet, so a child that is there first just waits. And of batch_nos that run again, parents
// come first, so that no child is released by the success of a run that is about to be replaced. If the process
// dies in the middle, what was made is right, and the same cold start makes the rest.
func (a *Actions) ColdStart(ctx context.Context, who string, r ColdStartRequest) ([]ColdStartItem, error) {
	now, err := a.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	tasks, err := a.coldTasks(ctx, r)
	if err != nil {
		return nil, err
	}
	items, err := a.coldItems(r, tasks, now)
	if err != nil {
		return nil, err
	}
	if err := a.coldActions(ctx, r.Only, items); err != nil {
		return nil, err
	}
	items = slices.DeleteFunc(items, func(it ColdStartItem) bool { return it.Action == "" })
	maker, err := a.coldMaker(ctx, items)
	if err != nil {
		return nil, err
	}
	byDepth(items)
	if !r.Preview {
		if err := a.coldMake(ctx, who, r, maker, items, now); err != nil {
			a.log.Warn("a cold start stopped in the middle; the same one again makes the rest", "who", who, "period", r.Period, "from", r.From, "to", r.To, "err", err)
			return nil, err
		}
	}
	slices.SortStableFunc(items, func(x, y ColdStartItem) int {
		if x.ScheduleTime != y.ScheduleTime {
			return int(min(max(x.ScheduleTime-y.ScheduleTime, -1), 1))
		}
		return strings.Compare(x.Task, y.Task)
	})
	return items, nil
}

// coldTasks finds the tasks that are meant.
func (a *Actions) coldTasks(ctx context.Context, r ColdStartRequest) ([]*birth.Task, error) {
	switch {
	case r.Period == 0:
		return nil, capri.Invalid("period", "", "hour, day, week, month or cron")
	case r.Period == capri.Manual:
		return nil, capri.Invalid("period", r.Period.String(), "hour, day, week, month or cron: a manual task has no marks (execute runs it)")
	case !slices.Contains([]string{"", "missing", "all", "failed"}, r.Only):
		return nil, capri.Invalid("only", r.Only, "missing, all or failed")
	}
	f := store.TaskFilter{Group: r.Group, Period: r.Period}
	if len(r.Tasks) > 0 {
		f = store.TaskFilter{Names: r.Tasks}
	}
	found, err := a.store.Tasks(ctx, f)
	if err != nil {
		return nil, err
	}
	byName := map[string]*capri.Task{}
	for _, t := range found {
		byName[t.Name] = t
	}
	for _, n := range r.Tasks {
		switch t := byName[n]; {
		case t == nil:
			return nil, capri.NotFound("there is no task %q", n)
		case t.Period != r.Period:
			return nil, capri.Invalid("tasks", n, fmt.Sprintf("tasks of period %s: this one is of period %s", r.Period, t.Period))
		case r.Group != "" && t.Group != r.Group:
			return nil, capri.Invalid("tasks", n, fmt.Sprintf("tasks of group %s: this one is of group %s", r.Group, t.Group))
		case !t.Enabled:
			return nil, capri.Conflict("task %s is disabled: enable it first", n)
		}
	}
	var tasks []*birth.Task
	for _, t := range found {
		if !t.Enabled {
			continue
		}
		compiled, err := birth.Compile(t)
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", t.Name, err)
		}
		tasks = append(tasks, compiled)
	}
	if len(tasks) == 0 {
		if r.Group != "" {
			return nil, capri.NotFound("there is no enabled %s task in group %q", r.Period, r.Group)
		}
		return nil, capri.NotFound("there is no enabled %s task", r.Period)
	}
	return tasks, nil
}

// coldItems lists every interval of the range in which a task is valid.
func (a *Actions) coldItems(r ColdStartRequest, tasks []*birth.Task, now capri.Instant) ([]ColdStartItem, error) {
	from, to, err := a.timeRange(r.From, r.To, !r.ByData)
	if err != nil {
		return nil, err
	}
	if from > now {
		return nil, capri.Invalid("from", r.From, "not later than now")
	}
	// The end of today is later than now, and yet "today" is what people write: a date counts by its beginning.
	if begins, err := a.calendar.ParseTime(r.To); err != nil || begins > now {
		return nil, capri.Invalid("to", r.To, "not later than now")
	}
	inside := func(iv capri.Interval) bool {
		if iv.Mark > now {
			return false
		}
		if r.ByData {
			return iv.Start >= from && iv.End <= to
		}
		return iv.Mark >= from && iv.Mark < to
	}

	var shared []capri.Interval // every calendar task of the period has the same
	if r.Period.Calendar() {
		for iv := a.calendar.Containing(r.Period, from); ; iv = a.calendar.Shift(r.Period, iv, -1) {
			if iv.Mark < from { // the first whose mark is too early; go on from it
				for iv = a.calendar.Shift(r.Period, iv, 1); iv.Start < to && iv.Mark <= now && len(shared) <= maxColdStart; iv = a.calendar.Shift(r.Period, iv, 1) {
					if inside(iv) {
						shared = append(shared, iv)
					}
				}
				break
			}
		}
	}
	var items []ColdStartItem
	for _, t := range tasks {
		ivs := shared
		if r.Period == capri.Cron {
			e, err := expression(t.Task)
			if err != nil {
				return nil, err
			}
			end := min(to, now+1)
			if r.ByData {
				end = min(to, now) + 1 // the fire that ends the last interval is its mark
			}
			ivs = slices.DeleteFunc(a.calendar.CronFires(e, from, end, maxColdStart+1), func(iv capri.Interval) bool { return !inside(iv) })
		}
		first, last, err := a.validity(&t.Spec)
		if err != nil {
			return nil, err
		}
		for _, iv := range ivs {
			if iv.Mark < first || last != 0 && iv.Mark >= last {
				continue
			}
			items = append(items, ColdStartItem{Task: t.Name, BatchNo: iv.BatchNo, ScheduleTime: iv.Mark, task: t, iv: iv})
		}
		if len(items) > maxColdStart {
			return nil, capri.Invalid("to", r.To, fmt.Sprintf("a range with at most %d batches; split it", maxColdStart))
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

// coldActions decides what happens to each batch_no by what there is of it. Items that nothing is said about
// (missing ones where only failed are meant) keep an empty action.
func (a *Actions) coldActions(ctx context.Context, only string, items []ColdStartItem) error {
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
		case !exists && only == "failed":
		case !exists:
			it.Action = ColdNew
		case old.State != capri.Finished:
			it.Action, it.Reason = ColdLeftAlone, fmt.Sprintf("batch %d is %s", old.ID, old.State)
		case only == "all", only == "failed" && old.FinishState != capri.Success && old.FinishState != capri.Skipped:
			it.Action, it.Reason = ColdNewRun, ended
		default:
			it.Action, it.Reason = ColdExists, ended
		}
	}
	return nil
}

// coldMaker makes batches for which the tasks' earliest batches are those that this cold start makes.
func (a *Actions) coldMaker(ctx context.Context, items []ColdStartItem) (*birth.Maker, error) {
	rows, err := a.store.ParentRefs(ctx)
	if err != nil {
		return nil, err
	}
	refs, err := birth.Refs(rows)
	if err != nil {
		return nil, err
	}
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
func depthsOf(items []ColdStartItem) map[capri.TaskID]int {
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

func byDepth(items []ColdStartItem) {
	slices.SortStableFunc(items, func(x, y ColdStartItem) int {
		switch {
		case x.depth != y.depth:
			return x.depth - y.depth
		case x.ScheduleTime != y.ScheduleTime:
			return int(min(max(x.ScheduleTime-y.ScheduleTime, -1), 1))
		}
		return strings.Compare(x.Task, y.Task)
	})
}

// coldChunk is how many batches one transaction makes; a quick one keeps SQLite's single writer free for others.
const coldChunk = 200

func (a *Actions) coldMake(ctx context.Context, who string, r ColdStartRequest, maker *birth.Maker, items []ColdStartItem, now capri.Instant) error {
	batches := make([]*capri.NewBatch, len(items))
	count := map[string]int{}
	for i := range items {
		it := &items[i]
		if it.Action == ColdNew || it.Action == ColdNewRun {
			runNo := 0
			if it.Action == ColdNewRun {
				runNo = it.old.RunNo + 1
			}
			var err error
			if batches[i], err = maker.Batch(it.task, it.iv, capri.OriginColdStart, runNo, now); err != nil {
				it.Action, it.Reason = ColdRefused, err.Error()
			}
		}
		count[it.Action]++
	}
	// What is about to happen is noted first: a process that dies in the middle leaves no batches that nobody asked for.
	if err := a.noteColdStart(ctx, who, r, items, count); err != nil {
		return err
	}
	for from := 0; from < len(items); {
		to := from
		for to < len(items) && to-from < coldChunk && items[to].Action == items[from].Action {
			to++
		}
		var err error
		switch items[from].Action {
		case ColdNew:
			err = a.coldInsert(ctx, who, items[from:to], batches[from:to])
		case ColdNewRun:
			err = a.coldRunAgain(ctx, who, items[from:to], batches[from:to])
		}
		if err != nil {
			return err
		}
		from = to
	}
	a.wake.Wake(wake.Dependency, wake.Dispatch)
	return nil
}

func (a *Actions) noteColdStart(ctx context.Context, who string, r ColdStartRequest, items []ColdStartItem, count map[string]int) error {
	only := r.Only
	if only == "" {
		only = "missing"
	}
	target := fmt.Sprintf("%s %s to %s", r.Period, r.From, r.To)
	detail := fmt.Sprintf("group %q, tasks %q, only %s, by data %t: %d new, %d new runs, %d left alone, %d there already, %d refused",
		r.Group, r.Tasks, only, r.ByData, count[ColdNew], count[ColdNewRun], count[ColdLeftAlone], count[ColdExists], count[ColdRefused])
	return a.store.Write(ctx, "note a cold start", who, func(tx *store.Tx) error {
		if err := tx.LogAction("cold_start", target, detail); err != nil {
			return err
		}
		var left []string
		for _, it := range items {
			if it.Action == ColdLeftAlone {
				left = append(left, fmt.Sprintf("%s %s: %s", it.Task, it.BatchNo, it.Reason))
			}
		}
		if len(left) == 0 {
			return nil
		}
		text := strings.Join(left[:min(len(left), 200)], "\n")
		if len(left) > 200 {
			text += fmt.Sprintf("\n… and %d more", len(left)-200)
		}
		return tx.Alert(capri.Alert{Key: fmt.Sprintf("cold_start_left_alone:%d:%s", tx.Now, target), Level: capri.Attention, Kind: "cold_start_left_alone",
			Title: fmt.Sprintf("Cold start of %s by %s left %d unfinished batches alone", target, who, len(left)), Text: text})
	})
}

func (a *Actions) coldInsert(ctx context.Context, who string, items []ColdStartItem, batches []*capri.NewBatch) error {
	in, err := a.store.InsertBatches(ctx, store.ByPerson(who), batches, func(tx *store.Tx, in store.Inserted) error { return lowerFirstMarks(tx, items) })
	if err != nil {
		return err
	}
	for _, b := range in.Present {
		for i := range items {
			if batches[i] == b {
				items[i].Action, items[i].Reason = ColdLeftAlone, "it was made by somebody else at this moment"
			}
		}
	}
	return nil
}

// lowerFirstMarks: whatever is generated from now on waits for these batches.
func lowerFirstMarks(tx *store.Tx, items []ColdStartItem) error {
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

// coldRunAgain makes new runs, all in one transaction; where one of them is in the way by now, each in its own.
func (a *Actions) coldRunAgain(ctx context.Context, who string, items []ColdStartItem, batches []*capri.NewBatch) error {
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
			items[i].Action, items[i].Reason = ColdLeftAlone, err.Error()
		case err != nil:
			return err
		}
	}
	return nil
}
