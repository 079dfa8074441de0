package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"capri/test/checker"
)

// options are the flags.
type options struct {
	minutes  float64
	seed     uint64
	tasks    int
	speed    int64
	dir      string
	keep     bool
	json     string
	quiet    bool
	scenario string
	times    int
	seconds  int
	proxies  bool
}

func main() {
	var o options
	flag.Float64Var(&o.minutes, "minutes", 2, "how long there are faults; starting, settling and checking come on top")
	flag.Uint64Var(&o.seed, "seed", 1, "decides tasks, faults and what people do")
	flag.IntVar(&o.tasks, "tasks", 120, "how many tasks, about")
	flag.Int64Var(&o.speed, "speed", 60, "how many times as fast business time runs")
	flag.StringVar(&o.dir, "dir", "", "where everything of the run is written (default: a new temporary directory)")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory also when everything held")
	flag.StringVar(&o.json, "json", "", "write the report as JSON to this file, too")
	flag.BoolVar(&o.quiet, "quiet", false, "only the report")
	flag.StringVar(&o.scenario, "scenario", "", "measure one thing with the limits by default: worker-kill, leader-kill, redis-kill, mariadb-down")
	flag.IntVar(&o.times, "times", 3, "how often, in a scenario")
	flag.IntVar(&o.seconds, "seconds", 30, "how long something is away, in a scenario")
	flag.BoolVar(&o.proxies, "proxies", false, "no network namespaces, also where they could be had: the proxies cut workers off")
	flag.Parse()
	if flag.NArg() > 0 || o.minutes <= 0 || o.speed < 1 || o.tasks < 20 || o.times < 1 {
		fmt.Fprintln(os.Stderr, "soak: it takes flags alone, -minutes above 0, -speed and -times of at least 1, -tasks of at least 20; see -h")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ok, err := run(ctx, o)
	if ctx.Err() != nil {
		err = errors.New("interrupted; nothing was judged")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

// run makes the directory, does what was asked, and leaves no process behind, whatever happens.
func run(ctx context.Context, o options) (ok bool, err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return false, err
	}
	if o.dir == "" {
		o.dir, err = os.MkdirTemp("", "capri-soak.")
	} else {
		err = os.MkdirAll(o.dir, 0o755)
	}
	if err != nil {
		return false, err
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return false, err
	}
	// Jobs run under another account, and the database under a third.
	for name, mode := range map[string]os.FileMode{".": 0o755, "witness": 0o777, "witness/locks": 0o777, "paths": 0o777} {
		path := filepath.Join(o.dir, name)
		if err := errors.Join(os.MkdirAll(path, mode), os.Chmod(path, mode)); err != nil {
			return false, err
		}
	}
	began := time.Now()
	c := &cluster{root: root, dir: o.dir, proxies: o.proxies, say: func(format string, args ...any) {
		if !o.quiet {
			fmt.Printf("%7.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
		}
	}}
	defer func() {
		c.abandon()
		c.stopServers()
		for _, left := range sweep(o.dir) {
			c.say("ended: %s", left)
		}
		if gone := removeAll(c.networks); gone != nil {
			fmt.Fprintln(os.Stderr, "soak:", gone)
		}
		if ok && err == nil && !o.keep {
			os.RemoveAll(o.dir)
		} else {
			fmt.Printf("everything of the run is in %s\n", o.dir)
		}
	}()
	c.say("builds in %s", o.dir)
	if err := c.build(ctx); err != nil {
		return false, err
	}
	if o.scenario != "" {
		return scenario(ctx, c, o)
	}
	return soak(ctx, c, o)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w: run it inside a checkout", err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// soak runs the cluster under faults, and judges what is left.
func soak(ctx context.Context, c *cluster, o options) (bool, error) {
	c.settings = soaking(o.speed)
	length := time.Duration(o.minutes * float64(time.Minute))
	faults := plan(o.seed, length)
	if err := c.start(ctx); err != nil {
		return false, err
	}
	c.say("3 masters, 4 workers; %s", c.network())
	all := tasks(o.seed, o.tasks, c.witness, c.dir)
	if err := c.apply(ctx, all); err != nil {
		return false, err
	}
	rep := &report{Seed: o.seed, Minutes: o.minutes, Speed: o.speed, Tasks: len(all), Network: c.network()}
	run := c.base
	run.Seed, run.From, run.Nodes = o.seed, c.business(time.Now().UnixMilli()), map[string]checker.Capacity{}
	for _, w := range c.workers {
		run.Nodes[w.name] = checker.Capacity{Slots: c.Slots, MemoryMB: 4096}
	}

	faultLog, err := os.Create(filepath.Join(c.dir, "nemesis.jsonl"))
	if err != nil {
		return false, err
	}
	defer faultLog.Close()
	callLog, err := os.Create(filepath.Join(c.dir, "people.jsonl"))
	if err != nil {
		return false, err
	}
	defer callLog.Close()

	watch := newWatcher(c)
	nemesis := &nemesis{c: c, watch: watch, log: faultLog, open: map[string]bool{}}
	rep.People = newPeople(c, nemesis, all, o.seed, callLog)
	watching, stopWatching := context.WithCancel(ctx)
	hurting, stopHurting := context.WithTimeout(ctx, length)
	defer stopHurting()
	var background, trouble sync.WaitGroup
	background.Go(func() { watch.run(watching) })
	defer background.Wait()
	defer stopWatching()
	if err := c.begin(ctx, all); err != nil {
		return false, err
	}
	c.say("%d faults are planned", len(faults))
	trouble.Go(func() { nemesis.run(hurting, faults) })
	trouble.Go(func() { rep.People.run(hurting) })
	<-hurting.Done()
	trouble.Wait()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}

	c.say("all is healed; it settles")
	run.To = c.business(time.Now().UnixMilli())
	if err := c.heal(ctx, run.To); err != nil {
		rep.wrong("after all faults: %v", err)
	}
	if err := rep.People.tidy(ctx); err != nil {
		rep.wrong("nothing is hurt any more, and yet: %v", err)
	}
	left, took, err := c.settle(ctx, run.To, 150*time.Second)
	if err != nil {
		return false, err
	}
	if left > 0 {
		rep.wrong("%d batches still run, or could run, and do not get less, %s after the last fault", left, took.Round(time.Second))
	}
	rep.Settled, run.Settled, run.SettledMS = took.Milliseconds(), true, took.Milliseconds()
	told := c.business(time.Now().UnixMilli())
	if left, err := c.awaitTold(ctx, told, 60*time.Second); err != nil || left > 0 {
		rep.wrong("nothing is hurt any more, and %d alerts and messages wait to be told: %v", left, err)
	}
	stopWatching()
	background.Wait()
	for _, m := range c.members() {
		if !m.process().alive() {
			rep.wrong("%s %s ended by itself:\n%s", m.role, m.name, tail(m.logFile, 10))
		}
	}
	rep.Wrong = append(rep.Wrong, c.stop()...)
	run.End = c.business(time.Now().UnixMilli())
	rep.Wrong = append(rep.Wrong, nemesis.errors...)
	rep.Wrong = append(rep.Wrong, rep.People.Wrong...)
	if err := rep.told(ctx, c, all, told); err != nil {
		return false, err
	}
	return rep.finish(ctx, c, o, run, watch, nemesis.done)
}

// apply gives the tasks to the cluster, by the command line.
func (c *cluster) apply(ctx context.Context, all []task) error {
	name := filepath.Join(c.dir, "tasks.yaml")
	if err := os.WriteFile(name, []byte(file(all...)), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"user", "set", "soak", "--mail", "soak@example.com"}, {"user", "set", "ops", "--admin", "--mail", "ops@example.com"}, {"task", "apply", "-f", name}} {
		if out, err := c.api(ctx, c.masters[0], args...); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	// What fails for good is stopped by its breaker after some hours.
	_, err := c.db.ExecContext(ctx, "INSERT INTO dic_data (name, value) VALUES ('breaker_failures', '4') ON DUPLICATE KEY UPDATE value = VALUES(value)")
	return err
}

// begin starts a job of every other lasting task, and waits until they run: the first fault is to find some.
func (c *cluster) begin(ctx context.Context, all []task) error {
	n := 0
	for _, t := range all {
		if t.isLasting() {
			if n++; n%2 == 0 {
				if out, err := c.api(ctx, c.masters[0], "execute", t.name); err != nil {
					return fmt.Errorf("execute %s: %w\n%s", t.name, err, out)
				}
			}
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; pause(ctx, 100*time.Millisecond) {
		running, err := c.column(ctx, "SELECT b.id FROM task_work b JOIN task t ON t.id = b.task_id WHERE b.state = 2 AND b.start_time IS NOT NULL AND t.name LIKE '"+lastingShape+"%'")
		if err == nil && len(running) >= n/2 {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return errors.Join(ctx.Err(), err, fmt.Errorf("%d of %d lasting jobs run, and nothing is hurt yet", len(running), n/2))
		}
	}
}

// heal makes sure that every process lives and reaches everything, and lets nothing start that is scheduled later than
// until: then there is an end to settle towards, while the clock goes on.
func (c *cluster) heal(ctx context.Context, until int64) error {
	for _, m := range c.members() {
		m.process().signal(syscall.SIGCONT)
		m.signalShims(syscall.SIGCONT)
		if err := errors.Join(m.fail(), m.start()); err != nil {
			return err
		}
	}
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		return err
	}
	_, err = c.db.ExecContext(ctx, "INSERT INTO dic_data (name, value) VALUES ('latest_schedule_time', ?) ON DUPLICATE KEY UPDATE value = VALUES(value)",
		time.UnixMilli(until).In(zone).Format(time.RFC3339)) // with its offset: the clock shows some hours of that night twice
	if err != nil {
		return err
	}
	return c.awaitNodes(ctx, 60*time.Second)
}

// finish gathers, lets the checker decide, and prints.
func (r *report) finish(ctx context.Context, c *cluster, o options, run checker.Run, watch *watcher, faults []checker.Fault) (bool, error) {
	if err := r.gather(ctx, c); err != nil {
		return false, err
	}
	if err := watch.addRuns(ctx); err != nil {
		return false, err
	}
	r.leadership(watch, faults)
	r.beyondLost(watch, faults)
	if r.Long.Decided == 0 && o.minutes >= 10 {
		r.wrong("in %.0f minutes no worker was ever called lost while it was hurt and attempts kept its leader: the faults do not reach what they are for", o.minutes)
	}
	witness, err := checker.ReadWitness(filepath.Join(c.dir, "witness"))
	if err != nil {
		return false, err
	}
	r.jobs(witness, faults)
	r.Fenced = c.logs("the lease was taken over")
	if r.Fenced == 0 && o.minutes >= 10 {
		r.wrong("no stale master was ever rejected in %.0f minutes: the faults do not reach what they are for", o.minutes)
	}
	runFile := filepath.Join(c.dir, "run.json")
	if err := run.Write(runFile); err != nil {
		return false, err
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, c.check, "-run", runFile, "-witness", filepath.Join(c.dir, "witness"), "-nemesis", filepath.Join(c.dir, "nemesis.jsonl"), "-json", c.database.dsn(c.database.address))
	cmd.Stdout, cmd.Stderr = &out, &complaint
	c.say("checks: %s", cmd)
	if err := cmd.Run(); cmd.ProcessState.ExitCode() > 1 || cmd.ProcessState.ExitCode() < 0 {
		return false, fmt.Errorf("the checker could not decide: %w: %s", err, complaint.String())
	}
	var check checker.Report
	if err := json.Unmarshal(out.Bytes(), &check); err != nil {
		return false, fmt.Errorf("the checker's report: %w", err)
	}
	r.verdict(check)
	r.OK = len(r.Wrong) == 0
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return false, err
	}
	for _, name := range []string{filepath.Join(c.dir, "report.json"), o.json} {
		if name != "" {
			if err := os.WriteFile(name, append(text, '\n'), 0o644); err != nil {
				return false, err
			}
		}
	}
	var shown bytes.Buffer
	r.print(&shown)
	if err := os.WriteFile(filepath.Join(c.dir, "report.txt"), shown.Bytes(), 0o644); err != nil {
		return false, err
	}
	_, err = io.Copy(os.Stdout, &shown)
	return r.OK, err
}
