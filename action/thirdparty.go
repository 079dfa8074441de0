package action

import (
	"context"
	"fmt"
	"slices"

	"capri"
	"capri/definition"
	"capri/sql/store"
	"capri/wake"
)

// ReportThirdParty takes what a third party says of one interval: ready, fail or withdraw. A code that no task
// waits for is taken too: the datum may be there before the task is.
func (a *Actions) ReportThirdParty(ctx context.Context, who, code string, p capri.Period, no capri.BatchNo, said, reason string) error {
	switch {
	case !definition.IsCode(code):
		return capri.Invalid("code", code, "1 to 128 letters, digits, _ . : / -")
	case !slices.Contains([]string{"ready", "fail", "withdraw"}, said):
		return capri.Invalid("said", said, "ready, fail or withdraw")
	case p == 0:
		return capri.Invalid("period", "", "hour, day, week, month, cron or manual")
	}
	iv, err := a.calendar.Parse(p, no)
	if err != nil {
		return err
	}
	detail := fmt.Sprintf("%s for %s %s", said, p, iv.BatchNo)
	if reason != "" {
		detail += ": " + reason
	}
	err = a.store.Write(ctx, "report third party", who, func(tx *store.Tx) error {
		if err := tx.ReportThirdParty(code, p, iv.BatchNo, said); err != nil {
			return err
		}
		return tx.LogAction("third_party", code, detail)
	})
	if err == nil {
		a.wake.Wake(wake.Dependency)
	}
	return err
}
