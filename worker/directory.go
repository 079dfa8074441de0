package worker

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"capri"
)

// Directory is a node's data directory, held by this process: a node is its directory.
type Directory struct {
	path string
	id   string
	lock *os.File
}

// The names in a data directory.
const (
	idFile      = "node.id"
	nameFile    = "node.name" // under which it registered last
	cleanedFile = "cleaned"   // when it was cleaned up last
	shippedFile = "shipped"   // when all logs that were done were in the log store
	lockFile    = "lock"
	shimDir     = "shim"
	logDir      = "logs"
	jobDir      = "jobs"
	preparedDir = "prepared"
)

// OpenDirectory takes a data directory, and makes what is missing in it. It is refused while another process has it.
func OpenDirectory(path string) (*Directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if strings.Contains(path, ":") {
		return nil, capri.Invalid("data", path, "a directory without : in its name, because jobs have theirs in PATH")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	d := &Directory{path: path}
	if err := d.take(); err != nil {
		return nil, err
	}
	if err := d.furnish(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Path is where it is, and ID whose it is.
func (d *Directory) Path() string { return d.path }
func (d *Directory) ID() string   { return d.id }

// Close lets another process have it.
func (d *Directory) Close() error { return d.lock.Close() }

func (d *Directory) in(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// take locks the directory. The kernel frees the lock when the process ends, however it ends.
func (d *Directory) take() error {
	f, err := os.OpenFile(d.in(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return d.unusable(err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		var pid [20]byte
		n, _ := f.ReadAt(pid[:], 0)
		f.Close()
		return capri.Conflict("the data directory %s is in use by process %s: stop that one first, or give this one another directory (--data)",
			d.path, strings.TrimSpace(string(pid[:n])))
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	if err != nil {
		f.Close()
		return d.unusable(err)
	}
	d.lock = f
	return nil
}

// unusable makes a sentence that says what to do.
func (d *Directory) unusable(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("the disk of the data directory %s is full: %w", d.path, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("the data directory %s cannot be written to by user %d: %w", d.path, os.Geteuid(), err)
	}
	return fmt.Errorf("data directory %s: %w", d.path, err)
}

// furnish makes the sub-directories and the node's identity.
func (d *Directory) furnish() error {
	// Jobs of other accounts pass through the upper two and reach their own directory by its exact name alone.
	passable := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		passable = 0o711
		info, err := os.Stat(d.path)
		if err == nil && info.Mode().Perm()&0o011 != 0o011 {
			err = os.Chmod(d.path, info.Mode().Perm()|0o011)
		}
		if err != nil {
			return d.unusable(err)
		}
	}
	for name, mode := range map[string]fs.FileMode{shimDir: 0o700, logDir: 0o700, jobDir: passable, preparedDir: 0o700} {
		err := os.MkdirAll(d.in(name), mode)
		if err == nil {
			err = os.Chmod(d.in(name), mode) // whatever the umask said
		}
		if err != nil {
			return d.unusable(err)
		}
	}
	id, err := os.ReadFile(d.in(idFile))
	if errors.Is(err, fs.ErrNotExist) {
		id, err = d.create()
	}
	if err != nil {
		return d.unusable(err)
	}
	if d.id = strings.TrimSpace(string(id)); len(d.id) != 32 {
		return capri.Invalid("node.id", d.id, "the 32 digits that a worker wrote; if the file "+d.in(idFile)+" was damaged, remove it")
	}
	return nil
}

// create writes the identity under another name first: a crash leaves a whole node.id or none. It also proves that
// the directory can be written to.
func (d *Directory) create() ([]byte, error) {
	id := []byte(random())
	fresh := d.in(idFile + ".new")
	if err := os.WriteFile(fresh, append(id, '\n'), 0o600); err != nil {
		return nil, err
	}
	return id, os.Rename(fresh, d.in(idFile))
}

func random() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// lastName is the name under which the directory registered last; "" if it never did.
func (d *Directory) lastName() (string, error) {
	name, err := os.ReadFile(d.in(nameFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(name)), err
}

func (d *Directory) setName(name string) error {
	if err := os.WriteFile(d.in(nameFile+".new"), []byte(name+"\n"), 0o600); err != nil {
		return d.unusable(err)
	}
	return os.Rename(d.in(nameFile+".new"), d.in(nameFile))
}

// passableFor tells which directory on the way keeps other accounts out of their jobs' directories; "" if none does.
func (d *Directory) passableFor() string {
	for dir := d.in(jobDir); dir != "/"; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
			return dir
		}
	}
	return ""
}
