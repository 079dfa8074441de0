package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"

	"capri"
	"capri/action"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

// itemsAtOnce is how many items a plan shows by itself.
const itemsAtOnce = 10_000

func (s *server) campaignOperations() {
	register(s, auth.CampaignRead, http.MethodGet, "/campaigns", "list-campaigns", "Reruns, cascades and cold starts, the newest first", s.campaigns)
	register(s, auth.CampaignRead, http.MethodGet, "/campaigns/{id}", "show-campaign", "A campaign and how far it has come", s.campaign)
	register(s, auth.CampaignRead, http.MethodGet, "/campaigns/{id}/items", "list-campaign-items", "What a campaign does, in the order in which it can run", s.campaignItems)
	register(s, auth.CampaignEdit, http.MethodPost, "/campaigns/{id}/run", "run-campaign", "Run a previewed campaign, exactly as it was previewed", s.runCampaign)
	register(s, auth.CampaignEdit, http.MethodPost, "/campaigns/{id}/drop", "drop-campaign-items", "Take items out of a previewed campaign", s.dropItems)
	register(s, auth.CampaignEdit, http.MethodPost, "/campaigns/{id}/limit", "limit-campaign", "Change how many batches of a campaign run at once", s.limitCampaign)
	register(s, auth.CampaignEdit, http.MethodPost, "/campaigns/{id}/pause", "pause-campaign", "Keep what has not started of a campaign from starting", s.pauseCampaign)
	register(s, auth.CampaignEdit, http.MethodPost, "/campaigns/{id}/resume", "resume-campaign", "Let a paused campaign go on", s.resumeCampaign)
	register(s, auth.CampaignEdit, http.MethodPost, "/campaigns/{id}/cancel", "cancel-campaign", "Undo what has not started of a campaign", s.cancelCampaign)
}

func (s *server) wireCampaign(c capri.Campaign) wire.Campaign {
	request := json.RawMessage(c.Request)
	if !json.Valid(request) {
		request = json.RawMessage("null")
	}
	order := "oldest"
	if c.NewestFirst {
		order = "newest"
	}
	return wire.Campaign{ID: c.ID, Kind: c.Kind.String(), State: c.State.String(), Target: c.Target, Request: request, Who: c.Who, Reason: c.Reason, Limit: c.Limit, Order: order, Size: c.Items,
		Hours: math.Round(float64(c.Minutes)/6) / 10, UnknownCost: c.Unknown, Message: c.Message, CreatedAt: wire.At(c.CreatedAt, s.Zone), StartedAt: wire.At(c.StartedAt, s.Zone),
		ReleasedAt: wire.At(c.ReleasedAt, s.Zone), FinishedAt: wire.At(c.FinishedAt, s.Zone)}
}

func (s *server) wireItem(it *capri.CampaignItem, task string) wire.CampaignItem {
	out := wire.CampaignItem{Seq: it.Seq, Task: task, BatchNo: it.BatchNo, ScheduleTime: wire.At(it.Mark, s.Zone), DataStart: wire.At(it.Start, s.Zone), DataEnd: wire.At(it.End, s.Zone),
		Action: it.Action.String(), Reason: it.Note, Why: it.Why, Dropped: it.Dropped, State: it.State.String(), OldBatchID: it.Old, BatchID: it.Batch, FinishState: it.FinishState.String()}
	if it.Minutes >= 0 {
		out.Minutes = &it.Minutes
	}
	return out
}

// plan writes what was planned, with the first of its items.
func (s *server) wirePlan(p *action.Planned) wire.CampaignPlan {
	out := wire.CampaignPlan{Campaign: s.wireCampaign(p.Campaign), Actions: map[string]int{}, Estimate: p.Estimate, Items: make([]wire.CampaignItem, 0, min(len(p.Items), itemsAtOnce))}
	for i := range p.Items {
		it := &p.Items[i]
		out.Actions[it.Action.String()]++
		if it.Action >= capri.ItemNew && it.Action <= capri.ItemKillFirst && p.State != capri.CampaignPreviewed {
			out.Made++
		}
		if i < itemsAtOnce {
			out.Items = append(out.Items, s.wireItem(&it.CampaignItem, it.TaskName))
		}
	}
	return out
}

type campaignsInput struct {
	Paging
	State string `query:"state" enum:"previewed,creating,running,paused,cancelling,done,cancelled,refused"`
	From  string `query:"from" maxLength:"100" doc:"made at or after"`
	To    string `query:"to" maxLength:"100" doc:"included (a bare date: all of it)"`
}

func (s *server) campaigns(ctx context.Context, in *campaignsInput) (*pageOutput[wire.Campaign], error) {
	f := store.CampaignFilter{Limit: in.Limit + 1}
	f.State, _ = capri.ParseCampaignState(in.State)
	var err error
	if f.Before, err = after[capri.CampaignID](&in.Paging); err != nil {
		return nil, err
	}
	if f.From, f.To, err = s.span(in.From, in.To, true); err != nil {
		return nil, err
	}
	rows, err := s.Store.Campaigns(ctx, f)
	if err != nil {
		return nil, err
	}
	return paged(&in.Paging, rows, func(c capri.Campaign) any { return c.ID }, func(rows []capri.Campaign) ([]wire.Campaign, error) {
		out := []wire.Campaign{}
		for _, c := range rows {
			switch err := s.maySeeCampaign(ctx, c); {
			case err == nil:
				out = append(out, s.wireCampaign(c))
			case !errors.Is(err, capri.ErrNotFound):
				return nil, err
			}
		}
		return out, nil
	})
}

func (s *server) campaign(ctx context.Context, in *idInput) (*body[wire.CampaignDetail], error) {
	c, err := s.Store.Campaign(ctx, capri.CampaignID(in.ID))
	if err != nil {
		return nil, err
	}
	if err := s.maySeeCampaign(ctx, c); err != nil {
		return nil, err
	}
	counts, err := s.Store.CampaignCounts(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	estimate, err := s.Store.CampaignEstimate(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	out := wire.CampaignDetail{Campaign: s.wireCampaign(c), Actions: map[string]int{}, Estimate: estimate}
	p := &out.Progress
	for _, k := range counts {
		if k.Dropped {
			out.Actions["dropped"] += k.N
			continue
		}
		out.Actions[k.Action.String()] += k.N
		if !k.Action.Runs() {
			continue
		}
		p.Total += k.N
		field := &p.Waiting
		switch {
		case k.State == capri.ItemUndone:
			field = &p.Undone
		case k.State == capri.ItemEnded || k.BatchState == capri.Finished && k.State >= capri.ItemHeldBack:
			field = map[capri.FinishState]*int{capri.Success: &p.Success, capri.Failed: &p.Failed, capri.Skipped: &p.Skipped, capri.Killed: &p.Killed}[k.FinishState]
			p.Finished += k.N
		case k.State <= capri.ItemClaimed:
			field = &p.ToMake
		case k.BatchState == capri.Assigned || k.BatchState == capri.Running:
			field = &p.Running
		case k.Ready:
			field = &p.Ready
		}
		if field != nil {
			*field += k.N
		}
	}
	p.Finished += p.Undone
	return answer(out), nil
}

type campaignItemsInput struct {
	Paging
	ID     int64  `path:"id"`
	Action string `query:"action" enum:"new,new_run,kill_first,left_waiting,in_the_way,left_alone,exists,not_in_definition,disabled,refused"`
}

func (s *server) campaignItems(ctx context.Context, in *campaignItemsInput) (*pageOutput[wire.CampaignItem], error) {
	from, err := after[*int](&in.Paging)
	if err != nil {
		return nil, err
	}
	seq := -1
	if from != nil {
		seq = *from
	}
	c, err := s.Store.Campaign(ctx, capri.CampaignID(in.ID))
	if err != nil {
		return nil, err
	}
	if err := s.maySeeCampaign(ctx, c); err != nil {
		return nil, err
	}
	var actions []capri.ItemAction
	for a := capri.ItemNew; a <= capri.ItemRefused && in.Action != ""; a++ {
		if a.String() == in.Action {
			actions = append(actions, a)
		}
	}
	rows, err := s.Store.CampaignItems(ctx, capri.CampaignID(in.ID), actions, seq, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return paged(&in.Paging, rows, func(r store.ItemRow) any { return r.Seq }, each(func(r store.ItemRow) wire.CampaignItem {
		out := s.wireItem(&r.CampaignItem, r.TaskName)
		if r.Batch != 0 {
			out.BatchState = r.BatchState.String()
		}
		return out
	}))
}

// maySeeCampaign decides whether the caller may look at a campaign: it names tasks. His own he may, with all that it reaches; a rerun
// whoever may see its task; a cold start, which is of many, who may see all.
func (s *server) maySeeCampaign(ctx context.Context, c capri.Campaign) error {
	if auth.From(ctx).SeesAll() || c.Who == who(ctx) {
		return nil
	}
	gone := capri.NotFound("there is no campaign %d", c.ID)
	if c.Kind == capri.CampaignColdStart {
		return gone
	}
	err := s.mayTasks(ctx, auth.TaskRead, c.Target)
	if errors.Is(err, capri.ErrNotFound) {
		return gone
	}
	return err
}

// mine reads a campaign that the caller may change: his own, and of cold starts only who may make them.
func (s *server) mine(ctx context.Context, id int64) (capri.Campaign, error) {
	c, err := s.Store.Campaign(ctx, capri.CampaignID(id))
	if err != nil {
		return c, err
	}
	p := auth.From(ctx)
	if err := s.maySeeCampaign(ctx, c); err != nil {
		return c, err
	}
	if c.Kind == capri.CampaignColdStart {
		if err := p.Reaches(auth.ColdStart); err != nil {
			return c, err
		}
	}
	if c.Who == who(ctx) {
		return c, nil
	}
	return c, p.May(auth.CampaignEdit, auth.Object{What: fmt.Sprintf("campaign %d", id), Owner: c.Who})
}

type runCampaignInput struct {
	ID   int64 `path:"id"`
	Body wire.CampaignRun
}

func (s *server) runCampaign(ctx context.Context, in *runCampaignInput) (*body[wire.Campaign], error) {
	c, err := s.mine(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	pace := action.Pace{Limit: c.Limit, Order: "oldest"}
	if c.NewestFirst {
		pace.Order = "newest"
	}
	if in.Body.Limit != nil {
		pace.Limit = *in.Body.Limit
	}
	if in.Body.Order != "" {
		pace.Order = in.Body.Order
	}
	if c, err = s.Actions.RunCampaign(ctx, who(ctx), c.ID, pace); err != nil {
		return nil, err
	}
	return answer(s.wireCampaign(c)), nil
}

type dropItemsInput struct {
	ID   int64 `path:"id"`
	Body wire.CampaignDrop
}

func (s *server) dropItems(ctx context.Context, in *dropItemsInput) (*body[wire.Dropped], error) {
	c, err := s.mine(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	n, err := s.Actions.DropItems(ctx, who(ctx), c.ID, in.Body.Items)
	if err != nil {
		return nil, err
	}
	return answer(wire.Dropped{Dropped: n}), nil
}

type limitCampaignInput struct {
	ID   int64 `path:"id"`
	Body wire.CampaignLimit
}

func (s *server) limitCampaign(ctx context.Context, in *limitCampaignInput) (*body[wire.Campaign], error) {
	return s.changeCampaign(ctx, in.ID, func(id capri.CampaignID) (capri.Campaign, error) {
		return s.Actions.LimitCampaign(ctx, who(ctx), id, in.Body.Limit)
	})
}

type changeCampaignInput struct {
	ID   int64 `path:"id"`
	Body wire.CampaignChange
}

func (s *server) pauseCampaign(ctx context.Context, in *changeCampaignInput) (*body[wire.Campaign], error) {
	return s.changeCampaign(ctx, in.ID, func(id capri.CampaignID) (capri.Campaign, error) {
		return s.Actions.PauseCampaign(ctx, who(ctx), id, in.Body.Reason)
	})
}

func (s *server) resumeCampaign(ctx context.Context, in *changeCampaignInput) (*body[wire.Campaign], error) {
	return s.changeCampaign(ctx, in.ID, func(id capri.CampaignID) (capri.Campaign, error) {
		return s.Actions.ResumeCampaign(ctx, who(ctx), id, in.Body.Reason)
	})
}

func (s *server) cancelCampaign(ctx context.Context, in *changeCampaignInput) (*body[wire.Campaign], error) {
	return s.changeCampaign(ctx, in.ID, func(id capri.CampaignID) (capri.Campaign, error) {
		return s.Actions.CancelCampaign(ctx, who(ctx), id, in.Body.Kill, in.Body.Reason)
	})
}

func (s *server) changeCampaign(ctx context.Context, id int64, do func(capri.CampaignID) (capri.Campaign, error)) (*body[wire.Campaign], error) {
	c, err := s.mine(ctx, id)
	if err != nil {
		return nil, err
	}
	if c, err = do(c.ID); err != nil {
		return nil, err
	}
	return answer(s.wireCampaign(c)), nil
}
