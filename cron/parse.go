package cron

import (
	"fmt"
	"strings"
)

// MaxLength is how many bytes the text of an expression may have; a list of all minutes has 169.
const MaxLength = 255

// Expression is a parsed Quartz cron expression. It does not change, and may be used by many goroutines at once.
type Expression struct {
	text       string
	seconds    set
	minutes    set
	hours      set
	months     set
	years      years
	days       dayRule
	fixedHours bool
}

// String is the text that was parsed, without space around it.
func (e *Expression) String() string { return e.text }

// FixedHours tells whether the hours are one hour or a list, and not *, a range or a step: whether the expression
// fires once, and not twice, at a wall time that comes twice. A list with a range in it runs on.
func (e *Expression) FixedHours() bool { return e.fixedHours }

// Parse reads an expression. Its error is an *Error.
func Parse(text string) (*Expression, error) {
	text = strings.Trim(text, " \t\r\n")
	parts, err := split(text)
	if err != nil {
		return nil, err
	}

	e := &Expression{text: text}
	if err := secondsField.list(parts[0], e.seconds.add); err != nil {
		return nil, err
	}
	if err := minutesField.list(parts[1], e.minutes.add); err != nil {
		return nil, err
	}
	if err := hoursField.list(parts[2], e.hours.add); err != nil {
		return nil, err
	}
	e.fixedHours = !strings.ContainsAny(parts[2], "*-/")
	if e.days, err = parseDays(parts[3], parts[5]); err != nil {
		return nil, err
	}
	if err := monthField.list(parts[4], e.months.add); err != nil {
		return nil, err
	}
	if err := yearField.list(parts[6], e.years.add); err != nil {
		return nil, err
	}
	return e, nil
}

// split cuts the text into the seven fields.
func split(text string) ([]string, error) {
	if text == "" {
		return nil, &Error{WholeExpression, text, "six or seven fields, seconds first"}
	}
	if len(text) > MaxLength {
		return nil, &Error{WholeExpression, text, fmt.Sprintf("at most %d characters, not %d", MaxLength, len(text))}
	}
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	for i, part := range parts {
		// Everything below is ASCII then: there are foreign letters whose capitals are A to Z.
		if strings.ContainsFunc(part, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, &Error{fieldName(i), part, "plain letters, digits and signs only"}
		}
	}
	switch n := len(parts); {
	case strings.HasPrefix(text, "@"):
		return nil, &Error{WholeExpression, text, "six or seven fields; Quartz has no names such as @hourly, which is 0 0 * * * ?"}
	case n == 5:
		return nil, missingSeconds(text, parts)
	case n < 5:
		return nil, &Error{WholeExpression, text, fmt.Sprintf("six or seven fields, seconds first, not %d", n)}
	case n > 7:
		return nil, &Error{Year, strings.Join(parts[7:], " "), "nothing after the year, the seventh field"}
	case n == 6:
		parts = append(parts, "*")
	}
	return parts, nil
}

func fieldName(i int) string {
	if i < len(fields) {
		return fields[i].name
	}
	return WholeExpression
}

// missingSeconds explains the commonest mistake: text of Unix cron, which has no seconds.
func missingSeconds(text string, parts []string) error {
	minute, hour, day, month, weekday := parts[0], parts[1], parts[2], parts[3], parts[4]
	want := fmt.Sprintf("six or seven fields: seconds come first, as in 0 %s", text)
	// Unix has * where Quartz wants a ?, so that alone would be refused in turn.
	if day != "?" && weekday == "*" {
		weekday = "?"
	} else if day == "*" && weekday != "?" {
		day = "?"
	}
	if day != parts[2] || weekday != parts[4] {
		want += fmt.Sprintf(", and one day field is ?: 0 %s %s %s %s %s", minute, hour, day, month, weekday)
	}
	if strings.ContainsAny(weekday, "0123456789") {
		want += " (1 is SUN here, and 7 is SAT)"
	}
	return &Error{Seconds, text, want}
}
