package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"capri/test/checker"
)

// nemesis does what the plan says.
type nemesis struct {
	c     *cluster
	watch *watcher
	log   *os.File

	mu     sync.Mutex
	done   []checker.Fault
	open   map[string]bool // members that are hurt now
	errors []string        // of its own: a fault that could not be made or healed makes the run worthless
}

// act makes a fault, and gives what heals it. Args go to the log.
type act func(n *nemesis, ctx context.Context, f fault, target *member) (heal func() error, args map[string]string, err error)

// acts has one for each kind; a test holds the two tables together.
var acts = map[string]act{
	"master_kill": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		m.process().kill()
		return m.start, nil, nil
	},
	"master_freeze": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		return freeze(m)
	},
	// Frozen between its plan and its write, and blind to what its own clock tells it afterwards: the write comes when
	// somebody else has placed long since, and only its epoch can stop it.
	"master_freeze_in_turn": func(_ *nemesis, ctx context.Context, f fault, m *member) (func() error, map[string]string, error) {
		return blind(ctx, m, 3*second, func() (func() error, map[string]string, error) { return freeze(m) }, "plan-assign delay=1500ms", "before-commit delay=300ms share=0.3")
	},
	// The same between its plan and its write alone: no transaction is open that the server would roll back, no lock is
	// held, nothing of it has begun that could be found to have gone wrong.
	"master_freeze_before_write": func(_ *nemesis, ctx context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		return blind(ctx, m, 3*second, func() (func() error, map[string]string, error) { return freeze(m) }, "plan-assign delay=4s")
	},
	"master_blind": func(n *nemesis, ctx context.Context, f fault, m *member) (func() error, map[string]string, error) {
		return blind(ctx, m, 8*second, func() (func() error, map[string]string, error) { return silence(n, ctx, f, m) })
	},
	"master_cut":    cutOff,
	"master_silent": silence,
	"master_reset":  resets,
	"master_slow": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		return m.db.heal, map[string]string{"answers_ms": "400"}, m.db.slow(400 * time.Millisecond)
	},
	"master_clock": func(_ *nemesis, _ context.Context, f fault, m *member) (func() error, map[string]string, error) {
		shift := []string{"1h", "-1h"}[f.Dice%2]
		return func() error { return m.fail() }, map[string]string{"shift": shift}, m.fail("local-clock shift=" + shift)
	},
	"commit_cut": lostReplies,
	"alert_crash": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		return func() error { return errors.Join(m.fail(), m.start()) }, nil, m.fail("alert-sent exit")
	},
	"plan_slow": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		return func() error { return m.fail() }, nil, m.fail("plan-assign delay=2s share=0.5", "before-commit delay=100ms share=0.2")
	},

	"worker_kill": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		m.process().kill()
		return m.start, nil, nil
	},
	"worker_kill_long": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		m.process().kill()
		return m.start, nil, nil
	},
	"worker_gone":  crash,
	"worker_crash": crash,
	"worker_freeze": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		return freeze(m)
	},
	"worker_freeze_long": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		return freeze(m)
	},
	checker.PauseHost: func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		thaw, args, err := freeze(m)
		return withFrozenShims(m, thaw, args, err)
	},
	"worker_cut": unplug,
	"worker_cut_shim_frozen": func(n *nemesis, ctx context.Context, f fault, m *member) (func() error, map[string]string, error) {
		heal, args, err := unplug(n, ctx, f, m)
		return withFrozenShims(m, heal, args, err)
	},
	"worker_silent":     silence,
	"worker_reset":      resets,
	"worker_commit_cut": lostReplies,
	"shim_kill": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		n := m.signalShims(syscall.SIGKILL)
		return func() error { return nil }, map[string]string{"shims": strconv.Itoa(n)}, nil
	},
	"shim_freeze": func(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
		n := m.signalShims(syscall.SIGSTOP)
		return func() error { m.signalShims(syscall.SIGCONT); return nil }, map[string]string{"shims": strconv.Itoa(n)}, nil
	},
	"start_slow": func(_ *nemesis, _ context.Context, f fault, m *member) (func() error, map[string]string, error) {
		delay := []string{"1s", "9s"}[f.Dice%2]
		return func() error { return m.fail() }, map[string]string{"delay": delay}, m.fail("claim-start delay=" + delay + " share=0.5")
	},

	"redis_kill": func(n *nemesis, _ context.Context, _ fault, _ *member) (func() error, map[string]string, error) {
		n.c.redis.p.kill()
		return n.c.redis.start, nil, nil
	},
	"redis_flush": func(n *nemesis, _ context.Context, _ fault, _ *member) (func() error, map[string]string, error) {
		return func() error { return nil }, nil, n.c.redis.say("FLUSHALL")
	},
	"redis_slow": func(n *nemesis, _ context.Context, _ fault, _ *member) (func() error, map[string]string, error) {
		for _, m := range n.c.members() {
			if err := m.redis.slow(time.Second); err != nil {
				return nil, nil, err
			}
		}
		return func() error {
			for _, m := range n.c.members() {
				if err := m.redis.heal(); err != nil {
					return err
				}
			}
			return nil
		}, map[string]string{"answers_ms": "1000"}, nil
	},
	"database_kill": func(n *nemesis, _ context.Context, _ fault, _ *member) (func() error, map[string]string, error) {
		n.c.database.p.kill()
		return n.c.database.start, nil, nil
	},
	"mail_gone": func(n *nemesis, _ context.Context, _ fault, _ *member) (func() error, map[string]string, error) {
		return n.c.mail.link.heal, nil, n.c.mail.link.cut()
	},
	"mail_silent": func(n *nemesis, _ context.Context, _ fault, _ *member) (func() error, map[string]string, error) {
		return n.c.mail.link.heal, nil, n.c.mail.link.silence()
	},
	"mail_later": moody(putsOff),
	"mail_drops": moody(vanishes),
	"deadlocks": func(n *nemesis, ctx context.Context, f fault, _ *member) (func() error, map[string]string, error) {
		ctx, stop := context.WithCancel(ctx)
		args := map[string]string{}
		ended := make(chan int)
		go func() { ended <- n.lockBackwards(ctx, f.Dice) }()
		return func() error {
			stop()
			args["deadlocks_of_its_own"] = strconv.Itoa(<-ended)
			return nil
		}, args, nil
	},
}

func freeze(m *member) (func() error, map[string]string, error) {
	m.process().signal(syscall.SIGSTOP)
	return func() error { m.process().signal(syscall.SIGCONT); return nil }, map[string]string{}, nil
}

// blind hurts a master that does not see its leases lapse, so that it goes on writing for a while when it is back. Its
// writes are rejected only where it finds something to write that the new leader has not written yet.
func blind(ctx context.Context, m *member, after time.Duration, hurt func() (func() error, map[string]string, error), rules ...string) (func() error, map[string]string, error) {
	if err := m.fail(append(rules, "lease-blind")...); err != nil {
		return nil, nil, err
	}
	pause(ctx, time.Second)
	heal, args, err := hurt()
	if err != nil {
		return heal, args, err
	}
	return func() error {
		if err := heal(); err != nil {
			return err
		}
		pause(ctx, after)
		return m.fail()
	}, args, nil
}

// withFrozenShims freezes a worker's shims, too, until heal.
func withFrozenShims(m *member, heal func() error, args map[string]string, err error) (func() error, map[string]string, error) {
	args["shims"] = strconv.Itoa(m.signalShims(syscall.SIGSTOP))
	return func() error {
		m.signalShims(syscall.SIGCONT)
		return heal()
	}, args, err
}

// unplug cuts a worker off: its cable where it has one, else its proxies.
func unplug(n *nemesis, ctx context.Context, f fault, m *member) (func() error, map[string]string, error) {
	if m.network != nil {
		return m.network.plug, map[string]string{"cut": m.network.link}, m.network.cut()
	}
	return cutOff(n, ctx, f, m)
}

func cutOff(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
	return everyWay(m, (*link).cut)
}

func silence(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
	return everyWay(m, (*link).silence)
}

func resets(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
	return everyWay(m, (*link).reset)
}

// everyWay hurts all ways of a member: what is cut off is cut off from everything.
func everyWay(m *member, hurt func(*link) error) (func() error, map[string]string, error) {
	var err error
	for _, l := range m.links() {
		err = errors.Join(err, hurt(l))
	}
	return func() error {
		var err error
		for _, l := range m.links() {
			err = errors.Join(err, l.heal())
		}
		return err
	}, map[string]string{}, err
}

func lostReplies(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
	return func() error { return m.fail() }, map[string]string{"share": "0.2"}, m.fail("before-commit cut share=0.2", "after-commit cut share=0.2")
}

func crash(_ *nemesis, _ context.Context, _ fault, m *member) (func() error, map[string]string, error) {
	m.crash()
	return m.start, nil, nil
}

func moody(m mood) act {
	return func(n *nemesis, _ context.Context, _ fault, _ *member) (func() error, map[string]string, error) {
		n.c.mail.be(m)
		return func() error { n.c.mail.be(takes); return nil }, nil, nil
	}
}

// lockBackwards locks batches in the order that Capri never uses, until ctx ends. It tells how often it lost.
func (n *nemesis) lockBackwards(ctx context.Context, dice uint64) (lost int) {
	r := rand.New(rand.NewPCG(dice, 1))
	for ctx.Err() == nil {
		func() {
			ids, err := n.c.column(ctx, "SELECT id FROM task_work WHERE state IN (0, 1, 2) ORDER BY id DESC LIMIT 60")
			if err != nil {
				return
			}
			tx, err := n.c.db.BeginTx(ctx, nil)
			if err != nil {
				return
			}
			defer tx.Rollback() // it only locks
			for _, id := range ids {
				if r.IntN(3) == 0 {
					continue
				}
				if _, err := tx.ExecContext(ctx, "UPDATE task_work SET message = message WHERE id = ?", id); err != nil {
					if strings.Contains(err.Error(), "1213") {
						lost++
					}
					return
				}
				pause(ctx, time.Duration(r.IntN(8))*time.Millisecond)
			}
		}()
		pause(ctx, time.Duration(r.IntN(50))*time.Millisecond)
	}
	return lost
}

// pause waits, or returns early when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// run carries the plan out and returns when the last fault is healed. When ctx ends all is healed at once.
func (n *nemesis) run(ctx context.Context, all []fault) {
	began := time.Now()
	lanes := map[string][]fault{}
	for _, f := range all {
		lanes[f.lane] = append(lanes[f.lane], f)
	}
	var running sync.WaitGroup
	for _, faults := range lanes {
		running.Go(func() {
			for _, f := range faults {
				if pause(ctx, time.Until(began.Add(f.At))); ctx.Err() != nil {
					return
				}
				n.one(ctx, f)
			}
		})
	}
	running.Wait()
}

func (n *nemesis) one(ctx context.Context, f fault) {
	if f.Steady {
		n.standing("lease-stay")
		pause(ctx, time.Second) // until a lease that is on its way has arrived
		defer n.standing()
	}
	target := n.target(f)
	line := checker.Fault{At: time.Now().UnixMilli(), Kind: f.name, Target: f.Role, Role: f.Role}
	if target != nil {
		line.Target = target.name
	}
	n.mark(line.Target, true)
	n.c.say("fault   %-22s %s (%s) for %s", f.name, line.Target, f.Role, f.For.Round(100*time.Millisecond))
	heal, args, err := acts[f.name](n, ctx, f, target)
	if err != nil {
		n.fault("make %s on %s: %v", f.name, line.Target, err)
	}
	pause(ctx, f.For)
	if heal != nil {
		if err := heal(); err != nil {
			n.fault("heal %s on %s: %v", f.name, line.Target, err)
		}
	}
	n.mark(line.Target, false)
	line.Healed, line.Args = time.Now().UnixMilli(), args
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done = append(n.done, line)
	if err := checker.WriteFault(n.log, line); err != nil {
		n.errors = append(n.errors, err.Error())
	}
}

// standing sets failpoints of all masters that stay beside those of faults; none takes them away. With lease-stay
// they do not share their leases anew, as they would half a minute after one of them came back.
func (n *nemesis) standing(rules ...string) {
	for _, m := range n.c.masters {
		if err := m.stand(rules...); err != nil {
			n.fault("failpoints of %s: %v", m.name, err)
		}
	}
}

func (n *nemesis) fault(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errors = append(n.errors, fmt.Sprintf(format, args...))
}

func (n *nemesis) mark(target string, hurt bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[target] = hurt
}

// hurt says whether a target is in a fault now.
func (n *nemesis) hurt(target string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open[target]
}

// target finds whom a role means now; nil: a server.
func (n *nemesis) target(f fault) *member {
	pool := n.c.masters
	name := ""
	switch service, leads := strings.CutPrefix(f.Role, "leader of "); {
	case leads:
		name = n.watch.leader(service)
	case f.Role == "busiest worker":
		pool, name = n.c.workers, n.watch.busiest()
	case f.Role == lastingJob:
		pool, name = n.c.workers, n.watch.youngestLasting()
	case f.Role == "any worker":
		pool = n.c.workers
	case f.Role == "redis", f.Role == "database", f.Role == "mail":
		return nil
	}
	if f.Spare {
		spared := n.watch.leader("attempts")
		pool = slices.DeleteFunc(slices.Clone(pool), func(m *member) bool { return m.name == spared })
	}
	for _, m := range pool {
		if m.name == name {
			return m
		}
	}
	return pool[f.Dice%uint64(len(pool))]
}
