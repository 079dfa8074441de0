package logs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
)

func TestA_log_is_shipped_while_it_grows_and_reads_the_same_there(t *testing.T) {
	const name, limit = "orders_1_1.out", 1 << 20
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed_", seed), func(t *testing.T) {
			dir := t.TempDir()
			from, err := Open(dir)
			require.NoError(t, err)
			defer from.Close()
			path := t.TempDir()
			to, err := OpenStore(path, "n1")
			require.NoError(t, err)
			defer func() { to.Close() }()
			_, err = from.Ship(to, name, limit)
			require.ErrorIs(t, err, capri.ErrNotFound, "it has not begun")
			job, err := os.OpenFile(filepath.Join(dir, name+".tmp"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			require.NoError(t, err)
			defer job.Close()
			random := rand.New(rand.NewPCG(seed, 1))
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
					require.NoError(t, to.Close())
					to, err = OpenStore(path, "n1")
					require.NoError(t, err)
				default:
					complete, err := from.Ship(to, name, limit)
					require.NoError(t, err)
					require.False(t, complete)
				}
			}
			_, err = from.Trim(name, limit)
			require.NoError(t, err)
			require.NoError(t, from.Finish(name))
			for range 2 { // twice is harmless
				complete, err := from.Ship(to, name, limit)
				require.NoError(t, err)
				require.True(t, complete)
			}
			here, there := all(t, from, name, 0, 1<<20), all(t, to, name, 0, 1<<20)
			require.True(t, strings.HasPrefix(there, "line 00000001 "))
			require.Equal(t, here[len(here)-1000:], there[len(there)-1000:], "the end is the same")
			require.Contains(t, there, "bytes are missing here")
			for _, text := range []string{here, there} {
				require.NotContains(t, text, "\x00")
				require.Less(t, len(text), limit+4*block)
			}
			size, complete, err := to.Has(name)
			require.NoError(t, err)
			require.True(t, complete)
			mine, _, err := from.Has(name)
			require.NoError(t, err)
			require.Equal(t, mine, size, "offsets stay good")
			unfinished, err := to.Unfinished()
			require.NoError(t, err)
			require.Empty(t, unfinished)
		})
	}
}

func TestAn_empty_log_and_one_with_a_key_in_it_are_shipped_too(t *testing.T) {
	dir := t.TempDir()
	from, err := Open(dir)
	require.NoError(t, err)
	defer from.Close()
	to, err := OpenStore(t.TempDir(), "n1")
	require.NoError(t, err)
	defer to.Close()
	key := "capri_" + strings.Repeat("k", 43)
	for name, text := range map[string]string{"a_1_1.err": "", "a_1_1.out": "the key is " + key + "\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".log"), []byte(text), 0o600))
		complete, err := from.Ship(to, name, 0)
		require.NoError(t, err)
		require.True(t, complete)
		c, err := to.ReadAt(name, 0, 0)
		require.NoError(t, err)
		require.True(t, c.Complete)
		require.Len(t, c.Data, len(text))
		require.NotContains(t, string(c.Data), key)
	}
}

func TestOpenStore_refuses_what_is_no_name_of_a_directory(t *testing.T) {
	for _, node := range []string{"", ".", "..", "a/b", "/etc"} {
		_, err := OpenStore(t.TempDir(), node)
		require.ErrorIs(t, err, capri.ErrInvalid, node)
	}
}
