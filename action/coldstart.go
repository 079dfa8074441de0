package action

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"capri"
	"capri/birth"
	"capri/sql/store"
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

// ColdStart makes the batches of a range, by today's definitions and their validity: `enabled` is asked of now and
// not of then. What has not finished is left alone, and admins are told of it.
//
// Nothing of a cold start can begin before what it waits for in the same cold start: conditions name the parent's
// batch_no and begin unmet, so a child that is there first just waits. And of batch_nos that run again, parents
// come first, so that no child is released by the success of a run that is about to be replaced. If the process
// dies in the middle, what was made is right, and the same cold start makes the rest.
func (a *Actions) ColdStart(ctx context.Context, who string, r ColdStartRequest) ([]RangeItem, error) {
	now, err := a.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	tasks, poisoned, err := a.coldTasks(ctx, r)
	if err != nil {
		return nil, err
	}
	run := rangeRun{who: who, origin: capri.OriginColdStart, now: now}
	items, err := a.rangeItems(r.Period, r.From, r.To, r.ByData, tasks, now)
	if err != nil {
		return nil, err
	}
	if err := a.rangeActions(ctx, cmp.Or(r.Only, onlyMissing), items); err != nil {
		return nil, err
	}
	if run.items = slices.DeleteFunc(items, func(it RangeItem) bool { return it.Action == "" }); !r.Preview {
		run.note = func(tx *store.Tx, count map[string]int) error { return noteColdStart(tx, who, r, run.items, count) }
	}
	if err := a.run(ctx, &run); err != nil {
		a.log.Warn("a cold start stopped in the middle; the same one again makes the rest", "who", who, "period", r.Period, "from", r.From, "to", r.To, "err", err)
		return nil, err
	}
	return append(run.items, poisoned...), nil
}

// coldTasks finds the tasks that are meant. One whose definition cannot be used is refused by itself where it was not
// asked for by name.
func (a *Actions) coldTasks(ctx context.Context, r ColdStartRequest) (tasks []*birth.Task, poisoned []RangeItem, err error) {
	switch r.Period {
	case 0:
		return nil, nil, capri.Invalid("period", "", "hour, day, week, month or cron")
	case capri.Manual:
		return nil, nil, capri.Invalid("period", r.Period.String(), "hour, day, week, month or cron: a manual task has no marks (execute runs it)")
	}
	if err := checkOnly(r.Only); err != nil {
		return nil, nil, err
	}
	f := store.TaskFilter{Group: r.Group, Period: r.Period}
	if len(r.Tasks) > 0 {
		f = store.TaskFilter{Names: r.Tasks}
	}
	found, err := a.store.Tasks(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	byName := map[string]*capri.Task{}
	for _, t := range found {
		byName[t.Name] = t
	}
	for _, n := range r.Tasks {
		switch t := byName[n]; {
		case t == nil:
			return nil, nil, capri.NotFound("there is no task %q", n)
		case t.Period != r.Period:
			return nil, nil, capri.Invalid("tasks", n, fmt.Sprintf("tasks of period %s: this one is of period %s", r.Period, t.Period))
		case r.Group != "" && t.Group != r.Group:
			return nil, nil, capri.Invalid("tasks", n, fmt.Sprintf("tasks of group %s: this one is of group %s", r.Group, t.Group))
		case !t.Enabled:
			return nil, nil, capri.Conflict("task %s is disabled: enable it first", n)
		}
	}
	for _, t := range found {
		if !t.Enabled {
			continue
		}
		compiled, err := a.compile(t)
		switch {
		case err == nil:
			tasks = append(tasks, compiled)
		case len(r.Tasks) > 0:
			return nil, nil, fmt.Errorf("task %s: %w", t.Name, err)
		default:
			poisoned = append(poisoned, RangeItem{Task: t.Name, Action: ItemRefused, Reason: err.Error()})
		}
	}
	if len(tasks)+len(poisoned) == 0 {
		if r.Group != "" {
			return nil, nil, capri.NotFound("there is no enabled %s task in group %q", r.Period, r.Group)
		}
		return nil, nil, capri.NotFound("there is no enabled %s task", r.Period)
	}
	return tasks, poisoned, nil
}

// noteColdStart writes who did what, and tells admins of what was left alone (seed 002 §1.1.3.3).
func noteColdStart(tx *store.Tx, who string, r ColdStartRequest, items []RangeItem, count map[string]int) error {
	target := fmt.Sprintf("%s %s to %s", r.Period, r.From, r.To)
	detail := fmt.Sprintf("group %q, tasks %q, only %s, by data %t: %d new, %d new runs, %d left alone, %d there already, %d refused",
		r.Group, r.Tasks, cmp.Or(r.Only, onlyMissing), r.ByData, count[ItemNew], count[ItemNewRun], count[ItemLeftAlone], count[ItemExists], count[ItemRefused])
	if err := tx.LogAction("cold_start", target, detail); err != nil {
		return err
	}
	var left []string
	for _, it := range items {
		if it.Action == ItemLeftAlone {
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
}
