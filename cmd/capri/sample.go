package main

import (
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"capri"
	"capri/api/wire"
	"capri/calendar"
	"capri/client"
)

//go:embed sample/*.yaml
var sampleFiles embed.FS

// folderMark stands in the sample files for the folder that its jobs write to.
const folderMark = "@FOLDER@"

func newSampleCommand(a *app) *cobra.Command {
	folder := filepath.Join(os.TempDir(), "capri-sample")
	load := &cobra.Command{
		Use:   "load",
		Short: "Load a small pipeline to look at, and make its batches of the last day",
		Args:  noArgs,
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			if !filepath.IsAbs(folder) || strings.ContainsAny(folder, "\"'$`\\\n{}") {
				return capri.Invalid("--folder", folder, "an absolute path of ordinary characters")
			}
			out, err := loadSample(ctx, c, filepath.Clean(folder))
			if err != nil {
				return err
			}
			return a.print(out, func(w io.Writer) {
				writeApplied(w, out.Applied)
				fmt.Fprintf(w, `%d batches made: the hours since %s, and the day %s.
Jobs write to %s. Look around:
  capri batch list                      what ran, and what waits
  capri batch list --state waiting      sample_statement waits for somebody outside
  capri why %-8d                    … and this is why
  capri third-party ready sample_bank_closed --period day --interval %s
`, out.Made, cell(&out.From), out.Day, folder, out.Waiting, out.Day)
			})
		}),
	}
	load.Flags().StringVar(&folder, "folder", folder, "what the sample's jobs write to")
	return group("sample", "Something to look at", load)
}

// sampleLoaded is what `sample load` did.
type sampleLoaded struct {
	Applied wire.Applied  `json:"applied"`
	Made    int           `json:"made"`
	From    time.Time     `json:"from"`
	Day     capri.BatchNo `json:"day"`
	Waiting capri.BatchID `json:"waiting"` // the batch that shows what waiting looks like
}

// loadSample may be called again: it then changes nothing but what is missing.
func loadSample(ctx context.Context, c *client.Client, folder string) (sampleLoaded, error) {
	var out sampleLoaded
	if err := c.SaveDepartment(ctx, wire.Department{Name: "sample", Title: "Those who look around"}); err != nil {
		return out, err
	}
	if err := c.SaveUser(ctx, wire.User{Name: "sample", Department: "sample"}); err != nil {
		return out, err
	}
	var r wire.Apply
	err := fs.WalkDir(sampleFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := sampleFiles.ReadFile(path)
		r.Sources = append(r.Sources, wire.Source{Name: path, Data: strings.ReplaceAll(string(data), folderMark, folder)})
		return err
	})
	if err != nil {
		return out, err
	}
	if out.Applied, err = c.Apply(ctx, r); err != nil {
		return out, err
	}

	// Yesterday, and the hours from its beginning until now, so that the day's tasks find the hours that they wait for.
	status, err := c.Status(ctx)
	if err != nil {
		return out, err
	}
	zone, err := time.LoadLocation(status.Zone)
	if err != nil {
		return out, fmt.Errorf("the server's zone: %w", err)
	}
	day := calendar.New(zone).EndedBy(capri.Day, capri.InstantOf(status.Now.Add(-time.Minute))) // a minute later is its mark
	out.Day, out.From = day.BatchNo, day.Start.In(zone)
	start, now := out.From.Format(time.RFC3339), status.Now.Format(time.RFC3339)
	for _, cs := range []wire.ColdStart{
		{Period: capri.Hour, Group: "sample", From: start, To: now, ByData: true},
		{Period: capri.Day, Group: "sample", From: start, To: day.End.In(zone).Format(time.RFC3339), ByData: true},
	} {
		done, err := c.ColdStart(ctx, cs)
		if err != nil {
			return out, err
		}
		out.Made += done.Made
		if _, err := lookAtCampaign(ctx, c, done.ID, false, func(int, int) {}); err != nil {
			return out, err
		}
	}
	// One third party has spoken, the other has not: one task runs, the other shows what waiting looks like.
	err = c.ThirdParty(ctx, "sample_payments_closed", wire.Said{Said: "ready", Period: capri.Day, BatchNo: string(day.BatchNo)})
	if err != nil {
		return out, err
	}
	waiting, err := c.Batches(ctx, wire.Batches{Task: "sample_statement", Limit: 1})
	if err == nil && len(waiting) > 0 {
		out.Waiting = waiting[0].ID
	}
	return out, err
}
