package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"capri/api/wire"
	"capri/auth"
	"capri/client"
)

// completionTime is how long a person who has pressed the tab key waits for the server.
const completionTime = time.Second

// choices gives what may stand in a place of the command line: fixed values, or names that the server has. "name\ttext"
// shows a text beside the name.
type choices func(ctx context.Context, connect func() (*client.Client, error)) ([]string, error)

func fixed(values ...string) choices {
	return func(context.Context, func() (*client.Client, error)) ([]string, error) { return values, nil }
}

func fixedNames[T ~string](values []T) choices {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return fixed(out...)
}

// namesOf makes choices of a list of the server.
func namesOf[T any](list func(*client.Client, context.Context) ([]T, error), name func(T) string) choices {
	return func(ctx context.Context, connect func() (*client.Client, error)) ([]string, error) {
		c, err := connect()
		if err != nil {
			return nil, err
		}
		all, err := list(c, ctx)
		out := make([]string, 0, len(all))
		for _, x := range all {
			out = append(out, name(x))
		}
		return out, err
	}
}

func allTasks(c *client.Client, ctx context.Context) ([]wire.Task, error) {
	return c.Tasks(ctx, client.TaskFilter{})
}

var (
	taskWords       = namesOf(allTasks, func(t wire.Task) string { return described(t.Name, t.Title) })
	groupWords      = namesOf(allTasks, func(t wire.Task) string { return t.Group })
	nodeWords       = namesOf((*client.Client).Nodes, func(n wire.Node) string { return n.Host })
	poolWords       = namesOf((*client.Client).Nodes, func(n wire.Node) string { return n.Pool })
	serviceWords    = namesOf((*client.Client).Services, func(s wire.Service) string { return s.Service })
	userWords       = namesOf((*client.Client).Users, func(u wire.User) string { return u.Name })
	departmentWords = namesOf((*client.Client).Departments, func(d wire.Department) string { return described(d.Name, d.Title) })
	appWords        = namesOf((*client.Client).Apps, func(x wire.App) string { return x.Name })
	accountWords    = namesOf((*client.Client).AccountGrants, func(g wire.AccountGrant) string { return g.Account })
	campaignWords   = namesOf(func(c *client.Client, ctx context.Context) ([]wire.Campaign, error) {
		return c.Campaigns(ctx, client.CampaignFilter{}, 50)
	},
		func(k wire.Campaign) string {
			return described(fmt.Sprint(k.ID), fmt.Sprintf("%s of %s, %s", k.Kind, k.Target, k.State))
		})
	incidentWords = namesOf(func(c *client.Client, ctx context.Context) ([]wire.Incident, error) {
		return c.Incidents(ctx, false, 50)
	},
		func(i wire.Incident) string { return described(strconv.FormatInt(i.ID, 10), i.Title) })

	periodWords = fixed("hour", "day", "week", "month", "cron", "manual")
	roleWords   = fixedNames(auth.Roles)
	scopeWords  = fixedNames(auth.Scopes)
	finishWords = fixed("success", "failed", "killed", "dependency_timeout", "output_timeout", "skipped")
	stateWords  = fixed("waiting", "assigned", "running", "finished", "success", "failed", "killed", "dependency_timeout", "output_timeout", "skipped")
	orderWords  = fixed("oldest", "newest")
	onlyWords   = fixed("all", "missing", "failed")
)

// described puts a text beside a word.
func described(word, text string) string {
	if text = oneLine(text); text == "" {
		return word
	}
	return word + "\t" + text
}

// flagWords are the words of flags, by command and flag, or by the flag's name in all commands that have it. Flags that take
// a file complete files; all others nothing.
var flagWords = map[string]choices{
	"output": fixed("table", "json", "yaml"),
	"task":   taskWords, "group": groupWords, "node": nodeWords, "user": userWords, "owner": userWords, "department": departmentWords,
	"period": periodWords, "role": roleWords, "scope": scopeWords, "finish-state": finishWords, "order": orderWords, "only": onlyWords,
	"batch list --state": stateWords, "events --state": stateWords,
	"task list --enabled":       fixed("true", "false"),
	"plan --period":             fixed("hour", "day", "week", "month"),
	"cold-start --period":       fixed("hour", "day", "week", "month", "cron"),
	"rerun --cascade":           fixed("none", "data", "logic", "both"),
	"rerun --on-running":        fixed("fail", "skip", "kill"),
	"campaign list --state":     fixed("previewed", "creating", "running", "paused", "cancelling", "done", "cancelled", "refused"),
	"campaign show --action":    fixed("new", "new_run", "kill_first", "left_waiting", "in_the_way", "left_alone", "exists", "not_in_definition", "disabled", "refused"),
	"events --kind":             fixed(wire.EventBatch, wire.EventNode, wire.EventService),
	"alert raise --level":       fixed("attention", "important", "severe"),
	"duty override add --place": fixed("primary", "secondary"),
	"action list --who":         userWords,
	"node key create --pool":    poolWords,
}

// severalInOne are the flags that take several words with commas between them.
var severalInOne = []string{"scope", "batch list --state", "batch list --finish-state", "cold-start --task", "cold-start --period", "events --task", "events --state", "events --kind"}

// fileFlags take a file, or a directory.
var fileFlags = []string{"config", "file", "data", "token-file", "cacert", "cert", "cert-key", "password-file", "new-password-file"}

// argWords are the words of a command's arguments, the last of them also of all that follow where a command takes several.
// What is not here takes nothing that is known beforehand.
var argWords = map[string][]choices{
	"task show": {taskWords}, "task enable": {taskWords}, "task disable": {taskWords}, "task delete": {taskWords}, "task export": {taskWords},
	"task history": {taskWords}, "task grant-alert": {taskWords, userWords}, "task revoke-alert": {taskWords, userWords},
	"execute": {taskWords}, "rerun": {taskWords}, "run-now": {taskWords},
	"campaign show": {campaignWords}, "campaign run": {campaignWords}, "campaign drop": {campaignWords, taskWords}, "campaign limit": {campaignWords},
	"campaign pause": {campaignWords}, "campaign resume": {campaignWords}, "campaign cancel": {campaignWords},
	"node drain": {nodeWords}, "node resume": {nodeWords}, "node remove": {nodeWords}, "node key create": {nodeWords},
	"service trigger": {serviceWords},
	"service runs":    {serviceWords},
	"alert show":      {incidentWords}, "alert ack": {incidentWords}, "alert test": {fixed("mail", "sms", "phone")},
	"user set": {userWords}, "user delete": {userWords}, "user password": {userWords}, "user enable": {userWords}, "user disable": {userWords},
	"department set": {departmentWords}, "department delete": {departmentWords},
	"account grant": {accountWords}, "account revoke": {accountWords},
	"app set": {appWords}, "app rotate": {appWords}, "app enable": {appWords}, "app disable": {appWords}, "app delete": {appWords},
}

// fileArgs take a file or a directory as their argument.
var fileArgs = []string{"duty set", "alert templates"}

// addCompletion says to each command what completes its arguments and flags.
func (a *app) addCompletion(root *cobra.Command) {
	each(root, func(cmd *cobra.Command) {
		name := nameOf(cmd)
		if !cmd.HasSubCommands() && !slices.Contains(fileArgs, name) {
			places, many := argWords[name], strings.Contains(cmd.Use, "…")
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				at := len(args)
				if many {
					at = min(at, len(places)-1)
				}
				if at < 0 || at >= len(places) {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return a.complete(cmd, places[at], typed, args)
			}
		}
		register := func(f *pflag.Flag) {
			w, ok := flagWords[name+" --"+f.Name]
			if !ok {
				w = flagWords[f.Name]
			}
			several := slices.Contains(severalInOne, f.Name) || slices.Contains(severalInOne, name+" --"+f.Name)
			if w == nil && slices.Contains(fileFlags, f.Name) {
				return // cobra completes files where nothing is said
			}
			// A flag has one function; that it has one already is all that can go wrong.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				switch {
				case w == nil:
					return nil, cobra.ShellCompDirectiveNoFileComp
				case !several:
					return a.complete(cmd, w, typed, nil)
				}
				before, last := "", typed
				if i := strings.LastIndex(typed, ","); i >= 0 {
					before, last = typed[:i+1], typed[i+1:]
				}
				found, d := a.complete(cmd, w, last, strings.Split(before, ","))
				for i := range found {
					found[i] = before + found[i]
				}
				return found, d | cobra.ShellCompDirectiveNoSpace
			})
		}
		cmd.LocalNonPersistentFlags().VisitAll(register)
		if cmd == root {
			cmd.PersistentFlags().VisitAll(register)
		}
	})
}

// complete gives the words that begin as what was typed, each once, without those that stand there already. A server that
// is away, slow or refuses gives none: whoever presses the tab key wants no message in the middle of his line.
func (a *app) complete(cmd *cobra.Command, w choices, typed string, without []string) ([]string, cobra.ShellCompDirective) {
	ctx, stop := context.WithTimeout(cmd.Context(), completionTime)
	defer stop()
	all, err := w(ctx, a.client)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	seen := map[string]bool{"": true}
	for _, x := range without {
		seen[x] = true
	}
	for _, x := range all {
		word, _, _ := strings.Cut(x, "\t")
		if !seen[word] && strings.HasPrefix(word, typed) {
			seen[word] = true
			found = append(found, x)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
