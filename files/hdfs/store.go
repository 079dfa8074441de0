package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	lib "github.com/colinmarc/hdfs/v2"

	"capri"
	"capri/files"
)

// Store is a directory of HDFS. It is the one place that writes there: small pieces, one after the other, each
// of them complete, so that a writer that dies leaves at most one file open, which its successor need not touch.
type Store struct {
	h   *HDFS
	url string
	n   *nameService
	dir string
}

// Store gives the directory at an hdfs:// URL as a store.
func (h *HDFS) Store(url string) (*Store, error) {
	n, dir, err := h.find(url)
	if err == nil && dir == "/" {
		err = capri.Invalid("path", url, "a directory below the root of the HDFS")
	}
	return &Store{h, strings.TrimRight(url, "/"), n, dir}, err
}

func (s *Store) String() string { return s.url }

// call does something with a file of the store. It has its own share of connections: neither looks nor fetches wait for it.
func (s *Store) call(ctx context.Context, what, name string, limit time.Duration, f func(c *client, at string) error) error {
	if err := files.CheckStored(name); err != nil {
		return err
	}
	err := s.n.callIn(ctx, s.n.keeps, limit, s.h.o.User, func(c *client) error { return f(c, path.Join(s.dir, name)) })
	if err != nil {
		return named(what+" "+s.url+"/"+name, err)
	}
	return nil
}

// Append makes files that only their owner can read. It writes at most once, even where the name-node fails over in
// the midst of it: whether the first try arrived is seen by the file's size, next time.
func (s *Store) Append(ctx context.Context, name string, size int64, data []byte) error {
	begun := false
	return s.call(ctx, "write", name, 0, func(c *client, at string) error {
		info, err := c.stat(at)
		if err != nil {
			return err
		}
		if begun {
			return &dataError{errors.New("its name-node went away meanwhile")}
		}
		begun = true
		var w *lib.FileWriter
		switch {
		case size > 0 && info == nil:
			return fs.ErrNotExist
		case size > 0 && info.Size() != size:
			return &dataError{fmt.Errorf("it has %d bytes, not %d", info.Size(), size)}
		case size > 0:
			w, err = c.Append(at)
		default:
			w, err = c.create(at, info != nil)
		}
		if err != nil {
			return err
		}
		if len(data) > 0 { // a write of nothing would begin a block that never becomes complete
			_, err = w.Write(data)
		}
		if err != nil {
			_ = w.Close() // it ends the library's heartbeats, which would go on for ever
		} else {
			err = finish(w, s.h.o.Timeout)
		}
		if err != nil && !answered(err) {
			err = &dataError{err} // a data-node's, as a rule; there is no second try here
		}
		return err
	})
}

// create makes a file with the directories above it.
func (c *client) create(at string, anew bool) (*lib.FileWriter, error) {
	if anew {
		if err := c.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	d, err := c.ServerDefaults()
	if err != nil {
		return nil, err
	}
	w, err := c.CreateFile(at, d.Replication, int64(d.BlockSize), 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = c.MkdirAll(path.Dir(at), 0o700); err == nil {
			w, err = c.CreateFile(at, d.Replication, int64(d.BlockSize), 0o600)
		}
	}
	return w, err
}

// finish closes a written file. The name-node hears of a block from its data-nodes, and says "not yet" until then.
func finish(w *lib.FileWriter, patience time.Duration) error {
	pause := 2 * time.Millisecond
	for end := time.Now().Add(patience); ; pause *= 2 {
		err := w.Close()
		if !lib.IsErrReplicating(err) || time.Now().After(end) {
			return err
		}
		time.Sleep(min(pause, time.Second))
	}
}

// ReadAt reads what the name-node knows of the file.
func (s *Store) ReadAt(ctx context.Context, name string, offset int64, b []byte) (n int, err error) {
	err = s.call(ctx, "read", name, 0, func(c *client, at string) error {
		f, err := c.Open(at)
		if err != nil {
			return err
		}
		defer f.Close()
		if n = 0; offset >= f.Stat().Size() {
			return nil
		}
		if n, err = f.ReadAt(b, offset); err != nil && !errors.Is(err, io.EOF) {
			return readError(err)
		}
		return nil
	})
	return n, err
}

// List asks for names in pieces, as large directories need it.
func (s *Store) List(ctx context.Context, dir string) (found []files.Stored, err error) {
	err = s.call(ctx, "list", dir, 0, func(c *client, at string) error {
		found = found[:0]
		infos, err := c.ReadDir(at)
		for _, info := range infos {
			found = append(found, files.Stored{Name: info.Name(), Dir: info.IsDir(), Size: info.Size(), Changed: info.ModTime()})
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return found, err
}

// Remove removes it at once; HDFS's trash is not used.
func (s *Store) Remove(ctx context.Context, name string) error {
	err := s.call(ctx, "remove", name, s.h.o.Timeout, func(c *client, at string) error { return c.RemoveAll(at) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
