package action

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"capri"
	"capri/sql/store"
	"capri/wake"
)

// What became of a batch that somebody wanted to kill, hold or release.
const (
	Done      = "done"
	Asked     = "asked"     // its worker has been told
	Unchanged = "unchanged" // it was in no state for it, or so already
	Refused   = "refused"   // it cannot be done as things are; Detail says why, and what to do instead
)

// BatchResult is one of them.
type BatchResult struct {
	ID     capri.BatchID
	Result string
	Detail string
}

// Kill ends batches: those that run nowhere at once, the others as soon as their worker has ended every process.
func (a *Actions) Kill(ctx context.Context, who string, ids []capri.BatchID, reason string) ([]BatchResult, error) {
	why := because("killed", who, reason)
	return a.changeBatches(ctx, "kill", who, ids, reason, func(tx *store.Tx) (done, asked []capri.BatchID, err error) {
		return tx.RequestKill(ids, why)
	}, wake.Worker, wake.Dispatch)
}

// ForceSuccess makes a success of batches that wait, or have finished otherwise: their children may start. One that is on
// its way to run or runs has to be killed first, since nobody would know what its job does meanwhile.
func (a *Actions) ForceSuccess(ctx context.Context, who string, ids []capri.BatchID, reason string) ([]BatchResult, error) {
	if reason == "" {
		return nil, capri.Invalid("reason", "", "a reason: it stands in the batch's history in place of a run")
	}
	why := because("forced to success", who, reason)
	return a.changeBatches(ctx, "force_success", who, ids, reason, func(tx *store.Tx) (done, asked []capri.BatchID, err error) {
		done, err = tx.ForceSuccess(ids, why)
		return done, nil, err
	}, wake.Dependency)
}

func cannotForce(b store.BatchRow) string {
	switch {
	case b.State == capri.Assigned || b.State == capri.Running:
		return fmt.Sprintf("it is %s on node %s: kill it first (capri kill %d), then force its success", b.State, b.Node, b.ID)
	case b.FinishState == capri.Success:
		return ""
	case !b.Latest:
		return fmt.Sprintf("a newer run of %s %s counts: force that one (capri batch list --task %s)", b.Task, b.BatchNo, b.Task)
	case b.Archived:
		return fmt.Sprintf("it is archived: run %s %s again (capri execute %s --interval %s), or force the success of that run", b.Task, b.BatchNo, b.Task, b.BatchNo)
	}
	return "it has just changed: look again (capri batch show)"
}

// RunNow lets waiting batches start without their conditions and before their time. Limits, pauses, nodes and a quality
// gate hold all the same.
func (a *Actions) RunNow(ctx context.Context, who string, ids []capri.BatchID, reason string) ([]BatchResult, error) {
	rows, err := a.batches(ctx, ids)
	if err != nil {
		return nil, err
	}
	disabled, err := a.disabled(ctx, rows)
	if err != nil {
		return nil, err
	}
	able := slices.DeleteFunc(slices.Clone(ids), func(id capri.BatchID) bool { return disabled[rows[id].Task] })
	why := because(runNowSaid, who, reason)
	return a.changeBatches(ctx, "run_now", who, ids, reason, func(tx *store.Tx) (done, asked []capri.BatchID, err error) {
		done, err = tx.RunNow(able, why)
		return done, nil, err
	}, wake.Dispatch)
}

// runNowSaid is how the event of such a batch begins: whoever checks that all was in order asks for it.
const runNowSaid = "run now"

func cannotRunNow(b store.BatchRow) string {
	switch {
	case b.State == capri.Finished:
		return fmt.Sprintf("it has finished (%s): capri execute %s --interval %s runs it again", b.FinishState, b.Task, b.BatchNo)
	case b.State != capri.Waiting || b.RunNow:
		return ""
	case b.Held:
		return fmt.Sprintf("it is held: release it first (capri release %d)", b.ID)
	}
	return fmt.Sprintf("task %s is disabled: enable it first (capri task enable %s)", b.Task, b.Task)
}

// disabled are those of the batches' tasks whose batches would never start.
func (a *Actions) disabled(ctx context.Context, rows map[capri.BatchID]store.BatchRow) (map[string]bool, error) {
	names := map[string]bool{}
	for _, b := range rows {
		names[b.Task] = true
	}
	tasks, err := a.store.Tasks(ctx, store.TaskFilter{Names: slices.Sorted(maps.Keys(names))})
	for _, t := range tasks {
		if t.Enabled {
			delete(names, t.Name)
		}
	}
	return names, err
}

// refusals say, by act, why a batch that was left alone cannot be helped; empty: it is so already, or past it.
var refusals = map[string]func(store.BatchRow) string{
	"force_success": cannotForce,
	"run_now":       cannotRunNow,
	"hold": func(b store.BatchRow) string {
		if b.State == capri.Running {
			return fmt.Sprintf("it runs on node %s already: kill it (capri kill %d), or let it end", b.Node, b.ID)
		}
		return ""
	},
}

// Hold keeps batches from starting until they are released.
func (a *Actions) Hold(ctx context.Context, who string, ids []capri.BatchID, reason string) ([]BatchResult, error) {
	// The store writes "held: " before it.
	why := "by " + who
	if reason != "" {
		why += ": " + reason
	}
	return a.changeBatches(ctx, "hold", who, ids, reason, func(tx *store.Tx) (done, asked []capri.BatchID, err error) {
		done, err = tx.Hold(ids, why)
		return done, nil, err
	}, wake.Dispatch)
}

// Release lets held batches start.
func (a *Actions) Release(ctx context.Context, who string, ids []capri.BatchID, reason string) ([]BatchResult, error) {
	why := because("released", who, reason)
	return a.changeBatches(ctx, "release", who, ids, reason, func(tx *store.Tx) (done, asked []capri.BatchID, err error) {
		done, err = tx.Release(ids, why)
		return done, nil, err
	}, wake.Dispatch)
}

func because(what, who, reason string) string {
	if reason == "" {
		return what + " by " + who
	}
	return what + " by " + who + ": " + reason
}

// changeBatches does something to several batches in one transaction. Where one of them does not exist nothing is done:
// a mistyped id is more likely than the wish to kill the others.
func (a *Actions) changeBatches(ctx context.Context, action, who string, ids []capri.BatchID, reason string,
	do func(*store.Tx) (done, asked []capri.BatchID, err error), topics ...string) ([]BatchResult, error) {
	if len(ids) == 0 {
		return nil, capri.Invalid("ids", "", "at least one batch")
	}
	if _, err := a.batches(ctx, ids); err != nil {
		return nil, err
	}
	var done, asked []capri.BatchID
	err := a.store.Write(ctx, action+" batches", who, func(tx *store.Tx) (err error) {
		before, err := tx.Standings(ids)
		if err != nil {
			return err
		}
		if done, asked, err = do(tx); err != nil {
			return err
		}
		changed := slices.Concat(done, asked)
		slices.Sort(changed)
		after, err := tx.Standings(changed)
		if err != nil {
			return err
		}
		changes := make([]store.Change, len(changed))
		for i, id := range changed {
			changes[i] = store.Change{Action: action, Target: fmt.Sprintf("batch %d", id), Detail: reason, Task: before[id].TaskID, Before: before[id], After: after[id]}
		}
		return tx.LogChanges(changes...)
	})
	if err != nil {
		return nil, err
	}
	a.wake.Wake(topics...)
	after, err := a.batches(ctx, ids)
	if err != nil {
		return nil, err
	}
	var refused []string
	results := make([]BatchResult, len(ids))
	for i, id := range ids {
		b := after[id]
		results[i] = BatchResult{ID: id, Result: Unchanged, Detail: stands(b.Batch)}
		if slices.Contains(done, id) {
			results[i].Result = Done
		} else if slices.Contains(asked, id) {
			results[i].Result = Asked
		} else if refusal := refusals[action]; refusal != nil {
			if why := refusal(b); why != "" {
				results[i].Result, results[i].Detail = Refused, why
				refused = append(refused, fmt.Sprintf("batch %d: %s", id, why))
			}
		}
	}
	if len(refused) == len(ids) { // nothing was done, and nothing is as it was wanted
		return nil, capri.Conflict("%s", some(refused))
	}
	return results, nil
}

// stands says in a few words where a batch is.
func stands(b capri.Batch) string {
	switch {
	case b.State == capri.Finished:
		return "finished (" + b.FinishState.String() + ")"
	case b.KillRequest:
		return b.State.String() + ", a kill is asked for"
	case b.RunNow:
		return b.State.String() + ", without its conditions"
	case b.Held:
		return b.State.String() + ", held"
	}
	return b.State.String()
}

func (a *Actions) batches(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID]store.BatchRow, error) {
	rows, err := a.store.BatchesByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, ok := rows[id]; !ok {
			return nil, capri.NotFound("there is no batch %d", id)
		}
	}
	return rows, nil
}
