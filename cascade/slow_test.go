package cascade

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"capri"
	"capri/calendar"
	"capri/cron"
	"capri/lineage"

	"github.com/stretchr/testify/require"
)

// The obvious search: make every batch of every task with its conditions, as generation does, and follow the rows.
// It shares only lineage.Conditions with the quick one, which is what both must agree with.

type name struct {
	task string
	no   capri.BatchNo
}

type slowBatch struct {
	task *capri.Task
	iv   capri.Interval
	cond capri.Conditions
}

// world is definitions as tests write them.
type world struct {
	c     calendar.Calendar
	tasks []*capri.Task
	refs  map[capri.TaskID]lineage.Ref
}

// newWorld gives the tasks ids by their order, finds their parents, and lets them begin at first.
func newWorld(zone string, first capri.Instant, specs ...capri.Spec) (*world, error) {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	w := &world{c: calendar.New(loc), refs: map[capri.TaskID]lineage.Ref{}}
	ids := map[string]capri.TaskID{}
	for i := range specs {
		ids[specs[i].Name] = capri.TaskID(i + 1)
	}
	parsed := map[string]*cron.Expression{}
	for i, s := range specs {
		t := &capri.Task{ID: capri.TaskID(i + 1), Version: 1, Spec: s}
		t.Parents = slices.Clone(t.Parents)
		for k := range t.Parents {
			t.Parents[k].TaskID = ids[t.Parents[k].Task]
		}
		ref := lineage.Ref{ID: t.ID, Name: t.Name, Period: t.Period, First: first}
		if t.Period == capri.Cron {
			if parsed[t.Cron] == nil {
				if parsed[t.Cron], err = cron.Parse(t.Cron); err != nil {
					return nil, err
				}
			}
			ref.Cron = parsed[t.Cron]
		}
		w.tasks, w.refs[t.ID] = append(w.tasks, t), ref
	}
	return w, nil
}

func (w *world) graph() *Graph { return New(w.c, w.tasks, w.refs) }

func (w *world) task(name string) *capri.Task {
	return w.tasks[slices.IndexFunc(w.tasks, func(t *capri.Task) bool { return t.Name == name })]
}

// intervals lists all of a task with marks from..until, both included.
func (w *world) intervals(t *capri.Task, from, until capri.Instant) []capri.Interval {
	if t.Period.Calendar() {
		return slices.Collect(w.c.Marks(t.Period, from, until+1))
	}
	if t.Period == capri.Manual {
		return nil
	}
	return w.c.CronFires(w.refs[t.ID].Cron, from, until+1, 1_000_000)
}

// interval is what a batch_no of a task stands for.
func (w *world) interval(id capri.TaskID, no capri.BatchNo) (capri.Interval, error) {
	ref := w.refs[id]
	iv, err := w.c.Parse(ref.Period, no)
	if err != nil || ref.Cron == nil {
		return iv, err
	}
	return w.c.CronFires(ref.Cron, iv.Mark, iv.Mark+1, 1)[0], nil
}

// batches makes every batch from the tasks' first marks on.
func (w *world) batches(until capri.Instant) (map[name]*slowBatch, error) {
	all := map[name]*slowBatch{}
	lookup := func(id capri.TaskID) (lineage.Ref, bool) { r, ok := w.refs[id]; return r, ok }
	for _, t := range w.tasks {
		compiled, err := lineage.Compile(t)
		if err != nil {
			return nil, err
		}
		for _, iv := range w.intervals(t, w.refs[t.ID].First, until) {
			if at, err := w.c.ParseTime(t.Valid.From); err == nil && iv.Mark < at {
				continue
			}
			if at, err := w.c.ParseTime(t.Valid.To); err == nil && iv.Mark >= at {
				continue
			}
			cond, err := lineage.Conditions(w.c, compiled, iv, lookup)
			if err != nil {
				return nil, err
			}
			all[name{t.Name, iv.BatchNo}] = &slowBatch{t, iv, cond}
		}
	}
	return all, nil
}

// edges are all rows of all batches, both ways.
type edges struct {
	all      map[name]*slowBatch
	parents  map[name]map[name]By
	children map[name]map[name]By
}

func edgesOf(all map[name]*slowBatch) *edges {
	e := &edges{all: all, parents: map[name]map[name]By{}, children: map[name]map[name]By{}}
	names := map[capri.TaskID]string{}
	makers := map[capri.PathCondition][]name{}
	for n, b := range all {
		names[b.task.ID] = n.task
		e.parents[n], e.children[n] = map[name]By{}, map[name]By{}
		for _, p := range b.cond.Outputs {
			makers[p] = append(makers[p], n)
		}
	}
	for child, b := range all {
		row := func(parent name, by By) {
			if all[parent] != nil {
				e.parents[child][parent] |= by
				e.children[parent][child] |= by
			}
		}
		for _, p := range b.cond.Parents {
			row(name{names[p.TaskID], p.BatchNo}, Logic)
		}
		for _, p := range b.cond.Inputs {
			for _, maker := range makers[p] {
				row(maker, Data)
			}
		}
	}
	return e
}

// slow is what a rerun reaches: the transitive closure, and the edges inside it.
type slow struct {
	in     map[name]bool // whether it runs
	depth  map[name]int
	before map[name]map[name]By
}

func (e *edges) reach(roots []name, by By) *slow {
	s := &slow{in: map[name]bool{}, depth: map[name]int{}, before: map[name]map[name]By{}}
	for _, r := range roots {
		s.in[r], s.depth[r] = e.all[r].task.Enabled, 0
	}
	level := roots
	for depth := 1; len(level) > 0; depth++ {
		var next []name
		for _, n := range level {
			for c, kind := range e.children[n] {
				if _, seen := s.in[c]; !seen && s.in[n] && kind&by != 0 && e.all[c].task.Cascade {
					s.in[c], s.depth[c] = e.all[c].task.Enabled, depth
					next = append(next, c)
				}
			}
		}
		level = next
	}
	for n := range s.in {
		s.before[n] = map[name]By{}
		for p, kind := range e.parents[n] {
			if s.in[p] && p != n {
				s.before[n][p] = kind
			}
		}
	}
	return s
}

// compare holds a plan against the obvious search.
func compare(items []Item, want *slow) error {
	place := map[name]int{}
	of := func(it *Item) name { return name{it.Task.Name, it.Interval.BatchNo} }
	for i := range items {
		n := of(&items[i])
		if _, twice := place[n]; twice {
			return fmt.Errorf("%v is there twice", n)
		}
		place[n] = i
		runs, in := want.in[n]
		if !in {
			return fmt.Errorf("%v is not to be reached (%s)", n, items[i].Reason)
		}
		if runs != (items[i].NotRun == "") {
			return fmt.Errorf("%v: not run %q, want it to run: %t", n, items[i].NotRun, runs)
		}
		if items[i].Depth != want.depth[n] {
			return fmt.Errorf("%v is %d steps away, want %d", n, items[i].Depth, want.depth[n])
		}
	}
	var missing []name
	for n := range want.in {
		if _, ok := place[n]; !ok {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		slices.SortFunc(missing, func(a, b name) int { return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.no, b.no)) })
		return fmt.Errorf("%d are missing, such as %v", len(missing), missing[:min(len(missing), 5)])
	}
	for i := range items {
		n := of(&items[i])
		if len(items[i].Before) != len(want.before[n]) {
			return fmt.Errorf("%v waits for %d of the others, want %d", n, len(items[i].Before), len(want.before[n]))
		}
		for _, b := range items[i].Before {
			if int(b) >= i {
				return fmt.Errorf("%v stands before %v, which it waits for", n, of(&items[b]))
			}
			if _, ok := want.before[n][of(&items[b])]; !ok {
				return fmt.Errorf("%v does not wait for %v", n, of(&items[b]))
			}
		}
		if r := items[i].Reason; r.By == 0 != (want.depth[n] == 0) {
			return fmt.Errorf("%v: %s", n, r)
		} else if r.By != 0 && want.before[n][name{r.Task, r.BatchNo}]&r.By == 0 {
			return fmt.Errorf("%v is in %s, which is no edge", n, r)
		}
	}
	return nil
}

func at(t require.TestingT, c calendar.Calendar, text string) capri.Instant {
	v, err := c.ParseTime(text)
	require.NoError(t, err)
	return v
}

func spec(name string, p capri.Period, change ...func(*capri.Spec)) capri.Spec {
	s := capri.Spec{Name: name, Period: p, Cascade: true, Enabled: true}
	for _, c := range change {
		c(&s)
	}
	return s
}
