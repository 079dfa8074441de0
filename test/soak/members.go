package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// member is a master or a worker: a process that may die and come back in the same place.
type member struct {
	name, role string // role is master or worker
	dir        string // its data, and its control file of failpoints
	logFile    string
	db, redis  *link
	api        *link      // of a worker's jobs, to a master
	network    *namespace // of a worker; nil: this machine's
	address    string     // of a master's API
	argv, env  []string

	mu sync.Mutex
	p  *process

	failing         sync.Mutex
	rules, standing []string // of failpoints: of the fault that is on, and of what lasts longer
}

func (c *cluster) newMember(ctx context.Context, role, name string) (*member, error) {
	m := &member{role: role, name: name, dir: filepath.Join(c.dir, name), logFile: filepath.Join(c.dir, name+".log"), network: c.networks[name]}
	proxies, own := "127.0.0.1", "127.0.0.1" // the addresses where its proxies, and where itself listens
	if m.network != nil {
		proxies, own = m.network.here, m.network.there
	}
	var err error
	if m.db, err = newLink(name+"-database", proxies, c.database.address); err != nil {
		return nil, err
	}
	if m.redis, err = newLink(name+"-redis", proxies, c.redis.address); err != nil {
		return nil, err
	}
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		return nil, err
	}
	m.env = append(c.environment(c.database.dsn(m.db.address), m.redis.address),
		"CAPRI_DATA="+filepath.Join(m.dir, "data"), "CAPRI_FAILPOINT_FILE="+m.ruleFile())
	switch role {
	case "master":
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		m.address = "127.0.0.1:" + strconv.Itoa(port)
		m.argv = []string{c.capri, "master", "--name", name, "--listen", m.address}
	case "worker":
		if m.api, err = newLink(name+"-api", proxies, c.masters[0].address); err != nil {
			return nil, err
		}
		m.env = append(m.env, "SOAK_NODE="+name, "CAPRI_SERVER=http://"+m.api.address)
		m.argv = []string{c.capri, "worker", "--node", name, "--data", filepath.Join(m.dir, "data"), "--listen", own + ":0"}
	}
	return m, nil
}

// links are its ways to everything.
func (m *member) links() []*link {
	if m.api == nil {
		return []*link{m.redis, m.db}
	}
	return []*link{m.redis, m.db, m.api}
}

func (m *member) ruleFile() string { return filepath.Join(m.dir, "failpoints") }

// fail sets the member's failpoints, each a line; none takes them away.
func (m *member) fail(rules ...string) error {
	m.failing.Lock()
	defer m.failing.Unlock()
	m.rules = rules
	return m.writeRules()
}

// stand sets the failpoints that stay beside those of faults that come and go.
func (m *member) stand(rules ...string) error {
	m.failing.Lock()
	defer m.failing.Unlock()
	m.standing = rules
	return m.writeRules()
}

// writeRules writes both by a rename, so that no half is read; the caller holds failing.
func (m *member) writeRules() error {
	text := strings.Join(append(slices.Clone(m.rules), m.standing...), "\n") + "\n"
	if err := os.WriteFile(m.ruleFile()+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(m.ruleFile()+".new", m.ruleFile())
}

func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.p.alive() {
		return nil
	}
	var err error
	m.p, err = launch(m.name, m.logFile, m.env, place{network: m.network}, m.argv...)
	return err
}

func (m *member) process() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.p
}

// shims lists the shims of a worker's data directory, living or left by an earlier life.
func (m *member) shims() []int {
	var pids []int
	for _, f := range processesBelow(m.dir) {
		if len(f.argv) == 2 && strings.HasSuffix(f.argv[0], "capri-shim") {
			pids = append(pids, f.pid)
		}
	}
	return pids
}

// signalShims reaches the shims alone, not their jobs.
func (m *member) signalShims(s syscall.Signal) int {
	pids := m.shims()
	for _, pid := range pids {
		_ = syscall.Kill(pid, s) // it may have left
	}
	return len(pids)
}

// crash ends worker, shims and jobs at once, as a machine without power does.
func (m *member) crash() {
	p := m.process()
	p.signal(syscall.SIGSTOP) // nothing new is born while we count
	m.signalShims(syscall.SIGSTOP)
	shims := m.shims()
	for _, pid := range append(descendants(shims...), shims...) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.kill()
}

// awaitNoShims waits for the shims of a stopped worker to leave: none has a job any more.
func (m *member) awaitNoShims(within time.Duration) error {
	for deadline := time.Now().Add(within); len(m.shims()) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("worker %s: %d shims are left", m.name, len(m.shims()))
		}
	}
	return nil
}

// awaitLog waits until the member's log has text that was not there before.
func (m *member) awaitLog(text string, within time.Duration) error {
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		log, err := os.ReadFile(m.logFile)
		if err == nil && strings.Contains(string(log), text) {
			return nil
		}
		if !m.process().alive() {
			return fmt.Errorf("%s %s ended by itself:\n%s", m.role, m.name, tail(m.logFile, 20))
		}
		if time.Now().After(deadline) {
			return errors.Join(err, fmt.Errorf("%s %s does not say %q:\n%s", m.role, m.name, text, tail(m.logFile, 20)))
		}
	}
}
