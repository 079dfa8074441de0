package cron

import "fmt"

// The fields of an expression as errors name them. WholeExpression is for what no single field is to blame for.
const (
	Seconds         = "seconds"
	Minutes         = "minutes"
	Hours           = "hours"
	DayOfMonth      = "day-of-month"
	Month           = "month"
	DayOfWeek       = "day-of-week"
	Year            = "year"
	WholeExpression = "expression"
)

// Error says which part of an expression is wrong and what would be right.
type Error struct {
	Field string // one of the names above
	Value string // the text that is wrong, as it was given
	Want  string // what would be right there
}

func (e *Error) Error() string {
	// Long values are cut because messages end up in logs and dialogs; the field tells where to look.
	const most = 60
	value := e.Value
	if len(value) > most {
		value = value[:most] + "..."
	}
	if e.Field == WholeExpression {
		return fmt.Sprintf("cron expression: %q: want %s", value, e.Want)
	}
	return fmt.Sprintf("cron expression: %s: %q: want %s", e.Field, value, e.Want)
}
