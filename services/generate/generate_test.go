package generate_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/services"
	"capri/services/generate"
	"capri/sql/sqltest"
	"capri/sql/store"
)

type world struct {
	*sqltest.DB
	t        *testing.T
	ctx      context.Context
	calendar calendar.Calendar
	lease    capri.Lease
	service  *generate.Service
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) { fn(newWorld(t, db, time.UTC)) })
}

func newWorld(t *testing.T, db *sqltest.DB, zone *time.Location) *world {
	w := &world{DB: db, t: t, ctx: context.Background(), calendar: calendar.New(zone), lease: db.Lease(t, "generate")}
	w.service = generate.New(db.Store, w.calendar, slog.New(slog.DiscardHandler))
	return w
}

// turn takes turns until nothing is left to do at this time.
func (w *world) turn() services.Result {
	w.t.Helper()
	for {
		res, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: w.lease})
		require.NoError(w.t, err)
		if !res.Again {
			return res
		}
	}
}

// nos lists the batch_nos of a task, oldest first.
func (w *world) nos(task *capri.Task) []string {
	w.t.Helper()
	rows, err := w.Store.Batches(w.ctx, store.BatchFilter{Task: task.ID, AllRuns: true, Limit: 100_000})
	require.NoError(w.t, err)
	var out []string
	for i := len(rows) - 1; i >= 0; i-- {
		require.Zero(w.t, rows[i].RunNo)
		out = append(out, string(rows[i].BatchNo))
	}
	return out
}

func at(text string) capri.Instant {
	t, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		panic(err)
	}
	return capri.InstantOf(t)
}

func TestAnEmptyLog_starts_at_the_next_mark(t *testing.T) {
	each(t, func(w *world) {
		hour, day := w.Task(t, func(s *capri.Spec) { s.Period = capri.Hour }), w.Task(t, nil)
		w.Clock.Set(at("2026-11-20 09:30:00"))
		res := w.turn()
		require.Equal(t, at("2026-11-20 10:01:00"), res.Next, "it asks to run at the next mark")
		require.Empty(t, w.nos(hour))
		w.Clock.Set(at("2026-11-20 10:01:00"))
		w.turn()
		require.Equal(t, []string{"2026112009"}, w.nos(hour))
		w.turn()
		require.Len(t, w.nos(hour), 1, "a mark is made once")
		w.Clock.Set(at("2026-11-21 00:01:00"))
		w.turn()
		require.Equal(t, []string{"20261120"}, w.nos(day))
		require.Len(t, w.nos(hour), 15)
	})
}

func TestIt_heals_after_a_week_down_over_a_week_and_month_end(t *testing.T) {
	each(t, func(w *world) {
		var tasks []*capri.Task
		for _, p := range []capri.Period{capri.Hour, capri.Day, capri.Week, capri.Month} {
			tasks = append(tasks, w.Task(t, func(s *capri.Spec) { s.Period = p }))
		}
		w.Clock.Set(at("2026-11-27 12:00:00"))
		w.turn()
		w.Clock.Set(at("2026-12-04 12:00:00"))
		w.turn()
		require.Len(t, w.nos(tasks[0]), 168)
		require.Len(t, w.nos(tasks[1]), 7)
		require.Equal(t, []string{"2026W48"}, w.nos(tasks[2]))
		require.Equal(t, []string{"202611"}, w.nos(tasks[3]))
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{Task: tasks[1].ID})
		require.NoError(t, err)
		require.Equal(t, capri.OriginCatchUp, rows[0].Origin)
		marks, err := w.Store.Marks(w.ctx, capri.Hour, 200)
		require.NoError(t, err)
		for _, m := range marks[:168] {
			require.True(t, m.Complete)
			require.Equal(t, 1, m.Expected)
			require.Equal(t, m.Expected, m.Made+m.Present+m.Skipped+m.Failed)
		}
	})
}

func TestWhoTakesPart_is_who_was_enabled_and_valid_at_the_mark_and_still_is(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		always := w.Task(t, nil)
		set := func(name string, enabled bool) *capri.Task {
			return w.Task(t, func(s *capri.Spec) { s.Name, s.Enabled = name, enabled })
		}
		set("disabled_later", true)
		set("enabled_later", false)
		off := set("off_for_a_night", true)
		w.Task(t, func(s *capri.Spec) { s.Name, s.Valid.From = "not_valid_yet", "2026-11-22 00:00:00" })
		ended := w.Task(t, func(s *capri.Spec) { s.Name, s.Valid.To = "valid_to_the_21st", "2026-11-22 00:00:00" })
		w.turn()
		w.Clock.Set(at("2026-11-20 23:00:00"))
		set("off_for_a_night", false)
		w.Clock.Set(at("2026-11-21 06:00:00"))
		set("off_for_a_night", true)
		disabled := set("disabled_later", false)
		enabled := set("enabled_later", true)
		made := set("made_after_the_mark", true)
		w.Clock.Set(at("2026-11-22 12:00:00"))
		w.turn() // both nights' marks at once
		notYet, err := w.Store.TaskByName(w.ctx, "not_valid_yet")
		require.NoError(t, err)
		require.Equal(t, []string{"20261120", "20261121"}, w.nos(always))
		require.Empty(t, w.nos(disabled), "no longer enabled")
		require.Equal(t, []string{"20261121"}, w.nos(enabled), "was not enabled at the first mark")
		require.Equal(t, []string{"20261121"}, w.nos(off), "was disabled at the first mark, whatever it is now")
		require.Equal(t, []string{"20261121"}, w.nos(made))
		require.Equal(t, []string{"20261121"}, w.nos(notYet), "valid from the second mark on")
		require.Equal(t, []string{"20261120"}, w.nos(ended))
	})
}

func TestABatch_keeps_its_version_and_its_place_in_time(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		task := w.Task(t, func(s *capri.Spec) {
			s.Limits.BeginMinutes = 599
			s.Outputs = []capri.Output{{Path: "/out/${yyyyMMdd}", Flag: "_SUCCESS"}}
		})
		w.turn()
		w.Clock.Set(at("2026-11-21 00:01:00"))
		w.turn()
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{Task: task.ID})
		require.NoError(t, err)
		b := rows[0]
		require.Equal(t, at("2026-11-21 00:01:00"), b.ScheduleTime)
		require.Equal(t, at("2026-11-20 00:00:00"), b.DataStart)
		require.Equal(t, at("2026-11-21 00:00:00"), b.DataEnd)
		require.Equal(t, at("2026-11-21 10:00:00"), b.NotBefore, "599 minutes after 00:01 is 10:00")
		require.Equal(t, 1, b.TaskVersion)
		c, err := w.Store.ConditionsOf(w.ctx, b.ID)
		require.NoError(t, err)
		require.Equal(t, "/out/20261120", c[0].Path)
	})
}

func TestSkipAfter_is_finished_as_skipped_at_birth(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		task := w.Task(t, func(s *capri.Spec) { s.Limits.SkipAfterMinutes = 60 })
		w.turn()
		w.Clock.Set(at("2026-11-22 00:30:00"))
		w.turn()
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{Task: task.ID})
		require.NoError(t, err)
		require.Len(t, rows, 2)
		require.Equal(t, capri.Waiting, rows[0].State, "last night's is 29 minutes old")
		require.Equal(t, capri.Skipped, rows[1].FinishState)
	})
}

func TestAClockChange_gives_each_hour_the_clock_shows_a_batch(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	w := newWorld(t, sqltest.SQLite(t), zone)
	w.Clock.Set(at("2026-10-31 12:00:00"))
	task := w.Task(t, func(s *capri.Spec) { s.Period = capri.Hour })
	w.Clock.Set(at("2026-11-01 04:00:00")) // midnight in New York
	w.turn()
	w.Clock.Set(at("2026-11-02 05:30:00"))
	w.turn()
	nos := w.nos(task)
	require.Len(t, nos, 26, "23:00 of the day before, then the 25 hours of the autumn day")
	require.Contains(t, nos, "2026110101-0400")
	require.Contains(t, nos, "2026110101-0500")
}

func TestCron_fires_become_batches_at_their_time_and_none_is_lost_in_an_outage(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 09:30:10"))
		task := w.Task(t, func(s *capri.Spec) { s.Period, s.Cron = capri.Cron, "0 */5 * * * ?" })
		res := w.turn()
		require.Equal(t, at("2026-11-20 09:35:00"), res.Next, "it wakes at the fire, not at the next tick")
		require.Empty(t, w.nos(task))
		w.Clock.Set(res.Next)
		w.turn()
		require.Equal(t, []string{"20261120093500"}, w.nos(task))
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{Task: task.ID})
		require.NoError(t, err)
		require.Equal(t, at("2026-11-20 09:30:00"), rows[0].DataStart, "from the fire before")
		require.Equal(t, at("2026-11-20 09:35:00"), rows[0].DataEnd)
		w.Clock.Set(at("2026-11-27 09:36:00"))
		w.turn()
		require.Len(t, w.nos(task), 1+7*288)
	})
}

func TestAnEditedCron_replaces_what_is_due_and_not_yet_made(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 09:30:10"))
		task := w.Task(t, func(s *capri.Spec) { s.Name, s.Period, s.Cron = "c", capri.Cron, "0 */5 * * * ?" })
		w.turn()
		w.Clock.Set(at("2026-11-20 09:31:00"))
		w.Task(t, func(s *capri.Spec) { s.Name, s.Period, s.Cron = "c", capri.Cron, "0 */3 * * * ?" })
		require.NoError(t, w.Store.Write(w.ctx, "edit", "alice", func(tx *store.Tx) error { return tx.ResetCron(task.ID, nil) }))
		w.turn()
		w.Clock.Set(at("2026-11-20 09:39:00"))
		w.turn()
		require.Equal(t, []string{"20261120093300", "20261120093600", "20261120093900"}, w.nos(task))
	})
}

func TestABadTask_costs_nobody_else_its_batch_and_is_tried_again(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		good := w.Tasks(t, 12, func(int, *capri.Spec) {})
		// A path longer than the column: nothing that validation lets through, but the store must survive it.
		bad := w.Task(t, func(s *capri.Spec) {
			s.Name, s.Inputs = "bad", []capri.Input{{Path: "/" + longPath(3000), Flag: "_SUCCESS"}}
		})
		w.turn()
		w.Clock.Set(at("2026-11-21 00:01:00"))
		res := w.turn()
		if w.Store.Dialect().Name == "sqlite" {
			require.Equal(t, 13, res.Counts["made"], "SQLite takes it")
			return
		}
		require.Equal(t, 12, res.Counts["made"])
		require.Equal(t, 1, res.Counts["failed"])
		for _, g := range good {
			require.Len(t, w.nos(g), 1)
		}
		require.Len(t, w.alerts("generate_failed"), 1)
		w.Task(t, func(s *capri.Spec) { s.Name = "bad" }) // mended
		w.Clock.Advance(10 * time.Minute)
		res = w.turn()
		require.Equal(t, 1, res.Counts["healed"])
		require.Len(t, w.nos(bad), 1)
		marks, err := w.Store.Marks(w.ctx, capri.Day, 1)
		require.NoError(t, err)
		require.Equal(t, 13, marks[0].Made)
		require.Zero(t, marks[0].Failed)
	})
}

func longPath(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return string(b)
}

func TestTwoMasters_that_both_believe_to_lead_make_each_batch_once(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		tasks := w.Tasks(t, 700, func(int, *capri.Spec) {})
		w.turn()
		w.Clock.Set(at("2026-11-21 00:01:00"))
		var wg sync.WaitGroup
		var errs [2]error
		for i := range 2 {
			wg.Go(func() {
				s := generate.New(w.Again(t), w.calendar, slog.New(slog.DiscardHandler))
				_, errs[i] = s.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: w.lease})
			})
		}
		wg.Wait()
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{AllRuns: true, Limit: 10_000})
		require.NoError(t, err)
		require.Len(t, rows, len(tasks))
	})
}

func TestAStaleLeader_makes_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		task := w.Task(t, nil)
		w.turn()
		stale := w.lease
		w.lease = w.Lease(t, "generate")
		w.Clock.Set(at("2026-11-21 00:01:00"))
		_, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: stale})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Empty(t, w.nos(task))
	})
}

func TestADeathInTheMiddle_of_a_mark_is_made_good_by_the_next_turn(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		tasks := w.Tasks(t, 30, func(int, *capri.Spec) {})
		w.turn()
		w.Clock.Set(at("2026-11-21 00:01:00"))
		// What a leader that died had written: some of the batches, and no mark.
		var some []*capri.NewBatch
		for _, task := range tasks[:11] {
			some = append(some, &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: 1, Period: capri.Day, BatchNo: "20261120", ScheduleTime: w.Clock.Now(),
				DataStart: at("2026-11-20 00:00:00"), DataEnd: at("2026-11-21 00:00:00"), Pool: "default"}})
		}
		_, err := w.Store.InsertBatches(w.ctx, store.ByService(w.lease), some, nil)
		require.NoError(t, err)
		res := w.turn()
		require.Equal(t, 19, res.Counts["made"])
		require.Equal(t, 11, res.Counts["present"])
		for _, task := range tasks {
			require.Equal(t, []string{"20261120"}, w.nos(task), fmt.Sprint(task.Name))
		}
	})
}

func (w *world) exec(text string, args ...any) {
	w.t.Helper()
	_, err := w.Store.DB().ExecContext(w.ctx, text, args...)
	require.NoError(w.t, err)
}

func TestADeathAfterAFailureWasNoted_leaves_a_ledger_that_adds_up(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		tasks := w.Tasks(t, 3, func(int, *capri.Spec) {})
		w.turn()
		w.Clock.Set(at("2026-11-21 00:01:00"))
		// The leader noted that this task failed, and died before the mark was complete.
		require.NoError(t, w.Store.FailGeneration(w.ctx, w.lease, store.GenerateFailure{Period: capri.Day, Mark: w.Clock.Now(), Task: tasks[0].ID, Tries: 4, Error: "x"}, "x"))
		w.turn()
		w.Clock.Advance(time.Hour)
		w.turn()
		marks, err := w.Store.Marks(w.ctx, capri.Day, 1)
		require.NoError(t, err)
		require.Equal(t, [5]int{3, 3, 0, 0, 0}, [5]int{marks[0].Expected, marks[0].Made, marks[0].Present, marks[0].Skipped, marks[0].Failed})
	})
}

func TestACronTask_whose_expression_cannot_be_read_keeps_nobody_from_firing(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 09:30:10"))
		bad := w.Task(t, func(s *capri.Spec) { s.Period, s.Cron = capri.Cron, "0 */5 * * * ?" })
		good := w.Task(t, func(s *capri.Spec) { s.Period, s.Cron = capri.Cron, "0 */5 * * * ?" })
		w.exec("UPDATE task_history SET definition = REPLACE(definition, '*/5', '*/5x') WHERE task_id = ?", int64(bad.ID))
		w.turn()
		w.Clock.Set(at("2026-11-20 09:35:00"))
		w.turn()
		require.Equal(t, []string{"20261120093500"}, w.nos(good))
		alerts, err := w.Store.Alerts(w.ctx, nil, 0, 10)
		require.NoError(t, err)
		require.Len(t, alerts, 1, "its owner is told once")
		require.Equal(t, bad.ID, alerts[0].Task)
	})
}

// Of two fires of a task one cannot be made: that one alone is noted as failed.
func TestAFire_that_cannot_be_made_is_noted_alone_and_by_name(t *testing.T) {
	w := newWorld(t, sqltest.SQLite(t), time.UTC) // whose triggers end with the test
	w.Clock.Set(at("2026-11-20 09:30:10"))
	task := w.Task(t, func(s *capri.Spec) { s.Name, s.Period, s.Cron = "often", capri.Cron, "0 */5 * * * ?" })
	w.turn()
	w.exec("CREATE TRIGGER no BEFORE INSERT ON task_work WHEN NEW.batch_no = '20261120093500' BEGIN SELECT RAISE(ABORT, 'no'); END")
	w.Clock.Set(at("2026-11-20 09:45:00"))
	w.turn()
	require.Equal(t, []string{"20261120094000", "20261120094500"}, w.nos(task))
	alerts, err := w.Store.Alerts(w.ctx, nil, 0, 10)
	require.NoError(t, err)
	require.Len(t, alerts, 1)
	require.Contains(t, alerts[0].Title, "Task often: ")
	w.exec("DROP TRIGGER no")
	w.Clock.Advance(10 * time.Minute)
	w.turn()
	require.Contains(t, w.nos(task), "20261120093500")
}
