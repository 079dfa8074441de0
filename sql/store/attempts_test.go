package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/internal/testenv"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestWhatIsAssigned_is_found_by_its_state(t *testing.T) {
	each(t, func(w *world) {
		w.many(waitsForThirdParty())
		if w.Store.Dialect().Name == "mysql" { // with the statistics of an empty table it would say the same of any query
			rows, err := w.Store.DB().QueryContext(w.ctx, "ANALYZE TABLE task_work")
			require.NoError(t, err)
			rows.Close()
		}
		for name, ask := range map[string]func() (string, []any){
			"overdue": func() (string, []any) { return store.OverdueText(w.Clock.Now()) },
			"busy":    store.BusyNodesText,
		} {
			text, args := ask()
			plan := strings.Join(w.plan(text, args), "\n")
			require.Contains(t, plan, "task_work_ready", "%s: else it reads what has ended, too", name)
			if w.Store.Dialect().Name == "sqlite" {
				require.Contains(t, plan, "(state=", name)
			}
		}
		text, args := store.TakenText("n1", "n2")
		require.Contains(t, strings.Join(w.plan(text, args), "\n"), "capri_reschedule_log_node")
	})
}

func TestAClaim_and_a_taking_back_at_once_leave_the_batch_to_one(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		var batches []*capri.NewBatch
		for _, task := range w.Tasks(t, 60, func(int, *capri.Spec) {}) {
			batches = append(batches, w.batch(task, "20261119", capri.Conditions{}))
		}
		w.insert(batches...)
		for _, b := range batches {
			w.assign(b.ID)
		}
		overdue, err := w.Store.Overdue(w.ctx, w.Clock.Now(), 0, 100)
		require.NoError(t, err)
		require.Len(t, overdue, len(batches))
		var claimed []store.Claimed
		var taken int
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 12 {
				some, err := w.Store.Claim(w.ctx, node, boot, 5)
				if err != nil {
					t.Error(err)
				}
				claimed = append(claimed, some...)
			}
		})
		wg.Go(func() {
			for len(overdue) > 0 {
				last := max(0, len(overdue)-5) // from the other end
				n, err := w.Store.Reschedule(w.ctx, w.dispatch, overdue[last:], store.TakenLimits{})
				if err != nil {
					t.Error(err)
				}
				taken, overdue = taken+n, overdue[:last]
			}
		})
		wg.Wait()
		states := map[capri.State]int{}
		for _, b := range batches {
			states[w.get(b.ID).State]++
		}
		require.Equal(t, map[capri.State]int{capri.Running: len(claimed), capri.Waiting: taken}, drop(states))
		require.Equal(t, len(batches), len(claimed)+taken)
	})
}

// drop takes the zeros out.
func drop(m map[capri.State]int) map[capri.State]int {
	out := map[capri.State]int{capri.Running: 0, capri.Waiting: 0}
	for k, n := range m {
		out[k] = n
	}
	return out
}

func TestARemovedNode_has_been_silent_or_has_nothing_in_hand(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		remove := func() error {
			return w.Store.Write(w.ctx, "remove", "alice", func(tx *store.Tx) error { return tx.RemoveNode(node) })
		}
		b := w.insert(w.batch(w.Task(t, nil), "20261119", capri.Conditions{})).Made[0]
		w.start(b.ID)
		w.Clock.Advance(2 * time.Minute)
		require.ErrorIs(t, remove(), capri.ErrConflict)
		w.Clock.Advance(time.Minute)
		require.NoError(t, remove())
		require.ErrorIs(t, remove(), capri.ErrNotFound)
		require.Equal(t, capri.Running, w.get(b.ID).State, "whoever looks for lost nodes takes it from there")
	})
}

// lossy is a random walk of all that can happen to attempts whose nodes come and go: claims, starts and ends, while
// nodes are called lost or removed, batches are taken back, jobs vanish, and people kill. Its rules are those of the
// worker: one that has been silent has ended its jobs before anybody calls it lost, and starts none.
type lossy struct {
	walk
	attempts capri.Lease
	nodes    []*lossyNode
	judged   []judgement // of the zombie service alone

	amu   sync.Mutex
	alive map[capri.BatchID]capri.Attempt
}

// judgement is what the zombie service has found out about attempts of a node's life.
type judgement struct {
	node, boot string
	results    []store.Result
	written    bool
}

type lossyNode struct {
	name string

	mu        sync.Mutex
	boot      int
	frozen    bool
	life      int // grows when it is frozen: what was asked before has no effect after
	preparing map[capri.Attempt]bool
	running   map[capri.Attempt]bool
}

func TestARandomWalk_of_losses_leaves_one_attempt_alive_and_no_batch_behind(t *testing.T) {
	seed := testenv.Seed(t)
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		w := &lossy{alive: map[capri.BatchID]capri.Attempt{}, attempts: db.Lease(t, "attempts"), walk: walk{seed: seed, took: map[string]int{},
			world: &world{DB: db, t: t, ctx: t.Context(), dependency: db.Lease(t, "dependency"), dispatch: db.Lease(t, "dispatch")}}}
		w.stores = []*store.Store{db.Store}
		if db.Store.Dialect().Name == "mysql" { // a SQLite file belongs to one process
			w.stores = append(w.stores, db.Again(t))
		}
		for _, task := range w.Tasks(t, 60, func(int, *capri.Spec) {}) {
			w.batches = append(w.batches, w.batch(task, "20261119", capri.Conditions{}))
		}
		w.insert(w.batches...)
		w.runs = w.batches
		for _, b := range w.batches {
			w.ids = append(w.ids, b.ID)
		}
		for i := range 3 {
			n := &lossyNode{name: nodeName(i)}
			require.NoError(t, w.renew(n, db.Store))
			w.nodes = append(w.nodes, n)
		}
		steps := 250
		if testing.Short() {
			steps = 80
		}
		actors := []func(*rand.Rand, *store.Store) error{w.placeAnywhere, w.takeBack, w.lose, w.zombie, w.kill}
		for _, n := range w.nodes {
			actors = append(actors, func(rng *rand.Rand, s *store.Store) error { return w.live(rng, s, n) })
		}
		var wg sync.WaitGroup
		for i, actor := range actors {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				for step := range steps {
					if t.Failed() {
						return
					}
					if err := actor(rng, w.stores[rng.IntN(len(w.stores))]); err != nil {
						t.Errorf("actor %d, step %d: %v", i, step, err)
						return
					}
					db.Clock.Advance(time.Duration(rng.IntN(2000)) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if !t.Failed() {
			w.settle()
			w.check()
		}
		t.Logf("%d starts, %v", w.started, w.took)
	})
}

func (w *lossy) renew(n *lossyNode, s *store.Store) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for a := range n.running {
		w.dies(a)
	}
	n.boot++
	n.preparing, n.running = map[capri.Attempt]bool{}, map[capri.Attempt]bool{}
	return s.RegisterNode(w.ctx, capri.Node{Name: n.name, BootID: fmt.Sprint("boot-", n.boot), Pool: "default", Slots: 100, CheckInterval: 5}, "dir-"+n.name)
}

func (w *lossy) begins(a capri.Attempt) error {
	w.amu.Lock()
	defer w.amu.Unlock()
	if other, ok := w.alive[a.Batch]; ok {
		return fmt.Errorf("attempt %s begins while %s is alive", a, other)
	}
	w.alive[a.Batch] = a
	w.started++
	return nil
}

func (w *lossy) dies(a capri.Attempt) {
	w.amu.Lock()
	defer w.amu.Unlock()
	if w.alive[a.Batch] == a {
		delete(w.alive, a.Batch)
	}
}

func (w *lossy) placeAnywhere(rng *rand.Rand, s *store.Store) error {
	ready, err := s.Ready(w.ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 100)
	if err != nil {
		return err
	}
	var to []store.Assignment
	for _, b := range ready {
		to = append(to, store.Assignment{Batch: b.ID, Node: w.nodes[rng.IntN(len(w.nodes))].name}) // also to one that is lost by now
	}
	_, err = s.Assign(w.ctx, w.dispatch, to)
	return err
}

func (w *lossy) takeBack(rng *rand.Rand, s *store.Store) error {
	if rng.IntN(4) > 0 {
		return rest()
	}
	overdue, err := s.Overdue(w.ctx, w.Clock.Now().Add(-time.Duration(20+rng.IntN(40))*time.Second), 0, 1+rng.IntN(20))
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond) // what was read grows old
	n, err := s.Reschedule(w.ctx, w.dispatch, overdue, store.TakenLimits{Important10: 3})
	w.note("taken", n)
	return err
}

// rest keeps those who have little to do from being done long before the others.
func rest() error {
	time.Sleep(3 * time.Millisecond)
	return nil
}

func (w *lossy) note(what string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took[what] += n
}

// lose lets a node fall silent: its jobs end, and then it is called lost, if it has not beaten meanwhile.
func (w *lossy) lose(rng *rand.Rand, s *store.Store) error {
	if rng.IntN(20) > 0 {
		return rest()
	}
	n := w.nodes[rng.IntN(len(w.nodes))]
	all, err := s.Nodes(w.ctx)
	if err != nil {
		return err
	}
	silent := store.SilentNode{Name: n.name, Silent: 3 * time.Minute}
	for _, r := range all {
		if r.Name == n.name {
			silent.BootID, silent.Beat = r.BootID, r.Beat
		}
	}
	n.mu.Lock()
	n.frozen = true
	n.life++
	for a := range n.running {
		w.dies(a)
	}
	clear(n.running)
	clear(n.preparing)
	n.mu.Unlock()
	if rng.IntN(4) == 0 { // somebody removes it by hand
		if _, err := w.Store.DB().ExecContext(w.ctx, "DELETE FROM capri_schedul_cluster WHERE host = ?", n.name); err != nil && !s.Dialect().IsRetryable(err) {
			return err
		}
		silent.Removed = true
	}
	done, err := s.LoseNode(w.ctx, w.attempts, silent)
	n.mu.Lock()
	n.frozen = false
	n.mu.Unlock()
	if done.Done {
		w.note("nodes lost", 1)
		w.note("batches lost", done.Waiting+done.Ended)
	}
	return err
}

// zombie ends a job without a word, and then its row.
func (w *lossy) zombie(rng *rand.Rand, s *store.Store) error {
	n := w.nodes[rng.IntN(len(w.nodes))]
	n.mu.Lock()
	boot := fmt.Sprint("boot-", n.boot)
	var results []store.Result
	for a := range n.running {
		if rng.IntN(10) == 0 {
			w.dies(a)
			delete(n.running, a)
			results = append(results, store.Result{Attempt: a, Outcome: []store.Outcome{store.Succeeded, store.Failed}[rng.IntN(2)], Message: "no process", Retries: 3})
		}
	}
	n.mu.Unlock()
	if len(results) > 0 {
		w.judged = append(w.judged, judgement{node: n.name, boot: boot, results: results})
	}
	if len(w.judged) == 0 {
		return rest()
	}
	j := &w.judged[len(w.judged)-1]
	if rng.IntN(2) == 0 {
		j = &w.judged[rng.IntN(len(w.judged))] // an old one: those batches have gone on since
	}
	ended, err := s.EndZombies(w.ctx, w.attempts, j.node, j.boot, j.results)
	if j.written && ended > 0 {
		return fmt.Errorf("%d attempts that were over were ended once more: %+v", ended, j.results)
	}
	j.written = j.written || err == nil
	w.note("zombies", ended)
	return err
}

func (w *lossy) kill(rng *rand.Rand, s *store.Store) error {
	if rng.IntN(30) > 0 {
		return rest()
	}
	w.note("kills", 1)
	return s.Write(w.ctx, "kill", "alice", func(tx *store.Tx) error {
		_, _, err := tx.RequestKill(w.some(rng, 1), "not needed")
		return err
	})
}

// live is one step of a worker.
func (w *lossy) live(rng *rand.Rand, s *store.Store, n *lossyNode) error {
	n.mu.Lock()
	boot, life, frozen := fmt.Sprint("boot-", n.boot), n.life, n.frozen
	var preparing, running []capri.Attempt
	for a := range n.preparing {
		preparing = append(preparing, a)
	}
	for a := range n.running {
		if rng.IntN(3) == 0 {
			running = append(running, a)
		}
	}
	n.mu.Unlock()
	if frozen {
		return rest()
	}
	// now does something if nobody has frozen the worker since the step began.
	now := func(do func() error) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.life != life {
			return nil
		}
		return do()
	}
	switch rng.IntN(6) {
	case 0:
		claimed, err := s.Claim(w.ctx, n.name, boot, 1+rng.IntN(10))
		if errors.Is(err, capri.ErrForbidden) {
			return w.renew(n, s) // called lost, or removed: it begins anew
		}
		return errors.Join(err, now(func() error {
			for _, c := range claimed {
				n.preparing[capri.Attempt{Batch: c.ID, Number: c.Attempt}] = true
			}
			return nil
		}))
	case 1:
		started, err := s.Start(w.ctx, n.name, boot, preparing)
		if errors.Is(err, capri.ErrForbidden) {
			return nil
		}
		return errors.Join(err, now(func() error {
			for _, a := range started {
				if err := w.begins(a); err != nil {
					return err
				}
				n.running[a] = true
			}
			clear(n.preparing)
			return nil
		}))
	case 2: // what the database says is ours and we know nothing of
		held, err := s.HeldAttempts(w.ctx, n.name)
		if err != nil {
			return err
		}
		var back []store.GiveBack
		var lost []store.Result
		err = now(func() error {
			for _, h := range held {
				switch {
				case n.preparing[h.Attempt] || n.running[h.Attempt]:
				case h.Started:
					lost = append(lost, store.Result{Attempt: h.Attempt, Outcome: store.Lost, Message: "unknown here"})
				default:
					back = append(back, store.GiveBack{Attempt: h.Attempt, Why: "unknown here"})
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if _, err := s.FinishAttempts(w.ctx, n.name, lost); err != nil {
			return err
		}
		return s.RollBack(w.ctx, n.name, back)
	case 3:
		_, err := s.Beat(w.ctx, capri.Node{Name: n.name, BootID: boot})
		return err
	default:
		var results []store.Result
		err := now(func() error {
			for _, a := range running {
				if n.running[a] {
					w.dies(a)
					delete(n.running, a)
					results = append(results, store.Result{Attempt: a, Outcome: []store.Outcome{store.Succeeded, store.Failed, store.Failed, store.Killed}[rng.IntN(4)], Message: "it ended", Retries: 5})
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		_, err = s.FinishAttempts(w.ctx, n.name, results)
		return err
	}
}

// settle lets everybody live in peace; every batch has to end.
func (w *lossy) settle() {
	t := w.t
	rng := rand.New(rand.NewPCG(w.seed, 99))
	for round := 0; ; round++ {
		require.Less(t, round, 100, "some batches never end")
		w.Clock.Advance(time.Minute)
		require.NoError(t, w.placeAnywhere(rng, w.Store))
		for _, n := range w.nodes {
			for range 30 {
				require.NoError(t, w.live(rng, w.Store, n))
			}
		}
		left := 0
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{Limit: 1000})
		require.NoError(t, err)
		for _, r := range rows {
			if r.State != capri.Finished {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
}
