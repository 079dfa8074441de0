package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which capri this is",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Revision string `json:"revision"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{version, revision(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.say(v, "capri %s (%s, %s, %s)", v.Version, first(v.Revision, "no revision"), v.Go, v.Platform)
		},
	}
}

func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	return revision + dirty
}
