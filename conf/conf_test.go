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
F:3: worker.claim: want one of the keys of conf/capri.yaml: worker.default_account, worker.poll_interval, worker.claim_limit, worker.path, worker.pass_env, worker.keep_days, worker.log_limit_mb, worker.log_store, worker.log_store_days, worker.min_free_mb, worker.max_load_percent, worker.over_memory, worker.cgroups, worker.http_allow, worker.clients.python, worker.clients.java, worker.clients.hive, worker.clients.spark, worker.clients.trino, worker.clients.hadoop, worker.clients.yarn
F:4: frobnicate: want one of the keys of conf/capri.yaml: timezone, data, listen, tls.cert, tls.key, tls.client_ca, tls.ca, api.rate, api.burst, log.level, log.format, database.dsn, database.password_file, database.connections, database.beat_connections, database.tls.ca, database.tls.cert, database.tls.key, database.tls.server_name, redis.addr, redis.password, redis.password_file, redis.db, redis.tls.ca, redis.tls.cert, redis.tls.key, redis.tls.server_name, node.name, node.pool, node.slots, node.memory_mb, node.beat_interval, node.start_within, node.kill_after, node.kill_grace, node.lost_after, node.on_lease_lost, worker.default_account, worker.poll_interval, worker.claim_limit, worker.path, worker.pass_env, worker.keep_days, worker.log_limit_mb, worker.log_store, worker.log_store_days, worker.min_free_mb, worker.max_load_percent, worker.over_memory, worker.cgroups, worker.http_allow, worker.clients.python, worker.clients.java, worker.clients.hive, worker.clients.spark, worker.clients.trino, worker.clients.hadoop, worker.clients.yarn, dependency.interval, dependency.parallel, dependency.path_timeout, hdfs.name_nodes, hdfs.user, hdfs.connections, hdfs.timeout, hdfs.round_timeout, hdfs.retry_after, hdfs.file_limit_mb, hdfs.cache_mb, hdfs.data_nodes_by, hdfs.protection, hdfs.kerberos_principal, hdfs.kerberos_keytab, hdfs.kerberos_config, hdfs.kerberos_name_node, dispatch.interval, lease.ttl, lease.renew, quality.url, quality.token, quality.token_file, quality.timeout, quality.callback, monitor.probes_file, alerting.link, alerting.language, alerting.mail_server, alerting.mail_tls, alerting.mail_from, alerting.mail_user, alerting.mail_password, alerting.mail_password_file, alerting.mail_timeout, alerting.mail_tries, alerting.mail_parallel, alerting.mail_per_minute, alerting.gateways_file, alerting.templates, watch.dsn, watch.password_file, watch.tls.ca, watch.tls.cert, watch.tls.key, watch.tls.server_name, watch.api, watch.interval, watch.database_silence, watch.api_silence, watch.masters_silence, watch.monitor_silence, watch.webhook, watch.mail_server, watch.mail_tls, watch.mail_from, watch.mail_to, watch.mail_user, watch.mail_password, watch.mail_password_file`},
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
worker: {default_account: root, poll_interval: 1ms, claim_limit: 0, path: "/bin:bin", pass_env: [CAPRI_TASK], keep_days: 0, log_limit_mb: -1, log_store: logs, log_store_days: 0, min_free_mb: 0, max_load_percent: -1, over_memory: panic, cgroups: maybe}
dependency: {interval: 2h, parallel: 0, path_timeout: 1ms}
dispatch: {interval: 0s}
quality: {url: "quality:80", timeout: 2h, callback: x, token: a, token_file: SECRET}
watch: {dsn: "u:secret@h", api: [x], interval: 1ms, api_silence: 2h, webhook: "hooks/geheim", mail_server: mail, mail_tls: maybe, mail_from: "Capri <a@b>", mail_to: [x]}
alerting: {link: "capri:80", language: fr, mail_server: "mail:25", mail_tls: none, mail_from: "Capri <a@b>", mail_user: capri, mail_password: a, mail_password_file: SECRET, mail_timeout: 2m, mail_tries: 11, mail_parallel: 0, mail_per_minute: -1}
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
F:9: worker.keep_days: "0": want 1 to 3650 days
F:9: worker.log_limit_mb: "-1": want 1 to 1048576 MB, or 0 for no limit
F:9: worker.log_store: "logs": want the absolute path of a directory that is mounted on workers and masters, an hdfs:// directory beside hdfs.name_nodes, or nothing
F:9: worker.log_store_days: "0": want 1 to 3650 days
F:9: worker.min_free_mb: "0": want 1 or more MB
F:9: worker.max_load_percent: "-1": want percent of the CPUs such as 200, or 0 for no limit
F:9: worker.over_memory: "panic": want tell (people are told of the job) or end (it is ended, too)
F:9: worker.cgroups: "maybe": want auto (where they can be had) or off
F:10: dependency.interval: "2h0m0s": want a duration from 1s to 1h
F:10: dependency.parallel: "0": want 1 to 1000 looks at once
F:10: dependency.path_timeout: "1ms": want a duration from 100ms to 1h
F:11: dispatch.interval: "0s": want a duration from 10ms to 1h
F:12: quality.url: "quality:80": want http://HOST… or https://HOST…, or nothing
F:12: quality.token_file: "SECRET": want either quality.token or a file, not both
F:12: quality.timeout: "2h0m0s": want a duration from 100ms to 1h
F:12: quality.callback: "x": want http://HOST… or https://HOST…, or nothing
F:14: alerting.link: "capri:80": want http://HOST… or https://HOST…, or nothing
F:14: alerting.language: "fr": want en or zh
F:14: alerting.mail_from: "Capri <a@b>": want an address such as capri@example.org, beside alerting.mail_server
F:14: alerting.mail_user: "capri": want alerting.mail_tls: starttls or tls beside it, or nothing: a password goes only over TLS
F:14: alerting.mail_password_file: "SECRET": want either alerting.mail_password or a file, not both
F:14: alerting.mail_timeout: "2m0s": want a duration from 100ms to 1m
F:14: alerting.mail_tries: "11": want 0 to 10
F:14: alerting.mail_parallel: "0": want 1 to 100
F:14: alerting.mail_per_minute: "-1": want 0 to 60000
F:13: watch.dsn: "u:***@h": want user:password@tcp(host:3306)/database, or nothing
F:13: watch.api: "x": want http://HOST… or https://HOST…, or nothing
F:13: watch.interval: "1ms": want a duration from 1s to 1h
F:13: watch.api_silence: "2h0m0s": want a duration from 1s to 1h
F:13: watch.webhook: "***": want http://HOST… or https://HOST…, or nothing
F:13: watch.mail_server: "mail": want HOST:PORT, such as 127.0.0.1:8680
F:13: watch.mail_tls: "maybe": want none, starttls or tls
F:13: watch.mail_from: "Capri <a@b>": want an address such as capri@example.org, beside watch.mail_server
F:13: watch.mail_to: "x": want addresses such as ops@example.org`},
		{"limits of a node's lease that cannot be", "node: {beat_interval: 2m, start_within: 1s, kill_after: 1s, kill_grace: 11s, lost_after: 1s, on_lease_lost: pray}", `
F:1: node.beat_interval: "2m0s": want a duration from 100ms to 1m0s
F:1: node.kill_after: "1s": want a duration from 2s to 24h0m0s
F:1: node.kill_grace: "11s": want a duration from 100ms to 10s
F:1: node.lost_after: "1s": want a duration from 15s to 24h0m0s
F:1: node.on_lease_lost: "pray": want kill (jobs are ended and run elsewhere) or wait (they are left alone until the node answers)`},
		{"limits of a node's lease in the wrong order", "node: {beat_interval: 40s, start_within: 1m, kill_after: 1m, lost_after: 84s}", `
F:1: node.beat_interval: "40s": want at most half of node.start_within (1m0s), or one late beat stops all starts; beat more often, or raise node.start_within
F:1: node.start_within: "1m0s": want less than node.kill_after (1m0s), or jobs start only to be killed; lower it, or raise node.kill_after
F:1: node.lost_after: "1m24s": want at least node.kill_after (1m0s) + node.kill_grace (10s) + 15s = 1m25s, or a batch could run twice; raise it, or lower node.kill_after`},
		{"a lease that no renewal can keep", "lease: {ttl: 4s, renew: 2s}", "\nF:1: lease.ttl: \"4s\": want at least twice lease.renew and a second more (5s), and at most 1h"},
		{"halves of TLS", "tls: {key: k}\ndatabase: {tls: {cert: c, ca: x}}\nredis: {addr: 'r:1', tls: {server_name: r}}\nwatch: {tls: {cert: c, key: k}}", `
tls.cert: want the file with the certificate of tls.key
F:2: database.tls.ca: "x": want a database.dsn beside it, since SQLite has no connection
database.tls.key: want the file with the key of database.tls.cert
redis.tls.ca: want the file of the CA that signed the server's certificate, or system, beside redis.tls.server_name
watch.tls.ca: want the file of the CA that signed the server's certificate, or system, beside watch.tls.cert`},
		{"a client CA without TLS", "tls: {client_ca: x}", "\nF:1: tls.client_ca: \"x\": want tls.cert and tls.key beside it, or nothing"},
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
	for _, name := range []string{"TOKEN", "SERVER", "CACERT", "CERT", "CERT_KEY", "TASK", "BATCH_ID", "BATCH_NO", "RUN_NO", "ATTEMPT", "ATTEMPT_TOKEN", "DATA_START", "DATA_END", "SCHEDULE_TIME"} {
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

func TestProbes_are_read_strictly(t *testing.T) {
	load := func(text string) (*Config, error) {
		t.Setenv("CAPRI_MONITOR_PROBES_FILE", write(t, "probes.yaml", text))
		return Load("none", false, nil)
	}
	c, err := load(`
probes:
  - {name: disk, command: [/bin/df, -h], interval: 5m, timeout: 3s, level: severe, text: "look at the disk"}
  - {name: page, url: "http://127.0.0.1:1/x"}
  - {name: daily, task: orders, max_age: 26h}
`)
	require.NoError(t, err)
	assert.Equal(t, []Probe{
		{Name: "disk", Command: []string{"/bin/df", "-h"}, Interval: 5 * time.Minute, Timeout: 3 * time.Second, Level: capri.Severe, Text: "look at the disk"},
		{Name: "page", URL: "http://127.0.0.1:1/x", Interval: time.Minute, Timeout: 10 * time.Second, Level: capri.Important},
		{Name: "daily", Task: "orders", MaxAge: 26 * time.Hour, Interval: time.Minute, Timeout: 10 * time.Second, Level: capri.Important},
	}, c.Probes)

	c, err = load("")
	require.NoError(t, err, "an empty file lists none")
	assert.Empty(t, c.Probes)

	for _, c := range []struct{ sentence, text, want string }{
		{"a mistyped key", "probes: [{name: a, comand: [x]}]", "field comand not found"},
		{"a command as a shell's text", "probes: [{name: a, command: x -y}]", "cannot unmarshal"},
		{"two kinds in one", "probes: [{name: a, command: [x], url: 'http://x'}]", "exactly one of command, url and task"},
		{"no kind", "probes: [{name: a}]", "exactly one of command, url and task"},
		{"one name twice", "probes: [{name: a, command: [x]}, {name: a, command: [y]}]", "probes[1].name: \"a\": want a name that no other probe has"},
		{"a task without an age", "probes: [{name: a, task: x}]", "probes[0].max_age: want to be there with task"},
		{"an address without a host", "probes: [{name: a, url: 'file:///etc/passwd'}]", "probes[0].url"},
		{"a time limit that would hold up the others", "probes: [{name: a, command: [x], timeout: 2m}]", "probes[0].timeout: \"2m\": want a duration from 100ms to 30s"},
		{"a level that there is not", "probes: [{name: a, command: [x], level: loud}]", "probes[0].level: \"loud\": want attention, important or severe"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			_, err := load(c.text)
			require.ErrorIs(t, err, capri.ErrInvalid)
			assert.ErrorContains(t, err, c.want)
		})
	}
	t.Setenv("CAPRI_MONITOR_PROBES_FILE", "/nowhere/at/all")
	_, err = Load("none", false, nil)
	assert.ErrorContains(t, err, "monitor.probes_file: \"/nowhere/at/all\": want a file that can be read")
}

func TestHDFS_is_checked_and_its_name_nodes_are_parted_by_name(t *testing.T) {
	load := func(text string) (*Config, error) {
		file := filepath.Join(t.TempDir(), "c.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return Load(file, true, nil)
	}
	c, err := load("hdfs: {name_nodes: [wh=NN1:8020, \"[::1]:9000\", WH=nn2:8020], kerberos_principal: capri/w@REALM, kerberos_keytab: /k}")
	require.NoError(t, err)
	require.Equal(t, []NameService{{Name: "wh", NameNodes: []string{"nn1:8020", "nn2:8020"}}, {Name: "[::1]:9000", NameNodes: []string{"[::1]:9000"}}}, c.HDFS.NameServices())
	require.Empty(t, Default().HDFS.NameServices())

	_, err = load(`
hdfs:
  name_nodes: [wh=nn1, ":8020", nn1:8020, NN1:8020, a b=nn2:8020, nn3:0]
  user: "a b"
  connections: 0
  timeout: 1ms
  round_timeout: 11m
  retry_after: 0s
  file_limit_mb: 0
  cache_mb: -1
  data_nodes_by: luck
  protection: none
  kerberos_principal: capri
  kerberos_config: ""
  kerberos_name_node: nn
`)
	for _, want := range []string{
		`hdfs.name_nodes: "wh=nn1": want NAME=HOST:PORT or HOST:PORT, each address once`,
		`hdfs.user: "a b": want`, `hdfs.connections: "0": want 1 to 256`, `hdfs.timeout: "1ms": want a duration from 100ms to 10m`,
		`hdfs.round_timeout: "11m0s"`, `hdfs.retry_after: "0s"`, `hdfs.file_limit_mb: "0": want 1 to`, `hdfs.cache_mb: "-1": want 0 to`,
		`hdfs.data_nodes_by: "luck": want address or name`, `hdfs.protection: "none": want authentication, integrity, privacy, or nothing`,
		`hdfs.kerberos_principal: "capri": want NAME@REALM`, `hdfs.kerberos_keytab: want the file`, `hdfs.kerberos_config: want a file such as`,
		`hdfs.kerberos_name_node: "nn": want SERVICE/HOST`,
	} {
		require.ErrorContains(t, err, want)
	}
	for _, address := range []string{":8020", "NN1:8020", "a b=nn2:8020", "nn3:0"} {
		_, err = load("hdfs: {name_nodes: [nn1:8020, \"" + address + "\"]}")
		require.ErrorContains(t, err, "hdfs.name_nodes: \""+address+"\"")
	}
	_, err = load("hdfs: {kerberos_keytab: /k}")
	require.ErrorContains(t, err, "hdfs.kerberos_principal beside it")
}

func TestGateways_are_read_strictly_and_over_their_preset(t *testing.T) {
	load := func(text string) (*Config, error) {
		return Load("none", false, map[string]string{"alerting.gateways_file": write(t, "gateways.yaml", text)})
	}
	secret := write(t, "secret", "s3cret\n")
	c, err := load(`
gateways:
  - {name: ops, preset: dingtalk, url: "https://h/x?access_token=k", secrets: {key: ` + secret + `}, sign: key}
  - {name: sms, url_file: ` + write(t, "url", "https://h/geheim\n") + `, method: PUT, headers: {X: a}, content_type: text/xml, body: b, success: {status: [201], field: a, equals: [0]},
     refusal: {contains: x}, id: a.0, timeout: 1s, tries: 0, parallel: 2, per_minute: 9}
`)
	require.NoError(t, err)
	assert.Equal(t, []Gateway{
		{Name: "ops", Method: "POST", URL: "https://h/x?access_token=k", ContentType: "application/json", Body: presets["dingtalk"].Body, Secrets: map[string]string{"key": "s3cret"}, Sign: "key",
			Success: Answer{Field: "errcode", Equals: []string{"0"}}, Limits: Limits{Timeout: 10 * time.Second, Tries: 3, Parallel: 4, PerMinute: 20}},
		{Name: "sms", Method: "PUT", URL: "https://h/geheim", Headers: map[string]string{"X": "a"}, ContentType: "text/xml", Body: "b", Secrets: map[string]string{},
			Success: Answer{Status: []int{201}, Field: "a", Equals: []string{"0"}}, Refusal: Answer{Contains: "x"}, ID: "a.0", Limits: Limits{Timeout: time.Second, Parallel: 2, PerMinute: 9}},
	}, c.Gateways)

	c, err = load("")
	require.NoError(t, err, "an empty file lists none")
	assert.Empty(t, c.Gateways)

	for _, c := range []struct{ sentence, gateway, want string }{
		{"a mistyped key", "urll: x", "field urll not found"},
		{"the name of the mail channel", "name: mail, url: 'http://h'", "gateways[0].name: \"mail\": want a name that no other channel has"},
		{"no name", "name: '', url: 'http://h'", "gateways[0].name: want 1 to 128"},
		{"a preset that there is not", "name: a, url: 'http://h', preset: irc", "gateways[0].preset: \"irc\": want dingtalk, feishu, generic-phone, generic-sms, slack, wecom, or nothing"},
		{"no address", "name: a", "gateways[0].url: want either url or url_file"},
		{"two addresses", "name: a, url: 'http://h', url_file: " + secret, "gateways[0].url: want either url or url_file"},
		{"an address without a host", "name: a, url: 'file:///geheim'", "gateways[0].url: \"***\": want http://HOST"},
		{"an address that is no address", "name: a, url: 'http://h/geheim%zz'", "gateways[0].url: \"***\": want http://HOST"},
		{"a host from a message", "name: a, url: 'http://{{query .To}}/geheim?'", "gateways[0].url: \"***\": want"},
		{"a path from a message", "name: a, url: 'http://h/{{query .To}}?geheim'", "values only behind the ?"},
		{"a file that is not there", "name: a, url_file: /nowhere/at/all", "gateways[0].url_file: \"/nowhere/at/all\": want a file that can be read: no such file"},
		{"a secret that is not there", "name: a, url: 'http://h', secrets: {k: /nowhere/at/all}", "gateways[0].secrets.k: \"/nowhere/at/all\": want a file that can be read"},
		{"a secret of two lines", "name: a, url: 'http://h', secrets: {k: " + write(t, "two", "geheim\ngeheim") + "}", "want a file that holds one line"},
		{"an empty secret", "name: a, url: 'http://h', secrets: {k: " + write(t, "empty", "\n") + "}", "want a file that holds one line"},
		{"a method that changes other things", "name: a, url: 'http://h', method: DELETE", "gateways[0].method: \"DELETE\": want GET, POST or PUT"},
		{"a status that there is not", "name: a, url: 'http://h', success: {status: [20]}", "gateways[0].success.status: \"20\": want statuses"},
		{"a field without a value", "name: a, url: 'http://h', refusal: {field: code}", "gateways[0].refusal.equals: want to be there with field"},
		{"a time limit that holds up others", "name: a, url: 'http://h', timeout: 2m", "gateways[0].timeout: \"2m\": want a duration from 100ms to 1m"},
		{"too many tries", "name: a, url: 'http://h', tries: 99", "gateways[0].tries: \"99\": want 0 to 10"},
		{"none at once", "name: a, url: 'http://h', parallel: 0", "gateways[0].parallel: \"0\": want 1 to 100"},
		{"a rate below nothing", "name: a, url: 'http://h', per_minute: -1", "gateways[0].per_minute: \"-1\": want 0 to 60000"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			_, err := load("gateways: [{" + c.gateway + "}]")
			require.ErrorIs(t, err, capri.ErrInvalid)
			assert.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "geheim")
		})
	}
	_, err = load("gateways: [{name: a, url: 'http://h'}, {name: a, url: 'http://h', tries: 99}]")
	require.ErrorContains(t, err, "gateways[1].name: \"a\"")
	require.ErrorContains(t, err, "gateways[1].tries", "all at once")
	_, err = Load("none", false, map[string]string{"alerting.gateways_file": "/nowhere/at/all"})
	assert.ErrorContains(t, err, "alerting.gateways_file: \"/nowhere/at/all\": want a file that can be read")
}
