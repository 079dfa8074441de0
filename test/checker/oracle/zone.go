// Package oracle says which batches a run has to have: marks, data intervals, batch_nos and cron fires. It is slow and
// simple on purpose, and shares nothing with the product: it walks minute by minute through the zone's wall clock, where
// the product computes.
//
//	minutes of the run ──▶ what the clock shows ──▶ a new hour, date, week, month began: interval and mark
//	                                            └─▶ every second that the fields of an expression match: a fire
//
// The rules it follows are written in docs/design.md §3 and docs/decisions/0007, 0014.
package oracle

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Period as the tables number it.
type Period int

const (
	Hour   Period = 2
	Day    Period = 3
	Month  Period = 4
	Week   Period = 5
	Cron   Period = 6
	Manual Period = 7
)

// Interval is what one mark makes. Times are epoch milliseconds.
type Interval struct {
	Mark, Start, End int64
	BatchNo          string
}

// Walk is a stretch of time as a zone's clock shows it, one entry for each minute.
type Walk struct {
	zone   *time.Location
	first  int64          // Unix second of minute 0
	wall   []int64        // what the clock shows, in minutes since 1970 on that same clock
	offset []int          // seconds east of UTC
	twice  map[int64]bool // times that the clock shows more than once
	dates  map[int64]bool // days (since 1970, on the clock) of which some minute was shown
}

const minutesOfDay = 24 * 60

// NewWalk walks from and to in epoch milliseconds, and far enough around them that every interval with a mark in between
// lies inside.
func NewWalk(zone string, from, to int64) (*Walk, error) {
	z, err := time.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	w := &Walk{zone: z, twice: map[int64]bool{}, dates: map[int64]bool{}}
	w.first = floor(from/1000, 60)*60 - 40*86400
	last := floor(to/1000, 60)*60 + 3*86400
	high := int64(math.MinInt64)
	for t := w.first; t <= last; t += 60 {
		_, offset := time.Unix(t, 0).In(z).Zone()
		if offset%60 != 0 {
			return nil, fmt.Errorf("zone %s is off by seconds at %s: this walk goes by minutes", zone, time.Unix(t, 0).UTC())
		}
		m := floor(t+int64(offset), 60)
		if m <= high { // the clock went back: has it shown this time before?
			w.twice[m] = w.twice[m] || slices.Contains(w.wall[max(0, len(w.wall)-2*minutesOfDay):], m)
		}
		high = max(high, m)
		w.wall, w.offset = append(w.wall, m), append(w.offset, offset)
		w.dates[floor(m, minutesOfDay)] = true
	}
	return w, nil
}

func (w *Walk) at(minute int) int64 { return (w.first + int64(minute)*60) * 1000 }

// Marks gives the intervals of a calendar period whose marks are in (after, to].
func (w *Walk) Marks(p Period, after, to int64) []Interval {
	all := w.dateIntervals(p)
	if p == Hour {
		all = w.hours()
	}
	var out []Interval
	for _, iv := range all {
		if iv.Mark > after && iv.Mark <= to {
			out = append(out, iv)
		}
	}
	return out
}

// hours: an hour is an unbroken stretch in which date and hour read the same; a shown :00 begins another.
func (w *Walk) hours() []Interval {
	var starts []int
	stretches := map[int64]int{} // of the same date and hour
	for i := 1; i < len(w.wall); i++ {
		if floor(w.wall[i], 60) != floor(w.wall[i-1], 60) || w.wall[i]%60 == 0 {
			starts = append(starts, i)
			stretches[floor(w.wall[i], 60)]++
		}
	}
	var out []Interval
	for k := 0; k+1 < len(starts); k++ {
		i, end := starts[k], starts[k+1]
		label := floor(w.wall[i], 60)
		no := civil(label * 60).Format("2006010215")
		if stretches[label] > 1 {
			no += offsetText(w.offset[i])
		}
		out = append(out, Interval{Mark: w.at(end) + 60_000, Start: w.at(i), End: w.at(end), BatchNo: no})
	}
	return out
}

// dateIntervals: a date begins when its midnight, or what comes after it, is shown for the first time. So marks are
// thresholds that the clock passes: 00:01 of a day, Monday's 00:02, the first's 00:05.
func (w *Walk) dateIntervals(p Period) []Interval {
	minute := map[Period]int64{Day: 1, Week: 2, Month: 5}[p]
	var out []Interval
	var begun []int64 // days on which an interval of the period began, in order
	began := map[int64]int64{}
	high := w.wall[0]
	for i := 1; i < len(w.wall); i++ {
		for m := high + 1; m <= w.wall[i]; m++ {
			day, clock := floor(m, minutesOfDay), m-floor(m, minutesOfDay)*minutesOfDay
			if clock != 0 && clock != minute || !w.begins(p, day) {
				continue
			}
			if clock == 0 {
				begun, began[day] = append(begun, day), w.at(i)
			}
			if clock == minute && len(begun) > 1 {
				first := begun[len(begun)-2]
				out = append(out, Interval{Mark: w.at(i), Start: began[first], End: began[day], BatchNo: dateNo(p, first)})
			}
		}
		high = max(high, w.wall[i])
	}
	return out
}

// begins tells whether an interval of the period begins with that day. A date that the zone never had has none.
func (w *Walk) begins(p Period, day int64) bool {
	date := civil(day * minutesOfDay)
	switch p {
	case Day:
		return w.dates[day]
	case Week:
		return date.Weekday() == time.Monday
	}
	return date.Day() == 1
}

func dateNo(p Period, day int64) string {
	date := civil(day * minutesOfDay)
	switch p {
	case Week:
		year, week := date.ISOWeek()
		return fmt.Sprintf("%04dW%02d", year, week)
	case Month:
		return date.Format("200601")
	}
	return date.Format("20060102")
}

// FireNo is the batch_no of a cron fire, or of the second at which somebody asked for a manual batch.
func (w *Walk) FireNo(fire int64) string {
	i := int(floor(fire/1000-w.first, 60))
	second := floor(fire, 1000) - floor(floor(fire, 1000), 60)*60
	no := civil(w.wall[i]).Add(time.Duration(second) * time.Second).Format("20060102150405")
	if w.twice[w.wall[i]] {
		no += offsetText(w.offset[i])
	}
	return no
}

// civil writes minutes of a wall clock as a UTC time, which shows the same.
func civil(minutes int64) time.Time { return time.Unix(minutes*60, 0).UTC() }

func offsetText(seconds int) string {
	sign := '+'
	if seconds < 0 {
		sign, seconds = '-', -seconds
	}
	return fmt.Sprintf("%c%02d%02d", sign, seconds/3600, seconds/60%60)
}

func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
