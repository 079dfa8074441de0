package action_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/sql/store"
)

func cold(p capri.Period, from, to string) action.ColdStartRequest {
	return action.ColdStartRequest{Periods: []capri.Period{p}, From: from, To: to}
}

func did(p *action.Planned) (out []string) {
	for _, it := range p.Items {
		out = append(out, fmt.Sprintf("%s %s %s", it.TaskName, it.BatchNo, it.Action))
	}
	return out
}

func TestColdStart_ranges(t *testing.T) { // the clock stands at 2026-11-20 09:30
	const file = `
tasks:
- {name: d, owner: alice, period: day, job: {command: x}}
- {name: h, owner: alice, period: hour, job: {command: x}}
- {name: c, owner: alice, cron: "0 0 0/6 * * ?", job: {command: x}}
- {name: v, owner: alice, group: bounded, period: week, job: {command: x}, valid: {from: "2026-11-09 00:00:00", to: "2026-11-16 00:00:00"}}
`
	byData := func(r action.ColdStartRequest) action.ColdStartRequest { r.ByData = true; return r }
	for _, tt := range []struct {
		sentence string
		r        action.ColdStartRequest
		want     []string
	}{
		{"both ends of a range on schedule time are included", cold(capri.Day, "2026-11-18 00:01", "2026-11-19 00:01"),
			[]string{"d 20261117 new", "d 20261118 new"}},
		{"a bare date as the end is all of it", cold(capri.Day, "2026-11-18", "2026-11-19"), []string{"d 20261117 new", "d 20261118 new"}},
		{"today as the end is today until now", cold(capri.Hour, "2026-11-20 08:00", "2026-11-20"), []string{"h 2026112007 new", "h 2026112008 new"}},
		{"on data intervals the end is excluded", byData(cold(capri.Day, "2026-11-18 00:00", "2026-11-19 00:00")), []string{"d 20261118 new"}},
		{"a cron task's fires", cold(capri.Cron, "2026-11-20", "2026-11-20 06:00"), []string{"c 20261120000000 new", "c 20261120060000 new"}},
		{"a cron task's data", byData(cold(capri.Cron, "2026-11-20 00:00", "2026-11-20 06:00")), []string{"c 20261120060000 new"}},
		{"marks outside of a task's validity are left out", cold(capri.Week, "2026-10-01", "2026-11-20"), []string{"v 2026W45 new"}},
		{"by data, marks still to come are left out", byData(cold(capri.Day, "2026-11-19", "2026-11-20")), []string{"d 20261119 new"}},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			w := actiontest.SQLite(t)
			w.Apply(file)
			tt.r.Preview = true
			items := w.ColdStart(tt.r)
			assert.Equal(t, tt.want, did(items))
			none, err := w.Store.Batches(w.Ctx, store.BatchFilter{})
			require.NoError(t, err)
			assert.Empty(t, none, "a preview writes nothing")
		})
	}
}

func TestColdStart_refuses(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(kinds)
	with := func(change func(*action.ColdStartRequest)) action.ColdStartRequest {
		r := cold(capri.Day, "2026-11-18", "2026-11-19")
		change(&r)
		return r
	}
	for _, tt := range []struct {
		sentence string
		r        action.ColdStartRequest
		err      error
	}{
		{"a range that runs backwards", cold(capri.Day, "2026-11-19", "2026-11-18"), capri.ErrInvalid},
		{"a range that begins in the future", cold(capri.Day, "2026-11-21", "2026-11-22"), capri.ErrInvalid},
		{"a range that ends in the future", cold(capri.Day, "2026-11-18", "2026-11-21"), capri.ErrInvalid},
		{"a time that is none", cold(capri.Day, "yesterday", "2026-11-18"), capri.ErrInvalid},
		{"a manual period", cold(capri.Manual, "2026-11-18", "2026-11-19"), capri.ErrInvalid},
		{"no period", cold(0, "2026-11-18", "2026-11-19"), capri.ErrInvalid},
		{"no period at all", with(func(r *action.ColdStartRequest) { r.Periods = nil }), capri.ErrInvalid},
		{"a manual period among others", with(func(r *action.ColdStartRequest) { r.Periods = append(r.Periods, capri.Manual) }), capri.ErrInvalid},
		{"a task of none of the periods", with(func(r *action.ColdStartRequest) {
			r.Periods, r.Tasks = append(r.Periods, capri.Month), []string{"hour"}
		}), capri.ErrInvalid},
		{"a task of another period", with(func(r *action.ColdStartRequest) { r.Tasks = []string{"hour"} }), capri.ErrInvalid},
		{"a task that is not there", with(func(r *action.ColdStartRequest) { r.Tasks = []string{"day", "nothing"} }), capri.ErrNotFound},
		{"a disabled task by name", with(func(r *action.ColdStartRequest) { r.Tasks = []string{"off"} }), capri.ErrConflict},
		{"a group that is not there", with(func(r *action.ColdStartRequest) { r.Group = "nothing" }), capri.ErrNotFound},
		{"an unknown only", with(func(r *action.ColdStartRequest) { r.Only = "some" }), capri.ErrInvalid},
		{"more batches than anybody can look through", cold(capri.Hour, "1990-01-01", "2026-11-19"), capri.ErrInvalid},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			_, err := w.Actions.ColdStart(w.Ctx, actiontest.Who, tt.r)
			assert.ErrorIs(t, err, tt.err)
		})
	}
}

func TestColdStart_makes_children_wait_for_the_parents_of_the_same_cold_start_alone(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(`
tasks:
- {name: a_child, owner: alice, period: day, job: {command: x}, parents: [{task: z_parent, from: -1, to: 0}]}
- {name: z_parent, owner: alice, period: day, job: {command: x}}
`)
		w.ColdStart(cold(capri.Day, "2026-11-18", "2026-11-19"))
		first, second := w.Latest("a_child", "20261117"), w.Latest("a_child", "20261118")
		w.Look()
		for id, want := range map[capri.BatchID]int{first.ID: 1, second.ID: 2} { // 20261116 is before the first
			rows, err := w.Store.ConditionsOf(w.Ctx, id)
			require.NoError(t, err)
			assert.Len(t, rows, want)
			assert.Equal(t, 1, w.Batch(id).Unmet)
		}
		assert.Contains(t, first.Message, "not waited for 20261116")
		w.Finish(w.Latest("z_parent", "20261117").ID, store.Succeeded)
		w.Look()
		assert.Zero(t, w.Batch(first.ID).Unmet)
		assert.Equal(t, 1, w.Batch(second.ID).Unmet)

		// Batches made later wait for what the cold start made.
		refs, err := w.Store.ParentRefs(w.Ctx)
		require.NoError(t, err)
		assert.Equal(t, w.Latest("z_parent", "20261117").ScheduleTime, refs[w.Latest("z_parent", "20261117").TaskID].FirstMark)
	})
}

func TestColdStart_leaves_unfinished_ones_alone_and_tells_admins(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(kinds)
		r := cold(capri.Day, "2026-11-19", "2026-11-20")
		r.Tasks = []string{"day"}
		items := w.ColdStart(r)
		assert.Equal(t, []string{"day 20261118 new", "day 20261119 new"}, did(items))
		w.Finish(w.Latest("day", "20261118").ID, store.Succeeded)

		again := w.ColdStart(r)
		assert.Equal(t, []string{"day 20261118 exists", "day 20261119 left_alone"}, did(again))
		alerts, err := w.Store.Alerts(w.Ctx, nil, 0, 10)
		require.NoError(t, err)
		require.Len(t, alerts, 2)
		assert.Equal(t, "cold_start_left_alone", alerts[1].Kind)
		assert.Contains(t, alerts[1].Text, "day 20261119")
		assert.Equal(t, "cold_start_done", alerts[0].Kind, "nothing was to be done, so it is done")
		assert.Contains(t, alerts[0].Text, "1 were there already, 1 had not finished and were left alone\nday 20261119: left alone")

		w.Finish(w.Latest("day", "20261119").ID, store.Failed)
		r.Only = "failed"
		failed := w.ColdStart(r)
		assert.Equal(t, []string{"day 20261118 exists", "day 20261119 new_run"}, did(failed))
		assert.Equal(t, 1, w.Latest("day", "20261119").RunNo)

		w.Finish(w.Latest("day", "20261119").ID, store.Succeeded)
		r.Only = "all"
		all := w.ColdStart(r)
		assert.Equal(t, []string{"day 20261118 new_run", "day 20261119 new_run"}, did(all))
		assert.Equal(t, 2, w.Latest("day", "20261119").RunNo)
	})
}

func TestColdStart_of_several_periods_puts_parents_before_children_across_them(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(`
tasks:
- {name: a_week, owner: alice, period: week, priority: 0, job: {command: x}, parents: [{task: b_day}]}
- {name: b_day, owner: alice, period: day, priority: 1, job: {command: x}, inputs: [{path: "/hour/${yyyyMMddHH}", unit: hour, from: 0, to: end}]}
- {name: c_hour, owner: alice, period: hour, priority: 9, job: {command: x}, outputs: [{path: "/hour/${yyyyMMddHH}"}]}
- {name: month, owner: alice, period: month, job: {command: x}}
`)
		r := action.ColdStartRequest{Periods: []capri.Period{capri.Week, capri.Day, capri.Hour, capri.Day, capri.Cron}, From: "2026-11-09", To: "2026-11-15", ByData: true, Preview: true}
		p := w.ColdStart(r)
		assert.Equal(t, "week, day, hour, cron 2026-11-09 to 2026-11-15", p.Target)
		at, n := map[string]int{}, map[string]int{}
		for i, it := range p.Items {
			at[it.TaskName+" "+string(it.BatchNo)] = i
			n[it.TaskName]++
		}
		assert.Equal(t, map[string]int{"c_hour": 7 * 24, "b_day": 7, "a_week": 1}, n)
		for _, it := range p.Items {
			switch it.TaskName {
			case "c_hour":
				assert.Less(t, at["c_hour "+string(it.BatchNo)], at["b_day "+string(it.BatchNo[:8])])
			case "b_day":
				assert.Less(t, at["b_day "+string(it.BatchNo)], at["a_week 2026W46"])
			}
		}
		assert.Equal(t, 3, p.Estimate.ChainBatches, "an hour, its day, its week")

		r.Preview = false
		w.ColdStart(r)
		assert.Equal(t, 1, w.Latest("a_week", "2026W46").Unmet)
		assert.Equal(t, 24, w.Latest("b_day", "20261110").Unmet)
		r.Periods, r.From, r.To = []capri.Period{capri.Hour, capri.Day}, "2026-11-16", "2026-11-16"
		r.Tasks = []string{"b_day", "c_hour"}
		assert.Len(t, w.ColdStart(r).Items, 25, "by name as well")
	})
}

func TestColdStart_of_all_makes_children_wait_for_the_new_runs_of_their_parents(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(`
tasks:
- {name: a_child, owner: alice, period: day, job: {command: x}, parents: [{task: z_parent}]}
- {name: z_parent, owner: alice, period: day, job: {command: x}}
`)
		r := cold(capri.Day, "2026-11-20", "2026-11-20")
		w.ColdStart(r)
		w.Look()
		for _, task := range []string{"z_parent", "a_child"} {
			w.Finish(w.Latest(task, "20261119").ID, store.Succeeded)
			w.Look()
		}
		r.Only = "all"
		w.ColdStart(r)
		w.Look()
		child := w.Latest("a_child", "20261119")
		assert.Equal(t, 1, child.RunNo)
		assert.Equal(t, 1, child.Unmet, "it waits for the parent's new run, not for the success of the old one")
	})
}

func TestColdStart_of_many_is_quick(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(kinds)
	begin := time.Now()
	items := w.ColdStart(cold(capri.Hour, "2026-10-01", "2026-11-20"))
	assert.Len(t, items.Items, 50*24+10)
	assert.Less(t, time.Since(begin), time.Minute)
}
