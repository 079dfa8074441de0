package action

import (
	"context"

	"capri"
	"capri/birth"
	"capri/sql/store"
)

// An archived batch has no conditions any more: they follow from the version of the definition that it was made by, and
// are derived again here.

// ConditionsOf lists what a batch waits for, or waited for. Of an archived one only what it was is known, not
// whether each was met.
func (a *Actions) ConditionsOf(ctx context.Context, b store.BatchRow) ([]store.ConditionRow, error) {
	if !b.Archived {
		return a.store.ConditionsOf(ctx, b.ID)
	}
	t, err := a.store.TaskVersion(ctx, b.TaskID, b.TaskVersion)
	if err != nil {
		return nil, err
	}
	maker, err := a.maker(ctx, t)
	if err != nil {
		return nil, err
	}
	c, err := conditionsOf(maker, t, maker.IntervalOf(b.Batch))
	if err != nil { // a parent is deleted by now: the rest is still known
		alone := *t
		alone.Parents = nil
		if c, err = conditionsOf(maker, &alone, maker.IntervalOf(b.Batch)); err != nil {
			return nil, err
		}
	}
	parents := make([]capri.TaskID, len(c.Parents))
	for i, p := range c.Parents {
		parents[i] = p.TaskID
	}
	names, err := a.store.TaskNames(ctx, parents)
	if err != nil {
		return nil, err
	}
	var rows []store.ConditionRow
	for _, p := range c.Inputs {
		rows = append(rows, store.ConditionRow{Kind: "input", Path: p.Path, Flag: p.Flag})
	}
	for _, p := range c.Outputs {
		rows = append(rows, store.ConditionRow{Kind: "output", Path: p.Path, Flag: p.Flag})
	}
	for _, p := range c.ThirdParty {
		rows = append(rows, store.ConditionRow{Kind: "third_party", Code: p.Code, Period: p.Period, BatchNo: p.BatchNo})
	}
	for _, p := range c.Parents {
		policy := capri.All
		if p.Any {
			policy = capri.Anyone
		}
		rows = append(rows, store.ConditionRow{Kind: "parent", Parent: names[p.TaskID], ParentTaskID: p.TaskID, BatchNo: p.BatchNo, Group: p.Group, Policy: string(policy)})
	}
	return rows, a.store.FillParents(ctx, rows)
}

func conditionsOf(maker *birth.Maker, t *capri.Task, iv capri.Interval) (capri.Conditions, error) {
	compiled, err := birth.Compile(t)
	if err != nil {
		return capri.Conditions{}, err
	}
	return maker.Conditions(compiled, iv)
}
