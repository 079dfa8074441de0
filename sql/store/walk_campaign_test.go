package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"capri"
	"capri/sql/store"
)

// campaigner is somebody who makes campaigns of the walk's batches, changes his mind about them, and the service that runs
// them, a step at a time: services/campaign goes the same way, and more of it at once.
type campaigner struct {
	*walk
	mu    sync.Mutex // of the end, which takes steps too
	lease capri.Lease
	first map[store.LatestKey]*capri.NewBatch
	id    capri.CampaignID // that lives; 0: none
	last  bool             // no more of them, and no change of mind
}

func (w *walk) newCampaigner() *campaigner {
	c := &campaigner{walk: w, lease: w.Lease(w.t, "campaign"), first: map[store.LatestKey]*capri.NewBatch{}}
	for _, b := range w.batches {
		c.first[store.LatestKey{Task: b.TaskID, No: b.BatchNo}] = b
	}
	return c
}

func (c *campaigner) act(rng *rand.Rand, s *store.Store) error {
	time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == 0 {
		if c.last {
			return nil
		}
		return c.preview(rng, s)
	}
	return c.step(rng, s)
}

// preview stores a campaign of a few batches, each as it stands, and starts it.
func (c *campaigner) preview(rng *rand.Rand, s *store.Store) error {
	var keys []store.LatestKey
	for _, i := range rng.Perm(len(c.batches))[:1+rng.IntN(6)] {
		keys = append(keys, store.LatestKey{Task: c.batches[i].TaskID, No: c.batches[i].BatchNo})
	}
	latest, err := s.LatestRunsOf(c.ctx, keys)
	if err != nil {
		return err
	}
	var items []capri.CampaignItem
	for _, k := range keys {
		b, old := c.first[k], latest[k]
		action := capri.ItemKillFirst
		switch {
		case old.State == capri.Finished:
			action = capri.ItemNewRun
		case old.State <= capri.Assigned:
			action = capri.ItemLeftWaiting
		}
		items = append(items, capri.CampaignItem{Action: action, Task: b.TaskID, TaskVersion: b.TaskVersion, Via: -1,
			Interval: capri.Interval{BatchNo: b.BatchNo, Mark: b.ScheduleTime, Start: b.DataStart, End: b.DataEnd},
			Old:      old.ID, OldRunNo: old.RunNo, OldState: old.State, OldFinish: old.FinishState})
	}
	slices.SortFunc(items, func(a, b capri.CampaignItem) int { return cmp.Compare(a.Task, b.Task) }) // parents have the smaller ids
	campaign := &capri.Campaign{Kind: capri.CampaignRerun, Target: "walk", Request: "{}"}
	if err := s.SaveCampaign(c.ctx, "bob", campaign, nil, items, func(*store.Tx) error { return nil }); err != nil {
		return err
	}
	c.id = campaign.ID
	c.did("campaigns")
	return s.Write(c.ctx, "run", "bob", func(tx *store.Tx) error {
		_, err := tx.StartCampaign(c.id, rng.IntN(4), rng.IntN(2) == 0)
		return err
	})
}

func (c *campaigner) step(rng *rand.Rand, s *store.Store) error {
	now, err := s.Campaign(c.ctx, c.id)
	if err != nil {
		return err
	}
	if _, err := s.EndItems(c.ctx, c.lease, now); err != nil {
		return err
	}
	if err := c.mind(rng, s, now); err != nil {
		return err
	}
	switch now.State {
	case capri.CampaignCreating:
		return c.create(s, now)
	case capri.CampaignRunning:
		if now.Limit > 0 {
			if _, err := s.HoldItems(c.ctx, c.lease, now, false); err != nil {
				return moved(err)
			}
		}
		hand, err := s.InHand(c.ctx, c.id)
		if room := now.Limit - hand; err == nil && (now.Limit == 0 || room > 0) {
			_, _, err = s.ReleaseItems(c.ctx, c.lease, now, c.Clock.Now(), max(room, 0))
		}
		if err != nil {
			return moved(err)
		}
	case capri.CampaignPaused:
		_, err := s.HoldItems(c.ctx, c.lease, now, true)
		return moved(err)
	case capri.CampaignCancelling:
		undone, _, err := s.UndoItems(c.ctx, c.lease, now, now.Items)
		c.note(func() { c.took["undone"] += undone })
		if err == nil && now.KillRunning {
			_, _, err = s.KillItems(c.ctx, c.lease, now, -1)
		}
		if err != nil {
			return err
		}
	}
	open, err := s.OpenItems(c.ctx, c.id)
	if err != nil || len(open) > 0 {
		return err
	}
	to := capri.CampaignDone
	if now.State == capri.CampaignCancelling {
		to = capri.CampaignCancelled
	}
	if err := s.CloseCampaign(c.ctx, c.lease, now, to, "over", nil); err != nil {
		return err
	}
	if now, err = s.Campaign(c.ctx, c.id); err == nil && now.State >= capri.CampaignDone {
		c.did("campaigns " + now.State.String())
		c.id = 0
	}
	return err
}

// mind is what people do to a campaign meanwhile; at the end they let it run.
func (c *campaigner) mind(rng *rand.Rand, s *store.Store, now capri.Campaign) error {
	return s.Write(c.ctx, "change his mind", "bob", func(tx *store.Tx) (err error) {
		move := func(to, from capri.CampaignState) error {
			_, err := tx.MoveCampaign(c.id, to, []capri.CampaignState{from}, map[string]any{})
			return err
		}
		switch what := rng.IntN(60); {
		case now.State == capri.CampaignPaused && (c.last || what < 20):
			return move(capri.CampaignRunning, capri.CampaignPaused)
		case c.last && now.Limit > 0 && now.State == capri.CampaignRunning:
			return tx.LimitCampaign(c.id, 0)
		case c.last:
		case what == 0:
			_, err = tx.CancelCampaign(c.id, rng.IntN(2) == 0, "no")
		case what < 3 && now.State == capri.CampaignRunning:
			return move(capri.CampaignPaused, capri.CampaignRunning)
		}
		return err
	})
}

// create claims and makes; what is not any more as it was previewed is refused and undone.
func (c *campaigner) create(s *store.Store, now capri.Campaign) error {
	refuse := func(why string) error {
		return moved(s.RefuseCampaign(c.ctx, c.lease, c.id, why))
	}
	claimed, differ, err := s.ClaimItems(c.ctx, c.lease, now, 0, now.Items)
	switch {
	case err != nil:
		return moved(err)
	case len(differ) > 0:
		return refuse(differ[0].What)
	case len(claimed) > 0:
		return nil
	}
	from, to, waits, err := s.ToMake(c.ctx, c.id)
	switch {
	case err != nil:
		return err
	case from == to && waits == 0:
		return moved(s.OpenCampaign(c.ctx, c.lease, c.id))
	}
	items, err := s.ItemsToMake(c.ctx, c.id, from, to)
	if err != nil || len(items) == 0 {
		return err
	}
	var made []*capri.NewBatch
	for _, it := range items {
		b := *c.first[store.LatestKey{Task: it.Task, No: it.BatchNo}]
		made = append(made, &b)
	}
	reserved, err := s.ReserveBatchIDs(c.ctx, to-from)
	if err != nil {
		return err
	}
	if err := s.MakeItems(c.ctx, c.lease, now, items, made, reserved-capri.BatchID(from), nil); err != nil {
		if errors.Is(err, capri.ErrConflict) {
			return refuse(err.Error())
		}
		return err
	}
	c.note(func() {
		for _, b := range made {
			b.HeldBack = false // who runs it again takes it as a model
			c.runs, c.ids = append(c.runs, b), append(c.ids, b.ID)
		}
		c.took["made by campaigns"] += len(made)
	})
	return nil
}

func (c *campaigner) note(do func()) {
	c.walk.mu.Lock()
	defer c.walk.mu.Unlock()
	do()
}

// moved: somebody has changed the campaign at this moment, and the next step sees it.
func moved(err error) error {
	if errors.Is(err, capri.ErrConflict) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("a campaign's step: %w", err)
	}
	return nil
}

// tell says what does not end.
func (c *campaigner) tell() {
	rows, err := c.Store.Batches(c.ctx, store.BatchFilter{Archived: true, Limit: 10_000})
	for _, r := range rows {
		if r.State == capri.Finished && r.FinishState == capri.Success {
			continue
		}
		unmet, err := c.Store.ConditionsOf(c.ctx, r.ID)
		c.t.Logf("batch %d (%s %s, run %d) is %s %s, unmet %d, held %t: %+v, %v", r.ID, r.Task, r.BatchNo, r.RunNo, r.State, r.FinishState, r.Unmet, r.Held, unmet, err)
		events, err := c.Store.Events(c.ctx, r.ID)
		for _, e := range events {
			c.t.Logf("    %v %s %s %d %s: %s", e.At, e.State, e.FinishState, e.Attempt, e.Who, e.Why)
		}
		c.t.Log(err)
	}
	c.t.Log(err)
	if c.id == 0 {
		return
	}
	now, err := c.Store.Campaign(c.ctx, c.id)
	c.t.Logf("campaign %+v, %v", now, err)
	items, err := c.Store.CampaignItems(c.ctx, c.id, nil, -1, 100)
	for _, it := range items {
		c.t.Logf("%s %s: %s, %s; batch %d is %s, before it %d", it.TaskName, it.BatchNo, it.Action, it.State, it.Batch, it.BatchState, it.Old)
	}
	c.t.Log(err)
}
