package hdfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"sync"

	lib "github.com/colinmarc/hdfs/v2"

	"capri"
)

// place is a datum and where it lies.
type place struct {
	datum capri.PathCondition
	path  string
	seen  bool // the path is in its parent's listing
}

// file is what has to be there.
func (p place) file() string { return path.Join(p.path, p.datum.Flag) }

// From so many paths under one parent on the parent is listed first, which spares a question for each that is not there,
// nearly all of them while they are waited for. A listing is two questions and one more for each thousand names; one
// that turns out longer than listMost times the paths is broken off.
const (
	listFrom = 8
	listMost = 16
	pageSize = 1000 // what a name-node gives at once, unless dfs.ls.limit says otherwise
)

// round is one call of There.
type round struct {
	wg sync.WaitGroup

	mu     sync.Mutex
	there  map[capri.PathCondition]bool
	unseen map[capri.PathCondition]error
}

func newRound(n int) *round {
	return &round{there: make(map[capri.PathCondition]bool, n), unseen: map[capri.PathCondition]error{}}
}

// ask answers for all paths of one name service, in the time that a round may take.
func (r *round) ask(ctx context.Context, n *nameService, places []place) {
	parents := map[string][]place{}
	for _, p := range places {
		parents[path.Dir(p.path)] = append(parents[path.Dir(p.path)], p)
	}
	end, cancel := context.WithTimeout(ctx, n.o.Round)
	defer cancel()
	var single []place
	var listed [][]place
	for _, some := range parents { // in no order, so that a round that ends early leaves out others each time
		if len(some) >= listFrom {
			listed = append(listed, some)
		} else {
			single = append(single, some...)
		}
	}
	var mu sync.Mutex
	each(n.o.Connections, listed, func(some []place) {
		some, err := n.present(end, path.Dir(some[0].path), some)
		if err != nil {
			r.blame(some, n.why(ctx, end, err))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, p := range some {
			if p.datum.Flag == "" && p.seen {
				r.met(p)
			} else {
				single = append(single, p)
			}
		}
	})
	each(n.o.Connections, single, func(p place) {
		var info os.FileInfo
		err := n.call(end, n.o.User, func(c *client) (err error) {
			info, err = c.stat(p.file())
			return err
		})
		switch {
		case err != nil:
			r.blame([]place{p}, n.why(ctx, end, err))
		case info != nil:
			r.met(p)
		}
	})
}

// why is the reason that a path was not seen. A round that ran out of time leaves its name service alone for a moment,
// so that asking again at once does not double the wait.
func (n *nameService) why(ctx, end context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case end.Err() != nil:
		return n.leave(errors.New("it did not get through all paths within " + n.o.Round.String()))
	case errors.Is(err, capri.ErrUnavailable):
		return err
	}
	return errors.New(plain(err))
}

func (r *round) met(p place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.there[p.datum] = true
}

func (r *round) blame(places []place, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range places {
		r.unseen[p.datum] = err
	}
}

// each runs f for each item, n at once.
func each[T any](n int, items []T, f func(T)) {
	next := make(chan T)
	var wg sync.WaitGroup
	for range min(n, len(items)) {
		wg.Go(func() {
			for item := range next {
				f(item)
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	wg.Wait()
}

// present keeps, of the paths in one directory, those that are in its listing, marked as seen; all of them, unmarked,
// where the listing is too long or not allowed. With an error it gives back what it was asked for.
func (n *nameService) present(ctx context.Context, parent string, places []place) ([]place, error) {
	var names map[string]bool
	var whole bool
	err := n.call(ctx, n.o.User, func(c *client) (err error) {
		names, whole, err = c.list(parent, max(pageSize, listMost*len(places)))
		return err
	})
	if err != nil || !whole {
		return places, err
	}
	var some []place
	for _, p := range places {
		if names[path.Base(p.path)] {
			p.seen = true
			some = append(some, p)
		}
	}
	return some, nil
}

// list reads a directory's names; whole is false where it has more than most, or may not be listed.
func (c *client) list(dir string, most int) (names map[string]bool, whole bool, err error) {
	d, err := c.Open(dir)
	if absent(err) || c.belowFile(dir, err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	if !d.Stat().IsDir() {
		return nil, true, nil
	}
	names = map[string]bool{}
	for {
		some, err := d.Readdir(pageSize)
		for _, info := range some {
			names[info.Name()] = true
		}
		switch {
		case errors.Is(err, io.EOF), absent(err): // removed meanwhile
			return names, true, nil
		case errors.Is(err, fs.ErrPermission): // its files may be looked at all the same
			return nil, false, nil
		case err != nil:
			return nil, false, err
		case len(some) < pageSize: // the library reads on until a page is full or nothing is left
			return names, true, nil
		case len(names) > most:
			return nil, false, nil
		}
	}
}

// stat gives nil for what is certainly not there.
func (c *client) stat(file string) (os.FileInfo, error) {
	info, err := c.Stat(file)
	if absent(err) || c.belowFile(file, err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return info, nil
}

// belowFile tells a refusal that means "the directory is a file", so there is nothing in it, from one that means what it
// says: to everybody but its administrator HDFS says the same in both cases.
func (c *client) belowFile(file string, refused error) bool {
	if !errors.Is(refused, fs.ErrPermission) {
		return false
	}
	for dir := path.Dir(file); dir != "/"; dir = path.Dir(dir) {
		if info, err := c.Stat(dir); err == nil {
			return !info.IsDir()
		} else if !errors.Is(err, fs.ErrPermission) {
			return false
		}
	}
	return false
}

// absent: it is certainly not there. A directory that we may not enter proves nothing.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || exception(err) == exceptionParent || exception(err) == exceptionAbsent
}

// fileID differs when a file was replaced by another of the same name, time and size.
func fileID(info os.FileInfo) string {
	if s, ok := info.Sys().(*lib.FileStatus); ok {
		return strconv.FormatUint(s.GetFileId(), 16)
	}
	return ""
}
