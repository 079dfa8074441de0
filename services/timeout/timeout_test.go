package timeout_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/birth"
	"capri/calendar"
	"capri/internal/servicetest"
	"capri/services"
	"capri/services/timeout"
	"capri/sql/sqltest"
	"capri/sql/store"
)

const node = "n1"

type world struct {
	*servicetest.World
	service timeout.Service
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	servicetest.Each(t, "timeout", func(w *servicetest.World) {
		w.Node(node)
		fn(&world{World: w, service: timeout.Service{Store: w.Store, Zone: time.UTC}})
	})
}

// unmet is a condition that nobody meets.
func unmet(b *capri.NewBatch) {
	b.ThirdParty = []capri.ThirdPartyCondition{{Code: "closed", Period: capri.Day, BatchNo: "20261119"}}
}

// due gives a batch a deadline so long from now.
func due(kind capri.DeadlineKind, in time.Duration) func(*capri.NewBatch) {
	return func(b *capri.NewBatch) {
		b.Deadlines = append(b.Deadlines, capri.Deadline{Kind: kind, Due: b.ScheduleTime.Add(in)})
	}
}

// one inserts a batch of a task of its own.
func (w *world) one(change ...func(*capri.NewBatch)) capri.BatchID {
	w.T.Helper()
	return w.Batches(w.Task(w.T, nil), 1, change...)[0]
}

func (w *world) turn() services.Result {
	w.T.Helper()
	return w.Turn(w.service)
}

func (w *world) claim(id capri.BatchID) capri.Attempt { return w.Claim(node, id)[0] }
func (w *world) start(id capri.BatchID) capri.Attempt { return w.Start(node, id)[0] }

// stands is a batch in a few words.
func (w *world) stands(id capri.BatchID) string {
	b := w.Get(id)
	return b.State.String() + " " + b.FinishState.String()
}

// alerts gives what was raised about a batch, by kind.
func (w *world) alerts(id capri.BatchID) map[string]store.AlertRow {
	w.T.Helper()
	out := map[string]store.AlertRow{}
	for _, a := range w.Alerts() {
		if a.Batch == id {
			require.NotContains(w.T, out, a.Kind)
			out[a.Kind] = a
		}
	}
	return out
}

func (w *world) finish(a capri.Attempt, o store.Outcome, retries int) {
	w.T.Helper()
	_, err := w.Store.FinishAttempts(w.Ctx, node, []store.Result{{Attempt: a, Outcome: o, Message: "it ended", Retries: retries}})
	require.NoError(w.T, err)
}

func TestADependencyTimeout_comes_at_its_minute_and_once(t *testing.T) {
	each(t, func(w *world) {
		id := w.one(unmet, due(capri.DependencyDeadline, 2*time.Hour))
		w.Clock.Advance(2*time.Hour - time.Millisecond)
		require.Empty(t, w.turn().Counts, "a millisecond before it is in time")
		require.Equal(t, "waiting none", w.stands(id))

		now := w.Clock.Advance(time.Millisecond)
		require.Equal(t, map[string]int{"dependency_timeout": 1}, w.turn().Counts)
		b := w.Get(id)
		require.Equal(t, "waiting dependency_timeout", w.stands(id))
		require.Equal(t, now, b.DependencyTimeoutAt)
		require.Zero(t, b.OutputTimeoutAt)
		a := w.alerts(id)["dependency_timeout"]
		require.Equal(t, capri.Important, a.Level)
		require.Equal(t, b.TaskID, a.Task)
		require.Contains(t, a.Title, "d1 still waits")
		require.Contains(t, a.Text, "beyond 2026-11-20 11:30:00 (120 minutes after 2026-11-20 09:30:00)")
		require.Contains(t, a.Text, "One of its dependencies is not met")
		events, err := w.Store.Events(w.Ctx, id)
		require.NoError(t, err)
		require.Len(t, events, 1)
		require.Equal(t, capri.DependencyTimeout, events[0].FinishState)
		require.Equal(t, "timeout", events[0].Who)

		w.Clock.Advance(time.Hour)
		require.Empty(t, w.turn().Counts)
		require.Len(t, w.alerts(id), 1)
		require.Zero(t, w.Count("batch_deadline"))
	})
}

func TestALateBatch_goes_its_way_and_what_it_ends_as_replaces_the_timeout(t *testing.T) {
	each(t, func(w *world) {
		id := w.one(due(capri.DependencyDeadline, time.Minute), due(capri.OutputDeadline, time.Hour))
		w.Clock.Advance(time.Minute)
		w.turn()
		require.Equal(t, "waiting dependency_timeout", w.stands(id))
		require.Contains(t, w.alerts(id)["dependency_timeout"].Text, "it waits for a place to run")
		ready, err := w.Store.Ready(w.Ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 10)
		require.NoError(t, err)
		require.Len(t, ready, 1, "dispatch sees it as before")
		late, err := w.Store.Batches(w.Ctx, store.BatchFilter{Late: true})
		require.NoError(t, err)
		require.Len(t, late, 1)

		a := w.start(id)
		require.Equal(t, "running dependency_timeout", w.stands(id))
		w.Clock.Advance(time.Hour)
		w.turn()
		require.Equal(t, "running output_timeout", w.stands(id), "late on both, the later word stands")
		require.Contains(t, w.alerts(id)["output_timeout"].Text, "It runs on node n1 since 2026-11-20 09:31:00")

		w.finish(a, store.Succeeded, 0)
		require.Equal(t, "finished success", w.stands(id))
		b := w.Get(id)
		require.NotZero(t, b.DependencyTimeoutAt)
		require.NotZero(t, b.OutputTimeoutAt)
	})
}

func TestAnOutputTimeout_depends_on_how_the_batch_stands(t *testing.T) {
	each(t, func(w *world) {
		late := due(capri.OutputDeadline, time.Hour)
		waiting, assigned, preparing, running, succeeded, failed, killed, skipped, again := w.one(unmet, late), w.one(late), w.one(late), w.one(late), w.one(late), w.one(late), w.one(late), w.one(late), w.one(unmet, late)
		require.Equal(t, 9, w.Count("batch_deadline"))
		w.claim(preparing)
		w.start(running)
		w.finish(w.start(succeeded), store.Succeeded, 0)
		w.finish(w.start(failed), store.Failed, 0)
		w.Assign(node, assigned)
		w.Write(func(tx *store.Tx) error {
			_, _, err := tx.RequestKill([]capri.BatchID{killed, again}, "not needed")
			return err
		})
		_, err := w.Store.EndUnplaced(w.Ctx, w.Places(), capri.Skipped, "its time is over", []capri.BatchID{skipped})
		require.NoError(t, err)
		next := w.NewBatch(&capri.Task{ID: w.Get(again).TaskID, Version: 1}, unmet)
		next.BatchNo, next.RunNo = w.Get(again).BatchNo, 1
		next.ID, err = w.Store.ReserveBatchIDs(w.Ctx, 1)
		require.NoError(t, err)
		w.Write(func(tx *store.Tx) error { return tx.NewRun(again, next) })

		now := w.Clock.Advance(time.Hour)
		require.Equal(t, map[string]int{"output_timeout": 6}, w.turn().Counts)
		for _, c := range []struct {
			id     capri.BatchID
			stands string
			told   string // "": nobody
		}{
			{waiting, "waiting output_timeout", "It is waiting; unmet dependencies: 1."},
			{assigned, "assigned output_timeout", "It is assigned to node n1, which has not taken it yet."},
			{preparing, "running output_timeout", "Node n1 is preparing it."},
			{running, "running output_timeout", "It runs on node n1 since 2026-11-20 09:30:00."},
			{succeeded, "finished success", ""},
			{failed, "finished failed", "It finished as failed at 2026-11-20 09:30:00"},
			{killed, "finished killed", "It finished as killed"},
			{skipped, "finished skipped", ""},
			{again, "finished killed", ""}, // a newer run counts
		} {
			require.Equal(t, c.stands, w.stands(c.id))
			a, told := w.alerts(c.id)["output_timeout"]
			require.Equal(t, c.told != "", told, c.stands)
			require.Contains(t, a.Text, c.told)
			if told {
				require.Equal(t, now, w.Get(c.id).OutputTimeoutAt)
			} else {
				require.Zero(t, w.Get(c.id).OutputTimeoutAt)
			}
		}
		require.Zero(t, w.Count("batch_deadline"))
	})
}

func TestADependencyTimeout_is_of_waiting_batches_alone(t *testing.T) {
	each(t, func(w *world) {
		late := due(capri.DependencyDeadline, time.Hour)
		assigned, running, failed, held := w.one(late), w.one(late), w.one(late), w.one(late)
		w.start(running)
		w.finish(w.start(failed), store.Failed, 0)
		w.Assign(node, assigned)
		w.Write(func(tx *store.Tx) error {
			_, err := tx.Hold([]capri.BatchID{held}, "not now")
			return err
		})
		w.Clock.Advance(time.Hour)
		require.Equal(t, map[string]int{"dependency_timeout": 1}, w.turn().Counts)
		require.Equal(t, "assigned none", w.stands(assigned))
		require.Equal(t, "running none", w.stands(running))
		require.Equal(t, "finished failed", w.stands(failed))
		require.Equal(t, "waiting dependency_timeout", w.stands(held))
		require.Contains(t, w.alerts(held)["dependency_timeout"].Text, "Somebody holds it.")
	})
}

func TestBothTimeouts_that_come_in_one_turn_are_two_steps_in_their_order(t *testing.T) {
	each(t, func(w *world) {
		dependencyLast := w.one(unmet, due(capri.DependencyDeadline, 2*time.Minute), due(capri.OutputDeadline, time.Minute))
		together := w.one(unmet, due(capri.OutputDeadline, time.Minute), due(capri.DependencyDeadline, time.Minute))
		w.Clock.Advance(time.Hour) // an outage
		require.Equal(t, map[string]int{"dependency_timeout": 2, "output_timeout": 2}, w.turn().Counts)
		require.Equal(t, "waiting dependency_timeout", w.stands(dependencyLast))
		require.Equal(t, "waiting output_timeout", w.stands(together))
		for _, id := range []capri.BatchID{dependencyLast, together} {
			require.Len(t, w.alerts(id), 2)
			events, err := w.Store.Events(w.Ctx, id)
			require.NoError(t, err)
			require.Len(t, events, 2)
		}
	})
}

func TestTheEndOfTheDay_fails_what_has_not_started(t *testing.T) {
	each(t, func(w *world) {
		midnight := due(capri.DayEndDeadline, 14*time.Hour+30*time.Minute)
		waiting, ready, assigned, running, ended := w.one(unmet, midnight), w.one(midnight), w.one(midnight), w.one(midnight), w.one(midnight)
		w.start(running)
		w.finish(w.start(ended), store.Succeeded, 0)
		w.Assign(node, assigned)
		now := w.Clock.Advance(14*time.Hour + 30*time.Minute)
		require.Equal(t, map[string]int{"expired": 3}, w.turn().Counts)
		for _, id := range []capri.BatchID{waiting, ready, assigned} {
			require.Equal(t, "finished failed", w.stands(id))
			b := w.Get(id)
			require.Equal(t, now, b.FinishTime)
			require.Equal(t, "not started by the end of its business day", b.Message)
			require.Contains(t, w.alerts(id), "batch_failed")
		}
		require.Equal(t, "running none", w.stands(running))
		require.Equal(t, "finished success", w.stands(ended))
		claimed, err := w.Store.Claim(w.Ctx, node, "boot", 100)
		require.NoError(t, err)
		require.Empty(t, claimed, "a worker that comes too late gets nothing")
	})
}

func TestTheEndOfTheDay_is_the_business_zones_on_days_of_23_and_25_hours(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	c := calendar.New(zone)
	each(t, func(w *world) {
		for _, day := range []struct {
			year, month, day int
			hours            int
		}{{2027, 3, 13, 24}, {2027, 3, 14, 23}, {2027, 11, 7, 25}} {
			midnight := capri.InstantOf(time.Date(day.year, time.Month(day.month), day.day, 0, 0, 0, 0, zone))
			w.Clock.Advance(midnight.Add(time.Minute).Sub(w.Clock.Now()))
			task, err := birth.Compile(w.Task(t, func(s *capri.Spec) {
				s.Limits.ExpireAtDayEnd, s.ThirdParty = true, []capri.ThirdParty{{Code: "closed"}}
			}))
			require.NoError(t, err)
			batch, err := birth.New(c, nil).Batch(task, c.Containing(capri.Day, midnight.Add(-time.Hour)), capri.OriginMark, 0, w.Clock.Now())
			require.NoError(t, err)
			id := w.Insert(batch)[0]

			w.Clock.Advance(time.Duration(day.hours)*time.Hour - 2*time.Minute)
			require.Empty(t, w.turn().Counts, "a minute is left of %v", day)
			w.Clock.Advance(time.Minute)
			require.Equal(t, map[string]int{"expired": 1}, w.turn().Counts, "%v", day)
			require.Equal(t, "finished failed", w.stands(id))
		}
	})
}

func TestTheEndOfTheDay_waits_for_a_batch_that_is_being_prepared(t *testing.T) {
	each(t, func(w *world) {
		midnight := due(capri.DayEndDeadline, time.Hour)
		starts, back := w.one(midnight), w.one(midnight)
		a, b := w.claim(starts), w.claim(back)
		w.Clock.Advance(time.Hour)
		require.Empty(t, w.turn().Counts)
		require.Equal(t, 2, w.Count("batch_deadline"), "it is asked again")

		started, err := w.Store.Start(w.Ctx, node, "boot", []capri.Attempt{a})
		require.NoError(t, err)
		require.Len(t, started, 1)
		require.NoError(t, w.Store.RollBack(w.Ctx, node, []store.GiveBack{{Attempt: b, Why: "no memory", Rejected: true, Limit: -1}}))
		w.Clock.Advance(time.Minute)
		require.Equal(t, map[string]int{"expired": 1}, w.turn().Counts)
		require.Equal(t, "running none", w.stands(starts))
		require.Equal(t, "finished failed", w.stands(back))
		require.Zero(t, w.Count("batch_deadline"))
	})
}

func TestTheEndOfTheDay_leaves_a_retry_alone(t *testing.T) {
	each(t, func(w *world) {
		midnight := due(capri.DayEndDeadline, time.Hour)
		failed, lost := w.one(midnight), w.one(midnight)
		w.finish(w.start(failed), store.Failed, 3)
		w.finish(w.start(lost), store.Lost, 0)
		w.Clock.Advance(time.Hour)
		require.Empty(t, w.turn().Counts)
		require.Equal(t, "waiting none", w.stands(failed), "it started in time")
		require.Equal(t, "waiting none", w.stands(lost))
	})
}

func TestABatchThatIsBornFinished_has_no_deadlines(t *testing.T) {
	each(t, func(w *world) {
		id := w.one(due(capri.OutputDeadline, time.Minute), due(capri.DayEndDeadline, time.Minute), func(b *capri.NewBatch) { b.State, b.FinishState = capri.Finished, capri.Skipped })
		require.Zero(t, w.Count("batch_deadline"))
		w.Clock.Advance(time.Hour)
		require.Empty(t, w.turn().Counts)
		require.Empty(t, w.alerts(id))
	})
}

func TestANewRun_has_deadlines_of_its_own(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, nil)
		first := w.NewBatch(task, due(capri.OutputDeadline, time.Hour))
		w.Insert(first)
		w.finish(w.start(first.ID), store.Failed, 0)
		w.Clock.Advance(30 * time.Minute)
		again := w.NewBatch(task, unmet, due(capri.OutputDeadline, time.Hour))
		again.BatchNo, again.RunNo, again.Origin = first.BatchNo, 1, capri.OriginRerun
		var err error
		again.ID, err = w.Store.ReserveBatchIDs(w.Ctx, 1)
		require.NoError(t, err)
		w.Write(func(tx *store.Tx) error { return tx.NewRun(first.ID, again) })

		w.Clock.Advance(30 * time.Minute)
		require.Empty(t, w.turn().Counts, "the first run does not count any more")
		w.Clock.Advance(30 * time.Minute)
		require.Equal(t, map[string]int{"output_timeout": 1}, w.turn().Counts)
		require.Contains(t, w.alerts(again.ID)["output_timeout"].Text, "60 minutes after 2026-11-20 10:00:00")
	})
}

func TestATurnThatDies_loses_no_alert_and_doubles_none(t *testing.T) {
	each(t, func(w *world) {
		const n = 1300 // with the outputs' four pages
		task := w.Task(t, nil)
		var batches []*capri.NewBatch
		for i := range n {
			b := w.NewBatch(task, unmet, due(capri.DependencyDeadline, time.Duration(i%7)*time.Minute))
			if i%2 == 0 {
				due(capri.OutputDeadline, 5*time.Minute)(b)
			}
			batches = append(batches, b)
		}
		w.Insert(batches...)
		w.Clock.Advance(time.Hour)
		// The clock is read at the begin of each transaction: there the turn dies, at its first page, at its second …
		ctx, die := context.WithCancel(w.Ctx)
		begun, last := 0, 0
		w.Options.Now = func() capri.Instant {
			if begun++; begun > last {
				die()
			}
			return w.Clock.Now()
		}
		service := timeout.Service{Store: w.Again(t), Zone: time.UTC}
		turn := func() error {
			begun = 0
			ctx, die = context.WithCancel(w.Ctx)
			defer die()
			_, err := service.Run(ctx, services.Turn{Now: w.Clock.Now(), Lease: w.Leads})
			return err
		}
		for ; last < 3; last++ {
			before := w.Count("batch_deadline")
			require.ErrorIs(t, turn(), context.Canceled)
			require.Equal(t, 500*last, before-w.Count("batch_deadline"), "each page that was written is done with")
		}
		last = 100
		require.NoError(t, turn())
		require.Zero(t, w.Count("batch_deadline"))
		require.Equal(t, n+n/2, w.Count("alert"))
		require.Equal(t, n+n/2, w.Count("batch_event"))
		require.Equal(t, n, w.Count("task_work WHERE dependency_timeout_at IS NOT NULL AND finish_state IN (4, 5)"))
		require.Equal(t, n/2, w.Count("task_work WHERE output_timeout_at IS NOT NULL"))
	})
}

func TestTurns_beside_others_that_make_and_end_batches_miss_nothing(t *testing.T) {
	each(t, func(w *world) {
		const makers, times, n = 3, 8, 40
		task := w.Task(t, nil)
		var waiting, ended []*capri.NewBatch
		for range makers * times * n {
			waiting = append(waiting, w.NewBatch(task, unmet, due(capri.OutputDeadline, 0), due(capri.DependencyDeadline, 0)))
			ended = append(ended, w.NewBatch(task, due(capri.OutputDeadline, 0)))
		}
		var making sync.WaitGroup
		for i := range makers {
			s := w.Again(t)
			making.Go(func() {
				for k := range times {
					from, to := (i*times+k)*n, (i*times+k+1)*n
					_, err := s.InsertBatches(w.Ctx, store.ByPerson("test"), slices.Concat(waiting[from:to], ended[from:to]), nil)
					if err == nil {
						ids := make([]capri.BatchID, n)
						for j, b := range ended[from:to] {
							ids[j] = b.ID
						}
						err = s.Write(w.Ctx, "test", "alice", func(tx *store.Tx) error {
							_, _, err := tx.RequestKill(ids, "not needed")
							return err
						})
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		made := make(chan struct{})
		go func() { making.Wait(); close(made) }()
		for over := false; !over; {
			select {
			case <-made:
				over = true // once more after the last
			default:
			}
			w.turn()
		}
		require.Zero(t, w.Count("batch_deadline"))
		const all = makers * times * n
		require.Equal(t, all, w.Count("alert WHERE kind = 'dependency_timeout'"))
		require.Equal(t, 2*all, w.Count("alert WHERE kind = 'output_timeout'"))
		require.Equal(t, 2*all, w.Count("task_work WHERE output_timeout_at IS NOT NULL"))
		require.Equal(t, all, w.Count("task_work WHERE state = 0 AND finish_state = 5"))
		require.Equal(t, all, w.Count("task_work WHERE state = 3 AND finish_state = 3"))
	})
}

func TestAStaleLeader_writes_nothing(t *testing.T) {
	each(t, func(w *world) {
		id := w.one(unmet, due(capri.DependencyDeadline, time.Minute))
		w.Clock.Advance(time.Minute)
		old := w.Leads
		w.Lead()
		_, err := w.service.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: old})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Empty(t, w.alerts(id))
		require.Equal(t, map[string]int{"dependency_timeout": 1}, w.turn().Counts)
	})
}

// A night on which everything is late is the one on which this must not be slow.
func BenchmarkTurn(b *testing.B) {
	for _, kind := range []struct {
		name string
		make func(testing.TB) *sqltest.DB
	}{{"sqlite", sqltest.SQLite}, {"mysql", sqltest.MySQL}} {
		b.Run(kind.name, func(b *testing.B) {
			db := kind.make(b)
			lease := db.Lease(b, "timeout")
			task := db.Task(b, nil)
			service := timeout.Service{Store: db.Store, Zone: time.UTC}
			const n = 10_000
			for round := 0; b.Loop(); round++ {
				b.StopTimer()
				now := db.Clock.Now()
				batches := make([]*capri.NewBatch, n)
				for i := range batches {
					batches[i] = &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: 1, Period: capri.Day, BatchNo: capri.BatchNo(strings.Join([]string{fmt.Sprint(round), fmt.Sprint(i)}, ".")), Latest: true,
						ScheduleTime: now, DataStart: now, DataEnd: now, Slots: 1, Concurrency: 1, Pool: "default", Strategy: capri.LeastLoaded},
						Deadlines: []capri.Deadline{{Kind: capri.OutputDeadline, Due: now}}}
				}
				for at := 0; at < n; at += 1000 {
					if _, err := db.Store.InsertBatches(b.Context(), store.ByPerson("bench"), batches[at:at+1000], nil); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				res, err := service.Run(b.Context(), services.Turn{Now: now, Lease: lease})
				if err != nil || res.Counts["output_timeout"] != n {
					b.Fatal(err, res.Counts)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "late/s")
		})
	}
}
