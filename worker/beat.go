package worker

import (
	"context"
	"errors"
	"time"

	"capri"
	"capri/internal/failpoint"
	"capri/worker/shim"
)

// beats renews the registration, and with it the lease, until ctx ends. While the registration is not ours it ends what
// runs here and registers anew, and the take loop then compares what it has in hand with what the database says is ours.
func (w *Worker) beats(ctx context.Context) {
	tick := time.NewTicker(w.o.BeatInterval)
	defer tick.Stop()
	var offset time.Duration // of our clock, minus the database's
	for n := 0; ; n++ {
		if n%clockEvery == 0 {
			offset = w.clockOffset(ctx, offset)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.disowned: // a claim or a start was refused: not a moment longer than needed
		}
		w.beat(ctx, offset)
	}
}

func (w *Worker) beat(ctx context.Context, offset time.Duration) {
	boot := w.registered()
	if boot == "" {
		w.reregister(ctx)
		return
	}
	n := w.o.Node
	n.BootID, n.ClockOffset = boot, offset
	w.measure(&n)
	// A beat that comes late is worse than one that is left out: the next is on its way.
	limited, cancel := context.WithTimeout(ctx, max(time.Second, w.o.BeatInterval))
	defer cancel()
	at := shim.Now() // before it is sent: nobody has seen it move earlier
	ok, err := w.db.Beat(limited, n)
	switch {
	case err != nil:
		w.health.note(err)
	case !ok:
		w.disown(boot, errors.New("the beat found it taken over, removed or called lost"))
		w.reregister(ctx)
	default:
		w.renew(at)
	}
}

// reregister ends all that runs here and then registers anew, in this order: what was ours may be started elsewhere,
// and with the new registration it may be started here. What becomes of the ended ones is reported as ever. Where the
// database has given them away those reports change nothing.
func (w *Worker) reregister(ctx context.Context) {
	if n := w.shims.Jobs(); n > 0 {
		w.log.Error("jobs are ended because the node's registration was not ours any more", "node", w.node, "jobs", n)
	}
	if err := w.shims.EndAll(ctx, w.o.KillGrace); err != nil {
		return // ctx has ended
	}
	err := w.register(ctx)
	switch {
	case err == nil:
		w.log.Info("registered anew", "node", w.node)
		w.mu.Lock()
		w.audited = time.Time{}
		w.mu.Unlock()
		w.hurry()
	case errors.Is(err, capri.ErrConflict):
		w.log.Error("cannot register anew", "node", w.node, "err", err)
	default:
		w.health.note(err)
	}
}

// clockEvery: at each tenth beat our clock is compared with the database's.
const clockEvery = 10

// clockOffset measures how far our clock is ahead of the database's: ours in the middle of the round trip, minus
// theirs. If it cannot be asked the last answer holds.
func (w *Worker) clockOffset(ctx context.Context, last time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	sent, ours := time.Now(), failpoint.Now()
	theirs, err := w.db.Now(ctx)
	if err != nil {
		return last
	}
	return capri.InstantOf(ours.Add(time.Since(sent) / 2)).Sub(theirs)
}
