// Command witness runs a job's command and says so in the witness log, without Capri:
//
//	witness -dir DIR [--] COMMAND [ARGUMENT…]
//
//	take the lock DIR/locks/<task>@<batch_no> ─┬─ free:  "start" ─▶ COMMAND ─▶ "end", let go
//	                                           └─ taken: "overlap" (and "start": the job runs all the same)
//
// The lock is handed on to COMMAND, so it is held until the last process of the job that keeps it open is gone: a job
// whose processes outlive it is caught as one that overlaps with the next attempt. Task, batch_no, run and attempt come from the
// environment that every job of Capri has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"capri/test/checker"
)

func main() {
	dir := flag.String("dir", os.Getenv("WITNESS_DIR"), "where the witness log is")
	flag.Parse()
	if *dir == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: witness -dir DIR COMMAND [ARGUMENT…]")
		os.Exit(2)
	}
	code, err := run(*dir, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "witness:", err)
		os.Exit(125)
	}
	os.Exit(code)
}

func run(dir string, command []string) (int, error) {
	w, err := fromEnvironment()
	if err != nil {
		return 0, err
	}
	// From here on a SIGTERM ends the command and is written down; it must not end this process before it has said so.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)

	if err := os.MkdirAll(filepath.Join(dir, "locks"), 0o777); err != nil {
		return 0, err
	}
	key := strings.ReplaceAll(w.Task+"@"+w.BatchNo, "/", "_")
	lock, err := os.OpenFile(filepath.Join(dir, "locks", key), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		if err := say(dir, w, checker.Overlap); err != nil {
			return 0, err
		}
	case err != nil:
		return 0, fmt.Errorf("lock of %s: %w", key, err)
	}
	if err := say(dir, w, checker.Start); err != nil {
		return 0, err
	}
	c := exec.CommandContext(context.Background(), command[0], command[1:]...) // signals reach it below, not by a context
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.ExtraFiles = []*os.File{lock}
	if err := c.Start(); err != nil {
		return 127, errors.Join(err, say(dir, w, checker.End))
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait() // how it ended is in its state
		close(ended)
	}()
	for {
		select {
		case s := <-stop:
			_ = c.Process.Signal(s) // it may have ended just now
		case <-ended:
			code := c.ProcessState.ExitCode()
			if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				code = 128 + int(ws.Signal())
			}
			return code, say(dir, w, checker.End)
		}
	}
}

// fromEnvironment reads who this job is.
func fromEnvironment() (checker.Witness, error) {
	w := checker.Witness{Task: os.Getenv("CAPRI_TASK"), BatchNo: os.Getenv("CAPRI_BATCH_NO"), Node: os.Getenv("CAPRI_NODE"), PID: os.Getpid()}
	if w.Node == "" {
		w.Node = "-"
	}
	batch, attempt, ok := strings.Cut(os.Getenv("CAPRI_ATTEMPT"), ".")
	var err [3]error
	w.Batch, err[0] = strconv.ParseInt(batch, 10, 64)
	w.Attempt, err[1] = strconv.Atoi(attempt)
	w.RunNo, err[2] = strconv.Atoi(os.Getenv("CAPRI_RUN_NO"))
	if err := errors.Join(err[:]...); err != nil || !ok || w.Task == "" || w.BatchNo == "" {
		return w, fmt.Errorf("not a job of Capri: CAPRI_TASK, CAPRI_BATCH_NO, CAPRI_RUN_NO, CAPRI_ATTEMPT are missing or odd (%w)", err)
	}
	boot, e := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if e != nil {
		return w, e
	}
	w.Boot = string(boot[:8])
	return w, nil
}

// say appends one line under the log's own lock.
func say(dir string, w checker.Witness, what string) error {
	f, err := os.OpenFile(filepath.Join(dir, "witness.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	w.What, w.Real = what, time.Now().UnixMilli()
	if w.Uptime, err = uptime(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, w)
	return err
}

// uptime is the kernel's, in milliseconds: it stands still for no change of a clock.
func uptime() (int64, error) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	return int64(seconds*1000 + 0.5), err
}
