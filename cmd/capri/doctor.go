package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"capri"
	"capri/client"
	"capri/conf"
	"capri/files/hdfs"
	"capri/sql/schema"
	"capri/sql/store"
	"capri/worker/job"
	"capri/worker/shim"
)

// finding is the outcome of one check.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Advice string `json:"advice"` // what to do, where something is wrong
}

func newDoctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check configuration, data directory, database, Redis, HDFS, clock, shim, clients of job types and API, and say what to do",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := a.examine(cmd.Context())
			faults := 0
			for _, f := range findings {
				if !f.OK {
					faults++
				}
			}
			err := a.print(findings, func(w io.Writer) {
				for _, f := range findings {
					mark := "ok   "
					if !f.OK {
						mark = "FAULT"
					}
					fmt.Fprintf(w, "%s  %-14s %s\n", mark, f.Check, oneLine(f.Detail))
					if f.Advice != "" {
						fmt.Fprintf(w, "       %-14s → %s\n", "", f.Advice)
					}
				}
				if faults > 0 {
					fmt.Fprintf(w, "%d of %d checks found a fault\n", faults, len(findings))
				}
			})
			if err == nil && faults > 0 {
				return errQuiet
			}
			return err
		},
	}
}

// examine makes every check that can be made; without a configuration the others have nothing to look at.
func (a *app) examine(ctx context.Context) []finding {
	c, err := a.config()
	if err != nil {
		var all []finding
		for _, line := range strings.Split(err.Error(), "\n") {
			all = append(all, finding{"configuration", false, line, "correct it; every key is explained in " + conf.DefaultFile})
		}
		return all
	}
	all := []finding{{Check: "configuration", OK: true, Detail: fmt.Sprintf("timezone %s, database %s", c.Timezone, databaseName(c))}, examineData(c.Data)}
	all = append(all, examineDatabase(ctx, c)...)
	all = append(all, examineRedis(ctx, c))
	all = append(all, examineHDFS(ctx, c)...)
	all = append(all, examineShim(), examineClients(c), a.examineAPI(ctx))
	return all
}

// examineData asks whether the data directory, or the folder in which it will be made, can be written to. It makes nothing.
func examineData(dir string) finding {
	f := finding{Check: "data directory", OK: true, Detail: dir}
	at, err := filepath.Abs(dir)
	for ; err == nil; at = filepath.Dir(at) {
		var info os.FileInfo
		info, err = os.Stat(at)
		if errors.Is(err, os.ErrNotExist) && at != filepath.Dir(at) {
			err = nil
			f.Detail = dir + " (it will be made)"
			continue
		}
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is no folder", at)
		}
		break
	}
	if err == nil {
		err = unix.Access(at, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return finding{f.Check, false, fmt.Sprintf("%s: %v", dir, err), "give this user the right to write there, or set data: (CAPRI_DATA) to another folder"}
	}
	var st unix.Statfs_t
	if unix.Statfs(at, &st) == nil {
		free := st.Bavail * uint64(st.Bsize) >> 20
		f.Detail += fmt.Sprintf(", %d MB free", free)
		if free < 1024 {
			f.OK, f.Advice = false, "make room: logs and the database need it"
		}
	}
	return f
}

// maxClockDifference is what monitor alerts at; generation by a clock that far off would be early or late.
const maxClockDifference = 2 * time.Second

func examineDatabase(ctx context.Context, c *conf.Config) []finding {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	name := databaseName(c)
	lite := c.Database.Driver() == conf.SQLite
	if lite {
		if _, err := os.Stat(filepath.Join(c.Data, databaseFile)); errors.Is(err, os.ErrNotExist) {
			return []finding{{Check: "database", OK: true, Detail: name + " is not there yet: capri standalone makes it"}}
		}
	}
	s, err := openStore(ctx, c)
	if err == nil {
		defer s.Close()
		err = s.Ping(ctx)
	}
	if err != nil {
		return []finding{{"database", false, err.Error(), "start the database, or correct database.dsn (CAPRI_DATABASE_DSN), its user and password"}}
	}
	all := []finding{{Check: "database", OK: true, Detail: name + " answers"}}
	if err := schema.Check(ctx, s.DB(), s.Dialect()); err != nil {
		return append(all, finding{"schema", false, err.Error(), "run capri migrate up with the newest capri"})
	}
	have, _, err := schema.Version(ctx, s.DB(), s.Dialect())
	if err != nil {
		return append(all, finding{"schema", false, err.Error(), "see whether the database's user may read its tables"})
	}
	all = append(all, finding{Check: "schema", OK: true, Detail: fmt.Sprintf("at %d, as this capri needs it", have)})
	if err := schema.CheckZone(ctx, s.DB(), s.Dialect(), c.Timezone); err != nil {
		all = append(all, finding{"zone", false, err.Error(), "use the zone that the database was made with"})
	} else {
		all = append(all, finding{Check: "zone", OK: true, Detail: c.Timezone})
	}
	all = append(all, examineLeases(ctx, s))
	if lite {
		return all // its clock is ours
	}
	before := time.Now()
	theirs, err := s.Now(ctx)
	ours := before.Add(time.Since(before) / 2)
	if err != nil {
		return append(all, finding{"clock", false, err.Error(), "see whether the database answers"})
	}
	off := theirs.Sub(capri.InstantOf(ours)).Round(time.Millisecond)
	f := finding{Check: "clock", OK: off.Abs() <= maxClockDifference, Detail: fmt.Sprintf("the database's is %v ahead of this machine's", off)}
	if !f.OK {
		f.Advice = "let both machines follow the same time servers (chrony, ntpd)"
	}
	return append(all, f)
}

// examineLeases asks whether each service has the row by which masters agree on who runs it.
func examineLeases(ctx context.Context, s *store.Store) finding {
	f := finding{Check: "leases", OK: true}
	locks, err := s.Locks(ctx)
	if err != nil {
		return finding{f.Check, false, err.Error(), "see whether the database's user may read its tables"}
	}
	var missing []string
	for _, service := range capri.ServiceLeases {
		if !slices.ContainsFunc(locks, func(l store.ServiceLock) bool { return l.Service == service }) {
			missing = append(missing, service)
		}
	}
	f.Detail = fmt.Sprintf("each of the %d leases has its row", len(capri.ServiceLeases))
	if len(missing) > 0 {
		f.OK, f.Detail = false, "capri_service_lock has no row of "+strings.Join(missing, ", ")+": these services run nowhere"
		f.Advice = "run capri migrate up, which makes the rows again; never insert them by hand"
	}
	return f
}

// examineRedis says PING. Without Redis everything works, a few seconds later.
func examineRedis(ctx context.Context, c *conf.Config) finding {
	if c.Redis.Addr == "" {
		return finding{Check: "redis", OK: true, Detail: "none is configured: wake-ups come by looking each half second"}
	}
	f := finding{Check: "redis", OK: true, Detail: c.Redis.Addr + " answers"}
	if err := ping(ctx, c); err != nil {
		f.OK, f.Detail = false, fmt.Sprintf("%s: %v", c.Redis.Addr, err)
		f.Advice = "start it, or correct redis.addr (CAPRI_REDIS_ADDR) and its password; nothing stops without it, but things become seconds late"
	}
	return f
}

func ping(ctx context.Context, c *conf.Config) error {
	o, err := redisOptions(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	dial := (&net.Dialer{}).DialContext
	if o.TLS != nil {
		dial = (&tls.Dialer{Config: o.TLS}).DialContext
	}
	conn, err := dial(ctx, "tcp", o.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(3 * time.Second))
	r := bufio.NewReader(conn)
	say := func(words ...string) error {
		fmt.Fprintf(conn, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(w), w)
		}
		line, err := r.ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "+") {
			err = errors.New(strings.TrimSpace(strings.TrimPrefix(line, "-")))
		}
		return err
	}
	if o.Password != "" {
		if err := say("AUTH", o.Password); err != nil {
			return err
		}
	}
	return say("PING")
}

// examineHDFS asks each name-node. Without any, hdfs:// paths cannot be read, and everything else works.
func examineHDFS(ctx context.Context, c *conf.Config) []finding {
	h := hdfs.FromConfig(c)
	if h == nil {
		return []finding{{Check: "hdfs", OK: true, Detail: "none is configured: hdfs:// paths cannot be read"}}
	}
	defer h.Close()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var all []finding
	active := map[string]bool{}
	for _, s := range h.Check(ctx) {
		f := finding{Check: "hdfs", OK: true, Detail: fmt.Sprintf("%s: %s is active", s.NameService, s.NameNode)}
		active[s.NameService] = active[s.NameService] || s.Active
		switch {
		case s.Err != nil:
			f.OK, f.Detail = false, fmt.Sprintf("%s: %s: %v", s.NameService, s.NameNode, s.Err)
			f.Advice = "start it, or correct hdfs.name_nodes (CAPRI_HDFS_NAME_NODES); with Kerberos, see what the message says of it"
		case s.SafeMode:
			f.OK, f.Detail = false, f.Detail+", and in safe mode: nothing can be written"
			f.Advice = "wait until its data-nodes have reported; hdfs dfsadmin -safemode get tells how far it is"
		case !s.Active:
			f.Detail = fmt.Sprintf("%s: %s is on standby", s.NameService, s.NameNode)
		}
		all = append(all, f)
	}
	for _, s := range c.HDFS.NameServices() {
		if !active[s.Name] {
			all = append(all, finding{"hdfs", false, s.Name + " has no active name-node: paths on it cannot be looked at", "make one active (hdfs haadmin), or start them"})
		}
	}
	return all
}

// examineShim looks for the program that holds the jobs, where the worker looks for it.
func examineShim() finding {
	f := finding{Check: "shim", OK: true}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	path := filepath.Join(filepath.Dir(self), shim.ProgramName)
	if err == nil {
		err = unix.Access(path, unix.X_OK)
	}
	f.Detail = path
	if err != nil {
		f.OK, f.Detail, f.Advice = false, fmt.Sprintf("%s: %v", path, err), "put "+shim.ProgramName+" beside capri; no worker can run jobs without it"
	}
	return f
}

// examineClients looks for the programs that job types need, where a worker of this machine looks for them. That one is
// absent is a fault only where somebody has configured it: few machines run jobs of each type.
func examineClients(c *conf.Config) finding {
	f := finding{Check: "clients", OK: true}
	clients := job.Clients{Path: c.Worker.Path, Configured: c.Worker.Clients.ByName()}
	var there, absent, wrong []string
	for _, name := range job.ClientNames {
		path, err := clients.Find(name)
		switch {
		case err == nil:
			there = append(there, name+" "+path)
		case clients.IsConfigured(name):
			wrong = append(wrong, err.Error())
		default:
			absent = append(absent, name+" (for "+clients.Use(name)+")")
		}
	}
	f.Detail = strings.Join(there, ", ")
	if len(absent) > 0 {
		f.Detail += "; not on this machine: " + strings.Join(absent, ", ")
	}
	if len(wrong) > 0 {
		f.OK, f.Detail = false, strings.Join(wrong, "; ")
		f.Advice = "install it where worker.clients says, or correct that; jobs that need it fail on this machine"
	}
	return f
}

func (a *app) examineAPI(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	f := finding{Check: "api"}
	c, err := a.client()
	if err == nil {
		status, e := c.Status(ctx)
		if err = e; err == nil {
			f.OK = true
			f.Detail = fmt.Sprintf("capri %s answers, %d nodes", status.Version, status.Nodes)
			if status.Nodes == 0 {
				f.OK, f.Advice = false, "start a worker: nothing runs without one"
			}
			return f
		}
	}
	f.Detail = err.Error()
	var refused *client.Error
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized:
		f.Advice = "give an app key: --token, --token-file or CAPRI_TOKEN"
	case errors.Is(err, capri.ErrUnavailable):
		f.Advice = "start capri standalone, or capri master; or name its address with --server or CAPRI_SERVER"
	default:
		f.Advice = "look at the server's log"
	}
	return f
}
