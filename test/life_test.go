package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"capri"
	"capri/internal/cluster"
	"capri/internal/testenv"
	"capri/sql/sqltest"
)

func id(b batch) string { return strconv.FormatInt(int64(b.ID), 10) }

func TestA_day_of_work_by_the_command_line_alone(t *testing.T) {
	each(t, 8, func(t *testing.T, in *installation) {
		in.apply(`tasks:
  - {name: hello, group: g, period: day, job: {command: "echo hello ${yyyyMMdd}; echo oops >&2"}, valid: {from: "2020-01-01"}}
  - {name: long, group: g, period: day, job: {command: "echo begun; sleep 1000"}, valid: {from: "2020-01-01"}}
  - {name: after, group: g, period: day, job: {command: "true"}, parents: [{task: hello}, {task: long}], valid: {from: "2020-01-01"}}
  - {name: fails, group: g, period: day, job: {command: "exit 3"}, valid: {from: "2020-01-01"}}
`)
		var preview struct{ Items []struct{ Action string } }
		in.capri("cold-start", "--period", "day", "--by-data", "--from", lately, "--to", lately, "--preview", "-o", "json").json(&preview)
		if len(preview.Items) != 4 || len(in.batches()) != 0 {
			t.Fatalf("the preview has %d items, and %d batches were made", len(preview.Items), len(in.batches()))
		}
		if n := in.coldStart("day", lately); n != 4 {
			t.Fatalf("%d batches were made", n)
		}
		hello := in.ended("hello", "success")
		if got, want := in.capri("logs", id(hello)).ok().out, "hello "+strings.ReplaceAll(lately, "-", "")+"\n"; got != want {
			t.Errorf("the log is %q, want %q", got, want)
		}
		in.capri("logs", id(hello), "--stderr").ends(0, "oops")
		in.ended("fails", "failed")

		long := in.runs("long")
		wait(t, patience, func() string {
			if in.capri("logs", id(long)).ok().out == "begun\n" {
				return ""
			}
			return "the log of a job that runs"
		})
		in.capri("why", id(in.one("after", "waits", func(b batch) bool { return b.State == "waiting" && b.Unmet == 1 }))).ends(0, "long")
		in.capri("kill", id(long)).ends(2, "--yes")
		in.capri("kill", id(long), "--yes", "--reason", "not needed").ok()
		in.ended("long", "killed")
		in.capri("batch", "show", id(long)).ends(0, "not needed")
		if got := in.batches("--state", "success"); len(got) != 1 || got[0].ID != hello.ID {
			t.Errorf("batch list --state success gives %+v", got)
		}

		in.capri("execute", "hello").ok()
		in.capri("doctor").ok()
		in.capri("service", "list").ends(0, "dispatch")
		in.capri("node", "list").ends(0, "here")
		in.capri("action", "list").ends(0, "kill")

		in.capri("batch", "list", "--limit", "-1").ends(2, "--limit")
		in.capri("batch", "lits").ends(2, "list")
		in.capri("task", "show", "nothing").ends(3, "nothing")
		in.capri("logs", "999999").ends(3, "999999")
		in.capri("cold-start", "--period", "day", "--from", "2999-01-01", "--to", "2999-01-02").ends(2, "not later than now")
		bad := filepath.Join(in.home, "bad.yaml")
		if err := os.WriteFile(bad, []byte("tasks:\n  - {name: x, period: daily, job: {command: a}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		in.capri("task", "apply", "-f", bad).ends(2, "bad.yaml:2")
		in.apply("tasks:\n  - {name: held, period: day, job: {command: sleep 1000}}\n")
		in.capri("execute", "held").ok()
		in.capri("execute", "held").ends(4, "held")
		run(t, append(in.env[:len(in.env):len(in.env)], "CAPRI_SERVER="+in.server, "CAPRI_TOKEN=wrong"), "batch", "list").ends(4, "")
		run(t, environment(in.home, "CAPRI_SERVER=http://127.0.0.1:1", "CAPRI_TOKEN=x"), "batch", "list").ends(5, "127.0.0.1:1")
		run(t, environment(in.home, "CAPRI_SERVER=http://127.0.0.1:1", "CAPRI_TOKEN=x"), "doctor").ends(1, "127.0.0.1:1")
		in.stop()
	})
}

func TestA_stop_and_a_start_leave_running_jobs_alone(t *testing.T) {
	each(t, 8, func(t *testing.T, in *installation) {
		dir := cluster.OpenDir(t)
		in.apply(fmt.Sprintf(`tasks:
  - {name: long, period: day, job: {command: "echo x >>%[1]s/long; until [ -e %[1]s/go ]; do sleep 0.05; done"}, valid: {from: "2020-01-01"}}
  - {name: short, period: day, job: {command: "echo x >>%[1]s/short; until [ -e %[1]s/alone ]; do sleep 0.05; done; touch %[1]s/done"}, valid: {from: "2020-01-01"}}
  - {name: after, period: day, job: {command: "true"}, parents: [{task: long}, {task: short}], valid: {from: "2020-01-01"}}
`, dir))
		in.coldStart("day", lately)
		in.runs("long")
		in.runs("short")
		in.stop()
		if err := os.WriteFile(dir+"/alone", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		wait(t, patience, func() string {
			if _, err := os.Stat(dir + "/done"); err != nil {
				return "the short job's end while nothing of Capri but the shim is there"
			}
			return ""
		})
		in.start()
		in.ended("short", "success")
		if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		in.ended("after", "success")
		for _, name := range []string{"long", "short"} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "x\n" {
				t.Errorf("%s began %q (%v), want once", name, text, err)
			}
			if b := in.ended(name, "success"); b.Attempt != 1 {
				t.Errorf("%s took %d attempts", name, b.Attempt)
			}
		}
		in.stop()
	})
}

func TestKill_9_of_a_standalone_in_the_middle_of_a_pipeline_loses_nothing(t *testing.T) {
	t.Parallel()
	const slots = 16
	dir := testenv.Workloads(t)
	in := standalone(t, slots)
	r := newReplay(t, in, dir, "montage-dss10", slots, 100) // half a minute, or a busy machine never sees its middle
	r.begin()
	var running []batch
	wait(t, patience, func() string {
		done := len(in.batches("--state", "success"))
		running = in.batches("--state", "running")
		if done < 150 || len(running) < slots/2 {
			return fmt.Sprintf("the middle: %d have ended and %d run", done, len(running))
		}
		return ""
	})
	in.parts[0].signal(syscall.SIGKILL)
	in.start()
	r.await(5 * time.Minute)

	day := r.load.Day.Format(time.DateOnly)
	again, once := map[capri.BatchID]bool{}, map[capri.BatchID]bool{}
	for _, b := range in.batches("--by-data", "--from", day, "--to", day) {
		if b.Attempt == 1 {
			once[b.ID] = true
		} else {
			again[b.ID] = true
		}
	}
	adopted := 0
	for _, b := range running {
		if once[b.ID] {
			adopted++
		}
	}
	t.Logf("of %d batches seen running before the kill %d ended in the attempt they were in; %d of all took another attempt", len(running), adopted, len(again))
	if adopted == 0 {
		t.Error("no job outlived its standalone")
	}
	for _, f := range r.figures(again) {
		t.Log(f)
	}
	in.stop()
}

func TestOne_data_directory_has_one_standalone(t *testing.T) {
	in := standalone(t, 2)
	second := launch(t, in.env, "standalone", "--listen", "127.0.0.1:0")
	if c := second.code(); c != 4 || !strings.Contains(second.log.String(), "in use") {
		t.Errorf("a second one ends with code %d: %s", c, second.log)
	}
	in.capri("status").ok() // the first goes on
	in.stop()
	t.Run("nor has it another business zone", func(t *testing.T) {
		p := launch(t, append(in.env[:len(in.env):len(in.env)], "CAPRI_TIMEZONE=Asia/Shanghai"), "standalone", "--listen", "127.0.0.1:0")
		if c := p.code(); c != 4 || !strings.Contains(p.log.String(), "Asia/Shanghai") {
			t.Errorf("it ends with code %d: %s", c, p.log)
		}
	})
}

func TestA_data_directory_that_cannot_be_written_to_is_named(t *testing.T) {
	for _, made := range []bool{true, false} {
		t.Run(fmt.Sprintf("made=%t", made), func(t *testing.T) {
			home := cluster.OpenDir(t)
			data := filepath.Join(home, "data")
			if made {
				if err := os.Mkdir(data, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, dir := range []string{data, home} {
				if err := os.Chmod(dir, 0o555); err != nil && made {
					t.Fatal(err)
				}
			}
			defer os.Chmod(home, 0o755)
			p := unprivileged(t, environment("/", "CAPRI_DATA="+data), "standalone", "--listen", "127.0.0.1:0")
			if c := p.code(); c == 0 || !strings.Contains(p.log.String(), data) || !strings.Contains(p.log.String(), "permission denied") {
				t.Errorf("it ends with code %d: %s", c, p.log)
			}
			if took := time.Since(p.began); took > 20*time.Second {
				t.Errorf("that took %s", took)
			}
		})
	}
}

func TestA_newer_schema_is_refused_if_it_says_so(t *testing.T) {
	each(t, 2, func(t *testing.T, in *installation) {
		in.stop()
		set := func(text string) {
			t.Helper()
			if _, err := in.store().DB().Exec(text); err != nil {
				t.Fatal(err)
			}
		}
		set("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)")
		set("ALTER TABLE task_work ADD COLUMN of_tomorrow INT NOT NULL DEFAULT 0")
		set("CREATE TABLE of_tomorrow (id INT NOT NULL PRIMARY KEY)")
		in.start() // a newer schema that says nothing is one that only added: upgrades roll
		in.apply("tasks:\n  - {name: today, period: day, job: {command: \"true\"}, valid: {from: \"2020-01-01\"}}\n")
		in.coldStart("day", lately)
		in.ended("today", "success")
		in.stop()
		set("UPDATE dic_data SET value = '99999' WHERE name = 'min_binary'")
		command := "standalone"
		if in.kind == "mysql" {
			command = "master"
		}
		p := launch(t, in.env, command, "--listen", "127.0.0.1:0")
		if c := p.code(); c != 4 || !strings.Contains(p.log.String(), "newer capri") {
			t.Errorf("capri %s ends with code %d: %s", command, c, p.log)
		}
	})
}

func TestAn_older_schema_is_refused_and_the_way_out_named(t *testing.T) {
	dsn := sqltest.EmptyMySQL(t).Options.DSN
	home := cluster.OpenDir(t)
	for _, command := range []string{"master", "worker"} {
		p := launch(t, environment(home, "CAPRI_DATABASE_DSN="+dsn, "CAPRI_DATA="+filepath.Join(home, command)), command, "--listen", "127.0.0.1:0")
		if c := p.code(); c != 4 || !strings.Contains(p.log.String(), "capri migrate up") {
			t.Errorf("capri %s ends with code %d: %s", command, c, p.log)
		}
	}
}

// Design §5.7: the database may go at any time.
func TestThe_database_may_be_away_at_the_start_and_later(t *testing.T) {
	t.Parallel()
	dsn := sqltest.EmptyMySQL(t).Options.DSN
	home := cluster.OpenDir(t)
	run(t, environment(home, "CAPRI_DATABASE_DSN="+dsn), "migrate", "up").ok()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, config.Addr)
	config.Addr = p.address
	env := func(name string) []string {
		return environment(home, "CAPRI_DATABASE_DSN="+config.FormatDSN(), "CAPRI_NODE_SLOTS=4", "CAPRI_DATA="+filepath.Join(home, name))
	}
	t.Cleanup(func() { cluster.KillShims(filepath.Join(home, "worker")) })
	m := launch(t, env("master"), "master", "--listen", "127.0.0.1:0")
	w := launch(t, env("worker"), "worker", "--node", "here", "--listen", "127.0.0.1:0")
	m.says("waiting for the database")
	w.says("waiting for the database")
	p.up()
	in := &installation{t: t, home: home, env: env("master"), server: m.address(), key: filepath.Join(home, "master", "admin.key"), parts: []*program{m, w}}
	w.says("worker runs")

	dir := cluster.OpenDir(t)
	in.beginPair(dir)
	p.down()
	in.capri("batch", "list").ends(5, "")
	in.endFirst(dir)
	if !m.has(false) || !w.has(false) {
		t.Fatal("a process ended because the database was away")
	}
	p.up()
	in.endPair(dir)
	t.Run("and a stop is quick without it", func(t *testing.T) {
		p.down()
		in.stop()
	})
}

func TestJSON_of_every_list_is_a_list_when_it_is_empty(t *testing.T) {
	in := standalone(t, 2)
	for _, args := range [][]string{{"batch", "list"}, {"task", "list"}, {"alert", "list"}, {"user", "list"}, {"department", "list"}, {"account", "list"}, {"service", "list"}, {"node", "list"}, {"app", "list"}, {"action", "list"}} {
		r := in.capri(append(args, "-o", "json")...).ok()
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(r.out), &list); err != nil || list == nil {
			t.Errorf("%s: %v in %s", r.line, err, r.out)
		}
	}
	in.stop()
}
