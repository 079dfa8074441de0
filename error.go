package capri

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The kinds of failure that callers tell apart with errors.Is. Anything else is an internal fault.
var (
	ErrInvalid     = errors.New("invalid")        // bad input: names field, value and what would be right
	ErrNotFound    = errors.New("not found")      // no such task, batch, node …
	ErrConflict    = errors.New("conflict")       // what is there now stands in the way
	ErrForbidden   = errors.New("forbidden")      // the caller has no right to it
	ErrUnavailable = errors.New("not reachable")  // database, HDFS … does not answer; trying again may help
	ErrStaleEpoch  = errors.New("lease was lost") // a newer leader exists; stop the turn, write nothing more
)

// FieldError says which field of the input is wrong, what it holds and what would be right.
type FieldError struct {
	Field string // as in the task file: "job.command", "parents[2].task"
	Value string
	Want  string
	Where string // file:line, task name …; may be empty
}

func (e *FieldError) Error() string {
	var b strings.Builder
	if e.Where != "" {
		b.WriteString(e.Where + ": ")
	}
	b.WriteString(e.Field)
	if e.Value != "" {
		fmt.Fprintf(&b, ": %q", clip(e.Value, 120))
	}
	if e.Want != "" {
		b.WriteString(": want " + e.Want)
	}
	return b.String()
}

func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// Invalid makes a FieldError.
func Invalid(field, value, want string) error {
	return &FieldError{Field: field, Value: value, Want: want}
}

// FieldErrors is everything that is wrong with an input, all at once.
type FieldErrors []*FieldError

func (es FieldErrors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

func (es FieldErrors) Is(target error) bool { return target == ErrInvalid }

// OrNil gives nil when nothing is wrong, so that a typed empty slice never looks like an error.
func (es FieldErrors) OrNil() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

// kindError is a sentence for people with a kind for programs.
type kindError struct {
	kind error
	text string
}

func (e *kindError) Error() string        { return e.text }
func (e *kindError) Is(target error) bool { return target == e.kind }

// NotFound, Conflict, Forbidden and Unavailable make an error of that kind from a sentence that people read.
func NotFound(format string, a ...any) error {
	return &kindError{ErrNotFound, fmt.Sprintf(format, a...)}
}
func Conflict(format string, a ...any) error {
	return &kindError{ErrConflict, fmt.Sprintf(format, a...)}
}
func Forbidden(format string, a ...any) error {
	return &kindError{ErrForbidden, fmt.Sprintf(format, a...)}
}
func Unavailable(format string, a ...any) error {
	return &kindError{ErrUnavailable, fmt.Sprintf(format, a...)}
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) { // not in the middle of a character
		n--
	}
	return s[:n] + "…"
}
