// Package auth says who calls the API (auth.go) and what they may do there (policy.go: one table of acts, and one
// function, Principal.May, that decides).
//
// A caller is an app with a key: 256 random bits, shown once when the app is made. The database keeps the
// key's SHA-256. A key is looked up by that hash through an index, so how long an answer takes tells nothing
// about the key: to come near a stored hash one would have to invert SHA-256. (A slow hash, as for passwords,
// would only help against guessing, and nobody guesses 256 bits.)
//
// Keys are never logged and never part of an error.
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

	"capri"
	"capri/sql/store"
)

// Role is what an app may do; each includes those after it.
type Role string

const (
	SuperAdmin Role = "super_admin" // cold starts, apps
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
var errNobody = errors.New("an app key is needed: Authorization: Bearer capri_…")

// IsNobody reports whether err means that the caller is not known.
func IsNobody(err error) bool { return errors.Is(err, errNobody) }

// Authenticate finds out who sends an Authorization header.
func Authenticate(ctx context.Context, s *store.Store, header string) (Principal, error) {
	scheme, key, _ := strings.Cut(header, " ")
	key = strings.TrimSpace(key)
	if !strings.EqualFold(scheme, "Bearer") || !strings.HasPrefix(key, keyPrefix) || len(key) > 200 {
		return Principal{}, errNobody
	}
	if store.IsAttemptToken(key) {
		return authenticateJob(ctx, s, key)
	}
	app, err := s.AppByKeyHash(ctx, Hash(key))
	if errors.Is(err, capri.ErrNotFound) || err == nil && !app.Enabled {
		return Principal{}, errNobody
	}
	if err != nil {
		return Principal{}, err
	}
	p := Principal{Kind: App, Name: app.Name, Role: Role(app.Role), Scopes: []Scope{ScopeAll}}
	p.Department, err = s.DepartmentOf(ctx, app.Name) // an app may bear the name of the user for whom it works
	return p, err
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

// Middleware lets through who has a key, and hands everybody else to refuse.
func Middleware(s *store.Store, refuse func(http.ResponseWriter, *http.Request, error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, err := Authenticate(r.Context(), s, r.Header.Get("Authorization"))
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
