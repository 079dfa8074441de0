package certs

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/internal/testenv"
)

// testServer answers with the protocol that it was asked by.
type testServer struct {
	*httptest.Server
	certs *Server
	log   *bytes.Buffer
	now   *time.Time
}

func newServer(t *testing.T, f ServerFiles) testServer {
	t.Helper()
	var log bytes.Buffer
	s, err := NewServer(f, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	now := time.Unix(1_000_000, 0)
	s.now, s.looked = func() time.Time { return now }, now
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	srv.Config.ErrorLog = nil
	srv.TLS = s.Config()
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return testServer{srv, s, &log, &now}
}

func dial(t *testing.T, srv *httptest.Server, f Files) (names []string, err error) {
	t.Helper()
	c, err := Client(f)
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", srv.Listener.Addr().String(), c)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n") // a refused client certificate is heard of with the answer
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return conn.ConnectionState().PeerCertificates[0].DNSNames, err
}

func TestAServer_takes_new_files_without_a_restart_and_keeps_the_old_while_they_are_wrong(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Issue(t, "live", "127.0.0.1", "first.example.org")
	made := newServer(t, ServerFiles{Cert: cert, Key: key})
	srv, log, now := made.Server, made.log, made.now
	client := Files{CA: ca.File}
	names, err := dial(t, srv, client)
	require.NoError(t, err)
	require.Equal(t, []string{"first.example.org"}, names)

	newCert, newKey := ca.Issue(t, "next", "127.0.0.1", "second.example.org")
	move := func(from, to string) {
		data, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, data, 0o600))
	}
	move(newCert, cert) // the key is not there yet
	names, err = dial(t, srv, client)
	require.NoError(t, err)
	assert.Equal(t, []string{"first.example.org"}, names, "not looked at yet")
	for range 3 {
		*now = now.Add(lookEvery)
		names, err = dial(t, srv, client)
		require.NoError(t, err)
		assert.Equal(t, []string{"first.example.org"}, names)
	}
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("the one before stays")), "said once: %s", log)
	move(newKey, key)
	*now = now.Add(lookEvery)
	names, err = dial(t, srv, client)
	require.NoError(t, err)
	assert.Equal(t, []string{"second.example.org"}, names)

	require.NoError(t, os.Remove(cert))
	*now = now.Add(lookEvery)
	names, err = dial(t, srv, client)
	require.NoError(t, err, "a file that vanishes stops nobody")
	assert.Equal(t, []string{"second.example.org"}, names)
}

func TestAClient_checks_who_answers(t *testing.T) {
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := ca.Issue(t, "srv", "db.example.org")
	srv := newServer(t, ServerFiles{Cert: cert, Key: key}).Server
	_, err := dial(t, srv, Files{CA: ca.File})
	require.ErrorContains(t, err, "127.0.0.1", "it is for another name")
	_, err = dial(t, srv, Files{CA: other.File, ServerName: "db.example.org"})
	require.ErrorContains(t, err, "unknown authority")
	_, err = dial(t, srv, Files{CA: System, ServerName: "db.example.org"})
	require.Error(t, err)
	_, err = dial(t, srv, Files{CA: ca.File, ServerName: "db.example.org"})
	require.NoError(t, err)
	c, err := Client(Files{})
	require.NoError(t, err)
	assert.Nil(t, c, "nothing is configured: no TLS")
}

func TestAServer_with_a_client_CA_lets_in_nobody_without_its_certificate(t *testing.T) {
	ca, people := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := ca.Issue(t, "srv", "127.0.0.1")
	srv := newServer(t, ServerFiles{Cert: cert, Key: key, ClientCA: people.File}).Server
	_, err := dial(t, srv, Files{CA: ca.File})
	require.Error(t, err)
	strangeCert, strangeKey := ca.Issue(t, "stranger")
	_, err = dial(t, srv, Files{CA: ca.File, Cert: strangeCert, Key: strangeKey})
	require.Error(t, err)
	ourCert, ourKey := people.Issue(t, "ops")
	_, err = dial(t, srv, Files{CA: ca.File, Cert: ourCert, Key: ourKey})
	require.NoError(t, err)
}

func TestTLS_1_1_is_refused_and_HTTP_2_is_spoken(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Issue(t, "srv", "127.0.0.1")
	made := newServer(t, ServerFiles{Cert: cert, Key: key})
	s, srv := made.certs, made.Server
	c, err := Client(Files{CA: ca.File})
	require.NoError(t, err)
	assert.Equal(t, uint16(tls.VersionTLS12), c.MinVersion)
	old := c.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	_, err = tls.Dial("tcp", srv.Listener.Addr().String(), old)
	require.Error(t, err)
	h := http.Client{Transport: &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}}
	defer h.CloseIdleConnections()
	resp, err := h.Get(srv.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "HTTP/2.0", string(body))
	assert.True(t, s.IsFor("127.0.0.1"))
	assert.False(t, s.IsFor("localhost"))
	assert.Equal(t, "127.0.0.1", s.Name())
}

func TestWrongFiles_are_named_and_never_shown(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Issue(t, "a", "x")
	_, otherKey := ca.Issue(t, "b", "x")
	junk := filepath.Join(t.TempDir(), "junk")
	require.NoError(t, os.WriteFile(junk, []byte("s3cret"), 0o600))
	for _, c := range []struct {
		f    Files
		want string
	}{
		{Files{Field: "redis.tls", CA: "/nowhere"}, `redis.tls.ca: "/nowhere": want a file that can be read: no such file or directory`},
		{Files{Field: "redis.tls", CA: junk}, `redis.tls.ca: "` + junk + `": want a file with certificates (-----BEGIN CERTIFICATE-----)`},
		{Files{Field: "redis.tls", CA: ca.File, Cert: cert, Key: "/nowhere"}, `redis.tls.key: "/nowhere": want a file that can be read: no such file or directory`},
		{Files{CA: ca.File, Cert: "/nowhere", Key: key}, `--cert: "/nowhere": want a file that can be read: no such file or directory`},
		{Files{CA: ca.File, Cert: cert, Key: otherKey}, `--cert: "` + cert + `": want a certificate, and its key in --cert-key: private key does not match public key`},
	} {
		_, err := Client(c.f)
		require.ErrorIs(t, err, capri.ErrInvalid)
		assert.Equal(t, c.want, err.Error())
	}
	_, err := NewServer(ServerFiles{Cert: cert, Key: junk}, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, capri.ErrInvalid)
	assert.NotContains(t, err.Error(), "s3cret")
	_, err = NewServer(ServerFiles{Cert: cert, Key: key, ClientCA: "/nowhere"}, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "tls.client_ca")
}

func TestConnections_that_are_no_TLS_are_dropped(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Issue(t, "srv", "127.0.0.1")
	srv := newServer(t, ServerFiles{Cert: cert, Key: key}).Server
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	answer, _ := io.ReadAll(conn)
	assert.NotContains(t, string(answer), "200 OK")
}
