package action

import (
	"context"
	"fmt"
	"net/mail"
	"slices"

	"capri"
	"capri/alerting/duty"
	"capri/auth"
	"capri/sql/store"
)

func isPerson(s string) bool { return capri.IsName(s, "_.@-") }

const personRule = "1 to 128 letters of any script, digits, _ . @ -"

// SaveUser makes or changes a user.
func (a *Actions) SaveUser(ctx context.Context, who string, u store.User) error {
	if !isPerson(u.Name) {
		return capri.Invalid("name", u.Name, personRule)
	}
	if u.Mail != "" {
		if m, err := mail.ParseAddress(u.Mail); err != nil || m.Address != u.Mail {
			return capri.Invalid("mail", u.Mail, "an address such as alice@example.org")
		}
	}
	if u.Department != "" {
		departments, err := a.store.Departments(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(departments, func(d store.Department) bool { return d.Name == u.Department }) {
			return capri.Invalid("department", u.Department, "a department that exists (capri department set)")
		}
	}
	detail := fmt.Sprintf("department %q, enabled %t", u.Department, u.Enabled)
	if u.Role != "" {
		detail += ", role " + u.Role
	}
	return a.change(ctx, who, store.Change{Action: "user_set", Target: u.Name, Detail: detail, Department: u.Department}, func(tx *store.Tx) error {
		return changeAccess(ctx, tx, u.Name, func(before store.Login) (after store.Login, err error) {
			after = before
			after.Enabled = u.Enabled
			switch u.Role {
			case "":
			case noRole:
				after.Role = ""
			default:
				role, err := auth.ParseRole(u.Role)
				if err != nil {
					return after, err
				}
				after.Role = string(role)
			}
			return after, nil
		}, func() error { return tx.SaveUser(u) })
	})
}

// DeleteUser forgets a user who owns no task and answers for no app.
func (a *Actions) DeleteUser(ctx context.Context, who, name string) error {
	owned, err := a.store.Tasks(ctx, store.TaskFilter{Owner: name, Limit: 20})
	if err != nil {
		return err
	}
	if len(owned) > 0 {
		names := make([]string, len(owned))
		for i, t := range owned {
			names[i] = t.Name
		}
		return capri.Conflict("%s owns tasks: give them another owner first: %s", name, some(names))
	}
	apps, err := a.store.Apps(ctx)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(apps, func(x store.App) bool { return x.Owner == name }); at >= 0 {
		return capri.Conflict("%s answers for the app %s: give it another owner first (capri app set %s --owner …)", name, apps[at].Name, apps[at].Name)
	}
	return a.logged(ctx, who, "user_delete", name, "", func(tx *store.Tx) error {
		if err := tx.RevokeAlertsOf(name); err != nil {
			return err
		}
		return changeAccess(ctx, tx, name, noAccess, func() error { return tx.DeleteUser(name) })
	})
}

// SaveDepartment makes or changes a department.
func (a *Actions) SaveDepartment(ctx context.Context, who string, d store.Department) error {
	if !isPerson(d.Name) {
		return capri.Invalid("name", d.Name, personRule)
	}
	return a.logged(ctx, who, "department_set", d.Name, d.Title, func(tx *store.Tx) error { return tx.SaveDepartment(d) })
}

// DeleteDepartment forgets a department that nobody is in.
func (a *Actions) DeleteDepartment(ctx context.Context, who, name string) error {
	users, err := a.store.Users(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, u := range users {
		if u.Department == name {
			names = append(names, u.Name)
		}
	}
	if len(names) > 0 {
		return capri.Conflict("department %s still has people: %s", name, some(names))
	}
	rotas, err := a.store.Rotas(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(rotas, func(r duty.Rota) bool { return r.Department == name }) {
		return capri.Conflict("department %s still has a duty rota: capri duty delete --department %s", name, name)
	}
	return a.logged(ctx, who, "department_delete", name, "", func(tx *store.Tx) error { return tx.DeleteDepartment(name) })
}

// GrantAccount lets the jobs of a user, or of a department's people, run as a system account.
func (a *Actions) GrantAccount(ctx context.Context, who string, g store.AccountGrant) error {
	switch {
	case !capri.IsAccount(g.Account):
		return capri.Invalid("account", g.Account, "the name of a system account")
	case g.Account == "root":
		return capri.Invalid("account", g.Account, "another account: no job ever runs as root")
	}
	exists := false
	switch g.Kind {
	case store.GrantUser:
		users, err := a.store.Users(ctx)
		if err != nil {
			return err
		}
		exists = slices.ContainsFunc(users, func(u store.User) bool { return u.Name == g.Name })
	case store.GrantDepartment:
		departments, err := a.store.Departments(ctx)
		if err != nil {
			return err
		}
		exists = slices.ContainsFunc(departments, func(d store.Department) bool { return d.Name == g.Name })
	default:
		return capri.Invalid("kind", g.Kind, "user or department")
	}
	if !exists {
		return capri.NotFound("there is no %s %q", g.Kind, g.Name)
	}
	return a.logged(ctx, who, "account_grant", g.Account, g.Kind+" "+g.Name, func(tx *store.Tx) error { return tx.GrantAccount(g) })
}

// RevokeAccount takes a grant back.
func (a *Actions) RevokeAccount(ctx context.Context, who string, g store.AccountGrant) error {
	return a.logged(ctx, who, "account_revoke", g.Account, g.Kind+" "+g.Name, func(tx *store.Tx) error { return tx.RevokeAccount(g) })
}
