package api_test

import (
	"capri/action"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
	"capri/wake"
)

func TestQualityVerdict(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		w.Apply("tasks:\n- {name: gated, owner: alice, period: day, quality_gate: true, job: {command: x}}\n- {name: plain, owner: alice, period: day, job: {command: x}}")
		lease := w.Lease(t, "quality")
		run := func(task string) capri.BatchID {
			b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: task})
			require.NoError(t, err)
			return b.ID
		}
		id, plain := run("gated"), run("plain")
		asks, err := w.Store.BeginAsk(w.Ctx, lease, []capri.BatchID{id})
		require.NoError(t, err)
		require.Equal(t, 1, asks[id])
		say := func(role auth.Role, id capri.BatchID, body string) int {
			t.Helper()
			rec := r.ask(role, "POST", fmt.Sprintf("%s/batches/%d/quality", wire.Prefix, id), body)
			if rec.Code >= 400 {
				require.NotEmpty(t, r.problem(rec).Detail)
			}
			return rec.Code
		}
		require.Equal(t, 401, say("", id, `{"ask":1,"verdict":"runnable"}`))
		require.Equal(t, 403, say(auth.ReadOnly, id, `{"ask":1,"verdict":"runnable"}`))
		require.Equal(t, 403, say(auth.Member, id, `{"verdict":"runnable"}`), "without a question it is an admin's word")
		require.Equal(t, 422, say(auth.Member, id, `{"ask":1,"verdict":"perhaps"}`))
		require.Equal(t, 422, say(auth.Member, id, `{"ask":-1,"verdict":"runnable"}`))
		require.Equal(t, 404, say(auth.Member, 999_999, `{"ask":1,"verdict":"runnable"}`))
		require.Equal(t, 409, say(auth.Member, plain, `{"ask":1,"verdict":"runnable"}`))
		require.Equal(t, 409, say(auth.Member, id, `{"ask":2,"verdict":"runnable"}`))

		w.Wakes.Take()
		require.Equal(t, 204, say(auth.Member, id, `{"ask":1,"verdict":"blocked","reason":"42 rows are missing"}`))
		require.Empty(t, w.Wakes.Take())
		require.Equal(t, 204, say(auth.Member, id, `{"ask":1,"verdict":"runnable"}`))
		require.Contains(t, w.Wakes.Take(), wake.Dispatch)
		require.Equal(t, 3, w.Batch(id).QualityState)
		require.Equal(t, 204, say(auth.Admin, id, `{"verdict":"blocked"}`))
		require.Equal(t, 4, w.Batch(id).QualityState)

		var log []string
		rows, err := w.Store.DB().QueryContext(w.Ctx, "SELECT who, target, detail FROM action_log WHERE action = 'quality_verdict' ORDER BY id")
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var who, target, detail string
			require.NoError(t, rows.Scan(&who, &target, &detail))
			log = append(log, who+" "+target+" "+detail)
		}
		require.NoError(t, rows.Err())
		batch := fmt.Sprint("batch ", id)
		require.Equal(t, []string{"app_member " + batch + " blocked, question 1: 42 rows are missing", "app_member " + batch + " runnable, question 1", "app_admin " + batch + " blocked, by hand"}, log)
	})
}
