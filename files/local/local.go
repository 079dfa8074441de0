// Package local is the file systems that this machine has mounted, network ones included.
//
// A call into a mount that hangs (NFS without its server) never returns and cannot be ended, only left behind. So each
// look runs in a goroutine of its own with a time limit; one that is left behind marks its corner of the tree, and
// until it comes back further looks there are refused at once. A thousand paths on a dead mount then cost one
// time limit and a few goroutines.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"capri"
	"capri/files"
)

// Options say how patient it is.
type Options struct {
	Parallel int           // looks at once; default 16
	Timeout  time.Duration // of one look; default 10 s
}

// Local is the mounted file systems.
type Local struct {
	timeout time.Duration
	slots   chan struct{}

	mu   sync.Mutex
	hung map[string]int // by corner: looks that were left behind and have not come back
	left int            // all of them
}

// mostLeft bounds the goroutines, and so the threads, that hanging mounts may hold.
const mostLeft = 256

// New makes it.
func New(o Options) *Local {
	if o.Parallel <= 0 {
		o.Parallel = 16
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	return &Local{timeout: o.Timeout, slots: make(chan struct{}, o.Parallel), hung: map[string]int{}}
}

// Path gives the local path of a path or file:// URL.
func Path(url string) (string, error) {
	scheme, rest := files.Scheme(url)
	switch {
	case scheme == "":
	case scheme != "file":
		return "", capri.Invalid("path", url, "a local path")
	case strings.HasPrefix(rest, "//"):
		host, p, _ := strings.Cut(rest[2:], "/")
		if host != "" && host != "localhost" {
			return "", capri.Invalid("path", url, "file:///path: a file of another host cannot be reached this way")
		}
		rest = "/" + p
	}
	if !filepath.IsAbs(rest) || strings.ContainsRune(rest, 0) {
		return "", capri.Invalid("path", url, "an absolute path")
	}
	return filepath.Clean(rest), nil
}

// look runs f with the time limit. What f found may be used only if look returns nil.
func (l *Local) look(ctx context.Context, at string, f func()) error {
	if err := ctx.Err(); err != nil {
		return err // a look that nobody waits for is not begun: it would count as one that hangs
	}
	corner := cornerOf(at)
	l.mu.Lock()
	switch {
	case l.hung[corner] > 0:
		l.mu.Unlock()
		return capri.Unavailable("%s does not answer: an earlier look at it still hangs", corner)
	case l.left >= mostLeft:
		l.mu.Unlock()
		return capri.Unavailable("%d looks at other file systems hang", mostLeft)
	}
	l.mu.Unlock()

	done := make(chan struct{})
	abandoned := false // guarded by mu
	go func() {
		f()
		l.mu.Lock()
		defer l.mu.Unlock()
		close(done)
		if abandoned {
			l.left--
			if l.hung[corner]--; l.hung[corner] == 0 {
				delete(l.hung, corner)
			}
		}
	}()
	timer := time.NewTimer(l.timeout)
	defer timer.Stop()
	var err error
	select {
	case <-done:
		return nil
	case <-timer.C:
		err = capri.Unavailable("no answer within %s", l.timeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-done: // just now
		return nil
	default:
	}
	abandoned = true
	l.left++
	l.hung[corner]++
	return err
}

// cornerOf is the part of the tree that is given up together: the first two names, which are at or below nearly every
// mount point. A healthy neighbour of a dead mount in the same corner is not answered for a while; that is
// an "unknown" and no harm.
func cornerOf(path string) string {
	end := 0
	for range 2 {
		next := strings.IndexByte(path[min(end+1, len(path)):], '/')
		if next < 0 {
			return path
		}
		end += 1 + next
	}
	return path[:end]
}

// Units of There: so many paths share one goroutine and one time limit; and from so many under one parent on the
// parent is listed first, which spares a round trip for each that is not there, nearly all of them while they are
// waited for. A listing that turns out longer than listMost times that is broken off.
const (
	unitSize = 32
	listFrom = 16
	listMost = 16
)

// There answers by one look at each distinct path.
func (l *Local) There(ctx context.Context, paths []capri.PathCondition) ([]bool, error) {
	t := &round{l: l, ctx: ctx, corners: map[string][]place{}, there: make(map[capri.PathCondition]bool, len(paths)), unseen: map[capri.PathCondition]error{}}
	parents := map[string][]place{}
	for _, p := range paths {
		if _, twice := t.there[p]; twice {
			continue
		}
		t.there[p] = false
		path, err := Path(p.Path)
		if err == nil && (strings.ContainsAny(p.Flag, "/\x00") || p.Flag == "." || p.Flag == "..") {
			err = capri.Invalid("flag", p.Flag, "a file's name")
		}
		if err != nil {
			t.unseen[p] = err
			continue
		}
		parent := filepath.Dir(path)
		parents[parent] = append(parents[parent], place{p, path})
	}
	for parent, places := range parents {
		if len(places) >= listFrom {
			t.wg.Go(func() { t.list(parent, places) })
		} else {
			t.keep(places)
		}
	}
	t.wg.Wait()
	for _, places := range t.corners {
		for len(places) > 0 {
			unit := places[:min(unitSize, len(places))]
			places = places[len(unit):]
			t.wg.Go(func() { t.unit(unit) })
		}
	}
	t.wg.Wait()
	answers := make([]bool, len(paths))
	for i, p := range paths {
		answers[i] = t.there[p]
	}
	if len(t.unseen) > 0 {
		return answers, &files.UnseenError{Paths: t.unseen}
	}
	return answers, nil
}

// place is a datum and where it lies.
type place struct {
	datum capri.PathCondition
	path  string
}

// round is one call of There.
type round struct {
	l   *Local
	ctx context.Context //nolint:containedctx // lives as long as the call
	wg  sync.WaitGroup

	mu      sync.Mutex
	corners map[string][]place
	there   map[capri.PathCondition]bool
	unseen  map[capri.PathCondition]error
}

// list keeps, of the paths in one directory, those that are in its listing: the others are not there.
func (t *round) list(parent string, places []place) {
	var names map[string]bool
	var listed bool
	if err := t.do(parent, func() { names, listed = list(parent, listMost*len(places)) }); err != nil {
		t.blame(places, err)
		return
	}
	if listed {
		places = slices.DeleteFunc(places, func(p place) bool { return !names[filepath.Base(p.path)] })
	}
	t.keep(places)
}

// keep notes paths that have to be looked at one by one.
func (t *round) keep(places []place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range places {
		corner := cornerOf(p.path)
		t.corners[corner] = append(t.corners[corner], p)
	}
}

func (t *round) unit(places []place) {
	there := make([]bool, len(places))
	errs := make([]error, len(places))
	err := t.do(places[0].path, func() {
		for i, p := range places {
			if t.ctx.Err() != nil {
				errs[i] = t.ctx.Err()
				continue
			}
			_, there[i], errs[i] = stat(p.path, p.datum.Flag)
		}
	})
	if err != nil {
		t.blame(places, err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, p := range places {
		t.there[p.datum] = there[i]
		if errs[i] != nil {
			t.unseen[p.datum] = errs[i]
		}
	}
}

// do is look within the bound of looks at once. The bound's place is free again when the look is left behind.
func (t *round) do(at string, f func()) error {
	select {
	case t.l.slots <- struct{}{}:
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
	defer func() { <-t.l.slots }()
	return t.l.look(t.ctx, at, f)
}

func (t *round) blame(places []place, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range places {
		t.unseen[p.datum] = err
	}
}

// list reads a directory's names; ok is false when it has too many, or cannot be listed: then each is asked for.
func list(dir string, most int) (names map[string]bool, ok bool) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, absent(err)
	}
	defer d.Close()
	names = map[string]bool{}
	for {
		some, err := d.Readdirnames(1024)
		for _, n := range some {
			names[n] = true
		}
		if err == io.EOF {
			return names, true
		}
		if err != nil || len(names) > most {
			return nil, false
		}
	}
}

// stat follows links: a flag may be one.
func stat(path, flag string) (fs.FileInfo, bool, error) {
	if flag != "" {
		path = filepath.Join(path, flag)
	}
	info, err := os.Stat(path)
	if absent(err) {
		return nil, false, nil
	}
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err // the path is named by who asked
		}
		return nil, false, err
	}
	return info, true, nil
}

// absent: it is certainly not there. A directory that we may not enter proves nothing.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Stat tells how a flag looks.
func (l *Local) Stat(ctx context.Context, p capri.PathCondition) (files.Stamp, error) {
	path, err := Path(p.Path)
	if err != nil {
		return files.Stamp{}, err
	}
	var info fs.FileInfo
	var there bool
	var found error
	if err := l.look(ctx, path, func() { info, there, found = stat(path, p.Flag) }); err != nil {
		return files.Stamp{}, fmt.Errorf("look at %s: %w", files.Name(p), err)
	}
	if found != nil {
		return files.Stamp{}, capri.Unavailable("look at %s: %v", files.Name(p), found)
	}
	if !there {
		return files.Stamp{}, nil
	}
	s := files.Stamp{There: true, Modified: info.ModTime().UnixNano(), Size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ID = strconv.FormatUint(uint64(st.Dev), 16) + ":" + strconv.FormatUint(st.Ino, 16) //nolint:unconvert // 32 bits elsewhere
	}
	return s, nil
}

// Fetch copies a file. If ctx ends before, what is left behind may still write into the directory for a moment.
func (l *Local) Fetch(ctx context.Context, url string, to *os.Root, as *files.Account) error {
	path, err := Path(url)
	if err != nil {
		return err
	}
	name, err := files.BaseName(url)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- fetch(ctx, path, to, name, as) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return capri.Unavailable("fetch %s: no answer in time", url)
	case err != nil:
		return fmt.Errorf("fetch %s: %w", url, err)
	}
	return nil
}

func fetch(ctx context.Context, path string, to *os.Root, name string, as *files.Account) error {
	info, err := os.Stat(path)
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // a pipe would be waited for, a directory is no script
		return errors.New("it is not a regular file")
	}
	out, err := to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	defer out.Close()
	if as != nil && os.Geteuid() == 0 {
		return copyAs(ctx, path, out, as)
	}
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return err
	}
	defer in.Close()
	if _, err := io.Copy(out, reader{ctx, in}); err != nil {
		return err
	}
	return out.Close()
}

// copyAs lets a process of the account read the file: the kernel then judges by the account's own rights,
// groups, ACLs and directories on the way included, which no check of mode bits from here could repeat.
func copyAs(ctx context.Context, path string, out *os.File, as *files.Account) error {
	var said strings.Builder
	cmd := exec.CommandContext(ctx, "/bin/cat", "--", path)
	cmd.Dir, cmd.Env = "/", []string{"LC_ALL=C"}
	cmd.Stdout, cmd.Stderr = out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: as.UID, Gid: as.GID, Groups: as.Groups}}
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		why := strings.TrimSpace(said.String())
		if at := strings.LastIndex(why, ": "); at >= 0 {
			why = why[at+2:]
		}
		if why == "" {
			why = err.Error()
		}
		return fmt.Errorf("as account %s: %s", as.Name, why)
	}
	return out.Close()
}

// reader ends a copy with its context.
type reader struct {
	ctx context.Context //nolint:containedctx // a reader has no other way to know
	in  io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(b)
}
