package action

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/birth"
	"capri/cron"
	"capri/definition"
	"capri/sql/store"
	"capri/wake"
)

// ExecuteRequest asks for one run of a task, out of its schedule.
type ExecuteRequest struct {
	Task     string
	Interval string            // batch_no or FROM..TO of an interval that has ended; empty: the newest. A manual task: this moment
	Params   map[string]string // of this run alone, besides the task's
	Reason   string
	runNow   bool
}

// Execute runs a task now, for the newest interval that has ended or the one that is asked for; a manual one for this
// moment. Its conditions hold. Where there is a run already that has finished, it is the next one.
func (a *Actions) Execute(ctx context.Context, who string, r ExecuteRequest) (store.BatchRow, error) {
	if err := definition.CheckParams(r.Params); err != nil {
		return store.BatchRow{}, err
	}
	x, err := a.executable(ctx, r)
	if err != nil {
		return store.BatchRow{}, err
	}
	if x.exists && x.old.State != capri.Finished {
		return store.BatchRow{}, inTheWay(r.Task, x.old)
	}
	return a.execute(ctx, who, r, x)
}

// RunTaskNow is RunNow for the batch of a task's newest ended interval, which is made if there is none.
func (a *Actions) RunTaskNow(ctx context.Context, who, task, reason string) (store.BatchRow, error) {
	r := ExecuteRequest{Task: task, Reason: reason, runNow: true}
	x, err := a.executable(ctx, r)
	if err != nil {
		return store.BatchRow{}, err
	}
	if !x.exists {
		return a.execute(ctx, who, r, x)
	}
	if _, err := a.RunNow(ctx, who, []capri.BatchID{x.old.ID}, reason); err != nil {
		return store.BatchRow{}, err
	}
	return a.store.Batch(ctx, x.old.ID)
}

// executable is a task with the interval that is to run and the run that there is of it.
type executable struct {
	task   *capri.Task
	iv     capri.Interval
	now    capri.Instant
	old    capri.Batch
	exists bool
}

func (a *Actions) executable(ctx context.Context, r ExecuteRequest) (x executable, err error) {
	if x.task, err = a.store.TaskByName(ctx, r.Task); err != nil {
		return x, err
	}
	if !x.task.Enabled {
		return x, capri.Conflict("task %s is disabled, so a batch of it would never start: enable it first", r.Task)
	}
	if x.now, err = a.store.Now(ctx); err != nil {
		return x, err
	}
	if x.iv, err = a.interval(x.task, r.Interval, x.now); err != nil {
		return x, err
	}
	latest, err := a.store.LatestRuns(ctx, x.task.ID, []capri.BatchNo{x.iv.BatchNo})
	x.old, x.exists = latest[x.iv.BatchNo]
	if err == nil && !x.exists && x.task.Period == capri.Manual && r.Interval != "" {
		err = capri.Invalid("interval", r.Interval, "the batch_no of an earlier run: a manual task has no other intervals (leave it out to run it for this moment)")
	}
	return x, err
}

// interval reads which interval of a task's period is meant: a batch_no, or FROM..TO with its exact bounds.
func (a *Actions) interval(t *capri.Task, text string, now capri.Instant) (iv capri.Interval, err error) {
	e, err := expression(t)
	if err != nil {
		return iv, err
	}
	if text == "" {
		iv, ok := a.calendar.NewestEnded(t.Period, e, now)
		if !ok {
			return iv, capri.Conflict("task %s (%s) has never fired, so there is no interval to run it for", t.Name, t.Cron)
		}
		return iv, nil
	}
	if from, to, isRange := strings.Cut(text, ".."); isRange {
		iv, err = a.intervalBetween(t, e, from, to)
	} else {
		iv, err = a.intervalOf(t, e, text)
	}
	if err != nil {
		return iv, err
	}
	if iv.End > now {
		return iv, capri.Conflict("interval %s of task %s ends at %s: it has not ended yet", iv.BatchNo, t.Name, a.clock(iv.End))
	}
	return iv, nil
}

// intervalOf reads a batch_no.
func (a *Actions) intervalOf(t *capri.Task, e *cron.Expression, no string) (capri.Interval, error) {
	iv, err := a.calendar.Parse(t.Period, capri.BatchNo(no))
	if err != nil || t.Period != capri.Cron {
		return iv, named("interval", err)
	}
	fires := a.calendar.CronFires(e, iv.Mark, iv.Mark+1, 1)
	if len(fires) == 0 {
		return iv, capri.Invalid("interval", no, fmt.Sprintf("a fire of %q (capri plan --task %s lists them)", t.Cron, t.Name))
	}
	return fires[0], nil
}

// intervalBetween reads the exact bounds of an interval.
func (a *Actions) intervalBetween(t *capri.Task, e *cron.Expression, fromText, toText string) (iv capri.Interval, err error) {
	text := fromText + ".." + toText
	from, err := a.calendar.ParseTime(fromText)
	if err != nil {
		return iv, named("interval", err)
	}
	to, err := a.calendar.ParseTime(toText)
	if err != nil {
		return iv, named("interval", err)
	}
	switch t.Period {
	case capri.Manual:
		return iv, capri.Invalid("interval", text, "no interval: a manual task runs for this moment")
	case capri.Cron:
		if fires := a.calendar.CronFires(e, to, to+1, 1); len(fires) > 0 {
			iv = fires[0]
		}
	default:
		iv = a.calendar.Containing(t.Period, from)
	}
	if iv.Start != from || iv.End != to {
		want := fmt.Sprintf("the bounds of one interval of the task's period (%s)", t.Period)
		if iv.End != 0 {
			want += fmt.Sprintf(", such as %s..%s", a.clock(iv.Start), a.clock(iv.End))
		}
		return iv, capri.Invalid("interval", text, want)
	}
	return iv, nil
}

func (a *Actions) clock(at capri.Instant) string {
	return at.In(a.calendar.Zone()).Format(time.DateTime)
}

// execute makes the run; what there was has finished.
func (a *Actions) execute(ctx context.Context, who string, r ExecuteRequest, x executable) (store.BatchRow, error) {
	others, err := a.store.OtherCampaigns(ctx, []capri.TaskID{x.task.ID})
	if err != nil {
		return store.BatchRow{}, err
	}
	if id := others[store.LatestKey{Task: x.task.ID, No: x.iv.BatchNo}]; id != 0 {
		return store.BatchRow{}, capri.Conflict("campaign %d is about to run %s of task %s", id, x.iv.BatchNo, r.Task)
	}
	maker, err := a.maker(ctx, x.task)
	if err != nil {
		return store.BatchRow{}, err
	}
	compiled, err := birth.Compile(x.task)
	if err != nil {
		return store.BatchRow{}, err
	}
	runNo := 0
	if x.exists {
		runNo = x.old.RunNo + 1
	}
	nb, err := maker.Batch(compiled, x.iv, capri.OriginExecute, runNo, x.now)
	if err != nil {
		return store.BatchRow{}, err
	}
	nb.Params = r.Params
	if nb.Former, err = birth.NewFormer(a.store, maker).Outputs(ctx, x.old); err != nil {
		return store.BatchRow{}, err
	}
	note := func(tx *store.Tx) error { return executed(tx, who, r, x, nb) }
	if x.exists {
		if nb.ID, err = a.store.ReserveBatchIDs(ctx, 1); err != nil {
			return store.BatchRow{}, err
		}
		err = a.store.Write(ctx, "execute "+r.Task, who, func(tx *store.Tx) error {
			if err := tx.NewRun(x.old.ID, nb); err != nil {
				return err
			}
			return note(tx)
		})
	} else {
		_, err = a.store.InsertBatches(ctx, store.ByPerson(who), []*capri.NewBatch{nb}, func(tx *store.Tx, in store.Inserted) error {
			if len(in.Present) > 0 { // the mark came, or somebody else executed it
				return capri.Conflict("task %s has a batch %s already: it was made at this moment", r.Task, x.iv.BatchNo)
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

// executed writes what goes with the run of an execution.
func executed(tx *store.Tx, who string, r ExecuteRequest, x executable, nb *capri.NewBatch) error {
	// Children that are made from now on wait for this interval, because there is a batch of it.
	if err := tx.LowerFirstMark(x.iv.Mark, x.task.ID); err != nil {
		return err
	}
	change := store.Change{Action: "execute", Target: r.Task, Detail: fmt.Sprintf("batch_no %s, run %d, batch %d", x.iv.BatchNo, nb.RunNo, nb.ID), Task: x.task.ID}
	if len(r.Params) > 0 {
		change.Detail += ", params " + strings.Join(slices.Sorted(maps.Keys(r.Params)), " ")
	}
	if r.Reason != "" {
		change.Detail += ": " + r.Reason
	}
	if r.runNow {
		change.Action, change.Target = "run_now", fmt.Sprintf("batch %d", nb.ID)
		if _, err := tx.RunNow([]capri.BatchID{nb.ID}, because(runNowSaid, who, r.Reason)); err != nil {
			return err
		}
	}
	return tx.LogChanges(change)
}

func inTheWay(task string, b capri.Batch) error {
	return capri.Conflict("batch %d of task %s (%s, run %d) is %s: wait for it, or kill it first", b.ID, task, b.BatchNo, b.RunNo, b.State)
}
