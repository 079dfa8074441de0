// Package runner is what `capri job` does: it stands between the shim and what is no plain process of this machine, a call
// over HTTP or a client whose work runs in a cluster. To the shim it is the job, so that kill, time-outs, logs and a
// worker's restart are the same as for every other job.
//
//	shim ── starts, SIGTERM, SIGKILL ──▶ capri job ─┬─ Call:   request ──▶ answer ──▶ (poll …) ──▶ rule ──▶ exit code
//	         (a session, a process group)     ▲      │
//	                                          │      └─ Client: hive, spark-submit, trino, hadoop in the same group
//	     CAPRI_JOB={"client": {"argv": …}} ───┘                   │ stderr, passed on, ids read from it
//	                                                              ▼
//	                                                 yarn application -kill ID, where it ended badly
//
// It promises:
//
//   - What it is told comes in one variable of its environment, which only its own account can read, and is taken out of
//     the environment that the client sees.
//   - A client's standard output is the job's own, untouched; its exit code is the job's.
//   - When a client fails or is told to end, what it had started in the cluster is ended, too, as far as its ids were
//     seen: another attempt follows, and two must not run at once.
//   - A call reaches no address that a cloud keeps for its machines' secrets, follows no redirect to another host, and
//     writes no header and no query into the log.
//
// What is true if it dies: by SIGKILL, the rest of its process group is killed by the shim, and a remote application goes on
// until somebody ends it; its id is in the log.
package runner
