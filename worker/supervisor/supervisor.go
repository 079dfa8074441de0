package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"capri"
	"capri/worker/shim"
)

// Options say where the shims live. The caller holds the lock of the node's data directory.
type Options struct {
	Dir      string       // of the shims alone, in the node's data directory; made if missing (mode 0700)
	ShimPath string       // default: capri-shim beside the running program
	Log      *slog.Logger // default: slog.Default()

	// NoCgroups: jobs' processes are known by the mark in their environment (shim.MarkName) even where there are cgroups.
	NoCgroups bool

	// AnswerWithin bounds how long a shim may be silent when it is called; default 10 s. It answers in milliseconds; one
	// that does not is stopped, or the host is swapping.
	AnswerWithin time.Duration
}

// Supervisor is the worker's side of its shims. Its methods may be called from any goroutine.
type Supervisor struct {
	dir      string
	shimPath string
	log      *slog.Logger
	answer   time.Duration // Options.AnswerWithin
	shimArgs []string      // after the directory

	starting sync.Mutex // held while a shim is chosen or started; before mu

	mu       sync.Mutex
	lives    []*life // oldest first
	number   int     // of the newest life there ever was in the directory
	current  *life   // takes new jobs; nil: the next Start starts one
	shutdown bool
	closed   bool
	lease    *shim.Lease // the node's newest; nil: it has none yet

	exits  *mailbox
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Open finds the shims in o.Dir: living ones are connected to, and what dead ones left is read from disk. All
// that is not acknowledged comes out of Exits. If no living shim can take new jobs one is started, so that a
// missing program is found now and not with the first job.
func Open(ctx context.Context, o Options) (*Supervisor, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	path, err := findShim(o.ShimPath)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.Chmod(dir, 0o700) // who can reach the sockets can run programs as us
	}
	if err != nil {
		return nil, fmt.Errorf("make the shims' directory: %w", err)
	}
	s := &Supervisor{dir: dir, shimPath: path, log: o.Log, answer: cmp.Or(o.AnswerWithin, answerWithin), exits: newMailbox()}
	if o.NoCgroups {
		s.shimArgs = []string{shim.NoCgroups}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.find(ctx); err != nil {
		s.Close()
		return nil, err
	}
	if _, err := s.taker(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// find takes over the lives in the directory, oldest first.
func (s *Supervisor) find(ctx context.Context) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("look for shims: %w", err)
	}
	var numbers []int
	for _, e := range entries {
		if n, ok := lifeNumber(e.Name()); ok && e.IsDir() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	program, err := shim.ProgramID(s.shimPath)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		s.number = n
		l := newLife(s, n)
		c, err := l.connect(ctx)
		if errors.Is(err, capri.ErrUnavailable) && ctx.Err() == nil && l.readSilent() {
			// A shim that hangs keeps its jobs and gets no new ones. It must not keep the worker from starting: who
			// else would end them when they have to end?
			s.log.Error("a shim does not answer; its jobs are left to it for now", "shim", l.dir, "pid", l.id.Pid, "attempts", l.running())
			s.attend(l)
			continue
		}
		if err != nil && !errors.Is(err, errNobody) {
			return err
		}
		if err != nil {
			s.lives = append(s.lives, l)
			l.bury() // here and now, so that Unknown can be trusted after Open
			continue
		}
		// An older program keeps its jobs to their end and takes no new ones: an upgrade needs no pause.
		l.leaving = c.hello.Version != shim.Version || c.hello.Program != program
		if s.enlist(l, c); !l.leaving {
			s.retire(s.current)
			s.current = l
		}
	}
	return nil
}

// retire tells a shim to leave when its last job has ended. In find it is for one that could take jobs beside
// a newer one, which happens if a worker died while it started that.
func (s *Supervisor) retire(l *life) {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.leaving = true
	l.mu.Unlock()
	_ = l.post(s.ctx, &shim.Message{Leave: true}) // if this fails it is told after the next hello
}

// replace has the next Start start another shim if l is the one that takes new jobs.
func (s *Supervisor) replace(l *life) {
	s.mu.Lock()
	taker := s.current == l
	if taker {
		s.current = nil
	}
	s.mu.Unlock()
	if taker {
		s.retire(l)
	}
}

// enlist puts a connected life to work; false means that we are closed.
func (s *Supervisor) enlist(l *life, c *call) bool {
	l.reconcile(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.hangUp()
		return false
	}
	s.lives = append(s.lives, l)
	s.wg.Go(l.run)
	s.wg.Go(l.tellLeases)
	return true
}

// attend is enlist for a life that could not be connected to: run goes on calling it.
func (s *Supervisor) attend(l *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives = append(s.lives, l)
	s.wg.Go(l.run)
	s.wg.Go(l.tellLeases)
}

func lifeName(n int) string { return fmt.Sprintf("shim-%06d", n) }

func lifeNumber(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "shim-")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil
}

// taker gives the shim that takes new jobs; it starts one if there is none.
func (s *Supervisor) taker(ctx context.Context) (*life, error) {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.mu.Lock()
	l, over := s.current, s.shutdown || s.closed
	if l == nil && !over {
		s.number++
	}
	number := s.number
	s.mu.Unlock()
	if over {
		return nil, capri.Conflict("the supervisor is shut down and starts no jobs")
	}
	if l != nil {
		return l, nil
	}
	l, c, err := s.launch(ctx, number)
	if err != nil {
		return nil, err
	}
	s.log.Info("started a shim", "shim", l.dir, "pid", c.hello.Pid)
	if !s.enlist(l, c) { // it leaves, having no jobs
		return nil, capri.Conflict("the supervisor was closed while a shim started")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.isDead() { // bury looks at current after it has set dead
		s.current = l
	}
	return l, nil
}

// Start hands jobs over in one frame. After an error none of them runs or ever will. Without one each of them
// comes out of Exits, whatever happens to it: refused by the kernel, ended, killed, or lost with its shim.
func (s *Supervisor) Start(ctx context.Context, jobs []Job) error {
	attempts := make([]capri.Attempt, len(jobs))
	for i, j := range jobs {
		if err := j.check(); err != nil {
			return err
		}
		attempts[i] = j.Attempt
	}
	if len(jobs) == 0 {
		return nil
	}
	for l, mine := range s.byLife(attempts) {
		return capri.Conflict("attempt %s was handed to the shim in %s before", mine[0], l.dir)
	}
	for {
		l, err := s.taker(ctx)
		if err != nil {
			return fmt.Errorf("start %d jobs: %w", len(jobs), err)
		}
		taken, err := l.take(ctx, jobs)
		if err != nil {
			return fmt.Errorf("start %d jobs: %w", len(jobs), err)
		}
		if taken {
			return nil
		}
		select { // it died, or is being called again; soon there is it or another
		case <-ctx.Done():
			return fmt.Errorf("start %d jobs: %w", len(jobs), ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Kill asks for the end of attempts: SIGTERM to the process group, SIGKILL after grace (0: each job's own;
// negative: at once). It does not wait: the end comes out of Exits. Attempts that nobody holds are skipped.
func (s *Supervisor) Kill(ctx context.Context, attempts []capri.Attempt, grace time.Duration) error {
	var errs []error
	for l, mine := range s.byLife(attempts) {
		kills := make([]shim.Kill, len(mine))
		for i, a := range mine {
			kills[i] = shim.Kill{Attempt: a.String(), Grace: grace}
		}
		if err := l.post(ctx, &shim.Message{Kill: kills}); err != nil {
			errs = append(errs, fmt.Errorf("kill %d attempts: %w", len(mine), err))
		}
	}
	return errors.Join(errs...)
}

// Exits gives ends in batches. However slowly it is read, no shim waits for it. It is closed by Close.
// An exit may come again after a reconnection or restart, until it is acknowledged.
func (s *Supervisor) Exits() <-chan []Exit { return s.exits.out }

// Ack says that the database has the exits of these attempts; nothing is kept of them any longer. It cannot
// fail: what does not reach its shim now does so when it is connected again, or the exits come once more.
func (s *Supervisor) Ack(attempts []capri.Attempt) {
	for l, mine := range s.byLife(attempts) {
		l.ack(mine)
	}
}

// Unknown gives those attempts of which no shim has heard, or whose exits were acknowledged. After Open it
// tells a worker which of the attempts it finds in the database were never handed over.
func (s *Supervisor) Unknown(attempts []capri.Attempt) []capri.Attempt {
	known := map[capri.Attempt]bool{}
	for _, mine := range s.byLife(attempts) {
		for _, a := range mine {
			known[a] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(attempts), func(a capri.Attempt) bool { return known[a] })
}

// Running asks the living shims what they hold, in order of attempts. Of one that does not answer it lists, without
// pids, what it was given and has not reported; it gets no new jobs from then on.
func (s *Supervisor) Running(ctx context.Context) ([]Inventory, error) {
	var all []Inventory
	for _, l := range s.living() {
		held, err := l.answer(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ask shim %s for its inventory: %w", l.dir, ctx.Err())
		}
		if err != nil {
			s.log.Warn("a shim does not say what it holds", "shim", l.dir, "error", err)
			held = l.unreported()
			s.replace(l)
		}
		all = append(all, held...)
	}
	slices.SortFunc(all, func(a, b Inventory) int {
		return cmp.Or(cmp.Compare(a.Attempt.Batch, b.Attempt.Batch), cmp.Compare(a.Attempt.Number, b.Attempt.Number))
	})
	return all, nil
}

// Shutdown tells the shims to leave when their last jobs have ended, and waits for that until ctx is done.
// Nothing can be started any more; Exits goes on.
func (s *Supervisor) Shutdown(ctx context.Context) error {
	s.starting.Lock() // a shim that is being started is told, too
	s.mu.Lock()
	s.shutdown = true
	s.mu.Unlock()
	s.starting.Unlock()
	lives := s.living()
	for _, l := range lives {
		s.retire(l)
	}
	for _, l := range lives {
		if err := l.awaitLeave(ctx); err != nil {
			return fmt.Errorf("wait for shim %s to leave: %w", l.dir, err)
		}
	}
	return nil
}

// Close lets go of the shims: their jobs go on, and the next Open finds them.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.cancel()
	lives := slices.Clone(s.lives)
	s.mu.Unlock()
	for _, l := range lives {
		l.hangUp()
	}
	s.starting.Lock()   // whoever starts a shim now sees closed
	s.starting.Unlock() //nolint:staticcheck // empty on purpose: it waits for whoever is inside
	s.wg.Wait()
	s.exits.close()
	return nil
}

func (s *Supervisor) living() []*life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.lives), (*life).isDead)
}

// byLife sorts attempts by the life that knows them.
func (s *Supervisor) byLife(attempts []capri.Attempt) map[*life][]capri.Attempt {
	s.mu.Lock()
	lives := slices.Clone(s.lives)
	s.mu.Unlock()
	m := map[*life][]capri.Attempt{}
	for _, l := range lives {
		if mine := l.known(attempts); len(mine) > 0 {
			m[l] = mine
		}
	}
	return m
}

// forget drops a dead life of which all is acknowledged.
func (s *Supervisor) forget(l *life) {
	if err := os.RemoveAll(l.dir); err != nil {
		s.log.Warn("remove what a shim left", "dir", l.dir, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives = slices.DeleteFunc(s.lives, func(o *life) bool { return o == l })
}
