package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"capri"
	"capri/alerting/words"
	"capri/api/wire"
	"capri/client"
)

func newAlertCommand(a *app) *cobra.Command {
	return group("alert", "Look at alerts, say who looks after them, and keep them quiet", newAlertList(a), newAlertShow(a), newAlertAck(a), newAlertSilence(a), newAlertRaise(a), newAlertTest(a), newAlertTemplates(a))
}

func newAlertList(a *app) *cobra.Command {
	var limit int
	var all, single bool
	cmd := &cobra.Command{Use: "list [--all] [--single]", Short: "List incidents that are not over, newest first", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		if err := checkLimit(limit); err != nil {
			return err
		}
		if single {
			return a.singleAlerts(ctx, c, limit)
		}
		incidents, err := c.Incidents(ctx, all, limit)
		if err != nil {
			return err
		}
		return printTable(a, incidents, newGrid("id", "since", "level", "state", "alerts", "title").limit("title", 60), "no incidents: nothing is wrong that anybody was to be told of", func(x wire.Incident) []any {
			return []any{x.ID, x.OpenedAt, x.Level, incidentState(x), x.Alerts, x.Title}
		})
	})}
	limitFlag(cmd, &limit, 100)
	cmd.Flags().BoolVar(&all, "all", false, "those that are over, too")
	cmd.Flags().BoolVar(&single, "single", false, "single alerts instead of incidents")
	return cmd
}

func (a *app) singleAlerts(ctx context.Context, c *client.Client, limit int) error {
	alerts, err := c.Alerts(ctx, limit)
	if err != nil {
		return err
	}
	return printTable(a, alerts, newGrid("at", "level", "kind", "incident", "title").limit("title", 46), "no alerts", func(x wire.Alert) []any {
		return []any{x.CreatedAt, x.Level, x.Kind, x.IncidentID, x.Title}
	})
}

func incidentState(x wire.Incident) string {
	switch {
	case x.ClosedAt != nil:
		return "over"
	case x.AckedBy != "":
		return "with " + x.AckedBy
	case x.Silenced != "":
		return "silenced"
	}
	return "open"
}

func incidentID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, capri.Invalid("ID", text, "the number of an incident, as capri alert list shows it")
	}
	return id, nil
}

func newAlertShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show ID", Short: "Show an incident, and who was told of it by which rule", Args: oneArg("the number of an incident"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := incidentID(args[0])
		if err != nil {
			return err
		}
		x, err := c.Incident(ctx, id)
		if err != nil {
			return err
		}
		return a.print(x, func(w io.Writer) {
			fmt.Fprintf(w, "incident %d, %s, %s, %d alerts since %s\n%s\n", x.ID, x.Level, incidentState(x.Incident), x.Alerts, cell(x.OpenedAt), oneLine(x.Title))
			for _, line := range []struct{ what, text string }{{"task", x.Task}, {"silenced", x.Silenced}, {"over", x.ClosedWhy}} {
				if line.text != "" {
					fmt.Fprintf(w, "%s: %s\n", line.what, oneLine(line.text))
				}
			}
			if x.BatchID != 0 {
				fmt.Fprintf(w, "batch: %d (capri why %d)\n", x.BatchID, x.BatchID)
			}
			if x.NextAt != nil {
				fmt.Fprintf(w, "people are told again at %s unless somebody acknowledges: capri alert ack %d\n", cell(x.NextAt), x.ID)
			}
			fmt.Fprintln(w)
			for _, f := range x.First {
				fmt.Fprintf(w, "%s %s: %s\n", cell(f.CreatedAt), f.Kind, oneLine(f.Title))
				for line := range strings.Lines(f.Body) {
					fmt.Fprintf(w, "    %s\n", oneLine(strings.TrimRight(line, "\r\n")))
				}
			}
			if more := x.Alerts - len(x.First); more > 0 {
				fmt.Fprintf(w, "and %d more\n", more)
			}
			fmt.Fprintln(w)
			g := newGrid("stage", "channel", "person", "address", "state", "tries", "why", "error").limit("why", 44).limit("error", 60)
			for _, m := range x.Messages {
				g.add(m.Stage, m.Channel, m.Person, m.Address, m.State, m.Tries, m.Why, m.Error)
			}
			g.write(w, "nobody was told")
		})
	})}
}

func newAlertAck(a *app) *cobra.Command {
	return &cobra.Command{Use: "ack ID", Short: "Say that you look after an incident: nobody is told again", Args: oneArg("the number of an incident"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := incidentID(args[0])
		if err != nil {
			return err
		}
		if err := c.AcknowledgeIncident(ctx, id); err != nil {
			return err
		}
		return a.say(map[string]any{"id": id, "result": "acknowledged"}, "incident %d is acknowledged: nobody is told again while it lasts", id)
	})}
}

func newAlertSilence(a *app) *cobra.Command {
	var x wire.Silence
	add := &cobra.Command{Use: "add --reason TEXT --until T [--task NAME] [--group NAME] [--kind KIND]", Short: "Tell nobody of a task, a group or a kind of alerts, until a time", Args: noArgs,
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			made, err := c.Silence(ctx, x)
			if err != nil {
				return err
			}
			return a.say(made, "silence %d stands until %s; alerts are kept, and what is still open then is told", made.ID, made.Until)
		})}
	add.Flags().StringVar(&x.Task, "task", "", "a task, or a pattern with *")
	add.Flags().StringVar(&x.Group, "group", "", "a group of tasks, or a pattern with *")
	add.Flags().StringVar(&x.Kind, "kind", "", "a kind of alerts, such as output_timeout")
	add.Flags().StringVar(&x.Reason, "reason", "", "why, for everybody who wonders")
	add.Flags().StringVar(&x.Until, "until", "", "when it ends: a time of the business zone")
	list := newList(a, "List silences that stand", (*client.Client).Silences, newGrid("id", "task", "group", "kind", "until", "by", "reason").limit("reason", 40), "no silences", func(s wire.Silence) []any {
		return []any{s.ID, s.Task, s.Group, s.Kind, s.Until, s.CreatedBy, s.Reason}
	})
	end := &cobra.Command{Use: "end ID", Short: "End a silence now", Args: oneArg("the number of a silence"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || id < 1 {
			return capri.Invalid("ID", args[0], "the number of a silence, as capri alert silence list shows it")
		}
		if err := c.EndSilence(ctx, id); err != nil {
			return err
		}
		return a.say(map[string]any{"id": id, "result": "ended"}, "silence %d is over", id)
	})}
	return group("silence", "Keep people from being told for a while", add, list, end)
}

func newAlertRaise(a *app) *cobra.Command {
	var x wire.NewAlert
	cmd := &cobra.Command{Use: "raise TITLE --level LEVEL", Short: "Raise an alert, which goes the way of all others", Args: oneArg("what has happened, in one line"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		x.Title = args[0]
		if err := c.RaiseAlert(ctx, x); err != nil {
			return err
		}
		return a.say(x, "raised, %s: %s", x.Level, x.Title)
	})}
	cmd.Flags().StringVar(&x.Level, "level", "attention", "attention, important or severe")
	cmd.Flags().StringVar(&x.Text, "text", "", "the detail")
	cmd.Flags().StringVar(&x.Key, "key", "", "the same again within the hour is the same alert; default: the title")
	cmd.Flags().StringVar(&x.Task, "task", "", "tell this task's people, by its rules; default: admins")
	return cmd
}

func newAlertTest(a *app) *cobra.Command {
	var to string
	cmd := &cobra.Command{Use: "test CHANNEL [--to ADDRESS]", Short: "Send a message by a channel, and show what was said", Args: oneArg("mail, sms, phone, or the name of a webhook"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		r, err := c.TestChannel(ctx, wire.ChannelTest{Channel: args[0], To: to})
		if err != nil {
			return err
		}
		err = a.print(r, func(w io.Writer) {
			if r.Sent {
				fmt.Fprintf(w, "sent by %s\n", r.Channel)
				return
			}
			fmt.Fprintf(w, "not sent by %s: %s\n\n", r.Channel, oneLine(r.Error))
			for line := range strings.Lines(r.Conversation) {
				fmt.Fprintln(w, oneLine(strings.TrimRight(line, "\r\n")))
			}
		})
		if err == nil && !r.Sent {
			return codeError(1)
		}
		return err
	})}
	cmd.Flags().StringVar(&to, "to", "", "a mail address or phone number")
	return cmd
}

func newAlertTemplates(a *app) *cobra.Command {
	return &cobra.Command{Use: "templates DIR", Short: "Write the built-in templates of messages, to begin with (alerting.templates)", Args: oneArg("a directory"), RunE: func(_ *cobra.Command, args []string) error {
		if err := words.Export(args[0]); err != nil {
			return err
		}
		return a.say(map[string]string{"directory": args[0]}, "the templates are in %s; keep those that you change, and name it in alerting.templates", args[0])
	}}
}
