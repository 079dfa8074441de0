package calendar

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"capri"
)

// batch_no is written from the interval's start by its local date; of hours, fires and manual batches the
// offset follows where the clock shows that time twice. The same interval has the same code whoever asks.

func hourNo(h hourRun) capri.BatchNo {
	b := make([]byte, 0, 17)
	t := civil(h.label * hourSeconds)
	b = appendDate(b, h.label*hourSeconds)
	b = appendPadded(b, t.Hour(), 2)
	if h.twice {
		b = appendOffset(b, h.offset)
	}
	return capri.BatchNo(b)
}

func dateNo(p capri.Period, day int64) capri.BatchNo {
	b := make([]byte, 0, 8)
	switch p {
	case capri.Week:
		year, week := civil(day * daySeconds).ISOWeek()
		b = appendPadded(b, year, 4)
		b = append(b, 'W')
		b = appendPadded(b, week, 2)
	case capri.Month:
		b = appendDate(b, day*daySeconds)[:6]
	default:
		b = appendDate(b, day*daySeconds)
	}
	return capri.BatchNo(b)
}

// fireNo is the batch_no of a cron fire, or of a manual batch's now.
func (c Calendar) fireNo(fire capri.Instant) capri.BatchNo {
	sec := floorDiv(int64(fire), 1000)
	offset := c.clock.changes[c.clock.index(sec)].offset
	t := civil(sec + offset)
	b := make([]byte, 0, 19)
	b = appendDate(b, sec+offset)
	b = appendPadded(b, t.Hour(), 2)
	b = appendPadded(b, t.Minute(), 2)
	b = appendPadded(b, t.Second(), 2)
	if c.clock.twice(sec) {
		b = appendOffset(b, offset)
	}
	return capri.BatchNo(b)
}

// Parse gives the interval that a batch_no stands for. For cron it is [fire,fire), since where the interval
// began depends on the expression: CronInterval(e, iv.Mark) has it whole. Only the one right spelling is
// taken, so that Parse(p, no).BatchNo is no.
func (c Calendar) Parse(p capri.Period, no capri.BatchNo) (capri.Interval, error) {
	candidates, ok := c.candidates(p, string(no))
	if !ok {
		return capri.Interval{}, capri.Invalid("batch_no", string(no), batchNoForm[p])
	}
	for _, iv := range candidates {
		if iv.BatchNo == no {
			return iv, nil
		}
	}
	switch len(candidates) {
	case 0:
		return capri.Interval{}, capri.Invalid("batch_no", string(no),
			fmt.Sprintf("a time that exists: the clock of %s never showed this one", c.Zone()))
	case 1:
		return capri.Interval{}, capri.Invalid("batch_no", string(no),
			fmt.Sprintf("%s: the clock of %s shows that time once, so no offset is written", candidates[0].BatchNo, c.Zone()))
	}
	names := make([]string, len(candidates))
	for i, iv := range candidates {
		names[i] = string(iv.BatchNo)
	}
	return capri.Interval{}, capri.Invalid("batch_no", string(no),
		fmt.Sprintf("%s: the clock of %s shows that time more than once", strings.Join(names, " or "), c.Zone()))
}

var batchNoForm = map[capri.Period]string{
	capri.Hour:   "year, month, day and hour, such as 2026112009",
	capri.Day:    "year, month and day, such as 20261120",
	capri.Week:   "ISO year and week, such as 2026W47",
	capri.Month:  "year and month, such as 202610",
	capri.Cron:   "the fire's date and time, such as 20261120093000",
	capri.Manual: "date and time, such as 20261120093000",
}

// candidates lists the intervals that no can mean when its offset is not looked at: none for a time that the
// zone never had, two where the clock shows it twice. ok is false where no is not even of the right form.
func (c Calendar) candidates(p capri.Period, no string) (ivs []capri.Interval, ok bool) {
	if p == capri.Week {
		return c.weekCandidate(no)
	}
	digits := map[capri.Period]int{capri.Hour: 10, capri.Day: 8, capri.Month: 6, capri.Cron: 14, capri.Manual: 14}[p]
	if digits == 0 || len(no) < digits {
		return nil, false
	}
	var field [6]int // year, month, day, hour, minute, second
	field[1], field[2] = 1, 1
	for i, at := 0, 0; at < digits; i++ {
		width := 2
		if i == 0 {
			width = 4
		}
		if field[i], ok = number(no[at : at+width]); !ok {
			return nil, false
		}
		at += width
	}
	if field[1] < 1 || field[1] > 12 || field[2] < 1 || field[2] > 31 || field[3] > 23 || field[4] > 59 || field[5] > 59 {
		return nil, false
	}
	day := dayNumber(field[0], time.Month(field[1]), field[2])
	if civil(day*daySeconds).Day() != field[2] {
		return nil, false // 31 April
	}
	wall := day*daySeconds + int64(field[3])*hourSeconds + int64(field[4])*60 + int64(field[5])

	if offset := no[digits:]; offset != "" && (!isOffset(offset) || p == capri.Day || p == capri.Month) {
		return nil, false
	}
	switch p {
	case capri.Hour:
		label := wall / hourSeconds
		// A label comes back within a day, after the clock was put back.
		first := c.clock.resolve(wall)
		for h := c.clock.hour(first); h.start < first+2*daySeconds; h = c.clock.hour(h.end) {
			if h.label == label {
				ivs = append(ivs, hourInterval(h))
			}
			if !h.twice && len(ivs) == 1 {
				break
			}
		}
	case capri.Day:
		if c.clock.exists(day) {
			ivs = append(ivs, c.dateInterval(p, day))
		}
	case capri.Month:
		ivs = append(ivs, c.dateInterval(p, day))
	default:
		for _, sec := range c.clock.instants(wall) {
			ivs = append(ivs, c.CronFire(instant(sec)))
		}
	}
	return ivs, true
}

func (c Calendar) weekCandidate(no string) ([]capri.Interval, bool) {
	if len(no) != len("2026W47") || no[4] != 'W' {
		return nil, false
	}
	year, ok1 := number(no[:4])
	week, ok2 := number(no[5:])
	if !ok1 || !ok2 || week < 1 || week > 53 {
		return nil, false
	}
	// 4 January is always in week 1.
	monday := firstDay(capri.Week, dayNumber(year, 1, 4)) + 7*int64(week-1)
	if y, _ := civil(monday * daySeconds).ISOWeek(); y != year {
		return nil, false // week 53 of a year that has 52
	}
	return []capri.Interval{c.dateInterval(capri.Week, monday)}, true
}

// number reads digits and nothing else: strconv would take a sign.
func number(s string) (int, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// isOffset reports whether s looks like -0400, or like -004430 where a zone still had seconds.
func isOffset(s string) bool {
	if len(s) != 5 && len(s) != 7 || s[0] != '+' && s[0] != '-' {
		return false
	}
	_, ok := number(s[1:])
	return ok
}
