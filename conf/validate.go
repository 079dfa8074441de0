package conf

import (
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"capri"
	"capri/sql/dialect"
)

// validate checks what a type alone cannot say. A key that is wrong already is left alone: it holds its
// default, and one slip should give one message.
func (c *Config) validate(bad map[string]*capri.FieldError) {
	check := func(ok bool, key, value, want string) {
		if !ok && bad[key] == nil {
			bad[key] = c.wrong(key, value, want)
		}
	}
	least := func(n, least int, key, unit string) {
		check(n >= least, key, strconv.Itoa(n), fmt.Sprintf("%d or more %s", least, unit))
	}
	atLeast := func(d, least time.Duration, key string) {
		// An hour is no sensible pace for anything here, and "30m" for "30ms" is an easy slip.
		check(d >= least && d <= time.Hour, key, d.String(), fmt.Sprintf("a duration from %s to 1h", least))
	}

	// "Local" and "" would load, and mean another zone on each machine.
	zone, err := time.LoadLocation(c.Timezone)
	check(err == nil && c.Timezone != "" && c.Timezone != "Local", "timezone", c.Timezone,
		"a zone's name, such as UTC, Asia/Shanghai or Europe/Berlin")
	c.zone = zone
	check(c.Data != "", "data", c.Data, "a directory, such as ./capri-data")
	checkAddress := func(key, address string, empty bool) {
		want := "HOST:PORT, such as 127.0.0.1:8680"
		_, port, err := net.SplitHostPort(address)
		number, portErr := strconv.Atoi(port)
		check((empty && address == "") || (err == nil && portErr == nil && number >= 0 && number <= 65535), key, address, want)
	}
	checkAddress("listen", c.Listen, false)
	least(c.API.Rate, 0, "api.rate", "requests a second; 0 is no limit")
	least(c.API.Burst, 1, "api.burst", "requests")
	pair := func(section, cert, key string) {
		check(cert == "" || key != "", section+".key", "", "the file with the key of "+section+".cert")
		check(cert != "" || key == "", section+".cert", "", "the file with the certificate of "+section+".key")
	}
	pair("tls", c.TLS.Cert, c.TLS.Key)
	check(c.TLS.ClientCA == "" || c.TLS.Cert != "", "tls.client_ca", c.TLS.ClientCA, "tls.cert and tls.key beside it, or nothing")
	for section, t := range map[string]TLS{"database.tls": c.Database.TLS, "redis.tls": c.Redis.TLS, "watch.tls": c.Watch.TLS} {
		pair(section, t.Cert, t.Key)
		check(t.CA != "" || t.Cert == "", section+".ca", "", "the file of the CA that signed the server's certificate, or system, beside "+section+".cert")
		check(t.CA != "" || t.ServerName == "", section+".ca", "", "the file of the CA that signed the server's certificate, or system, beside "+section+".server_name")
	}
	check(c.Database.TLS.CA == "" || c.Database.DSN != "", "database.tls.ca", c.Database.TLS.CA, "a database.dsn beside it, since SQLite has no connection")
	check(c.Redis.TLS.CA == "" || c.Redis.Addr != "", "redis.tls.ca", c.Redis.TLS.CA, "a redis.addr beside it, or nothing")
	check(oneOf(c.Log.Level, "debug", "info", "warn", "error"), "log.level", c.Log.Level, "debug, info, warn or error")
	check(oneOf(c.Log.Format, "text", "json"), "log.format", c.Log.Format, "text or json")

	if c.Database.DSN != "" {
		check(dialect.CheckDSN(c.Database.DSN) == nil, "database.dsn", maskDSN(c.Database.DSN),
			"user:password@tcp(host:3306)/database, or nothing for SQLite in the data directory")
	}
	least(c.Database.Connections, 2, "database.connections", "connections")
	least(c.Database.Beats, 1, "database.beat_connections", "connections")
	checkAddress("redis.addr", c.Redis.Addr, true)
	check(c.Redis.DB >= 0 && c.Redis.DB <= 65535, "redis.db", strconv.Itoa(c.Redis.DB), "the number of a Redis database, 0 to 65535")

	check(c.Node.Name == "" || validName(c.Node.Name), "node.name", c.Node.Name, nameRule)
	check(validName(c.Node.Pool), "node.pool", c.Node.Pool, nameRule)
	least(c.Node.Slots, 0, "node.slots", fmt.Sprintf("slots; 0 stands for %d for each CPU", SlotsPerCPU))
	least(c.Node.MemoryMB, 0, "node.memory_mb", "MB; 0 stands for what the machine has")
	c.validateLease(check, bad)

	// Never root (design §8): a job without an account must not become the machine's master.
	check(isAccount(c.Worker.DefaultAccount) && c.Worker.DefaultAccount != "root", "worker.default_account",
		c.Worker.DefaultAccount, "the name of an account of this machine other than root")
	atLeast(c.Worker.PollInterval, 10*time.Millisecond, "worker.poll_interval")
	check(c.Worker.ClaimLimit >= 1 && c.Worker.ClaimLimit <= 10_000, "worker.claim_limit", strconv.Itoa(c.Worker.ClaimLimit), "1 to 10000 batches")
	for _, dir := range strings.Split(c.Worker.Path, ":") {
		check(filepath.IsAbs(dir), "worker.path", c.Worker.Path, "absolute directories with : between them")
	}
	for _, name := range c.Worker.PassEnv {
		// The worker sets these itself for each job; passing on its own would lie to the job.
		check(envVariable.MatchString(name) && !strings.HasPrefix(name, envPrefix) && !strings.HasPrefix(name, "PARAM_"),
			"worker.pass_env", name, "names of variables that do not begin with CAPRI_ or PARAM_")
	}
	check(c.Worker.KeepDays >= 1 && c.Worker.KeepDays <= 3650, "worker.keep_days", strconv.Itoa(c.Worker.KeepDays), "1 to 3650 days")
	check(c.Worker.LogLimitMB >= 0 && c.Worker.LogLimitMB <= 1<<20, "worker.log_limit_mb", strconv.Itoa(c.Worker.LogLimitMB), "1 to 1048576 MB, or 0 for no limit")
	check(c.Worker.LogStore == "" || filepath.IsAbs(c.Worker.LogStore) || strings.HasPrefix(c.Worker.LogStore, "hdfs://") && len(c.HDFS.NameNodes) > 0, "worker.log_store", c.Worker.LogStore,
		"the absolute path of a directory that is mounted on workers and masters, an hdfs:// directory beside hdfs.name_nodes, or nothing")
	check(c.Worker.LogStoreDays >= 1 && c.Worker.LogStoreDays <= 3650, "worker.log_store_days", strconv.Itoa(c.Worker.LogStoreDays), "1 to 3650 days")
	check(c.Worker.MinFreeMB >= 1, "worker.min_free_mb", strconv.Itoa(c.Worker.MinFreeMB), "1 or more MB")
	check(c.Worker.MaxLoadPercent >= 0, "worker.max_load_percent", strconv.Itoa(c.Worker.MaxLoadPercent), "percent of the CPUs such as 200, or 0 for no limit")
	check(oneOf(c.Worker.OverMemory, OverMemoryTell, OverMemoryEnd), "worker.over_memory", c.Worker.OverMemory, "tell (people are told of the job) or end (it is ended, too)")
	check(oneOf(c.Worker.Cgroups, CgroupsAuto, CgroupsOff), "worker.cgroups", c.Worker.Cgroups, "auto (where they can be had) or off")
	for _, network := range c.Worker.HTTPAllow {
		_, err := netip.ParsePrefix(network)
		check(err == nil, "worker.http_allow", network, "networks such as 169.254.169.254/32")
	}
	for name, path := range c.Worker.Clients.ByName() { // whether it is there, capri doctor asks: an absent client stops its jobs, not the worker
		check(path == "" || filepath.IsAbs(path), "worker.clients."+name, path, "the absolute path of a program, or nothing to look for it in worker.path")
	}
	atLeast(c.Dependency.Interval, time.Second, "dependency.interval")
	check(c.Dependency.Parallel >= 1 && c.Dependency.Parallel <= 1000, "dependency.parallel", strconv.Itoa(c.Dependency.Parallel), "1 to 1000 looks at once")
	atLeast(c.Dependency.PathTimeout, 100*time.Millisecond, "dependency.path_timeout")
	c.validateHDFS(check)
	atLeast(c.Dispatch.Interval, 10*time.Millisecond, "dispatch.interval")
	atLeast(c.Lease.Renew, 100*time.Millisecond, "lease.renew")
	// One renewal may fail, and the next one still comes in time.
	check(c.Lease.TTL >= 2*c.Lease.Renew+time.Second && c.Lease.TTL <= time.Hour, "lease.ttl", c.Lease.TTL.String(),
		fmt.Sprintf("at least twice lease.renew and a second more (%s), and at most 1h", 2*c.Lease.Renew+time.Second))

	checkURL := func(key, address, shown string) {
		u, err := url.Parse(address)
		check(address == "" || (err == nil && u.Host != "" && oneOf(u.Scheme, "http", "https")), key, shown, "http://HOST… or https://HOST…, or nothing")
	}
	checkURL("quality.url", c.Quality.URL, c.Quality.URL)
	checkURL("quality.callback", c.Quality.Callback, c.Quality.Callback)
	atLeast(c.Quality.Timeout, 100*time.Millisecond, "quality.timeout")

	a := &c.Alerting
	checkURL("alerting.link", a.Link, a.Link)
	check(oneOf(a.Language, "en", "zh"), "alerting.language", a.Language, "en or zh")
	checkAddress("alerting.mail_server", a.MailServer, true)
	check(oneOf(a.MailTLS, "none", "starttls", "tls"), "alerting.mail_tls", a.MailTLS, "none, starttls or tls")
	if a.MailServer != "" {
		check(isMail(a.MailFrom), "alerting.mail_from", a.MailFrom, "an address such as capri@example.org, beside alerting.mail_server")
		host, _, _ := net.SplitHostPort(a.MailServer)
		check(a.MailUser == "" || a.MailTLS != "none" || oneOf(host, "localhost", "127.0.0.1", "::1"), "alerting.mail_user", a.MailUser,
			"alerting.mail_tls: starttls or tls beside it, or nothing: a password goes only over TLS")
	}
	check(validTimeout(a.MailTimeout), "alerting.mail_timeout", a.MailTimeout.String(), timeoutRule)
	for _, n := range []struct {
		key             string
		is, least, most int
	}{{"mail_tries", a.MailTries, 0, 10}, {"mail_parallel", a.MailParallel, 1, 100}, {"mail_per_minute", a.MailPerMinute, 0, 60_000}} {
		check(n.is >= n.least && n.is <= n.most, "alerting."+n.key, strconv.Itoa(n.is), fmt.Sprintf("%d to %d", n.least, n.most))
	}

	w := &c.Watch
	if w.DSN != "" {
		check(dialect.CheckDSN(w.DSN) == nil, "watch.dsn", maskDSN(w.DSN), "user:password@tcp(host:3306)/database, or nothing")
	}
	for _, address := range w.API {
		checkURL("watch.api", address, address)
	}
	checkURL("watch.webhook", w.Webhook, mask)
	atLeast(w.Interval, time.Second, "watch.interval")
	for key, limit := range map[string]time.Duration{"database_silence": w.DatabaseSilence, "api_silence": w.APISilence, "masters_silence": w.MastersSilence, "monitor_silence": w.MonitorSilence} {
		atLeast(limit, time.Second, "watch."+key)
	}
	checkAddress("watch.mail_server", w.MailServer, true)
	check(oneOf(w.MailTLS, "none", "starttls", "tls"), "watch.mail_tls", w.MailTLS, "none, starttls or tls")
	if w.MailServer != "" {
		check(isMail(w.MailFrom), "watch.mail_from", w.MailFrom, "an address such as capri@example.org, beside watch.mail_server")
		check(len(w.MailTo) > 0, "watch.mail_to", "", "at least one address, beside watch.mail_server")
	}
	for _, to := range w.MailTo {
		check(isMail(to), "watch.mail_to", to, "addresses such as ops@example.org")
	}
}

// validateHDFS checks what can be told without asking anybody; whether the name-nodes and the KDC answer is for capri doctor.
func (c *Config) validateHDFS(check func(ok bool, key, value, want string)) {
	h := &c.HDFS
	seen := map[string]bool{}
	for _, item := range h.NameNodes {
		name, address, named := strings.Cut(item, "=")
		if !named {
			address = name
		}
		host, port, err := net.SplitHostPort(address)
		number, portErr := strconv.Atoi(port)
		ok := err == nil && portErr == nil && host != "" && number > 0 && number <= 65535 && (!named || validName(name)) && !seen[strings.ToLower(address)]
		check(ok, "hdfs.name_nodes", item, "NAME=HOST:PORT or HOST:PORT, each address once, such as warehouse=nn1.example.org:8020")
		seen[strings.ToLower(address)] = true
	}
	check(h.User == "" || isAccount(h.User), "hdfs.user", h.User, "the name of a user, or nothing for who runs Capri")
	between := func(is, from, to int, key, of string) {
		check(is >= from && is <= to, key, strconv.Itoa(is), fmt.Sprintf("%d to %d %s", from, to, of))
	}
	between(h.Connections, 1, 256, "hdfs.connections", "connections")
	between(h.FileLimitMB, 1, 1<<20, "hdfs.file_limit_mb", "MB")
	between(h.CacheMB, 0, 1<<24, "hdfs.cache_mb", "MB; 0 keeps no files")
	for key, is := range map[string]time.Duration{"timeout": h.Timeout, "round_timeout": h.RoundTimeout, "retry_after": h.RetryAfter} {
		check(is >= 100*time.Millisecond && is <= 10*time.Minute, "hdfs."+key, is.String(), "a duration from 100ms to 10m")
	}
	check(oneOf(h.DataNodesBy, "address", "name"), "hdfs.data_nodes_by", h.DataNodesBy, "address or name")
	check(oneOf(h.Protection, "", "authentication", "integrity", "privacy"), "hdfs.protection", h.Protection, "authentication, integrity, privacy, or nothing")
	if h.KerberosPrincipal == "" {
		check(h.KerberosKeytab == "", "hdfs.kerberos_keytab", h.KerberosKeytab, "an hdfs.kerberos_principal beside it, or nothing")
		return
	}
	user, realm, _ := strings.Cut(h.KerberosPrincipal, "@")
	check(user != "" && realm != "" && !strings.Contains(realm, "@"), "hdfs.kerberos_principal", h.KerberosPrincipal, "NAME@REALM or NAME/HOST@REALM, or nothing")
	check(h.KerberosKeytab != "", "hdfs.kerberos_keytab", "", "the file with the key of hdfs.kerberos_principal")
	check(h.KerberosConfig != "", "hdfs.kerberos_config", "", "a file such as /etc/krb5.conf, beside hdfs.kerberos_principal")
	check(strings.Contains(h.KerberosNameNodeAs, "/"), "hdfs.kerberos_name_node", h.KerberosNameNodeAs, "SERVICE/HOST, such as nn/_HOST")
}

// validateLease checks the limits of a node's lease, and their order. Where they are too close a batch could be given to
// another node while it still runs on the first, so no process starts with such.
func (c *Config) validateLease(check func(ok bool, key, value, want string), bad map[string]*capri.FieldError) {
	n := c.Node
	const most = 24 * time.Hour
	for _, l := range []struct {
		key      string
		is       time.Duration
		from, to time.Duration
	}{
		{"node.beat_interval", n.BeatInterval, 100 * time.Millisecond, time.Minute},
		{"node.start_within", n.StartWithin, time.Second, most},
		{"node.kill_after", n.KillAfter, 2 * time.Second, most},
		{"node.kill_grace", n.KillGrace, 100 * time.Millisecond, 10 * time.Second},
		{"node.lost_after", n.LostAfter, LostSlack, most},
	} {
		check(l.is >= l.from && l.is <= l.to, l.key, l.is.String(), fmt.Sprintf("a duration from %s to %s", l.from, l.to))
	}
	check(oneOf(n.OnLeaseLost, LeaseKill, LeaseWait), "node.on_lease_lost", n.OnLeaseLost, "kill (jobs are ended and run elsewhere) or wait (they are left alone until the node answers)")
	for _, key := range []string{"node.beat_interval", "node.start_within", "node.kill_after", "node.kill_grace", "node.lost_after"} {
		if bad[key] != nil {
			return // one slip should give one message
		}
	}
	check(2*n.BeatInterval <= n.StartWithin, "node.beat_interval", n.BeatInterval.String(),
		fmt.Sprintf("at most half of node.start_within (%s), or one late beat stops all starts; beat more often, or raise node.start_within", n.StartWithin))
	check(n.StartWithin < n.KillAfter, "node.start_within", n.StartWithin.String(),
		fmt.Sprintf("less than node.kill_after (%s), or jobs start only to be killed; lower it, or raise node.kill_after", n.KillAfter))
	check(n.LostAfter >= n.KillAfter+n.KillGrace+LostSlack, "node.lost_after", n.LostAfter.String(),
		fmt.Sprintf("at least node.kill_after (%s) + node.kill_grace (%s) + %s = %s, or a batch could run twice; raise it, or lower node.kill_after",
			n.KillAfter, n.KillGrace, LostSlack, n.KillAfter+n.KillGrace+LostSlack))
}

var (
	accountName = regexp.MustCompile(`^[a-z_][a-z0-9_.-]*\$?$`)
	envVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// isAccount is stricter than capri.IsAccount: up to 32 characters, and no capitals.
func isAccount(s string) bool {
	return len(strings.TrimSuffix(s, "$")) <= 32 && accountName.MatchString(s)
}

func isMail(s string) bool {
	a, err := mail.ParseAddress(s)
	return err == nil && a.Address == s
}

const nameRule = "1 to 128 letters, digits, _ . -"

func validName(s string) bool { return capri.IsWord(s, "_.-") }

// CheckName says what is wrong with a name for a master, or nothing: it follows the rule of nodes and pools.
func CheckName(field, name string) error {
	if !validName(name) {
		return capri.Invalid(field, name, nameRule)
	}
	return nil
}

func oneOf(s string, choices ...string) bool {
	for _, c := range choices {
		if s == c {
			return true
		}
	}
	return false
}
