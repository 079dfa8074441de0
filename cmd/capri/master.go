package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"capri"
	"capri/auth"
	"capri/certs"
	"capri/conf"
	"capri/files"
	"capri/sql/store"
	"capri/worker"
)

func newMasterCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "master",
		Short: "Run the services and the API on MySQL or MariaDB",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.configWith(cmd, map[string]string{"listen": "listen"})
			if err != nil {
				return err
			}
			return a.master(cmd.Context(), c, first(name, hostName()))
		},
	}
	cmd.AddCommand(newMasterListCommand(a))
	cmd.Flags().StringVar(&name, "name", "", "name of this master (default: the host's)")
	cmd.Flags().String("listen", "127.0.0.1:8680", "address of the API")
	return cmd
}

// needsServer refuses the embedded database where several processes share one.
func needsServer(c *conf.Config, what string) error {
	if c.Database.DSN == "" {
		return capri.Invalid("database.dsn", "", "the DSN of a MySQL or MariaDB: capri "+what+" shares its database with other processes; for the embedded one run capri standalone")
	}
	return nil
}

func (a *app) master(ctx context.Context, c *conf.Config, name string) error {
	if err := conf.CheckName("--name", name); err != nil {
		return err
	}
	p, err := a.beginShared(ctx, c, "master")
	if err != nil {
		return err
	}
	defer p.close()
	return a.serveShared(ctx, p, "master "+name, func(server string) part { return p.newMaster(name, server, false).Run })
}

// beginShared begins a process that serves the API on a database that others use as well.
func (a *app) beginShared(ctx context.Context, c *conf.Config, what string) (*process, error) {
	if err := needsServer(c, what); err != nil {
		return nil, err
	}
	p, err := a.beginProcess(ctx, c, false)
	if err != nil {
		return nil, err
	}
	err = p.prepareAlerting(ctx)
	if err == nil {
		err = a.firstKey(ctx, p)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// firstKey makes the first key of a new database, whoever starts on it first: without one nobody could do anything.
func (a *app) firstKey(ctx context.Context, p *process) error {
	made, err := auth.FirstKey(ctx, p.store, p.conf.Data)
	if made {
		fmt.Fprintf(a.out, "The first key, an administrator's, is in %s\n", auth.AdminKeyFile(p.conf.Data))
	}
	return err
}

// serveShared serves the API, and runs what beside makes for its address, if that is not nil.
func (a *app) serveShared(ctx context.Context, p *process, name string, beside func(server string) part) error {
	logs, err := p.nodeLogs(ctx)
	if err != nil {
		return err
	}
	d, err := p.openDoor(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "Capri %s %s listens on %s\n", version, name, d.server())
	parts := []part{p.api(d, logs)}
	if beside != nil {
		parts = append(parts, beside(d.server()))
	}
	return p.run(ctx, parts...)
}

// nodeLogs reads logs from the workers, and from the log store.
func (p *process) nodeLogs(ctx context.Context) (*nodeLogs, error) {
	secret, err := p.store.ClusterSecret(ctx)
	if err != nil {
		return nil, err
	}
	secured, err := certs.Client(certs.Files{Field: "tls", CA: p.conf.TLS.CA})
	if err != nil {
		return nil, err
	}
	kept, err := worker.LogStoreFromConfig(p.conf)
	return &nodeLogs{p.store, secret, secured, kept}, err
}

// nodeLogs reads a log from the node that ran the attempt.
type nodeLogs struct {
	store  *store.Store
	secret []byte
	tls    *tls.Config // nil: plain HTTP
	kept   files.Store // the log store; nil: there is none
}

func (n *nodeLogs) ReadLog(ctx context.Context, batch store.BatchRow, attempt int, stderr bool, offset int64, limit int) ([]byte, int64, bool, error) {
	node := ""
	events, err := n.store.Events(ctx, batch.ID)
	if err != nil {
		return nil, 0, false, err
	}
	for _, e := range events {
		if e.Attempt == attempt && e.Node != "" {
			node = e.Node
		}
	}
	if node == "" {
		return nil, 0, false, capri.NotFound("attempt %d of batch %d was never assigned to a node", attempt, batch.ID)
	}
	remote := worker.RemoteLogs{Secret: n.secret, TLS: n.tls, Node: func(ctx context.Context, name string) (capri.Node, error) {
		nodes, err := n.store.Nodes(ctx)
		for _, nd := range nodes {
			if nd.Name == name {
				return nd, nil
			}
		}
		if err == nil {
			err = capri.NotFound("node %s, which ran it, is not registered any more: its log is in that machine's data directory", name)
		}
		return capri.Node{}, err
	}}
	data, next, complete, err := remote.ReadLog(ctx, node, batch, attempt, stderr, offset, limit)
	if n.kept != nil && (errors.Is(err, capri.ErrUnavailable) || errors.Is(err, capri.ErrNotFound)) {
		// The node is away, or has cleaned up; what the store has not either, the node's own answer is about.
		if data, next, complete, e := worker.ReadKeptLog(ctx, n.kept, node, batch, attempt, stderr, offset, limit); e == nil {
			return data, next, complete, nil
		}
	}
	return data, next, complete, err
}
