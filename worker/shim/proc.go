package shim

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Stat is the part of /proc/<pid>/stat that identifies a process, and what it weighs.
type Stat struct {
	State      byte // Z: dead, not yet reaped
	Parent     int
	Group      int
	Session    int
	StartTicks uint64 // since boot, in hundredths of a second
	Resident   int64  // pages in memory
}

// ReadStat looks at one process.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	// The second field is the program's name in parentheses and may hold blanks and parentheses itself.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 22 {
		return Stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	s := Stat{State: f[0][0]}
	s.Parent, _ = strconv.Atoi(string(f[1]))
	s.Group, _ = strconv.Atoi(string(f[2]))
	s.Session, _ = strconv.Atoi(string(f[3]))
	s.Resident, _ = strconv.ParseInt(string(f[21]), 10, 64)
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
