package sqltest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

var ctx = context.Background()

func TestEach_gives_every_test_a_database_that_nobody_used(t *testing.T) {
	for range 2 {
		sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
			db.Tasks(t, 1200, func(int, *capri.Spec) {}) // more than a used database deletes row by row
			db.Task(t, func(s *capri.Spec) { s.Name = "mine" })
			db.Lease(t, "dispatch")

			beside := sqltest.SQLite(t)
			if db.Store.Dialect() != beside.Store.Dialect() {
				beside = sqltest.MySQL(t)
			}
			found, err := beside.Store.Tasks(ctx, store.TaskFilter{WithDeleted: true})
			locks, err2 := beside.Store.Locks(ctx)
			if err != nil || err2 != nil || len(found) != 0 || len(locks) != len(capri.ServiceLeases) ||
				slices.ContainsFunc(locks, func(l store.ServiceLock) bool { return l.Epoch != 0 || l.Holder != "" }) {
				t.Errorf("%d tasks, %d leases (%v, %v) in a fresh database", len(found), len(locks), err, err2)
			}
			if task := beside.Task(t, nil); task.ID != 1 || task.CreatedAt != sqltest.Start {
				t.Errorf("the first task is %d, made at %s", task.ID, task.CreatedAt)
			}
		})
	}
}

func TestClock_is_the_time_of_transactions(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		db.Clock.Advance(time.Minute)
		var at capri.Instant
		err := db.Store.Write(ctx, "look", "me", func(tx *store.Tx) error { at = tx.Now; return nil })
		now, err2 := db.Store.Now(ctx)
		if want := sqltest.Start.Add(time.Minute); err != nil || err2 != nil || at != want || now != want {
			t.Errorf("transaction %s, store %s, want %s (%v, %v)", at, now, want, err, err2)
		}
	})
}

func BenchmarkSQLite(b *testing.B) { benchmark(b, sqltest.SQLite) }
func BenchmarkMySQL(b *testing.B)  { benchmark(b, sqltest.MySQL) }

// benchmark measures what a test pays for its database, opened, with one row in it, and closed.
func benchmark(b *testing.B, fresh func(testing.TB) *sqltest.DB) {
	fresh(b).Task(b, nil) // the first one is migrated
	for b.Loop() {
		done := &cleanups{TB: b}
		fresh(done).Task(done, nil)
		done.run()
	}
}

// cleanups runs what a test registered without ending the benchmark.
type cleanups struct {
	testing.TB
	all []func()
}

func (c *cleanups) Cleanup(f func()) { c.all = append(c.all, f) }
func (c *cleanups) run() {
	for i := len(c.all) - 1; i >= 0; i-- {
		c.all[i]()
	}
}
