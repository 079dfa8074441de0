package conf

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
)

// write makes a configuration file for a test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// The file in the repository documents every key with its built-in value.
func TestTheFileAndTheStructAreEqual(t *testing.T) {
	data, err := os.ReadFile("capri.yaml")
	require.NoError(t, err)
	settings, wrong := parse("capri.yaml", data)
	require.NoError(t, wrong.OrNil())

	var inFile, inStruct []string
	for _, s := range settings {
		inFile = append(inFile, s.key+" = "+s.text)
	}
	for _, f := range fieldsOf(Default()) {
		text := f.text()
		if d, ok := f.value.Interface().(time.Duration); ok {
			text = shortDuration(d)
		}
		inStruct = append(inStruct, f.key+" = "+text)
	}
	assert.Equal(t, inStruct, inFile, "the same keys, in the same order, with the same values")

	// And each is explained: a comment on its line, or above it.
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		key, _, isKey := strings.Cut(strings.TrimSpace(line), ":")
		if !isKey || strings.HasPrefix(key, "#") || strings.HasSuffix(line, ":") {
			continue
		}
		explained := strings.Contains(line, "#") || strings.HasPrefix(strings.TrimSpace(lines[i-1]), "#")
		assert.True(t, explained, "%s has no comment", key)
	}

	loaded, err := Load("capri.yaml", true, nil)
	require.NoError(t, err)
	builtIn, err := Load("there is no such file", false, nil)
	require.NoError(t, err)
	loaded.origin, builtIn.origin = nil, nil
	assert.Equal(t, builtIn, loaded)
}

// shortDuration is how people write it: 30s, not 0m30s.
func shortDuration(d time.Duration) string {
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "m0s") + map[bool]string{true: "0s"}[strings.HasSuffix(d.String(), "0s")]
}

func TestEachLayerOverridesTheOneBefore(t *testing.T) {
	file := write(t, "capri.yaml", "timezone: Asia/Shanghai\nlisten: 127.0.0.1:1\ndata: /file\nnode: {slots: 3}\nworker:\n  pass_env: [HOME, TERM]\nredis:\n")
	t.Setenv("CAPRI_LISTEN", "127.0.0.1:2")
	t.Setenv("CAPRI_DATA", "/environment")
	t.Setenv("CAPRI_WORKER_POLL_INTERVAL", "2s")
	t.Setenv("CAPRI_TASK", "a job's variable is not ours")
	t.Setenv("CAPRI_TOKEN", "nor the client's")
	c, err := Load(file, true, map[string]string{"data": "/flag"})
	require.NoError(t, err)
	assert.Equal(t, "Asia/Shanghai", c.Zone().String())
	assert.Equal(t, "127.0.0.1:2", c.Listen)
	assert.Equal(t, "/flag", c.Data)
	assert.Equal(t, 2*time.Second, c.Worker.PollInterval)
	assert.Equal(t, []string{"HOME", "TERM"}, c.Worker.PassEnv)
	assert.Equal(t, 3, c.Node.Slots)
	assert.Equal(t, "default", c.Node.Pool)

	source := map[string]string{}
	for _, v := range c.Values() {
		source[v.Key] = v.Source
	}
	assert.Equal(t, filepath.ToSlash(file)+":1", source["timezone"])
	assert.Equal(t, "environment CAPRI_LISTEN", source["listen"])
	assert.Equal(t, "command line", source["data"])
	assert.Equal(t, "built-in", source["node.pool"])
}

func TestWithoutAFileTheBuiltInValuesHold(t *testing.T) {
	c, err := Load(filepath.Join(t.TempDir(), "capri.yaml"), false, nil)
	require.NoError(t, err)
	assert.Equal(t, SlotsPerCPU*runtime.NumCPU(), c.Node.Slots)
	assert.NotEmpty(t, c.Node.Name)
	assert.Equal(t, SQLite, c.Database.Driver())
	assert.Equal(t, time.UTC, c.Zone())

	_, err = Load(filepath.Join(t.TempDir(), "mine.yaml"), true, nil)
	require.ErrorIs(t, err, capri.ErrInvalid)
	assert.ErrorContains(t, err, "mine.yaml\": want a file that can be read: no such file or directory")
}

func TestWhatIsWrongIsSaidAllAtOnce(t *testing.T) {
	for _, c := range []struct{ sentence, file, want string }{
		{"a key with a slip", "timezon: UTC\ndatabase: {dns: x}\nworker: {claim: 3}\nfrobnicate: 1\n", `
F:1: timezon: want a key that exists; did you mean timezone?
F:2: database.dns: want a key that exists; did you mean database.dsn?
F:3: worker.claim: want one of the keys of conf/capri.yaml: worker.default_account, worker.poll_interval, worker.claim_limit, worker.path, worker.pass_env
F:4: frobnicate: want one of the keys of conf/capri.yaml: timezone, data, listen, log.level, log.format, database.dsn, database.password_file, database.connections, database.beat_connections, redis.addr, redis.password, redis.password_file, redis.db, node.name, node.pool, node.slots, node.memory_mb, worker.default_account, worker.poll_interval, worker.claim_limit, worker.path, worker.pass_env, dependency.interval, dependency.parallel, dependency.path_timeout, dispatch.interval`},
		{"values of the wrong kind", "node: {slots: many, memory_mb: 1.5}\ndispatch: {interval: 5}\nlisten: [a, {b: c}]\n", `
F:3: listen: want a plain list of words
F:1: node.slots: "many": want a whole number
F:1: node.memory_mb: "1.5": want a whole number
F:2: dispatch.interval: "5": want a duration with its unit, such as 500ms, 30s or 2m`},
		{"values that cannot be", `
timezone: Mars/Base
data: ""
listen: "8680"
log: {level: loud, format: xml}
database: {dsn: "capri:secret@tcp(db:3306", connections: 0, beat_connections: 0}
redis: {addr: redis, db: -1}
node: {name: "a b", pool: "", slots: -1, memory_mb: -1}
worker: {default_account: root, poll_interval: 1ms, claim_limit: 0, path: "/bin:bin", pass_env: [CAPRI_TASK]}
dependency: {interval: 2h, parallel: 0, path_timeout: 1ms}
dispatch: {interval: 0s}
`, `
F:2: timezone: "Mars/Base": want a zone's name, such as UTC, Asia/Shanghai or Europe/Berlin
F:3: data: want a directory, such as ./capri-data
F:4: listen: "8680": want HOST:PORT, such as 127.0.0.1:8680
F:5: log.level: "loud": want debug, info, warn or error
F:5: log.format: "xml": want text or json
F:6: database.dsn: "capri:***@tcp(db:3306": want user:password@tcp(host:3306)/database, or nothing for SQLite in the data directory
F:6: database.connections: "0": want 2 or more connections
F:6: database.beat_connections: "0": want 1 or more connections
F:7: redis.addr: "redis": want HOST:PORT, such as 127.0.0.1:8680
F:7: redis.db: "-1": want the number of a Redis database, 0 to 65535
F:8: node.name: "a b": want 1 to 128 letters, digits, _ . -
F:8: node.pool: want 1 to 128 letters, digits, _ . -
F:8: node.slots: "-1": want 0 or more slots; 0 stands for 4 for each CPU
F:8: node.memory_mb: "-1": want 0 or more MB; 0 stands for what the machine has
F:9: worker.default_account: "root": want the name of an account of this machine other than root
F:9: worker.poll_interval: "1ms": want a duration from 10ms to 1h
F:9: worker.claim_limit: "0": want 1 to 10000 batches
F:9: worker.path: "/bin:bin": want absolute directories with : between them
F:9: worker.pass_env: "CAPRI_TASK": want names of variables that do not begin with CAPRI_ or PARAM_
F:10: dependency.interval: "2h0m0s": want a duration from 1s to 1h
F:10: dependency.parallel: "0": want 1 to 1000 looks at once
F:10: dependency.path_timeout: "1ms": want a duration from 100ms to 1h
F:11: dispatch.interval: "0s": want a duration from 10ms to 1h`},
		{"a zone that means another on each machine", "timezone: Local", "\nF:1: timezone: \"Local\": want a zone's name, such as UTC, Asia/Shanghai or Europe/Berlin"},
		{"a key that is there twice", "data: a\nnode: {pool: x}\ndata: b\n", "\nF:3: data: want to be there once; it is on line 1 already"},
		{"an alias", "data: &d x\nlisten: *d", "\nF:2: listen: \"*d\": want the value itself; aliases are not read here"},
		{"a list for a file", "- data", "\nF:1: file: want keys and values, such as `listen: 127.0.0.1:8680`"},
		{"broken YAML", "data: x\nlisten: a: b\n", "\nF:2: YAML: \"mapping values are not allowed in this context\": want lines such as `listen: 127.0.0.1:8680`, nested by spaces, not tabs"},
		{"a second password", "database: {dsn: 'u:p@tcp(h)/d', password_file: SECRET}\nredis: {password: a, password_file: SECRET}", `
F:1: database.password_file: "SECRET": want either a password in database.dsn or a file, not both
F:2: redis.password_file: "SECRET": want either redis.password or a file, not both`},
		{"a password file and no database", "database: {password_file: SECRET}\nredis: {password_file: /nowhere/at/all}", `
F:1: database.password_file: "SECRET": want a database.dsn beside it, since SQLite has no password
F:2: redis.password_file: "/nowhere/at/all": want a file that can be read: no such file or directory`},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			secret := write(t, "secret", "s3cret\n")
			file := write(t, "f.yaml", strings.ReplaceAll(c.file, "SECRET", secret))
			_, err := Load(file, true, nil)
			require.ErrorIs(t, err, capri.ErrInvalid)
			got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), filepath.ToSlash(file), "F"), secret, "SECRET")
			assert.Equal(t, strings.TrimPrefix(c.want, "\n"), got)
			assert.NotContains(t, got, "s3cret")
		})
	}
}

func TestABadVariableAndABadFlagAreNamed(t *testing.T) {
	t.Setenv("CAPRI_NODE_SLOTS", "x")
	t.Setenv("CAPRI_DATABASE_DSN", "capri:geheim@nowhere")
	_, err := Load("none", false, map[string]string{"listen": "", "lissten": "x"})
	assert.EqualError(t, err, `command line: lissten: want a key that exists; did you mean listen?
command line: listen: want HOST:PORT, such as 127.0.0.1:8680
environment CAPRI_DATABASE_DSN: database.dsn: "capri:***@nowhere": want user:password@tcp(host:3306)/database, or nothing for SQLite in the data directory
environment CAPRI_NODE_SLOTS: node.slots: "x": want a whole number`)
}

func TestAPasswordFileReachesTheDriver(t *testing.T) {
	secret := write(t, "secret", "p@ss/w:rd\n")
	file := write(t, "capri.yaml", fmt.Sprintf("database: {dsn: 'capri@tcp(db:3306)/capri', password_file: %s}\nredis: {addr: 'r:6379', password_file: %s}", secret, secret))
	c, err := Load(file, true, nil)
	require.NoError(t, err)
	assert.Equal(t, MySQL, c.Database.Driver())
	assert.Equal(t, "capri:p@ss/w:rd@tcp(db:3306)/capri", c.Database.DSN)
	assert.Equal(t, "p@ss/w:rd", c.Redis.Password)
}

func TestPrintMasksSecretsAndCanBeReadAgain(t *testing.T) {
	t.Setenv("CAPRI_DATABASE_DSN", "capri:geheim@tcp(db:3306)/capri")
	t.Setenv("CAPRI_REDIS_PASSWORD", "0123geheim")
	c, err := Load("none", false, map[string]string{"worker.pass_env": ""})
	require.NoError(t, err)
	assert.Equal(t, "0123geheim", c.Redis.Password)
	var out bytes.Buffer
	require.NoError(t, c.Print(&out))
	assert.NotContains(t, out.String(), "geheim")
	assert.Regexp(t, `(?m)^  dsn: capri:\*\*\*@tcp\(db:3306\)/capri +# environment CAPRI_DATABASE_DSN$`, out.String())
	assert.Regexp(t, `(?m)^listen: 127.0.0.1:8680 +# built-in$`, out.String())

	again, wrong := parse("out", out.Bytes())
	require.NoError(t, wrong.OrNil())
	var keys, want []string
	for _, s := range again {
		keys = append(keys, s.key+" = "+s.text)
	}
	for _, v := range c.Values() {
		want = append(want, v.Key+" = "+v.Value)
	}
	assert.Equal(t, want, keys)
}

func TestMaskDSN(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                                     "",
		"u:p@tcp(h:3306)/d?tls=true":           "u:***@tcp(h:3306)/d?tls=true",
		"u@tcp(h)/d":                           "u@tcp(h)/d",
		"u:p/w@x:y@tcp(h)/d":                   "u:***@tcp(h)/d",
		"u:p@unix(/var/run/mysqld.sock)/capri": "u:***@unix(/var/run/mysqld.sock)/capri",
		"u:p@host":                             "u:***@host",
		"u:pa/ss@host":                         "u:***@host",
		"mysql://u:p@h/d":                      "mysql:***@h/d",
		"u:p":                                  "***",
	} {
		assert.Equal(t, want, maskDSN(dsn), dsn)
	}
}

// Two keys with one variable, or a key whose variable a job or the client uses, would be a trap.
func TestVariablesAreUnambiguous(t *testing.T) {
	used := map[string]string{}
	for _, name := range []string{"TOKEN", "SERVER", "TASK", "BATCH_ID", "BATCH_NO", "RUN_NO", "ATTEMPT", "ATTEMPT_TOKEN", "DATA_START", "DATA_END", "SCHEDULE_TIME"} {
		used["CAPRI_"+name] = "a job's environment"
	}
	for _, f := range fieldsOf(Default()) {
		name := EnvName(f.key)
		assert.Empty(t, used[name], "%s is used twice", name)
		used[name] = f.key
	}
}

func TestEveryTypeOfFieldCanBeRead(t *testing.T) {
	for _, f := range fieldsOf(Default()) {
		before := reflect.ValueOf(f.value.Interface())
		assert.Empty(t, f.set(f.text()), f.key)
		assert.Equal(t, before.Interface(), f.value.Interface(), f.key)
	}
}
