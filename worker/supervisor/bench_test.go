package supervisor

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/worker/shim"
)

// BenchmarkShell prints how many `/bin/sh -c true` end in a second: bare, by two processes' worth of threads
// that do nothing else, and through supervisor and shim with a directory, two logs, a durable exit and its
// acknowledgement each. Both are measured in turns, because the machine is shared; the ratio is the figure.
// Nothing is deleted between the rounds: ext4 without a journal does not reuse an inode for minutes, and each
// new file searches past all those that were deleted. For the same reason a second run within five minutes on
// such a disk is slower than the first (measured: 0.78, then 0.55); TMPDIR=/dev/shm has no such memory.
//
//	go test -run '^$' -bench Shell -benchtime 5x ./worker/supervisor
func BenchmarkShell(b *testing.B) {
	w := newWorld(b)
	w.opts.ShimPath = filepath.Join(w.base, shim.ProgramName)
	build := exec.Command("go", "build", "-o", w.opts.ShimPath, "capri/cmd/capri-shim")
	out, err := build.CombinedOutput()
	require.NoError(b, err, string(out))
	w.open()

	const round = 2000
	var bare, ours time.Duration
	var cpu time.Duration
	n, batch := 0, 0
	for b.Loop() {
		t := time.Now()
		rawLoop(b, round)
		bare += time.Since(t)

		before := cpuOf(w.shimLife().Pid)
		t = time.Now()
		batch = w.throughShim(b, batch, round)
		ours += time.Since(t)
		cpu += cpuOf(w.shimLife().Pid) - before
		n += round
	}
	raw, got := float64(n)/bare.Seconds(), float64(n)/ours.Seconds()
	b.ReportMetric(raw, "bare/s")
	b.ReportMetric(got, "shim/s")
	b.ReportMetric(got/raw, "ratio")
	b.ReportMetric(float64(cpu.Microseconds())/float64(n), "µs-shim-cpu/job")
	b.ReportMetric(float64(rss(w.shimLife().Pid)), "kB-shim-rss")
	b.ReportMetric(0, "ns/op")
}

// throughShim runs n jobs in frames of a few hundred, as a worker claims them.
func (w *world) throughShim(b *testing.B, batch, n int) int {
	const frame, inHand = 200, 400
	acked, sent := 0, 0
	for acked < n {
		for sent < n && sent-acked <= inHand-frame {
			jobs := make([]Job, frame)
			for i := range jobs {
				batch++
				j := w.job(batch, "true")
				j.Dir = filepath.Join(w.base, "jobs", strconv.Itoa(batch))
				require.NoError(b, os.Mkdir(j.Dir, 0o700))
				if w.cred != nil {
					require.NoError(b, os.Chown(j.Dir, int(w.cred.UID), int(w.cred.GID)))
				}
				for k := range 15 { // about as much environment as a job gets
					j.Env = append(j.Env, "CAPRI_SOMETHING_"+strconv.Itoa(k)+"=2026-11-21T00:00:00+08:00")
				}
				jobs[i] = j
			}
			require.NoError(b, w.s.Start(b.Context(), jobs))
			sent += frame
		}
		exits := <-w.s.Exits()
		acks := make([]capri.Attempt, len(exits))
		for i, e := range exits {
			require.True(b, e.OK(), "%+v", e)
			acks[i] = e.Attempt
		}
		w.s.Ack(acks)
		acked += len(exits)
	}
	return batch
}

// rawLoop is the limit: four threads that fork and wait.
func rawLoop(b *testing.B, n int) {
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	require.NoError(b, err)
	defer syscall.Close(null)
	attr := &syscall.ProcAttr{Files: []uintptr{uintptr(null), uintptr(null), uintptr(null)}, Env: []string{"PATH=/usr/bin:/bin"}}
	var wg sync.WaitGroup
	const threads = 4
	for range threads {
		wg.Go(func() {
			for range n / threads {
				pid, err := syscall.ForkExec("/bin/sh", []string{"/bin/sh", "-c", "true"}, attr)
				if err != nil {
					b.Error(err)
					return
				}
				reap(pid)
			}
		})
	}
	wg.Wait()
}

// cpuOf is what a process itself has used, to a hundredth of a second.
func cpuOf(pid int) time.Duration {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// rss is the resident memory of a process in kB.
func rss(pid int) int {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kb, _ := strconv.Atoi(strings.Fields(rest)[0])
	return kb
}
