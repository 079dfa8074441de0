package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/store"
)

// other is a node of the same name in another directory, as it asks when it has watched a beat that stood still.
func (w *world) other(killAfter time.Duration) (capri.Node, error) {
	w.t.Helper()
	n := capri.Node{Name: node, BootID: "b2", Pool: "default", Slots: 1, CheckInterval: 5, KillAfter: killAfter}
	var seen *store.NameTakenError
	if err := w.Store.RegisterNode(w.ctx, n, "dir-2"); err != nil {
		require.ErrorAs(w.t, err, &seen)
		n.Beat = seen.Beat
		return n, w.Store.RegisterNode(w.ctx, n, "dir-2")
	}
	return n, nil
}

// hold registers the node with a lease and gives it a batch that runs.
func (w *world) hold(n capri.Node) capri.Attempt {
	w.t.Helper()
	n.Name, n.BootID, n.Pool, n.Slots, n.CheckInterval = node, boot, "default", 8, 5
	require.NoError(w.t, w.Store.RegisterNode(w.ctx, n, "dir-1"))
	b := w.insert(w.batch(w.Task(w.t, nil), "20261119", capri.Conditions{})).Made[0]
	w.assign(b.ID)
	claimed, err := w.Store.Claim(w.ctx, node, boot, 10)
	require.NoError(w.t, err)
	require.Len(w.t, claimed, 1)
	return capri.Attempt{Batch: b.ID, Number: 1}
}

func TestASilentNode_keeps_its_name_while_batches_may_run_there(t *testing.T) {
	each(t, func(w *world) {
		a := w.hold(capri.Node{KillAfter: time.Minute})
		_, err := w.other(time.Minute)
		require.ErrorIs(t, err, capri.ErrConflict)
		require.ErrorContains(t, err, "still holds 1 batches that may run")
		_, err = w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: a, Outcome: store.Succeeded}})
		require.NoError(t, err)
		_, err = w.other(time.Minute)
		require.NoError(t, err)
	})
}

func TestALostNode_gives_its_name_to_another_directory(t *testing.T) {
	each(t, func(w *world) {
		w.hold(capri.Node{KillAfter: time.Minute})
		_, err := w.Store.DB().ExecContext(w.ctx, "UPDATE capri_schedul_cluster SET lost = 1, lost_at = 1")
		require.NoError(t, err)
		_, err = w.other(time.Minute)
		require.NoError(t, err)
		nodes, err := w.Store.Nodes(w.ctx)
		require.NoError(t, err)
		require.False(t, nodes[0].Lost)
		require.Zero(t, nodes[0].LostAt)
		require.Equal(t, time.Minute, nodes[0].KillAfter)
	})
}

func TestASilentNode_whose_jobs_wait_for_a_person_keeps_its_name_and_standalone_does_not(t *testing.T) {
	each(t, func(w *world) {
		w.hold(capri.Node{LeaseWait: true})
		_, err := w.other(0)
		require.ErrorContains(t, err, "still holds 1 batches")
		require.NoError(t, w.Store.RegisterNode(w.ctx, capri.Node{Name: node, BootID: boot, Pool: "default", Slots: 8, CheckInterval: 5}, "dir-1"), "standalone: the database is in the directory")
		_, err = w.other(0)
		require.NoError(t, err)
	})
}

func TestLeaveNode_gives_the_name_up_unless_attempts_are_not_over(t *testing.T) {
	each(t, func(w *world) {
		a := w.hold(capri.Node{KillAfter: time.Minute})
		left, err := w.Store.LeaveNode(w.ctx, node, boot)
		require.NoError(t, err)
		require.False(t, left, "its job runs on")
		ok, err := w.Store.Beat(w.ctx, capri.Node{Name: node, BootID: boot})
		require.NoError(t, err)
		require.True(t, ok)

		_, err = w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: a, Outcome: store.Succeeded}})
		require.NoError(t, err)
		left, err = w.Store.LeaveNode(w.ctx, node, "somebody else's boot")
		require.NoError(t, err)
		require.False(t, left)
		left, err = w.Store.LeaveNode(w.ctx, node, boot)
		require.NoError(t, err)
		require.True(t, left)
		ok, err = w.Store.Beat(w.ctx, capri.Node{Name: node, BootID: boot})
		require.NoError(t, err)
		require.False(t, ok, "who has left does not beat")
		require.NoError(t, w.Store.RegisterNode(w.ctx, capri.Node{Name: node, BootID: "b3", Pool: "default", Slots: 1, CheckInterval: 5}, "dir-3"), "at once, unwatched")
	})
}

func TestAReport_of_an_attempt_that_was_given_away_changes_nothing(t *testing.T) {
	each(t, func(w *world) {
		a := w.hold(capri.Node{KillAfter: time.Minute})
		for _, r := range []store.Outcome{store.Lost, store.Succeeded, store.Lost} { // only the first finds it running
			_, err := w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: a, Outcome: r, Message: "it ended"}})
			require.NoError(t, err)
		}
		b := w.get(a.Batch)
		require.Equal(t, capri.Waiting, b.State)
		require.Equal(t, 1, b.Losses)
	})
}
