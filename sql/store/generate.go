package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// Mark is a row of the mark log with its ledger.
type Mark struct {
	Period                                   capri.Period
	Mark                                     capri.Instant
	Expected, Made, Present, Skipped, Failed int
	Complete                                 bool
	StartedAt, CompletedAt                   capri.Instant
}

// LastMark is the newest complete mark of a period; ok is false for an empty log.
func (s *Store) LastMark(ctx context.Context, p capri.Period) (last capri.Instant, ok bool, err error) {
	ok, err = one(ctx, s.read, sq.Select("mark").From("generate_mark").Where(sq.Eq{"period": int(p), "complete": 1}).OrderBy("mark DESC").Limit(1), &last)
	return last, ok, s.fault("read the mark log", err)
}

// Marks reads the newest rows of the mark log of a period.
func (s *Store) Marks(ctx context.Context, p capri.Period, limit int) ([]Mark, error) {
	return s.markLog(ctx, sq.Eq{"period": int(p)}, limit)
}

func (s *Store) markLog(ctx context.Context, which sq.Sqlizer, limit int) ([]Mark, error) {
	out, err := collect(ctx, s.read, sq.Select("period", "mark", "expected", "made", "present", "skipped", "failed", "complete", "started_at", "completed_at").From("generate_mark").
		Where(which).OrderBy("mark DESC").Limit(uint64(limit)), func(r *sql.Rows, m *Mark) error {
		return r.Scan(&m.Period, &m.Mark, &m.Expected, &m.Made, &m.Present, &m.Skipped, &m.Failed, &m.Complete, &m.StartedAt, instant{&m.CompletedAt})
	})
	return out, s.fault("read the mark log", err)
}

// OutageAlert is the kind, and the beginning of the key, of the alert that tells of an outage.
const OutageAlert = "outage_caught_up"

// Outage is what was caught up since the last alert of one.
type Outage struct {
	Since, Until capri.Instant // nothing was generated in between
	Marks        []Mark        // that were begun late
	Fires        int           // batches of cron fires that were made late
}

// Outage reads the marks that were begun more than late after their time, and that no alert has told of yet. The alerts
// are the memory of what was told: each late mark is in one of them.
func (s *Store) Outage(ctx context.Context, late time.Duration) (Outage, error) {
	var o Outage
	told := sq.Select("COALESCE(MAX(created_at), 0)").From("alert").Where("alert_key > ? AND alert_key < ?", OutageAlert+":", OutageAlert+";")
	since, args, err := told.ToSql()
	if err != nil {
		return o, err
	}
	o.Marks, err = s.markLog(ctx, sq.And{sq.Eq{"complete": 1}, sq.Expr("started_at - mark > ?", late.Milliseconds()), sq.Expr("completed_at > ("+since+")", args...)}, 100_000)
	if err != nil || len(o.Marks) == 0 {
		return o, err
	}
	o.Until = o.Marks[0].StartedAt
	first := o.Marks[0].Mark
	for _, m := range o.Marks {
		o.Until, first = min(o.Until, m.StartedAt), min(first, m.Mark)
	}
	if _, err := one(ctx, s.read, sq.Select("MAX(completed_at)").From("generate_mark").Where("completed_at < ?", int64(o.Until)), instant{&o.Since}); err != nil {
		return o, s.fault("read the mark log", err)
	}
	o.Since = cmp.Or(o.Since, first) // a log that somebody cut off
	_, err = one(ctx, s.read, sq.Select("COUNT(*)").From("task_work").Where(sq.Eq{"period": int(capri.Cron), "origin": int(capri.OriginCatchUp)}).
		Where("schedule_time >= ? AND schedule_time <= ?", int64(o.Since), int64(o.Until)), &o.Fires)
	return o, s.fault("count the fires that were caught up", err)
}

// StartMarkLog makes the log of a period begin: marks after `at` are generated from now on. It changes nothing where
// a log exists.
func (s *Store) StartMarkLog(ctx context.Context, lease capri.Lease, p capri.Period, at capri.Instant) error {
	if _, ok, err := s.LastMark(ctx, p); err != nil || ok {
		return err
	}
	return s.CompleteMark(ctx, lease, Mark{Period: p, Mark: at, StartedAt: at})
}

// CompleteMark writes that a mark is done; the ledger has to add up. Failures of this mark that are not among failed
// are from a turn that died before it came here: this turn has made those.
func (s *Store) CompleteMark(ctx context.Context, lease capri.Lease, m Mark, failed ...capri.TaskID) error {
	if m.Expected != m.Made+m.Present+m.Skipped+m.Failed {
		return fmt.Errorf("complete mark %s %s: expected %d, but made %d + present %d + skipped %d + failed %d", m.Period, m.Mark, m.Expected, m.Made, m.Present, m.Skipped, m.Failed)
	}
	return s.WriteAs(ctx, "complete a mark", lease, func(tx *Tx) error {
		if _, err := tx.exec(sq.Delete("generate_failure").Where(sq.Eq{"period": int(m.Period), "mark": int64(m.Mark)}).Where(sq.Expr("NOT (?)", idIn("task_id", failed)))); err != nil {
			return err
		}
		_, err := tx.exec(sq.Insert("generate_mark").Columns("period", "mark", "expected", "made", "present", "skipped", "failed", "complete", "started_at", "completed_at").
			Values(int(m.Period), int64(m.Mark), m.Expected, m.Made, m.Present, m.Skipped, m.Failed, 1, int64(m.StartedAt), int64(tx.Now)).
			Suffix(s.d.Upsert([]string{"period", "mark"}, "expected", "made", "present", "skipped", "failed", "complete", "completed_at")))
		return err
	})
}

// GenerateFailure is a task whose batch could not be made at a mark.
type GenerateFailure struct {
	Period capri.Period
	Mark   capri.Instant
	Task   capri.TaskID
	Tries  int
	Error  string
}

// retryFailedEvery is how long a failed task waits for its next try at a mark (design §3); an edit tries at once.
const retryFailedEvery = 10 * time.Minute

// FailGeneration keeps a failed task in the ledger, with its owner's alert.
func (s *Store) FailGeneration(ctx context.Context, lease capri.Lease, f GenerateFailure, name string) error {
	return s.WriteAs(ctx, "record a failed generation", lease, func(tx *Tx) error {
		_, err := tx.exec(sq.Insert("generate_failure").Columns("period", "mark", "task_id", "tries", "next_try", "error").
			Values(int(f.Period), int64(f.Mark), int64(f.Task), f.Tries, int64(tx.Now.Add(retryFailedEvery)), cut(f.Error, 1000)).
			Suffix(s.d.Upsert([]string{"period", "mark", "task_id"}, "tries", "next_try", "error")))
		if err != nil {
			return err
		}
		return tx.Alert(capri.Alert{Key: fmt.Sprintf("generate_failed:%d:%d:%d", f.Period, f.Mark, f.Task), Level: capri.Important, Kind: "generate_failed", Task: f.Task,
			Title: fmt.Sprintf("Task %s: no batch for the %s mark %s", name, f.Period, f.Mark), Text: f.Error})
	})
}

// FailuresDue lists failed tasks whose next try has come.
func (s *Store) FailuresDue(ctx context.Context, now capri.Instant, limit int) ([]GenerateFailure, error) {
	out, err := collect(ctx, s.read, sq.Select("period", "mark", "task_id", "tries", "error").From("generate_failure").Where("next_try <= ?", int64(now)).OrderBy("mark", "task_id").Limit(uint64(limit)), func(r *sql.Rows, f *GenerateFailure) error {
		return r.Scan(&f.Period, &f.Mark, &f.Task, &f.Tries, &f.Error)
	})
	return out, s.fault("list failed generations", err)
}

// SettleFailure moves a task from failed to made (or present) in the ledger of its mark; with InsertBatches.
func (tx *Tx) SettleFailure(f GenerateFailure, made bool) error {
	n, err := tx.exec(sq.Delete("generate_failure").Where(sq.Eq{"period": int(f.Period), "mark": int64(f.Mark), "task_id": int64(f.Task)}))
	if err != nil || n == 0 {
		return err
	}
	column := "present"
	if made {
		column = "made"
	}
	_, err = tx.exec(sq.Update("generate_mark").Set("failed", sq.Expr("failed - 1")).Set(column, sq.Expr(column+" + 1")).
		Where(sq.Eq{"period": int(f.Period), "mark": int64(f.Mark)}))
	return err
}

// RetryFailures makes the failed generations of edited tasks due at once.
func (tx *Tx) RetryFailures(tasks []capri.TaskID) error {
	_, err := tx.exec(sq.Update("generate_failure").Set("next_try", int64(tx.Now)).Where(idIn("task_id", tasks)))
	return err
}

// CronTask is a cron task and how far its fires are planned.
type CronTask struct {
	*capri.Task
	PlannedUntil capri.Instant // fires up to here are in the due list or were made; 0: never planned
}

// CronToPlan lists the cron tasks whose fires are not planned up to the horizon, at most limit.
func (s *Store) CronToPlan(ctx context.Context, horizon capri.Instant, limit int) ([]CronTask, error) {
	until := map[capri.TaskID]capri.Instant{}
	keys, err := collect(ctx, s.read, sq.Select("t.id", "t.version", "COALESCE(c.planned_until, 0)").From("task t").LeftJoin("cron_planned c ON c.task_id = t.id").
		Where("t.output_period = ? AND t.enabled = 1 AND t.deleted_at IS NULL AND (c.planned_until IS NULL OR c.planned_until < ?)", int(capri.Cron), int64(horizon)).
		OrderBy("t.id").Limit(uint64(limit)), func(r *sql.Rows, k *VersionKey) error {
		var u capri.Instant
		err := r.Scan(&k.ID, &k.Version, &u)
		until[k.ID] = u
		return err
	})
	if err != nil || len(keys) == 0 {
		return nil, s.fault("list cron tasks to plan", err)
	}
	tasks, err := s.TaskVersions(ctx, keys)
	if err != nil {
		return nil, err
	}
	var out []CronTask
	for _, k := range keys {
		if t := tasks[k]; t != nil {
			out = append(out, CronTask{t, until[k.ID]})
		}
	}
	return out, nil
}

// EnabledByID reads those of the tasks that are enabled, with that period, now.
func (s *Store) EnabledByID(ctx context.Context, p capri.Period, ids []capri.TaskID) ([]*capri.Task, error) {
	var keys []VersionKey
	for _, part := range chunks(ids, s.d.ChunkRows) {
		err := query(ctx, s.read, sq.Select("id", "version").From("task").Where(sq.Eq{"output_period": int(p), "enabled": 1, "deleted_at": nil}).Where(idIn("id", part)).OrderBy("id"), func(r *sql.Rows) error {
			var k VersionKey
			err := r.Scan(&k.ID, &k.Version)
			keys = append(keys, k)
			return err
		})
		if err != nil {
			return nil, s.fault("read tasks", err)
		}
	}
	tasks, err := s.TaskVersions(ctx, keys)
	out := make([]*capri.Task, 0, len(tasks))
	for _, t := range tasks {
		out = append(out, t)
	}
	return out, err
}

// Fire is a line of the due list.
type Fire struct {
	Task      capri.TaskID
	At        capri.Instant
	DataStart capri.Instant // the fire before
}

// PlanFires puts a task's next fires into the due list and moves its mark. seen is the PlannedUntil they were computed
// from: where an edit has moved it meanwhile, nothing is written.
func (s *Store) PlanFires(ctx context.Context, lease capri.Lease, task capri.TaskID, seen, until capri.Instant, fires []Fire) error {
	return s.WriteAs(ctx, "plan cron fires", lease, func(tx *Tx) error {
		var is capri.Instant
		found, err := one(tx.ctx, tx.tx, sq.Select("planned_until").From("cron_planned").Where(sq.Eq{"task_id": int64(task)}).Suffix(s.d.ForUpdate), &is)
		if err != nil || is != seen {
			return err
		}
		if found {
			_, err = tx.exec(sq.Update("cron_planned").Set("planned_until", int64(until)).Where(sq.Eq{"task_id": int64(task)}))
		} else {
			_, err = tx.exec(sq.Insert("cron_planned").Columns("task_id", "planned_until").Values(int64(task), int64(until)))
		}
		if err != nil {
			return err
		}
		return tx.insertFires(fires)
	})
}

func (tx *Tx) insertFires(fires []Fire) error {
	return tx.bulk("cron_due", []string{"task_id", "fire", "data_start"}, len(fires), func(i int, a []any) []any {
		return append(a, int64(fires[i].Task), int64(fires[i].At), int64(fires[i].DataStart))
	})
}

// PlannedUntil is how far a cron task's fires are in the due list or beyond it; 0: they never were. The row stays
// locked.
func (tx *Tx) PlannedUntil(task capri.TaskID) (until capri.Instant, err error) {
	_, err = one(tx.ctx, tx.tx, sq.Select("planned_until").From("cron_planned").Where(sq.Eq{"task_id": int64(task)}).Suffix(tx.s.d.ForUpdate), &until)
	return until, err
}

// ResetCron forgets what is due and not yet inserted of an edited, enabled, disabled or deleted cron task: from
// now on its fires come from its newest version. missed are fires of the version before that were due by now and that
// nobody had planned yet, because all masters were down.
func (tx *Tx) ResetCron(task capri.TaskID, missed []Fire) error {
	if _, err := tx.exec(sq.Delete("cron_due").Where("task_id = ? AND fire > ?", int64(task), int64(tx.Now))); err != nil {
		return err
	}
	if err := tx.insertFires(missed); err != nil {
		return err
	}
	_, err := tx.exec(sq.Insert("cron_planned").Columns("task_id", "planned_until").Values(int64(task), int64(tx.Now)).Suffix(tx.s.d.Upsert([]string{"task_id"}, "planned_until")))
	return err
}

// DueFires lists fires whose time has come, oldest first.
func (s *Store) DueFires(ctx context.Context, now capri.Instant, limit int) ([]Fire, error) {
	out, err := collect(ctx, s.read, sq.Select("task_id", "fire", "data_start").From("cron_due").Where("fire <= ?", int64(now)).OrderBy("fire", "task_id").Limit(uint64(limit)), func(r *sql.Rows, f *Fire) error {
		return r.Scan(&f.Task, &f.At, &f.DataStart)
	})
	return out, s.fault("read the due list", err)
}

// NextFire is when the due list next holds something; 0 when it is empty.
func (s *Store) NextFire(ctx context.Context) (capri.Instant, error) {
	var at sql.NullInt64
	_, err := one(ctx, s.read, sq.Select("MIN(fire)").From("cron_due"), &at)
	return capri.Instant(at.Int64), s.fault("read the due list", err)
}

// DropFires takes fires off the due list, with the batches that were made of them.
func (tx *Tx) DropFires(fires []Fire) error {
	byTime := map[capri.Instant][]capri.TaskID{}
	for _, f := range fires {
		byTime[f.At] = append(byTime[f.At], f.Task)
	}
	for at, tasks := range byTime {
		for _, part := range chunks(tasks, tx.s.d.ChunkRows) {
			if _, err := tx.exec(sq.Delete("cron_due").Where(sq.Eq{"fire": int64(at)}).Where(idIn("task_id", part))); err != nil {
				return err
			}
		}
	}
	return nil
}
