package checker

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// limits asks twice: the events, which say what was promised, and the jobs, which say what happened.
//
// By events: dispatch counts what it reads, and places after it. Whatever it counted as gone had committed by then, and
// its event's id was taken before that; so at each assignment, everything with a smaller id that left is rightly gone, and
// what is still counted here dispatch counted as well.
func limits(h *History, r *Result) {
	h.limitsByEvents(r)
	h.limitsByJobs(r)
}

func (h *History) capacity(name string) Capacity {
	if c, ok := h.Run.Nodes[name]; ok {
		return c
	}
	n := h.nodes[name]
	return Capacity{n.slots, n.memory}
}

func (h *History) limitsByEvents(r *Result) {
	inHand := map[int64]string{} // batch → node
	byTask := map[int64]int{}
	slots, memory := map[string]int{}, map[string]int{}
	most := -1
	if h.Run.MaxRunning != nil {
		most = *h.Run.MaxRunning
	}
	stops := h.stops()
	for _, e := range h.events {
		b := h.byID[e.batch]
		if b == nil {
			continue
		}
		in := e.state == assigned || e.state == running
		if node, was := inHand[b.id]; was && (!in || node != e.node) {
			delete(inHand, b.id)
			byTask[b.task]--
			slots[node] -= max(1, b.slots)
			memory[node] -= b.memory
		}
		if _, is := inHand[b.id]; is || !in {
			continue
		}
		r.Checked++
		inHand[b.id] = e.node
		byTask[b.task]++
		slots[e.node] += max(1, b.slots)
		memory[e.node] += b.memory
		c := h.capacity(e.node)
		switch {
		case byTask[b.task] > max(1, b.concurrency):
			r.violated("%s was assigned (event %d) as number %d of its task; its limit is %d", h.name(b), e.id, byTask[b.task], max(1, b.concurrency))
		case c.Slots > 0 && slots[e.node] > c.Slots:
			r.violated("%s was assigned to %s (event %d), which then holds %d slots of %d", h.name(b), e.node, e.id, slots[e.node], c.Slots)
		case c.MemoryMB > 0 && memory[e.node] > c.MemoryMB:
			r.violated("%s was assigned to %s (event %d), which then holds %d MB of %d", h.name(b), e.node, e.id, memory[e.node], c.MemoryMB)
		case most >= 0 && len(inHand) > most:
			r.violated("%s was assigned (event %d) as number %d; max_running is %d", h.name(b), e.id, len(inHand), most)
		}
		for _, p := range stops {
			if e.state == assigned && e.at > p.from+h.Run.slack() && e.at < p.to && h.stopped(p.of, b, e.node) {
				r.violated("%s was assigned at %s (event %d); %s was paused, or its breaker open, from %s to %s", h.name(b), h.when(e.at), e.id, p.of, h.when(p.from), h.when(p.to))
			}
		}
	}
}

// span is a time in which people, or a breaker, kept batches from being placed.
type span struct {
	kind     string // pause, breaker
	of       string // dispatch, or "group g", "node n", "task t"
	from, to int64
}

// stops are the times in which dispatch, a group, a node or a task was paused, or its breaker open, as people's actions
// tell. A breaker that opened by itself is no act of anybody: its alert, written with it, tells.
func (h *History) stops() []span {
	acts := slices.Clone(h.actions)
	for _, a := range h.alerts {
		if t := h.tasks[a.task]; a.kind == "breaker_opened" && t != nil {
			acts = append(acts, action{at: a.at, action: "breaker_open", target: "task " + t.name})
		}
	}
	slices.SortStableFunc(acts, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	var out []span
	open := map[[2]string]int{} // index in out + 1
	for _, a := range acts {
		kind := map[string]string{"dispatch_pause": "pause", "dispatch_resume": "pause", "breaker_open": "breaker", "breaker_close": "breaker"}[a.action]
		if kind == "" {
			continue
		}
		k := [2]string{kind, a.target}
		if n := open[k]; n > 0 {
			out[n-1].to = min(out[n-1].to, a.at)
		}
		if delete(open, k); a.action == "dispatch_resume" || a.action == "breaker_close" {
			continue
		}
		s := span{kind, a.target, a.at, h.Run.End}
		if _, until, ok := strings.Cut(a.detail, "(until "); ok {
			if t, err := time.Parse(time.RFC3339, strings.TrimSuffix(until, ")")); err == nil {
				s.to = t.UnixMilli()
			}
		}
		out = append(out, s)
		open[k] = len(out)
	}
	return out
}

// stopped tells whether a stop is of a batch on a node.
func (h *History) stopped(of string, b *batch, node string) bool {
	if of == "dispatch" || of == "node "+node {
		return true
	}
	t := h.tasks[b.task]
	return t != nil && (of == "task "+t.name || of == "group "+t.group)
}

// limitsByJobs sweeps over the jobs whose start and end were both seen, on each kernel boot. Which of several was
// placed first is not seen, so the largest of their limits counts.
func (h *History) limitsByJobs(r *Result) {
	type moment struct {
		at    int64
		start bool
		job   ran
		b     *batch
	}
	byBoot := map[string][]moment{}
	for _, all := range h.jobs() {
		for _, j := range all {
			if b := h.byID[j.start.Batch]; b != nil && j.end != nil && j.end.Boot == j.start.Boot {
				byBoot[j.start.Boot] = append(byBoot[j.start.Boot], moment{j.start.Uptime, true, j, b}, moment{j.end.Uptime, false, j, b})
			}
		}
	}
	for _, all := range byBoot {
		slices.SortStableFunc(all, func(a, b moment) int {
			switch {
			case a.at != b.at:
				return int(min(1, max(-1, a.at-b.at)))
			case a.start == b.start:
				return 0
			case a.start: // at the same hundredth of a second an end goes first
				return 1
			}
			return -1
		})
		byTask := map[int64][]moment{}
		byNode := map[string][]moment{}
		for _, m := range all {
			gone := func(o moment) bool { return o.b == m.b && o.job.start.Attempt == m.job.start.Attempt }
			if !m.start {
				byTask[m.b.task] = slices.DeleteFunc(byTask[m.b.task], gone)
				byNode[m.job.node] = slices.DeleteFunc(byNode[m.job.node], gone)
				continue
			}
			r.Checked++
			byTask[m.b.task], byNode[m.job.node] = append(byTask[m.b.task], m), append(byNode[m.job.node], m)
			limit, slots, paused := 1, 0, false
			for _, o := range byTask[m.b.task] {
				limit = max(limit, o.b.concurrency)
				paused = paused || h.paused(o.job.node, m.job.start.Real)
			}
			for _, o := range byNode[m.job.node] {
				slots += max(1, o.b.slots)
			}
			if n := len(byTask[m.b.task]); n > limit && !paused {
				r.violated("the job of %s ran as number %d of its task at uptime %d; its limit is %d", h.name(m.b), n, m.at, limit)
			}
			if c := h.capacity(m.job.node); c.Slots > 0 && slots > c.Slots {
				r.violated("the job of %s made %d slots run on %s at uptime %d; it has %d", h.name(m.b), slots, m.job.node, m.at, c.Slots)
			}
		}
	}
}
