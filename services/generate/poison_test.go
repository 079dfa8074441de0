package generate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/store"
)

// What people have written into task.definition by hand, or might have.
var poisons = map[string]func(s capri.Spec, text string) string{
	"no JSON": func(capri.Spec, string) string { return "{name: x" },
	"nothing": func(capri.Spec, string) string { return "" },
	"null":    func(capri.Spec, string) string { return "null" },
	"a list":  func(capri.Spec, string) string { return "[1]" },
	"text for a number": func(_ capri.Spec, text string) string {
		return strings.Replace(text, `"priority":5`, `"priority":"high"`, 1)
	},
	"nulls for all":  func(s capri.Spec, _ string) string { return `{"name":null,"period":null,"job":null,"inputs":null}` },
	"another task's": func(s capri.Spec, text string) string { return strings.Replace(text, s.Name, "somebody_else", 1) },
	"another period": func(_ capri.Spec, text string) string { return strings.Replace(text, `"period":"`, `"period":"x`, 1) },
	"manual":         func(s capri.Spec, _ string) string { s.Period, s.Cron = capri.Manual, ""; return encode(s) },
	"an impossible template": func(s capri.Spec, _ string) string {
		s.Outputs = []capri.Output{{Path: "/out/${noSuchTime}"}}
		return encode(s)
	},
	"an unknown parent": func(s capri.Spec, _ string) string {
		s.Parents = []capri.Parent{{Task: "x", TaskID: 4711}}
		return encode(s)
	},
}

func encode(s capri.Spec) string {
	text, err := store.EncodeSpec(&s)
	if err != nil {
		panic(err)
	}
	return text
}

// poison writes into the newest version of a task as somebody with a SQL prompt does.
func (w *world) poison(task *capri.Task, definition string) {
	w.t.Helper()
	w.exec("UPDATE task SET definition = ? WHERE id = ?", definition, int64(task.ID))
	w.exec("UPDATE task_history SET definition = ? WHERE task_id = ? AND version = ?", definition, int64(task.ID), task.Version)
}

func TestAPoisonedDefinition_costs_its_own_task_its_batch_and_nobody_else(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2027-02-28 23:30:00")) // a Sunday
		periods := []capri.Period{capri.Hour, capri.Day, capri.Week, capri.Month}
		var good, bad []*capri.Task
		for _, p := range periods {
			good = append(good, w.Task(t, func(s *capri.Spec) { s.Period = p }))
			for what, spoil := range poisons {
				task := w.Task(t, func(s *capri.Spec) { s.Name, s.Period = what+" "+p.String(), p })
				w.poison(task, spoil(task.Spec, encode(task.Spec)))
				bad = append(bad, task)
			}
			good = append(good, w.Task(t, func(s *capri.Spec) { s.Period = p }))
		}
		w.turn()
		w.Clock.Set(at("2027-03-01 00:05:00")) // a month, a week, a day and an hour have ended
		w.turn()
		told := map[capri.TaskID]string{}
		for _, a := range w.alerts("generate_failed") {
			told[a.Task] = a.Title
		}
		for _, task := range good {
			require.Len(t, w.nos(task), 1)
		}
		for _, task := range bad {
			require.Empty(t, w.nos(task), task.Name)
			require.Contains(t, told[task.ID], "Task "+task.Name+": ", "its owner is told")
		}
		for _, p := range periods {
			marks, err := w.Store.Marks(w.ctx, p, 1)
			require.NoError(t, err)
			require.True(t, marks[0].Complete)
			require.Equal(t, len(poisons), marks[0].Failed)
		}
		for _, task := range bad { // its file is applied again
			w.Task(t, func(s *capri.Spec) { s.Name, s.Period = task.Name, task.Period })
		}
		w.Clock.Advance(10 * time.Minute)
		w.turn()
		for _, task := range bad {
			require.Len(t, w.nos(task), 1, "%s is made good", task.Name)
		}
	})
}

func TestAPoisonedCronTask_costs_nobody_else_a_fire(t *testing.T) {
	all := poisonsWith(map[string]func(s capri.Spec, text string) string{
		"an expression that cannot be read": func(s capri.Spec, _ string) string { s.Cron = "0 */5 * * *"; return encode(s) },
		"a validity that is no time":        func(s capri.Spec, _ string) string { s.Valid.From = "soon"; return encode(s) },
	})
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 09:31:00"))
		cron := func(s *capri.Spec) { s.Period, s.Cron = capri.Cron, "0 */5 * * * ?" }
		good := []*capri.Task{w.Task(t, cron)}
		bad := map[capri.TaskID]string{}
		for what, spoil := range all {
			task := w.Task(t, cron)
			w.poison(task, spoil(task.Spec, encode(task.Spec)))
			bad[task.ID] = what
		}
		good = append(good, w.Task(t, cron))
		w.turn()
		w.Clock.Set(at("2026-11-20 09:36:00"))
		w.turn()
		for _, task := range good {
			require.Equal(t, []string{"20261120093500"}, w.nos(task))
		}
		for _, a := range w.alerts("generate_failed") {
			require.Contains(t, bad, a.Task)
			delete(bad, a.Task)
		}
		require.Empty(t, bad, "the owners of these were not told")
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{})
		require.NoError(t, err)
		require.Len(t, rows, len(good))
	})
}

func poisonsWith(more map[string]func(capri.Spec, string) string) map[string]func(capri.Spec, string) string {
	for what, fn := range poisons {
		more[what] = fn
	}
	return more
}

func TestAnExpressionThatBreaksWhileFiresAreDue_fails_those_fires_alone(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 09:31:00"))
		tasks := w.Tasks(t, 2, func(_ int, s *capri.Spec) { s.Period, s.Cron = capri.Cron, "0 */5 * * * ?" })
		w.turn() // 09:35 and 09:40 are in the due list
		w.poison(tasks[0], "{")
		w.Clock.Set(at("2026-11-20 09:40:00"))
		w.turn()
		require.Empty(t, w.nos(tasks[0]))
		require.Equal(t, []string{"20261120093500", "20261120094000"}, w.nos(tasks[1]))
		due, err := w.Store.DueFires(w.ctx, w.Clock.Now(), 10)
		require.NoError(t, err)
		require.Empty(t, due, "they are kept as failures, and do not stand in the way")
	})
}

// A newer Capri may have written it during an upgrade.
func TestAnUnknownFieldOfADefinition_is_left_out(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		task := w.Task(t, nil)
		w.poison(task, strings.Replace(encode(task.Spec), "{", `{"from_the_future":{"a":1},`, 1))
		w.turn()
		w.Clock.Set(at("2026-11-21 00:01:00"))
		w.turn()
		require.Equal(t, []string{"20261120"}, w.nos(task))
	})
}

func TestAParentWhoseExpressionIsPoisoned_fails_its_children_alone(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		parent := w.Task(t, func(s *capri.Spec) { s.Name, s.Period, s.Cron = "p", capri.Cron, "0 0 * * * ?" })
		child := w.Task(t, func(s *capri.Spec) { s.Parents = []capri.Parent{{Task: "p", Policy: capri.All}} })
		other := w.Task(t, nil)
		w.exec("UPDATE task SET cron_expression = 'never' WHERE id = ?", int64(parent.ID))
		w.turn()
		w.Clock.Set(at("2026-11-21 00:01:00"))
		w.turn()
		require.Empty(t, w.nos(child))
		require.NotEmpty(t, w.nos(other))
		require.Contains(t, w.alerts("generate_failed")[0].Text, "task p")
	})
}
