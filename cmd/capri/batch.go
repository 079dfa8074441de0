package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"capri"
	"capri/api/wire"
	"capri/client"
)

func newBatchCommand(a *app) *cobra.Command {
	return group("batch", "Look at batches", newBatchList(a), newBatchShow(a))
}

func newBatchList(a *app) *cobra.Command {
	var f wire.Batches
	cmd := &cobra.Command{Use: "list", Short: "List batches, newest first", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		if err := checkLimit(f.Limit); err != nil {
			return err
		}
		batches, err := c.Batches(ctx, f)
		if err != nil {
			return err
		}
		return a.print(batches, func(w io.Writer) { writeBatches(w, batches) })
	})}
	fl := cmd.Flags()
	fl.StringVar(&f.Task, "task", "", "of this task; * stands for anything")
	fl.StringVar(&f.State, "state", "", "in these states, or finish states, separated by commas")
	fl.StringVar(&f.FinishState, "finish-state", "", "with these finish states, beside --state")
	fl.StringVar(&f.Period, "period", "", "hour, day, week, month, cron or manual")
	fl.StringVar(&f.Group, "group", "", "of tasks of this group")
	fl.StringVar(&f.Owner, "owner", "", "of tasks of this owner")
	fl.StringVar(&f.Department, "department", "", "of tasks whose owner is of this department")
	fl.StringVar(&f.Node, "node", "", "on this node")
	fl.Int64Var((*int64)(&f.Campaign), "campaign", 0, "what runs for this campaign")
	fl.StringVar(&f.From, "from", "", "scheduled at or after")
	fl.StringVar(&f.To, "to", "", "scheduled at or before; a bare date is all of it")
	fl.BoolVar(&f.ByData, "by-data", false, "the range is on data intervals, its end excluded")
	fl.BoolVar(&f.Oldest, "oldest", false, "the oldest first")
	fl.BoolVar(&f.Late, "late", false, "late ones only")
	fl.BoolVar(&f.AllRuns, "all-runs", false, "every run of a batch_no, not only the latest")
	fl.BoolVar(&f.Archived, "archived", false, "archived ones too; a range that reaches back has them anyway")
	limitFlag(cmd, &f.Limit, 100)
	return cmd
}

func writeBatches(w io.Writer, batches []wire.Batch) {
	g := newGrid("id", "task", "batch_no", "run", "scheduled", "state", "unmet", "node").limit("task", 30).limit("node", 16)
	for _, b := range batches {
		run, unmet := "", ""
		if b.RunNo > 0 {
			run = strconv.Itoa(b.RunNo)
		}
		if b.State == "waiting" && b.Unmet > 0 {
			unmet = strconv.Itoa(b.Unmet)
		}
		g.add(strconv.FormatInt(int64(b.ID), 10), b.Task, string(b.BatchNo), run, b.ScheduleTime, stateOf(b), unmet, b.Node)
	}
	g.write(w, "no batches")
}

// stateOf is a batch's state in a word or two.
func stateOf(b wire.Batch) string {
	s := b.State
	switch {
	case b.State == "finished":
		return b.FinishState
	case b.KillRequest:
		s = "killing"
	case b.Held:
		s = "held"
	case b.State == "running" && b.StartTime == nil:
		s = "preparing"
	case b.State == "running" && b.Progress > 0:
		s = fmt.Sprintf("running %d%%", b.Progress)
	}
	if b.FinishState != "none" {
		s += ", " + b.FinishState // late, and alerted
	}
	return s
}

func newBatchShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show ID", Short: "Show a batch with its conditions, attempts and events", Args: oneArg("the id of a batch"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := batchID(args[0])
		if err != nil {
			return err
		}
		b, err := c.Batch(ctx, id)
		if err != nil {
			return err
		}
		return a.print(b, func(w io.Writer) { writeBatch(w, b) })
	})}
}

func writeBatch(w io.Writer, b wire.BatchDetail) {
	fmt.Fprintf(w, "batch %d of %s (version %d): %s %s, run %d, %s\n", b.ID, b.Task, b.TaskVersion, b.Period, b.BatchNo, b.RunNo, b.Origin)
	line := func(name string, v any) {
		if s := cell(v); s != "" {
			fmt.Fprintf(w, "  %-14s %s\n", name, s)
		}
	}
	line("state", stateOf(b.Batch))
	if b.Archived {
		line("archived", "yes; its conditions are what its definition says")
	}
	line("data", cell(b.DataStart)+" … "+cell(b.DataEnd))
	line("scheduled", b.ScheduleTime)
	line("not before", b.NotBefore)
	line("node", b.Node)
	line("started", b.StartTime)
	line("finished", b.FinishTime)
	if b.StartTime != nil && b.FinishTime != nil {
		line("ran for", b.FinishTime.Sub(*b.StartTime).Round(time.Second).String())
	}
	if b.Progress > 0 && b.FinishTime == nil {
		line("progress", fmt.Sprintf("%d %%", b.Progress))
	}
	line("application", b.ApplicationID)
	if b.ActualMemoryMB > 0 {
		line("had at most", fmt.Sprintf("%d MB in memory, %d processes", b.ActualMemoryMB, max(1, b.ActualProcesses)))
	}
	if b.Failures+b.Rejections+b.Losses > 0 {
		line("tries", fmt.Sprintf("%d failed, %d rejected, %d lost", b.Failures, b.Rejections, b.Losses))
	}
	for _, k := range slices.Sorted(maps.Keys(b.Params)) {
		line("param", k+" = "+oneLine(b.Params[k]))
	}
	if b.RunNow {
		line("run now", "somebody let it start without its conditions")
	}
	line("message", b.Message)
	writeConditions(w, b.Conditions)
	writeAttempts(w, b.Attempts)
	writeHistory(w, b.Events)
}

// below writes a table under what stands there; nothing where it has no rows.
func below(w io.Writer, g *grid) {
	if len(g.rows) > 0 {
		fmt.Fprintln(w)
		g.write(w, "")
	}
}

func writeConditions(w io.Writer, conditions []wire.Condition) {
	g := newGrid("condition", "state", "of", "batch", "is").limit("of", 60)
	for _, c := range conditions {
		of, is := c.Path, c.BatchState
		switch c.Kind {
		case "third_party":
			of = c.Code
		case "parent":
			of = c.Parent
			if c.Policy != "" && c.Policy != "ALL" {
				of += " (" + c.Policy + ")"
			}
			if is == "finished" {
				is = c.FinishState
			}
			if c.BatchID == 0 {
				is = "not there"
			}
		default:
			if c.Flag != "" {
				of += "/" + c.Flag
			}
		}
		g.add(c.Kind, c.State, of, string(c.BatchNo), is)
	}
	below(w, g)
}

func writeAttempts(w io.Writer, attempts []wire.Attempt) {
	g := newGrid("attempt", "node", "started", "ended", "as", "why").limit("why", 40)
	for _, t := range attempts {
		as := t.FinishState
		if as == "none" {
			as = ""
		}
		g.add(t.Attempt, t.Node, t.Started, t.Ended, as, t.Why)
	}
	below(w, g)
}

func writeHistory(w io.Writer, events []wire.Event) {
	g := newGrid("at", "state", "attempt", "who", "why").limit("why", 48).limit("who", 16)
	for _, e := range events {
		state := e.State
		switch {
		case e.State == "finished":
			state = e.FinishState
		case e.KillRequest:
			state = "killing"
		case e.Held:
			state = "held"
		}
		g.add(e.At, state, e.Attempt, e.Who, e.Why)
	}
	below(w, g)
}

func batchID(text string) (capri.BatchID, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, capri.Invalid("ID", text, "the number of a batch")
	}
	return capri.BatchID(id), nil
}

func newExecuteCommand(a *app) *cobra.Command {
	var x wire.Execute
	var params []string
	cmd := &cobra.Command{
		Use:   "execute TASK",
		Short: "Run a task out of its schedule, for the newest interval that has ended or another one",
		Long: `Run a task out of its schedule: for the newest interval that has ended, or with --interval for another one of its
period, by batch_no or by its exact bounds (FROM..TO). Where there is a run that has finished it is the next one. Its
conditions hold; capri run-now does without them. Parameters are the environment of this run alone (--param day=x is
PARAM_DAY), and are shown with the batch: they are no place for secrets.`,
		Args: oneArg("the name of a task"),
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			for _, p := range params {
				name, value, ok := strings.Cut(p, "=")
				if !ok || name == "" {
					return capri.Invalid("--param", p, "name=value")
				}
				if _, twice := x.Params[name]; twice {
					return capri.Invalid("--param", p, "each name once")
				}
				if x.Params == nil {
					x.Params = map[string]string{}
				}
				x.Params[name] = value
			}
			b, err := c.Execute(ctx, args[0], x)
			if err != nil {
				return err
			}
			return a.say(b, "batch %d: %s %s, run %d (capri batch show %d)", b.ID, b.Task, b.BatchNo, b.RunNo, b.ID)
		}),
	}
	cmd.Flags().StringArrayVar(&params, "param", nil, "name=value, seen by this run's job as PARAM_NAME; may be given several times")
	cmd.Flags().StringVar(&x.Interval, "interval", "", "batch_no, or FROM..TO of one interval (default: the newest that has ended)")
	cmd.Flags().StringVar(&x.Reason, "reason", "", "why; it stands in the log of actions")
	return cmd
}

func newRunNowCommand(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "run-now ID…|TASK",
		Short: "Let waiting batches start without their conditions",
		Long: `Let waiting batches start without their conditions and before their earliest start; that is recorded. Of a task it is the
newest interval that has ended, whose batch is made if there is none. Limits, pauses, breakers and a quality gate hold.`,
		Args: someArgs("the ids of batches, or the name of a task"),
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if _, err := batchID(args[0]); err != nil && len(args) == 1 {
				b, err := c.RunTaskNow(ctx, args[0], reason)
				if err != nil {
					return err
				}
				return a.say(b, "batch %d: %s %s, run %d, starts as soon as there is a place", b.ID, b.Task, b.BatchNo, b.RunNo)
			}
			return a.changeIDs(ctx, c, "run now", wire.IDs{Reason: reason}, args, false, false, (*client.Client).RunNow)
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the batch's history")
	return cmd
}

func newColdStartCommand(a *app) *cobra.Command {
	var periods []string
	var tasks string
	var r wire.ColdStart
	var yes bool
	var wt waiting
	cmd := &cobra.Command{
		Use:   "cold-start --period P[,P…] --from T --to T",
		Short: "Make the batches of a range",
		Long: `Make the batches of a range on schedule_time, both ends included; a bare date as --to is all of it. With
--by-data the range is on data intervals, its end excluded. Enabled tasks only, by today's definitions. What has
not finished is left alone; what has finished runs again with --only all, or --only failed. Of several periods
(--period hour,day) what is of one waits for what is of another, as ever.`,
		Args: noArgs,
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			switch {
			case len(periods) == 0:
				return usage("a cold start needs --period: hour, day, week, month or cron, or several of them")
			case r.From == "" || r.To == "":
				return usage("a cold start needs --from and --to")
			}
			for _, text := range periods {
				p, err := capri.ParsePeriod(strings.TrimSpace(text))
				if err != nil || p == capri.Manual {
					return capri.Invalid("--period", text, "hour, day, week, month or cron (a manual task has no marks: capri execute runs it)")
				}
				r.Periods = append(r.Periods, p)
			}
			if r.Only != "missing" && r.Only != "all" && r.Only != "failed" {
				return capri.Invalid("--only", r.Only, "missing, all or failed")
			}
			for _, t := range strings.Split(tasks, ",") {
				if t = strings.TrimSpace(t); t != "" {
					r.Tasks = append(r.Tasks, t)
				}
			}
			if !slices.Contains([]string{"oldest", "newest"}, r.Order) {
				return capri.Invalid("--order", r.Order, "oldest or newest")
			}
			// What has succeeded is replaced, and what rested on it waits again: that is asked before.
			ask := func(p wire.CampaignPlan) error {
				if n := p.Actions["new_run"]; n > 0 {
					return a.confirm(yes, "run %d batches again that have finished", n)
				}
				return nil
			}
			return a.runPlanned(ctx, c, r.Preview, r.Only == "all", wt, ask, func(preview bool) (wire.CampaignPlan, error) {
				r.Preview = preview
				return c.ColdStart(ctx, r)
			})
		}),
	}
	f := cmd.Flags()
	f.StringSliceVar(&periods, "period", nil, "hour, day, week, month or cron; several: day,week")
	f.StringVar(&r.From, "from", "", "begin of the range")
	f.StringVar(&r.To, "to", "", "end of the range")
	f.StringVar(&r.Group, "group", "", "tasks of this group")
	f.StringVar(&tasks, "task", "", "these tasks: a,b")
	f.StringVar(&r.Only, "only", "missing", "missing, all or failed")
	f.IntVar(&r.Limit, "limit", 0, "how many batches at once; 0: no limit")
	f.StringVar(&r.Order, "order", "oldest", "oldest or newest: which marks go first within a priority")
	f.StringVar(&r.Reason, "reason", "", "why")
	wt.flags(f)
	f.BoolVar(&r.ByData, "by-data", false, "the range is on data intervals, its end excluded")
	f.BoolVar(&r.Preview, "preview", false, "say what would happen, and do nothing")
	f.BoolVar(&yes, "yes", false, "do not ask before --only all runs again what has succeeded")
	return cmd
}

// newIDsCommand is kill, hold and the like, which differ in what they call.
func newIDsCommand(a *app, verb, short string, ask bool, do func(*client.Client, context.Context, wire.IDs) ([]wire.IDResult, error)) *cobra.Command {
	var reason string
	var yes bool
	cmd := &cobra.Command{Use: verb + " ID…", Short: short, Args: someArgs("the ids of batches"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		return a.changeIDs(ctx, c, verb, wire.IDs{Reason: reason}, args, ask, yes, do)
	})}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the batch's history")
	if ask {
		cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	}
	return cmd
}

// changeIDs does something to several batches and tells what became of each.
func (a *app) changeIDs(ctx context.Context, c *client.Client, verb string, r wire.IDs, args []string, ask, yes bool,
	do func(*client.Client, context.Context, wire.IDs) ([]wire.IDResult, error)) error {
	for _, arg := range args {
		id, err := batchID(arg)
		if err != nil {
			return err
		}
		r.IDs = append(r.IDs, id)
	}
	if ask {
		for _, id := range r.IDs[:min(len(r.IDs), 100)] { // nobody wants to be asked about what is not there
			if _, err := c.Batch(ctx, id); err != nil {
				return err
			}
		}
		if err := a.confirm(yes, "%s batch %s", verb, strings.Join(args, ", ")); err != nil {
			return err
		}
	}
	results, err := do(c, ctx, r)
	if err != nil {
		return err
	}
	err = a.print(results, func(w io.Writer) {
		g := newGrid("id", "result", "is")
		for _, x := range results {
			g.add(strconv.FormatInt(int64(x.ID), 10), x.Result, x.Detail)
		}
		g.write(w, "no batches")
	})
	left := 0
	for _, x := range results {
		if x.Result == "unchanged" || x.Result == "refused" {
			left++
		}
	}
	if err == nil && left > 0 {
		return capri.Conflict("%d of %d batches were in no state to %s", left, len(results), verb)
	}
	return err
}

func newKillCommand(a *app) *cobra.Command {
	return newIDsCommand(a, "kill", "Kill batches: a waiting one ends at once, a running one with all its processes", true, (*client.Client).Kill)
}

func newForceSuccessCommand(a *app) *cobra.Command {
	return newIDsCommand(a, "force-success", "Make a success of batches that wait or have finished otherwise; needs --reason", true, (*client.Client).ForceSuccess)
}

func newHoldCommand(a *app) *cobra.Command {
	return newIDsCommand(a, "hold", "Keep batches from starting until they are released", false, (*client.Client).Hold)
}

func newReleaseCommand(a *app) *cobra.Command {
	return newIDsCommand(a, "release", "Let held batches start", false, (*client.Client).Release)
}

func newWhyCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "why ID", Short: "Say why a batch is not running", Args: oneArg("the id of a batch"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := batchID(args[0])
		if err != nil {
			return err
		}
		why, err := c.Why(ctx, id)
		if err != nil {
			return err
		}
		return a.print(why, func(w io.Writer) {
			b := why.Batch
			fmt.Fprintf(w, "batch %d of %s (%s) is %s\n", b.ID, b.Task, b.BatchNo, stateOf(b))
			if len(why.Causes) == 0 {
				paragraph(w, "  ", why.Summary)
			}
			for _, alike := range alikeCauses(why.Causes) {
				for _, cause := range alike[:min(len(alike), causesShown)] {
					paragraph(w, "  ", "- "+cause.Detail)
				}
				if more := len(alike) - causesShown; more > 0 {
					paragraph(w, "  ", fmt.Sprintf("- and %d more like these (-o json has all)", more))
				}
				for _, line := range concerns(alike[0]) {
					paragraph(w, "      ", line)
				}
			}
			if why.MayStartAt != nil && len(why.Causes) > 0 {
				fmt.Fprintln(w, "  it may start at about "+cell(why.MayStartAt))
			}
		})
	})}
}

// causesShown is how many causes are shown of which everything is alike but what they say: the paths of a day's 24 hours.
const causesShown = 3

// alikeCauses puts causes that follow each other together where they concern the same people and times.
func alikeCauses(causes []wire.Cause) (out [][]wire.Cause) {
	for _, c := range causes {
		if n := len(out); n > 0 && out[n-1][0].Kind == c.Kind && slices.Equal(concerns(out[n-1][0]), concerns(c)) {
			out[n-1] = append(out[n-1], c)
		} else {
			out = append(out, []wire.Cause{c})
		}
	}
	return out
}

// concerns says whom a cause concerns, and its times.
func concerns(c wire.Cause) []string {
	var lines []string
	if len(c.Chain) > 2 {
		way := make([]string, len(c.Chain))
		for i, l := range c.Chain {
			way[i] = oneLine(l.Name)
		}
		lines = append(lines, "behind "+strings.Join(way, " → "))
	}
	var about []string
	if c.Owner != "" {
		about = append(about, "owner "+c.Owner)
	}
	if len(c.OnDuty) > 0 {
		about = append(about, "on duty "+strings.Join(c.OnDuty, ", "))
	}
	if c.Since != nil {
		about = append(about, "since "+cell(c.Since))
	}
	if c.Until != nil {
		about = append(about, "until about "+cell(c.Until))
	}
	if len(about) > 0 {
		lines = append(lines, strings.Join(about, " · "))
	}
	return lines
}

// newLogsCommand prints what a job wrote, and nothing around it, so that it can be piped.
func newLogsCommand(a *app) *cobra.Command {
	var attempt int
	var stderr, follow bool
	cmd := &cobra.Command{Use: "logs ID", Short: "Print what a batch's job wrote", Args: oneArg("the id of a batch"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := batchID(args[0])
		if err != nil {
			return err
		}
		if attempt < 0 {
			return capri.Invalid("--attempt", strconv.Itoa(attempt), "the number of an attempt")
		}
		if a.format == "table" {
			return copyLog(ctx, c, id, attempt, stderr, follow, func(p []byte) error {
				_, err := a.out.Write(p)
				return err
			})
		}
		var text strings.Builder
		if err := copyLog(ctx, c, id, attempt, stderr, follow, func(p []byte) error { text.Write(p); return nil }); err != nil {
			return err
		}
		return a.print(map[string]any{"id": id, "log": text.String()}, nil)
	})}
	cmd.Flags().IntVar(&attempt, "attempt", 0, "of this attempt (default: the newest)")
	cmd.Flags().BoolVar(&stderr, "stderr", false, "stderr, not stdout")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	return cmd
}

func copyLog(ctx context.Context, c *client.Client, id capri.BatchID, attempt int, stderr, follow bool, write func([]byte) error) error {
	for offset := int64(0); ; {
		piece, err := c.Log(ctx, id, attempt, stderr, offset, 0)
		if err != nil {
			return err
		}
		if err := write(piece.Data); err != nil {
			return err
		}
		more := piece.Next > offset
		offset = piece.Next
		if more {
			continue
		}
		if piece.Complete || !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil // Ctrl-C is how one stops following
		case <-time.After(500 * time.Millisecond): // a person watches
		}
	}
}

func newThirdPartyCommand(a *app) *cobra.Command {
	one := func(verb, short string) *cobra.Command {
		var interval, period, reason string
		cmd := &cobra.Command{Use: verb + " CODE --interval BATCH_NO --period P", Short: short, Args: oneArg("a third party's code"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if interval == "" || period == "" {
				return usage("capri third-party %s needs --interval and --period", verb)
			}
			p, err := capri.ParsePeriod(period)
			if err != nil {
				return named("--period", err)
			}
			if err := c.ThirdParty(ctx, args[0], wire.Said{Said: verb, Period: p, BatchNo: interval, Reason: reason}); err != nil {
				return err
			}
			return a.say(map[string]string{"code": args[0], "period": period, "batch_no": interval, "said": verb}, "%s %s %s: %s", args[0], period, interval, verb)
		})}
		cmd.Flags().StringVar(&interval, "interval", "", "batch_no of the interval")
		cmd.Flags().StringVar(&period, "period", "", "its period")
		cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the log of actions")
		return cmd
	}
	return group("third-party", "Report what a third party says", one("ready", "The datum of an interval is ready"),
		one("fail", "The datum of an interval failed"), one("withdraw", "The datum of an interval is withdrawn"))
}
