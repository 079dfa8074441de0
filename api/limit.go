package api

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"capri/auth"
)

// Rate bounds how many requests one caller may send to one process, so that a script in a loop does not take the API, or
// the database, from everybody else. Zero PerSecond is no limit.
type Rate struct {
	PerSecond int
	Burst     int // how many may come at once after a pause
}

// rates counts each caller's requests. A caller who has been silent for as long as a bucket takes to fill is forgotten: a new
// bucket is as full.
type rates struct {
	Rate
	now     func() time.Time
	mu      sync.Mutex
	callers map[string]*rate.Limiter
	swept   time.Time
}

func newRates(r Rate, now func() time.Time) *rates {
	if r.Burst < 1 {
		r.Burst = max(1, r.PerSecond)
	}
	return &rates{Rate: r, now: now, callers: map[string]*rate.Limiter{}}
}

// take takes one from a caller's bucket, and tells how many are left and when there will be one again.
func (l *rates) take(caller string) (ok bool, left int, wait time.Duration) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) > time.Minute {
		for name, c := range l.callers {
			if c.TokensAt(now) >= float64(l.Burst) {
				delete(l.callers, name)
			}
		}
		l.swept = now
	}
	c := l.callers[caller]
	if c == nil {
		c = rate.NewLimiter(rate.Limit(l.PerSecond), l.Burst)
		l.callers[caller] = c
	}
	ok = c.AllowN(now, 1)
	tokens := c.TokensAt(now)
	if tokens < 1 {
		wait = time.Duration((1 - tokens) / float64(l.PerSecond) * float64(time.Second))
	}
	return ok, max(0, int(tokens)), wait
}

// rated refuses who asks too often. Whoever is not known shares a bucket with all others of his address.
func (s *server) rated(next http.Handler) http.Handler {
	if s.Rate.PerSecond <= 0 {
		return next
	}
	limits := newRates(s.Rate, s.Clock)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains([]string{"/healthz", "/readyz", "/metrics"}, r.URL.Path) {
			next.ServeHTTP(w, r) // what watches must see a server that is asked too much
			return
		}
		p := auth.From(r.Context())
		if p.Name == "" {
			p.Name = remote(r)
		}
		ok, left, wait := limits.take(string(p.Kind) + "\x00" + p.Name)
		seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
		w.Header().Set("Ratelimit-Limit", strconv.Itoa(limits.Burst))
		w.Header().Set("Ratelimit-Remaining", strconv.Itoa(left))
		w.Header().Set("Ratelimit-Reset", seconds)
		if !ok {
			w.Header().Set("Retry-After", seconds)
			writeProblem(w, http.StatusTooManyRequests, fmt.Sprintf("more than %d requests a second, after a burst of %d: try again in %s s", limits.PerSecond, limits.Burst, seconds))
			return
		}
		next.ServeHTTP(w, r)
	})
}
