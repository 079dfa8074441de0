package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
	"capri/api"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

// repeat sends a POST with an idempotency key.
func (r *rig) repeat(role auth.Role, key, path, body string) *httptest.ResponseRecorder {
	return r.send(r.keys[role], http.MethodPost, wire.Prefix+path, body, func(req *http.Request) { req.Header.Set("Idempotency-Key", key) })
}

func TestARepeatedRequest_is_done_once_and_answered_alike(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		r.Apply(some)
		first := r.repeat(auth.SuperAdmin, "k1", "/tasks/day:execute", "")
		require.Equal(t, 201, first.Code, first.Body.String())
		require.Empty(t, first.Header().Get("Idempotency-Replayed"))
		// Another server, or this one after a restart, gives the same.
		r.handler = api.New(api.Options{Store: w.Store, Actions: w.Actions})
		second := r.repeat(auth.SuperAdmin, "k1", "/tasks/day:execute", "")
		assert.Equal(t, []any{201, first.Body.String(), "true", "application/json"},
			[]any{second.Code, second.Body.String(), second.Header().Get("Idempotency-Replayed"), second.Header().Get("Content-Type")})
		assert.Equal(t, 409, r.repeat(auth.SuperAdmin, "k2", "/tasks/day:execute", "").Code, "another key is another request")

		other := r.repeat(auth.SuperAdmin, "k1", "/tasks/child:execute", "")
		assert.Equal(t, 422, other.Code)
		assert.Equal(t, "Idempotency-Key", r.problem(other).Errors[0].Field)
		assert.Equal(t, 422, r.repeat(auth.SuperAdmin, "k1", "/tasks/day:execute", `{}`).Code, "another body")
		assert.Equal(t, 201, r.repeat(auth.Admin, "k1", "/tasks/child:execute", "").Code, "another's key is his own")

		r.Clock.Advance(25 * time.Hour)
		later := r.repeat(auth.SuperAdmin, "k1", "/tasks/day:execute", "")
		assert.Equal(t, 201, later.Code)
		assert.NotEqual(t, first.Body.String(), later.Body.String(), "a day later it is done anew, for another interval")
	})
}

func TestARefusedRequest_may_be_tried_again_with_its_key(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	require.Equal(t, 404, r.repeat(auth.SuperAdmin, "k", "/tasks/day:execute", "").Code)
	r.Apply(some)
	require.Equal(t, 201, r.repeat(auth.SuperAdmin, "k", "/tasks/day:execute", "").Code)
}

func TestAnAnswerThatWasKept_is_not_given_to_who_may_no_longer_ask(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		r.Apply(some)
		first := r.repeat(auth.Admin, "k", "/tasks/day:execute", "")
		require.Equal(t, 201, first.Code, first.Body.String())
		app := store.App{Name: "app_" + string(auth.Admin), Role: string(auth.ReadOnly), Enabled: true}
		require.NoError(t, w.Actions.SaveApp(w.Ctx, actiontest.Who, app))
		refused := r.repeat(auth.Admin, "k", "/tasks/day:execute", "")
		assert.Equal(t, 403, refused.Code)
		assert.Equal(t, "urn:capri:problem:forbidden", r.problem(refused).Type)
		assert.NotContains(t, refused.Body.String(), "batch_no")
		app.Role = string(auth.Admin)
		require.NoError(t, w.Actions.SaveApp(w.Ctx, actiontest.Who, app))
		again := r.repeat(auth.Admin, "k", "/tasks/day:execute", "")
		assert.Equal(t, []any{201, first.Body.String()}, []any{again.Code, again.Body.String()})
	})
}

func TestAKeyThatIsNone_is_refused(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	for _, key := range []string{" ", "a b", "é", "a\x01", strings.Repeat("k", 201)} {
		rec := r.repeat(auth.SuperAdmin, key, "/dispatch:resume", "")
		require.Equal(t, 422, rec.Code, "%q", key)
		require.Equal(t, "Idempotency-Key", r.problem(rec).Errors[0].Field)
	}
}

func TestAnAnswerWithAKeyInIt_is_not_kept(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	rec := r.repeat(auth.SuperAdmin, "k", "/apps", `{"name":"etl","role":"member"}`)
	require.Equal(t, 201, rec.Code, rec.Body.String())
	again := r.repeat(auth.SuperAdmin, "k", "/apps", `{"name":"etl","role":"member"}`)
	r.Clock.Advance(5 * time.Minute)
	later := r.repeat(auth.SuperAdmin, "k", "/apps", `{"name":"etl","role":"member"}`)
	assert.Equal(t, []int{409, 409}, []int{again.Code, later.Code})
	assert.Contains(t, r.problem(later).Detail, "was done")
	var kept int
	require.NoError(t, r.Store.DB().QueryRow("SELECT COUNT(*) FROM idempotency_key WHERE body IS NOT NULL OR id = 'k'").Scan(&kept))
	assert.Zero(t, kept)
}

func TestRequestsOfOneKeyAtOnce_are_done_once(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		codes := make([]int, 8)
		var wg sync.WaitGroup
		for i := range codes {
			wg.Go(func() {
				codes[i] = r.repeat(auth.SuperAdmin, "k", "/alerts", `{"level":"attention","title":"once"}`).Code
			})
		}
		wg.Wait()
		for _, code := range codes {
			assert.Contains(t, []int{204, 409}, code)
		}
		assert.Contains(t, codes, 204)
		assert.Len(t, items[wire.Alert](r, "/alerts"), 1)
	})
}

// A process may die after its transaction and before it has kept the answer.
func TestWhatWasDoneByAProcessThatDied_is_not_done_again(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		this := store.Repeatable{ID: "id", Request: "request"}
		longest := 2 * time.Minute
		begin := func() *store.Repeated {
			before, err := w.Store.BeginRepeatable(w.Ctx, this, longest)
			require.NoError(t, err)
			return before
		}
		require.Nil(t, begin())
		require.Equal(t, &store.Repeated{UnderWay: true}, begin())
		w.Clock.Advance(3 * time.Minute)
		require.Nil(t, begin(), "it died before it did anything")
		require.NoError(t, w.Store.Write(store.WithRepeatable(w.Ctx, this), "act", "alice", func(tx *store.Tx) error { return tx.LogAction("act", "x", "") }))
		require.NoError(t, w.Store.EndRepeatable(w.Ctx, this, nil), "what was done is not forgotten")
		w.Clock.Advance(3 * time.Minute)
		require.Equal(t, &store.Repeated{}, begin())
		n, err := w.Store.ForgetRepeatables(w.Ctx, w.Lease(t, "cleanup"), w.Clock.Now().Add(time.Hour), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Nil(t, begin())
	})
}

func TestACallerWhoAsksTooOften_is_told_when_to_come_back(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	r.handler = api.New(api.Options{Store: r.Store, Actions: r.Actions, Rate: api.Rate{PerSecond: 1, Burst: 3}})
	var last *httptest.ResponseRecorder
	for range 4 {
		last = r.ask(auth.ReadOnly, "GET", wire.Prefix+"/tasks", "")
	}
	require.Equal(t, 429, last.Code)
	assert.Equal(t, 429, r.problem(last).Status)
	assert.Equal(t, []string{"1", "3", "0"}, []string{last.Header().Get("Retry-After"), last.Header().Get("Ratelimit-Limit"), last.Header().Get("Ratelimit-Remaining")})
	assert.Equal(t, 200, r.ask(auth.Member, "GET", wire.Prefix+"/tasks", "").Code, "others are not in his bucket")
	for range 10 {
		assert.Equal(t, 200, r.ask("", "GET", "/healthz", "").Code)
	}
}
