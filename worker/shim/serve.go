package shim

import (
	"bufio"
	"log"
	"net"
	"sync"
	"time"
)

// conn is the one worker we listen to: a newer connection replaces an older one, since a worker that calls
// again has given up the first, and two workers cannot share a directory.
type conn struct {
	net.Conn

	mu      sync.Mutex
	out     []*Message // grows while the worker does not read: exits wait here, never the jobs
	writing bool
	filled  chan struct{}
	closed  chan struct{}
}

// send queues m and never blocks.
func (c *conn) send(m *Message) {
	c.mu.Lock()
	c.out = append(c.out, m)
	c.mu.Unlock()
	wake(c.filled)
}

func (c *conn) drained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out) == 0 && !c.writing
}

func (c *conn) write(written func()) {
	for {
		select {
		case <-c.filled:
		case <-c.closed:
			return
		}
		c.mu.Lock()
		out := c.out
		c.out, c.writing = nil, true
		c.mu.Unlock()
		for _, m := range out {
			if err := WriteFrame(c, m); err != nil {
				c.Close() // the reader sees it
				break
			}
		}
		c.mu.Lock()
		c.writing = false
		c.mu.Unlock()
		written()
	}
}

// accept serves workers, for ever. Errors other than a full table of descriptors do not happen to a listening
// Unix socket; either way trying again is all that can help, and the jobs go on meanwhile.
func (s *shim) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			log.Printf("accept a worker: %v", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go s.serve(&conn{Conn: c, filled: make(chan struct{}, 1), closed: make(chan struct{})})
	}
}

// greetWithin bounds how long a caller may be silent before it has said who it is.
const greetWithin = 10 * time.Second

func (s *shim) serve(c *conn) {
	defer close(c.closed)
	defer c.Close()
	in := bufio.NewReaderSize(c, 64<<10)
	c.SetReadDeadline(time.Now().Add(greetWithin))
	m, err := ReadFrame(in)
	if err != nil || m.Greet == nil {
		log.Printf("a caller did not greet: %v", err)
		return
	}
	c.SetReadDeadline(time.Time{})
	if !s.adopt(c) {
		return
	}
	go c.write(s.wakeFlusher)
	for {
		m, err := ReadFrame(in)
		if err != nil {
			s.orphan(c, err)
			return
		}
		s.handle(c, m)
	}
}

// adopt makes c the worker's connection. The snapshot and the change of connection are one step, so every
// exit is either in the snapshot or sent after it. Before it the old connection's reader must have ended: a
// frame of jobs that it still had in hand would be taken after the worker was told that nobody has them.
func (s *shim) adopt(c *conn) bool {
	s.adopting.Lock()
	defer s.adopting.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return false // the caller sees a closed connection, then a closed socket, and starts another shim
	}
	if old := s.conn; old != nil {
		s.called = true // stay, although there is no connection for a moment
		s.mu.Unlock()
		old.Close()
		<-old.closed
		s.mu.Lock()
		s.called = false
	}
	s.conn = c
	c.send(&Message{Hello: &Hello{Life: s.life, Running: s.running(), Exits: s.exits()}})
	return true
}

func (s *shim) orphan(c *conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nil
	log.Printf("the worker has gone (%v); %d attempts go on", err, len(s.jobs))
	s.wakeFlusher() // to see whether we may leave
}

func (s *shim) handle(c *conn, m *Message) {
	if m.Lease != nil { // first: what comes with it runs under it
		s.renew(*m.Lease)
	}
	if len(m.Start) > 0 {
		s.take(m.Start)
	}
	if len(m.Kill) > 0 {
		s.kill(m.Kill)
	}
	if len(m.Ack) > 0 {
		s.acknowledge(m.Ack)
	}
	if m.Ask != 0 {
		c.send(&Message{Inventory: &Inventory{Ask: m.Ask, Running: s.inventory()}})
	}
	if m.Leave {
		s.leave()
	}
}

func (s *shim) leave() {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	s.wakeFlusher()
}
