package store

import (
	"context"
	"database/sql"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

var nodeColumns = []string{"host", "ip", "port", "boot_id", "pool", "slots", "last_check_time", "check_interval", "beat", "lost", "is_stop", "stop_time",
	"start_time", "memory", "cpu_load", "memory_load", "disk_free", "task_num"}

// Nodes lists every registration, by name.
func (s *Store) Nodes(ctx context.Context) ([]capri.Node, error) {
	var nodes []capri.Node
	err := query(ctx, s.read, sq.Select(nodeColumns...).From("capri_schedul_cluster").OrderBy("host"), func(r *sql.Rows) error {
		var n capri.Node
		err := r.Scan(&n.Name, &n.IP, &n.Port, &n.BootID, &n.Pool, &n.Slots, &n.LastCheckTime, &n.CheckInterval, &n.Beat, &n.Lost, &n.Draining, instant{&n.StopTime},
			&n.StartTime, &n.MemoryMB, &n.CPULoad, &n.MemoryLoad, &n.DiskFreeMB, &n.TaskNum)
		n.Host = n.Name
		nodes = append(nodes, n)
		return err
	})
	return nodes, s.fault("list nodes", err)
}

// RegisterNode takes over the registration of the data directory directoryID under n.BootID. A node of the same name
// from another directory is refused while its registration is younger than three of its beats.
func (s *Store) RegisterNode(ctx context.Context, n capri.Node, directoryID string) error {
	return s.Write(ctx, "register node "+n.Name, n.Name, func(tx *Tx) error {
		var dir string
		var last capri.Instant
		var interval int
		found, err := one(ctx, tx.tx, sq.Select("directory_id", "last_check_time", "check_interval").From("capri_schedul_cluster").Where(sq.Eq{"host": n.Name}).
			Suffix(s.d.ForUpdate), &dir, &last, &interval)
		if err != nil {
			return err
		}
		if found && dir != directoryID && int64(tx.Now-last) < int64(interval)*3000 {
			return capri.Conflict("a worker named %q beats already from another data directory: give this one another name (--node), or stop that one", n.Name)
		}
		values := sq.Eq{"ip": n.IP, "port": n.Port, "boot_id": n.BootID, "directory_id": directoryID, "pool": n.Pool, "slots": n.Slots,
			"last_check_time": int64(tx.Now), "check_interval": n.CheckInterval, "lost": 0, "start_time": int64(tx.Now),
			"memory": n.MemoryMB, "cpu_load": n.CPULoad, "memory_load": n.MemoryLoad, "disk_free": n.DiskFreeMB, "task_num": 0}
		if found { // is_stop stays: a drained node that is restarted is still drained
			_, err = tx.exec(sq.Update("capri_schedul_cluster").SetMap(values).Set("beat", sq.Expr("beat + 1")).Where(sq.Eq{"host": n.Name}))
			return err
		}
		values["host"], values["beat"], values["is_stop"] = n.Name, 1, 0
		_, err = tx.exec(sq.Insert("capri_schedul_cluster").SetMap(values))
		return err
	})
}

// Beat renews the registration of this boot and carries the node's load. ok is false when another boot has taken
// over, the node was called lost, or somebody removed it: its jobs are no longer its own.
func (s *Store) Beat(ctx context.Context, n capri.Node) (ok bool, err error) {
	now := sq.Expr(s.d.NowMillis)
	if s.now != nil {
		now = sq.Expr("?", int64(s.now()))
	}
	text, args, err := sq.Update("capri_schedul_cluster").Set("last_check_time", now).Set("beat", sq.Expr("beat + 1")).
		Set("cpu_load", n.CPULoad).Set("memory_load", n.MemoryLoad).Set("disk_free", n.DiskFreeMB).Set("task_num", n.TaskNum).
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

// RemoveNode forgets a registration that has no batches in hand.
func (tx *Tx) RemoveNode(name string) error {
	busy := 0
	if _, err := one(tx.ctx, tx.tx, sq.Select("COUNT(*)").From("task_work").Where(sq.Eq{"node": name, "state": []int{1, 2}}).Suffix(tx.s.d.ForShare), &busy); err != nil {
		return err
	}
	if busy > 0 {
		return capri.Conflict("node %q still has %d batches assigned or running: drain it and wait", name, busy)
	}
	n, err := tx.exec(sq.Delete("capri_schedul_cluster").Where(sq.Eq{"host": name}))
	if err == nil && n == 0 {
		return capri.NotFound("there is no node %q", name)
	}
	return err
}
