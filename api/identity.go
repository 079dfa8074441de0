package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"capri"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

// identityOperations are those of log-ins, passwords, tokens and keys. What is shown once is in an answer and nowhere else.
func (s *server) identityOperations() {
	gone, made := status(http.StatusNoContent), status(http.StatusCreated)
	register(s, auth.LogInDo, http.MethodPost, "/login", "log-in", "Log in with a password", s.logIn, throttled)
	register(s, auth.LogOutDo, http.MethodPost, "/logout", "log-out", "End the session of this request", s.logOut, gone)
	register(s, auth.MeRead, http.MethodGet, "/me", "show-me", "Who the caller is", s.me)
	register(s, auth.PasswordEdit, http.MethodPut, "/me/password", "change-password", "Change one's own password; all sessions end, and one begins anew", s.changePassword, throttled)
	register(s, auth.TokenRead, http.MethodGet, "/tokens", "list-tokens", "One's own tokens; admins: a user's, or everybody's", s.tokens)
	register(s, auth.TokenMake, http.MethodPost, "/tokens", "create-token", "Make a token of one's own; it is in the answer and nowhere else", s.createToken, made)
	register(s, auth.TokenRevoke, http.MethodDelete, "/tokens/{id}", "revoke-token", "End a token at once", s.revoking(s.Actions.RevokeToken), gone)
	register(s, auth.AppRead, http.MethodGet, "/apps", "list-apps", "Clients of this API", s.apps)
	register(s, auth.AppEdit, http.MethodPost, "/apps", "create-app", "Make a client; its key is in the answer and nowhere else", s.createApp, made)
	register(s, auth.AppEdit, http.MethodPut, "/apps/{name}", "set-app", "Change a client, and none of its keys", s.setApp, gone)
	register(s, auth.AppEdit, http.MethodPost, "/apps/{name}:rotate", "rotate-app", "Give a client another key; those of now stay good for the overlap", s.rotateApp)
	register(s, auth.AppEdit, http.MethodDelete, "/apps/{name}", "delete-app", "Forget a client, and its keys at once", s.named(s.Actions.DeleteApp), gone)
	register(s, auth.WorkerKeyRead, http.MethodGet, "/worker-keys", "list-worker-keys", "Keys of workers", s.workerKeys)
	register(s, auth.WorkerKeyEdit, http.MethodPost, "/worker-keys", "create-worker-key", "Make a worker's key; it is in the answer and nowhere else", s.createWorkerKey, made)
	register(s, auth.WorkerKeyEdit, http.MethodDelete, "/worker-keys/{id}", "revoke-worker-key", "End a worker's key at once", s.revoking(s.Actions.RevokeWorkerKey), gone)
}

func throttled(op *huma.Operation) { op.Errors = append(op.Errors, http.StatusTooManyRequests) }

// hashTimeout bounds how long a log-in waits for others' before it is told to come again.
const hashTimeout = 10 * time.Second

// caller is what of a request a log-in has to know. Huma fills it in.
type caller struct {
	request *http.Request
}

func (c *caller) Resolve(ctx huma.Context) []error {
	c.request, _ = humachi.Unwrap(ctx)
	return nil
}

// cookie is a browser's session, or with no token the end of one.
func (c *caller) cookie(session auth.Session) []http.Cookie {
	tls := c.request.TLS != nil
	cookie := http.Cookie{Name: auth.CookieName(tls), Value: session.Token, Path: "/", HttpOnly: true, Secure: tls, SameSite: http.SameSiteStrictMode} //nolint:gosec // without TLS a Secure cookie would never come back
	if session.Token == "" {
		cookie.MaxAge = -1
	} else {
		cookie.Expires = session.ExpiresAt.In(time.UTC)
	}
	return []http.Cookie{cookie}
}

type logInInput struct {
	caller
	Body wire.LogIn
}

type sessionOutput struct {
	SetCookie []http.Cookie `header:"Set-Cookie"`
	Body      wire.Session
}

func (s *server) logIn(ctx context.Context, in *logInInput) (*sessionOutput, error) {
	// Nobody shall be logged in as somebody else by a page of another site.
	if err := auth.SameOrigin(in.request, false); err != nil {
		return nil, err
	}
	by := store.RequestOf(ctx)
	by.Kind = string(auth.User) // who logs in is somebody from then on
	ctx, cancel := context.WithTimeout(store.WithRequest(ctx, by), hashTimeout)
	defer cancel()
	session, err := auth.LogIn(ctx, s.Store, in.Body.User, in.Body.Password, remote(in.request), in.Body.Use)
	if err != nil {
		return nil, s.notIn(in.request, err)
	}
	return s.began(&in.caller, session, in.Body.Use), nil
}

// began answers with a session: a browser gets a cookie that no script reads, a command a token.
func (s *server) began(c *caller, session auth.Session, use string) *sessionOutput {
	out := &sessionOutput{Body: wire.Session{User: session.User, ExpiresAt: wire.At(session.ExpiresAt, s.Zone), ChangePassword: session.OneTime}}
	if use == auth.Command {
		out.Body.Token = session.Token
	} else {
		out.SetCookie = c.cookie(session)
	}
	return out
}

// notIn translates what LogIn refuses.
func (s *server) notIn(r *http.Request, err error) error {
	var throttled *auth.ThrottledError
	switch {
	case errors.As(err, &throttled):
		s.Log.Info("refused: too many failed log-ins", "from", remote(r))
		return huma.ErrorWithHeaders(newProblem(http.StatusTooManyRequests, err.Error()), http.Header{"Retry-After": {strconv.Itoa(throttled.Seconds())}})
	case auth.IsNobody(err):
		s.Log.Info("refused: a log-in", "from", remote(r)) // no name: people type passwords there
		return newProblem(http.StatusUnauthorized, err.Error())
	}
	return err
}

type logOutInput struct{ caller }

type logOutOutput struct {
	SetCookie []http.Cookie `header:"Set-Cookie"`
}

func (s *server) logOut(ctx context.Context, in *logOutInput) (*logOutOutput, error) {
	if err := s.Actions.LogOut(ctx, who(ctx)); err != nil {
		return nil, err
	}
	return &logOutOutput{SetCookie: in.cookie(auth.Session{})}, nil
}

func (s *server) me(ctx context.Context, _ *none) (*body[wire.Me], error) {
	p := auth.From(ctx)
	me := wire.Me{Kind: string(p.Kind), Name: p.Name, Role: string(p.Role), Department: p.Department, Session: p.Session != 0, ChangePassword: p.OneTime}
	if !slices.Contains(p.Scopes, auth.ScopeAll) {
		for _, scope := range p.Scopes {
			me.Scopes = append(me.Scopes, string(scope))
		}
	}
	return answer(me), nil
}

type passwordInput struct {
	caller
	Body wire.PasswordChange
}

func (s *server) changePassword(ctx context.Context, in *passwordInput) (*sessionOutput, error) {
	p := auth.From(ctx)
	ctx, cancel := context.WithTimeout(ctx, hashTimeout)
	defer cancel()
	session, err := auth.ChangePassword(ctx, s.Store, p.Name, in.Body.Old, in.Body.New, remote(in.request), p.Use)
	if err != nil {
		return nil, s.notIn(in.request, rename("new", err))
	}
	return s.began(&in.caller, session, p.Use), nil
}

func (s *server) resetPassword(ctx context.Context, in *nameInput) (*body[wire.OneTimePassword], error) {
	password, until, err := s.Actions.ResetPassword(ctx, who(ctx), in.Name)
	if err != nil {
		return nil, err
	}
	return answer(wire.OneTimePassword{User: in.Name, Password: password, ExpiresAt: wire.At(until, s.Zone)}), nil
}

// wireKey says of a credential what may be said.
func (s *server) wireKey(c store.Credential) wire.Key {
	return wire.Key{ID: c.ID, Holder: c.Holder, Name: c.Name, Scopes: c.Scopes, CreatedAt: wire.At(c.CreatedAt, s.Zone), CreatedBy: c.CreatedBy,
		ExpiresAt: wire.At(c.ExpiresAt, s.Zone), LastUsedAt: wire.At(c.LastUsedAt, s.Zone)}
}

func (s *server) keys(ctx context.Context, kind, holder string) ([]wire.Key, error) {
	rows, err := s.Store.Credentials(ctx, kind, holder)
	out := make([]wire.Key, len(rows))
	for i, c := range rows {
		out[i] = s.wireKey(c)
	}
	return out, err
}

// expires reads when something shall end.
func expires(at *time.Time) capri.Instant {
	if at == nil {
		return 0
	}
	return capri.InstantOf(*at)
}

type tokensInput struct {
	User string `query:"user" maxLength:"128" doc:"left out: one's own; ~: everybody's"`
}

// everybody stands for all users in a list of tokens: no user has such a name.
const everybody = "~"

func (s *server) tokens(ctx context.Context, in *tokensInput) (*body[[]wire.Key], error) {
	p := auth.From(ctx)
	user := in.User
	if user == "" {
		user = p.Name
	}
	if err := p.May(auth.TokenRead, auth.Object{What: "tokens of " + user, Owner: user}); err != nil {
		return nil, err
	}
	if user == everybody {
		user = ""
	}
	keys, err := s.keys(ctx, store.UserToken, user)
	if err != nil {
		return nil, err
	}
	return list(keys), nil
}

func (s *server) createToken(ctx context.Context, in *struct{ Body wire.NewToken }) (*body[wire.Token], error) {
	token, c, err := s.Actions.CreateToken(ctx, who(ctx), store.Credential{Name: in.Body.Name, Scopes: in.Body.Scopes, ExpiresAt: expires(in.Body.ExpiresAt)})
	if err != nil {
		return nil, err
	}
	return answer(wire.Token{Name: c.Name, Token: token, ExpiresAt: wire.At(c.ExpiresAt, s.Zone)}), nil
}

type keyInput struct {
	ID int64 `path:"id" minimum:"1"`
}

func (s *server) revoking(do func(ctx context.Context, who string, id int64) error) func(context.Context, *keyInput) (*none, error) {
	return func(ctx context.Context, in *keyInput) (*none, error) {
		return nil, do(ctx, who(ctx), in.ID)
	}
}

func (s *server) apps(ctx context.Context, _ *none) (*body[[]wire.App], error) {
	rows, err := s.Store.Apps(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := s.keys(ctx, store.AppKey, "")
	if err != nil {
		return nil, err
	}
	of := map[string][]wire.Key{}
	for _, k := range keys {
		of[k.Holder] = append(of[k.Holder], k)
	}
	return listOf(rows, nil, func(a store.App) wire.App {
		return wire.App{Name: a.Name, Role: a.Role, Enabled: a.Enabled, Owner: a.Owner, Department: a.Department, Keys: of[a.Name], CreatedAt: wire.At(a.CreatedAt, s.Zone)}
	})
}

func (s *server) createApp(ctx context.Context, in *struct{ Body wire.NewApp }) (*body[wire.NewKey], error) {
	a := in.Body
	key, err := s.Actions.CreateApp(ctx, who(ctx), store.App{Name: a.Name, Role: a.Role, Owner: a.Owner, Department: a.Department},
		store.Credential{Scopes: a.Scopes, ExpiresAt: expires(a.ExpiresAt)})
	if err != nil {
		return nil, err
	}
	return answer(wire.NewKey{Name: a.Name, Role: a.Role, Key: key}), nil
}

type appInput struct {
	Name string `path:"name" maxLength:"400"`
	Body wire.App
}

func (s *server) setApp(ctx context.Context, in *appInput) (*none, error) {
	if err := sameName(in.Name, in.Body.Name); err != nil {
		return nil, err
	}
	return nil, s.Actions.SaveApp(ctx, who(ctx), store.App{Name: in.Name, Role: in.Body.Role, Enabled: in.Body.Enabled, Owner: in.Body.Owner, Department: in.Body.Department})
}

type rotateInput struct {
	Name string `path:"name" maxLength:"400"`
	Body wire.KeyRotation
}

func (s *server) rotateApp(ctx context.Context, in *rotateInput) (*body[wire.NewKey], error) {
	key, until, err := s.Actions.RotateApp(ctx, who(ctx), in.Name, time.Duration(in.Body.OverlapS)*time.Second)
	if err != nil {
		return nil, err
	}
	return answer(wire.NewKey{Name: in.Name, Key: key, OldUntil: wire.At(until, s.Zone)}), nil
}

func (s *server) workerKeys(ctx context.Context, _ *none) (*body[[]wire.Key], error) {
	keys, err := s.keys(ctx, store.WorkerKey, "")
	if err != nil {
		return nil, err
	}
	return list(keys), nil
}

func (s *server) createWorkerKey(ctx context.Context, in *struct{ Body wire.NewWorkerKey }) (*body[wire.NewKey], error) {
	key, err := s.Actions.CreateWorkerKey(ctx, who(ctx), store.Credential{Holder: in.Body.Node, Name: in.Body.Pool, ExpiresAt: expires(in.Body.ExpiresAt)})
	if err != nil {
		return nil, err
	}
	return answer(wire.NewKey{Name: in.Body.Node, Key: key}), nil
}
