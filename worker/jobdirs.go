package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// jobDirs makes and removes the directories in which jobs run, and keeps a few that were left empty for the next jobs of
// the same account. On a busy node that is most of what a start costs: ext4 without a journal looks at every directory
// that was removed within the last five seconds before it makes another.
type jobDirs struct {
	directory *Directory
	most      int // spares that are kept

	mu     sync.Mutex
	spares map[int][]string // by the account's uid, which owns them
	kept   int
	number int // of the last spare: their names are used once
}

func newJobDirs(d *Directory, most int) *jobDirs {
	return &jobDirs{directory: d, most: most, spares: map[int][]string{}}
}

// make gives a new directory that is ours and closed, or, where a spare will do, one that is its account's already.
//
// A spare never changes hands. Its last owner may have left a list of those who may enter it, and may have processes
// that hold it open; towards the same account that gives nobody anything new.
func (d *jobDirs) make(name string, owner int, spareWillDo bool) (dir string, spare bool, err error) {
	dir = d.directory.in(jobDir, name)
	if spareWillDo {
		if from := d.take(owner); from != "" && os.Rename(from, dir) == nil {
			return dir, true, nil
		}
	}
	err = os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) { // of this attempt, before it was given back by a process that died
		if err = removeAll(dir); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	return dir, false, err
}

func (d *jobDirs) take(owner int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.spares[owner]
	if len(s) == 0 {
		return ""
	}
	d.kept--
	d.spares[owner] = s[:len(s)-1]
	return s[len(s)-1]
}

// drop removes a directory with all that is in it, or keeps it as a spare.
func (d *jobDirs) drop(name string, owner int) error {
	dir := d.directory.in(jobDir, name)
	if d.room() && asMade(dir, owner) {
		d.mu.Lock()
		d.number++
		spare := d.directory.in(jobDir, fmt.Sprintf("spare-%d", d.number))
		d.mu.Unlock()
		if os.Rename(dir, spare) == nil {
			d.mu.Lock()
			d.spares[owner] = append(d.spares[owner], spare)
			d.kept++
			d.mu.Unlock()
			return nil
		}
	}
	if os.Remove(dir) == nil { // empty: nearly always
		return nil
	}
	return removeAll(dir)
}

// room is asked before the look into the directory; that two at once may both get the last place harms nobody.
func (d *jobDirs) room() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept < d.most
}

// asMade: the directory is the owner's, closed to others, and there is nothing in it. Of attempts that an earlier process
// started the account is not known, and theirs are not kept.
func asMade(dir string, owner int) bool {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	var st syscall.Stat_t
	if syscall.Fstat(fd, &st) != nil || int(st.Uid) != owner || st.Mode&0o7777 != 0o700 {
		return false
	}
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}
