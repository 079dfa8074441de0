package calendar

import (
	"fmt"
	"iter"
	"time"

	"capri"
	"capri/cron"
)

// Calendar answers for one zone. It is small, never changes, and may be copied and shared. The zero Calendar
// is of no use; make one with New.
type Calendar struct{ clock *clock }

// New makes the calendar of a zone. It writes out the zone's clock changes, which takes a good part of a
// millisecond, so make one and keep it.
func New(zone *time.Location) Calendar { return Calendar{newClock(zone)} }

// Zone is the zone of business time.
func (c Calendar) Zone() *time.Location { return c.clock.zone }

// How long after midnight the marks of the date-based periods are (design §3). The staggering keeps the small
// crowds of weekly and monthly batches out of the way of the big one at 00:01.
const (
	hourMarkDelay  = 60 // after the end of the hour
	dayMarkDelay   = 60
	weekMarkDelay  = 2 * 60
	monthMarkDelay = 5 * 60
)

func markDelay(p capri.Period) int64 {
	switch p {
	case capri.Day:
		return dayMarkDelay
	case capri.Week:
		return weekMarkDelay
	default:
		return monthMarkDelay
	}
}

// Marks gives the intervals whose marks are in [from,to), in order of their marks. p is hour, day, week or
// month: a cron task's marks are its fires (CronFires), a manual task has none.
func (c Calendar) Marks(p capri.Period, from, to capri.Instant) iter.Seq[capri.Interval] {
	mustBeCalendar("Marks", p)
	return func(yield func(capri.Interval) bool) {
		// The interval that holds from ends after it, and so does its mark; of those before, few can have a
		// mark that late.
		iv := c.Containing(p, from)
		for prev := c.Shift(p, iv, -1); prev.Mark >= from; prev = c.Shift(p, iv, -1) {
			iv = prev
		}
		for ; iv.Mark < to; iv = c.Shift(p, iv, 1) {
			if !yield(iv) {
				return
			}
		}
	}
}

// Containing is the interval that holds the instant at. p is hour, day, week or month, here and below.
func (c Calendar) Containing(p capri.Period, at capri.Instant) capri.Interval {
	mustBeCalendar("Containing", p)
	sec := floorDiv(int64(at), 1000)
	if p == capri.Hour {
		return hourInterval(c.clock.hour(sec))
	}
	// The local date names the interval, but for the hours after a clock went back over midnight: they show
	// the old date again and belong to the new one, which had begun.
	day := floorDiv(c.clock.wall(sec), daySeconds)
	for first := firstDay(p, day); ; first = c.after(p, first, 1) {
		if iv := c.dateInterval(p, first); at < iv.End {
			return iv
		}
	}
}

// EndedBy is the newest interval that has ended by at: End <= at.
func (c Calendar) EndedBy(p capri.Period, at capri.Instant) capri.Interval {
	return c.Shift(p, c.Containing(p, at), -1)
}

// Shift is the interval n later, or earlier where n is negative. iv must be one of p's.
func (c Calendar) Shift(p capri.Period, iv capri.Interval, n int) capri.Interval {
	mustBeCalendar("Shift", p)
	if n == 0 {
		return iv
	}
	start := floorDiv(int64(iv.Start), 1000)
	if p == capri.Hour && n == 1 { // the usual walk
		return hourInterval(c.clock.hour(floorDiv(int64(iv.End), 1000)))
	}
	if p == capri.Hour {
		return hourInterval(c.clock.hours(c.clock.hour(start), n))
	}
	day := floorDiv(c.clock.wall(start), daySeconds)
	return c.dateInterval(p, c.after(p, firstDay(p, day), n))
}

// NewestEnded is the newest interval that has ended by now, whether its mark has come or not: what `execute`
// runs. e is the expression of a cron task and nil otherwise; false means that it has never fired.
func (c Calendar) NewestEnded(p capri.Period, e *cron.Expression, now capri.Instant) (capri.Interval, bool) {
	switch p {
	case capri.Manual:
		return c.Manual(now), true
	case capri.Cron:
		// Fires are whole seconds and Prev is strictly before, so one millisecond later includes now.
		fire, ok := e.Prev(asTime(now+1), c.Zone())
		if !ok {
			return capri.Interval{}, false
		}
		return c.CronInterval(e, capri.InstantOf(fire)), true
	}
	return c.EndedBy(p, now), true
}

// Manual is the interval [now,now) of a batch that somebody asks for. It is cut to the second, because its
// batch_no is, and a batch_no must mean one interval.
func (c Calendar) Manual(now capri.Instant) capri.Interval {
	return c.CronFire(instant(floorDiv(int64(now), 1000)))
}

// CronFires gives the intervals of the fires in [from,to), at most limit of them.
func (c Calendar) CronFires(e *cron.Expression, from, to capri.Instant, limit int) []capri.Interval {
	fires := e.Between(asTime(from), asTime(to), c.Zone(), limit)
	if len(fires) == 0 {
		return nil
	}
	ivs := make([]capri.Interval, len(fires))
	ivs[0] = c.CronInterval(e, capri.InstantOf(fires[0]))
	for i, f := range fires[1:] {
		fire := capri.InstantOf(f)
		ivs[i+1] = c.CronFire(fire)
		ivs[i+1].Start = ivs[i].End
	}
	return ivs
}

// CronFire is the interval [fire,fire): a fire with its batch_no, for callers that know its start or need none.
func (c Calendar) CronFire(fire capri.Instant) capri.Interval {
	return capri.Interval{BatchNo: c.fireNo(fire), Start: fire, End: fire, Mark: fire}
}

// CronInterval is the interval that ends with a fire of e: from the fire before, or empty where there is none.
func (c Calendar) CronInterval(e *cron.Expression, fire capri.Instant) capri.Interval {
	iv := c.CronFire(fire)
	if prev, ok := e.Prev(asTime(fire), c.Zone()); ok {
		iv.Start = capri.InstantOf(prev)
	}
	return iv
}

// EarliestStart is beginMinutes after the mark by the clock on the wall, not elapsed: 599 minutes after 00:01
// is 10:00 on every day of the year, also when the night was an hour shorter. None are -1 and 0: the mark.
func (c Calendar) EarliestStart(p capri.Period, iv capri.Interval, beginMinutes int) capri.Instant {
	if beginMinutes <= 0 {
		return iv.Mark
	}
	mark := floorDiv(int64(iv.Mark), 1000)
	wall := c.clock.wall(mark)
	if p == capri.Day || p == capri.Week || p == capri.Month {
		// Where a gap moved the mark, the minutes still count from where it should have been.
		wall = floorDiv(wall, daySeconds)*daySeconds + markDelay(p)
	}
	// Not before the mark: of two equal times, the one that is still to come.
	return instant(c.clock.resolveFrom(mark, wall+int64(beginMinutes)*60))
}

// firstDay is the first date of the interval that has day in it.
func firstDay(p capri.Period, day int64) int64 {
	switch p {
	case capri.Week:
		return day - (day+3)%7 // day 0 was a Thursday
	case capri.Month:
		return day - int64(civil(day*daySeconds).Day()-1)
	}
	return day
}

// after is the first date of the interval n after the one that begins with first.
func (c Calendar) after(p capri.Period, first int64, n int) int64 {
	switch p {
	case capri.Week:
		return first + 7*int64(n)
	case capri.Month:
		t := civil(first * daySeconds)
		return dayNumber(t.Year(), t.Month()+time.Month(n), 1)
	}
	return c.clock.dates(first, n)
}

// dateInterval is the day, week or month that begins with the date first. Its mark falls on the first date
// after it that the zone has.
func (c Calendar) dateInterval(p capri.Period, first int64) capri.Interval {
	next := c.after(p, first, 1)
	return capri.Interval{
		BatchNo: dateNo(p, first),
		Start:   instant(c.clock.resolve(first * daySeconds)),
		End:     instant(c.clock.resolve(next * daySeconds)),
		Mark:    instant(c.clock.resolve(next*daySeconds + markDelay(p))),
	}
}

// hourInterval: the mark is one elapsed minute after the end. That is :01 of the next hour except where the
// clock jumps into the middle of one, which then has no :01.
func hourInterval(h hourRun) capri.Interval {
	return capri.Interval{
		BatchNo: hourNo(h),
		Start:   instant(h.start),
		End:     instant(h.end),
		Mark:    instant(h.end + hourMarkDelay),
	}
}

func instant(sec int64) capri.Instant { return capri.Instant(sec * 1000) }

// asTime is Instant.In without its special zero: here the epoch is an instant as any other.
func asTime(at capri.Instant) time.Time { return time.UnixMilli(int64(at)) }

// mustBeCalendar stops a caller that mixed up periods. It cannot happen by data: what comes from users and
// tables went through capri.ParsePeriod, and callers branch on Period.Calendar.
func mustBeCalendar(what string, p capri.Period) {
	if !p.Calendar() {
		panic(fmt.Sprintf("calendar.%s: period %s has no intervals of its own; want hour, day, week or month", what, p))
	}
}
