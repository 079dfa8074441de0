package main

import (
	"context"

	"github.com/spf13/cobra"

	"capri/api/wire"
	"capri/client"
)

func newQualityCommand(a *app) *cobra.Command {
	var runnable, blocked bool
	v := wire.QualityVerdict{}
	cmd := &cobra.Command{Use: "quality ID --runnable|--blocked", Short: "Say whether a batch may pass its quality gate",
		Long: `Say whether a batch that waits at its quality gate may run. With --ask it is the answer to that question, and
refused when a newer one was asked. Without, it overrules whoever is asked, which needs the role admin.`,
		Args: oneArg("the id of a batch"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := batchID(args[0])
			switch {
			case err != nil:
				return err
			case runnable == blocked:
				return usage("capri quality needs one of --runnable and --blocked")
			}
			v.Verdict = "runnable"
			if blocked {
				v.Verdict = "blocked"
			}
			if err := c.QualityVerdict(ctx, id, v); err != nil {
				return err
			}
			return a.say(map[string]any{"id": id, "verdict": v.Verdict}, "batch %d: %s", id, v.Verdict)
		})}
	cmd.Flags().BoolVar(&runnable, "runnable", false, "it may run")
	cmd.Flags().BoolVar(&blocked, "blocked", false, "it may not run")
	cmd.Flags().StringVar(&v.Reason, "reason", "", "why; it stands in the batch's history")
	cmd.Flags().IntVar(&v.Ask, "ask", 0, "the number of the question that this answers")
	return cmd
}
