package action

import (
	"errors"
	"fmt"
	"slices"

	"capri"
	"capri/birth"
	"capri/cascade"
)

// What a cold start and a rerun have in common: tasks × the intervals of a range.

// Which batches of a range are meant.
const (
	onlyMissing = "missing"
	onlyAll     = "all"
	onlyFailed  = "failed"
)

func checkOnly(only string) error {
	if !slices.Contains([]string{"", onlyMissing, onlyAll, onlyFailed}, only) {
		return capri.Invalid("only", only, "missing, all or failed")
	}
	return nil
}

// taskInterval is one batch_no of a task.
type taskInterval struct {
	task *birth.Task
	iv   capri.Interval
}

// maxRange bounds one range: more cannot be looked through by anybody, and would be held in memory.
const maxRange = 100_000

// compile reads all of a task that a range needs, so that what is wrong is known before anything is made.
func (a *Actions) compile(t *capri.Task) (*birth.Task, error) {
	compiled, err := birth.Compile(t)
	if err != nil {
		return nil, err
	}
	if _, err := expression(t); err != nil {
		return nil, err
	}
	_, _, err = a.validity(&t.Spec)
	return compiled, err
}

// rangeItems lists every interval of the range in which a task is valid.
func (a *Actions) rangeItems(fromText, toText string, byData bool, tasks []*birth.Task, now capri.Instant) ([]taskInterval, error) {
	from, to, err := a.timeRange(fromText, toText, !byData)
	if err != nil {
		return nil, err
	}
	if from > now {
		return nil, capri.Invalid("from", fromText, "not later than now")
	}
	// The end of today is later than now, and yet "today" is what people write: a date counts by its beginning.
	if begins, err := a.calendar.ParseTime(toText); err != nil || begins > now {
		return nil, capri.Invalid("to", toText, "not later than now")
	}
	r := cascade.Range{From: from, To: to, ByData: byData}

	shared := map[capri.Period][]capri.Interval{} // every calendar task of a period has the same
	var items []taskInterval
	for _, t := range tasks {
		ivs, known := shared[t.Period]
		switch {
		case known:
		case t.Period.Calendar():
			ivs = r.Intervals(a.calendar, t.Period, nil, now, maxRange+1)
			shared[t.Period] = ivs
		default:
			e, err := expression(t.Task)
			if err != nil {
				return nil, err
			}
			ivs = r.Intervals(a.calendar, t.Period, e, now, maxRange+1)
		}
		first, last, err := a.validity(&t.Spec)
		if err != nil {
			return nil, err
		}
		for _, iv := range ivs {
			if iv.Mark < first || last != 0 && iv.Mark >= last {
				continue
			}
			items = append(items, taskInterval{t, iv})
		}
		if len(items) > maxRange {
			return nil, capri.Invalid("to", toText, fmt.Sprintf("a range with at most %d batches; split it", maxRange))
		}
	}
	return items, nil
}

// timeRange reads a range of times that people wrote and gives it half open. included tells whether its end belongs
// to it, as in a range on schedule_time.
func (a *Actions) timeRange(fromText, toText string, included bool) (from, to capri.Instant, err error) {
	if from, err = a.calendar.ParseTime(fromText); err != nil {
		return 0, 0, named("from", err)
	}
	if to, err = a.calendar.ParseRangeEnd(toText, included); err != nil {
		return 0, 0, named("to", err)
	}
	if to < from || included && to == from {
		return 0, 0, capri.Invalid("to", toText, "not before from ("+fromText+")")
	}
	return from, to, nil
}

func named(field string, err error) error {
	var fe *capri.FieldError
	if errors.As(err, &fe) {
		return capri.Invalid(field, fe.Value, fe.Want)
	}
	return err
}
