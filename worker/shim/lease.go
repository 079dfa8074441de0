package shim

import (
	"log"
	"time"
)

// The node's lease (design §5.2). The worker tells of each beat that the database acknowledged. When no newer one comes
// the node may be taken for dead, and its batches be given to others, so every job here must have ended by then. The
// worker counts, too, and ends the jobs of a shim that hangs; the shim ends them where the worker hangs or is dead.

// lookAtLease is how often the lease is looked at while there are jobs. A timer to its end would be enough, were it not
// that Go's timers stand still while the host sleeps, and Now does not.
const lookAtLease = time.Second

// watchLease ends all jobs when the lease has run out, for ever.
func (s *shim) watchLease() {
	for {
		s.mu.Lock()
		var wait time.Duration // 0: until there is something to watch
		if l := s.lease; l != nil && l.KillAfter > 0 && len(s.jobs) > 0 {
			wait = lookAtLease
			if left := l.At + l.KillAfter - Now(); left > 0 {
				wait = min(left, lookAtLease)
			} else {
				s.lapseAll()
			}
		}
		s.mu.Unlock()
		if wait == 0 {
			<-s.leased
			continue
		}
		select {
		case <-s.leased:
		case <-time.After(wait):
		}
	}
}

// leaseOver: the node may run nothing now; the caller holds mu.
func (s *shim) leaseOver() bool {
	return s.lease != nil && s.lease.KillAfter > 0 && Now() > s.lease.At+s.lease.KillAfter
}

// lapseAll tells every job that was not told before to end; the caller holds mu.
func (s *shim) lapseAll() {
	told := 0
	for _, j := range s.jobs {
		if j.lapsed {
			continue
		}
		told++
		j.lapsed = true
		j.grace = min(j.grace, s.lease.Grace)
		switch {
		case j.pid == 0: // the forker ends it
			j.killed = true
		case s.pids[j.pid] == j:
			s.terminate(j)
		case !j.deadline.IsZero(): // lingers: see linger.go
			j.deadline = earlier(j.deadline, time.Now().Add(j.grace))
		}
	}
	if told > 0 {
		log.Printf("the node's lease has run out %s after its last acknowledged beat: %d attempts are ended", s.lease.KillAfter, told)
	}
}

// renew takes a lease that is not older than the one we have. Of two connections the older may still deliver one.
func (s *shim) renew(l Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.At = min(l.At, Now())
	if s.lease == nil || l.At >= s.lease.At {
		s.lease = &l
		wake(s.leased)
	}
}

// tooLate: the lease under which the job was to start is too old; the caller holds mu.
func (s *shim) tooLate(spec *Job) bool {
	return s.leaseOver() || spec.StartBy > 0 && Now() > spec.StartBy
}
