package lineage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"capri"
	"capri/calendar"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Real pipelines, and how many edges a second program found between their batches. The files are not ours to
// copy, so they are read from where they are.
func workload(t testing.TB, name string) []*capri.Task {
	dir := os.Getenv("CAPRI_WORKLOADS")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "workloads")
	}
	data, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if os.IsNotExist(err) {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: there is no %s.json in %s; set CAPRI_WORKLOADS to the folder that has it", name, dir)
	}
	require.NoError(t, err)

	var file struct {
		Tasks []struct {
			Name    string
			Period  capri.Period
			Parents []struct {
				Task, Rule string
				Offset     int
				From, To   any
			}
			Inputs, Outputs []json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(data, &file))
	ids := map[string]capri.TaskID{}
	for i, in := range file.Tasks {
		ids[in.Name] = capri.TaskID(i + 1)
	}
	var tasks []*capri.Task
	for _, in := range file.Tasks {
		task := &capri.Task{ID: ids[in.Name], Spec: capri.Spec{Name: in.Name, Period: in.Period}}
		for _, p := range in.Parents {
			dep := capri.Parent{Task: p.Task, TaskID: ids[p.Task]}
			switch {
			case p.Rule == "range":
				dep.From, dep.To = edgeOf(t, p.From), edgeOf(t, p.To)
			case p.Rule == "coarser" && p.Offset != 0:
				dep.From = &capri.Offset{End: true, N: p.Offset}
				dep.To = dep.From
			}
			task.Parents = append(task.Parents, dep)
		}
		for _, raw := range in.Inputs {
			path, flag, from, to, unit := pathOf(t, raw)
			task.Inputs = append(task.Inputs, capri.Input{Path: path, Flag: flag, Unit: unit, From: from, To: to})
		}
		for _, raw := range in.Outputs {
			path, flag, _, _, _ := pathOf(t, raw)
			task.Outputs = append(task.Outputs, capri.Output{Path: path, Flag: flag})
		}
		tasks = append(tasks, task)
	}
	return tasks
}

// pathOf reads {"path", "flag", "unit", "from", "to"}, or a plain path that is itself the datum.
func pathOf(t testing.TB, raw json.RawMessage) (path, flag string, from, to *capri.Offset, unit capri.Period) {
	if json.Unmarshal(raw, &path) == nil {
		return path, capri.FlagNone, nil, nil, 0
	}
	var p struct {
		Path, Flag string
		Unit       capri.Period
		From, To   any
	}
	require.NoError(t, json.Unmarshal(raw, &p))
	return p.Path, p.Flag, edgeOf(t, p.From), edgeOf(t, p.To), p.Unit
}

// edgeOf reads a window's edge, a number or "end+3".
func edgeOf(t testing.TB, v any) *capri.Offset {
	switch v := v.(type) {
	case nil:
		return nil
	case float64:
		return offset(t, strconv.Itoa(int(v)))
	}
	return offset(t, v.(string))
}

func TestRealPipelines(t *testing.T) {
	for _, tt := range []struct {
		workload, window, from, to string
		batches, inside, outside   int
	}{
		{"wikimedia-refinery", "a day", "2026-06-10", "2026-06-11", 484, 1_336, 303},
		{"wikimedia-refinery", "a month", "2026-06-01", "2026-07-01", 14_597, 57_602, 1_040},
		{"montage-dss10", "a day", "2026-06-10", "2026-06-11", 472, 1_284, 0},
		{"genome-2ch", "a day", "2026-06-10", "2026-06-11", 82, 106, 0},
	} {
		t.Run(tt.workload+", "+tt.window, func(t *testing.T) {
			c := in(t, "UTC")
			tasks := workload(t, tt.workload)
			require.NoError(t, Cycle(c, tasks), "real pipelines have no cycle")
			refs := map[capri.TaskID]Ref{}
			for _, task := range tasks {
				refs[task.ID] = Ref{ID: task.ID, Name: task.Name, Period: task.Period}
			}
			lookup := func(id capri.TaskID) (Ref, bool) { r, ok := refs[id]; return r, ok }

			type key struct {
				task capri.TaskID
				no   capri.BatchNo
			}
			batches := map[key]capri.Conditions{}
			for _, task := range tasks {
				compiled, err := Compile(task)
				require.NoError(t, err)
				for _, iv := range inside(c, task.Period, at(t, c, tt.from), at(t, c, tt.to)) {
					batches[key{task.ID, iv.BatchNo}], err = Conditions(c, compiled, iv, lookup)
					require.NoError(t, err)
				}
			}
			within, outside := map[[2]key]bool{}, map[[2]key]bool{}
			for child, conditions := range batches {
				assert.Empty(t, conditions.Notes)
				for _, p := range conditions.Parents {
					parent := key{p.TaskID, p.BatchNo}
					if _, ok := batches[parent]; ok {
						within[[2]key{child, parent}] = true
					} else {
						outside[[2]key{child, parent}] = true
					}
				}
			}
			assert.Len(t, batches, tt.batches, "batches")
			assert.Len(t, within, tt.inside, "parent edges inside the window")
			assert.Len(t, outside, tt.outside, "conditions on batches outside")
		})
	}
}

// inside lists the intervals that lie wholly in [from,to).
func inside(c calendar.Calendar, p capri.Period, from, to capri.Instant) []capri.Interval {
	var ivs []capri.Interval
	for iv := c.Containing(p, from); iv.End <= to; iv = c.Shift(p, iv, 1) {
		if iv.Start >= from {
			ivs = append(ivs, iv)
		}
	}
	return ivs
}

// A real pipeline's children are found again from its parents.
func TestRealPipelinesBackwards(t *testing.T) {
	c := in(t, "UTC")
	tasks := workload(t, "wikimedia-refinery")
	from, to := at(t, c, "2026-06-09"), at(t, c, "2026-06-12")
	until := at(t, c, "2026-09-01")
	for _, child := range tasks {
		for _, dep := range child.Parents {
			parent := tasks[dep.TaskID-1]
			pr, cr := Ref{ID: parent.ID, Period: parent.Period}, Ref{ID: child.ID, Period: child.Period}
			for _, iv := range inside(c, parent.Period, from, to) {
				for _, ch := range Children(c, pr, iv, cr, dep, until) {
					if !slices.Contains(parentsOf(c, cr, ch, pr, dep), iv) {
						t.Errorf("%s %s does not wait for %s %s", child.Name, ch.BatchNo, parent.Name, iv.BatchNo)
					}
				}
			}
			for _, ch := range inside(c, child.Period, from, to) {
				for _, iv := range parentsOf(c, cr, ch, pr, dep) {
					if !slices.Contains(Children(c, pr, iv, cr, dep, until), ch) {
						t.Errorf("%s %s is not a child of %s %s", child.Name, ch.BatchNo, parent.Name, iv.BatchNo)
					}
				}
			}
		}
	}
}
