package logs

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
)

func open(t *testing.T) (*Dir, string, string) {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "logs"))
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	name, err := Name("sales.daily-1", capri.Attempt{Batch: 42, Number: 2}, Out)
	require.NoError(t, err)
	path, err := d.Path(name)
	require.NoError(t, err)
	return d, name, path
}

func Test_an_offset_stays_good_while_the_log_grows_and_after_it_is_done(t *testing.T) {
	d, name, path := open(t)
	require.Equal(t, "sales.daily-1_42_2.out.tmp", filepath.Base(path))
	require.NoError(t, os.WriteFile(path, []byte("first"), 0o600))
	c, err := d.ReadAt(name, 0, 0)
	require.NoError(t, err)
	require.Equal(t, Chunk{Data: []byte("first"), Next: 5, Size: 5}, c)

	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	f.WriteString(" second")
	c, err = d.ReadAt(name, c.Next, 3)
	require.NoError(t, err)
	require.Equal(t, Chunk{Data: []byte(" se"), Next: 8, Size: 12}, c)

	require.NoError(t, d.Finish(name))
	require.NoError(t, d.Finish(name), "a second time changes nothing")
	c, err = d.ReadAt(name, c.Next, 0)
	require.NoError(t, err)
	require.Equal(t, Chunk{Data: []byte("cond"), Next: 12, Size: 12, Complete: true}, c)

	c, err = d.ReadAt(name, -6, 0)
	require.NoError(t, err)
	require.Equal(t, "second", string(c.Data), "a negative offset counts from the end")
	c, err = d.ReadAt(name, 100, 0)
	require.NoError(t, err)
	require.Empty(t, c.Data)
	require.True(t, c.Complete)
}

func Test_a_log_of_100_MB_without_a_newline_is_read_in_slices_with_constant_memory(t *testing.T) {
	d, name, path := open(t)
	const size = 100 << 20
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, size)) // zeros, and no newline among them
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var next int64
	for next < size {
		c, err := d.ReadAt(name, next, 1<<30) // capped
		require.NoError(t, err)
		require.LessOrEqual(t, len(c.Data), MaxLimit)
		next = c.Next
	}
	require.EqualValues(t, size, next)
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, after.HeapSys-min(before.HeapSys, after.HeapSys), uint64(32<<20))
}

func Test_names_that_lead_elsewhere_are_refused(t *testing.T) {
	d, name, path := open(t)
	_, err := Name("../../etc/passwd", capri.Attempt{}, Out)
	require.ErrorIs(t, err, capri.ErrInvalid)
	_, err = Name(strings.Repeat("x", 129), capri.Attempt{}, Err)
	require.ErrorIs(t, err, capri.ErrInvalid)
	for _, bad := range []string{"", "a", "../x_1_1.out", "/etc/x_1_1.out", "x_1_1.out\n", "x_1_1.out.log", "x_-1_1.out"} {
		_, err := d.ReadAt(bad, 0, 0)
		require.ErrorIs(t, err, capri.ErrInvalid, bad)
		require.ErrorIs(t, d.Finish(bad), capri.ErrInvalid, bad)
	}
	_, err = d.ReadAt(name, 0, 0)
	require.ErrorIs(t, err, capri.ErrNotFound)

	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(secret, path))
	_, err = d.ReadAt(name, 0, 0)
	require.ErrorContains(t, err, "not a regular file", "a symbolic link is not followed")
}
