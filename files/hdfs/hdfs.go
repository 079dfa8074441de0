package hdfs

import (
	"context"
	"log/slog"
	"net"
	"os/user"
	"path"
	"path/filepath"
	"strings"
	"time"

	"capri"
	"capri/conf"
	"capri/files"
)

// Scheme is that of the paths which are looked for here.
const Scheme = "hdfs"

// Options say where it is and how patient we are. conf/capri.yaml explains each.
type Options struct {
	NameServices []conf.NameService // the first is that of hdfs:///…
	User         string             // without Kerberos; default: who runs this
	Connections  int
	Timeout      time.Duration // of one answer
	Round        time.Duration // of all looks of one There
	RetryAfter   time.Duration
	FileLimit    int64  // bytes
	CacheDir     string // of fetched files
	CacheLimit   int64  // bytes; 0: no cache
	ByName       bool   // how data-nodes are reached
	Protection   string
	Kerberos     *Kerberos // nil: without

	Log *slog.Logger
}

// Kerberos is who we are, where that has to be proved.
type Kerberos struct {
	Principal string // NAME@REALM
	Keytab    string // a file
	Config    string // krb5.conf
	NameNode  string // its service principal, _HOST for its host
}

// HDFS is all configured name services.
type HDFS struct {
	services    []*nameService
	byAuthority map[string]*nameService
	names       string // of all, for messages
	o           *Options
	cache       *cache
}

// FromConfig makes it as configured; nil where no name-node is. Nothing is opened before it is needed.
func FromConfig(c *conf.Config) *HDFS {
	h := c.HDFS
	if len(h.NameNodes) == 0 {
		return nil
	}
	o := Options{
		NameServices: h.NameServices(), User: h.User, Connections: h.Connections, Timeout: h.Timeout, Round: h.RoundTimeout, RetryAfter: h.RetryAfter,
		FileLimit: int64(h.FileLimitMB) << 20, CacheDir: filepath.Join(c.Data, "hdfs-files"), CacheLimit: int64(h.CacheMB) << 20,
		ByName: h.DataNodesBy == "name", Protection: h.Protection,
	}
	if h.KerberosPrincipal != "" {
		o.Kerberos = &Kerberos{Principal: h.KerberosPrincipal, Keytab: h.KerberosKeytab, Config: h.KerberosConfig, NameNode: h.KerberosNameNodeAs}
	}
	return New(o)
}

// New makes it. What is left out of the options is as in a configuration that says nothing.
func New(o Options) *HDFS {
	standard := conf.Default().HDFS
	defaults := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	defaults(&o.Timeout, standard.Timeout)
	defaults(&o.Round, standard.RoundTimeout)
	defaults(&o.RetryAfter, standard.RetryAfter)
	if o.Connections <= 0 {
		o.Connections = standard.Connections
	}
	if o.FileLimit <= 0 {
		o.FileLimit = int64(standard.FileLimitMB) << 20
	}
	if o.User == "" {
		o.User = "capri"
		if u, err := user.Current(); err == nil {
			o.User = u.Username
		}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	h := &HDFS{o: &o, byAuthority: map[string]*nameService{}, cache: newCache(o.CacheDir, o.CacheLimit)}
	var names []string
	for _, s := range o.NameServices {
		n := newNameService(&o, s)
		h.services = append(h.services, n)
		names = append(names, s.Name)
		// A path may name one name-node of several: what is meant is the HDFS, whichever of them is active now.
		for _, address := range s.NameNodes {
			h.byAuthority[address] = n
			if host, port, err := net.SplitHostPort(address); err == nil && port == "8020" { // Hadoop's own default
				h.byAuthority[host] = n
			}
		}
	}
	for _, n := range h.services { // last: a name service's own name wins
		h.byAuthority[n.name] = n
	}
	if len(h.services) > 0 {
		h.byAuthority[""] = h.services[0]
	}
	h.names = strings.Join(names, ", ")
	return h
}

// Close closes idle connections. Calls under way go on.
func (h *HDFS) Close() {
	for _, n := range h.services {
		n.dropIdle()
	}
}

// find parts a URL into the name service that it speaks of and the path there.
func (h *HDFS) find(url string) (*nameService, string, error) {
	scheme, rest := files.Scheme(url)
	if scheme != Scheme {
		return nil, "", capri.Invalid("path", url, "a path that begins with hdfs://")
	}
	authority := ""
	if strings.HasPrefix(rest, "//") {
		authority, rest, _ = strings.Cut(rest[2:], "/")
		rest = "/" + rest
	}
	n := h.byAuthority[strings.ToLower(authority)]
	if n == nil {
		return nil, "", capri.Invalid("path", url, "hdfs:// with a name that hdfs.name_nodes lists; it lists "+h.names)
	}
	// HDFS has no . and .. of its own; cleaning them away here could name another file than other programs see.
	if strings.Contains(rest, "/.") { // seldom, and only then worth a look at each segment
		for _, segment := range strings.Split(rest, "/") {
			if segment == "." || segment == ".." {
				return nil, "", capri.Invalid("path", url, "a path without . and .. segments")
			}
		}
	}
	if strings.IndexByte(rest, 0) >= 0 {
		return nil, "", capri.Invalid("path", url, "a path without control characters")
	}
	return n, path.Clean(rest), nil
}

// look is where a datum's flag lies.
func (h *HDFS) look(p capri.PathCondition) (*nameService, place, error) {
	n, at, err := h.find(p.Path)
	if err == nil && (strings.ContainsAny(p.Flag, "/\x00") || p.Flag == "." || p.Flag == "..") {
		err = capri.Invalid("flag", p.Flag, "a file's name")
	}
	return n, place{datum: p, path: at}, err
}

// There answers by one look at each distinct path. Each name service is asked by itself, so that one that is silent
// holds up no other.
func (h *HDFS) There(ctx context.Context, paths []capri.PathCondition) ([]bool, error) {
	r := newRound(len(paths))
	byService := map[*nameService][]place{}
	for _, p := range paths {
		if _, twice := r.there[p]; twice {
			continue
		}
		r.there[p] = false
		n, at, err := h.look(p)
		if err != nil {
			r.unseen[p] = err
			continue
		}
		byService[n] = append(byService[n], at)
	}
	for n, places := range byService {
		r.wg.Go(func() { r.ask(ctx, n, places) })
	}
	r.wg.Wait()
	answers := make([]bool, len(paths))
	for i, p := range paths {
		answers[i] = r.there[p]
	}
	if len(r.unseen) > 0 {
		return answers, &files.UnseenError{Paths: r.unseen}
	}
	return answers, nil
}

// Stat tells how a datum's flag looks.
func (h *HDFS) Stat(ctx context.Context, p capri.PathCondition) (files.Stamp, error) {
	n, at, err := h.look(p)
	if err != nil {
		return files.Stamp{}, err
	}
	var s files.Stamp
	err = n.call(ctx, n.o.User, func(c *client) error {
		info, err := c.stat(at.file())
		if info != nil {
			s = files.Stamp{There: true, Modified: info.ModTime().UnixNano(), Size: info.Size(), ID: fileID(info)}
		}
		return err
	})
	if err != nil {
		return files.Stamp{}, named("look at "+files.Name(p), err)
	}
	return s, nil
}
