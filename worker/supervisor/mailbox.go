package supervisor

import "sync"

// mailbox is a channel that its senders never wait for: what is not read yet is gathered into one batch.
type mailbox struct {
	out     chan []Exit
	mu      sync.Mutex
	pending []Exit
	filled  chan struct{}
	done    chan struct{}
	ended   chan struct{}
}

func newMailbox() *mailbox {
	m := &mailbox{
		out: make(chan []Exit), filled: make(chan struct{}, 1),
		done: make(chan struct{}), ended: make(chan struct{}),
	}
	go m.deliver()
	return m
}

func (m *mailbox) put(exits []Exit) {
	if len(exits) == 0 {
		return
	}
	m.mu.Lock()
	m.pending = append(m.pending, exits...)
	m.mu.Unlock()
	select {
	case m.filled <- struct{}{}:
	default:
	}
}

func (m *mailbox) deliver() {
	defer close(m.ended)
	defer close(m.out)
	for {
		select {
		case <-m.filled:
		case <-m.done:
			return
		}
		m.mu.Lock()
		batch := m.pending
		m.pending = nil
		m.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		select {
		case m.out <- batch:
		case <-m.done: // not acknowledged, so the next Open has them
			return
		}
	}
}

func (m *mailbox) close() {
	close(m.done)
	<-m.ended
}
