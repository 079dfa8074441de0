package api_test

import (
	"capri/action"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

func TestA_job_speaks_of_its_own_attempt_and_of_nothing_else(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		w.Apply("tasks:\n- {name: coded, owner: alice, period: manual, check: user_code, job: {command: x}}\n- {name: plain, owner: alice, period: manual, job: {command: x}}")
		w.Register()
		run := func(task string) capri.Attempt {
			b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: task})
			require.NoError(t, err)
			return w.Start(b.ID)
		}
		coded, plain := run("coded"), run("plain")
		secret, err := w.Store.ClusterSecret(w.Ctx)
		require.NoError(t, err)
		say := func(token, method, path, body string) *httptest.ResponseRecorder {
			req := httptest.NewRequest(method, wire.Prefix+path, strings.NewReader(body))
			req.Header.Set("Authorization", "Bearer "+token)
			req.Header.Set("Content-Type", "application/json")
			rec := httptest.NewRecorder()
			r.handler.ServeHTTP(rec, req)
			return rec
		}
		token := store.AttemptToken(secret, coded)
		require.Equal(t, 401, say(store.AttemptToken([]byte("guessed"), coded), "POST", "/attempt/code", `{"code":0}`).Code)
		require.Equal(t, 401, say(token+"x", "POST", "/attempt/code", `{"code":0}`).Code)
		for _, role := range auth.Roles {
			require.Equal(t, 403, r.ask(role, "POST", wire.Prefix+"/attempt/code", `{"code":0}`).Code, "nobody speaks for a job, not even %s", role)
		}
		for _, path := range []string{"/tasks", "/batches", "/status", "/apps"} {
			require.Equal(t, 403, say(token, "GET", path, "").Code, "a job sees nothing else")
		}
		require.Equal(t, 403, say(token, "POST", "/batches:kill", `{"ids":[1]}`).Code)

		require.Equal(t, 422, say(token, "POST", "/attempt/code", `{"code":"0"}`).Code)
		require.Equal(t, 422, say(token, "POST", "/attempt/progress", `{"percent":101}`).Code)
		require.Equal(t, 204, say(token, "POST", "/attempt/progress", `{"percent":42}`).Code)
		require.Equal(t, 42, w.Batch(coded.Batch).Progress)
		require.Equal(t, 422, say(token, "POST", "/attempt/application", `{"id":"a b"}`).Code)
		require.Equal(t, 204, say(token, "POST", "/attempt/application", `{"id":"application_17_0042"}`).Code)
		require.Equal(t, "application_17_0042", w.Batch(coded.Batch).ApplicationID)
		require.Equal(t, 204, say(token, "POST", "/attempt/code", `{"code":3,"message":"no rows"}`).Code)
		require.Equal(t, 409, say(store.AttemptToken(secret, plain), "POST", "/attempt/code", `{"code":0}`).Code, "its task is judged by the exit code")

		_, err = w.Store.FinishAttempts(w.Ctx, "n1", []store.Result{{Attempt: coded, Outcome: store.Succeeded, ByCode: true}})
		require.NoError(t, err)
		b := w.Batch(coded.Batch)
		require.Equal(t, capri.Failed, b.FinishState)
		require.Equal(t, "reported code 3: no rows", b.Message)
		require.Equal(t, 409, say(token, "POST", "/attempt/code", `{"code":0}`).Code, "it has ended")
		require.NotContains(t, r.log.String(), token)
	})
}
