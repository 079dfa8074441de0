package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheSweep_ends_what_names_the_directory_and_all_below_it(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "job")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nsleep 300 &\nsleep 300\n"), 0o755))
	p, err := launch("job", filepath.Join(dir, "log"), []string{"PATH=" + os.Getenv("PATH")}, place{}, "/bin/sh", script)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(descendants(p.cmd.Process.Pid)) == 2 }, 5*time.Second, time.Millisecond)
	children := descendants(p.cmd.Process.Pid)
	require.NotEmpty(t, sweep(dir))
	<-p.ended
	for _, pid := range children {
		require.Eventually(t, func() bool { // gone, or waiting for its new parent to notice
			_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			return err != nil
		}, 5*time.Second, time.Millisecond)
	}
	require.Empty(t, sweep(dir))
}

func TestAStop_kills_what_does_not_end_by_itself(t *testing.T) {
	p, err := launch("stubborn", filepath.Join(t.TempDir(), "log"), []string{"PATH=" + os.Getenv("PATH")}, place{}, "/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.01; done")
	require.NoError(t, err)
	require.True(t, p.alive())
	time.Sleep(50 * time.Millisecond) // it sets its trap
	require.False(t, p.stop(100*time.Millisecond))
	require.False(t, p.alive())
}
