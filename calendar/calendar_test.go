package calendar

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"capri"
	"capri/cron"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// in makes the calendar of a zone by name.
func in(t testing.TB, zone string) Calendar {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	return New(loc)
}

// at reads "2026-11-01 01:00" on the zone's clock, or RFC 3339.
func at(t testing.TB, c Calendar, text string) capri.Instant {
	t.Helper()
	i, err := c.ParseTime(text)
	require.NoError(t, err)
	return i
}

// rows writes intervals as "batch_no: start → end, mark", times with their offset.
func rows(c Calendar, ivs []capri.Interval) []string {
	const form = "2006-01-02 15:04:05-0700"
	out := []string{}
	for _, iv := range ivs {
		out = append(out, fmt.Sprintf("%s: %s → %s, %s", iv.BatchNo,
			iv.Start.In(c.Zone()).Format(form), iv.End.In(c.Zone()).Format(form), iv.Mark.In(c.Zone()).Format(form)))
	}
	return out
}

func collect(c Calendar, p capri.Period, from, to capri.Instant) []capri.Interval {
	var ivs []capri.Interval
	for iv := range c.Marks(p, from, to) {
		ivs = append(ivs, iv)
	}
	return ivs
}

func TestMarks(t *testing.T) {
	for _, tt := range []struct {
		name     string
		zone     string
		period   capri.Period
		from, to string
		want     string
	}{
		{"an hour's mark is at :01 for the hour before", "Asia/Shanghai", capri.Hour, "2026-11-20 10:00", "2026-11-20 12:00", `
			2026112009: 2026-11-20 09:00:00+0800 → 2026-11-20 10:00:00+0800, 2026-11-20 10:01:00+0800
			2026112010: 2026-11-20 10:00:00+0800 → 2026-11-20 11:00:00+0800, 2026-11-20 11:01:00+0800`},
		{"from is included and to is not", "UTC", capri.Hour, "2026-11-20 10:01", "2026-11-20 11:01", `
			2026112009: 2026-11-20 09:00:00+0000 → 2026-11-20 10:00:00+0000, 2026-11-20 10:01:00+0000`},
		{"a day's mark is at 00:01 for the day before", "Asia/Shanghai", capri.Day, "2026-11-21", "2026-11-22", `
			20261120: 2026-11-20 00:00:00+0800 → 2026-11-21 00:00:00+0800, 2026-11-21 00:01:00+0800`},
		{"a leap day has its batch", "Asia/Shanghai", capri.Day, "2028-02-29", "2028-03-02", `
			20280228: 2028-02-28 00:00:00+0800 → 2028-02-29 00:00:00+0800, 2028-02-29 00:01:00+0800
			20280229: 2028-02-29 00:00:00+0800 → 2028-03-01 00:00:00+0800, 2028-03-01 00:01:00+0800`},
		{"a week's mark is on Monday at 00:02", "Asia/Shanghai", capri.Week, "2026-11-20", "2026-11-30", `
			2026W47: 2026-11-16 00:00:00+0800 → 2026-11-23 00:00:00+0800, 2026-11-23 00:02:00+0800`},
		{"a week across New Year belongs to its ISO year", "UTC", capri.Week, "2026-12-28", "2027-01-12", `
			2026W52: 2026-12-21 00:00:00+0000 → 2026-12-28 00:00:00+0000, 2026-12-28 00:02:00+0000
			2026W53: 2026-12-28 00:00:00+0000 → 2027-01-04 00:00:00+0000, 2027-01-04 00:02:00+0000
			2027W01: 2027-01-04 00:00:00+0000 → 2027-01-11 00:00:00+0000, 2027-01-11 00:02:00+0000`},
		{"the last days of a year can be in week 1 of the next", "UTC", capri.Week, "2025-01-06", "2025-01-07", `
			2025W01: 2024-12-30 00:00:00+0000 → 2025-01-06 00:00:00+0000, 2025-01-06 00:02:00+0000`},
		{"a month's mark is on the 1st at 00:05", "Asia/Shanghai", capri.Month, "2026-11-01", "2026-12-01", `
			202610: 2026-10-01 00:00:00+0800 → 2026-11-01 00:00:00+0800, 2026-11-01 00:05:00+0800`},

		{"New York's spring has no hour 02", "America/New_York", capri.Hour, "2026-03-08 01:01", "2026-03-08 04:02", `
			2026030800: 2026-03-08 00:00:00-0500 → 2026-03-08 01:00:00-0500, 2026-03-08 01:01:00-0500
			2026030801: 2026-03-08 01:00:00-0500 → 2026-03-08 03:00:00-0400, 2026-03-08 03:01:00-0400
			2026030803: 2026-03-08 03:00:00-0400 → 2026-03-08 04:00:00-0400, 2026-03-08 04:01:00-0400`},
		{"New York's autumn has hour 01 twice, each with its offset", "America/New_York", capri.Hour, "2026-11-01 01:01", "2026-11-01 03:02", `
			2026110100: 2026-11-01 00:00:00-0400 → 2026-11-01 01:00:00-0400, 2026-11-01 01:01:00-0400
			2026110101-0400: 2026-11-01 01:00:00-0400 → 2026-11-01 01:00:00-0500, 2026-11-01 01:01:00-0500
			2026110101-0500: 2026-11-01 01:00:00-0500 → 2026-11-01 02:00:00-0500, 2026-11-01 02:01:00-0500
			2026110102: 2026-11-01 02:00:00-0500 → 2026-11-01 03:00:00-0500, 2026-11-01 03:01:00-0500`},
		{"Lord Howe's spring makes hour 02 half an hour; the mark is a minute after the end", "Australia/Lord_Howe", capri.Hour, "2026-10-04 02:00", "2026-10-04 04:00", `
			2026100401: 2026-10-04 01:00:00+1030 → 2026-10-04 02:30:00+1100, 2026-10-04 02:31:00+1100
			2026100402: 2026-10-04 02:30:00+1100 → 2026-10-04 03:00:00+1100, 2026-10-04 03:01:00+1100`},
		{"Lord Howe's autumn makes hour 01 an hour and a half, and one", "Australia/Lord_Howe", capri.Hour, "2026-04-05 01:00", "2026-04-05 03:02", `
			2026040500: 2026-04-05 00:00:00+1100 → 2026-04-05 01:00:00+1100, 2026-04-05 01:01:00+1100
			2026040501: 2026-04-05 01:00:00+1100 → 2026-04-05 02:00:00+1030, 2026-04-05 02:01:00+1030
			2026040502: 2026-04-05 02:00:00+1030 → 2026-04-05 03:00:00+1030, 2026-04-05 03:01:00+1030`},
		{"Chatham changes at a quarter to: two short hours in spring", "Pacific/Chatham", capri.Hour, "2026-09-27 02:00", "2026-09-27 04:30", `
			2026092701: 2026-09-27 01:00:00+1245 → 2026-09-27 02:00:00+1245, 2026-09-27 02:01:00+1245
			2026092702: 2026-09-27 02:00:00+1245 → 2026-09-27 03:45:00+1345, 2026-09-27 03:46:00+1345
			2026092703: 2026-09-27 03:45:00+1345 → 2026-09-27 04:00:00+1345, 2026-09-27 04:01:00+1345`},
		{"and in autumn two hours twice", "Pacific/Chatham", capri.Hour, "2026-04-05 03:01", "2026-04-05 04:02", `
			2026040502+1345: 2026-04-05 02:00:00+1345 → 2026-04-05 03:00:00+1345, 2026-04-05 03:01:00+1345
			2026040503+1345: 2026-04-05 03:00:00+1345 → 2026-04-05 02:45:00+1245, 2026-04-05 02:46:00+1245
			2026040502+1245: 2026-04-05 02:45:00+1245 → 2026-04-05 03:00:00+1245, 2026-04-05 03:01:00+1245
			2026040503+1245: 2026-04-05 03:00:00+1245 → 2026-04-05 04:00:00+1245, 2026-04-05 04:01:00+1245`},
		{"Pyongyang went back half an hour at midnight: one long hour 23", "Asia/Pyongyang", capri.Hour, "2015-08-14 23:30", "2015-08-15 01:02", `
			2015081423: 2015-08-14 23:00:00+0900 → 2015-08-15 00:00:00+0830, 2015-08-15 00:01:00+0830
			2015081500: 2015-08-15 00:00:00+0830 → 2015-08-15 01:00:00+0830, 2015-08-15 01:01:00+0830`},

		{"a day that begins in a gap has its mark after the gap", "America/Sao_Paulo", capri.Day, "2018-11-04", "2018-11-06", `
			20181103: 2018-11-03 00:00:00-0300 → 2018-11-04 01:00:00-0200, 2018-11-04 01:00:00-0200
			20181104: 2018-11-04 01:00:00-0200 → 2018-11-05 00:00:00-0200, 2018-11-05 00:01:00-0200`},
		{"a gap at midnight in Beirut", "Asia/Beirut", capri.Day, "2026-03-29", "2026-03-30", `
			20260328: 2026-03-28 00:00:00+0200 → 2026-03-29 01:00:00+0300, 2026-03-29 01:00:00+0300`},
		{"a fold that ends at midnight gives no second mark", "Asia/Beirut", capri.Day, "2026-10-24 12:00", "2026-10-26", `
			20261024: 2026-10-24 00:00:00+0300 → 2026-10-25 00:00:00+0200, 2026-10-25 00:01:00+0200`},
		{"a mark that comes twice is the first", "America/Havana", capri.Day, "2026-11-01", "2026-11-02", `
			20261031: 2026-10-31 00:00:00-0400 → 2026-11-01 00:00:00-0400, 2026-11-01 00:01:00-0400`},
		{"and its day has 25 hours", "America/Havana", capri.Day, "2026-11-02", "2026-11-03", `
			20261101: 2026-11-01 00:00:00-0400 → 2026-11-02 00:00:00-0500, 2026-11-02 00:01:00-0500`},
		{"hours of a fold at midnight carry offsets", "Atlantic/Azores", capri.Hour, "2026-10-25 00:01", "2026-10-25 01:02", `
			2026102423: 2026-10-24 23:00:00+0000 → 2026-10-25 00:00:00+0000, 2026-10-25 00:01:00+0000
			2026102500+0000: 2026-10-25 00:00:00+0000 → 2026-10-25 00:00:00-0100, 2026-10-25 00:01:00-0100
			2026102500-0100: 2026-10-25 00:00:00-0100 → 2026-10-25 01:00:00-0100, 2026-10-25 01:01:00-0100`},
		{"a month can begin in a fold", "America/Havana", capri.Month, "2026-11-01", "2026-11-02", `
			202610: 2026-10-01 00:00:00-0400 → 2026-11-01 00:00:00-0400, 2026-11-01 00:05:00-0400`},
		{"Apia never had 2011-12-30", "Pacific/Apia", capri.Day, "2011-12-29", "2012-01-02", `
			20111228: 2011-12-28 00:00:00-1000 → 2011-12-29 00:00:00-1000, 2011-12-29 00:01:00-1000
			20111229: 2011-12-29 00:00:00-1000 → 2011-12-31 00:00:00+1400, 2011-12-31 00:01:00+1400
			20111231: 2011-12-31 00:00:00+1400 → 2012-01-01 00:00:00+1400, 2012-01-01 00:01:00+1400`},
		{"and no hour of it", "Pacific/Apia", capri.Hour, "2011-12-29 23:30", "2011-12-31 01:30", `
			2011122923: 2011-12-29 23:00:00-1000 → 2011-12-31 00:00:00+1400, 2011-12-31 00:01:00+1400
			2011123100: 2011-12-31 00:00:00+1400 → 2011-12-31 01:00:00+1400, 2011-12-31 01:01:00+1400`},
		{"a week of six days is a week", "Pacific/Apia", capri.Week, "2012-01-01", "2012-01-03", `
			2011W52: 2011-12-26 00:00:00-1000 → 2012-01-02 00:00:00+1400, 2012-01-02 00:02:00+1400`},
		{"where the clock went back past midnight, the day began the first time", "America/St_Johns", capri.Day, "2010-11-06 12:00", "2010-11-08", `
			20101106: 2010-11-06 00:00:00-0230 → 2010-11-07 00:00:00-0230, 2010-11-07 00:01:00-0330`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := in(t, tt.zone)
			var want []string
			for _, line := range strings.Split(strings.TrimSpace(tt.want), "\n") {
				want = append(want, strings.TrimSpace(line))
			}
			assert.Equal(t, want, rows(c, collect(c, tt.period, at(t, c, tt.from), at(t, c, tt.to))))
		})
	}
}

func TestHoursOfADay(t *testing.T) {
	for _, tt := range []struct {
		zone, day string
		want      int
	}{
		{"Asia/Shanghai", "2026-11-20", 24},
		{"America/New_York", "2026-03-08", 23},
		{"America/New_York", "2026-11-01", 25},
		{"Australia/Lord_Howe", "2026-10-04", 24},
		{"Australia/Lord_Howe", "2026-04-05", 24},
		{"Pacific/Apia", "2011-12-29", 24},
		{"Asia/Kathmandu", "1986-01-01", 24}, // began at 00:15
		{"Antarctica/Troll", "2026-10-25", 26},
	} {
		t.Run(tt.zone+" "+tt.day, func(t *testing.T) {
			c := in(t, tt.zone)
			day := c.Containing(capri.Day, at(t, c, tt.day))
			n := 0
			for h := c.Containing(capri.Hour, day.Start); h.Start < day.End; h = c.Shift(capri.Hour, h, 1) {
				n++
			}
			assert.Equal(t, tt.want, n)
		})
	}
}

func TestNewestEnded(t *testing.T) {
	c := in(t, "Asia/Shanghai")
	nightly, err := cron.Parse("0 30 2 * * ?")
	require.NoError(t, err)
	for _, tt := range []struct {
		name   string
		period capri.Period
		now    string
		want   string
	}{
		{"an hour that ended this instant", capri.Hour, "2026-11-20 10:00:00", "2026112009"},
		{"an hour is not over a second before", capri.Hour, "2026-11-20 09:59:59", "2026112008"},
		{"a day before its mark", capri.Day, "2026-11-20 00:00:30", "20261119"},
		{"a week", capri.Week, "2026-11-20 10:00:00", "2026W46"},
		{"a month", capri.Month, "2026-11-20 10:00:00", "202610"},
		{"a fire that is now", capri.Cron, "2026-11-20 02:30:00", "20261120023000"},
		{"the fire before", capri.Cron, "2026-11-20 02:29:59", "20261119023000"},
		{"manual is now", capri.Manual, "2026-11-20 02:29:59", "20261120022959"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := at(t, c, tt.now)
			iv, ok := c.NewestEnded(tt.period, nightly, now)
			require.True(t, ok)
			assert.Equal(t, capri.BatchNo(tt.want), iv.BatchNo)
			assert.LessOrEqual(t, iv.End, now)
		})
	}

	never, err := cron.Parse("0 0 0 1 1 ? 2099")
	require.NoError(t, err)
	_, ok := c.NewestEnded(capri.Cron, never, at(t, c, "2026-11-20"))
	assert.False(t, ok, "an expression that has not fired yet has no newest interval")
}

func TestCronFires(t *testing.T) {
	t.Run("each interval runs from the fire before", func(t *testing.T) {
		c := in(t, "Asia/Shanghai")
		e, err := cron.Parse("0 30 9,21 * * ?")
		require.NoError(t, err)
		assert.Equal(t, []string{
			"20261120093000: 2026-11-19 21:30:00+0800 → 2026-11-20 09:30:00+0800, 2026-11-20 09:30:00+0800",
			"20261120213000: 2026-11-20 09:30:00+0800 → 2026-11-20 21:30:00+0800, 2026-11-20 21:30:00+0800",
		}, rows(c, c.CronFires(e, at(t, c, "2026-11-20 09:30"), at(t, c, "2026-11-21 09:30"), 10)))
		assert.Len(t, c.CronFires(e, at(t, c, "2026-11-20"), at(t, c, "2027-11-20"), 3), 3)
	})
	t.Run("the first fire of all has an empty interval", func(t *testing.T) {
		c := in(t, "UTC")
		e, err := cron.Parse("0 0 0 1 1 ? 2027-2028")
		require.NoError(t, err)
		assert.Equal(t, []string{
			"20270101000000: 2027-01-01 00:00:00+0000 → 2027-01-01 00:00:00+0000, 2027-01-01 00:00:00+0000",
			"20280101000000: 2027-01-01 00:00:00+0000 → 2028-01-01 00:00:00+0000, 2028-01-01 00:00:00+0000",
		}, rows(c, c.CronFires(e, at(t, c, "2026-01-01"), at(t, c, "2030-01-01"), 10)))
	})
	t.Run("a fire at a time that comes twice carries its offset", func(t *testing.T) {
		c := in(t, "America/New_York")
		e, err := cron.Parse("0 30 * * * ?")
		require.NoError(t, err)
		var got []capri.BatchNo
		for _, iv := range c.CronFires(e, at(t, c, "2026-11-01 00:00"), at(t, c, "2026-11-01 03:00"), 10) {
			got = append(got, iv.BatchNo)
		}
		assert.Equal(t, []capri.BatchNo{"20261101003000", "20261101013000-0400", "20261101013000-0500", "20261101023000"}, got)
	})
	t.Run("so does a manual one", func(t *testing.T) {
		c := in(t, "America/New_York")
		assert.Equal(t, capri.BatchNo("20261101014512-0500"), c.Manual(at(t, c, "2026-11-01T01:45:12-05:00")+345).BatchNo)
		assert.Equal(t, at(t, c, "2026-11-01T01:45:12-05:00"), c.Manual(at(t, c, "2026-11-01T01:45:12-05:00")+345).Start)
	})
}

func TestEarliestStartIsWallClockTime(t *testing.T) {
	for _, tt := range []struct {
		name    string
		zone    string
		period  capri.Period
		inside  string // an instant of the interval
		minutes int
		want    string
	}{
		{"599 minutes after 00:01 is 10:00", "America/New_York", capri.Day, "2026-11-19 12:00", 599, "2026-11-20T10:00:00-05:00"},
		{"also after an hour was lost", "America/New_York", capri.Day, "2026-03-07 12:00", 599, "2026-03-08T10:00:00-04:00"},
		{"also after an hour came twice", "America/New_York", capri.Day, "2026-10-31 12:00", 599, "2026-11-01T10:00:00-05:00"},
		{"also where the mark itself was moved", "America/Sao_Paulo", capri.Day, "2018-11-03 12:00", 599, "2018-11-04T10:00:00-02:00"},
		{"also where the mark comes twice", "America/Havana", capri.Day, "2026-10-31 12:00", 599, "2026-11-01T10:00:00-05:00"},
		{"a start in a gap is when the gap is over", "America/New_York", capri.Day, "2026-03-07 12:00", 149, "2026-03-08T03:00:00-04:00"},
		{"not set is the mark", "UTC", capri.Day, "2026-11-19 12:00", -1, "2026-11-20T00:01:00Z"},
		{"a week", "UTC", capri.Week, "2026-11-19 12:00", 598, "2026-11-23T10:00:00Z"},
		{"a month", "UTC", capri.Month, "2026-11-19 12:00", 595, "2026-12-01T10:00:00Z"},
		{"of two equal times an hour's is the one after its mark", "America/New_York", capri.Hour, "2026-11-01T01:30:00-04:00", 29, "2026-11-01T01:30:00-05:00"},
		{"more than a day later", "America/New_York", capri.Day, "2026-03-06 12:00", 24*60 + 599, "2026-03-08T10:00:00-04:00"},
		{"Apia's day before the missing one", "Pacific/Apia", capri.Day, "2011-12-29 12:00", 599, "2011-12-31T10:00:00+14:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := in(t, tt.zone)
			iv := c.Containing(tt.period, at(t, c, tt.inside))
			got := c.EarliestStart(tt.period, iv, tt.minutes)
			assert.Equal(t, at(t, c, tt.want), got, got.In(c.Zone()).Format(time.RFC3339))
		})
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name   string
		zone   string
		period capri.Period
		no     capri.BatchNo
		want   string // start, or a part of the error
	}{
		{"an hour", "UTC", capri.Hour, "2026112009", "2026-11-20T09:00:00Z"},
		{"the later of two equal hours", "America/New_York", capri.Hour, "2026110101-0500", "2026-11-01T01:00:00-05:00"},
		{"two equal hours without an offset", "America/New_York", capri.Hour, "2026110101", "want 2026110101-0400 or 2026110101-0500"},
		{"a wrong offset", "America/New_York", capri.Hour, "2026110101-0600", "want 2026110101-0400 or 2026110101-0500"},
		{"an offset where none belongs", "America/New_York", capri.Hour, "2026110102-0500", "want 2026110102: "},
		{"an hour that was skipped", "America/New_York", capri.Hour, "2026030802", "never showed"},
		{"an hour of 24", "UTC", capri.Hour, "2026112024", "such as 2026112009"},
		{"the 31st of April", "UTC", capri.Day, "20260431", "such as 20261120"},
		{"a day", "Asia/Shanghai", capri.Day, "20261120", "2026-11-20T00:00:00+08:00"},
		{"a date that never was", "Pacific/Apia", capri.Day, "20111230", "never showed"},
		{"a day with dashes", "UTC", capri.Day, "2026-11-20", "such as 20261120"},
		{"a week", "UTC", capri.Week, "2026W53", "2026-12-28T00:00:00Z"},
		{"a week 53 that the year does not have", "UTC", capri.Week, "2025W53", "such as 2026W47"},
		{"a week 0", "UTC", capri.Week, "2025W00", "such as 2026W47"},
		{"a month", "UTC", capri.Month, "202610", "2026-10-01T00:00:00Z"},
		{"a month 13", "UTC", capri.Month, "202613", "such as 202610"},
		{"a sign for a digit", "UTC", capri.Month, "2026+1", "such as 202610"},
		{"a fire", "UTC", capri.Cron, "20261120093000", "2026-11-20T09:30:00Z"},
		{"a fire at a time that comes twice", "America/New_York", capri.Cron, "20261101013000-0500", "2026-11-01T01:30:00-05:00"},
		{"the same without its offset", "America/New_York", capri.Manual, "20261101013000", "20261101013000-0400 or 20261101013000-0500"},
		{"nothing", "UTC", capri.Hour, "", "such as 2026112009"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := in(t, tt.zone)
			iv, err := c.Parse(tt.period, tt.no)
			if err != nil {
				assert.ErrorIs(t, err, capri.ErrInvalid)
				assert.Contains(t, err.Error(), tt.want)
				return
			}
			assert.Equal(t, tt.want, iv.Start.In(c.Zone()).Format(time.RFC3339))
			assert.Equal(t, tt.no, iv.BatchNo)
		})
	}
}

func TestParseTime(t *testing.T) {
	for _, tt := range []struct{ name, zone, text, want string }{
		{"a date is its first instant", "Asia/Shanghai", "2026-11-20", "2026-11-20T00:00:00+08:00"},
		{"a date that begins in a gap", "America/Sao_Paulo", "2018-11-04", "2018-11-04T01:00:00-02:00"},
		{"minutes", "Asia/Shanghai", "2026-11-20 09:30", "2026-11-20T09:30:00+08:00"},
		{"seconds", "Asia/Shanghai", "2026-11-20 09:30:15", "2026-11-20T09:30:15+08:00"},
		{"with a T", "Asia/Shanghai", "2026-11-20T09:30", "2026-11-20T09:30:00+08:00"},
		{"with Z", "Asia/Shanghai", "2026-11-20T01:30:00Z", "2026-11-20T09:30:00+08:00"},
		{"with an offset", "UTC", "2026-11-20T09:30:00+08:00", "2026-11-20T01:30:00Z"},
		{"with an offset and a blank", "UTC", "2026-11-20 09:30+08:00", "2026-11-20T01:30:00Z"},
		{"a skipped time is the first after the gap", "America/New_York", "2026-03-08 02:30", "2026-03-08T03:00:00-04:00"},
		{"a time that comes twice is the first", "America/New_York", "2026-11-01 01:30", "2026-11-01T01:30:00-04:00"},
		{"no such day", "UTC", "2026-02-30", ""},
		{"a word", "UTC", "yesterday", ""},
		{"a short hour", "UTC", "2026-11-20 9:30", ""},
		{"nothing", "UTC", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := in(t, tt.zone)
			got, err := c.ParseTime(tt.text)
			if tt.want == "" {
				assert.ErrorIs(t, err, capri.ErrInvalid)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got.In(c.Zone()).Format(time.RFC3339))
		})
	}
}

func TestParseRangeEnd(t *testing.T) {
	c := in(t, "America/New_York")
	for _, tt := range []struct {
		name, text string
		included   bool
		want       capri.Instant
	}{
		{"a bare date is the whole of it", "2026-11-01", true, at(t, c, "2026-11-02")},
		{"also where the end is excluded", "2026-11-01", false, at(t, c, "2026-11-02")},
		{"a time that is included", "2026-11-01 00:01", true, at(t, c, "2026-11-01 00:01") + 1},
		{"a time that ends it", "2026-11-01 00:01", false, at(t, c, "2026-11-01 00:01")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.ParseRangeEnd(tt.text, tt.included)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	_, err := c.ParseRangeEnd("soon", true)
	assert.ErrorIs(t, err, capri.ErrInvalid)

	apia := in(t, "Pacific/Apia")
	got, err := apia.ParseRangeEnd("2011-12-30", true)
	require.NoError(t, err)
	assert.Equal(t, at(t, apia, "2011-12-31"), got, "the end of a date that never was is the start of the next")
}
