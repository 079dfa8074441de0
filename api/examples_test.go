package api_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
	"capri/api"
)

func TestEachOperation_has_examples_that_fit_its_schemas(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	d := describe(t, r.ask("", "GET", "/openapi.json", "").Body.Bytes())
	shown := 0
	for _, o := range d.operations {
		at := map[string]schema{}
		if o.body != nil {
			at["/requestBody"] = d.doc["paths"].(schema)[o.path].(schema)[strings.ToLower(o.method)].(schema)["requestBody"].(schema)
		}
		for code, answer := range o.responses {
			if strings.HasPrefix(code, "2") {
				at["/responses/"+code] = answer.(schema)
			}
		}
		for pointer, of := range at {
			content, _ := of["content"].(schema)
			for kind, media := range content {
				what := o.method + " " + o.path + " " + pointer + " " + kind
				example, has := media.(schema)["example"]
				require.True(t, has && example != nil, "%s has no example (examples.json)", what)
				assert.NoError(t, d.valid(o.pointer+pointer+"/content/"+strings.ReplaceAll(kind, "/", "~1")+"/schema", example), what)
				shown++
			}
		}
	}
	assert.Greater(t, shown, 100)
	for _, form := range []string{".yaml", "-3.0.json", "-3.0.yaml"} {
		assert.True(t, strings.Contains(r.ask("", "GET", "/openapi"+form, "").Body.String(), "alice"), form)
	}
}

func TestExamples_are_each_of_something(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	var doc struct {
		Components struct{ Schemas map[string]json.RawMessage }
	}
	text := r.ask("", "GET", "/openapi.json", "").Body.Bytes()
	require.NoError(t, json.Unmarshal(text, &doc))
	operations := map[string]bool{}
	for _, path := range describe(t, text).doc["paths"].(schema) {
		for _, op := range path.(schema) {
			operations[op.(schema)["operationId"].(string)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(examplesOf(t))) {
		_, isSchema := doc.Components.Schemas[name]
		assert.True(t, isSchema || operations[name], "examples.json has an example of %s, which there is not", name)
	}
}

func examplesOf(t *testing.T) (of map[string]json.RawMessage) {
	require.NoError(t, json.Unmarshal(api.FileOfExamples(), &of))
	return of
}
