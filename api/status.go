package api

import (
	"context"
	"encoding/json"
	"net/http"

	"capri"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

type none struct{}

type alertsInput struct{ Paging }

func (s *server) statusOperations() {
	register(s, auth.StatusRead, http.MethodGet, "/status", "status", "What the server says of itself and of the work in hand", s.status)
	register(s, auth.ActionRead, http.MethodGet, "/actions", "list-actions", "What people and apps did, newest first", s.actions)
}

func (s *server) status(ctx context.Context, _ *none) (*body[wire.Status], error) {
	out := wire.Status{Version: s.Version, Zone: s.Zone.String(), Database: s.Store.Dialect().Name}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	out.Now = now.In(s.Zone)
	counts, err := s.Store.Counts(ctx)
	if err != nil {
		return nil, err
	}
	out.Waiting, out.Ready, out.Running = counts.Waiting, counts.Ready, counts.Running
	nodes, err := s.Store.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if !n.Lost {
			out.Nodes++
		}
	}
	d, err := s.Store.DispatchState(ctx)
	if err != nil {
		return nil, err
	}
	out.Paused, out.MaxRunning = d.PausedAt(now), d.MaxRunning
	if out.Stops, err = s.stops(ctx, d.StopsAt(now)); err != nil {
		return nil, err
	}
	return answer(out), nil
}

type actionsInput struct {
	Paging
	Who       string `query:"who"`
	Action    string `query:"action" doc:"such as kill or task_apply"`
	Target    string `query:"target" doc:"such as batch 17, or a name"`
	Task      string `query:"task" doc:"all that was done to a task and its batches"`
	RequestID string `query:"request_id"`
	From      string `query:"from"`
	To        string `query:"to" doc:"included (a bare date: all of it)"`
}

// actions shows admins everything, and others what concerns them: what they did, and what was done to what is theirs or
// their department's.
func (s *server) actions(ctx context.Context, in *actionsInput) (*pageOutput[wire.Action], error) {
	f := store.ActionFilter{Who: in.Who, Action: in.Action, Target: in.Target, RequestID: in.RequestID, Limit: in.Limit + 1, Seen: auth.From(ctx).SeenActions()}
	var err error
	if f.Before, err = after[int64](&in.Paging); err != nil {
		return nil, err
	}
	if in.Task != "" {
		if err := s.mayTasks(ctx, auth.TaskRead, in.Task); err != nil {
			return nil, err
		}
		whose, err := s.Store.WhoseTasks(ctx, []string{in.Task}) // of a deleted one, too
		if err != nil {
			return nil, err
		}
		if f.Task = whose[in.Task].TaskID; f.Task == 0 {
			return nil, capri.NotFound("there is no task %q", in.Task)
		}
	}
	if f.From, f.To, err = s.span(in.From, in.To, true); err != nil {
		return nil, err
	}
	rows, err := s.Store.Actions(ctx, f)
	if err != nil {
		return nil, err
	}
	return paged(&in.Paging, rows, func(a store.Action) any { return a.ID }, func(rows []store.Action) ([]wire.Action, error) { return s.wireActions(ctx, rows) })
}

func (s *server) wireActions(ctx context.Context, rows []store.Action) ([]wire.Action, error) {
	names, err := taskNames(ctx, s, rows, func(a store.Action) capri.TaskID { return a.TaskID })
	out := make([]wire.Action, len(rows))
	for i, a := range rows {
		out[i] = wire.Action{ID: a.ID, At: a.At.In(s.Zone), Who: a.Who, Kind: a.Kind, Address: a.Address, RequestID: a.Request.ID, Action: a.Action, Target: a.Target,
			Task: names[a.TaskID], Department: a.Department, Detail: a.Detail, Before: raw(a.Before), After: raw(a.After)}
	}
	return out, err
}

// raw is JSON as it is stored, null for nothing.
func raw(text string) json.RawMessage {
	if text == "" {
		return json.RawMessage("null")
	}
	return json.RawMessage(text)
}

func (s *server) alerts(ctx context.Context, in *alertsInput) (*pageOutput[wire.Alert], error) {
	before, err := after[int64](&in.Paging)
	if err != nil {
		return nil, err
	}
	rows, err := s.Store.Alerts(ctx, seen(ctx, auth.AlertRead), before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return paged(&in.Paging, rows, func(r store.AlertRow) any { return r.ID }, func(rows []store.AlertRow) ([]wire.Alert, error) { return s.wireAlerts(ctx, rows) })
}

func (s *server) wireAlerts(ctx context.Context, rows []store.AlertRow) ([]wire.Alert, error) {
	names, err := taskNames(ctx, s, rows, func(a store.AlertRow) capri.TaskID { return a.Task })
	out := make([]wire.Alert, len(rows))
	for i, a := range rows {
		out[i] = wire.Alert{ID: a.ID, Level: a.Level.String(), Kind: a.Kind, Task: names[a.Task], TaskID: a.Task, BatchID: a.Batch,
			Title: a.Title, Body: a.Text, CreatedAt: a.CreatedAt.In(s.Zone), IncidentID: a.Incident}
	}
	return out, err
}

// taskNames reads the names of the tasks that rows are about; some are about none.
func taskNames[R any](ctx context.Context, s *server, rows []R, task func(R) capri.TaskID) (map[capri.TaskID]string, error) {
	var ids []capri.TaskID
	for _, r := range rows {
		if id := task(r); id != 0 {
			ids = append(ids, id)
		}
	}
	return s.Store.TaskNames(ctx, ids)
}
