package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"capri"
	"capri/api/wire"
	"capri/client"
)

// waiting says how long a command waits for its campaign.
type waiting struct{ wait, noWait bool }

func (w *waiting) flags(f *pflag.FlagSet) {
	f.BoolVar(&w.wait, "wait", false, "wait until it has ended (the default on a terminal; else: until its batches are made)")
	f.BoolVar(&w.noWait, "no-wait", false, "do not wait at all")
}

// Campaigns are looked at this often, and those of which nothing moves any more are waited for no longer.
const (
	campaignLook  = 300 * time.Millisecond
	campaignStill = 10 * time.Second
)

// waitCampaign waits until a campaign's batches exist, or until it is over, with a bar where somebody looks.
func (a *app) waitCampaign(ctx context.Context, c *client.Client, id capri.CampaignID, w waiting) (wire.CampaignDetail, error) {
	if w.noWait {
		return c.Campaign(ctx, id)
	}
	bar := a.progress(fmt.Sprintf("campaign %d", id))
	defer bar.end()
	return lookAtCampaign(ctx, c, id, w.wait || terminalOf(a.out, a.getenv).columns > 0, bar.set)
}

// lookAtCampaign looks until a campaign is over, or (not toEnd) its batches exist. Where nothing moves any more it looks no
// longer: what waits for what failed waits until somebody does something, and without a master nothing happens at all.
func lookAtCampaign(ctx context.Context, c *client.Client, id capri.CampaignID, toEnd bool, set func(done, total int)) (wire.CampaignDetail, error) {
	var last wire.CampaignProgress
	moved := time.Now()
	for pause := campaignLook / 10; ; pause = min(2*pause, campaignLook) {
		d, err := c.Campaign(ctx, id)
		if err != nil {
			return d, err
		}
		p := d.Progress
		set(p.Finished, p.Total)
		if p != last {
			last, moved = p, time.Now()
		}
		still := time.Since(moved) > campaignStill
		switch d.State {
		case "done", "cancelled", "refused", "paused":
			return d, nil
		case "running":
			if !toEnd || still && p.Failed+p.Killed > 0 && p.Running+p.Ready == 0 {
				return d, nil
			}
		default:
			if still && !toEnd {
				return d, nil
			}
		}
		select {
		case <-ctx.Done():
			return d, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// campaignEnd is the exit of a command that waited for a campaign's end.
func campaignEnd(d wire.CampaignDetail, w waiting) error {
	p := d.Progress
	if bad := p.Failed + p.Killed; w.wait && bad > 0 {
		return fmt.Errorf("campaign %d: %d batches did not succeed, %d wait", d.ID, bad, p.Total-p.Finished)
	}
	return nil
}

func newCampaignCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "campaign", Short: "Look at reruns, cascades and cold starts, and change them", Args: noArgs}
	cmd.AddCommand(newCampaignListCommand(a), newCampaignShowCommand(a), newCampaignRunCommand(a), newCampaignDropCommand(a), newCampaignLimitCommand(a),
		newCampaignChangeCommand(a, "pause", "Keep what has not started of a campaign from starting", (*client.Client).PauseCampaign),
		newCampaignChangeCommand(a, "resume", "Let a paused campaign go on", (*client.Client).ResumeCampaign),
		newCampaignCancelCommand(a))
	return cmd
}

func campaignID(text string) (capri.CampaignID, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, capri.Invalid("ID", text, "the number of a campaign (capri campaign list)")
	}
	return capri.CampaignID(n), nil
}

func newCampaignListCommand(a *app) *cobra.Command {
	var f client.CampaignFilter
	var limit int
	cmd := &cobra.Command{Use: "list", Short: "List campaigns, the newest first", Args: noArgs,
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			all, err := c.Campaigns(ctx, f, limit)
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) {
				g := newGrid("id", "kind", "state", "target", "items", "hours", "limit", "who", "created", "message").limit("target", 36).limit("message", 40)
				for _, k := range all {
					g.add(k.ID, k.Kind, k.State, k.Target, k.Size, fmt.Sprintf("%.1f", k.Hours), k.Limit, k.Who, k.CreatedAt, k.Message)
				}
				g.write(w, "no campaign")
			})
		})}
	cmd.Flags().StringVar(&f.State, "state", "", "previewed, creating, running, paused, cancelling, done, cancelled or refused")
	cmd.Flags().StringVar(&f.From, "from", "", "made at or after")
	cmd.Flags().StringVar(&f.To, "to", "", "made at or before; a bare date is all of it")
	limitFlag(cmd, &limit, 50)
	return cmd
}

// campaignShown is what show prints as JSON and YAML.
type campaignShown struct {
	wire.CampaignDetail
	Items []wire.CampaignItem `json:"items"`
}

func newCampaignShowCommand(a *app) *cobra.Command {
	var action string
	var limit int
	cmd := &cobra.Command{Use: "show ID", Short: "A campaign, how far it has come, and what it does with each batch", Args: oneArg("the number of a campaign"),
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := campaignID(args[0])
			if err != nil {
				return err
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			d, err := c.Campaign(ctx, id)
			if err != nil {
				return err
			}
			items, err := c.CampaignItems(ctx, id, action, limit)
			if err != nil {
				return err
			}
			return a.print(campaignShown{d, items}, func(w io.Writer) {
				writeCampaign(w, d)
				writeItems(w, items, d.Size)
			})
		})}
	cmd.Flags().StringVar(&action, "action", "", "only items of this action: new, new_run, kill_first, left_waiting, in_the_way, left_alone, exists, not_in_definition, disabled or refused")
	limitFlag(cmd, &limit, 1000)
	return cmd
}

func writeCampaign(w io.Writer, d wire.CampaignDetail) {
	p := d.Progress
	paragraph(w, "", fmt.Sprintf("campaign %d: %s of %s by %s, %s", d.ID, d.Kind, d.Target, d.Who, d.State))
	if d.Reason != "" {
		paragraph(w, "", "reason: "+d.Reason)
	}
	paragraph(w, "", fmt.Sprintf("request: %s", d.Request))
	limit := "no limit"
	if d.Limit > 0 {
		limit = fmt.Sprintf("at most %d at once", d.Limit)
	}
	paragraph(w, "", fmt.Sprintf("%d items, %s, %s, %s first", d.Size, costs(d.Campaign), limit, d.Order))
	writeEstimate(w, d.Estimate)
	paragraph(w, "", fmt.Sprintf("%d of %d have ended: %d success, %d failed, %d killed, %d skipped, %d undone; %d running, %d ready, %d waiting, %d to make",
		p.Finished, p.Total, p.Success, p.Failed, p.Killed, p.Skipped, p.Undone, p.Running, p.Ready, p.Waiting, p.ToMake))
	if d.Message != "" {
		paragraph(w, "", d.Message)
	}
}

func costs(c wire.Campaign) string {
	cost := fmt.Sprintf("%.1f hours", c.Hours)
	if c.UnknownCost > 0 {
		cost += fmt.Sprintf(", and %d batches of which no cost is known", c.UnknownCost)
	}
	return cost
}

// The chart of a load has at most so many rows, and bars of so many characters where nobody's terminal is narrower.
const (
	chartRows = 16
	chartBar  = 40
)

// writeEstimate says how long a campaign takes by itself, and draws what it loads.
func writeEstimate(w io.Writer, e *capri.CampaignEstimate) {
	if e == nil || e.Batches == 0 {
		return
	}
	if e.EndsMinutes > 0 {
		limit := ""
		if e.Limit > 0 {
			limit = fmt.Sprintf(" and at most %d batches at once", e.Limit)
		}
		paragraph(w, "", fmt.Sprintf("by itself, with %d slots%s, it ends %s after its start", e.Slots, limit, hours(e.EndsMinutes)))
	}
	if e.ChainBatches > 1 {
		chain := slices.Clone(e.Chain)
		if left := e.ChainBatches - len(chain); left > 0 {
			chain = slices.Insert(chain, len(chain)/2, fmt.Sprintf("… %d more …", left))
		}
		paragraph(w, "", fmt.Sprintf("longest chain: %s, %d batches: %s", hours(e.ChainMinutes), e.ChainBatches, strings.Join(chain, ", ")))
	}
	if e.NoRoom > 0 {
		paragraph(w, "", fmt.Sprintf("%d batches have no room: they need more slots than the live nodes of their pool have that take work; %d wait for such", e.NoRoom, e.Stuck))
	}
	writeLoad(w, e)
}

// writeLoad draws the slots in use over time; a bar of full width is all there are.
func writeLoad(w io.Writer, e *capri.CampaignEstimate) {
	if len(e.Load) == 0 || e.Slots == 0 {
		return
	}
	each := (len(e.Load) + chartRows - 1) / chartRows
	for stretch := range slices.Chunk(e.Load, each) {
		minutes, used := 0, 0.0
		for _, l := range stretch {
			minutes, used = minutes+l.Minutes, used+l.Slots*float64(l.Minutes)
		}
		used /= float64(minutes)
		head := fmt.Sprintf("%7s  %*.1f of %d slots  ", hours(stretch[0].From), len(strconv.Itoa(e.Slots))+2, used, e.Slots)
		bar := chartBar
		if p, ok := w.(*page); ok && p.columns > 0 {
			bar = max(1, min(bar, p.columns-len(head)))
		}
		full := min(bar, int(math.Ceil(used/float64(e.Slots)*float64(bar))))
		fmt.Fprintln(w, head+strings.Repeat("#", full)+strings.Repeat(".", bar-full))
	}
}

// hours writes minutes as 12:05.
func hours(minutes int) string { return fmt.Sprintf("%d:%02d", minutes/60, minutes%60) }

func writeItems(w io.Writer, items []wire.CampaignItem, all int) {
	g := newGrid("task", "batch_no", "scheduled", "action", "reason", "why", "state", "batch").limit("task", 30).limit("reason", 36).limit("why", 36)
	for _, it := range items {
		action, state := it.Action, it.State
		if it.Dropped {
			action = "dropped"
		}
		if it.State == "ended" {
			state = it.FinishState
		}
		batch := "" // none is made yet
		if it.BatchID != 0 {
			batch = cell(it.BatchID)
		}
		g.add(it.Task, string(it.BatchNo), it.ScheduleTime, action, it.Reason, it.Why, state, batch)
	}
	g.write(w, "nothing in that range")
	if len(items) < all {
		fmt.Fprintf(w, "%d of %d items\n", len(items), all)
	}
}

func newCampaignRunCommand(a *app) *cobra.Command {
	var limit int
	var order string
	var w waiting
	cmd := &cobra.Command{Use: "run ID", Short: "Run a previewed campaign, exactly as it was previewed", Args: oneArg("the number of a campaign"),
		Long: "Run a previewed campaign. Where anything of it has changed since its preview, that is said and nothing is done.",
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := campaignID(args[0])
		if err != nil {
			return err
		}
		r := wire.CampaignRun{Order: order}
		if cmd.Flags().Changed("limit") {
			r.Limit = &limit
		}
		if _, err := c.RunCampaign(ctx, id, r); err != nil {
			return err
		}
		d, err := a.waitCampaign(ctx, c, id, w)
		if err != nil {
			return err
		}
		if d.State == "refused" {
			return capri.Conflict("campaign %d: %s", d.ID, d.Message)
		}
		if err := a.print(d, func(w io.Writer) { writeCampaign(w, d) }); err != nil {
			return err
		}
		return campaignEnd(d, w)
	})
	cmd.Flags().IntVar(&limit, "limit", 0, "how many batches at once, 0: no limit (left out: as it was previewed)")
	cmd.Flags().StringVar(&order, "order", "", "oldest or newest first (left out: as it was previewed)")
	w.flags(cmd.Flags())
	return cmd
}

func newCampaignDropCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "drop ID TASK[:BATCH_NO]…", Short: "Take batches out of a previewed campaign", Args: func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 {
			return usage("%s needs the number of a campaign, and tasks or task:batch_no", cmd.CommandPath())
		}
		return nil
	},
		Long: "Take batches out of a previewed campaign: all of a task, or one batch_no. What they brought in stays, and says so: drop it as well if it is not wanted.",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := campaignID(args[0])
			if err != nil {
				return err
			}
			d, err := c.DropItems(ctx, id, args[1:])
			if err != nil {
				return err
			}
			return a.say(d, "campaign %d: %d items taken out", id, d.Dropped)
		})}
}

func newCampaignLimitCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "limit ID N", Short: "Change how many batches of a campaign run at once (0: no limit)", Args: func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 {
			return usage("%s needs the number of a campaign and how many batches at once, and nothing more", cmd.CommandPath())
		}
		return nil
	},
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := campaignID(args[0])
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 0 {
				return capri.Invalid("N", args[1], "how many batches at once, or 0 for no limit")
			}
			k, err := c.LimitCampaign(ctx, id, n)
			if err != nil {
				return err
			}
			return a.say(k, "campaign %d: limit %d", k.ID, k.Limit)
		})}
}

func newCampaignChangeCommand(a *app, verb, short string, do func(*client.Client, context.Context, capri.CampaignID, wire.CampaignChange) (wire.Campaign, error)) *cobra.Command {
	var r wire.CampaignChange
	cmd := &cobra.Command{Use: verb + " ID", Short: short, Args: oneArg("the number of a campaign"),
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := campaignID(args[0])
			if err != nil {
				return err
			}
			k, err := do(c, ctx, id, r)
			if err != nil {
				return err
			}
			return a.say(k, "campaign %d is %s", k.ID, k.State)
		})}
	cmd.Flags().StringVar(&r.Reason, "reason", "", "why")
	return cmd
}

func newCampaignCancelCommand(a *app) *cobra.Command {
	var r wire.CampaignChange
	var yes bool
	cmd := &cobra.Command{Use: "cancel ID", Short: "Undo what has not started of a campaign", Args: oneArg("the number of a campaign"),
		Long: "Cancel a campaign: what has not started is undone, and earlier results count again. What runs goes on, or is killed with --kill.",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := campaignID(args[0])
			if err != nil {
				return err
			}
			if r.Kill { // what was undone can be run again; what was killed has been in vain
				d, err := c.Campaign(ctx, id)
				if err != nil {
					return err
				}
				if d.State != "previewed" {
					if err := a.confirm(yes, "cancel campaign %d, and kill the %d of its batches that run", id, d.Progress.Running); err != nil {
						return err
					}
				}
			}
			k, err := c.CancelCampaign(ctx, id, r)
			if err != nil {
				return err
			}
			return a.say(k, "campaign %d is %s", k.ID, k.State)
		})}
	cmd.Flags().StringVar(&r.Reason, "reason", "", "why")
	cmd.Flags().BoolVar(&r.Kill, "kill", false, "and kill what runs")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask before --kill kills")
	return cmd
}
