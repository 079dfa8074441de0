package calendar

import (
	"strings"
	"testing"
	"time"

	"capri"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Zones that between them have every kind of change: whole and half hours, 45 minutes past, two hours, at
// midnight both ways, whole days left out, offsets with seconds.
var oddZones = []string{
	"UTC", "Asia/Shanghai", "America/New_York", "Europe/London", "Europe/Dublin", "Australia/Lord_Howe",
	"Pacific/Apia", "Pacific/Chatham", "Pacific/Kwajalein", "Pacific/Kiritimati", "America/Sao_Paulo", "Asia/Beirut",
	"America/Havana", "Atlantic/Azores", "America/St_Johns", "Antarctica/Troll", "Asia/Pyongyang", "America/Caracas",
	"Asia/Kathmandu", "Africa/Monrovia", "Asia/Tehran", "Africa/Casablanca", "Asia/Gaza", "Antarctica/Casey", "America/Scoresbysund",
}

var calendarPeriods = []capri.Period{capri.Hour, capri.Day, capri.Week, capri.Month}

var calendars = map[string]Calendar{}

func init() {
	for _, zone := range oddZones {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			panic(err)
		}
		calendars[zone] = New(loc)
	}
}

// drawCalendar picks a zone, and drawInstant an instant, half of the time near a clock change of it.
func drawCalendar(t *rapid.T) Calendar { return calendars[rapid.SampledFrom(oddZones).Draw(t, "zone")] }

func drawInstant(t *rapid.T, c Calendar, label string) capri.Instant {
	if rapid.Bool().Draw(t, label+" near a change") {
		var near []int64
		for _, ch := range c.clock.changes {
			if ch.at > 0 && ch.at < 2_524_608_000 { // 2050
				near = append(near, ch.at)
			}
		}
		if len(near) > 0 {
			return instant(rapid.SampledFrom(near).Draw(t, label) + rapid.Int64Range(-2*daySeconds, 2*daySeconds).Draw(t, label+" off by"))
		}
	}
	return capri.Instant(rapid.Int64Range(0, 2_524_608_000_000).Draw(t, label))
}

func TestMarksOfAPartAndTheRestAreAllMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCalendar(t)
		p := rapid.SampledFrom(calendarPeriods).Draw(t, "period")
		reach := map[capri.Period]int64{capri.Hour: 4, capri.Day: 40, capri.Week: 200, capri.Month: 900}[p] * daySeconds * 1000
		a := drawInstant(t, c, "a")
		b := a + capri.Instant(rapid.Int64Range(0, reach).Draw(t, "b"))
		d := b + capri.Instant(rapid.Int64Range(0, reach).Draw(t, "c"))
		parts := append(collect(c, p, a, b), collect(c, p, b, d)...)
		require.Equal(t, collect(c, p, a, d), parts, "marks(a,c) are marks(a,b) and marks(b,c)")
		for _, iv := range parts {
			require.True(t, a <= iv.Mark && iv.Mark < d, "a mark lies in the range that was asked for")
		}
	})
}

func TestIntervalsTileTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCalendar(t)
		p := rapid.SampledFrom(calendarPeriods).Draw(t, "period")
		at := drawInstant(t, c, "at")
		iv := c.Containing(p, at)
		require.True(t, iv.Start <= at && at < iv.End, "an interval holds the instant it was asked for")
		require.GreaterOrEqual(t, iv.Mark, iv.End, "a mark comes when the interval is over")
		next := c.Shift(p, iv, 1)
		require.Equal(t, iv.End, next.Start, "the next interval begins where this one ends")
		require.Less(t, iv.Mark, next.Mark, "marks are in the order of the intervals")
		require.Equal(t, iv, c.Shift(p, next, -1), "one on and one back is where we were")
		require.Equal(t, iv, c.Containing(p, iv.Start))
		require.Equal(t, iv, c.Containing(p, iv.End-1))
		require.Equal(t, iv, c.EndedBy(p, iv.End), "an interval has ended at its end")
		require.NotEqual(t, iv, c.EndedBy(p, iv.End-1), "and not before")
		require.Equal(t, []capri.Interval{iv}, collect(c, p, iv.Mark, iv.Mark+1), "its mark finds it")
	})
}

func TestShiftIsManySingleSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCalendar(t)
		p := rapid.SampledFrom(calendarPeriods).Draw(t, "period")
		from := c.Containing(p, drawInstant(t, c, "at"))
		n := rapid.IntRange(-300, 300).Draw(t, "n")
		want := from
		for range max(n, -n) {
			want = c.Shift(p, want, map[bool]int{true: 1, false: -1}[n > 0])
		}
		require.Equal(t, want, c.Shift(p, from, n))
	})
}

func TestParseReadsWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCalendar(t)
		at := drawInstant(t, c, "at")
		for _, p := range calendarPeriods {
			iv := c.Containing(p, at)
			got, err := c.Parse(p, iv.BatchNo)
			require.NoError(t, err)
			require.Equal(t, iv, got)
		}
		iv := c.Manual(at)
		got, err := c.Parse(capri.Manual, iv.BatchNo)
		require.NoError(t, err)
		require.Equal(t, iv, got)
	})
}

// The oracle of hours knows nothing of changes: it looks at the clock minute by minute, and a new hour begins
// where the hour shown is another one, or the clock shows :00.
func TestNoHourIsLostOrMerged(t *testing.T) {
	for _, zone := range oddZones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			c := calendars[zone]
			seen := map[capri.BatchNo]capri.Instant{}
			for _, ch := range c.clock.changes {
				if ch.at < 473_385_600 || ch.at > 1_830_297_600 { // 1985 to 2028; after that rules repeat
					continue
				}
				reach := int64(5 * hourSeconds)
				if before, after := ch.at-1, ch.at; abs(c.clock.wall(after)-c.clock.wall(before)) > reach-hourSeconds {
					reach = 30 * hourSeconds // a whole date
				}
				from := ch.at - reach
				from -= from % 60
				h := c.Containing(capri.Hour, instant(from))
				h = c.Shift(capri.Hour, h, 1)
				for sec := from + 60; sec < ch.at+reach; sec += 60 {
					now := time.Unix(sec, 0).In(c.Zone())
					before := time.Unix(sec-60, 0).In(c.Zone())
					if now.Minute() != 0 && now.Hour() == before.Hour() && now.YearDay() == before.YearDay() {
						continue
					}
					if instant(sec) < h.Start {
						continue // the start of the first hour that we look at
					}
					require.Equal(t, instant(sec), h.Start, "the hour %s begins at %s", h.BatchNo, now)
					require.Equal(t, now.Format("2006010215"), string(h.BatchNo)[:10], "it is named by what the clock shows")
					require.Equal(t, h.End+60_000, h.Mark)
					if was, ok := seen[h.BatchNo]; ok {
						require.Equal(t, was, h.Start, "%s names one hour", h.BatchNo)
					}
					if len(h.BatchNo) > 10 { // the offset is the start's
						require.Equal(t, now.Format("-0700"), string(h.BatchNo)[10:])
					}
					seen[h.BatchNo] = h.Start
					h = c.Shift(capri.Hour, h, 1)
				}
			}
			// An offset is written at both of two equal hours, and nowhere else.
			shown := map[string]int{}
			for no := range seen {
				shown[string(no)[:10]]++
			}
			for no := range seen {
				require.Equal(t, shown[string(no)[:10]] > 1, len(no) > 10, "%s", no)
			}
		})
	}
}

func abs(n int64) int64 { return max(n, -n) }

// Every date from 1985 to 2030, in every odd zone: each has at most one batch, in order, without hole.
func TestEveryDateHasItsBatch(t *testing.T) {
	missing := map[string]string{"Pacific/Apia": "20111230", "Pacific/Kwajalein": "19930821", "Pacific/Kiritimati": "19941231"}
	for _, zone := range oddZones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			c := calendars[zone]
			day := time.Date(1985, 1, 2, 0, 0, 0, 0, time.UTC)
			iv, err := c.Parse(capri.Day, "19850102")
			require.NoError(t, err)
			for day.Year() < 2030 {
				no := day.Format("20060102")
				if no != missing[zone] {
					if string(iv.BatchNo) != no {
						t.Fatalf("got %s, want %s", iv.BatchNo, no)
					}
					if shown := (iv.End - 1).In(c.Zone()).Format("20060102"); shown != no && zone != "Pacific/Kwajalein" && zone != "America/St_Johns" {
						t.Fatalf("%s ends on %s", no, shown)
					}
					next := c.Shift(capri.Day, iv, 1)
					if next.Start != iv.End || next.Mark <= iv.Mark || iv.Mark < iv.End {
						t.Fatalf("%v then %v", iv, next)
					}
					iv = next
				}
				day = day.AddDate(0, 0, 1)
			}
		})
	}
}

func TestEarliestStartShowsTheWallTimeAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCalendar(t)
		iv := c.Containing(capri.Day, drawInstant(t, c, "at"))
		minutes := rapid.IntRange(1, 1438).Draw(t, "minutes")
		got := c.EarliestStart(capri.Day, iv, minutes)
		require.GreaterOrEqual(t, got, iv.Mark)
		wall := time.Date(2000, 1, 1, 0, 1+minutes, 0, 0, time.UTC).Format("15:04")
		shown := got.In(c.Zone()).Format("15:04")
		before := (got - 1).In(c.Zone()).Format("15:04")
		if shown != wall { // then a gap swallowed it, and this is the first instant after, or the mark is in one
			require.True(t, shown > wall && (before < wall || got == iv.Mark), "%s shown, %s wanted, %s before", shown, wall, before)
		}
	})
}

func TestAShiftedTemplateIsDateArithmetic(t *testing.T) {
	daily, err := ParseTemplate("${yyyy-MM-dd-3d}", PathTemplate)
	require.NoError(t, err)
	monthly, err := ParseTemplate("${yyyyMM-1M}", PathTemplate)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		c := calendars["Asia/Shanghai"]
		iv := c.Containing(capri.Day, drawInstant(t, c, "at"))
		date := iv.Start.In(c.Zone())
		require.Equal(t, date.AddDate(0, 0, -3).Format("2006-01-02"), daily.Expand(c, iv.Start, iv.Mark))
		require.Equal(t, date.AddDate(0, 0, -date.Day()).Format("200601"), monthly.Expand(c, iv.Start, iv.Mark))
	})
}

func FuzzParseTemplate(f *testing.F) {
	for _, s := range []string{
		"/a/${yyyyMMdd}/${HH}", "${yyyy-MM-dd-1d}", "${schedule:yyyyMMddHHmmss}", "${d:-1}", "${a:-${M}}", "${", "}", "${}",
		"${yyyy年M月}", "$${d}", "${HH-99999999999h}", "${schedule:}", "${Z}", "${-}", "${M-1M}x${M-1M}", "${\xff}",
	} {
		f.Add(s)
	}
	c := New(time.UTC)
	start := capri.Instant(1_795_000_000_000)
	f.Fuzz(func(t *testing.T, text string) {
		command, err := ParseTemplate(text, CommandTemplate)
		if err != nil {
			t.Fatalf("a command is never refused: %v", err)
		}
		out := command.Expand(c, start, start)
		path, err := ParseTemplate(text, PathTemplate)
		if err == nil && path.Expand(c, start, start) != out {
			t.Fatalf("%q means %q in a path and %q in a command", text, path.Expand(c, start, start), out)
		}
		if err == nil && strings.Contains(out, "${") {
			t.Fatalf("%q leaves %q in a path", text, out)
		}
		if len(command.moments) == 0 && out != text {
			t.Fatalf("%q has no time in it and became %q", text, out)
		}
	})
}
