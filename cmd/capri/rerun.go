package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"capri"
	"capri/api/wire"
	"capri/client"
)

const itemKillAsked = "kill_asked"

func newRerunCommand(a *app) *cobra.Command {
	var r wire.Rerun
	var yes bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "rerun TASK --from T --to T",
		Short: "Run a task's batches of a range again",
		Long: `Run a task's batches of a range on schedule_time again, both ends included; a bare date as --to is all of it. With
--by-data the range is on data intervals, its end excluded. Each batch gets its next run, by today's definition; what
has no batch yet gets its first. What rested on a former run waits for the new one.

A batch that has not finished stands in the way: the rerun is refused (--on-running fail), leaves it alone (skip), or
kills it first (kill) and waits up to --wait for its worker to end it.`,
		Args: oneArg("the name of a task"),
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if err := checkRerun(r); err != nil {
				return err
			}
			if r.OnRunning == "kill" && !r.Preview {
				ask := r
				ask.Preview = true
				planned, err := c.Rerun(ctx, args[0], ask)
				if err != nil {
					return err
				}
				if n := counted(planned.Items)[itemKillAsked]; n > 0 {
					if err := a.confirm(yes, "kill %d running batches", n); err != nil {
						return err
					}
				}
			}
			done, err := c.Rerun(ctx, args[0], r)
			if err != nil {
				return err
			}
			if !r.Preview {
				if err := rerunKilled(ctx, c, args[0], r, &done, wait); err != nil {
					return err
				}
			}
			if err := a.print(done, func(w io.Writer) { writeRange(w, done.Items, r.Preview) }); err != nil {
				return err
			}
			if n := counted(done.Items)[itemKillAsked]; n > 0 && !r.Preview {
				return capri.Conflict("%d batches are still being killed: rerun them when they have ended", n)
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&r.From, "from", "", "begin of the range")
	f.StringVar(&r.To, "to", "", "end of the range, not later than now")
	f.BoolVar(&r.ByData, "by-data", false, "the range is on data intervals, its end excluded")
	f.StringVar(&r.Cascade, "cascade", "none", "none: the task alone")
	f.StringVar(&r.Only, "only", "all", "all, missing or failed")
	f.StringVar(&r.OnRunning, "on-running", "fail", "what has not finished: fail, skip or kill")
	f.DurationVar(&wait, "wait", time.Minute, "with --on-running kill, how long to wait for running batches to end")
	f.BoolVar(&r.Preview, "preview", false, "say what would happen, and do nothing")
	f.BoolVar(&yes, "yes", false, "do not ask")
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
	} {
		if !slices.Contains(flag.allowed, flag.value) {
			return capri.Invalid(flag.name, flag.value, strings.Join(flag.allowed, ", "))
		}
	}
	return nil
}

// rerunKilled asks again for the batches whose workers were told to end them, until each has its new run. The server
// does not wait for workers, so whoever wants the rerun to be whole does.
func rerunKilled(ctx context.Context, c *client.Client, task string, r wire.Rerun, done *wire.Reran, wait time.Duration) error {
	at := map[capri.BatchNo]int{}
	for i, it := range done.Items {
		if it.Action == itemKillAsked {
			at[it.BatchNo] = i
		}
	}
	r.OnRunning, r.Only = "skip", "all"
	for until := time.Now().Add(wait); len(at) > 0 && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond): // a worker takes up to ten seconds to end a job
		}
		r.BatchNos = r.BatchNos[:0:0]
		for no := range at {
			r.BatchNos = append(r.BatchNos, no)
		}
		again, err := c.Rerun(ctx, task, r)
		if err != nil {
			return fmt.Errorf("rerun what was killed: %w", err)
		}
		done.Made += again.Made
		for _, it := range again.Items {
			if i, ok := at[it.BatchNo]; ok && it.Action == "new_run" {
				done.Items[i] = it
				delete(at, it.BatchNo)
			}
		}
	}
	return nil
}
