package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"capri"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

// A request whose answer was lost is sent again, and must not be done again. Whoever sends an Idempotency-Key with a POST gets
// the first answer of that key for a day, from any server:
//
//	new         it is done; the transaction that does it notes so, and the answer is kept
//	same        the answer that was kept, with Idempotency-Replayed: true
//	under way   409, with Retry-After
//	done        409: it was done, but its answer is not kept (the process died before, it was too large, or it held a key)
//	other       422: the key came with another request
//	forbidden   403: the caller may no longer do this, whatever was answered then
//
// An answer that says that nothing was done (4xx, 5xx) is not kept, so the same key may be tried again.

const (
	longestKey    = 200
	longestAnswer = 1 << 20
)

// What looks like a key or a one-time password is shown once and stored nowhere.
var looksSecret = regexp.MustCompile(`capri_[A-Za-z0-9_-]{30,}|([A-Z2-7]{5}-){3}[A-Z2-7]{5}`)

func (s *server) repeatable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, p := r.Header.Get(wire.HeaderIdempotencyKey), auth.From(r.Context())
		if key == "" || r.Method != http.MethodPost || p.Name == "" {
			next.ServeHTTP(w, r)
			return
		}
		act, known := s.acts[r.Method+" "+s.route(r)]
		if !known { // nothing is done there
			next.ServeHTTP(w, r)
			return
		}
		// Whoever may no longer do it does not get the answer of when he might, either.
		if err := p.Reaches(act); err != nil {
			s.refuse(w, r, err)
			return
		}
		if !printable(key) || len(key) > longestKey {
			s.refuse(w, r, capri.Invalid(wire.HeaderIdempotencyKey, clip(strings.ToValidUTF8(key, "?")), "1 to 200 letters, digits and signs of ASCII, such as a UUID"))
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil { // the next one says what is wrong with it
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
			next.ServeHTTP(w, r)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		this := store.Repeatable{ID: sumOf([]byte(p.Kind), []byte(p.Name), []byte(key)), Request: sumOf([]byte(r.URL.RequestURI()), []byte(r.Header.Get("If-Match")), body)}
		before, err := s.Store.BeginRepeatable(r.Context(), this, handleTimeout+10*time.Second)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		if before != nil {
			s.again(w, r, before)
			return
		}
		out := &recorder{ResponseWriter: w}
		defer func() { // also where the handler panics
			keep := out.keep()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
			defer cancel()
			if err := s.Store.EndRepeatable(ctx, this, keep); err != nil {
				s.Log.Warn("the answer to a repeatable request is not kept", "path", r.URL.Path, "err", err)
			}
		}()
		next.ServeHTTP(out, r.WithContext(store.WithRepeatable(r.Context(), this)))
	})
}

// again answers a request that came before.
func (s *server) again(w http.ResponseWriter, r *http.Request, before *store.Repeated) {
	switch {
	case before.Other:
		s.refuse(w, r, capri.Invalid(wire.HeaderIdempotencyKey, r.Header.Get(wire.HeaderIdempotencyKey), "another key: this one came with another request"))
	case before.UnderWay:
		w.Header().Set("Retry-After", "1")
		newProblem(http.StatusConflict, "the same request is under way; ask again for its answer").of(problemUnderWay).write(w)
	case before.Answer == nil:
		newProblem(http.StatusConflict, "this request was done; its answer was not kept").of(problemDone).write(w)
	default:
		var kept map[string]string
		_ = json.Unmarshal([]byte(before.Answer.Headers), &kept) // ours
		for name, value := range kept {
			w.Header().Set(name, value)
		}
		w.Header().Set("Idempotency-Replayed", "true")
		w.WriteHeader(before.Answer.Status)
		_, _ = w.Write(before.Answer.Body) // the caller may have gone
	}
}

// keep is what is kept of an answer; nil: nothing was done, so it may be tried again.
func (r *recorder) keep() *store.Answer {
	switch {
	case r.status/100 != 2:
		return nil
	case r.tooLong, looksSecret.Match(r.body.Bytes()):
		return &store.Answer{Status: 1}
	}
	return &store.Answer{Status: r.status, Headers: headersOf(r.Header()), Body: r.body.Bytes()}
}

// headersOf keeps what belongs to an answer and not to the moment.
func headersOf(h http.Header) string {
	kept := map[string]string{}
	for _, name := range []string{"Content-Type", "ETag", "Location", "Link"} {
		if v := h.Get(name); v != "" {
			kept[name] = v
		}
	}
	data, _ := json.Marshal(kept) //nolint:errchkjson // texts: cannot fail
	return string(data)
}

func printable(s string) bool {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return true
}

func sumOf(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256(p) // so that no part can run into the next
		h.Write(sum[:])         // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

// recorder keeps a copy of what is written.
type recorder struct {
	http.ResponseWriter
	status  int
	body    bytes.Buffer
	tooLong bool
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.tooLong = r.tooLong || r.body.Len()+len(b) > longestAnswer; !r.tooLong {
		r.body.Write(b)
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets the server reach what is below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// failing gives the error that ended a body.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
