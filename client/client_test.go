package client

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/api/wire"
	"capri/certs"
	"capri/internal/testenv"
)

// answering is held while a server answers: one whose connection broke off may be followed by the next at once.
var answering sync.Mutex

// capriAt is a server that counts what it is asked and answers by answer.
func capriAt(t *testing.T, answer http.HandlerFunc) (address string, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answering.Lock()
		defer answering.Unlock()
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, asked
}

func well(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"version":"v"}`)) }

func troubled(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"status":503,"detail":"the database does not answer; try again"}`))
}

// brokenOff reads the request and hangs up.
func brokenOff(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// nobodyAt is an address where nobody listens.
func nobodyAt(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	return "http://" + l.Addr().String()
}

func newClient(t *testing.T, servers ...string) *Client {
	t.Helper()
	c, err := New(strings.Join(servers, ", "), "capri_x", "test", nil)
	require.NoError(t, err)
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

func TestTheNextServer_is_asked_where_one_is_silent_or_in_trouble_and_the_good_one_is_remembered(t *testing.T) {
	sick, asked := capriAt(t, troubled)
	good, goodAsked := capriAt(t, well)
	c := newClient(t, nobodyAt(t), sick, good)
	for range 3 {
		s, err := c.Status(context.Background())
		require.NoError(t, err)
		assert.Equal(t, "v", s.Version)
	}
	assert.Equal(t, int32(1), asked.Load(), "the good one is remembered")
	assert.Equal(t, int32(3), goodAsked.Load())
}

func TestWhatMayNotBeDoneTwice_goes_to_the_next_server_only_where_it_was_not_sent(t *testing.T) {
	good, asked := capriAt(t, well)
	pause := func(servers ...string) error {
		asked.Store(0)
		return newClient(t, servers...).DeleteTask(context.Background(), "t")
	}
	require.NoError(t, pause(nobodyAt(t), good))
	assert.Equal(t, int32(1), asked.Load())
	for _, half := range []http.HandlerFunc{troubled, brokenOff} {
		address, _ := capriAt(t, half)
		err := pause(address, good)
		require.ErrorIs(t, err, capri.ErrUnavailable)
		assert.ErrorContains(t, err, address)
		assert.ErrorContains(t, err, "whether it was done is not known")
		assert.Zero(t, asked.Load())
	}
}

func TestAPostWhoseAnswerWasLost_is_sent_again_with_its_key(t *testing.T) {
	var keys []string
	said := func(answer http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			answer(w, r)
		}
	}
	half, _ := capriAt(t, said(brokenOff))
	good, _ := capriAt(t, said(well))
	require.NoError(t, newClient(t, half, good).PauseDispatch(context.Background(), wire.Pause{Reason: "x"}))
	require.Len(t, keys, 2)
	assert.NotEmpty(t, keys[0])
	assert.Equal(t, keys[0], keys[1])

	// The only server there is, too.
	keys = nil
	once := brokenOff
	only, _ := capriAt(t, said(func(w http.ResponseWriter, r *http.Request) {
		defer func() { once = well }()
		once(w, r)
	}))
	require.NoError(t, newClient(t, only).PauseDispatch(context.Background(), wire.Pause{Reason: "x"}))
	require.Len(t, keys, 2)
	assert.Equal(t, keys[0], keys[1])
}

func TestAllServersSilent_is_unavailable_and_names_each(t *testing.T) {
	a, b := nobodyAt(t), nobodyAt(t)
	sick, _ := capriAt(t, troubled)
	_, err := newClient(t, a, b, sick).Status(context.Background())
	require.ErrorIs(t, err, capri.ErrUnavailable)
	for _, want := range []string{a + ": ", b + ": ", sick + ": the database does not answer", "connection refused"} {
		assert.ErrorContains(t, err, want)
	}
	_, err = newClient(t, a).Status(context.Background())
	require.ErrorIs(t, err, capri.ErrUnavailable)
	assert.ErrorContains(t, err, "no Capri server at "+a)
}

func TestARefusal_is_an_answer_and_no_reason_to_ask_another(t *testing.T) {
	no, _ := capriAt(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"status":403,"detail":"no"}`))
	})
	good, asked := capriAt(t, well)
	_, err := newClient(t, no, good).Status(context.Background())
	require.ErrorIs(t, err, capri.ErrForbidden)
	assert.Zero(t, asked.Load())
}

func TestAddresses_are_checked_and_local_only_if_all_are(t *testing.T) {
	for _, bad := range []string{"", "http://a,", "ftp://a", "http://u:p@a"} {
		_, err := New(bad, "", "test", nil)
		require.ErrorIs(t, err, capri.ErrInvalid, bad)
	}
	assert.True(t, IsLocal("http://127.0.0.1:1, localhost:2"))
	assert.False(t, IsLocal("http://127.0.0.1:1,http://example.org"))
}

func TestOverTLS_a_server_is_checked_by_the_given_CA(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Issue(t, "api", "127.0.0.1")
	s, err := certs.NewServer(certs.ServerFiles{Cert: cert, Key: key}, nil)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(well))
	srv.TLS = s.Config()
	srv.StartTLS()
	defer srv.Close()
	secured, err := certs.Client(certs.Files{CA: ca.File})
	require.NoError(t, err)
	c, err := New(srv.URL, "capri_x", "test", secured)
	require.NoError(t, err)
	defer c.http.CloseIdleConnections()
	_, err = c.Status(context.Background())
	require.NoError(t, err)
	_, err = newClient(t, srv.URL).Status(context.Background())
	require.ErrorIs(t, err, capri.ErrUnavailable)
	assert.ErrorContains(t, err, "unknown authority")
	_, err = New("http://127.0.0.1:1", "", "test", secured)
	require.ErrorContains(t, err, "https://", "a CA and no TLS is a slip that would send the key in the clear")
}

func TestEvents_resume_where_the_connection_was_lost(t *testing.T) {
	var lasts []string
	address, _ := capriAt(t, func(w http.ResponseWriter, r *http.Request) {
		lasts = append(lasts, r.Header.Get("Last-Event-ID"))
		w.Header().Set("Content-Type", "text/event-stream")
		if len(lasts) == 1 {
			_, _ = w.Write([]byte("retry: 1\nid: 7\n\nevent: batch\ndata: {\"id\":8}\nid: 8\n\nevent: batch\ndata: {\"id\":9"))
			return // in the middle of an event
		}
		_, _ = w.Write([]byte("event: batch\ndata: {\"id\":9}\nid: 9\n\n"))
	})
	enough := errors.New("enough")
	var got []string
	err := newClient(t, address).Events(context.Background(), EventFilter{}, func(e wire.StreamEvent) error {
		got = append(got, e.Kind+" "+string(e.Data))
		if len(got) == 2 {
			return enough
		}
		return nil
	})
	require.ErrorIs(t, err, enough)
	assert.Equal(t, []string{`batch {"id":8}`, `batch {"id":9}`}, got)
	assert.Equal(t, []string{"", "8"}, lasts)
}

func TestLists_are_read_to_their_end_where_no_limit_is_given(t *testing.T) {
	const there = 2345
	at, asked := capriAt(t, func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		page := wire.Page[wire.Campaign]{}
		for id := from + 1; id <= min(there, from+limit); id++ {
			page.Items = append(page.Items, wire.Campaign{ID: capri.CampaignID(id)})
		}
		if from+limit < there {
			page.Next = strconv.Itoa(from + limit)
		}
		_ = json.NewEncoder(w).Encode(page)
	})
	for limit, want := range map[int]struct{ rows, requests int }{0: {there, 3}, 1: {1, 1}, 1500: {1500, 2}, 9999: {there, 3}} {
		asked.Store(0)
		list, err := newClient(t, at).Campaigns(t.Context(), CampaignFilter{}, limit)
		require.NoError(t, err)
		require.Len(t, list, want.rows)
		assert.Equal(t, capri.CampaignID(want.rows), list[want.rows-1].ID)
		assert.EqualValues(t, want.requests, asked.Load())
	}
}
