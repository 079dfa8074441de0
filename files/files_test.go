package files_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"capri"
	"capri/files"
	"capri/files/local"
)

func TestEach_path_goes_to_the_file_system_of_its_scheme(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "_SUCCESS"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := local.New(local.Options{})
	f := files.ByScheme(map[string]files.Files{"": l, "file": l})
	paths := []capri.PathCondition{{Path: dir, Flag: "_SUCCESS"}, {Path: "hdfs://nn/a"}, {Path: "file://" + dir, Flag: "_SUCCESS"}, {Path: "file://other/a"}, {Path: dir}}
	there, err := f.There(context.Background(), paths)
	if want := []bool{true, false, true, false, true}; !equal(there, want) {
		t.Errorf("there: %v, want %v", there, want)
	}
	var unseen *files.UnseenError
	if !errors.As(err, &unseen) || len(unseen.Paths) != 2 || unseen.Paths[paths[1]] == nil || unseen.Paths[paths[3]] == nil {
		t.Fatalf("unseen: %v", err)
	}
	if !errors.Is(err, capri.ErrUnavailable) || !strings.Contains(err.Error(), "2 paths could not be looked at: file://other/a: ") {
		t.Errorf("it says %v", err)
	}
}

func TestPaths_are_parted_by_the_file_system_they_lie_on(t *testing.T) {
	var paths []capri.PathCondition
	for _, p := range []string{"/a", "hdfs://nn/a", "/b", "hdfs://other/a", "hdfs://nn/b/c", "hdfs:///a", "file:///a", "//x/y"} {
		paths = append(paths, capri.PathCondition{Path: p})
	}
	var got []string
	for _, part := range files.Systems(paths) {
		var names []string
		for _, p := range part {
			names = append(names, p.Path)
		}
		got = append(got, strings.Join(names, " "))
	}
	if want := "/a /b //x/y|hdfs://nn/a hdfs://nn/b/c|hdfs://other/a|hdfs:///a|file:///a"; strings.Join(got, "|") != want {
		t.Errorf("parted into %s", strings.Join(got, "|"))
	}
	if files.Systems(nil) != nil {
		t.Error("no paths make a part")
	}
}

func TestNames_of_task_files(t *testing.T) {
	for url, want := range map[string]string{"/a/b.sh": "b.sh", "hdfs://nn/x/y.py": "y.py", "file:///z": "z", "/": "", "/a/": "", "/a/..": "", "hdfs://nn/": ""} {
		if got, err := files.BaseName(url); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", url, got, err, want)
		}
	}
}

func equal(a, b []bool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
