package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		{"rerun", "day", "--from", "2026-11-20", "--to", "2026-11-20", "--cascade", "data"}, {"rerun", "day", "--from", "2026-11-20", "--to", "2026-11-20", "--cascade", "all"},
	} {
		r := c.capri(bad...)
		assert.Equal(t, exitUsage, r.code, "%v: %s", bad, r.err)
	}
	assert.Contains(t, c.capri("rerun", "day", "--from", "2026-11-20", "--to", "2026-11-20", "--cascade", "logic").err, "not there yet")
	assert.Equal(t, exitNotFound, c.capri("rerun", "nothing", "--from", "2026-11-20", "--to", "2026-11-20").code)

	day := func(more ...string) []string {
		return append([]string{"rerun", "day", "--from", "2026-11-20", "--to", "2026-11-20"}, more...)
	}
	var done wire.Reran
	c.json(&done, day("--preview")...)
	assert.Zero(t, done.Made)
	c.json(&done, day("--cascade", "none")...)
	assert.Equal(t, 1, done.Made)
	assert.Equal(t, exitRefused, c.capri(day()...).code, "it has not finished")
	c.json(&done, day("--on-running", "skip")...)
	assert.Equal(t, "left_alone", done.Items[0].Action)
	c.json(&done, day("--on-running", "kill")...)
	assert.Equal(t, "new_run", done.Items[0].Action, "it ran nowhere: nobody is asked")
	c.Finish(c.Latest("day", "20261119").ID, store.Failed)
	r := c.capri(day("--only", "failed")...)
	assert.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "1 new runs made")
	assert.Equal(t, 2, c.Latest("day", "20261119").RunNo)
}

func TestRerun_of_a_running_batch_waits_for_its_end(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply(`tasks: [{name: day, owner: alice, period: day, job: {command: x}}]`)
	args := []string{"rerun", "day", "--from", "2026-11-20", "--to", "2026-11-20", "--on-running", "kill"}
	require.Zero(t, c.capri(args...).code)
	running := c.Latest("day", "20261119")
	attempt := c.Start(running.ID)

	r := c.capri(args...)
	assert.Equal(t, exitUsage, r.code, "what cannot be taken back asks")
	assert.Contains(t, r.err, "kill 1 running batches")
	assert.False(t, c.Batch(running.ID).KillRequest)
	r = c.capri(append(args, "--yes", "--wait", "0s")...)
	assert.Equal(t, exitRefused, r.code)
	assert.Contains(t, r.err, "still being killed")
	assert.True(t, c.Batch(running.ID).KillRequest)

	ended := make(chan error, 1)
	go func() { // its worker
		time.Sleep(50 * time.Millisecond)
		_, err := c.Store.FinishAttempts(c.Ctx, "n1", []store.Result{{Attempt: attempt, Outcome: store.Killed, Message: "killed"}})
		ended <- err
	}()
	var done wire.Reran
	c.json(&done, append(args, "--yes")...)
	require.NoError(t, <-ended)
	assert.Equal(t, "new_run", done.Items[0].Action)
	assert.Equal(t, 1, done.Made)
	assert.Equal(t, 1, c.Latest("day", "20261119").RunNo)
}
