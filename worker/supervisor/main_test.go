package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"capri"
	"capri/internal/testenv"
	"capri/worker/shim"
)

// The test binary is its own shim, so the race detector watches both sides.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == shim.ProgramName {
		code := shim.Main(os.Args)
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(code), 0, 0) // os.Exit of a race build sleeps a second
	}
	testenv.AtOnce(6)
	goleak.VerifyTestMain(m)
}

const patience = time.Minute

// world is a data directory in which jobs of an ordinary user can run, whoever runs the test.
type world struct {
	testing.TB
	base string
	opts Options
	s    *Supervisor
	cred *Credential
	got  map[capri.Attempt]Exit
}

func newWorld(t testing.TB) *world {
	t.Helper()
	base, err := os.MkdirTemp("", "capri-supervisor-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	self, err := os.Executable()
	require.NoError(t, err)
	w := &world{TB: t, base: base, got: map[capri.Attempt]Exit{}}
	w.opts = Options{Dir: filepath.Join(base, "shims"), ShimPath: self, Log: slog.New(slog.DiscardHandler)}
	for _, dir := range []string{"logs", "jobs"} {
		require.NoError(t, os.Mkdir(filepath.Join(base, dir), 0o700))
	}
	if os.Geteuid() == 0 {
		w.cred = &Credential{UID: 65534, GID: 65534}
		require.NoError(t, os.Chmod(base, 0o711))
		require.NoError(t, os.Chown(filepath.Join(base, "jobs"), 65534, 65534))
	}
	t.Cleanup(w.end)
	return w
}

// end kills every shim that is left, and with it the jobs.
func (w *world) end() {
	if w.s != nil {
		w.s.Close()
	}
	dirs, _ := filepath.Glob(filepath.Join(w.opts.Dir, "shim-*"))
	for _, dir := range dirs {
		said, _ := os.ReadFile(filepath.Join(dir, shim.LogName))
		if bytes.Contains(said, []byte("DATA RACE")) || bytes.Contains(said, []byte("panic")) {
			w.Errorf("the shim says:\n%s", said)
		}
		if r, err := shim.ReadJournal(dir); err == nil {
			r.Life.Kill()
			w.eventually("the shim is gone", func() bool { return !r.Life.Alive() })
			reap(r.Life.Pid)
			sweep(r, w.opts.Log)
		}
	}
}

func (w *world) open() {
	w.Helper()
	s, err := Open(w.Context(), w.opts)
	require.NoError(w, err)
	w.s = s
}

// reopen is a worker's restart.
func (w *world) reopen() {
	w.Helper()
	require.NoError(w, w.s.Close())
	w.got = map[capri.Attempt]Exit{}
	w.open()
}

func attempt(n int) capri.Attempt { return capri.Attempt{Batch: capri.BatchID(n), Number: 1} }

func (w *world) job(n int, script string) Job {
	return Job{
		Attempt: attempt(n), Argv: []string{"/bin/sh", "-c", script},
		Env: []string{"PATH=/usr/bin:/bin", "CAPRI_ATTEMPT=" + attempt(n).String()}, Dir: filepath.Join(w.base, "jobs"),
		Stdout: w.path(n, "out"), Stderr: w.path(n, "err"), Credential: w.cred,
	}
}

func (w *world) path(n int, stream string) string {
	return filepath.Join(w.base, "logs", fmt.Sprintf("%d.%s", n, stream))
}

func (w *world) start(jobs ...Job) {
	w.Helper()
	require.NoError(w, w.s.Start(w.Context(), jobs))
}

// exit waits for the end of an attempt.
func (w *world) exit(n int) Exit {
	w.Helper()
	deadline := time.After(patience)
	for {
		if e, ok := w.got[attempt(n)]; ok {
			return e
		}
		select {
		case exits, ok := <-w.s.Exits():
			require.True(w, ok, "Exits was closed")
			for _, e := range exits {
				require.NotContains(w, w.got, e.Attempt, "an exit came twice")
				w.got[e.Attempt] = e
			}
		case <-deadline:
			require.FailNow(w, "no exit", "of attempt %d", n)
		}
	}
}

func (w *world) run(j Job) Exit {
	w.Helper()
	w.start(j)
	return w.exit(int(j.Attempt.Batch))
}

func (w *world) out(n int) string {
	b, _ := os.ReadFile(w.path(n, "out"))
	return string(b)
}

func (w *world) says(n int, text string) {
	w.Helper()
	w.eventually(fmt.Sprintf("job %d says %q", n, text), func() bool { return w.out(n) == text })
}

func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(w, "it did not come to pass", what)
		}
	}
}

func (w *world) inventory() []Inventory {
	w.Helper()
	list, err := w.s.Running(w.Context())
	require.NoError(w, err)
	return list
}

// pid waits until the job runs.
func (w *world) pid(n int) (pid int) {
	w.Helper()
	w.eventually("the job runs", func() bool {
		for _, i := range w.inventory() {
			if i.Attempt == attempt(n) {
				pid = i.Pid
			}
		}
		return pid != 0
	})
	return pid
}

// sessionOf lists the processes of a session.
func (w *world) sessionOf(pid int) map[int]shim.Member {
	w.Helper()
	m, err := shim.Members([]shim.Tracked{{Pid: pid}})
	require.NoError(w, err)
	return m
}

func (w *world) shimLife() shim.Life {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	require.NotNil(w, w.s.current)
	return w.s.current.id
}

func (w *world) shimDirs() []string {
	dirs, err := filepath.Glob(filepath.Join(w.opts.Dir, "shim-*"))
	require.NoError(w, err)
	return dirs
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
