package api

import (
	"context"
	"slices"
	"strings"

	"capri"
	"capri/api/wire"
	"capri/sql/store"
)

// services tells of each service who leads it, how its last run went and when the next one comes. Its parts are shown as
// one: people ask for "dependency".
func (s *server) services(ctx context.Context, _ *none) (*body[[]wire.Service], error) {
	locks, err := s.Store.Locks(ctx)
	if err != nil {
		return nil, err
	}
	rows := map[string]store.ServiceLock{}
	for _, l := range locks {
		rows[l.Service] = l
	}
	states, err := s.Store.ServiceStates(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := s.Store.LastRuns(ctx)
	if err != nil {
		return nil, err
	}
	triggered, err := s.Store.Triggers(ctx)
	if err != nil {
		return nil, err
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	out := []wire.Service{}
	for _, name := range capri.Services {
		w := wire.Service{Service: name.Name, Lease: name.Lease, MaxRunning: -1, Counts: map[string]int{}, Triggered: wire.At(triggered[name.Name], s.Zone)}
		s.history(&w, states, runs, now)
		l, there := rows[name.Lease]
		if !there {
			w.Error = "it cannot run: its row in capri_service_lock is missing; run capri migrate up"
		}
		w.Holder, w.Epoch, w.AcquiredAt = l.Holder, int64(l.Epoch), wire.At(l.AcquiredAt, s.Zone)
		w.Leader, _, _ = strings.Cut(l.Holder, "/")
		if there && name.Name == name.Lease { // a pause is of dispatch, not of what shares its lease
			w.Paused, w.Reason, w.Until, w.MaxRunning = l.Paused, l.PausedReason, wire.At(l.PausedUntil, s.Zone), l.MaxRunning
		}
		out = append(out, w)
	}
	return list(out), nil
}

// history fills in what a service did last and does next. Turns with nothing to do are in states alone, and only once in
// ten seconds; what was done, or failed, is in runs.
func (s *server) history(w *wire.Service, states map[string]store.ServiceState, runs map[string]store.ServiceRun, now capri.Instant) {
	var newest store.ServiceState
	var next, slowest capri.Instant // slowest: since then each part has completed a turn
	first := true
	for name, x := range states {
		if base, _, _ := strings.Cut(name, "/"); base != w.Service {
			continue
		}
		if x.StartedAt > newest.StartedAt {
			newest = x
		}
		if next == 0 || x.NextAt != 0 && x.NextAt < next {
			next = x.NextAt
		}
		if first || x.CompletedAt < slowest {
			slowest = x.CompletedAt
		}
		first = false
	}
	last, took := newest.StartedAt, newest.Duration
	if r, ran := runs[w.Service]; ran {
		if r.StartedAt >= last {
			last, took = r.StartedAt, r.Duration
		}
		if r.StartedAt >= slowest {
			w.Error = r.Error
		}
		if r.Counts != nil {
			w.Counts = r.Counts
		}
	}
	if next != 0 {
		next = max(next, now) // of a service that ticks each second, what was noted is some seconds old
	}
	w.LastRun, w.DurationMS, w.NextRun = wire.At(last, s.Zone), took.Milliseconds(), wire.At(next, s.Zone)
}

type serviceRunsInput struct {
	Paging
	Name   string `path:"name" maxLength:"200"`
	Failed bool   `query:"failed" doc:"only runs that ended with an error"`
	From   string `query:"from" maxLength:"100" doc:"begun at or after"`
	To     string `query:"to" maxLength:"100" doc:"included (a bare date: all of it)"`
}

func (s *server) serviceRuns(ctx context.Context, in *serviceRunsInput) (*pageOutput[wire.ServiceRun], error) {
	if !slices.ContainsFunc(capri.Services, func(x capri.ServiceName) bool { return x.Name == in.Name }) {
		return nil, capri.NotFound("there is no service %q; those that exist: %s", in.Name, capri.ServiceNames())
	}
	f := store.RunFilter{Service: in.Name, Failed: in.Failed, Limit: in.Limit + 1}
	var err error
	if f.After, err = after[store.RunPosition](&in.Paging); err != nil {
		return nil, err
	}
	if f.From, f.To, err = s.span(in.From, in.To, true); err != nil {
		return nil, err
	}
	rows, err := s.Store.ServiceRuns(ctx, f)
	if err != nil {
		return nil, err
	}
	return paged(&in.Paging, rows, func(r store.ServiceRun) any { return store.RunPosition{At: r.StartedAt, ID: r.ID} }, each(func(r store.ServiceRun) wire.ServiceRun {
		leader, _, _ := strings.Cut(r.Holder, "/")
		return wire.ServiceRun{ID: r.ID, Service: r.Service, Leader: leader, Epoch: int64(r.Epoch), StartedAt: r.StartedAt.In(s.Zone), DurationMS: r.Duration.Milliseconds(), Counts: r.Counts, Error: r.Error}
	}))
}

func (s *server) masters(ctx context.Context, _ *none) (*body[[]wire.Master], error) {
	rows, err := s.Store.Masters(ctx)
	return listOf(rows, err, func(m store.Master) wire.Master {
		return wire.Master{Name: m.Name, Instance: m.Instance, Host: m.Host, PID: m.PID, Listen: m.Listen, Version: m.Version, Beat: m.Beat,
			LastCheckTime: wire.At(m.LastCheckTime, s.Zone), StartTime: wire.At(m.StartTime, s.Zone), ClockOffsetMS: m.ClockOffset.Milliseconds(), Stopped: m.Stopped}
	})
}
