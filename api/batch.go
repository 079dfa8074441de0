package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"capri"
	"capri/action"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
	"capri/why"
)

type idInput struct {
	ID int64 `path:"id"`
}

type batchesInput struct {
	Paging
	Task        string   `query:"task" maxLength:"200" doc:"a name, or a pattern in which * stands for anything"`
	State       []string `query:"state" maxItems:"11" doc:"states, or finish states, separated by commas"`
	FinishState []string `query:"finish_state" maxItems:"7" enum:"none,success,failed,killed,dependency_timeout,output_timeout,skipped" doc:"finish states, beside states"`
	Period      string   `query:"period" enum:"hour,day,week,month,cron,manual"`
	Group       string   `query:"group" maxLength:"200"`
	Owner       string   `query:"owner" maxLength:"200"`
	Department  string   `query:"department" maxLength:"200" doc:"the owner's"`
	Node        string   `query:"node" maxLength:"200"`
	Campaign    int64    `query:"campaign" minimum:"1" doc:"what runs for this campaign"`
	From        string   `query:"from" maxLength:"100" doc:"on schedule_time; with by_data on data intervals"`
	To          string   `query:"to" maxLength:"100" doc:"included (a bare date: all of it); with by_data excluded"`
	ByData      bool     `query:"by_data" doc:"the range and the order are of the data's interval; refused where more than 100,000 batches meet each other filter"`
	Order       string   `query:"order" enum:"newest,oldest" default:"newest" doc:"which comes first"`
	Late        bool     `query:"late"`
	AllRuns     bool     `query:"all_runs" doc:"not only the latest run of each batch_no"`
	Archived    bool     `query:"archived" doc:"archived ones too; they are also listed where the range reaches back to them"`
}

func (s *server) batchOperations() {
	register(s, auth.BatchRead, http.MethodGet, "/batches", "list-batches", "Batches, newest schedule time first", s.batches)
	register(s, auth.BatchRead, http.MethodGet, "/batches/{id}", "show-batch", "A batch with its conditions, events and attempts", s.batch)
	register(s, auth.BatchRead, http.MethodGet, "/batches/{id}/why", "why", "Why a batch is not running", s.why)
	register(s, auth.LogRead, http.MethodGet, "/batches/{id}/logs", "logs", "A piece of what a batch's job wrote", s.logs, func(op *huma.Operation) {
		op.Responses = map[string]*huma.Response{"200": {Description: "bytes as they were written", Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}}
	})
	register(s, auth.BatchKill, http.MethodPost, "/batches:kill", "kill-batches", "Kill batches", s.changing(auth.BatchKill, s.Actions.Kill))
	register(s, auth.BatchHold, http.MethodPost, "/batches:hold", "hold-batches", "Keep batches from starting", s.changing(auth.BatchHold, s.Actions.Hold))
	register(s, auth.BatchHold, http.MethodPost, "/batches:release", "release-batches", "Let held batches start", s.changing(auth.BatchHold, s.Actions.Release))
	register(s, auth.BatchForce, http.MethodPost, "/batches:force-success", "force-success", "Make a success of batches that wait, or have finished otherwise", s.changing(auth.BatchForce, s.Actions.ForceSuccess))
	register(s, auth.BatchRunNow, http.MethodPost, "/batches:run-now", "run-now", "Let waiting batches start without their conditions", s.changing(auth.BatchRunNow, s.Actions.RunNow))
	register(s, auth.QualityAnswer, http.MethodPost, "/batches/{id}/quality", "quality-verdict", "What the quality API says of a batch at its quality gate", s.quality, status(http.StatusNoContent))
	register(s, auth.AttemptReport, http.MethodPost, "/attempt/code", "report-code", "How the caller's own attempt went (check: user_code)", s.userCode, status(http.StatusNoContent))
	register(s, auth.AttemptReport, http.MethodPost, "/attempt/progress", "report-progress", "How far the caller's own attempt has come", s.progress, status(http.StatusNoContent))
	register(s, auth.AttemptReport, http.MethodPost, "/attempt/application", "report-application", "What the caller's own attempt has started elsewhere", s.application, status(http.StatusNoContent))
	register(s, auth.ThirdParty, http.MethodPost, "/third-party/{code}", "report-third-party", "What a third party says of one interval", s.thirdParty, status(http.StatusNoContent))
}

func (s *server) batches(ctx context.Context, in *batchesInput) (*pageOutput[wire.Batch], error) {
	f, err := s.batchFilter(ctx, in)
	if err != nil {
		return nil, err
	}
	rows, err := s.Store.Batches(ctx, f)
	if err != nil {
		return nil, err
	}
	return paged(&in.Paging, rows, func(b store.BatchRow) any { return f.Order.Position(&b.Batch) },
		each(func(b store.BatchRow) wire.Batch { return wire.BatchOf(&b.Batch, b.Task, s.Zone) }))
}

func (s *server) batchFilter(ctx context.Context, in *batchesInput) (store.BatchFilter, error) {
	f := store.BatchFilter{Group: in.Group, Owner: in.Owner, Department: in.Department, Node: in.Node, Campaign: capri.CampaignID(in.Campaign), Late: in.Late, AllRuns: in.AllRuns, Archived: in.Archived, Seen: seen(ctx, auth.BatchRead),
		Limit: in.Limit + 1, Order: store.BatchOrder{Oldest: in.Order == "oldest"}}
	var err error
	if f.After, err = after[store.BatchPosition](&in.Paging); err != nil {
		return f, err
	}
	switch {
	case strings.Contains(in.Task, "*"):
		f.Name = in.Task
	case in.Task != "":
		found, err := s.Store.Tasks(ctx, store.TaskFilter{Names: []string{in.Task}, WithDeleted: true, Seen: f.Seen}) // its batches are still there
		if err != nil {
			return f, err
		}
		if len(found) == 0 {
			return f, capri.NotFound("there is no task %q", in.Task)
		}
		f.Task = found[0].ID
	}
	if in.Period != "" {
		if f.Period, err = capri.ParsePeriod(in.Period); err != nil {
			return f, err
		}
	}
	for _, name := range in.State {
		state, isState, finish, isFinish := capri.ParseState(name)
		switch {
		case isState:
			f.States = append(f.States, state)
		case isFinish:
			f.FinishStates = append(f.FinishStates, finish)
		default:
			return f, capri.Invalid("state", name, "waiting, assigned, running, finished, none, success, failed, killed, dependency_timeout, output_timeout or skipped")
		}
	}
	if len(f.FinishStates) > 0 && (len(f.States) > 0 || len(in.FinishState) > 0) {
		return f, capri.Invalid("state", strings.Join(in.State, ","), "states, and the finish states in finish_state")
	}
	for _, name := range in.FinishState {
		_, _, finish, _ := capri.ParseState(name)
		f.FinishStates = append(f.FinishStates, finish)
	}
	return f, s.timeRange(in, &f)
}

// timeRange reads from and to; each may be left out.
func (s *server) timeRange(in *batchesInput, f *store.BatchFilter) (err error) {
	if in.ByData {
		f.Order.Of = store.ByData
	}
	if f.From, f.To, err = s.span(in.From, in.To, !in.ByData); err == nil && in.To != "" && !in.ByData {
		f.To-- // the filter's end is included
	}
	return err
}

func (s *server) batch(ctx context.Context, in *idInput) (*body[wire.BatchDetail], error) {
	if err := s.mayBatches(ctx, auth.BatchRead, capri.BatchID(in.ID)); err != nil {
		return nil, err
	}
	row, err := s.Store.Batch(ctx, capri.BatchID(in.ID))
	if err != nil {
		return nil, err
	}
	out := wire.BatchDetail{Batch: wire.BatchOf(&row.Batch, row.Task, s.Zone), Conditions: []wire.Condition{}, Events: []wire.Event{}, Attempts: []wire.Attempt{}}
	conditions, err := s.Actions.ConditionsOf(ctx, row)
	if err != nil {
		return nil, err
	}
	for _, c := range conditions {
		w := conditionOf(c)
		if row.Archived {
			w.State = "derived"
		}
		out.Conditions = append(out.Conditions, w)
	}
	events, err := s.Store.Events(ctx, row.ID)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		out.Events = append(out.Events, wire.Event{At: e.At.In(s.Zone), State: e.State.String(), FinishState: e.FinishState.String(), Attempt: e.Attempt, Node: e.Node,
			Held: e.Held, KillRequest: e.KillRequest, Latest: e.Latest, Who: e.Who, Why: e.Why})
	}
	out.Attempts = s.attempts(events)
	return answer(out), nil
}

func conditionOf(c store.ConditionRow) wire.Condition {
	w := wire.Condition{Kind: c.Kind, State: "unmet", Path: c.Path, Flag: c.Flag, Code: c.Code, Period: c.Period, BatchNo: c.BatchNo}
	if c.Met {
		w.State = "met"
	}
	if c.Kind == "parent" {
		w.Parent, w.Group, w.Policy = c.Parent, c.Group, c.Policy
		if w.BatchID = c.ParentBatchID; w.BatchID != 0 {
			w.BatchState, w.FinishState = c.ParentState.String(), c.ParentFinish.String()
		}
	}
	return w
}

// attempts reads the assignments out of a batch's history. Of two events in state running the first is the claim
// and the second the start of the job. A time-out's event is no step: it is the only one that changes the finish state
// of a batch that has not finished.
func (s *server) attempts(events []store.Event) []wire.Attempt {
	out := []wire.Attempt{}
	claimed := false
	late := capri.None
	for _, e := range events {
		fellLate := e.State != capri.Finished && e.FinishState != late
		late = e.FinishState
		if e.Attempt == 0 || fellLate {
			continue
		}
		at := wire.At(e.At, s.Zone)
		if len(out) == 0 || out[len(out)-1].Attempt != e.Attempt {
			out = append(out, wire.Attempt{Attempt: e.Attempt, Node: e.Node, FinishState: capri.None.String()})
			claimed = false
		}
		a := &out[len(out)-1]
		switch {
		case a.Ended != nil: // holds and new runs after the end are no part of it
		case e.State == capri.Assigned && a.Assigned == nil:
			a.Assigned, a.Node = at, e.Node
		case e.State == capri.Running && !claimed:
			claimed = true
		case e.State == capri.Running && a.Started == nil && !e.KillRequest:
			a.Started = at
		case e.State == capri.Waiting || e.State == capri.Finished:
			a.Ended, a.Why = at, e.Why
			if e.State == capri.Finished {
				a.FinishState = e.FinishState.String()
			}
		}
	}
	return out
}

func (s *server) why(ctx context.Context, in *idInput) (*body[wire.Why], error) {
	if err := s.mayBatches(ctx, auth.BatchRead, capri.BatchID(in.ID)); err != nil {
		return nil, err
	}
	a, err := why.Explain(ctx, s.Store, s.Actions.Calendar(), capri.BatchID(in.ID))
	if err != nil {
		return nil, err
	}
	out := wire.Why{Batch: wire.BatchOf(&a.Batch.Batch, a.Batch.Task, s.Zone), Ready: a.Ready, Summary: a.Summary, Causes: []wire.Cause{}, MayStartAt: wire.At(a.MayStartAt, s.Zone)}
	for _, c := range a.Causes {
		cause := wire.Cause{Kind: c.Kind, Detail: c.Detail, Owner: c.Owner, OnDuty: append([]string{}, c.OnDuty...), Since: wire.At(c.Since, s.Zone), Until: wire.At(c.Until, s.Zone),
			Root: wire.Root{Kind: c.Root.Kind, Name: c.Root.Name, BatchID: c.Root.Batch}, Chain: []wire.Link{}}
		for _, l := range c.Chain {
			cause.Chain = append(cause.Chain, wire.Link{BatchID: l.Batch, Name: l.Name})
		}
		out.Causes = append(out.Causes, cause)
	}
	return answer(out), nil
}

type logInput struct {
	ID      int64  `path:"id"`
	Attempt int    `query:"attempt" minimum:"0" doc:"0 or left out: the newest"`
	Stream  string `query:"stream" enum:"out,err" default:"out"`
	Offset  int64  `query:"offset" doc:"negative: counted from the end"`
	Limit   int    `query:"limit" minimum:"1" maximum:"1048576" default:"262144" doc:"bytes"`
}

type logOutput struct {
	ContentType string `header:"Content-Type"`
	Next        string `header:"Capri-Next-Offset"`
	Complete    string `header:"Capri-Complete"`
	Body        []byte
}

func (s *server) logs(ctx context.Context, in *logInput) (*logOutput, error) {
	if err := s.mayBatches(ctx, auth.LogRead, capri.BatchID(in.ID)); err != nil {
		return nil, err
	}
	row, err := s.Store.Batch(ctx, capri.BatchID(in.ID))
	if err != nil {
		return nil, err
	}
	switch {
	case s.Logs == nil:
		return nil, capri.Unavailable("logs are not to be had from this server")
	case row.Attempt == 0:
		return nil, capri.NotFound("batch %d has not run yet, so there is no log (capri why %d says what it waits for)", row.ID, row.ID)
	case in.Attempt > row.Attempt:
		return nil, capri.NotFound("batch %d has %d attempts, and no attempt %d", row.ID, row.Attempt, in.Attempt)
	}
	attempt := in.Attempt
	if attempt == 0 {
		attempt = row.Attempt
	}
	data, next, complete, err := s.Logs.ReadLog(ctx, row, attempt, in.Stream == "err", in.Offset, in.Limit)
	if err != nil {
		return nil, err
	}
	// Whatever a job wrote is shown as it is, and never interpreted by a browser.
	return &logOutput{ContentType: "application/octet-stream", Next: strconv.FormatInt(next, 10), Complete: strconv.FormatBool(complete), Body: data}, nil
}

type idsInput struct{ Body wire.IDs }

// changing makes a handler of kill, hold and the like, which differ in nothing else.
func (s *server) changing(act auth.Act, do func(ctx context.Context, who string, ids []capri.BatchID, reason string) ([]action.BatchResult, error)) func(context.Context, *idsInput) (*body[[]wire.IDResult], error) {
	return func(ctx context.Context, in *idsInput) (*body[[]wire.IDResult], error) {
		if err := s.mayBatches(ctx, act, in.Body.IDs...); err != nil {
			return nil, err
		}
		results, err := do(ctx, who(ctx), in.Body.IDs, in.Body.Reason)
		return listOf(results, err, func(r action.BatchResult) wire.IDResult {
			return wire.IDResult{ID: r.ID, Result: r.Result, Detail: r.Detail}
		})
	}
}

type qualityInput struct {
	ID   int64 `path:"id"`
	Body wire.QualityVerdict
}

// quality takes a verdict. Without the number of a question it is a person's, who overrules whoever is asked.
func (s *server) quality(ctx context.Context, in *qualityInput) (*none, error) {
	act := auth.QualityAnswer
	if in.Body.Ask == 0 {
		act = auth.QualityJudge
	}
	if err := auth.From(ctx).Reaches(act); err != nil {
		return nil, err
	}
	if err := s.mayBatches(ctx, act, capri.BatchID(in.ID)); err != nil {
		return nil, err
	}
	return nil, s.Actions.QualityVerdict(ctx, who(ctx), capri.BatchID(in.ID), in.Body.Ask, in.Body.Verdict, in.Body.Reason)
}

type applicationInput struct{ Body wire.Application }

func (s *server) application(ctx context.Context, in *applicationInput) (*none, error) {
	return nil, s.Store.ReportApplication(ctx, auth.From(ctx).Attempt, in.Body.ID)
}

type userCodeInput struct{ Body wire.UserCode }

func (s *server) userCode(ctx context.Context, in *userCodeInput) (*none, error) {
	return nil, s.Store.ReportCode(ctx, auth.From(ctx).Attempt, in.Body.Code, in.Body.Message)
}

type progressInput struct{ Body wire.Progress }

func (s *server) progress(ctx context.Context, in *progressInput) (*none, error) {
	return nil, s.Store.ReportProgress(ctx, auth.From(ctx).Attempt, in.Body.Percent)
}

type thirdPartyInput struct {
	Code string `path:"code" maxLength:"400"`
	Body wire.Said
}

func (s *server) thirdParty(ctx context.Context, in *thirdPartyInput) (*none, error) {
	return nil, s.Actions.ReportThirdParty(ctx, who(ctx), in.Code, in.Body.Period, capri.BatchNo(in.Body.BatchNo), in.Body.Said, in.Body.Reason)
}
