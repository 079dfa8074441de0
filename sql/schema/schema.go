// Package schema brings a database to the tables this binary knows, and says when it may not be used. The
// migrations of both dialects have the same numbers and end with the same tables, columns, indexes and views
// (see the test that compares them); what differs is DDL alone.
//
// It promises that masters started together migrate once, that an interrupted migration can be run again, and that
// nothing but Reset and Clean ever takes data away: migrations only add (design §11).
package schema

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"capri"
	"capri/sql/dialect"
)

//go:embed migrations
var migrations embed.FS

// minBinary is the lowest number of newest known migration that a binary must have to work on this schema. Raise
// it to a migration's own number when that migration breaks binaries that do not know it: they then refuse to
// start instead of doing wrong. Most migrations only add, and leave it alone, so that upgrades roll.
const minBinary = 1

// versionTable is goose's record of what was applied.
const versionTable = "goose_db_version"

// Keys of dic_data that belong to the schema, not to people.
const (
	keyZone      = "timezone"
	keyMinBinary = "min_binary"
)

// Migration is one step of the schema, and whether this database has it.
type Migration struct {
	Version   int64
	Name      string
	Applied   bool
	AppliedAt capri.Instant // 0 when not applied
}

// Up applies what is missing and tells what it applied. The first migration writes the business zone down; a later
// one with another zone is refused before it changes anything.
func Up(ctx context.Context, db *sql.DB, d *dialect.Dialect, zone string) (applied []string, err error) {
	if err := validZone(zone); err != nil {
		return nil, err
	}
	err = locked(ctx, db, d, func(p *goose.Provider) error {
		applied, err = up(ctx, db, d, p, zone)
		return err
	})
	if err == nil && d == dialect.SQLite && len(applied) > 0 {
		_, err = db.ExecContext(ctx, "PRAGMA shrink_memory") // the connection stays, and would keep what migrating took
	}
	return applied, err
}

// validZone refuses Local as well: it means another zone on the next machine.
func validZone(zone string) error {
	if _, err := time.LoadLocation(zone); err != nil || zone == "" || zone == "Local" {
		return capri.Invalid("timezone", zone, "a zone's name such as UTC or Asia/Shanghai")
	}
	return nil
}

func up(ctx context.Context, db *sql.DB, d *dialect.Dialect, p *goose.Provider, zone string) ([]string, error) {
	stored, found, err := storedZone(ctx, db, d)
	if err != nil {
		return nil, err
	}
	if found && stored != zone {
		return nil, otherZone(stored, zone)
	}
	results, err := p.Up(ctx)
	var partial *goose.PartialError
	for errors.As(err, &partial) {
		results = append(results[:len(results):len(results)], partial.Applied...)
		if !doneButNotNoted(err) {
			break
		}
		if _, err := db.ExecContext(ctx, "INSERT INTO "+versionTable+" (version_id, is_applied) VALUES (?, 1)", partial.Failed.Source.Version); err != nil {
			return nil, fmt.Errorf("note migration %s: %w", name(partial.Failed.Source), err)
		}
		var more []*goose.MigrationResult
		more, err = p.Up(ctx)
		results = append(append(results, partial.Failed), more...)
	}
	var applied []string
	for _, r := range results {
		applied = append(applied, name(r.Source))
	}
	if why := d.Down(err); err != nil && why != "" {
		return applied, fmt.Errorf("migrate: the database %s (%w)", why, err)
	}
	if err != nil {
		return applied, fmt.Errorf("migrate: %w", err)
	}
	mended, err := MakeLeases(ctx, db, d)
	if err != nil {
		return applied, err
	}
	if len(results) == 0 { // on a new database they come with its tables, and are not worth a word
		for _, service := range mended {
			applied = append(applied, "the lease of "+service)
		}
	}
	if !found {
		if err := put(ctx, db, d, keyZone, zone); err != nil {
			return applied, err
		}
	}
	// An old binary that finds a newer schema here must not lower what the newer one has set.
	if have, err := storedMinBinary(ctx, db); err != nil || have >= minBinary {
		return applied, err
	}
	return applied, put(ctx, db, d, keyMinBinary, strconv.Itoa(minBinary))
}

// doneButNotNoted reports whether a migration failed because its column or index is there already. MySQL commits an ALTER by itself,
// so a process that died right after it has not noted the migration; and since such a migration is one statement,
// all of it is done.
func doneButNotNoted(err error) bool {
	const duplicateColumn, duplicateKey = 1060, 1061
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == duplicateColumn || e.Number == duplicateKey)
}

// MakeLeases makes the rows of capri_service_lock that are missing, held by nobody, and tells which. A row that was lost
// begins above every epoch that left a trace, so that a master that slept meanwhile is still fenced.
func MakeLeases(ctx context.Context, db *sql.DB, d *dialect.Dialect) (made []string, err error) {
	have := map[string]bool{}
	rows, err := db.QueryContext(ctx, "SELECT service FROM capri_service_lock")
	if err != nil {
		return nil, fmt.Errorf("read the service leases: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var service string
		if err := rows.Scan(&service); err != nil {
			return nil, fmt.Errorf("read the service leases: %w", err)
		}
		have[service] = true
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the service leases: %w", err)
	}
	rows.Close() // SQLite has one connection for what follows
	epoch := int64(-1)
	for _, service := range capri.ServiceLeases {
		if have[service] {
			continue
		}
		if epoch < 0 {
			if epoch, err = firstEpoch(ctx, db, d); err != nil {
				return made, fmt.Errorf("look for the highest epoch: %w", err)
			}
		}
		_, err := db.ExecContext(ctx, "INSERT INTO capri_service_lock (service, holder, epoch, renewals, acquired_at) VALUES (?, '', ?, 0, 0)", service, epoch)
		if err != nil {
			return made, fmt.Errorf("make the lease of %s: %w", service, err)
		}
		made = append(made, service)
	}
	return made, nil
}

// tracelessGrants is more than a row can have been granted without a turn that wrote anything.
const tracelessGrants = 1000

// firstEpoch is what a lease's epochs may begin after: 0 in a database without a history.
func firstEpoch(ctx context.Context, db *sql.DB, d *dialect.Dialect) (int64, error) {
	highest := int64(0)
	there, err := tables(ctx, db, d)
	if err != nil {
		return 0, err
	}
	for _, table := range []string{"capri_service_lock", "service_run", "service_state", "batch_event", "batch_event_archive"} {
		if !slices.Contains(there, table) {
			continue // an older schema that is about to go
		}
		if table != "batch_event" && table != "batch_event_archive" {
			var epoch sql.NullInt64
			if err := db.QueryRowContext(ctx, "SELECT MAX(epoch) FROM "+table).Scan(&epoch); err != nil {
				return 0, err
			}
			highest = max(highest, epoch.Int64)
			continue
		}
		// Events may be a hundred million, and epoch has no index: one statement over all of them would outlast the
		// connection's time-out.
		var last sql.NullInt64
		if err := db.QueryRowContext(ctx, "SELECT MAX(id) FROM "+table).Scan(&last); err != nil {
			return 0, err
		}
		const step = 1_000_000
		for from := int64(0); from <= last.Int64; from += step {
			var epoch sql.NullInt64
			if err := db.QueryRowContext(ctx, "SELECT MAX(epoch) FROM "+table+" WHERE id >= ? AND id < ?", from, from+step).Scan(&epoch); err != nil {
				return 0, err
			}
			highest = max(highest, epoch.Int64)
		}
	}
	if highest > 0 {
		highest += tracelessGrants
	}
	return highest, nil
}

// Reset takes every table down and makes them anew: all data is lost, the numbering of ids too. The epochs of the leases go on.
func Reset(ctx context.Context, db *sql.DB, d *dialect.Dialect, zone string) error {
	if err := validZone(zone); err != nil {
		return err
	}
	return locked(ctx, db, d, func(p *goose.Provider) error {
		epoch, err := firstEpoch(ctx, db, d)
		if err != nil {
			return fmt.Errorf("look for the highest epoch: %w", err)
		}
		if _, err := p.DownTo(ctx, 0); err != nil {
			return fmt.Errorf("take the schema down: %w", err)
		}
		if _, err = up(ctx, db, d, p, zone); err != nil {
			return err
		}
		// A master that sleeps through this must not wake up with a valid epoch.
		if _, err := db.ExecContext(ctx, "UPDATE capri_service_lock SET epoch = ?", epoch); err != nil {
			return fmt.Errorf("set the leases' epochs: %w", err)
		}
		return nil
	})
}

// Clean deletes every row except what must outlive the data: which migrations ran, the zone, the blocks of ids (a
// worker may still hold a batch's number) and the epochs of the services (a master that sleeps through the cleaning
// must not wake up with a valid one). Pauses and settings go back to their defaults.
func Clean(ctx context.Context, db *sql.DB, d *dialect.Dialect) error {
	names, err := tables(ctx, db, d)
	if err != nil {
		return err
	}
	if !slices.Contains(names, "dic_data") {
		return capri.Conflict("the database has no tables yet: run capri migrate up")
	}
	for _, t := range names {
		var where string
		switch t {
		case versionTable, "id_block", "capri_service_lock", "sqlite_sequence":
			continue
		case "dic_data":
			where = " WHERE name NOT IN ('" + keyZone + "', '" + keyMinBinary + "')"
		}
		if err := withoutTriggers(ctx, db, d, t, func() error { return deleteAll(ctx, db, d, "DELETE FROM "+t+where) }); err != nil {
			return fmt.Errorf("clean table %s: %w", t, err)
		}
	}
	_, err = db.ExecContext(ctx, "UPDATE capri_service_lock SET paused = 0, paused_reason = '', paused_until = NULL, paused_by = '', paused_at = NULL, max_running = -1")
	if err != nil {
		return fmt.Errorf("clean table capri_service_lock: %w", err)
	}
	return nil
}

// withoutTriggers does something while a table's triggers, which keep others from deleting, are away: SQLite alone has any.
func withoutTriggers(ctx context.Context, db *sql.DB, d *dialect.Dialect, table string, do func() error) error {
	if d != dialect.SQLite {
		return do()
	}
	rows, err := db.QueryContext(ctx, "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", table)
	if err != nil {
		return err
	}
	defer rows.Close()
	triggers := map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return err
		}
		triggers[name] = text
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for name := range triggers {
		if _, err := db.ExecContext(ctx, "DROP TRIGGER "+name); err != nil {
			return err
		}
	}
	err = do()
	for _, text := range triggers {
		if _, e := db.ExecContext(ctx, text); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// deleteAll works in steps on MySQL, where deleting millions of rows at once outlasts the connection's time-out;
// SQLite drops a table's pages without looking at the rows.
func deleteAll(ctx context.Context, db *sql.DB, d *dialect.Dialect, text string) error {
	if d != dialect.MySQL {
		_, err := db.ExecContext(ctx, text)
		return err
	}
	const step = 20_000
	for {
		r, err := db.ExecContext(ctx, text+" LIMIT "+strconv.Itoa(step))
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n < step {
			return err
		}
	}
}

// Status lists the migrations this binary knows, and then those that only the database knows. It changes nothing.
func Status(ctx context.Context, db *sql.DB, d *dialect.Dialect) ([]Migration, error) {
	at, err := appliedAt(ctx, db, d)
	if err != nil {
		return nil, err
	}
	p, err := provider(db, d)
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, s := range p.ListSources() {
		t, ok := at[s.Version]
		all = append(all, Migration{Version: s.Version, Name: name(s), Applied: ok, AppliedAt: t})
		delete(at, s.Version)
	}
	for v, t := range at {
		all = append(all, Migration{Version: v, Name: fmt.Sprintf("%05d (of a newer capri)", v), Applied: true, AppliedAt: t})
	}
	slices.SortFunc(all, func(a, b Migration) int { return int(a.Version - b.Version) })
	return all, nil
}

// Version tells which migration the database has reached (0: none) and which one this binary knows as newest.
func Version(ctx context.Context, db *sql.DB, d *dialect.Dialect) (have, want int64, err error) {
	p, err := provider(db, d)
	if err != nil {
		return 0, 0, err
	}
	for _, s := range p.ListSources() {
		want = max(want, s.Version)
	}
	at, err := appliedAt(ctx, db, d)
	if err != nil {
		return 0, want, err
	}
	for v := range at {
		have = max(have, v)
	}
	return have, want, nil
}

// Check says whether this binary may work on this schema: an older one has to be migrated first, a newer one is
// fine unless it says that binaries as old as this one would do harm.
func Check(ctx context.Context, db *sql.DB, d *dialect.Dialect) error {
	have, want, err := Version(ctx, db, d)
	if err != nil {
		return err
	}
	if have < want {
		return capri.Conflict("the database's schema is at %d, this capri needs %d: run capri migrate up", have, want)
	}
	least, err := storedMinBinary(ctx, db)
	if err != nil {
		return err
	}
	if int64(least) > want {
		return capri.Conflict("the database's schema is at %d and refuses a capri that does not know at least %d (this one knows %d): use the newer capri", have, least, want)
	}
	return nil
}

// CheckZone refuses a process whose business zone is not the one the database was made with: the same mark would be
// another instant, and batches would be made twice or not at all.
func CheckZone(ctx context.Context, db *sql.DB, d *dialect.Dialect, zone string) error {
	stored, found, err := storedZone(ctx, db, d)
	switch {
	case err != nil:
		return err
	case !found:
		return capri.Conflict("the database has no business zone yet: run capri migrate up")
	case stored != zone:
		return otherZone(stored, zone)
	}
	return nil
}

func otherZone(stored, zone string) error {
	return capri.Conflict("the database was made for timezone %s, this process is configured with %s: set timezone: %s (CAPRI_TIMEZONE=%s), "+
		"or use another database; a database keeps its zone", stored, zone, stored, stored)
}

// locked runs fn while no other process migrates the same server's databases. MySQL's DDL commits by itself, so two
// at once would see each other's halves; the lock belongs to a connection of its own and ends with it. SQLite needs
// none: its DDL is transactional and its data directory belongs to one process.
func locked(ctx context.Context, db *sql.DB, d *dialect.Dialect, fn func(*goose.Provider) error) error {
	p, err := provider(db, d)
	if err != nil {
		return err
	}
	if d != dialect.MySQL {
		return fn(p)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	// This connection is idle while others migrate; the store's short wait_timeout would end it, and the lock with it.
	// So it must not go back to the pool.
	defer conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // that is the error it gives back
	if _, err := conn.ExecContext(ctx, "SET SESSION wait_timeout = 28800"); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	var got sql.NullInt64
	// Less than the connections' read time-out of 60 s, which would end the waiting with a broken connection.
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('capri_migrate', 50)").Scan(&got); err != nil {
		return fmt.Errorf("migrate: wait for the lock: %w", err)
	}
	if got.Int64 != 1 {
		return capri.Conflict("another process has been migrating for 50 s (it holds the lock capri_migrate): wait for it, then try again")
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK('capri_migrate')") //nolint:errcheck // closing frees it too
	return fn(p)
}

func provider(db *sql.DB, d *dialect.Dialect) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, path.Join("migrations", d.Name))
	if err != nil {
		return nil, err
	}
	kind := goose.DialectMySQL
	if d == dialect.SQLite {
		kind = goose.DialectSQLite3
	}
	p, err := goose.NewProvider(kind, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return p, nil
}

func name(s *goose.Source) string { return strings.TrimSuffix(path.Base(s.Path), ".sql") }

// tables lists the database's own tables, without views.
func tables(ctx context.Context, db *sql.DB, d *dialect.Dialect) ([]string, error) {
	text := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if d == dialect.MySQL {
		text = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'"
	}
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var n string
		if err := rows.Scan(&n); err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		names = append(names, n)
	}
	return names, rows.Err()
}

// appliedAt reads goose's table itself, because goose makes that table whenever it looks.
func appliedAt(ctx context.Context, db *sql.DB, d *dialect.Dialect) (map[int64]capri.Instant, error) {
	at := map[int64]capri.Instant{}
	if names, err := tables(ctx, db, d); err != nil || !slices.Contains(names, versionTable) {
		return at, err
	}
	rows, err := db.QueryContext(ctx, "SELECT version_id, tstamp FROM "+versionTable+" WHERE version_id > 0")
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var v int64
		var t time.Time
		if err := rows.Scan(&v, &t); err != nil {
			return nil, fmt.Errorf("read the schema's version: %w", err)
		}
		at[v] = capri.InstantOf(t)
	}
	return at, rows.Err()
}

func storedZone(ctx context.Context, db *sql.DB, d *dialect.Dialect) (zone string, found bool, err error) {
	if names, err := tables(ctx, db, d); err != nil || !slices.Contains(names, "dic_data") {
		return "", false, err
	}
	return get(ctx, db, keyZone)
}

func storedMinBinary(ctx context.Context, db *sql.DB) (int, error) {
	text, found, err := get(ctx, db, keyMinBinary)
	if err != nil || !found {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("dic_data holds min_binary = %q, which is no number", text)
	}
	return n, nil
}

func get(ctx context.Context, db *sql.DB, key string) (value string, found bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT value FROM dic_data WHERE name = ?", key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read setting %s: %w", key, err)
	}
	return value, true, nil
}

func put(ctx context.Context, db *sql.DB, d *dialect.Dialect, key, value string) error {
	if _, err := db.ExecContext(ctx, "INSERT INTO dic_data (name, value) VALUES (?, ?)"+d.Upsert([]string{"name"}, "value"), key, value); err != nil {
		return fmt.Errorf("write setting %s: %w", key, err)
	}
	return nil
}
