package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/files"
	"capri/files/local"
)

func newKept(t *testing.T, s files.Store, limit int64) *Kept {
	t.Helper()
	k, err := NewKept(s, "n1", limit)
	require.NoError(t, err)
	return k
}

// text reads all of a kept log, in pieces of at most so many bytes.
func (k *Kept) text(t *testing.T, name string, limit int) string {
	t.Helper()
	var all []byte
	for offset := int64(0); ; {
		c, err := k.ReadAt(t.Context(), name, offset, limit)
		require.NoError(t, err)
		all = append(all, c.Data...)
		if c.Next == offset {
			return string(all)
		}
		offset = c.Next
	}
}

// forgetful is a store whose appends fail at times: before they did anything, half-way, or after they were done.
type forgetful struct {
	files.Store
	random *rand.Rand
}

var errForgot = errors.New("forgot")

func (f forgetful) Append(ctx context.Context, name string, size int64, data []byte) error {
	switch f.random.IntN(8) {
	case 0:
		return errForgot
	case 1:
		return errors.Join(errForgot, f.Store.Append(ctx, name, size, data[:len(data)/2]))
	case 2:
		return errors.Join(errForgot, f.Store.Append(ctx, name, size, data))
	}
	return f.Store.Append(ctx, name, size, data)
}

func TestA_log_is_shipped_while_it_grows_and_reads_the_same_there(t *testing.T) {
	const name, limit = "orders_1_1.out", 1 << 20
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed_", seed), func(t *testing.T) {
			dir := t.TempDir()
			from, err := Open(dir)
			require.NoError(t, err)
			defer from.Close()
			random := rand.New(rand.NewPCG(seed, 1))
			var store files.Store = local.Store(t.TempDir())
			if seed%2 == 1 {
				store = forgetful{store, random}
			}
			to := newKept(t, store, limit)
			_, err = to.Ship(t.Context(), from, name)
			require.ErrorIs(t, err, capri.ErrNotFound, "it has not begun")
			job, err := os.OpenFile(filepath.Join(dir, name+".tmp"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			require.NoError(t, err)
			defer job.Close()
			line := 0
			for range 60 {
				var b bytes.Buffer
				for range random.IntN(3000) {
					line++
					fmt.Fprintf(&b, "line %08d %s\n", line, strings.Repeat("x", random.IntN(60)))
				}
				_, err := job.Write(b.Bytes())
				require.NoError(t, err)
				switch random.IntN(4) {
				case 0:
					_, err := from.Trim(name, limit)
					require.NoError(t, err)
				case 1: // the worker is started again
					to = newKept(t, store, limit)
				default:
					complete, err := to.Ship(t.Context(), from, name)
					if !errors.Is(err, errForgot) {
						require.NoError(t, err)
					}
					require.False(t, complete)
				}
			}
			_, err = from.Trim(name, limit)
			require.NoError(t, err)
			require.NoError(t, from.Finish(name))
			for complete := false; !complete; {
				complete, err = to.Ship(t.Context(), from, name)
				if !errors.Is(err, errForgot) {
					require.NoError(t, err)
					require.True(t, complete)
				}
			}
			complete, err := to.Ship(t.Context(), from, name) // twice is harmless
			require.NoError(t, err)
			require.True(t, complete)

			here, there := all(t, from, name, 0, 1<<20), to.text(t, name, 100_000)
			require.True(t, strings.HasPrefix(there, "line 00000001 "))
			require.Equal(t, here[len(here)-1000:], there[len(there)-1000:], "the end is the same")
			require.Contains(t, there, "bytes are missing here")
			for _, text := range []string{here, there} {
				require.NotContains(t, text, "\x00")
				require.Less(t, len(text), limit+4*block)
			}
			last, err := to.ReadAt(t.Context(), name, -1000, 1000)
			require.NoError(t, err)
			mine, err := from.ReadAt(name, -1000, 1000)
			require.NoError(t, err)
			require.Equal(t, mine, last, "offsets stay good")
			require.True(t, last.Complete)
		})
	}
}

func TestAn_empty_log_and_one_with_a_key_in_it_are_shipped_too(t *testing.T) {
	dir := t.TempDir()
	from, err := Open(dir)
	require.NoError(t, err)
	defer from.Close()
	to := newKept(t, local.Store(t.TempDir()), 0)
	key := "capri_" + strings.Repeat("k", 43)
	for name, text := range map[string]string{"a_1_1.err": "", "a_1_1.out": "the key is " + key + "\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".log"), []byte(text), 0o600))
		complete, err := to.Ship(t.Context(), from, name)
		require.NoError(t, err)
		require.True(t, complete)
		c, err := to.ReadAt(t.Context(), name, 0, 0)
		require.NoError(t, err)
		require.True(t, c.Complete)
		require.Len(t, c.Data, len(text))
		require.NotContains(t, string(c.Data), key)
	}
}

func TestHalf_a_key_is_not_shipped(t *testing.T) {
	secrets := []string{"capri_" + strings.Repeat("k", 43), "capri_attempt_123.4_" + strings.Repeat("a1", 32)}
	for _, key := range secrets {
		text := "the key is " + key + " and not capri_x\n"
		for cut := range len(text) {
			dir := t.TempDir()
			from, err := Open(dir)
			require.NoError(t, err)
			file := filepath.Join(dir, "a_1_1.out.tmp")
			to := newKept(t, local.Store(t.TempDir()), 0)
			for _, part := range []string{text[:cut], text} {
				require.NoError(t, os.WriteFile(file, []byte(part), 0o600))
				complete, err := to.Ship(t.Context(), from, "a_1_1.out")
				require.NoError(t, err)
				require.False(t, complete)
			}
			require.Equal(t, strings.ReplaceAll(text, key, "capri_"+strings.Repeat("*", len(key)-6)), to.text(t, "a_1_1.out", 0), "cut at %d", cut)
			from.Close()
		}
	}
}

func TestKept_logs_are_cleaned_up_by_attempt(t *testing.T) {
	dir, path := t.TempDir(), t.TempDir()
	from, err := Open(dir)
	require.NoError(t, err)
	defer from.Close()
	to := newKept(t, local.Store(path), 0)
	old := time.Now().Add(-48 * time.Hour)
	for _, name := range []string{"a_1_1.out", "a_1_1.err", "b_2_1.out", "c_3_1.out"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".log"), []byte("x"), 0o600))
		_, err := to.Ship(t.Context(), from, name)
		require.NoError(t, err)
	}
	require.NoError(t, os.Mkdir(filepath.Join(path, "n1", "not_ours"), 0o700))
	for _, d := range []string{"a_1_1", "b_2_1", "not_ours"} {
		require.NoError(t, os.Chtimes(filepath.Join(path, "n1", d), old, old))
	}
	removed, err := to.Clean(t.Context(), time.Now().Add(-24*time.Hour), func(a capri.Attempt) bool { return a.Batch == 2 })
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	_, err = to.ReadAt(t.Context(), "a_1_1.out", 0, 0)
	require.ErrorIs(t, err, capri.ErrNotFound)
	for _, name := range []string{"b_2_1.out", "c_3_1.out"} {
		require.Equal(t, "x", to.text(t, name, 0))
	}
	require.DirExists(t, filepath.Join(path, "n1", "not_ours"))
}

func TestLogs_that_are_done_are_found_by_time(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir)
	require.NoError(t, err)
	defer d.Close()
	for _, file := range []string{"a_1_1.out.log", "b_2_1.out.tmp", "stray.log"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
	}
	names, err := d.DoneSince(time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Equal(t, []string{"a_1_1.out"}, names)
	names, err = d.DoneSince(time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestNewKept_refuses_what_is_no_name_of_a_directory(t *testing.T) {
	for _, node := range []string{"", ".", "..", "a/b", "/etc"} {
		_, err := NewKept(local.Store(t.TempDir()), node, 0)
		require.ErrorIs(t, err, capri.ErrInvalid, node)
	}
}
