package cascade

import (
	"fmt"
	"testing"

	"capri"
	"capri/internal/testenv"
	"capri/internal/workload"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// plan makes items by hand: each waits for those named by index.
func plan(minutes map[string]float64, change func(*capri.Task), lines ...struct {
	task   string
	before []int32
}) ([]Item, func(*Item) Rate) {
	tasks := map[string]*capri.Task{}
	var items []Item
	for i, l := range lines {
		t := tasks[l.task]
		if t == nil {
			t = &capri.Task{ID: capri.TaskID(len(tasks) + 1), Spec: spec(l.task, capri.Day)}
			t.Worker.Pool, t.Worker.Slots = "default", 1
			if change != nil {
				change(t)
			}
			tasks[l.task] = t
		}
		items = append(items, Item{Task: t, Before: l.before, Interval: capri.Interval{End: capri.Instant(i), Mark: capri.Instant(i)}})
	}
	return items, func(it *Item) Rate {
		return Rate{Minutes: minutes[it.Task.Name], Guessed: minutes[it.Task.Name] == 7}
	}
}

type line = struct {
	task   string
	before []int32
}

func TestEstimate_adds_up_and_plays_through(t *testing.T) {
	minutes := map[string]float64{"a": 10, "b": 20, "c": 30, "d": 7}
	diamond := []line{{"a", nil}, {"b", []int32{0}}, {"c", []int32{0}}, {"d", []int32{1, 2}}}
	slots := func(n int) Resources { return Resources{Slots: map[string]int{"default": n, "other": 5}} }

	items, rate := plan(minutes, nil, diamond...)
	c := Estimate(items, rate, slots(2))
	assert.Equal(t, Cost{Batches: 4, Guessed: 1, Minutes: 67, Chain: []int32{0, 2, 3}, ChainMinutes: 47, Ends: 47, Slots: 2, Load: c.Load}, *c)
	assert.Equal(t, 47, len(c.Load))
	assert.Equal(t, Load{0, 1, 1}, c.Load[0])
	assert.Equal(t, Load{10, 1, 2}, c.Load[10])
	assert.Equal(t, Load{46, 1, 1}, c.Load[46])

	assert.Equal(t, 67.0, Estimate(items, rate, slots(1)).Ends, "one slot: one after the other")
	assert.Equal(t, 67.0, Estimate(items, rate, Resources{AtOnce: 1, Slots: map[string]int{"default": 9}}).Ends, "one at once")
	none := Estimate(items, rate, Resources{})
	assert.Equal(t, Cost{Batches: 4, Guessed: 1, Minutes: 67, Chain: []int32{0, 2, 3}, ChainMinutes: 47, NoRoom: 1, Stuck: 3}, *none, "no slots: nothing ever runs, and that is said")

	items, rate = plan(minutes, func(t *capri.Task) {
		if t.Name == "c" {
			t.Worker.Slots = 3
		}
	}, diamond...)
	assert.Equal(t, []int{1, 1}, []int{Estimate(items, rate, slots(2)).NoRoom, Estimate(items, rate, slots(2)).Stuck})
	assert.Equal(t, 67.0, Estimate(items, rate, slots(3)).Ends, "b and c do not fit together")

	items, rate = plan(minutes, func(t *capri.Task) { t.Limits.Concurrency = 2 }, line{"a", nil}, line{"a", nil}, line{"a", nil}, line{"b", nil})
	assert.Equal(t, 20.0, Estimate(items, rate, slots(9)).Ends, "two of a task at once")

	items, rate = plan(map[string]float64{}, nil, diamond...)
	assert.Equal(t, []int32{0, 1, 3}, Estimate(items, rate, slots(9)).Chain, "of nothing known the chain of most batches")

	items, rate = plan(minutes, nil, line{"a", nil}, line{"a", nil}, line{"a", nil}, line{"b", nil})
	items[3].NotRun = "disabled"
	assert.Equal(t, 30.0, Estimate(items, rate, slots(9)).Minutes, "what does not run costs nothing")
	assert.Equal(t, Cost{}, *Estimate(nil, rate, slots(1)))
}

// However it comes: never longer than one after the other, never shorter than the longest chain or what the slots can do,
// and, where slots are all that binds, not above Graham's bound. The load is what ran, and never more than there is.
func TestEstimate_keeps_the_bounds_of_list_scheduling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "items")
		minutes := map[string]float64{}
		var lines []line
		for i := range n {
			name := fmt.Sprintf("t%d", rapid.IntRange(0, 9).Draw(t, "task"))
			minutes[name] = float64(rapid.SampledFrom([]int{0, 1, 7, 30, 500, 5000}).Draw(t, "minutes"))
			l := line{task: name}
			for b := range i {
				if rapid.IntRange(0, 15).Draw(t, "waits") == 0 {
					l.before = append(l.before, int32(b))
				}
			}
			lines = append(lines, l)
		}
		bound := rapid.Bool().Draw(t, "limits")
		items, rate := plan(minutes, func(task *capri.Task) {
			if bound {
				task.Limits.Concurrency = rapid.IntRange(0, 3).Draw(t, "concurrency")
				task.Worker.Pool = rapid.SampledFrom([]string{"default", "other"}).Draw(t, "pool")
			}
		}, lines...)
		k := rapid.IntRange(1, 8).Draw(t, "slots")
		r := Resources{Slots: map[string]int{"default": k, "other": 3}}
		if bound {
			r.AtOnce = rapid.IntRange(0, 5).Draw(t, "at once")
		}
		c := Estimate(items, rate, r)
		chain := 0.0
		for i, at := range c.Chain {
			chain += minutes[items[at].Task.Name]
			if i > 0 {
				require.Contains(t, items[at].Before, c.Chain[i-1])
			}
		}
		used := 0.0
		for _, l := range c.Load {
			require.LessOrEqual(t, l.Slots, float64(c.Slots)+1e-9)
			used += l.Slots * l.Minutes
		}
		const eps = 1e-6
		require.InDelta(t, c.ChainMinutes, chain, eps)
		require.InDelta(t, c.Minutes, used, eps)
		require.GreaterOrEqual(t, c.Ends, c.ChainMinutes-eps)
		require.GreaterOrEqual(t, c.Ends, c.Minutes/float64(c.Slots)-eps)
		require.LessOrEqual(t, c.Ends, c.Minutes+eps)
		if !bound {
			require.LessOrEqual(t, c.Ends, c.Minutes/float64(k)+c.ChainMinutes*(1-1/float64(k))+eps)
		}
		require.Zero(t, c.NoRoom+c.Stuck)
	})
}

// The estimate of a recorded run is between what another program says of it.
func TestEstimate_of_recorded_pipelines(t *testing.T) {
	dir := testenv.Workloads(t)
	for _, load := range []string{"montage-dss10", "genome-2ch"} {
		recorded, err := workload.Load(dir, load)
		require.NoError(t, err)
		w, err := newWorld("UTC", 0, recorded.Specs(workload.Options{Unlimited: true})...)
		require.NoError(t, err)
		from, until := capri.InstantOf(recorded.Day), capri.InstantOf(recorded.Day.AddDate(0, 0, 1))
		var roots []Root
		for _, task := range w.tasks {
			roots = append(roots, Root{task.ID, []capri.Interval{w.c.Containing(capri.Day, from)}})
		}
		items, err := w.graph().Reach(roots, 0, until+3_600_000, 100_000)
		require.NoError(t, err)
		require.Len(t, items, recorded.Stats.Nodes)
		seconds := map[string]float64{}
		for _, task := range recorded.Tasks {
			seconds[task.Name] = task.RuntimeS
		}
		for _, slots := range []int{4, 16, 64} {
			c := Estimate(items, func(it *Item) Rate { return Rate{Minutes: seconds[it.Task.Name] / 60} }, Resources{Slots: map[string]int{"default": slots}})
			low, high, err := recorded.Stats.Bounds(slots)
			require.NoError(t, err)
			assert.InDelta(t, recorded.Stats.TotalS, c.Minutes*60, 0.1)
			assert.InDelta(t, recorded.Stats.CriticalPathS, c.ChainMinutes*60, 0.1)
			assert.GreaterOrEqual(t, c.Ends*60, low.Seconds()-0.1)
			assert.LessOrEqual(t, c.Ends*60, high.Seconds()+0.1)
		}
	}
}
