package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sq "github.com/Masterminds/squirrel"
	"golang.org/x/sync/errgroup"

	"capri"
)

// Which conditions a batch has (task_work.kinds): spares recount and finish the look-ups of what is not there.
const (
	kindPaths      = 1
	kindThirdParty = 2
	kindParents    = 4 // each dependency is one row, and that row is needed
	kindGrouped    = 8 // some dependency has several rows, or any one of them is enough
	kindOutputs    = 16
	kindNotifies   = 32 // no condition: its owner wants to hear of its end
	kindHeldBack   = 64 // a campaign has not released it: one unmet condition, so nothing that starts batches need know of it

	kindConditions = kindPaths | kindThirdParty | kindParents | kindGrouped // none of them counts once somebody said "run now"
)

const (
	typeInput  = 1
	typeOutput = 2

	changedParent     = 1
	changedThirdParty = 2
	changedBatches    = 3
)

func kindsOf(c *capri.Conditions) int {
	k := 0
	if len(c.Inputs) > 0 {
		k |= kindPaths
	}
	if len(c.Outputs) > 0 {
		k |= kindOutputs
	}
	if len(c.ThirdParty) > 0 {
		k |= kindThirdParty
	}
	for i, p := range c.Parents {
		if p.Any || (i > 0 && c.Parents[i-1].Group == p.Group) {
			return k&^kindParents | kindGrouped
		}
		k |= kindParents
	}
	return k
}

// pathHash stands for path and flag in the index: a path can be longer than a key. 64 bits of SHA-256, so that nobody
// can craft two paths that meet each other's conditions.
func pathHash(p capri.PathCondition) int64 {
	var buf [512]byte
	sum := sha256.Sum256(append(append(append(buf[:0], p.Path...), 0), p.Flag...))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// insert writes batches with their conditions and the note that they are to be looked at.
func (tx *Tx) insert(batches []*capri.NewBatch) error {
	if len(batches) == 0 {
		return nil
	}
	err := tx.bulk("task_work", []string{"id", "task_id", "task_version", "period", "batch_no", "run_no", "latest", "origin", "schedule_time", "data_start", "data_end",
		"create_time", "state", "finish_state", "unmet", "kinds", "finish_time", "not_before", "skip_at", "priority", "slots", "memory_mb", "concurrency", "pool", "strategy", "nodes",
		"account", "quality_state", "held", "message", "params"}, len(batches), func(i int, a []any) []any {
		b := batches[i]
		b.Unmet = b.Groups() + bit(b.HeldBack)
		b.CreateTime = tx.Now
		var nodes any
		if len(b.Nodes) > 0 {
			nodes = strings.Join(b.Nodes, "\n")
		}
		if b.State == capri.Finished { // skipped at birth
			b.FinishTime = tx.Now
		}
		return append(a, int64(b.ID), int64(b.TaskID), b.TaskVersion, int(b.Period), string(b.BatchNo), b.RunNo, 1, int(b.Origin), int64(b.ScheduleTime), int64(b.DataStart), int64(b.DataEnd),
			int64(b.CreateTime), int(b.State), int(b.FinishState), b.Unmet, kindsOf(&b.Conditions)|bit(b.Notifies)*kindNotifies|bit(b.HeldBack)*kindHeldBack, nullable(b.FinishTime), int64(b.NotBefore), nullable(b.SkipAt), b.Priority, b.Slots, b.MemoryMB, b.Concurrency, b.Pool, b.Strategy, nodes,
			b.Account, b.QualityState, bit(b.Held), cut(b.Message, 1000), paramsText(b.Params))
	})
	if err != nil {
		return err
	}
	if err := tx.insertConditions(batches); err != nil {
		return err
	}
	if err := tx.insertDeadlines(batches); err != nil {
		return err
	}
	if err := tx.noticeBorn(batches); err != nil {
		return err
	}
	_, err = tx.exec(sq.Insert("dependency_change").Columns("kind", "from_id", "to_id").Values(changedBatches, int64(batches[0].ID), int64(batches[len(batches)-1].ID)))
	return err
}

// paramsText is NULL for nearly every batch.
func paramsText(params map[string]string) any {
	if len(params) == 0 {
		return nil
	}
	text, _ := json.Marshal(params) //nolint:errchkjson // strings: cannot fail
	return string(text)
}

func (tx *Tx) insertConditions(batches []*capri.NewBatch) error {
	type path struct {
		id    capri.BatchID
		typ   int
		seq   int
		where capri.PathCondition
	}
	var paths []path
	type third struct {
		id  capri.BatchID
		seq int
		c   capri.ThirdPartyCondition
	}
	var thirds []third
	type parent struct {
		id  capri.BatchID
		seq int
		c   capri.ParentCondition
	}
	var parents []parent
	for _, b := range batches {
		for i, p := range b.Inputs {
			paths = append(paths, path{b.ID, typeInput, i, p})
		}
		for i, p := range b.Outputs {
			paths = append(paths, path{b.ID, typeOutput, i, p})
		}
		for i, c := range b.ThirdParty {
			thirds = append(thirds, third{b.ID, i, c})
		}
		for i, c := range b.Parents {
			parents = append(parents, parent{b.ID, i, c})
		}
	}
	err := tx.bulk("task_data", []string{"batch_id", "type", "seq", "state", "path_hash", "path", "flag"}, len(paths), func(i int, a []any) []any {
		p := &paths[i]
		return append(a, int64(p.id), p.typ, p.seq, 0, pathHash(p.where), p.where.Path, p.where.Flag)
	})
	if err != nil {
		return err
	}
	err = tx.bulk("tthird_data", []string{"batch_id", "seq", "state", "code", "period", "batch_no"}, len(thirds), func(i int, a []any) []any {
		c := &thirds[i]
		return append(a, int64(c.id), c.seq, 0, c.c.Code, int(c.c.Period), string(c.c.BatchNo))
	})
	if err != nil {
		return err
	}
	return tx.bulk("tparent_data", []string{"batch_id", "seq", "grp", "policy", "state", "parent_task_id", "parent_batch_no"}, len(parents), func(i int, a []any) []any {
		c := &parents[i]
		return append(a, int64(c.id), c.seq, c.c.Group, bit(c.c.Any), 0, int64(c.c.TaskID), string(c.c.BatchNo))
	})
}

// ReplaceConditions gives a batch that still waits the conditions of an edited task. ok is false when it has left
// waiting meanwhile: it then runs by the old ones.
func (tx *Tx) ReplaceConditions(id capri.BatchID, c capri.Conditions) (ok bool, err error) {
	rows, err := tx.lock([]capri.BatchID{id})
	if err != nil || len(rows) == 0 || rows[0].State != capri.Waiting {
		return false, err
	}
	for _, table := range []string{"task_data", "tthird_data", "tparent_data"} {
		if _, err := tx.exec(sq.Delete(table).Where(sq.Eq{"batch_id": int64(id)})); err != nil {
			return false, err
		}
	}
	nb := &capri.NewBatch{Batch: capri.Batch{ID: id}, Conditions: c}
	if err := tx.insertConditions([]*capri.NewBatch{nb}); err != nil {
		return false, err
	}
	kinds := kindsOf(&c)
	if rows[0].RunNow { // somebody let it start without them
		kinds &= kindOutputs
	}
	rows[0].Kinds = kinds | rows[0].Kinds&(kindNotifies|kindHeldBack)
	if _, err := tx.exec(sq.Update("task_work").Set("kinds", rows[0].Kinds).Where(sq.Eq{"id": int64(id)})); err != nil {
		return false, err
	}
	if _, err := tx.exec(sq.Insert("dependency_change").Columns("kind", "from_id", "to_id").Values(changedBatches, int64(id), int64(id))); err != nil {
		return false, err
	}
	return true, tx.recount(rows)
}

// unmetNow is the number of groups of unmet conditions, from the conditions themselves. The plus keeps SQLite from
// reading every unmet path there is for each batch.
const unmetNow = `CASE WHEN kinds & 1 = 0 THEN 0 ELSE (SELECT COUNT(*) FROM task_data d WHERE d.batch_id = task_work.id AND d.type = 1 AND +d.state = 0) END
 + CASE WHEN kinds & 2 = 0 THEN 0 ELSE (SELECT COUNT(*) FROM tthird_data d WHERE d.batch_id = task_work.id AND d.state = 0) END
 + CASE WHEN kinds & 4 = 0 THEN 0 ELSE (SELECT COUNT(*) FROM tparent_data d WHERE d.batch_id = task_work.id AND d.state = 0) END
 + CASE WHEN kinds & 8 = 0 THEN 0 ELSE (SELECT ` + unmetGroups + ` FROM tparent_data d WHERE d.batch_id = task_work.id) END
 + CASE WHEN kinds & 64 = 0 THEN 0 ELSE 1 END`

// unmetGroups counts the dependencies on parents that are not met: of policy 0 each row is needed, of policy 1 any one.
const unmetGroups = `COUNT(DISTINCT CASE WHEN policy = 0 AND state = 0 THEN grp END)
 + COUNT(DISTINCT CASE WHEN policy = 1 THEN grp END) - COUNT(DISTINCT CASE WHEN policy = 1 AND state = 1 THEN grp END)`

// recount sets unmet from the conditions, for batches that this transaction has locked before it changed those: whoever
// changes a condition holds its batch, so what is counted here cannot change before the commit. Counting by groups and
// writing each count once costs half of a subquery for each row, since most batches of a meeting end at the same count.
func (tx *Tx) recount(rows []locked) error {
	for _, part := range chunks(rows, tx.s.d.ChunkRows) {
		unmet, err := tx.countUnmet(part)
		if err != nil {
			return err
		}
		byCount := map[int][]locked{}
		for _, r := range part {
			byCount[unmet[r.ID]] = append(byCount[unmet[r.ID]], r)
		}
		if len(byCount) > 10 { // children of many parents at different stages
			revoked := slices.DeleteFunc(slices.Clone(part), func(r locked) bool { return unmet[r.ID] == 0 })
			if _, err := tx.exec(closeGate(sq.Update("task_work")).Where(tx.among("id", revoked))); err != nil {
				return err
			}
			if _, err := tx.exec(sq.Update("task_work").Set("unmet", sq.Expr(unmetNow)).Where(tx.among("id", part))); err != nil {
				return err
			}
			continue
		}
		for n, rows := range byCount {
			update := sq.Update("task_work")
			if n > 0 {
				update = closeGate(update)
			}
			if _, err := tx.exec(update.Set("unmet", n).Where(tx.among("id", rows))); err != nil {
				return err
			}
		}
	}
	return nil
}

// countUnmet is unmetNow for many batches at once; a batch that is not in the answer has none.
func (tx *Tx) countUnmet(rows []locked) (map[capri.BatchID]int, error) {
	kinds := 0
	unmet := map[capri.BatchID]int{}
	for _, r := range rows {
		if kinds |= r.Kinds; r.Kinds&kindHeldBack != 0 {
			unmet[r.ID] = 1
		}
	}
	if rows = slices.DeleteFunc(slices.Clone(rows), func(r locked) bool { return r.Kinds&kindConditions == 0 }); len(rows) == 0 {
		return unmet, nil
	}
	for _, c := range []struct {
		kinds              int
		table, where, many string
	}{
		{kindPaths, "task_data", "type = 1 AND state = 0", "COUNT(*)"},
		{kindThirdParty, "tthird_data", "state = 0", "COUNT(*)"},
		{kindParents | kindGrouped, "tparent_data", "1 = 1", unmetGroups},
	} {
		if kinds&c.kinds == 0 {
			continue
		}
		if c.kinds&kinds == kindParents { // each dependency is one row
			c.where, c.many = "state = 0", "COUNT(*)"
		}
		q := sq.Select("batch_id", c.many).From(c.table + tx.s.d.ByKey).Where(tx.among("batch_id", rows)).Where(c.where).GroupBy("batch_id").Suffix(tx.s.d.ForShare)
		err := tx.query(q, func(r *sql.Rows) error {
			var id capri.BatchID
			n := 0
			err := r.Scan(&id, &n)
			unmet[id] += n
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return unmet, nil
}

// waitAgain recounts and sends what was assigned but may no longer start back to waiting. A preparing batch
// fails its Start and is given back by its worker.
func (tx *Tx) waitAgain(rows []locked, why string) error {
	if err := tx.recount(rows); err != nil {
		return err
	}
	var assigned []capri.BatchID
	for _, r := range rows {
		if r.State == capri.Assigned {
			assigned = append(assigned, r.ID)
		}
	}
	_, err := tx.change(assigned, change{from: func(r locked) bool { return r.State == capri.Assigned && r.Unmet > 0 },
		set: sq.Eq{"state": int(capri.Waiting), "node": "", "assign_time": nil, "message": cut(why, 1000)}, why: why})
	if err != nil {
		return err
	}
	// Where any one of a group is enough, another one may have come true while this one sufficed, and nobody marked it.
	return tx.lookAgain(slices.DeleteFunc(slices.Clone(rows), func(r locked) bool { return r.Kinds&kindGrouped == 0 }))
}

// proveAgain is for batches that return to waiting from their worker. While they were there their conditions were
// left alone: a job that runs has read what it read. But the next attempt is another start. So what they rest on is
// proved once more: a parent may have a new run, a third party may have taken its word back. And what was revoked while
// they prepared may have come true again, when nobody looked at them since they did not wait.
func (tx *Tx) proveAgain(rows []locked) error {
	rows = slices.DeleteFunc(rows, func(r locked) bool { return r.Kinds&kindConditions == 0 })
	if len(rows) == 0 {
		return nil
	}
	changed, err := tx.exec(sq.Update("tparent_data").Set("state", 0).Where(sq.Eq{"state": 1}).Where(idIn("batch_id", idsOf(rows))).Where("NOT " + parentSucceeded("tparent_data")))
	if err != nil {
		return err
	}
	n, err := tx.exec(sq.Update("tthird_data").Set("state", 0).Where(sq.Eq{"state": 1}).Where(idIn("batch_id", idsOf(rows))).Where("NOT " + thirdPartyReady("tthird_data")))
	if err != nil {
		return err
	}
	changed += n
	hashes, err := tx.hashes(sq.Select("DISTINCT path_hash").From("task_data" + tx.s.d.ByKey).Where(sq.Eq{"type": typeInput, "state": 1}).Where(idIn("batch_id", idsOf(rows))))
	if err != nil {
		return err
	}
	unsure, err := tx.unsurePaths(hashes)
	if err != nil {
		return err
	}
	if len(unsure) > 0 {
		n, err := tx.exec(sq.Update("task_data").Set("state", 0).Where(sq.Eq{"type": typeInput, "+state": 1}).Where(idIn("batch_id", idsOf(rows))).Where(idIn("+path_hash", unsure)))
		if err != nil {
			return err
		}
		changed += n
	}
	if changed > 0 {
		if err := tx.recount(rows); err != nil {
			return err
		}
	} else {
		rows = slices.DeleteFunc(rows, func(r locked) bool { return r.Unmet == 0 })
	}
	return tx.lookAgain(rows)
}

// lookAgain makes the dependency service look at batches as if they were new.
func (tx *Tx) lookAgain(rows []locked) error {
	var spans []batchRange
	for _, r := range rows { // ids ascend, as lock returns them
		if last := len(spans) - 1; last >= 0 && spans[last].to+1 == r.ID {
			spans[last].to = r.ID
			continue
		}
		spans = append(spans, batchRange{r.ID, r.ID})
	}
	return tx.bulk("dependency_change", []string{"kind", "from_id", "to_id"}, len(spans), func(i int, args []any) []any {
		return append(args, changedBatches, int64(spans[i].from), int64(spans[i].to))
	})
}

// revokeRuns makes what rested on the success of runs wait again: children of their batch_nos, and batches that read a
// path that they, or the runs which take their places, produce. fresh are first runs: who reads what they will produce has
// read something older. Only batches whose job has not started; what runs already has read what it read (see proveAgain).
// The old runs' rows are locked, so nobody meets any more of them until commit; the reads lock too (lock, see newRuns),
// because an older snapshot of this transaction need not show those that were met just before.
func (tx *Tx) revokeRuns(olds []locked, nexts, fresh []*capri.NewBatch, lock string) error {
	parents := chunks(olds, manyKeys)
	children := make([][]capri.BatchID, len(parents))
	of := func(olds []locked) sq.Or { return keysIn("parent_task_id", "parent_batch_no", olds) }
	var all []capri.BatchID
	var hashes []int64
	for i, part := range parents {
		var err error
		if children[i], err = tx.ids(sq.Select("batch_id").From("tparent_data" + fmt.Sprintf(tx.s.d.ByIndex, "tparent_data_parent")).Where("state = 1").Where(of(part)).Suffix(lock)); err != nil {
			return err
		}
		all = append(all, children[i]...)
		produced := slices.DeleteFunc(slices.Clone(part), func(o locked) bool { return o.Kinds&kindOutputs == 0 })
		if len(produced) == 0 {
			continue
		}
		before, err := tx.hashes(sq.Select("path_hash").From("task_data" + tx.s.d.ByKey).Where(sq.Eq{"type": typeOutput}).Where(idIn("batch_id", idsOf(produced))))
		if err != nil {
			return err
		}
		hashes = append(hashes, before...)
	}
	for _, nb := range slices.Concat(nexts, fresh) {
		hashes = append(hashes, hashesOf(slices.Concat(nb.Outputs, nb.Former))...)
	}
	hashes = distinct(hashes)
	for _, part := range chunks(hashes, tx.s.d.ChunkRows) {
		readers, err := tx.ids(sq.Select("batch_id").From("task_data").Where(sq.Eq{"type": typeInput, "state": 1}).Where(idIn("path_hash", part)).Suffix(tx.s.d.ForShare))
		if err != nil {
			return err
		}
		all = append(all, readers...)
	}
	all, err := tx.notEnded(all)
	if err != nil {
		return err
	}
	rows, err := tx.lockThose(all, sq.Expr(sqlNotStarted))
	if err != nil {
		return err
	}
	waits := make(map[capri.BatchID]bool, len(rows))
	for _, r := range rows {
		waits[r.ID] = true
	}
	for i, part := range parents {
		mine := slices.DeleteFunc(children[i], func(id capri.BatchID) bool { return !waits[id] })
		for _, ids := range chunks(distinct(mine), tx.s.d.ChunkRows) {
			if _, err := tx.exec(sq.Update("tparent_data").Set("state", 0).Where(idIn("batch_id", ids)).Where(of(part))); err != nil {
				return err
			}
		}
	}
	for _, part := range chunks(rows, tx.s.d.ChunkRows) {
		for _, some := range chunks(hashes, tx.s.d.ChunkRows) {
			if _, err := tx.exec(sq.Update("task_data").Set("state", 0).Where(idIn("batch_id", idsOf(part))).Where(sq.Eq{"type": typeInput, "+state": 1}).Where(idIn("+path_hash", some))); err != nil {
				return err
			}
		}
	}
	why := "what it waits for runs again"
	if len(olds) == 1 && len(fresh) == 0 {
		why = fmt.Sprintf("batch_no %s of a parent runs again", olds[0].BatchNo)
	}
	return tx.waitAgain(rows, why)
}

// notEnded leaves out batches that have ended: most of what once rested on a run has, will never wait again, and need not be
// locked to know it. Those that this transaction's snapshot does not have are kept.
func (tx *Tx) notEnded(ids []capri.BatchID) ([]capri.BatchID, error) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	ended := map[capri.BatchID]bool{}
	for _, part := range chunks(ids, tx.s.d.ChunkRows) {
		some, err := tx.ids(sq.Select("id").From("task_work" + tx.s.d.ByKey).Where(idIn("id", part)).Where(sq.Eq{"state": int(capri.Finished)}))
		if err != nil {
			return nil, err
		}
		for _, id := range some {
			ended[id] = true
		}
	}
	return slices.DeleteFunc(ids, func(id capri.BatchID) bool { return ended[id] }), nil
}

func (tx *Tx) hashes(q sq.SelectBuilder) ([]int64, error) {
	return column[int64](tx.ctx, tx.tx, q)
}

func (tx *Tx) ids(q sq.SelectBuilder) ([]capri.BatchID, error) {
	return column[capri.BatchID](tx.ctx, tx.tx, q)
}

// DependencyChange is something the dependency service has to look at.
type DependencyChange struct {
	ID       int64
	kind     int
	TaskID   capri.TaskID
	BatchNo  capri.BatchNo
	code     string
	period   capri.Period
	from, to capri.BatchID
}

// DependencyChanges reads what changed and was not looked at yet, oldest first.
func (s *Store) DependencyChanges(ctx context.Context, limit int) ([]DependencyChange, error) {
	out, err := collect(ctx, s.read, sq.Select("id", "kind", "task_id", "batch_no", "code", "period", "from_id", "to_id").From("dependency_change").OrderBy("id").Limit(uint64(limit)), func(r *sql.Rows, c *DependencyChange) error {
		return r.Scan(&c.ID, &c.kind, &c.TaskID, &c.BatchNo, &c.code, &c.period, &c.from, &c.to)
	})
	return out, s.fault("read what changed", err)
}

// meetBatch bounds the batches of one meeting transaction.
const meetBatch = 1000

// MeetChanged meets the parent and third-party conditions that the changes may have met, and forgets the changes.
// It returns how many batches had conditions to be met.
func (s *Store) MeetChanged(ctx context.Context, lease capri.Lease, changes []DependencyChange) (met int, err error) {
	candidates := []capri.BatchID{}
	for _, q := range candidatesOf(changes) {
		ids, err := s.batchIDs(ctx, q)
		if err != nil {
			return 0, s.fault("look for children", err)
		}
		candidates = append(candidates, ids...)
	}
	if met, err = s.meetAll(ctx, lease, candidates); err != nil {
		return met, err
	}
	// If the process dies before this, the same changes are looked at once more: meeting again changes nothing.
	ids := make([]int64, len(changes))
	for i, c := range changes {
		ids[i] = c.ID
	}
	return met, s.WriteAs(ctx, "forget what was looked at", lease, func(tx *Tx) error {
		for _, part := range chunks(ids, tx.s.d.ChunkRows) {
			if _, err := tx.exec(sq.Delete("dependency_change").Where(idIn("id", part))); err != nil {
				return err
			}
		}
		return nil
	})
}

// candidatesOf are the queries that find the waiting batches which the changes may have met; parents come by the
// hundred, and share queries.
func candidatesOf(changes []DependencyChange) []sq.SelectBuilder {
	const waits = "+w.state = 0 AND +w.unmet > 0" // the plus keeps SQLite on the index that the rest of the query names
	waiting := func(conditions string) sq.SelectBuilder {
		return sq.Select("d.batch_id").From(conditions + " d").Join("task_work w ON w.id = d.batch_id").Where("d.state = 0 AND " + waits)
	}
	var queries []sq.SelectBuilder
	for _, born := range born(changes, "w.id") {
		made := sq.Select("w.id").From("task_work w").Where(born).Where(waits) // subqueries that give a value are not turned round: they are asked of each row
		queries = append(queries,
			made.Where("w.kinds & 12 <> 0 AND (SELECT 1 FROM tparent_data d WHERE d.batch_id = w.id AND d.state = 0 AND "+parentSucceeded("d")+" LIMIT 1) = 1"),
			made.Where("w.kinds & 2 <> 0 AND (SELECT 1 FROM tthird_data d WHERE d.batch_id = w.id AND d.state = 0 AND "+thirdPartyReady("d")+" LIMIT 1) = 1"))
	}
	for _, any := range anyOf(changes, changedThirdParty, func(c DependencyChange) sq.Sqlizer {
		return sq.Expr("(d.code = ? AND d.period = ? AND d.batch_no = ?)", c.code, int(c.period), string(c.BatchNo))
	}) {
		queries = append(queries, waiting("tthird_data").Where(any))
	}
	for _, any := range anyOf(changes, changedParent, func(c DependencyChange) sq.Sqlizer {
		return sq.Expr("(d.parent_task_id = ? AND d.parent_batch_no = ?)", int64(c.TaskID), string(c.BatchNo))
	}) {
		queries = append(queries, waiting("tparent_data").Where(any))
	}
	return queries
}

// anyOf puts what is asked of each change of a kind together, some hundred to a condition.
func anyOf(changes []DependencyChange, kind int, is func(DependencyChange) sq.Sqlizer) []sq.Or {
	var all []sq.Or
	for _, part := range chunks(slices.DeleteFunc(slices.Clone(changes), func(c DependencyChange) bool { return c.kind != kind }), 200) {
		var any sq.Or
		for _, c := range part {
			any = append(any, is(c))
		}
		all = append(all, any)
	}
	return all
}

// batchRange is a range of batch ids, both included.
type batchRange struct{ from, to capri.BatchID }

// born are conditions on a column that say which batches the changes speak of: one for some thousand batches, or some hundred
// ranges. A mark's are inserted by the hundred with ids that follow one another, so they become a few ranges again.
func born(changes []DependencyChange, column string) []sq.Or {
	const most = 10_000
	var spans []batchRange
	for _, c := range changes {
		if c.kind == changedBatches {
			spans = append(spans, batchRange{c.from, c.to})
		}
	}
	slices.SortFunc(spans, func(a, b batchRange) int { return cmp.Compare(a.from, b.from) })
	var joined []batchRange
	for _, s := range spans {
		if n := len(joined) - 1; n >= 0 && s.from <= joined[n].to+1 && s.to-joined[n].from < most {
			joined[n].to = max(joined[n].to, s.to)
			continue
		}
		joined = append(joined, s)
	}
	var all []sq.Or
	batches := 0
	for _, s := range joined {
		n := int(s.to-s.from) + 1
		if len(all) == 0 || batches+n > most || len(all[len(all)-1]) == 100 {
			all, batches = append(all, nil), 0
		}
		batches += n
		all[len(all)-1] = append(all[len(all)-1], sq.Expr(column+" BETWEEN ? AND ?", int64(s.from), int64(s.to)))
	}
	return all
}

// The facts that conditions rest on, as the meeting UPDATE proves them for the condition rows called d. The rows
// that it reads stay locked until commit.
//
// The archive is asked only where task_work has no run that counts, so the ordinary meeting does not look there. Rows move
// from the first to the second, and never back: what is not in the one is in the other.
func parentSucceeded(d string) string {
	return "COALESCE((SELECT pw.state = 3 AND pw.finish_state = 1 FROM task_work pw WHERE pw.task_id = " + d + ".parent_task_id AND pw.batch_no = " + d + ".parent_batch_no AND pw.latest = 1)," +
		" EXISTS (SELECT 1 FROM " + archiveTable + " pa WHERE pa.task_id = " + d + ".parent_task_id AND pa.batch_no = " + d + ".parent_batch_no AND pa.latest = 1 AND pa.finish_state = 1))"
}

func thirdPartyReady(d string) string {
	return "EXISTS (SELECT 1 FROM tthird_item ti WHERE ti.code = " + d + ".code AND ti.period = " + d + ".period AND ti.batch_no = " + d + ".batch_no AND ti.result = 1)"
}

// meet proves and meets the parent and third-party conditions of batches: locks them, changes, recounts.
func (tx *Tx) meet(ids []capri.BatchID) (met int, err error) {
	rows, err := tx.lockWhere(ids, "state = 0 AND unmet > 0")
	if err != nil {
		return 0, err
	}
	for _, part := range chunks(rows, tx.s.d.ChunkRows) {
		n, kinds := 0, 0
		for _, r := range part {
			kinds |= r.Kinds
		}
		if kinds&(kindParents|kindGrouped) != 0 {
			if n, err = tx.execText("UPDATE tparent_data SET state = 1 WHERE state = 0 AND " + tx.amongText("batch_id", part) + " AND " + parentSucceeded("tparent_data")); err != nil {
				return 0, err
			}
		}
		if kinds&kindThirdParty != 0 {
			m, err := tx.execText("UPDATE tthird_data SET state = 1 WHERE state = 0 AND " + tx.amongText("batch_id", part) + " AND " + thirdPartyReady("tthird_data"))
			if err != nil {
				return 0, err
			}
			n += m
		}
		if n == 0 {
			continue
		}
		met += len(part)
		if err := tx.recount(part); err != nil {
			return 0, err
		}
	}
	return met, nil
}

func (tx *Tx) amongText(column string, rows []locked) string {
	text, _, _ := tx.among(column, rows).ToSql()
	return text
}

// UnmetPaths lists each distinct path that a waiting batch waits for.
func (s *Store) UnmetPaths(ctx context.Context) ([]capri.PathCondition, error) {
	out, err := collect(ctx, s.read, sq.Select("DISTINCT d.path", "d.flag").From("task_data d").Join("task_work w ON w.id = d.batch_id").
		Where(sq.Eq{"d.type": typeInput, "d.state": 0, "w.state": int(capri.Waiting)}), func(r *sql.Rows, p *capri.PathCondition) error {
		return r.Scan(&p.Path, &p.Flag)
	})
	return out, s.fault("list unmet paths", err)
}

// UnmetPathsAround lists the paths that batches wait for and that changes make worth asking for at once: what a
// succeeded parent's latest run has produced, and the inputs of batches that were just made.
func (s *Store) UnmetPathsAround(ctx context.Context, changes []DependencyChange) ([]capri.PathCondition, error) {
	var out []capri.PathCondition
	add := func(r *sql.Rows) error {
		var p capri.PathCondition
		err := r.Scan(&p.Path, &p.Flag)
		out = append(out, p)
		return err
	}
	for _, born := range born(changes, "d.batch_id") {
		if err := query(ctx, s.read, bornPaths(born), add); err != nil {
			return nil, s.fault("list paths of new batches", err)
		}
	}
	for _, any := range anyOf(changes, changedParent, func(c DependencyChange) sq.Sqlizer {
		return sq.Expr("(w.task_id = ? AND w.batch_no = ?)", int64(c.TaskID), string(c.BatchNo))
	}) {
		err := query(ctx, s.read, sq.Select("DISTINCT o.path", "o.flag").From("task_work w").Join("task_data o ON o.batch_id = w.id AND o.type = 2").
			Where("w.latest = 1 AND w.kinds & 16 <> 0 AND EXISTS (SELECT 1 FROM task_data d WHERE d.type = 1 AND d.state = 0 AND d.path_hash = o.path_hash)").Where(any), add)
		if err != nil {
			return nil, s.fault("list paths that were produced", err)
		}
	}
	return out, nil
}

func bornPaths(born sq.Or) sq.SelectBuilder {
	return sq.Select("DISTINCT d.path", "d.flag").From("task_data d").Where(born).Where("+d.type = 1 AND +d.state = 0")
}

// MeetPaths meets the conditions on paths that were found to be there, unless a batch that produces such a path
// has a latest run that has not succeeded: its flag is then old, or half-written.
func (s *Store) MeetPaths(ctx context.Context, lease capri.Lease, there []capri.PathCondition) (met int, err error) {
	for _, paths := range chunks(there, s.d.ChunkRows) {
		hashes := hashesOf(paths)
		ids, err := s.batchIDs(ctx, sq.Select("DISTINCT d.batch_id").From("task_data d").Join("task_work w ON w.id = d.batch_id").
			Where(sq.Eq{"d.type": typeInput, "d.state": 0, "w.state": int(capri.Waiting)}).Where(idIn("d.path_hash", hashes)).OrderBy("d.batch_id"))
		if err != nil {
			return met, s.fault("look for batches that wait for paths", err)
		}
		n, err := s.meetParts(ctx, "meet paths", lease, ids, func(tx *Tx, part []capri.BatchID) (int, error) { return tx.meetPaths(part, hashes) })
		if met += n; err != nil {
			return met, err
		}
	}
	return met, nil
}

func (tx *Tx) meetPaths(ids []capri.BatchID, hashes []int64) (met int, err error) {
	rows, err := tx.lockWhere(ids, "state = 0")
	if err != nil {
		return 0, err
	}
	unsure, err := tx.unsurePaths(hashes)
	if err != nil {
		return 0, err
	}
	hashes = slices.DeleteFunc(slices.Clone(hashes), func(h int64) bool { return slices.Contains(unsure, h) })
	if len(hashes) == 0 || len(rows) == 0 {
		return 0, nil
	}
	changed := 0
	for _, part := range chunks(rows, tx.s.d.ChunkRows) {
		n, err := tx.exec(sq.Update("task_data").Set("state", 1).Where(sq.Eq{"type": typeInput, "+state": 0}).Where(idIn("batch_id", idsOf(part))).Where(idIn("+path_hash", hashes)))
		if err != nil {
			return 0, err
		}
		changed += n
	}
	if changed == 0 {
		return 0, nil
	}
	return len(rows), tx.recount(rows)
}

// unsurePaths are those of the paths that a known batch produces whose latest run has not succeeded. The rows that
// say so stay locked until commit, and so does the place where another such batch would be inserted.
func (tx *Tx) unsurePaths(hashes []int64) ([]int64, error) {
	if len(hashes) == 0 {
		return nil, nil
	}
	return tx.hashes(sq.Select("o.path_hash").From("task_data o").Join("task_work w ON w.id = o.batch_id").
		Where(sq.Eq{"o.type": typeOutput, "o.state": []int{0, 1}}).Where(idIn("o.path_hash", hashes)).
		Where("w.latest = 1 AND NOT (w.state = 3 AND w.finish_state = 1)").Suffix(tx.s.d.ForShare))
}

func hashesOf(paths []capri.PathCondition) []int64 {
	out := make([]int64, len(paths))
	for i, p := range paths {
		out[i] = pathHash(p)
	}
	return out
}

// PathsGone is what a worker found missing while it prepared: unmet again for every batch that has not started
// and waits for the same path (seed 002 §2.2).
func (s *Store) PathsGone(ctx context.Context, node string, gone []capri.PathCondition) error {
	hashes := hashesOf(gone)
	return s.Write(ctx, "mark paths as gone", node, func(tx *Tx) error {
		ids, err := tx.ids(sq.Select("DISTINCT d.batch_id").From("task_data d").Join("task_work w ON w.id = d.batch_id").
			Where(sq.Eq{"d.type": typeInput, "d.state": 1}).Where(idIn("d.path_hash", hashes)).Where("(w.state < 2 OR (w.state = 2 AND w.start_time IS NULL))"))
		if err != nil {
			return err
		}
		unmet := sq.Update("task_data").Set("state", 0).Where(sq.Eq{"type": typeInput}).Where(idIn("path_hash", hashes))
		return tx.withdraw(ids, unmet, "the path "+gone[0].Path+" is gone")
	})
}

// withdraw makes conditions of those of the batches that have not started unmet again, and sends them back to waiting.
func (tx *Tx) withdraw(ids []capri.BatchID, unmet sq.UpdateBuilder, why string) error {
	rows, err := tx.lock(ids)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r locked) bool { return !r.notStarted() })
	for _, part := range chunks(rows, tx.s.d.ChunkRows) {
		if _, err := tx.exec(unmet.Where(idIn("batch_id", idsOf(part)))); err != nil {
			return err
		}
	}
	return tx.waitAgain(rows, why)
}

// OutputsOf reads the output paths of batches.
func (s *Store) OutputsOf(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID][]capri.PathCondition, error) {
	return s.pathsOf(ctx, typeOutput, ids)
}

func (s *Store) pathsOf(ctx context.Context, kind int, ids []capri.BatchID) (map[capri.BatchID][]capri.PathCondition, error) {
	out := map[capri.BatchID][]capri.PathCondition{}
	for _, part := range chunks(ids, s.d.ChunkRows) {
		err := query(ctx, s.read, sq.Select("batch_id", "path", "flag").From("task_data").Where(sq.Eq{"type": kind}).Where(idIn("batch_id", part)).OrderBy("batch_id", "seq"), func(r *sql.Rows) error {
			var id capri.BatchID
			var p capri.PathCondition
			err := r.Scan(&id, &p.Path, &p.Flag)
			out[id] = append(out[id], p)
			return err
		})
		if err != nil {
			return nil, s.fault("read the paths of batches", err)
		}
	}
	return out, nil
}

// ReportThirdParty keeps what a third party said of a code and interval: ready, fail or withdraw. Anything but ready
// makes what rested on it, and has not started, wait again.
func (tx *Tx) ReportThirdParty(code string, p capri.Period, no capri.BatchNo, said string) error {
	if err := tx.note("tthird_item", sq.Eq{"code": code, "period": int(p), "batch_no": string(no)}); err != nil {
		return err
	}
	ready := said == "ready"
	_, err := tx.exec(sq.Insert("tthird_item").Columns("code", "period", "batch_no", "result", "said", "reported_at", "reported_by").
		Values(code, int(p), string(no), bit(ready), said, int64(tx.Now), cut(tx.who, 190)).
		Suffix(tx.s.d.Upsert([]string{"code", "period", "batch_no"}, "result", "said", "reported_at", "reported_by")))
	if err != nil {
		return err
	}
	if ready {
		_, err := tx.exec(sq.Insert("dependency_change").Columns("kind", "code", "period", "batch_no").Values(changedThirdParty, code, int(p), string(no)))
		return err
	}
	same := sq.Eq{"code": code, "period": int(p), "batch_no": string(no)}
	ids, err := tx.ids(sq.Select("batch_id").From("tthird_data").Where(same).Where(sq.Eq{"state": 1}).Suffix(tx.s.d.ForShare)) // locks: see revokeRuns
	if err != nil {
		return err
	}
	return tx.withdraw(ids, sq.Update("tthird_data").Set("state", 0).Where(same), fmt.Sprintf("%s was reported as %s", code, said))
}

// ConditionRow is one condition of a batch as people see it.
type ConditionRow struct {
	Kind          string // input, output, third_party, parent
	Met           bool
	Path, Flag    string
	Code          string
	Said          string // what the third party said last, "" nothing
	SaidAt        capri.Instant
	Period        capri.Period
	Parent        string
	ParentTaskID  capri.TaskID
	BatchNo       capri.BatchNo
	Group         int
	Policy        string
	ParentBatchID capri.BatchID // latest run; 0: there is none. Of an input: the batch that makes the path, as far as known
	ParentState   capri.State
	ParentFinish  capri.FinishState

	parentKinds int // which conditions that batch has, where it has not finished
}

// Succeeded tells whether the batch that the condition waits for has done so.
func (c *ConditionRow) Succeeded() bool {
	return c.ParentState == capri.Finished && c.ParentFinish == capri.Success
}

// Worst is the condition that is followed where several are unmet: a batch that has failed before one that waits, is
// running or was not made, and what no batch makes last.
func Worst(unmet []ConditionRow) (ConditionRow, bool) {
	rank := func(c *ConditionRow) int {
		switch {
		case c.ParentBatchID == 0 && c.Kind == "parent":
			return 2
		case c.ParentBatchID == 0, c.Kind == "input" && c.Succeeded():
			return 1
		case c.ParentState == capri.Finished:
			return 5
		case c.ParentState == capri.Waiting:
			return 4 // its own root may have failed
		}
		return 3
	}
	var best ConditionRow
	for i := range unmet {
		if best.Kind == "" || rank(&unmet[i]) > rank(&best) {
			best = unmet[i]
		}
	}
	return best, best.Kind != ""
}

// ConditionsOf lists a batch's conditions and outputs, unmet ones with what is known of their cause.
func (s *Store) ConditionsOf(ctx context.Context, id capri.BatchID) ([]ConditionRow, error) {
	out, err := collect(ctx, s.read, sq.Select("type", "state", "path", "flag").From("task_data").Where(sq.Eq{"batch_id": int64(id)}).OrderBy("type", "seq"), func(r *sql.Rows, c *ConditionRow) error {
		*c = ConditionRow{Kind: "input"}
		typ := 0
		err := r.Scan(&typ, &c.Met, &c.Path, &c.Flag)
		if typ == typeOutput {
			c.Kind = "output"
		}
		return err
	})
	if err == nil {
		err = query(ctx, s.read, sq.Select("d.state", "d.code", "d.period", "d.batch_no", "COALESCE(i.said, '')").From("tthird_data d").
			LeftJoin("tthird_item i ON i.code = d.code AND i.period = d.period AND i.batch_no = d.batch_no").Where(sq.Eq{"d.batch_id": int64(id)}).OrderBy("d.seq"), func(r *sql.Rows) error {
			c := ConditionRow{Kind: "third_party"}
			err := r.Scan(&c.Met, &c.Code, &c.Period, &c.BatchNo, &c.Said)
			out = append(out, c)
			return err
		})
	}
	if err == nil {
		err = query(ctx, s.read, sq.Select("d.state", "d.grp", "d.policy", "d.parent_task_id", "d.parent_batch_no", "t.name", "t.output_period", "COALESCE(w.id, 0)", "COALESCE(w.state, 0)", "COALESCE(w.finish_state, 0)").
			From("tparent_data d").Join("task t ON t.id = d.parent_task_id").
			LeftJoin("task_work w ON w.task_id = d.parent_task_id AND w.batch_no = d.parent_batch_no AND w.latest = 1").Where(sq.Eq{"d.batch_id": int64(id)}).OrderBy("d.seq"), func(r *sql.Rows) error {
			c := ConditionRow{Kind: "parent", Policy: string(capri.All)}
			anyone := false
			err := r.Scan(&c.Met, &c.Group, &anyone, &c.ParentTaskID, &c.BatchNo, &c.Parent, &c.Period, &c.ParentBatchID, &c.ParentState, &c.ParentFinish)
			if anyone {
				c.Policy = string(capri.Anyone)
			}
			out = append(out, c)
			return err
		})
	}
	if err != nil {
		return nil, s.fault("read a batch's conditions", err)
	}
	return out, s.withArchived(ctx, out)
}

// SweepUnmet recounts all waiting batches and repairs those whose count is wrong. It must find none: every one it
// repairs is a fault of ours, and is alerted.
func (s *Store) SweepUnmet(ctx context.Context, lease capri.Lease) (repaired int, err error) {
	wrong, err := s.batchIDs(ctx, sq.Select("id").From("task_work").Where("state = 0 AND unmet <> "+unmetNow).OrderBy("id"))
	if err != nil {
		return 0, s.fault("recount waiting batches", err)
	}
	for _, part := range chunks(wrong, s.d.ChunkRows) {
		n := 0
		err := s.WriteAs(ctx, "repair counts", lease, func(tx *Tx) error {
			n = 0
			rows, err := tx.lock(part)
			if err != nil {
				return err
			}
			before := map[capri.BatchID]int{}
			for _, r := range rows {
				before[r.ID] = r.Unmet
			}
			if err := tx.recount(rows); err != nil {
				return err
			}
			after, err := tx.lock(part)
			if err != nil {
				return err
			}
			for _, r := range after {
				if before[r.ID] == r.Unmet { // it changed between the look and the lock, and is right
					continue
				}
				n++
				if err := tx.Alert(capri.Alert{Key: fmt.Sprintf("unmet_repaired:%d:%d", r.ID, tx.Now), Level: capri.Severe, Kind: "unmet_repaired", Task: r.TaskID, Batch: r.ID,
					Title: fmt.Sprintf("The count of unmet conditions of batch %d was wrong", r.ID),
					Text:  fmt.Sprintf("unmet was %d, its conditions say %d. It was repaired; this is a fault of Capri, please report it.", before[r.ID], r.Unmet)}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return repaired, err
		}
		repaired += n
	}
	return repaired, nil
}

// HealUnmet meets the parent and third-party conditions of waiting batches that rest on a fact which holds already, as
// MeetChanged would have if it had been told. In ordinary life it finds at most what is about to be met: it is there so
// that no lost line of dependency_change can keep a batch waiting for ever.
func (s *Store) HealUnmet(ctx context.Context, lease capri.Lease) (met int, err error) {
	var candidates []capri.BatchID
	for _, q := range []sq.SelectBuilder{
		sq.Select("w.id").From("task_work w").Where("w.state = 0 AND w.unmet > 0 AND w.kinds & 12 <> 0 AND EXISTS (SELECT 1 FROM tparent_data d WHERE d.batch_id = w.id AND d.state = 0 AND " + parentSucceeded("d") + ")"),
		sq.Select("w.id").From("task_work w").Where("w.state = 0 AND w.unmet > 0 AND w.kinds & 2 <> 0 AND EXISTS (SELECT 1 FROM tthird_data d WHERE d.batch_id = w.id AND d.state = 0 AND " + thirdPartyReady("d") + ")"),
	} {
		ids, err := s.batchIDs(ctx, q)
		if err != nil {
			return 0, s.fault("look for conditions that are met", err)
		}
		candidates = append(candidates, ids...)
	}
	return s.meetAll(ctx, lease, candidates)
}

// meetAll meets what is proved of the candidates.
func (s *Store) meetAll(ctx context.Context, lease capri.Lease, candidates []capri.BatchID) (met int, err error) {
	return s.meetParts(ctx, "meet conditions", lease, candidates, (*Tx).meet)
}

// meetParts meets some batches at a time, on a server by two transactions at once: their rows are not the same, and a
// hundred thousand children of one parent are met in half the time.
func (s *Store) meetParts(ctx context.Context, what string, lease capri.Lease, ids []capri.BatchID, meet func(*Tx, []capri.BatchID) (int, error)) (met int, err error) {
	slices.Sort(ids)
	parts := chunks(slices.Compact(ids), meetBatch)
	if half := (len(parts) + 1) / 2; s.d.Writers > 1 { // two at once are not to be neighbours, who wait for each other
		apart := make([][]capri.BatchID, 0, len(parts))
		for i := range half {
			apart = append(apart, parts[i])
			if half+i < len(parts) {
				apart = append(apart, parts[half+i])
			}
		}
		parts = apart
	}
	counts := make([]int, len(parts))
	var eg errgroup.Group
	eg.SetLimit(s.d.Writers)
	for i, part := range parts {
		eg.Go(func() error {
			return s.WriteAs(ctx, what, lease, func(tx *Tx) (err error) {
				counts[i], err = meet(tx, part)
				return err
			})
		})
	}
	err = eg.Wait()
	for _, n := range counts {
		met += n
	}
	return met, err
}
