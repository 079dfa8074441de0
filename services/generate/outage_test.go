package generate_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/services"
	"capri/services/generate"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// alerts lists the alerts of a kind, newest first.
func (w *world) alerts(kind string) []store.AlertRow {
	w.t.Helper()
	all, err := w.Store.Alerts(w.ctx, nil, 0, 1000)
	require.NoError(w.t, err)
	return slices.DeleteFunc(all, func(a store.AlertRow) bool { return a.Kind != kind })
}

// one takes one turn.
func (w *world) one() services.Result {
	w.t.Helper()
	res, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: w.lease})
	require.NoError(w.t, err)
	return res
}

// again is another leader: a new epoch, and nothing in memory.
func (w *world) again() {
	w.lease = w.Lease(w.t, "generate")
	w.service = generate.New(w.Store, w.calendar, slog.New(slog.DiscardHandler))
}

// expected walks through an outage second by second, by the clock on the wall and nothing else, and says which batch_nos
// each of the tasks of TestEverythingStoppedFor26Hours has to have.
func expected(from, to time.Time) map[string][]string {
	want := map[string][]string{}
	// A clock time that comes twice carries its offset.
	no := func(t time.Time, layout string) string {
		for _, shift := range []time.Duration{-time.Hour, time.Hour} {
			if t.Add(shift).Format(layout) == t.Format(layout) {
				return t.Format(layout + "-0700")
			}
		}
		return t.Format(layout)
	}
	for t := from.Add(time.Second); !t.After(to); t = t.Add(time.Second) {
		if t.Format("04:05") == "01:00" {
			want["hour"] = append(want["hour"], no(t.Add(-time.Minute-time.Hour), "2006010215"))
		}
		switch t.Format("15:04:05") {
		case "00:01:00":
			want["day"] = append(want["day"], t.Add(-2*time.Minute).Format("20060102"))
		case "00:02:00":
			if t.Weekday() == time.Monday {
				year, week := t.Add(-3 * time.Minute).ISOWeek()
				want["week"] = append(want["week"], fmt.Sprintf("%dW%02d", year, week))
			}
		case "00:05:00":
			if t.Day() == 1 {
				want["month"] = append(want["month"], t.Add(-6*time.Minute).Format("200601"))
			}
		}
		if t.Minute()%20 == 0 && t.Second() == 0 { // "0 */20 * * * ?" runs on through both equal hours
			want["often"] = append(want["often"], no(t, "20060102150405"))
		}
		if t.Format("15:04:05") == "01:30:00" && t.Add(time.Hour).Format("15:04:05") != "01:30:00" { // "0 30 1 * * ?" is a fixed hour: the later one
			want["nightly"] = append(want["nightly"], no(t, "20060102150405"))
		}
	}
	return want
}

func TestEverythingStoppedFor26Hours_over_day_week_and_month_end_and_a_clock_change(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		w := newWorld(t, db, zone)
		down := time.Date(2026, 10, 31, 23, 30, 0, 0, zone)
		up := down.Add(26 * time.Hour)
		require.Equal(t, "2026-11-02 00:30:00 EST", up.Format("2006-01-02 15:04:05 MST"))
		w.Clock.Set(capri.InstantOf(down))
		tasks := map[string]*capri.Task{}
		for name, p := range map[string]capri.Period{"hour": capri.Hour, "day": capri.Day, "week": capri.Week, "month": capri.Month} {
			tasks[name] = w.Task(t, func(s *capri.Spec) { s.Name, s.Period = name, p })
		}
		for name, cron := range map[string]string{"often": "0 */20 * * * ?", "nightly": "0 30 1 * * ?"} {
			tasks[name] = w.Task(t, func(s *capri.Spec) { s.Name, s.Period, s.Cron = name, capri.Cron, cron })
		}
		w.turn() // the last one before everything stops
		w.Clock.Set(capri.InstantOf(up))

		first := w.one()
		require.True(t, first.Again, "a turn makes some, so that other work goes on in between")
		require.Equal(t, 24, first.Counts["marks"])
		require.Empty(t, w.alerts("outage_caught_up"), "it is told of when all is caught up")
		w.again() // the leader dies in the middle
		turns := 1
		for w.one().Again {
			turns++
		}
		w.again()
		w.turn()

		want := expected(down, up)
		require.Len(t, want["hour"], 26)
		require.Len(t, want["nightly"], 1)
		total := 0
		for name, task := range tasks {
			require.Equal(t, want[name], w.nos(task), name)
			total += len(want[name])
		}
		rows, err := w.Store.Batches(w.ctx, store.BatchFilter{AllRuns: true, Limit: 10_000})
		require.NoError(t, err)
		require.Len(t, rows, total)
		slices.SortFunc(rows, func(a, b store.BatchRow) int { return cmp.Compare(a.ID, b.ID) })
		calendar := slices.DeleteFunc(slices.Clone(rows), func(r store.BatchRow) bool { return r.Period == capri.Cron })
		fires := slices.DeleteFunc(rows, func(r store.BatchRow) bool { return r.Period != capri.Cron })
		for _, kind := range [][]store.BatchRow{calendar, fires} {
			require.True(t, slices.IsSortedFunc(kind, func(a, b store.BatchRow) int { return cmp.Compare(a.ScheduleTime, b.ScheduleTime) }), "made in the order of their times")
		}

		digest := w.alerts("outage_caught_up")
		require.Len(t, digest, 1)
		require.Equal(t, capri.Important, digest[0].Level)
		require.Equal(t, "Nothing was generated for 26h0m0s: 30 marks were caught up", digest[0].Title)
		require.Equal(t, `Nothing was generated from 2026-10-31 23:30:00 to 2026-11-02 00:30:00. Caught up since then:
month: marks 1 (2026-11-01 00:05:00 to 2026-11-01 00:05:00), batches made 1, there already 0, skipped 0, failed 0
week: marks 1 (2026-11-02 00:02:00 to 2026-11-02 00:02:00), batches made 1, there already 0, skipped 0, failed 0
day: marks 2 (2026-11-01 00:01:00 to 2026-11-02 00:01:00), batches made 2, there already 0, skipped 0, failed 0
hour: marks 26 (2026-11-01 00:01:00 to 2026-11-02 00:01:00), batches made 26, there already 0, skipped 0, failed 0
cron: batches made `+fmt.Sprint(total-30-1), digest[0].Text, "the fire of 00:20 is ten minutes old, which is no outage")

		// The next hours are ordinary, and the next outage is told of by itself.
		w.Clock.Set(capri.InstantOf(up.Add(31 * time.Minute)))
		w.turn()
		w.Clock.Set(capri.InstantOf(up.Add(94 * time.Minute))) // three minutes late
		w.turn()
		require.Len(t, w.alerts("outage_caught_up"), 1)
		w.Clock.Set(capri.InstantOf(up.Add(6 * time.Hour)))
		w.turn()
		require.Len(t, w.alerts("outage_caught_up"), 2)
		require.Contains(t, w.alerts("outage_caught_up")[0].Title, "4 marks")
	})
}

func TestALeaderThatDiedBeforeItTold_leaves_the_telling_to_the_next(t *testing.T) {
	each(t, func(w *world) {
		w.Clock.Set(at("2026-11-20 12:00:00"))
		w.Task(t, nil)
		w.turn()
		w.Clock.Set(at("2026-11-20 15:30:00"))
		for _, mark := range []string{"2026-11-20 12:01:00", "2026-11-20 13:01:00", "2026-11-20 14:01:00", "2026-11-20 15:01:00"} { // it made the last mark, and died
			require.NoError(t, w.Store.CompleteMark(w.ctx, w.lease, store.Mark{Period: capri.Hour, Mark: at(mark), StartedAt: w.Clock.Now()}))
		}
		w.again()
		w.Clock.Advance(time.Minute)
		w.turn()
		digest := w.alerts("outage_caught_up")
		require.Len(t, digest, 1)
		require.Contains(t, digest[0].Text, "from 2026-11-20 12:00:00 to 2026-11-20 15:30:00")
		require.Contains(t, digest[0].Text, "hour: marks 4")
	})
}

func TestAManyFiresCatchUp_lets_others_in_between(t *testing.T) {
	w := newWorld(t, sqltest.SQLite(t), time.UTC)
	w.Clock.Set(at("2026-11-20 09:30:00"))
	task := w.Task(t, func(s *capri.Spec) { s.Period, s.Cron = capri.Cron, "0/10 * * * * ?" })
	w.turn()
	w.Clock.Set(at("2026-11-20 17:30:00"))
	turns := 0
	for again := true; again; turns++ {
		res := w.one()
		require.LessOrEqual(t, res.Counts["fires"], 1100)
		again = res.Again
	}
	require.Greater(t, turns, 2)
	require.Len(t, w.nos(task), 8*360)
}
