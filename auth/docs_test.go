package auth_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/auth"
)

var update = flag.Bool("update", false, "write the table of acts in docs/access.md anew")

func TestThe_docs_have_the_policy(t *testing.T) {
	file := filepath.Join("..", "docs", "access.md")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, _ := strings.Cut(string(text), "<!-- acts: go test ./auth -run docs -update writes this table -->\n")
	old, after, found := strings.Cut(rest, "<!-- end of acts -->")
	require.True(t, found, "the marks of the table are gone")
	var b strings.Builder
	b.WriteString("\n| act | is to | needs |\n| --- | --- | --- |\n")
	for _, r := range auth.Policy {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Act, r.Does, strings.TrimPrefix(strings.TrimSuffix(r.Needs(), "."), "Needs "))
	}
	b.WriteString("\n")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+"<!-- acts: go test ./auth -run docs -update writes this table -->\n"+b.String()+"<!-- end of acts -->"+after), 0o644))
		return
	}
	assert.Equal(t, b.String(), old, "the policy has changed: go test ./auth -run docs -update")
	for _, s := range []string{"task_edit", "task_read", "cascade_foreign"} {
		assert.Contains(t, string(text), "| `"+s+"` |")
	}
}
