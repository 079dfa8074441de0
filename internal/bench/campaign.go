package bench

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"runtime"
	"time"

	"capri"
	"capri/action"
	"capri/api"
	"capri/api/wire"
	"capri/auth"
	"capri/client"
	"capri/internal/workload"
	"capri/services"
	"capri/services/campaign"
	"capri/sql/store"
	"capri/wake"
)

// campaign: a rerun of one root that 20,000 tasks depend on, by parents, by paths or both, all of whose batches there are; and
// requests of ten and a hundred thousand batches. Requests go through the API as people's do.
func (b *Bench) campaign(ctx context.Context, d *db) error {
	const descendants, wide, days = 20_000, 1000, 100
	specs := workload.Descendants(descendants)
	ids := make(map[string]capri.TaskID, len(specs))
	for i := range specs {
		ids[specs[i].Name] = capri.TaskID(i + 1)
	}
	const hourly = descendants + 2
	d.fillTasksWith(ctx, hourly+wide, func(id int, spec *capri.Spec) {
		switch {
		case id == hourly:
			spec.Period = capri.Hour
		case id > hourly:
			spec.Group = "wide"
			if id > hourly+1 {
				spec.Inputs = []capri.Input{{Path: fmt.Sprintf("/warehouse/bench/source_%07d/dt=${yyyyMMdd}", id), Flag: "_SUCCESS"}}
				spec.ThirdParty = []capri.ThirdParty{{Code: "bench_closed"}}
				spec.Parents = []capri.Parent{parentTask(hourly + 1)}
			}
		default:
			owner := spec.Owner
			*spec = specs[id-1]
			spec.Owner = owner
			for n := range spec.Parents {
				spec.Parents[n].TaskID = ids[spec.Parents[n].Task]
			}
		}
	})
	now := time.Now().UTC()
	long := capri.InstantOf(now.AddDate(0, 0, -200))
	d.exec(ctx, fmt.Sprintf("UPDATE task SET created_at = %d, first_mark = %d, expected_minutes = 1 + id %% 90", long, long))
	d.must(d.store.RegisterNode(ctx, capri.Node{Name: "node", BootID: "b", Pool: "default", Slots: 300, CheckInterval: 5}, "d"))
	d.analyze(ctx)

	log := slog.New(slog.DiscardHandler)
	actions := action.New(d.store, d.cal, wake.NewLocal(), log)
	key, err := actions.CreateApp(ctx, "bench", store.App{Name: "bench", Role: string(auth.SuperAdmin)}, store.Credential{})
	d.must(err)
	server := httptest.NewServer(api.New(api.Options{Store: d.store, Actions: actions, Log: log}))
	defer server.Close()
	c, err := client.New(server.URL, key, "bench", nil)
	d.must(err)
	lease := d.lease(ctx, "campaign")
	service := campaign.New(d.store, d.cal, log)

	// create is a campaign from its start until all of its batches are made, and until they are released as well.
	create := func(p wire.CampaignPlan) (made time.Duration, parts string) {
		began := time.Now()
		for {
			res, err := service.Run(ctx, services.Turn{Now: capri.InstantOf(time.Now()), Lease: lease, Woken: true})
			d.must(err)
			if live := must(d.store.Campaign(ctx, p.ID)); live.State == capri.CampaignRefused || live.State == capri.CampaignCancelling {
				panic("the campaign was refused: " + live.Message)
			} else if live.ReleasedAt != 0 {
				made = live.ReleasedAt.In(time.UTC).Sub(began) // noted by the last transaction of the making
			}
			if len(res.Counts) == 0 {
				return made, fmt.Sprintf("claimed and made after %v, released after %v", made.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			}
		}
	}
	// finish is what nodes would do: all that there is has succeeded.
	finish := func() {
		at := int64(capri.InstantOf(time.Now()))
		d.exec(ctx, fmt.Sprintf("UPDATE task_work SET state = 3, finish_state = 1, unmet = 0, kinds = kinds & ~64, start_time = %d, finish_time = %d WHERE state <> 3", at-60_000, at))
		d.exec(ctx, "UPDATE task_data SET state = 1 WHERE state = 0")
		d.exec(ctx, "UPDATE tparent_data SET state = 1 WHERE state = 0")
		d.exec(ctx, "UPDATE campaign_item SET state = 4, active = NULL WHERE state IN (1, 2, 3)")
		d.exec(ctx, fmt.Sprintf("UPDATE campaign SET state = 6, finished_at = %d WHERE state IN (2, 3)", at))
		d.empty(ctx, "dependency_change")
		d.analyze(ctx)
	}
	// ask waits for an answer, as many times as there are runs.
	ask := func(name string, n int, do func() (wire.CampaignPlan, error)) (p wire.CampaignPlan) {
		var took []time.Duration
		for range b.Runs {
			runtime.GC()
			began := time.Now()
			p, err = do()
			took = append(took, time.Since(began))
			d.must(err)
			if p.Size != n {
				panic(fmt.Sprintf("%s: %d items, and there are to be %d", name, p.Size, n))
			}
		}
		b.note("%s: %v, median of %v; %d items, %d in the answer", name, median(took), took, p.Size, len(p.Items))
		b.atMost(fmt.Sprintf("%s/%s", name, d.kind), median(took).Seconds(), 1, "s", 1)
		return p
	}

	// The root's day forty days ago: its week and its month have ended.
	day := now.AddDate(0, 0, -40).Format("2006-01-02")
	rerun := wire.Rerun{From: day, To: day, ByData: true, Cascade: "both", Preview: true}
	everything := func() (wire.CampaignPlan, error) { return c.Rerun(ctx, "root", rerun) }
	run := func(p wire.CampaignPlan) (time.Duration, string) {
		_, err := c.RunCampaign(ctx, p.ID, wire.CampaignRun{})
		d.must(err)
		return create(p)
	}
	_, parts := run(must(everything())) // first runs, so that there is something to be run again
	b.note("first runs: %s", parts)
	finish()
	p := ask("preview of 20,000 descendants", descendants+1, everything)
	if p.Actions["new_run"] != descendants+1 || p.Estimate.ChainBatches < 2 {
		panic(fmt.Sprintf("not all run again: %v, %+v", p.Actions, p.Estimate))
	}

	connections := map[string][]int{"sqlite": {1}, "mariadb": {1, 4}}[d.kind]
	var ours []time.Duration
	plain := map[int][]time.Duration{}
	var copies map[string][][]any
	columns := map[string][]string{}
	for n := range b.Runs {
		if n > 0 {
			p = must(everything())
		}
		before, event := int64(0), int64(0)
		d.must(d.plain.QueryRowContext(ctx, "SELECT MAX(id) FROM task_work").Scan(&before))
		d.must(d.plain.QueryRowContext(ctx, "SELECT MAX(id) FROM batch_event").Scan(&event))
		created := map[string]string{ // what the creation inserts; the events are of the runs that hand over
			"task_work": fmt.Sprintf("id > %d", before), "task_data": fmt.Sprintf("batch_id > %d", before), "tthird_data": fmt.Sprintf("batch_id > %d", before),
			"tparent_data": fmt.Sprintf("batch_id > %d", before), "batch_event": fmt.Sprintf("id > %d AND batch_id <= %d", event, before),
		}
		runtime.GC()
		took, parts := run(p)
		ours = append(ours, took)
		b.note("ours: %s", parts)
		copies = map[string][][]any{}
		for t, where := range created {
			columns[t], copies[t] = d.rowsOf(ctx, "SELECT * FROM "+t+" WHERE "+where)
			if t != "batch_event" { // whose columns have none
				columns[t], copies[t] = withoutDefaults(columns[t], copies[t])
			}
		}
		if len(copies["task_work"]) != descendants+1 {
			panic(fmt.Sprintf("made %d batches", len(copies["task_work"])))
		}
		for _, n := range connections {
			for t, where := range created {
				d.exec(ctx, "DELETE FROM "+t+" WHERE "+where)
			}
			d.analyze(ctx)
			runtime.GC()
			plain[n] = append(plain[n], d.plainInserts(ctx, copies, columns, n, 500))
		}
		finish()
	}
	best, with := time.Duration(0), 0
	for _, n := range connections {
		if m := median(plain[n]); best == 0 || m < best {
			best, with = m, n
		}
		b.note("limit on %d connection(s): %v, median of %v", n, median(plain[n]), plain[n])
	}
	for _, t := range []string{"task_work", "task_data", "tparent_data", "batch_event"} {
		b.note("limit: %d rows by %s… 500 rows a statement, 4 statements a transaction", len(copies[t]), short(insertText(t, columns[t], 1)))
	}
	b.rate(fmt.Sprintf("rerun 20,000: creation (limit: %d conn)/%s", with, d.kind), descendants/median(ours).Seconds(), descendants/best.Seconds(), "batches/s", 0.5)

	hours := now.Truncate(time.Hour)
	p = ask("rerun of 10,000 batches answers", 10_000, func() (wire.CampaignPlan, error) {
		p, err := c.Rerun(ctx, taskName(hourly), wire.Rerun{From: hours.Add(-10_000 * time.Hour).Format(time.RFC3339), To: hours.Format(time.RFC3339), ByData: true})
		if err == nil { // once more
			d.exec(ctx, "UPDATE campaign_item SET state = 4, active = NULL WHERE state IN (0, 1, 2, 3)")
			d.exec(ctx, fmt.Sprintf("UPDATE campaign SET state = 6, finished_at = 1 WHERE id = %d", p.ID))
		}
		return p, err
	})
	if len(p.Items) != 10_000 {
		panic("not all are in the answer")
	}

	began := time.Now()
	p, err = c.ColdStart(ctx, wire.ColdStart{Period: capri.Day, Group: "wide", From: now.AddDate(0, 0, -days).Format("2006-01-02"), To: now.AddDate(0, 0, -1).Format("2006-01-02"), ByData: true})
	d.must(err)
	answered := time.Since(began)
	if p.Size != wide*days {
		panic(fmt.Sprintf("%d items", p.Size))
	}
	_, parts = create(p)
	b.note("100,000 batches, a thousand tasks of a hundred days: answered after %v, %s", answered, parts)
	if open := must(d.store.OpenItems(ctx, p.ID)); open[capri.ItemReleased] != wide*days {
		panic(fmt.Sprintf("not all are released: %v", open))
	}
	return nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
