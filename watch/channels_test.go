package watch

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var message = Message{Source: "capri watch", Host: "outside", At: time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC), Items: []Item{
	{Check: "database", State: Wrong, Since: time.Date(2026, 11, 20, 9, 29, 0, 0, time.UTC), Detail: "die Verbindung wurde abgelehnt, 数据库"},
	{Check: "masters", State: Over, Since: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Detail: "at least one beats"},
}}

func TestWebhook_gets_a_document_of_a_fixed_shape(t *testing.T) {
	status := http.StatusOK
	var got map[string]any
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "application/json", r.Header.Get("Content-Type"))
		require.NoError(t, json.NewDecoder(r.Body).Decode(&got))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer srv.Close()
	hook := Webhook(srv.URL + "/geheim")
	require.NoError(t, hook.Send(t.Context(), message))
	require.Equal(t, map[string]any{"source": "capri watch", "host": "outside", "at": "2026-11-20T09:30:00Z", "items": []any{
		map[string]any{"check": "database", "state": "wrong", "since": "2026-11-20T09:29:00Z", "detail": message.Items[0].Detail},
		map[string]any{"check": "masters", "state": "over", "since": "2026-11-20T09:00:00Z", "detail": "at least one beats"},
	}}, got)
	for _, status = range []int{500, 307} {
		require.ErrorContains(t, hook.Send(t.Context(), message), fmt.Sprint(status))
	}
	srv.Close()
	err := hook.Send(t.Context(), message)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "geheim", "the address holds a key")
}

// postbox is an SMTP server that takes one mail after another.
type postbox struct {
	address  string
	cert     *tls.Certificate // nil: it does not offer STARTTLS
	implicit bool             // TLS from the first byte
	silent   bool             // it accepts and says nothing
	refuses  string           // a recipient that it does not know
	mails    chan letter
}

type letter struct {
	from, user string
	to         []string
	secure     bool
	data       string
}

func newPostbox(t *testing.T, p *postbox) *postbox {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	p.address, p.mails = l.Addr().String(), make(chan letter, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

func (p *postbox) serve(conn net.Conn) {
	defer conn.Close()
	var m letter
	secure := func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{*p.cert}} }
	if p.implicit {
		conn, m.secure = tls.Server(conn, secure()), true
	}
	if p.silent {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	r := bufio.NewReader(conn)
	say := func(format string, args ...any) { fmt.Fprintf(conn, format+"\r\n", args...) }
	say("220 postbox")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		verb, rest, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "EHLO", "HELO":
			say("250-postbox")
			if p.cert != nil && !m.secure {
				say("250-STARTTLS")
			}
			say("250 AUTH PLAIN")
		case "STARTTLS":
			say("220 go on")
			conn, m.secure = tls.Server(conn, secure()), true
			r = bufio.NewReader(conn)
		case "AUTH":
			raw, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			m.user = strings.ReplaceAll(string(raw), "\x00", "|")
			say("235 welcome")
		case "MAIL":
			m.from = rest
			say("250 ok")
		case "RCPT":
			if p.refuses != "" && strings.Contains(rest, p.refuses) {
				say("550 nobody of that name")
				continue
			}
			m.to = append(m.to, rest)
			say("250 ok")
		case "DATA":
			say("354 go on")
			var b strings.Builder
			for {
				line, err := r.ReadString('\n')
				if err != nil || line == ".\r\n" {
					break
				}
				b.WriteString(line)
			}
			m.data = b.String()
			p.mails <- m
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		}
	}
}

// certificate is one for 127.0.0.1, and who vouches for it.
func certificate(t *testing.T) (*tls.Certificate, *x509.CertPool) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return &srv.TLS.Certificates[0], roots
}

func TestMail_is_composed_and_delivered(t *testing.T) {
	p := newPostbox(t, &postbox{})
	m := Mail{Server: p.address, TLS: "none", From: "capri@example.org", To: []string{"a@example.org", "b@example.org"}}
	require.NoError(t, m.Channel().Send(t.Context(), message))
	got := <-p.mails
	require.Equal(t, "FROM:<capri@example.org>", strings.Fields(got.from)[0])
	require.Equal(t, []string{"TO:<a@example.org>", "TO:<b@example.org>"}, got.to)
	read, err := mail.ReadMessage(strings.NewReader(got.data))
	require.NoError(t, err)
	require.Equal(t, "[capri watch] changed: database and 1 more", read.Header.Get("Subject"))
	require.Equal(t, "a@example.org, b@example.org", read.Header.Get("To"))
	body, err := io.ReadAll(read.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), "SILENT: database, since 2026-11-20T09:29:00Z")
	require.Contains(t, string(body), "Seen from outside at 2026-11-20T09:30:00Z.")
}

func TestMail_keeps_to_its_TLS(t *testing.T) {
	cert, roots := certificate(t)
	plain, upgrading, wrapped := newPostbox(t, &postbox{}), newPostbox(t, &postbox{cert: cert}), newPostbox(t, &postbox{cert: cert, implicit: true})
	send := func(p *postbox, mode string, roots *x509.CertPool) error {
		return Mail{Server: p.address, TLS: mode, From: "c@example.org", To: []string{"a@example.org"}, User: "capri", Password: "s3cret", roots: roots}.send(t.Context(), message)
	}
	require.NoError(t, send(upgrading, "starttls", roots))
	got := <-upgrading.mails
	require.True(t, got.secure)
	require.Equal(t, "|capri|s3cret", got.user)
	require.NoError(t, send(wrapped, "tls", roots))
	require.True(t, (<-wrapped.mails).secure)

	require.ErrorContains(t, send(plain, "starttls", roots), "does not offer STARTTLS", "it is required, not merely tried")
	require.ErrorContains(t, send(upgrading, "starttls", nil), "certificate", "nobody vouches for it")
	require.Error(t, send(plain, "tls", roots))
	require.Empty(t, plain.mails)
}

func TestMail_says_which_server_refused_and_no_password(t *testing.T) {
	p := newPostbox(t, &postbox{refuses: "b@"})
	m := Mail{Server: p.address, TLS: "none", From: "c@example.org", To: []string{"a@example.org", "b@example.org"}, User: "capri", Password: "s3cret"}
	err := m.send(t.Context(), message)
	require.ErrorContains(t, err, p.address)
	require.ErrorContains(t, err, "nobody of that name")
	require.NotContains(t, err.Error(), "s3cret")
	require.Empty(t, p.mails)
	m.Server = closedPort(t)
	require.ErrorContains(t, m.send(t.Context(), message), "refused")
}

func TestAServerThatAcceptsAndStaysSilent_costs_no_more_than_the_time_limit(t *testing.T) {
	p := newPostbox(t, &postbox{silent: true})
	for name, ctx := range map[string]func() (context.Context, context.CancelFunc){
		"a time limit": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 100*time.Millisecond)
		},
		"being stopped": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := ctx()
			defer cancel()
			began := time.Now()
			require.Error(t, Mail{Server: p.address, TLS: "none", From: "c@example.org", To: []string{"a@example.org"}}.send(ctx, message))
			require.Less(t, time.Since(began), 30*time.Second)
		})
	}
}

func TestSubjects(t *testing.T) {
	of := func(states ...string) string {
		m := Message{}
		for _, s := range states {
			m.Items = append(m.Items, Item{Check: "masters", State: s})
		}
		return subject(m)
	}
	require.Equal(t, "[capri watch] SILENT: masters", of(Wrong))
	require.Equal(t, "[capri watch] SILENT: masters and 1 more", of(StillWrong, Wrong))
	require.Equal(t, "[capri watch] over: masters", of(Over))
}
