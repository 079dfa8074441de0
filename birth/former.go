package birth

import (
	"context"

	"capri"
	"capri/sql/store"
)

// Former finds the output paths of archived runs that new ones take the places of: who read them waits again. Their rows
// are gone, but they follow from the version of the definition. It keeps what it has read.
type Former struct {
	store    *store.Store
	maker    *Maker
	compiled map[store.VersionKey]*Task
}

// NewFormer looks versions up in s.
func NewFormer(s *store.Store, m *Maker) *Former {
	return &Former{s, m, map[store.VersionKey]*Task{}}
}

// Outputs are those of one run; none where it is not archived, or where its version cannot be read: of such a one there are
// none that anybody could wait for.
func (f *Former) Outputs(ctx context.Context, old capri.Batch) ([]capri.PathCondition, error) {
	if !old.Archived {
		return nil, nil
	}
	key := store.VersionKey{ID: old.TaskID, Version: old.TaskVersion}
	task, known := f.compiled[key]
	if !known {
		t, err := f.store.TaskVersion(ctx, key.ID, key.Version)
		if err != nil {
			return nil, err
		}
		outputs := *t
		outputs.Inputs, outputs.Parents, outputs.ThirdParty = nil, nil, nil
		task, _ = Compile(&outputs)
		f.compiled[key] = task
	}
	if task == nil {
		return nil, nil
	}
	c, err := f.maker.Conditions(task, f.maker.IntervalOf(old))
	return c.Outputs, err
}

// IntervalOf is a batch's interval. An execution is scheduled when it was asked for, so the mark is asked of the
// calendar.
func (m *Maker) IntervalOf(b capri.Batch) capri.Interval {
	iv := capri.Interval{BatchNo: b.BatchNo, Start: b.DataStart, End: b.DataEnd, Mark: b.DataEnd}
	if b.Period.Calendar() {
		iv.Mark = b.ScheduleTime
		if whole, err := m.c.Parse(b.Period, b.BatchNo); err == nil {
			iv.Mark = whole.Mark
		}
	}
	return iv
}
