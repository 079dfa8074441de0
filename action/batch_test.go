package action_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

const kinds = `
tasks:
- {name: day, owner: alice, group: g, period: day, job: {command: x}}
- {name: child, owner: alice, group: g, period: day, job: {command: x}, parents: [{task: day}]}
- {name: hour, owner: alice, group: g, period: hour, job: {command: x}}
- {name: tick, owner: alice, cron: "0 0/20 * * * ?", job: {command: x}}
- {name: never, owner: alice, cron: "0 0 0 1 1 ? 2030", job: {command: x}}
- {name: hand, owner: alice, period: manual, job: {command: x}}
- {name: off, owner: alice, period: day, enabled: false, job: {command: x}}
`

func TestExecute(t *testing.T) { // the clock stands at 2026-11-20 09:30
	for _, tt := range []struct {
		sentence string
		task     string
		no       capri.BatchNo
		err      error
	}{
		{"a day task runs for yesterday", "day", "20261119", nil},
		{"an hour task runs for the last whole hour", "hour", "2026112008", nil},
		{"a cron task runs for its newest fire", "tick", "20261120092000", nil},
		{"a manual task runs for now", "hand", "20261120093000", nil},
		{"a cron task that never fired has nothing to run for", "never", "", capri.ErrConflict},
		{"a disabled task is refused", "off", "", capri.ErrConflict},
		{"an unknown task is not found", "nothing", "", capri.ErrNotFound},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			w := actiontest.SQLite(t)
			w.Apply(kinds)
			b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: tt.task})
			if tt.err != nil {
				require.ErrorIs(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.no, b.BatchNo)
			assert.Equal(t, sqltest.Start, b.ScheduleTime)
			assert.Equal(t, capri.OriginExecute, b.Origin)
		})
	}
}

// Only the task's own parents are read; what it waits for is all of them.
func TestExecute_waits_for_each_of_the_parents_among_other_tasks(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(`
tasks:
- {name: first, owner: alice, period: day, job: {command: x}}
- {name: other, owner: alice, period: day, job: {command: x}}
- {name: second, owner: alice, period: day, job: {command: x}}
- {name: last, owner: alice, period: day, job: {command: x}, parents: [{task: second}, {task: first}]}
`)
		for _, task := range []string{"first", "other", "second"} {
			_, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: task})
			require.NoError(t, err)
		}
		b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "last"})
		require.NoError(t, err)
		rows, err := w.Actions.ConditionsOf(w.Ctx, w.Batch(b.ID))
		require.NoError(t, err)
		var parents []string
		for _, r := range rows {
			parents = append(parents, r.Parent)
		}
		assert.ElementsMatch(t, []string{"first", "second"}, parents)
		assert.Equal(t, 2, w.Batch(b.ID).Unmet)
	})
}

func TestExecute_makes_the_next_run_once_the_last_has_finished(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(kinds)
		first, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "day"})
		require.NoError(t, err)
		_, err = w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "day"})
		require.ErrorIs(t, err, capri.ErrConflict)
		w.Finish(first.ID, store.Succeeded)

		// Its child waits for a success that is there, until the rerun.
		child, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "child"})
		require.NoError(t, err)
		w.Look()
		assert.Zero(t, w.Batch(child.ID).Unmet)

		second, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "day"})
		require.NoError(t, err)
		assert.Equal(t, 1, second.RunNo)
		assert.True(t, second.Latest)
		assert.False(t, w.Batch(first.ID).Latest)
		assert.Equal(t, 1, w.Batch(child.ID).Unmet, "the child waits again")
		rows, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 1})
		require.NoError(t, err)
		assert.Equal(t, "execute", rows[0].Action)
		assert.Contains(t, rows[0].Detail, "run 1")
	})
}

func TestKill_hold_and_release(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(kinds)
		waiting, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "day"})
		require.NoError(t, err)
		running, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "hour"})
		require.NoError(t, err)
		w.Start(running.ID)

		held, err := w.Actions.Hold(w.Ctx, actiontest.Who, []capri.BatchID{waiting.ID, running.ID}, "look first")
		require.NoError(t, err)
		assert.Equal(t, []action.BatchResult{{ID: waiting.ID, Result: action.Done, Detail: "waiting, held"}, {ID: running.ID, Result: action.Refused, Detail: fmt.Sprintf("it runs on node n1 already: kill it (capri kill %d), or let it end", running.ID)}}, held)
		released, err := w.Actions.Release(w.Ctx, actiontest.Who, []capri.BatchID{waiting.ID}, "")
		require.NoError(t, err)
		assert.Equal(t, action.Done, released[0].Result)

		w.Wakes.Take()
		killed, err := w.Actions.Kill(w.Ctx, actiontest.Who, []capri.BatchID{waiting.ID, running.ID}, "wrong data")
		require.NoError(t, err)
		assert.Equal(t, []action.BatchResult{{ID: waiting.ID, Result: action.Done, Detail: "finished (killed)"}, {ID: running.ID, Result: action.Asked, Detail: "running, a kill is asked for"}}, killed)
		assert.Contains(t, w.Wakes.Take(), wake.Worker)
		again, err := w.Actions.Kill(w.Ctx, actiontest.Who, []capri.BatchID{waiting.ID}, "")
		require.NoError(t, err)
		assert.Equal(t, action.Unchanged, again[0].Result)

		_, err = w.Actions.Kill(w.Ctx, actiontest.Who, []capri.BatchID{waiting.ID, 999_999}, "")
		assert.ErrorIs(t, err, capri.ErrNotFound)
	})
}

func TestReportThirdParty(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(`tasks: [{name: settle, owner: alice, period: day, job: {command: x}, third_party: [{code: closed}]}]`)
		b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "settle"})
		require.NoError(t, err)
		unmet := func() int { w.Look(); return w.Batch(b.ID).Unmet }
		assert.Equal(t, 1, unmet())
		for _, step := range []struct {
			said string
			want int
		}{{"ready", 0}, {"withdraw", 1}, {"ready", 0}, {"fail", 1}} {
			require.NoError(t, w.Actions.ReportThirdParty(w.Ctx, actiontest.Who, "closed", capri.Day, "20261119", step.said, ""))
			assert.Equal(t, step.want, unmet(), step.said)
		}
		for _, bad := range []struct {
			code, no, said string
			p              capri.Period
		}{{"", "20261119", "ready", capri.Day}, {"closed", "2026111", "ready", capri.Day}, {"closed", "20261119", "maybe", capri.Day}, {"closed", "20261119", "ready", 0}} {
			assert.ErrorIs(t, w.Actions.ReportThirdParty(w.Ctx, actiontest.Who, bad.code, bad.p, capri.BatchNo(bad.no), bad.said, ""), capri.ErrInvalid, "%+v", bad)
		}
	})
}

func TestNodes_pauses_and_services(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Register()
		w.Lease(t, "dispatch")
		require.NoError(t, w.Actions.DrainNode(w.Ctx, actiontest.Who, "n1", ""))
		nodes, err := w.Store.Nodes(w.Ctx)
		require.NoError(t, err)
		assert.True(t, nodes[0].Draining)
		require.NoError(t, w.Actions.ResumeNode(w.Ctx, actiontest.Who, "n1", ""))
		assert.ErrorIs(t, w.Actions.RemoveNode(w.Ctx, actiontest.Who, "n1"), capri.ErrConflict, "it still beats")
		w.Clock.Advance(time.Minute)
		require.NoError(t, w.Actions.RemoveNode(w.Ctx, actiontest.Who, "n1"))
		assert.ErrorIs(t, w.Actions.DrainNode(w.Ctx, actiontest.Who, "n1", ""), capri.ErrNotFound)

		require.ErrorIs(t, w.Actions.Stop(w.Ctx, actiontest.Who, store.Stop{Kind: store.Pause}), capri.ErrInvalid)
		require.ErrorIs(t, w.Actions.Stop(w.Ctx, actiontest.Who, store.Stop{Kind: store.Pause, Reason: "upgrade", Until: w.Clock.Now()}), capri.ErrInvalid)
		require.NoError(t, w.Actions.Stop(w.Ctx, actiontest.Who, store.Stop{Kind: store.Pause, Reason: "upgrade", Until: w.Clock.Now().Add(time.Hour)}))
		d, err := w.Store.DispatchState(w.Ctx)
		require.NoError(t, err)
		assert.True(t, d.Paused)
		assert.Equal(t, []store.Stop{{Kind: store.Pause, Reason: "upgrade", By: actiontest.Who, Since: w.Clock.Now(), Until: w.Clock.Now().Add(time.Hour)}}, d.StopsAt(w.Clock.Now()))
		require.NoError(t, w.Actions.EndStop(w.Ctx, actiontest.Who, store.Stop{Kind: store.Pause}))

		require.NoError(t, w.Actions.TriggerService(w.Ctx, actiontest.Who, "dispatch"))
		assert.ErrorIs(t, w.Actions.TriggerService(w.Ctx, actiontest.Who, "nothing"), capri.ErrNotFound)
	})
}

func TestPeople_and_rights(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		a, who := w.Actions, actiontest.Who
		require.ErrorIs(t, a.SaveUser(w.Ctx, who, store.User{Name: "bob", Department: "dw"}), capri.ErrInvalid, "no such department")
		require.NoError(t, a.SaveDepartment(w.Ctx, who, store.Department{Name: "dw", Title: "Warehouse"}))
		require.NoError(t, a.SaveUser(w.Ctx, who, store.User{Name: "bob", Department: "dw", Mail: "bob@example.org"}))
		require.ErrorIs(t, a.SaveUser(w.Ctx, who, store.User{Name: "bob", Mail: "no address"}), capri.ErrInvalid)
		require.ErrorIs(t, a.DeleteDepartment(w.Ctx, who, "dw"), capri.ErrConflict)
		require.ErrorIs(t, a.GrantAccount(w.Ctx, who, store.AccountGrant{Account: "root", Kind: "user", Name: "bob"}), capri.ErrInvalid)
		require.ErrorIs(t, a.GrantAccount(w.Ctx, who, store.AccountGrant{Account: "etl", Kind: "user", Name: "eve"}), capri.ErrNotFound)
		require.NoError(t, a.GrantAccount(w.Ctx, who, store.AccountGrant{Account: "etl", Kind: "department", Name: "dw"}))
		w.Apply(`tasks: [{name: t, owner: bob, period: day, job: {command: x, account: etl}}]`)
		require.ErrorIs(t, a.DeleteUser(w.Ctx, who, "bob"), capri.ErrConflict, "he owns a task")
		require.NoError(t, a.RevokeAccount(w.Ctx, who, store.AccountGrant{Account: "etl", Kind: "department", Name: "dw"}))

		key, err := a.CreateApp(w.Ctx, who, store.App{Name: "airflow", Role: "member"}, store.Credential{})
		require.NoError(t, err)
		_, err = a.CreateApp(w.Ctx, who, store.App{Name: "airflow", Role: "member"}, store.Credential{})
		require.ErrorIs(t, err, capri.ErrConflict)
		_, err = a.CreateApp(w.Ctx, who, store.App{Name: "x", Role: "king"}, store.Credential{})
		require.ErrorIs(t, err, capri.ErrInvalid)
		require.ErrorIs(t, a.DeleteApp(w.Ctx, "airflow", "airflow"), capri.ErrConflict)
		rows, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 100})
		require.NoError(t, err)
		for _, r := range rows {
			assert.NotContains(t, r.Detail+r.Target, key, "a key is in no log")
		}
		require.NoError(t, a.DeleteApp(w.Ctx, who, "airflow"))
	})
}
