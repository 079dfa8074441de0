package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limitedServer is a server with the limits of Capri's, and the answers of what has said something to it, until it hangs up.
func limitedServer(t *testing.T, change func(*http.Server)) (say func(string) string) {
	srv := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusRequestTimeout)
		}
	}), slog.New(slog.DiscardHandler))
	change(srv)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close() })
	return func(text string) string {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, _ = io.WriteString(conn, text) // it may hang up before it has all
		answer, _ := io.ReadAll(conn)     // ends when it hangs up
		return string(answer)
	}
}

func TestTheServer_hangs_up_on_who_sends_slowly(t *testing.T) {
	set := newServer(nil, slog.New(slog.DiscardHandler))
	for what, limit := range map[string]time.Duration{"headers": set.ReadHeaderTimeout, "a request": set.ReadTimeout, "an answer": set.WriteTimeout, "a pause": set.IdleTimeout} {
		assert.Greater(t, limit, time.Second, what)
		assert.LessOrEqual(t, limit, 2*time.Minute, what)
	}
	assert.Less(t, set.ReadHeaderTimeout, set.ReadTimeout)
	// The same, in a hurry: what counts is that it hangs up, and not when.
	say := limitedServer(t, func(srv *http.Server) {
		srv.ReadHeaderTimeout, srv.ReadTimeout, srv.IdleTimeout = srv.ReadHeaderTimeout/200, srv.ReadTimeout/200, srv.IdleTimeout/200
	})
	assert.Empty(t, say("GET / HTTP/1.1\r\nHost: x\r\nX-Slow: a"))
	assert.Contains(t, say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"), "408 Request Timeout")
	assert.Contains(t, say("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "200 OK", "and then it was silent for too long")
}

func TestTheServer_refuses_headers_that_are_too_large(t *testing.T) {
	say := limitedServer(t, func(*http.Server) {})
	assert.Contains(t, say("GET / HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("a", 80<<10)+"\r\n\r\n"), "431 Request Header Fields Too Large")
	assert.Contains(t, say("GET /?q="+strings.Repeat("a", 80<<10)+" HTTP/1.1\r\nHost: x\r\n\r\n"), "431 Request Header Fields Too Large")
}
