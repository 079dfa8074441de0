package cascade

import (
	"testing"

	"capri"
	"capri/calendar"
	"capri/cron"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRange(t *testing.T) {
	for _, tt := range []struct {
		sentence string
		zone     string
		period   capri.Period
		cron     string
		from, to string
		byData   bool
		now      string
		want     []capri.BatchNo
	}{
		{"marks are in it, the end excluded", "UTC", capri.Day, "", "2026-11-18 00:01", "2026-11-20 00:01", false, "2026-12-01", []capri.BatchNo{"20261117", "20261118"}},
		{"data intervals lie wholly inside", "UTC", capri.Day, "", "2026-11-18 00:01", "2026-11-21", true, "2026-12-01", []capri.BatchNo{"20261119", "20261120"}},
		{"what is still to come is left out", "UTC", capri.Day, "", "2026-11-18", "2026-11-25", true, "2026-11-20 00:00", []capri.BatchNo{"20261118"}},
		{"and what comes now is not", "UTC", capri.Day, "", "2026-11-18", "2026-11-25", true, "2026-11-20 00:01", []capri.BatchNo{"20261118", "20261119"}},
		{"the weeks of a year by data are not those that cross its ends", "UTC", capri.Week, "", "2026-12-15", "2027-01-15", true, "2027-02-01", []capri.BatchNo{"2026W52", "2026W53", "2027W01"}},
		{"an autumn day has 25 hours", "America/New_York", capri.Hour, "", "2026-11-01 00:00", "2026-11-01 03:00", true, "2026-12-01",
			[]capri.BatchNo{"2026110100", "2026110101-0400", "2026110101-0500", "2026110102"}},
		{"fires are in it", "UTC", capri.Cron, "0 0 0/6 * * ?", "2026-11-20", "2026-11-20 12:00", false, "2026-12-01", []capri.BatchNo{"20261120000000", "20261120060000"}},
		{"what fires end lies inside", "UTC", capri.Cron, "0 0 0/6 * * ?", "2026-11-20", "2026-11-20 12:00", true, "2026-12-01", []capri.BatchNo{"20261120060000", "20261120120000"}},
		{"fires until now", "UTC", capri.Cron, "0 0 0/6 * * ?", "2026-11-20", "2026-11-21", true, "2026-11-20 06:00", []capri.BatchNo{"20261120060000"}},
		{"nobody has planned a manual batch", "UTC", capri.Manual, "", "2026-11-20", "2026-11-21", false, "2026-12-01", nil},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			w, err := newWorld(tt.zone, 0, spec("t", tt.period, func(s *capri.Spec) { s.Cron = tt.cron }))
			require.NoError(t, err)
			r := Range{at(t, w.c, tt.from), at(t, w.c, tt.to), tt.byData}
			var got []capri.BatchNo
			for _, iv := range r.Intervals(w.c, tt.period, w.refs[1].Cron, at(t, w.c, tt.now), 100) {
				got = append(got, iv.BatchNo)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

// Of all the intervals there are, it lists those inside, up to the limit.
func TestRange_is_what_going_through_all_finds(t *testing.T) {
	calendars := map[string]calendar.Calendar{}
	for _, zone := range []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe"} {
		w, err := newWorld(zone, 0)
		require.NoError(t, err)
		calendars[zone] = w.c
	}
	fires, err := cron.Parse("0 30 0/5 * * ?")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		c := calendars[rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Australia/Lord_Howe"}).Draw(t, "zone")]
		p := rapid.SampledFrom([]capri.Period{capri.Hour, capri.Day, capri.Week, capri.Month, capri.Cron}).Draw(t, "period")
		// The minutes after midnight are where marks and ends differ.
		draw := func(label string) capri.Instant {
			day := c.Containing(capri.Day, capri.Instant(1_790_000_000_000+86_400_000*rapid.Int64Range(0, 60).Draw(t, label+" day"))).Start
			return day + 60_000*capri.Instant(rapid.SampledFrom([]int64{0, 0, 1, 2, 5, 60, 90, 121}).Draw(t, label+" minute"))
		}
		r := Range{draw("from"), draw("to"), rapid.Bool().Draw(t, "by data")}
		until := draw("until")
		limit := rapid.SampledFrom([]int{3, 10_000}).Draw(t, "limit")
		var all, want []capri.Interval
		if begin, end := capri.Instant(1_780_000_000_000), capri.Instant(1_800_000_000_000); p == capri.Cron {
			all = c.CronFires(fires, begin, end, 100_000)
		} else {
			for iv := c.Containing(p, begin); iv.Start < end; iv = c.Shift(p, iv, 1) {
				all = append(all, iv)
			}
		}
		for _, iv := range all {
			in := iv.Mark >= r.From && iv.Mark < r.To
			if r.ByData {
				in = iv.Start >= r.From && iv.End <= r.To
			}
			if in && iv.Mark <= until && len(want) < limit {
				want = append(want, iv)
			}
		}
		require.Equal(t, want, r.Intervals(c, p, fires, until, limit))
	})
}
