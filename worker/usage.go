package worker

import (
	"context"

	"capri"
	"capri/sql/store"
)

// reportUsage tells what running jobs use, until ctx ends: of those that use more than was told before.
func (w *Worker) reportUsage(ctx context.Context) {
	told := map[capri.Attempt]store.Usage{}
	for sleep(ctx, w.o.usage) {
		running, err := w.shims.Running(ctx)
		if err != nil {
			continue
		}
		more, still := map[capri.Attempt]store.Usage{}, map[capri.Attempt]store.Usage{}
		for _, r := range running {
			a := w.table.get(r.Attempt)
			if a == nil || r.MemoryMB == 0 {
				continue
			}
			still[r.Attempt] = store.Usage{MemoryMB: r.MemoryMB, Processes: r.Processes, AskedMB: a.memory}
			if still[r.Attempt] != told[r.Attempt] {
				more[r.Attempt] = still[r.Attempt]
			}
		}
		if len(more) == 0 {
			continue
		}
		if err := w.db.ReportUsage(ctx, w.node, more); err == nil {
			told = still
		} else {
			w.health.note(err)
		}
	}
}
