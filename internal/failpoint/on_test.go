//go:build failpoint

package failpoint

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func withRules(t *testing.T, text string) string {
	t.Helper()
	old := rules
	rules = &file{path: filepath.Join(t.TempDir(), "rules")}
	t.Cleanup(func() { rules = old })
	require.NoError(t, os.WriteFile(rules.path, []byte(text), 0o600))
	return rules.path
}

func TestACut_looks_like_a_lost_connection(t *testing.T) {
	withRules(t, "after-commit cut\nbefore-commit delay=1ms\n")
	require.ErrorIs(t, Cut(AfterCommit), io.ErrUnexpectedEOF)
	require.NoError(t, Cut(BeforeCommit))
	Wait(PlanAssign)
	require.False(t, On(LeaseBlind))
}

func TestAMasterIsBlind_while_the_rule_says_so(t *testing.T) {
	withRules(t, "lease-blind")
	require.True(t, On(LeaseBlind))
	require.False(t, On(LeaseStay))
}

func TestRules_are_read_again_while_it_runs(t *testing.T) {
	path := withRules(t, "")
	require.NoError(t, Cut(AfterCommit))
	require.NoError(t, os.WriteFile(path, []byte("after-commit cut"), 0o600))
	rules.looked = time.Time{} // as if a moment had passed
	require.Error(t, Cut(AfterCommit))
	require.NoError(t, os.Remove(path))
	rules.looked = time.Time{}
	require.NoError(t, Cut(AfterCommit))
}

func TestAShare_hits_some(t *testing.T) {
	withRules(t, "after-commit cut share=0.5")
	hit := 0
	for range 1000 {
		if Cut(AfterCommit) != nil {
			hit++
		}
	}
	require.Greater(t, hit, 300)
	require.Less(t, hit, 700)
}

func TestSlips_in_rules_are_named(t *testing.T) {
	for text, want := range map[string]string{
		"before-comit cut":    "no point",
		"claim-start cut":     "understands delay, share",
		"plan-assign delay=2": "missing unit",
		"after-commit share=": "invalid syntax",
	} {
		_, err := parseRules(text)
		require.ErrorContains(t, err, want)
	}
}

func TestBusinessTime_is_shifted_and_sped_up(t *testing.T) {
	old := business
	t.Cleanup(func() { business = old })
	require.Equal(t, "NOW(3)", Clock("NOW(3)"), "unless somebody asks for it")
	var err error
	business, err = parseClock("1000 5000 60")
	require.NoError(t, err)
	require.Equal(t, "(5000 + (NOW(3) - 1000) * 60)", Clock("NOW(3)"))
	require.Equal(t, time.Second, Real(time.Minute))
	withRules(t, "local-clock shift=-1h")
	want := time.UnixMilli(5000).Add(time.Since(time.UnixMilli(1000)) * 60).Add(-time.Hour)
	require.WithinDuration(t, want, Now(), time.Hour/2)
	for _, bad := range []string{"1", "1 2 0", "1 2 3 4", "a b c"} {
		_, err := parseClock(bad)
		require.ErrorContains(t, err, "REAL BUSINESS SPEED")
	}
}
