package checker

import (
	"slices"
	"sort"
	"strings"
)

// runsOf indexes runs by key, in order of their numbers; made once.
func (h *History) runsOf() map[key][]*batch {
	if h.runs == nil {
		h.runs = map[key][]*batch{}
		for _, b := range h.batches {
			h.runs[b.key()] = append(h.runs[b.key()], b)
		}
		for _, all := range h.runs {
			slices.SortFunc(all, func(a, b *batch) int { return a.run - b.run })
		}
	}
	return h.runs
}

// makers indexes the batches that produce a path, by its hash; made once.
func (h *History) makers() map[int64][]key {
	if h.made == nil {
		h.made = map[int64][]key{}
		for id, paths := range h.paths {
			for _, p := range paths {
				if b := h.byID[id]; p.output && b != nil && !slices.Contains(h.made[p.hash], b.key()) {
					h.made[p.hash] = append(h.made[p.hash], b.key())
				}
			}
		}
	}
	return h.made
}

// latestRun is the newest run that had been made by then; nil: none.
func (h *History) latestRun(k key, at int64) *batch {
	all := h.runsOf()[k]
	i := sort.Search(len(all), func(i int) bool { return all[i].create > at })
	if i == 0 {
		return nil
	}
	return counting(all[:i])
}

// inOrder looks at the last start of each batch, since the conditions that are kept are those it started by. What it
// waited for had succeeded if the success's event has a smaller id than the start's: the dependency service
// proves the success in the database, dispatch and the worker come after it, and ids are taken before a commit.
//
// A rerun of a parent makes waiting children wait again, but a start that was being written meanwhile may win. So a run
// made less than a transaction's length before the start decides nothing, and the one before it will do.
func inOrder(h *History, r *Result) {
	ends := map[[2]int64]*Witness{}
	starts := map[[2]int64]*Witness{}
	for i, w := range h.Witness {
		at := map[string]map[[2]int64]*Witness{Start: starts, End: ends}[w.What]
		if at != nil {
			at[[2]int64{w.Batch, int64(w.Attempt)}] = &h.Witness[i]
		}
	}
	for _, b := range h.batches {
		start, ok := b.started()
		if !ok {
			continue
		}
		r.Checked++
		if h.mayRunNow(b, start) {
			continue // without its conditions
		}
		job := starts[[2]int64{b.id, int64(start.attempt)}]
		// succeeded gives the run of k whose success the start could rest on.
		succeeded := func(k key) (*batch, bool) {
			for _, p := range h.runsOf()[k] {
				// One that was replaced long before the start is no ground any more.
				if h.replaced(p, start.at) {
					continue
				}
				if e, ok := p.succeededAt(); ok && e.id < start.id {
					return p, true
				}
			}
			return nil, false
		}
		// before tells whether the job of a run that counts had ended when this one started, as the jobs saw it.
		before := func(p *batch) {
			end := ends[[2]int64{p.id, int64(p.now.attempt)}]
			if end != nil && job != nil && end.compare(job) > 0 {
				r.violated("the job of %s started at %d, and that of %s, which it waits for, ended at %d", h.name(b), job.Uptime, h.name(p), end.Uptime)
			}
		}
		groups := map[int]bool{}
		for _, c := range h.parents[b.id] {
			p, ok := succeeded(key{c.task, c.no})
			if ok {
				before(p)
			}
			if c.any {
				groups[c.group] = groups[c.group] || ok
			} else if !ok {
				r.violated("%s started at %s (event %d), and %s had not succeeded", h.name(b), h.when(start.at), start.id, h.keyName(key{c.task, c.no}))
			}
		}
		for group, ok := range groups {
			if !ok {
				r.violated("%s started at %s (event %d), and none of its parents in group %d had succeeded", h.name(b), h.when(start.at), start.id, group)
			}
		}
		for _, c := range h.thirds[b.id] {
			if !c.met {
				r.violated("%s started, and the third party's %s is unmet", h.name(b), c.key)
			}
		}
		for _, in := range h.paths[b.id] {
			if in.output {
				continue
			}
			if !in.met {
				r.violated("%s started, and its input %s is unmet", h.name(b), in.path)
			}
			for _, k := range h.makers()[in.hash] {
				// Only who was known before the batch itself was made is certain to have been asked.
				if first := h.runsOf()[k][0]; k == b.key() || first.create >= b.create-h.Run.slack() {
					continue
				}
				if p, ok := succeeded(k); ok {
					before(p)
				} else {
					r.violated("%s started at %s (event %d) on %s, and %s, which produces it, had not succeeded", h.name(b), h.when(start.at), start.id, in.path, h.keyName(k))
				}
			}
		}
	}
}

// mayRunNow: a person let the batch start without its conditions, and all three say so: its row, an event before the
// start, and the log of actions.
func (h *History) mayRunNow(b *batch, start event) bool {
	return b.runNow && h.acted(b, "run_now") && slices.ContainsFunc(b.events, func(e event) bool {
		return e.id < start.id && e.epoch == 0 && strings.HasPrefix(e.why, "run now by ")
	})
}

// replaced: there was a newer run long before, and it had not been undone by then.
func (h *History) replaced(b *batch, at int64) bool {
	for _, n := range h.runsOf()[b.key()] {
		if n.run > b.run && n.create <= at-h.Run.slack() && !(n.undone() && n.events[len(n.events)-1].at <= at) {
			return true
		}
	}
	return false
}

// started is the event of the batch's newest start, if that attempt started and the row still tells of it.
func (b *batch) started() (event, bool) {
	for _, e := range b.events {
		if b.startTime != 0 && e.state == running && e.attempt == b.now.attempt && e.at == b.startTime {
			return e, true
		}
	}
	return event{}, false
}

func (b *batch) succeededAt() (event, bool) {
	for _, e := range b.events {
		if e.state == finished && e.finish == success {
			return e, true
		}
	}
	return event{}, false
}
