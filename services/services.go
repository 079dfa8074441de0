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
	"capri/internal/failpoint"
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
	// Fires makes it a service of times of day, with no tick: it gives the next such time after an instant. The row
	// runs when one has come since its last complete run, once however many it missed, also as a new leader's first turn.
	Fires func(after capri.Instant) capri.Instant
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
	// Begin gives the lease for one turn and a context that ends when the lease is lost; end says that the turn is over.
	Begin(ctx context.Context, service string) (turn context.Context, l capri.Lease, end func(), ok bool)
	// Drop says that a lease turned out to be somebody else's.
	Drop(capri.Lease)
}

// Runner runs one row. Tick makes it look whether it is due; everything else it learns by itself.
//
//	tick ────────┐                          ┌─ Every: always
//	wake-up ─────┼─▶ lease held? ─▶ due? ───┼─ Fires: when a time of day has come
//	timer ───────┤                          └─ a wake-up, a trigger, Result.Next or .Again: in any case
//	trigger ─────┘                  │
//	                                ▼
//	                  Service.Run ─▶ service_run, service_state ─▶ wake others
type Runner struct {
	row      Row
	store    *store.Store
	leases   Leases
	waker    wake.Waker
	log      *slog.Logger
	ticks    chan struct{}
	triggers chan struct{}

	// Observe is told of every turn, if it is set before Run.
	Observe func(row string, took time.Duration, err error)

	// Of the loop alone.
	owed    bool          // a turn in any case: the last one failed, or had more to do
	next    capri.Instant // Result.Next of the last turn; 0: none
	nextAt  time.Time     // the same, by this process's monotonic clock
	epoch   capri.Epoch   // for which fired is known
	fired   capri.Instant // the times of day up to here are done
	written time.Time     // when service_state was written last
	noted   capri.Epoch   // and under which grant
}

// NewRunner makes the runner of a row.
func NewRunner(row Row, s *store.Store, leases Leases, w wake.Waker, log *slog.Logger) *Runner {
	return &Runner{row: row, store: s, leases: leases, waker: w, log: log.With("service", row.String()), ticks: make(chan struct{}, 1), triggers: make(chan struct{}, 1)}
}

// Tick asks for a turn if one is due, without waiting. Ticks that come during a turn become one turn after it.
func (r *Runner) Tick() { signal(r.ticks) }

// Trigger asks for a turn whether one is due or not.
func (r *Runner) Trigger() { signal(r.triggers) }

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// cause of a look whether to run.
type cause int

const (
	byTick cause = iota
	byWake
	byTimer
	byTrigger
)

const (
	// pauseAfterError keeps a failing service from spinning on its wake-ups, which may be its own.
	pauseAfterError = time.Second
	// longestTimer bounds how long a service relies on its own clock for a time that the database's clock decides: a
	// clock that is set forward is noticed after this.
	longestTimer = 5 * time.Second
	// A turn that found nothing to do is noted at most once in this time, and one that did something once a second.
	noteIdle, noteBusy = 10 * time.Second, time.Second
)

// Run takes turns until ctx ends. The turn under way is finished within the context it was given.
func (r *Runner) Run(ctx context.Context) {
	woken, stop := r.waker.Listen(r.row.Wake...)
	defer stop()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		var why cause
		select {
		case <-ctx.Done():
			return
		case <-r.ticks:
			why = byTick
		case <-woken:
			why = byWake
		case <-timer.C:
			why = byTimer
		case <-r.triggers:
			why = byTrigger
		}
		turn, lease, end, ok := r.leases.Begin(ctx, r.row.Lease)
		if !ok {
			r.owed, r.next = false, 0 // who leads next looks at everything at once
			continue
		}
		wait, err := r.look(turn, lease, why)
		lost := turn.Err() != nil
		end()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, capri.ErrStaleEpoch):
			r.log.Warn("the lease was taken over", "epoch", lease.Epoch)
			r.leases.Drop(lease)
		case lost:
			r.owed = true // if it turns out to be ours still
			r.log.Warn("the lease was lost during a turn", "epoch", lease.Epoch, "err", err)
		case err != nil:
			r.log.Error("a turn failed", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pauseAfterError):
			}
			r.owed = true
			r.Tick()
		case r.owed:
			r.Tick()
		}
		if wait > 0 {
			timer.Reset(wait)
		}
	}
}

// look takes a turn if one is due, and says when to look again by itself; 0: the tick will do.
func (r *Runner) look(ctx context.Context, lease capri.Lease, why cause) (wait time.Duration, err error) {
	now, err := r.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	if r.row.Fires != nil && r.epoch != lease.Epoch {
		if err := r.takeOffice(ctx, lease, now); err != nil {
			return 0, err
		}
	}
	if r.due(now, why) {
		// What caused this turn is settled by it; what comes while it runs means another one.
		r.owed = false
		if r.nextCame(now) {
			r.next = 0
		}
		err = r.turn(ctx, lease, now, why)
	}
	return r.untilNext(now), err
}

// takeOffice reads up to when the times of day are done. Where nothing is known they begin now: a new database owes
// nothing of the past.
func (r *Runner) takeOffice(ctx context.Context, lease capri.Lease, now capri.Instant) error {
	state, _, err := r.store.ServiceState(ctx, r.row.String())
	if err != nil {
		return err
	}
	r.fired = min(state.FiredAt, now) // a clock that went back must not silence it until it has caught up
	if r.fired == 0 {
		r.fired = now
		err = r.store.SaveServiceState(ctx, store.ServiceState{Service: r.row.String(), Holder: lease.Holder, Epoch: lease.Epoch, FiredAt: now, NextAt: r.row.Fires(now)})
	}
	if err == nil {
		r.epoch = lease.Epoch
	}
	return err
}

func (r *Runner) due(now capri.Instant, why cause) bool {
	switch {
	case r.owed, why == byWake, why == byTrigger, r.nextCame(now):
		return true
	case r.row.Fires != nil:
		return r.row.Fires(r.fired) <= now
	}
	return why == byTick
}

// nextCame reports whether the time of an earlier Result.Next has come, by the database's clock or by this process's.
func (r *Runner) nextCame(now capri.Instant) bool {
	return r.next != 0 && (now >= r.next || !time.Now().Before(r.nextAt))
}

// untilNext is how long the timer may run.
func (r *Runner) untilNext(now capri.Instant) time.Duration {
	next := r.next
	if r.row.Fires != nil {
		if fire := r.row.Fires(r.fired); next == 0 || fire < next {
			next = fire
		}
	}
	if next == 0 {
		return 0
	}
	return min(max(failpoint.Real(next.Sub(now)), time.Millisecond), longestTimer)
}

func (r *Runner) turn(ctx context.Context, lease capri.Lease, now capri.Instant, why cause) error {
	state := store.ServiceState{Service: r.row.String(), Holder: lease.Holder, Epoch: lease.Epoch, StartedAt: now}
	// Where nothing was noted for a while the start is noted, too: that is how a turn that hangs is seen.
	noted := r.noted != lease.Epoch || time.Since(r.written) >= noteIdle
	if noted {
		r.note(ctx, state)
	}
	began := time.Now()
	res, err := r.guarded(ctx, Turn{Now: now, Lease: lease, Woken: why == byWake || why == byTimer && r.row.Fires == nil})
	took := time.Since(began)
	if r.Observe != nil {
		r.Observe(r.row.String(), took, err)
	}
	r.waker.Wake(res.Wake...)
	idle := err == nil && len(res.Counts) == 0
	if err == nil {
		r.owed = res.Again
		// An earlier time that another turn asked for stays: this one may have looked at something else.
		if res.Next != 0 && (r.next == 0 || res.Next < r.next) {
			r.next, r.nextAt = res.Next, began.Add(failpoint.Real(res.Next.Sub(now)))
		}
		if r.row.Fires != nil && !res.Again {
			// If the note below is lost, the next leader does it once more.
			r.fired, state.FiredAt = now, now
		}
		state.CompletedAt, state.Duration, state.NextAt = now.Add(took), took, r.nextTurn(now)
		age := noteBusy
		if idle {
			age = noteIdle
		}
		if noted || state.FiredAt != 0 || why == byTrigger || time.Since(r.written) >= age {
			r.note(ctx, state)
		}
	}
	if idle { // it leaves no row: once a second that would be all there is
		return nil
	}
	run := store.ServiceRun{Service: r.row.Name, Epoch: lease.Epoch, Holder: lease.Holder, StartedAt: now, Duration: took, Counts: res.Counts}
	if err != nil {
		run.Error = err.Error()
	}
	if e := r.store.RecordRun(ctx, run); e != nil && err == nil && ctx.Err() == nil {
		r.log.Warn("a turn was not recorded", "err", e)
	}
	return err
}

// nextTurn is when the next turn is to be expected.
func (r *Runner) nextTurn(now capri.Instant) capri.Instant {
	next := now.Add(r.row.Every)
	if r.row.Fires != nil {
		next = r.row.Fires(r.fired)
	}
	if r.next != 0 {
		next = min(next, r.next)
	}
	return next
}

// note writes what people and the monitor see of the row. A failure costs them that, and no more.
func (r *Runner) note(ctx context.Context, state store.ServiceState) {
	if err := r.store.SaveServiceState(ctx, state); err != nil {
		if ctx.Err() == nil {
			r.log.Warn("a turn was not noted", "err", err)
		}
		return
	}
	r.written, r.noted = time.Now(), state.Epoch
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
