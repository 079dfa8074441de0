package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"capri"
	"capri/files"
)

// looks asks for each path once, however many batches prepare at the same time and wait for it. "There" is believed
// for a moment; "not there" is asked again by the next.
type looks struct {
	files files.Files

	mu    sync.Mutex
	known map[capri.PathCondition]*look
}

// look is one question. The fields below done are set before it is closed.
type look struct {
	done  chan struct{}
	there bool
	err   error
	until time.Time // when the answer is forgotten
}

// believeFor is how long a path that was seen is taken to be still there.
const believeFor = time.Second

// check tells which of the paths are gone. An error says that nothing is known of some.
func (l *looks) check(ctx context.Context, paths []capri.PathCondition) (gone []capri.PathCondition, err error) {
	all := make([]*look, len(paths))
	var asking []capri.PathCondition
	mine := map[capri.PathCondition]*look{}
	now := time.Now()
	l.mu.Lock()
	for i, p := range paths {
		k := l.known[p]
		if k == nil || k.over(now) {
			k = &look{done: make(chan struct{})}
			l.known[p] = k
			mine[p] = k
			asking = append(asking, p)
		}
		all[i] = k
	}
	if len(l.known) > 10_000 {
		for p, k := range l.known {
			if k.over(now) {
				delete(l.known, p)
			}
		}
	}
	l.mu.Unlock()
	if len(asking) > 0 {
		l.ask(ctx, asking, mine)
	}
	for i, k := range all {
		select {
		case <-k.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch {
		case k.err != nil:
			err = errors.Join(err, k.err)
		case !k.there:
			gone = append(gone, paths[i])
		}
	}
	return gone, err
}

func (k *look) over(now time.Time) bool {
	select {
	case <-k.done:
		return !now.Before(k.until)
	default:
		return false
	}
}

func (l *looks) ask(ctx context.Context, paths []capri.PathCondition, mine map[capri.PathCondition]*look) {
	there, err := l.files.There(ctx, paths)
	var unseen *files.UnseenError
	errors.As(err, &unseen)
	now := time.Now()
	for i, p := range paths {
		k := mine[p]
		switch {
		case unseen != nil && unseen.Paths[p] != nil:
			k.err = fmt.Errorf("%s: %w", files.Name(p), unseen.Paths[p])
		case unseen == nil && err != nil:
			k.err = err
		case there[i]:
			k.there, k.until = true, now.Add(believeFor)
		}
		close(k.done)
	}
}
