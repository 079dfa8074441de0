package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"capri"
	"capri/calendar"
	"capri/conf"
	"capri/files"
	"capri/files/hdfs"
	"capri/files/local"
	"capri/sql/store"
	"capri/wake"
	"capri/worker/job"
	"capri/worker/logs"
	"capri/worker/shim"
	"capri/worker/supervisor"
)

// Options say what a worker is. Store, Calendar, Node.Name and one of Directory and Dir are needed.
type Options struct {
	Store    Database
	Calendar calendar.Calendar
	Waker    wake.Waker // nil: it looks each PollInterval and wakes nobody

	Dir       string     // the data directory
	Directory *Directory // the same, held already (by a process that keeps more in it); Run closes it

	// Node is how it registers: Name, Pool, Slots, MemoryMB (what jobs may take together; 0: not limited), Port
	// and IP of its log handler ("": the first address of this host). The rest is filled in.
	Node capri.Node

	Files  files.Files // default: the mounted file systems
	Server string      // CAPRI_SERVER of its jobs
	CACert string      // CAPRI_CACERT of its jobs, where that server has TLS
	Secret []byte      // the cluster's: of LogHandler, which refuses everybody without one, and of attempts' tokens

	DefaultAccount string            // default: nobody
	Path           string            // of the jobs, after their own directory; default: the usual six
	PassEnv        []string          // names of variables of this process that jobs see
	Clients        map[string]string // programs that job types need, by name, where they are not to be looked for in Path
	HTTPAllow      []string          // networks that jobs of type http may call although they are refused otherwise
	Program        string            // capri, which runs jobs of some types; default: beside this program

	ClaimLimit   int           // batches claimed at once; default 100
	PollInterval time.Duration // default 500 ms
	BeatInterval time.Duration // default 5 s
	FetchTimeout time.Duration // of one task file; default 5 min
	KillGrace    time.Duration // between SIGTERM and SIGKILL; default 10 s

	// The node's lease counts from the sending of the newest beat that was acknowledged. A job starts only while it is
	// younger than StartWithin (default: four fifths of KillAfter), and all are ended when it is older than KillAfter.
	// KillAfter 0: never, for a node that nobody else can take for dead (standalone: the directory's lock is the lease).
	// LeaseWait: the jobs are left alone all the same, and masters never give them away.
	StartWithin time.Duration
	KillAfter   time.Duration
	LeaseWait   bool

	EndOverMemory bool // a job that has more memory than its task asks for is ended; else people are told
	NoCgroups     bool // of supervisor.Options

	LogStore     files.Store // outlives the node; logs are copied into it; nil: none
	LogStoreDays int         // how long they stay there; default 30
	LogLimitMB   int64       // of disk for each of a job's two logs; 0: no limit

	KeepDays  int     // how long logs of finished attempts stay; default 7
	MinFreeMB int64   // of disk, or it takes no jobs; default 64
	MaxLoad   float64 // of one minute for each CPU, above which it takes no jobs; 0: never mind
	ShimPath  string  // default: capri-shim beside this program

	Log *slog.Logger

	audit     time.Duration // how often it compares itself with the database; default 30 s
	usage     time.Duration // how often it reports what jobs use; default 30 s
	inventory time.Duration // least time between two reports of what it holds; default 30 s
	answer    time.Duration // of supervisor.Options.AnswerWithin
}

// FromConfig fills in what the configuration says.
func FromConfig(c *conf.Config) Options {
	return Options{
		Calendar: calendar.New(c.Zone()), Dir: c.Data,
		Node:           capri.Node{Name: c.Node.Name, Pool: c.Node.Pool, Slots: c.Node.Slots, MemoryMB: c.Node.MemoryMB},
		Files:          FilesFromConfig(c),
		DefaultAccount: c.Worker.DefaultAccount, Path: c.Worker.Path, PassEnv: c.Worker.PassEnv,
		Clients: c.Worker.Clients.ByName(), HTTPAllow: c.Worker.HTTPAllow,
		ClaimLimit: c.Worker.ClaimLimit, PollInterval: c.Worker.PollInterval, KeepDays: c.Worker.KeepDays, LogLimitMB: int64(c.Worker.LogLimitMB), LogStoreDays: c.Worker.LogStoreDays, MinFreeMB: int64(c.Worker.MinFreeMB), MaxLoad: float64(c.Worker.MaxLoadPercent) / 100,
		BeatInterval: c.Node.BeatInterval, KillGrace: c.Node.KillGrace,
		StartWithin: c.Node.StartWithin, KillAfter: c.Node.KillAfter, LeaseWait: c.Node.OnLeaseLost == conf.LeaseWait,
		EndOverMemory: c.Worker.OverMemory == conf.OverMemoryEnd, NoCgroups: c.Worker.Cgroups == conf.CgroupsOff,
	}
}

// FilesFromConfig is every file system that paths may lie on. Nothing is opened before it is needed.
func FilesFromConfig(c *conf.Config) files.Files {
	all := localFiles(local.Options{Parallel: c.Dependency.Parallel, Timeout: c.Dependency.PathTimeout})
	if h := hdfs.FromConfig(c); h != nil {
		all[hdfs.Scheme] = h
	}
	return files.ByScheme(all)
}

// LogStoreFromConfig is what worker.log_store names; nil where there is none.
func LogStoreFromConfig(c *conf.Config) (files.Store, error) {
	where := c.Worker.LogStore
	switch scheme, _ := files.Scheme(where); {
	case where == "":
		return nil, nil
	case scheme != hdfs.Scheme:
		return local.Store(where), nil
	}
	h := hdfs.FromConfig(c)
	if h == nil {
		return nil, capri.Invalid("worker.log_store", where, "a directory, or an HDFS that hdfs.name_nodes lists")
	}
	s, err := h.Store(where)
	if err != nil {
		return nil, fmt.Errorf("worker.log_store: %w", err)
	}
	return s, nil
}

func localFiles(o local.Options) map[string]files.Files {
	l := local.New(o)
	return map[string]files.Files{"": l, "file": l}
}

func (o *Options) fill() error {
	switch {
	case o.Store == nil:
		return errors.New("worker: no store")
	case o.Node.Name == "":
		return capri.Invalid("node.name", "", "a name")
	case o.Node.Slots < 1:
		return capri.Invalid("node.slots", strconv.Itoa(o.Node.Slots), "at least one slot")
	case o.KillAfter > 0 && o.StartWithin >= o.KillAfter:
		return capri.Invalid("node.start_within", o.StartWithin.String(), "less than node.kill_after, which is "+o.KillAfter.String()+": a job that starts must have time to run")
	}
	if o.LeaseWait {
		o.KillAfter = 0
	}
	if o.StartWithin == 0 {
		o.StartWithin = o.KillAfter * 4 / 5
	}
	o.Node.KillAfter, o.Node.LeaseWait = o.KillAfter, o.LeaseWait
	defaults := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	defaults(&o.PollInterval, 500*time.Millisecond)
	defaults(&o.BeatInterval, 5*time.Second)
	defaults(&o.FetchTimeout, 5*time.Minute)
	defaults(&o.KillGrace, 10*time.Second)
	o.Node.KillGrace = o.KillGrace
	defaults(&o.audit, 30*time.Second)
	defaults(&o.inventory, 30*time.Second)
	defaults(&o.usage, 30*time.Second)
	if o.KeepDays <= 0 {
		o.KeepDays = conf.Default().Worker.KeepDays
	}
	if o.LogStoreDays <= 0 {
		o.LogStoreDays = conf.Default().Worker.LogStoreDays
	}
	if o.ClaimLimit <= 0 {
		o.ClaimLimit = 100
	}
	if o.MinFreeMB == 0 {
		o.MinFreeMB = 64
	}
	if o.DefaultAccount == "" {
		o.DefaultAccount = "nobody"
	}
	if o.Path == "" {
		o.Path = conf.Default().Worker.Path
	}
	if o.Node.Pool == "" {
		o.Node.Pool = conf.Default().Node.Pool
	}
	if o.Waker == nil {
		o.Waker = wake.NewLocal()
	}
	if o.Files == nil {
		o.Files = files.ByScheme(localFiles(local.Options{}))
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Node.IP == "" {
		o.Node.IP = firstAddress()
	}
	o.Node.CheckInterval = max(1, int(o.BeatInterval.Round(time.Second)/time.Second))
	return nil
}

// firstAddress is where others most likely reach this host.
func firstAddress() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// Worker is one life of a node.
type Worker struct {
	o         Options
	db        Database
	log       *slog.Logger
	node      string
	directory *Directory
	logs      *logs.Dir
	jobs      *job.Maker
	accounts  *job.Accounts
	shims     *supervisor.Supervisor
	table     *table
	jobDirs   *jobDirs
	ships     *shipper // nil: there is no log store
	lease     lease
	looks     looks
	health    health

	starts *queue[*attempt]
	backs  *queue[giveBack]
	ends   *queue[ending]

	preps     chan struct{}  // bounds the preparations that wait for something
	preparing sync.WaitGroup // all of those
	judging   sync.WaitGroup // looks at outputs
	freed     chan struct{}  // a slot is free, or something else makes claiming worthwhile
	disowned  chan struct{}  // the registration is not ours any more

	mu       sync.Mutex
	boot     string    // of the registration; "" while it is not ours
	pauseTil time.Time // nothing is claimed before
	audited  time.Time // when we last compared ourselves with the database
	short    bool      // it takes nothing new: see shortOf
	closed   bool
}

// New takes the data directory. Run it or Close it.
func New(o Options) (*Worker, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	d := o.Directory
	if d == nil {
		var err error
		if d, err = OpenDirectory(o.Dir); err != nil {
			return nil, err
		}
	}
	l, err := logs.Open(d.in(logDir))
	if err != nil {
		d.Close()
		return nil, err
	}
	w := &Worker{
		o: o, db: o.Store, log: o.Log, node: o.Node.Name, directory: d, logs: l,
		jobs: job.NewMaker(job.MakerOptions{Calendar: o.Calendar, Path: o.Path, PassEnv: passed(o.PassEnv), Server: o.Server, CACert: o.CACert,
			Clients: job.Clients{Path: o.Path, Configured: o.Clients}, Program: o.Program, HTTPAllow: o.HTTPAllow}),
		accounts: job.NewAccounts(o.DefaultAccount),
		table:    newTable(o.Node.Slots, o.Node.MemoryMB),
		jobDirs:  newJobDirs(d, o.Node.Slots),
		lease:    lease{killAfter: o.KillAfter, startWithin: o.StartWithin},
		looks:    looks{files: o.Files, known: map[capri.PathCondition]*look{}},
		health:   health{log: o.Log},
		starts:   newQueue[*attempt](pace), backs: newQueue[giveBack](pace), ends: newQueue[ending](pace),
		preps: make(chan struct{}, 64), freed: make(chan struct{}, 1),
		disowned: make(chan struct{}, 1),
	}
	if w.ships, err = newShipper(w); err != nil {
		w.Close()
		return nil, err
	}
	if dir := d.passableFor(); dir != "" && os.Geteuid() == 0 {
		w.log.Warn("jobs of other accounts cannot reach their directories: let others pass through (chmod o+x)", "directory", dir)
	}
	return w, nil
}

// pace lets what arrives close together share a transaction.
const pace = 2 * time.Millisecond

// most rows of one group: about one statement's.
const most = 500

func passed(names []string) []string {
	var env []string
	for _, name := range names {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Name is the node's.
func (w *Worker) Name() string { return w.node }

// Close gives the data directory free. Run does so itself.
func (w *Worker) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return errors.Join(w.logs.Close(), w.directory.Close())
}

// stopWithin bounds how long a stop may wait for a database that does not answer. What could not be written by then
// is found by the next Run.
const stopWithin = 5 * time.Second

// Run registers, adopts what an earlier process left, and works until ctx ends; then it takes nothing new, gives back
// what has not started, and lets go of the shims, whose jobs go on. It returns nil after such a stop.
func (w *Worker) Run(ctx context.Context) error {
	defer w.Close()
	// What is being written when ctx ends is still written, so that the next life finds little to wonder about.
	hard, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		if sleep(hard, stopWithin) {
			end()
		}
	})()

	var err error
	w.shims, err = supervisor.Open(ctx, supervisor.Options{Dir: w.directory.in(shimDir), ShimPath: w.o.ShimPath, Log: w.log, AnswerWithin: w.o.answer, NoCgroups: w.o.NoCgroups})
	if err != nil {
		if ctx.Err() != nil { // stopped while it began
			return nil
		}
		return err
	}
	defer w.shims.Close()
	err = w.await(ctx, w.register)
	if err == nil {
		err = w.await(ctx, w.adopt)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	w.log.Info("worker runs", "node", w.node, "pool", w.o.Node.Pool, "slots", w.o.Node.Slots, "directory", w.directory.path, "adopted", w.table.jobs())

	var beats, exits, writers sync.WaitGroup
	beats.Go(func() { w.beats(ctx) })
	beats.Go(func() { w.watchLease(ctx) })
	beats.Go(func() { w.reportInventories(ctx) })
	beats.Go(func() { w.reportUsage(ctx) })
	beats.Go(func() { w.trimRunning(ctx) })
	beats.Go(func() { w.watchProgress(ctx) })
	defer w.ships.start()()
	beats.Go(func() { w.cleanUp(ctx) })
	exits.Go(func() { w.readExits(ctx) })
	var starter sync.WaitGroup
	starter.Go(func() { w.startAll(ctx, hard) })
	writers.Go(func() { w.giveBackAll(hard) })
	writers.Go(func() { w.finishAll(hard) })

	w.take(ctx, hard) // until ctx ends

	w.preparing.Wait()
	w.starts.close()
	starter.Wait()
	exits.Wait()
	w.judging.Wait()
	w.backs.close()
	w.ends.close()
	writers.Wait()
	beats.Wait()
	w.leave(hard)
	w.log.Info("worker has stopped", "node", w.node, "jobs_going_on", w.table.jobs())
	return nil
}

// registered gives the boot id under which we may claim; "" while the registration is not ours.
func (w *Worker) registered() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.boot
}

// disown notes that the database refused us; the next beat registers anew.
func (w *Worker) disown(boot string, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.boot == boot && boot != "" {
		w.boot = ""
		w.log.Error("the registration is not ours any more: the jobs here are ended, and nothing is claimed until it is ours again", "node", w.node, "err", why)
		select {
		case w.disowned <- struct{}{}:
		default:
		}
	}
}

// register takes the registration over under a new boot id.
func (w *Worker) register(ctx context.Context) error {
	last, err := w.directory.lastName()
	if err != nil {
		return err
	}
	if last != "" && last != w.node {
		// Its running jobs belong to the other node in the database, and their ends would be nobody's.
		held, err := w.shims.Running(ctx)
		if err != nil {
			return err
		}
		if len(held) > 0 {
			return capri.Conflict("the data directory %s is node %s, which has %d jobs running: start it under that name, or wait until they have ended",
				w.directory.path, last, len(held))
		}
	}
	n := w.o.Node
	n.BootID = random()
	n.Clients = w.clients()
	w.measure(&n)
	at, err := w.enter(ctx, n)
	if err != nil {
		return err
	}
	w.renew(at) // a registration is a beat
	if last != w.node {
		if err := w.directory.setName(w.node); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boot = n.BootID
	return nil
}

// enter writes the registration; at is when that was sent. A name that another directory has is taken only when that
// one's beat has stood still for three of its intervals, counted here: a difference of two clocks would tell nothing.
func (w *Worker) enter(ctx context.Context, n capri.Node) (at time.Duration, err error) {
	at = shim.Now()
	err = w.db.RegisterNode(ctx, n, w.directory.id)
	var seen *store.NameTakenError
	if !errors.As(err, &seen) {
		return at, err
	}
	w.log.Warn("another data directory has registered this node's name; its beat is watched for three intervals", "node", w.node, "interval", seen.Interval)
	for look := range 3 {
		if !sleep(ctx, seen.Interval) {
			return 0, ctx.Err()
		}
		if look == 2 {
			n.Beat = seen.Beat
		}
		at = shim.Now()
		err = w.db.RegisterNode(ctx, n, w.directory.id)
		var now *store.NameTakenError
		if !errors.As(err, &now) {
			return at, err
		}
		if now.Beat != seen.Beat || now.BootID != seen.BootID {
			return 0, err
		}
	}
	return 0, err
}

// leave tells that this directory is not in use any more, so that another may have the name at once.
func (w *Worker) leave(ctx context.Context) {
	boot := w.registered()
	if boot == "" {
		return
	}
	left, err := w.db.LeaveNode(ctx, w.node, boot)
	switch {
	case err != nil:
		w.health.note(err)
	case !left:
		w.log.Info("the registration stays, because attempts are not over", "node", w.node)
	}
}

// hurry makes the take loop look at once.
func (w *Worker) hurry() {
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// cleanText makes one line of what a program or a file system said, for people and for a column.
func cleanText(s string, most int) string {
	s = strings.ToValidUTF8(s, "�")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }), " ")
	s = strings.TrimSpace(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
