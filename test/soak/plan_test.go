package main

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThePlan_is_the_same_for_the_same_seed(t *testing.T) {
	require.Equal(t, plan(7, 10*time.Minute), plan(7, 10*time.Minute))
	require.NotEqual(t, plan(7, 10*time.Minute), plan(8, 10*time.Minute))
}

func TestThePlan_hurts_one_of_each_lane_at_a_time_and_ends_in_time(t *testing.T) {
	for seed := range uint64(50) {
		length := 5 * time.Minute
		end := map[string]time.Duration{}
		for _, f := range plan(seed, length) {
			require.GreaterOrEqual(t, f.At, end[f.lane], "seed %d: %s", seed, f)
			require.LessOrEqual(t, f.At+f.For, length, "seed %d: %s", seed, f)
			require.GreaterOrEqual(t, f.For, f.least, "seed %d: %s", seed, f)
			require.LessOrEqual(t, f.For, f.most, "seed %d: %s", seed, f)
			require.Contains(t, f.roles, f.Role)
			end[f.lane] = f.At + f.For
		}
	}
}

func TestALongPlan_has_every_kind(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range plan(1, 30*time.Minute) {
		seen[f.name] = true
	}
	for _, k := range kinds {
		require.True(t, seen[k.name], "%s never comes", k.name)
	}
}

func TestAShortPlan_hurts_masters_workers_and_servers(t *testing.T) {
	for seed := range uint64(20) {
		lanes := map[string]int{}
		for _, f := range plan(seed, 2*time.Minute) {
			lanes[f.lane]++
		}
		require.GreaterOrEqual(t, lanes["master"], 4, "seed %d", seed)
		require.GreaterOrEqual(t, lanes["worker"], 1, "seed %d", seed)
		require.GreaterOrEqual(t, lanes["server"], 2, "seed %d", seed)
	}
}

func TestEachKind_has_its_act(t *testing.T) {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(acts)))
}
