package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"capri/conf"
)

func newWebCommand(a *app) *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "web",
		Short: "Serve the API and its page without the services, on MySQL or MariaDB",
		Long: "Serves what a master serves to people and apps, and runs no service: people look, edit and act while no master lives.\n" +
			"The database is all it needs; what they do is carried out when a master is there again. Run as many as you like.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			overrides := map[string]string{}
			if cmd.Flags().Changed("listen") {
				overrides["listen"] = address
			}
			c, err := conf.Load(a.configFile, a.root.PersistentFlags().Changed("config"), overrides)
			if err != nil {
				return err
			}
			return a.web(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&address, "listen", "127.0.0.1:8680", "address of the API")
	return cmd
}

func (a *app) web(ctx context.Context, c *conf.Config) error {
	if err := needsServer(c, "web"); err != nil {
		return err
	}
	p, err := a.beginProcess(ctx, c, false)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.prepareAlerting(ctx); err != nil {
		return err
	}
	if err := a.firstKey(ctx, p); err != nil {
		return err
	}
	logs, err := p.nodeLogs(ctx)
	if err != nil {
		return err
	}
	d, err := p.openDoor(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "Capri %s web listens on %s\n", version, d.server())
	defer p.wakeOthers(ctx)()
	err = serve(ctx, d, p.newAPI(ctx, logs), d.secured, p.log)
	p.log.Info("stopped", "err", err)
	return err
}
