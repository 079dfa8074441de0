package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"capri"
	"capri/api/wire"
	"capri/auth"
	"capri/client"
)

// sessionFile is where the session with a server is kept: a file for each, so that no server ever gets another one's.
func (a *app) sessionFile(server string) (string, error) {
	dir := a.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := a.getenv("HOME")
		if home == "" {
			return "", errors.New("neither HOME nor XDG_CONFIG_HOME is set: there is no place for a session")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "capri", "session-"+url.PathEscape(server)), nil
}

// session reads the session with a server; empty: there is none. A file that others can read is refused, as ssh refuses such keys.
func (a *app) session(server string) (string, error) {
	file, err := a.sessionFile(server)
	if err != nil {
		return "", nil //nolint:nilerr // where nothing can be kept nothing is
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case info.Mode().Perm()&0o077 != 0:
		return "", capri.Forbidden("others may read %s: chmod 600 it, or log in again", file)
	}
	return auth.ReadKey(file)
}

// keepSession writes a session's token, readable by its owner alone, whole or not at all.
func (a *app) keepSession(server, token string) (file string, err error) {
	if file, err = a.sessionFile(server); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("keep the session: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".session-*") // 0600
	if err != nil {
		return "", fmt.Errorf("keep the session: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(token + "\n")
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return "", fmt.Errorf("keep the session: %w", err)
	}
	return file, nil
}

// secrets reads passwords: from a file, from the terminal without showing them, or a line each from standard input. They are never
// arguments, which everybody on the machine can see.
type secrets struct {
	a     *app
	lines *bufio.Reader
}

func (a *app) secrets() *secrets { return &secrets{a: a, lines: bufio.NewReader(a.in)} }

func (s *secrets) ask(what, file string) (string, error) {
	switch {
	case file != "":
		data, err := os.ReadFile(file)
		if err != nil {
			return "", capri.Invalid("--password-file", file, "a file that can be read: "+reason(err))
		}
		return strings.TrimRight(string(data), "\r\n"), nil
	case isTerminal(s.a.in):
		fmt.Fprintf(s.a.err, "%s: ", what)
		data, err := term.ReadPassword(int(s.a.in.(*os.File).Fd()))
		fmt.Fprintln(s.a.err)
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return string(data), nil
	}
	line, err := s.lines.ReadString('\n')
	if err != nil && line == "" {
		return "", usage("%s: give it on standard input, or in a file with --password-file", what)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// askNew asks for a password that somebody chooses; at a terminal twice, since nobody sees what he types.
func (s *secrets) askNew(file string) (string, error) {
	is, err := s.ask("New password", file)
	if err != nil || file != "" || !isTerminal(s.a.in) {
		return is, err
	}
	again, err := s.ask("The same again", "")
	if err == nil && again != is {
		err = usage("the two are not the same; nothing was changed")
	}
	return is, err
}

func newLoginCommand(a *app) *cobra.Command {
	var user, file string
	cmd := &cobra.Command{
		Use:   "login [--user NAME]",
		Short: "Log in with a password; the commands after it need no key",
		Long:  "Asks for the password on the terminal without showing it; in a script it is read from standard input or --password-file.\nThe session is kept for this server in the user's configuration directory, readable by its owner alone. CAPRI_TOKEN, --token\nand --token-file go before it.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, server := cmd.Context(), first(a.server, a.getenv("CAPRI_SERVER"), client.DefaultServer)
			if user = first(user, a.getenv("USER")); user == "" {
				return usage("capri login needs --user")
			}
			anybody, err := a.clientOf(server, "")
			if err != nil {
				return err
			}
			s := a.secrets()
			password, err := s.ask("Password of "+user, file)
			if err != nil {
				return err
			}
			session, err := anybody.LogIn(ctx, wire.LogIn{User: user, Password: password, Use: auth.Command})
			if err != nil {
				return err
			}
			if session.ChangePassword && isTerminal(a.in) {
				fmt.Fprintln(a.err, "This was a one-time password: choose your own now.")
				c, err := a.clientOf(server, session.Token)
				if err != nil {
					return err
				}
				is, err := s.askNew("")
				if err != nil {
					return err
				}
				if session, err = c.ChangePassword(ctx, wire.PasswordChange{Old: password, New: is}); err != nil {
					return err
				}
			}
			kept, err := a.keepSession(server, session.Token)
			if err != nil {
				return err
			}
			next := ""
			if session.ChangePassword {
				next = "; change the one-time password now: capri user password"
			}
			session.Token = "" // it is in the file
			return a.say(session, "%s is logged in to %s (%s)%s", session.User, server, kept, next)
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "who logs in (default: USER)")
	cmd.Flags().StringVar(&file, "password-file", "", "file that holds the password")
	return cmd
}

func newLogoutCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "logout", Short: "End the session with this server", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		server := first(a.server, a.getenv("CAPRI_SERVER"), client.DefaultServer)
		token, err := a.session(server)
		if err != nil {
			return err
		}
		if token == "" {
			return capri.NotFound("nobody is logged in to %s from here", server)
		}
		c, err := a.clientOf(server, token)
		if err != nil {
			return err
		}
		ended := c.LogOut(cmd.Context())
		file, err := a.sessionFile(server)
		if err == nil {
			err = os.Remove(file)
		}
		var refused *client.Error
		if ended != nil && (!errors.As(ended, &refused) || refused.Status != 401) { // 401: it had ended already
			return ended
		}
		if err != nil {
			return err
		}
		return a.say(map[string]string{"server": server, "result": "logged_out"}, "logged out of %s", server)
	}}
}

func newMeCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "whoami", Short: "Show who the server takes you for", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		me, err := c.Me(ctx)
		if err != nil {
			return err
		}
		return a.say(me, "%s %s (%s)", me.Kind, me.Name, strings.TrimSpace(me.Role+" "+me.Department))
	})}
}

// newUserPassword is both: one's own with the old one, and an admin's one-time password for somebody else.
func newUserPassword(a *app) *cobra.Command {
	var oldFile, newFile string
	cmd := &cobra.Command{
		Use:   "password [NAME]",
		Short: "Change your own password, or give NAME a one-time one",
		Long:  "Without a name: changes your own password, for which you have to be logged in. Both are asked for on the terminal, or read as two\nlines from standard input, or from files. All your sessions end but this one.\n\nWith a name: makes a one-time password, shown this once, that NAME has to change at the first log-in, within three days. All sessions\nand tokens of NAME end.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("capri user password takes at most one name: %q", args[1])
			}
			return nil
		},
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 1 {
				p, err := c.ResetPassword(ctx, args[0])
				if err != nil {
					return err
				}
				return a.say(p, "one-time password of %s, shown this once and good until %s:\n%s", p.User, p.ExpiresAt.Format(time.RFC3339), p.Password)
			}
			s := a.secrets()
			was, err := s.ask("Password of now", oldFile)
			if err != nil {
				return err
			}
			is, err := s.askNew(newFile)
			if err != nil {
				return err
			}
			session, err := c.ChangePassword(ctx, wire.PasswordChange{Old: was, New: is})
			if err != nil {
				return err
			}
			if session.Token != "" {
				server := first(a.server, a.getenv("CAPRI_SERVER"), client.DefaultServer)
				if _, err := a.keepSession(server, session.Token); err != nil {
					return err
				}
			}
			session.Token = ""
			return a.say(session, "the password of %s is changed; all other sessions have ended", session.User)
		}),
	}
	cmd.Flags().StringVar(&oldFile, "password-file", "", "file that holds the password of now")
	cmd.Flags().StringVar(&newFile, "new-password-file", "", "file that holds the new one")
	return cmd
}

// printKeys prints what may be told of keys and tokens.
func (a *app) printKeys(keys []wire.Key, holder, name, none string) error {
	return printTable(a, keys, newGrid("id", holder, name, "scopes", "since", "until", "last used"), none, func(k wire.Key) []any {
		return []any{k.ID, k.Holder, k.Name, strings.Join(k.Scopes, " "), k.CreatedAt, k.ExpiresAt, k.LastUsedAt}
	})
}

// newRevoke ends a key or a token by its number.
func newRevoke(a *app, what string, do func(*client.Client, context.Context, int64) error) *cobra.Command {
	return &cobra.Command{Use: "revoke ID", Short: "End a " + what + " at once", Args: oneArg("the id of a " + what), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return capri.Invalid("id", args[0], "a number, as the list shows it")
		}
		if err := do(c, ctx, id); err != nil {
			return err
		}
		return a.say(map[string]any{"id": id, "result": "revoked"}, "%s %d is revoked", what, id)
	})}
}

// lifetime is a flag for how long something is good: a duration, or days as in 90d.
type lifetime time.Duration

func (l *lifetime) String() string {
	if *l == 0 {
		return ""
	}
	return time.Duration(*l).String()
}
func (l *lifetime) Type() string { return "duration" }
func (l *lifetime) Set(s string) error {
	d, err := time.ParseDuration(s)
	if days, is := strings.CutSuffix(s, "d"); is {
		var n int
		if n, err = strconv.Atoi(days); err == nil && n > 36_500 {
			err = errors.New("too long")
		}
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d < 0 {
		return errors.New("want a duration such as 24h or 90d")
	}
	*l = lifetime(d)
	return nil
}

// at is when it ends; nil: it was not given.
func (l *lifetime) at() *time.Time {
	if *l == 0 {
		return nil
	}
	t := time.Now().Add(time.Duration(*l)).UTC()
	return &t
}

func newTokenCommand(a *app) *cobra.Command {
	var user string
	list := &cobra.Command{Use: "list", Short: "List your tokens", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		keys, err := c.Tokens(ctx, user)
		if err != nil {
			return err
		}
		return a.printKeys(keys, "user", "name", "no tokens")
	})}
	list.Flags().StringVar(&user, "user", "", "another user's; ~: everybody's (admins)")
	var t wire.NewToken
	var life lifetime
	create := &cobra.Command{Use: "create NAME", Short: "Make a token of your own for a program; it is shown this once", Args: oneArg("a name"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		t.Name, t.ExpiresAt = args[0], life.at()
		token, err := c.CreateToken(ctx, t)
		if err != nil {
			return err
		}
		return a.say(token, "token %s, good until %s; it is shown this once:\n%s", token.Name, token.ExpiresAt.Format(time.RFC3339), token.Token)
	})}
	create.Flags().StringSliceVar(&t.Scopes, "scope", nil, "what it is made for, with commas (default: all that you may): "+scopeNames())
	create.Flags().Var(&life, "expires", "how long it is good, such as 24h or 30d (default: 90d, at most a year)")
	return group("token", "Look after your tokens", list, create, newRevoke(a, "token", (*client.Client).RevokeToken))
}

func scopeNames() string {
	names := make([]string, len(auth.Scopes))
	for i, s := range auth.Scopes {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

func newNodeKeyCommand(a *app) *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List workers' keys", Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		keys, err := c.WorkerKeys(ctx)
		if err != nil {
			return err
		}
		return a.printKeys(keys, "node", "pool", "no keys of workers")
	})}
	var k wire.NewWorkerKey
	var life lifetime
	create := &cobra.Command{Use: "create NODE [--pool P]", Short: "Make a key with which a node's machine raises alerts; it is shown this once", Args: oneArg("the name of a node"), RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
		k.Node, k.ExpiresAt = args[0], life.at()
		key, err := c.CreateWorkerKey(ctx, k)
		if err != nil {
			return err
		}
		return a.say(key, "key of node %s; it is shown this once:\n%s", key.Name, key.Key)
	})}
	create.Flags().StringVar(&k.Pool, "pool", "", "the pool in which the node is; in another one the key opens nothing (default: as it is)")
	create.Flags().Var(&life, "expires", "how long it is good, such as 90d (default: without an end)")
	return group("key", "Look after workers' keys", list, create, newRevoke(a, "key", (*client.Client).RevokeWorkerKey))
}
