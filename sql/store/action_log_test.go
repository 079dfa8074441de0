package store_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestAnAction_says_who_asked_from_where_and_what_changed(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		asked := store.WithRequest(t.Context(), store.Request{ID: "r-1", Kind: "user", Address: "192.0.2.7"})
		save := func(u store.User) {
			t.Helper()
			require.NoError(t, db.Store.Write(asked, "save", "ops", func(tx *store.Tx) error {
				if err := tx.SaveUser(u); err != nil {
					return err
				}
				return tx.LogChanges(store.Change{Action: "user_set", Target: u.Name, Department: u.Department})
			}))
		}
		save(store.User{Name: "bob", Department: "dw", Enabled: true})
		save(store.User{Name: "bob", Department: "dw", Mail: "bob@example.org"})
		require.NoError(t, db.Store.Write(asked, "delete", "ops", func(tx *store.Tx) error {
			if err := tx.DeleteUser("bob"); err != nil {
				return err
			}
			return tx.LogAction("user_delete", "bob", "")
		}))
		got, err := db.Store.Actions(t.Context(), store.ActionFilter{Limit: 10})
		require.NoError(t, err)
		require.Len(t, got, 3)
		for _, a := range got {
			assert.Equal(t, store.Request{ID: "r-1", Kind: "user", Address: "192.0.2.7"}, a.Request)
		}
		made, changed, gone := got[2], got[1], got[0]
		assert.Empty(t, made.Before)
		assert.Contains(t, made.After, `"department":"dw"`)
		assert.JSONEq(t, `{"enabled":1,"mail":""}`, changed.Before)
		assert.JSONEq(t, `{"enabled":0,"mail":"bob@example.org"}`, changed.After)
		assert.Contains(t, gone.Before, `"mail":"bob@example.org"`)
		assert.Empty(t, gone.After)
	})
}

func TestActions_never_hold_a_secret(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		const hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
		require.NoError(t, db.Store.Write(t.Context(), "save", "ops", func(tx *store.Tx) error {
			if err := tx.SaveApp(store.App{Name: "a", Role: store.RoleMember}, hash); err != nil {
				return err
			}
			return tx.LogAction("app_create", "a", "")
		}))
		secrets := map[string]any{"job.env.DB_PASSWORD": "p1", "apiKey": "p2", "list": []any{map[string]any{"Token": "p3", "x": 1}}, "empty_secret": ""}
		require.NoError(t, db.Store.Write(t.Context(), "save", "ops", func(tx *store.Tx) error {
			return tx.LogChanges(store.Change{Action: "x", Before: secrets, After: map[string]string{"long": strings.Repeat("y", 100_000)}})
		}))
		got, err := db.Store.Actions(t.Context(), store.ActionFilter{Limit: 10})
		require.NoError(t, err)
		require.Len(t, got, 2)
		assert.JSONEq(t, `{"job.env.DB_PASSWORD":"***","apiKey":"***","list":[{"Token":"***","x":1}],"empty_secret":""}`, got[0].Before)
		assert.JSONEq(t, `{"too_long":100011}`, got[0].After)
		assert.NotContains(t, got[1].After, hash)
		assert.Contains(t, got[1].After, `"key_hash":"***"`)
	})
}

func TestActions_are_chosen_by_who_what_task_and_time(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		task := db.Task(t, func(s *capri.Spec) { s.Owner = "alice" })
		write(t, db, func(tx *store.Tx) error { return tx.SaveUser(store.User{Name: "alice", Department: "dw"}) })
		log := func(who, kind string, c store.Change) {
			t.Helper()
			ctx := store.WithRequest(t.Context(), store.Request{Kind: kind, ID: "r-" + who})
			require.NoError(t, db.Store.Write(ctx, "log", who, func(tx *store.Tx) error { return tx.LogChanges(c) }))
			db.Clock.Advance(1e9)
		}
		log("bob", "user", store.Change{Action: "kill", Target: "batch 1", Task: task.ID})
		log("bob", "app", store.Change{Action: "hold", Target: "batch 2"})
		log("carol", "user", store.Change{Action: "duty_set", Target: "department dw", Department: "dw"})
		log("carol", "user", store.Change{Action: "app_create", Target: "x"})
		targets := func(f store.ActionFilter) (out []string) {
			t.Helper()
			f.Limit = 10
			got, err := db.Store.Actions(t.Context(), f)
			require.NoError(t, err)
			for _, a := range got {
				out = append(out, a.Target)
			}
			return out
		}
		assert.Equal(t, []string{"batch 2", "batch 1"}, targets(store.ActionFilter{Who: "bob"}))
		assert.Equal(t, []string{"batch 1"}, targets(store.ActionFilter{Action: "kill"}))
		assert.Equal(t, []string{"batch 2"}, targets(store.ActionFilter{Target: "batch 2"}))
		assert.Equal(t, []string{"batch 1"}, targets(store.ActionFilter{Task: task.ID}))
		assert.Equal(t, []string{"x", "department dw"}, targets(store.ActionFilter{RequestID: "r-carol"}))
		assert.Equal(t, []string{"batch 2"}, targets(store.ActionFilter{From: sqltest.Start.Add(1e9), To: sqltest.Start.Add(2e9)}))
		all, err := db.Store.Actions(t.Context(), store.ActionFilter{Limit: 2})
		require.NoError(t, err)
		assert.Equal(t, []string{"batch 2", "batch 1"}, targets(store.ActionFilter{Before: all[1].ID}))

		assert.Equal(t, []string{"batch 2"}, targets(store.ActionFilter{Seen: &store.SeenActions{Who: "bob", Kind: "app"}}), "an app is not the user of its name")
		assert.Equal(t, []string{"batch 1"}, targets(store.ActionFilter{Seen: &store.SeenActions{Who: "alice", Kind: "user", Of: store.Seen{Owner: "alice"}}}))
		assert.Equal(t, []string{"department dw", "batch 1"}, targets(store.ActionFilter{Seen: &store.SeenActions{Who: "dave", Kind: "user", Of: store.Seen{Owner: "dave", Department: "dw"}}}))
		assert.Empty(t, targets(store.ActionFilter{Seen: &store.SeenActions{}}))
	})
}

// What was logged stays: no statement of the program changes or deletes it, and SQLite refuses one.
func TestTheAuditLog_is_append_only(t *testing.T) {
	db := sqltest.SQLite(t)
	write(t, db, func(tx *store.Tx) error { return tx.LogAction("x", "y", "z") })
	for _, text := range []string{"UPDATE action_log SET who = 'nobody'", "DELETE FROM action_log"} {
		_, err := db.Store.DB().ExecContext(t.Context(), text)
		assert.ErrorContains(t, err, "append-only", text)
	}
	got, err := db.Store.Actions(t.Context(), store.ActionFilter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, got, 1)

	touches := regexp.MustCompile("(?i)(sq\\.(Update|Delete)\\(|UPDATE |DELETE FROM |REPLACE INTO )[\"`]?action_log")
	root := filepath.Join("..", "..")
	files := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		if _, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly); err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		assert.False(t, touches.Match(text), "%s changes the log of actions", path)
		return err
	}))
	assert.Greater(t, files, 200)
}
