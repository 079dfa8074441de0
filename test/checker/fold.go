package checker

import (
	"fmt"
	"slices"
	"strings"
)

// legal are the steps between states (design §4), as from and to, with what must hold between them.
var legal = map[[2]int]func(from, to status) string{
	{waiting, waiting}: func(from, to status) string {
		return first(same(from, to), expectNode(to, ""))
	},
	{waiting, assigned}: func(from, to status) string {
		switch {
		case to.attempt != from.attempt+1:
			return fmt.Sprintf("assigned with attempt %d after %d", to.attempt, from.attempt)
		case to.node == "":
			return "assigned to no node"
		}
		return free(from, to)
	},
	{waiting, finished}:  same,
	{assigned, waiting}:  func(from, to status) string { return first(same(from, to), expectNode(to, "")) },
	{assigned, assigned}: func(from, to status) string { return first(same(from, to), expectNode(to, from.node)) },
	{assigned, running}:  func(from, to status) string { return first(same(from, to), expectNode(to, from.node), free(from, to)) },
	{assigned, finished}: same,
	{running, waiting}:   func(from, to status) string { return first(same(from, to), expectNode(to, "")) },
	{running, running}:   func(from, to status) string { return first(same(from, to), expectNode(to, from.node)) },
	{running, finished}:  same,
	{finished, finished}: func(from, to status) string {
		from.latest = to.latest // handed on to the next run, or back when that one is undone
		if from != to {
			return "finished is final within a run"
		}
		return ""
	},
}

// same: only an assignment counts attempts.
func same(from, to status) string {
	if from.attempt != to.attempt {
		return fmt.Sprintf("attempt %d became %d without an assignment", from.attempt, to.attempt)
	}
	return ""
}

func expectNode(to status, node string) string {
	if to.node != node {
		return fmt.Sprintf("node is %q, not %q", to.node, node)
	}
	return ""
}

// free: nothing that is held, or that somebody wants dead, goes forward.
func free(from, to status) string {
	if from.held || to.held || from.kill || to.kill {
		return "it was held, or a kill was asked for"
	}
	return ""
}

func first(reasons ...string) string {
	for _, r := range reasons {
		if r != "" {
			return r
		}
	}
	return ""
}

// finishFits: the finish states that a state may have: late ones before the end, results after it.
func finishFits(s status) bool {
	if s.state == finished {
		return s.finish == success || s.finish == failed || s.finish == killed || s.finish == skipped
	}
	return s.finish == 0 || s.finish == depTimeout || s.finish == outTimeout
}

// fold walks through each batch's events. Within one batch the ids of events are in the order of their commits,
// since whoever changes the row holds its lock until then, and takes the event's id while he holds it.
func fold(h *History, r *Result) {
	for _, b := range h.batches {
		r.Checked++
		h.foldBatch(b, r)
		if b.now.state == waiting && !b.archived {
			n := h.countUnmet(b)
			if b.runNow {
				n = 0 // none of them counts
			}
			if n != b.unmet {
				r.violated("%s: unmet is %d, its conditions say %d", h.name(b), b.unmet, n)
			}
		}
	}
	for _, e := range h.events {
		if h.byID[e.batch] == nil {
			r.violated("event %d is of batch %d, which does not exist", e.id, e.batch)
		}
	}
	runs := map[key][]*batch{}
	for _, b := range h.batches {
		runs[b.key()] = append(runs[b.key()], b)
	}
	for k, all := range runs {
		slices.SortFunc(all, func(a, b *batch) int { return a.run - b.run })
		for i, b := range all {
			if b.run != i {
				r.violated("%s has run %d where run %d is due", h.keyName(k), b.run, i)
			}
			if counts := b == counting(all); b.now.latest != counts {
				r.violated("%s: latest is %v, and it is %s newest run", h.name(b), b.now.latest, map[bool]string{true: "the", false: "not the"}[counts])
			}
		}
	}
}

// counting is which run of a batch_no counts: the newest that was not undone. A cancelled campaign undoes runs that have never
// started, and the run before counts again; a first run has none before, and stays.
func counting(runs []*batch) *batch {
	for i := len(runs) - 1; i > 0; i-- {
		if !runs[i].undone() {
			return runs[i]
		}
	}
	return runs[0]
}

// undone: ended by its campaign before it ever started, and taken out of its place in the same moment.
func (b *batch) undone() bool {
	if b.now.state != finished || b.now.finish != killed || b.startTime != 0 {
		return false
	}
	for i, e := range b.events {
		if e.state == running {
			return false
		}
		last := i == len(b.events)-1
		if last && !(e.who == "campaign" && !e.latest && strings.HasPrefix(e.why, "campaign ") && (strings.Contains(e.why, " was cancelled") || strings.Contains(e.why, " was refused"))) {
			return false
		}
	}
	return len(b.events) > 0
}

func (h *History) foldBatch(b *batch, r *Result) {
	at := status{latest: true}
	if len(b.events) == 0 { // as it was born: some are born held, and some when their time was over
		at.held = b.now.held
		if b.now.finish == skipped {
			at.state, at.finish = finished, skipped
		}
	}
	for _, e := range b.events {
		why := "no such step"
		if check := legal[[2]int{at.state, e.state}]; check != nil {
			was := at
			if at.state == finished && e.finish == success && e.epoch == 0 && h.acted(b, "force_success") {
				was.finish, was.held = success, false // a person's word is the one exception
			}
			why = check(was, e.status)
		}
		if why == "" && !finishFits(e.status) {
			why = fmt.Sprintf("finish_state %d in state %d", e.finish, e.state)
		}
		if why == "" && e.state != finished && e.finish != at.finish && e.finish == 0 {
			why = "what was late is so no more"
		}
		if why != "" {
			r.violated("%s: event %d (%s, %s by %s: %q): %s: %v → %v", h.name(b), e.id, h.when(e.at), stateName(e.state), e.who, e.why, why, at, e.status)
			return
		}
		at = e.status
	}
	if at != b.now {
		r.violated("%s: its events end at %v, its row says %v", h.name(b), at, b.now)
	}
	if b.runNow && !h.acted(b, "run_now") {
		r.violated("%s may run without its conditions, and nobody has said so", h.name(b))
	}
	if !finishFits(b.now) {
		r.violated("%s: finish_state %d in state %d", h.name(b), b.now.finish, b.now.state)
	}
}

func stateName(s int) string { return [...]string{"waiting", "assigned", "running", "finished"}[s&3] }

// String shows a status as evidence does.
func (s status) String() string {
	words := []string{fmt.Sprintf("%s/%d attempt %d", stateName(s.state), s.finish, s.attempt)}
	for _, w := range []struct {
		is   bool
		text string
	}{{s.node != "", "on " + s.node}, {s.held, "held"}, {s.kill, "kill asked"}, {!s.latest, "not latest"}} {
		if w.is {
			words = append(words, w.text)
		}
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// countUnmet counts the groups of conditions that are unmet.
func (h *History) countUnmet(b *batch) int {
	n := 0
	for _, p := range h.paths[b.id] {
		if !p.output && !p.met {
			n++
		}
	}
	for _, c := range h.thirds[b.id] {
		if !c.met {
			n++
		}
	}
	any := map[int]bool{} // groups of which one is enough: met
	for _, c := range h.parents[b.id] {
		if c.any {
			any[c.group] = any[c.group] || c.met
		}
	}
	// Of the others each group counts once, however many of its rows are unmet.
	unmet := map[int]bool{}
	for _, c := range h.parents[b.id] {
		if !c.any && !c.met {
			unmet[c.group] = true
		}
	}
	for _, met := range any {
		if !met {
			n++
		}
	}
	if b.kinds&heldBack != 0 {
		n++
	}
	return n + len(unmet)
}

// heldBack is the bit of task_work.kinds that says: a campaign has not released it, which counts as one condition.
const heldBack = 64
