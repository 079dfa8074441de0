package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"capri"
	"capri/calendar"
	"capri/internal/testenv"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
	"capri/worker/shim"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(asWorker); text != "" {
		workerMain(text)
	}
	testenv.AtOnce(6)
	goleak.VerifyTestMain(m)
}

// cluster is a database, and the parts of the masters that a worker's test has to play.
type cluster struct {
	t      testing.TB
	db     *sqltest.DB
	waker  *wake.Local
	lease  capri.Lease // of dispatch
	ctx    context.Context
	serial int
}

func newCluster(t testing.TB, db *sqltest.DB) *cluster {
	t.Helper()
	return &cluster{t: t, db: db, waker: wake.NewLocal(), lease: db.Lease(t, "dispatch"), ctx: context.Background()}
}

// node is a worker that runs, and can be stopped and run again on its directory.
type node struct {
	*Worker
	c      *cluster
	o      Options
	logged *testenv.Text
	cancel context.CancelFunc
	done   chan error
}

// dataDir is a directory that jobs of other accounts can pass through, which testing's own is not.
func dataDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "data")
}

func (c *cluster) options() Options {
	return Options{
		Store: c.db.Store, Calendar: calendar.New(time.UTC), Waker: c.waker, Dir: dataDir(c.t),
		Node:         capri.Node{Name: "n1", Pool: "default", Slots: 8},
		PollInterval: 50 * time.Millisecond, BeatInterval: time.Second, MinFreeMB: 1,
		ShimPath: testenv.Binary(c.t, "capri-shim"), KillGrace: time.Second, audit: 100 * time.Millisecond,
	}
}

// run starts a worker; change may be nil.
func (c *cluster) run(change func(*Options)) *node {
	c.t.Helper()
	n := &node{c: c, o: c.options(), logged: &testenv.Text{}}
	n.o.Log = slog.New(slog.NewTextHandler(n.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if change != nil {
		change(&n.o)
	}
	n.start()
	c.t.Cleanup(func() {
		n.stop()
		n.retire()
		if c.t.Failed() {
			c.t.Logf("the worker's log:\n%s", n.logged)
		}
	})
	return n
}

func (n *node) start() {
	n.c.t.Helper()
	var err error
	if n.Worker, err = New(n.o); err != nil {
		n.c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.done = cancel, make(chan error, 1)
	w, done := n.Worker, n.done
	go func() { done <- w.Run(ctx) }()
}

// stop stops the worker and leaves its jobs to the shim.
func (n *node) stop() {
	n.c.t.Helper()
	if n.cancel == nil {
		return
	}
	n.cancel()
	n.cancel = nil
	select {
	case err := <-n.done:
		if err != nil {
			n.c.t.Errorf("the worker stopped with: %v", err)
		}
	case <-time.After(time.Minute):
		n.c.t.Fatal("the worker does not stop")
	}
}

// retire ends the shims of a stopped worker with all their jobs, so that no test leaves processes behind.
func (n *node) retire() {
	lives, _ := filepath.Glob(filepath.Join(n.o.Dir, shimDir, "shim-*"))
	for _, dir := range lives {
		for _, pid := range shimPids(dir) {
			if p, err := os.FindProcess(pid); err == nil {
				p.Signal(os.Interrupt) // nothing: shims ignore it; the next is for them
				p.Kill()
			}
		}
		if r, err := shim.ReadJournal(dir); err == nil {
			_, _ = shim.RemoveCgroup(r.Life.Cgroup) // what main processes had started
		}
	}
}

// shimPids finds the processes whose last argument is the directory.
func shimPids(dir string) []int {
	var pids []int
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		b, _ := os.ReadFile(f)
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		if len(args) == 2 && args[1] == dir && strings.HasSuffix(args[0], "capri-shim") {
			var pid int
			fmt.Sscanf(f, "/proc/%d/", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// task stores a task that runs the command.
func (c *cluster) task(command string, change func(*capri.Spec)) *capri.Task {
	c.t.Helper()
	return c.db.Task(c.t, func(s *capri.Spec) {
		s.Job.Command = command
		s.Limits.Concurrency = 1000
		if change != nil {
			change(s)
		}
	})
}

// batches inserts n batches of a task; conditions may be nil.
func (c *cluster) batches(t *capri.Task, n int, conditions func(i int) capri.Conditions) []capri.BatchID {
	c.t.Helper()
	news := make([]*capri.NewBatch, n)
	for i := range news {
		c.serial++
		start := sqltest.Start.Add(time.Duration(c.serial) * 24 * time.Hour)
		nb := &capri.NewBatch{Batch: capri.Batch{
			TaskID: t.ID, TaskVersion: t.Version, Period: t.Period, BatchNo: capri.BatchNo(fmt.Sprintf("b%06d", c.serial)), Latest: true,
			ScheduleTime: start.Add(24*time.Hour + time.Minute), DataStart: start, DataEnd: start.Add(24 * time.Hour),
			Priority: t.Priority, Slots: t.Worker.Slots, MemoryMB: t.Worker.MemoryMB, Concurrency: 1000, Pool: "default", Strategy: "random", Account: t.Job.Account,
		}}
		if conditions != nil {
			nb.Conditions = conditions(i)
		}
		news[i] = nb
	}
	in, err := c.db.Store.InsertBatches(c.ctx, store.ByPerson("test"), news, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	ids := make([]capri.BatchID, n)
	for i, b := range in.Made {
		ids[i] = b.ID
	}
	return ids
}

// assign gives batches to a node and wakes it.
func (c *cluster) assign(node string, ids ...capri.BatchID) {
	c.t.Helper()
	as := make([]store.Assignment, len(ids))
	for i, id := range ids {
		as[i] = store.Assignment{Batch: id, Node: node}
	}
	n, err := c.db.Store.Assign(c.ctx, c.lease, as)
	if err != nil || n != len(ids) {
		c.t.Fatalf("assigned %d of %d batches: %v", n, len(ids), err)
	}
	c.waker.Wake(wake.Node(node))
}

// launch stores a task, one batch of it, and assigns it.
func (c *cluster) launch(node, command string, change func(*capri.Spec)) capri.BatchID {
	c.t.Helper()
	id := c.batches(c.task(command, change), 1, nil)[0]
	c.assign(node, id)
	return id
}

func (c *cluster) batch(id capri.BatchID) store.BatchRow {
	c.t.Helper()
	b, err := c.db.Store.Batch(c.ctx, id)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// until waits for a condition; say tells what is there instead when it does not come.
func (c *cluster) until(what string, ok func() bool, say func() string) {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(3 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("waited for: %s; there is: %s", what, say())
		}
	}
}

func (c *cluster) untilBatch(id capri.BatchID, what string, ok func(store.BatchRow) bool) store.BatchRow {
	c.t.Helper()
	var b store.BatchRow
	c.until(fmt.Sprintf("batch %d to be %s", id, what), func() bool { b = c.batch(id); return ok(b) }, func() string {
		events, _ := c.db.Store.Events(c.ctx, id)
		return fmt.Sprintf("%s %s, attempt %d, start %s, failures %d, losses %d, message %q, events %+v", b.State, b.FinishState, b.Attempt, b.StartTime, b.Failures, b.Losses, b.Message, events)
	})
	return b
}

func (c *cluster) finished(id capri.BatchID) store.BatchRow {
	c.t.Helper()
	return c.untilBatch(id, "finished", func(b store.BatchRow) bool { return b.State == capri.Finished })
}

func (c *cluster) started(id capri.BatchID) store.BatchRow {
	c.t.Helper()
	return c.untilBatch(id, "running", func(b store.BatchRow) bool { return b.State == capri.Running && b.StartTime != 0 })
}

func (c *cluster) waiting(id capri.BatchID) store.BatchRow {
	c.t.Helper()
	return c.untilBatch(id, "waiting", func(b store.BatchRow) bool { return b.State == capri.Waiting })
}

// wants finishes the batch and compares how.
func (c *cluster) wants(id capri.BatchID, how capri.FinishState, message string) store.BatchRow {
	c.t.Helper()
	b := c.finished(id)
	if b.FinishState != how || !strings.Contains(b.Message, message) {
		c.t.Fatalf("batch %d ended as %s with %q, want %s with %q", id, b.FinishState, b.Message, how, message)
	}
	return b
}

// output reads all that an attempt wrote, when it is complete.
func (n *node) output(id capri.BatchID, attempt int, stderr bool) string {
	n.c.t.Helper()
	var all []byte
	b := n.c.batch(id)
	n.c.until("the log to be complete", func() bool {
		all = nil
		for offset := int64(0); ; {
			data, next, complete, err := n.ReadLog(n.c.ctx, b, attempt, stderr, offset, 0)
			if err != nil {
				return false
			}
			all = append(all, data...)
			if complete {
				return true
			}
			if next == offset {
				return false
			}
			offset = next
		}
	}, func() string { return string(all) })
	return string(all)
}
