package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that we started. It leads a process group and dies when we do, however we do.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
}

// starts are run by one thread that never ends: the kernel sends PDEATHSIG when the thread that forked is gone, not
// when the process is.
var starts = func() chan<- func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range c {
			f()
		}
	}()
	return c
}()

// place is where a program starts; the zero one is here, as ourselves.
type place struct {
	as      *syscall.Credential
	network *namespace
}

// launch starts a program whose output is appended to logFile. It ends when it is told to, not with a context.
func launch(name, logFile string, env []string, where place, argv ...string) (*process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{name: name, cmd: exec.CommandContext(context.Background(), argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, out, out
	p.cmd.Dir = filepath.Dir(logFile)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: where.as}
	started := make(chan error)
	starts <- func() { started <- where.network.within(p.cmd.Start) }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is asked of ProcessState
		close(p.ended)
	}()
	return p, nil
}

func (p *process) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// signal sends to the process alone: what it started has to bear its end.
func (p *process) signal(s syscall.Signal) {
	if p.alive() {
		_ = p.cmd.Process.Signal(s) // it may have ended just now
	}
}

// kill ends it at once and waits for that.
func (p *process) kill() {
	if p == nil {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// stop asks it to end, and kills it when it does not. It tells whether it ended in order.
func (p *process) stop(within time.Duration) bool {
	if !p.alive() {
		return true
	}
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode() == 0
	case <-time.After(within):
		p.kill()
		return false
	}
}

// found is a process of this machine that belongs to the run.
type found struct {
	pid, parent int
	argv        []string
}

// processesBelow lists the processes that name a path below dir in their command line. What Capri leaves running by
// design (shims, jobs) is found by this and by nothing else: we are not its parent.
func processesBelow(dir string) []found {
	all, _ := filepath.Glob("/proc/[0-9]*")
	var list []found
	for _, p := range all {
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(p + "/cmdline")
		if err != nil || !strings.Contains(string(line), dir+"/") {
			continue
		}
		stat, err := os.ReadFile(p + "/stat")
		if err != nil {
			continue
		}
		rest := string(stat[bytes.LastIndexByte(stat, ')')+1:])
		var state string
		f := found{pid: pid, argv: strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")}
		if n, _ := fmt.Sscan(rest, &state, &f.parent); n != 2 || state == "Z" {
			continue
		}
		list = append(list, f)
	}
	return list
}

// descendants lists all processes below these, whatever their command lines say.
func descendants(pids ...int) []int {
	var all []int
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, f := range files {
			text, _ := os.ReadFile(f)
			for _, word := range strings.Fields(string(text)) {
				if child, err := strconv.Atoi(word); err == nil {
					all = append(all, child)
					all = append(all, descendants(child)...)
				}
			}
		}
	}
	return all
}

// sweep ends whatever of the run is still there, and tells what it was.
func sweep(dir string) []string {
	var left []string
	for range 5 { // what is killed may have started something in between
		list := processesBelow(dir)
		if len(list) == 0 {
			break
		}
		for _, f := range list {
			left = append(left, fmt.Sprintf("%d %s", f.pid, strings.Join(f.argv, " ")))
			for _, pid := range append(descendants(f.pid), f.pid) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					left = append(left, fmt.Sprintf("%d cannot be ended: %v", pid, err))
				}
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return left
}
