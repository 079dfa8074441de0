package worker

import (
	"context"
	"time"
)

// trimEvery is short, because a job can fill a disk in a minute.
const trimEvery = 2 * time.Second

// trimRunning keeps the logs of running jobs to Options.LogLimitMB, until ctx ends.
func (w *Worker) trimRunning(ctx context.Context) {
	for sleep(ctx, trimEvery) {
		for _, a := range w.table.running() {
			w.trimLogs(a.logs())
		}
	}
}

func (w *Worker) trimLogs(names []string) {
	for _, name := range names {
		freed, err := w.logs.Trim(name, w.o.LogLimitMB<<20)
		if err != nil {
			w.log.Warn("a log is too big", "err", err)
		}
		if freed > 0 {
			w.log.Info("dropped the middle of a log that grew too big", "log", name, "freed_mb", freed>>20, "limit_mb", w.o.LogLimitMB)
		}
	}
}
