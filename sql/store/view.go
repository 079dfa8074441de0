package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// What people look at: read-only queries of the API, the command line and package why.

// Counts are how many batches stand where.
type Counts struct {
	Waiting, Ready, Running int
}

// Counts counts batches that have not finished. Ready are waiting ones whose conditions are met and that nobody holds.
// Where there are many they are those of a moment ago.
func (s *Store) Counts(ctx context.Context) (Counts, error) {
	c, err := s.counts.get(ctx, func(ctx context.Context) (Counts, int, error) {
		c, err := s.count(ctx)
		return c, c.Waiting + c.Running, err
	})
	return c, s.fault("count batches", err)
}

func (s *Store) count(ctx context.Context) (c Counts, err error) {
	err = query(ctx, s.read, sq.Select("state", "CASE WHEN unmet = 0 AND held = 0 THEN 1 ELSE 0 END AS ready", "COUNT(*)").From("task_work").
		Where("state < 3").GroupBy("state", "ready"), func(r *sql.Rows) error {
		var state capri.State
		var ready, n int
		if err := r.Scan(&state, &ready, &n); err != nil {
			return err
		}
		switch {
		case state != capri.Waiting:
			c.Running += n
		case ready == 1:
			c.Ready += n
			fallthrough
		default:
			c.Waiting += n
		}
		return nil
	})
	return c, err
}

// BatchesByID reads batches with their tasks' names, archived ones too; those that do not exist are missing from the
// answer.
func (s *Store) BatchesByID(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID]BatchRow, error) {
	return s.rowsByID(ctx, ids, "task_work", archiveTable)
}

// ArchivedByID reads those of some batches that are archived.
func (s *Store) ArchivedByID(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID]BatchRow, error) {
	return s.rowsByID(ctx, ids, archiveTable)
}

func (s *Store) rowsByID(ctx context.Context, ids []capri.BatchID, tables ...string) (map[capri.BatchID]BatchRow, error) {
	out := make(map[capri.BatchID]BatchRow, len(ids))
	for _, table := range tables {
		left := slices.DeleteFunc(slices.Clone(ids), func(id capri.BatchID) bool { return out[id].ID != 0 })
		for _, part := range chunks(left, s.d.ChunkRows) {
			err := query(ctx, s.read, sq.Select(batchColumns...).Column("t.name").From(table+" w").Join("task t ON t.id = w.task_id").Where(idIn("w.id", part)), func(r *sql.Rows) error {
				var row BatchRow
				var err error
				row.Batch, err = scanBatch(r, &row.Task)
				row.Archived = table == archiveTable
				out[row.ID] = row
				return err
			})
			if err != nil {
				return nil, s.fault("read batches", err)
			}
		}
	}
	return out, nil
}

// LatestKey names a batch_no of a task.
type LatestKey struct {
	Task capri.TaskID
	No   capri.BatchNo
}

// LatestOf reads the runs that count of every given task and batch_no, the combinations that exist, archived ones too.
func (s *Store) LatestOf(ctx context.Context, tasks []capri.TaskID, nos []capri.BatchNo) (map[LatestKey]capri.Batch, error) {
	out := map[LatestKey]capri.Batch{}
	for _, table := range []string{"task_work", archiveTable} {
		if err := s.latestOf(ctx, table, tasks, nos, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Store) latestOf(ctx context.Context, table string, tasks []capri.TaskID, nos []capri.BatchNo, out map[LatestKey]capri.Batch) error {
	for _, some := range chunks(tasks, s.d.ChunkRows) {
		for _, part := range chunks(nos, s.d.ChunkRows) {
			err := query(ctx, s.read, sq.Select(batchColumns...).From(table+" w").Where(idIn("w.task_id", some)).
				Where(sq.Eq{"w.batch_no": texts(part), "w.latest": 1}), func(r *sql.Rows) error {
				b, err := scanBatch(r)
				b.Archived = table == archiveTable
				out[LatestKey{b.TaskID, b.BatchNo}] = b
				return err
			})
			if err != nil {
				return s.fault("read latest runs", err)
			}
		}
	}
	return nil
}

// UnmetOf lists the unmet conditions of many batches at once, as ConditionsOf does for one, and for a path the batch that
// makes it, where one is known. A group of parents of which any one is enough is left out where one has succeeded, and so is
// all that does not count since somebody said "run now": kinds has none of it.
func (s *Store) UnmetOf(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID][]ConditionRow, error) {
	kinds, err := s.kindsByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	return s.unmetOf(ctx, ids, kinds)
}

// UnmetBehind is UnmetOf a batch and of every waiting batch behind it, level by level, up to so many levels and batches:
// each that was asked about has its entry. others are all the batches that the conditions name.
func (s *Store) UnmetBehind(ctx context.Context, id capri.BatchID, levels, batches int) (unmet map[capri.BatchID][]ConditionRow, others []capri.BatchID, err error) {
	level := []capri.BatchID{id}
	kinds, err := s.kindsByID(ctx, level)
	if err != nil {
		return nil, nil, err
	}
	unmet = map[capri.BatchID][]ConditionRow{}
	seen := map[capri.BatchID]bool{id: true}
	for n := 0; n < levels && len(level) > 0; n++ {
		some, err := s.unmetOf(ctx, level, kinds)
		if err != nil {
			return nil, nil, err
		}
		var next []capri.BatchID
		for _, id := range level {
			unmet[id] = some[id]
			for _, c := range some[id] {
				if c.ParentBatchID == 0 || seen[c.ParentBatchID] || len(seen) >= batches {
					continue
				}
				seen[c.ParentBatchID] = true
				others = append(others, c.ParentBatchID)
				if c.ParentState == capri.Waiting {
					next, kinds[c.ParentBatchID] = append(next, c.ParentBatchID), c.parentKinds
				}
			}
		}
		level = next
	}
	return unmet, others, nil
}

func (s *Store) kindsByID(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID]int, error) {
	kinds := make(map[capri.BatchID]int, len(ids))
	for _, part := range chunks(ids, s.d.ChunkRows) {
		some, err := pairs[capri.BatchID, int](ctx, s.read, sq.Select("id", "kinds").From("task_work").Where(idIn("id", part)))
		if err != nil {
			return nil, s.fault("read which conditions batches have", err)
		}
		maps.Copy(kinds, some)
	}
	return kinds, nil
}

// unmetReads are the tables of conditions, in the order in which people read them, by the kinds that stand for them.
var unmetReads = []struct {
	kinds int
	read  func(*Store, context.Context, []capri.BatchID) (map[capri.BatchID][]ConditionRow, error)
}{
	{kindPaths, (*Store).unmetInputs},
	{kindThirdParty, (*Store).unmetThirdParty},
	{kindParents, (*Store).unmetParents},
	{kindGrouped, (*Store).unmetGrouped},
}

// unmetOf asks each table about the batches that have something there: along a chain of parents that is one.
func (s *Store) unmetOf(ctx context.Context, ids []capri.BatchID, kinds map[capri.BatchID]int) (map[capri.BatchID][]ConditionRow, error) {
	out := make(map[capri.BatchID][]ConditionRow, len(ids))
	for _, of := range unmetReads {
		var having []capri.BatchID
		for _, id := range ids {
			if kinds[id]&of.kinds != 0 {
				having = append(having, id)
			}
		}
		for _, part := range chunks(having, s.d.ChunkRows) {
			rows, err := of.read(s, ctx, part)
			if err != nil {
				return nil, s.fault("read unmet conditions", err)
			}
			for id, list := range rows {
				out[id] = append(out[id], list...)
			}
		}
	}
	return out, s.withArchived(ctx, slices.Collect(maps.Values(out))...)
}

// unmetInputsQuery keeps, by its plus, from the index that leads to every unmet path there is.
func unmetInputsQuery(ids []capri.BatchID) sq.SelectBuilder {
	return sq.Select("d.batch_id", "d.path", "d.flag", "COALESCE(w.id, 0)", "COALESCE(w.task_id, 0)", "COALESCE(w.period, 0)", "COALESCE(w.batch_no, '')", "COALESCE(w.state, 0)", "COALESCE(w.finish_state, 0)", "COALESCE(w.kinds, 0)", "COALESCE(t.name, '')").
		From("task_data d").
		LeftJoin("task_data o ON o.type = 2 AND o.state IN (0, 1) AND o.path_hash = d.path_hash AND o.path = d.path AND o.flag = d.flag AND o.batch_id <> d.batch_id").
		LeftJoin("task_work w ON w.id = o.batch_id AND w.latest = 1").LeftJoin("task t ON t.id = w.task_id").
		Where("d.type = 1 AND +d.state = 0").Where(idIn("d.batch_id", ids)).OrderBy("d.batch_id", "d.seq", "w.id")
}

func (s *Store) unmetInputs(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID][]ConditionRow, error) {
	out := map[capri.BatchID][]ConditionRow{}
	err := query(ctx, s.read, unmetInputsQuery(ids), func(r *sql.Rows) error {
		var id capri.BatchID
		c := ConditionRow{Kind: "input"}
		err := r.Scan(&id, &c.Path, &c.Flag, &c.ParentBatchID, &c.ParentTaskID, &c.Period, &c.BatchNo, &c.ParentState, &c.ParentFinish, &c.parentKinds, &c.Parent)
		if n := len(out[id]); n > 0 && out[id][n-1].Path == c.Path && out[id][n-1].Flag == c.Flag { // several batches make it
			if last := &out[id][n-1]; last.ParentBatchID == 0 || last.Succeeded() {
				*last = c
			}
			return err
		}
		out[id] = append(out[id], c)
		return err
	})
	return out, err
}

func unmetThirdPartyQuery(ids []capri.BatchID) sq.SelectBuilder {
	return sq.Select("d.batch_id", "d.code", "d.period", "d.batch_no", "COALESCE(i.said, '')", "COALESCE(i.reported_at, 0)").From("tthird_data d").
		LeftJoin("tthird_item i ON i.code = d.code AND i.period = d.period AND i.batch_no = d.batch_no").
		Where("d.state = 0").Where(idIn("d.batch_id", ids)).OrderBy("d.batch_id", "d.seq")
}

func (s *Store) unmetThirdParty(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID][]ConditionRow, error) {
	out := map[capri.BatchID][]ConditionRow{}
	err := query(ctx, s.read, unmetThirdPartyQuery(ids), func(r *sql.Rows) error {
		var id capri.BatchID
		c := ConditionRow{Kind: "third_party"}
		err := r.Scan(&id, &c.Code, &c.Period, &c.BatchNo, &c.Said, &c.SaidAt)
		out[id] = append(out[id], c)
		return err
	})
	return out, err
}

func unmetParentsQuery(ids []capri.BatchID) sq.SelectBuilder {
	return sq.Select("d.batch_id", "d.grp", "d.policy", "d.parent_task_id", "d.parent_batch_no", "t.name", "t.output_period",
		"COALESCE(w.id, 0)", "COALESCE(w.state, 0)", "COALESCE(w.finish_state, 0)", "COALESCE(w.kinds, 0)").
		From("tparent_data d").Join("task t ON t.id = d.parent_task_id").
		LeftJoin("task_work w ON w.task_id = d.parent_task_id AND w.batch_no = d.parent_batch_no AND w.latest = 1").
		Where("d.state = 0").Where(idIn("d.batch_id", ids)).OrderBy("d.batch_id", "d.seq")
}

// unmetGroupedQuery leaves out groups of which any one is enough and one has succeeded. EXISTS has MariaDB read the
// whole table where its statistics are old.
func unmetGroupedQuery(ids []capri.BatchID) sq.SelectBuilder {
	return unmetParentsQuery(ids).Where("NOT (d.policy = 1 AND COALESCE((SELECT 1 FROM tparent_data m WHERE m.batch_id = d.batch_id AND m.grp = d.grp AND m.state = 1 LIMIT 1), 0) = 1)")
}

func (s *Store) unmetParents(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID][]ConditionRow, error) {
	return s.unmetParentsOf(ctx, unmetParentsQuery(ids))
}

func (s *Store) unmetGrouped(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID][]ConditionRow, error) {
	return s.unmetParentsOf(ctx, unmetGroupedQuery(ids))
}

func (s *Store) unmetParentsOf(ctx context.Context, q sq.SelectBuilder) (map[capri.BatchID][]ConditionRow, error) {
	out := map[capri.BatchID][]ConditionRow{}
	err := query(ctx, s.read, q, func(r *sql.Rows) error {
		var id capri.BatchID
		c := ConditionRow{Kind: "parent", Policy: string(capri.All)}
		anyone := false
		err := r.Scan(&id, &c.Group, &anyone, &c.ParentTaskID, &c.BatchNo, &c.Parent, &c.Period, &c.ParentBatchID, &c.ParentState, &c.ParentFinish, &c.parentKinds)
		if anyone {
			c.Policy = string(capri.Anyone)
		}
		out[id] = append(out[id], c)
		return err
	})
	return out, err
}

// HeldSince tells since when batches are held.
func (s *Store) HeldSince(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID]capri.Instant, error) {
	out := map[capri.BatchID]capri.Instant{}
	for _, part := range chunks(ids, s.d.ChunkRows) {
		q := sq.Select("e.batch_id", "e.at", "e.held").From("batch_event e").Where(idIn("e.batch_id", part)).OrderBy("e.batch_id", "e.id")
		err := query(ctx, s.read, q, func(r *sql.Rows) error {
			var id capri.BatchID
			var at capri.Instant
			held := false
			err := r.Scan(&id, &at, &held)
			if _, known := out[id]; held && !known {
				out[id] = at
			} else if !held {
				delete(out, id)
			}
			return err
		})
		if err != nil {
			return nil, s.fault("look since when batches are held", err)
		}
	}
	return out, nil
}

// ReadyBefore counts the ready batches that dispatch looks at before one, up to most.
func (s *Store) ReadyBefore(ctx context.Context, now, latest capri.Instant, b capri.Batch, most int) (int, error) {
	n := 0
	q := readyQuery(now, latest, ReadyAfter{}, most).RemoveColumns().Columns("1").Where("(w.priority < ? OR (w.priority = ? AND (w.schedule_time < ? OR (w.schedule_time = ? AND w.id < ?))))",
		b.Priority, b.Priority, int64(b.ScheduleTime), int64(b.ScheduleTime), int64(b.ID))
	_, err := one(ctx, s.read, sq.Select("COUNT(*)").FromSelect(q, "ahead"), &n)
	return n, s.fault("count what is ready before a batch", err)
}

// RunningEnd is when a running batch should be done, by what its task is expected to take.
type RunningEnd struct {
	Pool string
	At   capri.Instant // 0: nobody knows
}

// RunningEnds lists them, up to most.
func (s *Store) RunningEnds(ctx context.Context, most int) ([]RunningEnd, error) {
	q := sq.Select("w.pool", "COALESCE(w.start_time, w.assign_time, 0)", "t.expected_minutes").From("task_work w").Join("task t ON t.id = w.task_id").Where(sq.Eq{"w.state": []int{1, 2}}).Limit(uint64(most))
	out, err := collect(ctx, s.read, q, func(r *sql.Rows, e *RunningEnd) error {
		var from capri.Instant
		minutes := 0
		err := r.Scan(&e.Pool, &from, &minutes)
		if minutes > 0 {
			e.At = from.Add(time.Duration(minutes) * time.Minute)
		}
		return err
	})
	return out, s.fault("look when running batches end", err)
}

// AlertRow is a line of the outbox.
type AlertRow struct {
	ID int64
	capri.Alert
	CreatedAt capri.Instant
	Incident  int64 // 0: nobody has looked at it yet
}

// Alerts lists alerts, newest first, from before the given one on; 0: from the newest on.
func (s *Store) Alerts(ctx context.Context, seen *Seen, before int64, limit int) ([]AlertRow, error) {
	return s.alertRows(ctx, seen.narrowTo(beforeID(s.alertQuery(), before), "task_id").OrderBy("id DESC").Limit(uint64(limit)))
}

// beforeID is the place of a page in a list whose order is the id's, newest first.
func beforeID(q sq.SelectBuilder, id int64) sq.SelectBuilder {
	if id != 0 {
		q = q.Where("id < ?", id)
	}
	return q
}

// DefinitionsVersion grows with every change of definitions: who read it, then the definitions, and finds it one
// higher right after its own LockDefinitions, knows that what it read still stands.
func (s *Store) DefinitionsVersion(ctx context.Context) (int64, error) {
	v, err := definitionsVersion(ctx, s.read)
	return v, s.fault("read the version of the definitions", err)
}

// DefinitionsVersion is the same inside a transaction.
func (tx *Tx) DefinitionsVersion() (int64, error) { return definitionsVersion(tx.ctx, tx.tx) }

func definitionsVersion(ctx context.Context, q querier) (int64, error) {
	var v int64
	_, err := one(ctx, q, sq.Select("next_id").From("id_block").Where(sq.Eq{"name": "definitions"}), &v)
	return v, err
}
