package testenv

import (
	"strings"
	"sync"
)

// Text gathers what programs and loggers write, from several goroutines.
type Text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

// String is all that was written so far.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// Count tells how often a text occurs in it.
func (t *Text) Count(text string) int { return strings.Count(t.String(), text) }
