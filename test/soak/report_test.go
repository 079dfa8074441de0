package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"capri/test/checker"
)

func TestFigures_name_the_middle_and_the_end(t *testing.T) {
	var all []int64
	for i := range int64(200) {
		all = append(all, 200-i)
	}
	require.Equal(t, figures{Times: 200, P50: 100, P99: 198, Max: 200}, figuresOf(all))
	require.Equal(t, "none", figuresOf(nil).String())
}

func TestTheLongestGap_counts_what_touches_the_time_in_question(t *testing.T) {
	turns := []int64{900, 2000, 2500, 9000}
	require.Equal(t, int64(1100), longest(turns, 1000, 3000), "the turn before it counts")
	require.Equal(t, int64(2500), longest(turns, 1000, 5000), "no turn came after it in time")
	require.Equal(t, int64(3000), longest(nil, 1000, 4000))
}

func TestATakeover_is_the_next_completed_turn_of_a_newer_epoch(t *testing.T) {
	w := newWatcher(&cluster{})
	w.grants = []grant{{100, "dispatch", "m1/a", 4}, {150, "dependency", "m2/b", 7}, {8000, "dispatch", "m2/b", 5}}
	w.turns = map[string][]turn{"dispatch": {{900, 4}, {1050, 4}, {8200, 5}, {9000, 5}}, "dependency/changes": {{950, 7}, {2000, 7}, {9500, 7}}}
	w.nodes = map[string][]sighted{"w1": {{at: 500, beat: 1}, {at: 4100, beat: 2}, {at: 5200, beat: 3}}}
	r := &report{}
	r.leadership(w, []checker.Fault{{At: 1000, Healed: 4000, Kind: "master_kill", Target: "m1"}, {At: 1000, Healed: 1500, Kind: "master_freeze", Target: "m2"}})
	require.Equal(t, map[string]figures{"dispatch": {1, 7200, 7200, 7200}}, r.Takeover, "m2 kept its lease; the turn that m1's death outlived is not the successor's")
	require.Equal(t, figures{1, 5500, 5500, 5500}, r.Recovery["master_kill"], "until the last of dispatch, dependency and the nodes")
}

func TestASuccessor_is_measured_from_the_end_of_the_job_before(t *testing.T) {
	line := func(at int64, what, node string, attempt int) checker.Witness {
		return checker.Witness{Real: at, What: what, Task: "t", BatchNo: "1", Batch: 9, Attempt: attempt, Node: node}
	}
	r := &report{}
	r.jobs([]checker.Witness{line(1000, checker.Start, "w1", 1), line(12_000, checker.End, "w1", 1), line(33_000, checker.Start, "w2", 2), line(34_000, checker.End, "w2", 2)},
		[]checker.Fault{{At: 2000, Healed: 40_000, Kind: "worker_cut", Target: "w1"}, {At: 2000, Healed: 40_000, Kind: "worker_cut", Target: "w3"}})
	require.Equal(t, int64(21_000), *r.Closest)
	require.Equal(t, figures{1, 31_000, 31_000, 31_000}, r.Elsewhere)
	require.Equal(t, 2, r.Jobs)
}

func TestAViolation_makes_the_report_fail_and_names_the_seed(t *testing.T) {
	r := &report{Seed: 42}
	r.verdict(checker.Report{Invariants: []checker.Result{{Name: "one-at-a-time", Violations: 2, Evidence: []string{"both ran"}}}})
	require.Equal(t, 2, r.Overlaps)
	require.Len(t, r.Wrong, 1)
	var out bytes.Buffer
	r.print(&out)
	require.Contains(t, out.String(), "SEED=42")
	require.Contains(t, out.String(), "both ran")
}

func TestALongFault_counts_as_decided_where_the_leader_of_attempts_stayed_until_the_loss(t *testing.T) {
	w := newWatcher(&cluster{})
	w.grants = []grant{{500, "attempts", "m1/a", 1}, {60_000, "attempts", "m2/b", 2}, {61_000, "dispatch", "m3/c", 5}}
	w.nodes = map[string][]sighted{"w1": {{at: 900, beat: 1}, {at: 38_000, beat: 1, lost: true}}, "w2": {{at: 900, beat: 1}}, "w3": {{at: 900, beat: 1}}}
	r := &report{}
	r.beyondLost(w, []checker.Fault{
		{At: 1000, Healed: 65_000, Kind: "worker_cut", Target: "w1"},          // the change came after the loss
		{At: 30_000, Healed: 75_000, Kind: "worker_silent", Target: "w2"},     // a change in the middle of it
		{At: 62_000, Healed: 100_000, Kind: "worker_kill_long", Target: "w3"}, // not lost in time
		{At: 1000, Healed: 5000, Kind: "worker_kill", Target: "w3"},           // not a long one
	})
	require.Equal(t, longFaults{Times: 3, Steady: 2, Decided: 1}, r.Long)
}

func TestATimeoutsAlert_leaves_after_the_look_at_the_wall_clock_and_what_follows_in_real_time(t *testing.T) {
	c := &cluster{}
	c.base.Speed, c.base.BaseReal, c.base.BaseBusiness = 60, 1_000_000, 600_000
	c.Speed = 60
	// Due at the full minute, looked for ten seconds later, which is a sixth of a real second; a real second until it is there.
	require.Equal(t, int64(11_000), c.leaves(660_000, c.real(670_000)+1000))
	require.Equal(t, int64(1000), c.leaves(670_000, c.real(670_000)+1000), "due when it looks")
	require.Equal(t, int64(60_000), c.leaves(671_000, c.real(730_000)+1000))
	require.Equal(t, map[string]map[string]int64{"a": {"dependency_timeout": 20, "output_timeout": 40}, "b": {}},
		limitsOf([]task{{name: "a", yaml: "limits: {dependency_timeout_minutes: 20, output_timeout_minutes: 40}"}, {name: "b"}}))
}
