package worker

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"capri"
	"capri/worker/logs"
)

// A job says how far it has come by printing a line to stdout:
//
//	capri:progress 42
//
// or by `capri report-progress`, which needs no line of the log.
var progressLine = regexp.MustCompile(`(?m)^capri:progress +(100|[0-9]{1,2})\s*$`)

const (
	progressEvery = 2 * time.Second
	progressTail  = 4 << 10 // bytes at the end of the log that are looked at: what stands before is old
)

// watchProgress tells of the newest such line of each running job, until ctx ends. Of a log that did not grow nothing is
// read.
func (w *Worker) watchProgress(ctx context.Context) {
	type seen struct {
		size    int64
		percent int
	}
	known := map[capri.Attempt]seen{}
	for sleep(ctx, progressEvery) {
		now := map[capri.Attempt]seen{}
		for _, a := range w.table.running() {
			id := a.id
			name, err := logs.Name(a.task.Name, id, logs.Out)
			if err != nil {
				continue
			}
			was, before := known[id]
			size, err := w.logs.Size(name)
			if err != nil || size == was.size {
				now[id] = was
				continue
			}
			is := seen{size, was.percent}
			if c, err := w.logs.ReadAt(name, -progressTail, progressTail); err == nil {
				if all := progressLine.FindAllSubmatch(c.Data, -1); len(all) > 0 {
					is.percent, _ = strconv.Atoi(string(all[len(all)-1][1]))
				}
			}
			if is.percent != was.percent || !before && is.percent > 0 {
				if err := w.db.ReportProgress(ctx, id, is.percent); err != nil {
					w.health.note(err)
					continue // and again with the next look
				}
			}
			now[id] = is
		}
		known = now
	}
}
