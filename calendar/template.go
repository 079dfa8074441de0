package calendar

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"capri"
)

// TemplateKind says what becomes of a ${…} that is not a time.
type TemplateKind int

const (
	PathTemplate    TemplateKind = iota // refused: a path with a literal ${…} would be waited for forever
	CommandTemplate                     // left as it is: it is the shell's
)

// Template is a text with times in it, read once and expanded for many intervals.
//
//	${yyyyMMdd}            the interval's start, on the zone's clock
//	${yyyy-MM-dd-1d}       one day earlier; units h d w M
//	${schedule:HHmm}       the mark
//
// A ${…} is a time when all of it reads as
//
//	[schedule:] format [(+|-) digits (h|d|w|M)]
//
// where format begins and ends with letters out of yyyy yy MM M dd d HH H mm m ss s Z, and may have between
// them - / _ . : , a blank, or anything beyond ASCII (年), which may also end it. So ${d}, ${s} and ${M_d} are times, and ${HOME},
// ${M_x}, ${x:-y}, ${d:-1}, ${#d} and ${d%.*} are not; whoever has a shell variable named like a time letter
// writes $d. The operators :- := :? :+ never are a format's separators.
type Template struct {
	text    string
	pieces  []piece
	moments []moment // each distinct one is computed once per expansion
}

// piece is literal text, or one token of a format for one of the moments.
type piece struct {
	literal string
	token   token
	moment  int
}

type token uint8

const (
	literal    token = iota
	year4            // yyyy
	year2            // yy
	month2           // MM
	month1           // M
	day2             // dd
	day1             // d
	hour2            // HH
	hour1            // H
	minute2          // mm
	minute1          // m
	second2          // ss
	second1          // s
	zoneOffset       // Z
)

var tokens = map[string]token{
	"yyyy": year4, "yy": year2, "MM": month2, "M": month1, "dd": day2, "d": day1, "HH": hour2, "H": hour1,
	"mm": minute2, "m": minute1, "ss": second2, "s": second1, "Z": zoneOffset,
}

const letters = "yyyy yy MM M dd d HH H mm m ss s Z"

// moment is which instant a format shows, and how far it is shifted.
type moment struct {
	schedule bool // the mark; else the interval's start
	n        int
	unit     byte // h d w M; 0 for no shift
}

// maxShift keeps the arithmetic far from overflow; it is 11 years of hours.
const maxShift = 100_000

// ParseTemplate reads a template. The error is a *capri.FieldError with the field "template", which callers
// replace by the name of theirs.
func ParseTemplate(text string, kind TemplateKind) (*Template, error) {
	t := &Template{text: text}
	rest := text
	for {
		at := strings.Index(rest, "${")
		if at < 0 {
			t.addLiteral(rest)
			return t, nil
		}
		t.addLiteral(rest[:at])
		rest = rest[at:]
		end := strings.IndexByte(rest, '}')
		// In "${a:-${yyyyMMdd}}" the outer one is the shell's and the inner one is ours.
		if inner := strings.Index(rest[2:], "${"); inner >= 0 && (end < 0 || inner+2 < end) {
			end = -1
		}
		why := "it is closed by }"
		if end >= 0 {
			if why = t.addTime(rest[2:end]); why == "" {
				rest = rest[end+1:]
				continue
			}
		}
		if kind == PathTemplate {
			shown := rest
			if end >= 0 {
				shown = rest[:end+1]
			}
			return nil, capri.Invalid("template", shown, why)
		}
		t.addLiteral("${")
		rest = rest[2:]
	}
}

func (t *Template) addLiteral(s string) {
	if s == "" {
		return
	}
	if n := len(t.pieces); n > 0 && t.pieces[n-1].token == literal {
		t.pieces[n-1].literal += s
		return
	}
	t.pieces = append(t.pieces, piece{literal: s})
}

// addTime adds what stands between ${ and }, or says what a time would need and adds nothing.
func (t *Template) addTime(body string) (want string) {
	var m moment
	format := body
	if rest, ok := strings.CutPrefix(format, "schedule:"); ok {
		m.schedule, format = true, rest
	}
	format, m.n, m.unit, want = cutShift(format)
	if want != "" {
		return want
	}
	pieces, want := readFormat(format)
	if want != "" {
		return want
	}

	which := -1
	for i, have := range t.moments {
		if have == m {
			which = i
		}
	}
	if which < 0 {
		which = len(t.moments)
		t.moments = append(t.moments, m)
	}
	for _, p := range pieces {
		if p.token == literal {
			t.addLiteral(p.literal)
			continue
		}
		p.moment = which
		t.pieces = append(t.pieces, p)
	}
	return ""
}

// cutShift takes "-1d" off the end of "yyyy-MM-dd-1d".
func cutShift(s string) (format string, n int, unit byte, want string) {
	// A shift is the only place for digits, so the first digit tells where it is.
	digits := strings.IndexAny(s, "0123456789")
	if digits < 0 {
		return s, 0, 0, ""
	}
	if digits == 0 || s[digits-1] != '-' && s[digits-1] != '+' {
		return s, 0, 0, "a shift with its sign, such as -1d or +2h; no other digits"
	}
	end := digits
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	if end != len(s)-1 || !strings.Contains("hdwM", s[end:]) {
		return s, 0, 0, fmt.Sprintf("a shift that ends in one of the units h d w M, not in %q", s[end:])
	}
	n, err := strconv.Atoi(s[digits:end])
	if err != nil || n > maxShift {
		return s, 0, 0, fmt.Sprintf("a shift of at most %d", maxShift)
	}
	if s[digits-1] == '-' {
		n = -n
	}
	return s[:digits-1], n, s[end], ""
}

// readFormat splits "yyyy-MM" into its letters and separators.
func readFormat(s string) (pieces []piece, want string) {
	separated := true // nothing read yet, or an ASCII separator last
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			end := i + 1
			for end < len(s) && s[end] == s[i] {
				end++
			}
			tok, ok := tokens[s[i:end]]
			if !ok {
				return nil, fmt.Sprintf("the time letters %s; %q is none of them", letters, s[i:end])
			}
			pieces = append(pieces, piece{token: tok})
			separated = false
			i = end
			continue
		}
		if r < utf8.RuneSelf && !strings.ContainsRune("-/_.:, ", r) || r == utf8.RuneError {
			return nil, fmt.Sprintf("time letters (%s) with - / _ . : , or blanks between them, not %q", letters, s[i:i+size])
		}
		if r == ':' && i+1 < len(s) && strings.IndexByte("-=?+", s[i+1]) >= 0 {
			return nil, fmt.Sprintf("no %q, which is the shell's", s[i:i+2])
		}
		if len(pieces) == 0 {
			break
		}
		pieces = append(pieces, piece{literal: s[i : i+size]})
		separated = r < utf8.RuneSelf // ${yyyy年M月d日} may end with its last character
		i += size
	}
	if separated {
		return nil, "a format that begins and ends with time letters: " + letters
	}
	return pieces, ""
}

// String is the text that the template was read from.
func (t *Template) String() string { return t.text }

// Expand writes the template out for an interval that starts at start and whose mark is mark.
func (t *Template) Expand(c Calendar, start, mark capri.Instant) string {
	switch {
	case len(t.pieces) == 0:
		return ""
	case len(t.moments) == 0:
		return t.pieces[0].literal // nothing but text, which addLiteral has joined
	}
	var room [256]byte
	return string(t.Append(room[:0], c, start, mark))
}

// Append is Expand into a buffer of the caller's.
func (t *Template) Append(b []byte, c Calendar, start, mark capri.Instant) []byte {
	var room [4]shown // nearly every template has one moment
	moments := room[:0]
	for _, m := range t.moments {
		at := start
		if m.schedule {
			at = mark
		}
		moments = append(moments, c.show(m, floorDiv(int64(at), 1000)))
	}
	for i := range t.pieces {
		p := &t.pieces[i]
		if p.token == literal {
			b = append(b, p.literal...)
			continue
		}
		m := &moments[p.moment]
		switch p.token {
		case year4:
			b = appendPadded(b, m.year, 4)
		case year2:
			b = appendPadded(b, m.year, 2)
		case month2:
			b = appendPadded(b, m.month, 2)
		case month1:
			b = strconv.AppendInt(b, int64(m.month), 10)
		case day2:
			b = appendPadded(b, m.day, 2)
		case day1:
			b = strconv.AppendInt(b, int64(m.day), 10)
		case hour2:
			b = appendPadded(b, m.hour, 2)
		case hour1:
			b = strconv.AppendInt(b, int64(m.hour), 10)
		case minute2:
			b = appendPadded(b, m.minute, 2)
		case minute1:
			b = strconv.AppendInt(b, int64(m.minute), 10)
		case second2:
			b = appendPadded(b, m.second, 2)
		case second1:
			b = strconv.AppendInt(b, int64(m.second), 10)
		case zoneOffset:
			b = appendOffset(b, m.offset)
		}
	}
	return b
}

// shown is what the clock shows at a moment.
type shown struct {
	year, month, day, hour, minute, second int
	offset                                 int64
}

// show shifts sec as m says and reads the clock. Hours are elapsed time; days, weeks and months keep the time
// of day on the wall, and a month clamps to its last day (31 March - 1M is 28 February).
func (c Calendar) show(m moment, sec int64) shown {
	switch {
	case m.n == 0: // no shift: the second of two equal hours must stay the second
	case m.unit == 'h':
		sec += int64(m.n) * hourSeconds
	case m.unit == 'M':
		wall := c.clock.wall(sec)
		t := civil(wall)
		first := dayNumber(t.Year(), t.Month()+time.Month(m.n), 1)
		next := civil(first * daySeconds)
		days := dayNumber(next.Year(), next.Month()+1, 1) - first
		day := first + min(int64(t.Day()), days) - 1
		sec = c.clock.resolve(day*daySeconds + wall - floorDiv(wall, daySeconds)*daySeconds)
	default:
		days := int64(m.n)
		if m.unit == 'w' {
			days *= 7
		}
		sec = c.clock.resolve(c.clock.wall(sec) + days*daySeconds)
	}
	offset := c.clock.changes[c.clock.index(sec)].offset
	t := civil(sec + offset)
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	return shown{year, int(month), day, hour, minute, second, offset}
}

// AmbiguousInFold reports whether an hourly template would give the two equal hours of the next autumn day
// after `after` one path, so that the second waits for, or overwrites, what belongs to the first. A Z tells
// them apart. A template without an hour shares its path among all hours, which is meant.
func (t *Template) AmbiguousInFold(c Calendar, after capri.Instant) bool {
	k := c.clock
	expand := func(h hourRun) string { return t.Expand(c, instant(h.start), instant(h.end+hourMarkDelay)) }
	for i := k.index(floorDiv(int64(after), 1000)) + 1; i < len(k.changes); i++ {
		back := k.changes[i-1].offset - k.changes[i].offset
		at := k.changes[i].at
		if back <= 0 || at == math.MinInt64 {
			continue
		}
		first, second := k.hour(at-back), k.hour(at)
		if first == second || first.label != second.label { // half an hour: one long hour
			continue
		}
		return expand(first) == expand(second) && expand(first) != expand(k.hours(first, -1))
	}
	return false
}
