package api

import (
	"context"
	"net/http"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"

	"capri/auth"
)

func TestARoute_without_a_declared_act_keeps_the_server_from_starting(t *testing.T) {
	fresh := func() *server {
		r := chi.NewRouter()
		return &server{router: r, huma: humachi.New(r, huma.Config{OpenAPI: &huma.OpenAPI{Info: &huma.Info{}, Components: &huma.Components{Schemas: huma.NewMapRegistry("#/", huma.DefaultSchemaNamer)}}}), acts: map[string]auth.Act{}, refusals: map[string]*huma.Response{}}
	}
	page := func(http.ResponseWriter, *http.Request) {}
	assert.PanicsWithValue(t, `api: GET /api/v1/x is the act "x.read", which is not in the policy (auth/policy.go)`, func() {
		register(fresh(), "x.read", http.MethodGet, "/x", "x", "", func(context.Context, *none) (*none, error) { return nil, nil })
	})
	assert.Panics(t, func() { fresh().handle("", http.MethodGet, "/page", page) })
	assert.PanicsWithValue(t, "api: GET /page declares no act, so nobody knows who may call it (register, handle)", func() {
		s := fresh()
		s.handle(auth.HealthRead, http.MethodGet, "/healthz", page)
		s.router.Get("/page", page)
		s.declared(s.router)
	})
	assert.Panics(t, func() {
		s := fresh()
		huma.Get(s.huma, "/aside", func(context.Context, *none) (*none, error) { return nil, nil })
		s.declared(s.router)
	}, "past register")
	assert.NotPanics(t, func() {
		s := fresh()
		register(s, auth.StatusRead, http.MethodGet, "/x", "x", "", func(context.Context, *none) (*none, error) { return nil, nil })
		s.handle(auth.HealthRead, http.MethodGet, "/healthz", page)
		s.declared(s.router)
	})
}
