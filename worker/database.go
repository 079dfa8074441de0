package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"capri"
	"capri/sql/store"
)

// Database is what the worker asks of the store. It is an interface so that a test can take the database away.
type Database interface {
	RegisterNode(ctx context.Context, n capri.Node, directoryID string) error
	LeaveNode(ctx context.Context, node, boot string) (left bool, err error)
	Beat(ctx context.Context, n capri.Node) (ok bool, err error)
	Now(ctx context.Context) (capri.Instant, error)
	ReportInventory(ctx context.Context, node, boot string, attempts []capri.Attempt) error
	ReportProgress(ctx context.Context, a capri.Attempt, percent int) error
	ReportUsage(ctx context.Context, node string, used map[capri.Attempt]store.Usage) error
	Claim(ctx context.Context, node, boot string, limit int) ([]store.Claimed, error)
	Start(ctx context.Context, node, boot string, attempts []capri.Attempt) ([]capri.Attempt, error)
	RollBack(ctx context.Context, node string, back []store.GiveBack) error
	PathsGone(ctx context.Context, node string, gone []capri.PathCondition) error
	FinishAttempts(ctx context.Context, node string, results []store.Result) (int, error)
	KillsAsked(ctx context.Context, node string) ([]capri.Attempt, error)
	HeldBy(ctx context.Context, node string) ([]store.Claimed, error)
	HeldAttempts(ctx context.Context, node string) ([]store.HeldAttempt, error)
	OutputsOf(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID][]capri.PathCondition, error)
}

var _ Database = (*store.Store)(nil)

// health says once that the database is away, and once that it is back, however many goroutines notice.
type health struct {
	log *slog.Logger
	mu  sync.Mutex
	bad time.Time // since when; zero: it answers
}

// note takes the outcome of a call and tells whether the same call may succeed later: yes, unless the database has
// answered and said no.
func (h *health) note(err error) (again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		if !h.bad.IsZero() {
			h.log.Info("the database answers again", "after", time.Since(h.bad).Round(time.Millisecond))
			h.bad = time.Time{}
		}
		return false
	case errors.Is(err, context.Canceled), errors.Is(err, errFinal):
		return false
	case errors.Is(err, capri.ErrForbidden), errors.Is(err, capri.ErrConflict):
		return false // it answers, and says no
	}
	if h.bad.IsZero() {
		h.bad = time.Now()
		h.log.Warn("the database does not take what the worker writes; it is kept and tried again", "err", err)
	}
	return true
}

// The pauses between tries while the database is away.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
)

// away: the database cannot be reached now.
func away(err error) bool {
	return errors.Is(err, capri.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// await calls f until the database answers, whatever it answers.
func (w *Worker) await(ctx context.Context, f func(context.Context) error) error {
	return w.persist(ctx, func(ctx context.Context) error {
		err := f(ctx)
		if err != nil && !away(err) {
			return &final{err}
		}
		return err
	})
}

// final is an error that trying again does not cure.
type final struct{ error }

func (f *final) Unwrap() error        { return f.error }
func (f *final) Is(target error) bool { return target == errFinal }

var errFinal = errors.New("final")

// persist calls f until it succeeds, is refused, or ctx ends.
func (w *Worker) persist(ctx context.Context, f func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		err := f(ctx)
		if !w.health.note(err) {
			return err
		}
		if !sleep(ctx, pause) {
			return err
		}
	}
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
