package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// watcher asks the database directly, ten times a second, and remembers what changed. It is how the report knows when
// somebody led again: what the cluster itself writes down is coarser, or is what has to be checked.
type watcher struct {
	c *cluster

	mu     sync.Mutex
	leases map[string]grant     // by service: the newest
	grants []grant              // every change
	turns  map[string][]turn    // by row of the timetable, a completed turn seen
	nodes  map[string][]sighted // by node, each change
	down   []span               // no answer
}

// Times are real epoch milliseconds.
type (
	grant struct {
		at              int64
		service, holder string
		epoch           int64
	}
	turn struct {
		at, epoch int64
	}
	sighted struct {
		at, beat int64
		boot     string
		lost     bool
	}
	span struct{ from, to int64 }
)

func newWatcher(c *cluster) *watcher {
	return &watcher{c: c, leases: map[string]grant{}, turns: map[string][]turn{}, nodes: map[string][]sighted{}}
}

const watchEvery = 100 * time.Millisecond

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		look, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := w.look(look)
		cancel()
		if err != nil && ctx.Err() == nil {
			w.mu.Lock()
			at, now := began.UnixMilli(), time.Now().UnixMilli()
			if n := len(w.down); n > 0 && at-w.down[n-1].to < 500 {
				w.down[n-1].to = now
			} else {
				w.down = append(w.down, span{at, now})
			}
			w.mu.Unlock()
		}
		pause(ctx, watchEvery-time.Since(began))
	}
}

func (w *watcher) look(ctx context.Context) error {
	if err := w.read(ctx, "SELECT service, holder, epoch FROM capri_service_lock", func(now int64, scan func(...any) error) error {
		g := grant{at: now}
		if err := scan(&g.service, &g.holder, &g.epoch); err != nil {
			return err
		}
		if was := w.leases[g.service]; was.epoch != g.epoch || was.holder != g.holder {
			w.leases[g.service] = g
			w.grants = append(w.grants, g)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := w.read(ctx, "SELECT service, epoch, COALESCE(completed_at, 0), duration_ms FROM service_state", func(_ int64, scan func(...any) error) error {
		var name string
		var t turn
		var took int64 // in real time, and added as such to business time
		if err := scan(&name, &t.epoch, &t.at, &took); err != nil || t.at == 0 {
			return err
		}
		t.at = w.c.real(t.at-took) + took
		if all := w.turns[name]; len(all) == 0 || all[len(all)-1] != t {
			w.turns[name] = append(all, t)
		}
		return nil
	}); err != nil {
		return err
	}
	return w.read(ctx, "SELECT host, beat, boot_id, lost FROM capri_schedul_cluster", func(now int64, scan func(...any) error) error {
		var name string
		s := sighted{at: now}
		if err := scan(&name, &s.beat, &s.boot, &s.lost); err != nil {
			return err
		}
		all := w.nodes[name]
		if len(all) == 0 || all[len(all)-1].beat != s.beat || all[len(all)-1].boot != s.boot || all[len(all)-1].lost != s.lost {
			w.nodes[name] = append(all, s)
		}
		return nil
	})
}

// read asks and hands each row over under the watcher's lock.
func (w *watcher) read(ctx context.Context, text string, row func(now int64, scan func(...any) error) error) error {
	rows, err := w.c.db.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close()
	now := time.Now().UnixMilli()
	w.mu.Lock()
	defer w.mu.Unlock()
	for rows.Next() {
		if err := row(now, rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// leader is the master that holds a lease, as last seen; "" nobody.
func (w *watcher) leader(service string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	name, _, _ := strings.Cut(w.leases[service].holder, "/")
	return name
}

// leads is what a master held at an instant, with the epochs.
func (w *watcher) leads(master string, at int64) map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := map[string]int64{}
	for _, g := range w.grants {
		if g.at > at {
			break
		}
		delete(held, g.service)
		if name, _, _ := strings.Cut(g.holder, "/"); name == master {
			held[g.service] = g.epoch
		}
	}
	return held
}

// quiet says whether no lease has changed hands for so long.
func (w *watcher) quiet(long time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.grants)
	return n > 0 && time.Since(time.UnixMilli(w.grants[n-1].at)) > long
}

// busiest is the worker that runs most now.
func (w *watcher) busiest() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var name string
	if err := w.c.db.QueryRowContext(ctx, "SELECT node FROM task_work WHERE state = 2 GROUP BY node ORDER BY COUNT(*) DESC, node LIMIT 1").Scan(&name); err != nil {
		return ""
	}
	return name
}

// youngestLasting is the worker whose job of a lasting task began last: it will run for longest.
func (w *watcher) youngestLasting() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var name string
	if err := w.c.db.QueryRowContext(ctx, "SELECT b.node FROM task_work b JOIN task t ON t.id = b.task_id WHERE b.state = 2 AND b.start_time IS NOT NULL AND t.name LIKE ? ORDER BY b.start_time DESC, b.id LIMIT 1",
		lastingShape+"%").Scan(&name); err != nil {
		return ""
	}
	return name
}

// changed says whether a lease changed hands between two instants.
func (w *watcher) changed(service string, from, to int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.grants, func(g grant) bool { return g.service == service && g.at > from && g.at <= to })
}

// calledLost is when a node was seen to be called lost between two instants; 0: it was not.
func (w *watcher) calledLost(node string, from, to int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.nodes[node] {
		if s.lost && s.at > from && s.at <= to {
			return s.at
		}
	}
	return 0
}

// addRuns adds the turns that service_run holds: each that did something, while service_state has the newest alone.
func (w *watcher) addRuns(ctx context.Context) error {
	return w.read(ctx, "SELECT service, epoch, started_at, duration_ms FROM service_run WHERE error = '' ORDER BY id", func(_ int64, scan func(...any) error) error {
		var name string
		var t turn
		var took int64
		if err := scan(&name, &t.epoch, &t.at, &took); err != nil {
			return err
		}
		t.at = w.c.real(t.at) + took
		w.turns[name] = append(w.turns[name], t)
		return nil
	})
}

// completed lists the ends of a service's turns, of all its rhythms, after an instant and above an epoch.
func (w *watcher) completed(service string, after, above int64) []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []int64
	for name, turns := range w.turns {
		if name != service && !strings.HasPrefix(name, service+"/") {
			continue
		}
		for _, t := range turns {
			if t.at > after && t.epoch > above {
				all = append(all, t.at)
			}
		}
	}
	return sorted(all)
}

// recovered is when, after an instant, both services of the critical way had done a turn and each node had beaten and
// was not lost, except those that something else keeps from it; 0: not before the end.
func (w *watcher) recovered(after int64, except map[string]bool) int64 {
	last := after
	for _, service := range []string{"dispatch", "dependency"} {
		done := w.completed(service, after, 0)
		if len(done) == 0 {
			return 0
		}
		last = max(last, done[0])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, node := range w.nodes {
		if except[name] {
			continue
		}
		found := false
		for i, s := range node {
			if s.at > after && !s.lost && (i == 0 || node[i-1].beat != s.beat || node[i-1].boot != s.boot) {
				last, found = max(last, s.at), true
				break
			}
		}
		if !found {
			return 0
		}
	}
	return last
}
