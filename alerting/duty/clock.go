package duty

import (
	"time"

	"capri"
)

// Date is a day of the calendar: days since 1970-01-01.
type Date int

const daySeconds = 24 * 60 * 60

// ParseDate reads 2026-11-16.
func ParseDate(text string) (Date, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return 0, capri.Invalid("date", text, "a date such as 2026-11-16")
	}
	return Date(t.Unix() / daySeconds), nil
}

func (d Date) String() string {
	return time.Unix(int64(d)*daySeconds, 0).UTC().Format(time.DateOnly)
}

// dateOf is the date that the zone's clock shows at t.
func dateOf(zone *time.Location, t capri.Instant) Date {
	year, month, day := time.UnixMilli(int64(t)).In(zone).Date()
	return Date(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / daySeconds)
}

// reach is the first instant at which the zone's clock shows that time of that date, or a later one: after a gap where
// the time does not exist, the first where it comes twice. time.Date promises neither.
func reach(zone *time.Location, d Date, minutes int) capri.Instant {
	const farthest = 26 * 60 * 60 // no clock differs more from UTC
	wall := int64(d)*daySeconds + int64(minutes)*60
	t := time.Unix(wall-farthest, 0).In(zone)
	for {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		at := max(wall-int64(offset), t.Unix())
		if end.IsZero() || at < end.Unix() {
			return capri.Instant(at * 1000)
		}
		t = end
	}
}
