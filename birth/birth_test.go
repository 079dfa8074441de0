package birth

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/definition"
	"capri/lineage"
)

func task(name string, p capri.Period, change func(*capri.Spec)) *capri.Task {
	spec := definition.Default()
	spec.Name, spec.Period, spec.Job.Command = name, p, "true"
	if change != nil {
		change(&spec)
	}
	return &capri.Task{ID: 7, Version: 3, Spec: spec}
}

func at(zone *time.Location, text string) capri.Instant {
	t, err := time.ParseInLocation("2006-01-02 15:04", text, zone)
	if err != nil {
		panic(err)
	}
	return capri.InstantOf(t)
}

func TestBatch(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	c := calendar.New(newYork)
	spring, err := c.Parse(capri.Day, "20260307") // its mark is on the day that has 23 hours
	require.NoError(t, err)
	now := at(newYork, "2026-03-08 00:01")

	for _, tt := range []struct {
		sentence string
		origin   capri.Origin
		change   func(*capri.Spec)
		check    func(*testing.T, *capri.NewBatch)
	}{
		{"is scheduled at its mark and waits for nothing", capri.OriginMark, nil, func(t *testing.T, b *capri.NewBatch) {
			assert.Equal(t, spring.Mark, b.ScheduleTime)
			assert.Equal(t, now, b.CreateTime)
			assert.Equal(t, capri.BatchNo("20260307"), b.BatchNo)
			assert.Equal(t, []int{0, 5, 1, 1, 0}, []int{b.Unmet, b.Priority, b.Slots, b.Concurrency, b.QualityState})
			assert.Zero(t, b.NotBefore)
			assert.Zero(t, b.SkipAt)
			assert.Equal(t, 3, b.TaskVersion)
			assert.True(t, b.Latest)
		}},
		{"of an execution is scheduled now", capri.OriginExecute, nil, func(t *testing.T, b *capri.NewBatch) {
			assert.Equal(t, now, b.ScheduleTime)
			assert.Equal(t, spring.Start, b.DataStart)
		}},
		{"starts at ten by the clock though the night was short", capri.OriginMark,
			func(s *capri.Spec) { s.Limits.BeginMinutes = 599 },
			func(t *testing.T, b *capri.NewBatch) { assert.Equal(t, at(newYork, "2026-03-08 10:00"), b.NotBefore) }},
		{"begin_minutes 0 is the mark itself", capri.OriginMark,
			func(s *capri.Spec) { s.Limits.BeginMinutes = 0 },
			func(t *testing.T, b *capri.NewBatch) { assert.Equal(t, spring.Mark, b.NotBefore) }},
		{"is skipped some elapsed minutes after its mark", capri.OriginCatchUp,
			func(s *capri.Spec) { s.Limits.SkipAfterMinutes = 300 },
			func(t *testing.T, b *capri.NewBatch) { assert.Equal(t, spring.Mark.Add(5*time.Hour), b.SkipAt) }},
		{"of a cold start is never skipped for being late", capri.OriginColdStart,
			func(s *capri.Spec) { s.Limits.SkipAfterMinutes = 300 },
			func(t *testing.T, b *capri.NewBatch) { assert.Zero(t, b.SkipAt) }},
		{"with a quality gate is to be asked about", capri.OriginMark,
			func(s *capri.Spec) { s.QualityGate = true },
			func(t *testing.T, b *capri.NewBatch) { assert.Equal(t, 1, b.QualityState) }},
		{"counts its groups of conditions", capri.OriginMark, func(s *capri.Spec) {
			s.Inputs = []capri.Input{{Path: "/in/${yyyyMMdd}"}, {Path: "/in/${yyyyMMdd}/"}}
			s.ThirdParty = []capri.ThirdParty{{Code: "closed"}}
			s.Parents = []capri.Parent{{Task: "hours", TaskID: 1}}
		}, func(t *testing.T, b *capri.NewBatch) {
			assert.Equal(t, 3, b.Unmet) // one path, one code, one group of 24 hours
			assert.Len(t, b.Parents, 24)
		}},
		{"notes what it does not wait for", capri.OriginMark, func(s *capri.Spec) {
			s.Parents = []capri.Parent{{Task: "young", TaskID: 2}}
		}, func(t *testing.T, b *capri.NewBatch) {
			assert.Zero(t, b.Unmet)
			assert.Contains(t, b.Message, "not waited for 20260307")
		}},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			m := New(c, map[capri.TaskID]lineage.Ref{
				1: {ID: 1, Name: "hours", Period: capri.Hour},
				2: {ID: 2, Name: "young", Period: capri.Day, First: now + 1000},
			})
			compiled, err := Compile(task("child", capri.Day, tt.change))
			require.NoError(t, err)
			b, err := m.Batch(compiled, spring, tt.origin, 0, now)
			require.NoError(t, err)
			tt.check(t, b)
		})
	}
}

func TestDeadlines_count_elapsed_minutes_from_the_mark_or_from_now(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	c := calendar.New(newYork)
	spring, err := c.Parse(capri.Day, "20260307")
	require.NoError(t, err)
	made := at(newYork, "2026-03-08 00:31") // its mark was at 00:01; 02:00 to 03:00 is left out
	m := New(c, nil)
	limits := func(s *capri.Spec) {
		s.Limits.DependencyTimeoutMinutes, s.Limits.OutputTimeoutMinutes, s.Limits.ExpireAtDayEnd = 120, 300, true
	}
	for origin, want := range map[capri.Origin][2]string{
		capri.OriginMark:      {"2026-03-08 03:01", "2026-03-08 06:01"},
		capri.OriginCatchUp:   {"2026-03-08 03:31", "2026-03-08 06:31"},
		capri.OriginExecute:   {"2026-03-08 03:31", "2026-03-08 06:31"},
		capri.OriginRerun:     {"2026-03-08 03:31", "2026-03-08 06:31"},
		capri.OriginColdStart: {"2026-03-08 03:31", "2026-03-08 06:31"},
	} {
		compiled, err := Compile(task("child", capri.Day, limits))
		require.NoError(t, err)
		b, err := m.Batch(compiled, spring, origin, 0, made)
		require.NoError(t, err)
		assert.Equal(t, []capri.Deadline{{Kind: capri.DependencyDeadline, Due: at(newYork, want[0])}, {Kind: capri.OutputDeadline, Due: at(newYork, want[1])},
			{Kind: capri.DayEndDeadline, Due: at(newYork, "2026-03-09 00:00")}}, b.Deadlines, origin.String())
	}
	compiled, err := Compile(task("child", capri.Day, nil))
	require.NoError(t, err)
	b, err := m.Batch(compiled, spring, capri.OriginMark, 0, made)
	require.NoError(t, err)
	assert.Nil(t, b.Deadlines, "without limits there are none")
}

func TestTheEndOfTheDay_is_the_first_midnight_after_the_batch_was_made(t *testing.T) {
	for _, tt := range []struct{ zone, made, end string }{
		{"UTC", "2026-11-20T00:01:00Z", "2026-11-21T00:00:00Z"},
		{"UTC", "2026-11-20T23:59:59Z", "2026-11-21T00:00:00Z"},
		{"UTC", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"}, // midnight itself begins a day
		{"Asia/Shanghai", "2026-11-20T15:59:00Z", "2026-11-20T16:00:00Z"},
		{"America/New_York", "2026-11-01T04:01:00Z", "2026-11-02T05:00:00Z"},  // 25 hours
		{"America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T03:00:00Z"}, // midnight does not exist: it was 01:00 at once
		{"America/Havana", "2026-11-01T03:59:00Z", "2026-11-01T04:00:00Z"},    // 00:00 comes, and
		{"America/Havana", "2026-11-01T05:30:00Z", "2026-11-02T05:00:00Z"},    // the second 00:30 belongs to the day that has begun
		{"Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z"},      // the 30th never was: the 31st begins
	} {
		zone, err := time.LoadLocation(tt.zone)
		require.NoError(t, err)
		c := calendar.New(zone)
		made, err := time.Parse(time.RFC3339, tt.made)
		require.NoError(t, err)
		compiled, err := Compile(task("child", capri.Day, func(s *capri.Spec) { s.Limits.ExpireAtDayEnd = true }))
		require.NoError(t, err)
		b, err := New(c, nil).Batch(compiled, c.EndedBy(capri.Day, capri.InstantOf(made)), capri.OriginMark, 0, capri.InstantOf(made))
		require.NoError(t, err)
		require.Len(t, b.Deadlines, 1)
		assert.Equal(t, tt.end, b.Deadlines[0].Due.In(time.UTC).Format(time.RFC3339), "%s, made at %s", tt.zone, tt.made)
	}
}

func TestBatch_of_a_task_whose_parent_is_gone_fails(t *testing.T) {
	c := calendar.New(time.UTC)
	compiled, err := Compile(task("child", capri.Day, func(s *capri.Spec) { s.Parents = []capri.Parent{{Task: "gone", TaskID: 9}} }))
	require.NoError(t, err)
	_, err = New(c, nil).Batch(compiled, c.EndedBy(capri.Day, at(time.UTC, "2026-03-08 00:01")), capri.OriginMark, 0, 1)
	assert.ErrorContains(t, err, "gone")
}

// 100,000 batches appear at one mark: making them must not be what takes the time.
func BenchmarkBatch(b *testing.B) {
	c := calendar.New(time.UTC)
	m := New(c, map[capri.TaskID]lineage.Ref{1: {ID: 1, Name: "p", Period: capri.Day}, 2: {ID: 2, Name: "q", Period: capri.Day}})
	compiled, err := Compile(task("child", capri.Day, func(s *capri.Spec) {
		s.Inputs = []capri.Input{{Path: "hdfs://nn/warehouse/ods/orders/${yyyyMMdd}"}}
		s.Parents = []capri.Parent{{Task: "p", TaskID: 1}, {Task: "q", TaskID: 2}}
	}))
	if err != nil {
		b.Fatal(err)
	}
	iv := c.EndedBy(capri.Day, at(time.UTC, "2026-11-21 00:01"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Batch(compiled, iv, capri.OriginMark, 0, iv.Mark); err != nil {
			b.Fatal(err)
		}
	}
}
