package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/store"
)

// gated inserts a batch with a quality gate.
func (w *world) gated(task *capri.Task, no string, c capri.Conditions) capri.BatchID {
	w.t.Helper()
	b := w.batch(task, no, c)
	b.QualityState = 1
	w.insert(b)
	return b.ID
}

// ask asks about a batch as the service does, and gives the question's number.
func (w *world) ask(lease capri.Lease, id capri.BatchID) int {
	w.t.Helper()
	asks, err := w.Store.BeginAsk(w.ctx, lease, []capri.BatchID{id})
	require.NoError(w.t, err)
	n, err := w.Store.Asked(w.ctx, lease, asks)
	require.NoError(w.t, err)
	require.Equal(w.t, 1, n)
	return asks[id]
}

func (w *world) verdict(id capri.BatchID, ask int, runnable bool) error {
	return w.Store.Write(w.ctx, "verdict", "judge", func(tx *store.Tx) error {
		_, err := tx.QualityVerdict(id, ask, runnable, "row counts")
		return err
	})
}

func (w *world) readyIDs() []capri.BatchID {
	w.t.Helper()
	ready, err := w.Store.Ready(w.ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 100)
	require.NoError(w.t, err)
	var ids []capri.BatchID
	for _, r := range ready {
		ids = append(ids, r.ID)
	}
	return ids
}

func (w *world) alerts(kind string) int {
	w.t.Helper()
	n := 0
	require.NoError(w.t, w.Store.DB().QueryRowContext(w.ctx, "SELECT COUNT(*) FROM alert WHERE kind = ?", kind).Scan(&n))
	return n
}

func TestAGate_opens_by_the_verdict_on_its_newest_question(t *testing.T) {
	each(t, func(w *world) {
		lease := w.Lease(t, "quality")
		id := w.gated(w.Task(t, nil), "20261119", capri.Conditions{})
		gated, err := w.Store.Gated(w.ctx, store.ReadyAfter{}, 10)
		require.NoError(t, err)
		require.Len(t, gated, 1)
		require.Equal(t, id, gated[0].ID)
		require.Empty(t, w.readyIDs())

		require.Equal(t, 1, w.ask(lease, id))
		require.Equal(t, 2, w.get(id).QualityState)
		gated, err = w.Store.Gated(w.ctx, store.ReadyAfter{}, 10)
		require.NoError(t, err)
		require.Empty(t, gated, "it was asked about")
		require.ErrorIs(t, w.verdict(id, 2, true), capri.ErrConflict, "that question was never asked")

		require.NoError(t, w.verdict(id, 1, false))
		require.Equal(t, 4, w.get(id).QualityState)
		require.Equal(t, 1, w.alerts("quality_blocked"))
		require.Empty(t, w.readyIDs())
		require.NoError(t, w.verdict(id, 1, false), "the same again, as after a lost answer")
		require.Equal(t, 1, w.alerts("quality_blocked"))

		require.NoError(t, w.verdict(id, 1, true), "a later verdict may differ")
		require.Equal(t, []capri.BatchID{id}, w.readyIDs())
		require.Empty(t, w.get(id).Message)
		events, err := w.Store.Events(w.ctx, id)
		require.NoError(t, err)
		var whys []string
		for _, e := range events {
			whys = append(whys, e.Who+": "+e.Why)
		}
		require.Equal(t, []string{"quality: the quality API was asked", "judge: quality gate: blocked: row counts", "judge: quality gate: runnable: row counts"}, whys)
	})
}

func TestAVerdictThatIsQuickerThanTheNoteOfItsQuestion_counts(t *testing.T) {
	each(t, func(w *world) {
		lease := w.Lease(t, "quality")
		id := w.gated(w.Task(t, nil), "20261119", capri.Conditions{})
		asks, err := w.Store.BeginAsk(w.ctx, lease, []capri.BatchID{id})
		require.NoError(t, err)
		require.NoError(t, w.verdict(id, asks[id], true))
		n, err := w.Store.Asked(w.ctx, lease, asks)
		require.NoError(t, err)
		require.Zero(t, n, "the note does not take the verdict back")
		require.Equal(t, 3, w.get(id).QualityState)
	})
}

func TestACrashBetweenAskingAndItsNote_asks_again_under_another_number(t *testing.T) {
	each(t, func(w *world) {
		lease := w.Lease(t, "quality")
		id := w.gated(w.Task(t, nil), "20261119", capri.Conditions{})
		first, err := w.Store.BeginAsk(w.ctx, lease, []capri.BatchID{id})
		require.NoError(t, err)
		require.Equal(t, first[id]+1, w.ask(lease, id), "nobody noted the first question")
		require.ErrorContains(t, w.verdict(id, first[id], true), "out of date")
		n, err := w.Store.Asked(w.ctx, lease, first)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, w.verdict(id, first[id]+1, true))
	})
}

func TestARevokedCondition_closes_the_gate_and_outdates_its_questions(t *testing.T) {
	for name, stand := range map[string]func(w *world, lease capri.Lease, id capri.BatchID) int{
		"runnable": func(w *world, lease capri.Lease, id capri.BatchID) int {
			ask := w.ask(lease, id)
			require.NoError(w.t, w.verdict(id, ask, true))
			return ask
		},
		"asked": func(w *world, lease capri.Lease, id capri.BatchID) int { return w.ask(lease, id) },
		"on the way": func(w *world, lease capri.Lease, id capri.BatchID) int {
			asks, err := w.Store.BeginAsk(w.ctx, lease, []capri.BatchID{id})
			require.NoError(w.t, err)
			return asks[id]
		},
		"blocked": func(w *world, lease capri.Lease, id capri.BatchID) int {
			ask := w.ask(lease, id)
			require.NoError(w.t, w.verdict(id, ask, false))
			return ask
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				lease := w.Lease(t, "quality")
				id := w.gated(w.Task(t, nil), "20261119", waitsForThirdParty())
				open := w.gated(w.Task(t, nil), "20261119", capri.Conditions{})
				said := func(word string) {
					require.NoError(w.t, w.Store.Write(w.ctx, "report", "them", func(tx *store.Tx) error {
						c := waitsForThirdParty().ThirdParty[0]
						return tx.ReportThirdParty(c.Code, c.Period, c.BatchNo, word)
					}))
					w.look()
				}
				said("ready")
				require.Zero(t, w.get(id).Unmet)
				ask := stand(w, lease, id)
				said("withdraw")
				b := w.get(id)
				require.Equal(t, []int{1, 1, ask + 1}, []int{b.Unmet, b.QualityState, b.QualityAsk})
				require.ErrorIs(t, w.verdict(id, ask, true), capri.ErrConflict)
				said("ready")
				require.NotContains(t, w.readyIDs(), id, "its gate is to be asked about again")
				require.ErrorContains(t, w.verdict(id, ask, true), "out of date", "that was about data that was withdrawn")
				again := w.ask(lease, id)
				require.Greater(t, again, ask+1)
				require.NoError(t, w.verdict(id, again, true))
				require.Equal(t, []capri.BatchID{id}, w.readyIDs())
				require.Equal(t, 0, w.get(open).QualityAsk, "others are left alone")
			})
		})
	}
}

func TestConditionsOfManyCounts_revoked_at_once_close_their_gates(t *testing.T) {
	each(t, func(w *world) {
		lease := w.Lease(t, "quality")
		code := func(c string) capri.ThirdPartyCondition {
			return capri.ThirdPartyCondition{Code: c, Period: capri.Day, BatchNo: "20261119"}
		}
		say := func(c, word string) {
			require.NoError(t, w.Store.Write(w.ctx, "report", "them", func(tx *store.Tx) error { return tx.ReportThirdParty(c, capri.Day, "20261119", word) }))
			w.look()
		}
		say("shared", "ready")
		var met, never []capri.BatchID
		for i := range 14 { // more different counts than are written one by one
			c := capri.Conditions{ThirdParty: []capri.ThirdPartyCondition{code("shared")}}
			for n := range i {
				c.ThirdParty = append(c.ThirdParty, code(fmt.Sprint("never", n)))
			}
			never = append(never, w.gated(w.Task(t, nil), "20261119", c))
		}
		met = append(met, w.gated(w.Task(t, nil), "20261119", capri.Conditions{ThirdParty: []capri.ThirdPartyCondition{code("shared")}}))
		w.look()
		asks := map[capri.BatchID]int{}
		for _, id := range met {
			asks[id] = w.ask(lease, id)
			require.NoError(t, w.verdict(id, asks[id], true))
		}
		say("shared", "fail")
		for _, id := range met {
			b := w.get(id)
			require.Equal(t, []int{1, 1, asks[id] + 1}, []int{b.Unmet, b.QualityState, b.QualityAsk})
		}
		for i, id := range never[1:] {
			b := w.get(id)
			require.Equal(t, []int{i + 2, 1, 0}, []int{b.Unmet, b.QualityState, b.QualityAsk}, "it never came to its gate")
		}
	})
}

func TestAVerdict_is_refused_where_there_is_nothing_to_judge(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		lease := w.Lease(t, "quality")
		task := w.Task(t, nil)
		plain := w.batch(task, "20261101", capri.Conditions{})
		w.insert(plain)
		waits := w.gated(task, "20261102", waitsForThirdParty())
		runs := w.gated(w.Task(t, nil), "20261103", capri.Conditions{})
		ask := w.ask(lease, runs)
		require.NoError(t, w.verdict(runs, ask, true))
		w.start(runs)

		require.ErrorIs(t, w.verdict(999_999, 1, true), capri.ErrNotFound)
		require.ErrorContains(t, w.verdict(plain.ID, 0, true), "has no quality gate")
		require.ErrorContains(t, w.verdict(waits, 0, true), "waits for 1 conditions")
		require.ErrorContains(t, w.verdict(runs, ask, false), "it is running")
		require.ErrorIs(t, w.verdict(runs, ask, false), capri.ErrConflict)
	})
}

func TestAnAssignment_does_not_pass_a_gate_that_was_closed_since_it_was_planned(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		lease := w.Lease(t, "quality")
		id := w.gated(w.Task(t, nil), "20261119", capri.Conditions{})
		ask := w.ask(lease, id)
		require.NoError(t, w.verdict(id, ask, true))
		require.Equal(t, []capri.BatchID{id}, w.readyIDs())
		require.NoError(t, w.verdict(id, ask, false))
		n, err := w.Store.Assign(w.ctx, w.dispatch, []store.Assignment{{Batch: id, Node: node}})
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestAStaleLease_asks_nothing(t *testing.T) {
	each(t, func(w *world) {
		old := w.Lease(t, "quality")
		id := w.gated(w.Task(t, nil), "20261119", capri.Conditions{})
		w.Lease(t, "quality")
		_, err := w.Store.BeginAsk(w.ctx, old, []capri.BatchID{id})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		_, err = w.Store.Asked(w.ctx, old, map[capri.BatchID]int{id: 0})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Equal(t, []int{1, 0}, []int{w.get(id).QualityState, w.get(id).QualityAsk})
	})
}

func TestGated_is_read_in_the_order_of_the_index_of_the_ready(t *testing.T) {
	each(t, func(w *world) {
		w.many(waitsForThirdParty())
		text, args := store.GatedText(500)
		plan := strings.Join(w.plan(text, args), "\n")
		require.Contains(t, plan, "task_work_ready")
		require.NotContains(t, plan, "filesort")
		require.NotContains(t, plan, "TEMP B-TREE")
	})
}

func TestLastEnded_tells_how_a_task_ended_last(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task := w.Task(t, nil)
		_, _, found, err := w.Store.LastEnded(w.ctx, task.Name)
		require.NoError(t, err)
		require.False(t, found)
		for i, outcome := range []store.Outcome{store.Failed, store.Succeeded} {
			b := w.batch(task, fmt.Sprint("2026112", i), capri.Conditions{})
			w.insert(b)
			w.Clock.Advance(time.Minute)
			w.run(b.ID, outcome, 0)
			how, at, found, err := w.Store.LastEnded(w.ctx, task.Name)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, w.Clock.Now(), at)
			require.Equal(t, []capri.FinishState{capri.Failed, capri.Success}[i], how)
		}
	})
}

func TestSettingInts_read_what_is_set_and_else_the_defaults(t *testing.T) {
	each(t, func(w *world) {
		w.Set(t, store.MastersSevere, "3")
		w.Set(t, store.ReadyImportant, "soon")
		w.Set(t, store.ClockOffsetMS, "-1")
		got, err := w.Store.SettingInts(w.ctx, store.MastersSevere, store.ReadyImportant, store.ClockOffsetMS, store.GenerateSevere)
		require.NoError(t, err)
		require.Equal(t, map[string]int{store.MastersSevere: 3, store.ReadyImportant: 5, store.ClockOffsetMS: 2000, store.GenerateSevere: 15}, got)
	})
}

func TestRepairs_are_found_among_the_turns_of_the_dependency_service(t *testing.T) {
	each(t, func(w *world) {
		now := w.Clock.Now()
		for i, counts := range []map[string]int{{"repaired": 2}, {"healed": 3}, {"met": 1}, {"repaired": 1, "healed": 1}} {
			require.NoError(t, w.Store.RecordRun(w.ctx, store.ServiceRun{Service: "dependency", Holder: "m", StartedAt: now.Add(time.Duration(i) * time.Minute), Counts: counts}))
		}
		require.NoError(t, w.Store.RecordRun(w.ctx, store.ServiceRun{Service: "other", Holder: "m", StartedAt: now.Add(time.Hour), Counts: map[string]int{"repaired": 9}}))
		got, err := w.Store.Repairs(w.ctx, now)
		require.NoError(t, err)
		require.Equal(t, []store.Repair{{At: now.Add(3 * time.Minute), Repaired: 1}}, got, "the first one is not after that instant")
	})
}
