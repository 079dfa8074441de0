package action

import (
	"context"
	"time"

	"capri"
	"capri/sql/store"
	"capri/wake"
)

// DrainNode makes a node take nothing new; ResumeNode lets it take work again.
func (a *Actions) DrainNode(ctx context.Context, who, name string) error {
	return a.logged(ctx, who, "node_drain", name, "", func(tx *store.Tx) error { return tx.DrainNode(name, true) })
}

// ResumeNode ends a drain.
func (a *Actions) ResumeNode(ctx context.Context, who, name string) error {
	return a.logged(ctx, who, "node_resume", name, "", func(tx *store.Tx) error { return tx.DrainNode(name, false) })
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

// PauseDispatch stops the placing of batches, until a time or (0) until somebody resumes it.
func (a *Actions) PauseDispatch(ctx context.Context, who, reason string, until capri.Instant) error {
	if reason == "" {
		return capri.Invalid("reason", "", "a reason, for those who wonder why nothing runs")
	}
	if until != 0 {
		now, err := a.store.Now(ctx)
		if err != nil {
			return err
		}
		if until <= now {
			return capri.Invalid("until", until.In(a.calendar.Zone()).Format(time.RFC3339), "a time to come")
		}
	}
	detail := reason
	if until != 0 {
		detail += " (until " + until.In(a.calendar.Zone()).Format(time.RFC3339) + ")"
	}
	return a.logged(ctx, who, "dispatch_pause", "dispatch", detail, func(tx *store.Tx) error { return tx.PauseDispatch(true, reason+" ("+who+")", until) })
}

// ResumeDispatch ends a pause.
func (a *Actions) ResumeDispatch(ctx context.Context, who string) error {
	return a.logged(ctx, who, "dispatch_resume", "dispatch", "", func(tx *store.Tx) error { return tx.PauseDispatch(false, "", 0) })
}

// TriggerService asks a service to run now.
func (a *Actions) TriggerService(ctx context.Context, who, service string) error {
	err := a.logged(ctx, who, "service_trigger", service, "", func(tx *store.Tx) error { return tx.Trigger(service) })
	if err == nil {
		a.wake.Wake(wake.Trigger)
	}
	return err
}

// logged does one thing in a transaction with its line in the audit log, and wakes what places and generates.
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
