// Package action is what people and apps do: apply definitions, execute, cold-start, kill, hold, drain … Each
// action is one transaction with its row of action_log, so that nothing changes without a name beside it, and
// wakes the services that have something to do now. Whether the caller may do it is decided before (api).
//
// Services do what time brings about; nothing in here waits, repeats or runs by itself.
package action

import (
	"context"
	"log/slog"

	"capri"
	"capri/birth"
	"capri/calendar"
	"capri/cron"
	"capri/sql/store"
	"capri/wake"
)

// Actions is safe for concurrent use.
type Actions struct {
	store    *store.Store
	calendar calendar.Calendar
	wake     wake.Waker
	log      *slog.Logger

	// WithoutHDFS: no name-node is configured, which definitions with hdfs:// paths are warned of. Set before use.
	WithoutHDFS bool
}

// New makes the actions on a store. The calendar is the business zone's.
func New(s *store.Store, c calendar.Calendar, w wake.Waker, log *slog.Logger) *Actions {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Actions{store: s, calendar: c, wake: w, log: log}
}

// Calendar is the business calendar, for whoever has to read times that people wrote.
func (a *Actions) Calendar() calendar.Calendar { return a.calendar }

// maker makes batches of one task against its parents as they are now. It reads those alone: among a hundred thousand tasks
// somebody waits for an execution.
func (a *Actions) maker(ctx context.Context, t *capri.Task) (*birth.Maker, error) {
	ids := make([]capri.TaskID, len(t.Parents))
	for i, p := range t.Parents {
		ids[i] = p.TaskID
	}
	rows, err := a.store.ParentRefsOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	return birth.New(a.calendar, birth.Refs(rows)), nil
}

// expression is a cron task's, nil for others.
func expression(t *capri.Task) (*cron.Expression, error) {
	if t.Period != capri.Cron {
		return nil, nil
	}
	return cron.Parse(t.Cron)
}
