package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capri"
)

// standalone starts the real one in a directory, with its data in data below it.
func (b *Bench) standalone(ctx context.Context, dir string, says io.Writer, env ...string) (*exec.Cmd, error) {
	program, err := filepath.Abs(filepath.Join(b.Bin, "capri"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "standalone", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir, cmd.Stderr = dir, says
	return cmd, cmd.Start()
}

func stop(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
}

// memory: the real standalone, idle, and after it has generated a hundred thousand batches of its own accord.
func (b *Bench) memory(ctx context.Context, d *db) error {
	if d.kind != "sqlite" {
		return nil // standalone has its database inside
	}
	dir := b.home()
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "data")
	start := func() (*exec.Cmd, error) { return b.standalone(ctx, dir, os.Stderr, "CAPRI_LOG_LEVEL=warn") }
	if err := forget(filepath.Join(b.Bin, "capri")); err != nil {
		return err
	}
	cmd, err := start()
	if err != nil {
		return err
	}
	time.Sleep(20 * time.Second)
	idle := rss(cmd.Process.Pid)
	stop(cmd)
	b.note("VmRSS of capri standalone 20 s after its start; %.1f MB of it are its own, %.1f MB pages of the program's file", idle["RssAnon"], idle["RssFile"])
	b.add(Figure{"memory, idle standalone", idle["VmRSS"], "MB", 40, idle["VmRSS"] / 40, "<= 40 MB", idle["VmRSS"] <= 40})

	// The same directory with a hundred thousand day tasks, whose mark of last midnight is due.
	in := *d
	if err := in.reopen(ctx, filepath.Join(data, "capri.db")); err != nil {
		return err
	}
	in.fillTasks(ctx, many)
	in.dueToday(ctx)
	// The root task must not run: its success would start all the others.
	in.exec(ctx, "UPDATE task SET enabled = 0 WHERE id = 1")
	if cmd, err = start(); err != nil {
		return err
	}
	defer stop(cmd)
	deadline := time.Now().Add(3 * time.Minute)
	for {
		n := 0
		if err := in.plain.QueryRowContext(ctx, "SELECT COUNT(*) FROM generate_mark WHERE period = 3 AND made >= 99999").Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			break
		}
		if time.Now().After(deadline) {
			return errors.New("the batches were not generated within 3 minutes")
		}
		time.Sleep(200 * time.Millisecond)
	}
	time.Sleep(20 * time.Second)
	after := rss(cmd.Process.Pid)
	in.plain.Close()
	b.note("VmRSS 20 s after 99,999 batches were generated; peak since the start (VmHWM) %.0f MB", after["VmHWM"])
	b.add(Figure{"memory, after 100,000 batches", after["VmRSS"], "MB", 120, after["VmRSS"] / 120, "<= 120 MB", after["VmRSS"] <= 120})
	return nil
}

// forget drops a file from the page cache. The kernel maps around a page what the cache holds in one piece with it, and how large the
// pieces are depends on who wrote or read the file: one program took from 38 to 48 MB after dd, cp, go build or cat. Read as
// it is run, as after a boot, it takes the same each time.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // what is not on disk yet cannot be dropped
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// dueToday makes the day mark of last midnight due now, for all tasks.
func (d *db) dueToday(ctx context.Context) {
	midnight := capri.InstantOf(time.Now().UTC().Truncate(24 * time.Hour))
	d.exec(ctx, "DELETE FROM generate_mark WHERE period = 3")
	d.exec(ctx, fmt.Sprintf("INSERT INTO generate_mark (period, mark, expected, made, present, skipped, failed, complete, started_at) VALUES (3, %d, 0, 0, 0, 0, 0, 1, 0)", midnight))
	if now := time.Now().UTC(); now.Hour() == 0 && now.Minute() < 2 {
		d.exec(ctx, fmt.Sprintf("UPDATE generate_mark SET mark = %d WHERE period = 3", midnight-24*3600_000))
	}
	d.exec(ctx, fmt.Sprintf("UPDATE task SET created_at = %d, updated_at = %d, first_mark = %d", midnight-1000, midnight-1000, midnight-1000))
	d.exec(ctx, fmt.Sprintf("UPDATE task_history SET changed_at = %d", midnight-1000))
}

// rss reads a process's memory lines, in MB.
func rss(pid int) map[string]float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		panic(err)
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); len(f) == 2 && f[1] == "kB" {
			kb, _ := strconv.ParseFloat(f[0], 64)
			out[name] = kb / 1024
		}
	}
	return out
}
