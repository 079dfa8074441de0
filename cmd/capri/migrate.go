package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"capri"
	"capri/certs"
	"capri/conf"
	"capri/sql/schema"
	"capri/sql/store"
	"capri/worker"
)

// databaseFile is SQLite's, in the data directory.
const databaseFile = "capri.db"

// openStore opens the configured database.
func openStore(ctx context.Context, c *conf.Config) (*store.Store, error) {
	o := store.Options{DSN: c.Database.DSN, MaxConns: c.Database.Connections, BeatConns: c.Database.Beats}
	if c.Database.Driver() == conf.SQLite {
		o.Path = filepath.Join(c.Data, databaseFile)
	}
	var err error
	if o.TLS, err = certs.Client(c.Database.TLS.Files("database.tls")); err != nil {
		return nil, err
	}
	return store.Open(ctx, o)
}

func newMigrateCommand(a *app) *cobra.Command {
	var yes bool
	// with runs fn on the configured database. A command that changes SQLite's takes its directory, as standalone does,
	// so that neither pulls the tables away under the other.
	with := func(changes bool, fn func(ctx context.Context, c *conf.Config, s *store.Store) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, _ []string) error {
			c, err := a.config()
			if err != nil {
				return err
			}
			if c.Database.Driver() == conf.SQLite {
				if changes {
					dir, err := worker.OpenDirectory(c.Data)
					if err != nil {
						return err
					}
					defer dir.Close()
				} else if _, err := os.Stat(filepath.Join(c.Data, databaseFile)); errors.Is(err, os.ErrNotExist) {
					return capri.NotFound("there is no database %s: capri migrate up makes it", databaseName(c))
				}
			}
			s, err := openStore(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer s.Close()
			if err := s.Ping(cmd.Context()); err != nil {
				return err
			}
			return fn(cmd.Context(), c, s)
		}
	}
	up := &cobra.Command{Use: "up", Short: "Bring the database to this capri's schema", Args: noArgs,
		RunE: with(true, func(ctx context.Context, c *conf.Config, s *store.Store) error {
			applied, err := schema.Up(ctx, s.DB(), s.Dialect(), c.Timezone)
			if err != nil {
				return err
			}
			if applied == nil {
				applied = []string{}
			}
			return a.print(map[string]any{"applied": applied}, func(w io.Writer) {
				g := newGrid("applied")
				for _, name := range applied {
					g.add(name)
				}
				g.write(w, "nothing to do: the schema is current")
			})
		})}
	status := &cobra.Command{Use: "status", Short: "List the migrations and whether the database has them", Args: noArgs,
		RunE: with(false, func(ctx context.Context, c *conf.Config, s *store.Store) error {
			list, err := schema.Status(ctx, s.DB(), s.Dialect())
			if err != nil {
				return err
			}
			type row struct {
				Version   int64      `json:"version"`
				Name      string     `json:"name"`
				Applied   bool       `json:"applied"`
				AppliedAt *time.Time `json:"applied_at"`
			}
			rows := make([]row, len(list))
			for i, m := range list {
				rows[i] = row{Version: m.Version, Name: m.Name, Applied: m.Applied}
				if m.AppliedAt != 0 {
					t := m.AppliedAt.In(c.Zone())
					rows[i].AppliedAt = &t
				}
			}
			return printTable(a, rows, newGrid("migration", "applied", "at"), "no migrations", func(r row) []any {
				return []any{r.Name, yesNo(r.Applied), r.AppliedAt}
			})
		})}
	reset := &cobra.Command{Use: "reset", Short: "Take all tables down and make them anew: all data is lost", Args: noArgs,
		RunE: with(true, func(ctx context.Context, c *conf.Config, s *store.Store) error {
			if err := a.confirm(yes, "delete all tables of %s, with every task and batch", databaseName(c)); err != nil {
				return err
			}
			if err := schema.Reset(ctx, s.DB(), s.Dialect(), c.Timezone); err != nil {
				return err
			}
			return a.say(map[string]string{"reset": databaseName(c)}, "the database is new and empty")
		})}
	clean := &cobra.Command{Use: "clean", Short: "Delete all rows and keep the tables", Args: noArgs,
		RunE: with(true, func(ctx context.Context, c *conf.Config, s *store.Store) error {
			if err := a.confirm(yes, "delete all rows of %s, every task and batch", databaseName(c)); err != nil {
				return err
			}
			if err := schema.Clean(ctx, s.DB(), s.Dialect()); err != nil {
				return err
			}
			return a.say(map[string]string{"cleaned": databaseName(c)}, "all rows are deleted")
		})}
	for _, c := range []*cobra.Command{reset, clean} {
		c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	}
	return group("migrate", "Make, look at and empty the database", up, status, reset, clean)
}

// databaseName says which database is meant, without its password.
func databaseName(c *conf.Config) string {
	if c.Database.Driver() == conf.SQLite {
		return filepath.Join(c.Data, databaseFile)
	}
	for _, v := range c.Values() {
		if v.Key == "database.dsn" {
			return v.Value
		}
	}
	return "the database"
}
