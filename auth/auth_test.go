package auth_test

import (
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/auth"
	"capri/sql/sqltest"
	"capri/sql/store"
)

var ctx = context.Background()

func save(t *testing.T, s *store.Store, a store.App, key string) {
	t.Helper()
	require.NoError(t, s.Write(ctx, "save app", "test", func(tx *store.Tx) error { return tx.SaveApp(a, auth.Hash(key)) }))
}

func TestMay(t *testing.T) {
	for i, have := range auth.Roles {
		for j, need := range auth.Roles {
			assert.Equal(t, i <= j, have.May(need), "%s may what needs %s", have, need)
		}
	}
	assert.False(t, auth.Role("").May(auth.ReadOnly), "no role may nothing")
	assert.False(t, auth.Role("king").May(auth.ReadOnly), "an unknown role may nothing")
	assert.True(t, auth.IsNobody(auth.From(ctx).Reaches(auth.StatusRead)), "a context without a principal may nothing")
}

func TestKeys_are_long_random_and_stored_as_hashes(t *testing.T) {
	a, b := auth.NewKey(), auth.NewKey()
	assert.NotEqual(t, a, b)
	assert.True(t, strings.HasPrefix(a, "capri_"))
	assert.Len(t, a, len("capri_")+43) // 256 bits
	assert.NotContains(t, auth.Hash(a), a[6:])
	assert.Len(t, auth.Hash(a), 64)
}

func TestAuthenticate(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		good, off := auth.NewKey(), auth.NewKey()
		save(t, db.Store, store.App{Name: "good", Role: "member", Enabled: true}, good)
		save(t, db.Store, store.App{Name: "off", Role: "super_admin"}, off)
		p, err := auth.Authenticate(ctx, db.Store, good)
		require.NoError(t, err)
		assert.Equal(t, auth.Principal{Kind: auth.App, Name: "good", Role: auth.Member, Scopes: []auth.Scope{auth.ScopeAll}}, p)
		for sentence, key := range map[string]string{
			"nothing": "", "a disabled app": off, "an unknown key": auth.NewKey(), "a hash": auth.Hash(good), "a hash that looks like a key": "capri_" + auth.Hash(good),
			"a cut key": good[:20], "a longer key": good + "A", "in capitals": strings.ToUpper(good), "something long": "capri_" + strings.Repeat("x", 100_000), "zeros": "capri_\x00",
		} {
			_, err := auth.Authenticate(ctx, db.Store, key)
			assert.True(t, auth.IsNobody(err), sentence)
			assert.NotContains(t, err.Error(), good, sentence)
		}
	})
}

func TestMiddleware_lets_through_who_has_a_key(t *testing.T) {
	db := sqltest.SQLite(t)
	key := auth.NewKey()
	save(t, db.Store, store.App{Name: "good", Role: "member", Enabled: true}, key)
	h := auth.Middleware(db.Store, func(w http.ResponseWriter, _ *http.Request, err error) { w.WriteHeader(http.StatusUnauthorized) })(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(auth.From(r.Context()).Name)) }))
	ask := func(header string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec
	}
	assert.Equal(t, "good", ask("bearer "+key).Body.String())
	assert.Equal(t, "good", ask("Bearer  "+key+" ").Body.String())
	for _, header := range []string{"", "Basic " + key, key, "Bearer" + key, "Bearer " + key + " " + key, "Bearer " + auth.Hash(key)} {
		assert.Equal(t, 401, ask(header).Code, header)
	}
}

func TestEnsureAdminKey(t *testing.T) {
	works := func(t *testing.T, s *store.Store, dir string) string {
		t.Helper()
		key, err := auth.ReadKey(auth.AdminKeyFile(dir))
		require.NoError(t, err)
		p, err := auth.Authenticate(ctx, s, key)
		require.NoError(t, err)
		assert.Equal(t, auth.AdminApp, p.Name)
		return key
	}
	ensure := func(t *testing.T, s *store.Store, dir string) bool {
		t.Helper()
		made, err := auth.EnsureAdminKey(ctx, s, dir)
		require.NoError(t, err)
		return made
	}
	t.Run("makes a key at the first start and leaves it alone afterwards", func(t *testing.T) {
		db, dir := sqltest.SQLite(t), t.TempDir()
		assert.True(t, ensure(t, db.Store, dir))
		key := works(t, db.Store, dir)
		info, err := os.Stat(auth.AdminKeyFile(dir))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		assert.False(t, ensure(t, db.Store, dir))
		assert.Equal(t, key, works(t, db.Store, dir))
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, files, 1, "nothing is left over")
		actions, err := db.Store.Actions(ctx, store.ActionFilter{Limit: 10})
		require.NoError(t, err)
		for _, a := range actions {
			assert.NotContains(t, a.Detail+a.Target, key)
		}
	})
	t.Run("takes the file's key into a new database", func(t *testing.T) {
		db, dir := sqltest.SQLite(t), t.TempDir()
		ensure(t, db.Store, dir)
		key := works(t, db.Store, dir)
		fresh := sqltest.SQLite(t)
		assert.False(t, ensure(t, fresh.Store, dir))
		assert.Equal(t, key, works(t, fresh.Store, dir))
	})
	t.Run("makes a new key where the file was lost, and the old one ends", func(t *testing.T) {
		db, dir := sqltest.SQLite(t), t.TempDir()
		ensure(t, db.Store, dir)
		old := works(t, db.Store, dir)
		require.NoError(t, os.Remove(auth.AdminKeyFile(dir)))
		assert.True(t, ensure(t, db.Store, dir))
		assert.NotEqual(t, old, works(t, db.Store, dir))
		_, err := auth.Authenticate(ctx, db.Store, old)
		assert.True(t, auth.IsNobody(err))
	})
	t.Run("keeps the app disabled if somebody disabled it", func(t *testing.T) {
		db, dir := sqltest.SQLite(t), t.TempDir()
		require.NoError(t, db.Store.Write(ctx, "save app", "standalone", func(tx *store.Tx) error {
			return tx.SaveApp(store.App{Name: auth.AdminApp, Role: "admin", Enabled: false}, auth.Hash(auth.NewKey()))
		}))
		ensure(t, db.Store, dir)
		key, err := auth.ReadKey(auth.AdminKeyFile(dir))
		require.NoError(t, err)
		_, err = auth.Authenticate(ctx, db.Store, key)
		assert.True(t, auth.IsNobody(err))
	})
	t.Run("does not bring back a key that a person has replaced", func(t *testing.T) {
		db, dir := sqltest.SQLite(t), t.TempDir()
		ensure(t, db.Store, dir)
		old, next := works(t, db.Store, dir), auth.NewKey()
		save(t, db.Store, store.App{Name: auth.AdminApp, Role: "super_admin", Enabled: true}, next)
		assert.False(t, ensure(t, db.Store, dir))
		_, err := auth.Authenticate(ctx, db.Store, old)
		assert.True(t, auth.IsNobody(err))
		_, err = auth.Authenticate(ctx, db.Store, next)
		assert.NoError(t, err)
	})
	t.Run("refuses a file with a short key", func(t *testing.T) {
		db, dir := sqltest.SQLite(t), t.TempDir()
		require.NoError(t, os.WriteFile(auth.AdminKeyFile(dir), []byte("capri_secret\n"), 0o600))
		_, err := auth.EnsureAdminKey(ctx, db.Store, dir)
		require.ErrorContains(t, err, "admin.key")
		assert.NotContains(t, err.Error(), "secret")
	})
	t.Run("refuses a file that holds something else", func(t *testing.T) {
		db, dir := sqltest.SQLite(t), t.TempDir()
		require.NoError(t, os.WriteFile(auth.AdminKeyFile(dir), []byte("hello there\n"), 0o600))
		_, err := auth.EnsureAdminKey(ctx, db.Store, dir)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hello")
	})
	t.Run("started twice at once it makes one key", func(t *testing.T) {
		db, dir := sqltest.SQLite(t), t.TempDir()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, err := auth.EnsureAdminKey(ctx, db.Store, dir)
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		works(t, db.Store, dir)
	})
}

func TestMasters_that_start_at_once_make_one_first_key(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		var starting sync.WaitGroup
		dirs := make([]string, 6)
		made := make([]bool, len(dirs))
		for i := range dirs {
			dirs[i] = t.TempDir()
			starting.Go(func() {
				var err error
				made[i], err = auth.FirstKey(t.Context(), db.Store, dirs[i])
				assert.NoError(t, err)
			})
		}
		starting.Wait()
		keys := 0
		for i, dir := range dirs {
			key, err := auth.ReadKey(auth.AdminKeyFile(dir))
			if !made[i] {
				assert.ErrorIs(t, err, fs.ErrNotExist, "a key that is nobody's")
				continue
			}
			keys++
			require.NoError(t, err)
			app, err := db.Store.AppByKeyHash(t.Context(), auth.Hash(key))
			require.NoError(t, err)
			assert.Equal(t, auth.AdminApp, app.Name)
		}
		assert.Equal(t, 1, keys)
	})
}
