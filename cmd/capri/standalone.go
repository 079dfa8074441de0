package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"capri"
	"capri/auth"
	"capri/conf"
	"capri/worker"
)

func newStandaloneCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "standalone",
		Short: "Run master and worker in one process, with the database inside",
		Long: "Runs everything in one process on a data directory: the embedded default, nothing else to install. Jobs that\n" +
			"run when it is stopped go on, and the next start takes them over.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.configWith(cmd, map[string]string{"data": "data", "listen": "listen"})
			if err != nil {
				return err
			}
			return a.standalone(cmd.Context(), c)
		},
	}
	cmd.Flags().String("data", "./capri-data", "data directory")
	cmd.Flags().String("listen", "127.0.0.1:8680", "address of the API")
	return cmd
}

func (a *app) standalone(ctx context.Context, c *conf.Config) error {
	if c.Database.DSN != "" {
		return capri.Invalid("database.dsn", "", "nothing: standalone has its database inside. For MariaDB run capri master and capri worker")
	}
	// The directory's lock is the lease: there is no second master on this database.
	dir, err := worker.OpenDirectory(c.Data)
	if err != nil {
		return err
	}
	held := dir // until the worker has it
	defer func() {
		if held != nil {
			held.Close()
		}
	}()
	p, err := a.beginProcess(ctx, c, true)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.prepareAlerting(ctx); err != nil {
		return err
	}
	if _, err := auth.EnsureAdminKey(ctx, p.store, c.Data); err != nil {
		return err
	}
	d, err := p.openDoor(ctx)
	if err != nil {
		return err
	}
	server := d.server()
	o, err := p.workerOptions(ctx, dir, server, a.getenv("CAPRI_CACERT"))
	if err != nil {
		d.Close()
		return err
	}
	// Nobody else can start this node's batches: its registration, its database and its lock are one directory.
	o.StartWithin, o.KillAfter, o.LeaseWait = 0, 0, false
	w, err := worker.New(o)
	if err != nil {
		d.Close()
		return err
	}
	held = nil
	fmt.Fprintf(a.out, "Capri %s listens on %s\n  data  %s\n  key   %s\n", version, server, dir.Path(), auth.AdminKeyFile(dir.Path()))
	return p.run(ctx, p.newMaster(w.Name(), server, true).Run, w.Run, p.api(d, w))
}
