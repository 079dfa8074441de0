// Package dependency meets the conditions of waiting batches, set by set, never batch by batch (seed 002 §1.2). It
// has three rhythms under one lease:
//
//	changes   parents and third parties, from what changed (dependency_change); woken at once by a success or a report
//	paths     every 30 s: each distinct unmet path is asked once, in parallel, with a time limit; and at once those that
//	          a success has just produced, and those of batches that were just made
//	recount   every 5 min: all waiting batches; it must find nothing
//
// What a condition rests on is proved inside the UPDATE that meets it (sql/store); this package only finds candidates.
package dependency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"capri"
	"capri/files"
	"capri/services"
	"capri/sql/store"
	"capri/wake"
)

// Changes looks at what changed since the last turn.
type Changes struct {
	Store *store.Store
	Soon  *Soon
}

// changesAtOnce bounds a turn, so that a flood of changes is met piece by piece and children of the first need not
// wait for the last.
const changesAtOnce = 2000

// Run meets the parent and third-party conditions that changed.
func (c Changes) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	changes, err := c.Store.DependencyChanges(ctx, changesAtOnce)
	if err != nil || len(changes) == 0 {
		return services.Result{}, err
	}
	// Before the changes are forgotten: which paths to ask for does not follow from anything else.
	soon, err := c.Store.UnmetPathsAround(ctx, changes)
	if err != nil {
		return services.Result{}, err
	}
	met, err := c.Store.MeetChanged(ctx, t.Lease, changes)
	res := services.Result{Counts: map[string]int{"changes": len(changes), "met": met}, Again: len(changes) == changesAtOnce}
	if met > 0 {
		res.Wake = []string{wake.Dispatch}
	}
	if len(soon) > 0 {
		c.Soon.add(soon)
		res.Wake = append(res.Wake, TopicPaths)
	}
	return res, err
}

// TopicPaths wakes the paths part for what is in Soon.
const TopicPaths = "dependency:paths"

// Soon hands paths from changes to paths within this process: those that may be there now and need not wait for the
// next round. It is a hint. What is lost with the process, or was met meanwhile, the next round settles.
type Soon struct {
	mu    sync.Mutex
	paths map[capri.PathCondition]bool
}

func (s *Soon) add(paths []capri.PathCondition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil {
		s.paths = map[capri.PathCondition]bool{}
	}
	for _, p := range paths {
		s.paths[p] = true
	}
}

func (s *Soon) take() []capri.PathCondition {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := slices.Collect(maps.Keys(s.paths))
	s.paths = nil
	return paths
}

// Files tells which paths are there.
type Files interface {
	// There answers for each path, or with an error for those that could not be asked.
	There(ctx context.Context, paths []capri.PathCondition) ([]bool, error)
}

// Paths asks for every distinct unmet path, or when woken for those of Soon.
type Paths struct {
	Store *store.Store
	Soon  *Soon
	Files Files
	Log   *slog.Logger
}

// tries of asking: one and three more (seed 002 §1.2.2), then it is severe.
const tries = 4

// Run is one round.
func (p Paths) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	paths := p.Soon.take()
	if !t.Woken {
		var err error
		if paths, err = p.Store.UnmetPaths(ctx); err != nil {
			return services.Result{}, err
		}
	}
	if len(paths) == 0 {
		return services.Result{}, nil
	}
	// Each file system by itself, and what it answers is met at once: one that is slow holds up nobody else's batches.
	type answer struct {
		there []capri.PathCondition
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	systems := files.Systems(paths)
	answers := make(chan answer, len(systems))
	for _, some := range systems {
		go func() {
			there, err := p.ask(ctx, some)
			answers <- answer{there, err}
		}()
	}
	res := services.Result{Counts: map[string]int{"paths": len(paths), "there": 0, "met": 0}}
	var err, failed error
	for range systems {
		a := <-answers
		failed = errors.Join(failed, a.err)
		res.Counts["there"] += len(a.there)
		var met int
		if met, err = p.Store.MeetPaths(ctx, t.Lease, a.there); met > 0 {
			res.Counts["met"] += met
			res.Wake = []string{wake.Dispatch}
		}
		if err != nil {
			break
		}
	}
	if err == nil && failed != nil && ctx.Err() == nil {
		p.Log.Error("paths could not be checked", "err", failed)
		err = p.Store.WriteAs(ctx, "alert of paths that cannot be checked", t.Lease, func(tx *store.Tx) error {
			return tx.Alert(capri.Alert{Key: "paths_unchecked:" + t.Now.In(time.UTC).Format("2006010215"), Level: capri.Severe, Kind: "paths_unchecked",
				Title: "Input paths cannot be checked", Text: fmt.Sprintf("After %d tries: %v. Batches that wait for these paths stay waiting.", tries, failed)})
		})
	}
	return res, err
}

// ask returns the paths that are there, and the error that remained after the last try for those nobody could ask.
func (p Paths) ask(ctx context.Context, paths []capri.PathCondition) (there []capri.PathCondition, err error) {
	rest := paths
	for range tries {
		var answers []bool
		answers, err = p.Files.There(ctx, rest)
		if err == nil && len(answers) < len(rest) {
			err = fmt.Errorf("%d paths were asked for, %d answered", len(rest), len(answers))
		}
		var unseen *files.UnseenError
		some := errors.As(err, &unseen)
		var again []capri.PathCondition
		for i, path := range rest {
			switch {
			case i < len(answers) && answers[i]:
				there = append(there, path)
			case !some || unseen.Paths[path] != nil: // with an error of another kind, "not there" may mean "not asked"
				again = append(again, path)
			}
		}
		if err == nil || ctx.Err() != nil {
			return there, err
		}
		rest = again
	}
	return there, err
}

// Recount checks every waiting batch's count of unmet conditions against its conditions, and these against the facts.
type Recount struct {
	Store *store.Store
	Log   *slog.Logger
}

// Run repairs and alerts wrong counts, and meets what holds already and nobody told changes of. The latter may be on its
// way at this moment, so it is no alarm; a number that comes back hour after hour is a fault.
func (r Recount) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	res := services.Result{Counts: map[string]int{}}
	repaired, err := r.Store.SweepUnmet(ctx, t.Lease)
	if repaired > 0 {
		res.Counts["repaired"] = repaired
	}
	if err == nil {
		var healed int
		if healed, err = r.Store.HealUnmet(ctx, t.Lease); healed > 0 {
			res.Counts["healed"] = healed
			r.Log.Info("batches waited for what holds already", "batches", healed)
		}
	}
	if len(res.Counts) > 0 {
		res.Wake = []string{wake.Dispatch}
	}
	return res, err
}
