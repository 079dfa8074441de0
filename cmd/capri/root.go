package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"capri"
	"capri/auth"
	"capri/certs"
	"capri/client"
	"capri/conf"
)

// app is one call of the program: where it reads and writes, and the flags that all commands share. It is a
// value, so that a test runs the real command line within its own process.
type app struct {
	in     io.Reader
	out    io.Writer
	err    io.Writer
	getenv func(string) string
	screen terminal // what out is taken for; the zero value: it is looked at

	configFile string
	format     string
	server     string
	token      string
	tokenFile  string
	caCert     string
	cert       string
	certKey    string

	root    *cobra.Command
	started bool // flags and arguments were right; what fails from here on is not bad usage
}

// run executes a command line and gives the exit code.
func run(ctx context.Context, a *app, args []string) int {
	root := newRoot(a)
	root.SetArgs(args)
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		a.addCompletion(root) // a server would keep it for as long as it lives
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	code := exitCode(err)
	if !a.started {
		code = exitUsage
	}
	a.complain(err)
	return code
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "capri",
		Short:         "Capri schedules periodic batch jobs",
		SilenceErrors: true, // run prints them, once, and chooses the exit code
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(a.format); err != nil {
				return err
			}
			a.started = true
			return nil
		},
		Args: cobra.ArbitraryArgs,
		RunE: needsCommand,
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	flags := root.PersistentFlags()
	flags.StringVar(&a.configFile, "config", conf.DefaultFile, "configuration file")
	flags.StringVarP(&a.format, "output", "o", "table", "table, json or yaml")
	flags.StringVar(&a.server, "server", "", "address of the API, or several with commas between them (default: CAPRI_SERVER, else "+client.DefaultServer+")")
	flags.StringVar(&a.token, "token", "", "app key or token (default: CAPRI_TOKEN, else what capri login left; better there or in a file than in a process list)")
	flags.StringVar(&a.tokenFile, "token-file", "", "file that holds the app key (default: admin.key of a local data directory)")

	flags.StringVar(&a.caCert, "cacert", "", "file of the CA that signed the server's certificate (default: CAPRI_CACERT, else those that this machine trusts)")
	flags.StringVar(&a.cert, "cert", "", "file of our own certificate, where the server asks for one (default: CAPRI_CERT)")
	flags.StringVar(&a.certKey, "cert-key", "", "file of its key (default: CAPRI_CERT_KEY)")

	root.AddCommand(
		// processes
		newStandaloneCommand(a), newMasterCommand(a), newWebCommand(a), newWorkerCommand(a), newWatchCommand(a), newJobCommand(a),
		// what runs without a server
		newVersionCommand(a), newConfigCommand(a), newMigrateCommand(a), newDoctorCommand(a), newPlanCommand(a),
		// definitions and batches
		newTaskCommand(a), newBatchCommand(a), newExecuteCommand(a), newRerunCommand(a), newColdStartCommand(a), newCampaignCommand(a),
		newRunNowCommand(a), newForceSuccessCommand(a), newKillCommand(a), newHoldCommand(a), newReleaseCommand(a), newWhyCommand(a), newLogsCommand(a),
		newThirdPartyCommand(a), newQualityCommand(a),
		// inside a job
		newReportCodeCommand(a), newReportProgressCommand(a),
		// the cluster
		newStatusCommand(a), newEventsCommand(a), newNodeCommand(a), newServiceCommand(a), newPauseCommand(a), newResumeCommand(a), newDispatchCommand(a), newBreakerCommand(a), newAlertCommand(a), newDutyCommand(a),
		// people
		newUserCommand(a), newDepartmentCommand(a), newAccountCommand(a), newAppCommand(a), newActionCommand(a), newLoginCommand(a), newLogoutCommand(a), newMeCommand(a), newTokenCommand(a),
		newSampleCommand(a),
	)
	root.InitDefaultCompletionCmd() // cobra makes it anyway, but only after the rest is told of it
	addExamples(root)
	a.root = root
	return root
}

// group makes a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	// Cobra takes a wrong word after such a command for an argument and prints help with exit code 0; a script
	// must see that it mistyped.
	g := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: needsCommand}
	g.AddCommand(commands...)
	return g
}

func needsCommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			names = append(names, c.Name())
		}
	}
	want := "one of " + strings.Join(names, ", ")
	if len(args) == 0 {
		return usage("%s needs a command: %s", cmd.CommandPath(), want)
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		want = near[0] + "?"
		return usage("%s has no command %q: did you mean %s", cmd.CommandPath(), args[0], want)
	}
	return usage("%s has no command %q: want %s", cmd.CommandPath(), args[0], want)
}

// config loads the configuration that --config and the environment give.
func (a *app) config() (*conf.Config, error) { return a.configWith(a.root, nil) }

// configWith loads the configuration with what a command's flags say instead: keys by flag.
func (a *app) configWith(cmd *cobra.Command, keys map[string]string) (*conf.Config, error) {
	overrides := map[string]string{}
	for flag, key := range keys {
		if f := cmd.Flags().Lookup(flag); f.Changed {
			overrides[key] = f.Value.String()
		}
	}
	return conf.Load(a.configFile, a.root.PersistentFlags().Changed("config"), overrides)
}

// client makes a client of the server that flags and environment name.
func (a *app) client() (*client.Client, error) {
	server := first(a.server, a.getenv("CAPRI_SERVER"), client.DefaultServer)
	token, err := a.key(server)
	if err != nil {
		return nil, err
	}
	return a.clientOf(server, token)
}

// clientOf makes one with a key, by the certificates that flags and environment name.
func (a *app) clientOf(servers, token string) (*client.Client, error) {
	f := certs.Files{Field: "", CA: first(a.caCert, a.getenv("CAPRI_CACERT")), Cert: first(a.cert, a.getenv("CAPRI_CERT")), Key: first(a.certKey, a.getenv("CAPRI_CERT_KEY"))}
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return nil, usage("--cert and --cert-key belong together")
	case f.CA == "" && f.Cert != "":
		f.CA = certs.System
	}
	secured, err := certs.Client(f)
	if err != nil {
		return nil, err
	}
	return client.New(servers, token, "capri/"+version, secured)
}

// key finds the key: what was said on the command line first, then the environment, then the session of capri login, then the file
// that a standalone on this machine has left for its owner.
func (a *app) key(server string) (string, error) {
	switch {
	case a.token != "" && a.tokenFile != "":
		return "", usage("--token and --token-file exclude each other")
	case a.token != "":
		return a.token, nil
	case a.tokenFile != "":
		key, err := auth.ReadKey(a.tokenFile)
		if err != nil {
			return "", capri.Invalid("--token-file", a.tokenFile, "a file that holds an app key: "+reason(err))
		}
		return key, nil
	case a.getenv("CAPRI_TOKEN") != "":
		return a.getenv("CAPRI_TOKEN"), nil
	}
	if session, err := a.session(server); err != nil || session != "" {
		return session, err
	}
	if !client.IsLocal(server) {
		return "", nil // a key of this machine's Capri is nobody else's business
	}
	dirs := []string{a.getenv("CAPRI_DATA"), "./capri-data"}
	if c, err := a.config(); err == nil {
		dirs = append([]string{c.Data}, dirs...)
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		if key, err := auth.ReadKey(auth.AdminKeyFile(dir)); err == nil {
			return key, nil
		}
	}
	return "", nil
}

func first(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// reason cuts the file's name off an error of package os, where the message names it already.
func reason(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// oneArg takes exactly one argument, someArgs at least one, and noArgs none; they say what is missing, or too much.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 || args[0] == "":
			return usage("%s needs %s", cmd.CommandPath(), what)
		case len(args) > 1:
			return usage("%s takes %s and nothing more: %q", cmd.CommandPath(), what, args[1])
		}
		return nil
	}
}

func someArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("%s needs %s", cmd.CommandPath(), what)
		}
		return nil
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no argument: %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// usage makes an error that says what is wrong with the command line.
func usage(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

type usageError struct{ text string }

func (e *usageError) Error() string        { return e.text }
func (e *usageError) Is(target error) bool { return target == capri.ErrInvalid }
