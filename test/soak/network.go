package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// link is the way of one process to one server.
type link struct {
	name    string
	address string
	proxy   *toxiproxy.Proxy
	mu      sync.Mutex
	stopped bool
}

// toxics serves the proxies' API, which nobody calls; the proxies want it for their log and metrics.
var toxics = toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())

// newLink makes the way to a server; it begins at that address of this machine.
func newLink(name, at, to string) (*link, error) {
	l := &link{name: name, proxy: toxiproxy.NewProxy(toxics, name, at+":0", to)}
	if err := l.proxy.Start(); err != nil {
		return nil, fmt.Errorf("proxy %s: %w", name, err)
	}
	l.address = l.proxy.Listen // the same after each start
	return l, nil
}

// cut ends all connections and refuses new ones: the other side's process is gone.
func (l *link) cut() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.proxy.Stop()
		l.stopped = true
	}
	return nil
}

// silence swallows everything, and keeps connections open: the network is gone.
func (l *link) silence() error {
	return l.poison(`{"name":"silent_up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`,
		`{"name":"silent_down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
}

// slow delays each answer.
func (l *link) slow(by time.Duration) error {
	return l.poison(fmt.Sprintf(`{"name":"slow","type":"latency","stream":"downstream","attributes":{"latency":%d,"jitter":%d}}`, by.Milliseconds(), by.Milliseconds()/2))
}

// reset breaks each connection when the next byte of a statement or an answer passes, in the middle of whatever it is.
func (l *link) reset() error {
	return l.poison(`{"name":"reset","type":"reset_peer","stream":"downstream","attributes":{"timeout":0}}`)
}

func (l *link) poison(toxics ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range toxics {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(t)); err != nil {
			return fmt.Errorf("proxy %s: %w", l.name, err)
		}
	}
	return nil
}

// heal makes it an ordinary network again. What was swallowed is missing in the middle of the connections that were
// open, so those end: no process may read on where bytes are missing.
func (l *link) heal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	healed := make(chan struct{})
	go func() {
		l.proxy.Toxics.ResetToxics(context.Background())
		close(healed)
	}()
	select {
	case <-healed:
	case <-time.After(5 * time.Second): // a connection that does not take what is in it; stopping closes it
	}
	if !l.stopped {
		l.proxy.Stop()
	}
	<-healed
	l.stopped = false
	var err error
	for range 50 { // somebody's outgoing connection may have the port for a moment
		if err = l.proxy.Start(); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("proxy %s: %w", l.name, err)
}
