package supervisor

import (
	"log/slog"
	"syscall"
	"time"

	"capri/worker/shim"
)

// sweepFor is how long we wait for killed processes to be gone; one in a hanging system call may stay.
const sweepFor = 5 * time.Second

// sweep ends what is left of the sessions of a dead shim's jobs and reports how many processes that were.
// PDEATHSIG reaches main processes only: /bin/sh is gone, and the program that it had started runs on. Before
// an attempt is called lost there must be nothing left of it, or the next one would run beside it.
func sweep(r *shim.Remains, log *slog.Logger) int {
	sessions := map[int]uint64{}
	for _, j := range r.Running {
		if j.Pid != 0 {
			sessions[j.Pid] = j.StartTicks
		}
	}
	if len(sessions) == 0 || r.Life.BootID != shim.BootID() {
		return 0 // after a reboot nothing is left, and the numbers are others'
	}
	killed := map[int]bool{}
	for deadline := time.Now().Add(sweepFor); ; time.Sleep(2 * time.Millisecond) {
		members, err := shim.Members(sessions)
		if err != nil {
			log.Error("look for what a dead shim left", "error", err)
			return len(killed)
		}
		if len(members) == 0 {
			return len(killed)
		}
		if time.Now().After(deadline) {
			log.Error("processes of a dead shim survive SIGKILL", "processes", len(members))
			return len(killed)
		}
		for pid := range members {
			killed[pid] = true
			if err := shim.SignalMember(pid, sessions, syscall.SIGKILL); err != nil {
				log.Error("end what a dead shim left", "error", err)
			}
		}
	}
}
