package logs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeys_in_a_log_are_covered_in_pieces_of_any_size(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir)
	require.NoError(t, err)
	defer d.Close()
	hex := strings.Repeat("0123456789abcdef", 4)
	token, key := "capri_attempt_4711.12_"+hex, "capri_"+strings.Repeat("aB3-_", 9)[:43]
	text := "CAPRI_ATTEMPT_TOKEN=" + token + "\nPATH=/bin\nkey: " + key + "\n" + "capri_data is a directory, capri_attempt_ a prefix, and " + token[:60] + " is cut off\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_1_1.out.log"), []byte(text), 0o600))
	covered := strings.ReplaceAll(text, token[len("capri_"):]+"\n", strings.Repeat("*", len(token)-len("capri_"))+"\n")
	covered = strings.ReplaceAll(covered, key[len("capri_"):], strings.Repeat("*", len(key)-len("capri_")))
	for _, piece := range []int{1, 7, 50, 64, 100, 1000} {
		got := all(t, d, "a_1_1.out", 0, piece)
		require.Len(t, got, len(text), "offsets stay good")
		require.NotContains(t, got, hex)
		require.NotContains(t, got, key)
		if piece >= 50 {
			require.Contains(t, got, "capri_data is a directory")
		}
	}
	require.Contains(t, all(t, d, "a_1_1.out", 0, 1000), covered[:len("CAPRI_ATTEMPT_TOKEN=")+len(token)])
	c, err := d.ReadAt("a_1_1.out", int64(len("CAPRI_ATTEMPT_TOKEN=")+30), 40)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("*", 40), string(c.Data), "also from its middle")
}
