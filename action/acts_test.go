package action_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/sql/store"
	"capri/wake"
)

func TestExecute_takes_another_interval_of_the_period(t *testing.T) { // the clock stands at 2026-11-20 09:30
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(kinds)
		for _, tt := range []struct {
			sentence, task, interval string
			no                       capri.BatchNo
			err                      error
			says                     string
		}{
			{"a day by its number", "day", "20261110", "20261110", nil, ""},
			{"a day by its bounds", "day", "2026-11-11..2026-11-12", "20261111", nil, ""},
			{"an hour by its bounds", "hour", "2026-11-20 07:00..2026-11-20 08:00", "2026112007", nil, ""},
			{"a fire by its number", "tick", "20261120080000", "20261120080000", nil, ""},
			{"a fire by its bounds", "tick", "2026-11-20 07:00:00..2026-11-20 07:20:00", "20261120072000", nil, ""},
			{"a day that has not ended", "day", "20261120", "", capri.ErrConflict, "has not ended yet"},
			{"two days", "day", "2026-11-11..2026-11-13", "", capri.ErrInvalid, "2026-11-11 00:00:00..2026-11-12 00:00:00"},
			{"bounds off the fires", "tick", "2026-11-20 07:05..2026-11-20 07:20", "", capri.ErrInvalid, "2026-11-20 07:00:00..2026-11-20 07:20:00"},
			{"no fire", "tick", "20261120080100", "", capri.ErrInvalid, "a fire of"},
			{"a month of a day", "day", "202610", "", capri.ErrInvalid, "interval"},
			{"nonsense", "day", "yesterday..today", "", capri.ErrInvalid, "interval"},
			{"a manual task has none", "hand", "2026-11-11..2026-11-12", "", capri.ErrInvalid, "no interval"},
			{"nor one that was never run", "hand", "20261111000000", "", capri.ErrInvalid, "earlier run"},
		} {
			b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: tt.task, Interval: tt.interval, Reason: "a hole"})
			if tt.err != nil {
				require.ErrorIs(t, err, tt.err, tt.sentence)
				assert.ErrorContains(t, err, tt.says, tt.sentence)
				continue
			}
			require.NoError(t, err, tt.sentence)
			assert.Equal(t, tt.no, b.BatchNo, tt.sentence)
			assert.Equal(t, capri.OriginExecute, b.Origin)
			_, err = w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: tt.task, Interval: tt.interval})
			assert.ErrorIs(t, err, capri.ErrConflict, "it is on its way")
		}
		hand, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "hand"})
		require.NoError(t, err)
		w.Finish(hand.ID, store.Failed)
		w.Clock.Advance(time.Hour)
		again, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "hand", Interval: string(hand.BatchNo)})
		require.NoError(t, err)
		assert.Equal(t, []any{hand.BatchNo, 1}, []any{again.BatchNo, again.RunNo})
	})
}

func TestParameters_are_of_one_run_and_are_checked(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(kinds)
		for name, bad := range map[string]map[string]string{
			"a name with =":       {"a=b": "x"},
			"a name with a blank": {"a b": "x"},
			"no name":             {"": "x"},
			"NUL":                 {"a": "\x00"},
			"two that are one":    {"day": "1", "DAY": "2"},
			"too much":            {"a": strings.Repeat("x", 17<<10)},
		} {
			_, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "day", Params: bad})
			assert.ErrorIs(t, err, capri.ErrInvalid, name)
		}
		params := map[string]string{"mode": "full", "q": `"; rm -rf /`}
		b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "day", Params: params})
		require.NoError(t, err)
		assert.Equal(t, params, b.Params)
		log, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 1})
		require.NoError(t, err)
		assert.Contains(t, log[0].Detail, "params mode q")
		assert.NotContains(t, log[0].Detail, "full", "the log has their names")
		w.Finish(b.ID, store.Succeeded)
		next, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "day"})
		require.NoError(t, err)
		assert.Nil(t, next.Params)
	})
}

func TestRunNow_of_a_task_makes_its_newest_batch_or_takes_the_one_there_is(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(kinds)
		_, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "day"})
		require.NoError(t, err)
		w.Wakes.Take()
		made, err := w.Actions.RunTaskNow(w.Ctx, actiontest.Who, "child", "the boss waits")
		require.NoError(t, err)
		assert.Equal(t, []any{capri.BatchNo("20261119"), true, 0, capri.Waiting}, []any{made.BatchNo, made.RunNow, made.Unmet, made.State})
		assert.Contains(t, w.Wakes.Take(), wake.Dispatch)
		events, err := w.Store.Events(w.Ctx, made.ID)
		require.NoError(t, err)
		assert.Equal(t, "run now by tester: the boss waits", events[0].Why)
		again, err := w.Actions.RunTaskNow(w.Ctx, actiontest.Who, "child", "")
		require.NoError(t, err, "said twice is said once")
		assert.Equal(t, made.ID, again.ID)

		w.Finish(made.ID, store.Failed)
		_, err = w.Actions.RunTaskNow(w.Ctx, actiontest.Who, "child", "")
		require.ErrorIs(t, err, capri.ErrConflict)
		assert.ErrorContains(t, err, "capri execute child --interval 20261119")
		next, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "child"})
		require.NoError(t, err)
		assert.Equal(t, 1, next.Unmet)
		now, err := w.Actions.RunTaskNow(w.Ctx, actiontest.Who, "child", "")
		require.NoError(t, err)
		assert.Equal(t, []any{next.ID, true}, []any{now.ID, now.RunNow})

		for task, want := range map[string]error{"off": capri.ErrConflict, "never": capri.ErrConflict, "nothing": capri.ErrNotFound} {
			_, err = w.Actions.RunTaskNow(w.Ctx, actiontest.Who, task, "")
			assert.ErrorIs(t, err, want, task)
		}
	})
}

func TestActs_on_several_batches_say_of_each_what_became_of_it(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(kinds)
		make := func(task, interval string) capri.BatchID {
			b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: task, Interval: interval})
			require.NoError(t, err)
			return b.ID
		}
		running, waiting, held, done := make("hour", ""), make("child", ""), make("child", "20261118"), make("day", "20261110")
		w.Finish(done, store.Succeeded)
		w.Start(running)
		_, err := w.Actions.Hold(w.Ctx, actiontest.Who, []capri.BatchID{held}, "look first")
		require.NoError(t, err)
		resultOf := func(r []action.BatchResult, err error) map[capri.BatchID]string {
			require.NoError(t, err)
			out := map[capri.BatchID]string{}
			for _, x := range r {
				out[x.ID] = x.Result + ": " + x.Detail
			}
			return out
		}

		now := resultOf(w.Actions.RunNow(w.Ctx, actiontest.Who, []capri.BatchID{running, waiting, held, done}, "urgent"))
		assert.Equal(t, "unchanged: running", now[running])
		assert.Equal(t, "done: waiting, without its conditions", now[waiting])
		assert.Contains(t, now[held], "refused: it is held: release it first")
		assert.Contains(t, now[done], "refused: it has finished (success): capri execute day --interval 20261110")

		w.Wakes.Take()
		forced := resultOf(w.Actions.ForceSuccess(w.Ctx, actiontest.Who, []capri.BatchID{running, waiting, held, done}, "made by hand"))
		assert.Contains(t, forced[running], "refused: it is running on node n1: kill it first")
		assert.Equal(t, []string{"done: finished (success)", "done: finished (success)", "unchanged: finished (success)"}, []string{forced[waiting], forced[held], forced[done]})
		assert.Contains(t, w.Wakes.Take(), wake.Dependency, "children are looked at at once")
		log, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 2})
		require.NoError(t, err)
		for _, x := range log {
			assert.Equal(t, []string{"force_success", "made by hand"}, []string{x.Action, x.Detail})
		}

		_, err = w.Actions.ForceSuccess(w.Ctx, actiontest.Who, []capri.BatchID{running}, "impatient")
		require.ErrorIs(t, err, capri.ErrConflict, "nothing of it could be done")
		assert.ErrorContains(t, err, "kill it first")
		_, err = w.Actions.ForceSuccess(w.Ctx, actiontest.Who, []capri.BatchID{waiting}, "")
		require.ErrorIs(t, err, capri.ErrInvalid, "a reason has to be given")
		_, err = w.Actions.RunNow(w.Ctx, actiontest.Who, []capri.BatchID{waiting, 9999}, "")
		require.ErrorIs(t, err, capri.ErrNotFound)
	})
}

func TestStops_need_something_that_is_there_a_reason_and_an_end_to_come(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(kinds)
		w.Register()
		w.Lease(t, "dispatch")
		later := w.Clock.Now().Add(time.Hour)
		for _, bad := range []struct {
			x   store.Stop
			err error
		}{
			{store.Stop{Kind: store.Pause, Scope: store.OfGroup, Name: "g"}, capri.ErrInvalid},
			{store.Stop{Kind: store.Pause, Scope: store.OfGroup, Name: "g", Reason: "x", Until: w.Clock.Now()}, capri.ErrInvalid},
			{store.Stop{Kind: store.Pause, Scope: store.OfGroup, Name: "nothing", Reason: "x"}, capri.ErrNotFound},
			{store.Stop{Kind: store.Pause, Scope: store.OfNode, Name: "nothing", Reason: "x"}, capri.ErrNotFound},
			{store.Stop{Kind: store.Breaker, Scope: store.OfTask, Name: "nothing", Reason: "x"}, capri.ErrNotFound},
		} {
			assert.ErrorIs(t, w.Actions.Stop(w.Ctx, actiontest.Who, bad.x), bad.err, "%+v", bad.x)
		}
		all := []store.Stop{
			{Kind: store.Pause, Reason: "upgrade", Until: later},
			{Kind: store.Pause, Scope: store.OfGroup, Name: "g", Reason: "bad data"},
			{Kind: store.Pause, Scope: store.OfNode, Name: "n1", Reason: "odd", Until: later},
			{Kind: store.Breaker, Scope: store.OfGroup, Name: "g", Reason: "it does harm"},
			{Kind: store.Breaker, Scope: store.OfTask, Name: "day", Reason: "it fails"},
		}
		stand := func() int {
			d, err := w.Store.DispatchState(w.Ctx)
			require.NoError(t, err)
			return len(d.StopsAt(w.Clock.Now()))
		}
		for i, x := range all {
			require.NoError(t, w.Actions.Stop(w.Ctx, actiontest.Who, x))
			require.NoError(t, w.Actions.Stop(w.Ctx, actiontest.Who, x), "said twice is said once")
			assert.Equal(t, i+1, stand())
		}
		w.Clock.Advance(time.Hour)
		assert.Equal(t, 3, stand(), "two have ended by themselves")
		for _, x := range all {
			require.NoError(t, w.Actions.EndStop(w.Ctx, actiontest.Who, store.Stop{Kind: x.Kind, Scope: x.Scope, Name: x.Name}))
		}
		assert.Zero(t, stand())
		require.NoError(t, w.Actions.EndStop(w.Ctx, actiontest.Who, store.Stop{Kind: store.Pause, Scope: store.OfGroup, Name: "g"}), "it is as it was wanted")
		assert.ErrorIs(t, w.Actions.EndStop(w.Ctx, actiontest.Who, store.Stop{Kind: store.Pause, Scope: store.OfGroup, Name: "nothing"}), capri.ErrNotFound)

		for _, n := range []int{-2, 1_000_001} {
			assert.ErrorIs(t, w.Actions.LimitRunning(w.Ctx, actiontest.Who, n, ""), capri.ErrInvalid)
		}
		require.NoError(t, w.Actions.LimitRunning(w.Ctx, actiontest.Who, 7, "a small database"))
		d, err := w.Store.DispatchState(w.Ctx)
		require.NoError(t, err)
		assert.Equal(t, 7, d.MaxRunning)
		log, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 1})
		require.NoError(t, err)
		assert.Equal(t, []string{"dispatch_limit", "max_running 7: a small database"}, []string{log[0].Action, log[0].Detail})
	})
}

func TestSeveralTasks_are_enabled_or_none(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(kinds)
		_, err := w.Actions.EnableTasks(w.Ctx, actiontest.Who, []string{"day", "nothing"}, false, "")
		require.ErrorIs(t, err, capri.ErrNotFound)
		enabled := func(name string) bool {
			task, err := w.Store.TaskByName(w.Ctx, name)
			require.NoError(t, err)
			return task.Enabled
		}
		assert.True(t, enabled("day"), "nothing is half done")
		out, err := w.Actions.EnableTasks(w.Ctx, actiontest.Who, []string{"day", "off", "tick"}, false, "a bad source")
		require.NoError(t, err)
		assert.Equal(t, []action.TaskResult{{Task: "day", Result: action.Done}, {Task: "off", Result: action.Unchanged}, {Task: "tick", Result: action.Done}}, out)
		assert.False(t, enabled("day") || enabled("tick"))
		log, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 2})
		require.NoError(t, err)
		for _, x := range log {
			assert.Equal(t, []string{"task_disable", "a bad source"}, []string{x.Action, x.Detail})
		}
	})
}
