package services_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/services"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

// world is a runner of one row in a bubble of time: SQLite lives in this process, so time stands still while it works.
type world struct {
	*sqltest.DB
	t     *testing.T
	waker *wake.Local
	*services.Runner

	mu    sync.Mutex
	held  map[string]capri.Lease
	lose  context.CancelFunc // the lease, during a turn
	turns []time.Time        // when they began
	told  []services.Turn

	settled int
	do      func(n int) (services.Result, error) // what the n-th turn does
}

func (w *world) Held(service string) (capri.Lease, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, ok := w.held[service]
	return l, ok
}

func (w *world) Begin(ctx context.Context, service string) (context.Context, capri.Lease, func(), bool) {
	l, ok := w.Held(service)
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = cancel
	return ctx, l, cancel, ok
}

func (w *world) Drop(l capri.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, l.Service)
}

func (w *world) Run(_ context.Context, t services.Turn) (services.Result, error) {
	w.mu.Lock()
	w.turns, w.told = append(w.turns, time.Now()), append(w.told, t)
	n, do := len(w.turns), w.do
	w.mu.Unlock()
	if do == nil {
		return services.Result{}, nil
	}
	return do(n)
}

// settle lets everything come to rest and tells how many turns there were since the last time.
func (w *world) settle() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.turns) - w.settled
	w.settled += n
	return n
}

func inBubble(t *testing.T, do func(n int) (services.Result, error), fn func(w *world)) {
	t.Helper()
	bubble(t, services.Row{Every: time.Minute}, do, fn)
}

// bubble runs a row "s" under the lease of cleanup.
func bubble(t *testing.T, row services.Row, do func(n int) (services.Result, error), fn func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := sqltest.SQLite(t)
		w := &world{DB: db, t: t, waker: wake.NewLocal(), do: do, held: map[string]capri.Lease{}}
		w.held["cleanup"] = db.Lease(t, "cleanup")
		row.Name, row.Lease, row.Wake, row.Service = "s", "cleanup", []string{"topic"}, w
		w.Runner = services.NewRunner(row, db.Store, w, w.waker, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Runner.Run(ctx) })
		synctest.Wait()
		fn(w)
		cancel()
		running.Wait()
	})
}

func (w *world) lastRun() (store.ServiceRun, bool) {
	w.t.Helper()
	runs, err := w.Store.LastRuns(context.Background())
	require.NoError(w.t, err)
	r, ok := runs["s"]
	return r, ok
}

func TestARunner_takes_no_turn_that_it_does_not_lead(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		lease, _ := w.Held("cleanup")
		w.Drop(lease)
		w.Tick()
		w.waker.Wake("topic")
		require.Zero(t, w.settle())
		w.held["cleanup"] = lease
		w.Tick()
		require.Equal(t, 1, w.settle())
		require.Equal(t, services.Turn{Now: sqltest.Start, Lease: lease}, w.told[0], "it is told the time of the database")
		w.waker.Wake("topic")
		require.Equal(t, 1, w.settle())
		require.True(t, w.told[1].Woken)
		w.waker.Wake("another topic")
		require.Zero(t, w.settle())
	})
}

func TestTicks_that_come_during_a_turn_become_one_turn_after_it(t *testing.T) {
	inBubble(t, func(n int) (services.Result, error) {
		if n == 1 {
			time.Sleep(time.Second)
		}
		return services.Result{}, nil
	}, func(w *world) {
		w.Tick()
		synctest.Wait()
		for range 10 {
			w.Tick()
		}
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, w.settle())
	})
}

func TestWakeUps_that_come_during_a_turn_become_one_turn_after_it(t *testing.T) {
	inBubble(t, func(n int) (services.Result, error) {
		if n == 1 {
			time.Sleep(time.Second)
		}
		return services.Result{}, nil
	}, func(w *world) {
		w.Tick()
		synctest.Wait()
		for range 10 {
			w.waker.Wake("topic")
		}
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, w.settle())
	})
}

func TestAStaleEpoch_drops_the_lease(t *testing.T) {
	inBubble(t, func(int) (services.Result, error) {
		return services.Result{}, fmt.Errorf("write: %w", capri.ErrStaleEpoch)
	}, func(w *world) {
		w.Tick()
		w.waker.Wake("topic")
		require.Equal(t, 1, w.settle(), "and nothing is done without it")
		_, held := w.Held("cleanup")
		require.False(t, held)
	})
}

func TestAPanic_is_an_error_of_that_turn_alone(t *testing.T) {
	inBubble(t, func(n int) (services.Result, error) {
		if n == 1 {
			panic("index out of range")
		}
		return services.Result{}, nil
	}, func(w *world) {
		w.Tick()
		require.Equal(t, 1, w.settle())
		run, ok := w.lastRun()
		require.True(t, ok)
		require.Equal(t, "internal fault: index out of range", run.Error)
		time.Sleep(time.Minute)
		require.Equal(t, 1, w.settle(), "it is tried again")
	})
}

func TestAnError_pauses_the_service_whoever_wakes_it(t *testing.T) {
	inBubble(t, func(int) (services.Result, error) {
		return services.Result{Wake: []string{"topic"}}, errors.New("disk full") // it wakes itself
	}, func(w *world) {
		began := time.Now()
		w.Tick()
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			w.waker.Wake("topic")
			w.Tick()
		}
		require.InDelta(t, time.Since(began).Seconds(), w.settle(), 2, "one turn a second, not one a wake-up")
	})
}

func TestNext_runs_again_at_its_time_and_Again_at_once(t *testing.T) {
	inBubble(t, func(n int) (services.Result, error) {
		switch n {
		case 1:
			return services.Result{Next: sqltest.Start.Add(90 * time.Second)}, nil
		case 2:
			return services.Result{Again: true, Next: sqltest.Start.Add(time.Hour)}, nil
		}
		return services.Result{}, nil
	}, func(w *world) {
		w.Tick()
		synctest.Wait()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Len(t, w.turns, 3)
		require.Equal(t, 90*time.Second, w.turns[1].Sub(w.turns[0]))
		require.Zero(t, w.turns[2].Sub(w.turns[1]))
	})
}

func TestANext_that_has_passed_does_not_spin(t *testing.T) {
	inBubble(t, func(int) (services.Result, error) { return services.Result{Next: sqltest.Start - 1000}, nil }, func(w *world) {
		w.Tick()
		time.Sleep(100 * time.Millisecond)
		require.LessOrEqual(t, w.settle(), 101)
	})
}

func TestOnlyTurns_that_did_something_or_failed_are_recorded(t *testing.T) {
	counts := []map[string]int{nil, {}, {"made": 3}, nil}
	inBubble(t, func(n int) (services.Result, error) { return services.Result{Counts: counts[n-1]}, nil }, func(w *world) {
		for range 2 {
			w.Tick()
			synctest.Wait()
			_, recorded := w.lastRun()
			require.False(t, recorded)
		}
		w.Tick()
		synctest.Wait()
		run, _ := w.lastRun()
		lease, _ := w.Held("cleanup")
		require.Equal(t, store.ServiceRun{Service: "s", Epoch: lease.Epoch, Holder: lease.Holder, StartedAt: sqltest.Start, Counts: counts[2]}, run)
	})
}

func TestWhatATurnSays_is_woken_after_it(t *testing.T) {
	inBubble(t, func(int) (services.Result, error) { return services.Result{Wake: []string{"others"}}, nil }, func(w *world) {
		others, stop := w.waker.Listen("others")
		defer stop()
		w.Tick()
		<-others
	})
}

func (w *world) state() store.ServiceState {
	w.t.Helper()
	x, found, err := w.Store.ServiceState(context.Background(), "s")
	require.NoError(w.t, err)
	require.True(w.t, found)
	return x
}

func TestTheStateOfARow_tells_its_newest_turn_and_the_next(t *testing.T) {
	inBubble(t, func(n int) (services.Result, error) {
		time.Sleep(3 * time.Second)
		if n == 2 {
			return services.Result{}, errors.New("disk full")
		}
		return services.Result{Counts: map[string]int{"made": 1}}, nil
	}, func(w *world) {
		lease, _ := w.Held("cleanup")
		w.Tick()
		synctest.Wait()
		want := store.ServiceState{Service: "s", Holder: lease.Holder, Epoch: lease.Epoch, StartedAt: sqltest.Start}
		require.Equal(t, want, w.state(), "a turn that hangs can be seen")
		time.Sleep(4 * time.Second)
		want.CompletedAt, want.Duration, want.NextAt = sqltest.Start.Add(3*time.Second), 3*time.Second, sqltest.Start.Add(time.Minute)
		require.Equal(t, want, w.state())
		want.StartedAt = w.Clock.Advance(time.Minute)
		time.Sleep(time.Minute)
		w.Tick()
		time.Sleep(3500 * time.Millisecond)
		require.Equal(t, want, w.state(), "a turn that failed is not a completed one")
	})
}

func TestIdleTurns_are_noted_once_in_ten_seconds(t *testing.T) {
	inBubble(t, nil, func(w *world) {
		noted := map[capri.Instant]bool{}
		for range 100 {
			w.Clock.Advance(time.Second)
			w.Tick()
			time.Sleep(time.Second)
			noted[w.state().CompletedAt] = true
		}
		require.Equal(t, 100, w.settle())
		require.InDelta(t, 10, len(noted), 1)
		lease := w.DB.Lease(t, "cleanup")
		w.mu.Lock()
		w.held["cleanup"] = lease
		w.mu.Unlock()
		w.Tick()
		synctest.Wait()
		require.Equal(t, lease.Epoch, w.state().Epoch, "a new leader is noted at once")
	})
}

// daily fires at 02:10 in UTC.
func daily(after capri.Instant) capri.Instant {
	const day, at = 24 * 60 * 60 * 1000, (2*60 + 10) * 60 * 1000
	return (after-at)/day*day + day + at
}

// pass lets the database's clock run along with the bubble's.
func (w *world) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		w.Clock.Advance(min(d, time.Second))
		time.Sleep(min(d, time.Second))
	}
	synctest.Wait()
}

func TestATimeOfDay_runs_when_it_has_come_and_once_after_an_outage(t *testing.T) {
	first := capri.InstantOf(time.Date(2026, 11, 21, 2, 10, 0, 0, time.UTC))
	bubble(t, services.Row{Fires: daily}, nil, func(w *world) {
		w.Tick() // it leads now
		require.Zero(t, w.settle(), "a new database owes nothing of the past")
		require.Equal(t, first, w.state().NextAt)
		w.Clock.Advance(first.Sub(w.Clock.Now()) - 20*time.Second)
		w.pass(19 * time.Second)
		require.Zero(t, w.settle())
		w.pass(10 * time.Second)
		require.Equal(t, 1, w.settle())
		require.False(t, w.told[0].Woken)
		require.Less(t, w.told[0].Now.Sub(first), 3*time.Second)
		require.Equal(t, first.Add(24*time.Hour), w.state().NextAt)
		w.Tick()
		require.Zero(t, w.settle(), "once")

		// Nobody leads for three days; the next one does it once.
		w.Clock.Advance(3 * 24 * time.Hour)
		lease := w.DB.Lease(t, "cleanup")
		w.mu.Lock()
		w.held["cleanup"] = lease
		w.mu.Unlock()
		w.Tick()
		require.Equal(t, 1, w.settle())
		require.Equal(t, w.Clock.Now(), w.state().FiredAt)
		w.pass(time.Minute)
		require.Zero(t, w.settle())
	})
}

func TestATimeOfDay_that_failed_or_has_more_to_do_is_not_done(t *testing.T) {
	bubble(t, services.Row{Fires: daily}, func(n int) (services.Result, error) {
		switch n {
		case 1:
			return services.Result{}, errors.New("disk full")
		case 2, 3:
			return services.Result{Again: true}, nil
		}
		return services.Result{}, nil
	}, func(w *world) {
		w.Tick()
		synctest.Wait()
		before := w.state().FiredAt
		w.Clock.Advance(24 * time.Hour)
		w.Tick()
		synctest.Wait()
		require.Equal(t, before, w.state().FiredAt)
		time.Sleep(2 * time.Second)
		require.Equal(t, 4, w.settle())
		require.Equal(t, w.Clock.Now(), w.state().FiredAt)
	})
}

func TestATrigger_runs_a_service_at_any_time(t *testing.T) {
	bubble(t, services.Row{Fires: daily}, nil, func(w *world) {
		w.Tick()
		w.Trigger()
		require.Equal(t, 1, w.settle())
		require.False(t, w.told[0].Woken, "a person wants it to look at everything")
	})
}

func TestADatabaseClock_that_is_set_forward_is_noticed(t *testing.T) {
	bubble(t, services.Row{Fires: daily}, nil, func(w *world) {
		w.Tick()
		require.Zero(t, w.settle())
		w.Clock.Advance(24 * time.Hour)
		time.Sleep(6 * time.Second)
		require.Equal(t, 1, w.settle())
		w.Clock.Advance(-48 * time.Hour) // and back: the times of day that come again run again, once there is a new leader
		lease := w.DB.Lease(t, "cleanup")
		w.mu.Lock()
		w.held["cleanup"] = lease
		w.mu.Unlock()
		w.Tick()
		require.Zero(t, w.settle())
		w.Clock.Advance(24 * time.Hour)
		w.Tick()
		require.Equal(t, 1, w.settle())
	})
}

func TestALeaseThatIsLost_ends_the_turn(t *testing.T) {
	bubble(t, services.Row{Every: time.Second}, nil, func(w *world) {
		ended := make(chan error, 1)
		r := services.NewRunner(services.Row{Name: "slow", Lease: "cleanup", Service: slow(ended)}, w.Store, w, w.waker, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		r.Tick()
		synctest.Wait()
		w.mu.Lock()
		w.lose()
		w.mu.Unlock()
		synctest.Wait()
		require.ErrorIs(t, <-ended, context.Canceled)
		cancel()
		running.Wait()
	})
}

type slow chan error

func (s slow) Run(ctx context.Context, _ services.Turn) (services.Result, error) {
	<-ctx.Done()
	s <- ctx.Err()
	return services.Result{}, ctx.Err()
}
