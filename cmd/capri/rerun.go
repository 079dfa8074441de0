package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"capri"
	"capri/api/wire"
	"capri/client"
)

func newRerunCommand(a *app) *cobra.Command {
	var r wire.Rerun
	var yes bool
	var w waiting
	cmd := &cobra.Command{
		Use:   "rerun TASK --from T --to T",
		Short: "Run a task's batches of a range again, with what rests on them",
		Long: `Run a task's batches of a range on schedule_time again, both ends included; a bare date as --to is all of it. With
--by-data the range is on data intervals, its end excluded. Each batch gets its next run, by today's definition; what
has no batch yet gets its first. What rested on a former run waits for the new one. With --cascade what reads its paths
(data), names it as a parent (logic), or either (both) runs again, too, and so on; each batch once, after all it waits for.

A batch that runs stands in the way: the rerun is refused (--on-running fail), leaves it alone (skip), or kills it
first (kill). What has not started yet just waits again.

With --preview nothing is done: capri campaign show, drop and run go on from there.`,
		Args: oneArg("the name of a task"),
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if err := checkRerun(r); err != nil {
				return err
			}
			// Only what a kill ends cannot be taken back; the rest of a campaign can be cancelled.
			ask := func(p wire.CampaignPlan) error {
				if n := p.Actions["kill_first"]; n > 0 {
					return a.confirm(yes, "kill %d running batches", n)
				}
				return nil
			}
			return a.runPlanned(ctx, c, r.Preview, r.OnRunning == "kill", w, ask, func(preview bool) (wire.CampaignPlan, error) {
				r.Preview = preview
				return c.Rerun(ctx, args[0], r)
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&r.From, "from", "", "begin of the range")
	f.StringVar(&r.To, "to", "", "end of the range, not later than now")
	f.BoolVar(&r.ByData, "by-data", false, "the range is on data intervals, its end excluded")
	f.StringVar(&r.Cascade, "cascade", "none", "none: the task alone; data, logic, both: what rests on it, too")
	f.StringVar(&r.Only, "only", "all", "all, missing or failed")
	f.StringVar(&r.OnRunning, "on-running", "fail", "what runs: fail, skip or kill")
	f.IntVar(&r.Limit, "limit", 0, "how many batches at once; 0: no limit")
	f.StringVar(&r.Order, "order", "oldest", "oldest or newest: which marks go first")
	f.StringVar(&r.Reason, "reason", "", "why")
	f.BoolVar(&r.Preview, "preview", false, "say what would happen, and do nothing")
	f.BoolVar(&yes, "yes", false, "do not ask before --on-running kill kills")
	w.flags(f)
	return cmd
}

func checkRerun(r wire.Rerun) error {
	if r.From == "" || r.To == "" {
		return usage("a rerun needs --from and --to")
	}
	for _, flag := range []struct {
		name, value string
		allowed     []string
	}{
		{"--only", r.Only, []string{"all", "missing", "failed"}},
		{"--on-running", r.OnRunning, []string{"fail", "skip", "kill"}},
		{"--cascade", r.Cascade, []string{"none", "data", "logic", "both"}},
		{"--order", r.Order, []string{"oldest", "newest"}},
	} {
		if !slices.Contains(flag.allowed, flag.value) {
			return capri.Invalid(flag.name, flag.value, strings.Join(flag.allowed, ", "))
		}
	}
	return nil
}

// runPlanned is what a rerun and a cold start have in common: where something is to be asked before, a preview is, and
// that one is run, so that exactly what was confirmed happens.
func (a *app) runPlanned(ctx context.Context, c *client.Client, preview, look bool, wait waiting, confirm func(wire.CampaignPlan) error, do func(preview bool) (wire.CampaignPlan, error)) error {
	p, err := do(preview || look)
	if err != nil {
		return err
	}
	if preview {
		return a.print(p, func(w io.Writer) { writePlan(w, p, true) })
	}
	if look {
		err := confirm(p)
		if err == nil {
			_, err = c.RunCampaign(ctx, p.ID, wire.CampaignRun{})
		}
		if err != nil { // a preview that nobody wants is not left behind
			if _, e := c.CancelCampaign(ctx, p.ID, wire.CampaignChange{Reason: "it was not run"}); e != nil {
				return fmt.Errorf("%w (and campaign %d, its preview, was not cancelled: %w)", err, p.ID, e)
			}
			return err
		}
		p.Made = p.Actions["new"] + p.Actions["new_run"] + p.Actions["kill_first"]
	}
	d, err := a.waitCampaign(ctx, c, p.ID, wait)
	if err != nil {
		return err
	}
	if d.State == "refused" {
		return capri.Conflict("campaign %d: %s", d.ID, d.Message)
	}
	p.Campaign = d.Campaign
	if err := a.print(p, func(w io.Writer) { writePlan(w, p, false) }); err != nil {
		return err
	}
	return campaignEnd(d, wait)
}

func writePlan(w io.Writer, p wire.CampaignPlan, preview bool) {
	writeItems(w, p.Items, p.Size)
	verb := "made"
	if preview {
		verb = "would be made"
	}
	n := p.Actions
	fmt.Fprintf(w, "%d new and %d new runs %s, %d left waiting, %d left alone, %d exist\n", n["new"], n["new_run"]+n["kill_first"], verb, n["left_waiting"], n["left_alone"], n["exists"])
	if n["in_the_way"] > 0 {
		fmt.Fprintf(w, "%d are in the way: take them out (capri campaign drop %d task:batch_no), or preview with --on-running skip or kill\n", n["in_the_way"], p.ID)
	}
	if n["refused"] > 0 {
		fmt.Fprintf(w, "%d are refused, since their definition cannot be used (capri campaign show %d --action refused)\n", n["refused"], p.ID)
	}
	cost := costs(p.Campaign)
	switch {
	case preview:
		writeEstimate(w, p.Estimate)
		fmt.Fprintf(w, "a preview, nothing was done: %s; run it with capri campaign run %d\n", cost, p.ID)
	default:
		fmt.Fprintf(w, "campaign %d is %s: %s (capri campaign show %d)\n", p.ID, p.State, cost, p.ID)
	}
}
