package job

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"capri"
	"capri/calendar"
	"capri/worker/job/runner"
)

// The test binary is `capri job`, too, so that the harness needs no build of the program.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "job" {
		ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		os.Exit(runner.Run(ctx, os.Stdout, os.Stderr, func(string) {}))
	}
	os.Exit(m.Run())
}

// bench is a worker's side of a job: its clients and the job's directory.
type bench struct {
	t      *testing.T
	dir    string // of clients
	path   string // where a job finds programs
	allow  []string
	former string // what the attempt before had started
	stdout bytes.Buffer
	stderr bytes.Buffer
}

func newBench(t *testing.T) *bench {
	dir := t.TempDir()
	return &bench{t: t, dir: dir, path: dir + ":/usr/local/bin:/usr/bin:/bin"}
}

// script puts a client of that name on the worker.
func (b *bench) script(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) maker() *Maker {
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	return NewMaker(MakerOptions{Calendar: calendar.New(time.UTC), Path: b.path, PassEnv: []string{"LANG=C.UTF-8", "GORACE=atexit_sleep_ms=0"}, Clients: Clients{Path: b.path}, Program: self, HTTPAllow: b.allow})
}

// start starts a job as the shim does: a session of its own, no input, nothing but its environment.
func (b *bench) start(j capri.Job, stdout, stderr io.Writer) *exec.Cmd {
	b.t.Helper()
	dir := b.t.TempDir()
	for _, path := range j.Files {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o755)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	start := capri.InstantOf(time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC))
	p, err := b.maker().Make(&capri.Task{ID: 1, Version: 1, Spec: capri.Spec{Name: "t", Job: j}},
		&capri.Batch{ID: 5, BatchNo: "20261120", Attempt: 2, ApplicationID: b.former, DataStart: start, DataEnd: start.Add(24 * time.Hour), ScheduleTime: start}, dir, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = p.Env, dir, stdout, stderr, time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return cmd
}

func (b *bench) run(j capri.Job) (code int) {
	b.t.Helper()
	cmd := b.start(j, &b.stdout, &b.stderr)
	cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// The clients that stand in for those that a test cannot have: they print the parameter x as they were given it, end
// with 7, or sleep. Hive's is told it as a variable; the others see it as their last argument.
const recorded = `
for a in "$@"; do
  case $a in x=*) x=${a#x=};; *) last=$a;; esac
done
case ${0##*/} in hive) last=$x;; esac
case $PARAM_MODE in
  fail) echo "Error: line 1: it is wrong" >&2; exit 7;;
  sleep) echo up; sleep 100;;
  *) printf %s "$last";;
esac
`

const pythonFile = `import os, sys, time
mode = os.environ["PARAM_MODE"]
if mode == "fail": sys.exit(7)
if mode == "sleep":
    print("up")
    time.sleep(100)
sys.stdout.buffer.write(os.fsencode(sys.argv[1]))
`

const javaClass = `package a;
public class Echo {
  public static void main(String[] args) throws Exception {
    String mode = System.getenv("PARAM_MODE");
    if (mode.equals("fail")) System.exit(7);
    if (mode.equals("sleep")) { System.out.println("up"); Thread.sleep(100000); }
    System.out.write(args[0].getBytes("UTF-8"));
    System.out.flush();
  }
}
`

// echo makes the jar once: javac takes seconds.
var echo = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "capri-job-test")
	if err != nil {
		return "", err
	}
	jar := filepath.Join(dir, "echo.jar")
	source := filepath.Join(dir, "Echo.java")
	if err := os.WriteFile(source, []byte(javaClass), 0o600); err != nil {
		return "", err
	}
	for _, argv := range [][]string{{"javac", "-d", dir, source}, {"jar", "--create", "--file", jar, "--main-class", "a.Echo", "-C", dir, "a"}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", errors.New(argv[0] + ": " + string(out))
		}
	}
	return jar, nil
})

// candidate is a type with a job of it that prints the parameter X, fails or sleeps as PARAM_MODE says.
type candidate struct {
	name string
	job  func(t *testing.T, b *bench, value string) capri.Job
	fail int                   // the exit code of its failure; 0: 7
	got  func(b *bench) string // what arrived; nil: what it printed
	up   func()                // waits until it runs; nil: it prints "up"
}

func fileOf(t *testing.T, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func candidates(t *testing.T) []candidate {
	jar := func(t *testing.T) string {
		path, err := echo()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	withClient := func(name string, j capri.Job) func(*testing.T, *bench, string) capri.Job {
		return func(_ *testing.T, b *bench, _ string) capri.Job {
			b.script(name, recorded)
			return j
		}
	}
	var seen string // what the called server was sent
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = r.URL.Query().Get("x")
		mu.Unlock()
		switch r.URL.Query().Get("mode") {
		case "fail":
			w.WriteHeader(http.StatusInternalServerError)
		case "sleep":
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	return []candidate{
		{name: "shell", job: func(*testing.T, *bench, string) capri.Job {
			return capri.Job{Type: "shell", Command: `case $PARAM_MODE in fail) exit 7;; sleep) echo up; sleep 100;; esac; printf %s "$PARAM_X"`}
		}},
		{name: "command", job: func(*testing.T, *bench, string) capri.Job { // the alias
			return capri.Job{Type: "command", Command: `case $PARAM_MODE in fail) exit 7;; sleep) echo up; sleep 100;; esac; printf %s "$PARAM_X"`}
		}},
		{name: "python, a program", job: func(*testing.T, *bench, string) capri.Job {
			return capri.Job{Type: "python", Command: "import sys, os; sys.argv = ['', os.environ['PARAM_X']]\n" + pythonFile, Options: []string{"-X", "utf8"}}
		}},
		{name: "python, a file", job: func(t *testing.T, _ *bench, _ string) capri.Job {
			return capri.Job{Type: "python", Command: ` ./job.py "$PARAM_X"`, Files: []string{fileOf(t, "job.py", pythonFile)}}
		}},
		{name: "java, a jar", job: func(t *testing.T, _ *bench, _ string) capri.Job {
			return capri.Job{Type: "java", Command: `echo.jar "$PARAM_X"`, Files: []string{jar(t)}, Options: []string{"-Xmx64m", "-Dname=a b $HOME"}}
		}},
		{name: "java, a class", job: func(t *testing.T, _ *bench, _ string) capri.Job {
			return capri.Job{Type: "java", Command: `echo.jar "$PARAM_X"`, MainClass: "a.Echo", Files: []string{jar(t)}}
		}},
		{name: "http", fail: 1, got: func(*bench) string { mu.Lock(); defer mu.Unlock(); return seen },
			job: func(*testing.T, *bench, string) capri.Job {
				return capri.Job{Type: "http", Command: server.URL + "/${yyyy}"}
			},
			up: func() {
				for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
					mu.Lock()
					there := seen == "waits"
					mu.Unlock()
					if there {
						return
					}
				}
			}},
		{name: "hive, a recorded client", job: withClient("hive", capri.Job{Type: "hive", Command: "SELECT '${hivevar:x}'"})},
		{name: "spark, a recorded client", job: withClient("spark-submit", capri.Job{Type: "spark", Command: `job.py "$PARAM_X"`, Options: []string{"--master", "yarn"}})},
		{name: "spark, a class, a recorded client", job: withClient("spark-submit", capri.Job{Type: "spark", Command: `job.jar "$PARAM_X"`, MainClass: "a.B$C"})},
		{name: "mapreduce, a recorded client", job: withClient("hadoop", capri.Job{Type: "mapreduce", Command: `job.jar "$PARAM_X"`, MainClass: "a.B", Options: []string{"-D", "a=b c"}})},
		{name: "presto, a recorded client", job: func(_ *testing.T, b *bench, value string) capri.Job {
			b.script("trino", recorded)
			return capri.Job{Type: "presto", Command: value} // no statement sees parameters, so the statement is the data
		}, got: func(b *bench) string { return strings.TrimPrefix(b.stdout.String(), "\n") }},
	}
}

// Each type passes all of these.
func TestEach_type(t *testing.T) {
	values := []string{
		"$(id)", "`id`; exit 3", `"'\"' "`, "two\nlines\n", "--", "-rf", "日本語 é \u202e", " blanks  ", "a%41&b=c#d?e", "$PARAM_MODE ${HOME} $0 $@ \\", "*",
		strings.Repeat("long ", 12<<10), "",
	}
	for _, c := range candidates(t) {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			job := func(t *testing.T, mode, value string) (*bench, capri.Job) {
				b := newBench(t)
				j := c.job(t, b, value)
				j.Params = map[string]string{"mode": mode, "x": value}
				return b, j
			}
			t.Run("sees_its_parameters_as_they_are", func(t *testing.T) {
				some := values
				if !strings.HasPrefix(c.name, "shell") { // other processes take their time: one value with all of it
					some = append([]string{strings.Join(values[:11], "\n"), "--"}, values[11:]...)
				}
				for _, value := range some {
					if strings.HasPrefix(c.name, "presto") && value == "" {
						continue // a definition without a command is refused
					}
					b, j := job(t, "echo", value)
					if code := b.run(j); code != 0 {
						t.Fatalf("%.40q: exit code %d, %s", value, code, b.stderr.String())
					}
					got := b.stdout.String()
					if c.got != nil {
						got = c.got(b)
					}
					if got != value {
						t.Errorf("%.80q arrived as %.80q", value, got)
					}
				}
			})
			t.Run("gives_its_exit_code", func(t *testing.T) {
				b, j := job(t, "fail", "x")
				if code, want := b.run(j), cmp.Or(c.fail, 7); code != want {
					t.Errorf("exit code %d, want %d; it said %s", code, want, b.stderr.String())
				}
			})
			t.Run("dies_when_its_group_is_told_to", func(t *testing.T) {
				b, j := job(t, "sleep", "waits")
				up := filepath.Join(t.TempDir(), "out")
				out, err := os.OpenFile(up, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				defer out.Close()
				cmd := b.start(j, out, out)
				if c.up != nil {
					c.up()
				} else {
					untilText(t, up, "up")
				}
				at := time.Now()
				syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
				cmd.Wait()
				if took := time.Since(at); took > 9*time.Second { // the grace is 10 s
					t.Errorf("it took %v", took)
				}
				if cmd.ProcessState.Success() {
					t.Error("it calls itself a success")
				}
				// What the signal has hit as well may die a moment later.
				for end := time.Now().Add(5 * time.Second); len(session(cmd.Process.Pid)) > 0; time.Sleep(5 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("it left %v", session(cmd.Process.Pid))
					}
				}
			})
		})
	}
}

func untilText(t *testing.T, file, text string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		b, _ := os.ReadFile(file)
		if strings.Contains(string(b), text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited for %q; there is %q", text, b)
		}
	}
}

// session lists what is left of a session.
func session(id int) (left []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range all {
		b, _ := os.ReadFile(f)
		_, rest, _ := strings.Cut(string(b), ") ")
		if fields := strings.Fields(rest); len(fields) > 3 && fields[3] == strconv.Itoa(id) && fields[0] != "Z" {
			left = append(left, string(b))
		}
	}
	return left
}

func TestTypes_are_those_of_the_definitions(t *testing.T) {
	for _, name := range slices.Concat(capri.JobTypes, []string{"command", "presto"}) {
		if _, err := TypeOf(name); err != nil {
			t.Error(err)
		}
	}
	if len(types) != len(capri.JobTypes) {
		t.Errorf("there are %d types here and %d in definitions", len(types), len(capri.JobTypes))
	}
	if _, err := TypeOf("cobol"); !errors.Is(err, capri.ErrInvalid) || !strings.Contains(err.Error(), "hive, http, java") {
		t.Errorf("an unknown type: %v", err)
	}
	for _, name := range ClientNames {
		if (Clients{}).Use(name) == "" {
			t.Errorf("nobody knows what %s is for", name)
		}
	}
}

func TestTypes_give_their_command_lines(t *testing.T) {
	sh := func(script string, more ...string) []string {
		return append([]string{"/bin/sh", "-c", script, "/c"}, more...)
	}
	for _, row := range []struct {
		kind string
		c    command
		want []string
	}{
		{"shell", command{text: "a | b"}, []string{"/bin/sh", "-c", "a | b"}},
		{"python", command{text: "x.py 1", files: []string{"x.py"}, options: []string{"-O"}}, sh(`exec "$0" "$@" x.py 1`, "-O")},
		{"python", command{text: "print('x.py')", files: []string{"x.py"}}, []string{"/c", "-c", "print('x.py')"}},
		{"java", command{text: "x.jar a", options: []string{"-Xmx1g"}}, sh(`exec "$0" "$@" -jar x.jar a`, "-Xmx1g")},
		{"java", command{text: "x.jar:lib/* a  b", mainClass: "a.B$C"}, sh(`exec "$0" "$@" -cp x.jar:lib/* 'a.B$C' a  b`)},
		{"spark", command{text: "x.jar a", mainClass: "B", options: []string{"--master", "yarn"}}, sh(`exec "$0" --class 'B' "$@" x.jar a`, "--master", "yarn")},
		{"mapreduce", command{text: "x.jar a", mainClass: "B", options: []string{"-Da=b"}}, sh(`exec "$0" jar x.jar 'B' "$@" a`, "-Da=b")},
		{"hive", command{text: "q.sql", files: []string{"q.sql"}, params: map[string]string{"b": "2", "a": "1 '"}}, []string{"/c", "--hivevar", "a=1 '", "--hivevar", "b=2", "-f", "q.sql"}},
		{"hive", command{text: "-- all\nSELECT 1", options: []string{"-u", "jdbc:hive2://h/"}}, []string{"/c", "-u", "jdbc:hive2://h/", "-e", "\n-- all\nSELECT 1"}},
		{"trino", command{text: "SELECT 1", options: []string{"--server", "h"}}, []string{"/c", "--server", "h", "--execute", "SELECT 1"}},
	} {
		row.c.client = "/c"
		if got := types[row.kind].argv(&row.c); !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", row.kind, got, row.want)
		}
	}
}

func TestPriorities_are_handed_on_before_the_tasks_own_options(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"spark-submit", "trino", "hive"} {
		b.script(name, "")
	}
	m := NewMaker(MakerOptions{Calendar: calendar.New(time.UTC), Clients: Clients{Path: b.dir}, Program: b.dir + "/capri"})
	for i, row := range []struct {
		kind     string
		priority int
		want     string // in the command line; "" is nothing about it
	}{
		{"spark", 0, `"` + b.dir + `/spark-submit","--conf","spark.yarn.priority=10","--own"]`},
		{"spark", 9, `"--conf","spark.yarn.priority=1","--own"]`},
		{"spark", 5, ""},
		{"trino", 2, `/trino","--session","query_priority=8","--own",`},
		{"hive", 2, ""}, // a server that checks its settings would refuse it
	} {
		spec := capri.Spec{Priority: row.priority, Job: capri.Job{Type: row.kind, Command: "x", Options: []string{"--own"}}}
		p, err := m.Make(&capri.Task{ID: capri.TaskID(i + 1), Spec: spec}, &capri.Batch{}, "/d", nil)
		if err != nil {
			t.Fatal(err)
		}
		env := strings.Join(p.Env, "\n")
		if row.want == "" && strings.Contains(env, "priority=") || !strings.Contains(env, row.want) || !slices.Contains(p.Env, "CAPRI_PRIORITY="+strconv.Itoa(row.priority)) {
			t.Errorf("%s of priority %d: %s", row.kind, row.priority, env)
		}
	}
}

func TestA_client_is_found_where_the_operator_says(t *testing.T) {
	b := newBench(t)
	b.script("spark-submit", "")
	b.script("mine", "")
	for _, row := range []struct {
		name       string
		configured string
		want       string // the path, or what the error says
	}{
		{"spark", "", b.dir + "/spark-submit"},
		{"spark", b.dir + "/mine", b.dir + "/mine"},
		{"spark", b.dir + "/none", "worker.clients.spark"},
		{"hive", "", "there is no hive or beeline in " + b.dir + " on this node, for jobs of type hive: install it, or set worker.clients.hive"},
	} {
		path, err := Clients{Path: b.dir, Configured: map[string]string{row.name: row.configured}}.Find(row.name)
		if err != nil && !strings.Contains(err.Error(), row.want) || err == nil && path != row.want {
			t.Errorf("%s with %q: %s, %v", row.name, row.configured, path, err)
		}
	}
	// A job's own PATH chooses no interpreter.
	m := NewMaker(MakerOptions{Calendar: calendar.New(time.UTC), Path: b.dir, Clients: Clients{Path: b.dir}})
	_, err := m.Make(&capri.Task{Spec: capri.Spec{Job: capri.Job{Type: "python", Command: "1", Env: map[string]string{"PATH": "/usr/bin"}}}}, &capri.Batch{}, "/d", nil)
	if !errors.Is(err, capri.ErrNotFound) {
		t.Errorf("a python of the job's own PATH: %v", err)
	}
}

func TestWhat_a_runner_is_told_has_its_bound(t *testing.T) {
	b := newBench(t)
	b.script("hive", "")
	_, err := b.maker().Make(&capri.Task{Spec: capri.Spec{Job: capri.Job{Type: "hive", Command: strings.Repeat("x", 60<<10), Params: map[string]string{"a": strings.Repeat("\x01", 20<<10)}}}}, &capri.Batch{}, "/d", nil)
	if !errors.Is(err, capri.ErrInvalid) || !strings.Contains(err.Error(), "at most 124 KB") {
		t.Errorf("it says %v", err)
	}
}

func TestJobClients_says_of_each_type_what_it_needs(t *testing.T) {
	for name, kind := range types {
		if got := capri.JobClients[name]; got != kind.client {
			t.Errorf("a %s needs %q, and capri.JobClients says %q", name, kind.client, got)
		}
	}
	for name, client := range capri.JobClients {
		if !slices.Contains(ClientNames, client) || types[name].client == "" {
			t.Errorf("%s: %s is no client of a type", name, client)
		}
	}
}
