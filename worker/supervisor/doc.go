// Package supervisor is the worker's side of its shims: it starts them, hands them jobs, and turns whatever
// becomes of a job into an Exit.
//
//	worker ── Start, Kill, Ack ──▶ Supervisor ──▶ life (current)   ◀── socket ──▶ shim: takes new jobs
//	       ◀────── Exits ────────            ├──▶ life (older)     ◀── socket ──▶ shim of an older program:
//	                                         │                                   keeps its jobs, then leaves
//	                                         └──▶ life (dead)      ◀── journal    nobody: what it left on disk
//
// Each life is a directory shim-<number> in Options.Dir; package shim says what is in it. Open connects to the
// living ones and reads the dead ones. One living shim of the same program and version goes on taking jobs;
// any other is told to leave with its last job. A dead life's directory is removed when all of it is
// acknowledged.
//
// It promises:
//
//   - After Start without an error each job comes out of Exits, and after one with an error none has run.
//   - An exit comes once per Open, and with each Open again until it is acknowledged; an Ack that was on its
//     way when a connection broke may bring it once more. So what a worker does with an exit must not mind.
//   - An attempt is called lost when its shim is dead and no process of its session is left.
//   - Each shim hears of the node's lease when it is renewed and when it is connected anew. EndAll ends all jobs, also
//     those of a shim that hangs.
//   - A shim that dies is noticed by its closed socket, at once, and the next Start starts another.
//   - However slowly Exits is read, no shim waits.
//
// What is true if the worker dies: anywhere in here, what is on disk and in the shims is enough for the next
// Open; nothing is removed before it is acknowledged. An attempt that the database calls started and Unknown
// gives back was never handed over, or its exit was acknowledged already.
//
// The service manager must not end the shims with the worker (systemd: KillMode=process).
package supervisor
