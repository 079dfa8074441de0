package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/store"
)

func TestUsage_of_running_attempts_is_written_at_once_and_what_is_too_much_told_once(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(w.t, nil)
		w.register()
		var ids []capri.BatchID
		used := map[capri.Attempt]store.Usage{}
		for i, no := range []string{"20261101", "20261102", "20261103"} {
			b := w.batch(task, no, capri.Conditions{})
			w.insert(b)
			used[w.start(b.ID)] = store.Usage{MemoryMB: 100 * (i + 1), Processes: 4 - i, AskedMB: 200}
			ids = append(ids, b.ID)
		}
		stale := w.batch(task, "20261104", capri.Conditions{})
		w.insert(stale)
		old := w.start(stale.ID)
		old.Number++ // an attempt that is not the run's
		used[old] = store.Usage{MemoryMB: 7000, Processes: 70, AskedMB: 1}
		for range 2 {
			require.NoError(w.t, w.Store.ReportUsage(w.ctx, node, used))
		}
		require.NoError(w.t, w.Store.ReportUsage(w.ctx, "another", map[capri.Attempt]store.Usage{{Batch: ids[0], Number: 1}: {MemoryMB: 9000, AskedMB: 1}}))
		for i, id := range ids {
			b := w.get(id)
			require.Equal(w.t, 100*(i+1), b.ActualMemoryMB)
			require.Equal(w.t, 4-i, b.ActualProcesses)
		}
		require.Zero(w.t, w.get(stale.ID).ActualMemoryMB)
		require.Equal(w.t, 1, w.alerts("over_memory"), "the third, and once")
	})
}

func TestAdmins_are_told_once_an_hour_of_a_node_whose_jobs_have_too_much_memory(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(w.t, nil)
		w.register()
		over := func(no string) {
			b := w.batch(task, no, capri.Conditions{})
			w.insert(b)
			require.NoError(w.t, w.Store.ReportUsage(w.ctx, node, map[capri.Attempt]store.Usage{w.start(b.ID): {MemoryMB: 300, AskedMB: 200}}))
		}
		over("20261101")
		over("20261102")
		require.Equal(w.t, 2, w.alerts("over_memory"), "each is told to its task's people")
		require.Equal(w.t, 1, w.alerts("node_over_memory"))
		all, err := w.Store.Alerts(w.ctx, nil, 0, 10)
		require.NoError(w.t, err)
		all = slices.DeleteFunc(all, func(a store.AlertRow) bool { return a.Kind != "node_over_memory" })
		require.Equal(w.t, []any{capri.Severe, capri.TaskID(0), capri.BatchID(0)}, []any{all[0].Level, all[0].Task, all[0].Batch}, "no task's rules hold for it")
		require.Contains(w.t, all[0].Title, "node "+node)
		require.Contains(w.t, all[0].Text, "300 MB in memory and asks for 200 MB")
		w.Clock.Advance(time.Hour)
		over("20261103")
		require.Equal(w.t, 2, w.alerts("node_over_memory"), "the next hour is another")
	})
}

func TestAnEnd_writes_each_batchs_own_usage_and_tells_of_too_much(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(w.t, nil)
		w.register()
		var results []store.Result
		for i, no := range []string{"20261101", "20261102", "20261103", "20261104"} {
			b := w.batch(task, no, capri.Conditions{})
			w.insert(b)
			results = append(results, store.Result{Attempt: w.start(b.ID), Outcome: store.Succeeded, Usage: store.Usage{MemoryMB: 50 * i, AskedMB: 100}})
		}
		n, err := w.Store.FinishAttempts(w.ctx, node, results)
		require.NoError(w.t, err)
		require.Equal(w.t, 4, n)
		for i, r := range results {
			b := w.get(r.Batch)
			require.Equal(w.t, 50*i, b.ActualMemoryMB)
			require.Equal(w.t, capri.Success, b.FinishState)
		}
		require.Equal(w.t, 1, w.alerts("over_memory"))
	})
}
