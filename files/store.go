package files

import (
	"context"
	"path"
	"strings"
	"time"

	"capri"
)

// Store keeps files that only grow, in directories below its own. Names are slash-separated and relative. It is safe for
// concurrent use, as long as each file has one writer.
type Store interface {
	// Append adds data to the file of so many bytes; with size 0 it makes it, in place of one that may be there, with the
	// directories above it. A file that has another size is left alone, which is an error. After an error part of data may
	// be there.
	Append(ctx context.Context, name string, size int64, data []byte) error

	// ReadAt reads into b what the file has from offset on; less than fits is all that it has. An absent file is
	// fs.ErrNotExist.
	ReadAt(ctx context.Context, name string, offset int64, b []byte) (int, error)

	// List tells what is in a directory, by name; of one that does not exist, nothing.
	List(ctx context.Context, dir string) ([]Stored, error)

	// Remove removes a file, or a directory with all that is in it. What is not there is no error.
	Remove(ctx context.Context, name string) error

	// String is where it is, as people know it.
	String() string
}

// Stored is a file of a store, or a directory.
type Stored struct {
	Name    string // its last part
	Dir     bool
	Size    int64
	Changed time.Time // of a directory: when something was made or removed in it
}

// CheckStored refuses names that could lead out of a store.
func CheckStored(name string) error {
	if name == "" || name == "." || path.IsAbs(name) || path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../") || strings.ContainsRune(name, 0) {
		return capri.Invalid("name", name, "a relative path without . and ..")
	}
	return nil
}
