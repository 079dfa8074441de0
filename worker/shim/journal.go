package shim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// The journal is what the next worker knows of a life whose shim is gone: one file, appended to.
//
// Why not a file per attempt? An exit must be on disk before it is reported, and a file of its own costs a
// create, an fsync of the file, a rename, an fsync of the directory and a remove: five metadata operations
// and two waits for the disk per job, thousands a second when 100,000 batches appear at 00:01. In a journal
// all exits of the last moment share one fdatasync, and an acknowledgement is a line instead of a remove.
//
// A record is a line: CRC-32 of the JSON in hex, a blank, the JSON. A tail that was torn by a crash fails its
// checksum and is skipped, and so is any line in the middle that the disk lost: each good line is true by
// itself. Only exits are forced to disk: what the page cache holds survives the death of the shim, and after
// the death of the host there is no process left that take and start records could help to find.
type journal struct {
	dir string

	mu     sync.Mutex // taken before shim.mu, never after it
	f      *os.File
	size   int64
	broken bool // a write failed: the file may hold half a line or lack one, and must be rewritten
}

// record is one line; one of the fields is set.
type record struct {
	Life  *Life     `json:"life,omitempty"` // the first line
	Take  []string  `json:"take,omitempty"` // attempts that the worker handed over
	Start *Running  `json:"start,omitempty"`
	Exits []Exit    `json:"exits,omitempty"`
	Ack   []string  `json:"ack,omitempty"`  // the database has them: not a word of these attempts is needed
	Held  []Running `json:"held,omitempty"` // Take and Start in one, after a compaction
}

const journalName = "journal"

// compactAt is the size from which a journal is rewritten when most of it is about attempts long settled.
const compactAt = 64 << 10

func createJournal(dir string, life Life) (*journal, error) {
	j := &journal{dir: dir}
	if err := j.rewrite([]record{{Life: &life}}); err != nil {
		return nil, err
	}
	return j, nil
}

// append writes lines without waiting for the disk; the caller holds j.mu.
func (j *journal) append(recs ...record) error {
	var b []byte
	for _, r := range recs {
		b = appendRecord(b, r)
	}
	n, err := j.f.Write(b)
	j.size += int64(n)
	if err != nil {
		j.broken = true
		return fmt.Errorf("append to journal: %w", err)
	}
	return nil
}

// sync waits until all lines written so far are on disk. Only the flusher calls it and rewrite, so the file
// cannot change under it although it does not hold j.mu.
func (j *journal) sync() error {
	for {
		err := syscall.Fdatasync(int(j.f.Fd()))
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			// The kernel has dropped the pages and would call the next fdatasync a success.
			j.mu.Lock()
			j.broken = true
			j.mu.Unlock()
			return fmt.Errorf("sync journal: %w", err)
		}
		return nil
	}
}

// rewrite replaces the file by one that holds recs only; the caller holds j.mu. Dying anywhere in here
// leaves the old file or the new one, both true.
func (j *journal) rewrite(recs []record) error {
	path := filepath.Join(j.dir, journalName)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("rewrite journal: %w", err)
	}
	w := bufio.NewWriter(f)
	var size int64
	for _, r := range recs {
		n, _ := w.Write(appendRecord(nil, r)) // Flush repeats its error
		size += int64(n)
	}
	if err = w.Flush(); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil {
		err = syncDir(j.dir)
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("rewrite journal: %w", err)
	}
	if j.f != nil {
		j.f.Close()
	}
	j.f, j.size, j.broken = f, size, false
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func appendRecord(b []byte, r record) []byte {
	body, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers only
	}
	b = fmt.Appendf(b, "%08x ", crc32.ChecksumIEEE(body))
	return append(append(b, body...), '\n')
}

func parseRecord(line []byte) (r record, ok bool) {
	sum, body, found := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if !found || len(sum) != 8 || err != nil || crc32.ChecksumIEEE(body) != uint32(want) {
		return record{}, false
	}
	return r, json.Unmarshal(body, &r) == nil
}

// Remains is what a life left on disk.
type Remains struct {
	Life    Life
	Running []Running // taken, and no exit known
	Exits   []Exit    // not acknowledged, in order
	Skipped int       // lines that failed their checksum
}

// ReadJournal reads the journal in dir. It is for lives whose process is gone: a living one writes to it.
func ReadJournal(dir string) (*Remains, error) {
	f, err := os.Open(filepath.Join(dir, journalName))
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	defer f.Close()
	var (
		rem     = new(Remains)
		running = map[string]Running{}
		exits   = map[string]Exit{}
		order   []string // of taking, then of ending; an attempt may stand in it twice
	)
	hold := func(r Running) {
		if _, ended := exits[r.Attempt]; !ended {
			running[r.Attempt] = r
			order = append(order, r.Attempt)
		}
	}
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			r, ok := parseRecord(line)
			if !ok {
				rem.Skipped++
			}
			if r.Life != nil {
				rem.Life = *r.Life
			}
			for _, a := range r.Take {
				hold(Running{Attempt: a})
			}
			for _, h := range r.Held {
				hold(h)
			}
			if r.Start != nil {
				hold(*r.Start)
			}
			for _, e := range r.Exits {
				delete(running, e.Attempt)
				exits[e.Attempt] = e
				order = append(order, e.Attempt)
			}
			for _, a := range r.Ack {
				delete(running, a)
				delete(exits, a)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
	}
	for _, a := range order {
		if r, ok := running[a]; ok {
			rem.Running = append(rem.Running, r)
			delete(running, a)
		}
		if e, ok := exits[a]; ok {
			rem.Exits = append(rem.Exits, e)
			delete(exits, a)
		}
	}
	return rem, nil
}
