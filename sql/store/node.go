package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

var nodeColumns = []string{"host", "ip", "port", "boot_id", "pool", "slots", "last_check_time", "check_interval", "beat", "lost", "is_stop", "stop_time",
	"start_time", "memory", "cpu_load", "memory_load", "disk_free", "task_num", "kill_after_ms", "kill_grace_ms", "lease_wait", "clock_offset_ms", "lost_at", "short_of", "clients"}

// Nodes lists every registration, by name.
func (s *Store) Nodes(ctx context.Context) ([]capri.Node, error) {
	nodes, err := collect(ctx, s.read, sq.Select(nodeColumns...).From("capri_schedul_cluster").OrderBy("host"), func(r *sql.Rows, n *capri.Node) error {
		var killAfter, killGrace, offset int64
		err := r.Scan(&n.Name, &n.IP, &n.Port, &n.BootID, &n.Pool, &n.Slots, &n.LastCheckTime, &n.CheckInterval, &n.Beat, &n.Lost, &n.Draining, instant{&n.StopTime},
			&n.StartTime, &n.MemoryMB, &n.CPULoad, &n.MemoryLoad, &n.DiskFreeMB, &n.TaskNum,
			&killAfter, &killGrace, &n.LeaseWait, &offset, instant{&n.LostAt}, &n.ShortOf, &n.Clients)
		n.KillAfter, n.KillGrace, n.ClockOffset = millis(killAfter), millis(killGrace), millis(offset)
		n.Host, n.Left = n.Name, n.BootID == ""
		return err
	})
	return nodes, s.fault("list nodes", err)
}

// NameTakenError is the refusal of a registration whose name another data directory has. It is a capri.ErrConflict.
type NameTakenError struct {
	Name     string
	BootID   string
	Beat     int64         // as it was seen: to be watched, and handed back in Node.Beat when it stood still
	Interval time.Duration // between two of its beats
	Held     int           // batches that may still run there, although it was watched; 0: it was not, or it beats
}

func (e *NameTakenError) Error() string {
	if e.Held > 0 {
		return fmt.Sprintf("node %q is another data directory, which is silent and still holds %d batches that may run: start the worker on that directory, wait until the masters have called the node lost (capri node list), or give this one another name (--node)", e.Name, e.Held)
	}
	return fmt.Sprintf("a worker named %q beats already from another data directory: give this one another name (--node), or stop that one", e.Name)
}

func (e *NameTakenError) Is(target error) bool { return target == capri.ErrConflict }

// RegisterNode takes over the registration of the data directory directoryID under n.BootID.
//
// Where another directory has the name it fails with *NameTakenError, until the caller has watched that one's beat on its own
// monotonic clock, found that it stands still, and asks again with n.Beat = that beat. (The age of a beat would tell
// nothing: it was written by another clock's time.) A directory whose worker has left gives its name up at once. One
// that is silent with batches in hand keeps it: they may run there until its lease is over, and it is the masters who
// find that out and take the batches back.
func (s *Store) RegisterNode(ctx context.Context, n capri.Node, directoryID string) error {
	return s.Write(ctx, "register node "+n.Name, n.Name, func(tx *Tx) error {
		var dir string
		var seen NameTakenError
		var interval int
		var killAfter int64
		var lost, wait bool
		found, err := one(ctx, tx.tx, sq.Select("directory_id", "boot_id", "beat", "check_interval", "lost", "kill_after_ms", "lease_wait").
			From("capri_schedul_cluster").Where(sq.Eq{"host": n.Name}).Suffix(s.d.ForUpdate), &dir, &seen.BootID, &seen.Beat, &interval, &lost, &killAfter, &wait)
		if err != nil {
			return err
		}
		if found && dir != directoryID && seen.BootID != "" {
			seen.Name, seen.Interval = n.Name, time.Duration(max(1, interval))*time.Second
			if n.Beat != seen.Beat {
				return &seen
			}
			// A node without an end of its lease that nobody waits for is standalone: its directory is this database's.
			if sole := killAfter == 0 && !wait; !lost && !sole {
				if seen.Held, err = tx.held(n.Name); err != nil {
					return err
				}
				if seen.Held > 0 {
					return &seen
				}
			}
		}
		values := sq.Eq{"kill_after_ms": n.KillAfter.Milliseconds(), "kill_grace_ms": n.KillGrace.Milliseconds(), "lease_wait": bit(n.LeaseWait), "lost_at": nil,
			"ip": n.IP, "port": n.Port, "boot_id": n.BootID, "directory_id": directoryID, "pool": n.Pool, "slots": n.Slots,
			"last_check_time": int64(tx.Now), "check_interval": n.CheckInterval, "lost": 0, "start_time": int64(tx.Now),
			"memory": n.MemoryMB, "cpu_load": n.CPULoad, "memory_load": n.MemoryLoad, "disk_free": n.DiskFreeMB, "task_num": 0, "short_of": cut(n.ShortOf, 255), "clients": cut(cmp.Or(n.Clients, "?"), 255)}
		if found { // is_stop stays: a drained node that is restarted is still drained
			_, err = tx.exec(sq.Update("capri_schedul_cluster").SetMap(values).Set("beat", sq.Expr("beat + 1")).Where(sq.Eq{"host": n.Name}))
			return err
		}
		values["host"], values["beat"], values["is_stop"] = n.Name, 1, 0
		_, err = tx.exec(sq.Insert("capri_schedul_cluster").SetMap(values))
		return err
	})
}

// LeaveNode notes that the boot's worker has stopped in order, so that another directory may have the name at once. It
// does nothing while batches of the node are not over: their jobs run on, and the next worker of the directory takes
// them over.
func (s *Store) LeaveNode(ctx context.Context, node, boot string) (left bool, err error) {
	err = s.Write(ctx, "leave node "+node, node, func(tx *Tx) error {
		left = false
		var is string
		found, err := one(ctx, tx.tx, sq.Select("boot_id").From("capri_schedul_cluster").Where(sq.Eq{"host": node}).Suffix(s.d.ForUpdate), &is)
		if err != nil || !found || is != boot {
			return err
		}
		held, err := tx.held(node)
		if err != nil || held > 0 {
			return err
		}
		left = true
		_, err = tx.exec(sq.Update("capri_schedul_cluster").Set("boot_id", "").Set("task_num", 0).Where(sq.Eq{"host": node}))
		return err
	})
	return left, err
}

// held counts the batches that a node has claimed and not finished. Claims keep the node's row (proveNode), so who has
// locked that row counts right.
func (tx *Tx) held(node string) (n int, err error) {
	_, err = one(tx.ctx, tx.tx, sq.Select("COUNT(*)").From("task_work").Where(sq.Eq{"node": node, "state": int(capri.Running)}).Suffix(tx.s.d.ForShare), &n)
	return n, err
}

// Beat renews the registration of this boot and carries the node's load. ok is false when another boot has taken
// over, the node was called lost, or somebody removed it: its jobs are no longer its own.
func (s *Store) Beat(ctx context.Context, n capri.Node) (ok bool, err error) {
	now := sq.Expr(s.d.NowMillis)
	if s.now != nil {
		now = sq.Expr("?", int64(s.now()))
	}
	text, args, err := sq.Update("capri_schedul_cluster").Set("last_check_time", now).Set("beat", sq.Expr("beat + 1")).
		Set("cpu_load", n.CPULoad).Set("memory_load", n.MemoryLoad).Set("disk_free", n.DiskFreeMB).Set("task_num", n.TaskNum).Set("clock_offset_ms", n.ClockOffset.Milliseconds()).
		Set("short_of", cut(n.ShortOf, 255)).
		Where(sq.Eq{"host": n.Name, "boot_id": n.BootID, "lost": 0}).ToSql()
	if err != nil {
		return false, err
	}
	r, err := s.beat.ExecContext(ctx, text, args...)
	if err != nil {
		return false, s.fault("beat of node "+n.Name, err)
	}
	found, err := r.RowsAffected()
	return found == 1, s.fault("beat of node "+n.Name, err)
}

// DrainNode makes a node take nothing new (seed 002 §2.5), or lets it take work again.
func (tx *Tx) DrainNode(name string, drain bool) error {
	if err := tx.note("capri_schedul_cluster", sq.Eq{"host": name}); err != nil {
		return err
	}
	stop := any(nil)
	if drain {
		stop = int64(tx.Now)
	}
	n, err := tx.exec(sq.Update("capri_schedul_cluster").Set("is_stop", bit(drain)).Set("stop_time", stop).Where(sq.Eq{"host": name}))
	if err == nil && n == 0 {
		return capri.NotFound("there is no node %q", name)
	}
	return err
}

// removableAfter is how silent a node with batches in hand must be before it is removed: longer than one keeps its jobs
// without an answer, so that only a node that is told to wait has to be judged by the person who removes it.
const removableAfter = 3 * time.Minute

// RemoveNode forgets a registration. What a silent node still has in hand is taken from it by the service of lost nodes.
func (tx *Tx) RemoveNode(name string) error {
	if err := tx.note("capri_schedul_cluster", sq.Eq{"host": name}); err != nil {
		return err
	}
	var beat capri.Instant
	busy := 0
	found, err := one(tx.ctx, tx.tx, sq.Select("last_check_time").From("capri_schedul_cluster").Where(sq.Eq{"host": name}).Suffix(tx.s.d.ForUpdate), &beat)
	if err == nil && !found {
		err = capri.NotFound("there is no node %q", name)
	}
	if err != nil {
		return err
	}
	if _, err := one(tx.ctx, tx.tx, sq.Select("COUNT(*)").From("task_work").Where(sq.Eq{"node": name, "state": []int{1, 2}}).Suffix(tx.s.d.ForShare), &busy); err != nil {
		return err
	}
	if busy > 0 && tx.Now.Sub(beat) < removableAfter {
		return capri.Conflict("node %q still has %d batches assigned or running: drain it and wait, or wait until it has been silent for %s", name, busy, removableAfter)
	}
	_, err = tx.exec(sq.Delete("capri_schedul_cluster").Where(sq.Eq{"host": name}))
	return err
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
