package worker

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"capri"
	"capri/files"
	"capri/files/local"
	"capri/sql/store"
)

// awayDatabase can be taken away, and counts what it is asked.
type awayDatabase struct {
	Database
	away  atomic.Bool
	asked atomic.Int64
}

func (d *awayDatabase) set(away bool) { d.away.Store(away) }

func (d *awayDatabase) err() error {
	d.asked.Add(1)
	if d.away.Load() {
		return capri.Unavailable("the test has taken the database away")
	}
	return nil
}

func (d *awayDatabase) Beat(ctx context.Context, n capri.Node) (bool, error) {
	if err := d.err(); err != nil {
		return false, err
	}
	return d.Database.Beat(ctx, n)
}

func (d *awayDatabase) RegisterNode(ctx context.Context, n capri.Node, directoryID string) error {
	if err := d.err(); err != nil {
		return err
	}
	return d.Database.RegisterNode(ctx, n, directoryID)
}

func (d *awayDatabase) LeaveNode(ctx context.Context, node, boot string) (bool, error) {
	if err := d.err(); err != nil {
		return false, err
	}
	return d.Database.LeaveNode(ctx, node, boot)
}

func (d *awayDatabase) ReportInventory(ctx context.Context, node, boot string, attempts []capri.Attempt) error {
	if err := d.err(); err != nil {
		return err
	}
	return d.Database.ReportInventory(ctx, node, boot, attempts)
}

func (d *awayDatabase) ReportProgress(ctx context.Context, a capri.Attempt, percent int) error {
	if err := d.err(); err != nil {
		return err
	}
	return d.Database.ReportProgress(ctx, a, percent)
}

func (d *awayDatabase) ReportUsage(ctx context.Context, node string, used map[capri.Attempt]store.Usage) error {
	if err := d.err(); err != nil {
		return err
	}
	return d.Database.ReportUsage(ctx, node, used)
}

func (d *awayDatabase) Now(ctx context.Context) (capri.Instant, error) {
	if err := d.err(); err != nil {
		return 0, err
	}
	return d.Database.Now(ctx)
}

func (d *awayDatabase) Claim(ctx context.Context, node, boot string, limit int) ([]store.Claimed, error) {
	if err := d.err(); err != nil {
		return nil, err
	}
	return d.Database.Claim(ctx, node, boot, limit)
}

func (d *awayDatabase) Start(ctx context.Context, node, boot string, attempts []capri.Attempt) ([]capri.Attempt, error) {
	if err := d.err(); err != nil {
		return nil, err
	}
	return d.Database.Start(ctx, node, boot, attempts)
}

func (d *awayDatabase) RollBack(ctx context.Context, node string, back []store.GiveBack) error {
	if err := d.err(); err != nil {
		return err
	}
	return d.Database.RollBack(ctx, node, back)
}

func (d *awayDatabase) FinishAttempts(ctx context.Context, node string, results []store.Result) (int, error) {
	if err := d.err(); err != nil {
		return 0, err
	}
	return d.Database.FinishAttempts(ctx, node, results)
}

func (d *awayDatabase) KillsAsked(ctx context.Context, node string) ([]capri.Attempt, error) {
	if err := d.err(); err != nil {
		return nil, err
	}
	return d.Database.KillsAsked(ctx, node)
}

func (d *awayDatabase) HeldAttempts(ctx context.Context, node string) ([]store.HeldAttempt, error) {
	if err := d.err(); err != nil {
		return nil, err
	}
	return d.Database.HeldAttempts(ctx, node)
}

// forgettingDatabase commits, and once loses the answer.
type forgettingDatabase struct {
	Database
	claim, start atomic.Bool
}

func (d *forgettingDatabase) Claim(ctx context.Context, node, boot string, limit int) ([]store.Claimed, error) {
	c, err := d.Database.Claim(ctx, node, boot, limit)
	if len(c) > 0 && d.claim.CompareAndSwap(true, false) {
		return nil, capri.Unavailable("the test has lost the answer")
	}
	return c, err
}

// Start answers as the store does when its first try committed, the answer was lost, and the second found the batch
// started.
func (d *forgettingDatabase) Start(ctx context.Context, node, boot string, attempts []capri.Attempt) ([]capri.Attempt, error) {
	s, err := d.Database.Start(ctx, node, boot, attempts)
	if d.start.CompareAndSwap(true, false) {
		return nil, err
	}
	return s, err
}

func localOnly() files.Files {
	l := local.New(local.Options{})
	return files.ByScheme(map[string]files.Files{"": l, "file": l})
}

// slowDatabase loses time after it has called attempts started.
type slowDatabase struct {
	Database
	slow time.Duration
}

func (d *slowDatabase) Start(ctx context.Context, node, boot string, attempts []capri.Attempt) ([]capri.Attempt, error) {
	s, err := d.Database.Start(ctx, node, boot, attempts)
	time.Sleep(d.slow)
	return s, err
}

// hangingFiles answers no question until its context ends.
type hangingFiles struct {
	files.Files
	asked chan struct{}
}

func (h *hangingFiles) There(ctx context.Context, paths []capri.PathCondition) ([]bool, error) {
	h.asked <- struct{}{}
	<-ctx.Done()
	unseen := &files.UnseenError{Paths: map[capri.PathCondition]error{}}
	for _, p := range paths {
		unseen.Paths[p] = ctx.Err()
	}
	return make([]bool, len(paths)), unseen
}

// gatedFiles answers when the gate is open.
type gatedFiles struct {
	files.Files
	asked, gate chan struct{}
}

func (g *gatedFiles) There(ctx context.Context, paths []capri.PathCondition) ([]bool, error) {
	g.asked <- struct{}{}
	<-g.gate
	return g.Files.There(ctx, paths)
}

// blindFiles can see nothing.
type blindFiles struct{ files.Files }

func (blindFiles) There(_ context.Context, paths []capri.PathCondition) ([]bool, error) {
	unseen := &files.UnseenError{Paths: map[capri.PathCondition]error{}}
	for _, p := range paths {
		unseen.Paths[p] = syscall.EIO
	}
	return make([]bool, len(paths)), unseen
}

// awayFiles is away for its first fetch, and for the second and third look at an output.
type awayFiles struct {
	files.Files
	fetches, looks atomic.Int32
}

func (f *awayFiles) Fetch(ctx context.Context, url string, to *os.Root, as *files.Account) error {
	if f.fetches.Add(1) == 1 {
		return capri.Unavailable("the name-node is away")
	}
	return f.Files.Fetch(ctx, url, to, as)
}

func (f *awayFiles) Stat(ctx context.Context, p capri.PathCondition) (files.Stamp, error) {
	if n := f.looks.Add(1); n == 2 || n == 3 {
		return files.Stamp{}, capri.Unavailable("the name-node is away")
	}
	return f.Files.Stat(ctx, p)
}

// gates are pipes that jobs wait at until the test lets them pass.
var gates sync.Map // *node → []string

// fifo makes the next gate of a node's jobs.
func (n *node) fifo(t testing.TB) string {
	t.Helper()
	dir := filepath.Dir(dataDir(t))
	path := filepath.Join(dir, "gate")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	all, _ := gates.Load(n)
	paths, _ := all.([]string)
	gates.Store(n, append(paths, path))
	return path
}

// release opens all gates, for everybody who comes.
func (n *node) release() {
	all, _ := gates.Load(n)
	for i := range all.([]string) {
		n.releaseOnly(i)
	}
}

// releaseOnly opens one gate, and it stays open.
func (n *node) releaseOnly(i int) {
	n.c.t.Helper()
	all, _ := gates.Load(n)
	f, err := os.OpenFile(all.([]string)[i], os.O_RDWR, 0) // both ends: it neither waits nor breaks
	if err != nil {
		n.c.t.Fatal(err)
	}
	f.WriteString("\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n")
	n.c.t.Cleanup(func() { f.Close() })
}

// kill asks for the end of a batch, as a person does.
func (c *cluster) kill(id capri.BatchID) {
	c.t.Helper()
	err := c.db.Store.Write(c.ctx, "kill", "alice", func(tx *store.Tx) error {
		_, _, err := tx.RequestKill([]capri.BatchID{id}, "enough")
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.waker.Wake("worker")
}

// pathBatch is a batch that waits for the flag in a directory.
func (c *cluster) pathBatch(dir, command string) capri.BatchID {
	return c.batches(c.task(command, nil), 1, func(int) capri.Conditions {
		return capri.Conditions{Inputs: []capri.PathCondition{{Path: dir, Flag: "_SUCCESS"}}}
	})[0]
}

// meet says that the flag in a directory was seen.
func (c *cluster) meet(dir string) {
	c.t.Helper()
	if _, err := c.db.Store.MeetPaths(c.ctx, c.db.Lease(c.t, "dependency"), []capri.PathCondition{{Path: dir, Flag: "_SUCCESS"}}); err != nil {
		c.t.Fatal(err)
	}
}

// waitingFor is pathBatch whose path was seen and which is assigned.
func (c *cluster) waitingFor(dir, command string) capri.BatchID {
	id := c.pathBatch(dir, command)
	c.meet(dir)
	c.assign("n1", id)
	return id
}
