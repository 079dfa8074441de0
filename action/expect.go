package action

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// StaleError refuses an edit of a task that somebody else has edited since it was read.
type StaleError struct {
	Task           string
	Expected, Have int // versions; Have 0: it is not there
}

func (e *StaleError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("task %s is not there any more; it was read as version %d", e.Task, e.Expected)
	}
	return fmt.Sprintf("task %s has changed since it was read: it is version %d now, and was %d", e.Task, e.Have, e.Expected)
}

type expectKey struct{}

// Expecting has every edit of one of these tasks refused unless its newest version is the given one.
func Expecting(ctx context.Context, versions map[string]int) context.Context {
	if len(versions) == 0 {
		return ctx
	}
	return context.WithValue(ctx, expectKey{}, versions)
}

// expected is asked where an edit is saved: the transaction proves that no definition has changed since they were read.
func (e *edit) expected(ctx context.Context) error {
	have := map[string]int{}
	for _, s := range e.saves {
		have[s.Task.Name] = 0
	}
	for name, t := range e.old {
		have[name] = t.Version
	}
	for _, t := range e.deleted {
		have[t.Name] = t.Version
	}
	return expectedOf(ctx, have)
}

// expectedOf holds the newest versions of the tasks of an edit against those that were expected.
func expectedOf(ctx context.Context, have map[string]int) error {
	versions, _ := ctx.Value(expectKey{}).(map[string]int)
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		version := versions[name]
		if now, edited := have[name]; edited && now != version {
			return &StaleError{Task: name, Expected: version, Have: now}
		}
	}
	return nil
}
