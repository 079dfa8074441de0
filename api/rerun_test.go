package api_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

func decode[T any](t *testing.T, rec *httptest.ResponseRecorder) T {
	t.Helper()
	var out T
	require.Equal(t, 200, rec.Code, rec.Body.String())
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &out), rec.Body.String())
	return out
}

func TestRerun_answers_what_it_did(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	r.Apply(some)
	const path = wire.Prefix + "/tasks/day/rerun"
	for _, c := range []struct {
		role auth.Role
		body string
		want int
	}{
		{auth.ReadOnly, `{"from":"2026-11-19","to":"2026-11-20"}`, 403},
		{auth.Member, `{"from":"2026-11-19"}`, 422},
		{auth.Member, `{"from":"2026-11-19","to":"2026-11-21"}`, 422},
		{auth.Member, `{"from":"2026-11-19","to":"2026-11-20","cascade":"all"}`, 422},
		{auth.Member, `{"from":"2026-11-19","to":"2026-11-20","only":"some"}`, 422},
	} {
		assert.Equal(t, c.want, r.ask(c.role, "POST", path, c.body).Code, c.body)
	}
	made := decode[wire.CampaignPlan](t, r.ask(auth.Member, "POST", path, `{"from":"2026-11-19","to":"2026-11-20"}`))
	require.Equal(t, 2, made.Made)
	require.Equal(t, "new", made.Items[0].Action)
	r.Campaigns()
	waits := decode[wire.CampaignPlan](t, r.ask(auth.Member, "POST", path, `{"from":"2026-11-19","to":"2026-11-20"}`))
	assert.Equal(t, "left_waiting", waits.Items[0].Action, "they have not started, so they run once")
	r.Campaigns()
	r.Finish(r.Latest("day", "20261119").ID, store.Succeeded)
	r.Campaigns()
	again := decode[wire.CampaignPlan](t, r.ask(auth.Member, "POST", path, `{"from":"2026-11-20","to":"2026-11-20"}`))
	require.Equal(t, capri.BatchNo("20261119"), again.Items[0].BatchNo)
	require.Equal(t, "new_run", again.Items[0].Action)
}

func TestAnArchivedBatch_is_shown_listed_and_explained(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		r.Apply(some)
		decode[wire.CampaignPlan](t, r.ask(auth.SuperAdmin, "POST", wire.Prefix+"/cold-starts", `{"period":"day","from":"2026-11-20","to":"2026-11-20"}`))
		r.Campaigns()
		day, child := r.Latest("day", "20261119"), r.Latest("child", "20261119")
		r.Finish(day.ID, store.Failed)
		r.Clock.Advance(100 * 24 * time.Hour)
		n, err := r.Store.ArchiveBatches(r.Ctx, r.Lease(t, "cleanup"), r.Clock.Now(), []capri.BatchID{day.ID})
		require.NoError(t, err)
		require.Equal(t, 1, n)

		shown := decode[wire.BatchDetail](t, r.ask(auth.ReadOnly, "GET", fmt.Sprintf("%s/batches/%d", wire.Prefix, day.ID), ""))
		assert.True(t, shown.Archived)
		assert.NotEmpty(t, shown.Events)
		assert.Len(t, shown.Attempts, 1)
		list := func(query string) (ids []capri.BatchID) {
			for _, b := range items[wire.Batch](r, "/batches?"+query) {
				ids = append(ids, b.ID)
			}
			return ids
		}
		assert.NotContains(t, list(""), day.ID)
		assert.Contains(t, list("archived=true"), day.ID)
		assert.Contains(t, list("from=2026-11-01"), day.ID)
		assert.NotContains(t, list("from=2027-01-01"), day.ID)

		why := decode[wire.Why](t, r.ask(auth.ReadOnly, "GET", fmt.Sprintf("%s/batches/%d/why", wire.Prefix, child.ID), ""))
		assert.Equal(t, "parent_failed", why.Causes[0].Kind)
		assert.Equal(t, day.ID, why.Causes[0].Root.BatchID)
		ended := decode[wire.Why](t, r.ask(auth.ReadOnly, "GET", fmt.Sprintf("%s/batches/%d/why", wire.Prefix, day.ID), ""))
		assert.Contains(t, ended.Summary, "it has finished (failed)")
		derived := decode[wire.BatchDetail](t, r.ask(auth.ReadOnly, "GET", fmt.Sprintf("%s/batches/%d", wire.Prefix, child.ID), ""))
		assert.Equal(t, "unmet", derived.Conditions[0].State)
		assert.Equal(t, day.ID, derived.Conditions[0].BatchID)
	})
}

func TestAPoisonedTask_hides_no_other_in_any_list(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		r.Apply(some)
		decode[wire.CampaignPlan](t, r.ask(auth.SuperAdmin, "POST", wire.Prefix+"/cold-starts", `{"period":"day","from":"2026-11-20","to":"2026-11-20"}`))
		r.Campaigns()
		for _, text := range []string{"UPDATE task SET definition = '{' WHERE name = 'child'", "UPDATE task_history SET definition = '{'",
			`UPDATE task SET definition = REPLACE(definition, '0/20', '0/x') WHERE name = 'tick'`} {
			_, err := w.Store.DB().ExecContext(w.Ctx, text)
			require.NoError(t, err)
		}
		tasks := items[wire.Task](r, "/tasks")
		require.Len(t, tasks, 3)
		assert.Contains(t, tasks[0].Broken, "cannot be read")
		assert.Equal(t, "child", tasks[0].Name)
		assert.Contains(t, decode[wire.Task](t, r.ask(auth.ReadOnly, "GET", wire.Prefix+"/tasks/child", "")).Broken, "cannot be read")
		history := items[wire.TaskVersion](r, "/tasks/day/history")
		assert.Contains(t, history[0].Changes[0].New, "cannot be read")
		plan := decode[[]wire.PlanRow](t, r.ask(auth.ReadOnly, "GET", wire.Prefix+"/plan?from=2026-11-20&to=2026-11-21", ""))
		require.Len(t, plan, 1)
		assert.Equal(t, "day", *plan[0].Task)
		for _, named := range []string{"child", "tick"} {
			assert.Contains(t, []int{409, 422}, r.ask(auth.ReadOnly, "GET", wire.Prefix+"/plan?from=2026-11-20&to=2026-11-21&task="+named, "").Code)
		}
		batches := items[wire.Batch](r, "/batches")
		require.Len(t, batches, 2)
		for _, b := range batches {
			decode[wire.BatchDetail](t, r.ask(auth.ReadOnly, "GET", fmt.Sprintf("%s/batches/%d", wire.Prefix, b.ID), ""))
			decode[wire.Why](t, r.ask(auth.ReadOnly, "GET", fmt.Sprintf("%s/batches/%d/why", wire.Prefix, b.ID), ""))
		}
	})
}
