package hdfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lib "github.com/colinmarc/hdfs/v2"

	"capri"
	"capri/files"
)

// Fetch copies a file of at most hdfs.file_limit_mb. It is read as the account, whose rights the name-node then judges;
// with Kerberos, where we can be nobody but ourselves, the account's rights are judged here (mayRead).
func (h *HDFS) Fetch(ctx context.Context, url string, to *os.Root, as *files.Account) error {
	n, at, err := h.find(url)
	if err != nil {
		return err
	}
	name, err := files.BaseName(url)
	if err != nil {
		return err
	}
	user := h.o.User
	if as != nil && h.o.Kerberos == nil {
		user = as.Name
	}
	out, err := to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o700)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", url, err)
	}
	defer out.Close()
	err = n.callIn(ctx, n.fetches, 0, user, func(c *client) error {
		if as != nil && h.o.Kerberos != nil {
			if err := c.mayRead(at, as.Name); err != nil {
				return err
			}
		}
		return h.read(ctx, n, c, at, out)
	})
	if err == nil {
		err = out.Close()
	}
	if err == nil {
		return nil
	}
	if as != nil && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("fetch %s: as account %s: %w", url, as.Name, fs.ErrPermission)
	}
	return named("fetch "+url, err)
}

// read brings a file to out, through the cache where there is one. The rights are asked for each time: the checksum's
// question for the file's blocks is refused to who may not read it, whatever lies in the cache.
func (h *HDFS) read(ctx context.Context, n *nameService, c *client, at string, out *os.File) error {
	f, err := c.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	info := f.Stat()
	if info.IsDir() {
		return &dataError{errors.New("it is not a regular file")}
	}
	if info.Size() > h.o.FileLimit {
		return capri.Invalid("job.files", at, fmt.Sprintf("a file of at most %d MB (hdfs.file_limit_mb); it has %d MB", h.o.FileLimit>>20, info.Size()>>20))
	}
	sum, err := f.Checksum()
	if err != nil {
		return readError(err)
	}
	download := func(to *os.File) error {
		// A try that broke off may have left something.
		if _, err := to.Seek(0, io.SeekStart); err != nil {
			return &dataError{err}
		}
		if err := to.Truncate(0); err != nil {
			return &dataError{err}
		}
		got, err := io.Copy(to, f)
		if err == nil && got != info.Size() {
			err = fmt.Errorf("%d of its %d bytes came", got, info.Size())
		}
		if err != nil {
			return readError(err)
		}
		return nil
	}
	if h.cache == nil || info.Size() == 0 || info.Size() > h.cache.limit {
		return download(out)
	}
	// The checksum is one that can be forged, so it tells a file's states apart, but never two files.
	key := sha256.Sum256([]byte(strings.Join([]string{n.name, at, fileID(info), info.ModTime().String(), strconv.FormatInt(info.Size(), 10), string(sum)}, "\x00")))
	return h.cache.get(ctx, hex.EncodeToString(key[:]), info.Size(), out, download)
}

// readError tells a refusal of the name-node from data-nodes that do not give what they should.
func readError(err error) error {
	if exception(err) == exceptionAccess {
		return fs.ErrPermission
	}
	if exception(err) != "" {
		return err
	}
	return &dataError{fmt.Errorf("its data-nodes: %w", err)}
}

// mayRead judges an account's rights by owner and everybody's bits alone. Groups are HDFS's own affair and not known
// here, so it refuses more than HDFS would, and never less where there are no access lists.
func (c *client) mayRead(file, account string) error {
	for at, bit := file, os.FileMode(4); ; at, bit = path.Dir(at), 1 {
		info, err := c.Stat(at)
		if err != nil {
			return err
		}
		mode := info.Mode()
		if owned, ok := info.(*lib.FileInfo); ok && owned.Owner() == account {
			mode >>= 6
		}
		if mode&bit == 0 {
			return fs.ErrPermission
		}
		if at == "/" {
			return nil
		}
	}
}

// cache keeps fetched files: one file per state of a file, named by what tells it from others.
type cache struct {
	dir   string
	limit int64

	mu   sync.Mutex
	busy map[string]chan struct{} // being fetched; closed when done
}

func newCache(dir string, limit int64) *cache {
	if dir == "" || limit <= 0 {
		return nil
	}
	return &cache{dir: dir, limit: limit, busy: map[string]chan struct{}{}}
}

// get copies what is kept under key to out. The first of several callers downloads, the others wait for it.
func (k *cache) get(ctx context.Context, key string, size int64, out *os.File, download func(*os.File) error) error {
	for {
		k.mu.Lock()
		wait := k.busy[key]
		if wait == nil {
			k.busy[key] = make(chan struct{})
		}
		k.mu.Unlock()
		if wait == nil {
			break
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() {
		k.mu.Lock()
		close(k.busy[key])
		delete(k.busy, key)
		k.mu.Unlock()
	}()
	file := filepath.Join(k.dir, key)
	if hit, err := copyOf(file, size, out); hit || err != nil {
		return err
	}
	if err := k.add(file, size, download); err != nil {
		return err
	}
	hit, err := copyOf(file, size, out)
	if err == nil && !hit {
		err = &dataError{fmt.Errorf("%s was removed while it was read", file)}
	}
	return err
}

// copyOf copies a kept file, if it is there and whole.
func copyOf(file string, size int64, out *os.File) (hit bool, err error) {
	in, err := os.Open(file)
	if err != nil {
		return false, nil
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || info.Size() != size {
		return false, nil
	}
	now := time.Now()
	os.Chtimes(file, now, now) //nolint:errcheck // only the order of removal follows from it
	if _, err = out.Seek(0, io.SeekStart); err == nil {
		if err = out.Truncate(0); err == nil {
			_, err = io.Copy(out, in)
		}
	}
	if err != nil {
		return true, &dataError{err}
	}
	return true, nil
}

// add downloads beside the file and moves it there when it is on disk: a machine that dies leaves it whole or not at all.
func (k *cache) add(file string, size int64, download func(*os.File) error) error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return &dataError{err}
	}
	k.makeRoom(size)
	tmp, err := os.CreateTemp(k.dir, "new-")
	if err != nil {
		return &dataError{err}
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	defer tmp.Close()
	if err := download(tmp); err != nil {
		return err
	}
	if err = tmp.Sync(); err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return &dataError{err}
	}
	return nil
}

// makeRoom removes what was not used for longest, and what downloads of earlier processes left.
func (k *cache) makeRoom(size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return // then add fails, and says why
	}
	var kept []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		if strings.HasPrefix(e.Name(), "new-") {
			if time.Since(info.ModTime()) > time.Hour { // what cannot be removed is tried again next time
				os.Remove(filepath.Join(k.dir, e.Name()))
			}
			continue
		}
		kept = append(kept, info)
		size += info.Size()
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range kept {
		if size <= k.limit {
			return
		}
		os.Remove(filepath.Join(k.dir, info.Name()))
		size -= info.Size()
	}
}
