package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
	"capri/api/wire"
)

func TestPeople_log_in_make_tokens_and_log_out_on_the_command_line(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	home := t.TempDir()
	mine := map[string]string{"CAPRI_SERVER": c.env["CAPRI_SERVER"], "HOME": home, "USER": "bob"}
	as := func(stdin string, args ...string) result { return capriIn(t, mine, stdin, args...) }
	ok := func(r result) string {
		t.Helper()
		require.Zero(t, r.code, r.err)
		return r.out
	}
	value := func(r result, into any) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(ok(r)), into))
	}

	ok(c.capri("user", "set", "bob", "--mail", "bob@example.org", "--role", "member"))
	ok(c.capri("user", "set", "bob", "--phone", "+86"))
	assert.Regexp(t, `bob +member .*bob@example.org +\+86`, ok(c.capri("user", "list")), "what is not named stays")
	var first wire.OneTimePassword
	value(c.capri("user", "password", "bob", "-o", "json"), &first)

	assert.Equal(t, exitRefused, as("", "task", "list").code, "nobody is logged in")
	assert.Equal(t, exitRefused, as("wrong-password-12\n", "login").code)
	assert.Contains(t, ok(as(first.Password+"\n", "login")), "capri user password")
	assert.Equal(t, exitRefused, as("", "task", "list").code, "the one-time password comes first")
	const password = "seven-ostriches-in-tune"
	assert.Equal(t, exitUsage, as(first.Password+"\nshort\n", "user", "password").code)
	ok(as(first.Password+"\n"+password+"\n", "user", "password"))
	assert.Contains(t, ok(as("", "whoami")), "user bob (member)")

	files, err := filepath.Glob(filepath.Join(home, ".config", "capri", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	kept, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.NoError(t, os.Chmod(files[0], 0o644))
	assert.Equal(t, exitRefused, as("", "whoami").code, "others may read it")
	require.NoError(t, os.Chmod(files[0], 0o600))

	var token wire.Token
	value(as("", "token", "create", "nightly", "--scope", "read,logs", "--expires", "30d", "-o", "json"), &token)
	assert.Contains(t, ok(as("", "token", "list")), "nightly")
	mine["CAPRI_TOKEN"] = token.Token
	assert.Equal(t, exitRefused, as("", "token", "create", "child").code, "the environment goes before the session, and a token begets none")
	ok(as("", "task", "list"))
	delete(mine, "CAPRI_TOKEN")
	var keys []wire.Key
	value(as("", "token", "list", "-o", "json"), &keys)
	ok(as("", "token", "revoke", jsonID(keys[0].ID)))
	mine["CAPRI_TOKEN"] = token.Token
	assert.Equal(t, exitRefused, as("", "task", "list").code)
	delete(mine, "CAPRI_TOKEN")

	elsewhere := map[string]string{"CAPRI_SERVER": strings.Replace(c.env["CAPRI_SERVER"], "127.0.0.1", "localhost", 1), "HOME": home}
	assert.Equal(t, exitRefused, capriIn(t, elsewhere, "", "whoami").code, "a session goes to the server that gave it and to no other")

	ok(as("", "logout"))
	assert.NoFileExists(t, files[0])
	assert.Equal(t, exitNotFound, as("", "logout").code)
	mine["CAPRI_TOKEN"] = strings.TrimSpace(string(kept))
	assert.Equal(t, exitRefused, as("", "whoami").code, "the session has ended on the server, too")
	delete(mine, "CAPRI_TOKEN")

	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte(password+"\n"), 0o600))
	said := ok(as("", "login", "--user", "bob", "--password-file", secret, "-o", "json"))
	assert.NotContains(t, said, "capri_", "the token is in the file")
	ok(c.capri("user", "disable", "bob"))
	assert.Equal(t, exitRefused, as("", "whoami").code)
	ok(as("", "logout")) // it had ended already; the file goes
	log := ok(c.capri("action", "list", "-o", "json"))
	assert.NotContains(t, log, password)
	assert.NotContains(t, log, first.Password)
}

func jsonID(n int64) string { b, _ := json.Marshal(n); return string(b) }

func TestKeys_of_apps_are_rotated_on_the_command_line(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	ok := func(r result) string {
		t.Helper()
		require.Zero(t, r.code, r.err)
		return r.out
	}
	var first, second wire.NewKey
	require.NoError(t, json.Unmarshal([]byte(ok(c.capri("app", "create", "loader", "--role", "member", "--scope", "read", "--owner", "alice", "--expires", "365d", "-o", "json"))), &first))
	require.NoError(t, json.Unmarshal([]byte(ok(c.capri("app", "rotate", "loader", "--overlap", "24h", "-o", "json"))), &second))
	works := func(key string) bool { return c.capri("task", "list", "--token", key).code == exitDone }
	assert.Equal(t, []bool{true, true}, []bool{works(first.Key), works(second.Key)})
	ok(c.capri("app", "set", "loader", "--role", "read_only"))
	ok(c.capri("app", "disable", "loader"))
	assert.False(t, works(second.Key))
	ok(c.capri("app", "enable", "loader"))
	assert.True(t, works(second.Key))
	assert.Regexp(t, `loader +read_only +yes +alice`, ok(c.capri("app", "list")))
	assert.Equal(t, exitUsage, c.capri("app", "rotate", "loader", "--overlap", "60d").code)
	assert.Equal(t, exitUsage, c.capri("app", "rotate", "loader", "--overlap", "soon").code)
	assert.Equal(t, exitNotFound, c.capri("app", "disable", "nothing").code)
	c.Register()
	assert.Contains(t, ok(c.capri("node", "key", "create", "n1", "--pool", "default")), "capri_")
	assert.Contains(t, ok(c.capri("node", "key", "list")), "n1")
	assert.Equal(t, exitRefused, c.capri("node", "key", "create", "n1", "--pool", "other").code)
}
