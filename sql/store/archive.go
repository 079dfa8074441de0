package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// Old finished batches leave task_work, so that the table stays as large as what people still look at:
//
//	task_work ───(finished long ago)──▶ task_work_archive     the same columns, and archived_at
//	batch_event ──────────────────────▶ batch_event_archive
//	task_data, tthird_data, tparent_data, batch_deadline, capri_user_code_log      deleted: conditions follow from the definition's version
//
// Together the two tables of batches are one: a (task, batch_no, run_no) stands in one of them, and one run of a
// batch_no at most has latest, wherever it stands. So whoever asks whether a batch exists, which run_no comes next or
// whether a parent has succeeded asks both, first task_work and then the archive: rows move in that direction alone, and
// none can be missed.
//
// What stays in task_work however old: what has not finished, and a run that counts, has output paths and did not
// succeed. Its outputs may be half-written, and its row is what keeps others from reading them (unsurePaths).

// archiveTable has the rows of task_work that were moved.
const archiveTable = "task_work_archive"

// archivedColumns are task_work's, every one of them; a test holds the list against both tables.
var archivedColumns = []string{"id", "task_id", "task_version", "period", "batch_no", "run_no", "latest", "origin", "schedule_time", "data_start", "data_end",
	"create_time", "state", "finish_state", "unmet", "kinds", "held", "kill_request", "node", "attempt", "avoid_node", "assign_time", "start_time",
	"finish_time", "not_before", "skip_at", "priority", "slots", "memory_mb", "concurrency", "pool", "strategy", "nodes", "account", "quality_state",
	"quality_ask", "failures", "rejections", "losses", "dependency_timeout_at", "output_timeout_at", "notified_at", "actual_memory_mb",
	"actual_processes", "progress", "application_id", "message", "run_now", "params"}

var archivedEventColumns = []string{"id", "batch_id", "at", "state", "finish_state", "attempt", "node", "held", "kill_request", "latest", "epoch", "who", "why"}

// oldEnough is the comparison under which a batch moves. Its numbers are ours, so they stand in the text.
func oldEnough(before capri.Instant) string {
	return fmt.Sprintf("state = 3 AND finish_time < %d AND NOT (latest IS NOT NULL AND finish_state <> 1 AND kinds & %d <> 0)", before, kindOutputs)
}

func oldBatchesQuery(after capri.BatchID, before capri.Instant, limit int) sq.SelectBuilder {
	return sq.Select("id", fmt.Sprintf("create_time < %d", before), oldEnough(before)).From("task_work").Where("id > ?", int64(after)).OrderBy("id").Limit(uint64(limit))
}

// OldBatches reads a page of batches by id and gives those that finished before an instant and may be archived. next is
// where the following page begins, 0 after the last one.
//
// finish_time has no index: keeping one up to date would cost every finish of every batch, for a question of one minute
// a day. Ids grow with time, so what is old stands at the key's beginning, and the walk ends at a page of batches
// that were all made after the instant: it reads what it moves and the few that stay.
func (s *Store) OldBatches(ctx context.Context, after capri.BatchID, before capri.Instant, limit int) (ids []capri.BatchID, next capri.BatchID, err error) {
	read, old := 0, 0
	err = query(ctx, s.read, oldBatchesQuery(after, before, limit), func(r *sql.Rows) error {
		var id capri.BatchID
		var made, movable bool
		if err := r.Scan(&id, &made, &movable); err != nil {
			return err
		}
		if read++; made {
			old++
		}
		if movable {
			ids = append(ids, id)
		}
		next = id
		return nil
	})
	if read < limit || old == 0 {
		next = 0
	}
	return ids, next, s.fault("look for old batches", err)
}

// ArchiveBatches moves those of the batches that finished before an instant and still compare, in one transaction, with
// their events, and deletes their conditions. It returns how many there were.
func (s *Store) ArchiveBatches(ctx context.Context, lease capri.Lease, before capri.Instant, ids []capri.BatchID) (moved int, err error) {
	err = s.WriteAs(ctx, "archive batches", lease, func(tx *Tx) error {
		rows, err := tx.lockWhere(ids, oldEnough(before))
		moved = len(rows)
		if err != nil {
			return err
		}
		for _, part := range chunks(rows, s.d.ChunkRows) {
			if err := tx.archive(part); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return moved, nil
}

func (tx *Tx) archive(rows []locked) error {
	columns, events := strings.Join(archivedColumns, ", "), strings.Join(archivedEventColumns, ", ")
	which := tx.amongText("id", rows)
	n, err := tx.execText(fmt.Sprintf("INSERT INTO %s (%s, archived_at) SELECT %s, %d FROM task_work%s WHERE %s", archiveTable, columns, columns, tx.Now, tx.s.d.ByKey, which))
	if err != nil {
		return err
	}
	if n != len(rows) {
		return fmt.Errorf("archived %d of %d locked batches", n, len(rows))
	}
	of := tx.amongText("batch_id", rows)
	if _, err := tx.execText("INSERT INTO batch_event_archive (" + events + ") SELECT " + events + " FROM batch_event WHERE " + of); err != nil {
		return err
	}
	for _, table := range []string{"batch_event", "task_data", "tthird_data", "tparent_data", "batch_deadline", "capri_user_code_log"} {
		if _, err := tx.execText("DELETE FROM " + table + " WHERE " + of); err != nil {
			return err
		}
	}
	n, err = tx.execText("DELETE FROM task_work WHERE " + which)
	if err == nil && n != len(rows) {
		err = fmt.Errorf("removed %d of %d archived batches", n, len(rows))
	}
	return err
}

// ForgetAlerts deletes at most limit alerts that were raised before an instant, the oldest first.
func (s *Store) ForgetAlerts(ctx context.Context, lease capri.Lease, before capri.Instant, limit int) (int, error) {
	ids, err := column[int64](ctx, s.read, sq.Select("id").From("alert").Where("created_at < ?", int64(before)).OrderBy("created_at").Limit(uint64(limit)))
	if err != nil || len(ids) == 0 {
		return 0, s.fault("look for old alerts", err)
	}
	n := 0
	err = s.WriteAs(ctx, "forget old alerts", lease, func(tx *Tx) error {
		n, err = tx.exec(sq.Delete("alert").Where(idIn("id", ids)))
		return err
	})
	return n, err
}

// errArchived rolls an insert back: a batch_no of it stands in the archive.
var errArchived = errors.New("a batch_no stands in the archive")

// archivedAfter is how old a batch's data is at least when the batch is archived: the setting counts in days, from its
// end, and a batch is made when its interval has ended. An hour is for clocks that were put right.
const archivedAfter = 23 * time.Hour

// refuseArchived fails with errArchived where a batch about to be inserted has a run in the archive, which no unique key of
// task_work knows of. What a mark makes in time is never asked about; the read locks, so that nothing is moved there
// before the insert is done.
func (tx *Tx) refuseArchived(batches []*capri.NewBatch) error {
	var old []*capri.NewBatch
	for _, b := range batches {
		if b.DataEnd < tx.Now.Add(-archivedAfter) {
			old = append(old, b)
		}
	}
	if len(old) == 0 {
		return nil
	}
	found := runs{}
	for _, part := range chunks(old, tx.s.d.ChunkRows) {
		if err := found.read(tx.ctx, tx.tx, archiveTable, part, tx.s.d.ForShare); err != nil {
			return err
		}
	}
	for _, b := range old {
		if found.of(b) != 0 {
			return errArchived
		}
	}
	return nil
}

// takeFromArchived is the first half of NewRuns for runs that are archived: they hand over latest. Those that are not
// there, or do not count any more, are missing from what it returns.
func (tx *Tx) takeFromArchived(ids []capri.BatchID, why string) (olds []locked, err error) {
	for _, part := range chunks(ids, tx.s.d.ChunkRows) {
		rows, err := collect(tx.ctx, tx.tx, sq.Select("id", "task_id", "batch_no", "kinds").From(archiveTable).Where(idIn("id", part)).Where("latest = 1").OrderBy("id").Suffix(tx.s.d.ForUpdate), func(r *sql.Rows, old *locked) error {
			return r.Scan(&old.ID, &old.TaskID, &old.BatchNo, &old.Kinds)
		})
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			continue
		}
		if _, err := tx.exec(sq.Update(archiveTable).Set("latest", nil).Where(idIn("id", idsOf(rows)))); err != nil {
			return nil, err
		}
		// The events go where new ones go: the archive's ids are those that its rows had.
		if err := tx.eventsFrom(archiveTable, rows, why); err != nil {
			return nil, err
		}
		olds = append(olds, rows...)
	}
	return olds, nil
}

// FillParents fills in the parents' batches of conditions that were derived and not read.
func (s *Store) FillParents(ctx context.Context, rows []ConditionRow) error {
	return s.fillParents(ctx, []string{"task_work", archiveTable}, rows)
}

// withArchived fills in the parents' batches that stand in the archive, for conditions that found none in task_work.
func (s *Store) withArchived(ctx context.Context, conditions ...[]ConditionRow) error {
	return s.fillParents(ctx, []string{archiveTable}, conditions...)
}

func (s *Store) fillParents(ctx context.Context, tables []string, conditions ...[]ConditionRow) error {
	seen := map[LatestKey]bool{}
	var tasks []capri.TaskID
	var nos []capri.BatchNo
	for _, rows := range conditions {
		for _, c := range rows {
			if c.Kind == "parent" && c.ParentBatchID == 0 {
				if k := (LatestKey{c.ParentTaskID, c.BatchNo}); !seen[k] {
					seen[k] = true
					tasks, nos = append(tasks, k.Task), append(nos, k.No)
				}
			}
		}
	}
	if len(seen) == 0 {
		return nil
	}
	found := map[LatestKey]capri.Batch{}
	for _, table := range tables {
		if err := s.latestOf(ctx, table, distinct(tasks), distinct(nos), found); err != nil {
			return err
		}
	}
	for _, rows := range conditions {
		for i := range rows {
			c := &rows[i]
			if b, ok := found[LatestKey{c.ParentTaskID, c.BatchNo}]; ok && c.Kind == "parent" && c.ParentBatchID == 0 {
				c.ParentBatchID, c.ParentState, c.ParentFinish = b.ID, b.State, b.FinishState
			}
		}
	}
	return nil
}

func distinct[T comparable](in []T) []T {
	seen := make(map[T]bool, len(in))
	out := in[:0:0]
	for _, v := range in {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

// reachesBack tells whether a list may need rows of the archive: it was asked for, or the range begins before the newest
// that is there. A list without a range is of what is new.
func (s *Store) reachesBack(ctx context.Context, f BatchFilter) (bool, error) {
	if len(f.States) > 0 && len(f.FinishStates) == 0 && !containsState(f.States, capri.Finished) || f.Late {
		return false, nil // what is archived has finished
	}
	if f.Archived {
		return true, nil
	}
	if f.From == 0 && f.To == 0 {
		return false, nil
	}
	var newest sql.NullInt64
	if _, err := one(ctx, s.read, sq.Select("MAX(schedule_time)").From(archiveTable), &newest); err != nil {
		return false, err
	}
	// A batch is scheduled when its data's interval has ended, so its beginning is before that, too.
	return newest.Valid && f.From <= capri.Instant(newest.Int64), nil
}

func containsState(states []capri.State, s capri.State) bool {
	for _, x := range states {
		if x == s {
			return true
		}
	}
	return false
}
