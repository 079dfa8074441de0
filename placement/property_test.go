package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"capri"
)

func drawFacts(t *rapid.T) *Facts {
	f := &Facts{
		MaxRunning: rapid.SampledFrom([]int{-1, -1, 0, 3, 10}).Draw(t, "max_running"),
		Running:    rapid.IntRange(0, 4).Draw(t, "running"),
		Loads:      map[string]capri.Load{}, RunningByTask: map[capri.TaskID]int{},
	}
	for i := range rapid.IntRange(0, 9).Draw(t, "nodes") {
		n := capri.Node{
			Name: fmt.Sprintf("n%d", i), Pool: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "pool"),
			Slots: rapid.IntRange(0, 4).Draw(t, "slots"), MemoryMB: rapid.SampledFrom([]int{0, 100, 300}).Draw(t, "memory"),
			Lost: rapid.IntRange(0, 6).Draw(t, "lost") == 0, Draining: rapid.IntRange(0, 6).Draw(t, "draining") == 0,
		}
		f.Nodes = append(f.Nodes, n)
		f.Loads[n.Name] = capri.Load{Slots: rapid.IntRange(0, 3).Draw(t, "load"), MemoryMB: rapid.SampledFrom([]int{0, 0, 50, 200}).Draw(t, "reserved")}
	}
	for task := range 4 {
		f.RunningByTask[capri.TaskID(task)] = rapid.IntRange(0, 2).Draw(t, "running of task")
	}
	if rapid.Bool().Draw(t, "remembers") {
		f.Last = map[string]string{"p": "n3"}
	}
	return f
}

func drawBatches(t *rapid.T) []Batch {
	list := make([]Batch, rapid.IntRange(0, 40).Draw(t, "batches"))
	for i := range list {
		list[i] = Batch{
			ID: capri.BatchID(i + 1), Task: capri.TaskID(rapid.IntRange(0, 6).Draw(t, "task")),
			Pool:        rapid.SampledFrom([]string{"p", "q", "none"}).Draw(t, "pool"),
			Nodes:       rapid.SampledFrom([][]string{nil, nil, nil, {"n1", "n2"}, {"n0", "gone"}}).Draw(t, "list"),
			Strategy:    rapid.SampledFrom([]string{capri.RoundRobin, capri.Random, capri.LeastLoaded, ""}).Draw(t, "strategy"),
			Slots:       rapid.IntRange(0, 3).Draw(t, "slots"),
			MemoryMB:    rapid.SampledFrom([]int{0, 0, 40, 120, 500}).Draw(t, "memory"),
			Concurrency: rapid.IntRange(1, 3).Draw(t, "concurrency"),
			Denied:      rapid.IntRange(0, 15).Draw(t, "denied") == 0,
			Avoid:       rapid.SampledFrom([]string{"", "", "n1", "n2", "gone"}).Draw(t, "avoid"),
		}
	}
	return list
}

// The checker below knows nothing of trees, classes and memos: it replays the plan with plain loops.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, ready := drawFacts(t), drawBatches(t)
		assigned, passed := assignAll(ready, f, seeded())
		to := map[capri.BatchID]string{}
		for _, a := range assigned {
			to[a.ID] = a.Node
		}
		why := map[capri.BatchID]refused{}
		for _, p := range passed {
			why[p.ID] = p
		}
		require := func(ok bool, sentence string, args ...any) {
			if !ok {
				t.Fatalf("%s (%v)", sentence, args)
			}
		}
		require(len(assigned)+len(passed) == len(ready) && len(to)+len(why) == len(ready), "each batch gets exactly one answer")

		loads, started, running := map[string]capri.Load{}, map[capri.TaskID]int{}, f.Running
		for name, l := range f.Loads {
			loads[name] = l
		}
		could := func(n capri.Node, b Batch) bool { // when idle
			return !n.Lost && !n.Draining && n.Slots >= max(1, b.Slots) && (b.MemoryMB == 0 || n.MemoryMB == 0 || n.MemoryMB >= b.MemoryMB)
		}
		inGroup := func(n capri.Node, b Batch) bool {
			if len(b.Nodes) == 0 {
				return n.Pool == b.Pool
			}
			for _, name := range b.Nodes {
				if name == n.Name {
					return true
				}
			}
			return false
		}
		for _, b := range ready {
			other := false
			for _, n := range f.Nodes {
				other = other || (n.Name != b.Avoid && inGroup(n, b) && could(n, b))
			}
			fits := func(n capri.Node) bool {
				l := loads[n.Name]
				return inGroup(n, b) && could(n, b) && n.Slots-l.Slots >= max(1, b.Slots) &&
					(b.MemoryMB == 0 || n.MemoryMB == 0 || n.MemoryMB-l.MemoryMB >= b.MemoryMB) && (n.Name != b.Avoid || !other)
			}
			atLimit := f.RunningByTask[b.Task]+started[b.Task] >= b.Concurrency
			atMost := f.MaxRunning >= 0 && running >= f.MaxRunning
			name, placed := to[b.ID]
			if !placed {
				require(why[b.ID].Reason != "", "every refusal has a reason", b)
				require(why[b.ID].Fail == (b.Denied && !atLimit), "a batch fails only for want of its account's grant", b, why[b.ID])
				if atLimit || atMost || b.Denied {
					continue
				}
				for _, n := range f.Nodes {
					require(!fits(n), "a batch is refused only if no node fits", b, n, why[b.ID])
				}
				continue
			}
			require(!atLimit, "a task never runs more at once than its concurrency", b)
			require(!atMost, "max_running is never exceeded", b)
			require(!b.Denied, "an account that is not granted never runs", b)
			var node *capri.Node
			for i := range f.Nodes {
				if f.Nodes[i].Name == name {
					node = &f.Nodes[i]
				}
			}
			require(node != nil, "the node exists", name)
			require(!node.Lost && !node.Draining, "no batch goes to a node that is lost or draining", b, node)
			require(inGroup(*node, b), "no batch leaves its pool or list", b, node)
			require(name != b.Avoid || !other, "a node to be avoided is used only if no other could ever take the batch", b, node)
			require(fits(*node), "no node takes more slots or memory than it has", b, node, loads[name])
			l := loads[name]
			loads[name] = capri.Load{Slots: l.Slots + max(1, b.Slots), MemoryMB: l.MemoryMB + b.MemoryMB}
			started[b.Task]++
			running++
			if b.Strategy == capri.LeastLoaded || b.Strategy == "" {
				for _, n := range f.Nodes {
					// Shares before this placement, compared without the tree's floats.
					if n.Name == name || !fits(n) {
						continue
					}
					require((node.Slots-l.Slots)*n.Slots >= (n.Slots-loads[n.Name].Slots)*node.Slots, "least_loaded takes the freest node that fits", b, node, n)
				}
			}
		}
	})
}

func TestARefusedBatchIsNeverOvertakenByAnEqualOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		refused := map[string]capri.BatchID{}
		p := NewPlanner(f, seeded())
		for _, b := range drawBatches(t) {
			b.Task = capri.TaskID(100 + b.ID) // each its own task: only the nodes can refuse
			b.Denied = false
			wishes := b
			wishes.ID, wishes.Task = 0, 0
			key := fmt.Sprintf("%+v", wishes)
			if d := p.Place(&b); d.Node == "" {
				refused[key] = b.ID
			} else if first, ok := refused[key]; ok {
				t.Fatalf("batch %d was refused and batch %d with equal wishes was placed after it", first, b.ID)
			}
		}
	})
}

func TestTheSameFactsGiveTheSamePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, ready := drawFacts(t), drawBatches(t)
		f.Last = nil
		a, pa := assignAll(ready, f, seeded())
		for i, j := 0, len(f.Nodes)-1; i < j; i, j = i+1, j-1 { // the database may list the nodes in any order
			f.Nodes[i], f.Nodes[j] = f.Nodes[j], f.Nodes[i]
		}
		b, pb := assignAll(ready, f, seeded())
		if fmt.Sprint(a, pa) != fmt.Sprint(b, pb) {
			t.Fatalf("the plan depends on the order of the nodes:\n%v\n%v", a, b)
		}
	})
}

// assignment is a batch and the node that gets it.
type assignment struct {
	ID   capri.BatchID
	Node string
}

// refused is a batch that was not placed. Fail: it never will be, and ends as failed with that reason.
type refused struct {
	ID     capri.BatchID
	Reason string
	Fail   bool
}

// assignAll places a whole list, which comes in order: priority, schedule_time, id.
func assignAll(ready []Batch, facts *Facts, rng *rand.Rand) (assigned []assignment, passed []refused) {
	p := NewPlanner(facts, rng)
	assigned = make([]assignment, 0, min(len(ready), p.freeSlots))
	for i := range ready {
		b := &ready[i]
		if d := p.Place(b); d.Node != "" {
			assigned = append(assigned, assignment{b.ID, d.Node})
		} else {
			passed = append(passed, refused{b.ID, d.Reason, d.Fail})
		}
	}
	return assigned, passed
}
