package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
	"capri/calendar"
)

// Setting names a value in dic_data that may change while Capri runs. What is fixed for a process's life is
// configuration (package conf), not a setting.
type Setting struct {
	Name    string
	Value   string // the stored one, else Default
	Default string
	Means   string // a sentence for people

	valid func(string) bool
	want  string // what valid takes
}

// Names of settings that code asks for.
const (
	SettingReassignMinutes     = "task_need_reschudle_time" // the seed's spelling
	SettingLatestScheduleTime  = "latest_schedule_time"
	SettingCronHorizonMinutes  = "cron_horizon_minutes"
	SettingTaskEdit            = "task_edit"
	SettingArchiveDays         = "archive_days"
	SettingKeepDays            = "keep_days"
	SettingLongTaskMinutes     = "long_task_minutes"
	SettingExpectedMasters     = "expected_masters"
	SettingExpectedWorkers     = "expected_workers"
	SettingMaxCPUPercent       = "max_cpu_percent"
	SettingMaxMemoryPercent    = "max_memory_percent"
	SettingMinDiskFreeMB       = "min_disk_free_mb"
	SettingMaxClockDifferenceS = "max_clock_difference_s"
)

// settings is every setting there is, with its default where dic_data has no row.
var settings = []Setting{
	{Name: SettingReassignMinutes, Default: "5", valid: number, want: minutes,
		Means: "A batch assigned but not claimed for so many minutes goes back to waiting, and that node is avoided."},
	{Name: SettingLatestScheduleTime, Default: "", valid: timeOrNone, want: "a time such as 2026-11-20 09:30:00 (business time), or nothing",
		Means: "Batches with a later schedule time stay waiting; empty: none do."},
	{Name: SettingCronHorizonMinutes, Default: "10", valid: atLeast2, want: "a whole number of minutes, 2 or more",
		Means: "The due list holds the cron fires of the next so many minutes."},
	{Name: SettingTaskEdit, Default: "owner", valid: oneOf("owner", "department"), want: "owner or department",
		Means: "Who may change a task: its owner alone, or everybody in its owner's department."},
	{Name: SettingArchiveDays, Default: "90", valid: number, want: days,
		Means: "Finished batches move to the archive after so many days."},
	{Name: SettingKeepDays, Default: "7", valid: number, want: days,
		Means: "Scripts and logs on the workers are deleted after so many days."},
	{Name: SettingLongTaskMinutes, Default: "120", valid: number, want: minutes,
		Means: "The owner of a task is told when it is expected to run longer than so many minutes."},
	{Name: SettingExpectedMasters, Default: "0", valid: number, want: count,
		Means: "The masters there should be; fewer than that are alerted, 0: not watched."},
	{Name: SettingExpectedWorkers, Default: "0", valid: number, want: count,
		Means: "The workers there should be; fewer than that are alerted, 0: not watched."},
	{Name: SettingMaxCPUPercent, Default: "95", valid: number, want: "a whole number of percent",
		Means: "A node whose processors are busier than that is alerted."},
	{Name: SettingMaxMemoryPercent, Default: "95", valid: number, want: "a whole number of percent",
		Means: "A node that uses more of its memory than that is alerted."},
	{Name: SettingMinDiskFreeMB, Default: "1024", valid: number, want: "a whole number of megabytes",
		Means: "A node with less free disk than that is alerted."},
	{Name: SettingMaxClockDifferenceS, Default: "2", valid: number, want: "a whole number of seconds",
		Means: "A node whose clock is further from the database's is alerted, and does not lead generate."},
}

const (
	minutes = "a whole number of minutes"
	days    = "a whole number of days"
	count   = "a whole number"
)

func number(v string) bool {
	n, err := strconv.Atoi(v)
	return err == nil && n >= 0
}

// atLeast2: generate plans again when half of it is used up.
func atLeast2(v string) bool {
	n, err := strconv.Atoi(v)
	return err == nil && n >= 2
}

// timeOrNone takes what dispatch will read; whether it is a time at all does not depend on the zone.
func timeOrNone(v string) bool {
	_, err := calendar.New(time.UTC).ParseTime(v)
	return v == "" || err == nil
}

func oneOf(values ...string) func(string) bool {
	return func(v string) bool { return slices.Contains(values, v) }
}

// belongsToSchema are rows of dic_data that package schema writes; they can be read here, not set.
var belongsToSchema = []string{"timezone", "min_binary"}

// Setting gives a setting's value, or its default where it was never set.
func (s *Store) Setting(ctx context.Context, name string) (string, error) {
	var value string
	found, err := one(ctx, s.read, sq.Select("value").From("dic_data").Where(sq.Eq{"name": name}), &value)
	if err != nil {
		return "", s.fault("read setting "+name, err)
	}
	if found {
		return value, nil
	}
	known, err := settingNamed(name)
	return known.Default, err
}

// SettingInt is Setting as a number; one that people broke by hand counts as its default, since a service must go on.
func (s *Store) SettingInt(ctx context.Context, name string) (int, error) {
	value, err := s.Setting(ctx, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		known, _ := settingNamed(name)
		s.log.Warn("setting is no number, its default counts", "setting", name, "value", value, "default", known.Default)
		n, err = strconv.Atoi(known.Default)
	}
	return n, err
}

// Settings lists every setting with its value, default and meaning.
func (s *Store) Settings(ctx context.Context) ([]Setting, error) {
	stored := map[string]string{}
	err := query(ctx, s.read, sq.Select("name", "value").From("dic_data"), func(r *sql.Rows) error {
		var name, value string
		err := r.Scan(&name, &value)
		stored[name] = value
		return err
	})
	if err != nil {
		return nil, s.fault("read settings", err)
	}
	all := slices.Clone(settings)
	for i := range all {
		all[i].Value = all[i].Default
		if v, ok := stored[all[i].Name]; ok {
			all[i].Value = v
		}
	}
	return all, nil
}

// SetSetting changes a setting that exists to a value it can have.
func (tx *Tx) SetSetting(name, value string) error {
	if slices.Contains(belongsToSchema, name) {
		return capri.Conflict("%s is fixed when the database is made", name)
	}
	known, err := settingNamed(name)
	if err != nil {
		return err
	}
	if !known.valid(value) {
		return capri.Invalid(name, value, known.want)
	}
	_, err = tx.exec(sq.Insert("dic_data").Columns("name", "value").Values(name, value).Suffix(tx.s.d.Upsert([]string{"name"}, "value")))
	return err
}

func settingNamed(name string) (Setting, error) {
	var names []string
	for _, k := range settings {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Setting{}, capri.Invalid("setting", name, "one of "+strings.Join(names, ", "))
}
