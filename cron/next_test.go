package cron_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // the zones of the tests, whatever the machine has

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/cron"
)

func parse(t testing.TB, text string) *cron.Expression {
	t.Helper()
	e, err := cron.Parse(text)
	require.NoError(t, err)
	return e
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at
}

// inUTC writes fires as the tables do.
func inUTC(fires []time.Time) []string {
	texts := make([]string, len(fires))
	for i, f := range fires {
		texts[i] = f.UTC().Format(time.RFC3339)
	}
	return texts
}

// backwards collects what Between does, with Prev.
func backwards(e *cron.Expression, from, to time.Time, zone *time.Location) []time.Time {
	var fires []time.Time
	for fire, ok := e.Prev(to, zone); ok && !fire.Before(from); fire, ok = e.Prev(fire, zone) {
		fires = append(fires, fire)
	}
	slices.Reverse(fires)
	return fires
}

func TestClockChanges(t *testing.T) {
	for _, c := range []struct {
		name       string
		expression string
		zone       string
		from, to   string
		want       []string
	}{
		{
			"a fixed hour that is skipped does not fire that day",
			"0 30 2 * * ?", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-10T12:00:00Z",
			[]string{"2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"},
		},
		{
			"the first time after a gap exists",
			"0 0 3 * * ?", "America/New_York", "2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z",
			[]string{"2026-03-08T07:00:00Z"},
		},
		{
			"a fixed hour that comes twice fires at the later",
			"0 30 1 * * ?", "America/New_York", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z",
			[]string{"2026-11-01T06:30:00Z"},
		},
		{
			"a list of hours is fixed",
			"0 30 0,1,2 * * ?", "America/New_York", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z",
			[]string{"2026-11-01T04:30:00Z", "2026-11-01T06:30:00Z", "2026-11-01T07:30:00Z"},
		},
		{
			"a range of hours fires in both equal hours",
			"0 30 0-2 * * ?", "America/New_York", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z",
			[]string{"2026-11-01T04:30:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-01T07:30:00Z"},
		},
		{
			"a list with a range in it runs on",
			"0 30 1-1,12 * * ?", "America/New_York", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z",
			[]string{"2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-01T17:30:00Z"},
		},
		{
			"half an hour that comes twice does so for running hours",
			"0 15/30 * * * ?", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", "2026-04-04T16:30:00Z",
			[]string{
				"2026-04-04T14:15:00Z", "2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-04T15:45:00Z",
				"2026-04-04T16:15:00Z",
			},
		},
		{
			"half an hour that comes twice is one fire for a fixed hour",
			"0 0/15 1 * * ?", "Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-04T18:00:00Z",
			[]string{"2026-04-04T14:00:00Z", "2026-04-04T14:15:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:15:00Z"},
		},
		{
			"the half of an hour that half an hour's gap leaves fires, also after a skipped minute",
			"0 17,40 * * * ?", "Australia/Lord_Howe", "2026-10-03T15:00:00Z", "2026-10-03T17:00:00Z",
			[]string{"2026-10-03T15:10:00Z", "2026-10-03T15:40:00Z", "2026-10-03T16:17:00Z", "2026-10-03T16:40:00Z"},
		},
		{
			"a midnight that is skipped does not fire",
			"0 0 0 * * ?", "America/Sao_Paulo", "2018-11-03T00:00:00Z", "2018-11-06T00:00:00Z",
			[]string{"2018-11-03T03:00:00Z", "2018-11-05T02:00:00Z"},
		},
		{
			"the hour before midnight that comes twice belongs to the day before",
			"0 30 23 17 2 ?", "America/Sao_Paulo", "2018-02-17T00:00:00Z", "2018-02-20T00:00:00Z",
			[]string{"2018-02-18T02:30:00Z"},
		},
		{
			"a day that the zone never had has no fire",
			"0 0 0/12 30 12 ? 2011", "Pacific/Apia", "2011-12-01T00:00:00Z", "2012-12-01T00:00:00Z",
			nil,
		},
		{
			"the days around a missing one fire",
			"0 0 12 29-31 12 ? 2011", "Pacific/Apia", "2011-12-01T00:00:00Z", "2012-12-01T00:00:00Z",
			[]string{"2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z"},
		},
		{
			"seven hours that come twice without any summer time",
			"0 0 17,23 * * ?", "Antarctica/Vostok", "1994-01-31T00:00:00Z", "1994-02-01T18:00:00Z",
			[]string{"1994-01-31T17:00:00Z", "1994-01-31T23:00:00Z", "1994-02-01T17:00:00Z"},
		},
		{
			"seven running hours that come twice without any summer time",
			"0 0 17/6 * * ?", "Antarctica/Vostok", "1994-01-31T00:00:00Z", "1994-02-01T18:00:00Z",
			[]string{"1994-01-31T10:00:00Z", "1994-01-31T16:00:00Z", "1994-01-31T17:00:00Z", "1994-01-31T23:00:00Z", "1994-02-01T17:00:00Z"},
		},
		{
			"a gap that ends between two minutes",
			"15/15 44 0 * * ?", "Africa/Monrovia", "1972-01-07T00:00:00Z", "1972-01-08T00:00:00Z",
			[]string{"1972-01-07T00:44:30Z", "1972-01-07T00:44:45Z"},
		},
		{
			// Go's own zone data gives a bound for the time after this change that lies before it.
			"a change in a year whose other changes follow a rule",
			"0 30 0/2 * * ?", "America/Metlakatla", "2019-01-20T07:00:00Z", "2019-01-20T13:00:00Z",
			[]string{"2019-01-20T08:30:00Z", "2019-01-20T11:30:00Z"},
		},
		{
			"the last day of a leap year is like others",
			"0 0 0/12 ? * *", "America/New_York", "2040-12-31T04:00:00Z", "2041-01-01T18:00:00Z",
			[]string{"2040-12-31T05:00:00Z", "2040-12-31T17:00:00Z", "2041-01-01T05:00:00Z", "2041-01-01T17:00:00Z"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, z := parse(t, c.expression), zone(t, c.zone)
			from, to := instant(t, c.from), instant(t, c.to)
			assert.Equal(t, c.want, nilIfEmpty(inUTC(e.Between(from, to, z, 100))))
			assert.Equal(t, c.want, nilIfEmpty(inUTC(backwards(e, from, to, z))))
		})
	}
}

func nilIfEmpty(texts []string) []string {
	if len(texts) == 0 {
		return nil
	}
	return texts
}

func TestNextIsStrictlyAfterAndPrevStrictlyBefore(t *testing.T) {
	e := parse(t, "0 0 12 * * ?")
	for _, c := range []struct{ name, at, next, prev string }{
		{"at a fire", "2026-11-20T12:00:00Z", "2026-11-21T12:00:00Z", "2026-11-19T12:00:00Z"},
		{"a nanosecond before", "2026-11-20T11:59:59.999999999Z", "2026-11-20T12:00:00Z", "2026-11-19T12:00:00Z"},
		{"a nanosecond after", "2026-11-20T12:00:00.000000001Z", "2026-11-21T12:00:00Z", "2026-11-20T12:00:00Z"},
		{"a nanosecond before, long ago", "1970-01-05T11:59:59.999999999Z", "1970-01-05T12:00:00Z", "1970-01-04T12:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			next, ok := e.Next(instant(t, c.at), time.UTC)
			assert.True(t, ok)
			assert.Equal(t, instant(t, c.next), next)
			prev, ok := e.Prev(instant(t, c.at), time.UTC)
			assert.True(t, ok)
			assert.Equal(t, instant(t, c.prev), prev)
		})
	}
}

func TestFirstAndLastFires(t *testing.T) {
	const none = ""
	for _, c := range []struct{ name, expression, first, last string }{
		{"every second goes from 1970 to 2199", "* * * * * ?", "1970-01-01T00:00:00Z", "2199-12-31T23:59:59Z"},
		{"a single instant", "59 59 23 31 12 ? 2199", "2199-12-31T23:59:59Z", "2199-12-31T23:59:59Z"},
		{"leap days leave out 2100", "0 0 0 29 2 ? 2097-2110", "2104-02-29T00:00:00Z", "2108-02-29T00:00:00Z"},
		{"30 February", "0 0 0 30 2 ?", none, none},
		{"the 31st of the shorter months", "0 0 0 31 2,4,6,9,11 ?", none, none},
		{"the weekday nearest to a day that does not exist", "0 0 0 31W 2,4,6,9,11 ?", none, none},
		{"30 days before the last of a shorter month", "0 0 0 L-30W 2,4,6,9,11 ?", none, none},
		{"29 February of years that have none", "0 0 0 29 2 ? 2025-2027", none, none},
		{"the fifth Friday in February", "0 0 0 ? 2 6#5", "1980-02-29T00:00:00Z", "2188-02-29T00:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := parse(t, c.expression)
			// From as far as a time.Time goes, to see that nothing overflows on the way.
			for _, before := range []time.Time{{}, time.Unix(-1<<62, 0), instant(t, "1969-12-31T23:59:59Z")} {
				first, ok := e.Next(before, time.UTC)
				require.Equal(t, c.first != none, ok)
				if ok {
					assert.Equal(t, instant(t, c.first), first)
				} else {
					assert.True(t, first.After(before.AddDate(99, 0, 0)), "not zero, for callers that overlook the false")
				}
			}
			for _, after := range []time.Time{time.Unix(1<<62, 0), instant(t, "2200-01-01T00:00:00Z")} {
				last, ok := e.Prev(after, time.UTC)
				require.Equal(t, c.last != none, ok)
				if ok {
					assert.Equal(t, instant(t, c.last), last)
				}
				_, ok = e.Next(after, time.UTC)
				assert.False(t, ok)
			}
			_, ok := e.Prev(time.Time{}, time.UTC)
			assert.False(t, ok)
		})
	}
}

func TestYearsAreThoseOfTheZone(t *testing.T) {
	e := parse(t, "0 0 0 1 1 ?")
	for _, name := range []string{"Pacific/Kiritimati", "America/New_York", "Asia/Shanghai"} {
		z := zone(t, name)
		first, ok := e.Next(time.Time{}, z)
		assert.True(t, ok)
		assert.Equal(t, time.Date(1970, 1, 1, 0, 0, 0, 0, z), first)
		last, ok := e.Prev(time.Unix(1<<40, 0), z)
		assert.True(t, ok)
		assert.Equal(t, time.Date(2199, 1, 1, 0, 0, 0, 0, z), last)
	}
}

func TestBetween(t *testing.T) {
	e := parse(t, "0 0 * * * ?")
	at := func(text string) time.Time { return instant(t, text) }
	for _, c := range []struct {
		name     string
		from, to string
		limit    int
		want     int
	}{
		{"takes the from and leaves the to", "2026-11-20T01:00:00Z", "2026-11-20T03:00:00Z", 10, 2},
		{"takes a fire within a second before the to", "2026-11-20T01:00:00.5Z", "2026-11-20T03:00:00.5Z", 10, 2},
		{"is empty for an empty interval", "2026-11-20T01:00:00Z", "2026-11-20T01:00:00Z", 10, 0},
		{"is empty for an interval backwards", "2026-11-20T03:00:00Z", "2026-11-20T01:00:00Z", 10, 0},
		{"stops at the limit", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z", 5, 5},
		{"gives nothing for a limit of zero", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z", 0, 0},
		{"gives nothing for a limit below", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z", -1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Len(t, e.Between(at(c.from), at(c.to), time.UTC, c.limit), c.want)
		})
	}
}

func TestNoZoneIsUTC(t *testing.T) {
	next, ok := parse(t, "0 0 12 * * ?").Next(instant(t, "2026-11-20T12:00:00+08:00"), nil)
	assert.True(t, ok)
	assert.Equal(t, instant(t, "2026-11-20T12:00:00Z"), next)
}

func TestFiresAreShownInTheZone(t *testing.T) {
	z := zone(t, "Asia/Shanghai")
	next, _ := parse(t, "0 30 9 * * ?").Next(instant(t, "2026-11-20T00:00:00Z"), z)
	assert.Equal(t, "2026-11-20T09:30:00+08:00", next.Format(time.RFC3339))
	prev, _ := parse(t, "0 30 9 * * ?").Prev(instant(t, "2026-11-20T00:00:00Z"), z)
	assert.Equal(t, "2026-11-19T09:30:00+08:00", prev.Format(time.RFC3339))
}

var benchmarks = []struct{ name, expression string }{
	{"every second", "* * * * * ?"},
	{"every ten minutes", "0 */10 * * * ?"},
	{"nightly", "0 30 2 * * ?"},
	{"on weekdays", "0 0/30 9-17 ? * MON-FRI"},
	{"last weekday of the month", "0 0 7 LW * ?"},
	{"leap days", "0 0 7 29 2 ?"},
	{"the fifth Sunday in February", "0 0 7 ? 2 1#5"},
	{"a date that does not exist", "0 0 0 31 2 ?"},
	{"a night that always skips it in New York", "0 30 2 ? 3 1#2 2007-2199"},
	{"many dates that do not exist", "0 0 0 L-30W 2,4,6,9,11 ?"},
}

func BenchmarkNext(b *testing.B) {
	for _, name := range []string{"UTC", "America/New_York"} {
		z := zone(b, name)
		for _, c := range benchmarks {
			e := parse(b, c.expression)
			b.Run(fmt.Sprintf("%s in %s", c.name, name), func(b *testing.B) {
				at := instant(b, "2026-10-20T01:30:00Z")
				for b.Loop() {
					e.Next(at, z)
				}
			})
		}
	}
}

func BenchmarkPrev(b *testing.B) {
	z := zone(b, "America/New_York")
	for _, c := range benchmarks {
		e := parse(b, c.expression)
		b.Run(c.name, func(b *testing.B) {
			at := instant(b, "2026-10-20T01:30:00Z")
			for b.Loop() {
				e.Prev(at, z)
			}
		})
	}
}
