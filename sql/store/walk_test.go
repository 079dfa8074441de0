package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/internal/testenv"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// walk is a random walk of everything that changes batches at once: a placer, the dependency service, workers whose
// processes are replaced under them and who repeat themselves, people who kill, hold, run again and change their
// mind, campaigns, and the archive. Afterwards the rows and their history have to agree with the rules of design §4, and all has to come to an end.
type walk struct {
	*world
	seed    uint64
	stores  []*store.Store
	batches []*capri.NewBatch // the first runs
	paths   []capri.PathCondition
	boots   [2]atomic.Int64 // of node n0 and n1

	mu      sync.Mutex
	alive   map[store.LatestKey]capri.Attempt // what a node runs, as its worker knows it
	runs    []*capri.NewBatch                 // every run there is
	ids     []capri.BatchID
	started int
	took    map[string]int

	campaigns *campaigner
}

func TestARandomWalk_of_everybody_at_once_keeps_the_rules(t *testing.T) {
	seed := testenv.Seed(t)
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		w := &walk{seed: seed, alive: map[store.LatestKey]capri.Attempt{}, took: map[string]int{},
			world: &world{DB: db, t: t, ctx: t.Context(), dependency: db.Lease(t, "dependency"), dispatch: db.Lease(t, "dispatch")}}
		w.stores = []*store.Store{db.Store}
		if db.Store.Dialect().Name == "mysql" { // a SQLite file belongs to one process
			w.stores = append(w.stores, db.Again(t), db.Again(t))
		}
		w.make()
		w.campaigns = w.newCampaigner()
		long := 2 * time.Second
		if testing.Short() {
			long = 500 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(w.ctx, long)
		defer cancel()
		var wg sync.WaitGroup
		for i, actor := range []func(*rand.Rand, *store.Store) error{
			w.place, w.depend, w.depend, w.work(0), w.work(1), w.replace, w.person, w.person, w.stopper(), w.rerunner, w.rerunner, w.archivist(), w.campaigns.act,
		} {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				for ctx.Err() == nil {
					if err := actor(rng, w.stores[rng.IntN(len(w.stores))]); err != nil {
						t.Errorf("actor %d: %v", i, err)
						cancel()
						return
					}
					db.Clock.Advance(time.Duration(rng.IntN(2000)) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if !t.Failed() {
			w.end()
			w.check()
		}
		t.Logf("%d runs, %d starts, %v", len(w.runs), w.started, w.took)
	})
}

func (w *walk) did(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took[what]++
}

func (w *walk) make() {
	const days = 4
	tasks := w.Tasks(w.t, 6, func(_ int, s *capri.Spec) { s.Group = "g" })
	for d := range days {
		no := capri.BatchNo(fmt.Sprintf("2026111%d", d))
		out := capri.PathCondition{Path: "/out/" + string(no), Flag: "_SUCCESS"}
		w.paths = append(w.paths, out)
		parent := func(group int, anyone bool, of int) capri.ParentCondition {
			return capri.ParentCondition{Group: group, Any: anyone, TaskID: tasks[of].ID, BatchNo: no}
		}
		third := []capri.ThirdPartyCondition{{Code: "closed", Period: capri.Day, BatchNo: no}}
		for i, c := range []capri.Conditions{
			{Outputs: []capri.PathCondition{out}},
			{Parents: []capri.ParentCondition{parent(0, false, 0)}},
			{Inputs: []capri.PathCondition{out}, ThirdParty: third},
			{Parents: []capri.ParentCondition{parent(0, true, 0), parent(0, true, 1), parent(1, false, 1)}},
			{ThirdParty: third},
			{},
		} {
			w.batches = append(w.batches, w.batch(tasks[i], string(no), c))
		}
	}
	w.insert(w.batches...)
	w.runs = slices.Clone(w.batches)
	for _, b := range w.batches {
		w.ids = append(w.ids, b.ID)
	}
	for n := range w.boots {
		require.NoError(w.t, w.newBoot(n, w.Store))
	}
}

func (w *walk) newBoot(n int, s *store.Store) error {
	boot := w.boots[n].Add(1)
	return s.RegisterNode(w.ctx, capri.Node{Name: nodeName(n), BootID: fmt.Sprint("boot-", boot), Pool: "default", Slots: 100, CheckInterval: 5}, fmt.Sprint("dir-", n))
}

func nodeName(n int) string { return fmt.Sprint("n", n) }

func (w *walk) some(rng *rand.Rand, n int) []capri.BatchID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]capri.BatchID, n)
	for i := range ids {
		ids[i] = w.ids[rng.IntN(len(w.ids))]
	}
	return ids
}

func (w *walk) place(rng *rand.Rand, s *store.Store) error {
	ready, err := s.Ready(w.ctx, w.Clock.Now(), 0, store.ReadyAfter{}, 100)
	if err != nil {
		return err
	}
	var to []store.Assignment
	for _, b := range ready {
		to = append(to, store.Assignment{Batch: b.ID, Node: nodeName(rng.IntN(2)), Task: b.Task, Group: b.Group})
	}
	if rng.IntN(3) == 0 { // a plan that is old
		w.mu.Lock()
		for range 3 {
			b := w.runs[rng.IntN(len(w.runs))]
			to = append(to, store.Assignment{Batch: b.ID, Node: nodeName(rng.IntN(2)), Task: b.TaskID, Group: "g"})
		}
		w.mu.Unlock()
	}
	_, err = s.Assign(w.ctx, w.dispatch, to)
	return err
}

func (w *walk) depend(rng *rand.Rand, s *store.Store) error {
	switch rng.IntN(4) {
	case 0:
		_, err := s.MeetPaths(w.ctx, w.dependency, w.paths[:1+rng.IntN(len(w.paths))])
		return err
	case 1:
		n, err := s.SweepUnmet(w.ctx, w.dependency)
		if n > 0 {
			return fmt.Errorf("the sweep found %d wrong counts", n)
		}
		return err
	}
	changes, err := s.DependencyChanges(w.ctx, 1+rng.IntN(100))
	if err == nil && len(changes) > 0 {
		_, err = s.MeetChanged(w.ctx, w.dependency, changes)
	}
	return err
}

// work is a worker: what it holds lives on when its registration is replaced, as the shim's jobs do.
func (w *walk) work(n int) func(*rand.Rand, *store.Store) error {
	node := nodeName(n)
	keys := map[capri.Attempt]store.LatestKey{}
	var preparing, running, ended []capri.Attempt
	take := func(rng *rand.Rand, from *[]capri.Attempt) (out []capri.Attempt) {
		*from = slices.DeleteFunc(*from, func(a capri.Attempt) bool {
			if rng.IntN(2) == 0 {
				out = append(out, a)
				return true
			}
			return false
		})
		return out
	}
	return func(rng *rand.Rand, s *store.Store) error {
		boot := fmt.Sprint("boot-", w.boots[n].Load())
		switch rng.IntN(6) {
		case 0:
			claimed, err := s.Claim(w.ctx, node, boot, 1+rng.IntN(20))
			if errors.Is(err, capri.ErrForbidden) {
				return nil
			}
			for _, c := range claimed {
				a := capri.Attempt{Batch: c.ID, Number: c.Attempt}
				keys[a] = store.LatestKey{Task: c.TaskID, No: c.BatchNo}
				preparing = append(preparing, a)
			}
			return err
		case 1:
			if rng.IntN(3) == 0 {
				return s.PathsGone(w.ctx, node, w.paths[:1+rng.IntN(len(w.paths))])
			}
			back := take(rng, &preparing)
			var give []store.GiveBack
			for _, a := range back {
				give = append(give, store.GiveBack{Attempt: a, Why: "short of memory", Rejected: rng.IntN(2) == 0, Limit: -1})
			}
			return s.RollBack(w.ctx, node, give)
		case 2:
			try := take(rng, &preparing)
			started, err := s.Start(w.ctx, node, boot, try)
			if errors.Is(err, capri.ErrForbidden) {
				preparing = append(preparing, try...)
				return nil
			}
			if err != nil {
				return err
			}
			for _, a := range started {
				if err := w.lives(keys[a], a); err != nil {
					return err
				}
			}
			running = append(running, started...)
			var give []store.GiveBack
			for _, a := range try {
				if !slices.Contains(started, a) {
					give = append(give, store.GiveBack{Attempt: a, Why: "it was held, killed or made to wait"})
				}
			}
			return s.RollBack(w.ctx, node, give)
		case 3: // what was claimed or started, and the answer never came
			held, err := s.HeldAttempts(w.ctx, node)
			if err != nil {
				return err
			}
			for _, h := range held {
				if !slices.Contains(preparing, h.Attempt) && !slices.Contains(running, h.Attempt) && !slices.Contains(ended, h.Attempt) {
					return fmt.Errorf("node %s holds %s, and its worker has not heard of it", node, h.Attempt)
				}
			}
			return nil
		default:
			var results []store.Result
			for _, a := range take(rng, &running) {
				w.died(keys[a], a)
				ended = append(ended, a)
				results = append(results, store.Result{Attempt: a, Outcome: store.Outcome(rng.IntN(4)), Message: "it ended", Retries: 2, RetryInterval: time.Second})
			}
			for range rng.IntN(3) { // said again, and not always the same
				if len(ended) > 0 {
					a := ended[rng.IntN(len(ended))]
					if !slices.ContainsFunc(results, func(r store.Result) bool { return r.Batch == a.Batch }) {
						results = append(results, store.Result{Attempt: a, Outcome: store.Outcome(rng.IntN(4)), Retries: 2})
					}
				}
			}
			_, err := s.FinishAttempts(w.ctx, node, results)
			if err == nil && rng.IntN(2) == 0 {
				_, err = s.FinishAttempts(w.ctx, node, results)
			}
			return err
		}
	}
}

// lives notes that a job is running; another one of the same task and interval must not be.
func (w *walk) lives(key store.LatestKey, a capri.Attempt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started++
	if other, ok := w.alive[key]; ok {
		return fmt.Errorf("attempt %s starts while %s of the same task %d, batch_no %s runs", a, other, key.Task, key.No)
	}
	w.alive[key] = a
	return nil
}

func (w *walk) died(key store.LatestKey, a capri.Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.alive[key] == a {
		delete(w.alive, key)
	}
}

func (w *walk) replace(rng *rand.Rand, s *store.Store) error {
	time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
	w.did("new boots")
	return w.newBoot(rng.IntN(2), s)
}

func (w *walk) person(rng *rand.Rand, s *store.Store) error {
	time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
	ids := w.some(rng, 1+rng.IntN(4))
	what := rng.IntN(24)
	no := capri.BatchNo(fmt.Sprintf("2026111%d", rng.IntN(4)))
	return s.Write(w.ctx, "act", "alice", func(tx *store.Tx) (err error) {
		switch {
		case what == 0:
			_, _, err = tx.RequestKill(ids, "not needed")
		case what < 4:
			_, err = tx.Hold(ids, "look first")
		case what < 12:
			_, err = tx.Release(ids, "fine")
		case what < 14:
			_, err = tx.RunNow(ids, "run now by alice")
		case what < 16:
			_, err = tx.ForceSuccess(ids, "forced to success by alice")
		default:
			err = tx.ReportThirdParty("closed", capri.Day, no, []string{"ready", "ready", "fail", "withdraw"}[rng.IntN(4)])
		}
		return err
	})
}

// stopper pauses a group or a node, opens a breaker, sets max_running to nothing, or pauses everything, and looks: once
// the database has acknowledged that, no batch of it is assigned until the same one ends it.
func (w *walk) stopper() func(*rand.Rand, *store.Store) error {
	tasks := map[capri.BatchID]capri.TaskID{}
	return func(rng *rand.Rand, s *store.Store) error {
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		w.mu.Lock()
		for _, b := range w.runs {
			tasks[b.ID] = b.TaskID
		}
		task := w.runs[rng.IntN(len(w.runs))].TaskID
		w.mu.Unlock()
		x := []store.Stop{
			{Kind: store.Pause, Scope: store.OfNode, Name: nodeName(rng.IntN(2)), Reason: "look"},
			{Kind: store.Pause, Scope: store.OfGroup, Name: "g", Reason: "look"},
			{Kind: store.Breaker, Scope: store.OfTask, Name: fmt.Sprint("task ", task), Task: task, Reason: "look"},
			{Kind: store.Pause, Reason: "look"}, // everything
			{Reason: "max_running"},
		}[rng.IntN(5)]
		set := func(stop bool) func(*store.Tx) error {
			return func(tx *store.Tx) (err error) {
				switch {
				case x.Kind == 0 && stop:
					err = tx.SetMaxRunning(0)
				case x.Kind == 0:
					err = tx.SetMaxRunning(-1)
				case x.Scope == store.OfAll:
					err = tx.PauseDispatch(stop, "look", 0)
				case stop:
					err = tx.SetStop(x)
				default:
					_, err = tx.EndStop(x)
				}
				return err
			}
		}
		if err := s.Write(w.ctx, "stop", "ops", set(true)); err != nil {
			return err
		}
		w.did("stops")
		last, err := w.assigned(s, 0)
		if err != nil {
			return err
		}
		newest := int64(0)
		for id := range last {
			newest = max(newest, id)
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		since, err := w.assigned(s, newest)
		if err != nil {
			return err
		}
		for id, a := range since {
			if x.Scope == store.OfAll || x.Scope == store.OfGroup || x.Scope == store.OfNode && a.node == x.Name || x.Scope == store.OfTask && tasks[a.batch] == x.Task {
				return fmt.Errorf("batch %d was assigned (event %d) after the %v of %v %q had been acknowledged", a.batch, id, x.Kind, x.Scope, x.Name)
			}
		}
		return s.Write(w.ctx, "resume", "ops", set(false))
	}
}

type assignment struct {
	batch capri.BatchID
	node  string
}

// assigned are the assignments whose events come after one.
func (w *walk) assigned(s *store.Store, after int64) (map[int64]assignment, error) {
	rows, err := s.DB().QueryContext(w.ctx, "SELECT id, batch_id, node FROM batch_event WHERE id > ? AND why = 'assigned'", after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[int64]assignment{}
	for rows.Next() {
		var id int64
		var a assignment
		if err := rows.Scan(&id, &a.batch, &a.node); err != nil {
			return nil, err
		}
		out[id] = a
	}
	return out, rows.Err()
}

// rerunner runs finished ones again, two at once in one transaction, while another of its kind does the same.
func (w *walk) rerunner(rng *rand.Rand, s *store.Store) error {
	time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
	first, err := s.ReserveBatchIDs(w.ctx, 2)
	if err != nil {
		return err
	}
	w.mu.Lock()
	olds := []*capri.NewBatch{w.runs[rng.IntN(len(w.runs))], w.runs[rng.IntN(len(w.runs))]}
	w.mu.Unlock()
	var nexts []*capri.NewBatch
	for i, old := range olds {
		next := *old
		next.ID, next.RunNo = first+capri.BatchID(i), old.RunNo+1
		nexts = append(nexts, &next)
	}
	err = s.Write(w.ctx, "run again", "alice", func(tx *store.Tx) error {
		for i := range olds {
			if err := tx.NewRun(olds[i].ID, nexts[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, capri.ErrConflict) {
		nexts = nexts[:1]
		err = s.Write(w.ctx, "run again", "alice", func(tx *store.Tx) error { return tx.NewRun(olds[0].ID, nexts[0]) })
	}
	if errors.Is(err, capri.ErrConflict) {
		return nil
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range nexts {
		w.runs, w.ids = append(w.runs, n), append(w.ids, n.ID)
	}
	w.took["reruns"] += len(nexts)
	return nil
}

// archivist moves what has finished into the archive at once, while others run it again or wait for it.
func (w *walk) archivist() func(*rand.Rand, *store.Store) error {
	lease := w.Lease(w.t, "cleanup")
	return func(rng *rand.Rand, s *store.Store) error {
		time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
		n, err := s.ArchiveBatches(w.ctx, lease, w.Clock.Now(), w.some(rng, 1+rng.IntN(5)))
		w.mu.Lock()
		defer w.mu.Unlock()
		w.took["archived"] += n
		return err
	}
}

// end lets everything come to its end: nobody holds, kills or withdraws, every job succeeds. No batch may be left.
func (w *walk) end() {
	t := w.t
	w.write(func(tx *store.Tx) error {
		for d := range len(w.paths) {
			if err := tx.ReportThirdParty("closed", capri.Day, capri.BatchNo(fmt.Sprintf("2026111%d", d)), "ready"); err != nil {
				return err
			}
		}
		_, err := tx.Release(w.ids, "all clear")
		return err
	})
	w.campaigns.last = true
	rng := rand.New(rand.NewPCG(w.seed, 99))
	// Parents that were killed or failed for good keep their children waiting, as they should: run them again.
	for round := 0; ; round++ {
		if round == 50 {
			w.campaigns.tell()
		}
		require.Less(t, round, 50, "some batches wait for ever")
		w.Clock.Advance(time.Hour)
		w.look()
		for range 5 {
			require.NoError(t, w.campaigns.act(rng, w.Store))
		}
		_, err := w.Store.MeetPaths(w.ctx, w.dependency, w.paths)
		require.NoError(t, err)
		require.NoError(t, w.place(rng, w.Store))
		for n := range w.boots {
			boot := fmt.Sprint("boot-", w.boots[n].Load())
			_, err := w.Store.Claim(w.ctx, nodeName(n), boot, 1000)
			require.NoError(t, err)
			held, err := w.Store.HeldAttempts(w.ctx, nodeName(n))
			require.NoError(t, err)
			var attempts []capri.Attempt
			var results []store.Result
			var back []store.GiveBack
			for _, h := range held {
				attempts = append(attempts, h.Attempt)
				results = append(results, store.Result{Attempt: h.Attempt, Outcome: store.Succeeded})
				back = append(back, store.GiveBack{Attempt: h.Attempt, Why: "it may not start"})
			}
			_, err = w.Store.Start(w.ctx, nodeName(n), boot, attempts)
			require.NoError(t, err)
			require.NoError(t, w.Store.RollBack(w.ctx, nodeName(n), back))
			_, err = w.Store.FinishAttempts(w.ctx, nodeName(n), results)
			require.NoError(t, err)
		}
		left := 0
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{Archived: true, Limit: 10_000})
		require.NoError(t, err)
		for _, r := range rows {
			switch {
			case r.State != capri.Finished:
				left++
			case r.FinishState != capri.Success:
				i := slices.IndexFunc(w.runs, func(b *capri.NewBatch) bool { return b.ID == r.ID })
				w.runs = append(w.runs, w.rerun(w.runs[i]))
				w.ids = append(w.ids, w.runs[len(w.runs)-1].ID)
				left++
			}
		}
		if left == 0 && w.campaigns.id == 0 {
			return
		}
	}
}

// check holds rows and history against the rules.
func (w *walk) check() {
	t := w.t
	n, err := w.Store.SweepUnmet(w.ctx, w.dependency)
	require.NoError(t, err)
	require.Zero(t, n, "wrong counts of unmet conditions")
	rows, err := w.Store.Batches(w.ctx, store.BatchFilter{AllRuns: true, Archived: true, Limit: 10_000})
	require.NoError(t, err)
	require.Len(t, rows, len(w.runs))
	latest := map[store.LatestKey]int{}
	for _, r := range rows {
		if r.Latest {
			latest[store.LatestKey{Task: r.TaskID, No: r.BatchNo}]++
		}
		events, err := w.Store.Events(w.ctx, r.ID)
		require.NoError(t, err)
		was := store.Event{Latest: true}
		for i, e := range events {
			where := fmt.Sprintf("batch %d, event %d: %+v after %+v", r.ID, i, e, was)
			switch e.State {
			case capri.Assigned:
				require.Equal(t, was.Attempt+1, e.Attempt, where)
				require.Equal(t, capri.Waiting, was.State, where)
				require.False(t, e.Held, where)
			default:
				require.Equal(t, was.Attempt, e.Attempt, where)
			}
			switch e.State {
			case capri.Running:
				require.Contains(t, []capri.State{capri.Assigned, capri.Running}, was.State, where)
				require.Equal(t, was.Node, e.Node, where)
				require.False(t, e.Held, where)
				require.True(t, e.Latest, where)
			case capri.Finished:
				require.NotEqual(t, capri.None, e.FinishState, where)
			}
			forced := e.Why == "forced to success by alice"
			if forced {
				require.Contains(t, []capri.State{capri.Waiting, capri.Finished}, was.State, where)
				require.NotEqual(t, capri.Success, was.FinishState, where)
				require.True(t, was.Latest && e.Latest && e.FinishState == capri.Success, where)
			} else if strings.HasPrefix(e.Why, "counts again: campaign ") {
				require.Equal(t, []any{was.State, was.FinishState, false, true}, []any{e.State, e.FinishState, was.Latest, e.Latest}, where)
			} else if was.State == capri.Finished {
				require.Equal(t, [2]int{int(was.State), int(was.FinishState)}, [2]int{int(e.State), int(e.FinishState)}, "finished is final: "+where)
				require.True(t, was.Latest && !e.Latest, where)
			}
			was = e
		}
		if len(events) > 0 {
			require.Equal(t, []any{r.State, r.FinishState, r.Attempt, r.Node, r.Held, r.KillRequest, r.Latest},
				[]any{was.State, was.FinishState, was.Attempt, was.Node, was.Held, was.KillRequest, was.Latest}, "batch %d is what its history says", r.ID)
		}
	}
	require.Len(t, latest, len(w.batches))
	for key, n := range latest {
		require.Equal(t, 1, n, "%v has one run that counts", key)
	}
}

func TestBatches_are_changed_as_a_range_only_where_they_are_one(t *testing.T) {
	require.Equal(t, "id BETWEEN 10 AND 12", store.Among(10, 11, 12))
	for _, ids := range [][]capri.BatchID{{10, 30, 12}, {10, 13}, {12, 11, 10}, {10, 9, 12}} {
		require.NotContains(t, store.Among(ids...), "BETWEEN", "%v", ids)
	}
}
