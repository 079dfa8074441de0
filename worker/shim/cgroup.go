package shim

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Where cgroup v2 can be had, each job is forked into a group of its own. The kernel then says what belongs to the job,
// whatever its processes do, and ends all of it at once: no environment to be cleaned, no race with a fork. Nothing is
// limited by these groups. Where it cannot be had (no right to make groups, kernel older than 5.14), see tree.go.
//
//	<the shim's own group>/capri-shim-<pid>-<start>/   Life.Cgroup
//	                                               └── <n>/   one job at a time; used again when it is empty
type cgroups struct {
	dir    string
	free   []*cgroup
	number int
}

// cgroup holds the processes of one job.
type cgroup struct {
	dir string
	fd  int // of dir; the child is forked into it
}

// openCgroups makes the group of a life; an error says why it cannot be had.
func openCgroups(life Life) (*cgroups, error) {
	own, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	removeStale(own)
	c := &cgroups{dir: filepath.Join(own, fmt.Sprintf("capri-shim-%d-%d", life.Pid, life.StartTicks))}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, err
	}
	if err := c.try(); err != nil {
		_, e := RemoveCgroup(c.dir)
		return nil, errors.Join(err, e)
	}
	return c, nil
}

func (c *cgroups) try() error {
	g, err := c.take()
	if err != nil {
		return err
	}
	defer c.give(g)
	kind, err := os.ReadFile(filepath.Join(g.dir, "cgroup.type"))
	if err == nil && strings.TrimSpace(string(kind)) != "domain" {
		err = fmt.Errorf("groups in %s are of type %s", c.dir, kind)
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(g.dir, "cgroup.kill"))
	}
	return err
}

// removeStale removes groups of dead shims in which nothing runs: of those whose next worker never came.
func removeStale(own string) {
	dirs, _ := filepath.Glob(filepath.Join(own, "capri-shim-*"))
	for _, dir := range dirs {
		var pid int
		var ticks uint64
		if _, err := fmt.Sscanf(filepath.Base(dir), "capri-shim-%d-%d", &pid, &ticks); err != nil {
			continue
		}
		if s, err := ReadStat(pid); err == nil && s.StartTicks == ticks {
			continue
		}
		groups, _ := filepath.Glob(filepath.Join(dir, "[0-9]*"))
		for _, g := range append(groups, dir) {
			_ = syscall.Rmdir(g) // refused while anything runs in it
		}
	}
}

// ownCgroup finds the directory of the group that this process is in.
func ownCgroup() (string, error) {
	var mount, path string
	err := eachLine("/proc/self/mountinfo", func(line string) {
		// 41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw
		before, after, _ := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if strings.HasPrefix(after, "cgroup2 ") && len(f) > 4 && f[3] == "/" {
			mount = f[4]
		}
	})
	if err == nil {
		err = eachLine("/proc/self/cgroup", func(line string) {
			if p, ok := strings.CutPrefix(line, "0::"); ok {
				path = p
			}
		})
	}
	switch {
	case err != nil:
		return "", err
	case mount == "" || path == "":
		return "", errors.New("cgroup v2 is not mounted")
	case strings.HasPrefix(path, "/.."):
		return "", fmt.Errorf("the own group %s is outside of what is mounted", path)
	}
	return filepath.Join(mount, path), nil
}

func eachLine(path string, f func(line string)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f(lines.Text())
	}
	return lines.Err()
}

// take gives an empty group.
func (c *cgroups) take() (*cgroup, error) {
	if n := len(c.free); n > 0 {
		g := c.free[n-1]
		c.free = c.free[:n-1]
		return g, nil
	}
	c.number++
	dir := filepath.Join(c.dir, strconv.Itoa(c.number))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		os.Remove(dir)
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &cgroup{dir, fd}, nil
}

// give takes a group back. One that is not empty (of a process that even SIGKILL does not end) is never used again.
func (c *cgroups) give(g *cgroup) {
	if len(g.pids()) > 0 {
		syscall.Close(g.fd)
		return
	}
	c.free = append(c.free, g)
}

// pids lists the group's living processes.
func (g *cgroup) pids() []int { return cgroupPids(g.dir) }

// kill ends all of them, those that are just being forked, too.
func (g *cgroup) kill() error { return killCgroup(g.dir) }

func cgroupPids(dir string) (pids []int) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	for _, field := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 { // 0: in another pid namespace
			pids = append(pids, pid)
		}
	}
	return pids
}

func killCgroup(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
}

// RemoveCgroup ends whatever runs in the groups of a dead shim, and removes them; it says how many processes that were.
// dir is Life.Cgroup.
func RemoveCgroup(dir string) (ended int, err error) {
	if dir == "" {
		return 0, nil
	}
	groups, err := filepath.Glob(filepath.Join(dir, "[0-9]*"))
	if err != nil {
		return 0, err
	}
	for _, g := range groups {
		ended += len(cgroupPids(g))
	}
	if ended > 0 {
		if err := killCgroup(dir); err != nil {
			return ended, fmt.Errorf("end what a dead shim left in its cgroup: %w", err)
		}
	}
	for _, g := range append(groups, dir) {
		for deadline := time.Now().Add(lingerAfterKill); ; time.Sleep(time.Millisecond) {
			err := syscall.Rmdir(g) // os.Remove would try to unlink first
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if err != syscall.EBUSY || time.Now().After(deadline) {
				return ended, fmt.Errorf("remove cgroup %s: %w", g, err)
			}
		}
	}
	return ended, nil
}
