package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// Claimed is a batch that a worker has taken, with the snapshot it runs by and the paths to look at once more.
type Claimed struct {
	capri.Batch
	Task   *capri.Task
	Inputs []capri.PathCondition
}

// Claim takes up to limit batches assigned to the node: assigned → preparing. The conditions are in the comparison;
// a registration that another boot took over, or that was called lost, claims nothing (capri.ErrForbidden).
func (s *Store) Claim(ctx context.Context, node, boot string, limit int) ([]Claimed, error) {
	ids, err := s.batchIDs(ctx, sq.Select("id").From("task_work").Where(sq.Eq{"node": node, "state": int(capri.Assigned), "kill_request": 0}).
		OrderBy("priority", "schedule_time", "id").Limit(uint64(limit)))
	if err != nil || len(ids) == 0 {
		return nil, s.fault("look for work", err)
	}
	var mine []locked
	err = s.Write(ctx, "claim batches", node, func(tx *Tx) error {
		if err := tx.proveNode(node, boot); err != nil {
			return err
		}
		mine, err = tx.change(ids, change{
			from: func(r locked) bool {
				return r.State == capri.Assigned && r.Node == node && r.Unmet == 0 && !r.Held && !r.KillRequest
			},
			set: sq.Eq{"state": int(capri.Running), "start_time": nil},
			why: "claimed",
		})
		return err
	})
	if err != nil || len(mine) == 0 {
		return nil, err
	}
	all, err := s.claimed(ctx, mine)
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for _, c := range all {
		if c.Task.Broken == "" {
			out = append(out, c)
		} else if err := s.endUnreadable(ctx, node, c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// endUnreadable fails a batch whose snapshot somebody has broken by hand: nobody can tell what it is to run, and it must
// not keep the others of its node from starting.
func (s *Store) endUnreadable(ctx context.Context, node string, c Claimed) error {
	return s.Write(ctx, "end a batch that cannot be read", node, func(tx *Tx) error {
		ending := tx.ending(capri.Failed, fmt.Sprintf("version %d of its task: %s", c.TaskVersion, c.Task.Broken))
		ending.from = func(r locked) bool {
			return r.State == capri.Running && !r.Started && r.Node == node && r.Attempt == c.Attempt
		}
		_, err := tx.change([]capri.BatchID{c.ID}, ending)
		return err
	})
}

// proveNode fails unless the registration is this boot's and not lost; the row is kept until commit.
func (tx *Tx) proveNode(node, boot string) error {
	var is string
	var lost bool
	found, err := one(tx.ctx, tx.tx, sq.Select("boot_id", "lost").From("capri_schedul_cluster").Where(sq.Eq{"host": node}).Suffix(tx.s.d.ForShare), &is, &lost)
	switch {
	case err != nil:
		return err
	case !found || is != boot:
		return capri.Forbidden("node %q is registered by another process now", node)
	case lost:
		return capri.Forbidden("node %q was called lost: it has to register anew", node)
	}
	return nil
}

func (s *Store) claimed(ctx context.Context, rows []locked) ([]Claimed, error) {
	ids := idsOf(rows)
	batches, err := s.batchesByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	keys := make([]VersionKey, len(batches))
	var withPaths []capri.BatchID
	kinds := map[capri.BatchID]int{}
	for _, r := range rows {
		kinds[r.ID] = r.Kinds
	}
	for i, b := range batches {
		keys[i] = VersionKey{b.TaskID, b.TaskVersion}
		if kinds[b.ID]&kindPaths != 0 {
			withPaths = append(withPaths, b.ID)
		}
	}
	tasks, err := s.TaskVersions(ctx, keys)
	if err != nil {
		return nil, err
	}
	inputs, err := s.pathsOf(ctx, typeInput, withPaths)
	if err != nil {
		return nil, err
	}
	out := make([]Claimed, len(batches))
	for i, b := range batches {
		t := tasks[keys[i]]
		if t == nil {
			t = &capri.Task{ID: b.TaskID, Version: b.TaskVersion, Broken: "that version is missing in task_history"}
		}
		out[i] = Claimed{Batch: b, Task: t, Inputs: inputs[b.ID]}
	}
	return out, nil
}

// HeldBy lists what the node has claimed and not finished, with snapshots: what a restarted worker has to account for.
func (s *Store) HeldBy(ctx context.Context, node string) ([]Claimed, error) {
	ids, err := s.batchIDs(ctx, sq.Select("id").From("task_work").Where(sq.Eq{"node": node, "state": int(capri.Running)}).OrderBy("id"))
	if err != nil || len(ids) == 0 {
		return nil, s.fault("list a node's batches", err)
	}
	rows := make([]locked, len(ids)) // not locked: a list to compare with, nothing is written from it
	for i, id := range ids {
		rows[i].ID = id
	}
	return s.claimed(ctx, rows)
}

// Start marks preparing batches as started: the last moment at which a withdrawn condition, a kill or a lost
// node can stop them. Only what it returns may be given to the shim.
func (s *Store) Start(ctx context.Context, node, boot string, attempts []capri.Attempt) ([]capri.Attempt, error) {
	var started []capri.Attempt
	err := s.Write(ctx, "start batches", node, func(tx *Tx) error {
		started = started[:0]
		if err := tx.proveNode(node, boot); err != nil {
			return err
		}
		want := numbers(attempts)
		rows, err := tx.change(batchesOf(attempts), change{
			from: func(r locked) bool {
				ours := r.State == capri.Running && r.Node == node && r.Attempt == want[r.ID]
				if ours && r.Started { // our own commit got through and its answer did not
					started = append(started, capri.Attempt{Batch: r.ID, Number: r.Attempt})
				}
				return ours && !r.Started && r.Unmet == 0 && !r.Held && !r.KillRequest
			},
			set: sq.Eq{"start_time": int64(tx.Now), "message": "", "progress": 0},
			why: "started",
		})
		for _, r := range rows {
			started = append(started, capri.Attempt{Batch: r.ID, Number: r.Attempt})
		}
		return err
	})
	return started, err
}

// GiveBack is a preparing attempt that does not start: it returns to waiting.
type GiveBack struct {
	capri.Attempt
	Why      string
	Rejected bool          // the node is short of something: counted against Limit
	Limit    int           // -1 without limit; n ≥ 0: fails after n
	Pause    time.Duration // before it may be placed again
}

// RollBack returns preparing batches to waiting; a rejection too many fails, an asked kill ends them.
func (s *Store) RollBack(ctx context.Context, node string, back []GiveBack) error {
	by := map[capri.BatchID]GiveBack{}
	for _, g := range back {
		by[g.Batch] = g
	}
	return s.Write(ctx, "give batches back", node, func(tx *Tx) error {
		rows, err := tx.lock(keysOf(by))
		if err != nil {
			return err
		}
		for _, r := range rows {
			g := by[r.ID]
			if r.State != capri.Running || r.Started || r.Node != node || r.Attempt != g.Number {
				continue
			}
			next := change{why: g.Why, set: sq.Eq{"state": int(capri.Waiting), "node": "", "message": cut(g.Why, 1000), "assign_time": nil}}
			if g.Rejected {
				next.set["rejections"] = r.Rejections + 1
				next.set["avoid_node"] = node
				next.set["not_before"] = int64(tx.Now.Add(g.Pause))
			}
			switch {
			case r.KillRequest:
				next = tx.ending(capri.Killed, "killed before it started")
			case g.Rejected && g.Limit >= 0 && r.Rejections >= g.Limit:
				next = tx.ending(capri.Failed, fmt.Sprintf("rejected %d times: %s", r.Rejections+1, g.Why))
			}
			if err := tx.changeLocked([]locked{r}, next); err != nil {
				return err
			}
		}
		return nil
	})
}

// ending is the change to finished, for good within this run.
func (tx *Tx) ending(how capri.FinishState, why string) change {
	c := change{why: why, set: sq.Eq{"state": int(capri.Finished), "finish_state": int(how), "finish_time": int64(tx.Now), "message": cut(why, 1000), "kill_request": 0}}
	if how == capri.Failed {
		c.alert = func(r locked) *capri.Alert {
			return &capri.Alert{Key: fmt.Sprintf("batch_failed:%d", r.ID), Level: capri.Important, Kind: "batch_failed", Task: r.TaskID, Batch: r.ID,
				Title: fmt.Sprintf("%s %s failed (batch %d)", tx.taskName(r.TaskID), r.BatchNo, r.ID), Text: why}
		}
	}
	return c
}

// nameTasks reads the names of the rows' tasks at once, for the alerts about them.
func (tx *Tx) nameTasks(rows []locked) error {
	if tx.names == nil {
		tx.names = map[capri.TaskID]string{}
	}
	var ids []capri.TaskID
	for _, r := range rows {
		if _, known := tx.names[r.TaskID]; !known {
			tx.names[r.TaskID] = fmt.Sprintf("task %d", r.TaskID)
			ids = append(ids, r.TaskID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	names, err := pairs[capri.TaskID, string](tx.ctx, tx.tx, sq.Select("id", "name").From("task").Where(idIn("id", ids)))
	maps.Copy(tx.names, names)
	return err
}

// taskName is for what people read; a failure is rare enough to ask.
func (tx *Tx) taskName(id capri.TaskID) string {
	if name, known := tx.names[id]; known {
		return name
	}
	name := fmt.Sprintf("task %d", id)
	_, _ = one(tx.ctx, tx.tx, sq.Select("name").From("task").Where(sq.Eq{"id": int64(id)}), &name) // the alert is worth more than the name
	return name
}

// Outcome is how an attempt ended on its node.
type Outcome int

const (
	Succeeded Outcome = iota
	Failed
	Killed
	Lost // nobody knows how it ended: counted apart from failures, with a limit of its own
)

// lossLimit is how many lost attempts a run survives without using a retry.
const lossLimit = 3

// Result is an attempt's end as its worker reports it.
type Result struct {
	capri.Attempt
	Outcome       Outcome
	Message       string
	Usage         Usage
	ByCode        bool          // judged by the code that its job reported
	Retries       int           // of the snapshot: failures allowed before it is final
	RetryInterval time.Duration // before the next attempt
}

// FinishAttempts writes the ends of attempts, many at once. A report of an attempt that is no longer the run's
// newest, or of a finished run, changes nothing. Doing it twice is harmless.
func (s *Store) FinishAttempts(ctx context.Context, node string, results []Result) (finished int, err error) {
	by := map[capri.BatchID]Result{}
	for _, r := range results {
		by[r.Batch] = r
	}
	for _, ids := range chunks(keysOf(by), s.d.ChunkRows) {
		n, late := 0, 0
		err := s.Write(ctx, "report results", node, func(tx *Tx) error {
			n, late, err = tx.finish(ids, node, by)
			return err
		})
		if err != nil {
			return finished, err
		}
		if late > 0 {
			s.log.Info("reported ends change nothing: these attempts were given away or had ended before", "node", node, "attempts", late, "of", len(ids))
		}
		finished += n
	}
	return finished, nil
}

func (tx *Tx) finish(ids []capri.BatchID, node string, by map[capri.BatchID]Result) (done, late int, err error) {
	rows, err := tx.lock(ids)
	if err != nil {
		return 0, 0, err
	}
	rows = slices.DeleteFunc(rows, func(r locked) bool {
		return r.State != capri.Running || r.Node != node || r.Attempt != by[r.ID].Number
	})
	done, err = tx.endAttempts(rows, by)
	return done, len(ids) - len(rows), err
}

// endAttempts ends running attempts, which this transaction has locked and compared, as their results say. It returns
// how many runs are over with them.
func (tx *Tx) endAttempts(rows []locked, by map[capri.BatchID]Result) (int, error) {
	by, err := tx.judgedByCode(rows, by)
	if err != nil {
		return 0, err
	}
	// Alike ends are written by one statement; thousands of successes a second are the ordinary case.
	type end struct {
		how   capri.FinishState
		again bool // waits for another attempt
		lost  bool
		pause time.Duration
		why   string
	}
	groups := map[end][]locked{}
	var failed []locked
	done := 0
	for _, r := range rows {
		res := by[r.ID]
		e := end{why: res.Message}
		switch {
		case res.Outcome == Succeeded:
			e.how = capri.Success
		case r.KillRequest || res.Outcome == Killed: // a kill belongs to the run: no retry outlives it
			e.how = capri.Killed
		case res.Outcome == Lost && r.Losses < lossLimit:
			e.again, e.lost = true, true
		case res.Outcome == Failed && r.Failures < res.Retries:
			e.again, e.pause = true, res.RetryInterval
		default:
			e.how = capri.Failed
		}
		if !e.again {
			done++
		}
		groups[e] = append(groups[e], r)
	}
	for e, rows := range groups {
		c := tx.ending(e.how, e.why)
		if e.again {
			c = change{why: e.why, set: sq.Eq{"state": int(capri.Waiting), "node": "", "start_time": nil, "assign_time": nil, "message": cut(e.why, 1000)}}
			if e.lost {
				c.set["losses"] = sq.Expr("losses + 1")
			} else {
				c.set["failures"] = sq.Expr("failures + 1")
				c.set["not_before"] = int64(tx.Now.Add(e.pause))
			}
		} else if e.how == capri.Failed {
			c.set["failures"] = sq.Expr("failures + 1")
		}
		used := map[capri.BatchID]Usage{}
		for _, r := range rows {
			used[r.ID] = by[r.ID].Usage
		}
		maps.Copy(c.set, usageSet(rows, used))
		if e.how == capri.Success {
			c.set["progress"] = 100
			c.why = "succeeded"
		}
		if err := tx.changeLocked(rows, c); err != nil {
			return 0, err
		}
		if err := tx.alertUsage(rows, used); err != nil {
			return 0, err
		}
		if e.how == capri.Success {
			if err := tx.succeeded(rows); err != nil {
				return 0, err
			}
		}
		if !e.again && e.how == capri.Failed {
			failed = append(failed, rows...)
		}
	}
	return done, tx.countFailures(failed)
}

// succeeded writes what a success means to others: its outputs are there, and children have something to look at.
func (tx *Tx) succeeded(rows []locked) error {
	var outputs []capri.BatchID
	for _, r := range rows {
		if r.Kinds&kindOutputs != 0 {
			outputs = append(outputs, r.ID)
		}
	}
	if len(outputs) > 0 {
		if _, err := tx.exec(sq.Update("task_data").Set("state", 1).Where(sq.Eq{"type": typeOutput}).Where(idIn("batch_id", outputs))); err != nil {
			return err
		}
	}
	return tx.bulk("dependency_change", []string{"kind", "task_id", "batch_no"}, len(rows), func(i int, args []any) []any {
		return append(args, changedParent, int64(rows[i].TaskID), string(rows[i].BatchNo))
	})
}

// KillsAsked lists the attempts of a node that somebody wants dead.
func (s *Store) KillsAsked(ctx context.Context, node string) ([]capri.Attempt, error) {
	out, err := collect(ctx, s.read, sq.Select("id", "attempt").From("task_work").Where(sq.Eq{"node": node, "state": int(capri.Running), "kill_request": 1}), func(r *sql.Rows, a *capri.Attempt) error {
		return r.Scan(&a.Batch, &a.Number)
	})
	return out, s.fault("look for kills", err)
}

// ReportProgress keeps what a job says about itself, 0 … 100; an old attempt's word is ignored.
func (s *Store) ReportProgress(ctx context.Context, a capri.Attempt, percent int) error {
	return s.Write(ctx, "report progress", "job", func(tx *Tx) error {
		_, err := tx.exec(sq.Update("task_work").Set("progress", percent).Where(sq.Eq{"id": int64(a.Batch), "attempt": a.Number, "state": int(capri.Running)}))
		return err
	})
}

// ReportApplication keeps the id of what an attempt has started elsewhere, an application on YARN or a query; the newest
// counts, and an old attempt's word is ignored.
func (s *Store) ReportApplication(ctx context.Context, a capri.Attempt, id string) error {
	return s.Write(ctx, "report an application", "job", func(tx *Tx) error {
		_, err := tx.exec(sq.Update("task_work").Set("application_id", id).Where(sq.Eq{"id": int64(a.Batch), "attempt": a.Number, "state": int(capri.Running)}))
		return err
	})
}

// HeldAttempt is an attempt that a node has claimed and not finished.
type HeldAttempt struct {
	capri.Attempt
	Started bool
}

// HeldAttempts is HeldBy without the snapshots: a worker compares it with what it runs every now and then.
func (s *Store) HeldAttempts(ctx context.Context, node string) ([]HeldAttempt, error) {
	out, err := collect(ctx, s.read, sq.Select("id", "attempt", "start_time").From("task_work").Where(sq.Eq{"node": node, "state": int(capri.Running)}), func(r *sql.Rows, a *HeldAttempt) error {
		var start capri.Instant
		err := r.Scan(&a.Batch, &a.Number, instant{&start})
		a.Started = start != 0
		return err
	})
	return out, s.fault("list a node's attempts", err)
}

func numbers(attempts []capri.Attempt) map[capri.BatchID]int {
	m := make(map[capri.BatchID]int, len(attempts))
	for _, a := range attempts {
		m[a.Batch] = a.Number
	}
	return m
}

func batchesOf(attempts []capri.Attempt) []capri.BatchID {
	ids := make([]capri.BatchID, len(attempts))
	for i, a := range attempts {
		ids[i] = a.Batch
	}
	return ids
}

func keysOf[V any](m map[capri.BatchID]V) []capri.BatchID {
	ids := make([]capri.BatchID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	return ids
}
