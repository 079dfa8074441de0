package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"capri"
	"capri/api/wire"
	"capri/client"
)

func newStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "status", Short: "Say how the server and its work stand", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		return a.print(s, func(w io.Writer) {
			fmt.Fprintf(w, "capri %s on %s, %s in %s\n", s.Version, s.Database, s.Now.Format(tableTime), s.Zone)
			fmt.Fprintf(w, "%d waiting (%d of them ready), %d running, %d nodes\n", s.Waiting, s.Ready, s.Running, s.Nodes)
			if s.MaxRunning >= 0 {
				fmt.Fprintf(w, "at most %d run at once (capri dispatch limit)\n", s.MaxRunning)
			}
			for _, x := range s.Stops {
				fmt.Fprintln(w, stopText(x))
			}
		})
	})}
}

func newNodeCommand(a *app) *cobra.Command {
	list := newList(a, "List workers", (*client.Client).Nodes, newGrid("node", "state", "pool", "jobs", "slots", "cpu", "memory", "disk_free", "last beat"), "no nodes", func(n wire.Node) []any {
		state := "up"
		switch {
		case n.Lost:
			state = "lost"
		case n.Left:
			state = "stopped"
		case n.IsStop:
			state = "draining"
		case n.ShortOf != "":
			state = "short: " + n.ShortOf
		}
		return []any{n.Host, state, n.Pool, n.TaskNum, n.Slots, fmt.Sprintf("%.0f%%", 100*n.CPULoad), fmt.Sprintf("%.0f%%", 100*n.MemoryLoad), fmt.Sprintf("%d MB", n.DiskFree), n.LastCheckTime}
	})
	one := func(verb, short, did string, do func(*client.Client, context.Context, string, string) error) *cobra.Command {
		var reason string
		cmd := &cobra.Command{Use: verb + " NAME…", Short: short, Args: someArgs("the names of nodes"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			type result struct {
				Host   string `json:"host"`
				Result string `json:"result"`
			}
			results := make([]result, len(args))
			for i, name := range args {
				if err := do(c, ctx, name, reason); err != nil {
					return err
				}
				results[i] = result{name, did}
			}
			return a.print(results, func(w io.Writer) {
				for _, r := range results {
					fmt.Fprintf(w, "node %s: %s\n", r.Host, r.Result)
				}
			})
		})}
		cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the log of actions")
		return cmd
	}
	var yes bool
	remove := &cobra.Command{Use: "remove NAME", Short: "Forget a node that is gone for good", Args: oneArg("the name of a node"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		nodes, err := c.Nodes(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(nodes, func(n wire.Node) bool { return n.Host == args[0] }) {
			return capri.NotFound("there is no node %q", args[0])
		}
		if err := a.confirm(yes, "remove node %s", args[0]); err != nil {
			return err
		}
		if err := c.RemoveNode(ctx, args[0]); err != nil {
			return err
		}
		return a.say(map[string]string{"host": args[0], "result": "removed"}, "node %s: removed", args[0])
	})}
	remove.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return group("node", "Look after workers", list, newNodeKeyCommand(a),
		one("drain", "Let a node finish what it has and take nothing new", "draining", (*client.Client).DrainNode),
		one("resume", "Let a node take work again", "takes work", (*client.Client).ResumeNode), remove)
}

func newServiceCommand(a *app) *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the services, who leads them and how their last run went", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		services, err := c.Services(ctx)
		if err != nil {
			return err
		}
		return a.print(services, func(w io.Writer) {
			g := newGrid("service", "leader", "epoch", "last run", "took", "counts", "next run").limit("leader", 12).limit("counts", 16)
			for _, s := range services {
				took := ""
				if s.LastRun != nil {
					took = (time.Duration(s.DurationMS) * time.Millisecond).String()
				}
				name := s.Service
				if s.Paused {
					name += " (paused)"
				}
				g.add(name, s.Leader, s.Epoch, s.LastRun, took, countsText(s.Counts), s.NextRun)
			}
			g.write(w, "no services")
			for _, s := range services {
				if s.Error != "" {
					fmt.Fprintf(w, "%s: %s\n", s.Service, oneLine(s.Error))
				}
			}
		})
	})}
	trigger := &cobra.Command{Use: "trigger NAME", Short: "Ask a service to run now", Args: oneArg("the name of a service"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if err := c.TriggerService(ctx, args[0]); err != nil {
			return err
		}
		return a.say(map[string]string{"service": args[0], "result": "triggered"}, "service %s will run now", args[0])
	})}
	return group("service", "Look at the services of the masters", list, newServiceRuns(a), trigger)
}

func newServiceRuns(a *app) *cobra.Command {
	var f client.RunFilter
	var limit int
	cmd := &cobra.Command{Use: "runs NAME", Short: "List what a service did, newest first; turns that had nothing to do are not kept", Args: oneArg("the name of a service"),
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			runs, err := c.ServiceRuns(ctx, args[0], f, limit)
			if err != nil {
				return err
			}
			return a.print(runs, func(w io.Writer) {
				g := newGrid("started", "took", "leader", "epoch", "counts", "error").limit("leader", 12).limit("counts", 30).limit("error", 40)
				for _, r := range runs {
					g.add(r.StartedAt, (time.Duration(r.DurationMS) * time.Millisecond).String(), r.Leader, r.Epoch, countsText(r.Counts), r.Error)
				}
				g.write(w, "no runs")
			})
		})}
	cmd.Flags().BoolVar(&f.Failed, "failed", false, "only those that ended with an error")
	cmd.Flags().StringVar(&f.From, "from", "", "begun at or after")
	cmd.Flags().StringVar(&f.To, "to", "", "begun at or before; a bare date is all of it")
	limitFlag(cmd, &limit, 100)
	return cmd
}

func newMasterListCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List masters, also those that have stopped", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		masters, err := c.Masters(ctx)
		if err != nil {
			return err
		}
		return a.print(masters, func(w io.Writer) {
			g := newGrid("master", "state", "host", "pid", "listen", "version", "clock off", "started", "last beat")
			for _, m := range masters {
				state := "up" // or silent: that is for who watches the beat to say, and not for a difference of clocks
				if m.Stopped {
					state = "stopped"
				}
				g.add(m.Name, state, m.Host, m.PID, m.Listen, m.Version, fmt.Sprintf("%d ms", m.ClockOffsetMS), m.StartTime, m.LastCheckTime)
			}
			g.write(w, "no masters")
		})
	})}
}

func countsText(counts map[string]int) string {
	var parts []string
	for k, n := range counts {
		if n != 0 {
			parts = append(parts, k+" "+strconv.Itoa(n))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func newPauseCommand(a *app) *cobra.Command {
	var p wire.Pause
	var listed bool
	cmd := &cobra.Command{
		Use:   "pause [--group G|--node N] --reason TEXT [--until T]",
		Short: "Stop the placing of batches: of all, of a group or on a node; what runs goes on",
		Long: `Stop the placing of batches: of all, of one group, or on one node. Batches are made all the same, and what runs or is
assigned goes on. Once this command has answered nothing more is placed. With --until it ends by itself.`,
		Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			if listed {
				d, err := c.Dispatch(ctx)
				if err != nil {
					return err
				}
				return a.print(d.Stops, func(w io.Writer) { writeStops(w, d.Stops) })
			}
			if p.Reason == "" {
				return usage("a pause needs --reason, for those who wonder why nothing runs")
			}
			if err := c.PauseDispatch(ctx, p); err != nil {
				return err
			}
			until := "until somebody resumes it (capri resume" + ofFlags(p.Group, p.Node) + ")"
			if p.Until != "" {
				until = "until " + p.Until
			}
			what := stopName(p.Group, p.Node)
			return a.say(map[string]string{"paused": what, "reason": p.Reason, "until": p.Until}, "%s is paused %s", what, until)
		})}
	cmd.Flags().StringVar(&p.Reason, "reason", "", "why")
	cmd.Flags().StringVar(&p.Until, "until", "", "when it ends by itself")
	cmd.Flags().StringVar(&p.Group, "group", "", "only tasks of this group")
	cmd.Flags().StringVar(&p.Node, "node", "", "only on this node (node drain does it for good)")
	cmd.Flags().BoolVar(&listed, "list", false, "list pauses and open breakers instead")
	return cmd
}

func newResumeCommand(a *app) *cobra.Command {
	var r wire.Resume
	cmd := &cobra.Command{Use: "resume [--group G|--node N]", Short: "Place batches again", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		if err := c.ResumeDispatch(ctx, r); err != nil {
			return err
		}
		what := stopName(r.Group, r.Node)
		return a.say(map[string]string{"resumed": what}, "%s: batches are placed again", what)
	})}
	cmd.Flags().StringVar(&r.Group, "group", "", "the pause of this group")
	cmd.Flags().StringVar(&r.Node, "node", "", "the pause of this node")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "why; it stands in the log of actions")
	return cmd
}

func stopName(group, node string) string {
	switch {
	case group != "":
		return "group " + group
	case node != "":
		return "node " + node
	}
	return "dispatch"
}

func ofFlags(group, node string) string {
	switch {
	case group != "":
		return " --group " + group
	case node != "":
		return " --node " + node
	}
	return ""
}

// stopText says what is stopped, why, until when, and how to end it.
func stopText(x wire.Stop) string {
	what, undo := x.Scope+" "+x.Name+" is paused", "capri resume --"+x.Scope+" "+x.Name
	switch {
	case x.Scope == "all":
		what, undo = "dispatch is paused", "capri resume"
	case x.Kind == "breaker":
		what, undo = "the breaker of "+x.Scope+" "+x.Name+" is open", "capri breaker close --"+x.Scope+" "+x.Name
	}
	until := ""
	if x.Until != nil {
		until = ", until " + cell(x.Until)
	}
	return fmt.Sprintf("%s: %s%s (%s)", what, oneLine(x.Reason), until, undo)
}

func writeStops(w io.Writer, stops []wire.Stop) {
	g := newGrid("kind", "of", "name", "since", "until", "by", "reason").limit("reason", 40)
	for _, x := range stops {
		g.add(x.Kind, x.Scope, x.Name, x.Since, x.Until, x.By, x.Reason)
	}
	g.write(w, "nothing is paused, and no breaker is open")
}

func newDispatchCommand(a *app) *cobra.Command {
	show := &cobra.Command{Use: "show", Short: "Show max_running, pauses and open breakers", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		d, err := c.Dispatch(ctx)
		if err != nil {
			return err
		}
		return a.print(d, func(w io.Writer) {
			fmt.Fprintln(w, limitText(d.MaxRunning))
			writeStops(w, d.Stops)
		})
	})}
	l := wire.DispatchLimit{}
	none := false
	limit := &cobra.Command{Use: "limit N", Short: "Say how many batches may be assigned or run at once; -1: no limit, 0: none at all", Args: func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage("%s takes one number and nothing more: %q", cmd.CommandPath(), args[1])
		}
		return nil
	},
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			switch {
			case none && len(args) == 0:
				l.MaxRunning = -1
			case none || len(args) == 0:
				return usage("capri dispatch limit needs a number: -1 (no limit), 0 (none at all) or more")
			default:
				n, err := strconv.Atoi(args[0])
				if err != nil || n < -1 {
					return capri.Invalid("N", args[0], "-1 (no limit), 0 (none at all) or a number")
				}
				l.MaxRunning = n
			}
			if err := c.LimitDispatch(ctx, l); err != nil {
				return err
			}
			return a.say(map[string]int{"max_running": l.MaxRunning}, "%s", limitText(l.MaxRunning))
		})}
	limit.Flags().StringVar(&l.Reason, "reason", "", "why; it stands in the log of actions")
	limit.Flags().BoolVarP(&none, "no-limit", "1", false, "no limit: what -1 means, which on a command line is a flag and no number")
	return group("dispatch", "Look at the placing of batches, and limit it", show, limit)
}

func limitText(n int) string {
	switch n {
	case -1:
		return "any number of batches may run at once"
	case 0:
		return "no batch is started (max_running is 0)"
	}
	return fmt.Sprintf("at most %d batches run at once", n)
}

func newBreakerCommand(a *app) *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List open circuit breakers", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		d, err := c.Dispatch(ctx)
		if err != nil {
			return err
		}
		open := slices.DeleteFunc(d.Stops, func(x wire.Stop) bool { return x.Kind != "breaker" })
		return a.print(open, func(w io.Writer) { writeStops(w, open) })
	})}
	one := func(verb, short, did string, do func(*client.Client, context.Context, wire.Breaker) error) *cobra.Command {
		var b wire.Breaker
		cmd := &cobra.Command{Use: verb + " --task T|--group G", Short: short, Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			switch {
			case (b.Task == "") == (b.Group == ""):
				return usage("capri breaker %s needs one of --task and --group", verb)
			case verb == "open" && b.Reason == "":
				return usage("an open breaker needs --reason, for those who wonder why nothing runs")
			}
			if err := do(c, ctx, b); err != nil {
				return err
			}
			what := stopName(b.Group, "")
			if b.Task != "" {
				what = "task " + b.Task
			}
			return a.say(map[string]string{"breaker": what, "result": did}, "the breaker of %s is %s", what, did)
		})}
		cmd.Flags().StringVar(&b.Task, "task", "", "of this task")
		cmd.Flags().StringVar(&b.Group, "group", "", "of this group")
		cmd.Flags().StringVar(&b.Reason, "reason", "", "why")
		if verb == "open" {
			cmd.Flags().StringVar(&b.Until, "until", "", "when it closes by itself")
		}
		return cmd
	}
	return group("breaker", "Look after circuit breakers: no batch of a task or group is placed while one is open", list,
		one("open", "Open a breaker", "open", (*client.Client).OpenBreaker), one("close", "Close a breaker", "closed", (*client.Client).CloseBreaker))
}

func newActionCommand(a *app) *cobra.Command {
	var limit int
	var f client.ActionFilter
	list := &cobra.Command{Use: "list", Short: "List what people and apps did, newest first",
		Long: "List what people and apps did, newest first: admins see everything, others what they did themselves and what was\n" +
			"done to what is theirs or their department's. What it was before and is after is in -o json.", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			actions, err := c.Actions(ctx, f, limit)
			if err != nil {
				return err
			}
			return printTable(a, actions, newGrid("at", "who", "kind", "action", "target", "detail").limit("target", 22).limit("detail", 28), "no actions", func(x wire.Action) []any {
				return []any{x.At, x.Who, x.Kind, x.Action, x.Target, x.Detail}
			})
		})}
	limitFlag(list, &limit, 100)
	list.Flags().StringVar(&f.Who, "who", "", "of this user or app")
	list.Flags().StringVar(&f.Action, "action", "", "such as kill or task_apply")
	list.Flags().StringVar(&f.Target, "target", "", `such as "batch 17", or a name`)
	list.Flags().StringVar(&f.Task, "task", "", "all that was done to a task and its batches")
	list.Flags().StringVar(&f.RequestID, "request", "", "of one request, by its X-Request-Id")
	list.Flags().StringVar(&f.From, "from", "", "since")
	list.Flags().StringVar(&f.To, "to", "", "until, included")
	return group("action", "Look at the log of actions", list)
}
