package worker

import (
	"sync"
	"time"
)

// queue gathers items for its one reader, who takes all that are there.
type queue[T any] struct {
	mu     sync.Mutex
	items  []T
	closed bool
	filled chan struct{} // holds one mark while there may be something to take

	pace  time.Duration // least time between two groups: the first after a quiet time does not wait
	last  time.Time     // when the reader took the newest group
	crowd bool          // that group was one of a crowd
}

func newQueue[T any](pace time.Duration) *queue[T] {
	return &queue[T]{filled: make(chan struct{}, 1), pace: pace}
}

// crowded: when more than so many arrive within a pace, the next group gathers for so many of them. A transaction costs
// about the same for one row as for fifty, and nobody sees ten milliseconds.
const crowded = 5

// put never waits.
func (q *queue[T]) put(items ...T) {
	if len(items) == 0 {
		return
	}
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	q.mark()
}

// close ends the reader's loop when it has taken what is there.
func (q *queue[T]) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.mark()
}

func (q *queue[T]) mark() {
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// next waits for items and takes to most of them; false: the queue is closed and empty.
func (q *queue[T]) next(most int) ([]T, bool) {
	for range q.filled {
		gap := q.pace
		if q.crowd {
			gap *= crowded
		}
		if wait := gap - time.Since(q.last); wait > 0 {
			time.Sleep(wait)
		}
		q.mu.Lock()
		items, closed := q.items, q.closed
		q.items = nil
		if len(items) > most {
			q.items = items[most:]
			items = items[:most:most]
		}
		if closed || len(q.items) > 0 {
			q.mark()
		}
		q.mu.Unlock()
		if len(items) > 0 {
			q.last, q.crowd = time.Now(), len(items) > crowded
			return items, true
		}
		if closed {
			return nil, false
		}
	}
	return nil, false
}
