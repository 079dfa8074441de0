package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Expression is a Quartz expression as sets of what each field matches; the day fields are a question to a date.
type Expression struct {
	seconds []int
	minutes map[int]bool
	hours   map[int]bool
	months  map[int]bool
	years   map[int]bool
	day     func(date time.Time) bool
	fixed   bool // one hour or a list of hours: of two equal times the later one fires
}

// ParseCron reads an expression that the product has accepted; it is no judge of spelling.
func ParseCron(text string) (*Expression, error) {
	f := strings.Fields(strings.ToUpper(text))
	if len(f) == 6 {
		f = append(f, "*")
	}
	if len(f) != 7 {
		return nil, fmt.Errorf("cron %q: %d fields", text, len(f))
	}
	months := []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	var errs []error
	field := func(text string, low, high int, names ...string) map[int]bool {
		set, err := values(text, low, high, names)
		if err != nil {
			errs = append(errs, err)
		}
		return set
	}
	e := &Expression{minutes: field(f[1], 0, 59), hours: field(f[2], 0, 23), months: field(f[4], 1, 12, months...), years: field(f[6], 1970, 2199), fixed: !strings.ContainsAny(f[2], "*-/")}
	for s := range field(f[0], 0, 59) {
		e.seconds = append(e.seconds, s)
	}
	slices.Sort(e.seconds)
	var err error
	if e.day, err = days(f[3], f[5]); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("cron %q: %w", text, errs[0])
	}
	return e, nil
}

// values writes a list of values, ranges and steps out.
func values(text string, low, high int, names []string) (map[int]bool, error) {
	set := map[int]bool{}
	number := func(s string) (int, error) {
		if i := slices.Index(names, s); i >= 0 {
			return low + i, nil
		}
		return strconv.Atoi(s)
	}
	for item := range strings.SplitSeq(text, ",") {
		base, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			var err error
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return nil, fmt.Errorf("step in %q", item)
			}
		}
		first, last := low, high
		if base != "*" && base != "" {
			from, to, ranged := strings.Cut(base, "-")
			var err error
			if first, err = number(from); err != nil {
				return nil, err
			}
			switch {
			case ranged:
				if last, err = number(to); err != nil {
					return nil, err
				}
			case !stepped:
				last = first
			}
		}
		if first < low || first > high || last < low || last > high {
			return nil, fmt.Errorf("%q is not within %d to %d", item, low, high)
		}
		for n, v := 0, first; ; n++ {
			if n%step == 0 {
				set[v] = true
			}
			if v == last {
				break
			}
			if v++; v > high { // over the end: 22-2
				v = low
			}
		}
	}
	return set, nil
}

// days reads the two day fields, of which one is "?".
func days(month, week string) (func(time.Time) bool, error) {
	if month == "?" {
		return weekdays(week)
	}
	if week != "?" {
		return nil, fmt.Errorf("day fields %q and %q: one has to be ?", month, week)
	}
	day, working := strings.CutSuffix(month, "W")
	before, fromLast := strings.CutPrefix(day, "L")
	if !fromLast && !working {
		set, err := values(month, 1, 31, nil)
		return func(d time.Time) bool { return set[d.Day()] }, err
	}
	n := 0
	if before = strings.TrimPrefix(before, "-"); before != "" {
		var err error
		if n, err = strconv.Atoi(before); err != nil {
			return nil, err
		}
	}
	return func(d time.Time) bool {
		length := lengthOf(d)
		target := n
		if fromLast {
			target = length - n
		}
		if target < 1 || target > length {
			return false // a month without that day has no fire
		}
		if !working {
			return d.Day() == target
		}
		// The nearest weekday within the month: look one and two days to either side.
		for _, by := range []int{0, -1, 1, -2, 2} {
			c := time.Date(d.Year(), d.Month(), target+by, 0, 0, 0, 0, time.UTC)
			if c.Month() == d.Month() && c.Weekday() != time.Saturday && c.Weekday() != time.Sunday {
				return d.Day() == c.Day()
			}
		}
		return false
	}, nil
}

func weekdays(week string) (func(time.Time) bool, error) {
	names := []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
	one := func(text string) (int, error) {
		set, err := values(text, 1, 7, names)
		for v := range set {
			return v - 1, err
		}
		return 0, err
	}
	if week == "L" {
		week = "SAT"
	}
	if name, nth, ok := strings.Cut(week, "#"); ok {
		n, err := strconv.Atoi(nth)
		if err != nil {
			return nil, err
		}
		w, err := one(name)
		return func(d time.Time) bool { return int(d.Weekday()) == w && (d.Day()-1)/7+1 == n }, err
	}
	if name, ok := strings.CutSuffix(week, "L"); ok {
		w, err := one(name)
		return func(d time.Time) bool { return int(d.Weekday()) == w && d.Day()+7 > lengthOf(d) }, err
	}
	set, err := values(week, 1, 7, names)
	return func(d time.Time) bool { return set[int(d.Weekday())+1] }, err
}

func lengthOf(d time.Time) int {
	return time.Date(d.Year(), d.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// matches tells whether what a clock shows in this minute does.
func (e *Expression) matches(wall int64) bool {
	hour := floor(wall, 60)
	if !e.minutes[int(wall-hour*60)] || !e.hours[int(hour-floor(hour, 24)*24)] {
		return false
	}
	t := civil(wall)
	return e.months[int(t.Month())] && e.years[t.Year()] &&
		e.day(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC))
}

// Fires gives the intervals that end with fires in (after, to].
func (w *Walk) Fires(e *Expression, after, to int64) []Interval {
	last := map[int64]int{} // the last minute that shows a time
	var minutes []int
	for i, m := range w.wall {
		if e.matches(m) {
			minutes, last[m] = append(minutes, i), i
		}
	}
	var out []Interval
	var before int64
	for _, i := range minutes {
		if e.fixed && last[w.wall[i]] != i {
			continue
		}
		for _, s := range e.seconds {
			fire := w.at(i) + int64(s)*1000
			if fire > to {
				return out
			}
			if fire > after {
				if before == 0 {
					before = w.before(e, fire)
				}
				out = append(out, Interval{Mark: fire, Start: before, End: fire, BatchNo: w.FireNo(fire)})
			}
			before = fire
		}
	}
	return out
}

// before is the fire before one that has none within the walk: it goes back as far as there are fires. A fire that
// never had one before it has an empty interval.
func (w *Walk) before(e *Expression, fire int64) int64 {
	const farBack = 12 * 366 // days; a 29 February on a weekday of its own needs more, and is nobody's pipeline
	for day := floor(fire/1000, 86400); day > floor(fire/1000, 86400)-farBack; day -= 40 {
		older, err := NewWalk(w.zone.String(), (day-40)*86_400_000, day*86_400_000)
		if err != nil {
			return fire
		}
		if fires := older.firesOnly(e); len(fires) > 0 {
			for i := len(fires) - 1; i >= 0; i-- {
				if fires[i] < fire {
					return fires[i]
				}
			}
		}
	}
	return fire
}

// firesOnly gives all fires of the walk.
func (w *Walk) firesOnly(e *Expression) []int64 {
	last := map[int64]int{}
	for i, m := range w.wall {
		if e.matches(m) {
			last[m] = i
		}
	}
	var out []int64
	for i, m := range w.wall {
		if !e.matches(m) || e.fixed && last[m] != i {
			continue
		}
		for _, s := range e.seconds {
			out = append(out, w.at(i)+int64(s)*1000)
		}
	}
	return out
}
