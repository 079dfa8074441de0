package lineage

import (
	"time"

	"capri"
	"capri/calendar"
	"capri/cron"
)

// Ref is what lineage must know of a task on either end of an edge.
type Ref struct {
	ID     capri.TaskID
	Name   string
	Period capri.Period
	Cron   *cron.Expression // of a cron task, else nil
	First  capri.Instant    // intervals whose mark is before it are not waited for; 0 for none such
	Broken error            // why its intervals are not known: its children have no conditions until it is mended
}

// series is the endless row of a task's intervals, calendar or cron alike.
type series struct {
	c calendar.Calendar
	p capri.Period
	e *cron.Expression
}

func (r Ref) series(c calendar.Calendar) series { return series{c, r.Period, r.Cron} }

// none reports whether there are no intervals to walk: a manual task's batches come when people want them.
func (s series) none() bool { return !s.p.Calendar() && s.e == nil }

// endingAfter is the first interval with End > at; false after the last fire of a cron expression. Of a calendar
// period it is the one that holds at. So it is of an expression, but for the time before its first fire.
func (s series) endingAfter(at capri.Instant) (capri.Interval, bool) {
	if s.e == nil {
		return s.c.Containing(s.p, at), true
	}
	fire, ok := s.e.Next(time.UnixMilli(int64(at)), s.c.Zone())
	return s.fire(fire, ok)
}

// endedBy is the newest interval with End <= at; false before the first fire of a cron expression.
func (s series) endedBy(at capri.Instant) (capri.Interval, bool) {
	if s.e == nil {
		return s.c.EndedBy(s.p, at), true
	}
	fire, ok := s.e.Prev(time.UnixMilli(int64(at)+1), s.c.Zone())
	return s.fire(fire, ok)
}

func (s series) fire(fire time.Time, ok bool) (capri.Interval, bool) {
	if !ok {
		return capri.Interval{}, false
	}
	return s.c.CronInterval(s.e, capri.InstantOf(fire)), true
}

// move is the interval n later (n < 0: earlier), or the outermost one with what is left of n where a cron
// expression has no more fires.
func (s series) move(iv capri.Interval, n int) (capri.Interval, int) {
	if s.e == nil {
		return s.c.Shift(s.p, iv, n), 0
	}
	if n == 1 { // the usual walk; what iv covered ends where the next begins
		fire, ok := s.e.Next(time.UnixMilli(int64(iv.End)), s.c.Zone())
		if !ok {
			return iv, 1
		}
		next := s.c.CronFire(capri.InstantOf(fire))
		next.Start = iv.End
		return next, 0
	}
	at := time.UnixMilli(int64(iv.End))
	moved := false
	for n != 0 {
		var fire time.Time
		var ok bool
		if n > 0 {
			fire, ok = s.e.Next(at, s.c.Zone())
		} else {
			fire, ok = s.e.Prev(at, s.c.Zone())
		}
		if !ok {
			break
		}
		at, moved = fire, true
		if n > 0 {
			n--
		} else {
			n++
		}
	}
	if moved {
		iv = s.c.CronInterval(s.e, capri.InstantOf(at))
	}
	return iv, n
}
