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
	turns []time.Time // when they began
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
	synctest.Test(t, func(t *testing.T) {
		db := sqltest.SQLite(t)
		w := &world{DB: db, t: t, waker: wake.NewLocal(), do: do, held: map[string]capri.Lease{}}
		w.held["s"] = db.Lease(t, "s")
		w.Runner = services.NewRunner(services.Row{Name: "s", Lease: "s", Wake: []string{"topic"}, Service: w}, db.Store, w, w.waker, slog.New(slog.DiscardHandler))
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
		lease, _ := w.Held("s")
		w.Drop(lease)
		w.Tick()
		w.waker.Wake("topic")
		require.Zero(t, w.settle())
		w.held["s"] = lease
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
		_, held := w.Held("s")
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
		lease, _ := w.Held("s")
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
