package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"capri"
	"capri/api/wire"
	"capri/client"
)

// newDelete makes the delete command of something that has a name.
func newDelete(a *app, what string, do func(*client.Client, context.Context, string) error) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{Use: "delete NAME", Short: "Delete a " + what, Args: oneArg("the name of a " + what), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if err := a.confirm(yes, "delete %s %s", what, args[0]); err != nil {
			return err
		}
		if err := do(c, ctx, args[0]); err != nil {
			return err
		}
		return a.say(map[string]string{"name": args[0], "result": "deleted"}, "%s %s is deleted", what, args[0])
	})}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func newUserCommand(a *app) *cobra.Command {
	list := newList(a, "List users", (*client.Client).Users, newGrid("name", "role", "password", "department", "mail", "phone", "enabled", "admin"), "no users", func(u wire.User) []any {
		return []any{u.Name, u.Role, u.Password, u.Department, u.Mail, u.Phone, yesNo(u.Enabled == nil || *u.Enabled), yesNo(u.Admin)}
	})
	var u wire.User
	var disabled bool
	set := &cobra.Command{Use: "set NAME", Short: "Make a user, or change what is named of one", Args: oneArg("the name of a user")}
	set.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		users, err := c.Users(ctx)
		if err != nil {
			return err
		}
		now := wire.User{Name: args[0]}
		if at := slices.IndexFunc(users, func(x wire.User) bool { return x.Name == args[0] }); at >= 0 {
			now = users[at]
		}
		for flag, change := range map[string]func(){
			"department": func() { now.Department = u.Department }, "mail": func() { now.Mail = u.Mail }, "phone": func() { now.Phone = u.Phone },
			"admin": func() { now.Admin = u.Admin }, "disabled": func() { enabled := !disabled; now.Enabled = &enabled },
		} {
			if set.Flags().Changed(flag) {
				change()
			}
		}
		now.Role, now.Password, now.CreatedAt = u.Role, "", nil // a role that is not named stays as it is
		if err := c.SaveUser(ctx, now); err != nil {
			return err
		}
		return a.say(now, "user %s is set", now.Name)
	})
	set.Flags().StringVar(&u.Department, "department", "", "department")
	set.Flags().StringVar(&u.Mail, "mail", "", "mail address")
	set.Flags().StringVar(&u.Phone, "phone", "", "telephone number")
	set.Flags().StringVar(&u.Role, "role", "", "super_admin, admin, member, read_only; none: no access")
	set.Flags().BoolVar(&u.Admin, "admin", false, "is told of trouble of the system; what somebody may do is --role")
	set.Flags().BoolVar(&disabled, "disabled", false, "is told nothing, and cannot log in")
	one := func(verb, short, did string, do func(*client.Client, context.Context, string) error) *cobra.Command {
		return &cobra.Command{Use: verb + " NAME", Short: short, Args: oneArg("the name of a user"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if err := do(c, ctx, args[0]); err != nil {
				return err
			}
			return a.say(map[string]string{"name": args[0], "result": did}, "user %s is %s", args[0], did)
		})}
	}
	return group("user", "Look after people", list, set, newDelete(a, "user", (*client.Client).DeleteUser), newUserPassword(a),
		one("enable", "Let a user in again", "enabled", (*client.Client).EnableUser),
		one("disable", "Keep a user out; sessions and tokens end at once", "disabled", (*client.Client).DisableUser))
}

func newDepartmentCommand(a *app) *cobra.Command {
	list := newList(a, "List departments", (*client.Client).Departments, newGrid("name", "title"), "no departments", func(d wire.Department) []any {
		return []any{d.Name, d.Title}
	})
	var d wire.Department
	set := &cobra.Command{Use: "set NAME", Short: "Make or change a department", Args: oneArg("the name of a department"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		d.Name = args[0]
		if err := c.SaveDepartment(ctx, d); err != nil {
			return err
		}
		return a.say(d, "department %s is set", d.Name)
	})}
	set.Flags().StringVar(&d.Title, "title", "", "what people call it")
	return group("department", "Look after departments", list, set, newDelete(a, "department", (*client.Client).DeleteDepartment))
}

func newAccountCommand(a *app) *cobra.Command {
	list := newList(a, "List who may run jobs as which system account", (*client.Client).AccountGrants, newGrid("account", "kind", "name", "since"), "no grants: jobs run as the worker's own account", func(x wire.AccountGrant) []any {
		return []any{x.Account, x.Kind, x.Name, x.CreatedAt}
	})
	change := func(verb, short, did string, do func(*client.Client, context.Context, wire.AccountGrant) error) *cobra.Command {
		var user, department string
		cmd := &cobra.Command{Use: verb + " ACCOUNT --user NAME | --department NAME", Short: short, Args: oneArg("the name of a system account"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if (user == "") == (department == "") {
				return usage("capri account %s needs --user or --department", verb)
			}
			g := wire.AccountGrant{Account: args[0], Kind: "user", Name: user}
			if department != "" {
				g.Kind, g.Name = "department", department
			}
			if err := do(c, ctx, g); err != nil {
				return err
			}
			return a.say(g, "%s %s: account %s is %s", g.Kind, g.Name, g.Account, did)
		})}
		cmd.Flags().StringVar(&user, "user", "", "this user")
		cmd.Flags().StringVar(&department, "department", "", "everybody of this department")
		return cmd
	}
	return group("account", "Say who may run jobs as which system account", list,
		change("grant", "Let a user or a department run jobs as an account", "granted", (*client.Client).GrantAccount),
		change("revoke", "Take a grant back", "revoked", (*client.Client).RevokeAccount))
}

func newAppCommand(a *app) *cobra.Command {
	return group("app", "Look after clients of the API", newAppList(a), newAppCreate(a), newAppSet(a), newAppRotate(a),
		newAppChange(a, "enable", "Let an app in again", "enabled", func(_ *cobra.Command, now *wire.App) { now.Enabled = true }),
		newAppChange(a, "disable", "Keep an app out, at once", "disabled", func(_ *cobra.Command, now *wire.App) { now.Enabled = false }),
		newDelete(a, "app", (*client.Client).DeleteApp))
}

func newAppList(a *app) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List clients of the API", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		apps, err := c.Apps(ctx)
		if err != nil {
			return err
		}
		return a.print(apps, func(w io.Writer) {
			g := newGrid("name", "role", "enabled", "owner", "department", "scopes", "until", "last used", "since")
			for _, x := range apps {
				keys := x.Keys
				if len(keys) == 0 {
					keys = []wire.Key{{}}
				}
				for _, k := range keys { // two while it is being rotated
					g.add(x.Name, x.Role, yesNo(x.Enabled), x.Owner, x.Department, strings.Join(k.Scopes, " "), k.ExpiresAt, k.LastUsedAt, k.CreatedAt)
				}
			}
			g.write(w, "no apps")
		})
	})}
}

func newAppCreate(a *app) *cobra.Command {
	var n wire.NewApp
	var life lifetime
	cmd := &cobra.Command{Use: "create NAME --role R", Short: "Make a client of the API; its key is shown this once", Args: oneArg("a name"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if n.Role == "" {
			return usage("capri app create needs --role: super_admin, admin, member or read_only")
		}
		n.Name, n.ExpiresAt = args[0], life.at()
		key, err := c.CreateApp(ctx, n)
		if err != nil {
			return err
		}
		return a.say(key, "app %s (%s); its key is shown this once:\n%s", key.Name, key.Role, key.Key)
	})}
	cmd.Flags().StringVar(&n.Role, "role", "", "super_admin, admin, member or read_only")
	cmd.Flags().StringSliceVar(&n.Scopes, "scope", nil, "what its key is made for, with commas (default: all): "+scopeNames())
	cmd.Flags().StringVar(&n.Owner, "owner", "", "the user who answers for it")
	cmd.Flags().StringVar(&n.Department, "department", "", "what it may change as a member (default: its owner's)")
	cmd.Flags().Var(&life, "expires", "how long its key is good, such as 365d (default: without an end)")
	return cmd
}

// newAppChange makes a command that changes an app that is there, and none of its keys.
func newAppChange(a *app, verb, short, did string, to func(cmd *cobra.Command, now *wire.App)) *cobra.Command {
	cmd := &cobra.Command{Use: verb + " NAME", Short: short, Args: oneArg("the name of an app")}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		apps, err := c.Apps(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(apps, func(x wire.App) bool { return x.Name == args[0] })
		if at < 0 {
			return capri.NotFound("there is no app %q", args[0])
		}
		now := apps[at]
		to(cmd, &now)
		now.Keys, now.CreatedAt = nil, nil
		if err := c.SaveApp(ctx, now); err != nil {
			return err
		}
		return a.say(now, "app %s is %s", now.Name, did)
	})
	return cmd
}

func newAppSet(a *app) *cobra.Command {
	var x wire.App
	cmd := newAppChange(a, "set", "Change what is named of an app, and none of its keys", "set", func(cmd *cobra.Command, now *wire.App) {
		for flag, field := range map[string][2]*string{"role": {&now.Role, &x.Role}, "owner": {&now.Owner, &x.Owner}, "department": {&now.Department, &x.Department}} {
			if cmd.Flags().Changed(flag) {
				*field[0] = *field[1]
			}
		}
	})
	cmd.Flags().StringVar(&x.Role, "role", "", "super_admin, admin, member or read_only")
	cmd.Flags().StringVar(&x.Owner, "owner", "", "the user who answers for it")
	cmd.Flags().StringVar(&x.Department, "department", "", "what it may change as a member")
	return cmd
}

func newAppRotate(a *app) *cobra.Command {
	var overlap lifetime
	cmd := &cobra.Command{Use: "rotate NAME [--overlap 24h]", Short: "Give an app another key; it is shown this once", Args: oneArg("the name of an app"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		key, err := c.RotateApp(ctx, args[0], wire.KeyRotation{OverlapS: int64(time.Duration(overlap).Seconds())})
		if err != nil {
			return err
		}
		old := "the key of before has ended"
		if overlap > 0 {
			old = "the key of before is good until " + key.OldUntil.Format(time.RFC3339)
		}
		return a.say(key, "%s; the new one is shown this once:\n%s", old, key.Key)
	})}
	cmd.Flags().Var(&overlap, "overlap", "how long the key of now stays good, such as 24h, at most 30d (default: it ends at once)")
	return cmd
}
