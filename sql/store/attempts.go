package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// What is done to attempts whose node does not speak for them: it is lost, it holds no process for them, or it never
// claimed them. In each case an attempt that its worker moves on meanwhile wins: the row's number, node and state are
// compared under its lock.

// busyNodesQuery reads what is assigned or runs along the index of states. Grouped by node alone, the other index on
// node and state would serve as well, and that one holds all that has ever finished.
var busyNodesQuery = sq.Select("node", "COUNT(*)").From("task_work").Where("state IN (1, 2)").GroupBy("node")

// BusyNodes tells how many batches each node has in hand, also one that is not registered any more.
func (s *Store) BusyNodes(ctx context.Context) (map[string]int, error) {
	busy, err := pairs[string, int](ctx, s.read, busyNodesQuery)
	return busy, s.fault("count what nodes have in hand", err)
}

// SilentNode is a node that somebody has seen not to move. BootID and Beat are what did not move.
type SilentNode struct {
	Name    string
	BootID  string // "": its worker has left in order
	Beat    int64
	Removed bool // it has no registration any more
	Meant   bool // somebody wanted it to be silent
	Silent  time.Duration
	Folded  int // how often it was called lost since an alert last said so
}

// LostNode is what LoseNode did.
type LostNode struct {
	Done    bool // false: it moved meanwhile, and nothing was changed
	Waiting int  // its batches that wait for another node
	Ended   int  // its batches that ended: killed, or lost too often
	Alerted bool // false: an alert of the last hour stands for this loss as well
}

// LoseNode calls a node lost and ends its attempts, in one transaction: nobody ever sees one without the other. What it
// had not claimed waits again; what it prepared or ran counts as lost. A node that is registered as lost already is
// taken what was assigned to it since, by a placer that had read its row just before.
func (s *Store) LoseNode(ctx context.Context, lease capri.Lease, n SilentNode) (done LostNode, err error) {
	err = s.WriteAs(ctx, "call node "+n.Name+" lost", lease, func(tx *Tx) error {
		done = LostNode{}
		isNew, err := tx.markLost(n)
		if errors.Is(err, errMoved) {
			return nil
		}
		if err != nil {
			return err
		}
		done.Done = true
		// A claim proves the registration under its lock, which is ours now: what it took before is seen here, and
		// there is none after. What a placer assigns after this read is found by the next call.
		ids, err := tx.ids(sq.Select("id").From("task_work").Where(sq.Eq{"node": n.Name, "state": []int{int(capri.Assigned), int(capri.Running)}}))
		if err != nil {
			return err
		}
		rows, err := tx.lock(ids)
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(r locked) bool { return r.Node != n.Name || r.State != capri.Assigned && r.State != capri.Running })
		why := fmt.Sprintf("node %s is lost: it was silent for %s", n.Name, n.Silent.Round(time.Second))
		if n.Removed {
			why = fmt.Sprintf("node %s is not registered any more", n.Name)
		}
		if done.Waiting, done.Ended, err = tx.loseAttempts(rows, n.Name, why); err != nil || !isNew {
			return err
		}
		done.Alerted, err = tx.alertLost(n, rows, done)
		return err
	})
	return done, err
}

// errMoved says that a node is not any more as it was seen.
var errMoved = errors.New("the node has moved")

// markLost stores that the node is lost if it has not moved; isNew is false where it was stored before. The row, or the
// gap where it would stand, is kept until commit.
func (tx *Tx) markLost(n SilentNode) (isNew bool, err error) {
	var boot string
	var beat int64
	var lost bool
	found, err := one(tx.ctx, tx.tx, sq.Select("boot_id", "beat", "lost").From("capri_schedul_cluster").Where(sq.Eq{"host": n.Name}).Suffix(tx.s.d.ForUpdate), &boot, &beat, &lost)
	switch {
	case err != nil:
		return false, err
	case found == n.Removed:
		return false, errMoved
	case !found:
		return true, nil
	case boot != n.BootID || beat != n.Beat:
		return false, errMoved
	case lost:
		return false, nil
	}
	_, err = tx.exec(sq.Update("capri_schedul_cluster").Set("lost", 1).Set("lost_at", int64(tx.Now)).
		Where(sq.Eq{"host": n.Name, "boot_id": n.BootID, "beat": n.Beat, "lost": 0}))
	return true, err
}

// loseAttempts takes locked batches from a node that cannot answer for them.
func (tx *Tx) loseAttempts(rows []locked, node, why string) (waiting, ended int, err error) {
	var assigned, running []locked
	by := map[capri.BatchID]Result{}
	for _, r := range rows {
		if r.State == capri.Assigned {
			assigned = append(assigned, r)
			continue
		}
		running = append(running, r)
		by[r.ID] = Result{Attempt: capri.Attempt{Batch: r.ID, Number: r.Attempt}, Outcome: Lost, Message: why}
	}
	if err := tx.changeLocked(assigned, tx.takenFrom(node, why)); err != nil {
		return 0, 0, err
	}
	ended, err = tx.endAttempts(running, by)
	return len(rows) - ended, ended, err
}

// takenFrom is the change of assigned batches that go back to waiting for another node than this one. The avoided node
// counts for a while after not_before (avoidFor).
func (tx *Tx) takenFrom(node, why string) change {
	return change{why: why, set: sq.Eq{"state": int(capri.Waiting), "node": "", "assign_time": nil, "avoid_node": node, "not_before": int64(tx.Now), "message": cut(why, 1000)}}
}

// namedInAlert is how many batches an alert of a lost node names.
const namedInAlert = 20

// alertLost tells of a lost node, unless an alert of the last hour did: a node that comes and goes is one trouble.
func (tx *Tx) alertLost(n SilentNode, rows []locked, done LostNode) (bool, error) {
	family := "node_lost:" + n.Name
	recent := 0
	_, err := one(tx.ctx, tx.tx, sq.Select("COUNT(*)").From("alert").Where("alert_key >= ? AND alert_key < ? AND created_at > ?",
		family+":", family+";", int64(tx.Now.Add(-time.Hour))), &recent) // ; is the character after :
	if err != nil || recent > 0 {
		return false, err
	}
	level, text := capri.Important, fmt.Sprintf("Its beat has not moved for %s.", n.Silent.Round(time.Second))
	if n.Removed {
		text = fmt.Sprintf("It is not registered any more, and held batches for another %s.", n.Silent.Round(time.Second))
	}
	switch {
	case len(rows) > 0:
		names, err := tx.batchNames(rows[:min(len(rows), namedInAlert)])
		if err != nil {
			return false, err
		}
		if more := len(rows) - namedInAlert; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		text += fmt.Sprintf(" Of its %d batches %d run elsewhere, %d ended (lost too often, or to be killed): %s.", len(rows), done.Waiting, done.Ended, names)
	case n.Meant: // as in an upgrade: nobody on duty need get up
		level, text = capri.Attention, text+" It was drained or stopped in order, and had no batches."
	default:
		text += " It had no batches."
	}
	if n.Folded > 0 {
		text += fmt.Sprintf(" It was called lost %d times more since the alert before this one.", n.Folded)
	}
	return true, tx.Alert(capri.Alert{Key: fmt.Sprintf("%s:%d", family, tx.Now), Level: level, Kind: "node_lost",
		Title: fmt.Sprintf("Node %s is lost (%d batches)", n.Name, len(rows)), Text: text})
}

// TellSilent alerts that a node is silent whose jobs are left alone, once for each silence.
func (s *Store) TellSilent(ctx context.Context, lease capri.Lease, n SilentNode, busy int) error {
	return s.WriteAs(ctx, "alert of a silent node", lease, func(tx *Tx) error {
		return tx.Alert(capri.Alert{Key: fmt.Sprintf("node_silent:%s:%s:%d", n.Name, n.BootID, n.Beat), Level: capri.Important, Kind: "node_silent",
			Title: fmt.Sprintf("Node %s is silent (%d batches)", n.Name, busy),
			Text: fmt.Sprintf("Its beat has not moved for %s. It does not end its jobs by itself, so they may be running, and its %d batches are left alone. Bring it back; or, if its jobs have ended for certain, remove it (capri node remove %s), and they run elsewhere.",
				n.Silent.Round(time.Second), busy, n.Name)})
	})
}

// batchNames is "task batch_no (batch 7), …" for people.
func (tx *Tx) batchNames(rows []locked) (string, error) {
	ids := make([]capri.TaskID, len(rows))
	for i, r := range rows {
		ids[i] = r.TaskID
	}
	names, err := pairs[capri.TaskID, string](tx.ctx, tx.tx, sq.Select("id", "name").From("task").Where(idIn("id", ids)))
	texts := make([]string, len(rows))
	for i, r := range rows {
		texts[i] = fmt.Sprintf("%s %s (batch %d)", cmp.Or(names[r.TaskID], "a deleted task"), r.BatchNo, r.ID)
	}
	return strings.Join(texts, ", "), err
}

// StartedAttempt is an attempt whose job was given to its node's shim.
type StartedAttempt struct {
	capri.Attempt
	Node      string
	StartTime capri.Instant
}

// StartedBefore lists the attempts that run since before a time.
func (s *Store) StartedBefore(ctx context.Context, before capri.Instant) ([]StartedAttempt, error) {
	q := sq.Select("id", "attempt", "node", "start_time").From("task_work").Where("state = 2 AND start_time <= ?", int64(before)).OrderBy("id")
	out, err := collect(ctx, s.read, q, func(r *sql.Rows, a *StartedAttempt) error {
		return r.Scan(&a.Batch, &a.Number, &a.Node, &a.StartTime)
	})
	return out, s.fault("list what runs long", err)
}

// Judged is a batch with what its attempt is judged by.
type Judged struct {
	capri.Batch
	Task    *capri.Task // the snapshot
	Outputs []capri.PathCondition
}

// Judged reads batches with their snapshots and output paths. One whose snapshot is missing is left out.
func (s *Store) Judged(ctx context.Context, ids []capri.BatchID) ([]Judged, error) {
	batches, err := s.batchesByID(ctx, ids)
	if err != nil || len(batches) == 0 {
		return nil, err
	}
	keys := make([]VersionKey, len(batches))
	for i, b := range batches {
		keys[i] = VersionKey{b.TaskID, b.TaskVersion}
	}
	tasks, err := s.TaskVersions(ctx, keys)
	if err != nil {
		return nil, err
	}
	outputs, err := s.OutputsOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	var out []Judged
	for i, b := range batches {
		if t := tasks[keys[i]]; t != nil {
			out = append(out, Judged{Batch: b, Task: t, Outputs: outputs[b.ID]})
		}
	}
	return out, nil
}

// EndZombies ends attempts that run by their rows and have no process on their node, as if it had reported results.
// boot is the life of the node whose inventory did not list them; if another one has registered, it may have found them
// after all. Each is told to its task. Returned is how many there were still to end.
func (s *Store) EndZombies(ctx context.Context, lease capri.Lease, node, boot string, results []Result) (n int, err error) {
	by := map[capri.BatchID]Result{}
	for _, r := range results {
		by[r.Batch] = r
	}
	for _, ids := range chunks(slices.Sorted(slices.Values(keysOf(by))), s.d.ChunkRows) {
		some := 0
		err := s.WriteAs(ctx, "end attempts without a process on node "+node, lease, func(tx *Tx) error {
			some = 0
			if err := tx.proveNode(node, boot); err != nil {
				if errors.Is(err, capri.ErrForbidden) {
					return nil
				}
				return err
			}
			rows, err := tx.lock(ids)
			if err != nil {
				return err
			}
			rows = slices.DeleteFunc(rows, func(r locked) bool {
				return r.State != capri.Running || !r.Started || r.Node != node || r.Attempt != by[r.ID].Number
			})
			some = len(rows)
			if _, err := tx.endAttempts(rows, by); err != nil {
				return err
			}
			for _, r := range rows {
				err := tx.Alert(capri.Alert{Key: fmt.Sprintf("zombie:%d.%d", r.ID, r.Attempt), Level: capri.Important, Kind: "zombie", Task: r.TaskID, Batch: r.ID,
					Title: fmt.Sprintf("%s %s had no process any more (batch %d)", tx.taskName(r.TaskID), r.BatchNo, r.ID), Text: by[r.ID].Message})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return n, err
		}
		n += some
	}
	return n, nil
}

// Overdue is an assigned batch that its node did not claim in time.
type Overdue struct {
	capri.Attempt
	Node       string
	AssignTime capri.Instant
}

// overdueQuery walks the index of states through what is assigned, which is little at any moment.
func overdueQuery(before, latest capri.Instant, limit int) sq.SelectBuilder {
	q := sq.Select("id", "attempt", "node", "assign_time").From("task_work").Where("state = 1 AND assign_time <= ?", int64(before)).Limit(uint64(limit))
	if latest != 0 {
		q = q.Where("schedule_time <= ?", int64(latest))
	}
	return q
}

// Overdue lists batches that were assigned before a time and not claimed. latest is the latest schedule_time allowed; 0:
// none.
func (s *Store) Overdue(ctx context.Context, before, latest capri.Instant, limit int) ([]Overdue, error) {
	out, err := collect(ctx, s.read, overdueQuery(before, latest, limit), func(r *sql.Rows, o *Overdue) error {
		return r.Scan(&o.Batch, &o.Number, &o.Node, &o.AssignTime)
	})
	return out, s.fault("look for what was not claimed", err)
}

// TakenLimits say when it is too much that is taken from one node: more than so many within ten and thirty minutes; 0 is
// no limit.
type TakenLimits struct {
	Important10, Severe10, Important30, Severe30 int
}

// Reschedule takes batches from nodes that did not claim them, and notes each former assignment. A worker that claims
// meanwhile wins.
func (s *Store) Reschedule(ctx context.Context, lease capri.Lease, overdue []Overdue, limits TakenLimits) (taken int, err error) {
	slices.SortFunc(overdue, func(a, b Overdue) int { return cmp.Compare(a.Batch, b.Batch) })
	for _, part := range chunks(overdue, s.d.ChunkRows) {
		n := 0
		err := s.WriteAs(ctx, "take back what was not claimed", lease, func(tx *Tx) (err error) {
			n, err = tx.reschedule(part, limits)
			return err
		})
		if err != nil {
			return taken, err
		}
		taken += n
	}
	return taken, nil
}

func (tx *Tx) reschedule(part []Overdue, limits TakenLimits) (int, error) {
	by := make(map[capri.BatchID]Overdue, len(part))
	for _, o := range part {
		by[o.Batch] = o
	}
	rows, err := tx.lock(keysOf(by))
	if err != nil {
		return 0, err
	}
	rows = slices.DeleteFunc(rows, func(r locked) bool {
		return r.State != capri.Assigned || r.Attempt != by[r.ID].Number || r.Node != by[r.ID].Node
	})
	if len(rows) == 0 {
		return 0, nil
	}
	of := map[string][]locked{}
	for _, r := range rows {
		of[r.Node] = append(of[r.Node], r)
	}
	why := func(node string) string { return fmt.Sprintf("taken from node %s, which did not claim it", node) }
	for node, rows := range of {
		if err := tx.changeLocked(rows, tx.takenFrom(node, why(node))); err != nil {
			return 0, err
		}
	}
	err = tx.bulk("capri_reschedule_log", []string{"batch_id", "task_id", "attempt", "node", "assign_time", "taken_at", "why"}, len(rows), func(i int, args []any) []any {
		r := rows[i]
		return append(args, int64(r.ID), int64(r.TaskID), r.Attempt, r.Node, int64(by[r.ID].AssignTime), int64(tx.Now), why(r.Node))
	})
	if err != nil {
		return 0, err
	}
	return len(rows), tx.alertTaken(slices.Sorted(maps.Keys(of)), limits)
}

// alertTaken tells admins of nodes that do not claim what they are given (seed 002 §1.6.3.3), once per node, level and
// half hour. It looks only at nodes from which something was just taken: the others' numbers only fall.
func (tx *Tx) alertTaken(nodes []string, limits TakenLimits) error {
	const half = 30 * time.Minute
	type counts struct{ in10, in30 int }
	taken := map[string]counts{}
	q := takenQuery(nodes, tx.Now.Add(-10*time.Minute), tx.Now.Add(-half))
	err := tx.query(q, func(r *sql.Rows) error {
		var node string
		var c counts
		err := r.Scan(&node, &c.in30, &c.in10)
		taken[node] = c
		return err
	})
	if err != nil {
		return err
	}
	more := func(n, limit int) bool { return limit > 0 && n > limit }
	for node, c := range taken {
		var level capri.Level
		switch {
		case more(c.in10, limits.Severe10) || more(c.in30, limits.Severe30):
			level = capri.Severe
		case more(c.in10, limits.Important10) || more(c.in30, limits.Important30):
			level = capri.Important
		default:
			continue
		}
		err := tx.Alert(capri.Alert{Key: fmt.Sprintf("rescheduled:%s:%s:%d", node, level, int64(tx.Now)/half.Milliseconds()), Level: level, Kind: "rescheduled",
			Title: fmt.Sprintf("Node %s does not claim what it is given", node),
			Text: fmt.Sprintf("%d batches were taken from it within 10 minutes and %d within 30, since it had not claimed them in time. Look at its log; drain it (capri node drain %s) until it is well.",
				c.in10, c.in30, node)})
		if err != nil {
			return err
		}
	}
	return nil
}

func takenQuery(nodes []string, in10, in30 capri.Instant) sq.SelectBuilder {
	return sq.Select("node", "COUNT(*)").Column("SUM(CASE WHEN taken_at > ? THEN 1 ELSE 0 END)", int64(in10)).
		From("capri_reschedule_log").Where(sq.Eq{"node": nodes}).Where("taken_at > ?", int64(in30)).GroupBy("node")
}
