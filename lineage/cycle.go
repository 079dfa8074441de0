package lineage

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/calendar"
	"capri/cron"
)

// Cycle refuses tasks whose batches could wait for themselves, and names the ring: "a → b (same) → a (same)".
// The ring that counts is one of batches: a task that waits for its own interval before, or a day that waits
// for its hours while they wait for the day before, is fine. A ring that only leads to ever later intervals
// is refused too, since nothing in it could ever start. ANYONE counts as ALL: that another parent may help
// out is no promise. Parents that are not among tasks, and manual ones, end a chain.
//
// How it is decided. From a batch, the latest batch of each task that it waits for is what matters: spans only
// move on with the child, so if going round never leads from an interval to itself or a later one, nothing
// else does. Tasks on a ring (a strongly connected component) are judged by the cheapest means that settles it:
//
//  1. all of one period: intervals are counted, and a ring adds up to a number of intervals, exactly;
//  2. else by bounds: how much later than its child can a parent's interval end, at most? If every ring adds
//     up to less than nothing, there is none;
//  3. else by walking: from every interval of a task in 28 years, the latest that each other task is waited
//     for. 28 years have every leap year, weekday and clock change in every position. A ring too fine to
//     walk through (an expression for every second, say) is refused, as it could not be shown harmless.
func Cycle(c calendar.Calendar, tasks []*capri.Task) error {
	g := newGraph(c, tasks)
	for _, component := range g.components(nil) {
		if err := g.judge(component); err != nil {
			return err
		}
	}
	return nil
}

// dependency says that a child waits for a parent.
type dependency struct {
	child, parent int // indices of tasks
	dep           *capri.Parent
}

type graph struct {
	c     calendar.Calendar
	tasks []*capri.Task
	out   [][]dependency // by child
	crons map[int]*cron.Expression
	steps int // left for walking
}

// maxSteps bounds what one call may walk, to about half a second.
const maxSteps = 600_000

func newGraph(c calendar.Calendar, tasks []*capri.Task) *graph {
	g := &graph{c: c, tasks: tasks, out: make([][]dependency, len(tasks)), crons: map[int]*cron.Expression{}, steps: maxSteps}
	byName := make(map[string]int, len(tasks))
	for i, t := range tasks {
		byName[t.Name] = i
	}
	for i, t := range tasks {
		for k := range t.Parents {
			p, ok := byName[t.Parents[k].Task]
			if ok && tasks[p].Period != capri.Manual {
				g.out[i] = append(g.out[i], dependency{i, p, &t.Parents[k]})
			}
		}
	}
	return g
}

// components finds the rings: the strongly connected components that have an edge inside, of the nodes in
// within (nil: all). It is Tarjan's algorithm with its own stack, since chains may be long.
func (g *graph) components(within map[int]bool) [][]int {
	n := len(g.tasks)
	index, low, onStack := make([]int, n), make([]int, n), make([]bool, n)
	var rings [][]int
	var stack []int
	type frame struct{ node, edge int }
	next := 1
	for root := range n {
		if index[root] != 0 || within != nil && !within[root] {
			continue
		}
		calls := []frame{{node: root}}
		for len(calls) > 0 {
			f := &calls[len(calls)-1]
			v := f.node
			if f.edge == 0 && index[v] == 0 {
				index[v], low[v] = next, next
				next++
				stack, onStack[v] = append(stack, v), true
			}
			descended := false
			for f.edge < len(g.out[v]) {
				w := g.out[v][f.edge].parent
				f.edge++
				switch {
				case within != nil && !within[w]:
				case index[w] == 0:
					calls = append(calls, frame{node: w})
					descended = true
				case onStack[w]:
					low[v] = min(low[v], index[w])
				}
				if descended {
					break
				}
			}
			if descended {
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].node
				low[up] = min(low[up], low[v])
			}
			if low[v] != index[v] {
				continue
			}
			var component []int
			for {
				w := stack[len(stack)-1]
				stack, onStack[w] = stack[:len(stack)-1], false
				component = append(component, w)
				if w == v {
					break
				}
			}
			if len(component) > 1 || g.waitsForItself(v) {
				slices.Sort(component)
				rings = append(rings, component)
			}
		}
	}
	return rings
}

func (g *graph) waitsForItself(v int) bool {
	return slices.ContainsFunc(g.out[v], func(e dependency) bool { return e.parent == v })
}

// judge decides about one component.
func (g *graph) judge(component []int) error {
	within := make(map[int]bool, len(component))
	for _, v := range component {
		within[v] = true
	}
	var edges []dependency
	for _, v := range component {
		for _, e := range g.out[v] {
			if within[e.parent] {
				edges = append(edges, e)
			}
		}
		if g.tasks[v].Period == capri.Cron && g.crons[v] == nil {
			e, err := cron.Parse(g.tasks[v].Cron)
			if err != nil {
				return fmt.Errorf("cron of task %s: %w", g.tasks[v].Name, err)
			}
			g.crons[v] = e
		}
	}
	if g.oneSeries(component) {
		if ring := heaviestRing(len(g.tasks), edges, g.countLater); ring != nil {
			return g.refuse(ring, "")
		}
		return nil
	}
	if heaviestRing(len(g.tasks), edges, g.secondsLater) == nil {
		return nil
	}

	// Bounds did not settle it. Walk from every interval of the task that has the fewest, then go on without
	// it: what rings are left do not pass through it.
	start, starts := component[0], math.MaxInt
	for _, v := range component {
		if n := g.intervals(v); n < starts {
			start, starts = v, n
		}
	}
	if err := g.walk(start, within, edges); err != nil {
		return err
	}
	delete(within, start)
	for _, rest := range g.components(within) {
		if err := g.judge(rest); err != nil {
			return err
		}
	}
	return nil
}

// oneSeries reports whether all tasks have the same row of intervals.
func (g *graph) oneSeries(component []int) bool {
	first := g.tasks[component[0]]
	for _, v := range component[1:] {
		if t := g.tasks[v]; t.Period != first.Period || t.Cron != first.Cron {
			return false
		}
	}
	return true
}

// countLater is how many intervals after the child's own the latest one that it waits for is, where both
// tasks have the same row of intervals: then end and 0 are the same interval.
func (g *graph) countLater(e dependency) (int64, bool) {
	if e.dep.From == nil && e.dep.To == nil {
		return 0, true
	}
	p := g.tasks[e.parent].Period
	w := windowOf(e.dep.From, e.dep.To, p, p)
	return int64(w.to.N), w.from.N <= w.to.N
}

// Bounds on how long an interval can be, in seconds. They need only be safe: no clock change was ever more
// than a day, and a change can leave an hour of any length.
var shortest = map[capri.Period]int64{
	capri.Hour: 1, capri.Day: 20 * 3600, capri.Week: 6 * 86400, capri.Month: 26 * 86400, capri.Cron: 0, capri.Manual: 0,
}
var longest = map[capri.Period]int64{
	capri.Hour: 2 * 3600, capri.Day: 50 * 3600, capri.Week: 9 * 86400, capri.Month: 33 * 86400, capri.Cron: centuries,
}

const centuries = 1e12 // seconds; so large that no other term makes up for it, so small that sums do not overflow

// secondsLater bounds how much later than the child's interval the latest one that it waits for can end.
func (g *graph) secondsLater(e dependency) (int64, bool) {
	child, parent := g.tasks[e.child].Period, g.tasks[e.parent].Period
	if ruleOf(child, parent, e.dep) != windowRule {
		return 0, true // every rule takes intervals that have ended by the child's end
	}
	to := windowOf(e.dep.From, e.dep.To, child, parent).to
	n := int64(to.N)
	var later int64
	switch {
	case to.End && n <= 0:
		later = n * shortest[parent]
	case to.End:
		later = n * longest[parent]
	case n < 0: // it ends where the one that holds the data start begins, or before
		later = -shortest[child] + (n+1)*shortest[parent]
	case n == 0 && coarser(child, parent):
		later = 0 // the one that holds the start of a longer interval ends inside it
	default:
		later = (n+1)*longest[parent] - shortest[child]
	}
	return min(later, centuries), true
}

// heaviestRing finds a ring whose weights add up to nothing or more, as the edges along it; nil where there is
// none. weight's second value says whether the edge counts at all. It is Bellman and Ford's search for the
// longest way, where the number of edges breaks ties, so that going round a ring of weight 0 is a gain.
func heaviestRing(nodes int, edges []dependency, weight func(dependency) (int64, bool)) []dependency {
	type length struct{ weight, edges int64 }
	weights := make([]int64, len(edges))
	counts := make([]bool, len(edges))
	for i, e := range edges {
		weights[i], counts[i] = weight(e)
	}
	// Only the component's nodes matter; compact numbers keep the arrays small.
	compact := make(map[int]int)
	number := func(v int) int {
		n, ok := compact[v]
		if !ok {
			n = len(compact)
			compact[v] = n
		}
		return n
	}
	from, to := make([]int, len(edges)), make([]int, len(edges))
	for i, e := range edges {
		from[i], to[i] = number(e.child), number(e.parent)
	}
	n := len(compact)
	best := make([]length, n)
	via := make([]int, n) // the edge that gave best, or -1
	for i := range via {
		via[i] = -1
	}
	for round := range n + 1 {
		changed := false
		for k := range edges {
			// Every other round backwards: chains mostly run one way through the list, and the round that goes
			// along settles a whole chain where the other settles one step.
			i := k
			if round%2 == 0 {
				i = len(edges) - 1 - k
			}
			if !counts[i] {
				continue
			}
			d := length{best[from[i]].weight + weights[i], best[from[i]].edges + 1}
			if have := best[to[i]]; d.weight > have.weight || d.weight == have.weight && d.edges > have.edges {
				best[to[i]], via[to[i]] = d, i
				changed = true
			}
		}
		if !changed {
			return nil
		}
		// A ring of gains shows up in via within a few rounds; waiting for all n would be slow.
		if ring := followBack(edges, from, via); ring != nil {
			return ring
		}
	}
	return nil
}

// followBack looks for a ring among the edges via, one into each node.
func followBack(edges []dependency, from, via []int) []dependency {
	seen := make([]int, len(via)) // by which start a node was seen
	for start := range via {
		v := start
		for via[v] >= 0 && seen[v] == 0 {
			seen[v] = start + 1
			v = from[via[v]]
		}
		if via[v] < 0 || seen[v] != start+1 {
			continue
		}
		var ring []dependency
		for w := v; len(ring) == 0 || w != v; w = from[via[w]] {
			ring = append(ring, edges[via[w]])
		}
		slices.Reverse(ring) // from child to parent
		return ring
	}
	return nil
}

// The 28 years that are walked through. They lie ahead, under the clock rules of today.
var (
	walkFrom = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	walkTo   = time.Date(2054, 1, 1, 0, 0, 0, 0, time.UTC)
)

// intervals estimates how many intervals a task has in the 28 years.
func (g *graph) intervals(v int) int {
	span := walkTo.Sub(walkFrom)
	switch t := g.tasks[v]; t.Period {
	case capri.Hour:
		return int(span / time.Hour)
	case capri.Day:
		return int(span / (24 * time.Hour))
	case capri.Week:
		return int(span / (7 * 24 * time.Hour))
	case capri.Month:
		return 28 * 12
	}
	// By the fires of a few days; rarer ones fire about daily or less.
	const days = 3
	fires := g.crons[v].Between(walkFrom, walkFrom.AddDate(0, 0, days), g.c.Zone(), 100*days)
	return max(len(fires), days) * int(span/(days*24*time.Hour))
}

// walk looks, from every interval of start, for the latest interval of each task that is waited for, and
// refuses what leads back to start's same interval or a later one.
func (g *graph) walk(start int, within map[int]bool, edges []dependency) error {
	row := g.ref(start).series(g.c)
	iv, ok := row.endingAfter(capri.InstantOf(walkFrom))
	if !ok { // an expression that ended before: look at its last years
		iv, ok = row.endedBy(capri.InstantOf(walkFrom))
		if !ok {
			return nil
		}
		for range 1000 {
			iv, _ = row.move(iv, -1)
		}
	}
	out := make(map[int][]dependency, len(within))
	for _, e := range edges {
		out[e.child] = append(out[e.child], e)
	}
	until := capri.InstantOf(walkTo)
	for left := 0; left == 0 && iv.Mark < until; iv, left = row.move(iv, 1) {
		ring, witness := g.walkFrom(start, iv, len(within), out)
		if ring != nil {
			return g.refuse(ring, witness)
		}
		if g.steps < 0 {
			return g.unproven(within)
		}
	}
	return nil
}

// reached is the latest interval of a task that a walk has found so far.
type reached struct {
	iv     capri.Interval
	via    dependency
	rounds int
	queued bool
}

// walkFrom is walk for one interval. Besides a ring through start it can meet one that does not pass through
// it, which shows by going round and round.
func (g *graph) walkFrom(start int, iv capri.Interval, nodes int, out map[int][]dependency) (ring []dependency, witness string) {
	latest := map[int]*reached{start: {iv: iv}}
	queue := []int{start}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		latest[v].queued = false
		at := latest[v].iv
		for _, e := range out[v] {
			g.steps--
			if g.crons[v] != nil || g.crons[e.parent] != nil {
				g.steps -= 3 // fires are looked for, not computed
			}
			s := spanOf(g.tasks[v].Period, at, g.ref(e.parent).series(g.c), e.dep)
			if s.empty {
				continue
			}
			if e.parent == start {
				if s.last.End < iv.End {
					continue
				}
				if ring := otherRing(start, latest); ring != nil {
					return ring, "" // the way back would go round it for ever
				}
				ring = []dependency{e}
				for w := v; w != start; w = latest[w].via.child {
					ring = append(ring, latest[w].via)
				}
				slices.Reverse(ring)
				witness = fmt.Sprintf("%s %s waits for %s %s", g.tasks[start].Name, iv.BatchNo, g.tasks[start].Name, s.last.BatchNo)
				if len(ring) > 1 {
					p := ring[0].parent
					witness = fmt.Sprintf("%s %s waits for %s %s, and that for %s %s", g.tasks[start].Name, iv.BatchNo,
						g.tasks[p].Name, latest[p].iv.BatchNo, g.tasks[start].Name, s.last.BatchNo)
				}
				return ring, witness
			}
			r := latest[e.parent]
			if r == nil {
				r = &reached{}
				latest[e.parent] = r
			} else if s.last.End <= r.iv.End {
				continue
			}
			r.iv, r.via = s.last, e
			if r.queued {
				continue
			}
			// Without another ring every task has its latest interval after as many rounds as there are tasks.
			if r.rounds++; r.rounds > nodes {
				if ring := otherRing(start, latest); ring != nil {
					return ring, ""
				}
			}
			r.queued = true
			queue = append(queue, e.parent)
			if g.steps < 0 {
				return nil, ""
			}
		}
	}
	return nil, ""
}

// otherRing looks for a ring, not through start, among the edges that led to the latest intervals.
func otherRing(start int, latest map[int]*reached) []dependency {
	for _, v := range slices.Sorted(maps.Keys(latest)) { // sorted, to name the same one each time
		seen := map[int]bool{}
		for v != start && !seen[v] {
			seen[v] = true
			v = latest[v].via.child
		}
		if v == start {
			continue
		}
		var ring []dependency
		for w := v; len(ring) == 0 || w != v; w = latest[w].via.child {
			ring = append(ring, latest[w].via)
		}
		slices.Reverse(ring)
		return ring
	}
	return nil
}

func (g *graph) ref(v int) Ref {
	t := g.tasks[v]
	return Ref{ID: t.ID, Name: t.Name, Period: t.Period, Cron: g.crons[v]}
}

// refuse names the ring. It starts with the task that comes first in the list, so that the same mistake reads
// the same each time.
func (g *graph) refuse(ring []dependency, witness string) error {
	first := 0
	for i, e := range ring {
		if e.child < ring[first].child {
			first = i
		}
	}
	ring = append(slices.Clone(ring[first:]), ring[:first]...)

	const shown = 12 // of a longer ring its beginning and its end
	var b strings.Builder
	b.WriteString(g.tasks[ring[0].child].Name)
	for i, e := range ring {
		if len(ring) > shown && i == shown-2 {
			fmt.Fprintf(&b, " → … %d more …", len(ring)-shown+1)
		}
		if len(ring) > shown && i >= shown-2 && i < len(ring)-1 {
			continue
		}
		fmt.Fprintf(&b, " → %s (%s)", g.tasks[e.parent].Name, g.describe(e))
	}
	if witness != "" {
		witness = " (" + witness + ")"
	}
	// In the wish and not in the value, which is cut where it is long.
	return capri.Invalid("parents", "", fmt.Sprintf(
		"no batch that waits for itself, but here one does: %s%s; drop one of these, or let it wait for an earlier interval (from: -1, to: -1)",
		b.String(), witness))
}

func (g *graph) unproven(within map[int]bool) error {
	var names []string
	for v := range within {
		names = append(names, g.tasks[v].Name)
	}
	slices.Sort(names)
	if len(names) > 8 {
		names = append(names[:8], fmt.Sprintf("%d more", len(names)-8))
	}
	return capri.Invalid("parents", "", fmt.Sprintf(
		"no batch that waits for itself: %s wait for one another, and over too many intervals to rule it out; drop one of the dependencies, or let it wait for an earlier interval (from: -1, to: -1)",
		strings.Join(names, ", ")))
}

// describe is the rule of an edge for people.
func (g *graph) describe(e dependency) string {
	child, parent := g.tasks[e.child].Period, g.tasks[e.parent].Period
	if r := ruleOf(child, parent, e.dep); r != windowRule {
		return r.String()
	}
	w := windowOf(e.dep.From, e.dep.To, child, parent)
	if w.from == w.to {
		return w.to.String()
	}
	return w.String()
}
