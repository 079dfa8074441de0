// Package dialect holds the few differences between MySQL/MariaDB and SQLite, each with a name. Everything
// else that the store says is the same text for both. A new difference gets a field here and a line in the
// store's conformance suite, never an if in the store.
package dialect

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"capri/internal/failpoint"
)

// Dialect is one database's way of saying what the other says differently.
type Dialect struct {
	Name string // "mysql" or "sqlite": the folder of its migrations, and goose's name

	// NowMillis is the database's clock as epoch milliseconds; "" where the database lives in this process and
	// has no clock of its own.
	NowMillis string

	// ForUpdate and ForShare end a SELECT that must see, and keep, the newest rows. SQLite has one writer at a
	// time (BEGIN IMMEDIATE), so the transaction itself is the lock.
	ForUpdate, ForShare string

	// Isolation of write transactions (design §4 rule 2: READ COMMITTED lost a condition).
	Isolation sql.IsolationLevel

	// ChunkRows bounds the rows of one statement. MariaDB turns an IN list of a thousand into a subquery and then scans
	// and locks what it should not (in_predicate_conversion_threshold). SQLite's is small so that no write keeps beats and the API waiting
	// for more than about 50 ms, and within its limit of 32,766 parameters.
	ChunkRows int

	// ByKey follows a table's name where the rows are named by id and nothing else may choose them: with fresh
	// statistics both databases now and then prefer the index of the ready batches, read all that waits, and (MySQL)
	// lock it.
	ByKey string

	// ByIndex follows a table's name, with an index's in it, where what is asked for is in that index's order.
	ByIndex string

	// InOrder joins two tables of which the first is read first.
	InOrder string

	// Writers is how many write transactions are worth running at once for one piece of work.
	Writers int

	IsDuplicate func(error) bool   // a unique key exists already
	IsRetryable func(error) bool   // roll back and run the whole transaction again
	AskReadOnly string             // asks whether the server takes no writes; "": errors tell it
	Down        func(error) string // why the database cannot work now, as the end of "the database …"; "": it is something else
}

// MySQL is MySQL 8 and MariaDB 10.6+.
var MySQL = &Dialect{
	Name:      "mysql",
	NowMillis: failpoint.Clock("CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"),
	ForUpdate: " FOR UPDATE",
	ForShare:  " LOCK IN SHARE MODE",
	Isolation: sql.LevelRepeatableRead,
	ChunkRows: 500,
	Writers:   2,
	ByKey:     " FORCE INDEX (PRIMARY)",
	ByIndex:   " FORCE INDEX (%s)",
	InOrder:   "STRAIGHT_JOIN",
	// The driver ends a connection to a server that has become read-only, so that the next one may find the new primary
	// (rejectReadOnly), and reports it as a lost one.
	AskReadOnly: "SELECT @@global.read_only",
	IsDuplicate: func(err error) bool {
		var e *mysql.MySQLError
		return errors.As(err, &e) && e.Number == 1062
	},
	IsRetryable: func(err error) bool {
		var e *mysql.MySQLError
		if errors.As(err, &e) {
			// deadlock; lock wait timeout (half a transaction is still open); row changed since read (MariaDB snapshot)
			return e.Number == 1213 || e.Number == 1205 || e.Number == 1020
		}
		return lostConnection(err)
	},
	Down: func(err error) string {
		var e *mysql.MySQLError
		if errors.As(err, &e) {
			return mysqlDown[e.Number]
		}
		if lostConnection(err) {
			return silent
		}
		return ""
	},
}

// What people read of a database that cannot work now.
const (
	silent   = "does not answer"
	full     = "cannot write, because its disk is full"
	ReadOnly = "is read-only"
)

var mysqlDown = map[uint16]string{
	1040: "takes no more connections", 1053: "is shutting down", 1927: silent, 3169: silent,
	1290: ReadOnly, 1836: ReadOnly, 1021: full, 1114: full,
}

func lostConnection(err error) bool {
	var op *net.OpError
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// SQLite is the embedded default.
var SQLite = &Dialect{
	Name:      "sqlite",
	Isolation: sql.LevelDefault,
	ChunkRows: 1000,
	Writers:   1,
	ByKey:     " NOT INDEXED",
	ByIndex:   " INDEXED BY %s",
	InOrder:   "CROSS JOIN",
	IsDuplicate: func(err error) bool {
		var e *sqlite.Error
		return errors.As(err, &e) && (e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || e.Code() == sqlite3.SQLITE_CONSTRAINT_ROWID)
	},
	IsRetryable: func(err error) bool {
		var e *sqlite.Error
		return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_BUSY || e.Code()&0xff == sqlite3.SQLITE_LOCKED)
	},
	Down: func(err error) string {
		var e *sqlite.Error
		if !errors.As(err, &e) {
			return ""
		}
		return sqliteDown[e.Code()&0xff]
	},
}

var sqliteDown = map[int]string{
	sqlite3.SQLITE_CANTOPEN: "cannot be opened", sqlite3.SQLITE_IOERR: "cannot be read or written: its disk has a fault",
	sqlite3.SQLITE_FULL: full, sqlite3.SQLITE_READONLY: ReadOnly,
}

// Upsert ends an INSERT: where a row with these keys exists, the listed columns take the new values.
func (d *Dialect) Upsert(keys []string, columns ...string) string {
	set := make([]string, len(columns))
	if d == MySQL {
		for i, c := range columns {
			set[i] = c + " = VALUES(" + c + ")"
		}
		return " ON DUPLICATE KEY UPDATE " + strings.Join(set, ", ")
	}
	for i, c := range columns {
		set[i] = c + " = excluded." + c
	}
	return " ON CONFLICT (" + strings.Join(keys, ", ") + ") DO UPDATE SET " + strings.Join(set, ", ")
}

// UpsertAdd ends an INSERT: where a row with this key exists, the new number is added to its column.
func (d *Dialect) UpsertAdd(key, table, column string) string {
	if d == MySQL {
		return fmt.Sprintf(" ON DUPLICATE KEY UPDATE %s = %s.%s + VALUES(%s)", column, table, column, column)
	}
	return fmt.Sprintf(" ON CONFLICT (%s) DO UPDATE SET %s = %s.%s + excluded.%s", key, column, table, column, column)
}
