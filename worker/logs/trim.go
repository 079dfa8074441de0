package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A job writes to its log itself, through no pipe that could hold it up, so nobody stands there who could say "enough".
// Instead the middle of a log that grows too big is taken away under the job's hands: a hole is punched into the file,
// which frees the disk and moves nothing. Offsets stay good, the beginning and the end can be read, and where the middle
// was a reader finds a line that says how much is missing.

// block is what holes begin and end at; every file system's blocks divide it.
const block = 64 << 10

// Trim keeps a log to about limit bytes on disk (0: as many as it likes): its first half limit and its last.
// It says how many bytes that freed.
func (d *Dir) Trim(name string, limit int64) (freed int64, err error) {
	if limit <= 0 {
		return 0, nil
	}
	for _, ending := range []string{running, done} {
		info, err := d.root.Lstat(name + ending)
		if err != nil || !info.Mode().IsRegular() {
			continue // not there, or not ours to change
		}
		if onDisk(info) <= limit {
			return 0, nil
		}
		freed, err = d.trim(name+ending, limit)
		if !errors.Is(err, fs.ErrNotExist) {
			return freed, err
		}
	}
	return 0, nil
}

func (d *Dir) trim(file string, limit int64) (freed int64, err error) {
	f, err := d.root.OpenFile(file, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil || !before.Mode().IsRegular() {
		return 0, err
	}
	from, to := limit/2/block*block, (before.Size()-limit/2)/block*block
	if from >= to {
		return 0, nil
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from); err != nil {
		return 0, fmt.Errorf("drop the middle of log %s: %w", file, err)
	}
	after, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return max(0, onDisk(before)-onDisk(after)), nil
}

func onDisk(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}

// gap tells where the hole is that offset is in: [offset, end), or the next one behind it that begins before limit.
// A file without holes, nearly every one, costs nothing.
func gap(f *os.File, offset, limit int64) (from, end int64) {
	info, err := f.Stat()
	if err != nil || onDisk(info) >= info.Size() || offset >= info.Size() {
		return limit, limit
	}
	from, err = f.Seek(offset, unix.SEEK_HOLE)
	if err != nil || from >= min(limit, info.Size()) {
		return limit, limit
	}
	end, err = f.Seek(from, unix.SEEK_DATA)
	if err != nil { // to the end of the file
		end = info.Size()
	}
	return from, end
}

// missing is the line that a reader finds where the middle was dropped.
func missing(bytes int64) []byte {
	return fmt.Appendf(nil, "\n[capri: %d bytes are missing here; the log grew beyond worker.log_limit_mb]\n", bytes)
}
