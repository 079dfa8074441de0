package checker

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// nothingLost asks each batch that has not ended for a cause, and believes none that the facts contradict: a condition that
// is unmet although what it waits for is there is no cause, it is the fault.
func nothingLost(h *History, r *Result) {
	if !h.Run.Settled {
		r.NotChecked = "the run did not settle before its end"
		return
	}
	inHand := map[int64]int{} // by task
	byNode := map[string]int{}
	total := 0
	for _, b := range h.batches {
		if s := b.now.state; s == assigned || s == running {
			inHand[b.task]++
			byNode[b.now.node] += max(1, b.slots)
			total++
		}
	}
	causes := map[string]int{}
	for _, b := range h.batches {
		r.Checked++
		if b.now.state == finished {
			continue
		}
		cause, lost := h.cause(b, inHand[b.task], total, byNode)
		switch {
		case !lost:
			causes[cause]++
		case h.young(b):
			causes["it changed a moment before the end"]++
		default:
			r.violated("%s is %v: %s", h.name(b), b.now, cause)
		}
	}
	for cause, n := range causes {
		r.noted("%d wait: %s", n, cause)
	}
	slices.Sort(r.Notes)
	h.phantoms(r)
}

// young: the batch was made or changed so late that the services had no time for it.
func (h *History) young(b *batch) bool {
	last := b.create
	if n := len(b.events); n > 0 {
		last = b.events[n-1].at
	}
	return max(last, b.notBefore) > h.Run.End-h.Run.stretch(min(h.Run.SettledMS, slowestRound))
}

// slowestRound, in real milliseconds: no service that moves batches on looks less often.
const slowestRound = 30_000

// cause names why a batch has not ended; lost tells that this is no cause.
func (h *History) cause(b *batch, ofTask, total int, byNode map[string]int) (cause string, lost bool) {
	if b.now.state != waiting {
		return h.causeInHand(b)
	}
	t := h.tasks[b.task]
	newest := t.versions[len(t.versions)-1]
	dispatch := h.leases["dispatch"]
	switch {
	case b.now.held:
		return "held by a person", false
	case newest.deleted || !newest.enabled:
		return "its task is disabled or deleted", false
	case b.now.kill:
		return "a kill is asked for, and a waiting batch ends at once by it", true
	case b.kinds&heldBack != 0 && h.campaigns[b.id]:
		return "a campaign holds it back", false
	case b.unmet > 0:
		return h.unmetCause(b)
	case b.quality != 0 && b.quality != 3:
		return "its quality gate is closed", false
	case b.notBefore > h.Run.End:
		return "its earliest start has not come", false
	case dispatch.paused && (dispatch.pausedUntil == 0 || dispatch.pausedUntil > h.Run.End):
		return "dispatch is paused", false
	case h.stoppedAtEnd(b, ""):
		return "its group is paused, or its breaker is open", false
	case h.afterLatest(b.schedule):
		return "it is scheduled after latest_schedule_time", false
	case dispatch.maxRunning >= 0 && total >= dispatch.maxRunning:
		return "max_running is reached", false
	case ofTask >= max(1, b.concurrency):
		return "its task runs as many at once as it may", false
	}
	usable := 0
	for name, n := range h.nodes {
		if h.stoppedAtEnd(b, name) {
			continue
		}
		listed := slices.Contains(strings.Split(b.nodes, "\n"), name)
		if n.lost || n.stopped || b.nodes != "" && !listed || b.nodes == "" && n.pool != b.pool || n.slots < max(1, b.slots) {
			continue
		}
		usable++
		if byNode[name]+max(1, b.slots) <= n.slots {
			return "it waits for nothing and node " + name + " is free", true
		}
	}
	if usable == 0 {
		return "no node may take it", false
	}
	return "all nodes that may take it are full", false
}

// stoppedAtEnd tells whether a pause or a breaker still keeps a batch from a node; no node: from all of them.
func (h *History) stoppedAtEnd(b *batch, node string) bool {
	return slices.ContainsFunc(h.stops(), func(p span) bool { return p.of != "dispatch" && p.to >= h.Run.End && h.stopped(p.of, b, node) })
}

// afterLatest tells whether the setting latest_schedule_time, which is business time, keeps a batch waiting.
func (h *History) afterLatest(schedule int64) bool {
	z, err := time.LoadLocation(h.Run.Zone)
	if err != nil || h.latest == "" {
		return false
	}
	t, err := time.Parse(time.RFC3339, h.latest) // with an offset it names one of two equal times
	if err != nil {
		t, err = time.ParseInLocation(time.DateTime, h.latest, z)
	}
	return err == nil && schedule > t.UnixMilli()
}

func (h *History) causeInHand(b *batch) (string, bool) {
	n, ok := h.nodes[b.now.node]
	attempt := fmt.Sprintf("%d.%d", b.id, b.now.attempt)
	switch {
	case !ok:
		return "its node is not registered", true
	case n.lost:
		return "its node is lost", true
	case b.now.state == assigned && !n.stopped:
		return "assigned, and its node has not claimed it", true
	case n.holds != nil && !n.holds[attempt]:
		return "its node does not hold attempt " + attempt, true
	}
	return "it runs", false
}

// unmetCause looks behind the conditions that are unmet.
func (h *History) unmetCause(b *batch) (string, bool) {
	for _, c := range h.parents[b.id] {
		if p := h.latestRun(key{c.task, c.no}, h.Run.End); !c.met && p != nil && p.now.state == finished && p.now.finish == success {
			return fmt.Sprintf("it waits for %s, which has succeeded", h.name(p)), true
		}
	}
	for _, c := range h.thirds[b.id] {
		if !c.met && h.said[c.key] {
			return "it waits for the third party's " + c.key + ", which was reported ready", true
		}
	}
	makers := h.makers()
	for _, p := range h.paths[b.id] {
		if p.output || p.met || !strings.HasPrefix(p.path, "/") {
			continue
		}
		unsure := slices.ContainsFunc(makers[p.hash], func(k key) bool {
			m := h.latestRun(k, h.Run.End)
			return m == nil || m.now.state != finished || m.now.finish != success
		})
		file := p.path
		if p.flag != "" {
			file += "/" + p.flag
		}
		if _, err := os.Stat(file); err == nil && !unsure {
			return "it waits for " + file + ", which is there", true
		}
	}
	if n := h.countUnmet(b); n == 0 || n == 1 && b.kinds&heldBack != 0 {
		return "unmet is not 0, and every condition is met", true
	}
	return "a condition is unmet", false
}

// phantoms: a success whose job nobody saw is work that was lost without a word.
func (h *History) phantoms(r *Result) {
	if h.Witness == nil {
		return
	}
	seen := map[[2]int64]bool{}
	for _, w := range h.Witness {
		seen[[2]int64{w.Batch, int64(w.Attempt)}] = true
	}
	for _, b := range h.batches {
		if b.now.state != finished || b.now.finish != success || seen[[2]int64{b.id, int64(b.now.attempt)}] || h.acted(b, "force_success") {
			continue
		}
		if t := h.tasks[b.task]; t != nil && slices.Contains(h.Run.Unwitnessed, t.name) {
			continue
		}
		r.violated("%s succeeded, and no job of attempt %d was ever seen", h.name(b), b.now.attempt)
	}
}

// acted: a person's act on the batch is in the log of actions.
func (h *History) acted(b *batch, act string) bool {
	target := fmt.Sprintf("batch %d", b.id)
	return slices.ContainsFunc(h.actions, func(a action) bool { return a.target == target && a.action == act })
}
