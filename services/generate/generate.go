// Package generate makes the batches of each mark: month, week, day and hour marks from the calendar, and cron
// fires through the due list. Every mark since the last complete one is made, in the order of their times, so an
// outage of any length heals by itself afterwards (seed 002 §1.1).
//
//	mark log ──▶ marks since ──▶ who takes part (pages) ──▶ batches ──▶ insert ──▶ ledger adds up: mark complete
//
// If the process dies anywhere in between, the mark is not complete and the next turn makes it again: what exists
// already is found by its unique key and counted as present.
//
// A turn ends after so many marks or batches and asks for the next one at once: the lease is looked after in between,
// cron fires are not kept waiting by a week of hours, and dispatch begins with what there is. When all is caught up
// one alert says what was missed (outage.go).
package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"capri"
	"capri/birth"
	"capri/calendar"
	"capri/cron"
	"capri/services"
	"capri/sql/store"
	"capri/wake"
)

const (
	page       = 2000             // tasks read at once
	catchUp    = 10 * time.Minute // a batch made later than this after its mark is caught up
	manyFailed = 10               // more failures than this in one mark are severe
	retries    = 3                // after the first try
	firesAhead = 1000             // of one task in one turn

	// What a turn makes at most, as long as that is less than one mark: a mark is never cut.
	marksATurn   = 24
	batchesATurn = 200_000
	firesATurn   = 20_000
)

// Service generates. Make it with New.
type Service struct {
	store    *store.Store
	calendar calendar.Calendar
	log      *slog.Logger
	parallel int         // insert transactions at once; SQLite has one writer anyway
	looked   capri.Epoch // under which it has looked for an outage that its predecessor did not tell of
}

// New makes the service.
func New(s *store.Store, c calendar.Calendar, log *slog.Logger) *Service {
	return &Service{store: s, calendar: c, log: log, parallel: s.Dialect().Writers}
}

// Run makes what is due.
func (s *Service) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	w := &work{Service: s, turn: t, counts: map[string]int{}, parents: knowNobody(s.calendar)}
	for _, step := range []func(context.Context) error{w.marks, w.cron, w.retryFailed, w.outage} {
		if err := step(ctx); err != nil {
			return w.result(), err
		}
	}
	return w.result(), nil
}

// work is one turn.
type work struct {
	*Service
	turn    services.Turn
	parents parents
	counts  map[string]int
	next    capri.Instant
	again   bool
	late    bool // a mark was made that belongs to an outage
}

func (w *work) result() services.Result {
	r := services.Result{Counts: w.counts, Next: w.next, Again: w.again}
	if w.counts["made"] > 0 {
		r.Wake = []string{wake.Dependency, wake.Dispatch}
	}
	return r
}

func (w *work) wakeAt(at capri.Instant) {
	if at != 0 && (w.next == 0 || at < w.next) {
		w.next = at
	}
}

// due is a mark that has come and is not complete.
type due struct {
	period capri.Period
	iv     capri.Interval
}

// marks makes what is due of the calendar periods, the oldest first; of marks at the same time the longer period's.
func (w *work) marks(ctx context.Context) error {
	var all []due
	for _, p := range []capri.Period{capri.Month, capri.Week, capri.Day, capri.Hour} {
		some, err := w.due(ctx, p)
		if err != nil {
			return err
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b due) int { return cmp.Compare(a.iv.Mark, b.iv.Mark) })
	batches := 0
	for i, d := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i == marksATurn || batches >= batchesATurn {
			w.again = true
			return nil
		}
		n, err := w.mark(ctx, d.period, d.iv)
		if err != nil {
			return fmt.Errorf("%s mark %s: %w", d.period, d.iv.BatchNo, err)
		}
		batches += n
		w.late = w.late || w.origin(d.iv.Mark) == capri.OriginCatchUp
	}
	return nil
}

// due lists the first marks of a period that are to be made, one more than a turn makes.
func (w *work) due(ctx context.Context, p capri.Period) ([]due, error) {
	last, ok, err := w.store.LastMark(ctx, p)
	if err != nil {
		return nil, err
	}
	if !ok { // an empty log starts at the next mark
		last = w.turn.Now
		if err := w.store.StartMarkLog(ctx, w.turn.Lease, p, last); err != nil {
			return nil, err
		}
	}
	var some []due
	for iv := range w.calendar.Marks(p, last+1, w.turn.Now+1) {
		if some = append(some, due{p, iv}); len(some) > marksATurn {
			break
		}
	}
	for iv := range w.calendar.Marks(p, w.turn.Now+1, w.turn.Now.Add(45*24*time.Hour)) {
		w.wakeAt(iv.Mark)
		break
	}
	return some, nil
}

func (w *work) origin(mark capri.Instant) capri.Origin {
	if w.turn.Now.Sub(mark) > catchUp {
		return capri.OriginCatchUp
	}
	return capri.OriginMark
}

// mark makes one mark, page by page of the tasks that take part in it. It returns how many those were.
func (w *work) mark(ctx context.Context, p capri.Period, iv capri.Interval) (int, error) {
	m := store.Mark{Period: p, Mark: iv.Mark, StartedAt: w.turn.Now}
	// The next page is read and its batches are born while this one is inserted: decoding definitions costs about as
	// much as inserting batches, and the database has its own processor.
	var failed []failure
	pages := make(chan born, 1)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var eg errgroup.Group
	eg.Go(func() error {
		defer close(pages)
		return w.readPages(reading, p, iv, pages)
	})
	for b := range pages {
		ins, bad, err := w.insert(ctx, b.batches, nil)
		if err != nil {
			stop()
			for range pages { // the reader may be waiting to hand over
			}
			return 0, errors.Join(err, ignoreCanceled(eg.Wait()))
		}
		for _, nb := range ins.Made {
			if nb.State == capri.Finished {
				m.Skipped++
			} else {
				m.Made++
			}
		}
		m.Present += len(ins.Present)
		failed = append(append(failed, b.failed...), w.named(bad, b.tasks)...)
		m.Expected += len(b.tasks)
	}
	if err := eg.Wait(); err != nil {
		return 0, err
	}
	m.Failed = len(failed)
	failedTasks := make([]capri.TaskID, 0, len(failed))
	for _, f := range failed {
		failedTasks = append(failedTasks, f.task)
		if err := w.store.FailGeneration(ctx, w.turn.Lease, store.GenerateFailure{Period: p, Mark: iv.Mark, Task: f.task, Tries: f.tries, Error: f.err.Error()}, f.name); err != nil {
			return 0, err
		}
	}
	if len(failed) > manyFailed {
		if err := w.alertMany(ctx, p, iv.Mark, fmt.Sprintf("the %s mark %s", p, iv.BatchNo), failed); err != nil {
			return 0, err
		}
	}
	w.counts["marks"]++
	w.counts["made"] += m.Made
	w.add("present", m.Present)
	w.add("skipped", m.Skipped)
	w.add("failed", m.Failed)
	return m.Expected, w.store.CompleteMark(ctx, w.turn.Lease, m, failedTasks...)
}

// born is a page of a mark: the tasks that take part, and their batches.
type born struct {
	tasks   []*capri.Task
	batches []*capri.NewBatch
	failed  []failure
}

// readPages hands over the tasks that take part in a mark, page by page, with their batches.
func (w *work) readPages(ctx context.Context, p capri.Period, iv capri.Interval, pages chan<- born) error {
	origin := w.origin(iv.Mark)
	for after := capri.TaskID(0); ; {
		tasks, err := w.store.TakingPart(ctx, p, iv.Mark, after, page)
		if err != nil {
			return err
		}
		if err := w.parents.read(ctx, w.store, tasks); err != nil {
			return err
		}
		b := born{tasks: tasks, batches: make([]*capri.NewBatch, 0, len(tasks))}
		for _, t := range tasks {
			nb, err := w.birth(t, iv, origin)
			if err != nil {
				b.failed = append(b.failed, failure{t.ID, iv.Mark, t.Name, 1, err})
				continue
			}
			b.batches = append(b.batches, nb)
		}
		select {
		case pages <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
		if len(tasks) < page {
			return nil
		}
		after = tasks[len(tasks)-1].ID
	}
}

// ignoreCanceled drops the error of a reader that was told to stop.
func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (w *work) add(name string, n int) {
	if n > 0 {
		w.counts[name] += n
	}
}

// birth makes a task's batch; one whose time is over already is born skipped.
func (w *work) birth(t *capri.Task, iv capri.Interval, origin capri.Origin) (b *capri.NewBatch, err error) {
	err = w.guarded(t.Name, func() error {
		compiled, err := birth.Compile(t)
		if err != nil {
			return err
		}
		b, err = w.bear(compiled, iv, origin)
		return err
	})
	return b, err
}

func (w *work) bear(t *birth.Task, iv capri.Interval, origin capri.Origin) (*capri.NewBatch, error) {
	b, err := w.parents.maker.Batch(t, iv, origin, 0, w.turn.Now)
	if err == nil && b.SkipAt != 0 && b.SkipAt <= w.turn.Now {
		b.State, b.FinishState, b.Message = capri.Finished, capri.Skipped, "skipped: its time was over when it was made"
	}
	return b, err
}

// guarded makes a panic over one task that task's failure. Marks are read on a goroutine of their own, where a panic
// would end the process, and the next one's at the same task.
func (w *work) guarded(task string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("a task's definition caused a fault", "task", task, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal fault: %v", p)
		}
	}()
	return do()
}

// failure is a task that has no batch at a mark.
type failure struct {
	task  capri.TaskID
	at    capri.Instant
	name  string
	tries int
	err   error
}

// insert writes batches in groups; a group that fails is cut down until the tasks that cannot be inserted stand
// alone, so that one bad task costs nobody else its batch. A lost lease or database ends the turn instead.
func (w *work) insert(ctx context.Context, batches []*capri.NewBatch, also func(*store.Tx, store.Inserted) error) (store.Inserted, []failure, error) {
	size := 1000
	groups := make([][]*capri.NewBatch, 0, len(batches)/size+1)
	for g := range slices.Chunk(batches, size) {
		groups = append(groups, g)
	}
	results := make([]store.Inserted, len(groups))
	failures := make([][]failure, len(groups))
	var eg errgroup.Group
	eg.SetLimit(w.parallel)
	for i, g := range groups {
		eg.Go(func() (err error) {
			results[i], failures[i], err = w.insertGroup(ctx, g, also)
			return err
		})
	}
	err := eg.Wait()
	var all store.Inserted
	for _, r := range results {
		all.Made = append(all.Made, r.Made...)
		all.Present = append(all.Present, r.Present...)
	}
	return all, slices.Concat(failures...), err
}

func (w *work) insertGroup(ctx context.Context, g []*capri.NewBatch, also func(*store.Tx, store.Inserted) error) (store.Inserted, []failure, error) {
	tries := 1
	if len(g) == 1 {
		tries += retries
	}
	var ins store.Inserted
	var err error
	for range tries {
		if ins, err = w.store.InsertBatches(ctx, store.ByService(w.turn.Lease), g, also); err == nil {
			return ins, nil, nil
		}
		if ctx.Err() != nil || errors.Is(err, capri.ErrStaleEpoch) || errors.Is(err, capri.ErrUnavailable) {
			return store.Inserted{}, nil, err
		}
	}
	if len(g) == 1 {
		return store.Inserted{}, []failure{{task: g[0].TaskID, at: g[0].ScheduleTime, tries: tries, err: err}}, nil
	}
	half := len(g) / 2
	a, badA, err := w.insertGroup(ctx, g[:half], also)
	if err != nil {
		return a, badA, err
	}
	b, badB, err := w.insertGroup(ctx, g[half:], also)
	return store.Inserted{Made: append(a.Made, b.Made...), Present: append(a.Present, b.Present...)}, append(badA, badB...), err
}

func (w *work) named(bad []failure, tasks []*capri.Task) []failure {
	for i := range bad {
		for _, t := range tasks {
			if t.ID == bad[i].task {
				bad[i].name = t.Name
			}
		}
	}
	return bad
}

// alertMany tells admins that many tasks failed at once. failed has each task once.
func (w *work) alertMany(ctx context.Context, p capri.Period, mark capri.Instant, where string, failed []failure) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%d tasks have no batch for %s.", len(failed), where)
	for _, f := range failed[:manyFailed] {
		fmt.Fprintf(&text, "\n%s: %v", f.name, f.err)
	}
	return w.store.WriteAs(ctx, "alert of many failures", w.turn.Lease, func(tx *store.Tx) error {
		return tx.Alert(capri.Alert{Key: fmt.Sprintf("generate_many_failed:%d:%d", p, mark), Level: capri.Severe, Kind: "generate_many_failed",
			Title: fmt.Sprintf("%d tasks failed at %s", len(failed), where), Text: text.String()})
	})
}

// retryFailed tries failed tasks of complete marks again, by their newest version.
func (w *work) retryFailed(ctx context.Context) error {
	due, err := w.store.FailuresDue(ctx, w.turn.Now, page)
	if err != nil || len(due) == 0 {
		return err
	}
	for _, f := range due {
		tasks, err := w.store.TakingPart(ctx, f.Period, f.Mark, f.Task-1, 1)
		if err != nil {
			return err
		}
		if len(tasks) == 0 || tasks[0].ID != f.Task { // deleted, disabled or of another period now: it is not expected any more
			if err := w.store.WriteAs(ctx, "settle a failed generation", w.turn.Lease, func(tx *store.Tx) error { return tx.SettleFailure(f, false) }); err != nil {
				return err
			}
			continue
		}
		if err := w.parents.read(ctx, w.store, tasks); err != nil {
			return err
		}
		var b *capri.NewBatch
		iv, err := w.intervalOf(f, tasks[0])
		if err == nil {
			b, err = w.birth(tasks[0], iv, w.origin(f.Mark))
		}
		if err == nil {
			var bad []failure
			var ins store.Inserted
			ins, bad, err = w.insertGroup(ctx, []*capri.NewBatch{b}, func(tx *store.Tx, in store.Inserted) error { return tx.SettleFailure(f, len(in.Made) > 0) })
			if err != nil {
				return err
			}
			w.add("made", len(ins.Made))
			if len(bad) == 0 {
				w.add("healed", 1)
				continue
			}
			err = bad[0].err
		}
		f.Tries, f.Error = f.Tries+1, err.Error()
		if err := w.store.FailGeneration(ctx, w.turn.Lease, f, tasks[0].Name); err != nil {
			return err
		}
	}
	return nil
}

// intervalOf finds the interval of a failed mark or fire again.
func (w *work) intervalOf(f store.GenerateFailure, t *capri.Task) (capri.Interval, error) {
	if f.Period == capri.Cron {
		e, err := cron.Parse(t.Cron)
		if err != nil {
			return capri.Interval{}, err
		}
		return w.calendar.CronInterval(e, f.Mark), nil
	}
	for iv := range w.calendar.Marks(f.Period, f.Mark, f.Mark+1) {
		return iv, nil
	}
	return capri.Interval{}, fmt.Errorf("%s is no %s mark in the business zone", f.Mark, f.Period)
}
