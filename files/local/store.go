package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"capri/files"
)

// Store is a directory that may be mounted on many machines. Nothing is opened before it is needed, and nothing stays
// open: mounts come and go. A call into one that hangs hangs.
type Store string

func (s Store) String() string { return string(s) }

// in opens the directory for one operation; what names lead out of it is refused by os.Root.
func (s Store) in(name string, do func(*os.Root) error) error {
	err := files.CheckStored(name)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(string(s))
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}

// Append makes files that only their owner can read.
func (s Store) Append(_ context.Context, name string, size int64, data []byte) error {
	if err := os.MkdirAll(string(s), 0o700); err != nil {
		return err
	}
	return s.in(name, func(root *os.Root) error {
		flags := os.O_WRONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
		if size == 0 {
			flags |= os.O_CREATE | os.O_TRUNC
			if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
				return err
			}
		}
		f, err := root.OpenFile(name, flags, 0o600)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		switch {
		case err != nil:
		case !info.Mode().IsRegular():
			err = fmt.Errorf("%s is not a regular file", name)
		case info.Size() != size:
			err = fmt.Errorf("%s has %d bytes, not %d", name, info.Size(), size)
		case len(data) > 0:
			_, err = f.WriteAt(data, size)
		}
		return errors.Join(err, f.Close())
	})
}

// ReadAt reads a regular file.
func (s Store) ReadAt(_ context.Context, name string, offset int64, b []byte) (n int, err error) {
	err = s.in(name, func(root *os.Root) error {
		f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return errors.Join(fmt.Errorf("%s is not a regular file", name), err)
		}
		if n, err = f.ReadAt(b, offset); errors.Is(err, io.EOF) {
			err = nil
		}
		return err
	})
	return n, err
}

// List gives what has a name that a store can have, and what is neither file nor directory not.
func (s Store) List(_ context.Context, dir string) (found []files.Stored, err error) {
	err = s.in(dir, func(root *os.Root) error {
		entries, err := fs.ReadDir(root.FS(), dir)
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !info.IsDir() && !info.Mode().IsRegular() { // removed meanwhile
				continue
			}
			found = append(found, files.Stored{Name: e.Name(), Dir: e.IsDir(), Size: info.Size(), Changed: info.ModTime()})
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return found, err
}

// Remove removes it at once.
func (s Store) Remove(_ context.Context, name string) error {
	err := s.in(name, func(root *os.Root) error { return root.RemoveAll(name) })
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}
