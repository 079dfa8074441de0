package store

import (
	"context"
	"sync"
	"time"
)

// lately keeps a count that people ask for. One of little is made anew for each who asks. One of much is dear, so it stands
// for a while, and after that it is still given out while it is made anew: who asks now and then never waits for it.
// Whoever asks while there is none waits for the one that is being made instead of making another.
type lately[T any] struct {
	mu     sync.Mutex
	value  T
	stands time.Time // until then
	given  time.Time // until then
	making bool      // though it is given out
}

// A count of more than muchCounted stands for countStands, or for ten times as long as it took: on a busy database a
// tenth of its time goes into counting at the most. It is given out for as long again.
const (
	muchCounted = 5000
	countStands = time.Second
)

// get gives the count that there is, or makes it. count tells how much it counted.
func (l *lately[T]) get(ctx context.Context, count func(context.Context) (T, int, error)) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now() //nolint:forbidigo // how long a count took is not business time
	if now.Before(l.given) {
		if !now.Before(l.stands) && !l.making {
			l.making = true
			go func() {
				value, n, err := count(context.WithoutCancel(ctx)) // it is not only for who asked
				l.mu.Lock()
				defer l.mu.Unlock()
				l.making = false
				l.keep(value, n, err, now)
			}()
		}
		return l.value, nil
	}
	value, n, err := count(ctx)
	l.keep(value, n, err, now)
	return value, err
}

func (l *lately[T]) keep(value T, n int, err error, began time.Time) {
	if err != nil {
		return
	}
	l.stands, l.given = time.Time{}, time.Time{}
	if n > muchCounted {
		now := time.Now() //nolint:forbidigo // see above
		stands := max(countStands, 10*now.Sub(began))
		l.value, l.stands, l.given = value, now.Add(stands), now.Add(2*stands)
	}
}
