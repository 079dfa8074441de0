// Package quality asks the quality API about batches whose conditions are met and that have a quality gate (seed 002
// §1.11). It asks and does not wait: the verdict comes by a call to our own API, whenever it comes.
//
//	at the gate ──▶ number + 1 ──▶ POST {task, batch, ask …} ──2xx──▶ asked
//	 (to be asked)    (store)        up to 16 at once                   │   later, by the API's operation quality-verdict:
//	      ▲                              │ no 2xx: tried again          └──────▶ runnable, or blocked
//	      └──────────────────────────────┘
//
// The number is stored before anybody is asked. If the process dies in between, the batch is asked about again under
// the next number: at least once, and only the newest question's verdict counts.
package quality

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"capri"
	"capri/services"
	"capri/sql/store"
)

// Question is what the quality API is told. It answers by a POST of {ask, verdict, reason} to Callback.
type Question struct {
	Task      string        `json:"task"`
	BatchID   capri.BatchID `json:"batch_id"`
	BatchNo   capri.BatchNo `json:"batch_no"`
	RunNo     int           `json:"run_no"`
	Ask       int           `json:"ask"`
	DataStart string        `json:"data_start"` // RFC 3339, in the business zone
	DataEnd   string        `json:"data_end"`
	Callback  string        `json:"callback"`
}

// Service asks. Make it with New. From turn to turn it keeps only how it went on, which spares work and decides nothing.
type Service struct {
	store  *store.Store
	zone   *time.Location
	ask    func(context.Context, Question) error
	server string // of our own API, as the quality API reaches it
	log    *slog.Logger

	looked capri.Instant
	from   store.ReadyAfter // where the next turn goes on
	told   string           // the day on which it was last said that nobody can be asked
}

// Options of the service.
type Options struct {
	Store  *store.Store
	Zone   *time.Location                        // of business time
	Ask    func(context.Context, Question) error // nil: no quality API is configured
	Server string                                // the address of this API as the quality API reaches it; "": the callback is a path alone
	Log    *slog.Logger
}

// New makes the service.
func New(o Options) *Service {
	return &Service{store: o.Store, zone: o.Zone, ask: o.Ask, server: o.Server, log: o.Log}
}

const (
	page     = 500             // batches of one turn
	parallel = 16              // questions at once
	tries    = 4               // one and three more (as for conditions, seed 002 §1.2.2)
	longest  = time.Minute     // all asking of one turn; who hangs must not hold up everybody behind him for longer
	pause    = 5 * time.Second // between looks that wake-ups cause: they come with every batch that ends
)

// Run is one turn.
func (s *Service) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	if since := t.Now.Sub(s.looked); t.Woken && since >= 0 && since < pause {
		return services.Result{Next: s.looked.Add(pause)}, nil
	}
	s.looked = t.Now
	from := s.from
	gated, err := s.store.Gated(ctx, from, page)
	if err == nil && len(gated) == 0 && from.ID != 0 { // the end of the list: around again
		s.from = store.ReadyAfter{}
		gated, err = s.store.Gated(ctx, s.from, page)
	}
	if err != nil || len(gated) == 0 {
		return services.Result{}, err
	}
	if s.ask == nil {
		return services.Result{}, s.nobodyToAsk(ctx, t, gated)
	}
	ids := make([]capri.BatchID, len(gated))
	for i, g := range gated {
		ids[i] = g.ID
	}
	asks, err := s.store.BeginAsk(ctx, t.Lease, ids)
	if err != nil {
		return services.Result{}, err
	}
	asked, failed, reached := s.questions(ctx, gated, asks)
	// What was not come to in this turn is where the next one begins, so that those who hang are not always first.
	switch {
	case reached == 0:
	case reached < len(gated) || len(gated) == page:
		s.from = gated[reached-1].Place
	default:
		s.from = store.ReadyAfter{}
	}
	res := services.Result{Counts: map[string]int{}, Again: len(gated) == page && len(asked) > 0}
	if len(asked) > 0 {
		if res.Counts["asked"], err = s.store.Asked(ctx, t.Lease, asked); err != nil {
			return res, err
		}
	}
	if len(failed) > 0 {
		res.Counts["failed"] = len(failed)
		err = s.alertFailed(ctx, t, gated, failed)
	}
	return res, err
}

// questions asks about each batch that has a number, in order, and again about those that gave no answer. reached is
// how many of gated were come to before the turn's time was over.
func (s *Service) questions(ctx context.Context, gated []store.Gated, asks map[capri.BatchID]int) (asked map[capri.BatchID]int, failed map[capri.BatchID]error, reached int) {
	within, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	asked, failed = map[capri.BatchID]int{}, map[capri.BatchID]error{}
	rest := make([]int, 0, len(gated))
	for i, g := range gated {
		if asks[g.ID] > 0 { // else it has left the gate since it was listed
			rest = append(rest, i)
		}
	}
	for try := 0; try < tries && len(rest) > 0; try++ {
		errs := make([]error, len(rest))
		came := len(rest)
		var eg errgroup.Group
		eg.SetLimit(parallel)
		for n, i := range rest {
			if within.Err() != nil {
				came = n
				break
			}
			eg.Go(func() error {
				errs[n] = s.ask(within, s.question(gated[i], asks[gated[i].ID]))
				return nil
			})
		}
		_ = eg.Wait() // errors are in errs
		if try == 0 {
			if reached = len(gated); came < len(rest) {
				reached = rest[came]
			}
		}
		var again []int
		for n, i := range rest[:came] {
			id := gated[i].ID
			if errs[n] == nil {
				asked[id] = asks[id]
				delete(failed, id)
				continue
			}
			failed[id] = errs[n]
			again = append(again, i)
		}
		if rest = again; within.Err() != nil {
			break
		}
	}
	return asked, failed, reached
}

func (s *Service) question(g store.Gated, ask int) Question {
	at := func(i capri.Instant) string { return i.In(s.zone).Format(time.RFC3339) }
	return Question{Task: g.Task, BatchID: g.ID, BatchNo: g.BatchNo, RunNo: g.RunNo, Ask: ask, DataStart: at(g.DataStart), DataEnd: at(g.DataEnd),
		Callback: fmt.Sprintf("%s/api/v1/batches/%d/quality", s.server, g.ID)}
}

// alertFailed tells admins once an hour, and each batch's message what was said last, for `capri why`.
func (s *Service) alertFailed(ctx context.Context, t services.Turn, gated []store.Gated, failed map[capri.BatchID]error) error {
	reasons, example := map[string][]capri.BatchID{}, ""
	for _, g := range gated {
		err := failed[g.ID]
		if err == nil {
			continue
		}
		note := store.GateMessage + err.Error()
		if example == "" {
			example = fmt.Sprintf("batch %d of %s: %v", g.ID, g.Task, err)
		}
		if g.Message != note {
			reasons[note] = append(reasons[note], g.ID)
		}
	}
	s.log.Error("the quality API could not be asked", "batches", len(failed), "first", example)
	if err := s.store.Explain(ctx, t.Lease, reasons); err != nil {
		return err
	}
	return s.store.WriteAs(ctx, "alert of a quality API that cannot be asked", t.Lease, func(tx *store.Tx) error {
		return tx.Alert(capri.Alert{Key: "quality_unasked:" + t.Now.In(time.UTC).Format("2006010215"), Level: capri.Important, Kind: "quality_unasked",
			Title: "The quality API could not be asked", Text: fmt.Sprintf("%d batches wait for it. After %d tries: %s. It is tried again each half minute; "+
				"capri quality ID --runnable lets a batch start without it.", len(failed), tries, example)})
	})
}

// nobodyToAsk says once a business day that gates were defined and no quality API was.
func (s *Service) nobodyToAsk(ctx context.Context, t services.Turn, gated []store.Gated) error {
	const note = store.GateMessage + "no quality API is configured (quality.url)"
	var silent []capri.BatchID
	for _, g := range gated {
		if g.Message != note {
			silent = append(silent, g.ID)
		}
	}
	day := t.Now.In(s.zone).Format(time.DateOnly)
	if len(silent) == 0 && s.told == day {
		return nil
	}
	s.told = day
	if err := s.store.Explain(ctx, t.Lease, map[string][]capri.BatchID{note: silent}); err != nil {
		return err
	}
	return s.store.WriteAs(ctx, "alert of a missing quality API", t.Lease, func(tx *store.Tx) error {
		return tx.Alert(capri.Alert{Key: "quality_unconfigured:" + day, Level: capri.Important, Kind: "quality_unconfigured",
			Title: "Batches wait at a quality gate, and no quality API is configured",
			Text:  fmt.Sprintf("At least %d batches wait, the first is %d of task %s. Set quality.url, take quality_gate off the task, or open a gate by hand: capri quality ID --runnable.", len(gated), gated[0].ID, gated[0].Task)})
	})
}
