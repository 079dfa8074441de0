package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"capri/api/wire"
	"capri/client"
	"capri/definition"
)

// with runs a command that talks to the server.
func (a *app) with(fn func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		return fn(cmd.Context(), c, args)
	}
}

func newTaskCommand(a *app) *cobra.Command {
	return group("task", "Define tasks", newTaskApply(a), newTaskList(a), newTaskShow(a), newTaskEnable(a, true), newTaskEnable(a, false),
		newTaskDelete(a), newTaskExport(a), newTaskHistory(a), newTaskGrantAlert(a), newTaskRevokeAlert(a))
}

func newTaskApply(a *app) *cobra.Command {
	var files []string
	var dryRun, prune, yes bool
	cmd := &cobra.Command{Use: "apply -f FILE|DIR", Short: "Make the tasks of files what Capri has: all or nothing", Args: noArgs}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "task file, folder of *.yaml and *.yml, or - for stdin; may be given several times")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	cmd.Flags().BoolVar(&prune, "prune", false, "delete tasks that the files no longer have, in groups that occur in the files")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask before --prune deletes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(files) == 0 {
			return usage("capri task apply needs -f FILE or -f DIR")
		}
		sources, err := definition.Load(files)
		if err != nil {
			return err
		}
		r := wire.Apply{DryRun: dryRun, Prune: prune}
		size := 0
		for _, s := range sources {
			r.Sources = append(r.Sources, wire.Source{Name: s.Name, Data: string(s.Data)})
			size += len(s.Data)
		}
		if size > wire.MaxBody*9/10 { // quoting makes it a little longer
			return usage("the files have %d MB together, and a request has at most %d: apply them in parts", size>>20, wire.MaxBody>>20)
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		if prune && !dryRun {
			// What will be deleted is asked for first: exactly what people saw is what goes.
			r.DryRun = true
			planned, err := c.Apply(cmd.Context(), r)
			if err != nil {
				return err
			}
			r.DryRun = false
			if len(planned.Deleted) > 0 {
				if err := a.confirm(yes, "delete %d tasks: %s", len(planned.Deleted), strings.Join(planned.Deleted, ", ")); err != nil {
					return err
				}
			}
			r.ConfirmPrune = planned.Deleted
		}
		done, err := c.Apply(cmd.Context(), r)
		if err != nil {
			return err
		}
		for _, w := range done.Warnings {
			fmt.Fprintln(a.err, "capri: warning: "+w)
		}
		return a.print(done, func(w io.Writer) { writeApplied(w, done) })
	}
	return cmd
}

func writeApplied(w io.Writer, done wire.Applied) {
	for _, n := range done.Created {
		fmt.Fprintln(w, "+ "+n)
	}
	for _, t := range done.Changed {
		fmt.Fprintln(w, "~ "+t.Task)
		for _, c := range t.Changes {
			fmt.Fprintln(w, "    "+definition.Change{Field: c.Field, Old: oneLine(c.Old), New: oneLine(c.New)}.String())
		}
	}
	for _, n := range done.Deleted {
		fmt.Fprintln(w, "- "+n)
	}
	verb := ""
	if done.DryRun {
		verb = " (dry run: nothing was changed)"
	}
	fmt.Fprintf(w, "%d created, %d changed, %d deleted, %d unchanged%s\n", len(done.Created), len(done.Changed), len(done.Deleted), len(done.Unchanged), verb)
}

func newTaskList(a *app) *cobra.Command {
	var f client.TaskFilter
	cmd := &cobra.Command{Use: "list", Short: "List tasks", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		tasks, err := c.Tasks(ctx, f)
		if err != nil {
			return err
		}
		return printTable(a, tasks, newGrid("name", "period", "cron", "group", "owner", "prio", "enabled", "version", "title", "broken").limit("title", 30).limit("broken", 40), "no tasks", func(t wire.Task) []any {
			return []any{t.Name, t.Period, t.Cron, t.Group, t.Owner, t.Priority, yesNo(t.Enabled), t.Version, t.Title, t.Broken}
		})
	})}
	cmd.Flags().StringVar(&f.Group, "group", "", "of this group")
	cmd.Flags().StringVar(&f.Owner, "owner", "", "of this owner")
	cmd.Flags().StringVar(&f.Period, "period", "", "of this period")
	cmd.Flags().StringVar(&f.Enabled, "enabled", "", "true or false")
	return cmd
}

func newTaskShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show NAME", Short: "Show a task", Args: oneArg("the name of a task"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		t, err := c.Task(ctx, args[0])
		if err != nil {
			return err
		}
		var text []byte
		if a.format == "table" {
			if text, err = c.Export(ctx, "", []string{t.Name}); err != nil {
				return err
			}
		}
		return a.print(t, func(w io.Writer) {
			fmt.Fprintf(w, "# id %d, version %d of %s\n", t.ID, t.Version, cell(t.UpdatedAt))
			for _, g := range t.AlertGrants {
				fmt.Fprintf(w, "# %s is told of its alerts by %s\n", oneLine(g.User), channels(g))
			}
			fmt.Fprintf(w, "%s", text)
		})
	})}
}

func newTaskEnable(a *app, enabled bool) *cobra.Command {
	use, short, did := "disable NAME…", "Stop tasks from taking part in marks", "disabled"
	if enabled {
		use, short, did = "enable NAME…", "Let tasks take part in marks", "enabled"
	}
	var reason string
	cmd := &cobra.Command{Use: use, Short: short, Args: someArgs("the names of tasks"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		results, err := c.EnableTasks(ctx, wire.Names{Names: args, Reason: reason}, enabled)
		if err != nil {
			return err
		}
		return a.print(results, func(w io.Writer) {
			for _, r := range results {
				already := ""
				if r.Result == "unchanged" {
					already = " already"
				}
				fmt.Fprintf(w, "task %s is %s%s\n", r.Task, did, already)
			}
		})
	})}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the log of actions")
	return cmd
}

func newTaskDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{Use: "delete NAME", Short: "Delete a task; its batches and history stay", Args: oneArg("the name of a task"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		// Look first: nobody wants to be asked about a task that is not there.
		if _, err := c.Task(ctx, args[0]); err != nil {
			return err
		}
		if err := a.confirm(yes, "delete task %s", args[0]); err != nil {
			return err
		}
		if err := c.DeleteTask(ctx, args[0]); err != nil {
			return err
		}
		return a.say(map[string]string{"task": args[0], "result": "deleted"}, "task %s is deleted", args[0])
	})}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func newTaskExport(a *app) *cobra.Command {
	var byGroup string
	cmd := &cobra.Command{Use: "export [NAME…]", Short: "Write tasks as a file that applies back to no change", RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		data, err := c.Export(ctx, byGroup, args)
		if err != nil {
			return err
		}
		if a.format != "json" {
			_, err = a.out.Write(data) // a task file is YAML whichever way it is asked for
			return err
		}
		tasks, err := c.Tasks(ctx, client.TaskFilter{Group: byGroup})
		if err != nil {
			return err
		}
		if len(args) > 0 {
			tasks = slices.DeleteFunc(tasks, func(t wire.Task) bool { return !slices.Contains(args, t.Name) })
		}
		return a.print(map[string]any{"tasks": tasks}, nil)
	})}
	cmd.Flags().StringVar(&byGroup, "group", "", "tasks of this group")
	return cmd
}

func newTaskHistory(a *app) *cobra.Command {
	return &cobra.Command{Use: "history NAME", Short: "Show who changed a task, and what", Args: oneArg("the name of a task"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		versions, err := c.TaskHistory(ctx, args[0])
		if err != nil {
			return err
		}
		return printTable(a, versions, newGrid("version", "at", "by", "enabled", "changes").limit("changes", 50), "no versions", func(v wire.TaskVersion) []any {
			var list []string
			if v.Version == 1 {
				list = append(list, "made") // all its fields are in task show
			} else {
				for _, c := range v.Changes {
					list = append(list, definition.Change{Field: c.Field, Old: c.Old, New: c.New}.String())
				}
			}
			if v.Deleted {
				list = append(list, "deleted")
			}
			return []any{v.Version, v.At, v.By, yesNo(v.Enabled), strings.Join(list, "; ")}
		})
	})}
}
