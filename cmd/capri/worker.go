package main

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"capri"
	"capri/certs"
	"capri/client"
	"capri/conf"
	"capri/worker"
)

func newWorkerCommand(a *app) *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run the jobs that masters assign to this node",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.configWith(cmd, map[string]string{"node": "node.name", "data": "data"})
			if err != nil {
				return err
			}
			return a.worker(cmd.Context(), c, address)
		},
	}
	cmd.Flags().String("node", "", "name of this node (default: the host's)")
	cmd.Flags().String("data", "./capri-data", "data directory")
	cmd.Flags().StringVar(&address, "listen", ":0", "address on which masters read this node's logs")
	return cmd
}

func (a *app) worker(ctx context.Context, c *conf.Config, address string) error {
	if err := needsServer(c, "worker"); err != nil {
		return err
	}
	dir, err := worker.OpenDirectory(c.Data)
	if err != nil {
		return err
	}
	held := dir
	defer func() {
		if held != nil {
			held.Close()
		}
	}()
	p, err := a.beginProcess(ctx, c, false)
	if err != nil {
		return err
	}
	defer p.close()
	secured, err := p.securedLogs()
	if err != nil {
		return err
	}
	l, err := listen(ctx, address)
	if err != nil {
		return err
	}
	o, err := p.workerOptions(ctx, dir, first(a.getenv("CAPRI_SERVER"), client.DefaultServer), a.getenv("CAPRI_CACERT"))
	if err != nil {
		l.Close()
		return err
	}
	o.Node.Port = l.Addr().(*net.TCPAddr).Port
	if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsUnspecified() {
		o.Node.IP = ip.String()
	}
	w, err := worker.New(o)
	if err != nil {
		l.Close()
		return err
	}
	held = nil
	fmt.Fprintf(a.out, "Capri %s worker %s: %d slots in pool %s, data %s\n", version, w.Name(), c.Node.Slots, c.Node.Pool, dir.Path())
	return p.run(ctx, w.Run, func(ctx context.Context) error { return serve(ctx, l, w.LogHandler(), secured, p.log) })
}

// securedLogs is the certificate under which this node gives its logs; nil: in plain HTTP.
func (p *process) securedLogs() (*certs.Server, error) {
	t := p.conf.TLS
	if t.CA == "" {
		return nil, nil //nolint:nilnil // no TLS is a valid choice
	}
	if t.Cert == "" {
		return nil, capri.Invalid("tls.cert", "", "the file with this node's certificate beside tls.ca")
	}
	return certs.NewServer(certs.ServerFiles{Cert: t.Cert, Key: t.Key}, p.log)
}
