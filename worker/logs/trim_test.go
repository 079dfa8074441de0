package logs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// all reads a log from an offset to its end, in pieces of limit bytes.
func all(t *testing.T, d *Dir, name string, offset int64, limit int) string {
	t.Helper()
	var text bytes.Buffer
	for range 100_000 {
		c, err := d.ReadAt(name, offset, limit)
		require.NoError(t, err)
		text.Write(c.Data)
		if len(c.Data) == 0 {
			return text.String()
		}
		offset = c.Next
	}
	t.Fatal("it does not come to an end")
	return ""
}

func TestALog_that_grows_too_big_loses_its_middle_and_says_so(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir)
	require.NoError(t, err)
	defer d.Close()
	const name, limit = "orders_1_1.out", 1 << 20
	job, err := os.OpenFile(filepath.Join(dir, name+".tmp"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer job.Close()
	line := 0
	write := func(n int) {
		var b bytes.Buffer
		for range n {
			line++
			fmt.Fprintf(&b, "line %08d %s\n", line, strings.Repeat("x", 86))
		}
		_, err := job.Write(b.Bytes())
		require.NoError(t, err)
	}
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, name+".tmp"))
		require.NoError(t, err)
		return onDisk(info)
	}

	write(5_000)
	freed, err := d.Trim(name, limit)
	require.NoError(t, err)
	require.Zero(t, freed, "half a megabyte is not too big")
	for range 10 {
		write(20_000)
		freed, err := d.Trim(name, limit)
		require.NoError(t, err)
		require.Positive(t, freed)
		require.LessOrEqual(t, size(), int64(limit+2*block))
	}
	write(1)
	for _, finished := range []bool{false, true} {
		if finished {
			require.NoError(t, d.Finish(name))
		}
		for _, piece := range []int{1 << 20, 1000, 64 << 10} {
			text := all(t, d, name, 0, piece)
			require.True(t, strings.HasPrefix(text, "line 00000001 "))
			require.Contains(t, text, fmt.Sprintf("line %08d ", line))
			require.Equal(t, 1, strings.Count(text, "bytes are missing here"), "in pieces of %d", piece)
			require.NotContains(t, text, "\x00")
			require.Less(t, len(text), limit+3*block)
		}
		require.Contains(t, all(t, d, name, 3<<20, 1000), "bytes are missing here", "also for who begins in the middle")
		end, err := d.ReadAt(name, -101, 101)
		require.NoError(t, err)
		require.Contains(t, string(end.Data), fmt.Sprintf("line %08d ", line))
		require.Equal(t, finished, end.Complete)
	}
}

func TestTrim_changes_nothing_that_is_no_log(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir)
	require.NoError(t, err)
	defer d.Close()
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, make([]byte, 1<<20), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "a_1_1.out.tmp")))
	for _, name := range []string{"a_1_1.out", "b_1_1.out"} {
		freed, err := d.Trim(name, 64<<10)
		require.NoError(t, err)
		require.Zero(t, freed)
	}
	info, err := os.Stat(outside)
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, onDisk(info))
}
