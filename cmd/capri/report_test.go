package main

import (
	"capri/action"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
	"capri/sql/store"
	"capri/worker/job/runner"
)

func TestA_job_reports_its_code_and_progress(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		c := newCluster(t, w)
		w.Apply("tasks:\n- {name: coded, owner: alice, period: manual, check: user_code, job: {command: x}}")
		w.Register()
		b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "coded"})
		require.NoError(t, err)
		attempt := w.Start(b.ID)
		secret, err := w.Store.ClusterSecret(w.Ctx)
		require.NoError(t, err)
		env := maps.Clone(c.env)
		delete(env, "CAPRI_TOKEN")
		inJob := func(args ...string) result { return capriIn(t, env, "", args...) }

		r := inJob("report-code", "0")
		assert.NotZero(t, r.code)
		assert.Contains(t, r.err, "CAPRI_ATTEMPT_TOKEN")
		env["CAPRI_ATTEMPT_TOKEN"] = store.AttemptToken(secret, attempt)
		for _, bad := range [][]string{{"report-code"}, {"report-code", "ok"}, {"report-progress", "101"}, {"report-progress", "-1"}, {"report-progress", "half"}} {
			assert.NotZero(t, inJob(bad...).code, "%v", bad)
		}
		r = inJob("report-progress", "50")
		require.Zero(t, r.code, r.err)
		assert.Equal(t, 50, w.Batch(b.ID).Progress)
		r = inJob("report-code", "0", "--message", "12 files")
		require.Zero(t, r.code, r.err)
		r = inJob("report-code", "1")
		assert.NotZero(t, r.code)
		assert.Contains(t, r.err, "has reported success")

		env["CAPRI_SERVER"] = "http://127.0.0.1:1"
		r = inJob("report-code", "0", "--patience", "300ms")
		assert.NotZero(t, r.code)
		assert.Contains(t, r.err, "127.0.0.1:1")
	})
}

func TestWhat_a_client_has_started_is_told_to_the_server(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		c := newCluster(t, w)
		w.Apply("tasks:\n- {name: remote, owner: alice, period: manual, job: {type: spark, command: x.py}}")
		w.Register()
		b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "remote"})
		require.NoError(t, err)
		secret, err := w.Store.ClusterSecret(w.Ctx)
		require.NoError(t, err)
		env := maps.Clone(c.env)
		env["CAPRI_ATTEMPT_TOKEN"] = store.AttemptToken(secret, w.Start(b.ID))
		says := "echo 'INFO YarnClientImpl: Submitted application application_17_0042' >&2"
		t.Setenv(runner.Variable, `{"client": {"argv": ["/bin/sh", "-c", "`+says+`"], "remote": "spark"}}`)
		r := capriIn(t, env, "", "job")
		require.Zero(t, r.code, r.err)
		assert.Contains(t, r.err, "the job has started application application_17_0042")
		assert.Equal(t, "application_17_0042", w.Batch(b.ID).ApplicationID)
	})
}
