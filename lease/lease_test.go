package lease

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"capri"
	"capri/internal/testenv"
	"capri/sql/schema"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/go-sql-driver/mysql.(*mysqlConn).startWatcher.func1"),
		// It looks each second whether a Redis that was away is back, and sees then that its pool was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// process is one master's keeper on a database that several share, with a monotonic clock of its own.
type process struct {
	*Keeper
	ctx   context.Context
	clock time.Time
	mu    sync.Mutex
	won   []string
	text  bytes.Buffer // its log
}

func start(t *testing.T, s *store.Store, name string, change func(*Options), services ...string) *process {
	p := &process{ctx: t.Context(), clock: time.Unix(0, 0)}
	o := Options{Store: s, Holder: name, Wanted: services, Waker: wake.NewLocal(), Log: slog.New(slog.NewTextHandler(&p.text, nil))}
	o.Due = func(service string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.won = append(p.won, service)
	}
	if change != nil {
		change(&o)
	}
	p.Keeper = New(o)
	p.now = func() time.Time { return p.clock }
	if o.Member != nil {
		o.Member.now = p.now
	}
	if o.Redis != nil {
		o.Redis.now = p.now
	}
	return p
}

func sole(o *Options) { o.Sole = true }

func (p *process) holds(service string) bool {
	_, ok := p.Held(service)
	return ok
}

func (p *process) renewAll() {
	var running sync.WaitGroup
	p.renew(p.ctx, &running)
	running.Wait()
}

// all lists what it holds.
func (p *process) all() []string {
	var held []string
	for _, service := range p.o.Wanted {
		if p.holds(service) {
			held = append(held, service)
		}
	}
	return held
}

// later lets time pass, and looks as often as it does at work.
func (p *process) later(d time.Duration) {
	for ; d > Look; d -= Look {
		p.clock = p.clock.Add(Look)
		p.look(p.ctx)
	}
	p.clock = p.clock.Add(d)
	p.look(p.ctx)
}

func row(t *testing.T, s *store.Store, service string) store.ServiceLock {
	t.Helper()
	locks, err := s.Locks(t.Context())
	require.NoError(t, err)
	for _, l := range locks {
		if l.Service == service {
			return l
		}
	}
	t.Fatalf("there is no row of %s", service)
	return store.ServiceLock{}
}

func TestASuccessor_waits_until_the_counter_stood_still_for_a_leases_life(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a, b := start(t, db.Store, "a", nil, "dispatch"), start(t, db.Again(t), "b", nil, "dispatch")
		a.look(a.ctx)
		require.True(t, a.holds("dispatch"))
		require.Equal(t, []string{"dispatch"}, a.won, "who wins a lease runs at once")
		b.later(0)
		b.later(TTL - time.Second)
		require.False(t, b.holds("dispatch"))
		a.renewAll()
		b.later(time.Second)
		require.False(t, b.holds("dispatch"), "the counter has moved")
		b.later(TTL - 1)
		require.False(t, b.holds("dispatch"))

		// a says nothing from here on; and no clock but b's own tells for how long.
		db.Clock.Advance(24 * time.Hour)
		b.look(b.ctx)
		require.False(t, b.holds("dispatch"))
		b.later(1)
		require.True(t, b.holds("dispatch"))

		old, ok := a.Held("dispatch")
		require.True(t, ok, "its clock stands still, and it has not heard")
		require.Error(t, db.Store.WriteAs(a.ctx, "write", old, func(*store.Tx) error { return nil }), "what it writes fails all the same")
		a.renewAll()
		require.False(t, a.holds("dispatch"))
		a.later(0)
		require.False(t, a.holds("dispatch"))
	})
}

func TestAFrozenObserver_does_not_take_what_was_renewed_meanwhile(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a, b := start(t, db.Store, "a", nil, "dispatch"), start(t, db.Again(t), "b", nil, "dispatch")
		a.look(a.ctx)
		b.later(0)
		a.renewAll()
		b.clock = b.clock.Add(time.Hour) // it slept; what it saw an hour ago has moved since
		b.look(b.ctx)
		require.False(t, b.holds("dispatch"))
		require.True(t, a.holds("dispatch"))
	})
}

func TestTheTimeInWhichNothingCouldBeRead_is_no_silence(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a, b := start(t, db.Store, "a", nil, "dispatch"), start(t, db.Again(t), "b", nil, "dispatch")
		a.look(a.ctx)
		b.later(0)
		b.later(2 * time.Second)
		b.clock = b.clock.Add(time.Hour) // the database was away, and a could not renew either
		b.look(b.ctx)
		b.later(TTL - 4*time.Second)
		require.False(t, b.holds("dispatch"))
		b.later(2 * time.Second)
		require.True(t, b.holds("dispatch"), "what was silent before counts")
	})
}

func TestAReleasedLease_is_taken_at_the_next_look(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a, b := start(t, db.Store, "a", nil, "dispatch", "generate"), start(t, db.Again(t), "b", nil, "dispatch", "generate")
		a.look(a.ctx)
		b.later(0)
		a.release(a.ctx)
		require.False(t, a.holds("dispatch"))
		b.later(0)
		require.True(t, b.holds("dispatch"))
		require.True(t, b.holds("generate"))
		require.Equal(t, []string{"dispatch", "generate"}, b.won)
	})
}

func TestASoleProcess_takes_over_at_once_and_is_never_in_doubt(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		killed, next := start(t, db.Store, "a", sole, "dispatch"), start(t, db.Again(t), "b", sole, "dispatch")
		killed.look(killed.ctx)
		next.look(next.ctx)
		require.True(t, next.holds("dispatch"))
		next.clock = next.clock.Add(time.Hour) // a long write kept its renewals waiting
		next.expire()
		require.True(t, next.holds("dispatch"))
	})
}

func TestAGrant_whose_answer_was_lost_is_not_waited_for(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a := start(t, db.Store, "a", nil, "dispatch")
		a.look(a.ctx)
		l, _ := a.Held("dispatch")
		a.Drop(l)
		a.look(a.ctx)
		again, ok := a.Held("dispatch")
		require.True(t, ok)
		require.Equal(t, l.Epoch+1, again.Epoch)
		a.Drop(l)
		require.True(t, a.holds("dispatch"), "a word about an older grant takes nothing away")

		a.Drop(again) // and one whose answer was cut off by the stop is given back all the same
		a.release(a.ctx)
		b := start(t, db.Again(t), "b", nil, "dispatch")
		b.look(b.ctx)
		require.True(t, b.holds("dispatch"))
	})
}

func TestATurn_ends_when_its_lease_is_lost(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a := start(t, db.Store, "a", nil, "dispatch")
		a.look(a.ctx)
		turn, l, end, ok := a.Begin(a.ctx, "dispatch")
		require.True(t, ok)
		defer end()
		require.Equal(t, "dispatch", l.Service)
		a.clock = a.clock.Add(TTL - 1)
		a.expire()
		require.NoError(t, turn.Err())

		// No renewal came through for a life: somebody else may have it.
		a.clock = a.clock.Add(1)
		a.expire()
		require.Error(t, turn.Err())
		_, _, _, ok = a.Begin(a.ctx, "dispatch")
		require.False(t, ok)
		require.False(t, a.holds("dispatch"))

		// Nobody has: it goes on, under the same grant.
		a.won = nil
		a.renewAll()
		again, l2, end2, ok := a.Begin(a.ctx, "dispatch")
		require.True(t, ok)
		defer end2()
		require.Equal(t, l, l2)
		require.NoError(t, again.Err())
		require.Equal(t, []string{"dispatch"}, a.won, "what came due meanwhile runs")

		// A renewal that finds it taken ends the turn, too.
		_, taken, err := db.Store.AcquireLease(a.ctx, "dispatch", "b", row(t, db.Store, "dispatch"))
		require.NoError(t, err)
		require.True(t, taken)
		a.renewAll()
		require.Error(t, again.Err())
		require.False(t, a.holds("dispatch"))
	})
}

func TestARowThatIsGone_stops_its_service_and_is_complained_of_once_a_minute(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a := start(t, db.Store, "a", nil, "dispatch", "generate")
		a.look(a.ctx)
		turn, old, end, ok := a.Begin(a.ctx, "dispatch")
		require.True(t, ok)
		defer end()
		require.NoError(t, db.Store.RecordRun(t.Context(), store.ServiceRun{Service: "dispatch", Epoch: 7000, StartedAt: sqltest.Start}))
		_, err := db.Store.DB().ExecContext(t.Context(), "DELETE FROM capri_service_lock WHERE service = 'dispatch'")
		require.NoError(t, err)
		for range 130 {
			a.renewAll()
			a.later(time.Second)
		}
		require.Error(t, turn.Err())
		require.Equal(t, []string{"generate"}, a.all(), "the others go on, and nobody makes the row")
		require.Equal(t, 3, strings.Count(a.text.String(), "capri migrate up"), a.text.String())

		made, err := schema.MakeLeases(t.Context(), db.Store.DB(), db.Store.Dialect())
		require.NoError(t, err)
		require.Equal(t, []string{"dispatch"}, made)
		require.Greater(t, row(t, db.Store, "dispatch").Epoch, capri.Epoch(7000), "above every epoch that left a trace")
		require.ErrorIs(t, db.Store.WriteAs(a.ctx, "write", old, func(*store.Tx) error { return nil }), capri.ErrStaleEpoch)
		a.later(time.Second)
		require.True(t, a.holds("dispatch"))
	})
}

// member makes a process one of several masters.
func member(t *testing.T, s *store.Store, name string) func(*Options) {
	return func(o *Options) {
		o.Member = NewMember(MemberOptions{Store: s, Name: name, Log: o.Log})
		o.Holder = o.Member.Holder()
		require.NoError(t, o.Member.Register(t.Context()))
	}
}

// together lets time pass for several masters that live.
func together(d time.Duration, all ...*process) {
	for passed := time.Duration(0); passed < d; passed += Look {
		for _, p := range all {
			p.clock = p.clock.Add(Look)
			if s := p.clock.Unix(); s%2 == 0 {
				p.renewAll()
			}
			if p.clock.Unix()%5 == 0 {
				p.o.Member.beat(p.ctx)
			}
			p.look(p.ctx)
		}
	}
}

func counts(all ...*process) (n []int) {
	for _, p := range all {
		n = append(n, len(p.all()))
	}
	return n
}

// shared expects all leases to be held, and nobody to have more than his part, rounded up.
func shared(t *testing.T, all ...*process) {
	t.Helper()
	total := 0
	for _, n := range counts(all...) {
		require.LessOrEqual(t, n, (len(capri.ServiceLeases)+len(all)-1)/len(all), "%v", counts(all...))
		total += n
	}
	require.Equal(t, len(capri.ServiceLeases), total, "%v", counts(all...))
}

func TestLeases_move_to_masters_that_come_later_one_by_one_and_then_stay(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a := start(t, db.Store, "", member(t, db.Store, "a"), capri.ServiceLeases...)
		together(2*time.Second, a)
		require.Len(t, a.all(), len(capri.ServiceLeases), "a master that is alone has everything at once")
		b := start(t, db.Again(t), "", member(t, db.Store, "b"), capri.ServiceLeases...)
		c := start(t, db.Again(t), "", member(t, db.Store, "c"), capri.ServiceLeases...)

		// A turn under way keeps its lease.
		_, _, end, ok := a.Begin(a.ctx, "cleanup")
		require.True(t, ok)
		together(Stable-5*time.Second, a, b, c)
		require.Equal(t, []int{len(capri.ServiceLeases), 0, 0}, counts(a, b, c), "not at once: it may be a restart")
		together(Stable, a, b, c)
		require.True(t, a.holds("cleanup"))
		end()
		shared(t, a, b, c)

		before := map[string]capri.Epoch{}
		for _, s := range capri.ServiceLeases {
			before[s] = row(t, db.Store, s).Epoch
		}
		together(2*time.Minute, a, b, c)
		for _, s := range capri.ServiceLeases {
			require.Equal(t, before[s], row(t, db.Store, s).Epoch, "%s moved without need", s)
		}
	})
}

func TestADeadMastersLeases_are_shared_by_the_others(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		var all []*process
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, start(t, db.Again(t), "", member(t, db.Store, name), capri.ServiceLeases...))
		}
		together(2*Stable, all...)
		shared(t, all...)
		a, b, c := all[0], all[1], all[2]
		together(TTL+3*time.Second, b, c) // a is dead
		shared(t, b, c)
		// It comes back to life, learns that it leads nothing, and gets its share again in time.
		a.clock = a.clock.Add(TTL + 3*time.Second)
		a.expire()
		require.Empty(t, a.all())
		together(2*Stable, all...)
		shared(t, all...)
	})
}

func TestWhoHasHisShare_lets_others_go_first_for_two_looks_and_no_longer(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		two := []string{"generate", "dispatch"}
		a := start(t, db.Store, "", member(t, db.Store, "a"), two...)
		b := start(t, db.Again(t), "", member(t, db.Store, "b"), two...) // it is registered, and looks at nothing
		a.later(0)
		require.Equal(t, []string{"generate"}, a.all())
		a.later(2*Look - 1)
		require.Equal(t, []string{"generate"}, a.all())
		a.later(1)
		require.Equal(t, two, a.all(), "a lease is never left lying")
		require.Empty(t, b.all())
	})
}

func TestALeaseThatNobodyWants_is_given_back_once(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		two := []string{"generate", "dispatch"}
		a := start(t, db.Store, "", member(t, db.Store, "a"), two...)
		b := start(t, db.Again(t), "", member(t, db.Store, "b"), "generate") // an older version, which does not know the other
		together(2*time.Second, a)
		for range 300 {
			together(Look, a, b)
		}
		require.Equal(t, capri.Epoch(2), row(t, db.Store, "dispatch").Epoch, "offered, and taken again")
		require.Equal(t, 1, len(b.all()), "the one that it knows moved")
		require.Equal(t, []string{"dispatch"}, a.all())
	})
}

func TestAMaster_whose_clock_is_off_leaves_generate_to_others(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		offsets := map[string]time.Duration{}
		with := func(name string, services ...string) *process {
			p := start(t, db.Again(t), "", member(t, db.Store, name), services...)
			p.o.Member.measure = func(context.Context) (time.Duration, time.Duration, error) {
				return offsets[name], time.Millisecond, nil
			}
			return p
		}
		a, b := with("a", "generate", "dispatch"), with("b", "generate", "dispatch")
		offsets["a"] = -3 * time.Second
		together(10*time.Second, a)
		require.True(t, a.holds("dispatch"))
		require.True(t, row(t, db.Store, "generate").Holder == "" || a.holds("generate"))
		together(10*time.Second, a, b)
		require.False(t, a.holds("generate"))
		require.True(t, b.holds("generate"))

		// The one with the better clock does not take it, for whatever reason: it is not left lying.
		l, _ := b.Held("generate")
		b.Drop(l)
		require.NoError(t, db.Store.ReleaseLease(t.Context(), l))
		for range 40 {
			together(Look, a)
			require.NoError(t, b.o.Member.beat(b.ctx))
		}
		require.True(t, a.holds("generate"))
		epoch := row(t, db.Store, "generate").Epoch
		for range 40 {
			together(Look, a)
			require.NoError(t, b.o.Member.beat(b.ctx))
		}
		require.Equal(t, epoch, row(t, db.Store, "generate").Epoch, "and not thrown to and fro")

		// No master has a better clock: one of them leads all the same.
		offsets["b"] = 3 * time.Second
		together(30*time.Second, a, b)
		require.True(t, a.holds("generate") || b.holds("generate"))

		// Most clocks are off in the same way: it is the database's that is wrong.
		offsets["b"] = 0
		for _, n := range []string{"n1", "n2", "n3"} {
			require.NoError(t, db.Store.RegisterNode(t.Context(), capri.Node{Name: n, BootID: n, Pool: "default", Slots: 1, CheckInterval: 5}, n))
		}
		_, err := db.Store.DB().ExecContext(t.Context(), "UPDATE capri_schedul_cluster SET clock_offset_ms = -3000")
		require.NoError(t, err)
		together(10*time.Second, a, b)
		wrong, err := a.o.Member.clockWrong(a.ctx)
		require.NoError(t, err)
		require.False(t, wrong)
	})
}

// The same with time as it is, half a second for a lease: a holder that runs keeps its lease, and one that stops gives it
// back; with Redis in front as well.
func TestKeepers_at_work(t *testing.T) {
	atWork := func(t *testing.T, db *sqltest.DB, redis string) {
		var running [2]context.CancelFunc
		var done [2]sync.WaitGroup
		waker := wake.NewLocal()
		var both []*process
		for i, name := range []string{"a", "b"} {
			p := start(t, db.Again(t), name, func(o *Options) {
				o.TTL, o.Renew, o.Look, o.Waker = 2*time.Second, 200*time.Millisecond, 10*time.Millisecond, waker
				if redis != "" {
					o.Redis = NewRedis(wake.RedisOptions{Addr: redis}, name, o.TTL, o.Log)
				}
			}, "dispatch")
			p.now = time.Now
			both = append(both, p)
			ctx, cancel := context.WithCancel(context.Background())
			running[i] = cancel
			if p.o.Redis != nil {
				p.o.Redis.now = time.Now
				defer p.o.Redis.Close()
			}
			defer done[i].Wait()
			defer cancel()
			done[i].Go(func() { p.Run(ctx) })
			require.Eventually(t, func() bool { return p.holds("dispatch") || i == 1 }, time.Minute, time.Millisecond)
		}
		a, b := both[0], both[1]
		epoch, _ := a.Held("dispatch")
		time.Sleep(b.o.TTL * 3 / 2)
		still, ok := a.Held("dispatch")
		require.True(t, ok && still == epoch, "it renews, and keeps its lease")
		require.False(t, b.holds("dispatch"))
		began := time.Now()
		running[0]()
		done[0].Wait()
		require.Eventually(t, func() bool { return b.holds("dispatch") }, time.Minute, time.Millisecond)
		require.Less(t, time.Since(began), b.o.TTL, "a lease that was given back need not lapse")
	}
	t.Run("by the database", func(t *testing.T) {
		sqltest.Each(t, func(t *testing.T, db *sqltest.DB) { atWork(t, db, "") })
	})
	t.Run("with Redis in front", func(t *testing.T) { atWork(t, sqltest.MySQL(t), testenv.Redis(t)) })
}

// A process that freezes in the middle of a transaction holds a lock on the lease's row. The server ends it.
func TestAHolderFrozenInATransaction_keeps_its_lease_no_longer_than_the_server_waits(t *testing.T) {
	db := sqltest.MySQL(t)
	frozen := db.Options
	frozen.DSN += "&wait_timeout=1" // it has other parameters already
	s, err := store.Open(t.Context(), frozen)
	require.NoError(t, err)
	defer s.Close()
	a, b := start(t, s, "a", nil, "dispatch", "timeout"), start(t, db.Store, "b", nil, "dispatch", "timeout")
	a.look(a.ctx)
	l, _ := a.Held("dispatch")
	awake := make(chan struct{})
	writing := make(chan error)
	inside := make(chan struct{}, 10)
	go func() {
		writing <- s.WriteAs(context.Background(), "write", l, func(tx *store.Tx) error {
			inside <- struct{}{}
			<-awake
			return tx.SaveUser(store.User{Name: "stale"})
		})
	}()
	<-inside
	b.later(0)
	began := time.Now()
	for !b.holds("dispatch") {
		b.later(TTL)
		require.Less(t, time.Since(began), time.Minute, "the lock is still there")
	}
	require.True(t, b.holds("timeout"), "a row that is locked does not keep it from the others")
	close(awake)
	require.Error(t, <-writing)
	users, err := db.Store.Users(t.Context())
	require.NoError(t, err)
	require.Empty(t, users)
}
