package api_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

// peopled is a rig with two departments and people in them; the member's key is of a user of dw.
func peopled(t *testing.T, w *actiontest.World) *rig {
	t.Helper()
	r := newRig(t, w)
	for _, d := range []string{"dw", "bi"} {
		require.NoError(t, w.Actions.SaveDepartment(w.Ctx, actiontest.Who, store.Department{Name: d}))
	}
	for name, department := range map[string]string{"bob": "dw", "carol": "dw", "app_member": "dw", "dave": "bi"} {
		require.NoError(t, w.Actions.SaveUser(w.Ctx, actiontest.Who, store.User{Name: name, Department: department, Phone: "+86", Enabled: true}))
	}
	return r
}

func (r *rig) read(v any, role auth.Role, path string) {
	r.t.Helper()
	rec := r.ask(role, "GET", wire.Prefix+path, "")
	require.Equal(r.t, 200, rec.Code, rec.Body.String())
	require.NoError(r.t, json.Unmarshal(rec.Body.Bytes(), v))
}

const dwRota = `{"department":"dw","timezone":"Asia/Shanghai","primary":{"people":["bob","carol"],"start":"2026-11-16"},"secondary":{"weeks":[{"from":"2026-11-16","user":"carol"}]}}`

func TestRotas_are_set_read_and_deleted(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := peopled(t, w)
		set := func(body string) []wire.DutyPlan {
			t.Helper()
			rec := r.ask(auth.Admin, "PUT", wire.Prefix+"/duty", body)
			require.Equal(t, 200, rec.Code, rec.Body.String())
			var plans []wire.DutyPlan
			require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &plans))
			return plans
		}
		plans := set(`{"dry_run":true,"rotas":[` + dwRota + `]}`)
		require.Len(t, plans, 1)
		require.NotEmpty(t, plans[0].Shifts)
		assert.Equal(t, []string{"primary", "bob", "2026-11-16T01:00:00Z"}, []string{plans[0].Shifts[0].Place, plans[0].Shifts[0].User, plans[0].Shifts[0].From.Format("2006-01-02T15:04:05Z07:00")})
		var rotas []wire.Rota
		r.read(&rotas, auth.ReadOnly, "/duty")
		assert.Empty(t, rotas, "a dry run changes nothing")

		set(`{"rotas":[` + dwRota + `,{"primary":{"people":["alice"],"days":1,"start":"2026-11-01"}}]}`)
		r.read(&rotas, auth.ReadOnly, "/duty")
		require.Len(t, rotas, 2)
		assert.Equal(t, wire.Rota{Timezone: "UTC", HandOver: "09:00", Primary: &wire.Rotation{People: []string{"alice"}, Days: 1, Start: "2026-11-01"}}, rotas[0])
		var dw wire.Rota
		r.read(&dw, auth.ReadOnly, "/duty/dw")
		assert.Equal(t, rotas[1], dw)
		assert.Equal(t, 7, dw.Primary.Days)
		again, err := json.Marshal(dw)
		require.NoError(t, err)
		rec := r.ask(auth.Admin, "PUT", wire.Prefix+"/duty/dw", string(again))
		require.Equal(t, 200, rec.Code, rec.Body.String())
		var system wire.Rota
		r.read(&system, auth.ReadOnly, "/duty/~")
		assert.Equal(t, rotas[0], system)
		assert.Equal(t, 404, r.ask(auth.ReadOnly, "GET", wire.Prefix+"/duty/bi", "").Code)

		var now []wire.DutyNow
		r.read(&now, auth.ReadOnly, "/duty/now?department=dw")
		require.Len(t, now, 1)
		assert.Equal(t, []string{"dw", "bob", "carol"}, []string{now[0].Department, now[0].Primary, now[0].Secondary})
		assert.NotNil(t, now[0].NextHandOver)

		assert.Equal(t, 204, r.ask(auth.Admin, "DELETE", wire.Prefix+"/duty/dw", "").Code)
		assert.Equal(t, 404, r.ask(auth.Admin, "DELETE", wire.Prefix+"/duty/dw", "").Code)
		r.read(&rotas, auth.ReadOnly, "/duty")
		assert.Len(t, rotas, 1)

		log, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 2})
		require.NoError(t, err)
		assert.Equal(t, []string{"duty_delete", "department dw", "app_admin"}, []string{log[0].Action, log[0].Target, log[0].Who})
		assert.Equal(t, []string{"duty_set", "department dw", "hand-over at 09:00 Asia/Shanghai; primary: bob, carol, 7 days each from 2026-11-16 on; secondary: 2026-11-16 carol"},
			[]string{log[1].Action, log[1].Target, log[1].Detail})
	})
}

func TestWhatIsWrongWithRotas_is_said_at_once_and_nothing_is_saved(t *testing.T) {
	r := peopled(t, actiontest.SQLite(t))
	rec := r.ask(auth.Admin, "PUT", wire.Prefix+"/duty", `{"rotas":[`+dwRota+`,{"department":"nowhere","timezone":"Mars/Base","primary":{"people":["bob","stranger"],"days":400,"start":"soon"}},{"department":"dw"}]}`)
	require.Equal(t, 422, rec.Code, rec.Body.String())
	var fields []string
	for _, e := range r.problem(rec).Errors {
		fields = append(fields, e.Where+": "+e.Field)
	}
	assert.Equal(t, []string{"rota of department nowhere: timezone", "rota of department nowhere: primary.start", "rota of department nowhere: primary.days",
		"rota of department nowhere: department", "rota of department nowhere: primary.people[1]", "rota of department dw: primary", "rota of department dw: department"}, fields)
	var rotas []wire.Rota
	r.read(&rotas, auth.ReadOnly, "/duty")
	assert.Empty(t, rotas)
	for _, body := range []string{`{"rotas":[]}`, `{"rotas":[{"department":"now","primary":{"people":["bob"],"start":"2026-11-16"}}]}`, `{"rotas":[{"broken":"x"}]}`, `{"rotas":[{"wat":1}]}`} {
		assert.Equal(t, 422, r.ask(auth.Admin, "PUT", wire.Prefix+"/duty", body).Code, body)
	}
	assert.Equal(t, 422, r.ask(auth.Admin, "PUT", wire.Prefix+"/duty/bi", dwRota).Code, "the path speaks of another")
}

func TestAMember_changes_the_rota_of_his_own_department_alone(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := peopled(t, w)
		ask := func(role auth.Role, method, path, body string) int {
			return r.ask(role, method, wire.Prefix+path, body).Code
		}
		bi := `{"department":"bi","primary":{"people":["dave"],"start":"2026-11-16"}}`
		system := `{"primary":{"people":["dave"],"start":"2026-11-16"}}`
		assert.Equal(t, 200, ask(auth.Member, "PUT", "/duty/dw", dwRota))
		assert.Equal(t, 403, ask(auth.Member, "PUT", "/duty/bi", bi))
		assert.Equal(t, 403, ask(auth.Member, "PUT", "/duty/~", system))
		assert.Equal(t, 403, ask(auth.Member, "PUT", "/duty", `{"rotas":[`+dwRota+`,`+bi+`]}`), "all or none")
		assert.Equal(t, 200, ask(auth.Admin, "PUT", "/duty", `{"rotas":[`+bi+`,`+system+`]}`))
		assert.Equal(t, 403, ask(auth.Member, "DELETE", "/duty/bi", ""))
		assert.Equal(t, 403, ask(auth.ReadOnly, "DELETE", "/duty/dw", ""))

		override := func(role auth.Role, department string) (int, wire.DutyOverride) {
			rec := r.ask(role, "POST", wire.Prefix+"/duty/overrides", `{"department":"`+department+`","place":"primary","user":"carol","from":"2026-11-20","to":"2026-11-21","reason":"swap"}`)
			var o wire.DutyOverride
			_ = json.Unmarshal(rec.Body.Bytes(), &o)
			return rec.Code, o
		}
		code, own := override(auth.Member, "dw")
		require.Equal(t, 201, code)
		assert.Equal(t, []string{"app_member", "2026-11-20 00:00", "2026-11-22 00:00"}, []string{own.CreatedBy, own.From.Format("2006-01-02 15:04"), own.To.Format("2006-01-02 15:04")}, "the last day is whole")
		code, _ = override(auth.Member, "bi")
		assert.Equal(t, 403, code)
		code, foreign := override(auth.Admin, "bi")
		require.Equal(t, 201, code)
		id := func(o wire.DutyOverride) string { b, _ := json.Marshal(o.ID); return "/duty/overrides/" + string(b) }
		assert.Equal(t, 403, ask(auth.Member, "DELETE", id(foreign), ""))
		var all []wire.DutyOverride
		r.read(&all, auth.ReadOnly, "/duty/overrides")
		assert.Len(t, all, 2, "a refused delete changes nothing")
		assert.Equal(t, 204, ask(auth.Member, "DELETE", id(own), ""))
		assert.Equal(t, 404, ask(auth.Member, "DELETE", id(own), ""))
		r.read(&all, auth.ReadOnly, "/duty/overrides?department=dw")
		assert.Empty(t, all)

		// Who is disabled, or left the department, has no right any more.
		require.NoError(t, w.Actions.SaveUser(w.Ctx, actiontest.Who, store.User{Name: "app_member", Department: "dw"}))
		assert.Equal(t, 403, ask(auth.Member, "PUT", "/duty/dw", dwRota))
	})
}

func TestOverrides_are_checked(t *testing.T) {
	r := peopled(t, actiontest.SQLite(t))
	require.Equal(t, 200, r.ask(auth.Admin, "PUT", wire.Prefix+"/duty/dw", dwRota).Code)
	for body, code := range map[string]int{
		`{"department":"dw","place":"third","user":"carol","from":"2026-11-20","to":"2026-11-21"}`:      422,
		`{"department":"dw","place":"primary","user":"stranger","from":"2026-11-20","to":"2026-11-21"}`: 422,
		`{"department":"dw","place":"primary","user":"carol","from":"soon","to":"2026-11-21"}`:          422,
		`{"department":"dw","place":"primary","user":"carol","from":"2026-11-20","to":"2026-11-18"}`:    422,
		`{"department":"dw","place":"primary","user":"carol","from":"2026-11-20","to":"2028-11-18"}`:    422,
		`{"department":"bi","place":"primary","user":"carol","from":"2026-11-20","to":"2026-11-21"}`:    404,
	} {
		rec := r.ask(auth.Admin, "POST", wire.Prefix+"/duty/overrides", body)
		assert.Equal(t, code, rec.Code, "%s: %s", body, rec.Body)
	}
}

func TestShifts_of_a_range_mark_their_holes(t *testing.T) {
	r := peopled(t, actiontest.SQLite(t))
	require.Equal(t, 200, r.ask(auth.Admin, "PUT", wire.Prefix+"/duty/dw", dwRota).Code)
	var plans []wire.DutyPlan
	r.read(&plans, auth.ReadOnly, "/duty/shifts?department=dw&from="+url.QueryEscape("2026-11-23 01:00")+"&to="+url.QueryEscape("2026-11-30 01:00"))
	require.Len(t, plans, 1)
	require.Len(t, plans[0].Shifts, 2)
	assert.Equal(t, []string{"carol", "", "", "nobody is on duty"}, []string{plans[0].Shifts[0].User, plans[0].Shifts[0].Hole, plans[0].Shifts[1].User, plans[0].Shifts[1].Hole})
	assert.Nil(t, plans[0].Shifts[1].To)
	require.Len(t, plans[0].Holes, 1)
	assert.Equal(t, "secondary", plans[0].Holes[0].Place)
	for _, query := range []string{"from=2026-11-23&to=2026-11-20", "from=2026-01-01&to=2027-11-20", "from=soon", "to=never"} {
		assert.Equal(t, 422, r.ask(auth.ReadOnly, "GET", wire.Prefix+"/duty/shifts?"+query, "").Code, query)
	}
	assert.Equal(t, 404, r.ask(auth.ReadOnly, "GET", wire.Prefix+"/duty/shifts?department=bi", "").Code)
}

func TestAlertRights_are_shown_with_their_task(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := peopled(t, w)
		r.Apply(some)
		ask := func(role auth.Role, method, path, body string) int {
			return r.ask(role, method, wire.Prefix+path, body).Code
		}
		assert.Equal(t, 204, ask(auth.Member, "PUT", "/tasks/day/alert-grants/bob", `{"sms":true}`))
		assert.Equal(t, 204, ask(auth.Member, "PUT", "/tasks/day/alert-grants/carol", `{"sms":true,"mail":true}`))
		assert.Equal(t, 403, ask(auth.ReadOnly, "PUT", "/tasks/day/alert-grants/bob", `{"sms":true}`))
		assert.Equal(t, 404, ask(auth.Member, "PUT", "/tasks/day/alert-grants/stranger", `{"sms":true}`))
		assert.Equal(t, 404, ask(auth.Member, "PUT", "/tasks/night/alert-grants/bob", `{"sms":true}`))
		assert.Equal(t, 422, ask(auth.Member, "PUT", "/tasks/day/alert-grants/bob", `{}`))
		var task wire.Task
		r.read(&task, auth.ReadOnly, "/tasks/day")
		require.Len(t, task.AlertGrants, 2)
		assert.Equal(t, []any{"bob", true, false, "carol", true, true}, []any{task.AlertGrants[0].User, task.AlertGrants[0].SMS, task.AlertGrants[0].Mail, task.AlertGrants[1].User, task.AlertGrants[1].SMS, task.AlertGrants[1].Mail})

		assert.Equal(t, 204, ask(auth.Member, "DELETE", "/tasks/day/alert-grants/bob", ""))
		assert.Equal(t, 404, ask(auth.Member, "DELETE", "/tasks/day/alert-grants/bob", ""))
		assert.Equal(t, 204, ask(auth.Admin, "DELETE", "/users/carol", ""))
		grants, err := w.Store.AlertGrants(w.Ctx)
		require.NoError(t, err)
		assert.Empty(t, grants, "a user who is deleted leaves no rights to whoever gets his name")
	})
}

func TestADepartment_with_a_rota_is_not_forgotten(t *testing.T) {
	w := actiontest.SQLite(t)
	r := newRig(t, w)
	require.NoError(t, w.Actions.SaveDepartment(w.Ctx, actiontest.Who, store.Department{Name: "bi"}))
	require.Equal(t, 200, r.ask(auth.Admin, "PUT", wire.Prefix+"/duty/bi", `{"primary":{"people":["alice"],"start":"2026-11-16"}}`).Code)
	rec := r.ask(auth.Admin, "DELETE", wire.Prefix+"/departments/bi", "")
	require.Equal(t, 409, rec.Code)
	assert.Contains(t, r.problem(rec).Detail, "capri duty delete --department bi")
	require.Equal(t, 204, r.ask(auth.Admin, "DELETE", wire.Prefix+"/duty/bi", "").Code)
	assert.Equal(t, 204, r.ask(auth.Admin, "DELETE", wire.Prefix+"/departments/bi", "").Code)
}
