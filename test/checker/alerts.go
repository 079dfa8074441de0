package checker

import (
	"slices"
	"strings"
)

// due are the alerts of which batches tell: each is raised exactly once for each batch of which it is true, and for no
// other. An alert is written in the transaction of what it tells, so there is nothing to wait for.
var due = []struct {
	kind string
	of   func(*batch) bool
}{
	{"batch_failed", func(b *batch) bool { return b.now.state == finished && b.now.finish == failed }},
	{"dependency_timeout", func(b *batch) bool { return b.dependencyLateAt != 0 }},
	{"output_timeout", func(b *batch) bool { return b.outputLateAt != 0 }},
}

// foldedFor is how long one alert speaks for every loss of the same node; the ten minutes are for what a placer
// still gave to a node that had just been called lost.
const foldedFor = (60 + 10) * 60_000

func alerts(h *History, r *Result) {
	raised := map[string]map[int64]int{}
	for _, a := range h.alerts {
		if raised[a.kind] == nil {
			raised[a.kind] = map[int64]int{}
		}
		raised[a.kind][a.batch]++
	}
	for _, d := range due {
		for _, b := range h.batches {
			is, n := d.of(b), raised[d.kind][b.id]
			if !is && n == 0 {
				continue
			}
			r.Checked++
			switch {
			case is && n == 0:
				r.violated("%s: nobody was told (%s)", h.name(b), d.kind)
			case !is:
				r.violated("%s: an alert %s was raised, and it is not so", h.name(b), d.kind)
			case n > 1:
				r.violated("%s: %d alerts %s were raised", h.name(b), n, d.kind)
			}
		}
	}
	h.lostNodes(r)
}

// lostNodes: whoever takes a batch from a lost node has told of that node, at most an hour before.
func (h *History) lostNodes(r *Result) {
	for _, b := range h.batches {
		for i, e := range b.events {
			if i == 0 || e.who != "attempts" || !strings.Contains(e.why, " is lost:") && !strings.Contains(e.why, " is not registered any more") {
				continue
			}
			r.Checked++
			node := b.events[i-1].node
			told := slices.ContainsFunc(h.alerts, func(a alert) bool {
				return a.kind == "node_lost" && strings.HasPrefix(a.key, "node_lost:"+node+":") && a.at <= e.at && a.at > e.at-foldedFor
			})
			if !told {
				r.violated("%s was taken from %s at %s (event %d: %q), and nobody was told that it is lost", h.name(b), node, h.when(e.at), e.id, e.why)
			}
		}
	}
}
