package api

import (
	"context"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"capri"
	"capri/metrics"
	"capri/sql/store"
)

// What Prometheus reads (docs/metrics.md): what this process counted, and what the database says, which is asked once in
// fifteen seconds at most, however many ask us.
const readEvery = 15 * time.Second

// measure is what the metrics of a process are made of.
type measure struct {
	requests metrics.Durations
	turns    *metrics.Durations // of the services in this process; nil: none run here

	mu   sync.Mutex // held while the database is asked: who comes meanwhile waits for the same answer
	read time.Time
	seen readings
}

// readings are what the database said.
type readings struct {
	at       capri.Instant
	up       bool
	gauges   store.Gauges
	nodes    []capri.Node
	busy     map[string]int
	locks    []store.ServiceLock
	states   map[string]store.ServiceState
	marks    map[capri.Period]capri.Instant // the oldest mark that should be complete and is not; 0: all are
	channels []string
}

// family is a metric and how its samples come about.
type family struct {
	name, kind, help string
	samples          func(s *server, r readings) []metrics.Sample
}

// families are all metrics there are; docs/metrics.md has the same list.
var families = []family{
	{"capri_build_info", metrics.Gauge, "1; the version is in the labels.", func(s *server, _ readings) []metrics.Sample {
		return []metrics.Sample{metrics.Of(1, "version", s.Version, "go_version", runtime.Version())}
	}},
	{"capri_database_up", metrics.Gauge, "Whether the database answered when it was asked last, at most 15 seconds ago.", func(_ *server, r readings) []metrics.Sample {
		return []metrics.Sample{metrics.Of(truth(r.up))}
	}},
	{"capri_database_connections", metrics.Gauge, "Connections to the database, by pool and state.", func(s *server, _ readings) (out []metrics.Sample) {
		for _, name := range []string{"beat", "read", "write"} {
			if p, ok := s.Store.Pools()[name]; ok {
				out = append(out, metrics.Of(float64(p.InUse), "pool", name, "state", "in_use"), metrics.Of(float64(p.Idle), "pool", name, "state", "idle"))
			}
		}
		return out
	}},
	{"capri_database_connections_max", metrics.Gauge, "How many connections a pool may have.", func(s *server, _ readings) []metrics.Sample {
		return s.pools(func(p store.Pool) float64 { return float64(p.MaxOpenConnections) })
	}},
	{"capri_database_wait_seconds_total", metrics.Counter, "How long requests for a connection have waited, together.", func(s *server, _ readings) []metrics.Sample {
		return s.pools(func(p store.Pool) float64 { return p.WaitDuration.Seconds() })
	}},
	{"capri_batches", metrics.Gauge, "Unfinished batches: blocked (a condition is unmet), ready, assigned, running.", func(_ *server, r readings) (out []metrics.Sample) {
		for _, state := range []string{"blocked", "ready", "assigned", "running"} {
			if r.up {
				out = append(out, metrics.Of(float64(r.gauges.Batches[state]), "state", state))
			}
		}
		return out
	}},
	{"capri_ready_oldest_age_seconds", metrics.Gauge, "How long the oldest batch has waited that could start by its own conditions; 0: none waits.", func(_ *server, r readings) []metrics.Sample {
		return r.age(r.gauges.ReadySince)
	}},
	{"capri_cron_due_age_seconds", metrics.Gauge, "How late the oldest cron fire is that is not a batch yet; 0: none is late.", func(_ *server, r readings) []metrics.Sample {
		return r.age(r.gauges.NextFire)
	}},
	{"capri_generation_lag_seconds", metrics.Gauge, "How long ago the oldest mark of a period was that is not complete; 0: all are.", func(_ *server, r readings) (out []metrics.Sample) {
		for _, p := range calendarPeriods {
			out = append(out, r.age(r.marks[p], "period", p.String())...)
		}
		return out
	}},
	{"capri_alerts_unfiled", metrics.Gauge, "Alerts that the alert service has not taken up.", func(_ *server, r readings) []metrics.Sample {
		return r.count(r.gauges.Filing.Waiting)
	}},
	{"capri_alerts_unfiled_age_seconds", metrics.Gauge, "How old the oldest of them is.", func(_ *server, r readings) []metrics.Sample {
		return r.age(r.gauges.Filing.Oldest)
	}},
	{"capri_messages_waiting", metrics.Gauge, "Messages to people that are not sent yet, by channel.", func(_ *server, r readings) (out []metrics.Sample) {
		for _, c := range r.channels {
			out = append(out, r.count(r.gauges.Messages[c].Waiting, "channel", c)...)
		}
		return out
	}},
	{"capri_messages_waiting_age_seconds", metrics.Gauge, "How old the oldest of them is.", func(_ *server, r readings) (out []metrics.Sample) {
		for _, c := range r.channels {
			out = append(out, r.age(r.gauges.Messages[c].Oldest, "channel", c)...)
		}
		return out
	}},
	{"capri_node_up", metrics.Gauge, "Whether a node takes part: 0 where it is lost or was stopped.", func(_ *server, r readings) []metrics.Sample {
		return r.ofNodes(func(n capri.Node) float64 { return truth(!n.Lost && !n.Left) })
	}},
	{"capri_node_accepting", metrics.Gauge, "Whether a node takes new batches: 0 also where it is drained or short of something.", func(_ *server, r readings) []metrics.Sample {
		return r.ofNodes(func(n capri.Node) float64 { return truth(!n.Lost && !n.Left && !n.Draining && n.ShortOf == "") })
	}},
	{"capri_node_slots", metrics.Gauge, "Slots of a node.", func(_ *server, r readings) []metrics.Sample {
		return r.ofNodes(func(n capri.Node) float64 { return float64(n.Slots) })
	}},
	{"capri_node_batches", metrics.Gauge, "Batches that a node has in hand: assigned, preparing and running.", func(_ *server, r readings) []metrics.Sample {
		return r.ofNodes(func(n capri.Node) float64 { return float64(r.busy[n.Name]) })
	}},
	{"capri_node_beat_age_seconds", metrics.Gauge, "How long ago a node's newest beat was, by the database's clock.", func(_ *server, r readings) []metrics.Sample {
		return r.ofNodes(func(n capri.Node) float64 { return max(0, r.at.Sub(n.LastCheckTime).Seconds()) })
	}},
	{"capri_lease_epoch", metrics.Gauge, "The number of a service lease's newest grant; it grows with each change of leader.", func(_ *server, r readings) (out []metrics.Sample) {
		for _, l := range r.locks {
			out = append(out, metrics.Of(float64(l.Epoch), "lease", l.Service))
		}
		return out
	}},
	{"capri_lease_held", metrics.Gauge, "Whether somebody leads; who is in the label.", func(_ *server, r readings) (out []metrics.Sample) {
		for _, l := range r.locks {
			leader, _, _ := strings.Cut(l.Holder, "/")
			out = append(out, metrics.Of(truth(l.Holder != ""), "lease", l.Service, "leader", leader))
		}
		return out
	}},
	{"capri_service_completed_age_seconds", metrics.Gauge, "How long ago a service's newest complete turn was.", func(_ *server, r readings) []metrics.Sample {
		return r.ofServices(func(x store.ServiceState) float64 { return max(0, r.at.Sub(x.CompletedAt).Seconds()) })
	}},
	{"capri_service_duration_seconds", metrics.Gauge, "How long that turn took.", func(_ *server, r readings) []metrics.Sample {
		return r.ofServices(func(x store.ServiceState) float64 { return x.Duration.Seconds() })
	}},
	{"capri_service_turn_seconds", metrics.Histogram, "Turns of the services in this process, by how long they took and how they ended.", func(s *server, _ readings) []metrics.Sample {
		if s.measure.turns == nil {
			return nil
		}
		return s.measure.turns.Samples()
	}},
	{"capri_http_request_seconds", metrics.Histogram, "Requests to the API of this process, by route and status; streams are not among them.", func(s *server, _ readings) []metrics.Sample {
		return s.measure.requests.Samples()
	}},
	{"process_resident_memory_bytes", metrics.Gauge, "Memory that this process has.", func(*server, readings) []metrics.Sample {
		return []metrics.Sample{metrics.Of(residentMemory())}
	}},
	{"go_goroutines", metrics.Gauge, "Goroutines of this process.", func(*server, readings) []metrics.Sample {
		return []metrics.Sample{metrics.Of(float64(runtime.NumGoroutine()))}
	}},
}

var calendarPeriods = []capri.Period{capri.Hour, capri.Day, capri.Week, capri.Month}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (r readings) age(since capri.Instant, labels ...string) []metrics.Sample {
	if !r.up {
		return nil // what is not known is not 0
	}
	age := 0.0
	if since != 0 {
		age = max(0, r.at.Sub(since).Seconds())
	}
	return []metrics.Sample{metrics.Of(age, labels...)}
}

func (r readings) count(n int, labels ...string) []metrics.Sample {
	if !r.up {
		return nil
	}
	return []metrics.Sample{metrics.Of(float64(n), labels...)}
}

func (r readings) ofNodes(value func(capri.Node) float64) (out []metrics.Sample) {
	for _, n := range r.nodes {
		out = append(out, metrics.Of(value(n), "node", n.Name, "pool", n.Pool))
	}
	return out
}

func (r readings) ofServices(value func(store.ServiceState) float64) (out []metrics.Sample) {
	for _, name := range sortedKeys(r.states) {
		if r.states[name].CompletedAt != 0 {
			out = append(out, metrics.Of(value(r.states[name]), "service", name))
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (s *server) pools(value func(store.Pool) float64) (out []metrics.Sample) {
	pools := s.Store.Pools()
	for _, name := range sortedKeys(pools) {
		out = append(out, metrics.Of(value(pools[name]), "pool", name))
	}
	return out
}

// residentMemory reads /proc; 0 where there is none.
func residentMemory() float64 {
	data, err := os.ReadFile("/proc/self/statm")
	if f := strings.Fields(string(data)); err == nil && len(f) > 1 {
		pages, _ := strconv.ParseFloat(f[1], 64)
		return pages * float64(os.Getpagesize())
	}
	return 0
}

// metrics answers GET /metrics.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	seen := s.readings(r.Context())
	out := make([]metrics.Family, len(families))
	for i, f := range families {
		out[i] = metrics.Family{Name: f.name, Type: f.kind, Help: f.help, Samples: f.samples(s, seen)}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_ = metrics.Write(w, out) // the caller may have gone
}

// readings asks the database if it was not asked lately. One that does not answer is said to be down, and nothing is made up.
func (s *server) readings(ctx context.Context) readings {
	m := &s.measure
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.read.IsZero() && s.Clock().Sub(m.read) < readEvery {
		return m.seen
	}
	// Not the caller's context: the answer is everybody's.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	seen, err := s.readAll(ctx)
	if err != nil {
		s.Log.Warn("the metrics cannot be read", "err", err)
		seen = readings{}
	}
	m.seen, m.read = seen, s.Clock()
	return seen
}

func (s *server) readAll(ctx context.Context) (r readings, err error) {
	r.up, r.channels = true, s.Channels.Names
	if r.at, err = s.Store.Now(ctx); err != nil {
		return r, err
	}
	if r.gauges, err = s.Store.Gauges(ctx, r.channels); err != nil {
		return r, err
	}
	if r.nodes, err = s.Store.Nodes(ctx); err != nil {
		return r, err
	}
	if r.busy, err = s.Store.BusyNodes(ctx); err != nil {
		return r, err
	}
	if r.locks, err = s.Store.Locks(ctx); err != nil {
		return r, err
	}
	if r.states, err = s.Store.ServiceStates(ctx); err != nil {
		return r, err
	}
	r.marks = map[capri.Period]capri.Instant{}
	for _, p := range calendarPeriods {
		last, any, err := s.Store.LastMark(ctx, p)
		if err != nil {
			return r, err
		}
		if !any {
			continue // its log has not begun
		}
		for iv := range s.Actions.Calendar().Marks(p, last+1, r.at+1) {
			r.marks[p] = iv.Mark
			break
		}
	}
	return r, nil
}

// measured counts requests, by the route that they took.
func (s *server) measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		answer := &answered{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			if answer.streams {
				return
			}
			route, method := "other", r.Method
			if c := chi.RouteContext(r.Context()); c != nil && c.RoutePattern() != "" {
				route = c.RoutePattern()
			}
			if _, known := s.acts[method+" "+route]; !known {
				route, method = "other", "other" // what callers make up must not become a metric
			}
			s.measure.requests.Add(time.Since(began), "method", method, "route", route, "code", strconv.Itoa(answer.status))
		}()
		next.ServeHTTP(answer, r)
	})
}

// answered notes an answer's status.
type answered struct {
	http.ResponseWriter
	status  int
	streams bool
}

func (a *answered) WriteHeader(status int) {
	a.status = status
	a.streams = strings.HasPrefix(a.Header().Get("Content-Type"), "text/event-stream")
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }
