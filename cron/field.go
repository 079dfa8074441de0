package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// field is what the text of one field may hold.
type field struct {
	name     string
	min, max int
	maxStep  int
	names    []string // of min, min+1, ...; nil where there are only numbers
}

var (
	monthNames   = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

	// The largest steps are Quartz's; for years it has none, there it is what can still reach a second year.
	secondsField    = field{name: Seconds, min: 0, max: 59, maxStep: 59}
	minutesField    = field{name: Minutes, min: 0, max: 59, maxStep: 59}
	hoursField      = field{name: Hours, min: 0, max: 23, maxStep: 23}
	dayOfMonthField = field{name: DayOfMonth, min: 1, max: 31, maxStep: 31}
	monthField      = field{name: Month, min: 1, max: 12, maxStep: 12, names: monthNames}
	dayOfWeekField  = field{name: DayOfWeek, min: 1, max: 7, maxStep: 7, names: weekdayNames}
	yearField       = field{name: Year, min: minYear, max: maxYear, maxStep: maxYear - minYear}

	fields = []field{
		secondsField, minutesField, hoursField, dayOfMonthField, monthField, dayOfWeekField, yearField,
	}
)

func (f field) refuse(value, want string, args ...any) error {
	return &Error{Field: f.name, Value: value, Want: fmt.Sprintf(want, args...)}
}

// list reads a comma-separated list and gives each value it stands for to add.
func (f field) list(text string, add func(int)) error {
	for item := range strings.SplitSeq(text, ",") {
		if item == "" {
			return f.refuse(text, "a value on both sides of each comma")
		}
		if err := f.item(item, add); err != nil {
			return err
		}
	}
	return nil
}

// item reads one entry of a list: a value, a range or *, each perhaps with a step.
func (f field) item(text string, add func(int)) error {
	base, stepText, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		var ok bool
		if step, ok = number(stepText); !ok || step < 1 || step > f.maxStep {
			return f.refuse(text, "a step of 1 to %d after the /", f.maxStep)
		}
	}
	low, high, ranged := strings.Cut(base, "-")
	switch {
	case base == "*", base == "" && stepped:
		fill(f.min, f.max, step, add)
		return nil
	case strings.Contains(base, "?"):
		return f.refuse(text, "%s (? stands alone, in day-of-month or day-of-week)", f.values())
	case stepped && !isNumber(low):
		// Quartz drops the step here without a word, so somebody may believe in a MON/2 that was never every other Monday.
		return f.refuse(text, "numbers before a step (a name cannot have one)")
	case ranged && isNumber(low) != isNumber(high):
		return f.refuse(text, "a range with numbers or names at both ends")
	}

	first, err := f.value(low)
	if err != nil {
		return err
	}
	last := first
	switch {
	case ranged:
		if last, err = f.value(high); err != nil {
			return err
		}
	case stepped:
		last = f.max
	}
	if last >= first {
		fill(first, last, step, add)
		return nil
	}
	if f.name == Year {
		return f.refuse(text, "the earlier year first")
	}
	// A range over the end, as 22-2: it goes on at the field's smallest value.
	size := f.max - f.min + 1
	fill(first, last+size, step, func(v int) { add((v-f.min)%size + f.min) })
	return nil
}

func fill(first, last, step int, add func(int)) {
	for v := first; v <= last; v += step {
		add(v)
	}
}

// value reads a number or a name.
func (f field) value(text string) (int, error) {
	name := strings.ToUpper(text)
	if i := slices.Index(f.names, name); i >= 0 {
		return f.min + i, nil
	}
	if v, ok := number(text); ok && f.min <= v && v <= f.max {
		return v, nil
	}
	if len(name) > 3 && slices.Contains(f.names, name[:3]) {
		return 0, f.refuse(text, "%s: names have three letters, so perhaps %s", f.values(), name[:3])
	}
	return 0, f.refuse(text, "%s", f.values())
}

// values describes what a single value may be.
func (f field) values() string {
	if f.names == nil {
		return fmt.Sprintf("%d to %d", f.min, f.max)
	}
	return fmt.Sprintf("%d to %d or %s to %s", f.min, f.max, f.names[0], f.names[len(f.names)-1])
}

// isNumber is stricter than strconv, which takes signs.
func isNumber(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func number(text string) (int, bool) {
	if !isNumber(text) {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}
