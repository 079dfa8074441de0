package schema_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pressly/goose/v3"

	"capri"
	"capri/internal/testenv"
	"capri/sql/dialect"
	"capri/sql/schema"
	"capri/sql/sqltest"
	"capri/sql/store"
)

var ctx = context.Background()

func up(t *testing.T, db *sqltest.DB) []string {
	t.Helper()
	applied, err := schema.Up(ctx, db.Store.DB(), db.Store.Dialect(), "Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func exec(t *testing.T, db *sqltest.DB, text string) {
	t.Helper()
	if _, err := db.Store.DB().Exec(text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func number(t *testing.T, db *sqltest.DB, text string) int {
	t.Helper()
	n := 0
	if err := db.Store.DB().QueryRow(text).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

func wants(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("got %v, want: %v", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestUp_migrates_once_and_then_has_nothing_to_do(t *testing.T) {
	sqltest.Empty(t, func(t *testing.T, db *sqltest.DB) {
		d := db.Store.Dialect()
		have, want, err := schema.Version(ctx, db.Store.DB(), d)
		if err != nil || have != 0 || want < 4 {
			t.Fatalf("before: %d of %d, %v", have, want, err)
		}
		wants(t, schema.Check(ctx, db.Store.DB(), d), capri.ErrConflict, "capri migrate up")
		wants(t, schema.CheckZone(ctx, db.Store.DB(), d, "UTC"), capri.ErrConflict, "capri migrate up")

		if applied := up(t, db); applied[0] != "00001_definitions" || !strings.HasPrefix(applied[len(applied)-1], fmt.Sprintf("%05d_", want)) {
			t.Errorf("applied %v", applied)
		}
		if applied := up(t, db); len(applied) != 0 {
			t.Errorf("applied again: %v", applied)
		}
		if have, want, err = schema.Version(ctx, db.Store.DB(), d); err != nil || have != want {
			t.Errorf("after: %d of %d, %v", have, want, err)
		}
		if err := schema.Check(ctx, db.Store.DB(), d); err != nil {
			t.Error(err)
		}
	})
}

func TestStatus_tells_what_is_applied_and_makes_no_table(t *testing.T) {
	sqltest.Empty(t, func(t *testing.T, db *sqltest.DB) {
		d := db.Store.Dialect()
		before, err := schema.Status(ctx, db.Store.DB(), d)
		if err != nil || len(before) == 0 || before[0].Applied || before[0].AppliedAt != 0 {
			t.Fatalf("before: %+v, %v", before, err)
		}
		if n := len(columns(t, db)); n != 0 {
			t.Errorf("asking for the status made %d columns", n)
		}
		up(t, db)
		exec(t, db, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)")
		after, err := schema.Status(ctx, db.Store.DB(), d)
		if err != nil || len(after) != len(before)+1 {
			t.Fatalf("after: %+v, %v", after, err)
		}
		for _, m := range after {
			if !m.Applied || m.AppliedAt < capri.Instant(1_600_000_000_000) {
				t.Errorf("%+v", m)
			}
		}
		if last := after[len(after)-1]; last.Version != 99 || !strings.Contains(last.Name, "newer") {
			t.Errorf("of a newer capri: %+v", last)
		}
	})
}

func TestUp_refuses_another_zone_and_changes_nothing(t *testing.T) {
	sqltest.Empty(t, func(t *testing.T, db *sqltest.DB) {
		d := db.Store.Dialect()
		for _, zone := range []string{"", "Local", "Asia/Shanghay"} {
			_, err := schema.Up(ctx, db.Store.DB(), d, zone)
			wants(t, err, capri.ErrInvalid, "timezone")
		}
		up(t, db)
		_, err := schema.Up(ctx, db.Store.DB(), d, "UTC")
		wants(t, err, capri.ErrConflict, "Asia/Shanghai", "UTC", "CAPRI_TIMEZONE")
		wants(t, schema.CheckZone(ctx, db.Store.DB(), d, "UTC"), capri.ErrConflict, "Asia/Shanghai", "UTC")
		if err := schema.CheckZone(ctx, db.Store.DB(), d, "Asia/Shanghai"); err != nil {
			t.Error(err)
		}
	})
}

func TestCheck_accepts_a_newer_schema_unless_that_refuses_old_binaries(t *testing.T) {
	sqltest.Empty(t, func(t *testing.T, db *sqltest.DB) {
		up(t, db)
		exec(t, db, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)")
		if err := schema.Check(ctx, db.Store.DB(), db.Store.Dialect()); err != nil {
			t.Errorf("a schema that only added: %v", err)
		}
		exec(t, db, "UPDATE dic_data SET value = '98' WHERE name = 'min_binary'")
		wants(t, schema.Check(ctx, db.Store.DB(), db.Store.Dialect()), capri.ErrConflict, "99", "98")
		up(t, db)
		if n := number(t, db, "SELECT CAST(value AS DECIMAL) FROM dic_data WHERE name = 'min_binary'"); n != 98 {
			t.Errorf("an old binary's migrate up lowered min_binary to %d", n)
		}
	})
}

// Upgrades roll: while some masters and workers are new, others go on by the columns that they know (design §11). Version
// 4 is what the first masters and workers were written for.
func TestAnOlderSchema_is_refused_by_name_and_takes_the_rows_of_old_binaries_after_its_upgrade(t *testing.T) {
	sqltest.Empty(t, func(t *testing.T, db *sqltest.DB) {
		d, sqlDB := db.Store.Dialect(), db.Store.DB()
		kind := goose.DialectMySQL
		if d == dialect.SQLite {
			kind = goose.DialectSQLite3
		}
		p, err := goose.NewProvider(kind, sqlDB, os.DirFS(filepath.Join(testenv.Root(t), "sql/schema/migrations", d.Name)), goose.WithDisableGlobalRegistry(true))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.UpTo(ctx, 4); err != nil {
			t.Fatal(err)
		}
		wants(t, schema.Check(ctx, sqlDB, d), capri.ErrConflict, "at 4", "capri migrate up")

		old := map[string][]string{}
		for _, line := range columns(t, db) {
			if words := strings.Fields(line); words[0] == "table" {
				table, column, _ := strings.Cut(words[1], ".")
				old[table] = append(old[table], column)
			}
		}
		insert := func(n string) {
			t.Helper()
			for table, columns := range old {
				values := strings.Repeat(", "+n, len(columns))[2:]
				if _, err := sqlDB.Exec("INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (" + values + ")"); err != nil {
					t.Errorf("a row by the columns of version 4: %s: %v", table, err)
				}
			}
		}
		insert("7")
		up(t, db)
		insert("1")
		if len(old) < 20 {
			t.Fatalf("found %d tables: the test does not see them", len(old))
		}
		for table := range old {
			if n := number(t, db, "SELECT COUNT(*) FROM "+table); n < 2 {
				t.Errorf("%s has %d rows", table, n)
			}
		}
		if err := schema.Check(ctx, sqlDB, d); err != nil {
			t.Error(err)
		}
		if b, err := db.Store.Batch(ctx, 1); err != nil || b.QualityAsk != 0 {
			t.Errorf("a new binary reads an old one's batch as %+v, %v", b, err)
		}
	})
}

func TestUp_may_be_run_by_several_masters_at_once(t *testing.T) {
	db := sqltest.EmptyMySQL(t)
	var all []string
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 3 {
		s := db.Again(t)
		wg.Go(func() {
			applied, err := schema.Up(ctx, s.DB(), s.Dialect(), "UTC")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, applied...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	if len(all) == 0 || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("applied %v", all)
	}
}

// MySQL commits each CREATE by itself, so a migration that dies on its way leaves some of its tables behind.
func TestUp_goes_on_after_it_was_cut_off(t *testing.T) {
	db := sqltest.EmptyMySQL(t)
	up(t, db)
	exec(t, db, "DELETE FROM goose_db_version WHERE version_id > 0")
	exec(t, db, "DROP VIEW v_alert")
	exec(t, db, "DROP TABLE task_parent")
	exec(t, db, "UPDATE id_block SET next_id = 4001 WHERE name = 'task'")
	if applied := up(t, db); len(applied) < 4 {
		t.Errorf("applied %v", applied)
	}
	if n := number(t, db, "SELECT next_id FROM id_block WHERE name = 'task'"); n != 4001 {
		t.Errorf("ids begin at %d again", n)
	}
	if n := number(t, db, "SELECT (SELECT COUNT(*) FROM task_parent) + (SELECT COUNT(*) FROM v_alert)"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestReset_makes_everything_anew(t *testing.T) {
	sqltest.Empty(t, func(t *testing.T, db *sqltest.DB) {
		up(t, db)
		before := columns(t, db)
		exec(t, db, "INSERT INTO department (name, created_at) VALUES ('dw', 1)")
		lease := db.Lease(t, "dispatch")
		if err := schema.Reset(ctx, db.Store.DB(), db.Store.Dialect(), "Europe/Berlin"); err != nil {
			t.Fatal(err)
		}
		if n := number(t, db, "SELECT COUNT(*) FROM department"); n != 0 {
			t.Errorf("%d departments left", n)
		}
		if err := schema.CheckZone(ctx, db.Store.DB(), db.Store.Dialect(), "Europe/Berlin"); err != nil {
			t.Error(err)
		}
		if after := columns(t, db); !slices.Equal(before, after) {
			t.Errorf("before %v\nafter %v", before, after)
		}
		if again := db.Lease(t, "dispatch"); again.Epoch <= lease.Epoch {
			t.Errorf("epoch %d after %d", again.Epoch, lease.Epoch)
		}
	})
}

func TestClean_deletes_data_but_neither_zone_nor_ids_nor_epochs(t *testing.T) {
	sqltest.Empty(t, func(t *testing.T, db *sqltest.DB) {
		wants(t, schema.Clean(ctx, db.Store.DB(), db.Store.Dialect()), capri.ErrConflict, "capri migrate up")
		up(t, db)
		task := db.Task(t, nil)
		lease := db.Lease(t, "dispatch")
		exec(t, db, "UPDATE capri_service_lock SET paused = 1, max_running = 0")
		exec(t, db, "INSERT INTO dic_data (name, value) VALUES ('cron_horizon_minutes', '20')")
		if err := schema.Clean(ctx, db.Store.DB(), db.Store.Dialect()); err != nil {
			t.Fatal(err)
		}
		if n := number(t, db, "SELECT (SELECT COUNT(*) FROM task) + (SELECT COUNT(*) FROM task_history) + (SELECT COUNT(*) FROM dic_data)"); n != 2 {
			t.Errorf("%d rows left, want the zone and min_binary", n)
		}
		if err := schema.Check(ctx, db.Store.DB(), db.Store.Dialect()); err != nil {
			t.Error(err)
		}
		if again := db.Task(t, nil); again.ID <= task.ID {
			t.Errorf("task id %d after %d", again.ID, task.ID)
		}
		locks, err := db.Store.Locks(ctx)
		i := slices.IndexFunc(locks, func(l store.ServiceLock) bool { return l.Service == "dispatch" })
		if err != nil || len(locks) != len(capri.ServiceLeases) || locks[i].Epoch != lease.Epoch || locks[i].Paused || locks[i].MaxRunning != -1 {
			t.Errorf("leases %+v, %v", locks, err)
		}
	})
}

// A row that vanished and came back must not let in a master that slept through it.
func TestUp_makes_a_lost_lease_row_again_above_every_epoch_that_left_a_trace(t *testing.T) {
	for trace, text := range map[string]string{
		"none":           "",
		"a row":          "UPDATE capri_service_lock SET epoch = 41 WHERE service = 'generate'",
		"a run":          "INSERT INTO service_run (service, epoch, holder, started_at, duration_ms, counts, error) VALUES ('dispatch', 41, 'm', 0, 0, '{}', '')",
		"a state":        "INSERT INTO service_state (service, holder, epoch, duration_ms) VALUES ('dispatch', 'm', 41, 0)",
		"an event":       "INSERT INTO batch_event (batch_id, at, state, finish_state, attempt, node, held, kill_request, latest, epoch, who, why) VALUES (1, 0, 1, 0, 1, 'n', 0, 0, 1, 41, 'dispatch', '')",
		"an old event":   "INSERT INTO batch_event_archive (id, batch_id, at, state, finish_state, attempt, node, held, kill_request, latest, epoch, who, why) VALUES (1, 1, 0, 1, 0, 1, 'n', 0, 0, 1, 41, 'dispatch', '')",
		"a later insert": "INSERT INTO batch_event (id, batch_id, at, state, finish_state, attempt, node, held, kill_request, latest, epoch, who, why) VALUES (2000001, 1, 0, 1, 0, 1, 'n', 0, 0, 1, 41, 'dispatch', '')",
	} {
		t.Run(trace, func(t *testing.T) {
			sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
				if text != "" {
					exec(t, db, text)
				}
				exec(t, db, "DELETE FROM capri_service_lock WHERE service = 'dispatch'")
				applied, err := schema.Up(ctx, db.Store.DB(), db.Store.Dialect(), sqltest.Zone)
				if err != nil || !slices.Equal(applied, []string{"the lease of dispatch"}) {
					t.Errorf("applied %q, %v", applied, err)
				}
				epoch := number(t, db, "SELECT epoch FROM capri_service_lock WHERE service = 'dispatch'")
				if (text == "") != (epoch == 0) || text != "" && epoch <= 41 {
					t.Errorf("it begins after epoch %d", epoch)
				}
				if applied := number(t, db, "SELECT COUNT(*) FROM capri_service_lock"); applied != len(capri.ServiceLeases) {
					t.Errorf("%d rows", applied)
				}
			})
		})
	}
}

// The rule of two dialects: the same tables, columns, nullability, indexes and views.
func TestBoth_dialects_end_with_the_same_schema(t *testing.T) {
	got := map[string][]string{}
	for _, db := range []*sqltest.DB{sqltest.SQLite(t), sqltest.MySQL(t)} {
		name := db.Store.Dialect().Name
		got[name] = append(columns(t, db), indexes(t, db)...)
		slices.Sort(got[name])
	}
	if len(got["sqlite"]) < 100 {
		t.Fatalf("found %d columns and indexes: the test does not see them", len(got["sqlite"]))
	}
	for name, other := range map[string]string{"sqlite": "mysql", "mysql": "sqlite"} {
		for _, line := range got[name] {
			if !slices.Contains(got[other], line) {
				t.Errorf("only %s has: %s", name, line)
			}
		}
	}
}

func TestViews_write_times_and_states_out_alike(t *testing.T) {
	want := "shorty | 2026-11-20 09:30:00.123 | <nil> | waiting | catch_up"
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		task := db.Task(t, func(s *capri.Spec) { s.Name = "shorty" })
		exec(t, db, fmt.Sprintf(`INSERT INTO task_work (id, task_id, task_version, period, batch_no, run_no, latest, origin, schedule_time, data_start, data_end,
			create_time, state, finish_state, unmet, kinds, not_before, priority, slots, memory_mb, concurrency, pool, strategy)
			VALUES (1, %d, 1, 3, '20261119', 0, 1, 1, 1795167000123, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 1, 'default', 'random')`, task.ID))
		var name, state, origin string
		var schedule, start any
		err := db.Store.DB().QueryRow("SELECT task, CONCAT(schedule_time, ''), start_time, state, origin FROM v_task_work").Scan(&name, &schedule, &start, &state, &origin)
		if b, ok := schedule.([]byte); ok {
			schedule = string(b)
		}
		if got := fmt.Sprintf("%s | %v | %v | %s | %s", name, schedule, start, state, origin); err != nil || got != want {
			t.Errorf("got  %s (%v)\nwant %s", got, err, want)
		}
	})
}

// columns lists "table.column null" of tables and "view.column" of views.
func columns(t *testing.T, db *sqltest.DB) []string {
	text := `SELECT CASE m.type WHEN 'view' THEN concat('view ', m.name, '.', c.name) ELSE concat('table ', m.name, '.', c.name, ' ',
		CASE WHEN c."notnull" = 1 OR c.pk > 0 THEN 'not null' ELSE 'null' END) END
		FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite%' AND m.name NOT LIKE 'goose%'`
	if db.Store.Dialect() == dialect.MySQL {
		text = `SELECT CASE t.table_type WHEN 'VIEW' THEN CONCAT('view ', c.table_name, '.', c.column_name) ELSE CONCAT('table ', c.table_name, '.', c.column_name, ' ',
			CASE c.is_nullable WHEN 'NO' THEN 'not null' ELSE 'null' END) END
			FROM information_schema.columns c JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
			WHERE c.table_schema = DATABASE() AND c.table_name NOT LIKE 'goose%'`
	}
	return lines(t, db.Store.DB(), text)
}

// indexes lists "index table.name (columns) unique"; primary keys have no name.
func indexes(t *testing.T, db *sqltest.DB) []string {
	if db.Store.Dialect() == dialect.MySQL {
		return lines(t, db.Store.DB(), `SELECT CONCAT('index ', table_name, '.', index_name, ' (', GROUP_CONCAT(column_name ORDER BY seq_in_index), ')',
			CASE non_unique WHEN 0 THEN ' unique' ELSE '' END)
			FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name NOT LIKE 'goose%' GROUP BY table_name, index_name, non_unique`)
	}
	all := lines(t, db.Store.DB(), `SELECT concat('index ', m.name, '.', i.name, ' (', (SELECT group_concat(c.name, ',' ORDER BY c.seqno) FROM pragma_index_info(i.name) c), ')',
		CASE i."unique" WHEN 1 THEN ' unique' ELSE '' END)
		FROM sqlite_master m JOIN pragma_index_list(m.name) i WHERE m.type = 'table' AND i.origin = 'c' AND m.name NOT LIKE 'goose%'`)
	return append(all, lines(t, db.Store.DB(), `SELECT concat('index ', m.name, '.PRIMARY (', (SELECT group_concat(c.name, ',' ORDER BY c.pk) FROM pragma_table_info(m.name) c WHERE c.pk > 0), ') unique')
		FROM sqlite_master m WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND m.name NOT LIKE 'goose%'`)...)
}

func lines(t *testing.T, db *sql.DB, text string) []string {
	t.Helper()
	rows, err := db.Query(text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
