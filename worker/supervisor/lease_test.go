package supervisor

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/internal/testenv"
	"capri/worker/shim"
)

// tidy is a job that tidies up when it is told to end, and stubborn one that will not hear of it.
const (
	tidy     = `trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.01; done`
	stubborn = `trap '' TERM; echo ready; sleep 1000 & wait; sleep 1000`
)

// under gives a lease from now on.
func under(killAfter time.Duration) shim.Lease {
	return shim.Lease{At: shim.Now(), KillAfter: killAfter, Grace: 2 * time.Second}
}

// renew returns when the shims were told: frames keep their order.
func (w *world) renew(lease shim.Lease) {
	w.s.Renew(lease)
	for _, l := range w.s.living() {
		l.writing.Lock()
		l.sendLease()
		l.writing.Unlock()
	}
}

// lapsed waits for an attempt that was ended because the lease had run out.
func (w *world) lapsed(n int) Exit {
	w.Helper()
	e := w.exit(n)
	require.True(w, e.Lapsed, "%+v", e)
	require.False(w, e.OK())
	return e
}

func Test_a_shim_that_hears_of_no_newer_lease_ends_its_jobs(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	w.open()
	w.s.Renew(under(time.Hour))
	w.start(w.job(1, tidy), w.job(2, stubborn))
	w.says(1, "ready\n")
	w.says(2, "ready\n")
	pids := []int{w.pid(1), w.pid(2)}
	lease := under(600 * time.Millisecond)
	w.s.Renew(lease)
	e := w.lapsed(1)
	require.GreaterOrEqual(t, shim.Now(), lease.At+lease.KillAfter, "not a moment earlier")
	require.Equal(t, 0, e.Code)
	require.Equal(t, "ready\ntidied\n", w.out(1))
	require.Equal(t, syscall.SIGKILL, w.lapsed(2).Signal)
	for _, pid := range pids {
		require.Empty(t, w.sessionOf(pid))
	}
	w.s.Renew(under(time.Hour))
	require.True(t, w.run(w.job(3, "true")).OK(), "with a new lease the same shim takes new jobs")
}

func Test_a_shim_whose_worker_is_gone_ends_its_jobs_when_the_lease_runs_out(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	w.open()
	w.s.Renew(under(time.Hour))
	w.start(w.job(1, tidy))
	w.says(1, "ready\n")
	w.renew(under(500 * time.Millisecond))
	require.NoError(t, w.s.Close())
	w.says(1, "ready\ntidied\n")
	w.got = map[capri.Attempt]Exit{}
	w.open()
	w.lapsed(1)
}

func Test_renewed_leases_keep_jobs_running_also_across_a_restart(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	w.open()
	w.s.Renew(under(4 * time.Second))
	gate := filepath.Join(w.base, "jobs", "gate")
	w.start(w.job(1, "while [ ! -e "+gate+" ]; do sleep 0.01; done; exit 5"))
	w.pid(1)
	for i := range 10 { // for longer than a lease
		time.Sleep(500 * time.Millisecond)
		if i == 2 {
			w.reopen()
		}
		w.s.Renew(under(4 * time.Second))
	}
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	e := w.exit(1)
	require.Equal(t, 5, e.Code)
	require.False(t, e.Lapsed)
}

func Test_a_lease_without_an_end_never_ends_a_job_and_lifts_an_earlier_end(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	w.open()
	w.renew(under(300 * time.Millisecond))
	w.renew(under(0))
	e := w.run(w.job(1, "sleep 1; exit 5"))
	require.Equal(t, 5, e.Code)
	require.False(t, e.Lapsed)
}

func Test_an_older_lease_that_comes_late_changes_nothing(t *testing.T) {
	w := newWorld(t)
	w.open()
	old := under(time.Millisecond)
	w.renew(under(time.Hour))
	w.renew(old)
	require.True(t, w.run(w.job(1, "sleep 0.2")).OK())
}

func Test_a_job_that_comes_too_late_is_not_started(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.s.Renew(under(time.Hour)) // however new the node's lease is: the job belongs to an older one
	j := w.job(1, "true")
	j.StartBy = shim.Now() - time.Millisecond
	e := w.run(j)
	require.True(t, e.Lapsed)
	require.Zero(t, e.Started)
	require.Contains(t, e.Error, "lease was too old")
	require.False(t, exists(w.path(1, "out")))
	j = w.job(2, "true")
	j.StartBy = shim.Now() + time.Hour
	require.True(t, w.run(j).OK())
	w.s.Renew(under(time.Nanosecond))
	require.Zero(t, w.lapsedRun(3).Started, "and none is started when the lease has run out")
}

func (w *world) lapsedRun(n int) Exit {
	w.Helper()
	w.start(w.job(n, "true"))
	return w.lapsed(n)
}

func Test_a_new_shim_hears_of_the_lease_that_there_is(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	w.open()
	w.s.Renew(under(2 * time.Second))
	require.NoError(t, w.shimLife().Kill())
	w.eventually("its death was noticed", func() bool {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		return w.s.current == nil
	})
	w.start(w.job(1, "sleep 1000"))
	w.lapsed(1)
}

func Test_EndAll_ends_every_job_and_waits_until_none_is_left(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	w.open()
	w.s.Renew(under(time.Hour))
	w.start(w.job(1, tidy), w.job(2, stubborn))
	w.says(1, "ready\n")
	w.says(2, "ready\n")
	pids := []int{w.pid(1), w.pid(2)}
	require.Equal(t, 2, w.s.Jobs())
	require.NoError(t, w.s.EndAll(t.Context(), 2*time.Second))
	for _, pid := range pids {
		require.Empty(t, w.sessionOf(pid))
	}
	require.Zero(t, w.s.Jobs())
	w.lapsed(1)
	require.Equal(t, "ready\ntidied\n", w.out(1))
	w.lapsed(2)
	require.NoError(t, w.s.EndAll(t.Context(), time.Hour), "there is nothing to wait for")
	require.True(t, w.run(w.job(3, "true")).OK())
}

func Test_the_jobs_of_a_shim_that_hangs_are_ended_without_it(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	w.open()
	w.s.Renew(under(time.Hour))
	w.start(w.job(1, tidy), w.job(2, stubborn), w.job(3, "exit 7"))
	require.Equal(t, 7, w.exit(3).Code)
	w.says(1, "ready\n")
	w.says(2, "ready\n")
	pids := []int{w.pid(1), w.pid(2)}
	life := w.shimLife()
	testenv.Freeze(t, life.Pid)
	require.NoError(t, w.s.EndAll(t.Context(), 2*time.Second))
	for n, pid := range pids {
		require.Empty(t, w.sessionOf(pid))
		require.True(t, w.exit(n+1).Lost)
	}
	require.Equal(t, "ready\ntidied\n", w.out(1), "it was asked before it was killed")
	require.False(t, life.Alive(), "a shim that hangs holds nothing any more")
	require.True(t, w.run(w.job(4, "true")).OK())
}

// oldShim speaks version 1 and holds attempt 1: it knows neither leases nor why it has to kill.
func oldShim(w *world, kills chan<- shim.Kill) {
	w.Helper()
	dir := filepath.Join(w.opts.Dir, lifeName(1))
	require.NoError(w, os.MkdirAll(dir, 0o700))
	process := exec.CommandContext(w.Context(), "sleep", "1000") // lives as long as it is called alive
	require.NoError(w, process.Start())
	stat, err := shim.ReadStat(process.Process.Pid)
	require.NoError(w, err)
	l, err := net.Listen("unix", filepath.Join(dir, shim.SocketName))
	require.NoError(w, err)
	w.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		defer process.Wait()
		defer process.Process.Kill()
		in := bufio.NewReader(conn)
		for {
			m, err := shim.ReadFrame(in)
			if err != nil {
				return
			}
			var answer shim.Message
			switch {
			case m.Greet != nil:
				id := shim.Life{Version: 1, Pid: process.Process.Pid, StartTicks: stat.StartTicks, BootID: shim.BootID()}
				answer.Hello = &shim.Hello{Life: id, Running: []shim.Running{{Attempt: attempt(1).String()}}}
			case len(m.Kill) > 0:
				kills <- m.Kill[0]
				answer.Exits = []shim.Exit{{Attempt: m.Kill[0].Attempt, Signal: 15, Killed: true}}
			case m.Ask != 0:
				answer.Inventory = &shim.Inventory{Ask: m.Ask}
			default:
				continue
			}
			if shim.WriteFrame(conn, &answer) != nil {
				return
			}
		}
	}()
}

func Test_a_shim_of_an_older_version_gets_no_new_jobs_and_its_jobs_are_ended_by_us(t *testing.T) {
	w := newWorld(t)
	kills := make(chan shim.Kill, 10)
	oldShim(w, kills)
	w.open()
	w.s.Renew(under(time.Hour))
	require.True(t, w.run(w.job(2, "true")).OK(), "by a new shim")
	require.Equal(t, 1, w.s.Jobs())
	require.NoError(t, w.s.EndAll(t.Context(), time.Second))
	require.Equal(t, attempt(1).String(), (<-kills).Attempt)
	e := w.exit(1)
	require.True(t, e.Killed)
	require.False(t, e.OK())
}

func Test_a_shim_that_hangs_when_the_worker_starts_keeps_its_jobs_until_they_have_to_end(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	w.open()
	gate := filepath.Join(w.base, "jobs", "gate")
	w.start(w.job(1, "while [ ! -e "+gate+" ]; do sleep 0.01; done; exit 5"), w.job(2, tidy), w.job(3, "exit 7"))
	require.Equal(t, 7, w.exit(3).Code)
	w.says(2, "ready\n")
	pid, life := w.pid(2), w.shimLife()
	w.opts.AnswerWithin = 3 * time.Second // a busy host's shim takes long to start, too
	for awake := range 2 {
		testenv.Freeze(t, life.Pid)
		w.reopen()
		require.Equal(t, 7, w.exit(3).Code, "what it had reported is in its journal")
		require.Equal(t, 2-awake, w.s.Jobs())
		require.Empty(t, w.s.Unknown([]capri.Attempt{attempt(2)}))
		held, err := w.s.Running(t.Context())
		require.NoError(t, err)
		require.Len(t, held, 2-awake)
		require.True(t, w.run(w.job(10+awake, "true")).OK(), "another shim takes new jobs")
		if awake == 0 {
			require.NoError(t, syscall.Kill(life.Pid, syscall.SIGCONT))
			require.NoError(t, os.WriteFile(gate, nil, 0o644))
			require.Equal(t, 5, w.exit(1).Code, "it is called again, and its exits are exact")
			w.s.Ack([]capri.Attempt{attempt(1)})
		}
	}
	require.NoError(t, w.s.EndWith(t.Context(), []capri.Attempt{attempt(2)}, time.Second))
	require.Empty(t, w.sessionOf(pid))
	require.True(t, w.exit(2).Lost)
	require.Equal(t, "ready\ntidied\n", w.out(2))
}

func Test_a_shim_that_begins_to_hang_gets_no_new_jobs(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	w.opts.AnswerWithin = 3 * time.Second
	w.open()
	w.start(w.job(1, tidy))
	w.says(1, "ready\n")
	life := w.shimLife()
	testenv.Freeze(t, life.Pid)
	held, err := w.s.Running(t.Context())
	require.NoError(t, err)
	require.Len(t, held, 1, "it keeps what it has")
	require.True(t, w.run(w.job(2, "true")).OK(), "another shim takes new jobs")
	require.NoError(t, syscall.Kill(life.Pid, syscall.SIGCONT))
	require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1)}, time.Second))
	require.True(t, w.exit(1).Killed, "it is listened to when it comes to life again")
	w.s.Ack([]capri.Attempt{attempt(1)})
	w.eventually("it leaves when its last job has ended", func() bool { return !life.Alive() })
}
