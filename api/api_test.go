package api_test

import (
	"bytes"
	"capri/action"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/api"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// rig is the API on a database, with a key for each role.
type rig struct {
	*actiontest.World
	t       testing.TB
	handler http.Handler
	keys    map[auth.Role]string
	log     *bytes.Buffer
}

type logs struct{}

func (logs) ReadLog(_ context.Context, b store.BatchRow, attempt int, stderr bool, offset int64, limit int) ([]byte, int64, bool, error) {
	text := fmt.Sprintf("attempt %d of %s, stderr %t\n", attempt, b.Task, stderr)
	if offset > int64(len(text)) {
		offset = int64(len(text))
	}
	piece := []byte(text)[offset:min(int(offset)+limit, len(text))]
	return piece, offset + int64(len(piece)), true, nil
}

func newRig(t testing.TB, w *actiontest.World) *rig {
	t.Helper()
	r := &rig{World: w, t: t, keys: map[auth.Role]string{}, log: &bytes.Buffer{}}
	for _, role := range auth.Roles {
		key, err := w.Actions.CreateApp(w.Ctx, actiontest.Who, store.App{Name: "app_" + string(role), Role: string(role)}, store.Credential{})
		require.NoError(t, err)
		r.keys[role] = key
	}
	// The member's key works for the user of its name, a colleague of alice, who owns the tasks.
	require.NoError(t, w.Actions.SaveDepartment(w.Ctx, actiontest.Who, store.Department{Name: "dw"}))
	for _, user := range []string{"alice", "app_member"} {
		require.NoError(t, w.Actions.SaveUser(w.Ctx, actiontest.Who, store.User{Name: user, Department: "dw", Enabled: true}))
	}
	r.handler = api.New(api.Options{Store: w.Store, Actions: w.Actions, Version: "test", Logs: logs{}, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	return r
}

// ask sends a request with a role's key ("" none) and a JSON body ("" none).
func (r *rig) ask(role auth.Role, method, path, body string) *httptest.ResponseRecorder {
	return r.send(r.keys[role], method, path, body)
}

// send sends a request with a key or token, and with what change makes of it.
func (r *rig) send(key, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, c := range change {
		c(req)
	}
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, req)
	return rec
}

func (r *rig) problem(rec *httptest.ResponseRecorder) wire.Problem {
	r.t.Helper()
	var p wire.Problem
	require.Equal(r.t, "application/problem+json", rec.Header().Get("Content-Type"), rec.Body.String())
	require.NoError(r.t, json.Unmarshal(rec.Body.Bytes(), &p), rec.Body.String())
	require.Equal(r.t, rec.Code, p.Status)
	return p
}

const some = `
tasks:
- {name: day, owner: alice, group: g, period: day, job: {command: x}}
- {name: child, owner: alice, group: g, period: day, job: {command: x}, parents: [{task: day}]}
- {name: tick, owner: alice, cron: "0 0/20 * * * ?", job: {command: x}}
`

func TestOpenAPI_is_the_golden_one(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	rec := r.ask("", "GET", "/openapi.json", "")
	require.Equal(t, 200, rec.Code, "it needs no key")
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, rec.Body.Bytes(), "", "  "))
	file := filepath.Join("testdata", "openapi.json")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, indented.Bytes(), 0o644))
	}
	golden, err := os.ReadFile(file)
	require.NoError(t, err, "go test ./api -update writes it")
	assert.Equal(t, string(golden), indented.String(), "the API has changed: go test ./api -update, and tell its clients")
	assert.Equal(t, 200, r.ask("", "GET", "/openapi.yaml", "").Code)
}

func TestEveryOperation_needs_a_key_and_its_role(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	var doc struct {
		Paths map[string]map[string]struct {
			Description string `json:"description"`
			Act         string `json:"x-capri-act"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(r.ask("", "GET", "/openapi.json", "").Body.Bytes(), &doc))
	require.Greater(t, len(doc.Paths), 30)
	var asked sync.WaitGroup
	for path, operations := range doc.Paths {
		concrete := strings.NewReplacer("{name}", "nothing", "{id}", "1", "{code}", "c").Replace(path)
		for method, op := range operations {
			rule, known := auth.RuleOf(auth.Act(op.Act))
			require.True(t, known, "%s %s declares its act", method, path)
			asked.Go(func() { // at once, for whoever has no key waits a little
				code := r.ask("", strings.ToUpper(method), concrete, "").Code
				assert.Equal(t, rule.Public, code != 401, "%s %s without a key", method, path)
			})
			assert.Contains(t, op.Description, rule.Needs(), "%s %s", method, path)
		}
	}
	asked.Wait()
	for _, c := range []struct {
		role         auth.Role
		method, path string
		body         string
		want         int
	}{
		{auth.ReadOnly, "POST", "/tasks/day:execute", "", 403},
		{auth.ReadOnly, "POST", "/batches:kill", `{"ids":[1]}`, 403},
		{auth.Member, "POST", "/batches:kill", `{"ids":[1]}`, 404},
		{auth.Member, "POST", "/nodes/n:drain", "", 403},
		{auth.Admin, "POST", "/nodes/n:drain", "", 404},
		{auth.Member, "POST", "/dispatch:pause", `{"reason":"x"}`, 403},
		{auth.Admin, "POST", "/cold-starts", `{"period":"day","from":"2026-11-18","to":"2026-11-19"}`, 403},
		{auth.SuperAdmin, "POST", "/cold-starts", `{"period":"day","from":"2026-11-18","to":"2026-11-19"}`, 404}, // no task
		{auth.Admin, "POST", "/apps", `{"name":"x","role":"member"}`, 403},
		{auth.Admin, "GET", "/apps", "", 403},
		{auth.Member, "PUT", "/users/bob", `{"name":"bob"}`, 403},
		{auth.Admin, "PUT", "/users/bob", `{}`, 204},
	} {
		assert.Equal(t, c.want, r.ask(c.role, c.method, wire.Prefix+c.path, c.body).Code, "%s %s as %s", c.method, c.path, c.role)
	}
}

func TestBadInput_is_answered_with_the_field(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	r.Apply(some)
	for _, c := range []struct {
		sentence, method, path, body string
		status                       int
		field                        string
	}{
		{"an unknown state", "GET", "/batches?state=foo", "", 422, "state"},
		{"a range that runs backwards", "GET", "/batches?from=2026-11-20&to=2026-11-19", "", 422, "to"},
		{"a time that is none", "GET", "/batches?from=soon", "", 422, "from"},
		{"a limit below one", "GET", "/batches?limit=0", "", 422, "limit"},
		{"a parameter that does not exist", "GET", "/batches?tsak=day", "", 422, "tsak"},
		{"an id that is no number", "GET", "/batches/x", "", 422, "id"},
		{"an id that is not there", "GET", "/batches/999", "", 404, ""},
		{"why of an id that is not there", "GET", "/batches/999/why", "", 404, ""},
		{"a log of an id that is not there", "GET", "/batches/999/logs", "", 404, ""},
		{"batches of a task that is not there", "GET", "/batches?task=nothing", "", 404, ""},
		{"states and finish states in one", "GET", "/batches?state=running,failed", "", 422, "state"},
		{"a period that is none", "GET", "/batches?period=year", "", 422, "period"},
		{"an unknown period of tasks", "GET", "/tasks?period=year", "", 422, "period"},
		{"a task that is not there", "GET", "/tasks/nothing", "", 404, ""},
		{"the history of a task that is not there", "GET", "/tasks/nothing/history", "", 404, ""},
		{"a plan without a range", "GET", "/plan", "", 422, "from"},
		{"a plan backwards", "GET", "/plan?from=2026-11-20&to=2026-11-19", "", 422, "to"},
		{"a plan of a task that is not there", "GET", "/plan?from=2026-11-19&to=2026-11-20&task=nothing", "", 404, ""},
		{"a body that is no JSON", "POST", "/tasks:apply", "{", 400, "body"},
		{"no files", "POST", "/tasks:apply", `{"sources":[]}`, 422, "sources"},
		{"a field that does not exist", "POST", "/tasks:apply", `{"sources":[{"name":"a","data":"tasks: []"}],"wat":1}`, 422, "wat"},
		{"no ids", "POST", "/batches:kill", `{"ids":[]}`, 422, "ids"},
		{"a period that does not exist", "POST", "/cold-starts", `{"period":"year","from":"2026-11-18","to":"2026-11-19"}`, 422, ""},
		{"a third party that says something else", "POST", "/third-party/c", `{"said":"maybe","period":"day","batch_no":"20261119"}`, 422, "said"},
		{"an interval that does not exist", "POST", "/third-party/c", `{"said":"ready","period":"day","batch_no":"20261131"}`, 422, "batch_no"},
		{"a pause that ends in the past", "POST", "/dispatch:pause", `{"reason":"x","until":"2020-01-01"}`, 422, "until"},
		{"another name than in the path", "PUT", "/users/bob", `{"name":"eve"}`, 422, "name"},
		{"a path that does not exist", "GET", "/nothing", "", 404, ""},
		{"a method that does not exist", "PATCH", "/tasks", "", 405, ""},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			rec := r.ask(auth.SuperAdmin, c.method, wire.Prefix+c.path, c.body)
			p := r.problem(rec)
			assert.Equal(t, c.status, rec.Code, rec.Body.String())
			assert.NotEmpty(t, p.Detail)
			if c.field != "" {
				require.NotEmpty(t, p.Errors, rec.Body.String())
				assert.Equal(t, c.field, p.Errors[0].Field, rec.Body.String())
			}
		})
	}
}

func TestBodies_that_are_too_large_are_refused(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	big := `{"sources":[{"name":"a","data":"` + strings.Repeat("x", wire.MaxBody) + `"}]}`
	assert.Equal(t, 413, r.ask(auth.SuperAdmin, "POST", wire.Prefix+"/tasks:apply", big).Code)
	// One that does not say how long it is.
	req := httptest.NewRequest(http.MethodPost, wire.Prefix+"/tasks:apply", io.MultiReader(strings.NewReader(big)))
	req.ContentLength = -1
	req.Header.Set("Authorization", "Bearer "+r.keys[auth.SuperAdmin])
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, req)
	assert.Equal(t, 413, rec.Code)
}

func TestFaults_of_ours_are_a_reference_that_leads_to_the_log(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	_, err := r.Store.DB().Exec("DROP VIEW v_task_work")
	require.NoError(t, err)
	_, err = r.Store.DB().Exec("DROP TABLE task_work")
	require.NoError(t, err)
	rec := r.ask(auth.ReadOnly, "GET", wire.Prefix+"/batches", "")
	p := r.problem(rec)
	require.Equal(t, 500, rec.Code)
	for _, secret := range []string{"SQL", "sql", "task_work", "no such table", "goroutine", ".go:"} {
		assert.NotContains(t, rec.Body.String(), secret)
	}
	words := strings.Fields(p.Detail)
	assert.Contains(t, r.log.String(), words[len(words)-1], "the reference is in the log")
	assert.Contains(t, r.log.String(), "task_work", "with its cause")
}

func TestADatabaseThatIsGone_is_503_without_its_words(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	require.NoError(t, r.Store.Close())
	rec := r.ask(auth.ReadOnly, "GET", wire.Prefix+"/batches", "")
	assert.Contains(t, []int{500, 503}, rec.Code)
	assert.NotContains(t, rec.Body.String(), "sql:")
	assert.Equal(t, 503, r.ask("", "GET", "/readyz", "").Code)
	assert.Equal(t, 200, r.ask("", "GET", "/healthz", "").Code, "the process lives: nobody need restart it")
}

func TestReadyz_says_what_is_missing_and_shows_nothing_else(t *testing.T) {
	w := actiontest.SQLite(t)
	var fits error
	var stopping bool
	h := api.New(api.Options{Store: w.Store, Actions: w.Actions, Fits: func(context.Context) error { return fits }, Stopping: func() bool { return stopping }})
	ready := func() string {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return fmt.Sprintf("%d %s", rec.Code, rec.Body.String())
	}
	assert.Equal(t, "200 ok\n", ready())
	fits = errors.New("schema 3 of capri@10.0.0.1")
	assert.Equal(t, "503 the database's schema does not fit this program\n", ready())
	fits, stopping = nil, true
	assert.Equal(t, "503 it is about to stop\n", ready())
}

func TestHeaders_leave_browsers_nothing_to_guess(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", wire.Prefix + "/tasks", "/nothing"} {
		h := r.ask("", "GET", path, "").Header()
		assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), path)
		assert.Equal(t, "DENY", h.Get("X-Frame-Options"), path)
		assert.Empty(t, h.Get("Access-Control-Allow-Origin"), path)
	}
}

func TestKeys_are_in_no_log(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	stranger := auth.NewKey()
	req := httptest.NewRequest(http.MethodGet, wire.Prefix+"/tasks", nil)
	req.Header.Set("Authorization", "Bearer "+stranger)
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, req)
	assert.Equal(t, 401, rec.Code)
	assert.NotContains(t, r.log.String()+rec.Body.String(), stranger)
	assert.Contains(t, r.log.String(), "no valid key")
}

func TestBatches_are_paged_by_key(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		r.Apply(some)
		rec := r.ask(auth.SuperAdmin, "POST", wire.Prefix+"/cold-starts", `{"period":"day","from":"2026-11-10","to":"2026-11-20"}`)
		require.Equal(t, 200, rec.Code, rec.Body.String())
		r.Campaigns()
		var seen []capri.BatchID
		for cursor := ""; ; {
			var page wire.Page[wire.Batch]
			r.read(&page, auth.ReadOnly, "/batches?limit=5"+cursor)
			for _, b := range page.Items {
				require.NotContains(t, seen, b.ID)
				seen = append(seen, b.ID)
			}
			if page.Next == "" {
				break
			}
			cursor = "&cursor=" + page.Next
		}
		assert.Len(t, seen, 22)
	})
}

func TestABatch_is_shown_with_conditions_attempts_and_events(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		r.Apply(some)
		rec := r.ask(auth.Member, "POST", wire.Prefix+"/tasks/day:execute", "")
		require.Equal(t, 201, rec.Code, rec.Body.String())
		var b wire.Batch
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &b))
		assert.Equal(t, []any{"day", "waiting", "none", "execute", capri.BatchNo("20261119")}, []any{b.Task, b.State, b.FinishState, b.Origin, b.BatchNo})
		assert.Nil(t, b.StartTime)
		assert.Equal(t, 409, r.ask(auth.Member, "POST", wire.Prefix+"/tasks/day:execute", "").Code)
		assert.Equal(t, 404, r.ask(auth.Member, "GET", fmt.Sprintf("%s/batches/%d/logs", wire.Prefix, b.ID), "").Code, "it has not run yet")

		_, err := w.Store.FinishAttempts(w.Ctx, "n1", []store.Result{{Attempt: w.Start(b.ID), Outcome: store.Failed, Message: "exit code 3", Retries: 1}})
		require.NoError(t, err)
		w.Finish(b.ID, store.Succeeded)
		var d wire.BatchDetail
		require.NoError(t, json.Unmarshal(r.ask(auth.Member, "GET", fmt.Sprintf("%s/batches/%d", wire.Prefix, b.ID), "").Body.Bytes(), &d))
		require.Len(t, d.Attempts, 2)
		assert.Equal(t, "exit code 3", d.Attempts[0].Why)
		assert.Equal(t, "none", d.Attempts[0].FinishState)
		assert.Equal(t, "success", d.Attempts[1].FinishState)
		assert.NotNil(t, d.Attempts[1].Started)
		assert.Len(t, d.Events, 8)

		log := r.ask(auth.ReadOnly, "GET", fmt.Sprintf("%s/batches/%d/logs?limit=9", wire.Prefix, b.ID), "")
		assert.Equal(t, "attempt 2", log.Body.String())
		assert.Equal(t, "9", log.Header().Get(wire.HeaderNextOffset))
		assert.Equal(t, "true", log.Header().Get(wire.HeaderComplete))
		assert.Equal(t, 404, r.ask(auth.ReadOnly, "GET", fmt.Sprintf("%s/batches/%d/logs?attempt=3", wire.Prefix, b.ID), "").Code)
	})
}

func TestATimeout_is_no_step_of_an_attempt(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		task := func(minutes int) {
			w.Apply(fmt.Sprintf("tasks:\n- {name: late, period: day, job: {type: shell, command: 'true'}, limits: {output_timeout_minutes: %d}}", minutes))
		}
		task(10)
		b, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: "late"})
		require.NoError(t, err)
		task(1) // what was made already keeps its deadline
		w.Register()
		_, err = w.Store.Assign(w.Ctx, w.Lease(t, "dispatch"), []store.Assignment{{Batch: b.ID, Node: "n1"}})
		require.NoError(t, err)
		claimed, err := w.Store.Claim(w.Ctx, "n1", "boot-1", 1)
		require.NoError(t, err)
		require.Len(t, claimed, 1)

		judge := func(at capri.Instant) store.TimedOut {
			due, err := w.Store.DueDeadlines(w.Ctx, at, store.DueDeadline{}, 10)
			require.NoError(t, err)
			n, err := w.Store.ActOnDeadlines(w.Ctx, w.Lease(t, "timeout"), due, time.UTC)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, judge(w.Clock.Advance(10*time.Minute-time.Millisecond)))
		require.Equal(t, store.TimedOut{Output: 1}, judge(w.Clock.Advance(time.Millisecond)))
		show := func() (d wire.BatchDetail) {
			require.NoError(t, json.Unmarshal(r.ask(auth.Member, "GET", fmt.Sprintf("%s/batches/%d", wire.Prefix, b.ID), "").Body.Bytes(), &d))
			return d
		}
		d := show()
		assert.Equal(t, []any{"running", "output_timeout", 3}, []any{d.State, d.FinishState, len(d.Events)})
		require.Len(t, d.Attempts, 1)
		assert.Nil(t, d.Attempts[0].Started, "it is being prepared")

		now := w.Clock.Advance(time.Minute)
		_, err = w.Store.Start(w.Ctx, "n1", "boot-1", []capri.Attempt{{Batch: b.ID, Number: 1}})
		require.NoError(t, err)
		d = show()
		require.NotNil(t, d.Attempts[0].Started)
		assert.Equal(t, now, capri.InstantOf(*d.Attempts[0].Started))
	})
}

func TestPrune_that_nobody_confirmed_lists_the_names(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	r.Apply(some)
	body := `{"prune":true,"sources":[{"name":"a","data":"tasks: [{name: day, owner: alice, group: g, period: day, job: {command: x}}]"}]}`
	rec := r.ask(auth.Member, "POST", wire.Prefix+"/tasks:apply", body)
	require.Equal(t, 409, rec.Code)
	assert.Equal(t, []string{"child"}, r.problem(rec).Names)
}

func TestPlan_of_the_server(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	r.Apply(some)
	var rows []wire.PlanRow
	require.NoError(t, json.Unmarshal(r.ask(auth.ReadOnly, "GET", wire.Prefix+"/plan?from=2026-11-20&to=2026-11-20T00:30&limit=3", "").Body.Bytes(), &rows))
	require.Len(t, rows, 3)
	got := []string{}
	for _, row := range rows {
		got = append(got, *row.Task+" "+string(row.BatchNo))
	}
	assert.Equal(t, []string{"tick 20261120000000", "child 20261119", "day 20261119"}, got)
}

// Whatever somebody sends, the answer is a document and never a fault of ours.
func FuzzApply(f *testing.F) {
	for _, seed := range []string{some, "tasks: [", "tasks: [{name: x}]", "- a\n- b", "&a [*a]", "tasks: [{name: a, owner: alice, period: day, job: {command: \"${yyyy\"}}]", "\x00", "tasks: {a: 1}"} {
		body, _ := json.Marshal(wire.Apply{Sources: []wire.Source{{Name: "f", Data: seed}}, DryRun: true})
		f.Add(string(body))
	}
	f.Add(`{"sources":null}`)
	f.Add(`[]`)
	r := newRig(f, actiontest.SQLite(f))
	r.Apply(some)
	f.Fuzz(func(t *testing.T, body string) {
		rec := r.ask(auth.SuperAdmin, "POST", wire.Prefix+"/tasks:apply", body)
		if rec.Code >= 500 || rec.Code < 200 {
			t.Fatalf("%d for %q: %s\n%s", rec.Code, body, rec.Body, r.log)
		}
		if !json.Valid(rec.Body.Bytes()) {
			t.Fatalf("no JSON for %q: %s", body, rec.Body)
		}
	})
}
