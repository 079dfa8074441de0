package why

import (
	"fmt"
	"slices"
	"strings"

	"capri"
	"capri/placement"
	"capri/placement/facts"
	"capri/sql/store"
)

// placing are the causes of a batch whose conditions are met. alone: nothing else is in its way, so what dispatch would
// answer is the reason. ahead is how many ready batches dispatch looks at before this one.
func (f *finder) placing(b store.BatchRow, alone bool) (causes []Cause, ahead int, err error) {
	world, grants, err := facts.Read(f.ctx, f.s, f.now)
	if err != nil {
		return nil, 0, err
	}
	if causes, err = f.closed(b, world); err != nil {
		return nil, 0, err
	}
	latest, err := facts.Latest(f.ctx, f.s, f.c)
	if err != nil {
		return nil, 0, err
	}
	if latest != 0 && b.ScheduleTime > latest {
		causes = append(causes, Cause{Kind: LatestAllowed, Detail: "its schedule time is after the latest allowed, " + f.at(latest), Root: Root{Kind: "setting", Name: store.LatestScheduleTime}})
	}
	if c, none := f.noNode(b, world); none {
		return append(causes, c), 0, nil
	}
	if !alone || len(causes) > 0 {
		return causes, 0, nil
	}
	running, err := f.s.RunningAround(f.ctx, b.TaskID)
	if err != nil {
		return nil, 0, err
	}
	facts.Running(world, running)
	if ahead, err = f.s.ReadyBefore(f.ctx, f.now, latest, b.Batch, mostAhead); err != nil {
		return nil, 0, err
	}
	causes, err = f.noPlace(b, world, grants, ahead)
	return causes, ahead, err
}

// dispatch is the root of what is said about dispatch as a whole.
var dispatch = Root{Kind: "service", Name: "dispatch"}

// closed are what people have said about dispatch, and that nobody leads it.
func (f *finder) closed(b store.BatchRow, world *placement.Facts) ([]Cause, error) {
	var causes []Cause
	switch {
	case world.Paused != "":
		detail := "dispatch is paused: " + world.Paused
		if world.PausedUntil != 0 {
			detail += ", until " + f.at(world.PausedUntil)
		}
		causes = append(causes, Cause{Kind: Paused, Detail: detail, Root: dispatch, Until: world.PausedUntil})
	case world.MaxRunning == 0:
		causes = append(causes, Cause{Kind: Paused, Detail: "dispatch may run no batch at all (max_running is 0; capri dispatch limit -1)", Root: dispatch})
	}
	causes = append(causes, f.stops(b, world)...)
	locks, err := f.s.Locks(f.ctx)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(locks, func(l store.ServiceLock) bool { return l.Service == "dispatch" && l.Holder != "" }) {
		causes = append(causes, Cause{Kind: NoLeader, Detail: "no master places batches now: none leads dispatch", Root: dispatch})
	}
	return causes, nil
}

// noPlace is what dispatch would answer for a batch that nothing else keeps; none: it would place it.
func (f *finder) noPlace(b store.BatchRow, world *placement.Facts, grants *facts.Grants, ahead int) ([]Cause, error) {
	candidate := grants.Batch(&store.Ready{ID: b.ID, Task: b.TaskID, Owner: f.owner(b.Task), Group: f.group(b.Task), Priority: b.Priority, ScheduleTime: b.ScheduleTime, Slots: b.Slots, MemoryMB: b.MemoryMB,
		Concurrency: b.Concurrency, Pool: b.Pool, Strategy: b.Strategy, Nodes: b.Nodes, Account: b.Account, AvoidNode: b.AvoidNode})
	answer := placement.NewPlanner(world, nil).Place(&candidate)
	if answer.Node != "" {
		return nil, nil
	}
	cause := Cause{Kind: Limit, Detail: answer.Reason, Root: Root{Kind: "pool", Name: b.Pool}}
	switch {
	case answer.Fail:
		cause.Kind, cause.Root, cause.Owner = NoRight, Root{Kind: "task", Name: b.Task}, f.owner(b.Task)
	case world.RunningByTask[b.TaskID] >= max(1, b.Concurrency):
		cause.Root, cause.Owner = Root{Kind: "task", Name: b.Task}, f.owner(b.Task)
	case world.MaxRunning >= 0 && world.Running >= world.MaxRunning:
		cause.Root = dispatch
	default:
		var err error
		if cause.Until, err = f.freeAt(b.Pool, ahead); err != nil {
			return nil, err
		}
	}
	if ahead > 0 {
		cause.Detail += fmt.Sprintf("; %s ready batches come before it", atLeast(ahead))
	}
	return []Cause{cause}, nil
}

// freeAt estimates when a place comes free in a pool for a batch that so many others stand before; 0: nobody can know.
func (f *finder) freeAt(pool string, ahead int) (capri.Instant, error) {
	const most = 5000
	running, err := f.s.RunningEnds(f.ctx, most)
	if err != nil {
		return 0, err
	}
	var ends []capri.Instant
	for _, r := range running {
		if r.Pool == pool && r.At != 0 {
			ends = append(ends, max(r.At, f.now))
		}
	}
	if ahead >= len(ends) {
		return 0, nil
	}
	slices.Sort(ends)
	return ends[ahead], nil
}

// stops are the pauses and open breakers of the batch's task and group.
func (f *finder) stops(b store.BatchRow, world *placement.Facts) []Cause {
	var causes []Cause
	add := func(scope, name string, x placement.Stop, stopped bool) {
		if !stopped {
			return
		}
		c := Cause{Kind: Paused, Detail: f.until(x), Root: Root{Kind: scope, Name: name}, Owner: f.owner(b.Task), Since: x.Since, Until: x.Until}
		undo := "capri resume --" + scope + " " + name
		if x.Breaker {
			c.Kind, undo = BreakerOpen, "capri breaker close --"+scope+" "+name
		}
		c.Detail += " (" + undo + ")"
		causes = append(causes, c)
	}
	group := f.group(b.Task)
	ofGroup, stopped := world.StoppedGroups[group]
	add("group", group, ofGroup, stopped)
	ofTask, stopped := world.StoppedTasks[b.TaskID]
	add("task", b.Task, ofTask, stopped)
	return causes
}

// until is what a pause or breaker says, with its end.
func (f *finder) until(x placement.Stop) string {
	if x.Until == 0 {
		return x.Says
	}
	return x.Says + ", until " + f.at(x.Until)
}

// noNode finds out whether any node may take the batch at all. Where pauses keep them from it, it may when the first ends.
func (f *finder) noNode(b store.BatchRow, world *placement.Facts) (Cause, bool) {
	var there []string
	var until capri.Instant
	for _, n := range world.Nodes {
		if len(b.Nodes) > 0 && !slices.Contains(b.Nodes, n.Name) || len(b.Nodes) == 0 && n.Pool != b.Pool {
			continue
		}
		switch {
		case n.Lost:
			there = append(there, n.Name+" is lost")
		case n.Left:
			there = append(there, n.Name+" has stopped")
		case n.Draining:
			there = append(there, n.Name+" is draining")
		case n.ShortOf != "":
			there = append(there, n.Name+" takes nothing: "+n.ShortOf)
		default:
			x, paused := world.StoppedNodes[n.Name]
			if !paused {
				return Cause{}, false
			}
			there = append(there, strings.TrimPrefix(f.until(x), "node "))
			if x.Until != 0 && (until == 0 || x.Until < until) {
				until = x.Until
			}
		}
	}
	root := Root{Kind: "pool", Name: b.Pool}
	of := "pool " + b.Pool
	if len(b.Nodes) > 0 {
		of = "its list " + strings.Join(b.Nodes, ", ")
	}
	if len(there) == 0 {
		return Cause{Kind: NoNode, Detail: "there is no node of " + of, Root: root}, true
	}
	return Cause{Kind: NoNode, Detail: "no node of " + of + " takes work: " + strings.Join(there, ", "), Root: root, Until: until}, true
}
