package filestest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"capri"
	"capri/files"
)

// RunStore runs the suite of what every store has to keep; make gives an empty one.
func RunStore(t *testing.T, make func(t *testing.T) files.Store) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s files.Store)
	}{
		{"A_file_grows_piece_by_piece", grows},
		{"A_file_of_another_size_is_left_alone", otherSize},
		{"Size_0_begins_anew", anew},
		{"A_directory_is_listed_and_removed", listed},
		{"What_is_not_there", notThere},
		{"Names_do_not_lead_out", namesInside},
		{"Many_files_are_written_at_once", atOnce},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, make(t)) })
	}
}

func add(t *testing.T, s files.Store, name string, size int64, text string) {
	t.Helper()
	if err := s.Append(t.Context(), name, size, []byte(text)); err != nil {
		t.Fatalf("append to %s: %v", name, err)
	}
}

func reads(t *testing.T, s files.Store, name string, offset int64, most int, want string) {
	t.Helper()
	b := make([]byte, most)
	n, err := s.ReadAt(t.Context(), name, offset, b)
	if err != nil || string(b[:n]) != want {
		t.Fatalf("%s from %d on: %.60q, %v; want %.60q", name, offset, b[:n], err, want)
	}
}

func grows(t *testing.T, s files.Store) {
	add(t, s, "n1/a/out", 0, "")
	reads(t, s, "n1/a/out", 0, 10, "")
	text := ""
	for i := range 5 {
		more := strings.Repeat(fmt.Sprint("piece ", i, "\n"), 1+i*i*2000)
		add(t, s, "n1/a/out", int64(len(text)), more)
		text += more
		reads(t, s, "n1/a/out", 0, len(text)+10, text)
		reads(t, s, "n1/a/out", int64(len(text))-5, 3, text[len(text)-5:len(text)-2])
	}
	reads(t, s, "n1/a/out", int64(len(text)), 3, "")
	reads(t, s, "n1/a/out", int64(len(text))+1000, 3, "")
	zeros := bytes.Repeat([]byte{0, 255, '\n'}, 1000)
	add(t, s, "n1/a/binary", 0, string(zeros))
	reads(t, s, "n1/a/binary", 0, 5000, string(zeros))
}

func otherSize(t *testing.T, s files.Store) {
	add(t, s, "n1/a/out", 0, "five\n")
	for _, size := range []int64{1, 4, 6} {
		if err := s.Append(t.Context(), "n1/a/out", size, []byte("x")); err == nil {
			t.Errorf("a file of 5 bytes was taken for one of %d", size)
		}
	}
	reads(t, s, "n1/a/out", 0, 10, "five\n")
}

func anew(t *testing.T, s files.Store) {
	add(t, s, "n1/a/out", 0, "the first, which is longer")
	add(t, s, "n1/a/out", 0, "the second")
	reads(t, s, "n1/a/out", 0, 100, "the second")
}

func listed(t *testing.T, s files.Store) {
	began := time.Now().Add(-time.Minute)
	for _, name := range []string{"n1/a/out", "n1/a/err", "n1/b/out", "n2/a/out"} {
		add(t, s, name, 0, name)
	}
	names := func(dir string) string {
		found, err := s.List(t.Context(), dir)
		if err != nil {
			t.Fatalf("list %s: %v", dir, err)
		}
		var names []string
		for _, f := range found {
			if f.Dir {
				f.Name += "/"
			} else if f.Size != 8 {
				t.Errorf("%s has %d bytes, want 8", f.Name, f.Size)
			}
			if f.Changed.Before(began) || f.Changed.After(time.Now().Add(time.Minute)) {
				t.Errorf("%s was changed at %s", f.Name, f.Changed)
			}
			names = append(names, f.Name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if got := names("n1"); got != "a/ b/" {
		t.Errorf("n1 has %s", got)
	}
	if got := names("n1/a"); got != "err out" {
		t.Errorf("n1/a has %s", got)
	}
	for _, name := range []string{"n1/a/err", "n1/b", "n1/b", "n3", "n1/a/err"} { // twice is harmless
		if err := s.Remove(t.Context(), name); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	}
	if got := names("n1") + "; " + names("n1/a") + "; " + names("n2/a"); got != "a/; out; out" {
		t.Errorf("what is left is %s", got)
	}
}

func notThere(t *testing.T, s files.Store) {
	if found, err := s.List(t.Context(), "n9"); err != nil || len(found) > 0 {
		t.Errorf("an absent directory: %v, %v", found, err)
	}
	if _, err := s.ReadAt(t.Context(), "n9/out", 0, make([]byte, 1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
	if err := s.Append(t.Context(), "n9/out", 5, []byte("x")); err == nil {
		t.Error("an absent file was appended to")
	}
}

func namesInside(t *testing.T, s files.Store) {
	for _, name := range []string{"", ".", "..", "../x", "a/../../x", "/etc/x", "a//b", "a/", "a\x00b"} {
		if err := s.Append(t.Context(), name, 0, nil); !errors.Is(err, capri.ErrInvalid) {
			t.Errorf("append to %q: %v", name, err)
		}
		if err := s.Remove(t.Context(), name); !errors.Is(err, capri.ErrInvalid) {
			t.Errorf("remove %q: %v", name, err)
		}
		if _, err := s.List(t.Context(), name); !errors.Is(err, capri.ErrInvalid) {
			t.Errorf("list %q: %v", name, err)
		}
	}
}

func atOnce(t *testing.T, s files.Store) {
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			name, text := fmt.Sprintf("n1/j%d/out", i), ""
			for j := range 5 {
				more := fmt.Sprintf("%d of %d\n", j, i)
				if err := s.Append(t.Context(), name, int64(len(text)), []byte(more)); err != nil {
					t.Errorf("append to %s: %v", name, err)
					return
				}
				text += more
			}
			b := make([]byte, 1000)
			if n, err := s.ReadAt(t.Context(), name, 0, b); err != nil || string(b[:n]) != text {
				t.Errorf("%s: %q, %v", name, b[:n], err)
			}
		})
	}
	group.Wait()
}
