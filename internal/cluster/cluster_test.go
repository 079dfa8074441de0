package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"capri"
	"capri/action"
	"capri/calendar"
	"capri/internal/cluster"
	"capri/internal/testenv"
	"capri/services"
	"capri/services/generate"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

func TestMain(m *testing.M) {
	testenv.AtOnce(8)
	goleak.VerifyTestMain(m)
}

const (
	day   = "2026-11-19" // the one before the test databases' clock
	dayNo = capri.BatchNo("20261119")
)

func hour(h int) capri.BatchNo { return capri.BatchNo(fmt.Sprintf("20261119%02d", h)) }

func named(text string) *capri.Offset {
	o, err := capri.ParseOffset(text)
	if err != nil {
		panic(err)
	}
	return &o
}

func TestA_day_waits_for_its_hours_by_paths_parents_and_third_parties(t *testing.T) {
	sqltest.EachAtOnce(t, func(t *testing.T, db *sqltest.DB) {
		c := cluster.Start(t, db, cluster.Options{Masters: 1, Workers: 2, Slots: 4})
		hourly := c.Root + "/ods/${yyyyMMdd}/${HH}"
		c.Apply(
			cluster.Spec("ods", `[ "${HH}" != 07 ] || [ -e `+c.Root+`/seven ] || exit 1; mkdir -p '`+hourly+`'; touch '`+hourly+`/_SUCCESS'`, func(s *capri.Spec) {
				s.Period = capri.Hour
				s.Outputs = []capri.Output{{Path: hourly}}
			}),
			cluster.Spec("by_path", `[ $(ls '`+c.Root+`/ods/${yyyyMMdd}' | wc -l) = 24 ]`, func(s *capri.Spec) {
				s.Inputs = []capri.Input{{Path: hourly, Unit: capri.Hour, From: named("0"), To: named("end")}}
			}),
			cluster.Spec("by_all", "true", func(s *capri.Spec) { s.Parents = []capri.Parent{{Task: "ods"}} }),
			cluster.Spec("by_any", "true", func(s *capri.Spec) { s.Parents = []capri.Parent{{Task: "ods", Policy: capri.Anyone}} }),
			cluster.Spec("by_last", "true", func(s *capri.Spec) { s.Parents = []capri.Parent{{Task: "ods", Policy: capri.LastOne}} }),
			cluster.Spec("by_word", "true", func(s *capri.Spec) {
				s.Parents = []capri.Parent{{Task: "by_all"}}
				s.ThirdParty = []capri.ThirdParty{{Code: "closed"}}
			}),
		)
		require.Equal(t, 24, c.ColdStart(capri.Hour, day))
		c.UntilFinished("ods", hour(7), capri.Failed)
		require.Equal(t, 5, c.ColdStart(capri.Day, day))
		c.UntilFinished("by_any", dayNo, capri.Success)
		c.UntilFinished("by_last", dayNo, capri.Success)
		for h := range 24 {
			if h != 7 {
				c.UntilFinished("ods", hour(h), capri.Success)
			}
		}
		c.Until("by_path", dayNo, "waiting for one path", func(b store.BatchRow) bool { return b.State == capri.Waiting && b.Unmet == 1 })
		c.Until("by_all", dayNo, "waiting for one parent", func(b store.BatchRow) bool { return b.State == capri.Waiting && b.Unmet == 1 })

		require.NoError(t, os.WriteFile(c.Root+"/seven", nil, 0o644))
		again(t, c, "ods", hour(7))
		c.UntilFinished("by_path", dayNo, capri.Success)
		c.UntilFinished("by_all", dayNo, capri.Success)
		c.Until("by_word", dayNo, "waiting for the third party", func(b store.BatchRow) bool { return b.State == capri.Waiting && b.Unmet == 1 })
		require.NoError(t, c.Actions.ReportThirdParty(t.Context(), "bank", "closed", capri.Day, dayNo, "ready", ""))
		c.UntilFinished("by_word", dayNo, capri.Success)
		c.Check()
	})
}

// again makes the next run of a finished batch_no by a cold start.
func again(t *testing.T, c *cluster.Cluster, task string, no capri.BatchNo) {
	t.Helper()
	old := c.Batch(task, no)
	when := old.ScheduleTime.In(time.UTC).Format(time.RFC3339)
	p, err := c.Actions.ColdStart(t.Context(), "test", action.ColdStartRequest{Periods: []capri.Period{old.Period}, From: when, To: when, Tasks: []string{task}, Only: "all"})
	require.NoError(t, err)
	require.Len(t, p.Items, 1)
	b := c.Until(task, no, "run again", func(b store.BatchRow) bool { return b.RunNo == old.RunNo+1 })
	require.NotEqual(t, old.ID, b.ID)
}

func TestA_chain_of_no_ops_hands_over_at_once(t *testing.T) {
	chain := func(t *testing.T, db *sqltest.DB, n int, o cluster.Options) {
		c := cluster.Start(t, db, o)
		specs := make([]capri.Spec, n)
		for i := range specs {
			specs[i] = cluster.Spec(fmt.Sprintf("t%02d", i), "true", func(s *capri.Spec) {
				if i > 0 {
					s.Parents = []capri.Parent{{Task: fmt.Sprintf("t%02d", i-1)}}
				}
			})
		}
		c.Apply(specs...)
		require.Equal(t, n, c.ColdStart(capri.Day, day))
		c.UntilAllFinished()
		h := c.Check()
		require.NoError(t, h.OnceEach(nil))
		took := h.Makespan() / time.Duration(n)
		t.Logf("%s for each hand-over and its job", took)
		if took > 10*time.Second { // a third of the service's tick: however slow the machine is, somebody was woken or looked
			t.Errorf("a hand-over and its job took %s: nobody was woken", took)
		}
	}
	t.Run("within a process", func(t *testing.T) {
		sqltest.Each(t, func(t *testing.T, db *sqltest.DB) { chain(t, db, 30, cluster.Options{Masters: 1, Workers: 1}) })
	})
	t.Run("over Redis", func(t *testing.T) {
		chain(t, sqltest.MySQL(t), 30, cluster.Options{Masters: 2, Workers: 2, Redis: testenv.Redis(t)})
	})
	t.Run("and within seconds where nobody hears anybody", func(t *testing.T) {
		chain(t, sqltest.MySQL(t), 4, cluster.Options{Masters: 1, Workers: 2, Deaf: true})
	})
}

func TestA_kill_while_it_runs_leaves_no_process_and_no_retry(t *testing.T) {
	sqltest.EachAtOnce(t, func(t *testing.T, db *sqltest.DB) {
		c := cluster.Start(t, db, cluster.Options{Masters: 1, Workers: 1})
		pids := c.Root + "/pids"
		c.Apply(
			cluster.Spec("long", `trap '' TERM; sleep 1000 & echo $! >`+pids+`.new; mv `+pids+`.new `+pids+`; sleep 1000; sleep 1000`, func(s *capri.Spec) { s.Retry.Failed = 3 }),
			cluster.Spec("child", "true", func(s *capri.Spec) { s.Parents = []capri.Parent{{Task: "long"}} }),
		)
		c.ColdStart(capri.Day, day)
		b := c.UntilStarted("long", dayNo)
		c.Wait(func() string {
			if _, err := os.Stat(pids); err != nil {
				return "the job's pid"
			}
			return ""
		})
		_, err := c.Actions.Kill(t.Context(), "alice", []capri.BatchID{b.ID}, "not needed")
		require.NoError(t, err)
		b = c.UntilFinished("long", dayNo, capri.Killed)
		assert.Equal(t, 1, b.Attempt)
		text, err := os.ReadFile(pids)
		require.NoError(t, err)
		stat, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat") // a zombie is dead
		if len(stat) > 0 && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("shown as killed while a child of it lives: %s", stat)
		}
		assert.Equal(t, capri.Waiting, c.Batch("child", dayNo).State)
		c.Check()
	})
}

func TestA_failed_attempt_is_followed_by_others_until_one_succeeds(t *testing.T) {
	sqltest.EachAtOnce(t, func(t *testing.T, db *sqltest.DB) {
		c := cluster.Start(t, db, cluster.Options{Masters: 1, Workers: 2})
		tries := c.Root + "/tries"
		c.Apply(
			cluster.Spec("flaky", `echo x >>`+tries+`; [ $(wc -l <`+tries+`) = 3 ]`, func(s *capri.Spec) { s.Retry.Failed = 3 }),
			cluster.Spec("broken", "exit 7", func(s *capri.Spec) { s.Retry.Failed = 1 }),
		)
		c.ColdStart(capri.Day, day)
		b := c.UntilFinished("flaky", dayNo, capri.Success)
		assert.Equal(t, []int{3, 2}, []int{b.Attempt, b.Failures})
		b = c.UntilFinished("broken", dayNo, capri.Failed)
		assert.Equal(t, []int{2, 2}, []int{b.Attempt, b.Failures})
		assert.Contains(t, b.Message, "exit code 7")
		c.Check()
	})
}

func TestA_worker_that_is_started_anew_goes_on_with_its_jobs(t *testing.T) {
	sqltest.EachAtOnce(t, func(t *testing.T, db *sqltest.DB) {
		c := cluster.Start(t, db, cluster.Options{Masters: 1, Workers: 1})
		c.Apply(
			cluster.Spec("meanwhile", "until [ -e "+c.Root+"/alone ]; do sleep 0.05; done; echo x >>"+c.Root+"/meanwhile", nil),
			cluster.Spec("long", "echo x >>"+c.Root+"/long; until [ -e "+c.Root+"/go ]; do sleep 0.05; done", nil),
			cluster.Spec("after", "true", func(s *capri.Spec) { s.Parents = []capri.Parent{{Task: "meanwhile"}, {Task: "long"}} }),
		)
		c.ColdStart(capri.Day, day)
		c.UntilStarted("long", dayNo)
		c.UntilStarted("meanwhile", dayNo)
		w := c.Workers[0]
		w.Stop()
		require.NoError(t, os.WriteFile(c.Root+"/alone", nil, 0o644))
		c.Wait(func() string {
			if _, err := os.Stat(c.Root + "/meanwhile"); err != nil {
				return "the end of the short job, while no worker is there"
			}
			return ""
		})
		w.Start()
		c.UntilFinished("meanwhile", dayNo, capri.Success)
		require.NoError(t, os.WriteFile(c.Root+"/go", nil, 0o644))
		c.UntilFinished("after", dayNo, capri.Success)
		require.NoError(t, c.Check().OnceEach(nil))
		for _, name := range []string{"long", "meanwhile"} {
			text, err := os.ReadFile(c.Root + "/" + name)
			require.NoError(t, err)
			assert.Equal(t, "x\n", string(text), "%s began more than once", name)
		}
	})
}

// Design §5.1.
func TestGenerated_once_by_two_masters_of_which_one_stops(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := cluster.Start(t, db, cluster.Options{Masters: 2})
		var specs []capri.Spec
		for i := range 50 {
			specs = append(specs, cluster.Spec(fmt.Sprintf("h%02d", i), "true", func(s *capri.Spec) { s.Period = capri.Hour }))
		}
		c.Apply(specs...)
		c.Wait(func() string { // the mark log begins when somebody leads
			if _, ok, err := db.Store.LastMark(t.Context(), capri.Hour); err != nil || !ok {
				return fmt.Sprintf("the mark log (%v)", err)
			}
			return ""
		})
		leader := holder(t, db.Store, "generate")
		made := func(no capri.BatchNo) {
			t.Helper()
			c.Wait(func() string {
				c.Wake(wake.Generate)
				marks, err := db.Store.Marks(t.Context(), capri.Hour, 1)
				require.NoError(t, err)
				if len(marks) == 0 || !marks[0].Complete || marks[0].Expected == 0 || c.Count("h00", no) == 0 {
					return fmt.Sprintf("the mark of %s, the newest is %+v", no, marks)
				}
				return ""
			})
			for i := range 50 {
				require.Equal(t, 1, c.Count(fmt.Sprintf("h%02d", i), no))
			}
		}
		db.Clock.Set(at("2026-11-20 10:01:00"))
		made("2026112009")

		for _, m := range c.Masters {
			if strings.HasPrefix(leader, m.Name+"/") {
				m.Stop()
			}
		}
		db.Clock.Set(at("2026-11-20 11:01:00"))
		made("2026112010")
		if now := holder(t, db.Store, "generate"); now == leader || now == "" {
			t.Errorf("%q leads, the one before was %q", now, leader)
		}
		h := c.Check()
		assert.Len(t, h.Batches, 100)
		for _, b := range h.Batches {
			assert.Zero(t, b.RunNo)
		}
	})
}

func holder(t *testing.T, s *store.Store, service string) string {
	t.Helper()
	locks, err := s.Locks(t.Context())
	require.NoError(t, err)
	for _, l := range locks {
		if l.Service == service {
			return l.Holder
		}
	}
	return ""
}

func at(text string) capri.Instant {
	v, err := time.Parse(time.DateTime, text)
	if err != nil {
		panic(err)
	}
	return capri.InstantOf(v)
}

// Design §3: a turn generates every mark since the last complete one, in order.
func TestGeneration_heals_after_a_week_without_masters(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		periods := map[capri.Period]int{capri.Hour: 7 * 24, capri.Day: 7, capri.Week: 1}
		for p := range periods {
			db.Task(t, func(s *capri.Spec) { s.Name, s.Period = p.String(), p })
		}
		db.Task(t, func(s *capri.Spec) { s.Name, s.Period, s.Cron = "cron", capri.Cron, "0 30 2 * * ?" })
		service := generate.New(db.Store, calendar.New(time.UTC), slog.New(slog.DiscardHandler))
		turn := services.Turn{Now: db.Clock.Now(), Lease: db.Lease(t, "generate")}
		run := func() services.Result {
			t.Helper()
			r, err := service.Run(context.Background(), turn)
			require.NoError(t, err)
			return r
		}
		run() // the mark logs begin
		turn.Now = db.Clock.Advance(7 * 24 * time.Hour)
		for run().Again {
		}
		for p, want := range periods {
			task, err := db.Store.TaskByName(t.Context(), p.String())
			require.NoError(t, err)
			rows, err := db.Store.Batches(t.Context(), store.BatchFilter{Task: task.ID})
			require.NoError(t, err)
			assert.Len(t, rows, want, "%s batches", p)
			marks, err := db.Store.Marks(t.Context(), p, 1000)
			require.NoError(t, err)
			n := 0
			for _, m := range marks {
				if m.Expected > 0 {
					n++
				}
				assert.Equal(t, m.Expected, m.Made+m.Present+m.Skipped+m.Failed, "the ledger of %+v", m)
				assert.True(t, m.Complete)
			}
			assert.Equal(t, want, n, "%s marks with batches", p)
			for _, b := range rows {
				if late := turn.Now.Sub(b.ScheduleTime) > 10*time.Minute; late != (b.Origin == capri.OriginCatchUp) {
					t.Errorf("%s %s, scheduled %s, has the origin %s", p, b.BatchNo, b.ScheduleTime, b.Origin)
				}
			}
		}
		task, err := db.Store.TaskByName(t.Context(), "cron")
		require.NoError(t, err)
		fires, err := db.Store.Batches(t.Context(), store.BatchFilter{Task: task.ID})
		require.NoError(t, err)
		assert.Len(t, fires, 7, "cron fires")
		if r := run(); r.Counts["made"] > 0 {
			t.Errorf("another turn makes %v", r.Counts)
		}
	})
}

func TestA_thousand_parents(t *testing.T) {
	sqltest.EachAtOnce(t, func(t *testing.T, db *sqltest.DB) {
		const n = 1000
		c := cluster.Start(t, db, cluster.Options{Masters: 1, Workers: 2, Slots: 32})
		child := cluster.Spec("child", "true", nil)
		var specs []capri.Spec
		for i := range n {
			specs = append(specs, cluster.Spec("p"+strconv.Itoa(i), "true", nil))
			child.Parents = append(child.Parents, capri.Parent{Task: "p" + strconv.Itoa(i)})
		}
		c.Apply(append(specs, child)...)
		began := time.Now()
		require.Equal(t, n+1, c.ColdStart(capri.Day, day))
		made := time.Since(began)
		c.UntilAllFinished()
		t.Logf("made in %s, run in %s", made, time.Since(began)-made)
		require.NoError(t, c.Check().OnceEach(nil))
	})
}

func TestLimits_hold_with_more_batches_than_slots(t *testing.T) {
	sqltest.EachAtOnce(t, func(t *testing.T, db *sqltest.DB) {
		c := cluster.Start(t, db, cluster.Options{Masters: 2, Workers: 2, Slots: 3})
		c.Apply(
			cluster.Spec("two", "sleep 0.1", func(s *capri.Spec) { s.Period, s.Limits.Concurrency = capri.Hour, 2 }),
			cluster.Spec("wide", "sleep 0.1", func(s *capri.Spec) { s.Period, s.Worker.Slots = capri.Hour, 2 }),
		)
		require.Equal(t, 48, c.ColdStart(capri.Hour, day))
		c.UntilAllFinished()
		require.NoError(t, c.Check().OnceEach(nil))
	})
}

// The checker is what every test here rests on, so it must see what it is there for.
func TestCheck_finds(t *testing.T) {
	for _, tt := range []struct {
		sentence, broken, want string
	}{
		{"a batch that is not what its events say", "UPDATE task_work SET attempt = 5", "its last event"},
		{"a second success", "INSERT INTO batch_event (batch_id, at, state, finish_state, attempt, node, held, kill_request, latest, epoch, who, why) SELECT batch_id, at, 0, 0, attempt, '', 0, 0, 1, 0, '', '' FROM batch_event WHERE state = 3 LIMIT 1", "finished is final"},
		{"a lost event", "DELETE FROM batch_event WHERE state = 1", "without an assignment"},
		{"a start before its parent's end", "UPDATE batch_event SET id = id + 1000 WHERE batch_id = (SELECT MIN(id) FROM task_work)", "is not met"},
		{"more than there are slots", "UPDATE task_work SET slots = 100", "slots are in use"},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			c := cluster.Start(t, sqltest.SQLite(t), cluster.Options{Masters: 1, Workers: 1})
			c.Apply(cluster.Spec("a", "true", nil), cluster.Spec("b", "true", func(s *capri.Spec) { s.Parents = []capri.Parent{{Task: "a"}} }))
			c.ColdStart(capri.Day, day)
			c.UntilAllFinished()
			c.Check()
			_, err := c.DB.Store.DB().ExecContext(t.Context(), tt.broken)
			require.NoError(t, err)
			h, err := cluster.Read(t.Context(), c.DB.Store)
			require.NoError(t, err)
			assert.ErrorContains(t, h.Check(map[string]int{"n1": 8}), tt.want)
		})
	}
}
