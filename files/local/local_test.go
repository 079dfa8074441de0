package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"capri"
	"capri/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func touch(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestThere_answers_by_flag_or_by_the_path_itself(t *testing.T) {
	dir := t.TempDir()
	touch(t, dir+"/a/_SUCCESS", "")
	touch(t, dir+"/a/_DONE", "")
	touch(t, dir+"/file", "x")
	if err := os.Symlink(dir+"/a", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir+"/nowhere", dir+"/dangling"); err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		datum capri.PathCondition
		want  bool
	}{
		{capri.PathCondition{Path: dir + "/a", Flag: "_SUCCESS"}, true},
		{capri.PathCondition{Path: dir + "/a", Flag: "_DONE"}, true},
		{capri.PathCondition{Path: dir + "/a", Flag: "_OTHER"}, false},
		{capri.PathCondition{Path: dir + "/a"}, true},
		{capri.PathCondition{Path: "file://" + dir + "/a", Flag: "_SUCCESS"}, true},
		{capri.PathCondition{Path: dir + "/b", Flag: "_SUCCESS"}, false},
		{capri.PathCondition{Path: dir + "/file"}, true},
		{capri.PathCondition{Path: dir + "/file", Flag: "_SUCCESS"}, false}, // not a directory
		{capri.PathCondition{Path: dir + "/link", Flag: "_SUCCESS"}, true},
		{capri.PathCondition{Path: dir + "/dangling"}, false},
	}
	for _, many := range []bool{false, true} { // few are looked at one by one, many by listing first
		var paths []capri.PathCondition
		for _, r := range rows {
			paths = append(paths, r.datum)
		}
		for i := range 200 {
			if many {
				paths = append(paths, capri.PathCondition{Path: fmt.Sprintf("%s/day%d", dir, i), Flag: "_SUCCESS"})
			}
		}
		there, err := New(Options{}).There(context.Background(), append(paths, paths[0]))
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			if there[i] != r.want {
				t.Errorf("many %v: %s is there: %v", many, files.Name(r.datum), there[i])
			}
		}
		if !there[len(paths)] {
			t.Error("the same path twice is answered once")
		}
	}
}

func TestA_long_listing_is_broken_off_and_each_path_asked(t *testing.T) {
	dir := t.TempDir()
	for i := range 3000 {
		touch(t, fmt.Sprintf("%s/f%d", dir, i), "")
	}
	names, ok := list(dir, 100)
	if ok || names != nil {
		t.Errorf("%d names were listed", len(names))
	}
	var paths []capri.PathCondition
	for i := range listFrom {
		paths = append(paths, capri.PathCondition{Path: fmt.Sprintf("%s/f%d", dir, 2990+i)})
	}
	there, err := New(Options{}).There(context.Background(), paths)
	if err != nil {
		t.Fatal(err)
	}
	for i := range paths {
		if there[i] != (i < 10) {
			t.Errorf("%s is there: %v", paths[i].Path, there[i])
		}
	}
}

func TestA_directory_that_may_not_be_entered_proves_nothing(t *testing.T) {
	err := &os.PathError{Op: "stat", Path: "/x", Err: syscall.EACCES}
	if absent(err) || !absent(&os.PathError{Err: syscall.ENOENT}) || !absent(&os.PathError{Err: syscall.ENOTDIR}) {
		t.Error("absent is confused")
	}
}

func TestA_mount_that_hangs_costs_its_own_paths_one_time_limit(t *testing.T) {
	l := New(Options{Timeout: 500 * time.Millisecond, Parallel: 2})
	gate := make(chan struct{})
	if err := l.look(context.Background(), "/mnt/dead/a", func() { <-gate }); !errors.Is(err, capri.ErrUnavailable) || !strings.Contains(err.Error(), "no answer within 500ms") {
		t.Fatalf("the look that hangs says %v", err)
	}
	dir := t.TempDir()
	touch(t, dir+"/_SUCCESS", "")
	paths := []capri.PathCondition{{Path: dir, Flag: "_SUCCESS"}}
	for i := range 1000 {
		paths = append(paths, capri.PathCondition{Path: fmt.Sprintf("/mnt/dead/%d", i)})
	}
	began := time.Now()
	there, err := l.There(context.Background(), paths)
	if took := time.Since(began); took > 10*time.Second { // 1000 of them would be minutes
		t.Errorf("the round took %s", took)
	}
	var unseen *files.UnseenError
	if !errors.As(err, &unseen) || len(unseen.Paths) != 1000 || !there[0] {
		t.Fatalf("%d unseen, the healthy path is there: %v", len(unseen.Paths), there[0])
	}
	if !strings.Contains(err.Error(), "/mnt/dead does not answer") || !strings.Contains(err.Error(), "and 997 more") {
		t.Errorf("it says %v", err)
	}
	close(gate)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := l.There(context.Background(), paths[1:2]); err == nil {
			return // it came back, and is asked again
		}
		if time.Now().After(end) {
			t.Fatal("the mount that came back is not asked again")
		}
	}
}

func TestStat_tells_a_rewritten_flag_from_the_old_one(t *testing.T) {
	l := New(Options{})
	dir := t.TempDir()
	datum := capri.PathCondition{Path: dir, Flag: "_SUCCESS"}
	stat := func() files.Stamp {
		s, err := l.Stat(context.Background(), datum)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := stat()
	if before.There {
		t.Error("it is there before it was made")
	}
	touch(t, dir+"/_SUCCESS", "")
	first := stat()
	if first == before || first != stat() {
		t.Error("it looks the same as nothing, or differs from itself")
	}
	touch(t, dir+"/new", "")
	at := time.Unix(0, first.Modified)
	os.Chtimes(dir+"/new", at, at)
	if err := os.Rename(dir+"/new", dir+"/_SUCCESS"); err != nil {
		t.Fatal(err)
	}
	if stat() == first {
		t.Error("another file of the same time and size looks the same")
	}
}

func TestFetch_copies_regular_files_alone(t *testing.T) {
	l := New(Options{})
	dir, to := t.TempDir(), t.TempDir()
	root, err := os.OpenRoot(to)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	touch(t, dir+"/a.sh", "echo hi")
	if err := l.Fetch(context.Background(), "file://"+dir+"/a.sh", root, nil); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(to + "/a.sh")
	info, _ := os.Stat(to + "/a.sh")
	if err != nil || string(b) != "echo hi" || info.Mode() != 0o700 {
		t.Errorf("fetched %q, mode %v, %v", b, info.Mode(), err)
	}
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		dir: "not a regular file", dir + "/pipe": "not a regular file", dir + "/none": "no such file", "hdfs:///a": "a local path", "a.sh": "an absolute path",
	} {
		if err := l.Fetch(context.Background(), url, root, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	if err := l.Fetch(context.Background(), dir+"/a.sh", root, nil); err == nil {
		t.Error("a second file of the same name replaced the first")
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	touch(t, dir+"/b.sh", "x")
	if err := l.Fetch(ended, dir+"/b.sh", root, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context's end: %v", err)
	}
}

func TestCorners(t *testing.T) {
	for path, want := range map[string]string{"/": "/", "/a": "/a", "/a/b": "/a/b", "/a/b/c/d": "/a/b", "/a/b/c": "/a/b"} {
		if got := cornerOf(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
