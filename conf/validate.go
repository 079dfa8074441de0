package conf

import (
	"fmt"
	"net"
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

	// Never root (design §8): a job without an account must not become the machine's master.
	check(accountName.MatchString(c.Worker.DefaultAccount) && c.Worker.DefaultAccount != "root", "worker.default_account",
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
	atLeast(c.Dependency.Interval, time.Second, "dependency.interval")
	check(c.Dependency.Parallel >= 1 && c.Dependency.Parallel <= 1000, "dependency.parallel", strconv.Itoa(c.Dependency.Parallel), "1 to 1000 looks at once")
	atLeast(c.Dependency.PathTimeout, 100*time.Millisecond, "dependency.path_timeout")
	atLeast(c.Dispatch.Interval, 10*time.Millisecond, "dispatch.interval")
}

var (
	accountName = regexp.MustCompile(`^[a-z_][a-z0-9_.-]{0,31}\$?$`)
	envVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	nodeName    = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
)

const nameRule = "1 to 128 letters, digits, _ . -"

func validName(s string) bool { return nodeName.MatchString(s) }

func oneOf(s string, choices ...string) bool {
	for _, c := range choices {
		if s == c {
			return true
		}
	}
	return false
}
