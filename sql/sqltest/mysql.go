package sqltest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"capri/internal/testenv"
	"capri/sql/dialect"
	"capri/sql/schema"
)

const (
	family = "capri_test_" // of every database made here
	most   = 32            // databases kept on a server; more tests at once than that wait for each other
)

// borrow takes a database for the test's life: one that was migrated before, to be emptied, or a new one, to be
// migrated.
func borrow(t testing.TB, server string) (dsn string, isNew bool, err error) {
	ctx := context.Background()
	conn, err := adminConn(t, server)
	if err != nil {
		return "", false, err
	}
	prefix, err := poolPrefix(t)
	if err != nil {
		return "", false, err
	}
	name := ""
	for i := 1; name == ""; i = i%most + 1 {
		try := fmt.Sprintf("%s%d", prefix, i)
		wait := 0
		if i == most {
			wait = 1 // all are taken: do not spin
		}
		ok, err := lock(ctx, conn, try, wait)
		if err != nil {
			return "", false, err
		}
		if ok {
			name = try
		}
	}
	// min_binary is the last thing that a migration writes: what was cut off before it is migrated again.
	var migrated int
	err = conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+name+".dic_data WHERE name = 'min_binary'").Scan(&migrated)
	if err != nil || migrated == 0 {
		isNew = true
		if err := sweep(ctx, conn, prefix); err != nil {
			return "", false, err
		}
		if _, err := conn.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+name); err != nil {
			return "", false, err
		}
	}
	dsn, err = dsnOf(server, name)
	return dsn, isNew, err
}

// makeEmpty makes a database for the test's life.
func makeEmpty(t testing.TB, server string) (dsn string, err error) {
	ctx := context.Background()
	conn, err := adminConn(t, server)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("%sempty_%08x", family, rand.Uint32())
	if _, err := lock(ctx, conn, name, 0); err != nil { // or somebody's sweep would take it for a left-over
		return "", err
	}
	if _, err := conn.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if _, err := conn.ExecContext(ctx, "DROP DATABASE "+name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return dsnOf(server, name)
}

// adminConn is one connection without a database, for the test's life; its locks end with it.
func adminConn(t testing.TB, server string) (*sql.Conn, error) {
	dsn, err := dsnOf(server, "")
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(context.Background())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		conn.ExecContext(context.Background(), "DO RELEASE_ALL_LOCKS()") //nolint:errcheck // at once; else when the server sees the connection end
		conn.Close()
	})
	return conn, nil
}

func dsnOf(server, name string) (string, error) {
	cfg, err := mysql.ParseDSN(server)
	if err != nil {
		return "", err
	}
	cfg.DBName, cfg.InterpolateParams = name, true
	return cfg.FormatDSN(), nil
}

func lock(ctx context.Context, conn *sql.Conn, name string, seconds int) (bool, error) {
	var got sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, seconds).Scan(&got)
	return got.Int64 == 1, err
}

// poolPrefix begins the names of the databases that have the schema of this source tree.
func poolPrefix(t testing.TB) (string, error) {
	files, err := filepath.Glob(filepath.Join(testenv.Root(t), "sql/schema/migrations/mysql/*.sql"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("no migrations found: %w", err)
	}
	h := sha256.New()
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		h.Write(text)
	}
	return family + hex.EncodeToString(h.Sum(nil)[:4]) + "_", nil
}

// sweep drops databases of other schemas and of tests that were killed, unless somebody uses them now.
func sweep(ctx context.Context, conn *sql.Conn, prefix string) error {
	names, err := strs(ctx, conn, "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'capri\\_test\\_%'")
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			continue
		}
		ok, err := lock(ctx, conn, name, 0)
		if err != nil || !ok {
			continue
		}
		if _, err := conn.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name); err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, "DO RELEASE_LOCK(?)", name); err != nil {
			return err
		}
	}
	return nil
}

// empty makes a used database as good as new, but for the counters of AUTO_INCREMENT: no test may rely on those.
func empty(ctx context.Context, db *sql.DB) error {
	tables, err := strs(ctx, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'")
	if err != nil {
		return err
	}
	for _, table := range tables {
		where := ""
		switch table {
		case "goose_db_version", "id_block":
			continue
		case "dic_data":
			where = " WHERE name NOT IN ('timezone', 'min_binary')"
		}
		const few = 1000 // truncating costs some 20 ms, which is more than deleting few rows
		r, err := db.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s%s LIMIT %d", table, where, few))
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil {
			return err
		} else if n == few {
			if _, err := db.ExecContext(ctx, "TRUNCATE TABLE "+table); err != nil {
				return err
			}
		}
	}
	if _, err = db.ExecContext(ctx, "UPDATE id_block SET next_id = 1"); err != nil {
		return err
	}
	_, err = schema.MakeLeases(ctx, db, dialect.MySQL)
	return err
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func strs(ctx context.Context, q querier, text string) ([]string, error) {
	rows, err := q.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}
