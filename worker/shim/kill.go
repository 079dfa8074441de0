package shim

import (
	"log"
	"syscall"
	"time"
)

// kill ends attempts: SIGTERM to all their processes, SIGKILL when the grace is over. Asked again it may
// shorten the grace and does not lengthen it.
func (s *shim) kill(kills []Kill) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kills {
		j := s.jobs[k.Attempt]
		if j == nil {
			continue // it ended; its exit was reported, or is acknowledged
		}
		if k.Grace != 0 {
			j.grace = k.Grace
		}
		j.lapsed = j.lapsed || k.Lapsed
		switch {
		case j.pid == 0: // the forker ends it
			j.killed = true
		case s.pids[j.pid] == j:
			j.killed = true
			s.terminate(j)
		case !j.deadline.IsZero(): // lingers: see linger.go
			j.deadline = earlier(j.deadline, time.Now().Add(j.grace))
		}
	}
}

// timeOut ends a job that ran too long.
func (s *shim) timeOut(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pids[j.pid] == j && !j.killed {
		j.timed = true
		s.terminate(j)
	}
}

// terminate starts the end of j, which is in s.pids; the caller holds mu.
func (s *shim) terminate(j *job) {
	deadline := time.Now().Add(j.grace)
	told := !j.deadline.IsZero()
	if told {
		j.lapse.Stop()
		deadline = earlier(j.deadline, deadline)
	}
	j.deadline = deadline
	j.lapse = time.AfterFunc(time.Until(deadline), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.signal(j, syscall.SIGKILL) // the rest: see linger.go
	})
	// Once: many programs take a second SIGTERM for impatience and leave their tidying up half done, and at a
	// lease's end the worker and we both say it.
	if told {
		return
	}
	s.signal(j, syscall.SIGTERM)
	s.signal(j, syscall.SIGCONT) // a stopped process would not see the other
	s.told = append(s.told, j)
	wake(s.lingers)
}

// signal reaches j's process group if its leader is not reaped: only then is the number certainly ours.
func (s *shim) signal(j *job, sig syscall.Signal) {
	if s.pids[j.pid] != j {
		return
	}
	if err := syscall.Kill(-j.pid, sig); err != nil {
		log.Printf("send %v to attempt %s, process group %d: %v", sig, j.attempt, j.pid, err)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
