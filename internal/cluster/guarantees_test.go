package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/calendar"
	"capri/internal/cluster"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/why"
)

// The guarantees of design §5 that masters and workers give together, each with a test that tries to break it: on a server,
// while masters and workers are stopped, killed and cut off as a seed says. What is judged at the end is the history, and what
// the jobs themselves have seen.

// nemesis makes trouble.
type nemesis struct {
	t     *testing.T
	c     *cluster.Cluster
	rng   *rand.Rand
	since map[*cluster.Process]time.Time // in trouble
}

func newNemesis(t *testing.T, c *cluster.Cluster) *nemesis {
	seed := rand.Uint64()
	t.Logf("the nemesis' seed is %d", seed)
	return &nemesis{t: t, c: c, rng: rand.New(rand.NewPCG(seed, 1)), since: map[*cluster.Process]time.Time{}}
}

// master stops or kills one master, if another one lives, or starts one that does not.
func (n *nemesis) master() {
	m := n.c.Masters[n.rng.IntN(len(n.c.Masters))]
	live := 0
	for _, o := range n.c.Masters {
		if o.Runs() {
			live++
		}
	}
	switch {
	case !m.Runs():
		n.t.Logf("%s starts", m.Name)
		m.Start()
	case live == 1:
	case n.rng.IntN(2) == 0:
		n.t.Logf("%s is killed", m.Name)
		m.Crash()
	default:
		n.t.Logf("%s stops", m.Name)
		m.Stop()
	}
}

// worker restarts a worker, or cuts it off, or joins it again.
func (n *nemesis) worker() {
	w := n.c.Workers[n.rng.IntN(len(n.c.Workers))]
	began, cut := n.since[w]
	switch {
	case cut && time.Since(began) < time.Duration(n.rng.IntN(15))*time.Second: // some are short, some outlast the lease
	case cut:
		n.t.Logf("%s is joined again after %s", w.Name, time.Since(began).Round(time.Second))
		w.Cut(false)
		delete(n.since, w)
	case n.rng.IntN(2) == 0:
		n.t.Logf("%s is cut off", w.Name)
		w.Cut(true)
		n.since[w] = time.Now()
	default:
		n.t.Logf("%s is restarted", w.Name)
		w.Stop()
		w.Start()
	}
}

// during makes trouble of some kinds for a while, and then puts everything right.
func (n *nemesis) during(d time.Duration, troubles ...func()) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Duration(n.rng.IntN(600)) * time.Millisecond)
		troubles[n.rng.IntN(len(troubles))]()
	}
	for _, m := range n.c.Masters {
		if !m.Runs() {
			m.Start()
		}
	}
	for _, w := range n.c.Workers {
		w.Cut(false)
	}
}

func TestGuarantee1_generated_once(t *testing.T) {
	t.Parallel() // they wait most of the time
	db := sqltest.MySQL(t)
	c := cluster.Start(t, db, cluster.Options{Masters: 3, Deaf: true, LeaseStable: 3 * time.Second})
	const tasks, hours = 60, 12
	var specs []capri.Spec
	for i := range tasks {
		specs = append(specs, cluster.Spec(fmt.Sprintf("t%02d", i), "true", func(s *capri.Spec) {
			if s.Period = capri.Hour; i%4 == 0 {
				s.Period, s.Cron = capri.Cron, "0 10/20 * * * ?"
			}
		}))
	}
	c.Apply(specs...)
	c.Wait(func() string { // the mark log begins when somebody leads
		if _, ok, err := db.Store.LastMark(t.Context(), capri.Hour); err != nil || !ok {
			return fmt.Sprintf("the mark log (%v)", err)
		}
		return ""
	})
	n := newNemesis(t, c)
	passed := 0
	n.during(10*time.Second, n.master, func() {
		if passed < hours { // time goes on, by jumps, whoever lives
			passed++
			db.Clock.Advance(time.Hour)
		}
	})
	for ; passed < hours; passed++ {
		db.Clock.Advance(time.Hour)
	}
	ends := calendar.New(time.UTC).EndedBy(capri.Hour, db.Clock.Now()) // the newest interval whose hour is over
	c.Wait(func() string {
		marks, err := db.Store.Marks(t.Context(), capri.Hour, 100)
		require.NoError(t, err)
		if last, ok, err := db.Store.LastMark(t.Context(), capri.Hour); err != nil || !ok || last < ends.Mark {
			return fmt.Sprintf("the mark %s; the newest complete one is %s, of %d", ends.Mark, last, len(marks))
		}
		fires, err := db.Store.DueFires(t.Context(), db.Clock.Now(), 1)
		require.NoError(t, err)
		if len(fires) > 0 || c.Count("t00", "20261120201000") == 0 {
			return fmt.Sprintf("cron fires: %v", fires)
		}
		return ""
	})
	marks, err := db.Store.Marks(t.Context(), capri.Hour, 100)
	require.NoError(t, err)
	made := 0
	for _, m := range marks {
		assert.Equal(t, m.Expected, m.Made+m.Present+m.Skipped+m.Failed, "the ledger of %+v", m)
		assert.Zero(t, m.Failed)
		made += m.Expected
	}
	assert.Equal(t, tasks*3/4*hours, made, "12 marks have passed since 09:30")
	of := map[string]int{}
	h := c.Check()
	for _, b := range h.Batches {
		assert.Zero(t, b.RunNo)
		of[b.Task]++
	}
	for i := range tasks {
		want := hours // marks at :01
		if i%4 == 0 {
			want = 3 * hours // fires at :10, :30 and :50; that of 09:30 was over when the task was made
		}
		assert.Equalf(t, want, of[fmt.Sprintf("t%02d", i)], "batches of t%02d", i)
	}
	lines := map[string]bool{}
	for _, b := range h.Batches {
		key := b.Task + " " + string(b.BatchNo)
		assert.False(t, lines[key], key)
		lines[key] = true
	}
}

// sees is a job that notes in root/twice when another of its task lives, and then does something.
func sees(root, then string) string {
	return `exec 9>>` + root + `/lock.$CAPRI_TASK; flock -n 9 || echo "$CAPRI_TASK $CAPRI_ATTEMPT" >>` + root + `/twice
` + then
}

func TestGuarantee2_one_at_a_time(t *testing.T) {
	t.Parallel() // they wait most of the time
	c := cluster.Start(t, sqltest.MySQL(t), short(cluster.Options{Masters: 2, Workers: 3, Slots: 4, Deaf: true}))
	var specs []capri.Spec
	for i := range 40 {
		job := fmt.Sprintf("sleep %d.3", i%5)
		if i < 4 {
			job = "until [ -e " + c.Root + "/go ]; do sleep 0.05; done"
		}
		specs = append(specs, cluster.Spec(fmt.Sprintf("w%02d", i), sees(c.Root, job), func(s *capri.Spec) {
			if i >= 10 {
				s.Parents = []capri.Parent{{Task: fmt.Sprintf("w%02d", i-10)}}
			}
		}))
	}
	c.Apply(specs...)
	c.ColdStart(capri.Day, day)
	n := newNemesis(t, c)
	n.during(3*time.Second, n.worker)
	// One is cut off for longer than its lease, with a job that goes on for as long as it is let; a new leader would begin its
	// count anew.
	var off *cluster.Process
	first := c.UntilStarted("w00", dayNo)
	for _, w := range c.Workers {
		if w.Name == first.Node {
			off = w
		}
	}
	off.Cut(true)
	c.Wait(func() string {
		nodes, err := c.DB.Store.Nodes(t.Context())
		require.NoError(t, err)
		for _, node := range nodes {
			if node.Name == off.Name && node.Lost {
				return ""
			}
		}
		return "the loss of " + off.Name
	})
	c.Until("w00", dayNo, "running elsewhere", func(b store.BatchRow) bool {
		return b.State == capri.Running && b.StartTime != 0 && b.Attempt > first.Attempt
	})
	n.during(6*time.Second, n.worker, n.worker, n.master)
	require.NoError(t, os.WriteFile(c.Root+"/go", nil, 0o644))
	c.UntilAllFinished()
	noneTwice(t, c.Root)
	h := c.Check()
	again := map[capri.BatchID]bool{}
	for id, b := range h.Batches {
		again[id] = b.Attempt > 1
	}
	require.NoError(t, h.OnceEach(again))
	assert.Positive(t, count(again), "something was lost, and ran again")
}

func count(m map[capri.BatchID]bool) (n int) {
	for _, yes := range m {
		if yes {
			n++
		}
	}
	return n
}

func TestGuarantee3_nothing_lost(t *testing.T) {
	t.Parallel() // they wait most of the time
	db := sqltest.MySQL(t)
	c := cluster.Start(t, db, short(cluster.Options{Masters: 2, Workers: 3, Slots: 4, Deaf: true}))
	kinds := map[string]func(s *capri.Spec){
		"well":    func(s *capri.Spec) { s.Job.Command = "sleep 1" },
		"fails":   func(s *capri.Spec) { s.Job.Command = "sleep 1; exit 3" },
		"retries": func(s *capri.Spec) { s.Job.Command = "exit 3"; s.Retry.Failed = 2 },
		"after":   func(s *capri.Spec) { s.Parents = []capri.Parent{{Task: "well_1"}} },
		"never":   func(s *capri.Spec) { s.Parents = []capri.Parent{{Task: "fails_1"}} },
		"third":   func(s *capri.Spec) { s.ThirdParty = []capri.ThirdParty{{Code: "closed"}} },
		"path":    func(s *capri.Spec) { s.Inputs = []capri.Input{{Path: c.Root + "/nothing"}} },
		"nowhere": func(s *capri.Spec) { s.Worker.Pool = "nobody" },
		"wide":    func(s *capri.Spec) { s.Worker.Slots = 99 },
	}
	var specs []capri.Spec
	for i := range 4 {
		for kind, change := range kinds {
			specs = append(specs, cluster.Spec(fmt.Sprintf("%s_%d", kind, i), "true", change))
		}
	}
	c.Apply(specs...)
	require.Equal(t, len(specs), c.ColdStart(capri.Day, day))
	held := c.Batch("third_1", dayNo).ID
	_, err := c.Actions.Hold(t.Context(), "alice", []capri.BatchID{held}, "look first")
	require.NoError(t, err)
	n := newNemesis(t, c)
	n.during(8*time.Second, n.worker, n.master)
	gone := c.Workers[2] // and one never comes back
	gone.Cut(true)

	ends := map[string]capri.FinishState{"well": capri.Success, "fails": capri.Failed, "retries": capri.Failed, "after": capri.Success}
	for name, how := range ends {
		for i := range 4 {
			c.UntilFinished(fmt.Sprintf("%s_%d", name, i), dayNo, how)
		}
	}
	causes := map[string]string{"never": "fails_1", "third": "closed", "path": "/nothing", "nowhere": "nobody", "wide": "99"}
	for name, says := range causes {
		for i := range 4 {
			b := c.Batch(fmt.Sprintf("%s_%d", name, i), dayNo)
			require.Equal(t, capri.Waiting, b.State, "%s: %s", b.Task, b.Message)
			a, err := why.Explain(t.Context(), db.Store, c.Actions.Calendar(), b.ID)
			require.NoError(t, err)
			require.NotEmpty(t, a.Causes, b.Task)
			assert.Contains(t, fmt.Sprintf("%s %+v", a.Summary, a.Causes), says, b.Task)
			if b.ID == held {
				assert.Equal(t, why.Held, a.Causes[0].Kind)
			}
		}
	}
	h := c.Check()
	assert.Len(t, h.Batches, len(specs))
	gone.Cut(false)
}

func TestGuarantee4_in_order(t *testing.T) {
	t.Parallel() // they wait most of the time
	c := cluster.Start(t, sqltest.MySQL(t), short(cluster.Options{Masters: 2, Workers: 2, Slots: 6, Deaf: true}))
	const levels, wide = 4, 5
	name := func(level, i int) string { return fmt.Sprintf("l%d_%d", level, i) }
	var specs []capri.Spec
	for level := range levels {
		for i := range wide {
			// A job takes its mark away while it runs, and looks for those of its parents.
			out := c.Root + "/" + name(level, i)
			looks := ""
			var parents []capri.Parent
			var inputs []capri.Input
			if level > 0 {
				for _, p := range []int{i, (i + 1) % wide} {
					parents = append(parents, capri.Parent{Task: name(level-1, p)})
					looks += fmt.Sprintf("[ -e %s/%s/_SUCCESS ] || echo $CAPRI_TASK before %s >>%s/early\n", c.Root, name(level-1, p), name(level-1, p), c.Root)
				}
				inputs = []capri.Input{{Path: c.Root + "/" + name(level-1, (i+2)%wide)}}
				looks += fmt.Sprintf("[ -e %s/%s/_SUCCESS ] || echo $CAPRI_TASK before its input >>%s/early\n", c.Root, name(level-1, (i+2)%wide), c.Root)
			}
			specs = append(specs, cluster.Spec(name(level, i), looks+"rm -f "+out+"/_SUCCESS; sleep 0.5; mkdir -p "+out+"; touch "+out+"/_SUCCESS", func(s *capri.Spec) {
				s.Parents, s.Inputs, s.Outputs = parents, inputs, []capri.Output{{Path: out}}
				if level == levels-1 {
					s.ThirdParty = []capri.ThirdParty{{Code: "closed"}}
				}
			}))
		}
	}
	c.Apply(specs...)
	c.ColdStart(capri.Day, day)
	n := newNemesis(t, c)
	n.during(6*time.Second, n.worker, n.master)
	for i := range wide {
		c.UntilFinished(name(levels-2, i), dayNo, capri.Success)
	}
	c.Wait(func() string { // all conditions of the last level but the third party's are met
		for i := range wide {
			if b := c.Batch(name(levels-1, i), dayNo); b.Unmet != 1 {
				return fmt.Sprintf("the conditions of %s: %d are unmet", b.Task, b.Unmet)
			}
		}
		return ""
	})
	// What they rest on runs again: they wait again, although the third party says ready now.
	for _, i := range n.rng.Perm(wide)[:2] {
		p, err := c.Actions.Rerun(t.Context(), "alice", action.RerunRequest{Task: name(levels-2, i), From: day, To: day, ByData: true})
		require.NoError(t, err)
		require.Len(t, p.Items, 1)
		c.Made(p)
	}
	require.NoError(t, c.Actions.ReportThirdParty(t.Context(), "bank", "closed", capri.Day, dayNo, "ready", ""))
	n.during(5*time.Second, n.worker, n.master)
	c.UntilAllFinished()
	if text, err := os.ReadFile(c.Root + "/early"); !os.IsNotExist(err) {
		t.Errorf("these began before what they wait for had ended (%v):\n%s", err, text)
	}
	h := c.Check()
	for id, b := range h.Batches {
		assert.Equal(t, capri.Success, b.FinishState, "batch %d (%s run %d)", id, b.Task, b.RunNo)
	}
	assert.Len(t, h.Batches, levels*wide+2)
}

func TestGuarantee5_limits_hold(t *testing.T) {
	t.Parallel() // they wait most of the time
	db := sqltest.MySQL(t)
	const slots, most = 4, 9
	c := cluster.Start(t, db, cluster.Options{Masters: 3, Workers: 3, Slots: slots, Deaf: true, LeaseStable: time.Second})
	_, err := db.Store.DB().ExecContext(t.Context(), "UPDATE capri_service_lock SET max_running = ? WHERE service = 'dispatch'", most)
	require.NoError(t, err)
	work := "echo + $CAPRI_TASK >>" + c.Root + "/seen; sleep 0.4; echo - $CAPRI_TASK >>" + c.Root + "/seen"
	c.Apply(
		cluster.Spec("two", work, func(s *capri.Spec) { s.Period, s.Limits.Concurrency = capri.Hour, 2 }),
		cluster.Spec("wide", work, func(s *capri.Spec) { s.Period, s.Worker.Slots = capri.Hour, 3 }),
		cluster.Spec("three", work, func(s *capri.Spec) { s.Period, s.Limits.Concurrency = capri.Hour, 3 }),
		cluster.Spec("any", work, func(s *capri.Spec) { s.Period = capri.Hour }),
	)
	require.Equal(t, 96, c.ColdStart(capri.Hour, day))
	n := newNemesis(t, c)
	n.during(4*time.Second, n.master)

	lastEvent := func() (id int64) {
		require.NoError(t, db.Store.DB().QueryRowContext(t.Context(), "SELECT COALESCE(MAX(id), 0) FROM batch_event").Scan(&id))
		return id
	}
	require.NoError(t, c.Actions.Stop(t.Context(), "alice", store.Stop{Kind: store.Pause, Reason: "look first", Until: 0}))
	from := lastEvent()
	n.during(3*time.Second, n.master)
	c.Wait(func() string {
		running, err := db.Store.Running(t.Context())
		require.NoError(t, err)
		if running.Total > 0 {
			return fmt.Sprintf("the end of %d batches", running.Total)
		}
		return ""
	})
	to := lastEvent()
	require.NoError(t, c.Actions.EndStop(t.Context(), "alice", store.Stop{Kind: store.Pause}))
	n.during(4*time.Second, n.master)
	c.UntilAllFinished()

	h := c.Check() // slots of nodes and concurrency of tasks, by the events
	require.NoError(t, h.OnceEach(nil))
	now, busy := map[capri.BatchID]bool{}, 0
	for _, e := range h.Events {
		is := e.State == capri.Assigned || e.State == capri.Running
		if is != now[e.Batch] {
			if now[e.Batch] = is; is {
				busy++
			} else {
				busy--
			}
		}
		if busy > most {
			t.Fatalf("%s: %d batches are in hand, the limit is %d", e, busy, most)
		}
		if e.State == capri.Assigned && e.ID > from && e.ID <= to {
			t.Errorf("%s: dispatch is paused", e)
		}
	}
	t.Logf("events %d to %d are of the pause", from, to)
	assert.LessOrEqual(t, atOnce(t, c.Root+"/seen", "two"), 2)
	assert.LessOrEqual(t, atOnce(t, c.Root+"/seen", "three"), 3)
	assert.LessOrEqual(t, atOnce(t, c.Root+"/seen", "wide"), 3, "three nodes have room for one each")
	assert.LessOrEqual(t, atOnce(t, c.Root+"/seen", ""), most)
}

// atOnce is how many jobs of a task (of all tasks) have run at once, by what they wrote.
func atOnce(t *testing.T, file, task string) (peak int) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	n := 0
	for _, line := range lines {
		words := strings.Fields(line)
		require.Len(t, words, 2, line)
		if task != "" && words[1] != task {
			continue
		}
		if n++; words[0] == "-" {
			n -= 2
		}
		peak = max(peak, n)
	}
	require.NotZero(t, peak)
	return peak
}
