package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/api/wire"
	"capri/client"
	"capri/sql/store"
)

func emptyApp() *app {
	return &app{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}, getenv: func(string) string { return "" }}
}

func offline() (*client.Client, error) { return nil, capri.ErrUnavailable }

// doing are the commands that do something themselves and are there for people.
func doing(root *cobra.Command) map[string]*cobra.Command {
	found := map[string]*cobra.Command{}
	each(root, func(cmd *cobra.Command) {
		if name := nameOf(cmd); !cmd.Hidden && name != "help" && (!cmd.HasSubCommands() || name == "master") {
			found[name] = cmd
		}
	})
	return found
}

// shellWords splits a line as a shell does, at spaces outside '…'.
func shellWords(t testing.TB, line string) []string {
	t.Helper()
	var out []string
	word, quoted, any := "", false, false
	for _, r := range line + " " {
		switch {
		case r == '\'':
			quoted, any = !quoted, true
		case r == ' ' && !quoted:
			if any {
				out = append(out, word)
			}
			word, any = "", false
		default:
			word, any = word+string(r), true
		}
	}
	require.False(t, quoted, line)
	return out
}

func TestHelp_of_each_command_has_examples_that_the_command_takes(t *testing.T) {
	commands := doing(newRoot(emptyApp()))
	for name := range examples {
		assert.Contains(t, commands, name, "an example of no command")
	}
	for name, cmd := range commands {
		require.NotEmpty(t, cmd.Example, "capri %s has no example", name)
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "  # ")
			words := shellWords(t, line)
			require.Equal(t, "capri", words[0], line)
			a := emptyApp()
			called, rest, err := newRoot(a).Find(words[1:]) // a tree of its own: flags remember
			require.NoError(t, err, line)
			require.Equal(t, name, nameOf(called), line)
			require.NoError(t, called.ParseFlags(rest), line)
			require.NoError(t, called.ValidateArgs(called.Flags().Args()), line)
			called.Flags().Visit(func(f *pflag.Flag) {
				w := flagWords[f.Name]
				if own, ok := flagWords[name+" --"+f.Name]; ok {
					w = own
				}
				if w == nil {
					return
				}
				allowed, err := w(context.Background(), offline)
				if err != nil { // names, which the server has
					return
				}
				value := strings.Trim(f.Value.String(), "[]")
				for v := range strings.SplitSeq(value, ",") {
					assert.Contains(t, allowed, v, line)
				}
			})
		}
	}
}

func TestOnlyWhatCannotBeTakenBack_asks(t *testing.T) {
	// Of those that ask, when. All others do not know --yes, so that no script waits for an answer.
	asks := map[string]string{
		"kill": "always", "force-success": "always",
		"rerun":           "where --on-running kill finds something that runs",
		"cold-start":      "where --only all finds something that has finished",
		"campaign cancel": "with --kill",
		"task apply":      "where --prune finds something to delete",
		"task delete":     "always", "user delete": "always", "department delete": "always", "app delete": "always", "duty delete": "always",
		"node remove":   "always",
		"migrate reset": "always", "migrate clean": "always",
	}
	commands := doing(newRoot(emptyApp()))
	for name := range asks {
		assert.Contains(t, commands, name)
	}
	for name, cmd := range commands {
		assert.Equal(t, asks[name] != "", cmd.Flags().Lookup("yes") != nil, "capri %s asks: %s", name, asks[name])
	}

	c := newCluster(t, actiontest.SQLite(t))
	file := write(t, "a.yaml", "tasks: [{name: day, owner: alice, group: g, period: day, job: {command: x}}]\n")
	both := write(t, "b.yaml", "tasks: [{name: day, owner: alice, group: g, period: day, job: {command: x}}, {name: old, owner: alice, group: g, period: day, job: {command: x}}]\n")
	require.Zero(t, c.capri("task", "apply", "-f", both).code)
	require.Zero(t, c.capri("user", "set", "bob").code)
	require.Zero(t, c.capri("department", "set", "sales").code)
	require.Zero(t, c.capri("app", "create", "portal", "--role", "member").code)
	c.Register()
	of := func(more string) string { return "--from 2026-11-20 --to 2026-11-20 " + more }
	var k wire.CampaignPlan
	for _, step := range []struct {
		line string
		ask  string // empty: it does not
	}{
		{"cold-start --period day " + of(""), ""},
		{"cold-start --period day " + of("--only all"), ""}, // nothing has finished
		{"FINISH", ""},
		{"cold-start --period day " + of("--only failed"), ""},
		{"cold-start --period day " + of("--only all"), "run 1 batches again"},
		{"rerun day " + of("--preview --on-running kill"), ""},
		{"rerun day " + of("--cascade both"), ""},
		{"START", ""},
		{"rerun day " + of("--on-running skip"), ""},
		{"rerun day " + of("--on-running kill"), "kill 1 running batches"},
		{"kill ID", "kill batch"}, {"force-success ID --reason x", "force-success batch"}, {"hold ID", ""}, {"release ID", ""}, {"run-now ID", ""},
		{"campaign pause CAMPAIGN", ""}, {"campaign resume CAMPAIGN", ""}, {"campaign cancel CAMPAIGN --kill", "cancel campaign"}, {"campaign cancel CAMPAIGN", ""},
		{"task apply -f " + file, ""}, {"task apply --prune -f " + both, ""}, {"task apply --prune -f " + file, "delete 1 tasks"}, {"task apply --prune --dry-run -f " + file, ""},
		{"task disable day", ""}, {"task delete day", "delete task"}, {"user disable bob", ""}, {"user delete bob", "delete user"},
		{"department delete sales", "delete department"}, {"app disable portal", ""}, {"app delete portal", "delete app"}, {"duty delete --system", "delete the duty rota"},
		{"node drain n1", ""}, {"node remove n1", "remove node"}, {"pause --reason x", ""}, {"resume", ""}, {"breaker open --group g --reason x", ""}, {"dispatch limit 0", ""},
	} {
		line := strings.ReplaceAll(step.line, "CAMPAIGN", fmt.Sprint(k.ID))
		switch {
		case line == "FINISH":
			c.Finish(c.Latest("day", "20261119").ID, store.Succeeded)
			continue
		case line == "START":
			c.Start(c.Latest("day", "20261119").ID)
			continue
		case strings.Contains(line, " ID"):
			line = strings.ReplaceAll(line, " ID", " "+fmt.Sprint(c.Latest("day", "20261119").ID))
		}
		r := c.capri(append(strings.Fields(line), "-o", "json")...)
		if step.ask == "" {
			assert.NotContains(t, r.err, "give --yes", line)
		} else {
			assert.Equal(t, exitUsage, r.code, "%s: %s", line, r.out)
			assert.Contains(t, r.err, step.ask, line)
			assert.Contains(t, r.err, "give --yes", line)
		}
		if strings.Contains(line, "--cascade both") {
			require.Zero(t, r.code, r.err)
			require.NoError(t, json.Unmarshal([]byte(r.out), &k))
		}
	}
	for _, line := range []string{"migrate reset", "migrate clean"} {
		r := capriIn(t, nil, "", append(strings.Fields(line), "--config", write(t, "capri.yaml", "data: "+t.TempDir()+"\n"))...)
		assert.Equal(t, exitUsage, r.code, r.err)
		assert.Contains(t, r.err, "give --yes", line)
	}
}
