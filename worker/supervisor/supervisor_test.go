package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/worker/shim"
)

func Test_exit_codes_and_signals_are_told_apart(t *testing.T) {
	w := newWorld(t)
	w.open()
	e := w.run(w.job(1, "true"))
	require.True(t, e.OK(), "%+v", e)
	require.Positive(t, e.PeakMemoryMB)
	require.Positive(t, e.CPU)
	require.WithinDuration(t, time.Now(), e.Started.In(time.UTC), patience)
	require.GreaterOrEqual(t, e.Ended, e.Started)
	require.Equal(t, 7, w.run(w.job(2, "exit 7")).Code)
	require.Equal(t, 143, w.run(w.job(3, "exit 143")).Code, "a code, although it looks like a signal")
	e = w.run(w.job(4, "kill -TERM $$"))
	require.Equal(t, syscall.SIGTERM, e.Signal)
	require.False(t, e.OK())
	require.False(t, e.Killed, "nobody asked for it")
	e = w.run(w.job(5, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"))
	require.Greater(t, e.CPU, 10*time.Millisecond)
}

func Test_a_job_finds_what_it_was_promised_and_nothing_else(t *testing.T) {
	leaked, err := os.Open("/dev/null") // and made inheritable, as a careless library would
	require.NoError(t, err)
	defer leaked.Close()
	_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, leaked.Fd(), syscall.F_SETFD, 0)
	require.Zero(t, errno)

	w := newWorld(t)
	w.open()
	j := w.job(1, `umask; pwd; cat; echo problem >&2; ls /proc/self/fd | wc -l
		cut -d' ' -f5,6 /proc/$$/stat; echo $$; id -u; grep SigIgn /proc/self/status | cut -f2; echo again >>/dev/stdout
		grep -E '^(NoNewPrivs|Uid|Gid|Groups):' /proc/self/status | tr -s '\t ' ' '; env`)
	j.Env = []string{"PATH=/usr/bin:/bin", "PARAM_X=a b"}
	require.True(t, w.run(j).OK())
	lines := strings.Split(strings.TrimSpace(w.out(1)), "\n")
	require.Equal(t, "0077", lines[0])
	require.Equal(t, j.Dir, lines[1])
	require.Equal(t, "4", lines[2], "0, 1, 2 and the one of ls")
	require.Equal(t, lines[4]+" "+lines[4], lines[3], "leader of a group and a session of its own")
	if w.cred != nil {
		require.Equal(t, "65534", lines[5])
	}
	ignored, err := strconv.ParseUint(lines[6], 16, 64)
	require.NoError(t, err)
	require.Zero(t, ignored&(1<<31-1), "no signal is ignored") // 32 and 33 are the C library's own, and may be inherited
	require.Equal(t, "again", lines[7], "/dev/stdout can be opened")
	if w.cred != nil {
		require.Equal(t, []string{"Uid: 65534 65534 65534 65534", "Gid: 65534 65534 65534 65534", "Groups: ", "NoNewPrivs: 1"}, lines[8:12],
			"real, effective, saved and of the file system; no way up")
	}
	require.Subset(t, []string{"PATH=/usr/bin:/bin", "PARAM_X=a b", "PWD=" + j.Dir, shim.MarkName + "=" + w.shimLife().Mark("1.1")}, lines[12:])
	errText, err := os.ReadFile(j.Stderr)
	require.NoError(t, err)
	require.Equal(t, "problem\n", string(errText))
	st, err := os.Stat(j.Stdout)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), st.Mode())
}

func Test_what_cannot_be_started_ends_with_a_sentence(t *testing.T) {
	w := newWorld(t)
	w.open()
	refused := func(n int, change func(*Job), want string) {
		t.Helper()
		j := w.job(n, "echo never")
		change(&j)
		e := w.run(j)
		require.Contains(t, e.Error, want)
		require.Zero(t, e.Started)
		require.NotZero(t, e.Ended)
		require.False(t, e.OK())
	}
	text := filepath.Join(w.base, "jobs", "text")
	require.NoError(t, os.WriteFile(text, []byte("#!/no/such/interpreter\n"), 0o644))
	refused(1, func(j *Job) { j.Argv[0] = "/no/such/program" }, "start program: stat /no/such/program: no such file or directory")
	refused(2, func(j *Job) { j.Dir = "/no/such/dir" }, "enter the job's directory: stat /no/such/dir")
	refused(3, func(j *Job) { j.Argv[0] = text }, "permission denied (its mode is -rw-r--r--")
	require.NoError(t, os.Chmod(text, 0o755))
	refused(4, func(j *Job) { j.Argv[0] = text }, "does the interpreter in its first line exist?")
	refused(5, func(j *Job) { j.Argv[2] = strings.Repeat("x", 200_000) }, "argument list too long: arguments and environment have 200")
	refused(6, func(j *Job) { j.Stdout = filepath.Join(w.base, "no", "out") }, "create log")
	require.NoError(t, os.WriteFile(w.path(7, "out"), []byte("of an earlier start"), 0o600))
	refused(7, func(*Job) {}, "file exists")
	if os.Geteuid() == 0 {
		refused(8, func(j *Job) { j.Credential = nil }, "never run as root")
		refused(9, func(j *Job) { j.Credential = &Credential{UID: 0} }, "never run as root")
	} else {
		refused(8, func(j *Job) { j.Credential = &Credential{UID: 1} }, "start as user 1")
	}
	require.Equal(t, "of an earlier start", w.out(7))
	require.True(t, w.run(w.job(10, "true")).OK(), "and the shim goes on")

	j := w.job(11, "true")
	j.Argv[0] = "sh"
	require.ErrorIs(t, w.s.Start(t.Context(), []Job{j}), capri.ErrInvalid)
	j = w.job(12, "true")
	j.Dir = "jobs"
	require.ErrorIs(t, w.s.Start(t.Context(), []Job{j}), capri.ErrInvalid)
}

func Test_a_group_that_ignores_SIGTERM_is_killed_when_the_grace_is_over(t *testing.T) {
	w := newWorld(t)
	w.open()
	j := w.job(1, "trap '' TERM; sleep 1000 & echo ready; wait")
	j.KillGrace = 300 * time.Millisecond
	w.start(j)
	w.says(1, "ready\n")
	pid := w.pid(1)
	require.Len(t, w.sessionOf(pid), 2)
	asked := time.Now()
	require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1), attempt(99)}, 0))
	e := w.exit(1)
	require.Equal(t, syscall.SIGKILL, e.Signal)
	require.True(t, e.Killed)
	require.False(t, e.TimedOut)
	require.GreaterOrEqual(t, time.Since(asked), j.KillGrace)
	require.Empty(t, w.sessionOf(pid))
}

func Test_what_the_main_process_had_started_gets_its_grace_too(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.start(w.job(1, `sh -c 'trap "echo tidied; exit" TERM; echo ready; while :; do sleep 0.01; done' & wait`))
	w.says(1, "ready\n")
	pid := w.pid(1)
	require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1)}, 0))
	e := w.exit(1)
	require.Equal(t, syscall.SIGTERM, e.Signal, "the outer shell dies at once")
	require.Equal(t, "ready\ntidied\n", w.out(1))
	require.Empty(t, w.sessionOf(pid), "it is called killed when none is left")
}

func Test_what_lingers_after_its_leader_is_killed_when_the_grace_is_over_or_shortened(t *testing.T) {
	w := newWorld(t)
	w.open()
	const stubborn = `sh -c 'trap "" TERM; echo ready; sleep 1000' & wait`
	long, short := w.job(1, stubborn), w.job(2, stubborn)
	long.KillGrace, short.KillGrace = time.Hour, 200*time.Millisecond
	w.start(long, short)
	w.says(1, "ready\n")
	w.says(2, "ready\n")
	pids := []int{w.pid(1), w.pid(2)}
	require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1), attempt(2)}, 0))
	w.exit(2)
	w.eventually("the leader is gone", func() bool { return len(w.sessionOf(pids[0])) == 2 })
	require.NotContains(t, w.got, attempt(1), "it has an hour")
	require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1)}, -1))
	require.True(t, w.exit(1).Killed)
	for _, pid := range pids {
		require.Empty(t, w.sessionOf(pid))
	}
}

func Test_a_stopped_job_can_be_killed(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.start(w.job(1, "echo ready; kill -STOP $$"))
	w.says(1, "ready\n")
	pid := w.pid(1)
	w.eventually("it has stopped", func() bool { s, _ := shim.ReadStat(pid); return s.State == 'T' })
	require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1)}, time.Hour))
	require.Equal(t, syscall.SIGTERM, w.exit(1).Signal)
}

func Test_a_job_that_runs_too_long_is_ended_by_the_shim(t *testing.T) {
	w := newWorld(t)
	w.open()
	j := w.job(1, "sleep 1000; true")
	j.RunTimeout, j.KillGrace = 50*time.Millisecond, 5*time.Second
	e := w.run(j)
	require.True(t, e.TimedOut)
	require.False(t, e.Killed)
	require.Equal(t, syscall.SIGTERM, e.Signal)
	require.False(t, e.OK())
}

func Test_background_children_do_not_outlive_a_job(t *testing.T) {
	w := newWorld(t)
	w.open()
	require.True(t, w.run(w.job(1, "sleep 1000 & echo $! ")).OK())
	var pid int
	fmt.Sscan(w.out(1), &pid)
	w.eventually("the child is gone", func() bool { s, err := shim.ReadStat(pid); return err != nil || s.State == 'Z' })
}

func Test_a_shim_that_dies_takes_its_jobs_along_and_the_next_start_has_a_new_one(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.start(w.job(1, "exec sleep 1000"), w.job(2, "sleep 1000; true"), w.job(3, "exit 3"))
	require.Equal(t, 3, w.exit(3).Code)
	pids := []int{w.pid(1), w.pid(2)}
	w.eventually("the second has a child", func() bool { return len(w.sessionOf(pids[1])) == 2 })
	life := w.shimLife()
	killed := time.Now()
	require.NoError(t, syscall.Kill(life.Pid, syscall.SIGKILL))
	for n := 1; n <= 2; n++ {
		e := w.exit(n)
		require.True(t, e.Lost)
		require.Equal(t, "lost its shim", e.Error)
		require.NotZero(t, e.Started)
		require.False(t, e.OK())
		require.Empty(t, w.sessionOf(pids[n-1]), "before it is called lost nothing is left of it")
	}
	require.Less(t, time.Since(killed), patience/2)
	require.Len(t, w.got, 3, "what had ended is not lost")

	require.True(t, w.run(w.job(4, "true")).OK())
	require.NotEqual(t, life.Pid, w.shimLife().Pid)
	require.Len(t, w.shimDirs(), 2)
	w.s.Ack([]capri.Attempt{attempt(1), attempt(2), attempt(3)})
	require.Len(t, w.shimDirs(), 1, "what the dead one left is gone when all of it is acknowledged")
}

func Test_jobs_go_on_without_a_worker_and_the_next_one_finds_them(t *testing.T) {
	w := newWorld(t)
	w.open()
	gate := filepath.Join(w.base, "jobs", "gate")
	wait := fmt.Sprintf("while [ ! -e %s ]; do sleep 0.01; done; exit 5", gate)
	w.start(w.job(1, "exit 1"), w.job(2, "exit 2"), w.job(3, wait), w.job(4, "sleep 1000"))
	w.exit(1)
	w.exit(2)
	w.s.Ack([]capri.Attempt{attempt(1)})
	w.pid(4) // the last of the frame
	before := w.inventory()
	require.Len(t, before, 2)
	life := w.shimLife()
	require.NoError(t, w.s.Close())

	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	w.eventually("the job ended without a worker", func() bool {
		r, err := shim.ReadJournal(w.shimDirs()[0])
		return err == nil && len(r.Running) == 1
	})
	w.got = map[capri.Attempt]Exit{}
	w.open()
	require.Equal(t, life, w.shimLife())
	require.Equal(t, 5, w.exit(3).Code)
	after := w.inventory()
	require.Len(t, after, 1)
	require.Equal(t, before[1].Attempt, after[0].Attempt)
	require.Equal(t, before[1].Pid, after[0].Pid)
	require.Equal(t, before[1].StartTicks, after[0].StartTicks)
	require.Equal(t, 2, w.exit(2).Code, "not acknowledged, so it comes again")
	require.NotContains(t, w.got, attempt(1))
	require.Equal(t, []capri.Attempt{attempt(1), attempt(9)}, w.s.Unknown([]capri.Attempt{attempt(1), attempt(2), attempt(4), attempt(9)}))
	require.ErrorIs(t, w.s.Start(t.Context(), []Job{w.job(4, "true")}), capri.ErrConflict, "it runs")

	require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(4)}, 0))
	require.True(t, w.exit(4).Killed)
	require.True(t, w.run(w.job(5, "true")).OK())
}

func Test_a_connection_that_breaks_is_made_again_and_loses_nothing(t *testing.T) {
	w := newWorld(t)
	w.open()
	const n = 200
	for i := 1; i <= n; i++ {
		w.start(w.job(i, "exit 9"))
		if i%20 == 0 {
			w.s.mu.Lock()
			l := w.s.current
			w.s.mu.Unlock()
			l.mu.Lock()
			if l.conn != nil {
				l.conn.Close()
			}
			l.mu.Unlock()
		}
	}
	for i := 1; i <= n; i++ {
		e := w.exit(i)
		require.True(t, e.Code == 9 || e.Lost && e.Started == 0, "%+v", e)
		require.Equal(t, e.Lost, !exists(w.path(i, "out")), "what is called never started was not: %+v", e)
	}
	require.Len(t, w.shimDirs(), 1, "the shim is the same")
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func Test_a_shim_without_worker_and_jobs_leaves_and_its_exits_are_found_on_disk(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.run(w.job(1, "exit 1"))
	life := w.shimLife()
	require.NoError(t, w.s.Close())
	w.eventually("the shim left", func() bool { return !life.Alive() })
	w.got = map[capri.Attempt]Exit{}
	w.open()
	require.Equal(t, 1, w.exit(1).Code)
	require.Len(t, w.shimDirs(), 2)
	w.s.Ack([]capri.Attempt{attempt(1)})
	require.Len(t, w.shimDirs(), 1)
}

func Test_attempts_of_a_shim_that_died_without_a_worker_are_lost(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.start(w.job(1, "sleep 1000; true"))
	pid := w.pid(1)
	w.eventually("it has a child", func() bool { return len(w.sessionOf(pid)) == 2 })
	life := w.shimLife()
	require.NoError(t, w.s.Close())
	require.NoError(t, syscall.Kill(life.Pid, syscall.SIGKILL))
	w.open()
	require.True(t, w.exit(1).Lost)
	require.Empty(t, w.sessionOf(pid))

	w.reopen()
	require.True(t, w.exit(1).Lost, "until it is acknowledged")
	w.s.Ack([]capri.Attempt{attempt(1)})
	w.reopen()
	w.s.Start(t.Context(), []Job{w.job(2, "true")})
	w.exit(2)
	require.Len(t, w.got, 1)
}

func Test_a_shim_leaves_when_its_last_job_ends_if_it_is_told_to(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.start(w.job(1, "echo ready; read x < /dev/null; sleep 1000"))
	w.says(1, "ready\n")
	life := w.shimLife()
	require.ErrorIs(t, w.s.Shutdown(within(t, 50*time.Millisecond)), context.DeadlineExceeded)
	require.True(t, life.Alive(), "a job runs")
	require.ErrorIs(t, w.s.Start(t.Context(), []Job{w.job(2, "true")}), capri.ErrConflict)
	require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1)}, 0))
	require.NoError(t, w.s.Shutdown(within(t, patience)))
	require.True(t, w.exit(1).Killed)
	require.False(t, life.Alive())
	w.s.Ack([]capri.Attempt{attempt(1)})
	require.Empty(t, w.shimDirs())
}

func Test_SIGTERM_to_the_shim_ends_its_jobs_in_order(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.start(w.job(1, "trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done"))
	w.says(1, "ready\n")
	life := w.shimLife()
	require.NoError(t, syscall.Kill(life.Pid, syscall.SIGTERM))
	e := w.exit(1)
	require.Equal(t, 4, e.Code)
	require.True(t, e.Killed)
	w.eventually("the shim left", func() bool { return !life.Alive() })
	w.eventually("and that was noticed", func() bool {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		return w.s.current == nil
	})
	require.True(t, w.run(w.job(2, "true")).OK())
}

func Test_a_replaced_program_keeps_its_jobs_and_gets_no_new_ones(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.start(w.job(1, "sleep 1000"))
	old := w.shimLife()
	copied := filepath.Join(w.base, shim.ProgramName)
	text, err := os.ReadFile(w.opts.ShimPath)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(copied, text, 0o755))
	w.opts.ShimPath = copied
	w.reopen()
	require.NotEqual(t, old.Pid, w.shimLife().Pid)
	require.True(t, w.run(w.job(2, "true")).OK())
	require.Len(t, w.inventory(), 1)
	require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1)}, 0))
	require.True(t, w.exit(1).Killed)
	w.eventually("the old shim left with its last job", func() bool { return !old.Alive() })
}

func Test_a_missing_shim_is_named_with_the_remedy(t *testing.T) {
	w := newWorld(t)
	w.opts.ShimPath = filepath.Join(w.base, "capri-shim")
	_, err := Open(t.Context(), w.opts)
	require.ErrorIs(t, err, capri.ErrNotFound)
	require.ErrorContains(t, err, "install capri-shim beside capri")
	require.NoError(t, os.WriteFile(w.opts.ShimPath, []byte("#!/bin/sh\necho out of order >&2; exit 1\n"), 0o755))
	_, err = Open(t.Context(), w.opts)
	require.ErrorContains(t, err, "it says: out of order")
	require.Empty(t, w.shimDirs())
}

func Test_only_the_workers_user_can_reach_a_shim(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.Mkdir(w.opts.Dir, 0o777))
	require.NoError(t, os.Chmod(w.opts.Dir, 0o777))
	w.open()
	for path, mode := range map[string]os.FileMode{
		w.opts.Dir: os.ModeDir | 0o700, w.shimDirs()[0]: os.ModeDir | 0o700,
		filepath.Join(w.shimDirs()[0], shim.SocketName): os.ModeSocket | 0o600,
		filepath.Join(w.shimDirs()[0], "journal"):       0o600,
		filepath.Join(w.shimDirs()[0], shim.LogName):    0o600,
	} {
		st, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, st.Mode(), path)
	}
}

func Test_two_thousand_jobs_at_once_all_end(t *testing.T) {
	w := newWorld(t)
	w.open()
	const n = 2000
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = w.job(i+1, fmt.Sprintf("exit %d", i%200))
	}
	w.start(jobs...)
	for i := range jobs {
		require.Equal(t, i%200, w.exit(i+1).Code)
	}
	all := make([]capri.Attempt, n)
	for i := range all {
		all[i] = attempt(i + 1)
	}
	w.s.Ack(all)
	w.eventually("the journal has shrunk", func() bool {
		st, err := os.Stat(filepath.Join(w.shimDirs()[0], "journal"))
		return err == nil && st.Size() < 80<<10
	})
}

func Test_many_jobs_killed_at_once_all_end_whether_started_or_not(t *testing.T) {
	w := newWorld(t)
	w.open()
	const n = 150
	var jobs []Job
	var all []capri.Attempt
	for i := 1; i <= n; i++ {
		jobs = append(jobs, w.job(i, "sleep 1000; true"))
		all = append(all, attempt(i))
	}
	w.start(jobs...)
	w.pid(n / 3)
	require.NoError(t, w.s.Kill(t.Context(), all, 0))
	started := 0
	for i := 1; i <= n; i++ {
		e := w.exit(i)
		require.True(t, e.Killed)
		if e.Started != 0 {
			started++
		} else {
			require.Contains(t, e.Error, "killed before it was started")
			require.False(t, exists(w.path(i, "out")))
		}
	}
	t.Logf("%d of %d had been started", started, n)
	require.Empty(t, w.inventory())
}
