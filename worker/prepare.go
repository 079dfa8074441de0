package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/files"
	"capri/sql/store"
)

// prepareAll gets claimed batches ready to start. Those that have nothing to wait for, nearly all, are ready when it
// returns; the others prepare in goroutines of their own, so that a slow file system holds up nobody else.
func (w *Worker) prepareAll(ctx, hard context.Context, claimed []store.Claimed) {
	if len(claimed) == 0 {
		return
	}
	attempts := make([]*attempt, len(claimed))
	var judged []capri.BatchID
	memory := false
	for i, c := range claimed {
		a := newAttempt(c)
		attempts[i] = a
		if a.byOutput() {
			judged = append(judged, c.ID)
		}
		memory = memory || a.memory > 0
	}
	var outputs map[capri.BatchID][]capri.PathCondition
	if len(judged) > 0 {
		var err error
		outputs, err = w.db.OutputsOf(hard, judged)
		if w.health.note(err); err != nil {
			for _, a := range attempts { // they cannot be judged, and all go back: the database is away
				w.table.admit(a)
				w.giveBack(a, "its worker could not read its outputs")
			}
			return
		}
	}
	short := w.shortage(attempts, memory)
	ready := make([]*attempt, 0, len(attempts))
	for i, a := range attempts {
		a.outputs = outputs[a.id.Batch]
		slow := len(a.inputs) > 0 || len(a.task.Job.Files) > 0 || len(a.outputs) > 0
		own, cancel := ctx, context.CancelFunc(nil)
		if slow {
			own, cancel = context.WithCancel(ctx)
			a.cancel = cancel
		}
		// From here on others see it.
		if reason := w.table.admit(a); reason != "" || short[i] != "" {
			if cancel != nil {
				cancel()
			}
			w.reject(a, strings.Join(slices.DeleteFunc([]string{reason, short[i]}, func(s string) bool { return s == "" }), "; "))
			continue
		}
		if !slow {
			if w.prepare(own, a) {
				ready = append(ready, a)
			}
			continue
		}
		w.preparing.Go(func() {
			defer cancel()
			select {
			case w.preps <- struct{}{}:
			case <-own.Done():
				w.giveBack(a, "it was stopped while it prepared")
				return
			}
			defer func() { <-w.preps }()
			if w.prepare(own, a) {
				w.starts.put(a)
			}
		})
	}
	w.starts.put(ready...)
}

// shortage says, for each attempt, what the machine is short of for it; "" is nothing.
func (w *Worker) shortage(attempts []*attempt, memoryMatters bool) []string {
	short := make([]string, len(attempts))
	lacks := ""
	switch d, err := w.disk(); {
	case err != nil: // what cannot be told holds up nobody
	case d.readOnly != "":
		lacks = d.readOnly + " is read-only"
	case d.freeMB < w.o.MinFreeMB:
		lacks = fmt.Sprintf("the disk of %s has %d MB left", w.directory.path, d.freeMB)
	}
	if lacks != "" {
		for i := range short {
			short[i] = lacks
		}
		return short
	}
	if !memoryMatters {
		return short
	}
	_, available := memory()
	for i, a := range attempts {
		if a.memory == 0 {
			continue
		}
		if int64(a.memory) > available && available > 0 {
			short[i] = fmt.Sprintf("it needs %d MB, and the machine has %d MB available", a.memory, available)
			continue
		}
		available -= int64(a.memory)
	}
	return short
}

// prepare makes one attempt ready; false: it does not start, and that is on its way.
func (w *Worker) prepare(ctx context.Context, a *attempt) bool {
	var err error
	fail := func(err error) bool {
		if ctx.Err() != nil {
			w.giveBack(a, "it was stopped while it prepared")
		} else {
			w.fail(a, cleanText(err.Error(), mostMessage), true)
		}
		return false
	}
	if len(a.inputs) > 0 {
		gone, err := w.looks.check(ctx, a.inputs)
		switch {
		case len(gone) > 0:
			w.backs.put(giveBack{gone: gone, GiveBack: store.GiveBack{Attempt: a.id, Why: goneText(gone)}})
			return false
		case ctx.Err() != nil:
			w.giveBack(a, "it was stopped while it prepared")
			return false
		case err != nil: // nobody knows whether they are there: this node cannot see them now
			w.reject(a, "its inputs could not be looked at: "+err.Error())
			return false
		}
	}
	if a.account, err = w.accounts.Of(a.task.Job.Account); err != nil {
		return fail(err)
	}
	dir := w.directory.in(jobDir, a.id.String())
	if a.process, err = w.jobs.Make(a.task, &a.batch, dir, a.account); err != nil {
		return fail(err)
	}
	if len(w.o.Secret) > 0 {
		a.process.Env = append(a.process.Env, "CAPRI_ATTEMPT_TOKEN="+store.AttemptToken(w.o.Secret, a.id))
	}
	if err := w.makeDir(ctx, a); err != nil {
		var no *refusal
		if errors.As(err, &no) {
			return fail(no.err)
		}
		if errors.Is(err, capri.ErrUnavailable) && ctx.Err() == nil { // its files may be had elsewhere, or later
			w.reject(a, err.Error())
			return false
		}
		w.reject(a, "its directory could not be made: "+err.Error())
		return false
	}
	if err := w.remember(ctx, a); err != nil {
		if errors.Is(err, capri.ErrUnavailable) && ctx.Err() == nil {
			w.reject(a, err.Error())
			return false
		}
		return fail(err)
	}
	return true
}

func goneText(gone []capri.PathCondition) string {
	text := files.Name(gone[0]) + " is not there any more"
	if len(gone) > 1 {
		text += fmt.Sprintf(" (and %d more)", len(gone)-1)
	}
	return text
}

// refusal is an error of the task's files, not of this node.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }

// makeDir makes the attempt's directory with the task's files in it. It is ours and closed until all is there, and
// then its account's alone.
func (w *Worker) makeDir(ctx context.Context, a *attempt) error {
	fetches := len(a.task.Job.Files) > 0
	dir, spare, err := w.jobDirs.make(a.id.String(), a.owner(), !fetches)
	if err != nil {
		return err
	}
	a.dir = dir
	if fetches {
		if err := w.fetch(ctx, a); err != nil {
			return err
		}
	}
	if spare || a.account == nil {
		return nil
	}
	return os.Lchown(dir, int(a.account.UID), int(a.account.GID))
}

func (w *Worker) fetch(ctx context.Context, a *attempt) error {
	ctx, cancel := context.WithTimeout(ctx, w.o.FetchTimeout)
	defer cancel()
	root, err := os.OpenRoot(a.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, url := range a.task.Job.Files {
		if err := w.o.Files.Fetch(ctx, url, root, a.account); errors.Is(err, capri.ErrUnavailable) {
			return err
		} else if err != nil {
			return &refusal{err}
		}
		if a.account == nil {
			continue
		}
		name, err := files.BaseName(url)
		if err == nil {
			err = root.Lchown(name, int(a.account.UID), int(a.account.GID))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// prepared is what is kept on disk of an attempt that is judged by its outputs: a worker that restarts while the job
// runs must still know how they looked before.
type prepared struct {
	Outputs []capri.PathCondition `json:"outputs"`
	Before  []files.Stamp         `json:"before"`
}

func (w *Worker) remember(ctx context.Context, a *attempt) error {
	if !a.byOutput() {
		return nil
	}
	for _, p := range a.outputs {
		s, err := w.o.Files.Stat(ctx, p)
		if err != nil {
			return err
		}
		a.before = append(a.before, s)
	}
	b, err := json.Marshal(prepared{a.outputs, a.before})
	if err != nil {
		return err
	}
	return os.WriteFile(w.directory.in(preparedDir, a.id.String()), b, 0o600)
}

// recall reads what remember wrote. Without it every output counts as changed when it is there: the file is written
// before the job starts, so it is missing only where somebody removed it.
func (w *Worker) recall(a *attempt) {
	if !a.byOutput() {
		return
	}
	var p prepared
	b, err := os.ReadFile(w.directory.in(preparedDir, a.id.String()))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		w.log.Warn("how the outputs looked before is not known", "attempt", a.id.String(), "err", err)
	}
	a.outputs, a.before = p.Outputs, p.Before
}

// discard removes what an attempt had on disk beside its logs. Of one that an earlier process started a is nil.
func (w *Worker) discard(id capri.Attempt, a *attempt) {
	var err error
	if a != nil {
		err = w.jobDirs.drop(id.String(), a.owner())
	} else {
		err = removeAll(w.directory.in(jobDir, id.String()))
	}
	if err != nil {
		w.log.Warn("remove a job's directory", "err", err)
	}
	if a == nil || a.byOutput() {
		os.Remove(w.directory.in(preparedDir, id.String()))
	}
}

// removeAll removes a tree of a job. Jobs leave directories that their owner may not write to (module caches are
// such); where that owner is us and not root, they are opened first.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || os.Geteuid() == 0 { // root is not stopped by modes, and must not change any on a job's word
		return err
	}
	root, openErr := os.OpenRoot(dir)
	if openErr != nil {
		return err
	}
	defer root.Close()
	fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, _ error) error { //nolint:errcheck // what stays shut shows below
		if d != nil && d.IsDir() {
			return root.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// sweep removes what attempts of earlier processes left.
func (w *Worker) sweep(keep map[string]bool) {
	for _, in := range []string{jobDir, preparedDir} {
		entries, err := os.ReadDir(w.directory.in(in))
		if err != nil {
			w.log.Warn("look for what earlier jobs left", "err", err)
		}
		for _, e := range entries {
			if keep[e.Name()] {
				continue
			}
			if err := removeAll(w.directory.in(in, e.Name())); err != nil {
				w.log.Warn("remove what an earlier job left", "err", err)
			}
		}
	}
}

// giveBack returns an attempt that does not start, through no fault of its own.
func (w *Worker) giveBack(a *attempt, why string) {
	w.backs.put(giveBack{GiveBack: store.GiveBack{Attempt: a.id, Why: why}})
}

// reject returns an attempt for which this node is short of something.
func (w *Worker) reject(a *attempt, why string) {
	w.backs.put(giveBack{GiveBack: store.GiveBack{
		Attempt: a.id, Why: cleanText(fmt.Sprintf("node %s: %s", w.node, why), mostMessage), Rejected: true,
		Limit: a.task.Retry.Rejected, Pause: time.Duration(a.task.Retry.RejectedIntervalS) * time.Second,
	}})
}

// fail ends an attempt that cannot start because of what its task says.
func (w *Worker) fail(a *attempt, why string, again bool) {
	w.table.end(a.id)
	w.hurry()
	r := store.Result{Attempt: a.id, Outcome: store.Failed, Message: "could not be started: " + strings.TrimPrefix(why, "could not be started: ")}
	if again {
		r.Retries, r.RetryInterval = a.task.Retry.Failed, time.Duration(a.task.Retry.FailedIntervalS)*time.Second
	}
	w.ends.put(ending{Result: r, a: a})
}

// giveBack is an attempt on its way back to waiting.
type giveBack struct {
	store.GiveBack
	gone []capri.PathCondition
}

// giveBackAll writes attempts back, until the queue is closed.
func (w *Worker) giveBackAll(hard context.Context) {
	for {
		group, ok := w.backs.next(most)
		if !ok {
			return
		}
		w.writeBack(hard, group)
	}
}

func (w *Worker) writeBack(hard context.Context, group []giveBack) {
	var gone []capri.PathCondition
	seen := map[capri.PathCondition]bool{}
	backs := make([]store.GiveBack, len(group))
	for i, g := range group {
		backs[i] = g.GiveBack
		for _, p := range g.gone {
			if !seen[p] {
				seen[p] = true
				gone = append(gone, p)
			}
		}
	}
	err := w.persist(hard, func(ctx context.Context) error {
		// First the paths: what goes back to waiting before them would be placed again at once. Dead in between,
		// the next process gives back what is still preparing.
		if len(gone) > 0 {
			if err := w.db.PathsGone(ctx, w.node, gone); err != nil {
				return err
			}
		}
		return w.db.RollBack(ctx, w.node, backs)
	})
	if err != nil {
		if hard.Err() == nil {
			w.log.Error("give batches back", "err", err)
		}
		return // the next life gives them back
	}
	for _, g := range group {
		if a := w.table.get(g.Attempt); a != nil {
			w.discard(g.Attempt, a)
		}
		w.table.remove(g.Attempt)
		w.log.Debug("gave a batch back", "attempt", g.Attempt.String(), "why", g.Why)
	}
	w.hurry()
	w.o.Waker.Wake(wakeAfterBack(len(gone) > 0)...)
}
