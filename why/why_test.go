package why_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/calendar"
	"capri/sql/store"
	"capri/why"
)

var utc = calendar.New(time.UTC)

func explain(t *testing.T, w *actiontest.World, id capri.BatchID) why.Answer {
	t.Helper()
	a, err := why.Explain(w.Ctx, w.Store, utc, id)
	require.NoError(t, err)
	return a
}

func execute(t *testing.T, w *actiontest.World, task string) capri.BatchID {
	t.Helper()
	b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: task})
	require.NoError(t, err)
	w.Look()
	return b.ID
}

const chain = `
tasks:
- {name: first, owner: alice, period: day, job: {command: x}, inputs: [{path: "/in/${yyyyMMdd}"}]}
- {name: second, owner: alice, period: day, job: {command: x}, parents: [{task: first}]}
- {name: third, owner: alice, period: day, job: {command: x}, parents: [{task: second}]}
- {name: plain, owner: alice, period: day, job: {command: x}}
- {name: outside, owner: alice, period: day, job: {command: x}, third_party: [{code: closed}]}
- {name: later, owner: alice, period: day, job: {command: x}, limits: {begin_minutes: 719}}
- {name: both, owner: alice, period: day, job: {command: x}, parents: [{task: second}, {task: outside}]}
`

func TestExplain(t *testing.T) { // the clock stands at 2026-11-20 09:30
	for _, tt := range []struct {
		sentence string
		ask      func(t *testing.T, w *actiontest.World) capri.BatchID
		kind     string
		root     why.Root
		says     string
	}{
		{"a path that is not there", func(t *testing.T, w *actiontest.World) capri.BatchID { return execute(t, w, "first") },
			why.Path, why.Root{Kind: "path", Name: "/in/20261119"}, "flag _SUCCESS is not in /in/20261119"},
		{"a third party that is silent", func(t *testing.T, w *actiontest.World) capri.BatchID { return execute(t, w, "outside") },
			why.ThirdParty, why.Root{Kind: "third_party", Name: "closed day 20261119"}, "has not reported"},
		{"a third party that said no", func(t *testing.T, w *actiontest.World) capri.BatchID {
			require.NoError(t, w.Actions.ReportThirdParty(w.Ctx, actiontest.Who, "closed", capri.Day, "20261119", "fail", ""))
			return execute(t, w, "outside")
		}, why.ThirdParty, why.Root{Kind: "third_party", Name: "closed day 20261119"}, "as failed"},
		{"a parent's batch that nobody made", func(t *testing.T, w *actiontest.World) capri.BatchID {
			lower(t, w, "first")
			return execute(t, w, "second")
		}, why.ParentMissing, why.Root{Kind: "task", Name: "first"}, "nobody has made it"},
		{"a parent whose task is disabled", func(t *testing.T, w *actiontest.World) capri.BatchID {
			lower(t, w, "first")
			_, err := w.Actions.EnableTask(w.Ctx, actiontest.Who, "first", false, "")
			require.NoError(t, err)
			return execute(t, w, "second")
		}, why.ParentMissing, why.Root{Kind: "task", Name: "first"}, "the task is disabled"},
		{"a grandparent's path", func(t *testing.T, w *actiontest.World) capri.BatchID {
			execute(t, w, "first")
			execute(t, w, "second")
			return execute(t, w, "third")
		}, why.Path, why.Root{Kind: "path", Name: "/in/20261119"}, "(second 20261119) waits: batch"},
		{"a grandparent that is held", func(t *testing.T, w *actiontest.World) capri.BatchID {
			id := execute(t, w, "first")
			_, err := w.Actions.Hold(w.Ctx, actiontest.Who, []capri.BatchID{id}, "broken data")
			require.NoError(t, err)
			execute(t, w, "second")
			return execute(t, w, "third")
		}, why.Held, why.Root{Kind: "batch", Name: "first 20261119"}, "broken data"},
		{"its earliest start", func(t *testing.T, w *actiontest.World) capri.BatchID { return execute(t, w, "later") },
			why.NotBefore, why.Root{Kind: "time", Name: "2026-11-20 12:00:00"}, "12:00:00"},
		{"no master", func(t *testing.T, w *actiontest.World) capri.BatchID {
			w.Register()
			return execute(t, w, "plain")
		}, why.NoLeader, why.Root{Kind: "service", Name: "dispatch"}, "no master"},
		{"no node", func(t *testing.T, w *actiontest.World) capri.BatchID {
			w.Lease(t, "dispatch")
			return execute(t, w, "plain")
		}, why.NoNode, why.Root{Kind: "pool", Name: "default"}, "there is no node of pool default"},
		{"all nodes draining", func(t *testing.T, w *actiontest.World) capri.BatchID {
			w.Lease(t, "dispatch")
			w.Register()
			require.NoError(t, w.Actions.DrainNode(w.Ctx, actiontest.Who, "n1", ""))
			return execute(t, w, "plain")
		}, why.NoNode, why.Root{Kind: "pool", Name: "default"}, "n1 is draining"},
		{"a pause", func(t *testing.T, w *actiontest.World) capri.BatchID {
			w.Lease(t, "dispatch")
			w.Register()
			require.NoError(t, w.Actions.Stop(w.Ctx, actiontest.Who, store.Stop{Kind: store.Pause, Reason: "upgrade", Until: w.Clock.Now().Add(time.Hour)}))
			return execute(t, w, "plain")
		}, why.Paused, why.Root{Kind: "service", Name: "dispatch"}, "upgrade"},
		{"a failed parent", func(t *testing.T, w *actiontest.World) capri.BatchID {
			w.Apply(strings.Replace(chain, `, inputs: [{path: "/in/${yyyyMMdd}"}]`, "", 1))
			w.Finish(execute(t, w, "first"), store.Failed)
			return execute(t, w, "second")
		}, why.ParentFailed, why.Root{Kind: "batch", Name: "first 20261119"}, "ended as failed: it ended"},
		{"a running parent", func(t *testing.T, w *actiontest.World) capri.BatchID {
			w.Apply(strings.Replace(chain, `, inputs: [{path: "/in/${yyyyMMdd}"}]`, "", 1))
			w.Start(execute(t, w, "first"))
			return execute(t, w, "second")
		}, why.ParentRunning, why.Root{Kind: "batch", Name: "first 20261119"}, "runs on node n1"},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
				w.Apply(chain)
				a := explain(t, w, tt.ask(t, w))
				require.NotEmpty(t, a.Causes, a.Summary)
				c := a.Causes[0]
				c.Root.Batch = 0
				assert.Equal(t, tt.kind, c.Kind)
				assert.Equal(t, tt.root, c.Root)
				assert.Contains(t, c.Detail, tt.says)
				assert.Contains(t, a.Summary, tt.says)
				assert.False(t, a.Ready)
				if tt.root.Kind == "batch" || tt.root.Kind == "task" {
					assert.Equal(t, "alice", c.Owner)
				}
			})
		})
	}
}

// lower makes children wait for yesterday's batch though the task was made today.
func lower(t *testing.T, w *actiontest.World, task string) {
	t.Helper()
	found, err := w.Store.TaskByName(w.Ctx, task)
	require.NoError(t, err)
	require.NoError(t, w.Store.Write(w.Ctx, "lower", "test", func(tx *store.Tx) error { return tx.LowerFirstMark(1, found.ID) }))
}

func TestExplain_names_every_cause_and_when_it_may_start(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(chain)
	execute(t, w, "first")
	execute(t, w, "second")
	execute(t, w, "outside")
	a := explain(t, w, execute(t, w, "both"))
	assert.Len(t, a.Causes, 2)
	assert.Zero(t, a.MayStartAt, "a path has no time")

	w.Lease(t, "dispatch")
	w.Register()
	a = explain(t, w, execute(t, w, "later"))
	assert.Equal(t, w.Clock.Now().Add(150*time.Minute), a.MayStartAt)
	a = explain(t, w, execute(t, w, "plain"))
	assert.True(t, a.Ready)
	assert.Contains(t, a.Summary, "ready")
}

func TestExplain_of_a_batch_that_does_not_wait_says_where_it_is(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(chain)
	id := execute(t, w, "plain")
	w.Start(id)
	assert.Contains(t, explain(t, w, id).Summary, "runs on node n1 since 2026-11-20 09:30:00")
	other := execute(t, w, "first")
	_, err := w.Actions.Kill(w.Ctx, actiontest.Who, []capri.BatchID{other}, "")
	require.NoError(t, err)
	assert.Contains(t, explain(t, w, other).Summary, "finished (killed)")
	_, err = why.Explain(w.Ctx, w.Store, utc, 999_999)
	assert.ErrorIs(t, err, capri.ErrNotFound)
}

func TestExplain_of_a_fan_in_of_a_thousand_is_one_line_and_quick(t *testing.T) {
	w := actiontest.SQLite(t)
	var b strings.Builder
	b.WriteString("tasks:\n- {name: source, owner: alice, period: day, job: {command: x}, third_party: [{code: closed}]}\n")
	var parents []string
	for i := range 1000 {
		fmt.Fprintf(&b, "- {name: m%d, owner: alice, period: day, job: {command: x}, parents: [{task: source}]}\n", i)
		parents = append(parents, fmt.Sprintf("{task: m%d}", i))
	}
	fmt.Fprintf(&b, "- {name: sink, owner: alice, period: day, job: {command: x}, parents: [%s]}\n", strings.Join(parents, ", "))
	w.Apply(b.String())
	items := w.ColdStart(action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: "2026-11-20", To: "2026-11-20"})
	require.Len(t, items.Items, 1002)
	begin := time.Now()
	a := explain(t, w, w.Latest("sink", "20261119").ID)
	took := time.Since(begin)
	require.Len(t, a.Causes, 1)
	assert.Equal(t, why.Root{Kind: "third_party", Name: "closed day 20261119"}, a.Causes[0].Root)
	assert.Contains(t, a.Causes[0].Detail, "999 more for the same reason")
	assert.Less(t, took, 20*time.Second)
}
