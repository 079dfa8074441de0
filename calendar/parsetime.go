package calendar

import (
	"strings"
	"time"

	"capri"
)

const timeForms = `business time such as "2026-11-20", "2026-11-20 09:30", "2026-11-20 09:30:00", ` +
	`or with an offset "2026-11-20T09:30:00+08:00"`

var localLayouts = []string{"2006-01-02 15:04:05", "2006-01-02 15:04"}

// ParseTime reads a time as people write it: business time unless it carries an offset. A bare date is its
// first instant. A time that the clock skips is the first after the gap; one that it shows twice is the first
// (write the offset to mean the other).
func (c Calendar) ParseTime(text string) (capri.Instant, error) {
	at, _, err := c.parseTime(text)
	return at, err
}

// ParseRangeEnd reads the end of a range and gives the first instant that is no longer in it, so that every
// range in the code is half open. A bare date stands for the whole day. included tells whether a time of day
// belongs to the range itself, as schedule_time's do, or ends it, as data intervals' (design §11).
func (c Calendar) ParseRangeEnd(text string, included bool) (capri.Instant, error) {
	at, date, err := c.parseTime(text)
	switch {
	case err != nil:
		return 0, err
	case date:
		// By the date and not by what holds its first instant: for a date the zone never had both are nothing.
		t, _ := time.Parse(time.DateOnly, strings.TrimSpace(text))
		return instant(c.clock.resolve(t.Unix() + daySeconds)), nil
	case included:
		return at + 1, nil // the resolution of an Instant
	}
	return at, nil
}

func (c Calendar) parseTime(text string) (at capri.Instant, date bool, err error) {
	s := strings.TrimSpace(text)
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return instant(c.clock.resolve(t.Unix())), true, nil
	}
	// RFC 3339 allows a blank for the T, and people use it.
	spaced := s
	if len(s) > 10 && s[10] == 'T' {
		spaced = s[:10] + " " + s[11:]
	}
	for _, layout := range localLayouts {
		// time.Parse would also take a fraction of a second here, which the documented forms do not have.
		if t, err := time.Parse(layout, spaced); err == nil && len(spaced) == len(layout) {
			return instant(c.clock.resolve(t.Unix())), false, nil
		}
	}
	for _, layout := range []string{"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04Z07:00"} {
		if t, err := time.Parse(layout, spaced); err == nil {
			return capri.Instant(t.UnixMilli()), false, nil
		}
	}
	return 0, false, capri.Invalid("time", text, timeForms)
}
