package master

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/services"
	"capri/sql/sqltest"
)

func TestTimesOfDay_are_the_business_zones(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	rows := map[string]services.Row{}
	for _, r := range New(Options{Store: sqltest.SQLite(t).Store, Calendar: calendar.New(newYork)}).Timetable() {
		rows[r.String()] = r
	}
	for _, c := range []struct{ row, after, next string }{
		{"timeout", "2026-11-20T09:30:09.999Z", "2026-11-20T09:30:10.000Z"},
		{"timeout", "2026-11-20T09:30:10.000Z", "2026-11-20T09:31:10.000Z"},
		{"timeout", "2026-03-08T06:59:10.000Z", "2026-03-08T07:00:10.000Z"}, // the hour that is left out
		{"timeout", "2026-11-01T05:59:10.000Z", "2026-11-01T06:00:10.000Z"}, // the hour that comes twice
		{"timeout", "2026-11-01T06:59:10.000Z", "2026-11-01T07:00:10.000Z"},
		{"bigtask", "2026-11-20T14:59:59.999Z", "2026-11-20T15:00:00.000Z"},
		{"bigtask", "2026-11-20T15:00:00.000Z", "2026-11-21T15:00:00.000Z"},
		{"bigtask", "2026-03-07T15:00:00.000Z", "2026-03-08T14:00:00.000Z"}, // summer time from then on
	} {
		after, err := time.Parse(time.RFC3339, c.after)
		require.NoError(t, err)
		require.Equal(t, c.next, rows[c.row].Fires(capri.InstantOf(after)).String(), "%s after %s", c.row, c.after)
	}
	require.Positive(t, rows["timeout"].Fires(0), "a service that never ran has a next time, too")
}
