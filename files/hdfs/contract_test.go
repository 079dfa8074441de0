package hdfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"testing"
	"time"

	lib "github.com/colinmarc/hdfs/v2"

	"capri/conf"
	"capri/files/filestest"
	"capri/internal/testenv"
)

// one is the name service of one name-node, under the name test.
func one(address string) []conf.NameService {
	return []conf.NameService{{Name: "test", NameNodes: []string{address}}}
}

// writer is a client of the library itself, as the file system's own administrator: whoever started the name-node.
type writer struct {
	*lib.Client
	t   testing.TB
	dir string // ours alone
}

func newWriter(t testing.TB, address string) *writer {
	t.Helper()
	c, err := lib.NewClient(lib.ClientOptions{Addresses: []string{address}, User: New(Options{}).o.User})
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{c, t, fmt.Sprintf("/capri-test/%d-%d", os.Getpid(), time.Now().UnixNano())}
	w.must(c.MkdirAll(w.dir, 0o755))
	t.Cleanup(func() {
		c.Close()
		// Anew, since the test may have killed the name-node that this one was connected to.
		c, err := lib.NewClient(lib.ClientOptions{Addresses: []string{address}, User: c.User()})
		if err == nil {
			err = errors.Join(c.RemoveAll(w.dir), c.Close())
		}
		w.must(err)
	})
	return w
}

func (w *writer) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) write(name, text string) {
	w.t.Helper()
	file := w.dir + name
	w.must(w.MkdirAll(path.Dir(file), 0o755))
	if err := w.Client.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	f, err := w.Create(file)
	w.must(err)
	if text != "" { // a write of nothing would begin a block that never becomes complete
		_, err = f.Write([]byte(text))
		w.must(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for err = f.Close(); lib.IsErrReplicating(err) && time.Now().Before(deadline); err = f.Close() { // the name-node does not know yet that the data-node has it
		time.Sleep(10 * time.Millisecond)
	}
	w.must(err)
}

func TestContract(t *testing.T) {
	address := testenv.HDFS(t)
	for name, o := range map[string]Options{"without_a_cache": {}, "with_a_cache": {CacheLimit: 1 << 30}} {
		t.Run(name, func(t *testing.T) {
			filestest.Run(t, func(t *testing.T) filestest.World {
				w := newWriter(t, address)
				o := o
				o.NameServices = one(address)
				if o.CacheLimit > 0 {
					o.CacheDir = t.TempDir() + "/cache"
				}
				h := New(o)
				t.Cleanup(h.Close)
				return filestest.World{
					Files: h, Dir: "hdfs://test" + w.dir, Foreign: "/a/file",
					Write:  w.write,
					Mkdir:  func(p string) { w.must(w.MkdirAll(w.dir+p, 0o755)) },
					Remove: func(p string) { w.must(w.RemoveAll(w.dir + p)) },
				}
			})
		})
	}
}
