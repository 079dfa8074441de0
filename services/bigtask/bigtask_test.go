package bigtask_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/internal/servicetest"
	"capri/services/bigtask"
	"capri/sql/store"
)

type world struct {
	*servicetest.World
	service bigtask.Service
}

// each starts the day before the turn's: the clock stands at 2026-11-19, 00:00 in zone.
func each(t *testing.T, zone *time.Location, fn func(w *world)) {
	t.Helper()
	servicetest.Each(t, "bigtask", func(w *servicetest.World) {
		w.Clock.Set(capri.InstantOf(time.Date(2026, 11, 19, 0, 0, 0, 0, zone)))
		w.Node("n1")
		fn(&world{World: w, service: bigtask.Service{Store: w.Store, Calendar: calendar.New(zone)}})
	})
}

// run lets a batch of the task begin at an instant, end after a while, and gives its id. The clock stays at the end.
func (w *world) run(task *capri.Task, at capri.Instant, took time.Duration, how store.Outcome) capri.BatchID {
	w.T.Helper()
	w.Clock.Set(at)
	id := w.Batches(task, 1)[0]
	attempts := w.Start("n1", id)
	w.Clock.Advance(took)
	w.Finish("n1", how, attempts...)
	return id
}

func (w *world) turn(at capri.Instant) map[string]int {
	w.T.Helper()
	w.Clock.Set(at)
	return w.Turn(w.service).Counts
}

func (w *world) expect(task *capri.Task, minutes int) {
	w.T.Helper()
	require.NoError(w.T, w.Store.ExpectDurations(w.Ctx, w.Leads, []store.ExpectedMinutes{{Task: task.ID, Minutes: minutes}}))
}

func (w *world) expected(task *capri.Task) int {
	w.T.Helper()
	is, err := w.Store.TaskByName(w.Ctx, task.Name)
	require.NoError(w.T, err)
	require.Equal(w.T, task.Version, is.Version, "it is no edit")
	return is.ExpectedMinutes
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
				told := w.Alerts("expected_duration")
				if !c.owner {
					require.Empty(t, told)
					return
				}
				require.Len(t, told, 1)
				require.Equal(t, capri.Attention, told[0].Level)
				require.Equal(t, task.ID, told[0].Task)
				require.Contains(t, told[0].Title, fmt.Sprintf("took %d minutes on 20261119, %d were expected", c.expected, c.was))
				require.Zero(t, w.turn(ten)["updated"], "a second turn finds nothing")
				require.Len(t, w.Alerts("expected_duration"), 1)
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
		w.Write(func(tx *store.Tx) error { return tx.DeleteTask(gone.ID) })
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
		told := w.Alerts("big_task")
		require.Len(t, told, 2)
		require.Equal(t, []capri.BatchID{bad, longest}, []capri.BatchID{told[0].Batch, told[1].Batch})
		require.Equal(t, capri.Attention, told[1].Level)
		require.Contains(t, told[1].Title, "ran for 141 minutes on 20261119")
		require.Contains(t, told[0].Text, "ended as failed after 200 minutes")

		w.run(over, day.Add(25*time.Hour), 140*minute, store.Succeeded)
		require.Equal(t, 1, w.turn(ten.Add(24 * time.Hour))["big"])
		require.Len(t, w.Alerts("big_task"), 3, "the next day is another alert")

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
		require.Empty(t, w.Alerts())
	})
}
