package bigtask_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/services"
	"capri/services/bigtask"
	"capri/sql/sqltest"
	"capri/sql/store"
)

const node, boot = "n1", "boot-1"

type world struct {
	*sqltest.DB
	t               *testing.T
	ctx             context.Context
	lease, dispatch capri.Lease
	service         bigtask.Service
	runs            int
}

// each starts the day before the turn's: the clock stands at 2026-11-19, 00:00 in zone.
func each(t *testing.T, zone *time.Location, fn func(w *world)) {
	t.Helper()
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		w := &world{DB: db, t: t, ctx: t.Context(), lease: db.Lease(t, "bigtask"), dispatch: db.Lease(t, "dispatch"), service: bigtask.Service{Store: db.Store, Calendar: calendar.New(zone)}}
		w.Clock.Set(capri.InstantOf(time.Date(2026, 11, 19, 0, 0, 0, 0, zone)))
		require.NoError(t, db.Store.RegisterNode(w.ctx, capri.Node{Name: node, BootID: boot, Pool: "default", Slots: 100, CheckInterval: 5}, "dir-1"))
		fn(w)
	})
}

// run lets a batch of the task begin at an instant, end after a while, and gives its id. The clock stays at the end.
func (w *world) run(task *capri.Task, at capri.Instant, took time.Duration, how store.Outcome) capri.BatchID {
	w.t.Helper()
	w.Clock.Set(at)
	w.runs++
	b := &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: task.Version, Period: capri.Day, BatchNo: capri.BatchNo(fmt.Sprint("r", w.runs)), Latest: true,
		ScheduleTime: at, DataStart: at, DataEnd: at, Priority: 5, Slots: 1, Concurrency: 1000, Pool: "default", Strategy: capri.LeastLoaded}}
	_, err := w.Store.InsertBatches(w.ctx, store.ByPerson("test"), []*capri.NewBatch{b}, nil)
	require.NoError(w.t, err)
	n, err := w.Store.Assign(w.ctx, w.dispatch, []store.Assignment{{Batch: b.ID, Node: node}})
	require.NoError(w.t, err)
	require.Equal(w.t, 1, n)
	claimed, err := w.Store.Claim(w.ctx, node, boot, 100)
	require.NoError(w.t, err)
	require.Len(w.t, claimed, 1)
	a := capri.Attempt{Batch: b.ID, Number: claimed[0].Attempt}
	_, err = w.Store.Start(w.ctx, node, boot, []capri.Attempt{a})
	require.NoError(w.t, err)
	w.Clock.Advance(took)
	_, err = w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: a, Outcome: how, Message: "it ended"}})
	require.NoError(w.t, err)
	return b.ID
}

func (w *world) turn(at capri.Instant) map[string]int {
	w.t.Helper()
	w.Clock.Set(at)
	res, err := w.service.Run(w.ctx, services.Turn{Now: at, Lease: w.lease})
	require.NoError(w.t, err)
	return res.Counts
}

func (w *world) expect(task *capri.Task, minutes int) {
	w.t.Helper()
	require.NoError(w.t, w.Store.ExpectDurations(w.ctx, w.lease, []store.ExpectedMinutes{{Task: task.ID, Minutes: minutes}}))
}

func (w *world) expected(task *capri.Task) int {
	w.t.Helper()
	is, err := w.Store.TaskByName(w.ctx, task.Name)
	require.NoError(w.t, err)
	require.Equal(w.t, task.Version, is.Version, "it is no edit")
	return is.ExpectedMinutes
}

// alerts gives what was raised, by kind.
func (w *world) alerts() map[string][]store.AlertRow {
	w.t.Helper()
	rows, err := w.Store.Alerts(w.ctx, 1000)
	require.NoError(w.t, err)
	out := map[string][]store.AlertRow{}
	for _, a := range rows {
		out[a.Kind] = append(out[a.Kind], a)
	}
	return out
}

const minute = time.Minute

func TestTheExpectedDuration_follows_yesterday_where_it_differs_much(t *testing.T) {
	for _, c := range []struct {
		sentence      string
		was           int
		took          time.Duration
		expected      int
		owner         bool // is told
		percent, most string
	}{
		{"the first duration is no surprise", 0, 3*minute + time.Second, 4, false, "", ""},
		{"seconds are a minute", 0, 5 * time.Second, 1, false, "", ""},
		{"much longer", 20, 45 * minute, 45, true, "", ""},
		{"much shorter", 60, 20 * minute, 20, true, "", ""},
		{"exactly the percentage is not more", 20, 30 * minute, 20, false, "", ""},
		{"a minute beyond it is", 20, 31 * minute, 31, true, "", ""},
		{"many percent of little", 1, 10 * minute, 1, false, "", ""},
		{"the least that counts", 1, 11 * minute, 11, true, "", ""},
		{"few percent of much", 300, 320 * minute, 300, false, "", ""},
		{"as the settings say", 300, 320 * minute, 320, true, "5", "20"},
		{"nothing changed", 20, 20 * minute, 20, false, "0", "0"},
		{"a broken setting counts as its default", 20, 45 * minute, 45, true, "many", "-3"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			each(t, time.UTC, func(w *world) {
				task := w.Task(t, nil)
				day := w.Clock.Now()
				if c.was > 0 {
					w.expect(task, c.was)
				}
				if c.percent != "" {
					w.Set(t, store.BigTaskDiffers, c.percent)
					w.Set(t, store.BigTaskDiffersLeast, c.most)
				}
				w.run(task, day.Add(time.Hour), c.took, store.Succeeded)
				ten := day.Add(34 * time.Hour)
				w.turn(ten)
				require.Equal(t, c.expected, w.expected(task))
				told := w.alerts()["expected_duration"]
				if !c.owner {
					require.Empty(t, told)
					return
				}
				require.Len(t, told, 1)
				require.Equal(t, capri.Attention, told[0].Level)
				require.Equal(t, task.ID, told[0].Task)
				require.Contains(t, told[0].Title, fmt.Sprintf("took %d minutes on 20261119, %d were expected", c.expected, c.was))
				require.Zero(t, w.turn(ten)["updated"], "a second turn finds nothing")
				require.Len(t, w.alerts()["expected_duration"], 1)
			})
		})
	}
}

func TestTheLongestSuccess_of_the_business_day_counts(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	each(t, newYork, func(w *world) {
		task, other, gone := w.Task(t, nil), w.Task(t, nil), w.Task(t, nil)
		day := w.Clock.Now()
		w.run(task, day.Add(-2*time.Hour), 2*time.Hour-time.Millisecond, store.Succeeded) // ends the day before
		w.run(task, day.Add(-30*minute), 30*minute, store.Succeeded)                      // ends with its first instant
		w.run(task, day.Add(time.Hour), 10*minute, store.Succeeded)
		w.run(task, day.Add(2*time.Hour), 90*minute, store.Failed)
		w.run(other, day.Add(23*time.Hour), 59*minute, store.Succeeded)
		w.run(gone, day.Add(23*time.Hour), 59*minute, store.Succeeded)
		w.run(task, day.Add(22*time.Hour), 2*time.Hour, store.Succeeded) // ends today
		require.NoError(t, w.Store.Write(w.ctx, "test", "alice", func(tx *store.Tx) error { return tx.DeleteTask(gone.ID) }))
		require.Equal(t, map[string]int{"updated": 2}, w.turn(day.Add(34*time.Hour)))
		require.Equal(t, 30, w.expected(task))
		require.Equal(t, 59, w.expected(other))
	})
}

func TestALongRun_is_told_once_a_day_however_it_ended(t *testing.T) {
	each(t, time.UTC, func(w *world) {
		at, over, failed := w.Task(t, nil), w.Task(t, nil), w.Task(t, nil)
		day := w.Clock.Now()
		w.run(at, day, 120*minute, store.Succeeded)
		w.run(over, day, 130*minute, store.Succeeded)
		longest := w.run(over, day, 140*minute+time.Second, store.Succeeded)
		bad := w.run(failed, day, 200*minute, store.Failed)
		ten := day.Add(34 * time.Hour)
		require.Equal(t, 2, w.turn(ten)["big"])
		w.turn(ten)
		told := w.alerts()["big_task"]
		require.Len(t, told, 2)
		require.Equal(t, []capri.BatchID{bad, longest}, []capri.BatchID{told[0].Batch, told[1].Batch})
		require.Equal(t, capri.Attention, told[1].Level)
		require.Contains(t, told[1].Title, "ran for 141 minutes on 20261119")
		require.Contains(t, told[0].Text, "ended as failed after 200 minutes")

		w.run(over, day.Add(25*time.Hour), 140*minute, store.Succeeded)
		require.Equal(t, 1, w.turn(ten.Add(24 * time.Hour))["big"])
		require.Len(t, w.alerts()["big_task"], 3, "the next day is another alert")

		w.Set(t, store.BigTaskMinutes, "0")
		require.Zero(t, w.turn(ten)["big"])
	})
}

func TestADayOfAnHourLess_ends_at_its_midnight(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	each(t, newYork, func(w *world) {
		task := w.Task(t, nil)
		spring := capri.InstantOf(time.Date(2026, 3, 8, 0, 0, 0, 0, newYork))
		w.run(task, spring, 15*minute, store.Succeeded)
		w.run(task, spring.Add(22*time.Hour+30*minute), 30*minute, store.Succeeded) // ends at the next midnight, 23 hours on
		w.turn(capri.InstantOf(time.Date(2026, 3, 9, 10, 0, 0, 0, newYork)))
		require.Equal(t, 15, w.expected(task))
	})
}

func TestAnEmptyDay_writes_nothing(t *testing.T) {
	each(t, time.UTC, func(w *world) {
		require.Empty(t, w.turn(w.Clock.Now().Add(34*time.Hour)))
		require.Empty(t, w.alerts())
	})
}
