package worker

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"capri"
	"capri/calendar"
	"capri/sql/sqltest"
	"capri/worker/supervisor"
)

func TestThe_clean_up_is_at_ten_past_two_of_business_time(t *testing.T) {
	for _, row := range []struct{ zone, after, want string }{
		{"UTC", "2026-11-20T02:09:59Z", "2026-11-20T02:10:00Z"},
		{"UTC", "2026-11-20T02:10:00Z", "2026-11-21T02:10:00Z"},
		{"Asia/Shanghai", "2026-11-20T00:00:00Z", "2026-11-20T18:10:00Z"},
		{"Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"}, // 02:10 does not exist: the first instant after the gap
		{"Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:10:00Z"}, // 02:10 comes twice: the first
	} {
		zone, err := time.LoadLocation(row.zone)
		if err != nil {
			t.Fatal(err)
		}
		after, err := time.Parse(time.RFC3339, row.after)
		if err != nil {
			t.Fatal(err)
		}
		if got := nextCleanUp(calendar.New(zone), after).UTC().Format(time.RFC3339); got != row.want {
			t.Errorf("%s after %s it is %s, want %s", row.zone, row.after, got, row.want)
		}
	}
}

func TestThe_clean_up_removes_what_is_old_and_over_and_nothing_else(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	c.until("the first clean-up", func() bool { return n.lastCleanUp().Unix() > 0 }, n.logged.String)
	over := c.launch("n1", "echo over", nil)
	c.wants(over, capri.Success, "")
	n.output(over, 1, false)
	held := c.launch("n1", "echo held; exec sleep 1000", nil)
	c.started(held)
	at := func(in, name string) string {
		path := filepath.Join(n.o.Dir, in, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	left, strange, heldDir := at(jobDir, "4711.2"), at(jobDir, "somebody's"), at(jobDir, supervisorName(held))
	if err := os.WriteFile(filepath.Join(left, "script.sh"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(n.o.Dir, logDir, "t_1_1.out.log")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, secret); err != nil {
		t.Fatal(err)
	}
	logs := func() int {
		files, err := filepath.Glob(filepath.Join(n.o.Dir, logDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	c.until("two logs of each attempt, and the link", func() bool { return logs() == 5 }, n.logged.String)

	week := time.Duration(n.Worker.o.KeepDays) * 24 * time.Hour
	n.cleanNow(time.Now().Add(week - time.Hour))
	if _, err := os.Stat(left); err != nil || logs() != 5 {
		t.Errorf("something of this week is gone: %d logs, %v", logs(), err)
	}
	n.cleanNow(time.Now().Add(week + time.Hour))
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("an old attempt's directory is still there: %v", err)
	}
	for _, path := range []string{strange, heldDir, outside} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if got := logs(); got != 2 {
		t.Errorf("%d logs are left, want the two of the job that runs", got)
	}
	if got := said(outside); got != "precious" {
		t.Errorf("what a link led to holds %q", got)
	}
	// A stamp in the future was written by a clock that has been set back since; the next life notes the true time.
	if !n.lastCleanUp().After(time.Now()) {
		t.Fatal("the clean-up was not noted")
	}
	n.stop()
	n.start()
	c.until("the stamp to be right", func() bool { return !n.lastCleanUp().After(time.Now()) }, n.logged.String)
}

func TestA_clean_up_that_was_missed_is_made_up_for_at_the_next_start(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	done := func() bool { return time.Since(n.lastCleanUp()) < time.Hour }
	c.until("the first clean-up", done, n.logged.String)
	n.stop()
	missed := time.Now().Add(-25 * time.Hour)
	for _, row := range []struct {
		last time.Time
		want bool
	}{{missed, true}, {time.Now(), false}} {
		if got := !time.Now().Before(nextCleanUp(n.o.Calendar, row.last)); got != row.want {
			t.Errorf("after one at %s it is due: %v", row.last, got)
		}
	}
	if err := os.WriteFile(filepath.Join(n.o.Dir, cleanedFile), []byte("1790000000000\n"), 0o600); err != nil { // September 2026
		t.Fatal(err)
	}
	n.start()
	c.until("the missed clean-up", done, n.logged.String)
}

// supervisorName is the name of a batch's first attempt, read back to be sure that the clean-up knows it for one.
func supervisorName(id capri.BatchID) string {
	name := capri.Attempt{Batch: id, Number: 1}.String()
	if a, err := supervisor.ParseAttempt(name); err != nil || a.Batch != id {
		return ""
	}
	return name
}
