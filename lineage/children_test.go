package lineage

import (
	"slices"
	"testing"

	"capri"
	"capri/calendar"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestChildren(t *testing.T) {
	for _, tt := range []struct {
		name     string
		parent   string
		batch    string
		child    string
		from, to string
		policy   capri.Policy
		until    string
		want     []string
	}{
		{"the same period", "day", "20261120", "day", "", "", "", "2027-01-01", []string{"20261120"}},
		{"an hour's day", "hour", "2026112009", "day", "", "", "", "2027-01-01", []string{"20261120"}},
		{"which is not there yet", "hour", "2026112009", "day", "", "", "", "2026-11-21 00:00", nil},
		{"a mark at until counts", "hour", "2026112009", "day", "", "", "", "2026-11-21 00:01", []string{"20261120"}},
		{"only the day's last hour with LASTONE", "hour", "2026112009", "day", "", "", capri.LastOne, "2027-01-01", nil},
		{"namely this one", "hour", "2026112023", "day", "", "", capri.LastOne, "2027-01-01", []string{"20261120"}},
		{"a week across two months is of no month", "week", "2026W49", "month", "", "", "", "2027-02-01", nil},
		{"a month's weeks are those that end while it is the newest", "month", "202610", "week", "", "", "", "2027-02-01",
			[]string{"2026W44", "2026W45", "2026W46", "2026W47", "2026W48"}},
		{"the day after and the day itself", "day", "20261120", "day", "-1", "0", "", "2027-01-01", []string{"20261120", "20261121"}},
		{"late data of the day before", "hour", "2026112102", "day", "end+3", "end+3", "", "2027-01-01", []string{"20261120"}},
		{"a manual child is nobody's", "hour", "2026112102", "manual", "", "", "", "2027-01-01", nil},
		{"a last fire is waited for by all later children, up to a bound", "0 0 0 1 1 ? 2020", "20200101000000", "month", "", "", "",
			"2020-04-02", []string{"201912", "202001", "202002", "202003"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := in(t, "UTC")
			parent, child := Ref{}, Ref{}
			parent.Period, parent.Cron, _ = period(t, tt.parent)
			child.Period, child.Cron, _ = period(t, tt.child)
			dep := capri.Parent{From: offset(t, tt.from), To: offset(t, tt.to), Policy: tt.policy}
			iv := interval(t, c, parent.Period, parent.Cron, tt.batch)
			var got []string
			for _, ch := range Children(c, parent, iv, child, dep, at(t, c, tt.until)) {
				got = append(got, string(ch.BatchNo))
			}
			assert.Equal(t, tt.want, got)

			parent.First = iv.Mark + 1
			assert.Empty(t, Children(c, parent, iv, child, dep, at(t, c, tt.until)), "nobody waits for what is before its first mark")
		})
	}
}

// Children says of every child's interval near the parent's what Parents of that child says.
func TestChildrenIsTheInverseOfParents(t *testing.T) {
	calendars := map[string]calendar.Calendar{}
	zones := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns"}
	for _, zone := range zones {
		calendars[zone] = in(t, zone)
	}
	var refs []Ref
	for _, text := range []string{"hour", "day", "week", "month", "0 30 2 * * ?", "0 0 0,1/6 * * ?", "0 0 9 ? * MON", "0 0 0 1 6 ? 2010-2012", "0 15 1 1 * ?"} {
		p, e, _ := period(t, text)
		refs = append(refs, Ref{Period: p, Cron: e, Name: text})
	}
	drawOffset := func(t *rapid.T, label string) *capri.Offset {
		if rapid.Bool().Draw(t, label+" is set") {
			return &capri.Offset{End: rapid.Bool().Draw(t, label+" end"), N: rapid.IntRange(-3, 3).Draw(t, label)}
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) {
		c := calendars[rapid.SampledFrom(zones).Draw(t, "zone")]
		parent, child := rapid.SampledFrom(refs).Draw(t, "parent"), rapid.SampledFrom(refs).Draw(t, "child")
		dep := capri.Parent{From: drawOffset(t, "from"), To: drawOffset(t, "to"),
			Policy: rapid.SampledFrom([]capri.Policy{capri.All, capri.Anyone, capri.LastOne}).Draw(t, "policy")}
		// 2010 to 2012: Apia's and St John's odd days and the last fires are all in them.
		instant := capri.Instant(rapid.Int64Range(1_270_000_000_000, 1_340_000_000_000).Draw(t, "at"))
		iv, ok := parent.series(c).endingAfter(instant)
		if !ok {
			if iv, ok = parent.series(c).endedBy(instant); !ok {
				return
			}
		}

		// Four of the longer of the two periods to either side are as far as these windows reach.
		reach := capri.Instant(5 * 32 * 86_400_000)
		if short := func(r Ref) bool { return r.Period == capri.Hour || r.Period == capri.Day || r.Name == "0 30 2 * * ?" }; short(parent) && short(child) {
			reach = 8 * 86_400_000
		}
		if parent.Name == "0 0 0 1 6 ? 2010-2012" || child.Name == parent.Name {
			reach *= 4
		}
		until := iv.End + reach
		var want []capri.BatchNo
		row := child.series(c)
		ch, ok := row.endingAfter(iv.Start - reach)
		for left := 0; ok && left == 0 && ch.Mark <= until; ch, left = row.move(ch, 1) {
			for _, p := range parentsOf(c, child, ch, parent, dep) {
				if p.BatchNo == iv.BatchNo {
					want = append(want, ch.BatchNo)
				}
			}
		}
		var got []capri.BatchNo
		for _, ch := range Children(c, parent, iv, child, dep, until) {
			if ch.End >= iv.Start-reach {
				got = append(got, ch.BatchNo)
			}
		}
		if !slices.Equal(want, got) { // thousands of them; the first that differ are enough
			n := 0
			for n < len(want) && n < len(got) && want[n] == got[n] {
				n++
			}
			t.Fatalf("%s %s: children of %s: want %d, got %d, which differ from %v and %v on", parent.Name, iv.BatchNo, child.Name,
				len(want), len(got), want[n:min(n+3, len(want))], got[n:min(n+3, len(got))])
		}
	})
}

// Both ends of the span move on with the child: what Children and Cycle rest on.
func TestSpansOnlyMoveOn(t *testing.T) {
	c := in(t, "America/New_York")
	var refs []Ref
	for _, text := range []string{"hour", "day", "week", "month", "0 30 2 * * ?", "0 0 0/6 * * ?"} {
		p, e, _ := period(t, text)
		refs = append(refs, Ref{Period: p, Cron: e})
	}
	rapid.Check(t, func(t *rapid.T) {
		parent, child := rapid.SampledFrom(refs).Draw(t, "parent"), rapid.SampledFrom(refs).Draw(t, "child")
		dep := capri.Parent{}
		if rapid.Bool().Draw(t, "window") {
			dep.From = &capri.Offset{End: rapid.Bool().Draw(t, "from end"), N: rapid.IntRange(-30, 0).Draw(t, "from")}
			dep.To = &capri.Offset{End: rapid.Bool().Draw(t, "to end"), N: rapid.IntRange(0, 30).Draw(t, "to")}
		}
		row, of := child.series(c), parent.series(c)
		ch, _ := row.endingAfter(capri.Instant(rapid.Int64Range(1_700_000_000_000, 1_800_000_000_000).Draw(t, "at")))
		was := spanOf(child.Period, ch, of, &dep)
		for range 30 {
			ch, _ = row.move(ch, 1)
			is := spanOf(child.Period, ch, of, &dep)
			require.GreaterOrEqual(t, is.first.End, was.first.End)
			require.GreaterOrEqual(t, is.last.End, was.last.End)
			was = is
		}
	})
}

// parentsOf lists the intervals of parent that the child's batch for iv waits for, those before the parent's
// first mark included: the caller tells them by Mark < parent.First.
func parentsOf(c calendar.Calendar, child Ref, iv capri.Interval, parent Ref, dep capri.Parent) []capri.Interval {
	of := parent.series(c)
	s := spanOf(child.Period, iv, of, &dep)
	var ivs []capri.Interval
	s.each(of, func(iv capri.Interval) { ivs = append(ivs, iv) })
	return ivs
}
