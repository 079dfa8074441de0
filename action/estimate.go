package action

import (
	"context"
	"math"

	"capri"
	"capri/birth"
	"capri/cascade"
	"capri/sql/store"
)

// What a campaign takes is played through when it is previewed, and again when something is taken out or its pace changes.
// It stands with the campaign: whoever looks at it asks for one row.

// chainEnds is how many batches of a long chain are named at its beginning, and at its end.
const chainEnds = 5

// estimate plays through what runs of a campaign, and gives the campaign what that costs. minutes is what one takes; below 0
// nobody knows.
func (a *Actions) estimate(ctx context.Context, c *capri.Campaign, runs []cascade.Item, minutes func(*cascade.Item) int) (*capri.CampaignEstimate, error) {
	slots, err := a.slots(ctx)
	if err != nil {
		return nil, err
	}
	if c.NewestFirst {
		if runs, err = cascade.Sort(runs, true); err != nil {
			return nil, err
		}
	}
	cost := cascade.Estimate(runs, func(it *cascade.Item) cascade.Rate {
		m := minutes(it)
		return cascade.Rate{Minutes: float64(max(m, 0)), Guessed: m < 0}
	}, cascade.Resources{AtOnce: c.Limit, Slots: slots})
	c.Minutes, c.Unknown = int64(cost.Minutes), cost.Guessed

	e := &capri.CampaignEstimate{Batches: cost.Batches, ChainMinutes: int(cost.ChainMinutes), ChainBatches: len(cost.Chain), Chain: []string{}, EndsMinutes: int(cost.Ends),
		Limit: c.Limit, Slots: cost.Slots, NoRoom: cost.NoRoom, Stuck: cost.Stuck, Load: []capri.CampaignLoad{}}
	for n, i := range cost.Chain {
		if n < chainEnds || n >= len(cost.Chain)-chainEnds {
			e.Chain = append(e.Chain, runs[i].Task.Name+" "+string(runs[i].Interval.BatchNo))
		}
	}
	for _, l := range cost.Load {
		e.Load = append(e.Load, capri.CampaignLoad{From: int(l.From), Minutes: int(l.Minutes), Slots: math.Round(l.Slots*100) / 100})
	}
	return e, nil
}

// slots are those of live nodes that take work, by pool.
func (a *Actions) slots(ctx context.Context) (map[string]int, error) {
	nodes, err := a.store.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	slots := map[string]int{}
	for _, n := range nodes {
		if !n.Lost && !n.Left && !n.Draining {
			slots[n.Pool] += n.Slots
		}
	}
	return slots, nil
}

// estimateAgain is estimate of a stored preview, of those of its items that are kept. The write brings what it found into a
// transaction, where somebody else who changes the same preview is refused.
func (a *Actions) estimateAgain(ctx context.Context, c *capri.Campaign, keep func(*store.ItemRow) bool) (write func(*store.Tx) error, err error) {
	rows, err := a.store.CampaignItems(ctx, c.ID, []capri.ItemAction{capri.ItemNew, capri.ItemNewRun, capri.ItemKillFirst, capri.ItemLeftWaiting}, -1, maxRange)
	if err != nil {
		return nil, err
	}
	minutes := make(map[store.LatestKey]int, len(rows))
	var ids []capri.TaskID
	seen := map[capri.TaskID]bool{}
	for i := range rows {
		r := &rows[i]
		if r.Dropped || !keep(r) {
			continue
		}
		minutes[store.LatestKey{Task: r.Task, No: r.BatchNo}] = r.Minutes
		if !seen[r.Task] {
			seen[r.Task], ids = true, append(ids, r.Task)
		}
	}
	g, tasks, err := a.graph(ctx, ids)
	if err != nil {
		return nil, err
	}
	items := make([]cascade.Item, 0, len(minutes))
	for i := range rows {
		if _, kept := minutes[store.LatestKey{Task: rows[i].Task, No: rows[i].BatchNo}]; kept {
			items = append(items, cascade.Item{Task: tasks[rows[i].Task], Interval: rows[i].Interval})
		}
	}
	if items, err = g.Connect(items, c.CreatedAt); err != nil {
		return nil, err
	}
	e, err := a.estimate(ctx, c, items, func(it *cascade.Item) int { return minutes[store.LatestKey{Task: it.Task.ID, No: it.Interval.BatchNo}] })
	if err != nil {
		return nil, err
	}
	return func(tx *store.Tx) error { return tx.EstimateCampaign(c, e, len(items)) }, nil
}

func everyItem(*store.ItemRow) bool { return true }

// graph is of some tasks alone.
func (a *Actions) graph(ctx context.Context, ids []capri.TaskID) (*cascade.Graph, map[capri.TaskID]*capri.Task, error) {
	tasks, err := a.store.TasksByID(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	refs, err := a.store.ParentRefsOf(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	var all []*capri.Task
	for _, t := range tasks {
		all = append(all, t)
	}
	return cascade.New(a.calendar, all, birth.Refs(refs)), tasks, nil
}
