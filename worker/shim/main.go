package shim

import (
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
)

// The names that supervisor and shim agree on: files in a life's directory, and the descriptor at which the
// shim finds its listening socket. The worker makes the socket, so there is no moment at which the shim runs
// and cannot be reached.
const (
	ProgramName = "capri-shim"
	SocketName  = "socket"
	LogName     = "log"
	ListenerFD  = 3
)

// lonelyFor is how long a shim waits for its first worker, which may have died after starting it.
const lonelyFor = 30 * time.Second

// NoCgroups is the argument after the directory that keeps the shim from making cgroups.
const NoCgroups = "no-cgroups"

// Main is the program: args are its name, the directory of its life, and perhaps NoCgroups. It returns the exit status.
func Main(args []string) int {
	log.SetFlags(log.Ldate | log.Ltime | log.Lmicroseconds | log.LUTC)
	without := len(args) == 3 && args[2] == NoCgroups
	if len(args) != 2 && !without {
		fmt.Fprintln(os.Stderr, "capri-shim is started by capri worker: capri-shim DIRECTORY ["+NoCgroups+"]")
		return 2
	}
	if err := run(args[1], !without); err != nil {
		log.Print(err)
		return 1
	}
	return 0
}

func run(dir string, useCgroups bool) error {
	syscall.Umask(0o077)
	if err := closeOnExec(); err != nil {
		return err
	}
	// Small and steady: two threads of Go code are enough for one that forks and one that does the rest, and
	// what lives is little, so collecting often costs nothing.
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(50)

	inherited := os.NewFile(ListenerFD, "listener")
	listener, err := net.FileListener(inherited)
	if err != nil {
		return fmt.Errorf("descriptor %d is not a socket (capri worker starts the shim): %w", ListenerFD, err)
	}
	inherited.Close() // FileListener made a copy
	null, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	program, err := ProgramID("/proc/self/exe")
	if err != nil {
		return err
	}
	self, err := ReadStat(os.Getpid())
	if err != nil {
		return fmt.Errorf("read own start time (is /proc mounted?): %w", err)
	}
	life := Life{Version: Version, Pid: os.Getpid(), StartTicks: self.StartTicks, BootID: BootID(), Program: program}
	var groups *cgroups
	if useCgroups {
		if groups, err = openCgroups(life); err != nil {
			log.Printf("jobs get no cgroups, their processes are known by the mark in their environment: %v", err)
		} else {
			life.Cgroup = groups.dir
		}
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	s, err := newShim(dir, life)
	if err != nil {
		return err
	}
	s.root, s.devNull, s.cgroups = os.Geteuid() == 0, uintptr(null), groups
	s.childrenFile = fmt.Sprintf("/proc/self/task/%d/children", life.Pid)

	go s.obeySignals()
	go s.forkJobs()
	go s.reapJobs()
	go s.awaitTheRest()
	go s.watchLease()
	go s.sampleJobs()
	go s.flushExits()
	go s.accept(listener)
	time.AfterFunc(lonelyFor, s.wakeFlusher)
	<-s.gone
	if _, err := RemoveCgroup(life.Cgroup); err != nil {
		log.Print(err)
	}
	os.Remove(filepath.Join(dir, SocketName)) // so that nobody calls; the journal stays for whoever comes
	return nil
}

// closeOnExec keeps what we inherited by somebody's mistake from the jobs.
func closeOnExec() error {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list own descriptors: %w", err)
	}
	for _, fd := range fds {
		if n, err := strconv.Atoi(fd.Name()); err == nil && n > 2 {
			syscall.CloseOnExec(n)
		}
	}
	return nil
}

// obeySignals: who ends the shim means its jobs, so SIGTERM ends them in order, and the shim with the last.
// The others are for people at terminals. They are caught and not ignored: what is ignored stays so in the
// children, and a job must find the defaults.
func (s *shim) obeySignals() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	for sig := range signals {
		if sig != syscall.SIGTERM {
			continue
		}
		s.mu.Lock()
		var kills []Kill
		for a := range s.jobs {
			kills = append(kills, Kill{Attempt: a})
		}
		s.mu.Unlock()
		log.Printf("SIGTERM: %d attempts are ended, then the shim leaves", len(kills))
		s.kill(kills)
		s.leave()
	}
}
