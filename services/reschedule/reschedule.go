// Package reschedule takes batches from nodes that do not claim them (seed 002 §1.5):
//
//	assigned for task_need_reschudle_time minutes ──▶ waiting, that node avoided, noted in capri_reschedule_log ──▶ dispatch
//
// It does not choose the next node: there is one placer, and this runs under its lease. A worker that claims meanwhile
// wins. A node from which much is taken is told to admins (seed 002 §1.6.3.3), in the same transaction.
package reschedule

import (
	"context"
	"log/slog"
	"time"

	"capri"
	"capri/calendar"
	"capri/services"
	"capri/sql/store"
	"capri/wake"
)

// Service reschedules.
type Service struct {
	Store    *store.Store
	Calendar calendar.Calendar
	Log      *slog.Logger
}

// atOnce bounds a turn.
const atOnce = 2000

// Run is one turn.
func (s Service) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	minutes, err := s.Store.SettingInt(ctx, store.RescheduleMinutes, 1)
	if err != nil {
		return services.Result{}, err
	}
	latest, err := s.latest(ctx)
	if err != nil {
		return services.Result{}, err
	}
	overdue, err := s.Store.Overdue(ctx, t.Now.Add(-time.Duration(minutes)*time.Minute), latest, atOnce)
	if err != nil || len(overdue) == 0 {
		return services.Result{}, err
	}
	limits, err := s.limits(ctx)
	if err != nil {
		return services.Result{}, err
	}
	taken, err := s.Store.Reschedule(ctx, t.Lease, overdue, limits)
	if taken == 0 {
		return services.Result{}, err
	}
	return services.Result{Counts: map[string]int{"taken": taken}, Wake: []string{wake.Dispatch}, Again: len(overdue) == atOnce}, err
}

// latest is the latest schedule_time allowed; 0: none is set. A later one would not be placed again, and it may still be
// claimed where it is.
func (s Service) latest(ctx context.Context) (capri.Instant, error) {
	text, err := s.Store.Setting(ctx, store.LatestScheduleTime)
	if err != nil || text == "" {
		return 0, err
	}
	at, err := s.Calendar.ParseTime(text)
	if err != nil {
		s.Log.Warn("a setting in dic_data is no time and does not count", "setting", store.LatestScheduleTime, "value", text, "err", err)
		return 0, nil
	}
	return at, nil
}

func (s Service) limits(ctx context.Context) (l store.TakenLimits, err error) {
	for _, setting := range []struct {
		name string
		to   *int
	}{
		{store.RescheduledIn10Important, &l.Important10}, {store.RescheduledIn10Severe, &l.Severe10},
		{store.RescheduledIn30Important, &l.Important30}, {store.RescheduledIn30Severe, &l.Severe30},
	} {
		if *setting.to, err = s.Store.SettingInt(ctx, setting.name, 0); err != nil {
			return l, err
		}
	}
	return l, nil
}
