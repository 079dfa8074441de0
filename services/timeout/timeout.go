// Package timeout finds what is late and says so (seed 002 §1.3): batches that still wait, batches that have not
// succeeded, and batches that have not started when their business day ends.
//
//	batch_deadline, what has come ──▶ page by page: judge, mark, alert, and the rows go, in one transaction
//
// The instants were worked out when the batch was made (package birth) from the limits its task had then, so a turn
// reads what has come and nothing else, and a turn that dies leaves the rest where the next one finds it.
package timeout

import (
	"context"
	"time"

	"capri/services"
	"capri/sql/store"
)

// Service is the time-out service; Zone is for the times in its alerts.
type Service struct {
	Store *store.Store
	Zone  *time.Location
}

// page bounds a transaction: five hundred changes with their events and alerts stay well below the time for which
// SQLite's only writer may be busy.
const page = 500

// Run acts on every deadline that has come.
func (s Service) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	counts := map[string]int{}
	res := services.Result{Counts: counts}
	var last store.DueDeadline
	for {
		due, err := s.Store.DueDeadlines(ctx, t.Now, last, page)
		if err != nil || len(due) == 0 {
			return res, err
		}
		n, err := s.Store.ActOnDeadlines(ctx, t.Lease, due, s.Zone)
		if err != nil {
			return res, err
		}
		for name, n := range map[string]int{"dependency_timeout": n.Dependency, "output_timeout": n.Output, "expired": n.Expired} {
			if n > 0 {
				counts[name] += n
			}
		}
		if len(due) < page {
			return res, nil
		}
		last = due[len(due)-1]
	}
}
