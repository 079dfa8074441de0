package api

import (
	"embed"
	"net/http"
	"path"

	"capri/auth"
)

// The page at /docs renders /openapi.json with these files alone: it loads nothing from elsewhere and evaluates nothing, so
// that it works without the internet and under a strict policy. They are 14 KB as they are.
//
//go:embed docs
var docsFiles embed.FS

var docsTypes = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

func (s *server) docsPage() {
	for pattern, file := range map[string]string{"/docs": "docs/index.html", "/docs/docs.css": "docs/docs.css", "/docs/docs.js": "docs/docs.js"} {
		s.handle(auth.OpenAPIRead, http.MethodGet, pattern, func(w http.ResponseWriter, _ *http.Request) {
			data, err := docsFiles.ReadFile(file)
			if err != nil {
				panic(err) // it is in the binary
			}
			h := w.Header()
			h.Set("Content-Type", docsTypes[path.Ext(file)])
			h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
			_, _ = w.Write(data)
		})
	}
}
