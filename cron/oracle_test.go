package cron_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"capri/cron"
)

// The oracle walks through every minute of some days and looks at the clock on the wall. It never sees the text of an
// expression: text and meaning are drawn together.

// drawn is a random expression and what it means.
type drawn struct {
	text    string
	seconds map[int]bool
	minutes map[int]bool
	hours   map[int]bool
	fixed   bool
	day     func(date time.Time) bool // at midnight UTC
	months  map[int]bool
	years   map[int]bool
}

// values draws the text of a field with the numbers low to high, and what it stands for.
func values(t *rapid.T, label string, low, high int, wrap bool) (string, map[int]bool) {
	meaning := map[int]bool{}
	one := rapid.IntRange(low, high)
	var items []string
	for range rapid.IntRange(1, 3).Draw(t, label+" items") {
		first, last, step := one.Draw(t, label), one.Draw(t, label), rapid.IntRange(1, high-low).Draw(t, label+" step")
		step = min(step, 7)
		if last < first && !wrap {
			first, last = last, first
		}
		form := rapid.SampledFrom([]string{"%[1]d", "%[1]d", "%[1]d-%[2]d", "%[1]d-%[2]d/%[3]d", "%[1]d/%[3]d", "*/%[3]d", "*"}).
			Draw(t, label+" form")
		items = append(items, strings.Split(fmt.Sprintf(form+"|%[1]d%[2]d%[3]d", first, last, step), "|")[0])
		switch form {
		case "%[1]d":
			last = first
		case "%[1]d/%[3]d":
			last = high
		case "*/%[3]d":
			first, last = low, high
		case "*":
			first, last, step = low, high, 1
		}
		if !strings.Contains(form, "[3]") {
			step = 1
		}
		// Step by step, over the end if need be.
		for n, v := 0, first; ; n++ {
			if n%step == 0 {
				meaning[v] = true
			}
			if v == last {
				break
			}
			if v++; v > high {
				v = low
			}
		}
	}
	return strings.Join(items, ","), meaning
}

// dayFields draws the two day fields.
func dayFields(t *rapid.T) (month, week string, day func(time.Time) bool) {
	n := rapid.IntRange(1, 31).Draw(t, "day")
	w := rapid.IntRange(1, 7).Draw(t, "weekday")
	nth := rapid.IntRange(1, 5).Draw(t, "nth")
	isWeekday := func(d time.Time) bool { return int(d.Weekday())+1 == w }
	lastDay := func(d time.Time) time.Time { return time.Date(d.Year(), d.Month()+1, 0, 0, 0, 0, 0, time.UTC) }
	// nearest tells whether d is the workday nearest to the day target, both in the same month.
	nearest := func(d, target time.Time) bool {
		if target.Month() != d.Month() || target.Year() != d.Year() {
			return false
		}
		for distance := 0; ; distance++ {
			for _, candidate := range []time.Time{target.AddDate(0, 0, -distance), target.AddDate(0, 0, distance)} {
				weekend := candidate.Weekday() == time.Saturday || candidate.Weekday() == time.Sunday
				if !weekend && candidate.Month() == target.Month() {
					return candidate.Equal(d)
				}
			}
		}
	}
	switch rapid.IntRange(0, 12).Draw(t, "kind of day") {
	case 0:
		text, meaning := values(t, "days", 1, 31, true)
		return text, "?", func(d time.Time) bool { return meaning[d.Day()] }
	case 1:
		text, meaning := values(t, "weekdays", 1, 7, true)
		return "?", text, func(d time.Time) bool { return meaning[int(d.Weekday())+1] }
	case 2:
		return "L", "?", func(d time.Time) bool { return d.Equal(lastDay(d)) }
	case 3:
		return fmt.Sprintf("L-%d", n-1), "?", func(d time.Time) bool { return d.AddDate(0, 0, n-1).Equal(lastDay(d)) }
	case 4:
		return fmt.Sprintf("%dW", n), "?", func(d time.Time) bool {
			return nearest(d, time.Date(d.Year(), d.Month(), n, 0, 0, 0, 0, time.UTC))
		}
	case 5:
		return fmt.Sprintf("L-%dW", n-1), "?", func(d time.Time) bool { return nearest(d, lastDay(d).AddDate(0, 0, 1-n)) }
	case 6:
		return "LW", "?", func(d time.Time) bool { return nearest(d, lastDay(d)) }
	case 7:
		return "?", fmt.Sprintf("%dL", w), func(d time.Time) bool {
			return isWeekday(d) && d.AddDate(0, 0, 7).Month() != d.Month()
		}
	case 8:
		return "?", fmt.Sprintf("%d#%d", w, nth), func(d time.Time) bool { return isWeekday(d) && (d.Day()+6)/7 == nth }
	}
	return "*", "?", func(time.Time) bool { return true }
}

func drawExpression(t *rapid.T) drawn {
	var d drawn
	second, seconds := values(t, "seconds", 0, 59, true)
	if rapid.Bool().Draw(t, "full minute") || len(seconds) > 5 {
		second, seconds = "0", map[int]bool{0: true} // else there are too many fires to look at
	}
	minute, minutes := values(t, "minutes", 0, 59, true)
	hour, hours := values(t, "hours", 0, 23, true)
	switch rapid.IntRange(0, 3).Draw(t, "hours at night") {
	case 0: // the hours in which clocks are changed
		hour, hours = "0,1,2,3", map[int]bool{0: true, 1: true, 2: true, 3: true}
	case 1:
		hour, hours = "23-3", map[int]bool{23: true, 0: true, 1: true, 2: true, 3: true}
	}
	monthDay, weekDay, day := dayFields(t)
	month, months := values(t, "months", 1, 12, true)
	year, years := values(t, "years", 1970, 2199, false)
	if rapid.IntRange(0, 3).Draw(t, "all months") > 0 {
		month, months = "*", nil
	}
	if rapid.IntRange(0, 3).Draw(t, "all years") > 0 {
		year, years = "*", nil
	}
	d.text = strings.Join([]string{second, minute, hour, monthDay, month, weekDay, year}, " ")
	d.seconds, d.minutes, d.hours, d.months, d.years, d.day = seconds, minutes, hours, months, years, day
	d.fixed = !strings.ContainsAny(hour, "*-/")
	return d
}

// matches tells whether the minute of t's wall clock does.
func (d drawn) matches(t time.Time) bool {
	return d.minutes[t.Minute()] && d.hours[t.Hour()] &&
		(d.months == nil || d.months[int(t.Month())]) && (d.years == nil || d.years[t.Year()]) &&
		d.day(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC))
}

// walk finds the fires in [from, to), which are full minutes, in a zone whose offsets are full minutes.
func (d drawn) walk(from, to time.Time, zone *time.Location) []time.Time {
	const minute = "2006-01-02 15:04"
	lastShown := map[string]time.Time{}
	// No clock was put back further than a day since 1970.
	for at := from; at.Before(to.Add(25 * time.Hour)); at = at.Add(time.Minute) {
		if wall := at.In(zone); d.matches(wall) {
			lastShown[wall.Format(minute)] = at
		}
	}
	var fires []time.Time
	seconds := slices.Sorted(maps.Keys(d.seconds))
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		wall := at.In(zone)
		if !d.matches(wall) || d.fixed && !lastShown[wall.Format(minute)].Equal(at) {
			continue
		}
		for _, second := range seconds {
			fires = append(fires, wall.Add(time.Duration(second)*time.Second))
		}
	}
	return fires
}

// changes are days on which something happens to a clock.
var changes = []struct{ zone, at, what string }{
	{"UTC", "2028-02-29T00:00:00Z", "nothing"},
	{"Asia/Shanghai", "2027-01-01T00:00:00Z", "nothing"},
	{"Asia/Shanghai", "1986-05-03T18:00:00Z", "its first summer time"},
	{"America/New_York", "2026-03-08T07:00:00Z", "a gap"},
	{"America/New_York", "2026-11-01T06:00:00Z", "an overlap"},
	{"America/New_York", "2040-12-31T12:00:00Z", "day 366 of a year, for which the library's zone bounds are wrong"},
	{"America/New_York", "2198-11-04T06:00:00Z", "an overlap by the zone's rule"},
	{"America/Metlakatla", "2019-01-20T10:00:00Z", "a gap just after the library's zone bound, with the zone data that Go embeds"},
	{"Europe/Berlin", "2026-03-29T01:00:00Z", "a gap"},
	{"Europe/Berlin", "2026-10-25T01:00:00Z", "an overlap"},
	{"Europe/Dublin", "2026-10-25T01:00:00Z", "an overlap, winter being the time that is saved"},
	{"Australia/Lord_Howe", "2026-04-04T15:00:00Z", "an overlap of half an hour"},
	{"Australia/Lord_Howe", "2026-10-03T15:30:00Z", "a gap of half an hour"},
	{"Antarctica/Troll", "2026-10-25T01:00:00Z", "an overlap of two hours"},
	{"America/Sao_Paulo", "2018-02-18T02:00:00Z", "an overlap at midnight"},
	{"America/Sao_Paulo", "2018-11-04T03:00:00Z", "a gap at midnight"},
	{"America/Havana", "2026-03-08T05:00:00Z", "a gap at midnight"},
	{"America/Havana", "2026-11-01T05:00:00Z", "an overlap at midnight"},
	{"Asia/Beirut", "2026-03-28T22:00:00Z", "a gap at midnight"},
	{"Africa/Casablanca", "2026-02-15T02:00:00Z", "an overlap before Ramadan"},
	{"Asia/Gaza", "2040-10-20T00:00:00Z", "an overlap with a gap in the week after"},
	{"Pacific/Apia", "2011-12-30T10:00:00Z", "a day left out"},
	{"Pacific/Kiritimati", "1994-12-31T10:00:00Z", "the last day of a year left out"},
	{"Asia/Pyongyang", "2015-08-14T15:00:00Z", "an overlap of half an hour, no summer time"},
	{"Asia/Pyongyang", "2018-05-04T15:00:00Z", "a gap of half an hour, no summer time"},
	{"America/Caracas", "2007-12-09T07:00:00Z", "an overlap of half an hour, no summer time"},
	{"Europe/Moscow", "2014-10-25T22:00:00Z", "an overlap, no summer time"},
	{"Antarctica/Casey", "2010-03-04T15:00:00Z", "an overlap of three hours"},
	{"Antarctica/Vostok", "1994-01-31T17:00:00Z", "an overlap of seven hours"},
}

func TestFiresAreWhatTheWallClockShows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawExpression(t)
		change := rapid.SampledFrom(changes).Draw(t, "change")
		z, err := time.LoadLocation(change.zone)
		assert.NoError(t, err)
		at, err := time.Parse(time.RFC3339, change.at)
		assert.NoError(t, err)
		from := at.Add(-time.Duration(rapid.IntRange(0, 30*60).Draw(t, "minutes before")) * time.Minute)
		to := at.Add(time.Duration(rapid.IntRange(0, 30*60).Draw(t, "minutes after")) * time.Minute)
		e, err := cron.Parse(d.text)
		if err != nil {
			t.Fatalf("%q: %v", d.text, err)
		}
		if e.FixedHours() != d.fixed {
			t.Fatalf("%q: fixed hours: %v", d.text, e.FixedHours())
		}

		want := d.walk(from, to, z)
		if got := e.Between(from, to, z, len(want)+1); !slices.Equal(got, want) {
			t.Fatalf("%q in %s: forwards %s", d.text, change.zone, difference(got, want))
		}
		if got := backwards(e, from, to, z); !slices.Equal(got, want) {
			t.Fatalf("%q in %s: backwards %s", d.text, change.zone, difference(got, want))
		}
	})
}

// difference shows the first fire in which two lists differ.
func difference(got, want []time.Time) string {
	i := 0
	for i < len(got) && i < len(want) && got[i].Equal(want[i]) {
		i++
	}
	return fmt.Sprintf("fire %d: got %v, want %v", i, inUTC(got[i:min(i+1, len(got))]), inUTC(want[i:min(i+1, len(want))]))
}

func TestDaysAreThoseOfTheCalendar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		monthDay, weekDay, day := dayFields(t)
		first := rapid.IntRange(1970, 2195).Draw(t, "first year")
		from, to := time.Date(first, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(first+4, 1, 1, 0, 0, 0, 0, time.UTC)
		e, err := cron.Parse("0 0 0 " + monthDay + " * " + weekDay)
		assert.NoError(t, err)
		var want []time.Time
		for d := from; d.Before(to); d = d.AddDate(0, 0, 1) {
			if day(d) {
				want = append(want, d)
			}
		}
		if got := e.Between(from, to, time.UTC, len(want)+1); !slices.Equal(got, want) {
			t.Fatalf("%q: %s", e, difference(got, want))
		}
		if got := backwards(e, from, to, time.UTC); !slices.Equal(got, want) {
			t.Fatalf("%q backwards: %s", e, difference(got, want))
		}
	})
}

func TestNextAndPrevAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawExpression(t)
		change := rapid.SampledFrom(changes).Draw(t, "change")
		z, err := time.LoadLocation(change.zone)
		assert.NoError(t, err)
		at, err := time.Parse(time.RFC3339, change.at)
		assert.NoError(t, err)
		at = at.Add(time.Duration(rapid.Int64Range(-200_000_000, 200_000_000).Draw(t, "milliseconds")) * time.Millisecond)
		e, err := cron.Parse(d.text)
		assert.NoError(t, err)

		next, ok := e.Next(at, z)
		if !ok {
			return
		}
		if !next.After(at) {
			t.Fatalf("%q: %v is not after %v", e, next, at)
		}
		prev, ok := e.Prev(next, z)
		if ok && prev.After(at) {
			t.Fatalf("%q: %v is between %v and its next %v", e, prev, at, next)
		}
		if last, ok := e.Prev(next.Add(1), z); !ok || !last.Equal(next) {
			t.Fatalf("%q: %v fires, and is not before the nanosecond after it", e, next)
		}
		if ok {
			if again, _ := e.Next(prev, z); !again.Equal(next) {
				t.Fatalf("%q: after %v comes %v, and asked from later %v", e, prev, again, next)
			}
		}
	})
}

func TestBetweenAdds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawExpression(t)
		change := rapid.SampledFrom(changes).Draw(t, "change")
		z, err := time.LoadLocation(change.zone)
		assert.NoError(t, err)
		at, err := time.Parse(time.RFC3339, change.at)
		assert.NoError(t, err)
		e, err := cron.Parse(d.text)
		assert.NoError(t, err)

		from, to := at.Add(-24*time.Hour), at.Add(24*time.Hour)
		middle := at.Add(time.Duration(rapid.Int64Range(-86_400_000, 86_400_000).Draw(t, "milliseconds")) * time.Millisecond)
		const all = 1_000_000
		parts := append(e.Between(from, middle, z, all), e.Between(middle, to, z, all)...)
		if whole := e.Between(from, to, z, all); !slices.Equal(parts, whole) {
			t.Fatalf("%q: %s", e, difference(parts, whole))
		}
	})
}
