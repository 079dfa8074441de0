package cascade

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"capri"
)

// Keep leaves out the items that are not kept. What waited for them waits for what there is of them.
func Keep(items []Item, keep func(*Item) bool) []Item {
	at := make([]int32, len(items))
	kept := make([]Item, 0, len(items))
	for i := range items {
		at[i] = -1
		if keep(&items[i]) {
			at[i] = int32(len(kept))
			kept = append(kept, items[i])
		}
	}
	for i := range kept {
		var before []int32
		for _, b := range kept[i].Before {
			if at[b] >= 0 {
				before = append(before, at[b])
			}
		}
		kept[i].Before = before
	}
	return kept
}

// Sort puts items in the order in which they are to run: each after all that it waits for, else by schedule time, the
// oldest or the newest first, else by the task's name.
func Sort(items []Item, newest bool) ([]Item, error) {
	var edges []pair
	for i := range items {
		for _, b := range items[i].Before {
			edges = append(edges, pair{b, int32(i)})
		}
	}
	return sorted(items, edges, newest)
}

// sorted is Sort by edges. It always takes the first, by rank, of those that wait for nothing more.
func sorted(items []Item, edges []pair, newest bool) ([]Item, error) {
	byRank := ranks(items, newest)
	rank := make([]int32, len(items))
	for r, i := range byRank {
		rank[i] = int32(r)
	}
	after := rows(len(items), edges, func(e pair) (row, value int32) { return e.from, e.to })
	waits := make([]int32, len(items))
	for _, e := range edges {
		waits[e.to]++
	}

	var ready ints
	for i, n := range waits {
		if n == 0 {
			ready = append(ready, rank[i])
		}
	}
	heap.Init(&ready)
	order := make([]int32, 0, len(items)) // old indices
	for len(ready) > 0 {
		i := byRank[ready.pop()]
		order = append(order, i)
		for _, to := range after.of(i) {
			if waits[to]--; waits[to] == 0 {
				ready.push(rank[to])
			}
		}
	}
	if len(order) < len(items) {
		return nil, ring(items, edges, waits)
	}

	place := make([]int32, len(items))
	for n, i := range order {
		place[i] = int32(n)
	}
	before := rows(len(items), edges, func(e pair) (row, value int32) { return place[e.to], place[e.from] })
	out := make([]Item, len(items))
	for n, i := range order {
		out[n] = items[i]
		b := before.of(int32(n))
		slices.Sort(b)
		out[n].Before = slices.Compact(b) // by logic and by data at once
	}
	return out, nil
}

// ranks lists the indices of the items by schedule time and name.
func ranks(items []Item, newest bool) []int32 {
	order := make([]int32, len(items))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		x, y := &items[a], &items[b]
		marks := cmp.Compare(x.Interval.Mark, y.Interval.Mark)
		if newest {
			marks = -marks
		}
		return cmp.Or(marks, strings.Compare(x.Task.Name, y.Task.Name), cmp.Compare(x.Interval.End, y.Interval.End))
	})
	return order
}

// table is a list of numbers for each row, all in one piece of memory.
type table struct{ begin, values []int32 }

func rows(n int, edges []pair, cell func(pair) (row, value int32)) table {
	t := table{begin: make([]int32, n+1), values: make([]int32, len(edges))}
	for _, e := range edges {
		row, _ := cell(e)
		t.begin[row+1]++
	}
	for i := range n {
		t.begin[i+1] += t.begin[i]
	}
	next := slices.Clone(t.begin)
	for _, e := range edges {
		row, value := cell(e)
		t.values[next[row]] = value
		next[row]++
	}
	return t
}

func (t table) of(row int32) []int32 {
	return t.values[t.begin[row]:t.begin[row+1]:t.begin[row+1]]
}

// ring names batches that wait for one another. By parents alone there are none (lineage.Cycle), but what tasks read and
// write nobody checks.
func ring(items []Item, edges []pair, waits []int32) error {
	before := make(map[int32]int32)
	for _, e := range edges {
		if waits[e.from] > 0 && waits[e.to] > 0 { // an item with no way out waits too, but going back it is never met
			if have, ok := before[e.to]; !ok || e.from < have {
				before[e.to] = e.from
			}
		}
	}
	// From any item that waits, going back ends on a ring.
	at := slices.IndexFunc(waits, func(n int32) bool { return n > 0 })
	seen := map[int32]bool{}
	i := int32(at)
	for !seen[i] {
		seen[i] = true
		i = before[i]
	}
	var names []string
	name := func(i int32) string { return items[i].Task.Name + " " + string(items[i].Interval.BatchNo) }
	for j := before[i]; ; j = before[j] {
		names = append(names, name(j))
		if j == i {
			break
		}
	}
	const shown = 12
	if n := len(names); n > shown {
		names = append(append(names[:shown-1:shown-1], fmt.Sprintf("%d more", n-shown)), names[n-1])
	}
	return capri.Conflict("these batches wait for one another, so none of them could ever start: %s waits for %s; by parents that is refused when a task is saved, so one of them reads a path that another makes. Change that path, or leave one of the tasks out",
		name(i), strings.Join(names, ", which waits for "))
}

// ints is a heap of numbers.
type ints []int32

func (h ints) Len() int           { return len(h) }
func (h ints) Less(i, j int) bool { return h[i] < h[j] }
func (h ints) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *ints) Push(x any)        { *h = append(*h, x.(int32)) }
func (h *ints) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func (h *ints) push(x int32) { heap.Push(h, x) }
func (h *ints) pop() int32   { return heap.Pop(h).(int32) }
