package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"math/rand/v2"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// A service's lease is its row in capri_service_lock. Nobody takes it by the clock: a master watches the row's epoch
// and renewals, and when they have stood still for the lease's life by the master's own monotonic clock, or holder
// is empty, it acquires by comparing what it saw. So no two clocks are ever compared, and a row that moved in between
// is not taken. The epoch fences: Store.WriteAs proves it inside every write transaction.
//
// The rows are the migration's (schema.Up). A master never makes one: the epochs of a row that vanished and came back
// would begin anew, and a master that slept through it would hold a valid one.
//
// All of this uses the small pool of beats and leases, so that generating a hundred thousand batches does not cost a
// master its leases.

// ServiceLock is the state of one lease.
type ServiceLock struct {
	Service    string
	Holder     string // "": nobody, it may be taken at once
	Epoch      capri.Epoch
	Renewals   int64 // grows with each renewal; observers watch it move
	AcquiredAt capri.Instant

	Paused       bool
	PausedReason string
	PausedUntil  capri.Instant // 0: until somebody resumes
	MaxRunning   int           // -1 no limit, 0 none
}

// Locks gives every lease, by service.
func (s *Store) Locks(ctx context.Context) ([]ServiceLock, error) {
	q := sq.Select("service", "holder", "epoch", "renewals", "acquired_at", "paused", "paused_reason", "paused_until", "max_running").
		From("capri_service_lock").OrderBy("service")
	all, err := collect(ctx, s.beat, q, func(r *sql.Rows, l *ServiceLock) error {
		return r.Scan(&l.Service, &l.Holder, &l.Epoch, &l.Renewals, &l.AcquiredAt, &l.Paused, &l.PausedReason, instant{&l.PausedUntil}, &l.MaxRunning)
	})
	return all, s.fault("read service leases", err)
}

// AcquireLease takes a lease that the caller judged free: holder empty, or epoch and renewals unmoved for the lease's
// life. It succeeds only if the row is still as seen; of two masters that saw the same one gets it. A lost answer
// leaves a grant that nobody renews, and that lapses.
func (s *Store) AcquireLease(ctx context.Context, service, holder string, seen ServiceLock) (capri.Lease, bool, error) {
	if err := named("holder", holder, 190); err != nil {
		return capri.Lease{}, false, err
	}
	n, err := s.beatExec(ctx, "acquire the lease of "+service, sq.Update("capri_service_lock").
		Set("holder", holder).Set("epoch", int64(seen.Epoch)+1).Set("renewals", seen.Renewals+1).Set("acquired_at", s.nowInText()).
		Where(sq.Eq{"service": service, "epoch": int64(seen.Epoch), "renewals": seen.Renewals}))
	if err != nil || n == 0 {
		return capri.Lease{}, false, err
	}
	return capri.Lease{Service: service, Holder: holder, Epoch: seen.Epoch + 1}, true, nil
}

// RenewLease shows observers that the holder lives; false: the lease is lost or was released.
func (s *Store) RenewLease(ctx context.Context, l capri.Lease) (bool, error) {
	n, err := s.beatExec(ctx, "renew the lease of "+l.Service, sq.Update("capri_service_lock").Set("renewals", sq.Expr("renewals + 1")).
		Where(sq.Eq{"service": l.Service, "epoch": int64(l.Epoch), "holder": l.Holder}))
	return n > 0, err
}

// ReleaseLease gives a lease back, so that the next master need not wait for it to lapse. One that is lost already
// is left alone. The epoch stays valid until the next grant: release when the service's last write has ended.
func (s *Store) ReleaseLease(ctx context.Context, l capri.Lease) error {
	_, err := s.beatExec(ctx, "release the lease of "+l.Service, sq.Update("capri_service_lock").Set("holder", "").
		Where(sq.Eq{"service": l.Service, "epoch": int64(l.Epoch), "holder": l.Holder}))
	return err
}

// ServiceRun is one turn of a service.
type ServiceRun struct {
	ID        int64
	Service   string
	Epoch     capri.Epoch
	Holder    string
	StartedAt capri.Instant
	Duration  time.Duration
	Counts    map[string]int
	Error     string
}

// keptRuns of each service are there to look at: hours of dispatch at its busiest, weeks of the others.
const keptRuns = 10_000

// RecordRun notes that a turn has ended, and now and then forgets the oldest.
func (s *Store) RecordRun(ctx context.Context, r ServiceRun) error {
	counts, err := json.Marshal(r.Counts)
	if err != nil {
		return err
	}
	if err := fits("counts", string(counts), 512); err != nil {
		return err
	}
	_, err = s.beatExec(ctx, "record a run of "+r.Service, sq.Insert("service_run").
		Columns("service", "epoch", "holder", "started_at", "duration_ms", "counts", "error").
		Values(r.Service, int64(r.Epoch), r.Holder, int64(r.StartedAt), r.Duration.Milliseconds(), string(counts), loggable(r.Error, 1000)))
	if err != nil || rand.IntN(keptRuns/100) > 0 {
		return err
	}
	return s.forgetRuns(ctx, r.Service, keptRuns)
}

// forgetRuns deletes what is older than the newest so many runs of a service, a few hundred at once.
func (s *Store) forgetRuns(ctx context.Context, service string, keep int) error {
	ids, err := column[int64](ctx, s.beat, sq.Select("id").From("service_run").Where(sq.Eq{"service": service}).
		OrderBy("started_at DESC", "id DESC").Limit(uint64(s.d.ChunkRows)).Offset(uint64(keep)))
	if err != nil || len(ids) == 0 {
		return s.fault("look for old runs of "+service, err)
	}
	_, err = s.beatExec(ctx, "forget old runs of "+service, sq.Delete("service_run").Where(idIn("id", ids)))
	return err
}

// RunPosition is where a page of runs ends.
type RunPosition struct {
	At capri.Instant
	ID int64
}

// RunFilter chooses runs of a service. Zero fields choose all.
type RunFilter struct {
	Service  string
	Failed   bool          // only those that ended with an error
	From, To capri.Instant // begun in [From, To)
	After    RunPosition
	Limit    int
}

// ServiceRuns lists runs of a service, the newest first.
func (s *Store) ServiceRuns(ctx context.Context, f RunFilter) ([]ServiceRun, error) {
	var all []ServiceRun
	err := query(ctx, s.read, serviceRuns(f), func(r *sql.Rows) error {
		x, ms, counts := ServiceRun{Service: f.Service}, int64(0), ""
		if err := r.Scan(&x.ID, &x.Epoch, &x.Holder, &x.StartedAt, &ms, &counts, &x.Error); err != nil {
			return err
		}
		x.Duration = time.Duration(ms) * time.Millisecond
		all = append(all, x)
		return json.Unmarshal([]byte(counts), &all[len(all)-1].Counts)
	})
	return all, s.fault("read a service's runs", err)
}

func serviceRuns(f RunFilter) sq.SelectBuilder {
	q := sq.Select("id", "epoch", "holder", "started_at", "duration_ms", "counts", "error").From("service_run").
		Where(sq.Eq{"service": f.Service}).OrderBy("started_at DESC", "id DESC").Limit(uint64(max(f.Limit, 0)))
	if f.Failed {
		q = q.Where("error <> ''")
	}
	if f.From != 0 {
		q = q.Where("started_at >= ?", int64(f.From))
	}
	if f.To != 0 {
		q = q.Where("started_at < ?", int64(f.To))
	}
	if f.After.ID != 0 {
		q = q.Where("(started_at < ? OR started_at = ? AND id < ?)", int64(f.After.At), int64(f.After.At), f.After.ID).Where("started_at <= ?", int64(f.After.At))
	}
	return q
}

// LastRuns gives the newest run of each service.
func (s *Store) LastRuns(ctx context.Context) (map[string]ServiceRun, error) {
	runs := map[string]ServiceRun{}
	// From service to service along the index: grouping would read every run there ever was.
	for last := ""; ; {
		var r ServiceRun
		var ms int64
		var counts string
		q := sq.Select("service", "epoch", "holder", "started_at", "duration_ms", "counts", "error").From("service_run").
			Where("service = (SELECT MIN(n.service) FROM service_run n WHERE n.service > ?)", last).OrderBy("started_at DESC", "id DESC").Limit(1)
		found, err := one(ctx, s.beat, q, &r.Service, &r.Epoch, &r.Holder, &r.StartedAt, &ms, &counts, &r.Error)
		if err != nil {
			return nil, s.fault("read the services' last runs", err)
		}
		if !found {
			return runs, nil
		}
		if err := json.Unmarshal([]byte(counts), &r.Counts); err != nil {
			return nil, s.fault("read the services' last runs", err)
		}
		r.Duration = time.Duration(ms) * time.Millisecond
		runs[r.Service] = r
		last = r.Service
	}
}

// beatExec runs one statement on the pool of beats and leases.
func (s *Store) beatExec(ctx context.Context, what string, b sq.Sqlizer) (int, error) {
	text, args, err := b.ToSql()
	if err != nil {
		return 0, s.fault(what, err)
	}
	r, err := s.beat.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, s.fault(what, err)
	}
	n, err := r.RowsAffected()
	return int(n), s.fault(what, err)
}

// nowInText is the database's clock as a value of a statement: no second round trip, and no clock of ours.
func (s *Store) nowInText() any {
	if s.now != nil {
		return int64(s.now())
	}
	return sq.Expr(s.d.NowMillis)
}
