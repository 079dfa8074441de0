// Package cluster runs masters and workers as values in one process, on a real database and with real shims and jobs:
// the whole way of a batch, in a second or two.
//
//	c := cluster.Start(t, db, cluster.Options{Masters: 2, Workers: 1})
//	c.Apply(specs…); c.ColdStart(capri.Day, "2026-11-19"); c.Finished(…); c.Check()
//
// Each master and each worker has what a process of its own would have: pools, block of ids and (with Redis) waker.
// What is the program's alone (flags, signals, the API's listener) is tested by the real one, in test/.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"capri"
	"capri/action"
	"capri/conf"
	"capri/internal/testenv"
	"capri/master"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
	"capri/worker"
)

// Options say what to start.
type Options struct {
	Masters int
	Workers int
	Slots   int    // of each worker; default 8
	Redis   string // its address: every process has its own waker there; "": one waker for all
	Deaf    bool   // every process has a waker of its own that reaches nobody else, as without Redis

	LeaseStable time.Duration // how long the same masters live before leases move among them; 0: the usual half minute

	// The limits of a node's lease; conf holds no test to more than seconds.
	BeatInterval time.Duration // default 1 s
	KillAfter    time.Duration // default as configured; jobs start within four fifths of it
	KillGrace    time.Duration // default 1 s
	LostAfter    time.Duration // when masters call a node lost; default as configured, and never before a node's own limits
	Hurry        int           // masters count a node's silence so many times as fast as it passes; default 1
}

// Cluster is what runs. Everything is stopped when the test ends.
type Cluster struct {
	DB      *sqltest.DB
	Actions *action.Actions
	Masters []*Process
	Workers []*Process
	Root    string // a directory in which jobs may write

	t     testing.TB
	o     Options
	waker wake.Waker
	log   *testenv.Text
	ctx   context.Context
}

// Process is a master or a worker, which can be stopped and started again.
type Process struct {
	Name string
	Dir  string // of a worker

	c      *Cluster
	store  *store.Store // of a master; nil: it has crashed
	master bool
	run    func(ctx context.Context) error // makes it and runs it
	cancel context.CancelFunc
	done   chan error
	cut    atomic.Bool // see Cut
}

// Start starts a cluster on db, whose clock runs from now on.
func Start(t testing.TB, db *sqltest.DB, o Options) *Cluster {
	t.Helper()
	if o.Slots == 0 {
		o.Slots = 8
	}
	o.Hurry = max(1, o.Hurry)
	if o.BeatInterval == 0 {
		o.BeatInterval = time.Second
	}
	if o.KillGrace == 0 {
		o.KillGrace = time.Second
	}
	c := &Cluster{DB: db, t: t, o: o, waker: wake.NewLocal(), log: &testenv.Text{}, ctx: t.Context(), Root: OpenDir(t)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log:\n%s", c.log)
		}
	})
	c.runClock()
	if o.Redis != "" {
		c.waker = c.newWaker()
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	config := conf.Default()
	config.Node.BeatInterval, config.Node.KillGrace = o.BeatInterval, o.KillGrace
	if o.KillAfter > 0 {
		config.Node.KillAfter, config.Node.StartWithin = o.KillAfter, 0
	}
	if o.LostAfter > 0 {
		config.Node.LostAfter = o.LostAfter
	}
	calendar := worker.FromConfig(config).Calendar
	c.Actions = action.New(db.Store, calendar, c.waker, slog.New(slog.NewTextHandler(c.log, nil)))
	for i := range o.Masters {
		p := &Process{Name: fmt.Sprintf("m%d", i+1), c: c, master: true}
		w := c.waker
		p.store = c.again()
		if o.Redis != "" || o.Deaf {
			w = c.newWaker()
		}
		p.run = func(ctx context.Context) error {
			return master.New(master.Options{
				Store: p.store, Calendar: calendar, Waker: w, Files: worker.FromConfig(config).Files, Name: p.Name,
				Redis: wake.RedisOptions{Addr: o.Redis}, BeatEvery: time.Second, LeaseStable: o.LeaseStable,
				LostAfter: config.Node.LostAfter, Monotonic: faster(o.Hurry),
				Random: rand.New(rand.NewPCG(seed, uint64(i))), Log: c.logger(p.Name),
			}).Run(ctx)
		}
		c.Masters = append(c.Masters, p)
	}
	for i := range o.Workers {
		p := &Process{Name: fmt.Sprintf("n%d", i+1), Dir: filepath.Join(OpenDir(t), "data"), c: c}
		s, w := c.again(), c.waker
		if o.Redis != "" || o.Deaf {
			w = c.newWaker()
		}
		shim := testenv.Binary(t, "capri-shim")
		p.run = func(ctx context.Context) error {
			wo := worker.FromConfig(config)
			wo.Store, wo.Waker, wo.Dir, wo.ShimPath, wo.Log = link{s, &p.cut}, w, p.Dir, shim, c.logger(p.Name)
			wo.Node.Name, wo.Node.Slots = p.Name, o.Slots
			wo.MinFreeMB = 1
			wk, err := worker.New(wo)
			if err != nil {
				return err
			}
			return wk.Run(ctx)
		}
		c.Workers = append(c.Workers, p)
		t.Cleanup(func() { KillShims(p.Dir) })
	}
	for _, p := range append(append([]*Process{}, c.Masters...), c.Workers...) {
		p.Start()
		t.Cleanup(p.Stop)
	}
	return c
}

// again opens the database as another process would. SQLite's has one process.
func (c *Cluster) again() *store.Store {
	if c.DB.Store.Dialect().Name == "sqlite" {
		return c.DB.Store
	}
	return c.DB.Again(c.t)
}

func (c *Cluster) newWaker() wake.Waker {
	if c.o.Redis == "" {
		return wake.NewLocal()
	}
	w := wake.NewRedis(wake.RedisOptions{Addr: c.o.Redis}, c.logger("redis"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	c.t.Cleanup(func() { cancel(); <-done })
	return w
}

func (c *Cluster) logger(name string) *slog.Logger {
	return slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{Level: slog.LevelInfo})).With("process", name)
}

// runClock lets the database's clock run with the real one, on top of what the test sets.
func (c *Cluster) runClock() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				c.DB.Clock.Advance(now.Sub(last).Truncate(time.Millisecond))
				last = last.Add(now.Sub(last).Truncate(time.Millisecond))
			}
		}
	}()
	c.t.Cleanup(func() { cancel(); <-done })
}

// Start starts the process; it must not run.
func (p *Process) Start() {
	if p.master && p.store == nil {
		p.store = p.c.again()
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.done = cancel, make(chan error, 1)
	done := p.done
	go func() { done <- p.run(ctx) }()
}

// Runs tells whether the process has been started and not ended.
func (p *Process) Runs() bool { return p.cancel != nil }

// Stop ends the process in order, once.
func (p *Process) Stop() {
	p.c.t.Helper()
	if p.cancel == nil {
		return
	}
	p.cancel()
	p.cancel = nil
	select {
	case err := <-p.done:
		if err != nil {
			p.c.t.Errorf("%s ended with: %v", p.Name, err)
		}
	case <-time.After(30 * time.Second):
		p.c.t.Errorf("%s does not stop", p.Name)
	}
}

// Crash ends a master as kill -9 would, as far as others can see: it says nothing more, and gives nothing back. On SQLite
// all masters share one store, so there is nothing to cut there.
func (p *Process) Crash() {
	p.c.t.Helper()
	if p.store == nil || p.store == p.c.DB.Store {
		p.c.t.Fatalf("%s cannot be cut off alone", p.Name)
	}
	p.store.Close()
	p.Stop()
	p.store = nil
}

// Apply makes the specs what the store holds, through the same door as everybody's task files.
func (c *Cluster) Apply(specs ...capri.Spec) {
	c.t.Helper()
	// JSON is YAML.
	data, err := json.Marshal(map[string]any{"tasks": specs})
	if err == nil {
		var r action.ApplyRequest
		r.Sources = append(r.Sources, struct {
			Name string
			Data []byte
		}{"test.yaml", data})
		_, err = c.Actions.Apply(c.ctx, "test", r)
	}
	if err != nil {
		c.t.Fatalf("apply: %v", err)
	}
}

// Spec is a valid definition of a task that runs a command.
func Spec(name, command string, change func(*capri.Spec)) capri.Spec {
	s := sqltest.Spec(name)
	s.Owner = ""
	s.Job.Command = command
	s.Limits.Concurrency = 1000
	s.Retry.FailedIntervalS = 1
	s.Valid.From = "2026-01-01 00:00:00"
	if change != nil {
		change(&s)
	}
	return s
}

// ColdStart makes the batches of a period whose data are of that day, and tells how many are new.
func (c *Cluster) ColdStart(p capri.Period, day string, tasks ...string) int {
	c.t.Helper()
	planned, err := c.Actions.ColdStart(c.ctx, "test", action.ColdStartRequest{Periods: []capri.Period{p}, From: day, To: day, ByData: true, Tasks: tasks})
	if err != nil {
		c.t.Fatalf("cold start: %v", err)
	}
	c.Made(planned)
	n := 0
	for _, it := range planned.Items {
		if it.Action == capri.ItemNew {
			n++
		}
	}
	return n
}

// Made waits until the batches of a campaign exist.
func (c *Cluster) Made(p *action.Planned) {
	c.t.Helper()
	c.Wait(func() string {
		now, err := c.DB.Store.Campaign(c.ctx, p.ID)
		if err != nil {
			return err.Error()
		}
		if now.State == capri.CampaignRefused {
			c.t.Fatalf("campaign %d was refused: %s", p.ID, now.Message)
		}
		if now.State == capri.CampaignCreating {
			return "campaign " + now.Target + " is creating"
		}
		return ""
	})
}

// patience is how long a test waits for something that takes seconds at most on an idle machine. It ends a test that would
// wait for ever; how fast something is, it does not judge.
const patience = 3 * time.Minute

// Wait waits until missing says nothing more.
func (c *Cluster) Wait(missing func() string) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		asked := time.Now()
		what := missing()
		if what == "" {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("after %s there is still missing: %s", patience, what)
		}
		time.Sleep(max(10*time.Millisecond, 3*time.Since(asked))) // who looks must not hold up what he waits for
	}
}

// Batch reads the run that counts of a task's batch_no.
func (c *Cluster) Batch(task string, no capri.BatchNo) store.BatchRow {
	c.t.Helper()
	t, err := c.DB.Store.TaskByName(c.ctx, task)
	if err != nil {
		c.t.Fatal(err)
	}
	all, err := c.DB.Store.LatestRuns(c.ctx, t.ID, []capri.BatchNo{no})
	if err != nil {
		c.t.Fatal(err)
	}
	b, ok := all[no]
	if !ok {
		c.t.Fatalf("there is no batch %s of %s", no, task)
	}
	return store.BatchRow{Batch: b, Task: task}
}

// Count tells how many runs of a task's batch_no there are.
func (c *Cluster) Count(task string, no capri.BatchNo) int {
	c.t.Helper()
	t, err := c.DB.Store.TaskByName(c.ctx, task)
	if err != nil {
		c.t.Fatal(err)
	}
	rows, err := c.DB.Store.Batches(c.ctx, store.BatchFilter{Task: t.ID, AllRuns: true})
	if err != nil {
		c.t.Fatal(err)
	}
	n := 0
	for _, b := range rows {
		if b.BatchNo == no {
			n++
		}
	}
	return n
}

// Wake wakes services, as an action would.
func (c *Cluster) Wake(topics ...string) { c.waker.Wake(topics...) }

// Until waits for a batch to be as is says.
func (c *Cluster) Until(task string, no capri.BatchNo, what string, is func(store.BatchRow) bool) store.BatchRow {
	c.t.Helper()
	var b store.BatchRow
	c.Wait(func() string {
		if b = c.Batch(task, no); is(b) {
			return ""
		}
		return fmt.Sprintf("%s %s is to be %s; it is %s/%s with %d unmet, attempt %d, %q", task, no, what, b.State, b.FinishState, b.Unmet, b.Attempt, b.Message)
	})
	return b
}

// UntilFinished waits for a batch to end, in that way.
func (c *Cluster) UntilFinished(task string, no capri.BatchNo, how capri.FinishState) store.BatchRow {
	c.t.Helper()
	b := c.Until(task, no, "finished", func(b store.BatchRow) bool { return b.State == capri.Finished })
	if b.FinishState != how {
		c.t.Fatalf("%s %s has ended as %s, want %s: %s", task, no, b.FinishState, how, b.Message)
	}
	return b
}

// UntilStarted waits for a batch's job to run.
func (c *Cluster) UntilStarted(task string, no capri.BatchNo) store.BatchRow {
	c.t.Helper()
	return c.Until(task, no, "running", func(b store.BatchRow) bool { return b.State == capri.Running && b.StartTime != 0 })
}

// UntilAllFinished waits for every batch to end.
func (c *Cluster) UntilAllFinished() {
	c.t.Helper()
	c.Wait(func() string {
		open, err := c.DB.Store.Batches(c.ctx, store.BatchFilter{States: []capri.State{capri.Waiting, capri.Assigned, capri.Running}, Limit: 5})
		if err != nil {
			c.t.Fatal(err)
		}
		if len(open) == 0 {
			return ""
		}
		counts, err := c.DB.Store.Counts(c.ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		b := open[0]
		return fmt.Sprintf("%d wait, %d are ready, %d run; such as %s %s: %s/%s with %d unmet, %q", counts.Waiting, counts.Ready, counts.Running, b.Task, b.BatchNo, b.State, b.FinishState, b.Unmet, b.Message)
	})
}

// Check reads the history and finds whatever must never be.
func (c *Cluster) Check() *History {
	c.t.Helper()
	h, err := Read(c.ctx, c.DB.Store)
	if err != nil {
		c.t.Fatal(err)
	}
	slots := map[string]int{}
	for _, p := range c.Workers {
		slots[p.Name] = c.o.Slots
	}
	if err := h.Check(slots); err != nil {
		c.t.Errorf("the history: %v", err)
	}
	return h
}

// OpenDir is a directory that any account may enter and write in, which testing's own is not.
func OpenDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(dir); strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// KillShims ends the shims of a worker's directory, and with them their jobs, so that no test leaves processes behind.
func KillShims(dir string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		b, _ := os.ReadFile(f)
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		if len(args) != 2 || !strings.HasSuffix(args[0], "capri-shim") || !strings.HasPrefix(args[1], dir+"/") {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(f, "/proc/%d/", &pid); err != nil {
			continue
		}
		if p, err := os.FindProcess(pid); err == nil {
			p.Kill()
		}
	}
}
