package store

import (
	"context"
	"database/sql"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// What monitoring asks all the time: each question is a walk on an index whose length is bounded by what it counts.

// Gauges are figures of the work in hand.
type Gauges struct {
	Batches    map[string]int // unfinished ones: blocked (conditions unmet), ready, assigned, running
	ReadySince capri.Instant  // since when the batch has been ready that has waited longest, of the first of each priority; 0: none is
	Filing     Queue          // alerts that belong to no incident yet
	Messages   map[string]Queue
	NextFire   capri.Instant // the oldest fire of cron that is not a batch yet; 0: none is planned
}

// Queue is how many wait, and since when the oldest.
type Queue struct {
	Waiting int
	Oldest  capri.Instant
}

// Pool is how connections are used.
type Pool = sql.DBStats

// Pools are the connections of this process, by what they are for.
func (s *Store) Pools() map[string]Pool {
	pools := map[string]Pool{"read": s.read.Stats()}
	if s.write != s.read {
		pools["write"] = s.write.Stats()
	}
	if s.beat != s.write {
		pools["beat"] = s.beat.Stats()
	}
	return pools
}

func countQuery() sq.SelectBuilder {
	return sq.Select("state", "COUNT(*)").From("task_work").Where("state < 3").GroupBy("state")
}

func countReadyQuery() sq.SelectBuilder {
	return sq.Select("COUNT(*)").From("task_work").Where("state = 0 AND unmet = 0")
}

// oldestReady gives the first of a priority that may start now. What is held or not yet due stands in its way and is
// stepped over: a page of them at most.
func oldestReady(priority int, now capri.Instant) sq.SelectBuilder {
	return sq.Select("schedule_time", "create_time", "not_before").From("task_work").
		Where("state = 0 AND unmet = 0 AND priority = ? AND held = 0 AND not_before <= ?", priority, int64(now)).OrderBy("schedule_time").Limit(1)
}

func queueQuery(channel string) sq.SelectBuilder {
	return sq.Select("COUNT(*)", "COALESCE(MIN(created_at), 0)").From("alert_delivery").Where("channel = ? AND state = 0", channel)
}

func filingQuery() sq.SelectBuilder {
	return sq.Select("COUNT(*)", "COALESCE(MIN(created_at), 0)").From("alert").Where("incident_id = 0")
}

// Gauges reads them, with the messages of the channels named.
func (s *Store) Gauges(ctx context.Context, channels []string) (Gauges, error) {
	g := Gauges{Batches: map[string]int{"blocked": 0, "ready": 0, "assigned": 0, "running": 0}, Messages: map[string]Queue{}}
	now, err := s.Now(ctx)
	if err != nil {
		return g, err
	}
	err = query(ctx, s.read, countQuery(), func(r *sql.Rows) error {
		var state capri.State
		var n int
		err := r.Scan(&state, &n)
		g.Batches[map[capri.State]string{capri.Waiting: "blocked", capri.Assigned: "assigned", capri.Running: "running"}[state]] = n
		return err
	})
	if err == nil {
		ready := 0
		_, err = one(ctx, s.read, countReadyQuery(), &ready)
		g.Batches["ready"] = ready
		g.Batches["blocked"] = max(0, g.Batches["blocked"]-ready) // the two counts are not of one moment
	}
	for priority := 0; priority <= 9 && err == nil; priority++ {
		var scheduled, created, notBefore capri.Instant
		var found bool
		found, err = one(ctx, s.read, oldestReady(priority, now), &scheduled, &created, &notBefore)
		if since := max(scheduled, created, notBefore); found && (g.ReadySince == 0 || since < g.ReadySince) {
			g.ReadySince = since
		}
	}
	for _, channel := range channels {
		if err == nil {
			var q Queue
			_, err = one(ctx, s.read, queueQuery(channel), &q.Waiting, &q.Oldest)
			g.Messages[channel] = q
		}
	}
	if err == nil {
		_, err = one(ctx, s.read, filingQuery(), &g.Filing.Waiting, &g.Filing.Oldest)
	}
	if err == nil {
		_, err = one(ctx, s.read, sq.Select("COALESCE(MIN(fire), 0)").From("cron_due"), &g.NextFire)
	}
	return g, s.fault("read the figures of the work in hand", err)
}
