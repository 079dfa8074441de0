package store

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// User is a person.
type User struct {
	Name       string
	Department string
	Mail       string
	Phone      string
	Enabled    bool
	Admin      bool // is told of trouble of the system
	CreatedAt  capri.Instant
}

// Users lists people by name.
func (s *Store) Users(ctx context.Context) ([]User, error) {
	var all []User
	q := sq.Select("name", "department", "mail", "phone", "enabled", "admin", "created_at").From("user").OrderBy("name")
	err := query(ctx, s.read, q, func(r *sql.Rows) error {
		var u User
		err := r.Scan(&u.Name, &u.Department, &u.Mail, &u.Phone, &u.Enabled, &u.Admin, &u.CreatedAt)
		all = append(all, u)
		return err
	})
	return all, s.fault("read users", err)
}

// DepartmentOf gives the department of an enabled user; empty: he has none, or there is no such user.
func (s *Store) DepartmentOf(ctx context.Context, user string) (department string, err error) {
	_, err = one(ctx, s.read, sq.Select("department").From("user").Where(sq.Eq{"name": user, "enabled": 1}), &department)
	return department, s.fault("read a user", err)
}

// SaveUser makes or changes a person; created_at is set once.
func (tx *Tx) SaveUser(u User) error {
	err := firstError(named("name", u.Name, 128), fits("department", u.Department, 128), fits("mail", u.Mail, 190), fits("phone", u.Phone, 64))
	if err != nil {
		return err
	}
	if err := tx.note("user", sq.Eq{"name": u.Name}); err != nil {
		return err
	}
	_, err = tx.exec(sq.Insert("user").Columns("name", "department", "mail", "phone", "enabled", "admin", "created_at").
		Values(u.Name, u.Department, u.Mail, u.Phone, bit(u.Enabled), bit(u.Admin), int64(tx.Now)).
		Suffix(tx.s.d.Upsert([]string{"name"}, "department", "mail", "phone", "enabled", "admin")))
	return err
}

// DeleteUser forgets a person. What he did stays in the logs under his name.
func (tx *Tx) DeleteUser(name string) error { return tx.deleteNamed("user", name) }

// Department is what people and rights are grouped by.
type Department struct {
	Name      string
	Title     string
	CreatedAt capri.Instant
}

// Departments lists departments by name.
func (s *Store) Departments(ctx context.Context) ([]Department, error) {
	var all []Department
	err := query(ctx, s.read, sq.Select("name", "title", "created_at").From("department").OrderBy("name"), func(r *sql.Rows) error {
		var d Department
		err := r.Scan(&d.Name, &d.Title, &d.CreatedAt)
		all = append(all, d)
		return err
	})
	return all, s.fault("read departments", err)
}

// SaveDepartment makes or changes a department; created_at is set once.
func (tx *Tx) SaveDepartment(d Department) error {
	if err := firstError(named("name", d.Name, 128), fits("title", d.Title, 190)); err != nil {
		return err
	}
	if err := tx.note("department", sq.Eq{"name": d.Name}); err != nil {
		return err
	}
	_, err := tx.exec(sq.Insert("department").Columns("name", "title", "created_at").Values(d.Name, d.Title, int64(tx.Now)).
		Suffix(tx.s.d.Upsert([]string{"name"}, "title")))
	return err
}

// DeleteDepartment forgets a department; whether people are still in it is for the caller to ask.
func (tx *Tx) DeleteDepartment(name string) error { return tx.deleteNamed("department", name) }

// deleteNamed deletes the row of a table whose key is a name. In these tables the table's name is also people's
// word for a row.
func (tx *Tx) deleteNamed(table, name string) error {
	if err := tx.note(table, sq.Eq{"name": name}); err != nil {
		return err
	}
	n, err := tx.exec(sq.Delete(table).Where(sq.Eq{"name": name}))
	if err == nil && n == 0 {
		err = capri.NotFound("there is no %s %q", table, name)
	}
	return err
}

// Kinds of AccountGrant.
const (
	GrantUser       = "user"
	GrantDepartment = "department"
)

// AccountGrant lets the jobs of an owner, or of a department's people, run as a system account.
type AccountGrant struct {
	Account   string
	Kind      string // GrantUser or GrantDepartment
	Name      string
	CreatedAt capri.Instant
}

// AccountGrants lists all grants by account, kind and name.
func (s *Store) AccountGrants(ctx context.Context) ([]AccountGrant, error) {
	var all []AccountGrant
	q := sq.Select("account", "kind", "name", "created_at").From("account_grant").OrderBy("account", "kind", "name")
	err := query(ctx, s.read, q, func(r *sql.Rows) error {
		var g AccountGrant
		err := r.Scan(&g.Account, &g.Kind, &g.Name, &g.CreatedAt)
		all = append(all, g)
		return err
	})
	return all, s.fault("read account grants", err)
}

// GrantAccount grants; granting again changes nothing.
func (tx *Tx) GrantAccount(g AccountGrant) error {
	if g.Kind != GrantUser && g.Kind != GrantDepartment {
		return capri.Invalid("kind", g.Kind, "user or department")
	}
	if err := firstError(named("account", g.Account, 64), named("name", g.Name, 128)); err != nil {
		return err
	}
	if err := tx.note("account_grant", sq.Eq{"account": g.Account, "kind": g.Kind, "name": g.Name}); err != nil {
		return err
	}
	_, err := tx.exec(sq.Insert("account_grant").Columns("account", "kind", "name", "created_at").Values(g.Account, g.Kind, g.Name, int64(tx.Now)).
		Suffix(tx.s.d.Upsert([]string{"account", "kind", "name"}, "account")))
	return err
}

// RevokeAccount takes a grant back.
func (tx *Tx) RevokeAccount(g AccountGrant) error {
	row := sq.Eq{"account": g.Account, "kind": g.Kind, "name": g.Name}
	if err := tx.note("account_grant", row); err != nil {
		return err
	}
	n, err := tx.exec(sq.Delete("account_grant").Where(row))
	if err == nil && n == 0 {
		err = capri.NotFound("account %s is not granted to %s %s", g.Account, g.Kind, g.Name)
	}
	return err
}

// Roles of apps, from the one that may do everything downwards.
const (
	RoleSuperAdmin = "super_admin"
	RoleAdmin      = "admin"
	RoleMember     = "member"
	RoleReadOnly   = "read_only"
)

// Roles lists them, the strongest first.
var Roles = []string{RoleSuperAdmin, RoleAdmin, RoleMember, RoleReadOnly}

// App is a client of the API. Its key is stored as a hash only, and never read back.
type App struct {
	Name      string
	Role      string
	Enabled   bool
	CreatedAt capri.Instant
}

// Apps lists API clients by name.
func (s *Store) Apps(ctx context.Context) ([]App, error) {
	all, err := s.apps(ctx, sq.Select().OrderBy("name"))
	return all, s.fault("read apps", err)
}

// AppByKeyHash finds the app with that key, also one that is not enabled. The hash is of 256 random bits, so the
// time a look-up takes tells nothing about other keys.
func (s *Store) AppByKeyHash(ctx context.Context, hash string) (App, error) {
	found, err := s.apps(ctx, sq.Select().Where(sq.Eq{"key_hash": hash}))
	if err != nil {
		return App{}, s.fault("read an app", err)
	}
	if len(found) == 0 {
		return App{}, capri.NotFound("no app has this key")
	}
	return found[0], nil
}

func (s *Store) apps(ctx context.Context, q sq.SelectBuilder) ([]App, error) {
	var all []App
	err := query(ctx, s.read, q.Columns("name", "role", "enabled", "created_at").From("app"), func(r *sql.Rows) error {
		var a App
		err := r.Scan(&a.Name, &a.Role, &a.Enabled, &a.CreatedAt)
		all = append(all, a)
		return err
	})
	return all, err
}

// FirstApp makes an app if there is none at all. Of several masters that start on a new database one makes it.
func (tx *Tx) FirstApp(a App, keyHash string) (made bool, err error) {
	if err := tx.LockDefinitions(); err != nil { // any lock that everybody takes here would do
		return false, err
	}
	apps := 0
	if _, err := one(tx.ctx, tx.tx, sq.Select("COUNT(*)").From("app").Suffix(tx.s.d.ForShare), &apps); err != nil || apps > 0 {
		return false, err
	}
	return true, tx.SaveApp(a, keyHash)
}

// SaveApp makes or changes an app; an empty keyHash leaves the key of one that exists as it is. A key that another app
// has is a conflict. There is no upsert here: MySQL's would follow the key's unique index, too, and overwrite the app
// that has it.
func (tx *Tx) SaveApp(a App, keyHash string) error {
	if !slices.Contains(Roles, a.Role) {
		return capri.Invalid("role", a.Role, strings.Join(Roles, ", "))
	}
	if err := firstError(named("name", a.Name, 128), fits("key", keyHash, 64)); err != nil {
		return err
	}
	if err := tx.note("app", sq.Eq{"name": a.Name}); err != nil {
		return err
	}
	u := sq.Update("app").Set("role", a.Role).Set("enabled", bit(a.Enabled)).Where(sq.Eq{"name": a.Name})
	if keyHash != "" {
		u = u.Set("key_hash", keyHash)
	}
	n, err := tx.exec(u)
	if err == nil && n == 0 {
		if keyHash == "" {
			return capri.Invalid("key", "", "a key, because there is no app "+a.Name+" yet")
		}
		_, err = tx.exec(sq.Insert("app").Columns("name", "role", "key_hash", "enabled", "created_at").
			Values(a.Name, a.Role, keyHash, bit(a.Enabled), int64(tx.Now)))
	}
	if err != nil && tx.s.d.IsDuplicate(err) {
		return capri.Conflict("app %s: another app has this key, or this name since a moment ago", a.Name)
	}
	return err
}

// DeleteApp forgets an app and its key.
func (tx *Tx) DeleteApp(name string) error { return tx.deleteNamed("app", name) }
