package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"capri"
	"capri/sql/store"
	"capri/wake"
	"capri/worker/supervisor"
)

// take looks for work and for kills until ctx ends: when woken, when slots become free while more is assigned, and
// each poll interval.
func (w *Worker) take(ctx, hard context.Context) {
	woken, stop := w.o.Waker.Listen(wake.Worker, wake.Node(w.node))
	defer stop()
	poll := time.NewTicker(w.o.PollInterval)
	defer poll.Stop()
	for ctx.Err() == nil {
		more := w.claim(ctx, hard)
		if more && w.table.free() > 0 {
			continue
		}
		freed := w.freed
		if !more {
			freed = nil // a free slot alone brings no work
		}
		select {
		case <-ctx.Done():
			return
		case <-freed:
			w.gatherSlots(ctx)
		case <-woken:
			w.passOnKills(ctx)
		case <-poll.C:
			w.passOnKills(ctx)
			w.audit(ctx)
		}
	}
}

// gatherSlots waits a moment, in which more slots become free: a good part of the node's is filled by one claim.
func (w *Worker) gatherSlots(ctx context.Context) {
	enough := min(w.o.ClaimLimit, w.o.Node.Slots/4)
	for range 2 * crowded {
		if w.table.free() >= enough || !sleep(ctx, pace) {
			return
		}
	}
}

// claim takes over what is assigned to this node, as much as there are free slots for; more: there may be more.
func (w *Worker) claim(ctx, hard context.Context) (more bool) {
	boot := w.registered()
	w.mu.Lock()
	paused := time.Now().Before(w.pauseTil)
	w.mu.Unlock()
	// What could not start would only come back, and be given to us again.
	if _, young := w.lease.startBy(); boot == "" || paused || !young {
		return false
	}
	free := w.table.free()
	if free <= 0 {
		return true
	}
	limit := min(free, w.o.ClaimLimit)
	claimed, err := w.db.Claim(hard, w.node, boot, limit)
	if errors.Is(err, capri.ErrForbidden) {
		w.disown(boot, err)
		return false
	}
	if w.health.note(err); err != nil {
		return false
	}
	w.prepareAll(ctx, hard, claimed)
	return len(claimed) == limit
}

// passOnKills tells the shims which attempts somebody wants dead. Those that are only preparing are given back, which
// ends them.
func (w *Worker) passOnKills(ctx context.Context) {
	if w.registered() == "" || w.table.empty() {
		return
	}
	asked, err := w.db.KillsAsked(ctx, w.node)
	if w.health.note(err); err != nil {
		return
	}
	var kill []capri.Attempt
	w.table.mu.Lock()
	for _, id := range asked {
		a := w.table.attempts[id]
		switch {
		case a == nil: // audit looks after it
		case a.phase == preparing && a.cancel != nil:
			a.cancel()
		case a.phase == running && !a.killing:
			a.killing = true
			kill = append(kill, id)
		}
	}
	w.table.mu.Unlock()
	if len(kill) == 0 {
		return
	}
	w.log.Info("attempts are killed because somebody asked", "attempts", len(kill))
	if err := w.shims.Kill(ctx, kill, w.o.KillGrace); err != nil {
		w.log.Warn("tell the shim to kill; tried again", "err", err)
		w.table.mu.Lock()
		for _, id := range kill {
			if a := w.table.attempts[id]; a != nil {
				a.killing = false
			}
		}
		w.table.mu.Unlock()
	}
}

// adopt accounts for what the database says this node has in hand, once, before anything is claimed.
func (w *Worker) adopt(ctx context.Context) error {
	held, err := w.db.HeldBy(ctx, w.node)
	if err != nil {
		return err
	}
	running, err := w.shims.Running(ctx)
	if err != nil {
		return err
	}
	// Nothing below fails: adopting twice would count twice.
	ids := make([]capri.Attempt, len(held))
	for i, c := range held {
		ids[i] = capri.Attempt{Batch: c.ID, Number: c.Attempt}
	}
	unknown := map[capri.Attempt]bool{}
	for _, id := range w.shims.Unknown(ids) {
		unknown[id] = true
	}
	mine := map[capri.Attempt]bool{}
	for i, c := range held {
		a := newAttempt(c)
		mine[ids[i]] = true
		switch {
		case c.StartTime == 0:
			w.backs.put(giveBack{GiveBack: store.GiveBack{Attempt: a.id, Why: "its worker was restarted while it prepared"}})
		case unknown[a.id]:
			w.table.adopt(a)
			w.table.end(a.id)
			w.lose(a.id, "lost its shim")
		default:
			w.recall(a)
			w.table.adopt(a)
		}
	}
	keep := map[string]bool{}
	for _, r := range running {
		keep[r.Attempt.String()] = true
	}
	for id := range mine {
		keep[id.String()] = true
	}
	w.sweep(keep)
	w.disinherit(ctx, running, mine)
	return nil
}

// disinherit ends what runs here and is not ours in the database: it was given away, and another attempt of it may run
// elsewhere.
func (w *Worker) disinherit(ctx context.Context, running []supervisor.Inventory, mine map[capri.Attempt]bool) {
	var strays []capri.Attempt
	for _, r := range running {
		if !mine[r.Attempt] {
			strays = append(strays, r.Attempt)
		}
	}
	w.killStrays(ctx, strays)
	w.awaitStrays(ctx, strays)
}

// awaitStrays waits until what was given away has ended, before anything is claimed: it may be given to us again. A shim
// that does not manage that hangs, and then it holds nothing that could be kept.
func (w *Worker) awaitStrays(ctx context.Context, strays []capri.Attempt) {
	for end := time.Now().Add(w.o.KillGrace + strayPatience); len(strays) > 0 && time.Now().Before(end) && sleep(ctx, strayPace); {
		running, err := w.shims.Running(ctx)
		if err != nil {
			continue
		}
		strays = slices.DeleteFunc(strays, func(id capri.Attempt) bool {
			return !slices.ContainsFunc(running, func(r supervisor.Inventory) bool { return r.Attempt == id })
		})
	}
	if len(strays) > 0 && ctx.Err() == nil {
		w.log.Error("attempts that were given away do not end; their shim is ended with all its jobs", "attempts", len(strays), "first", strays[0].String())
		_ = w.shims.EndWith(ctx, strays, w.o.KillGrace) // it fails only when ctx ends
	}
}

// strayPatience is more than a shim waits for what outlives SIGKILL.
const (
	strayPatience = 8 * time.Second
	strayPace     = 20 * time.Millisecond
)

func (w *Worker) killStrays(ctx context.Context, strays []capri.Attempt) {
	if len(strays) == 0 {
		return
	}
	w.log.Error("attempts run here that the database has given away or ended; they are killed", "attempts", len(strays), "first", strays[0].String())
	if err := w.shims.Kill(ctx, strays, w.o.KillGrace); err != nil {
		w.log.Warn("tell the shim to kill; tried again", "err", err)
	}
}

// audit compares what runs here with what the database says, in both directions. It finds what a lost answer of the
// database left behind (claimed or started, and we never heard of it), and what was given away. It runs in the
// goroutine that claims: what Claim has returned is in the table before we ask.
func (w *Worker) audit(ctx context.Context) {
	w.mu.Lock()
	due := time.Since(w.audited) >= w.o.audit
	boot := w.boot
	w.mu.Unlock()
	if !due || boot == "" {
		return
	}
	before := w.table.inPhase(running) // before the database is asked
	held, err := w.db.HeldAttempts(ctx, w.node)
	if w.health.note(err); err != nil {
		return
	}
	mine := make(map[capri.Attempt]bool, len(held))
	for _, h := range held {
		mine[h.Attempt] = true
		if w.table.get(h.Attempt) != nil {
			continue
		}
		switch {
		case !h.Started:
			w.backs.put(giveBack{GiveBack: store.GiveBack{Attempt: h.Attempt, Why: "its worker did not hear that it had claimed it"}})
		case len(w.shims.Unknown([]capri.Attempt{h.Attempt})) > 0:
			w.lose(h.Attempt, "its worker did not hear that it had started it")
		}
	}
	var strays []capri.Attempt
	for _, id := range before {
		if !mine[id] && w.table.isIn(id, running) {
			strays = append(strays, id)
		}
	}
	w.killStrays(ctx, strays)
	w.mu.Lock()
	w.audited = time.Now()
	w.mu.Unlock()
}

// lose reports an attempt of which nobody knows how it ended.
func (w *Worker) lose(id capri.Attempt, why string) {
	w.ends.put(ending{Result: store.Result{Attempt: id, Outcome: store.Lost, Message: why}})
}
