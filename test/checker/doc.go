// Package checker reads what a run of Capri left behind and decides, for each guarantee, whether it held. It runs after
// the run, offline, imports nothing of the product, and believes nothing that Capri says of itself where a second
// witness exists.
//
//	database: rows, events, ledger, leases ─┐
//	witness log: what the jobs saw ─────────┤
//	nemesis log: what was broken, when ─────┼──▶ History ──▶ one function per invariant ──▶ Report (table, JSON)
//	run file: zone, speed, limits ──────────┤
//	oracle: what had to be generated ───────┘
//
// Start at invariants in check.go: the table of names, sentences and functions. README.md says how to use it, and why each
// argument is sound where transactions overlap.
package checker
