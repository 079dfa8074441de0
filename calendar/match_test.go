package calendar

import (
	"math"
	"strings"
	"testing"

	"capri"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMatch_says_when_an_interval_that_gives_a_text_starts(t *testing.T) {
	for _, tt := range []struct{ template, text, from, to string }{
		{"/a/${yyyyMMdd}", "/a/20261120", "2026-11-20", "2026-11-21"},
		{"/a/${yyyyMMdd}/${HH}", "/a/20261120/09", "2026-11-20 09:00", "2026-11-20 10:00"},
		{"/a/${yyyy-MM}/${schedule:HH}", "/a/2026-11/00", "2026-11-01", "2026-12-01"},
		{"/a/${yyyy}", "/a/2026", "2026-01-01", "2027-01-01"},
		{"/a/${yyyyMMdd-1d}", "/a/20261120", "2026-11-21", "2026-11-22"},
		{"/a/${yyyyMMdd+1w}", "/a/20261120", "2026-11-13", "2026-11-14"},
		{"/a/${yyyyMMddHH-3h}", "/a/2026112023", "2026-11-21 02:00", "2026-11-21 03:00"},
		{"/a/${yyyyMM-1M}", "/a/202612", "2027-01-01", "2027-02-01"},
		{"/a/${yyyyMMdd-1M}", "/a/20270430", "2027-05-30", "2027-06-01"}, // 31 May - 1M is 30 April
		{"/a/${yyyyMMdd-1M}", "/a/20270429", "2027-05-29", "2027-05-30"},
		{"/a/${yyyyMMdd}-${yyyyMMdd+1d}", "/a/20261120-20261121", "2026-11-20", "2026-11-21"},
		{"/year=${yyyy}/month=${M}/day=${d}/hour=${H}", "/year=2026/month=6/day=10/hour=0", "2026-06-10 00:00", "2026-06-10 01:00"},
	} {
		t.Run(tt.template, func(t *testing.T) {
			c := in(t, "Europe/Berlin")
			tmpl, err := ParseTemplate(tt.template, PathTemplate)
			require.NoError(t, err)
			got := tmpl.Match(c, tt.text)
			require.Len(t, got, 1)
			assert.Equal(t, Range{at(t, c, tt.from), at(t, c, tt.to)}, got[0].Start)
			assert.Equal(t, anyTime, got[0].Mark)
		})
	}
}

func TestMatch_reads_all_ways_there_are(t *testing.T) {
	c := in(t, "UTC")
	days := func(template, text string) (out []string) {
		tmpl, err := ParseTemplate(template, PathTemplate)
		require.NoError(t, err)
		for _, m := range tmpl.Match(c, text) {
			if m.Start.Bounded() {
				out = append(out, m.Start.From.In(c.Zone()).Format("2006-01-02"))
			} else {
				out = append(out, "any")
			}
		}
		return out
	}
	assert.Equal(t, []string{"2026-01-11", "2026-11-01"}, days("${yyyyMd}", "2026111"), "one digit or two")
	assert.Equal(t, []string{"1826-11-20", "1926-11-20", "2026-11-20", "2126-11-20", "2226-11-20"}, days("${yyMMdd}", "261120"), "any century")
	assert.Equal(t, []string{"any"}, days("/x/${HH}", "/x/09"), "no year")
	assert.Equal(t, []string{"any"}, days("/x/y", "/x/y"), "no time at all")
	for template, text := range map[string]string{
		"/x/y": "/x/z", "/a/${yyyyMMdd}": "/a/20261320", "/b/${yyyyMMdd}": "/b/20260230", "/c/${yyyyMMdd}": "/c/20261120/", "/d/${HH}": "/d/9",
		"/e/${yyyyMMdd}/${yyyy}": "/e/20261120/2027", "/f/${yyyyMMddHH}": "/f/2026112024", "/g/${yyyyMMdd}-${yyyyMMdd+1d}": "/g/20261120-20261122",
		"/h/${yyyyMMdd}${Z}": "/h/20261120*0100", "/i/${M}": "/i/x",
	} {
		assert.Empty(t, days(template, text), template)
	}
}

// Where the clock is changed several intervals give one text, and none of them may be missed.
func TestMatch_near_a_change_of_the_clock(t *testing.T) {
	for _, tt := range []struct {
		sentence, zone, template, text string
		starts                         []string
	}{
		{"two equal hours", "America/New_York", "${yyyyMMddHH}", "2026110101", []string{"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00"}},
		{"the day after, where the hour is left out", "Europe/Berlin", "${yyyyMMddHH+1d}", "2026032903", []string{"2026-03-28T02:00:00+01:00", "2026-03-28T03:00:00+01:00"}},
		{"the week after", "Europe/Berlin", "${yyyyMMddHH+1w}", "2026032903", []string{"2026-03-22T02:00:00+01:00", "2026-03-22T03:00:00+01:00"}},
		{"the month before", "Europe/Berlin", "${yyyyMMddHH-1M}", "2026032903", []string{"2026-04-29T02:00:00+02:00", "2026-04-29T03:00:00+02:00"}},
		{"half an hour", "Australia/Lord_Howe", "${yyyyMMddHHmm-1d}", "202610040230", []string{"2026-10-05T02:30:00+11:00", "2026-10-05T02:00:00+11:00"}},
		{"a date that was left out", "Pacific/Apia", "${yyyyMMdd+1d}", "20111231", []string{"2011-12-29T00:00:00-10:00"}},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			c := in(t, tt.zone)
			tmpl, err := ParseTemplate(tt.template, PathTemplate)
			require.NoError(t, err)
			for _, text := range tt.starts {
				start := at(t, c, text)
				require.Equal(t, tt.text, tmpl.Expand(c, start, start))
				found := false
				for _, m := range tmpl.Match(c, tt.text) {
					found = found || m.Start.From <= start && start < m.Start.To
				}
				assert.True(t, found, text)
			}
		})
	}
}

// What Expand writes, Match finds again, whatever the shift, the zone and the clock changes; and the outlines agree.
func TestMatch_finds_every_interval_that_gives_a_text(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns"}
	calendars := map[string]Calendar{}
	for _, z := range zones {
		calendars[z] = in(t, z)
	}
	formats := []string{"yyyyMMdd", "yyyyMMddHH", "yyyy-MM", "yyyy", "yyMMdd", "yyyy/M/d", "HH", "yyyyMMddHHmmss", "yyyyMMddHHZ", "MM-dd", "yyyy年M月d日", "yyyyMdH"}
	literals := []string{"/a/", "/v2", "-", "7", "/x+1_", "/t0001/b"}
	rapid.Check(t, func(t *rapid.T) {
		c := calendars[rapid.SampledFrom(zones).Draw(t, "zone")]
		var b strings.Builder
		b.WriteString("/")
		for range rapid.IntRange(0, 3).Draw(t, "times") {
			b.WriteString(rapid.SampledFrom(literals).Draw(t, "literal"))
			b.WriteString("${")
			if rapid.IntRange(0, 4).Draw(t, "schedule") == 0 {
				b.WriteString("schedule:")
			}
			b.WriteString(rapid.SampledFrom(formats).Draw(t, "format"))
			b.WriteString(rapid.SampledFrom([]string{"", "", "-1d", "+1d", "-1M", "+1M", "+13M", "-3h", "+25h", "-1w", "-400d"}).Draw(t, "shift"))
			b.WriteString("}")
		}
		b.WriteString(rapid.SampledFrom([]string{"", "/", "/part0", "9"}).Draw(t, "tail"))
		tmpl, err := ParseTemplate(b.String(), PathTemplate)
		if err != nil {
			t.Fatal(err)
		}
		// Anything, often near a change of the clock or the end of a month.
		start := capri.Instant(rapid.OneOf(
			rapid.Int64Range(1_262_304_000, 1_900_000_000),
			rapid.Map(rapid.IntRange(0, 200), func(n int) int64 { return 1_293_800_000 + int64(n)*43_200 }), // round the Apia year
			rapid.Map(rapid.IntRange(0, 400), func(n int) int64 { return 1_774_000_000 + int64(n)*3600 }),   // spring 2026
			rapid.Map(rapid.IntRange(0, 400), func(n int) int64 { return 1_793_000_000 + int64(n)*1800 }),   // autumn 2026
			rapid.Map(rapid.IntRange(0, 90), func(n int) int64 { return 1_324_900_000 + int64(n)*3600 }),    // Apia leaves out a day
		).Draw(t, "start") * 1000)
		iv := c.Containing(rapid.SampledFrom([]capri.Period{capri.Hour, capri.Day, capri.Week, capri.Month}).Draw(t, "period"), start)
		text := tmpl.Expand(c, iv.Start, iv.Mark)

		found := false
		for _, m := range tmpl.Match(c, text) {
			found = found || m.Start.From <= iv.Start && iv.Start < m.Start.To && m.Mark.From <= iv.Mark && iv.Mark < m.Mark.To
		}
		if !found {
			t.Fatalf("%s gives %s for %s (start %s, mark %s), which is not in %v", tmpl, text, iv.BatchNo, iv.Start, iv.Mark, tmpl.Match(c, text))
		}
		outline, times := tmpl.Outline()
		if got := Outline(text, times); got != outline {
			t.Fatalf("%s has the outline %s, and its expansion %s has %s", tmpl, outline, text, got)
		}
		if a, b := Outline(text, math.MaxUint64), Outline(outline, math.MaxUint64); a != b {
			t.Fatalf("%s: %s and %s", tmpl, a, b)
		}
	})
}

func TestOutline_keeps_the_digits_that_are_no_times(t *testing.T) {
	for template, want := range map[string]string{
		"/data/t0001/${yyyyMMdd}/part7": "/data/t0001/#/part7",
		"/v2${yyyy}8/${M_d}x":           "/v#/#_#x",
		"/a/${yyyyMMddHHZ}":             "/a/#-#",
		"/a+1/b":                        "/a-1/b",
	} {
		tmpl, err := ParseTemplate(template, PathTemplate)
		require.NoError(t, err)
		got, _ := tmpl.Outline()
		assert.Equal(t, want, got)
	}
	assert.Equal(t, strings.Repeat("1/", 64)+strings.Repeat("#/", 6), Outline(strings.Repeat("1/", 70), 0), "beyond the 64th")
}
