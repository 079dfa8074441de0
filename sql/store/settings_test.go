package store_test

import (
	"errors"
	"testing"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestSettings_have_defaults_until_somebody_sets_them(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		want := func(name, value string) {
			t.Helper()
			if got, err := db.Store.Setting(ctx, name); err != nil || got != value {
				t.Errorf("%s is %q, %v, want %q", name, got, err, value)
			}
		}
		want("task_need_reschudle_time", "5")
		want("latest_schedule_time", "")
		want("cron_horizon_minutes", "10")
		want("timezone", "UTC")
		for range 2 {
			write(t, db, func(tx *store.Tx) error {
				return errors.Join(tx.SetSetting(store.SettingReassignMinutes, "7"), tx.SetSetting(store.SettingLatestScheduleTime, "2026-11-20 18:00:00"))
			})
		}
		want("task_need_reschudle_time", "7")
		want("latest_schedule_time", "2026-11-20 18:00:00")
		write(t, db, func(tx *store.Tx) error { return tx.SetSetting(store.SettingLatestScheduleTime, "") })
		want("latest_schedule_time", "")
		if n, err := db.Store.SettingInt(ctx, store.SettingReassignMinutes); err != nil || n != 7 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

func TestSettings_refuse_names_and_values_that_mean_nothing(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		set := func(name, value string) func(*store.Tx) error {
			return func(tx *store.Tx) error { return tx.SetSetting(name, value) }
		}
		refused(t, db, capri.ErrInvalid, set(store.SettingReassignMinutes, "five"), "five", "minutes")
		refused(t, db, capri.ErrInvalid, set(store.SettingReassignMinutes, "-1"))
		refused(t, db, capri.ErrInvalid, set(store.SettingCronHorizonMinutes, "1"), "2 or more")
		refused(t, db, capri.ErrInvalid, set(store.SettingLatestScheduleTime, "tomorrow"), "2026-11-20 09:30:00")
		refused(t, db, capri.ErrInvalid, set(store.SettingTaskEdit, "everybody"), "department")
		refused(t, db, capri.ErrInvalid, set("task_need_reschedule_time", "5"), "task_need_reschudle_time")
		refused(t, db, capri.ErrConflict, set("timezone", "Asia/Shanghai"), "fixed")
		refused(t, db, capri.ErrConflict, set("min_binary", "1"), "fixed")
		if _, err := db.Store.Setting(ctx, "nonsense"); !errors.Is(err, capri.ErrInvalid) {
			t.Errorf("an unknown setting: %v", err)
		}
		if _, err := db.Store.DB().Exec("INSERT INTO dic_data (name, value) VALUES ('cron_horizon_minutes', 'ten')"); err != nil {
			t.Fatal(err)
		}
		if n, err := db.Store.SettingInt(ctx, store.SettingCronHorizonMinutes); err != nil || n != 10 {
			t.Errorf("broken by hand: %d, %v, want the default", n, err)
		}
	})
}

func TestSettings_are_listed_with_what_they_mean_and_have_defaults_that_may_be_set(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		write(t, db, func(tx *store.Tx) error { return tx.SetSetting(store.SettingCronHorizonMinutes, "30") })
		all, err := db.Store.Settings(ctx)
		if err != nil || len(all) < 5 {
			t.Fatalf("%v, %v", all, err)
		}
		for _, s := range all {
			if s.Means == "" || (s.Value != s.Default) != (s.Name == store.SettingCronHorizonMinutes) {
				t.Errorf("%+v", s)
			}
			write(t, db, func(tx *store.Tx) error { return tx.SetSetting(s.Name, s.Default) })
		}
	})
}
