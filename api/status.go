package api

import (
	"context"
	"net/http"

	"capri"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

type none struct{}

type alertsInput struct{ Paging }

type limitInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"10000" default:"100"`
}

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
	paused, _, until, _, err := s.Store.DispatchLimits(ctx)
	if err != nil {
		return nil, err
	}
	out.Paused = paused && (until == 0 || now < until)
	return answer(out), nil
}

func (s *server) actions(ctx context.Context, in *limitInput) (*body[[]wire.Action], error) {
	rows, err := s.Store.Actions(ctx, in.Limit)
	if err != nil {
		return nil, err
	}
	out := make([]wire.Action, len(rows))
	for i, a := range rows {
		out[i] = wire.Action{At: a.At.In(s.Zone), Who: a.Who, Action: a.Action, Target: a.Target, Detail: a.Detail}
	}
	return list(out), nil
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
	names, err := s.taskNames(ctx, rows)
	out := make([]wire.Alert, len(rows))
	for i, a := range rows {
		out[i] = wire.Alert{ID: a.ID, Level: a.Level.String(), Kind: a.Kind, Task: names[a.Task], TaskID: a.Task, BatchID: a.Batch,
			Title: a.Title, Body: a.Text, CreatedAt: a.CreatedAt.In(s.Zone), IncidentID: a.Incident}
	}
	return out, err
}

func (s *server) taskNames(ctx context.Context, rows []store.AlertRow) (map[capri.TaskID]string, error) {
	var ids []capri.TaskID
	for _, a := range rows {
		if a.Task != 0 {
			ids = append(ids, a.Task)
		}
	}
	return s.Store.TaskNames(ctx, ids)
}
