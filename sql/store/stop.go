package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// What keeps dispatch from placing batches. The pause of everything and max_running are in dispatch's own row; pauses of
// a group or a node, and open circuit breakers, are rows of dispatch_stop. Whoever changes any of them writes dispatch's
// row or locks it, and each assigning transaction reads both, locking, by one statement: so no batch is placed after the
// change was acknowledged. Where nothing is stopped that statement finds one row and costs what it did before.

// StopKind is why batches are not placed.
type StopKind int

// StopScope is which batches.
type StopScope int

const (
	Pause   StopKind = 1 // somebody wants them to wait
	Breaker StopKind = 2 // they fail, or would do harm

	OfAll   StopScope = 0 // the pause of everything, which is no row but dispatch's own
	OfGroup StopScope = 1
	OfNode  StopScope = 2
	OfTask  StopScope = 3
)

func (k StopKind) String() string { return [...]string{1: "pause", 2: "breaker"}[k] }

func (s StopScope) String() string { return [...]string{"all", "group", "node", "task"}[s] }

// Stop keeps some batches from being placed, until a time or (0) until somebody ends it.
type Stop struct {
	Kind   StopKind
	Scope  StopScope
	Name   string
	Task   capri.TaskID // of a task
	Reason string
	By     string
	Since  capri.Instant
	Until  capri.Instant
}

// At tells whether it stands at an instant.
func (x Stop) At(now capri.Instant) bool { return x.Until == 0 || now.Before(x.Until) }

// Says is the sentence for those who wonder why nothing runs, without the end.
func (x Stop) Says() string {
	switch {
	case x.Scope == OfAll:
		return "dispatch is paused: " + x.Reason
	case x.Kind == Breaker:
		return fmt.Sprintf("the circuit breaker of %s %s is open: %s", x.Scope, x.Name, x.Reason)
	}
	return fmt.Sprintf("%s %s is paused: %s", x.Scope, x.Name, x.Reason)
}

func (x Stop) key() sq.Eq {
	return sq.Eq{"kind": int(x.Kind), "scope": int(x.Scope), "name": x.Name}
}

// stops tells whether it stops an assignment.
func (x Stop) stops(a Assignment) bool {
	switch x.Scope {
	case OfGroup:
		return a.Group == x.Name
	case OfNode:
		return a.Node == x.Name
	default:
		return a.Task == x.Task
	}
}

// DispatchState is what people have said about dispatch.
type DispatchState struct {
	Paused     bool
	Reason     string
	By         string
	Since      capri.Instant
	Until      capri.Instant // 0: until somebody resumes it
	MaxRunning int           // -1 no limit, 0 none
	Stops      []Stop        // also those whose time is over
}

// PausedAt tells whether nothing at all is placed at an instant.
func (d DispatchState) PausedAt(now capri.Instant) bool {
	return d.Paused && (d.Until == 0 || now.Before(d.Until))
}

// DispatchState reads it.
func (s *Store) DispatchState(ctx context.Context) (DispatchState, error) {
	d, err := s.dispatchState(ctx, s.read, "")
	return d, s.fault("read what stops dispatch", err)
}

func (s *Store) dispatchState(ctx context.Context, q querier, suffix string) (DispatchState, error) {
	d := DispatchState{MaxRunning: -1}
	err := query(ctx, q, sq.Select("l.paused", "l.paused_reason", "l.paused_by", "l.paused_at", "l.paused_until", "l.max_running", "s.kind", "s.scope", "s.name", "s.task_id", "s.reason", "s.created_by", "s.created_at", "s.ends_at").
		From("capri_service_lock l").LeftJoin("dispatch_stop s ON 1 = 1").Where(sq.Eq{"l.service": "dispatch"}).OrderBy("s.kind", "s.scope", "s.name").Suffix(suffix), func(r *sql.Rows) error {
		var kind, scope, task, since sql.NullInt64
		var name, reason, by sql.NullString
		var x Stop
		err := r.Scan(&d.Paused, &d.Reason, &d.By, instant{&d.Since}, instant{&d.Until}, &d.MaxRunning, &kind, &scope, &name, &task, &reason, &by, &since, instant{&x.Until})
		if err == nil && kind.Valid {
			x.Kind, x.Scope, x.Name, x.Task = StopKind(kind.Int64), StopScope(scope.Int64), name.String, capri.TaskID(task.Int64)
			x.Reason, x.By, x.Since = reason.String, by.String, capri.Instant(since.Int64)
			d.Stops = append(d.Stops, x)
		}
		return err
	})
	return d, err
}

// StopsAt lists what stands at an instant: the pause of everything, those of groups and nodes, and open breakers.
func (d DispatchState) StopsAt(now capri.Instant) []Stop {
	var out []Stop
	if d.PausedAt(now) {
		out = append(out, Stop{Kind: Pause, Reason: d.Reason, By: d.By, Since: d.Since, Until: d.Until})
	}
	for _, x := range d.Stops {
		if x.At(now) {
			out = append(out, x)
		}
	}
	return out
}

// mayAssign drops from a plan what may not be placed any more, as it is proved here. The dispatch row and the stops stay as
// they are until commit.
func (tx *Tx) mayAssign(plan []Assignment) ([]Assignment, error) {
	d, err := tx.s.dispatchState(tx.ctx, tx.tx, tx.s.d.ForShare)
	if err != nil || d.PausedAt(tx.Now) || d.MaxRunning == 0 {
		return nil, err
	}
	if len(d.Stops) > 0 {
		plan = slices.DeleteFunc(slices.Clone(plan), func(a Assignment) bool {
			return slices.ContainsFunc(d.Stops, func(x Stop) bool { return x.At(tx.Now) && x.stops(a) })
		})
	}
	if d.MaxRunning > 0 {
		// It may have been lowered since the plan was made. There is one placer, so the count can only fall until commit.
		running := 0
		if _, err := one(tx.ctx, tx.tx, sq.Select("COUNT(*)").From("task_work").Where(sq.Eq{"state": []int{int(capri.Assigned), int(capri.Running)}}), &running); err != nil {
			return nil, err
		}
		plan = plan[:max(0, min(len(plan), d.MaxRunning-running))]
	}
	return plan, nil
}

// lockDispatch keeps assigning transactions out until commit.
func (tx *Tx) lockDispatch() error {
	service := ""
	found, err := one(tx.ctx, tx.tx, sq.Select("service").From("capri_service_lock").Where(sq.Eq{"service": "dispatch"}).Suffix(tx.s.d.ForUpdate), &service)
	if err == nil && !found {
		return errNoDispatch
	}
	return err
}

var errNoDispatch = capri.Conflict("the dispatch service has no row in capri_service_lock: run capri migrate up")

// SetStop makes a pause or opens a breaker, or gives one that stands another reason and end.
func (tx *Tx) SetStop(x Stop) error {
	if err := tx.lockDispatch(); err != nil {
		return err
	}
	if _, err := tx.exec(sq.Delete("dispatch_stop").Where("ends_at <= ?", int64(tx.Now))); err != nil { // what has ended by itself
		return err
	}
	if err := tx.note("dispatch_stop", x.key()); err != nil {
		return err
	}
	_, err := tx.exec(sq.Insert("dispatch_stop").Columns("kind", "scope", "name", "task_id", "reason", "created_by", "created_at", "ends_at").
		Values(int(x.Kind), int(x.Scope), x.Name, int64(x.Task), cut(x.Reason, 255), cut(tx.who, 190), int64(tx.Now), nullable(x.Until)).
		Suffix(tx.s.d.Upsert([]string{"kind", "scope", "name"}, "reason", "created_by", "created_at", "ends_at")))
	return err
}

// EndStop ends a pause or closes a breaker; false: none stood. A closed breaker starts to count failures anew.
func (tx *Tx) EndStop(x Stop) (bool, error) {
	if err := tx.lockDispatch(); err != nil {
		return false, err
	}
	if x.Kind == Breaker && x.Scope == OfTask {
		if _, err := tx.exec(sq.Delete("task_streak").Where(sq.Eq{"task_id": int64(x.Task)})); err != nil {
			return false, err
		}
	}
	if err := tx.note("dispatch_stop", x.key()); err != nil {
		return false, err
	}
	n, err := tx.exec(sq.Delete("dispatch_stop").Where(x.key()).
		Where(sq.Or{sq.Eq{"ends_at": nil}, sq.Gt{"ends_at": int64(tx.Now)}}))
	return n > 0, err
}

// SetMaxRunning limits how many batches are assigned or run at once: -1 no limit, 0 none.
func (tx *Tx) SetMaxRunning(n int) error {
	if err := tx.note("capri_service_lock", sq.Eq{"service": "dispatch"}); err != nil {
		return err
	}
	found, err := tx.exec(sq.Update("capri_service_lock").Set("max_running", n).Where(sq.Eq{"service": "dispatch"}))
	if err == nil && found == 0 {
		return errNoDispatch
	}
	return err
}

// countFailures counts runs that failed in a row, and opens the breaker of a task at the setting's number. Without the
// setting it is one small read where something failed, and none where all went well. A success costs nothing either: it
// is looked for once a task has failed often enough.
func (tx *Tx) countFailures(failed []locked) error {
	if len(failed) == 0 {
		return nil
	}
	most, err := tx.settingInt(BreakerFailures)
	if err != nil || most <= 0 {
		return err
	}
	times := map[capri.TaskID]int{}
	for _, r := range failed {
		times[r.TaskID]++
	}
	ids := sortedTasks(times)
	for _, part := range chunks(ids, tx.s.d.ChunkRows) {
		q := sq.Insert("task_streak").Columns("task_id", "failures", "first_at").Suffix(tx.s.d.UpsertAdd("task_id", "task_streak", "failures"))
		for _, id := range part {
			q = q.Values(int64(id), times[id], int64(tx.Now))
		}
		if _, err := tx.exec(q); err != nil {
			return err
		}
		if err := tx.openBreakers(part, most); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) openBreakers(tasks []capri.TaskID, most int) error {
	type streak struct {
		task     capri.TaskID
		failures int
		since    capri.Instant
	}
	long, err := collect(tx.ctx, tx.tx, sq.Select("task_id", "failures", "first_at").From("task_streak").Where(idIn("task_id", tasks)).Where("failures >= ?", most).OrderBy("task_id").Suffix(tx.s.d.ForUpdate), func(r *sql.Rows, x *streak) error {
		return r.Scan(&x.task, &x.failures, &x.since)
	})
	if err != nil || len(long) == 0 {
		return err
	}
	var opened []capri.Alert
	for _, x := range long {
		// What succeeded in between begins the count anew. Only a task that fails again and again comes here.
		var newest sql.NullInt64
		if _, err := one(tx.ctx, tx.tx, sq.Select("MAX(finish_time)").From("task_work").Where(sq.Eq{"task_id": int64(x.task), "state": int(capri.Finished), "finish_state": int(capri.Success)}).
			Where("finish_time >= ?", int64(x.since)).Suffix(tx.s.d.ForShare), &newest); err != nil {
			return err
		}
		if newest.Valid {
			if _, err := one(tx.ctx, tx.tx, sq.Select("COUNT(*)").From("task_work").Where(sq.Eq{"task_id": int64(x.task), "state": int(capri.Finished), "finish_state": int(capri.Failed)}).
				Where("finish_time > ?", newest.Int64).Suffix(tx.s.d.ForShare), &x.failures); err != nil {
				return err
			}
			if _, err := tx.exec(sq.Update("task_streak").Set("failures", x.failures).Set("first_at", newest.Int64+1).Where(sq.Eq{"task_id": int64(x.task)})); err != nil {
				return err
			}
			if x.failures < most {
				continue
			}
		}
		if err := tx.nameTasks([]locked{{TaskID: x.task}}); err != nil {
			return err
		}
		name := tx.taskName(x.task)
		stop := Stop{Kind: Breaker, Scope: OfTask, Name: name, Task: x.task, Reason: fmt.Sprintf("it failed %d times in a row", x.failures)}
		if stands, err := tx.stands(stop); err != nil || stands {
			if err != nil {
				return err
			}
			continue
		}
		if err := tx.SetStop(stop); err != nil {
			return err
		}
		opened = append(opened, capri.Alert{Key: fmt.Sprintf("breaker_opened:%d:%d", x.task, tx.Now), Level: capri.Important, Kind: "breaker_opened", Task: x.task,
			Title: fmt.Sprintf("%s failed %d times in a row: its circuit breaker is open", name, x.failures),
			Text: fmt.Sprintf("No batch of it is placed until somebody closes the breaker: capri breaker close --task %s. What waits is kept, and what runs goes on. The setting %s of dic_data is %d.",
				name, BreakerFailures, most)})
	}
	return tx.Alerts(opened)
}

// stands tells whether a stop is there already, with whatever reason and end.
func (tx *Tx) stands(x Stop) (bool, error) {
	name := ""
	return one(tx.ctx, tx.tx, sq.Select("name").From("dispatch_stop").Where(x.key()).
		Where(sq.Or{sq.Eq{"ends_at": nil}, sq.Gt{"ends_at": int64(tx.Now)}}).Suffix(tx.s.d.ForShare), &name)
}

func sortedTasks(m map[capri.TaskID]int) []capri.TaskID {
	ids := make([]capri.TaskID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
