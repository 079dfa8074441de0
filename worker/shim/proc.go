package shim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Stat is the part of /proc/<pid>/stat that identifies a process.
type Stat struct {
	State      byte // Z: dead, not yet reaped
	Parent     int
	Group      int
	Session    int
	StartTicks uint64 // since boot, in hundredths of a second
}

// ReadStat looks at one process.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	// The second field is the program's name in parentheses and may hold blanks and parentheses itself.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return Stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	s := Stat{State: f[0][0]}
	s.Parent, _ = strconv.Atoi(string(f[1]))
	s.Group, _ = strconv.Atoi(string(f[2]))
	s.Session, _ = strconv.Atoi(string(f[3]))
	s.StartTicks, err = strconv.ParseUint(string(f[19]), 10, 64)
	return s, err
}

// Alive reports whether the process that l names still runs.
func (l Life) Alive() bool {
	s, err := ReadStat(l.Pid)
	return err == nil && s.State != 'Z' && s.State != 'X' && s.StartTicks == l.StartTicks && l.BootID == BootID()
}

// Kill ends that process and no other: the pidfd is taken before the check.
func (l Life) Kill() error {
	p, err := os.FindProcess(l.Pid)
	if err != nil {
		return err
	}
	defer p.Release()
	if !l.Alive() {
		return nil
	}
	return p.Signal(syscall.SIGKILL)
}

// BootID is the kernel's name for the time since it booted.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// ProgramID identifies the contents of a program file well enough to see that it was replaced.
func ProgramID(path string) (string, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fmt.Sprintf("%d:%d:%d:%d.%09d", st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec), nil
}

// Now is the time since the host booted (CLOCK_BOOTTIME). Leases are counted on it: worker and shim read the same
// clock, nobody sets it, it survives both, and it goes on while the host sleeps.
func Now() time.Duration {
	const clockBoottime = 7
	var ts syscall.Timespec
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); e != 0 {
		return 0 // no Linux that Go runs on; then every member of a session counts as ours, and no lease ends
	}
	return time.Duration(ts.Nano())
}

// bootTicks is the present in the unit of Stat.StartTicks: what is forked from now on has at least this.
func bootTicks() uint64 { return uint64(Now() / (10 * time.Millisecond)) }

// Members finds the living processes of sessions: session id → boot ticks before which it did not exist.
// The ticks keep a stranger out who got the number of a session that had ended. The answer maps pids to
// sessions.
func Members(sessions map[int]uint64) (map[int]int, error) {
	found := map[int]int{}
	return found, eachProcess(func(pid int) {
		if session, ok := memberOf(pid, sessions); ok {
			found[pid] = session
		}
	})
}

// Children finds the children of a process, dead ones that it has not reaped included: pid → start ticks. Those of a
// shim lead the sessions of its jobs.
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

func memberOf(pid int, sessions map[int]uint64) (int, bool) {
	s, err := ReadStat(pid)
	if err != nil || s.State == 'Z' || s.State == 'X' {
		return 0, false
	}
	since, ok := sessions[s.Session]
	return s.Session, ok && s.StartTicks >= since
}

// SignalMember sends sig to pid if it is (still) a member of one of sessions. The handle is a pidfd and is
// taken before the check, so that the signal reaches the process that was checked or nobody.
func SignalMember(pid int, sessions map[int]uint64, sig syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer p.Release()
	if _, ok := memberOf(pid, sessions); !ok {
		return nil
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to process %d: %w", sig, pid, err)
	}
	return nil
}
