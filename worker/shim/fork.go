package shim

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// forkJobs starts what is queued, one after another, for ever.
//
// It owns its OS thread and never returns, because PDEATHSIG is tied to the *thread* that forked: when that
// thread ends, and Go ends threads as it likes, the kernel kills the children. One thread is enough: package
// syscall holds a lock over each fork anyway, and with vfork most of a start happens in the child. Forks in
// one thread with the reaping in another measured the same rate as four threads that did both.
//
// syscall.ForkExec instead of os/exec saves the goroutines, pipes and pidfd that we would not use.
func (s *shim) forkJobs() {
	runtime.LockOSThread()
	if err := gainNothing(); err != nil {
		log.Print(err)
	}
	for {
		s.mu.Lock()
		for len(s.queue) == 0 {
			s.queueFilled.Wait()
		}
		next := s.queue[0]
		s.queue[0] = queued{} // frees its environment while the slice lives
		s.queue = s.queue[1:]
		if len(s.queue) == 0 {
			s.queue = nil
		}
		killed := next.job.killed
		late := s.tooLate(&next.spec)
		if late && !killed {
			next.job.lapsed = true
		}
		s.mu.Unlock()

		var err error
		switch {
		case killed:
			err = errors.New("killed before it was started")
		case late:
			err = errors.New("the node's lease was too old to start it")
		default:
			err = s.fork(next.job, &next.spec)
		}
		if err != nil {
			s.mu.Lock()
			s.end(next.job, Exit{Error: err.Error(), NodeFault: ofNode(err), Ended: time.Now().UnixMilli()})
			s.mu.Unlock()
		}
	}
}

// ofNode tells what a machine lacks from what is wrong with a job.
func ofNode(err error) bool {
	return slices.ContainsFunc([]error{syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.ENOMEM, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE},
		func(lack error) bool { return errors.Is(err, lack) })
}

// gainNothing has what this thread starts never get more rights than it was started with: sudo, setuid programs and file
// capabilities do nothing for a job. It binds the thread for ever, which is the one that forks and no other.
func gainNothing() error {
	const setNoNewPrivs = 38
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, setNoNewPrivs, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("set no_new_privs for jobs: %w", e)
	}
	return nil
}

func (s *shim) fork(j *job, spec *Job) error {
	if len(spec.Argv) == 0 {
		return errors.New("there is no command")
	}
	if s.root && (spec.Credential == nil || spec.Credential.UID == 0) {
		return errors.New("jobs never run as root: name an account")
	}
	// Without root there is one user we can become: ourselves, by doing nothing; even setgroups is refused.
	if c := spec.Credential; c != nil && !s.root && int(c.UID) != os.Geteuid() {
		return fmt.Errorf("start as user %d: the worker runs as user %d and not as root", c.UID, os.Geteuid())
	}
	stdout, err := createLog(spec.Stdout, spec.Credential)
	if err != nil {
		return err
	}
	defer syscall.Close(stdout)
	stderr := stdout
	if spec.Stderr != spec.Stdout {
		if stderr, err = createLog(spec.Stderr, spec.Credential); err != nil {
			return err
		}
		defer syscall.Close(stderr)
	}
	attr := &syscall.ProcAttr{
		Dir: spec.Dir,
		Env: append(spec.Env[:len(spec.Env):len(spec.Env)], MarkName+"="+s.life.Mark(j.attempt)),
		// The files themselves, no pipe: a grandchild that holds stdout holds nothing of ours. All our
		// descriptors are close-on-exec, so these three are all the job gets.
		Files: []uintptr{s.devNull, uintptr(stdout), uintptr(stderr)},
		// A session of its own is a process group of its own, has no terminal, and can be found by its
		// number when its leader is gone.
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if c := spec.Credential; c != nil && s.root {
		attr.Sys.Credential = &syscall.Credential{Uid: c.UID, Gid: c.GID, Groups: c.Groups}
	}

	group := s.group()
	if group != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, group.fd
	}

	s.forking.Lock()
	defer s.forking.Unlock()
	ticks := bootTicks()
	started := time.Now()
	pid, err := syscall.ForkExec(spec.Argv[0], spec.Argv, attr)
	if err != nil && group != nil {
		// Is it the program, or are there reasons against groups that were not seen at the start (seccomp)?
		s.giveGroup(group)
		group, attr.Sys.UseCgroupFD = nil, false
		reason := err
		if pid, err = syscall.ForkExec(spec.Argv[0], spec.Argv, attr); err == nil {
			log.Printf("attempt %s could not be started in a cgroup and runs without: %v", j.attempt, reason)
		}
	}
	if err != nil {
		return explain(err, spec)
	}

	// Dead here, before the line is written: PDEATHSIG ends the child, and the next worker reads that the
	// attempt was taken.
	s.journal.mu.Lock()
	if err := s.journal.append(record{Start: &Running{Attempt: j.attempt, Pid: pid, StartTicks: ticks, Started: started.UnixMilli()}}); err != nil {
		log.Print(err)
	}
	s.mu.Lock()
	j.pid, j.ticks, j.started, j.cgroup = pid, ticks, started, group
	s.pids[pid] = j
	if j.killed { // while it was forked
		s.terminate(j)
	}
	if spec.RunTimeout > 0 {
		j.timeout = time.AfterFunc(spec.RunTimeout, func() { s.timeOut(j) }) // counts on the monotonic clock
	}
	s.mu.Unlock()
	s.journal.mu.Unlock()
	wake(s.born)
	return nil
}

// group gives the job a cgroup, if it can have one.
func (s *shim) group() *cgroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cgroups == nil {
		return nil
	}
	g, err := s.cgroups.take()
	if err != nil {
		log.Printf("a job gets no cgroup: %v", err)
		return nil
	}
	return g
}

func (s *shim) giveGroup(g *cgroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cgroups.give(g)
}

// createLog makes a log file. O_EXCL: an attempt's log exists once, so this is also the last guard against
// one attempt being run twice, and no symlink is followed. O_APPEND: a job that truncates its own output or
// opens /dev/stdout anew does not write over itself. The job's user owns the file, or /dev/stdout could not
// be opened by the job.
func createLog(path string, c *Credential) (int, error) {
	const flags = syscall.O_CREAT | syscall.O_EXCL | syscall.O_WRONLY | syscall.O_APPEND | syscall.O_CLOEXEC
	fd, err := syscall.Open(path, flags, 0o600)
	for err == syscall.EINTR {
		fd, err = syscall.Open(path, flags, 0o600)
	}
	if err == nil && c != nil && int(c.UID) != os.Geteuid() {
		if err = syscall.Fchown(fd, int(c.UID), -1); err != nil {
			syscall.Close(fd)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("create log %s: %w", path, err)
	}
	return fd, nil
}

// explain makes a sentence of an errno, which does not say what it is about.
func explain(err error, spec *Job) error {
	program := spec.Argv[0]
	switch err {
	case syscall.ENOENT, syscall.EACCES, syscall.ENOTDIR, syscall.ELOOP:
		if _, dirErr := os.Stat(spec.Dir); dirErr != nil {
			return fmt.Errorf("enter the job's directory: %w", dirErr)
		}
		if st, progErr := os.Stat(program); progErr != nil {
			return fmt.Errorf("start %s: %w", filepath.Base(program), progErr)
		} else if err == syscall.EACCES {
			return fmt.Errorf("start %s in %s: %w (its mode is %v; the job's user must be able to execute it and to enter the directory)",
				program, spec.Dir, err, st.Mode())
		}
		return fmt.Errorf("start %s in %s: %w (does the interpreter in its first line exist?)", program, spec.Dir, err)
	case syscall.E2BIG:
		size := 0
		for _, s := range append(spec.Argv[:len(spec.Argv):len(spec.Argv)], spec.Env...) {
			size += len(s) + 1
		}
		return fmt.Errorf("start %s: %w: arguments and environment have %d bytes (one of them may have 128 KiB)", program, err, size)
	case syscall.EAGAIN:
		return fmt.Errorf("start %s: %w: the limit of processes is reached", program, err)
	}
	return fmt.Errorf("start %s: %w", program, err)
}
