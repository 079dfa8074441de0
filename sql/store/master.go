package store

import (
	"context"
	"database/sql"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
	"capri/internal/failpoint"
)

// Master is the registration of a master: a row of capri_master. Observers watch Beat move, each on its own monotonic
// clock; LastCheckTime is for people.
type Master struct {
	Name          string
	Instance      string // new with every life of the process
	Host          string
	PID           int
	Listen        string
	Version       string
	Beat          int64
	LastCheckTime capri.Instant
	StartTime     capri.Instant
	ClockOffset   time.Duration // its clock minus the database's
	Stopped       bool          // it left in order
}

// Holder is the name under which this life of the master holds leases.
func (m Master) Holder() string { return m.Name + "/" + m.Instance }

var masterColumns = []string{"name", "instance", "host", "pid", "listen", "version", "beat", "last_check_time", "start_time", "clock_offset_ms", "stopped"}

// Masters gives every registration, by name: also of masters that have stopped, or died.
func (s *Store) Masters(ctx context.Context) ([]Master, error) {
	all, err := collect(ctx, s.beat, sq.Select(masterColumns...).From("capri_master").OrderBy("name"), func(r *sql.Rows, m *Master) error {
		var offset int64
		err := r.Scan(&m.Name, &m.Instance, &m.Host, &m.PID, &m.Listen, &m.Version, &m.Beat, &m.LastCheckTime, &m.StartTime, &offset, &m.Stopped)
		m.ClockOffset = time.Duration(offset) * time.Millisecond
		return err
	})
	return all, s.fault("read the masters", err)
}

// forgottenAfter is how long a registration that nobody beats for is kept to be looked at. On machines whose names are
// made up at each start they would pile up.
const forgottenAfter = 7 * 24 * time.Hour

// RegisterMaster takes a name for a new life. seen is the registration that the caller judged to be over, nil where it
// saw none; of two that saw the same one gets the name, and one that has beaten meanwhile keeps it.
func (s *Store) RegisterMaster(ctx context.Context, m Master, seen *Master) (bool, error) {
	if err := named("name of the master", m.Name, 128); err != nil {
		return false, err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return false, err
	}
	if _, err := s.beatExec(ctx, "forget old masters", sq.Delete("capri_master").
		Where(sq.And{sq.Lt{"last_check_time": int64(now.Add(-forgottenAfter))}, sq.NotEq{"name": m.Name}})); err != nil {
		return false, err
	}
	what := "register master " + m.Name
	if seen == nil {
		_, err := s.beatExec(ctx, what, sq.Insert("capri_master").Columns(masterColumns...).
			Values(m.Name, m.Instance, cut(m.Host, 190), m.PID, cut(m.Listen, 190), cut(m.Version, 64), 1, int64(now), int64(now), m.ClockOffset.Milliseconds(), 0))
		if err != nil && s.d.IsDuplicate(err) {
			return false, nil
		}
		return err == nil, err
	}
	n, err := s.beatExec(ctx, what, sq.Update("capri_master").Set("instance", m.Instance).Set("host", cut(m.Host, 190)).Set("pid", m.PID).
		Set("listen", cut(m.Listen, 190)).Set("version", cut(m.Version, 64)).Set("beat", seen.Beat+1).Set("last_check_time", int64(now)).
		Set("start_time", int64(now)).Set("clock_offset_ms", m.ClockOffset.Milliseconds()).Set("stopped", 0).
		Where(sq.Eq{"name": m.Name, "instance": seen.Instance, "beat": seen.Beat}))
	return n > 0, err
}

// BeatMaster shows observers that the master lives; false: its name is another life's now, or its row was deleted.
func (s *Store) BeatMaster(ctx context.Context, name, instance string, offset time.Duration) (bool, error) {
	n, err := s.beatExec(ctx, "beat of master "+name, sq.Update("capri_master").Set("beat", sq.Expr("beat + 1")).
		Set("last_check_time", s.nowInText()).Set("clock_offset_ms", offset.Milliseconds()).Set("stopped", 0).
		Where(sq.Eq{"name": name, "instance": instance}))
	return n > 0, err
}

// StopMaster notes that a master has left in order, so that nobody waits for its beat to stand still.
func (s *Store) StopMaster(ctx context.Context, name, instance string) error {
	_, err := s.beatExec(ctx, "sign off master "+name, sq.Update("capri_master").Set("stopped", 1).
		Where(sq.Eq{"name": name, "instance": instance}))
	return err
}

// ClockOffset is this process's clock minus the database's, as seen at the middle of one round trip, and how
// long that took: the truth is at most half of it away. Where the database has no clock of its own it is 0.
func (s *Store) ClockOffset(ctx context.Context) (offset, took time.Duration, err error) {
	if s.now != nil {
		return 0, 0, nil
	}
	began, ours := time.Now(), failpoint.Now() //nolint:forbidigo // the local clock is what is measured
	theirs, err := s.Now(ctx)
	took = time.Since(began)
	return capri.InstantOf(ours.Add(took / 2)).Sub(theirs), took, err
}
