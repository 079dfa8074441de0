package action_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/definition"
	"capri/sql/store"
	"capri/wake"
)

const two = `
tasks:
- {name: up, owner: alice, group: g, period: day, job: {command: "true"}}
- {name: down, owner: alice, group: g, period: day, job: {command: "true"}, parents: [{task: up}]}
`

func TestApply_creates_changes_and_leaves_alone(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		first := w.Apply(two)
		assert.Equal(t, []string{"down", "up"}, first.Created)
		assert.Contains(t, w.Wakes.Take(), wake.Generate)
		up, err := w.Store.TaskByName(w.Ctx, "up")
		require.NoError(t, err)
		down, err := w.Store.TaskByName(w.Ctx, "down")
		require.NoError(t, err)
		assert.Equal(t, up.ID, down.Parents[0].TaskID)
		assert.Equal(t, actiontest.Who, down.Submitter)

		again := w.Apply(two)
		assert.Equal(t, []string{"down", "up"}, again.Unchanged)
		assert.Empty(t, again.Changed)

		changed := w.Apply(strings.Replace(two, `"true"`, `"false"`, 1))
		require.Len(t, changed.Changed, 1)
		assert.Equal(t, []definition.Change{{Field: "job.command", Old: "true", New: "false"}}, changed.Changed[0].Changes)
		up, err = w.Store.TaskByName(w.Ctx, "up")
		require.NoError(t, err)
		assert.Equal(t, 2, up.Version)

		rows, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 10})
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(rows), 2)
		assert.Equal(t, "task_apply", rows[0].Action)
		assert.Equal(t, "up", rows[0].Target)
		assert.Equal(t, actiontest.Who, rows[0].Who)
	})
}

func TestApply_is_all_or_nothing_and_names_every_mistake(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		_, err := w.TryApply(`
tasks:
- {name: good, owner: alice, period: day, job: {command: "true"}}
- {name: bad, owner: nobody_knows, period: day, job: {command: ""}}
- {name: worse, owner: alice, cron: "0 0 25 * * ?", job: {command: x}, parents: [{task: nowhere}]}
`)
		require.ErrorIs(t, err, capri.ErrInvalid)
		for _, part := range []string{"nobody_knows", "job.command", "cron", "nowhere"} {
			assert.ErrorContains(t, err, part)
		}
		_, err = w.Store.TaskByName(w.Ctx, "good")
		assert.ErrorIs(t, err, capri.ErrNotFound)
	})
}

func TestApply_dry_run_changes_nothing(t *testing.T) {
	w := actiontest.SQLite(t)
	out, err := w.Actions.Apply(w.Ctx, actiontest.Who, action.ApplyRequest{DryRun: true, Sources: []definition.Source{{Name: "x", Data: []byte(two)}}})
	require.NoError(t, err)
	assert.Len(t, out.Created, 2)
	_, err = w.Store.TaskByName(w.Ctx, "up")
	assert.ErrorIs(t, err, capri.ErrNotFound)
}

func TestApply_two_edits_at_once_cannot_close_a_cycle(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(`
tasks:
- {name: a, owner: alice, period: day, job: {command: x}}
- {name: b, owner: alice, period: day, job: {command: x}}
`)
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
			wg.Go(func() {
				_, errs[i] = w.TryApply(fmt.Sprintf("tasks: [{name: %s, owner: alice, period: day, job: {command: x}, parents: [{task: %s}]}]", pair[0], pair[1]))
			})
		}
		wg.Wait()
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
				assert.ErrorIs(t, err, capri.ErrInvalid)
			}
		}
		assert.Equal(t, 1, failed, "exactly one of the two closes the cycle: %v", errs)
	})
}

func TestApply_prune_deletes_what_was_confirmed_and_nothing_else(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(two + `
- {name: other, owner: alice, group: elsewhere, period: day, job: {command: x}}
- {name: alone, owner: alice, period: day, job: {command: x}}
`)
		only := func(confirm ...string) (action.Applied, error) {
			return w.Actions.Apply(w.Ctx, actiontest.Who, action.ApplyRequest{Prune: true, Confirm: confirm,
				Sources: []definition.Source{{Name: "x", Data: []byte(`tasks: [{name: up, owner: alice, group: g, period: day, job: {command: "true"}}]`)}}})
		}
		_, err := only()
		var prune *action.PruneError
		require.ErrorAs(t, err, &prune)
		assert.ErrorIs(t, err, capri.ErrConflict)
		assert.Equal(t, []string{"down"}, prune.Names)
		_, err = only("down", "other")
		require.ErrorAs(t, err, &prune, "what was confirmed is not what would be deleted")

		out, err := only("down")
		require.NoError(t, err)
		assert.Equal(t, []string{"down"}, out.Deleted)
		for name, there := range map[string]bool{"up": true, "down": false, "other": true, "alone": true} {
			_, err := w.Store.TaskByName(w.Ctx, name)
			assert.Equal(t, there, err == nil, name)
		}
		again := w.Apply(two) // the deleted name comes back with its id
		assert.Equal(t, []string{"down"}, again.Created)
	})
}

func TestApply_prune_keeps_a_task_that_others_wait_for(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(two + "\n- {name: outside, owner: alice, group: h, period: day, job: {command: x}, parents: [{task: down}]}\n")
	_, err := w.Actions.Apply(w.Ctx, actiontest.Who, action.ApplyRequest{Prune: true, Confirm: []string{"down"},
		Sources: []definition.Source{{Name: "x", Data: []byte(`tasks: [{name: up, owner: alice, group: g, period: day, job: {command: "true"}}]`)}}})
	require.ErrorIs(t, err, capri.ErrConflict)
	assert.ErrorContains(t, err, "down (of outside)")
}

func TestApply_gives_waiting_batches_the_conditions_of_the_edit(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(two)
		b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "up"})
		require.NoError(t, err)
		assert.Zero(t, b.Unmet)
		w.Apply(strings.Replace(two, "{name: up,", "{name: up, inputs: [{path: \"/in/${yyyyMMdd}\"}], third_party: [{code: closed}],", 1))
		after := w.Batch(b.ID)
		assert.Equal(t, 2, after.Unmet)
		assert.Equal(t, 1, after.TaskVersion, "it runs by the snapshot it was made with")
		conditions, err := w.Store.ConditionsOf(w.Ctx, b.ID)
		require.NoError(t, err)
		require.Len(t, conditions, 2)
		assert.Equal(t, "/in/20261119", conditions[0].Path)

		w.Apply(two)
		assert.Zero(t, w.Batch(b.ID).Unmet, "and back again")
	})
}

func TestEnable_and_disable_make_versions_once(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(two)
		for _, want := range []int{2, 2} { // the second changes nothing
			task, err := w.Actions.EnableTask(w.Ctx, actiontest.Who, "up", false, "")
			require.NoError(t, err)
			assert.Equal(t, want, task.Version)
			assert.False(t, task.Enabled)
		}
		task, err := w.Actions.EnableTask(w.Ctx, actiontest.Who, "up", true, "")
		require.NoError(t, err)
		assert.Equal(t, 3, task.Version)
		_, err = w.Actions.EnableTask(w.Ctx, actiontest.Who, "nothing", true, "")
		assert.ErrorIs(t, err, capri.ErrNotFound)
	})
}

func TestDelete_refuses_a_parent_and_takes_a_leaf(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(two)
		err := w.Actions.DeleteTask(w.Ctx, actiontest.Who, "up")
		require.ErrorIs(t, err, capri.ErrConflict)
		assert.ErrorContains(t, err, "down")
		require.NoError(t, w.Actions.DeleteTask(w.Ctx, actiontest.Who, "down"))
		require.NoError(t, w.Actions.DeleteTask(w.Ctx, actiontest.Who, "up"))
		assert.ErrorIs(t, w.Actions.DeleteTask(w.Ctx, actiontest.Who, "up"), capri.ErrNotFound)
	})
}

func TestExport_applies_back_to_no_change(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(two)
	data, err := w.Actions.Export(w.Ctx, nil, "g", nil)
	require.NoError(t, err)
	assert.Len(t, w.Apply(string(data)).Unchanged, 2)
	_, err = w.Actions.Export(w.Ctx, nil, "", []string{"up", "nothing"})
	assert.ErrorIs(t, err, capri.ErrNotFound)
}

func TestEditing_a_cron_expression_replaces_what_is_due(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		const cron = `tasks: [{name: tick, owner: alice, cron: "0 %s * * * ?", job: {command: "%s"}}]`
		w.Apply(fmt.Sprintf(cron, "0/5", "x"))
		due := func() (capri.Instant, bool) {
			tasks, err := w.Store.CronToPlan(w.Ctx, w.Clock.Now()+1, 10)
			require.NoError(t, err)
			if len(tasks) == 0 {
				return 0, false
			}
			return tasks[0].PlannedUntil, true
		}
		made := w.Clock.Now()
		w.Clock.Advance(time.Hour)
		w.Apply(fmt.Sprintf(cron, "0/5", "y"))
		until, planned := due()
		assert.True(t, planned)
		assert.Equal(t, made, until, "an edit of something else before anybody planned it loses no fire")
		w.Clock.Advance(1)
		w.Apply(fmt.Sprintf(cron, "0/7", "x"))
		until, planned = due()
		assert.True(t, planned)
		assert.Equal(t, w.Clock.Now(), until, "fires from now on are planned anew")
	})
}
