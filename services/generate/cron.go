package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"capri"
	"capri/birth"
	"capri/cron"
	"capri/sql/store"
)

// cron keeps the due list filled to the horizon and makes the batches whose fire has come.
func (w *work) cron(ctx context.Context) error {
	if err := w.plan(ctx); err != nil {
		return err
	}
	for done := 0; ; done += page {
		if done >= firesATurn {
			w.again = true
			break
		}
		fires, err := w.store.DueFires(ctx, w.turn.Now, page)
		if err != nil {
			return err
		}
		if len(fires) > 0 {
			if err := w.fire(ctx, fires); err != nil {
				return err
			}
		}
		if len(fires) < page {
			break
		}
	}
	next, err := w.store.NextFire(ctx)
	w.wakeAt(next)
	return err
}

// plan puts the fires up to the horizon into the due list, so that a batch starts at its fire and not a poll later.
// After an outage it goes on where it stopped, some hundred fires of each task a turn.
func (w *work) plan(ctx context.Context) error {
	minutes, err := w.store.SettingInt(ctx, store.CronHorizonMinutes, 2)
	if err != nil {
		return err
	}
	horizon := w.turn.Now.Add(time.Duration(minutes) * time.Minute)
	// A task is planned again when half the horizon is used up, not each turn.
	tasks, err := w.store.CronToPlan(ctx, horizon.Add(-time.Duration(minutes)*time.Minute/2), page)
	if err != nil {
		return err
	}
	planned := 0
	for _, t := range tasks {
		var fires []store.Fire
		var until capri.Instant
		err := w.guarded(t.Name, func() (err error) {
			fires, until, err = w.firesOf(t, horizon)
			return err
		})
		if err != nil { // somebody wrote it by hand; it must not keep the others from their fires
			if err := w.alertUnplanned(ctx, t, err); err != nil {
				return err
			}
			continue
		}
		w.again = w.again || until < horizon
		if err := w.store.PlanFires(ctx, w.turn.Lease, t.ID, t.PlannedUntil, until, fires); err != nil {
			return err
		}
		planned++
	}
	w.again = w.again || len(tasks) == page && planned > 0 // those that cannot be planned come back each time
	return nil
}

// firesOf lists a task's next fires, and how far they go: to the horizon, or less where there are too many for a turn.
func (w *work) firesOf(t store.CronTask, horizon capri.Instant) (fires []store.Fire, until capri.Instant, err error) {
	if t.Broken != "" {
		return nil, 0, errors.New(t.Broken)
	}
	e, err := cron.Parse(t.Cron)
	if err != nil {
		return nil, 0, err
	}
	validFrom, validTo, err := w.validity(t.Valid)
	if err != nil {
		return nil, 0, err
	}
	from := cmp.Or(t.PlannedUntil, t.UpdatedAt)
	until = horizon
	found := w.calendar.CronFires(e, from+1, horizon+1, firesAhead)
	if len(found) == firesAhead {
		until = found[firesAhead-1].Mark
	}
	fires = make([]store.Fire, 0, len(found))
	for _, iv := range found {
		if iv.Mark >= validFrom && (validTo == 0 || iv.Mark < validTo) {
			fires = append(fires, store.Fire{Task: t.ID, At: iv.Mark, DataStart: iv.Start})
		}
	}
	return fires, until, nil
}

func (w *work) alertUnplanned(ctx context.Context, t store.CronTask, why error) error {
	w.log.Error("a cron task has no fires", "task", t.Name, "err", why)
	return w.store.WriteAs(ctx, "alert of a cron task without fires", w.turn.Lease, func(tx *store.Tx) error {
		return tx.Alert(capri.Alert{Key: fmt.Sprintf("cron_unplanned:%d:%d", t.ID, t.Version), Level: capri.Important, Kind: "generate_failed", Task: t.ID,
			Title: fmt.Sprintf("Task %s: its cron expression gives no fires", t.Name), Text: why.Error()})
	})
}

// fire makes the batches of due fires; their lines leave the due list in the same transaction.
func (w *work) fire(ctx context.Context, fires []store.Fire) error {
	byID, err := w.cronTasks(ctx, fires)
	if err != nil {
		return err
	}
	if err := w.parents.read(ctx, w.store, slices.Collect(maps.Values(byID))); err != nil {
		return err
	}
	compiled := map[capri.TaskID]*birth.Task{}
	var drop []store.Fire // of tasks that are disabled or gone
	var batches []*capri.NewBatch
	var bad []failure
	fireOf := map[*capri.NewBatch]store.Fire{}
	for _, f := range fires {
		t := byID[f.Task]
		if t == nil {
			drop = append(drop, f)
			continue
		}
		iv := w.calendar.CronFire(f.At)
		iv.Start = f.DataStart
		var b *capri.NewBatch
		err := w.guarded(t.Name, func() (err error) {
			if compiled[f.Task] == nil {
				if compiled[f.Task], err = birth.Compile(t); err != nil {
					return err
				}
			}
			b, err = w.bear(compiled[f.Task], iv, w.origin(f.At))
			return err
		})
		if err != nil {
			bad = append(bad, failure{t.ID, f.At, t.Name, 1, err})
			continue
		}
		fireOf[b] = f
		batches = append(batches, b)
	}
	ins, more, err := w.insert(ctx, batches, func(tx *store.Tx, in store.Inserted) error {
		gone := make([]store.Fire, 0, len(in.Made)+len(in.Present))
		for _, b := range in.Made {
			gone = append(gone, fireOf[b])
		}
		for _, b := range in.Present {
			gone = append(gone, fireOf[b])
		}
		return tx.DropFires(gone)
	})
	if err != nil {
		return err
	}
	for i := range more {
		more[i].name = byID[more[i].task].Name
	}
	// A fire that cannot be made is kept as a failure of that fire and tried again like a mark's.
	bad = append(bad, more...)
	for _, f := range bad {
		if err := w.store.FailGeneration(ctx, w.turn.Lease, store.GenerateFailure{Period: capri.Cron, Mark: f.at, Task: f.task, Tries: f.tries, Error: f.err.Error()}, f.name); err != nil {
			return err
		}
		drop = append(drop, store.Fire{Task: f.task, At: f.at})
	}
	if tasks := oncePerTask(bad); len(tasks) > manyFailed {
		first := tasks[0].at
		if err := w.alertMany(ctx, capri.Cron, first, "their fires from "+first.In(w.calendar.Zone()).Format(time.DateTime)+" on", tasks); err != nil {
			return err
		}
	}
	if len(drop) > 0 {
		if err := w.store.WriteAs(ctx, "clear the due list", w.turn.Lease, func(tx *store.Tx) error { return tx.DropFires(drop) }); err != nil {
			return err
		}
	}
	w.counts["fires"] += len(fires)
	w.add("made", len(ins.Made))
	w.add("present", len(ins.Present))
	w.add("failed", len(bad))
	return nil
}

// oncePerTask keeps the earliest failure of each task, the earliest of all first.
func oncePerTask(failed []failure) []failure {
	failed = slices.Clone(failed)
	slices.SortStableFunc(failed, func(a, b failure) int { return cmp.Compare(a.at, b.at) })
	seen := map[capri.TaskID]bool{}
	return slices.DeleteFunc(failed, func(f failure) bool {
		was := seen[f.task]
		seen[f.task] = true
		return was
	})
}

func (w *work) cronTasks(ctx context.Context, fires []store.Fire) (map[capri.TaskID]*capri.Task, error) {
	ids := make([]capri.TaskID, 0, len(fires))
	for _, f := range fires {
		ids = append(ids, f.Task)
	}
	slices.Sort(ids)
	tasks, err := w.store.EnabledByID(ctx, capri.Cron, slices.Compact(ids))
	byID := map[capri.TaskID]*capri.Task{}
	for _, t := range tasks {
		byID[t.ID] = t
	}
	return byID, err
}

// validity gives the marks a task takes part in: from included, to excluded, 0 open.
func (w *work) validity(v capri.Validity) (from, to capri.Instant, err error) {
	if v.From != "" {
		if from, err = w.calendar.ParseTime(v.From); err != nil {
			return 0, 0, err
		}
	}
	if v.To != "" {
		to, err = w.calendar.ParseTime(v.To)
	}
	return from, to, err
}
