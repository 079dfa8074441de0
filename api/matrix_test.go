package api_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/alerting"
	"capri/api"
	"capri/auth"
	"capri/sql/store"
)

// The access matrix: each route asked by each kind of caller, as real requests, about things that belong to the user
// owner of the department dw. testdata/access.txt shows it. A route that nobody has said how to ask (how) makes the
// test fail, and so does every cell that changes until the file is written anew (-update) and read again.

// caller is a column.
type caller struct {
	name       string
	role       auth.Role // of a user or app
	department string
	doc        string
}

var callers = []caller{
	{"nobody", "", "", "no key at all"},
	{"looks", auth.ReadOnly, "dw", "read-only, of the department dw"},
	{"looks_bi", auth.ReadOnly, "bi", "read-only, of another department"},
	{"owner", auth.Member, "dw", "the member to whom all the things asked about belong"},
	{"colleague", auth.Member, "dw", "another member of the same department"},
	{"stranger", auth.Member, "bi", "a member of another department"},
	{"admin", auth.Admin, "", "an admin"},
	{"super", auth.SuperAdmin, "", "a super admin"},
	{"app", auth.SuperAdmin, "", "a mighty app whose key has the scope that the act needs, and no other"},
	{"app_not", auth.SuperAdmin, "", "a mighty app whose key has every scope but that"},
	{"worker", "", "", "the key of a worker"},
	{"job", "", "", "the token of an attempt"},
}

// how a route is asked. $name stands for a thing of the world. Of a route that is not here the pattern is the path.
type how struct {
	path     string // "": the pattern
	body     string
	stream   bool   // it goes on until the caller leaves
	unlogged string // why a success of what changes something leaves no line in the log
}

const noChange = "it changes nothing"

var hows = map[string]how{
	"GET /ack":  {path: "/ack?t=$link"},
	"POST /ack": {path: "/ack?t=$link"},

	"GET /api/v1/tasks/{name}":                        {path: "/tasks/t"},
	"GET /api/v1/tasks/{name}/history":                {path: "/tasks/t/history"},
	"POST /api/v1/tasks:apply":                        {body: `{"sources":[{"name":"f.yaml","data":"tasks: [{name: t, owner: owner, group: g, period: day, priority: 1, job: {command: x}}]"}]}`},
	"GET /api/v1/tasks:export":                        {path: "/tasks:export?names=t"},
	"POST /api/v1/tasks/{name}:enable":                {path: "/tasks/off:enable"},
	"POST /api/v1/tasks/{name}:disable":               {path: "/tasks/t:disable"},
	"DELETE /api/v1/tasks/{name}":                     {path: "/tasks/t"},
	"POST /api/v1/tasks/{name}:execute":               {path: "/tasks/idle:execute"},
	"POST /api/v1/tasks/{name}/rerun":                 {path: "/tasks/idle/rerun", body: `{"from":"2026-11-19","to":"2026-11-20"}`},
	"PUT /api/v1/tasks/{name}/alert-grants/{user}":    {path: "/tasks/t/alert-grants/looks", body: `{"mail":true}`},
	"DELETE /api/v1/tasks/{name}/alert-grants/{user}": {path: "/tasks/t/alert-grants/colleague"},
	"POST /api/v1/cold-starts":                        {body: `{"period":"day","from":"2026-11-18","to":"2026-11-19","tasks":["t"]}`},
	"GET /api/v1/plan":                                {path: "/plan?task=t&from=2026-11-20&to=2026-11-21"},
	"GET /api/v1/batches":                             {path: "/batches?task=t"},
	"GET /api/v1/batches/{id}":                        {path: "/batches/$waiting"},
	"GET /api/v1/batches/{id}/why":                    {path: "/batches/$waiting/why"},
	"GET /api/v1/batches/{id}/logs":                   {path: "/batches/$running/logs"},
	"POST /api/v1/batches:kill":                       {body: `{"ids":[$waiting]}`},
	"POST /api/v1/batches:hold":                       {body: `{"ids":[$waiting]}`},
	"POST /api/v1/batches:release":                    {body: `{"ids":[$held]}`},
	"POST /api/v1/batches:force-success":              {body: `{"ids":[$waiting],"reason":"x"}`},
	"POST /api/v1/batches:run-now":                    {body: `{"ids":[$waiting]}`},
	"POST /api/v1/tasks/{name}:run-now":               {path: "/tasks/idle:run-now"},
	"POST /api/v1/tasks:enable":                       {body: `{"names":["off"]}`},
	"POST /api/v1/tasks:disable":                      {body: `{"names":["t"]}`},
	"POST /api/v1/dispatch:limit":                     {body: `{"max_running":9}`},
	"POST /api/v1/breakers:open":                      {body: `{"task":"t","reason":"x"}`},
	"POST /api/v1/breakers:close":                     {body: `{"task":"stopped"}`},
	"GET /api/v1/campaigns/{id}":                      {path: "/campaigns/$preview"},
	"GET /api/v1/campaigns/{id}/items":                {path: "/campaigns/$preview/items"},
	"POST /api/v1/campaigns/{id}/run":                 {path: "/campaigns/$preview/run", body: `{}`},
	"POST /api/v1/campaigns/{id}/drop":                {path: "/campaigns/$preview/drop", body: `{"items":["c1:20261118"]}`},
	"POST /api/v1/campaigns/{id}/limit":               {path: "/campaigns/$going/limit", body: `{"limit":3}`},
	"POST /api/v1/campaigns/{id}/pause":               {path: "/campaigns/$going/pause", body: `{"reason":"x"}`},
	"POST /api/v1/campaigns/{id}/resume":              {path: "/campaigns/$paused/resume", body: `{}`},
	"POST /api/v1/campaigns/{id}/cancel":              {path: "/campaigns/$going/cancel", body: `{"reason":"x"}`},
	"GET /api/v1/events":                              {path: "/events", stream: true},
	"POST /api/v1/batches/{id}/quality":               {path: "/batches/$gated/quality", body: `{"ask":1,"verdict":"runnable"}`},
	"POST /api/v1/attempt/code":                       {body: `{"code":0}`, unlogged: "jobs report, and change nothing of people's"},
	"POST /api/v1/attempt/progress":                   {body: `{"percent":42}`, unlogged: "jobs report, and change nothing of people's"},
	"POST /api/v1/attempt/application":                {body: `{"id":"application_17_0042"}`, unlogged: "jobs report, and change nothing of people's"},
	"POST /api/v1/third-party/{code}":                 {path: "/third-party/closed", body: `{"period":"day","batch_no":"20261119","said":"ready"}`},
	"POST /api/v1/alerts":                             {body: `{"level":"attention","title":"odd","task":"t"}`},
	"POST /api/v1/alerts/test":                        {body: `{"channel":"mail","to":"a@example.org"}`, unlogged: noChange},
	"GET /api/v1/incidents/{id}":                      {path: "/incidents/7"},
	"POST /api/v1/incidents/{id}/ack":                 {path: "/incidents/7/ack"},
	"POST /api/v1/silences":                           {body: `{"task":"t","reason":"we know","until":"2026-11-21"}`},
	"DELETE /api/v1/silences/{id}":                    {path: "/silences/$silence"},
	"PUT /api/v1/duty":                                {body: `{"rotas":[{"department":"dw","primary":{"people":["owner"],"start":"2026-11-16"}}]}`},
	"GET /api/v1/duty/{department}":                   {path: "/duty/dw"},
	"PUT /api/v1/duty/{department}":                   {path: "/duty/dw", body: `{"primary":{"people":["owner"],"start":"2026-11-16"}}`},
	"DELETE /api/v1/duty/{department}":                {path: "/duty/dw"},
	"POST /api/v1/duty/overrides":                     {body: `{"department":"dw","place":"primary","user":"owner","from":"2026-12-01","to":"2026-12-02","reason":"x"}`},
	"DELETE /api/v1/duty/overrides/{id}":              {path: "/duty/overrides/$override"},
	"POST /api/v1/nodes/{name}:drain":                 {path: "/nodes/n1:drain"},
	"POST /api/v1/nodes/{name}:resume":                {path: "/nodes/n1:resume"},
	"DELETE /api/v1/nodes/{name}":                     {path: "/nodes/n9"},
	"GET /api/v1/services/{name}/runs":                {path: "/services/cleanup/runs"},
	"POST /api/v1/services/{name}:trigger":            {path: "/services/cleanup:trigger"},
	"POST /api/v1/dispatch:pause":                     {body: `{"reason":"x"}`},
	"PUT /api/v1/users/{name}":                        {path: "/users/idle", body: `{"department":"dw"}`},
	"DELETE /api/v1/users/{name}":                     {path: "/users/idle"},
	"PUT /api/v1/departments/{name}":                  {path: "/departments/new", body: `{"title":"New"}`},
	"DELETE /api/v1/departments/{name}":               {path: "/departments/empty"},
	"PUT /api/v1/account-grants":                      {body: `{"account":"etl","kind":"department","name":"dw"}`},
	"DELETE /api/v1/account-grants":                   {path: "/account-grants?account=old&kind=department&name=dw"},
	"POST /api/v1/apps":                               {body: `{"name":"fresh","role":"member"}`},
	"DELETE /api/v1/apps/{name}":                      {path: "/apps/portal"},
	"PUT /api/v1/apps/{name}":                         {path: "/apps/portal", body: `{"role":"read_only","enabled":false}`},
	"POST /api/v1/apps/{name}:rotate":                 {path: "/apps/portal:rotate", body: `{}`},
	"POST /api/v1/users/{name}:enable":                {path: "/users/out:enable"},
	"POST /api/v1/users/{name}:disable":               {path: "/users/idle:disable"},
	"POST /api/v1/users/{name}:reset-password":        {path: "/users/idle:reset-password"},
	"POST /api/v1/login":                              {body: `{"user":"owner","password":"` + matrixPassword + `","use":"command"}`},
	"PUT /api/v1/me/password":                         {body: `{"old":"` + matrixPassword + `","new":"another horse altogether"}`},
	"POST /api/v1/tokens":                             {body: `{"name":"fresh"}`},
	"GET /api/v1/tokens":                              {path: "/tokens?user=owner"},
	"DELETE /api/v1/tokens/{id}":                      {path: "/tokens/$token"},
	"POST /api/v1/worker-keys":                        {body: `{"node":"n1"}`},
	"DELETE /api/v1/worker-keys/{id}":                 {path: "/worker-keys/$key"},
}

// more are questions beside those of hows, where it counts what is asked for: of a route, with a note.
var more = map[string]how{
	"POST /api/v1/alerts (of no task)":                               {body: `{"level":"attention","title":"odd"}`},
	"POST /api/v1/batches/{id}/quality (by hand)":                    {path: "/batches/$gated/quality", body: `{"verdict":"runnable"}`},
	"POST /api/v1/silences (of a kind of alerts)":                    {body: `{"kind":"big_task","reason":"we know","until":"2026-11-21"}`},
	"PUT /api/v1/duty/{department} (of the system)":                  {path: "/duty/~", body: `{"primary":{"people":["owner"],"start":"2026-11-16"}}`},
	"PUT /api/v1/users/{name} (oneself an admin)":                    {path: "/users/owner", body: `{"department":"dw","role":"admin"}`},
	"PUT /api/v1/users/{name} (somebody a super admin)":              {path: "/users/idle", body: `{"department":"dw","role":"super_admin"}`},
	"PUT /api/v1/users/{name} (a super admin a member)":              {path: "/users/super2", body: `{"role":"member"}`},
	"POST /api/v1/users/{name}:disable (a super admin)":              {path: "/users/super2:disable"},
	"POST /api/v1/users/{name}:reset-password (of a super admin)":    {path: "/users/super2:reset-password"},
	"DELETE /api/v1/users/{name} (a super admin)":                    {path: "/users/super2"},
	"DELETE /api/v1/tokens/{id} (of a super admin)":                  {path: "/tokens/$mighty"},
	"POST /api/v1/tasks:apply (a new one of the owner's)":            {body: `{"sources":[{"name":"f.yaml","data":"tasks: [{name: new, owner: owner, period: day, job: {command: x}}]"}]}`},
	"POST /api/v1/tasks:apply (given to another department's owner)": {body: `{"sources":[{"name":"f.yaml","data":"tasks: [{name: t, owner: stranger, group: g, period: day, job: {command: x}}]"}]}`},
	"GET /api/v1/tokens (everybody's)":                               {path: "/tokens?user=super2"},
}

// question gives how a route, or a note on one, is asked.
func question(route string) how {
	if h, ok := more[route]; ok {
		return h
	}
	return hows[route]
}

// matrixWorld is one database with everything that the routes are asked about, each thing of the user owner.
type matrixWorld struct {
	*actiontest.World
	t       testing.TB
	handler http.Handler
	acts    map[string]auth.Act
	things  map[string]string
	keys    map[string]string // by caller; those of apps by scope, too
}

func newMatrixWorld(t testing.TB, settings map[string]string) *matrixWorld {
	t.Helper()
	w := &matrixWorld{World: actiontest.SQLite(t), t: t, things: map[string]string{}, keys: map[string]string{}}
	w.Ctx = auth.With(w.Ctx, auth.Principal{Kind: auth.User, Name: actiontest.Who, Role: auth.SuperAdmin}) // of what is prepared; requests have their own
	ctx, who := w.Ctx, actiontest.Who
	no := func(err error) { t.Helper(); require.NoError(t, err) }
	for _, d := range []string{"dw", "bi", "empty"} {
		no(w.Actions.SaveDepartment(ctx, who, store.Department{Name: d}))
	}
	no(w.Actions.SaveUser(ctx, who, store.User{Name: "idle", Department: "dw", Enabled: true, Role: "member"}))
	no(w.Actions.SaveUser(ctx, who, store.User{Name: "out", Department: "dw", Role: "member"}))
	w.identify()
	w.Apply(`
tasks:
- {name: t, owner: owner, group: g, period: day, job: {command: x}}
- {name: idle, owner: owner, group: g, period: day, job: {command: x}}
- {name: off, owner: owner, group: g, period: day, enabled: false, job: {command: x}}
- {name: gated, owner: owner, group: g, period: day, quality_gate: true, job: {command: x}}
- {name: hand, owner: owner, group: g, period: manual, check: user_code, job: {command: x}}
- {name: c1, owner: owner, group: g, period: day, job: {command: x}}
- {name: c2, owner: owner, group: g, period: day, job: {command: x}}
- {name: c3, owner: owner, group: g, period: day, job: {command: x}}
- {name: stopped, owner: owner, group: g, period: day, job: {command: x}}
- {name: held, owner: owner, group: g, period: day, job: {command: x}}
`)
	execute := func(task string) capri.BatchID {
		t.Helper()
		b, err := w.Actions.Execute(ctx, who, action.ExecuteRequest{Task: task})
		no(err)
		return b.ID
	}
	waiting, held, gated, running := execute("t"), execute("held"), execute("gated"), execute("hand")
	_, err := w.Actions.Hold(ctx, who, []capri.BatchID{held}, "")
	no(err)
	_, err = w.Store.BeginAsk(ctx, w.Lease(t, "quality"), []capri.BatchID{gated})
	no(err)
	attempt := w.Start(running)
	secret, err := w.Store.ClusterSecret(ctx)
	no(err)
	w.keys["job"] = store.AttemptToken(secret, attempt)
	for name, id := range map[string]capri.BatchID{"waiting": waiting, "held": held, "gated": gated, "running": running} {
		w.things[name] = fmt.Sprint(id)
	}
	no(w.Store.RegisterNode(ctx, capri.Node{Name: "n9", BootID: "b", Pool: "default", Slots: 1, CheckInterval: 5}, "dir-9"))
	task, err := w.Store.TaskByName(ctx, "t")
	no(err)
	_, err = w.Store.DB().ExecContext(ctx, `INSERT INTO incident (id, cause, open, level, kind, task_id, batch_id, title, alerts, opened_at, last_at, tellings, step) VALUES (7, 'c', 1, 2, 'k', ?, 0, 'x', 1, ?, ?, 1, 0)`,
		int64(task.ID), int64(w.Clock.Now()), int64(w.Clock.Now()))
	no(err)
	silence, err := w.Actions.Silence(ctx, who, store.Silence{Task: "t", Reason: "x", Until: w.Clock.Now().Add(3600e9)})
	no(err)
	w.things["silence"] = fmt.Sprint(silence)
	w.things["link"] = auth.AckToken(secret, 7, "owner", w.Clock.Now().Add(3600e9))
	for name, task := range map[string]string{"preview": "c1", "going": "c2", "paused": "c3"} {
		c, err := w.Actions.Rerun(ctx, "owner", action.RerunRequest{Task: task, From: "2026-11-19", To: "2026-11-20", Preview: name == "preview", Pace: action.Pace{Limit: 1}})
		no(err)
		w.things[name] = fmt.Sprint(c.ID)
		if name != "preview" { // as the service leaves it, once its runs exist
			_, err = w.Store.DB().ExecContext(ctx, "UPDATE campaign SET state = ? WHERE id = ?", int(capri.CampaignRunning), int64(c.ID))
			no(err)
		}
		if name == "paused" {
			_, err = w.Actions.PauseCampaign(ctx, "owner", c.ID, "x")
			no(err)
		}
	}
	no(w.Actions.Stop(ctx, who, store.Stop{Kind: store.Breaker, Scope: store.OfTask, Name: "stopped", Reason: "x"}))
	no(w.Actions.GrantAlert(ctx, who, "t", store.AlertGrant{User: "colleague", Mail: true}))
	no(w.Actions.GrantAccount(ctx, who, store.AccountGrant{Account: "old", Kind: store.GrantDepartment, Name: "dw"}))
	rig := &rig{World: w.World, t: t, keys: map[auth.Role]string{auth.Admin: w.keys["admin"]}}
	w.serve()
	rig.handler = w.handler
	require.Equal(t, 200, rig.ask(auth.Admin, "PUT", "/api/v1/duty/dw", `{"primary":{"people":["owner"],"start":"2026-11-16"}}`).Code)
	override := rig.ask(auth.Admin, "POST", "/api/v1/duty/overrides", `{"department":"dw","place":"primary","user":"owner","from":"2026-11-25","to":"2026-11-26","reason":"x"}`)
	require.Equal(t, 201, override.Code, override.Body.String())
	w.things["override"] = between(override.Body.String(), `"id":`, ",")
	for name, value := range settings {
		w.Set(t, name, value)
	}
	w.Clock.Advance(600e9) // n9 has been silent for long
	return w
}

// serve gives the world its API.
func (w *matrixWorld) serve() {
	w.handler, w.acts = api.NewWithActs(api.Options{Store: w.Store, Actions: w.Actions, Version: "test", Logs: logs{}, Channels: api.Channels{Names: []string{"mail"}, Compose: compose, Talk: talk}})
}

// copies gives worlds in which nothing has been done yet.
func (w *matrixWorld) copies() func() *matrixWorld {
	copies := w.World.Copies()
	return func() *matrixWorld {
		c := *w
		c.World = copies()
		c.serve()
		return &c
	}
}

// matrixPassword is everybody's here, hashed once.
const matrixPassword = "correct horse battery staple"

var passwordHash = sync.OnceValue(func() string {
	hash, err := auth.HashPassword(context.Background(), matrixPassword)
	if err != nil {
		panic(err)
	}
	return hash
})

// identify makes the callers known: people with sessions, apps with keys of one scope or of all others, a worker.
func (w *matrixWorld) identify() {
	w.t.Helper()
	credential := func(c store.Credential) (key string) {
		key = auth.NewKey()
		require.NoError(w.t, w.Store.Write(w.Ctx, "make a key", actiontest.Who, func(tx *store.Tx) error { return tx.AddCredential(c, auth.Hash(key)) }))
		return key
	}
	for _, c := range callers {
		if c.role == "" || strings.HasPrefix(c.name, "app") {
			continue
		}
		require.NoError(w.t, w.Actions.SaveUser(w.Ctx, actiontest.Who, store.User{Name: c.name, Department: c.department, Enabled: true, Role: string(c.role)}))
		require.NoError(w.t, w.Store.Write(w.Ctx, "set a password", actiontest.Who, func(tx *store.Tx) error { return tx.SetPassword(c.name, passwordHash(), false) }))
		w.keys[c.name] = credential(store.Credential{Kind: store.UserSession, Holder: c.name, Name: auth.Command, ExpiresAt: w.Clock.Now().Add(24 * time.Hour)})
	}
	require.NoError(w.t, w.Actions.SaveUser(w.Ctx, actiontest.Who, store.User{Name: "super2", Enabled: true, Role: string(auth.SuperAdmin)}))
	app := func(name string, scopes []string) string {
		key, err := w.Actions.CreateApp(w.Ctx, actiontest.Who, store.App{Name: name, Role: string(auth.SuperAdmin)}, store.Credential{Scopes: scopes})
		require.NoError(w.t, err)
		return key
	}
	app("portal", nil)
	for _, scope := range auth.Scopes[1:] {
		var others []string
		for _, other := range auth.Scopes[1:] {
			if other != scope {
				others = append(others, string(other))
			}
		}
		w.keys["app "+string(scope)] = app("app_"+string(scope), []string{string(scope)})
		w.keys["app_not "+string(scope)] = app("app_not_"+string(scope), others)
	}
	w.Register()
	for _, node := range []string{"n1", "n1"} {
		key, err := w.Actions.CreateWorkerKey(w.Ctx, actiontest.Who, store.Credential{Holder: node})
		require.NoError(w.t, err)
		w.keys["worker"] = key
	}
	keys, err := w.Store.Credentials(w.Ctx, store.WorkerKey, "n1")
	require.NoError(w.t, err)
	w.things["key"] = fmt.Sprint(min(keys[0].ID, keys[1].ID))
	credential(store.Credential{Kind: store.UserToken, Holder: "owner", Name: "mine"})
	credential(store.Credential{Kind: store.UserToken, Holder: "super2", Name: "mine"})
	for thing, holder := range map[string]string{"token": "owner", "mighty": "super2"} {
		tokens, err := w.Store.Credentials(w.Ctx, store.UserToken, holder)
		require.NoError(w.t, err)
		w.things[thing] = fmt.Sprint(tokens[0].ID)
	}
}

func compose(channel string, f alerting.Facts) alerting.Message {
	return alerting.Message{Text: channel + ": " + f.Title}
}

func talk(context.Context, string, alerting.Message) (string, error) { return "> MAIL\n< 250\n", nil }

func between(text, from, to string) string {
	_, text, _ = strings.Cut(text, from)
	text, _, _ = strings.Cut(text, to)
	return text
}

// fill puts the world's things in.
func (w *matrixWorld) fill(text string) string {
	for name, value := range w.things {
		text = strings.ReplaceAll(text, "$"+name, value)
	}
	return text
}

// ask sends a request as a caller, and gives the status and the number of the request.
func (w *matrixWorld) ask(c caller, route string, rule auth.Rule) (code int, request string) {
	h := question(route)
	method, path, _ := strings.Cut(route, " ")
	path, _, _ = strings.Cut(path, " (")
	if h.path != "" {
		path = h.path
		if !strings.HasPrefix(path, "/ack") {
			path = "/api/v1" + path
		}
	}
	key := w.keys[c.name]
	if slices.Contains([]string{"app", "app_not"}, c.name) {
		key = w.keys[c.name+" "+string(cmp.Or(rule.Scope, auth.ScopeRead))]
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if key == "" && !rule.Public {
		cancel() // or it would wait: whoever has no key is slowed down
	}
	req := httptest.NewRequestWithContext(ctx, method, w.fill(path), strings.NewReader(w.fill(h.body)))
	if h.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	request = fmt.Sprintf("%s-%d", c.name, w.Clock.Now())
	req.Header.Set("X-Request-ID", request)
	rec := httptest.NewRecorder()
	if h.stream {
		w.handler.ServeHTTP(leaving{rec, cancel}, req)
	} else {
		w.handler.ServeHTTP(rec, req)
	}
	assert.Equal(w.t, request, rec.Header().Get("X-Request-ID"))
	if rec.Code >= 400 && rec.Header().Get("Content-Type") == "application/problem+json" {
		assert.Contains(w.t, rec.Body.String(), `"request_id":"`+request+`"`, "%s as %s", route, c.name)
	}
	if rec.Code >= 500 || rec.Code == 422 || rec.Code == 400 || rec.Code == 409 {
		assert.Fail(w.t, "a question that nobody could answer", "%s as %s: %d %s", route, c.name, rec.Code, rec.Body)
	}
	return rec.Code, request
}

// leaving is a caller who goes as soon as there is an answer.
type leaving struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
}

func (l leaving) WriteHeader(status int) {
	l.ResponseRecorder.WriteHeader(status)
	l.leave()
}

func (l leaving) Write(b []byte) (int, error) {
	defer l.leave()
	return l.ResponseRecorder.Write(b)
}

// logged are the lines of the log that a request has written.
func (w *matrixWorld) logged(request string) []store.Action {
	w.t.Helper()
	rows, err := w.Store.Actions(w.Ctx, store.ActionFilter{RequestID: request, Limit: 100})
	require.NoError(w.t, err)
	return rows
}

func TestTheAccessMatrix_is_the_golden_one(t *testing.T) {
	var out bytes.Buffer
	out.WriteString("Who may do what: each route asked by each kind of caller about things of the user owner in the department dw.\n" +
		"ok: done; 401: who are you; 403: you may not; 404: there is no such thing (that you may see).\n" +
		"go test ./api -run AccessMatrix -update writes this file.\n\n")
	for _, c := range callers {
		fmt.Fprintf(&out, "  %-10s %s\n", c.name, c.doc)
	}
	for _, part := range []struct {
		title    string
		settings map[string]string
		callers  []string
	}{
		{"As it is by default: task_edit department, task_read all", nil, nil},
		{"With task_edit owner, task_read department, where that makes a difference", map[string]string{store.TaskEdit: "owner", store.TaskRead: "department"}, []string{"looks", "looks_bi", "owner", "colleague", "stranger", "admin"}},
	} {
		fmt.Fprintf(&out, "\n%s\n\n", part.title)
		columns := callers
		if part.callers != nil {
			columns = slices.DeleteFunc(slices.Clone(callers), func(c caller) bool { return !slices.Contains(part.callers, c.name) })
		}
		table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprint(table, "act\troute")
		for _, c := range columns {
			fmt.Fprint(table, "\t", c.name)
		}
		fmt.Fprintln(table)
		fresh := newMatrixWorld(t, part.settings).copies()
		w := fresh()
		routes := slices.AppendSeq(slices.Collect(maps.Keys(w.acts)), maps.Keys(more))
		slices.SortFunc(routes, func(a, b string) int {
			pa, pb := strings.SplitN(a, " ", 2), strings.SplitN(b, " ", 2)
			return strings.Compare(pa[1]+" "+pa[0], pb[1]+" "+pb[0])
		})
		for _, route := range routes {
			rule := w.rule(route)
			if part.callers != nil && !slices.Contains([]auth.Own{auth.Seen, auth.Owned, auth.Asked}, rule.Own) {
				continue // no setting is asked of it
			}
			if question(route) == (how{}) {
				require.NotContains(t, route, "{", "say in hows how to ask %s", route)
			}
			fmt.Fprintf(table, "%s\t%s", rule.Act, route)
			somebody := false
			for _, c := range columns {
				w.Clock.Advance(1e6)
				code, request := w.ask(c, route, rule)
				cell := fmt.Sprint(code)
				if code < 400 {
					cell, somebody = "ok", true
				}
				fmt.Fprint(table, "\t", cell)
				w.judge(c, route, code, request)
				if code < 400 && !strings.HasPrefix(route, "GET ") {
					w = fresh() // what was done is done
				}
			}
			fmt.Fprintln(table)
			assert.True(t, somebody || part.callers != nil, "%s: nobody may, so the question is wrong", route)
		}
		require.NoError(t, table.Flush())
	}
	text := trimmed(out.String())
	file := filepath.Join("testdata", "access.txt")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	golden, err := os.ReadFile(file)
	require.NoError(t, err, "go test ./api -run AccessMatrix -update writes it")
	assert.Equal(t, string(golden), text, "who may do what has changed: go test ./api -run AccessMatrix -update, and read what is different")
}

// rule is a route's rule, whatever is noted on it.
func (w *matrixWorld) rule(route string) auth.Rule {
	w.t.Helper()
	plain, _, _ := strings.Cut(route, " (")
	rule, known := auth.RuleOf(w.acts[plain])
	require.True(w.t, known, "%s is a route", route)
	return rule
}

// judge holds the log against an answer: what was done is in it with who asked and in which request; what was refused,
// or only looked at, is not.
func (w *matrixWorld) judge(c caller, route string, code int, request string) {
	w.t.Helper()
	rows := w.logged(request)
	if code >= 400 || strings.HasPrefix(route, "GET ") || question(route).unlogged != "" {
		assert.Empty(w.t, rows, "%s as %s (%d) is in the log", route, c.name, code)
		return
	}
	if assert.NotEmpty(w.t, rows, "%s as %s was done, and is not in the log", route, c.name) {
		for _, row := range rows {
			name, kind := w.name(c, route)
			assert.Equal(w.t, []string{name, kind, "192.0.2.1"}, []string{row.Who, row.Kind, row.Address}, "%s as %s", route, c.name)
		}
	}
}

// name is what the log calls a caller.
func (w *matrixWorld) name(c caller, route string) (name, kind string) {
	switch {
	case strings.HasSuffix(route, " /ack"):
		return "owner", "link"
	case strings.HasSuffix(route, "/login"):
		return "owner", "user"
	case c.name == "worker":
		return "worker n1", "worker"
	case c.name == "app":
		return "app_" + string(w.rule(route).Scope), "app"
	}
	return c.name, "user"
}

func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
