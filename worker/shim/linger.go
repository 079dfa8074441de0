package shim

import (
	"log"
	"syscall"
	"time"
)

// lingering is a job whose main process has ended and of which more may be left: it was told to end, and the rest may
// still be tidying up (/bin/sh dies of the SIGTERM at once, the program that it had started writes its checkpoint), or
// it left children that had gone out of its process group. The rest gets what is left of the grace, then SIGKILL; the
// exit is reported when none is left.
type lingering struct {
	job  *job
	exit Exit
}

const (
	lingerPace = 20 * time.Millisecond
	// lingerAfterKill is how long we wait for what SIGKILL does not end: a process in a system call that hangs
	// (NFS, HDFS over fuse). Then the exit is reported, and says so.
	lingerAfterKill = 5 * time.Second
)

// awaitTheRest ends what main processes leave, for ever. One look at /proc serves all jobs, because they come by the
// thousand when a worker's lease is lost.
func (s *shim) awaitTheRest() {
	var waiting []*lingering
	for {
		if len(waiting) == 0 {
			<-s.lingers
		} else {
			time.Sleep(lingerPace)
		}
		s.mu.Lock()
		waiting = append(waiting, s.lingering...)
		s.lingering = nil
		told := s.told
		s.told = nil
		var jobs []Tracked
		for _, l := range waiting {
			jobs = append(jobs, s.tracked(l.job))
		}
		for _, j := range told {
			if s.pids[j.pid] == j { // else it is among the lingering
				jobs = append(jobs, s.tracked(j))
			}
		}
		s.mu.Unlock()

		members, err := Members(jobs)
		if err != nil {
			log.Printf("look for what is left of %d attempts: %v", len(jobs), err)
		}
		ofJob := map[string]map[int]Member{}
		for pid, m := range members {
			if ofJob[m.Attempt] == nil {
				ofJob[m.Attempt] = map[int]Member{}
			}
			ofJob[m.Attempt][pid] = m
		}
		for _, j := range told {
			askStrays(j.pid, ofJob[j.attempt])
		}
		rest := waiting[:0]
		for _, l := range waiting {
			if !s.lingersOn(l, ofJob[l.job.attempt]) {
				s.mu.Lock()
				s.end(l.job, l.exit)
				s.mu.Unlock()
				continue
			}
			rest = append(rest, l)
		}
		clear(waiting[len(rest):])
		waiting = rest
	}
}

func (s *shim) tracked(j *job) Tracked {
	t := Tracked{Attempt: j.attempt, Pid: j.pid, Since: j.ticks, Mark: s.life.Mark(j.attempt)}
	if j.cgroup != nil {
		t.Cgroup = j.cgroup.dir
	}
	return t
}

// askStrays sends SIGTERM to what has left the job's process group, which was asked when the job was told.
func askStrays(group int, members map[int]Member) {
	for pid, m := range members {
		if m.Group == group {
			continue
		}
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
			if err := m.Signal(pid, sig); err != nil {
				log.Printf("attempt %s: %v", m.Attempt, err)
			}
		}
	}
}

func (s *shim) lingersOn(l *lingering, members map[int]Member) bool {
	s.mu.Lock()
	deadline := l.job.deadline // a second kill may have moved it
	s.mu.Unlock()
	over := time.Since(deadline)
	switch {
	case len(members) == 0:
		return false
	case over < 0:
		return true
	case over > lingerAfterKill:
		log.Printf("attempt %s: %d processes survive SIGKILL", l.job.attempt, len(members))
		return false
	}
	if g := l.job.cgroup; g != nil {
		if err := g.kill(); err != nil {
			log.Printf("attempt %s: %v", l.job.attempt, err)
		}
	}
	for pid, m := range members {
		if err := m.Signal(pid, syscall.SIGKILL); err != nil {
			log.Printf("attempt %s: %v", l.job.attempt, err)
		}
	}
	return true
}

// leavesProcesses reports whether more of j than its main process may live; the caller holds mu. It is asked for each
// job, so it has to be cheap, and may be wrong in saying yes.
func (s *shim) leavesProcesses(j *job) bool {
	if j.cgroup != nil {
		return len(j.cgroup.pids()) > 0
	}
	return s.orphans()
}
