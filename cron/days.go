package cron

import (
	"strings"
	"time"
)

// dayRule says which days of a month match.
type dayRule struct {
	kind    dayKind
	days    set // monthDays: days of the month; weekdays: days of the week, 1 is Sunday
	weekday int // lastOfWeekday, nthOfWeekday: 1 is Sunday
	n       int // lastDay: days before the last; nearestTo: the day; nthOfWeekday: which one, from 1
	working bool
}

type dayKind int

const (
	monthDays     dayKind = iota // 1,15
	lastDay                      // L-3; L-3W when working
	nearestTo                    // 15W
	weekdays                     // MON-FRI
	lastOfWeekday                // 6L
	nthOfWeekday                 // 6#3
)

// parseDays reads the two day fields, of which one is ?.
func parseDays(month, week string) (dayRule, error) {
	switch {
	case month == "?" && week == "?":
		return dayRule{}, dayOfWeekField.refuse(week, "a day, or * in day-of-month: only one of the two day fields can be ?")
	case month == "?":
		return parseWeekdays(week)
	}
	rule, err := parseMonthDays(month)
	switch {
	case err != nil || week == "?":
		return rule, err
	case month == "*" && week != "*":
		return rule, dayOfMonthField.refuse(month, "? because day-of-week is given: exactly one of the two day fields is ?")
	}
	return rule, dayOfWeekField.refuse(week, "? because day-of-month is given: exactly one of the two day fields is ?")
}

func parseMonthDays(text string) (dayRule, error) {
	f := dayOfMonthField
	upper := strings.ToUpper(text)
	if !strings.ContainsAny(upper, "LW") {
		rule := dayRule{kind: monthDays}
		err := f.list(text, rule.days.add)
		return rule, err
	}
	if strings.Contains(text, ",") {
		return dayRule{}, f.refuse(text, "L or W alone, not in a list")
	}
	day, working := strings.CutSuffix(upper, "W")
	before, fromLast := strings.CutPrefix(day, "L-")
	switch n, ok := number(before); {
	case day == "L":
		return dayRule{kind: lastDay, working: working}, nil
	case fromLast && ok && n <= 30:
		return dayRule{kind: lastDay, n: n, working: working}, nil
	case fromLast:
		return dayRule{}, f.refuse(text, "L-0 to L-30, perhaps with W")
	case working && ok && 1 <= n && n <= 31:
		return dayRule{kind: nearestTo, n: n, working: true}, nil
	case working:
		return dayRule{}, f.refuse(text, "1W to 31W, LW, or L-1W to L-30W")
	}
	return dayRule{}, f.refuse(text, "1 to 31, L, L-3, 15W, LW or ?")
}

func parseWeekdays(text string) (dayRule, error) {
	f := dayOfWeekField
	upper := strings.ToUpper(text)
	if upper == "L" {
		return dayRule{kind: weekdays, days: 1 << 7}, nil
	}
	// No name of a weekday has an L.
	if !strings.ContainsAny(upper, "L#") {
		rule := dayRule{kind: weekdays}
		err := f.list(text, rule.days.add)
		return rule, err
	}
	if strings.Contains(text, ",") {
		return dayRule{}, f.refuse(text, "L or # alone, not in a list")
	}
	if day, nth, ok := strings.Cut(text, "#"); ok {
		n, ok := number(nth)
		if !ok || n < 1 || n > 5 {
			return dayRule{}, f.refuse(text, "1 to 5 after the #")
		}
		weekday, err := f.value(day)
		return dayRule{kind: nthOfWeekday, weekday: weekday, n: n}, err
	}
	day, ok := strings.CutSuffix(upper, "L")
	if weekday, err := f.value(day); ok && err == nil {
		return dayRule{kind: lastOfWeekday, weekday: weekday}, nil
	}
	return dayRule{}, f.refuse(text, "a single day before the L, as 6L or FRIL")
}

// in gives the days of a month that match.
func (r dayRule) in(year, month int) set {
	first := time.Date(year, time.Month(month), 1, 0, 0, 0, 0, time.UTC)
	length := first.AddDate(0, 1, -1).Day()
	// The first day of the month that is this weekday, 1 being Sunday.
	firstOf := func(weekday int) int { return 1 + (weekday-1-int(first.Weekday())+7)%7 }

	var days set
	switch r.kind {
	case monthDays:
		days = r.days
	case lastDay, nearestTo:
		day := r.n
		if r.kind == lastDay {
			day = length - r.n
		}
		// A month without that day has no fire, not even on the weekday nearest to where it would be.
		if day < 1 || day > length {
			return 0
		}
		if r.working {
			day = nearestWorkday(day, length, first.AddDate(0, 0, day-1).Weekday())
		}
		days.add(day)
	case weekdays:
		for weekday := r.days.first(); weekday >= 0; weekday = r.days.from(weekday + 1) {
			for day := firstOf(weekday); day <= length; day += 7 {
				days.add(day)
			}
		}
	case lastOfWeekday:
		day := firstOf(r.weekday)
		days.add(day + (length-day)/7*7)
	case nthOfWeekday:
		days.add(firstOf(r.weekday) + (r.n-1)*7)
	}
	return days & (2<<length - 2) // a 31st, or a fifth Friday, may be beyond the month
}

// nearestWorkday moves a day off the weekend without leaving the month.
func nearestWorkday(day, length int, weekday time.Weekday) int {
	switch {
	case weekday == time.Saturday && day == 1:
		return 3
	case weekday == time.Saturday:
		return day - 1
	case weekday == time.Sunday && day == length:
		return day - 2
	case weekday == time.Sunday:
		return day + 1
	}
	return day
}
