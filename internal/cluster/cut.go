package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"capri"
	"capri/sql/store"
	"capri/worker"
)

// Cut parts a worker from the database, or joins them again. The worker and its jobs live on, and the database does not
// know it.
func (p *Process) Cut(off bool) { p.cut.Store(off) }

// link is a worker's way to the database.
type link struct {
	to  worker.Database
	cut *atomic.Bool
}

// through makes a call, unless the link is cut. One that is cut while it is under way has done its work, and nobody
// hears of it.
func through[T any](l link, call func() (T, error)) (T, error) {
	var nothing T
	if l.cut.Load() {
		return nothing, fmt.Errorf("the link is cut: %w", capri.ErrUnavailable)
	}
	v, err := call()
	if l.cut.Load() {
		return nothing, fmt.Errorf("the link was cut: %w", capri.ErrUnavailable)
	}
	return v, err
}

// only is through for calls that answer with an error alone.
func only(l link, call func() error) error {
	_, err := through(l, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func (l link) RegisterNode(ctx context.Context, n capri.Node, directoryID string) error {
	return only(l, func() error { return l.to.RegisterNode(ctx, n, directoryID) })
}

func (l link) LeaveNode(ctx context.Context, node, boot string) (bool, error) {
	return through(l, func() (bool, error) { return l.to.LeaveNode(ctx, node, boot) })
}

func (l link) Beat(ctx context.Context, n capri.Node) (bool, error) {
	return through(l, func() (bool, error) { return l.to.Beat(ctx, n) })
}

func (l link) Now(ctx context.Context) (capri.Instant, error) {
	return through(l, func() (capri.Instant, error) { return l.to.Now(ctx) })
}

func (l link) ReportInventory(ctx context.Context, node, boot string, attempts []capri.Attempt) error {
	return only(l, func() error { return l.to.ReportInventory(ctx, node, boot, attempts) })
}

func (l link) ReportProgress(ctx context.Context, a capri.Attempt, percent int) error {
	return only(l, func() error { return l.to.ReportProgress(ctx, a, percent) })
}

func (l link) ReportUsage(ctx context.Context, node string, used map[capri.Attempt]store.Usage) error {
	return only(l, func() error { return l.to.ReportUsage(ctx, node, used) })
}

func (l link) Claim(ctx context.Context, node, boot string, limit int) ([]store.Claimed, error) {
	return through(l, func() ([]store.Claimed, error) { return l.to.Claim(ctx, node, boot, limit) })
}

func (l link) Start(ctx context.Context, node, boot string, attempts []capri.Attempt) ([]capri.Attempt, error) {
	return through(l, func() ([]capri.Attempt, error) { return l.to.Start(ctx, node, boot, attempts) })
}

func (l link) RollBack(ctx context.Context, node string, back []store.GiveBack) error {
	return only(l, func() error { return l.to.RollBack(ctx, node, back) })
}

func (l link) PathsGone(ctx context.Context, node string, gone []capri.PathCondition) error {
	return only(l, func() error { return l.to.PathsGone(ctx, node, gone) })
}

func (l link) FinishAttempts(ctx context.Context, node string, results []store.Result) (int, error) {
	return through(l, func() (int, error) { return l.to.FinishAttempts(ctx, node, results) })
}

func (l link) KillsAsked(ctx context.Context, node string) ([]capri.Attempt, error) {
	return through(l, func() ([]capri.Attempt, error) { return l.to.KillsAsked(ctx, node) })
}

func (l link) HeldBy(ctx context.Context, node string) ([]store.Claimed, error) {
	return through(l, func() ([]store.Claimed, error) { return l.to.HeldBy(ctx, node) })
}

func (l link) HeldAttempts(ctx context.Context, node string) ([]store.HeldAttempt, error) {
	return through(l, func() ([]store.HeldAttempt, error) { return l.to.HeldAttempts(ctx, node) })
}

func (l link) OutputsOf(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID][]capri.PathCondition, error) {
	return through(l, func() (map[capri.BatchID][]capri.PathCondition, error) { return l.to.OutputsOf(ctx, ids) })
}

// faster is a clock that is never set and runs so many times as fast as time goes by.
func faster(times int) func() time.Time {
	began := time.Now()
	return func() time.Time { return began.Add(time.Duration(times) * time.Since(began)) }
}
