package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	address    string // of a master's API
	argv, env  []string

	mu sync.Mutex
	p  *process
}

func (c *cluster) newMember(ctx context.Context, role, name string) (*member, error) {
	m := &member{role: role, name: name, dir: filepath.Join(c.dir, name), logFile: filepath.Join(c.dir, name+".log")}
	var err error
	if m.db, err = newLink(name+"-database", c.database.address); err != nil {
		return nil, err
	}
	if m.redis, err = newLink(name+"-redis", c.redis.address); err != nil {
		return nil, err
	}
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		return nil, err
	}
	m.env = append(c.environment(c.database.dsn(m.db.address), m.redis.address),
		"CAPRI_DATA="+filepath.Join(m.dir, "data"), "CAPRI_FAILPOINT_FILE="+m.rules())
	switch role {
	case "master":
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		m.address = "127.0.0.1:" + strconv.Itoa(port)
		m.argv = []string{c.capri, "master", "--name", name, "--listen", m.address}
	case "worker":
		m.env = append(m.env, "SOAK_NODE="+name, "CAPRI_SERVER=http://"+c.masters[0].address)
		m.argv = []string{c.capri, "worker", "--node", name, "--data", filepath.Join(m.dir, "data"), "--listen", "127.0.0.1:0"}
	}
	return m, nil
}

func (m *member) rules() string { return filepath.Join(m.dir, "failpoints") }

// fail writes the member's failpoints, each a line; none takes them away. A rename, so that no half is read.
func (m *member) fail(rules ...string) error {
	text := strings.Join(rules, "\n") + "\n"
	if err := os.WriteFile(m.rules()+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(m.rules()+".new", m.rules())
}

func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.p.alive() {
		return nil
	}
	var err error
	m.p, err = launch(m.name, m.logFile, m.env, nil, m.argv...)
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
