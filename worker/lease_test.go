package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"capri"
	"capri/calendar"
	"capri/internal/testenv"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

// asWorker names the variable that makes this test's binary a worker: one that can be frozen is a process of its own.
const asWorker = "CAPRI_TEST_AS_WORKER"

// life is what such a worker is told.
type life struct {
	Database, Dir, Shim                     string
	Beat, StartWithin, KillAfter, KillGrace time.Duration
}

func workerMain(text string) {
	var l life
	err := json.Unmarshal([]byte(text), &l)
	if err == nil {
		err = l.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (l life) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := store.Open(ctx, store.Options{Path: l.Database})
	if err != nil {
		return err
	}
	defer s.Close()
	w, err := New(Options{
		Store: s, Calendar: calendar.New(time.UTC), Dir: l.Dir, ShimPath: l.Shim, MinFreeMB: 1,
		Node: capri.Node{Name: "n1", Pool: "default", Slots: 8}, PollInterval: 50 * time.Millisecond,
		BeatInterval: l.Beat, StartWithin: l.StartWithin, KillAfter: l.KillAfter, KillGrace: l.KillGrace,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), audit: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// process starts a worker as a process of its own; the node returned has no Worker.
func (c *cluster) process(l life) (*node, *exec.Cmd) {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	n := &node{c: c, o: c.options(), logged: &testenv.Text{}}
	l.Database, l.Dir, l.Shim = c.db.Options.Path, n.o.Dir, n.o.ShimPath
	text, err := json.Marshal(l)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), self)
	cmd.Env = append(os.Environ(), asWorker+"="+string(text))
	cmd.Stderr = n.logged
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		n.retire()
		if c.t.Failed() {
			c.t.Logf("the worker's log:\n%s", n.logged)
		}
	})
	c.until("the worker to register", func() bool { return len(c.nodes()) == 1 }, n.logged.String)
	return n, cmd
}

func (c *cluster) nodes() []capri.Node {
	c.t.Helper()
	nodes, err := c.db.Store.Nodes(c.ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return nodes
}

// shortKill is a lease that a test can outlive, and that a busy machine does not: beats may be held up for seconds there.
const shortKill = 6 * time.Second

// short gives limits that a test can wait for.
func short(o *Options) {
	o.BeatInterval, o.StartWithin, o.KillAfter, o.KillGrace = 200*time.Millisecond, 4*time.Second, shortKill, 2*time.Second
}

// witness is a file to which jobs write what they did, and the command of one that runs until somebody ends it.
func witness(t testing.TB) (path, command string) {
	t.Helper()
	path = filepath.Join(filepath.Dir(dataDir(t)), "witness")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return path, `say() { echo "$CAPRI_ATTEMPT $1" >> ` + path + `; }; say begin; trap 'say end; exit 1' TERM; while :; do sleep 0.02; done`
}

func said(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// begun waits until a job has written that it runs.
func (c *cluster) begun(path string, a capri.Attempt) {
	c.t.Helper()
	c.says(path, a.String()+" begin\n")
}

func (c *cluster) says(path, line string) {
	c.t.Helper()
	c.until(fmt.Sprintf("the jobs to say %q", line), func() bool { return strings.Contains(said(path), line) }, func() string { return said(path) })
}

// lostOnce waits until a batch waits again because of its node, without a retry being used.
func (c *cluster) lostOnce(id capri.BatchID, why string) {
	c.t.Helper()
	b := c.untilBatch(id, "lost", func(b store.BatchRow) bool { return b.State == capri.Waiting && b.Losses == 1 })
	if b.Failures != 0 || !strings.Contains(b.Message, why) {
		c.t.Errorf("it waits with %d failures and %q, want %q", b.Failures, b.Message, why)
	}
}

func TestOne_at_a_time_a_frozen_workers_jobs_are_ended_by_the_shim(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := newCluster(t, sqltest.SQLite(t))
	_, cmd := c.process(life{Beat: 200 * time.Millisecond, StartWithin: 4 * time.Second, KillAfter: shortKill, KillGrace: 2 * time.Second})
	path, command := witness(t)
	id := c.launch("n1", command, nil)
	c.begun(path, capri.Attempt{Batch: id, Number: 1})
	c.started(id)
	testenv.Freeze(t, cmd.Process.Pid)
	frozen := time.Now()
	c.says(path, fmt.Sprintf("%d.1 end", id))
	t.Logf("its job was ended %s after it was frozen", time.Since(frozen).Round(time.Millisecond))
	if b := c.batch(id); b.State != capri.Running {
		t.Fatalf("it is %s while its worker is frozen", b.State)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.lostOnce(id, "the node's lease ran out")
	c.assign("n1", id)
	c.begun(path, capri.Attempt{Batch: id, Number: 2})
}

func TestOne_at_a_time_a_frozen_shims_jobs_are_ended_by_the_worker(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := newCluster(t, sqltest.SQLite(t))
	away := &awayDatabase{Database: c.db.Store}
	n := c.run(func(o *Options) { short(o); o.Store = away })
	path, command := witness(t)
	id := c.launch("n1", command, nil)
	c.begun(path, capri.Attempt{Batch: id, Number: 1})
	c.started(id)
	lives, _ := filepath.Glob(filepath.Join(n.o.Dir, shimDir, "shim-*"))
	for _, dir := range lives {
		for _, pid := range shimPids(dir) {
			testenv.Freeze(t, pid)
		}
	}
	away.set(true)
	c.says(path, fmt.Sprintf("%d.1 end", id))
	away.set(false)
	c.lostOnce(id, "lost its shim")
	c.assign("n1", id)
	c.begun(path, capri.Attempt{Batch: id, Number: 2})
}

func TestA_database_that_is_away_for_longer_than_the_lease_ends_the_jobs_and_no_sooner(t *testing.T) {
	sqltest.EachAtOnce(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		away := &awayDatabase{Database: db.Store}
		n := c.run(func(o *Options) { short(o); o.Store = away })
		path, command := witness(t)
		id := c.launch("n1", command, nil)
		c.begun(path, capri.Attempt{Batch: id, Number: 1})
		c.started(id)

		away.set(true)
		time.Sleep(n.o.KillAfter / 6)
		away.set(false)
		beat := c.nodes()[0].Beat
		c.until("it to beat again", func() bool { return c.nodes()[0].Beat > beat }, n.logged.String)
		time.Sleep(n.o.KillAfter)
		if got := said(path); strings.Contains(got, "end") || c.batch(id).State != capri.Running {
			t.Fatalf("after a short absence of the database the jobs said %q", got)
		}

		away.set(true)
		c.says(path, fmt.Sprintf("%d.1 end", id))
		if b := c.batch(id); b.State != capri.Running {
			t.Fatalf("it is %s", b.State)
		}
		away.set(false)
		c.lostOnce(id, "the node's lease ran out")
	})
}

func TestOne_at_a_time_a_node_that_was_called_lost_ends_all_and_then_registers_anew(t *testing.T) {
	sqltest.EachAtOnce(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		n := c.run(func(o *Options) { short(o); o.KillAfter = time.Hour })
		path, command := witness(t)
		slow := strings.Replace(command, "say end", "sleep 0.3; say end", 1)
		id := c.launch("n1", slow, nil)
		old := capri.Attempt{Batch: id, Number: 1}
		c.begun(path, old)
		c.started(id)
		boot := c.nodes()[0].BootID
		// What the masters do: both in one transaction.
		if _, err := db.Store.DB().ExecContext(c.ctx, "UPDATE capri_schedul_cluster SET lost = 1 WHERE host = 'n1'"); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Store.FinishAttempts(c.ctx, "n1", []store.Result{{Attempt: old, Outcome: store.Lost, Message: "node lost"}}); err != nil {
			t.Fatal(err)
		}
		c.until("it to register anew", func() bool { return !c.nodes()[0].Lost && c.nodes()[0].BootID != boot }, n.logged.String)
		if got, want := said(path), fmt.Sprintf("%d.1 begin\n%d.1 end\n", id, id); got != want {
			t.Fatalf("it registered anew when its jobs had said %q, want %q", got, want)
		}
		c.assign("n1", id)
		c.begun(path, capri.Attempt{Batch: id, Number: 2})
		c.started(id)
		if b := c.batch(id); b.Losses != 1 || b.Attempt != 2 {
			t.Errorf("the old attempt's end counted: %d losses at attempt %d", b.Losses, b.Attempt)
		}
	})
}

func TestA_claim_that_meets_lost_does_not_wait_for_the_next_beat(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) { o.BeatInterval = time.Hour })
	c.until("it to register", func() bool { return len(c.nodes()) == 1 }, n.logged.String)
	boot := c.nodes()[0].BootID
	if _, err := c.db.Store.DB().ExecContext(c.ctx, "UPDATE capri_schedul_cluster SET lost = 1"); err != nil {
		t.Fatal(err)
	}
	c.wants(c.launch("n1", "true", nil), capri.Success, "")
	// By a claim that was let through although the node is lost it would have run, too, and under the old registration.
	if node := c.nodes()[0]; node.Lost || node.BootID == boot {
		t.Errorf("it ran while the node was lost=%v with the boot %s, which was %s before", node.Lost, node.BootID, boot)
	}
}

// beatNow makes it beat as if a claim had been refused.
func (n *node) beatNow() {
	select {
	case n.disowned <- struct{}{}:
	default:
	}
}

func TestNothing_is_claimed_under_an_old_lease(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) {
		o.BeatInterval, o.StartWithin, o.KillAfter = time.Hour, 2*time.Second, time.Hour
	})
	c.until("the lease to be old", func() bool { _, young := n.lease.startBy(); return !young && n.registered() != "" }, n.logged.String)
	id := c.launch("n1", "true", nil)
	time.Sleep(5 * n.o.PollInterval)
	if b := c.batch(id); b.State != capri.Assigned {
		t.Errorf("it is %s", b.State)
	}
	// Beats make it young again; one is not enough on a machine that is slow to claim, or so slow to start that it gives back.
	c.until("it to be claimed", func() bool {
		n.beatNow()
		b := c.batch(id)
		if b.State == capri.Waiting {
			c.assign("n1", id)
		}
		return b.State == capri.Finished
	}, n.logged.String)
	c.wants(id, capri.Success, "")
}

func TestNothing_is_started_that_was_prepared_for_longer_than_the_lease_allows(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := newCluster(t, sqltest.SQLite(t))
	gated := &gatedFiles{Files: localOnly(), asked: make(chan struct{}, 10), gate: make(chan struct{})}
	n := c.run(func(o *Options) {
		o.BeatInterval, o.StartWithin, o.KillAfter, o.Files = time.Hour, 2*time.Second, time.Hour, gated
	})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "_SUCCESS"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id := c.waitingFor(dir, "true")
	c.until("it to be prepared", func() bool {
		if _, young := n.lease.startBy(); !young { // on a machine that is slow to claim
			n.beatNow()
		}
		return len(gated.asked) > 0
	}, n.logged.String)
	c.until("the lease to be old", func() bool { _, young := n.lease.startBy(); return !young }, n.logged.String)
	close(gated.gate)
	b := c.waiting(id)
	if b.StartTime != 0 || b.Losses != 0 || !strings.Contains(b.Message, "no beat of the node was acknowledged for 2s") {
		t.Errorf("it waits with start %s, %d losses and %q", b.StartTime, b.Losses, b.Message)
	}
}

func TestA_job_that_is_held_up_between_the_database_and_the_shim_is_not_started(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) {
		short(o)
		o.KillAfter = time.Hour
		o.Store = &slowDatabase{Database: o.Store, slow: o.StartWithin + 100*time.Millisecond}
	})
	path, command := witness(t)
	id := c.launch("n1", command, nil)
	c.lostOnce(id, "before it was started")
	if got := said(path); got != "" {
		t.Errorf("it ran: %s", got)
	}
	if n.table.jobs() != 0 {
		t.Error("it is still in hand")
	}
}

func TestA_node_whose_lease_has_no_end_never_ends_its_jobs(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"standalone": func(o *Options) { o.KillAfter, o.StartWithin = 0, 0 },
		"wait":       func(o *Options) { o.LeaseWait = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			c := newCluster(t, sqltest.SQLite(t))
			away := &awayDatabase{Database: c.db.Store}
			n := c.run(func(o *Options) { short(o); change(o); o.Store = away })
			path, command := witness(t)
			id := c.launch("n1", command, nil)
			c.begun(path, capri.Attempt{Batch: id, Number: 1})
			c.started(id)
			if node := c.nodes()[0]; node.KillAfter != 0 || node.LeaseWait != (name == "wait") {
				t.Errorf("it is registered with %s and %v", node.KillAfter, node.LeaseWait)
			}
			away.set(true)
			time.Sleep(shortKill + time.Second)
			away.set(false)
			beat := c.nodes()[0].Beat
			c.until("it to beat again", func() bool { return c.nodes()[0].Beat > beat }, n.logged.String)
			if got := said(path); strings.Contains(got, "end") {
				t.Errorf("the jobs said %q", got)
			}
			c.kill(id)
			c.wants(id, capri.Killed, "")
		})
	}
}

func TestA_restart_within_the_lease_keeps_the_jobs_and_one_that_comes_later_finds_them_ended(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(short)
	path, command := witness(t)
	id := c.launch("n1", command, nil)
	c.begun(path, capri.Attempt{Batch: id, Number: 1})
	c.started(id)
	for range 4 { // for longer than a lease
		n.stop()
		time.Sleep(n.o.KillAfter / 6)
		n.start()
		time.Sleep(n.o.KillAfter / 6)
	}
	if got := said(path); strings.Contains(got, "end") || c.batch(id).State != capri.Running {
		t.Fatalf("after restarts the jobs said %q", got)
	}
	n.stop()
	if c.nodes()[0].BootID == "" {
		t.Error("it has left its registration while a job runs")
	}
	c.says(path, fmt.Sprintf("%d.1 end", id))
	n.start()
	c.lostOnce(id, "the node's lease ran out")
}

func TestAnother_directory_gets_a_name_when_its_worker_left_or_is_silent_with_nothing_in_hand(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := newCluster(t, sqltest.SQLite(t))
	first := c.run(func(o *Options) { o.KillAfter = time.Hour })
	c.until("it to register", func() bool { return len(c.nodes()) == 1 }, first.logged.String)
	other := func() error {
		o := c.options()
		o.Log = slog.New(slog.DiscardHandler)
		w, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		w.waker(c)
		ctx, cancel := context.WithCancel(c.ctx)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		for {
			select {
			case err := <-done:
				return err
			case <-time.After(3 * time.Millisecond):
			}
			if w.registered() != "" {
				cancel()
				return <-done
			}
		}
	}
	if err := other(); !errors.Is(err, capri.ErrConflict) || !strings.Contains(err.Error(), "beats already from another data directory") {
		t.Errorf("while the first beats the other was told %v", err)
	}
	first.stop()
	if err := other(); err != nil {
		t.Errorf("when the first had left the other was told %v", err)
	}

	// Silent, and it may run something still.
	first.start()
	id := c.launch("n1", "sleep 1000", nil)
	c.started(id)
	first.stop()
	if err := other(); !errors.Is(err, capri.ErrConflict) || !strings.Contains(err.Error(), "still holds 1 batches that may run") {
		t.Errorf("while the first may run a job the other was told %v", err)
	}
	if _, err := c.db.Store.FinishAttempts(c.ctx, "n1", []store.Result{{Attempt: capri.Attempt{Batch: id, Number: 1}, Outcome: store.Failed}}); err != nil {
		t.Fatal(err)
	}
	if err := other(); err != nil {
		t.Errorf("when the first was silent with nothing in hand the other was told %v", err)
	}
}

// waker makes a worker that never runs a job deaf to the test's assignments.
func (w *Worker) waker(*cluster) { w.o.Waker = wake.NewLocal() }

func TestA_node_reports_what_it_holds_when_that_changed(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		n := c.run(func(o *Options) { o.inventory = 20 * time.Millisecond })
		read := func() store.Inventory {
			all, err := db.Store.Inventories(c.ctx)
			if err != nil {
				t.Fatal(err)
			}
			return all["n1"]
		}
		until := func(what string, ok func(store.Inventory) bool) (i store.Inventory) {
			t.Helper()
			c.until(what, func() bool { i = read(); return ok(i) }, func() string { return fmt.Sprintf("%+v", i) })
			return i
		}
		empty := until("the first report", func(i store.Inventory) bool {
			return i.BootID != "" && i.BootID == n.registered() && len(i.Attempts) == 0
		})
		id := c.launch("n1", "sleep 1000", nil)
		a := capri.Attempt{Batch: id, Number: 1}
		full := until("the job in it", func(i store.Inventory) bool { return i.Attempts[a] && i.Report > empty.Report })
		time.Sleep(10 * n.o.inventory)
		if again := read(); again.Report != full.Report {
			t.Errorf("it reported %d times more although nothing changed", again.Report-full.Report)
		}
		n.stop()
		n.start()
		until("the next life's report", func(i store.Inventory) bool { return i.BootID != full.BootID && i.Attempts[a] })
		c.kill(id)
		until("the job gone from it", func(i store.Inventory) bool { return len(i.Attempts) == 0 })
	})
}

func TestA_beat_tells_how_far_the_nodes_clock_is_off(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) { o.BeatInterval = 50 * time.Millisecond })
	want := time.Since(c.db.Clock.Now().In(time.UTC))
	c.until("the offset to be told", func() bool {
		nodes := c.nodes()
		return len(nodes) == 1 && (nodes[0].ClockOffset-want).Abs() < time.Minute
	}, n.logged.String)
}

func TestOne_at_a_time_what_a_hanging_shim_runs_and_was_given_away_is_ended_before_anything_is_claimed(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) { short(o); o.KillAfter, o.answer = time.Hour, 3*time.Second })
	path, command := witness(t)
	id := c.launch("n1", command, nil)
	old := capri.Attempt{Batch: id, Number: 1}
	c.begun(path, old)
	c.started(id)
	lives, _ := filepath.Glob(filepath.Join(n.o.Dir, shimDir, "shim-*"))
	pids := shimPids(lives[0])
	if len(pids) != 1 {
		t.Fatalf("its shim is %v", pids)
	}
	testenv.Freeze(t, pids[0])
	n.stop()
	if _, err := c.db.Store.FinishAttempts(c.ctx, "n1", []store.Result{{Attempt: old, Outcome: store.Lost}}); err != nil {
		t.Fatal(err)
	}
	c.assign("n1", id)
	n.start()
	c.begun(path, capri.Attempt{Batch: id, Number: 2})
	if got, want := said(path), fmt.Sprintf("%d.1 begin\n%d.1 end\n%d.2 begin\n", id, id, id); got != want {
		t.Errorf("the jobs said %q, want %q", got, want)
	}
}
