package campaign_test

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/services"
	"capri/services/campaign"
	"capri/sql/store"
	"capri/why"
)

// A pipeline of a day: raw makes a path, clean reads it, left and right are its children, end has both for parents.
const diamond = `
tasks:
- {name: raw, owner: alice, period: day, job: {command: x}, outputs: [{path: "/raw/${yyyyMMdd}"}]}
- {name: clean, owner: alice, period: day, job: {command: x}, inputs: [{path: "/raw/${yyyyMMdd}"}], outputs: [{path: "/clean/${yyyyMMdd}"}]}
- {name: left, owner: alice, period: day, job: {command: x}, parents: [{task: clean}]}
- {name: right, owner: alice, period: day, job: {command: x}, parents: [{task: clean}]}
- {name: end, owner: alice, period: day, job: {command: x}, parents: [{task: left}, {task: right}]}
- {name: never, owner: alice, period: day, cascade: false, job: {command: x}, parents: [{task: clean}]}
- {name: other, owner: alice, period: day, job: {command: x}}
`

// world is the pipeline with every path's flag there, as old outputs are.
type world struct {
	*actiontest.World
	t *testing.T
}

func each(t *testing.T, fn func(w *world)) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		w.Apply(diamond)
		fn(&world{w, t})
	})
}

func onSQLite(t *testing.T) *world {
	w := &world{actiontest.SQLite(t), t}
	w.Apply(diamond)
	return w
}

// look is what the dependency service does with what changed and with paths, whose flags are all there.
func (w *world) look() {
	w.t.Helper()
	w.Look()
	paths, err := w.Store.UnmetPaths(w.Ctx)
	require.NoError(w.t, err)
	_, err = w.Store.MeetPaths(w.Ctx, w.Lease(w.t, "dependency"), paths)
	require.NoError(w.t, err)
}

// ready lists what could be placed, as "task batch_no run".
func (w *world) ready() (out []string) {
	w.t.Helper()
	w.Campaigns()
	w.look()
	w.Campaigns()
	rows, err := w.Store.Ready(w.Ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 10_000)
	require.NoError(w.t, err)
	for _, r := range rows {
		b := w.Batch(r.ID)
		out = append(out, fmt.Sprintf("%s %s %d", b.Task, b.BatchNo, b.RunNo))
	}
	return out
}

// work runs everything that is ready until nothing is, and gives the order.
func (w *world) work() (order []string) {
	w.t.Helper()
	for range 1000 {
		w.Campaigns()
		w.look()
		w.Campaigns()
		rows, err := w.Store.Ready(w.Ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 1)
		require.NoError(w.t, err)
		if len(rows) == 0 {
			return order
		}
		b := w.Batch(rows[0].ID)
		order = append(order, fmt.Sprintf("%s %s %d", b.Task, b.BatchNo, b.RunNo))
		w.Finish(b.ID, store.Succeeded)
	}
	require.Fail(w.t, "it never ends")
	return nil
}

// life makes and runs the days' first runs.
func (w *world) life(from, to string) {
	w.t.Helper()
	w.ColdStart(action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: from, To: to})
	w.work()
}

func (w *world) campaign(id capri.CampaignID) capri.Campaign {
	w.t.Helper()
	c, err := w.Store.Campaign(w.Ctx, id)
	require.NoError(w.t, err)
	return c
}

func rerun(task, cascade string, change ...func(*action.RerunRequest)) action.RerunRequest {
	r := action.RerunRequest{Task: task, From: "2026-11-20", To: "2026-11-20", Cascade: cascade}
	for _, c := range change {
		c(&r)
	}
	return r
}

func preview(r *action.RerunRequest) { r.Preview = true }

func did(p *action.Planned) (out []string) {
	for _, it := range p.Items {
		out = append(out, fmt.Sprintf("%s %s %s", it.TaskName, it.BatchNo, it.Action))
	}
	return out
}

func TestACascade_runs_each_batch_once_in_order_and_never_on_old_output(t *testing.T) {
	each(t, func(w *world) {
		w.life("2026-11-19", "2026-11-20")
		p := w.Rerun(rerun("raw", "both"))
		require.Equal(t, []string{"raw 20261119 new_run", "clean 20261119 new_run", "left 20261119 new_run", "right 20261119 new_run", "end 20261119 new_run"}, did(p))
		require.Equal(t, "by data of raw 20261119 via /raw/20261119/_SUCCESS", p.Items[1].Why)
		require.Equal(t, capri.CampaignRunning, w.campaign(p.ID).State)
		require.Equal(t, []string{"raw 20261119 1"}, w.ready(), "the flags of all the old outputs are there")

		w.Finish(w.Latest("raw", "20261119").ID, store.Failed) // half-written
		require.Empty(t, w.ready())
		again := w.Rerun(rerun("raw", "none"))
		require.Equal(t, []string{"raw 20261119 2", "clean 20261119 1", "left 20261119 1", "right 20261119 1", "end 20261119 1"}, w.work())
		for _, id := range []capri.CampaignID{p.ID, again.ID} {
			require.Equal(t, capri.CampaignDone, w.campaign(id).State)
		}
		require.Contains(t, w.campaign(p.ID).Message, "4 succeeded, 1 failed\nraw 20261119: failed")
		require.Zero(t, w.Latest("never", "20261119").RunNo)
		require.Zero(t, w.Latest("raw", "20261118").RunNo)
	})
}

func TestACascade_of_what_waits_already_starts_nothing_early(t *testing.T) {
	each(t, func(w *world) {
		w.ColdStart(action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: "2026-11-20", To: "2026-11-20"})
		w.look()
		w.Finish(w.Latest("raw", "20261119").ID, store.Succeeded)
		w.look()
		clean := w.Latest("clean", "20261119")
		require.Zero(t, w.Batch(clean.ID).Unmet, "it is about to start")
		p := w.Rerun(rerun("raw", "both"))
		require.Equal(t, "new_run", p.Items[0].Action.String())
		require.Equal(t, "left_waiting", p.Items[1].Action.String())
		require.Equal(t, []string{"other 20261119 0", "raw 20261119 1"}, sorted(w.ready()))
		require.Equal(t, clean.ID, w.Latest("clean", "20261119").ID, "it runs once")
		w.work()
		require.Equal(t, capri.Success, w.Batch(clean.ID).FinishState)
	})
}

func sorted(in []string) []string {
	for i := range in {
		for j := i; j > 0 && in[j] < in[j-1]; j-- {
			in[j], in[j-1] = in[j-1], in[j]
		}
	}
	return in
}

func TestAPreview_runs_exactly_as_it_was_or_says_what_changed(t *testing.T) {
	each(t, func(w *world) {
		w.life("2026-11-20", "2026-11-20")
		run := func(p *action.Planned) error {
			_, err := w.Actions.RunCampaign(w.Ctx, actiontest.Who, p.ID, action.Pace{})
			return err
		}
		p := w.Rerun(rerun("raw", "both", preview))
		require.Zero(t, w.Latest("raw", "20261119").RunNo, "a preview does nothing")
		w.Apply(`tasks: [{name: right, owner: alice, period: day, job: {command: y}, parents: [{task: clean}]}]`)
		err := run(p)
		require.ErrorIs(t, err, capri.ErrConflict)
		require.ErrorContains(t, err, "right 20261119 (its task was edited: version 1 then, 2 now)")

		p = w.Rerun(rerun("raw", "both", preview))
		w.Rerun(rerun("left", "none"))
		require.ErrorContains(t, run(p), "left 20261119 (batch ")
		w.work()

		p = w.Rerun(rerun("raw", "both", preview))
		n, err := w.Actions.DropItems(w.Ctx, actiontest.Who, p.ID, []string{"right", "end:20261119"})
		require.NoError(t, err)
		require.Equal(t, 2, n)
		_, err = w.Actions.DropItems(w.Ctx, actiontest.Who, p.ID, []string{"right"})
		require.ErrorIs(t, err, capri.ErrNotFound)
		require.NoError(t, run(p))
		require.Equal(t, []string{"raw 20261119 1", "clean 20261119 1", "left 20261119 2"}, w.work())
		require.Equal(t, capri.CampaignDone, w.campaign(p.ID).State)
		require.ErrorIs(t, run(p), capri.ErrConflict, "once")

		old := w.Rerun(rerun("raw", "both", preview))
		w.Clock.Advance(25 * time.Hour)
		require.ErrorContains(t, run(old), "more than a day ago")
	})
}

func TestCancelling_undoes_what_has_not_started_and_earlier_results_stand_again(t *testing.T) {
	each(t, func(w *world) {
		w.life("2026-11-20", "2026-11-20")
		olds := map[string]capri.BatchID{}
		for _, task := range []string{"raw", "clean", "left", "right", "end"} {
			olds[task] = w.Latest(task, "20261119").ID
		}
		p := w.Rerun(rerun("raw", "both"))
		w.look()
		w.Finish(w.Latest("raw", "20261119").ID, store.Succeeded)
		w.look()
		attempt := w.Start(w.Latest("clean", "20261119").ID)
		undone := w.Latest("end", "20261119")
		_, err := w.Actions.CancelCampaign(w.Ctx, actiontest.Who, p.ID, false, "wrong day")
		require.NoError(t, err)
		w.Campaigns()
		require.Equal(t, capri.CampaignCancelling, w.campaign(p.ID).State, "what runs goes on")
		require.Equal(t, 1, w.Latest("clean", "20261119").RunNo)
		for _, task := range []string{"left", "right", "end"} {
			b := w.Latest(task, "20261119")
			require.Equal(t, olds[task], b.ID, "%s counts again", task)
			require.Equal(t, capri.Success, b.FinishState)
		}
		b := w.Batch(undone.ID)
		require.Equal(t, capri.Killed, b.FinishState)
		require.False(t, b.Latest)
		require.Contains(t, b.Message, "wrong day")
		_, err = w.Store.FinishAttempts(w.Ctx, "n1", []store.Result{{Attempt: attempt, Outcome: store.Succeeded}})
		require.NoError(t, err)
		require.Empty(t, w.work())
		c := w.campaign(p.ID)
		require.Equal(t, capri.CampaignCancelled, c.State)
		require.Contains(t, c.Message, "2 succeeded, 3 were undone")

		w.Rerun(rerun("end", "none"))
		require.Equal(t, 2, w.Latest("end", "20261119").RunNo, "a number is never used twice")
		w.work()
	})
}

func TestCancelling_gives_waiting_children_back_what_they_rested_on(t *testing.T) {
	each(t, func(w *world) {
		w.ColdStart(action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: "2026-11-20", To: "2026-11-20", Tasks: []string{"raw", "clean", "left"}})
		w.look()
		w.Finish(w.Latest("raw", "20261119").ID, store.Succeeded)
		w.look()
		w.Finish(w.Latest("clean", "20261119").ID, store.Succeeded)
		require.Equal(t, []string{"left 20261119 0"}, w.ready())
		p := w.Rerun(rerun("raw", "both"))
		require.Equal(t, []string{"raw 20261119 1"}, w.ready())
		_, err := w.Actions.CancelCampaign(w.Ctx, actiontest.Who, p.ID, false, "")
		require.NoError(t, err)
		require.Equal(t, []string{"left 20261119 0"}, w.ready())
		require.Equal(t, []string{"left 20261119 0"}, w.work())
	})
}

func TestCancelling_does_not_undo_what_has_started_once(t *testing.T) {
	w := onSQLite(t)
	w.life("2026-11-20", "2026-11-20")
	p := w.Rerun(rerun("raw", "none"))
	b := w.Latest("raw", "20261119")
	_, err := w.Store.FinishAttempts(w.Ctx, "n1", []store.Result{{Attempt: w.Start(b.ID), Outcome: store.Failed, Retries: 3}})
	require.NoError(t, err)
	require.Equal(t, capri.Waiting, w.Batch(b.ID).State)
	cancel := func(kill bool) {
		_, err := w.Actions.CancelCampaign(w.Ctx, actiontest.Who, p.ID, kill, "")
		require.NoError(t, err)
		w.Campaigns()
	}
	cancel(false)
	require.Equal(t, b.ID, w.Latest("raw", "20261119").ID, "it may have written half of its output")
	require.Equal(t, capri.CampaignCancelling, w.campaign(p.ID).State)
	cancel(true)
	require.Equal(t, capri.Killed, w.Latest("raw", "20261119").FinishState)
	require.Equal(t, b.ID, w.Latest("raw", "20261119").ID)
	require.Equal(t, capri.CampaignCancelled, w.campaign(p.ID).State)
}

// heldBack are those of some batches that campaigns hold back.
func heldBack(w *world, ids ...capri.BatchID) []capri.BatchID {
	w.t.Helper()
	holding, err := w.Store.HoldingCampaigns(w.Ctx, ids)
	require.NoError(w.t, err)
	return slices.Collect(maps.Keys(holding))
}

// What somebody does to one batch is more than what a campaign wants with it; the campaign goes on around it.
func TestAnAct_on_a_batch_of_a_campaign_stands_whatever_becomes_of_the_campaign(t *testing.T) {
	who := actiontest.Who
	acts := map[string]func(w *world, b capri.BatchID) error{
		"run now": func(w *world, b capri.BatchID) error {
			_, err := w.Actions.RunNow(w.Ctx, who, []capri.BatchID{b}, "urgent")
			return err
		},
		"force success": func(w *world, b capri.BatchID) error {
			_, err := w.Actions.ForceSuccess(w.Ctx, who, []capri.BatchID{b}, "known to be right")
			return err
		},
		"hold": func(w *world, b capri.BatchID) error {
			_, err := w.Actions.Hold(w.Ctx, who, []capri.BatchID{b}, "a look")
			return err
		},
		"kill": func(w *world, b capri.BatchID) error {
			_, err := w.Actions.Kill(w.Ctx, who, []capri.BatchID{b}, "")
			return err
		},
	}
	for _, released := range []bool{false, true} { // is it a batch that the campaign had released before
		for act, do := range acts {
			for _, then := range []string{"nothing", "pause", "cancel"} {
				t.Run(fmt.Sprintf("%s, released %t, %s", act, released, then), func(t *testing.T) {
					each(t, func(w *world) {
						t := w.t
						w.life("2026-11-20", "2026-11-20")
						old := w.Latest("left", "20261119").ID
						p := w.Rerun(rerun("raw", "both", func(r *action.RerunRequest) { r.Limit = map[bool]int{true: 0, false: 1}[released] }))
						b := w.Latest("left", "20261119")
						require.NotEqual(t, old, b.ID)
						require.Equal(t, !released, slices.Contains(heldBack(w, b.ID), b.ID))
						require.NoError(t, do(w, b.ID))
						switch then {
						case "pause":
							_, err := w.Actions.PauseCampaign(w.Ctx, who, p.ID, "")
							require.NoError(t, err)
						case "cancel":
							_, err := w.Actions.CancelCampaign(w.Ctx, who, p.ID, false, "")
							require.NoError(t, err)
						}
						w.Campaigns()
						w.look()
						now, order := w.Batch(b.ID), []string{}
						switch act {
						case "run now":
							require.Equal(t, capri.Waiting, now.State)
							require.Zero(t, now.Unmet, "it may start at once")
							require.Contains(t, w.ready(), "left 20261119 1")
						case "force success":
							require.Equal(t, capri.Success, now.FinishState)
							require.True(t, now.Latest)
						case "kill":
							require.Equal(t, capri.Killed, now.FinishState)
							require.True(t, now.Latest, "it was ended by a person, and nobody undid it")
						case "hold":
							require.NotContains(t, w.ready(), "left 20261119 1")
							require.Equal(t, then == "cancel", w.Latest("left", "20261119").ID == old, "what had not started is undone by a cancel")
						}
						order = append(order, w.work()...)
						if then == "pause" {
							_, err := w.Actions.ResumeCampaign(w.Ctx, who, p.ID, "")
							require.NoError(t, err)
							order = append(order, w.work()...)
						}
						if act == "hold" && then != "cancel" {
							_, err := w.Actions.Release(w.Ctx, who, []capri.BatchID{b.ID}, "")
							require.NoError(t, err)
							order = append(order, w.work()...)
						}
						twice := slices.Clone(order)
						slices.Sort(twice)
						require.Len(t, slices.Compact(twice), len(order), "each runs once: %v", order)
						require.Equal(t, act == "run now" || act == "hold" && then != "cancel", slices.Contains(order, "left 20261119 1"), "%v", order)
						if act == "kill" && then != "cancel" { // its child has a reason to wait, and the campaign with it
							require.Equal(t, capri.Waiting, w.Latest("end", "20261119").State)
							again, err := w.Actions.Execute(w.Ctx, who, action.ExecuteRequest{Task: "left", Interval: "20261119"})
							require.NoError(t, err)
							w.look()
							w.Finish(again.ID, store.Succeeded)
							w.work()
						}
						for _, task := range []string{"raw", "clean", "right", "end"} {
							require.Equal(t, capri.Success, w.Latest(task, "20261119").FinishState, task)
							require.Equal(t, map[bool]int{true: 0, false: 1}[then == "cancel"], w.Latest(task, "20261119").RunNo, task)
						}
						require.Equal(t, map[bool]capri.CampaignState{true: capri.CampaignCancelled, false: capri.CampaignDone}[then == "cancel"], w.campaign(p.ID).State)
						require.Empty(t, heldBack(w, b.ID))
					})
				})
			}
		}
	}
}

func TestALimit_is_never_exceeded_through_pauses_and_goes_in_the_order_that_was_asked_for(t *testing.T) {
	each(t, func(w *world) {
		w.life("2026-11-10", "2026-11-20")
		p := w.Rerun(action.RerunRequest{Task: "raw", From: "2026-11-10", To: "2026-11-20", Cascade: "both", Pace: action.Pace{Limit: 2, Order: "newest"}})
		require.Len(t, p.Items, 55)
		require.Equal(t, []string{"raw 20261118 1", "raw 20261119 1"}, sorted(w.ready()))
		for step := 0; w.campaign(p.ID).State != capri.CampaignDone; step++ {
			require.Less(t, step, 200)
			ready := w.ready()
			require.NotEmpty(t, ready, "limit and order never wait for each other")
			require.LessOrEqual(t, len(ready), 2)
			if step%7 == 3 {
				_, err := w.Actions.PauseCampaign(w.Ctx, actiontest.Who, p.ID, "lunch")
				require.NoError(t, err)
				require.Empty(t, w.ready(), "what has not started is held back again")
				_, err = w.Actions.ResumeCampaign(w.Ctx, actiontest.Who, p.ID, "")
				require.NoError(t, err)
				require.LessOrEqual(t, len(w.ready()), 2)
			}
			rows, err := w.Store.Ready(w.Ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 1)
			require.NoError(t, err)
			w.Finish(rows[0].ID, store.Succeeded)
			w.Campaigns()
		}
		for _, it := range p.Items {
			require.Equal(t, 1, w.Latest(it.TaskName, it.BatchNo).RunNo)
		}
	})
}

func TestTwoPeople_who_rerun_overlapping_sets_at_once_double_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.life("2026-11-20", "2026-11-20")
		one, two := w.Rerun(rerun("raw", "both", preview)), w.Rerun(rerun("clean", "both", preview))
		for _, p := range []*action.Planned{one, two} { // both before the service has a turn
			_, err := w.Actions.RunCampaign(w.Ctx, actiontest.Who, p.ID, action.Pace{})
			require.NoError(t, err)
		}
		w.Campaigns()
		require.Equal(t, capri.CampaignRunning, w.campaign(one.ID).State)
		c := w.campaign(two.ID)
		require.Equal(t, capri.CampaignRefused, c.State)
		require.Contains(t, c.Message, "clean 20261119: ")
		require.Equal(t, []string{"raw 20261119 1", "clean 20261119 1", "left 20261119 1", "right 20261119 1", "end 20261119 1"}, w.work())
		require.Equal(t, capri.CampaignDone, w.campaign(one.ID).State)
	})
}

// The same with people and the service at once, for real: whoever comes second is refused, or runs what the first has
// released once more; nothing is there twice, and all that counts in the end has run on what counts.
func TestTwoPeople_at_really_the_same_time_double_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.life("2026-11-20", "2026-11-20")
		service := campaign.New(w.Store, w.Actions.Calendar(), slog.New(slog.DiscardHandler))
		for round := range 2 {
			lease := w.Lease(t, "campaign")
			asked := []action.RerunRequest{rerun("raw", "both"), rerun("clean", "both", func(r *action.RerunRequest) { r.Limit = round % 2 })}
			errs, ids := make([]error, len(asked)), make([]capri.CampaignID, len(asked))
			var people, turns sync.WaitGroup
			for i, r := range asked {
				people.Go(func() {
					p, err := w.Actions.Rerun(w.Ctx, actiontest.Who, r)
					if errs[i] = err; err == nil {
						ids[i] = p.ID
					}
				})
			}
			done := make(chan struct{})
			turns.Go(func() {
				for over := false; !over; {
					select {
					case <-done:
						over = true // and once more
					default:
					}
					_, err := service.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: lease, Woken: true})
					assert.NoError(t, err)
				}
			})
			people.Wait()
			close(done)
			turns.Wait()
			w.Campaigns()
			for i, err := range errs {
				if err != nil {
					require.ErrorIs(t, err, capri.ErrConflict)
				} else {
					c := w.campaign(ids[i])
					require.Contains(t, []capri.CampaignState{capri.CampaignRunning, capri.CampaignRefused}, c.State, c.Message)
				}
			}
			order := w.work()
			require.Len(t, slices.Compact(sorted(slices.Clone(order))), len(order), "no run twice")
			place := map[string]int{}
			for n, run := range order {
				place[strings.Fields(run)[0]] = n
			}
			require.GreaterOrEqual(t, len(place), 4, "one of them at least has run: %s", order)
			for _, e := range [][2]string{{"raw", "clean"}, {"clean", "left"}, {"clean", "right"}, {"left", "end"}, {"right", "end"}} {
				if _, ran := place[e[0]]; !ran {
					continue // only raw, where who wanted it was refused
				}
				require.Less(t, place[e[0]], place[e[1]], "the last run of %s is on the last of %s: %s", e[1], e[0], order)
			}
			for _, bad := range []string{
				"SELECT COUNT(*) FROM (SELECT task_id, batch_no, run_no FROM task_work GROUP BY task_id, batch_no, run_no HAVING COUNT(*) > 1) x",
				"SELECT COUNT(*) FROM (SELECT task_id, batch_no FROM task_work GROUP BY task_id, batch_no HAVING COUNT(latest) <> 1 OR MAX(run_no) <> COUNT(*) - 1) x",
				"SELECT COUNT(*) FROM (SELECT batch_id FROM campaign_item WHERE batch_id > 0 AND action <= 3 GROUP BY batch_id HAVING COUNT(*) > 1) x",
				"SELECT COUNT(*) FROM task_work WHERE state <> 3 OR unmet > 0 AND finish_state = 1 OR latest = 1 AND finish_state <> 1",
				"SELECT COUNT(*) FROM campaign_item WHERE active = 1 OR state IN (1, 2, 3)",
				"SELECT COUNT(*) FROM campaign WHERE state NOT IN (6, 8) AND state > 1",
			} {
				n := -1
				require.NoError(t, w.Store.DB().QueryRowContext(w.Ctx, bad).Scan(&n))
				require.Zero(t, n, bad)
			}
		}
	})
}

func TestACampaign_that_holds_its_set_back_is_in_the_way_of_others(t *testing.T) {
	w := onSQLite(t)
	w.life("2026-11-19", "2026-11-20")
	p := w.Rerun(action.RerunRequest{Task: "raw", From: "2026-11-19", To: "2026-11-20", Pace: action.Pace{Limit: 1}})
	_, err := w.Actions.Rerun(w.Ctx, actiontest.Who, rerun("raw", "none"))
	require.ErrorIs(t, err, capri.ErrConflict)
	require.ErrorContains(t, err, fmt.Sprintf("raw 20261119 (campaign %d has it)", p.ID))
	answer, err := why.Explain(w.Ctx, w.Store, w.Actions.Calendar(), w.Latest("raw", "20261119").ID)
	require.NoError(t, err)
	require.Len(t, answer.Causes, 1)
	require.Equal(t, why.Campaign, answer.Causes[0].Kind)
	require.Contains(t, answer.Causes[0].Detail, fmt.Sprintf("campaign %d (rerun of raw by tester) runs at most 1 batches at once", p.ID))
	_, err = w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "raw"})
	require.ErrorIs(t, err, capri.ErrConflict)
	skipped := w.Rerun(rerun("raw", "none", func(r *action.RerunRequest) { r.OnRunning = "skip" }))
	require.Equal(t, []string{"raw 20261119 left_alone"}, did(skipped))
	require.Equal(t, capri.CampaignDone, w.campaign(skipped.ID).State)
	require.Equal(t, []string{"raw 20261118 1", "raw 20261119 1"}, w.work())
}

func TestABatch_that_is_held_back_by_two_campaigns_goes_when_the_last_lets_go(t *testing.T) {
	w := onSQLite(t)
	w.life("2026-11-20", "2026-11-20")
	first := w.Rerun(rerun("left", "both"))
	require.Len(t, first.Items, 2)
	second := w.Rerun(rerun("clean", "both", func(r *action.RerunRequest) { r.Limit = 1 }))
	require.Equal(t, []string{"clean 20261119 new_run", "left 20261119 left_waiting", "right 20261119 new_run", "end 20261119 left_waiting"}, did(second))
	_, err := w.Actions.PauseCampaign(w.Ctx, actiontest.Who, first.ID, "")
	require.NoError(t, err)
	require.Equal(t, []string{"clean 20261119 1"}, w.work()[:1])
	require.Equal(t, capri.Waiting, w.Latest("left", "20261119").State, "the first one is paused")
	_, err = w.Actions.ResumeCampaign(w.Ctx, actiontest.Who, first.ID, "")
	require.NoError(t, err)
	w.work()
	for _, id := range []capri.CampaignID{first.ID, second.ID} {
		require.Equal(t, capri.CampaignDone, w.campaign(id).State)
	}
	require.Equal(t, 1, w.Latest("end", "20261119").RunNo)
}

func TestAColdStart_is_reported_when_it_is_done(t *testing.T) {
	each(t, func(w *world) {
		p := w.ColdStart(action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: "2026-11-20", To: "2026-11-20", Tasks: []string{"other", "raw"}})
		w.Finish(w.Latest("raw", "20261119").ID, store.Failed)
		w.work()
		require.Equal(t, capri.CampaignDone, w.campaign(p.ID).State)
		alerts, err := w.Store.Alerts(w.Ctx, nil, 0, 10)
		require.NoError(t, err)
		told := 0
		for _, a := range alerts {
			if a.Kind == "cold_start_done" {
				told++
				assert.Equal(t, "1 succeeded, 1 failed\nraw 20261119: failed", a.Text)
			}
		}
		assert.Equal(t, 1, told)
	})
}

func TestRerun_lists_what_the_definition_has_no_more(t *testing.T) {
	w := onSQLite(t)
	w.Apply(`tasks: [{name: tick, owner: alice, cron: "0 0 0/6 * * ?", job: {command: x}}]`)
	w.ColdStart(action.ColdStartRequest{Periods: []capri.Period{capri.Cron}, From: "2026-11-19", To: "2026-11-19", Tasks: []string{"tick"}})
	w.work()
	w.Apply(`tasks: [{name: tick, owner: alice, cron: "0 0 0/12 * * ?", job: {command: x}}]`)
	p := w.Rerun(action.RerunRequest{Task: "tick", From: "2026-11-19", To: "2026-11-19"})
	require.Equal(t, []string{"tick 20261119000000 new_run", "tick 20261119060000 not_in_definition", "tick 20261119120000 new_run", "tick 20261119180000 not_in_definition"}, did(p))
	require.Equal(t, []string{"tick 20261119000000 1", "tick 20261119120000 1"}, w.work())
}

func TestOldCampaigns_are_forgotten(t *testing.T) {
	each(t, func(w *world) {
		w.life("2026-11-20", "2026-11-20")
		p, live := w.Rerun(rerun("raw", "both", preview)), w.Rerun(rerun("other", "none"))
		lease := w.Lease(t, "cleanup")
		w.Clock.Advance(48 * time.Hour)
		now := w.Clock.Now()
		n, err := w.Store.ForgetCampaigns(w.Ctx, lease, now.Add(-24*time.Hour), now.Add(-90*24*time.Hour), 100)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		_, err = w.Store.Campaign(w.Ctx, p.ID)
		require.ErrorIs(t, err, capri.ErrNotFound)
		items, err := w.Store.CampaignItems(w.Ctx, p.ID, nil, -1, 10)
		require.NoError(t, err)
		require.Empty(t, items)
		require.Equal(t, capri.CampaignRunning, w.campaign(live.ID).State)
	})
}
