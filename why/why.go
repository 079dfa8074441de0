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
	f := &finder{ctx: ctx, s: s, c: c, rows: map[capri.BatchID]store.BatchRow{id: b}, tasks: map[string]*capri.Task{},
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

// gather reads the unmet conditions of the batch and of every waiting batch behind it, and then the batches.
func (f *finder) gather(id capri.BatchID) error {
	unmet, others, err := f.s.UnmetBehind(f.ctx, id, maxLevels, maxBatches)
	if err != nil {
		return err
	}
	f.unmet = unmet
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

func (f *finder) group(task string) string {
	if t := f.tasks[task]; t != nil {
		return t.Group
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
