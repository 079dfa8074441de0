package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

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
	list := &cobra.Command{Use: "list", Short: "List users", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		users, err := c.Users(ctx)
		if err != nil {
			return err
		}
		return a.print(users, func(w io.Writer) {
			g := newGrid("name", "department", "mail", "phone", "enabled", "admin")
			for _, u := range users {
				g.add(u.Name, u.Department, u.Mail, u.Phone, yesNo(u.Enabled == nil || *u.Enabled), yesNo(u.Admin))
			}
			g.write(w, "no users")
		})
	})}
	var u wire.User
	var disabled bool
	set := &cobra.Command{Use: "set NAME", Short: "Make or change a user", Args: oneArg("the name of a user"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		u.Name = args[0]
		enabled := !disabled
		u.Enabled = &enabled
		if err := c.SaveUser(ctx, u); err != nil {
			return err
		}
		return a.say(u, "user %s is set", u.Name)
	})}
	set.Flags().StringVar(&u.Department, "department", "", "department")
	set.Flags().StringVar(&u.Mail, "mail", "", "mail address")
	set.Flags().StringVar(&u.Phone, "phone", "", "telephone number")
	set.Flags().BoolVar(&u.Admin, "admin", false, "is told of trouble of the system")
	set.Flags().BoolVar(&disabled, "disabled", false, "is told nothing")
	return group("user", "Look after people", list, set, newDelete(a, "user", (*client.Client).DeleteUser))
}

func newDepartmentCommand(a *app) *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List departments", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		departments, err := c.Departments(ctx)
		if err != nil {
			return err
		}
		return a.print(departments, func(w io.Writer) {
			g := newGrid("name", "title")
			for _, d := range departments {
				g.add(d.Name, d.Title)
			}
			g.write(w, "no departments")
		})
	})}
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
	list := &cobra.Command{Use: "list", Short: "List who may run jobs as which system account", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		grants, err := c.AccountGrants(ctx)
		if err != nil {
			return err
		}
		return a.print(grants, func(w io.Writer) {
			g := newGrid("account", "kind", "name", "since")
			for _, x := range grants {
				g.add(x.Account, x.Kind, x.Name, x.CreatedAt)
			}
			g.write(w, "no grants: jobs run as the worker's own account")
		})
	})}
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
	list := &cobra.Command{Use: "list", Short: "List clients of the API", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		apps, err := c.Apps(ctx)
		if err != nil {
			return err
		}
		return a.print(apps, func(w io.Writer) {
			g := newGrid("name", "role", "enabled", "since")
			for _, x := range apps {
				g.add(x.Name, x.Role, yesNo(x.Enabled), x.CreatedAt)
			}
			g.write(w, "no apps")
		})
	})}
	var role string
	create := &cobra.Command{Use: "create NAME --role R", Short: "Make a client of the API; its key is shown this once", Args: oneArg("a name"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if role == "" {
			return usage("capri app create needs --role: super_admin, admin, member or read_only")
		}
		key, err := c.CreateApp(ctx, wire.NewApp{Name: args[0], Role: role})
		if err != nil {
			return err
		}
		return a.say(key, "app %s (%s); its key is shown this once:\n%s", key.Name, key.Role, key.Key)
	})}
	create.Flags().StringVar(&role, "role", "", "super_admin, admin, member or read_only")
	return group("app", "Look after clients of the API", list, create, newDelete(a, "app", (*client.Client).DeleteApp))
}
