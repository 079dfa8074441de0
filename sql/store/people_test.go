package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestUsers_and_departments_are_made_changed_and_deleted_by_name(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				tx.SaveDepartment(store.Department{Name: "dw", Title: "数据仓库"}),
				tx.SaveUser(store.User{Name: "bob", Enabled: true}),
				tx.SaveUser(store.User{Name: "alice", Department: "dw", Mail: "a@b", Phone: "+86", Enabled: true}))
		})
		db.Clock.Advance(time.Hour)
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				tx.SaveDepartment(store.Department{Name: "dw", Title: "Warehouse"}),
				tx.SaveUser(store.User{Name: "alice", Department: "dw", Mail: "a@c"}))
		})
		users, err := db.Store.Users(ctx)
		want := []store.User{{Name: "alice", Department: "dw", Mail: "a@c", CreatedAt: sqltest.Start}, {Name: "bob", Enabled: true, CreatedAt: sqltest.Start}}
		if err != nil || fmt.Sprint(users) != fmt.Sprint(want) {
			t.Errorf("%v, %v, want %v", users, err, want)
		}
		departments, err := db.Store.Departments(ctx)
		if err != nil || len(departments) != 1 || departments[0] != (store.Department{Name: "dw", Title: "Warehouse", CreatedAt: sqltest.Start}) {
			t.Errorf("%v, %v", departments, err)
		}

		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.DeleteUser("bob"), tx.DeleteDepartment("dw"))
		})
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { return tx.DeleteUser("bob") }, "bob")
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { return tx.DeleteDepartment("dw") }, "department")
		if users, err := db.Store.Users(ctx); err != nil || len(users) != 1 {
			t.Errorf("%v, %v", users, err)
		}
		long := strings.Repeat("n", 128)
		write(t, db, func(tx *store.Tx) error { return tx.SaveUser(store.User{Name: long}) })
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.SaveUser(store.User{Name: long + "n"}) }, "name", "128")
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.SaveUser(store.User{Name: "bob "}) }, "name")
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.SaveDepartment(store.Department{Name: ""}) }, "name")
	})
}

func TestAccountGrants_may_be_granted_twice_and_are_taken_back_once(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		alice := store.AccountGrant{Account: "etl", Kind: store.GrantUser, Name: "alice"}
		dw := store.AccountGrant{Account: "etl", Kind: store.GrantDepartment, Name: "dw"}
		for range 2 {
			write(t, db, func(tx *store.Tx) error { return errors.Join(tx.GrantAccount(alice), tx.GrantAccount(dw)) })
			db.Clock.Advance(time.Hour)
		}
		dw.CreatedAt, alice.CreatedAt = sqltest.Start, sqltest.Start
		if got, err := db.Store.AccountGrants(ctx); err != nil || len(got) != 2 || got[0] != dw || got[1] != alice {
			t.Errorf("%v, %v", got, err)
		}
		write(t, db, func(tx *store.Tx) error { return tx.RevokeAccount(alice) })
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { return tx.RevokeAccount(alice) }, "alice")
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error {
			return tx.GrantAccount(store.AccountGrant{Account: "etl", Kind: "group", Name: "x"})
		}, "user or department")
	})
}

func TestApps_are_found_by_their_key_and_never_share_one(t *testing.T) {
	key := func(c string) string { return strings.Repeat(c, 64) }
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		portal := store.App{Name: "portal", Role: store.RoleAdmin, Enabled: true}
		lamp := store.App{Name: "lamp", Role: store.RoleReadOnly, Enabled: true}
		write(t, db, func(tx *store.Tx) error { return errors.Join(tx.SaveApp(portal, key("a")), tx.SaveApp(lamp, key("b"))) })

		// MySQL's own upsert would follow the unique key and overwrite portal here.
		refused(t, db, capri.ErrConflict, func(tx *store.Tx) error {
			return tx.SaveApp(store.App{Name: "thief", Role: store.RoleSuperAdmin, Enabled: true}, key("a"))
		}, "thief", "key")
		refused(t, db, capri.ErrConflict, func(tx *store.Tx) error { return tx.SaveApp(lamp, key("a")) }, "lamp")
		portal.CreatedAt, lamp.CreatedAt = sqltest.Start, sqltest.Start
		if got, err := db.Store.AppByKeyHash(ctx, key("a")); err != nil || got != portal {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := db.Store.Apps(ctx); err != nil || len(got) != 2 || got[0] != lamp || got[1] != portal {
			t.Errorf("%+v, %v", got, err)
		}
		db.Clock.Advance(time.Hour)
		portal.Enabled = false
		write(t, db, func(tx *store.Tx) error { return tx.SaveApp(portal, "") }) // keeps its key
		if got, err := db.Store.AppByKeyHash(ctx, key("a")); err != nil || got != portal {
			t.Errorf("%+v, %v", got, err)
		}
		write(t, db, func(tx *store.Tx) error { return tx.SaveApp(portal, key("c")) })
		if _, err := db.Store.AppByKeyHash(ctx, key("a")); !errors.Is(err, capri.ErrNotFound) {
			t.Errorf("the old key still opens: %v", err)
		}
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.SaveApp(store.App{Name: "new", Role: store.RoleMember}, "") }, "key")
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.SaveApp(store.App{Name: "new", Role: "root"}, key("d")) }, "super_admin")
		write(t, db, func(tx *store.Tx) error { return tx.DeleteApp("portal") })
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { return tx.DeleteApp("portal") }, "app", "portal")
	})
}

func TestActions_are_logged_with_their_change_or_not_at_all(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		write(t, db, func(tx *store.Tx) error { return tx.LogAction("pause", "dispatch", "übermorgen 🚚") })
		refused(t, db, capri.ErrConflict, func(tx *store.Tx) error {
			if err := tx.LogAction("pause", "dispatch", "never happened"); err != nil {
				return err
			}
			return capri.Conflict("something is in the way")
		})
		at := db.Clock.Advance(time.Hour)
		write(t, db, func(tx *store.Tx) error {
			return tx.LogAction(strings.Repeat("a", 70), strings.Repeat("对", 300), strings.Repeat("🚚", 20_000)+"\xff")
		})
		got, err := db.Store.Actions(ctx, store.ActionFilter{Limit: 10})
		if err != nil || len(got) != 2 {
			t.Fatalf("%d actions, %v", len(got), err)
		}
		if long := got[0]; long.At != at || len([]rune(long.Target)) != 255 || len([]rune(long.Action)) != 64 || len([]rune(long.Detail)) != 16_000 {
			t.Errorf("too long: %.100v", long)
		}
		if first := got[1]; first.Who != "alice" || first.Action != "pause" || first.Target != "dispatch" || first.Detail != "übermorgen 🚚" || first.At != sqltest.Start {
			t.Errorf("%+v", first)
		}
		if newest, err := db.Store.Actions(ctx, store.ActionFilter{Limit: 1}); err != nil || len(newest) != 1 || newest[0] != got[0] {
			t.Errorf("%.100v, %v", newest, err)
		}
	})
}
