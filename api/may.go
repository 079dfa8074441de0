package api

import (
	"context"
	"fmt"

	"capri"
	"capri/auth"
	"capri/sql/store"
)

// What an operation is on decides whether the caller may do it; that it may do the act at all, register has asked. Handlers
// ask one of these before they do anything, and lists narrow their query by seen. What is not there, and what the
// caller may not see, is refused in the same words.

// seen is what a list is narrowed to; nil: not at all.
func seen(ctx context.Context, act auth.Act) *store.Seen { return auth.From(ctx).Seen(act) }

// mayTasks decides on tasks by name.
func (s *server) mayTasks(ctx context.Context, act auth.Act, names ...string) error {
	p := auth.From(ctx)
	if p.Everywhere(act) {
		return nil
	}
	whose, err := s.Store.WhoseTasks(ctx, names)
	if err != nil {
		return err
	}
	objects := make([]auth.Object, len(names))
	for i, n := range names {
		w, ok := whose[n]
		if !ok {
			return capri.NotFound("there is no task %q", n)
		}
		objects[i] = auth.TaskObject(w)
	}
	return p.MayAll(act, objects)
}

// mayCascade decides on the tasks that a rerun reaches beside its own.
func (s *server) mayCascade(ctx context.Context, names []string) error {
	p := auth.From(ctx)
	if p.Everywhere(auth.BatchRerun) || len(names) == 0 {
		return nil
	}
	whose, err := s.Store.WhoseTasks(ctx, names)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := p.MayCascade(auth.TaskObject(whose[n])); err != nil {
			return err
		}
	}
	return nil
}

// mayBatches decides on batches, whose right is their task's.
func (s *server) mayBatches(ctx context.Context, act auth.Act, ids ...capri.BatchID) error {
	p := auth.From(ctx)
	if p.Everywhere(act) {
		return nil
	}
	whose, err := s.Store.WhoseBatches(ctx, ids)
	if err != nil {
		return err
	}
	objects := make([]auth.Object, len(ids))
	for i, id := range ids {
		w, ok := whose[id]
		if !ok {
			return capri.NotFound("there is no batch %d", id)
		}
		objects[i] = auth.TaskObject(w)
		objects[i].What = fmt.Sprintf("batch %d", id)
	}
	return p.MayAll(act, objects)
}

// mayTaskOf decides on something that is about a task, or about none (0): that everybody sees.
func (s *server) mayTaskOf(ctx context.Context, act auth.Act, task capri.TaskID, what string) error {
	p := auth.From(ctx)
	if task == 0 || p.Everywhere(act) {
		return p.Reaches(act)
	}
	whose, err := s.Store.WhoseTaskIDs(ctx, []capri.TaskID{task})
	if err != nil {
		return err
	}
	o := auth.TaskObject(whose[task])
	o.What = what
	return p.May(act, o)
}

// maySilence decides on a silence. One that names a task or a group is its owner's matter; patterns and kinds of alerts
// reach further than a member can see.
func (s *server) maySilence(ctx context.Context, x store.Silence) error {
	p := auth.From(ctx)
	if p.Everywhere(auth.SilenceEdit) {
		return nil
	}
	if x.Task != "" {
		return s.mayTasks(ctx, auth.SilenceEdit, x.Task) // a pattern is no name
	}
	whose, err := s.Store.WhoseGroup(ctx, x.Group)
	if err != nil {
		return err
	}
	if x.Group == "" || len(whose) == 0 {
		return capri.Forbidden("a member may silence tasks and groups of his own, and no patterns or kinds of alerts: ask an admin")
	}
	objects := make([]auth.Object, len(whose))
	for i, w := range whose {
		objects[i] = auth.TaskObject(w)
	}
	return p.MayAll(auth.SilenceEdit, objects)
}
