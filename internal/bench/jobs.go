package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"capri/internal/testenv"
	"capri/sql/store"
)

// jobs: the real standalone with a thousand jobs that run, what it takes to have them, and to find them again after a
// restart.
func (b *Bench) jobs(ctx context.Context, d *db) error {
	if d.kind != "sqlite" {
		return nil // a worker's own cost; that of the database is in the other figures
	}
	const n = 1000
	dir := b.home()
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "data")
	start := func() (*exec.Cmd, *testenv.Text, error) {
		said := &testenv.Text{}
		cmd, err := b.standalone(ctx, dir, said, "CAPRI_NODE_SLOTS="+strconv.Itoa(n), "CAPRI_NODE_NAME=bench")
		return cmd, said, err
	}
	cmd, said, err := start()
	if err != nil {
		return err
	}
	defer func() { stop(cmd) }()
	if err := until(ctx, time.Minute, "its first start", func() (bool, error) { return strings.Contains(said.String(), "worker runs"), nil }); err != nil {
		return err
	}
	in := *d
	file := filepath.Join(data, "capri.db")
	if err := in.reopen(ctx, file); err != nil {
		return err
	}
	defer in.plain.Close()
	if in.store, err = store.Open(ctx, store.Options{Path: file}); err != nil {
		return err
	}
	defer in.store.Close()
	in.define(ctx, n, func(int) string { return "exec sleep 600" })
	began := time.Now()
	in.insert(ctx, newBatches(n, nil))
	err = until(ctx, 5*time.Minute, "a thousand jobs to run", func() (bool, error) {
		running := 0
		err := in.plain.QueryRowContext(ctx, "SELECT COUNT(*) FROM task_work WHERE state = 2 AND start_time IS NOT NULL").Scan(&running)
		return running == n, err
	})
	if err != nil {
		return err
	}
	b.note("%d jobs (sleep) ran %.1f s after their batches were inserted", n, time.Since(began).Seconds())

	shims, err := children(cmd.Process.Pid, "capri-shim")
	if err != nil || len(shims) != 1 {
		return fmt.Errorf("the shims of the worker are %v: %w", shims, err)
	}
	defer syscall.Kill(shims[0], syscall.SIGTERM) // ends its jobs, and then itself
	time.Sleep(20 * time.Second)
	const look = 30 * time.Second
	ours, shim := cpuTime(cmd.Process.Pid), cpuTime(shims[0])
	time.Sleep(look)
	share := func(before time.Duration, pid int) float64 { return 100 * float64(cpuTime(pid)-before) / float64(look) }
	b.note("CPU over %v, and VmRSS then; standalone is master, API and worker in one", look)
	limit := func(name string, value float64, unit string, most float64) {
		b.add(Figure{name, value, unit, most, value / most, fmt.Sprintf("<= %g %s", most, unit), value <= most})
	}
	limit("1,000 running jobs, CPU of the standalone", share(ours, cmd.Process.Pid), "% of a CPU", 10)
	limit("1,000 running jobs, CPU of the shim", share(shim, shims[0]), "% of a CPU", 10)
	limit("1,000 running jobs, memory of the standalone", rss(cmd.Process.Pid)["VmRSS"], "MB", 100)
	limit("1,000 running jobs, memory of the shim", rss(shims[0])["VmRSS"], "MB", 30)

	stop(cmd)
	began = time.Now()
	if cmd, said, err = start(); err != nil {
		return err
	}
	adopted := fmt.Sprintf("adopted=%d", n)
	if err := until(ctx, time.Minute, adopted, func() (bool, error) { return strings.Contains(said.String(), adopted), nil }); err != nil {
		return fmt.Errorf("%w; it says:\n%s", err, said)
	}
	limit("1,000 running jobs, adopted after a restart", time.Since(began).Seconds(), "s", 5)
	lost := 0
	if err := in.plain.QueryRowContext(ctx, "SELECT COUNT(*) FROM task_work WHERE NOT (state = 2 AND attempt = 1 AND losses = 0)").Scan(&lost); err != nil || lost > 0 {
		return errors.Join(err, fmt.Errorf("%d of the jobs do not run as they did before the restart", lost))
	}
	return nil
}

func until(ctx context.Context, limit time.Duration, what string, ok func() (bool, error)) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		done, err := ok()
		switch {
		case err != nil || done:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("%s: not within %v", what, limit)
		}
	}
}

// stat reads the fields of /proc/<pid>/stat from the third on, and the program's name.
func stat(pid int) (name string, fields []string) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", nil
	}
	text := string(data)
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	return text[from+1 : to], strings.Fields(text[to+1:])
}

func children(parent int, name string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if is, fields := stat(pid); is == name && len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, err
}

// cpuTime is what a process has used, in user mode and in the kernel's.
func cpuTime(pid int) time.Duration {
	_, fields := stat(pid)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
