package test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands in front of a server and can be taken away, with every connection through it.
type proxy struct {
	t       *testing.T
	address string // stays the same
	to      string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
}

// newProxy makes one that is away.
func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, address: l.Addr().String(), to: to, conns: map[net.Conn]bool{}}
	l.Close()
	t.Cleanup(p.down)
	return p
}

func (p *proxy) up() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(from)
		}
	}()
}

func (p *proxy) carry(from net.Conn) {
	to, err := net.Dial("tcp", p.to)
	if err != nil {
		from.Close()
		return
	}
	p.mu.Lock()
	p.conns[from], p.conns[to] = true, true
	away := p.listener == nil
	p.mu.Unlock()
	end := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range []net.Conn{from, to} {
			c.Close()
			delete(p.conns, c)
		}
	}
	if away {
		end()
		return
	}
	go func() { io.Copy(to, from); end() }()
	io.Copy(from, to)
	end()
}

// down refuses what comes and cuts what is there.
func (p *proxy) down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.Close()
	}
}
