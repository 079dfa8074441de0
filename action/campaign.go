package action

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"capri"
	"capri/birth"
	"capri/cascade"
	"capri/sql/store"
	"capri/wake"
)

// A rerun, its cascade and a cold start are campaigns: what would happen is stored first, and exactly that is run.
//
//	question ──▶ plan ──▶ stored preview ──▶ DropItems … ──▶ RunCampaign ──▶ the service of that name does it
//	             tasks × intervals, what they reach (package cascade), what there is of each, what it costs
//
// A preview counts for a day. Without one a request is previewed and run at once.

const (
	previewsKept = 24 * time.Hour
	// named is how many of what is in the way or has changed an error names.
	namedInError = 20
)

// The orders in which a campaign's batches are released.
const (
	oldestFirst = "oldest"
	newestFirst = "newest"
)

// PlannedItem is an item of a campaign with its task's name.
type PlannedItem struct {
	capri.CampaignItem
	TaskName string
	expected int // minutes, of its task; 0: not known
}

// Planned is a campaign with all its items, in their order.
type Planned struct {
	capri.Campaign
	Items    []PlannedItem
	Estimate *capri.CampaignEstimate
}

// Pace is how a campaign runs.
type Pace struct {
	Limit  int    // of batches at once; 0: no limit
	Order  string // oldest (default) or newest: which marks first, where both may go
	Reason string // why somebody wants it
}

func (p Pace) check() error {
	if p.Limit < 0 {
		return capri.Invalid("limit", strconv.Itoa(p.Limit), "how many batches at once, or 0 for no limit")
	}
	if !slices.Contains([]string{"", oldestFirst, newestFirst}, p.Order) {
		return capri.Invalid("order", p.Order, "oldest or newest")
	}
	return nil
}

// question is what a campaign is asked to do.
type question struct {
	kind      capri.CampaignKind
	target    string
	request   any // as it was asked for
	pace      Pace
	now       capri.Instant
	tasks     []*birth.Task  // that are meant
	ivs       []taskInterval // of them
	by        cascade.By
	only      string
	onRunning string
	beside    []PlannedItem // listed, and not run
	preview   bool
	mayReach  func(ctx context.Context, tasks []string) error // nil: anything
}

// planCampaign computes what a campaign would do, parents first, and stores nothing.
func (a *Actions) planCampaign(ctx context.Context, who string, q *question) (*Planned, error) {
	if err := q.pace.check(); err != nil {
		return nil, err
	}
	request, err := json.Marshal(q.request)
	if err != nil {
		return nil, err
	}
	// What was asked for by name is looked up first: what only is about does not run, and so nothing is reached through it.
	asked := make([]cascade.Item, len(q.ivs))
	for i, ti := range q.ivs {
		asked[i] = cascade.Item{Task: ti.task.Task, Interval: ti.iv}
	}
	known, err := a.known(ctx, asked)
	if err != nil {
		return nil, err
	}
	roots := make([]cascade.Root, 0, len(q.tasks))
	listed := q.beside
	var last *birth.Task
	for i, ti := range q.ivs {
		action, note := q.decide(known, asked[i], true)
		switch {
		case action == 0:
			continue
		case !action.Runs() && action != capri.ItemInTheWay:
			listed = append(listed, q.item(known, asked[i], action, note))
			continue
		}
		if ti.task != last {
			roots, last = append(roots, cascade.Root{Task: ti.task.ID}), ti.task
		}
		roots[len(roots)-1].Intervals = append(roots[len(roots)-1].Intervals, ti.iv)
	}
	reached, broken, err := a.reach(ctx, q, roots)
	if err != nil {
		return nil, err
	}
	listed = append(listed, broken...)
	if q.by != 0 {
		if known, err = a.known(ctx, reached); err != nil {
			return nil, err
		}
	}
	items := make([]PlannedItem, 0, len(reached)+len(listed))
	for _, r := range reached {
		action, note := q.decide(known, r, r.Reason.By == 0)
		if r.NotRun != "" {
			action, note = capri.ItemDisabled, r.NotRun
		}
		it := q.item(known, r, action, note)
		it.Why = r.Reason.String()
		items = append(items, it)
	}
	items = among(items, listed)
	at := make(map[string]*PlannedItem, len(items))
	for i := range items {
		items[i].Seq = i
		at[items[i].TaskName+":"+string(items[i].BatchNo)] = &items[i]
	}
	of := func(r *cascade.Item) *PlannedItem { return at[r.Task.Name+":"+string(r.Interval.BatchNo)] }
	for i := range reached {
		if why := &reached[i].Reason; why.By != 0 {
			of(&reached[i]).Via = at[why.Task+":"+string(why.BatchNo)].Seq
		}
	}
	p := &Planned{Items: items, Campaign: capri.Campaign{Kind: q.kind, Target: q.target, Request: string(request), Who: who, Reason: q.pace.Reason, Limit: q.pace.Limit,
		NewestFirst: q.pace.Order == newestFirst, Items: len(items)}}
	if err := a.cost(ctx, q, known, p); err != nil {
		return nil, err
	}
	runs := cascade.Keep(reached, func(r *cascade.Item) bool { return of(r).Action.Runs() })
	p.Estimate, err = a.estimate(ctx, &p.Campaign, runs, func(r *cascade.Item) int { return of(r).Minutes })
	return p, err
}

// among puts what is listed and does not run between the others, by its mark.
func among(items, listed []PlannedItem) []PlannedItem {
	if len(listed) == 0 {
		return items
	}
	slices.SortStableFunc(listed, func(x, y PlannedItem) int {
		return cmp.Or(cmp.Compare(x.Mark, y.Mark), strings.Compare(x.TaskName, y.TaskName))
	})
	out := make([]PlannedItem, 0, len(items)+len(listed))
	for _, it := range items {
		for len(listed) > 0 && listed[0].Mark != 0 && (listed[0].Mark < it.Mark || listed[0].Mark == it.Mark && listed[0].TaskName < it.TaskName) {
			out, listed = append(out, listed[0]), listed[1:]
		}
		out = append(out, it)
	}
	return append(out, listed...)
}

// reach finds what runs with the roots, in an order in which it can run, and the tasks that a cascade may reach or not,
// which is for people to look at.
func (a *Actions) reach(ctx context.Context, q *question, roots []cascade.Root) (reached []cascade.Item, broken []PlannedItem, err error) {
	var rows map[capri.TaskID]store.ParentRef
	tasks := make([]*capri.Task, len(q.tasks))
	for i, t := range q.tasks {
		tasks[i] = t.Task
	}
	// Somebody waits for it, and either is all definitions there are: both at once.
	both, reading := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		rows, err = a.store.ParentRefs(reading)
		return err
	})
	if q.by != 0 {
		both.Go(func() (err error) {
			tasks, err = a.store.Tasks(reading, store.TaskFilter{})
			return err
		})
	}
	if err := both.Wait(); err != nil {
		return nil, nil, err
	}
	g := cascade.New(a.calendar, tasks, birth.Refs(rows))
	if reached, err = g.Reach(roots, q.by, q.now, maxRange); err != nil {
		return nil, nil, err
	}
	for _, b := range g.Broken() {
		if q.by != 0 && b.Task.Enabled {
			it := refused(b.Task, b.Err)
			it.Why = "nobody knows whether it would be reached"
			broken = append(broken, it)
		}
	}
	return reached, broken, nil
}

// refused is a task whose definition cannot be used: nothing can be said of its batches.
func refused(t *capri.Task, why error) PlannedItem {
	return PlannedItem{TaskName: t.Name, CampaignItem: capri.CampaignItem{Action: capri.ItemRefused, Task: t.ID, TaskVersion: t.Version, Via: -1, Why: "asked for", Note: why.Error(), Minutes: -1}}
}

// known is what there is of batch_nos.
type known struct {
	latest map[store.LatestKey]store.LatestRun
	others map[store.LatestKey]capri.CampaignID // live campaigns that have them
}

func (a *Actions) known(ctx context.Context, items []cascade.Item) (k known, err error) {
	var keys []store.LatestKey
	seen := map[capri.TaskID]bool{}
	var tasks []capri.TaskID
	for _, it := range items {
		keys = append(keys, store.LatestKey{Task: it.Task.ID, No: it.Interval.BatchNo})
		if !seen[it.Task.ID] {
			seen[it.Task.ID], tasks = true, append(tasks, it.Task.ID)
		}
	}
	both, reading := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		k.latest, err = a.store.LatestRunsOf(reading, keys)
		return err
	})
	both.Go(func() (err error) {
		k.others, err = a.store.OtherCampaigns(reading, tasks)
		return err
	})
	err = both.Wait()
	return k, err
}

// decide says what happens to a batch_no by what there is of it; 0: nothing is said about it. What only says is about what
// was asked for: whatever is reached from there runs, since something that it rests on does.
func (q *question) decide(k known, it cascade.Item, asked bool) (capri.ItemAction, string) {
	key := store.LatestKey{Task: it.Task.ID, No: it.Interval.BatchNo}
	old, exists := k.latest[key]
	only := onlyAll
	if asked {
		only = q.only
	}
	inTheWay := func(note string) (capri.ItemAction, string) {
		if q.kind == capri.CampaignColdStart || q.onRunning == onRunningSkip {
			return capri.ItemLeftAlone, note
		}
		return capri.ItemInTheWay, note
	}
	ended := fmt.Sprintf("batch %d ended as %s", old.ID, old.FinishState)
	switch {
	case !exists && only == onlyFailed:
		return 0, ""
	case k.others[key] != 0:
		return inTheWay(fmt.Sprintf("campaign %d has it", k.others[key]))
	case !exists:
		return capri.ItemNew, ""
	case old.State == capri.Finished && (only == onlyAll || only == onlyFailed && old.FinishState != capri.Success && old.FinishState != capri.Skipped):
		return capri.ItemNewRun, ended
	case old.State == capri.Finished:
		return capri.ItemExists, ended
	case only != onlyAll, q.kind == capri.CampaignColdStart:
		return capri.ItemLeftAlone, fmt.Sprintf("batch %d is %s", old.ID, old.State)
	case old.State <= capri.Assigned:
		return capri.ItemLeftWaiting, fmt.Sprintf("batch %d has not started", old.ID)
	case q.onRunning == onRunningKill:
		return capri.ItemKillFirst, fmt.Sprintf("batch %d runs on node %s, and is killed first", old.ID, old.Node)
	}
	return inTheWay(fmt.Sprintf("batch %d is %s on node %s", old.ID, old.State, old.Node))
}

func (q *question) item(k known, it cascade.Item, action capri.ItemAction, note string) PlannedItem {
	old := k.latest[store.LatestKey{Task: it.Task.ID, No: it.Interval.BatchNo}]
	out := PlannedItem{TaskName: it.Task.Name, expected: it.Task.ExpectedMinutes, CampaignItem: capri.CampaignItem{Action: action, Task: it.Task.ID, TaskVersion: it.Task.Version, Interval: it.Interval,
		Via: -1, Why: "asked for", Note: note, Old: old.ID, OldRunNo: old.RunNo, OldState: old.State, OldFinish: old.FinishState, Minutes: -1}}
	if q.kind == capri.CampaignColdStart { // it is paced by priority; a rerun goes by time
		out.Priority = it.Task.Priority
	}
	return out
}

// cost fills in what each item that runs is expected to take: what its task is known to take, else what the run before
// took, else what the task's other runs did.
func (a *Actions) cost(ctx context.Context, q *question, k known, p *Planned) error {
	sum, n := map[capri.TaskID]int{}, map[capri.TaskID]int{}
	for _, it := range p.Items {
		if m := k.latest[store.LatestKey{Task: it.Task, No: it.BatchNo}].Minutes(); m > 0 {
			sum[it.Task], n[it.Task] = sum[it.Task]+m, n[it.Task]+1
		}
	}
	var unknown []capri.TaskID
	for _, it := range p.Items {
		if it.Action.Runs() && it.expected == 0 && n[it.Task] == 0 {
			unknown = append(unknown, it.Task)
		}
	}
	slices.Sort(unknown)
	unknown = slices.Compact(unknown)
	mean, err := a.store.MeanMinutes(ctx, unknown, q.now.Add(-10*24*time.Hour))
	if err != nil {
		return err
	}
	for i := range p.Items {
		it := &p.Items[i]
		if !it.Action.Runs() {
			continue
		}
		old := k.latest[store.LatestKey{Task: it.Task, No: it.BatchNo}]
		minutes := cmp.Or(it.expected, old.Minutes())
		if minutes == 0 && n[it.Task] > 0 {
			minutes = sum[it.Task] / n[it.Task]
		}
		if minutes = cmp.Or(minutes, mean[it.Task]); minutes > 0 {
			it.Minutes = minutes
		}
	}
	return nil
}

// campaign plans what was asked, stores it, and runs it unless it is a preview.
func (a *Actions) campaign(ctx context.Context, who string, q *question) (*Planned, error) {
	p, err := a.planCampaign(ctx, who, q)
	if err != nil {
		return nil, err
	}
	if q.mayReach != nil {
		if err := q.mayReach(ctx, reachedTasks(p)); err != nil {
			return nil, err
		}
	}
	if err := a.inTheWay(p); err != nil && !q.preview {
		return nil, err
	}
	items := make([]capri.CampaignItem, len(p.Items))
	for i, it := range p.Items {
		items[i] = it.CampaignItem
	}
	note := func(*store.Tx) error { return nil }
	if q.preview {
		note = func(tx *store.Tx) error {
			return tx.LogAction("campaign_preview", fmt.Sprintf("campaign %d", p.ID), fmt.Sprintf("%s %s: %s", p.Kind, p.Target, p.Request))
		}
	}
	if err := a.store.SaveCampaign(ctx, who, &p.Campaign, p.Estimate, items, note); err != nil {
		return nil, err
	}
	for i := range items {
		p.Items[i].CampaignItem = items[i]
	}
	if q.preview {
		return p, nil
	}
	p.Campaign, err = a.run(ctx, who, p.Campaign, q.pace, p.Items)
	return p, err
}

// reachedTasks are those of which something runs that was not asked for.
func reachedTasks(p *Planned) []string {
	var names []string
	seen := map[capri.TaskID]bool{}
	for _, it := range p.Items {
		if it.Via >= 0 && it.Action.Runs() && !seen[it.Task] {
			seen[it.Task], names = true, append(names, it.TaskName)
		}
	}
	return names
}

// inTheWay says what keeps a campaign from running until it is taken out, or told to be skipped or killed.
func (a *Actions) inTheWay(p *Planned) error {
	var names []string
	for _, it := range p.Items {
		if it.Action == capri.ItemInTheWay && !it.Dropped {
			names = append(names, fmt.Sprintf("%s %s (%s)", it.TaskName, it.BatchNo, it.Note))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return capri.Conflict("%d batches are in the way: %s; wait for them, or say what to do (on_running skip or kill)", len(names), some(names))
}

// RunCampaign runs a previewed campaign, exactly as it was previewed, or says what has changed since.
func (a *Actions) RunCampaign(ctx context.Context, who string, id capri.CampaignID, pace Pace) (capri.Campaign, error) {
	c, err := a.store.Campaign(ctx, id)
	if err != nil {
		return c, err
	}
	now, err := a.store.Now(ctx)
	switch {
	case err != nil:
		return c, err
	case c.State != capri.CampaignPreviewed:
		return c, capri.Conflict("campaign %d is %s: only a preview can be run", id, c.State)
	case now.Sub(c.CreatedAt) > previewsKept:
		return c, capri.Conflict("campaign %d was previewed more than a day ago: preview it again", id)
	}
	if err := pace.check(); err != nil {
		return c, err
	}
	rows, err := a.store.CampaignItems(ctx, id, []capri.ItemAction{capri.ItemInTheWay, capri.ItemLeftAlone, capri.ItemLeftWaiting}, -1, maxRange)
	if err != nil {
		return c, err
	}
	p := &Planned{Campaign: c}
	for _, r := range rows {
		p.Items = append(p.Items, PlannedItem{CampaignItem: r.CampaignItem, TaskName: r.TaskName})
	}
	if err := a.inTheWay(p); err != nil {
		return c, err
	}
	return a.run(ctx, who, c, pace, p.Items)
}

// run starts a campaign if all of it is still as it was previewed. Its service proves that once more under locks.
func (a *Actions) run(ctx context.Context, who string, c capri.Campaign, pace Pace, items []PlannedItem) (capri.Campaign, error) {
	differ, err := a.store.CampaignDifferences(ctx, c.ID, 0, c.Items, namedInError)
	if err != nil {
		return c, err
	}
	if len(differ) > 0 {
		names := make([]string, len(differ))
		for i, d := range differ {
			names[i] = fmt.Sprintf("%s %s (%s)", d.Task, d.Item.BatchNo, d.What)
		}
		return c, capri.Conflict("campaign %d is not any more as it was previewed: %s; preview it again", c.ID, some(names))
	}
	counts, err := a.store.CampaignCounts(ctx, c.ID)
	if err != nil {
		return c, err
	}
	n := map[string]int{}
	for _, k := range counts {
		if k.Dropped {
			n["dropped"] += k.N
		} else {
			n[k.Action.String()] += k.N
		}
	}
	detail := fmt.Sprintf("campaign %d, %s, at most %d at once: %d new runs, %d new, %d killed first, %d left waiting, %d left alone, %d there already, %d refused, %d taken out", c.ID, c.Request, pace.Limit,
		n["new_run"], n["new"], n["kill_first"], n["left_waiting"], n["left_alone"], n["exists"], n["refused"], n["dropped"])
	var about capri.TaskID // whose owner may read of it
	if c.Kind == capri.CampaignRerun {
		if t, err := a.store.TaskByName(ctx, c.Target); err == nil {
			about = t.ID
		}
	}
	estimate := func(*store.Tx) error { return nil }
	if newest := pace.Order == newestFirst; c.Limit != pace.Limit || c.NewestFirst != newest {
		c.Limit, c.NewestFirst = pace.Limit, newest
		if estimate, err = a.estimateAgain(ctx, &c, everyItem); err != nil {
			return c, err
		}
	}
	var started capri.Campaign
	err = a.store.Write(ctx, "run a campaign", who, func(tx *store.Tx) (err error) {
		if err := estimate(tx); err != nil {
			return err
		}
		if started, err = tx.StartCampaign(c.ID, pace.Limit, pace.Order == newestFirst); err != nil {
			return err
		}
		if err := tx.LogChanges(store.Change{Action: c.Kind.String(), Target: c.Target, Detail: detail, Task: about}); err != nil {
			return err
		}
		if c.Kind == capri.CampaignColdStart {
			return tellLeftAlone(tx, who, c, items)
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	a.wake.Wake(wake.Campaign)
	return started, nil
}

// tellLeftAlone tells admins of what a cold start leaves alone (seed 002 §1.1.3.3).
func tellLeftAlone(tx *store.Tx, who string, c capri.Campaign, items []PlannedItem) error {
	var left []string
	for _, it := range items {
		if it.Action == capri.ItemLeftAlone && !it.Dropped {
			left = append(left, fmt.Sprintf("%s %s: %s", it.TaskName, it.BatchNo, it.Note))
		}
	}
	if len(left) == 0 {
		return nil
	}
	text := strings.Join(left[:min(len(left), 200)], "\n")
	if len(left) > 200 {
		text += fmt.Sprintf("\n… and %d more", len(left)-200)
	}
	return tx.Alert(capri.Alert{Key: fmt.Sprintf("cold_start_left_alone:%d", c.ID), Level: capri.Attention, Kind: "cold_start_left_alone",
		Title: fmt.Sprintf("Cold start of %s by %s left %d unfinished batches alone", c.Target, who, len(left)), Text: text})
}

// DropItems takes batches out of a preview; each of what is "task" or "task:batch_no".
func (a *Actions) DropItems(ctx context.Context, who string, id capri.CampaignID, what []string) (dropped int, err error) {
	if len(what) == 0 {
		return 0, capri.Invalid("items", "", "what to take out: task, or task:batch_no")
	}
	byTask := map[string][]capri.BatchNo{}
	var names []string
	taken := map[string]bool{}
	for _, w := range what {
		taken[w] = true
		name, no, one := strings.Cut(w, ":")
		if _, seen := byTask[name]; !seen {
			names = append(names, name)
			byTask[name] = []capri.BatchNo{}
		}
		if !one {
			byTask[name] = nil // all of it
		} else if byTask[name] != nil {
			byTask[name] = append(byTask[name], capri.BatchNo(no))
		}
	}
	tasks, err := a.store.Tasks(ctx, store.TaskFilter{Names: names, WithDeleted: true})
	if err != nil {
		return 0, err
	}
	ids := map[string]capri.TaskID{}
	for _, t := range tasks {
		ids[t.Name] = t.ID
	}
	c, err := a.store.Campaign(ctx, id)
	if err != nil {
		return 0, err
	}
	estimate, err := a.estimateAgain(ctx, &c, func(r *store.ItemRow) bool {
		return !taken[r.TaskName] && !taken[r.TaskName+":"+string(r.BatchNo)]
	})
	if err != nil {
		return 0, err
	}
	err = a.store.Write(ctx, "take out of a campaign", who, func(tx *store.Tx) error {
		dropped = 0
		for _, name := range names {
			n := 0
			if id_, ok := ids[name]; ok {
				if n, err = tx.DropItems(id, id_, name, byTask[name]); err != nil {
					return err
				}
			}
			if n == 0 || n < len(byTask[name]) {
				return capri.NotFound("campaign %d has not all of %s that is to be taken out, or it was taken out before", id, name)
			}
			dropped += n
		}
		if err := estimate(tx); err != nil {
			return err
		}
		return tx.LogAction("campaign_drop", fmt.Sprintf("campaign %d", id), strings.Join(what, " "))
	})
	return dropped, err
}

// PauseCampaign keeps what has not started of a running campaign from starting.
func (a *Actions) PauseCampaign(ctx context.Context, who string, id capri.CampaignID, reason string) (capri.Campaign, error) {
	return a.move(ctx, who, "campaign_pause", id, reason, func(tx *store.Tx) (capri.Campaign, error) {
		return tx.MoveCampaign(id, capri.CampaignPaused, []capri.CampaignState{capri.CampaignRunning}, map[string]any{"message": because("paused", who, reason)})
	})
}

// ResumeCampaign lets a paused campaign go on.
func (a *Actions) ResumeCampaign(ctx context.Context, who string, id capri.CampaignID, reason string) (capri.Campaign, error) {
	return a.move(ctx, who, "campaign_resume", id, reason, func(tx *store.Tx) (capri.Campaign, error) {
		return tx.MoveCampaign(id, capri.CampaignRunning, []capri.CampaignState{capri.CampaignPaused}, map[string]any{"message": ""})
	})
}

// CancelCampaign undoes what has not started of a campaign: its new runs end as killed, and earlier results count again.
// What runs goes on, or is killed as well.
func (a *Actions) CancelCampaign(ctx context.Context, who string, id capri.CampaignID, kill bool, reason string) (capri.Campaign, error) {
	return a.move(ctx, who, "campaign_cancel", id, fmt.Sprintf("kill %t: %s", kill, reason), func(tx *store.Tx) (capri.Campaign, error) {
		return tx.CancelCampaign(id, kill, because("cancelled", who, reason))
	})
}

// LimitCampaign changes how many batches of a campaign run at once; what is released goes on.
func (a *Actions) LimitCampaign(ctx context.Context, who string, id capri.CampaignID, limit int) (capri.Campaign, error) {
	if err := (Pace{Limit: limit}).check(); err != nil {
		return capri.Campaign{}, err
	}
	c, err := a.store.Campaign(ctx, id)
	if err != nil {
		return c, err
	}
	estimate := func(*store.Tx) error { return nil } // of what runs already it stays what it was at the start
	if c.State == capri.CampaignPreviewed {
		c.Limit = limit
		if estimate, err = a.estimateAgain(ctx, &c, everyItem); err != nil {
			return c, err
		}
	}
	return a.move(ctx, who, "campaign_limit", id, fmt.Sprintf("at most %d at once", limit), func(tx *store.Tx) (capri.Campaign, error) {
		if err := tx.LimitCampaign(id, limit); err != nil {
			return capri.Campaign{}, err
		}
		return capri.Campaign{}, estimate(tx)
	})
}

func (a *Actions) move(ctx context.Context, who, what string, id capri.CampaignID, detail string, do func(*store.Tx) (capri.Campaign, error)) (c capri.Campaign, err error) {
	err = a.store.Write(ctx, what, who, func(tx *store.Tx) (err error) {
		if c, err = do(tx); err != nil {
			return err
		}
		return tx.LogAction(what, fmt.Sprintf("campaign %d", id), detail)
	})
	if err != nil {
		return c, err
	}
	a.wake.Wake(wake.Campaign)
	return a.store.Campaign(ctx, id)
}
