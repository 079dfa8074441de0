package reschedule_test

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/internal/servicetest"
	"capri/services"
	"capri/services/dispatch"
	"capri/services/reschedule"
	"capri/sql/store"
	"capri/wake"
)

type world struct {
	*servicetest.World
	service reschedule.Service
	placer  *dispatch.Service
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	utc := calendar.New(time.UTC)
	servicetest.Each(t, "dispatch", func(w *servicetest.World) {
		fn(&world{World: w, service: reschedule.Service{Store: w.Store, Calendar: utc, Log: slog.New(slog.DiscardHandler)}, placer: dispatch.New(w.Store, utc, rand.New(rand.NewPCG(1, 1)))})
	})
}

// node registers a node with so many slots.
func (w *world) node(name string, slots int) {
	w.T.Helper()
	w.Node(name, func(n *capri.Node) { n.Slots = slots })
}

// batches are of a task of their own.
func (w *world) batches(n int) []capri.BatchID { return w.Batches(w.Task(w.T, nil), n) }

func TestWhatIsNotClaimed_goes_to_another_node_and_leaves_a_line(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		w.node("n2", 1)
		ids := w.batches(2)
		assigned := w.Clock.Now()
		w.Assign("n1", ids...)
		w.Clock.Advance(4 * time.Minute)
		require.Empty(t, w.Turn(w.service).Counts, "it has five minutes")
		w.Clock.Advance(time.Minute)
		require.Equal(t, services.Result{Counts: map[string]int{"taken": 2}, Wake: []string{wake.Dispatch}}, w.Turn(w.service))
		for _, id := range ids {
			b := w.Get(id)
			require.Equal(t, []any{capri.Waiting, "", "n1", capri.Instant(0), 1}, []any{b.State, b.Node, b.AvoidNode, b.AssignTime, b.Attempt})
			require.Contains(t, b.Message, "node n1")
			require.Equal(t, 1, w.Count("capri_reschedule_log WHERE batch_id = ? AND task_id = ? AND attempt = 1 AND node = 'n1' AND assign_time = ? AND taken_at = ?", int64(id), int64(b.TaskID), int64(assigned), int64(w.Clock.Now())))
		}
		require.Empty(t, w.Turn(w.service).Counts)
		require.Equal(t, 1, w.Turn(w.placer).Counts["assigned"])
		require.Equal(t, []any{"n2", 2}, []any{w.Get(ids[0]).Node, w.Get(ids[0]).Attempt})
		require.Equal(t, capri.Waiting, w.Get(ids[1]).State, "the other node is full, and n1 did not claim it")
		w.Clock.Advance(time.Minute)
		require.Equal(t, 1, w.Turn(w.placer).Counts["assigned"])
		require.Equal(t, "n1", w.Get(ids[1]).Node, "after a minute it may go back: the other node may be full for hours")
	})
}

func TestABatch_whose_only_node_did_not_claim_it_goes_back_at_once(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		ids := w.batches(1)
		w.Assign("n1", ids...)
		w.Clock.Advance(5 * time.Minute)
		w.Turn(w.service)
		require.Equal(t, 1, w.Turn(w.placer).Counts["assigned"])
		require.Equal(t, []any{"n1", 2}, []any{w.Get(ids[0]).Node, w.Get(ids[0]).Attempt})
	})
}

func TestAWorker_that_claims_before_the_taking_back_is_written_keeps_the_batch(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		ids := w.batches(2)
		w.Assign("n1", ids...)
		w.Clock.Advance(5 * time.Minute)
		overdue, err := w.Store.Overdue(w.Ctx, w.Clock.Now(), 0, 10)
		require.NoError(t, err)
		require.Len(t, overdue, 2)
		claimed, err := w.Store.Claim(w.Ctx, "n1", "boot", 1)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		// The other one was taken back and given to the same node meanwhile: another attempt.
		n, err := w.Store.Reschedule(w.Ctx, w.Leads, overdue, store.TakenLimits{})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		w.Assign("n1", ids[1])
		n, err = w.Store.Reschedule(w.Ctx, w.Leads, overdue, store.TakenLimits{})
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, capri.Running, w.Get(ids[0]).State)
		require.Equal(t, capri.Assigned, w.Get(ids[1]).State)
		require.Equal(t, 1, w.Count("capri_reschedule_log"))
	})
}

func TestABatch_that_may_not_start_any_more_is_left_where_it_is(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		ids := w.batches(1)
		w.Assign("n1", ids...)
		w.Set(t, store.LatestScheduleTime, "2026-11-20 09:00:00") // its schedule_time is 09:30
		w.Clock.Advance(time.Hour)
		require.Empty(t, w.Turn(w.service).Counts)
		w.Set(t, store.LatestScheduleTime, "next week")
		require.Equal(t, 1, w.Turn(w.service).Counts["taken"], "a broken setting does not stop the service")
	})
}

func TestTheMinutes_are_a_setting(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		w.Assign("n1", w.batches(1)...)
		w.Set(t, store.RescheduleMinutes, "12")
		w.Clock.Advance(11 * time.Minute)
		require.Empty(t, w.Turn(w.service).Counts)
		w.Set(t, store.RescheduleMinutes, "soon") // its default, 5
		require.Equal(t, 1, w.Turn(w.service).Counts["taken"])
	})
}

// take assigns and takes back so many batches.
func (w *world) take(node string, n int) {
	w.T.Helper()
	w.Assign(node, w.batches(n)...)
	w.Clock.Advance(5 * time.Minute)
	require.Equal(w.T, n, w.Turn(w.service).Counts["taken"])
}

func TestANode_from_which_much_is_taken_is_told_once_per_level_and_half_hour(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 100)
		w.node("n2", 100)
		w.take("n1", 3)
		w.take("n2", 2)
		require.Empty(t, w.Alerts(), "three within ten minutes are not more than three")
		w.take("n1", 1)
		a := w.Alerts()
		require.Empty(t, a, "the first three are ten minutes old")
		w.take("n1", 3)
		a = w.Alerts()
		require.Len(t, a, 1)
		require.Equal(t, []any{capri.Important, "rescheduled"}, []any{a[0].Level, a[0].Kind})
		require.Contains(t, a[0].Title, "n1")
		w.take("n1", 3) // six within ten minutes
		a = w.Alerts()
		require.Len(t, a, 2)
		require.Equal(t, capri.Severe, a[0].Level)
		w.take("n1", 6)
		require.Len(t, w.Alerts(), 3, "another half hour has begun")
		w.take("n1", 6)
		require.Len(t, w.Alerts(), 3)
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
		require.Empty(t, w.Alerts(), "fifteen are not more than fifteen")
		w.take("n1", 1)
		require.Len(t, w.Alerts(), 1)
		require.Equal(t, capri.Severe, w.Alerts()[0].Level)
	})
}

func TestAStaleLeader_takes_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", 10)
		ids := w.batches(1)
		w.Assign("n1", ids...)
		w.Clock.Advance(5 * time.Minute)
		w.Lease(t, "dispatch")
		_, err := w.service.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: w.Leads})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Equal(t, capri.Assigned, w.Get(ids[0]).State)
		require.Zero(t, w.Count("capri_reschedule_log"))
	})
}
