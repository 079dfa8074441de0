package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"capri/api/wire"
	"capri/client"
)

func newEventsCommand(a *app) *cobra.Command {
	var f client.EventFilter
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Follow changes of batches, nodes and services as they happen",
		Long:  "Prints what changes from now on, a line for each, until Ctrl-C. With -o json a line is a document, with -o yaml too.",
		Args:  noArgs,
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			err := c.Events(ctx, f, func(e wire.StreamEvent) error {
				line, err := eventLine(a.format, e)
				if err == nil {
					_, err = fmt.Fprintln(a.out, line)
				}
				return err
			})
			if errors.Is(err, context.Canceled) {
				return nil // Ctrl-C is how one stops following
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&f.Task, "task", "", "of these tasks: a,b")
	cmd.Flags().StringVar(&f.State, "state", "", "in these states, or finish states: running,failed")
	cmd.Flags().StringVar(&f.Kind, "kind", "", "batch, node, service, or several: node,service")
	return cmd
}

// eventLine writes an event in one line.
func eventLine(format string, e wire.StreamEvent) (string, error) {
	if format != "table" {
		line, err := json.Marshal(e) // JSON is YAML, and a stream has no end at which a document could
		return string(line), err
	}
	switch e.Kind {
	case wire.EventBatch:
		var b wire.BatchEvent
		if err := json.Unmarshal(e.Data, &b); err != nil {
			return "", err
		}
		state := stateOf(wire.Batch{State: b.State, FinishState: b.FinishState, KillRequest: b.KillRequest, Held: b.Held, StartTime: &b.At})
		where := ""
		if b.Node != "" {
			where = " on " + b.Node
		}
		return oneLine(fmt.Sprintf("%s  batch %d  %s %s  %s%s  (%s: %s)", b.At.Format(tableTime), b.BatchID, b.Task, b.BatchNo, state, where, b.Who, b.Why)), nil
	case wire.EventNode:
		var n wire.NodeEvent
		if err := json.Unmarshal(e.Data, &n); err != nil {
			return "", err
		}
		return oneLine(strings.TrimSpace(fmt.Sprintf("node %s  %s %s", n.Host, n.State, n.ShortOf))), nil
	case wire.EventService:
		var s wire.ServiceEvent
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return "", err
		}
		text := fmt.Sprintf("service %s  led by %s (epoch %d)", s.Service, first(s.Leader, "nobody"), s.Epoch)
		if s.Paused {
			text += ", paused: " + s.Reason
		}
		return oneLine(text), nil
	}
	return "more has happened than can be told: look at the lists", nil
}
