package action

import (
	"context"
	"fmt"

	"capri"
	"capri/birth"
	"capri/sql/store"
	"capri/wake"
)

// Execute runs a task now, for the newest interval that has ended; a manual one for this moment. Its conditions
// hold as for any batch. It is refused while that batch_no has not finished.
func (a *Actions) Execute(ctx context.Context, who, name string) (store.BatchRow, error) {
	t, err := a.store.TaskByName(ctx, name)
	if err != nil {
		return store.BatchRow{}, err
	}
	if !t.Enabled {
		return store.BatchRow{}, capri.Conflict("task %s is disabled, so a batch of it would never start: enable it first", name)
	}
	now, err := a.store.Now(ctx)
	if err != nil {
		return store.BatchRow{}, err
	}
	e, err := expression(t)
	if err != nil {
		return store.BatchRow{}, err
	}
	iv, ok := a.calendar.NewestEnded(t.Period, e, now)
	if !ok {
		return store.BatchRow{}, capri.Conflict("task %s (%s) has never fired, so there is no interval to run it for", name, t.Cron)
	}
	latest, err := a.store.LatestRuns(ctx, t.ID, []capri.BatchNo{iv.BatchNo})
	if err != nil {
		return store.BatchRow{}, err
	}
	old, exists := latest[iv.BatchNo]
	if exists && old.State != capri.Finished {
		return store.BatchRow{}, inTheWay(name, old)
	}
	maker, err := a.maker(ctx)
	if err != nil {
		return store.BatchRow{}, err
	}
	compiled, err := birth.Compile(t)
	if err != nil {
		return store.BatchRow{}, err
	}
	runNo := 0
	if exists {
		runNo = old.RunNo + 1
	}
	nb, err := maker.Batch(compiled, iv, capri.OriginExecute, runNo, now)
	if err != nil {
		return store.BatchRow{}, err
	}
	if nb.Former, err = a.formerOutputs(ctx, maker, old, map[store.VersionKey]*birth.Task{}); err != nil {
		return store.BatchRow{}, err
	}

	note := func(tx *store.Tx) error {
		// Children that are made from now on wait for this interval, because there is a batch of it.
		if err := tx.LowerFirstMark(t.ID, iv.Mark); err != nil {
			return err
		}
		return tx.LogChanges(store.Change{Action: "execute", Target: name, Detail: fmt.Sprintf("batch_no %s, run %d, batch %d", iv.BatchNo, runNo, nb.ID), Task: t.ID})
	}
	if exists {
		if nb.ID, err = a.store.ReserveBatchIDs(ctx, 1); err != nil {
			return store.BatchRow{}, err
		}
		err = a.store.Write(ctx, "execute "+name, who, func(tx *store.Tx) error {
			if err := tx.NewRun(old.ID, nb); err != nil {
				return err
			}
			return note(tx)
		})
	} else {
		_, err = a.store.InsertBatches(ctx, store.ByPerson(who), []*capri.NewBatch{nb}, func(tx *store.Tx, in store.Inserted) error {
			if len(in.Present) > 0 { // the mark came, or somebody else executed it
				return capri.Conflict("task %s has a batch %s already: it was made at this moment", name, iv.BatchNo)
			}
			return note(tx)
		})
	}
	if err != nil {
		return store.BatchRow{}, err
	}
	a.wake.Wake(wake.Dependency, wake.Dispatch)
	return a.store.Batch(ctx, nb.ID)
}

func inTheWay(task string, b capri.Batch) error {
	return capri.Conflict("batch %d of task %s (%s, run %d) is %s: wait for it, or kill it first", b.ID, task, b.BatchNo, b.RunNo, b.State)
}
