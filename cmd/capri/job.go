package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"capri/api/wire"
	"capri/client"
	"capri/worker/job/runner"
)

// newJobCommand is hidden: workers call it, and it is no use to people.
func newJobCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "job",
		Short:  "Be a job of a type that needs more than a process (started by workers)",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tell := func(id string) {
				// The log has it, too, so that nobody hears of a failure. The signal that ends the job does not end this.
				_ = a.report(context.WithoutCancel(cmd.Context()), time.Minute, func(ctx context.Context, c *client.Client) error {
					return c.ReportApplication(ctx, wire.Application{ID: id})
				})
			}
			if code := runner.Run(cmd.Context(), a.out, a.err, tell); code != 0 {
				return codeError(code)
			}
			return nil
		},
	}
}
