package action

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"capri"
	"capri/birth"
	"capri/sql/store"
	"capri/wake"
)

// RerunRequest asks for a task's batches of a range to run again. From and To are as people wrote them.
type RerunRequest struct {
	Task      string
	From, To  string
	ByData    bool            // the range is on data intervals, its end excluded
	Only      string          // all (default), missing, failed
	OnRunning string          // what has not finished: fail (default), skip, kill
	Cascade   string          // none (default): the task itself and no other
	BatchNos  []capri.BatchNo // of the range only these; empty: all
	Preview   bool
}

// What happens to batches of the range that have not finished.
const (
	onRunningFail = "fail"
	onRunningSkip = "skip"
	onRunningKill = "kill"
)

// Rerun makes new runs of a task's batches: the next run_no, each scheduled at its own mark, by the definition as it
// stands now. What rested on a former run's success waits for the new one. What there is no batch of yet gets its first
// run. Children do not run again by themselves, but those that have not started wait.
//
// Of batches that have not finished, with kill, those that run nowhere are ended and run again at once. One that runs is
// told to stop, and runs again by the same request once it has: nothing here waits for a worker.
//
// The oldest come first, some hundred a transaction, so that a task that waits for its own interval before does not see
// a former run of it. If the process dies in the middle, what was made is right.
func (a *Actions) Rerun(ctx context.Context, who string, r RerunRequest) ([]RangeItem, error) {
	t, err := a.rerunTask(ctx, r)
	if err != nil {
		return nil, err
	}
	now, err := a.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	items, err := a.rangeItems(t.Period, r.From, r.To, r.ByData, []*birth.Task{t}, now)
	if err != nil {
		return nil, err
	}
	if len(r.BatchNos) > 0 {
		items = slices.DeleteFunc(items, func(it RangeItem) bool { return !slices.Contains(r.BatchNos, it.BatchNo) })
	}
	if err := a.rangeActions(ctx, cmp.Or(r.Only, onlyAll), items); err != nil {
		return nil, err
	}
	run := rangeRun{who: who, origin: capri.OriginRerun, now: now, items: slices.DeleteFunc(items, func(it RangeItem) bool { return it.Action == "" })}
	if err := a.unfinished(ctx, who, r, run.items); err != nil {
		return nil, err
	}
	if !r.Preview {
		run.note = func(tx *store.Tx, count map[string]int) error {
			return tx.LogChanges(store.Change{Action: "rerun", Target: r.Task, Task: t.ID, Detail: fmt.Sprintf("%s to %s, by data %t, only %s, on running %s: %d new runs, %d new, %d killed first, %d left alone, %d there already, %d refused",
				r.From, r.To, r.ByData, cmp.Or(r.Only, onlyAll), cmp.Or(r.OnRunning, onRunningFail),
				count[ItemNewRun], count[ItemNew], count[ItemKillAsked], count[ItemLeftAlone], count[ItemExists], count[ItemRefused])})
		}
	}
	if err := a.run(ctx, &run); err != nil {
		a.log.Warn("a rerun stopped in the middle; what it made is right", "who", who, "task", r.Task, "from", r.From, "to", r.To, "err", err)
		return nil, err
	}
	return run.items, nil
}

func (a *Actions) rerunTask(ctx context.Context, r RerunRequest) (*birth.Task, error) {
	if err := checkOnly(r.Only); err != nil {
		return nil, err
	}
	switch r.Cascade {
	case "", "none":
	case "data", "logic", "both":
		return nil, capri.Invalid("cascade", r.Cascade, "none: reruns of a task's children are not there yet, rerun them one by one")
	default:
		return nil, capri.Invalid("cascade", r.Cascade, "none")
	}
	if !slices.Contains([]string{"", onRunningFail, onRunningSkip, onRunningKill}, r.OnRunning) {
		return nil, capri.Invalid("on_running", r.OnRunning, "fail, skip or kill")
	}
	t, err := a.store.TaskByName(ctx, r.Task)
	if err != nil {
		return nil, err
	}
	if t.Broken == "" && t.Period == capri.Manual {
		return nil, capri.Invalid("task", r.Task, "a task with a period or a cron expression: a manual one has no marks (execute runs it)")
	}
	if !t.Enabled {
		return nil, capri.Conflict("task %s is disabled, so a batch of it would never start: enable it first", r.Task)
	}
	return a.compile(t)
}

// unfinished settles the items whose batches have not finished. They stand in the way of all alone: a batch that is on its
// way is neither missing nor failed.
func (a *Actions) unfinished(ctx context.Context, who string, r RerunRequest, items []RangeItem) error {
	var open []*RangeItem
	for i := range items {
		if items[i].Action == ItemLeftAlone {
			open = append(open, &items[i])
		}
	}
	switch {
	case len(open) == 0, r.OnRunning == onRunningSkip, cmp.Or(r.Only, onlyAll) != onlyAll:
		return nil
	case r.OnRunning != onRunningKill:
		nos := make([]string, len(open))
		for i, it := range open {
			nos[i] = fmt.Sprintf("%s (%s)", it.BatchNo, it.Reason)
		}
		return capri.Conflict("%d batches of task %s have not finished: %s; wait for them, or say what to do (on_running skip or kill)", len(open), r.Task, some(nos))
	}
	if r.Preview {
		for _, it := range open {
			if it.Action = ItemNewRun; it.old.State == capri.Running {
				it.Action = ItemKillAsked
			}
			it.Reason += ", and would be killed"
		}
		return nil
	}
	for len(open) > 0 {
		part := open[:min(len(open), rangeChunk)]
		open = open[len(part):]
		if err := a.killFirst(ctx, who, r.Task, part); err != nil {
			return err
		}
	}
	a.wake.Wake(wake.Worker)
	return nil
}

func (a *Actions) killFirst(ctx context.Context, who, task string, items []*RangeItem) error {
	ids := make([]capri.BatchID, len(items))
	for i, it := range items {
		ids[i] = it.old.ID
	}
	var killed []capri.BatchID
	why := because("killed", who, "rerun")
	err := a.store.Write(ctx, "kill before a rerun", who, func(tx *store.Tx) (err error) {
		var asked []capri.BatchID
		if killed, asked, err = tx.RequestKill(ids, why); err != nil {
			return err
		}
		return tx.LogAction("kill", task, fmt.Sprintf("before a rerun: %d batches ended, %d were told to", len(killed), len(asked)))
	})
	if err != nil {
		return err
	}
	after, err := a.store.BatchesByID(ctx, ids)
	if err != nil {
		return err
	}
	for _, it := range items {
		switch b := after[it.old.ID].Batch; {
		case b.State == capri.Finished: // by us, or by itself at this moment
			it.Action, it.Reason, it.old = ItemNewRun, fmt.Sprintf("batch %d ended as %s", b.ID, b.FinishState), b
		case b.KillRequest:
			it.Action, it.Reason = ItemKillAsked, fmt.Sprintf("batch %d is being killed on node %s: rerun it when it has ended", b.ID, b.Node)
		}
	}
	return nil
}
