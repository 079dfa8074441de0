// Package servicetest is what a service's test has around it: a database, nodes, batches, and the steps that masters and
// workers take with them. What is particular to a service stays in its test, in a world of its own that embeds this one.
//
//	servicetest.Each(t, "dispatch", func(w *servicetest.World) {
//		w.Node("n1")
//		ids := w.Batches(w.Task(t, nil), 3)
//		w.Turn(service)
//		… w.Get(ids[0]).State … w.Alerts("node_lost") …
//	})
//
//	Batches ─▶ waiting ── Assign ─▶ assigned ── Claim ─▶ preparing ── Start ─▶ running ── Finish ─▶ finished
//
// A step takes those before it by itself, and the test fails where a batch cannot take it. A change that is nil changes nothing.
package servicetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/services"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// World is the database and who acts on it.
type World struct {
	*sqltest.DB
	T     *testing.T
	Ctx   context.Context
	Leads capri.Lease // what the service's turns are given; Lead takes it anew

	places capri.Lease       // dispatch's, when another service is tested
	boots  map[string]string // of the nodes, as last registered
	made   int
}

// Each runs fn as a subtest on each database, with the lease of that name taken.
func Each(t *testing.T, lease string, fn func(w *World)) {
	t.Helper()
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) { fn(New(t, db, lease)) })
}

// New makes the world of one database.
func New(t *testing.T, db *sqltest.DB, lease string) *World {
	t.Helper()
	return &World{DB: db, T: t, Ctx: t.Context(), Leads: db.Lease(t, lease), boots: map[string]string{}}
}

// Lead makes another leader: from here on turns are under a new epoch.
func (w *World) Lead() {
	w.T.Helper()
	w.Leads = w.Lease(w.T, w.Leads.Service)
}

// Places is the placer's lease.
func (w *World) Places() capri.Lease {
	w.T.Helper()
	if w.Leads.Service == "dispatch" {
		return w.Leads
	}
	if w.places.Service == "" {
		w.places = w.Lease(w.T, "dispatch")
	}
	return w.places
}

// Turn lets a service take a turn now, which must succeed.
func (w *World) Turn(s services.Service) services.Result {
	w.T.Helper()
	res, err := s.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: w.Leads})
	require.NoError(w.T, err)
	return res
}

// Node registers a node with 100 slots, whose boot is "boot".
func (w *World) Node(name string, change ...func(*capri.Node)) {
	w.T.Helper()
	n := capri.Node{Name: name, BootID: "boot", Pool: "default", Slots: 100, CheckInterval: 5, KillAfter: 150 * time.Second, KillGrace: 10 * time.Second}
	for _, c := range change {
		if c != nil {
			c(&n)
		}
	}
	require.NoError(w.T, w.Store.RegisterNode(w.Ctx, n, "dir-"+name))
	w.boots[name] = n.BootID
}

// NewBatch is a batch of the task that waits for nothing, each with a batch_no of its own: d1, d2, …
func (w *World) NewBatch(task *capri.Task, change ...func(*capri.NewBatch)) *capri.NewBatch {
	w.made++
	now := w.Clock.Now()
	b := &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: task.Version, Period: capri.Day, BatchNo: capri.BatchNo(fmt.Sprint("d", w.made)), Latest: true,
		ScheduleTime: now, DataStart: now, DataEnd: now, Priority: 5, Slots: 1, Concurrency: 1000, Pool: "default", Strategy: capri.LeastLoaded}}
	for _, c := range change {
		if c != nil {
			c(b)
		}
	}
	return b
}

// Insert stores batches.
func (w *World) Insert(batches ...*capri.NewBatch) []capri.BatchID {
	w.T.Helper()
	_, err := w.Store.InsertBatches(w.Ctx, store.ByPerson("test"), batches, nil)
	require.NoError(w.T, err)
	ids := make([]capri.BatchID, len(batches))
	for i, b := range batches {
		ids[i] = b.ID
	}
	return ids
}

// Batches stores n batches of the task: NewBatch with what change makes of it.
func (w *World) Batches(task *capri.Task, n int, change ...func(*capri.NewBatch)) []capri.BatchID {
	w.T.Helper()
	batches := make([]*capri.NewBatch, n)
	for i := range batches {
		batches[i] = w.NewBatch(task, change...)
	}
	return w.Insert(batches...)
}

// Assign gives batches to a node.
func (w *World) Assign(node string, ids ...capri.BatchID) {
	w.T.Helper()
	to := make([]store.Assignment, len(ids))
	for i, id := range ids {
		to[i] = store.Assignment{Batch: id, Node: node}
	}
	n, err := w.Store.Assign(w.Ctx, w.Places(), to)
	require.NoError(w.T, err)
	require.Equal(w.T, len(ids), n, "batches %v were not all free to be assigned", ids)
}

// Claim assigns batches and lets their node claim them, and nothing else. The attempts are in the order of ids.
func (w *World) Claim(node string, ids ...capri.BatchID) []capri.Attempt {
	w.T.Helper()
	w.Assign(node, ids...)
	claimed, err := w.Store.Claim(w.Ctx, node, w.boots[node], len(ids)+1)
	require.NoError(w.T, err)
	require.Len(w.T, claimed, len(ids))
	attempts := make([]capri.Attempt, len(ids))
	for _, c := range claimed {
		i := slices.Index(ids, c.ID)
		require.GreaterOrEqual(w.T, i, 0, "batch %d was claimed, too", c.ID)
		attempts[i] = capri.Attempt{Batch: c.ID, Number: c.Attempt}
	}
	return attempts
}

// Start takes batches to running.
func (w *World) Start(node string, ids ...capri.BatchID) []capri.Attempt {
	w.T.Helper()
	attempts := w.Claim(node, ids...)
	started, err := w.Store.Start(w.Ctx, node, w.boots[node], attempts)
	require.NoError(w.T, err)
	require.ElementsMatch(w.T, attempts, started)
	return attempts
}

// Finish reports the end of attempts.
func (w *World) Finish(node string, how store.Outcome, attempts ...capri.Attempt) {
	w.T.Helper()
	results := make([]store.Result, len(attempts))
	for i, a := range attempts {
		results[i] = store.Result{Attempt: a, Outcome: how, Message: "it ended"}
	}
	_, err := w.Store.FinishAttempts(w.Ctx, node, results)
	require.NoError(w.T, err)
}

// Get reads a batch.
func (w *World) Get(id capri.BatchID) capri.Batch {
	w.T.Helper()
	row, err := w.Store.Batch(w.Ctx, id)
	require.NoError(w.T, err)
	return row.Batch
}

// Alerts are those of a kind (none named: all), the newest first.
func (w *World) Alerts(kind ...string) []store.AlertRow {
	w.T.Helper()
	rows, err := w.Store.Alerts(w.Ctx, nil, 0, 100_000)
	require.NoError(w.T, err)
	return slices.DeleteFunc(rows, func(a store.AlertRow) bool { return len(kind) > 0 && !slices.Contains(kind, a.Kind) })
}

// Count counts the rows of a table; from may go on with a condition.
func (w *World) Count(from string, args ...any) (n int) {
	w.T.Helper()
	require.NoError(w.T, w.Store.DB().QueryRowContext(w.Ctx, "SELECT COUNT(*) FROM "+from, args...).Scan(&n))
	return n
}

// Exec changes the database as an operator does.
func (w *World) Exec(text string, args ...any) {
	w.T.Helper()
	_, err := w.Store.DB().ExecContext(w.Ctx, text, args...)
	require.NoError(w.T, err)
}

// Write is a person's transaction.
func (w *World) Write(fn func(*store.Tx) error) {
	w.T.Helper()
	require.NoError(w.T, w.Store.Write(w.Ctx, "test", "alice", fn))
}
