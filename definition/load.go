package definition

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"capri"
)

// Source is one task file's bytes with its name, for messages.
type Source struct {
	Name string
	Data []byte
}

// MaxSource is the largest file that is read: some 30,000 tasks, far more than anybody wants to review.
const MaxSource = 16 << 20

// Load reads files, folders (their *.yaml and *.yml at any depth, sorted) and "-" for stdin. What is named
// twice is read once. Everything that cannot be read is in the error.
func Load(paths []string) ([]Source, error) { return load(paths, os.Stdin) }

func load(paths []string, stdin io.Reader) ([]Source, error) {
	var sources []Source
	var wrong capri.FieldErrors
	fail := func(path, want string) {
		wrong = append(wrong, &capri.FieldError{Field: "file", Value: path, Want: want})
	}
	seen := map[string]bool{}
	add := func(path string, r io.Reader) {
		// One byte more than allowed tells a file that is too large from one that just fits.
		data, err := io.ReadAll(io.LimitReader(r, MaxSource+1))
		switch {
		case err != nil:
			fail(path, "a file that can be read: "+reason(err))
		case len(data) > MaxSource:
			fail(path, tooLarge)
		default:
			sources = append(sources, Source{Name: filepath.ToSlash(path), Data: data})
		}
	}
	open := func(path string) {
		if seen[filepath.Clean(path)] {
			return
		}
		seen[filepath.Clean(path)] = true
		f, err := os.Open(path)
		if err != nil {
			fail(path, "a file that can be read: "+reason(err))
			return
		}
		defer f.Close()
		add(path, f)
	}
	for _, path := range paths {
		if path == "-" {
			if !seen["-"] {
				seen["-"] = true
				add("stdin", stdin)
			}
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			fail(path, "a file or folder that exists: "+reason(err))
		case !info.IsDir():
			open(path) // whatever its name ends in: somebody asked for it
		default:
			files, err := inFolder(path)
			if err != nil {
				fail(path, "a folder that can be read: "+err.Error())
			} else if len(files) == 0 {
				// Silence here would look like success, and --prune would take it at its word.
				fail(path, "a folder with *.yaml or *.yml files in it")
			}
			for _, f := range files {
				open(f)
			}
		}
	}
	return sources, wrong.OrNil()
}

var tooLarge = fmt.Sprintf("at most %d MB; split the file", MaxSource>>20)

// inFolder lists the task files below a folder, sorted. Hidden files and folders (.git, editors' leftovers, the
// "..data" of a mounted Kubernetes ConfigMap, which would show each file twice) are passed over.
func inFolder(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := path != dir && strings.HasPrefix(e.Name(), ".")
		if e.IsDir() {
			if hidden {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(path); hidden || (ext != ".yaml" && ext != ".yml") {
			return nil
		}
		// Follow links to files; a pipe or a device that is called .yaml would block for ever.
		if info, err := os.Stat(path); err != nil {
			return err
		} else if info.Mode().IsRegular() {
			files = append(files, path)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// reason cuts the path off: the message names the file already.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// lineOf counts the lines up to an offset.
func lineOf(data []byte, offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }
