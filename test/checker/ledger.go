package checker

// ledger holds the mark log against the rows. A turn that died is made again, and then finds some of its batches
// present; so made and skipped are at least some of the rows that marks made, and present may be some as well.
func ledger(h *History, r *Result) {
	type cell struct {
		period int
		mark   int64
	}
	rows := map[cell]int{}
	for _, b := range h.batches {
		if b.run == 0 && (b.origin == originMark || b.origin == originCatchUp) {
			rows[cell{int(b.period), b.schedule}]++
		}
	}
	failures := map[cell]int{}
	for k := range h.failures {
		failures[cell{int(k.period), k.mark}]++
	}
	has := map[cell]bool{}
	for _, m := range h.marks {
		r.Checked++
		c := cell{int(m.period), m.mark}
		has[c] = true
		name := h.when(m.mark)
		if m.expected != m.made+m.present+m.skipped+m.failed {
			r.violated("period %d mark %s: expected %d, but made %d, present %d, skipped %d, failed %d", m.period, name, m.expected, m.made, m.present, m.skipped, m.failed)
		}
		if n := rows[c]; n < m.made+m.skipped || n > m.made+m.skipped+m.present {
			r.violated("period %d mark %s: made %d, skipped %d, present %d, and %d rows that marks made", m.period, name, m.made, m.skipped, m.present, n)
		}
		if failures[c] != m.failed {
			r.violated("period %d mark %s: failed %d, and %d failures stand", m.period, name, m.failed, failures[c])
		}
		if !m.complete && m.mark <= h.Run.To {
			r.violated("period %d mark %s is not complete", m.period, name)
		}
	}
	e, err := h.expect()
	if err != nil {
		r.violated("the oracle cannot work: %v", err)
		return
	}
	for _, p := range calendarPeriods {
		begins, _ := h.markLog(p)
		if begins == 0 {
			continue
		}
		for _, iv := range e.walk.Marks(p, max(begins, h.Run.From), h.Run.To) {
			r.Checked++
			if !has[cell{int(p), iv.Mark}] {
				r.violated("period %d: the log has no mark %s (%s)", p, h.when(iv.Mark), iv.BatchNo)
			}
		}
	}
	for c, n := range rows {
		if p := c.period; p >= 2 && p <= 5 && !has[c] && c.mark <= h.Run.To {
			r.violated("period %d: %d batches of mark %s, which the log does not have", p, n, h.when(c.mark))
		}
	}
}
