package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// SettingInts gives several settings as numbers of at least 0, by one query: the monitor reads a score each minute. One
// that people broke by hand counts as its default and is logged, since a service must go on.
func (s *Store) SettingInts(ctx context.Context, names ...string) (map[string]int, error) {
	out := map[string]int{}
	for _, name := range names {
		n, err := strconv.Atoi(settingDefaults[name])
		if err != nil {
			return nil, s.fault("read settings", capri.Invalid("setting", name, "the name of a number"))
		}
		out[name] = n
	}
	err := query(ctx, s.read, sq.Select("name", "value").From("dic_data").Where(sq.Eq{"name": names}), func(r *sql.Rows) error {
		var name, value string
		if err := r.Scan(&name, &value); err != nil {
			return err
		}
		if n, err := strconv.Atoi(value); err == nil && n >= 0 {
			out[name] = n
			return nil
		}
		s.log.Warn("a setting in dic_data is no such number, its default counts", "setting", name, "value", value, "least", 0, "default", settingDefaults[name])
		return nil
	})
	return out, s.fault("read settings", err)
}

// Repair is a recount that found wrong counts of unmet conditions.
type Repair struct {
	At       capri.Instant
	Repaired int
}

// Repairs lists the recounts after an instant that had to repair something.
func (s *Store) Repairs(ctx context.Context, after capri.Instant) ([]Repair, error) {
	var out []Repair
	// The text is what RecordRun writes; it only spares reading the other turns, what counts is in the JSON.
	q := sq.Select("started_at", "counts").From("service_run").Where(sq.Eq{"service": "dependency"}).Where("started_at > ?", int64(after)).Where(`counts LIKE '%"repaired"%'`).OrderBy("started_at")
	err := query(ctx, s.read, q, func(rows *sql.Rows) error {
		var r Repair
		var text string
		if err := rows.Scan(&r.At, &text); err != nil {
			return err
		}
		counts := map[string]int{}
		if err := json.Unmarshal([]byte(text), &counts); err != nil {
			return err
		}
		if r.Repaired = counts["repaired"]; r.Repaired > 0 {
			out = append(out, r)
		}
		return nil
	})
	return out, s.fault("look for recounts that repaired", err)
}

// LastEnded is how and when the batch of a task ended that ended last, of the latest runs; found is false where none
// has, or there is no such task.
func (s *Store) LastEnded(ctx context.Context, task string) (how capri.FinishState, at capri.Instant, found bool, err error) {
	found, err = one(ctx, s.read, sq.Select("w.finish_state", "w.finish_time").From("task t").Join("task_work w ON w.task_id = t.id").
		Where(sq.Eq{"t.name": task, "t.deleted_at": nil, "w.latest": 1, "w.state": int(capri.Finished)}).OrderBy("w.finish_time DESC").Limit(1), &how, instant{&at})
	return how, at, found, s.fault("look how task "+task+" ended", err)
}
