// Package sqltest gives each test a fresh, migrated database: SQLite always, MariaDB or MySQL where there is a server
// (see internal/testenv).
//
//	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) { … db.Store … db.Clock.Advance(time.Minute) … })
//
// Migrating costs a second or two, so nobody migrates for a test. SQLite's file is made once per process and
// copied. On a server the databases stay, from process to process: a test takes one that no other test has, by a
// named lock that dies with its connection, and empties it first. Their names carry a hash of the migrations; those
// of other migrations are dropped on the way.
package sqltest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"capri"
	"capri/internal/testenv"
	"capri/sql/schema"
	"capri/sql/store"
)

// Zone is the business zone of every test database.
const Zone = "UTC"

// DB is one test's database. Its clock stands still unless the test moves it.
type DB struct {
	Store   *store.Store
	Clock   *Clock
	Options store.Options // to open it a second time, as another process would
}

// Clock is the database's clock as the test sets it. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now capri.Instant
}

// Start is the instant at which every test's clock stands: a Friday, 2026-11-20T09:30:00Z.
var Start = capri.InstantOf(time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC))

// Now tells the time.
func (c *Clock) Now() capri.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Set puts the clock to an instant, backwards too.
func (c *Clock) Set(to capri.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = to
}

// Advance moves the clock and tells the new time.
func (c *Clock) Advance(by time.Duration) capri.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
	return c.now
}

// Each runs fn as a subtest on SQLite and, where there is a server, on MySQL.
func Each(t *testing.T, fn func(t *testing.T, db *DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { fn(t, SQLite(t)) })
	t.Run("mysql", func(t *testing.T) { fn(t, MySQL(t)) })
}

// EachAtOnce is Each for tests that wait most of the time: they run beside others of their kind, and their two databases
// beside each other (see testenv.AtOnce).
func EachAtOnce(t *testing.T, fn func(t *testing.T, db *DB)) {
	t.Helper()
	t.Parallel()
	for name, fresh := range map[string]func(testing.TB) *DB{"sqlite": SQLite, "mysql": MySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // before it takes a database: those who wait for their turn need none
			fn(t, fresh(t))
		})
	}
}

// SQLite gives a fresh database in a file of its own.
func SQLite(t testing.TB) *DB {
	t.Helper()
	template, err := sqliteTemplate()
	if err != nil {
		t.Fatalf("make a SQLite database: %v", err)
	}
	return fromFile(t, template)
}

// Copies notes what a SQLite database holds now, and gives databases with just that, at the same time of their clocks: for
// tests that do one thing after another to a world that is dear to make.
func (db *DB) Copies(t testing.TB) func() *DB {
	t.Helper()
	path := filepath.Join(quickDir(t), "copy.db")
	if _, err := db.Store.DB().ExecContext(context.Background(), "VACUUM INTO ?", path); err != nil {
		t.Fatalf("copy a database: %v", err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("copy a database: %v", err)
	}
	now := db.Clock.Now()
	return func() *DB {
		t.Helper()
		c := fromFile(t, file)
		c.Clock.Set(now)
		return c
	}
}

func fromFile(t testing.TB, file []byte) *DB {
	t.Helper()
	path := filepath.Join(quickDir(t), "capri.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatalf("make a SQLite database: %v", err)
	}
	return open(t, store.Options{Path: path})
}

// quickDir is a folder in memory where there is room: every commit waits for the disk, which makes a test of two
// milliseconds one of thirteen.
func quickDir(t testing.TB) string {
	t.Helper()
	const shm, room = "/dev/shm", 2 << 30 // containers often have 64 MB, which a test with many batches would fill
	var st syscall.Statfs_t
	if err := syscall.Statfs(shm, &st); err != nil || uint64(st.Bavail)*uint64(st.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shm, "capri-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// MySQL gives a fresh database on the test server; without a server the test is skipped.
func MySQL(t testing.TB) *DB {
	t.Helper()
	dsn, isNew, err := borrow(t, testenv.MySQL(t))
	if err != nil {
		t.Fatalf("make a MySQL database: %v", err)
	}
	db := open(t, store.Options{DSN: dsn})
	if isNew {
		_, err = schema.Up(context.Background(), db.Store.DB(), db.Store.Dialect(), Zone)
	} else {
		err = empty(context.Background(), db.Store.DB())
	}
	if err != nil {
		t.Fatalf("make a MySQL database: %v", err)
	}
	return db
}

// Empty runs fn as a subtest on a database of each kind that has no tables, for tests of the schema itself.
func Empty(t *testing.T, fn func(t *testing.T, db *DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { fn(t, open(t, store.Options{Path: filepath.Join(t.TempDir(), "capri.db")})) })
	t.Run("mysql", func(t *testing.T) { fn(t, EmptyMySQL(t)) })
}

// EmptyMySQL gives a database without tables on the test server, and drops it when the test ends.
func EmptyMySQL(t testing.TB) *DB {
	t.Helper()
	dsn, err := makeEmpty(t, testenv.MySQL(t))
	if err != nil {
		t.Fatalf("make a MySQL database: %v", err)
	}
	return open(t, store.Options{DSN: dsn})
}

func open(t testing.TB, o store.Options) *DB {
	t.Helper()
	db := &DB{Clock: &Clock{now: Start}}
	o.Now = db.Clock.Now
	db.Options = o
	db.Store = db.Again(t)
	return db
}

// Again opens the database once more, with its own pools and blocks of ids, as a second master would.
func (db *DB) Again(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), db.Options)
	if err != nil {
		t.Fatalf("open the database: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return s
}

// sqliteTemplate is the file of a migrated database, as bytes, so that it needs no cleaning up.
var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "capri-sqltest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "template.db")
	s, err := store.Open(context.Background(), store.Options{Path: path})
	if err != nil {
		return nil, err
	}
	if _, err := schema.Up(context.Background(), s.DB(), s.Dialect(), Zone); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.Close(); err != nil { // the last connection's end moves the WAL into the file
		return nil, err
	}
	return os.ReadFile(path)
})

// Text is all that some tables hold, for tests of what must not stand there.
func Text(t testing.TB, s *store.Store, tables ...string) string {
	t.Helper()
	var text strings.Builder
	for _, table := range tables {
		if err := writeTable(t.Context(), &text, s, table); err != nil {
			t.Fatalf("read the table %s: %v", table, err)
		}
	}
	return text.String()
}

func writeTable(ctx context.Context, to *strings.Builder, s *store.Store, table string) error {
	rows, err := s.DB().QueryContext(ctx, "SELECT * FROM "+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, dest := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		fmt.Fprintf(to, "%s\n", values)
	}
	return rows.Err()
}
