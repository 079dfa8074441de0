package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// A deadline is a row of batch_deadline. It is written with its batch and goes in the transaction that acts on it, so
// a crash between the two loses no alert and doubles none:
//
//	birth ──▶ batch_deadline ──due──▶ lock its batch ──▶ change + event + alert, and the row goes
//
// Asking "what has passed" is then a walk along the first rows of one index, whatever waits or has finished.

// insertDeadlines writes when something is to be asked about the batches. A batch that was born finished has nothing
// to be late for.
func (tx *Tx) insertDeadlines(batches []*capri.NewBatch) error {
	var rows []DueDeadline
	for _, b := range batches {
		if b.State == capri.Finished {
			continue
		}
		for _, d := range b.Deadlines {
			rows = append(rows, DueDeadline{Batch: b.ID, Deadline: d})
		}
	}
	return tx.bulk("batch_deadline", []string{"due", "batch_id", "kind"}, len(rows), func(i int, args []any) []any {
		return append(args, int64(rows[i].Due), int64(rows[i].Batch), int(rows[i].Kind))
	})
}

// DueDeadline is a deadline that has come.
type DueDeadline struct {
	Batch capri.BatchID
	capri.Deadline
	settled bool // its batch has succeeded or was skipped, which is for good: there is nothing to ask
}

// dueQuery reads the index in its own order; after is the last row of the page before.
func dueQuery(now capri.Instant, after DueDeadline, limit int) sq.SelectBuilder {
	return sq.Select("d.due", "d.batch_id", "d.kind", "CASE WHEN w.id IS NULL OR (w.state = 3 AND w.finish_state IN (1, 6)) THEN 1 ELSE 0 END").
		From("batch_deadline d").LeftJoin("task_work w ON w.id = d.batch_id").
		Where("d.due >= ? AND d.due <= ?", int64(after.Due), int64(now)).
		Where("(d.due > ? OR d.batch_id > ? OR (d.batch_id = ? AND d.kind > ?))", int64(after.Due), int64(after.Batch), int64(after.Batch), int(after.Kind)).
		OrderBy("d.due", "d.batch_id", "d.kind").Limit(uint64(limit))
}

// DueDeadlines reads a page of what has come by now, the earliest first.
func (s *Store) DueDeadlines(ctx context.Context, now capri.Instant, after DueDeadline, limit int) ([]DueDeadline, error) {
	out, err := collect(ctx, s.read, dueQuery(now, after, limit), func(r *sql.Rows, d *DueDeadline) error {
		return r.Scan(&d.Due, &d.Batch, &d.Kind, &d.settled)
	})
	return out, s.fault("read the deadlines that have come", err)
}

// TimedOut counts what a page of deadlines came to.
type TimedOut struct {
	Dependency, Output, Expired int
}

// ActOnDeadlines does what the deadlines of a page ask for, in one transaction, and takes their rows away. zone is for
// the times in the alerts.
func (s *Store) ActOnDeadlines(ctx context.Context, lease capri.Lease, page []DueDeadline, zone *time.Location) (TimedOut, error) {
	var out TimedOut
	if len(page) == 0 {
		return out, nil
	}
	err := s.WriteAs(ctx, "act on deadlines", lease, func(tx *Tx) error {
		out = TimedOut{}
		early := map[capri.BatchID]bool{} // batches for which it is too early to say whether they have started
		for _, round := range rounds(page) {
			if err := tx.actOn(round, zone, &out, early); err != nil {
				return err
			}
		}
		return tx.dropDeadlines(page, early)
	})
	return out, err
}

// rounds parts deadlines so that each names a batch once, the earliest first: a batch that is late twice takes two
// steps with an event each, and the later word stands.
func rounds(page []DueDeadline) [][]DueDeadline {
	var out [][]DueDeadline
	times := map[capri.BatchID]int{}
	for _, d := range page {
		if d.settled {
			continue
		}
		n := times[d.Batch]
		times[d.Batch]++
		if n == len(out) {
			out = append(out, nil)
		}
		out[n] = append(out[n], d)
	}
	return out
}

// step is what a deadline means for its batch as it stands.
type step int

const (
	inTime step = iota
	dependencyLate
	outputLate
	outputMissing // it has finished without success
	expired
	tooEarly // being prepared: it starts in a moment, or is given back
)

// stepOf judges one batch. Only the run that counts is missed: who ran a failed batch again knows of it, and the new
// run has deadlines of its own.
func stepOf(kind capri.DeadlineKind, r locked) step {
	began := r.Failures+r.Losses > 0 // some attempt started in time: it is repeated however late
	unsuccessful := r.FinishState == capri.Failed || r.FinishState == capri.Killed
	switch {
	case kind == capri.DependencyDeadline && r.State == capri.Waiting:
		return dependencyLate
	case kind == capri.OutputDeadline && r.State != capri.Finished:
		return outputLate
	case kind == capri.OutputDeadline && unsuccessful && r.Latest:
		return outputMissing
	case kind == capri.DayEndDeadline && r.State < capri.Running && !began:
		return expired
	case kind == capri.DayEndDeadline && r.notStarted() && !began:
		return tooEarly
	}
	return inTime
}

// actOn takes the step of each deadline, alike steps by few statements. No batch comes twice.
func (tx *Tx) actOn(due []DueDeadline, zone *time.Location, out *TimedOut, early map[capri.BatchID]bool) error {
	by := make(map[capri.BatchID]DueDeadline, len(due))
	for _, d := range due {
		by[d.Batch] = d
	}
	rows, err := tx.lock(keysOf(by))
	if err != nil {
		return err
	}
	steps := map[step][]locked{}
	var touched []locked
	for _, r := range rows {
		st := stepOf(by[r.ID].Kind, r)
		if st == tooEarly {
			early[r.ID] = true
		} else if st != inTime {
			steps[st] = append(steps[st], r)
			touched = append(touched, r)
		}
	}
	if len(touched) == 0 {
		return nil
	}
	told, err := tx.late(touched, by, zone)
	if err != nil {
		return err
	}
	now := int64(tx.Now)
	const dependencyWhy, outputWhy = "dependency timeout: it still waits", "output timeout: it has not succeeded"
	for st, c := range map[step]change{
		dependencyLate: {set: sq.Eq{"finish_state": int(capri.DependencyTimeout), "dependency_timeout_at": now}, why: dependencyWhy, alert: told.dependency},
		outputLate:     {set: sq.Eq{"finish_state": int(capri.OutputTimeout), "output_timeout_at": now}, why: outputWhy, alert: told.output},
		outputMissing:  {set: sq.Eq{"output_timeout_at": now}, why: outputWhy, alert: told.output},
		expired:        tx.ending(capri.Failed, "not started by the end of its business day"),
	} {
		if err := tx.changeLocked(steps[st], c); err != nil {
			return err
		}
	}
	out.Dependency += len(steps[dependencyLate])
	out.Output += len(steps[outputLate]) + len(steps[outputMissing])
	out.Expired += len(steps[expired])
	return nil
}

// dropDeadlines takes a page's rows away, but for those of batches that are to be asked about again. A batch has one
// deadline of a kind, so kind and batches name exactly what was read; the bounds are for the index.
func (tx *Tx) dropDeadlines(page []DueDeadline, early map[capri.BatchID]bool) error {
	ids := map[capri.DeadlineKind][]capri.BatchID{}
	for _, d := range page {
		if d.Kind != capri.DayEndDeadline || !early[d.Batch] {
			ids[d.Kind] = append(ids[d.Kind], d.Batch)
		}
	}
	for kind, batches := range ids {
		for _, part := range chunks(batches, tx.s.d.ChunkRows) {
			_, err := tx.exec(sq.Delete("batch_deadline").Where("due >= ? AND due <= ?", int64(page[0].Due), int64(page[len(page)-1].Due)).
				Where(sq.Eq{"kind": int(kind)}).Where(idIn("batch_id", part)))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// lateBatches is what the alerts of one round say.
type lateBatches struct {
	tx   *Tx
	zone *time.Location
	by   map[capri.BatchID]lateBatch
}

type lateBatch struct {
	from, due, start, finish capri.Instant
	message                  string
}

// late reads what the alerts need and the comparison does not. The rows are locked; the locking read sees them as they
// are and not as they were when the transaction first looked.
func (tx *Tx) late(rows []locked, due map[capri.BatchID]DueDeadline, zone *time.Location) (*lateBatches, error) {
	l := &lateBatches{tx: tx, zone: zone, by: make(map[capri.BatchID]lateBatch, len(rows))}
	for _, part := range chunks(rows, tx.s.d.ChunkRows) {
		err := tx.query(sq.Select("id", "origin", "schedule_time", "create_time", "start_time", "finish_time", "message").From("task_work").
			Where(idIn("id", idsOf(part))).Suffix(tx.s.d.ForShare), func(r *sql.Rows) error {
			var id capri.BatchID
			var origin capri.Origin
			var b lateBatch
			var made capri.Instant
			err := r.Scan(&id, &origin, &b.from, &made, instant{&b.start}, instant{&b.finish}, &b.message)
			if origin != capri.OriginMark {
				b.from = made
			}
			b.due = due[id].Due
			l.by[id] = b
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *lateBatches) at(i capri.Instant) string { return i.In(l.zone).Format(time.DateTime) }

// dependency is the alert of a batch that still waits.
func (l *lateBatches) dependency(r locked) *capri.Alert {
	b := l.by[r.ID]
	waits := "Everything it depends on is there; it waits for a place to run."
	switch {
	case r.Unmet == 1:
		waits = "One of its dependencies is not met."
	case r.Unmet > 1:
		waits = fmt.Sprintf("%d of its dependencies are not met.", r.Unmet)
	case r.Held:
		waits = "Somebody holds it."
	}
	return &capri.Alert{Key: fmt.Sprintf("dependency_timeout:%d", r.ID), Level: capri.Important, Kind: "dependency_timeout", Task: r.TaskID, Batch: r.ID,
		Title: fmt.Sprintf("%s %s still waits: dependency timeout (batch %d)", l.tx.taskName(r.TaskID), r.BatchNo, r.ID),
		Text:  l.text(r, b, "was not to wait beyond", waits)}
}

// output is the alert of a batch that has not succeeded.
func (l *lateBatches) output(r locked) *capri.Alert {
	b := l.by[r.ID]
	stands := "It is waiting."
	switch {
	case r.State == capri.Waiting && r.Unmet > 0:
		stands = fmt.Sprintf("It is waiting; unmet dependencies: %d.", r.Unmet)
	case r.State == capri.Assigned:
		stands = fmt.Sprintf("It is assigned to node %s, which has not taken it yet.", r.Node)
	case r.State == capri.Running && !r.Started:
		stands = fmt.Sprintf("Node %s is preparing it.", r.Node)
	case r.State == capri.Running:
		stands = fmt.Sprintf("It runs on node %s since %s.", r.Node, l.at(b.start))
	case r.State == capri.Finished:
		stands = fmt.Sprintf("It finished as %s at %s and has no newer run.", r.FinishState, l.at(b.finish))
	}
	return &capri.Alert{Key: fmt.Sprintf("output_timeout:%d", r.ID), Level: capri.Important, Kind: "output_timeout", Task: r.TaskID, Batch: r.ID,
		Title: fmt.Sprintf("%s %s has not succeeded yet: output timeout (batch %d)", l.tx.taskName(r.TaskID), r.BatchNo, r.ID),
		Text:  l.text(r, b, "was to have succeeded by", stands)}
}

// text puts the deadline first: who reads it at night asks "late since when" before "why".
func (l *lateBatches) text(r locked, b lateBatch, limit, stands string) string {
	text := fmt.Sprintf("It %s %s (%d minutes after %s). %s", limit, l.at(b.due), int(b.due.Sub(b.from)/time.Minute), l.at(b.from), stands)
	if b.message != "" {
		text += "\n" + b.message
	}
	if r.State == capri.Waiting {
		text += fmt.Sprintf("\ncapri why %d names the cause.", r.ID)
	}
	return text
}
