// Package filestest is what every file system of package files has to keep: one suite that each implementation runs
// against the real thing.
//
//	func TestContract(t *testing.T) { filestest.Run(t, func(t *testing.T) filestest.World { … }) }
package filestest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"capri"
	"capri/files"
)

// World is one file system, with an empty directory in it that is ours, and the means to change it from outside.
type World struct {
	Files files.Files
	Dir   string // canonical URL or path of the directory, without a slash at its end

	// Write makes a file, or replaces it by another of the same name, with the directories above it; Mkdir makes a
	// directory; Remove removes a file or a tree.
	// The path is below Dir.
	Write  func(path, text string)
	Mkdir  func(path string)
	Remove func(path string)

	// Foreign is a URL of another file system, which this one must refuse.
	Foreign string
}

// Run runs the suite; make is called once for each test.
func Run(t *testing.T, make func(t *testing.T) World) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, w World)
	}{
		{"A_flag_is_there_or_the_path_itself", flags},
		{"Many_paths_of_one_directory_are_answered_as_few_are", many},
		{"A_directory_with_more_names_than_were_asked_for_hides_none", crowded},
		{"What_is_removed_is_not_there_any_more", removed},
		{"What_cannot_be_a_path_here_is_unseen_and_the_others_answered", unseen},
		{"A_rewritten_flag_looks_different_and_an_untouched_one_equal", stamps},
		{"A_file_is_fetched_whole_under_its_base_name", fetched},
		{"Directories_and_absent_files_are_not_fetched", notFetched},
		{"An_ended_context_ends_every_call", ended},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, make(t)) })
	}
}

func (w World) datum(path, flag string) capri.PathCondition {
	return capri.PathCondition{Path: w.Dir + path, Flag: flag}
}

func (w World) expect(t *testing.T, want map[capri.PathCondition]bool, more ...capri.PathCondition) {
	t.Helper()
	paths := more
	for p := range want {
		paths = append(paths, p)
	}
	there, err := w.Files.There(t.Context(), paths)
	if err != nil {
		t.Fatalf("look: %v", err)
	}
	if len(there) != len(paths) {
		t.Fatalf("%d answers for %d paths", len(there), len(paths))
	}
	for i, p := range paths {
		if there[i] != want[p] {
			t.Errorf("%s is there: %v, want %v", files.Name(p), there[i], want[p])
		}
	}
}

// scene writes what the first tests look at, and tells what of it is there.
func (w World) scene() map[capri.PathCondition]bool {
	w.Write("/a/_SUCCESS", "")
	w.Write("/a/_DONE", "x")
	w.Write("/file", "x")
	w.Write("/übung/1 %41 a=b/_SUCCESS", "")
	w.Mkdir("/empty")
	return map[capri.PathCondition]bool{
		w.datum("/a", "_SUCCESS"):               true,
		w.datum("/a", "_DONE"):                  true,
		w.datum("/a", "_OTHER"):                 false,
		w.datum("/a", ""):                       true,
		w.datum("/empty", ""):                   true,
		w.datum("/empty", "_SUCCESS"):           false,
		w.datum("/file", ""):                    true,
		w.datum("/file", "_SUCCESS"):            false, // below a file there is nothing
		w.datum("/file/deeper", "_SUCCESS"):     false,
		w.datum("/none", "_SUCCESS"):            false,
		w.datum("/none/of/these", ""):           false,
		w.datum("/übung/1 %41 a=b", "_SUCCESS"): true, // a path is no URL: nothing in it is decoded
		w.datum("/übung/1 A a=b", "_SUCCESS"):   false,
		w.datum("/A", "_SUCCESS"):               false, // nor do capitals count as equal
		w.datum("", ""):                         true,
	}
}

func flags(t *testing.T, w World) {
	want := w.scene()
	w.expect(t, want, w.datum("/a", ""), w.datum("/a", "")) // and the same path twice
}

func many(t *testing.T, w World) {
	want := w.scene()
	for i := range 200 {
		want[w.datum(fmt.Sprintf("/day%d", i), "_SUCCESS")] = false
		want[w.datum(fmt.Sprintf("/none/day%d", i), "")] = false
		want[w.datum(fmt.Sprintf("/file/day%d", i), "")] = false
	}
	for i := range 20 {
		w.Write(fmt.Sprintf("/day%d/part", i*10), "x") // begun, not done
		w.Write(fmt.Sprintf("/day%d/_SUCCESS", i*10+1), "")
		want[w.datum(fmt.Sprintf("/day%d", i*10+1), "_SUCCESS")] = true
	}
	w.expect(t, want)
}

func crowded(t *testing.T, w World) {
	want := map[capri.PathCondition]bool{}
	for i := range 2300 {
		w.Write(fmt.Sprintf("/f%04d", i), "")
	}
	for i := range 20 {
		want[w.datum(fmt.Sprintf("/f%04d", 2290+i), "")] = i < 10
	}
	w.expect(t, want)
	for i := range 2400 { // now enough of them that the listing is read to its end
		want[w.datum(fmt.Sprintf("/f%04d", i), "")] = i < 2300
	}
	w.expect(t, want)
}

func removed(t *testing.T, w World) {
	w.Write("/a/_SUCCESS", "")
	w.expect(t, map[capri.PathCondition]bool{w.datum("/a", "_SUCCESS"): true})
	w.Remove("/a")
	w.expect(t, map[capri.PathCondition]bool{w.datum("/a", "_SUCCESS"): false, w.datum("/a", ""): false})
	w.Write("/a/_SUCCESS", "")
	w.expect(t, map[capri.PathCondition]bool{w.datum("/a", "_SUCCESS"): true})
}

func unseen(t *testing.T, w World) {
	w.Write("/a/_SUCCESS", "")
	paths := []capri.PathCondition{w.datum("/a", "_SUCCESS"), {Path: w.Foreign}, w.datum("/a", "b/c"), w.datum("/a", ".."), w.datum("/x\x00y", "")}
	there, err := w.Files.There(t.Context(), paths)
	var some *files.UnseenError
	if !errors.As(err, &some) || len(some.Paths) != 4 {
		t.Fatalf("it says %v, want four paths unseen", err)
	}
	for i, p := range paths {
		if there[i] != (i == 0) || (some.Paths[p] != nil) != (i > 0) {
			t.Errorf("%q is there: %v, unseen: %v", files.Name(p), there[i], some.Paths[p])
		}
	}
	if _, err := w.Files.Stat(t.Context(), paths[1]); !errors.Is(err, capri.ErrInvalid) {
		t.Errorf("a look at a foreign path says %v", err)
	}
}

func stamps(t *testing.T, w World) {
	at := w.datum("/out", "_SUCCESS")
	stat := func() files.Stamp {
		s, err := w.Files.Stat(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := stat(); s != (files.Stamp{}) {
		t.Errorf("what is not there looks like %+v", s)
	}
	w.Write("/out/_SUCCESS", "1")
	first := stat()
	if !first.There || first.Size != 1 || first != stat() {
		t.Errorf("it looks like %+v, and then like %+v", first, stat())
	}
	w.Write("/out/_SUCCESS", "2") // the same size, perhaps within the same tick of the clock
	if second := stat(); second == first {
		t.Errorf("a rewritten flag looks like the old one: %+v", second)
	}
}

func (w World) fetch(ctx context.Context, t *testing.T, path string) (*os.Root, error) {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, w.Files.Fetch(ctx, w.Dir+path, root, nil)
}

func fetched(t *testing.T, w World) {
	large := strings.Repeat("0123456789abcde\n", 200_000) // more than a buffer and a packet
	for name, text := range map[string]string{"empty.sh": "", "small.sh": "echo hi", "large.bin": large} {
		w.Write("/bin/"+name, text)
		for range 2 { // the second may come out of a cache
			root, err := w.fetch(t.Context(), t, "/bin/"+name)
			if err != nil {
				t.Fatalf("fetch %s: %v", name, err)
			}
			got, err := root.ReadFile(name)
			if err != nil || string(got) != text {
				t.Errorf("of %s came %d bytes, want %d (%v)", name, len(got), len(text), err)
			}
			if info, err := root.Stat(name); err != nil || info.Mode() != 0o700 {
				t.Errorf("%s has mode %v, want it for its owner alone, executable (%v)", name, info.Mode(), err)
			}
		}
		w.Write("/bin/"+name, strings.ToUpper(text)+"!")
		root, err := w.fetch(t.Context(), t, "/bin/"+name)
		if err != nil {
			t.Fatalf("fetch %s again: %v", name, err)
		}
		if got, _ := root.ReadFile(name); string(got) != strings.ToUpper(text)+"!" {
			t.Errorf("of the new %s came the old one, or %d bytes", name, len(got))
		}
		if err := w.Files.Fetch(t.Context(), w.Dir+"/bin/"+name, root, nil); err == nil {
			t.Errorf("a second %s replaced the first", name)
		}
	}
}

func notFetched(t *testing.T, w World) {
	w.Mkdir("/dir")
	for path, want := range map[string]string{"/dir": "not a regular file", "/none": "file", "/dir/none": "file", "/": "the path of a file"} {
		root, err := w.fetch(t.Context(), t, path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", path, err, want)
		}
		if path == "/none" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what is not there says %v, and is of another kind", err)
		}
		if err := root.Mkdir(filepath.Base("after"), 0o700); err != nil {
			t.Errorf("the directory is not usable after a failure: %v", err)
		}
	}
	root, _ := w.fetch(t.Context(), t, "/none")
	if err := w.Files.Fetch(t.Context(), w.Foreign, root, nil); !errors.Is(err, capri.ErrInvalid) {
		t.Errorf("a foreign file says %v", err)
	}
}

func ended(t *testing.T, w World) {
	w.Write("/a/_SUCCESS", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	at := w.datum("/a", "_SUCCESS")
	if _, err := w.Files.There(ctx, []capri.PathCondition{at}); err == nil {
		t.Error("There answers after its context's end")
	}
	if _, err := w.fetch(ctx, t, "/a/_SUCCESS"); !errors.Is(err, context.Canceled) {
		t.Errorf("Fetch says %v after its context's end", err)
	}
	w.expect(t, map[capri.PathCondition]bool{at: true}) // and nothing is broken by it
}
