package cron

import "time"

// Next is the first fire strictly after the given instant, shown in zone (nil is UTC). It is false where there is none
// until the end of 2199. The time is then a hundred years on and not zero, because callers that wait until the next
// fire and overlook the false would take zero for long ago, and run at once or for ever.
func (e *Expression) Next(after time.Time, zone *time.Location) (time.Time, bool) {
	zone = orUTC(zone)
	t, ok := e.next(clamp(after.Unix())+1, zone)
	if !ok {
		return after.In(zone).AddDate(100, 0, 0), false
	}
	return time.Unix(t, 0).In(zone), true
}

// Prev is the last fire strictly before the given instant, shown in zone (nil is UTC). It is false where there is none
// since the beginning of 1970.
func (e *Expression) Prev(before time.Time, zone *time.Location) (time.Time, bool) {
	zone = orUTC(zone)
	last := clamp(before.Unix())
	if before.Nanosecond() == 0 {
		last--
	}
	t, ok := e.prev(last, zone)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(t, 0).In(zone), true
}

// Between gives the fires in [from, to), in order, but no more than limit of them.
func (e *Expression) Between(from, to time.Time, zone *time.Location, limit int) []time.Time {
	var fires []time.Time
	fire, ok := e.Next(from.Add(-1), zone)
	for ok && fire.Before(to) && len(fires) < limit {
		fires = append(fires, fire)
		fire, ok = e.Next(fire, zone)
	}
	return fires
}

// next is the first fire at t or later. It goes through the stretches of the zone (see wall.go).
func (e *Expression) next(t int64, zone *time.Location) (int64, bool) {
	for {
		offset, end := offsetUntil(t, zone)
		if wall, ok := e.nextWall(t + offset); ok && wall-offset < end {
			t = wall - offset
			if !e.fixedHours {
				return t, true
			}
			_, to, again := shownAgain(t, offset, end, zone)
			if !again {
				return t, true
			}
			t = to
			continue
		}
		// From the end of the stretch on, walls later than this are shown. Going to where the first match
		// among them can be, and not to the next stretch, is what makes impossible dates end quickly.
		wall, ok := e.nextWall(end - maxShift)
		if !ok {
			return 0, false
		}
		t = max(end, wall-maxShift)
	}
}

// prev is the last fire at t or earlier: next in a mirror.
func (e *Expression) prev(t int64, zone *time.Location) (int64, bool) {
	for {
		offset, start := offsetSince(t, zone)
		if wall, ok := e.prevWall(t + offset); ok && wall-offset >= start {
			t = wall - offset
			if !e.fixedHours {
				return t, true
			}
			_, end := offsetUntil(t, zone)
			from, _, again := shownAgain(t, offset, end, zone)
			if !again {
				return t, true
			}
			t = max(from, start) - 1
			continue
		}
		wall, ok := e.prevWall(start - 1 + maxShift)
		if !ok {
			return 0, false
		}
		t = min(start-1, wall+maxShift)
	}
}

// lastWall is the last second of the last year.
var lastWall = time.Date(maxYear+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix() - 1

// nextWall is the first matching wall time at w or later.
func (e *Expression) nextWall(w int64) (int64, bool) {
	w = max(w, 0)
	if w > lastWall {
		return 0, false
	}
	today := w / daySeconds
	day, ok := e.nextDay(today)
	if ok && day == today {
		if clock := e.nextClock(int(w % daySeconds)); clock >= 0 {
			return day*daySeconds + int64(clock), true
		}
		day, ok = e.nextDay(today + 1)
	}
	return day*daySeconds + int64(clockOf(e.hours.first(), e.minutes.first(), e.seconds.first())), ok
}

// prevWall is the last matching wall time at w or earlier.
func (e *Expression) prevWall(w int64) (int64, bool) {
	w = min(w, lastWall)
	if w < 0 {
		return 0, false
	}
	today := w / daySeconds
	day, ok := e.prevDay(today)
	if ok && day == today {
		if clock := e.prevClock(int(w % daySeconds)); clock >= 0 {
			return day*daySeconds + int64(clock), true
		}
		day, ok = e.prevDay(today - 1)
	}
	return day*daySeconds + int64(clockOf(e.hours.last(), e.minutes.last(), e.seconds.last())), ok
}

// nextDay is the first matching day, counted from 1970-01-01, at from or later.
func (e *Expression) nextDay(from int64) (int64, bool) {
	year, month, day := date(from)
	for y := e.years.from(year); y >= 0; y = e.years.from(y + 1) {
		if y > year {
			month, day = 1, 1
		}
		for m := e.months.from(month); m >= 0; m = e.months.from(m + 1) {
			if m > month {
				day = 1
			}
			if d := e.days.in(y, m).from(day); d >= 0 {
				return dayNumber(y, m, d), true
			}
		}
	}
	return 0, false
}

// prevDay is the last matching day, counted from 1970-01-01, at from or earlier.
func (e *Expression) prevDay(from int64) (int64, bool) {
	year, month, day := date(from)
	for y := e.years.upTo(year); y >= 0; y = e.years.upTo(y - 1) {
		if y < year {
			month, day = 12, 31
		}
		for m := e.months.upTo(month); m >= 0; m = e.months.upTo(m - 1) {
			if m < month {
				day = 31
			}
			if d := e.days.in(y, m).upTo(day); d >= 0 {
				return dayNumber(y, m, d), true
			}
		}
	}
	return 0, false
}

// nextClock is the first matching second of a day at clock or later, or -1.
func (e *Expression) nextClock(clock int) int {
	hour, minute, second := clock/3600, clock/60%60, clock%60
	if e.hours.has(hour) {
		if e.minutes.has(minute) {
			if s := e.seconds.from(second); s >= 0 {
				return clockOf(hour, minute, s)
			}
		}
		if m := e.minutes.from(minute + 1); m >= 0 {
			return clockOf(hour, m, e.seconds.first())
		}
	}
	if h := e.hours.from(hour + 1); h >= 0 {
		return clockOf(h, e.minutes.first(), e.seconds.first())
	}
	return -1
}

// prevClock is the last matching second of a day at clock or earlier, or -1.
func (e *Expression) prevClock(clock int) int {
	hour, minute, second := clock/3600, clock/60%60, clock%60
	if e.hours.has(hour) {
		if e.minutes.has(minute) {
			if s := e.seconds.upTo(second); s >= 0 {
				return clockOf(hour, minute, s)
			}
		}
		if m := e.minutes.upTo(minute - 1); m >= 0 {
			return clockOf(hour, m, e.seconds.last())
		}
	}
	if h := e.hours.upTo(hour - 1); h >= 0 {
		return clockOf(h, e.minutes.last(), e.seconds.last())
	}
	return -1
}

func clockOf(hour, minute, second int) int { return hour*3600 + minute*60 + second }

// date and dayNumber use UTC as a calendar without clock changes.
func date(day int64) (year, month, dayOfMonth int) {
	y, m, d := time.Unix(day*daySeconds, 0).UTC().Date()
	return y, int(m), d
}

func dayNumber(year, month, day int) int64 {
	return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Unix() / daySeconds
}

// clamp keeps arithmetic with far-away instants from overflowing; it is more than a thousand years around.
func clamp(t int64) int64 {
	const far = 100_000_000_000
	return min(max(t, -far), far)
}

func orUTC(zone *time.Location) *time.Location {
	if zone == nil {
		return time.UTC
	}
	return zone
}
