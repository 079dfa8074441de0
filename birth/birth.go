// Package birth makes a batch of a task and a data interval: the one place that fills in what a batch keeps of
// its task, so that generation, executions and cold starts cannot make different ones. It is pure; whoever
// calls it inserts what it made.
//
//	task ──Compile──▶ *Task ─┐
//	                         ├─ Maker.Batch ──▶ *capri.NewBatch (id, conditions' state: the store's)
//	interval, origin, now ───┘
package birth

import (
	"strings"
	"time"

	"capri"
	"capri/calendar"
	"capri/lineage"
)

// Task is a task ready to have batches: read once, used for each of its intervals. It never changes and may be
// shared.
type Task struct {
	*capri.Task
	compiled *lineage.Compiled
}

// Compile reads a task's templates and windows.
func Compile(t *capri.Task) (*Task, error) {
	if t.Broken != "" {
		return nil, capri.Conflict("task %s: %s", t.Name, t.Broken)
	}
	c, err := lineage.Compile(t)
	if err != nil {
		return nil, err
	}
	return &Task{Task: t, compiled: c}, nil
}

// Maker makes batches against one state of the definitions. It never changes and may be shared.
type Maker struct {
	c    calendar.Calendar
	refs map[capri.TaskID]lineage.Ref
}

// New takes what must be known of every task that may be a parent.
func New(c calendar.Calendar, refs map[capri.TaskID]lineage.Ref) *Maker {
	return &Maker{c: c, refs: refs}
}

// Batch makes the batch of t for iv, waiting, with its conditions unmet; now is when it is made. An execution
// is scheduled now, every other batch at its interval's mark.
func (m *Maker) Batch(t *Task, iv capri.Interval, origin capri.Origin, runNo int, now capri.Instant) (*capri.NewBatch, error) {
	conditions, err := m.Conditions(t, iv)
	if err != nil {
		return nil, err
	}
	b := &capri.NewBatch{Conditions: conditions, Notifies: len(t.Alert.NotifyOn) > 0, Batch: capri.Batch{
		TaskID: t.ID, TaskVersion: t.Version, Period: t.Period, BatchNo: iv.BatchNo, RunNo: runNo, Latest: true, Origin: origin,
		ScheduleTime: iv.Mark, DataStart: iv.Start, DataEnd: iv.End, CreateTime: now,
		State: capri.Waiting, Unmet: conditions.Groups(),
		Priority: t.Priority, Slots: t.Worker.Slots, MemoryMB: t.Worker.MemoryMB, Concurrency: t.Limits.Concurrency,
		Pool: t.Worker.Pool, Strategy: t.Worker.Strategy, Nodes: t.Worker.Nodes, Account: t.Job.Account,
		Message: message(conditions.Notes),
	}}
	if origin == capri.OriginExecute {
		b.ScheduleTime = now
	}
	if t.Limits.BeginMinutes >= 0 {
		b.NotBefore = m.c.EarliestStart(t.Period, iv, t.Limits.BeginMinutes)
	}
	if t.QualityGate {
		b.QualityState = 1
	}
	// Who asks for a batch by hand wants it however late it is.
	if skip := t.Limits.SkipAfterMinutes; skip > 0 && (origin == capri.OriginMark || origin == capri.OriginCatchUp) {
		b.SkipAt = iv.Mark.Add(time.Duration(skip) * time.Minute)
	}
	b.Deadlines = m.deadlines(t.Limits, &b.Batch)
	return b, nil
}

// deadlines are what the limits come to; without limits there are none and nothing is allocated. What is made late or
// by hand counts from now: counted from its mark it would be late at birth.
func (m *Maker) deadlines(l capri.Limits, b *capri.Batch) []capri.Deadline {
	from := b.CreateTime
	if b.Origin == capri.OriginMark {
		from = b.ScheduleTime
	}
	var all []capri.Deadline
	after := func(kind capri.DeadlineKind, minutes int) {
		if minutes > 0 {
			all = append(all, capri.Deadline{Kind: kind, Due: from.Add(time.Duration(minutes) * time.Minute)})
		}
	}
	after(capri.DependencyDeadline, l.DependencyTimeoutMinutes)
	after(capri.OutputDeadline, l.OutputTimeoutMinutes)
	if l.ExpireAtDayEnd {
		// The end of the calendar's day and not 24 hours on: midnight may be 23 hours away, or not exist.
		all = append(all, capri.Deadline{Kind: capri.DayEndDeadline, Due: m.c.Containing(capri.Day, b.CreateTime).End})
	}
	return all
}

// Conditions makes what a batch of t for iv waits for, for a batch that exists already and whose task was edited.
func (m *Maker) Conditions(t *Task, iv capri.Interval) (capri.Conditions, error) {
	return lineage.Conditions(m.c, t.compiled, iv, m.ref)
}

func (m *Maker) ref(id capri.TaskID) (lineage.Ref, bool) {
	r, ok := m.refs[id]
	return r, ok
}

// message is what people see of the batch until something happens to it.
func message(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	const longest = 1000 // the column's
	text := []rune(strings.Join(notes, "; "))
	if len(text) > longest {
		text = append(text[:longest-1], '…')
	}
	return string(text)
}
