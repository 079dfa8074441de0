// Package facts reads what placing a batch depends on. Dispatch reads it to place, and package why to say what dispatch
// would answer, so that the two cannot disagree.
//
//	Read     limits, pauses, breakers and nodes ──▶ placement.Facts    rights to accounts ──▶ Grants
//	Running  what nodes and tasks have in hand, into the same facts: dispatch counts all, why what is near its batch
//	Latest   the latest schedule_time allowed
//
// Grants.Batch makes of a ready batch the one that placement asks for.
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
	return placement.Batch{ID: b.ID, Task: b.Task, Group: b.Group, Pool: b.Pool, Nodes: b.Nodes, Strategy: b.Strategy, Slots: b.Slots, MemoryMB: b.MemoryMB,
		Concurrency: b.Concurrency, Account: b.Account, Denied: b.Account != "" && !g.allow(b.Account, b.Owner), Avoid: b.AvoidNode}
}

// Read reads limits, nodes and rights as they are now. What runs is not among them: see Running.
func Read(ctx context.Context, s *store.Store, now capri.Instant) (*placement.Facts, *Grants, error) {
	d, err := s.DispatchState(ctx)
	if err != nil {
		return nil, nil, err
	}
	f := &placement.Facts{}
	Stops(f, d, now)
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

// Running writes into the facts what nodes and tasks have in hand.
func Running(f *placement.Facts, r store.Running) {
	f.Loads, f.RunningByTask, f.Running = r.ByNode, r.ByTask, r.Total
}

// Stops writes into the facts what people have said about dispatch.
func Stops(f *placement.Facts, d store.DispatchState, now capri.Instant) {
	f.MaxRunning = d.MaxRunning
	if d.PausedAt(now) {
		f.Paused, f.PausedUntil = cmp.Or(d.Reason, "no reason was given"), d.Until
	}
	for _, x := range d.Stops {
		if !x.At(now) {
			continue
		}
		stop := placement.Stop{Says: x.Says(), Breaker: x.Kind == store.Breaker, Since: x.Since, Until: x.Until}
		switch x.Scope {
		case store.OfGroup:
			put(&f.StoppedGroups, x.Name, stop)
		case store.OfTask:
			put(&f.StoppedTasks, x.Task, stop)
		case store.OfNode:
			put(&f.StoppedNodes, x.Name, stop)
		}
	}
}

// put keeps the first: of a pause and a breaker of one group either is reason enough.
func put[K comparable](m *map[K]placement.Stop, k K, stop placement.Stop) {
	if *m == nil {
		*m = map[K]placement.Stop{}
	}
	if _, stopped := (*m)[k]; !stopped {
		(*m)[k] = stop
	}
}
