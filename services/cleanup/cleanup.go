// Package cleanup keeps the database small: each night it archives batches that finished long ago and forgets alerts of
// more than a year, and sessions, tokens and keys that ended more than a week ago (seed 002 §1.7; the scripts and logs on the
// workers are cleaned by each worker itself).
//
//	02:10 ──▶ pages of task_work by id ──▶ finished before (now − archive_after_days)? ──▶ task_work_archive
//	                                                                                       batch_event_archive
//
// It moves some hundred batches a transaction and some thousand a turn, and asks for the next turn at once: other work
// goes on in between, on SQLite too, and a lease that is wanted elsewhere is not held for an hour. A death in the middle
// leaves whole batches on either side; the next night, or the next leader, goes on.
package cleanup

import (
	"context"
	"time"

	"capri"
	"capri/services"
	"capri/sql/store"
)

const (
	step         = 200 // batches of one transaction: below 50 ms on SQLite, with their events and conditions
	stepsATurn   = 25
	alertsAStep  = 1000
	alertsKeptIn = 366 * 24 * time.Hour

	campaignsAStep  = 100
	previewsKeptIn  = 24 * time.Hour
	campaignsKeptIn = 90 * 24 * time.Hour
	keysKeptIn      = 7 * 24 * time.Hour // sessions, tokens and keys that have ended, failures to log in
)

// Service cleans up. Make it with New.
type Service struct {
	store *store.Store
	// after is how far the walk of this night has come. Nothing but time is lost with it: a new leader walks from the
	// first batch again, over what stays.
	after capri.BatchID
	epoch capri.Epoch
}

// New makes the service.
func New(s *store.Store) *Service { return &Service{store: s} }

// Run takes some steps of the night's walk.
func (s *Service) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	res := services.Result{Counts: map[string]int{}}
	if s.epoch != t.Lease.Epoch {
		s.after, s.epoch = 0, t.Lease.Epoch
	}
	archived, err := s.archive(ctx, t, &res)
	if archived > 0 {
		res.Counts["archived"] = archived
	}
	if err != nil || res.Again {
		return res, err
	}
	campaigns, err := s.store.ForgetCampaigns(ctx, t.Lease, t.Now.Add(-previewsKeptIn), t.Now.Add(-campaignsKeptIn), campaignsAStep)
	if campaigns > 0 {
		res.Counts["campaigns"] = campaigns
	}
	if err != nil {
		return res, err
	}
	incidents, err := s.store.ForgetIncidents(ctx, t.Lease, t.Now.Add(-alertsKeptIn), alertsAStep)
	if incidents > 0 {
		res.Counts["incidents"] = incidents
	}
	if err != nil {
		return res, err
	}
	answers, err := s.store.ForgetRepeatables(ctx, t.Lease, t.Now.Add(-store.RepeatsKept), alertsAStep)
	if answers > 0 {
		res.Counts["answers"] = answers
	}
	if err != nil {
		return res, err
	}
	forgotten, err := s.store.ForgetAlerts(ctx, t.Lease, t.Now.Add(-alertsKeptIn), alertsAStep)
	if forgotten > 0 {
		res.Counts["alerts"] = forgotten
	}
	if err != nil {
		return res, err
	}
	ended, err := s.store.ForgetCredentials(ctx, t.Lease, t.Now.Add(-keysKeptIn), alertsAStep)
	if ended > 0 {
		res.Counts["credentials"] = ended
	}
	res.Again = forgotten == alertsAStep || answers == alertsAStep || ended >= alertsAStep || campaigns == campaignsAStep
	return res, err
}

// archive sets res.Again where the walk has not come to its end.
func (s *Service) archive(ctx context.Context, t services.Turn, res *services.Result) (archived int, err error) {
	days, err := s.store.SettingInt(ctx, store.ArchiveDays, 0)
	if err != nil || days == 0 {
		return 0, err
	}
	// A century is as good as never, and a number that overflows would be a time to come.
	before := t.Now.Add(-time.Duration(min(days, 36_500)) * 24 * time.Hour)
	for range stepsATurn {
		ids, next, err := s.store.OldBatches(ctx, s.after, before, step)
		if err != nil {
			return archived, err
		}
		if len(ids) > 0 {
			n, err := s.store.ArchiveBatches(ctx, t.Lease, before, ids)
			if err != nil {
				return archived, err
			}
			archived += n
		}
		if s.after = next; next == 0 {
			return archived, nil
		}
	}
	res.Again = true
	return archived, nil
}
