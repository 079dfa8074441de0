package cluster_test

import (
	"capri/action"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/api"
	"capri/internal/cluster"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// The sharpest hour (design §10): all day tasks have their mark at 00:01, and people go on with what is urgent and look at
// what happens. The times are logged; what is asserted is that nobody waits for minutes.
func TestADayOfManyTasks_has_one_mark_and_neither_urgent_batches_nor_people_wait_for_it(t *testing.T) {
	t.Parallel() // the longest, and half of it is the server's work: its file's name comes first, so that it begins with the others
	tasks := 100_000
	if testing.Short() {
		tasks = 5_000
	}
	const nodes, slots, pools = 20, 100, 4
	db := sqltest.MySQL(t)
	db.Clock.Set(at("2026-11-20 23:59:30"))
	made := time.Now()
	const each = 10 // copies, the first included
	copied(t, db, each, db.Tasks(t, tasks/each, func(n int, s *capri.Spec) {
		s.Owner, s.Group, s.Priority, s.Worker.Pool = "", fmt.Sprintf("group_%03d", n%200), 1+n%9, fmt.Sprintf("pool_%d", n%pools)
	}))
	require.Equal(t, tasks, rows(t, db, "task"))
	hourly := db.Task(t, func(s *capri.Spec) { s.Name, s.Period, s.Priority, s.Worker.Pool = "urgent", capri.Hour, 0, "pool_0" })
	byHand := db.Task(t, func(s *capri.Spec) {
		s.Name, s.Period, s.Priority, s.Worker.Pool = "by_hand", capri.Manual, 0, "pool_1"
	})
	t.Logf("%d tasks were defined in %s", tasks, time.Since(made).Round(time.Millisecond))
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("node_%02d", i))
		require.NoError(t, db.Store.RegisterNode(t.Context(), capri.Node{Name: names[i], BootID: "boot", Pool: fmt.Sprintf("pool_%d", i%pools), Slots: slots, CheckInterval: 5, KillAfter: 150 * time.Second, KillGrace: time.Second}, names[i]))
	}

	c := cluster.Start(t, db, cluster.Options{Masters: 1})
	c.Wait(func() string {
		for _, p := range []capri.Period{capri.Hour, capri.Day} {
			if _, ok, err := db.Store.LastMark(t.Context(), p); err != nil || !ok {
				return fmt.Sprintf("the mark log of %s (%v)", p, err)
			}
		}
		return ""
	})
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()

	// Workers, as far as the database sees them: every job ends at once and well.
	workers := db.Again(t)
	others.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) { // many times as often as real ones, and yet with a pause
			for _, name := range names {
				if _, err := workers.Beat(ctx, capri.Node{Name: name, BootID: "boot"}); err != nil && ctx.Err() == nil {
					t.Errorf("beat: %v", err)
				}
				claimed, err := workers.Claim(ctx, name, "boot", slots)
				var attempts []capri.Attempt
				var results []store.Result
				for _, b := range claimed {
					a := capri.Attempt{Batch: b.ID, Number: b.Attempt}
					attempts, results = append(attempts, a), append(results, store.Result{Attempt: a, Outcome: store.Succeeded})
				}
				if err == nil && len(attempts) > 0 {
					if _, err = workers.Start(ctx, name, "boot", attempts); err == nil {
						_, err = workers.FinishAttempts(ctx, name, results)
					}
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("work: %v", err)
				}
			}
		}
	})

	// People.
	key, err := c.Actions.CreateApp(t.Context(), "test", store.App{Name: "people", Role: "read_only"}, store.Credential{})
	require.NoError(t, err)
	people := api.New(api.Options{Store: db.Again(t), Actions: c.Actions})
	slowest := map[string]time.Duration{}
	ask := func(what, path string) {
		t.Helper()
		began := time.Now()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		people.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
		slowest[what] = max(slowest[what], time.Since(began))
	}

	began := time.Now()
	db.Clock.Set(at("2026-11-21 00:00:59"))
	count := func(where string) (n int) {
		require.NoError(t, db.Store.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM task_work WHERE "+where).Scan(&n))
		return n
	}
	look := func() {
		ask("batch list", "/api/v1/batches?limit=100")
		ask("service list", "/api/v1/services")
		var some int64
		if err := db.Store.DB().QueryRowContext(t.Context(), "SELECT id FROM task_work WHERE state = 0 LIMIT 1").Scan(&some); err == nil {
			ask("why", fmt.Sprintf("/api/v1/batches/%d/why", some))
		}
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); !done(); look() {
			if time.Now().After(end) {
				t.Fatalf("after 5 minutes there is still missing: %s", what)
			}
			time.Sleep(50 * time.Millisecond) // who looks must not hold up what he waits for
		}
	}
	until("a part of the batches", func() bool { return count("1 = 1") > tasks/10 })
	var last int64 // the newest event when the batch was there
	b, err := c.Actions.Execute(t.Context(), "alice", action.ExecuteRequest{Task: "by_hand"})
	require.NoError(t, err)
	require.NoError(t, db.Store.DB().QueryRowContext(t.Context(), "SELECT COALESCE(MAX(id), 0) FROM batch_event").Scan(&last))
	asked := time.Now()
	placed := func(id capri.BatchID) (event int64, ok bool) {
		err := db.Store.DB().QueryRowContext(t.Context(), "SELECT MIN(id) FROM batch_event WHERE state = 1 AND batch_id = ?", int64(id)).Scan(&event)
		return event, err == nil
	}
	var mine int64
	c.Wait(func() string {
		var ok bool
		if mine, ok = placed(b.ID); !ok {
			return "the batch that somebody asked for"
		}
		return ""
	})
	t.Logf("what somebody asked for was placed after %s", time.Since(asked).Round(time.Millisecond))
	before := 0
	require.NoError(t, db.Store.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM batch_event WHERE state = 1 AND id > ? AND id < ?", last, mine).Scan(&before))
	assert.LessOrEqual(t, before, 2*nodes*slots, "placed before it: a turn that was under way, and no more than the next")
	require.Equal(t, byHand.ID, b.TaskID)

	until("the day's batches", func() bool { return count("period = 3") == tasks })
	t.Logf("made in %s", time.Since(began).Round(time.Millisecond))
	c.Wait(func() string {
		if n := count(fmt.Sprintf("task_id = %d AND state = 3 AND finish_state = 1", hourly.ID)); n != 1 {
			return "the end of the urgent hour's batch"
		}
		return ""
	})
	look()
	until("the end of a tenth of them", func() bool { return count("state = 3") > tasks/10 })
	cancel()
	others.Wait()

	// The more urgent came first.
	rows, err := db.Store.DB().QueryContext(t.Context(), "SELECT priority, SUM(CASE WHEN attempt > 0 THEN 1 ELSE 0 END), COUNT(*) FROM task_work GROUP BY priority ORDER BY priority")
	require.NoError(t, err)
	defer rows.Close()
	low := 0
	for rows.Next() {
		var priority, n, all int
		require.NoError(t, rows.Scan(&priority, &n, &all))
		t.Logf("of priority %d: %d of %d were placed", priority, n, all)
		if priority >= 5 {
			low += n
		}
	}
	assert.LessOrEqual(t, low, 2*nodes*slots, "placed of priority 5 to 9, when there was nothing better yet")
	require.NoError(t, rows.Err())
	marks, err := db.Store.Marks(t.Context(), capri.Day, 1)
	require.NoError(t, err)
	assert.Equal(t, []int{tasks, tasks, 0}, []int{marks[0].Expected, marks[0].Made, marks[0].Failed})
	for what, took := range slowest {
		t.Logf("the slowest answer of %s took %s", what, took.Round(time.Millisecond))
		assert.Less(t, took, 20*time.Second, what)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("memory: %d MB from the system, %s", m.Sys>>20, peak())
}

// copied stores more of the tasks, on the server, until there are so many of each: with ids and names of their own, else
// the same. Defining all of them here would cost as much as all that is tested.
func copied(t *testing.T, db *sqltest.DB, each int, tasks []*capri.Task) {
	t.Helper()
	first, err := db.Store.ReserveTaskIDs(t.Context(), (each-1)*len(tasks))
	require.NoError(t, err)
	for _, table := range []string{"task", "task_history"} {
		var columns []string
		read, err := db.Store.DB().QueryContext(t.Context(), "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? AND extra NOT LIKE '%GENERATED%'", table)
		require.NoError(t, err)
		for read.Next() {
			var c string
			require.NoError(t, read.Scan(&c))
			columns = append(columns, c)
		}
		require.NoError(t, read.Err())
		require.NoError(t, read.Close())
		for k := range each - 1 {
			values := slices.Clone(columns)
			for i, c := range columns {
				switch c {
				case "id", "task_id":
					values[i] = fmt.Sprintf("%s + %d", c, int(first-tasks[0].ID)+k*len(tasks))
				case "name":
					values[i] = fmt.Sprintf("CONCAT('copy_%d_', name)", k)
				case "definition":
					values[i] = fmt.Sprintf(`REPLACE(definition, '"name":"task_', '"name":"copy_%d_task_')`, k)
				}
			}
			id := columns[slices.IndexFunc(columns, func(c string) bool { return c == "id" || c == "task_id" })]
			_, err := db.Store.DB().ExecContext(t.Context(), fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %[1]s WHERE %[4]s BETWEEN ? AND ?", table, strings.Join(columns, ", "), strings.Join(values, ", "), id),
				int64(tasks[0].ID), int64(tasks[len(tasks)-1].ID))
			require.NoError(t, err)
		}
	}
}

func rows(t *testing.T, db *sqltest.DB, table string) (n int) {
	t.Helper()
	require.NoError(t, db.Store.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
	return n
}

// peak is this process's highest memory in use.
func peak() string {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "VmHWM:") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return "its peak is not known here"
}
