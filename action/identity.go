package action

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/auth"
	"capri/sql/store"
)

// noRole takes somebody's access away.
const noRole = "none"

// changeAccess is the frame of every change of who gets in and what he may: under one lock it asks whether the caller may
// change this person, both as he is and as he shall be, ends the sessions that the change ends, and sees to it that a super
// admin is left. Changes take effect with the commit, on all masters: nobody keeps anything in memory.
func changeAccess(ctx context.Context, tx *store.Tx, user string, to func(before store.Login) (store.Login, error), save func() error) error {
	if err := tx.LockLogins(); err != nil {
		return err
	}
	before, _, err := tx.Login(user)
	if err != nil {
		return err
	}
	able, all, _, err := tx.SuperAdmins()
	if err != nil {
		return err
	}
	after, err := to(before)
	if err != nil {
		return err
	}
	if err := mayChange(ctx, user, before.Role, after.Role); err != nil {
		return err
	}
	if err := save(); err != nil {
		return err
	}
	switch after.Role {
	case before.Role:
	case "":
		err = tx.DeleteLogin(user)
	default:
		err = tx.SetRole(user, after.Role)
	}
	if err != nil {
		return err
	}
	var end []string
	if after.Role != before.Role || before.Enabled && !after.Enabled {
		end = append(end, store.UserSession)
	}
	if after.Role == "" || before.Enabled && !after.Enabled {
		end = append(end, store.UserToken)
	}
	if len(end) > 0 {
		if _, err := tx.EndCredentials(user, end...); err != nil {
			return err
		}
	}
	ableNow, allNow, _, err := tx.SuperAdmins()
	if err == nil && (len(allNow) == 0 && len(all) > 0 || len(ableNow) == 0 && len(able) > 0) {
		err = capri.Conflict("%s is the last super admin: let another log in first (capri user set NAME --role super_admin)", user)
	}
	return err
}

// noAccess is what is left of somebody who is deleted.
func noAccess(before store.Login) (store.Login, error) {
	before.Role, before.Enabled = "", false
	return before, nil
}

// mayChange refuses changes of people who are, or shall be, mightier than the caller.
func mayChange(ctx context.Context, user, before, after string) error {
	for _, role := range []string{before, after} {
		if role == "" {
			continue
		}
		if err := auth.From(ctx).May(auth.UserEdit, auth.Object{What: "user " + user, Role: auth.Role(role)}); err != nil {
			return err
		}
	}
	return nil
}

// EnableUser lets a user in again who was disabled.
func (a *Actions) EnableUser(ctx context.Context, who, name string) error {
	return a.setEnabled(ctx, who, name, true)
}

// DisableUser ends the sessions and tokens of a user; he is told nothing and cannot log in. What he owns stays.
func (a *Actions) DisableUser(ctx context.Context, who, name string) error {
	return a.setEnabled(ctx, who, name, false)
}

func (a *Actions) setEnabled(ctx context.Context, who, name string, enabled bool) error {
	action := map[bool]string{true: "user_enable", false: "user_disable"}[enabled]
	return a.logged(ctx, who, action, name, "", func(tx *store.Tx) error {
		return changeAccess(ctx, tx, name, func(before store.Login) (store.Login, error) {
			before.Enabled = enabled
			return before, nil
		}, func() error { return tx.EnableUser(name, enabled) })
	})
}

// ResetPassword gives a user a one-time password, and ends all that he had under the one before. It is shown this once.
func (a *Actions) ResetPassword(ctx context.Context, who, name string) (password string, until capri.Instant, err error) {
	if by := auth.From(ctx); by.Kind == auth.User && by.Name == name {
		return "", 0, capri.Conflict("your own password is changed with the one that you have: capri user password")
	}
	password = auth.OneTimePassword()
	hash, err := auth.HashPassword(ctx, password)
	if err != nil {
		return "", 0, err
	}
	err = a.logged(ctx, who, "password_reset", name, "a one-time password", func(tx *store.Tx) error {
		if err := tx.LockLogins(); err != nil {
			return err
		}
		before, found, err := tx.Login(name)
		if err != nil {
			return err
		}
		if !found {
			return capri.NotFound("there is no user %q", name)
		}
		if err := mayChange(ctx, name, before.Role, ""); err != nil {
			return err
		}
		if err := tx.SetPassword(name, hash, true); err != nil {
			return err
		}
		_, err = tx.EndCredentials(name, store.UserSession, store.UserToken)
		until = tx.Now.Add(auth.OneTimeLife)
		return err
	})
	return password, until, err
}

// Tokens are for programs that somebody runs for himself, so they end: nobody remembers where they all lie.
const (
	tokenLife     = 90 * 24 * time.Hour
	tokenMostLife = 366 * 24 * time.Hour
	mostTokens    = 50 // of one user
)

// CreateToken makes a token of the caller's own. It is shown this once.
func (a *Actions) CreateToken(ctx context.Context, who string, c store.Credential) (token string, made store.Credential, err error) {
	by := auth.From(ctx)
	if by.Kind != auth.User || by.Session == 0 {
		return "", c, capri.Forbidden("tokens are made by people who are logged in")
	}
	if !isPerson(c.Name) {
		return "", c, capri.Invalid("name", c.Name, personRule)
	}
	if c.Scopes, err = checkScopes(c.Scopes); err != nil {
		return "", c, err
	}
	now, err := a.store.Now(ctx)
	if err != nil {
		return "", c, err
	}
	if c.ExpiresAt == 0 {
		c.ExpiresAt = now.Add(tokenLife)
	}
	if c.ExpiresAt <= now || c.ExpiresAt > now.Add(tokenMostLife) {
		return "", c, capri.Invalid("expires_at", c.ExpiresAt.String(), "a time to come, at most a year from now")
	}
	c.Kind, c.Holder = store.UserToken, by.Name
	token = auth.NewKey()
	err = a.logged(ctx, who, "token_create", by.Name, keyWords(c), func(tx *store.Tx) error {
		// The lock keeps two requests from making one token too many, and a disabling from coming in between.
		if err := tx.LockLogins(); err != nil {
			return err
		}
		l, found, err := tx.Login(by.Name)
		if err != nil {
			return err
		}
		if !found || !l.Enabled || l.Role == "" {
			return capri.Forbidden("%s has no access any more", by.Name)
		}
		has, err := tx.Credentials(store.UserToken, by.Name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(has, func(x store.Credential) bool { return x.Name == c.Name }) {
			return capri.Conflict("%s has a token %q already: revoke it first, or take another name", by.Name, c.Name)
		}
		if len(has) >= mostTokens {
			return capri.Conflict("%s has %d tokens, which is all that anybody gets: revoke some", by.Name, len(has))
		}
		return tx.AddCredential(c, auth.Hash(token))
	})
	return token, c, err
}

// RevokeToken ends a token at once: one of one's own, or anybody's for admins, but not of somebody mightier.
func (a *Actions) RevokeToken(ctx context.Context, who string, id int64) error {
	return a.revoke(ctx, who, store.UserToken, id, func(tx *store.Tx, c store.Credential) error {
		if err := auth.From(ctx).May(auth.TokenRevoke, auth.Object{What: "tokens of " + c.Holder, Owner: c.Holder}); err != nil {
			return capri.NotFound("there is no token %d", id) // not even whose it is
		}
		if auth.From(ctx).Name == c.Holder {
			return nil
		}
		l, _, err := tx.Login(c.Holder)
		if err != nil {
			return err
		}
		return mayChange(ctx, c.Holder, l.Role, "")
	})
}

// revoke ends a credential of a kind, if may lets it.
func (a *Actions) revoke(ctx context.Context, who, kind string, id int64, may func(*store.Tx, store.Credential) error) error {
	return a.store.Write(ctx, "revoke a key", who, func(tx *store.Tx) error {
		c, err := tx.Credential(id)
		if err == nil && c.Kind != kind {
			err = capri.NotFound("there is no %s %d", kind, id)
		}
		if err != nil {
			return err
		}
		if err := may(tx, c); err != nil {
			return err
		}
		if err := tx.EndCredential(id); err != nil {
			return err
		}
		return tx.LogAction(kind+"_revoke", c.Holder, keyWords(c))
	})
}

// keyWords says of a credential in the log what may be said.
func keyWords(c store.Credential) string {
	until := "no end"
	if c.ExpiresAt != 0 {
		until = "until " + c.ExpiresAt.String()
	}
	return fmt.Sprintf("%s scopes [%s], %s", c.Name, strings.Join(c.Scopes, " "), until)
}

func checkScopes(names []string) ([]string, error) {
	for _, name := range names {
		if _, err := auth.ParseScope(name); err != nil {
			return nil, err
		}
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// CreateApp makes an API client and gives its key, which nobody can read again.
func (a *Actions) CreateApp(ctx context.Context, who string, app store.App, key store.Credential) (secret string, err error) {
	app.Enabled = true
	if err := a.checkApp(ctx, &app); err != nil {
		return "", err
	}
	if key.Scopes, err = checkScopes(key.Scopes); err != nil {
		return "", err
	}
	if len(key.Scopes) == 0 {
		key.Scopes = []string{string(auth.ScopeAll)}
	}
	if err := a.checkEnd(ctx, key.ExpiresAt); err != nil {
		return "", err
	}
	secret = auth.NewKey()
	detail := "role " + app.Role
	if key.ExpiresAt != 0 || !slices.Contains(key.Scopes, string(auth.ScopeAll)) {
		detail += ", key for" + keyWords(key)
	}
	err = a.logged(ctx, who, "app_create", app.Name, detail, func(tx *store.Tx) error {
		return tx.NewApp(app, key, auth.Hash(secret))
	})
	return secret, err
}

func (a *Actions) checkEnd(ctx context.Context, at capri.Instant) error {
	now, err := a.store.Now(ctx)
	if err == nil && at != 0 && at <= now {
		err = capri.Invalid("expires_at", at.String(), "a time to come, or nothing for no end")
	}
	return err
}

// checkApp checks what people say of an app. An app whose owner is named is of his department, unless another one is named.
func (a *Actions) checkApp(ctx context.Context, app *store.App) error {
	if !isPerson(app.Name) {
		return capri.Invalid("name", app.Name, personRule)
	}
	if _, err := auth.ParseRole(app.Role); err != nil {
		return err
	}
	if app.Owner != "" {
		users, err := a.store.Users(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(users, func(u store.User) bool { return u.Name == app.Owner })
		if at < 0 {
			return capri.Invalid("owner", app.Owner, "a user who exists (capri user set)")
		}
		if app.Department == "" {
			app.Department = users[at].Department
		}
	}
	if app.Department == "" {
		return nil
	}
	departments, err := a.store.Departments(ctx)
	if err == nil && !slices.ContainsFunc(departments, func(d store.Department) bool { return d.Name == app.Department }) {
		err = capri.Invalid("department", app.Department, "a department that exists (capri department set)")
	}
	return err
}

// SaveApp changes an app. Its keys stay as they are; those of one that is disabled open nothing.
func (a *Actions) SaveApp(ctx context.Context, who string, app store.App) error {
	if err := a.checkApp(ctx, &app); err != nil {
		return err
	}
	if who == app.Name && !app.Enabled {
		return capri.Conflict("%s cannot disable itself: nobody might be left to enable it", who)
	}
	detail := fmt.Sprintf("role %s, enabled %t", app.Role, app.Enabled)
	return a.logged(ctx, who, "app_set", app.Name, detail, func(tx *store.Tx) error {
		return keepsSuperAdmin(tx, app.Name, func() error { return tx.UpdateApp(app) })
	})
}

// keepsSuperAdmin makes a change of an app that leaves somebody, a person or an app, who may do everything.
func keepsSuperAdmin(tx *store.Tx, app string, change func() error) error {
	if err := tx.LockLogins(); err != nil {
		return err
	}
	ableBefore, _, appsBefore, err := tx.SuperAdmins()
	if err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	able, _, apps, err := tx.SuperAdmins()
	if err == nil && len(able)+len(apps) == 0 && len(ableBefore)+len(appsBefore) > 0 {
		err = capri.Conflict("app %s is the last with the role super_admin, and no person has it: make another first", app)
	}
	return err
}

// mostOverlap bounds how long an old key stays good beside the new one.
const mostOverlap = 30 * 24 * time.Hour

// RotateApp gives an app a new key like the one it has; those of now stay good for the overlap.
func (a *Actions) RotateApp(ctx context.Context, who, name string, overlap time.Duration) (secret string, oldUntil capri.Instant, err error) {
	if overlap < 0 || overlap > mostOverlap {
		return "", 0, capri.Invalid("overlap", overlap.String(), "a duration from 0 (the old key ends at once) to 720h")
	}
	secret = auth.NewKey()
	err = a.logged(ctx, who, "app_rotate", name, "overlap "+overlap.String(), func(tx *store.Tx) error {
		if err := tx.LockLogins(); err != nil { // so that two rotations at once do not both copy the same key
			return err
		}
		keys, err := tx.Credentials(store.AppKey, name)
		if err != nil {
			return err
		}
		next := store.Credential{Holder: name, Scopes: []string{string(auth.ScopeAll)}}
		if len(keys) > 0 {
			newest := keys[len(keys)-1]
			next.Scopes = newest.Scopes
			if newest.ExpiresAt != 0 { // as long a life again
				next.ExpiresAt = tx.Now.Add(newest.ExpiresAt.Sub(newest.CreatedAt))
			}
		}
		if oldUntil = tx.Now.Add(overlap); overlap == 0 {
			_, err = tx.EndCredentials(name, store.AppKey)
		} else {
			err = tx.ExpireCredentials(store.AppKey, name, oldUntil)
		}
		if err != nil {
			return err
		}
		return tx.AddAppKey(next, auth.Hash(secret))
	})
	return secret, oldUntil, err
}

// DeleteApp forgets an app, and its keys at once. Nobody can take away his own.
func (a *Actions) DeleteApp(ctx context.Context, who, name string) error {
	if by := auth.From(ctx); who == name && (by.Kind == "" || by.Kind == auth.App) {
		return capri.Conflict("%s cannot delete itself: nobody might be left to make another", name)
	}
	return a.logged(ctx, who, "app_delete", name, "", func(tx *store.Tx) error {
		return keepsSuperAdmin(tx, name, func() error { return tx.DeleteApp(name) })
	})
}

// CreateWorkerKey makes a key for what a worker's machine asks of the API; it is good while the node is registered in that pool.
func (a *Actions) CreateWorkerKey(ctx context.Context, who string, key store.Credential) (secret string, err error) {
	nodes, err := a.store.Nodes(ctx)
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(nodes, func(n capri.Node) bool { return n.Name == key.Holder })
	switch {
	case at < 0:
		return "", capri.NotFound("there is no node %q: start its worker first", key.Holder)
	case key.Name == "":
		key.Name = nodes[at].Pool
	case key.Name != nodes[at].Pool:
		return "", capri.Conflict("node %s is in the pool %s, not in %s", key.Holder, nodes[at].Pool, key.Name)
	}
	if err := a.checkEnd(ctx, key.ExpiresAt); err != nil {
		return "", err
	}
	key.Kind, key.Scopes = store.WorkerKey, nil
	secret = auth.NewKey()
	err = a.logged(ctx, who, "worker_key_create", key.Holder, "pool "+keyWords(key), func(tx *store.Tx) error { return tx.AddCredential(key, auth.Hash(secret)) })
	return secret, err
}

// RevokeWorkerKey ends a worker's key at once.
func (a *Actions) RevokeWorkerKey(ctx context.Context, who string, id int64) error {
	return a.revoke(ctx, who, store.WorkerKey, id, func(*store.Tx, store.Credential) error { return nil })
}

// LogOut ends the caller's session.
func (a *Actions) LogOut(ctx context.Context, who string) error {
	by := auth.From(ctx)
	return a.store.Write(ctx, "log out", who, func(tx *store.Tx) error {
		if err := tx.EndCredential(by.Session); err != nil {
			return err
		}
		return tx.LogAction("log_out", by.Name, "")
	})
}
