package dispatch_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/internal/servicetest"
	"capri/services"
	"capri/services/dispatch"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

type world struct {
	*servicetest.World
	service *dispatch.Service
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	servicetest.Each(t, "dispatch", func(in *servicetest.World) {
		w := &world{World: in}
		w.restart()
		fn(w)
	})
}

// restart is what a new process begins with.
func (w *world) restart() {
	w.service = dispatch.New(w.Store, calendar.New(time.UTC), rand.New(rand.NewPCG(1, 1)))
}

// node registers a node with so many slots.
func (w *world) node(name string, slots int) {
	w.T.Helper()
	w.Node(name, func(n *capri.Node) { n.Slots = slots })
}

func (w *world) turn() services.Result {
	w.T.Helper()
	return w.Turn(w.service)
}

func (w *world) states(ids []capri.BatchID) (assigned int) {
	for _, id := range ids {
		if w.Get(id).State == capri.Assigned {
			assigned++
		}
	}
	return assigned
}

func TestWhatIsReady_is_placed_and_its_node_is_woken(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 2)
		ids := w.Batches(w.Task(t, nil), 3)
		res := w.turn()
		require.Equal(t, 2, res.Counts["assigned"])
		require.Equal(t, []string{wake.Node("n1")}, res.Wake)
		require.Equal(t, 2, w.states(ids))
		require.Empty(t, w.turn().Counts, "a full pool gives nothing to do, and nothing to record")
	})
}

func TestConcurrency_holds_and_says_so(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		one, other := w.Task(t, nil), w.Task(t, nil)
		ids := w.Batches(one, 5, func(b *capri.NewBatch) { b.Concurrency = 2 })
		others := w.Batches(other, 1)
		w.turn()
		w.turn()
		require.Equal(t, 2, w.states(ids))
		require.Equal(t, 1, w.states(others), "who is limited does not hold up the others")
		require.Equal(t, "this task already runs 2 at once, waiting", w.Get(ids[4]).Message)
		w.restart() // another leader counts what runs, not what it remembers
		w.Lead()
		w.turn()
		require.Equal(t, 2, w.states(ids))
	})
}

func TestAnAccountThatIsNotGranted_fails_with_that_sentence(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		w.Write(func(tx *store.Tx) error {
			if err := tx.SaveUser(store.User{Name: "bob", Department: "dw"}); err != nil {
				return err
			}
			if err := tx.SaveUser(store.User{Name: "carol", Department: "other"}); err != nil {
				return err
			}
			return tx.SaveUser(store.User{Name: "alice"})
		})
		w.Exec("INSERT INTO account_grant (account, kind, name, created_at) VALUES ('etl', 'user', 'alice', 0), ('etl', 'department', 'dw', 0)")
		as := func(owner string) capri.BatchID {
			return w.Batches(w.Task(t, func(s *capri.Spec) { s.Owner = owner }), 1, func(b *capri.NewBatch) { b.Account = "etl" })[0]
		}
		alice, bob, carol, nobody := as("alice"), as("bob"), as("carol"), as("nobody")
		res := w.turn()
		require.Equal(t, map[string]int{"assigned": 2, "failed": 2}, res.Counts)
		require.Equal(t, capri.Assigned, w.Get(alice).State, "granted to the owner")
		require.Equal(t, capri.Assigned, w.Get(bob).State, "granted to the owner's department")
		for _, id := range []capri.BatchID{carol, nobody} {
			b := w.Get(id)
			require.Equal(t, capri.Failed, b.FinishState)
			require.Equal(t, "dispatch failed: this task's owner has no right to run it as account etl", b.Message)
		}
	})
}

func TestSkipAfter_ends_what_could_not_start_in_time_also_while_all_is_full(t *testing.T) {
	each(t, func(w *world) {
		id := w.Batches(w.Task(t, nil), 1, func(b *capri.NewBatch) { b.SkipAt = w.Clock.Now().Add(time.Minute) })[0]
		w.turn()
		require.Equal(t, capri.Waiting, w.Get(id).State)
		w.Clock.Advance(time.Minute)
		require.Equal(t, 1, w.turn().Counts["skipped"])
		require.Equal(t, capri.Skipped, w.Get(id).FinishState)
	})
}

func TestLatestScheduleTime_leaves_later_batches_waiting(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		task := w.Task(t, nil)
		early := w.Batches(task, 1)[0]
		late := w.Batches(task, 1, func(b *capri.NewBatch) { b.ScheduleTime++ })[0]
		w.Set(t, store.LatestScheduleTime, sqltest.Start.In(time.UTC).Format(time.DateTime))
		w.turn()
		require.Equal(t, capri.Assigned, w.Get(early).State)
		require.Equal(t, capri.Waiting, w.Get(late).State)
		w.Set(t, store.LatestScheduleTime, "")
		w.turn()
		require.Equal(t, capri.Assigned, w.Get(late).State)
	})
}

func TestAPause_holds_until_its_time_and_says_why(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		id := w.Batches(w.Task(t, nil), 1)[0]
		w.Write(func(tx *store.Tx) error { return tx.PauseDispatch(true, "upgrade", sqltest.Start.Add(time.Hour)) })
		w.turn()
		require.Equal(t, capri.Waiting, w.Get(id).State)
		require.Equal(t, "dispatch is paused: upgrade", w.Get(id).Message)
		w.Clock.Advance(time.Hour)
		w.turn()
		require.Equal(t, capri.Assigned, w.Get(id).State)
		require.Empty(t, w.Get(id).Message, "the reason goes when the batch does")
	})
}

func TestMaxRunning_holds_over_everything(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		ids := w.Batches(w.Task(t, nil), 5)
		w.Exec("UPDATE capri_service_lock SET max_running = 0 WHERE service = 'dispatch'")
		w.turn()
		require.Zero(t, w.states(ids))
		require.Equal(t, "max_running is 0: nothing is started", w.Get(ids[0]).Message)
		w.Exec("UPDATE capri_service_lock SET max_running = 3 WHERE service = 'dispatch'")
		w.turn()
		w.turn()
		require.Equal(t, 3, w.states(ids))
	})
}

func TestAFullPool_does_not_starve_another(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 1)
		w.Node("g1", func(n *capri.Node) { n.Pool, n.Slots = "gpu", 1 })
		task := w.Task(t, nil)
		w.Batches(task, 2500, func(b *capri.NewBatch) { b.Priority = 0 }) // more than a page
		id := w.Batches(task, 1, func(b *capri.NewBatch) { b.Pool, b.Priority = "gpu", 9 })[0]
		w.turn()
		require.Equal(t, "g1", w.Get(id).Node)
	})
}

func TestReasons_are_written_once(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 1)
		ids := w.Batches(w.Task(t, nil), 3)
		w.turn()
		require.Equal(t, "no free slot in pool default", w.Get(ids[2]).Message)
		w.Lease(t, "dispatch") // from here on each write of ours fails
		for range 30 {
			w.Clock.Advance(time.Second)
			require.Empty(t, w.turn().Counts)
		}
	})
}

func TestAnotherLeadersEpoch_places_nothing_more(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		id := w.Batches(w.Task(t, nil), 1)[0]
		w.Lease(t, "dispatch")
		_, err := w.service.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: w.Leads})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Equal(t, capri.Waiting, w.Get(id).State)
	})
}

// Two masters that both believe to lead, each with its own picture of what runs: the limits hold all the same.
func TestLimits_hold_across_a_change_of_leader(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 4)
		task := w.Task(t, nil)
		ids := w.Batches(task, 20, func(b *capri.NewBatch) { b.Concurrency = 3 })
		for range 5 {
			old, stale := w.service, w.Leads
			w.restart()
			w.Lead()
			done := make(chan error)
			go func() {
				_, err := old.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: stale})
				done <- err
			}()
			w.turn()
			if err := <-done; err != nil {
				require.ErrorIs(t, err, capri.ErrStaleEpoch)
			}
		}
		require.Equal(t, 3, w.states(ids))
	})
}

func TestALostOrDrainingNode_gets_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		w.node("n2", 10)
		w.node("n3", 10)
		w.Exec("UPDATE capri_schedul_cluster SET lost = 1 WHERE host = 'n1'")
		w.Write(func(tx *store.Tx) error { return tx.DrainNode("n2", true) })
		ids := w.Batches(w.Task(t, nil), 5)
		w.turn()
		for _, id := range ids {
			require.Equal(t, "n3", w.Get(id).Node)
		}
	})
}

func TestABatchThatMayStartLater_is_placed_at_its_time(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		id := w.Batches(w.Task(t, nil), 1, func(b *capri.NewBatch) { b.NotBefore = w.Clock.Now().Add(300 * time.Millisecond) })[0]
		res := w.turn()
		require.Equal(t, w.Clock.Now().Add(300*time.Millisecond), res.Next, "and not at the next tick")
		w.Clock.Set(res.Next)
		w.turn()
		require.Equal(t, capri.Assigned, w.Get(id).State)
	})
}

// With more ready than there is room for, a turn reads a page and writes what it places; it is the ordinary minute
// after midnight.
func TestManyReady_with_few_free_slots_cost_one_page(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 3)
		task := w.Task(t, nil)
		for range 10 {
			w.Batches(task, 500)
		}
		w.turn()
		w.Exec("UPDATE task_work SET state = 3, finish_state = 1 WHERE state = 1")
		w.Exec("UPDATE task_work SET message = 'as it was' WHERE state = 0")
		began := time.Now()
		w.Clock.Advance(time.Second)
		require.Equal(t, 3, w.turn().Counts["assigned"])
		t.Logf("%s", time.Since(began))
		var told int
		require.NoError(t, w.Store.DB().QueryRowContext(w.Ctx, "SELECT COUNT(*) FROM task_work WHERE state = 0 AND message <> 'as it was'").Scan(&told))
		require.LessOrEqual(t, told, 2000, "only what was read is told why it waits")
	})
}
