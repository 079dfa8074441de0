package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// Ready is a batch that waits for nothing but a place to run.
type Ready struct {
	ID           capri.BatchID
	Task         capri.TaskID
	Owner        string // of the task now, for its right to the account
	Group        string // of the task now
	Priority     int
	ScheduleTime capri.Instant
	SkipAt       capri.Instant
	Slots        int
	MemoryMB     int
	Concurrency  int
	Pool         string
	Strategy     string
	Nodes        []string
	Account      string
	AvoidNode    string
	Message      string
}

// ReadyAfter is where a page of ready batches goes on; the zero value starts at the first.
type ReadyAfter struct {
	Priority     int
	ScheduleTime capri.Instant
	ID           capri.BatchID
}

// readyQuery reads the index task_work_ready in its own order, so its cost grows with what is ready and not with what
// waits or has finished (TestReady_is_read_in_the_order_of_its_index). The outer join, kept one by COALESCE, says which
// table comes first: after many inserts MariaDB's statistics are old, and it then began with the tasks, looked up
// every batch of each and sorted them, at thirty times the cost.
func readyQuery(now, latest capri.Instant, after ReadyAfter, limit int) sq.SelectBuilder {
	// What has started in time is repeated however late: skip_after is about starting, and skipping would hide a failure.
	q := sq.Select("w.id", "w.task_id", "t.owner", "t.task_group", "w.priority", "w.schedule_time", "CASE WHEN w.failures + w.losses = 0 THEN w.skip_at END", "w.slots", "w.memory_mb", "w.concurrency", "w.pool", "w.strategy", "w.nodes", "w.account", "w.avoid_node", "w.not_before", "w.message").
		From("task_work w").LeftJoin("task t ON t.id = w.task_id").
		Where("w.state = 0 AND w.unmet = 0").
		Where("w.held = 0 AND w.kill_request = 0 AND w.quality_state IN (0, 3) AND COALESCE(t.enabled, 0) = 1 AND w.not_before <= ?", int64(now)).
		OrderBy("w.priority", "w.schedule_time", "w.id").Limit(uint64(limit))
	if latest != 0 {
		q = q.Where("w.schedule_time <= ?", int64(latest))
	}
	if after.ID != 0 {
		q = q.Where("(w.priority > ? OR (w.priority = ? AND (w.schedule_time > ? OR (w.schedule_time = ? AND w.id > ?))))",
			after.Priority, after.Priority, int64(after.ScheduleTime), int64(after.ScheduleTime), int64(after.ID))
	}
	return q
}

// avoidFor is how long the node that a batch was taken from is avoided, once it may be placed again. Without an end it
// would wait beside a free node for as long as all the others are full.
const avoidFor = time.Minute

// Ready reads a page of what may be placed, in the order in which it is to be placed. latest is the latest
// schedule_time allowed; 0: none.
func (s *Store) Ready(ctx context.Context, now, latest capri.Instant, after ReadyAfter, limit int) ([]Ready, error) {
	var out []Ready // mostly none: room for more would be made at each look
	err := query(ctx, s.read, readyQuery(now, latest, after, limit), func(r *sql.Rows) error {
		var b Ready
		var nodes sql.NullString
		var notBefore capri.Instant
		err := r.Scan(&b.ID, &b.Task, &b.Owner, &b.Group, &b.Priority, &b.ScheduleTime, instant{&b.SkipAt}, &b.Slots, &b.MemoryMB, &b.Concurrency, &b.Pool, &b.Strategy, &nodes, &b.Account, &b.AvoidNode, &notBefore, &b.Message)
		if now.Sub(notBefore) >= avoidFor {
			b.AvoidNode = ""
		}
		if nodes.Valid {
			b.Nodes = strings.Split(nodes.String, "\n")
		}
		out = append(out, b)
		return err
	})
	return out, s.fault("read the ready batches", err)
}

// NextNotBefore is when the next batch that waits only for its time may start; 0: there is none.
func (s *Store) NextNotBefore(ctx context.Context, now capri.Instant) (capri.Instant, error) {
	var at sql.NullInt64
	_, err := one(ctx, s.read, sq.Select("MIN(not_before)").From("task_work").Where("state = 0 AND unmet = 0 AND held = 0 AND not_before > ?", int64(now)), &at)
	return capri.Instant(at.Int64), s.fault("look for the next start", err)
}

// Running tells what every node and task has in hand: assigned, preparing and running.
type Running struct {
	ByNode map[string]capri.Load
	ByTask map[capri.TaskID]int
	Total  int
}

// Running counts by one query.
func (s *Store) Running(ctx context.Context) (Running, error) {
	out := Running{ByNode: map[string]capri.Load{}, ByTask: map[capri.TaskID]int{}}
	err := query(ctx, s.read, sq.Select("node", "task_id", "COUNT(*)", "SUM(slots)", "SUM(memory_mb)").From("task_work").Where(sq.Eq{"state": []int{1, 2}}).GroupBy("node", "task_id"), func(r *sql.Rows) error {
		var node string
		var task capri.TaskID
		var n, slots, memory int
		if err := r.Scan(&node, &task, &n, &slots, &memory); err != nil {
			return err
		}
		l := out.ByNode[node]
		out.ByNode[node] = capri.Load{Batches: l.Batches + n, Slots: l.Slots + slots, MemoryMB: l.MemoryMB + memory}
		out.ByTask[task] += n
		out.Total += n
		return nil
	})
	return out, s.fault("count what runs", err)
}

// RunningAround is Running with the count of one task alone. People ask for it, so where there is much in hand the counts by
// node are those of a moment ago.
func (s *Store) RunningAround(ctx context.Context, task capri.TaskID) (Running, error) {
	around, err := s.loads.get(ctx, func(ctx context.Context) (Running, int, error) {
		out := Running{ByNode: map[string]capri.Load{}}
		err := query(ctx, s.read, sq.Select("node", "COUNT(*)", "SUM(slots)", "SUM(memory_mb)").From("task_work").Where(sq.Eq{"state": []int{1, 2}}).GroupBy("node"), func(r *sql.Rows) error {
			var node string
			var l capri.Load
			err := r.Scan(&node, &l.Batches, &l.Slots, &l.MemoryMB)
			out.ByNode[node] = l
			out.Total += l.Batches
			return err
		})
		return out, out.Total, err
	})
	if err != nil {
		return Running{}, s.fault("count what runs", err)
	}
	n := 0
	_, err = one(ctx, s.read, sq.Select("COUNT(*)").From("task_work").Where(sq.Eq{"task_id": int64(task), "state": []int{1, 2}}), &n)
	around.ByTask = map[capri.TaskID]int{task: n}
	return around, s.fault("count what runs of a task", err)
}

// Assignment gives a ready batch to a node.
type Assignment struct {
	Batch capri.BatchID
	Node  string
	Task  capri.TaskID // and Group: whose pauses and breakers it heeds
	Group string
}

// Assign writes assignments, each with the next attempt number, and returns how many compared: a batch that was
// held, killed or made to wait again meanwhile is left alone.
func (s *Store) Assign(ctx context.Context, lease capri.Lease, assignments []Assignment) (int, error) {
	done := 0
	for _, part := range chunks(assignments, s.d.ChunkRows) {
		n, err := s.assign(ctx, lease, part)
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// assignable is what dispatch relied on when it chose; every assignment repeats it.
const assignable = "state = 0 AND unmet = 0 AND held = 0 AND kill_request = 0 AND quality_state IN (0, 3)"

// errSomeChanged rolls an optimistic assignment back.
var errSomeChanged = errors.New("some batches changed since they were chosen")

// assign writes one statement's worth. Nearly always nothing has changed since the plan was made: then the compare is in
// the UPDATE alone, which counts its rows. Else it is rolled back and done again on what still compares.
func (s *Store) assign(ctx context.Context, lease capri.Lease, part []Assignment) (int, error) {
	done := 0
	write := func(look bool) error {
		return s.WriteAs(ctx, "assign batches", lease, func(tx *Tx) error {
			done = 0
			may, err := tx.mayAssign(part) // proved here, so that no batch is placed after a pause was acknowledged
			if err != nil || len(may) == 0 {
				return err
			}
			free := make([]locked, len(may))
			nodeOf := make(map[capri.BatchID]string, len(may)) // of what may go there, and of nothing else in the part
			for i, a := range may {
				free[i], nodeOf[a.Batch] = locked{ID: a.Batch}, a.Node
			}
			slices.SortFunc(free, func(a, b locked) int { return cmp.Compare(a.ID, b.ID) })
			free = slices.CompactFunc(free, func(a, b locked) bool { return a.ID == b.ID }) // among counts on it
			if look {
				if free, err = tx.lockWhere(idsOf(free), assignable); err != nil || len(free) == 0 {
					return err
				}
			}
			n, err := tx.exec(sq.Update("task_work" + tx.s.d.ByKey).SetMap(sq.Eq{"state": int(capri.Assigned), "attempt": sq.Expr("attempt + 1"), "node": nodeCase(free, nodeOf),
				"assign_time": int64(tx.Now), "start_time": nil, "avoid_node": "", "message": ""}).Where(tx.among("id", free)).Where(assignable))
			if err != nil {
				return err
			}
			if n != len(free) {
				return errSomeChanged
			}
			done = n
			return tx.events(free, "assigned")
		})
	}
	err := write(false)
	if errors.Is(err, errSomeChanged) {
		err = write(true)
	}
	if err != nil {
		return 0, err
	}
	return done, nil
}

// nodeCase says which batch goes to which node: one statement serves a few hundred batches. It is a tree over the ids,
// so that a row is compared nine times and not with each of a hundred nodes. rows are sorted by id.
func nodeCase(rows []locked, nodeOf map[capri.BatchID]string) sq.Sqlizer {
	var b strings.Builder
	var args []any
	var branch func(rows []locked)
	branch = func(rows []locked) {
		first := nodeOf[rows[0].ID]
		if !slices.ContainsFunc(rows, func(r locked) bool { return nodeOf[r.ID] != first }) {
			b.WriteByte('?')
			args = append(args, first)
			return
		}
		half := len(rows) / 2
		fmt.Fprintf(&b, "CASE WHEN id < %d THEN ", rows[half].ID)
		branch(rows[:half])
		b.WriteString(" ELSE ")
		branch(rows[half:])
		b.WriteString(" END")
	}
	branch(rows)
	return sq.Expr(b.String(), args...)
}

// Explain writes why ready batches were passed over into their message, where it says something else.
func (s *Store) Explain(ctx context.Context, lease capri.Lease, reasons map[string][]capri.BatchID) error {
	for reason, ids := range reasons {
		for _, part := range chunks(ids, s.d.ChunkRows) {
			err := s.WriteAs(ctx, "say why batches wait", lease, func(tx *Tx) error {
				_, err := tx.exec(sq.Update("task_work"+s.d.ByKey).Set("message", cut(reason, 1000)).Where("state = 0").Where(idIn("id", part)))
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// EndUnplaced finishes ready batches that can or may not start any more: failed (no right to the account) or skipped
// (their time is over).
func (s *Store) EndUnplaced(ctx context.Context, lease capri.Lease, how capri.FinishState, why string, ids []capri.BatchID) (int, error) {
	done := 0
	for _, part := range chunks(ids, s.d.ChunkRows) {
		n := 0
		err := s.WriteAs(ctx, fmt.Sprintf("end batches as %s", how), lease, func(tx *Tx) error {
			c := tx.ending(how, why)
			c.from = func(r locked) bool { return r.State == capri.Waiting && r.Unmet == 0 && !r.Held }
			rows, err := tx.change(part, c)
			n = len(rows)
			return err
		})
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// PauseDispatch stops all placing until a time (0: until somebody resumes), by a write to dispatch's own row: its next
// transaction waits for it or comes before it.
func (tx *Tx) PauseDispatch(paused bool, reason string, until capri.Instant) error {
	by, since := "", capri.Instant(0)
	if paused {
		by, since = tx.who, tx.Now
	}
	if err := tx.note("capri_service_lock", sq.Eq{"service": "dispatch"}); err != nil {
		return err
	}
	n, err := tx.exec(sq.Update("capri_service_lock").Set("paused", bit(paused)).Set("paused_reason", cut(reason, 255)).Set("paused_until", nullable(until)).
		Set("paused_by", cut(by, 190)).Set("paused_at", nullable(since)).Where(sq.Eq{"service": "dispatch"}))
	if err == nil && n == 0 {
		return errNoDispatch
	}
	return err
}
