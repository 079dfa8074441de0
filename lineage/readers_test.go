package lineage

import (
	"slices"
	"strings"
	"testing"

	"capri"
	"capri/calendar"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Of every interval there is, exactly those wait for a path whose Conditions have it.
func TestReadersAreTheInverseOfInputs(t *testing.T) {
	calendars := map[string]calendar.Calendar{}
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"}
	for _, zone := range zones {
		calendars[zone] = in(t, zone)
	}
	var refs []Ref
	for _, text := range []string{"hour", "day", "week", "month", "0 30 2 * * ?", "0 0 0/6 * * ?", "0 0 3 L * ?", "0 0 0 1 6 ? 2010-2012"} {
		p, e, _ := period(t, text)
		refs = append(refs, Ref{Period: p, Cron: e, Name: text})
	}
	paths := []string{"/a/${yyyyMMdd}", "/a/${yyyyMMdd-1d}", "/a/${yyyyMMddHH}", "/a/${yyyyMMddHH-30h}", "/a/${yyyy-MM-dd}/${HH}", "/a/${yyyyMM}", "/a/${yyyyMM+1M}", "/a/${yyyyMMdd-1M}",
		"/a/${yyMd}", "/a/${schedule:yyyyMMddHH}", "/a/${schedule:yyyyMMdd-1d}", "/a/${yyyyMMdd}/${schedule:dd}", "/a/${HH}", "/a/${MM}${Z}", "/a", "hdfs://h${dd}/A", "//a//${yyyy}/"}
	drawOffset := func(t *rapid.T, label string) *capri.Offset {
		if rapid.Bool().Draw(t, label+" is set") {
			return &capri.Offset{End: rapid.Bool().Draw(t, label+" end"), N: rapid.IntRange(-3, 3).Draw(t, label)}
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) {
		c := calendars[rapid.SampledFrom(zones).Draw(t, "zone")]
		child := rapid.SampledFrom(refs).Draw(t, "child")
		task := &capri.Task{Spec: capri.Spec{Name: "child", Period: child.Period}}
		for range rapid.IntRange(1, 2).Draw(t, "inputs") {
			in := capri.Input{Path: rapid.SampledFrom(paths).Draw(t, "path")}
			if rapid.Bool().Draw(t, "windowed") {
				in.Unit = rapid.SampledFrom([]capri.Period{capri.Hour, capri.Day, capri.Week, capri.Month}).Draw(t, "unit")
				in.From, in.To = drawOffset(t, "from"), drawOffset(t, "to")
			}
			task.Inputs = append(task.Inputs, in)
		}
		compiled, err := Compile(task)
		if err != nil {
			if !strings.Contains(err.Error(), "a window that does not end before it begins") {
				t.Fatal(err)
			}
			return
		}
		since := capri.Instant(rapid.Int64Range(1_318_000_000_000, 1_335_000_000_000).Draw(t, "since")) // Apia's odd days are in it
		until := since + 40*86_400_000
		want := map[capri.PathCondition][]capri.BatchNo{}
		row := child.series(c)
		iv, ok := row.endingAfter(since - longestDelay)
		for left := 0; ok && left == 0 && iv.Mark <= until; iv, left = row.move(iv, 1) {
			conditions, err := Conditions(c, compiled, iv, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range conditions.Inputs {
				want[p] = append(want[p], iv.BatchNo)
			}
		}
		readers := NewReaders(c)
		readers.Add(7, compiled, child)
		finder := readers.Find(until, func(int) capri.Instant { return since })
		for path, nos := range want {
			readings, err := finder.Of(path)
			if err != nil {
				t.Fatal(err)
			}
			var got []capri.BatchNo
			for _, r := range readings {
				for _, iv := range r.Intervals {
					if iv.End > since-longestDelay { // earlier ones may be among them
						got = append(got, iv.BatchNo)
					}
				}
			}
			slices.Sort(got)
			slices.Sort(nos)
			if got = slices.Compact(got); !slices.Equal(got, nos) {
				t.Fatalf("%s is waited for by %v, want %v", path.Path, got, nos)
			}
		}
		for _, path := range []string{"/b", "/a/20120101x", "/a/2012-02-30/25"} {
			if readings, _ := finder.Of(capri.PathCondition{Path: path, Flag: "_SUCCESS"}); len(readings) > 0 {
				t.Fatalf("%s is waited for by %v", path, readings)
			}
		}
	})
}

func TestReadersOfOneKindAreFoundTogether(t *testing.T) {
	c := in(t, "UTC")
	readers := NewReaders(c)
	reads := func(p capri.Period, inputs ...capri.Input) (*Compiled, Ref) {
		compiled, err := Compile(&capri.Task{Spec: capri.Spec{Name: "t", Period: p, Inputs: inputs}})
		require.NoError(t, err)
		return compiled, Ref{Period: p}
	}
	add := func(task int, p capri.Period, inputs ...capri.Input) {
		compiled, ref := reads(p, inputs...)
		readers.Add(task, compiled, ref)
	}
	add(1, capri.Day, capri.Input{Path: "/x/t01/${yyyyMMdd}"})
	add(2, capri.Day, capri.Input{Path: "/x/t01/${yyyyMMdd}"}, capri.Input{Path: "/x/t01/${yyyyMMdd}"})
	add(3, capri.Day, capri.Input{Path: "/x/t01/${yyyyMMdd}", Flag: capri.FlagNone})
	add(4, capri.Day, capri.Input{Path: "/x/t02/${yyyyMMdd}"})
	add(5, capri.Day, capri.Input{Path: "/x/t01/${yyyyMMdd-1d}"})
	add(6, capri.Manual, capri.Input{Path: "/x/t01/${yyyyMMdd}"})
	add(7, capri.Week, capri.Input{Path: "/x/t01/${yyyyMMdd}", Unit: capri.Day})
	finder := readers.Find(at(t, c, "2026-12-20"), func(int) capri.Instant { return 0 })
	readings, err := finder.Of(capri.PathCondition{Path: "/x/t01/20261120", Flag: "_SUCCESS"})
	require.NoError(t, err)
	var got []string
	for _, r := range readings {
		for _, iv := range r.Intervals {
			for _, task := range r.Tasks {
				got = append(got, string(rune('0'+task))+" "+string(iv.BatchNo))
			}
		}
	}
	assert.Equal(t, []string{"1 20261120", "2 20261120", "5 20261121", "7 2026W47"}, got)
}

// A cron task's first interval is empty, and waits for its own path all the same.
func TestReadersOfAFirstFire(t *testing.T) {
	c := in(t, "UTC")
	compiled, err := Compile(&capri.Task{Spec: capri.Spec{Name: "t", Period: capri.Cron, Inputs: []capri.Input{{Path: "/x/${yyyyMMdd}"}}}})
	require.NoError(t, err)
	p, e, _ := period(t, "0 0 0 1 6 ? 2010-2012")
	readers := NewReaders(c)
	readers.Add(0, compiled, Ref{Period: p, Cron: e})
	readings, err := readers.Find(at(t, c, "2026-11-20"), func(int) capri.Instant { return 0 }).Of(capri.PathCondition{Path: "/x/20100601", Flag: "_SUCCESS"})
	require.NoError(t, err)
	require.Len(t, readings, 1)
	require.Len(t, readings[0].Intervals, 2, "and the second starts there")
	assert.Equal(t, capri.BatchNo("20100601000000"), readings[0].Intervals[0].BatchNo)
	assert.Equal(t, capri.BatchNo("20110601000000"), readings[0].Intervals[1].BatchNo)
}

func TestReadersOfAPathWithoutADate(t *testing.T) {
	c := in(t, "UTC")
	compiled, err := Compile(&capri.Task{Spec: capri.Spec{Name: "often", Period: capri.Hour, Inputs: []capri.Input{{Path: "/x/${HH}", Unit: capri.Hour, From: offset(t, "-500"), To: offset(t, "0")}}}})
	require.NoError(t, err)
	readers := NewReaders(c)
	readers.Add(0, compiled, Ref{Period: capri.Hour})
	path := capri.PathCondition{Path: "/x/07", Flag: "_SUCCESS"}
	readings, err := readers.Find(at(t, c, "2026-11-20"), func(int) capri.Instant { return at(t, c, "2026-11-19") }).Of(path)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(readings[0].Intervals), 24)
	_, err = readers.Find(at(t, c, "2026-11-20"), func(int) capri.Instant { return 0 }).Of(path)
	require.ErrorIs(t, err, capri.ErrConflict)
	assert.ErrorContains(t, err, `inputs[0].path of task often: "/x/${HH}" does not say of which day it is`)
}
