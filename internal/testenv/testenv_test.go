package testenv

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// recorder stands in for a test and notes how it ended.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Skipf(f string, a ...any)  { r.skipped = fmt.Sprintf(f, a...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.failed = fmt.Sprintf(f, a...); runtime.Goexit() }

func record(t *testing.T, f func(testing.TB)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); f(r) }()
	<-done
	return r
}

func TestServers(t *testing.T) {
	needs := []struct {
		variable string
		get      func(testing.TB) string
	}{{"CAPRI_TEST_MYSQL_DSN", MySQL}, {"CAPRI_TEST_REDIS", Redis}}
	for _, n := range needs {
		t.Run(n.variable, func(t *testing.T) {
			t.Setenv(n.variable, "here")
			if got := n.get(t); got != "here" {
				t.Errorf("got %q, want what the variable holds", got)
			}
			t.Setenv(n.variable, "")
			t.Setenv("CI", "")
			if r := record(t, func(tb testing.TB) { n.get(tb) }); !strings.Contains(r.skipped, n.variable) || r.failed != "" {
				t.Errorf("without the server: skipped %q, failed %q; want a skip that names the variable", r.skipped, r.failed)
			}
			t.Setenv("CI", "true")
			if r := record(t, func(tb testing.TB) { n.get(tb) }); r.skipped != "" || !strings.Contains(r.failed, n.variable) {
				t.Errorf("in CI: skipped %q, failed %q; want a failure that names the variable", r.skipped, r.failed)
			}
		})
	}
}

func TestWorkloads_skips_where_there_are_none_in_CI_too(t *testing.T) {
	t.Setenv("CI", "true")
	t.Setenv("CAPRI_WORKLOADS", t.TempDir())
	if r := record(t, func(tb testing.TB) { Workloads(tb) }); r.failed != "" || !strings.Contains(r.skipped, "CAPRI_WORKLOADS") {
		t.Errorf("skipped %q, failed %q", r.skipped, r.failed)
	}
}

func TestRoot(t *testing.T) {
	if _, err := os.Stat(filepath.Join(Root(t), "go.mod")); err != nil {
		t.Error(err)
	}
}

// asTestMain makes this test's binary one whose TestMain calls AtOnce, and that says what came of it.
const asTestMain = "CAPRI_TEST_AT_ONCE"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(asTestMain)); err == nil {
		AtOnce(n)
		fmt.Print(flag.Lookup("test.parallel").Value)
		os.Exit(0)
	}
	m.Run()
}

func TestAtOnce_raises_the_number_and_leaves_a_given_one_alone(t *testing.T) {
	processors := strconv.Itoa(runtime.GOMAXPROCS(0))
	for _, tt := range []struct{ given, asked, want string }{
		{"-test.v", "4711", "4711"},
		{"-test.v", "1", processors},
		{"-test.parallel=3", "4711", "3"},
	} {
		cmd := exec.Command(os.Args[0], tt.given)
		cmd.Env = append(os.Environ(), asTestMain+"="+tt.asked)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != tt.want {
			t.Errorf("with %s, %s at once became %s, want %s (%v)", tt.given, tt.asked, out, tt.want, err)
		}
	}
}

func TestBinary_fails_for_a_program_that_is_not_there(t *testing.T) {
	if r := record(t, func(tb testing.TB) { Binary(tb, "nothing") }); !strings.Contains(r.failed, "nothing") {
		t.Errorf("failed %q, want the name of the program", r.failed)
	}
}

func TestBinary_runs(t *testing.T) {
	path := Binary(t, "capri")
	if again := Binary(t, "capri"); again != path {
		t.Errorf("the second call gave %s, the first %s", again, path)
	}
	if out, err := exec.Command(path, "version").CombinedOutput(); err != nil {
		t.Errorf("capri version: %v\n%s", err, out)
	}
	if info, err := os.Stat(filepath.Join(filepath.Dir(path), "capri-shim")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("capri-shim does not lie beside capri: %v", err)
	}
}
