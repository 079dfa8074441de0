package api_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
)

func TestActs_over_HTTP(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	r.Apply(some)
	r.Register()
	r.Lease(t, "dispatch")
	post := func(role auth.Role, path, body string, into any) int {
		rec := r.ask(role, "POST", wire.Prefix+path, body)
		if into != nil && rec.Code < 300 {
			require.NoError(t, json.Unmarshal(rec.Body.Bytes(), into), rec.Body.String())
		}
		return rec.Code
	}

	var b wire.Batch
	require.Equal(t, 201, post(auth.Admin, "/tasks/day:execute", `{"interval":"20261110","params":{"mode":"full"}}`, &b))
	assert.Equal(t, []any{capri.BatchNo("20261110"), map[string]string{"mode": "full"}}, []any{b.BatchNo, b.Params})
	assert.Equal(t, 422, post(auth.Admin, "/tasks/day:execute", `{"params":{"a b":"x"}}`, nil))
	assert.Equal(t, 422, post(auth.Admin, "/tasks/day:execute", `{"interval":"nonsense"}`, nil))
	assert.Equal(t, 409, post(auth.Admin, "/tasks/day:execute", `{"interval":"20261120"}`, nil))

	var now wire.Batch
	require.Equal(t, 200, post(auth.Admin, "/tasks/day:run-now", "", &now))
	assert.True(t, now.RunNow)
	var results []wire.IDResult
	require.Equal(t, 200, post(auth.Admin, "/batches:run-now", fmt.Sprintf(`{"ids":[%d,%d],"reason":"urgent"}`, b.ID, now.ID), &results))
	assert.Equal(t, []string{action.Done, action.Unchanged}, []string{results[0].Result, results[1].Result})
	r.Start(now.ID)
	require.Equal(t, 200, post(auth.Admin, "/batches:force-success", fmt.Sprintf(`{"ids":[%d,%d],"reason":"by hand"}`, b.ID, now.ID), &results))
	assert.Equal(t, []string{action.Done, action.Refused}, []string{results[0].Result, results[1].Result})
	assert.Contains(t, results[1].Detail, "kill it first")
	rec := r.ask(auth.Admin, "POST", wire.Prefix+"/batches:force-success", fmt.Sprintf(`{"ids":[%d],"reason":"by hand"}`, now.ID))
	assert.Equal(t, 409, rec.Code)
	assert.Contains(t, r.problem(rec).Detail, "kill it first")
	assert.Equal(t, 422, post(auth.Admin, "/batches:force-success", fmt.Sprintf(`{"ids":[%d]}`, now.ID), nil), "a reason")

	for _, step := range []struct {
		path, body string
		want       int
	}{
		{"/dispatch:pause", `{"reason":"upgrade"}`, 204},
		{"/dispatch:pause", `{"node":"n1","reason":"odd","until":"2026-11-20 12:00"}`, 204},
		{"/dispatch:pause", `{"node":"n1","group":"g","reason":"odd"}`, 422},
		{"/dispatch:pause", `{"node":"nothing","reason":"odd"}`, 404},
		{"/dispatch:pause", `{"node":"n1"}`, 422},
		{"/dispatch:pause", `{"node":"n1","reason":"odd","until":"2026-11-19"}`, 422},
		{"/breakers:open", `{"task":"day","reason":"it fails"}`, 204},
		{"/breakers:open", `{"task":"day"}`, 422},
		{"/breakers:open", `{"reason":"x"}`, 422},
		{"/dispatch:limit", `{"max_running":3}`, 204},
		{"/dispatch:limit", `{"max_running":-2}`, 422},
	} {
		assert.Equal(t, step.want, post(auth.Admin, step.path, step.body, nil), "%s %s", step.path, step.body)
	}
	var d wire.Dispatch
	r.read(&d, auth.ReadOnly, "/dispatch")
	assert.Equal(t, 3, d.MaxRunning)
	var stand []string
	for _, x := range d.Stops {
		stand = append(stand, x.Kind+" "+x.Scope+" "+x.Name)
	}
	assert.Equal(t, []string{"pause all ", "pause node n1", "breaker task day"}, stand)
	var status wire.Status
	r.read(&status, auth.ReadOnly, "/status")
	assert.True(t, status.Paused)
	assert.Len(t, status.Stops, 3)
	for path, body := range map[string]string{"/dispatch:resume": "", "/breakers:close": `{"task":"day"}`} {
		assert.Equal(t, 204, post(auth.Admin, path, body, nil), path)
	}
	assert.Equal(t, 204, post(auth.Admin, "/dispatch:resume", `{"node":"n1"}`, nil))
	r.read(&d, auth.ReadOnly, "/dispatch")
	assert.Empty(t, d.Stops)

	var names []wire.NameResult
	require.Equal(t, 200, post(auth.Admin, "/tasks:disable", `{"names":["day"],"reason":"a bad source"}`, &names))
	assert.Equal(t, []wire.NameResult{{Task: "day", Result: "done"}}, names)
	assert.Equal(t, 404, post(auth.Admin, "/tasks:enable", `{"names":["day","nothing"]}`, nil))

	batches, of := fmt.Sprintf(`{"ids":[%d],"reason":"x"}`, b.ID), `{"task":"day","reason":"x"}`
	for path, body := range map[string]string{"/batches:force-success": batches, "/batches:run-now": batches, "/tasks/day:run-now": "", "/tasks:enable": `{"names":["day"]}`,
		"/dispatch:limit": `{"max_running":1}`, "/breakers:open": of, "/breakers:close": of} {
		assert.Equal(t, 403, post(auth.ReadOnly, path, body, nil), path)
		if path[1] == 'd' || path[1:4] == "bre" {
			assert.Equal(t, 403, post(auth.Member, path, body, nil), path)
		}
	}
}
