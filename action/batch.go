package action

import (
	"context"
	"fmt"
	"slices"

	"capri"
	"capri/sql/store"
	"capri/wake"
)

// What became of a batch that somebody wanted to kill, hold or release.
const (
	Done      = "done"
	Asked     = "asked"     // its worker has been told
	Unchanged = "unchanged" // it was in no state for it
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
	results := make([]BatchResult, len(ids))
	for i, id := range ids {
		b := after[id]
		results[i] = BatchResult{ID: id, Result: Unchanged, Detail: stands(b.Batch)}
		if slices.Contains(done, id) {
			results[i].Result = Done
		} else if slices.Contains(asked, id) {
			results[i].Result = Asked
		}
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
