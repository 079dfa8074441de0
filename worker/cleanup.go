package worker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"capri"
	"capri/calendar"
	"capri/worker/supervisor"
)

// cleanUpMinutes after a day's mark, 00:01, is 02:10 (seed 002 §1.7).
const cleanUpMinutes = 129

// cleanUp removes old logs and what old attempts left, each day at 02:10 of business time until ctx ends. A day that
// passed while no worker ran here is made up for at once.
func (w *Worker) cleanUp(ctx context.Context) {
	for {
		now := time.Now()
		if last := w.lastCleanUp(); !now.Before(nextCleanUp(w.o.Calendar, last)) || last.After(now) {
			w.cleanNow(now)
		}
		// In pieces, since the clock may be set while we wait.
		if !sleep(ctx, min(time.Hour, max(time.Second, time.Until(nextCleanUp(w.o.Calendar, now))))) {
			return
		}
	}
}

// nextCleanUp is the first 02:10 after an instant.
func nextCleanUp(c calendar.Calendar, after time.Time) time.Time {
	at := capri.InstantOf(after)
	for day := c.EndedBy(capri.Day, at); ; day = c.Shift(capri.Day, day, 1) {
		if t := c.EarliestStart(capri.Day, day, cleanUpMinutes); t > at {
			return t.In(c.Zone())
		}
	}
}

// lastCleanUp is when the directory was cleaned up last; long ago if it never was.
func (w *Worker) lastCleanUp() time.Time {
	text, _ := os.ReadFile(w.directory.in(cleanedFile))
	ms, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.UnixMilli(ms)
}

func (w *Worker) cleanNow(now time.Time) {
	before := now.AddDate(0, 0, -w.o.KeepDays)
	held := func(id capri.Attempt) bool { return w.table.get(id) != nil }
	files, err := w.logs.Clean(before, held)
	dirs := 0
	for _, in := range []string{jobDir, preparedDir} {
		n, e := w.cleanAttempts(in, before, held)
		dirs += n
		err = errors.Join(err, e)
	}
	if err != nil {
		w.log.Warn("clean up the data directory", "err", err)
	}
	if w.ships != nil {
		go w.ships.clean(now.AddDate(0, 0, -w.o.LogStoreDays), held) // a store that hangs holds up nobody
	}
	// Also after an error: what could not be removed now is tried again tomorrow, and not each second.
	if err := os.WriteFile(w.directory.in(cleanedFile), []byte(strconv.FormatInt(now.UnixMilli(), 10)+"\n"), 0o600); err != nil {
		w.log.Warn("note that the data directory was cleaned up", "err", err)
	}
	w.log.Info("cleaned up", "older_than_days", w.o.KeepDays, "logs_removed", files, "directories_removed", dirs)
}

// cleanAttempts removes what is named after an attempt that is over and has not changed since before. What an attempt
// leaves is removed as it ends; here it is about what could not be, then.
func (w *Worker) cleanAttempts(in string, before time.Time, held func(capri.Attempt) bool) (removed int, err error) {
	root, err := os.OpenRoot(w.directory.in(in))
	if err != nil {
		return 0, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		id, e1 := supervisor.ParseAttempt(e.Name())
		info, e2 := e.Info()
		if e1 != nil || e2 != nil || held(id) || info.ModTime().After(before) {
			continue
		}
		if root.RemoveAll(e.Name()) != nil { // a job may leave directories that are closed to us
			if e := removeAll(w.directory.in(in, e.Name())); e != nil {
				err = errors.Join(err, e)
				continue
			}
		}
		removed++
	}
	return removed, err
}
