package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"capri"
	"capri/certs"
	"capri/conf"
	"capri/sql/store"
	"capri/watch"
)

func newWatchCommand(a *app) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Tell people when the database, the API or all masters are silent",
		Long: `Stand outside, on a machine that has nothing to do with the masters, and tell people by webhook or mail when
the database, the API or all masters are silent. It needs only the section watch of the configuration.

With --once it looks one time and tells nobody: exit code 0 where all is well, 1 where something is silent. That is
for cron jobs and monitoring systems.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.config()
			if err != nil {
				return err
			}
			return a.watch(cmd.Context(), c, once)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "look one time, print what was seen, tell nobody")
	return cmd
}

func (a *app) watch(ctx context.Context, c *conf.Config, once bool) error {
	k := c.Watch
	o := watch.Options{API: k.API, Interval: k.Interval, Host: hostName(), Log: newLogger(c, a.err),
		Limits: watch.Limits{Database: k.DatabaseSilence, API: k.APISilence, Masters: k.MastersSilence, Monitor: k.MonitorSilence}}
	if k.Webhook != "" {
		o.Channels = append(o.Channels, watch.Webhook(k.Webhook))
	}
	if k.MailServer != "" {
		o.Channels = append(o.Channels, watch.Mail{Server: k.MailServer, TLS: k.MailTLS, From: k.MailFrom, To: k.MailTo, User: k.MailUser, Password: k.MailPassword}.Channel())
	}
	switch {
	case k.DSN == "" && len(k.API) == 0:
		return capri.Invalid("watch.dsn", "", "a database to look at, or addresses in watch.api, or both")
	case len(o.Channels) == 0 && !once:
		return capri.Invalid("watch.webhook", "", "an address, or watch.mail_server: without either nobody is told (--once only prints)")
	}
	secured, err := certs.Client(k.TLS.Files("watch.tls"))
	if err != nil {
		return err
	}
	o.TLS = secured
	if k.DSN != "" {
		s, err := store.Open(ctx, store.Options{DSN: k.DSN, TLS: secured, MaxConns: 1, BeatConns: 1, Log: o.Log})
		if err != nil {
			return err
		}
		defer s.Close()
		o.Store = s
	}
	if once {
		return a.watchOnce(ctx, watch.New(o))
	}
	o.Told = func(m watch.Message) { a.showTold(m) }
	o.Log.Info("watching", "database", k.DSN != "", "api", k.API, "channels", len(o.Channels), "every", k.Interval)
	return watch.New(o).Run(ctx)
}

func (a *app) watchOnce(ctx context.Context, w *watch.Watcher) error {
	found := w.Once(ctx)
	silent := false
	err := a.print(found, func(out io.Writer) {
		for _, f := range found {
			mark := "ok    "
			if !f.OK {
				mark = "SILENT"
			}
			fmt.Fprintf(out, "%s  %s: %s\n", mark, f.Check, oneLine(f.Detail))
		}
	})
	for _, f := range found {
		silent = silent || !f.OK
	}
	if err == nil && silent {
		return errQuiet // exit code 1; what is wrong is printed
	}
	return err
}

// showTold prints what people are told: a document a line where a program reads, so that it can follow.
func (a *app) showTold(m watch.Message) {
	if a.format == "json" {
		line, err := json.Marshal(m)
		if err == nil {
			fmt.Fprintf(a.out, "%s\n", line)
		}
		return
	}
	for _, i := range m.Items {
		fmt.Fprintf(a.out, "%s  %s  %s since %s: %s\n", m.At.UTC().Format(time.RFC3339), i.State, i.Check, i.Since.UTC().Format(time.RFC3339), oneLine(i.Detail))
	}
}
