package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// world is one test's database with what most tests of batches need.
type world struct {
	*sqltest.DB
	t                    *testing.T
	ctx                  context.Context
	dependency, dispatch capri.Lease
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		w := &world{DB: db, t: t, ctx: context.Background(), dependency: db.Lease(t, "dependency"), dispatch: db.Lease(t, "dispatch")}
		fn(w)
	})
}

// batch makes a waiting batch of a task; nothing is inserted.
func (w *world) batch(task *capri.Task, no string, c capri.Conditions) *capri.NewBatch {
	now := w.Clock.Now()
	return &capri.NewBatch{Conditions: c, Batch: capri.Batch{TaskID: task.ID, TaskVersion: task.Version, Period: task.Period, BatchNo: capri.BatchNo(no), Latest: true,
		ScheduleTime: now, DataStart: now.Add(-24 * time.Hour), DataEnd: now, Priority: task.Priority, Slots: 1, Concurrency: 1, Pool: "default", Strategy: capri.LeastLoaded}}
}

func (w *world) insert(batches ...*capri.NewBatch) store.Inserted {
	w.t.Helper()
	in, err := w.Store.InsertBatches(w.ctx, store.ByPerson("test"), batches, nil)
	require.NoError(w.t, err)
	return in
}

func (w *world) get(id capri.BatchID) capri.Batch {
	w.t.Helper()
	row, err := w.Store.Batch(w.ctx, id)
	require.NoError(w.t, err)
	return row.Batch
}

// look lets the dependency service's store half look at all that changed.
func (w *world) look() {
	w.t.Helper()
	for {
		changes, err := w.Store.DependencyChanges(w.ctx, 1000)
		require.NoError(w.t, err)
		if len(changes) == 0 {
			return
		}
		_, err = w.Store.MeetChanged(w.ctx, w.dependency, changes)
		require.NoError(w.t, err)
	}
}

const node, boot = "n1", "boot-1"

func (w *world) register() {
	w.t.Helper()
	require.NoError(w.t, w.Store.RegisterNode(w.ctx, capri.Node{Name: node, BootID: boot, Pool: "default", Slots: 8, CheckInterval: 5}, "dir-1"))
}

// run takes a ready batch all the way to an end.
func (w *world) run(id capri.BatchID, outcome store.Outcome, retries int) {
	w.t.Helper()
	attempt := w.start(id)
	n, err := w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: attempt, Outcome: outcome, Message: "it ended", Retries: retries}})
	require.NoError(w.t, err)
	_ = n
}

func (w *world) assign(id capri.BatchID) {
	w.t.Helper()
	n, err := w.Store.Assign(w.ctx, w.dispatch, []store.Assignment{{Batch: id, Node: node}})
	require.NoError(w.t, err)
	require.Equal(w.t, 1, n, "batch %d was not free to be assigned", id)
}

func (w *world) start(id capri.BatchID) capri.Attempt {
	w.t.Helper()
	w.assign(id)
	claimed, err := w.Store.Claim(w.ctx, node, boot, 100)
	require.NoError(w.t, err)
	require.Len(w.t, claimed, 1)
	a := capri.Attempt{Batch: id, Number: claimed[0].Attempt}
	started, err := w.Store.Start(w.ctx, node, boot, []capri.Attempt{a})
	require.NoError(w.t, err)
	require.Equal(w.t, []capri.Attempt{a}, started)
	return a
}

func TestBatches_are_inserted_once_whoever_asks(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, nil)
		first := w.insert(w.batch(task, "20261119", capri.Conditions{}))
		require.Len(t, first.Made, 1)
		again := w.insert(w.batch(task, "20261119", capri.Conditions{Inputs: []capri.PathCondition{{Path: "/late"}}}), w.batch(task, "20261118", capri.Conditions{}))
		require.Len(t, again.Made, 1, "the other day is new")
		require.Len(t, again.Present, 1, "the same day is present")
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{Task: task.ID})
		require.NoError(t, err)
		require.Len(t, rows, 2)
		paths, err := w.Store.UnmetPaths(w.ctx)
		require.NoError(t, err)
		require.Empty(t, paths, "no conditions were written for the batch that somebody else had made")
	})
}

func TestBatches_made_by_two_at_once_exist_once(t *testing.T) {
	each(t, func(w *world) {
		tasks := w.Tasks(t, 40, func(int, *capri.Spec) {})
		other := w.Again(t)
		var made [2]int
		var wg sync.WaitGroup
		for i, s := range []*store.Store{w.Store, other} {
			wg.Go(func() {
				var batches []*capri.NewBatch
				for _, task := range tasks {
					batches = append(batches, w.batch(task, "20261119", capri.Conditions{ThirdParty: []capri.ThirdPartyCondition{{Code: "c", Period: capri.Day, BatchNo: "20261119"}}}))
				}
				in, err := s.InsertBatches(w.ctx, store.ByPerson(fmt.Sprint("master", i)), batches, nil)
				require.NoError(t, err)
				made[i] = len(in.Made)
			})
		}
		wg.Wait()
		require.Equal(t, 40, made[0]+made[1])
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{})
		require.NoError(t, err)
		require.Len(t, rows, 40)
		for _, r := range rows {
			c, err := w.Store.ConditionsOf(w.ctx, r.ID)
			require.NoError(t, err)
			require.Len(t, c, 1, "each has its conditions once")
		}
	})
}

func TestInsert_is_all_or_nothing_with_what_has_to_be_true_with_it(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, nil)
		_, err := w.Store.InsertBatches(w.ctx, store.ByPerson("test"), []*capri.NewBatch{w.batch(task, "20261119", capri.Conditions{})}, func(*store.Tx, store.Inserted) error {
			return capri.Conflict("no")
		})
		require.ErrorIs(t, err, capri.ErrConflict)
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{})
		require.NoError(t, err)
		require.Empty(t, rows)
	})
}

func TestAStaleEpoch_inserts_and_assigns_nothing(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, nil)
		stale := w.Lease(t, "generate")
		w.Lease(t, "generate") // somebody else took over
		_, err := w.Store.InsertBatches(w.ctx, store.ByService(stale), []*capri.NewBatch{w.batch(task, "20261119", capri.Conditions{})}, nil)
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		b := w.insert(w.batch(task, "20261119", capri.Conditions{})).Made[0]
		old := w.dispatch
		w.Lease(t, "dispatch")
		_, err = w.Store.Assign(w.ctx, old, []store.Assignment{{Batch: b.ID, Node: node}})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Equal(t, capri.Waiting, w.get(b.ID).State)
	})
}

func TestABatch_goes_from_waiting_to_success_with_an_event_for_each_step(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{Outputs: []capri.PathCondition{{Path: "/out", Flag: "_SUCCESS"}}})).Made[0]
		w.run(b.ID, store.Succeeded, 0)
		got := w.get(b.ID)
		require.Equal(t, capri.Finished, got.State)
		require.Equal(t, capri.Success, got.FinishState)
		require.Equal(t, 1, got.Attempt)
		require.NotZero(t, got.FinishTime)
		events, err := w.Store.Events(w.ctx, b.ID)
		require.NoError(t, err)
		var steps []string
		for _, e := range events {
			steps = append(steps, fmt.Sprintf("%s %s %d %s", e.State, e.FinishState, e.Attempt, e.Who))
		}
		require.Equal(t, []string{"assigned none 1 dispatch", "running none 1 n1", "running none 1 n1", "finished success 1 n1"}, steps)
		c, err := w.Store.ConditionsOf(w.ctx, b.ID)
		require.NoError(t, err)
		require.True(t, c[0].Met, "its output is there")
	})
}

func TestFailedAttempts_are_repeated_as_often_as_the_task_says(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		w.run(b.ID, store.Failed, 1)
		require.Equal(t, capri.Waiting, w.get(b.ID).State)
		w.run(b.ID, store.Failed, 1)
		got := w.get(b.ID)
		require.Equal(t, capri.Finished, got.State)
		require.Equal(t, capri.Failed, got.FinishState)
		require.Equal(t, 2, got.Failures)
		require.Equal(t, 2, got.Attempt)
		alerts, err := w.Store.Alerts(w.ctx, nil, 0, 10)
		require.NoError(t, err)
		require.Len(t, alerts, 1, "a final failure is alerted once, in its own transaction")
	})
}

func TestALostAttempt_uses_no_retry_and_is_bounded(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		for range 3 {
			w.run(b.ID, store.Lost, 0)
			require.Equal(t, capri.Waiting, w.get(b.ID).State)
		}
		w.run(b.ID, store.Lost, 0)
		require.Equal(t, capri.Failed, w.get(b.ID).FinishState)
	})
}

func TestALateReport_of_an_old_attempt_changes_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		old := w.start(b.ID)
		_, err := w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: old, Outcome: store.Lost}})
		require.NoError(t, err)
		w.start(b.ID)
		n, err := w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: old, Outcome: store.Succeeded}})
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, capri.Running, w.get(b.ID).State)
	})
}

func TestKill_ends_what_waits_and_asks_what_runs(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task := w.Task(t, nil)
		waiting := w.insert(w.batch(task, "20261118", capri.Conditions{})).Made[0]
		running := w.insert(w.batch(task, "20261119", capri.Conditions{})).Made[0]
		a := w.start(running.ID)
		require.NoError(t, w.Store.Write(w.ctx, "kill", "alice", func(tx *store.Tx) error {
			killed, asked, err := tx.RequestKill([]capri.BatchID{waiting.ID, running.ID}, "not needed")
			require.Equal(t, []capri.BatchID{waiting.ID}, killed)
			require.Equal(t, []capri.BatchID{running.ID}, asked)
			return err
		}))
		require.Equal(t, capri.Killed, w.get(waiting.ID).FinishState)
		kills, err := w.Store.KillsAsked(w.ctx, node)
		require.NoError(t, err)
		require.Equal(t, []capri.Attempt{a}, kills)
		_, err = w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: a, Outcome: store.Failed, Retries: 5}})
		require.NoError(t, err)
		require.Equal(t, capri.Killed, w.get(running.ID).FinishState, "a kill belongs to the run: no retry outlives it")
	})
}

func TestAHeldBatch_is_not_placed_and_an_assigned_one_comes_back(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		w.assign(b.ID)
		hold := func(f func(*store.Tx) error) { require.NoError(t, w.Store.Write(w.ctx, "hold", "alice", f)) }
		hold(func(tx *store.Tx) error { _, err := tx.Hold([]capri.BatchID{b.ID}, "look first"); return err })
		require.Equal(t, capri.Waiting, w.get(b.ID).State)
		n, err := w.Store.Assign(w.ctx, w.dispatch, []store.Assignment{{Batch: b.ID, Node: node}})
		require.NoError(t, err)
		require.Zero(t, n)
		hold(func(tx *store.Tx) error { _, err := tx.Release([]capri.BatchID{b.ID}, "fine"); return err })
		w.assign(b.ID)
	})
}

func TestClaim_takes_nothing_for_a_registration_that_is_not_ours(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		w.assign(b.ID)
		_, err := w.Store.Claim(w.ctx, node, "an older boot", 10)
		require.ErrorIs(t, err, capri.ErrForbidden)
		require.Equal(t, capri.Assigned, w.get(b.ID).State)
	})
}

func TestAnotherDirectory_under_the_same_name_is_refused_while_the_old_one_beats(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		other := capri.Node{Name: node, BootID: "b2", Pool: "default", Slots: 1, CheckInterval: 5, KillAfter: time.Minute}
		err := w.Store.RegisterNode(w.ctx, other, "dir-2")
		require.ErrorIs(t, err, capri.ErrConflict)
		var seen *store.NameTakenError
		require.ErrorAs(t, err, &seen)
		require.Equal(t, 5*time.Second, seen.Interval)
		w.Clock.Advance(time.Hour)
		require.ErrorIs(t, w.Store.RegisterNode(w.ctx, other, "dir-2"), capri.ErrConflict, "how old a beat is tells nothing")
		require.NoError(t, w.Store.RegisterNode(w.ctx, capri.Node{Name: node, BootID: "b3", Pool: "default", Slots: 1, CheckInterval: 5}, "dir-1"), "the same directory takes over at once")
		ok, err := w.Store.Beat(w.ctx, capri.Node{Name: node, BootID: boot})
		require.NoError(t, err)
		require.False(t, ok, "the old boot's beat is refused")
		other.Beat = seen.Beat
		require.ErrorIs(t, w.Store.RegisterNode(w.ctx, other, "dir-2"), capri.ErrConflict, "it has moved since it was watched")
		require.ErrorAs(t, w.Store.RegisterNode(w.ctx, other, "dir-2"), &seen)
		other.Beat = seen.Beat
		require.NoError(t, w.Store.RegisterNode(w.ctx, other, "dir-2"), "it stood still")
	})
}

func TestANewRun_takes_over_latest_and_makes_waiting_children_wait_again(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		parent, child := w.Task(t, nil), w.Task(t, nil)
		out := capri.PathCondition{Path: "/warehouse/x/20261119", Flag: "_SUCCESS"}
		p := w.insert(w.batch(parent, "20261119", capri.Conditions{Outputs: []capri.PathCondition{out}})).Made[0]
		byParent := w.insert(w.batch(child, "20261119", capri.Conditions{Parents: []capri.ParentCondition{{TaskID: parent.ID, BatchNo: "20261119"}}})).Made[0]
		byPath := w.insert(w.batch(child, "20261120", capri.Conditions{Inputs: []capri.PathCondition{out}})).Made[0]
		w.run(p.ID, store.Succeeded, 0)
		w.look()
		_, err := w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{out})
		require.NoError(t, err)
		require.Zero(t, w.get(byParent.ID).Unmet)
		require.Zero(t, w.get(byPath.ID).Unmet)
		w.assign(byParent.ID)

		id, err := w.Store.ReserveBatchIDs(w.ctx, 1)
		require.NoError(t, err)
		next := w.batch(parent, "20261119", capri.Conditions{Outputs: []capri.PathCondition{out}})
		next.ID, next.RunNo = id, 1
		require.NoError(t, w.Store.Write(w.ctx, "rerun", "alice", func(tx *store.Tx) error { return tx.NewRun(p.ID, next) }))

		require.False(t, w.get(p.ID).Latest)
		got := w.get(byParent.ID)
		require.Equal(t, 1, got.Unmet)
		require.Equal(t, capri.Waiting, got.State, "the assigned child came back")
		require.Equal(t, 1, w.get(byPath.ID).Unmet)
		met, err := w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{out})
		require.NoError(t, err)
		require.Zero(t, met, "the old run's flag is still there, and does not count while the new run has not succeeded")
		require.ErrorIs(t, w.Store.Write(w.ctx, "rerun", "alice", func(tx *store.Tx) error { return tx.NewRun(next.ID, next) }), capri.ErrConflict, "an unfinished run is not replaced")

		w.run(next.ID, store.Succeeded, 0)
		w.look()
		_, err = w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{out})
		require.NoError(t, err)
		require.Zero(t, w.get(byParent.ID).Unmet)
		require.Zero(t, w.get(byPath.ID).Unmet)
	})
}

func TestThirdParties_may_say_yes_and_take_it_back(t *testing.T) {
	each(t, func(w *world) {
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{ThirdParty: []capri.ThirdPartyCondition{{Code: "closed", Period: capri.Day, BatchNo: "20261119"}}})).Made[0]
		say := func(what string) {
			require.NoError(t, w.Store.Write(w.ctx, "report", "erp", func(tx *store.Tx) error { return tx.ReportThirdParty("closed", capri.Day, "20261119", what) }))
			w.look()
		}
		say("fail")
		require.Equal(t, 1, w.get(b.ID).Unmet)
		say("ready")
		require.Zero(t, w.get(b.ID).Unmet)
		w.register()
		w.assign(b.ID)
		say("withdraw")
		require.Equal(t, 1, w.get(b.ID).Unmet)
		require.Equal(t, capri.Waiting, w.get(b.ID).State)
	})
}

func TestAReport_that_came_before_the_batch_counts(t *testing.T) {
	each(t, func(w *world) {
		require.NoError(t, w.Store.Write(w.ctx, "report", "erp", func(tx *store.Tx) error { return tx.ReportThirdParty("closed", capri.Day, "20261119", "ready") }))
		w.look()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{ThirdParty: []capri.ThirdPartyCondition{{Code: "closed", Period: capri.Day, BatchNo: "20261119"}}})).Made[0]
		w.look()
		require.Zero(t, w.get(b.ID).Unmet)
	})
}

func TestPolicies_count_groups(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		parent, child := w.Task(t, nil), w.Task(t, nil)
		var hours []*capri.NewBatch
		for h := range 3 {
			hours = append(hours, w.batch(parent, fmt.Sprintf("202611190%d", h), capri.Conditions{}))
		}
		w.insert(hours...)
		rows := func(group int, anyone bool) (c []capri.ParentCondition) {
			for _, h := range hours {
				c = append(c, capri.ParentCondition{Group: group, Any: anyone, TaskID: parent.ID, BatchNo: h.BatchNo})
			}
			return c
		}
		b := w.insert(w.batch(child, "20261119", capri.Conditions{Parents: append(rows(0, false), rows(1, true)...)})).Made[0]
		require.Equal(t, 2, w.get(b.ID).Unmet)
		w.run(hours[1].ID, store.Succeeded, 0)
		w.look()
		require.Equal(t, 1, w.get(b.ID).Unmet, "any one of the second group is enough, the first needs all")
		w.run(hours[0].ID, store.Succeeded, 0)
		w.run(hours[2].ID, store.Succeeded, 0)
		w.look()
		require.Zero(t, w.get(b.ID).Unmet)
	})
}

func TestAThousandParents_are_met_at_once(t *testing.T) {
	each(t, func(w *world) {
		const n = 1000
		parents := w.Tasks(t, n, func(int, *capri.Spec) {})
		child := w.Task(t, nil)
		var ps []*capri.NewBatch
		var c capri.Conditions
		for i, p := range parents {
			b := w.batch(p, "20261119", capri.Conditions{})
			b.State, b.FinishState = capri.Finished, capri.Success
			ps = append(ps, b)
			c.Parents = append(c.Parents, capri.ParentCondition{Group: i, TaskID: p.ID, BatchNo: "20261119"})
		}
		w.insert(ps...)
		b := w.insert(w.batch(child, "20261119", c)).Made[0]
		require.Equal(t, n, w.get(b.ID).Unmet)
		w.look()
		require.Zero(t, w.get(b.ID).Unmet)
	})
}

func TestPathsGone_are_unmet_for_all_that_wait_for_them(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		p := capri.PathCondition{Path: "/in/20261119", Flag: "_SUCCESS"}
		task := w.Task(t, nil)
		a := w.insert(w.batch(task, "20261118", capri.Conditions{Inputs: []capri.PathCondition{p}})).Made[0]
		b := w.insert(w.batch(task, "20261119", capri.Conditions{Inputs: []capri.PathCondition{p}})).Made[0]
		met, err := w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{p})
		require.NoError(t, err)
		require.Equal(t, 2, met)
		w.assign(a.ID)
		claimed, err := w.Store.Claim(w.ctx, node, boot, 10)
		require.NoError(t, err)
		require.Equal(t, []capri.PathCondition{p}, claimed[0].Inputs)
		require.NoError(t, w.Store.PathsGone(w.ctx, node, []capri.PathCondition{p}))
		require.Equal(t, 1, w.get(b.ID).Unmet)
		attempt := capri.Attempt{Batch: a.ID, Number: claimed[0].Attempt}
		started, err := w.Store.Start(w.ctx, node, boot, []capri.Attempt{attempt})
		require.NoError(t, err)
		require.Empty(t, started, "a batch whose condition went away does not start")
		require.NoError(t, w.Store.RollBack(w.ctx, node, []store.GiveBack{{Attempt: attempt, Why: "the path is gone"}}))
		require.Equal(t, capri.Waiting, w.get(a.ID).State)
	})
}

func TestRejections_beyond_the_limit_fail(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		reject := func(limit int) {
			w.assign(b.ID)
			claimed, err := w.Store.Claim(w.ctx, node, boot, 10)
			require.NoError(t, err)
			require.NoError(t, w.Store.RollBack(w.ctx, node, []store.GiveBack{{Attempt: capri.Attempt{Batch: b.ID, Number: claimed[0].Attempt}, Why: "no memory", Rejected: true, Limit: limit}}))
		}
		reject(1)
		require.Equal(t, capri.Waiting, w.get(b.ID).State)
		require.Equal(t, node, w.get(b.ID).AvoidNode)
		reject(1)
		require.Equal(t, capri.Failed, w.get(b.ID).FinishState)
	})
}

func TestReady_is_in_order_and_leaves_out_what_may_not_start(t *testing.T) {
	each(t, func(w *world) {
		tasks := w.Tasks(t, 6, func(i int, s *capri.Spec) { s.Priority = []int{5, 0, 5, 5, 5, 5}[i] })
		disabled := w.Task(t, func(s *capri.Spec) { s.Enabled = false })
		now := w.Clock.Now()
		var ids []capri.BatchID
		for i, task := range append(tasks, disabled) {
			b := w.batch(task, "20261119", capri.Conditions{})
			b.ScheduleTime = now - capri.Instant([]int{10, 5, 20, 1, 1, 1, 1}[i])
			switch i {
			case 3:
				b.NotBefore = now + 1
			case 4:
				b.Held = true
			case 5:
				b.QualityState = 1
			}
			ids = append(ids, w.insert(b).Made[0].ID)
		}
		ready, err := w.Store.Ready(w.ctx, now, 0, store.ReadyAfter{}, 10)
		require.NoError(t, err)
		var got []capri.BatchID
		for _, r := range ready {
			got = append(got, r.ID)
		}
		require.Equal(t, []capri.BatchID{ids[1], ids[2], ids[0]}, got, "priority first, then the earlier mark; not what is early, held, gated or disabled")
		page, err := w.Store.Ready(w.ctx, now, 0, store.ReadyAfter{Priority: ready[0].Priority, ScheduleTime: ready[0].ScheduleTime, ID: ready[0].ID}, 10)
		require.NoError(t, err)
		require.Len(t, page, 2, "a page goes on after the last")
		next, err := w.Store.NextNotBefore(w.ctx, now)
		require.NoError(t, err)
		require.Equal(t, now+1, next)
	})
}

func TestAPause_stops_assigning_even_for_a_plan_made_before(t *testing.T) {
	each(t, func(w *world) {
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		require.NoError(t, w.Store.Write(w.ctx, "pause", "alice", func(tx *store.Tx) error { return tx.PauseDispatch(true, "upgrade", 0) }))
		n, err := w.Store.Assign(w.ctx, w.dispatch, []store.Assignment{{Batch: b.ID, Node: node}})
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestTheSweep_finds_nothing_in_ordinary_life_and_repairs_what_is_wrong(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, nil)
		b := w.insert(w.batch(task, "20261119", capri.Conditions{Inputs: []capri.PathCondition{{Path: "/a"}, {Path: "/b"}}})).Made[0]
		n, err := w.Store.SweepUnmet(w.ctx, w.dependency)
		require.NoError(t, err)
		require.Zero(t, n)
		_, err = w.Store.DB().ExecContext(w.ctx, "UPDATE task_work SET unmet = 0 WHERE id = ?", int64(b.ID))
		require.NoError(t, err)
		n, err = w.Store.SweepUnmet(w.ctx, w.dependency)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, 2, w.get(b.ID).Unmet)
	})
}

// Two sides change the same batches' conditions at random at once; afterwards each count is what its conditions say.
func TestCounts_are_right_after_meeting_and_revoking_at_once(t *testing.T) {
	each(t, func(w *world) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		task := w.Task(t, nil)
		paths := make([]capri.PathCondition, 6)
		for i := range paths {
			paths[i] = capri.PathCondition{Path: fmt.Sprintf("/p/%d", i)}
		}
		var batches []*capri.NewBatch
		for i := range 30 {
			batches = append(batches, w.batch(task, fmt.Sprintf("%08d", i), capri.Conditions{Inputs: paths[:1+i%6],
				ThirdParty: []capri.ThirdPartyCondition{{Code: "c", Period: capri.Day, BatchNo: "1"}}}))
		}
		w.insert(batches...)
		w.look()
		var wg sync.WaitGroup
		for side := range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(side)))
				for range 15 {
					p := []capri.PathCondition{paths[rng.IntN(6)]}
					var err error
					switch side {
					case 0:
						_, err = w.Store.MeetPaths(w.ctx, w.dependency, p)
					case 1:
						err = w.Store.PathsGone(w.ctx, node, p)
					case 2:
						say := []string{"ready", "withdraw"}[rng.IntN(2)]
						err = w.Store.Write(w.ctx, "report", "erp", func(tx *store.Tx) error { return tx.ReportThirdParty("c", capri.Day, "1", say) })
					case 3:
						var changes []store.DependencyChange
						if changes, err = w.Store.DependencyChanges(w.ctx, 100); err == nil && len(changes) > 0 {
							_, err = w.Store.MeetChanged(w.ctx, w.dependency, changes)
						}
					}
					if err != nil {
						t.Errorf("side %d: %v", side, err)
						return
					}
				}
			})
		}
		wg.Wait()
		n, err := w.Store.SweepUnmet(w.ctx, w.dependency)
		require.NoError(t, err)
		require.Zero(t, n, "the sweep must find nothing")
	})
}
