package store_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

const quarter = 90 * 24 * time.Hour

// archive does what the cleanup does in a night, and returns how many batches moved.
func (w *world) archiveOld() (moved int) {
	w.t.Helper()
	lease := w.Lease(w.t, "cleanup")
	before := w.Clock.Now().Add(-quarter)
	for after := capri.BatchID(0); ; {
		ids, next, err := w.Store.OldBatches(w.ctx, after, before, 3)
		require.NoError(w.t, err)
		n, err := w.Store.ArchiveBatches(w.ctx, lease, before, ids)
		require.NoError(w.t, err)
		moved += n
		if after = next; next == 0 {
			return moved
		}
	}
}

func (w *world) rowsIn(table string) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.Store.DB().QueryRowContext(w.ctx, "SELECT COUNT(*) FROM "+table).Scan(&n))
	return n
}

func (w *world) columns(table string) []string {
	w.t.Helper()
	rows, err := w.Store.DB().QueryContext(w.ctx, "SELECT * FROM "+table+" LIMIT 0")
	require.NoError(w.t, err)
	defer rows.Close()
	names, err := rows.Columns()
	require.NoError(w.t, err)
	require.NoError(w.t, rows.Err())
	return slices.Sorted(slices.Values(names))
}

// A column that somebody adds to task_work has to go with its batch.
func TestTheArchive_has_every_column_of_what_it_keeps(t *testing.T) {
	each(t, func(w *world) {
		batches, events := store.ArchivedColumns()
		for table, columns := range map[string][]string{
			"task_work": batches, "task_work_archive": append(slices.Clone(batches), "archived_at"), "batch_event": events, "batch_event_archive": events} {
			require.Equal(t, slices.Sorted(slices.Values(columns)), w.columns(table), table)
		}
	})
}

func TestAnOldBatch_moves_with_its_history_and_what_it_waited_for_goes(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task := w.Task(t, nil)
		out := capri.PathCondition{Path: "/x/20261119", Flag: "_SUCCESS"}
		c := waitsForThirdParty()
		c.Outputs = []capri.PathCondition{out}
		b := w.insert(w.batch(task, "20261119", c)).Made[0]
		w.say("ready")
		w.look()
		w.run(b.ID, store.Succeeded, 0)
		before, events := w.get(b.ID), w.events(b.ID)

		w.Clock.Advance(quarter)
		require.Zero(t, w.archiveOld(), "it finished ninety days ago, and not more")
		w.Clock.Advance(time.Millisecond)
		require.Equal(t, 1, w.archiveOld())
		require.Zero(t, w.archiveOld(), "and once")
		for _, table := range []string{"task_work", "batch_event", "task_data", "tthird_data", "tparent_data", "batch_deadline"} {
			require.Zero(t, w.rowsIn(table), table)
		}
		after := w.get(b.ID)
		require.True(t, after.Archived)
		after.Archived = false
		require.Equal(t, before, after)
		require.Equal(t, events, w.events(b.ID))
		require.NotEmpty(t, events)
	})
}

func (w *world) events(id capri.BatchID) []store.Event {
	w.t.Helper()
	events, err := w.Store.Events(w.ctx, id)
	require.NoError(w.t, err)
	return events
}

func TestWhatStaysHoweverOld(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task := w.Task(t, nil)
		out := capri.Conditions{Outputs: []capri.PathCondition{{Path: "/x"}}}
		waits := w.insert(w.batch(task, "1", waitsForThirdParty())).Made[0]
		doubtful := w.insert(w.batch(task, "2", out)).Made[0]
		replaced := w.insert(w.batch(task, "3", out)).Made[0]
		failed := w.insert(w.batch(task, "4", capri.Conditions{})).Made[0]
		runs := w.insert(w.batch(task, "5", capri.Conditions{})).Made[0]
		for _, b := range []*capri.NewBatch{doubtful, replaced, failed} {
			w.run(b.ID, store.Failed, 0)
		}
		w.start(runs.ID)
		again := w.rerun(replaced)
		w.run(again.ID, store.Succeeded, 0)
		w.Clock.Advance(2 * quarter)
		young := w.insert(w.batch(task, "6", capri.Conditions{})).Made[0]
		w.run(young.ID, store.Succeeded, 0)
		require.Equal(t, 3, w.archiveOld())
		for b, archived := range map[*capri.NewBatch]bool{waits: false, doubtful: false, replaced: true, again: true, failed: true, runs: false, young: false} {
			require.Equal(t, archived, w.get(b.ID).Archived, "batch_no %s run %d", b.BatchNo, b.RunNo)
		}
	})
}

// What keeps a reader from a half-written path is the row of the batch that failed to write it.
func TestAPathOfAFailedBatch_is_not_met_however_old_the_batch_is(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		path := capri.PathCondition{Path: "/x", Flag: "_SUCCESS"}
		p := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{Outputs: []capri.PathCondition{path}})).Made[0]
		w.run(p.ID, store.Failed, 0)
		w.Clock.Advance(2 * quarter)
		w.archiveOld()
		child := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{Inputs: []capri.PathCondition{path}})).Made[0]
		_, err := w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{path})
		require.NoError(t, err)
		require.Equal(t, 1, w.get(child.ID).Unmet)
	})
}

func TestAnArchivedParent_meets_its_children_if_it_succeeded(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		good, bad := w.Task(t, nil), w.Task(t, nil)
		g := w.insert(w.batch(good, "20261119", capri.Conditions{})).Made[0]
		b := w.insert(w.batch(bad, "20261119", capri.Conditions{})).Made[0]
		w.run(g.ID, store.Succeeded, 0)
		w.run(b.ID, store.Failed, 0)
		w.look()
		w.Clock.Advance(2 * quarter)
		require.Equal(t, 2, w.archiveOld())
		wait := func(parent *capri.Task) *capri.NewBatch {
			return w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{Parents: []capri.ParentCondition{{TaskID: parent.ID, BatchNo: "20261119"}}})).Made[0]
		}
		after, never := wait(good), wait(bad)
		w.look()
		require.Zero(t, w.get(after.ID).Unmet)
		require.Equal(t, 1, w.get(never.ID).Unmet)
		met, err := w.Store.HealUnmet(w.ctx, w.dependency)
		require.NoError(t, err)
		require.Zero(t, met)
		repaired, err := w.Store.SweepUnmet(w.ctx, w.dependency)
		require.NoError(t, err)
		require.Zero(t, repaired)

		rows, err := w.Store.ConditionsOf(w.ctx, never.ID)
		require.NoError(t, err)
		require.Equal(t, b.ID, rows[0].ParentBatchID, "why it waits can be followed into the archive")
		require.Equal(t, capri.Failed, rows[0].ParentFinish)
		unmet, err := w.Store.UnmetOf(w.ctx, []capri.BatchID{never.ID})
		require.NoError(t, err)
		require.Equal(t, rows, unmet[never.ID])

		// A retry proves again what it rests on, in the archive too.
		a := w.start(after.ID)
		w.finish(a, store.Failed, 3)
		require.Zero(t, w.get(after.ID).Unmet)
	})
}

func TestARunOfAnArchivedBatchNo_takes_its_place(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task := w.Task(t, nil)
		out := capri.PathCondition{Path: "/old/20261119"}
		old := w.insert(w.batch(task, "20261119", capri.Conditions{Outputs: []capri.PathCondition{out}})).Made[0]
		w.run(old.ID, store.Succeeded, 0)
		w.look()
		w.Clock.Advance(2 * quarter)
		require.Equal(t, 1, w.archiveOld())
		byParent := w.insert(w.batch(w.Task(t, nil), "1", capri.Conditions{Parents: []capri.ParentCondition{{TaskID: task.ID, BatchNo: "20261119"}}})).Made[0]
		byPath := w.insert(w.batch(w.Task(t, nil), "1", capri.Conditions{Inputs: []capri.PathCondition{out}})).Made[0]
		w.look()
		_, err := w.Store.MeetPaths(w.ctx, w.dependency, []capri.PathCondition{out})
		require.NoError(t, err)
		require.Zero(t, w.get(byParent.ID).Unmet)
		require.Zero(t, w.get(byPath.ID).Unmet)

		latest, err := w.Store.LatestRuns(w.ctx, task.ID, []capri.BatchNo{"20261119"})
		require.NoError(t, err)
		require.Equal(t, old.ID, latest["20261119"].ID)
		require.True(t, latest["20261119"].Archived)

		id, err := w.Store.ReserveBatchIDs(w.ctx, 1)
		require.NoError(t, err)
		next := w.batch(task, "20261119", capri.Conditions{}) // by a definition that writes elsewhere now
		next.ID, next.RunNo, next.Former = id, 1, []capri.PathCondition{out}
		w.write(func(tx *store.Tx) error { return tx.NewRun(old.ID, next) })
		require.False(t, w.get(old.ID).Latest)
		require.Equal(t, 1, w.get(byParent.ID).Unmet)
		require.Equal(t, 1, w.get(byPath.ID).Unmet, "it read what the archived run wrote")
		events := w.events(old.ID)
		require.Equal(t, "a new run of this batch_no takes its place", events[len(events)-1].Why)
		require.False(t, events[len(events)-1].Latest)

		w.look()
		require.Equal(t, 1, w.get(byParent.ID).Unmet, "the archived run does not count any more")
		err = w.Store.Write(w.ctx, "again", "alice", func(tx *store.Tx) error { return tx.NewRun(old.ID, next) })
		require.ErrorIs(t, err, capri.ErrConflict)
		w.run(next.ID, store.Succeeded, 0)
		w.look()
		require.Zero(t, w.get(byParent.ID).Unmet)
	})
}

func TestABatchNoOfTheArchive_is_present(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		tasks := w.Tasks(t, 2, func(int, *capri.Spec) {})
		old := w.insert(w.batch(tasks[0], "20261119", capri.Conditions{})).Made[0]
		same := *old
		w.run(old.ID, store.Succeeded, 0)
		w.Clock.Advance(2 * quarter)
		w.archiveOld()
		other := w.batch(tasks[1], "20261119", capri.Conditions{})
		in := w.insert(&same, other)
		require.Equal(t, []*capri.NewBatch{&same}, in.Present)
		require.Equal(t, []*capri.NewBatch{other}, in.Made)
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{Task: tasks[0].ID, Archived: true, AllRuns: true})
		require.NoError(t, err)
		require.Len(t, rows, 1)
	})
}

func TestALateChangeOfValidity_counts_archived_batches(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task := w.Task(t, func(s *capri.Spec) { s.Name = "t" })
		b := w.batch(task, "20261119", capri.Conditions{})
		b.ScheduleTime = w.Clock.Now().Add(time.Hour)
		w.insert(b)
		w.run(b.ID, store.Succeeded, 0)
		w.Clock.Advance(2 * quarter)
		w.archiveOld()
		w.Task(t, func(s *capri.Spec) { s.Name, s.Valid.From = "t", "2030-01-01 00:00:00" })
		refs, err := w.Store.ParentRefs(w.ctx)
		require.NoError(t, err)
		require.Equal(t, b.DataEnd, refs[task.ID].FirstMark, "its children still wait for the interval that there is, whenever it was asked for")
	})
}

func TestBatches_lists_the_archive_where_the_range_reaches_back(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		task := w.Task(t, nil)
		var old, young []capri.BatchID
		for i := range 3 {
			b := w.insert(w.batch(task, fmt.Sprint("old", i), capri.Conditions{})).Made[0]
			w.run(b.ID, store.Succeeded, 0)
			old = append(old, b.ID)
			w.Clock.Advance(time.Hour)
		}
		last := w.Clock.Now()
		w.Clock.Advance(2 * quarter)
		for i := range 2 {
			young = append(young, w.insert(w.batch(task, fmt.Sprint("new", i), capri.Conditions{})).Made[0].ID)
			w.Clock.Advance(time.Hour)
		}
		require.Equal(t, 3, w.archiveOld())
		slices.Reverse(old)
		slices.Reverse(young)
		all := slices.Concat(young, old)
		for _, c := range []struct {
			what string
			f    store.BatchFilter
			want []capri.BatchID
		}{
			{"without a range, what is new", store.BatchFilter{}, young},
			{"asked for", store.BatchFilter{Archived: true}, all},
			{"a range of long ago", store.BatchFilter{To: last}, old},
			{"a range from long ago", store.BatchFilter{From: sqltest.Start}, all},
			{"a range of today", store.BatchFilter{From: last.Add(quarter)}, young},
			{"of data of long ago", store.BatchFilter{To: last, Order: store.BatchOrder{Of: store.ByData}}, old},
			{"the first page", store.BatchFilter{Archived: true, Limit: 3}, all[:3]},
			{"the next page, from an archived one on", store.BatchFilter{Archived: true, After: store.BatchPosition{At: w.get(all[2]).ScheduleTime, ID: all[2]}, Limit: 5}, all[3:]},
			{"what waits", store.BatchFilter{From: sqltest.Start, States: []capri.State{capri.Waiting}}, young},
			{"what succeeded", store.BatchFilter{From: sqltest.Start, FinishStates: []capri.FinishState{capri.Success}}, old},
		} {
			rows, err := w.Store.Batches(w.ctx, c.f)
			require.NoError(t, err)
			var got []capri.BatchID
			for _, r := range rows {
				got = append(got, r.ID)
				require.Equal(t, slices.Contains(old, r.ID), r.Archived)
			}
			require.Equal(t, c.want, got, c.what)
		}
	})
}

// Archiving, meeting and running again at once: a child is released by a success that stands, and by nothing else.
func TestArchivingAtTheSameTime_neither_hides_a_parent_nor_doubles_it(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		const n = 40
		parents := w.Tasks(t, n, func(int, *capri.Spec) {})
		var runs, children []*capri.NewBatch
		for _, p := range parents {
			b := w.insert(w.batch(p, "20261119", capri.Conditions{})).Made[0]
			w.run(b.ID, store.Succeeded, 0)
			runs = append(runs, b)
		}
		w.look()
		w.Clock.Advance(2 * quarter)
		child := w.Task(t, nil)
		for i, p := range parents {
			children = append(children, w.batch(child, fmt.Sprint(i), capri.Conditions{Parents: []capri.ParentCondition{{TaskID: p.ID, BatchNo: "20261119"}}}))
		}
		w.insert(children...)
		lease := w.Lease(t, "cleanup")
		var wg sync.WaitGroup
		errs := make([]error, 3)
		wg.Go(func() {
			for _, b := range runs {
				if _, errs[0] = w.Store.ArchiveBatches(w.ctx, lease, w.Clock.Now().Add(-quarter), []capri.BatchID{b.ID}); errs[0] != nil {
					return
				}
			}
		})
		wg.Go(func() {
			changes, err := w.Store.DependencyChanges(w.ctx, 1000)
			if err == nil {
				_, err = w.Store.MeetChanged(w.ctx, w.dependency, changes)
			}
			errs[1] = err
		})
		wg.Go(func() {
			other := w.Again(t)
			for _, b := range runs { // a mark that is generated once more
				same := *b
				in, err := other.InsertBatches(w.ctx, store.ByPerson("test"), []*capri.NewBatch{&same}, nil)
				if err == nil && len(in.Made) > 0 {
					err = fmt.Errorf("batch_no of task %d exists twice", b.TaskID)
				}
				if errs[2] = err; err != nil {
					return
				}
			}
		})
		wg.Wait()
		require.Equal(t, []error{nil, nil, nil}, errs)
		for _, c := range children {
			require.Zero(t, w.get(c.ID).Unmet)
		}
		require.Equal(t, n, w.rowsIn("task_work_archive"))
		require.Equal(t, n, w.rowsIn("task_work"), "the children")
	})
}

func TestAStaleLeader_archives_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		w.run(b.ID, store.Succeeded, 0)
		w.Clock.Advance(2 * quarter)
		stale := w.Lease(t, "cleanup")
		w.Lease(t, "cleanup")
		_, err := w.Store.ArchiveBatches(w.ctx, stale, w.Clock.Now(), []capri.BatchID{b.ID})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.False(t, w.get(b.ID).Archived)
	})
}

func TestOldAlerts_are_forgotten_oldest_first(t *testing.T) {
	each(t, func(w *world) {
		for i := range 5 {
			w.write(func(tx *store.Tx) error {
				return tx.Alert(capri.Alert{Key: fmt.Sprint(i), Level: capri.Attention, Kind: "k", Title: "t"})
			})
			w.Clock.Advance(time.Hour)
		}
		lease := w.Lease(t, "cleanup")
		n, err := w.Store.ForgetAlerts(w.ctx, lease, w.Clock.Now().Add(-2*time.Hour), 2)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		rows, err := w.Store.Alerts(w.ctx, nil, 0, 10)
		require.NoError(t, err)
		require.Len(t, rows, 3)
		require.Equal(t, "2", rows[2].Key)
	})
}

func TestABatchThatIsMissing_is_found_and_nothing_else_is(t *testing.T) {
	each(t, func(w *world) {
		mark := w.Clock.Advance(time.Hour)
		w.Clock.Set(mark.Add(-time.Hour))
		tasks := w.Tasks(t, 8, func(i int, s *capri.Spec) {
			s.Name = fmt.Sprint("t", i)
			switch i {
			case 5:
				s.Enabled = false
			case 6:
				s.Valid.From = "2030-01-01 00:00:00"
			case 7:
				s.Period = capri.Week
			}
		})
		missing := func(p capri.Period) []capri.TaskID {
			ids, err := w.Store.MissingBatches(w.ctx, p, mark, "20261119", 100)
			require.NoError(t, err)
			return ids
		}
		w.Clock.Set(mark.Add(30 * time.Minute)) // disabled before the mark was made, and enabled again after it
		w.Task(t, func(s *capri.Spec) { s.Name, s.Enabled = "t4", false })
		w.Clock.Set(mark.Add(time.Hour))
		generate := w.Lease(t, "generate")
		require.NoError(t, w.Store.FailGeneration(w.ctx, generate, store.GenerateFailure{Period: capri.Day, Mark: mark, Task: tasks[1].ID, Error: "x"}, "t1"))
		w.insert(w.batch(tasks[2], "20261119", capri.Conditions{}))
		old := w.insert(w.batch(tasks[3], "20261119", capri.Conditions{})).Made[0]
		require.Empty(t, missing(capri.Day), "the mark is not complete")
		require.NoError(t, w.Store.CompleteMark(w.ctx, generate, store.Mark{Period: capri.Day, Mark: mark, StartedAt: mark, Expected: 3, Made: 2, Failed: 1}, tasks[1].ID))
		w.Clock.Advance(time.Hour)
		w.Task(t, func(s *capri.Spec) { s.Name, s.Enabled = "t4", true })
		w.Task(t, func(s *capri.Spec) { s.Name, s.Priority = "t0", 1 }) // an edit hides nothing
		w.register()
		w.run(old.ID, store.Succeeded, 0)
		require.Equal(t, []capri.TaskID{tasks[0].ID}, missing(capri.Day))
		require.Empty(t, missing(capri.Week))
		w.Clock.Advance(2 * quarter)
		require.Equal(t, 1, w.archiveOld())
		require.Equal(t, []capri.TaskID{tasks[0].ID}, missing(capri.Day))
	})
}

func TestThePlansOfTheArchive(t *testing.T) {
	each(t, func(w *world) {
		c := capri.Conditions{Parents: []capri.ParentCondition{{TaskID: 1, BatchNo: "never"}}}
		w.many(c)
		w.Clock.Advance(2 * quarter)
		lease := w.Lease(t, "cleanup")
		ids, _, err := w.Store.OldBatches(w.ctx, 0, w.Clock.Now(), 10_000)
		require.NoError(t, err)
		_, err = w.Store.ArchiveBatches(w.ctx, lease, w.Clock.Now(), ids)
		require.NoError(t, err)
		require.Equal(t, 2900, w.rowsIn("task_work_archive"))
		if w.Store.Dialect().Name == "mysql" {
			rows, err := w.Store.DB().QueryContext(w.ctx, "ANALYZE TABLE task_work, task_work_archive, task, tparent_data")
			require.NoError(t, err)
			rows.Close()
		}
		for name, c := range map[string]struct {
			text   func() (string, []any)
			uses   []string
			absent []string
		}{
			"the walk over old batches goes along the key": {func() (string, []any) { return store.OldBatchesText(0, w.Clock.Now(), 200) },
				[]string{"PRIMARY"}, []string{"filesort", "TEMP B-TREE", "task_work_"}},
			"a proof looks up one run in each table": {func() (string, []any) { return store.MeetText([]capri.BatchID{1, 2, 3}) },
				[]string{"task_work_latest|task_work_run", "task_work_archive_run"}, []string{"SCAN pw", "SCAN pa", "SCAN tparent"}},
			"missing batches are looked up by task and batch_no": {func() (string, []any) { return store.MissingText(capri.Day, w.Clock.Now(), "20261119", 100) },
				[]string{"task_work_run|task_work_latest"}, []string{"SCAN w", "SCAN a", "SCAN f"}},
		} {
			text, args := c.text()
			plan := strings.Join(w.plan(text, args), "\n")
			for _, use := range c.uses {
				if use == "PRIMARY" && w.Store.Dialect().Name == "sqlite" {
					use = "INTEGER PRIMARY KEY"
				}
				require.True(t, slices.ContainsFunc(strings.Split(use, "|"), func(key string) bool { return strings.Contains(plan, key) }), "%s: %s in\n%s", name, use, plan)
			}
			for _, not := range c.absent {
				require.NotContains(t, plan, not, name)
			}
		}
	})
}

func TestAClaimedBatchWhoseSnapshotIsPoisoned_fails_and_keeps_no_other_from_starting(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		tasks := w.Tasks(t, 3, func(int, *capri.Spec) {})
		var ids []capri.BatchID
		for _, task := range tasks {
			ids = append(ids, w.insert(w.batch(task, "20261119", capri.Conditions{})).Made[0].ID)
		}
		for text, task := range map[string]*capri.Task{"{": tasks[0], "null": tasks[2]} {
			for _, update := range []string{"UPDATE task_history SET definition = ? WHERE task_id = ?", "UPDATE task SET definition = ? WHERE id = ?"} {
				_, err := w.Store.DB().ExecContext(w.ctx, update, text, int64(task.ID))
				require.NoError(t, err)
			}
		}
		ready, err := w.Store.Ready(w.ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 10)
		require.NoError(t, err)
		require.Len(t, ready, 3, "placing reads no definition")
		for _, id := range ids {
			w.assign(id)
		}
		claimed, err := w.Store.Claim(w.ctx, node, boot, 10)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		require.Equal(t, ids[1], claimed[0].ID)
		alerts, err := w.Store.Alerts(w.ctx, nil, 0, 10)
		require.NoError(t, err)
		require.Len(t, alerts, 2)
		for _, i := range []int{0, 2} {
			require.Equal(t, capri.Failed, w.get(ids[i]).FinishState)
			require.Contains(t, w.get(ids[i]).Message, "version 1 of its task: the stored definition")
		}
	})
}

func TestAPoisonedTask_is_listed_with_what_is_wrong_and_cannot_be_saved(t *testing.T) {
	each(t, func(w *world) {
		tasks := w.Tasks(t, 3, func(i int, s *capri.Spec) { s.Name = fmt.Sprint("t", i) })
		_, err := w.Store.DB().ExecContext(w.ctx, "UPDATE task SET definition = '{' WHERE id = ?", int64(tasks[1].ID))
		require.NoError(t, err)
		all, err := w.Store.Tasks(w.ctx, store.TaskFilter{})
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.Empty(t, all[0].Broken)
		require.Contains(t, all[1].Broken, "cannot be read")
		_, err = w.Store.DB().ExecContext(w.ctx, "UPDATE task SET output_period = 99 WHERE id = ?", int64(tasks[0].ID))
		require.NoError(t, err)
		odd, err := w.Store.TaskByName(w.ctx, "t0")
		require.NoError(t, err)
		require.Zero(t, odd.Period)
		require.Contains(t, odd.Broken, "period")
		require.Equal(t, "t1", all[1].Name)
		require.Equal(t, "alice", all[1].Owner)
		err = w.Store.Write(w.ctx, "save", "alice", func(tx *store.Tx) error { return tx.SaveTask(all[1], 0, 0) })
		require.ErrorIs(t, err, capri.ErrConflict, "it would become the newest version")
	})
}
