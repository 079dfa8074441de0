package action

import (
	"context"
	"fmt"
	"slices"

	"capri"
	"capri/sql/store"
	"capri/wake"
)

// QualityVerdict takes what the quality API, or a person, says of a batch that waits at its quality gate. ask is the
// question that is answered; 0 is a person's word, which needs no question.
func (a *Actions) QualityVerdict(ctx context.Context, who string, id capri.BatchID, ask int, verdict, reason string) error {
	if !slices.Contains([]string{"runnable", "blocked"}, verdict) {
		return capri.Invalid("verdict", verdict, "runnable or blocked")
	}
	runnable := verdict == "runnable"
	detail := fmt.Sprintf("%s, question %d", verdict, ask)
	if ask == 0 {
		detail = verdict + ", by hand"
	}
	if reason != "" {
		detail += ": " + reason
	}
	b, err := a.store.Batch(ctx, id)
	if err != nil {
		return err
	}
	err = a.store.Write(ctx, "take a quality verdict", who, func(tx *store.Tx) error {
		// The same verdict again is harmless, as after a lost answer; it is logged all the same, since somebody did ask.
		if _, err := tx.QualityVerdict(id, ask, runnable, reason); err != nil {
			return err
		}
		return tx.LogChanges(store.Change{Action: "quality_verdict", Target: fmt.Sprintf("batch %d", id), Detail: detail, Task: b.TaskID})
	})
	if err == nil && runnable {
		a.wake.Wake(wake.Dispatch)
	}
	return err
}
