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
		s.first, _ = parent.containing(iv.Start)
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
			s.first, _ = parent.containing(iv.Start) // the first to end after start
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
	first, left, ok := edge(w.from, child, iv, of)
	if !ok || left > 0 {
		return span{empty: true, over: left > 0 || !ok && !w.from.End}
	}
	last, left, ok := edge(w.to, child, iv, of)
	return span{first: first, last: last, empty: !ok || left < 0 || last.End < first.End}
}

// edge is the interval that an offset names for the child's interval; left as of series.move. Not ok: there is
// nothing to count from, since a cron expression has not fired yet (end) or never will again (0).
func edge(o capri.Offset, child capri.Period, iv capri.Interval, of series) (at capri.Interval, left int, ok bool) {
	if o.End {
		at, ok = of.endedBy(iv.End)
	} else {
		start := iv.Start
		if child == capri.Cron && start == iv.End {
			// The first fire's interval is empty. Its 0 is the interval that ends with it, not the next:
			// else a task that waits for its own earlier one (-1) would wait for itself here.
			start--
		}
		at, ok = of.containing(start)
	}
	if ok {
		at, left = of.move(at, o.N)
	}
	return at, left, ok
}

// Parents lists the intervals of parent that the child's batch for iv waits for, those before the parent's
// first mark included: the caller tells them by Mark < parent.First.
func Parents(c calendar.Calendar, child Ref, iv capri.Interval, parent Ref, dep capri.Parent) []capri.Interval {
	of := parent.series(c)
	s := spanOf(child.Period, iv, of, &dep)
	var ivs []capri.Interval
	s.each(of, func(iv capri.Interval) { ivs = append(ivs, iv) })
	return ivs
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
	if byStart { // the first to start at or after reach
		ch, ok := row.containing(reach)
		if !ok {
			// No fire after reach, but one at reach may be a first fire, with its empty interval.
			return row.endedBy(reach)
		}
		ch, _ = row.move(ch, -1)
		return ch, true
	}
	return row.containing(reach - 1) // the first to end at or after reach
}
