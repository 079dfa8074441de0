package capri

import (
	"fmt"
	"time"
)

// Instant is a point in time: epoch milliseconds, UTC. It is what the tables hold in both dialects, so that
// order and arithmetic are the same everywhere. 0 means "not set".
type Instant int64

// InstantOf converts t; the zero time becomes 0. Sub-millisecond parts are cut off.
func InstantOf(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixMilli())
}

// In gives the instant as the wall clock of zone; the zero Instant gives the zero time.
func (i Instant) In(zone *time.Location) time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(i)).In(zone)
}

// Add moves the instant by elapsed time.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Milliseconds()) }

// Sub gives the elapsed time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i-j) * time.Millisecond }

// Before compares as times do.
func (i Instant) Before(j Instant) bool { return i < j }

// String is RFC 3339 in UTC, for logs; "-" when not set.
func (i Instant) String() string {
	if i == 0 {
		return "-"
	}
	return i.In(time.UTC).Format("2006-01-02T15:04:05.000Z07:00")
}

// Period says how often a task runs. The numbers are the seed's output_period.
type Period int

const (
	Hour   Period = 2
	Day    Period = 3
	Month  Period = 4
	Week   Period = 5
	Cron   Period = 6 // at each fire of a Quartz expression
	Manual Period = 7 // only when asked for
)

var periodNames = map[Period]string{Hour: "hour", Day: "day", Week: "week", Month: "month", Cron: "cron", Manual: "manual"}

// Calendar reports whether the period's marks come from the calendar alone (hour, day, week, month).
func (p Period) Calendar() bool { return p >= Hour && p <= Week }

func (p Period) String() string {
	if s, ok := periodNames[p]; ok {
		return s
	}
	return fmt.Sprintf("period(%d)", int(p))
}

// ParsePeriod reads a period's name.
func ParsePeriod(s string) (Period, error) {
	for p, name := range periodNames {
		if name == s {
			return p, nil
		}
	}
	return 0, Invalid("period", s, "hour, day, week, month, cron or manual")
}

// MarshalText writes the period by name; the zero Period is empty.
func (p Period) MarshalText() ([]byte, error) {
	if p == 0 {
		return nil, nil
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (p *Period) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*p = 0
		return nil
	}
	v, err := ParsePeriod(string(b))
	if err == nil {
		*p = v
	}
	return err
}

// BatchNo is the code of a data interval, the same whoever asks: 2026112009, 20261120, 2026W47, 202610,
// 20261120093000; with an offset (2026110101-0400) where the clock shows that time twice.
type BatchNo string

// Interval is one data interval of a period together with the mark at which its batch is due.
type Interval struct {
	BatchNo BatchNo
	Start   Instant // of business time that the data covers, included
	End     Instant // excluded
	Mark    Instant // schedule_time of run 0: the period's mark, or the cron fire
}
