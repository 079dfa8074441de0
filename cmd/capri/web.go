package main

import (
	"context"

	"github.com/spf13/cobra"

	"capri/conf"
)

func newWebCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "web",
		Short: "Serve the API and its page without the services, on MySQL or MariaDB",
		Long: "Serves what a master serves to people and apps, and runs no service: people look, edit and act while no master lives.\n" +
			"The database is all it needs; what they do is carried out when a master is there again. Run as many as you like.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.configWith(cmd, map[string]string{"listen": "listen"})
			if err != nil {
				return err
			}
			return a.web(cmd.Context(), c)
		},
	}
	cmd.Flags().String("listen", "127.0.0.1:8680", "address of the API")
	return cmd
}

func (a *app) web(ctx context.Context, c *conf.Config) error {
	p, err := a.beginShared(ctx, c, "web")
	if err != nil {
		return err
	}
	defer p.close()
	return a.serveShared(ctx, p, "web", nil)
}
