package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are shown by --help of each command. A test holds them to the commands, flags and values that there are.
var examples = map[string]string{ //nolint:gosec // a password is a command here
	"standalone":            "capri standalone --data ./capri-data",
	"master":                "capri master --name m1",
	"master list":           "capri master list",
	"web":                   "capri web --listen 0.0.0.0:8680",
	"worker":                "capri worker --node n1 --data /var/lib/capri",
	"watch":                 "capri watch --once",
	"version":               "capri version",
	"config check":          "capri config check --config /etc/capri.yaml",
	"doctor":                "capri doctor",
	"migrate up":            "capri migrate up",
	"migrate status":        "capri migrate status",
	"migrate reset":         "capri migrate reset --yes  # in a script",
	"migrate clean":         "capri migrate clean",
	"sample load":           "capri sample load",
	"plan":                  "capri plan --task dwd_orders --from 2026-11-01 --to 2026-11-08\ncapri plan --cron '0 30 2 * * ?' --timezone Asia/Shanghai --from 2026-11-01 --to 2026-11-08",
	"task apply":            "capri task apply -f tasks/ --dry-run\ncapri task apply -f tasks/ --prune  # lists what it would delete, and asks",
	"task list":             "capri task list --group dw --enabled false",
	"task show":             "capri task show dwd_orders",
	"task enable":           "capri task enable dwd_orders dwd_users",
	"task disable":          "capri task disable dwd_orders --reason 'its source moves'",
	"task delete":           "capri task delete dwd_orders",
	"task export":           "capri task export --group dw\ncapri task export dwd_orders",
	"task history":          "capri task history dwd_orders",
	"task grant-alert":      "capri task grant-alert dwd_orders bob --mail",
	"task revoke-alert":     "capri task revoke-alert dwd_orders bob",
	"batch list":            "capri batch list --task 'dwd_*' --state waiting,failed --from 2026-11-01\ncapri batch list --department sales --late -o json",
	"batch show":            "capri batch show 4711",
	"execute":               "capri execute dwd_orders\ncapri execute dwd_orders --interval 20261118 --param mode=full",
	"rerun":                 "capri rerun dwd_orders --from 2026-11-01 --to 2026-11-07\ncapri rerun dwd_orders --from 2026-11-01 --to 2026-11-07 --cascade both --preview",
	"cold-start":            "capri cold-start --period day --from 2026-11-01 --to 2026-11-07 --group dw --preview\ncapri cold-start --period hour,day,week --from 2026-11-01 --to 2026-11-01 --limit 20",
	"campaign list":         "capri campaign list --state running",
	"campaign show":         "capri campaign show 12 --action in_the_way",
	"campaign run":          "capri campaign run 12 --limit 50",
	"campaign drop":         "capri campaign drop 12 dwd_users dwd_orders:20261118",
	"campaign limit":        "capri campaign limit 12 20",
	"campaign pause":        "capri campaign pause 12 --reason 'the cluster is needed'",
	"campaign resume":       "capri campaign resume 12",
	"campaign cancel":       "capri campaign cancel 12\ncapri campaign cancel 12 --kill --reason 'wrong range'",
	"run-now":               "capri run-now 4711 4712 --reason 'the file came by mail'\ncapri run-now dwd_orders",
	"force-success":         "capri force-success 4711 --reason 'loaded by hand'",
	"kill":                  "capri kill 4711 4712 --reason 'wrong input'",
	"hold":                  "capri hold 4711 --reason 'not before noon'",
	"release":               "capri release 4711",
	"why":                   "capri why 4711",
	"logs":                  "capri logs 4711 -f\ncapri logs 4711 --attempt 2 --stderr",
	"third-party ready":     "capri third-party ready payments_closed --period day --interval 20261118",
	"third-party fail":      "capri third-party fail payments_closed --period day --interval 20261118",
	"third-party withdraw":  "capri third-party withdraw payments_closed --period day --interval 20261118 --reason 'reopened'",
	"quality":               "capri quality 4711 --runnable --reason 'checked by hand'",
	"report-code":           "capri report-code 3 --message 'no rows'",
	"report-progress":       "capri report-progress 40",
	"status":                "capri status",
	"events":                "capri events --kind batch --state failed,killed\ncapri events --task dwd_orders -o json",
	"node list":             "capri node list",
	"node drain":            "capri node drain n1 --reason 'a new disk'",
	"node resume":           "capri node resume n1",
	"node remove":           "capri node remove n1",
	"node key list":         "capri node key list",
	"node key create":       "capri node key create n1 --pool etl --expires 90d",
	"node key revoke":       "capri node key revoke 7",
	"service list":          "capri service list",
	"service runs":          "capri service runs dispatch --failed --from 2026-11-20",
	"service trigger":       "capri service trigger generate",
	"pause":                 "capri pause --group dw --reason 'the warehouse moves' --until '2026-11-20 06:00'\ncapri pause --list",
	"resume":                "capri resume --group dw",
	"dispatch show":         "capri dispatch show",
	"dispatch limit":        "capri dispatch limit 200\ncapri dispatch limit --no-limit",
	"breaker list":          "capri breaker list",
	"breaker open":          "capri breaker open --task dwd_orders --reason 'its table is being mended'",
	"breaker close":         "capri breaker close --group dw",
	"alert list":            "capri alert list --all",
	"alert show":            "capri alert show 31",
	"alert ack":             "capri alert ack 31",
	"alert silence add":     "capri alert silence add --group dw --until '2026-11-20 06:00' --reason 'the warehouse moves'",
	"alert silence list":    "capri alert silence list",
	"alert silence end":     "capri alert silence end 3",
	"alert raise":           "capri alert raise 'the tape robot stands' --level important --key tape",
	"alert test":            "capri alert test mail --to alice@example.com",
	"alert templates":       "capri alert templates ./templates",
	"duty list":             "capri duty list --department sales",
	"duty set":              "capri duty set duty.yaml --dry-run",
	"duty export":           "capri duty export --system",
	"duty delete":           "capri duty delete --department sales",
	"duty override list":    "capri duty override list --department sales",
	"duty override add":     "capri duty override add --department sales --user bob --from 2026-12-24 --to 2026-12-26",
	"duty override delete":  "capri duty override delete 5",
	"user list":             "capri user list",
	"user set":              "capri user set bob --role member --department sales --mail bob@example.com",
	"user delete":           "capri user delete bob",
	"user password":         "capri user password  # your own\ncapri user password bob",
	"user enable":           "capri user enable bob",
	"user disable":          "capri user disable bob",
	"department list":       "capri department list",
	"department set":        "capri department set sales --title 'Sales and returns'",
	"department delete":     "capri department delete sales",
	"account list":          "capri account list",
	"account grant":         "capri account grant etl --department sales",
	"account revoke":        "capri account revoke etl --user bob",
	"app list":              "capri app list",
	"app create":            "capri app create portal --role member --owner bob --scope read,batches --expires 365d",
	"app set":               "capri app set portal --role read_only",
	"app rotate":            "capri app rotate portal --overlap 24h",
	"app enable":            "capri app enable portal",
	"app disable":           "capri app disable portal",
	"app delete":            "capri app delete portal",
	"action list":           "capri action list --task dwd_orders --from 2026-11-01\ncapri action list --who bob --action kill -o json",
	"login":                 "capri login --user alice",
	"logout":                "capri logout",
	"whoami":                "capri whoami",
	"token list":            "capri token list",
	"token create":          "capri token create notebook --scope read --expires 30d",
	"token revoke":          "capri token revoke 9",
	"completion bash":       "capri completion bash",
	"completion zsh":        "capri completion zsh",
	"completion fish":       "capri completion fish",
	"completion powershell": "capri completion powershell",
}

// nameOf is a command without the name of the program.
func nameOf(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}

// each calls fn with a command and all below it.
func each(cmd *cobra.Command, fn func(*cobra.Command)) {
	fn(cmd)
	for _, c := range cmd.Commands() {
		each(c, fn)
	}
}

func addExamples(root *cobra.Command) {
	each(root, func(cmd *cobra.Command) {
		if lines, ok := examples[nameOf(cmd)]; ok {
			cmd.Example = "  " + strings.ReplaceAll(lines, "\n", "\n  ")
		}
	})
}
