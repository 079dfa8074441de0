package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// A quality gate keeps a batch whose conditions are met until the quality API has said that it may run (seed 002
// §1.11). quality_state says where it stands:
//
//	0 no gate · 1 to be asked ──asked──▶ 2 asked ──verdict──▶ 3 runnable │ 4 blocked
//	     ▲                                                       │
//	     └──────────── a condition was revoked ──────────────────┘
//
// quality_ask numbers the questions. A verdict names the question that it answers, and counts only while that is the
// newest: data may have changed since an older one was asked.

// The states of a gate.
const (
	gateToAsk    = 1
	gateAsked    = 2
	gateRunnable = 3
	gateBlocked  = 4
)

// GateMessage begins what the gate writes into a batch's message, so that `why` can tell it from other notes.
const GateMessage = "quality gate: "

// closeGate sends the gates of batches back to "to be asked" where a condition is being revoked. The number moves on as
// well: a question that is on its way was about data that is no longer there. It belongs before unmet is set, since
// MySQL computes an UPDATE's values from left to right with what was set before.
func closeGate(u sq.UpdateBuilder) sq.UpdateBuilder {
	return u.Set("quality_ask", sq.Expr("CASE WHEN unmet = 0 AND quality_state > 0 THEN quality_ask + 1 ELSE quality_ask END")).
		Set("quality_state", sq.Expr("CASE WHEN unmet = 0 AND quality_state > 0 THEN 1 ELSE quality_state END"))
}

// Gated is a batch that waits for its quality gate, and about which nobody was asked yet.
type Gated struct {
	ID        capri.BatchID
	Task      string
	BatchNo   capri.BatchNo
	RunNo     int
	DataStart capri.Instant
	DataEnd   capri.Instant
	Message   string
	Place     ReadyAfter // where the page after this one begins
}

// gatedQuery reads the index of the ready batches in its own order, like readyQuery and for the same reasons.
func gatedQuery(after ReadyAfter, limit int) sq.SelectBuilder {
	q := sq.Select("w.id", "COALESCE(t.name, '')", "w.batch_no", "w.run_no", "w.data_start", "w.data_end", "w.message", "w.priority", "w.schedule_time").
		From("task_work w").LeftJoin("task t ON t.id = w.task_id").
		Where("w.state = 0 AND w.unmet = 0").
		Where("w.quality_state = 1 AND w.kill_request = 0 AND COALESCE(t.enabled, 0) = 1").
		OrderBy("w.priority", "w.schedule_time", "w.id").Limit(uint64(limit))
	if after.ID != 0 {
		q = q.Where("(w.priority > ? OR (w.priority = ? AND (w.schedule_time > ? OR (w.schedule_time = ? AND w.id > ?))))",
			after.Priority, after.Priority, int64(after.ScheduleTime), int64(after.ScheduleTime), int64(after.ID))
	}
	return q
}

// Gated reads a page of the batches whose gate is to be asked about.
func (s *Store) Gated(ctx context.Context, after ReadyAfter, limit int) ([]Gated, error) {
	out, err := collect(ctx, s.read, gatedQuery(after, limit), func(r *sql.Rows, g *Gated) error {
		err := r.Scan(&g.ID, &g.Task, &g.BatchNo, &g.RunNo, &g.DataStart, &g.DataEnd, &g.Message, &g.Place.Priority, &g.Place.ScheduleTime)
		g.Place.ID = g.ID
		return err
	})
	return out, s.fault("list batches at their quality gate", err)
}

// atGate is what asking relies on; every write of it repeats it.
const atGate = "state = 0 AND unmet = 0 AND quality_state = 1 AND kill_request = 0"

// BeginAsk gives each batch that still waits at its gate the next number, before anybody is asked: if the process dies
// between the asking and the note of it, the next question has another number and the first one's answer counts no more.
func (s *Store) BeginAsk(ctx context.Context, lease capri.Lease, ids []capri.BatchID) (map[capri.BatchID]int, error) {
	all := map[capri.BatchID]int{}
	for _, part := range chunks(ids, s.d.ChunkRows) {
		var asks map[capri.BatchID]int
		err := s.WriteAs(ctx, "number questions to the quality API", lease, func(tx *Tx) error {
			rows, seen, err := tx.lockGates(part)
			if asks = seen; err != nil || len(rows) == 0 {
				return err
			}
			for id := range asks {
				asks[id]++
			}
			_, err = tx.exec(sq.Update("task_work"+s.d.ByKey).Set("quality_ask", sq.Expr("quality_ask + 1")).Where(tx.among("id", rows)).Where(atGate))
			return err
		})
		if err != nil {
			return nil, err
		}
		for id, ask := range asks {
			all[id] = ask
		}
	}
	return all, nil
}

// Asked notes that the quality API has taken the questions. Where the verdict was quicker, or another question was
// begun meanwhile, nothing is changed.
func (s *Store) Asked(ctx context.Context, lease capri.Lease, asks map[capri.BatchID]int) (int, error) {
	ids := make([]capri.BatchID, 0, len(asks))
	for id := range asks {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	done := 0
	for _, part := range chunks(ids, s.d.ChunkRows) {
		n := 0
		err := s.WriteAs(ctx, "note questions to the quality API", lease, func(tx *Tx) error {
			rows, seen, err := tx.lockGates(part)
			if err != nil {
				return err
			}
			rows = slices.DeleteFunc(rows, func(r locked) bool { return seen[r.ID] != asks[r.ID] })
			n = len(rows)
			return tx.changeLocked(rows, change{set: sq.Eq{"quality_state": gateAsked, "message": GateMessage + "asked"}, why: "the quality API was asked"})
		})
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// lockGates locks those of the batches that wait at their gate, in the order of their ids, and tells the number of each
// one's newest question.
func (tx *Tx) lockGates(ids []capri.BatchID) (rows []locked, asks map[capri.BatchID]int, err error) {
	asks = map[capri.BatchID]int{}
	err = tx.query(sq.Select("id", "kinds", "quality_ask").From("task_work"+tx.s.d.ByKey).Where(idIn("id", ids)).Where(atGate).OrderBy("id").Suffix(tx.s.d.ForUpdate), func(rs *sql.Rows) error {
		var r locked
		ask := 0
		err := rs.Scan(&r.ID, &r.Kinds, &ask)
		rows, asks[r.ID] = append(rows, r), ask
		return err
	})
	return rows, asks, err
}

// QualityVerdict is the quality API's word on a batch, or a person's. ask is the question that it answers; 0 stands for
// the newest, whether or not anybody was asked. The verdict of a question may change as long as the batch waits.
// changed is false where it says what stands already.
func (tx *Tx) QualityVerdict(id capri.BatchID, ask int, runnable bool, reason string) (changed bool, err error) {
	if err := tx.note("task_work", sq.Eq{"id": int64(id)}); err != nil {
		return false, err
	}
	rows, err := tx.lock([]capri.BatchID{id})
	if err != nil {
		return false, err
	}
	if len(rows) == 0 {
		return false, capri.NotFound("there is no batch %d", id)
	}
	r, state, newest := rows[0], 0, 0
	if _, err := one(tx.ctx, tx.tx, sq.Select("quality_state", "quality_ask").From("task_work").Where(sq.Eq{"id": int64(id)}).Suffix(tx.s.d.ForUpdate), &state, &newest); err != nil {
		return false, err
	}
	switch {
	case state == 0:
		return false, capri.Conflict("batch %d has no quality gate", id)
	case r.State != capri.Waiting:
		return false, capri.Conflict("batch %d does not wait at its quality gate any more: it is %s", id, r.State)
	case ask > newest:
		return false, capri.Conflict("batch %d was never asked about with number %d: the newest question is %d", id, ask, newest)
	case ask != 0 && ask < newest:
		return false, capri.Conflict("question %d about batch %d is out of date (the newest is %d): it was asked again, or a condition was revoked; that question's answer counts", ask, id, newest)
	case r.Unmet > 0:
		return false, capri.Conflict("batch %d waits for %d conditions: its quality gate is asked about when they are met", id, r.Unmet)
	}
	to, word := gateRunnable, "runnable"
	if !runnable {
		to, word = gateBlocked, "blocked"
	}
	said := word
	if reason != "" {
		said += ": " + reason
	}
	if state == to {
		return false, nil
	}
	c := change{set: sq.Eq{"quality_state": to, "message": ""}, why: GateMessage + said}
	if !runnable {
		c.set["message"] = cut(GateMessage+said, 1000)
		c.alert = func(r locked) *capri.Alert {
			return &capri.Alert{Key: fmt.Sprintf("quality_blocked:%d:%d", id, newest), Level: capri.Important, Kind: "quality_blocked", Task: r.TaskID, Batch: id,
				Title: fmt.Sprintf("The quality gate blocks batch %d (%s)", id, r.BatchNo),
				Text:  fmt.Sprintf("Verdict on question %d: %s. The batch waits until a later verdict says runnable (capri quality %d --runnable).", newest, said, id)}
		}
	}
	return true, tx.changeLocked(rows, c)
}
