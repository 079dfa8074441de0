package why_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/internal/testenv"
	"capri/placement"
	"capri/placement/facts"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/why"
)

const mixed = `
tasks:
- {name: ods, owner: alice, period: hour, job: {command: x}, third_party: [{code: closed}], outputs: [{path: "/ods/${yyyyMMddHH}"}]}
- {name: dwd, owner: alice, period: hour, job: {command: x}, inputs: [{path: "/ods/${yyyyMMddHH}"}]}
- {name: raw, owner: alice, period: hour, job: {command: x}, inputs: [{path: "/raw/${yyyyMMddHH}"}]}
- {name: sums, owner: alice, period: hour, job: {command: x}, parents: [{task: dwd}, {task: raw, policy: ANYONE, from: -1, to: 0}]}
- {name: gated, owner: alice, period: hour, quality_gate: true, job: {command: x}, parents: [{task: ods}]}
- {name: later, owner: alice, period: hour, job: {command: x}, limits: {begin_minutes: 90}}
- {name: plain, group: dw, owner: alice, period: hour, job: {command: x}, worker: {slots: 3}}
- {name: huge, owner: alice, period: hour, job: {command: x}, worker: {slots: 99}}
- {name: elsewhere, owner: alice, period: hour, job: {command: x}, worker: {pool: gpu}}
- {name: after, owner: alice, period: hour, job: {command: x}, parents: [{task: sums}, {task: gated}, {task: plain}, {task: huge}, {task: later}]}
`

var kinds = []string{why.Held, why.KillAsked, why.Disabled, why.NotBefore, why.LatestAllowed, why.Quality, why.Paused, why.NoLeader, why.NoNode, why.NoRight,
	why.Limit, why.Path, why.ThirdParty, why.ParentMissing, why.ParentFailed, why.ParentRunning, why.ParentWaiting, why.Counting, why.BreakerOpen, why.Campaign}

// Whatever people and services do, each batch that waits has an answer: either something is in its way, or dispatch would place it.
func TestEvery_batch_that_waits_has_an_answer_and_it_agrees_with_dispatch(t *testing.T) {
	seed := testenv.Seed(t)
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		stream := uint64(1)
		if w.Options.DSN != "" {
			stream = 2 // each database walks another way
		}
		rng := rand.New(rand.NewPCG(seed, stream))
		w.Apply(mixed)
		w.Register()
		w.Lease(t, "dispatch")
		tasks := []string{"ods", "dwd", "raw", "sums", "gated", "later", "plain", "huge", "elsewhere", "after"}
		var ids []capri.BatchID
		said := map[string]int{}
		any := func() capri.BatchID { return ids[rng.IntN(len(ids))] }
		task := func() string { return tasks[rng.IntN(len(tasks))] }
		acts := []func(){
			func() {
				if b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: task()}); err == nil {
					ids = append(ids, b.ID)
				}
			},
			func() { w.Clock.Advance(time.Duration(rng.IntN(50)) * time.Minute) },
			func() { _, _ = w.Actions.Hold(w.Ctx, actiontest.Who, []capri.BatchID{any()}, "a look") },
			func() { _, _ = w.Actions.Release(w.Ctx, actiontest.Who, []capri.BatchID{any()}, "") },
			func() { _, _ = w.Actions.Kill(w.Ctx, actiontest.Who, []capri.BatchID{any()}, "") },
			func() { _, _ = w.Actions.EnableTask(w.Ctx, actiontest.Who, task(), rng.IntN(4) > 0, "") },
			func() {
				_ = w.Actions.Stop(w.Ctx, actiontest.Who, store.Stop{Kind: store.Pause, Reason: "upgrade", Until: w.Clock.Now().Add(time.Duration(1+rng.IntN(20)) * time.Minute)})
			},
			func() { _, _ = w.Actions.RunNow(w.Ctx, actiontest.Who, []capri.BatchID{any()}, "urgent") },
			func() {
				_, _ = w.Actions.ForceSuccess(w.Ctx, actiontest.Who, []capri.BatchID{any()}, "known to be right")
			},
			func() {
				until := w.Clock.Now().Add(time.Duration(1+rng.IntN(20)) * time.Minute)
				_ = w.Actions.Stop(w.Ctx, actiontest.Who, []store.Stop{
					{Kind: store.Pause, Scope: store.OfNode, Name: "n1", Reason: "odd", Until: until},
					{Kind: store.Breaker, Scope: store.OfTask, Name: task(), Reason: "it fails"},
					{Kind: store.Breaker, Scope: store.OfTask, Name: task(), Reason: "it fails", Until: until},
					{Kind: store.Pause, Scope: store.OfGroup, Name: "dw", Reason: "bad data"},
				}[rng.IntN(4)])
			},
			func() {
				_ = w.Actions.EndStop(w.Ctx, actiontest.Who, []store.Stop{
					{Kind: store.Pause, Scope: store.OfNode, Name: "n1"},
					{Kind: store.Breaker, Scope: store.OfTask, Name: task()},
					{Kind: store.Pause, Scope: store.OfGroup, Name: "dw"},
				}[rng.IntN(3)])
			},
			func() { _ = w.Actions.LimitRunning(w.Ctx, actiontest.Who, rng.IntN(4)-1, "") },
			func() { _ = w.Actions.EndStop(w.Ctx, actiontest.Who, store.Stop{Kind: store.Pause}) },
			func() { _ = w.Actions.DrainNode(w.Ctx, actiontest.Who, "n1", "") },
			func() { _ = w.Actions.ResumeNode(w.Ctx, actiontest.Who, "n1", "") },
			func() {
				no := w.Batch(any()).BatchNo
				_ = w.Actions.ReportThirdParty(w.Ctx, actiontest.Who, "closed", capri.Hour, no, []string{"ready", "ready", "fail", "withdraw"}[rng.IntN(4)], "")
			},
			func() { w.Look() },
			func() { // a worker takes what is ready, and ends some of it
				for _, id := range ids {
					if b := w.Batch(id); b.State == capri.Waiting && placed(t, w, b) {
						w.Start(id)
						return
					}
				}
			},
			func() {
				for _, id := range ids {
					if b := w.Batch(id); b.State == capri.Running {
						outcome := []store.Outcome{store.Succeeded, store.Failed}[rng.IntN(2)]
						_, err := w.Store.FinishAttempts(w.Ctx, "n1", []store.Result{{Attempt: capri.Attempt{Batch: id, Number: b.Attempt}, Outcome: outcome, Message: "it ended"}})
						require.NoError(t, err)
						return
					}
				}
			},
		}
		acts = append(acts,
			func() {
				r := action.RerunRequest{Task: task(), From: "2026-11-20 08:00", To: w.Clock.Now().In(time.UTC).Format("2006-01-02 15:04"), Cascade: []string{"none", "both"}[rng.IntN(2)], OnRunning: "skip", Pace: action.Pace{Limit: rng.IntN(3)}}
				_, _ = w.Actions.Rerun(w.Ctx, actiontest.Who, r)
			},
			func() { w.Campaigns() },
			func() { _, _ = w.Actions.PauseCampaign(w.Ctx, actiontest.Who, newest(t, w), "") },
			func() { _, _ = w.Actions.ResumeCampaign(w.Ctx, actiontest.Who, newest(t, w), "") },
			func() { _, _ = w.Actions.CancelCampaign(w.Ctx, actiontest.Who, newest(t, w), false, "") },
		)
		ids = append(ids, execute(t, w, "ods"))
		for range 125 {
			acts[rng.IntN(len(acts))]()
			ids = waiting(t, w, ids)
			for _, id := range ids {
				b := w.Batch(id)
				if b.State != capri.Waiting {
					continue
				}
				a := explain(t, w, id)
				require.Equal(t, len(a.Causes) == 0, a.Ready, "batch %d: %s", id, a.Summary)
				require.Equal(t, placed(t, w, b), a.Ready, "batch %d of %s: %s", id, b.Task, a.Summary)
				require.NotEmpty(t, a.Summary)
				for _, c := range a.Causes {
					said[c.Kind]++
					require.Contains(t, kinds, c.Kind)
					require.NotEmpty(t, c.Detail)
					require.NotEmpty(t, c.Root.Name, c.Detail)
					require.NotEmpty(t, c.Root.Kind, c.Detail)
					if c.Since != 0 {
						require.LessOrEqual(t, c.Since, w.Clock.Now())
					}
					if c.Until != 0 {
						require.GreaterOrEqual(t, c.Until, w.Clock.Now())
					}
				}
			}
		}
		t.Logf("%v", said)
		w.Campaigns()
		w.Look()
		for _, id := range waiting(t, w, ids) {
			for _, c := range explain(t, w, id).Causes {
				require.NotEqual(t, why.Counting, c.Kind, "batch %d of %s waits for nothing, and has %d unmet", id, w.Batch(id).Task, w.Batch(id).Unmet)
			}
		}
	})
}

// waiting adds the batches that campaigns have made.
func waiting(t *testing.T, w *actiontest.World, ids []capri.BatchID) []capri.BatchID {
	t.Helper()
	page, err := w.Store.Batches(w.Ctx, store.BatchFilter{States: []capri.State{capri.Waiting}})
	require.NoError(t, err)
	for _, b := range page {
		if !slices.Contains(ids, b.ID) {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

// newest is the campaign that was made last, 0 where there is none.
func newest(t *testing.T, w *actiontest.World) capri.CampaignID {
	t.Helper()
	all, err := w.Store.Campaigns(w.Ctx, store.CampaignFilter{Limit: 1})
	require.NoError(t, err)
	if len(all) == 0 {
		return 0
	}
	return all[0].ID
}

// placed tells whether dispatch would place a batch now, if it came first.
func placed(t *testing.T, w *actiontest.World, b store.BatchRow) bool {
	t.Helper()
	ready, err := w.Store.Ready(w.Ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 10_000)
	require.NoError(t, err)
	i := slices.IndexFunc(ready, func(r store.Ready) bool { return r.ID == b.ID })
	if i < 0 {
		return false
	}
	world, grants, err := facts.Read(w.Ctx, w.Store, w.Clock.Now())
	require.NoError(t, err)
	running, err := w.Store.Running(w.Ctx)
	require.NoError(t, err)
	facts.Running(world, running)
	candidate := grants.Batch(&ready[i])
	return placement.NewPlanner(world, nil).Place(&candidate).Node != ""
}

func TestExplain_follows_a_path_to_the_batch_that_makes_it(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(mixed)
		ods := execute(t, w, "ods")
		dwd := execute(t, w, "dwd")
		c := explain(t, w, dwd).Causes[0]
		assert.Equal(t, why.ThirdParty, c.Kind, "what makes the path waits for it")
		assert.Equal(t, []why.Link{{Batch: ods, Name: "ods 2026112008"}}, c.Chain)

		require.NoError(t, w.Actions.ReportThirdParty(w.Ctx, actiontest.Who, "closed", capri.Hour, "2026112008", "ready", ""))
		w.Look()
		w.Finish(ods, store.Failed)
		c = explain(t, w, dwd).Causes[0]
		assert.Equal(t, why.ParentFailed, c.Kind)
		assert.Equal(t, why.Root{Kind: "batch", Name: "ods 2026112008", Batch: ods}, c.Root)
		assert.Contains(t, c.Detail, "which makes /ods/2026112008, ended as failed")
		assert.Equal(t, w.Clock.Now(), c.Since)

		again := execute(t, w, "ods")
		w.Finish(again, store.Succeeded)
		c = explain(t, w, dwd).Causes[0]
		assert.Equal(t, why.Path, c.Kind)
		assert.Contains(t, c.Detail, fmt.Sprintf("though batch %d (ods 2026112008), which makes it, has succeeded", again))
	})
}

func TestExplain_says_since_when_who_is_on_duty_and_when_it_should_be_gone(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(`
tasks:
- {name: first, owner: alice, period: day, job: {command: x}}
- {name: second, owner: alice, period: day, job: {command: x}, parents: [{task: first}]}
- {name: third, owner: alice, period: day, job: {command: x}, parents: [{task: second}]}
`)
		expect(t, w, "first", 30)
		expect(t, w, "second", 10)
		begin := w.Clock.Now()
		first := execute(t, w, "first")
		w.Start(first)
		execute(t, w, "second")
		third := execute(t, w, "third")
		w.Clock.Advance(12 * time.Minute)
		a := explain(t, w, third)
		require.Len(t, a.Causes, 1)
		assert.Equal(t, why.ParentRunning, a.Causes[0].Kind)
		assert.Equal(t, begin, a.Causes[0].Since)
		assert.Equal(t, begin.Add(40*time.Minute), a.MayStartAt, "what runs takes half an hour, and what comes after it ten minutes")
		assert.Contains(t, a.Summary, "in about 28m0s")

		w.Clock.Advance(time.Hour)
		assert.Equal(t, w.Clock.Now().Add(10*time.Minute), explain(t, w, third).MayStartAt, "what is overdue may end at any moment")

		_, err := w.Actions.Hold(w.Ctx, actiontest.Who, []capri.BatchID{third}, "")
		require.NoError(t, err)
		held := w.Clock.Now()
		w.Clock.Advance(time.Minute)
		a = explain(t, w, third)
		assert.Equal(t, why.Held, a.Causes[0].Kind)
		assert.Equal(t, held, a.Causes[0].Since)
		assert.Zero(t, a.MayStartAt)
	})
}

// expect writes how long a task takes, as the service bigtask does.
func expect(t *testing.T, w *actiontest.World, task string, minutes int) {
	t.Helper()
	found, err := w.Store.TaskByName(w.Ctx, task)
	require.NoError(t, err)
	require.NoError(t, w.Store.ExpectDurations(w.Ctx, w.Lease(t, "bigtask"), []store.ExpectedMinutes{{Task: found.ID, Minutes: minutes}}))
}

func BenchmarkExplain_a_chain_of_30(b *testing.B) {
	for name, fresh := range map[string]func(testing.TB) *sqltest.DB{"sqlite": sqltest.SQLite, "mysql": sqltest.MySQL} {
		b.Run(name, func(b *testing.B) {
			w := actiontest.New(b, fresh(b))
			yaml := "tasks:\n- {name: t0, owner: alice, period: day, job: {command: x}, third_party: [{code: closed}]}\n"
			for i := 1; i < 30; i++ {
				yaml += fmt.Sprintf("- {name: t%d, owner: alice, period: day, job: {command: x}, parents: [{task: t%d}]}\n", i, i-1)
			}
			w.Apply(yaml)
			var last capri.BatchID
			for i := range 30 {
				row, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: fmt.Sprintf("t%d", i)})
				require.NoError(b, err)
				last = row.ID
			}
			for b.Loop() {
				a, err := why.Explain(w.Ctx, w.Store, utc, last)
				require.NoError(b, err)
				require.Len(b, a.Causes[0].Chain, 29)
			}
		})
	}
}
