package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
)

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// world is Facts with what a test does not care about filled in.
func world(nodes ...capri.Node) *Facts {
	return &Facts{Nodes: nodes, MaxRunning: -1, Loads: map[string]capri.Load{}}
}

func TestWhyABatchIsNotPlaced(t *testing.T) {
	idle := capri.Node{Name: "n1", Pool: "default", Slots: 4, MemoryMB: 4096}
	big := capri.Node{Name: "n2", Pool: "default", Slots: 8, MemoryMB: 16384}
	lost := func(n capri.Node) capri.Node { n.Lost = true; return n }
	draining := func(n capri.Node) capri.Node { n.Draining = true; return n }
	short := func(n capri.Node) capri.Node { n.ShortOf = "its disk has 12 MB left"; return n }
	full := map[string]capri.Load{"n1": {Slots: 4, MemoryMB: 1000}}

	for _, c := range []struct {
		sentence string
		facts    Facts
		batch    Batch
		want     string
		fail     bool
	}{
		{sentence: "all dispatch is paused", facts: Facts{Nodes: []capri.Node{idle}, Paused: "upgrade of HDFS, until 14:00"},
			want: "dispatch is paused: upgrade of HDFS, until 14:00"},
		{sentence: "its group is paused", facts: Facts{Nodes: []capri.Node{idle}, StoppedGroups: map[string]Stop{"dw": {Says: "group dw is paused: bad source data"}}},
			batch: Batch{Group: "dw"}, want: "group dw is paused: bad source data"},
		{sentence: "the task is at its concurrency", facts: Facts{Nodes: []capri.Node{idle}, RunningByTask: map[capri.TaskID]int{7: 2}},
			batch: Batch{Task: 7, Concurrency: 2}, want: "this task already runs 2 at once, waiting"},
		{sentence: "the concurrency was lowered below what runs", facts: Facts{Nodes: []capri.Node{idle}, RunningByTask: map[capri.TaskID]int{7: 5}},
			batch: Batch{Task: 7, Concurrency: 1}, want: "this task already runs 1 at once, waiting"},
		{sentence: "the account is not granted", facts: Facts{Nodes: []capri.Node{idle}}, batch: Batch{Account: "etl", Denied: true},
			want: "dispatch failed: this task's owner has no right to run it as account etl", fail: true},
		{sentence: "an account that is not granted does not fail during a pause", facts: Facts{Nodes: []capri.Node{idle}, Paused: "x"},
			batch: Batch{Account: "etl", Denied: true}, want: "dispatch is paused: x"},
		{sentence: "max_running is zero", facts: Facts{Nodes: []capri.Node{idle}, MaxRunning: 0}, want: "max_running is 0: nothing is started"},
		{sentence: "max_running is reached", facts: Facts{Nodes: []capri.Node{idle}, MaxRunning: 3, Running: 3},
			want: "max_running is reached: 3 batches run at once"},
		{sentence: "no node has registered in the pool", facts: Facts{Nodes: []capri.Node{idle}}, batch: Batch{Pool: "gpu"},
			want: "no such pool: gpu has no node"},
		{sentence: "all nodes are lost", facts: Facts{Nodes: []capri.Node{lost(idle), lost(big)}}, want: "all nodes of pool default are lost"},
		{sentence: "all nodes are draining", facts: Facts{Nodes: []capri.Node{draining(idle), draining(big)}}, want: "all nodes of pool default are draining"},
		{sentence: "the only one is short of disk", facts: Facts{Nodes: []capri.Node{short(idle)}}, want: "all nodes of pool default are draining or short of disk or CPU"},
		{sentence: "one is short and another draining", facts: Facts{Nodes: []capri.Node{short(idle), draining(big)}}, want: "all nodes of pool default are draining or short of disk or CPU"},
		{sentence: "some are lost and the others draining", facts: Facts{Nodes: []capri.Node{lost(idle), draining(big)}},
			want: "all nodes of pool default are lost or draining"},
		{sentence: "every slot is taken", facts: Facts{Nodes: []capri.Node{idle}, Loads: full}, want: "no free slot in pool default"},
		{sentence: "a node holds more than it has since its slots were lowered", facts: Facts{Nodes: []capri.Node{idle},
			Loads: map[string]capri.Load{"n1": {Slots: 9}}}, want: "no free slot in pool default"},
		{sentence: "not enough slots side by side", facts: Facts{Nodes: []capri.Node{idle}, Loads: map[string]capri.Load{"n1": {Slots: 2}}},
			batch: Batch{Slots: 3}, want: "no node of pool default has 3 free slots"},
		{sentence: "more slots than any node has", facts: Facts{Nodes: []capri.Node{idle, big}}, batch: Batch{Slots: 9},
			want: "asks 9 slots, but no node of pool default has that much at all"},
		{sentence: "nodes without any slot", facts: Facts{Nodes: []capri.Node{{Name: "n1", Pool: "default"}}},
			want: "asks 1 slot, but no node of pool default has that much at all"},
		{sentence: "more memory than any node has", facts: Facts{Nodes: []capri.Node{idle}}, batch: Batch{MemoryMB: 9000},
			want: "asks 9000 MB, but no node of pool default has that much at all"},
		{sentence: "slots and memory only on different nodes", facts: Facts{Nodes: []capri.Node{
			{Name: "n1", Pool: "default", Slots: 1, MemoryMB: 9000}, {Name: "n2", Pool: "default", Slots: 4, MemoryMB: 100}}},
			batch: Batch{Slots: 2, MemoryMB: 900}, want: "asks 2 slots and 900 MB, but no node of pool default has that much at all"},
		{sentence: "the big node is lost", facts: Facts{Nodes: []capri.Node{idle, lost(big)}}, batch: Batch{MemoryMB: 9000},
			want: "asks 9000 MB, and the nodes of pool default that have so much are lost or draining"},
		{sentence: "the memory is reserved", facts: Facts{Nodes: []capri.Node{idle}, Loads: map[string]capri.Load{"n1": {Slots: 1, MemoryMB: 4000}}},
			batch: Batch{MemoryMB: 512}, want: "no node of pool default with a free slot has 512 MB of memory left"},
		{sentence: "the list names nobody who exists", facts: Facts{Nodes: []capri.Node{idle}}, batch: Batch{Nodes: []string{"a", "b"}},
			want: "node list names unknown nodes: a, b"},
		{sentence: "the list names one who is lost and one who does not exist", facts: Facts{Nodes: []capri.Node{lost(idle)}},
			batch: Batch{Nodes: []string{"n1", "n9"}}, want: "all nodes of nodes n1, n9 are lost; unknown: n9"},
		{sentence: "a long list is cut short", facts: Facts{Nodes: []capri.Node{idle}, Loads: full},
			batch: Batch{Nodes: []string{"n1", "n1", "n1", "n1", "n1", "n1", "n1"}}, want: "no free slot in nodes n1, n1, n1, n1, n1 and 2 more"},
		{sentence: "only the node to avoid has room", facts: Facts{Nodes: []capri.Node{idle, big}, Loads: map[string]capri.Load{"n1": {Slots: 4}}},
			batch: Batch{Avoid: "n2"}, want: "no free slot in pool default; avoiding n2, which it was taken from"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			if c.batch.Pool == "" {
				c.batch.Pool = "default"
			}
			if c.facts.MaxRunning == 0 && c.sentence != "max_running is zero" {
				c.facts.MaxRunning = -1
			}
			d := NewPlanner(&c.facts, seeded()).Place(&c.batch)
			assert.Empty(t, d.Node)
			assert.Equal(t, c.want, d.Reason)
			assert.Equal(t, c.fail, d.Fail)
		})
	}
}

func TestWhereABatchGoes(t *testing.T) {
	n := func(name string, slots int) capri.Node { return capri.Node{Name: name, Pool: "default", Slots: slots} }
	gpu := capri.Node{Name: "g1", Pool: "gpu", Slots: 1}
	lost := capri.Node{Name: "n2", Pool: "default", Slots: 4, Lost: true}
	for _, c := range []struct {
		sentence string
		facts    *Facts
		loads    map[string]capri.Load
		batch    Batch
		want     string
	}{
		{"the least loaded by share, not by count", world(n("n1", 4), n("n2", 40)),
			map[string]capri.Load{"n1": {Slots: 1}, "n2": {Slots: 20}}, Batch{}, "n1"},
		{"the first by name among equals", world(n("n2", 4), n("n1", 4)), nil, Batch{}, "n1"},
		{"a fuller node when the freest has too few slots", world(n("n1", 1), n("n2", 4)),
			map[string]capri.Load{"n2": {Slots: 2}}, Batch{Slots: 2}, "n2"},
		{"a node without a memory limit takes what asks for memory", world(n("n1", 4)), nil, Batch{MemoryMB: 1 << 20}, "n1"},
		{"what asks for no memory goes where none is left", world(capri.Node{Name: "n1", Pool: "default", Slots: 2, MemoryMB: 10}),
			map[string]capri.Load{"n1": {Slots: 1, MemoryMB: 10}}, Batch{}, "n1"},
		{"its own pool", world(n("n1", 4), gpu), nil, Batch{Pool: "gpu"}, "g1"},
		{"a node of its list, whatever the pool", world(n("n1", 4), gpu), nil, Batch{Nodes: []string{"g1"}}, "g1"},
		{"a list with one unknown node uses the other", world(n("n1", 4)), nil, Batch{Nodes: []string{"zz", "n1"}}, "n1"},
		{"not the node to avoid", world(n("n1", 4), n("n2", 4)), map[string]capri.Load{"n2": {Slots: 3}}, Batch{Avoid: "n1"}, "n2"},
		{"back to the node to avoid when it is the only one", world(n("n1", 4)), nil, Batch{Avoid: "n1"}, "n1"},
		{"back to it when the other is lost", world(n("n1", 4), lost), nil, Batch{Avoid: "n1"}, "n1"},
		{"back to it when the other is too small", world(n("n1", 4), n("n2", 1)), nil, Batch{Avoid: "n1", Slots: 2}, "n1"},
		{"a node to avoid that is gone means nothing", world(n("n1", 4)), nil, Batch{Avoid: "n9"}, "n1"},
		{"random over one", world(n("n1", 1)), nil, Batch{Strategy: capri.Random}, "n1"},
		{"round robin over a list", world(n("n1", 1), n("n2", 1)), nil, Batch{Strategy: capri.RoundRobin, Nodes: []string{"n2"}}, "n2"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			if c.loads != nil {
				c.facts.Loads = c.loads
			}
			if c.batch.Pool == "" {
				c.batch.Pool = "default"
			}
			d := NewPlanner(c.facts, seeded()).Place(&c.batch)
			assert.Equal(t, c.want, d.Node, "reason: %s", d.Reason)
		})
	}
}

func batches(n int, b Batch) []Batch {
	list := make([]Batch, n)
	for i := range list {
		list[i] = b
		list[i].ID, list[i].Task = capri.BatchID(i+1), capri.TaskID(i+1)
	}
	return list
}

func nodesOf(assigned []assignment) []string {
	var names []string
	for _, a := range assigned {
		names = append(names, a.Node)
	}
	return names
}

func TestRoundRobinGoesOnWhereTheTurnBeforeStopped(t *testing.T) {
	f := world(capri.Node{Name: "a", Pool: "p", Slots: 9}, capri.Node{Name: "b", Pool: "p", Slots: 9}, capri.Node{Name: "c", Pool: "p", Slots: 9})
	f.Last = map[string]string{"p": "a"}
	turn := func(n int) []string {
		assigned, _ := assignAll(batches(n, Batch{Pool: "p", Strategy: capri.RoundRobin}), f, seeded())
		return nodesOf(assigned)
	}
	assert.Equal(t, []string{"b", "c", "a", "b"}, turn(4))
	assert.Equal(t, []string{"c"}, turn(1))
	f.Nodes = f.Nodes[:2] // c is gone: its place in the order stays
	assert.Equal(t, []string{"a", "b"}, turn(2))
	f.Last["p"] = "aa" // gone, between a and b
	assert.Equal(t, []string{"b", "a"}, turn(2))
}

func TestRandomUsesEachNodeThatFitsAboutEquallyOften(t *testing.T) {
	// One node in ten fits, so that the blind tries mostly miss and the count decides.
	f := world()
	for i := range 100 {
		f.Nodes = append(f.Nodes, capri.Node{Name: fmt.Sprintf("n%02d", i), Pool: "p", Slots: 1 + 1000*(i%10/9)})
	}
	assigned, _ := assignAll(batches(5000, Batch{Pool: "p", Strategy: capri.Random, Slots: 2}), f, seeded())
	count := map[string]int{}
	for _, a := range assigned {
		count[a.Node]++
	}
	require.Len(t, count, 10)
	for name, n := range count {
		assert.InDelta(t, 500, n, 100, "each of ten nodes gets about a tenth, but %s", name)
	}
}

func TestWhatAFullPoolBlocksDoesNotStarveTheRest(t *testing.T) {
	f := world(capri.Node{Name: "a", Pool: "small", Slots: 1}, capri.Node{Name: "b", Pool: "other", Slots: 1})
	ready := append(batches(3, Batch{Pool: "small"}), Batch{ID: 4, Task: 4, Pool: "other"})
	assigned, passed := assignAll(ready, f, seeded())
	assert.Equal(t, []assignment{{1, "a"}, {4, "b"}}, assigned)
	assert.Equal(t, []refused{{2, "no free slot in pool small", false}, {3, "no free slot in pool small", false}}, passed)
}

func TestASmallerBatchMayUseWhatIsTooLittleForABiggerOne(t *testing.T) {
	f := world(capri.Node{Name: "a", Pool: "p", Slots: 2})
	assigned, _ := assignAll([]Batch{{ID: 1, Task: 1, Pool: "p"}, {ID: 2, Task: 2, Pool: "p", Slots: 2}, {ID: 3, Task: 3, Pool: "p"}}, f, seeded())
	assert.Equal(t, []assignment{{1, "a"}, {3, "a"}}, assigned)
}

func TestConcurrencyCountsWhatThisRoundStarted(t *testing.T) {
	f := world(capri.Node{Name: "a", Pool: "p", Slots: 9})
	f.RunningByTask = map[capri.TaskID]int{7: 1}
	ready := []Batch{{ID: 1, Task: 7, Pool: "p", Concurrency: 2}, {ID: 2, Task: 7, Pool: "p", Concurrency: 2}}
	assigned, passed := assignAll(ready, f, seeded())
	assert.Equal(t, []assignment{{1, "a"}}, assigned)
	assert.Equal(t, []refused{{2, "this task already runs 2 at once, waiting", false}}, passed)
	assert.Equal(t, map[capri.TaskID]int{7: 1}, f.RunningByTask, "the facts stay as they were")
}

func TestFullSpeaksWhenNothingMoreCanBePlaced(t *testing.T) {
	f := world(capri.Node{Name: "a", Pool: "p", Slots: 1}, capri.Node{Name: "b", Pool: "q", Slots: 1, Draining: true})
	p := NewPlanner(f, seeded())
	assert.False(t, p.Full())
	require.Equal(t, "a", p.Place(&Batch{ID: 1, Task: 1, Pool: "p"}).Node)
	assert.True(t, p.Full(), "the only free slot left is on a draining node")

	f.MaxRunning, f.Running = 5, 5
	assert.True(t, NewPlanner(f, seeded()).Full())
	f.MaxRunning, f.Paused = -1, "lunch"
	assert.True(t, NewPlanner(f, seeded()).Full())
}

func TestANode_that_stopped_is_given_nothing(t *testing.T) {
	gone := capri.Node{Name: "n1", Pool: "default", Slots: 4, Left: true}
	p := NewPlanner(&Facts{Nodes: []capri.Node{gone}, MaxRunning: -1}, nil)
	d := p.Place(&Batch{ID: 1, Task: 7, Pool: "default", Slots: 1, Concurrency: 1, Strategy: capri.LeastLoaded})
	if d.Node != "" || d.Reason != "all nodes of pool default are stopped or lost" {
		t.Errorf("got %+v", d)
	}
}
