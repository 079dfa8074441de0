package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// What a job says of itself. It says so to the API, with the token of its attempt, and not to its worker, so that a
// worker's death loses nothing (seed 002 §2.2).

// UserCode is a code that a job reported.
type UserCode struct {
	Code    int64 // 0 is success
	Message string
}

// ReportCode notes the code of a running attempt whose task is judged by that (check: user_code). Success can be
// reported once for each run; saying it again changes nothing, and nothing can be said after it.
func (s *Store) ReportCode(ctx context.Context, a capri.Attempt, code int64, message string) error {
	tasks, err := s.Judged(ctx, []capri.BatchID{a.Batch})
	if err != nil {
		return err
	}
	if len(tasks) == 1 && tasks[0].Task.Check != capri.CheckUserCode {
		return capri.Conflict("batches of %s are judged by check: %s; a reported code counts with check: user_code alone", tasks[0].Task.Name, tasks[0].Task.Check)
	}
	return s.Write(ctx, "report a job's code", "attempt "+a.String(), func(tx *Tx) error {
		if err := tx.proveRunning(a); err != nil {
			return err
		}
		succeeded, err := one(tx.ctx, tx.tx, sq.Select("user_code").From("capri_user_code_log").Where(sq.Eq{"batch_id": int64(a.Batch), "success": 1}), new(int64))
		switch {
		case err != nil:
			return err
		case succeeded && code == 0:
			return nil
		case succeeded:
			return capri.Conflict("batch %d has reported success; code %d comes too late", a.Batch, code)
		}
		success := sql.NullInt64{Int64: 1, Valid: code == 0}
		_, err = tx.exec(sq.Insert("capri_user_code_log").Columns("batch_id", "attempt", "user_code", "message", "exexecute_state", "create_time", "success").
			Values(int64(a.Batch), a.Number, code, cut(message, 1000), 1, int64(tx.Now), success))
		return err
	})
}

// proveRunning locks the batch of an attempt that says something of itself.
func (tx *Tx) proveRunning(a capri.Attempt) error {
	rows, err := tx.lock([]capri.BatchID{a.Batch})
	if err != nil {
		return err
	}
	if len(rows) != 1 || rows[0].State != capri.Running || !rows[0].Started || rows[0].Attempt != a.Number {
		return capri.Conflict("attempt %s does not run: it has ended, or its batch was given to another", a)
	}
	return nil
}

// judgedByCode is by, with the outcome that their jobs reported for the attempts that reported a code. Of those that need one
// (Result.ByCode) and reported none a success is none. by itself stays as it is: the transaction may have to be run again.
//
// A reported success stands although the process failed afterwards, or was lost with its node: the job knows best, and
// another attempt would do its work twice.
func (tx *Tx) judgedByCode(rows []locked, by map[capri.BatchID]Result) (map[capri.BatchID]Result, error) {
	var asked []locked
	for _, r := range rows {
		// Those that only ended well, nearly all, have nothing to report.
		if res := by[r.ID]; res.ByCode || res.Outcome != Succeeded {
			asked = append(asked, r)
		}
	}
	said := map[capri.BatchID]UserCode{}
	for _, part := range chunks(asked, tx.s.d.ChunkRows) {
		number := map[capri.BatchID]int{}
		for _, r := range part {
			number[r.ID] = r.Attempt
		}
		q := sq.Select("batch_id", "attempt", "user_code", "message").From("capri_user_code_log").Where(tx.among("batch_id", part)).OrderBy("id").Suffix(tx.s.d.ForShare)
		err := tx.query(q, func(r *sql.Rows) error {
			var id capri.BatchID
			var attempt int
			var c UserCode
			if err := r.Scan(&id, &attempt, &c.Code, &c.Message); err != nil {
				return err
			}
			if attempt == number[id] {
				said[id] = c
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(said) == 0 {
			continue
		}
		if _, err := tx.exec(sq.Update("capri_user_code_log").Set("exexecute_state", 0).Where(tx.among("batch_id", part)).Where("exexecute_state = 1")); err != nil {
			return nil, err
		}
	}
	if len(asked) == 0 {
		return by, nil
	}
	by = maps.Clone(by)
	for _, r := range asked {
		res := by[r.ID]
		c, reported := said[r.ID]
		switch {
		case res.Outcome == Killed:
			continue
		case reported && c.Code == 0:
			res.Outcome, res.Message = Succeeded, c.Message
		case reported:
			res.Outcome = Failed
			res.Message = fmt.Sprintf("reported code %d", c.Code)
			if c.Message != "" {
				res.Message += ": " + c.Message
			}
		case res.ByCode && res.Outcome == Succeeded:
			res.Outcome, res.Message = Failed, "ended well and reported no code (check: user_code; capri report-code)"
		}
		by[r.ID] = res
	}
	return by, nil
}
