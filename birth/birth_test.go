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
