// Package auth says who calls the API (auth.go, login.go, password.go) and what they may do there (policy.go: one table of
// acts, and one function, Principal.May, that decides).
//
// A caller shows 256 random bits: the key of an app or a worker, a person's token, or a person's session, which begins with
// a password. They are shown once, when they are made; the database keeps their SHA-256. They are looked up by that hash
// through an index, so how long an answer takes tells nothing about them: to come near a stored hash one would have to
// invert SHA-256. (A slow hash, as for passwords, would only help against guessing, and nobody guesses 256 bits.)
//
// Nothing is kept in memory between requests: what is revoked, disabled or changed on one master is so on all, at once.
//
// Keys and passwords are never logged and never part of an error.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/sql/store"
)

// Role is what a user or an app may do; each includes those after it.
type Role string

const (
	SuperAdmin Role = "super_admin" // cold starts, apps, other super admins
	Admin      Role = "admin"       // nodes, services, pauses, people, rights
	Member     Role = "member"      // tasks and batches
	ReadOnly   Role = "read_only"
)

// Roles, the mightiest first.
var Roles = []Role{SuperAdmin, Admin, Member, ReadOnly}

// ParseRole reads a role's name.
func ParseRole(s string) (Role, error) {
	for _, r := range Roles {
		if string(r) == s {
			return r, nil
		}
	}
	return "", capri.Invalid("role", s, "super_admin, admin, member or read_only")
}

// May reports whether somebody with role r may do what needs the role needed. An unknown role may nothing, and what needs
// one nobody may.
func (r Role) May(needed Role) bool {
	have, need := slices.Index(Roles, r), slices.Index(Roles, needed)
	return have >= 0 && have <= need
}

const keyPrefix = "capri_" // lets people and scanners recognise a key that lies about

// NewKey makes a key.
func NewKey() string {
	var b [32]byte
	rand.Read(b[:]) // never fails: the runtime ends the process rather than hand out weak bits
	return keyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// Hash is what is stored of a key.
func Hash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// errNobody is the answer to a missing, unknown or disabled key: one for all three, since the difference would
// help only somebody who has no business here.
var errNobody = errors.New("a key, a token or a log-in is needed: Authorization: Bearer capri_…")

// IsNobody reports whether err means that the caller is not known.
func IsNobody(err error) bool { return errors.Is(err, errNobody) }

// usedEvery is how often the use of a credential is noted.
const usedEvery = time.Minute

// Authenticate finds out who shows a key, a token or a session.
func Authenticate(ctx context.Context, s *store.Store, key string) (Principal, error) {
	if !strings.HasPrefix(key, keyPrefix) || len(key) > 200 {
		return Principal{}, errNobody
	}
	if store.IsAttemptToken(key) {
		return authenticateJob(ctx, s, key)
	}
	i, err := s.Identity(ctx, Hash(key))
	if errors.Is(err, capri.ErrNotFound) {
		return Principal{}, errNobody
	}
	if err != nil {
		return Principal{}, err
	}
	p := Principal{Name: i.Holder, Role: Role(i.Role), Department: i.Department, Scopes: scopes(i.Scopes)}
	used := max(i.CreatedAt, i.LastUsedAt)
	ended := !i.Enabled || i.ExpiresAt != 0 && i.Now >= i.ExpiresAt
	switch i.Kind {
	case store.AppKey:
		p.Kind = App
	case store.UserToken:
		p.Kind = User
	case store.UserSession:
		p.Kind, p.Session, p.OneTime, p.Use = User, i.ID, i.OneTime, i.Name
		ended = ended || i.Now.Sub(used) > idleOf(i.Name)
	case store.WorkerKey:
		// A node that has moved to another pool runs other people's jobs: it gets another key.
		p.Kind, p.Node, p.Pool, p.Name = Worker, i.Holder, i.Pool, "worker "+i.Holder
		ended = ended || i.Pool != i.Name
	}
	if p.Kind == "" || ended || p.Kind != Worker && !slices.Contains(Roles, p.Role) {
		return Principal{}, errNobody
	}
	if i.LastUsedAt == 0 || i.Now.Sub(used) >= usedEvery {
		note, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = s.UsedCredential(note, i.ID) // a database that takes no writes is no reason to turn people away who look
	}
	return p, nil
}

func scopes(names []string) []Scope {
	list := make([]Scope, len(names))
	for i, name := range names {
		list[i] = Scope(name)
	}
	return list
}

func authenticateJob(ctx context.Context, s *store.Store, token string) (Principal, error) {
	secret, err := s.ClusterSecret(ctx)
	if err != nil {
		return Principal{}, err
	}
	a, ok := store.ParseAttemptToken(secret, token)
	if !ok {
		return Principal{}, errNobody
	}
	return Principal{Kind: Job, Name: "attempt " + a.String(), Attempt: a}, nil
}

func readSettings(ctx context.Context, s *store.Store) (Settings, error) {
	texts, err := s.SettingTexts(ctx, store.TaskEdit, store.TaskRead, store.CascadeForeign)
	return Settings{TaskEdit: texts[store.TaskEdit], TaskRead: texts[store.TaskRead], CascadeForeign: texts[store.CascadeForeign]}, err
}

type contextKey struct{}

// With puts who acts into a context; From takes it out again.
func With(ctx context.Context, p Principal) context.Context {
	r := store.RequestOf(ctx)
	r.Kind = string(p.Kind)
	ctx = store.WithRequest(ctx, r) // what he changes is logged with it
	return context.WithValue(ctx, contextKey{}, p)
}

// From gives the principal of a context; the zero one may nothing.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(contextKey{}).(Principal)
	return p
}

// CookieName is what a browser's session is kept in. Over TLS the prefix keeps other hosts of the domain, and a page fetched
// without TLS, from setting it.
func CookieName(tls bool) string {
	if tls {
		return "__Host-capri"
	}
	return "capri"
}

// shown takes what a request shows: a key in Authorization, else a session in the cookie.
func shown(r *http.Request) (key string, cookie bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, key, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", false
		}
		return strings.TrimSpace(key), false
	}
	// Of two cookies of one name a page on another host may have made one.
	if all := r.CookiesNamed(CookieName(r.TLS != nil)); len(all) == 1 {
		return all[0].Value, true
	}
	return "", false
}

var sameOrigin = http.NewCrossOriginProtection()

// SameOrigin refuses a change that a page of another site makes a browser ask for. Browsers say where a request comes from
// (Sec-Fetch-Site, Origin); needed: whoever does not say it is refused, too.
func SameOrigin(r *http.Request, needed bool) error {
	silent := r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == ""
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	if sameOrigin.Check(r) != nil || needed && silent && !safe {
		return capri.Forbidden("a change by a browser's session has to come from Capri's own pages")
	}
	return nil
}

// Middleware lets through who shows that he is somebody, and hands everybody else to refuse.
func Middleware(s *store.Store, refuse func(http.ResponseWriter, *http.Request, error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key, cookie := shown(r)
			p, err := Authenticate(r.Context(), s, key)
			if err == nil && cookie {
				if p.Session == 0 { // a cookie carries sessions alone
					err = errNobody
				} else {
					err = SameOrigin(r, true)
				}
			}
			if err == nil && !p.Role.May(Admin) { // of whom no setting is asked
				p.Settings, err = readSettings(r.Context(), s)
			}
			if err != nil {
				refuse(w, r, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(With(r.Context(), p)))
		})
	}
}
