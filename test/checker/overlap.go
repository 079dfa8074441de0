package checker

import (
	"cmp"
	"slices"
	"strings"
)

// ran is one attempt as its job told it.
type ran struct {
	start, end *Witness // end nil: it was killed before it could say so
	node       string   // by the history, or by the job
}

// hostWaits is how long, in real milliseconds, after a paused host woke up its first beat ends what was given away.
const hostWaits = 30_000

// jobs gathers the witness log by task and batch_no, in the order of the starts.
func (h *History) jobs() map[[2]string][]ran {
	ends := map[[2]int64]*Witness{}
	for i, w := range h.Witness {
		if w.What == End {
			ends[[2]int64{w.Batch, int64(w.Attempt)}] = &h.Witness[i]
		}
	}
	out := map[[2]string][]ran{}
	for i, w := range h.Witness {
		if w.What == Start {
			k := [2]string{w.Task, w.BatchNo}
			out[k] = append(out[k], ran{&h.Witness[i], ends[[2]int64{w.Batch, int64(w.Attempt)}], h.nodeOf(w)})
		}
	}
	for _, all := range out {
		slices.SortStableFunc(all, func(a, b ran) int { return a.start.compare(b.start) })
	}
	return out
}

// compare orders two lines: by the kernel's uptime where it is the same kernel, else by the clock.
func (w *Witness) compare(o *Witness) int {
	if w.Boot == o.Boot {
		return cmp.Compare(w.Uptime, o.Uptime)
	}
	return cmp.Compare(w.Real, o.Real)
}

// nodeOf is where an attempt ran.
func (h *History) nodeOf(w Witness) string {
	if b := h.byID[w.Batch]; b != nil {
		for _, e := range b.events {
			if e.state == running && e.attempt == w.Attempt {
				return e.node
			}
		}
	}
	return w.Node
}

// paused tells whether the node's whole host was stopped at that real time, or woke up a moment ago.
func (h *History) paused(node string, real int64) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool {
		return f.Kind == PauseHost && f.Target == node && f.At <= real && (f.Healed == 0 || real <= f.Healed+hostWaits)
	})
}

// oneAtATime believes the lock first: who starts while it is taken says so himself, whatever any clock shows. Intervals
// with both ends are compared as well, which catches what a wrong lock would hide.
func oneAtATime(h *History, r *Result) {
	apart := 0
	for _, w := range h.Witness {
		if w.What != Overlap {
			continue
		}
		r.Checked++
		if h.excused(w) {
			apart++
			r.noted("%s: %s %s overlapped while a whole host was paused", h.when(h.Run.business(w.Real)), w.Task, w.BatchNo)
			continue
		}
		r.violated("attempt %d.%d of %s %s started on %s at %s (real %d) while another process held its lock:\n%s", w.Batch, w.Attempt, w.Task, w.BatchNo, h.nodeOf(w), h.when(h.Run.business(w.Real)), w.Real, h.whoRan(w))
	}
	unended := 0
	for k, all := range h.jobs() {
		last := all[0]
		for i, j := range all {
			r.Checked++
			h.known(j, r)
			if j.end == nil {
				unended++
			}
			if i == 0 {
				continue
			}
			if j.start.Batch == last.start.Batch && j.start.Attempt == last.start.Attempt {
				r.violated("attempt %d.%d of %s %s started twice: pids %d and %d", j.start.Batch, j.start.Attempt, k[0], k[1], last.start.PID, j.start.PID)
			} else if last.end != nil && last.end.compare(j.start) > 0 && !h.excused(*j.start) {
				r.violated("%s %s: attempt %d.%d on %s started at %d, and %d.%d on %s ended at %d", k[0], k[1], j.start.Batch, j.start.Attempt, j.node, j.start.Uptime, last.start.Batch, last.start.Attempt, last.node, last.end.Uptime)
			}
			if last.end == nil || j.end != nil && last.end.compare(j.end) < 0 {
				last = j
			}
		}
	}
	if unended > 0 {
		r.noted("%d jobs were killed before they could say that they ended; the lock speaks for them", unended)
	}
	if apart > 0 {
		r.noted("%d overlaps during the pause of a whole host", apart)
	}
}

// known: a job that the history has never heard of was started by nobody who may.
func (h *History) known(j ran, r *Result) {
	b := h.byID[j.start.Batch]
	if b == nil || !slices.ContainsFunc(b.events, func(e event) bool { return e.state == running && e.attempt == j.start.Attempt }) {
		r.violated("attempt %d.%d of %s %s ran, and no event says that it was claimed", j.start.Batch, j.start.Attempt, j.start.Task, j.start.BatchNo)
	}
}

// excused: an earlier attempt of the same key runs on a host that is, or was just now, paused as a whole.
func (h *History) excused(w Witness) bool {
	return slices.ContainsFunc(h.Witness, func(o Witness) bool {
		return o.What == Start && o.Task == w.Task && o.BatchNo == w.BatchNo && (o.Batch != w.Batch || o.Attempt != w.Attempt) && o.compare(&w) <= 0 && h.paused(h.nodeOf(o), w.Real)
	})
}

// whoRan shows the lines of the same task and batch_no around one.
func (h *History) whoRan(w Witness) string {
	var text []string
	for _, o := range h.Witness {
		if o.Task == w.Task && o.BatchNo == w.BatchNo && max(o.Real-w.Real, w.Real-o.Real) < 10*60_000 {
			text = append(text, o.String())
		}
	}
	return strings.Join(text, "\n")
}
