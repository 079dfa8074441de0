package store

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	sq "github.com/Masterminds/squirrel"
	jsonv2 "github.com/go-json-experiment/json"

	"capri"
)

// A task is one row of task (the newest version, with the columns that queries need beside the definition) and one
// row of task_history for each version there ever was. A version never changes once written, so batches refer to
// (id, version) instead of copying what they run.

// taskColumns are what scanTask reads, in its order.
var taskColumns = []string{"t.id", "t.version", "t.definition", "t.name", "t.task_group", "t.owner", "t.output_period", "t.enabled",
	"t.expected_minutes", "t.app", "t.submitter", "t.created_at", "t.updated_at", "t.deleted_at"}

// versionColumns are the same of one version. A deletion is a version, too.
var versionColumns = []string{"h.task_id", "h.version", "h.definition", "t.name", "t.task_group", "t.owner", "h.output_period", "h.enabled", "t.expected_minutes", "t.app", "t.submitter", "t.created_at", "h.changed_at",
	"CASE WHEN h.deleted = 1 THEN h.changed_at END"}

func scanTask(r *sql.Rows) (*capri.Task, error) {
	var t capri.Task
	var definition, name, group, owner sql.RawBytes // looked at before the next row, so they need not be copied
	var period capri.Period
	var enabled bool
	err := r.Scan(&t.ID, &t.Version, &definition, &name, &group, &owner, &period, &enabled, &t.ExpectedMinutes, &t.App, &t.Submitter, &t.CreatedAt, &t.UpdatedAt, instant{&t.DeletedAt})
	if err != nil {
		return nil, err
	}
	if t.Spec, err = decodeSpec(definition, name, period); err != nil {
		t.Broken = err.Error()
		if _, err := capri.ParsePeriod(period.String()); err != nil {
			period = 0 // nobody could read a list with its name in it
		}
		t.Spec = capri.Spec{Name: string(name), Group: string(group), Owner: string(owner), Period: period, Enabled: enabled}
	}
	return &t, nil
}

// decodeSpec reads a definition. Somebody may have written it by hand, so it is held against what its row says: one that
// says something else would make batches of another task or another period. A field that is not known is left out, since
// a newer Capri may have written it during an upgrade.
func decodeSpec(definition, name []byte, period capri.Period) (spec capri.Spec, err error) {
	// The library that is to be encoding/json/v2: reading definitions is half of what a mark costs us, and it takes 4 µs
	// for one where encoding/json takes 10.
	err = jsonv2.Unmarshal(definition, &spec)
	switch {
	case err != nil:
		err = fmt.Errorf("the stored definition cannot be read: %w (apply the task's file again)", err)
	case spec.Name != string(name):
		err = fmt.Errorf("the stored definition says the name %q, its row says %q (apply the task's file again)", spec.Name, name)
	case spec.Period != period:
		err = fmt.Errorf("the stored definition says the period %s, its row says %s (apply the task's file again)", spec.Period, period)
	}
	return spec, err
}

// TaskFilter selects tasks. Zero fields select all that live.
type TaskFilter struct {
	Names       []string
	Group       string
	Owner       string
	Period      capri.Period
	Enabled     *bool
	WithDeleted bool
	Seen        *Seen  // only what somebody may see; nil: all
	After       string // names after this one, for the next page
	Limit       int    // 0: all
}

// Tasks lists tasks by name, in byte order.
func (s *Store) Tasks(ctx context.Context, f TaskFilter) ([]*capri.Task, error) {
	all, err := tasks(ctx, s.read, s.d.ChunkRows, f)
	return all, s.fault("read tasks", err)
}

// Tasks is the same inside a transaction: what stands under LockDefinitions, without a second connection.
func (tx *Tx) Tasks(f TaskFilter) ([]*capri.Task, error) {
	return tasks(tx.ctx, tx.tx, tx.s.d.ChunkRows, f)
}

func tasks(ctx context.Context, from querier, chunk int, f TaskFilter) ([]*capri.Task, error) {
	q := f.Seen.narrow(sq.Select(taskColumns...).From("task t").OrderBy("t.name"))
	if f.Group != "" {
		q = q.Where(sq.Eq{"t.task_group": f.Group})
	}
	if f.Owner != "" {
		q = q.Where(sq.Eq{"t.owner": f.Owner})
	}
	if f.Period != 0 {
		q = q.Where(sq.Eq{"t.output_period": int(f.Period)})
	}
	if f.Enabled != nil {
		q = q.Where(sq.Eq{"t.enabled": bit(*f.Enabled)})
	}
	if !f.WithDeleted {
		q = q.Where("t.deleted_at IS NULL")
	}
	if f.After != "" {
		q = q.Where(sq.Gt{"t.name": f.After})
	}
	parts := []sq.SelectBuilder{q}
	if f.Names != nil {
		// Sorted chunks one after the other come in the order of one big query: both databases compare bytes.
		parts = nil
		for _, names := range chunks(slices.Compact(slices.Sorted(slices.Values(f.Names))), chunk) {
			parts = append(parts, q.Where(sq.Eq{"t.name": names}))
		}
	}
	var all []*capri.Task
	for _, part := range parts {
		if f.Limit > 0 {
			if len(all) >= f.Limit {
				break
			}
			part = part.Limit(uint64(f.Limit - len(all)))
		}
		err := query(ctx, from, part, func(r *sql.Rows) error {
			t, err := scanTask(r)
			all = append(all, t)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// TaskByName gives the newest version; a deleted task is not found.
func (s *Store) TaskByName(ctx context.Context, name string) (*capri.Task, error) {
	found, err := s.Tasks(ctx, TaskFilter{Names: []string{name}})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, capri.NotFound("there is no task %q", name)
	}
	return found[0], nil
}

// VersionKey names one version of one task.
type VersionKey struct {
	ID      capri.TaskID
	Version int
}

// TaskVersion gives a task as it was in that version.
func (s *Store) TaskVersion(ctx context.Context, id capri.TaskID, version int) (*capri.Task, error) {
	key := VersionKey{id, version}
	found, err := s.TaskVersions(ctx, []VersionKey{key})
	if err != nil {
		return nil, err
	}
	if found[key] == nil {
		return nil, capri.NotFound("task %d has no version %d", id, version)
	}
	return found[key], nil
}

// TaskVersions gives many versions by few queries; those that do not exist are missing from the answer.
func (s *Store) TaskVersions(ctx context.Context, keys []VersionKey) (map[VersionKey]*capri.Task, error) {
	found, err := taskVersions(ctx, s.read, s.d.ChunkRows, keys)
	return found, s.fault("read versions of tasks", err)
}

func taskVersions(ctx context.Context, from querier, chunk int, keys []VersionKey) (map[VersionKey]*capri.Task, error) {
	// Sorted by version, a chunk is few conditions "version = v AND task_id IN (…)", each a walk on the primary key.
	// Row values, (task_id, version) IN ((1, 2), …), are not the same text on both databases.
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b VersionKey) int {
		return cmp.Or(a.Version-b.Version, cmp.Compare(a.ID, b.ID))
	})
	found := make(map[VersionKey]*capri.Task, len(keys))
	for _, part := range chunks(slices.Compact(keys), chunk) {
		var versions sq.Or
		for len(part) > 0 {
			var ids []capri.TaskID
			v := part[0].Version
			for len(part) > 0 && part[0].Version == v {
				ids, part = append(ids, part[0].ID), part[1:]
			}
			versions = append(versions, sq.And{sq.Eq{"h.version": v}, idIn("h.task_id", ids)})
		}
		q := sq.Select(versionColumns...).From("task_history h").Join("task t ON t.id = h.task_id").Where(versions)
		err := query(ctx, from, q, func(r *sql.Rows) error {
			t, err := scanTask(r)
			if err == nil {
				found[VersionKey{t.ID, t.Version}] = t
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// TasksByID gives the newest versions of tasks, deleted ones too; those that do not exist are missing from the answer.
func (s *Store) TasksByID(ctx context.Context, ids []capri.TaskID) (map[capri.TaskID]*capri.Task, error) {
	found := make(map[capri.TaskID]*capri.Task, len(ids))
	for _, part := range chunks(ids, s.d.ChunkRows) {
		err := query(ctx, s.read, sq.Select(taskColumns...).From("task t").Where(idIn("t.id", part)), func(r *sql.Rows) error {
			t, err := scanTask(r)
			if err == nil {
				found[t.ID] = t
			}
			return err
		})
		if err != nil {
			return nil, s.fault("read tasks", err)
		}
	}
	return found, nil
}

// TaskChange is one version in a task's history.
type TaskChange struct {
	Version int
	At      capri.Instant
	By      string
	Enabled bool
	Deleted bool
	Spec    capri.Spec
	Broken  string // why the definition cannot be read; Spec is then empty
}

// TaskHistory lists a task's versions, the newest first: at most limit of those before a version; 0: all.
func (s *Store) TaskHistory(ctx context.Context, id capri.TaskID, before, limit int) ([]TaskChange, error) {
	var all []TaskChange
	q := sq.Select("version", "changed_at", "changed_by", "enabled", "deleted", "definition").From("task_history").
		Where(sq.Eq{"task_id": int64(id)}).OrderBy("version DESC")
	if before > 0 {
		q = q.Where(sq.Lt{"version": before})
	}
	if limit > 0 {
		q = q.Limit(uint64(limit))
	}
	err := query(ctx, s.read, q, func(r *sql.Rows) error {
		var c TaskChange
		var definition sql.RawBytes
		if err := r.Scan(&c.Version, &c.At, &c.By, &c.Enabled, &c.Deleted, &definition); err != nil {
			return err
		}
		if err := jsonv2.Unmarshal(definition, &c.Spec); err != nil {
			c.Spec, c.Broken = capri.Spec{}, "the stored definition cannot be read: "+err.Error()
		}
		all = append(all, c)
		return nil
	})
	return all, s.fault("read a task's history", err)
}

// TaskNames gives the names of tasks, of deleted ones too: their batches are still there.
func (s *Store) TaskNames(ctx context.Context, ids []capri.TaskID) (map[capri.TaskID]string, error) {
	names := make(map[capri.TaskID]string, len(ids))
	for _, part := range chunks(ids, s.d.ChunkRows) {
		some, err := pairs[capri.TaskID, string](ctx, s.read, sq.Select("id", "name").From("task").Where(idIn("id", part)))
		if err != nil {
			return nil, s.fault("read names of tasks", err)
		}
		maps.Copy(names, some)
	}
	return names, nil
}

// ParentRef is what deriving conditions needs to know of a parent.
type ParentRef struct {
	ID        capri.TaskID
	Name      string
	Period    capri.Period
	Cron      string
	FirstMark capri.Instant // intervals with earlier marks are not waited for
}

// ParentRefs gives a light row of each task that lives.
func (s *Store) ParentRefs(ctx context.Context) (map[capri.TaskID]ParentRef, error) {
	refs := map[capri.TaskID]ParentRef{}
	err := parentRefs(ctx, s.read, refs, nil)
	return refs, s.fault("read tasks as parents", err)
}

// ParentRefsOf is ParentRefs of some tasks; those that do not live are missing from the answer.
func (s *Store) ParentRefsOf(ctx context.Context, ids []capri.TaskID) (map[capri.TaskID]ParentRef, error) {
	refs := make(map[capri.TaskID]ParentRef, len(ids))
	for _, part := range chunks(ids, s.d.ChunkRows) {
		if err := parentRefs(ctx, s.read, refs, idIn("id", part)); err != nil {
			return nil, s.fault("read tasks as parents", err)
		}
	}
	return refs, nil
}

// ParentRefs is the same inside a transaction.
func (tx *Tx) ParentRefs() (map[capri.TaskID]ParentRef, error) {
	refs := map[capri.TaskID]ParentRef{}
	return refs, parentRefs(tx.ctx, tx.tx, refs, nil)
}

func parentRefs(ctx context.Context, from querier, into map[capri.TaskID]ParentRef, which sq.Sqlizer) error {
	q := sq.Select("id", "name", "output_period", "cron_expression", "first_mark").From("task").Where("deleted_at IS NULL")
	if which != nil {
		q = q.Where(which)
	}
	return query(ctx, from, q, func(r *sql.Rows) error {
		var p ParentRef
		err := r.Scan(&p.ID, &p.Name, &p.Period, &p.Cron, &p.FirstMark)
		into[p.ID] = p
		return err
	})
}

// Children lists the tasks that live and whose newest versions name parent, by id.
func (s *Store) Children(ctx context.Context, parent capri.TaskID) ([]capri.TaskID, error) {
	q := sq.Select("task_id").From("task_parent").Where(sq.Eq{"parent_task_id": int64(parent)}).OrderBy("task_id")
	ids, err := column[capri.TaskID](ctx, s.read, q)
	return ids, s.fault("read a task's children", err)
}

// ReserveTaskIDs gives the first of n fresh task ids, before the transaction that uses them.
func (s *Store) ReserveTaskIDs(ctx context.Context, n int) (capri.TaskID, error) {
	id, err := s.reserve(ctx, "task", n)
	return capri.TaskID(id), err
}

// LockDefinitions lets one transaction at a time change definitions, so that two edits cannot close a cycle
// together. Take it before reading what the edit is checked against, and read by tx.Tasks and tx.ParentRefs: a
// transaction that waits for a second connection of a pool whose others wait for this lock would wait for itself.
func (tx *Tx) LockDefinitions() error {
	n, err := tx.execText("UPDATE id_block SET next_id = next_id + 1 WHERE name = 'definitions'")
	if err == nil && n == 0 {
		err = fmt.Errorf("table id_block has no row %q: run capri migrate up", "definitions")
	}
	return err
}

// TaskSave is a task to be stored. Valid.From and Valid.To are business time, so the caller, who knows the zone,
// hands in what they are as instants; 0 is open.
type TaskSave struct {
	*capri.Task
	ValidFrom, ValidTo capri.Instant
}

// SaveTask stores a task's next version: see SaveTasks.
func (tx *Tx) SaveTask(t *capri.Task, validFrom, validTo capri.Instant) error {
	return tx.SaveTasks([]TaskSave{{t, validFrom, validTo}})
}

// SaveTasks stores the next version of each task, and sets its ID, Version and times. A name that exists, deleted or
// not, keeps its id and goes on with its versions; the ID handed in is then 0 or that one. A new name's ID has been
// reserved by ReserveTaskIDs. Parents carry their ids.
func (tx *Tx) SaveTasks(saves []TaskSave) error {
	if err := tx.LockDefinitions(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, t := range saves {
		if seen[t.Name] {
			return capri.Invalid("name", t.Name, "each task once")
		}
		seen[t.Name] = true
	}
	// A row may be large, and a statement has to stay below MySQL's max_allowed_packet (16 MB).
	for _, part := range chunks(saves, 100) {
		if err := tx.savePart(part); err != nil {
			return err
		}
	}
	return nil
}

// storedTask is what an edit has to know of the row it replaces.
type storedTask struct {
	id                              capri.TaskID
	version                         int
	validFrom, firstMark            capri.Instant
	createdAt, updatedAt, deletedAt capri.Instant
	name                            string
}

func (tx *Tx) storedTasks(where sq.Sqlizer) (map[string]storedTask, error) {
	stored := map[string]storedTask{}
	q := sq.Select("id", "name", "version", "valid_from", "first_mark", "created_at", "updated_at", "deleted_at").From("task").Where(where).Suffix(tx.s.d.ForUpdate)
	err := tx.query(q, func(r *sql.Rows) error {
		var t storedTask
		err := r.Scan(&t.id, &t.name, &t.version, &t.validFrom, &t.firstMark, &t.createdAt, &t.updatedAt, instant{&t.deletedAt})
		stored[t.name] = t
		return err
	})
	return stored, err
}

func (tx *Tx) savePart(part []TaskSave) error {
	names := make([]string, len(part))
	definitions := make([]string, len(part))
	for i, t := range part {
		if err := checkTask(t.Task); err != nil {
			return err
		}
		var err error
		if definitions[i], err = EncodeSpec(&t.Spec); err != nil {
			return err
		}
		names[i] = t.Name
	}
	stored, err := tx.storedTasks(sq.Eq{"name": names})
	if err != nil {
		return err
	}
	var added [][]any
	for i, t := range part {
		old, known := stored[t.Name]
		switch {
		case known && t.ID != 0 && t.ID != old.id:
			// Others may name this task as parent by the id handed in, so it cannot be replaced in silence.
			return capri.Conflict("task %s has the id %d, not %d: a name keeps its id, also while it is deleted; read it again", t.Name, old.id, t.ID)
		case !known && t.ID == 0:
			return capri.Conflict("task %s is not there (any more), and no id was reserved for it", t.Name)
		case !known:
			old = storedTask{id: t.ID, createdAt: tx.Now, firstMark: cmp.Or(t.ValidFrom, tx.Now)}
		default:
			if old.firstMark, err = tx.firstMark(old, t.ValidFrom); err != nil {
				return err
			}
		}
		t.ID, t.Version, t.CreatedAt, t.DeletedAt = old.id, old.version+1, old.createdAt, 0
		t.UpdatedAt = max(tx.Now, old.updatedAt) // who waited for the lock is older than what he replaces; history goes forward
		row := savedRow(t, definitions[i], old.firstMark)
		if !known {
			added = append(added, row)
			continue
		}
		u := sq.Update("task").Where(sq.Eq{"id": int64(t.ID)})
		for c, column := range savedColumns {
			u = u.Set(column, row[c])
		}
		if _, err := tx.exec(u); err != nil {
			return err
		}
	}
	err = tx.bulk("task", savedColumns, len(added), func(i int, args []any) []any { return append(args, added[i]...) })
	if err != nil {
		if tx.s.d.IsDuplicate(err) {
			return capri.Conflict("one of the tasks %s has the id of another task: an id goes with one name", cut(strings.Join(names, ", "), 200))
		}
		return err
	}
	if err := tx.remember(part, definitions); err != nil {
		return err
	}
	return tx.saveParents(part)
}

var savedColumns = []string{"id", "name", "version", "task_group", "owner", "output_period", "cron_expression", "task_begin_time", "check_type",
	"priority", "enabled", "valid_from", "valid_to", "first_mark", "definition", "app", "submitter", "created_at", "updated_at", "deleted_at"}

func savedRow(t TaskSave, definition string, firstMark capri.Instant) []any {
	return []any{int64(t.ID), t.Name, t.Version, t.Group, t.Owner, int(t.Period), t.Cron, t.Limits.BeginMinutes, string(t.Check),
		t.Priority, bit(t.Enabled), int64(t.ValidFrom), int64(t.ValidTo), int64(firstMark), definition, t.App, t.Submitter,
		int64(t.CreatedAt), int64(t.UpdatedAt), nil}
}

// firstMark is the mark before which nobody waits for the task's batches, after an edit. An earlier one that is
// stored stays, because batches may exist since then (a cold start, an earlier valid.from). Only an edit that moves
// valid.from moves it later, as far as the earliest batch that exists: waiting for intervals that a mistyped year
// once promised would never end. A batch stands for its interval, whose end is at most minutes before its mark and after
// the mark before it; its schedule_time may be much later, for an execution is scheduled when it is asked for.
func (tx *Tx) firstMark(old storedTask, validFrom capri.Instant) (capri.Instant, error) {
	first := cmp.Or(validFrom, old.createdAt)
	if first <= old.firstMark || validFrom == old.validFrom {
		return min(first, old.firstMark), nil
	}
	for _, table := range []string{"task_work", archiveTable} {
		var earliest capri.Instant
		if _, err := one(tx.ctx, tx.tx, sq.Select("MIN(data_end)").From(table).Where(sq.Eq{"task_id": int64(old.id)}), instant{&earliest}); err != nil {
			return 0, err
		}
		if earliest != 0 {
			first = min(first, earliest)
		}
	}
	return first, nil
}

// remember writes the versions just made into the history.
func (tx *Tx) remember(part []TaskSave, definitions []string) error {
	columns := []string{"task_id", "version", "output_period", "enabled", "deleted", "valid_from", "valid_to", "definition", "changed_at", "changed_by"}
	who := cut(tx.who, 190)
	return tx.bulk("task_history", columns, len(part), func(i int, args []any) []any {
		t := part[i]
		return append(args, int64(t.ID), t.Version, int(t.Period), bit(t.Enabled), bit(t.DeletedAt != 0), int64(t.ValidFrom), int64(t.ValidTo),
			definitions[i], int64(t.UpdatedAt), who)
	})
}

// saveParents replaces the tasks' edges.
func (tx *Tx) saveParents(part []TaskSave) error {
	ids := make([]capri.TaskID, len(part))
	var edges [][2]capri.TaskID
	for i, t := range part {
		ids[i] = t.ID
		for _, p := range t.Parents {
			if e := [2]capri.TaskID{t.ID, p.TaskID}; !slices.Contains(edges, e) { // a parent may be named twice, with two windows
				edges = append(edges, e)
			}
		}
	}
	if _, err := tx.exec(sq.Delete("task_parent").Where(idIn("task_id", ids))); err != nil {
		return err
	}
	return tx.bulk("task_parent", []string{"task_id", "parent_task_id"}, len(edges), func(i int, args []any) []any {
		return append(args, int64(edges[i][0]), int64(edges[i][1]))
	})
}

// DeleteTask marks a task as deleted, which is a version of its own. Its batches, history and name stay.
func (tx *Tx) DeleteTask(id capri.TaskID) error {
	if err := tx.LockDefinitions(); err != nil {
		return err
	}
	stored, err := tx.storedTasks(sq.Eq{"id": int64(id)})
	if err != nil {
		return err
	}
	var old storedTask
	for _, old = range stored {
	}
	if old.id == 0 || old.deletedAt != 0 {
		return capri.NotFound("there is no task %d", id)
	}
	at := max(tx.Now, old.updatedAt)
	_, err = tx.exec(sq.Update("task").Set("version", old.version+1).Set("updated_at", int64(at)).Set("deleted_at", int64(at)).Where(sq.Eq{"id": int64(id)}))
	if err != nil {
		return err
	}
	_, err = tx.execText("INSERT INTO task_history (task_id, version, output_period, enabled, deleted, valid_from, valid_to, definition, changed_at, changed_by)"+
		" SELECT task_id, ?, output_period, enabled, 1, valid_from, valid_to, definition, ?, ? FROM task_history WHERE task_id = ? AND version = ?",
		old.version+1, int64(at), cut(tx.who, 190), int64(id), old.version)
	if err != nil {
		return err
	}
	_, err = tx.exec(sq.Delete("task_parent").Where(sq.Eq{"task_id": int64(id)}))
	return err
}

// LowerFirstMark notes that tasks have a batch at an earlier mark than their children wait for until now: a cold
// start made it, so from here on they wait for it.
func (tx *Tx) LowerFirstMark(mark capri.Instant, ids ...capri.TaskID) error {
	for _, part := range chunks(ids, tx.s.d.ChunkRows) {
		if _, err := tx.exec(sq.Update("task").Set("first_mark", int64(mark)).Where(idIn("id", part)).Where(sq.Gt{"first_mark": int64(mark)})); err != nil {
			return err
		}
	}
	return nil
}

// TakingPart lists the tasks that take part in a period's mark, by id from after on, at most limit (0: all): enabled and
// valid at the mark as their history shows, of this period then and now, and enabled still. What is returned is the
// newest version. A task is valid from valid_from on and until just before valid_to.
func (s *Store) TakingPart(ctx context.Context, p capri.Period, mark capri.Instant, after capri.TaskID, limit int) ([]*capri.Task, error) {
	// By the key: MariaDB takes the index of period and enabled else, and then walks it from its first entry for every page,
	// which made a million tasks a third slower than a hundred thousand.
	q := takingPart(sq.Select(taskColumns...), p, mark).From("task t" + s.d.ByKey).Where(sq.Gt{"t.id": int64(after)}).OrderBy("t.id")
	var all []*capri.Task
	if limit > 0 {
		q = q.Limit(uint64(limit))
		all = make([]*capri.Task, 0, min(limit, 10_000))
	}
	err := query(ctx, s.read, q, func(r *sql.Rows) error {
		t, err := scanTask(r)
		all = append(all, t)
		return err
	})
	if err != nil {
		return nil, s.fault("read the tasks of a mark", err)
	}
	return all, nil
}

// MissingBatches lists tasks that took part in a complete mark and have neither a batch of it nor a failed generation: a
// fault of ours, or somebody deleted a row. It gives the first so many by id. Who was disabled when the mark was made, and
// is enabled again, is not missed.
func (s *Store) MissingBatches(ctx context.Context, p capri.Period, mark capri.Instant, no capri.BatchNo, limit int) ([]capri.TaskID, error) {
	ids, err := column[capri.TaskID](ctx, s.read, missingBatches(p, mark, no, limit))
	return ids, s.fault("look for missing batches", err)
}

func missingBatches(p capri.Period, mark capri.Instant, no capri.BatchNo, limit int) sq.SelectBuilder {
	return takingPart(sq.Select("t.id"), p, mark).
		Join("generate_mark m ON m.period = ? AND m.mark = ? AND m.complete = 1", int(p), int64(mark)).
		Where(`(t.updated_at <= m.completed_at OR EXISTS (SELECT 1 FROM task_history h
			WHERE h.task_id = t.id AND h.version = (SELECT MAX(v.version) FROM task_history v WHERE v.task_id = t.id AND v.changed_at <= m.completed_at)
			AND h.enabled = 1 AND h.deleted = 0 AND h.output_period = m.period))`).
		Where("NOT EXISTS (SELECT 1 FROM task_work w WHERE w.task_id = t.id AND w.batch_no = ?)", string(no)).
		Where("NOT EXISTS (SELECT 1 FROM "+archiveTable+" a WHERE a.task_id = t.id AND a.batch_no = ?)", string(no)).
		Where("NOT EXISTS (SELECT 1 FROM generate_failure f WHERE f.period = m.period AND f.mark = m.mark AND f.task_id = t.id)").
		OrderBy("t.id").Limit(uint64(limit))
}

// takingPart asks the history only about tasks edited after the mark; for all others, which is nearly all, the
// newest version is what was in force.
func takingPart(q sq.SelectBuilder, p capri.Period, mark capri.Instant) sq.SelectBuilder {
	m := int64(mark)
	return q.From("task t").
		Where(sq.Eq{"t.output_period": int(p), "t.enabled": 1}).
		Where("t.deleted_at IS NULL").
		Where(`(t.updated_at <= ? AND t.valid_from <= ? AND (t.valid_to = 0 OR t.valid_to > ?)
			OR t.updated_at > ? AND EXISTS (SELECT 1 FROM task_history h
				WHERE h.task_id = t.id AND h.version = (SELECT MAX(v.version) FROM task_history v WHERE v.task_id = t.id AND v.changed_at <= ?)
				AND h.enabled = 1 AND h.deleted = 0 AND h.output_period = ? AND h.valid_from <= ? AND (h.valid_to = 0 OR h.valid_to > ?)))`,
			m, m, m, m, m, int(p), m, m)
}

// EncodeSpec writes a definition as it is stored: JSON without the fields that are zero, since that is what an absent field
// is read as. At a mark every definition is read, and decoding them is half of what generation costs Capri itself.
func EncodeSpec(s *capri.Spec) (string, error) {
	whole, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("definition of task %s: %w", s.Name, err)
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(whole))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		return "", fmt.Errorf("definition of task %s: %w", s.Name, err)
	}
	withoutZeros(fields)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(fields); err != nil {
		return "", fmt.Errorf("definition of task %s: %w", s.Name, err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// withoutZeros takes out what decoding would set to zero anyway. What people named themselves stays: a variable may be
// empty on purpose.
func withoutZeros(fields map[string]any) {
	for name, v := range fields {
		switch v := v.(type) {
		case map[string]any:
			if name != "env" && name != "params" {
				withoutZeros(v)
			}
			if len(v) == 0 {
				delete(fields, name)
			}
		case []any:
			for _, item := range v {
				if m, ok := item.(map[string]any); ok {
					withoutZeros(m)
				}
			}
		case bool:
			if !v {
				delete(fields, name)
			}
		case json.Number:
			if v == "0" {
				delete(fields, name)
			}
		case string:
			if v == "" {
				delete(fields, name)
			}
		}
	}
}

// checkTask refuses what would not fit its column; SQLite would take it, and MySQL refuse the move.
func checkTask(t *capri.Task) error {
	if t.Broken != "" { // it is not whole, and must not become the newest version
		return capri.Conflict("task %s: %s", t.Name, t.Broken)
	}
	for _, p := range t.Parents {
		if p.TaskID == 0 {
			return fmt.Errorf("task %s: parent %s has no id yet", t.Name, p.Task)
		}
	}
	return firstError(named("name", t.Name, 128), fits("group", t.Group, 128), fits("owner", t.Owner, 128), fits("cron", t.Cron, 255),
		fits("check", string(t.Check), 16), fits("app", t.App, 128), fits("submitter", t.Submitter, 190))
}

// named checks what identifies a row: not empty, of its column's length, no space at its ends (MySQL ignores those at
// the end when it compares, SQLite does not).
func named(field, value string, most int) error {
	if value == "" || strings.TrimSpace(value) != value {
		return capri.Invalid(field, value, "a name without spaces at its ends")
	}
	return fits(field, value, most)
}

// fits holds text to its column's length in characters. MySQL refuses longer text and broken UTF-8, SQLite takes
// both, and nothing may work on one of them alone.
func fits(field, value string, most int) error {
	if utf8.RuneCountInString(value) > most {
		return capri.Invalid(field, value, fmt.Sprintf("at most %d characters", most))
	}
	if !utf8.ValidString(value) {
		return capri.Invalid(field, strings.ToValidUTF8(value, "?"), "text in UTF-8")
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
