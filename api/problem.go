package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"capri"
	"capri/action"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

func init() {
	// Huma has one place for the shape of its own errors (a body that is no JSON, a missing field).
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		p := newProblem(status, message)
		for _, err := range errs {
			if err != nil {
				p.Errors = append(p.Errors, fieldOf(err))
			}
		}
		// A body that cannot be read is bad input like any other.
		if status == http.StatusBadRequest && len(p.Errors) == 1 && p.Errors[0].Field == "" {
			p.Errors[0].Field = "body"
		}
		return p
	}
	huma.DefaultArrayNullable = false
}

// problem is wire.Problem as huma wants it.
type problem struct{ wire.Problem }

func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }

// Schema shows clients the type that they share.
func (p *problem) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[wire.Problem](), true, "Problem")
}

func newProblem(status int, detail string) *problem {
	p := &problem{wire.Problem{Title: http.StatusText(status), Status: status, Detail: detail}}
	kind, known := problemKinds[status]
	if !known {
		kind = problemKinds[status/100*100]
	}
	return p.of(kind)
}

// problemKinds is the kind of a problem by its status. A program may rely on them: they do not change, and docs/api.md lists
// them. Of a status that is not here the kind is that of its hundred.
var problemKinds = map[int]string{
	http.StatusBadRequest:            "bad-request",
	http.StatusUnauthorized:          "unauthenticated",
	http.StatusForbidden:             "forbidden",
	http.StatusNotFound:              "not-found",
	http.StatusMethodNotAllowed:      "method-not-allowed",
	http.StatusNotAcceptable:         "not-acceptable",
	http.StatusRequestTimeout:        "too-slow",
	http.StatusConflict:              "conflict",
	http.StatusPreconditionFailed:    "stale",
	http.StatusRequestEntityTooLarge: "too-large",
	http.StatusRequestURITooLong:     "address-too-long",
	http.StatusUnsupportedMediaType:  "unsupported-media-type",
	http.StatusUnprocessableEntity:   "invalid",
	http.StatusTooManyRequests:       "too-many-requests",
	http.StatusInternalServerError:   "fault",
	http.StatusServiceUnavailable:    "unavailable",
}

// Kinds of which a status has more than one.
const (
	problemUnderWay    = "under-way"
	problemDone        = "done"
	problemUnconfirmed = "unconfirmed"
)

// of says which kind it is.
func (p *problem) of(kind string) *problem {
	p.Type = wire.ProblemType + kind
	return p
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	newProblem(status, detail).write(w)
}

func (p *problem) write(w http.ResponseWriter) {
	p.RequestID = w.Header().Get(requestIDHeader)
	data, _ := json.Marshal(p.Problem) //nolint:errchkjson // texts and a number: cannot fail
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(data, '\n')) // the caller may have gone
}

// fieldOf writes one error of huma's validation.
func fieldOf(err error) wire.FieldError {
	var d huma.ErrorDetailer
	if !errors.As(err, &d) {
		return wire.FieldError{Want: plainWords(err.Error())}
	}
	detail := d.ErrorDetail()
	if detail.Location == "body" || slices.Contains(secretFields, detail.Location[strings.LastIndexByte(detail.Location, '.')+1:]) {
		detail.Value = nil // a password may be in it
	}
	f := wire.FieldError{Field: strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(detail.Location, "body."), "query."), "path."), Want: plainWords(detail.Message)}
	switch v := detail.Value.(type) {
	case nil:
	case string:
		f.Value = clip(v)
	case float64, int, int64, bool:
		f.Value = fmt.Sprint(v)
	}
	return f
}

// secretFields are never said back, however wrong they are.
var secretFields = []string{"password", "old", "new", "key", "token"}

// plainWords makes what huma says fit behind "want".
func plainWords(s string) string {
	switch {
	case s == "unknown query parameter":
		return "a parameter that exists (/openapi.json lists them)"
	case s == "unexpected property":
		return "a field that exists (/openapi.json lists them)"
	case strings.HasPrefix(s, "invalid "):
		return "a valid " + strings.TrimPrefix(s, "invalid ")
	case strings.HasPrefix(s, "expected value to be one of "):
		return clip("one of " + strings.Trim(strings.TrimPrefix(s, "expected value to be one of "), `"`))
	}
	return clip(strings.TrimPrefix(s, "expected "))
}

func clip(s string) string {
	const longest = 300
	if r := []rune(s); len(r) > longest {
		return string(r[:longest]) + "…"
	}
	return s
}

// problem translates an error: ours say what people need, all others stay in the log.
func (s *server) problem(ctx context.Context, what string, err error) error {
	var known *problem
	if errors.As(err, &known) {
		return err // with its headers, if it has some
	}
	var fields capri.FieldErrors
	var field *capri.FieldError
	var prune *action.PruneError
	var stale *action.StaleError
	p := newProblem(statusOf(err), err.Error())
	switch {
	case errors.As(err, &fields):
		for _, f := range fields {
			p.Errors = append(p.Errors, wire.FieldError{Field: f.Field, Value: f.Value, Want: f.Want, Where: f.Where})
		}
		p.Detail = fmt.Sprintf("%d things are wrong with the input", len(fields))
		if len(fields) == 1 {
			p.Detail = fields[0].Error()
		}
	case errors.As(err, &field):
		p.Errors = []wire.FieldError{{Field: field.Field, Value: field.Value, Want: field.Want, Where: field.Where}}
	case errors.As(err, &stale):
		p = s.stale(ctx, stale)
	case errors.As(err, &prune):
		p.of(problemUnconfirmed).Names = prune.Names
	case p.Status == http.StatusServiceUnavailable:
		s.Log.Warn("request failed: not reachable", "operation", what, "err", err)
		var down *store.DownError
		switch {
		case ctx.Err() != nil:
			p.Detail = "it took longer than is allowed, and was stopped"
		case errors.As(err, &down):
			p.Detail = "the database " + down.Why + "; try again"
		case !errors.Is(err, capri.ErrUnavailable):
			p.Detail = "the database does not answer; try again"
		} // else it says itself what does not answer: a node
	case p.Status == http.StatusInternalServerError:
		ref := reference()
		s.Log.Error("request failed", "operation", what, "reference", ref, "request", store.RequestOf(ctx).ID, "err", err)
		p.Detail = "a fault of Capri; its log has the cause under reference " + ref
	}
	return p
}

func statusOf(err error) int {
	switch {
	case auth.IsNobody(err):
		return http.StatusUnauthorized
	case errors.Is(err, capri.ErrInvalid):
		return http.StatusUnprocessableEntity
	case errors.Is(err, capri.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, capri.ErrConflict):
		return http.StatusConflict
	case errors.Is(err, capri.ErrForbidden):
		return http.StatusForbidden
	case errors.Is(err, capri.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// rename puts the field's name of this request on an error about its value.
func rename(field string, err error) error {
	var fe *capri.FieldError
	if errors.As(err, &fe) {
		return capri.Invalid(field, fe.Value, fe.Want)
	}
	return err
}

// reference is short enough to be read out on the telephone.
func reference() string {
	var b [5]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

const requestIDHeader = "X-Request-ID"

// identified gives each request a number, the caller's own if it is a decent one, by which its answer, the server's log and
// the log of actions are found together.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if len(id) > 64 || !capri.IsWord(id, "._:-") {
			id = reference() + reference()
		}
		w.Header().Set(requestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(store.WithRequest(r.Context(), store.Request{ID: id, Address: remote(r)})))
	})
}

// recovered turns a panic into a problem; its stack goes to the log.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) // how a handler says that the connection is to be dropped
			}
			ref := reference()
			s.Log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "reference", ref, "panic", p, "stack", string(debug.Stack()))
			writeProblem(w, http.StatusInternalServerError, "a fault of Capri; its log has the cause under reference "+ref)
		}()
		next.ServeHTTP(w, r)
	})
}

// headers keep browsers from guessing, framing and storing. There is no CORS header: other sites have no business here.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// longestAddress is room for a thousand names of tasks to export; lists need a few hundred bytes.
const longestAddress = 32 << 10

// limited refuses an address that is too long, and a body that says it is too large before it is read; it cuts off one that
// lied.
func limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.RequestURI) > longestAddress {
			writeProblem(w, http.StatusRequestURITooLong, fmt.Sprintf("an address has at most %d kB", longestAddress>>10))
			return
		}
		if r.ContentLength > wire.MaxBody {
			writeProblem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d MB", wire.MaxBody>>20))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, wire.MaxBody+1)
		next.ServeHTTP(w, r)
	})
}

// refuse answers who may not, outside of operations.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if auth.IsNobody(err) {
		// Slows down whoever tries keys, and nobody else.
		select {
		case <-time.After(100 * time.Millisecond): // a delay on purpose
		case <-r.Context().Done():
		}
		s.Log.Info("refused: no valid key", "method", r.Method, "path", r.URL.Path, "from", remote(r))
		w.Header().Set("WWW-Authenticate", `Bearer realm="capri"`)
		writeProblem(w, http.StatusUnauthorized, err.Error())
		return
	}
	var p *problem
	if errors.As(s.problem(r.Context(), "before "+r.Method+" "+r.URL.Path, err), &p) {
		p.write(w)
	}
}
