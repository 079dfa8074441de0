package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"capri"
)

// strict refuses null where the description of a request's body has none. Huma takes it for a field that was left out, and
// then {"title": null} keeps a title, or empties it, without a word.
func (s *server) strict(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		schema := s.bodySchema(r)
		if schema == nil {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err != nil { // the next one says what is wrong with it
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		}
		var v any
		if err == nil && bytes.Contains(body, []byte("null")) && json.Unmarshal(body, &v) == nil {
			if field, found := s.null(schema, v, ""); found {
				s.refuse(w, r, capri.Invalid(field, "null", "a value, or the field left out"))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// bodySchema is how a request's JSON body is described; nil: it has none.
func (s *server) bodySchema(r *http.Request) *huma.Schema {
	if r.ContentLength == 0 {
		return nil
	}
	item := s.huma.OpenAPI().Paths[s.route(r)]
	if item == nil {
		return nil
	}
	op := map[string]*huma.Operation{http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete}[r.Method]
	if op == nil || op.RequestBody == nil || op.RequestBody.Content["application/json"] == nil {
		return nil
	}
	return op.RequestBody.Content["application/json"].Schema
}

// null finds a null that may not be one.
func (s *server) null(schema *huma.Schema, v any, at string) (field string, found bool) {
	if schema.Ref != "" {
		schema = s.huma.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
	}
	switch v := v.(type) {
	case nil:
		return at, schema.Type != "" && !schema.Nullable
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			of, known := schema.Properties[name]
			if more, ok := schema.AdditionalProperties.(*huma.Schema); !known && ok {
				of, known = more, true
			}
			below := name
			if at != "" {
				below = at + "." + name
			}
			if known {
				if field, found := s.null(of, v[name], below); found {
					return field, true
				}
			}
		}
	case []any:
		for i, x := range v {
			if schema.Items == nil {
				break
			}
			if field, found := s.null(schema.Items, x, fmt.Sprintf("%s[%d]", at, i)); found {
				return field, true
			}
		}
	}
	return "", false
}
