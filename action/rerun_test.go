package action_test

import (
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

const rerunFile = `
tasks:
- {name: d, owner: alice, period: day, job: {command: x}, outputs: [{path: "/d/${yyyyMMdd}"}]}
- {name: child, owner: alice, period: day, job: {command: x}, parents: [{task: d}]}
- {name: reader, owner: alice, period: day, job: {command: x}, inputs: [{path: "/d/${yyyyMMdd}"}]}
- {name: h, owner: alice, period: hour, job: {command: x}}
- {name: c, owner: alice, cron: "0 0 0/6 * * ?", job: {command: x}}
- {name: m, owner: alice, period: manual, job: {command: x}}
- {name: off, owner: alice, period: day, job: {command: x}, enabled: false}
`

func rerun(task, from, to string, change ...func(*action.RerunRequest)) action.RerunRequest {
	r := action.RerunRequest{Task: task, From: from, To: to}
	for _, c := range change {
		c(&r)
	}
	return r
}

func TestRerun_refuses(t *testing.T) { // the clock stands at 2026-11-20 09:30
	w := actiontest.SQLite(t)
	w.Apply(rerunFile)
	day := func(change func(*action.RerunRequest)) action.RerunRequest {
		return rerun("d", "2026-11-18", "2026-11-19", change)
	}
	for _, tt := range []struct {
		sentence string
		r        action.RerunRequest
		err      error
	}{
		{"a range that ends in the future", rerun("d", "2026-11-18", "2026-11-21"), capri.ErrInvalid},
		{"a range that begins in the future", rerun("d", "2026-11-21", "2026-11-22"), capri.ErrInvalid},
		{"a range that runs backwards", rerun("d", "2026-11-19", "2026-11-18"), capri.ErrInvalid},
		{"a task that is not there", rerun("nothing", "2026-11-18", "2026-11-19"), capri.ErrNotFound},
		{"a disabled task", rerun("off", "2026-11-18", "2026-11-19"), capri.ErrConflict},
		{"a manual task", rerun("m", "2026-11-18", "2026-11-19"), capri.ErrInvalid},
		{"a cascade that is none", day(func(r *action.RerunRequest) { r.Cascade = "all" }), capri.ErrInvalid},
		{"an unknown only", day(func(r *action.RerunRequest) { r.Only = "some" }), capri.ErrInvalid},
		{"an unknown on_running", day(func(r *action.RerunRequest) { r.OnRunning = "wait" }), capri.ErrInvalid},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			_, err := w.Actions.Rerun(w.Ctx, actiontest.Who, tt.r)
			assert.ErrorIs(t, err, tt.err)
		})
	}
}

func TestRerun_makes_the_next_run_at_each_own_mark_and_what_rested_on_the_old_one_waits(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(rerunFile)
		w.ColdStart(cold(capri.Day, "2026-11-19", "2026-11-20"))
		old := w.Latest("d", "20261118")
		w.Finish(old.ID, store.Succeeded)
		w.Look()
		_, err := w.Store.MeetPaths(w.Ctx, w.Lease(t, "dependency"), []capri.PathCondition{{Path: "/d/20261118", Flag: "_SUCCESS"}})
		require.NoError(t, err)
		child, reader := w.Latest("child", "20261118"), w.Latest("reader", "20261118")
		require.Zero(t, child.Unmet)
		require.Zero(t, reader.Unmet)
		w.Apply(`tasks: [{name: d, owner: alice, period: day, priority: 1, job: {command: y}, outputs: [{path: "/d/${yyyyMMdd}"}]}]`)
		w.Wakes.Take()

		preview := w.Rerun(rerun("d", "2026-11-19", "2026-11-19", func(r *action.RerunRequest) { r.Preview = true }))
		require.Equal(t, []string{"d 20261118 new_run"}, did(preview))
		require.Equal(t, old.ID, w.Latest("d", "20261118").ID, "a preview writes nothing")

		done := w.Rerun(rerun("d", "2026-11-19", "2026-11-19"))
		require.Equal(t, did(preview), did(done))
		next := w.Latest("d", "20261118")
		require.Equal(t, 1, next.RunNo)
		require.Equal(t, capri.OriginRerun, next.Origin)
		require.Equal(t, old.ScheduleTime, next.ScheduleTime, "scheduled at its own mark")
		require.Equal(t, 2, next.TaskVersion, "by the definition as it stands")
		require.Equal(t, 1, next.Priority)
		require.False(t, w.Batch(old.ID).Latest)
		require.Equal(t, 1, w.Batch(child.ID).Unmet)
		require.Equal(t, 1, w.Batch(reader.ID).Unmet)
		require.Contains(t, w.Wakes.Take(), wake.Campaign)
		log, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, "rerun", log[0].Action)
		require.Equal(t, "d", log[0].Target)
		require.Contains(t, log[0].Detail, "1 new runs")
		w.Look()
		require.Equal(t, 1, w.Batch(child.ID).Unmet)
		w.Finish(next.ID, store.Succeeded)
		w.Look()
		require.Zero(t, w.Batch(child.ID).Unmet)
	})
}

func TestRerun_takes_the_batches_that_only_says(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(rerunFile)
	w.ColdStart(cold(capri.Hour, "2026-11-20 02:00", "2026-11-20 04:30"))
	w.Finish(w.Latest("h", "2026112001").ID, store.Succeeded)
	w.Finish(w.Latest("h", "2026112002").ID, store.Failed)
	w.Finish(w.Latest("h", "2026112003").ID, store.Succeeded)
	for only, want := range map[string][]string{
		"":        {"h 2026112000 new", "h 2026112001 new_run", "h 2026112002 new_run", "h 2026112003 new_run"},
		"all":     {"h 2026112000 new", "h 2026112001 new_run", "h 2026112002 new_run", "h 2026112003 new_run"},
		"failed":  {"h 2026112001 exists", "h 2026112002 new_run", "h 2026112003 exists"},
		"missing": {"h 2026112000 new", "h 2026112001 exists", "h 2026112002 exists", "h 2026112003 exists"},
	} {
		items := w.Rerun(rerun("h", "2026-11-20 01:00", "2026-11-20 04:30", func(r *action.RerunRequest) { r.Only, r.Preview = only, true }))
		require.Equal(t, want, did(items), only)
	}
	byData := w.Rerun(rerun("h", "2026-11-20 01:00", "2026-11-20 03:00", func(r *action.RerunRequest) { r.ByData, r.Preview = true, true }))
	require.Equal(t, []string{"h 2026112001 new_run", "h 2026112002 new_run"}, did(byData), "on data intervals, the end excluded")
	some := w.Rerun(rerun("h", "2026-11-20", "2026-11-20", func(r *action.RerunRequest) { r.BatchNos = []capri.BatchNo{"2026112002"} }))
	require.Equal(t, []string{"h 2026112002 new_run"}, did(some))
	fires := w.Rerun(rerun("c", "2026-11-20", "2026-11-20"))
	require.Equal(t, []string{"c 20261120000000 new", "c 20261120060000 new"}, did(fires))
	require.Equal(t, capri.OriginRerun, w.Latest("c", "20261120060000").Origin)
}

func TestRerun_of_batches_that_have_not_finished(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(rerunFile)
		w.ColdStart(cold(capri.Hour, "2026-11-20 01:01", "2026-11-20 03:01"))
		ended, waits, runs := w.Latest("h", "2026112000"), w.Latest("h", "2026112001"), w.Latest("h", "2026112002")
		w.Finish(ended.ID, store.Succeeded)
		attempt := w.Start(runs.ID)
		on := func(what string, change ...func(*action.RerunRequest)) action.RerunRequest {
			return rerun("h", "2026-11-20 01:00", "2026-11-20 03:30", append(change, func(r *action.RerunRequest) { r.OnRunning = what })...)
		}

		_, err := w.Actions.Rerun(w.Ctx, actiontest.Who, on(""))
		require.ErrorIs(t, err, capri.ErrConflict)
		require.ErrorContains(t, err, "1 batches are in the way: h 2026112002")
		w.Campaigns()
		require.Equal(t, ended.ID, w.Latest("h", "2026112000").ID, "nothing was made")

		for _, only := range []string{"missing", "failed"} { // what has not finished is neither, and nobody means to kill it
			items := w.Rerun(on("kill", func(r *action.RerunRequest) { r.Only = only }))
			require.Equal(t, []string{"h 2026112000 exists", "h 2026112001 left_alone", "h 2026112002 left_alone"}, did(items))
		}

		items := w.Rerun(on("skip"))
		require.Equal(t, []string{"h 2026112000 new_run", "h 2026112001 left_waiting", "h 2026112002 left_alone"}, did(items))
		require.Equal(t, waits.ID, w.Latest("h", "2026112001").ID, "what has not started runs once")
		require.Zero(t, w.Batch(waits.ID).Unmet, "and is released")

		last := func(r *action.RerunRequest) { r.BatchNos = []capri.BatchNo{runs.BatchNo} }
		items = w.Rerun(on("kill", last, func(r *action.RerunRequest) { r.Preview = true }))
		require.Equal(t, []string{"h 2026112002 kill_first"}, did(items))
		require.False(t, w.Batch(runs.ID).KillRequest, "a preview kills nothing")

		killing := w.Rerun(on("kill", last))
		require.True(t, w.Batch(runs.ID).KillRequest)
		c, err := w.Store.Campaign(w.Ctx, killing.ID)
		require.NoError(t, err)
		require.Equal(t, capri.CampaignCreating, c.State)
		require.Contains(t, c.Message, "it waits for batch")
		items = w.Rerun(on("skip", last))
		require.Equal(t, []string{"h 2026112002 left_alone"}, did(items), "its worker has not ended it yet")
		_, err = w.Store.FinishAttempts(w.Ctx, "n1", []store.Result{{Attempt: attempt, Outcome: store.Killed, Message: "killed"}})
		require.NoError(t, err)
		w.Campaigns()
		require.Equal(t, 1, w.Latest("h", "2026112002").RunNo, "as soon as it has ended it runs again")
	})
}

func TestRerun_of_a_task_that_waits_for_itself_runs_its_intervals_one_after_the_other(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(`tasks: [{name: d, owner: alice, period: day, job: {command: x}, parents: [{task: d, from: -1, to: -1}]}]`)
	w.ColdStart(cold(capri.Day, "2026-11-18", "2026-11-20"))
	nos := []capri.BatchNo{"20261117", "20261118", "20261119"}
	for _, no := range nos {
		w.Look()
		w.Finish(w.Latest("d", no).ID, store.Succeeded)
	}
	w.Rerun(rerun("d", "2026-11-18", "2026-11-20"))
	for i, no := range nos {
		w.Look()
		for j, later := range nos[i:] {
			require.Equal(t, min(j, 1), w.Latest("d", later).Unmet, "%s when %s is next", later, no)
		}
		w.Finish(w.Latest("d", no).ID, store.Succeeded)
	}
}

func TestRerunAndExecute_of_an_archived_batch(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(rerunFile)
		w.ColdStart(cold(capri.Day, "2026-11-20", "2026-11-20"))
		old := w.Latest("d", "20261119")
		w.Finish(old.ID, store.Succeeded)
		w.Clock.Advance(100 * 24 * time.Hour)
		n, err := w.Store.ArchiveBatches(w.Ctx, w.Lease(t, "cleanup"), w.Clock.Now(), []capri.BatchID{old.ID})
		require.NoError(t, err)
		require.Equal(t, 1, n)

		rows, err := w.Actions.ConditionsOf(w.Ctx, w.Batch(old.ID))
		require.NoError(t, err)
		require.Equal(t, []store.ConditionRow{{Kind: "output", Path: "/d/20261119", Flag: "_SUCCESS"}}, rows, "derived from its version")
		again := w.ColdStart(action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: "2026-11-20", To: "2026-11-20", Tasks: []string{"d"}})
		require.Equal(t, []string{"d 20261119 exists"}, did(again))

		w.Look()
		w.Finish(w.Latest("child", "20261119").ID, store.Succeeded)
		require.NoError(t, err)
		n, err = w.Store.ArchiveBatches(w.Ctx, w.Lease(t, "cleanup"), w.Clock.Now().Add(time.Hour), []capri.BatchID{w.Latest("child", "20261119").ID})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		rows, err = w.Actions.ConditionsOf(w.Ctx, w.Batch(w.Latest("child", "20261119").ID))
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, "d", rows[0].Parent)
		require.Equal(t, old.ID, rows[0].ParentBatchID)

		// The definition writes elsewhere now; who read the archived run's path waits for the new run all the same.
		w.Apply(`tasks: [{name: d, owner: alice, period: day, job: {command: x}, outputs: [{path: "/e/${yyyyMMdd}"}]}]`)
		reader := w.Latest("reader", "20261119")
		_, err = w.Store.MeetPaths(w.Ctx, w.Lease(t, "dependency"), []capri.PathCondition{{Path: "/d/20261119", Flag: "_SUCCESS"}})
		require.NoError(t, err)
		require.Zero(t, w.Batch(reader.ID).Unmet)
		items := w.Rerun(rerun("d", "2026-11-20", "2026-11-20"))
		require.Equal(t, []string{"d 20261119 new_run"}, did(items))
		next := w.Latest("d", "20261119")
		require.Equal(t, 1, next.RunNo)
		require.False(t, next.Archived)
		require.False(t, w.Batch(old.ID).Latest)
		require.Equal(t, 1, w.Batch(reader.ID).Unmet)
	})
}

func TestExecute_counts_on_from_an_archived_run(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(`tasks: [{name: m, owner: alice, period: month, job: {command: x}}]`)
	first, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "m"})
	require.NoError(t, err)
	w.Finish(first.ID, store.Failed)
	w.Clock.Advance(48 * time.Hour)
	_, err = w.Store.ArchiveBatches(w.Ctx, w.Lease(t, "cleanup"), w.Clock.Now(), []capri.BatchID{first.ID})
	require.NoError(t, err)
	second, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "m"})
	require.NoError(t, err)
	require.Equal(t, first.BatchNo, second.BatchNo)
	require.Equal(t, 1, second.RunNo)
	require.False(t, w.Batch(first.ID).Latest)
}

func TestAPoisonedTask_keeps_nobody_from_cold_starts_executions_and_edits(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(rerunFile)
		for _, text := range []string{"UPDATE task SET definition = '{' WHERE name = 'child'", "UPDATE task SET cron_expression = 'never' WHERE name = 'c'"} {
			_, err := w.Store.DB().ExecContext(w.Ctx, text)
			require.NoError(t, err)
		}
		items := w.ColdStart(cold(capri.Day, "2026-11-20", "2026-11-20"))
		require.Equal(t, []string{"d 20261119 new", "reader 20261119 new", "child  refused"}, did(items))
		require.Contains(t, items.Items[2].Note, "cannot be read")
		_, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "h"})
		require.NoError(t, err)
		_, err = w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "child"})
		require.ErrorIs(t, err, capri.ErrConflict)
		_, err = w.Actions.EnableTask(w.Ctx, actiontest.Who, "child", false, "")
		require.ErrorIs(t, err, capri.ErrConflict, "the half of it that is known must not become a version")
		_, err = w.Actions.Export(w.Ctx, nil, "", nil)
		require.ErrorIs(t, err, capri.ErrConflict, "a file without it, or with half of it, would lose it when it is applied")
		_, err = w.Actions.Export(w.Ctx, nil, "", []string{"d"})
		require.NoError(t, err)
		w.Apply(`tasks: [{name: child, owner: alice, period: day, job: {command: x}, parents: [{task: d}]}]`)
		_, err = w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "child"})
		require.NoError(t, err, "its file was applied again")
	})
}
