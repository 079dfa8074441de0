package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/store"
)

func (w *world) force(ids ...capri.BatchID) (done []capri.BatchID) {
	w.write(func(tx *store.Tx) (err error) {
		done, err = tx.ForceSuccess(ids, "forced to success by alice: known to be right")
		return err
	})
	return done
}

func (w *world) runNow(ids ...capri.BatchID) (done []capri.BatchID) {
	w.write(func(tx *store.Tx) (err error) {
		done, err = tx.RunNow(ids, "run now by alice: urgent")
		return err
	})
	return done
}

func TestAForcedSuccess_is_a_success_to_everybody_and_only_where_nothing_runs(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		up, down := w.Task(t, nil), w.Task(t, nil)
		out := capri.PathCondition{Path: "/out", Flag: "_SUCCESS"}
		waiting := w.insert(w.batch(up, "20261117", capri.Conditions{ThirdParty: []capri.ThirdPartyCondition{{Code: "never", Period: capri.Day, BatchNo: "20261117"}}})).Made[0]
		failed := w.insert(w.batch(up, "20261118", capri.Conditions{Outputs: []capri.PathCondition{out}})).Made[0]
		running := w.insert(w.batch(up, "20261119", capri.Conditions{})).Made[0]
		child := w.insert(w.batch(down, "20261119", capri.Conditions{Inputs: []capri.PathCondition{out}, Parents: []capri.ParentCondition{
			{Group: 0, TaskID: up.ID, BatchNo: "20261117"}, {Group: 1, TaskID: up.ID, BatchNo: "20261118"}}})).Made[0]
		w.run(failed.ID, store.Failed, 0)
		attempt := w.start(running.ID)
		_, err := w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{out})
		require.NoError(t, err)
		require.Equal(t, 3, w.get(child.ID).Unmet, "the output of a failed run is not believed")

		require.Equal(t, []capri.BatchID{waiting.ID, failed.ID}, w.force(waiting.ID, failed.ID, running.ID))
		require.Empty(t, w.force(waiting.ID, failed.ID), "once is enough")
		require.Equal(t, capri.Running, w.get(running.ID).State)
		for _, id := range []capri.BatchID{waiting.ID, failed.ID} {
			b := w.get(id)
			require.Equal(t, []any{capri.Finished, capri.Success, w.Clock.Now()}, []any{b.State, b.FinishState, b.FinishTime})
			events := w.events(id)
			last := events[len(events)-1]
			require.Equal(t, []any{capri.Success, "forced to success by alice: known to be right"}, []any{last.FinishState, last.Why})
		}
		w.look()
		_, err = w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{out})
		require.NoError(t, err)
		require.Zero(t, w.get(child.ID).Unmet, "met by the ordinary way")

		// Killed first, it may be called a success; what the worker says late changes nothing.
		w.write(func(tx *store.Tx) error {
			_, _, err := tx.RequestKill([]capri.BatchID{running.ID}, "wrong")
			return err
		})
		require.Empty(t, w.force(running.ID), "its processes may still be there")
		w.finish(attempt, store.Killed, 0)
		require.Equal(t, []capri.BatchID{running.ID}, w.force(running.ID))
		w.finish(attempt, store.Failed, 0)
		require.Equal(t, capri.Success, w.get(running.ID).FinishState)

		// A run that a newer one has taken the place of stays what it was.
		old := w.insert(w.batch(down, "20261110", capri.Conditions{})).Made[0]
		w.run(old.ID, store.Failed, 0)
		w.rerun(old)
		require.Empty(t, w.force(old.ID))
	})
}

func TestRunNow_starts_a_batch_whatever_is_said_of_its_conditions_and_of_it_alone(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		up, down := w.Task(t, nil), w.Task(t, nil)
		in := capri.PathCondition{Path: "/in", Flag: "_SUCCESS"}
		parent := w.insert(w.batch(up, "20261119", capri.Conditions{})).Made[0]
		conditions := capri.Conditions{Inputs: []capri.PathCondition{in}, ThirdParty: []capri.ThirdPartyCondition{{Code: "closed", Period: capri.Day, BatchNo: "20261119"}},
			Parents: []capri.ParentCondition{{TaskID: up.ID, BatchNo: "20261119"}}, Outputs: []capri.PathCondition{{Path: "/out", Flag: "_SUCCESS"}}}
		nb := w.batch(down, "20261119", conditions)
		nb.NotBefore = w.Clock.Now().Add(time.Hour)
		b, other := w.insert(nb).Made[0], w.insert(w.batch(down, "20261118", conditions)).Made[0]

		require.Equal(t, []capri.BatchID{b.ID}, w.runNow(b.ID))
		require.Empty(t, w.runNow(b.ID), "once is enough")
		row := w.get(b.ID)
		require.True(t, row.RunNow)
		require.Zero(t, row.Unmet)
		require.Contains(t, w.readyIDs(), b.ID)
		require.NotContains(t, w.readyIDs(), other.ID)
		unmet, err := w.Store.UnmetOf(w.ctx, []capri.BatchID{b.ID, other.ID})
		require.NoError(t, err)
		require.Len(t, unmet, 1, "nobody asks for conditions that do not count")

		// Nothing that happens to its conditions makes it wait again: not even while it prepares, nor after a failure.
		again := func() {
			w.t.Helper()
			require.NoError(t, w.Store.PathsGone(w.ctx, node, []capri.PathCondition{in}))
			w.write(func(tx *store.Tx) error { return tx.ReportThirdParty("closed", capri.Day, "20261119", "withdraw") })
			w.write(func(tx *store.Tx) error {
				_, err := tx.ReplaceConditions(b.ID, conditions)
				return err
			})
			_, err := w.Store.HealUnmet(w.ctx, w.dependency)
			require.NoError(t, err)
			n, err := w.Store.SweepUnmet(w.ctx, w.dependency)
			require.NoError(t, err)
			require.Zero(t, n, "the recount finds it right")
			require.Zero(t, w.get(b.ID).Unmet)
		}
		again()
		w.assign(b.ID)
		again()
		claimed, err := w.Store.Claim(w.ctx, node, boot, 100)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		require.Empty(t, claimed[0].Inputs, "its worker does not look for paths either")
		a := capri.Attempt{Batch: b.ID, Number: claimed[0].Attempt}
		started, err := w.Store.Start(w.ctx, node, boot, []capri.Attempt{a})
		require.NoError(t, err)
		require.Len(t, started, 1)
		w.finish(a, store.Failed, 1)
		again()
		require.Contains(t, w.readyIDs(), b.ID, "its next attempt runs now, too")
		require.NotContains(t, w.readyIDs(), other.ID)

		// The next run of the same batch_no waits as ever.
		w.run(b.ID, store.Succeeded, 0)
		next := w.rerun(b)
		require.Equal(t, 3, w.get(next.ID).Unmet)
		require.False(t, w.get(next.ID).RunNow)

		w.write(func(tx *store.Tx) error {
			_, err := tx.Hold([]capri.BatchID{parent.ID}, "look first")
			return err
		})
		require.Empty(t, w.runNow(parent.ID), "a held one stays")
	})
}

func TestParameters_of_a_run_are_kept_with_it_and_reach_its_worker(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		nb := w.batch(w.Task(t, nil), "20261119", capri.Conditions{})
		nb.Params = map[string]string{"day": "it's \"now\"; $(id)", "ж": "ü"}
		b := w.insert(nb).Made[0]
		require.Equal(t, nb.Params, w.get(b.ID).Params)
		w.assign(b.ID)
		claimed, err := w.Store.Claim(w.ctx, node, boot, 1)
		require.NoError(t, err)
		require.Equal(t, nb.Params, claimed[0].Params)
		a := capri.Attempt{Batch: b.ID, Number: 1}
		_, err = w.Store.Start(w.ctx, node, boot, []capri.Attempt{a})
		require.NoError(t, err)
		w.finish(a, store.Succeeded, 0)
		w.Clock.Advance(time.Hour)
		_, err = w.Store.ArchiveBatches(w.ctx, w.Lease(t, "cleanup"), w.Clock.Now(), []capri.BatchID{b.ID})
		require.NoError(t, err)
		archived := w.get(b.ID)
		require.True(t, archived.Archived)
		require.Equal(t, nb.Params, archived.Params)
	})
}

func TestAStop_holds_for_a_plan_made_before_until_it_ends(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, func(s *capri.Spec) { s.Group = "dw" })
		for i, x := range []store.Stop{
			{Kind: store.Pause, Scope: store.OfGroup, Name: "dw"},
			{Kind: store.Pause, Scope: store.OfNode, Name: node},
			{Kind: store.Breaker, Scope: store.OfTask, Name: "t", Task: task.ID},
			{Kind: store.Breaker, Scope: store.OfGroup, Name: "dw"},
		} {
			b := w.insert(w.batch(task, fmt.Sprint(i), capri.Conditions{})).Made[0]
			plan := []store.Assignment{{Batch: b.ID, Node: node, Task: task.ID, Group: "dw"}}
			assigned := func() int {
				n, err := w.Store.Assign(w.ctx, w.dispatch, plan)
				require.NoError(t, err)
				return n
			}
			x.Reason, x.Until = "look first", w.Clock.Now().Add(time.Hour)
			w.write(func(tx *store.Tx) error { return tx.SetStop(x) })
			require.Zero(t, assigned(), "%v of %v", x.Kind, x.Scope)
			d, err := w.Store.DispatchState(w.ctx)
			require.NoError(t, err)
			require.Len(t, d.StopsAt(w.Clock.Now()), 1)
			require.Equal(t, "alice", d.StopsAt(w.Clock.Now())[0].By)

			w.write(func(tx *store.Tx) error { // again, with another end
				x.Until = w.Clock.Now().Add(2 * time.Hour)
				return tx.SetStop(x)
			})
			w.Clock.Advance(time.Hour)
			require.Zero(t, assigned())
			w.Clock.Advance(time.Hour)
			d, err = w.Store.DispatchState(w.ctx)
			require.NoError(t, err)
			require.Empty(t, d.StopsAt(w.Clock.Now()), "it has ended by itself")
			require.Equal(t, 1, assigned())

			ended := true
			w.write(func(tx *store.Tx) (err error) {
				ended, err = tx.EndStop(x)
				return err
			})
			require.False(t, ended, "it had ended")
		}
		// Others go on, and a stop without an end stands until somebody ends it.
		other := w.insert(w.batch(w.Task(t, nil), "o", capri.Conditions{})).Made[0]
		b := w.insert(w.batch(task, "last", capri.Conditions{})).Made[0]
		x := store.Stop{Kind: store.Breaker, Scope: store.OfTask, Name: "t", Task: task.ID, Reason: "it fails"}
		w.write(func(tx *store.Tx) error { return tx.SetStop(x) })
		w.Clock.Advance(1000 * time.Hour)
		plan := []store.Assignment{{Batch: other.ID, Node: node, Task: other.TaskID}, {Batch: b.ID, Node: node, Task: task.ID, Group: "dw"}}
		n, err := w.Store.Assign(w.ctx, w.dispatch, plan)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, capri.Assigned, w.get(other.ID).State)
		w.write(func(tx *store.Tx) error {
			ended, err := tx.EndStop(x)
			require.True(t, ended)
			return err
		})
		n, err = w.Store.Assign(w.ctx, w.dispatch, plan)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

func TestALowerLimit_holds_for_a_plan_made_before(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, nil)
		var plan []store.Assignment
		for i := range 6 {
			plan = append(plan, store.Assignment{Batch: w.insert(w.batch(task, fmt.Sprint(i), capri.Conditions{})).Made[0].ID, Node: node})
		}
		for _, step := range []struct{ limit, assigned, inHand int }{{2, 2, 2}, {1, 0, 2}, {0, 0, 2}, {5, 3, 5}, {-1, 1, 6}} {
			w.write(func(tx *store.Tx) error { return tx.SetMaxRunning(step.limit) })
			left := slices.DeleteFunc(slices.Clone(plan), func(a store.Assignment) bool { return w.get(a.Batch).State != capri.Waiting })
			n, err := w.Store.Assign(w.ctx, w.dispatch, left)
			require.NoError(t, err)
			require.Equal(t, step.assigned, n, "limit %d", step.limit)
			running, err := w.Store.Running(w.ctx)
			require.NoError(t, err)
			require.Equal(t, step.inHand, running.Total)
		}
	})
}

func TestABreaker_opens_by_itself_after_so_many_failures_in_a_row(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task, other := w.Task(t, nil), w.Task(t, nil)
		n := 0
		end := func(task *capri.Task, o store.Outcome) {
			n++
			w.Clock.Advance(time.Minute)
			w.run(w.insert(w.batch(task, fmt.Sprint(n), capri.Conditions{})).Made[0].ID, o, 0)
		}
		open := func() []store.Stop {
			d, err := w.Store.DispatchState(w.ctx)
			require.NoError(t, err)
			return d.StopsAt(w.Clock.Now())
		}
		for range 5 {
			end(task, store.Failed)
		}
		require.Empty(t, open(), "off by default")
		require.Zero(t, w.count("task_streak WHERE 1 = ?", 1), "and nothing is counted")

		w.Set(t, store.BreakerFailures, "3")
		end(task, store.Failed)
		end(task, store.Killed)
		end(other, store.Failed)
		end(task, store.Failed)
		end(task, store.Succeeded)
		end(task, store.Failed)
		end(task, store.Failed)
		require.Empty(t, open(), "a success in between begins anew")
		end(task, store.Failed)
		require.Len(t, open(), 1)
		x := open()[0]
		require.Equal(t, []any{store.Breaker, store.OfTask, task.ID, task.Name, "it failed 3 times in a row", capri.Instant(0)}, []any{x.Kind, x.Scope, x.Task, x.Name, x.Reason, x.Until})
		require.Equal(t, 1, w.alerts("breaker_opened"))

		// What runs already may fail as well; that is not told again.
		require.Equal(t, 1, w.alerts("breaker_opened"))
		waits := w.insert(w.batch(task, "waits", capri.Conditions{})).Made[0]
		m, err := w.Store.Assign(w.ctx, w.dispatch, []store.Assignment{{Batch: waits.ID, Node: node, Task: task.ID}})
		require.NoError(t, err)
		require.Zero(t, m)

		w.write(func(tx *store.Tx) error {
			_, err := tx.EndStop(x)
			return err
		})
		w.run(waits.ID, store.Failed, 0)
		end(task, store.Failed)
		require.Empty(t, open(), "closed by somebody, it counts anew")
		end(task, store.Failed)
		require.Len(t, open(), 1)
		require.Equal(t, 2, w.alerts("breaker_opened"))
	})
}

func TestABreaker_counts_failures_that_end_together_and_retries_do_not_count(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		w.Set(t, store.BreakerFailures, "3")
		task := w.Task(t, nil)
		var results []store.Result
		for i := range 4 {
			a := w.start(w.insert(w.batch(task, fmt.Sprint(i), capri.Conditions{})).Made[0].ID)
			results = append(results, store.Result{Attempt: a, Outcome: store.Failed, Message: "exit code 1", Retries: 1})
		}
		_, err := w.Store.FinishAttempts(w.ctx, node, results)
		require.NoError(t, err)
		require.Zero(t, w.alerts("breaker_opened"), "each is tried again")
		for i := range results {
			w.Clock.Advance(time.Minute)
			results[i].Attempt = w.start(results[i].Batch)
		}
		_, err = w.Store.FinishAttempts(w.ctx, node, results)
		require.NoError(t, err)
		require.Equal(t, 1, w.alerts("breaker_opened"))
	})
}

func TestAPlan_that_names_a_batch_twice_heeds_the_pause_of_a_node(t *testing.T) {
	each(t, func(w *world) {
		b := w.batch(w.Task(w.t, nil), "20261119", capri.Conditions{})
		w.insert(b)
		w.write(func(tx *store.Tx) error {
			return tx.SetStop(store.Stop{Kind: store.Pause, Scope: store.OfNode, Name: "n0", Reason: "look"})
		})
		n, err := w.Store.Assign(w.ctx, w.dispatch, []store.Assignment{{Batch: b.ID, Node: "n1", Task: b.TaskID}, {Batch: b.ID, Node: "n0", Task: b.TaskID}})
		require.NoError(w.t, err)
		require.Equal(w.t, 1, n)
		require.Equal(w.t, "n1", w.get(b.ID).Node)
	})
}
