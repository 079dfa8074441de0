package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"capri"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

// GET /api/v1/events tells of changes as server-sent events. However many listen, the database is asked once a second by
// each process, and not at all while nobody listens:
//
//	history, nodes, leases ──look, once a second──▶ round ──▶ listener ── may they see it? did they ask for it? ──▶ the wire
//	                                                     └──▶ listener …
//
// Ids of the history are given before their transaction commits, so a lower one may appear after a higher one. The feed
// asks for those that it has missed for a minute, and an event's id on the wire is the one below which nothing is missing:
// who resumes by it loses nothing, and may see some twice.
const (
	lookAgainFor   = time.Minute // the longest that a transaction takes
	mostMissing    = 1000
	roundEvents    = 5000
	mostReplayed   = 10_000 // events that who resumes is told of; beyond that the lists are quicker
	roundsBehind   = 16     // a listener that is further behind is cut off, and may resume
	mostListeners  = 10     // of one caller
	allListeners   = 500    // of a process
	streamPatience = 10 * time.Second
)

// change is an event as all listeners share it.
type change struct {
	kind   string
	task   string
	states []string
	object auth.Object // of a batch
	data   []byte
}

// round is what one look found. low is the id that those who have had it resume from; last the highest that was seen, which
// is above low while some in between are missing.
type round struct {
	changes   []change
	low, last int64
}

// feed looks for all who listen.
type feed struct {
	s *server

	mu        sync.Mutex
	listeners map[*listener]bool
	stop      context.CancelFunc // ends the looking; nil: nobody looks
	newest    round              // without its changes: where the history stands
}

type listener struct {
	who    string
	rounds chan round // closed: it is too slow
}

// join adds a listener, who hears of all rounds from now on; from is where the history stood. errTooMany: no.
func (f *feed) join(ctx context.Context, who string) (l *listener, from round, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := 0
	for x := range f.listeners {
		if x.who == who {
			own++
		}
	}
	if own >= mostListeners || len(f.listeners) >= allListeners {
		return nil, round{}, newProblem(http.StatusTooManyRequests, fmt.Sprintf("%s listens %d times already, and a caller may %d times: close one", who, own, mostListeners))
	}
	if f.stop == nil {
		look := &looker{s: f.s, missing: map[int64]time.Time{}}
		if err := look.begin(ctx); err != nil {
			return nil, round{}, err
		}
		f.newest = round{low: look.last, last: look.last}
		looking, stop := context.WithCancel(context.WithoutCancel(ctx))
		f.stop = stop
		go f.run(looking, look)
	}
	l = &listener{who: who, rounds: make(chan round, roundsBehind)}
	f.listeners[l] = true
	return l, f.newest, nil
}

// leave takes a listener out; the last one ends the looking.
func (f *feed) leave(l *listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.listeners, l)
	if len(f.listeners) == 0 && f.stop != nil {
		f.stop()
		f.stop = nil
	}
}

func (f *feed) run(ctx context.Context, look *looker) {
	tick := time.NewTicker(f.s.LookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r, err := look.look(ctx)
		if err != nil {
			continue // the database is away: what happened meanwhile is told when it is there
		}
		f.tell(ctx, r)
	}
}

func (f *feed) tell(ctx context.Context, r round) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return // another looks by now
	}
	f.newest = round{low: r.low, last: r.last}
	if len(r.changes) == 0 {
		return
	}
	for l := range f.listeners {
		select {
		case l.rounds <- r:
		default:
			close(l.rounds)
			delete(f.listeners, l)
		}
	}
}

// looker remembers what was seen.
type looker struct {
	s       *server
	last    int64               // the highest id of the history
	missing map[int64]time.Time // lower ones that were not there, and since when
	nodes   map[string]wire.NodeEvent
	leases  map[string]wire.ServiceEvent
}

func (k *looker) begin(ctx context.Context) (err error) {
	if k.last, err = k.s.Store.LastChange(ctx); err != nil {
		return err
	}
	_, err = k.around(ctx)
	return err
}

// look asks what is new.
func (k *looker) look(ctx context.Context) (round, error) {
	now := k.s.Clock()
	late, err := k.s.Store.ChangesByID(ctx, slices.Sorted(maps.Keys(k.missing)))
	if err != nil {
		return round{}, err
	}
	news, err := k.s.Store.Changes(ctx, k.last, roundEvents)
	if err != nil {
		return round{}, err
	}
	around, err := k.around(ctx)
	if err != nil {
		return round{}, err
	}
	for _, c := range late {
		delete(k.missing, c.ID)
	}
	for _, c := range news {
		for id := max(k.last+1, c.ID-mostMissing); id < c.ID; id++ {
			k.missing[id] = now
		}
		k.last = c.ID
	}
	r := round{low: k.last, last: k.last, changes: around}
	for id, since := range k.missing {
		if now.Sub(since) > lookAgainFor || len(k.missing) > mostMissing {
			delete(k.missing, id) // it was rolled back, most likely
			continue
		}
		r.low = min(r.low, id-1)
	}
	for _, c := range append(late, news...) {
		if c.TaskID != 0 {
			r.changes = append(r.changes, k.s.ofBatch(c))
		}
	}
	return r, nil
}

// around compares nodes and leases with what they were.
func (k *looker) around(ctx context.Context) ([]change, error) {
	nodes, err := k.s.Store.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	locks, err := k.s.Store.Locks(ctx)
	if err != nil {
		return nil, err
	}
	nowNodes, nowLeases := map[string]wire.NodeEvent{}, map[string]wire.ServiceEvent{}
	for _, n := range nodes {
		nowNodes[n.Name] = wire.NodeEvent{Host: n.Name, State: nodeState(n), ShortOf: n.ShortOf}
	}
	for _, l := range locks {
		leader, _, _ := strings.Cut(l.Holder, "/")
		nowLeases[l.Service] = wire.ServiceEvent{Service: l.Service, Leader: leader, Epoch: int64(l.Epoch), Paused: l.Paused, Reason: l.PausedReason}
	}
	var out []change
	for _, name := range sortedKeys(nowNodes) {
		if was, known := k.nodes[name]; k.nodes != nil && (!known || was != nowNodes[name]) {
			out = append(out, told(wire.EventNode, nowNodes[name], nowNodes[name].State))
		}
	}
	for _, name := range sortedKeys(k.nodes) {
		if _, there := nowNodes[name]; !there {
			out = append(out, told(wire.EventNode, wire.NodeEvent{Host: name, State: "removed"}, "removed"))
		}
	}
	for _, name := range sortedKeys(nowLeases) {
		if k.leases != nil && k.leases[name] != nowLeases[name] {
			out = append(out, told(wire.EventService, nowLeases[name]))
		}
	}
	k.nodes, k.leases = nowNodes, nowLeases
	return out, nil
}

func nodeState(n capri.Node) string {
	switch {
	case n.Lost:
		return "lost"
	case n.Left:
		return "stopped"
	case n.Draining:
		return "draining"
	case n.ShortOf != "":
		return "short"
	}
	return "up"
}

func told(kind string, v any, states ...string) change {
	data, _ := json.Marshal(v) //nolint:errchkjson // texts and numbers: cannot fail
	return change{kind: kind, states: states, data: data}
}

func (s *server) ofBatch(c store.BatchChange) change {
	out := told(wire.EventBatch, wire.BatchEvent{ID: c.ID, At: c.At.In(s.Zone), BatchID: c.Batch, Task: c.Task, BatchNo: c.BatchNo, RunNo: c.RunNo, State: c.State.String(),
		FinishState: c.FinishState.String(), Attempt: c.Attempt, Node: c.Node, Held: c.Held, KillRequest: c.KillRequest, Who: c.Who, Why: c.Why}, c.State.String(), c.FinishState.String())
	out.task, out.object = c.Task, auth.TaskObject(c.Whose)
	return out
}

// wanted is what a listener asked for; empty lists want all.
type wanted struct{ tasks, states, kinds []string }

func (w wanted) wants(c change) bool {
	has := func(list []string, of ...string) bool {
		return len(list) == 0 || slices.ContainsFunc(of, func(x string) bool { return slices.Contains(list, x) })
	}
	return has(w.kinds, c.kind) && has(w.tasks, c.task) && has(w.states, c.states...)
}

func readWanted(r *http.Request) (w wanted, err error) {
	for name, values := range r.URL.Query() {
		var list []string
		for _, v := range values {
			list = append(list, strings.Split(v, ",")...)
		}
		switch name {
		case "task":
			w.tasks = list
		case "state":
			w.states = list
			for _, v := range list {
				if _, isState, _, isFinish := capri.ParseState(v); !isState && !isFinish && !slices.Contains([]string{"up", "lost", "stopped", "draining", "short", "removed"}, v) {
					return w, capri.Invalid(name, v, "states of batches or nodes, with commas between them")
				}
			}
		case "kind":
			w.kinds = list
			for _, v := range list {
				if v != wire.EventBatch && v != wire.EventNode && v != wire.EventService {
					return w, capri.Invalid(name, v, "batch, node or service, or several with commas between them")
				}
			}
		default:
			return w, capri.Invalid(name, values[0], "a parameter that exists: task, state, kind")
		}
	}
	return w, nil
}

// describeEvents puts the stream into the document, in which operations describe themselves.
func (s *server) describeEvents() {
	rule, _ := auth.RuleOf(auth.BatchRead)
	list := func(name, doc string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	s.huma.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "events", Method: http.MethodGet, Path: wire.Prefix + "/events", Summary: "Follow changes of batches, nodes and services, as server-sent events",
		Description: "Act " + string(auth.BatchRead) + ". " + rule.Needs() + " A comment comes every 15 seconds. Who is too slow is cut off; with the header Last-Event-ID nothing is lost, and some may come twice. " +
			"The event `reset` says that too much has happened since: read the lists anew. The stream ends when the key does.",
		Extensions: map[string]any{"x-capri-act": string(auth.BatchRead)},
		Security:   []map[string][]string{{"key": {}}},
		Parameters: []*huma.Param{list("task", "of these tasks, with commas between them"), list("state", "in these states, or finish states"), list("kind", "batch, node, service"),
			{Name: "Last-Event-ID", In: "header", Description: "the id of the last event that was read", Schema: &huma.Schema{Type: huma.TypeString}}},
		Responses: map[string]*huma.Response{"200": {Description: "events: batch, node, service, reset", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}}},
	})
}

// mayFollow refuses tasks that are not there: who follows one would wait for ever. Deleted ones may still run.
func (s *server) mayFollow(ctx context.Context, tasks []string) error {
	if len(tasks) == 0 {
		return nil
	}
	found, err := s.Store.Tasks(ctx, store.TaskFilter{Names: tasks, WithDeleted: true, Seen: seen(ctx, auth.BatchRead)})
	if err != nil {
		return err
	}
	for _, name := range tasks {
		if !slices.ContainsFunc(found, func(t *capri.Task) bool { return t.Name == name }) {
			return capri.NotFound("there is no task %q", name)
		}
	}
	return nil
}

// events answers GET /api/v1/events, until the caller leaves.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	fail := func(err error) {
		p := s.problem(ctx, "events", err).(*problem) //nolint:errorlint,forcetypeassert // it makes nothing else
		data, _ := json.Marshal(p.Problem)            //nolint:errchkjson // texts: cannot fail
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(p.Status)
		_, _ = w.Write(data)
	}
	want, err := readWanted(r)
	if err != nil {
		fail(err)
		return
	}
	if err := s.mayFollow(ctx, want.tasks); err != nil {
		fail(err)
		return
	}
	after := int64(-1)
	if text := r.Header.Get("Last-Event-ID"); text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			fail(capri.Invalid("Last-Event-ID", text, "the id of an event of this stream"))
			return
		}
	}
	who := auth.From(ctx)
	l, from, err := s.feed.join(ctx, string(who.Kind)+" "+who.Name)
	if err != nil {
		fail(err)
		return
	}
	defer s.feed.leave(l)
	out := &stream{w: w, c: http.NewResponseController(w), who: who, want: want}
	_ = out.c.SetReadDeadline(time.Time{}) // the server's is for requests that end
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	w.WriteHeader(http.StatusOK)
	if out.write(": events of Capri\nretry: 2000\nid: "+strconv.FormatInt(min(from.low, orElse(after, from.low)), 10)+"\n\n") != nil {
		return
	}
	if after >= 0 && after < from.last {
		if err := s.replay(ctx, out, after, from); err != nil {
			return
		}
	}
	beat := time.NewTicker(s.BeatEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case next, open := <-l.rounds:
			if !open || out.tell(next) != nil {
				return
			}
		case <-beat.C:
			if s.Stopping != nil && s.Stopping() || !s.stillMay(r, out) || out.write(": still here\n\n") != nil {
				return
			}
		}
	}
}

func orElse(n, other int64) int64 {
	if n < 0 {
		return other
	}
	return n
}

// replay tells who resumes what has happened since.
func (s *server) replay(ctx context.Context, out *stream, after int64, until round) error {
	if until.last-after > mostReplayed {
		return out.write("event: " + wire.EventReset + "\nid: " + strconv.FormatInt(until.low, 10) + "\ndata: {}\n\n")
	}
	list, err := s.Store.Changes(ctx, after, mostReplayed)
	if err != nil {
		return err
	}
	r := round{low: until.low}
	for _, c := range list {
		if c.TaskID != 0 && c.ID <= until.last {
			r.changes = append(r.changes, s.ofBatch(c))
		}
	}
	return out.tell(r)
}

// stillMay asks again who listens: a key or a session may have ended, and rights may have changed. While the database is
// away nobody is thrown out.
func (s *server) stillMay(r *http.Request, out *stream) bool {
	may := true
	refuse := func(_ http.ResponseWriter, _ *http.Request, err error) {
		may = !auth.IsNobody(err) && statusOf(err) == http.StatusServiceUnavailable
	}
	auth.Middleware(s.Store, refuse)(http.HandlerFunc(func(_ http.ResponseWriter, again *http.Request) {
		out.who = auth.From(again.Context())
		may = out.who.Reaches(auth.BatchRead) == nil
	})).ServeHTTP(nothing{}, r)
	return may
}

// nothing takes what is written to nobody.
type nothing struct{}

func (nothing) Header() http.Header         { return http.Header{} }
func (nothing) Write(b []byte) (int, error) { return len(b), nil }
func (nothing) WriteHeader(int)             {}

// stream is the way to one listener.
type stream struct {
	w    http.ResponseWriter
	c    *http.ResponseController
	who  auth.Principal
	want wanted
}

// tell writes a round. Its last event has the id: who loses the connection before resumes from the round's beginning.
func (t *stream) tell(r round) error {
	var b strings.Builder
	for _, c := range r.changes {
		if !t.want.wants(c) || c.kind == wire.EventBatch && t.who.May(auth.BatchRead, c.object) != nil {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n", c.kind, c.data)
	}
	if b.Len() == 0 {
		return nil
	}
	fmt.Fprintf(&b, "id: %d\n\n", r.low)
	return t.write(b.String())
}

func (t *stream) write(text string) error {
	_ = t.c.SetWriteDeadline(time.Now().Add(streamPatience)) // a recorder in tests has none
	if _, err := t.w.Write([]byte(text)); err != nil {
		return err
	}
	return t.c.Flush()
}
