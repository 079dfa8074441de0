package hdfs

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"capri"
	"capri/files"
	"capri/files/filestest"
	"capri/internal/testenv"
)

func newStore(t *testing.T, w *writer, o Options) *Store {
	t.Helper()
	h := New(o)
	t.Cleanup(h.Close)
	s, err := h.Store("hdfs://test" + w.dir + "/logs/")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore_contract(t *testing.T) {
	address := testenv.HDFS(t)
	filestest.RunStore(t, func(t *testing.T) files.Store {
		return newStore(t, newWriter(t, address), Options{NameServices: one(address)})
	})
}

func TestStores_are_refused_where_they_cannot_be(t *testing.T) {
	h := New(Options{NameServices: one("nn.example.org:8020")})
	for _, url := range []string{"hdfs://test", "hdfs://test/", "hdfs://other/logs", "/logs", "hdfs://test/a/../b"} {
		if _, err := h.Store(url); !errors.Is(err, capri.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
	}
	s, err := h.Store("hdfs://test/capri/logs/")
	if err != nil || s.String() != "hdfs://test/capri/logs" {
		t.Errorf("it is %v, %v", s, err)
	}
}

func TestNobody_else_reads_what_a_store_keeps(t *testing.T) {
	address := testenv.HDFS(t)
	w := newWriter(t, address)
	s := newStore(t, w, Options{NameServices: one(address)})
	if err := s.Append(t.Context(), "n1/a/out", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{"/logs": "drwx------", "/logs/n1/a": "drwx------", "/logs/n1/a/out": "-rw-------"} {
		info, err := w.Stat(w.dir + at)
		if err != nil || info.Mode().String() != want {
			t.Errorf("%s is %v, %v; want %s", at, info.Mode(), err, want)
		}
	}
}

// A writer that died has left its last file open, and nobody can append to it for a minute.
func TestA_file_that_a_dead_writer_left_open_is_read_and_replaced(t *testing.T) {
	address := testenv.HDFS(t)
	w := newWriter(t, address)
	s := newStore(t, w, Options{NameServices: one(address)})
	if err := s.Append(t.Context(), "n1/a/out", 0, []byte("closed\n")); err != nil {
		t.Fatal(err)
	}
	f, err := w.Append(w.dir + "/logs/n1/a/out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // of no use to anybody by then, but it ends the library's goroutines
	if _, err = f.Write([]byte("and flushed\n")); err == nil {
		err = f.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.List(t.Context(), "n1/a")
	if err != nil || len(found) != 1 || found[0].Size < 7 {
		t.Fatalf("it is listed as %v, %v", found, err)
	}
	b := make([]byte, 100)
	if n, err := s.ReadAt(t.Context(), "n1/a/out", 0, b[:found[0].Size]); err != nil || string(b[:7]) != "closed\n" {
		t.Errorf("it reads %q, %v", b[:n], err)
	}
	if err := s.Append(t.Context(), "n1/a/out", found[0].Size, []byte("more\n")); err == nil {
		t.Error("two have it open")
	}
	if err := s.Append(t.Context(), "n1/a/out", 0, []byte("anew\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := s.ReadAt(t.Context(), "n1/a/out", 0, b); err != nil || string(b[:n]) != "anew\n" {
		t.Errorf("it reads %q, %v", b[:n], err)
	}
}

func TestA_frozen_name_node_costs_a_store_one_time_limit(t *testing.T) {
	address := testenv.HDFS(t)
	pid := testenv.NameNodePID(t)
	w := newWriter(t, address)
	s := newStore(t, w, Options{NameServices: one(address), Timeout: 500 * time.Millisecond, RetryAfter: 100 * time.Millisecond})
	if err := s.Append(t.Context(), "n1/a/out", 0, []byte("before\n")); err != nil {
		t.Fatal(err)
	}
	testenv.Freeze(t, pid)
	thaw := func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	defer thaw()
	began := time.Now()
	if err := s.Append(t.Context(), "n1/a/out", 7, []byte("meanwhile\n")); !errors.Is(err, capri.ErrUnavailable) {
		t.Errorf("it says %v", err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
	thaw()
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		found, err := s.List(t.Context(), "n1/a")
		if err == nil && len(found) == 1 {
			if err = s.Append(t.Context(), "n1/a/out", found[0].Size, []byte("after\n")); err == nil {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not recover: %v", err)
		}
	}
}
