package hdfs

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// guard owns the connections of one client: all end with it. The library waits on a connection without a limit, and
// holds a lock meanwhile that its Close wants, too; only a connection that is closed from outside gets it moving.
type guard struct {
	ctx     context.Context //nolint:containedctx // it is the life of the connections
	end     context.CancelFunc
	timeout time.Duration // of one read or write
	late    atomic.Bool   // a name-node was silent for too long
	broken  atomic.Bool   // a connection to a name-node failed: what comes next on it belongs to nobody

	mu   sync.Mutex
	last string // the name-node that was dialled last: the active one, if calls succeed
}

func newGuard(timeout time.Duration) *guard {
	g := &guard{timeout: timeout}
	g.ctx, g.end = context.WithCancel(context.Background())
	return g
}

// within ends the guard when ctx ends, or after limit (0: never) with late set. The function that it returns takes this
// back.
func (g *guard) within(ctx context.Context, limit time.Duration) (stop func()) {
	undo := context.AfterFunc(ctx, g.end)
	if limit <= 0 {
		return func() { undo() }
	}
	timer := time.AfterFunc(limit, func() {
		g.late.Store(true)
		g.end()
	})
	return func() {
		timer.Stop()
		undo()
	}
}

func (g *guard) over() bool { return g.ctx.Err() != nil || g.broken.Load() }

func (g *guard) dialNameNode(_ context.Context, network, address string) (net.Conn, error) {
	if g.over() { // the library's own second try: it would hide who was silent, and we choose who is asked next
		return nil, net.ErrClosed
	}
	g.mu.Lock()
	g.last = address
	g.mu.Unlock()
	return g.dial(network, address, true)
}

func (g *guard) dialDataNode(_ context.Context, network, address string) (net.Conn, error) {
	// Data-nodes are chosen anew for each block, and their connections end in the ordinary course of things.
	return g.dial(network, address, false)
}

func (g *guard) nameNode() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

func (g *guard) dial(network, address string, nameNode bool) (net.Conn, error) {
	d := net.Dialer{Timeout: g.timeout}
	c, err := d.DialContext(g.ctx, network, address)
	if err != nil {
		return nil, err
	}
	gc := &conn{Conn: c, g: g, nameNode: nameNode}
	gc.undo = context.AfterFunc(g.ctx, func() { c.Close() })
	return gc, nil
}

// conn gives each read and write its time limit. After a failed one it is closed, so that the rest of an answer that came
// too late is not taken for the answer to the next question.
type conn struct {
	net.Conn
	g        *guard
	nameNode bool
	undo     func() bool
}

func (c *conn) Read(b []byte) (int, error) {
	c.Conn.SetReadDeadline(time.Now().Add(c.g.timeout))
	n, err := c.Conn.Read(b)
	return n, c.check(err)
}

func (c *conn) Write(b []byte) (int, error) {
	c.Conn.SetWriteDeadline(time.Now().Add(c.g.timeout))
	n, err := c.Conn.Write(b)
	return n, c.check(err)
}

func (c *conn) check(err error) error {
	if err != nil {
		if c.nameNode {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				c.g.late.Store(true)
			}
			c.g.broken.Store(true)
		}
		c.Close()
	}
	return err
}

func (c *conn) Close() error {
	c.undo()
	return c.Conn.Close()
}

// SetDeadline and its kin do nothing: the library calls them with no deadline at all, which would undo ours.
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
