package worker

import (
	"context"
	"sync"
	"time"

	"capri/worker/shim"
)

// lease is the node's right to run jobs (design §5.2).
//
//	beat sent ─── acknowledged ────────────────── startWithin ───── killAfter ── +grace ─────────── lost_after
//	at ▲                 jobs start and run            │ run on         │ SIGTERM   │ SIGKILL            │ masters may give
//	   └─ counts from here, by shim.Now                                                                 │ its batches away
//
// It counts from before the sending, because a master may have seen the beat move at any moment after that. This
// process and the shim each end the jobs when it has run out, so one of them may be frozen or dead.
type lease struct {
	killAfter   time.Duration // 0: it lasts without end
	startWithin time.Duration // 0: jobs start however old it is

	mu sync.Mutex
	at time.Duration
}

func (l *lease) renew(at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = max(l.at, at)
}

// left is how long it still lasts; 0 or less: it has run out.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at + l.killAfter - shim.Now()
}

// startBy is until when jobs may start that the database calls started from now on; not ok: none may.
func (l *lease) startBy() (by time.Duration, ok bool) {
	if l.startWithin <= 0 {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	by = l.at + l.startWithin
	return by, shim.Now() <= by
}

// renew notes that a beat sent at that time was acknowledged, and tells the shims.
func (w *Worker) renew(at time.Duration) {
	w.lease.renew(at)
	w.shims.Renew(shim.Lease{At: at, KillAfter: w.o.KillAfter, Grace: w.o.KillGrace})
}

// lookAtLease is how often the lease is looked at: Go's timers stand still while the host sleeps, and the lease goes on.
const lookAtLease = time.Second

// watchLease ends all jobs when the lease has run out, until ctx ends. Their shims do the same by themselves; this is
// for shims that hang, and for those of an older program, which know of no lease.
func (w *Worker) watchLease(ctx context.Context) {
	if w.lease.killAfter <= 0 {
		return
	}
	for {
		left := w.lease.left()
		if left <= 0 {
			if n := w.shims.Jobs(); n > 0 {
				w.log.Error("the node's lease has run out: no beat was acknowledged for so long; its jobs are ended",
					"node", w.node, "kill_after", w.lease.killAfter, "jobs", n)
				if err := w.shims.EndAll(ctx, w.o.KillGrace); err != nil {
					return // ctx has ended
				}
			}
			left = lookAtLease // until it is renewed
		}
		if !sleep(ctx, min(left, lookAtLease)) {
			return
		}
	}
}
