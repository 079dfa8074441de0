// Package lease decides which process may run a service now. A lease is a row of capri_service_lock: a holder, an
// epoch that grows with each grant, and a counter that the holder moves every two seconds. Nobody takes a
// lease before it lapses or is released, and whether it has lapsed is judged by the counter standing still on the
// observer's own monotonic clock, never by comparing two clocks.
//
//	free ──acquire──▶ held (epoch n) ──renew every 2 s──▶ held …
//	  ▲                    │ released, or the counter stands still for 6 s
//	  └────────────────────┘            the next grant is epoch n+1
//
// A holder that was frozen may believe that it holds still. That is harmless: each write transaction of a service
// proves its epoch in the database (store.WriteAs), so what it writes then fails.
package lease

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"capri"
	"capri/sql/store"
)

// The limits of design §6.
const (
	TTL   = 6 * time.Second
	Renew = 2 * time.Second
	look  = time.Second
)

// Keeper holds leases for one process. Make it with New and run it with Run.
type Keeper struct {
	store  *store.Store
	holder string
	sole   bool
	log    *slog.Logger
	wanted []string
	due    func(service string)

	ttl, renewEvery, look time.Duration    // shorter in tests
	now                   func() time.Time // of this process's monotonic clock

	mu   sync.Mutex
	held map[string]capri.Lease
	seen map[string]sighting
}

// sighting is when this process last saw a lease's counter move.
type sighting struct {
	epoch    capri.Epoch
	renewals int64
	at       time.Time // monotonic
}

// New keeps the leases of the wanted services for holder, a name that no other process, nor an earlier life of this
// one, uses. sole says that nobody else can be there (standalone, whose directory lock is the lease): it takes
// over at once. due is told of each lease that is won and of each service that somebody triggered: it runs now what
// may have come due. It must not block.
func New(s *store.Store, holder string, sole bool, wanted []string, due func(service string), log *slog.Logger) *Keeper {
	return &Keeper{ttl: TTL, renewEvery: Renew, look: look, now: time.Now, store: s, holder: holder, sole: sole, log: log, wanted: wanted, due: due, held: map[string]capri.Lease{}, seen: map[string]sighting{}}
}

// Held gives the lease of a service if this process holds it.
func (k *Keeper) Held(service string) (capri.Lease, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.held[service]
	return l, ok
}

// Drop forgets a lease that turned out to be somebody else's.
func (k *Keeper) Drop(l capri.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[l.Service] == l {
		delete(k.held, l.Service)
	}
}

// Run acquires and renews until ctx ends, then releases what it holds.
func (k *Keeper) Run(ctx context.Context) {
	ensured := false
	renewed := time.Now()
	for {
		if !ensured {
			ensured = k.ensure(ctx)
		}
		if ensured {
			if time.Since(renewed) >= k.renewEvery-k.look/4 {
				k.renew(ctx)
				renewed = time.Now()
			}
			k.acquire(ctx)
		}
		wait := k.look
		if !ensured {
			wait = k.look / 2
		}
		select {
		case <-ctx.Done():
			k.release(context.WithoutCancel(ctx))
			return
		case <-time.After(wait):
		}
	}
}

func (k *Keeper) ensure(ctx context.Context) bool {
	for _, service := range k.wanted {
		if err := k.store.EnsureLock(ctx, service); err != nil {
			k.log.Warn("leases have to wait", "err", err)
			return false
		}
	}
	return true
}

func (k *Keeper) renew(ctx context.Context) {
	k.mu.Lock()
	held := make([]capri.Lease, 0, len(k.held))
	for _, l := range k.held {
		held = append(held, l)
	}
	k.mu.Unlock()
	for _, l := range held {
		ok, err := k.store.RenewLease(ctx, l)
		switch {
		case err != nil:
			k.log.Warn("a lease could not be renewed", "service", l.Service, "err", err)
		case !ok:
			k.log.Warn("a lease was lost", "service", l.Service, "epoch", l.Epoch)
			k.Drop(l)
		}
	}
}

// acquire takes each wanted lease that is free: never held, released, or with a counter that stood still for TTL. On
// the way it passes on what people asked of the services that this process leads (`capri service trigger`).
func (k *Keeper) acquire(ctx context.Context) {
	locks, err := k.store.Locks(ctx)
	if err != nil {
		k.log.Warn("leases could not be looked at", "err", err)
		return
	}
	for _, lock := range locks {
		if !k.wants(lock.Service) {
			continue
		}
		if held, have := k.Held(lock.Service); have {
			if lock.TriggeredAt != 0 {
				// Cleared before the run: what is asked for during it means another one.
				if err := k.store.ClearTrigger(ctx, held); err != nil {
					k.log.Warn("a trigger could not be cleared", "service", lock.Service, "err", err)
				}
				k.due(lock.Service)
			}
			continue
		}
		last := k.seen[lock.Service]
		if last.epoch != lock.Epoch || last.renewals != lock.Renewals || last.at.IsZero() {
			last = sighting{lock.Epoch, lock.Renewals, k.now()}
			k.seen[lock.Service] = last
		}
		// A grant to ourselves that we do not hold is one whose answer was lost: nobody else waits for it to lapse.
		free := lock.Holder == "" || lock.Holder == k.holder || k.sole
		if !free && k.now().Sub(last.at) < k.ttl {
			continue
		}
		l, ok, err := k.store.AcquireLease(ctx, lock.Service, k.holder, lock)
		if err != nil {
			k.log.Warn("a lease could not be taken", "service", lock.Service, "err", err)
			return
		}
		if !ok {
			continue // somebody was quicker
		}
		k.mu.Lock()
		k.held[l.Service] = l
		k.mu.Unlock()
		k.log.Info("leads a service now", "service", l.Service, "epoch", l.Epoch)
		k.due(l.Service)
	}
}

func (k *Keeper) wants(service string) bool {
	for _, w := range k.wanted {
		if w == service {
			return true
		}
	}
	return false
}

func (k *Keeper) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	// A grant whose answer was cut off by the stop itself is ours, too.
	if locks, err := k.store.Locks(ctx); err == nil {
		for _, lock := range locks {
			if lock.Holder == k.holder {
				k.held[lock.Service] = capri.Lease{Service: lock.Service, Holder: k.holder, Epoch: lock.Epoch}
			}
		}
	}
	for service, l := range k.held {
		if err := k.store.ReleaseLease(ctx, l); err != nil {
			k.log.Warn("a lease was not released: it lapses by itself", "service", service, "err", err)
		}
		delete(k.held, service)
	}
}
