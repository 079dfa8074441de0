package calendar

import (
	"math"
	"sort"
	"time"
)

// A wall time is what the clock of the zone shows, as seconds since 1970-01-01 00:00 on that same clock. So
// wall/86400 is a date (a "day number"), and wall/3600 a date with its hour (a "label").

const (
	hourSeconds = 3600
	daySeconds  = 86400
	// No zone was ever further from UTC: Manila's -15:56 and Juneau's +15:02 of the 19th century are the record.
	maxOffset = 16 * hourSeconds
)

// change is a moment at which the clock is put to another offset; it holds until the next change.
type change struct {
	at     int64 // Unix second; math.MinInt64 for the first
	offset int64 // seconds east of UTC
}

// clock is a zone with its changes written out, because asking time.Location costs a search and a parse of
// the zone's rule each time, and 100,000 batches are labelled at one mark.
type clock struct {
	zone    *time.Location
	changes []change
	missing []int64 // day numbers that the zone never had, in order
}

// The years for which changes are known. Before and after, the offset stays as at the edge: no data of ours
// is older, and no rule of today will hold that long.
const firstYear, lastYear = 1880, 2200

func newClock(zone *time.Location) *clock {
	k := &clock{zone: zone}
	t := time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC).In(zone)
	_, offset := t.Zone()
	k.changes = append(k.changes, change{math.MinInt64, int64(offset)})
	for {
		_, next := t.ZoneBounds()
		if next.IsZero() || next.Year() > lastYear {
			break
		}
		// Where a rule governs (2038 and later), Go ends each year after 365 days; on the last day of a leap
		// year the end it gives is not after t. No rule changes a clock there, so go on to the next year.
		if !next.After(t) {
			next = t.AddDate(0, 0, 2)
		}
		t = next
		_, offset := t.Zone()
		before := k.changes[len(k.changes)-1].offset
		if int64(offset) == before { // only the name or the flag changed
			continue
		}
		at := t.Unix()
		k.changes = append(k.changes, change{at, int64(offset)})
		// Whole dates that the jump leaves out: Apia 2011-12-30, Kwajalein 1993-08-21.
		for d := ceilDiv(at+before, daySeconds); (d+1)*daySeconds <= at+int64(offset); d++ {
			k.missing = append(k.missing, d)
		}
	}
	return k
}

// index finds the change that holds at sec.
func (k *clock) index(sec int64) int {
	lo, hi := 0, len(k.changes) // changes[lo].at <= sec < changes[hi].at
	for hi-lo > 1 {
		mid := int(uint(lo+hi) >> 1)
		if k.changes[mid].at <= sec {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// end is when change i stops to hold.
func (k *clock) end(i int) int64 {
	if i+1 < len(k.changes) {
		return k.changes[i+1].at
	}
	return math.MaxInt64
}

// wall is what the clock shows at sec.
func (k *clock) wall(sec int64) int64 { return sec + k.changes[k.index(sec)].offset }

// resolve is the first instant at which the clock shows wall; if a gap swallowed it, the first instant after
// the gap. Both are "the first instant that shows wall or more", so it never runs backwards.
func (k *clock) resolve(wall int64) int64 { return k.resolveFrom(wall-maxOffset, wall) }

// resolveFrom is resolve among the instants from sec on.
func (k *clock) resolveFrom(sec, wall int64) int64 {
	for i := k.index(sec); ; i++ {
		// Where t lies before this change begins, the change jumped over it.
		if t := wall - k.changes[i].offset; t < k.end(i) {
			return max(t, k.changes[i].at, sec)
		}
	}
}

// instants lists every instant at which the clock shows wall: none in a gap, two where it was put back.
func (k *clock) instants(wall int64) []int64 {
	var found []int64
	for i := k.index(wall - maxOffset); i < len(k.changes) && k.changes[i].at <= wall+maxOffset; i++ {
		if t := wall - k.changes[i].offset; t >= k.changes[i].at && t < k.end(i) {
			found = append(found, t)
		}
	}
	return found
}

// twice reports whether what the clock shows at sec, it shows at another time too.
func (k *clock) twice(sec int64) bool {
	i := k.index(sec)
	wall := sec + k.changes[i].offset
	for _, n := range [2]int{i - 1, i + 1} {
		if n < 0 || n >= len(k.changes) {
			continue
		}
		if t := wall - k.changes[n].offset; t >= k.changes[n].at && t < k.end(n) {
			return true
		}
	}
	return false
}

// hourRun is one hour that the clock shows: the unbroken stretch [start,end) during which date and hour read
// the same. A stretch begins anew where the clock shows a full hour again, which parts the two equal hours of
// an autumn night; where a change leads back into the middle of the hour that is just shown (Lord Howe,
// 02:00 → 01:30) it is one long hour.
type hourRun struct {
	label      int64 // date and hour: wall / 3600
	start, end int64
	offset     int64 // at the start
	twice      bool  // another stretch has the same label
}

// hour is the one that holds sec.
func (k *clock) hour(sec int64) hourRun {
	first := k.index(sec)
	last := first
	label := floorDiv(sec+k.changes[first].offset, hourSeconds)

	// Back to the full hour; if the clock was changed since, then on to what it showed before, unless that
	// was another hour.
	start := label*hourSeconds - k.changes[first].offset
	for start < k.changes[first].at {
		at := k.changes[first].at
		if floorDiv(at-1+k.changes[first-1].offset, hourSeconds) != label {
			start = at
			break
		}
		first--
		start = label*hourSeconds - k.changes[first].offset
	}
	// The same forward.
	end := (label+1)*hourSeconds - k.changes[last].offset
	for end >= k.end(last) {
		at := k.end(last)
		wall := at + k.changes[last+1].offset
		if floorDiv(wall, hourSeconds) != label || wall%hourSeconds == 0 {
			end = at
			break
		}
		last++
		end = (label+1)*hourSeconds - k.changes[last].offset
	}

	h := hourRun{label: label, start: start, end: end, offset: k.changes[first].offset}
	for _, n := range [2]int{first - 1, last + 1} {
		if n < 0 || n >= len(k.changes) {
			continue
		}
		from := max(label*hourSeconds-k.changes[n].offset, k.changes[n].at)
		to := min((label+1)*hourSeconds-k.changes[n].offset, k.end(n))
		if from < to && (from < start || from >= end) {
			h.twice = true
		}
	}
	return h
}

// hours moves n hours on or back.
func (k *clock) hours(h hourRun, n int) hourRun {
	for n != 0 {
		// Far from any change hours are 3600 s, so a long way is one step.
		i := k.index(h.start)
		step := int64(n)
		if n > 0 {
			if e := k.end(i); e != math.MaxInt64 {
				step = min(step, (e-daySeconds-h.end)/hourSeconds)
			}
		} else if i > 0 {
			step = max(step, -(h.start-daySeconds-k.changes[i].at)/hourSeconds)
		}
		if step*int64(n) > 0 && h.end-h.start == hourSeconds {
			h = k.hour(h.start + step*hourSeconds)
			n -= int(step)
			continue
		}
		if n > 0 {
			h = k.hour(h.end)
			n--
		} else {
			h = k.hour(h.start - 1)
			n++
		}
	}
	return h
}

// dates moves n dates on or back, over those that the zone never had.
func (k *clock) dates(day int64, n int) int64 {
	to := day + int64(n)
	for _, m := range k.missing {
		if n > 0 && day < m && m <= to {
			to++
		}
	}
	for i := len(k.missing) - 1; i >= 0; i-- {
		if m := k.missing[i]; n < 0 && to <= m && m < day {
			to--
		}
	}
	return to
}

// exists reports whether the zone had that date.
func (k *clock) exists(day int64) bool {
	i := sort.Search(len(k.missing), func(i int) bool { return k.missing[i] >= day })
	return i == len(k.missing) || k.missing[i] != day
}

// civil writes a wall time as a UTC time, which has the same year, month … second and no clock changes.
func civil(wall int64) time.Time { return time.Unix(wall, 0).UTC() }

// dayNumber counts the days since 1970-01-01. Days and months beyond the end run on, as in time.Date.
func dayNumber(year int, month time.Month, day int) int64 {
	return floorDiv(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix(), daySeconds)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }
