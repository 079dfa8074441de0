package lineage

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"capri"
	"capri/calendar"
	"capri/cron"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func in(t testing.TB, zone string) calendar.Calendar {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	return calendar.New(loc)
}

func at(t testing.TB, c calendar.Calendar, text string) capri.Instant {
	t.Helper()
	i, err := c.ParseTime(text)
	require.NoError(t, err)
	return i
}

// offset reads "end+3"; "" is an edge that is left out.
func offset(t testing.TB, text string) *capri.Offset {
	t.Helper()
	if text == "" {
		return nil
	}
	o, err := capri.ParseOffset(text)
	require.NoError(t, err)
	return &o
}

// period reads a period's name, or else a cron expression.
func period(t testing.TB, text string) (capri.Period, *cron.Expression, string) {
	t.Helper()
	if strings.Contains(text, " ") {
		e, err := cron.Parse(text)
		require.NoError(t, err)
		return capri.Cron, e, text
	}
	p, err := capri.ParsePeriod(text)
	require.NoError(t, err)
	return p, nil, ""
}

// interval is the one with that batch_no.
func interval(t testing.TB, c calendar.Calendar, p capri.Period, e *cron.Expression, no string) capri.Interval {
	t.Helper()
	iv, err := c.Parse(p, capri.BatchNo(no))
	require.NoError(t, err)
	if e != nil {
		return c.CronInterval(e, iv.Mark)
	}
	return iv
}

func TestParentConditions(t *testing.T) {
	const nightly, halfHourly, once = "0 30 2 * * ?", "0 0/30 * * * ?", "0 0 0 1 1 ? 2027"
	for _, tt := range []struct {
		name     string
		zone     string
		child    string // period or expression
		batch    string
		parent   string
		from, to string
		policy   capri.Policy
		want     string // "a b c", or "first..last (n)"
	}{
		{"the same period is the same interval", "UTC", "day", "20261120", "day", "", "", "", "20261120"},
		{"a day waits for its 24 hours", "UTC", "day", "20261120", "hour", "", "", "", "2026112000..2026112023 (24)"},
		{"for 23 in spring", "America/New_York", "day", "20260308", "hour", "", "", "", "2026030800..2026030823 (23)"},
		{"for 25 in autumn", "America/New_York", "day", "20261101", "hour", "", "", "", "2026110100..2026110123 (25)"},
		{"a month waits for its days", "UTC", "month", "202602", "day", "", "", "", "20260201..20260228 (28)"},
		{"a month waits for the weeks wholly inside", "UTC", "month", "202611", "week", "", "", "", "2026W45 2026W46 2026W47 2026W48"},
		{"a week across two months waits for its days", "UTC", "week", "2026W49", "day", "", "", "", "20261130..20261206 (7)"},
		{"a week waits for the newest month", "UTC", "week", "2026W49", "month", "", "", "", "202611"},
		{"which may end with it", "UTC", "day", "20261130", "month", "", "", "", "202611"},
		{"an hour waits for the newest day", "UTC", "hour", "2026112009", "day", "", "", "", "20261119"},
		{"the last hour for its own day", "UTC", "hour", "2026112023", "day", "", "", "", "20261120"},
		{"Apia's missing day is not waited for", "Pacific/Apia", "month", "201112", "day", "", "", "", "20111201..20111231 (30)"},

		{"ANYONE takes all and asks for one", "UTC", "week", "2026W49", "day", "", "", capri.Anyone, "20261130..20261206 (7)"},
		{"LASTONE takes the newest", "UTC", "week", "2026W49", "day", "", "", capri.LastOne, "20261206"},
		{"LASTONE of a window", "UTC", "hour", "2026112009", "hour", "-23", "0", capri.LastOne, "2026112009"},

		{"the last 24 hours", "UTC", "hour", "2026112009", "hour", "-23", "0", "", "2026111910..2026112009 (24)"},
		{"an hour of the next day", "UTC", "day", "20261120", "hour", "end+3", "end+3", "", "2026112102"},
		{"the first hour after", "UTC", "day", "20261120", "hour", "end+1", "end+1", "", "2026112100"},
		{"a day and two hours", "UTC", "day", "20261120", "hour", "0", "end+2", "", "2026112000..2026112101 (26)"},
		{"the interval before", "UTC", "day", "20261120", "day", "-1", "-1", "", "20261119"},
		{"the coarser before the newest", "UTC", "day", "20261120", "month", "end-1", "end-1", "", "202609"},
		{"the coarser that holds the start", "UTC", "day", "20261120", "month", "0", "0", "", "202611"},
		{"day 79 from the month's first", "UTC", "month", "202606", "day", "79", "79", "", "20260819"},
		{"hour 240 after the month", "UTC", "month", "202605", "hour", "end+240", "end+240", "", "2026061023"},
		{"only from: to the newest ended", "UTC", "day", "20261120", "hour", "-1", "", "", "2026111923..2026112023 (25)"},
		{"only to: from the data start", "UTC", "day", "20261120", "hour", "", "1", "", "2026112000 2026112001"},
		{"a window that is empty here", "UTC", "hour", "2026112009", "day", "0", "end", "", ""},
		{"a window is counted in hours that the clock shows", "America/New_York", "hour", "2026110103", "hour", "-3", "0", "",
			"2026110101-0400 2026110101-0500 2026110102 2026110103"},

		{"a day waits for the fires in it, its end included", "UTC", "day", "20261120", "0 0 0,12 * * ?", "", "", "", "20261120120000 20261121000000"},
		{"a fire at the day's start is the day before's", "UTC", "day", "20261120", nightly, "", "", "", "20261120023000"},
		{"without a fire inside, the newest", "UTC", "hour", "2026112009", nightly, "", "", "", "20261120023000"},
		{"a cron child waits for what ends within its interval", "UTC", nightly, "20261120023000", "hour", "", "", "", "2026111902..2026112001 (24)"},
		{"also for a day", "UTC", nightly, "20261120023000", "day", "", "", "", "20261119"},
		{"also for other fires", "UTC", nightly, "20261120023000", "0 0 9 * * ?", "", "", "", "20261119090000"},
		{"also for the fires of the same expression", "UTC", nightly, "20261120023000", nightly, "", "", "", "20261120023000"},
		{"often enough, for the newest", "UTC", halfHourly, "20261120093000", "day", "", "", "", "20261119"},
		{"fires by a window", "UTC", "day", "20261120", nightly, "end-1", "end", "", "20261119023000 20261120023000"},
		{"the fire that ends the interval that holds the start", "UTC", "day", "20261120", nightly, "0", "0", "", "20261120023000"},
		{"the earlier fire of itself", "UTC", nightly, "20261120023000", nightly, "-1", "-1", "", "20261119023000"},
		{"a parent that has not fired yet", "UTC", "day", "20261120", once, "", "", "", ""},
		{"nor by a window", "UTC", "day", "20261120", once, "end-1", "end", "", ""},
		{"a parent that fired once stays the newest", "UTC", "day", "20281120", once, "", "", "", "20270101000000"},
		{"a window is cut to the fires there are", "UTC", "day", "20281120", once, "end-3", "end+3", "", "20270101000000"},
		{"and is empty beyond them", "UTC", "day", "20281120", once, "end-3", "end-1", "", ""},
		{"nothing holds the start after the last fire", "UTC", "day", "20281120", once, "0", "0", "", ""},
		{"the first of all fires has none before it", "UTC", once, "20270101000000", once, "-1", "-1", "", ""},
		{"and is its own same", "UTC", once, "20270101000000", once, "0", "0", "", "20270101000000"},
		{"a manual batch waits for the newest hour", "UTC", "manual", "20261120093000", "hour", "", "", "", "2026112008"},
		{"and for the newest day", "UTC", "manual", "20261120093000", "day", "", "", "", "20261119"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := in(t, tt.zone)
			childPeriod, childCron, _ := period(t, tt.child)
			parentPeriod, parentCron, _ := period(t, tt.parent)
			task := &capri.Task{Spec: capri.Spec{Name: "child", Period: childPeriod, Parents: []capri.Parent{{
				Task: "parent", TaskID: 7, Policy: tt.policy, From: offset(t, tt.from), To: offset(t, tt.to)}}}}
			compiled, err := Compile(task)
			require.NoError(t, err)
			parent := Ref{ID: 7, Name: "parent", Period: parentPeriod, Cron: parentCron}
			iv := interval(t, c, childPeriod, childCron, tt.batch)
			got, err := Conditions(c, compiled, iv, func(capri.TaskID) (Ref, bool) { return parent, true })
			require.NoError(t, err)

			var nos []string
			for _, p := range got.Parents {
				nos = append(nos, string(p.BatchNo))
				assert.Equal(t, capri.TaskID(7), p.TaskID)
				assert.Equal(t, tt.policy == capri.Anyone, p.Any)
			}
			if strings.Contains(tt.want, "..") {
				require.NotEmpty(t, nos)
				assert.Equal(t, tt.want, nos[0]+".."+nos[len(nos)-1]+fmt.Sprintf(" (%d)", len(nos)))
			} else {
				assert.Equal(t, tt.want, strings.Join(nos, " "))
			}
			assert.Equal(t, len(nos) == 0, len(got.Notes) == 1, "what waits for nothing says so: %v", got.Notes)

			var listed []string
			for _, p := range parentsOf(c, Ref{Period: childPeriod}, iv, parent, task.Parents[0]) {
				listed = append(listed, string(p.BatchNo))
			}
			assert.Equal(t, nos, listed, "Parents says the same")
		})
	}
}

func TestGroupsAndFirstMarks(t *testing.T) {
	c := in(t, "Asia/Shanghai")
	refs := map[capri.TaskID]Ref{
		1: {ID: 1, Name: "old", Period: capri.Hour},
		2: {ID: 2, Name: "younger", Period: capri.Day, First: at(t, c, "2026-11-21 00:02")},
		3: {ID: 3, Name: "new", Period: capri.Hour, First: at(t, c, "2026-11-20 22:01")},
		4: {ID: 4, Name: "asked", Period: capri.Manual},
	}
	lookup := func(id capri.TaskID) (Ref, bool) { r, ok := refs[id]; return r, ok }
	task := &capri.Task{Spec: capri.Spec{Name: "child", Period: capri.Day, Parents: []capri.Parent{
		{Task: "old", TaskID: 1, From: offset(t, "0"), To: offset(t, "1")},
		{Task: "younger", TaskID: 2},
		{Task: "new", TaskID: 3, Policy: capri.Anyone},
		{Task: "old", TaskID: 1, Policy: capri.LastOne},
	}}}
	compiled, err := Compile(task)
	require.NoError(t, err)
	iv := interval(t, c, capri.Day, nil, "20261120")
	got, err := Conditions(c, compiled, iv, lookup)
	require.NoError(t, err)
	assert.Equal(t, []capri.ParentCondition{
		{Group: 0, TaskID: 1, BatchNo: "2026112000"},
		{Group: 0, TaskID: 1, BatchNo: "2026112001"},
		// The day's mark 00:01 was before younger's first: its group is gone, and the next takes the number.
		{Group: 1, Any: true, TaskID: 3, BatchNo: "2026112021"},
		{Group: 1, Any: true, TaskID: 3, BatchNo: "2026112022"},
		{Group: 1, Any: true, TaskID: 3, BatchNo: "2026112023"},
		{Group: 2, TaskID: 1, BatchNo: "2026112023"},
	}, got.Parents)
	assert.Equal(t, 3, got.Groups())
	assert.Equal(t, []string{
		"parents[1] younger: not waited for 20261120, before its first mark 2026-11-21T00:02:00+08:00",
		"parents[2] new: not waited for 21 intervals, 2026112000 to 2026112020, before its first mark 2026-11-20T22:01:00+08:00",
	}, got.Notes)

	task.Parents = []capri.Parent{{Task: "gone", TaskID: 9}}
	compiled, err = Compile(task)
	require.NoError(t, err)
	_, err = Conditions(c, compiled, iv, lookup)
	assert.ErrorIs(t, err, capri.ErrNotFound)
	assert.ErrorContains(t, err, "parents[0] gone of task child")

	task.Parents = []capri.Parent{{Task: "asked", TaskID: 4}}
	compiled, err = Compile(task)
	require.NoError(t, err)
	_, err = Conditions(c, compiled, iv, lookup)
	assert.ErrorIs(t, err, capri.ErrInvalid, "a manual task cannot be waited for")
}

func TestPathConditions(t *testing.T) {
	c := in(t, "UTC")
	task := &capri.Task{Spec: capri.Spec{Name: "child", Period: capri.Day,
		Inputs: []capri.Input{
			{Path: "HDFS://NN/ods/${yyyyMMdd}/"},
			{Path: "hdfs://nn/ods//${yyyyMMdd}"},                      // the same, written otherwise
			{Path: "hdfs://nn/ods/${yyyyMMdd}", Flag: "_PARTITIONED"}, // another datum at the same place
			{Path: "/h/${yyyyMMdd}/${HH}", Flag: "none", Unit: capri.Hour, From: offset(t, "0"), To: offset(t, "2")},
			{Path: "/d/${yyyyMMdd}", Unit: capri.Hour, From: offset(t, "0"), To: offset(t, "end+1")}, // 25 instances, 2 paths
			{Path: "/m/${yyyyMM}", Unit: capri.Month},                                                // the newest that has ended
			{Path: "/y/${yyyyMMdd}", From: offset(t, "-1"), To: offset(t, "-1")},                     // in the task's own period
			{Path: "/s/${yyyyMMdd}/${schedule:yyyyMMddHHmm}", Unit: capri.Hour, From: offset(t, "1"), To: offset(t, "1")},
		},
		Outputs:    []capri.Output{{Path: "/out/${yyyyMMdd}"}, {Path: "/out/${yyyyMMdd}/"}, {Path: "/log/${yyyy}", Flag: "none"}},
		ThirdParty: []capri.ThirdParty{{Code: "payments_closed"}, {Code: "payments_closed"}, {Code: "rates"}},
	}}
	compiled, err := Compile(task)
	require.NoError(t, err)
	got, err := Conditions(c, compiled, interval(t, c, capri.Day, nil, "20261120"), nil)
	require.NoError(t, err)
	assert.Equal(t, []capri.PathCondition{
		{Path: "hdfs://nn/ods/20261120", Flag: "_SUCCESS"},
		{Path: "hdfs://nn/ods/20261120", Flag: "_PARTITIONED"},
		{Path: "/h/20261120/00"}, {Path: "/h/20261120/01"}, {Path: "/h/20261120/02"},
		{Path: "/d/20261120", Flag: "_SUCCESS"}, {Path: "/d/20261121", Flag: "_SUCCESS"},
		{Path: "/m/202610", Flag: "_SUCCESS"},
		{Path: "/y/20261119", Flag: "_SUCCESS"},
		{Path: "/s/20261120/202611210001", Flag: "_SUCCESS"},
	}, got.Inputs)
	assert.Equal(t, []capri.PathCondition{{Path: "/out/20261120", Flag: "_SUCCESS"}, {Path: "/log/2026"}}, got.Outputs)
	assert.Equal(t, []capri.ThirdPartyCondition{
		{Code: "payments_closed", Period: capri.Day, BatchNo: "20261120"}, {Code: "rates", Period: capri.Day, BatchNo: "20261120"}}, got.ThirdParty)
	assert.Equal(t, 12, got.Groups())
	assert.Empty(t, got.Notes)
}

func TestManyEqualPathsAreOneConditionEach(t *testing.T) {
	c := in(t, "UTC")
	task := &capri.Task{Spec: capri.Spec{Name: "child", Period: capri.Month, Inputs: []capri.Input{
		{Path: "/d/${yyyyMMdd}", Unit: capri.Hour, From: offset(t, "0"), To: offset(t, "end")},
		{Path: "/d/${yyyyMMdd}", Unit: capri.Day, From: offset(t, "0"), To: offset(t, "end")},
	}}}
	compiled, err := Compile(task)
	require.NoError(t, err)
	got, err := Conditions(c, compiled, interval(t, c, capri.Month, nil, "202611"), nil)
	require.NoError(t, err)
	assert.Len(t, got.Inputs, 30)
}

func TestCompileNamesWhatIsWrong(t *testing.T) {
	_, err := Compile(&capri.Task{Spec: capri.Spec{Name: "child", Period: capri.Cron,
		Inputs: []capri.Input{
			{Path: "/a/${HOME}"},
			{Path: "/a/../b"},
			{Path: "/a", From: offset(t, "0")},
			{Path: "/a", Unit: capri.Hour, From: offset(t, "1"), To: offset(t, "0")},
			{Path: "/a", Unit: capri.Hour, From: offset(t, "-20000"), To: offset(t, "end")},
		},
		Outputs:    []capri.Output{{Path: ""}},
		ThirdParty: []capri.ThirdParty{{}},
		Parents:    []capri.Parent{{Task: "p", Policy: "SOME"}, {Task: "p", From: offset(t, "end"), To: offset(t, "end-1")}},
	}})
	require.ErrorIs(t, err, capri.ErrInvalid)
	for i, want := range []string{
		"inputs[0].path: \"${HOME}\"", "inputs[1].path: \"/a/../b\"", "inputs[2].unit: \"cron\"", "inputs[3].from: \"1…0\"",
		"inputs[4].from: \"-20000…end\"", "outputs[0].path: want", "third_party[0].code: want", "parents[0].policy: \"SOME\"",
		"parents[1].from: \"end…end-1\"",
	} {
		assert.Contains(t, strings.Split(err.Error(), "\n")[i], want)
	}
}

func TestWarnings(t *testing.T) {
	compiled, err := Compile(&capri.Task{Spec: capri.Spec{Name: "child", Period: capri.Day,
		Inputs: []capri.Input{
			{Path: "/h/${yyyyMMddHH}", Unit: capri.Hour, From: offset(t, "0"), To: offset(t, "end")},
			{Path: "/h/${yyyyMMddHHZ}", Unit: capri.Hour, From: offset(t, "0"), To: offset(t, "end")},
		},
		Outputs: []capri.Output{{Path: "/d/${yyyyMMddHH}"}}, // a day's path: its hour is always 00
	}})
	require.NoError(t, err)
	c := in(t, "America/New_York")
	got := compiled.Warnings(c, at(t, c, "2026-06-01"))
	require.Len(t, got, 1)
	assert.Contains(t, got[0], `inputs[0].path: "/h/${yyyyMMddHH}"`)
	assert.Empty(t, compiled.Warnings(in(t, "Asia/Shanghai"), at(t, c, "2026-06-01")))
}
