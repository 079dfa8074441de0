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
	Periods []capri.Period `json:"-"`
	Of      string         `json:"period"` // the same, for the record
	From    string         `json:"from"`
	To      string         `json:"to"`
	Group   string         `json:"group,omitempty"`
	Tasks   []string       `json:"tasks,omitempty"`
	Only    string         `json:"only,omitempty"`    // missing (default), all, failed
	ByData  bool           `json:"by_data,omitempty"` // the range is on data intervals, its end excluded
	Preview bool           `json:"-"`
	Pace    `json:"-"`
}

// ColdStart makes the batches of a range, of one period or of several at once, by today's definitions and their validity:
// `enabled` is asked of now and not of then. What has not finished is left alone, and admins are told of it.
//
// Nothing of a cold start can begin before what it waits for in the same cold start: conditions name the parent's
// batch_no and begin unmet, so a child that is there first just waits. And of batch_nos that run again, parents
// come first, so that no child is released by the success of a run that is about to be replaced.
func (a *Actions) ColdStart(ctx context.Context, who string, r ColdStartRequest) (*Planned, error) {
	now, err := a.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	r.Of = strings.Join(r.periodNames(), ", ")
	q := question{kind: capri.CampaignColdStart, target: fmt.Sprintf("%s %s to %s", r.Of, r.From, r.To), pace: r.Pace, now: now,
		only: cmp.Or(r.Only, onlyMissing), preview: r.Preview}
	if q.tasks, q.beside, err = a.coldTasks(ctx, r); err != nil {
		return nil, err
	}
	if q.ivs, err = a.rangeItems(r.From, r.To, r.ByData, q.tasks, now); err != nil {
		return nil, err
	}
	q.request = r
	return a.campaign(ctx, who, &q)
}

// periodNames are in the order that was asked for, each once.
func (r *ColdStartRequest) periodNames() (names []string) {
	for _, p := range r.Periods {
		if !slices.Contains(names, p.String()) {
			names = append(names, p.String())
		}
	}
	return names
}

// coldTasks finds the tasks that are meant. One whose definition cannot be used is refused by itself where it was not
// asked for by name.
func (a *Actions) coldTasks(ctx context.Context, r ColdStartRequest) (tasks []*birth.Task, poisoned []PlannedItem, err error) {
	switch {
	case len(r.Periods) == 0, slices.Contains(r.Periods, 0):
		return nil, nil, capri.Invalid("period", "", "hour, day, week, month or cron, or several of them")
	case slices.Contains(r.Periods, capri.Manual):
		return nil, nil, capri.Invalid("period", capri.Manual.String(), "hour, day, week, month or cron: a manual task has no marks (execute runs it)")
	}
	if err := checkOnly(r.Only); err != nil {
		return nil, nil, err
	}
	f := store.TaskFilter{Group: r.Group}
	if len(r.Tasks) > 0 {
		f = store.TaskFilter{Names: r.Tasks}
	} else if len(r.Periods) == 1 {
		f.Period = r.Periods[0]
	}
	found, err := a.store.Tasks(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	periods := strings.Join(r.periodNames(), " or ")
	byName := map[string]*capri.Task{}
	for _, t := range found {
		byName[t.Name] = t
	}
	for _, n := range r.Tasks {
		switch t := byName[n]; {
		case t == nil:
			return nil, nil, capri.NotFound("there is no task %q", n)
		case !slices.Contains(r.Periods, t.Period):
			return nil, nil, capri.Invalid("tasks", n, fmt.Sprintf("tasks of period %s: this one is of period %s", periods, t.Period))
		case r.Group != "" && t.Group != r.Group:
			return nil, nil, capri.Invalid("tasks", n, fmt.Sprintf("tasks of group %s: this one is of group %s", r.Group, t.Group))
		case !t.Enabled:
			return nil, nil, capri.Conflict("task %s is disabled: enable it first", n)
		}
	}
	for _, t := range found {
		if !t.Enabled || !slices.Contains(r.Periods, t.Period) {
			continue
		}
		compiled, err := a.compile(t)
		switch {
		case err == nil:
			tasks = append(tasks, compiled)
		case len(r.Tasks) > 0:
			return nil, nil, fmt.Errorf("task %s: %w", t.Name, err)
		default:
			poisoned = append(poisoned, refused(t, err))
		}
	}
	if len(tasks)+len(poisoned) == 0 {
		if r.Group != "" {
			return nil, nil, capri.NotFound("there is no enabled %s task in group %q", periods, r.Group)
		}
		return nil, nil, capri.NotFound("there is no enabled %s task", periods)
	}
	return tasks, poisoned, nil
}
