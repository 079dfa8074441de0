package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"capri"
	"capri/action"
	"capri/api/wire"
	"capri/auth"
	"capri/calendar"
	"capri/cron"
	"capri/definition"
	"capri/sql/store"
)

type nameInput struct {
	Name string `path:"name" maxLength:"200"`
}

type taskFilter struct {
	Paging
	Group   string `query:"group"`
	Owner   string `query:"owner"`
	Period  string `query:"period" doc:"hour, day, week, month, cron or manual"`
	Enabled string `query:"enabled" enum:"true,false"`
}

func (s *server) taskOperations() {
	register(s, auth.TaskRead, http.MethodGet, "/tasks", "list-tasks", "Tasks by name", s.tasks)
	register(s, auth.TaskRead, http.MethodGet, "/tasks/{name}", "show-task", "One task", s.task)
	register(s, auth.TaskRead, http.MethodGet, "/tasks/{name}/history", "task-history", "A task's versions, newest first", s.taskHistory)
	register(s, auth.TaskEdit, http.MethodPost, "/tasks:apply", "apply-tasks", "Make the tasks of some files what the store holds: all or nothing", s.apply)
	register(s, auth.TaskRead, http.MethodGet, "/tasks:export", "export-tasks", "Tasks as a file that applies back to no change", s.export, func(op *huma.Operation) {
		op.Responses = map[string]*huma.Response{"200": {Description: "a task file", Content: map[string]*huma.MediaType{"text/yaml": {Schema: &huma.Schema{Type: huma.TypeString}}}}}
	})
	register(s, auth.BatchRunNow, http.MethodPost, "/tasks/{name}:run-now", "run-task-now", "Run a task's newest ended interval without its conditions; the batch is made if there is none", s.runTaskNow)
	register(s, auth.TaskEdit, http.MethodPost, "/tasks:enable", "enable-tasks", "Let tasks take part in marks", s.enableMany(true))
	register(s, auth.TaskEdit, http.MethodPost, "/tasks:disable", "disable-tasks", "Stop tasks from taking part in marks", s.enableMany(false))
	register(s, auth.TaskEdit, http.MethodPost, "/tasks/{name}:enable", "enable-task", "Let a task take part in marks", s.enable(true))
	register(s, auth.TaskEdit, http.MethodPost, "/tasks/{name}:disable", "disable-task", "Stop a task from taking part in marks", s.enable(false))
	register(s, auth.TaskEdit, http.MethodDelete, "/tasks/{name}", "delete-task", "Delete a task softly", s.deleteTask, status(http.StatusNoContent))
	register(s, auth.BatchExecute, http.MethodPost, "/tasks/{name}:execute", "execute-task", "Run a task now, for the newest interval that has ended", s.execute, status(http.StatusCreated))
	register(s, auth.BatchRerun, http.MethodPost, "/tasks/{name}/rerun", "rerun-task", "Run a task's batches of a range again", s.rerun)
	register(s, auth.ColdStart, http.MethodPost, "/cold-starts", "cold-start", "Make the batches of a range", s.coldStart)
	register(s, auth.PlanRead, http.MethodGet, "/plan", "plan", "What would be generated at the marks of a range; writes nothing", s.plan)
}

func (s *server) tasks(ctx context.Context, in *taskFilter) (*pageOutput[wire.Task], error) {
	from, err := after[string](&in.Paging)
	if err != nil {
		return nil, err
	}
	f := store.TaskFilter{Group: in.Group, Owner: in.Owner, Seen: seen(ctx, auth.TaskRead), After: from, Limit: in.Limit + 1}
	if in.Period != "" {
		p, err := capri.ParsePeriod(in.Period)
		if err != nil {
			return nil, err
		}
		f.Period = p
	}
	if in.Enabled != "" {
		enabled := in.Enabled == "true"
		f.Enabled = &enabled
	}
	tasks, err := s.Store.Tasks(ctx, f)
	if err != nil {
		return nil, err
	}
	return paged(&in.Paging, tasks, func(t *capri.Task) any { return t.Name }, each(func(t *capri.Task) wire.Task { return wire.TaskOf(t, s.Zone) }))
}

type taskInput struct {
	Name        string `path:"name" maxLength:"200"`
	IfNoneMatch string `header:"If-None-Match" maxLength:"1000" doc:"ETags of copies that the caller has: 304 where one is the newest"`
}

func (s *server) task(ctx context.Context, in *taskInput) (*taskOutput, error) {
	if err := s.mayTasks(ctx, auth.TaskRead, in.Name); err != nil {
		return nil, err
	}
	t, err := s.Store.TaskByName(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	grants, err := s.Store.AlertGrants(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	out := wire.TaskOf(t, s.Zone)
	for _, g := range grants {
		out.AlertGrants = append(out.AlertGrants, wire.AlertGrant{User: g.User, SMS: g.SMS, Mail: g.Mail, CreatedAt: wire.At(g.CreatedAt, s.Zone)})
	}
	return tagged(out, in.IfNoneMatch)
}

type historyInput struct {
	Paging
	Name string `path:"name" maxLength:"200"`
}

func (s *server) taskHistory(ctx context.Context, in *historyInput) (*pageOutput[wire.TaskVersion], error) {
	from, err := after[int](&in.Paging)
	if err != nil {
		return nil, err
	}
	// A deleted task has a history, too: that is often why one asks.
	found, err := s.Store.Tasks(ctx, store.TaskFilter{Names: []string{in.Name}, WithDeleted: true, Seen: seen(ctx, auth.TaskRead)})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, capri.NotFound("there is no task %q", in.Name)
	}
	rows, err := s.Store.TaskHistory(ctx, found[0].ID, from, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return paged(&in.Paging, rows, func(r store.TaskChange) any { return r.Version }, func(page []store.TaskChange) ([]wire.TaskVersion, error) {
		return s.wireVersions(rows)[:len(page)], nil // the row after the page is what its last is compared with
	})
}

func (s *server) wireVersions(rows []store.TaskChange) []wire.TaskVersion {
	out := make([]wire.TaskVersion, len(rows))
	for i, r := range rows {
		out[i] = wire.TaskVersion{Version: r.Version, At: wire.At(r.At, s.Zone), By: r.By, Enabled: r.Enabled, Deleted: r.Deleted, Changes: []wire.Change{}}
		var before *capri.Spec
		if i+1 < len(rows) {
			before = &rows[i+1].Spec
		}
		out[i].Changes = changes(definition.Diff(before, &r.Spec))
		if r.Broken != "" {
			out[i].Changes = []wire.Change{{Field: "definition", New: r.Broken}}
		}
	}
	return out
}

func changes(in []definition.Change) []wire.Change {
	out := make([]wire.Change, len(in))
	for i, c := range in {
		out[i] = wire.Change{Field: c.Field, Old: c.Old, New: c.New}
	}
	return out
}

type applyInput struct {
	IfMatch
	Body wire.Apply
}

func (s *server) apply(ctx context.Context, in *applyInput) (*body[wire.Applied], error) {
	by := auth.From(ctx)
	r := action.ApplyRequest{By: &by, DryRun: in.Body.DryRun, Prune: in.Body.Prune, Confirm: in.Body.ConfirmPrune}
	for _, src := range in.Body.Sources {
		r.Sources = append(r.Sources, definition.Source{Name: src.Name, Data: []byte(src.Data)})
	}
	if len(r.Sources) == 0 {
		return nil, capri.Invalid("sources", "", "at least one task file")
	}
	done, err := s.Actions.Apply(in.expecting(ctx), who(ctx), r)
	if err != nil {
		return nil, err
	}
	out := wire.Applied{Created: done.Created, Unchanged: done.Unchanged, Deleted: done.Deleted, Warnings: done.Warnings, DryRun: r.DryRun, Changed: []wire.TaskChange{}}
	for _, c := range done.Changed {
		out.Changed = append(out.Changed, wire.TaskChange{Task: c.Task, Changes: changes(c.Changes)})
	}
	return answer(out), nil
}

type exportInput struct {
	Group string `query:"group"`
	Names string `query:"names" doc:"with commas between them"`
}

type fileOutput struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *server) export(ctx context.Context, in *exportInput) (*fileOutput, error) {
	var names []string
	if in.Names != "" {
		names = strings.Split(in.Names, ",")
	}
	data, err := s.Actions.Export(ctx, seen(ctx, auth.TaskRead), in.Group, names)
	if err != nil {
		return nil, err
	}
	return &fileOutput{ContentType: "text/yaml; charset=utf-8", Body: data}, nil
}

type enableInput struct {
	IfMatch
	Name string `path:"name" maxLength:"200"`
	Body *wire.Reason
}

func (s *server) enable(enabled bool) func(context.Context, *enableInput) (*body[wire.Task], error) {
	return func(ctx context.Context, in *enableInput) (*body[wire.Task], error) {
		if err := s.mayTasks(ctx, auth.TaskEdit, in.Name); err != nil {
			return nil, err
		}
		t, err := s.Actions.EnableTask(in.expecting(ctx), who(ctx), in.Name, enabled, reasonOf(in.Body))
		if err != nil {
			return nil, err
		}
		return answer(wire.TaskOf(t, s.Zone)), nil
	}
}

type enableManyInput struct {
	IfMatch
	Body wire.Names
}

func (s *server) enableMany(enabled bool) func(context.Context, *enableManyInput) (*body[[]wire.NameResult], error) {
	return func(ctx context.Context, in *enableManyInput) (*body[[]wire.NameResult], error) {
		if err := s.mayTasks(ctx, auth.TaskEdit, in.Body.Names...); err != nil {
			return nil, err
		}
		results, err := s.Actions.EnableTasks(in.expecting(ctx), who(ctx), in.Body.Names, enabled, in.Body.Reason)
		return listOf(results, err, func(r action.TaskResult) wire.NameResult {
			return wire.NameResult{Task: r.Task, Result: r.Result}
		})
	}
}

type deleteTaskInput struct {
	IfMatch
	Name string `path:"name" maxLength:"200"`
}

func (s *server) deleteTask(ctx context.Context, in *deleteTaskInput) (*none, error) {
	if err := s.mayTasks(ctx, auth.TaskEdit, in.Name); err != nil {
		return nil, err
	}
	return nil, s.Actions.DeleteTask(in.expecting(ctx), who(ctx), in.Name)
}

type executeInput struct {
	Name string `path:"name" maxLength:"200"`
	Body *wire.Execute
}

func (s *server) execute(ctx context.Context, in *executeInput) (*body[wire.Batch], error) {
	if err := s.mayTasks(ctx, auth.BatchExecute, in.Name); err != nil {
		return nil, err
	}
	r := action.ExecuteRequest{Task: in.Name}
	if in.Body != nil {
		r.Interval, r.Params, r.Reason = in.Body.Interval, in.Body.Params, in.Body.Reason
	}
	b, err := s.Actions.Execute(ctx, who(ctx), r)
	if err != nil {
		return nil, err
	}
	return answer(wire.BatchOf(&b.Batch, b.Task, s.Zone)), nil
}

func (s *server) runTaskNow(ctx context.Context, in *reasonInput) (*body[wire.Batch], error) {
	if err := s.mayTasks(ctx, auth.BatchRunNow, in.Name); err != nil {
		return nil, err
	}
	b, err := s.Actions.RunTaskNow(ctx, who(ctx), in.Name, in.reason())
	if err != nil {
		return nil, err
	}
	return answer(wire.BatchOf(&b.Batch, b.Task, s.Zone)), nil
}

func (s *server) coldStart(ctx context.Context, in *struct{ Body wire.ColdStart }) (*body[wire.CampaignPlan], error) {
	r := in.Body
	periods := r.Periods
	if r.Period != 0 {
		periods = append([]capri.Period{r.Period}, periods...)
	}
	p, err := s.Actions.ColdStart(ctx, who(ctx), action.ColdStartRequest{Periods: periods, From: r.From, To: r.To, Group: r.Group, Tasks: r.Tasks, Only: r.Only, ByData: r.ByData,
		Preview: r.Preview, Pace: action.Pace{Limit: r.Limit, Order: r.Order, Reason: r.Reason}})
	if err != nil {
		return nil, err
	}
	return answer(s.wirePlan(p)), nil
}

type rerunInput struct {
	Name string `path:"name" maxLength:"200"`
	Body wire.Rerun
}

func (s *server) rerun(ctx context.Context, in *rerunInput) (*body[wire.CampaignPlan], error) {
	if err := s.mayTasks(ctx, auth.BatchRerun, in.Name); err != nil {
		return nil, err
	}
	r := in.Body
	p, err := s.Actions.Rerun(ctx, who(ctx), action.RerunRequest{Task: in.Name, From: r.From, To: r.To, ByData: r.ByData, Only: r.Only,
		OnRunning: r.OnRunning, Cascade: r.Cascade, BatchNos: r.BatchNos, Preview: r.Preview, Pace: action.Pace{Limit: r.Limit, Order: r.Order, Reason: r.Reason}, MayReach: s.mayCascade})
	if err != nil {
		return nil, err
	}
	return answer(s.wirePlan(p)), nil
}

type planInput struct {
	Task  string `query:"task"`
	From  string `query:"from" required:"true"`
	To    string `query:"to" required:"true"`
	Limit int    `query:"limit" minimum:"1" maximum:"100000" default:"1000"`
}

// plan lists the marks of enabled tasks, or of one, in [from,to): by today's definitions and their validity.
func (s *server) plan(ctx context.Context, in *planInput) (*body[[]wire.PlanRow], error) {
	from, err := s.instant("from", in.From)
	if err != nil {
		return nil, err
	}
	to, err := s.instant("to", in.To)
	if err != nil {
		return nil, err
	}
	if to < from {
		return nil, capri.Invalid("to", in.To, "not before from ("+in.From+")")
	}
	var tasks []*capri.Task
	if in.Task != "" {
		if err := s.mayTasks(ctx, auth.PlanRead, in.Task); err != nil {
			return nil, err
		}
		t, err := s.Store.TaskByName(ctx, in.Task)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, t)
	} else {
		enabled := true
		if tasks, err = s.Store.Tasks(ctx, store.TaskFilter{Enabled: &enabled, Seen: seen(ctx, auth.PlanRead)}); err != nil {
			return nil, err
		}
	}
	c := s.Actions.Calendar()
	shared := map[capri.Period][]capri.Interval{}
	rows := []wire.PlanRow{}
	for _, t := range tasks {
		some, err := planOf(c, t, from, to, in.Limit, shared, s.Zone)
		if err != nil && in.Task != "" {
			return nil, err
		} // a definition that cannot be used makes no batches, and hides nobody else's; the list of tasks says what is wrong
		rows = append(rows, some...)
		// Each task's rows are in order, so the first limit of all are among the first limit of each.
		if len(rows) > 4*in.Limit {
			rows = firstRows(rows, in.Limit)
		}
	}
	return list(firstRows(rows, in.Limit)), nil
}

// planOf lists one task's marks; shared keeps those that every task of a calendar period has.
func planOf(c calendar.Calendar, t *capri.Task, from, to capri.Instant, limit int, shared map[capri.Period][]capri.Interval, zone *time.Location) ([]wire.PlanRow, error) {
	if t.Broken != "" {
		return nil, capri.Conflict("task %s: %s", t.Name, t.Broken)
	}
	ivs, ok := shared[t.Period]
	if !ok {
		var err error
		if ivs, err = marks(c, t, from, to, limit); err != nil {
			return nil, capri.Conflict("task %s: its stored definition cannot be used: %v (apply the task's file again)", t.Name, err)
		}
		if t.Period.Calendar() {
			shared[t.Period] = ivs
		}
	}
	var rows []wire.PlanRow
	for _, iv := range ivs {
		if valid, err := validAt(c, t, iv.Mark); err != nil {
			return nil, err
		} else if valid {
			rows = append(rows, wire.PlanRowOf(&t.Name, t.Period, iv, zone))
		}
	}
	return rows, nil
}

func marks(c calendar.Calendar, t *capri.Task, from, to capri.Instant, limit int) ([]capri.Interval, error) {
	switch t.Period {
	case capri.Manual:
		return nil, nil
	case capri.Cron:
		e, err := cron.Parse(t.Cron)
		if err != nil {
			return nil, err
		}
		return c.CronFires(e, from, to, limit), nil
	}
	var ivs []capri.Interval
	for iv := range c.Marks(t.Period, from, to) {
		if ivs = append(ivs, iv); len(ivs) == limit {
			break
		}
	}
	return ivs, nil
}

func validAt(c calendar.Calendar, t *capri.Task, mark capri.Instant) (bool, error) {
	if t.Valid.From != "" {
		if from, err := c.ParseTime(t.Valid.From); err != nil || mark < from {
			return false, err
		}
	}
	if t.Valid.To != "" {
		if to, err := c.ParseTime(t.Valid.To); err != nil || mark >= to {
			return false, err
		}
	}
	return true, nil
}

func firstRows(rows []wire.PlanRow, limit int) []wire.PlanRow {
	slices.SortStableFunc(rows, func(x, y wire.PlanRow) int {
		if c := x.Mark.Compare(y.Mark); c != 0 {
			return c
		}
		return strings.Compare(*x.Task, *y.Task)
	})
	return rows[:min(len(rows), limit)]
}
