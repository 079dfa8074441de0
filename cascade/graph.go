package cascade

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"capri"
	"capri/calendar"
	"capri/cron"
	"capri/lineage"
)

// Graph is the definitions, read once, with the ways from parents to children. It never changes and may be shared.
type Graph struct {
	c       calendar.Calendar
	tasks   []task // by name
	byID    map[capri.TaskID]int32
	logic   [][]group      // by parent
	ways    []capri.Parent // an example of each
	readers *lineage.Readers
	broken  []Broken
}

// task is one definition.
type task struct {
	*capri.Task
	compiled *lineage.Compiled
	ref      lineage.Ref
	from, to capri.Instant // marks in which it takes part: from included, to excluded, 0 open
}

// group is the children of one parent that wait for it in the same way.
type group struct {
	way   int32       // which: tasks all over the graph share a few
	child lineage.Ref // any of the children
	tasks []int32
}

// way is all that decides which intervals of a child wait for which of a parent.
type way struct {
	parent     capri.Period
	parentCron *cron.Expression
	child      capri.Period
	childCron  *cron.Expression
	from, to   edge
	lastOne    bool
}

// edge is a window's edge that may be left out, in a form that can be compared.
type edge struct {
	set bool
	capri.Offset
}

func edgeOf(o *capri.Offset) edge {
	if o == nil {
		return edge{}
	}
	return edge{true, *o}
}

// Broken is a task whose definition cannot be used. No cascade knows whether it would reach it.
type Broken struct {
	Task *capri.Task
	Err  error
}

// New reads the definitions. refs says of each when its first batch is due (birth.Refs of store.ParentRefs). A task that
// cannot be read is listed in Broken and costs the others nothing.
func New(c calendar.Calendar, tasks []*capri.Task, refs map[capri.TaskID]lineage.Ref) *Graph {
	g := &Graph{c: c, byID: make(map[capri.TaskID]int32, len(tasks)), readers: lineage.NewReaders(c)}
	sorted := slices.Clone(tasks)
	slices.SortFunc(sorted, func(a, b *capri.Task) int { return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	read := make([]task, len(sorted))
	errs := make([]error, len(sorted))
	workers := runtime.GOMAXPROCS(0)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < len(sorted); i += workers {
				read[i], errs[i] = compile(c, sorted[i], refs)
			}
		})
	}
	all.Wait()
	for i, t := range sorted {
		read, err := read[i], errs[i]
		if err != nil {
			g.broken = append(g.broken, Broken{t, err})
			continue
		}
		n := len(g.tasks)
		g.tasks = append(g.tasks, read)
		g.byID[t.ID] = int32(n)
		g.readers.Add(n, read.compiled, read.ref)
	}
	g.link()
	return g
}

func compile(c calendar.Calendar, t *capri.Task, refs map[capri.TaskID]lineage.Ref) (task, error) {
	if t.Broken != "" {
		return task{}, capri.Conflict("task %s: %s", t.Name, t.Broken)
	}
	ref, ok := refs[t.ID]
	switch {
	case !ok, ref.Period != t.Period:
		return task{}, capri.Conflict("task %s was changed while the definitions were read; ask again", t.Name)
	case ref.Broken != nil:
		return task{}, ref.Broken
	}
	compiled, err := lineage.Compile(t)
	if err != nil {
		return task{}, fmt.Errorf("task %s: %w", t.Name, err)
	}
	out := task{Task: t, compiled: compiled, ref: ref}
	for _, v := range []struct {
		field, text string
		at          *capri.Instant
	}{{"valid.from", t.Valid.From, &out.from}, {"valid.to", t.Valid.To, &out.to}} {
		if v.text == "" {
			continue
		}
		if *v.at, err = c.ParseTime(v.text); err != nil {
			return task{}, fmt.Errorf("task %s: %w", t.Name, capri.Invalid(v.field, v.text, "business time"))
		}
	}
	return out, nil
}

// link finds for each parent its children, those that wait in the same way together.
func (g *Graph) link() {
	g.logic = make([][]group, len(g.tasks))
	ways := map[way]int32{}
	groups := map[[2]int32]int{} // by parent and way
	for child := range g.tasks {
		t := &g.tasks[child]
		for _, p := range t.Parents {
			parent, ok := g.byID[p.TaskID]
			if !ok || g.tasks[parent].Period == capri.Manual || t.Period == capri.Manual {
				continue
			}
			of := &g.tasks[parent].ref
			w := way{of.Period, of.Cron, t.ref.Period, t.ref.Cron, edgeOf(p.From), edgeOf(p.To), p.Policy == capri.LastOne}
			n, ok := ways[w]
			if !ok {
				n = int32(len(ways))
				ways[w] = n
				g.ways = append(g.ways, p)
			}
			at := [2]int32{parent, n}
			i, ok := groups[at]
			if !ok {
				i = len(g.logic[parent])
				groups[at] = i
				g.logic[parent] = append(g.logic[parent], group{way: n, child: t.ref})
			}
			if of := &g.logic[parent][i]; len(of.tasks) == 0 || of.tasks[len(of.tasks)-1] != int32(child) {
				of.tasks = append(of.tasks, int32(child))
			}
		}
	}
}

// Broken lists the tasks that cannot be used: whether they would be reached nobody can say.
func (g *Graph) Broken() []Broken { return g.broken }

func (g *Graph) task(id capri.TaskID) (*task, error) {
	if i, ok := g.byID[id]; ok {
		return &g.tasks[i], nil
	}
	for _, b := range g.broken {
		if b.Task.ID == id {
			return nil, b.Err
		}
	}
	return nil, capri.NotFound("there is no task with id %d", id)
}
