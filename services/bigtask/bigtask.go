// Package bigtask keeps what each task is expected to take, and tells owners of tasks that take long (seed 002 §1.8).
//
//	ends of yesterday ──▶ longest success per task ──differs much──▶ task.expected_minutes, owner told
//	                 └──▶ longest run per task ──over the limit──▶ owner told
//
// It writes what yesterday came to and no more, so a second turn on the same day finds nothing to do, and a turn that
// died half-way is finished by the next.
package bigtask

import (
	"context"
	"fmt"
	"time"

	"capri"
	"capri/calendar"
	"capri/services"
	"capri/sql/store"
)

// Service is the big-task service.
type Service struct {
	Store    *store.Store
	Calendar calendar.Calendar
}

// Run looks at the business day that ended last.
func (s Service) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	yesterday := s.Calendar.EndedBy(capri.Day, t.Now)
	res := services.Result{Counts: map[string]int{}}
	updated, err := s.expect(ctx, t, yesterday)
	if updated > 0 {
		res.Counts["updated"] = updated
	}
	if err != nil {
		return res, err
	}
	big, err := s.big(ctx, t, yesterday)
	if big > 0 {
		res.Counts["big"] = big
	}
	return res, err
}

// expect takes over yesterday's durations where they differ much from what was expected.
func (s Service) expect(ctx context.Context, t services.Turn, day capri.Interval) (int, error) {
	percent, err := s.Store.SettingInt(ctx, store.BigTaskDiffers, 0)
	if err != nil {
		return 0, err
	}
	least, err := s.Store.SettingInt(ctx, store.BigTaskDiffersLeast, 0)
	if err != nil {
		return 0, err
	}
	tasks, err := s.Store.LongestSuccesses(ctx, day.Start, day.End)
	if err != nil {
		return 0, err
	}
	var changed []store.ExpectedMinutes
	for _, d := range tasks {
		now, was := minutes(d.Longest), d.ExpectedMinutes
		if !differs(now, was, percent, least) {
			continue
		}
		e := store.ExpectedMinutes{Task: d.Task, Minutes: now}
		if was > 0 { // a task's first duration is no surprise to anybody
			e.Alert = &capri.Alert{Key: fmt.Sprintf("expected_duration:%d:%s", d.Task, day.BatchNo), Level: capri.Attention, Kind: "expected_duration", Task: d.Task,
				Title: fmt.Sprintf("%s took %d minutes on %s, %d were expected", d.Name, now, day.BatchNo, was),
				Text:  fmt.Sprintf("Its longest successful run of that day took %d minutes; that is expected of it from now on, and no longer %d.", now, was)}
		}
		changed = append(changed, e)
	}
	return len(changed), s.Store.ExpectDurations(ctx, t.Lease, changed)
}

// minutes rounds up, so that 0 can mean "not known" and a run of seconds is expected to take a minute.
func minutes(d time.Duration) int { return max(1, int((d+time.Minute-1)/time.Minute)) }

// differs reports whether a duration is far from the expected one: by more than percent of it and by at least so many
// minutes, since of a run of one minute two are already twice as much. Where nothing is known, everything is far.
func differs(now, was, percent, least int) bool {
	if was <= 0 {
		return true
	}
	by := max(now-was, was-now)
	return by > 0 && by >= least && by*100 > percent*was
}

// big tells the owners of tasks that took longer than a run should.
func (s Service) big(ctx context.Context, t services.Turn, day capri.Interval) (int, error) {
	limit, err := s.Store.SettingInt(ctx, store.BigTaskMinutes, 0)
	if err != nil || limit == 0 {
		return 0, err
	}
	runs, err := s.Store.LongestOver(ctx, day.Start, day.End, time.Duration(limit)*time.Minute)
	if err != nil {
		return 0, err
	}
	alerts := make([]capri.Alert, len(runs))
	for i, r := range runs {
		alerts[i] = capri.Alert{Key: fmt.Sprintf("big_task:%d:%s", r.Task, day.BatchNo), Level: capri.Attention, Kind: "big_task", Task: r.Task, Batch: r.Batch,
			Title: fmt.Sprintf("%s ran for %d minutes on %s", r.Name, minutes(r.Duration), day.BatchNo),
			Text:  fmt.Sprintf("Batch %d (%s) ended as %s after %d minutes; runs are not to take more than %d.", r.Batch, r.BatchNo, r.How, minutes(r.Duration), limit)}
	}
	return len(alerts), s.Store.RaiseAs(ctx, t.Lease, alerts)
}
