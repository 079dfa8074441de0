package generate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/sql/store"
)

// outage tells people once what was caught up, when nothing is left to be made. All that it says is read from the mark
// log, so a leader that dies in the middle of a catch-up leaves the telling to the next one: a new leader looks once,
// and then whoever made a late mark.
func (w *work) outage(ctx context.Context) error {
	if w.again || !w.late && w.looked == w.turn.Lease.Epoch {
		return nil
	}
	o, err := w.store.Outage(ctx, catchUp)
	if err != nil {
		return err
	}
	if len(o.Marks) > 0 {
		if err := w.tellOutage(ctx, o); err != nil {
			return err
		}
	}
	w.looked = w.turn.Lease.Epoch
	return nil
}

func (w *work) tellOutage(ctx context.Context, o store.Outage) error {
	at := func(i capri.Instant) string { return i.In(w.calendar.Zone()).Format(time.DateTime) }
	slices.SortFunc(o.Marks, func(a, b store.Mark) int { return cmp.Compare(a.Mark, b.Mark) })
	var text strings.Builder
	fmt.Fprintf(&text, "Nothing was generated from %s to %s. Caught up since then:", at(o.Since), at(o.Until))
	for _, p := range []capri.Period{capri.Month, capri.Week, capri.Day, capri.Hour} {
		var sum store.Mark
		var first, last capri.Instant
		marks := 0
		for _, m := range o.Marks {
			if m.Period != p {
				continue
			}
			marks++
			first, last = cmp.Or(first, m.Mark), m.Mark
			sum.Made, sum.Present, sum.Skipped, sum.Failed = sum.Made+m.Made, sum.Present+m.Present, sum.Skipped+m.Skipped, sum.Failed+m.Failed
		}
		if marks > 0 {
			fmt.Fprintf(&text, "\n%s: marks %d (%s to %s), batches made %d, there already %d, skipped %d, failed %d", p, marks, at(first), at(last), sum.Made, sum.Present, sum.Skipped, sum.Failed)
		}
	}
	if o.Fires > 0 {
		fmt.Fprintf(&text, "\ncron: batches made %d", o.Fires)
	}
	return w.store.WriteAs(ctx, "alert of an outage", w.turn.Lease, func(tx *store.Tx) error {
		return tx.Alert(capri.Alert{Key: fmt.Sprintf("%s:%d", store.OutageAlert, o.Marks[0].Mark), Level: capri.Important, Kind: store.OutageAlert,
			Title: fmt.Sprintf("Nothing was generated for %s: %d marks were caught up", o.Until.Sub(o.Since).Round(time.Minute), len(o.Marks)), Text: text.String()})
	})
}
