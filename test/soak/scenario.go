package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"capri/test/checker"
)

// measured is what a scenario found.
type measured struct {
	Scenario string             `json:"scenario"`
	Times    int                `json:"times"`
	Seconds  int                `json:"seconds,omitempty"`
	Figures  map[string]figures `json:"figures"`
	Wrong    []string           `json:"wrong,omitempty"`
}

// scenarios are measured apart from the soak, in real time and with the limits by default: what an installation sees.
var scenarios = map[string]func(s *stage, ctx context.Context) error{
	"worker-kill":  workerKill,
	"leader-kill":  leaderKill,
	"redis-kill":   redisKill,
	"mariadb-down": mariadbDown,
}

// stage is a cluster with something to do, and what is measured on it.
type stage struct {
	*cluster
	o     options
	watch *watcher
	found map[string][]int64
	wrong []string
}

// load keeps the services busy: fires each second, and jobs that run for longer than any scenario.
func load(witness, dir string) []task {
	var all []task
	job := func(name, period, more, command string) {
		all = append(all, task{name: name, yaml: fmt.Sprintf("  - name: %s\n    group: soak\n    owner: soak\n    period: %s\n%s    job: {command: \"export CAPRI_NODE=$SOAK_NODE; exec %s -dir %s/witness -- %s\"}\n",
			name, period, more, witness, dir, command)})
	}
	for i := range 4 {
		job(fmt.Sprintf("tick_%d", i), "cron", "    cron: \"* * * * * ?\"\n    limits: {concurrency: 3, skip_after_minutes: 1}\n", "true")
	}
	for i := range 12 {
		job(fmt.Sprintf("slow_%02d", i), "hour", "", "sleep 7200")
	}
	return all
}

func scenario(ctx context.Context, c *cluster, o options) (bool, error) {
	measure := scenarios[o.scenario]
	if measure == nil {
		return false, fmt.Errorf("there is no scenario %q: worker-kill, leader-kill, redis-kill, mariadb-down", o.scenario)
	}
	c.settings = asShipped()
	if err := c.start(ctx); err != nil {
		return false, err
	}
	all := load(c.witness, c.dir)
	if err := c.apply(ctx, all); err != nil {
		return false, err
	}
	for _, t := range all[4:] {
		if out, err := c.api(ctx, c.masters[0], "execute", t.name); err != nil {
			return false, fmt.Errorf("execute %s: %w\n%s", t.name, err, out)
		}
	}
	s := &stage{cluster: c, o: o, watch: newWatcher(c), found: map[string][]int64{}}
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { s.watch.run(watching); close(done) }()
	defer func() { stop(); <-done }()
	if err := s.until(ctx, 60*time.Second, "12 jobs run", func() (bool, error) { n, err := s.slow(); return len(n) == 12, err }); err != nil {
		return false, err
	}
	// Masters that have just met give each other their shares, and a new leader counts every silence anew: that is not
	// what is asked for.
	if err := s.until(ctx, 5*time.Minute, "the leases stay where they are", func() (bool, error) { return s.watch.quiet(40 * time.Second), nil }); err != nil {
		return false, err
	}
	if err := measure(s, ctx); err != nil {
		return false, err
	}
	m := measured{Scenario: o.scenario, Times: o.times, Seconds: o.seconds, Figures: map[string]figures{}, Wrong: s.wrong}
	for name, all := range s.found {
		m.Figures[name] = figuresOf(all)
		fmt.Printf("%-60s %s\n", name, m.Figures[name])
	}
	for _, w := range s.wrong {
		fmt.Println("WRONG:", w)
	}
	if o.json != "" {
		text, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			return false, err
		}
		if err := os.WriteFile(o.json, append(text, '\n'), 0o644); err != nil {
			return false, err
		}
	}
	return len(s.wrong) == 0, nil
}

// until waits for something, asking now and then.
func (s *stage) until(ctx context.Context, within time.Duration, what string, is func() (bool, error)) error {
	var err error
	for deadline := time.Now().Add(within); time.Now().Before(deadline) && ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
		var ok bool
		if ok, err = is(); ok && err == nil {
			return nil
		}
	}
	return errors.Join(ctx.Err(), err, fmt.Errorf("after %s still not: %s", within, what))
}

// slow lists the newest start of each long job, by task.
func (s *stage) slow() (map[string]checker.Witness, error) {
	all := map[string]checker.Witness{}
	lines, err := checker.ReadWitness(filepath.Join(s.dir, "witness"))
	for _, l := range lines {
		if l.What == checker.Start && len(l.Task) == len("slow_00") && l.Task[:5] == "slow_" {
			all[l.Task] = l
		}
	}
	return all, err
}

func (s *stage) add(name string, d int64) {
	s.found[name] = append(s.found[name], d)
	s.say("%s: %s", name, ms(d))
}

// workerKill takes a machine away, with worker, shim and jobs, and measures until its jobs run elsewhere.
func workerKill(s *stage, ctx context.Context) error {
	for range s.o.times {
		before, err := s.slow()
		if err != nil {
			return err
		}
		on := map[string][]checker.Witness{}
		most := ""
		for _, l := range before {
			on[l.Node] = append(on[l.Node], l)
			if len(on[l.Node]) > len(on[most]) {
				most = l.Node
			}
		}
		victim := s.member(most)
		if victim == nil {
			return fmt.Errorf("the jobs' node %q is none of ours", most)
		}
		s.say("worker %s goes, with %d jobs", victim.name, len(on[most]))
		at := time.Now().UnixMilli()
		victim.crash()
		moved := map[string]bool{}
		err = s.until(ctx, 6*time.Minute, "its batches run elsewhere", func() (bool, error) {
			now, err := s.slow()
			for _, l := range on[most] {
				if is := now[l.Task]; is.Node != l.Node && !moved[l.Task] {
					moved[l.Task] = true
					s.add("a worker is gone: its batches run elsewhere after", is.Real-at)
				}
			}
			return len(moved) == len(on[most]), err
		})
		if err != nil {
			return err
		}
		if err := errors.Join(victim.start(), s.awaitNodes(ctx, 2*time.Minute)); err != nil {
			return err
		}
	}
	return nil
}

// leaderKill kills the leaders of the two services that everything waits for, in turn.
func leaderKill(s *stage, ctx context.Context) error {
	for i := range s.o.times {
		service := []string{"dispatch", "dependency"}[i%2]
		m := s.member(s.watch.leader(service))
		if m == nil {
			return fmt.Errorf("nobody leads %s", service)
		}
		at := time.Now().UnixMilli()
		led := s.watch.leads(m.name, at)
		m.process().kill()
		s.say("%s, which led %s, is killed", m.name, service)
		for led, epoch := range led {
			if led != "dispatch" && led != "dependency" {
				continue
			}
			var next int64
			err := s.until(ctx, time.Minute, "a new leader of "+led, func() (bool, error) {
				if err := s.watch.addRuns(ctx); err != nil {
					return false, err
				}
				done := s.watch.completed(led, at, epoch)
				if len(done) > 0 {
					next = done[0]
				}
				return len(done) > 0, nil
			})
			if err != nil {
				return err
			}
			s.add("its leader is killed: the next completed turn of "+led, next-at)
		}
		if err := m.start(); err != nil {
			return err
		}
		pause(ctx, 15*time.Second) // it registers, and holds what it takes for a while
	}
	return nil
}

// redisKill looks at the turns of both services with Redis, and without.
func redisKill(s *stage, ctx context.Context) error {
	gaps := func(name string, from, to int64) error {
		if err := s.watch.addRuns(ctx); err != nil {
			return err
		}
		for _, service := range []string{"dispatch", "dependency"} {
			s.add(name+": longest gap between turns of "+service, longest(s.watch.completed(service, from-10_000, 0), from, to))
		}
		return nil
	}
	length := time.Duration(s.o.seconds) * time.Second
	for range s.o.times {
		from := time.Now().UnixMilli()
		pause(ctx, length)
		if err := gaps("with Redis", from, time.Now().UnixMilli()); err != nil {
			return err
		}
		s.redis.p.kill()
		from = time.Now().UnixMilli()
		pause(ctx, length)
		if err := gaps("Redis killed", from, time.Now().UnixMilli()); err != nil {
			return err
		}
		if err := s.redis.start(); err != nil {
			return err
		}
	}
	return nil
}

// mariadbDown takes the database away, and measures how soon work goes on when it is back; what runs has to run on.
func mariadbDown(s *stage, ctx context.Context) error {
	for range s.o.times {
		before, err := s.slow()
		if err != nil {
			return err
		}
		s.database.p.kill()
		s.say("the database is away for %d s", s.o.seconds)
		pause(ctx, time.Duration(s.o.seconds)*time.Second)
		if err := s.database.start(); err != nil {
			return err
		}
		at := time.Now().UnixMilli()
		var back int64
		if err := s.until(ctx, 2*time.Minute, "all services and nodes work", func() (bool, error) {
			if err := s.watch.addRuns(ctx); err != nil {
				return false, nil //nolint:nilerr // it has just come back
			}
			back = s.watch.recovered(at, nil)
			return back != 0, nil
		}); err != nil {
			return err
		}
		for _, service := range []string{"dispatch", "dependency"} {
			s.add("the database is back: the next completed turn of "+service, s.watch.completed(service, at, 0)[0]-at)
		}
		s.add("the database is back: all services and nodes at work", back-at)
		pause(ctx, 5*time.Second)
		after, err := s.slow()
		if err != nil {
			return err
		}
		for name, l := range before {
			if now := after[name]; now.PID != l.PID {
				s.wrong = append(s.wrong, fmt.Sprintf("job %s was started again: attempt %d.%d, before %d.%d", name, now.Batch, now.Attempt, l.Batch, l.Attempt))
			}
		}
	}
	return nil
}
