package cascade

import (
	"fmt"

	"capri"
	"capri/lineage"
)

// By says along which edges a cascade goes. The zero By reaches the roots alone.
type By int

const (
	Logic By = 1 << iota // from a parent to the children that name it
	Data                 // from what makes a path to those that have it among their inputs
	Both  = Logic | Data
)

var byNames = map[By]string{0: "none", Logic: "logic", Data: "data", Both: "both"}

func (b By) String() string { return byNames[b] }

// ParseBy reads none, logic, data or both; empty is none.
func ParseBy(s string) (By, error) {
	for by, name := range byNames {
		if s == name {
			return by, nil
		}
	}
	if s == "" {
		return 0, nil
	}
	return 0, capri.Invalid("cascade", s, "none, data, logic or both")
}

// Root is what was asked for.
type Root struct {
	Task      capri.TaskID
	Intervals []capri.Interval
}

// Item is one batch that is to run, or that would be if it could.
type Item struct {
	Task     *capri.Task
	Interval capri.Interval
	Reason   Reason
	Depth    int     // how many edges it is away from what was asked for, the shortest way
	NotRun   string  // why it is listed and does not run; empty: it runs
	Before   []int32 // the items that it waits for, by index, ascending
}

// Reason says why an item is in: the edge by which it was found first.
type Reason struct {
	By      By // 0: it was asked for
	Task    string
	BatchNo capri.BatchNo
	Path    capri.PathCondition // by data
}

func (r Reason) String() string {
	switch {
	case r.By == 0:
		return "asked for"
	case r.By == Logic:
		return fmt.Sprintf("by logic of %s %s", r.Task, r.BatchNo)
	case r.Path.Flag == "":
		return fmt.Sprintf("by data of %s %s via %s", r.Task, r.BatchNo, r.Path.Path)
	}
	return fmt.Sprintf("by data of %s %s via %s/%s", r.Task, r.BatchNo, r.Path.Path, r.Path.Flag)
}

// Reach finds what a rerun of the roots reaches by marks not after until (now), each batch once, in the order in which
// they are to run, the oldest first (see Sort). More than most are refused.
func (g *Graph) Reach(roots []Root, by By, until capri.Instant, most int) ([]Item, error) {
	s := g.search(until, most)
	if err := s.ask(roots); err != nil {
		return nil, err
	}
	for i := int32(0); int(i) < len(s.items); i++ {
		if err := s.follow(i, by, true); err != nil {
			return nil, err
		}
	}
	if rest := Both &^ by; rest != 0 {
		for i := range s.items {
			if err := s.follow(int32(i), rest, false); err != nil {
				return nil, err
			}
		}
	}
	return sorted(s.items, s.edges, false)
}

// Connect finds what items wait for among themselves and puts them in the order in which they are to run, the oldest first.
// It reaches nothing beside them. Items of tasks that the graph does not have, or cannot read, are connected with nothing.
func (g *Graph) Connect(items []Item, until capri.Instant) ([]Item, error) {
	s := g.search(until, len(items))
	s.items, s.tasks = items, make([]int32, len(items))
	for i := range items {
		n, ok := g.byID[items[i].Task.ID]
		if !ok {
			s.tasks[i] = -1
			continue
		}
		s.tasks[i], s.at[key{n, items[i].Interval.End}] = n, int32(i)
		s.makesHistory(n, items[i].Interval.Mark)
	}
	for i := range items {
		if s.tasks[i] < 0 {
			continue
		}
		if err := s.follow(int32(i), Both, false); err != nil {
			return nil, err
		}
	}
	return sorted(items, s.edges, false)
}

func (g *Graph) search(until capri.Instant, most int) *search {
	s := &search{g: g, until: until, most: max(most, 1), at: map[key]int32{}, ways: map[wayAt][]capri.Interval{}, first: map[int32]capri.Instant{}}
	s.finder = g.readers.Find(until, func(task int) capri.Instant { return s.begins(int32(task)) })
	return s
}

// search is one call of Reach or Connect.
type search struct {
	g      *Graph
	until  capri.Instant
	most   int
	finder *lineage.Finder
	first  map[int32]capri.Instant // of tasks that are asked for earlier than their first mark
	items  []Item
	tasks  []int32 // of each item
	at     map[key]int32
	ways   map[wayAt][]capri.Interval
	edges  []pair
}

// key is a batch: no two intervals of a task have the same end.
type key struct {
	task int32
	end  capri.Instant
}

type wayAt struct {
	way int32
	end capri.Instant
}

// pair is an edge between items: the second waits for the first.
type pair struct{ from, to int32 }

// maxEdges bounds what one answer may hold in memory.
const maxEdges = 10_000_000

// ask takes the roots in. What people ask for makes history: from then on it is waited for.
func (s *search) ask(roots []Root) error {
	for _, r := range roots {
		if _, err := s.g.task(r.Task); err != nil {
			return err
		}
		n := s.g.byID[r.Task]
		t := &s.g.tasks[n]
		for _, iv := range r.Intervals {
			if _, ok := s.at[key{n, iv.End}]; ok {
				continue
			}
			s.makesHistory(n, iv.Mark)
			why := ""
			switch {
			case !t.Enabled:
				why = "the task is disabled"
			case iv.Mark > s.until:
				why = "its mark is still to come"
			case iv.Mark < t.from || t.to != 0 && iv.Mark >= t.to:
				why = "it is outside of the task's validity"
			}
			if err := s.add(n, iv, Reason{}, 0, why); err != nil {
				return err
			}
		}
	}
	return nil
}

// makesHistory lets a task begin by a mark that is earlier than its first.
func (s *search) makesHistory(task int32, mark capri.Instant) {
	if mark >= s.g.tasks[task].ref.First {
		return
	}
	if at, ok := s.first[task]; !ok || mark < at {
		s.first[task] = mark
	}
}

// begins is before which marks the task has no batches.
func (s *search) begins(task int32) capri.Instant {
	t := &s.g.tasks[task]
	first := t.ref.First
	if at, ok := s.first[task]; ok {
		first = at
	}
	return max(first, t.from)
}

func (s *search) add(task int32, iv capri.Interval, why Reason, depth int, notRun string) error {
	if len(s.items) >= s.most {
		return s.tooMany(task, iv, why, depth)
	}
	s.at[key{task, iv.End}] = int32(len(s.items))
	s.items = append(s.items, Item{Task: s.g.tasks[task].Task, Interval: iv, Reason: why, Depth: depth, NotRun: notRun})
	s.tasks = append(s.tasks, task)
	return nil
}

// follow goes along the edges of an item. What they lead to is added, or else only connected where it is in already.
func (s *search) follow(i int32, by By, add bool) error {
	if s.items[i].NotRun != "" {
		return nil // what does not run changes nothing
	}
	task, iv := s.tasks[i], s.items[i].Interval
	if by&Logic != 0 {
		for n := range s.g.logic[task] {
			of := &s.g.logic[task][n]
			ivs := s.children(task, iv, of)
			for _, child := range of.tasks {
				if err := s.connect(i, child, ivs, Logic, nil, add); err != nil {
					return err
				}
			}
		}
	}
	if by&Data == 0 {
		return nil
	}
	paths, err := s.g.tasks[task].compiled.Outputs(s.g.c, iv)
	if err != nil {
		return err
	}
	for p := range paths {
		found, err := s.finder.Of(paths[p])
		if err != nil {
			return err
		}
		for _, r := range found {
			for _, child := range r.Tasks {
				if err := s.connect(i, int32(child), r.Intervals, Data, &paths[p], add); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *search) children(parent int32, iv capri.Interval, of *group) []capri.Interval {
	at := wayAt{of.way, iv.End}
	ivs, ok := s.ways[at]
	if !ok {
		ref := s.g.tasks[parent].ref
		ref.First = 0 // an item is never before it, and the answer is every parent's
		ivs = lineage.Children(s.g.c, ref, iv, of.child, s.g.ways[of.way], s.until)
		s.ways[at] = ivs
	}
	return ivs
}

func (s *search) connect(i, child int32, ivs []capri.Interval, by By, path *capri.PathCondition, add bool) error {
	t := &s.g.tasks[child]
	begins := s.begins(child)
	for _, iv := range ivs {
		to, ok := s.at[key{child, iv.End}]
		if !ok {
			if !add || !t.Cascade || iv.Mark < begins || t.to != 0 && iv.Mark >= t.to {
				continue
			}
			from := &s.items[i]
			why := Reason{By: by, Task: from.Task.Name, BatchNo: from.Interval.BatchNo}
			if path != nil {
				why.Path = *path
			}
			notRun := ""
			if !t.Enabled {
				notRun = "the task is disabled"
			}
			to = int32(len(s.items))
			if err := s.add(child, iv, why, from.Depth+1, notRun); err != nil {
				return err
			}
		}
		if to != i {
			s.edges = append(s.edges, pair{i, to})
		}
	}
	if len(s.edges) > maxEdges {
		return capri.Conflict("the %d batches reached so far have more than %d dependencies among them; narrow the range", len(s.items), maxEdges)
	}
	return nil
}

// tooMany says how far the search came, and what most of it is.
func (s *search) tooMany(task int32, iv capri.Interval, why Reason, depth int) error {
	count := map[int32]int{}
	for _, t := range s.tasks {
		count[t]++
	}
	most := s.tasks[0]
	for t, n := range count {
		if n > count[most] || n == count[most] && t < most {
			most = t
		}
	}
	var first, last *Item
	for i := range s.items {
		if it := &s.items[i]; s.tasks[i] == most {
			if first == nil || it.Interval.End < first.Interval.End {
				first = it
			}
			if last == nil || it.Interval.End > last.Interval.End {
				last = it
			}
		}
	}
	return capri.Invalid("range", "", fmt.Sprintf(
		"at most %d batches, and this reaches more: so far %d of %d tasks, up to %d steps away, then %s %s (%s); most are of task %s, %d from %s to %s (%s). Narrow the range, go by logic or by data alone, or keep tasks out (cascade: false)",
		s.most, len(s.items), len(count), depth, s.g.tasks[task].Name, iv.BatchNo, why,
		s.g.tasks[most].Name, count[most], first.Interval.BatchNo, last.Interval.BatchNo, last.Reason))
}
