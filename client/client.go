// Package client speaks to the API of a Capri server: one method per operation, on the types of api/wire. An
// error has the kind that it had on the server (errors.Is with capri.ErrNotFound …), so that the command line
// chooses its exit code as if the server were part of it.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"capri"
	"capri/api/wire"
)

// DefaultServer is where a server of this machine listens.
const DefaultServer = "http://127.0.0.1:8680"

// Client is safe for concurrent use.
type Client struct {
	base  string
	token string
	agent string
	http  *http.Client
}

// New makes a client; token may be empty, which the server will refuse.
func New(server, token, agent string) (*Client, error) {
	u, err := parse(server)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(token, "\r\n") {
		return nil, capri.Invalid("token", "", "one line")
	}
	return &Client{base: strings.TrimRight(u.String(), "/"), token: token, agent: agent, http: &http.Client{
		// A cold start of 100,000 batches takes a while; a server that is gone is noticed by the dial.
		Timeout: 5 * time.Minute,
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:   5 * time.Second,
			ResponseHeaderTimeout: 5 * time.Minute,
			ForceAttemptHTTP2:     true,
			MaxIdleConnsPerHost:   4,
			IdleConnTimeout:       30 * time.Second,
		},
		// The key goes to the server it was meant for and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
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

// IsLocal reports whether a server's address is this machine's own.
func IsLocal(server string) bool {
	u, err := parse(server)
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
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
	case http.StatusConflict:
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
		return c.unreachable(fmt.Errorf("its answer cannot be read: %w", err))
	}
	return nil
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(data)
	}
	address := c.base + wire.Prefix + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", c.agent)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, c.unreachable(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.refused(resp)
}

// refused reads a problem. What is no problem document did not come from a Capri server.
func (c *Client) refused(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, wire.MaxBody))
	e := &Error{Status: resp.StatusCode}
	if json.Unmarshal(data, &e.Problem) != nil || e.Problem.Status == 0 {
		return c.unreachable(fmt.Errorf("it answered %s, which no Capri server says", resp.Status))
	}
	if e.Problem.Detail == "" {
		e.Problem.Detail = e.Problem.Title
	}
	return e
}

func (c *Client) unreachable(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // its text repeats the address
	}
	return capri.Unavailable("no Capri server at %s: %v; start one (capri standalone), or name it with --server or CAPRI_SERVER", c.base, err)
}

// path joins the parts of a path, each escaped.
func path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}
