package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capri"
	"capri/files"
	"capri/sql/store"
	"capri/wake"
	"capri/worker/logs"
	"capri/worker/supervisor"
)

// mostMessage bounds what a batch's message says of a failure.
const mostMessage = 300

// ending is an attempt's end on its way to the database.
type ending struct {
	store.Result
	a    *attempt // nil: we know nothing of it but its number
	exit bool     // the shim keeps it until it is acknowledged
}

// readExits takes ends from the shims until ctx ends. What it has not passed on by then comes again in the next life.
func (w *Worker) readExits(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case exits, ok := <-w.shims.Exits():
			if !ok {
				return
			}
			group := make([]ending, 0, len(exits))
			for _, x := range exits {
				a, asked := w.table.end(x.Attempt)
				if a == nil {
					group = append(group, ending{Result: store.Result{Attempt: x.Attempt}, exit: true})
					continue
				}
				e := ending{Result: w.judge(a, x, asked), a: a, exit: true}
				if e.Outcome == store.Succeeded && a.byOutput() {
					w.judging.Go(func() { w.judgeOutputs(ctx, e) })
					continue
				}
				group = append(group, e)
			}
			w.hurry()
			w.ends.put(group...)
		}
	}
}

// judge says what an exit means, by the exit code alone; asked: somebody asked for its end.
func (w *Worker) judge(a *attempt, x supervisor.Exit, asked bool) store.Result {
	r := store.Result{
		Attempt: x.Attempt, Outcome: store.Failed, Usage: store.Usage{MemoryMB: x.PeakMemoryMB, Processes: x.Processes, AskedMB: a.memory}, ByCode: a.task.Check == capri.CheckUserCode,
		Retries: a.task.Retry.Failed, RetryInterval: time.Duration(a.task.Retry.FailedIntervalS) * time.Second,
	}
	switch {
	case x.OK():
		r.Outcome = store.Succeeded
		return r
	case x.Lost:
		r.Outcome, r.Message = store.Lost, x.Error
	case x.Killed && asked:
		r.Outcome, r.Message = store.Killed, "killed"
	case x.Lapsed:
		r.Outcome, r.Message = store.Lost, "the node's lease ran out while it ran"
		if x.Started == 0 {
			r.Message = "the node's lease ran out before it was started"
		}
	case x.Killed:
		// Its shim was told to end, as when the machine is shut down; nobody asked for this batch's end. If
		// somebody did, before this worker was restarted, the database knows.
		r.Outcome, r.Message = store.Lost, "its shim was told to end"
	case x.OverMemory:
		r.Message = fmt.Sprintf("had %d MB in memory, more than the %d MB of its worker.memory_mb, and was ended (worker.over_memory: end)", x.PeakMemoryMB, a.memory)
	case x.TimedOut:
		r.Message = fmt.Sprintf("run time-out after %d minutes", a.task.Limits.RunTimeoutMinutes)
	case x.Error != "":
		r.Message = "could not be started: " + x.Error
		if x.NodeFault { // another node may be able to
			r.Outcome = store.Lost
		}
	case x.Signal != 0:
		r.Message = fmt.Sprintf("ended by signal %d (%s)", int(x.Signal), unix.SignalName(x.Signal))
	default:
		r.Message = fmt.Sprintf("exit code %d", x.Code)
	}
	if r.Outcome == store.Failed && x.Error == "" {
		if said := w.lastWords(a); said != "" {
			r.Message += ": " + said
		}
	}
	r.Message = cleanText(r.Message, mostMessage)
	return r
}

// lastWords is the last line that a job wrote to stderr.
func (w *Worker) lastWords(a *attempt) string {
	name, err := logs.Name(a.task.Name, a.id, logs.Err)
	if err != nil {
		return ""
	}
	c, err := w.logs.ReadAt(name, -4096, 4096)
	if err != nil {
		return ""
	}
	lines := strings.FieldsFunc(string(c.Data), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0; i-- {
		if said := cleanText(lines[i], mostMessage); said != "" {
			return said
		}
	}
	return ""
}

// judgeOutputs adds the second half of check: output_path. If ctx ends first nothing is reported: the exit comes
// again in the next life.
func (w *Worker) judgeOutputs(ctx context.Context, e ending) {
	for i, p := range e.a.outputs {
		now, err := w.patientStat(ctx, p)
		if ctx.Err() != nil {
			return
		}
		before := files.Stamp{}
		if i < len(e.a.before) {
			before = e.a.before[i]
		}
		why := ""
		switch {
		case err != nil:
			why = "exit code 0, but its output could not be looked at: " + err.Error()
		case !now.There:
			why = "exit code 0, but " + files.Name(p) + " is not there"
		case now == before:
			why = "exit code 0, but " + files.Name(p) + " is still the one from before it ran"
		}
		if why != "" {
			e.Outcome, e.Message = store.Failed, cleanText(why, mostMessage)
			break
		}
	}
	if len(e.a.outputs) == 0 {
		e.Outcome, e.Message = store.Failed, "exit code 0, but the task is judged by its outputs and names none"
	}
	w.ends.put(e)
}

// judgeFor is how long a job that has done its work waits for a file system that is away, before it counts as failed.
const judgeFor = 10 * time.Minute

// patientStat asks again while the file system is away: hours of work shall not be thrown away for a name-node that is
// started anew.
func (w *Worker) patientStat(ctx context.Context, p capri.PathCondition) (files.Stamp, error) {
	for end := time.Now().Add(judgeFor); ; {
		s, err := w.o.Files.Stat(ctx, p)
		if !errors.Is(err, capri.ErrUnavailable) || time.Now().After(end) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, err
		case <-time.After(w.o.PollInterval):
		}
	}
}

// finishAll writes ends, until the queue is closed.
func (w *Worker) finishAll(hard context.Context) {
	for {
		group, ok := w.ends.next(most)
		if !ok {
			return
		}
		w.finish(hard, group)
	}
}

func (w *Worker) finish(hard context.Context, group []ending) {
	results := make([]store.Result, 0, len(group))
	newest := map[capri.BatchID]int{}
	for _, e := range group {
		newest[e.Batch] = max(newest[e.Batch], e.Number)
	}
	succeeded := false
	for _, e := range group {
		// An exit that nobody waits for was reported by an earlier life. And of two attempts of one batch the
		// older cannot be the run's newest, so its report would change nothing.
		if e.a == nil && e.exit || e.Number < newest[e.Batch] {
			continue
		}
		results = append(results, e.Result)
		succeeded = succeeded || e.Outcome == store.Succeeded
	}
	if len(results) > 0 {
		if err := w.report(hard, results); err != nil {
			if hard.Err() == nil && len(group) > 1 { // one of them is not taken: it must not hold up the others
				for _, e := range group {
					w.finish(hard, []ending{e})
				}
				return
			}
			w.log.Error("an end could not be reported; its exit is kept for the next start", "attempt", results[0].Attempt.String(), "err", err)
			return
		}
		topics := []string{wake.Dispatch}
		if succeeded {
			topics = append(topics, wake.Dependency)
		}
		w.o.Waker.Wake(topics...)
	}
	// The database has them. Dead anywhere below, the exits come again in the next life and lead back here.
	acks := make([]capri.Attempt, 0, len(group))
	ids := make([]capri.Attempt, 0, len(group))
	for _, e := range group {
		w.closeLogs(e)
		w.discard(e.Attempt, e.a)
		ids = append(ids, e.Attempt)
		if e.exit {
			acks = append(acks, e.Attempt)
		}
	}
	w.table.remove(ids...)
	w.shims.Ack(acks)
}

// report writes results, and again while the database is away. An error is about the results themselves.
func (w *Worker) report(hard context.Context, results []store.Result) error {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		_, err := w.db.FinishAttempts(hard, w.node, results)
		if err == nil {
			w.health.note(nil)
			return nil
		}
		if !away(err) && (len(results) > 1 || pause >= mostPause) {
			return err
		}
		w.health.note(err)
		if !sleep(hard, pause) {
			return err
		}
	}
}

// closeLogs marks an attempt's logs as done.
func (w *Worker) closeLogs(e ending) {
	var names []string
	if e.a != nil {
		names = e.a.logs()
	} else {
		names = w.strayLogs(e.Attempt)
	}
	w.trimLogs(names)
	if err := w.logs.Finish(names...); err != nil {
		w.log.Warn("mark logs as done", "attempt", e.Attempt.String(), "err", err)
	}
	w.ships.put(names)
}

// strayLogs finds the logs of an attempt whose task nobody remembers.
func (w *Worker) strayLogs(id capri.Attempt) []string {
	var names []string
	pattern := fmt.Sprintf("*_%d_%d.*.tmp", id.Batch, id.Number)
	found, _ := filepath.Glob(w.directory.in(logDir, pattern))
	for _, path := range found {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".tmp"))
	}
	return names
}
