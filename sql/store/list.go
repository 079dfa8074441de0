package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// Lists of batches. A page must not cost more in a table of a million rows than in one of a thousand, whatever was asked
// for, so how the database goes about it is chosen here and not by its optimizer, whose statistics are of yesterday:
//
//	walk   an index whose entries come in the list's order; stops when the page is full. Each access below that can give
//	       that order is one walk per value (of a finish state, a node's states, a period), merged.
//	sort   the entries of a rare value, all of them, where no index has the order.
//
// Every filter that has an index is an access. Which one is taken is decided by counting each, up to few: the rarest wins,
// since walking or sorting it reads no more than that. Where all are frequent, a page is full soon on the one that walks.
// The batches of a campaign are read by the ids that its items have, and sorted: no more than a campaign has is read.
// A list by data has no index: it sorts what its rarest filter gives, and is refused where that is more than sortable.
//
// Only ids are found this way, mostly without touching a row; the rows of the page are read by id.

// few is how many entries of an index may be read for a page, and the most that a filter is counted to.
const few = 10_000

// sortable is how many entries a list by data may sort.
const sortable = 10 * few

// mostTasks is how many tasks a filter may name one by one; a larger group is asked of each row's task.
const (
	mostTasks = 4_500
	inList    = 900 // of which one at a time: MariaDB makes a subquery of a longer list
	inText    = 100 // of which each part of a union may repeat
)

// BatchOrder is the time by which a list is ordered, and of which its range speaks.
type BatchOrder struct {
	Of     BatchTime
	Oldest bool // first; else the newest
}

// BatchTime is a time of a batch.
type BatchTime int

const (
	BySchedule BatchTime = iota // schedule_time
	ByData                      // the beginning of its data
)

var batchTimes = [...]string{BySchedule: "w.schedule_time", ByData: "w.data_start"}

// BatchPosition is a place in a list.
type BatchPosition struct {
	At capri.Instant
	ID capri.BatchID
}

// BatchFilter chooses batches for a list. Zero fields choose all.
type BatchFilter struct {
	Task         capri.TaskID
	Name         string // of the task, * standing for anything
	Group        string
	Owner        string
	Department   string // of the owner
	Period       capri.Period
	States       []capri.State
	FinishStates []capri.FinishState
	Node         string
	Campaign     capri.CampaignID // what runs for it
	From, To     capri.Instant    // of the order's time, both included; ByData: the interval lies inside [From, To)
	Late         bool             // a time-out stands on it, or its earliest start passed and it has not started
	AllRuns      bool             // not only the latest run of each batch_no
	Archived     bool             // the archive's too, whatever the range
	Order        BatchOrder
	Seen         *Seen         // only what somebody may see; nil: all
	After        BatchPosition // the last of the page before
	Limit        int           // 0: 1,000
}

// Position is a batch's place in a list of an order.
func (o BatchOrder) Position(b *capri.Batch) BatchPosition {
	return BatchPosition{[...]capri.Instant{b.ScheduleTime, b.DataStart}[o.Of], b.ID}
}

func (o BatchOrder) compare(a, b BatchPosition) int {
	n := cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID))
	if !o.Oldest {
		n = -n
	}
	return n
}

// BatchRow is a batch with its task's name.
type BatchRow struct {
	capri.Batch
	Task string
}

// Batches lists batches. Where the range reaches back to what is archived, that is listed, too.
func (s *Store) Batches(ctx context.Context, f BatchFilter) ([]BatchRow, error) {
	rows, err := s.batches(ctx, f, few)
	return rows, s.fault("list batches", err)
}

func (s *Store) batches(ctx context.Context, f BatchFilter, few int) ([]BatchRow, error) {
	if f.Limit <= 0 {
		f.Limit = 1000
	}
	l := &batchList{BatchFilter: f, s: s, few: few}
	if err := l.where(ctx); err != nil {
		return nil, err
	}
	found, err := l.live(ctx)
	if err != nil {
		return nil, err
	}
	back, err := s.reachesBack(ctx, f)
	if err != nil {
		return nil, err
	}
	if back {
		old, err := l.positions(ctx, l.page(archiveTable, nil))
		if err != nil {
			return nil, err
		}
		// Each table gave its first; what was moved between the two reads came twice.
		found = append(found, old...)
		slices.SortFunc(found, f.Order.compare)
		found = slices.Compact(found)
		found = found[:min(len(found), f.Limit)]
	}
	ids := make([]capri.BatchID, len(found))
	for i, p := range found {
		ids[i] = p.ID
	}
	by, err := s.BatchesByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]BatchRow, 0, len(ids))
	for _, id := range ids {
		if row, ok := by[id]; ok {
			out = append(out, row)
		}
	}
	return out, nil
}

// batchList is a list being read.
type batchList struct {
	BatchFilter
	s       *Store
	few     int
	filters sq.And // what a batch has to be, whichever way it is found
	bounds  sq.And // between which times, and where the page begins
	tasks   []capri.TaskID
	byTask  bool       // tasks holds all that may be
	ofTask  sq.Sqlizer // asks the same of a row
}

// access is a way to find batches: an index, with what its entries have to begin with.
type access struct {
	index   string
	walks   []sq.Sqlizer
	counted []sq.Sqlizer // the same entries in fewer pieces
	inOrder bool         // each walk comes in the list's order
}

// where translates the filter.
func (l *batchList) where(ctx context.Context) error {
	add := func(when bool, cond sq.Sqlizer) {
		if when {
			l.filters = append(l.filters, cond)
		}
	}
	add(l.Period != 0, sq.Eq{"w.period": int(l.Period)})
	add(len(l.States) > 0, sq.Eq{"w.state": ints(l.States)})
	add(len(l.FinishStates) > 0, sq.Eq{"w.finish_state": ints(l.FinishStates)})
	add(l.Node != "", sq.Eq{"w.node": l.Node})
	add(!l.AllRuns, sq.Eq{"w.latest": 1})
	if l.Late {
		now, err := l.s.Now(ctx)
		if err != nil {
			return err
		}
		add(true, sq.And{sq.NotEq{"w.state": int(capri.Finished)}, sq.Or{sq.Eq{"w.finish_state": []int{int(capri.DependencyTimeout), int(capri.OutputTimeout)}},
			sq.And{sq.Eq{"w.state": int(capri.Waiting)}, sq.Lt{"w.not_before": int64(now)}, sq.Lt{"w.schedule_time": int64(now)}}}})
	}
	l.bound()
	return l.taskFilter(ctx)
}

// bound says between which times, and from where on.
func (l *batchList) bound() {
	column := batchTimes[l.Order.Of]
	add := func(when bool, text string, args ...any) {
		if when {
			l.bounds = append(l.bounds, sq.Expr(text, args...))
		}
	}
	add(l.From != 0, column+" >= ?", int64(l.From))
	add(l.To != 0, column+" <= ?", int64(l.To))
	add(l.To != 0 && l.Order.Of == ByData, "w.data_end <= ?", int64(l.To))
	if l.After.ID != 0 {
		op := "<"
		if l.Order.Oldest {
			op = ">"
		}
		add(true, column+" "+op+"= ?", int64(l.After.At)) // where the index begins
		add(true, "("+column+" "+op+" ? OR w.id "+op+" ?)", int64(l.After.At), int64(l.After.ID))
	}
}

// taskFilter finds the tasks that the filter speaks of.
func (l *batchList) taskFilter(ctx context.Context) error {
	var cond sq.And
	add := func(when bool, c sq.Sqlizer) {
		if when {
			cond = append(cond, c)
		}
	}
	add(l.Name != "", sq.Expr("t.name LIKE ? ESCAPE '!'", likePattern(l.Name)))
	add(l.Group != "", sq.Eq{"t.task_group": l.Group})
	add(l.Owner != "", sq.Eq{"t.owner": l.Owner})
	add(l.Department != "", sq.Expr("t.owner IN (SELECT u.name FROM user u WHERE u.department = ?)", l.Department))
	if l.Seen != nil {
		add(true, l.Seen.tasks())
	}
	if len(cond) == 0 {
		if l.byTask = l.Task != 0; l.byTask {
			l.tasks = []capri.TaskID{l.Task}
			l.ofTask = sq.Eq{"w.task_id": int64(l.Task)}
		}
		return nil
	}
	add(l.Task != 0, sq.Eq{"t.id": int64(l.Task)})
	var err error
	l.tasks, err = column[capri.TaskID](ctx, l.s.read, sq.Select("t.id").From("task t").Where(cond).Limit(mostTasks+1))
	if err != nil {
		return err
	}
	slices.Sort(l.tasks)
	l.byTask = len(l.tasks) <= mostTasks
	if len(l.tasks) <= inText {
		l.ofTask = idIn("w.task_id", l.tasks)
		return nil
	}
	text, args, err := cond.ToSql()
	// A subquery that gives a value is not turned round: it is asked of each row that the index gives.
	l.ofTask = sq.Expr("(SELECT 1 FROM task t WHERE t.id = w.task_id AND "+text+") = 1", args...)
	return err
}

// likePattern makes a pattern of LIKE of a name in which * stands for anything.
func likePattern(name string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_", "*", "%").Replace(name)
}

// unfinishedEnds are the finish states of what has not ended: that it is late stands on it.
var unfinishedEnds = []capri.FinishState{capri.None, capri.DependencyTimeout, capri.OutputTimeout}

// accesses are the ways to find what the filter asks for.
func (l *batchList) accesses() []access {
	bySchedule := l.Order.Of == BySchedule
	states, unfinished := l.States, l.Late || len(l.States) > 0 && !slices.Contains(l.States, capri.Finished)
	if len(states) == 0 {
		states = []capri.State{capri.Waiting, capri.Assigned, capri.Running, capri.Finished}
		if l.Late {
			states = states[:capri.Finished]
		}
	}
	ends := l.FinishStates
	if len(ends) == 0 {
		ends = []capri.FinishState{capri.None, capri.Success, capri.Failed, capri.Killed, capri.DependencyTimeout, capri.OutputTimeout, capri.Skipped}
		if unfinished {
			ends = unfinishedEnds
		}
	}
	var all []access
	if l.Node != "" {
		a := access{index: "task_work_node", inOrder: bySchedule, counted: []sq.Sqlizer{sq.Eq{"w.node": l.Node, "w.state": ints(states)}}}
		for _, state := range states {
			a.walks = append(a.walks, sq.Eq{"w.node": l.Node, "w.state": int(state)})
		}
		all = append(all, a)
	}
	if l.byTask {
		a := access{index: "task_work_latest"} // its entries are by batch_no
		for _, part := range chunks(l.tasks, inList) {
			a.counted = append(a.counted, idIn("w.task_id", part))
		}
		a.walks = a.counted
		all = append(all, a)
	}
	if len(l.FinishStates) > 0 || unfinished {
		a := access{index: "task_work_finish_state", inOrder: bySchedule, counted: []sq.Sqlizer{sq.Eq{"w.finish_state": ints(ends)}}}
		for _, end := range ends {
			a.walks = append(a.walks, sq.Eq{"w.finish_state": int(end)})
		}
		all = append(all, a)
	}
	one := func(index string, inOrder bool, is sq.Eq) {
		all = append(all, access{index, []sq.Sqlizer{is}, []sq.Sqlizer{is}, inOrder})
	}
	if len(l.States) > 0 && unfinished {
		one("task_work_ready", false, sq.Eq{"w.state": ints(states)})
	}
	if l.Period != 0 {
		one("task_work_period", bySchedule, sq.Eq{"w.period": int(l.Period)})
	}
	return all
}

// inTime walks all that there is, newest or oldest first.
func (l *batchList) inTime() access {
	return access{index: "task_work_schedule", inOrder: l.Order.Of == BySchedule, walks: []sq.Sqlizer{sq.Expr("w.schedule_time IS NOT NULL")}, counted: []sq.Sqlizer{sq.Expr("w.schedule_time IS NOT NULL")}}
}

// live finds a page of what is not archived.
func (l *batchList) live(ctx context.Context) ([]BatchPosition, error) {
	if l.byTask && len(l.tasks) == 0 {
		return nil, nil // nobody's
	}
	if l.Campaign != 0 { // its items say which
		return l.positions(ctx, l.page("task_work", nil))
	}
	all := l.accesses()
	if len(all) == 1 && all[0].inOrder {
		return l.positions(ctx, l.page("task_work", &all[0]))
	}
	best, rarest, walks := l.inTime(), l.few, false
	if l.Order.Of == ByData {
		all, rarest = append(all, best), l.sortable()
	}
	for _, a := range all {
		n, err := l.count(ctx, a, rarest)
		switch {
		case err != nil:
			return nil, err
		case n == 0:
			return nil, nil
		case n < rarest:
			best, rarest, walks = a, n, true
		case a.inOrder && !walks: // the page is full soon on this one
			best, walks = a, true
		}
	}
	if l.Order.Of == ByData && rarest == l.sortable() {
		return nil, capri.Invalid("by_data", "true", fmt.Sprintf("a filter that fewer than %d batches meet, such as task, group or state; or the range on schedule_time, without by_data", rarest))
	}
	return l.positions(ctx, l.page("task_work", &best))
}

func (l *batchList) sortable() int { return sortable / few * l.few }

// count counts an access's entries, as far as most.
func (l *batchList) count(ctx context.Context, a access, most int) (n int, err error) {
	for _, some := range a.counted {
		if n >= most {
			break
		}
		var more int
		if _, err = one(ctx, l.s.read, l.counting(a, some, most-n), &more); err != nil {
			return 0, err
		}
		n += more
	}
	return n, nil
}

func (l *batchList) counting(a access, some sq.Sqlizer, most int) sq.Sqlizer {
	q := sq.Select("1").From("task_work w" + fmt.Sprintf(l.s.d.ByIndex, a.index)).Where(some).Limit(uint64(most))
	if a.inOrder {
		q = q.Where(l.bounds)
	}
	return sq.Select("COUNT(*)").FromSelect(q, "u")
}

// page is the query of a page; without an access the database chooses.
func (l *batchList) page(table string, a *access) sq.Sqlizer {
	column, way := batchTimes[l.Order.Of], " DESC"
	if l.Order.Oldest {
		way = ""
	}
	q := sq.Select(column+" AS at", "w.id").From(table+" w").Where(l.bounds).Where(l.filters).OrderBy(column+way, "w.id"+way).Limit(uint64(l.Limit))
	if l.ofTask != nil && (a == nil || a.index != "task_work_latest") {
		q = q.Where(l.ofTask)
	}
	if l.Campaign != 0 {
		return q.From("campaign_item i " + l.s.d.InOrder + " " + table + " w" + l.s.d.ByKey + " ON w.id = i.batch_id").Where(sq.Eq{"i.campaign_id": int64(l.Campaign)})
	}
	if a == nil {
		return q
	}
	q = q.From(table + " w" + fmt.Sprintf(l.s.d.ByIndex, a.index))
	if len(a.walks) == 0 {
		return q
	}
	parts := make([]sq.SelectBuilder, len(a.walks))
	for i, walk := range a.walks {
		parts[i] = q.Where(walk)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return unionOf("SELECT at, id FROM (", parts, fmt.Sprintf(") u ORDER BY at%s, id%s LIMIT %d", way, way, l.Limit))
}

// unionOf puts the union of queries, each with its own order and limit, between two texts.
func unionOf(before string, parts []sq.SelectBuilder, after string) sq.Sqlizer {
	var text strings.Builder
	var args []any
	text.WriteString(before)
	for i, p := range parts {
		if i > 0 {
			text.WriteString(" UNION ALL ")
		}
		t, a := p.MustSql()
		fmt.Fprintf(&text, "SELECT * FROM (%s) p%d", t, i)
		args = append(args, a...)
	}
	text.WriteString(after)
	return sq.Expr(text.String(), args...)
}

func (l *batchList) positions(ctx context.Context, q sq.Sqlizer) ([]BatchPosition, error) {
	return collect(ctx, l.s.read, q, func(r *sql.Rows, p *BatchPosition) error {
		return r.Scan(&p.At, &p.ID)
	})
}
