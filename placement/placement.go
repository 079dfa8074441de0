package placement

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"capri"
)

// Batch is what placing needs to know of a ready batch. The limits are those of its snapshot.
type Batch struct {
	ID       capri.BatchID
	Task     capri.TaskID
	Group    string // the task group; only pauses and breakers look at it
	Pool     string
	Nodes    []string // if not empty, these alone, whatever their pool
	Strategy string   // capri.RoundRobin, capri.Random, else capri.LeastLoaded

	Slots       int // below 1 counts as 1
	MemoryMB    int // 0: not limited
	Concurrency int // batches of the task at once; below 1 counts as 1

	Account string
	Denied  bool   // the account is not granted to the owner or the owner's department
	Avoid   string // a node that it was taken from; see Planner.Place
}

// Facts are the state of the world at one instant. NewPlanner copies what it will change.
type Facts struct {
	Nodes         []capri.Node
	Loads         map[string]capri.Load // by node; absent: nothing in hand
	RunningByTask map[capri.TaskID]int  // assigned, preparing and running batches
	Running       int                   // the same of all tasks together
	MaxRunning    int                   // -1: no limit, 0: nothing is started

	Paused      string        // why all dispatch is paused; empty: it is not
	PausedUntil capri.Instant // 0: until somebody resumes it

	// Pauses and open breakers. Nearly always there are none.
	StoppedGroups map[string]Stop
	StoppedTasks  map[capri.TaskID]Stop
	StoppedNodes  map[string]Stop

	// Last remembers, over turns, which node round_robin chose last in each pool. The caller keeps the map and
	// hands it in again. Without it each turn starts at a random node, which spreads turns of one batch, too.
	Last map[string]string
}

// Stop is a person's word, or a breaker that opened by itself, against placing.
type Stop struct {
	Says    string // the whole sentence
	Breaker bool
	Since   capri.Instant
	Until   capri.Instant // 0: until somebody ends it
}

// Decision is what Place answers: a node, or the reason for none.
type Decision struct {
	Node   string
	Reason string
	Fail   bool // the reason will not go away: the batch fails with it
}

// Planner places batches one after another, each upon what the earlier ones took. It is made anew for each
// turn, since within one it believes that nothing is ever given back: what was refused stays refused.
// It is not for several goroutines.
type Planner struct {
	facts     *Facts
	rng       *rand.Rand
	nodes     []node
	byName    map[string]int
	pools     map[string]*group
	lists     map[string]*group
	started   map[capri.TaskID]int // placed in this round
	running   int
	freeSlots int // on nodes that accept; 0 means that nothing more can be placed
	classes   map[class]string
	waiting   map[int]string // the concurrency sentence by limit: told to thousands of batches at once
	atMost    string         // the max_running sentence
	listKey   []byte         // reused, so that looking a list up allocates nothing
}

// node is a capri.Node reduced to what choosing needs, and what it has left.
type node struct {
	name         string
	up           bool // neither lost nor stopped
	stopped      bool
	accepts      bool // up, not draining, not short
	short        bool // takes nothing by its own word
	paused       bool // takes nothing by a person's word
	slots, free  int
	memory, left int // memory 0: not limited
	pool         *group
	placeInPool  int
}

// has tells whether the node could take b when it is idle, fits whether it can now.
func (n *node) has(slots, memory int) bool {
	return n.slots >= slots && (memory == 0 || n.memory == 0 || n.memory >= memory)
}

func (n *node) fits(slots, memory int) bool {
	return n.accepts && n.free >= slots && (memory == 0 || n.memory == 0 || n.left >= memory)
}

// group is a set of nodes that batches choose from: a pool, or one node list.
type group struct {
	what    string // "pool etl", "nodes n1, n2": how reasons speak of it
	key     string // in Facts.Last
	members []int  // indices into Planner.nodes, by name
	unknown []string
	tree    *tree // pools only; a list is short and simply walked
	last    int   // the member that round_robin chose last; -1: none yet
	refused []need
}

// need is what a batch takes from a node. If one is refused, each that takes at least as much is, too.
type need struct{ slots, memory int }

// class is everything that decides whether and why a batch is refused. Batches of one class share their answer.
type class struct {
	group         *group
	slots, memory int
	avoid         int // index, -1: none
}

// NewPlanner reads the facts. rng may be nil if neither strategy random nor round_robin without Facts.Last is used.
func NewPlanner(facts *Facts, rng *rand.Rand) *Planner {
	p := &Planner{
		facts: facts, rng: rng, running: facts.Running,
		nodes: make([]node, len(facts.Nodes)), byName: make(map[string]int, len(facts.Nodes)),
		pools: map[string]*group{}, lists: map[string]*group{},
		started: map[capri.TaskID]int{}, classes: map[class]string{}, waiting: map[int]string{},
		atMost: fmt.Sprintf("max_running is reached: %d batches run at once", facts.MaxRunning),
	}
	if facts.MaxRunning == 0 {
		p.atMost = "max_running is 0: nothing is started"
	}
	if rng == nil {
		p.rng = rand.New(rand.NewPCG(0, 0))
	}
	// By name, so that the same facts give the same plan in whatever order the database returned them.
	sorted := slices.Clone(facts.Nodes)
	slices.SortFunc(sorted, func(a, b capri.Node) int { return cmp.Compare(a.Name, b.Name) })
	for i, n := range sorted {
		load := facts.Loads[n.Name]
		_, paused := facts.StoppedNodes[n.Name]
		accepts := !n.Lost && !n.Left && !n.Draining && n.ShortOf == "" && !paused
		g := p.pools[n.Pool]
		if g == nil {
			g = &group{what: "pool " + n.Pool, key: n.Pool, last: -1}
			p.pools[n.Pool] = g
		}
		p.nodes[i] = node{
			name: n.Name, up: !n.Lost && !n.Left, stopped: n.Left, short: n.ShortOf != "", paused: paused, accepts: accepts, pool: g, placeInPool: len(g.members),
			slots: n.Slots, free: max(0, n.Slots-load.Slots),
			memory: n.MemoryMB, left: max(0, n.MemoryMB-load.MemoryMB),
		}
		p.byName[n.Name] = i
		g.members = append(g.members, i)
		if accepts {
			p.freeSlots += p.nodes[i].free
		}
	}
	for _, g := range p.pools {
		g.tree = newTree(p.nodes, g.members)
	}
	return p
}

// Full tells that no further batch can be placed in this round, so that the caller need not read more pages.
func (p *Planner) Full() bool {
	return p.freeSlots == 0 || p.facts.Paused != "" || (p.facts.MaxRunning >= 0 && p.running >= p.facts.MaxRunning)
}

// Place chooses a node for b and reserves there what b takes.
//
// b.Avoid is a node that b was taken from, lost or unable to start it. It is avoided as long as any other node
// of b's pool or list could ever take b, even if that one is full now: waiting a little is better than going
// back to where it just failed. If there is no such node, going back is all that can be done. How long a little is
// the caller says, who names no such node any more after a while.
func (p *Planner) Place(b *Batch) Decision {
	if why := p.facts.Paused; why != "" {
		return Decision{Reason: "dispatch is paused: " + why}
	}
	if len(p.facts.StoppedGroups) > 0 {
		if why, ok := p.facts.StoppedGroups[b.Group]; ok {
			return Decision{Reason: why.Says}
		}
	}
	if len(p.facts.StoppedTasks) > 0 {
		if why, ok := p.facts.StoppedTasks[b.Task]; ok {
			return Decision{Reason: why.Says}
		}
	}
	concurrency := max(1, b.Concurrency)
	if p.facts.RunningByTask[b.Task]+p.started[b.Task] >= concurrency {
		return Decision{Reason: p.alreadyRuns(concurrency)}
	}
	if b.Denied {
		return Decision{Fail: true, Reason: "dispatch failed: this task's owner has no right to run it as account " + b.Account}
	}
	if m := p.facts.MaxRunning; m >= 0 && p.running >= m {
		return Decision{Reason: p.atMost}
	}
	c := class{group: p.groupOf(b), slots: max(1, b.Slots), memory: max(0, b.MemoryMB), avoid: -1}
	if b.Avoid != "" {
		if i, ok := p.byName[b.Avoid]; ok && p.anotherCould(c, i) {
			c.avoid = i
		}
	}
	if reason, ok := p.classes[c]; ok {
		return Decision{Reason: reason}
	}
	i := p.choose(c, b.Strategy)
	if i < 0 {
		reason := p.reason(c)
		p.classes[c] = reason
		return Decision{Reason: reason}
	}
	n := &p.nodes[i]
	n.free -= c.slots
	n.left = max(0, n.left-c.memory)
	n.pool.tree.update(p.nodes, n.placeInPool)
	p.freeSlots -= c.slots
	p.started[b.Task]++
	p.running++
	return Decision{Node: n.name}
}

// alreadyRuns is the sentence of a task that is at its limit. It names the limit, not the count, which may be
// higher for a while after the limit was lowered.
func (p *Planner) alreadyRuns(limit int) string {
	s, ok := p.waiting[limit]
	if !ok {
		s = fmt.Sprintf("this task already runs %d at once, waiting", limit)
		p.waiting[limit] = s
	}
	return s
}

// groupOf finds or makes the set of nodes that b chooses from.
func (p *Planner) groupOf(b *Batch) *group {
	if len(b.Nodes) == 0 {
		g := p.pools[b.Pool]
		if g == nil {
			g = &group{what: "pool " + b.Pool, key: b.Pool, last: -1, tree: newTree(nil, nil)}
			p.pools[b.Pool] = g
		}
		return g
	}
	p.listKey = p.listKey[:0]
	for _, name := range b.Nodes {
		p.listKey = append(append(p.listKey, name...), 0)
	}
	if g := p.lists[string(p.listKey)]; g != nil {
		return g
	}
	g := &group{what: "nodes " + someOf(b.Nodes), key: string(p.listKey), last: -1}
	for _, name := range b.Nodes {
		i, ok := p.byName[name]
		switch {
		case !ok:
			g.unknown = append(g.unknown, name)
		case !slices.Contains(g.members, i):
			g.members = append(g.members, i)
		}
	}
	slices.Sort(g.members)
	p.lists[g.key] = g
	return g
}

// anotherCould tells whether a node besides avoid could take the class when it is idle.
func (p *Planner) anotherCould(c class, avoid int) bool {
	for _, i := range c.group.members {
		if n := &p.nodes[i]; i != avoid && n.accepts && n.has(c.slots, c.memory) {
			return true
		}
	}
	return false
}

// choose finds a node by strategy, -1 if there is none.
func (p *Planner) choose(c class, strategy string) int {
	g := c.group
	for _, r := range g.refused {
		if c.slots >= r.slots && c.memory >= r.memory {
			return -1 // at least as much as what nobody in the group had left
		}
	}
	var place int
	switch strategy {
	case capri.RoundRobin:
		if g.last < 0 {
			g.last = p.lastOf(g)
		}
		if place = p.next(c, g.last+1); place >= 0 {
			g.last = place
			if p.facts.Last != nil {
				p.facts.Last[g.key] = p.nodes[g.members[place]].name
			}
		}
	case capri.Random:
		place = p.random(c)
	default:
		place = p.freest(c)
	}
	if place >= 0 {
		return g.members[place]
	}
	if c.avoid < 0 {
		// Keep only the smallest needs: what the new one covers is not needed any more.
		g.refused = slices.DeleteFunc(g.refused, func(r need) bool { return r.slots >= c.slots && r.memory >= c.memory })
		g.refused = append(g.refused, need{c.slots, c.memory})
	}
	return -1
}

// freest is least_loaded: the greatest share of free slots, the first by name among equals.
func (p *Planner) freest(c class) int {
	if t := c.group.tree; t != nil {
		return t.freest(p.nodes, c)
	}
	best := -1
	for place, i := range c.group.members {
		n := &p.nodes[i]
		if i != c.avoid && n.fits(c.slots, c.memory) && (best < 0 || freer(n, &p.nodes[c.group.members[best]])) {
			best = place
		}
	}
	return best
}

// freer compares free shares without dividing.
func freer(a, b *node) bool { return a.free*b.slots > b.free*a.slots }

// next is the first member from a place on, around the group, that fits.
func (p *Planner) next(c class, from int) int {
	members := c.group.members
	if t := c.group.tree; t != nil {
		if place := t.from(p.nodes, c, from); place >= 0 {
			return place
		}
		return t.from(p.nodes, c, 0)
	}
	for k := range members {
		place := (from + k) % len(members)
		if i := members[place]; i != c.avoid && p.nodes[i].fits(c.slots, c.memory) {
			return place
		}
	}
	return -1
}

// lastOf finds where round_robin was in the turn before. A node that is gone leaves its place in the order.
func (p *Planner) lastOf(g *group) int {
	if len(g.members) == 0 {
		return -1
	}
	name, ok := p.facts.Last[g.key]
	if !ok {
		return p.rng.IntN(len(g.members))
	}
	place, found := slices.BinarySearchFunc(g.members, name, func(i int, name string) int { return cmp.Compare(p.nodes[i].name, name) })
	if !found {
		place-- // the search gives the one after it
	}
	return place
}

// random picks each node that fits with equal chance: a few blind tries, which nearly always hit, then a count.
func (p *Planner) random(c class) int {
	members := c.group.members
	if len(members) == 0 {
		return -1
	}
	for range 4 {
		place := p.rng.IntN(len(members))
		if i := members[place]; i != c.avoid && p.nodes[i].fits(c.slots, c.memory) {
			return place
		}
	}
	chosen, fitting := -1, 0
	for place, i := range members {
		if i != c.avoid && p.nodes[i].fits(c.slots, c.memory) {
			if fitting++; p.rng.IntN(fitting) == 0 {
				chosen = place
			}
		}
	}
	return chosen
}

// someOf lists the first few of many names.
func someOf(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
