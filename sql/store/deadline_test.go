package store_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/store"
)

func deadlines(b *capri.NewBatch, of ...capri.Deadline) *capri.NewBatch {
	b.Deadlines = of
	return b
}

func (w *world) count(what string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.Store.DB().QueryRowContext(w.ctx, "SELECT COUNT(*) FROM "+what, args...).Scan(&n))
	return n
}

func TestDeadlines_come_page_by_page_the_earliest_first(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, nil)
		now := w.Clock.Now()
		at := func(kind capri.DeadlineKind, minutes int) capri.Deadline {
			return capri.Deadline{Kind: kind, Due: now.Add(time.Duration(minutes) * time.Minute)}
		}
		a := deadlines(w.batch(task, "a", capri.Conditions{}), at(capri.OutputDeadline, 3), at(capri.DependencyDeadline, 3), at(capri.DayEndDeadline, 60))
		b := deadlines(w.batch(task, "b", capri.Conditions{}), at(capri.OutputDeadline, 3), at(capri.DependencyDeadline, 1))
		w.insert(a, b, w.batch(task, "none", capri.Conditions{}))
		require.Equal(t, 5, w.count("batch_deadline"))

		var seen []string
		var last store.DueDeadline
		for {
			page, err := w.Store.DueDeadlines(w.ctx, now.Add(3*time.Minute), last, 2)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, d := range page {
				seen = append(seen, fmt.Sprintf("%d.%d at %s", d.Batch-a.ID, d.Kind, d.Due.Sub(now)))
			}
			last = page[len(page)-1]
		}
		require.Equal(t, []string{"1.1 at 1m0s", "0.1 at 3m0s", "0.2 at 3m0s", "1.2 at 3m0s"}, seen)
	})
}

func TestDeadlines_of_a_batch_that_was_there_are_not_written_again(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, nil)
		due := capri.Deadline{Kind: capri.OutputDeadline, Due: w.Clock.Now()}
		w.insert(deadlines(w.batch(task, "a", capri.Conditions{}), due))
		w.insert(deadlines(w.batch(task, "a", capri.Conditions{}), due), deadlines(w.batch(task, "b", capri.Conditions{}), due))
		require.Equal(t, 2, w.count("batch_deadline"))
	})
}

func TestActing_leaves_what_it_did_not_read(t *testing.T) {
	each(t, func(w *world) {
		lease := w.Lease(t, "timeout")
		task := w.Task(t, nil)
		now := w.Clock.Now()
		due := []capri.Deadline{{Kind: capri.DependencyDeadline, Due: now}, {Kind: capri.OutputDeadline, Due: now}}
		first := deadlines(w.batch(task, "a", waitsForThirdParty()), due...)
		w.insert(first)
		page, err := w.Store.DueDeadlines(w.ctx, now, store.DueDeadline{}, 1)
		require.NoError(t, err)
		w.insert(deadlines(w.batch(task, "b", waitsForThirdParty()), due...)) // made late, due at once
		n, err := w.Store.ActOnDeadlines(w.ctx, lease, page, time.UTC)
		require.NoError(t, err)
		require.Equal(t, store.TimedOut{Dependency: 1}, n)
		require.Equal(t, 3, w.count("batch_deadline"), "the output of the first, and both of the second")
		n, err = w.Store.ActOnDeadlines(w.ctx, lease, nil, time.UTC)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestDueDeadlines_are_read_and_dropped_by_their_index(t *testing.T) {
	each(t, func(w *world) {
		tasks := w.Tasks(t, 100, func(int, *capri.Spec) {})
		now := w.Clock.Now()
		for round := range 30 {
			var batches []*capri.NewBatch
			for _, task := range tasks {
				batches = append(batches, deadlines(w.batch(task, fmt.Sprint(round), capri.Conditions{}), capri.Deadline{Kind: capri.OutputDeadline, Due: now.Add(time.Duration(round) * time.Hour)}))
			}
			w.insert(batches...)
		}
		for _, ask := range []func() (string, []any){
			func() (string, []any) { return store.DueText(now, store.DueDeadline{}, 500) },
			func() (string, []any) {
				return store.DueText(now.Add(time.Hour), store.DueDeadline{Batch: 7, Deadline: capri.Deadline{Kind: 1, Due: now}}, 500)
			},
		} {
			text, args := ask()
			plan := w.plan(text, args)
			if w.Store.Dialect().Name == "sqlite" {
				require.Equal(t, []string{"SEARCH d USING PRIMARY KEY (due>? AND due<?)", "SEARCH w USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN"}, plan, "and nothing is sorted")
			} else {
				require.Len(t, plan, 2)
				require.Contains(t, plan[0], "d · PRIMARY")
				require.Contains(t, plan[1], "w · PRIMARY")
				require.NotContains(t, strings.Join(plan, "\n"), "filesort")
			}
		}
	})
}

func TestDurations_are_read_through_the_days_events(t *testing.T) {
	each(t, func(w *world) {
		w.many(capri.Conditions{})
		for _, text := range store.EndedText() {
			plan := w.plan(text, nil)
			if w.Store.Dialect().Name == "sqlite" {
				require.Equal(t, "SEARCH e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", plan[0])
				require.Equal(t, "SEARCH w USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN", plan[1])
			} else {
				require.Contains(t, plan[0], "e · PRIMARY")
				require.Contains(t, plan[1], "w · PRIMARY")
			}
		}
	})
}

func TestTheFirstEventOfATime_is_found_among_gaps(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task := w.Task(t, nil)
		start := w.Clock.Now()
		ask := func(hours int) int64 {
			id, err := w.Store.FirstEvent(w.ctx, start.Add(time.Duration(hours)*time.Hour))
			require.NoError(t, err)
			return id
		}
		require.EqualValues(t, 1, ask(0), "there are no events")
		for i := range 20 {
			w.run(w.insert(w.batch(task, fmt.Sprint(i), capri.Conditions{})).Made[0].ID, store.Succeeded, 0)
			w.Clock.Advance(time.Hour)
		}
		_, err := w.Store.DB().ExecContext(w.ctx, "DELETE FROM batch_event WHERE at >= ? AND at < ?", int64(start.Add(3*time.Hour)), int64(start.Add(7*time.Hour)))
		require.NoError(t, err)
		for hours := -1; hours <= 21; hours++ {
			beyond := ask(hours)
			require.Zero(t, w.count("batch_event WHERE id < ? AND at >= ?", beyond, int64(start.Add(time.Duration(hours)*time.Hour))), "hour %d", hours)
			require.Zero(t, w.count("batch_event WHERE id >= ? AND at < ?", beyond, int64(start.Add(time.Duration(hours)*time.Hour))), "hour %d", hours)
		}
	})
}

func alertsOf(keys ...string) []capri.Alert {
	out := make([]capri.Alert, len(keys))
	for i, k := range keys {
		out[i] = capri.Alert{Key: k, Level: capri.Important, Kind: "test", Title: "about " + k}
	}
	return out
}

func TestManyAlerts_with_the_same_key_are_the_same_alert(t *testing.T) {
	each(t, func(w *world) {
		long := strings.Repeat("x", 300)
		raise := func(keys ...string) {
			w.write(func(tx *store.Tx) error { return tx.Alerts(alertsOf(keys...)) })
		}
		raise()
		require.Zero(t, w.count("alert"))
		raise("a", "b", "a", long)
		require.Equal(t, 3, w.count("alert"))
		raise("c", "b", long, "d")
		require.Equal(t, 5, w.count("alert"), "the new ones among the old are written")
		w.write(func(tx *store.Tx) error {
			if err := tx.Alert(alertsOf("a")[0]); err != nil {
				return err
			}
			return tx.Alerts(alertsOf("e", "a"))
		})
		require.Equal(t, 6, w.count("alert"), "an alert that is there already spoils nothing")
	})
}

func TestManyAlerts_of_several_writers_at_once_are_each_written_once(t *testing.T) {
	each(t, func(w *world) {
		const writers, rounds, each = 6, 10, 700 // more than one statement's worth
		var wg sync.WaitGroup
		for i := range writers {
			s := w.Store
			if i%2 == 0 {
				s = w.Again(t)
			}
			wg.Go(func() {
				for r := range rounds {
					keys := make([]string, each)
					for k := range keys {
						keys[k] = fmt.Sprintf("alert:%d", (r*each+k*(i+1))%(rounds*each))
					}
					if err := s.Write(w.ctx, "test", "alice", func(tx *store.Tx) error { return tx.Alerts(alertsOf(keys...)) }); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, rounds*each, w.count("alert"), "writer 0 raises each of them")
	})
}
