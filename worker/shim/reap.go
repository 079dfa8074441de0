package shim

import (
	"syscall"
	"time"
	"unsafe"
)

// reapJobs collects children as they end, for ever: one blocking call for all of them.
//
// It looks before it reaps. While the dead leader is not reaped, its pid is taken and so is the number of its
// process group: whatever we signal under these numbers is ours. So the group is killed between the look and
// the reaping, and everybody else signals under s.mu and only what is in s.pids.
func (s *shim) reapJobs() {
	for {
		pid, err := peek()
		switch err {
		case nil:
			s.reap(pid)
		case syscall.ECHILD:
			<-s.born
		}
	}
}

func (s *shim) reap(pid int) {
	s.mu.Lock()
	j := s.pids[pid]
	s.mu.Unlock()
	if j == nil {
		// It ended before its fork was noted, or it is a fork that failed and package syscall reaps it. When the
		// fork that is under way is over, we know.
		s.forking.Lock()
		defer s.forking.Unlock()
		s.mu.Lock()
		j = s.pids[pid]
		s.mu.Unlock()
		if j == nil {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // nobody's, or it would be looked at for ever
			return
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	// What it leaves behind does not outlive it: a background child of an attempt that has ended would run
	// beside the next attempt. Its group is killed here, and what has left that (setsid) in linger.go. Only when it was
	// told to end has the rest some grace left.
	told := !j.deadline.IsZero()
	if !told {
		syscall.Kill(-pid, syscall.SIGKILL)
	}
	var status syscall.WaitStatus
	var use syscall.Rusage
	if n, _ := syscall.Wait4(pid, &status, syscall.WNOHANG, &use); n != pid {
		return // interrupted; it is looked at again
	}
	e := Exit{
		Ended:        time.Now().UnixMilli(),
		PeakMemoryMB: int((int64(use.Maxrss) + 1023) / 1024),
		CPU:          time.Duration(use.Utime.Nano() + use.Stime.Nano()),
	}
	if status.Signaled() {
		e.Signal = int(status.Signal())
	} else {
		e.Code = status.ExitStatus()
	}
	delete(s.pids, pid)
	// A worker whose shim hangs ends the jobs itself when the lease runs out. If we come to life again in the middle of
	// that, how they ended is not the jobs' own doing.
	if (status.Signaled() || e.Code != 0) && s.leaseOver() {
		j.lapsed = true
	}
	if !told && s.leavesProcesses(j) {
		j.deadline, told = time.Now(), true
	}
	if told {
		s.lingering = append(s.lingering, &lingering{job: j, exit: e})
		wake(s.lingers)
	} else {
		s.end(j, e)
	}
}

// peek waits until a child has ended and leaves it unreaped.
func peek() (int, error) {
	const (
		pAll   = 0
		exited = 0x4
		noReap = 0x1000000
	)
	var info struct { // siginfo_t of 128 bytes
		signo, errno, code int32
		_                  [0]uintptr // the union is aligned as a pointer is
		pid                int32
		_                  [112]byte
	}
	_, _, e := syscall.Syscall6(syscall.SYS_WAITID, pAll, 0, uintptr(unsafe.Pointer(&info)), exited|noReap, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(info.pid), nil
}
