package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// namespace is a network of one worker's own, with a cable to this machine that can be cut:
//
//	worker, shim, jobs                     this machine
//	198.18.x.y+2  cable ═══ veth ═══ capriN  198.18.x.y+1   the worker's proxies listen here ──▶ MariaDB, Redis, a master
//
// A cut cable is not what a proxy does: nothing is refused and nothing is closed, on neither side, and what was under
// way arrives when it is plugged in again.
//
// Only root can make one. Its name says whose it is, so that the next soak can take away what a dead one left: the
// namespace, and with it both ends of the cable.
type namespace struct {
	name        string
	link        string // this machine's end of the cable
	here, there string // the addresses of both ends
}

const (
	namespaces      = "/var/run/netns" // where the program ip keeps their names
	namespacePrefix = "capri-soak-"
	cable           = "cable"
	cables          = 1 << 13 // how many names and pairs of addresses there are to choose from
)

// The range that is set aside for measurements (RFC 2544): no network has it.
var cableRange = netip.MustParseAddr("198.18.0.0")

// newNamespace makes one and tries whether something comes through its cable. The kernel's refusal of a second link of
// one name is what keeps two soaks from taking the same.
func newNamespace(worker string) (*namespace, error) {
	born, ok := birth(os.Getpid())
	if !ok {
		return nil, errors.New("this process is not in /proc")
	}
	ns := &namespace{name: fmt.Sprintf("%s%d-%s-%s", namespacePrefix, os.Getpid(), born, worker)}
	if err := ip("netns", "add", ns.name); err != nil {
		return nil, err
	}
	return ns, errors.Join(ns.connect(), ns.tried())
}

func (ns *namespace) connect() error {
	var err error
	for try := range 64 {
		n := (os.Getpid()*8 + try) % cables
		ns.link = "capri" + strconv.Itoa(n)
		here := add(cableRange, 4*n+1)
		if ns.here, ns.there = here.String(), here.Next().String(); taken(ns.here, ns.there) {
			continue
		}
		if err = ip("link", "add", ns.link, "type", "veth", "peer", "name", cable, "netns", ns.name); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"addr", "add", ns.here + "/30", "dev", ns.link},
		{"link", "set", "dev", ns.link, "up"},
		{"-n", ns.name, "addr", "add", ns.there + "/30", "dev", cable},
		{"-n", ns.name, "link", "set", "dev", "lo", "up"},
		{"-n", ns.name, "link", "set", "dev", cable, "up"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

// tried connects once from the worker's end to ours: a firewall may not let it.
func (ns *namespace) tried() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", ns.here+":0")
	if err != nil {
		return err
	}
	defer l.Close()
	done := make(chan error)
	starts <- func() {
		done <- ns.within(func() error {
			c, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(context.Background(), "tcp", l.Addr().String())
			if err != nil {
				return err
			}
			return c.Close()
		})
	}
	return <-done
}

func (ns *namespace) cut() error  { return ip("-n", ns.name, "link", "set", "dev", cable, "down") }
func (ns *namespace) plug() error { return ip("-n", ns.name, "link", "set", "dev", cable, "up") }

// remove takes the name away; the network goes with its last process, and the cable with it.
func (ns *namespace) remove() error { return ip("netns", "del", ns.name) }

// within calls f in the namespace; nil is here. It belongs to the thread of starts, since what a thread is in is what its
// children are born in.
func (ns *namespace) within(f func() error) error {
	if ns == nil {
		return f()
	}
	ours, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer ours.Close()
	theirs, err := os.Open(filepath.Join(namespaces, ns.name))
	if err != nil {
		return err
	}
	defer theirs.Close()
	if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", ns.name, err)
	}
	err = f()
	if back := unix.Setns(int(ours.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(fmt.Sprintf("leave namespace %s: %v: whatever is started from here on would be in it", ns.name, back))
	}
	return err
}

// networks gives each worker a namespace, or says why they share this machine's. What dead soaks left goes first.
func networks(workers []string) (all map[string]*namespace, why string) {
	if os.Geteuid() != 0 {
		return nil, "only root can make network namespaces"
	}
	if _, err := program("ip"); err != nil {
		return nil, "there is no program ip here (package iproute2)"
	}
	removeStale()
	all = map[string]*namespace{}
	for _, w := range workers {
		ns, err := newNamespace(w)
		if ns != nil {
			all[w] = ns
		}
		if err != nil {
			err = errors.Join(err, removeAll(all))
			return nil, strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}
	return all, ""
}

func removeAll(all map[string]*namespace) error {
	var wrong error
	for _, ns := range all {
		wrong = errors.Join(wrong, ns.remove())
	}
	return wrong
}

// removeStale removes the namespaces of soaks that have died. Where a name cannot be read, or goes away meanwhile, it
// is somebody else's.
func removeStale() {
	names, _ := filepath.Glob(filepath.Join(namespaces, namespacePrefix+"*"))
	for _, name := range names {
		name = filepath.Base(name)
		parts := strings.SplitN(strings.TrimPrefix(name, namespacePrefix), "-", 3)
		pid, err := strconv.Atoi(parts[0])
		if err != nil || len(parts) != 3 {
			continue
		}
		if born, lives := birth(pid); !lives || born != parts[1] {
			_ = (&namespace{name: name}).remove() // another soak may just have done it
		}
	}
}

// birth is when a process began, in ticks since the boot: with it a pid names one process for ever.
func birth(pid int) (string, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third on; the second may hold anything
	if len(fields) < 20 {
		return "", false
	}
	return fields[19], true // the 22nd
}

// ip calls the program of that name. It has no context: what cleans up calls it, too.
func ip(args ...string) error {
	name, err := program("ip")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func add(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	sum := int(b[1])<<16 + int(b[2])<<8 + int(b[3]) + n
	return netip.AddrFrom4([4]byte{b[0], byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

// taken says whether one of the addresses is this machine's already.
func taken(addresses ...string) bool {
	all, err := net.InterfaceAddrs()
	for _, a := range all {
		for _, address := range addresses {
			if p, ok := a.(*net.IPNet); ok && p.IP.String() == address {
				return true
			}
		}
	}
	return err != nil
}
