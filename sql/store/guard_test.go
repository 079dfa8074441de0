package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// These tests stand behind rules of the store that nothing else would miss at once (scripts/mutants takes each rule
// away and looks which test says so).

// Two transactions lock two rows crosswise, so the server rolls one of them back. What that one had written before is
// gone with it, so it has to be run again from its beginning and not from the statement that failed.
func TestATransaction_that_met_a_deadlock_is_run_again_as_a_whole(t *testing.T) {
	db := sqltest.MySQL(t) // SQLite has one writer
	for _, name := range []string{"n0", "n1"} {
		require.NoError(t, db.Store.RegisterNode(t.Context(), capri.Node{Name: name, BootID: "b", Pool: "default", Slots: 1, CheckInterval: 5}, name))
	}
	const rounds = 5
	deadlocks := 0
	for round := range rounds {
		var met, wg sync.WaitGroup
		met.Add(2)
		tries := [2]int{}
		for side := range 2 {
			wg.Go(func() {
				var once sync.Once
				err := db.Store.Write(t.Context(), "cross", fmt.Sprint("side ", side), func(tx *store.Tx) error {
					tries[side]++
					if err := tx.LogAction("cross", fmt.Sprint(round), "written first"); err != nil {
						return err
					}
					if err := tx.DrainNode(fmt.Sprint("n", side), round%2 == 0); err != nil {
						return err
					}
					once.Do(func() { met.Done(); met.Wait() }) // both hold their first row now
					return tx.DrainNode(fmt.Sprint("n", 1-side), round%2 == 0)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		deadlocks += tries[0] + tries[1] - 2
	}
	actions, err := db.Store.Actions(t.Context(), store.ActionFilter{Limit: 100})
	require.NoError(t, err)
	require.Len(t, actions, 2*rounds, "each transaction that succeeded has written all that belongs to it, once")
	require.GreaterOrEqual(t, deadlocks, rounds, "the transactions did not cross")
}

// Whether a mark has come, a pause is over or a retry may start is a question to one clock, and a master whose own is an
// hour off must not answer it differently.
func TestTime_is_the_databases_whatever_this_machine_says(t *testing.T) {
	db := sqltest.MySQL(t)
	const theirs = 1_700_000_000 // the server's clock, in seconds, as its session sees it
	o := db.Options
	o.Now, o.DSN = nil, fmt.Sprintf("%s&timestamp=%d", o.DSN, theirs)
	s, err := store.Open(t.Context(), o)
	require.NoError(t, err)
	defer s.Close()
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, theirs*1000, now)
	lease := db.Lease(t, "generate")
	for what, write := range map[string]func(func(*store.Tx) error) error{
		"a person's":  func(fn func(*store.Tx) error) error { return s.Write(t.Context(), "look", "alice", fn) },
		"a service's": func(fn func(*store.Tx) error) error { return s.WriteAs(t.Context(), "look", lease, fn) },
	} {
		require.NoError(t, write(func(tx *store.Tx) error {
			require.EqualValues(t, theirs*1000, tx.Now, what)
			return nil
		}))
	}
}

// A path is met while the batch that produces it is run again, by two at once. Whoever comes second has to see the other:
// a reader must not stay met on what a run is about to write anew.
func TestAPath_is_not_met_across_a_new_run_of_its_producer(t *testing.T) {
	db := sqltest.MySQL(t)
	w := &world{DB: db, t: t, ctx: t.Context(), dependency: db.Lease(t, "dependency"), dispatch: db.Lease(t, "dispatch")}
	w.register()
	const pairs = 40
	tasks := w.Tasks(t, 2*pairs, func(int, *capri.Spec) {})
	for i := range pairs {
		path := []capri.PathCondition{{Path: fmt.Sprint("/made/", i), Flag: "_SUCCESS"}}
		producer := w.batch(tasks[2*i], "20261119", capri.Conditions{Outputs: path})
		reader := w.batch(tasks[2*i+1], "20261119", capri.Conditions{Inputs: path})
		w.insert(producer, reader)
		w.run(producer.ID, store.Succeeded, 0)
		first, err := w.Store.ReserveBatchIDs(w.ctx, 1)
		require.NoError(t, err)
		next := *producer
		next.ID, next.RunNo = first, 1
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := w.Store.MeetPaths(w.ctx, w.dependency, path); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 100 * time.Microsecond) // at each pair a little later, over the length of a meeting
			if err := w.Store.Write(w.ctx, "run again", "alice", func(tx *store.Tx) error { return tx.NewRun(producer.ID, &next) }); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		require.Equal(t, 1, w.get(reader.ID).Unmet, "pair %d: the reader may start, and its producer runs again", i)
	}
}

// What a lost node had is given to others in the transaction that calls it lost. Until it has ended its jobs and registered anew it
// must get nothing, whatever was still assigned to it.
func TestANode_that_was_called_lost_claims_and_starts_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		prepared := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		given := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		attempt := w.prepare(prepared.ID)
		w.assign(given.ID)
		_, err := w.Store.DB().ExecContext(w.ctx, "UPDATE capri_schedul_cluster SET lost = 1")
		require.NoError(t, err)
		_, err = w.Store.Claim(w.ctx, node, boot, 10)
		require.ErrorIs(t, err, capri.ErrForbidden)
		_, err = w.Store.Start(w.ctx, node, boot, []capri.Attempt{attempt})
		require.ErrorIs(t, err, capri.ErrForbidden)
		require.Equal(t, capri.Assigned, w.get(given.ID).State)
		require.Zero(t, w.get(prepared.ID).StartTime)
	})
}

// Between claim and start a worker looks at paths and fetches files, which can take minutes. What was withdrawn meanwhile has
// to be seen by the start itself: the job would run on what its parent is about to write anew.
func TestAStart_is_refused_to_what_was_withdrawn_while_it_prepared(t *testing.T) {
	path := []capri.PathCondition{{Path: "/in", Flag: "_SUCCESS"}}
	for what, withdraw := range map[string]func(w *world, parent, child *capri.NewBatch){
		"its parent runs again":            func(w *world, parent, _ *capri.NewBatch) { w.rerun(parent) },
		"a third party took its word back": func(w *world, _, _ *capri.NewBatch) { w.say("withdraw") },
		"another node found a path gone":   func(w *world, _, _ *capri.NewBatch) { require.NoError(w.t, w.Store.PathsGone(w.ctx, "n9", path)) },
		"somebody wants it dead": func(w *world, _, child *capri.NewBatch) {
			w.write(func(tx *store.Tx) error {
				_, _, err := tx.RequestKill([]capri.BatchID{child.ID}, "not needed")
				return err
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			each(t, func(w *world) {
				w.register()
				tasks := w.Tasks(t, 2, func(int, *capri.Spec) {})
				parent := w.batch(tasks[0], "20261119", capri.Conditions{})
				child := w.batch(tasks[1], "20261119", capri.Conditions{Inputs: path, ThirdParty: waitsForThirdParty().ThirdParty, Parents: []capri.ParentCondition{{TaskID: tasks[0].ID, BatchNo: "20261119"}}})
				w.insert(parent, child)
				w.run(parent.ID, store.Succeeded, 0)
				w.say("ready")
				w.look()
				_, err := w.Store.MeetPaths(w.ctx, w.dependency, path)
				require.NoError(t, err)
				attempt := w.prepare(child.ID)

				withdraw(w, parent, child)
				started, err := w.Store.Start(w.ctx, node, boot, []capri.Attempt{attempt})
				require.NoError(t, err)
				require.Empty(t, started)
				require.Zero(t, w.get(child.ID).StartTime)
			})
		})
	}
}
