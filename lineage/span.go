package lineage

import (
	"capri"
	"capri/calendar"
)

// window is a checked from/to.
type window struct{ from, to capri.Offset }

func (w window) String() string { return w.from.String() + "…" + w.to.String() }

// windowOf fills in what was left out: from the interval that holds the data start, to the newest ended. Of a
// coarser period the former is often not over yet, so with both left out the newest ended is meant.
func windowOf(from, to *capri.Offset, child, parent capri.Period) window {
	w := window{to: capri.Offset{End: true}}
	if from == nil && to == nil && coarser(parent, child) {
		w.from.End = true
	}
	if from != nil {
		w.from = *from
	}
	if to != nil {
		w.to = *to
	}
	return w
}

// coarser reports whether a is a longer calendar period than b. The periods' numbers are the seed's and say
// nothing about length.
func coarser(a, b capri.Period) bool { return a.Calendar() && b.Calendar() && length[a] > length[b] }

var length = [...]int{capri.Hour: 1, capri.Day: 2, capri.Week: 3, capri.Month: 4}

// rule is how intervals of a parent belong to one of the child.
type rule int

const (
	sameRule    rule = iota // the same interval
	finerRule               // all wholly inside
	coarserRule             // the newest ended
	cronRule                // those ending within (start,end], else the newest ended
	windowRule
)

func ruleOf(child, parent capri.Period, dep *capri.Parent) rule {
	switch {
	case dep.From != nil || dep.To != nil:
		return windowRule
	// A cron interval begins and ends anywhere. Were "wholly inside" asked of a cron child's parents, the
	// interval across each fire would belong to no child; "ending within" gives each to exactly one.
	case !child.Calendar() || !parent.Calendar():
		return cronRule
	case child == parent:
		return sameRule
	case coarser(child, parent):
		return finerRule
	}
	return coarserRule
}

func (r rule) String() string { return [...]string{"same", "finer", "coarser", "cron", "window"}[r] }

// span is the row of a parent's intervals, first to last, that one child's batch waits for.
type span struct {
	first, last capri.Interval
	empty       bool
	over        bool // the row begins after every interval that the parent will ever have
}

// spanOf works the span out for the child's interval iv.
func spanOf(child capri.Period, iv capri.Interval, parent series, dep *capri.Parent) span {
	if parent.none() {
		return span{empty: true}
	}
	var s span
	var ok bool
	switch ruleOf(child, parent.p, dep) {
	case windowRule:
		s = windowOf(dep.From, dep.To, child, parent.p).span(child, iv, parent)
	case sameRule:
		s.first, s.last = iv, iv
	case finerRule:
		s.first, _ = parent.endingAfter(iv.Start)
		if s.first.Start < iv.Start { // a week that began last month
			s.first, _ = parent.move(s.first, 1)
		}
		s.last, _ = parent.endedBy(iv.End)
		s.empty = s.last.End < s.first.End
	case coarserRule:
		s.last, _ = parent.endedBy(iv.End)
		s.first = s.last
	case cronRule:
		if s.last, ok = parent.endedBy(iv.End); !ok {
			return span{empty: true}
		}
		s.first = s.last
		if s.last.End > iv.Start {
			s.first, _ = parent.endingAfter(iv.Start)
		}
		if s.first.End > s.last.End { // start == end: nothing ends within (start,end]
			s.first = s.last
		}
	}
	if dep.Policy == capri.LastOne && !s.empty {
		s.first = s.last
	}
	return s
}

// span counts the window out from the child's interval. Where a cron expression has no fire that early or
// late, the window is cut to those there are.
func (w window) span(child capri.Period, iv capri.Interval, of series) span {
	first, left, found := edge(w.from, child, iv, of)
	if found != counted || left > 0 {
		return span{empty: true, over: left > 0 || found == noneLeft}
	}
	last, left, found := edge(w.to, child, iv, of)
	return span{first: first, last: last, empty: found != counted || left < 0 || last.End < first.End}
}

// Whether there is an interval to count a window's edge from.
type found int

const (
	counted  found = iota
	noneYet        // a cron expression has not fired before
	noneLeft       // nor will it ever again
)

// edge is the interval that an offset names for the child's interval; left is as of series.move.
func edge(o capri.Offset, child capri.Period, iv capri.Interval, of series) (at capri.Interval, left int, f found) {
	var ok bool
	if o.End {
		if at, ok = of.endedBy(iv.End); !ok {
			return at, 0, noneYet
		}
	} else {
		start := iv.Start
		if child == capri.Cron && start == iv.End {
			// The first of all fires has an empty interval. Its 0 is what ends with it or goes on there, not
			// what begins: else a task that waits for its own earlier one (-1) would wait for itself here.
			start--
		}
		if at, ok = of.endingAfter(start); !ok {
			return at, 0, noneLeft
		}
		// A parent's own first interval is empty too and holds nothing, but can be the same as the child's.
		if at.Start > start && at.End != iv.End {
			return at, 0, noneYet
		}
	}
	at, left = of.move(at, o.N)
	return at, left, counted
}

// each walks the span in order.
func (s span) each(of series, visit func(capri.Interval)) {
	if s.empty {
		return
	}
	for iv := s.first; ; iv, _ = of.move(iv, 1) {
		visit(iv)
		if iv.End >= s.last.End {
			return
		}
	}
}

// Children lists the child's intervals whose batches wait for the parent's interval iv, with marks not after
// until: the exact inverse of Parents. The bound is needed because a cron expression that ends leaves its last
// interval to every later child. A manual child is on nobody's way: its batches come when people ask.
func Children(c calendar.Calendar, parent Ref, iv capri.Interval, child Ref, dep capri.Parent, until capri.Instant) []capri.Interval {
	of, row := parent.series(c), child.series(c)
	if of.none() || row.none() || iv.Mark < parent.First {
		return nil
	}
	ch, ok := earliestChild(of, iv, row, &dep)
	if !ok {
		return nil
	}
	var ivs []capri.Interval
	for left := 0; left == 0 && ch.Mark <= until; ch, left = row.move(ch, 1) {
		s := spanOf(child.Period, ch, of, &dep)
		// Spans only move on: once one begins after iv, all later ones do.
		if s.over || s.first.End > iv.End {
			break
		}
		if !s.empty && iv.End <= s.last.End {
			ivs = append(ivs, ch)
		}
	}
	return ivs
}

// earliestChild is a child's interval not after the first whose span reaches iv; the walk starts there.
func earliestChild(of series, iv capri.Interval, row series, dep *capri.Parent) (capri.Interval, bool) {
	reach, byStart := iv.End, false
	if ruleOf(row.p, of.p, dep) == windowRule {
		to := windowOf(dep.From, dep.To, row.p, of.p).to
		at, left := of.move(iv, -to.N)
		if left > 0 {
			return capri.Interval{}, false // the window ends before iv for every child there is
		}
		if reach = at.End; !to.End {
			reach, byStart = at.Start, true
		}
	}
	if !byStart {
		return row.endingAfter(reach - 1) // the first to end at or after reach
	}
	// The first to start at or after reach. A first fire's empty interval may be at reach itself.
	ch, ok := row.endingAfter(reach)
	if !ok {
		return row.endedBy(reach)
	}
	ch, _ = row.move(ch, -1)
	return ch, true
}
