// Package dispatch places ready batches on nodes; it is the only placer (seed 002 §1.4, design §7).
//
//	limits, nodes, what runs ──▶ facts ─┐
//	ready batches, page by page, in order ──▶ placement.Planner ──▶ assignments ──▶ written, nodes woken
//	                                                          └──▶ reasons ──▶ written where they changed
//
// It stops reading when no node has a free slot, so that a turn costs what can be placed and not what waits. What it
// did not read gets its reason on a slower rhythm.
package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"capri"
	"capri/calendar"
	"capri/internal/failpoint"
	"capri/placement"
	"capri/placement/facts"
	"capri/services"
	"capri/sql/store"
	"capri/wake"
)

// Service dispatches. Make it with New. Between turns it keeps only what makes the next turn's choices fair and its
// reasons calm; losing that changes nothing.
type Service struct {
	store     *store.Store
	calendar  calendar.Calendar
	rng       *rand.Rand
	last      map[string]string // round robin goes on where it stopped
	epoch     capri.Epoch
	explained capri.Instant // when everything that waits for a place was last told why
}

// New makes the service; rng is for the strategy random.
func New(s *store.Store, c calendar.Calendar, rng *rand.Rand) *Service {
	return &Service{store: s, calendar: c, rng: rng, last: map[string]string{}}
}

const (
	page         = 2000
	assignAtOnce = 2000
	explainEvery = 10 * time.Second
	explainMost  = 5000
)

// Run is one turn.
func (s *Service) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	if s.epoch != t.Lease.Epoch { // somebody else may have placed since
		s.epoch, s.explained = t.Lease.Epoch, 0
		clear(s.last)
	}
	latest, err := facts.Latest(ctx, s.store, s.calendar)
	if err != nil {
		return services.Result{}, err
	}
	first, err := s.store.Ready(ctx, t.Now, latest, store.ReadyAfter{}, page)
	if err != nil {
		return services.Result{}, err
	}
	res := services.Result{Counts: map[string]int{}}
	if len(first) > 0 {
		if err := s.place(ctx, t, latest, first, &res); err != nil {
			return res, err
		}
	}
	next, err := s.store.NextNotBefore(ctx, t.Now)
	res.Next = next
	return res, err
}

func (s *Service) place(ctx context.Context, t services.Turn, latest capri.Instant, ready []store.Ready, res *services.Result) error {
	world, grants, err := facts.Read(ctx, s.store, t.Now)
	if err != nil {
		return err
	}
	running, err := s.store.Running(ctx)
	if err != nil {
		return err
	}
	facts.Running(world, running)
	w := &writer{s: s, t: t, res: res, woken: map[string]bool{}}
	world.Last = s.last
	planner := placement.NewPlanner(world, s.rng)
	explain := t.Now.Sub(s.explained) >= explainEvery
	for read := 0; len(ready) > 0; {
		// The page after this one is read while this one is placed and written. What is assigned meanwhile is before it
		// in the order, so it does not matter whether that read sees it.
		next := s.readAhead(ctx, t, latest, ready)
		for i := range ready {
			b := &ready[i]
			if b.SkipAt != 0 && b.SkipAt <= t.Now {
				w.skipped = append(w.skipped, b.ID)
				continue
			}
			candidate := grants.Batch(b)
			w.add(b, planner.Place(&candidate))
		}
		err := w.flush(ctx, false)
		read += len(ready)
		p := <-next // before anything returns: the reader must not outlive the turn
		if err := errors.Join(err, p.err); err != nil {
			return err
		}
		if planner.Full() && (!explain || read >= explainMost) {
			break
		}
		ready = p.ready
	}
	if explain {
		s.explained = t.Now
	}
	return w.flush(ctx, true)
}

// nextPage is what readAhead found.
type nextPage struct {
	ready []store.Ready
	err   error
}

// readAhead reads the page after a full one.
func (s *Service) readAhead(ctx context.Context, t services.Turn, latest capri.Instant, ready []store.Ready) <-chan nextPage {
	next := make(chan nextPage, 1)
	if len(ready) < page {
		next <- nextPage{}
		return next
	}
	end := ready[len(ready)-1]
	go func() {
		var p nextPage
		p.ready, p.err = s.store.Ready(ctx, t.Now, latest, store.ReadyAfter{Priority: end.Priority, ScheduleTime: end.ScheduleTime, ID: end.ID}, page)
		next <- p
	}()
	return next
}

// writer gathers a turn's decisions and writes them in groups.
type writer struct {
	s           *Service
	t           services.Turn
	res         *services.Result
	assignments []store.Assignment
	reasons     map[string][]capri.BatchID
	failed      map[string][]capri.BatchID
	skipped     []capri.BatchID
	woken       map[string]bool
}

func (w *writer) add(b *store.Ready, d placement.Decision) {
	switch {
	case d.Node != "":
		w.assignments = append(w.assignments, store.Assignment{Batch: b.ID, Node: d.Node, Task: b.Task, Group: b.Group})
		if !w.woken[d.Node] {
			w.woken[d.Node] = true
			w.res.Wake = append(w.res.Wake, wake.Node(d.Node))
		}
	case d.Fail:
		if w.failed == nil {
			w.failed = map[string][]capri.BatchID{}
		}
		w.failed[d.Reason] = append(w.failed[d.Reason], b.ID)
	case d.Reason != b.Message:
		if w.reasons == nil {
			w.reasons = map[string][]capri.BatchID{}
		}
		w.reasons[d.Reason] = append(w.reasons[d.Reason], b.ID)
	}
}

func (w *writer) flush(ctx context.Context, last bool) error {
	if len(w.assignments) >= assignAtOnce || last && len(w.assignments) > 0 {
		failpoint.Wait(failpoint.PlanAssign)
		n, err := w.s.store.Assign(ctx, w.t.Lease, w.assignments)
		w.res.Counts["assigned"] += n
		if err != nil {
			return err
		}
		w.assignments = w.assignments[:0]
	}
	if !last {
		return nil
	}
	for reason, ids := range w.failed {
		n, err := w.s.store.EndUnplaced(ctx, w.t.Lease, capri.Failed, reason, ids)
		if err != nil {
			return err
		}
		w.res.Counts["failed"] += n
	}
	if len(w.skipped) > 0 {
		n, err := w.s.store.EndUnplaced(ctx, w.t.Lease, capri.Skipped, "skipped: it could not start within skip_after_minutes of its mark", w.skipped)
		if err != nil {
			return err
		}
		w.res.Counts["skipped"] += n
	}
	if len(w.reasons) > 0 {
		return w.s.store.Explain(ctx, w.t.Lease, w.reasons)
	}
	return nil
}
