package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/worker/shim"
)

// eachWay runs a test with jobs in cgroups, where this machine has them, and with jobs that are known by their mark.
func eachWay(t *testing.T, f func(w *world)) {
	t.Run("mark", func(t *testing.T) {
		w := newWorld(t)
		w.opts.NoCgroups = true
		w.open()
		f(w)
	})
	t.Run("cgroup", func(t *testing.T) {
		w := newWorld(t)
		w.open()
		if w.shimLife().Cgroup == "" {
			t.Skip("this machine lets nobody make cgroups here: the other way is what it has")
		}
		f(w)
	})
}

// wrote waits for a pid that a job's process writes into a file of the jobs' directory.
func (w *world) wrote(name string) (pid int) {
	w.Helper()
	w.eventually("a pid in "+name, func() bool {
		text, _ := os.ReadFile(filepath.Join(w.base, "jobs", name))
		n, _ := fmt.Sscanf(string(text), "%d\n", &pid)
		return n == 1
	})
	return pid
}

func gone(pid int) bool {
	s, err := shim.ReadStat(pid)
	return err != nil || s.State == 'Z'
}

// The ways in which a process goes out of its job's process group.
var escapes = map[string]string{
	"setsid":                             `setsid sh -c 'SCRIPT' &`,
	"forked twice":                       `( setsid sh -c 'SCRIPT' & ) &`,
	"a daemon":                           `( cd /; exec setsid sh -c 'SCRIPT' </dev/null >/dev/null 2>&1 & ) &`,
	"its parent cleaned the environment": `setsid sh -c 'env -i PATH=/bin:/usr/bin sh -c "sleep 1000" & SCRIPT' &`,
}

func escaping(how, script string) string {
	return strings.Replace(escapes[how], "SCRIPT", script, 1)
}

func Test_nothing_of_a_job_outlives_its_end(t *testing.T) {
	for how := range escapes {
		t.Run(how, func(t *testing.T) {
			eachWay(t, func(w *world) {
				e := w.run(w.job(1, escaping(how, "echo $$ > "+filepath.Join(w.base, "jobs", "pid")+"; sleep 1000; true")+" while [ ! -s pid ]; do sleep 0.01; done; echo done"))
				require.True(t, e.OK(), "what it leaves is no failure: %+v", e)
				require.Equal(t, "done\n", w.out(1))
				require.True(t, gone(w.wrote("pid")))
				require.Empty(t, w.members(1))
			})
		})
	}
}

func Test_killed_means_that_nothing_is_left(t *testing.T) {
	for how := range escapes {
		t.Run(how, func(t *testing.T) {
			eachWay(t, func(w *world) {
				j := w.job(1, escaping(how, `trap "" TERM; echo $$ > `+filepath.Join(w.base, "jobs", "pid")+`; while :; do sleep 0.05; done`)+" sleep 1000")
				j.KillGrace = 200 * time.Millisecond
				w.start(j)
				pid := w.wrote("pid")
				require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1)}, 0))
				require.True(t, w.exit(1).Killed)
				require.True(t, gone(pid), "it is called killed when none is left")
				require.Empty(t, w.members(1))
			})
		})
	}
}

func Test_what_left_the_process_group_is_asked_to_end_and_has_the_grace_to_tidy_up(t *testing.T) {
	eachWay(t, func(w *world) {
		w.start(w.job(1, `setsid sh -c 'trap "echo tidied; exit" TERM; echo $$ > pid; while :; do sleep 0.01; done' & exec sleep 1000`))
		w.wrote("pid")
		require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1)}, time.Hour))
		require.True(t, w.exit(1).Killed)
		require.Equal(t, "tidied\n", w.out(1))
	})
}

func Test_one_jobs_end_leaves_the_daemons_of_another_alone(t *testing.T) {
	eachWay(t, func(w *world) {
		w.start(w.job(1, escaping("forked twice", "echo $$ > "+filepath.Join(w.base, "jobs", "pid")+"; sleep 1000; true")+" sleep 1000"))
		pid := w.wrote("pid")
		require.True(t, w.run(w.job(2, "setsid sleep 1000 & true")).OK())
		require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(3)}, 0))
		require.False(t, gone(pid))
		require.NotContains(t, w.got, attempt(1))
	})
}

func Test_a_dead_shims_daemons_are_ended_before_their_attempts_are_called_lost(t *testing.T) {
	eachWay(t, func(w *world) {
		w.start(w.job(1, escaping("forked twice", "echo $$ > "+filepath.Join(w.base, "jobs", "pid")+"; sleep 1000; true")+" sleep 1000"))
		pid, life := w.wrote("pid"), w.shimLife()
		require.NoError(t, syscall.Kill(life.Pid, syscall.SIGKILL))
		require.True(t, w.exit(1).Lost)
		require.True(t, gone(pid))
		if life.Cgroup != "" {
			require.NoDirExists(t, life.Cgroup)
		}
	})
}

func Test_a_frozen_shims_daemons_are_ended_with_its_jobs(t *testing.T) {
	eachWay(t, func(w *world) {
		w.start(w.job(1, escaping("forked twice", "echo $$ > "+filepath.Join(w.base, "jobs", "pid")+"; trap \"\" TERM; while :; do sleep 0.05; done")+" sleep 1000"))
		pid := w.wrote("pid")
		require.NoError(t, syscall.Kill(w.shimLife().Pid, syscall.SIGSTOP))
		require.NoError(t, w.s.EndAll(t.Context(), time.Second))
		require.True(t, w.exit(1).Lost)
		require.True(t, gone(pid))
	})
}

func Test_processes_that_replace_themselves_all_the_time_are_ended(t *testing.T) {
	w := newWorld(t)
	w.open()
	if w.shimLife().Cgroup == "" {
		t.Skip("this machine lets nobody make cgroups here, and without them nothing is quicker than a bomb")
	}
	// Each process starts another at once and ends soon: whoever lists them is always late. There are some dozens at a time.
	w.start(w.job(1, `echo 'echo x > begun; [ -e stop ] || setsid sh ./bomb & sleep 0.05' > bomb; sh ./bomb & sleep 1000`))
	w.eventually("it has begun", func() bool { _, err := os.Stat(filepath.Join(w.base, "jobs", "begun")); return err == nil })
	defer os.WriteFile(filepath.Join(w.base, "jobs", "stop"), nil, 0o644)
	require.NoError(t, w.s.Kill(t.Context(), []capri.Attempt{attempt(1)}, -1))
	require.True(t, w.exit(1).Killed)
	require.Empty(t, w.members(1))
}

// members looks for what is left of an attempt by its mark alone, whatever way the shim goes.
func (w *world) members(n int) map[int]shim.Member {
	w.Helper()
	life := w.shimLife()
	m, err := shim.Members([]shim.Tracked{{Attempt: attempt(n).String(), Since: life.StartTicks, Mark: life.Mark(attempt(n).String())}})
	require.NoError(w, err)
	return m
}
