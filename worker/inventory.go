package worker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"capri"
)

// inventoryAtLeast: the report is repeated although nothing changed, so that two reports without an attempt mean that it
// is missing and not that nobody has looked.
const inventoryAtLeast = 10 * time.Minute

// reportInventories tells what the node has in hand, of whatever phase, until ctx ends: at once, since everything was
// adopted before, and then each Options.inventory when it changed.
func (w *Worker) reportInventories(ctx context.Context) {
	var last []capri.Attempt
	var boot string
	var at time.Time // zero: never
	for {
		now := w.table.all()
		slices.SortFunc(now, func(a, b capri.Attempt) int {
			return cmp.Or(cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Number, b.Number))
		})
		ours := w.registered()
		if ours != "" && (at.IsZero() || ours != boot || time.Since(at) >= inventoryAtLeast || !slices.Equal(now, last)) {
			err := w.db.ReportInventory(ctx, w.node, ours, now)
			if w.health.note(err); err == nil {
				last, boot, at = now, ours, time.Now()
			}
		}
		if !sleep(ctx, w.o.inventory) {
			return
		}
	}
}
