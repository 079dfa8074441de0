package hdfs

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"capri"
	"capri/conf"
	"capri/files"
	"capri/files/local"
	"capri/internal/testenv"
)

// real is what each test against a real name-node has: one flag that is there, beside it one that is not.
func real(t *testing.T) (w *writer, here, absent capri.PathCondition) {
	t.Helper()
	w = newWriter(t, testenv.HDFS(t))
	w.write("/here/_SUCCESS", "")
	return w, capri.PathCondition{Path: "hdfs://test" + w.dir + "/here", Flag: "_SUCCESS"}, capri.PathCondition{Path: "hdfs://test" + w.dir + "/absent", Flag: "_SUCCESS"}
}

// recovers waits until the two are answered rightly again.
func recovers(t *testing.T, h *HDFS, here, absent capri.PathCondition) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		there, err := h.There(t.Context(), []capri.PathCondition{here, absent})
		if err == nil {
			if !there[0] || there[1] {
				t.Fatalf("answered wrongly: %v", there)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not recover: %v", err)
		}
	}
}

// besides expects local paths to be answered while HDFS is not.
func besides(t *testing.T, h *HDFS, here capri.PathCondition) {
	t.Helper()
	dir := t.TempDir()
	all := files.ByScheme(map[string]files.Files{"": local.New(local.Options{}), Scheme: h})
	there, err := all.There(t.Context(), []capri.PathCondition{here, {Path: dir}, {Path: dir, Flag: "_SUCCESS"}})
	var some *files.UnseenError
	if !errors.As(err, &some) || len(some.Paths) != 1 || some.Paths[here] == nil || !there[1] || there[2] {
		t.Errorf("besides a silent HDFS: %v, %v", there, err)
	}
}

func TestA_name_node_that_is_killed_is_told_and_answers_again_when_it_is_back(t *testing.T) {
	address := testenv.HDFS(t)
	pid := testenv.NameNodePID(t)
	_, here, absent := real(t)
	h := New(Options{NameServices: one(address), Timeout: 2 * time.Second, RetryAfter: 100 * time.Millisecond})
	defer h.Close()
	recovers(t, h, here, absent)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	unseenSoon(t, h, here)
	besides(t, h, here)
	recovers(t, h, here, absent)
}

// unseenSoon waits for the first look that is told of the fault: a process that is killed may answer one more.
func unseenSoon(t *testing.T, h *HDFS, here capri.PathCondition) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		began := time.Now()
		_, err := h.There(t.Context(), []capri.PathCondition{here})
		if took := time.Since(began); took > 15*time.Second {
			t.Fatalf("a look took %s", took)
		}
		var some *files.UnseenError
		if errors.As(err, &some) {
			if !errors.Is(some.Paths[here], capri.ErrUnavailable) {
				t.Fatalf("it says %v", err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody notices")
		}
	}
}

func TestA_name_node_that_is_frozen_costs_one_time_limit(t *testing.T) {
	address := testenv.HDFS(t)
	pid := testenv.NameNodePID(t)
	_, here, absent := real(t)
	h := New(Options{NameServices: one(address), Timeout: 500 * time.Millisecond, RetryAfter: 300 * time.Millisecond})
	defer h.Close()
	recovers(t, h, here, absent)
	testenv.Freeze(t, pid)
	thaw := func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	defer thaw()
	unseen(t, h, append(manyPaths(1000), here), "cannot be asked")
	besides(t, h, here)
	thaw()
	recovers(t, h, here, absent)
}

func TestA_frozen_name_node_is_left_for_the_next(t *testing.T) {
	address := testenv.HDFS(t)
	_, here, absent := real(t)
	silent, taken := mute(t)
	h := New(Options{Timeout: time.Second, RetryAfter: time.Hour, NameServices: []conf.NameService{{Name: "test", NameNodes: []string{silent, address}}}})
	defer h.Close()
	for range 3 {
		there, err := h.There(t.Context(), []capri.PathCondition{here, absent})
		if err != nil || !there[0] || there[1] {
			t.Fatalf("answered %v, %v", there, err)
		}
		h.Close() // so that the next is connected anew
	}
	if n := taken.Load(); n > 2 { // the two looks of the first round, which go at once
		t.Errorf("the silent one was asked %d times", n)
	}
}

// slow stands between us and a name-node.
func slow(t *testing.T, to string) *toxiproxy.Proxy {
	t.Helper()
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "name-node", "127.0.0.1:0", to)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func delay(t *testing.T, p *toxiproxy.Proxy, by time.Duration) {
	t.Helper()
	if by == 0 {
		p.Toxics.ResetToxics(t.Context())
		return
	}
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name": "slow", "type": "latency", "stream": "downstream", "attributes": {"latency": %d}}`, by.Milliseconds()))); err != nil {
		t.Fatal(err)
	}
}

func TestA_slow_name_node_ends_a_round_in_time_and_what_it_said_counts(t *testing.T) {
	address := testenv.HDFS(t)
	w, here, absent := real(t)
	p := slow(t, address)
	h := New(Options{NameServices: one(p.Listen), Timeout: 10 * time.Second, Round: 2 * time.Second, RetryAfter: 200 * time.Millisecond, Connections: 2})
	defer h.Close()
	recovers(t, h, here, absent)
	delay(t, p, 100*time.Millisecond)
	paths := []capri.PathCondition{}
	for i := range 300 { // by twos at 100 ms each: 15 s, each in a directory of its own, so that no listing helps
		paths = append(paths, capri.PathCondition{Path: fmt.Sprintf("hdfs://test%s/d%d/x", w.dir, i)})
	}
	began := time.Now()
	_, err := h.There(t.Context(), paths)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the round took %s", took)
	}
	var some *files.UnseenError
	if !errors.As(err, &some) || len(some.Paths) == 0 || len(some.Paths) == len(paths) || !strings.Contains(err.Error(), "did not get through all paths within 2s") {
		t.Errorf("it says %v", err)
	}
	delay(t, p, 0)
	recovers(t, h, here, absent)
	if there, err := h.There(t.Context(), paths); err != nil || there[0] {
		t.Errorf("afterwards: %v", err)
	}
}

func TestAn_answer_that_comes_too_late_is_not_taken_for_the_next(t *testing.T) {
	address := testenv.HDFS(t)
	_, here, absent := real(t)
	p := slow(t, address)
	h := New(Options{NameServices: one(p.Listen), Timeout: 300 * time.Millisecond, RetryAfter: time.Millisecond, Connections: 1})
	defer h.Close()
	recovers(t, h, here, absent)
	for range 3 {
		delay(t, p, 600*time.Millisecond)
		unseenSoon(t, h, here)
		delay(t, p, 0)
		recovers(t, h, here, absent) // the answer about here may arrive now
	}
}

func TestA_connection_that_breaks_while_idle_costs_no_look(t *testing.T) {
	address := testenv.HDFS(t)
	_, here, absent := real(t)
	p := slow(t, address)
	h := New(Options{NameServices: one(p.Listen), RetryAfter: time.Hour})
	defer h.Close()
	recovers(t, h, here, absent)
	p.Stop() // cuts all connections
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	there, err := h.There(t.Context(), []capri.PathCondition{here, absent})
	if err != nil || !there[0] || there[1] {
		t.Errorf("after the connections were cut: %v, %v", there, err)
	}
}

func fetchAs(t *testing.T, h *HDFS, url string, as *files.Account) (string, error) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := h.Fetch(t.Context(), url, root, as); err != nil {
		return "", err
	}
	name, err := files.BaseName(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := root.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), nil
}

func TestA_file_is_read_with_the_rights_of_its_account_from_the_cache_too(t *testing.T) {
	address := testenv.HDFS(t)
	w := newWriter(t, address)
	w.write("/bin/a.sh", "echo secret")
	w.must(w.Chown(w.dir+"/bin/a.sh", "alice", "staff"))
	url := "hdfs://test" + w.dir + "/bin/a.sh"
	h := New(Options{NameServices: one(address), CacheDir: t.TempDir(), CacheLimit: 1 << 20})
	defer h.Close()
	alice, bob := &files.Account{Name: "alice"}, &files.Account{Name: "bob"}
	for _, step := range []struct {
		mode, dir        os.FileMode
		forAlice, forBob bool
	}{{0o644, 0o755, true, true}, {0o600, 0o755, true, false}, {0o044, 0o755, false, true}, {0o644, 0o750, false, false}, {0o644, 0o751, true, true}} {
		w.must(w.Chmod(w.dir+"/bin/a.sh", step.mode))
		w.must(w.Chmod(w.dir+"/bin", step.dir))
		for who, may := range map[*files.Account]bool{alice: step.forAlice, bob: step.forBob} {
			text, err := fetchAs(t, h, url, who)
			if may && (err != nil || text != "echo secret") || !may && (!errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "as account "+who.Name)) {
				t.Errorf("mode %o in %o, as %s: %q, %v; want it to be allowed: %v", step.mode, step.dir, who.Name, text, err, may)
			}
			// With Kerberos the same is judged here.
			err = h.services[0].call(t.Context(), h.o.User, func(c *client) error { return c.mayRead(w.dir+"/bin/a.sh", who.Name) })
			if (err == nil) != may || err != nil && !errors.Is(err, fs.ErrPermission) {
				t.Errorf("mode %o in %o, judged for %s: %v; want it to be allowed: %v", step.mode, step.dir, who.Name, err, may)
			}
		}
	}
}

func TestA_file_that_is_too_large_is_not_fetched(t *testing.T) {
	address := testenv.HDFS(t)
	w := newWriter(t, address)
	w.write("/a.bin", strings.Repeat("x", 1<<20+1))
	h := New(Options{NameServices: one(address), FileLimit: 1 << 20})
	defer h.Close()
	if _, err := fetchAs(t, h, "hdfs://test"+w.dir+"/a.bin", nil); !errors.Is(err, capri.ErrInvalid) || !strings.Contains(err.Error(), "at most 1 MB (hdfs.file_limit_mb)") {
		t.Errorf("it says %v", err)
	}
}

func TestA_file_is_kept_by_its_checksum(t *testing.T) {
	address := testenv.HDFS(t)
	w := newWriter(t, address)
	w.write("/a.sh", "one")
	dir := t.TempDir()
	h := New(Options{NameServices: one(address), CacheDir: dir, CacheLimit: 1 << 20})
	defer h.Close()
	fetch := func(want string, kept int) {
		t.Helper()
		if text, err := fetchAs(t, h, "hdfs://test"+w.dir+"/a.sh", nil); err != nil || text != want {
			t.Errorf("fetched %q, %v; want %q", text, err, want)
		}
		if n := len(strings.Fields(list(t, dir))); n != kept {
			t.Errorf("%d files are kept, want %d", n, kept)
		}
	}
	fetch("one", 1)
	first := list(t, dir)
	if err := os.WriteFile(dir+"/"+first, []byte("1on"), 0o600); err != nil { // so that we see where it comes from
		t.Fatal(err)
	}
	fetch("1on", 1)
	w.write("/a.sh", "two")
	fetch("two", 2)
}

func TestA_path_that_may_not_be_looked_at_proves_nothing(t *testing.T) {
	address := testenv.HDFS(t)
	w := newWriter(t, address)
	w.write("/closed/a/_SUCCESS", "")
	w.write("/open/file", "x")
	w.must(w.Chmod(w.dir+"/closed", 0o700))
	h := New(Options{NameServices: one(address), User: "somebody"})
	defer h.Close()
	var paths []capri.PathCondition
	for i := range 20 {
		paths = append(paths, capri.PathCondition{Path: fmt.Sprintf("hdfs://test%s/closed/%d", w.dir, i), Flag: "_SUCCESS"})
	}
	below := capri.PathCondition{Path: "hdfs://test" + w.dir + "/open/file", Flag: "_SUCCESS"}
	there, err := h.There(t.Context(), append(paths, below))
	var some *files.UnseenError
	if !errors.As(err, &some) || len(some.Paths) != len(paths) || some.Paths[below] != nil {
		t.Fatalf("it says %v", err)
	}
	for i := range there {
		if there[i] {
			t.Error("what may not be seen is there")
		}
	}
	if h.services[0].left() != nil {
		t.Error("a refusal counts as silence")
	}
	// A directory that may be passed and not listed hides nothing.
	w.must(w.Chmod(w.dir+"/closed", 0o711))
	paths = append(paths, capri.PathCondition{Path: "hdfs://test" + w.dir + "/closed/a", Flag: "_SUCCESS"})
	there, err = h.There(t.Context(), paths)
	if err != nil || !there[20] || there[0] {
		t.Errorf("answered %v, %v", there, err)
	}
}

func TestCheck_tells_active_from_silent_name_nodes(t *testing.T) {
	address := testenv.HDFS(t)
	recoverFirst(t, address)
	silent, _ := mute(t)
	gone := refusing(t)
	h := New(Options{Timeout: 2 * time.Second, NameServices: []conf.NameService{{Name: "wh", NameNodes: []string{address, silent}}, {Name: "other", NameNodes: []string{gone}}}})
	defer h.Close()
	all := h.Check(t.Context())
	if len(all) != 3 || !all[0].Active || all[0].SafeMode || all[0].Err != nil {
		t.Fatalf("checked: %+v", all)
	}
	for i, want := range map[int]string{1: "does not answer within 2s", 2: "refused"} {
		if all[i].Active || all[i].Err == nil || !strings.Contains(all[i].Err.Error(), want) {
			t.Errorf("%s: %+v, want %q", all[i].NameNode, all[i], want)
		}
	}
	if _, err := net.Dial("tcp", gone); err == nil {
		t.Error("somebody listens at the address where nobody should")
	}
}

// recoverFirst waits until a name-node that an earlier test killed is back.
func recoverFirst(t *testing.T, address string) {
	t.Helper()
	_, here, absent := real(t)
	h := New(Options{NameServices: one(address), RetryAfter: time.Millisecond})
	defer h.Close()
	recovers(t, h, here, absent)
}
