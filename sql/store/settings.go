package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	sq "github.com/Masterminds/squirrel"
)

// Settings are rows of dic_data that may change while Capri runs; a row that is missing means the default. What is
// fixed for a process's life is configuration (package conf). The names the seed gives are kept, with its spelling.
const (
	LatestScheduleTime  = "latest_schedule_time"     // business time: batches with a later schedule_time stay waiting
	CronHorizonMinutes  = "cron_horizon_minutes"     // how far ahead the due list holds cron fires
	RescheduleMinutes   = "task_need_reschudle_time" // assigned for so long and not claimed: given to another node
	BigTaskMinutes      = "bigtask_minutes"          // a run longer than this is told to its owner (seed 002 §1.8)
	BigTaskDiffers      = "bigtask_differs_percent"  // yesterday's duration replaces the expected one where it differs more
	BigTaskDiffersLeast = "bigtask_differs_minutes"  // and by at least so much
	ArchiveDays         = "archive_after_days"       // finished batches older than this are archived; 0: never
	AlertRepeat         = "alert_repeat_minutes"     // until an incident that nobody acknowledges is told of again: 30,120,480,1440
	AlertEscalation     = "alert_escalation_minutes" // until a severe one of the system climbs each step: secondary duty, all admins
	AlertExpires        = "alert_expires_minutes"    // an alert that is older is not sent any more, but accounted for
	AlertQuiet          = "alert_quiet_minutes"      // an incident of the system is over when nothing came for so long
	AlertForget         = "alert_forget_days"        // and any other

	// Thresholds of the monitor; 0 turns one off.
	RescheduledIn10Important = "rescheduled_10min_important" // more than so many taken from one node within ten minutes
	RescheduledIn10Severe    = "rescheduled_10min_severe"
	RescheduledIn30Important = "rescheduled_30min_important"
	RescheduledIn30Severe    = "rescheduled_30min_severe"
	GenerateImportant        = "generate_important_minutes" // a mark takes longer
	GenerateSevere           = "generate_severe_minutes"
	DependencyImportant      = "dependency_important_minutes" // a round takes longer
	DependencySevere         = "dependency_severe_minutes"
	TimeoutAge               = "timeout_age_minutes"     // the time-out service's last complete run is older
	ServiceAge               = "service_age_minutes"     // any other service's last complete run is so much overdue
	ReadyImportant           = "ready_important_minutes" // a ready batch with a free node waits longer
	MastersImportant         = "masters_important"       // fewer masters than this; the seed says 5
	MastersSevere            = "masters_severe"          // the seed says 3
	WorkersImportant         = "workers_important"       // the seed says 10
	WorkersSevere            = "workers_severe"          // the seed says 5
	NodeCPUPercent           = "node_cpu_percent"        // load per CPU
	NodeMemoryPercent        = "node_memory_percent"
	NodeDiskFreeMB           = "node_disk_free_mb"
	ClockOffsetMS            = "clock_offset_ms"  // a process's clock differs from the database's by more
	BreakerFailures          = "breaker_failures" // a task that failed so often in a row is not placed any more (its breaker opens); 0: never
	DutyHoleDays             = "duty_hole_days"   // a hole in a duty rota is told so many days before

	// What members may do with tasks and batches that are not their own (package auth).
	TaskEdit       = "task_edit"       // who changes a task: owner, or department (all of the owner's department)
	TaskRead       = "task_read"       // who sees it: all, or department
	CascadeForeign = "cascade_foreign" // whether a member's cascade may reach what he may not change: allow, refuse
)

var settingDefaults = map[string]string{
	LatestScheduleTime: "", CronHorizonMinutes: "10", RescheduleMinutes: "5", BigTaskMinutes: "120", BigTaskDiffers: "50", BigTaskDiffersLeast: "10", ArchiveDays: "90",
	AlertRepeat: "30,120,480,1440", AlertEscalation: "10,10", AlertExpires: "720", AlertQuiet: "60", AlertForget: "7",
	RescheduledIn10Important: "3", RescheduledIn10Severe: "5", RescheduledIn30Important: "10", RescheduledIn30Severe: "15",
	GenerateImportant: "10", GenerateSevere: "15", DependencyImportant: "5", DependencySevere: "10", TimeoutAge: "2", ServiceAge: "5", ReadyImportant: "5",
	MastersImportant: "0", MastersSevere: "0", WorkersImportant: "0", WorkersSevere: "0",
	NodeCPUPercent: "0", NodeMemoryPercent: "95", NodeDiskFreeMB: "1024", ClockOffsetMS: "2000", DutyHoleDays: "7", BreakerFailures: "0",
	TaskEdit: "department", TaskRead: "all", CascadeForeign: "allow",
}

// Setting gives a setting's value, or its default.
func (s *Store) Setting(ctx context.Context, name string) (string, error) {
	value, known := settingDefaults[name]
	if !known {
		return "", fmt.Errorf("there is no setting %q", name)
	}
	_, err := one(ctx, s.read, sq.Select("value").From("dic_data").Where(sq.Eq{"name": name}), &value)
	return value, s.fault("read setting "+name, err)
}

// SettingTexts gives several settings by one query.
func (s *Store) SettingTexts(ctx context.Context, names ...string) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range names {
		value, known := settingDefaults[name]
		if !known {
			return nil, fmt.Errorf("there is no setting %q", name)
		}
		out[name] = value
	}
	err := query(ctx, s.read, sq.Select("name", "value").From("dic_data").Where(sq.Eq{"name": names}), func(r *sql.Rows) error {
		var name, value string
		err := r.Scan(&name, &value)
		out[name] = value
		return err
	})
	return out, s.fault("read settings", err)
}

// SettingInt is Setting as a number of at least least. One that people broke by hand counts as its default and is
// logged, since a service must go on.
func (s *Store) SettingInt(ctx context.Context, name string, least int) (int, error) {
	value, err := s.Setting(ctx, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least {
		s.log.Warn("a setting in dic_data is no such number, its default counts", "setting", name, "value", value, "least", least, "default", settingDefaults[name])
		return strconv.Atoi(settingDefaults[name])
	}
	return n, nil
}

// settingInt is SettingInt inside a transaction, whose reader has no time for what people broke: it counts as the default.
func (tx *Tx) settingInt(name string) (int, error) {
	value := settingDefaults[name]
	if _, err := one(tx.ctx, tx.tx, sq.Select("value").From("dic_data").Where(sq.Eq{"name": name}), &value); err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return strconv.Atoi(settingDefaults[name])
	}
	return n, nil
}
