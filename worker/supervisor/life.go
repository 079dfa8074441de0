package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"capri"
	"capri/worker/shim"
)

// life is one shim, living or dead, as its directory and our connection show it.
type life struct {
	s      *Supervisor
	number int
	dir    string

	// writing is held while a frame is written, while jobs are noted and sent, and while a new connection is
	// reconciled: or jobs noted just before a connection broke could be called lost and then be sent on the
	// next one. Taken before mu.
	writing sync.Mutex

	mu       sync.Mutex
	id       shim.Life
	conn     net.Conn // nil: none now
	in       *bufio.Reader
	attempts map[capri.Attempt]progress // all that are not acknowledged
	unsent   []capri.Attempt            // acknowledged, which the shim was not told yet
	asks     map[uint64]chan []shim.Running
	lastAsk  uint64
	leaving  bool // takes no new jobs
	dead     bool
	buried   bool
	renewed  chan struct{} // there is a lease that it was not told yet
	gone     chan struct{} // closed when it is dead and all that it left is in the mailbox
}

// progress of an attempt that we handed over or found.
type progress int

const (
	handed   progress = iota // runs, or will
	reported                 // its exit came out of Exits
)

// errNobody: there is no process behind the socket.
var errNobody = errors.New("no shim is there")

func newLife(s *Supervisor, number int) *life {
	return &life{
		s: s, number: number, dir: filepath.Join(s.dir, lifeName(number)),
		attempts: map[capri.Attempt]progress{}, asks: map[uint64]chan []shim.Running{},
		renewed: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

// answerWithin is the default of Options.AnswerWithin.
const answerWithin = 10 * time.Second

// call is a connection that was answered.
type call struct {
	conn  net.Conn
	in    *bufio.Reader
	hello *shim.Hello
}

// connect calls the shim. Nothing is sent on the new connection before it is reconciled.
func (l *life) connect(ctx context.Context) (*call, error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.answer)
	defer cancel()
	for {
		c, err := l.connectOnce(ctx)
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			return c, err
		}
		select { // it is just leaving, or dying; soon its socket is closed, too
		case <-ctx.Done():
			return nil, err
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (l *life) connectOnce(ctx context.Context) (*call, error) {
	var conn net.Conn
	err := inDir(l.dir, func(short string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", filepath.Join(short, shim.SocketName))
		return err
	})
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, errNobody
	}
	if err != nil {
		return nil, fmt.Errorf("call the shim in %s: %w", l.dir, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	in := bufio.NewReaderSize(conn, 64<<10)
	err = shim.WriteFrame(conn, &shim.Message{Greet: &shim.Greeting{Version: shim.Version}})
	var m *shim.Message
	if err == nil {
		m, err = shim.ReadFrame(in)
	}
	inTime := stop()
	switch {
	case err == nil && m.Hello != nil && inTime:
	case err == nil && inTime:
		err = errors.New("it did not answer with hello")
		fallthrough
	default:
		conn.Close()
		if ctx.Err() != nil {
			return nil, capri.Unavailable("the shim in %s does not answer (stopped, or a starved host?): %v", l.dir, ctx.Err())
		}
		return nil, fmt.Errorf("greet the shim in %s: %w", l.dir, err)
	}
	return &call{conn, in, m.Hello}, nil
}

// reconcile makes what we know agree with what the shim says, and puts the connection into use: what it holds
// is handed, what ended is reported once, and what it never got, because the last connection broke in the
// middle of a frame, is lost.
func (l *life) reconcile(c *call) {
	l.writing.Lock()
	defer l.writing.Unlock()
	held := map[capri.Attempt]bool{}
	l.mu.Lock()
	for _, r := range c.hello.Running {
		if a, err := ParseAttempt(r.Attempt); err == nil {
			held[a] = true
			l.attempts[a] = handed
		}
	}
	l.mu.Unlock()
	l.report(c.hello.Exits)
	var lost []Exit
	l.mu.Lock()
	for a, p := range l.attempts {
		if p == handed && !held[a] {
			lost = append(lost, lostExit(a, 0, "it was never started: the connection to its shim broke"))
			l.attempts[a] = reported
		}
	}
	l.conn, l.in, l.id = c.conn, c.in, c.hello.Life
	leaving := l.leaving
	l.mu.Unlock()
	l.s.exits.put(lost)
	l.sendLease()
	l.sendAcks()
	if leaving {
		_ = l.send(context.Background(), &shim.Message{Leave: true}) // if this fails the connection is gone, and the next hello tells it
	}
}

func lostExit(a capri.Attempt, started capri.Instant, why string) Exit {
	return Exit{Attempt: a, Lost: true, Error: why, Started: started, Ended: capri.InstantOf(time.Now())}
}

// report puts exits into the mailbox, except those that are there already or acknowledged.
func (l *life) report(exits []shim.Exit) {
	var fresh []Exit
	l.mu.Lock()
	acked := map[capri.Attempt]bool{}
	for _, a := range l.unsent {
		acked[a] = true
	}
	for _, e := range exits {
		x, err := exitOf(e)
		if err != nil {
			l.s.log.Error("an exit that cannot be read", "shim", l.dir, "error", err)
			continue
		}
		if p, known := l.attempts[x.Attempt]; acked[x.Attempt] || known && p == reported {
			continue
		}
		l.attempts[x.Attempt] = reported
		fresh = append(fresh, x)
	}
	l.mu.Unlock()
	l.s.exits.put(fresh)
}

// run reads what the shim says. When the connection ends it calls again, and when nobody answers it settles
// what the dead shim left.
func (l *life) run() {
	for {
		l.read()
		if !l.callAgain() {
			break
		}
	}
	if l.s.ctx.Err() == nil {
		l.bury()
	}
}

// callAgain connects anew; false means that there is nobody, or that we are closed.
func (l *life) callAgain() bool {
	for pause := 5 * time.Millisecond; l.s.ctx.Err() == nil; pause = min(2*pause, time.Second) {
		c, err := l.connect(l.s.ctx)
		if err == nil {
			l.reconcile(c)
			if l.s.ctx.Err() != nil { // Close did not see this connection
				l.hangUp()
			}
			return true
		}
		l.mu.Lock()
		alive := l.id.Alive()
		l.mu.Unlock()
		if errors.Is(err, errNobody) || !alive {
			return false
		}
		l.s.log.Warn("the shim lives and does not answer; calling again", "shim", l.dir, "error", err)
		select {
		case <-l.s.ctx.Done():
		case <-time.After(pause):
		}
	}
	return false
}

// read handles frames until the connection ends.
func (l *life) read() {
	l.mu.Lock()
	in, open := l.in, l.conn != nil
	l.mu.Unlock()
	for open {
		m, err := shim.ReadFrame(in)
		if err != nil {
			l.hangUp()
			return
		}
		l.report(m.Exits)
		if m.Inventory != nil {
			l.mu.Lock()
			answer := l.asks[m.Inventory.Ask]
			delete(l.asks, m.Inventory.Ask)
			l.mu.Unlock()
			if answer != nil {
				answer <- m.Inventory.Running
			}
		}
	}
}

// hangUp closes the connection and tells those who wait for an answer on it.
func (l *life) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
	for _, answer := range l.asks {
		close(answer)
	}
	clear(l.asks)
}

// bury settles a dead shim: sweep what may be left of its jobs' sessions, report the exits that it had
// written, and all else as lost. What dies here is done again by the next Open: nothing is removed before it
// is acknowledged.
func (l *life) bury() {
	l.writing.Lock() // jobs that are just being handed over are noted before, or go elsewhere
	l.mu.Lock()
	l.dead = true
	leaving, id := l.leaving, l.id
	l.mu.Unlock()
	l.writing.Unlock()
	l.s.mu.Lock()
	if l.s.current == l {
		l.s.current = nil // the next Start starts another
	}
	l.s.mu.Unlock()

	if id.Pid == 0 { // found dead
		id = l.remains().Life
	}
	l.awaitDeath(id)
	remains := l.remains() // not before it is gone: it may have written until then
	if remains.Skipped > 0 {
		l.s.log.Warn("the journal of a dead shim was cut off", "shim", l.dir, "lines_skipped", remains.Skipped)
	}
	if swept := sweep(remains, l.s.log); swept > 0 {
		l.s.log.Warn("ended processes that a dead shim left", "shim", l.dir, "processes", swept)
	}
	l.report(remains.Exits)

	started := map[capri.Attempt]capri.Instant{}
	for _, r := range remains.Running {
		if a, err := ParseAttempt(r.Attempt); err == nil {
			started[a] = capri.Instant(r.Started)
		}
	}
	var lost []Exit
	l.mu.Lock()
	for a := range started {
		if _, known := l.attempts[a]; !known {
			l.attempts[a] = handed // by an earlier worker
		}
	}
	for a, p := range l.attempts {
		if p == handed {
			lost = append(lost, lostExit(a, started[a], "lost its shim"))
			l.attempts[a] = reported
		}
	}
	empty := len(l.attempts) == 0
	l.buried = true
	l.mu.Unlock()
	if len(lost) > 0 {
		l.s.log.Error("a shim died with its jobs", "shim", l.dir, "pid", id.Pid, "attempts_lost", len(lost))
	} else if !leaving {
		l.s.log.Info("a shim has gone", "shim", l.dir, "pid", id.Pid)
	}
	l.s.exits.put(lost)
	if empty {
		l.s.forget(l)
	}
	close(l.gone)
}

func (l *life) remains() *shim.Remains {
	r, err := shim.ReadJournal(l.dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) { // it may have died before its first line
			l.s.log.Error("read what a dead shim left", "shim", l.dir, "error", err)
		}
		return &shim.Remains{}
	}
	return r
}

// awaitDeath waits until the process is really gone: its socket closes a moment before PDEATHSIG reaches its
// children. One that stays without a socket (somebody removed it) cannot be talked to any more and is ended:
// its attempts are about to be called lost. If we are its parent it is reaped.
func (l *life) awaitDeath(id shim.Life) {
	for deadline := time.Now().Add(answerWithin); id.Alive(); {
		if time.Now().After(deadline) {
			l.s.log.Error("a shim without a socket is ended", "shim", l.dir, "pid", id.Pid, "error", id.Kill())
			deadline = deadline.Add(answerWithin)
		}
		select {
		case <-l.s.ctx.Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
	if id.Pid > 0 && id.BootID == shim.BootID() {
		syscall.Wait4(id.Pid, nil, syscall.WNOHANG, nil)
	}
}

// take hands jobs over; false means that nothing was sent and that this life cannot take them now.
func (l *life) take(ctx context.Context, jobs []Job) (bool, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	wire := make([]shim.Job, len(jobs))
	l.mu.Lock()
	if l.dead || l.leaving {
		l.mu.Unlock()
		return false, nil
	}
	for i, j := range jobs {
		if _, known := l.attempts[j.Attempt]; known {
			l.mu.Unlock()
			l.untake(jobs[:i])
			return false, capri.Conflict("attempt %s was handed to its shim before", j.Attempt)
		}
		l.attempts[j.Attempt] = handed
		wire[i] = j.wire()
	}
	l.mu.Unlock()
	// With the lease under which they start: Renew may not have got round to telling it.
	err := l.send(ctx, &shim.Message{Start: wire, Lease: l.s.newestLease()})
	if errors.Is(err, errNotSent) {
		l.untake(jobs)
		return false, nil
	}
	if err != nil {
		// It came in the middle of the frame. Whether the shim has it turns out when we call again (reconcile) or
		// read its journal (bury): the jobs are answered either way.
		l.s.log.Warn("handing jobs over was cut off", "jobs", len(jobs), "error", err)
	}
	return true, nil
}

func (l *life) untake(jobs []Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		delete(l.attempts, j.Attempt)
	}
}

// errNotSent: not a byte of the frame has left.
var errNotSent = errors.New("there is no connection to the shim now")

// post writes one frame.
func (l *life) post(ctx context.Context, m *shim.Message) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.send(ctx, m)
}

// send is post for those who hold writing. A frame that could not be written whole ends the connection: the
// shim would take the next one for its rest.
func (l *life) send(ctx context.Context, m *shim.Message) error {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		return errNotSent
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	deadline := time.Now().Add(answerWithin)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	conn.SetWriteDeadline(deadline)
	if err := shim.WriteFrame(conn, m); err != nil {
		conn.Close() // run calls again
		return fmt.Errorf("write to the shim in %s: %w", l.dir, err)
	}
	return nil
}

// ack forgets attempts and tells the shim, now or when it is connected again.
func (l *life) ack(attempts []capri.Attempt) {
	l.mu.Lock()
	for _, a := range attempts {
		delete(l.attempts, a)
	}
	over := l.buried && len(l.attempts) == 0
	if !l.dead {
		l.unsent = append(l.unsent, attempts...)
	}
	l.mu.Unlock()
	if over {
		l.s.forget(l)
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.sendAcks()
}

// sendAcks tells the shim what it was not told yet; the caller holds writing. What fails is sent after the
// next hello.
func (l *life) sendAcks() {
	l.mu.Lock()
	acks := l.unsent
	l.mu.Unlock()
	if len(acks) == 0 || l.send(context.Background(), &shim.Message{Ack: names(acks)}) != nil {
		return
	}
	l.mu.Lock()
	l.unsent = l.unsent[len(acks):]
	l.mu.Unlock()
}

func (l *life) known(attempts []capri.Attempt) []capri.Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	var mine []capri.Attempt
	for _, a := range attempts {
		if _, ok := l.attempts[a]; ok {
			mine = append(mine, a)
		}
	}
	return mine
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

func (l *life) inventory(ctx context.Context) ([]Inventory, error) {
	answer := make(chan []shim.Running, 1)
	l.mu.Lock()
	l.lastAsk++
	ask := l.lastAsk
	l.asks[ask] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.asks, ask)
		l.mu.Unlock()
	}()
	if err := l.post(ctx, &shim.Message{Ask: ask}); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case running, ok := <-answer:
		if !ok {
			return nil, capri.Unavailable("the connection to the shim broke")
		}
		list := make([]Inventory, 0, len(running))
		for _, r := range running {
			if a, err := ParseAttempt(r.Attempt); err == nil {
				list = append(list, Inventory{a, r.Pid, r.StartTicks, capri.Instant(r.Started), r.MemoryMB, r.Processes})
			}
		}
		return list, nil
	}
}

// answer is inventory of a shim that may hang.
func (l *life) answer(ctx context.Context) ([]Inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.answer)
	defer cancel()
	return l.inventory(ctx)
}

// unreported lists what we know the shim to hold.
func (l *life) unreported() []Inventory {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Inventory
	for a, p := range l.attempts {
		if p == handed {
			list = append(list, Inventory{Attempt: a})
		}
	}
	return list
}

// readSilent learns from its journal what a shim holds that does not answer; false: its process cannot be told, or is
// gone.
func (l *life) readSilent() bool {
	remains := l.remains()
	if !remains.Life.Alive() {
		return false
	}
	l.mu.Lock()
	l.id, l.leaving = remains.Life, true
	for _, r := range remains.Running {
		if a, err := ParseAttempt(r.Attempt); err == nil {
			l.attempts[a] = handed
		}
	}
	l.mu.Unlock()
	l.report(remains.Exits)
	return true
}

// awaitLeave waits until the shim has left and all that it left is in the mailbox.
func (l *life) awaitLeave(ctx context.Context) error {
	select {
	case <-l.gone:
		return nil
	case <-l.s.ctx.Done():
		return os.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
