package main

import (
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
