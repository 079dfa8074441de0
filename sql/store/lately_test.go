package store

import (
	"context"
	"errors"
	"testing"

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
