package job

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"capri"
)

// What the real clients print while they submit and wait, cut to the lines that matter. Hive 3 on MapReduce, spark-submit
// 3.5 in cluster mode, hadoop jar 3.3, Trino 4xx with --progress.
const (
	hiveSays = `
echo 'Hive Session ID = 5c1f9c9d-8a1b-4a51-8d2c-2f4a7ad8e7f1' >&2
echo 'Query ID = etl_20261120100000_1; Total jobs = 2' >&2
echo 'Starting Job = job_1700000000001_0001, Tracking URL = http://rm:8088/proxy/application_1700000000001_0001/' >&2
echo 'Kill Command = /opt/hadoop/bin/mapred job  -kill job_1700000000001_0001' >&2
echo 'Ended Job = job_1700000000001_0001' >&2
echo 'Starting Job = job_1700000000001_0002, Tracking URL = http://rm:8088/proxy/application_1700000000001_0002/' >&2
echo 'Starting Job = job_1700000000001_0666'  # a row of the result, about somebody else's job
`
	sparkSays = `
echo '26/11/20 10:00:00 INFO Client: Submitting application application_1700000000001_0003 to ResourceManager' >&2
echo '26/11/20 10:00:00 INFO YarnClientImpl: Submitted application application_1700000000001_0003' >&2
echo '26/11/20 10:00:01 INFO Client: Application report for application_1700000000001_0003 (state: ACCEPTED)' >&2
`
	mapreduceSays = `
echo '2026-11-20 10:00:00,000 INFO impl.YarnClientImpl: Submitted application application_1700000000001_0004' >&2
echo '2026-11-20 10:00:00,000 INFO mapreduce.Job: Running job: job_1700000000001_0004' >&2
`
	trinoSays = `
printf 'Query 20261120_100000_00001_abcde, RUNNING, 1 node, 4 splits\r' >&2
`
	// yarn notes what it is asked, and is slow, as a JVM is.
	yarnNotes = `sleep 0.3
echo "$*" >> "${0%/*}/killed"
echo "Killed application $3"
`
)

// engine is a type with a client that stands in for the real one.
type engine struct {
	kind, client, says, command, killed string
	ids                                 []string // all that it starts
}

var engines = []engine{
	{"hive", "hive", hiveSays, "INSERT …", "application -kill application_1700000000001_0002",
		[]string{"application_1700000000001_0001", "application_1700000000001_0002"}},
	{"spark", "spark-submit", sparkSays, "etl.py", "application -kill application_1700000000001_0003",
		[]string{"application_1700000000001_0003"}},
	{"mapreduce", "hadoop", mapreduceSays, "etl.jar", "application -kill application_1700000000001_0004",
		[]string{"application_1700000000001_0004"}},
	{"trino", "trino", trinoSays, "SELECT 1",
		"--server http://trino:8080 --execute CALL system.runtime.kill_query(query_id => '20261120_100000_00001_abcde', message => 'ended by Capri')",
		[]string{"20261120_100000_00001_abcde"}},
}

// bench puts the client on a worker; then is what it does when it has said its lines.
func (e engine) bench(t *testing.T, then string) (*bench, capri.Job) {
	b := newBench(t)
	text := e.says + then
	j := capri.Job{Type: e.kind, Command: e.command}
	if e.kind == "trino" { // it kills by itself, asked with the same options
		j.Options = []string{"--server", "http://trino:8080"}
		text = `case "$*" in *kill_query*) echo "$*" >> "${0%/*}/killed"; exit 0;; esac` + text
	} else {
		b.script("yarn", yarnNotes)
	}
	b.script(e.client, text)
	return b, j
}

func (b *bench) killed() string {
	text, _ := os.ReadFile(filepath.Join(b.dir, "killed"))
	return strings.TrimSpace(string(text))
}

func TestWhat_a_recorded_client_has_started_is_killed_when_the_client_fails(t *testing.T) {
	for _, e := range engines {
		t.Run(e.kind, func(t *testing.T) {
			b, j := e.bench(t, "\necho >&2; echo 'FAILED: it is wrong' >&2; exit 3")
			if code := b.run(j); code != 3 {
				t.Errorf("exit code %d", code)
			}
			if got := b.killed(); got != e.killed {
				t.Errorf("killed %q, want %q; it said %s", got, e.killed, b.stderr.String())
			}
			said := b.stderr.String()
			for _, id := range e.ids {
				if !strings.Contains(said, "capri: the job has started application "+id+"\n") && !strings.Contains(said, "capri: the job has started query "+id+"\n") {
					t.Errorf("the log does not keep %s: %s", id, said)
				}
			}
			if n := strings.Count(said, "capri: the job has started"); n != len(e.ids) {
				t.Errorf("the log has %d ids: %s", n, said)
			}
		})
	}
}

func TestWhat_a_recorded_client_has_started_is_killed_when_the_job_is(t *testing.T) {
	for _, e := range engines {
		for _, then := range []string{"exec sleep 60", "trap '' TERM; echo deaf >&2; while :; do sleep 0.1; done", "trap 'exit 0' TERM; while :; do sleep 0.1; done"} {
			t.Run(e.kind+" "+strings.Fields(then)[1], func(t *testing.T) {
				b, j := e.bench(t, "\necho up >&2\n"+then)
				log := filepath.Join(t.TempDir(), "log")
				out, err := os.OpenFile(log, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				defer out.Close()
				cmd := b.start(j, out, out)
				untilText(t, log, "up")
				syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
				if strings.Contains(then, "deaf") { // the shim's SIGKILL, when all is done that the grace is for
					for end := time.Now().Add(20 * time.Second); b.killed() == "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					}
					syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
				}
				cmd.Wait()
				if cmd.ProcessState.Success() {
					t.Error("it calls itself a success")
				}
				if got := b.killed(); got != e.killed {
					said, _ := os.ReadFile(log)
					t.Errorf("killed %q, want %q; it said %s", got, e.killed, said)
				}
			})
		}
	}
}

func TestNothing_is_killed_when_a_recorded_client_succeeds(t *testing.T) {
	for _, e := range engines {
		t.Run(e.kind, func(t *testing.T) {
			b, j := e.bench(t, "")
			if code := b.run(j); code != 0 || b.killed() != "" {
				t.Errorf("exit code %d, killed %q", code, b.killed())
			}
		})
	}
}

func TestA_client_that_is_killed_by_the_kernel_fails(t *testing.T) {
	e := engines[1]
	b, j := e.bench(t, "\nkill -9 $$")
	if code := b.run(j); code != 137 || b.killed() != e.killed {
		t.Errorf("exit code %d, killed %q", code, b.killed())
	}
}

func TestWhere_nobody_can_kill_an_application_the_log_says_so(t *testing.T) {
	e := engines[1]
	b, j := e.bench(t, "\nexit 1")
	if err := os.Remove(filepath.Join(b.dir, "yarn")); err != nil {
		t.Fatal(err)
	}
	b.path = b.dir // this machine may have one
	if code := b.run(j); code != 1 || !strings.Contains(b.stderr.String(), "application application_1700000000001_0003 may still run: there is no client here that could kill it") {
		t.Errorf("exit code %d; it said %s", code, b.stderr.String())
	}

	b, j = e.bench(t, "\nexit 1")
	b.script("yarn", "echo 'the ResourceManager does not answer'; exit 5")
	if code := b.run(j); code != 1 || strings.Count(b.stderr.String(), "does not answer") != 3 || !strings.Contains(b.stderr.String(), "killing it failed: exit status 5") {
		t.Errorf("exit code %d; it said %s", code, b.stderr.String())
	}
}

// Spark itself, on this machine alone: `pip install pyspark` is all it needs. CAPRI_TEST_SPARK names its spark-submit.
func TestSpark_itself(t *testing.T) {
	submit := os.Getenv("CAPRI_TEST_SPARK")
	if submit == "" {
		t.Skip("needs CAPRI_TEST_SPARK, the path of a real spark-submit (pip install pyspark)")
	}
	file := fileOf(t, "job.py", `from pyspark.sql import SparkSession
count = SparkSession.builder.getOrCreate().range(10).count()
`+pythonFile)
	for _, row := range []struct {
		mode string
		code int
		out  string
	}{{"echo", 0, "$(id) 'é'"}, {"fail", 7, ""}} {
		b := newBench(t)
		b.script("spark-submit", "exec "+submit+` "$@"`)
		code := b.run(capri.Job{Type: "spark", Command: `job.py "$PARAM_X"`, Files: []string{file}, Options: []string{"--master", "local[1]", "--conf", "spark.ui.enabled=false"},
			Params: map[string]string{"mode": row.mode, "x": "$(id) 'é'"}})
		if code != row.code || b.stdout.String() != row.out {
			t.Errorf("%s: exit code %d, %q; it said %s", row.mode, code, b.stdout.String(), b.stderr.String())
		}
	}
	b := newBench(t)
	b.script("spark-submit", "exec "+submit+` "$@"`)
	log := filepath.Join(t.TempDir(), "log")
	out, err := os.OpenFile(log, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := b.start(capri.Job{Type: "spark", Command: "job.py x", Files: []string{file}, Options: []string{"--master", "local[1]"}, Params: map[string]string{"mode": "sleep"}}, out, out)
	untilText(t, log, "\nup\n")
	syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	cmd.Wait()
	if cmd.ProcessState.Success() {
		t.Error("a killed one calls itself a success")
	}
	for end := time.Now().Add(10 * time.Second); len(session(cmd.Process.Pid)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it left %v", session(cmd.Process.Pid))
		}
	}
}

func TestWhat_the_attempt_before_had_started_is_ended_before_the_next_begins(t *testing.T) {
	for _, e := range engines {
		former := e.ids[len(e.ids)-1]
		for _, c := range []struct {
			name, yarn string
			code       int
			begins     bool
		}{
			{"it is killed", "", 0, true},
			{"it has finished", `echo "Application with id '$3' doesn't exist in RM" >&2; echo "Query not found" >&2; exit 255`, 0, true},
			{"nobody answers", "echo 'Connection refused' >&2; exit 1", 1, false},
		} {
			t.Run(e.kind+" "+c.name, func(t *testing.T) {
				b, j := e.bench(t, "\necho begins >&2")
				b.former = former
				if c.yarn != "" && e.kind != "trino" {
					b.script("yarn", c.yarn)
				} else if c.yarn != "" {
					b.script(e.client, `case "$*" in *kill_query*) `+c.yarn+";; esac\necho begins >&2")
				}
				code := b.run(j)
				said := b.stderr.String()
				if begins := strings.Contains(said, "begins\n"); begins != c.begins || code != c.code {
					t.Errorf("exit code %d, begins: %v; it said %s", code, begins, said)
				}
				if c.yarn == "" && !strings.HasPrefix(b.killed(), e.killed) {
					t.Errorf("killed %q, want %q first", b.killed(), e.killed)
				}
				if !c.begins && !strings.Contains(said, former+" of the attempt before may still run") {
					t.Errorf("it said %s", said)
				}
			})
		}
	}
}
