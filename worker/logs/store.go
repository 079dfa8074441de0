package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"capri"
	"capri/files"
)

// Kept is a node's part of the log store, which outlives the node. What is there of a log is always its beginning:
//
//	<node>/<task>_<batch id>_<attempt>/out.0000000000000        what the log has from that offset on
//	<node>/<task>_<batch id>_<attempt>/out.0000008388608        the next piece
//	<node>/<task>_<batch id>_<attempt>/out.0000009000000.end    the log is done and has so many bytes; nothing will follow
//
// and the same with err. Where no piece is the middle was dropped. A writer that is started again, or did not hear whether
// its last bytes arrived, begins a new piece where it is sure to be; of two pieces that overlap the later one counts.
type Kept struct {
	store files.Store
	node  string
	limit int64 // bytes of one log; 0: as many as it likes

	mu   sync.Mutex
	logs map[string]*kept // those that are being shipped
}

// piece is one file of a kept log.
type piece struct{ start, size int64 }

func (p piece) end() int64 { return p.start + p.size }

// kept is what is there of a log.
type kept struct {
	pieces []piece // in order; none is empty, except the last
	size   int64   // of the log, as far as it is here
	done   bool
	ours   bool // the last piece can be added to
}

// NewKept gives a node's part of a store. Nothing is looked at before it is needed.
func NewKept(store files.Store, node string, limit int64) (*Kept, error) {
	if err := files.CheckStored(node); err != nil || strings.Contains(node, "/") {
		return nil, capri.Invalid("node", node, "a name that can be that of a directory")
	}
	return &Kept{store: store, node: node, limit: limit, logs: map[string]*kept{}}, nil
}

const ended = ".end"

// in is the directory of a log, and what its files there begin with.
func (k *Kept) in(name string) (dir, stream string) {
	dot := len(name) - len(".out")
	return k.node + "/" + name[:dot], name[dot+1:] + "."
}

func (k *Kept) file(name string, offset int64) string {
	dir, stream := k.in(name)
	return fmt.Sprintf("%s/%s%013d", dir, stream, offset)
}

// look reads what is there of a log.
func (k *Kept) look(ctx context.Context, name string) (*kept, error) {
	if err := check(name); err != nil {
		return nil, err
	}
	dir, stream := k.in(name)
	found, err := k.store.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	l := &kept{}
	for _, f := range found {
		rest, ours := strings.CutPrefix(f.Name, stream)
		number, end := strings.CutSuffix(rest, ended)
		offset, err := strconv.ParseInt(number, 10, 64)
		switch {
		case !ours || f.Dir || err != nil || offset < 0:
		case end:
			l.done, l.size = true, offset
		default:
			l.pieces = append(l.pieces, piece{offset, f.Size})
		}
	}
	slices.SortFunc(l.pieces, func(a, b piece) int { return int(a.start - b.start) })
	for i := range l.pieces[:max(0, len(l.pieces)-1)] {
		l.pieces[i].size = min(l.pieces[i].size, l.pieces[i+1].start-l.pieces[i].start)
	}
	if n := len(l.pieces); n > 0 && !l.done {
		l.size = l.pieces[n-1].end()
	}
	return l, nil
}

// Ship copies to the store what from has of a log and it has not, as a reader would see it: keys are covered, and what
// was dropped from the middle is missing there, too. It says whether the log is done and all of it is there. Different
// logs may be shipped at once.
func (k *Kept) Ship(ctx context.Context, from *Dir, name string) (complete bool, err error) {
	k.mu.Lock()
	l := k.logs[name]
	k.mu.Unlock()
	if l == nil {
		if l, err = k.look(ctx, name); err != nil || l.done {
			return err == nil, err
		}
	}
	complete, err = k.follow(ctx, from, name, l)
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.logs, name); err == nil && !complete { // after an error what is there is looked at again
		k.logs[name] = l
	}
	return complete, err
}

func (k *Kept) follow(ctx context.Context, from *Dir, name string, l *kept) (complete bool, err error) {
	for {
		c, err := from.ReadAt(name, l.size, MaxLimit)
		if err != nil {
			return false, err
		}
		data := c.Data
		switch {
		case c.Next != l.size+int64(len(data)): // it is the line about what was dropped
			l.size, l.ours = c.Next, false
		case !c.Complete && c.Next == c.Size:
			data = data[:len(data)-beginning(data)]
			fallthrough
		default:
			if len(data) == 0 && !c.Complete {
				return false, nil
			}
			if err := k.add(ctx, name, l, data); err != nil {
				return false, err
			}
		}
		if c.Complete {
			return true, k.store.Append(ctx, k.file(name, l.size)+ended, 0, nil)
		}
	}
}

// beginning is how many bytes at the end of what a running job has written are not shipped yet, because a key may
// have been written only to its half.
func beginning(data []byte) int {
	tail := data[max(0, len(data)-mostSecret):]
	if at := bytes.LastIndex(tail, secretMark); at >= 0 && secretRun.Match(tail[at:]) {
		return len(tail) - at
	}
	for n := min(len(secretMark)-1, len(tail)); n > 0; n-- {
		if bytes.HasSuffix(tail, secretMark[:n]) {
			return n
		}
	}
	return 0
}

// Pieces of a limited log are an eighth of what it may have, so that some can be removed from its middle.
func (k *Kept) pieceSize() int64 {
	if k.limit <= 0 {
		return 1 << 40
	}
	return max(k.limit/8, 1)
}

func (k *Kept) add(ctx context.Context, name string, l *kept, data []byte) error {
	for len(data) > 0 {
		last := len(l.pieces) - 1
		if !l.ours || l.pieces[last].size >= k.pieceSize() {
			if last >= 0 && l.pieces[last].start == l.size { // an empty one, which is replaced
				last--
			}
			l.pieces = append(l.pieces[:last+1], piece{start: l.size})
			last++
			l.ours = true
		}
		p := &l.pieces[last]
		part := data[:min(int64(len(data)), k.pieceSize()-p.size)]
		if err := k.store.Append(ctx, k.file(name, p.start), p.size, part); err != nil {
			return err
		}
		p.size += int64(len(part))
		l.size += int64(len(part))
		data = data[len(part):]
		if err := k.trim(ctx, name, l); err != nil {
			return err
		}
	}
	return nil
}

// trim removes pieces from the middle, as Dir.Trim does: the first half of the limit stays, and the last.
func (k *Kept) trim(ctx context.Context, name string, l *kept) error {
	var total int64
	for _, p := range l.pieces {
		total += p.size
	}
	for i := 1; i < len(l.pieces)-1 && k.limit > 0 && total > k.limit; {
		p := l.pieces[i]
		if p.start < k.limit/2 {
			i++
			continue
		}
		if err := k.store.Remove(ctx, k.file(name, p.start)); err != nil {
			return err
		}
		l.pieces = slices.Delete(l.pieces, i, i+1)
		total -= p.size
	}
	return nil
}

// ReadAt reads a log as Dir.ReadAt does.
func (k *Kept) ReadAt(ctx context.Context, name string, offset int64, limit int) (Chunk, error) {
	l, err := k.look(ctx, name)
	if err != nil {
		return Chunk{}, err
	}
	if len(l.pieces) == 0 && !l.done {
		return Chunk{}, capri.NotFound("the log store has no log %s of node %s", name, k.node)
	}
	if offset < 0 {
		offset = max(0, l.size+offset)
	}
	if limit <= 0 {
		limit = DefaultLimit
	}
	c := Chunk{Size: l.size, Next: offset}
	at := slices.IndexFunc(l.pieces, func(p piece) bool { return p.end() > offset })
	switch {
	case offset >= l.size:
		c.Next = max(offset, l.size)
	case at < 0: // dropped to its end
		c.Data, c.Next = missing(l.size-offset), l.size
	case l.pieces[at].start > offset:
		c.Data, c.Next = missing(l.pieces[at].start-offset), l.pieces[at].start
	default:
		p := l.pieces[at]
		b := make([]byte, min(int64(limit), MaxLimit, p.end()-offset))
		n, err := k.store.ReadAt(ctx, k.file(name, p.start), offset-p.start, b)
		if err != nil {
			return Chunk{}, err
		}
		c.Data, c.Next = b[:n], offset+int64(n)
	}
	c.Complete = l.done && c.Next >= l.size
	return c, nil
}

// Clean removes the logs of attempts that are over, to which nothing has happened since before; held tells which are
// not over. It gives the number of attempts whose logs are gone.
func (k *Kept) Clean(ctx context.Context, before time.Time, held func(capri.Attempt) bool) (removed int, err error) {
	found, err := k.store.List(ctx, k.node)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, f := range found {
		a, ours := attemptOf(f.Name + "." + string(Out) + done)
		if !ours || !f.Dir || held(a) || f.Changed.After(before) {
			continue
		}
		if err := k.store.Remove(ctx, k.node+"/"+f.Name); err != nil {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}

// DoneSince lists the logs that were marked as done since then.
func (d *Dir) DoneSince(then time.Time) ([]string, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), done)
		if !is || check(name) != nil {
			continue
		}
		if info, err := e.Info(); err == nil && !lastChange(info).Before(then) {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}
