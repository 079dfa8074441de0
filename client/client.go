// Package client speaks to the API of a Capri server: one method per operation, on the types of api/wire. An
// error has the kind that it had on the server (errors.Is with capri.ErrNotFound …), so that the command line
// chooses its exit code as if the server were part of it.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"capri"
	"capri/api/wire"
)

// DefaultServer is where a server of this machine listens.
const DefaultServer = "http://127.0.0.1:8680"

// Client is safe for concurrent use.
type Client struct {
	servers []string
	good    atomic.Int32 // which of them answered last
	token   string
	agent   string
	http    *http.Client
}

// New makes a client of a server, or of several with commas between them, which are one Capri: where one is silent or in
// trouble the next is asked. token may be empty, which the server will refuse. secured is for servers at https; nil: by
// the authorities that this machine trusts.
func New(servers, token, agent string, secured *tls.Config) (*Client, error) {
	c := &Client{token: token, agent: agent}
	for server := range strings.SplitSeq(servers, ",") {
		u, err := parse(strings.TrimSpace(server))
		if err != nil {
			return nil, err
		}
		if u.Scheme == "http" && secured != nil {
			return nil, capri.Invalid("server", server, "https://host:port, since a CA or a certificate is given")
		}
		c.servers = append(c.servers, strings.TrimRight(u.String(), "/"))
	}
	if strings.ContainsAny(token, "\r\n") {
		return nil, capri.Invalid("token", "", "one line")
	}
	dial := 5 * time.Second
	if len(c.servers) > 1 {
		dial = 2 * time.Second // there is another to ask
	}
	c.http = &http.Client{
		// A cold start of 100,000 batches takes a while; a server that is gone is noticed by the dial.
		Timeout: 5 * time.Minute,
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: dial, KeepAlive: 30 * time.Second}).DialContext,
			TLSClientConfig:       secured,
			TLSHandshakeTimeout:   5 * time.Second,
			ResponseHeaderTimeout: 5 * time.Minute,
			ForceAttemptHTTP2:     true,
			MaxIdleConnsPerHost:   4,
			IdleConnTimeout:       30 * time.Second,
		},
		// The key goes to the server it was meant for and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func parse(server string) (*url.URL, error) {
	text := server
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, capri.Invalid("server", server, "http://host:port or https://host:port")
	}
	return u, nil
}

// IsLocal reports whether the address of a server, or of each of several, is this machine's own.
func IsLocal(servers string) bool {
	for server := range strings.SplitSeq(servers, ",") {
		u, err := parse(strings.TrimSpace(server))
		if err != nil {
			return false
		}
		host := u.Hostname()
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// Error is a refusal by the server.
type Error struct {
	Status  int
	Problem wire.Problem
}

func (e *Error) Error() string {
	if len(e.Problem.Errors) > 0 {
		lines := make(capri.FieldErrors, len(e.Problem.Errors))
		for i, f := range e.Problem.Errors {
			lines[i] = &capri.FieldError{Field: f.Field, Value: f.Value, Want: f.Want, Where: f.Where}
		}
		return lines.Error()
	}
	if e.Status == http.StatusUnauthorized {
		return e.Problem.Detail + " (--token, --token-file or CAPRI_TOKEN)"
	}
	return e.Problem.Detail
}

// Is gives the kind of error that the server's status stands for.
func (e *Error) Is(target error) bool {
	switch e.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType:
		return target == capri.ErrInvalid
	case http.StatusNotFound:
		return target == capri.ErrNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return target == capri.ErrConflict
	case http.StatusUnauthorized, http.StatusForbidden:
		return target == capri.ErrForbidden
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return target == capri.ErrUnavailable
	}
	return false
}

// call sends a request and reads the answer into out (nil: not wanted). body nil is no body.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	resp, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return capri.Unavailable("the answer of %s cannot be read: %v", c.servers[c.good.Load()], err)
	}
	return nil
}

// send asks one server after another, the one that answered last first, until one does. A request that may not be done
// twice goes to the next only where it cannot have been done.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	header := http.Header{}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPost { // so that it may go out again where the answer was lost
		header.Set(wire.HeaderIdempotencyKey, rand.Text())
	}
	return c.ask(ctx, c.http, method, path, query, header, data)
}

func (c *Client) ask(ctx context.Context, h *http.Client, method, path string, query url.Values, header http.Header, data []byte) (*http.Response, error) {
	header.Set("User-Agent", c.agent)
	if c.token != "" {
		header.Set("Authorization", "Bearer "+c.token)
	}
	twice := method == http.MethodGet || header.Get(wire.HeaderIdempotencyKey) != ""
	first := int(c.good.Load())
	var silent []string
	tries := len(c.servers)
	if tries == 1 && twice {
		tries = 2 // the one again, where the answer was lost
	}
	for n := range tries {
		at := (first + n) % len(c.servers)
		address := c.servers[at] + wire.Prefix + path
		if len(query) > 0 {
			address += "?" + query.Encode()
		}
		req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		req.Header = header
		sent := false // the request went out, or may have
		req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent = true }}))
		resp, err := h.Do(req)
		switch {
		case err == nil && resp.StatusCode/100 == 2:
			c.good.Store(int32(at))
			return resp, nil
		case err == nil:
			err = c.refused(resp)
			resp.Body.Close()
			if !errors.Is(err, capri.ErrUnavailable) {
				c.good.Store(int32(at))
				return nil, err
			}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		if len(c.servers) == 1 {
			if n+1 < tries && sent && resp == nil {
				continue
			}
			return nil, c.unreachable(err)
		}
		silent = append(silent, fmt.Sprintf("%s: %v", c.servers[at], plain(err)))
		if sent && !twice {
			return nil, capri.Unavailable("%s; whether it was done is not known, so no other server was asked: look, and try again", silent[n])
		}
	}
	return nil, capri.Unavailable("no Capri server answers: %s; start one (capri master, capri web), or name another with --server or CAPRI_SERVER", strings.Join(silent, "; "))
}

// refused reads a problem. What is no problem document did not come from a Capri server.
func (c *Client) refused(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, wire.MaxBody))
	e := &Error{Status: resp.StatusCode}
	if json.Unmarshal(data, &e.Problem) != nil || e.Problem.Status == 0 {
		return capri.Unavailable("it answered %s, which no Capri server says", resp.Status)
	}
	if e.Problem.Detail == "" {
		e.Problem.Detail = e.Problem.Title
	}
	return e
}

// plain takes the address off an error: it is named beside it.
func plain(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

// unreachable says what to do where the one server there is does not answer. What it said itself stays.
func (c *Client) unreachable(err error) error {
	var said *Error
	if errors.As(err, &said) {
		return err
	}
	return capri.Unavailable("no Capri server at %s: %v; start one (capri standalone), or name it with --server or CAPRI_SERVER", c.servers[0], plain(err))
}

// path joins the parts of a path, each escaped.
func path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}
