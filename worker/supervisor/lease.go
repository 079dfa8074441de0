package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"capri"
	"capri/worker/shim"
)

// Renew tells every shim that the node's lease was renewed. It never waits, since its caller is about to send the next
// beat: each life has a goroutine that tells its shim, and a shim that is connected later is told then.
func (s *Supervisor) Renew(l shim.Lease) {
	s.mu.Lock()
	s.lease = &l
	s.mu.Unlock()
	for _, l := range s.living() {
		select {
		case l.renewed <- struct{}{}:
		default: // it is about to be told the newest
		}
	}
}

// tellLeases tells the shim of leases until it is dead or we are closed.
func (l *life) tellLeases() {
	for {
		select {
		case <-l.renewed:
		case <-l.gone:
			return
		case <-l.s.ctx.Done():
			return
		}
		l.writing.Lock()
		l.sendLease()
		l.writing.Unlock()
	}
}

// sendLease tells the newest lease; the caller holds writing. What fails is sent after the next hello.
func (l *life) sendLease() {
	if lease := l.s.newestLease(); lease != nil {
		_ = l.send(context.Background(), &shim.Message{Lease: lease})
	}
}

func (s *Supervisor) newestLease() *shim.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

// EndAll ends every job, SIGTERM and then SIGKILL when grace is over, and returns when nothing of any is left: the node
// may run them no longer, and others may start them now. grace is more than 0. Their exits say Lapsed. The jobs of a shim that does not answer
// (stopped, swapped out) are ended without it, and then that shim.
func (s *Supervisor) EndAll(ctx context.Context, grace time.Duration) error {
	var ending sync.WaitGroup
	for _, l := range s.living() {
		ending.Go(func() { l.endAll(ctx, grace) })
	}
	ending.Wait()
	return ctx.Err()
}

// EndWith is EndAll for the shims that hold any of these attempts: for those that do not come to an end by Kill.
func (s *Supervisor) EndWith(ctx context.Context, attempts []capri.Attempt, grace time.Duration) error {
	var ending sync.WaitGroup
	for l := range s.byLife(attempts) {
		ending.Go(func() { l.endAll(ctx, grace) })
	}
	ending.Wait()
	return ctx.Err()
}

const (
	// answerSoon and a quarter of the grace bound how long a shim may think about EndAll. One that runs answers in
	// milliseconds; what a grace is for must not be spent on waiting for one that does not.
	answerSoon = time.Second
	// endPace is how often we look whether all has ended.
	endPace = 5 * time.Millisecond
)

func (l *life) endAll(ctx context.Context, grace time.Duration) {
	for began := time.Now(); ctx.Err() == nil; {
		n := l.running()
		if n == 0 {
			return
		}
		if l.tellEnd(ctx, grace) == nil {
			// It kills after the grace, and then gives a process in a system call that hangs some seconds more.
			l.awaitNone(ctx, began.Add(grace+2*sweepFor))
			if l.running() == 0 || ctx.Err() != nil {
				return
			}
		}
		l.mu.Lock()
		id, dead := l.id, l.dead
		l.mu.Unlock()
		if !dead && id.Alive() {
			l.s.log.Error("a shim does not end its jobs; they are ended without it", "shim", l.dir, "pid", id.Pid, "attempts", n)
			l.endJobs(ctx, id, began.Add(grace))
			if err := id.Kill(); err != nil {
				l.s.log.Error("end a shim that hangs", "shim", l.dir, "pid", id.Pid, "error", err)
			}
		}
		// bury kills what is left and reports all as lost. Whoever comes here again found a shim that lives on, which
		// must not keep us from trying again.
		l.awaitNone(ctx, time.Now().Add(answerWithin))
	}
}

// Jobs counts the attempts whose exits are not known.
func (s *Supervisor) Jobs() int {
	n := 0
	for _, l := range s.living() {
		n += l.running()
	}
	return n
}

// running counts the attempts whose exits are not known.
func (l *life) running() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, p := range l.attempts {
		if p == handed {
			n++
		}
	}
	return n
}

func (l *life) awaitNone(ctx context.Context, deadline time.Time) {
	for l.running() > 0 && time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(endPace):
		}
	}
}

// tellEnd asks the shim to end all its jobs, and asks for an answer to something else to see that it is awake. An
// error means that it is not, or that nobody can tell.
func (l *life) tellEnd(ctx context.Context, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, min(answerSoon, grace/4))
	defer cancel()
	told := make(chan error, 1)
	l.s.wg.Go(func() { // it may wait for another frame that the shim does not read, longer than we can
		l.mu.Lock()
		var kills []shim.Kill
		for a, p := range l.attempts {
			if p == handed {
				kills = append(kills, shim.Kill{Attempt: a.String(), Grace: grace, Lapsed: true})
			}
		}
		l.mu.Unlock()
		err := l.post(ctx, &shim.Message{Kill: kills})
		if err == nil {
			_, err = l.inventory(ctx)
		}
		told <- err
	})
	select {
	case err := <-told:
		return err
	case <-ctx.Done():
		return fmt.Errorf("ask the shim in %s to end its jobs: %w", l.dir, ctx.Err())
	}
}

// endJobs asks the jobs of a hanging shim to end, until none is left or deadline has passed.
func (l *life) endJobs(ctx context.Context, id shim.Life, deadline time.Time) {
	asked := map[int]bool{}
	for {
		jobs, err := l.tracked(id)
		var members map[int]shim.Member
		if err == nil {
			members, err = shim.Members(jobs)
		}
		if err != nil {
			l.s.log.Error("look for the jobs of a shim that hangs", "shim", l.dir, "error", err)
			return
		}
		for pid, m := range members {
			if asked[pid] {
				continue
			}
			asked[pid] = true
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
				err = errors.Join(err, m.Signal(pid, sig))
			}
		}
		if err != nil {
			l.s.log.Error("end the jobs of a shim that hangs", "shim", l.dir, "error", err)
		}
		left := time.Until(deadline)
		if len(members) == 0 || left <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(left, 4*endPace)):
		}
	}
}

// tracked finds a shim's jobs without asking it: its children, and those in its journal, whose main process may be gone
// already. What is their children's is theirs.
func (l *life) tracked(id shim.Life) ([]shim.Tracked, error) {
	children, err := shim.Children(id.Pid)
	if err != nil {
		return nil, err
	}
	var jobs []shim.Tracked
	for pid, ticks := range children {
		jobs = append(jobs, shim.Tracked{Pid: pid, Since: ticks})
	}
	for _, r := range l.remains().Running {
		jobs = append(jobs, shim.Tracked{Attempt: r.Attempt, Pid: r.Pid, Since: max(r.StartTicks, id.StartTicks), Mark: id.Mark(r.Attempt)})
	}
	return jobs, nil
}
