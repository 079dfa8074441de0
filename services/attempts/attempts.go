// Package attempts judges attempts whose node does not speak for them (design §5.2, seed 002 §1.9). Two services, which
// share a lease since they judge the same rows:
//
//	lost-nodes  every 5 s    a node's beat stands still ──▶ lost; its batches run elsewhere
//	zombie      every hour   the row says running, the node's inventory does not know it, twice ──▶ success or failure
//
// Calling a node lost too early would run a job twice at once, so nothing here compares two clocks: LostNodes counts on
// its own monotonic clock how long a counter has not moved, and begins anew whenever it may have missed something. A
// node ends its own jobs well before that (package worker).
package attempts

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"capri"
	"capri/services"
	"capri/sql/store"
	"capri/wake"
)

// LostNodes finds nodes that have fallen silent. Make it with NewLostNodes. What it keeps is lost with the process: the
// next leader counts anew, and a node is called lost a little later.
type LostNodes struct {
	store     *store.Store
	log       *slog.Logger
	lostAfter time.Duration
	now       func() time.Time

	epoch  capri.Epoch
	read   time.Time        // when our newest look succeeded
	seen   map[string]sight // by node
	folded map[string]int   // how often a node was called lost since an alert said so
}

// sight is a node as it was when it last moved, as far as we saw.
type sight struct {
	boot  string
	beat  int64
	since time.Time
	told  bool // an alert says that it is silent and left alone
}

// NewLostNodes makes the service. lostAfter is the shortest silence of a lost node; now is a clock that is never set, as
// time.Now is between two of its readings.
func NewLostNodes(s *store.Store, lostAfter time.Duration, now func() time.Time, log *slog.Logger) *LostNodes {
	return &LostNodes{store: s, log: log, lostAfter: lostAfter, now: now, seen: map[string]sight{}, folded: map[string]int{}}
}

const (
	// maxGap is the longest time between two looks. In a longer one the database may have been away, and then no node
	// could beat.
	maxGap = 20 * time.Second
	// margin is added to what a node takes to end its jobs by itself: for its timers, and for the way of its last beat.
	margin = 15 * time.Second
	// removed stands for the beat of a node without a registration.
	removed = -1
)

// Run is one look at all nodes.
func (l *LostNodes) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	began := l.now()
	nodes, err := l.store.Nodes(ctx)
	if err != nil {
		return services.Result{}, err
	}
	busy, err := l.store.BusyNodes(ctx)
	if err != nil {
		return services.Result{}, err
	}
	ended := l.now()
	if l.epoch != t.Lease.Epoch || ended.Sub(l.read) > maxGap {
		clear(l.seen)
	}
	l.epoch, l.read = t.Lease.Epoch, ended

	res := services.Result{Counts: map[string]int{}}
	present := make(map[string]bool, len(nodes))
	var failed error // about one node; the others are judged all the same
	for _, n := range nodes {
		present[n.Name] = true
		failed = errors.Join(failed, l.judge(ctx, t, n, busy[n.Name], l.silence(n.Name, n.BootID, n.Beat, began, ended), &res))
	}
	for name := range busy {
		if present[name] {
			continue
		}
		present[name] = true
		// Somebody removed the registration. Its worker, if it lives, finds that out at its next beat.
		if silent := l.silence(name, "", removed, began, ended); silent >= l.lostAfter {
			failed = errors.Join(failed, l.lose(ctx, t, store.SilentNode{Name: name, Removed: true, Silent: silent, Folded: l.folded[name]}, &res))
		}
	}
	for name := range l.seen {
		if !present[name] {
			delete(l.seen, name)
		}
	}
	return res, failed
}

// silence tells how long a node has certainly not moved: from the end of the look that first saw it so, to the begin of
// this one.
func (l *LostNodes) silence(name, boot string, beat int64, began, ended time.Time) time.Duration {
	s, ok := l.seen[name]
	if !ok || s.boot != boot || s.beat != beat {
		l.seen[name] = sight{boot: boot, beat: beat, since: ended}
		return 0
	}
	return max(0, began.Sub(s.since))
}

// judge decides about a registered node.
func (l *LostNodes) judge(ctx context.Context, t services.Turn, n capri.Node, busy int, silent time.Duration, res *services.Result) error {
	s := store.SilentNode{Name: n.Name, BootID: n.BootID, Beat: n.Beat, Meant: n.Draining || n.BootID == "", Silent: silent, Folded: l.folded[n.Name]}
	switch {
	case n.Lost:
		if busy == 0 {
			return nil
		}
		return l.lose(ctx, t, s, res) // they were assigned while it was called lost
	case silent < max(l.lostAfter, n.KillAfter+n.KillGrace+margin):
		return nil
	case n.BootID != "" && (n.LeaseWait || n.KillAfter == 0): // its jobs may run on for ever: nobody but a person can know
		return l.tellSilent(ctx, t, s, busy, res)
	}
	return l.lose(ctx, t, s, res)
}

func (l *LostNodes) lose(ctx context.Context, t services.Turn, s store.SilentNode, res *services.Result) error {
	done, err := l.store.LoseNode(ctx, t.Lease, s)
	if err != nil || !done.Done {
		return err
	}
	l.log.Warn("a node is lost", "node", s.Name, "silent", s.Silent, "waiting", done.Waiting, "ended", done.Ended)
	if l.folded[s.Name]++; done.Alerted {
		delete(l.folded, s.Name)
	}
	res.Counts["lost"]++
	if n := done.Waiting + done.Ended; n > 0 {
		res.Counts["batches"] += n
	}
	res.Wake = []string{wake.Dispatch}
	return nil
}

// tellSilent alerts once for each silence of a node whose jobs are left alone.
func (l *LostNodes) tellSilent(ctx context.Context, t services.Turn, s store.SilentNode, busy int, res *services.Result) error {
	seen := l.seen[s.Name]
	if seen.told || s.Meant && busy == 0 {
		return nil
	}
	if err := l.store.TellSilent(ctx, t.Lease, s, busy); err != nil {
		return err
	}
	seen.told = true
	l.seen[s.Name] = seen
	res.Counts["silent"]++
	return nil
}
