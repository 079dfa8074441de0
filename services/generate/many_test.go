package generate_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
)

func TestFailures_of_more_than_ten_tasks_at_a_mark_are_severe(t *testing.T) {
	for _, failing := range []int{10, 11} {
		each(t, func(w *world) {
			w.Clock.Set(at("2026-11-20 12:00:00"))
			for _, task := range w.Tasks(w.t, failing, func(int, *capri.Spec) {}) {
				w.poison(task, "{")
			}
			w.turn()
			w.Clock.Set(at("2026-11-21 00:01:00"))
			w.turn()
			require.Len(w.t, w.alerts("generate_failed"), failing, "each is told to its task's people")
			if failing == 10 {
				require.Empty(w.t, w.alerts("generate_many_failed"))
				return
			}
			many := w.alerts("generate_many_failed")
			require.Len(w.t, many, 1)
			require.Equal(w.t, []any{capri.Severe, capri.TaskID(0), "11 tasks failed at the day mark 20261120"}, []any{many[0].Level, many[0].Task, many[0].Title})
		})
	}
}

func TestFires_of_more_than_ten_tasks_that_fail_at_once_are_severe(t *testing.T) {
	for _, failing := range []int{10, 11} {
		each(t, func(w *world) {
			w.Clock.Set(at("2026-11-20 09:31:00"))
			tasks := w.Tasks(w.t, failing, func(i int, s *capri.Spec) { s.Name, s.Period, s.Cron = fmt.Sprint("c", i), capri.Cron, "0 */5 * * * ?" })
			w.turn() // 09:35 and 09:40 are in the due list
			for _, task := range tasks {
				w.poison(task, "{")
			}
			w.Clock.Set(at("2026-11-20 09:40:00"))
			w.turn()
			require.Len(w.t, w.alerts("generate_failed"), 3*failing, "two fires of each, and that it has no more")
			if failing == 10 {
				require.Empty(w.t, w.alerts("generate_many_failed"), "two fires of a task are one task")
				return
			}
			many := w.alerts("generate_many_failed")
			require.Len(w.t, many, 1)
			require.Equal(w.t, []any{capri.Severe, capri.TaskID(0), "11 tasks failed at their fires from 2026-11-20 09:35:00 on"}, []any{many[0].Level, many[0].Task, many[0].Title})
		})
	}
}
