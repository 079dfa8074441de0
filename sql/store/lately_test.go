package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLately_counts_little_for_each_and_much_once(t *testing.T) {
	made := 0
	ask := func(l *lately[int], n int) int {
		got, err := l.get(t.Context(), func(context.Context) (int, int, error) { made++; return made, n, nil })
		require.NoError(t, err)
		return got
	}
	var little, much lately[int]
	assert.Equal(t, []int{1, 2, 3}, []int{ask(&little, muchCounted), ask(&little, 0), ask(&little, 7)})
	assert.Equal(t, []int{4, 4, 4}, []int{ask(&much, muchCounted+1), ask(&much, 0), ask(&much, 0)})
}

func TestLately_does_not_keep_what_failed(t *testing.T) {
	var l lately[int]
	_, err := l.get(t.Context(), func(context.Context) (int, int, error) { return 1, muchCounted + 1, errors.New("no database") })
	require.Error(t, err)
	got, err := l.get(t.Context(), func(context.Context) (int, int, error) { return 2, 0, nil })
	require.NoError(t, err)
	assert.Equal(t, 2, got)
}

func TestLately_gives_out_what_it_had_while_it_counts_anew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lately[int]
		made, fails := 0, false
		ask := func() int {
			t.Helper()
			got, err := l.get(t.Context(), func(ctx context.Context) (int, int, error) {
				time.Sleep(time.Second)
				if fails {
					return 0, 0, errors.New("no database")
				}
				made++
				return made, muchCounted + 1, ctx.Err()
			})
			require.NoError(t, err)
			return got
		}
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		assert.Equal(t, 1, ask())
		pass(9 * time.Second)
		assert.Equal(t, 1, ask(), "it took a second and stands for ten")
		pass(2 * time.Second)
		began := time.Now()
		assert.Equal(t, []int{1, 1}, []int{ask(), ask()})
		assert.Equal(t, began, time.Now(), "nobody waits")
		pass(2 * time.Second)
		assert.Equal(t, []int{2, 2}, []int{ask(), made}, "one of them has counted")

		fails = true
		pass(11 * time.Second)
		assert.Equal(t, 2, ask())
		pass(2 * time.Second)
		fails = false
		assert.Equal(t, 2, ask(), "what failed is tried again")
		pass(2 * time.Second)
		assert.Equal(t, 3, ask())
		pass(time.Minute)
		assert.Equal(t, 4, ask(), "what is too old is not given out")
	})
}
