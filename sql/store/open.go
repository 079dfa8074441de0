package store

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"capri"
	"capri/sql/dialect"
)

// Options say which database to open. Exactly one of Path (SQLite) and DSN (MySQL, MariaDB) is set.
type Options struct {
	Path      string      // of the SQLite file; its folder must exist
	DSN       string      // user:password@tcp(host:port)/database
	MaxConns  int         // of MySQL; 0: 16
	BeatConns int         // of MySQL, for beats and leases; 0: 3
	TLS       *tls.Config // to MySQL; nil: as the DSN says
	Log       *slog.Logger

	// Now replaces the database's clock, in tests.
	Now func() capri.Instant
}

// Store is the database. It is safe for concurrent use.
type Store struct {
	read  *sql.DB // queries outside a transaction
	write *sql.DB // transactions; with SQLite one connection, because a second writer could only wait
	beat  *sql.DB // beats and leases have their own few connections and short limits (design §4 rule 6)
	queue *queue  // of SQLite's transactions; nil: a server's have none
	d     *dialect.Dialect
	log   *slog.Logger
	now   func() capri.Instant

	ids    idBlocks
	counts lately[Counts]
	loads  lately[Running]
	secret atomic.Pointer[[]byte] // ClusterSecret; it never changes
}

// Open connects, but neither waits for a database that is down nor migrates it: see Ping and package schema.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{log: o.Log, now: o.Now}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	switch {
	case (o.Path == "") == (o.DSN == ""):
		return nil, capri.Invalid("database.dsn", o.DSN, "either a data directory for SQLite or a DSN for MySQL")
	case o.Path != "":
		err = s.openSQLite(o.Path)
	default:
		err = s.openMySQL(o)
	}
	if err != nil {
		return nil, err
	}
	s.ids.next = map[string]*idRange{}
	return s, nil
}

func (s *Store) openSQLite(path string) error {
	s.d = dialect.SQLite
	if s.now == nil {
		s.now = func() capri.Instant { return capri.InstantOf(time.Now()) }
	}
	if dir := filepath.Dir(path); dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("open database %s: %w", path, err)
		}
	}
	// The data directory lets job accounts pass through it, so the file itself has to keep them out; SQLite gives its
	// -wal and -shm the same mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = f.Chmod(0o600)
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	// A power cut must not undo "started", hence FULL. Transactions are immediate: a deferred one that reads and
	// then writes fails at once when somebody else wrote in between, whatever the busy time-out.
	dsn := func(extra string) string {
		return "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)" +
			"&_pragma=temp_store(MEMORY)&_pragma=mmap_size(0)" + extra
	}
	write, err := sql.Open("sqlite", dsn("&_txlock=immediate&_pragma=cache_size(-16000)"))
	if err != nil {
		return fmt.Errorf("open database %s: %w", path, err)
	}
	write.SetMaxOpenConns(1)
	read, err := sql.Open("sqlite", dsn("&_pragma=cache_size(-4000)"))
	if err != nil {
		write.Close()
		return fmt.Errorf("open database %s: %w", path, err)
	}
	read.SetMaxOpenConns(4)
	read.SetMaxIdleConns(2)
	s.read, s.write, s.beat, s.queue = read, write, write, &queue{}
	return nil
}

// driverLog takes what the driver says of its connections, which it would write to stderr as it likes. What comes of it
// for whoever uses one is returned to him as an error.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) { l.log.Debug("database driver", "says", fmt.Sprint(v...)) }

func (s *Store) openMySQL(o Options) error {
	s.d = dialect.MySQL
	cfg, err := mysql.ParseDSN(o.DSN)
	if err != nil {
		return capri.Invalid("database.dsn", "", "user:password@tcp(host:port)/database")
	}
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.ClientFoundRows, cfg.InterpolateParams = true, true // found, not changed, rows: a compare-and-set counts them
	cfg.RejectReadOnly = true
	cfg.Logger = driverLog{s.log}
	if o.TLS != nil {
		cfg.TLS = o.TLS
	}
	cfg.Collation = "utf8mb4_bin"
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = 5*time.Second, 60*time.Second, 60*time.Second
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["time_zone"] = "'+00:00'"
	// A process that freezes inside a transaction keeps its lock on a lease's row. The server ends such a transaction by
	// itself after this, a little more than a lease's life; by default it would be eight hours without a successor.
	if cfg.Params["wait_timeout"] == "" {
		cfg.Params["wait_timeout"] = "10"
	}
	cfg.Params["sql_mode"] = "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'" // too long is an error, never a silent cut
	open := func(c *mysql.Config, conns int) (*sql.DB, error) {
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, fmt.Errorf("open database: %w", err)
		}
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
		db.SetConnMaxLifetime(3 * time.Minute)
		db.SetConnMaxIdleTime(5 * time.Second) // before the server's wait_timeout does it
		return db, nil
	}
	conns := o.MaxConns
	if conns <= 0 {
		conns = 16
	}
	if s.read, err = open(cfg, conns); err != nil {
		return err
	}
	short := cfg.Clone()
	short.ReadTimeout, short.WriteTimeout = 5*time.Second, 5*time.Second
	short.Params["innodb_lock_wait_timeout"] = "4" // the server gives up before we do, and executes nothing behind our back
	beats := o.BeatConns
	if beats <= 0 {
		beats = 3
	}
	if s.beat, err = open(short, beats); err != nil {
		s.read.Close()
		return err
	}
	s.write = s.read
	return nil
}

// Close ends all connections.
func (s *Store) Close() error {
	err := s.read.Close()
	if s.write != s.read {
		if e := s.write.Close(); err == nil {
			err = e
		}
	}
	if s.beat != s.write {
		if e := s.beat.Close(); err == nil {
			err = e
		}
	}
	return err
}

// DB is for package schema, which migrates; and Dialect tells it how.
func (s *Store) DB() *sql.DB               { return s.write }
func (s *Store) Dialect() *dialect.Dialect { return s.d }

// Ping asks whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.fault("reach the database", s.beat.PingContext(ctx))
}

// Now is the database's clock.
func (s *Store) Now(ctx context.Context) (capri.Instant, error) {
	if s.now != nil {
		return s.now(), nil
	}
	var ms int64
	if err := s.beat.QueryRowContext(ctx, "SELECT "+s.d.NowMillis).Scan(&ms); err != nil {
		return 0, s.fault("ask the database's clock", err)
	}
	return capri.Instant(ms), nil
}
