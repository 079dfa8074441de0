package store

import (
	"context"
	"slices"
	"sync"
)

// queue lets one transaction at a time write to SQLite, which has a single writer anyway. What people and workers do is
// short and goes before the turns of services, of which there are many in a row when a mark has come: whoever waits
// for an answer waits for one of them at the most, and not by chance for five, as connections are handed out.
type queue struct {
	mu       sync.Mutex
	busy     bool
	short    []chan struct{}
	services []chan struct{}
	passed   int // how many short ones have gone before the first of the services
}

// mostPassed is how many short transactions go before a service that waits; then it is its turn, whoever comes.
const mostPassed = 8

func (q *queue) enter(ctx context.Context, service bool) error {
	q.mu.Lock()
	if !q.busy {
		q.busy = true
		q.mu.Unlock()
		return nil
	}
	mine, line := make(chan struct{}), &q.short
	if service {
		line = &q.services
	}
	*line = append(*line, mine)
	q.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	i := slices.Index(*line, mine)
	if i >= 0 {
		*line = slices.Delete(*line, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 { // its turn had just come
		q.leave()
	}
	return ctx.Err()
}

func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	var next chan struct{}
	switch {
	case len(q.short) > 0 && (len(q.services) == 0 || q.passed < mostPassed):
		next, q.short = q.short[0], q.short[1:]
		if len(q.services) > 0 {
			q.passed++
		}
	case len(q.services) > 0:
		next, q.services, q.passed = q.services[0], q.services[1:], 0
	default:
		q.busy = false
		return
	}
	close(next)
}
