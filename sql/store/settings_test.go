package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestSettings_have_defaults_and_survive_being_broken_by_hand(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		latest, err := db.Store.Setting(ctx, store.LatestScheduleTime)
		require.NoError(t, err)
		require.Empty(t, latest)
		db.Set(t, store.LatestScheduleTime, "2026-11-20 18:00:00")
		latest, err = db.Store.Setting(ctx, store.LatestScheduleTime)
		require.NoError(t, err)
		require.Equal(t, "2026-11-20 18:00:00", latest)
		for _, c := range []struct {
			value string
			want  int
		}{{"", 10}, {"30", 30}, {"1", 10}, {"ten", 10}} {
			if c.value != "" {
				db.Set(t, store.CronHorizonMinutes, c.value)
			}
			n, err := db.Store.SettingInt(ctx, store.CronHorizonMinutes, 2)
			require.NoError(t, err)
			require.Equal(t, c.want, n, c.value)
		}
		_, err = db.Store.Setting(ctx, "nonsense")
		require.Error(t, err)
	})
}
