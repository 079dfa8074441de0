// Package shim is the small process that holds the running jobs of one worker life. It outlives the worker,
// so that a worker's restart, upgrade or crash ends no job. It knows commands, processes and their ends, and
// nothing of tasks, batches or databases; it imports the standard library alone, because it is part of every
// job's cost and must not need to be replaced often.
//
//	worker process                    shim (own session)              jobs (a session each)
//	┌─────────────────┐  frames   ┌──────────────────────┐  fork   ┌───────────────────────┐
//	│ supervisor.life │◀─────────▶│ reader, writer       │────────▶│ /bin/sh -c …          │
//	└────────┬────────┘  socket   │ forker  (own thread) │ wait    │  0 /dev/null          │
//	         │                    │ reaper               │◀────────│  1 out.tmp  2 err.tmp │
//	         │ reads, when the    │ flusher ─▶ journal   │ SIGKILL └───────────────────────┘
//	         └─ shim is dead ─────┼──────────▶ (on disk) │ if it dies (PDEATHSIG)
//	                              └──────────────────────┘
//
//	<dir of the life>/socket    made by the worker, inherited; only its user gets there
//	<dir of the life>/journal   who was taken, started, ended, acknowledged; see journal.go
//	<dir of the life>/log       what the shim has to say
//
// What is true if X dies:
//
//   - the worker: jobs go on, their ends go to the journal. The next worker connects, gets one snapshot of what
//     runs and what ended, and then what ends. Without worker and jobs the shim leaves; the journal stays.
//   - the worker, and the node's lease runs out: the shim ends its jobs by itself (lease.go).
//   - the shim: the kernel kills the main process of each job, the supervisor what they had started. Exits in
//     the journal are good; every other attempt that was taken is lost, and known to be.
//   - both: the same, done by the next worker.
//   - the host: nothing runs. Exits that were ever reported are on disk.
//
// It promises:
//
//   - Each attempt that was taken is answered: by an exit, or as lost by who reads the journal.
//   - An exit is on disk before it is reported, and is reported until it is acknowledged.
//   - An attempt ends when its main process ends. Then whatever it has left is killed, also what has gone out of its
//     session: it would run beside the next attempt. After SIGTERM the rest has the rest of the grace instead
//     (linger.go). The exit is reported when nothing is left (cgroup.go, tree.go).
//   - A signal reaches what it was meant for or nobody: see reap.go.
//   - No job runs as root, and none inherits more than its three descriptors and the environment it was given, to which
//     the mark is added by which its processes are known.
//
// It leaves to others: directories, names, success. A job's peak memory is the most that all its processes were seen to
// have together (sample.go), or what the kernel says of the biggest of them if that is more. The kernel counts from the
// fork on, so it is never less than the shim's own few megabytes.
package shim
