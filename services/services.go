// Package services says what a service is and runs them. A service reads facts, decides, and writes its decisions
// under its lease; it is told the time and holds no clock, no lock and no channel. The Runner knows those: when a
// service is due, whether this process leads it, what to record of the turn and whom to wake after it.
//
// A package is in services/ because it has a row in the timetable (package master); the row's name is its name in
// `capri service list`, in service_run, and in the logs.
package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"capri"
	"capri/sql/store"
	"capri/wake"
)

// Turn is one run of a service: what time it is by the database's clock, and the lease it writes under. Woken says that
// a wake-up or Result.Next caused it and no tick: something particular changed, there is no need to look at everything.
type Turn struct {
	Now   capri.Instant
	Lease capri.Lease
	Woken bool
}

// Result is what a turn did and what should happen next.
type Result struct {
	Counts map[string]int // what was done, for people; empty: there was nothing to do
	Wake   []string       // topics, woken after the turn
	Next   capri.Instant  // run again at this time, if that is before the next tick; 0: the tick will do
	Again  bool           // there is more to do: run again at once
}

// Service does one thing of the timetable.
type Service interface {
	Run(ctx context.Context, t Turn) (Result, error)
}

// Row is a line of the timetable.
type Row struct {
	Name  string        // of the service
	Part  string        // where a service has several rhythms: which; else ""
	Lease string        // whose row in capri_service_lock it runs under
	Every time.Duration // its tick
	Wake  []string      // topics that make it run at once
	Service
}

// String is the row's name in logs.
func (r Row) String() string {
	if r.Part == "" {
		return r.Name
	}
	return r.Name + "/" + r.Part
}

// Leases gives the right to run.
type Leases interface {
	Held(service string) (capri.Lease, bool)
	Drop(capri.Lease)
}

// Runner runs one row. Tick makes it look whether it is due; everything else it learns by itself.
type Runner struct {
	row    Row
	store  *store.Store
	leases Leases
	waker  wake.Waker
	log    *slog.Logger
	ticks  chan struct{}
}

// NewRunner makes the runner of a row.
func NewRunner(row Row, s *store.Store, leases Leases, w wake.Waker, log *slog.Logger) *Runner {
	return &Runner{row: row, store: s, leases: leases, waker: w, log: log.With("service", row.String()), ticks: make(chan struct{}, 1)}
}

// Tick asks for a turn, without waiting. Ticks that come during a turn become one turn after it.
func (r *Runner) Tick() {
	select {
	case r.ticks <- struct{}{}:
	default:
	}
}

// pauseAfterError keeps a failing service from spinning on its wake-ups, which may be its own.
const pauseAfterError = time.Second

// Run takes turns until ctx ends. The turn under way is finished within the context it was given.
func (r *Runner) Run(ctx context.Context) {
	woken, stop := r.waker.Listen(r.row.Wake...)
	defer stop()
	again := time.NewTimer(time.Hour)
	again.Stop()
	defer again.Stop()
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return
		case <-r.ticks:
			ticked = true
		case <-woken:
		case <-again.C:
		}
		lease, ok := r.leases.Held(r.row.Lease)
		if !ok {
			continue
		}
		res, now, err := r.turn(ctx, lease, !ticked)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, capri.ErrStaleEpoch):
			r.log.Warn("the lease was taken over", "epoch", lease.Epoch)
			r.leases.Drop(lease)
		case err != nil:
			r.log.Error("a turn failed", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pauseAfterError):
			}
			r.Tick()
		case res.Again:
			r.Tick()
		case res.Next != 0:
			again.Reset(max(res.Next.Sub(now), time.Millisecond))
		}
	}
}

func (r *Runner) turn(ctx context.Context, lease capri.Lease, woken bool) (res Result, now capri.Instant, err error) {
	now, err = r.store.Now(ctx)
	if err != nil {
		return res, now, err
	}
	began := time.Now()
	res, err = r.guarded(ctx, Turn{Now: now, Lease: lease, Woken: woken})
	took := time.Since(began)
	r.waker.Wake(res.Wake...)
	if err == nil && len(res.Counts) == 0 { // an idle turn leaves no row: once a second that would be all there is
		return res, now, nil
	}
	run := store.ServiceRun{Service: r.row.Name, Epoch: lease.Epoch, Holder: lease.Holder, StartedAt: now, Duration: took, Counts: res.Counts}
	if err != nil {
		run.Error = err.Error()
	}
	if e := r.store.RecordRun(ctx, run); e != nil && err == nil && !errors.Is(e, context.Canceled) {
		r.log.Warn("a turn was not recorded", "err", e)
	}
	return res, now, err
}

// guarded turns a panic of a service into an error of that turn: one bad row must not end the process.
func (r *Runner) guarded(ctx context.Context, t Turn) (res Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("a turn panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal fault: %v", p)
		}
	}()
	return r.row.Service.Run(ctx, t)
}
