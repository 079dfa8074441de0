// Package api is the HTTP side of Capri: /api/v1, described by /openapi.json. It translates: requests to calls of
// packages action, why and sql/store, and their answers and errors to JSON and problem documents (RFC 9457). What
// may happen, and what must be true afterwards, is decided there and not here.
//
//	who calls?      an app key in Authorization (package auth), on everything below /api/v1
//	may they?       each route declares an act, for which one table says who may do it (access.go, package auth)
//	what is wrong?  every mistake of the input at once, with its field; a fault of ours is a reference that
//	                leads to the log, and never a driver's words or a stack
//
// Operations are in a file per noun, with their types in package api/wire, which the client shares.
package api

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"capri"
	"capri/action"
	"capri/api/wire"
	"capri/auth"
	"capri/metrics"
	"capri/sql/store"
)

// LogReader reads what a batch's job wrote: from the data directory, or from the worker that has it.
type LogReader interface {
	// ReadLog gives up to limit bytes from offset on, where the next piece begins, and whether no more will come.
	// capri.ErrNotFound: there is no such attempt, or its log is gone.
	ReadLog(ctx context.Context, b store.BatchRow, attempt int, stderr bool, offset int64, limit int) (data []byte, next int64, complete bool, err error)
}

// Options are what the API works on.
type Options struct {
	Store    *store.Store
	Actions  *action.Actions
	Zone     *time.Location // of business time
	Version  string
	Log      *slog.Logger
	Logs     LogReader // nil: logs are not to be had here
	Channels Channels

	Turns *metrics.Durations // what the services of this process took; nil: it runs none
	Clock func() time.Time   // nil: time.Now

	// Of the stream of events; 0: a second, and fifteen.
	LookEvery, BeatEvery time.Duration

	// Of /readyz; each may be nil.
	Fits     func(context.Context) error // whether the schema is this program's
	Stopping func() bool                 // whether the process is about to end

	Rate Rate // of one caller; zero: none
}

// Time-outs. A cold start of 100,000 batches is the slowest thing that anybody asks for. The HTTP server's own write
// time-out has to be longer, for the answer to get through.
const (
	handleTimeout = 110 * time.Second
	bodyTimeout   = 50 * time.Second
)

type server struct {
	Options
	huma     huma.API
	router   *chi.Mux
	acts     map[string]auth.Act       // by method and pattern: who may call what (access.go)
	refusals map[string]*huma.Response // by status, as described

	measure measure
	feed    feed
}

// New makes the handler of the whole API.
func New(o Options) http.Handler { return newServer(o).router }

func newServer(o Options) *server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Zone == nil {
		o.Zone = o.Actions.Calendar().Zone()
	}
	r := chi.NewRouter()
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.LookEvery, o.BeatEvery = cmp.Or(o.LookEvery, time.Second), cmp.Or(o.BeatEvery, 15*time.Second)
	s := &server{Options: o, router: r, acts: map[string]auth.Act{}, refusals: map[string]*huma.Response{}, measure: measure{turns: o.Turns}}
	s.feed = feed{s: s, listeners: map[*listener]bool{}}
	// They have to stand before the routes, and in this order: what panics is caught outermost.
	r.Use(headed, identified, s.measured, s.recovered, headers, limited, s.authenticated, s.rated, s.strict, s.repeatable)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusNotFound, "there is no "+r.URL.Path+" here; /openapi.json lists what there is")
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			if s.router.Match(chi.NewRouteContext(), method, r.URL.Path) {
				w.Header().Add("Allow", method)
			}
		}
		writeProblem(w, http.StatusMethodNotAllowed, r.Method+" is not to be had of "+r.URL.Path)
	})

	config := huma.DefaultConfig("Capri", "v1")
	config.Info.Description = "Scheduling of periodic batch jobs. Times are RFC 3339 in the business zone, null where not set; states by name."
	config.DocsPath = ""     // its page would load scripts from elsewhere
	config.OpenAPIPath = ""  // served here, with examples
	config.SchemasPath = ""  // the one document has them all
	config.CreateHooks = nil // no $schema in answers
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"key": {Type: "http", Scheme: "bearer", Description: "An app key: capri_…"},
	}
	config.Transformers = append(config.Transformers, func(ctx huma.Context, _ string, v any) (any, error) {
		if p, ok := v.(*problem); ok {
			p.RequestID = store.RequestOf(ctx.Context()).ID
		}
		return v, nil
	})
	config.RejectUnknownQueryParameters = true // a mistyped filter would list everything
	s.huma = humachi.New(r, config)

	s.description()
	s.handle(auth.HealthRead, http.MethodGet, "/healthz", s.healthz)
	s.handle(auth.HealthRead, http.MethodGet, "/readyz", s.readyz)
	s.handle(auth.MetricsRead, http.MethodGet, "/metrics", s.metrics)
	s.handle(auth.BatchRead, http.MethodGet, wire.Prefix+"/events", s.events)
	s.describeEvents()
	s.docsPage()
	s.handle(auth.IncidentLink, http.MethodGet, "/ack", s.ack)
	s.handle(auth.IncidentLink, http.MethodPost, "/ack", s.ack)
	s.statusOperations()
	s.alertOperations()
	s.taskOperations()
	s.batchOperations()
	s.campaignOperations()
	s.nodeOperations()
	s.peopleOperations()
	s.dutyOperations()
	s.declared(r)
	return s
}

// headed answers HEAD as GET is answered; the HTTP server leaves the body out. A stream has no end at which it could.
func headed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead && r.URL.Path != wire.Prefix+"/events" {
			r = r.WithContext(r.Context()) // a copy
			r.Method = http.MethodGet
		}
		next.ServeHTTP(w, r)
	})
}

// healthz says that the process answers, and no more: who restarts what does not must not do so because the database is away.
func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	plainText(w, http.StatusOK, "ok")
}

// readyz says whether the process can do its work: the database answers, its schema fits, and it is not about to stop.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	if s.Stopping != nil && s.Stopping() {
		plainText(w, http.StatusServiceUnavailable, "it is about to stop")
		return
	}
	if err := s.Store.Ping(ctx); err != nil {
		plainText(w, http.StatusServiceUnavailable, "the database does not answer")
		return
	}
	if s.Fits != nil {
		if err := s.Fits(ctx); err != nil {
			s.Log.Warn("not ready", "err", err)
			plainText(w, http.StatusServiceUnavailable, "the database's schema does not fit this program")
			return
		}
	}
	plainText(w, http.StatusOK, "ok")
}

func plainText(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(line + "\n"))
}

// who is the caller's name, for the log of actions.
func who(ctx context.Context) string { return auth.From(ctx).Name }

// body is an answer with a JSON body.
type body[T any] struct{ Body T }

func answer[T any](v T) *body[T] { return &body[T]{Body: v} }

// list is answer for lists: none is [] and never null.
func list[T any](v []T) *body[[]T] {
	if v == nil {
		v = []T{}
	}
	return &body[[]T]{Body: v}
}

// listOf is list of what write makes of rows.
func listOf[R, T any](rows []R, err error, write func(R) T) (*body[[]T], error) {
	if err != nil {
		return nil, err
	}
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = write(r)
	}
	return list(out), nil
}

func status(code int) func(*huma.Operation) {
	return func(op *huma.Operation) { op.DefaultStatus = code }
}

// instant reads a time that somebody wrote.
func (s *server) instant(field, text string) (capri.Instant, error) {
	at, err := s.Actions.Calendar().ParseTime(text)
	if err != nil {
		return 0, rename(field, err)
	}
	return at, nil
}

// span reads a list's range, either end of which may be left out, as [start, end). included: a time of day as its end
// belongs to it.
func (s *server) span(from, to string, included bool) (start, end capri.Instant, err error) {
	if from != "" {
		if start, err = s.instant("from", from); err != nil {
			return 0, 0, err
		}
	}
	if to != "" {
		if end, err = s.Actions.Calendar().ParseRangeEnd(to, included); err != nil {
			return 0, 0, rename("to", err)
		}
		if end < start || end == start && included {
			return 0, 0, capri.Invalid("to", to, "not before from ("+from+")")
		}
	}
	return start, end, nil
}

// remote is the caller's address without its port, for the log.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
