package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/definition"
)

func TestTheTasks_are_what_Capri_takes_and_the_same_for_the_same_seed(t *testing.T) {
	known := definition.Known{Calendar: calendar.New(time.UTC), Now: 1, Tasks: map[string]*capri.Task{}, Owners: map[string]string{"soak": ""}}
	for seed := range uint64(20) {
		all := tasks(seed, 120, "/run/bin/witness", "/run")
		require.Equal(t, all, tasks(seed, 120, "/run/bin/witness", "/run"))
		require.InDelta(t, 120, len(all), 20)
		items, _, err := definition.Check([]definition.Source{{Name: "tasks.yaml", Data: []byte(file(all...))}}, known)
		require.NoError(t, err, "seed %d", seed)
		require.Len(t, items, len(all))
		for _, one := range all {
			require.NotEmpty(t, one.period, one.name)
		}
	}
}

func TestTheShares_of_shapes_and_habits_make_a_hundred(t *testing.T) {
	sum := 0
	for _, s := range shapes {
		sum += s.share
	}
	require.InDelta(t, 100, sum, 8)
	sum = 0
	for _, h := range habits {
		sum += h.share
	}
	require.Equal(t, 100, sum)
}

// A worker that is hurt for long has, nearly always, a job that its successor would meet: one that began so lately that it
// outlives the node's loss and the start elsewhere, and that ends only when it is killed.
func TestTheLastingTasks_keep_a_young_job_that_outlives_a_nodes_loss(t *testing.T) {
	for seed := range uint64(20) {
		minutes := map[string]bool{}
		n := 0
		for _, one := range tasks(seed, 120, "/run/bin/witness", "/run") {
			if !one.isLasting() {
				continue
			}
			n++
			_, rest, ok := strings.Cut(one.yaml, "trap '' TERM; sleep ")
			require.True(t, ok, one.yaml)
			var length float64
			_, err := fmt.Sscanf(rest, "%f", &length)
			require.NoError(t, err)
			require.Greater(t, length, 40+7.5+3, "lost is seen up to 40 s after the last beat, and the youngest job is 7.5 s old")
			require.Less(t, length, 70.0)
			_, rest, _ = strings.Cut(one.yaml, "cron: ")
			minutes[strings.Fields(rest)[1]] = true
		}
		require.Equal(t, 8, n)
		require.Len(t, minutes, n, "their fires are spread")
	}
}
