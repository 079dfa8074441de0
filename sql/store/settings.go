package store

import (
	"context"
	"fmt"
	"strconv"

	sq "github.com/Masterminds/squirrel"
)

// Settings are rows of dic_data that may change while Capri runs; a row that is missing means the default. What is
// fixed for a process's life is configuration (package conf).
const (
	// LatestScheduleTime is business time: batches with a later schedule_time stay waiting. Empty: none do.
	LatestScheduleTime = "latest_schedule_time"
	// CronHorizonMinutes is how far ahead the due list holds cron fires.
	CronHorizonMinutes = "cron_horizon_minutes"
)

var settingDefaults = map[string]string{LatestScheduleTime: "", CronHorizonMinutes: "10"}

// Setting gives a setting's value, or its default.
func (s *Store) Setting(ctx context.Context, name string) (string, error) {
	value, known := settingDefaults[name]
	if !known {
		return "", fmt.Errorf("there is no setting %q", name)
	}
	_, err := one(ctx, s.read, sq.Select("value").From("dic_data").Where(sq.Eq{"name": name}), &value)
	return value, s.fault("read setting "+name, err)
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
