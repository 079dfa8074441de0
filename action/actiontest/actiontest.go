// Package actiontest gives tests a database with actions on it, and the half of a cluster that moves batches on:
// what the dependency service and a worker would do, one step at a time.
package actiontest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/calendar"
	"capri/definition"
	"capri/services"
	"capri/services/campaign"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

// Who acts in tests.
const Who = "tester"

const node, boot = "n1", "boot-1"

// World is one test's database with actions on it.
type World struct {
	*sqltest.DB
	Actions *action.Actions
	Wakes   *Wakes
	Ctx     context.Context
	t       testing.TB

	registered bool
}

// Each runs fn as a subtest on every kind of database.
func Each(t *testing.T, fn func(t *testing.T, w *World)) {
	t.Helper()
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) { fn(t, New(t, db)) })
}

// SQLite gives a world of its own.
func SQLite(t testing.TB) *World { return New(t, sqltest.SQLite(t)) }

// New puts actions on a database. The user alice owns what Apply makes.
func New(t testing.TB, db *sqltest.DB) *World {
	t.Helper()
	w := &World{DB: db, Wakes: &Wakes{}, Ctx: context.Background(), t: t}
	w.Actions = action.New(db.Store, calendar.New(time.UTC), w.Wakes, nil)
	require.NoError(t, w.Actions.SaveUser(w.Ctx, Who, store.User{Name: "alice", Enabled: true}))
	return w
}

// Copies gives worlds as this one is now (see sqltest.DB.Copies).
func (w *World) Copies() func() *World {
	w.t.Helper()
	copies := w.DB.Copies(w.t)
	return func() *World {
		c := *w
		c.DB, c.Wakes = copies(), &Wakes{}
		c.Actions = action.New(c.Store, w.Actions.Calendar(), c.Wakes, nil)
		return &c
	}
}

// Wakes notes what was woken.
type Wakes struct {
	mu     sync.Mutex
	topics []string
}

func (w *Wakes) Wake(topics ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.topics = append(w.topics, topics...)
}

func (w *Wakes) Listen(...string) (<-chan struct{}, func()) { return make(chan struct{}), func() {} }

// Take gives what was woken since the last call.
func (w *Wakes) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	topics := w.topics
	w.topics = nil
	return topics
}

var _ wake.Waker = (*Wakes)(nil)

// Apply applies a task file and expects it to be right.
func (w *World) Apply(yaml string) action.Applied {
	w.t.Helper()
	out, err := w.TryApply(yaml)
	require.NoError(w.t, err)
	return out
}

// TryApply applies a task file. Tabs in it, which Go's indentation brings along, are taken away.
func (w *World) TryApply(yaml string) (action.Applied, error) {
	return w.Actions.Apply(w.Ctx, Who, action.ApplyRequest{Sources: []definition.Source{{Name: "test.yaml", Data: []byte(strings.ReplaceAll(yaml, "\t", ""))}}})
}

// Batch reads a batch.
func (w *World) Batch(id capri.BatchID) store.BatchRow {
	w.t.Helper()
	b, err := w.Store.Batch(w.Ctx, id)
	require.NoError(w.t, err)
	return b
}

// Latest is the run that counts of a task's batch_no.
func (w *World) Latest(task string, no capri.BatchNo) capri.Batch {
	w.t.Helper()
	t, err := w.Store.TaskByName(w.Ctx, task)
	require.NoError(w.t, err)
	runs, err := w.Store.LatestRuns(w.Ctx, t.ID, []capri.BatchNo{no})
	require.NoError(w.t, err)
	require.Contains(w.t, runs, no, "%s has no batch %s", task, no)
	return runs[no]
}

// Look does what the dependency service does with what changed.
func (w *World) Look() {
	w.t.Helper()
	lease := w.Lease(w.t, "dependency")
	for {
		changes, err := w.Store.DependencyChanges(w.Ctx, 1000)
		require.NoError(w.t, err)
		if len(changes) == 0 {
			return
		}
		_, err = w.Store.MeetChanged(w.Ctx, lease, changes)
		require.NoError(w.t, err)
	}
}

// Campaigns does what the campaign service does, until there is nothing to do.
func (w *World) Campaigns() {
	w.t.Helper()
	lease := w.Lease(w.t, "campaign")
	s := campaign.New(w.Store, w.Actions.Calendar(), slog.New(slog.DiscardHandler))
	for range 1000 {
		res, err := s.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: lease, Woken: true})
		require.NoError(w.t, err)
		if len(res.Counts) == 0 {
			return
		}
	}
	require.Fail(w.t, "the campaigns never come to rest")
}

// ColdStart runs a cold start, and its campaign as far as it comes.
func (w *World) ColdStart(r action.ColdStartRequest) *action.Planned {
	w.t.Helper()
	p, err := w.Actions.ColdStart(w.Ctx, Who, r)
	require.NoError(w.t, err)
	w.Campaigns()
	return p
}

// Rerun runs a rerun, and its campaign as far as it comes.
func (w *World) Rerun(r action.RerunRequest) *action.Planned {
	w.t.Helper()
	p, err := w.Actions.Rerun(w.Ctx, Who, r)
	require.NoError(w.t, err)
	w.Campaigns()
	return p
}

// Register makes a node that takes work.
func (w *World) Register() {
	w.t.Helper()
	if !w.registered {
		require.NoError(w.t, w.Store.RegisterNode(w.Ctx, capri.Node{Name: node, BootID: boot, Pool: "default", Slots: 8, CheckInterval: 5}, "dir-1"))
		w.registered = true
	}
}

// Start takes a ready batch to a node and starts its job.
func (w *World) Start(id capri.BatchID) capri.Attempt {
	w.t.Helper()
	w.Register()
	n, err := w.Store.Assign(w.Ctx, w.Lease(w.t, "dispatch"), []store.Assignment{{Batch: id, Node: node}})
	require.NoError(w.t, err)
	require.Equal(w.t, 1, n, "batch %d was not free to be assigned", id)
	claimed, err := w.Store.Claim(w.Ctx, node, boot, 100)
	require.NoError(w.t, err)
	require.Len(w.t, claimed, 1)
	a := capri.Attempt{Batch: id, Number: claimed[0].Attempt}
	started, err := w.Store.Start(w.Ctx, node, boot, []capri.Attempt{a})
	require.NoError(w.t, err)
	require.Equal(w.t, []capri.Attempt{a}, started)
	return a
}

// Finish takes a ready batch all the way to its end.
func (w *World) Finish(id capri.BatchID, outcome store.Outcome) {
	w.t.Helper()
	_, err := w.Store.FinishAttempts(w.Ctx, node, []store.Result{{Attempt: w.Start(id), Outcome: outcome, Message: "it ended"}})
	require.NoError(w.t, err)
}
