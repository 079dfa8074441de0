// Package job turns a claimed batch into the process to be started: its command line, its environment and the
// account it runs as. It starts nothing.
//
//	task version ──┐
//	batch ─────────┼─ Maker.Make ──▶ Process{Argv, Env}     Accounts.Of ──▶ *Account (nil: the worker's own user)
//	directory ─────┤       │
//	Clients.Find ──┘       └─ types: shell, python, java ──▶ their own command line
//	                                 http, hive, spark … ──▶ `capri job`, told in CAPRI_JOB what to do (package runner)
//
// It promises that the environment is built from nothing (an allow-list, the task's env, its parameters and Capri's
// own words), that a parameter's value never becomes part of a command's text, and that no account with the user id 0 is
// ever chosen.
//
// Type says how a command of a job type is run; a new type is a row of types, its name in capri.JobTypes, its rule in
// definition, and a candidate of the harness, which tries each type with the same things.
package job
