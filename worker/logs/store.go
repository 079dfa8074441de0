package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"capri"
)

// A log store is a directory that outlives the node, mounted on workers and masters alike (NFS, CephFS, HDFS through its
// NFS gateway): in it each node has a directory of logs like its own. What is there of a log is always its beginning.

// OpenStore opens a node's directory in the log store at path, and makes it if it is missing.
func OpenStore(path, node string) (*Dir, error) {
	if node == "" || node == "." || node == ".." || filepath.Base(node) != node {
		return nil, capri.Invalid("node", node, "a name that can be that of a directory")
	}
	return Open(filepath.Join(path, node))
}

// Has tells how much of a log is here, and whether it is done.
func (d *Dir) Has(name string) (size int64, complete bool, err error) {
	if err := check(name); err != nil {
		return 0, false, err
	}
	for _, ending := range []string{done, running} {
		info, err := d.root.Lstat(name + ending)
		if err == nil {
			return info.Size(), ending == done, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return 0, false, fmt.Errorf("look at log %s: %w", name, err)
		}
	}
	return 0, false, nil
}

// Ship copies to what d has of a log and to has not, beginning where that ends, as a reader would see it: keys are
// covered, and what was dropped from the middle is a hole there, too. It says whether the log is done and all of it is
// there; then it is marked as done. The second log may be limited as the first is (see Trim).
func (d *Dir) Ship(to *Dir, name string, limit int64) (complete bool, err error) {
	offset, complete, err := to.Has(name)
	if err != nil || complete {
		return complete, err
	}
	var f *os.File
	defer func() {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for {
		c, err := d.ReadAt(name, offset, MaxLimit)
		if err != nil {
			return false, err
		}
		if whole := c.Next == offset+int64(len(c.Data)); whole && len(c.Data) > 0 { // else it is the line about a hole
			if f == nil {
				if f, err = to.root.OpenFile(name+running, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600); err != nil {
					return false, fmt.Errorf("write log %s: %w", name, err)
				}
			}
			if _, err := f.WriteAt(c.Data, offset); err != nil {
				return false, fmt.Errorf("write log %s: %w", name, err)
			}
		}
		if c.Complete {
			return to.complete(name, c.Next, limit)
		}
		if c.Next == offset {
			_, err := to.Trim(name, limit)
			return false, err
		}
		offset = c.Next
	}
}

// complete marks a shipped log as done. One that is empty, or ends in a hole, is made as long as it was.
func (d *Dir) complete(name string, size, limit int64) (bool, error) {
	f, err := d.root.OpenFile(name+running, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		return false, fmt.Errorf("write log %s: %w", name, err)
	}
	if _, err := d.Trim(name, limit); err != nil {
		return false, err
	}
	return true, d.Finish(name)
}

// Unfinished lists the logs that are not marked as done.
func (d *Dir) Unfinished() ([]string, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := cutSuffix(e.Name()); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

func cutSuffix(file string) (name string, ok bool) {
	if filepath.Ext(file) != running {
		return "", false
	}
	name = file[:len(file)-len(running)]
	return name, check(name) == nil
}
