package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
	"capri/internal/failpoint"
	"capri/sql/dialect"
)

// Tx is one write transaction. It knows who acts and what time it is, so that all its rows agree.
type Tx struct {
	ctx   context.Context
	tx    *sql.Tx
	s     *Store
	Now   capri.Instant           // the database's clock when the transaction began
	who   string                  // for batch_event: a service, a node, a person, an app
	epoch capri.Epoch             // of the service's lease; 0 for others
	names map[capri.TaskID]string // of tasks that an alert named in this transaction
	notes []rowNote               // rows that are about to change, for the log of actions
}

// tries bounds how often a whole transaction is run again after a deadlock, a lock time-out or a lost connection. With
// everybody changing the same few batches at once one transaction in some ten thousand met five deadlocks in a row
// (TestARandomWalk_…), and a person then reads about a deadlock.
const tries = 8

// Write runs fn in a transaction on behalf of who. fn may run several times and must not keep what it did
// in memory. Any error rolls everything back. A lost COMMIT reply may have committed: what fn writes has
// natural keys or compares before it sets, so that doing it again is harmless (design §4 rule 4).
func (s *Store) Write(ctx context.Context, what, who string, fn func(*Tx) error) error {
	return s.transact(ctx, what, &Tx{who: who}, nil, fn)
}

// WriteAs is Write for a service: the transaction first proves, by a locking read that keeps the row until commit,
// that the lease's epoch is still the newest; else it fails with capri.ErrStaleEpoch and writes nothing.
func (s *Store) WriteAs(ctx context.Context, what string, lease capri.Lease, fn func(*Tx) error) error {
	return s.transact(ctx, what, &Tx{who: lease.Service, epoch: lease.Epoch}, &lease, fn)
}

func (s *Store) transact(ctx context.Context, what string, proto *Tx, lease *capri.Lease, fn func(*Tx) error) error {
	for try := 1; ; try++ {
		tx := *proto
		err := s.once(ctx, &tx, lease, fn)
		if err == nil {
			return nil
		}
		if !s.d.IsRetryable(err) || try == tries || ctx.Err() != nil {
			return s.fault(what, err)
		}
		s.log.Debug("transaction runs again", "what", what, "try", try, "err", err)
		select {
		case <-ctx.Done():
			return s.fault(what, ctx.Err())
		case <-time.After(time.Duration(rand.Int64N(int64(20*time.Millisecond) << min(try, 4)))): //nolint:forbidigo // jitter, not logic
		}
	}
}

func (s *Store) once(ctx context.Context, tx *Tx, lease *capri.Lease, fn func(*Tx) error) (err error) {
	if s.queue != nil {
		if err := s.queue.enter(ctx, lease != nil); err != nil {
			return err
		}
		defer s.queue.leave()
	}
	t, err := s.write.BeginTx(ctx, &sql.TxOptions{Isolation: s.d.Isolation})
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if p := recover(); p != nil {
			t.Rollback()
			panic(fmt.Sprintf("%v\n%s", p, debug.Stack()))
		}
		if !done {
			t.Rollback()
		}
	}()
	tx.ctx, tx.tx, tx.s = ctx, t, s
	if err := tx.begin(lease); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.noteRepeatable(); err != nil {
		return err
	}
	if err := failpoint.Cut(failpoint.BeforeCommit); err != nil {
		return err
	}
	done = true
	if err := t.Commit(); err != nil {
		return err
	}
	return failpoint.Cut(failpoint.AfterCommit)
}

// begin reads the clock and, for a service, proves its epoch, in one round trip.
func (tx *Tx) begin(lease *capri.Lease) error {
	if tx.s.now != nil {
		tx.Now = tx.s.now()
	}
	clock := tx.s.d.NowMillis
	if clock == "" || tx.s.now != nil {
		clock = "0"
	}
	var now int64
	switch {
	case lease != nil:
		var epoch capri.Epoch
		err := tx.tx.QueryRowContext(tx.ctx, "SELECT epoch, "+clock+" FROM capri_service_lock WHERE service = ?"+tx.s.d.ForShare, lease.Service).Scan(&epoch, &now)
		if errors.Is(err, sql.ErrNoRows) || (err == nil && epoch != lease.Epoch) {
			return capri.ErrStaleEpoch // a missing row stops the service as well
		}
		if err != nil {
			return err
		}
	case clock != "0":
		if err := tx.tx.QueryRowContext(tx.ctx, "SELECT "+clock).Scan(&now); err != nil {
			return err
		}
	}
	if tx.Now == 0 {
		tx.Now = capri.Instant(now)
	}
	return nil
}

// exec runs a builder's statement and tells how many rows it found.
func (tx *Tx) exec(b sq.Sqlizer) (int, error) {
	text, args, err := b.ToSql()
	if err != nil {
		return 0, fmt.Errorf("build statement: %w", err)
	}
	return tx.execText(text, args...)
}

func (tx *Tx) execText(text string, args ...any) (int, error) {
	r, err := tx.tx.ExecContext(tx.ctx, text, args...)
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	return int(n), err
}

func (tx *Tx) query(b sq.Sqlizer, row func(*sql.Rows) error) error {
	return query(tx.ctx, tx.tx, b, row)
}

// querier is a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query runs a SELECT and hands each row to row.
func query(ctx context.Context, q querier, b sq.Sqlizer, row func(*sql.Rows) error) error {
	text, args, err := b.ToSql()
	if err != nil {
		return fmt.Errorf("build query: %w", err)
	}
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// one reads a single row; found is false where there is none.
func one(ctx context.Context, q querier, b sq.Sqlizer, dest ...any) (found bool, err error) {
	err = query(ctx, q, b, func(r *sql.Rows) error {
		found = true
		return r.Scan(dest...)
	})
	return found, err
}

// collect reads all rows of a query, each with scan.
func collect[T any](ctx context.Context, q querier, b sq.Sqlizer, scan func(*sql.Rows, *T) error) ([]T, error) {
	var all []T
	err := query(ctx, q, b, func(r *sql.Rows) error {
		var row T
		err := scan(r, &row)
		all = append(all, row)
		return err
	})
	return all, err
}

// column reads a query of one column.
func column[T any](ctx context.Context, q querier, b sq.Sqlizer) ([]T, error) {
	return collect(ctx, q, b, func(r *sql.Rows, value *T) error { return r.Scan(value) })
}

// pairs reads a query of two columns, the second by the first.
func pairs[K comparable, V any](ctx context.Context, q querier, b sq.Sqlizer) (map[K]V, error) {
	all := map[K]V{}
	err := query(ctx, q, b, func(r *sql.Rows) error {
		var key K
		var value V
		err := r.Scan(&key, &value)
		all[key] = value
		return err
	})
	return all, err
}

// fault translates a driver's error once, at the database's edge: what was being tried, and the kind.
func (s *Store) fault(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, capri.ErrInvalid), errors.Is(err, capri.ErrNotFound), errors.Is(err, capri.ErrConflict),
		errors.Is(err, capri.ErrForbidden), errors.Is(err, capri.ErrStaleEpoch), errors.Is(err, capri.ErrUnavailable):
		return err // ours already: it says what people need
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	}
	if why := s.d.Down(err); why != "" {
		if s.isReadOnly(err) {
			why = dialect.ReadOnly
		}
		return &DownError{Why: why, what: what, err: err}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// isReadOnly asks a server about which the driver says no more than that the connection is gone: people look for another
// cause where it is silent than where it only takes no writes.
func (s *Store) isReadOnly(err error) bool {
	if s.d.AskReadOnly == "" || !errors.Is(err, driver.ErrBadConn) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	is := false
	return s.beat.QueryRowContext(ctx, s.d.AskReadOnly).Scan(&is) == nil && is
}

// DownError keeps the driver's words for the log while its kind is "not reachable". Why is what people read, as the end
// of "the database …".
type DownError struct {
	Why  string
	what string
	err  error
}

func (e *DownError) Error() string {
	return e.what + ": the database " + e.Why + " (" + e.err.Error() + ")"
}
func (e *DownError) Is(target error) bool { return target == capri.ErrUnavailable }
func (e *DownError) Unwrap() error        { return e.err }

// instant maps 0 to NULL and back.
type instant struct{ p *capri.Instant }

func (i instant) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*i.p = 0
	case int64:
		*i.p = capri.Instant(v)
	default:
		return fmt.Errorf("time column holds %T", v)
	}
	return nil
}

func nullable(i capri.Instant) any {
	if i == 0 {
		return nil
	}
	return int64(i)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// chunks cuts items into pieces of at most n, in order.
func chunks[T any](items []T, n int) [][]T {
	var out [][]T
	for len(items) > n {
		out, items = append(out, items[:n:n]), items[n:]
	}
	if len(items) > 0 {
		out = append(out, items)
	}
	return out
}
