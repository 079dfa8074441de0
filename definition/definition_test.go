package definition

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// known is a small installation: two users, one department with an account, two tasks.
func known() Known {
	task := func(id capri.TaskID, name string, period capri.Period) *capri.Task {
		s := Default()
		s.Name, s.Period, s.Job.Command = name, period, "true"
		return &capri.Task{ID: id, Version: 1, Spec: s}
	}
	return Known{
		Calendar: calendar.New(time.UTC),
		Tasks:    map[string]*capri.Task{"b": task(1, "b", capri.Day)},
		Owners:   map[string]string{"alice": "dw", "bob": ""},
		Grants:   map[Grant]bool{{Account: "etl", Department: "dw"}: true, {Account: "hive", User: "alice"}: true},
	}
}

func yamlOf(text string) []Source { return []Source{{Name: "t.yaml", Data: []byte(text)}} }

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run the tests with -update")
	assert.Equal(t, string(want), got)
}

// Each testdata/<mistake>.yaml has its messages beside it in <mistake>.txt.
func TestEachMistakeHasItsMessage(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			sources, err := Load([]string{file})
			require.NoError(t, err)
			sources[0].Name = name + ".yaml"
			_, warnings, err := Check(sources, known())
			if name == "everything" {
				require.NoError(t, err)
				golden(t, "testdata/everything.warnings", strings.Join(warnings, "\n")+"\n")
				return
			}
			require.ErrorIs(t, err, capri.ErrInvalid)
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", err.Error()+"\n")
		})
	}
}

func TestFiveHundredMistakesComeOutAsFiveHundred(t *testing.T) {
	var b strings.Builder
	b.WriteString("tasks:\n")
	for i := range 250 {
		fmt.Fprintf(&b, "  - {name: t%d, period: day, priority: 99, job: {comand: x}}\n", i)
	}
	_, _, err := Check(yamlOf(b.String()), known())
	var wrong capri.FieldErrors
	require.ErrorAs(t, err, &wrong)
	assert.Len(t, wrong, 500)
}

func TestDefaultsAreFilledInAndZerosAreKept(t *testing.T) {
	items, err := Parse(yamlOf(`
tasks:
  - {name: a, cron: "0  0 3 * * ?", job: {type: command, command: x}, inputs: [{path: /a}], parents: [{task: b}], valid: {from: 2026-01-01, to: 2026-01-31}}
  - {name: b, period: day, priority: 0, job: {command: x}, cascade: false, enabled: false, alert: {default_rules: false},
     limits: {begin_minutes: 0}, retry: {rejected: 0, failed_interval_s: 0}, owner: , outputs: [{path: /a, flag: none}]}
`))
	require.NoError(t, err)
	require.Len(t, items, 2)
	a, b := items[0].Spec, items[1].Spec

	want := Default()
	want.Name, want.Period, want.Cron = "a", capri.Cron, "0 0 3 * * ?"
	want.Job = capri.Job{Type: "shell", Command: "x"}
	want.Inputs = []capri.Input{{Path: "/a", Flag: "_SUCCESS"}}
	want.Parents = []capri.Parent{{Task: "b", Policy: capri.All}}
	want.Valid = capri.Validity{From: "2026-01-01 00:00:00", To: "2026-01-31 23:59:59"}
	assert.Equal(t, want, a)
	assert.Equal(t, "t.yaml:3", items[0].Where)

	assert.Equal(t, 0, b.Priority)
	assert.False(t, b.Cascade || b.Enabled || b.Alert.DefaultRules)
	assert.Equal(t, 0, b.Limits.BeginMinutes)
	assert.Equal(t, capri.Retry{Rejected: 0, FailedIntervalS: 0, RejectedIntervalS: 3}, b.Retry)
	assert.Equal(t, 1, b.Limits.Concurrency, "the rest of a block that is there keeps its defaults")
	assert.Equal(t, "none", b.Outputs[0].Flag)
}

func TestTextsStayAsTheyAreWritten(t *testing.T) {
	items, err := Parse(yamlOf(`tasks: [{name: 20261120, title: 1.10, period: day, job: {command: yes, env: {A: 007, B: on, C: 2026-01-01, D: 1e3}}}]`))
	require.NoError(t, err)
	s := items[0].Spec
	assert.Equal(t, "20261120", s.Name)
	assert.Equal(t, "1.10", s.Title)
	assert.Equal(t, map[string]string{"A": "007", "B": "on", "C": "2026-01-01", "D": "1e3"}, s.Job.Env)
}

func TestAliasesShareABlockAndOwnFieldsWin(t *testing.T) {
	items, _, err := Check(yamlOf(`
tasks:
  - &base {name: a, period: day, priority: 2, job: {command: x}, retry: &r {failed: 3}}
  - {<<: *base, name: c, priority: 4}
  - {name: d, period: day, job: {command: x}, retry: {<<: *r, failed_interval_s: 60}}
`), known())
	require.NoError(t, err)
	require.Len(t, items, 3)
	assert.Equal(t, "c", items[1].Name)
	assert.Equal(t, 4, items[1].Priority)
	assert.Equal(t, 3, items[1].Retry.Failed)
	assert.Equal(t, capri.Retry{Failed: 3, FailedIntervalS: 60, Rejected: -1, RejectedIntervalS: 3}, items[2].Retry)
}

func TestAliasBombsAreRefusedQuickly(t *testing.T) {
	var b strings.Builder
	b.WriteString("tasks:\n  - {name: a, period: day, job: {command: x}, parents: &p [")
	for range 4000 {
		b.WriteString("{task: b},")
	}
	b.WriteString("]}\n")
	for i := range 4000 {
		fmt.Fprintf(&b, "  - {name: t%d, parents: *p}\n", i)
	}
	_, err := Parse(yamlOf(b.String()))
	require.ErrorContains(t, err, "fewer repetitions by aliases")
	assert.Len(t, strings.Split(err.Error(), "\n"), 1, "it is said once")

	// An anchor inside itself, and a merge of itself.
	for _, text := range []string{"tasks: &t [*t]", "tasks: [&a {name: x, parents: [*a]}]", "tasks: [&a {<<: *a, name: x}]"} {
		_, err := Parse(yamlOf(text))
		assert.Error(t, err, text)
	}
}

func TestAFileThatIsTooLargeIsRefused(t *testing.T) {
	_, err := Parse([]Source{{Name: "big.yaml", Data: make([]byte, MaxSource+1)}})
	assert.EqualError(t, err, "big.yaml: file: want at most 16 MB; split the file")
}

func TestNothingIsSaidTwiceAboutOneField(t *testing.T) {
	// Parse has refused the priority and the misspelt command; Validate must not add that they are missing.
	_, _, err := Check(yamlOf("tasks: [{name: a, period: dayly, job: {comand: x}, parents: [7]}]"), known())
	var wrong capri.FieldErrors
	require.ErrorAs(t, err, &wrong)
	assert.Len(t, wrong, 3, "%v", err)
}

func TestABrokenDocumentDoesNotMakeItsTasksLookMissing(t *testing.T) {
	sources := []Source{{Name: "1.yaml", Data: []byte("tasks: [{name: x")}, {Name: "2.yaml", Data: []byte("tasks: [{name: a, period: day, job: {command: x}, parents: [{task: x}]}]")}}
	_, _, err := Check(sources, known())
	var wrong capri.FieldErrors
	require.ErrorAs(t, err, &wrong)
	assert.Len(t, wrong, 1)
	assert.Equal(t, "1.yaml:1", wrong[0].Where)
}

func TestAParentMayBeDefinedInTheSameRequestOrExist(t *testing.T) {
	_, _, err := Check(yamlOf("tasks: [{name: a, period: day, job: {command: x}, parents: [{task: c}, {task: b}]}, {name: c, period: hour, job: {command: x}}]"), known())
	assert.NoError(t, err)
}

func TestAParentMayStandTwiceWithDifferentWindows(t *testing.T) {
	_, _, err := Check(yamlOf("tasks: [{name: a, period: month, job: {command: x}, parents: [{task: b}, {task: b, from: 79, to: 79}]}]"), known())
	assert.NoError(t, err)
}

func TestATaskThatOthersWaitForMayNotBecomeManual(t *testing.T) {
	k := known()
	child := *k.Tasks["b"]
	child.ID, child.Name, child.Parents = 2, "child", []capri.Parent{{Task: "b", TaskID: 1, Policy: capri.All}}
	k.Tasks["child"] = &child
	text := "tasks: [{name: b, period: manual, job: {command: x}}]"
	_, _, err := Check(yamlOf(text), k)
	assert.EqualError(t, err, `t.yaml:1: task b: period: "manual": want another period as long as task child waits for this one`)

	text += "\n---\ntasks: [{name: child, period: day, job: {command: x}}]"
	_, _, err = Check(yamlOf(text), k)
	assert.NoError(t, err, "the same request may take the dependency away")
}

func TestACycleThroughAnExistingTaskIsRefused(t *testing.T) {
	k := known()
	k.Tasks["b"].Parents = []capri.Parent{{Task: "a", TaskID: 7, Policy: capri.All}}
	a := *k.Tasks["b"]
	a.ID, a.Name, a.Parents = 7, "a", nil
	k.Tasks["a"] = &a
	_, _, err := Check(yamlOf("tasks: [{name: a, period: day, job: {command: x}, parents: [{task: b}]}]"), k)
	require.ErrorIs(t, err, capri.ErrInvalid)
	for _, name := range []string{"a", "b"} {
		assert.Contains(t, err.Error(), name)
	}
	_, _, err = Check(yamlOf("tasks: [{name: a, period: day, job: {command: x}, parents: [{task: b, from: -1, to: -1}]}]"), k)
	assert.NoError(t, err, "waiting for the interval before closes no cycle")
}

func TestWarningsDoNotStandInTheWay(t *testing.T) {
	zone, err := time.LoadLocation("Asia/Shanghai") // clocks went back there on 1990-09-16
	require.NoError(t, err)
	k := known()
	k.Tasks["b"].Enabled = false
	k.WithoutHDFS = true
	k.Calendar, k.Now = calendar.New(zone), capri.InstantOf(time.Date(1990, 6, 1, 0, 0, 0, 0, time.UTC))
	_, warnings, err := Check(yamlOf(`
tasks:
  - name: a
    period: hour
    job: {command: x, files: ["hdfs:///x.sh", /y.sh]}
    inputs: [{path: "HDFS://nn/${yyyyMMdd}/${HH}${Z}"}, {path: "/in/${yyyyMMdd}/${HH}${Z}"}]
    outputs:
      - path: /a/${yyyyMMdd}/${HH}
      - path: /b/${yyyyMMdd}/${HH}${Z}
    parents: [{task: b}]
    alert: {phone: true}
`), k)
	require.NoError(t, err)
	assert.Equal(t, []string{
		`t.yaml:8: task a: outputs[0].path: "/a/${yyyyMMdd}/${HH}" is the same for both equal hours when the clock goes back; add ${Z} to tell them apart`,
		"t.yaml:10: task a: parents[0].task: b is disabled: as long as it is, this task waits for batches that nobody makes",
		"t.yaml:11: task a: alert.phone: phone is true, but phone_to is empty: nobody will be called",
		"t.yaml:5: task a: job.files[0]: no HDFS is configured here (hdfs.name_nodes): where workers have none either, batches of this task will fail",
		"t.yaml:6: task a: inputs[0].path: no HDFS is configured here (hdfs.name_nodes): batches of this task will wait",
	}, warnings)
}

func TestValidateWorksOnItemsThatNobodyParsed(t *testing.T) {
	s := Default()
	s.Name, s.Priority = "a", 12
	wrong, _ := validate([]Item{{Spec: s}}, known())
	assert.EqualError(t, wrong.OrNil(), `task a: period: want hour, day, week, month or manual, or a cron expression in the field cron
task a: priority: "12": want 0 … 9
task a: job.command: want the command to run`)
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("b.yaml", "b")
	write("a/z.yml", "z")
	write("a/notes.txt", "-")
	write(".git/x.yaml", "-")
	write("a/.#z.yaml", "-")
	write("task", "task")
	require.NoError(t, os.Symlink(filepath.Join(dir, "task"), filepath.Join(dir, "c.yaml")))
	names := func(sources []Source) (list []string) {
		for _, s := range sources {
			list = append(list, strings.TrimPrefix(s.Name, filepath.ToSlash(dir)+"/")+"="+string(s.Data))
		}
		return list
	}
	sources, err := load([]string{dir, "-", filepath.Join(dir, "task"), filepath.Join(dir, "b.yaml"), "-"}, strings.NewReader("in"))
	require.NoError(t, err)
	assert.Equal(t, []string{"a/z.yml=z", "b.yaml=b", "c.yaml=task", "stdin=in", "task=task"}, names(sources))

	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	_, err = load([]string{filepath.Join(dir, "nope"), filepath.Join(dir, "empty"), filepath.Join(dir, "b.yaml")}, nil)
	require.ErrorIs(t, err, capri.ErrInvalid)
	assert.Equal(t, fmt.Sprintf(`file: "%s/nope": want a file or folder that exists: no such file or directory
file: "%s/empty": want a folder with *.yaml or *.yml files in it`, dir, dir), err.Error())
}

func TestJobTypesHaveTheirAliasesAndDefaults(t *testing.T) {
	items, warnings, err := Check(yamlOf(`
tasks:
  - {name: a, period: day, job: {type: presto, command: "SELECT '${yyyyMMdd}'", options: [--server, "http://trino:8080"], params: {x: 1}}}
  - {name: b, period: day, job: {type: java, command: "etl.jar 'a b' \"$PARAM_X\"", main_class: com.example.Etl$Main, options: [-Xmx1g]}}
  - name: c
    period: day
    job:
      type: http
      command: https://jobs.example.com/run/${yyyy-MM-dd}?full=1
      http: {method: post, headers: {Authorization: "Bearer x"}, poll: {url: "/jobs/{id}", id: "data[0].id", until: {path: state, in: [DONE, FAILED]}}, success: {path: state, in: [DONE]}}
  - {name: d, period: day, job: {type: http, command: http://h}}
  - {name: e, period: day, job: {type: hive, command: "SELECT '${hivevar:day}'", options: [-p, secret], params: {day: 1}}}
`), known())
	require.NoError(t, err)
	assert.Equal(t, []string{
		"t.yaml:3: task a: job.params: trino has no variables: the client gets params as environment, and no statement sees them",
		"t.yaml:10: task c: job.http.headers.Authorization: it is part of the definition, which everybody who may see the task can read",
		"t.yaml:12: task e: job.options[0]: a password on a command line is seen by everybody on the worker; beeline takes -w and a file that holds it",
	}, warnings)
	assert.Equal(t, "trino", items[0].Job.Type)
	assert.Equal(t, capri.HTTP{Method: "GET", Status: "200-299", TimeoutS: 60}, items[3].Job.HTTP)
	c := items[2].Job.HTTP
	assert.Equal(t, "POST", c.Method)
	assert.Equal(t, capri.HTTPPoll{URL: "/jobs/{id}", ID: "data[0].id", Until: capri.HTTPRule{Path: "state", In: []string{"DONE", "FAILED"}}, EveryS: 10, LimitMinutes: 60}, c.Poll)

	out, err := Export(specsOf(items))
	require.NoError(t, err)
	again, err := Parse([]Source{{Name: "x", Data: out}})
	require.NoError(t, err)
	for i := range items {
		assert.Nil(t, Diff(&items[i].Spec, &again[i].Spec))
	}
}

func TestEachJobTypeHasItsRule(t *testing.T) {
	assert.Len(t, typeRules, len(capri.JobTypes))
	for _, name := range capri.JobTypes {
		assert.Contains(t, typeRules, name)
	}
}

// The examples of docs/jobs.md are what people copy.
func TestTheExamplesOfTheDocumentationAreTaken(t *testing.T) {
	page, err := os.ReadFile("../docs/jobs.md")
	require.NoError(t, err)
	seen := map[string]int{}
	for i, block := range strings.Split(string(page), "```yaml\n") {
		if i == 0 {
			continue
		}
		block, _, _ = strings.Cut(block, "```")
		for _, job := range strings.Split("\n"+block, "\njob:")[1:] {
			text := "tasks:\n- name: a\n  period: day\n  job:" + strings.ReplaceAll(job, "\n", "\n  ")
			items, _, err := Check(yamlOf(text), known())
			require.NoError(t, err, "%s", text)
			seen[items[0].Job.Type]++
		}
	}
	for _, name := range capri.JobTypes {
		assert.NotZero(t, seen[name], "no example of %s", name)
	}
}

func TestAClient_that_nodes_lack_is_warned_of(t *testing.T) {
	k := known()
	k.Nodes = []capri.Node{
		{Name: "n1", Pool: "default", Clients: "python,java"}, {Name: "n2", Pool: "default", Clients: "python,java,hive"}, {Name: "n3", Pool: "default", Clients: "?"},
		{Name: "n4", Pool: "default", Clients: "-", Lost: true}, {Name: "n5", Pool: "bare", Clients: "-"},
	}
	for task, want := range map[string]string{
		"job: {type: shell, command: x}":                                       "",
		"job: {type: python, command: x}":                                      "",
		"job: {type: hive, command: x}":                                        "of the nodes that may run it n1 have no hive, and its batches fail there",
		"job: {type: hive, command: x}, worker: {nodes: [n2]}":                 "",
		"job: {type: mapreduce, command: x.jar}, worker: {nodes: [n1, n2]}":    "none of the nodes that may run it (n1, n2) has hadoop",
		"job: {type: python, command: x}, worker: {pool: bare}":                "none of the nodes that may run it (n5) has python",
		"job: {type: presto, command: x}, worker: {pool: nobody_has_this_one}": "",
	} {
		_, warnings, err := Check(yamlOf("tasks: [{name: a, period: day, "+task+"}]"), k)
		require.NoError(t, err, task)
		if want == "" {
			assert.Empty(t, warnings, task)
			continue
		}
		require.Len(t, warnings, 1, task)
		assert.Contains(t, warnings[0], "t.yaml:1: task a: job.type: "+want)
	}
}
