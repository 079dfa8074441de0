// Package facts reads what placing a batch depends on. Dispatch reads it to place, and package why to say what dispatch
// would answer, so that the two cannot disagree.
package facts

import (
	"cmp"
	"context"
	"fmt"

	"capri"
	"capri/calendar"
	"capri/placement"
	"capri/sql/store"
)

// Latest is the latest schedule_time allowed; 0: none is set.
func Latest(ctx context.Context, s *store.Store, c calendar.Calendar) (capri.Instant, error) {
	text, err := s.Setting(ctx, store.LatestScheduleTime)
	if err != nil || text == "" {
		return 0, err
	}
	at, err := c.ParseTime(text)
	if err != nil {
		return 0, fmt.Errorf("setting latest_schedule_time: %w", err)
	}
	return at, nil
}

// Grants tell who may run jobs as which account.
type Grants struct {
	users, departments map[[2]string]bool
	departmentOf       map[string]string
}

func (g *Grants) allow(account, owner string) bool {
	return g.users[[2]string{account, owner}] || g.departments[[2]string{account, g.departmentOf[owner]}]
}

// Batch is a ready batch as placement wants it.
func (g *Grants) Batch(b *store.Ready) placement.Batch {
	return placement.Batch{ID: b.ID, Task: b.Task, Pool: b.Pool, Nodes: b.Nodes, Strategy: b.Strategy, Slots: b.Slots, MemoryMB: b.MemoryMB,
		Concurrency: b.Concurrency, Account: b.Account, Denied: b.Account != "" && !g.allow(b.Account, b.Owner), Avoid: b.AvoidNode}
}

// Read reads limits, nodes, what runs and rights as they are now.
func Read(ctx context.Context, s *store.Store, now capri.Instant) (*placement.Facts, *Grants, error) {
	paused, reason, until, maxRunning, err := s.DispatchLimits(ctx)
	if err != nil {
		return nil, nil, err
	}
	f := &placement.Facts{MaxRunning: maxRunning}
	if paused && (until == 0 || now.Before(until)) {
		f.Paused, f.PausedUntil = cmp.Or(reason, "no reason was given"), until
	}
	running, err := s.Running(ctx)
	if err != nil {
		return nil, nil, err
	}
	f.Loads, f.RunningByTask, f.Running = running.ByNode, running.ByTask, running.Total
	if f.Nodes, err = s.Nodes(ctx); err != nil {
		return nil, nil, err
	}
	g := &Grants{users: map[[2]string]bool{}, departments: map[[2]string]bool{}, departmentOf: map[string]string{}}
	all, err := s.AccountGrants(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range all {
		if a.Kind == store.GrantDepartment {
			g.departments[[2]string{a.Account, a.Name}] = true
		} else {
			g.users[[2]string{a.Account, a.Name}] = true
		}
	}
	if len(g.departments) > 0 {
		users, err := s.Users(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, u := range users {
			g.departmentOf[u.Name] = u.Department
		}
	}
	return f, g, nil
}
