package bench

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"capri"
	"capri/master"
	"capri/services/dependency"
	"capri/sql/store"
	"capri/wake"
	"capri/worker"
)

// home is a directory that jobs of any account can reach.
func (b *Bench) home() string {
	dir, err := os.MkdirTemp(b.Dir, "capri-bench-")
	if err == nil {
		dir, err = filepath.Abs(dir) // jobs run elsewhere
	}
	if err != nil {
		panic(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		panic(err)
	}
	return dir
}

// cluster runs one master and one worker until stop is called, each with its own waker: they share nothing but the
// database and what the wakers carry, as two processes would.
func (b *Bench) cluster(ctx context.Context, d *db, dir string, slots int, forMaster, forWorker wake.Waker) (stop func()) {
	return b.clusterWith(ctx, d, dir, slots, forMaster, forWorker, noFiles{})
}

func (b *Bench) clusterWith(ctx context.Context, d *db, dir string, slots int, forMaster, forWorker wake.Waker, files dependency.Files) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	shim, err := filepath.Abs(filepath.Join(b.Bin, "capri-shim"))
	d.must(err)
	w, err := worker.New(worker.Options{Store: d.store, Calendar: d.cal, Waker: forWorker, Dir: filepath.Join(dir, "node"), Node: capri.Node{Name: filepath.Base(dir), Pool: "default", Slots: slots},
		ShimPath: shim, Log: log, ClaimLimit: 500})
	d.must(err)
	m := master.New(master.Options{Store: d.store, Calendar: d.cal, Waker: forMaster, Files: files, Name: "bench", Sole: true, Random: rand.New(rand.NewPCG(1, 1)), Log: log})
	var wg sync.WaitGroup
	wg.Go(func() { d.must(m.Run(ctx)) })
	wg.Go(func() { d.must(w.Run(ctx)) })
	return func() {
		cancel()
		wg.Wait()
	}
}

type noFiles struct{}

func (noFiles) There(_ context.Context, p []capri.PathCondition) ([]bool, error) {
	return make([]bool, len(p)), nil
}

// shells starts `/bin/sh -c true` n times, as many at once as there are CPUs: nobody can start shells faster than that.
func shells(n int) time.Duration {
	var wg sync.WaitGroup
	began := time.Now()
	for range runtime.NumCPU() {
		wg.Go(func() {
			for range n / runtime.NumCPU() {
				if err := exec.Command("/bin/sh", "-c", "true").Run(); err != nil {
					panic(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// await polls until all of n inserted batches have finished. It asks for one that has not: to count thousands of rows
// fifty times a second would be a load of its own.
func (d *db) await(ctx context.Context, n int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for open := 1; open > 0; time.Sleep(20 * time.Millisecond) {
		if err := d.plain.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM task_work WHERE state < 3)").Scan(&open); err != nil {
			return err
		}
		if open > 0 && time.Now().After(deadline) {
			break
		}
	}
	var succeeded int
	if err := d.plain.QueryRowContext(ctx, "SELECT COUNT(*) FROM task_work WHERE state = 3 AND finish_state = 1").Scan(&succeeded); err != nil {
		return err
	}
	if succeeded != n {
		return fmt.Errorf("%d of %d batches succeeded within %v", succeeded, n, limit)
	}
	return nil
}

// define makes n tasks of one command each, in place of fillTasks' pipelines.
func (d *db) define(ctx context.Context, n int, command func(i int) string) {
	first, err := d.store.ReserveTaskIDs(ctx, n)
	d.must(err)
	d.must(d.store.Write(ctx, "define", "bench", func(tx *store.Tx) error {
		saves := make([]store.TaskSave, n)
		for i := range saves {
			t := &capri.Task{ID: first + capri.TaskID(i)}
			t.Spec = benchSpec(fmt.Sprintf("noop_%06d", i))
			t.Job.Command = command(i)
			saves[i] = store.TaskSave{Task: t}
		}
		return tx.SaveTasks(saves)
	}))
}

// wholeWay: ready no-op batches through dispatch, claim, start, shim, exit and result.
func (b *Bench) wholeWay(ctx context.Context, d *db) error {
	const n = 5000
	dir := b.home()
	defer os.RemoveAll(dir)
	d.define(ctx, n, func(int) string { return "true" })
	var ours, plain []time.Duration
	for range b.Runs {
		plain = append(plain, shells(n))
		d.empty(ctx, batchTables...)
		waker := wake.NewLocal()
		stop := b.cluster(ctx, d, dir, 200, waker, waker)
		time.Sleep(500 * time.Millisecond) // it has started and found nothing
		began := time.Now()
		d.insert(ctx, newBatches(n, nil))
		waker.Wake(wake.Dispatch)
		err := d.await(ctx, n, 5*time.Minute)
		ours = append(ours, time.Since(began))
		stop()
		if err != nil {
			return err
		}
	}
	b.note("limit: /bin/sh -c true started %d times, %d at once: %v", n, runtime.NumCPU(), plain)
	b.note("ours: %d no-op shell batches, inserting them included: %v", n, ours)
	b.rate("whole way, no-op batches/"+d.kind, n/median(ours).Seconds(), n/median(plain).Seconds(), "batches/s", 0.3)
	return nil
}

// handOver: a chain in which each job writes when it began and when it is about to end.
func (b *Bench) handOver(ctx context.Context, d *db) error {
	const n = 101
	measure := func(name string, forMaster, forWorker wake.Waker, p50, p99 float64) error {
		dir := b.home()
		defer os.RemoveAll(dir)
		out := filepath.Join(dir, "out")
		d.must(os.Mkdir(out, 0o777))
		d.must(os.Chmod(out, 0o777))
		d.empty(ctx, append([]string{"task", "task_history"}, batchTables...)...)
		d.exec(ctx, "UPDATE id_block SET next_id = 1 WHERE name = 'task'")
		d.define(ctx, n, func(i int) string {
			return fmt.Sprintf("date +%%s%%N > %s/%d.began; exec date +%%s%%N > %s/%d.ended", out, i, out, i)
		})
		stop := b.cluster(ctx, d, dir, 8, forMaster, forWorker)
		time.Sleep(2 * time.Second) // idle
		batches := newBatches(n, func(i int) capri.Conditions {
			if i == 0 {
				return capri.Conditions{}
			}
			return capri.Conditions{Parents: []capri.ParentCondition{{TaskID: capri.TaskID(i), BatchNo: "20261119"}}}
		})
		d.insert(ctx, batches)
		forMaster.Wake(wake.Dispatch)
		err := d.await(ctx, n, 10*time.Minute)
		stop()
		if err != nil {
			return err
		}
		at := func(i int, what string) float64 {
			data, err := os.ReadFile(fmt.Sprintf("%s/%d.%s", out, i, what))
			d.must(err)
			ns, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
			d.must(err)
			return float64(ns) / 1e6
		}
		var gaps []float64
		for i := 1; i < n; i++ {
			gaps = append(gaps, at(i, "began")-at(i-1, "ended"))
		}
		slices.Sort(gaps)
		b.note("%s: a chain of %d; from a parent's last command to its child's first: min %.1f, p50 %.1f, p90 %.1f, p99 %.1f, max %.1f ms", name, n, gaps[0], gaps[n/2], gaps[n*9/10], gaps[98], gaps[len(gaps)-1])
		if p50 > 0 {
			b.atMost("hand-over p50, "+name+"/"+d.kind, gaps[n/2], p50, "ms", 1)
		}
		b.atMost("hand-over p99, "+name+"/"+d.kind, gaps[98], p99, "ms", 1)
		return nil
	}
	if d.kind == "sqlite" {
		w := wake.NewLocal()
		return measure("in process", w, w, 25, 100)
	}
	if b.Redis != "" {
		running, cancel := context.WithCancel(ctx)
		defer cancel()
		log := slog.New(slog.DiscardHandler)
		one, two := wake.NewRedis(wake.RedisOptions{Addr: b.Redis}, log), wake.NewRedis(wake.RedisOptions{Addr: b.Redis}, log)
		go one.Run(running)
		go two.Run(running)
		if err := measure("Redis", one, two, 25, 100); err != nil {
			return err
		}
	} else {
		b.note("NOT MEASURED: hand-over with Redis (CAPRI_TEST_REDIS is not set)")
	}
	return measure("no Redis", wake.NewLocal(), wake.NewLocal(), 0, 2000)
}
