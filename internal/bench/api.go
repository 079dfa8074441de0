package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"capri"
	"capri/action"
	"capri/api"
	"capri/api/wire"
	"capri/auth"
	"capri/client"
	"capri/master"
	"capri/sql/store"
	"capri/wake"
)

// api: what people wait for while a hundred thousand batches are generated, met and dispatched. A master and the API run in
// this process on one store, as in a standalone; nodes are simulated: they beat, and take what they are given. Half of the
// batches are ready when they are born; the others wait for a root that a person forces to success when all are there.
func (b *Bench) api(ctx context.Context, d *db) error {
	const adhoc, every = 2000, 20 * time.Millisecond
	d.fillTasksWith(ctx, many+adhoc, func(id int, spec *capri.Spec) {
		spec.Group, spec.Owner = fmt.Sprintf("group_%d", id%50), fmt.Sprintf("owner_%d", id%200)
		switch {
		case id == 1:
			spec.ThirdParty = []capri.ThirdParty{{Code: "bench_closed"}}
		case id > many:
			spec.Period = capri.Hour
		case id%2 == 0:
			spec.Parents = []capri.Parent{parentTask(1)}
		}
	})
	d.dueToday(ctx)
	now := capri.InstantOf(time.Now())
	history := newBatches(many, nil)
	for _, nb := range history {
		nb.BatchNo, nb.ScheduleTime, nb.DataStart, nb.DataEnd = "20200101", now.Add(-48*time.Hour), now.Add(-72*time.Hour), now.Add(-48*time.Hour)
		nb.State, nb.FinishState, nb.FinishTime = capri.Finished, capri.Success, now.Add(-47*time.Hour)
	}
	d.insert(ctx, history)
	d.empty(ctx, "dependency_change")
	d.analyze(ctx)

	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	waker := wake.NewLocal()
	actions := action.New(d.store, d.cal, waker, log)
	key, err := actions.CreateApp(ctx, "bench", store.App{Name: "bench", Role: string(auth.SuperAdmin)}, store.Credential{})
	d.must(err)
	server := httptest.NewServer(api.New(api.Options{Store: d.store, Actions: actions, Log: log}))
	defer server.Close()
	clients := make([]*client.Client, 10)
	for i := range clients {
		clients[i], err = client.New(server.URL, key, "bench", nil)
		d.must(err)
	}

	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	nodes := map[string]int{"sqlite": 1, "mariadb": 100}[d.kind] // a standalone has one
	for i := range nodes {
		n := capri.Node{Name: fmt.Sprintf("node-%03d", i), BootID: "b", Pool: "default", Slots: 2 * many / nodes, CheckInterval: 5}
		d.must(d.store.RegisterNode(ctx, n, "d"))
		wg.Go(func() {
			for {
				select {
				case <-running.Done():
					return
				case <-time.After(time.Duration(n.CheckInterval) * time.Second):
				}
				if ok, err := d.store.Beat(running, n); running.Err() == nil && (err != nil || !ok) {
					panic(fmt.Sprint("beat: ", ok, err))
				}
			}
		})
	}

	// What the clients know: batches that they have seen in a list, and what they hold.
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 1))
	waiting, held, known := []capri.BatchID{}, []capri.BatchID{}, []capri.BatchID{}
	rows, err := clients[0].Batches(ctx, wire.Batches{Limit: 100})
	d.must(err)
	for _, r := range rows {
		known = append(known, r.ID)
	}
	pick := func(from ...[]capri.BatchID) capri.BatchID {
		mu.Lock()
		defer mu.Unlock()
		for _, ids := range from {
			if len(ids) > 0 {
				return ids[random.IntN(len(ids))]
			}
		}
		return 0
	}
	list := func(f wire.Batches) func(*client.Client, int) error {
		f.Limit = 100
		return func(c *client.Client, _ int) error {
			rows, err := c.Batches(ctx, f)
			mu.Lock()
			defer mu.Unlock()
			for _, r := range rows {
				if r.State == "waiting" {
					waiting = append(waiting[max(0, len(waiting)-1000):], r.ID)
				}
			}
			return err
		}
	}
	day := time.Now().UTC().Format(time.DateOnly)
	why := func(c *client.Client, _ int) error {
		_, err := c.Why(ctx, pick(waiting, known))
		return err
	}
	show := func(c *client.Client, _ int) error {
		_, err := c.Batch(ctx, pick(waiting, known))
		return err
	}
	kinds := []struct {
		name string
		ask  func(c *client.Client, i int) error
	}{
		{"list, newest", list(wire.Batches{})},
		{"list, waiting", list(wire.Batches{State: "waiting"})},
		{"why", why},
		{"hold", func(c *client.Client, _ int) error {
			id := pick(waiting, known)
			_, err := c.Hold(ctx, wire.IDs{IDs: []capri.BatchID{id}, Reason: "a look"})
			mu.Lock()
			defer mu.Unlock()
			held = append(held, id)
			return err
		}},
		{"list, of a group", list(wire.Batches{Group: "group_7"})},
		{"show", show},
		{"list, of a node", list(wire.Batches{Node: "node-000"})},
		{"execute", func(c *client.Client, i int) error {
			_, err := c.Execute(ctx, taskName(many+1+i%adhoc), wire.Execute{})
			return err
		}},
		{"list, of a task", list(wire.Batches{Task: taskName(4712)})},
		{"status", func(c *client.Client, _ int) error {
			_, err := c.Status(ctx)
			return err
		}},
		{"why", why},
		{"list, failed of an owner", list(wire.Batches{State: "failed", Owner: "owner_11"})},
		{"release", func(c *client.Client, _ int) error {
			_, err := c.Release(ctx, wire.IDs{IDs: []capri.BatchID{pick(held, known)}})
			return err
		}},
		{"list, waiting of a range", list(wire.Batches{State: "waiting", From: day, To: day})},
		{"show", show},
		{"list, late", list(wire.Batches{Late: true})},
	}
	took := map[string][]time.Duration{}
	var all []time.Duration
	var refused int
	var wrong error
	ask := func(c *client.Client, n int) {
		k := kinds[n%len(kinds)]
		at := time.Now()
		err := k.ask(c, n/len(kinds))
		t := time.Since(at)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
		case errors.Is(err, capri.ErrConflict): // what was waiting in the list is assigned by now
			refused++
		default:
			wrong = fmt.Errorf("%s: %w", k.name, err)
		}
		took[k.name], all = append(took[k.name], t), append(all, t)
	}

	m := master.New(master.Options{Store: d.store, Calendar: d.cal, Waker: waker, Files: noFiles{}, Name: "bench", Sole: true, Random: rand.New(rand.NewPCG(1, 1)), Log: log})
	runtime.GC()
	began := time.Now()
	wg.Go(func() { d.must(m.Run(running)) })
	var asking sync.WaitGroup
	for i, c := range clients { // each asks at its own times, and goes on when it has been answered
		asking.Go(func() {
			for n := i; running.Err() == nil; n += len(clients) {
				time.Sleep(time.Until(began.Add(time.Duration(n) * every)))
				ask(c, n)
			}
		})
	}
	until := func(what, query string) error {
		for n := 0; ; time.Sleep(100 * time.Millisecond) {
			if err := d.plain.QueryRowContext(ctx, query).Scan(&n); err != nil {
				return err
			}
			if n > 0 {
				b.note("%s after %v", what, time.Since(began).Round(100*time.Millisecond))
				return nil
			}
			if time.Since(began) > 10*time.Minute {
				return fmt.Errorf("not %s within 10 minutes", what)
			}
		}
	}
	err = until("generated", fmt.Sprintf("SELECT COUNT(*) FROM generate_mark WHERE period = %d AND made >= %d", int(capri.Day), many))
	if err == nil {
		err = until("dispatched what was ready", fmt.Sprintf("SELECT COUNT(*) = 0 FROM (SELECT 1 FROM task_work WHERE state = 0 LIMIT 1 OFFSET %d) x", many/2+500))
	}
	if err == nil {
		root, lost := clients[0].Batches(ctx, wire.Batches{Task: taskName(1), State: "waiting", Limit: 1})
		d.must(lost)
		_, err = clients[0].ForceSuccess(ctx, wire.IDs{IDs: []capri.BatchID{root[0].ID}, Reason: "the bench"})
	}
	if err == nil {
		err = until("dispatched the rest", "SELECT COUNT(*) = 0 FROM (SELECT 1 FROM task_work WHERE state = 0 LIMIT 1 OFFSET 500) x")
	}
	cancel()
	asking.Wait()
	if err == nil {
		err = wrong
	}
	if err != nil {
		return err
	}
	b.note("%d requests of %d clients, %d a second where they are answered in time; of them %d refused for what had become of a batch; %d node(s)", len(all), len(clients), time.Second/every, refused, nodes)
	b.note("%-30s %8s %10s %10s %10s", "kind", "requests", "p50", "p99", "max")
	p := func(t []time.Duration, share int) time.Duration {
		return t[len(t)*share/100].Round(100 * time.Microsecond)
	}
	line := func(name string, t []time.Duration) {
		slices.Sort(t)
		b.note("%-30s %8d %10v %10v %10v", name, len(t), p(t, 50), p(t, 99), t[len(t)-1].Round(100*time.Microsecond))
	}
	for _, name := range slices.Sorted(maps.Keys(took)) {
		line(name, took[name])
	}
	line("all together", all)
	b.atMost("API p99 while 100,000 are made/"+d.kind, all[len(all)*99/100].Seconds()*1000, 200, "ms", 1)
	return nil
}
