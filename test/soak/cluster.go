package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"capri/test/checker"
)

// settings say what is run.
type settings struct {
	Masters, Workers, Slots int
	Speed                   int64  // 0: business time is real time
	Start                   string // business time at the beginning, where it is sped up
	Zone                    string
	Limits                  []string          // environment of all processes
	DicData                 map[string]string // settings in the database
}

// soaking are the settings of the soak: limits as short as the rules allow (but for the long grace: where kill_after is
// under two looks of lost-nodes, taking one limit for the other gives a batch away while its job has some seconds left),
// and a clock that meets the end of a month,
// and three hours later the night in which it goes back.
func soaking(speed int64) settings {
	return settings{
		Masters: 3, Workers: 4, Slots: 12, Speed: speed, Start: "2026-10-31 22:40:00", Zone: "America/New_York",
		Limits: []string{"CAPRI_LEASE_TTL=5s", "CAPRI_LEASE_RENEW=2s",
			"CAPRI_NODE_BEAT_INTERVAL=1s", "CAPRI_NODE_START_WITHIN=7s", "CAPRI_NODE_KILL_AFTER=9s", "CAPRI_NODE_KILL_GRACE=7s", "CAPRI_NODE_LOST_AFTER=31s",
			"CAPRI_DEPENDENCY_INTERVAL=5s"},
		DicData: map[string]string{
			"task_need_reschudle_time": strconv.FormatInt(max(1, speed*15/60), 10), // fifteen real seconds
			"cron_horizon_minutes":     "30",
			"clock_offset_ms":          "900000", // a quarter of an hour: a hiccup of this machine of a second is a minute
			// The monitor's ages are for real time.
			"generate_important_minutes": "0", "generate_severe_minutes": "0", "dependency_important_minutes": "0", "dependency_severe_minutes": "0",
			"timeout_age_minutes": "0", "service_age_minutes": "0", "ready_important_minutes": "0",
		},
	}
}

// asShipped are the settings of a scenario: the limits by default, real time.
func asShipped() settings {
	return settings{Masters: 3, Workers: 4, Slots: 10, Zone: "America/New_York", DicData: map[string]string{}}
}

// cluster is everything that runs.
type cluster struct {
	settings
	root, dir, bin        string
	capri, witness, check string
	base                  checker.Run // for the clock's conversion
	database              *mariadb
	redis                 *redis
	mail                  *mailbox
	masters, workers      []*member
	networks              map[string]*namespace // of workers; none: all share this machine's
	proxies               bool                  // it is asked for
	sharedWhy             string                // why they do
	db                    *sql.DB               // around the proxies
	say                   func(format string, args ...any)
}

// build builds the programs, with failpoints.
func (c *cluster) build(ctx context.Context) error {
	c.bin = filepath.Join(c.dir, "bin")
	c.capri, c.witness, c.check = filepath.Join(c.bin, "capri"), filepath.Join(c.bin, "witness"), filepath.Join(c.bin, "capri-check")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "failpoint", "-o", c.bin+"/",
		"./cmd/capri", "./cmd/capri-shim", "./test/checker/cmd/witness", "./test/checker/cmd/capri-check")
	cmd.Dir, cmd.Env = c.root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// start brings up servers, schema, masters and workers.
func (c *cluster) start(ctx context.Context) error {
	if err := c.startServers(ctx); err != nil {
		return err
	}
	var err error
	if c.base, err = c.startClock(); err != nil {
		return err
	}
	if c.db, err = sql.Open("mysql", c.database.dsn(c.database.address)+"?timeout=1s&readTimeout=10s&writeTimeout=10s&interpolateParams=true&clientFoundRows=true"); err != nil {
		return err
	}
	c.db.SetMaxIdleConns(4)
	c.db.SetConnMaxIdleTime(5 * time.Second)
	if out, err := c.run(ctx, c.environment(c.database.dsn(c.database.address), ""), "migrate", "up"); err != nil {
		return fmt.Errorf("migrate: %w\n%s", err, out)
	}
	for name, value := range c.DicData {
		if _, err := c.db.ExecContext(ctx, "INSERT INTO dic_data (name, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)", name, value); err != nil {
			return err
		}
	}
	names := make([]string, c.Workers)
	for i := range names {
		names[i] = fmt.Sprintf("w%d", i+1)
	}
	if c.sharedWhy = "asked for by -proxies"; !c.proxies {
		c.networks, c.sharedWhy = networks(names)
	}
	for i := range c.Masters {
		m, err := c.newMember(ctx, "master", fmt.Sprintf("m%d", i+1))
		if err != nil {
			return err
		}
		c.masters = append(c.masters, m)
	}
	for _, name := range names {
		w, err := c.newMember(ctx, "worker", name)
		if err != nil {
			return err
		}
		c.workers = append(c.workers, w)
	}
	for i, m := range c.members() {
		if err := m.start(); err != nil {
			return err
		}
		if i == 0 { // the first one makes the key
			if err := m.awaitLog("listens on", 60*time.Second); err != nil {
				return err
			}
		}
	}
	for _, m := range c.masters {
		if err := m.awaitLog("listens on", 60*time.Second); err != nil {
			return err
		}
	}
	return c.awaitNodes(ctx, 60*time.Second)
}

func (c *cluster) startServers(ctx context.Context) error {
	var err error
	if c.database, err = newMariaDB(ctx, filepath.Join(c.dir, "mariadb")); err != nil {
		return err
	}
	if c.redis, err = newRedis(ctx, filepath.Join(c.dir, "redis")); err != nil {
		return err
	}
	if c.mail, err = newMailbox(ctx); err != nil {
		return err
	}
	return errors.Join(c.database.start(), c.redis.start())
}

// startClock fixes how business time runs, before any process is told.
func (c *cluster) startClock() (checker.Run, error) {
	r := checker.Run{Zone: c.Zone}
	if c.Speed == 0 {
		return r, nil
	}
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		return r, err
	}
	at, err := time.ParseInLocation(time.DateTime, c.Start, zone)
	r.Speed, r.BaseReal, r.BaseBusiness = float64(c.Speed), time.Now().UnixMilli(), at.UnixMilli()
	return r, err
}

// business turns a real instant into business time, real back; both in epoch milliseconds.
func (c *cluster) business(real int64) int64 {
	if c.base.Speed == 0 {
		return real
	}
	return c.base.BaseBusiness + (real-c.base.BaseReal)*c.Speed
}

func (c *cluster) real(business int64) int64 {
	if c.base.Speed == 0 {
		return business
	}
	return c.base.BaseReal + (business-c.base.BaseBusiness)/c.Speed
}

// environment of every process: nothing of ours but what is said here.
func (c *cluster) environment(dsn, redis string) []string {
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "CAPRI_DATABASE_DSN=" + dsn, "CAPRI_REDIS_ADDR=" + redis, "CAPRI_TIMEZONE=" + c.Zone,
		"CAPRI_NODE_SLOTS=" + strconv.Itoa(c.Slots), "CAPRI_NODE_MEMORY_MB=4096", "CAPRI_WORKER_PASS_ENV=SOAK_NODE",
		"CAPRI_ALERTING_MAIL_SERVER=" + c.mail.link.address, "CAPRI_ALERTING_MAIL_TLS=none", "CAPRI_ALERTING_MAIL_FROM=capri@example.com"}, c.Limits...)
	if c.base.Speed != 0 {
		env = append(env, fmt.Sprintf("CAPRI_FAILPOINT_CLOCK=%d %d %d", c.base.BaseReal, c.base.BaseBusiness, c.Speed))
	}
	return env
}

// run runs the command line to its end.
func (c *cluster) run(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.capri, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = env, c.dir, time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// api runs a client command against one master.
func (c *cluster) api(ctx context.Context, m *member, args ...string) (string, error) {
	return c.run(ctx, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "CAPRI_TIMEZONE=" + c.Zone},
		append([]string{"--server", "http://" + m.address, "--token-file", filepath.Join(c.masters[0].dir, "data", "admin.key")}, args...)...)
}

func (c *cluster) members() []*member { return append(append([]*member{}, c.masters...), c.workers...) }

func (c *cluster) member(name string) *member {
	for _, m := range c.members() {
		if m.name == name {
			return m
		}
	}
	return nil
}

// awaitNodes waits until every worker is registered and not lost.
func (c *cluster) awaitNodes(ctx context.Context, within time.Duration) error {
	for deadline := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		var n int
		err := c.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM capri_schedul_cluster WHERE lost = 0 AND boot_id <> ''").Scan(&n)
		if err == nil && n == len(c.workers) {
			return nil
		}
		for _, w := range c.workers {
			if !w.process().alive() {
				return fmt.Errorf("worker %s ended by itself:\n%s", w.name, tail(w.logFile, 20))
			}
		}
		if time.Now().After(deadline) {
			return errors.Join(err, fmt.Errorf("%d of %d workers are registered", n, len(c.workers)))
		}
	}
}

// stop ends everything in order, then whatever is left; it tells what should not have been there.
func (c *cluster) stop() (complaints []string) {
	for _, m := range c.members() {
		m.signalShims(syscall.SIGCONT) // one that was frozen could not leave
		if p := m.process(); p.alive() {
			if !p.stop(20 * time.Second) {
				complaints = append(complaints, fmt.Sprintf("%s %s does not stop in order (code %d):\n%s", m.role, m.name, p.cmd.ProcessState.ExitCode(), tail(m.logFile, 5)))
			}
		}
	}
	for _, w := range c.workers {
		if err := w.awaitNoShims(15 * time.Second); err != nil {
			complaints = append(complaints, err.Error())
		}
	}
	return complaints
}

// abandon ends whatever still runs, at once: after an error, a signal, or a scenario whose jobs would run for hours.
func (c *cluster) abandon() {
	for _, m := range c.members() {
		if m.process().alive() || len(m.shims()) > 0 {
			m.crash()
		}
	}
}

// network says in a line how workers are cut off.
func (c *cluster) network() string {
	if len(c.networks) > 0 {
		return "each worker in a network namespace of its own: worker_cut cuts its cable"
	}
	return "all in one network, the proxies do the cutting: " + c.sharedWhy
}

// stopServers ends what the checker no longer needs.
func (c *cluster) stopServers() {
	if c.db != nil {
		c.db.Close()
	}
	if c.database != nil {
		c.database.p.kill()
	}
	if c.redis != nil {
		c.redis.p.kill()
	}
	if c.mail != nil {
		c.mail.close()
	}
}

// unfinished tells how many batches could still do something: run, or be placed now. A breaker that opened by itself is not
// closed by anybody, and has no end.
func (c *cluster) unfinished(ctx context.Context, until int64) (n int, err error) {
	err = c.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM task_work b JOIN task t ON t.id = b.task_id WHERE b.state IN (1, 2)
		OR b.state = 0 AND b.unmet = 0 AND b.held = 0 AND b.schedule_time <= ? AND t.enabled = 1 AND t.deleted_at IS NULL
		AND NOT EXISTS (SELECT 1 FROM dispatch_stop s WHERE s.kind = 2 AND s.scope = 3 AND s.name = t.name AND s.ends_at IS NULL)`, until).Scan(&n)
	return n, err
}

// settle lets the cluster be until nothing is left to do, or has not become less for the time of stuck. Some tasks make
// more than they may run at once, so the longer a soak, the longer their queue at its end.
func (c *cluster) settle(ctx context.Context, until int64, stuck time.Duration) (left int, took time.Duration, err error) {
	began := time.Now()
	least, moved := math.MaxInt, began
	still := 0
	for time.Since(moved) < stuck && ctx.Err() == nil {
		left, err = c.unfinished(ctx, until)
		if err == nil && left < least {
			least, moved = left, time.Now()
		}
		if err == nil && left == 0 {
			if still++; still == 5 { // also what a success has just made ready
				return 0, time.Since(began), nil
			}
		} else {
			still = 0
		}
		time.Sleep(500 * time.Millisecond)
	}
	return left, time.Since(began), err
}

// column reads one column as text.
func (c *cluster) column(ctx context.Context, query string) ([]string, error) {
	rows, err := c.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

// logs counts the lines of all members that have one of the texts.
func (c *cluster) logs(texts ...string) int {
	n := 0
	for _, m := range c.members() {
		log, err := os.ReadFile(m.logFile)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(log)) {
			for _, t := range texts {
				if strings.Contains(line, t) {
					n++
					break
				}
			}
		}
	}
	return n
}
