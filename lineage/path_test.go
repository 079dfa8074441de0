package lineage

import (
	"testing"

	"capri"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCanonicalPath(t *testing.T) {
	for _, tt := range []struct{ name, path, want string }{
		{"as it should be", "/warehouse/orders/20261120", "/warehouse/orders/20261120"},
		{"a trailing slash", "/warehouse/orders/", "/warehouse/orders"},
		{"doubled slashes", "//warehouse///orders//", "/warehouse/orders"},
		{"scheme and authority", "HDFS://NameNode:8020/Data/A", "hdfs://namenode:8020/Data/A"},
		{"a name service", "hdfs://nn1/a", "hdfs://nn1/a"},
		{"an authority alone is its root", "hdfs://nn1", "hdfs://nn1/"},
		{"its root with a slash", "hdfs://nn1/", "hdfs://nn1/"},
		{"no authority", "hdfs:///a//b/", "hdfs:///a/b"},
		{"one slash after the scheme", "file:/a/b", "file:///a/b"},
		{"the root", "/", "/"},
		{"the root twice", "//", "/"},
		{"a colon that is no scheme", "/a:b/c", "/a:b/c"},
		{"a scheme needs a letter first", "1a:/b", "1a:/b"},
		{"dots inside names", "/a/.hidden/b..c/...", "/a/.hidden/b..c/..."},
		{"a relative path", "data//x/", "data/x"},
		{"capitals in a path stay", "/Data/X", "/Data/X"},
		{"a dot", "/a/./b", ""},
		{"two dots", "/a/../b", ""},
		{"two dots at the end", "/a/..", ""},
		{"a dot in front", "./a", ""},
		{"nothing", "", ""},
		{"a line end", "/a\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := CanonicalPath(tt.path)
			if tt.want == "" {
				assert.ErrorIs(t, err, capri.ErrInvalid)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestCanonicalTwiceIsCanonicalOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.StringMatching(`([a-zA-Z][a-z0-9]{0,3}:/{0,3})?[a-zA-Z./:]{1,12}`).Draw(t, "path")
		once, err := CanonicalPath(path)
		if err != nil {
			return
		}
		twice, err := CanonicalPath(once)
		require.NoError(t, err)
		require.Equal(t, once, twice)
	})
}
