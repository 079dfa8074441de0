// Package lease decides which master may run a service now. A lease is a row of capri_service_lock: a holder, an
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
//
// Which of several masters takes a free lease is a matter of manners, never of truth. In this order:
//
//	clock   a master whose clock is off leaves generate to others              (Member.clockWrong)
//	share   who has his part of the leases lets others go first for a moment   (Keeper.share)
//	Redis   one tries, the others wait a moment                                (Redis.taken)
//	row     of those that try the row takes one                                (store.AcquireLease)
//
// Each of the first three only waits, two looks (the clock: half a minute), so none of them can keep a lease from being
// taken.
// Leases are sticky: they move when their holder goes, or when it gives surplus ones to masters that came later.
package lease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"capri"
	"capri/internal/failpoint"
	"capri/sql/store"
	"capri/wake"
)

// The limits of design §6, which the configuration may change.
const (
	TTL   = 6 * time.Second
	Renew = 2 * time.Second
	Look  = time.Second
)

// Stable is how long the same masters must have lived before leases move among them: a restart moves none.
const Stable = 30 * time.Second

// Options of a keeper.
type Options struct {
	Store  *store.Store
	Holder string   // unlike any other process's, and unlike an earlier life's
	Sole   bool     // nobody else can be there (standalone, whose directory lock is the lease): takes over at once
	Wanted []string // the leases, in the order in which they are taken
	Member *Member  // nil: shares are not counted
	Redis  *Redis   // nil: there is none
	Waker  wake.Waker

	// Due is told of each lease that is won: what may have come due while nobody held it runs now. It must not block.
	Due func(service string)

	TTL, Renew, Look, Stable time.Duration // 0: the usual
	Log                      *slog.Logger
}

// Keeper holds leases for one process. Make it with New and run it with Run.
type Keeper struct {
	o   Options
	now func() time.Time // of this process's monotonic clock

	mu   sync.Mutex
	held map[string]*grant

	// Only looking uses what follows.
	seen     map[string]*sighting
	readAt   time.Time            // when the rows were last read
	lookedAt time.Time            // at the other masters
	offered  string               // the surplus lease that was given back last, until somebody takes it
	refused  map[string]time.Time // which nobody wanted, and since when the masters were those that did not
	warned   map[string]time.Time // by service: when its missing row was last complained of
}

// grant is a lease that is held.
type grant struct {
	capri.Lease
	good   time.Time // until then nobody else can have taken it: a life after the last renewal was sent
	lapsed bool      // that time has passed, and the turns were ended
	busy   bool      // a renewal is under way
	turns  map[*turn]bool
}

// turn is one that is under way.
type turn struct{ cancel context.CancelFunc }

// end ends the turns under way; they have to notice.
func (g *grant) end() {
	for t := range g.turns {
		t.cancel()
	}
}

// sighting is what this process saw of a lease that it does not hold.
type sighting struct {
	epoch    capri.Epoch
	renewals int64
	at       time.Time // when its counter was last seen to move
	free     time.Time // since when it could be taken; zero: it cannot
	taken    time.Time // since when Redis says that somebody else goes first; zero: it does not
}

// New makes a keeper; it holds nothing before Run.
func New(o Options) *Keeper {
	if o.Sole {
		o.Renew = 30 * time.Second // nobody watches, and each renewal is a write to the disk
	}
	for _, d := range []struct {
		of    *time.Duration
		usual time.Duration
	}{{&o.TTL, TTL}, {&o.Renew, Renew}, {&o.Look, Look}, {&o.Stable, Stable}} {
		if *d.of <= 0 {
			*d.of = d.usual
		}
	}
	return &Keeper{o: o, now: time.Now, held: map[string]*grant{}, seen: map[string]*sighting{}, refused: map[string]time.Time{}, warned: map[string]time.Time{}}
}

// Held gives the lease of a service if this process holds it.
func (k *Keeper) Held(service string) (capri.Lease, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g := k.held[service]; g != nil && k.sure(g) {
		return g.Lease, true
	}
	return capri.Lease{}, false
}

// sure reports whether nobody else can have taken a lease. Where nobody else can be there it is always so.
func (k *Keeper) sure(g *grant) bool {
	return k.o.Sole || k.now().Before(g.good) || failpoint.On(failpoint.LeaseBlind)
}

// Begin gives the lease of a service for one turn, and a context that ends when the lease is lost. It is not
// given away before end is called.
func (k *Keeper) Begin(ctx context.Context, service string) (within context.Context, l capri.Lease, end func(), ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.held[service]
	if g == nil || !k.sure(g) {
		return ctx, capri.Lease{}, func() {}, false
	}
	within, cancel := context.WithCancel(ctx)
	t := &turn{cancel}
	g.turns[t] = true
	return within, g.Lease, func() {
		cancel()
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(g.turns, t)
	}, true
}

// Drop forgets a lease that turned out to be somebody else's, and ends the turns under it.
func (k *Keeper) Drop(l capri.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g := k.held[l.Service]; g != nil && g.Lease == l {
		g.end()
		delete(k.held, l.Service)
	}
}

// Run acquires and renews until ctx ends, then releases what it holds. No turn may be under way any more then.
func (k *Keeper) Run(ctx context.Context) {
	woken, stop := k.o.Waker.Listen(wake.Leases)
	defer stop()
	var running sync.WaitGroup
	// Renewing and watching have rhythms of their own: a look that waits for the database must not cost a lease, and a
	// renewal that waits must not keep alive what has lapsed.
	running.Go(func() {
		for pause(ctx, k.o.Renew) {
			k.renew(ctx, &running)
		}
	})
	running.Go(func() {
		for pause(ctx, k.o.Look/4) {
			k.expire()
		}
	})
	for ctx.Err() == nil {
		k.look(ctx)
		timer := time.NewTimer(k.untilLook())
		select {
		case <-ctx.Done():
		case <-woken:
		case <-timer.C:
		}
		timer.Stop()
	}
	running.Wait()
	k.release(context.WithoutCancel(ctx))
}

// untilLook is how long it is to the next look: the usual time, or less where a lease will have lapsed or been left to
// others for long enough before.
func (k *Keeper) untilLook() time.Duration {
	wait := k.o.Look
	for service, s := range k.seen {
		if _, have := k.Held(service); have || k.o.Sole {
			continue
		}
		next := s.at.Add(k.o.TTL)
		if !s.free.IsZero() {
			next = s.free.Add(k.courtesy())
		}
		if d := next.Sub(k.now()); d > 0 {
			wait = min(wait, d)
		}
	}
	return max(wait, time.Millisecond)
}

// courtesy is how long others may go first.
func (k *Keeper) courtesy() time.Duration { return 2 * k.o.Look }

// renew moves the counters of what is held, each by itself: a row that is locked for a while by a transaction must not
// cost the others theirs.
func (k *Keeper) renew(ctx context.Context, running *sync.WaitGroup) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.held {
		if g.busy {
			continue
		}
		g.busy = true
		running.Go(func() { k.renewOne(ctx, g) })
	}
}

func (k *Keeper) renewOne(ctx context.Context, g *grant) {
	sent := k.now()
	ok, err := k.o.Store.RenewLease(ctx, g.Lease)
	switch {
	case err != nil && ctx.Err() == nil:
		k.o.Log.Warn("a lease could not be renewed", "service", g.Service, "err", err)
	case err == nil && !ok && failpoint.On(failpoint.LeaseBlind): // nor does it see this: the epoch alone stops its turns
	case err == nil && !ok:
		k.o.Log.Warn("a lease was lost", "service", g.Service, "epoch", g.Epoch)
		k.Drop(g.Lease)
	case err == nil:
		k.renewed(g, sent)
		if k.o.Redis != nil {
			k.o.Redis.extend(ctx, g.Service)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	g.busy = false
}

func (k *Keeper) renewed(g *grant, sent time.Time) {
	k.mu.Lock()
	g.good = sent.Add(k.o.TTL)
	again := g.lapsed && k.held[g.Service] == g && k.sure(g) // nobody took it
	g.lapsed = g.lapsed && !again
	k.mu.Unlock()
	if again {
		k.o.Log.Info("a lease that had lapsed is still ours", "service", g.Service, "epoch", g.Epoch)
		k.o.Due(g.Service)
	}
}

// expire ends the turns under leases that somebody else may have by now, since no renewal came through for a life.
func (k *Keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.held {
		if !k.sure(g) && !g.lapsed {
			k.o.Log.Warn("a lease has lapsed: its turns end", "service", g.Service, "epoch", g.Epoch)
			g.lapsed = true
			g.end()
		}
	}
}

// look takes what is free and for this process to take, and gives back what others should have.
func (k *Keeper) look(ctx context.Context) {
	locks, err := k.o.Store.Locks(ctx)
	if err != nil {
		if ctx.Err() == nil {
			k.o.Log.Warn("leases could not be looked at", "err", err)
		}
		return
	}
	k.notSeen()
	rows := map[string]store.ServiceLock{}
	for _, l := range locks {
		rows[l.Service] = l
	}
	if k.o.Member != nil && !k.o.Sole && (k.lookedAt.IsZero() || k.now().Sub(k.lookedAt) >= k.o.Renew) {
		if err := k.o.Member.look(ctx); err == nil {
			k.lookedAt = k.now()
		}
	}
	wrongClock := false
	if k.o.Member != nil {
		if wrongClock, err = k.o.Member.clockWrong(ctx); err != nil {
			wrongClock = false // what is wrong then is the database
		}
	}
	for _, service := range k.o.Wanted {
		row, there := rows[service]
		if !there {
			k.missing(service)
			continue
		}
		if _, have := k.grantOf(service); have {
			delete(k.seen, service)
			continue
		}
		if ctx.Err() == nil && k.free(row) && k.mayTake(ctx, row, wrongClock) {
			if err := k.acquire(ctx, row); err != nil {
				if ctx.Err() == nil {
					k.o.Log.Warn("a lease could not be taken", "service", service, "err", err)
				}
				if errors.Is(err, capri.ErrUnavailable) {
					return
				} // else this row alone may be locked, by a process that froze in a transaction
			}
		}
	}
	k.readAt = k.now() // trying for a row that is locked takes seconds, in which the others could renew
	if !k.o.Sole {
		k.handOver(ctx, rows, wrongClock)
	}
}

// notSeen leaves out of each silence the time in which nothing could be read: while the database is away holders
// cannot renew, and without this whoever comes back first would take everything from everybody.
func (k *Keeper) notSeen() {
	gap := k.now().Sub(k.readAt) - k.o.Look
	if !k.readAt.IsZero() && gap > 2*k.o.Look {
		for _, s := range k.seen {
			s.at = s.at.Add(gap)
		}
	}
	k.readAt = k.now()
}

func (k *Keeper) grantOf(service string) (*grant, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, ok := k.held[service]
	return g, ok
}

// missing says, once a minute, how to mend a lease without a row. It is not made here: its epochs would begin anew.
func (k *Keeper) missing(service string) {
	if g, have := k.grantOf(service); have {
		k.Drop(g.Lease)
	}
	delete(k.seen, service)
	if at, said := k.warned[service]; said && k.now().Sub(at) < time.Minute {
		return
	}
	k.warned[service] = k.now()
	k.o.Log.Error("a service cannot run: its row in capri_service_lock is missing; run capri migrate up", "service", service)
}

// free notes what is seen of a lease that is not held here, and reports whether it may be taken: released, or lapsed, or
// granted to this process by an answer that was lost.
func (k *Keeper) free(row store.ServiceLock) bool {
	s := k.seen[row.Service]
	if s == nil || s.epoch != row.Epoch || s.renewals != row.Renewals {
		s = &sighting{epoch: row.Epoch, renewals: row.Renewals, at: k.now()}
		k.seen[row.Service] = s
	}
	lapsed := k.now().Sub(s.at) >= k.o.TTL
	if lapsed && row.Holder != "" && k.o.Member != nil {
		k.o.Member.lapsed(row.Holder)
	}
	if row.Holder != "" && row.Holder != k.o.Holder && !lapsed && !k.o.Sole {
		s.free = time.Time{}
		return false
	}
	if s.free.IsZero() {
		s.free = k.now()
	}
	return true
}

// mayTake reports whether it is this process's turn to try for a free lease. It only ever says "wait a moment".
func (k *Keeper) mayTake(ctx context.Context, row store.ServiceLock, wrongClock bool) bool {
	if k.o.Sole || row.Holder == k.o.Holder {
		return true
	}
	s := k.seen[row.Service]
	if row.Service == clockLease && wrongClock {
		if k.now().Sub(s.free) < k.o.Stable {
			return false
		}
		k.refused[clockLease] = k.since() // nobody with a better clock wants it
	}
	k.mu.Lock()
	have := len(k.held)
	k.mu.Unlock()
	if have >= k.share() && k.now().Sub(s.free) < k.courtesy() {
		return false
	}
	if k.o.Redis == nil || !s.taken.IsZero() && k.now().Sub(s.taken) >= k.courtesy() {
		return true
	}
	if k.o.Redis.taken(ctx, row.Service) {
		if s.taken.IsZero() {
			s.taken = k.now()
		}
		return false
	}
	return true
}

// clockLease is the lease that a master with a wrong clock leaves to others (design §6, monitor).
const clockLease = "generate"

// share is how many leases are this process's part.
func (k *Keeper) share() int {
	if k.o.Member == nil {
		return len(k.o.Wanted)
	}
	masters, _ := k.o.Member.count()
	return (len(k.o.Wanted) + masters - 1) / masters
}

func (k *Keeper) acquire(ctx context.Context, row store.ServiceLock) error {
	// A stop does not cut this short at once: the grant might come after the leases were given back, and would have to
	// lapse. Otherwise the server's own limit counts, so that it executes nothing behind our back.
	whole := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(whole))
	defer cancel()
	defer context.AfterFunc(whole, func() { time.AfterFunc(2*time.Second, cancel) })()
	sent := k.now()
	l, ok, err := k.o.Store.AcquireLease(ctx, row.Service, k.o.Holder, row)
	if err != nil || !ok {
		if k.o.Redis != nil { // somebody was quicker; or there is nobody to wait for
			k.o.Redis.unlock(ctx, row.Service)
		}
		return err
	}
	if k.offered == l.Service { // nobody wanted it
		k.offered = ""
		k.refused[l.Service] = k.since()
	}
	g := &grant{Lease: l, good: sent.Add(k.o.TTL), turns: map[*turn]bool{}}
	k.mu.Lock()
	k.held[l.Service] = g
	k.mu.Unlock()
	delete(k.seen, l.Service)
	k.o.Log.Info("leads a service now", "service", l.Service, "epoch", l.Epoch)
	k.o.Due(l.Service)
	return nil
}

// handOver gives back what others should have: generate where the clock is wrong, and, when the same masters have lived for a
// while, one lease more than this process's share at a time. What nobody wanted is kept until the masters change.
func (k *Keeper) handOver(ctx context.Context, rows map[string]store.ServiceLock, wrongClock bool) {
	if g, have := k.grantOf(clockLease); have && wrongClock && !k.refused[clockLease].Equal(k.since()) && k.giveBack(ctx, g) {
		k.o.Log.Warn("gives generate to a master with a better clock", "epoch", g.Epoch)
	}
	if k.o.Member == nil || failpoint.On(failpoint.LeaseStay) {
		return
	}
	if row := rows[k.offered]; k.offered != "" && row.Holder != "" && row.Holder != k.o.Holder {
		k.offered = ""
	}
	_, stable := k.o.Member.count()
	k.mu.Lock()
	have := len(k.held)
	k.mu.Unlock()
	if k.offered != "" || stable < k.o.Stable || have <= k.share() {
		return
	}
	for _, service := range slices.Backward(k.o.Wanted) {
		g, have := k.grantOf(service)
		if _, there := rows[service]; !have || !there || k.refused[service].Equal(k.since()) {
			continue
		}
		if k.giveBack(ctx, g) {
			k.offered = service
			k.o.Log.Info("gives a service to another master", "service", service, "epoch", g.Epoch)
			return
		}
	}
}

// since is when the masters became those that they are.
func (k *Keeper) since() time.Time {
	k.o.Member.mu.Lock()
	defer k.o.Member.mu.Unlock()
	return k.o.Member.stable
}

// giveBack releases a lease unless a turn is under way. No turn begins once it is decided.
func (k *Keeper) giveBack(ctx context.Context, g *grant) bool {
	k.mu.Lock()
	if k.held[g.Service] != g || len(g.turns) > 0 {
		k.mu.Unlock()
		return false
	}
	delete(k.held, g.Service)
	k.mu.Unlock()
	k.letGo(ctx, g.Lease)
	k.o.Waker.Wake(wake.Leases)
	return true
}

// letGo releases a lease in the database, and then its sign in Redis.
func (k *Keeper) letGo(ctx context.Context, l capri.Lease) {
	if err := k.o.Store.ReleaseLease(ctx, l); err != nil {
		k.o.Log.Warn("a lease was not released: it lapses by itself", "service", l.Service, "err", err)
	}
	if k.o.Redis != nil {
		k.o.Redis.unlock(ctx, l.Service)
	}
}

// release gives everything back, and wakes those who may take it.
func (k *Keeper) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	k.mu.Lock()
	all := map[string]capri.Lease{}
	for service, g := range k.held {
		all[service] = g.Lease
		g.end()
	}
	clear(k.held)
	k.mu.Unlock()
	// A grant whose answer was cut off by the stop itself is ours, too.
	if locks, err := k.o.Store.Locks(ctx); err == nil {
		for _, lock := range locks {
			if lock.Holder == k.o.Holder {
				all[lock.Service] = capri.Lease{Service: lock.Service, Holder: lock.Holder, Epoch: lock.Epoch}
			}
		}
	}
	for _, l := range all {
		k.letGo(ctx, l)
	}
	k.o.Waker.Wake(wake.Leases)
}
