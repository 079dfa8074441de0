package workload

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/birth"
	"capri/calendar"
	"capri/lineage"
	"capri/sql/store"
)

// Batch names a batch as people do.
type Batch struct {
	Task string
	No   capri.BatchNo
}

func (b Batch) String() string { return b.Task + "/" + string(b.No) }

// Window is every batch whose data interval lies inside a span of time, with what they wait for.
type Window struct {
	From, To time.Time
	Inside   map[Batch]*Node
	Outside  []Batch               // parents' batches that are waited for and not inside
	External []capri.PathCondition // inputs that no batch inside produces

	OutsideConditions int // distinct pairs of a batch inside and a parent's batch outside

	specs map[string]*capri.Spec
}

// Node is one batch of a window.
type Node struct {
	Batch
	Period  capri.Period
	Seconds float64 // recorded runtime
	Parents []Batch // inside
	level   int
	longest float64 // seconds of the longest way that ends with it
}

// In works out the window of one day.
func (w *Workload) In(o Options) (*Window, error) {
	specs := w.Specs(o)
	win, err := newWindow(specs, w.Day, w.Day.AddDate(0, 0, 1))
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", w.Name, err)
	}
	seconds := map[string]float64{}
	for i := range w.Tasks {
		seconds[w.Tasks[i].Name] = w.Tasks[i].RuntimeS
	}
	for _, n := range win.Inside {
		n.Seconds = seconds[n.Task]
	}
	return win, win.walk()
}

func newWindow(specs []capri.Spec, from, to time.Time) (*Window, error) {
	win := &Window{From: from, To: to, Inside: map[Batch]*Node{}, specs: map[string]*capri.Spec{}}
	c := calendar.New(time.UTC)
	ids := map[string]capri.TaskID{}
	names := map[capri.TaskID]string{}
	refs := map[capri.TaskID]lineage.Ref{}
	for i := range specs {
		id := capri.TaskID(i + 1)
		ids[specs[i].Name], names[id], win.specs[specs[i].Name] = id, specs[i].Name, &specs[i]
		refs[id] = lineage.Ref{ID: id, Name: specs[i].Name, Period: specs[i].Period}
	}
	maker := birth.New(c, refs)
	type wait struct {
		child  Batch
		parent Batch
	}
	var waits []wait
	made, needed := map[capri.PathCondition]bool{}, map[capri.PathCondition]bool{}
	for i := range specs {
		t := &capri.Task{ID: ids[specs[i].Name], Version: 1, Spec: specs[i]}
		t.Parents = slices.Clone(t.Parents)
		for j := range t.Parents {
			if t.Parents[j].TaskID = ids[t.Parents[j].Task]; t.Parents[j].TaskID == 0 {
				return nil, fmt.Errorf("task %s waits for %s, which is not recorded", t.Name, t.Parents[j].Task)
			}
		}
		compiled, err := birth.Compile(t)
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", t.Name, err)
		}
		for iv := c.Containing(t.Period, capri.InstantOf(from)); iv.Start < capri.InstantOf(to); iv = c.Shift(t.Period, iv, 1) {
			if iv.Start < capri.InstantOf(from) || iv.End > capri.InstantOf(to) {
				continue
			}
			conditions, err := maker.Conditions(compiled, iv)
			if err != nil {
				return nil, fmt.Errorf("task %s, batch %s: %w", t.Name, iv.BatchNo, err)
			}
			n := &Node{Batch: Batch{t.Name, iv.BatchNo}, Period: t.Period}
			win.Inside[n.Batch] = n
			for _, p := range conditions.Parents {
				waits = append(waits, wait{n.Batch, Batch{names[p.TaskID], p.BatchNo}})
			}
			for _, p := range conditions.Inputs {
				needed[p] = true
			}
			for _, p := range conditions.Outputs {
				made[p] = true
			}
		}
	}
	seen, outside := map[wait]bool{}, map[Batch]bool{}
	for _, x := range waits {
		if seen[x] {
			continue
		}
		seen[x] = true
		if win.Inside[x.parent] != nil {
			n := win.Inside[x.child]
			n.Parents = append(n.Parents, x.parent)
			continue
		}
		win.OutsideConditions++
		if !outside[x.parent] {
			outside[x.parent] = true
			win.Outside = append(win.Outside, x.parent)
		}
	}
	for p := range needed {
		if !made[p] {
			win.External = append(win.External, p)
		}
	}
	slices.SortFunc(win.Outside, func(x, y Batch) int { return cmp.Or(cmp.Compare(x.Task, y.Task), cmp.Compare(x.No, y.No)) })
	slices.SortFunc(win.External, func(x, y capri.PathCondition) int {
		return cmp.Or(strings.Compare(x.Path, y.Path), strings.Compare(x.Flag, y.Flag))
	})
	return win, nil
}

// walk finds each batch's level and longest way.
func (w *Window) walk() error {
	const open = -1
	var visit func(n *Node) error
	visit = func(n *Node) error {
		if n.level == open {
			return fmt.Errorf("batch %s waits for itself", n.Batch)
		}
		if n.level > 0 {
			return nil
		}
		n.level = open
		level, longest := 0, 0.0
		for _, p := range n.Parents {
			parent := w.Inside[p]
			if err := visit(parent); err != nil {
				return err
			}
			level, longest = max(level, parent.level), max(longest, parent.longest)
		}
		n.level, n.longest = level+1, longest+n.Seconds
		return nil
	}
	for _, n := range w.Inside {
		if err := visit(n); err != nil {
			return err
		}
	}
	return nil
}

// Figures are the window's own, to be held against the recorded ones.
func (w *Window) Figures() Figures {
	f := Figures{Nodes: len(w.Inside)}
	children, levels := map[Batch]int{}, map[int]int{}
	for _, n := range w.Inside {
		for _, p := range n.Parents {
			children[p]++
			f.MaxChildren = max(f.MaxChildren, children[p])
		}
		if len(n.Parents) == 0 {
			f.Roots++
		}
		levels[n.level]++
		f.Edges += len(n.Parents)
		f.MaxParents = max(f.MaxParents, len(n.Parents))
		f.Depth = max(f.Depth, n.level)
		f.WidestLevel = max(f.WidestLevel, levels[n.level])
		f.TotalS += n.Seconds
		f.CriticalPathS = max(f.CriticalPathS, n.longest)
	}
	f.Leaves = len(w.Inside) - len(children)
	return f
}

// ByPeriod counts the batches of each period.
func (w *Window) ByPeriod() map[string]int {
	out := map[string]int{}
	for _, n := range w.Inside {
		out[n.Period.String()]++
	}
	return out
}

// Check holds the window against the recorded figures.
func (w *Window) Check(s *Stats) error {
	got, want := w.Figures(), s.Figures
	for _, f := range []*Figures{&got, &want} { // they were rounded
		f.TotalS, f.CriticalPathS = float64(int(f.TotalS*10+0.5)), float64(int(f.CriticalPathS*10+0.5))
	}
	if got != want {
		return fmt.Errorf("the window has %+v, recorded is %+v", got, want)
	}
	for p, n := range s.ByPeriod {
		if w.ByPeriod()[p] != n {
			return fmt.Errorf("the window has %d %s batches, recorded are %d", w.ByPeriod()[p], p, n)
		}
	}
	if w.OutsideConditions != s.Outside {
		return fmt.Errorf("the window has %d conditions on batches outside, recorded are %d", w.OutsideConditions, s.Outside)
	}
	return nil
}

// MakeInputs puts the external inputs there. Directories are everybody's, since the jobs, which run under another
// account, write beside.
func (w *Window) MakeInputs() error {
	made := map[string]bool{}
	for _, p := range w.External {
		name := p.Path
		if p.Flag != "" {
			name += "/" + p.Flag
		}
		if err := makeDir(filepath.Dir(name), made); err != nil {
			return err
		}
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func makeDir(dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if _, err := os.Stat(dir); err != nil {
		if err := makeDir(filepath.Dir(dir), made); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o777); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o777); err != nil { // whatever the umask said
			return err
		}
	}
	made[dir] = true
	return nil
}

// Prepare inserts the parents' batches outside the window as succeeded, so that what waits for them need not: the
// definitions must be stored already. It returns how many there are.
func (w *Window) Prepare(ctx context.Context, s *store.Store) (int, error) {
	if len(w.Outside) == 0 {
		return 0, nil
	}
	rows, err := s.ParentRefs(ctx)
	if err != nil {
		return 0, err
	}
	c := calendar.New(time.UTC)
	maker := birth.New(c, birth.Refs(rows))
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	batches := make([]*capri.NewBatch, len(w.Outside))
	for i, b := range w.Outside {
		t, err := s.TaskByName(ctx, b.Task)
		if err != nil {
			return 0, err
		}
		compiled, err := birth.Compile(t)
		if err != nil {
			return 0, err
		}
		iv, err := c.Parse(t.Period, b.No)
		if err != nil {
			return 0, err
		}
		nb, err := maker.Batch(compiled, iv, capri.OriginMark, 0, now)
		if err != nil {
			return 0, err
		}
		nb.State, nb.FinishState, nb.Message = capri.Finished, capri.Success, "was there before the replayed day"
		nb.Conditions = capri.Conditions{Outputs: nb.Outputs} // what it waited for is over
		batches[i] = nb
	}
	in, err := s.InsertBatches(ctx, store.ByPerson("replay"), batches, nil)
	return len(in.Made), err
}
