// Package why answers one question: why is this batch not running? Console, command line and alerts all ask here,
// so that they cannot give different answers.
//
// What holds a batch up itself (a hold, a pause, its time, a disabled task, no node) is said first. Each unmet
// condition is then followed to its root: a parent that waits is asked the same question, until something is found
// that does not wait for another batch: a path, a third party, a failed or a running batch, or one that nobody made.
//
// The number of queries is bounded, however wide or deep: a level of parents is read at once, and levels and
// batches have a limit. Nothing is written.
package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/calendar"
	"capri/sql/store"
)

// Answer is why one batch is not running.
type Answer struct {
	Batch      store.BatchRow
	Ready      bool // nothing but a placing is missing
	Summary    string
	Causes     []Cause
	MayStartAt capri.Instant // 0: it depends on something that has no time
}

// Cause is one thing in the way.
type Cause struct {
	Kind   string // see the constants
	Detail string
	Root   Root
	Owner  string // of the root's task, where it has one
	until  capri.Instant
}

// Root is what somebody would have to look after.
type Root struct {
	Kind  string // batch, task, path, third_party, pool, service, time
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
	NoLeader      = "no_leader"
	NoNode        = "no_node"
	Limit         = "limit"
	Path          = "path"
	ThirdParty    = "third_party"
	ParentMissing = "parent_missing"
	ParentFailed  = "parent_failed"
	ParentRunning = "parent_running"
	ParentWaiting = "parent_waiting"
)

// Bounds of the search. A chain of parents is rarely ten long; a fan-in of a few thousand exists.
const (
	maxLevels  = 30
	maxBatches = 10_000
	maxCauses  = 50
)

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
	f := &finder{ctx: ctx, s: s, c: c, rows: map[capri.BatchID]store.BatchRow{id: b}, unmet: map[capri.BatchID][]store.ConditionRow{}, tasks: map[string]*capri.Task{}}
	if f.now, err = s.Now(ctx); err != nil {
		return a, err
	}
	if err := f.gather(id); err != nil {
		return a, err
	}
	if err := f.owners(); err != nil {
		return a, err
	}
	causes := f.own(b)
	causes = append(causes, f.conditions(b)...)
	if len(f.unmet[id]) == 0 {
		more, err := f.placing(b, len(causes) == 0)
		if err != nil {
			return a, err
		}
		causes = append(causes, more...)
	}
	a.Causes = merge(causes)
	a.Ready = len(a.Causes) == 0
	a.Summary, a.MayStartAt = f.sum(a.Causes)
	return a, nil
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

// finder holds what was read for one answer.
type finder struct {
	ctx   context.Context
	s     *store.Store
	c     calendar.Calendar
	now   capri.Instant
	rows  map[capri.BatchID]store.BatchRow
	unmet map[capri.BatchID][]store.ConditionRow // of waiting batches
	tasks map[string]*capri.Task
}

// gather reads the batch's unmet conditions, the parents they name, and theirs: a few queries for each level.
func (f *finder) gather(id capri.BatchID) error {
	level := []capri.BatchID{id}
	for n := 0; n < maxLevels && len(level) > 0; n++ {
		unmet, err := f.s.UnmetOf(f.ctx, level)
		if err != nil {
			return err
		}
		var next []capri.BatchID
		for _, id := range level {
			f.unmet[id] = unmet[id]
			for _, c := range unmet[id] {
				if c.ParentBatchID == 0 || len(f.rows) >= maxBatches {
					continue
				}
				if _, seen := f.rows[c.ParentBatchID]; !seen {
					f.rows[c.ParentBatchID] = store.BatchRow{} // seen; filled in below
					next = append(next, c.ParentBatchID)
				}
			}
		}
		rows, err := f.s.BatchesByID(f.ctx, next)
		if err != nil {
			return err
		}
		level = level[:0]
		for _, id := range next {
			row, ok := rows[id]
			if !ok {
				delete(f.rows, id)
				continue
			}
			f.rows[id] = row
			if row.State == capri.Waiting {
				level = append(level, id)
			}
		}
	}
	return nil
}

// owners reads the tasks that the causes may name.
func (f *finder) owners() error {
	var names []string
	for _, row := range f.rows {
		names = append(names, row.Task)
	}
	for _, conditions := range f.unmet {
		for _, c := range conditions {
			if c.Kind == "parent" {
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

func (f *finder) at(i capri.Instant) string {
	return i.In(f.c.Zone()).Format("2006-01-02 15:04:05")
}

// own are the causes that lie in the batch itself.
func (f *finder) own(b store.BatchRow) []Cause {
	var causes []Cause
	root := Root{Kind: "batch", Name: fmt.Sprintf("%s %s", b.Task, b.BatchNo), Batch: b.ID}
	add := func(kind, detail string, root Root, until capri.Instant) {
		causes = append(causes, Cause{Kind: kind, Detail: detail, Root: root, Owner: f.owner(b.Task), until: until})
	}
	if b.Held {
		detail := "it is held"
		if b.Message != "" {
			detail = "it is " + strings.TrimPrefix(b.Message, "it is ")
		}
		add(Held, detail+" (capri release "+fmt.Sprint(b.ID)+")", root, 0)
	}
	if b.KillRequest {
		add(KillAsked, "somebody asked to kill it", root, 0)
	}
	switch t := f.tasks[b.Task]; {
	case t != nil && t.DeletedAt != 0:
		add(Disabled, "task "+b.Task+" is deleted", Root{Kind: "task", Name: b.Task}, 0)
	case t != nil && !t.Enabled:
		add(Disabled, "task "+b.Task+" is disabled (capri task enable "+b.Task+")", Root{Kind: "task", Name: b.Task}, 0)
	}
	if b.NotBefore > f.now {
		add(NotBefore, "it may start at "+f.at(b.NotBefore)+" and not before", Root{Kind: "time", Name: f.at(b.NotBefore)}, b.NotBefore)
	}
	if detail := gate(b.Batch); detail != "" {
		add(Quality, detail, root, 0)
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
	memo := map[capri.BatchID]*Cause{}
	for _, c := range f.unmet[b.ID] {
		causes = append(causes, f.follow(c, memo))
	}
	return causes
}

// follow says why one condition is unmet.
func (f *finder) follow(c store.ConditionRow, memo map[capri.BatchID]*Cause) Cause {
	switch c.Kind {
	case "input":
		detail := "path " + c.Path + " is not there"
		if c.Flag != "" {
			detail = "flag " + c.Flag + " is not in " + c.Path
		}
		return Cause{Kind: Path, Detail: detail, Root: Root{Kind: "path", Name: c.Path}}
	case "third_party":
		name := fmt.Sprintf("%s %s %s", c.Code, c.Period, c.BatchNo)
		detail := ""
		switch c.Said {
		case "":
			detail = "the third party has not reported " + name
		case "ready":
			detail = "the third party has reported " + name + " just now: it is noticed in a moment"
		case "fail":
			detail = "the third party has reported " + name + " as failed"
		default:
			detail = "the third party has withdrawn " + name
		}
		return Cause{Kind: ThirdParty, Detail: detail, Root: Root{Kind: "third_party", Name: name}}
	}

	parent := fmt.Sprintf("%s %s", c.Parent, c.BatchNo)
	one := ""
	if c.Policy == string(capri.Anyone) {
		one = " (any one of its batches is enough)"
	}
	if c.ParentBatchID == 0 {
		return f.missing(c, parent, one)
	}
	root := Root{Kind: "batch", Name: parent, Batch: c.ParentBatchID}
	cause := Cause{Root: root, Owner: f.owner(c.Parent)}
	row := f.rows[c.ParentBatchID]
	switch {
	case c.ParentState == capri.Finished && c.ParentFinish == capri.Success:
		cause.Kind, cause.Detail = ParentRunning, fmt.Sprintf("batch %d (%s) has just succeeded: it is noticed in a moment", c.ParentBatchID, parent)
	case c.ParentState == capri.Finished:
		cause.Kind = ParentFailed
		cause.Detail = fmt.Sprintf("batch %d (%s) ended as %s%s", c.ParentBatchID, parent, c.ParentFinish, one)
		if row.Message != "" {
			cause.Detail += ": " + row.Message
		}
	case c.ParentState != capri.Waiting:
		cause.Kind = ParentRunning
		cause.Detail = fmt.Sprintf("batch %d (%s) has not finished: %s%s", c.ParentBatchID, parent, notWaiting(f.c, row.Batch), one)
	default:
		deeper := f.rootOf(c.ParentBatchID, memo)
		cause = *deeper
		cause.Detail = fmt.Sprintf("batch %d (%s) waits%s: %s", c.ParentBatchID, parent, one, deeper.Detail)
	}
	return cause
}

// missing explains a parent's batch that does not exist.
func (f *finder) missing(c store.ConditionRow, parent, one string) Cause {
	cause := Cause{Kind: ParentMissing, Root: Root{Kind: "task", Name: c.Parent}, Owner: f.owner(c.Parent)}
	reason := "nobody has made it (capri plan, execute or cold-start it)"
	t := f.tasks[c.Parent]
	switch {
	case t == nil || t.DeletedAt != 0:
		reason = "the task is deleted"
	case !t.Enabled:
		reason = "the task is disabled"
	case t.Period.Calendar():
		if iv, err := f.c.Parse(t.Period, c.BatchNo); err == nil && iv.Mark > f.now {
			reason = "it will be made at " + f.at(iv.Mark)
			cause.until = iv.Mark
		}
	}
	cause.Detail = fmt.Sprintf("there is no batch %s%s: %s", parent, one, reason)
	return cause
}

// rootOf is the first cause of a waiting parent, found once however many wait for it. A batch that is met on the
// way to its own root, which a definition cannot cause but two edits might have left behind, ends the search.
func (f *finder) rootOf(id capri.BatchID, memo map[capri.BatchID]*Cause) *Cause {
	if c := memo[id]; c != nil {
		return c
	}
	row := f.rows[id]
	name := fmt.Sprintf("%s %s", row.Task, row.BatchNo)
	here := &Cause{Kind: ParentWaiting, Detail: "it waits, too", Root: Root{Kind: "batch", Name: name, Batch: id}, Owner: f.owner(row.Task)}
	memo[id] = here // also stops a cycle
	if own := f.own(row); len(own) > 0 {
		*here = own[0]
		return here
	}
	unmet, known := f.unmet[id]
	switch {
	case !known:
		here.Detail = "it waits, too (more than can be followed here: capri why " + fmt.Sprint(id) + ")"
	case len(unmet) == 0:
		here.Detail = "it is ready and waits to be placed"
		if row.Message != "" && !bornWith(row.Message) {
			here.Detail += ": " + row.Message
		}
	default:
		*here = f.follow(unmet[0], memo)
		if len(unmet) > 1 {
			here.Detail += fmt.Sprintf(" (and %d more)", len(unmet)-1)
		}
	}
	return here
}

// placing are the causes of a batch whose conditions are met. alone: nothing else is in its way, so what dispatch
// wrote on it is the reason.
func (f *finder) placing(b store.BatchRow, alone bool) ([]Cause, error) {
	var causes []Cause
	paused, reason, until, limit, err := f.s.DispatchLimits(f.ctx)
	if err != nil {
		return nil, err
	}
	service := Root{Kind: "service", Name: "dispatch"}
	switch {
	case paused && (until == 0 || f.now < until):
		detail := "dispatch is paused: " + reason
		if until != 0 {
			detail += ", until " + f.at(until)
		}
		causes = append(causes, Cause{Kind: Paused, Detail: detail, Root: service, until: until})
	case limit == 0:
		causes = append(causes, Cause{Kind: Paused, Detail: "dispatch may run no batch at all (max_running is 0)", Root: service})
	}
	locks, err := f.s.Locks(f.ctx)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(locks, func(l store.ServiceLock) bool { return l.Service == "dispatch" && l.Holder != "" }) {
		causes = append(causes, Cause{Kind: NoLeader, Detail: "no master places batches now: none leads dispatch", Root: service})
	}
	text, err := f.s.Setting(f.ctx, store.LatestScheduleTime)
	if err != nil {
		return nil, err
	}
	if latest, err := f.c.ParseTime(text); text != "" && err == nil && b.ScheduleTime > latest {
		causes = append(causes, Cause{Kind: LatestAllowed, Detail: "its schedule time is after the latest allowed, " + f.at(latest), Root: Root{Kind: "setting", Name: store.LatestScheduleTime}})
	}
	nodes, err := f.s.Nodes(f.ctx)
	if err != nil {
		return nil, err
	}
	if c, none := noNode(b, nodes); none {
		return append(causes, c), nil
	}
	if alone && len(causes) == 0 && b.Message != "" && !bornWith(b.Message) {
		causes = append(causes, Cause{Kind: Limit, Detail: b.Message, Root: Root{Kind: "pool", Name: b.Pool}})
	}
	return causes, nil
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

// noNode finds out whether any node may take the batch at all.
func noNode(b store.BatchRow, nodes []capri.Node) (Cause, bool) {
	var there []string
	for _, n := range nodes {
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
			return Cause{}, false
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
	return Cause{Kind: NoNode, Detail: "no node of " + of + " takes work: " + strings.Join(there, ", "), Root: root}, true
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
			out[i].until = max(out[i].until, c.until)
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

// sum says it in one sentence, and when the batch may start if every cause has its time.
func (f *finder) sum(causes []Cause) (string, capri.Instant) {
	if len(causes) == 0 {
		return "it is ready: nothing is in its way, it will be placed in a moment", f.now
	}
	var last capri.Instant
	for _, c := range causes {
		if c.until == 0 {
			last = 0
			break
		}
		last = max(last, c.until)
	}
	text := causes[0].Detail
	switch n := len(causes); {
	case n == 2:
		text += "; and " + causes[1].Detail
	case n > 2:
		text += fmt.Sprintf("; and %d more causes", n-1)
	}
	if last != 0 {
		text += fmt.Sprintf(" (in %s)", last.Sub(f.now).Round(time.Second))
	}
	return text, last
}
