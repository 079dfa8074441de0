package files

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"capri"
)

// Files is one file system, or several behind one face. It is safe for concurrent use.
type Files interface {
	// There tells of each datum whether its flag is there. An error is an *UnseenError: of the paths that it names
	// nothing is known (they read false), the answers for all others hold.
	There(ctx context.Context, paths []capri.PathCondition) ([]bool, error)

	// Stat tells how a datum's flag looks now, for a later comparison.
	Stat(ctx context.Context, p capri.PathCondition) (Stamp, error)

	// Fetch copies the file at url into the directory to, under its own base name, readable and executable for its
	// owner, who the caller sets. With an account, the file is read with that account's rights: a worker that runs
	// as root must not hand a job what its account may not read.
	Fetch(ctx context.Context, url string, to *os.Root, as *Account) error
}

// Stamp is how a flag looked at one moment. Two that differ mean that it was written in between.
type Stamp struct {
	There    bool   `json:"there"`
	Modified int64  `json:"modified,omitempty"` // nanoseconds of the file system's clock; only compared
	Size     int64  `json:"size,omitempty"`
	ID       string `json:"id,omitempty"` // of the file, so that one replaced within a clock tick differs
}

// Account is whose rights a file is read with.
type Account struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32
}

// UnseenError names the paths that could not be looked at, and why.
type UnseenError struct {
	Paths map[capri.PathCondition]error
}

func (e *UnseenError) Error() string {
	var texts []string
	for p, err := range e.Paths {
		texts = append(texts, Name(p)+": "+err.Error())
	}
	slices.Sort(texts)
	const shown = 3
	more := ""
	if len(texts) > shown {
		more = fmt.Sprintf("; and %d more", len(texts)-shown)
		texts = texts[:shown]
	}
	return fmt.Sprintf("%d paths could not be looked at: %s%s", len(e.Paths), strings.Join(texts, "; "), more)
}

func (e *UnseenError) Is(target error) bool { return target == capri.ErrUnavailable }

// Name is the file that a datum's presence rests on, as people read it.
func Name(p capri.PathCondition) string {
	if p.Flag == "" {
		return p.Path
	}
	return strings.TrimSuffix(p.Path, "/") + "/" + p.Flag
}

// BaseName is the name under which Fetch leaves a file.
func BaseName(url string) (string, error) {
	_, p := Scheme(url)
	name := path.Base(p)
	if name == "." || name == ".." || name == "/" || strings.HasSuffix(p, "/") {
		return "", capri.Invalid("job.files", url, "the path of a file")
	}
	return name, nil
}

// Scheme parts "hdfs://nn/a" into "hdfs" and "//nn/a"; a path without one has the scheme "".
func Scheme(url string) (scheme, rest string) {
	scheme, rest, found := strings.Cut(url, ":")
	if !found || strings.Contains(scheme, "/") || !strings.HasPrefix(rest, "/") {
		return "", url
	}
	return strings.ToLower(scheme), rest
}

// Systems parts paths by the file system that they lie on: by scheme and authority.
func Systems(paths []capri.PathCondition) [][]capri.PathCondition {
	at := map[string]int{}
	var parts [][]capri.PathCondition
	for _, p := range paths {
		scheme, rest := Scheme(p.Path)
		authority := ""
		if scheme != "" && strings.HasPrefix(rest, "//") {
			authority, _, _ = strings.Cut(rest[2:], "/")
		}
		key := scheme + "://" + authority
		i, known := at[key]
		if !known {
			i = len(parts)
			at[key] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], p)
	}
	return parts
}

// byScheme sends each path to the file system of its scheme.
type byScheme map[string]Files

// ByScheme makes one face of several file systems, by scheme; "" is for paths without one.
func ByScheme(systems map[string]Files) Files { return byScheme(systems) }

func (b byScheme) of(url string) (Files, error) {
	scheme, _ := Scheme(url)
	if f := b[scheme]; f != nil {
		return f, nil
	}
	if scheme == "" {
		scheme = "paths without a scheme"
	} else {
		scheme += "://"
	}
	return nil, capri.Invalid("path", url, "a file system that this Capri can reach; it has none for "+scheme)
}

func (b byScheme) There(ctx context.Context, paths []capri.PathCondition) ([]bool, error) {
	there := make([]bool, len(paths))
	unseen := &UnseenError{Paths: map[capri.PathCondition]error{}}
	groups := map[Files][]int{}
	for i, p := range paths {
		f, err := b.of(p.Path)
		if err != nil {
			unseen.Paths[p] = err
			continue
		}
		groups[f] = append(groups[f], i)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for f, indexes := range groups {
		wg.Go(func() {
			mine := make([]capri.PathCondition, len(indexes))
			for i, at := range indexes {
				mine[i] = paths[at]
			}
			answers, err := f.There(ctx, mine)
			mu.Lock()
			defer mu.Unlock()
			for i, at := range indexes {
				if i < len(answers) {
					there[at] = answers[i]
				}
			}
			unseen.add(mine, err)
		})
	}
	wg.Wait()
	if len(unseen.Paths) > 0 {
		return there, unseen
	}
	return there, nil
}

// add takes over what one file system could not see; an error of another kind is about all that it was asked.
func (e *UnseenError) add(asked []capri.PathCondition, err error) {
	switch err := err.(type) { //nolint:errorlint // the interface says which type it is
	case nil:
	case *UnseenError:
		for p, why := range err.Paths {
			e.Paths[p] = why
		}
	default:
		for _, p := range asked {
			e.Paths[p] = err
		}
	}
}

func (b byScheme) Stat(ctx context.Context, p capri.PathCondition) (Stamp, error) {
	f, err := b.of(p.Path)
	if err != nil {
		return Stamp{}, err
	}
	return f.Stat(ctx, p)
}

func (b byScheme) Fetch(ctx context.Context, url string, to *os.Root, as *Account) error {
	f, err := b.of(url)
	if err != nil {
		return err
	}
	return f.Fetch(ctx, url, to, as)
}
