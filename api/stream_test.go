package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/api"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

// following is an API whose events are looked for often.
type following struct {
	*rig
	url string
}

func newStreams(t *testing.T, w *actiontest.World) *following {
	t.Helper()
	s := &following{rig: newRig(t, w)}
	srv := httptest.NewServer(api.New(api.Options{Store: w.Store, Actions: w.Actions, LookEvery: 5 * time.Millisecond, BeatEvery: 20 * time.Millisecond}))
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// heard is one event; Kind is empty for the first, which has the id to resume from.
type heard struct{ id, kind, data string }

type listening struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

func (s *following) open(t *testing.T, key, query, last string) (*http.Response, *listening) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+wire.Prefix+"/events"+query, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp, &listening{t, bufio.NewScanner(resp.Body), cancel}
}

func (s *following) listen(t *testing.T, role auth.Role, query, last string) *listening {
	t.Helper()
	resp, l := s.open(t, s.keys[role], query, last)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	return l
}

// next reads one event; ok is false at the stream's end.
func (l *listening) next() (h heard, ok bool) {
	l.t.Helper()
	for l.lines.Scan() {
		line := l.lines.Text()
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && h != heard{}:
			return h, true
		case name == "id":
			h.id = value
		case name == "event":
			h.kind = value
		case name == "data":
			h.data = value
		}
	}
	return heard{}, false
}

func (l *listening) batch() wire.BatchEvent {
	l.t.Helper()
	h, ok := l.next()
	require.True(l.t, ok, "the stream ended")
	require.Equal(l.t, wire.EventBatch, h.kind)
	var b wire.BatchEvent
	require.NoError(l.t, json.Unmarshal([]byte(h.data), &b))
	return b
}

const streamTasks = `tasks:
- {name: one, owner: alice, period: day, job: {command: x}, valid: {from: "2020-01-01"}}
- {name: two, owner: alice, period: day, job: {command: x}, valid: {from: "2020-01-01"}}
`

func (s *following) made(t *testing.T) (one, two capri.BatchID) {
	t.Helper()
	s.Apply(streamTasks)
	s.ColdStart(action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: "2026-11-19", To: "2026-11-19", ByData: true})
	return s.Latest("one", "20261119").ID, s.Latest("two", "20261119").ID
}

func (s *following) hold(t *testing.T, ids ...capri.BatchID) {
	t.Helper()
	_, err := s.Actions.Hold(s.Ctx, actiontest.Who, ids, "look first")
	require.NoError(t, err)
}

func (s *following) release(t *testing.T, ids ...capri.BatchID) {
	t.Helper()
	_, err := s.Actions.Release(s.Ctx, actiontest.Who, ids, "go")
	require.NoError(t, err)
}

func TestEvents_tell_of_changes_and_who_resumes_misses_none(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		s := newStreams(t, w)
		one, two := s.made(t)
		all, narrow := s.listen(t, auth.ReadOnly, "", ""), s.listen(t, auth.ReadOnly, "?task=two&state=waiting", "")
		first, ok := all.next()
		require.True(t, ok)
		assert.Empty(t, first.kind, "only where it begins")
		_, ok = narrow.next()
		require.True(t, ok)
		s.hold(t, one)
		b := all.batch()
		assert.Equal(t, []any{one, "one", capri.BatchNo("20261119"), "waiting", true, "by tester: look first"}, []any{b.BatchID, b.Task, b.BatchNo, b.State, b.Held, b.Why})
		s.hold(t, two)
		assert.Equal(t, two, all.batch().BatchID)
		assert.Equal(t, two, narrow.batch().BatchID, "and nothing of the other before")
		all.cancel()
		s.release(t, one, two)

		again := s.listen(t, auth.ReadOnly, "", first.id)
		_, ok = again.next()
		require.True(t, ok)
		var seen []bool
		for range 4 {
			seen = append(seen, again.batch().Held)
		}
		assert.Equal(t, []bool{true, true, false, false}, seen, "all since then")
	})
}

func TestEvents_of_nodes_and_services(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		s := newStreams(t, w)
		l := s.listen(t, auth.ReadOnly, "?kind=node,service", "")
		_, ok := l.next()
		require.True(t, ok)
		w.Register()
		h, ok := l.next()
		require.True(t, ok)
		assert.Equal(t, heard{h.id, wire.EventNode, `{"host":"n1","state":"up","short_of":""}`}, h)
		w.DB.Lease(t, "cleanup")
		h, ok = l.next()
		require.True(t, ok)
		assert.Equal(t, wire.EventService, h.kind)
		assert.JSONEq(t, `{"service":"cleanup","leader":"test","epoch":1,"paused":false,"reason":""}`, h.data)
	})
}

func TestEvents_show_nobody_what_he_may_not_see(t *testing.T) {
	s := newStreams(t, actiontest.SQLite(t))
	one, two := s.made(t)
	s.DB.Set(t, store.TaskRead, "department")
	stranger, err := s.Actions.CreateApp(s.Ctx, actiontest.Who, store.App{Name: "stranger", Role: string(auth.ReadOnly)}, store.Credential{})
	require.NoError(t, err)
	_, l := s.open(t, stranger, "", "")
	_, ok := l.next()
	require.True(t, ok)
	member := s.listen(t, auth.Member, "", "")
	_, ok = member.next()
	require.True(t, ok)
	s.hold(t, one, two)
	assert.Equal(t, one, member.batch().BatchID, "of the same department")
	s.DB.Lease(t, "cleanup")
	h, ok := l.next()
	require.True(t, ok)
	assert.Equal(t, wire.EventService, h.kind, "it hears of what is everybody's, and of no batch before")
}

func TestEvents_of_a_task_that_is_not_there_are_refused(t *testing.T) {
	w := actiontest.SQLite(t)
	w.Apply(some)
	r := newRig(t, w)
	for _, task := range []string{"nothing", "day,nothing", "%27%20OR%201%3D1--"} {
		rec := r.ask(auth.ReadOnly, "GET", "/api/v1/events?task="+task, "")
		assert.Equal(t, 404, rec.Code, task)
		assert.Contains(t, r.problem(rec).Detail, "there is no task")
	}
}

func TestEvents_end_when_the_key_does_and_there_are_only_so_many(t *testing.T) {
	s := newStreams(t, actiontest.SQLite(t))
	key, err := s.Actions.CreateApp(s.Ctx, actiontest.Who, store.App{Name: "short-lived", Role: string(auth.ReadOnly)}, store.Credential{})
	require.NoError(t, err)
	_, l := s.open(t, key, "", "")
	_, ok := l.next()
	require.True(t, ok)
	require.NoError(t, s.Actions.DeleteApp(s.Ctx, actiontest.Who, "short-lived"))
	_, ok = l.next()
	assert.False(t, ok, "the next heart-beat finds that the key is gone")

	for range 10 {
		s.listen(t, auth.ReadOnly, "", "")
	}
	resp, _ := s.open(t, s.keys[auth.ReadOnly], "", "")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	s.listen(t, auth.Member, "", "")
	for _, bad := range []string{"?kind=cat", "?state=happy", "?colour=red"} {
		resp, _ := s.open(t, s.keys[auth.Member], bad, "")
		assert.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, bad)
	}
	resp, _ = s.open(t, s.keys[auth.Member], "", "x")
	assert.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	resp, _ = s.open(t, auth.NewKey(), "", "")
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
}
