// Package worker is the process that runs batches, as a value: New makes it, Run runs it until its context ends.
//
//	assigned          take ──────▶ prepare ──────▶ start ──────▶ shim ──▶ job
//	(dispatch)        Claim        files, paths,   Start,        (its own process, package shim)
//	                               account, slots  supervisor      │
//	                                 │ no            │ no          │ exit
//	                                 ▼               ▼             ▼
//	waiting ◀──────── give back ◀────┴───────────────┘           finish ──▶ wake dispatch, dependency
//	                  RollBack                                   FinishAttempts, log, directory, Ack
//
// Each step has one goroutine and a queue before it. While a step writes one group the next one gathers, so the
// number of statements follows the database's pace and not the number of batches.
//
// What it promises: a job is handed to the shim only after the database has said "started" to this very attempt; an
// exit is acknowledged only after the database has it; a job runs in a directory of its own as an account that is not
// root. When it stops, or dies, running jobs go on under the shim, and the next Run on the same data directory adopts
// them: known ones go on, ended ones are reported with their exact exit, those that were only preparing are given
// back, and what nobody knows of is reported as lost.
//
// The data directory:
//
//	node.id   which node this directory is        jobs/<batch>.<attempt>/   a job's directory, its account's own
//	lock      held while a process uses it        logs/                     package logs
//	shim/     package supervisor                  prepared/                 how outputs looked before their jobs
//	cleaned   when old logs were removed last     jobs/spare-<n>/           left empty, for the next of that account
//
// The node's lease (lease.go) is its right to run jobs: renewed by each acknowledged beat, run out when the database
// was silent for too long. Then, and when a beat, claim or start is told that the node was called lost, everything here
// is ended before the node registers anew.
//
// What it leaves to others: which batch goes to which node (dispatch), retries and their pauses (the store), and
// how processes are held (shim).
package worker
