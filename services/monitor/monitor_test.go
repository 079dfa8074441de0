package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/alerting/duty"
	"capri/calendar"
	"capri/services"
	"capri/sql/sqltest"
	"capri/sql/store"
)

type world struct {
	*sqltest.DB
	t       *testing.T
	ctx     context.Context
	lease   capri.Lease
	service *Service
	beats   []func() // of those that live
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		w := &world{DB: db, t: t, ctx: t.Context(), lease: db.Lease(t, "monitor")}
		w.service = New(w.Store, calendar.New(time.UTC), slog.New(slog.DiscardHandler))
		w.service.Watch([]services.Row{{Name: "monitor", Every: time.Minute}})
		fn(w)
	})
}

// minute lets a minute pass, with a turn at its end.
func (w *world) minute() services.Result {
	w.t.Helper()
	w.Clock.Advance(time.Minute)
	for _, beat := range w.beats {
		beat()
	}
	res, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: w.lease})
	require.NoError(w.t, err)
	return res
}

func (w *world) master(name string) (die func()) {
	w.t.Helper()
	ok, err := w.Store.RegisterMaster(w.ctx, store.Master{Name: name, Instance: "1"}, nil)
	require.NoError(w.t, err)
	require.True(w.t, ok)
	dead := false
	w.beats = append(w.beats, func() {
		if dead {
			return
		}
		ok, err := w.Store.BeatMaster(w.ctx, name, "1", 0)
		require.NoError(w.t, err)
		require.True(w.t, ok)
	})
	return func() { dead = true }
}

func (w *world) alerts() []string {
	w.t.Helper()
	rows, err := w.Store.DB().QueryContext(w.ctx, "SELECT kind, level, title FROM alert ORDER BY id")
	require.NoError(w.t, err)
	defer rows.Close()
	var out []string
	for rows.Next() {
		var kind, title string
		var level capri.Level
		require.NoError(w.t, rows.Scan(&kind, &level, &title))
		out = append(out, fmt.Sprintf("%s %s: %s", kind, level, title))
	}
	require.NoError(w.t, rows.Err())
	return out
}

// node registers a worker that beats. What became of its registration is another's test.
func (w *world) node(name string, slots int) {
	w.t.Helper()
	_, err := w.Store.DB().ExecContext(w.ctx, `INSERT INTO capri_schedul_cluster (host, ip, port, boot_id, directory_id, pool, slots, last_check_time, check_interval, beat, lost, is_stop, start_time,
		memory, cpu_load, memory_load, disk_free, task_num) VALUES (?, '', 0, 'boot', ?, 'default', ?, 0, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0)`, name, name, slots)
	require.NoError(w.t, err)
	w.beats = append(w.beats, func() {
		_, err := w.Store.DB().ExecContext(w.ctx, "UPDATE capri_schedul_cluster SET beat = beat + 1 WHERE host = ?", name)
		require.NoError(w.t, err)
	})
}

func (w *world) batch(task *capri.Task, no string, change func(*capri.NewBatch)) capri.BatchID {
	w.t.Helper()
	at := w.Clock.Now()
	b := &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: task.Version, Period: task.Period, BatchNo: capri.BatchNo(no), Latest: true,
		ScheduleTime: at, DataStart: at.Add(-24 * time.Hour), DataEnd: at, Slots: 1, Concurrency: 1, Pool: "default", Strategy: capri.LeastLoaded}}
	if change != nil {
		change(b)
	}
	_, err := w.Store.InsertBatches(w.ctx, store.ByPerson("test"), []*capri.NewBatch{b}, nil)
	require.NoError(w.t, err)
	return b.ID
}

func TestAMasterThatDies_is_missed_and_said_once_an_hour(t *testing.T) {
	each(t, func(w *world) {
		w.Set(t, store.MastersImportant, "2")
		w.master("m1")
		die := w.master("m2")
		w.minute()
		w.minute()
		require.Empty(t, w.alerts())
		die()
		w.minute()
		require.Equal(t, []string{"masters_few important: Only 1 masters live"}, w.alerts())
		w.minute()
		require.Len(t, w.alerts(), 1)
		w.Clock.Advance(time.Hour)
		w.minute()
		require.Len(t, w.alerts(), 2, "it goes on")
	})
}

func TestATurnRightAfterAnother_takes_nobody_for_dead(t *testing.T) {
	each(t, func(w *world) {
		w.Set(t, store.MastersSevere, "1")
		w.master("m1")
		w.minute()
		w.minute()
		_, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Advance(time.Second), Lease: w.lease}) // somebody has triggered it
		require.NoError(t, err)
		require.Empty(t, w.alerts())
	})
}

func TestANewLeader_judges_nobody_by_its_first_look(t *testing.T) {
	each(t, func(w *world) {
		w.Set(t, store.MastersSevere, "1")
		w.minute()
		require.Empty(t, w.alerts(), "nobody has been looked at twice")
		w.minute()
		require.Len(t, w.alerts(), 1)
		w.lease = w.Lease(t, "monitor")
		w.minute()
		require.Len(t, w.alerts(), 1)
		w.minute()
		require.Len(t, w.alerts(), 1, "the same hour's alert, whoever leads")
	})
}

func TestAReadyBatchWithAFreeNode_that_nobody_places_is_alerted(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 1)
		task := w.Task(t, nil)
		w.minute()
		id := w.batch(task, "20261119", nil)
		for range 6 {
			w.minute()
			require.Empty(t, w.alerts(), "five minutes are allowed")
		}
		w.minute()
		require.Equal(t, []string{"ready_waits important: 1 ready batches wait although a node is free"}, w.alerts())
		w.minute()
		require.Len(t, w.alerts(), 1, "once for the same batches")

		n, err := w.Store.Assign(w.ctx, w.Lease(t, "dispatch"), []store.Assignment{{Batch: id, Node: "n1"}})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		w.batch(w.Task(t, nil), "20261119", nil)
		for range 10 {
			w.minute()
		}
		require.Len(t, w.alerts(), 1, "the node is full, and waiting is right")
	})
}

func TestWhatDispatchMayNotPlace_is_not_held_against_it(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"a pause": func(w *world) {
			require.NoError(w.t, w.Store.Write(w.ctx, "pause", "ops", func(tx *store.Tx) error { return tx.PauseDispatch(true, "upgrade", 0) }))
		},
		"the latest allowed schedule time": func(w *world) { w.Set(w.t, store.LatestScheduleTime, "2026-01-01") },
		"max_running": func(w *world) {
			_, err := w.Store.DB().ExecContext(w.ctx, "UPDATE capri_service_lock SET max_running = 0 WHERE service = 'dispatch'")
			require.NoError(w.t, err)
		},
		"a broken setting": func(w *world) { w.Set(w.t, store.LatestScheduleTime, "soon") },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				w.Lease(t, "dispatch")
				w.node("n1", 8)
				w.batch(w.Task(t, nil), "20261119", nil)
				change(w)
				for range 10 {
					w.minute()
				}
				require.Empty(t, w.alerts())
			})
		})
	}
}

func TestMissingBatches_of_a_mark_are_found_once_by_each_leader(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(capri.InstantOf(time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)))
		made, lost := w.Task(t, nil), w.Task(t, func(s *capri.Spec) { s.Name = "lost_orders" })
		mark := capri.InstantOf(time.Date(2026, 11, 20, 0, 1, 0, 0, time.UTC))
		w.Clock.Set(mark.Add(time.Minute))
		generate := w.Lease(t, "generate")
		w.batch(made, "20261119", nil)
		require.NoError(t, w.Store.CompleteMark(w.ctx, generate, store.Mark{Period: capri.Day, Mark: mark, Expected: 2, Made: 2, StartedAt: mark}))
		require.NotZero(t, lost.ID)
		w.minute()
		require.Equal(t, []string{"batches_missing important: Batches of the day mark 2026-11-20 00:01:00 are missing"}, w.alerts())
		var text string
		require.NoError(t, w.Store.DB().QueryRowContext(w.ctx, "SELECT body FROM alert").Scan(&text))
		require.Contains(t, text, "lost_orders")
		require.NotContains(t, text, made.Name+",")

		audited := len(w.service.audited)
		require.Equal(t, 1, audited)
		w.lease = w.Lease(t, "monitor")
		w.minute()
		require.Len(t, w.service.audited, 1, "the new leader has audited it, too")
		require.Len(t, w.alerts(), 1)
	})
}

func TestAMarkLogsFirstRow_has_no_batches_to_miss(t *testing.T) {
	each(t, func(w *world) {
		w.Task(t, nil)
		require.NoError(t, w.Store.StartMarkLog(w.ctx, w.Lease(t, "generate"), capri.Day, w.Clock.Now()))
		w.minute()
		require.Empty(t, w.alerts())
		require.Len(t, w.service.audited, 1)
	})
}

func TestAServiceThatStops_is_overdue_once(t *testing.T) {
	each(t, func(w *world) {
		w.service.Watch([]services.Row{{Name: "timeout", Every: time.Minute}})
		require.NoError(t, w.Store.SaveServiceState(w.ctx, store.ServiceState{Service: "timeout", Holder: "m1", Epoch: 1, StartedAt: w.Clock.Now(), CompletedAt: w.Clock.Now()}))
		for range 4 {
			w.minute()
			require.Empty(t, w.alerts())
		}
		w.minute()
		require.Equal(t, []string{"service_overdue important: Service timeout is overdue"}, w.alerts())
		for range 100 {
			w.minute()
		}
		require.Len(t, w.alerts(), 1, "one episode, one alert")
		require.NoError(t, w.Store.SaveServiceState(w.ctx, store.ServiceState{Service: "timeout", Holder: "m1", Epoch: 1, StartedAt: w.Clock.Now(), CompletedAt: w.Clock.Now()}))
		for range 5 {
			w.minute()
		}
		require.Len(t, w.alerts(), 2, "the next one")
	})
}

func TestARepairingRecount_is_severe_and_said_once(t *testing.T) {
	each(t, func(w *world) {
		w.minute()
		require.NoError(t, w.Store.RecordRun(w.ctx, store.ServiceRun{Service: "dependency", Holder: "m", StartedAt: w.Clock.Advance(time.Second), Counts: map[string]int{"repaired": 2}}))
		w.minute()
		w.minute()
		w.lease = w.Lease(t, "monitor")
		w.minute()
		require.Equal(t, []string{"recount_repaired severe: A recount found 2 batches whose unmet conditions were counted wrongly"}, w.alerts())
	})
}

func TestAnAlertThatCouldNotBeWritten_is_written_in_the_next_turn(t *testing.T) {
	each(t, func(w *world) {
		w.Set(t, store.MastersSevere, "1")
		w.minute()
		stale := w.lease
		w.lease = w.Lease(t, "monitor")
		_, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Advance(time.Minute), Lease: stale})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Empty(t, w.alerts())
		require.Empty(t, w.service.told)
		w.minute()
		w.minute()
		require.Len(t, w.alerts(), 1)
	})
}

func TestManyReadyBatches_are_followed_from_turn_to_turn(t *testing.T) {
	each(t, func(w *world) {
		for i := range 50 {
			w.node(fmt.Sprint("n", i), 4)
		}
		tasks := w.Tasks(t, 200, func(int, *capri.Spec) {})
		for _, task := range tasks {
			w.batch(task, "20261119", nil)
		}
		w.minute()
		require.Len(t, w.service.waiting, 200, "each could be placed")
		w.minute()
		require.Len(t, w.service.waiting, 200)
		for _, since := range w.service.waiting {
			require.Equal(t, w.Clock.Now().Add(-time.Minute), since)
		}
	})
}

func TestAHoleInTheRota_is_told_beforehand_and_once(t *testing.T) {
	each(t, func(w *world) {
		day := func(n int) string {
			return w.Clock.Now().Add(time.Duration(n) * 24 * time.Hour).In(time.UTC).Format(time.DateOnly)
		}
		write := func(fn func(tx *store.Tx) error) {
			t.Helper()
			require.NoError(t, w.Store.Write(w.ctx, "set", "test", fn))
		}
		// A week of alice until the fourth day from now, then nobody for two weeks, then her again.
		r, wrong := duty.Parse(duty.Spec{Primary: duty.SpecRotation{Weeks: []duty.SpecWeek{{From: day(-3), User: "alice"}, {From: day(18), User: "alice"}}}}, time.UTC)
		require.Empty(t, wrong)
		write(func(tx *store.Tx) error {
			return errors.Join(tx.SaveUser(store.User{Name: "alice", Phone: "1", Enabled: true}), tx.SaveRota(r))
		})
		w.Set(t, store.DutyHoleDays, "3")
		w.minute()
		require.Empty(t, w.alerts(), "it is farther away than that")
		w.Set(t, store.DutyHoleDays, "7")
		w.minute()
		require.Len(t, w.alerts(), 1)
		require.Contains(t, w.alerts()[0], "duty_hole important: A hole in the duty rota of the system: nobody is on duty from "+day(4)+" 09:00:00 to "+day(18)+" 09:00:00")
		w.minute()
		w.Clock.Advance(6 * 24 * time.Hour) // it has begun
		w.lease = w.Lease(t, "monitor")     // and somebody else leads
		w.minute()
		require.Len(t, w.alerts(), 1, "one alert for each hole")
		write(func(tx *store.Tx) error { return tx.SaveUser(store.User{Name: "alice", Enabled: true}) })
		w.Clock.Advance(6 * 24 * time.Hour)
		w.minute()
		require.Len(t, w.alerts(), 2, "her phone is gone, and her week comes: a hole of its own")
	})
}
