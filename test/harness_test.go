// Package test runs the real programs, as people do: the command line, signals, files and two databases. What can be
// said of masters and workers as values is tested faster in internal/cluster.
package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"capri"
	"capri/internal/cluster"
	"capri/internal/testenv"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// They wait most of the time: for jobs that sleep, and for programs that start and stop.
func TestMain(m *testing.M) {
	testenv.AtOnce(4)
	m.Run()
}

// patience is how long a test waits for something that takes seconds at most on an idle machine. It ends a test that would
// wait for ever; how fast something is, it does not judge.
const patience = 3 * time.Minute

// program is a running capri.
type program struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	out   *testenv.Text
	log   *testenv.Text
	ended chan struct{}
	began time.Time
}

// environment of every program here: nothing of ours but what is said, and no configuration file nearby.
func environment(home string, more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}, more...)
}

// launch starts capri with these arguments. It is killed when the test ends.
func launch(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	return begin(t, nil, env, args)
}

// unprivileged is launch without root's rights, before which no directory is closed.
func unprivileged(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	if os.Geteuid() != 0 {
		return begin(t, nil, env, args)
	}
	return begin(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, env, args)
}

func begin(t *testing.T, attr *syscall.SysProcAttr, env, args []string) *program {
	t.Helper()
	p := &program{t: t, name: args[0], cmd: exec.Command(testenv.Binary(t, "capri"), args...), out: &testenv.Text{}, log: &testenv.Text{}, ended: make(chan struct{}), began: time.Now()}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = env, cluster.OpenDir(t), p.out, p.log, attr
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("capri %s said:\n%s%s", p.name, p.out, tail(p.log.String(), 60))
		}
	})
	return p
}

func tail(s string, lines int) string {
	all := strings.SplitAfter(s, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}

// has says whether the program lives.
func (p *program) has(ended bool) bool {
	select {
	case <-p.ended:
		return ended
	default:
		return !ended
	}
}

// says waits until the program has written what matches, and gives the first group.
func (p *program) says(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	wait(p.t, patience, func() string {
		if found = re.FindStringSubmatch(p.out.String() + p.log.String()); found != nil {
			return ""
		}
		if p.has(true) {
			p.t.Fatalf("capri %s ended with code %d and never said %q:\n%s%s", p.name, p.code(), pattern, p.out, p.log)
		}
		return fmt.Sprintf("capri %s says %q", p.name, pattern)
	})
	return found[len(found)-1]
}

// address waits for the program to listen.
func (p *program) address() string { return p.says(`listens on (https?://[0-9.:]+)`) }

// code waits for the program's end and gives its exit code.
func (p *program) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("capri %s does not end", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// signal sends a signal and waits for the end; it tells how long that took.
func (p *program) signal(sig syscall.Signal) time.Duration {
	p.t.Helper()
	began := time.Now()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal capri %s: %v", p.name, err)
	}
	p.code()
	return time.Since(began)
}

// stop is a service manager's stop: it must be clean, and quick.
func (p *program) stop() {
	p.t.Helper()
	took := p.signal(syscall.SIGTERM)
	if c := p.code(); c != 0 {
		p.t.Errorf("capri %s ended with code %d after SIGTERM:\n%s", p.name, c, tail(p.log.String(), 20))
	}
	if took > 10*time.Second {
		p.t.Errorf("capri %s took %s to stop", p.name, took)
	}
	p.t.Logf("capri %s stopped within %s", p.name, took.Round(time.Millisecond))
}

// wait waits until missing says nothing more.
func wait(t *testing.T, most time.Duration, missing func() string) {
	t.Helper()
	deadline := time.Now().Add(most)
	for {
		what := missing()
		if what == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s there is still missing: %s", most, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// installation is Capri as somebody installed it, with a command line that knows where it is.
type installation struct {
	t       *testing.T
	home    string // everything of it lies in here
	env     []string
	workers []string // what the environment of workers has besides, where they have one of their own
	kind    string
	options store.Options // how to open its database
	server  string
	key     string // file
	parts   []*program
	start   func()
}

// standalone is an installation on SQLite.
func standalone(t *testing.T, slots int) *installation {
	t.Helper()
	in := &installation{t: t, kind: "sqlite", home: cluster.OpenDir(t)}
	data := filepath.Join(in.home, "data")
	in.env = environment(in.home, "CAPRI_DATA="+data, "CAPRI_NODE_NAME=here", fmt.Sprintf("CAPRI_NODE_SLOTS=%d", slots))
	in.options, in.key = store.Options{Path: filepath.Join(data, "capri.db")}, filepath.Join(data, "admin.key")
	t.Cleanup(func() { cluster.KillShims(data) })
	in.start = func() {
		p := launch(t, in.env, "standalone", "--data", data, "--listen", "127.0.0.1:0")
		in.parts, in.server = []*program{p}, p.address()
	}
	in.start()
	return in
}

// clustered is an installation on MariaDB and Redis, with one master and one worker.
func clustered(t *testing.T, slots int) *installation {
	t.Helper()
	in := &installation{t: t, kind: "mysql", home: cluster.OpenDir(t)}
	in.options = store.Options{DSN: sqltest.EmptyMySQL(t).Options.DSN}
	env := func(dir string) []string {
		return environment(in.home, "CAPRI_DATABASE_DSN="+in.options.DSN, "CAPRI_REDIS_ADDR="+testenv.Redis(t),
			"CAPRI_DATA="+filepath.Join(in.home, dir), fmt.Sprintf("CAPRI_NODE_SLOTS=%d", slots))
	}
	in.env, in.key = env("master"), filepath.Join(in.home, "master", "admin.key")
	in.capri("migrate", "up").ok()
	t.Cleanup(func() { cluster.KillShims(filepath.Join(in.home, "worker")) })
	in.start = func() {
		m := launch(t, in.env, "master", "--name", "m1", "--listen", "127.0.0.1:0")
		in.server = m.address()
		w := launch(t, append(append(env("worker"), "CAPRI_SERVER="+in.server), in.workers...), "worker", "--node", "here", "--listen", "127.0.0.1:0")
		w.says("worker runs")
		in.parts = []*program{m, w}
	}
	in.start()
	return in
}

// each runs a test on both kinds of installation, which take no turns.
func each(t *testing.T, slots int, test func(t *testing.T, in *installation)) {
	t.Parallel()
	for kind, install := range map[string]func(*testing.T, int) *installation{"sqlite": standalone, "mysql": clustered} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, install(t, slots))
		})
	}
}

func (in *installation) stop() {
	in.t.Helper()
	for _, p := range in.parts {
		p.stop()
	}
}

// store opens its database beside it.
func (in *installation) store() *store.Store {
	in.t.Helper()
	s, err := store.Open(context.Background(), in.options)
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { s.Close() })
	return s
}

// result is how a command ended.
type result struct {
	t        *testing.T
	line     string
	out, err string
	code     int
}

// capri runs a command against the installation.
func (in *installation) capri(args ...string) *result {
	in.t.Helper()
	env := in.env
	if in.server != "" {
		env = append(env[:len(env):len(env)], "CAPRI_SERVER="+in.server)
		args = append(args, "--token-file", in.key)
	}
	return run(in.t, env, args...)
}

// run runs a command to its end.
func run(t *testing.T, env []string, args ...string) *result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, testenv.Binary(t, "capri"), args...)
	var out, log bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, t.TempDir(), &out, &log
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return &result{t, "capri " + strings.Join(args, " "), out.String(), log.String(), cmd.ProcessState.ExitCode()}
}

// ok demands success.
func (r *result) ok() *result {
	r.t.Helper()
	return r.ends(0, "")
}

// ends demands an exit code, and a text on either stream.
func (r *result) ends(code int, says string) *result {
	r.t.Helper()
	if r.code != code || !strings.Contains(r.out+r.err, says) {
		r.t.Fatalf("%s: code %d, want %d with %q\n%s%s", r.line, r.code, code, says, r.out, r.err)
	}
	return r
}

// json reads the answer to -o json.
func (r *result) json(into any) {
	r.t.Helper()
	r.ok()
	if err := json.Unmarshal([]byte(r.out), into); err != nil {
		r.t.Fatalf("%s: %v\n%s", r.line, err, r.out)
	}
}

// batch is what scripts read of batch list.
type batch struct {
	ID          capri.BatchID `json:"id"`
	Task        string        `json:"task"`
	BatchNo     capri.BatchNo `json:"batch_no"`
	RunNo       int           `json:"run_no"`
	State       string        `json:"state"`
	FinishState string        `json:"finish_state"`
	Unmet       int           `json:"unmet"`
	Attempt     int           `json:"attempt"`
	StartTime   *time.Time    `json:"start_time"`
	Message     string        `json:"message"`
}

// batches lists them.
func (in *installation) batches(args ...string) []batch {
	in.t.Helper()
	var out []batch
	in.capri(append([]string{"batch", "list", "-o", "json", "--limit", "100000"}, args...)...).json(&out)
	return out
}

// one waits until the task has one batch that is as is says.
func (in *installation) one(task, what string, is func(batch) bool) batch {
	in.t.Helper()
	var found batch
	wait(in.t, patience, func() string {
		all := in.batches("--task", task)
		if len(all) == 1 {
			if found = all[0]; is(found) {
				return ""
			}
		}
		return fmt.Sprintf("the one batch of %s %s; there are %+v", task, what, all)
	})
	return found
}

func (in *installation) ended(task, how string) batch {
	in.t.Helper()
	b := in.one(task, "has ended", func(b batch) bool { return b.State == "finished" })
	if b.FinishState != how {
		in.t.Fatalf("the batch of %s ended as %s, want %s: %s", task, b.FinishState, how, b.Message)
	}
	return b
}

func (in *installation) runs(task string) batch {
	in.t.Helper()
	return in.one(task, "runs", func(b batch) bool { return b.State == "running" && b.StartTime != nil })
}

// apply writes a task file and applies it.
func (in *installation) apply(yaml string) {
	in.t.Helper()
	file := filepath.Join(in.home, "tasks.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		in.t.Fatal(err)
	}
	in.capri("task", "apply", "-f", file).ok()
}

// lately is a day whose mark has come, whatever the minute is now.
var lately = time.Now().UTC().AddDate(0, 0, -2).Format(time.DateOnly)

// coldStart makes the batches of a day and tells how many are new.
func (in *installation) coldStart(period, day string, more ...string) int {
	in.t.Helper()
	var out struct {
		Made  int `json:"made"`
		Items []struct {
			Action string `json:"action"`
			Reason string `json:"reason"`
		} `json:"items"`
	}
	in.capri(append([]string{"cold-start", "--period", period, "--by-data", "--from", day, "--to", day, "-o", "json"}, more...)...).json(&out)
	for _, it := range out.Items {
		if it.Action != "new" {
			in.t.Fatalf("cold start of %s %s: %+v", period, day, it)
		}
	}
	if out.Made != len(out.Items) {
		in.t.Fatalf("cold start of %s %s: made %d of %d", period, day, out.Made, len(out.Items))
	}
	return out.Made
}

// beginPair has a job of the task first run, for which one of second waits. Each writes a line to dir when it begins.
func (in *installation) beginPair(dir string) {
	in.t.Helper()
	in.apply(fmt.Sprintf(`tasks:
  - {name: first, period: day, job: {command: "echo x >>%[1]s/first; until [ -e %[1]s/go ]; do sleep 0.05; done; touch %[1]s/gone"}, valid: {from: "2020-01-01"}}
  - {name: second, period: day, job: {command: "echo x >>%[1]s/second"}, parents: [{task: first}], valid: {from: "2020-01-01"}}
`, dir))
	in.coldStart("day", lately)
	in.runs("first")
}

// endFirst lets the job of first come to its end, whatever its database does.
func (in *installation) endFirst(dir string) {
	in.t.Helper()
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		in.t.Fatal(err)
	}
	wait(in.t, patience, func() string {
		if _, err := os.Stat(dir + "/gone"); err != nil {
			return "the end of the job of first"
		}
		return ""
	})
}

// endPair waits until both have succeeded, each begun once.
func (in *installation) endPair(dir string) {
	in.t.Helper()
	for _, name := range []string{"second", "first"} {
		if b := in.ended(name, "success"); b.Attempt != 1 {
			in.t.Errorf("%s took %d attempts", name, b.Attempt)
		}
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "x\n" {
			in.t.Errorf("%s began %q (%v), want once", name, text, err)
		}
	}
}
