package calendar

import (
	"math"
	"strings"
	"time"

	"capri"
)

// A template read backwards. Who has a path and asks which intervals it can be of needs two things: to leave aside
// quickly the many templates that cannot give it (Outline), and of the others the few intervals to look at (Match).
// Both may name too much and never too little: Expand is the judge.

// Range is a half-open stretch of time.
type Range struct{ From, To capri.Instant }

// Bounded reports whether both ends are known.
func (r Range) Bounded() bool { return r.From > math.MinInt64 && r.To < math.MaxInt64 }

func (r Range) meet(o Range) Range { return Range{max(r.From, o.From), min(r.To, o.To)} }

var anyTime = Range{math.MinInt64, math.MaxInt64}

// Match is one way to read a text: an interval that gives it starts and has its mark within these.
type Match struct{ Start, Mark Range }

// Outline writes stretches of digits in text as #: those whose bit is set in times, counted from the left; those beyond
// the 64th all. + is written as -, since the sign of an offset may be either.
func Outline(text string, times uint64) string {
	o := outliner{times: times, b: make([]byte, 0, len(text))}
	o.literal(text)
	return o.end()
}

// Outline is what every expansion's Outline is for the same times: the stretches of digits that have a time in them.
func (t *Template) Outline() (outline string, times uint64) {
	stretches := outliner{} // only counts
	t.outline(&stretches)
	stretches.flush()
	o := outliner{times: stretches.timed}
	t.outline(&o)
	return o.end(), stretches.timed
}

func (t *Template) outline(o *outliner) {
	for i := range t.pieces {
		switch p := &t.pieces[i]; p.token {
		case literal:
			o.literal(p.literal)
		case zoneOffset:
			o.literal("-")
			o.time()
		default:
			o.time()
		}
	}
}

// outliner writes an outline; what it is given may end in the middle of a stretch.
type outliner struct {
	times, timed    uint64 // which stretches are written as #; which have had a time
	n               int    // stretches before this one
	inside, hasTime bool
	from            int // where this one begins in b
	b               []byte
}

func (o *outliner) begin() {
	if !o.inside {
		o.inside, o.from = true, len(o.b)
	}
}

func (o *outliner) time() {
	o.begin()
	o.hasTime = true
}

func (o *outliner) literal(s string) {
	for i := range len(s) {
		c := s[i]
		if c >= '0' && c <= '9' {
			o.begin()
			o.b = append(o.b, c)
			continue
		}
		o.flush()
		if c == '+' {
			c = '-'
		}
		o.b = append(o.b, c)
	}
}

func (o *outliner) flush() {
	if !o.inside {
		return
	}
	if o.n >= 64 || o.times&(1<<o.n) != 0 {
		o.b = append(o.b[:o.from], '#')
	}
	if o.hasTime && o.n < 64 {
		o.timed |= 1 << o.n
	}
	o.inside, o.hasTime = false, false
	o.n++
}

func (o *outliner) end() string {
	o.flush()
	return string(o.b)
}

// Constant reports whether the template has no time in it.
func (t *Template) Constant() bool { return len(t.moments) == 0 }

// Marked reports whether the mark is written anywhere in it.
func (t *Template) Marked() bool {
	for _, m := range t.moments {
		if m.schedule {
			return true
		}
	}
	return false
}

// read is what was read of one moment; -1: nothing yet.
type read struct{ year, century, month, day, hour, minute, second int }

// Match lists the ways to read text as an expansion of the template; none where it cannot be one.
func (t *Template) Match(c Calendar, text string) []Match {
	if t.Constant() {
		if t.Expand(c, 0, 0) != text {
			return nil
		}
		return []Match{{anyTime, anyTime}}
	}
	moments := make([]read, len(t.moments))
	for i := range moments {
		moments[i] = read{-1, -1, -1, -1, -1, -1, -1}
	}
	var found []Match
	t.match(0, text, moments, func() { found = append(found, t.where(c, moments)...) })
	return found
}

// match reads on from a piece. It goes back where a number may have one digit or two.
func (t *Template) match(from int, text string, moments []read, done func()) {
	if from == len(t.pieces) {
		if text == "" {
			done()
		}
		return
	}
	p := &t.pieces[from]
	if p.token == literal {
		if rest, ok := strings.CutPrefix(text, p.literal); ok {
			t.match(from+1, rest, moments, done)
		}
		return
	}
	m := &moments[p.moment]
	for _, width := range widths[p.token] {
		if len(text) < width {
			return
		}
		if p.token == zoneOffset {
			if isOffset(text[:width]) {
				t.match(from+1, text[width:], moments, done)
			}
			continue
		}
		n, ok := number(text[:width])
		if !ok {
			return
		}
		if field := m.field(p.token); *field < 0 || *field == n {
			was := *field
			*field = n
			t.match(from+1, text[width:], moments, done)
			*field = was
		}
	}
}

var widths = [...][]int{
	year4: {4}, year2: {2}, month2: {2}, month1: {1, 2}, day2: {2}, day1: {1, 2}, hour2: {2}, hour1: {1, 2},
	minute2: {2}, minute1: {1, 2}, second2: {2}, second1: {1, 2}, zoneOffset: {5, 7},
}

func (r *read) field(k token) *int {
	switch k {
	case year4:
		return &r.year
	case year2:
		return &r.century
	case month2, month1:
		return &r.month
	case day2, day1:
		return &r.day
	case hour2, hour1:
		return &r.hour
	case minute2, minute1:
		return &r.minute
	}
	return &r.second
}

// where turns what was read of the moments into when the interval must be.
func (t *Template) where(c Calendar, moments []read) []Match {
	found := []Match{{anyTime, anyTime}}
	for i, m := range t.moments {
		var next []Match
		for _, r := range c.shownWithin(m, moments[i]) {
			for _, f := range found {
				at := &f.Start
				if m.schedule {
					at = &f.Mark
				}
				if *at = at.meet(r); at.From < at.To {
					next = append(next, f)
				}
			}
		}
		found = next
	}
	return found
}

// shownWithin is the inverse of show: when it must be that the shifted clock shows what was read. The year, and then as
// many of month, day, hour … as were read without a gap, make one stretch of wall time.
func (c Calendar) shownWithin(m moment, r read) []Range {
	years := []int{r.year}
	switch {
	case r.year >= 0:
	case r.century >= 0: // two digits: whichever century there are changes of clocks for
		years = years[:0]
		for y := firstYear - firstYear%100; y <= lastYear; y += 100 {
			years = append(years, y+r.century)
		}
	default:
		return []Range{anyTime}
	}
	var found []Range
	for _, y := range years {
		if w, ok := wallOf(y, r); ok {
			found = append(found, c.unshift(m, w))
		}
	}
	return found
}

// wallRange is a stretch of wall time, and the month that the start of it is in.
type wallRange struct {
	from, to   int64
	year       int
	month, day int // 0 where they were not read
}

func wallOf(year int, r read) (w wallRange, ok bool) {
	w = wallRange{year: year, from: dayNumber(year, 1, 1) * daySeconds, to: dayNumber(year+1, 1, 1) * daySeconds}
	if r.month < 0 {
		return w, true
	}
	if r.month < 1 || r.month > 12 {
		return w, false
	}
	w.month = r.month
	month := time.Month(r.month)
	w.from, w.to = dayNumber(year, month, 1)*daySeconds, dayNumber(year, month+1, 1)*daySeconds
	if r.day < 0 {
		return w, true
	}
	if w.day = r.day; r.day < 1 || int64(r.day) > (w.to-w.from)/daySeconds {
		return w, false
	}
	w.from += int64(r.day-1) * daySeconds
	w.to = w.from + daySeconds
	for _, f := range []struct {
		n, most int
		unit    int64
	}{{r.hour, 23, hourSeconds}, {r.minute, 59, 60}, {r.second, 59, 1}} {
		if f.n < 0 {
			break
		}
		if f.n > f.most {
			return w, false
		}
		w.from += int64(f.n) * f.unit
		w.to = w.from + f.unit
	}
	return w, true
}

// unshift takes the shift of a moment off the stretch that its clock shows.
func (c Calendar) unshift(m moment, w wallRange) Range {
	if m.n == 0 {
		return c.clock.shows(w.from, w.to)
	}
	if m.unit == 'h' {
		r := c.clock.shows(w.from, w.to)
		back := instant(int64(m.n) * hourSeconds)
		return Range{r.From - back, r.To - back}
	}
	// A shifted time that falls into a gap is shown as what comes after it.
	from, to := w.from-c.clock.gap(w.from, w.to), w.to
	switch m.unit {
	case 'd':
		from, to = from-int64(m.n)*daySeconds, to-int64(m.n)*daySeconds
	case 'w':
		from, to = from-7*int64(m.n)*daySeconds, to-7*int64(m.n)*daySeconds
	default:
		from, to = w.monthsBack(m.n, w.from-from)
	}
	return c.clock.shows(from, to)
}

// monthsBack takes n months off. The last day of a month is what all later days of a longer one are clamped to.
func (w wallRange) monthsBack(n int, gap int64) (from, to int64) {
	month, months := max(w.month, 1), 1
	if w.month == 0 {
		months = 12
	}
	first := dayNumber(w.year, time.Month(month-n), 1) * daySeconds
	next := dayNumber(w.year, time.Month(month-n+months), 1) * daySeconds
	if w.day == 0 {
		return first - gap, next
	}
	shown := dayNumber(w.year, time.Month(month), 1) * daySeconds
	from, to = first+w.from-shown, first+w.to-shown
	if w.day == int(dayNumber(w.year, time.Month(month+1), 1)-shown/daySeconds) {
		to = max(to, next)
	}
	return from - gap, to
}

// shows is when the clock shows a time in [from,to): no less, and near a change of it a little more.
func (k *clock) shows(from, to int64) Range {
	_, most := k.offsets(from)
	least, _ := k.offsets(to)
	return Range{instant(from - most), instant(to - least)}
}

// offsets are the least and the most that hold anywhere near a wall time.
func (k *clock) offsets(wall int64) (least, most int64) {
	i := k.index(wall - maxOffset)
	least, most = k.changes[i].offset, k.changes[i].offset
	for i++; i < len(k.changes) && k.changes[i].at <= wall+maxOffset; i++ {
		least, most = min(least, k.changes[i].offset), max(most, k.changes[i].offset)
	}
	return least, most
}

// gap is the longest that the clock jumps forward near [from,to).
func (k *clock) gap(from, to int64) int64 {
	const near = 2 * daySeconds
	longest := int64(0)
	for i := k.index(from-near) + 1; i < len(k.changes) && k.changes[i].at <= to+near; i++ {
		longest = max(longest, k.changes[i].offset-k.changes[i-1].offset)
	}
	return longest
}
