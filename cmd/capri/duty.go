package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"capri"
	"capri/api/wire"
	"capri/client"
)

// dutyFile is what capri duty set reads and capri duty export writes.
type dutyFile struct {
	Rotas []wire.Rota `json:"rotas" yaml:"rotas"`
}

func newDutyCommand(a *app) *cobra.Command {
	override := group("override", "Put somebody else on duty for a while", newDutyOverrideAdd(a), newDutyOverrideList(a), newDutyOverrideDelete(a))
	return group("duty", "Say who is on duty", newDutyList(a), newDutySet(a), newDutyExport(a), newDutyDelete(a), override)
}

// whose are the flags that choose a rota.
type whose struct {
	department string
	system     bool
}

func (x *whose) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&x.department, "department", "", "of this department")
	cmd.Flags().BoolVar(&x.system, "system", false, "of the system")
}

// name is the department as the API wants it: empty where neither flag was given.
func (x *whose) name() (string, error) {
	switch {
	case x.system && x.department != "":
		return "", usage("--department and --system exclude each other")
	case x.system:
		return wire.SystemDuty, nil
	}
	return x.department, nil
}

// one is name where a choice has to be made.
func (x *whose) one(command string) (string, error) {
	name, err := x.name()
	if err == nil && name == "" {
		err = usage("capri duty %s needs --department or --system", command)
	}
	return name, err
}

// dutyOf names whose rota it is, for people.
func dutyOf(department string) string {
	if department == "" {
		return "(system)"
	}
	return department
}

func nobody(name string) string {
	if name == "" {
		return "-"
	}
	return name
}

// dutyList is what capri duty list says to programs.
type dutyList struct {
	Now   []wire.DutyNow  `json:"now"`
	Plans []wire.DutyPlan `json:"plans"`
}

func newDutyList(a *app) *cobra.Command {
	var x whose
	var from, to string
	cmd := &cobra.Command{Use: "list", Short: "Show who is on duty now and next, and the holes", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		department, err := x.name()
		if err != nil {
			return err
		}
		var out dutyList
		if out.Now, err = c.DutyNow(ctx, department); err != nil {
			return err
		}
		if out.Plans, err = c.DutyShifts(ctx, department, from, to); err != nil {
			return err
		}
		return a.print(out, func(w io.Writer) {
			g := newGrid("department", "primary", "secondary", "next hand-over", "broken").limit("broken", 40)
			for _, n := range out.Now {
				g.add(dutyOf(n.Department), nobody(n.Primary), nobody(n.Secondary), n.NextHandOver, n.Broken)
			}
			g.write(w, "no duty rotas: capri duty set makes them")
			if len(out.Plans) > 0 {
				fmt.Fprintln(w)
				writeShifts(w, out.Plans)
			}
		})
	})}
	x.flags(cmd)
	cmd.Flags().StringVar(&from, "from", "", "shifts from this time on (default now)")
	cmd.Flags().StringVar(&to, "to", "", "shifts before this time; a bare date is the end of that day (default 28 days after --from)")
	return cmd
}

func writeShifts(w io.Writer, plans []wire.DutyPlan) {
	g := newGrid("department", "place", "user", "from", "to", "override", "hole").limit("override", 14).limit("hole", 24)
	for _, p := range plans {
		for _, s := range p.Shifts {
			override := ""
			if s.Override != 0 {
				override = strings.TrimRight(fmt.Sprintf("%d %s", s.Override, s.Reason), " ")
			}
			g.add(dutyOf(p.Department), s.Place, nobody(s.User), s.From, s.To, override, s.Hole)
		}
	}
	g.write(w, "no shifts")
}

func newDutySet(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{Use: "set FILE|-", Short: "Make or replace the rotas of a file: all or none", Args: oneArg("a file of rotas, or - for stdin"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		rotas, err := a.readDuty(args[0])
		if err != nil {
			return err
		}
		plans, err := c.SetDuty(ctx, wire.SetDuty{Rotas: rotas, DryRun: dryRun})
		if err != nil {
			return err
		}
		return a.print(plans, func(w io.Writer) {
			writeShifts(w, plans)
			verb := "set"
			if dryRun {
				verb = "right (dry run: nothing was changed)"
			}
			fmt.Fprintf(w, "%d rotas are %s\n", len(plans), verb)
		})
	})}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the resulting weeks, and change nothing")
	return cmd
}

// readDuty reads a duty file; what is wrong with its form is said at once, what is wrong with its content by the server.
func (a *app) readDuty(file string) ([]wire.Rota, error) {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(io.LimitReader(a.in, wire.MaxBody))
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, capri.Invalid("file", file, "a file that can be read: "+reason(err))
	}
	var doc dutyFile
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true) // a mistyped key would be a rota that does something else
	err = d.Decode(&doc)
	var wrong *yaml.TypeError
	switch {
	case errors.As(err, &wrong):
		var all capri.FieldErrors
		for _, text := range wrong.Errors {
			all = append(all, &capri.FieldError{Field: "rotas", Want: "the keys of a duty file: " + oneLine(text), Where: file})
		}
		return nil, all
	case err != nil && !errors.Is(err, io.EOF):
		return nil, capri.Invalid("file", file, "a duty file: "+oneLine(strings.TrimPrefix(err.Error(), "yaml: ")))
	case len(doc.Rotas) == 0:
		return nil, capri.Invalid("rotas", "", "at least one rota in "+file)
	}
	return doc.Rotas, nil
}

func newDutyExport(a *app) *cobra.Command {
	var x whose
	cmd := &cobra.Command{Use: "export", Short: "Write rotas as a file that sets back to no change", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		department, err := x.name()
		if err != nil {
			return err
		}
		rotas, err := c.Rotas(ctx, department)
		if err != nil {
			return err
		}
		return a.print(dutyFile{rotas}, func(w io.Writer) {
			e := yaml.NewEncoder(w)
			e.SetIndent(2)
			_ = e.Encode(dutyFile{rotas}) // texts and numbers into a buffer: cannot fail
			_ = e.Close()
		})
	})}
	x.flags(cmd)
	return cmd
}

func newDutyDelete(a *app) *cobra.Command {
	var x whose
	var yes bool
	cmd := &cobra.Command{Use: "delete --department NAME | --system", Short: "Delete a rota and its overrides", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		department, err := x.one("delete")
		if err != nil {
			return err
		}
		if err := a.confirm(yes, "delete the duty rota of %s", dutyOf(x.department)); err != nil {
			return err
		}
		if err := c.DeleteDuty(ctx, department); err != nil {
			return err
		}
		return a.say(map[string]string{"department": x.department, "result": "deleted"}, "the duty rota of %s is deleted", dutyOf(x.department))
	})}
	x.flags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func newDutyOverrideAdd(a *app) *cobra.Command {
	var x whose
	var o wire.NewDutyOverride
	cmd := &cobra.Command{Use: "add --user NAME --from T --to T", Short: "Put somebody on duty instead, for holidays and swaps", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		if _, err := x.one("override add"); err != nil {
			return err
		}
		if o.User == "" || o.From == "" || o.To == "" {
			return usage("capri duty override add needs --user, --from and --to")
		}
		o.Department = x.department
		made, err := c.AddDutyOverride(ctx, o)
		if err != nil {
			return err
		}
		return a.say(made, "override %d: %s is %s of %s from %s to %s", made.ID, made.User, made.Place, dutyOf(made.Department), cell(made.From), cell(made.To))
	})}
	x.flags(cmd)
	cmd.Flags().StringVar(&o.Place, "place", "primary", "primary or secondary")
	cmd.Flags().StringVar(&o.User, "user", "", "who")
	cmd.Flags().StringVar(&o.From, "from", "", "from this time on")
	cmd.Flags().StringVar(&o.To, "to", "", "before this time; a bare date is the end of that day")
	cmd.Flags().StringVar(&o.Reason, "reason", "", "why")
	return cmd
}

func newDutyOverrideList(a *app) *cobra.Command {
	var x whose
	cmd := &cobra.Command{Use: "list", Short: "List overrides, also those that are over", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		department, err := x.name()
		if err != nil {
			return err
		}
		overrides, err := c.DutyOverrides(ctx, department)
		if err != nil {
			return err
		}
		return printTable(a, overrides, newGrid("id", "department", "place", "user", "from", "to", "by", "reason").limit("reason", 20), "no overrides", func(o wire.DutyOverride) []any {
			return []any{o.ID, dutyOf(o.Department), o.Place, o.User, o.From, o.To, o.CreatedBy, o.Reason}
		})
	})}
	x.flags(cmd)
	return cmd
}

func newDutyOverrideDelete(a *app) *cobra.Command {
	return &cobra.Command{Use: "delete ID", Short: "Take an override back", Args: oneArg("the id of an override"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || id <= 0 {
			return capri.Invalid("id", args[0], "the number of an override (capri duty override list)")
		}
		if err := c.DeleteDutyOverride(ctx, id); err != nil {
			return err
		}
		return a.say(map[string]any{"id": id, "result": "deleted"}, "override %d is deleted", id)
	})}
}

// channels lists what a grant is for.
func channels(g wire.AlertGrant) string {
	var list []string
	if g.SMS {
		list = append(list, "sms")
	}
	if g.Mail {
		list = append(list, "mail")
	}
	return strings.Join(list, " and ")
}

func newTaskGrantAlert(a *app) *cobra.Command {
	var g wire.AlertGrant
	cmd := &cobra.Command{Use: "grant-alert NAME USER", Short: "Let a user be told of a task's alerts", Args: taskAndUser, RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if !g.SMS && !g.Mail {
			return usage("capri task grant-alert needs --sms, --mail or both")
		}
		g.User = args[1]
		if err := c.GrantAlert(ctx, args[0], g); err != nil {
			return err
		}
		return a.say(g, "%s is told of the alerts of task %s by %s", g.User, args[0], channels(g))
	})}
	cmd.Flags().BoolVar(&g.SMS, "sms", false, "by SMS, where the task's priority is 0 to 4")
	cmd.Flags().BoolVar(&g.Mail, "mail", false, "by mail")
	return cmd
}

func newTaskRevokeAlert(a *app) *cobra.Command {
	return &cobra.Command{Use: "revoke-alert NAME USER", Short: "Take a user's alert rights of a task back", Args: taskAndUser, RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if err := c.RevokeAlert(ctx, args[0], args[1]); err != nil {
			return err
		}
		return a.say(map[string]string{"task": args[0], "user": args[1], "result": "revoked"}, "%s has no alert rights of task %s any more", args[1], args[0])
	})}
}

func taskAndUser(cmd *cobra.Command, args []string) error {
	if len(args) != 2 || args[0] == "" || args[1] == "" {
		return usage("%s needs the name of a task and of a user", cmd.CommandPath())
	}
	return nil
}
