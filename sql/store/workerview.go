package store

import (
	"context"
	"database/sql"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// HeldAttempt is an attempt that a node has claimed and not finished.
type HeldAttempt struct {
	capri.Attempt
	Started bool
}

// HeldAttempts is HeldBy without the snapshots: a worker compares it with what it runs every now and then.
func (s *Store) HeldAttempts(ctx context.Context, node string) ([]HeldAttempt, error) {
	var out []HeldAttempt
	err := query(ctx, s.read, sq.Select("id", "attempt", "start_time").From("task_work").Where(sq.Eq{"node": node, "state": int(capri.Running)}), func(r *sql.Rows) error {
		var a HeldAttempt
		var start capri.Instant
		err := r.Scan(&a.Batch, &a.Number, instant{&start})
		a.Started = start != 0
		out = append(out, a)
		return err
	})
	return out, s.fault("list a node's attempts", err)
}

// OutputsOfAll reads the output paths of many batches.
func (s *Store) OutputsOfAll(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID][]capri.PathCondition, error) {
	out := map[capri.BatchID][]capri.PathCondition{}
	for _, part := range chunks(ids, s.d.ChunkRows) {
		err := query(ctx, s.read, sq.Select("batch_id", "path", "flag").From("task_data").Where(sq.Eq{"type": typeOutput}).Where(idIn("batch_id", part)).OrderBy("batch_id", "seq"), func(r *sql.Rows) error {
			var id capri.BatchID
			var p capri.PathCondition
			err := r.Scan(&id, &p.Path, &p.Flag)
			out[id] = append(out[id], p)
			return err
		})
		if err != nil {
			return nil, s.fault("read output paths", err)
		}
	}
	return out, nil
}
