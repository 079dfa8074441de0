package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/services"
	"capri/services/dispatch"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

type world struct {
	*sqltest.DB
	t       *testing.T
	ctx     context.Context
	lease   capri.Lease
	service *dispatch.Service
	days    int
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		w := &world{DB: db, t: t, ctx: t.Context(), lease: db.Lease(t, "dispatch")}
		w.restart()
		fn(w)
	})
}

// restart is what a new process begins with.
func (w *world) restart() {
	w.service = dispatch.New(w.Store, calendar.New(time.UTC), rand.New(rand.NewPCG(1, 1)))
}

func (w *world) node(name string, slots int) {
	w.t.Helper()
	require.NoError(w.t, w.Store.RegisterNode(w.ctx, capri.Node{Name: name, BootID: "boot", Pool: "default", Slots: slots, CheckInterval: 5}, name))
}

// ready inserts batches of the task that wait for nothing, each of another day.
func (w *world) ready(task *capri.Task, n int, change func(*capri.NewBatch)) []capri.BatchID {
	w.t.Helper()
	now := w.Clock.Now()
	var batches []*capri.NewBatch
	for range n {
		w.days++
		b := &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: task.Version, Period: capri.Day, BatchNo: capri.BatchNo(fmt.Sprint("d", w.days)), Latest: true,
			ScheduleTime: now, DataStart: now, DataEnd: now, Priority: 5, Slots: 1, Concurrency: 1000, Pool: "default", Strategy: capri.LeastLoaded}}
		if change != nil {
			change(b)
		}
		batches = append(batches, b)
	}
	_, err := w.Store.InsertBatches(w.ctx, store.ByPerson("test"), batches, nil)
	require.NoError(w.t, err)
	ids := make([]capri.BatchID, n)
	for i, b := range batches {
		ids[i] = b.ID
	}
	return ids
}

func (w *world) turn() services.Result {
	w.t.Helper()
	res, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: w.lease})
	require.NoError(w.t, err)
	return res
}

func (w *world) get(id capri.BatchID) capri.Batch {
	w.t.Helper()
	row, err := w.Store.Batch(w.ctx, id)
	require.NoError(w.t, err)
	return row.Batch
}

func (w *world) write(fn func(*store.Tx) error) {
	w.t.Helper()
	require.NoError(w.t, w.Store.Write(w.ctx, "test", "alice", fn))
}

func (w *world) exec(text string, args ...any) {
	w.t.Helper()
	_, err := w.Store.DB().ExecContext(w.ctx, text, args...)
	require.NoError(w.t, err)
}

func (w *world) states(ids []capri.BatchID) (assigned int) {
	for _, id := range ids {
		if w.get(id).State == capri.Assigned {
			assigned++
		}
	}
	return assigned
}

func TestWhatIsReady_is_placed_and_its_node_is_woken(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 2)
		ids := w.ready(w.Task(t, nil), 3, nil)
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
		ids := w.ready(one, 5, func(b *capri.NewBatch) { b.Concurrency = 2 })
		others := w.ready(other, 1, nil)
		w.turn()
		w.turn()
		require.Equal(t, 2, w.states(ids))
		require.Equal(t, 1, w.states(others), "who is limited does not hold up the others")
		require.Equal(t, "this task already runs 2 at once, waiting", w.get(ids[4]).Message)
		w.restart() // another leader counts what runs, not what it remembers
		w.lease = w.Lease(t, "dispatch")
		w.turn()
		require.Equal(t, 2, w.states(ids))
	})
}

func TestAnAccountThatIsNotGranted_fails_with_that_sentence(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		w.write(func(tx *store.Tx) error {
			if err := tx.SaveUser(store.User{Name: "bob", Department: "dw"}); err != nil {
				return err
			}
			if err := tx.SaveUser(store.User{Name: "carol", Department: "other"}); err != nil {
				return err
			}
			return tx.SaveUser(store.User{Name: "alice"})
		})
		w.exec("INSERT INTO account_grant (account, kind, name, created_at) VALUES ('etl', 'user', 'alice', 0), ('etl', 'department', 'dw', 0)")
		as := func(owner string) capri.BatchID {
			return w.ready(w.Task(t, func(s *capri.Spec) { s.Owner = owner }), 1, func(b *capri.NewBatch) { b.Account = "etl" })[0]
		}
		alice, bob, carol, nobody := as("alice"), as("bob"), as("carol"), as("nobody")
		res := w.turn()
		require.Equal(t, map[string]int{"assigned": 2, "failed": 2}, res.Counts)
		require.Equal(t, capri.Assigned, w.get(alice).State, "granted to the owner")
		require.Equal(t, capri.Assigned, w.get(bob).State, "granted to the owner's department")
		for _, id := range []capri.BatchID{carol, nobody} {
			b := w.get(id)
			require.Equal(t, capri.Failed, b.FinishState)
			require.Equal(t, "dispatch failed: this task's owner has no right to run it as account etl", b.Message)
		}
	})
}

func TestSkipAfter_ends_what_could_not_start_in_time_also_while_all_is_full(t *testing.T) {
	each(t, func(w *world) {
		id := w.ready(w.Task(t, nil), 1, func(b *capri.NewBatch) { b.SkipAt = w.Clock.Now().Add(time.Minute) })[0]
		w.turn()
		require.Equal(t, capri.Waiting, w.get(id).State)
		w.Clock.Advance(time.Minute)
		require.Equal(t, 1, w.turn().Counts["skipped"])
		require.Equal(t, capri.Skipped, w.get(id).FinishState)
	})
}

func TestLatestScheduleTime_leaves_later_batches_waiting(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		task := w.Task(t, nil)
		early := w.ready(task, 1, nil)[0]
		late := w.ready(task, 1, func(b *capri.NewBatch) { b.ScheduleTime++ })[0]
		w.Set(t, store.LatestScheduleTime, sqltest.Start.In(time.UTC).Format(time.DateTime))
		w.turn()
		require.Equal(t, capri.Assigned, w.get(early).State)
		require.Equal(t, capri.Waiting, w.get(late).State)
		w.Set(t, store.LatestScheduleTime, "")
		w.turn()
		require.Equal(t, capri.Assigned, w.get(late).State)
	})
}

func TestAPause_holds_until_its_time_and_says_why(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		id := w.ready(w.Task(t, nil), 1, nil)[0]
		w.write(func(tx *store.Tx) error { return tx.PauseDispatch(true, "upgrade", sqltest.Start.Add(time.Hour)) })
		w.turn()
		require.Equal(t, capri.Waiting, w.get(id).State)
		require.Equal(t, "dispatch is paused: upgrade", w.get(id).Message)
		w.Clock.Advance(time.Hour)
		w.turn()
		require.Equal(t, capri.Assigned, w.get(id).State)
		require.Empty(t, w.get(id).Message, "the reason goes when the batch does")
	})
}

func TestMaxRunning_holds_over_everything(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		ids := w.ready(w.Task(t, nil), 5, nil)
		w.exec("UPDATE capri_service_lock SET max_running = 0 WHERE service = 'dispatch'")
		w.turn()
		require.Zero(t, w.states(ids))
		require.Equal(t, "max_running is 0: nothing is started", w.get(ids[0]).Message)
		w.exec("UPDATE capri_service_lock SET max_running = 3 WHERE service = 'dispatch'")
		w.turn()
		w.turn()
		require.Equal(t, 3, w.states(ids))
	})
}

func TestAFullPool_does_not_starve_another(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 1)
		require.NoError(t, w.Store.RegisterNode(w.ctx, capri.Node{Name: "g1", BootID: "boot", Pool: "gpu", Slots: 1, CheckInterval: 5}, "g1"))
		task := w.Task(t, nil)
		w.ready(task, 2500, func(b *capri.NewBatch) { b.Priority = 0 }) // more than a page
		id := w.ready(task, 1, func(b *capri.NewBatch) { b.Pool, b.Priority = "gpu", 9 })[0]
		w.turn()
		require.Equal(t, "g1", w.get(id).Node)
	})
}

func TestReasons_are_written_once(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 1)
		ids := w.ready(w.Task(t, nil), 3, nil)
		w.turn()
		require.Equal(t, "no free slot in pool default", w.get(ids[2]).Message)
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
		id := w.ready(w.Task(t, nil), 1, nil)[0]
		w.Lease(t, "dispatch")
		_, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: w.lease})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Equal(t, capri.Waiting, w.get(id).State)
	})
}

// Two masters that both believe to lead, each with its own picture of what runs: the limits hold all the same.
func TestLimits_hold_across_a_change_of_leader(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 4)
		task := w.Task(t, nil)
		ids := w.ready(task, 20, func(b *capri.NewBatch) { b.Concurrency = 3 })
		for range 5 {
			old, stale := w.service, w.lease
			w.restart()
			w.lease = w.Lease(t, "dispatch")
			done := make(chan error)
			go func() {
				_, err := old.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: stale})
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
		w.exec("UPDATE capri_schedul_cluster SET lost = 1 WHERE host = 'n1'")
		w.write(func(tx *store.Tx) error { return tx.DrainNode("n2", true) })
		ids := w.ready(w.Task(t, nil), 5, nil)
		w.turn()
		for _, id := range ids {
			require.Equal(t, "n3", w.get(id).Node)
		}
	})
}

func TestABatchThatMayStartLater_is_placed_at_its_time(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		id := w.ready(w.Task(t, nil), 1, func(b *capri.NewBatch) { b.NotBefore = w.Clock.Now().Add(300 * time.Millisecond) })[0]
		res := w.turn()
		require.Equal(t, w.Clock.Now().Add(300*time.Millisecond), res.Next, "and not at the next tick")
		w.Clock.Set(res.Next)
		w.turn()
		require.Equal(t, capri.Assigned, w.get(id).State)
	})
}

// With more ready than there is room for, a turn reads a page and writes what it places; it is the ordinary minute
// after midnight.
func TestManyReady_with_few_free_slots_cost_one_page(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 3)
		task := w.Task(t, nil)
		for range 10 {
			w.ready(task, 500, nil)
		}
		w.turn()
		w.exec("UPDATE task_work SET state = 3, finish_state = 1 WHERE state = 1")
		w.exec("UPDATE task_work SET message = 'as it was' WHERE state = 0")
		began := time.Now()
		w.Clock.Advance(time.Second)
		require.Equal(t, 3, w.turn().Counts["assigned"])
		t.Logf("%s", time.Since(began))
		var told int
		require.NoError(t, w.Store.DB().QueryRowContext(w.ctx, "SELECT COUNT(*) FROM task_work WHERE state = 0 AND message <> 'as it was'").Scan(&told))
		require.LessOrEqual(t, told, 2000, "only what was read is told why it waits")
	})
}
