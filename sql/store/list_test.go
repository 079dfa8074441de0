package store_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capri"
	"capri/sql/store"
)

// listed fills the store with batches of every kind, and gives their tasks.
func (w *world) listed(n int) []*capri.Task {
	w.t.Helper()
	groups, owners := []string{"dw", "ods", "d_w", "%"}, []string{"alice", "bob", "carol"}
	tasks := w.Tasks(w.t, 24, func(i int, s *capri.Spec) {
		s.Name, s.Group, s.Owner = fmt.Sprintf("t%d_%s", i%3, string(rune('a'+i))), groups[i%len(groups)], owners[i%len(owners)]
		s.Period = []capri.Period{capri.Day, capri.Day, capri.Hour, capri.Week}[i%4]
	})
	_, err := w.Store.DB().ExecContext(w.ctx, "INSERT INTO user (name, department, created_at) VALUES ('alice', 'data', 1), ('bob', 'data', 1), ('carol', 'ops', 1)")
	require.NoError(w.t, err)
	r := rand.New(rand.NewPCG(1, 2)) // the same each time
	var batches []*capri.NewBatch
	for i := range n {
		b := w.batch(tasks[r.IntN(len(tasks))], fmt.Sprint(i), capri.Conditions{})
		b.ScheduleTime = w.Clock.Now().Add(-time.Duration(r.IntN(50)) * time.Hour) // some have the same
		b.DataEnd = b.ScheduleTime.Add(-time.Duration(r.IntN(3)) * time.Hour)
		b.DataStart = b.DataEnd.Add(-time.Duration(r.IntN(3)) * 24 * time.Hour)
		batches = append(batches, b)
	}
	w.insert(batches...)
	ends := [][]int{{0, 0}, {0, 4}, {1, 0}, {2, 0}, {2, 5}, {3, 1}, {3, 1}, {3, 1}, {3, 2}, {3, 3}, {3, 6}}
	for _, b := range batches {
		end := ends[r.IntN(len(ends))]
		var node string
		var finish, latest any
		if end[0] > 0 {
			node = fmt.Sprint("n", r.IntN(3))
		}
		if end[0] == 3 {
			finish = int64(b.ScheduleTime.Add(time.Duration(r.IntN(9)) * time.Hour))
		}
		if r.IntN(5) > 0 {
			latest = 1
		}
		_, err := w.Store.DB().ExecContext(w.ctx, "UPDATE task_work SET state = ?, finish_state = ?, node = ?, finish_time = ?, latest = ? WHERE id = ?", end[0], end[1], node, finish, latest, int64(b.ID))
		require.NoError(w.t, err)
	}
	return tasks
}

// matches is the slow search: it looks at every batch.
func matches(f *store.BatchFilter, b *store.BatchRow, task *capri.Task, now capri.Instant) bool {
	is := func(asked, has string) bool { return asked == "" || asked == has }
	at := f.Order.Position(&b.Batch).At
	to := at
	if f.Order.Of == store.ByData {
		to = b.DataEnd
	}
	named, err := path.Match(cmp.Or(f.Name, "*"), b.Task)
	late := b.State != capri.Finished && (b.FinishState == capri.DependencyTimeout || b.FinishState == capri.OutputTimeout ||
		b.State == capri.Waiting && b.NotBefore < now && b.ScheduleTime < now)
	return err == nil && named && (f.Task == 0 || f.Task == b.TaskID) && is(f.Group, task.Group) && is(f.Owner, task.Owner) &&
		is(f.Department, map[string]string{"alice": "data", "bob": "data", "carol": "ops"}[task.Owner]) && is(f.Node, b.Node) && (f.Period == 0 || f.Period == b.Period) &&
		(len(f.States) == 0 || slices.Contains(f.States, b.State)) && (len(f.FinishStates) == 0 || slices.Contains(f.FinishStates, b.FinishState)) &&
		(!f.Late || late) && (f.AllRuns || b.Latest) && (f.From == 0 || at >= f.From) && (f.To == 0 || to <= f.To)
}

func TestALists_pages_are_what_a_slow_search_finds(t *testing.T) {
	each(t, func(w *world) {
		tasks := w.listed(400)
		byID := map[capri.TaskID]*capri.Task{}
		for _, task := range tasks {
			byID[task.ID] = task
		}
		all, err := w.Store.Batches(w.ctx, store.BatchFilter{AllRuns: true})
		require.NoError(t, err)
		require.Len(t, all, 400)
		w.ofCampaign(7, all)
		rapid.Check(t, func(rt *rapid.T) {
			maybe := func(what string, of ...string) string {
				return rapid.SampledFrom(append(slices.Repeat([]string{""}, 2+2*len(of)), of...)).Draw(rt, what)
			}
			f := store.BatchFilter{Name: maybe("name", "t1_*", "*", "*_a", "t_*", "%", "t0_a", "*0*"), Group: maybe("group", "dw", "%", "d_w", "none"), Owner: maybe("owner", "alice", "carol"),
				Department: maybe("department", "data", "nobody"), Node: maybe("node", "n0", "n1", "n9"), Late: rapid.IntRange(0, 5).Draw(rt, "late") == 0, AllRuns: rapid.Bool().Draw(rt, "all"),
				Order: store.BatchOrder{Of: store.BatchTime(rapid.IntRange(0, 1).Draw(rt, "by")), Oldest: rapid.Bool().Draw(rt, "oldest")}, Limit: rapid.SampledFrom([]int{5, 40, 500}).Draw(rt, "limit")}
			f.Campaign = capri.CampaignID(rapid.SampledFrom([]int{0, 0, 0, 7, 7, 8}).Draw(rt, "campaign"))
			if rapid.IntRange(0, 3).Draw(rt, "one task") == 0 {
				f.Task = rapid.SampledFrom(tasks).Draw(rt, "task").ID
			}
			if rapid.IntRange(0, 2).Draw(rt, "a period") == 0 {
				f.Period = rapid.SampledFrom([]capri.Period{capri.Day, capri.Hour, capri.Month}).Draw(rt, "period")
			}
			if rapid.Bool().Draw(rt, "of states") {
				f.States = rapid.SliceOfNDistinct(rapid.SampledFrom([]capri.State{0, 1, 2, 3}), 0, 4, rapid.ID).Draw(rt, "states")
			}
			if rapid.Bool().Draw(rt, "of finish states") {
				f.FinishStates = rapid.SliceOfNDistinct(rapid.SampledFrom([]capri.FinishState{0, 1, 2, 3, 4, 5, 6}), 0, 7, rapid.ID).Draw(rt, "finish states")
			}
			if rapid.IntRange(0, 2).Draw(rt, "a range") == 0 {
				f.From = w.Clock.Now().Add(-time.Duration(rapid.IntRange(10, 60).Draw(rt, "from")) * time.Hour)
				f.To = f.From.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "hours")) * time.Hour)
			}
			var want []store.BatchPosition
			for i := range all {
				if (f.Campaign == 0 || f.Campaign == 7 && i%7 == 0) && matches(&f, &all[i], byID[all[i].TaskID], w.Clock.Now()) {
					want = append(want, f.Order.Position(&all[i].Batch))
				}
			}
			slices.SortFunc(want, func(a, b store.BatchPosition) int {
				n := cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID))
				if !f.Order.Oldest {
					n = -n
				}
				return n
			})
			few := rapid.SampledFrom([]int{1, 30, 10_000}).Draw(rt, "few")
			if f.Order.Of == store.ByData {
				few = max(few, 41) // all of these may be sorted
			}
			var got []store.BatchPosition
			for {
				rows, err := w.Store.BatchesOfFew(w.ctx, f, few)
				if err != nil {
					rt.Fatal(err)
				}
				for _, row := range rows {
					got = append(got, f.Order.Position(&row.Batch))
				}
				if len(rows) < f.Limit || len(got) > len(want) {
					break
				}
				f.After = got[len(got)-1]
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("got %v, want %v", got, want)
			}
		})
	})
}

// ofCampaign makes every seventh batch one that runs for a campaign.
func (w *world) ofCampaign(id capri.CampaignID, all []store.BatchRow) {
	w.t.Helper()
	for i := range all {
		var batch capri.BatchID // an item that nothing runs for
		if i%7 == 0 {
			batch = all[i].ID
		}
		_, err := w.Store.DB().ExecContext(w.ctx, "INSERT INTO campaign_item (campaign_id, seq, state, action, task_id, task_version, batch_no, mark, data_start, data_end, priority, via, why, note,"+
			" old_batch_id, old_run_no, old_state, old_finish, batch_id, minutes) VALUES (?, ?, 2, 1, ?, 1, ?, 0, 0, 0, 1, -1, '', '', 0, 0, 0, 0, ?, -1)",
			int64(id), i, int64(all[i].TaskID), string(all[i].BatchNo), int64(batch))
		require.NoError(w.t, err)
	}
}

func TestTheBatchesOfACampaign_are_found_by_its_items(t *testing.T) {
	each(t, func(w *world) {
		w.listed(1000)
		all, err := w.Store.Batches(w.ctx, store.BatchFilter{AllRuns: true, Limit: 140})
		require.NoError(t, err)
		w.ofCampaign(7, all)
		if w.Store.Dialect().Name == "mysql" {
			rows, err := w.Store.DB().QueryContext(w.ctx, "ANALYZE TABLE task_work, campaign_item")
			require.NoError(t, err)
			rows.Close()
		}
		text, args, err := w.Store.CampaignListText(w.ctx, store.BatchFilter{Campaign: 7, Limit: 101}).ToSql()
		require.NoError(t, err)
		plan := strings.Join(w.plan(text, args), "\n")
		require.Regexp(t, `(?s)(SEARCH i USING PRIMARY KEY.*SEARCH w USING INTEGER PRIMARY KEY|i · PRIMARY.*w · PRIMARY)`, plan)
		found, err := w.Store.Batches(w.ctx, store.BatchFilter{Campaign: 7, AllRuns: true})
		require.NoError(t, err)
		require.Len(t, found, 20)
	})
}

func TestEachWayToABatch_is_a_walk_on_its_index(t *testing.T) {
	each(t, func(w *world) {
		tasks := w.listed(2000)
		if w.Store.Dialect().Name == "mysql" {
			rows, err := w.Store.DB().QueryContext(w.ctx, "ANALYZE TABLE task_work, task")
			require.NoError(t, err)
			rows.Close()
		}
		bySchedule := store.BatchFilter{Task: tasks[0].ID, States: []capri.State{capri.Finished}, FinishStates: []capri.FinishState{capri.Failed}, Node: "n1", Period: capri.Day, From: w.Clock.Now().Add(-20 * time.Hour),
			After: store.BatchPosition{At: w.Clock.Now().Add(-time.Hour), ID: 77}, Limit: 101}
		for order, inOrder := range map[store.BatchTime][]string{
			store.BySchedule: {"task_work_node", "task_work_finish_state", "task_work_period", "task_work_schedule"},
			store.ByData:     {},
		} {
			for _, oldest := range []bool{false, true} {
				f := bySchedule
				f.Order = store.BatchOrder{Of: order, Oldest: oldest}
				texts, err := w.Store.ListTexts(w.ctx, f)
				require.NoError(t, err)
				for index, statements := range texts {
					for _, q := range statements {
						text, args, err := q.ToSql()
						require.NoError(t, err)
						plan := strings.Join(w.plan(text, args), "\n")
						require.Contains(t, plan, index, text)
						if slices.Contains(inOrder, index) {
							for _, bad := range []string{"filesort", "TEMP B-TREE", "temporary"} {
								require.NotContains(t, plan, bad, text)
							}
						}
					}
				}
			}
		}
	})
}

func TestAListByData_that_nothing_narrows_is_refused_and_says_what_would_be_right(t *testing.T) {
	each(t, func(w *world) {
		tasks := w.listed(400)
		f := store.BatchFilter{AllRuns: true, Order: store.BatchOrder{Of: store.ByData}}
		_, err := w.Store.BatchesOfFew(w.ctx, f, 40) // ten times as many may be sorted
		require.ErrorContains(t, err, "by_data")
		require.ErrorContains(t, err, "a filter that fewer than 400 batches meet")
		f.Task = tasks[0].ID
		rows, err := w.Store.BatchesOfFew(w.ctx, f, 40)
		require.NoError(t, err)
		require.NotEmpty(t, rows)
	})
}
