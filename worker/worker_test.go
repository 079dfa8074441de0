package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"capri"
	"capri/certs"
	"capri/internal/testenv"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/worker/supervisor"
)

func TestA_job_that_ends_with_0_is_a_success(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		n := c.run(nil)
		id := c.launch("n1", "echo out; echo err >&2", nil)
		b := c.wants(id, capri.Success, "")
		if got := n.output(id, b.Attempt, false); got != "out\n" {
			t.Errorf("stdout is %q", got)
		}
		if got := n.output(id, b.Attempt, true); got != "err\n" {
			t.Errorf("stderr is %q", got)
		}
		left := func() []string {
			dirs, _ := filepath.Glob(filepath.Join(n.o.Dir, jobDir, "[0-9]*"))
			return dirs
		}
		c.until("the job's directory to be gone", func() bool { return len(left()) == 0 }, func() string { return strings.Join(left(), " ") })
		var states []string
		events, err := db.Store.Events(c.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			states = append(states, e.Why)
		}
		if got := strings.Join(states, ", "); got != "assigned, claimed, started, succeeded" {
			t.Errorf("its history is %s", got)
		}
		if _, err := os.Stat(filepath.Join(n.o.Dir, idFile)); err != nil {
			t.Error(err)
		}
	})
}

func TestA_failed_attempt_is_tried_again_after_its_interval(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		c.run(nil)
		id := c.launch("n1", "echo first >&2; printf 'no \\033[31mspace\\n\\n' >&2; exit 7", func(s *capri.Spec) {
			s.Retry.Failed, s.Retry.FailedIntervalS = 1, 60
		})
		b := c.untilBatch(id, "waiting again", func(b store.BatchRow) bool { return b.State == capri.Waiting && b.Failures == 1 })
		if b.Message != "exit code 7: no [31mspace" && b.Message != "exit code 7: no  [31mspace" {
			t.Errorf("message is %q", b.Message)
		}
		if b.NotBefore != db.Clock.Now()+60_000 {
			t.Errorf("not before %s, want a minute after %s", b.NotBefore, db.Clock.Now())
		}
		c.assign("n1", id)
		b = c.wants(id, capri.Failed, "exit code 7: no")
		if b.Attempt != 2 || b.Failures != 2 {
			t.Errorf("ended at attempt %d with %d failures", b.Attempt, b.Failures)
		}
	})
}

func TestParameters_and_times_reach_the_job_without_being_interpreted(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) { o.Server = "http://capri:8680" })
	evil := "$(id >&2); `id` \"; rm -rf / #'"
	id := c.launch("n1", `printf '%s|' "$PARAM_X" "$CAPRI_TASK" "$CAPRI_BATCH_ID" "$CAPRI_ATTEMPT" "$CAPRI_DATA_START" "$CAPRI_SERVER" "$GREETING" "${PARAM_X:+set}" ${yyyyMMdd}; [ "$HOME" = "$PWD" ] && [ "${PATH%%:*}" = "$PWD" ] && env | cut -d= -f1 | sort | tr '\n' ' '`,
		func(s *capri.Spec) {
			s.Job.Params = map[string]string{"x": evil}
			s.Job.Env = map[string]string{"GREETING": "hé $HOME"}
		})
	b := c.wants(id, capri.Success, "")
	got := n.output(id, 1, false)
	start := b.DataStart.In(time.UTC)
	want := strings.Join([]string{evil, b.Task, strconv.FormatInt(int64(b.ID), 10), capri.Attempt{Batch: id, Number: 1}.String(), start.Format(time.RFC3339), "http://capri:8680", "hé $HOME", "set", start.Format("20060102")}, "|") + "|"
	if !strings.HasPrefix(got, want) {
		t.Fatalf("the job saw %q, want %q", got, want)
	}
	for _, name := range strings.Fields(got[len(want):]) {
		switch {
		case strings.HasPrefix(name, "CAPRI_"), strings.HasPrefix(name, "PARAM_"):
		case name == "PATH", name == "HOME", name == "PWD", name == "GREETING", name == "USER", name == "LOGNAME", name == "OLDPWD", name == "_", name == "SHLVL":
		default:
			t.Errorf("the job's environment has %s", name)
		}
	}
	if said := n.output(id, 1, true); said != "" {
		t.Errorf("stderr is %q", said)
	}
}

func TestJobs_run_as_an_account_that_is_not_root(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run jobs as others")
	}
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	script := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nid -un\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(script), 0o711); err != nil {
		t.Fatal(err)
	}
	other := c.launch("n1", "sleep 60", func(s *capri.Spec) { s.Job.Account = "daemon" })
	c.started(other)

	nobody := c.launch("n1", "id -u; id -un; touch here && echo mine; ls .. 2>/dev/null || echo closed; ls ../"+capri.Attempt{Batch: other, Number: 1}.String()+" 2>/dev/null || echo theirs; cat ../../node.id 2>/dev/null || echo secret", nil)
	c.wants(nobody, capri.Success, "")
	if got := strings.Fields(n.output(nobody, 1, false)); len(got) != 6 || got[0] == "0" || got[1] != "nobody" || got[2] != "mine" || got[3] != "closed" || got[4] != "theirs" || got[5] != "secret" {
		t.Errorf("the job without an account said %q", got)
	}
	daemon := c.launch("n1", "id -un", func(s *capri.Spec) { s.Job.Account = "daemon" })
	c.wants(daemon, capri.Success, "")
	if got := n.output(daemon, 1, false); got != "daemon\n" {
		t.Errorf("the job of daemon said %q", got)
	}
	for _, refused := range []struct{ account, why string }{
		{"root", "jobs never run as root"},
		{"no-such-account", `there is no account "no-such-account" on this machine`},
	} {
		id := c.launch("n1", "id", func(s *capri.Spec) { s.Job.Account = refused.account })
		c.wants(id, capri.Failed, refused.why)
	}

	// A file that the account may not read is not fetched for it, though the worker could.
	c.wants(c.launch("n1", "script.sh", func(s *capri.Spec) { s.Job.Files = []string{"file://" + script} }), capri.Failed, "as account nobody: Permission denied")
	if err := os.Chmod(script, 0o644); err != nil {
		t.Fatal(err)
	}
	id := c.launch("n1", "script.sh", func(s *capri.Spec) { s.Job.Files = []string{script} })
	c.wants(id, capri.Success, "")
	if got := n.output(id, 1, false); got != "nobody\n" {
		t.Errorf("the fetched script said %q", got)
	}
}

func TestPython_runs_a_file_of_the_task_or_the_command_itself(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	script := filepath.Join(dataDir(t)+".d", "etl.py")
	if err := os.MkdirAll(filepath.Dir(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte("import sys; print(sys.argv[1:])\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := c.launch("n1", "etl.py ${yyyy} 'a b' $CAPRI_RUN_NO", func(s *capri.Spec) {
		s.Job.Type, s.Job.Files = "python", []string{script}
	})
	code := c.launch("n1", "import os\nprint(\"it's\", os.environ['CAPRI_RUN_NO'])", func(s *capri.Spec) { s.Job.Type = "python" })
	c.wants(file, capri.Success, "")
	c.wants(code, capri.Success, "")
	if got := n.output(file, 1, false); got != "['2026', 'a b', '0']\n" {
		t.Errorf("the file said %q", got)
	}
	if got := n.output(code, 1, false); got != "it's 0\n" {
		t.Errorf("the code said %q", got)
	}
}

func TestA_command_that_cannot_be_started_says_why(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	c.run(nil)
	for _, row := range []struct {
		sentence, command, want string
		change                  func(*capri.Spec)
	}{
		{"no such program", "no_such_program --x", "exit code 127: /bin/sh: 1: no_such_program: not found", nil},
		{"a file that is not there", "true", "could not be started: fetch /no/such/file: no such file or directory", func(s *capri.Spec) { s.Job.Files = []string{"/no/such/file"} }},
		{"a file system that is not there", "true", "it has none for hdfs://", func(s *capri.Spec) { s.Job.Files = []string{"hdfs:///a/b.sh"} }},
		{"an environment that is too large", "true", "128 KiB", func(s *capri.Spec) { s.Job.Env = map[string]string{"BIG": strings.Repeat("x", 200<<10)} }},
		{"a code that it does not report", "true", "reported no code", func(s *capri.Spec) { s.Check = capri.CheckUserCode }},
		{"a signal", "kill -SEGV $$", "ended by signal 11 (SIGSEGV)", nil},
	} {
		t.Run(strings.ReplaceAll(row.sentence, " ", "_"), func(t *testing.T) {
			c.wants(c.launch("n1", row.command, row.change), capri.Failed, row.want)
		})
	}
}

func TestA_kill_ends_the_job_and_its_children(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		n := c.run(nil)
		id := c.launch("n1", `trap "" TERM; sleep 1000 & echo $!; wait; sleep 1000`, func(s *capri.Spec) { s.Retry.Failed = 3 })
		b := c.started(id)
		var child string
		c.until("the child's pid in the log", func() bool {
			data, _, _, _ := n.ReadLog(c.ctx, b, 1, false, 0, 0)
			child = strings.TrimSpace(string(data))
			return child != ""
		}, func() string { return "" })
		c.kill(id)
		b = c.wants(id, capri.Killed, "killed")
		if b.Failures != 0 {
			t.Errorf("a kill counted as %d failures", b.Failures)
		}
		stat, _ := os.ReadFile("/proc/" + child + "/stat") // a zombie is dead, whoever is slow to reap it
		if len(stat) > 0 && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("shown as killed while its child lives: %s", stat)
		}
	})
}

func TestA_batch_that_is_killed_while_it_prepares_never_starts(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	hang := &hangingFiles{Files: localOnly(), asked: make(chan struct{}, 10)}
	c.run(func(o *Options) { o.Files = hang })
	id := c.waitingFor("/data/in", "true")
	<-hang.asked
	c.kill(id)
	b := c.wants(id, capri.Killed, "killed before it started")
	if b.StartTime != 0 {
		t.Error("it was started")
	}
}

func TestThe_run_timeout_fails_the_attempt(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	a := newAttempt(store.Claimed{Task: &capri.Task{Spec: capri.Spec{Name: "t", Limits: capri.Limits{RunTimeoutMinutes: 3}}}})
	j, err := n.job(a)
	if err != nil || j.RunTimeout != 3*time.Minute {
		t.Fatalf("the shim is told %s, %v", j.RunTimeout, err)
	}
	// Minutes are too long for a test; what the shim does with them is its own test.
	r := n.judge(a, supervisor.Exit{Signal: 15, TimedOut: true}, false)
	if r.Outcome != store.Failed || r.Message != "run time-out after 3 minutes" {
		t.Errorf("it is judged as %v, %q", r.Outcome, r.Message)
	}
}

func TestA_path_that_is_gone_makes_everybody_wait_again(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		c.run(nil)
		dir := t.TempDir()
		mine := c.pathBatch(dir, "true")
		other := c.pathBatch(dir, "true")
		c.meet(dir) // though no flag is there
		c.assign("n1", mine)
		b := c.waiting(mine)
		if b.Unmet != 1 || !strings.Contains(b.Message, dir+"/_SUCCESS is not there any more") {
			t.Errorf("it waits with %d unmet and %q", b.Unmet, b.Message)
		}
		if b := c.batch(other); b.Unmet != 1 {
			t.Error("the other batch that waits for the path is ready still")
		}
		if err := os.WriteFile(filepath.Join(dir, "_SUCCESS"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		c.meet(dir)
		c.assign("n1", mine)
		c.wants(mine, capri.Success, "")
	})
}

func TestA_path_that_cannot_be_looked_at_is_not_called_gone(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	c.run(func(o *Options) { o.Files = &blindFiles{localOnly()} })
	id := c.pathBatch("/data/in", "true")
	c.meet("/data/in")
	c.assign("n1", id)
	b := c.untilBatch(id, "rejected", func(b store.BatchRow) bool { return b.Rejections == 1 })
	if b.Unmet != 0 || b.AvoidNode != "n1" || !strings.Contains(b.Message, "could not be looked at") {
		t.Errorf("it waits with %d unmet, avoids %q, and says %q", b.Unmet, b.AvoidNode, b.Message)
	}
}

func TestAFileSystemThatIsAway_neither_fails_a_batch_nor_throws_its_work_away(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	away := &awayFiles{Files: localOnly()}
	c.run(func(o *Options) { o.Files = away })
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	script := filepath.Join(dir, "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntouch "+dir+"/_SUCCESS\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	task := c.task("job.sh", func(s *capri.Spec) { s.Check, s.Job.Files = capri.CheckOutputPath, []string{script} })
	id := c.batches(task, 1, func(int) capri.Conditions {
		return capri.Conditions{Outputs: []capri.PathCondition{{Path: dir, Flag: "_SUCCESS"}}}
	})[0]
	c.assign("n1", id)
	b := c.untilBatch(id, "rejected", func(b store.BatchRow) bool { return b.Rejections == 1 })
	if b.State != capri.Waiting || !strings.Contains(b.Message, "the name-node is away") {
		t.Errorf("it is %v and says %q", b.State, b.Message)
	}
	c.assign("n1", id)
	c.wants(id, capri.Success, "")
	if n := away.looks.Load(); n != 4 {
		t.Errorf("its output was looked at %d times, want once before, twice in vain, and once more", n)
	}
}

func TestSuccess_by_output_path_needs_a_flag_that_changed(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		n := c.run(nil)
		dir := filepath.Join(t.TempDir(), "out")
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
			os.Chmod(d, 0o777)
		}
		flag := filepath.Join(dir, "_SUCCESS")
		run := func(command string) capri.BatchID {
			task := c.task(command, func(s *capri.Spec) { s.Check = capri.CheckOutputPath })
			id := c.batches(task, 1, func(int) capri.Conditions {
				return capri.Conditions{Outputs: []capri.PathCondition{{Path: dir, Flag: "_SUCCESS"}}}
			})[0]
			c.assign("n1", id)
			return id
		}
		c.wants(run("true"), capri.Failed, "exit code 0, but "+flag+" is not there")
		c.wants(run("touch "+flag), capri.Success, "")
		c.wants(run("true"), capri.Failed, flag+" is still the one from before it ran")
		c.wants(run("rm "+flag+"; echo new > "+flag), capri.Success, "")

		// What it looked like before survives the worker that saw it.
		id := run("read x < " + n.fifo(t) + "; exit 0")
		c.started(id)
		n.stop()
		n.start()
		n.release()
		c.wants(id, capri.Failed, flag+" is still the one from before it ran")
	})
}

func TestA_claim_takes_no_more_than_the_free_slots(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) { o.Node.Slots = 3 })
	gate := n.fifo(t)
	task := c.task("read x < "+gate, nil)
	ids := c.batches(task, 5, nil)
	c.assign("n1", ids...)
	count := func(s capri.State) int {
		n := 0
		for _, id := range ids {
			if b := c.batch(id); b.State == s && (s != capri.Running || b.StartTime != 0) {
				n++
			}
		}
		return n
	}
	c.until("three to run", func() bool { return count(capri.Running) == 3 }, func() string { return fmt.Sprint(count(capri.Running)) })
	if n := count(capri.Assigned); n != 2 {
		t.Errorf("%d are left assigned, want 2", n)
	}
	wide := c.batches(c.task("true", func(s *capri.Spec) { s.Worker.Slots = 4 }), 1, nil)[0]
	n.release()
	for _, id := range ids {
		c.wants(id, capri.Success, "")
	}
	c.assign("n1", wide)
	b := c.untilBatch(wide, "rejected", func(b store.BatchRow) bool { return b.Rejections == 1 })
	if b.State != capri.Waiting || !strings.Contains(b.Message, "it needs 4 slots, and 3 of 3 are free") {
		t.Errorf("it is %s with %q", b.State, b.Message)
	}
}

func TestA_rejection_too_many_fails_the_batch(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	c.run(nil)
	id := c.launch("n1", "true", func(s *capri.Spec) { s.Worker.MemoryMB, s.Retry.Rejected = 1<<30, 0 })
	c.wants(id, capri.Failed, "rejected 1 times: node n1: it needs 1073741824 MB, and the machine has")
}

func TestA_job_goes_on_while_the_worker_is_away_and_its_exit_is_exact(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		n := c.run(nil)
		meanwhile := c.launch("n1", "read x < "+n.fifo(t)+"; echo done; exit 42", nil)
		after := c.launch("n1", "read x < "+n.fifo(t)+"; exit 43", nil)
		c.started(meanwhile)
		c.started(after)
		n.stop()
		if b := c.batch(after); b.State != capri.Running {
			t.Fatalf("after the stop it is %s", b.State)
		}
		n.releaseOnly(0)
		n.start()
		c.wants(meanwhile, capri.Failed, "exit code 42")
		if got := n.output(meanwhile, 1, false); got != "done\n" {
			t.Errorf("its log is %q", got)
		}
		if b := c.batch(after); b.State != capri.Running || b.Attempt != 1 {
			t.Errorf("the other is %s, attempt %d", b.State, b.Attempt)
		}
		n.releaseOnly(1)
		c.wants(after, capri.Failed, "exit code 43")
	})
}

func TestA_stop_gives_back_what_only_prepares(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	hang := &hangingFiles{Files: localOnly(), asked: make(chan struct{}, 10)}
	n := c.run(func(o *Options) { o.Files = hang })
	id := c.waitingFor("/data/in", "true")
	<-hang.asked
	began := time.Now()
	n.stop()
	if took := time.Since(began); took >= stopWithin {
		t.Errorf("the stop took %s", took)
	}
	if b := c.batch(id); b.State != capri.Waiting || b.Rejections != 0 || b.Unmet != 0 {
		t.Errorf("it is %s with %d rejections and %d unmet", b.State, b.Rejections, b.Unmet)
	}
}

func TestA_lost_shim_is_reported_and_the_batch_tried_again(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		n := c.run(nil)
		alive := c.launch("n1", "sleep 1000", nil)
		c.started(alive)
		c.until("the shim to have the job", func() bool { return n.table.jobs() == 1 }, func() string { return "" })
		c.until("the shim to die", func() bool { n.retire(); return c.batch(alive).Losses == 1 }, func() string { return c.batch(alive).Message })
		if b := c.waiting(alive); !strings.Contains(b.Message, "lost its shim") || b.Failures != 0 {
			t.Errorf("it waits with %q and %d failures", b.Message, b.Failures)
		}
		// And while the worker is away.
		c.assign("n1", alive)
		c.started(alive)
		c.until("the shim to have the job", func() bool { return n.table.jobs() == 1 }, func() string { return "" })
		n.stop()
		n.retire()
		os.RemoveAll(filepath.Join(n.o.Dir, shimDir)) // not even its journal
		n.start()
		c.untilBatch(alive, "lost twice", func(b store.BatchRow) bool { return b.State == capri.Waiting && b.Losses == 2 })
	})
}

func TestNothing_is_lost_while_the_database_is_away(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		away := &awayDatabase{Database: db.Store}
		n := c.run(func(o *Options) { o.Store = away })
		ids := []capri.BatchID{}
		for i := range 3 {
			ids = append(ids, c.launch("n1", fmt.Sprintf("read x < %s; exit %d", n.fifo(t), i), nil))
			c.started(ids[i])
		}
		away.set(true)
		n.releaseOnly(0)
		n.releaseOnly(1)
		before := away.asked.Load()
		c.until("the worker to try again", func() bool { return away.asked.Load() > before+10 }, func() string { return fmt.Sprint(away.asked.Load() - before) })
		if b := c.batch(ids[1]); b.State != capri.Running {
			t.Fatalf("it is %s while the database is away", b.State)
		}
		// Once, or twice if a call that was under way came back well after the first had failed.
		if said := n.logged.Count("the database does not take"); said < 1 || said > 2 {
			t.Errorf("it was logged %d times that the database is away", said)
		}
		away.set(false)
		c.wants(ids[0], capri.Success, "")
		c.wants(ids[1], capri.Failed, "exit code 1")

		// Stopped while the database is away: the exit waits for the next life.
		away.set(true)
		n.releaseOnly(2)
		began := time.Now()
		n.stop()
		if took := time.Since(began); took > stopWithin+20*time.Second {
			t.Errorf("the stop took %s", took)
		}
		away.set(false)
		n.start()
		c.wants(ids[2], capri.Failed, "exit code 2")
	})
}

func TestA_claim_or_start_whose_answer_was_lost_is_found(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	forget := &forgettingDatabase{Database: c.db.Store}
	c.run(func(o *Options) { o.Store = forget })
	task := c.task("true", nil)
	ids := c.batches(task, 2, nil)
	forget.claim.Store(true)
	c.assign("n1", ids[0])
	if b := c.waiting(ids[0]); !strings.Contains(b.Message, "did not hear that it had claimed it") {
		t.Errorf("it waits with %q", b.Message)
	}
	forget.start.Store(true)
	c.assign("n1", ids[1])
	b := c.untilBatch(ids[1], "lost", func(b store.BatchRow) bool { return b.State == capri.Waiting && b.Losses == 1 })
	if !strings.Contains(b.Message, "did not hear that it had started it") {
		t.Errorf("it waits with %q", b.Message)
	}
}

func TestA_worker_whose_registration_was_taken_ends_its_jobs_and_registers_anew(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	job := c.launch("n1", "sleep 1000", nil)
	c.started(job)
	c.until("the shim to have the job", func() bool { return n.table.jobs() == 1 }, func() string { return "" })
	nodes, err := c.db.Store.Nodes(c.ctx)
	if err != nil || len(nodes) != 1 {
		t.Fatal(nodes, err)
	}
	taken := nodes[0]
	taken.BootID = "somebody else"
	if err := c.db.Store.RegisterNode(c.ctx, taken, n.directory.ID()); err != nil {
		t.Fatal(err)
	}
	id := c.launch("n1", "true", nil)
	c.wants(id, capri.Success, "")
	if n.logged.Count("the registration is not ours any more") == 0 {
		t.Error("it did not say that its registration was taken")
	}
	b := c.waiting(job)
	if b.Losses != 1 || b.Failures != 0 || !strings.Contains(b.Message, "lease ran out") {
		t.Errorf("its job is %s with %d losses, %d failures and %q", b.State, b.Losses, b.Failures, b.Message)
	}
	// What the database has given away while the registration stayed ours is ended here, too.
	c.assign("n1", job)
	c.started(job)
	c.until("the shim to have the job again", func() bool { return n.table.jobs() == 1 }, func() string { return "" })
	if _, err := c.db.Store.FinishAttempts(c.ctx, "n1", []store.Result{{Attempt: capri.Attempt{Batch: job, Number: 2}, Outcome: store.Lost}}); err != nil {
		t.Fatal(err)
	}
	c.until("the job that was given away to be gone", func() bool { return n.table.jobs() == 0 }, func() string { return n.logged.String() })
}

func TestA_second_worker_on_the_directory_is_refused(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	_, err := New(n.o)
	if want := fmt.Sprintf("the data directory %s is in use by process %d", n.o.Dir, os.Getpid()); !errors.Is(err, capri.ErrConflict) || !strings.Contains(err.Error(), want) {
		t.Errorf("the second was told %v, want %q", err, want)
	}
	n.stop()
	id := n.directory.ID()
	again, err := New(n.o)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.directory.ID() != id {
		t.Error("the directory's id changed")
	}
}

func TestA_directory_with_running_jobs_is_not_started_under_another_name(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	job := c.launch("n1", "sleep 1000", nil)
	c.started(job)
	c.until("the shim to have the job", func() bool { return n.table.jobs() == 1 }, func() string { return "" })
	n.stop()
	o := n.o
	o.Node.Name = "n2"
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(c.ctx); !errors.Is(err, capri.ErrConflict) || !strings.Contains(err.Error(), "is node n1, which has 1 jobs running") {
		t.Errorf("it said %v", err)
	}
}

func TestA_directory_that_cannot_be_used_says_why(t *testing.T) {
	if _, err := OpenDirectory("/proc/capri"); err == nil {
		t.Error("a directory below /proc was taken")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDirectory(file); err == nil || !strings.Contains(err.Error(), "data directory") {
		t.Errorf("a file was taken: %v", err)
	}
}

func TestA_huge_log_without_a_newline_is_read_in_slices(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) { o.Secret = []byte("s") })
	id := c.launch("n1", "head -c 100000000 /dev/zero | tr '\\0' x", nil)
	b := c.wants(id, capri.Success, "")
	c.until("the log to be done", func() bool { _, _, complete, _ := n.ReadLog(c.ctx, b, 1, false, 100_000_000, 0); return complete }, func() string { return "" })
	data, next, complete, err := n.ReadLog(c.ctx, b, 1, false, 99_999_000, 600)
	if err != nil || len(data) != 600 || next != 99_999_600 || complete {
		t.Fatalf("%d bytes, next %d, complete %v, %v", len(data), next, complete, err)
	}
	if data, next, complete, err = n.ReadLog(c.ctx, b, 1, false, next, 0); err != nil || len(data) != 400 || next != 100_000_000 || !complete {
		t.Fatalf("%d bytes, next %d, complete %v, %v", len(data), next, complete, err)
	}

	server := httptest.NewServer(n.LogHandler())
	defer server.Close()
	host, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	p, _ := strconv.Atoi(port)
	remote := &RemoteLogs{Secret: []byte("s"), Node: func(context.Context, string) (capri.Node, error) { return capri.Node{IP: host, Port: p}, nil }}
	data, next, complete, err = remote.ReadLog(c.ctx, "n1", b, 1, false, -1000, 0)
	if err != nil || len(data) != 1000 || next != 100_000_000 || !complete {
		t.Fatalf("over the network: %d bytes, next %d, complete %v, %v", len(data), next, complete, err)
	}
	if _, _, _, err := remote.ReadLog(c.ctx, "n1", b, 9, false, 0, 0); !errors.Is(err, capri.ErrNotFound) {
		t.Errorf("an attempt that never was: %v", err)
	}
	if _, _, _, err := remote.ReadLog(c.ctx, "n2", b, 1, false, 0, 0); !errors.Is(err, capri.ErrForbidden) {
		t.Errorf("with another node's token: %v", err)
	}
	if _, _, _, err := (&RemoteLogs{Node: remote.Node}).ReadLog(c.ctx, "n1", b, 1, false, 0, 0); !errors.Is(err, capri.ErrForbidden) {
		t.Errorf("without the secret: %v", err)
	}
}

func TestLogs_go_over_TLS_by_a_certificate_that_names_the_node(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) { o.Secret = []byte("s") })
	b := c.wants(c.launch("n1", "echo hello", nil), capri.Success, "")
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	read := func(names string, trusted *testenv.CA) (string, error) {
		t.Helper()
		cert, key := ca.Issue(t, "node", names)
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(n.LogHandler())
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		defer server.Close()
		at := server.Listener.Addr().(*net.TCPAddr)
		remote := &RemoteLogs{Secret: []byte("s"), Node: func(context.Context, string) (capri.Node, error) {
			return capri.Node{IP: at.IP.String(), Port: at.Port}, nil
		}}
		if trusted != nil {
			if remote.TLS, err = certs.Client(certs.Files{CA: trusted.File}); err != nil {
				t.Fatal(err)
			}
		}
		data, _, _, err := remote.ReadLog(c.ctx, "n1", b, 1, false, 0, 0)
		return string(data), err
	}
	if data, err := read("n1", ca); err != nil || data != "hello\n" {
		t.Fatalf("%q, %v", data, err)
	}
	for what, x := range map[string]struct {
		names   string
		trusted *testenv.CA
		says    string
	}{"of another node": {"n2", ca, "n2"}, "of another CA": {"n1", other, "authority"}, "read in plain HTTP": {"n1", nil, "tls.ca"}} {
		if _, err := read(x.names, x.trusted); !errors.Is(err, capri.ErrUnavailable) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestMany_batches_share_their_statements(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		count := &awayDatabase{Database: db.Store}
		c.run(func(o *Options) { o.Store, o.Node.Slots, o.PollInterval = count, 200, 10*time.Second })
		ids := c.batches(c.task("true", nil), 200, nil)
		c.assign("n1", ids...)
		for _, id := range ids {
			c.wants(id, capri.Success, "")
		}
		if n := count.asked.Load(); n > 150 {
			t.Errorf("200 batches took %d operations of the store", n)
		}
	})
}

func TestStopping_and_starting_at_any_moment_runs_no_attempt_twice_and_loses_none(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		c := newCluster(t, db)
		n := c.run(func(o *Options) { o.Node.Slots = 20 })
		ran := filepath.Join(filepath.Dir(dataDir(t)), "ran")
		if err := os.WriteFile(ran, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		os.Chmod(ran, 0o666)
		ids := c.batches(c.task("echo $CAPRI_ATTEMPT >> "+ran+"; sleep 0.0$((CAPRI_BATCH_ID % 9))", nil), 120, nil)
		place := func() (left int) {
			var ready []capri.BatchID
			for _, id := range ids {
				switch b := c.batch(id); {
				case b.State == capri.Waiting:
					ready = append(ready, id)
					left++
				case b.State != capri.Finished:
					left++
				}
			}
			if len(ready) > 0 {
				c.assign("n1", ready...)
			}
			return left
		}
		place()
		for i := range 12 {
			for end := time.Now().Add(time.Duration(i*7%40) * time.Millisecond); time.Now().Before(end); {
				place()
			}
			n.stop()
			n.start()
		}
		left := 0
		c.until("all to end", func() bool { left = place(); return left == 0 }, func() string { return fmt.Sprint(left, " left") })
		b, err := os.ReadFile(ran)
		if err != nil {
			t.Fatal(err)
		}
		last := map[string]bool{}
		for _, a := range strings.Fields(string(b)) {
			if last[a] {
				t.Errorf("attempt %s ran twice", a)
			}
			last[a] = true
		}
		for _, id := range ids {
			row := c.wants(id, capri.Success, "")
			if a := (capri.Attempt{Batch: id, Number: row.Attempt}).String(); !last[a] {
				t.Errorf("attempt %s succeeded and never ran", a)
			}
			if row.Losses > 0 {
				events, err := db.Store.Events(c.ctx, id)
				t.Errorf("batch %d was lost %d times by stops in order: %+v (%v)", id, row.Losses, events, err)
			}
			if said := n.output(id, row.Attempt, true); said != "" { // waits for the log to be complete, too
				t.Errorf("attempt %d of batch %d said %q", row.Attempt, id, said)
			}
		}
		for _, in := range []string{jobDir, preparedDir} {
			var left []string
			c.until("nothing to be left in "+in, func() bool { left, _ = filepath.Glob(filepath.Join(n.o.Dir, in, "[0-9]*")); return len(left) == 0 },
				func() string { return strings.Join(left, " ") })
		}
	})
}
