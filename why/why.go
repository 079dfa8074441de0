// Package why answers one question: why is this batch not running? Console, command line and API all ask here, so that
// they cannot give different answers, and there is an answer for every batch that waits.
//
//	own         what lies in the batch itself: a hold, its time, a disabled task, its gate …
//	conditions  each unmet one followed to its root: a parent, or the batch that makes a path, is asked the same
//	            question, until something is found that waits for no other batch
//	placing     where nothing else is in the way: what dispatch would answer now (packages placement and facts)
//
// Each cause says what, since when, whose it is and who is on duty for it, and when it should be gone, if anybody can know:
// by the clock, or by how long such batches take. The number of queries is bounded, however wide or deep: a level of
// parents is read at once, and levels and batches have a limit. Nothing is written.
package why

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"capri"
	"capri/alerting/duty"
	"capri/calendar"
	"capri/placement"
	"capri/placement/facts"
	"capri/sql/store"
)

// Answer is why one batch is not running.
type Answer struct {
	Batch      store.BatchRow
	Ready      bool // nothing but a placing is missing
	Summary    string
	Causes     []Cause
	MayStartAt capri.Instant // an estimate; 0: it depends on something that has no time
}

// Cause is one thing in the way.
type Cause struct {
	Kind   string // see the constants
	Detail string
	Root   Root
	Owner  string        // of the root's task, where it has one; of a path, the owner of who makes it or waits for it
	OnDuty []string      // primary and secondary, of the owner's department or of the system
	Since  capri.Instant // 0: nobody has written it down
	Until  capri.Instant // when it should be gone; 0: nobody can know
	Chain  []Link        // the batches that wait between this one and the root
}

// Link is a batch on the way to a root.
type Link struct {
	Batch capri.BatchID
	Name  string // task and batch_no
}

// Root is what somebody would have to look after.
type Root struct {
	Kind  string // batch, task, group, path, third_party, pool, service, setting, time
	Name  string
	Batch capri.BatchID
}

// Kinds of causes.
const (
	Held          = "held"
	KillAsked     = "kill_asked"
	Disabled      = "disabled"
	NotBefore     = "not_before"
	LatestAllowed = "latest_schedule_time"
	Quality       = "quality"
	Paused        = "paused"
	BreakerOpen   = "breaker_open"
	NoLeader      = "no_leader"
	NoNode        = "no_node"
	NoRight       = "no_right" // to the account that it is to run as
	Limit         = "limit"
	Path          = "path"
	ThirdParty    = "third_party"
	ParentMissing = "parent_missing"
	ParentFailed  = "parent_failed"
	ParentRunning = "parent_running"
	ParentWaiting = "parent_waiting"
	Campaign      = "campaign" // holds it back
	Counting      = "counting" // its conditions have changed this moment
)

// Bounds of the search. A chain of parents is rarely ten long, a task that waits for its own interval before may be
// hundreds behind, and a fan-in of a few thousand exists.
const (
	maxLevels  = 1000
	maxBatches = 10_000
	maxCauses  = 50
	mostAhead  = 1000 // of what dispatch looks at before; more are not counted
)

func atLeast(ahead int) string {
	if ahead == mostAhead {
		return fmt.Sprintf("%d or more", ahead)
	}
	return strconv.Itoa(ahead)
}

// Explain answers for one batch.
func Explain(ctx context.Context, s *store.Store, c calendar.Calendar, id capri.BatchID) (Answer, error) {
	b, err := s.Batch(ctx, id)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Batch: b, Causes: []Cause{}}
	if b.State != capri.Waiting {
		a.Summary = notWaiting(c, b.Batch)
		return a, nil
	}
	f := &finder{ctx: ctx, s: s, c: c, rows: map[capri.BatchID]store.BatchRow{id: b}, unmet: map[capri.BatchID][]store.ConditionRow{}, tasks: map[string]*capri.Task{},
		roots: map[capri.BatchID]*Cause{}, starts: map[capri.BatchID]capri.Instant{}}
	if f.now, err = s.Now(ctx); err != nil {
		return a, err
	}
	if err := f.gather(id); err != nil {
		return a, err
	}
	if err := f.owners(); err != nil {
		return a, err
	}
	if f.campaigns, err = s.HoldingCampaigns(ctx, slices.Sorted(maps.Keys(f.rows))); err != nil {
		return a, err
	}
	causes := f.own(b)
	causes = append(causes, f.conditions(b)...)
	ahead := 0
	switch {
	case len(f.unmet[id]) > 0:
	case b.Unmet > 0 && f.campaigns[id].ID != 0:
	case b.Unmet > 0:
		causes = append(causes, Cause{Kind: Counting, Detail: "its conditions have just changed and are counted again in a moment", Root: f.rootBatch(b), Until: f.now})
	default:
		more, before, err := f.placing(b, len(causes) == 0)
		if err != nil {
			return a, err
		}
		causes, ahead = append(causes, more...), before
	}
	a.Causes = merge(causes)
	a.Ready = len(a.Causes) == 0
	a.Summary, a.MayStartAt = f.sum(a.Causes, ahead)
	return a, f.people(a.Causes)
}

func notWaiting(c calendar.Calendar, b capri.Batch) string {
	at := func(i capri.Instant) string { return i.In(c.Zone()).Format("2006-01-02 15:04:05") }
	switch {
	case b.State == capri.Finished:
		return fmt.Sprintf("it has finished (%s) at %s", b.FinishState, at(b.FinishTime))
	case b.KillRequest:
		return "it is being killed on node " + b.Node
	case b.State == capri.Assigned:
		return fmt.Sprintf("it was assigned to node %s at %s, whose worker has not taken it yet", b.Node, at(b.AssignTime))
	case b.StartTime == 0:
		return "node " + b.Node + " is preparing it"
	}
	return fmt.Sprintf("it runs on node %s since %s", b.Node, at(b.StartTime))
}

// finder holds what was read for one answer, and what was found.
type finder struct {
	ctx    context.Context
	s      *store.Store
	c      calendar.Calendar
	now    capri.Instant
	rows   map[capri.BatchID]store.BatchRow
	unmet  map[capri.BatchID][]store.ConditionRow // of waiting batches
	tasks  map[string]*capri.Task
	roots  map[capri.BatchID]*Cause        // of waiting batches, found once however many wait for one
	starts map[capri.BatchID]capri.Instant // when they should start

	campaigns map[capri.BatchID]capri.Campaign // that hold batches back
}

// gather reads the unmet conditions of the batch and of every waiting batch behind it, level by level, and then the batches.
func (f *finder) gather(id capri.BatchID) error {
	level := []capri.BatchID{id}
	seen := map[capri.BatchID]bool{id: true}
	var others []capri.BatchID
	for n := 0; n < maxLevels && len(level) > 0; n++ {
		unmet, err := f.s.UnmetOf(f.ctx, level)
		if err != nil {
			return err
		}
		var next []capri.BatchID
		for _, id := range level {
			f.unmet[id] = unmet[id]
			for _, c := range unmet[id] {
				if c.ParentBatchID == 0 || seen[c.ParentBatchID] || len(seen) >= maxBatches {
					continue
				}
				seen[c.ParentBatchID] = true
				others = append(others, c.ParentBatchID)
				if c.ParentState == capri.Waiting {
					next = append(next, c.ParentBatchID)
				}
			}
		}
		level = next
	}
	rows, err := f.s.BatchesByID(f.ctx, others)
	for id, row := range rows {
		f.rows[id] = row
	}
	return err
}

// owners reads the tasks that the causes may name.
func (f *finder) owners() error {
	var names []string
	for _, row := range f.rows {
		names = append(names, row.Task)
	}
	for _, conditions := range f.unmet {
		for _, c := range conditions {
			if c.Parent != "" {
				names = append(names, c.Parent)
			}
		}
	}
	slices.Sort(names)
	tasks, err := f.s.Tasks(f.ctx, store.TaskFilter{Names: slices.Compact(names), WithDeleted: true})
	for _, t := range tasks {
		f.tasks[t.Name] = t
	}
	return err
}

func (f *finder) owner(task string) string {
	if t := f.tasks[task]; t != nil {
		return t.Owner
	}
	return ""
}

// takes is how long a batch of a task is expected to run; 0: nobody knows.
func (f *finder) takes(task string) time.Duration {
	if t := f.tasks[task]; t != nil {
		return time.Duration(t.ExpectedMinutes) * time.Minute
	}
	return 0
}

func (f *finder) at(i capri.Instant) string {
	return i.In(f.c.Zone()).Format("2006-01-02 15:04:05")
}

func (f *finder) rootBatch(b store.BatchRow) Root {
	return Root{Kind: "batch", Name: name(b.Task, b.BatchNo), Batch: b.ID}
}

func name(task string, no capri.BatchNo) string { return task + " " + string(no) }

// own are the causes that lie in the batch itself.
func (f *finder) own(b store.BatchRow) []Cause {
	var causes []Cause
	root := f.rootBatch(b)
	add := func(kind, detail string, root Root, since, until capri.Instant) {
		causes = append(causes, Cause{Kind: kind, Detail: detail, Root: root, Owner: f.owner(b.Task), Since: since, Until: until})
	}
	if b.Held {
		detail := "it is held"
		if b.Message != "" {
			detail = "it is " + strings.TrimPrefix(b.Message, "it is ")
		}
		add(Held, detail+" (capri release "+fmt.Sprint(b.ID)+")", root, 0, 0)
	}
	// A campaign that runs lets a batch go when it is ready: until then what it waits for is the reason.
	if c, ok := f.campaigns[b.ID]; ok && b.Unmet > 0 && (c.State != capri.CampaignRunning || len(f.unmet[b.ID]) == 0) {
		detail := fmt.Sprintf("campaign %d (%s of %s by %s) is %s and holds it back", c.ID, c.Kind, c.Target, c.Who, c.State)
		if c.State == capri.CampaignRunning {
			detail = fmt.Sprintf("campaign %d (%s of %s by %s) runs at most %d batches at once, and it is not its turn", c.ID, c.Kind, c.Target, c.Who, c.Limit)
		}
		causes = append(causes, Cause{Kind: Campaign, Detail: detail + fmt.Sprintf(" (capri campaign show %d)", c.ID), Root: Root{Kind: "campaign", Name: fmt.Sprint(c.ID)}, Owner: c.Who, Since: c.StartedAt})
	}
	if b.KillRequest {
		add(KillAsked, "somebody asked to kill it", root, 0, f.now)
	}
	switch t := f.tasks[b.Task]; {
	case t != nil && t.DeletedAt != 0:
		add(Disabled, "task "+b.Task+" is deleted", Root{Kind: "task", Name: b.Task}, t.DeletedAt, 0)
	case t != nil && !t.Enabled:
		add(Disabled, "task "+b.Task+" is disabled (capri task enable "+b.Task+")", Root{Kind: "task", Name: b.Task}, t.UpdatedAt, 0)
	}
	if b.NotBefore > f.now {
		add(NotBefore, "it may start at "+f.at(b.NotBefore)+" and not before", Root{Kind: "time", Name: f.at(b.NotBefore)}, b.CreateTime, b.NotBefore)
	}
	if detail := gate(b.Batch); detail != "" {
		add(Quality, detail, root, 0, 0)
	}
	return causes
}

// gate says how a batch stands at its quality gate, "" where that is not in its way. The gate is asked about when all
// conditions are met: before that it is they that hold the batch up.
func gate(b capri.Batch) string {
	note, noted := strings.CutPrefix(b.Message, store.GateMessage)
	switch {
	case b.QualityState == 1 && b.Unmet == 0 && noted:
		return "its quality gate could not be asked about: " + note
	case b.QualityState == 1 && b.Unmet == 0:
		return "its quality gate is asked about in a moment"
	case b.QualityState == 2:
		return fmt.Sprintf("the quality API was asked (question %d) and has not answered yet (capri quality %d --runnable or --blocked)", b.QualityAsk, b.ID)
	case b.QualityState == 4:
		return fmt.Sprintf("its quality gate says %s (capri quality %d --runnable, to let it start all the same)", cmp.Or(note, "blocked"), b.ID)
	}
	return ""
}

// conditions follows each unmet condition of a batch to its root.
func (f *finder) conditions(b store.BatchRow) []Cause {
	var causes []Cause
	for _, c := range f.unmet[b.ID] {
		cause := f.follow(b, c)
		cause.Detail = along(cause.Chain, cause.Detail)
		cause.Until = f.metAt(c)
		causes = append(causes, cause)
	}
	return causes
}

// along puts the way to a root before what is to be said of it.
func along(chain []Link, detail string) string {
	waits := func(l Link, how string) string { return fmt.Sprintf("batch %d (%s) waits%s: ", l.Batch, l.Name, how) }
	switch n := len(chain); n {
	case 0:
		return detail
	case 1:
		return waits(chain[0], "") + detail
	case 2:
		return waits(chain[0], "") + waits(chain[1], "") + detail
	default:
		return waits(chain[0], fmt.Sprintf(", behind %d more", n-2)) + waits(chain[n-1], "") + detail
	}
}

// follow says why one condition of a waiting batch is unmet.
func (f *finder) follow(b store.BatchRow, c store.ConditionRow) Cause {
	switch {
	case c.Kind == "third_party":
		return f.thirdParty(b, c)
	case c.ParentBatchID != 0 && c.ParentState == capri.Waiting:
		deeper := f.rootOf(c)
		cause := *deeper
		cause.Chain = append([]Link{{c.ParentBatchID, name(c.Parent, c.BatchNo)}}, deeper.Chain...)
		return cause
	case c.Kind == "input" && (c.ParentBatchID == 0 || c.Succeeded()):
		return f.path(b, c)
	case c.ParentBatchID == 0:
		return f.missing(b, c)
	}

	row := f.rows[c.ParentBatchID]
	parent := name(c.Parent, c.BatchNo)
	cause := Cause{Root: Root{Kind: "batch", Name: parent, Batch: c.ParentBatchID}, Owner: f.owner(c.Parent)}
	makes := ""
	if c.Kind == "input" {
		makes = ", which makes " + c.Path + ","
	}
	switch {
	case c.Succeeded():
		cause.Kind, cause.Detail, cause.Since = ParentRunning, fmt.Sprintf("batch %d (%s) has just succeeded: it is noticed in a moment", c.ParentBatchID, parent), row.FinishTime
	case c.ParentState == capri.Finished:
		cause.Kind, cause.Since = ParentFailed, row.FinishTime
		cause.Detail = fmt.Sprintf("batch %d (%s)%s ended as %s%s", c.ParentBatchID, parent, makes, c.ParentFinish, anyOne(c))
		if row.Message != "" {
			cause.Detail += ": " + row.Message
		}
	default:
		cause.Kind, cause.Since = ParentRunning, cmp.Or(row.StartTime, row.AssignTime)
		cause.Detail = fmt.Sprintf("batch %d (%s)%s has not finished: %s%s", c.ParentBatchID, parent, makes, notWaiting(f.c, row.Batch), anyOne(c))
	}
	return cause
}

func anyOne(c store.ConditionRow) string {
	if c.Policy == string(capri.Anyone) {
		return " (any one of its batches is enough)"
	}
	return ""
}

func (f *finder) path(b store.BatchRow, c store.ConditionRow) Cause {
	detail := "path " + c.Path + " is not there"
	if c.Flag != "" {
		detail = "flag " + c.Flag + " is not in " + c.Path
	}
	cause := Cause{Kind: Path, Detail: detail, Root: Root{Kind: "path", Name: c.Path}, Owner: f.owner(b.Task), Since: b.CreateTime}
	if c.ParentBatchID != 0 {
		cause.Owner = f.owner(c.Parent)
		cause.Detail += fmt.Sprintf(", though batch %d (%s), which makes it, has succeeded", c.ParentBatchID, name(c.Parent, c.BatchNo))
	}
	return cause
}

func (f *finder) thirdParty(b store.BatchRow, c store.ConditionRow) Cause {
	of := fmt.Sprintf("%s %s %s", c.Code, c.Period, c.BatchNo)
	detail := ""
	switch c.Said {
	case "":
		detail = "the third party has not reported " + of
	case "ready":
		detail = "the third party has reported " + of + " just now: it is noticed in a moment"
	case "fail":
		detail = "the third party has reported " + of + " as failed"
	default:
		detail = "the third party has withdrawn " + of
	}
	return Cause{Kind: ThirdParty, Detail: detail, Root: Root{Kind: "third_party", Name: of}, Owner: f.owner(b.Task), Since: cmp.Or(c.SaidAt, b.CreateTime)}
}

// missing explains a parent's batch that does not exist.
func (f *finder) missing(b store.BatchRow, c store.ConditionRow) Cause {
	reason, _ := f.madeAt(c)
	return Cause{Kind: ParentMissing, Detail: fmt.Sprintf("there is no batch %s%s: %s", name(c.Parent, c.BatchNo), anyOne(c), reason),
		Root: Root{Kind: "task", Name: c.Parent}, Owner: f.owner(c.Parent), Since: b.CreateTime}
}

// madeAt says why a parent's batch does not exist, and when it will; 0: not by itself.
func (f *finder) madeAt(c store.ConditionRow) (reason string, at capri.Instant) {
	switch t := f.tasks[c.Parent]; {
	case t == nil || t.DeletedAt != 0:
		return "the task is deleted", 0
	case !t.Enabled:
		return "the task is disabled", 0
	case t.Period.Calendar():
		if iv, err := f.c.Parse(t.Period, c.BatchNo); err == nil && iv.Mark > f.now {
			return "it will be made at " + f.at(iv.Mark), iv.Mark
		}
	}
	return "nobody has made it (capri plan, execute or cold-start it)", 0
}

// rootOf is the first cause of a waiting batch that others wait for. One that is met on the way to its own root, which a
// definition cannot cause but two edits might have left behind, ends the search.
func (f *finder) rootOf(c store.ConditionRow) *Cause {
	id := c.ParentBatchID
	if found := f.roots[id]; found != nil {
		return found
	}
	row, read := f.rows[id]
	here := &Cause{Kind: ParentWaiting, Detail: fmt.Sprintf("more than can be followed here (capri why %d)", id),
		Root: Root{Kind: "batch", Name: name(c.Parent, c.BatchNo), Batch: id}, Owner: f.owner(c.Parent), Since: row.CreateTime}
	f.roots[id] = here // also stops a cycle
	if own := f.own(row); read && len(own) > 0 {
		*here = own[0]
		return here
	}
	unmet, known := f.unmet[id]
	switch {
	case !known:
	case len(unmet) == 0:
		here.Detail = "it is ready and waits to be placed"
		if row.Message != "" && !bornWith(row.Message) {
			here.Detail += ": " + row.Message
		}
	default:
		worst, _ := store.Worst(unmet)
		*here = f.follow(row, worst)
		if len(unmet) > 1 {
			here.Detail += fmt.Sprintf(" (and %d more)", len(unmet)-1)
		}
	}
	return here
}

// metAt estimates when a condition is met; 0: nobody can know. What nobody has measured counts as short, so it is a time
// before which it will not be.
func (f *finder) metAt(c store.ConditionRow) capri.Instant {
	from := capri.Instant(0)
	switch {
	case c.Kind == "third_party":
		if c.Said == "ready" {
			return f.now
		}
		return 0
	case c.Succeeded():
		if c.Kind == "parent" {
			return f.now
		}
		return 0
	case c.ParentBatchID == 0:
		if c.Kind == "parent" {
			_, from = f.madeAt(c)
		}
	case c.ParentState == capri.Finished:
	case c.ParentState == capri.Waiting:
		from = f.startsAt(f.rows[c.ParentBatchID])
	default:
		from = cmp.Or(f.rows[c.ParentBatchID].StartTime, f.now)
	}
	if from == 0 {
		return 0
	}
	return max(f.now, from.Add(f.takes(c.Parent)))
}

// startsAt estimates when a waiting batch starts; 0: nobody can know.
func (f *finder) startsAt(b store.BatchRow) capri.Instant {
	if at, known := f.starts[b.ID]; known {
		return at
	}
	f.starts[b.ID] = 0 // also stops a cycle
	unmet, known := f.unmet[b.ID]
	if !known {
		return 0
	}
	at := f.now
	for _, c := range f.own(b) {
		if c.Until == 0 {
			return 0
		}
		at = max(at, c.Until)
	}
	anyone := map[int]capri.Instant{} // by group: the first of them is enough
	for _, c := range unmet {
		met := f.metAt(c)
		if c.Policy == string(capri.Anyone) {
			if was, seen := anyone[c.Group]; !seen || was == 0 || met != 0 && met < was {
				anyone[c.Group] = met
			}
			continue
		}
		if met == 0 {
			return 0
		}
		at = max(at, met)
	}
	for _, met := range anyone {
		if met == 0 {
			return 0
		}
		at = max(at, met)
	}
	f.starts[b.ID] = at
	return at
}

// placing are the causes of a batch whose conditions are met. alone: nothing else is in its way, so what dispatch would
// answer is the reason. ahead is how many ready batches dispatch looks at before this one.
func (f *finder) placing(b store.BatchRow, alone bool) (causes []Cause, ahead int, err error) {
	world, grants, err := facts.Read(f.ctx, f.s, f.now)
	if err != nil {
		return nil, 0, err
	}
	service := Root{Kind: "service", Name: "dispatch"}
	switch {
	case world.Paused != "":
		detail := "dispatch is paused: " + world.Paused
		if world.PausedUntil != 0 {
			detail += ", until " + f.at(world.PausedUntil)
		}
		causes = append(causes, Cause{Kind: Paused, Detail: detail, Root: service, Until: world.PausedUntil})
	case world.MaxRunning == 0:
		causes = append(causes, Cause{Kind: Paused, Detail: "dispatch may run no batch at all (max_running is 0; capri dispatch limit -1)", Root: service})
	}
	causes = append(causes, f.stops(b, world)...)
	locks, err := f.s.Locks(f.ctx)
	if err != nil {
		return nil, 0, err
	}
	if !slices.ContainsFunc(locks, func(l store.ServiceLock) bool { return l.Service == "dispatch" && l.Holder != "" }) {
		causes = append(causes, Cause{Kind: NoLeader, Detail: "no master places batches now: none leads dispatch", Root: service})
	}
	latest, err := facts.Latest(f.ctx, f.s, f.c)
	if err != nil {
		return nil, 0, err
	}
	if latest != 0 && b.ScheduleTime > latest {
		causes = append(causes, Cause{Kind: LatestAllowed, Detail: "its schedule time is after the latest allowed, " + f.at(latest), Root: Root{Kind: "setting", Name: store.LatestScheduleTime}})
	}
	if c, none := f.noNode(b, world); none {
		return append(causes, c), 0, nil
	}
	if !alone || len(causes) > 0 {
		return causes, 0, nil
	}
	running, err := f.s.RunningAround(f.ctx, b.TaskID)
	if err != nil {
		return nil, 0, err
	}
	facts.Running(world, running)
	if ahead, err = f.s.ReadyBefore(f.ctx, f.now, latest, b.Batch, mostAhead); err != nil {
		return nil, 0, err
	}
	candidate := grants.Batch(&store.Ready{ID: b.ID, Task: b.TaskID, Owner: f.owner(b.Task), Group: f.group(b.Task), Priority: b.Priority, ScheduleTime: b.ScheduleTime, Slots: b.Slots, MemoryMB: b.MemoryMB,
		Concurrency: b.Concurrency, Pool: b.Pool, Strategy: b.Strategy, Nodes: b.Nodes, Account: b.Account, AvoidNode: b.AvoidNode})
	answer := placement.NewPlanner(world, nil).Place(&candidate)
	if answer.Node != "" {
		return nil, ahead, nil
	}
	cause := Cause{Kind: Limit, Detail: answer.Reason, Root: Root{Kind: "pool", Name: b.Pool}}
	switch {
	case answer.Fail:
		cause.Kind, cause.Root, cause.Owner = NoRight, Root{Kind: "task", Name: b.Task}, f.owner(b.Task)
	case world.RunningByTask[b.TaskID] >= max(1, b.Concurrency):
		cause.Root, cause.Owner = Root{Kind: "task", Name: b.Task}, f.owner(b.Task)
	case world.MaxRunning >= 0 && world.Running >= world.MaxRunning:
		cause.Root = service
	default:
		if cause.Until, err = f.freeAt(b.Pool, ahead); err != nil {
			return nil, 0, err
		}
	}
	if ahead > 0 {
		cause.Detail += fmt.Sprintf("; %s ready batches come before it", atLeast(ahead))
	}
	return []Cause{cause}, ahead, nil
}

// freeAt estimates when a place comes free in a pool for a batch that so many others stand before; 0: nobody can know.
func (f *finder) freeAt(pool string, ahead int) (capri.Instant, error) {
	const most = 5000
	running, err := f.s.RunningEnds(f.ctx, most)
	if err != nil {
		return 0, err
	}
	var ends []capri.Instant
	for _, r := range running {
		if r.Pool == pool && r.At != 0 {
			ends = append(ends, max(r.At, f.now))
		}
	}
	if ahead >= len(ends) {
		return 0, nil
	}
	slices.Sort(ends)
	return ends[ahead], nil
}

// bornWith tells the notes that a batch is made with, on what it does not wait for, from what dispatch says of it.
func bornWith(message string) bool {
	for _, field := range []string{"parents[", "inputs[", "outputs["} {
		if strings.HasPrefix(message, field) {
			return true
		}
	}
	return false
}

// stops are the pauses and open breakers of the batch's task and group.
func (f *finder) stops(b store.BatchRow, world *placement.Facts) []Cause {
	var causes []Cause
	add := func(scope, name string, x placement.Stop, stopped bool) {
		if !stopped {
			return
		}
		c := Cause{Kind: Paused, Detail: f.until(x), Root: Root{Kind: scope, Name: name}, Owner: f.owner(b.Task), Since: x.Since, Until: x.Until}
		undo := "capri resume --" + scope + " " + name
		if x.Breaker {
			c.Kind, undo = BreakerOpen, "capri breaker close --"+scope+" "+name
		}
		c.Detail += " (" + undo + ")"
		causes = append(causes, c)
	}
	group := f.group(b.Task)
	ofGroup, stopped := world.StoppedGroups[group]
	add("group", group, ofGroup, stopped)
	ofTask, stopped := world.StoppedTasks[b.TaskID]
	add("task", b.Task, ofTask, stopped)
	return causes
}

// until is what a pause or breaker says, with its end.
func (f *finder) until(x placement.Stop) string {
	if x.Until == 0 {
		return x.Says
	}
	return x.Says + ", until " + f.at(x.Until)
}

func (f *finder) group(task string) string {
	if t := f.tasks[task]; t != nil {
		return t.Group
	}
	return ""
}

// noNode finds out whether any node may take the batch at all. Where pauses keep them from it, it may when the first ends.
func (f *finder) noNode(b store.BatchRow, world *placement.Facts) (Cause, bool) {
	var there []string
	var until capri.Instant
	for _, n := range world.Nodes {
		if len(b.Nodes) > 0 && !slices.Contains(b.Nodes, n.Name) || len(b.Nodes) == 0 && n.Pool != b.Pool {
			continue
		}
		switch {
		case n.Lost:
			there = append(there, n.Name+" is lost")
		case n.Left:
			there = append(there, n.Name+" has stopped")
		case n.Draining:
			there = append(there, n.Name+" is draining")
		case n.ShortOf != "":
			there = append(there, n.Name+" takes nothing: "+n.ShortOf)
		default:
			x, paused := world.StoppedNodes[n.Name]
			if !paused {
				return Cause{}, false
			}
			there = append(there, strings.TrimPrefix(f.until(x), "node "))
			if x.Until != 0 && (until == 0 || x.Until < until) {
				until = x.Until
			}
		}
	}
	root := Root{Kind: "pool", Name: b.Pool}
	of := "pool " + b.Pool
	if len(b.Nodes) > 0 {
		of = "its list " + strings.Join(b.Nodes, ", ")
	}
	if len(there) == 0 {
		return Cause{Kind: NoNode, Detail: "there is no node of " + of, Root: root}, true
	}
	return Cause{Kind: NoNode, Detail: "no node of " + of + " takes work: " + strings.Join(there, ", "), Root: root, Until: until}, true
}

// merge makes one cause of those with the same root, so that a thousand parents held up by one thing are one line.
func merge(causes []Cause) []Cause {
	type key struct {
		kind string
		root Root
	}
	at := map[key]int{}
	count := map[int]int{}
	out := []Cause{}
	for _, c := range causes {
		k := key{c.Kind, c.Root}
		if i, ok := at[k]; ok {
			count[i]++
			out[i].Until = later(out[i].Until, c.Until)
			if c.Since != 0 {
				out[i].Since = min(cmp.Or(out[i].Since, c.Since), c.Since)
			}
			continue
		}
		at[k] = len(out)
		out = append(out, c)
	}
	for i, n := range count {
		out[i].Detail += fmt.Sprintf(" (and %d more for the same reason)", n)
	}
	if len(out) > maxCauses {
		rest := len(out) - maxCauses + 1
		out = append(out[:maxCauses-1], Cause{Kind: ParentWaiting, Detail: fmt.Sprintf("and %d more causes", rest)})
	}
	return out
}

// later is the later of two times of which 0 means never.
func later(a, b capri.Instant) capri.Instant {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// sum says it in one sentence, and when the batch may start if every cause has its time.
func (f *finder) sum(causes []Cause, ahead int) (string, capri.Instant) {
	if len(causes) == 0 {
		if ahead > 0 {
			return fmt.Sprintf("it is ready: nothing is in its way but %s ready batches that come before it", atLeast(ahead)), f.now
		}
		return "it is ready: nothing is in its way, it will be placed in a moment", f.now
	}
	last := f.now
	for _, c := range causes {
		last = later(last, c.Until)
	}
	text := causes[0].Detail
	switch n := len(causes); {
	case n == 2:
		text += "; and " + causes[1].Detail
	case n > 2:
		text += fmt.Sprintf("; and %d more causes", n-1)
	}
	if last > f.now {
		text += fmt.Sprintf(" (in about %s)", last.Sub(f.now).Round(time.Second))
	}
	return text, last
}

// people fills in since when batches are held, and who is on duty for each cause.
func (f *finder) people(causes []Cause) error {
	if len(causes) == 0 {
		return nil
	}
	var held []capri.BatchID
	for _, c := range causes {
		if c.Kind == Held {
			held = append(held, c.Root.Batch)
		}
	}
	since, err := f.s.HeldSince(f.ctx, held)
	if err != nil {
		return err
	}
	users, err := f.s.Users(f.ctx)
	if err != nil {
		return err
	}
	department := map[string]string{}
	for _, u := range users {
		department[u.Name] = u.Department
	}
	rotas, err := f.s.Rotas(f.ctx)
	if err != nil {
		return err
	}
	onDuty := map[string][]string{}
	for _, r := range rotas {
		d := duty.At(r, f.now)
		onDuty[r.Department] = slices.DeleteFunc([]string{d.Primary, d.Secondary}, func(name string) bool { return name == "" })
	}
	for i := range causes {
		c := &causes[i]
		if c.Kind == Held {
			c.Since = since[c.Root.Batch]
		}
		if c.OnDuty = onDuty[department[c.Owner]]; len(c.OnDuty) == 0 {
			c.OnDuty = onDuty[""]
		}
	}
	return nil
}
