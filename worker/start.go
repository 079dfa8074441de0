package worker

import (
	"context"
	"errors"
	"time"

	"capri"
	"capri/internal/failpoint"
	"capri/sql/store"
	"capri/wake"
	"capri/worker/logs"
	"capri/worker/supervisor"
)

func wakeAfterBack(gone bool) []string {
	if gone {
		return []string{wake.Dependency, wake.Dispatch}
	}
	return []string{wake.Dispatch}
}

// startAll starts what is prepared, until the queue is closed. After ctx's end all goes back instead.
func (w *Worker) startAll(ctx, hard context.Context) {
	for {
		group, ok := w.starts.next(most)
		if !ok {
			return
		}
		w.start(ctx, hard, group)
	}
}

func (w *Worker) start(ctx, hard context.Context, group []*attempt) {
	failpoint.Wait(failpoint.ClaimStart)
	boot := w.registered()
	if ctx.Err() != nil || boot == "" {
		why := "its worker stopped before it started"
		if ctx.Err() == nil {
			why = "its node was not registered any more when it was to start"
		}
		for _, a := range group {
			w.giveBack(a, why)
		}
		return
	}
	w.table.advance(starting, group...)
	by := make(map[capri.Attempt]*attempt, len(group))
	ids := make([]capri.Attempt, len(group))
	for i, a := range group {
		ids[i], by[a.id] = a.id, a
	}
	var started []capri.Attempt
	var startBy time.Duration
	err := w.persist(hard, func(c context.Context) (err error) {
		if ctx.Err() != nil && len(started) == 0 { // the database was away when we were stopped
			return context.Canceled
		}
		// Asked anew for each try, and before it is sent: what is called started under this lease must also start
		// under this lease. The shim refuses what was held up on its way there.
		var young bool
		if startBy, young = w.lease.startBy(); !young {
			return &final{errors.New("no beat of the node was acknowledged for " + w.lease.startWithin.String())}
		}
		started, err = w.db.Start(c, w.node, boot, ids)
		return err
	})
	// Held, killed, or a condition was withdrawn while it prepared. What a lost answer has started all the same is
	// left alone by RollBack, and found by audit.
	why := "it was held, killed or made to wait while it prepared"
	if errors.Is(err, capri.ErrForbidden) {
		w.disown(boot, err)
	}
	if err != nil {
		started, why = nil, "its worker could not start it: "+err.Error()
	}
	going := make([]*attempt, 0, len(started))
	for _, id := range started {
		by[id].startBy = startBy
		going = append(going, by[id])
		delete(by, id)
	}
	for _, a := range by {
		w.giveBack(a, why)
	}
	w.handOver(hard, going)
}

// handOver gives started attempts to the shim.
//
// Dead here, the database says "started" and no shim has heard of them: the next life finds that out by asking
// the shims, and reports them lost.
func (w *Worker) handOver(hard context.Context, attempts []*attempt) {
	jobs := make([]supervisor.Job, 0, len(attempts))
	given := attempts[:0]
	for _, a := range attempts {
		j, err := w.job(a)
		if err != nil {
			w.fail(a, err.Error(), false)
			continue
		}
		jobs = append(jobs, j)
		given = append(given, a)
	}
	if len(jobs) == 0 {
		return
	}
	w.table.advance(running, given...) // first: an exit may come before Start returns
	err := w.shims.Start(hard, jobs)
	for _, a := range given { // what only starting needs; ten thousand running jobs should not weigh their commands
		a.process.Argv, a.process.Env, a.inputs = nil, nil, nil
	}
	if err == nil {
		return
	}
	// It is this node's fault and not the jobs': no retry is used, and nothing more is taken for a while, or the
	// node would swallow whatever is ready.
	w.log.Error("cannot start jobs; nothing is claimed for a while", "jobs", len(jobs), "pause", shimPause, "err", err)
	w.mu.Lock()
	w.pauseTil = time.Now().Add(shimPause)
	w.mu.Unlock()
	why := cleanText("could not be started: "+err.Error(), mostMessage)
	for _, a := range given {
		w.table.end(a.id)
		w.ends.put(ending{a: a, Result: store.Result{Attempt: a.id, Outcome: store.Lost, Message: why}})
	}
}

// shimPause is how long a node that cannot start jobs takes none.
const shimPause = 10 * time.Second

// job makes of an attempt what the shim is told.
func (w *Worker) job(a *attempt) (supervisor.Job, error) {
	j := supervisor.Job{
		Attempt: a.id, Argv: a.process.Argv, Env: a.process.Env, Dir: a.dir, KillGrace: w.o.KillGrace,
		RunTimeout: time.Duration(a.task.Limits.RunTimeoutMinutes) * time.Minute, StartBy: a.startBy,
	}
	if w.o.EndOverMemory {
		j.EndOverMB = a.memory
	}
	if a.account != nil {
		j.Credential = &supervisor.Credential{UID: a.account.UID, GID: a.account.GID, Groups: a.account.Groups}
	}
	var err error
	if j.Stdout, err = w.logPath(a, logs.Out); err != nil {
		return j, err
	}
	j.Stderr, err = w.logPath(a, logs.Err)
	return j, err
}

func (w *Worker) logPath(a *attempt, s logs.Stream) (string, error) {
	name, err := logs.Name(a.task.Name, a.id, s)
	if err != nil {
		return "", err
	}
	return w.logs.Path(name)
}
