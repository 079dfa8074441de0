package store

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// Kinds of credentials.
const (
	AppKey       = "app"
	WorkerKey    = "worker"
	UserToken    = "token"
	UserSession  = "session"
	credentials  = "credential"
	loginFailure = "login_failure"
)

// Credential is what a caller of the API shows: the key of an app or of a worker, a person's token or session. What is
// stored of it is a hash of 256 random bits.
type Credential struct {
	ID         int64
	Kind       string
	Holder     string   // the name of the app, the node or the user
	Name       string   // what its user calls a token; the pool of a worker's key
	Scopes     []string // of a token none is all that its user may
	CreatedAt  capri.Instant
	CreatedBy  string
	ExpiresAt  capri.Instant // 0: never
	LastUsedAt capri.Instant // 0: not yet; written once a minute at most
}

// Identity is whose a credential is, as it stands at this moment.
type Identity struct {
	Credential
	Role       string // of the app or the user; empty: none
	Enabled    bool   // the app or the user is; a worker's node is registered
	Department string
	OneTime    bool   // the user has to change his password first
	Pool       string // in which the node of a worker's key is
	Now        capri.Instant
}

const credentialColumns = "c.id, c.kind, c.holder, c.name, c.scopes, c.created_at, c.created_by, c.expires_at, c.last_used_at" //nolint:gosec // columns

func (c *Credential) dest() []any {
	return []any{&c.ID, &c.Kind, &c.Holder, &c.Name, (*commas)(&c.Scopes), &c.CreatedAt, &c.CreatedBy, instant{&c.ExpiresAt}, instant{&c.LastUsedAt}}
}

// commas is a list in a text column.
type commas []string

func (c *commas) Scan(v any) error {
	var text sql.NullString
	if err := text.Scan(v); err != nil {
		return err
	}
	if *c = nil; text.String != "" {
		*c = strings.Split(text.String, ",")
	}
	return nil
}

func identityQuery(clock, hash string) sq.SelectBuilder {
	return sq.Select(credentialColumns, "COALESCE(a.role, l.role, '')", "COALESCE(a.enabled, u.enabled, n.host IS NOT NULL)",
		"COALESCE(NULLIF(a.department, ''), s.department, u.department, '')", "COALESCE(l.one_time, 0)", "COALESCE(n.pool, '')", clock).
		From("credential c").
		LeftJoin("app a ON c.kind = 'app' AND a.name = c.holder").
		LeftJoin("user s ON s.name = a.name AND s.enabled = 1"). // an app may bear the name of the user for whom it works
		LeftJoin("user u ON c.kind IN ('session', 'token') AND u.name = c.holder").
		LeftJoin("login l ON l.user = u.name").
		LeftJoin("capri_schedul_cluster n ON c.kind = 'worker' AND n.host = c.holder").
		Where(sq.Eq{"c.hash": hash})
}

// Identity finds whose a credential is, by its hash and in one query; whether it is still good is for the caller to say. The
// hash is of 256 random bits, so the time a look-up takes tells nothing about others.
func (s *Store) Identity(ctx context.Context, hash string) (Identity, error) {
	clock := "0"
	if s.now == nil {
		clock = s.d.NowMillis
	}
	var i Identity
	found, err := one(ctx, s.read, identityQuery(clock, hash), append(i.dest(), &i.Role, &i.Enabled, &i.Department, &i.OneTime, &i.Pool, &i.Now)...)
	if err == nil && !found {
		return Identity{}, capri.NotFound("nobody has this key")
	}
	if s.now != nil {
		i.Now = s.now()
	}
	return i, s.fault("find out who calls", err)
}

// Credentials lists those of a kind, and of one holder if he is named, by holder and id.
func (s *Store) Credentials(ctx context.Context, kind, holder string) ([]Credential, error) {
	all, err := listCredentials(ctx, s.read, kind, holder, "")
	return all, s.fault("read credentials", err)
}

// Credentials is the same inside a transaction.
func (tx *Tx) Credentials(kind, holder string) ([]Credential, error) {
	return listCredentials(tx.ctx, tx.tx, kind, holder, tx.s.d.ForShare)
}

func listCredentials(ctx context.Context, from querier, kind, holder, lock string) ([]Credential, error) {
	q := sq.Select(credentialColumns).From("credential c").Where(sq.Eq{"c.kind": kind}).OrderBy("c.holder", "c.id").Suffix(lock)
	if holder != "" {
		q = q.Where(sq.Eq{"c.holder": holder})
	}
	return collect(ctx, from, q, func(r *sql.Rows, c *Credential) error {
		return r.Scan(c.dest()...)
	})
}

// Credential reads one by its number.
func (tx *Tx) Credential(id int64) (Credential, error) {
	var c Credential
	found, err := one(tx.ctx, tx.tx, sq.Select(credentialColumns).From("credential c").Where(sq.Eq{"c.id": id}).Suffix(tx.s.d.ForUpdate), c.dest()...)
	if err == nil && !found {
		err = capri.NotFound("there is no such token")
	}
	return c, err
}

// AddCredential stores the hash of a new one.
func (tx *Tx) AddCredential(c Credential, hash string) error {
	scopes := strings.Join(c.Scopes, ",")
	if err := firstError(named("holder", c.Holder, 128), fits("name", c.Name, 128), fits("scopes", scopes, 255), fits("hash", hash, 64)); err != nil {
		return err
	}
	_, err := tx.exec(sq.Insert(credentials).Columns("hash", "kind", "holder", "name", "scopes", "created_at", "created_by", "expires_at").
		Values(hash, c.Kind, c.Holder, c.Name, scopes, int64(tx.Now), loggable(tx.who, 190), nullable(c.ExpiresAt)))
	if err != nil && tx.s.d.IsDuplicate(err) {
		return capri.Conflict("%s %s: this key is in use already", c.Kind, c.Holder)
	}
	return err
}

// EndCredential ends one at once.
func (tx *Tx) EndCredential(id int64) error {
	_, err := tx.exec(sq.Delete(credentials).Where(sq.Eq{"id": id}))
	return err
}

// EndCredentials ends all that a holder has of some kinds, and tells how many.
func (tx *Tx) EndCredentials(holder string, kinds ...string) (int, error) {
	return tx.exec(sq.Delete(credentials).Where(sq.Eq{"kind": kinds, "holder": holder}))
}

// ExpireCredentials lets what a holder has of a kind end at a time, unless it ends before.
func (tx *Tx) ExpireCredentials(kind, holder string, at capri.Instant) error {
	_, err := tx.exec(sq.Update(credentials).Set("expires_at", int64(at)).Where(sq.Eq{"kind": kind, "holder": holder}).
		Where(sq.Or{sq.Eq{"expires_at": nil}, sq.Gt{"expires_at": int64(at)}}))
	return err
}

// UsedCredential notes that one was used.
func (s *Store) UsedCredential(ctx context.Context, id int64) error {
	return s.Write(ctx, "note the use of a key", "api", func(tx *Tx) error {
		_, err := tx.exec(sq.Update(credentials).Set("last_used_at", int64(tx.Now)).Where(sq.Eq{"id": id}))
		return err
	})
}

// ForgetCredentials removes up to limit sessions, tokens and keys that ended before a time, and log-in failures that are as old.
func (s *Store) ForgetCredentials(ctx context.Context, lease capri.Lease, before capri.Instant, limit int) (forgotten int, err error) {
	err = s.WriteAs(ctx, "forget old credentials", lease, func(tx *Tx) error {
		ids, err := column[int64](tx.ctx, tx.tx, sq.Select("id").From(credentials).Where(sq.Lt{"expires_at": int64(before)}).Limit(uint64(limit)))
		if err != nil {
			return err
		}
		subjects, err := column[string](tx.ctx, tx.tx, sq.Select("subject").From(loginFailure).Where(sq.Lt{"last_at": int64(before)}).Limit(uint64(limit)))
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			if _, err := tx.exec(sq.Delete(credentials).Where(sq.Eq{"id": ids})); err != nil {
				return err
			}
		}
		if len(subjects) > 0 {
			// Somebody may have failed again meanwhile.
			if _, err := tx.exec(sq.Delete(loginFailure).Where(sq.Eq{"subject": subjects}).Where(sq.Lt{"last_at": int64(before)})); err != nil {
				return err
			}
		}
		forgotten = len(ids) + len(subjects)
		return nil
	})
	return forgotten, err
}

// Login is how a person gets in.
type Login struct {
	User       string
	Role       string
	Password   string // its hash, with parameters; empty: none
	OneTime    bool
	PasswordAt capri.Instant
	Enabled    bool // the user is
}

func loginQuery(user string) sq.SelectBuilder {
	return sq.Select("u.name", "COALESCE(l.role, '')", "COALESCE(l.password, '')", "COALESCE(l.one_time, 0)", "COALESCE(l.password_at, 0)", "u.enabled").
		From("user u").LeftJoin("login l ON l.user = u.name").Where(sq.Eq{"u.name": user})
}

func (l *Login) dest() []any {
	return []any{&l.User, &l.Role, &l.Password, &l.OneTime, &l.PasswordAt, &l.Enabled}
}

// Login reads how a person gets in. Of a user who never had access Role and Password are empty.
func (s *Store) Login(ctx context.Context, user string) (Login, error) {
	var l Login
	found, err := one(ctx, s.read, loginQuery(user), l.dest()...)
	if err == nil && (!found || l.User != user) { // to MySQL a name with spaces after it is the same
		return Login{}, capri.NotFound("there is no user %q", user)
	}
	return l, s.fault("read a user", err)
}

// Login is the same inside a transaction, under LockLogins.
func (tx *Tx) Login(user string) (l Login, found bool, err error) {
	found, err = one(tx.ctx, tx.tx, loginQuery(user).Suffix(tx.s.d.ForUpdate), l.dest()...)
	return l, found && l.User == user, err
}

// SetRole gives a user a role.
func (tx *Tx) SetRole(user, role string) error {
	if !slices.Contains(Roles, role) {
		return capri.Invalid("role", role, strings.Join(Roles, ", "))
	}
	if err := tx.note("login", sq.Eq{"user": user}); err != nil {
		return err
	}
	_, err := tx.exec(sq.Insert("login").Columns("user", "role", "created_at").Values(user, role, int64(tx.Now)).
		Suffix(tx.s.d.Upsert([]string{"user"}, "role")))
	return err
}

// SetPassword stores the hash of a user's password. The user has a role already.
func (tx *Tx) SetPassword(user, hash string, oneTime bool) error {
	if err := tx.note("login", sq.Eq{"user": user}); err != nil {
		return err
	}
	n, err := tx.exec(sq.Update("login").Set("password", hash).Set("one_time", bit(oneTime)).Set("password_at", int64(tx.Now)).Where(sq.Eq{"user": user}))
	if err == nil && n == 0 {
		err = capri.Conflict("%s has no role, and may not log in: capri user set %s --role …", user, user)
	}
	return err
}

// Rehash replaces the hash of a password by another one of the same.
func (tx *Tx) Rehash(user, hash string) error {
	_, err := tx.exec(sq.Update("login").Set("password", hash).Where(sq.Eq{"user": user}))
	return err
}

// DeleteLogin takes a user's access away. What he has of credentials is for the caller to end.
func (tx *Tx) DeleteLogin(user string) error {
	if err := tx.note("login", sq.Eq{"user": user}); err != nil {
		return err
	}
	_, err := tx.exec(sq.Delete("login").Where(sq.Eq{"user": user}))
	return err
}

// LockLogins lets one transaction at a time change who may do what, so that two super admins cannot take each other's role at
// once. Such changes are rare; the lock of definitions serves.
func (tx *Tx) LockLogins() error { return tx.LockDefinitions() }

// SuperAdmins tells, under LockLogins, which enabled people and apps have the role for everything; able are the people among
// them who have a password. An app counts while it has a key.
func (tx *Tx) SuperAdmins() (able, all, apps []string, err error) {
	q := sq.Select("u.name", "l.password <> ''").From("login l").Join("user u ON u.name = l.user").
		Where(sq.Eq{"l.role": RoleSuperAdmin, "u.enabled": 1}).OrderBy("u.name").Suffix(tx.s.d.ForShare)
	err = tx.query(q, func(r *sql.Rows) error {
		var name string
		var can bool
		err := r.Scan(&name, &can)
		if all = append(all, name); can {
			able = append(able, name)
		}
		return err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	q = sq.Select("a.name").From("app a").Where(sq.Eq{"a.role": RoleSuperAdmin, "a.enabled": 1}).
		Where("EXISTS (SELECT 1 FROM credential c WHERE c.kind = 'app' AND c.holder = a.name AND (c.expires_at IS NULL OR c.expires_at > ?))", int64(tx.Now)).
		OrderBy("a.name").Suffix(tx.s.d.ForShare)
	apps, err = column[string](tx.ctx, tx.tx, q)
	return able, all, apps, err
}

// LoginSubject is what failures to log in are counted by, and how hard: Free tries cost nothing, each further one doubles a
// delay that begins with a second, up to Most. Failures are forgotten when there was none for Memory.
type LoginSubject struct {
	Subject string
	Free    int
	Most    time.Duration
	Memory  time.Duration
}

// CountLogin counts a try beforehand, as a failure, for each subject; so tries at once cannot outrun the count. Where one of
// them has to wait it counts nothing, and tells how long.
func (tx *Tx) CountLogin(subjects []LoginSubject) (wait time.Duration, err error) {
	subjects = slices.SortedFunc(slices.Values(subjects), func(a, b LoginSubject) int { return strings.Compare(a.Subject, b.Subject) })
	failures := make([]int, len(subjects))
	for i, s := range subjects {
		// The row is made first, so that there is one to lock.
		_, err := tx.exec(sq.Insert(loginFailure).Columns("subject", "failures", "next_at", "last_at").Values(s.Subject, 0, 0, int64(tx.Now)).
			Suffix(tx.s.d.Upsert([]string{"subject"}, "subject")))
		if err != nil {
			return 0, err
		}
		var next, last capri.Instant
		if _, err := one(tx.ctx, tx.tx, sq.Select("failures", "next_at", "last_at").From(loginFailure).Where(sq.Eq{"subject": s.Subject}).Suffix(tx.s.d.ForUpdate),
			&failures[i], &next, &last); err != nil {
			return 0, err
		}
		if last.Add(s.Memory) < tx.Now {
			failures[i] = 0
		}
		// A clock that was set back does not lock anybody out for longer than the rule says.
		wait = max(wait, min(next.Sub(tx.Now), s.Most))
	}
	if wait > 0 {
		return wait, nil
	}
	for i, s := range subjects {
		failures[i]++
		_, err := tx.exec(sq.Update(loginFailure).Set("failures", failures[i]).Set("next_at", int64(tx.Now.Add(loginDelay(failures[i], s)))).
			Set("last_at", int64(tx.Now)).Where(sq.Eq{"subject": s.Subject}))
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// loginDelay is how long nothing is looked at after so many failures.
func loginDelay(failures int, s LoginSubject) time.Duration {
	over := failures - s.Free
	switch {
	case over <= 0:
		return 0
	case over > 30:
		return s.Most
	}
	return min(time.Second<<(over-1), s.Most)
}

// LoggedIn takes back what CountLogin counted: forgets the failures of own, and gives back the one of each other.
func (tx *Tx) LoggedIn(own string, others ...string) error {
	if _, err := tx.exec(sq.Delete(loginFailure).Where(sq.Eq{"subject": own})); err != nil {
		return err
	}
	slices.Sort(others)
	for _, subject := range others {
		// next_at stays: an attacker with an account of his own cannot clear the way for his next guesses.
		if _, err := tx.exec(sq.Update(loginFailure).Set("failures", sq.Expr("failures - 1")).Where(sq.Eq{"subject": subject}).Where(sq.Gt{"failures": 0})); err != nil {
			return err
		}
	}
	return nil
}
