package store

import (
	"context"
	"database/sql"
	"slices"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// ServiceState is what a row of the timetable did last and does next. Service is that row's name: the service's, with
// "/part" behind it where a service has several rhythms ("dependency/paths").
type ServiceState struct {
	Service     string
	Holder      string
	Epoch       capri.Epoch
	StartedAt   capri.Instant // of the newest turn; newer than CompletedAt while one is under way, or when it has failed
	CompletedAt capri.Instant // of the newest turn that ended without an error; 0: none yet
	Duration    time.Duration // of that turn
	NextAt      capri.Instant // 0: not known
	FiredAt     capri.Instant // up to when its times of day are done, for services that have such
}

// ServiceStates gives what every service did last, by its name in the timetable. Turns that had nothing to do are
// noted once in ten seconds.
func (s *Store) ServiceStates(ctx context.Context) (map[string]ServiceState, error) {
	return s.serviceStates(ctx, sq.Select(stateColumns...).From("service_state"))
}

// ServiceState gives one of them; found is false where it has never run.
func (s *Store) ServiceState(ctx context.Context, service string) (state ServiceState, found bool, err error) {
	all, err := s.serviceStates(ctx, sq.Select(stateColumns...).From("service_state").Where(sq.Eq{"service": service}))
	state, found = all[service]
	return state, found, err
}

var stateColumns = []string{"service", "holder", "epoch", "started_at", "completed_at", "duration_ms", "next_at", "fired_at"}

func (s *Store) serviceStates(ctx context.Context, q sq.SelectBuilder) (map[string]ServiceState, error) {
	all := map[string]ServiceState{}
	err := query(ctx, s.beat, q, func(r *sql.Rows) error {
		var x ServiceState
		var ms int64
		err := r.Scan(&x.Service, &x.Holder, &x.Epoch, instant{&x.StartedAt}, instant{&x.CompletedAt}, &ms, instant{&x.NextAt}, instant{&x.FiredAt})
		x.Duration = time.Duration(ms) * time.Millisecond
		all[x.Service] = x
		return err
	})
	return all, s.fault("read what the services did", err)
}

// SaveServiceState notes what a service did; times that are 0 stay as they were. What a newer leader has written is
// left alone.
func (s *Store) SaveServiceState(ctx context.Context, x ServiceState) error {
	set := map[string]any{"holder": x.Holder, "epoch": int64(x.Epoch)}
	for column, at := range map[string]capri.Instant{"started_at": x.StartedAt, "completed_at": x.CompletedAt, "next_at": x.NextAt, "fired_at": x.FiredAt} {
		if at != 0 {
			set[column] = int64(at)
		}
	}
	if x.CompletedAt != 0 {
		set["duration_ms"] = x.Duration.Milliseconds()
	}
	what := "note what " + x.Service + " did"
	n, err := s.beatExec(ctx, what, sq.Update("service_state").SetMap(set).Where(sq.And{sq.Eq{"service": x.Service}, sq.LtOrEq{"epoch": int64(x.Epoch)}}))
	if err != nil || n > 0 {
		return err
	}
	set["service"], set["duration_ms"] = x.Service, x.Duration.Milliseconds()
	_, err = s.beatExec(ctx, what, sq.Insert("service_state").SetMap(set))
	if err != nil && s.d.IsDuplicate(err) {
		return nil // it is a newer leader's
	}
	return err
}

// Trigger asks a service to run now, wherever it is led. A second request before the first was heard is the same one.
func (tx *Tx) Trigger(service string) error {
	if err := tx.note("service_trigger", sq.Eq{"service": service}); err != nil {
		return err
	}
	if !slices.ContainsFunc(capri.Services, func(x capri.ServiceName) bool { return x.Name == service }) {
		return capri.NotFound("there is no service %q; those that exist: %s", service, capri.ServiceNames())
	}
	_, err := tx.exec(sq.Insert("service_trigger").Columns("service", "triggered_at").Values(service, int64(tx.Now)).
		Suffix(tx.s.d.Upsert([]string{"service"}, "triggered_at")))
	return err
}

// Triggers gives the services that somebody asked to run, and when.
func (s *Store) Triggers(ctx context.Context) (map[string]capri.Instant, error) {
	all, err := pairs[string, capri.Instant](ctx, s.beat, sq.Select("service", "triggered_at").From("service_trigger"))
	return all, s.fault("read which services were triggered", err)
}

// TakeTrigger takes a request off, by who holds the service's lease; false: it was taken, renewed, or is not his to
// take. Take it before the run, not after it: what is asked for during the run may be more than the run saw.
func (s *Store) TakeTrigger(ctx context.Context, service string, at capri.Instant, l capri.Lease) (bool, error) {
	n, err := s.beatExec(ctx, "take the trigger of "+service, sq.Delete("service_trigger").
		Where(sq.Eq{"service": service, "triggered_at": int64(at)}).
		Where("EXISTS (SELECT 1 FROM capri_service_lock l WHERE l.service = ? AND l.epoch = ?)", l.Service, int64(l.Epoch)))
	return n > 0, err
}
