package shim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// MarkName is the variable by which a job's processes are known where there is no cgroup. The shim adds it to each job's
// environment.
const MarkName = "CAPRI_MARK"

// Mark is its value for an attempt. Two clusters' workers on one machine may run attempts of the same name, so the name
// alone would have one of them end the other's processes.
func (l Life) Mark(attempt string) string {
	return fmt.Sprintf("%d-%d/%s", l.Pid, l.StartTicks, attempt)
}

// Tracked is a job whose processes are looked for.
type Tracked struct {
	Attempt string
	Pid     int    // of its main process, which has led its session; 0: not known
	Since   uint64 // boot ticks before which nothing of it existed
	Mark    string // Life.Mark; "": not looked for
	Cgroup  string // the directory of its group; "": it has none
}

// Member is a living process of a job.
type Member struct {
	Attempt string
	Stat
}

// Members finds the living processes of jobs. What is in a job's cgroup belongs to it, and what is in its session, and
// what has its mark in the environment, and all that these have started. So a process escapes only where there is no
// cgroup, and when it has left the session, has cleaned its environment, and its parent has ended.
//
// Ticks keep a stranger out who got the number of a session that had ended.
func Members(jobs []Tracked) (map[int]Member, error) {
	found := map[int]Member{}
	if len(jobs) == 0 {
		return found, nil
	}
	all := map[int]Stat{}
	err := eachProcess(func(pid int) {
		if s, err := ReadStat(pid); err == nil && s.State != 'Z' && s.State != 'X' {
			all[pid] = s
		}
	})
	if err != nil {
		return nil, err
	}
	sessions, marks, oldest := map[int]Tracked{}, map[string]Tracked{}, ^uint64(0)
	for _, j := range jobs {
		if j.Pid != 0 {
			sessions[j.Pid] = j
		}
		if j.Cgroup != "" {
			for _, pid := range cgroupPids(j.Cgroup) {
				if s, ok := all[pid]; ok {
					found[pid] = Member{j.Attempt, s}
				}
			}
		} else if j.Mark != "" {
			marks[j.Mark], oldest = j, min(oldest, j.Since)
		}
	}
	for pid, s := range all {
		if j, ok := sessions[s.Session]; ok && s.StartTicks >= j.Since {
			found[pid] = Member{j.Attempt, s}
		}
	}
	if len(marks) > 0 {
		for pid, s := range all {
			if _, known := found[pid]; known || s.StartTicks < oldest {
				continue
			}
			if j, ok := marks[markOf(pid)]; ok {
				found[pid] = Member{j.Attempt, s}
			}
		}
	}
	for more := true; more; {
		more = false
		for pid, s := range all {
			if _, known := found[pid]; known {
				continue
			}
			if parent, ok := found[s.Parent]; ok {
				found[pid], more = Member{parent.Attempt, s}, true
			}
		}
	}
	return found, nil
}

// markOf reads the mark in the environment that a process was started with.
func markOf(pid int) string {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "" // it is somebody's whom we may not look at, or has ended
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if mark, ok := bytes.CutPrefix(v, []byte(MarkName+"=")); ok {
			return string(mark)
		}
	}
	return ""
}

// Signal sends sig to a process if it is still the one that was found. The handle is a pidfd and is taken before the
// check, so that the signal reaches that process or nobody.
func (m Member) Signal(pid int, sig syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer p.Release()
	if s, err := ReadStat(pid); err != nil || s.StartTicks != m.StartTicks {
		return nil // it has ended, which is what signals are for here
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to process %d: %w", sig, pid, err)
	}
	return nil
}

// Children finds the children of a process, dead ones that it has not reaped included: pid → start ticks. Those of a
// shim are the main processes of its jobs, and what had lost its parent.
func Children(parent int) (map[int]uint64, error) {
	found := map[int]uint64{}
	return found, eachProcess(func(pid int) {
		if s, err := ReadStat(pid); err == nil && s.Parent == parent {
			found[pid] = s.StartTicks
		}
	})
}

func eachProcess(f func(pid int)) error {
	proc, err := os.Open("/proc")
	if err != nil {
		return err
	}
	names, err := proc.Readdirnames(-1)
	proc.Close()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			f(pid)
		}
	}
	return nil
}

// adoptOrphans has the kernel give us the processes of our jobs whose parents have ended. Before that they were init's,
// and nobody could tell that a job had left any.
func adoptOrphans() error {
	const setChildSubreaper = 36
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); e != 0 {
		return fmt.Errorf("become the parent of orphans: %w", e)
	}
	return nil
}

// orphans reports whether we have living children that are no main process of a job. The kernel gives orphans to the
// first thread. The caller holds mu.
func (s *shim) orphans() bool {
	b, err := os.ReadFile(s.childrenFile)
	if err != nil {
		return false // a kernel without these lists; what left its session there is not missed
	}
	for _, field := range bytes.Fields(b) {
		pid, err := strconv.Atoi(string(field))
		if err != nil || s.pids[pid] != nil {
			continue
		}
		if st, err := ReadStat(pid); err == nil && st.State != 'Z' && st.State != 'X' {
			return true
		}
	}
	return false
}
