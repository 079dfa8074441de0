package cron

import "time"

// Instants are Unix seconds here, and wall times are the seconds from 1970-01-01 00:00 to what the clock on the wall
// shows: wall = instant + offset. time.Date is not used to go from wall times to instants, because it makes up an
// instant for a wall time that does not exist and chooses one of two without saying so. Instead time is taken in
// stretches during which the zone's offset does not change; in a stretch, every wall time exists exactly once.

const (
	daySeconds = 24 * 60 * 60

	// maxShift is more than any zone is away from UTC, and more than any clock was ever put forward or back.
	maxShift = 26 * 60 * 60

	// forever stands for stretches that do not end. It is far from the limits, so that offsets can be added.
	forever = int64(1) << 60
)

// offsetUntil is the offset of the zone at t, and an instant after t until which it does not change. It may go on
// unchanged after that.
func offsetUntil(t int64, zone *time.Location) (offset, end int64) {
	at := time.Unix(t, 0).In(zone)
	_, o := at.Zone()
	_, bound := at.ZoneBounds()
	if bound.IsZero() {
		return int64(o), forever
	}
	end = bound.Unix()
	if end <= t {
		// On 31 December of leap years the standard library names the beginning of that day, as if the year had
		// 365 days. The offset in truth stays to the end of the year.
		end = floorDiv(t, daySeconds)*daySeconds + daySeconds
	}
	return int64(o), end
}

// offsetSince is the offset of the zone at t, and an instant at or before t since which it has not changed.
func offsetSince(t int64, zone *time.Location) (offset, start int64) {
	at := time.Unix(t, 0).In(zone)
	_, o := at.Zone()
	bound, _ := at.ZoneBounds()
	if bound.IsZero() {
		return int64(o), -forever
	}
	// A bound that comes from a zone's yearly rule may lie before the rule began, with another offset in between
	// (Metlakatla in January 2019, with Go's own zone data). Ends are right, so walk on from there; it is nearly
	// always one step.
	for start = bound.Unix(); ; {
		_, end := offsetUntil(start, zone)
		if end > t {
			return int64(o), start
		}
		start = end
	}
}

// shownAgain tells whether the wall time of t, in a stretch with this offset and end, comes again later. Then the same
// holds for all instants of the stretch in [from, to), so that a search can step over them at once.
func shownAgain(t, offset, end int64, zone *time.Location) (from, to int64, again bool) {
	for start := end; start <= t+maxShift; {
		laterOffset, laterEnd := offsetUntil(start, zone)
		if later := t + offset - laterOffset; start <= later && later < laterEnd {
			return t - (later - start), min(end, t+laterEnd-later), true
		}
		start = laterEnd
	}
	return 0, 0, false
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
