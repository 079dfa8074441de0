package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStandingFailpoint_outlasts_those_of_faults(t *testing.T) {
	m := &member{dir: t.TempDir()}
	rules := func() string {
		text, err := os.ReadFile(m.ruleFile())
		require.NoError(t, err)
		return string(text)
	}
	require.NoError(t, m.fail("plan-assign delay=2s"))
	require.NoError(t, m.stand("lease-stay"))
	require.Equal(t, "plan-assign delay=2s\nlease-stay\n", rules())
	require.NoError(t, m.fail())
	require.Equal(t, "lease-stay\n", rules())
	require.NoError(t, m.stand())
	require.Equal(t, "\n", rules())
}
