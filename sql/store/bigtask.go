package store

import (
	"context"
	"database/sql"
	"fmt"
	"sort"
	"strings"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// What runs took is read through the history, whose ids follow time: task_work has no index on finish_time, since every
// insert and every end would pay for one that is used once a day. So the cost grows with the day's ends and not with
// all that ever ran.

// historySlack covers events whose ids are out of order with their times: a transaction's events carry the time at
// which it began.
const historySlack = 10 * time.Minute

// firstEvent is the least id of the history from which on events are of that time or later, give or take the slack.
func (s *Store) firstEvent(ctx context.Context, at capri.Instant) (int64, error) {
	var last sql.NullInt64
	if _, err := one(ctx, s.read, sq.Select("MAX(id)").From("batch_event"), &last); err != nil || !last.Valid {
		return 1, err
	}
	var failed error
	id := sort.Search(int(last.Int64), func(i int) bool {
		var when capri.Instant
		if failed == nil {
			_, failed = one(ctx, s.read, sq.Select("at").From("batch_event").Where("id > ?", i).OrderBy("id").Limit(1), &when)
		}
		return failed != nil || when >= at
	})
	return int64(id) + 1, failed
}

// span is a stretch of time, its end excluded, with the events among which its ends are.
type span struct {
	from, to      capri.Instant
	first, beyond int64 // ids of batch_event
}

func (s *Store) span(ctx context.Context, from, to capri.Instant) (span, error) {
	first, err := s.firstEvent(ctx, from.Add(-historySlack))
	if err != nil {
		return span{}, err
	}
	beyond, err := s.firstEvent(ctx, to.Add(historySlack))
	return span{from, to, first, beyond}, err
}

// ended joins a span's ends with their batches. The outer join, kept one by COALESCE in every comparison, says which
// table comes first (see readyQuery). A batch may come more than once: a new run writes an event of the one before it.
func ended(in span, columns ...string) sq.SelectBuilder {
	return sq.Select(columns...).From("batch_event e").LeftJoin("task_work w ON w.id = e.batch_id").LeftJoin("task t ON t.id = w.task_id").
		Where("e.id >= ? AND e.id < ? AND e.state = 3", in.first, in.beyond).
		Where("COALESCE(w.state, 0) = 3 AND COALESCE(w.start_time, 0) > 0 AND COALESCE(w.finish_time, 0) >= ? AND COALESCE(w.finish_time, 0) < ?", int64(in.from), int64(in.to)).
		Where("t.deleted_at IS NULL")
}

func longestSuccesses(in span) sq.SelectBuilder {
	return ended(in, "w.task_id", "MAX(t.name)", "MAX(t.expected_minutes)", "MAX(w.finish_time - w.start_time)").
		Where("COALESCE(w.finish_state, 0) = 1").GroupBy("w.task_id").OrderBy("w.task_id")
}

func longestOver(in span, limit time.Duration) sq.SelectBuilder {
	return ended(in, "w.task_id", "t.name", "w.id", "w.batch_no", "w.finish_state", "w.finish_time - w.start_time").
		Where("COALESCE(w.finish_time - w.start_time, 0) > ?", limit.Milliseconds()).OrderBy("w.task_id", "w.finish_time - w.start_time DESC", "w.id")
}

// TaskDuration is the longest successful run of a task in some time, and how long it was expected to take.
type TaskDuration struct {
	Task            capri.TaskID
	Name            string
	Longest         time.Duration
	ExpectedMinutes int // 0: not known yet
}

// LongestSuccesses gives each task's longest successful run that ended in [from, to).
func (s *Store) LongestSuccesses(ctx context.Context, from, to capri.Instant) ([]TaskDuration, error) {
	in, err := s.span(ctx, from, to)
	if err != nil {
		return nil, s.fault("read durations", err)
	}
	out, err := collect(ctx, s.read, longestSuccesses(in), func(r *sql.Rows, d *TaskDuration) error {
		var ms int64
		err := r.Scan(&d.Task, &d.Name, &d.ExpectedMinutes, &ms)
		d.Longest = time.Duration(ms) * time.Millisecond
		return err
	})
	return out, s.fault("read durations", err)
}

// LongRun is a run that took long, however it ended.
type LongRun struct {
	Task     capri.TaskID
	Name     string
	Batch    capri.BatchID
	BatchNo  capri.BatchNo
	How      capri.FinishState
	Duration time.Duration
}

// LongestOver gives the longest run of each task that has runs over limit which ended in [from, to).
func (s *Store) LongestOver(ctx context.Context, from, to capri.Instant, limit time.Duration) ([]LongRun, error) {
	in, err := s.span(ctx, from, to)
	if err != nil {
		return nil, s.fault("read long runs", err)
	}
	var out []LongRun
	err = query(ctx, s.read, longestOver(in, limit), func(r *sql.Rows) error {
		var l LongRun
		var ms int64
		err := r.Scan(&l.Task, &l.Name, &l.Batch, &l.BatchNo, &l.How, &ms)
		l.Duration = time.Duration(ms) * time.Millisecond
		if n := len(out); n == 0 || out[n-1].Task != l.Task {
			out = append(out, l)
		}
		return err
	})
	return out, s.fault("read long runs", err)
}

// ExpectedMinutes is what a task is expected to take from now on, and the alert about it, if its owner is to be told.
type ExpectedMinutes struct {
	Task    capri.TaskID
	Minutes int
	Alert   *capri.Alert
}

// ExpectDurations writes what tasks are expected to take, with the alerts about it, a part at a time. It makes no new
// version: nobody edited the task (design §4).
func (s *Store) ExpectDurations(ctx context.Context, lease capri.Lease, all []ExpectedMinutes) error {
	for _, part := range chunks(all, s.d.ChunkRows) {
		ids := make([]capri.TaskID, len(part))
		var alerts []capri.Alert
		var minutes strings.Builder
		minutes.WriteString("CASE id")
		for i, e := range part {
			ids[i] = e.Task
			fmt.Fprintf(&minutes, " WHEN %d THEN %d", e.Task, e.Minutes)
			if e.Alert != nil {
				alerts = append(alerts, *e.Alert)
			}
		}
		minutes.WriteString(" ELSE expected_minutes END")
		err := s.WriteAs(ctx, "write expected durations", lease, func(tx *Tx) error {
			if _, err := tx.exec(sq.Update("task").Set("expected_minutes", sq.Expr(minutes.String())).Where(idIn("id", ids))); err != nil {
				return err
			}
			return tx.Alerts(alerts)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// RaiseAs writes alerts that go with no other change, a part at a time.
func (s *Store) RaiseAs(ctx context.Context, lease capri.Lease, alerts []capri.Alert) error {
	for _, part := range chunks(alerts, s.d.ChunkRows) {
		if err := s.WriteAs(ctx, "raise alerts", lease, func(tx *Tx) error { return tx.Alerts(part) }); err != nil {
			return err
		}
	}
	return nil
}
