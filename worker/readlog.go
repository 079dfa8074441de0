package worker

import (
	"context"

	"capri"
	"capri/files"
	"capri/sql/store"
	"capri/worker/logs"
)

// ReadLog reads to limit bytes (0: 64 KiB; at most 1 MiB) of what an attempt wrote, from offset, a negative one
// counted from the end. It gives the offset to go on with, and whether nothing will follow. It holds no more than it
// gives, however large the log and however long its lines.
func (w *Worker) ReadLog(_ context.Context, batch store.BatchRow, attempt int, stderr bool, offset int64, limit int) (data []byte, next int64, complete bool, err error) {
	stream := logs.Out
	if stderr {
		stream = logs.Err
	}
	return w.readLog(batch.Task, capri.Attempt{Batch: batch.ID, Number: attempt}, stream, offset, limit)
}

func (w *Worker) readLog(task string, a capri.Attempt, s logs.Stream, offset int64, limit int) ([]byte, int64, bool, error) {
	name, err := logs.Name(task, a, s)
	if err != nil {
		return nil, 0, false, err
	}
	c, err := w.logs.ReadAt(name, offset, limit)
	return c.Data, c.Next, c.Complete, err
}

// ReadKeptLog is ReadLog from the log store, for nodes that do not answer.
func ReadKeptLog(ctx context.Context, from files.Store, node string, batch store.BatchRow, attempt int, stderr bool, offset int64, limit int) (data []byte, next int64, complete bool, err error) {
	stream := logs.Out
	if stderr {
		stream = logs.Err
	}
	name, err := logs.Name(batch.Task, capri.Attempt{Batch: batch.ID, Number: attempt}, stream)
	if err != nil {
		return nil, 0, false, err
	}
	kept, err := logs.NewKept(from, node, 0)
	if err != nil {
		return nil, 0, false, err
	}
	c, err := kept.ReadAt(ctx, name, offset, limit)
	return c.Data, c.Next, c.Complete, err
}
