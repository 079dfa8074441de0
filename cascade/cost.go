package cascade

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"capri"
)

// Rate is what one batch takes.
type Rate struct {
	Minutes float64
	Guessed bool // nothing is known of it: a default
}

// Resources are what there is to run on.
type Resources struct {
	AtOnce int            // how many batches may run at once; 0: as many as there are slots for
	Slots  map[string]int // by pool
}

// Cost is what a plan takes. Minutes count batches that run, and those alone.
type Cost struct {
	Batches int
	Guessed int     // of these with a guessed rate
	Minutes float64 // all one after the other

	// Chain is the longest way through the plan, by index: however much there is to run on, it takes so long.
	Chain        []int32
	ChainMinutes float64

	// Ends is when the last batch ends, where nothing else runs: each starts as soon as it may and there is room,
	// the first in the plan first.
	Ends float64

	// NoRoom counts batches that need more slots than their pool has, and Stuck those that wait for such. Neither is in
	// Ends and Load.
	NoRoom, Stuck int

	Slots int // there are in the pools that the plan uses
	Load  []Load
}

// Load is how many slots are used on average during a stretch of Minutes that begins From minutes after the plan.
type Load struct{ From, Minutes, Slots float64 }

// Estimate adds up what a plan costs and plays it through. The plan is one of Reach, Sort or Keep. A pool that r does not
// name has no slots.
func Estimate(items []Item, rate func(*Item) Rate, r Resources) *Cost {
	p := &play{items: items, minutes: make([]float64, len(items)), end: make([]float64, len(items)), after: make([][]int32, len(items)),
		waits: make([]int, len(items)), pools: map[string]*room{}, turns: map[capri.TaskID]*turn{}}
	c := &Cost{}
	longest, steps, via, last := make([]float64, len(items)), make([]int, len(items)), make([]int32, len(items)), int32(-1)
	longer := func(a, b int32) bool { // where nobody knows what batches take, the chain is that of most of them
		return b < 0 || longest[a] > longest[b] || longest[a] == longest[b] && steps[a] > steps[b]
	}
	for i := range items {
		it := &items[i]
		via[i] = -1
		if it.NotRun != "" {
			continue
		}
		took := rate(it)
		c.Batches++
		if took.Guessed {
			c.Guessed++
		}
		c.Minutes += took.Minutes
		p.minutes[i], p.waits[i] = took.Minutes, len(it.Before)
		for _, b := range it.Before {
			p.after[b] = append(p.after[b], int32(i))
			if longer(b, via[i]) {
				via[i] = b
			}
		}
		longest[i], steps[i] = took.Minutes, 1
		if via[i] >= 0 {
			longest[i], steps[i] = longest[i]+longest[via[i]], steps[via[i]]+1
		}
		if longer(int32(i), last) {
			last = int32(i)
		}
		if p.pools[it.Task.Worker.Pool] == nil {
			there := r.Slots[it.Task.Worker.Pool]
			p.pools[it.Task.Worker.Pool] = &room{there: there, free: there}
			c.Slots += there
		}
	}
	if last >= 0 {
		c.ChainMinutes = longest[last]
	}
	for i := last; i >= 0; i = via[i] {
		c.Chain = append(c.Chain, i)
	}
	slices.Reverse(c.Chain)

	c.Ends, c.NoRoom = p.run(r.AtOnce)
	c.Stuck = c.Batches - p.done - c.NoRoom
	c.Load = p.load(c.Ends)
	return c
}

// play is a plan being played through: batches start in the order of the plan as soon as what they wait for has ended
// and their task, their pool and the whole have room.
type play struct {
	items   []Item
	minutes []float64
	end     []float64 // 0 where it did not run
	after   [][]int32
	waits   []int
	pools   map[string]*room
	turns   map[capri.TaskID]*turn
	running ends
	done    int
}

// room is a pool. Its first batch waits for enough slots, and those behind it with it.
type room struct {
	there, free int
	ready       ints
}

// turn is a task's limit of batches at once, and who waits for it.
type turn struct {
	running int
	waiting ints
}

func slotsOf(t *capri.Task) int       { return max(t.Worker.Slots, 1) }
func concurrencyOf(t *capri.Task) int { return cmp.Or(max(t.Limits.Concurrency, 0), math.MaxInt) }

func (p *play) run(atOnce int) (now float64, noRoom int) {
	if atOnce <= 0 {
		atOnce = math.MaxInt
	}
	pools := make([]*room, 0, len(p.pools))
	for _, r := range p.pools {
		pools = append(pools, r)
	}
	ready := func(i int32) {
		t := p.items[i].Task
		pool := p.pools[t.Worker.Pool]
		if slotsOf(t) > pool.there {
			noRoom++
			return
		}
		pool.ready.push(i)
	}
	for i := range p.items {
		if p.items[i].NotRun == "" && p.waits[i] == 0 {
			ready(int32(i))
		}
	}
	for {
		for p.running.Len() < atOnce && p.start(pools, now) {
		}
		if p.running.Len() == 0 {
			return now, noRoom
		}
		e := heap.Pop(&p.running).(ending)
		now = e.at
		p.done++
		t := p.items[e.item].Task
		p.pools[t.Worker.Pool].free += slotsOf(t)
		own := p.turns[t.ID]
		own.running--
		if len(own.waiting) > 0 {
			p.pools[t.Worker.Pool].ready.push(own.waiting.pop())
		}
		for _, next := range p.after[e.item] {
			if p.waits[next]--; p.waits[next] == 0 {
				ready(next)
			}
		}
	}
}

// start starts the first batch that may; false where there is none.
func (p *play) start(pools []*room, now float64) bool {
	for {
		var from *room
		for _, r := range pools {
			if len(r.ready) > 0 && slotsOf(p.items[r.ready[0]].Task) <= r.free && (from == nil || r.ready[0] < from.ready[0]) {
				from = r
			}
		}
		if from == nil {
			return false
		}
		i := from.ready.pop()
		t := p.items[i].Task
		own := p.turns[t.ID]
		if own == nil {
			own = &turn{}
			p.turns[t.ID] = own
		}
		if own.running >= concurrencyOf(t) {
			own.waiting.push(i)
			continue
		}
		own.running++
		from.free -= slotsOf(t)
		p.end[i] = now + p.minutes[i]
		heap.Push(&p.running, ending{p.end[i], i})
		return true
	}
}

// widths of the stretches of a load, in minutes.
var widths = []float64{1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440}

// maxLoad is about how many stretches people can look at.
const maxLoad = 60

// load adds up what runs when.
func (p *play) load(ends float64) []Load {
	if ends == 0 {
		return nil
	}
	width := widths[len(widths)-1]
	for _, w := range slices.Backward(widths) {
		if ends/w <= maxLoad {
			width = w
		}
	}
	for ends/width > 4*maxLoad { // years
		width *= 2
	}
	load := make([]Load, int(math.Ceil(ends/width)))
	for i := range load {
		load[i].From, load[i].Minutes = float64(i)*width, min(width, ends-float64(i)*width)
	}
	for i := range p.items {
		if p.end[i] == 0 {
			continue
		}
		slots, from, to := float64(slotsOf(p.items[i].Task)), p.end[i]-p.minutes[i], p.end[i]
		for n := int(from / width); n < len(load) && load[n].From < to; n++ {
			load[n].Slots += slots * (min(to, load[n].From+width) - max(from, load[n].From))
		}
	}
	for i := range load {
		load[i].Slots /= load[i].Minutes
	}
	return load
}

// ends is a heap of what runs, the first to end first.
type ends []ending

type ending struct {
	at   float64
	item int32
}

func (h ends) Len() int { return len(h) }
func (h ends) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].item < h[j].item
}
func (h ends) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *ends) Push(x any)   { *h = append(*h, x.(ending)) }
func (h *ends) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
