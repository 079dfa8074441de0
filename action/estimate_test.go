package action_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
)

// A path of a, read by b and c, and d waits for both; 10, 20, 60 minutes, and nobody knows of d.
const costly = `
tasks:
- {name: a, owner: alice, period: day, job: {command: x}, outputs: [{path: "/a/${yyyyMMdd}"}]}
- {name: b, owner: alice, period: day, job: {command: x}, inputs: [{path: "/a/${yyyyMMdd}"}]}
- {name: c, owner: alice, period: day, job: {command: x}, inputs: [{path: "/a/${yyyyMMdd}"}]}
- {name: d, owner: alice, period: day, job: {command: x}, parents: [{task: b}, {task: c}]}
- {name: e, owner: alice, period: day, job: {command: x}, worker: {pool: big, slots: 9}, parents: [{task: d}]}
`

// exec changes a table behind everybody's back.
func exec(t *testing.T, w *actiontest.World, text string) {
	t.Helper()
	_, err := w.Store.DB().ExecContext(w.Ctx, text)
	require.NoError(t, err)
}

func estimated(t *testing.T, w *actiontest.World, id capri.CampaignID) (capri.Campaign, capri.CampaignEstimate) {
	t.Helper()
	c, err := w.Store.Campaign(w.Ctx, id)
	require.NoError(t, err)
	e, err := w.Store.CampaignEstimate(w.Ctx, id)
	require.NoError(t, err)
	return c, *e
}

func TestAPreview_says_what_it_takes_also_after_something_was_taken_out(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(costly)
		exec(t, w, "UPDATE task SET expected_minutes = CASE name WHEN 'a' THEN 10 WHEN 'b' THEN 20 WHEN 'c' THEN 60 WHEN 'e' THEN 5 ELSE 0 END")
		for _, n := range []capri.Node{{Name: "n1", Pool: "default", Slots: 2}, {Name: "n2", Pool: "default", Slots: 1}, {Name: "n3", Pool: "big", Slots: 8}, {Name: "away", Pool: "big", Slots: 100}} {
			n.BootID, n.CheckInterval = "boot", 5
			require.NoError(t, w.Store.RegisterNode(w.Ctx, n, "dir-"+n.Name))
		}
		require.NoError(t, w.Actions.DrainNode(w.Ctx, actiontest.Who, "away", "it is full"))
		w.ColdStart(cold(capri.Day, "2026-11-20", "2026-11-20"))
		p := w.Rerun(rerun("a", "2026-11-20", "2026-11-20", func(r *action.RerunRequest) { r.Cascade, r.Preview = "both", true }))
		c, e := estimated(t, w, p.ID)
		assert.Equal(t, []int64{95, 1, 5}, []int64{c.Minutes, int64(c.Unknown), int64(c.Items)})
		assert.Equal(t, p.Campaign, c)
		assert.Equal(t, *p.Estimate, e, "what is stored is what was shown")
		assert.Equal(t, capri.CampaignEstimate{Batches: 5, ChainMinutes: 75, ChainBatches: 4, Chain: []string{"a 20261119", "c 20261119", "d 20261119", "e 20261119"}, EndsMinutes: 70, Slots: 11, NoRoom: 1, Load: e.Load}, e)
		require.Len(t, e.Load, 35)
		assert.Equal(t, []capri.CampaignLoad{{From: 0, Minutes: 2, Slots: 1}, {From: 10, Minutes: 2, Slots: 2}, {From: 30, Minutes: 2, Slots: 1}}, []capri.CampaignLoad{e.Load[0], e.Load[5], e.Load[15]})

		_, err := w.Actions.LimitCampaign(w.Ctx, actiontest.Who, p.ID, 1)
		require.NoError(t, err)
		_, e = estimated(t, w, p.ID)
		assert.Equal(t, []int{90, 1}, []int{e.EndsMinutes, e.Limit}, "one after the other")

		_, err = w.Actions.DropItems(w.Ctx, actiontest.Who, p.ID, []string{"c:20261119", "e"})
		require.NoError(t, err)
		c, e = estimated(t, w, p.ID)
		assert.Equal(t, []int64{30, 1, 5}, []int64{c.Minutes, int64(c.Unknown), int64(c.Items)}, "what is taken out costs nothing")
		assert.Equal(t, capri.CampaignEstimate{Batches: 3, ChainMinutes: 30, ChainBatches: 3, Chain: []string{"a 20261119", "b 20261119", "d 20261119"}, EndsMinutes: 30, Limit: 1, Slots: 3, Load: e.Load}, e)

		_, err = w.Actions.DropItems(w.Ctx, actiontest.Who, p.ID, []string{"b", "nothing"})
		require.ErrorIs(t, err, capri.ErrNotFound)
		_, same := estimated(t, w, p.ID)
		assert.Equal(t, e, same, "nothing half done")

		_, err = w.Actions.DropItems(w.Ctx, actiontest.Who, p.ID, []string{"d"})
		require.NoError(t, err)
		_, err = w.Actions.RunCampaign(w.Ctx, actiontest.Who, p.ID, action.Pace{Order: "newest"})
		require.NoError(t, err)
		c, e = estimated(t, w, p.ID)
		assert.Equal(t, []int64{30, 0}, []int64{c.Minutes, int64(c.Unknown)})
		assert.Equal(t, []int{2, 0}, []int{e.Batches, e.Limit}, "by the pace that it runs at")
	})
}

func TestAPreview_of_what_stands_in_the_way_counts_what_runs_alone(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(costly)
	exec(t, w, "UPDATE task SET expected_minutes = 10")
	w.ColdStart(cold(capri.Day, "2026-11-20", "2026-11-20"))
	exec(t, w, "UPDATE task_work SET unmet = 0")
	w.Start(w.Latest("b", "20261119").ID)
	p := w.Rerun(rerun("a", "2026-11-20", "2026-11-20", func(r *action.RerunRequest) { r.Cascade, r.Preview = "both", true }))
	c, e := estimated(t, w, p.ID)
	assert.Equal(t, int64(40), c.Minutes)
	assert.Equal(t, []int{4, 4, 1, 0}, []int{e.Batches, e.ChainBatches, e.NoRoom, e.Stuck}, "b runs already, and d does not wait for another of it")
	assert.Equal(t, 30, e.EndsMinutes)
}

func TestACascade_names_the_tasks_of_which_nobody_knows_whether_it_would_reach_them(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(costly)
	exec(t, w, "UPDATE task_history SET definition = '{' WHERE task_id IN (SELECT id FROM task WHERE name IN ('c', 'd'))")
	exec(t, w, "UPDATE task SET definition = '{' WHERE name IN ('c', 'd')")
	exec(t, w, "UPDATE task SET enabled = 0 WHERE name = 'd'")
	p := w.Rerun(rerun("a", "2026-11-20", "2026-11-20", func(r *action.RerunRequest) { r.Cascade, r.Preview = "both", true }))
	var odd []action.PlannedItem
	for _, it := range p.Items {
		if it.Action == capri.ItemRefused {
			odd = append(odd, it)
		}
	}
	require.Len(t, odd, 1, "what is disabled would not run in any case")
	assert.Equal(t, []string{"c", "nobody knows whether it would be reached"}, []string{odd[0].TaskName, odd[0].Why})
	assert.Contains(t, odd[0].Note, "task c")
	_, err := w.Actions.RunCampaign(w.Ctx, actiontest.Who, p.ID, action.Pace{})
	require.NoError(t, err, "it keeps nothing else from running")
	p = w.Rerun(rerun("a", "2026-11-20", "2026-11-20", func(r *action.RerunRequest) { r.Preview = true }))
	assert.Len(t, p.Items, 1, "without a cascade nobody asks")
}
