package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/api/wire"
	"capri/sql/store"
)

func TestRerun_on_the_command_line(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply(`tasks: [{name: day, owner: alice, period: day, job: {command: x}}]`)
	for _, bad := range [][]string{
		{"rerun"}, {"rerun", "day"}, {"rerun", "day", "--from", "2026-11-20"}, {"rerun", "day", "--from", "2026-11-20", "--to", "2026-11-20", "--only", "some"},
		{"rerun", "day", "--from", "2026-11-20", "--to", "2026-11-20", "--on-running", "wait"}, {"rerun", "day", "--from", "2026-11-20", "--to", "2026-12-20"},
		{"rerun", "day", "--from", "2026-11-20", "--to", "2026-11-20", "--cascade", "all"},
	} {
		r := c.capri(bad...)
		assert.Equal(t, exitUsage, r.code, "%v: %s", bad, r.err)
	}
	assert.Equal(t, exitNotFound, c.capri("rerun", "nothing", "--from", "2026-11-20", "--to", "2026-11-20").code)

	day := func(more ...string) []string {
		return append([]string{"rerun", "day", "--from", "2026-11-20", "--to", "2026-11-20"}, more...)
	}
	var done wire.CampaignPlan
	c.json(&done, day("--preview")...)
	assert.Zero(t, done.Made)
	c.json(&done, day("--cascade", "none")...)
	assert.Equal(t, 1, done.Made)
	made := c.Latest("day", "20261119")
	for _, on := range []string{"fail", "skip", "kill"} { // it runs nowhere, so it is in nobody's way
		c.json(&done, day("--on-running", on)...)
		assert.Equal(t, "left_waiting", done.Items[0].Action)
		assert.Equal(t, made.ID, c.Latest("day", "20261119").ID)
	}
	c.Finish(made.ID, store.Failed)
	r := c.capri(day("--only", "failed")...)
	assert.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "1 new runs made")
	assert.Equal(t, 1, c.Latest("day", "20261119").RunNo)
}

func TestRerun_of_a_running_batch_runs_again_when_it_has_ended(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply(`tasks: [{name: day, owner: alice, period: day, job: {command: x}}]`)
	args := []string{"rerun", "day", "--from", "2026-11-20", "--to", "2026-11-20"}
	require.Zero(t, c.capri(args...).code)
	running := c.Latest("day", "20261119")
	attempt := c.Start(running.ID)

	r := c.capri(args...)
	assert.Equal(t, exitRefused, r.code)
	assert.Contains(t, r.err, "1 batches are in the way")
	args = append(args, "--on-running", "kill")
	r = c.capri(args...)
	assert.Equal(t, exitUsage, r.code, "what cannot be taken back asks")
	assert.Contains(t, r.err, "kill 1 running batches")
	assert.False(t, c.Batch(running.ID).KillRequest)
	var list []wire.Campaign
	c.json(&list, "campaign", "list")
	assert.Equal(t, "cancelled", list[0].State, "a preview that nobody wants is not left behind")
	require.Zero(t, c.capri(append(args, "--yes", "--no-wait")...).code)

	ended := make(chan error, 1)
	go func() { // its worker
		time.Sleep(50 * time.Millisecond)
		_, err := c.Store.FinishAttempts(c.Ctx, "n1", []store.Result{{Attempt: attempt, Outcome: store.Killed, Message: "killed"}})
		ended <- err
	}()
	c.json(&list, "campaign", "list", "--limit", "1")
	d, err := lookAtCampaign(c.Ctx, c.client(), list[0].ID, false, func(int, int) {})
	require.NoError(t, err)
	require.NoError(t, <-ended)
	assert.Equal(t, 1, d.Actions["kill_first"])
	assert.Equal(t, 1, c.Latest("day", "20261119").RunNo)
}

func TestCampaign_on_the_command_line(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply(`
tasks:
- {name: day, owner: alice, period: day, job: {command: x}}
- {name: child, owner: alice, period: day, job: {command: x}, parents: [{task: day}]}
- {name: grandchild, owner: alice, period: day, job: {command: x}, parents: [{task: child}]}
`)
	require.Zero(t, c.capri("cold-start", "--period", "day", "--from", "2026-11-19", "--to", "2026-11-20").code)
	for _, task := range []string{"day", "child", "grandchild"} {
		for _, no := range []string{"20261118", "20261119"} {
			c.Look()
			c.Finish(c.Latest(task, capri.BatchNo(no)).ID, store.Succeeded)
		}
	}
	var p wire.CampaignPlan
	c.json(&p, "rerun", "day", "--from", "2026-11-19", "--to", "2026-11-20", "--cascade", "logic", "--preview", "--limit", "2", "--reason", "late data")
	assert.Equal(t, 6, p.Actions["new_run"])
	assert.Equal(t, "by logic of day 20261118", p.Items[1].Why)
	id := fmt.Sprint(p.ID)
	for _, x := range []struct {
		flags []string
		n     int
	}{{nil, 2}, {[]string{"--limit", "0"}, 2}, {[]string{"--limit", "1"}, 1}, {[]string{"--from", "2026-11-20", "--to", "2026-11-20"}, 2}, {[]string{"--to", "2026-11-19"}, 0}, {[]string{"--from", "2026-11-21"}, 0}} {
		var list []wire.Campaign
		c.json(&list, append([]string{"campaign", "list"}, x.flags...)...)
		assert.Len(t, list, x.n, x.flags)
	}
	for _, bad := range [][]string{{"campaign", "list", "--from", "2026-11-21", "--to", "2026-11-20"}, {"campaign", "list", "--to", "soon"}, {"campaign", "show", "x"}, {"campaign", "drop", id}, {"campaign", "limit", id, "-1"}, {"campaign", "limit", id, "x"}, {"campaign", "limit", id}, {"campaign", "run"}, {"campaign", "list", "--limit", "-1"}, {"campaign", "show", id, "--limit", "-1"}, {"dispatch", "limit", "1", "2"}} {
		assert.Equal(t, exitUsage, c.capri(bad...).code, bad)
	}
	assert.Equal(t, exitNotFound, c.capri("campaign", "show", "999").code)
	assert.Equal(t, exitNotFound, c.capri("campaign", "drop", id, "nothing").code)
	assert.Equal(t, exitRefused, c.capri("campaign", "pause", id).code, "it does not run yet")
	r := c.capri("campaign", "drop", id, "child:20261119", "grandchild:20261119")
	assert.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "2 items taken out")
	r = c.capri("campaign", "show", id)
	assert.Contains(t, r.out, "late data")
	assert.Contains(t, r.out, "dropped")
	r = c.capri("campaign", "run", id)
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "at most 2 at once")
	assert.Equal(t, 1, c.Latest("child", "20261118").RunNo)
	assert.Equal(t, 0, c.Latest("child", "20261119").RunNo, "it was taken out")
	assert.Equal(t, exitRefused, c.capri("campaign", "run", id).code)
	require.Zero(t, c.capri("campaign", "limit", id, "1").code)
	require.Zero(t, c.capri("campaign", "pause", id, "--reason", "lunch").code)
	require.Zero(t, c.capri("campaign", "resume", id).code)
	assert.Equal(t, exitUsage, c.capri("campaign", "cancel", id, "--kill").code, "it asks")
	require.Zero(t, c.capri("campaign", "cancel", id).code)
	d, err := lookAtCampaign(c.Ctx, c.client(), p.ID, true, func(int, int) {})
	require.NoError(t, err)
	assert.Equal(t, "cancelled", d.State)
	assert.Equal(t, 4, d.Progress.Undone)
	assert.Equal(t, 0, c.Latest("child", "20261118").RunNo, "the earlier result counts again")
	assert.Equal(t, capri.Success, c.Latest("child", "20261118").FinishState)
	for _, format := range []string{"table", "json", "yaml"} {
		for _, args := range [][]string{{"campaign", "list"}, {"campaign", "show", id}} {
			assert.Zero(t, c.capri(append(args, "-o", format)...).code)
		}
	}
}

func TestItems_of_a_preview_have_no_batch_yet(t *testing.T) {
	var b strings.Builder
	writeItems(&b, []wire.CampaignItem{{Task: "a", BatchNo: "2026112000", State: "planned"}}, 1)
	assert.NotContains(t, b.String(), "BATCH\n")
	assert.NotContains(t, b.String(), " 0")
	b.Reset()
	writeItems(&b, []wire.CampaignItem{{Task: "a", BatchNo: "2026112000", State: "released", BatchID: 17}}, 1)
	assert.Contains(t, b.String(), "released  17")
}

func TestAnEstimate_is_drawn_as_wide_as_the_terminal(t *testing.T) {
	e := capri.CampaignEstimate{Batches: 40, ChainMinutes: 125, ChainBatches: 12, Chain: []string{"a 20261101", "b 20261101", "y 20261130", "z 20261130"}, EndsMinutes: 300, Limit: 3, Slots: 8, NoRoom: 2, Stuck: 5}
	for from := 0; from < 300; from += 5 {
		e.Load = append(e.Load, capri.CampaignLoad{From: from, Minutes: 5, Slots: float64(from/5%4) * 2})
	}
	var full strings.Builder
	writeEstimate(&full, &e)
	assert.Equal(t, `by itself, with 8 slots and at most 3 batches at once, it ends 5:00 after its start
longest chain: 2:05, 12 batches: a 20261101, b 20261101, … 8 more …, y 20261130, z 20261130
2 batches have no room: they need more slots than the live nodes of their pool have that take work; 5 wait for such
   0:00  3.0 of 8 slots  ###############.........................
`, strings.Join(strings.SplitAfter(full.String(), "\n")[:4], ""))
	assert.Equal(t, 3+15, strings.Count(full.String(), "\n"))
	for _, columns := range []int{24, 50, 80, 200} {
		p := &page{terminal: terminal{columns: columns}}
		writeEstimate(p, &e)
		for line := range strings.Lines(p.String()) {
			assert.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), max(columns, 26), line)
		}
	}
	var none strings.Builder
	writeEstimate(&none, nil)
	writeEstimate(&none, &capri.CampaignEstimate{})
	assert.Empty(t, none.String(), "nothing runs, or it is an old one")
}
