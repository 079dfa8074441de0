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

func TestThePlan_leaves_the_leader_of_attempts_alone_while_a_steady_fault_lasts(t *testing.T) {
	for seed := range uint64(50) {
		for length, least := range map[time.Duration]int{2 * time.Minute: 1, 4 * time.Minute: 2, 30 * time.Minute: 11} {
			faults := plan(seed, length)
			steady, shims := 0, 0
			for _, w := range faults {
				if !w.Steady {
					continue
				}
				steady++
				if w.deck == shimAlone {
					shims++
				}
				require.Equal(t, "worker", w.lane)
				require.Greater(t, w.For, 31*time.Second+10*time.Second, "seed %d: %s: it has to outlast lost_after and a start elsewhere", seed, w)
				for _, f := range faults {
					if f.lane == "worker" || f.At >= w.At+w.For || f.At+f.For+aftermath <= w.At {
						continue
					}
					require.True(t, f.Spare, "seed %d: %s during %s", seed, f, w)
					require.NotEqual(t, leaderOfAttempts, f.Role, "seed %d: %s during %s", seed, f, w)
					require.NotEqual(t, databaseKill, f.name, "seed %d: %s during %s", seed, f, w)
				}
			}
			require.GreaterOrEqual(t, steady, least, "seed %d, %s", seed, length)
			require.GreaterOrEqual(t, shims, 1, "seed %d, %s: the shim alone has to end jobs", seed, length)
		}
	}
}

func TestAFaultThatSpares_never_hits_the_leader_of_attempts(t *testing.T) {
	c := &cluster{masters: []*member{{name: "m1"}, {name: "m2"}, {name: "m3"}}}
	w := newWatcher(c)
	for _, service := range []string{"attempts", "dispatch"} {
		w.leases[service] = grant{service: service, holder: "m2/1"}
	}
	n := &nemesis{c: c, watch: w}
	for dice := range uint64(6) {
		for _, role := range []string{anyMaster, "leader of dispatch"} {
			require.NotEqual(t, "m2", n.target(fault{Role: role, Spare: true, Dice: dice}).name)
		}
	}
	require.Equal(t, "m2", n.target(fault{Role: "leader of dispatch"}).name)
}

func TestEachKind_has_its_act(t *testing.T) {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(acts)))
}
