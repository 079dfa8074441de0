package store

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// order fills a queue with those that wait while somebody writes, and tells in which order they get their turns.
func order(t *testing.T, services, short int) (got []string) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		require.NoError(t, q.enter(t.Context(), true))
		ask := func(name string, service bool) {
			go func() {
				if assert.NoError(t, q.enter(t.Context(), service)) {
					got = append(got, name)
					q.leave()
				}
			}()
			synctest.Wait()
		}
		for i := range services {
			ask(fmt.Sprint("service ", i), true)
		}
		for i := range short {
			ask(fmt.Sprint("short ", i), false)
		}
		q.leave()
		synctest.Wait()
		require.NoError(t, q.enter(t.Context(), false), "nobody holds it any more")
	})
	return got
}

func TestQueue_lets_what_is_short_go_first_and_keeps_the_order_of_each(t *testing.T) {
	assert.Equal(t, []string{"short 0", "short 1", "service 0", "service 1"}, order(t, 2, 2))
}

func TestQueue_starves_no_service(t *testing.T) {
	got := order(t, 1, 2*mostPassed)
	require.Len(t, got, 2*mostPassed+1)
	assert.Equal(t, "service 0", got[mostPassed])
}

func TestQueue_forgets_who_goes_away(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		require.NoError(t, q.enter(t.Context(), false))
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- q.enter(ctx, false) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		q.leave()
		require.NoError(t, q.enter(t.Context(), true))
	})
}

func TestQueue_passes_on_a_turn_that_came_as_somebody_left(t *testing.T) {
	for range 200 {
		var q queue
		require.NoError(t, q.enter(t.Context(), false))
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- q.enter(ctx, false) }()
		go cancel()
		q.leave()
		if <-left == nil {
			q.leave()
		}
		require.NoError(t, q.enter(t.Context(), false))
		q.leave()
	}
}
