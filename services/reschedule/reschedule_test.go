package reschedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/services"
	"capri/services/dispatch"
	"capri/services/reschedule"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

type world struct {
	*sqltest.DB
	t       *testing.T
	ctx     context.Context
	lease   capri.Lease
	service reschedule.Service
	placer  *dispatch.Service
	days    int
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		utc := calendar.New(time.UTC)
		fn(&world{DB: db, t: t, ctx: t.Context(), lease: db.Lease(t, "dispatch"), service: reschedule.Service{Store: db.Store, Calendar: utc, Log: slog.New(slog.DiscardHandler)},
			placer: dispatch.New(db.Store, utc, rand.New(rand.NewPCG(1, 1)))})
	})
}

func (w *world) node(name string, slots int) {
	w.t.Helper()
	require.NoError(w.t, w.Store.RegisterNode(w.ctx, capri.Node{Name: name, BootID: "boot", Pool: "default", Slots: slots, CheckInterval: 5}, name))
}

func (w *world) batches(n int) []capri.BatchID {
	w.t.Helper()
	task := w.Task(w.t, nil)
	now := w.Clock.Now()
	var batches []*capri.NewBatch
	for range n {
		w.days++
		batches = append(batches, &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: task.Version, Period: capri.Day, BatchNo: capri.BatchNo(fmt.Sprint("d", w.days)), Latest: true,
			ScheduleTime: now, DataStart: now, DataEnd: now, Priority: 5, Slots: 1, Concurrency: 1000, Pool: "default", Strategy: capri.LeastLoaded}})
	}
	_, err := w.Store.InsertBatches(w.ctx, store.ByPerson("test"), batches, nil)
	require.NoError(w.t, err)
	ids := make([]capri.BatchID, n)
	for i, b := range batches {
		ids[i] = b.ID
	}
	return ids
}

func (w *world) assign(node string, ids ...capri.BatchID) {
	w.t.Helper()
	var to []store.Assignment
	for _, id := range ids {
		to = append(to, store.Assignment{Batch: id, Node: node})
	}
	n, err := w.Store.Assign(w.ctx, w.lease, to)
	require.NoError(w.t, err)
	require.Equal(w.t, len(ids), n)
}

func (w *world) turn(s services.Service) services.Result {
	w.t.Helper()
	res, err := s.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: w.lease})
	require.NoError(w.t, err)
	return res
}

func (w *world) get(id capri.BatchID) capri.Batch {
	w.t.Helper()
	row, err := w.Store.Batch(w.ctx, id)
	require.NoError(w.t, err)
	return row.Batch
}

func (w *world) alerts() []store.AlertRow {
	w.t.Helper()
	rows, err := w.Store.Alerts(w.ctx, 100)
	require.NoError(w.t, err)
	return rows
}

// logged counts the rows of capri_reschedule_log.
func (w *world) logged(where string, args ...any) int {
	w.t.Helper()
	n := 0
	require.NoError(w.t, w.Store.DB().QueryRowContext(w.ctx, "SELECT COUNT(*) FROM capri_reschedule_log WHERE "+where, args...).Scan(&n))
	return n
}

func TestWhatIsNotClaimed_goes_to_another_node_and_leaves_a_line(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		w.node("n2", 1)
		ids := w.batches(2)
		assigned := w.Clock.Now()
		w.assign("n1", ids...)
		w.Clock.Advance(4 * time.Minute)
		require.Empty(t, w.turn(w.service).Counts, "it has five minutes")
		w.Clock.Advance(time.Minute)
		require.Equal(t, services.Result{Counts: map[string]int{"taken": 2}, Wake: []string{wake.Dispatch}}, w.turn(w.service))
		for _, id := range ids {
			b := w.get(id)
			require.Equal(t, []any{capri.Waiting, "", "n1", capri.Instant(0), 1}, []any{b.State, b.Node, b.AvoidNode, b.AssignTime, b.Attempt})
			require.Contains(t, b.Message, "node n1")
			require.Equal(t, 1, w.logged("batch_id = ? AND task_id = ? AND attempt = 1 AND node = 'n1' AND assign_time = ? AND taken_at = ?", int64(id), int64(b.TaskID), int64(assigned), int64(w.Clock.Now())))
		}
		require.Empty(t, w.turn(w.service).Counts)
		require.Equal(t, 1, w.turn(w.placer).Counts["assigned"])
		require.Equal(t, []any{"n2", 2}, []any{w.get(ids[0]).Node, w.get(ids[0]).Attempt})
		require.Equal(t, capri.Waiting, w.get(ids[1]).State, "the other node is full, and n1 did not claim it")
		w.Clock.Advance(time.Minute)
		require.Equal(t, 1, w.turn(w.placer).Counts["assigned"])
		require.Equal(t, "n1", w.get(ids[1]).Node, "after a minute it may go back: the other node may be full for hours")
	})
}

func TestABatch_whose_only_node_did_not_claim_it_goes_back_at_once(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		ids := w.batches(1)
		w.assign("n1", ids...)
		w.Clock.Advance(5 * time.Minute)
		w.turn(w.service)
		require.Equal(t, 1, w.turn(w.placer).Counts["assigned"])
		require.Equal(t, []any{"n1", 2}, []any{w.get(ids[0]).Node, w.get(ids[0]).Attempt})
	})
}

func TestAWorker_that_claims_before_the_taking_back_is_written_keeps_the_batch(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		ids := w.batches(2)
		w.assign("n1", ids...)
		w.Clock.Advance(5 * time.Minute)
		overdue, err := w.Store.Overdue(w.ctx, w.Clock.Now(), 0, 10)
		require.NoError(t, err)
		require.Len(t, overdue, 2)
		claimed, err := w.Store.Claim(w.ctx, "n1", "boot", 1)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		// The other one was taken back and given to the same node meanwhile: another attempt.
		n, err := w.Store.Reschedule(w.ctx, w.lease, overdue, store.TakenLimits{})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		w.assign("n1", ids[1])
		n, err = w.Store.Reschedule(w.ctx, w.lease, overdue, store.TakenLimits{})
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, capri.Running, w.get(ids[0]).State)
		require.Equal(t, capri.Assigned, w.get(ids[1]).State)
		require.Equal(t, 1, w.logged("1 = 1"))
	})
}

func TestABatch_that_may_not_start_any_more_is_left_where_it_is(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		ids := w.batches(1)
		w.assign("n1", ids...)
		w.Set(t, store.LatestScheduleTime, "2026-11-20 09:00:00") // its schedule_time is 09:30
		w.Clock.Advance(time.Hour)
		require.Empty(t, w.turn(w.service).Counts)
		w.Set(t, store.LatestScheduleTime, "next week")
		require.Equal(t, 1, w.turn(w.service).Counts["taken"], "a broken setting does not stop the service")
	})
}

func TestTheMinutes_are_a_setting(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		w.assign("n1", w.batches(1)...)
		w.Set(t, store.RescheduleMinutes, "12")
		w.Clock.Advance(11 * time.Minute)
		require.Empty(t, w.turn(w.service).Counts)
		w.Set(t, store.RescheduleMinutes, "soon") // its default, 5
		require.Equal(t, 1, w.turn(w.service).Counts["taken"])
	})
}

// take assigns and takes back so many batches.
func (w *world) take(node string, n int) {
	w.t.Helper()
	w.assign(node, w.batches(n)...)
	w.Clock.Advance(5 * time.Minute)
	require.Equal(w.t, n, w.turn(w.service).Counts["taken"])
}

func TestANode_from_which_much_is_taken_is_told_once_per_level_and_half_hour(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 100)
		w.node("n2", 100)
		w.take("n1", 3)
		w.take("n2", 2)
		require.Empty(t, w.alerts(), "three within ten minutes are not more than three")
		w.take("n1", 1)
		a := w.alerts()
		require.Empty(t, a, "the first three are ten minutes old")
		w.take("n1", 3)
		a = w.alerts()
		require.Len(t, a, 1)
		require.Equal(t, []any{capri.Important, "rescheduled"}, []any{a[0].Level, a[0].Kind})
		require.Contains(t, a[0].Title, "n1")
		w.take("n1", 3) // six within ten minutes
		a = w.alerts()
		require.Len(t, a, 2)
		require.Equal(t, capri.Severe, a[0].Level)
		w.take("n1", 6)
		require.Len(t, w.alerts(), 3, "another half hour has begun")
		w.take("n1", 6)
		require.Len(t, w.alerts(), 3)
	})
}

func TestThirtyMinutes_have_limits_of_their_own_and_zero_is_none(t *testing.T) {
	each(t, func(w *world) {
		for _, name := range []string{store.RescheduledIn10Important, store.RescheduledIn10Severe, store.RescheduledIn30Important} {
			w.Set(t, name, "0")
		}
		w.node("n1", 100)
		for range 3 {
			w.take("n1", 5)
		}
		require.Empty(t, w.alerts(), "fifteen are not more than fifteen")
		w.take("n1", 1)
		require.Len(t, w.alerts(), 1)
		require.Equal(t, capri.Severe, w.alerts()[0].Level)
	})
}

func TestAStaleLeader_takes_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		ids := w.batches(1)
		w.assign("n1", ids...)
		w.Clock.Advance(5 * time.Minute)
		w.Lease(t, "dispatch")
		_, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: w.lease})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Equal(t, capri.Assigned, w.get(ids[0]).State)
		require.Zero(t, w.logged("1 = 1"))
	})
}
