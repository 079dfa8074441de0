package testenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Freeze stops a process and waits until it stands still: kill returns before the last of its threads has stopped, which
// may answer a caller until then.
func Freeze(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze process %d: %v", pid, err)
	}
	for deadline := time.Now().Add(20 * time.Second); !frozen(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
}

func frozen(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		b, err := os.ReadFile(thread)
		if err == nil && !bytes.HasPrefix(b[bytes.LastIndexByte(b, ')')+1:], []byte(" T ")) {
			return false
		}
	}
	return len(threads) > 0
}
