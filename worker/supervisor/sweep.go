package supervisor

import (
	"log/slog"
	"syscall"
	"time"

	"capri/worker/shim"
)

// sweepFor is how long we wait for killed processes to be gone; one in a hanging system call may stay.
const sweepFor = 5 * time.Second

// sweep ends what is left of a dead shim's jobs and reports how many processes that were. PDEATHSIG reaches main
// processes only: /bin/sh is gone, and the program that it had started runs on. Before an attempt is called lost there
// must be nothing left of it, or the next one would run beside it.
func sweep(r *shim.Remains, log *slog.Logger) int {
	if r.Life.BootID != shim.BootID() {
		return 0 // after a reboot nothing is left, and the numbers are others'
	}
	ended, err := shim.RemoveCgroup(r.Life.Cgroup)
	if err != nil {
		log.Error("remove the cgroups of a dead shim", "error", err)
	}
	var jobs []shim.Tracked
	for _, j := range r.Running {
		jobs = append(jobs, shim.Tracked{Attempt: j.Attempt, Pid: j.Pid, Since: max(j.StartTicks, r.Life.StartTicks), Mark: r.Life.Mark(j.Attempt)})
	}
	killed := map[int]bool{}
	for deadline := time.Now().Add(sweepFor); ; time.Sleep(2 * time.Millisecond) {
		members, err := shim.Members(jobs)
		if err != nil {
			log.Error("look for what a dead shim left", "error", err)
			break
		}
		if len(members) == 0 {
			break
		}
		if time.Now().After(deadline) {
			log.Error("processes of a dead shim survive SIGKILL", "processes", len(members))
			break
		}
		for pid, m := range members {
			killed[pid] = true
			if err := m.Signal(pid, syscall.SIGKILL); err != nil {
				log.Error("end what a dead shim left", "error", err)
			}
		}
	}
	return ended + len(killed)
}
