package lease

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri/sql/sqltest"
	"capri/sql/store"
)

// process is one master's keeper on a database that several share, with a monotonic clock of its own.
type process struct {
	*Keeper
	ctx   context.Context
	clock time.Time
	mu    sync.Mutex
	won   []string
}

func start(t *testing.T, s *store.Store, name string, sole bool, services ...string) *process {
	p := &process{ctx: t.Context(), clock: time.Unix(0, 0)}
	p.Keeper = New(s, name, sole, services, func(service string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.won = append(p.won, service)
	}, slog.New(slog.DiscardHandler))
	p.now = func() time.Time { return p.clock }
	require.True(t, p.ensure(p.ctx))
	return p
}

func (p *process) holds(service string) bool {
	_, ok := p.Held(service)
	return ok
}

func (p *process) later(d time.Duration) {
	p.clock = p.clock.Add(d)
	p.acquire(p.ctx)
}

func TestASuccessor_waits_until_the_counter_stood_still_for_a_leases_life(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a, b := start(t, db.Store, "a", false, "dispatch"), start(t, db.Again(t), "b", false, "dispatch")
		a.acquire(a.ctx)
		require.True(t, a.holds("dispatch"))
		require.Equal(t, []string{"dispatch"}, a.won, "who wins a lease runs at once")
		b.later(0)
		b.later(TTL - time.Second)
		require.False(t, b.holds("dispatch"))
		a.renew(a.ctx)
		b.later(time.Second)
		require.False(t, b.holds("dispatch"), "the counter has moved")
		b.later(TTL - 1)
		require.False(t, b.holds("dispatch"))

		// a is frozen from here on; and no clock but b's own says how long.
		db.Clock.Advance(24 * time.Hour)
		a.clock = a.clock.Add(24 * time.Hour)
		b.acquire(b.ctx)
		require.False(t, b.holds("dispatch"))
		b.later(1)
		require.True(t, b.holds("dispatch"))

		require.True(t, a.holds("dispatch"), "it has not heard yet")
		old, _ := a.Held("dispatch")
		require.Error(t, db.Store.WriteAs(a.ctx, "write", old, func(*store.Tx) error { return nil }), "what it writes fails all the same")
		a.renew(a.ctx)
		require.False(t, a.holds("dispatch"))
		a.later(0)
		require.False(t, a.holds("dispatch"))
	})
}

func TestAFrozenObserver_does_not_take_what_was_renewed_meanwhile(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a, b := start(t, db.Store, "a", false, "dispatch"), start(t, db.Again(t), "b", false, "dispatch")
		a.acquire(a.ctx)
		b.later(0)
		a.renew(a.ctx)
		b.later(time.Hour) // it slept; what it saw an hour ago has moved since
		require.False(t, b.holds("dispatch"))
		require.True(t, a.holds("dispatch"))
	})
}

func TestAReleasedLease_is_taken_at_the_next_look(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a, b := start(t, db.Store, "a", false, "dispatch", "generate"), start(t, db.Again(t), "b", false, "dispatch", "generate")
		a.acquire(a.ctx)
		b.later(0)
		a.release(a.ctx)
		require.False(t, a.holds("dispatch"))
		b.later(0)
		require.True(t, b.holds("dispatch"))
		require.True(t, b.holds("generate"))
		slices.Sort(b.won)
		require.Equal(t, []string{"dispatch", "generate"}, b.won)
	})
}

func TestASoleProcess_takes_over_at_once(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		killed, next := start(t, db.Store, "a", true, "dispatch"), start(t, db.Again(t), "b", true, "dispatch")
		killed.acquire(killed.ctx)
		next.acquire(next.ctx)
		require.True(t, next.holds("dispatch"))
	})
}

func TestAGrant_whose_answer_was_lost_is_not_waited_for(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a := start(t, db.Store, "a", false, "dispatch")
		a.acquire(a.ctx)
		l, _ := a.Held("dispatch")
		a.Drop(l)
		a.acquire(a.ctx)
		again, ok := a.Held("dispatch")
		require.True(t, ok)
		require.Equal(t, l.Epoch+1, again.Epoch)
		a.Drop(l)
		require.True(t, a.holds("dispatch"), "a word about an older grant takes nothing away")

		a.Drop(again) // and one whose answer was cut off by the stop is given back all the same
		a.release(a.ctx)
		b := start(t, db.Again(t), "b", false, "dispatch")
		b.acquire(b.ctx)
		require.True(t, b.holds("dispatch"))
	})
}

func TestATrigger_reaches_who_leads_and_is_cleared(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a, b := start(t, db.Store, "a", false, "dispatch"), start(t, db.Again(t), "b", false, "dispatch")
		a.acquire(a.ctx)
		b.later(0)
		require.NoError(t, db.Store.Trigger(a.ctx, "dispatch"))
		b.later(0)
		require.Empty(t, b.won)
		a.later(0)
		a.later(0)
		require.Equal(t, []string{"dispatch", "dispatch"}, a.won, "won, then triggered once")
	})
}

// The same with time as it is, a tenth of a second for a lease: a holder that runs keeps its lease, one that is frozen
// loses it to one that runs, and one that stops gives it back.
func TestKeepers_at_work(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a, b := start(t, db.Store, "a", false, "dispatch"), start(t, db.Again(t), "b", false, "dispatch")
		var running [2]context.CancelFunc
		var done [2]sync.WaitGroup
		for i, p := range []*process{a, b} {
			p.ttl, p.renewEvery, p.look, p.now = 500*time.Millisecond, 50*time.Millisecond, 10*time.Millisecond, time.Now
			ctx, cancel := context.WithCancel(context.Background())
			running[i] = cancel
			defer done[i].Wait()
			defer cancel()
			done[i].Go(func() { p.Run(ctx) })
			require.Eventually(t, func() bool { return p.holds("dispatch") || i == 1 }, 5*time.Second, time.Millisecond)
		}
		epoch, _ := a.Held("dispatch")
		time.Sleep(2 * b.ttl)
		still, ok := a.Held("dispatch")
		require.True(t, ok && still == epoch, "it renews, and keeps its lease")
		require.False(t, b.holds("dispatch"))
		began := time.Now()
		running[0]()
		done[0].Wait()
		require.Eventually(t, func() bool { return b.holds("dispatch") }, 5*time.Second, time.Millisecond)
		require.Less(t, time.Since(began), b.ttl, "a lease that was given back need not lapse")
	})
}

// A process that freezes in the middle of a transaction holds a lock on the lease's row. The server ends it.
func TestAHolderFrozenInATransaction_keeps_its_lease_no_longer_than_the_server_waits(t *testing.T) {
	db := sqltest.MySQL(t)
	frozen := db.Options
	frozen.DSN += "&wait_timeout=1" // it has other parameters already
	s, err := store.Open(t.Context(), frozen)
	require.NoError(t, err)
	defer s.Close()
	a, b := start(t, s, "a", false, "dispatch"), start(t, db.Store, "b", false, "dispatch")
	a.acquire(a.ctx)
	l, _ := a.Held("dispatch")
	wake := make(chan struct{})
	writing := make(chan error)
	inside := make(chan struct{}, 10)
	go func() {
		writing <- s.WriteAs(context.Background(), "write", l, func(tx *store.Tx) error {
			inside <- struct{}{}
			<-wake
			return tx.SaveUser(store.User{Name: "stale"})
		})
	}()
	<-inside
	b.later(0)
	began := time.Now()
	for !b.holds("dispatch") {
		b.later(TTL)
		require.Less(t, time.Since(began), 8*time.Second, "the lock is still there")
	}
	close(wake)
	require.Error(t, <-writing)
	users, err := db.Store.Users(t.Context())
	require.NoError(t, err)
	require.Empty(t, users)
}
