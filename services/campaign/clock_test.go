package campaign_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/calendar"
	"capri/services"
	"capri/services/generate"
	"capri/wake"
)

const clocks = `
tasks:
- {name: h, owner: alice, period: hour, job: {command: x}, outputs: [{path: "/h/${yyyyMMddHH}${Z}"}]}
- {name: d, owner: alice, period: day, job: {command: x}, inputs: [{path: "/h/${yyyyMMddHH}${Z}", unit: hour, from: 0, to: end}], parents: [{task: h}]}
- {name: w, owner: alice, period: week, job: {command: x}, parents: [{task: d}]}
- {name: m, owner: alice, period: month, job: {command: x}, parents: [{task: d}]}
- {name: c, owner: alice, cron: "0 30 0/2 * * ?", job: {command: x}, parents: [{task: h}]}
`

// made is what there is of some run of all tasks, with all that it waits for.
func (w *world) made(run int, from, to capri.Instant) (out []string) {
	w.t.Helper()
	rows, err := w.Store.DB().QueryContext(w.Ctx, fmt.Sprintf(`SELECT t.name, b.batch_no, b.schedule_time, b.data_start, b.data_end,
		(SELECT COUNT(*) FROM tparent_data p WHERE p.batch_id = b.id), (SELECT COALESCE(SUM(p.parent_task_id + LENGTH(p.parent_batch_no)), 0) FROM tparent_data p WHERE p.batch_id = b.id),
		(SELECT COALESCE(MIN(p.path), '') FROM task_data p WHERE p.batch_id = b.id), (SELECT COALESCE(MAX(p.path), '') FROM task_data p WHERE p.batch_id = b.id), (SELECT COUNT(*) FROM task_data p WHERE p.batch_id = b.id)
		FROM task_work b JOIN task t ON t.id = b.task_id WHERE b.run_no = %d AND b.schedule_time >= %d AND b.schedule_time < %d ORDER BY t.name, b.schedule_time, b.batch_no`, run, from, to))
	require.NoError(w.t, err)
	defer rows.Close()
	for rows.Next() {
		var task, no, first, last string
		var mark, start, end int64
		var parents, of, paths int
		require.NoError(w.t, rows.Scan(&task, &no, &mark, &start, &end, &parents, &of, &first, &last, &paths))
		out = append(out, fmt.Sprintln(task, no, mark, start, end, parents, of, first, last, paths))
	}
	require.NoError(w.t, rows.Err())
	return out
}

// A range over a clock's change, a month's end, or a year's last week runs again as exactly the batches that generation made:
// the same intervals, marks and codes, and the same that they wait for.
func TestARerun_makes_exactly_the_periods_that_generation_makes(t *testing.T) {
	for _, tt := range []struct {
		sentence, zone, before, from, to, now string
		hours                                 int
	}{
		{"autumn, with 25 hours", "Europe/Berlin", "2026-10-24 12:00", "2026-10-25", "2026-10-26", "2026-10-27 12:00", 24 + 1 + 24},
		{"spring, with 23 hours", "Europe/Berlin", "2027-03-27 12:00", "2027-03-28", "2027-03-29", "2027-03-30 12:00", 23 + 24},
		{"half an hour on Lord Howe", "Australia/Lord_Howe", "2027-04-03 12:00", "2027-04-04", "2027-04-05", "2027-04-06 12:00", 24 + 24},
		{"a month's end in New York, at which the clock changes", "America/New_York", "2026-10-30 12:00", "2026-10-31", "2026-11-02", "2026-11-03 12:00", 24 + 25 + 24},
		{"February's end", "UTC", "2027-02-27 12:00", "2027-02-28", "2027-03-01", "2027-03-02 12:00", 48},
		{"a year's end inside its 53rd week", "Europe/Berlin", "2027-01-02 12:00", "2027-01-03", "2027-01-04", "2027-01-05 12:00", 48},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(tt.zone)
			require.NoError(t, err)
			w := &world{actiontest.SQLite(t), t}
			c := calendar.New(zone)
			w.Actions = action.New(w.Store, c, wake.NewLocal(), nil)
			at := func(text string) capri.Instant {
				v, err := c.ParseTime(text)
				require.NoError(t, err)
				return v
			}
			w.Clock.Set(at(tt.before))
			w.Apply(clocks)
			lease := w.Lease(t, "generate")
			for _, p := range []capri.Period{capri.Hour, capri.Day, capri.Week, capri.Month} {
				require.NoError(t, w.Store.StartMarkLog(w.Ctx, lease, p, at(tt.before)))
			}
			w.Clock.Set(at(tt.now))
			g := generate.New(w.Store, c, slog.New(slog.DiscardHandler))
			for more := true; more; {
				res, err := g.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: lease})
				require.NoError(t, err)
				more = res.Again
			}
			from := at(tt.from)
			to, err := c.ParseRangeEnd(tt.to, true)
			require.NoError(t, err)
			generated := w.made(0, from, to)
			hours := 0
			for _, b := range generated {
				if b[0] == 'h' {
					hours++
				}
			}
			require.Equal(t, tt.hours, hours)
			_, err = w.Store.DB().ExecContext(w.Ctx, "UPDATE task_work SET state = 3, finish_state = 1, unmet = 0, finish_time = schedule_time")
			require.NoError(t, err)
			for _, task := range []string{"h", "d", "w", "m", "c"} {
				r := action.RerunRequest{Task: task, From: tt.from, To: tt.to}
				p, err := w.Actions.Rerun(w.Ctx, actiontest.Who, r)
				require.NoError(t, err)
				for _, it := range p.Items {
					require.Equal(t, capri.ItemNewRun, it.Action, "%s %s", it.TaskName, it.BatchNo)
				}
			}
			w.Campaigns()
			require.Equal(t, generated, w.made(1, from, to))
			require.Empty(t, w.made(1, 0, from), "and nothing beside")
			require.Empty(t, w.made(1, to, to+1<<40))
		})
	}
}
