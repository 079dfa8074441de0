package api_test

import (
	"capri/action"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

// twoDepartments adds to a rig the department bi with carol, who owns what is foreign to the member's key.
func twoDepartments(t *testing.T, w *actiontest.World) *rig {
	t.Helper()
	r := newRig(t, w)
	require.NoError(t, w.Actions.SaveDepartment(w.Ctx, actiontest.Who, store.Department{Name: "bi"}))
	for name, department := range map[string]string{"carol": "bi", "app_read_only": "dw"} {
		require.NoError(t, w.Actions.SaveUser(w.Ctx, actiontest.Who, store.User{Name: name, Department: department, Enabled: true}))
	}
	r.Apply(some)
	r.Apply(foreign)
	return r
}

const foreign = `
tasks:
- {name: theirs, owner: carol, group: g2, period: day, job: {command: x}}
- {name: nobodys, group: g2, period: day, job: {command: x}}
`

// executed runs a task now as an admin, and gives the batch.
func (r *rig) executed(task string) capri.BatchID {
	r.t.Helper()
	b, err := r.Actions.Execute(r.Ctx, actiontest.Who, action.ExecuteRequest{Task: task})
	require.NoError(r.t, err)
	return b.ID
}

func TestAMember_changes_what_is_of_the_department_and_nothing_else(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := twoDepartments(t, w)
		own, theirs, nobodys := r.executed("day"), r.executed("theirs"), r.executed("nobodys")
		ids := func(list ...capri.BatchID) string {
			return strings.ReplaceAll(fmt.Sprintf(`{"ids":%d}`, list), " ", ",")
		}

		for _, act := range []string{"kill", "hold", "release", "run-now", "force-success"} {
			rec := r.ask(auth.Member, "POST", wire.Prefix+"/batches:"+act, ids(own, theirs, nobodys))
			require.Equal(t, 403, rec.Code, act)
			detail := r.problem(rec).Detail
			assert.Contains(t, detail, fmt.Sprintf("batch %d", theirs))
			assert.Contains(t, detail, fmt.Sprintf("batch %d", nobodys))
			assert.NotContains(t, detail, fmt.Sprintf("batch %d", own))
		}
		assert.False(t, w.Batch(own).Held, "a request is refused as a whole")
		assert.Equal(t, capri.Waiting, w.Batch(own).State)
		assert.Equal(t, 200, r.ask(auth.Member, "POST", wire.Prefix+"/batches:hold", ids(own)).Code)
		assert.Equal(t, 200, r.ask(auth.Admin, "POST", wire.Prefix+"/batches:hold", ids(own, theirs, nobodys)).Code)

		for _, task := range []string{"theirs", "nobodys"} {
			for _, c := range [][3]string{{"POST", ":enable"}, {"POST", ":disable"}, {"DELETE", ""}, {"POST", ":execute"}, {"POST", "/rerun", `{"from":"2026-11-19","to":"2026-11-20"}`},
				{"PUT", "/alert-grants/alice", `{"mail":true}`}, {"DELETE", "/alert-grants/alice"}} {
				assert.Equal(t, 403, r.ask(auth.Member, c[0], wire.Prefix+"/tasks/"+task+c[1], c[2]).Code, "%s %s%s", c[0], task, c[1])
			}
		}
		assert.Equal(t, 200, r.ask(auth.Member, "POST", wire.Prefix+"/tasks/day:disable", "").Code)

		w.Set(t, store.TaskEdit, "owner") // alice's alone
		assert.Equal(t, 403, r.ask(auth.Member, "POST", wire.Prefix+"/tasks/day:enable", "").Code)
		assert.Equal(t, 403, r.ask(auth.Member, "POST", wire.Prefix+"/batches:release", ids(own)).Code)
	})
}

func TestFiles_that_are_applied_move_no_task_to_whom_it_is_not(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := twoDepartments(t, w)
		require.NoError(t, w.Actions.GrantAccount(w.Ctx, actiontest.Who, store.AccountGrant{Account: "alices", Kind: store.GrantUser, Name: "alice"}))
		require.NoError(t, w.Actions.GrantAccount(w.Ctx, actiontest.Who, store.AccountGrant{Account: "etl", Kind: store.GrantDepartment, Name: "dw"}))
		r.Apply(`
tasks:
- {name: gone, owner: carol, group: g3, period: day, job: {command: x}}
- {name: hers, owner: alice, group: g4, period: day, job: {command: x, account: alices}}
`)
		require.NoError(t, w.Actions.DeleteTask(w.Ctx, actiontest.Who, "gone"))
		apply := func(tasks, more string) int {
			return r.ask(auth.Member, "POST", wire.Prefix+"/tasks:apply", fmt.Sprintf(`{"sources":[{"name":"f.yaml","data":"tasks: [%s]"}]%s}`, tasks, more)).Code
		}
		const period = ", period: day"
		for _, c := range []struct {
			what, tasks, more string
			want              int
		}{
			{"a new one of one's own department", "{name: fresh, owner: alice" + period + ", job: {command: x}}", "", 200},
			{"a change of a colleague's", "{name: day, owner: alice, group: g" + period + ", priority: 3, job: {command: x}}", "", 200},
			{"handing over to a colleague", "{name: day, owner: app_member, group: g" + period + ", job: {command: x}}", "", 200},
			{"taking over", "{name: theirs, owner: alice, group: g2" + period + ", job: {command: x}}", "", 403},
			{"looking whether one could take over", "{name: theirs, owner: alice, group: g2" + period + ", job: {command: x}}", `,"dry_run":true`, 403},
			{"changing", "{name: theirs, owner: carol, group: g2" + period + ", job: {command: y}}", "", 403},
			{"the same as it is", "{name: theirs, owner: carol, group: g2" + period + ", job: {command: x}}", "", 200},
			{"giving away", "{name: day, owner: carol, group: g" + period + ", job: {command: x}}", "", 403},
			{"a new one for somebody else", "{name: fresh2, owner: carol" + period + ", job: {command: x}}", "", 403},
			{"a deleted name, and its batches with it", "{name: gone, owner: alice, group: g3" + period + ", job: {command: x}}", "", 403},
			{"nobody's", "{name: nobodys, owner: alice, group: g2" + period + ", job: {command: x}}", "", 403},
			{"pruning others' tasks of the group", "{name: mine, owner: alice, group: g2" + period + ", job: {command: x}}", `,"prune":true,"confirm_prune":["nobodys","theirs"]`, 403},
			{"one's own beside a foreign one", "{name: mine, owner: alice" + period + ", job: {command: x}}, {name: theirs, owner: alice, group: g2" + period + ", job: {command: x}}", "", 403},
			{"another command under a colleague's account", "{name: hers, owner: alice, group: g4" + period + ", job: {command: steal, account: alices}}", "", 403},
			{"another priority of it", "{name: hers, owner: alice, group: g4" + period + ", priority: 1, job: {command: x, account: alices}}", "", 200},
			{"a new job under a colleague's account", "{name: my, owner: alice" + period + ", job: {command: x, account: alices}}", "", 403},
			{"a new job under the department's account", "{name: my, owner: alice" + period + ", job: {command: x, account: etl}}", "", 200},
		} {
			assert.Equal(t, c.want, apply(c.tasks, c.more), c.what)
		}
		got, err := w.Store.WhoseTasks(w.Ctx, []string{"theirs", "nobodys", "gone", "mine"})
		require.NoError(t, err)
		assert.Equal(t, []string{"carol", "", "carol"}, []string{got["theirs"].Owner, got["nobodys"].Owner, got["gone"].Owner})
		assert.NotContains(t, got, "mine", "a request is refused as a whole")
	})
}

// With task_read: department a list and each way to one thing tell the same.
func TestWhat_one_may_not_see_is_not_there(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := twoDepartments(t, w)
		own, theirs := r.executed("day"), r.executed("theirs")
		for _, task := range []string{"day", "theirs"} {
			require.Equal(t, 204, r.ask(auth.Admin, "POST", wire.Prefix+"/alerts", `{"level":"severe","title":"x","task":"`+task+`","key":"`+task+`"}`).Code)
		}
		require.Equal(t, 201, r.ask(auth.Admin, "POST", wire.Prefix+"/silences", `{"task":"theirs","reason":"x","until":"2026-11-21"}`).Code)
		lists := []string{"/tasks", "/tasks:export", "/batches", "/plan?from=2026-11-20&to=2026-11-21", "/alerts", "/silences"}
		gone := func(path string, id any) string { return strings.ReplaceAll(path, "@", fmt.Sprint(id)) }
		details := []string{"/tasks/@", "/tasks/@/history", "/tasks:export?names=@", "/batches?task=@", "/plan?from=2026-11-20&to=2026-11-21&task=@"}
		batches := []string{"/batches/@", "/batches/@/why", "/batches/@/logs"}

		for _, role := range []auth.Role{auth.Member, auth.ReadOnly} {
			w.Set(t, store.TaskRead, "all")
			for _, path := range lists {
				assert.Contains(t, r.ask(role, "GET", wire.Prefix+path, "").Body.String(), "theirs", path)
			}
			w.Set(t, store.TaskRead, "department")
			for _, path := range lists {
				rec := r.ask(role, "GET", wire.Prefix+path, "")
				require.Equal(t, 200, rec.Code, path)
				assert.NotContains(t, rec.Body.String(), "theirs", path)
				assert.NotContains(t, rec.Body.String(), "nobodys", path)
				if path != "/silences" {
					assert.Contains(t, rec.Body.String(), "day", path)
				}
				assert.Contains(t, r.ask(auth.Admin, "GET", wire.Prefix+path, "").Body.String(), "theirs", path)
			}
			same := func(method, path string, hidden, missing any, body string) {
				t.Helper()
				is := r.ask(role, method, wire.Prefix+gone(path, hidden), gone(body, hidden))
				isNot := r.ask(role, method, wire.Prefix+gone(path, missing), gone(body, missing))
				require.Equal(t, 404, is.Code, "%s %s: %s", method, path, is.Body)
				assert.Equal(t, isNot.Code, is.Code, path)
				assert.Equal(t, r.problem(isNot).Detail, strings.ReplaceAll(r.problem(is).Detail, fmt.Sprint(hidden), fmt.Sprint(missing)), "in the very words: %s", path)
			}
			for _, path := range details {
				same("GET", path, "theirs", "missing", "")
				assert.Equal(t, 200, r.ask(role, "GET", wire.Prefix+gone(path, "day"), "").Code, path)
			}
			for _, path := range batches {
				same("GET", path, theirs, 987_654, "")
				if !strings.Contains(path, "logs") { // it has not run yet
					assert.Equal(t, 200, r.ask(role, "GET", wire.Prefix+gone(path, own), "").Code, path)
				}
			}
			if role == auth.Member {
				same("POST", "/tasks/@:disable", "theirs", "missing", "")
				same("POST", "/tasks/@:execute", "theirs", "missing", "")
				same("POST", "/tasks/@/rerun", "theirs", "missing", `{"from":"2026-11-19","to":"2026-11-20"}`)
				same("DELETE", "/tasks/@", "theirs", "missing", "")
				same("POST", "/batches:kill", theirs, 987_654, `{"ids":[@]}`)
				same("POST", "/alerts", "theirs", "missing", `{"level":"severe","title":"x","task":"@"}`)
				same("POST", "/silences", "theirs", "missing", `{"task":"@","reason":"x","until":"2026-11-21"}`)
				assert.Equal(t, http.StatusForbidden, r.ask(role, "POST", wire.Prefix+"/tasks:apply",
					`{"sources":[{"name":"f","data":"tasks: [{name: theirs, owner: alice, period: day, job: {command: x}}]"}]}`).Code)
			}
		}
	})
}
