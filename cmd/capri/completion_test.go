package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
	"capri/api/wire"
)

// completes gives what a shell is told, without the texts beside the words, and the directive.
func completes(t *testing.T, r result) (words []string, directive string) {
	t.Helper()
	require.Zero(t, r.code, r.err)
	for line := range strings.Lines(r.out) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, ":") {
			return words, line
		}
		word, _, _ := strings.Cut(line, "\t")
		words = append(words, word)
	}
	t.Fatalf("no directive in %q", r.out)
	return nil, ""
}

const (
	noFiles        = ":4" // what cobra's directives are to a shell
	noFilesNoSpace = ":6"
	anyFile        = ":0"
)

func TestCompletion_gives_what_the_server_has(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	require.Zero(t, c.capri("task", "apply", "-f", write(t, "t.yaml", tasks)).code)
	require.Zero(t, c.capri("department", "set", "sales").code)
	require.Zero(t, c.capri("user", "set", "bob").code)
	require.Zero(t, c.capri("app", "create", "portal", "--role", "member").code)
	c.Register()
	c.Lease(t, "generate")
	var p wire.CampaignPlan
	c.json(&p, "cold-start", "--period", "day", "--from", "2026-11-20", "--to", "2026-11-20")
	for _, try := range []struct {
		line      string // its last word is what was typed of it, - for nothing
		want      string
		directive string
	}{
		{"task show -", "orders report settle tick", noFiles}, {"task show or", "orders", noFiles}, {"task show orders -", "", noFiles},
		{"task enable orders -", "report settle tick", noFiles}, {"rerun --cascade b", "both", noFiles}, {"execute re", "report", noFiles}, {"run-now t", "tick", noFiles},
		{"task grant-alert orders b", "bob", noFiles}, {"task list --group -", "dw", noFiles}, {"cold-start --group d", "dw", noFiles},
		{"cold-start --task orders,re", "orders,report", noFilesNoSpace}, {"events --task orders,-", "", noFilesNoSpace},
		{"node drain -", "n1", noFiles}, {"batch list --node n", "n1", noFiles}, {"user delete -", "alice bob", noFiles}, {"duty override add --user b", "bob", noFiles},
		{"department delete -", "sales", noFiles}, {"user set bob --department s", "sales", noFiles}, {"app rotate p", "portal", noFiles},
		{"campaign show -", "1", noFiles}, {"campaign drop 1 o", "orders", noFiles}, {"alert test s", "sms", noFiles}, {"service trigger gen", "generate", noFiles},
		{"batch list --state waiting,fa", "waiting,failed", noFilesNoSpace}, {"batch list --period w", "week", noFiles}, {"app create x --role a", "admin", noFiles},
		{"token create x --scope rea", "read", noFilesNoSpace}, {"status -o y", "yaml", noFiles}, {"campaign list --state ca", "cancelling cancelled", noFiles},
		{"kill -", "", noFiles}, {"token create -", "", noFiles}, {"task apply --file -", "", anyFile}, {"status --token-file -", "", anyFile}, {"duty set -", "", anyFile},
		{"rerun orders --reason -", "", noFiles}, {"status -", "", noFiles},
	} {
		args := append([]string{"__complete"}, strings.Fields(try.line)...)
		if last := len(args) - 1; args[last] == "-" {
			args[last] = ""
		}
		got, directive := completes(t, c.capri(args...))
		assert.ElementsMatch(t, strings.Fields(try.want), got, try.line)
		assert.Equal(t, try.directive, directive, try.line)
	}
	r := c.capri("__complete", "campaign", "show", "")
	assert.Contains(t, r.out, "1\tcold_start of ", "a number says what it is of")
}

func TestCompletion_is_silent_and_soon_over_where_no_server_answers(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer refuses.Close()
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and never answers
	require.NoError(t, err)
	defer deaf.Close()
	for what, server := range map[string]string{"away": closed.URL, "refuses": refuses.URL, "deaf": "http://" + deaf.Addr().String(), "nonsense": "ftp://x"} {
		began := time.Now()
		r := capriIn(t, map[string]string{"CAPRI_SERVER": server}, "", "__complete", "task", "show", "")
		got, directive := completes(t, r)
		assert.Empty(t, got, what)
		assert.Equal(t, noFiles, directive, what)
		assert.NotContains(t, r.err, "capri:", what)
		assert.Less(t, time.Since(began), 10*completionTime, "%s: with room for a busy machine", what)
		got, _ = completes(t, capriIn(t, map[string]string{"CAPRI_SERVER": server}, "", "__complete", "batch", "list", "--period", "d"))
		assert.Equal(t, []string{"day"}, got, "fixed values need no server")
	}
}

func TestCompletion_knows_no_command_or_flag_that_is_not_there(t *testing.T) {
	flags, commands := map[string]bool{}, map[string]*cobra.Command{}
	each(newRoot(emptyApp()), func(cmd *cobra.Command) {
		commands[nameOf(cmd)] = cmd
		note := func(f *pflag.Flag) { flags[f.Name], flags[nameOf(cmd)+" --"+f.Name] = true, true }
		cmd.LocalFlags().VisitAll(note)
	})
	for name := range flagWords {
		assert.Contains(t, flags, name)
	}
	for _, name := range append(append([]string{}, severalInOne...), fileFlags...) {
		assert.Contains(t, flags, name)
	}
	for name := range argWords {
		if cmd := commands[name]; assert.NotNil(t, cmd, name) {
			assert.Regexp(t, ` \[?[A-Z]`, cmd.Use, "it takes no argument")
		}
	}
	for _, name := range fileArgs {
		assert.Contains(t, commands, name)
	}
}

func TestCompletion_of_each_shell_is_written(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r := capriIn(t, nil, "", "completion", shell)
		assert.Zero(t, r.code, r.err)
		assert.Contains(t, r.out, "capri")
		assert.Contains(t, r.out, "__complete")
	}
	assert.Contains(t, capriIn(t, nil, "", "--help").out, "completion")
}
