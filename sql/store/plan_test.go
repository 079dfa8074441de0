package store_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/store"
)

// plan gives what EXPLAIN says, a line for each table: on MySQL its name, key and remarks.
func (w *world) plan(text string, args []any) []string {
	w.t.Helper()
	head, columns := "EXPLAIN ", []string{"table", "key", "Extra"}
	if w.Store.Dialect().Name == "sqlite" {
		head, columns = "EXPLAIN QUERY PLAN ", []string{"detail"}
	}
	rows, err := w.Store.DB().QueryContext(w.ctx, head+text, args...)
	require.NoError(w.t, err)
	defer rows.Close()
	names, err := rows.Columns()
	require.NoError(w.t, err)
	var lines []string
	for rows.Next() {
		values, dest := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			dest[i] = &values[i]
		}
		require.NoError(w.t, rows.Scan(dest...))
		var line []string
		for _, c := range columns {
			for i, name := range names {
				if name == c {
					line = append(line, values[i].String)
				}
			}
		}
		lines = append(lines, strings.Join(line, " · "))
	}
	require.NoError(w.t, rows.Err())
	return lines
}

// many inserts a hundred ready batches among thousands that wait and have ended.
func (w *world) many(c capri.Conditions) {
	tasks := w.Tasks(w.t, 100, func(int, *capri.Spec) {})
	for round := range 60 {
		var batches []*capri.NewBatch
		for _, task := range tasks {
			b := w.batch(task, fmt.Sprint(round), c)
			switch {
			case round == 0:
				b.Conditions = capri.Conditions{}
			case round > 30:
				b.Conditions, b.State, b.FinishState = capri.Conditions{}, capri.Finished, capri.Success
			}
			batches = append(batches, b)
		}
		w.insert(batches...)
	}
}

func TestReady_is_read_in_the_order_of_its_index(t *testing.T) {
	each(t, func(w *world) {
		w.many(waitsForThirdParty())
		want := []string{"w · task_work_ready · Using where", "t · PRIMARY · Using where"}
		if w.Store.Dialect().Name == "sqlite" { // and no TEMP B-TREE
			want = []string{"SEARCH w USING INDEX task_work_ready (state=? AND unmet=?)", "SEARCH t USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN"}
		}
		text, args := store.ReadyText(w.Clock.Now(), 2000)
		require.Equal(t, want, w.plan(text, args), "with the statistics of an empty table")
		if w.Store.Dialect().Name == "mysql" {
			rows, err := w.Store.DB().QueryContext(w.ctx, "ANALYZE TABLE task_work, task")
			require.NoError(t, err)
			rows.Close()
			require.Equal(t, want, w.plan(text, args))
		}
	})
}

func TestARecount_looks_at_the_conditions_of_its_batches_alone(t *testing.T) {
	each(t, func(w *world) {
		w.many(capri.Conditions{Inputs: []capri.PathCondition{{Path: "/never"}}})
		text, args := store.RecountText([]capri.BatchID{1, 2, 3})
		plan := strings.Join(w.plan(text, args), "\n")
		require.NotContains(t, plan, "task_data_path", "that index leads to every unmet path there is")
		require.NotContains(t, plan, "SCAN")
	})
}

func TestWhat_the_alert_service_asks_all_the_time_is_a_walk_on_an_index(t *testing.T) {
	each(t, func(w *world) {
		for index, q := range w.Store.AlertTexts(w.Clock.Now()) {
			text, args, err := q.ToSql()
			require.NoError(t, err)
			plan := strings.Join(w.plan(text, args), "\n")
			require.Contains(t, plan, index)
			for _, bad := range []string{"SCAN", "filesort", "TEMP B-TREE"} {
				require.NotContains(t, plan, bad, text)
			}
		}
	})
}

func TestWhat_monitoring_asks_all_the_time_is_a_walk_on_an_index(t *testing.T) {
	each(t, func(w *world) {
		for index, q := range store.GaugeTexts(w.Clock.Now()) {
			text, args, err := q.ToSql()
			require.NoError(t, err)
			plan := strings.Join(w.plan(text, args), "\n")
			require.Contains(t, plan, strings.TrimSpace(index), text)
			require.NotContains(t, plan, "filesort", text)
			require.NotContains(t, plan, "SCAN", text)
		}
	})
}

func TestWhat_concerns_somebody_in_the_log_of_actions_is_found_by_walks_on_indexes(t *testing.T) {
	each(t, func(w *world) {
		w.Tasks(w.t, 50, func(n int, s *capri.Spec) { s.Owner = fmt.Sprint("user", n%10) })
		for range 20 { // others do a lot
			require.NoError(w.t, w.Store.Write(w.ctx, "log", "ops", func(tx *store.Tx) error {
				var all []store.Change
				for n := range 100 {
					all = append(all, store.Change{Action: "kill", Target: "x", Task: capri.TaskID(1 + n%50)})
				}
				return tx.LogChanges(all...)
			}))
		}
		if w.Store.Dialect().Name == "mysql" {
			rows, err := w.Store.DB().QueryContext(w.ctx, "ANALYZE TABLE action_log, task")
			require.NoError(w.t, err)
			rows.Close()
		}
		f := store.ActionFilter{Seen: &store.SeenActions{Who: "user3", Kind: "user", Of: store.Seen{Owner: "user3", Department: "dw"}}, Before: 1 << 40, Limit: 101}
		text, args := store.ActionsText(f)
		plan := w.plan(text, args)
		all := strings.Join(plan, "\n")
		for _, index := range []string{"action_log_who", "action_log_task"} {
			require.Contains(w.t, all, index)
		}
		for _, line := range plan {
			require.NotContains(w.t, line, "SCAN a ", all)
			require.False(w.t, strings.HasPrefix(line, "a ·  ·"), all)
		}
	})
}

func TestAPage_of_a_services_runs_is_a_walk_on_an_index(t *testing.T) {
	each(t, func(w *world) {
		text, args := store.ServiceRunsText(store.RunFilter{Service: "dispatch", From: 1, After: store.RunPosition{At: 1 << 40, ID: 7}, Limit: 101})
		plan := strings.Join(w.plan(text, args), "\n")
		require.Contains(t, plan, "service_run_service")
		for _, bad := range []string{"SCAN", "filesort", "TEMP B-TREE"} {
			require.NotContains(t, plan, bad)
		}
	})
}

func TestThe_stream_of_changes_begins_where_it_was_and_looks_nothing_up_by_scanning(t *testing.T) {
	each(t, func(w *world) {
		w.many(capri.Conditions{})
		text, args, err := store.ChangesText(1 << 40).ToSql()
		require.NoError(t, err)
		plan := strings.Join(w.plan(text, args), "\n")
		for _, bad := range []string{"SCAN", "filesort", "TEMP B-TREE", "temporary"} {
			require.NotContains(t, plan, bad)
		}
	})
}

// A mark's batches come in parts of some hundred, and what is sent back to waiting one by one.
func TestWhat_was_made_is_asked_about_in_few_queries_that_find_it_by_its_ids(t *testing.T) {
	var mark, scattered [][2]capri.BatchID
	for i := range capri.BatchID(200) {
		mark = append(mark, [2]capri.BatchID{1 + 500*i, 500 + 500*i})
		scattered = append(scattered, [2]capri.BatchID{7 * i, 7 * i})
	}
	require.Len(t, store.BornTexts(store.Born(mark...)), 3*10, "100,000 batches")
	require.Len(t, store.BornTexts(store.Born(scattered...)), 3*2, "200 batches here and there")
	each(t, func(w *world) {
		c := waitsForThirdParty()
		c.Inputs, c.Parents = []capri.PathCondition{{Path: "/never"}}, []capri.ParentCondition{{TaskID: w.Task(t, nil).ID, BatchNo: "20261119"}}
		w.many(c)
		for _, changes := range [][]store.DependencyChange{store.Born([2]capri.BatchID{1, 100}), store.Born(scattered...)} {
			for _, q := range store.BornTexts(changes) {
				text, args, err := q.ToSql()
				require.NoError(t, err)
				for _, line := range w.plan(text, args) {
					require.NotContains(t, line, "SCAN", text)
					if strings.HasPrefix(line, "w ·") || strings.HasPrefix(line, "d ·") {
						require.Contains(t, line, "PRIMARY", text)
					}
				}
			}
		}
	})
}

func TestWhat_a_batch_waits_for_is_found_by_its_key(t *testing.T) {
	each(t, func(w *world) {
		c := waitsForThirdParty()
		c.Inputs, c.Parents = []capri.PathCondition{{Path: "/never"}}, []capri.ParentCondition{{TaskID: w.Task(t, nil).ID, BatchNo: "20261119"}}
		c.Outputs = []capri.PathCondition{{Path: "/made"}}
		w.many(c)
		for _, ids := range [][]capri.BatchID{{500}, {500, 600, 700, 2000}} {
			for _, q := range store.UnmetTexts(ids...) {
				text, args, err := q.ToSql()
				require.NoError(t, err)
				for _, line := range w.plan(text, args) {
					require.NotContains(t, line, "SCAN", text)
					require.NotRegexp(t, `^\w+ ·  ·`, line, text)
					if strings.HasPrefix(line, "d ·") || strings.HasPrefix(line, "SEARCH d ") {
						require.Regexp(t, `PRIMARY|batch_id=\?`, line, text)
					}
				}
			}
		}
	})
}

// Whatever else there is, a campaign's turn looks at its own items, and by key at what runs for them.
func TestWhat_a_campaign_asks_all_the_time_is_walks_on_indexes(t *testing.T) {
	each(t, func(w *world) {
		w.many(capri.Conditions{})
		var id capri.CampaignID
		for range 3 {
			c := capri.Campaign{Kind: capri.CampaignRerun, Target: "x", Request: "{}"}
			items := make([]capri.CampaignItem, 4000)
			for i := range items {
				items[i] = capri.CampaignItem{Action: capri.ItemNew, Task: capri.TaskID(1 + i%100), TaskVersion: 1, Interval: capri.Interval{BatchNo: capri.BatchNo(fmt.Sprint(i / 100))}, Via: -1}
			}
			require.NoError(t, w.Store.SaveCampaign(w.ctx, "ops", &c, &capri.CampaignEstimate{}, items, func(*store.Tx) error { return nil }))
			id = c.ID
		}
		over := make([]string, 500) // campaigns that are over
		for i := range over {
			over[i] = fmt.Sprintf("(%d, 1, 6, 'x', '{}', 'ops', 0, 0, 0, '', 0)", 1000+i)
		}
		for _, text := range []string{"INSERT INTO campaign (id, kind, state, target, request, who, items, minutes, unknown, message, created_at) VALUES " + strings.Join(over, ", "),
			"UPDATE task_work SET finish_time = 1 WHERE state = 3",
			"UPDATE campaign_item SET state = CASE WHEN seq < 1000 THEN 4 WHEN seq < 1500 THEN 3 WHEN seq < 2500 THEN 2 ELSE seq % 2 END, batch_id = CASE WHEN seq < 2500 THEN seq + 1 ELSE 0 END",
			fmt.Sprintf("UPDATE campaign SET state = 3 WHERE id = %d", id)} {
			_, err := w.Store.DB().ExecContext(w.ctx, text)
			require.NoError(t, err)
		}
		var finished []capri.BatchID
		for i := range 1000 {
			finished = append(finished, capri.BatchID(5000+i))
		}
		n, err := w.Store.ArchiveBatches(w.ctx, w.Lease(t, "cleanup"), w.Clock.Now(), finished)
		require.NoError(t, err)
		require.Equal(t, len(finished), n)
		analyze := "ANALYZE"
		if w.Store.Dialect().Name == "mysql" {
			analyze = "ANALYZE TABLE campaign, campaign_item, task_work, task_work_archive, task"
		}
		rows, err := w.Store.DB().QueryContext(w.ctx, analyze)
		require.NoError(t, err)
		rows.Close()
		for what, q := range store.CampaignTexts(id, w.Clock.Now()) {
			text, args, err := q.ToSql()
			require.NoError(t, err)
			plan := w.plan(text, args)
			for _, line := range plan {
				require.NotContains(t, line, "SCAN", "%s: %s", what, plan)
				require.NotRegexp(t, `^\w+ ·  ·`, line, "%s: %s", what, plan)
				require.NotContains(t, line, "task_work_ready", "%s: that index leads to everything that waits: %s", what, plan)
				if w.Store.Dialect().Name == "sqlite" && strings.HasPrefix(line, "SEARCH i ") {
					require.Equal(t, slices.Contains([]string{"to claim", "to make", "differences", "undone", "killed"}, what), regexp.MustCompile("seq[<>]").MatchString(line), "%s begins where the step before has ended: %s", what, plan)
				}
				if what != "live" { // they are few
					require.NotRegexp(t, "filesort|TEMP B-TREE|temporary", line, "%s: %s", what, plan)
				}
			}
		}
	})
}
