// Package logs names the log files of attempts and reads them by offset.
//
//	<task>_<batch id>_<attempt>.out.tmp   while the attempt runs: the shim creates it, the job writes to it
//	<task>_<batch id>_<attempt>.out.log   when it is done: nothing is added any more
//
// and the same with .err. It promises that a reader needs as much memory as it asks for, however big the file
// and however long its lines, that an offset stays good across the renaming, that nothing outside the
// directory is read or written, whatever a name says, and that keys of Capri in a log are not shown. It leaves to others who
// may read a log and when Clean is due. Kept is the copy that outlives the node.
package logs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"capri"
)

// Stream is one of a job's two outputs.
type Stream string

const (
	Out Stream = "out"
	Err Stream = "err"
)

const (
	running = ".tmp"
	done    = ".log"
)

// DefaultLimit and MaxLimit are the bytes that one ReadAt gives.
const (
	DefaultLimit = 64 << 10
	MaxLimit     = 1 << 20
)

// A task's name has to 128 letters, digits, "_", ".", "-". With the rest of the file's name that stays below
// the 255 bytes that file systems allow.
var nameRE = regexp.MustCompile(`^(.+)_[0-9]{1,19}_[0-9]{1,10}\.(?:out|err)$`)

// Name names a log, without the ending that tells whether it is done.
func Name(task string, a capri.Attempt, s Stream) (string, error) {
	name := fmt.Sprintf("%s_%d_%d.%s", task, a.Batch, a.Number, s)
	return name, check(name)
}

func check(name string) error {
	if m := nameRE.FindStringSubmatch(name); m == nil || !capri.IsWord(m[1], "_.-") {
		return capri.Invalid("log", name, "<task>_<batch id>_<attempt>.out or .err, the task to 128 letters, digits, _ . -")
	}
	return nil
}

// Dir is a directory of logs.
type Dir struct {
	path string
	root *os.Root
}

// Open opens the directory and makes it if it is missing. Only the worker's user can enter it: jobs write
// through descriptors that they inherit.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make the log directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the log directory: %w", err)
	}
	return &Dir{path, root}, nil
}

// Close releases the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Path is where the shim shall create a log that Name named. The file must not exist: an attempt runs once.
func (d *Dir) Path(name string) (string, error) {
	return filepath.Join(d.path, name+running), check(name)
}

// Finish marks logs as done. It may be repeated: a log that is done stays so, and one that was never created,
// because its job could not be started, is no error.
func (d *Dir) Finish(names ...string) error {
	var errs []error
	for _, name := range names {
		err := check(name)
		if err == nil {
			err = d.root.Rename(name+running, name+done)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("finish log %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Clean removes the logs of attempts that are over, to which nothing has happened since before; held tells which are
// not over. It gives the number of files that are gone.
func (d *Dir) Clean(before time.Time, held func(capri.Attempt) bool) (removed int, err error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		err = fmt.Errorf("clean up logs: %w", err)
	}
	for _, e := range entries {
		a, ok := attemptOf(e.Name())
		if !ok || held(a) {
			continue
		}
		info, e2 := e.Info()
		if e2 != nil || lastChange(info).After(before) {
			continue
		}
		if e2 = d.root.Remove(e.Name()); e2 != nil {
			err = errors.Join(err, fmt.Errorf("clean up log %s: %w", e.Name(), e2))
			continue
		}
		removed++
	}
	return removed, err
}

// attemptOf reads the attempt from a file's name; what is named otherwise is not ours.
func attemptOf(file string) (a capri.Attempt, ok bool) {
	name := strings.TrimSuffix(strings.TrimSuffix(file, done), running)
	if name == file || check(name) != nil {
		return a, false
	}
	parts := strings.Split(strings.TrimSuffix(name, filepath.Ext(name)), "_")
	n := len(parts)
	batch, err1 := strconv.ParseInt(parts[n-2], 10, 64)
	number, err2 := strconv.Atoi(parts[n-1])
	return capri.Attempt{Batch: capri.BatchID(batch), Number: number}, err1 == nil && err2 == nil
}

// lastChange is when a file was written to or renamed: the log of a job that was silent for its last days is as old as
// its end, which is when it was marked as done.
func lastChange(info fs.FileInfo) time.Time {
	at := info.ModTime()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		if renamed := time.Unix(st.Ctim.Unix()); renamed.After(at) {
			at = renamed
		}
	}
	return at
}

// Chunk is a part of a log.
type Chunk struct {
	Data     []byte
	Next     int64 // the offset to go on with
	Size     int64 // of the log, now
	Complete bool  // the log is done and Next is its end: nothing will follow
}

// ReadAt reads to limit bytes (0: DefaultLimit; at most MaxLimit) from offset; a negative offset counts from
// the end. An offset behind the end gives no data. Where the middle was dropped it gives a line that says so, and the
// offset behind it.
func (d *Dir) ReadAt(name string, offset int64, limit int) (Chunk, error) {
	if err := check(name); err != nil {
		return Chunk{}, err
	}
	// In this order: when the first is gone, the second is there.
	finished := false
	f, size, err := d.open(name + running)
	if errors.Is(err, fs.ErrNotExist) {
		finished = true
		f, size, err = d.open(name + done)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Chunk{}, capri.NotFound("there is no log %s here: its attempt has not begun, or the log was cleaned up", name)
	}
	if err != nil {
		return Chunk{}, fmt.Errorf("read log %s: %w", name, err)
	}
	defer f.Close()

	if offset < 0 {
		offset = max(0, size+offset)
	}
	if limit <= 0 {
		limit = DefaultLimit
	}
	// Size is what the file had when it was opened: what is written meanwhile is for the next call.
	want := min(int64(limit), MaxLimit, max(0, size-offset))
	from, end := gap(f, offset, offset+want)
	if from == offset && end > from {
		c := Chunk{Data: missing(end - from), Next: end, Size: size}
		c.Complete = finished && c.Next >= size
		return c, nil
	}
	want = min(want, from-offset)
	c := Chunk{Size: size}
	before := min(offset, mostSecret)
	text := make([]byte, before+want+mostSecret)
	n, err := f.ReadAt(text, offset-before)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the job truncated its own output
		return Chunk{}, fmt.Errorf("read log %s: %w", name, err)
	}
	mask(text[:n])
	read := max(0, min(want, int64(n)-before))
	c.Data = text[before : before+read : before+read]
	c.Next = offset + read
	c.Complete = finished && c.Next >= size
	return c, nil
}

// Size is how long a log is now.
func (d *Dir) Size(name string) (int64, error) {
	if err := check(name); err != nil {
		return 0, err
	}
	info, err := d.root.Lstat(name + running)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = d.root.Lstat(name + done)
	}
	if err != nil {
		return 0, fmt.Errorf("look at log %s: %w", name, err)
	}
	return info.Size(), nil
}

// open opens a regular file below the directory. os.Root keeps names inside; that what was opened is what was
// looked at keeps symbolic links and pipes out, which would be followed or waited for.
func (d *Dir) open(name string) (*os.File, int64, error) {
	seen, err := d.root.Lstat(name)
	if err != nil {
		return nil, 0, err
	}
	if !seen.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !os.SameFile(seen, st) {
		err = fmt.Errorf("%s was replaced while it was opened", name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}
