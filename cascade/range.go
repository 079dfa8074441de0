package cascade

import (
	"iter"

	"capri"
	"capri/calendar"
	"capri/cron"
)

// Range is a stretch of time of which batches are asked for: those whose schedule time is in [From,To), or, by data,
// those whose data interval lies wholly inside.
type Range struct {
	From, To capri.Instant
	ByData   bool
}

// Intervals lists a period's intervals in the range by marks not after until (now), the oldest first and at most limit
// of them. e is the expression of a cron task; a manual task has no intervals.
func (r Range) Intervals(c calendar.Calendar, p capri.Period, e *cron.Expression, until capri.Instant, limit int) []capri.Interval {
	var found []capri.Interval
	for iv := range r.all(c, p, e, until, limit) {
		if len(found) == limit {
			break
		}
		if iv.Mark <= until && (!r.ByData || iv.Start >= r.From && iv.End <= r.To) {
			found = append(found, iv)
		}
	}
	return found
}

// all goes through a few more, since an interval by data may begin before the range.
func (r Range) all(c calendar.Calendar, p capri.Period, e *cron.Expression, until capri.Instant, limit int) iter.Seq[capri.Interval] {
	switch {
	case p.Calendar() && !r.ByData:
		return c.Marks(p, r.From, min(r.To, until+1))
	case p.Calendar():
		return func(yield func(capri.Interval) bool) {
			for iv := c.Containing(p, r.From); iv.End <= r.To && yield(iv); iv = c.Shift(p, iv, 1) {
			}
		}
	}
	return func(yield func(capri.Interval) bool) {
		to := min(r.To, until+1)
		if r.ByData {
			to = min(r.To, until) + 1 // the fire that ends the last interval is its mark
		}
		if e == nil {
			return
		}
		for _, iv := range c.CronFires(e, r.From, to, limit+1) {
			if !yield(iv) {
				return
			}
		}
	}
}
