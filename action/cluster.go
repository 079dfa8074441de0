package action

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"capri"
	"capri/sql/store"
	"capri/wake"
)

// DrainNode makes a node take nothing new; ResumeNode lets it take work again. Either again changes nothing.
func (a *Actions) DrainNode(ctx context.Context, who, name, reason string) error {
	return a.logged(ctx, who, "node_drain", name, reason, func(tx *store.Tx) error { return tx.DrainNode(name, true) })
}

// ResumeNode ends a drain.
func (a *Actions) ResumeNode(ctx context.Context, who, name, reason string) error {
	return a.logged(ctx, who, "node_resume", name, reason, func(tx *store.Tx) error { return tx.DrainNode(name, false) })
}

// RemoveNode forgets a node that is gone for good. One that still beats would only register again.
func (a *Actions) RemoveNode(ctx context.Context, who, name string) error {
	nodes, err := a.store.Nodes(ctx)
	if err != nil {
		return err
	}
	now, err := a.store.Now(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		silent := 3 * time.Duration(n.CheckInterval) * time.Second
		if n.Name == name && !n.Lost && now.Sub(n.LastCheckTime) < silent {
			return capri.Conflict("node %s still beats: stop its worker first (node drain ends its work in peace)", name)
		}
	}
	return a.logged(ctx, who, "node_remove", name, "", func(tx *store.Tx) error { return tx.RemoveNode(name) })
}

// Stop pauses dispatch, of everything, a group or a node, or opens the circuit breaker of a task or a group: until its
// time or (0) until somebody ends it. Batches are made all the same, and what runs goes on. Said again it has another reason
// and end.
func (a *Actions) Stop(ctx context.Context, who string, x store.Stop) error {
	switch {
	case x.Reason == "":
		return capri.Invalid("reason", "", "a reason, for those who wonder why nothing runs")
	case len(x.Reason) > 200:
		return capri.Invalid("reason", x.Reason, "at most 200 bytes")
	}
	if x.Until != 0 {
		now, err := a.store.Now(ctx)
		if err != nil {
			return err
		}
		if x.Until <= now {
			return capri.Invalid("until", x.Until.In(a.calendar.Zone()).Format(time.RFC3339), "a time to come")
		}
	}
	exists, err := a.stopped(ctx, &x)
	if err != nil {
		return err
	}
	if !exists {
		return noSuch(x)
	}
	detail := x.Reason
	if x.Until != 0 {
		detail += " (until " + x.Until.In(a.calendar.Zone()).Format(time.RFC3339) + ")"
	}
	act, target := stopAct(x, "dispatch_pause", "breaker_open")
	return a.logged(ctx, who, act, target, detail, func(tx *store.Tx) error {
		if x.Scope == store.OfAll {
			return tx.PauseDispatch(true, x.Reason, x.Until)
		}
		return tx.SetStop(x)
	})
}

// EndStop resumes what was paused, or closes a breaker, which then counts failures anew. Where none stood nothing changes.
func (a *Actions) EndStop(ctx context.Context, who string, x store.Stop) error {
	exists, err := a.stopped(ctx, &x)
	if err != nil {
		return err
	}
	act, target := stopAct(x, "dispatch_resume", "breaker_close")
	return a.logged(ctx, who, act, target, x.Reason, func(tx *store.Tx) error {
		if x.Scope == store.OfAll {
			return tx.PauseDispatch(false, "", 0)
		}
		ended, err := tx.EndStop(x)
		if err == nil && !ended && !exists {
			return noSuch(x)
		}
		return err
	})
}

func noSuch(x store.Stop) error {
	if x.Scope == store.OfGroup {
		return capri.NotFound("there is no task in group %q", x.Name)
	}
	return capri.NotFound("there is no %s %q", x.Scope, x.Name)
}

// stopped looks for what a pause or breaker is of.
func (a *Actions) stopped(ctx context.Context, x *store.Stop) (exists bool, err error) {
	switch x.Scope {
	case store.OfTask:
		tasks, err := a.store.Tasks(ctx, store.TaskFilter{Names: []string{x.Name}})
		if len(tasks) == 0 {
			return false, err
		}
		x.Task = tasks[0].ID
	case store.OfGroup:
		tasks, err := a.store.Tasks(ctx, store.TaskFilter{Group: x.Name, Limit: 1})
		return len(tasks) > 0 && x.Name != "", err
	case store.OfNode:
		nodes, err := a.store.Nodes(ctx)
		return slices.ContainsFunc(nodes, func(n capri.Node) bool { return n.Name == x.Name }), err
	case store.OfAll:
	}
	return true, nil
}

// stopAct names the act for the log of actions.
func stopAct(x store.Stop, pause, breaker string) (act, target string) {
	if act = pause; x.Kind == store.Breaker {
		act = breaker
	}
	if x.Scope == store.OfAll {
		return act, "dispatch"
	}
	return act, x.Scope.String() + " " + x.Name
}

// LimitRunning sets how many batches may be assigned or run at once: -1 without limit, 0 none at all. What runs beyond a
// lower limit goes on.
func (a *Actions) LimitRunning(ctx context.Context, who string, n int, reason string) error {
	if n < -1 || n > 1_000_000 {
		return capri.Invalid("max_running", strconv.Itoa(n), "-1 (no limit), 0 (none at all) or a number up to 1000000")
	}
	detail := fmt.Sprintf("max_running %d", n)
	if reason != "" {
		detail += ": " + reason
	}
	return a.logged(ctx, who, "dispatch_limit", "dispatch", detail, func(tx *store.Tx) error { return tx.SetMaxRunning(n) })
}

// TriggerService asks a service to run now.
func (a *Actions) TriggerService(ctx context.Context, who, service string) error {
	err := a.logged(ctx, who, "service_trigger", service, "", func(tx *store.Tx) error { return tx.Trigger(service) })
	if err == nil {
		a.wake.Wake(wake.Trigger)
	}
	return err
}

// logged does one thing in a transaction with its line in the log of actions, and wakes what places and generates.
func (a *Actions) logged(ctx context.Context, who, action, target, detail string, do func(*store.Tx) error) error {
	return a.change(ctx, who, store.Change{Action: action, Target: target, Detail: detail}, do)
}

// change is logged for what belongs to a task or a department, whose people may read of it.
func (a *Actions) change(ctx context.Context, who string, c store.Change, do func(*store.Tx) error) error {
	err := a.store.Write(ctx, c.Action+" "+c.Target, who, func(tx *store.Tx) error {
		if err := do(tx); err != nil {
			return err
		}
		return tx.LogChanges(c)
	})
	if err == nil {
		a.wake.Wake(wake.Generate, wake.Dispatch)
	}
	return err
}
