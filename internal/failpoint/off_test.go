//go:build !failpoint

package failpoint

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri/internal/testenv"
)

// What could hurt a production binary is what could be switched on in it: so it must not be there at all.
func TestAProductionBinary_has_no_failpoints(t *testing.T) {
	source, err := os.ReadFile("on.go")
	require.NoError(t, err)
	for _, name := range []string{"capri", "capri-shim"} {
		binary, err := os.ReadFile(testenv.Binary(t, name))
		require.NoError(t, err)
		for _, text := range []string{"CAPRI_FAILPOINT", "want REAL BUSINESS SPEED", "failpoint.parseRules"} {
			require.False(t, bytes.Contains(binary, []byte(text)), "%s has %q in it", name, text)
		}
		require.True(t, bytes.Contains(binary, []byte("runtime.gopanic")), "names of functions are in the binary, so their absence says something")
	}
	for _, text := range []string{"CAPRI_FAILPOINT", "want REAL BUSINESS SPEED", "func parseRules"} {
		require.Contains(t, string(source), text, "what is looked for above is what the other build has")
	}
}

func TestTheBuildTag_alone_decides(t *testing.T) {
	files := func(args ...string) string {
		out, err := exec.Command("go", append(append([]string{"list"}, args...), "-f", "{{.GoFiles}} {{.Imports}}", ".")...).Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	require.Equal(t, "[doc.go off.go] [time]", files())
	require.Contains(t, files("-tags", "failpoint"), "[doc.go on.go]")
}

func TestWithoutTheTag_nothing_happens(t *testing.T) {
	t.Setenv("CAPRI_FAILPOINT_CLOCK", "1 2 3")
	require.False(t, Enabled)
	require.NoError(t, Cut(AfterCommit))
	require.Equal(t, "NOW(3)", Clock("NOW(3)"))
	require.Equal(t, time.Minute, Real(time.Minute))
	Wait(ClaimStart)
	require.False(t, On(LeaseBlind))
	require.WithinDuration(t, time.Now(), Now(), time.Minute)
}
