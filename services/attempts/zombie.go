package attempts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"capri"
	"capri/files"
	"capri/services"
	"capri/sql/store"
	"capri/wake"
)

// Files tells which paths are there.
type Files interface {
	// There answers for each path, or with an error for those that could not be asked.
	There(ctx context.Context, paths []capri.PathCondition) ([]bool, error)
}

// Zombie ends attempts that run by their rows and have no process on their node. Make it with NewZombie.
type Zombie struct {
	store *store.Store
	files Files
	log   *slog.Logger

	epoch  capri.Epoch
	absent map[capri.Attempt]absence
}

// absence is the first report of a node's life that did not list an attempt.
type absence struct {
	boot   string
	report int64
}

// NewZombie makes the service.
func NewZombie(s *store.Store, f Files, log *slog.Logger) *Zombie {
	return &Zombie{store: s, files: f, log: log, absent: map[capri.Attempt]absence{}}
}

const (
	longRunning = 10 * time.Minute // what started later has hardly been reported
	lookAgain   = time.Minute      // for the second report, as long as one is waited for
	askWithin   = 30 * time.Second // for the output paths: a file system that hangs must not keep the others from being judged
)

// Run is one look at what runs long.
func (z *Zombie) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	if z.epoch != t.Lease.Epoch {
		z.epoch = t.Lease.Epoch
		clear(z.absent)
	}
	gone, err := z.withoutProcess(ctx, t)
	if err != nil {
		return services.Result{}, err
	}
	res := services.Result{Counts: map[string]int{}}
	if len(z.absent) > 0 {
		res.Next = t.Now.Add(lookAgain)
	}
	if len(gone) == 0 {
		return res, nil
	}
	return res, z.end(ctx, t, gone, &res)
}

// node is one life of a node.
type node struct{ name, boot string }

// withoutProcess finds the attempts that two different reports of their node's present life did not list.
func (z *Zombie) withoutProcess(ctx context.Context, t services.Turn) (map[node][]capri.Attempt, error) {
	long, err := z.store.StartedBefore(ctx, t.Now.Add(-longRunning))
	if err != nil || len(long) == 0 {
		clear(z.absent)
		return nil, err
	}
	// Inventories first: what a node's new life has registered since then is seen below, and its old report is no word
	// of that life.
	inventories, err := z.store.Inventories(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := z.store.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	boots := map[string]string{}
	for _, n := range nodes {
		if !n.Lost {
			boots[n.Name] = n.BootID
		}
	}
	gone, still := map[node][]capri.Attempt{}, map[capri.Attempt]absence{}
	for _, a := range long {
		i, ok := inventories[a.Node]
		// A report from before the attempt's start cannot know it.
		if !ok || i.BootID != boots[a.Node] || i.At <= a.StartTime || i.Attempts[a.Attempt] {
			continue
		}
		switch first, ok := z.absent[a.Attempt]; {
		case !ok || first.boot != i.BootID:
			still[a.Attempt] = absence{i.BootID, i.Report}
		case first.report == i.Report:
			still[a.Attempt] = first
		default:
			n := node{a.Node, i.BootID}
			gone[n] = append(gone[n], a.Attempt)
		}
	}
	z.absent = still
	return gone, nil
}

// end judges attempts as their worker would have, and writes it.
func (z *Zombie) end(ctx context.Context, t services.Turn, gone map[node][]capri.Attempt, res *services.Result) error {
	var ids []capri.BatchID
	for _, attempts := range gone {
		for _, a := range attempts {
			ids = append(ids, a.Batch)
		}
	}
	slices.Sort(ids)
	judged, err := z.store.Judged(ctx, ids)
	if err != nil {
		return err
	}
	there, unseen := z.ask(ctx, judged)
	by := map[capri.BatchID]store.Judged{}
	for _, b := range judged {
		by[b.ID] = b
	}
	var failed error
	for n, attempts := range gone {
		var results []store.Result
		for _, a := range attempts {
			b, ok := by[a.Batch]
			if !ok {
				continue
			}
			if why := unasked(b, unseen); why != nil {
				res.Counts["unasked"]++
				z.log.Warn("an attempt has no process, and its output cannot be looked at: it is left as it is until the next hour", "attempt", a.String(), "node", n.name, "err", why)
				continue
			}
			r := judge(b, there)
			r.Attempt = a
			r.Message = fmt.Sprintf("node %s has no process of it any more: %s", n.name, r.Message)
			results = append(results, r)
		}
		if len(results) == 0 {
			continue
		}
		done, err := z.store.EndZombies(ctx, t.Lease, n.name, n.boot, results)
		failed = errors.Join(failed, err)
		if done > 0 {
			res.Counts["zombies"] += done
			res.Wake = []string{wake.Dispatch, wake.Dependency}
		}
	}
	return failed
}

// judge says what an attempt without a process has come to (seed 002 §1.9): only an output can still speak for it.
func judge(b store.Judged, there map[capri.PathCondition]bool) store.Result {
	r := store.Result{Outcome: store.Failed, Retries: b.Task.Retry.Failed, RetryInterval: time.Duration(b.Task.Retry.FailedIntervalS) * time.Second}
	missing := slices.IndexFunc(b.Outputs, func(p capri.PathCondition) bool { return !there[p] })
	switch {
	case b.Task.Check != capri.CheckOutputPath:
		r.Message = "nobody knows how it ended"
	case len(b.Outputs) == 0:
		r.Message = "it is judged by its outputs and names none"
	case missing >= 0:
		r.Message = files.Name(b.Outputs[missing]) + " is not there"
	case b.RunNo > 0: // the run before left its flags as well, and children must not read those as new
		r.Message = "its output is there, but may be the one of the run before"
	default:
		r.Outcome, r.Message = store.Succeeded, "its output is there"
	}
	return r
}

// ask looks for the outputs of all batches that are judged by them, each path once.
func (z *Zombie) ask(ctx context.Context, batches []store.Judged) (there map[capri.PathCondition]bool, unseen map[capri.PathCondition]error) {
	there, unseen = map[capri.PathCondition]bool{}, map[capri.PathCondition]error{}
	var paths []capri.PathCondition
	for _, b := range batches {
		if b.Task.Check != capri.CheckOutputPath {
			continue
		}
		for _, p := range b.Outputs {
			if _, ok := there[p]; !ok {
				there[p] = false
				paths = append(paths, p)
			}
		}
	}
	if len(paths) == 0 {
		return there, unseen
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	answers, err := z.files.There(ctx, paths)
	var some *files.UnseenError
	partly := errors.As(err, &some)
	for i, p := range paths {
		switch {
		case i < len(answers) && answers[i]:
			there[p] = true
		case partly && some.Paths[p] != nil:
			unseen[p] = some.Paths[p]
		case err != nil && !partly:
			unseen[p] = err // "not there" may mean "not asked"
		case i >= len(answers):
			unseen[p] = fmt.Errorf("%d paths were asked for, %d answered", len(paths), len(answers))
		}
	}
	return there, unseen
}

// unasked gives the reason why a batch cannot be judged yet.
func unasked(b store.Judged, unseen map[capri.PathCondition]error) error {
	if b.Task.Check == capri.CheckOutputPath {
		for _, p := range b.Outputs {
			if err := unseen[p]; err != nil {
				return fmt.Errorf("%s: %w", files.Name(p), err)
			}
		}
	}
	return nil
}
