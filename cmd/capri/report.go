package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"capri"
	"capri/api/wire"
	"capri/client"
)

// What a job says of itself goes straight to the API, with the token of its attempt, and not through its worker.

func newReportCodeCommand(a *app) *cobra.Command {
	var message string
	var patience time.Duration
	cmd := &cobra.Command{Use: "report-code N", Short: "Inside a job: say how it went (check: user_code); 0 is success",
		Long: `Inside a job whose task has check: user_code, say how it went: 0 is success, anything else is not. The last code that was
reported counts when the job ends; success can be reported once and stands, whatever happens to the job afterwards.

While no server answers it tries again, up to --patience. Without capri at hand the same is said by
  curl -f -H "Authorization: Bearer $CAPRI_ATTEMPT_TOKEN" -H "Content-Type: application/json" \
    -d '{"code": 0}' "${CAPRI_SERVER%%,*}/api/v1/attempt/code"
where --cacert "$CAPRI_CACERT" belongs to it if that is set.`,
		Args: oneArg("a code, 0 for success"), RunE: func(cmd *cobra.Command, args []string) error {
			code, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return capri.Invalid("code", args[0], "a whole number; 0 is success")
			}
			return a.report(cmd.Context(), patience, func(ctx context.Context, c *client.Client) error {
				return c.ReportCode(ctx, wire.UserCode{Code: code, Message: message})
			})
		}}
	cmd.Flags().StringVar(&message, "message", "", "what people should read")
	cmd.Flags().DurationVar(&patience, "patience", 10*time.Minute, "how long it tries while no server answers")
	return cmd
}

func newReportProgressCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "report-progress PERCENT", Short: "Inside a job: say how far it has come",
		Args: oneArg("0 to 100"), RunE: func(cmd *cobra.Command, args []string) error {
			percent, err := strconv.Atoi(args[0])
			if err != nil || percent < 0 || percent > 100 {
				return capri.Invalid("progress", args[0], "0 to 100")
			}
			return a.report(cmd.Context(), 0, func(ctx context.Context, c *client.Client) error {
				return c.ReportProgress(ctx, wire.Progress{Percent: percent})
			})
		}}
}

// report says something in the name of the attempt inside which we run.
func (a *app) report(ctx context.Context, patience time.Duration, say func(context.Context, *client.Client) error) error {
	token := a.getenv("CAPRI_ATTEMPT_TOKEN")
	if token == "" {
		return capri.Invalid("CAPRI_ATTEMPT_TOKEN", "", "the variable that a job finds in its environment; this command is for jobs")
	}
	c, err := a.clientOf(first(a.server, a.getenv("CAPRI_SERVER"), client.DefaultServer), token)
	if err != nil {
		return err
	}
	for began, pause := time.Now(), 200*time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		err := say(ctx, c)
		if !errors.Is(err, capri.ErrUnavailable) || time.Since(began)+pause > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
