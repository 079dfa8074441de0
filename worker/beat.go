package worker

import (
	"context"
	"errors"
	"time"

	"capri"
)

// beats renews the registration until ctx ends. While it is not ours it registers anew, and the take loop then
// compares what runs here with what the database says is ours.
func (w *Worker) beats(ctx context.Context) {
	for sleep(ctx, w.o.BeatInterval) {
		boot := w.registered()
		if boot == "" {
			w.reregister(ctx)
			continue
		}
		n := w.o.Node
		n.BootID = boot
		w.measure(&n)
		// A beat that comes late is worse than one that is left out: the next is on its way.
		limited, cancel := context.WithTimeout(ctx, max(time.Second, w.o.BeatInterval))
		ok, err := w.db.Beat(limited, n)
		cancel()
		switch {
		case err != nil:
			w.health.note(err)
		case !ok:
			w.disown(boot, errors.New("the beat found it taken over, removed or called lost"))
			w.reregister(ctx)
		}
	}
}

func (w *Worker) reregister(ctx context.Context) {
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
