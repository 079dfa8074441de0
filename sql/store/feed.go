package store

import (
	"context"
	"database/sql"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// BatchChange is a row of the history with the batch that it is of, for those who follow along.
type BatchChange struct {
	ID    int64
	Batch capri.BatchID
	Event
	Whose
	BatchNo capri.BatchNo
	RunNo   int
}

// LastChange is the newest id of the history; 0: there is none.
func (s *Store) LastChange(ctx context.Context) (int64, error) {
	var id int64
	_, err := one(ctx, s.read, sq.Select("COALESCE(MAX(id), 0)").From("batch_event"), &id)
	return id, s.fault("read where the history ends", err)
}

// Changes reads the history after an id, oldest first. Ids are given before a transaction commits, so that a lower one may
// be there later: ChangesByID asks for those that were missing.
func (s *Store) Changes(ctx context.Context, after int64, limit int) ([]BatchChange, error) {
	return s.changes(ctx, changesQuery(after, limit))
}

// ChangesByID reads rows of the history by id; those that are not there are missing from the answer.
func (s *Store) ChangesByID(ctx context.Context, ids []int64) ([]BatchChange, error) {
	var out []BatchChange
	for _, part := range chunks(ids, s.d.ChunkRows) {
		some, err := s.changes(ctx, changeColumns().Where(idIn("e.id", part)).OrderBy("e.id"))
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

func changesQuery(after int64, limit int) sq.SelectBuilder {
	return changeColumns().Where("e.id > ?", after).OrderBy("e.id").Limit(uint64(limit))
}

// changeColumns joins outwards, so that the history comes first and is read in its order.
func changeColumns() sq.SelectBuilder {
	return sq.Select("e.id", "e.batch_id", "e.at", "e.state", "e.finish_state", "e.attempt", "e.node", "e.held", "e.kill_request", "e.who", "e.why",
		"w.batch_no", "w.run_no", "t.id", "t.name", "t.owner", "u.department", "t.app").From("batch_event e").
		LeftJoin("task_work w ON w.id = e.batch_id").LeftJoin("task t ON t.id = w.task_id").LeftJoin("user u ON u.name = t.owner")
}

func (s *Store) changes(ctx context.Context, q sq.SelectBuilder) ([]BatchChange, error) {
	out, err := collect(ctx, s.read, q, func(r *sql.Rows, c *BatchChange) error {
		var no, task, owner, department, app sql.NullString
		var run, id sql.NullInt64
		err := r.Scan(&c.ID, &c.Batch, &c.At, &c.State, &c.FinishState, &c.Attempt, &c.Node, &c.Held, &c.KillRequest, &c.Who, &c.Why,
			&no, &run, &id, &task, &owner, &department, &app)
		c.BatchNo, c.RunNo, c.TaskID = capri.BatchNo(no.String), int(run.Int64), capri.TaskID(id.Int64)
		// One of an archived batch has no task, and is for its id alone.
		c.Task, c.Owner, c.Department, c.App = task.String, owner.String, department.String, app.String
		return err
	})
	return out, s.fault("read the history", err)
}
