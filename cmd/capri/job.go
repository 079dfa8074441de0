package main

import (
	"github.com/spf13/cobra"

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
			if code := runner.Run(cmd.Context(), a.out, a.err); code != 0 {
				return codeError(code)
			}
			return nil
		},
	}
}
