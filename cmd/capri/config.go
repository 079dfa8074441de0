package main

import (
	"github.com/spf13/cobra"

	"capri/alerting/channel"
	"capri/alerting/words"
)

func newConfigCommand(a *app) *cobra.Command {
	return group("config", "Look at the configuration", &cobra.Command{
		Use:   "check",
		Short: "Check the configuration and print the effective one, secrets masked",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.config()
			if err != nil {
				return err
			}
			if _, err := channel.FromConfig(c); err != nil { // templates of gateways
				return err
			}
			if _, err := words.New(words.Options{Language: c.Alerting.Language, Dir: c.Alerting.Templates}); err != nil {
				return err
			}
			if a.format == "table" {
				return c.Print(a.out) // as a file that capri reads, with the source of each value
			}
			return a.print(c.Values(), nil)
		},
	})
}
