package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// Guarantee 4: no batch starts while a condition of it is unmet. What follows are the interleavings that broke it, or
// that left a batch waiting for ever.

func (w *world) write(fn func(*store.Tx) error) {
	w.t.Helper()
	require.NoError(w.t, w.Store.Write(w.ctx, "test", "alice", fn))
}

// rerun makes the next run of a finished batch and returns its id.
func (w *world) rerun(old *capri.NewBatch) *capri.NewBatch {
	w.t.Helper()
	id, err := w.Store.ReserveBatchIDs(w.ctx, 1)
	require.NoError(w.t, err)
	next := *old
	next.ID, next.RunNo, next.State, next.FinishState = id, old.RunNo+1, capri.Waiting, capri.None
	w.write(func(tx *store.Tx) error { return tx.NewRun(old.ID, &next) })
	return &next
}

func (w *world) say(what string) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error { return tx.ReportThirdParty("closed", capri.Day, "20261119", what) })
}

func (w *world) prepare(id capri.BatchID) capri.Attempt {
	w.t.Helper()
	w.assign(id)
	claimed, err := w.Store.Claim(w.ctx, node, boot, 100)
	require.NoError(w.t, err)
	require.Len(w.t, claimed, 1)
	return capri.Attempt{Batch: id, Number: claimed[0].Attempt}
}

func (w *world) finish(a capri.Attempt, o store.Outcome, retries int) {
	w.t.Helper()
	_, err := w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: a, Outcome: o, Message: "it ended", Retries: retries}})
	require.NoError(w.t, err)
}

func waitsForThirdParty() capri.Conditions {
	return capri.Conditions{ThirdParty: []capri.ThirdPartyCondition{{Code: "closed", Period: capri.Day, BatchNo: "20261119"}}}
}

func TestARetry_waits_for_a_parent_that_was_run_again_meanwhile(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		parent, child := w.Task(t, nil), w.Task(t, nil)
		out := capri.PathCondition{Path: "/x/20261119", Flag: "_SUCCESS"}
		p := w.insert(w.batch(parent, "20261119", capri.Conditions{Outputs: []capri.PathCondition{out}})).Made[0]
		byParent := w.insert(w.batch(child, "20261119", capri.Conditions{Parents: []capri.ParentCondition{{TaskID: parent.ID, BatchNo: "20261119"}}})).Made[0]
		byPath := w.insert(w.batch(child, "20261120", capri.Conditions{Inputs: []capri.PathCondition{out}})).Made[0]
		w.run(p.ID, store.Succeeded, 0)
		w.look()
		_, err := w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{out})
		require.NoError(t, err)
		failed, lost := w.start(byParent.ID), w.start(byPath.ID)

		again := w.rerun(p)
		require.Equal(t, capri.Running, w.get(byParent.ID).State, "what runs has read what it read")
		require.Zero(t, w.get(byParent.ID).Unmet)
		w.finish(failed, store.Failed, 3)
		w.finish(lost, store.Lost, 0)
		require.Equal(t, 1, w.get(byParent.ID).Unmet, "the next attempt is another start")
		require.Equal(t, 1, w.get(byPath.ID).Unmet)

		w.look()
		require.Equal(t, 1, w.get(byParent.ID).Unmet)
		w.run(again.ID, store.Succeeded, 0)
		w.look()
		_, err = w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{out})
		require.NoError(t, err)
		require.Zero(t, w.get(byParent.ID).Unmet)
		require.Zero(t, w.get(byPath.ID).Unmet)
	})
}

func TestARetry_waits_for_a_third_party_that_took_its_word_back_meanwhile(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", waitsForThirdParty())).Made[0]
		w.say("ready")
		w.look()
		a := w.start(b.ID)
		w.say("withdraw")
		w.finish(a, store.Failed, 3)
		require.Equal(t, 1, w.get(b.ID).Unmet)
		w.say("ready")
		w.look()
		require.Zero(t, w.get(b.ID).Unmet)
	})
}

func TestAnOrdinaryRetry_keeps_its_conditions_and_leaves_nothing_to_look_at(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		c := waitsForThirdParty()
		c.Inputs = []capri.PathCondition{{Path: "/in"}}
		b := w.insert(w.batch(w.Task(t, nil), "20261119", c)).Made[0]
		w.say("ready")
		w.look()
		_, err := w.Store.MeetPaths(w.ctx, w.dependency, c.Inputs)
		require.NoError(t, err)
		w.run(b.ID, store.Failed, 3)
		require.Equal(t, capri.Waiting, w.get(b.ID).State)
		require.Zero(t, w.get(b.ID).Unmet)
		changes, err := w.Store.DependencyChanges(w.ctx, 10)
		require.NoError(t, err)
		require.Empty(t, changes)
	})
}

// A preparing batch does not wait, so nobody marked what came true while it was on its way back.
func TestABatchThatComesBack_sees_what_came_true_while_it_prepared(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", waitsForThirdParty())).Made[0]
		w.say("ready")
		w.look()
		a := w.prepare(b.ID)
		w.say("withdraw")
		w.say("ready")
		w.look() // the word is used up while the batch is still with its worker
		require.NoError(t, w.Store.RollBack(w.ctx, node, []store.GiveBack{{Attempt: a, Why: "a condition was withdrawn"}}))
		w.look()
		require.Equal(t, capri.Waiting, w.get(b.ID).State)
		require.Zero(t, w.get(b.ID).Unmet, "or it waits for ever")
	})
}

func TestAnyoneOfAGroup_is_enough_though_the_first_one_runs_again(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		one, two, child := w.Task(t, nil), w.Task(t, nil), w.Task(t, nil)
		p1 := w.insert(w.batch(one, "20261119", capri.Conditions{})).Made[0]
		p2 := w.insert(w.batch(two, "20261119", capri.Conditions{})).Made[0]
		b := w.insert(w.batch(child, "20261119", capri.Conditions{Parents: []capri.ParentCondition{
			{Any: true, TaskID: one.ID, BatchNo: "20261119"}, {Any: true, TaskID: two.ID, BatchNo: "20261119"}}})).Made[0]
		w.run(p1.ID, store.Succeeded, 0)
		w.look()
		w.run(p2.ID, store.Succeeded, 0)
		w.look() // nothing to meet: one is enough
		require.Zero(t, w.get(b.ID).Unmet)
		w.rerun(p1)
		require.Equal(t, 1, w.get(b.ID).Unmet, "until it is looked at")
		w.look()
		require.Zero(t, w.get(b.ID).Unmet, "the second parent has succeeded")
	})
}

// On MySQL a transaction's first plain read fixes what all its later plain reads see.
func TestSeveralNewRunsInOneTransaction_revoke_what_was_met_while_it_ran(t *testing.T) {
	db := sqltest.MySQL(t) // SQLite has one writer: nothing is met meanwhile
	w := &world{DB: db, t: t, ctx: t.Context(), dependency: db.Lease(t, "dependency"), dispatch: db.Lease(t, "dispatch")}
	w.register()
	parents, child := w.Tasks(t, 2, func(int, *capri.Spec) {}), w.Task(t, nil)
	var olds, nexts [2]*capri.NewBatch
	for i, p := range parents {
		olds[i] = w.insert(w.batch(p, "20261119", capri.Conditions{})).Made[0]
		w.run(olds[i].ID, store.Succeeded, 0)
		id, err := w.Store.ReserveBatchIDs(w.ctx, 1)
		require.NoError(t, err)
		nexts[i] = w.batch(p, "20261119", capri.Conditions{})
		nexts[i].ID, nexts[i].RunNo = id, 1
	}
	w.look()
	b := w.insert(w.batch(child, "20261119", capri.Conditions{Parents: []capri.ParentCondition{{TaskID: parents[1].ID, BatchNo: "20261119"}}})).Made[0]
	w.write(func(tx *store.Tx) error {
		if err := tx.NewRun(olds[0].ID, nexts[0]); err != nil {
			return err
		}
		w.look()
		require.Zero(t, w.get(b.ID).Unmet)
		return tx.NewRun(olds[1].ID, nexts[1])
	})
	require.Equal(t, 1, w.get(b.ID).Unmet)
}

func TestANewRun_that_writes_elsewhere_makes_readers_of_the_new_place_wait(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		parent, child := w.Task(t, nil), w.Task(t, nil)
		there := capri.PathCondition{Path: "/new/20261119", Flag: "_SUCCESS"} // written by hand once
		p := w.insert(w.batch(parent, "20261119", capri.Conditions{})).Made[0]
		w.run(p.ID, store.Succeeded, 0)
		b := w.insert(w.batch(child, "20261119", capri.Conditions{Inputs: []capri.PathCondition{there}})).Made[0]
		_, err := w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{there})
		require.NoError(t, err)
		require.Zero(t, w.get(b.ID).Unmet)
		p.Outputs = []capri.PathCondition{there} // the definition was edited
		w.rerun(p)
		require.Equal(t, 1, w.get(b.ID).Unmet)
	})
}

func TestALostChange_is_healed_by_the_sweep(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		parent := w.Task(t, nil)
		p := w.insert(w.batch(parent, "20261119", capri.Conditions{})).Made[0]
		other := w.insert(w.batch(parent, "20261120", capri.Conditions{})).Made[0]
		c := waitsForThirdParty()
		c.Parents = []capri.ParentCondition{{TaskID: parent.ID, BatchNo: "20261119"}}
		b := w.insert(w.batch(w.Task(t, nil), "20261119", c)).Made[0]
		waits := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{Parents: []capri.ParentCondition{{TaskID: parent.ID, BatchNo: "20261120"}}})).Made[0]
		w.run(p.ID, store.Succeeded, 0)
		w.say("ready")
		_, err := w.Store.DB().ExecContext(w.ctx, "DELETE FROM dependency_change")
		require.NoError(t, err)
		met, err := w.Store.HealUnmet(w.ctx, w.dependency)
		require.NoError(t, err)
		require.Equal(t, 1, met)
		require.Zero(t, w.get(b.ID).Unmet)
		require.Equal(t, 1, w.get(waits.ID).Unmet, "batch %d has not succeeded", other.ID)
		met, err = w.Store.HealUnmet(w.ctx, w.dependency)
		require.NoError(t, err)
		require.Zero(t, met)
	})
}

func TestASkipTime_does_not_end_what_has_started_in_time(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		nb := w.batch(w.Task(t, nil), "20261119", capri.Conditions{})
		nb.SkipAt = w.Clock.Now().Add(time.Minute)
		w.insert(nb)
		ready, err := w.Store.Ready(w.ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 10)
		require.NoError(t, err)
		require.Equal(t, nb.SkipAt, ready[0].SkipAt)
		w.run(nb.ID, store.Failed, 3)
		ready, err = w.Store.Ready(w.ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 10)
		require.NoError(t, err)
		require.Zero(t, ready[0].SkipAt)
	})
}

func TestAHeldBatch_is_not_skipped_and_an_ended_one_is_not_released(t *testing.T) {
	each(t, func(w *world) {
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		w.write(func(tx *store.Tx) error { _, err := tx.Hold([]capri.BatchID{b.ID}, "look first"); return err })
		n, err := w.Store.EndUnplaced(w.ctx, w.dispatch, capri.Skipped, "late", []capri.BatchID{b.ID})
		require.NoError(t, err)
		require.Zero(t, n)
		w.write(func(tx *store.Tx) error {
			_, _, err := tx.RequestKill([]capri.BatchID{b.ID}, "not needed")
			return err
		})
		w.write(func(tx *store.Tx) error { _, err := tx.Release([]capri.BatchID{b.ID}, "fine"); return err })
		require.Equal(t, "not needed", w.get(b.ID).Message, "finished is final")
	})
}

// What a job or a driver says may be in any encoding and of any length; that must not keep a batch from ending.
func TestAMessage_in_another_encoding_does_not_keep_a_batch_from_ending(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		a := w.start(b.ID)
		text := "exit 1: \xce\xc4\xbc\xfe\xb2\xbb\xb4\xe6\xd4\xda"
		_, err := w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: a, Outcome: store.Failed, Message: text}})
		require.NoError(t, err)
		require.Equal(t, capri.Failed, w.get(b.ID).FinishState)
		alerts, err := w.Store.Alerts(w.ctx, nil, 0, 10)
		require.NoError(t, err)
		require.Len(t, alerts, 1)
	})
}

func TestAnAlert_with_a_long_key_is_one_alert_and_not_another(t *testing.T) {
	each(t, func(w *world) {
		long := strings.Repeat("k", 300)
		for _, key := range []string{long + "1", long + "1", long + "2", "short", "short"} {
			w.write(func(tx *store.Tx) error { return tx.Alert(capri.Alert{Key: key, Level: capri.Important, Kind: "test"}) })
		}
		alerts, err := w.Store.Alerts(w.ctx, nil, 0, 10)
		require.NoError(t, err)
		require.Len(t, alerts, 3)
	})
}

// MariaDB takes packets up to 16 MB: a hundred definitions of 200 kB are more than that.
func TestManyLargeRows_fit_the_servers_packets(t *testing.T) {
	each(t, func(w *world) {
		command := strings.Repeat("x", 200<<10)
		tasks := w.Tasks(t, 100, func(_ int, s *capri.Spec) { s.Job.Command = command })
		var batches []*capri.NewBatch
		for i, task := range tasks {
			var c capri.Conditions
			for p := range 10 {
				c.Inputs = append(c.Inputs, capri.PathCondition{Path: fmt.Sprintf("/%s/%d/%d", strings.Repeat("p", 2000), i, p), Flag: "_SUCCESS"})
			}
			batches = append(batches, w.batch(task, "20261119", c))
		}
		require.Len(t, w.insert(batches...).Made, 100)
	})
}

func TestTheSweep_counts_each_repair_once(t *testing.T) {
	db := sqltest.SQLite(t)
	w := &world{DB: db, t: t, ctx: t.Context(), dependency: db.Lease(t, "dependency")}
	b := w.insert(w.batch(w.Task(t, nil), "20261119", waitsForThirdParty())).Made[0]
	_, err := db.Store.DB().ExecContext(w.ctx, "UPDATE task_work SET unmet = 5 WHERE id = ?", int64(b.ID))
	require.NoError(t, err)
	n, err := db.Store.SweepUnmet(w.ctx, w.dependency)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	alerts, err := db.Store.Alerts(w.ctx, nil, 0, 10)
	require.NoError(t, err)
	require.Len(t, alerts, 1)
}

func TestABatchNo_that_has_a_run_which_counts_is_present_though_its_first_run_is_gone(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task := w.Task(t, nil)
		first := w.insert(w.batch(task, "20261119", capri.Conditions{})).Made[0]
		w.run(first.ID, store.Succeeded, 0)
		w.rerun(first)
		_, err := w.Store.DB().ExecContext(w.ctx, "DELETE FROM task_work WHERE id = ?", int64(first.ID))
		require.NoError(t, err)
		in := w.insert(w.batch(task, "20261119", capri.Conditions{}), w.batch(task, "20261120", capri.Conditions{}))
		require.Len(t, in.Present, 1)
		require.Len(t, in.Made, 1)
	})
}

// Something else than a batch is in the way: that must not look like success.
func TestAnInsert_that_never_gets_through_is_an_error(t *testing.T) {
	each(t, func(w *world) {
		nb := w.batch(w.Task(t, nil), "20261119", capri.Conditions{Inputs: []capri.PathCondition{{Path: "/a"}}})
		in, err := w.Store.InsertBatches(w.ctx, store.ByPerson("test"), []*capri.NewBatch{nb, nb}, nil)
		require.Error(t, err)
		require.Empty(t, in.Made)
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{})
		require.NoError(t, err)
		require.Empty(t, rows)
	})
}

func TestAssign_of_one_batch_twice_takes_no_other_along(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task := w.Task(t, nil)
		a, b, c := w.batch(task, "1", capri.Conditions{}), w.batch(task, "2", capri.Conditions{}), w.batch(task, "3", capri.Conditions{})
		w.insert(a, b, c)
		n, err := w.Store.Assign(w.ctx, w.dispatch, []store.Assignment{{Batch: c.ID, Node: node}, {Batch: a.ID, Node: node}, {Batch: a.ID, Node: node}})
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, capri.Waiting, w.get(b.ID).State)
	})
}
