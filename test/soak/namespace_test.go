package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// from says whether a byte comes back from there, asked in the namespace.
func from(ns *namespace, address string) bool {
	answered := make(chan bool)
	starts <- func() {
		var ok bool
		_ = ns.within(func() error { ok = answers(address); return nil })
		answered <- ok
	}
	return <-answered
}

func TestAWorkersNetwork_is_its_own_and_its_cable_can_be_cut_or_it_is_said_why_not(t *testing.T) {
	all, why := networks([]string{"w1", "w2"})
	left := func() []string {
		names, err := filepath.Glob(filepath.Join(namespaces, namespacePrefix+strconv.Itoa(os.Getpid())+"-*"))
		require.NoError(t, err)
		return names
	}
	if why != "" {
		t.Logf("proxies alone: %s", why)
		require.Empty(t, all)
		require.Empty(t, left(), "what was half made is gone")
		return
	}
	t.Cleanup(func() {
		require.NoError(t, removeAll(all))
		require.Empty(t, left())
	})
	require.Len(t, left(), 2)
	w1, w2 := all["w1"], all["w2"]
	require.NotEqual(t, w1.here, w2.here)
	behind := echo(t)
	l, err := newLink("test", w1.here, behind)
	require.NoError(t, err)
	t.Cleanup(l.proxy.Stop)
	require.True(t, from(w1, l.address))
	require.False(t, from(w1, behind), "this machine's loopback is not the worker's")

	require.NoError(t, w1.cut())
	require.False(t, from(w1, l.address))
	require.NoError(t, w1.plug())
	require.Eventually(t, func() bool { return from(w1, l.address) }, 10*time.Second, 10*time.Millisecond)

	p, err := launch("job", filepath.Join(t.TempDir(), "log"), []string{"PATH=" + os.Getenv("PATH")}, place{network: w2}, "sleep", "300")
	require.NoError(t, err)
	t.Cleanup(p.kill)
	its, err := os.Readlink("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/ns/net")
	require.NoError(t, err)
	ours, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	require.NotEqual(t, ours, its)
}

func TestWhatADeadSoakLeft_is_removed_and_what_a_living_one_has_is_not(t *testing.T) {
	if _, why := networks(nil); why != "" {
		require.NotEmpty(t, why)
		return
	}
	born, ok := birth(os.Getpid())
	require.True(t, ok)
	dead := exec.Command("true")
	require.NoError(t, dead.Run())
	names := map[string]bool{ // whether it stays
		namespacePrefix + strconv.Itoa(os.Getpid()) + "-" + born + "-t1":      true,
		namespacePrefix + strconv.Itoa(os.Getpid()) + "-1-t2":                 false, // its pid lives again, as somebody else
		namespacePrefix + strconv.Itoa(dead.Process.Pid) + "-" + born + "-t3": false,
		namespacePrefix + "of-nobody-known-" + strconv.Itoa(os.Getpid()):      true,
	}
	for name := range names {
		if err := ip("netns", "add", name); err != nil {
			require.ErrorContains(t, err, "netns add") // root, but not allowed to
			return
		}
		t.Cleanup(func() {
			if _, err := os.Stat(filepath.Join(namespaces, name)); err == nil {
				require.NoError(t, ip("netns", "del", name))
			}
		})
	}
	removeStale()
	for name, stays := range names {
		_, err := os.Stat(filepath.Join(namespaces, name))
		require.Equal(t, stays, err == nil, name)
	}
}

func TestTheAddressesOfCables_stay_in_their_range(t *testing.T) {
	_, within, err := net.ParseCIDR("198.18.0.0/15")
	require.NoError(t, err)
	require.Equal(t, "198.18.0.1", add(cableRange, 1).String())
	require.Equal(t, "198.18.4.1", add(cableRange, 4*256+1).String())
	require.True(t, within.Contains(net.IP(add(cableRange, 4*cables-2).AsSlice())))
}
