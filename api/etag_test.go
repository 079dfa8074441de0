package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
)

func (r *rig) headed(header, value, method, path, body string) *httptest.ResponseRecorder {
	return r.send(r.keys[auth.SuperAdmin], method, wire.Prefix+path, body, func(req *http.Request) { req.Header.Set(header, value) })
}

const edited = `{"sources":[{"name":"f","data":"tasks: [{name: day, owner: alice, group: g, period: day, priority: 1, job: {command: x}}]"}]}`

func TestADefinition_that_has_not_changed_is_not_sent_again(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	r.Apply(some)
	first := r.headed("X-None", "", "GET", "/tasks/day", "")
	tag := first.Header().Get("ETag")
	require.Regexp(t, `^"day-1\.[0-9a-f]{8}"$`, tag)
	for _, have := range []string{tag, `"other-1.00000000", ` + tag, "W/" + tag} {
		rec := r.headed("If-None-Match", have, "GET", "/tasks/day", "")
		assert.Equal(t, []any{304, "", tag}, []any{rec.Code, rec.Body.String(), rec.Header().Get("ETag")})
	}
	require.Equal(t, 200, r.headed("X-None", "", "POST", "/tasks:apply", edited).Code)
	changed := r.headed("If-None-Match", tag, "GET", "/tasks/day", "")
	assert.Equal(t, 200, changed.Code)
	assert.NotEqual(t, tag, changed.Header().Get("ETag"))
}

func TestAnEdit_of_what_somebody_else_has_edited_is_refused_and_says_what_changed(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		r.Apply(some)
		require.Equal(t, 204, r.ask(auth.SuperAdmin, "DELETE", wire.Prefix+"/tasks/child", "").Code)
		read := r.headed("X-None", "", "GET", "/tasks/day", "").Header().Get("ETag")
		other := r.headed("X-None", "", "GET", "/tasks/tick", "").Header().Get("ETag")
		require.Equal(t, 200, r.headed("If-Match", read, "POST", "/tasks:apply", edited).Code, "nobody has changed it")
		for _, ask := range [][3]string{
			{"POST", "/tasks:apply", strings.ReplaceAll(edited, "priority: 1", "priority: 2")},
			{"DELETE", "/tasks/day", ""},
			{"POST", "/tasks/day:disable", ""},
			{"POST", "/tasks/day:enable", ""}, // which it is already
			{"POST", "/tasks:disable", `{"names":["tick","day"]}`},
		} {
			rec := r.headed("If-Match", read+", "+other, ask[0], ask[1], ask[2])
			require.Equal(t, http.StatusPreconditionFailed, rec.Code, rec.Body.String())
			p := r.problem(rec)
			assert.Contains(t, p.Detail, "task day has changed since it was read: it is version 2 now, and was 1")
			assert.Equal(t, []string{"day"}, p.Names)
			require.Len(t, p.Changes, 1)
			assert.Equal(t, "priority", p.Changes[0].Field)
		}
		assert.Equal(t, 2, decode[wire.Task](t, r.ask(auth.ReadOnly, "GET", wire.Prefix+"/tasks/day", "")).Version)
		for _, tag := range []string{"day-1", `"day"`, `"day-x.0"`, `"-1.0"`, `"day-1.0`} {
			assert.Equal(t, 422, r.headed("If-Match", tag, "DELETE", "/tasks/tick", "").Code, tag)
		}
		assert.True(t, decode[wire.Task](t, r.ask(auth.ReadOnly, "GET", wire.Prefix+"/tasks/tick", "")).Enabled, "one that is stale, and none is changed")
		require.Equal(t, 200, r.headed("If-Match", other, "POST", "/tasks:disable", `{"names":["tick"]}`).Code)
		assert.Equal(t, 412, r.headed("If-Match", other, "POST", "/tasks/tick:enable", "").Code)
		other = r.headed("X-None", "", "GET", "/tasks/tick", "").Header().Get("ETag")
		assert.Equal(t, 200, r.headed("If-Match", other, "POST", "/tasks/tick:enable", "").Code)
		other = r.headed("X-None", "", "GET", "/tasks/tick", "").Header().Get("ETag")
		assert.Equal(t, 204, r.headed("If-Match", other, "DELETE", "/tasks/tick", "").Code)
	})
}
