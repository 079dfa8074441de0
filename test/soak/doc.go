// Command soak lets a whole cluster of Capri run under faults and then has every guarantee checked.
//
//	       people at random (the real command line)           a plan of faults, made from the seed
//	             │                                                  │
//	             ▼                                                  ▼
//	3 masters ──proxy──┐                       kill, freeze, cut off, slow down, shift clocks,
//	4 workers ──proxy──┼──▶ MariaDB, Redis     lose replies of COMMIT, provoke deadlocks …
//	    │ jobs         │         ▲          (as root each worker is in a network namespace, and its cable can be cut)
//	    ▼              │         └── a watcher asks directly, each 100 ms: who leads, which turns ended, which nodes beat
//	witness log        └── a proxy for each process and server, so that one alone can be cut off
//
// Business time runs sixty times as fast and begins an hour before a month ends in a zone that changes its clock that
// night, so a run of minutes meets hours, the day, the month and the repeated hour. Leases and beats stay real.
//
// When the time is over everything is healed and left alone until each batch has ended or waits for something that can
// be named. Then all is stopped and the checker (test/checker) reads what is left: the database, the witness log that
// the jobs wrote themselves, the log of faults. See README.md for how to read the report.
//
// With -scenario it measures one thing instead, with the limits as they are by default.
package main
