package cascade

import (
	"fmt"
	"testing"

	"capri"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func days(n int) *capri.Offset { return &capri.Offset{N: n} }

// parents, reads, writes, never and off change a spec.
func parents(names ...string) func(*capri.Spec) {
	return func(s *capri.Spec) {
		for _, n := range names {
			s.Parents = append(s.Parents, capri.Parent{Task: n})
		}
	}
}

func before(n int) func(*capri.Spec) {
	return func(s *capri.Spec) {
		s.Parents = append(s.Parents, capri.Parent{Task: s.Name, From: days(-n), To: days(-n)})
	}
}

func reads(path string) func(*capri.Spec) {
	return func(s *capri.Spec) { s.Inputs = append(s.Inputs, capri.Input{Path: path}) }
}

func writes(path string) func(*capri.Spec) {
	return func(s *capri.Spec) { s.Outputs = append(s.Outputs, capri.Output{Path: path}) }
}

func never(s *capri.Spec) { s.Cascade = false }
func off(s *capri.Spec)   { s.Enabled = false }

func valid(from, to string) func(*capri.Spec) {
	return func(s *capri.Spec) { s.Valid = capri.Validity{From: from, To: to} }
}

// asked is a question as tests write it: which batches of which task, by what, at what time.
type asked struct {
	zone  string
	specs []capri.Spec
	task  string
	nos   []capri.BatchNo
	by    By
	now   string
	most  int
}

func (a asked) reach(t *testing.T) ([]Item, error) {
	t.Helper()
	zone := a.zone
	if zone == "" {
		zone = "UTC"
	}
	w, err := newWorld(zone, 0, a.specs...)
	require.NoError(t, err)
	for id, ref := range w.refs {
		ref.First = at(t, w.c, "2026-01-01")
		w.refs[id] = ref
	}
	g := w.graph()
	require.Empty(t, g.Broken())
	root := Root{Task: w.task(a.task).ID}
	for _, no := range a.nos {
		iv, err := w.interval(root.Task, no)
		require.NoError(t, err)
		root.Intervals = append(root.Intervals, iv)
	}
	most := a.most
	if most == 0 {
		most = 100_000
	}
	return g.Reach([]Root{root}, a.by, at(t, w.c, a.now), most)
}

func words(items []Item) (out []string) {
	for _, it := range items {
		line := fmt.Sprintf("%s %s", it.Task.Name, it.Interval.BatchNo)
		if it.NotRun != "" {
			line += ": " + it.NotRun
		}
		out = append(out, line)
	}
	return out
}

func TestReach(t *testing.T) {
	const path = "/dwd/orders/${yyyyMMdd}"
	for _, tt := range []struct {
		sentence string
		asked    asked
		want     []string
	}{
		{"a rerun without a cascade is what was asked for, the oldest first", asked{specs: []capri.Spec{spec("a", capri.Day), spec("b", capri.Day, parents("a"))},
			task: "a", nos: []capri.BatchNo{"20261119", "20261118"}, now: "2026-12-20"}, []string{"a 20261118", "a 20261119"}},
		{"a day's rerun reaches its week and its month", asked{specs: []capri.Spec{spec("d", capri.Day), spec("m", capri.Month, parents("d")), spec("w", capri.Week, parents("d"))},
			task: "d", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-12-20"}, []string{"d 20261120", "w 2026W47", "m 202611"}},
		{"which are reached once they have ended", asked{specs: []capri.Spec{spec("d", capri.Day), spec("m", capri.Month, parents("d")), spec("w", capri.Week, parents("d"))},
			task: "d", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-11-23 00:02"}, []string{"d 20261120", "w 2026W47"}},
		{"an hour's rerun reaches its day, and from there the rest", asked{specs: []capri.Spec{spec("h", capri.Hour), spec("d", capri.Day, parents("h")), spec("w", capri.Week, parents("d"))},
			task: "h", nos: []capri.BatchNo{"2026112009"}, by: Logic, now: "2026-12-20"}, []string{"h 2026112009", "d 20261120", "w 2026W47"}},
		{"the two equal hours of an autumn night are two, and one day", asked{zone: "America/New_York", specs: []capri.Spec{spec("h", capri.Hour), spec("d", capri.Day, parents("h"))},
			task: "h", nos: []capri.BatchNo{"2026110101-0500", "2026110101-0400"}, by: Logic, now: "2026-11-20"}, []string{"h 2026110101-0400", "h 2026110101-0500", "d 20261101"}},
		{"in Berlin's autumn, too, and its week ends that night", asked{zone: "Europe/Berlin", specs: []capri.Spec{spec("h", capri.Hour), spec("d", capri.Day, parents("h")), spec("w", capri.Week, parents("d")), spec("m", capri.Month, parents("d"))},
			task: "h", nos: []capri.BatchNo{"2026102502+0100", "2026102502+0200"}, by: Logic, now: "2026-12-20"}, []string{"h 2026102502+0200", "h 2026102502+0100", "d 20261025", "w 2026W43", "m 202610"}},
		{"the hour after the one that spring leaves out", asked{zone: "Europe/Berlin", specs: []capri.Spec{spec("h", capri.Hour), spec("d", capri.Day, parents("h")), spec("w", capri.Week, parents("d")), spec("m", capri.Month, parents("d"))},
			task: "h", nos: []capri.BatchNo{"2026032901", "2026032903"}, by: Logic, now: "2026-12-20"}, []string{"h 2026032901", "h 2026032903", "d 20260329", "w 2026W13", "m 202603"}},
		{"a month's last day and the next month's first, of one week", asked{zone: "Europe/Berlin", specs: []capri.Spec{spec("h", capri.Hour), spec("d", capri.Day, parents("h")), spec("w", capri.Week, parents("d")), spec("m", capri.Month, parents("d"))},
			task: "d", nos: []capri.BatchNo{"20260930", "20261001"}, by: Logic, now: "2026-12-20"}, []string{"d 20260930", "m 202609", "d 20261001", "w 2026W40", "m 202610"}},
		{"a year's last days are of a 53rd week, with the next one's first", asked{zone: "Europe/Berlin", specs: []capri.Spec{spec("h", capri.Hour), spec("d", capri.Day, parents("h")), spec("w", capri.Week, parents("d")), spec("m", capri.Month, parents("d"))},
			task: "d", nos: []capri.BatchNo{"20261231", "20270101"}, by: Logic, now: "2027-02-20"}, []string{"d 20261231", "m 202612", "d 20270101", "w 2026W53", "m 202701"}},
		{"the week across the year's end is of the year that ISO says", asked{specs: []capri.Spec{spec("d", capri.Day), spec("w", capri.Week, parents("d"))},
			task: "d", nos: []capri.BatchNo{"20260101"}, by: Logic, now: "2026-12-20"}, []string{"d 20260101", "w 2026W01"}},
		{"a diamond's end is there once", asked{specs: []capri.Spec{spec("a", capri.Day), spec("b", capri.Day, parents("a")), spec("c", capri.Day, parents("a")), spec("a_last", capri.Day, parents("b", "c"))},
			task: "a", nos: []capri.BatchNo{"20261120"}, by: Logic, now: "2026-12-20"}, []string{"a 20261120", "b 20261120", "c 20261120", "a_last 20261120"}},
		{"by data through paths alone", asked{specs: []capri.Spec{spec("a", capri.Day, writes(path)), spec("reader", capri.Day, reads("//dwd//orders/${yyyyMMdd-1d}/")), spec("child", capri.Day, parents("a"))},
			task: "a", nos: []capri.BatchNo{"20261120"}, by: Data, now: "2026-12-20"}, []string{"a 20261120", "reader 20261121"}},
		{"by logic through parents alone", asked{specs: []capri.Spec{spec("a", capri.Day, writes(path)), spec("reader", capri.Day, reads(path)), spec("child", capri.Day, parents("a"))},
			task: "a", nos: []capri.BatchNo{"20261120"}, by: Logic, now: "2026-12-20"}, []string{"a 20261120", "child 20261120"}},
		{"both, mixed along one way", asked{specs: []capri.Spec{spec("z", capri.Day, writes(path)), spec("y", capri.Day, reads(path)), spec("x", capri.Day, parents("y"))},
			task: "z", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-12-20"}, []string{"z 20261120", "y 20261120", "x 20261120"}},
		{"another flag in the same place is another datum", asked{specs: []capri.Spec{spec("a", capri.Day, writes(path)),
			spec("b", capri.Day, func(s *capri.Spec) { s.Inputs = []capri.Input{{Path: path, Flag: "_PARTITIONED"}} })},
			task: "a", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-12-20"}, []string{"a 20261120"}},
		{"a task that waits for itself is rerun until now", asked{specs: []capri.Spec{spec("a", capri.Day, before(1))},
			task: "a", nos: []capri.BatchNo{"20261117"}, by: Logic, now: "2026-11-20 00:01"}, []string{"a 20261117", "a 20261118", "a 20261119"}},
		{"what is never to be cascaded is not entered, and nothing behind it", asked{specs: []capri.Spec{spec("a", capri.Day), spec("b", capri.Day, parents("a"), never), spec("c", capri.Day, parents("b")), spec("d", capri.Day, parents("a"))},
			task: "a", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-12-20"}, []string{"a 20261120", "d 20261120"}},
		{"but may be asked for", asked{specs: []capri.Spec{spec("a", capri.Day, never, before(1)), spec("b", capri.Day, parents("a"))},
			task: "a", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-12-20"}, []string{"a 20261120", "b 20261120"}},
		{"what is disabled is listed and nothing behind it", asked{specs: []capri.Spec{spec("a", capri.Day), spec("b", capri.Day, parents("a"), off), spec("c", capri.Day, parents("b"))},
			task: "a", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-12-20"}, []string{"a 20261120", "b 20261120: the task is disabled"}},
		{"a child's batches are inside its validity", asked{specs: []capri.Spec{spec("a", capri.Day), spec("b", capri.Day, valid("2026-11-20", "2026-11-22"), func(s *capri.Spec) {
			s.Parents = []capri.Parent{{Task: "a", From: days(-9), To: days(0)}}
		})}, task: "a", nos: []capri.BatchNo{"20261116"}, by: Both, now: "2026-12-20"}, []string{"a 20261116", "b 20261119", "b 20261120"}},
		{"what was asked for outside of it is listed", asked{specs: []capri.Spec{spec("a", capri.Day, valid("2026-11-20", "")), spec("b", capri.Day, parents("a"))},
			task: "a", nos: []capri.BatchNo{"20261118", "20261119"}, by: Both, now: "2026-11-20 00:01"}, []string{"a 20261118: it is outside of the task's validity", "a 20261119", "b 20261119"}},
		{"and so is what is still to come", asked{specs: []capri.Spec{spec("a", capri.Day)}, task: "a", nos: []capri.BatchNo{"20261121"}, now: "2026-11-20"},
			[]string{"a 20261121: its mark is still to come"}},
		{"a path of no day is read by all of a task's days", asked{specs: []capri.Spec{spec("a", capri.Day, writes("/dim/x")), spec("b", capri.Day, reads("/dim/x"), valid("2026-11-18", ""))},
			task: "a", nos: []capri.BatchNo{"20261120"}, by: Data, now: "2026-11-21 09:00"}, []string{"a 20261120", "b 20261117", "b 20261118", "b 20261119", "b 20261120"}},
		{"a manual batch's data is data", asked{specs: []capri.Spec{spec("a", capri.Manual, writes(path)), spec("b", capri.Day, reads(path)), spec("c", capri.Manual, reads(path))},
			task: "a", nos: []capri.BatchNo{"20261120093000"}, by: Both, now: "2026-12-20"}, []string{"a 20261120093000", "b 20261120"}},
		{"a fire of a cron expression", asked{specs: []capri.Spec{spec("a", capri.Cron, func(s *capri.Spec) { s.Cron = "0 30 2 * * ?" }), spec("b", capri.Day, parents("a"))},
			task: "a", nos: []capri.BatchNo{"20261120023000"}, by: Both, now: "2026-12-20"}, []string{"a 20261120023000", "b 20261120"}},
		{"a time in the name of a host", asked{specs: []capri.Spec{spec("a", capri.Day, writes("hdfs://NN${dd}/x/${yyyyMM}")), spec("b", capri.Day, reads("HDFS://nn${dd}//x/${yyyyMM}"))},
			task: "a", nos: []capri.BatchNo{"20261120"}, by: Data, now: "2026-11-22"}, []string{"a 20261120", "b 20261120"}},
		{"a window of hours of the day after", asked{specs: []capri.Spec{spec("h", capri.Hour, writes("/h/${yyyyMMdd}/${HH}")), spec("d", capri.Day, func(s *capri.Spec) {
			s.Inputs = []capri.Input{{Path: "/h/${yyyyMMdd}/${HH}", Unit: capri.Hour, From: &capri.Offset{End: true, N: 3}, To: &capri.Offset{End: true, N: 3}}}
		})}, task: "h", nos: []capri.BatchNo{"2026112102"}, by: Data, now: "2026-12-20"}, []string{"h 2026112102", "d 20261120"}},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			items, err := tt.asked.reach(t)
			require.NoError(t, err)
			assert.Equal(t, tt.want, words(items))
		})
	}
}

func TestReach_says_why_and_after_what(t *testing.T) {
	items, err := asked{specs: []capri.Spec{
		spec("a", capri.Day, writes("/x/${yyyyMMdd}")),
		spec("b", capri.Day, parents("a"), reads("/x/${yyyyMMdd}")),
		spec("c", capri.Day, reads("/x/${yyyyMMdd}"), func(s *capri.Spec) { s.Outputs = []capri.Output{{Path: "/c/${yyyyMMdd}", Flag: capri.FlagNone}} }),
		spec("d", capri.Day, parents("b"), func(s *capri.Spec) { s.Inputs = []capri.Input{{Path: "/c/${yyyyMMdd}", Flag: capri.FlagNone}} }),
		spec("e", capri.Day, func(s *capri.Spec) { s.Inputs = []capri.Input{{Path: "/c/${yyyyMMdd}", Flag: capri.FlagNone}} }),
	}, task: "a", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-11-22"}.reach(t)
	require.NoError(t, err)
	got := map[string]string{}
	for _, it := range items {
		got[it.Task.Name] = fmt.Sprintf("%d %v %s", it.Depth, it.Before, it.Reason)
	}
	assert.Equal(t, map[string]string{
		"a": "0 [] asked for",
		"b": "1 [0] by logic of a 20261120",
		"c": "1 [0] by data of a 20261120 via /x/20261120/_SUCCESS",
		"d": "2 [1 2] by logic of b 20261120",
		"e": "2 [2] by data of c 20261120 via /c/20261120",
	}, got)
}

// A rerun by logic still makes a path before somebody reads it.
func TestReach_orders_by_the_edges_it_does_not_go_along(t *testing.T) {
	specs := []capri.Spec{spec("root", capri.Day), spec("a_reader", capri.Day, parents("root"), reads("/x/${yyyyMMdd}")), spec("z_maker", capri.Day, parents("root"), writes("/x/${yyyyMMdd}"))}
	items, err := asked{specs: specs, task: "root", nos: []capri.BatchNo{"20261120"}, by: Logic, now: "2026-11-22"}.reach(t)
	require.NoError(t, err)
	assert.Equal(t, []string{"root 20261120", "z_maker 20261120", "a_reader 20261120"}, words(items))
}

func TestReach_of_more_than_allowed_says_how_far_it_came(t *testing.T) {
	specs := []capri.Spec{spec("root", capri.Day), spec("agg", capri.Day, parents("root"), before(1)), spec("leaf", capri.Day, parents("root"))}
	_, err := asked{specs: specs, task: "root", nos: []capri.BatchNo{"20260101"}, by: Both, now: "2026-12-20", most: 50}.reach(t)
	require.ErrorIs(t, err, capri.ErrInvalid)
	for _, part := range []string{"at most 50 batches", "so far 50 of 3 tasks", "up to 49 steps away", "agg 20260218", "most are of task agg, 48 from 20260101 to 20260217", "Narrow the range", "cascade: false"} {
		assert.ErrorContains(t, err, part)
	}
	all, err := asked{specs: specs, task: "root", nos: []capri.BatchNo{"20260101"}, by: Both, now: "2026-12-20"}.reach(t)
	require.NoError(t, err)
	assert.Equal(t, 2+352, len(all)) // 1 January to 18 December
}

func TestReach_names_batches_that_wait_for_one_another(t *testing.T) {
	specs := []capri.Spec{spec("root", capri.Day), spec("a", capri.Day, parents("root"), reads("/b/${yyyyMMdd}"), writes("/a/${yyyyMMdd}")), spec("b", capri.Day, reads("/a/${yyyyMMdd}"), writes("/b/${yyyyMMdd}")),
		spec("c", capri.Day, parents("b"))}
	_, err := asked{specs: specs, task: "root", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-11-22"}.reach(t)
	require.ErrorIs(t, err, capri.ErrConflict)
	assert.ErrorContains(t, err, "a 20261120 waits for b 20261120, which waits for a 20261120")

	own, err := asked{specs: []capri.Spec{spec("own", capri.Day, reads("/o/${yyyyMMdd}"), writes("/o/${yyyyMMdd}"))}, task: "own", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-11-22"}.reach(t)
	require.NoError(t, err, "what a batch makes itself it need not wait for")
	assert.Len(t, own, 1)
}

// Whoever asks for a batch before a task's first makes it the first, and what comes after it waits for it.
func TestReach_of_what_is_before_a_first_mark(t *testing.T) {
	specs := []capri.Spec{spec("a", capri.Day), spec("b", capri.Day, parents("a")), spec("self", capri.Day, before(1))}
	items, err := asked{specs: specs, task: "a", nos: []capri.BatchNo{"20251230", "20251231"}, by: Both, now: "2026-01-20"}.reach(t)
	require.NoError(t, err)
	assert.Equal(t, []string{"a 20251230", "a 20251231", "b 20251231"}, words(items), "b's own first batch is of the 31st: a cascade makes no history")
	items, err = asked{specs: specs, task: "self", nos: []capri.BatchNo{"20251229"}, by: Both, now: "2026-01-01 12:00"}.reach(t)
	require.NoError(t, err)
	assert.Equal(t, []string{"self 20251229", "self 20251230", "self 20251231"}, words(items), "the 31st would wait for the 30th for ever")
}

func TestNew_keeps_what_is_broken_apart(t *testing.T) {
	w, err := newWorld("UTC", 0, spec("a", capri.Day), spec("b", capri.Day, parents("a")), spec("c", capri.Day, parents("a")), spec("d", capri.Day, parents("a")), spec("e", capri.Day, valid("soon", "")))
	require.NoError(t, err)
	w.task("b").Broken = "somebody wrote into the table"
	w.task("c").Inputs = []capri.Input{{Path: "/x/${HOME}"}}
	ref := w.refs[w.task("d").ID]
	ref.Period = capri.Week
	w.refs[ref.ID] = ref
	g := w.graph()
	var got []string
	for _, b := range g.Broken() {
		got = append(got, fmt.Sprintf("%s: %s", b.Task.Name, b.Err))
	}
	require.Len(t, got, 4)
	assert.Equal(t, "b: task b: somebody wrote into the table", got[0])
	assert.Contains(t, got[1], "inputs[0].path")
	assert.Contains(t, got[2], "was changed while")
	assert.Contains(t, got[3], "valid.from")

	day := w.c.Containing(capri.Day, at(t, w.c, "2026-11-20"))
	items, err := g.Reach([]Root{{w.task("a").ID, []capri.Interval{day}}}, Both, at(t, w.c, "2026-11-22"), 10)
	require.NoError(t, err)
	assert.Equal(t, []string{"a 20261120"}, words(items))
	_, err = g.Reach([]Root{{w.task("b").ID, []capri.Interval{day}}}, Both, at(t, w.c, "2026-11-22"), 10)
	assert.ErrorIs(t, err, capri.ErrConflict)
	_, err = g.Reach([]Root{{99, []capri.Interval{day}}}, Both, at(t, w.c, "2026-11-22"), 10)
	assert.ErrorIs(t, err, capri.ErrNotFound)
}

func TestKeep_cuts_the_ways_through_what_is_left_out(t *testing.T) {
	items, err := asked{specs: []capri.Spec{spec("a", capri.Day), spec("b", capri.Day, parents("a")), spec("c", capri.Day, parents("b")), spec("d", capri.Day, parents("a", "c"))},
		task: "a", nos: []capri.BatchNo{"20261120"}, by: Both, now: "2026-11-22"}.reach(t)
	require.NoError(t, err)
	kept := Keep(items, func(it *Item) bool { return it.Task.Name != "b" })
	assert.Equal(t, []string{"a 20261120", "c 20261120", "d 20261120"}, words(kept))
	assert.Equal(t, [][]int32{nil, nil, {0, 1}}, [][]int32{kept[0].Before, kept[1].Before, kept[2].Before})
	assert.Equal(t, []int32{1}, items[2].Before, "the plan it was taken from stays as it was")
}

func TestSort_puts_the_newest_first_where_nothing_is_waited_for(t *testing.T) {
	items, err := asked{specs: []capri.Spec{spec("a", capri.Day), spec("b", capri.Day, parents("a"))}, task: "a", nos: []capri.BatchNo{"20261118", "20261119", "20261120"}, by: Both, now: "2026-11-22"}.reach(t)
	require.NoError(t, err)
	newest, err := Sort(items, true)
	require.NoError(t, err)
	assert.Equal(t, []string{"a 20261120", "b 20261120", "a 20261119", "b 20261119", "a 20261118", "b 20261118"}, words(newest))
	oldest, err := Sort(newest, false)
	require.NoError(t, err)
	assert.Equal(t, words(items), words(oldest))
}

func TestParseBy(t *testing.T) {
	for _, by := range []By{0, Logic, Data, Both} {
		got, err := ParseBy(by.String())
		require.NoError(t, err)
		assert.Equal(t, by, got)
	}
	_, err := ParseBy("all")
	assert.ErrorIs(t, err, capri.ErrInvalid)
	none, err := ParseBy("")
	require.NoError(t, err)
	assert.Zero(t, none)
}
