package shim

import (
	"log"
	"sync"
	"time"
)

// shim is one life. These goroutines work on it: the forker (fork.go), the reaper (reap.go), the one
// that waits for killed sessions (linger.go), the one that watches the lease (lease.go), the flusher (here), and a
// reader and a writer for the worker's connection (serve.go). A job has none of its own.
type shim struct {
	life    Life
	root    bool // we run as root: no job may do so
	devNull uintptr

	childrenFile string // lists the first thread's children
	journal      *journal

	adopting sync.Mutex // held while one connection follows another; before mu
	forking  sync.Mutex // held from a fork until the child is in pids; before journal.mu and mu

	mu        sync.Mutex
	jobs      map[string]*job // taken, and their exit not yet on disk
	pids      map[int]*job    // children not yet reaped
	queue     []queued        // taken, not yet forked
	lingering []*lingering    // main process reaped, told to end, the rest not yet looked for
	ended     []Exit          // not yet on disk
	unacked   map[string]Exit // on disk, not known to be in the database
	order     []string        // of unacked; may name what is acknowledged
	conn      *conn           // nil: no worker
	called    bool            // a worker is about to replace conn
	leaving   bool            // told to, as soon as nothing is left
	left      bool            // decided: no worker is taken any more
	lease     *Lease          // the newest; nil: none was ever given
	told      []*job          // asked to end, and what has left their process groups was not asked yet
	cgroups   *cgroups        // nil: cannot be had

	queueFilled sync.Cond     // on mu
	born        chan struct{} // there may be children to wait for
	lingers     chan struct{} // lingering or told is not empty
	leased      chan struct{} // there may be a lease to watch
	flush       chan struct{} // ended is not empty, or it may be time to leave
	gone        chan struct{} // closed when the shim leaves
}

// job is what is remembered of an attempt. Of its arguments and environment nothing is: ten thousand
// running jobs should not weigh what their environments weigh.
type job struct {
	attempt  string
	pid      int // 0: not forked yet
	ticks    uint64
	started  time.Time
	grace    time.Duration
	timeout  *time.Timer
	deadline time.Time   // of the grace, once it was told to end
	lapse    *time.Timer // sends SIGKILL then
	killed   bool
	timed    bool
	lapsed   bool    // the lease had run out
	cgroup   *cgroup // nil: it has none
	peak     usage
	endOver  int64 // bytes of memory; 0: no limit
	over     bool  // it had more, and was ended
}

type queued struct {
	job  *job
	spec Job
}

func newShim(dir string, life Life) (*shim, error) {
	j, err := createJournal(dir, life)
	if err != nil {
		return nil, err
	}
	s := &shim{
		life: life, journal: j,
		jobs: map[string]*job{}, pids: map[int]*job{}, unacked: map[string]Exit{},
		born: make(chan struct{}, 1), lingers: make(chan struct{}, 1), leased: make(chan struct{}, 1),
		flush: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	s.queueFilled.L = &s.mu
	return s, nil
}

// take accepts jobs. Once the take record is written, each of them is answered: by an exit from us, or as
// lost by whoever reads the journal after our death. An attempt that is known already is not taken twice.
func (s *shim) take(specs []Job) {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, spec := range specs {
		_, known := s.jobs[spec.Attempt]
		if _, ended := s.unacked[spec.Attempt]; known || ended {
			log.Printf("attempt %s was handed over twice; the second time is ignored", spec.Attempt)
			continue
		}
		j := &job{attempt: spec.Attempt, grace: spec.KillGrace, endOver: int64(spec.EndOverMB) << 20}
		if j.grace <= 0 {
			j.grace = DefaultGrace
		}
		s.jobs[spec.Attempt] = j
		s.queue = append(s.queue, queued{j, spec})
		names = append(names, spec.Attempt)
	}
	if err := s.journal.append(record{Take: names}); err != nil {
		log.Print(err) // the jobs run all the same; the journal is rewritten with the next exit
	}
	s.queueFilled.Signal()
	wake(s.leased)
}

// end notes how j ended; the caller holds mu.
func (s *shim) end(j *job, e Exit) {
	for _, t := range []*time.Timer{j.timeout, j.lapse} {
		if t != nil {
			t.Stop()
		}
	}
	if j.cgroup != nil {
		s.cgroups.give(j.cgroup)
		j.cgroup = nil
	}
	e.Attempt, e.TimedOut, e.Lapsed, e.OverMemory = j.attempt, j.timed, j.lapsed, j.over
	e.PeakMemoryMB, e.Processes = max(e.PeakMemoryMB, megabytes(j.peak.memory)), j.peak.processes
	e.Killed = j.killed || j.lapsed // an older worker knows only this word, and takes it for no failure of the job's
	if !j.started.IsZero() {
		e.Started = j.started.UnixMilli()
	}
	s.ended = append(s.ended, e)
	s.wakeFlusher()
}

func (s *shim) wakeFlusher() { wake(s.flush) }

// wake marks c, which has room for one mark.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// flushPace is the least time between two fsyncs, so that many ends share one. The first after a quiet time
// does not wait.
const flushPace = 4 * time.Millisecond

// flushExits makes ends durable and then reports them, until the shim may leave.
func (s *shim) flushExits() {
	var last time.Time
	for range s.flush {
		time.Sleep(flushPace - time.Since(last))
		s.mu.Lock()
		exits := s.ended
		s.ended = nil
		s.mu.Unlock()
		if len(exits) > 0 {
			s.settle(exits)
			last = time.Now()
		}
		s.compact()
		if s.mayLeave() {
			close(s.gone)
			return
		}
	}
}

// settle writes exits, waits for the disk and reports them.
//
// Dead before the sync: the exits may be lost, and the attempts are then reported as lost; no worker heard of
// them, so nothing was said that is no longer known. Dead after it: the next worker reads them from disk.
// A disk that fails must not hold up the database's knowledge: the exits are reported all the same.
func (s *shim) settle(exits []Exit) {
	s.journal.mu.Lock()
	err := s.journal.append(record{Exits: exits})
	s.journal.mu.Unlock()
	if err == nil {
		err = s.journal.sync()
	}
	if err != nil {
		log.Printf("%d exits are reported without being on disk: %v", len(exits), err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range exits {
		delete(s.jobs, e.Attempt)
		s.unacked[e.Attempt] = e
		s.order = append(s.order, e.Attempt)
	}
	if s.conn != nil {
		s.conn.send(&Message{Exits: exits})
	}
}

// acknowledge forgets exits that the database has. The record is not synced: when it is lost the exits are
// reported once more, which changes nothing.
func (s *shim) acknowledge(attempts []string) {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	s.mu.Lock()
	known := attempts[:0]
	for _, a := range attempts {
		if _, ok := s.unacked[a]; ok {
			delete(s.unacked, a)
			known = append(known, a)
		}
	}
	if len(s.unacked) == 0 {
		s.order = nil
	}
	s.mu.Unlock()
	if len(known) == 0 {
		return
	}
	if err := s.journal.append(record{Ack: known}); err != nil {
		log.Print(err)
	}
	s.wakeFlusher() // to compact
}

// compact rewrites a journal that is broken, or big for what it still has to say.
func (s *shim) compact() {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	s.mu.Lock()
	held := len(s.jobs) + len(s.unacked)
	if !s.journal.broken && s.journal.size < compactAt+int64(held)*1024 {
		s.mu.Unlock()
		return
	}
	recs := []record{{Life: &s.life}, {Held: s.running()}, {Exits: s.exits()}}
	s.mu.Unlock()
	if err := s.journal.rewrite(recs); err != nil {
		log.Print(err) // the old file stays, and the next flush tries again
	}
}

// running lists what has not ended; the caller holds mu.
func (s *shim) running() []Running {
	list := make([]Running, 0, len(s.jobs))
	for _, j := range s.jobs {
		r := Running{Attempt: j.attempt, Pid: j.pid, StartTicks: j.ticks}
		if j.pid != 0 {
			r.Started = j.started.UnixMilli()
			r.MemoryMB, r.Processes = megabytes(j.peak.memory), j.peak.processes
		}
		list = append(list, r)
	}
	return list
}

// exits lists what is not acknowledged, in order; the caller holds mu.
func (s *shim) exits() []Exit {
	list := make([]Exit, 0, len(s.unacked))
	order := s.order[:0]
	for _, a := range s.order {
		if e, ok := s.unacked[a]; ok {
			list = append(list, e)
			order = append(order, a)
		}
	}
	s.order = order
	return list
}

// inventory is running with exact start times: a child that we have not reaped keeps its pid, so what /proc
// says under that number is about it.
func (s *shim) inventory() []Running {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.running()
	for i, r := range list {
		if _, ours := s.pids[r.Pid]; !ours {
			continue // waits for its fork, or was reaped a moment ago
		}
		if st, err := ReadStat(r.Pid); err == nil {
			list[i].StartTicks = st.StartTicks
		}
	}
	return list
}

// mayLeave decides whether nothing is left to do: no job whose exit is not on disk, and nobody who wants more
// of us. What is unacknowledged then is the next worker's to read.
func (s *shim) mayLeave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = len(s.jobs) == 0 && (s.conn == nil && !s.called || s.leaving && s.conn != nil && s.conn.drained())
	return s.left
}
