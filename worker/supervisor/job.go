package supervisor

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"capri"
	"capri/worker/shim"
)

// Job is one attempt to be run. Env is complete: the job sees nothing else.
type Job struct {
	Attempt    capri.Attempt
	Argv       []string // Argv[0] is a path, not searched for in PATH
	Env        []string // "NAME=value"
	Dir        string   // working directory; made by the caller, absolute
	Stdout     string   // absolute; created by the shim (mode 0600, owned by the job's user), must not exist
	Stderr     string   // may be the same as Stdout
	Credential *Credential
	KillGrace  time.Duration // between SIGTERM and SIGKILL; 0: shim.DefaultGrace
	RunTimeout time.Duration // 0: none
	EndOverMB  int           // it is ended when its processes have more memory together; 0: it is not
	StartBy    time.Duration // reading of shim.Now after which it is not started any more, but comes out of Exits as Lapsed; 0: never mind
}

// Credential is whom a job runs as; nil is the worker's own user, who must not be root.
type Credential = shim.Credential

// Exit is how an attempt ended: exactly one of Code (Signal and Error are zero), Signal and Error tells.
type Exit struct {
	Attempt      capri.Attempt
	Code         int
	Signal       syscall.Signal // it died of this; 0: it did not
	Error        string         // why it could not be started, or that nothing is known of its end
	NodeFault    bool           // Error is the machine's fault, and would have met any job
	Lost         bool           // its shim died: nothing is known, but none of its session is left
	Started      capri.Instant  // 0: it never was
	Ended        capri.Instant
	PeakMemoryMB int           // of all its processes together; not less than the shim's own (see package shim)
	Processes    int           // the most that were seen; 0: it ended before anybody looked
	CPU          time.Duration // user and system, of the main process and all it waited for
	TimedOut     bool          // RunTimeout ended it
	Killed       bool          // Kill was called before it ended
	Lapsed       bool          // the node's lease had run out: it was ended, or not started
	OverMemory   bool          // it had more than Job.EndOverMB, and was ended
}

// OK reports an exit with code 0 that nobody forced.
func (e Exit) OK() bool {
	return e.Error == "" && e.Signal == 0 && e.Code == 0 && !e.TimedOut && !e.Killed && !e.OverMemory
}

// Inventory is one attempt that the shims hold. Pid is 0 while it waits for its fork.
type Inventory struct {
	Attempt    capri.Attempt
	Pid        int
	StartTicks uint64 // of Pid, as in /proc/<pid>/stat
	Started    capri.Instant
	MemoryMB   int // the most that its processes were seen to have together
	Processes  int // the most that were seen
}

func (j Job) wire() shim.Job {
	return shim.Job{
		Attempt: j.Attempt.String(), Argv: j.Argv, Env: j.Env, Dir: j.Dir, Stdout: j.Stdout, Stderr: j.Stderr,
		Credential: j.Credential, KillGrace: j.KillGrace, RunTimeout: j.RunTimeout, EndOverMB: j.EndOverMB, StartBy: j.StartBy,
	}
}

// check finds the mistakes of a caller; what only the kernel can tell comes back as an Exit with an Error.
func (j Job) check() error {
	field := func(name, value, want string) error {
		return fmt.Errorf("job %s: %w", j.Attempt, capri.Invalid(name, value, want))
	}
	if len(j.Argv) == 0 || !filepath.IsAbs(j.Argv[0]) {
		return field("argv", strings.Join(j.Argv, " "), "an absolute path of a program first")
	}
	for _, f := range [][2]string{{"dir", j.Dir}, {"stdout", j.Stdout}, {"stderr", j.Stderr}} {
		if !filepath.IsAbs(f[1]) {
			return field(f[0], f[1], "an absolute path: the shim has another working directory")
		}
	}
	return nil
}

func exitOf(e shim.Exit) (Exit, error) {
	a, err := ParseAttempt(e.Attempt)
	return Exit{
		Attempt: a, Code: e.Code, Signal: syscall.Signal(e.Signal), Error: e.Error,
		Started: capri.Instant(e.Started), Ended: capri.Instant(e.Ended),
		PeakMemoryMB: e.PeakMemoryMB, Processes: e.Processes, OverMemory: e.OverMemory, NodeFault: e.NodeFault, CPU: e.CPU, TimedOut: e.TimedOut, Killed: e.Killed, Lapsed: e.Lapsed,
	}, err
}

// ParseAttempt reads what capri.Attempt.String wrote.
func ParseAttempt(s string) (capri.Attempt, error) {
	batch, number, _ := strings.Cut(s, ".")
	b, err1 := strconv.ParseInt(batch, 10, 64)
	n, err2 := strconv.Atoi(number)
	if err1 != nil || err2 != nil {
		return capri.Attempt{}, capri.Invalid("attempt", s, "<batch id>.<number>")
	}
	return capri.Attempt{Batch: capri.BatchID(b), Number: n}, nil
}

func names(attempts []capri.Attempt) []string {
	s := make([]string, len(attempts))
	for i, a := range attempts {
		s[i] = a.String()
	}
	return s
}
