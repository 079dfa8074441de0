package api

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"capri/auth"
)

// An example of each body and answer, by the name of its schema; of an answer that is text by its operation. A list is shown
// with one of what it lists. They cost nothing until somebody reads the description.
//
//go:embed examples.json
var examples []byte

// description serves the API's description, made when it is first asked for.
func (s *server) description() {
	exampled := sync.OnceFunc(func() { addExamples(s.huma.OpenAPI()) })
	for _, form := range []struct {
		suffix, kind string
		write        func(*huma.OpenAPI) ([]byte, error)
	}{
		{".json", "json", (*huma.OpenAPI).MarshalJSON}, {".yaml", "yaml", (*huma.OpenAPI).YAML},
		{"-3.0.json", "json", (*huma.OpenAPI).Downgrade}, {"-3.0.yaml", "yaml", (*huma.OpenAPI).DowngradeYAML},
	} {
		text := sync.OnceValue(func() []byte {
			exampled()
			data, err := form.write(s.huma.OpenAPI())
			if err != nil {
				panic(err) // it is in the binary, and a test reads it
			}
			return data
		})
		s.handle(auth.OpenAPIRead, http.MethodGet, "/openapi"+form.suffix, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/openapi+"+form.kind)
			_, _ = w.Write(text())
		})
	}
}

func addExamples(api *huma.OpenAPI) {
	var of map[string]json.RawMessage
	if err := json.Unmarshal(examples, &of); err != nil {
		panic(err) // it is in the binary, and a test reads it
	}
	for _, path := range api.Paths {
		for _, op := range []*huma.Operation{path.Get, path.Put, path.Post, path.Delete} {
			if op == nil {
				continue
			}
			if op.RequestBody != nil {
				exemplify(op, op.RequestBody.Content, of)
			}
			for code, answer := range op.Responses {
				if strings.HasPrefix(code, "2") {
					exemplify(op, answer.Content, of)
				}
			}
		}
	}
}

func exemplify(op *huma.Operation, content map[string]*huma.MediaType, of map[string]json.RawMessage) {
	for _, media := range content {
		example := of[op.OperationID]
		if name := nameOf(media.Schema); name != "" {
			example = of[name]
			if item, isPage := strings.CutPrefix(name, "Page"); isPage {
				example = join(`{"items":[`, of[item], `],"next":"bmV4dA"}`)
			}
		} else if media.Schema.Items != nil {
			example = join("[", of[nameOf(media.Schema.Items)], "]")
		}
		media.Example = example
	}
}

func nameOf(s *huma.Schema) string { return s.Ref[strings.LastIndex(s.Ref, "/")+1:] }

func join(before string, example json.RawMessage, after string) json.RawMessage {
	return json.RawMessage(before + string(example) + after)
}
