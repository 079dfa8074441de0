package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"capri/api/wire"
	"capri/auth"
)

// declare notes which act a route is. One without an act, or whose act nobody has said who may do, is a mistake that must
// not go out: the server does not start.
func (s *server) declare(act auth.Act, method, pattern string) auth.Rule {
	rule, known := auth.RuleOf(act)
	if !known {
		panic(fmt.Sprintf("api: %s %s is the act %q, which is not in the policy (auth/policy.go)", method, pattern, act))
	}
	s.acts[method+" "+pattern] = act
	return rule
}

// declared proves that there is no route but those that were declared.
func (s *server) declared(routes chi.Routes) {
	err := chi.Walk(routes, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if _, ok := s.acts[method+" "+pattern]; !ok {
			return fmt.Errorf("%s %s declares no act, so nobody knows who may call it (register, handle)", method, pattern)
		}
		return nil
	})
	if err != nil {
		panic("api: " + err.Error())
	}
}

// handle makes a route that is no operation: a page, a stream.
func (s *server) handle(act auth.Act, method, pattern string, handler http.HandlerFunc) {
	s.declare(act, method, pattern)
	s.router.Method(method, pattern, handler)
}

// register makes an operation. Whether the caller may do its act at all has been asked when its handler is called
// (authenticated); what it is on, the handler asks (may.go). Errors of the handler become problems here, in one place.
func register[I, O any](s *server, act auth.Act, method, path, id, summary string, handle func(context.Context, *I) (*O, error), change ...func(*huma.Operation)) {
	rule := s.declare(act, method, wire.Prefix+path)
	op := huma.Operation{
		OperationID: id, Method: method, Path: wire.Prefix + path, Summary: summary,
		Description:  "Act " + string(act) + ". " + rule.Needs(),
		Extensions:   map[string]any{"x-capri-act": string(act)},
		MaxBodyBytes: wire.MaxBody, BodyReadTimeout: bodyTimeout,
		Security: []map[string][]string{{"key": {}}},
		Errors:   []int{401, 403, 404, 409, 422, 500, 503},
	}
	if rule.Public {
		op.Security = nil
	}
	for _, c := range change {
		c(&op)
	}
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	huma.Register(s.huma, op, func(ctx context.Context, in *I) (*O, error) {
		ctx, cancel := context.WithTimeout(ctx, handleTimeout)
		defer cancel()
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.problem(ctx, id, err)
		}
		return out, nil
	})
	// All refuse alike: one description of it is kept, not one for each operation.
	for _, status := range op.Errors {
		code := strconv.Itoa(status)
		if _, known := s.refusals[code]; !known {
			s.refusals[code] = op.Responses[code]
		}
		op.Responses[code] = s.refusals[code]
	}
}

// route is the pattern that a request's path fits; empty: none.
func (s *server) route(r *http.Request) string {
	return s.router.Find(chi.NewRouteContext(), r.Method, r.URL.Path)
}

// authenticated finds out who calls, on everything but what is declared public and what lies outside the prefix and is
// not there; and whether he may do the route's act at all, before anything of the request is read.
func (s *server) authenticated(next http.Handler) http.Handler {
	inside := auth.Middleware(s.Store, s.refuse)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if act, known := s.actOf(r); known {
			if err := auth.From(r.Context()).Reaches(act); err != nil {
				s.refuse(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act, known := s.actOf(r)
		rule, _ := auth.RuleOf(act)
		if known && !rule.Public || !known && strings.HasPrefix(r.URL.Path, wire.Prefix+"/") {
			inside.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// actOf is the act of the route that will answer a request.
func (s *server) actOf(r *http.Request) (act auth.Act, known bool) {
	act, known = s.acts[r.Method+" "+s.route(r)]
	return act, known
}
