package action

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"capri"
	"capri/birth"
	"capri/cascade"
)

// RerunRequest asks for a task's batches of a range to run again. From and To are as people wrote them.
type RerunRequest struct {
	Task      string          `json:"task"`
	From      string          `json:"from"`
	To        string          `json:"to"`
	ByData    bool            `json:"by_data,omitempty"`    // the range is on data intervals, its end excluded
	Only      string          `json:"only,omitempty"`       // all (default), missing, failed
	OnRunning string          `json:"on_running,omitempty"` // what runs: fail (default), skip, kill
	Cascade   string          `json:"cascade,omitempty"`    // none (default): the task itself and no other; data, logic, both
	BatchNos  []capri.BatchNo `json:"batch_nos,omitempty"`  // of the range only these; empty: all
	Preview   bool            `json:"-"`
	Pace      `json:"-"`
	// MayReach decides whether the caller's cascade may reach tasks; nil: any.
	MayReach func(ctx context.Context, tasks []string) error `json:"-"`
}

// What happens to batches of a rerun that run already.
const (
	onRunningFail = "fail"
	onRunningSkip = "skip"
	onRunningKill = "kill"
)

// Rerun makes new runs of a task's batches, and with a cascade of whatever rests on them: the next run_no, each scheduled at
// its own mark, by the definition as it stands now. What rested on a former run's success waits for the new one. What there
// is no batch of yet gets its first run; what has not started yet waits again and runs once.
func (a *Actions) Rerun(ctx context.Context, who string, r RerunRequest) (*Planned, error) {
	t, by, err := a.rerunTask(ctx, r)
	if err != nil {
		return nil, err
	}
	now, err := a.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	q := question{kind: capri.CampaignRerun, target: r.Task, request: r, pace: r.Pace, now: now, tasks: []*birth.Task{t}, by: by,
		only: cmp.Or(r.Only, onlyAll), onRunning: cmp.Or(r.OnRunning, onRunningFail), preview: r.Preview, mayReach: r.MayReach}
	if q.ivs, err = a.rangeItems(r.From, r.To, r.ByData, q.tasks, now); err != nil {
		return nil, err
	}
	if q.beside, err = a.notInDefinition(ctx, t, r, q.ivs); err != nil {
		return nil, err
	}
	if len(r.BatchNos) > 0 {
		q.ivs = slices.DeleteFunc(q.ivs, func(ti taskInterval) bool { return !slices.Contains(r.BatchNos, ti.iv.BatchNo) })
		q.beside = slices.DeleteFunc(q.beside, func(it PlannedItem) bool { return !slices.Contains(r.BatchNos, it.BatchNo) })
	}
	return a.campaign(ctx, who, &q)
}

// notInDefinition lists batches of the range that the definition has no interval for any more, such as fires of a former
// expression. They are shown and not run: nobody can say what they would be.
func (a *Actions) notInDefinition(ctx context.Context, t *birth.Task, r RerunRequest, ivs []taskInterval) ([]PlannedItem, error) {
	from, to, err := a.timeRange(r.From, r.To, !r.ByData)
	if err != nil {
		return nil, err
	}
	until := to - 1
	if r.ByData {
		until = to.Add(24 * 60 * 60 * 1e9) // marks come some minutes after the data's end
	}
	batches, err := a.store.LatestRunsIn(ctx, []capri.TaskID{t.ID}, from, until)
	if err != nil {
		return nil, err
	}
	has := make(map[capri.BatchNo]bool, len(ivs))
	for _, ti := range ivs {
		has[ti.iv.BatchNo] = true
	}
	var out []PlannedItem
	for _, b := range batches {
		// An execution is scheduled when it was asked for, and its interval may lie elsewhere.
		if has[b.BatchNo] || b.Origin == capri.OriginExecute || r.ByData && (b.DataStart < from || b.DataEnd > to) {
			continue
		}
		out = append(out, PlannedItem{TaskName: t.Name, CampaignItem: capri.CampaignItem{Action: capri.ItemNotInDefinition, Task: t.ID, TaskVersion: t.Version, Via: -1, Why: "asked for",
			Interval: capri.Interval{BatchNo: b.BatchNo, Start: b.DataStart, End: b.DataEnd, Mark: b.ScheduleTime}, Note: fmt.Sprintf("batch %d is of version %d of the task", b.ID, b.TaskVersion),
			Old: b.ID, OldRunNo: b.RunNo, OldState: b.State, OldFinish: b.FinishState, Minutes: -1}})
	}
	return out, nil
}

func (a *Actions) rerunTask(ctx context.Context, r RerunRequest) (*birth.Task, cascade.By, error) {
	if err := checkOnly(r.Only); err != nil {
		return nil, 0, err
	}
	by, err := cascade.ParseBy(r.Cascade)
	if err != nil {
		return nil, 0, err
	}
	if !slices.Contains([]string{"", onRunningFail, onRunningSkip, onRunningKill}, r.OnRunning) {
		return nil, 0, capri.Invalid("on_running", r.OnRunning, "fail, skip or kill")
	}
	t, err := a.store.TaskByName(ctx, r.Task)
	if err != nil {
		return nil, 0, err
	}
	if t.Broken == "" && t.Period == capri.Manual {
		return nil, 0, capri.Invalid("task", r.Task, "a task with a period or a cron expression: a manual one has no marks (execute runs it)")
	}
	if !t.Enabled {
		return nil, 0, capri.Conflict("task %s is disabled, so a batch of it would never start: enable it first", r.Task)
	}
	compiled, err := a.compile(t)
	return compiled, by, err
}
