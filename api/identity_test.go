package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/sqltest"
	"capri/sql/store"
)

const password = "seven-ostriches-in-tune"

// with sends a request with a token, or with what change makes of it.
func (r *rig) with(token, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return r.send(token, method, wire.Prefix+path, body, change...)
}

func (r *rig) logIn(user, password string) wire.Session {
	r.t.Helper()
	return read[wire.Session](r.t, r.with("", "POST", "/login", `{"user":"`+user+`","password":"`+password+`","use":"command"}`), 200)
}

func read[T any](t testing.TB, rec *httptest.ResponseRecorder, code int) (v T) {
	t.Helper()
	require.Equal(t, code, rec.Code, rec.Body.String())
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &v))
	return v
}

// person makes a user with a role, who has logged in and changed the first password.
func (r *rig) person(name string, role auth.Role) (token string) {
	r.t.Helper()
	require.Equal(r.t, 204, r.with(r.keys[auth.SuperAdmin], "PUT", "/users/"+name, `{"role":"`+string(role)+`"}`).Code)
	first := read[wire.OneTimePassword](r.t, r.with(r.keys[auth.SuperAdmin], "POST", "/users/"+name+":reset-password", ""), 200)
	s := r.logIn(name, first.Password)
	require.True(r.t, s.ChangePassword)
	return read[wire.Session](r.t, r.with(s.Token, "PUT", "/me/password", `{"old":"`+first.Password+`","new":"`+password+`"}`), 200).Token
}

func TestAPerson_logs_in_changes_the_first_password_and_logs_out(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		admin := r.keys[auth.SuperAdmin]
		require.Equal(t, 409, r.with(admin, "POST", "/users/alice:reset-password", "").Code, "alice has no role, and so no access")
		require.Equal(t, 204, r.with(admin, "PUT", "/users/alice", `{"role":"member"}`).Code)
		first := read[wire.OneTimePassword](t, r.with(admin, "POST", "/users/alice:reset-password", ""), 200)
		s := r.logIn("alice", first.Password)
		assert.True(t, s.ChangePassword)
		assert.Equal(t, 403, r.with(s.Token, "GET", "/tasks", "").Code, "the password comes first")
		assert.True(t, read[wire.Me](t, r.with(s.Token, "GET", "/me", ""), 200).ChangePassword)
		assert.Equal(t, 422, r.with(s.Token, "PUT", "/me/password", `{"old":"`+first.Password+`","new":"short"}`).Code)
		assert.Equal(t, 403, r.with(s.Token, "PUT", "/me/password", `{"old":"`+password+`","new":"`+password+`!"}`).Code)
		next := read[wire.Session](t, r.with(s.Token, "PUT", "/me/password", `{"old":"`+first.Password+`","new":"`+password+`"}`), 200)
		assert.Equal(t, 401, r.with(s.Token, "GET", "/me", "").Code)
		assert.Equal(t, wire.Me{Kind: "user", Name: "alice", Role: "member", Session: true}, read[wire.Me](t, r.with(next.Token, "GET", "/me", ""), 200))
		assert.Equal(t, 200, r.with(next.Token, "GET", "/tasks", "").Code)
		assert.Equal(t, 401, r.with("", "POST", "/login", `{"user":"alice","password":"`+first.Password+`"}`).Code)
		assert.Equal(t, 204, r.with(next.Token, "POST", "/logout", "").Code)
		assert.Equal(t, 401, r.with(next.Token, "GET", "/me", "").Code)

		log, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 20})
		require.NoError(t, err)
		var did []string
		for _, a := range log {
			if a.Target == "alice" && a.Who != actiontest.Who {
				did = append(did, a.Who+" "+a.Action)
			}
		}
		assert.Equal(t, []string{"alice log_out", "alice password_change", "alice log_in", "app_super_admin password_reset", "app_super_admin user_set"}, did)
	})
}

func TestABrowser_gets_a_cookie_that_no_script_reads_and_no_other_site_uses(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	r.person("alice", auth.Member)
	logIn := `{"user":"alice","password":"` + password + `"}`
	rec := r.with("", "POST", "/login", logIn)
	require.Equal(t, 200, rec.Code, rec.Body.String())
	cookie := rec.Result().Cookies()[0]
	assert.Equal(t, []any{"capri", "/", true, false, http.SameSiteStrictMode, ""}, []any{cookie.Name, cookie.Path, cookie.HttpOnly, cookie.Secure, cookie.SameSite, cookie.Domain})
	assert.NotContains(t, rec.Body.String(), cookie.Value, "no script reads it")
	assert.NotContains(t, rec.Body.String(), "token")

	over := httptest.NewRequest(http.MethodPost, "https://capri.example"+wire.Prefix+"/login", strings.NewReader(logIn))
	over.Header.Set("Content-Type", "application/json")
	tls := httptest.NewRecorder()
	r.handler.ServeHTTP(tls, over)
	require.Equal(t, 200, tls.Code)
	assert.Equal(t, []any{"__Host-capri", true}, []any{tls.Result().Cookies()[0].Name, tls.Result().Cookies()[0].Secure})

	put := func(site string) int {
		return r.with("", "POST", "/logout", "", func(req *http.Request) { req.AddCookie(cookie); req.Header.Set("Sec-Fetch-Site", site) }).Code
	}
	assert.Equal(t, 403, put("cross-site"))
	assert.Equal(t, 403, put("same-site"))
	assert.Equal(t, 403, r.with("", "POST", "/login", logIn, func(req *http.Request) { req.Header.Set("Origin", "https://evil.example") }).Code, "nobody is logged in by another site")
	assert.Equal(t, 415, r.with("", "POST", "/login", logIn, func(req *http.Request) { req.Header.Set("Content-Type", "text/plain") }).Code, "as a form of another site would")

	// A session that was there before is nobody's afterwards: a log-in never goes on with what it is shown.
	again := r.with("", "POST", "/login", logIn, func(req *http.Request) {
		req.AddCookie(&http.Cookie{Name: "capri", Value: "capri_fixed-by-somebody-else-000000000000000000000"})
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	})
	require.Equal(t, 200, again.Code)
	assert.NotContains(t, again.Result().Cookies()[0].Value, "fixed")

	out := r.with("", "POST", "/logout", "", func(req *http.Request) { req.AddCookie(cookie); req.Header.Set("Sec-Fetch-Site", "same-origin") })
	require.Equal(t, 204, out.Code, out.Body.String())
	assert.Equal(t, -1, out.Result().Cookies()[0].MaxAge)
	assert.Equal(t, 401, r.with("", "GET", "/me", "", func(req *http.Request) { req.AddCookie(cookie) }).Code)
}

func TestLogIns_that_come_too_fast_are_told_when_to_come_again(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	r.person("alice", auth.Member)
	try := func() *httptest.ResponseRecorder {
		return r.with("", "POST", "/login", `{"user":"alice","password":"guessguess-12"}`)
	}
	for range 6 {
		rec := try()
		require.Equal(t, 401, rec.Code)
		require.Contains(t, r.problem(rec).Detail, "the name or the password is wrong")
	}
	rec := try()
	require.Equal(t, 429, rec.Code)
	assert.Equal(t, "1", rec.Header().Get("Retry-After"))
	assert.Contains(t, r.problem(rec).Detail, "too many failed log-ins")
	assert.NotContains(t, r.log.String(), "alice", "people type passwords where their name belongs")
	assert.NotContains(t, r.log.String(), "guess")
}

func TestNobody_raises_himself_and_the_last_super_admin_stays(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		root, admin := r.person("root", auth.SuperAdmin), r.person("adam", auth.Admin)
		member, other := r.person("mary", auth.Member), r.person("olga", auth.Member)
		for _, c := range []struct {
			what, token, method, path, body string
			want                            int
		}{
			{"a member raises himself", member, "PUT", "/users/mary", `{"role":"admin"}`, 403},
			{"an admin raises himself", admin, "PUT", "/users/adam", `{"role":"super_admin"}`, 403},
			{"an admin raises another", admin, "PUT", "/users/mary", `{"role":"super_admin"}`, 403},
			{"an admin makes a super admin", admin, "PUT", "/users/new", `{"role":"super_admin"}`, 403},
			{"an admin takes a super admin's role", admin, "PUT", "/users/root", `{"role":"member"}`, 403},
			{"an admin disables a super admin", admin, "POST", "/users/root:disable", "", 403},
			{"an admin takes a super admin's password", admin, "POST", "/users/root:reset-password", "", 403},
			{"an admin deletes a super admin", admin, "DELETE", "/users/root", "", 403},
			{"an admin changes a super admin's address", admin, "PUT", "/users/root", `{"mail":"adam@example.org"}`, 403},
			{"one's own password without the old one", admin, "POST", "/users/adam:reset-password", "", 409},
			{"the last one steps down", root, "PUT", "/users/root", `{"role":"admin"}`, 409},
			{"the last one loses access", root, "PUT", "/users/root", `{"role":"none"}`, 409},
			{"the last one is disabled", root, "POST", "/users/root:disable", "", 409},
			{"the last one is disabled otherwise", r.keys[auth.SuperAdmin], "PUT", "/users/root", `{"enabled":false}`, 409},
			{"the last one is deleted", r.keys[auth.SuperAdmin], "DELETE", "/users/root", "", 409},
			{"an admin makes a member an admin", admin, "PUT", "/users/mary", `{"role":"admin"}`, 204},
			{"who has no password is none to rely on", root, "PUT", "/users/ruth", `{"role":"super_admin"}`, 204},
			{"the last who can log in", root, "PUT", "/users/root", `{"role":"admin"}`, 409},
		} {
			rec := r.with(c.token, c.method, c.path, c.body)
			assert.Equal(t, c.want, rec.Code, "%s: %s", c.what, rec.Body)
		}
		assert.Equal(t, 401, r.with(member, "GET", "/me", "").Code, "another role ends the session")
		assert.Equal(t, 200, r.with(root, "GET", "/me", "").Code, "what was refused ended nothing")
		r.person("ruth", auth.SuperAdmin)
		assert.Equal(t, 204, r.with(root, "PUT", "/users/root", `{"role":"admin"}`).Code, "there is another one now")
		assert.Equal(t, 204, r.with(admin, "POST", "/users/olga:disable", "").Code)
		assert.Equal(t, 401, r.with(other, "GET", "/me", "").Code, "at once")
		assert.Equal(t, 401, r.with("", "POST", "/login", `{"user":"olga","password":"`+password+`"}`).Code)
		assert.Equal(t, 204, r.with(admin, "POST", "/users/olga:enable", "").Code)
		r.logIn("olga", password)
	})
}

func TestTokens_are_made_by_people_who_are_logged_in_and_ended_by_them_or_an_admin(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		alice, bob, admin := r.person("alice", auth.Member), r.person("bob", auth.Member), r.person("adam", auth.Admin)
		made := read[wire.Token](t, r.with(alice, "POST", "/tokens", `{"name":"nightly","scopes":["read","logs"]}`), 201)
		assert.WithinDuration(t, w.Clock.Now().In(time.UTC).Add(90*24*time.Hour), *made.ExpiresAt, time.Minute)
		assert.Equal(t, 200, r.with(made.Token, "GET", "/tasks", "").Code)
		assert.Equal(t, 403, r.with(made.Token, "POST", "/tasks/day:execute", "").Code, "it is made for looking")
		for _, c := range []struct {
			token, body string
			want        int
		}{
			{made.Token, `{"name":"child"}`, 403}, {r.keys[auth.SuperAdmin], `{"name":"x"}`, 403}, {alice, `{"name":"nightly"}`, 409}, {alice, `{"name":"x","scopes":["everything"]}`, 422},
			{alice, `{"name":"x","expires_at":"2020-01-01T00:00:00Z"}`, 422}, {alice, `{"name":"x","expires_at":"2036-01-01T00:00:00Z"}`, 422}, {alice, `{"name":" "}`, 422},
		} {
			assert.Equal(t, c.want, r.with(c.token, "POST", "/tokens", c.body).Code, c.body)
		}
		list := read[[]wire.Key](t, r.with(alice, "GET", "/tokens", ""), 200)
		require.Len(t, list, 1)
		assert.Equal(t, []any{"alice", "nightly", []string{"logs", "read"}}, []any{list[0].Holder, list[0].Name, list[0].Scopes})
		assert.NotNil(t, list[0].LastUsedAt)
		id := "/tokens/" + jsonNumber(list[0].ID)
		assert.Empty(t, read[[]wire.Key](t, r.with(bob, "GET", "/tokens", ""), 200))
		assert.Equal(t, 403, r.with(bob, "GET", "/tokens?user=alice", "").Code)
		assert.Equal(t, 403, r.with(bob, "GET", "/tokens?user=~", "").Code)
		assert.Equal(t, 404, r.with(bob, "DELETE", id, "").Code)
		assert.Len(t, read[[]wire.Key](t, r.with(admin, "GET", "/tokens?user=~", ""), 200), 1)
		assert.Equal(t, 404, r.with(admin, "DELETE", "/worker-keys/"+jsonNumber(list[0].ID), "").Code, "it is no worker's key")
		assert.Equal(t, 204, r.with(admin, "DELETE", id, "").Code)
		assert.Equal(t, 401, r.with(made.Token, "GET", "/tasks", "").Code)
		assert.Equal(t, 404, r.with(admin, "DELETE", id, "").Code)

		kept := read[wire.Token](t, r.with(alice, "POST", "/tokens", `{"name":"nightly"}`), 201).Token
		require.Equal(t, 200, r.with(admin, "POST", "/users/alice:reset-password", "").Code)
		assert.Equal(t, 401, r.with(kept, "GET", "/me", "").Code, "an admin's reset ends what was handed out under the old password")
	})
}

func jsonNumber(n int64) string { b, _ := json.Marshal(n); return string(b) }

func TestAnApp_is_rotated_with_an_overlap(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		super := r.keys[auth.SuperAdmin]
		first := read[wire.NewKey](t, r.with(super, "POST", "/apps", `{"name":"loader","role":"member","scopes":["read"],"owner":"alice"}`), 201)
		works := func(key string) bool { return r.with(key, "GET", "/tasks", "").Code == 200 }
		assert.True(t, works(first.Key))
		assert.Equal(t, 409, r.with(super, "POST", "/apps", `{"name":"loader","role":"member"}`).Code)
		second := read[wire.NewKey](t, r.with(super, "POST", "/apps/loader:rotate", `{"overlap_s":86400}`), 200)
		assert.WithinDuration(t, w.Clock.Now().In(time.UTC).Add(24*time.Hour), *second.OldUntil, time.Second)
		assert.Equal(t, 403, r.with(second.Key, "POST", "/tasks/day:execute", "").Code, "the scopes are the same")
		w.Clock.Advance(24*time.Hour - time.Second)
		assert.Equal(t, []bool{true, true}, []bool{works(first.Key), works(second.Key)}, "both, until then")
		w.Clock.Advance(time.Second)
		assert.Equal(t, []bool{false, true}, []bool{works(first.Key), works(second.Key)})
		third := read[wire.NewKey](t, r.with(super, "POST", "/apps/loader:rotate", `{}`), 200)
		assert.Equal(t, []bool{false, true}, []bool{works(second.Key), works(third.Key)}, "without an overlap at once")
		assert.Equal(t, 404, r.with(super, "POST", "/apps/nothing:rotate", `{}`).Code)
		assert.Equal(t, 422, r.with(super, "POST", "/apps/loader:rotate", `{"overlap_s":99999999}`).Code)

		apps := read[[]wire.App](t, r.with(super, "GET", "/apps", ""), 200)
		for _, a := range apps {
			if a.Name == "loader" {
				assert.Equal(t, "alice", a.Owner)
				require.Len(t, a.Keys, 1)
				assert.Equal(t, []string{"read"}, a.Keys[0].Scopes)
			}
		}
		assert.Equal(t, 409, r.with(super, "DELETE", "/users/alice", "").Code, "she answers for it")
		assert.Equal(t, 204, r.with(super, "PUT", "/apps/loader", `{"role":"member","enabled":false}`).Code)
		assert.False(t, works(third.Key))
		assert.Equal(t, 204, r.with(super, "PUT", "/apps/loader", `{"role":"member","enabled":true}`).Code)
		assert.True(t, works(third.Key))
		assert.Equal(t, 409, r.with(super, "PUT", "/apps/app_super_admin", `{"role":"member","enabled":true}`).Code, "nobody else may do everything")
		assert.Equal(t, 409, r.with(super, "DELETE", "/apps/app_super_admin", "").Code)
		short := read[wire.NewKey](t, r.with(super, "POST", "/apps", `{"name":"brief","role":"member","expires_at":"`+w.Clock.Now().In(time.UTC).Add(time.Hour).Format(time.RFC3339)+`"}`), 201)
		assert.True(t, works(short.Key))
		w.Clock.Advance(time.Hour)
		assert.False(t, works(short.Key))
	})
}

func TestWhen_a_key_was_used_is_written_once_a_minute(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	used := func() int64 {
		keys, err := r.Store.Credentials(r.Ctx, "app", "app_member")
		require.NoError(t, err)
		return int64(keys[0].LastUsedAt)
	}
	require.Zero(t, used())
	r.ask(auth.Member, "GET", wire.Prefix+"/tasks", "")
	at := used()
	require.Equal(t, int64(r.Clock.Now()), at)
	r.Clock.Advance(59 * time.Second)
	r.ask(auth.Member, "GET", wire.Prefix+"/tasks", "")
	require.Equal(t, at, used())
	r.Clock.Advance(time.Second)
	r.ask(auth.Member, "GET", wire.Prefix+"/tasks", "")
	require.Equal(t, int64(r.Clock.Now()), used())
}

func TestAWorkersKey_raises_alerts_of_its_node_and_nothing_else(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	super := r.keys[auth.SuperAdmin]
	require.Equal(t, 404, r.with(super, "POST", "/worker-keys", `{"node":"w1","pool":"etl"}`).Code)
	require.NoError(t, r.Store.RegisterNode(r.Ctx, capri.Node{Name: "w1", BootID: "b", Pool: "etl", Slots: 1, CheckInterval: 5}, "dir"))
	require.Equal(t, 409, r.with(super, "POST", "/worker-keys", `{"node":"w1","pool":"default"}`).Code)
	key := read[wire.NewKey](t, r.with(super, "POST", "/worker-keys", `{"node":"w1","pool":"etl"}`), 201).Key
	raise := func(body string) *httptest.ResponseRecorder { return r.with(key, "POST", "/alerts", body) }
	r.Apply("tasks:\n- {name: here, owner: alice, period: day, job: {command: x}, worker: {pool: etl}}\n- {name: there, owner: alice, period: day, job: {command: x}}\n")
	rec := raise(`{"level":"important","title":"disk is full","text":"x","task":"here"}`)
	require.Less(t, rec.Code, 300, rec.Body.String())
	assert.Equal(t, 403, raise(`{"level":"important","title":"disk is full","node":"w2"}`).Code, "another node")
	assert.Equal(t, 403, raise(`{"level":"important","title":"disk is full","task":"there"}`).Code, "a task of another pool")
	for _, path := range []string{"/tasks", "/me", "/users", "/apps", "/tokens", "/nodes", "/actions"} {
		assert.Equal(t, 403, r.with(key, "GET", path, "").Code, path)
	}
	keys := read[[]wire.Key](t, r.with(super, "GET", "/worker-keys", ""), 200)
	require.Len(t, keys, 1)
	assert.Equal(t, []string{"w1", "etl"}, []string{keys[0].Holder, keys[0].Name})
	require.Equal(t, 204, r.with(super, "DELETE", "/worker-keys/"+jsonNumber(keys[0].ID), "").Code)
	require.Equal(t, 401, raise(`{"level":"important","title":"x"}`).Code)
}

func TestNo_secret_stands_in_a_log_or_in_the_action_log(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	session := r.person("alice", auth.Member)
	secrets := []string{password, session, r.keys[auth.SuperAdmin]}
	secrets = append(secrets, read[wire.Token](t, r.with(session, "POST", "/tokens", `{"name":"t"}`), 201).Token)
	secrets = append(secrets, read[wire.NewKey](t, r.with(r.keys[auth.SuperAdmin], "POST", "/apps/app_member:rotate", `{}`), 200).Key)
	secrets = append(secrets, read[wire.OneTimePassword](t, r.with(r.keys[auth.SuperAdmin], "POST", "/users/alice:reset-password", "", func(req *http.Request) {
		req.Header.Set(wire.HeaderIdempotencyKey, "once")
	}), 200).Password)
	said := ""
	for _, s := range secrets { // where they do not belong
		said += r.with(s, "GET", "/me", "").Body.String()
		said += r.with("", "POST", "/login", `{"user":"`+s+`","password":"`+s+`"}`).Body.String()
		said += r.with(s+"x", "POST", "/tasks/x:execute", "").Body.String()
		said += r.with("", "POST", "/login", `{"user":"alice","password":`+s).Body.String()
		said += r.with("", "POST", "/login", `{"user":"alice","password":"`+strings.Repeat(s, 100)+`"}`).Body.String()
		said += r.with("", "POST", "/login", `{"user":"alice","password":["`+s+`"]}`).Body.String()
		said += r.with("", "POST", "/login", `{"user":"alice","passwort":"`+s+`"}`).Body.String()
	}
	log, err := r.Store.Actions(r.Ctx, store.ActionFilter{Limit: 1000})
	require.NoError(t, err)
	for _, a := range log {
		said += a.Who + a.Action + a.Target + a.Detail
	}
	said += r.log.String()
	said += sqltest.Text(t, r.Store, "action_log", "idempotency_key", "credential", "login", "app")
	for _, s := range secrets {
		assert.False(t, strings.Contains(said, s), "%s is said", s)
	}
}
