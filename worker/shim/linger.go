package shim

import (
	"log"
	"syscall"
	"time"
)

// lingering is a job that was told to end and whose main process has ended, while the rest of its session may
// still be tidying up: /bin/sh dies of the SIGTERM at once, the program that it had started writes its
// checkpoint. The rest gets what is left of the grace, then SIGKILL; the exit is reported when none is left.
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

// awaitSessions ends lingering jobs. One look at /proc serves all of them, because they come by the thousand
// when a worker's lease is lost. The leader is reaped, so here its number alone proves nothing: Members checks
// start times, SignalMember uses pidfds.
func (s *shim) awaitSessions() {
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
		s.mu.Unlock()

		sessions := make(map[int]uint64, len(waiting))
		for _, l := range waiting {
			sessions[l.job.pid] = l.job.ticks
		}
		members, err := Members(sessions)
		if err != nil {
			log.Printf("look for what is left of %d attempts: %v", len(waiting), err)
		}
		bySession := map[int][]int{}
		for pid, session := range members {
			bySession[session] = append(bySession[session], pid)
		}
		rest := waiting[:0]
		for _, l := range waiting {
			if !s.lingersOn(l, bySession[l.job.pid], sessions) {
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

func (s *shim) lingersOn(l *lingering, members []int, sessions map[int]uint64) bool {
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
		log.Printf("attempt %s: processes %v survive SIGKILL", l.job.attempt, members)
		return false
	}
	for _, pid := range members {
		if err := SignalMember(pid, sessions, syscall.SIGKILL); err != nil {
			log.Printf("attempt %s: %v", l.job.attempt, err)
		}
	}
	return true
}
