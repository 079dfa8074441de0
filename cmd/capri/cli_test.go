package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"capri"
	"capri/action/actiontest"
	"capri/api"
	"capri/api/wire"
	"capri/auth"
	"capri/client"
	"capri/services"
	"capri/services/campaign"
	"capri/sql/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// result is how one call of the program ended.
type result struct {
	code     int
	out, err string
}

// capriIn runs the real command line in this process, in an environment of its own.
func capriIn(t testing.TB, env map[string]string, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{in: strings.NewReader(stdin), out: &out, err: &errs, getenv: func(name string) string { return env[name] }}
	code := run(context.Background(), a, args)
	return result{code, out.String(), errs.String()}
}

// cluster is an API on a database, and the command line that talks to it.
type cluster struct {
	*actiontest.World
	t    testing.TB
	env  map[string]string
	turn func() bool // does what the campaign service has to do now, and tells whether that was anything
}

type noLogs struct{}

func (noLogs) ReadLog(_ context.Context, b store.BatchRow, attempt int, stderr bool, offset int64, _ int) ([]byte, int64, bool, error) {
	lines := []string{fmt.Sprintf("hello from attempt %d\n", attempt), "and good bye\n"}
	if stderr {
		lines = []string{"oh\n"}
	}
	text := strings.Join(lines, "")
	if offset == 0 { // in pieces, as a long log comes
		return []byte(lines[0]), int64(len(lines[0])), false, nil
	}
	return []byte(text[offset:]), int64(len(text)), true, nil
}

func newCluster(t testing.TB, w *actiontest.World) *cluster {
	t.Helper()
	key, err := w.Actions.CreateApp(w.Ctx, actiontest.Who, store.App{Name: "cli", Role: string(auth.SuperAdmin)}, store.Credential{})
	require.NoError(t, err)
	srv := httptest.NewServer(api.New(api.Options{Store: w.Store, Actions: w.Actions, Version: "test", Logs: noLogs{}}))
	t.Cleanup(srv.Close)
	return &cluster{World: w, t: t, env: map[string]string{"CAPRI_SERVER": srv.URL, "CAPRI_TOKEN": key}, turn: runCampaigns(t, w)}
}

// runCampaigns is the one service of these tests: whoever asks for batches waits until they exist. It returns a turn of it.
func runCampaigns(t testing.TB, w *actiontest.World) func() bool {
	t.Helper()
	lease := w.Lease(t, "campaign")
	service := campaign.New(w.Store, w.Actions.Calendar(), slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(w.Ctx)
	var one sync.Mutex // the service has one leader
	turn := func() bool {
		one.Lock()
		defer one.Unlock()
		res, err := service.Run(ctx, services.Turn{Now: w.Clock.Now(), Lease: lease, Woken: true})
		if err != nil && ctx.Err() == nil {
			t.Errorf("campaigns: %v", err)
		}
		return len(res.Counts) > 0
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			turn()
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return turn
}

// Start takes a batch to a node. A command that made it ended as soon as it existed; its campaign has to let it go first.
func (c *cluster) Start(id capri.BatchID) capri.Attempt {
	c.t.Helper()
	for c.turn() {
	}
	return c.World.Start(id)
}

// Finish takes a batch to its end, likewise.
func (c *cluster) Finish(id capri.BatchID, outcome store.Outcome) {
	c.t.Helper()
	for c.turn() {
	}
	c.World.Finish(id, outcome)
}

func (c *cluster) client() *client.Client {
	c.t.Helper()
	out, err := client.New(c.env["CAPRI_SERVER"], c.env["CAPRI_TOKEN"], "test", nil)
	require.NoError(c.t, err)
	return out
}

func (c *cluster) capri(args ...string) result {
	c.t.Helper()
	return capriIn(c.t, c.env, "", args...)
}

// onScreen is capri for a person at a terminal of so many columns.
func (c *cluster) onScreen(columns int, args ...string) result {
	var out, errs bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, getenv: func(name string) string { return c.env[name] }, screen: terminal{columns: columns}}
	return result{run(c.Ctx, a, args), out.String(), errs.String()}
}

// json runs a command that must succeed, and reads its JSON.
func (c *cluster) json(v any, args ...string) {
	c.t.Helper()
	r := c.capri(append(args, "-o", "json")...)
	require.Zero(c.t, r.code, "%v: %s", args, r.err)
	require.NoError(c.t, json.Unmarshal([]byte(r.out), v), r.out)
}

// golden compares with testdata/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "go test ./cmd/capri -update writes it")
	assert.Equal(t, string(want), got)
}

const tasks = `
tasks:
- {name: orders, title: "What came in", owner: alice, group: dw, period: day, priority: 2, job: {command: "load.sh ${yyyyMMdd}"}, inputs: [{path: "/in/${yyyyMMdd}"}]}
- {name: report, owner: alice, group: dw, period: day, job: {command: "report.sh"}, parents: [{task: orders}]}
- {name: tick, owner: alice, cron: "0 0/20 * * * ?", job: {command: "echo && true"}}
- {name: settle, owner: alice, period: day, job: {command: x}, third_party: [{code: closed}]}
`

func write(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestPlan_without_a_server(t *testing.T) {
	t.Setenv("CAPRI_TIMEZONE", "Asia/Shanghai")
	plan := func(args ...string) []wire.PlanRow {
		t.Helper()
		r := capriIn(t, nil, "", append([]string{"plan", "-o", "json"}, args...)...)
		require.Zero(t, r.code, r.err)
		var rows []wire.PlanRow
		require.NoError(t, json.Unmarshal([]byte(r.out), &rows))
		for _, row := range rows {
			assert.Nil(t, row.Task)
		}
		return rows
	}
	fires := plan("--cron", "0 30 2 * * ?", "--timezone", "America/New_York", "--from", "2026-03-06", "--to", "2026-03-10")
	var got []string
	for _, f := range fires {
		got = append(got, string(f.BatchNo)+" "+f.Mark.Format(time.RFC3339))
	}
	assert.Equal(t, []string{"20260306023000 2026-03-06T02:30:00-05:00", "20260307023000 2026-03-07T02:30:00-05:00", "20260309023000 2026-03-09T02:30:00-04:00"}, got,
		"a bare date is its start, and 02:30 of the 8th does not exist")
	first := plan("--cron", "0 0 0 1 1 ? 2030", "--timezone", "UTC", "--from", "2029-01-01", "--to", "2031-01-01")
	require.Len(t, first, 1)
	assert.Equal(t, first[0].DataStart, first[0].DataEnd, "a first fire has no data before it")
	assert.Len(t, plan("--period", "hour", "--timezone", "UTC", "--from", "2026-01-01", "--to", "2027-01-01"), 1000, "the default limit")
	assert.Len(t, plan("--period", "day", "--from", "2026-01-01", "--to", "2026-01-10", "--limit", "3"), 3)
	assert.Equal(t, "+0800", plan("--period", "day", "--from", "2026-01-01", "--to", "2026-01-02")[0].Mark.Format("-0700"), "the configured zone")
	assert.Empty(t, plan("--period", "day", "--from", "2026-01-01", "--to", "2026-01-01"))
}

func TestBadUsage_is_exit_code_2_and_a_sentence(t *testing.T) {
	for _, line := range []string{
		"", "task", "task lst", "nothing", "task list --wat", "batch show", "batch show 1 2", "batch show x", "batch list -o xml", "task list extra",
		"plan", "plan --from 2026-01-01", "plan --period day --cron x --from 2026-01-01 --to 2026-01-02",
		"plan --period day --from 2026-01-02 --to 2026-01-01", "plan --period day --from soon --to 2026-01-01",
		"plan --period day --timezone Mars/Base --from 2026-01-01 --to 2026-01-02", "plan --period year --from 2026-01-01 --to 2026-01-02",
		"plan --period manual --from 2026-01-01 --to 2026-01-02", "plan --cron bad --from 2026-01-01 --to 2026-01-02",
		"plan --period day --from 2026-01-01 --to 2026-01-02 --limit 0", "plan --timezone UTC --from 2026-01-01 --to 2026-01-02",
		"cold-start", "cold-start --period day --from 2026-01-01", "cold-start --period year --from 2026-01-01 --to 2026-01-02",
		"cold-start --period day --from 2026-01-01 --to 2026-01-02 --only some", "task apply", "task apply -f /nowhere/at/all",
		"third-party ready", "third-party ready c", "third-party ready c --interval 1 --period year", "pause", "account grant etl", "app create x",
		"kill x", "kill", "batch list --limit -1", "logs 1 --attempt -1", "status --server ftp://x", "status --token a --token-file b", "status --token-file /nowhere",
		"config check --config /nowhere.yaml", "sample load --folder relative",
	} {
		t.Run(line, func(t *testing.T) {
			r := capriIn(t, map[string]string{"CAPRI_TOKEN": "capri_x", "CAPRI_SERVER": "http://127.0.0.1:1"}, "", strings.Fields(line)...)
			if strings.HasPrefix(line, "status --token a") || strings.HasPrefix(line, "status --token-file") || strings.HasPrefix(line, "status --server") {
				r = capriIn(t, map[string]string{}, "", strings.Fields(line)...)
			}
			assert.Equal(t, exitUsage, r.code, r.err)
			assert.NotEmpty(t, r.err)
			assert.Empty(t, r.out, "stdout is for what programs read")
		})
	}
}

func TestAServerThatIsDown_is_exit_code_5(t *testing.T) {
	for _, line := range []string{"status", "batch list", "task list", "execute x", "node list", "plan --from 2026-01-01 --to 2026-01-02"} {
		r := capriIn(t, map[string]string{"CAPRI_SERVER": "http://127.0.0.1:1", "CAPRI_TOKEN": "capri_x"}, "", strings.Fields(line)...)
		assert.Equal(t, exitUnreachable, r.code, line)
		assert.Contains(t, r.err, "http://127.0.0.1:1")
	}
	// Something that is no Capri.
	other := httptest.NewServer(nil)
	defer other.Close()
	r := capriIn(t, map[string]string{"CAPRI_SERVER": other.URL}, "", "status")
	assert.Equal(t, exitUnreachable, r.code, r.err)
}

func TestExitCodes_say_what_happened(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply(tasks)
	for _, tt := range []struct {
		line string
		code int
		says string
	}{
		{"execute orders", exitDone, "20261119"},
		{"execute orders", exitRefused, "wait for it, or kill it first"},
		{"execute nothing", exitNotFound, `"nothing"`},
		{"task show nothing", exitNotFound, "nothing"},
		{"task history nothing", exitNotFound, "nothing"},
		{"task export nothing", exitNotFound, "nothing"},
		{"task enable nothing", exitNotFound, "nothing"},
		{"task delete nothing --yes", exitNotFound, "nothing"},
		{"task delete orders --yes", exitRefused, "report"},
		{"task delete orders", exitUsage, "--yes"},
		{"batch show 999999", exitNotFound, "999999"},
		{"batch list --task nothing", exitNotFound, "nothing"},
		{"batch list --state nothing", exitUsage, "state"},
		{"batch list --from 2026-11-20 --to 2026-11-19", exitUsage, "to"},
		{"why 999999", exitNotFound, "999999"},
		{"logs 999999", exitNotFound, "999999"},
		{"kill 999999 --yes", exitNotFound, "999999"},
		{"hold 999999", exitNotFound, "999999"},
		{"cold-start --period day --from 2026-11-19 --to 2026-11-18", exitUsage, "not before"},
		{"cold-start --period day --from 2026-11-19 --to 2026-12-18", exitUsage, "not later than now"},
		{"cold-start --period day --from 2026-11-19 --to 2026-11-19 --task nothing", exitNotFound, "nothing"},
		{"cold-start --period month --from 2026-11-19 --to 2026-11-19", exitNotFound, "month"},
		{"cold-start --period month --period week,year --from 2026-11-19 --to 2026-11-19", exitUsage, "year"},
		{"cold-start --period month,week --from 2026-11-19 --to 2026-11-19", exitNotFound, "month or week"},
		{"cold-start --period fortnight --from 2026-11-19 --to 2026-11-19", exitUsage, "want hour, day, week, month or cron (a manual task has no marks"},
		{"cold-start --period manual --from 2026-11-19 --to 2026-11-19", exitUsage, "capri execute runs it"},
		{"plan --period fortnight --from 2026-11-19 --to 2026-11-20", exitUsage, "want hour, day, week or month"},
		{"campaign list --state happy", exitUsage, "want one of previewed, creating"},
		{"events --task nothing", exitNotFound, "nothing"},
		{"third-party ready closed --period day --interval 2026", exitUsage, "batch_no"},
		{"node drain nothing", exitNotFound, "nothing"},
		{"node remove nothing --yes", exitNotFound, "nothing"},
		{"service trigger nothing", exitNotFound, "nothing"},
		{"user delete nothing --yes", exitNotFound, "nothing"},
		{"user delete alice --yes", exitRefused, "owns tasks"},
		{"account grant root --user alice", exitUsage, "root"},
		{"app delete cli --yes", exitRefused, "itself"},
		{"plan --task nothing --from 2026-11-19 --to 2026-11-20", exitNotFound, "nothing"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			r := c.capri(strings.Fields(tt.line)...)
			assert.Equal(t, tt.code, r.code, "%s%s", r.out, r.err)
			assert.Contains(t, r.out+r.err, tt.says)
			if tt.code != exitDone {
				assert.Empty(t, r.out)
				assert.True(t, strings.HasPrefix(r.err, "capri: "), r.err)
			}
		})
	}
	r := capriIn(t, map[string]string{"CAPRI_SERVER": c.env["CAPRI_SERVER"], "CAPRI_TOKEN": auth.NewKey()}, "", "status")
	assert.Equal(t, exitRefused, r.code, "an unknown key: %s", r.err)
	assert.Contains(t, r.err, "CAPRI_TOKEN")
}

func TestTaskApply_names_every_mistake_a_line_each(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	file := write(t, "bad.yaml", "tasks:\n- {name: a b, owner: alice, period: day, job: {command: x}}\n- {name: b, owner: nobody_knows, perid: day, job: {command: x}}\n")
	r := c.capri("task", "apply", "-f", file)
	assert.Equal(t, exitUsage, r.code)
	assert.Empty(t, r.out)
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	assert.GreaterOrEqual(t, len(lines), 3, r.err)
	for _, part := range []string{"bad.yaml:2", "bad.yaml:3", "did you mean period?", "nobody_knows"} {
		assert.Contains(t, r.err, part)
	}
	many := c.capri("task", "apply", "-f", write(t, "many.yaml", "tasks:\n"+strings.Repeat("- {name: a b, period: day, job: {command: x}}\n", 300)))
	assert.Equal(t, exitUsage, many.code)
	lines = strings.Split(strings.TrimSpace(many.err), "\n")
	assert.Len(t, lines, 101)
	assert.Regexp(t, "^capri: and [0-9]+ more$", lines[100])
	broken := c.capri("task", "apply", "-f", write(t, "broken.yaml", "tasks: [{name: "))
	assert.Equal(t, exitUsage, broken.code)
	assert.Contains(t, broken.err, "broken.yaml")
}

func TestTaskApply_dry_run_prune_and_export(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	all := write(t, "all.yaml", tasks)
	dry := c.capri("task", "apply", "-f", all, "--dry-run")
	assert.Contains(t, dry.out, "4 created, 0 changed, 0 deleted, 0 unchanged (dry run: nothing was changed)")
	assert.Zero(t, c.capri("task", "apply", "-f", all).code)
	var applied wire.Applied
	c.json(&applied, "task", "apply", "-f", all)
	assert.Len(t, applied.Unchanged, 4)

	fewer := write(t, "fewer.yaml", `tasks: [{name: orders, owner: alice, group: dw, period: day, priority: 3, job: {command: "load.sh"}}]`)
	r := c.capri("task", "apply", "-f", fewer, "--prune")
	assert.Equal(t, exitUsage, r.code, "it asks, and nobody is there to answer")
	assert.Contains(t, r.err, "report")
	r = c.capri("task", "apply", "-f", fewer, "--prune", "--yes")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "- report")
	assert.Contains(t, r.out, "    priority: 2 → 3")

	exported := c.capri("task", "export", "--group", "dw")
	require.Zero(t, exported.code)
	c.json(&applied, "task", "apply", "-f", write(t, "exported.yaml", exported.out))
	assert.Equal(t, []string{"orders"}, applied.Unchanged)
	stdin := capriIn(t, c.env, tasks, "task", "apply", "-f", "-", "-o", "json")
	assert.Zero(t, stdin.code, stdin.err)
}

func TestTables_are_the_golden_ones_and_fit_100_columns(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply(tasks)
	require.Zero(t, c.capri("cold-start", "--period", "day", "--from", "2026-11-19", "--to", "2026-11-20").code)
	c.Look()
	require.Zero(t, c.capri("third-party", "ready", "closed", "--period", "day", "--interval", "20261118").code)
	c.Look()
	settle := c.Latest("settle", "20261118").ID
	c.Finish(settle, store.Succeeded)
	report := c.Latest("report", "20261119").ID
	id := func(n capri.BatchID) string { return fmt.Sprint(n) }
	var b strings.Builder
	for _, args := range [][]string{
		{"status"}, {"task", "list"}, {"task", "show", "orders"}, {"task", "history", "orders"}, {"batch", "list"}, {"batch", "list", "--state", "success"},
		{"batch", "show", id(report)}, {"batch", "show", id(settle)}, {"why", id(report)}, {"why", id(settle)}, {"logs", id(settle)}, {"logs", id(settle), "--stderr"},
		{"cold-start", "--period", "day", "--from", "2026-11-19", "--to", "2026-11-20", "--preview"},
		{"plan", "--from", "2026-11-20", "--to", "2026-11-20 00:30"}, {"hold", id(report), "--reason", "look first"}, {"release", id(report)},
		{"node", "list"}, {"service", "list"}, {"pause", "--reason", "upgrade"}, {"resume"},
		{"pause", "--group", "dw", "--reason", "bad data", "--until", "2026-11-20 12:00"}, {"breaker", "open", "--task", "settle", "--reason", "it does harm"}, {"dispatch", "limit", "50"},
		{"pause", "--list"}, {"breaker", "list"}, {"dispatch", "show"}, {"status"}, {"run-now", id(report), "--reason", "urgent"}, {"why", id(report)},
		{"resume", "--group", "dw"}, {"breaker", "close", "--task", "settle"}, {"dispatch", "limit", "-1"}, {"dispatch", "show"}, {"alert", "list"}, {"action", "list"},
		{"user", "list"}, {"user", "set", "bob", "--mail", "bob@example.org"}, {"department", "list"}, {"account", "list"}, {"app", "list"},
		{"kill", id(report), "--yes"}, {"force-success", id(report), "--yes", "--reason", "made by hand"}, {"execute", "tick"},
		{"execute", "orders", "--interval", "20261117", "--param", "mode=full"}, {"run-now", "tick", "--reason", "urgent"}, {"task", "disable", "tick", "--reason", "not needed"},
	} {
		r := c.onScreen(100, args...)
		fmt.Fprintf(&b, "$ capri %s\n%s%s\n", strings.Join(args, " "), r.out, r.err)
		assert.Zero(t, r.code, "%v: %s", args, r.err)
		for _, line := range strings.Split(r.out, "\n") {
			if args[0] != "task" || args[1] == "list" { // a task's own text is as long as it is
				assert.LessOrEqual(t, utf8.RuneCountInString(line), 100, "%v: %s", args, line)
			}
			assert.Equal(t, strings.TrimRight(line, " "), line, "%v ends with blanks", args)
		}
	}
	golden(t, "tables.txt", b.String())
}

func TestEveryFormat_says_the_same(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply(tasks)
	require.Zero(t, c.capri("execute", "settle").code)
	for _, args := range [][]string{{"status"}, {"task", "list"}, {"task", "show", "settle"}, {"batch", "list"}, {"user", "list"}, {"node", "list"}, {"plan", "--from", "2026-11-20", "--to", "2026-11-21"}, {"version"}, {"config", "check"}} {
		fromJSON, fromYAML := any(nil), any(nil)
		j, y := c.capri(append(args, "-o", "json")...), c.capri(append(args, "-o", "yaml")...)
		require.Zero(t, j.code, j.err)
		require.NoError(t, json.Unmarshal([]byte(j.out), &fromJSON), j.out)
		require.NoError(t, yaml.Unmarshal([]byte(y.out), &fromYAML), y.out)
		again, err := json.Marshal(fromYAML)
		require.NoError(t, err)
		want, err := json.Marshal(fromJSON)
		require.NoError(t, err)
		assert.JSONEq(t, string(want), string(again), "%v", args)
		assert.NotContains(t, y.out, "{\"", "YAML for people, not JSON")
	}
	var batches []map[string]any
	c.json(&batches, "batch", "list")
	require.Len(t, batches, 1)
	for key, want := range map[string]any{"task": "settle", "batch_no": "20261119", "state": "waiting", "finish_state": "none", "schedule_time": "2026-11-20T09:30:00Z", "start_time": nil, "unmet": 1.0, "run_no": 0.0} {
		assert.Equal(t, want, batches[0][key], key)
	}
	var none []any
	c.json(&none, "node", "list")
	assert.NotNil(t, none, "none is [] and never null")
}

func TestBatchList_goes_over_pages(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply(tasks)
	require.Zero(t, c.capri("cold-start", "--period", "day", "--from", "2026-11-01", "--to", "2026-11-20", "-o", "json").code)
	var some, all, oldest []wire.Batch
	c.json(&some, "batch", "list", "--limit", "10")
	require.Len(t, some, 10)
	c.json(&all, "batch", "list", "--limit", "5000")
	assert.Len(t, all, 60)
	c.json(&oldest, "batch", "list", "--limit", "1", "--oldest", "--group", "nobody's")
	assert.Empty(t, oldest)
	c.json(&oldest, "batch", "list", "--limit", "1", "--oldest", "--task", "ord*", "--state", "waiting,running", "--period", "day")
	require.Len(t, oldest, 1)
	assert.Equal(t, capri.BatchNo("20261031"), oldest[0].BatchNo)
	var byData []wire.Batch
	c.json(&byData, "batch", "list", "--task", "orders", "--by-data", "--from", "2026-11-10", "--to", "2026-11-12 00:00")
	assert.Len(t, byData, 2)
}

func TestColdStart_asks_before_what_has_finished_runs_again(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply(`tasks: [{name: day, owner: alice, period: day, job: {command: x}}]`)
	args := []string{"cold-start", "--period", "day", "--from", "2026-11-20", "--to", "2026-11-20"}
	require.Zero(t, c.capri(args...).code)
	c.Finish(c.Latest("day", "20261119").ID, store.Succeeded)
	again := slices.Concat(args, []string{"--only", "all"})
	r := c.capri(again...)
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.err, "run 1 batches again")
	require.Zero(t, c.capri(append(again, "--preview")...).code, "a preview need not ask")
	require.Zero(t, c.capri(append(again, "--yes")...).code)
	assert.Equal(t, 1, c.Latest("day", "20261119").RunNo)
}

func TestTheKeyOfALocalStandalone_is_found(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	dir := t.TempDir()
	_, err := auth.EnsureAdminKey(c.Ctx, c.Store, dir)
	require.NoError(t, err)
	env := map[string]string{"CAPRI_SERVER": c.env["CAPRI_SERVER"], "CAPRI_DATA": dir}
	assert.Zero(t, capriIn(t, env, "", "status").code)
	assert.Zero(t, capriIn(t, map[string]string{"CAPRI_SERVER": c.env["CAPRI_SERVER"]}, "", "status", "--token-file", auth.AdminKeyFile(dir)).code)
	env["CAPRI_SERVER"] = "http://example.invalid:1"
	a := &app{getenv: func(n string) string { return env[n] }}
	a.root = newRoot(a)
	key, err := a.key(env["CAPRI_SERVER"])
	require.NoError(t, err)
	assert.Empty(t, key, "it goes to no other machine")
}

func TestMigrate_and_doctor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	t.Setenv("CAPRI_DATA", dir)
	t.Setenv("CAPRI_TIMEZONE", "UTC")
	local := func(args ...string) result {
		return capriIn(t, map[string]string{"CAPRI_SERVER": "http://127.0.0.1:1"}, "", args...)
	}
	assert.Equal(t, exitNotFound, local("migrate", "status").code, "there is no database yet, and looking makes none")
	require.NoFileExists(t, filepath.Join(dir, databaseFile))
	up := local("migrate", "up", "-o", "json")
	require.Zero(t, up.code, up.err)
	assert.Contains(t, up.out, "00001_")
	assert.Contains(t, local("migrate", "up").out, "nothing to do")
	assert.Contains(t, local("migrate", "status").out, "yes")
	for _, cmd := range []string{"reset", "clean"} {
		assert.Equal(t, exitUsage, local("migrate", cmd).code, "it asks")
		r := local("migrate", cmd, "--yes")
		assert.Zero(t, r.code, r.err)
	}

	var findings []finding
	r := local("doctor", "-o", "json")
	assert.Equal(t, exitFailed, r.code, "no API, no shim beside the test")
	require.NoError(t, json.Unmarshal([]byte(r.out), &findings), r.out)
	is := map[string]bool{}
	for _, f := range findings {
		is[f.Check] = f.OK
		assert.Equal(t, f.OK, f.Advice == "", "a fault says what to do: %+v", f)
	}
	assert.Equal(t, map[string]bool{"configuration": true, "data directory": true, "database": true, "schema": true, "leases": true, "zone": true, "redis": true, "hdfs": true, "shim": false, "clients": true, "api": false}, is)

	t.Setenv("CAPRI_HDFS_NAME_NODES", "wh=127.0.0.1:1")
	r = local("doctor")
	assert.Regexp(t, regexp.MustCompile(`FAULT +hdfs +wh: 127.0.0.1:1: .*refused(?s:.*)FAULT +hdfs +wh has no active name-node`), r.out)
	t.Setenv("CAPRI_HDFS_NAME_NODES", "")

	t.Setenv("CAPRI_WORKER_CLIENTS_HIVE", "/opt/no/such/hive")
	r = local("doctor")
	assert.Regexp(t, regexp.MustCompile(`FAULT +clients +worker.clients.hive: "/opt/no/such/hive"`), r.out)
	t.Setenv("CAPRI_WORKER_CLIENTS_HIVE", "")

	t.Setenv("CAPRI_TIMEZONE", "Asia/Tokyo")
	r = local("doctor")
	assert.Regexp(t, regexp.MustCompile(`FAULT +zone`), r.out)
	t.Setenv("CAPRI_TIMEZONE", "Mars")
	r = local("doctor")
	assert.Regexp(t, regexp.MustCompile(`FAULT +configuration`), r.out)
	assert.Equal(t, exitFailed, r.code)
}

func TestSample_shows_what_runs_and_what_waits(t *testing.T) {
	w := actiontest.SQLite(t)
	c := newCluster(t, w)
	var loaded sampleLoaded
	c.json(&loaded, "sample", "load", "--folder", t.TempDir())
	assert.Len(t, loaded.Applied.Created, 9)
	assert.Equal(t, capri.BatchNo("20261119"), loaded.Day)
	assert.Equal(t, 33*3+4, loaded.Made, "33 hours of three tasks, and the day of four")
	w.Look()
	assert.Zero(t, w.Latest("sample_settlement", "20261119").Unmet, "its third party has spoken")
	assert.Equal(t, 2, w.Latest("sample_statement", "20261119").Unmet)
	why := c.capri("why", fmt.Sprint(loaded.Waiting))
	assert.Contains(t, why.out, "sample_bank_closed")

	c.json(&loaded, "sample", "load", "--folder", t.TempDir())
	assert.Zero(t, loaded.Made, "a second time makes nothing twice")
}

func TestTheTerminal_is_not_steered_by_what_jobs_write(t *testing.T) {
	assert.Equal(t, "a b[31mc", oneLine("a\nb\x1b[31mc\x00\u009b"))
}
