package auth_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/argon2"
	"pgregory.net/rapid"

	"capri"
	"capri/auth"
	"capri/sql/sqltest"
	"capri/sql/store"
)

const good = "seven-ostriches-in-tune"

// person makes an enabled user with a role and a password.
func person(t testing.TB, s *store.Store, name, role, password string) {
	t.Helper()
	hash, err := auth.HashPassword(ctx, password)
	require.NoError(t, err)
	require.NoError(t, s.Write(ctx, "make a person", "test", func(tx *store.Tx) error {
		return errors.Join(tx.SaveUser(store.User{Name: name, Department: "dw", Enabled: true}), tx.SetRole(name, role), tx.SetPassword(name, hash, false))
	}))
}

func logIn(t testing.TB, s *store.Store, name, password string) auth.Session {
	t.Helper()
	session, err := auth.LogIn(ctx, s, name, password, "10.0.0.1", auth.Browser)
	require.NoError(t, err)
	return session
}

func who(t testing.TB, s *store.Store, key string) string {
	t.Helper()
	p, err := auth.Authenticate(ctx, s, key)
	if auth.IsNobody(err) {
		return "nobody"
	}
	require.NoError(t, err)
	return p.Name
}

func TestPasswords_are_hashed_with_their_own_salt_and_parameters(t *testing.T) {
	a, err := auth.HashPassword(ctx, good)
	require.NoError(t, err)
	b, err := auth.HashPassword(ctx, good)
	require.NoError(t, err)
	assert.NotEqual(t, a, b)
	assert.True(t, strings.HasPrefix(a, fmt.Sprintf("$argon2id$v=%d$m=19456,t=2,p=1$", argon2.Version)), a)
	assert.NotContains(t, a, good)
}

func TestPasswords_that_are_short_or_known_or_the_users_name_are_refused(t *testing.T) {
	for _, bad := range []string{"", "short", "elevenchars", "Password1234", "P@ssw0rd-1234", "qwertyuiop123", "123456789012", "aaaaaaaaaaaaaaaa", "ababababababab", "alice-alice1",
		"Alice-1234567", "changeme-2026", "administrator", "Capri-2026-2026", "dolphinscheduler123", " has-spaces-outside ", strings.Repeat("long-", 300), "broken\xff-utf8-text"} {
		err := auth.CheckNewPassword("alice", bad)
		require.ErrorIs(t, err, capri.ErrInvalid, bad)
		if bad != "" {
			assert.NotContains(t, err.Error(), bad)
		}
	}
	for _, fine := range []string{good, "correct donkey staple", "七只鸵鸟在合唱团里一起唱歌呢", "kLx9#mQ2vT7!pZ", auth.OneTimePassword()} {
		assert.NoError(t, auth.CheckNewPassword("alice", fine), fine)
	}
	assert.NotEqual(t, auth.OneTimePassword(), auth.OneTimePassword())
}

func TestASession_begins_with_the_right_password_and_nothing_else(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		person(t, db.Store, "alice", "member", good)
		person(t, db.Store, "off", "admin", good)
		require.NoError(t, db.Store.Write(ctx, "x", "test", func(tx *store.Tx) error {
			return errors.Join(tx.EnableUser("off", false), tx.SaveUser(store.User{Name: "mailbox", Enabled: true}))
		}))
		s := logIn(t, db.Store, "alice", good)
		p, err := auth.Authenticate(ctx, db.Store, s.Token)
		require.NoError(t, err)
		assert.NotZero(t, p.Session)
		p.Session = 0
		assert.Equal(t, auth.Principal{Kind: auth.User, Name: "alice", Role: auth.Member, Department: "dw", Scopes: []auth.Scope{}, Use: auth.Browser}, p)
		assert.NotEqual(t, s.Token, logIn(t, db.Store, "alice", good).Token, "each log-in has its own")
		var texts []string
		for who, password := range map[string]string{"alice": good + "x", "Alice": good, "nobody": good, "off": good, "mailbox": "", "alice" + " ": good, "": "", "alice\x00": good} {
			_, err := auth.LogIn(ctx, db.Store, who, password, "10.0.0.2", auth.Browser)
			require.True(t, auth.IsNobody(err), "%q: %v", who, err)
			texts = append(texts, err.Error())
		}
		for _, text := range texts {
			assert.Equal(t, texts[0], text, "who asks learns nothing of who is there")
			assert.NotContains(t, text, good)
		}
	})
}

func TestASession_ends(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		person(t, db.Store, "alice", "member", good)
		idle := logIn(t, db.Store, "alice", good).Token
		for range 3 { // used, it lives on
			db.Clock.Advance(11 * time.Hour)
			assert.Equal(t, "alice", who(t, db.Store, idle))
		}
		assert.Equal(t, "alice", who(t, db.Again(t), idle), "another master knows it")
		db.Clock.Advance(12*time.Hour + time.Second)
		assert.Equal(t, "nobody", who(t, db.Store, idle), "it was idle")

		most := logIn(t, db.Store, "alice", good).Token
		for range 6 * 4 {
			db.Clock.Advance(6 * time.Hour)
			assert.Equal(t, "alice", who(t, db.Store, most))
		}
		for range 3 {
			db.Clock.Advance(6 * time.Hour)
			who(t, db.Store, most)
		}
		db.Clock.Advance(6*time.Hour + 1)
		assert.Equal(t, "nobody", who(t, db.Store, most), "however it is used, it ends after a week")

		first, second := logIn(t, db.Store, "alice", good).Token, logIn(t, db.Store, "alice", good).Token
		renewed, err := auth.ChangePassword(ctx, db.Store, "alice", good, "eight-ostriches-in-tune", "10.0.0.1", auth.Browser)
		require.NoError(t, err)
		assert.Equal(t, []string{"nobody", "nobody", "alice"}, []string{who(t, db.Again(t), first), who(t, db.Store, second), who(t, db.Store, renewed.Token)})
		_, err = auth.ChangePassword(ctx, db.Store, "alice", "wrong-old-password", "nine-ostriches-in-tune", "10.0.0.1", auth.Browser)
		require.ErrorIs(t, err, capri.ErrForbidden)
		assert.Equal(t, "alice", who(t, db.Store, renewed.Token), "a guess ends nothing")
		_, err = auth.LogIn(ctx, db.Store, "alice", good, "10.0.0.1", auth.Browser)
		assert.True(t, auth.IsNobody(err))
	})
}

func TestAOneTimePassword_is_good_for_changing_it_and_for_three_days(t *testing.T) {
	db := sqltest.SQLite(t)
	person(t, db.Store, "alice", "super_admin", good)
	hash, err := auth.HashPassword(ctx, "ABCDE-FGHIJ-KLMNO")
	require.NoError(t, err)
	require.NoError(t, db.Store.Write(ctx, "x", "test", func(tx *store.Tx) error { return tx.SetPassword("alice", hash, true) }))
	s := logIn(t, db.Store, "alice", "ABCDE-FGHIJ-KLMNO")
	assert.True(t, s.OneTime)
	p, err := auth.Authenticate(ctx, db.Store, s.Token)
	require.NoError(t, err)
	for _, rule := range auth.Policy {
		err := p.Reaches(rule.Act)
		switch {
		case rule.Public:
		case rule.First:
			assert.NoError(t, err, rule.Act)
		default:
			assert.ErrorIs(t, err, capri.ErrForbidden, rule.Act)
		}
	}
	s, err = auth.ChangePassword(ctx, db.Store, "alice", "ABCDE-FGHIJ-KLMNO", good, "10.0.0.1", auth.Command)
	require.NoError(t, err)
	p, err = auth.Authenticate(ctx, db.Store, s.Token)
	require.NoError(t, err)
	assert.NoError(t, p.Reaches(auth.ColdStart))

	require.NoError(t, db.Store.Write(ctx, "x", "test", func(tx *store.Tx) error { return tx.SetPassword("alice", hash, true) }))
	db.Clock.Advance(auth.OneTimeLife + time.Second)
	_, err = auth.LogIn(ctx, db.Store, "alice", "ABCDE-FGHIJ-KLMNO", "10.0.0.1", auth.Browser)
	require.True(t, auth.IsNobody(err))
	assert.Contains(t, err.Error(), "72 hours")
}

func TestAToken_is_never_mightier_than_its_user(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		person(t, db.Store, "alice", "admin", good)
		token := auth.NewKey()
		write := func(fn func(tx *store.Tx) error) { require.NoError(t, db.Store.Write(ctx, "x", "test", fn)) }
		write(func(tx *store.Tx) error {
			return tx.AddCredential(store.Credential{Kind: store.UserToken, Holder: "alice", Name: "laptop", ExpiresAt: tx.Now.Add(time.Hour)}, auth.Hash(token))
		})
		p, err := auth.Authenticate(ctx, db.Store, token)
		require.NoError(t, err)
		require.NoError(t, p.Reaches(auth.NodeEdit))
		for _, act := range []auth.Act{auth.TokenMake, auth.PasswordEdit, auth.LogOutDo} {
			require.ErrorIs(t, p.Reaches(act), capri.ErrForbidden, "a token begets no token: %s", act)
		}
		write(func(tx *store.Tx) error { return tx.SetRole("alice", "read_only") })
		p, err = auth.Authenticate(ctx, db.Store, token)
		require.NoError(t, err)
		require.ErrorIs(t, p.Reaches(auth.NodeEdit), capri.ErrForbidden)
		write(func(tx *store.Tx) error { return tx.EnableUser("alice", false) })
		assert.Equal(t, "nobody", who(t, db.Store, token))
		write(func(tx *store.Tx) error { return tx.EnableUser("alice", true) })
		assert.Equal(t, "alice", who(t, db.Store, token))
		db.Clock.Advance(time.Hour)
		assert.Equal(t, "nobody", who(t, db.Store, token), "it has expired")
		write(func(tx *store.Tx) error { return tx.DeleteUser("alice") })
		credentials, err := db.Store.Credentials(ctx, store.UserToken, "")
		require.NoError(t, err)
		assert.Empty(t, credentials)
	})
}

func TestAWorkersKey_is_good_for_its_node_while_that_is_in_its_pool(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		key := auth.NewKey()
		require.NoError(t, db.Store.Write(ctx, "x", "ops", func(tx *store.Tx) error {
			return tx.AddCredential(store.Credential{Kind: store.WorkerKey, Holder: "w1", Name: "etl"}, auth.Hash(key))
		}))
		assert.Equal(t, "nobody", who(t, db.Store, key), "there is no such node")
		register := func(pool string) {
			require.NoError(t, db.Store.RegisterNode(ctx, capri.Node{Name: "w1", BootID: "b", Pool: pool, Slots: 1, CheckInterval: 5}, "dir"))
		}
		register("etl")
		p, err := auth.Authenticate(ctx, db.Store, key)
		require.NoError(t, err)
		assert.Equal(t, auth.Principal{Kind: auth.Worker, Name: "worker w1", Node: "w1", Pool: "etl", Scopes: []auth.Scope{}}, p)
		require.NoError(t, p.May(auth.AlertRaise, auth.Object{Node: "w1"}))
		require.ErrorIs(t, p.May(auth.AlertRaise, auth.Object{What: "an alert", Node: "w2"}), capri.ErrForbidden)
		for _, rule := range auth.Policy {
			if !rule.Public && !rule.Worker {
				require.ErrorIs(t, p.Reaches(rule.Act), capri.ErrForbidden, rule.Act)
			}
		}
		register("default")
		assert.Equal(t, "nobody", who(t, db.Store, key), "it has moved to another pool")
	})
}

func TestLogIns_are_throttled_and_nobody_is_locked_out_by_others_for_long(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		person(t, db.Store, "alice", "member", good)
		try := func(user, password, address string) error {
			_, err := auth.LogIn(ctx, db.Store, user, password, address, auth.Browser)
			return err
		}
		wait := func(err error) int {
			var throttled *auth.ThrottledError
			if !errors.As(err, &throttled) {
				return 0
			}
			return throttled.Seconds()
		}
		for range 5 {
			require.Zero(t, wait(try("alice", "guess", "10.6.6.6")))
		}
		require.Zero(t, wait(try("alice", "guess", "10.6.6.6")), "the sixth is still looked at, and costs a second")
		require.Equal(t, 1, wait(try("alice", good, "10.6.6.6")), "not even the right password is looked at")
		require.NoError(t, try("alice", good, "10.0.0.1"), "from elsewhere alice gets in")
		var waits []int
		for range 12 {
			db.Clock.Advance(time.Duration(wait(try("alice", "guess", "10.6.6.6"))) * time.Second)
			require.Zero(t, wait(try("alice", "guess", "10.6.6.6")))
			waits = append(waits, wait(try("alice", "guess", "10.6.6.6")))
		}
		require.Equal(t, []int{2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900}, waits)
		db.Clock.Advance(15 * time.Minute)
		require.NoError(t, try("alice", good, "10.6.6.6"))
		require.Zero(t, wait(try("alice", "guess", "10.6.6.6")), "who got in begins anew")

		// Many machines at once guess alice's: she waits half a minute at most.
		longest := 0
		for i := range 60 {
			address := fmt.Sprintf("10.7.%d.1", i)
			err := try("alice", "guess", address)
			if n := wait(err); n > 0 {
				longest = max(longest, n)
				db.Clock.Advance(time.Duration(n) * time.Second)
			}
		}
		require.Equal(t, 30, longest)
		n := wait(try("alice", good, "10.0.0.1"))
		require.LessOrEqual(t, n, 30)
		db.Clock.Advance(time.Duration(n) * time.Second)
		require.NoError(t, try("alice", good, "10.0.0.1"))

		// One machine tries one password on everybody.
		tries := 0
		for i := range 200 {
			if wait(try(fmt.Sprintf("user%d", i), "guess", "2001:db8::1")) == 0 {
				tries++
			}
		}
		require.Equal(t, 101, tries)
		require.Positive(t, wait(try("other", "guess", "2001:db8::2")), "an IPv6 network is one address")
		require.Zero(t, wait(try("other", "guess", "2001:db8:0:1::2")))
	})
}

func TestLogIns_at_once_do_not_outrun_the_count(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		person(t, db.Store, "alice", "member", good)
		var looked, throttled int
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				_, err := auth.LogIn(ctx, db.Store, "alice", "guess", "10.6.6.6", auth.Browser)
				mu.Lock()
				defer mu.Unlock()
				var e *auth.ThrottledError
				switch {
				case errors.As(err, &e):
					throttled++
				case auth.IsNobody(err):
					looked++
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		assert.Equal(t, []int{6, 24}, []int{looked, throttled})
	})
}

func TestAnUnknownUser_costs_as_much_as_a_known_one(t *testing.T) {
	db := sqltest.SQLite(t)
	person(t, db.Store, "alice", "member", good)
	took := func(user string) time.Duration {
		fastest := time.Hour
		for range 7 {
			db.Clock.Advance(2 * time.Hour)
			began := time.Now()
			_, err := auth.LogIn(ctx, db.Store, user, "wrong", "10.0.0.1", auth.Browser)
			fastest = min(fastest, time.Since(began))
			require.True(t, auth.IsNobody(err))
		}
		return fastest
	}
	known, unknown := took("alice"), took("nobody")
	assert.Greater(t, unknown, known/2)
	assert.Greater(t, known, unknown/2)
}

func TestNoPassword_and_no_key_stands_in_the_database_or_in_an_error(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		person(t, db.Store, "alice", "member", good)
		s := logIn(t, db.Store, "alice", good)
		_, err1 := auth.LogIn(ctx, db.Store, "alice", good+"!", "10.0.0.1", auth.Browser)
		_, err2 := auth.LogIn(ctx, db.Store, good, good, "10.0.0.1", auth.Browser) // where the name belongs
		_, err3 := auth.ChangePassword(ctx, db.Store, "alice", good+"!", good+"?", "10.0.0.1", auth.Browser)
		_, err4 := auth.Authenticate(ctx, db.Store, s.Token+"x")
		var everything bytes.Buffer
		fmt.Fprintln(&everything, err1, err2, err3, err4)
		everything.WriteString(sqltest.Text(t, db.Store, "user", "login", "credential", "login_failure", "action_log", "app", "dic_data"))
		assert.Contains(t, everything.String(), "alice")
		assert.NotContains(t, everything.String(), good)
		assert.NotContains(t, everything.String(), s.Token)
		assert.NotContains(t, everything.String(), s.Token[6:])
	})
}

func TestThePasswordTable_cannot_take_the_memory_of_a_master(t *testing.T) {
	db := sqltest.SQLite(t)
	person(t, db.Store, "alice", "member", good)
	for _, stored := range []string{"$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHQ$c3Vtc3Vtc3Vtc3Vtc3Vt", "$argon2id$v=19$m=64,t=1000000,p=1$c2FsdHNhbHQ$c3Vtc3Vtc3Vtc3Vtc3Vt", "$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$c3Vtc3Vtc3Vtc3Vtc3Vt",
		"$argon2id$v=19$m=64,t=1,p=1$$", "plain", "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$AA"} {
		require.NoError(t, db.Store.Write(ctx, "x", "test", func(tx *store.Tx) error { return tx.SetPassword("alice", stored, false) }))
		_, err := auth.LogIn(ctx, db.Store, "alice", "plain", "10.0.0.1", auth.Browser)
		require.Error(t, err, stored)
		assert.NotContains(t, err.Error(), stored)
		db.Clock.Advance(2 * time.Hour)
	}
}

func TestAHash_of_older_parameters_is_replaced_at_the_next_log_in(t *testing.T) {
	db := sqltest.SQLite(t)
	person(t, db.Store, "alice", "member", good)
	salt := []byte("saltsaltsaltsalt")
	old := fmt.Sprintf("$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0c2FsdA$%s", b64(argon2.IDKey([]byte(good), salt, 1, 64, 1, 32)))
	require.NoError(t, db.Store.Write(ctx, "x", "test", func(tx *store.Tx) error { return tx.SetPassword("alice", old, false) }))
	logIn(t, db.Store, "alice", good)
	l, err := db.Store.Login(ctx, "alice")
	require.NoError(t, err)
	assert.Contains(t, l.Password, "m=19456,t=2")
	logIn(t, db.Store, "alice", good)
}

func TestACookie_carries_sessions_alone_and_changes_come_from_our_own_pages(t *testing.T) {
	db := sqltest.SQLite(t)
	person(t, db.Store, "alice", "member", good)
	session := logIn(t, db.Store, "alice", good).Token
	key := auth.NewKey()
	save(t, db.Store, store.App{Name: "good", Role: "member", Enabled: true}, key)
	h := auth.Middleware(db.Store, func(w http.ResponseWriter, _ *http.Request, err error) {
		w.WriteHeader(map[bool]int{true: 401, false: 403}[auth.IsNobody(err)])
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(auth.From(r.Context()).Name)) }))
	for _, c := range []struct {
		what, method string
		cookies      []string
		header       map[string]string
		code         int
	}{
		{"a look", "GET", []string{session}, nil, 200},
		{"a change that nobody says where it is from", "POST", []string{session}, nil, 403},
		{"a change from our page", "POST", []string{session}, map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		{"from our page, in an older browser", "DELETE", []string{session}, map[string]string{"Origin": "http://example.com"}, 200},
		{"from another site", "POST", []string{session}, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"from another host of the site", "POST", []string{session}, map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{"from another site, in an older browser", "PUT", []string{session}, map[string]string{"Origin": "http://evil.example"}, 403},
		{"from a page without an origin", "POST", []string{session}, map[string]string{"Origin": "null"}, 403},
		{"an app's key in a cookie", "GET", []string{key}, nil, 401},
		{"two cookies", "GET", []string{session, "capri_x"}, nil, 401},
		{"a key wins over the cookie", "POST", []string{session}, map[string]string{"Authorization": "Bearer " + key}, 200},
		{"a wrong key is not made good by the cookie", "GET", []string{session}, map[string]string{"Authorization": "Bearer capri_nonsense"}, 401},
		{"nor is another scheme", "GET", []string{session}, map[string]string{"Authorization": "Basic x"}, 401},
	} {
		r := httptest.NewRequest(c.method, "http://example.com/", nil)
		for _, value := range c.cookies {
			r.AddCookie(&http.Cookie{Name: auth.CookieName(false), Value: value})
		}
		for name, value := range c.header {
			r.Header.Set(name, value)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		assert.Equal(t, c.code, rec.Code, c.what)
	}
	r := httptest.NewRequest(http.MethodGet, "https://example.com/", nil)
	r.AddCookie(&http.Cookie{Name: auth.CookieName(false), Value: session})
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	assert.Equal(t, 401, rec.Code, "over TLS the cookie that a page without TLS may have set is not ours")
}

func TestNoHeader_and_no_cookie_makes_somebody_of_nobody(t *testing.T) {
	db := sqltest.SQLite(t)
	person(t, db.Store, "alice", "member", good)
	real := logIn(t, db.Store, "alice", good).Token
	h := auth.Middleware(db.Store, func(w http.ResponseWriter, _ *http.Request, err error) {
		if !auth.IsNobody(err) && !errors.Is(err, capri.ErrForbidden) {
			panic(err)
		}
		w.WriteHeader(http.StatusUnauthorized)
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(auth.From(r.Context()).Name)) }))
	rapid.Check(t, func(rt *rapid.T) {
		part := rapid.SampledFrom([]string{"Bearer", "bearer", "Basic", " ", "  ", "\t", "capri_", "capri_attempt_", "1.1_", real[:30], real[6:], ";", "=", ",", "\"", "capri=", "__Host-capri=", auth.Hash(real), "\x00", "é"})
		text := rapid.Map(rapid.SliceOfN(part, 0, 8), func(p []string) string { return strings.Join(p, "") })
		r := httptest.NewRequest(rapid.SampledFrom([]string{"GET", "POST"}).Draw(rt, "method"), "/", nil)
		r.Header["Authorization"] = []string{text.Draw(rt, "authorization")}
		r.Header["Cookie"] = []string{text.Draw(rt, "cookie")}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code == 200 {
			rt.Fatalf("let in as %s", rec.Body)
		}
	})
}

func FuzzAuthenticate(f *testing.F) {
	db := sqltest.SQLite(f)
	for _, seed := range []string{"", "capri_", "capri_attempt_1.1_", "capri_attempt_9223372036854775808.1_x", auth.NewKey(), "capri_' OR 1=1 --", "capri_\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if _, err := auth.Authenticate(context.Background(), db.Store, key); !auth.IsNobody(err) {
			t.Fatalf("%q: %v", key, err)
		}
	})
}

func b64(b []byte) string { return base64.RawStdEncoding.EncodeToString(b) }
