package store

import (
	"context"
	"database/sql"
	"slices"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// Whose tells whose a task is, and its batches with it. Rights are decided by it (package auth).
type Whose struct {
	TaskID     capri.TaskID
	Task       string
	Owner      string
	Department string // the owner's
	App        string // who made this version, where nobody owns it
}

// whose reads it of the tasks t in from.
func whose(from string, columns ...string) sq.SelectBuilder {
	return sq.Select(columns...).Columns("t.id", "t.name", "t.owner", "COALESCE(u.department, '')", "t.app").From(from + " LEFT JOIN user u ON u.name = t.owner")
}

func (w *Whose) fields() []any { return []any{&w.TaskID, &w.Task, &w.Owner, &w.Department, &w.App} }

// WhoseTasks tells whose some tasks are, by name; deleted ones too.
func (s *Store) WhoseTasks(ctx context.Context, names []string) (map[string]Whose, error) {
	out := make(map[string]Whose, len(names))
	for _, part := range chunks(names, s.d.ChunkRows) {
		if err := s.whoseTasks(ctx, sq.Eq{"t.name": part}, func(w Whose) { out[w.Task] = w }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// WhoseGroup lists the tasks of a group with whose they are.
func (s *Store) WhoseGroup(ctx context.Context, group string) ([]Whose, error) {
	var out []Whose
	err := s.whoseTasks(ctx, sq.And{sq.Eq{"t.task_group": group}, sq.Eq{"t.deleted_at": nil}}, func(w Whose) { out = append(out, w) })
	return out, err
}

// WhoseTaskIDs tells whose some tasks are, by id; deleted ones too.
func (s *Store) WhoseTaskIDs(ctx context.Context, ids []capri.TaskID) (map[capri.TaskID]Whose, error) {
	out := make(map[capri.TaskID]Whose, len(ids))
	for _, part := range chunks(ids, s.d.ChunkRows) {
		if err := s.whoseTasks(ctx, idIn("t.id", part), func(w Whose) { out[w.TaskID] = w }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Store) whoseTasks(ctx context.Context, which sq.Sqlizer, each func(Whose)) error {
	err := query(ctx, s.read, whose("task t").Where(which).OrderBy("t.name"), func(r *sql.Rows) error {
		var w Whose
		err := r.Scan(w.fields()...)
		each(w)
		return err
	})
	return s.fault("read whose tasks are", err)
}

// WhoseBatches tells whose some batches are, archived ones too.
func (s *Store) WhoseBatches(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID]Whose, error) {
	out := make(map[capri.BatchID]Whose, len(ids))
	for _, table := range []string{"task_work", archiveTable} {
		left := slices.DeleteFunc(slices.Clone(ids), func(id capri.BatchID) bool { return out[id].TaskID != 0 })
		for _, part := range chunks(left, s.d.ChunkRows) {
			err := query(ctx, s.read, whose(table+" w JOIN task t ON t.id = w.task_id", "w.id").Where(idIn("w.id", part)), func(r *sql.Rows) error {
				var id capri.BatchID
				var w Whose
				err := r.Scan(append([]any{&id}, w.fields()...)...)
				out[id] = w
				return err
			})
			if err != nil {
				return nil, s.fault("read whose batches are", err)
			}
		}
	}
	return out, nil
}

// Seen narrows a list to what somebody may see, where that is not everything: auth.Principal.Seen gives it, and nil where
// it is. Lists filter by it in the database, so that pages are full and counts are true.
type Seen struct {
	Owner      string // that user's tasks
	Department string // and those of that department's people
	App        string // and those that this app has made, and nobody owns
}

// narrow puts it on a query in which t is the task.
func (v *Seen) narrow(q sq.SelectBuilder) sq.SelectBuilder {
	if v == nil {
		return q
	}
	return q.Where(v.tasks())
}

func (v *Seen) tasks() sq.Or {
	or := sq.Or{sq.Eq{"t.owner": v.Owner}}
	if v.Owner == "" {
		or = sq.Or{sq.Expr("1 = 0")} // what is nobody's is not everybody's
	}
	if v.Department != "" {
		or = append(or, sq.Expr("t.owner IN (SELECT v.name FROM user v WHERE v.department = ?)", v.Department))
	}
	if v.App != "" {
		or = append(or, sq.And{sq.Eq{"t.owner": ""}, sq.Eq{"t.app": v.App}})
	}
	return or
}

// narrowTo is narrow for a query without tasks, where a column holds a task's id. What belongs to no task everybody sees.
func (v *Seen) narrowTo(q sq.SelectBuilder, column string) sq.SelectBuilder {
	if v == nil {
		return q
	}
	return q.Where(sq.Or{sq.Eq{column: 0}, sq.Expr(column+" IN (?)", sq.Select("t.id").From("task t").Where(v.tasks()))})
}
