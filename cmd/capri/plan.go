package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"capri"
	"capri/api/wire"
	"capri/calendar"
	"capri/cron"
)

func newPlanCommand(a *app) *cobra.Command {
	var task, expression, period, zone, from, to string
	var limit int
	cmd := &cobra.Command{
		Use:   "plan --from T --to T [--task NAME | --cron EXPR | --period P]",
		Short: "Show what would be generated at the marks of a time range; writes nothing",
		Long: `Show what would be generated at marks from --from (included) to --to (excluded); a bare date is its
first instant in both. With --cron or --period no server is needed; without them the server is asked about one
task, or about all.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := 0
			for _, s := range []string{"task", "cron", "period"} {
				if cmd.Flags().Changed(s) {
					given++
				}
			}
			switch {
			case given > 1:
				return usage("--task, --cron and --period exclude each other")
			case from == "" || to == "":
				return usage("a plan needs --from and --to")
			case limit < 1:
				return capri.Invalid("--limit", strconv.Itoa(limit), "at least 1")
			}
			local := cmd.Flags().Changed("cron") || cmd.Flags().Changed("period")
			var rows []wire.PlanRow
			var err error
			if local {
				rows, err = a.localPlan(expression, period, zone, from, to, limit)
			} else if cmd.Flags().Changed("timezone") {
				return usage("--timezone goes with --cron or --period: the server has a zone of its own")
			} else {
				c, e := a.client()
				if e != nil {
					return e
				}
				rows, err = c.Plan(cmd.Context(), task, from, to, limit)
			}
			if err != nil {
				return err
			}
			if rows == nil {
				rows = []wire.PlanRow{}
			}
			return printTable(a, rows, newGrid("task", "period", "mark", "batch_no", "data_start", "data_end"), "no marks in that range", func(r wire.PlanRow) []any {
				return []any{r.Task, r.Period, r.Mark, string(r.BatchNo), r.DataStart, r.DataEnd}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&task, "task", "", "the plan of this task")
	f.StringVar(&expression, "cron", "", "the plan of a Quartz cron expression")
	f.StringVar(&period, "period", "", "the plan of a period: hour, day, week or month")
	f.StringVar(&zone, "timezone", "", "business zone (default: the configured one)")
	f.StringVar(&from, "from", "", "first mark")
	f.StringVar(&to, "to", "", "end of the marks, excluded")
	f.IntVar(&limit, "limit", wire.PlanLimit, "at most so many rows")
	return cmd
}

// localPlan needs the calendar alone.
func (a *app) localPlan(expression, period, zone, from, to string, limit int) ([]wire.PlanRow, error) {
	location, err := a.zone(zone)
	if err != nil {
		return nil, err
	}
	c := calendar.New(location)
	start, err := c.ParseTime(from)
	if err != nil {
		return nil, named("--from", err)
	}
	end, err := c.ParseTime(to)
	if err != nil {
		return nil, named("--to", err)
	}
	if end < start {
		return nil, capri.Invalid("--to", to, "not before --from "+from)
	}
	p := capri.Cron
	var ivs []capri.Interval
	if expression != "" || period == "" {
		e, err := cron.Parse(expression)
		if err != nil {
			return nil, named("--cron", err)
		}
		ivs = c.CronFires(e, start, end, limit)
	} else {
		if p, err = capri.ParsePeriod(period); err != nil || !p.Calendar() {
			return nil, capri.Invalid("--period", period, "hour, day, week or month (a cron task's marks are the fires of --cron EXPR, a manual task has none)")
		}
		for iv := range c.Marks(p, start, end) {
			if ivs = append(ivs, iv); len(ivs) == limit {
				break
			}
		}
	}
	rows := make([]wire.PlanRow, len(ivs))
	for i, iv := range ivs {
		rows[i] = wire.PlanRowOf(nil, p, iv, location)
	}
	return rows, nil
}

// zone is the one that was asked for, or the configured one.
func (a *app) zone(name string) (*time.Location, error) {
	if name == "" {
		c, err := a.config()
		if err != nil {
			return nil, err
		}
		return c.Zone(), nil
	}
	location, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, capri.Invalid("--timezone", name, "a zone's name such as UTC or Asia/Shanghai")
	}
	return location, nil
}

// named puts a flag's name on an error about its value.
func named(flag string, err error) error {
	var fe *capri.FieldError
	if errors.As(err, &fe) {
		return capri.Invalid(flag, fe.Value, fe.Want)
	}
	return usage("%s: %v", flag, err)
}
