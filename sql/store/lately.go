package store

import (
	"context"
	"sync"
	"time"
)

// lately keeps a count that people ask for. One of little is made anew for each who asks; one of much is dear, so it stands
// for a moment, and whoever asks while it is being made waits for it instead of making another.
type lately[T any] struct {
	mu    sync.Mutex
	value T
	until time.Time
}

// A count of more than muchCounted stands for countStands, or for ten times as long as it took: on a busy database a
// tenth of its time goes into counting at the most.
const (
	muchCounted = 5000
	countStands = time.Second
)

// get gives the count that stands, or makes it. count tells how much it counted.
func (l *lately[T]) get(ctx context.Context, count func(context.Context) (T, int, error)) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := time.Now() //nolint:forbidigo // how long a count took is not business time
	if began.Before(l.until) {
		return l.value, nil
	}
	value, n, err := count(ctx)
	if err == nil && n > muchCounted {
		end := time.Now() //nolint:forbidigo // see above
		l.value, l.until = value, end.Add(max(countStands, 10*end.Sub(began)))
	}
	return value, err
}
