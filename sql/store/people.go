package store

import (
	"context"
	"database/sql"
	"errors"
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
	Admin      bool // is told of trouble of the system; what somebody may do is his role
	CreatedAt  capri.Instant

	// Of the login, and not written by SaveUser.
	Role     string // empty: no access
	Password string // empty: none; set, one_time
}

// Users lists people by name.
func (s *Store) Users(ctx context.Context) ([]User, error) {
	q := sq.Select("u.name", "u.department", "u.mail", "u.phone", "u.enabled", "u.admin", "u.created_at", "COALESCE(l.role, '')",
		"CASE WHEN COALESCE(l.password, '') = '' THEN '' WHEN l.one_time = 1 THEN 'one_time' ELSE 'set' END").
		From("user u").LeftJoin("login l ON l.user = u.name").OrderBy("u.name")
	all, err := collect(ctx, s.read, q, func(r *sql.Rows, u *User) error {
		return r.Scan(&u.Name, &u.Department, &u.Mail, &u.Phone, &u.Enabled, &u.Admin, &u.CreatedAt, &u.Role, &u.Password)
	})
	return all, s.fault("read users", err)
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

// EnableUser changes whether somebody is enabled, and nothing else of him.
func (tx *Tx) EnableUser(name string, enabled bool) error {
	if err := tx.note("user", sq.Eq{"name": name}); err != nil {
		return err
	}
	n, err := tx.exec(sq.Update("user").Set("enabled", bit(enabled)).Where(sq.Eq{"name": name}))
	if err == nil && n == 0 {
		err = capri.NotFound("there is no user %q", name)
	}
	return err
}

// DeleteUser forgets a person, and ends his sessions and tokens. What he did stays in the logs under his name.
func (tx *Tx) DeleteUser(name string) error {
	if _, err := tx.EndCredentials(name, UserSession, UserToken); err != nil {
		return err
	}
	if _, err := tx.exec(sq.Delete("login").Where(sq.Eq{"user": name})); err != nil {
		return err
	}
	return tx.deleteNamed("user", name)
}

// Department is what people and rights are grouped by.
type Department struct {
	Name      string
	Title     string
	CreatedAt capri.Instant
}

// Departments lists departments by name.
func (s *Store) Departments(ctx context.Context) ([]Department, error) {
	all, err := collect(ctx, s.read, sq.Select("name", "title", "created_at").From("department").OrderBy("name"), func(r *sql.Rows, d *Department) error {
		return r.Scan(&d.Name, &d.Title, &d.CreatedAt)
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
	q := sq.Select("account", "kind", "name", "created_at").From("account_grant").OrderBy("account", "kind", "name")
	all, err := collect(ctx, s.read, q, func(r *sql.Rows, g *AccountGrant) error {
		return r.Scan(&g.Account, &g.Kind, &g.Name, &g.CreatedAt)
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

// App is a client of the API. Its keys are credentials: stored as hashes only, and never read back.
type App struct {
	Name       string
	Role       string
	Enabled    bool
	Owner      string // who answers for it
	Department string // what it may change as a member
	CreatedAt  capri.Instant
}

// Apps lists API clients by name.
func (s *Store) Apps(ctx context.Context) ([]App, error) {
	all, err := s.apps(ctx, sq.Select().OrderBy("name"))
	return all, s.fault("read apps", err)
}

// AppByKeyHash finds the app that has a key, also one that is not enabled.
func (s *Store) AppByKeyHash(ctx context.Context, hash string) (App, error) {
	found, err := s.apps(ctx, sq.Select().Where("name = (SELECT holder FROM credential WHERE kind = 'app' AND hash = ?)", hash))
	if err != nil {
		return App{}, s.fault("read an app", err)
	}
	if len(found) == 0 {
		return App{}, capri.NotFound("no app has this key")
	}
	return found[0], nil
}

func (s *Store) apps(ctx context.Context, q sq.SelectBuilder) ([]App, error) {
	return collect(ctx, s.read, q.Columns("name", "role", "enabled", "owner", "department", "created_at").From("app"), func(r *sql.Rows, a *App) error {
		return r.Scan(&a.Name, &a.Role, &a.Enabled, &a.Owner, &a.Department, &a.CreatedAt)
	})
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

// SaveApp makes or changes an app. A keyHash becomes its only key, for every scope and without an end; an empty one leaves
// the keys of an app that exists as they are. A key that somebody else has is a conflict.
func (tx *Tx) SaveApp(a App, keyHash string) error {
	if err := checkApp(a); err != nil {
		return err
	}
	key := Credential{Kind: AppKey, Holder: a.Name, Scopes: []string{"all"}}
	err := tx.UpdateApp(a)
	switch {
	case errors.Is(err, capri.ErrNotFound) && keyHash == "":
		return capri.Invalid("key", "", "a key, because there is no app "+a.Name+" yet")
	case errors.Is(err, capri.ErrNotFound):
		return tx.NewApp(a, key, keyHash)
	case err != nil || keyHash == "":
		return err
	}
	if _, err := tx.EndCredentials(a.Name, AppKey); err != nil {
		return err
	}
	return tx.AddAppKey(key, keyHash)
}

// UpdateApp changes an app that exists, and none of its keys.
func (tx *Tx) UpdateApp(a App) error {
	if err := checkApp(a); err != nil {
		return err
	}
	if err := tx.note("app", sq.Eq{"name": a.Name}); err != nil {
		return err
	}
	n, err := tx.exec(sq.Update("app").Set("role", a.Role).Set("enabled", bit(a.Enabled)).Set("owner", a.Owner).Set("department", a.Department).
		Where(sq.Eq{"name": a.Name}))
	if err == nil && n == 0 {
		err = capri.NotFound("there is no app %q", a.Name)
	}
	return err
}

// NewApp makes an app with its first key. There is no upsert here: MySQL's would follow the key's unique index, too, and
// overwrite the app that has it.
func (tx *Tx) NewApp(a App, key Credential, keyHash string) error {
	if err := firstError(checkApp(a), named("key", keyHash, 64)); err != nil {
		return err
	}
	if err := tx.note("app", sq.Eq{"name": a.Name}); err != nil {
		return err
	}
	_, err := tx.exec(sq.Insert("app").Columns("name", "role", "key_hash", "enabled", "owner", "department", "created_at").
		Values(a.Name, a.Role, keyHash, bit(a.Enabled), a.Owner, a.Department, int64(tx.Now)))
	if err != nil && tx.s.d.IsDuplicate(err) {
		return capri.Conflict("app %s: there is an app of this name already, or another one has this key", a.Name)
	}
	if err != nil {
		return err
	}
	// An older binary that deletes an app knows nothing of its keys.
	if _, err := tx.EndCredentials(a.Name, AppKey); err != nil {
		return err
	}
	key.Kind, key.Holder = AppKey, a.Name
	return tx.AddCredential(key, keyHash)
}

// AddAppKey gives an app one more key; the column that older binaries read holds the newest.
func (tx *Tx) AddAppKey(key Credential, keyHash string) error {
	n, err := tx.exec(sq.Update("app").Set("key_hash", keyHash).Where(sq.Eq{"name": key.Holder}))
	if err != nil && tx.s.d.IsDuplicate(err) {
		return capri.Conflict("app %s: another app has this key", key.Holder)
	}
	if err == nil && n == 0 {
		err = capri.NotFound("there is no app %q", key.Holder)
	}
	if err != nil {
		return err
	}
	key.Kind = AppKey
	return tx.AddCredential(key, keyHash)
}

func checkApp(a App) error {
	if !slices.Contains(Roles, a.Role) {
		return capri.Invalid("role", a.Role, strings.Join(Roles, ", "))
	}
	return firstError(named("name", a.Name, 128), fits("owner", a.Owner, 128), fits("department", a.Department, 128))
}

// DeleteApp forgets an app and its keys.
func (tx *Tx) DeleteApp(name string) error {
	if _, err := tx.EndCredentials(name, AppKey); err != nil {
		return err
	}
	return tx.deleteNamed("app", name)
}
