package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"capri"
	"capri/action"
	"capri/alerting"
	"capri/alerting/channel"
	"capri/alerting/words"
	"capri/api"
	"capri/auth"
	"capri/calendar"
	"capri/certs"
	"capri/conf"
	"capri/master"
	"capri/metrics"
	"capri/sql/schema"
	"capri/sql/store"
	"capri/wake"
	"capri/worker"
)

// process is what every long-running capri is made of.
type process struct {
	conf         *conf.Config
	log          *slog.Logger
	store        *store.Store
	calendar     calendar.Calendar
	waker        wake.Waker
	redis        *wake.Redis // nil: none is configured
	redisOptions wake.RedisOptions
	alerting     master.Alerting
	turns        metrics.Durations          // of the services that run here
	senders      map[string]alerting.Sender // for people who try them
}

// newLogger writes to standard error, which is where a service manager looks.
func newLogger(c *conf.Config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Log.Level)) // conf has checked it
	o := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// beginProcess opens the database, waiting for one that is down, and checks that it is ours to work on. migrate
// is for standalone, which nobody has to tell about schemas.
func (a *app) beginProcess(ctx context.Context, c *conf.Config, migrate bool) (*process, error) {
	// Idle memory is a promise (docs/operations.md): give back what a mark took soon after it.
	debug.SetGCPercent(50)
	p := &process{conf: c, log: newLogger(c, a.err), calendar: calendar.New(c.Zone())}
	s, err := openStore(ctx, c)
	if err != nil {
		return nil, err
	}
	p.store = s
	if err := p.awaitDatabase(ctx, migrate); err != nil {
		s.Close()
		return nil, err
	}
	p.waker = wake.NewLocal()
	if c.Redis.Addr != "" {
		o, err := redisOptions(c)
		if err != nil {
			s.Close()
			return nil, err
		}
		p.redisOptions = o
		p.redis = wake.NewRedis(o, p.log)
		p.waker = p.redis
	}
	return p, nil
}

func redisOptions(c *conf.Config) (wake.RedisOptions, error) {
	secured, err := certs.Client(c.Redis.TLS.Files("redis.tls"))
	return wake.RedisOptions{Addr: c.Redis.Addr, Password: c.Redis.Password, DB: c.Redis.DB, TLS: secured}, err
}

// awaitDatabase waits until the database answers, says so once and each minute, and goes on; a schema or a zone
// that does not fit ends it.
func (p *process) awaitDatabase(ctx context.Context, migrate bool) error {
	name := databaseName(p.conf)
	for n := 0; ; n++ {
		err := p.store.Ping(ctx)
		if err == nil && migrate {
			_, err = schema.Up(ctx, p.store.DB(), p.store.Dialect(), p.conf.Timezone)
		}
		if err == nil {
			err = schema.Check(ctx, p.store.DB(), p.store.Dialect())
		}
		if err == nil {
			err = schema.CheckZone(ctx, p.store.DB(), p.store.Dialect(), p.conf.Timezone)
		}
		if err == nil {
			if n > 0 {
				p.log.Info("the database answers", "database", name)
			}
			return nil
		}
		if p.conf.Database.Driver() == conf.SQLite || !errors.Is(err, capri.ErrUnavailable) {
			return err
		}
		if n%60 == 0 {
			p.log.Warn("waiting for the database", "database", name, "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (p *process) close() { p.store.Close() }

// prepareAlerting reads how alerts leave; what is wrong with it is said before anything runs.
func (p *process) prepareAlerting(ctx context.Context) error {
	senders, err := channel.FromConfig(p.conf)
	if err != nil {
		return err
	}
	texts, err := words.New(words.Options{Language: p.conf.Alerting.Language, Dir: p.conf.Alerting.Templates})
	if err != nil {
		return err
	}
	sends := map[string]func(context.Context, alerting.Message) (string, error){}
	for name, to := range senders {
		sends[name] = func(ctx context.Context, m alerting.Message) (string, error) { return channel.Send(ctx, to, m) }
	}
	p.senders = senders
	p.alerting = master.Alerting{Senders: sends, Limits: channel.LimitsFromConfig(p.conf), Compose: texts.Message}
	server := strings.TrimRight(p.conf.Alerting.Link, "/")
	if server == "" {
		return nil
	}
	secret, err := p.store.ClusterSecret(ctx)
	if err != nil {
		return err
	}
	p.alerting.Links = func(incident int64, person string, until capri.Instant) (look, acknowledge string) {
		by := cmp.Or(person, "somebody with the link")
		return "", server + "/ack?t=" + auth.AckToken(secret, incident, by, until)
	}
	return nil
}

// newMaster makes the services of this process.
func (p *process) newMaster(name, listens string, sole bool) *master.Master {
	return master.New(master.Options{
		Store: p.store, Calendar: p.calendar, Waker: p.waker, Files: worker.FilesFromConfig(p.conf),
		Name: name, Host: hostName(), Listen: listens, Version: version, Sole: sole,
		Redis:    p.redisOptions,
		LeaseTTL: p.conf.Lease.TTL, LeaseRenew: p.conf.Lease.Renew,
		DependencyEvery: p.conf.Dependency.Interval, DispatchEvery: p.conf.Dispatch.Interval, LostAfter: p.conf.Node.LostAfter,
		Quality: p.conf.Quality, Probes: p.conf.Probes, Alerting: p.alerting,
		Observe: func(row string, took time.Duration, err error) {
			outcome := "done"
			if err != nil {
				outcome = "failed"
			}
			p.turns.Add(took, "service", row, "outcome", outcome)
		},
		Random: mathrand.New(mathrand.NewPCG(uint64(time.Now().UnixNano()), 0)),
		Log:    p.log,
	})
}

// workerOptions are those of this process's node.
func (p *process) workerOptions(ctx context.Context, dir *worker.Directory, server, caCert string) (worker.Options, error) {
	secret, err := p.store.ClusterSecret(ctx)
	o := worker.FromConfig(p.conf)
	o.Store, o.Waker, o.Log, o.Directory, o.Server, o.CACert, o.Secret = p.store, p.waker, p.log, dir, server, caCert, secret
	if err == nil {
		o.LogStore, err = worker.LogStoreFromConfig(p.conf)
	}
	return o, err
}

// newAPI makes the handler of the API.
func (p *process) newAPI(ctx context.Context, logs api.LogReader) http.Handler {
	actions := action.New(p.store, p.calendar, p.waker, p.log)
	actions.WithoutHDFS = len(p.conf.HDFS.NameNodes) == 0
	channels := api.Channels{Names: slices.Sorted(maps.Keys(p.alerting.Senders)), Compose: p.alerting.Compose,
		Talk: func(ctx context.Context, name string, m alerting.Message) (string, error) {
			return channel.Talk(ctx, p.senders[name], m)
		}}
	// What starting took, most of it for the migrations and the API's description, is not needed again.
	defer func() {
		runtime.GC() // pooled buffers, 16 MB of those that read migrations, outlive one collection
		debug.FreeOSMemory()
	}()
	return api.New(api.Options{Store: p.store, Actions: actions, Zone: p.conf.Zone(), Version: version, Log: p.log, Logs: logs, Channels: channels, Turns: &p.turns,
		Rate:     api.Rate{PerSecond: p.conf.API.Rate, Burst: p.conf.API.Burst},
		Fits:     func(ctx context.Context) error { return schema.Check(ctx, p.store.DB(), p.store.Dialect()) },
		Stopping: func() bool { return ctx.Err() != nil }})
}

// newServer makes a server with the limits that keep slow and talkative callers from holding it. An answer may take longer than
// any operation does; a stream moves its own limit as it goes.
func newServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelInfo)}
}

// serve runs a handler until ctx ends, then lets the requests under way finish for a moment. secured nil: in plain HTTP.
func serve(ctx context.Context, l net.Listener, h http.Handler, secured *certs.Server, log *slog.Logger) error {
	srv := newServer(h, log)
	run := func() error { return srv.Serve(l) }
	if secured != nil {
		srv.Handler, srv.TLSConfig = onlyTLS(h), secured.Config()
		run = func() error { return srv.ServeTLS(l, "", "") }
	}
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		srv.Close()
	}
	return nil
}

// onlyTLS tells browsers never to come here without TLS again, for a year (RFC 6797).
func onlyTLS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		next.ServeHTTP(w, r)
	})
}

// listen binds an address, with an error that says what to do.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, capri.Conflict("cannot listen on %s (%v): stop what listens there, or choose another address with --listen", address, err)
	}
	return l, nil
}

// door is where the API listens.
type door struct {
	net.Listener
	secured *certs.Server // nil: plain HTTP
}

// openDoor listens as the configuration says, and warns where keys would cross the network in the clear.
func (p *process) openDoor(ctx context.Context) (*door, error) {
	d := &door{}
	var err error
	if t := p.conf.TLS; t.Cert != "" {
		if d.secured, err = certs.NewServer(certs.ServerFiles{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA}, p.log); err != nil {
			return nil, err
		}
	}
	if d.Listener, err = listen(ctx, p.conf.Listen); err != nil {
		return nil, err
	}
	if ip := d.Addr().(*net.TCPAddr).IP; d.secured == nil && !ip.IsLoopback() {
		p.log.Warn("THE API IS SERVED IN PLAIN HTTP to other machines: keys and passwords can be read on their way. Set tls.cert and tls.key, or listen on 127.0.0.1 behind a proxy that has TLS", "listen", d.Addr().String())
	}
	return d, nil
}

// server is the address under which jobs of this machine reach the door.
func (d *door) server() string {
	host, port, _ := net.SplitHostPort(d.Addr().String())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if d.secured == nil {
		return "http://" + net.JoinHostPort(host, port)
	}
	if name := d.secured.Name(); name != "" && !d.secured.IsFor(host) {
		host = name // else nobody could check the certificate
	}
	return "https://" + net.JoinHostPort(host, port)
}

// part is something that a process does until ctx ends.
type part = func(ctx context.Context) error

// api is the part that serves the API.
func (p *process) api(d *door, logs api.LogReader) part {
	return func(ctx context.Context) error { return serve(ctx, d, p.newAPI(ctx, logs), d.secured, p.log) }
}

// run runs parts until one fails or ctx ends; the first that fails stops the rest. Wake-ups go on to the last: the others
// are woken when the leases were given back.
func (p *process) run(ctx context.Context, parts ...part) error {
	defer p.wakeOthers(ctx)()
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		g.Go(func() error { return part(ctx) })
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	p.log.Info("stopped", "err", err)
	return err
}

// wakeOthers runs the wake-ups over Redis beyond ctx, until the function that it gives is called.
func (p *process) wakeOthers(ctx context.Context) (stop func()) {
	if p.redis == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.redis.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// hostName names this machine in leases and logs.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}
