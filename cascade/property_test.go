package cascade

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"capri"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// definitions draws a few tasks that wait for one another in all ways there are. Parents come before their children,
// so no batch waits for itself by parents; by paths one may.
func definitions(t *rapid.T) []capri.Spec {
	periods := []struct {
		p    capri.Period
		cron string
	}{
		{capri.Hour, ""}, {capri.Day, ""}, {capri.Day, ""}, {capri.Week, ""}, {capri.Month, ""},
		{capri.Cron, "0 30 2 * * ?"}, {capri.Cron, "0 0 0/6 * * ?"}, {capri.Cron, "0 0 9 ? * MON"}, {capri.Cron, "0 0 3 L * ?"}, {capri.Cron, "0 0 12 15 12 ? 2026"},
		{capri.Manual, ""},
	}
	times := []string{"${yyyyMMdd}", "${yyyyMMdd}", "${yyyy-MM-dd}/${HH}", "${yyyyMM}", "${yyyy}/${M}/${d}", "${yyyyMMdd-1d}", "${yyyyMMdd+1d}", "${yyyyMM-1M}", "${yyyyMMdd-1M}",
		"${yyMMdd}", "${schedule:yyyyMMdd}", "${yyyyMMddHH}${Z}", "${yyyyMMddHH-2h}", "${yyyyMMdd-1w}", "all", "${HH}", "${dd}", "${yyyy}${schedule:MMdd}"}
	window := func() (from, to *capri.Offset) {
		draw := func(label string) *capri.Offset {
			if rapid.IntRange(0, 2).Draw(t, label+" is set") > 0 {
				return nil
			}
			return &capri.Offset{End: rapid.Bool().Draw(t, label+" end"), N: rapid.IntRange(-3, 2).Draw(t, label)}
		}
		if from, to = draw("from"), draw("to"); from != nil && (from.End || from.N > 0) {
			to = &capri.Offset{End: from.End, N: from.N + rapid.IntRange(0, 3).Draw(t, "wide")}
		} else if to != nil && !to.End && to.N < 0 {
			from = &capri.Offset{N: to.N - rapid.IntRange(0, 3).Draw(t, "wide")}
		}
		return from, to
	}
	flag := func() string { return rapid.SampledFrom([]string{"", "", "_DONE", capri.FlagNone}).Draw(t, "flag") }
	path := func() string {
		return fmt.Sprintf("%s/d%d/%s", rapid.SampledFrom([]string{"", "", "HDFS://nn:8020", "/"}).Draw(t, "head"),
			rapid.IntRange(0, 3).Draw(t, "dataset"), rapid.SampledFrom(times).Draw(t, "times"))
	}
	hours := 0
	var specs []capri.Spec
	for n := range rapid.IntRange(3, 7).Draw(t, "tasks") {
		kind := rapid.SampledFrom(periods).Draw(t, "period")
		if kind.p == capri.Hour {
			if hours++; hours > 2 {
				kind.p = capri.Day
			}
		}
		s := capri.Spec{Name: fmt.Sprintf("t%d", n), Period: kind.p, Cron: kind.cron,
			Cascade: rapid.IntRange(0, 9).Draw(t, "cascade") > 0, Enabled: rapid.IntRange(0, 9).Draw(t, "enabled") > 0}
		for range rapid.IntRange(0, 3).Draw(t, "parents") {
			k := rapid.IntRange(0, n).Draw(t, "parent")
			dep := capri.Parent{Task: fmt.Sprintf("t%d", k), Policy: rapid.SampledFrom([]capri.Policy{capri.All, capri.Anyone, capri.LastOne}).Draw(t, "policy")}
			dep.From, dep.To = window()
			if k == n { // itself, before
				dep.From, dep.To = &capri.Offset{N: -rapid.IntRange(1, 2).Draw(t, "back")}, &capri.Offset{N: -1}
			} else if specs[k].Period == capri.Manual {
				continue
			}
			s.Parents = append(s.Parents, dep)
		}
		if rapid.IntRange(0, 5).Draw(t, "writes") > 0 {
			s.Outputs = append(s.Outputs, capri.Output{Path: path(), Flag: flag()})
		}
		for range rapid.IntRange(0, 3).Draw(t, "reads") {
			in := capri.Input{Path: path(), Flag: flag()}
			if made := rapid.IntRange(0, n).Draw(t, "made"); made < n && len(specs[made].Outputs) > 0 && rapid.IntRange(0, 4).Draw(t, "as made") > 0 {
				in = capri.Input{Path: specs[made].Outputs[0].Path, Flag: specs[made].Outputs[0].Flag}
			}
			if rapid.Bool().Draw(t, "window") {
				in.Unit = rapid.SampledFrom([]capri.Period{0, capri.Day, capri.Month, capri.Week, capri.Hour}).Draw(t, "unit")
				if in.Unit != 0 || s.Period.Calendar() {
					in.From, in.To = window()
				}
			}
			s.Inputs = append(s.Inputs, in)
		}
		specs = append(specs, s)
	}
	return specs
}

// Whatever the definitions, a rerun reaches what the obvious search finds: over all periods and windows, through clock
// changes, the ends of months and of years; or it says that some batches wait for one another, and they do.
func TestReach_is_what_the_obvious_search_finds(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}
	nows := []string{"2026-11-05 13:00", "2026-11-02 01:30", "2026-10-26 06:00", "2026-03-30 04:00", "2027-01-04 10:00", "2027-03-02 00:10", "2026-04-06 12:00", "2028-03-01 00:06"}
	rapid.Check(t, func(t *rapid.T) {
		specs := definitions(t)
		w, err := newWorld(rapid.SampledFrom(zones).Draw(t, "zone"), 0, specs...)
		if err != nil {
			t.Fatal(err)
		}
		now := at(t, w.c, rapid.SampledFrom(nows).Draw(t, "now"))
		for id, ref := range w.refs {
			ref.First = now - capri.Instant(rapid.SampledFrom([]int64{2, 9, 33, 64, 64, 100}).Draw(t, "days"))*86_400_000
			w.refs[id] = ref
		}
		g := w.graph()
		if broken := g.Broken(); len(broken) > 0 {
			t.Fatal(broken[0].Err)
		}
		all, err := w.batches(now)
		if err != nil {
			t.Fatal(err)
		}
		var roots []name
		var asked []Root
		for range rapid.IntRange(1, 2).Draw(t, "roots") {
			task := rapid.SampledFrom(w.tasks[:(len(w.tasks)+1)/2]).Draw(t, "root")
			ivs := w.intervals(task, w.refs[task.ID].First, now)
			if len(ivs) == 0 {
				continue
			}
			from := rapid.IntRange(max(0, len(ivs)-200), len(ivs)-1).Draw(t, "from")
			ivs = ivs[from:min(len(ivs), from+rapid.IntRange(1, 30).Draw(t, "n"))]
			asked = append(asked, Root{task.ID, ivs})
			for _, iv := range ivs {
				if n := (name{task.Name, iv.BatchNo}); !slices.Contains(roots, n) {
					roots = append(roots, n)
				}
			}
		}
		by := rapid.SampledFrom([]By{0, Logic, Data, Both, Both}).Draw(t, "by")
		want := edgesOf(all).reach(roots, by)
		items, err := g.Reach(asked, by, now, 200_000)
		if errors.Is(err, capri.ErrConflict) && want.ring() {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := compare(items, want); err != nil {
			t.Fatalf("by %s: %s", by, err)
		}
		newest, err := Sort(items, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := compare(newest, want); err != nil {
			t.Fatalf("newest first: %s", err)
		}
		// What is left of a plan is connected as it was, whatever order it is handed in.
		some := Keep(items, func(it *Item) bool { return it.NotRun == "" && rapid.IntRange(0, 4).Draw(t, "kept") > 0 })
		some, err = Sort(some, false)
		if err != nil {
			t.Fatal(err)
		}
		loose := slices.Clone(some)
		slices.Reverse(loose)
		for i := range loose {
			loose[i].Before = nil
		}
		connected, err := g.Connect(loose, now)
		if err != nil {
			t.Fatal(err)
		}
		require.Equal(t, len(some), len(connected))
		for i := range some {
			require.Equal(t, some[i], connected[i])
		}
	})
}

// ring reports whether some of the batches wait for one another.
func (s *slow) ring() bool {
	left := map[name]int{}
	for n := range s.in {
		left[n] = len(s.before[n])
	}
	for {
		var done []name
		for n, k := range left {
			if k == 0 {
				done = append(done, n)
			}
		}
		if len(done) == 0 {
			return len(left) > 0
		}
		for _, d := range done {
			delete(left, d)
			for n := range left {
				if _, waits := s.before[n][d]; waits {
					left[n]--
				}
			}
		}
	}
}
