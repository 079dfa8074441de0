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
			if s.Paused {
				fmt.Fprintln(w, "dispatch is paused (capri resume)")
			}
		})
	})}
}

func newNodeCommand(a *app) *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List workers", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		nodes, err := c.Nodes(ctx)
		if err != nil {
			return err
		}
		return a.print(nodes, func(w io.Writer) {
			g := newGrid("node", "state", "pool", "jobs", "slots", "cpu", "memory", "disk_free", "last beat")
			for _, n := range nodes {
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
				g.add(n.Host, state, n.Pool, n.TaskNum, n.Slots, fmt.Sprintf("%.0f%%", 100*n.CPULoad), fmt.Sprintf("%.0f%%", 100*n.MemoryLoad), fmt.Sprintf("%d MB", n.DiskFree), n.LastCheckTime)
			}
			g.write(w, "no nodes")
		})
	})}
	one := func(verb, short, did string, do func(*client.Client, context.Context, string) error) *cobra.Command {
		return &cobra.Command{Use: verb + " NAME", Short: short, Args: oneArg("the name of a node"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if err := do(c, ctx, args[0]); err != nil {
				return err
			}
			return a.say(map[string]string{"host": args[0], "result": did}, "node %s: %s", args[0], did)
		})}
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
	return group("node", "Look after workers", list,
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
	return group("service", "Look at the services of the masters", list, trigger)
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
	cmd := &cobra.Command{Use: "pause --reason TEXT [--until T]", Short: "Stop the placing of batches; what runs goes on", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		if p.Reason == "" {
			return usage("a pause needs --reason, for those who wonder why nothing runs")
		}
		if err := c.PauseDispatch(ctx, p); err != nil {
			return err
		}
		until := "until somebody resumes it (capri resume)"
		if p.Until != "" {
			until = "until " + p.Until
		}
		return a.say(map[string]string{"paused": "dispatch", "reason": p.Reason, "until": p.Until}, "dispatch is paused %s", until)
	})}
	cmd.Flags().StringVar(&p.Reason, "reason", "", "why")
	cmd.Flags().StringVar(&p.Until, "until", "", "when it ends by itself")
	return cmd
}

func newResumeCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "resume", Short: "Place batches again", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		if err := c.ResumeDispatch(ctx); err != nil {
			return err
		}
		return a.say(map[string]string{"resumed": "dispatch"}, "dispatch places batches again")
	})}
}

func newActionCommand(a *app) *cobra.Command {
	var limit int
	var f client.ActionFilter
	list := &cobra.Command{Use: "list", Short: "List what people and apps did, newest first",
		Long: "List what people and apps did, newest first: admins see everything, others what they did themselves and what was\n" +
			"done to what is theirs or their department's. What it was before and is after is in -o json.", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			if limit < 1 {
				return capri.Invalid("--limit", strconv.Itoa(limit), "at least 1")
			}
			actions, err := c.Actions(ctx, f, limit)
			if err != nil {
				return err
			}
			return a.print(actions, func(w io.Writer) {
				g := newGrid("at", "who", "kind", "action", "target", "detail").limit("target", 22).limit("detail", 28)
				for _, x := range actions {
					g.add(x.At, x.Who, x.Kind, x.Action, x.Target, x.Detail)
				}
				g.write(w, "no actions")
			})
		})}
	list.Flags().IntVar(&limit, "limit", 100, "at most so many")
	list.Flags().StringVar(&f.Who, "who", "", "of this user or app")
	list.Flags().StringVar(&f.Action, "action", "", "such as kill or task_apply")
	list.Flags().StringVar(&f.Target, "target", "", `such as "batch 17", or a name`)
	list.Flags().StringVar(&f.Task, "task", "", "all that was done to a task and its batches")
	list.Flags().StringVar(&f.RequestID, "request", "", "of one request, by its X-Request-Id")
	list.Flags().StringVar(&f.From, "from", "", "since")
	list.Flags().StringVar(&f.To, "to", "", "until, included")
	return group("action", "Look at the audit log", list)
}
