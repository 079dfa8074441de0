package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	krbkeys "github.com/jcmturner/gokrb5/v8/keytab"
	"go.uber.org/goleak"

	"capri"
	"capri/conf"
	"capri/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mute is a name-node that takes connections and says nothing. It counts them.
func mute(t *testing.T) (address string, taken *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken = &atomic.Int32{}
	var held []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			taken.Add(1)
			held = append(held, c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, c := range held {
			c.Close()
		}
	})
	return l.Addr().String(), taken
}

func manyPaths(n int) []capri.PathCondition {
	paths := make([]capri.PathCondition, n)
	for i := range paths {
		paths[i] = capri.PathCondition{Path: fmt.Sprintf("hdfs://test/dir%d/x", i), Flag: "_SUCCESS"}
	}
	return paths
}

// unseen expects that nothing is known of any path, within a time far below what each path by itself would cost.
func unseen(t *testing.T, f files.Files, paths []capri.PathCondition, want string) {
	t.Helper()
	began := time.Now()
	there, err := f.There(t.Context(), paths)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the look took %s", took)
	}
	var some *files.UnseenError
	if !errors.As(err, &some) || len(some.Paths) != len(paths) {
		t.Fatalf("it says %v, want all %d paths unseen", err, len(paths))
	}
	for i, p := range paths {
		if there[i] || !errors.Is(some.Paths[p], capri.ErrUnavailable) || !strings.Contains(some.Paths[p].Error(), want) {
			t.Fatalf("%s is there: %v; it says %v, want %q", p.Path, there[i], some.Paths[p], want)
		}
	}
}

func TestA_mute_name_node_costs_one_time_limit_and_is_then_left_alone(t *testing.T) {
	address, taken := mute(t)
	h := New(Options{NameServices: one(address), Timeout: 200 * time.Millisecond, RetryAfter: time.Hour, Connections: 4})
	unseen(t, h, manyPaths(1000), "does not answer within 200ms") // one by one they would take 200 s
	if n := taken.Load(); n > 4 {
		t.Errorf("it was connected to %d times", n)
	}
	before := taken.Load()
	unseen(t, h, manyPaths(1000), "it is left alone for")
	if _, err := h.Stat(t.Context(), manyPaths(1)[0]); !errors.Is(err, capri.ErrUnavailable) {
		t.Errorf("a single look says %v", err)
	}
	if taken.Load() != before {
		t.Error("it was asked although it is to be left alone")
	}
}

func TestA_name_node_that_was_left_alone_is_asked_again(t *testing.T) {
	address, taken := mute(t)
	h := New(Options{NameServices: one(address), Timeout: 50 * time.Millisecond, RetryAfter: time.Millisecond})
	for i := range int32(3) {
		time.Sleep(2 * time.Millisecond)
		unseen(t, h, manyPaths(1), "does not answer")
		if n := taken.Load(); n != i+1 {
			t.Fatalf("after %d looks it was connected to %d times", i+1, n)
		}
	}
}

func TestAnother_name_service_is_not_held_up(t *testing.T) {
	address, _ := mute(t)
	h := New(Options{Timeout: 300 * time.Millisecond, NameServices: []conf.NameService{{Name: "test", NameNodes: []string{address}}, {Name: "gone", NameNodes: []string{refusing(t)}}}})
	began := time.Now()
	_, err := h.Stat(t.Context(), capri.PathCondition{Path: "hdfs://gone/a"})
	if !errors.Is(err, capri.ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a name-node that is not there says %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that took %s", took)
	}
	unseen(t, h, manyPaths(3), "does not answer")
}

// refusing is an address where nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestEach_name_node_of_a_list_is_tried(t *testing.T) {
	first, n1 := mute(t)
	second, n2 := mute(t)
	h := New(Options{Timeout: 100 * time.Millisecond, RetryAfter: time.Hour, NameServices: []conf.NameService{{Name: "test", NameNodes: []string{first, second}}}})
	unseen(t, h, manyPaths(1), "does not answer within 100ms")
	if n1.Load() != 1 || n2.Load() != 1 {
		t.Errorf("they were connected to %d and %d times", n1.Load(), n2.Load())
	}
}

func TestA_context_ends_a_call_before_its_time_limit(t *testing.T) {
	address, _ := mute(t)
	h := New(Options{NameServices: one(address), Timeout: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.Stat(ctx, manyPaths(1)[0]); !errors.Is(err, capri.ErrUnavailable) || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("it says %v", err)
	}
	if h.services[0].left() != nil {
		t.Error("the name-node is blamed for a caller's hurry")
	}
}

func TestAuthorities(t *testing.T) {
	h := New(Options{NameServices: []conf.NameService{{Name: "wh", NameNodes: []string{"nn1:8020", "nn2:9000"}}, {Name: "nn9:8020", NameNodes: []string{"nn9:8020"}}}})
	for _, c := range []struct{ url, service, path, want string }{
		{"hdfs://wh/a/b", "wh", "/a/b", ""},
		{"HDFS://WH/a/B", "wh", "/a/B", ""},
		{"hdfs:///a", "wh", "/a", ""},
		{"hdfs:/a", "wh", "/a", ""},
		{"hdfs://wh", "wh", "/", ""},
		{"hdfs://wh/", "wh", "/", ""},
		{"hdfs://wh//a//b/", "wh", "/a/b", ""},
		{"hdfs://nn1:8020/a", "wh", "/a", ""},
		{"hdfs://nn1/a", "wh", "/a", ""}, // 8020 is what Hadoop takes for granted
		{"hdfs://nn2:9000/a", "wh", "/a", ""},
		{"hdfs://nn9/a", "nn9:8020", "/a", ""},
		{"hdfs://wh/ü %41", "wh", "/ü %41", ""},
		{"hdfs://nn2/a", "", "", "it lists wh, nn9:8020"},
		{"hdfs://other/a", "", "", "hdfs.name_nodes"},
		{"hdfs://wh/a/../b", "", "", "without . and .."},
		{"hdfs://wh/./b", "", "", "without . and .."},
		{"hdfs://wh/a\x00", "", "", "control characters"},
		{"/a", "", "", "begins with hdfs://"},
		{"file:///a", "", "", "begins with hdfs://"},
		{"hdfs:a", "", "", "begins with hdfs://"},
	} {
		n, path, err := h.find(c.url)
		switch {
		case c.want != "":
			if !errors.Is(err, capri.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v, want %q", c.url, err, c.want)
			}
		case err != nil || n.name != c.service || path != c.path:
			t.Errorf("%q: %v %q %v, want %s %s", c.url, n, path, err, c.service, c.path)
		}
	}
}

func FuzzFind(f *testing.F) {
	for _, url := range []string{"hdfs://wh/a", "hdfs:///", "hdfs:////", "hdfs://wh", "hdfs:/a/..b/.c", "hdfs://WH/\xff"} {
		f.Add(url)
	}
	h := New(Options{NameServices: one("nn:8020")})
	f.Fuzz(func(t *testing.T, url string) {
		_, path, err := h.find(url)
		if err != nil {
			return
		}
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || (path != "/" && strings.HasSuffix(path, "/")) {
			t.Errorf("%q becomes %q", url, path)
		}
		if _, again, err := h.find("hdfs://" + path); err != nil || again != path {
			t.Errorf("%q becomes %q, and that %q, %v", url, path, again, err)
		}
	})
}

func TestFromConfig(t *testing.T) {
	c := conf.Default()
	if FromConfig(c) != nil {
		t.Error("without name-nodes there is an HDFS")
	}
	c.Data, c.HDFS.NameNodes = "/data", []string{"wh=nn1:8020", "wh=nn2:8020", "NN9:8020"}
	h := FromConfig(c)
	if h.names != "wh, nn9:8020" || len(h.services[0].nodes) != 2 || h.cache.dir != "/data/hdfs-files" || h.o.FileLimit != 512<<20 || h.services[0].login != nil {
		t.Errorf("made %+v", h.o)
	}
	c.HDFS.KerberosPrincipal, c.HDFS.KerberosKeytab, c.HDFS.CacheMB = "capri/w@REALM", "/none/keytab", 0
	if h = FromConfig(c); h.services[0].login == nil || h.cache != nil {
		t.Error("Kerberos is left out, or a cache of no size is kept")
	}
}

func TestKerberos_that_cannot_log_in_names_the_file(t *testing.T) {
	dir := t.TempDir()
	krb5, keytab := filepath.Join(dir, "krb5.conf"), filepath.Join(dir, "keytab")
	k := &Kerberos{Principal: "capri@REALM", Keytab: keytab, Config: krb5, NameNode: "nn/_HOST"}
	say := func(want string) {
		t.Helper()
		address, taken := mute(t)
		h := New(Options{NameServices: one(address), Kerberos: k, Timeout: time.Second})
		_, err := h.Stat(t.Context(), manyPaths(1)[0])
		if !errors.Is(err, capri.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v, want %q", err, want)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("it tells a secret: %v", err)
		}
		if taken.Load() != 0 {
			t.Error("a name-node was asked without a ticket")
		}
	}
	say("read hdfs.kerberos_config " + krb5)
	if err := os.WriteFile(krb5, []byte("[libdefaults]\n default_realm = REALM\n dns_lookup_kdc = false\n[realms]\n REALM = {\n  kdc = "+refusing(t)+"\n }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	say("read hdfs.kerberos_keytab " + keytab)
	keys := krbkeys.New()
	if err := keys.AddEntry("capri", "REALM", "geheim", time.Unix(1, 0), 1, etypeID.AES256_CTS_HMAC_SHA1_96); err != nil {
		t.Fatal(err)
	}
	b, err := keys.Marshal()
	if err == nil {
		err = os.WriteFile(keytab, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	say("log in to Kerberos as capri@REALM")
}

func outFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestThe_cache_downloads_once_however_many_want_a_file(t *testing.T) {
	k := newCache(t.TempDir()+"/c", 100)
	var downloads atomic.Int32
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for range 20 {
		out := outFile(t)
		wg.Go(func() {
			err := k.get(t.Context(), "key", 3, out, func(to *os.File) error {
				downloads.Add(1)
				<-gate
				_, err := to.WriteString("abc")
				return err
			})
			if b, _ := os.ReadFile(out.Name()); err != nil || string(b) != "abc" {
				t.Errorf("one got %q, %v", b, err)
			}
		})
	}
	close(gate)
	wg.Wait()
	if n := downloads.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
	if len(k.busy) != 0 {
		t.Errorf("it is still busy with %d files", len(k.busy))
	}
}

func TestThe_cache_keeps_what_was_used_last_and_nothing_that_is_not_whole(t *testing.T) {
	dir := t.TempDir()
	k := newCache(dir, 10)
	downloads := 0
	get := func(key, text string) error {
		return k.get(t.Context(), key, int64(len(text)), outFile(t), func(to *os.File) error {
			downloads++
			_, err := to.WriteString(text)
			return err
		})
	}
	age := func(name string, by time.Duration) {
		at := time.Now().Add(-by)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(get("a", "aaaa"))
	must(get("b", "bbbb"))
	age("a", 2*time.Hour)
	age("b", time.Hour)
	must(get("a", "aaaa")) // used again: b is now the older one
	must(os.WriteFile(filepath.Join(dir, "new-left"), []byte("x"), 0o600))
	age("new-left", 2*time.Hour)
	must(get("c", "cccc"))
	if names := list(t, dir); names != "a c" || downloads != 3 {
		t.Errorf("it keeps %s after %d downloads", names, downloads)
	}
	broken := errors.New("broken off")
	if err := k.get(t.Context(), "d", 4, outFile(t), func(to *os.File) error { to.WriteString("dd"); return broken }); !errors.Is(err, broken) {
		t.Errorf("a broken download says %v", err)
	}
	must(os.WriteFile(filepath.Join(dir, "c"), []byte("cc"), 0o600)) // a disk that lost its end
	must(get("c", "cccc"))
	if names := list(t, dir); strings.Contains(names, "new-") || strings.Contains(names, "d") || downloads != 4 {
		t.Errorf("it keeps %s after %d downloads", names, downloads)
	}
	k = newCache(filepath.Join(dir, "c"), 10) // no directory
	if err := get("e", "e"); err == nil || away(err) {
		t.Errorf("a cache that cannot be written says %v, or blames the name-node", err)
	}
	if newCache("", 10) != nil || newCache(dir, 0) != nil {
		t.Error("no directory or no room make a cache")
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestWhat_a_fault_of_the_way_there_is_and_what_an_answer(t *testing.T) {
	for err, want := range map[error]bool{
		&fs.PathError{Err: fs.ErrNotExist}:   false,
		&fs.PathError{Err: fs.ErrPermission}: false,
		&dataError{errors.New("x")}:          false,
		capri.Invalid("a", "b", "c"):         false,
		errors.New("EOF"):                    true,
		context.DeadlineExceeded:             true,
		&fs.PathError{Err: errors.New("no available namenodes: ServerException org.apache.hadoop.ipc.StandbyException")}: true,
	} {
		if away(err) != want {
			t.Errorf("%v is away: %v", err, !want)
		}
	}
	if got := plain(&fs.PathError{Err: errors.New("no available namenodes: x (org.apache.hadoop.ipc.StandbyException)")}); got != "none of its name-nodes is active" {
		t.Errorf("standby is told as %q", got)
	}
	if got := plain(&fs.PathError{Op: "stat", Err: errors.New("no available namenodes: dial tcp: refused")}); got != "dial tcp: refused" {
		t.Errorf("told as %q", got)
	}
}
