// Package wake tells services and workers that there is something to do before their timer would. A wake-up
// is only a hint: losing every one of them costs the poll interval and nothing else, so nothing is
// acknowledged, retried or stored.
package wake

import "sync"

// Topics. A worker listens on Worker and on Node(name).
const (
	Generate   = "generate"
	Dependency = "dependency"
	Dispatch   = "dispatch"
	Campaign   = "campaign"
	Trigger    = "trigger" // somebody asked a service to run now
	Leases     = "leases"  // a service's lease was given back
	Worker     = "worker"  // a kill was asked for, or anything else all workers should look at
)

// Node is the topic of one worker: something was assigned to it.
func Node(name string) string { return "node:" + name }

// Waker sends and receives wake-ups.
type Waker interface {
	// Wake never blocks and never fails: it is a hint.
	Wake(topics ...string)
	// Listen gives a channel that holds at most one pending wake-up for any of the topics, and a function that ends it.
	Listen(topics ...string) (<-chan struct{}, func())
}

// Local wakes within this process: all that standalone needs, and the near half of Redis.
type Local struct {
	mu        sync.Mutex
	listeners map[string]map[chan struct{}]bool
}

// NewLocal makes a waker without listeners.
func NewLocal() *Local { return &Local{listeners: map[string]map[chan struct{}]bool{}} }

func (l *Local) Wake(topics ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, topic := range topics {
		for ch := range l.listeners[topic] {
			select {
			case ch <- struct{}{}:
			default: // one is pending already, and one is enough
			}
		}
	}
}

func (l *Local) Listen(topics ...string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, topic := range topics {
		if l.listeners[topic] == nil {
			l.listeners[topic] = map[chan struct{}]bool{}
		}
		l.listeners[topic][ch] = true
	}
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, topic := range topics {
			delete(l.listeners[topic], ch)
		}
	}
}

func (l *Local) wakeAll() {
	l.mu.Lock()
	topics := make([]string, 0, len(l.listeners))
	for t := range l.listeners {
		topics = append(topics, t)
	}
	l.mu.Unlock()
	l.Wake(topics...)
}
