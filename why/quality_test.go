package why_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/sql/store"
	"capri/why"
)

func TestExplain_at_a_quality_gate(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply("tasks:\n- {name: gated, owner: alice, period: day, quality_gate: true, job: {command: x}, third_party: [{code: closed}]}\n- {name: child, owner: alice, period: day, job: {command: x}, parents: [{task: gated}]}")
		lease := w.Lease(t, "quality")
		w.Lease(t, "dispatch")
		w.Register()
		id, child := execute(t, w, "gated"), execute(t, w, "child")
		says := func(kind, words string) {
			t.Helper()
			for _, batch := range []capri.BatchID{id, child} { // whoever waits for it is told the same root
				causes := explain(t, w, batch).Causes
				require.Len(t, causes, 1)
				require.Equal(t, kind, causes[0].Kind)
				require.Contains(t, causes[0].Detail, words)
			}
		}
		says(why.ThirdParty, "closed")
		require.NoError(t, w.Actions.ReportThirdParty(w.Ctx, actiontest.Who, "closed", capri.Day, "20261119", "ready", ""))
		w.Look()
		says(why.Quality, "is asked about in a moment")
		require.NoError(t, w.Store.Explain(w.Ctx, lease, map[string][]capri.BatchID{store.GateMessage + "no quality API is configured (quality.url)": {id}}))
		says(why.Quality, "could not be asked about: no quality API is configured (quality.url)")
		asks, err := w.Store.BeginAsk(w.Ctx, lease, []capri.BatchID{id})
		require.NoError(t, err)
		_, err = w.Store.Asked(w.Ctx, lease, asks)
		require.NoError(t, err)
		says(why.Quality, "was asked (question 1)")
		require.NoError(t, w.Actions.QualityVerdict(w.Ctx, actiontest.Who, id, 1, "blocked", "42 rows are missing"))
		says(why.Quality, "its quality gate says blocked: 42 rows are missing")
		require.NoError(t, w.Actions.QualityVerdict(w.Ctx, actiontest.Who, id, 0, "runnable", ""))
		for _, c := range explain(t, w, id).Causes {
			require.NotEqual(t, why.Quality, c.Kind)
		}
	})
}
