package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"capri"
	"capri/auth"
	"capri/birth"
	"capri/cron"
	"capri/definition"
	"capri/sql/store"
	"capri/wake"
)

// ApplyRequest asks to make the tasks of some files what the store holds.
type ApplyRequest struct {
	Sources []definition.Source
	By      *auth.Principal // whose rights count; nil: Capri's own, as with the sample
	DryRun  bool
	Prune   bool     // delete what the files no longer have, in groups that occur in them
	Confirm []string // the names that Prune may delete
}

// Applied is what was done, or would be.
type Applied struct {
	Created   []string
	Changed   []TaskChange
	Unchanged []string
	Deleted   []string
	Warnings  []string
}

// TaskChange is a task with what changes in it.
type TaskChange struct {
	Task    string
	Changes []definition.Change
}

// PruneError refuses to delete tasks that nobody confirmed.
type PruneError struct{ Names []string }

func (e *PruneError) Error() string {
	if len(e.Names) == 0 {
		return "the tasks to delete are not those that were confirmed: there is nothing to delete now"
	}
	return fmt.Sprintf("%d tasks would be deleted and have to be confirmed: %s", len(e.Names), some(e.Names))
}

func (e *PruneError) Is(target error) bool { return target == capri.ErrConflict }

// Apply makes the tasks of the request what the store holds: all or nothing.
//
// Reading and checking a hundred thousand definitions takes a second; nobody else should wait for it. So it
// happens outside the transaction, which then proves under the lock that no definition has changed meanwhile,
// and else everything is read again.
func (a *Actions) Apply(ctx context.Context, who string, r ApplyRequest) (Applied, error) {
	var err error
	for range 5 {
		var out Applied
		out, err = a.apply(ctx, who, r)
		if !errors.Is(err, errChanged) {
			return out, err
		}
	}
	return Applied{}, err
}

// errChanged: somebody else changed definitions between our reading and our lock.
var errChanged = capri.Conflict("others keep changing definitions: try again")

func (a *Actions) apply(ctx context.Context, who string, r ApplyRequest) (Applied, error) {
	p, err := a.plan(ctx, r)
	if err != nil || r.DryRun {
		return p.out, err
	}
	if r.Prune && !slices.Equal(slices.Sorted(slices.Values(r.Confirm)), p.out.Deleted) {
		return p.out, &PruneError{Names: p.out.Deleted}
	}
	if len(p.saves) == 0 && len(p.deleted) == 0 {
		return p.out, nil
	}
	if err := a.identify(ctx, p, who); err != nil {
		return p.out, err
	}
	if err := a.save(ctx, who, "task_apply", p); err != nil {
		return p.out, err
	}
	return p.out, nil
}

// edit is a set of changes to definitions, checked and ready to be written.
type edit struct {
	version int64 // of the definitions that it was made from
	known   map[string]*capri.Task
	saves   []store.TaskSave
	old     map[string]*capri.Task // what saves replace, by name
	deleted []*capri.Task
	out     Applied
	reason  string
}

// plan reads the files and what exists, and says what has to change.
func (a *Actions) plan(ctx context.Context, r ApplyRequest) (*edit, error) {
	e, known, err := a.read(ctx)
	if err != nil {
		return e, err
	}
	if r.Prune {
		// Which groups occur is known only once the files are read, and what is pruned is not there for them.
		items, err := definition.Parse(r.Sources)
		if err != nil {
			return e, err
		}
		e.prune(items)
		for _, t := range e.deleted {
			delete(known.Tasks, t.Name)
		}
	}
	items, warnings, err := definition.Check(r.Sources, known)
	if err != nil {
		return e, err
	}
	e.out.Warnings = append(e.out.Warnings, warnings...)
	if err := e.stillWanted(items); err != nil {
		return e, err
	}
	for i := range items {
		spec := items[i].Spec
		old := known.Tasks[spec.Name]
		switch {
		case old == nil:
			e.out.Created = append(e.out.Created, spec.Name)
		case definition.Equal(&old.Spec, &spec):
			e.out.Unchanged = append(e.out.Unchanged, spec.Name)
			continue
		default:
			e.old[spec.Name] = old
			e.out.Changed = append(e.out.Changed, TaskChange{spec.Name, definition.Diff(&old.Spec, &spec)})
		}
		e.saves = append(e.saves, store.TaskSave{Task: &capri.Task{Spec: spec}})
	}
	if err := a.allowed(ctx, r.By, e, known); err != nil {
		return e, err
	}
	slices.Sort(e.out.Created)
	slices.Sort(e.out.Unchanged)
	slices.SortFunc(e.out.Changed, func(x, y TaskChange) int { return strings.Compare(x.Task, y.Task) })
	return e, nil
}

// allowed decides whether somebody may make an edit: what it changes or deletes has to be his, and so has what comes of it,
// or a task could be taken over, or its commands be run with the rights of somebody else.
func (a *Actions) allowed(ctx context.Context, by *auth.Principal, e *edit, known definition.Known) error {
	if by == nil || by.Everywhere(auth.TaskEdit) {
		return nil
	}
	// Who takes up a deleted name takes its batches and their logs over.
	revived, err := a.store.WhoseTasks(ctx, e.out.Created)
	if err != nil {
		return err
	}
	object := func(name, owner, app, what string) auth.Object {
		return auth.Object{What: fmt.Sprintf("task %q%s", name, what), Owner: owner, Department: known.Owners[owner], App: app}
	}
	var are, become []auth.Object
	for _, t := range e.deleted {
		are = append(are, object(t.Name, t.Owner, t.App, ""))
	}
	for _, s := range e.saves {
		old, exists := e.old[s.Name], false
		if w, was := revived[s.Name]; was {
			are, exists = append(are, auth.TaskObject(w)), true
		} else if old != nil {
			are, exists = append(are, object(old.Name, old.Owner, old.App, "")), true
		}
		if exists && old != nil && old.Owner == s.Owner {
			continue
		}
		become = append(become, object(s.Name, s.Owner, by.Name, ", if it is given to "+cmp.Or(s.Owner, "nobody")))
	}
	if err := by.MayAll(auth.TaskEdit, are); errors.Is(err, capri.ErrNotFound) {
		return capri.Forbidden("a name in these files is taken by a task that %s may not see: choose others", by.Name)
	} else if err != nil {
		return err
	}
	if err := by.MayAll(auth.TaskEdit, become); errors.Is(err, capri.ErrNotFound) {
		return capri.Forbidden("%s may not give tasks to owners for whom he may not change them", by.Name)
	} else if err != nil {
		return err
	}
	return mayRunAs(by, e, known)
}

// mayRunAs refuses jobs under a system account that is granted to the owner and not to who writes the job: editing a
// colleague's task would be a way to his account.
func mayRunAs(by *auth.Principal, e *edit, known definition.Known) error {
	for _, s := range e.saves {
		account, old := s.Job.Account, e.old[s.Name]
		if account == "" || old != nil && definition.Equal(&capri.Spec{Job: old.Job}, &capri.Spec{Job: s.Job}) {
			continue
		}
		if !known.Grants[definition.Grant{Account: account, User: by.Name}] &&
			(by.Department == "" || !known.Grants[definition.Grant{Account: account, Department: by.Department}]) {
			return capri.Forbidden("task %q runs as the system account %s, which is not granted to %s: its owner or an admin may change what it runs", s.Name, account, by.Name)
		}
	}
	return nil
}

// read takes in all that definitions are checked against.
func (a *Actions) read(ctx context.Context) (*edit, definition.Known, error) {
	e := &edit{known: map[string]*capri.Task{}, old: map[string]*capri.Task{}, out: Applied{
		Created: []string{}, Changed: []TaskChange{}, Unchanged: []string{}, Deleted: []string{}, Warnings: []string{}}}
	known := definition.Known{Calendar: a.calendar, Tasks: map[string]*capri.Task{}, Owners: map[string]string{}, Grants: map[definition.Grant]bool{},
		WithoutHDFS: a.WithoutHDFS}
	var err error
	if e.version, err = a.store.DefinitionsVersion(ctx); err != nil {
		return e, known, err
	}
	if known.Now, err = a.store.Now(ctx); err != nil {
		return e, known, err
	}
	if known.Nodes, err = a.store.Nodes(ctx); err != nil {
		return e, known, err
	}
	tasks, err := a.store.Tasks(ctx, store.TaskFilter{})
	if err != nil {
		return e, known, err
	}
	for _, t := range tasks {
		e.known[t.Name], known.Tasks[t.Name] = t, t
	}
	users, err := a.store.Users(ctx)
	if err != nil {
		return e, known, err
	}
	for _, u := range users {
		known.Owners[u.Name] = u.Department
	}
	grants, err := a.store.AccountGrants(ctx)
	if err != nil {
		return e, known, err
	}
	for _, g := range grants {
		if g.Kind == store.GrantUser {
			known.Grants[definition.Grant{Account: g.Account, User: g.Name}] = true
		} else {
			known.Grants[definition.Grant{Account: g.Account, Department: g.Name}] = true
		}
	}
	return e, known, nil
}

// prune lists the tasks of the files' groups that the files no longer have. Tasks without a group belong to no
// group, so no file can claim to have them all.
func (e *edit) prune(items []definition.Item) {
	groups, names := map[string]bool{}, map[string]bool{}
	for _, it := range items {
		groups[it.Group], names[it.Name] = true, true
	}
	if groups[""] {
		e.out.Warnings = append(e.out.Warnings, "tasks without a group are never pruned")
		delete(groups, "")
	}
	for name, t := range e.known {
		if groups[t.Group] && !names[name] {
			e.deleted = append(e.deleted, t)
			e.out.Deleted = append(e.out.Deleted, name)
		}
	}
	slices.Sort(e.out.Deleted)
	slices.SortFunc(e.deleted, func(x, y *capri.Task) int { return strings.Compare(x.Name, y.Name) })
}

// stillWanted refuses to delete a task that one which stays, and is not in the files, waits for: its next batch
// could not be made.
func (e *edit) stillWanted(items []definition.Item) error {
	gone, written := map[string]bool{}, map[string]bool{}
	for _, t := range e.deleted {
		gone[t.Name] = true
	}
	for _, it := range items {
		written[it.Name] = true
	}
	var wanted []string
	for name, t := range e.known {
		if gone[name] || written[name] {
			continue
		}
		for _, p := range t.Parents {
			if gone[p.Task] {
				wanted = append(wanted, fmt.Sprintf("%s (of %s)", p.Task, name))
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	slices.Sort(wanted)
	return capri.Conflict("cannot delete what other tasks have as a parent: %s", some(slices.Compact(wanted)))
}

// identify gives ids to new tasks and fills them in where they are parents.
func (a *Actions) identify(ctx context.Context, e *edit, who string) error {
	ids := make(map[string]capri.TaskID, len(e.known)+len(e.saves))
	for name, t := range e.known {
		ids[name] = t.ID
	}
	var fresh []string
	for _, s := range e.saves {
		if ids[s.Name] == 0 {
			fresh = append(fresh, s.Name)
		}
	}
	if len(fresh) > 0 {
		// A deleted name keeps its id, and with it its batches.
		revived, err := a.store.Tasks(ctx, store.TaskFilter{Names: fresh, WithDeleted: true})
		if err != nil {
			return err
		}
		for _, t := range revived {
			ids[t.Name] = t.ID
			e.old[t.Name] = t
		}
		next, err := a.store.ReserveTaskIDs(ctx, len(fresh))
		if err != nil {
			return err
		}
		for _, name := range fresh {
			if ids[name] == 0 {
				ids[name] = next
				next++
			}
		}
	}
	for i := range e.saves {
		t := e.saves[i].Task
		t.ID, t.App, t.Submitter = ids[t.Name], who, who
		for j := range t.Parents {
			t.Parents[j].TaskID = ids[t.Parents[j].Task]
		}
		var err error
		if e.saves[i].ValidFrom, e.saves[i].ValidTo, err = a.validity(&t.Spec); err != nil {
			return err
		}
	}
	return nil
}

// validity is a task's bounds as instants, 0 open.
func (a *Actions) validity(s *capri.Spec) (from, to capri.Instant, err error) {
	if s.Valid.From != "" {
		if from, err = a.calendar.ParseTime(s.Valid.From); err != nil {
			return 0, 0, capri.Invalid("valid.from", s.Valid.From, "business time")
		}
	}
	if s.Valid.To != "" {
		if to, err = a.calendar.ParseTime(s.Valid.To); err != nil {
			return 0, 0, capri.Invalid("valid.to", s.Valid.To, "business time")
		}
	}
	return from, to, nil
}

// save writes an edit with all that follows from it: new conditions for batches that wait, cron fires, ledger.
func (a *Actions) save(ctx context.Context, who, action string, e *edit) error {
	if err := e.expected(ctx); err != nil {
		return err
	}
	again, err := a.affected(ctx, e)
	if err != nil {
		return err
	}
	// Which batches wait is read before the transaction, as everything that is much.
	before, err := a.waiting(ctx, again)
	if err != nil {
		return err
	}
	err = a.store.Write(ctx, "save definitions", who, func(tx *store.Tx) error {
		if err := tx.LockDefinitions(); err != nil {
			return err
		}
		if v, err := tx.DefinitionsVersion(); err != nil {
			return err
		} else if v != e.version+1 {
			return errChanged
		}
		if err := tx.SaveTasks(e.saves); err != nil {
			return err
		}
		for _, t := range e.deleted {
			if err := tx.DeleteTask(t.ID); err != nil {
				return err
			}
		}
		if err := a.afterSave(tx, e); err != nil {
			return err
		}
		if err := a.derive(tx, e, again, before); err != nil {
			return err
		}
		return tx.LogChanges(e.changes(action)...)
	})
	if err != nil {
		return err
	}
	a.wake.Wake(wake.Generate, wake.Dependency, wake.Dispatch)
	// A batch that was generated between the look and the commit has the old conditions; look once more.
	return a.deriveLate(ctx, who, e, again, before)
}

// afterSave changes the due list of cron tasks, and has failed generations tried again.
func (a *Actions) afterSave(tx *store.Tx, e *edit) error {
	var edited []capri.TaskID
	for _, s := range e.saves {
		edited = append(edited, s.ID)
		old := e.old[s.Name]
		if old == nil && s.Period == capri.Cron {
			// From now on, whatever is edited before anybody plans it: all masters may be down.
			if err := tx.ResetCron(s.ID, nil); err != nil {
				return err
			}
		}
		if old != nil && fires(old) != fires(s.Task) {
			missed, err := a.missed(tx, old, s.Task)
			if err != nil {
				return err
			}
			if err := tx.ResetCron(s.ID, missed); err != nil {
				return err
			}
		}
	}
	for _, t := range e.deleted {
		if t.Period == capri.Cron {
			if err := tx.ResetCron(t.ID, nil); err != nil {
				return err
			}
		}
	}
	return tx.RetryFailures(edited)
}

// missed are the fires of a cron task's old version that have come and that nobody planned, because no master ran: its
// edit must not lose them. A task that is disabled now takes no part in them.
func (a *Actions) missed(tx *store.Tx, old, now *capri.Task) ([]store.Fire, error) {
	if old.Period != capri.Cron || now.Period != capri.Cron || !old.Enabled || !now.Enabled {
		return nil, nil
	}
	from, err := tx.PlannedUntil(old.ID)
	if err != nil {
		return nil, err
	}
	if from == 0 {
		from = old.UpdatedAt
	}
	e, err := cron.Parse(old.Cron)
	if err != nil {
		return nil, err
	}
	var fires []store.Fire
	for _, iv := range a.calendar.CronFires(e, from+1, tx.Now+1, maxMissed) {
		fires = append(fires, store.Fire{Task: old.ID, At: iv.Mark, DataStart: iv.Start})
	}
	return fires, nil
}

// maxMissed bounds an edit: a month of a fire each minute.
const maxMissed = 45_000

// fires is what a task's due list depends on.
func fires(t *capri.Task) string {
	if t.Period != capri.Cron || !t.Enabled || t.DeletedAt != 0 {
		return ""
	}
	return t.Cron + " " + t.Valid.From + " " + t.Valid.To
}

// affected are the tasks whose waiting batches get new conditions: those whose own dependencies were edited, and
// the children of those whose period, expression or first valid day was, because the intervals they wait for are others now.
func (a *Actions) affected(ctx context.Context, e *edit) ([]*capri.Task, error) {
	now := make(map[string]*capri.Task, len(e.known))
	for name, t := range e.known {
		now[name] = t
	}
	for _, t := range e.deleted {
		delete(now, t.Name)
	}
	for _, s := range e.saves {
		now[s.Name] = s.Task
	}
	again := map[string]*capri.Task{}
	moved := map[string]bool{}
	for _, s := range e.saves {
		old := e.old[s.Name]
		if old == nil {
			continue
		}
		// A period that comes back finds batches that were left alone while it was another.
		if !sameDependencies(&old.Spec, &s.Spec) || old.Period != s.Period {
			again[s.Name] = s.Task
		}
		if old.Period != s.Period || old.Cron != s.Cron || old.Valid.From != s.Valid.From {
			moved[s.Name] = true
		}
	}
	if len(moved) > 0 {
		for name, t := range now {
			if slices.ContainsFunc(t.Parents, func(p capri.Parent) bool { return moved[p.Task] }) {
				again[name] = t
			}
		}
	}
	list := make([]*capri.Task, 0, len(again))
	for _, t := range again {
		list = append(list, t)
	}
	slices.SortFunc(list, func(x, y *capri.Task) int { return strings.Compare(x.Name, y.Name) })
	return list, ctx.Err()
}

func sameDependencies(x, y *capri.Spec) bool {
	only := func(s *capri.Spec) *capri.Spec {
		return &capri.Spec{Inputs: s.Inputs, Outputs: s.Outputs, ThirdParty: s.ThirdParty, Parents: s.Parents}
	}
	return definition.Equal(only(x), only(y))
}

func (a *Actions) waiting(ctx context.Context, tasks []*capri.Task) (map[capri.TaskID][]capri.Batch, error) {
	out := make(map[capri.TaskID][]capri.Batch, len(tasks))
	for _, t := range tasks {
		batches, err := a.store.WaitingOf(ctx, t.ID)
		if err != nil {
			return nil, err
		}
		out[t.ID] = batches
	}
	return out, nil
}

// derive gives waiting batches the conditions that the edited definitions say. A batch of an interval that the
// new period no longer has (a day batch of a task that is hourly now) keeps what it has.
func (a *Actions) derive(tx *store.Tx, e *edit, tasks []*capri.Task, waiting map[capri.TaskID][]capri.Batch) error {
	if len(tasks) == 0 {
		return nil
	}
	rows, err := tx.ParentRefs()
	if err != nil {
		return err
	}
	maker := birth.New(a.calendar, birth.Refs(rows))
	for _, t := range tasks {
		compiled, err := birth.Compile(t)
		if err != nil {
			return err
		}
		for _, b := range waiting[t.ID] {
			if b.Period != t.Period {
				continue
			}
			c, err := maker.Conditions(compiled, maker.IntervalOf(b))
			if err != nil {
				return fmt.Errorf("conditions of batch %d: %w", b.ID, err)
			}
			if _, err := tx.ReplaceConditions(b.ID, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *Actions) deriveLate(ctx context.Context, who string, e *edit, tasks []*capri.Task, before map[capri.TaskID][]capri.Batch) error {
	after, err := a.waiting(ctx, tasks)
	if err != nil {
		return err
	}
	late := 0
	for id, batches := range after {
		known := map[capri.BatchID]bool{}
		for _, b := range before[id] {
			known[b.ID] = true
		}
		after[id] = slices.DeleteFunc(batches, func(b capri.Batch) bool { return known[b.ID] })
		late += len(after[id])
	}
	if late == 0 {
		return nil
	}
	return a.store.Write(ctx, "give late batches new conditions", who, func(tx *store.Tx) error { return a.derive(tx, e, tasks, after) })
}

// target and summary are what the log of actions says of an edit. What each field was is in the task's history.
// changes are an edit's lines of the log, one for each task, so that each owner finds his own: the fields that differ. What a new
// task says stands in its history.
func (e *edit) changes(action string) []store.Change {
	var all []store.Change
	for _, s := range e.saves {
		c := store.Change{Action: action, Target: s.Name, Task: s.ID, Detail: cmp.Or(e.reason, "changed")}
		old := e.old[s.Name]
		if old == nil || old.DeletedAt != 0 {
			c.Detail, c.After = "created", map[string]string{"owner": s.Owner, "group": s.Group}
			all = append(all, c)
			continue
		}
		before, after := map[string]string{}, map[string]string{}
		for _, d := range definition.Diff(&old.Spec, &s.Spec) {
			before[d.Field], after[d.Field] = d.Old, d.New
		}
		c.Before, c.After = before, after
		all = append(all, c)
	}
	for _, t := range e.deleted {
		all = append(all, store.Change{Action: "task_delete", Target: t.Name, Task: t.ID, Detail: "deleted", Before: map[string]string{"owner": t.Owner, "group": t.Group}})
	}
	return all
}

// TaskResult is what became of one of several tasks.
type TaskResult struct {
	Task   string
	Result string // done, unchanged
}

// EnableTasks lets tasks take part in marks, or stops them: all of them or, where a name is wrong, none.
func (a *Actions) EnableTasks(ctx context.Context, who string, names []string, enabled bool, reason string) ([]TaskResult, error) {
	if len(names) == 0 {
		return nil, capri.Invalid("names", "", "at least one task")
	}
	for range 5 {
		out, err := a.enableTasks(ctx, who, names, enabled, reason)
		if !errors.Is(err, errChanged) {
			return out, err
		}
	}
	return nil, errChanged
}

func (a *Actions) enableTasks(ctx context.Context, who string, names []string, enabled bool, reason string) ([]TaskResult, error) {
	version, err := a.store.DefinitionsVersion(ctx)
	if err != nil {
		return nil, err
	}
	found, err := a.store.Tasks(ctx, store.TaskFilter{Names: names})
	if err != nil {
		return nil, err
	}
	known := make(map[string]*capri.Task, len(found))
	have := make(map[string]int, len(found))
	for _, t := range found {
		known[t.Name], have[t.Name] = t, t.Version
	}
	if err := expectedOf(ctx, have); err != nil { // also where nothing is to be changed
		return nil, err
	}
	e := &edit{version: version, old: map[string]*capri.Task{}, reason: reason}
	var out []TaskResult
	for i, name := range names {
		old := known[name]
		switch {
		case old == nil:
			return nil, capri.NotFound("there is no task %q", name)
		case slices.Contains(names[:i], name):
			continue
		case old.Enabled == enabled:
			out = append(out, TaskResult{name, Unchanged})
			continue
		}
		next := *old
		next.Enabled, next.App, next.Submitter = enabled, who, who
		save := store.TaskSave{Task: &next}
		if save.ValidFrom, save.ValidTo, err = a.validity(&next.Spec); err != nil {
			return nil, err
		}
		e.old[name], e.saves = old, append(e.saves, save)
		e.out.Changed = append(e.out.Changed, TaskChange{Task: name})
		out = append(out, TaskResult{name, Done})
	}
	if len(e.saves) == 0 {
		return out, nil
	}
	action := "task_disable"
	if enabled {
		action = "task_enable"
	}
	return out, a.save(ctx, who, action, e)
}

// EnableTask is EnableTasks for one, which it gives back.
func (a *Actions) EnableTask(ctx context.Context, who, name string, enabled bool, reason string) (*capri.Task, error) {
	if _, err := a.EnableTasks(ctx, who, []string{name}, enabled, reason); err != nil {
		return nil, err
	}
	return a.store.TaskByName(ctx, name)
}

// DeleteTask deletes a task softly: its name, history and batches stay.
func (a *Actions) DeleteTask(ctx context.Context, who, name string) error {
	for range 5 {
		if err := a.deleteTask(ctx, who, name); !errors.Is(err, errChanged) {
			return err
		}
	}
	return errChanged
}

func (a *Actions) deleteTask(ctx context.Context, who, name string) error {
	version, err := a.store.DefinitionsVersion(ctx)
	if err != nil {
		return err
	}
	t, err := a.store.TaskByName(ctx, name)
	if err != nil {
		return err
	}
	children, err := a.store.Children(ctx, t.ID)
	if err != nil {
		return err
	}
	children = slices.DeleteFunc(children, func(id capri.TaskID) bool { return id == t.ID })
	if len(children) > 0 {
		names, err := a.store.TaskNames(ctx, children)
		if err != nil {
			return err
		}
		var list []string
		for _, n := range names {
			list = append(list, n)
		}
		slices.Sort(list)
		return capri.Conflict("task %s is a parent of %s: edit or delete those first", name, some(list))
	}
	e := &edit{version: version, deleted: []*capri.Task{t}, out: Applied{Deleted: []string{name}}}
	return a.save(ctx, who, "task_delete", e)
}

// Export writes tasks as a file that applies back to no change.
func (a *Actions) Export(ctx context.Context, seen *store.Seen, group string, names []string) ([]byte, error) {
	tasks, err := a.store.Tasks(ctx, store.TaskFilter{Group: group, Names: names, Seen: seen})
	if err != nil {
		return nil, err
	}
	have := make(map[string]bool, len(tasks))
	specs := make([]capri.Spec, len(tasks))
	for i, t := range tasks {
		if t.Broken != "" { // half a task in a file would be applied as the whole
			return nil, capri.Conflict("task %s: %s", t.Name, t.Broken)
		}
		have[t.Name], specs[i] = true, t.Spec
	}
	for _, n := range names {
		if !have[n] {
			return nil, capri.NotFound("there is no task %q", n)
		}
	}
	if len(specs) == 0 && group != "" {
		return nil, capri.NotFound("there is no task in group %q", group)
	}
	return definition.Export(specs)
}

// some lists names, the first few where they are many.
func some(names []string) string {
	const few = 10
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
