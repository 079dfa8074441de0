package quality

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// bodyMost bounds what is read of an answer: only its status counts, and its first words go into a message.
const bodyMost = 64 << 10

// Client gives the asking of the quality API at address, within a time limit for each question. token goes with it as
// a bearer token, where there is one.
func Client(address, token string, limit time.Duration) func(context.Context, Question) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = parallel
	// A redirect is refused, to whichever host: it would carry the token and the question somewhere that nobody
	// configured, and most redirects turn a POST into a GET, which asks nothing.
	c := &http.Client{Transport: transport, Timeout: limit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return func(ctx context.Context, q Question) error {
		body, err := json.Marshal(q)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("ask the quality API: %w", plain(err))
		}
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := c.Do(req)
		if err != nil {
			return fmt.Errorf("ask the quality API: %w", plain(err))
		}
		defer resp.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(resp.Body, bodyMost)) // what cannot be read is not said
		switch {
		case resp.StatusCode >= 200 && resp.StatusCode < 300:
			return nil
		case resp.StatusCode >= 300 && resp.StatusCode < 400:
			return fmt.Errorf("the quality API answers %s: redirects are not followed, set quality.url to where it is", resp.Status)
		}
		return fmt.Errorf("the quality API answers %s%s", resp.Status, firstWords(said))
	}
}

// plain takes the address off an error of package http: it may hold a password, and says nothing new.
func plain(err error) error {
	if u, ok := err.(*url.Error); ok { //nolint:errorlint // as net/http returns it
		return u.Err
	}
	return err
}

// firstWords of an answer fit on a line.
func firstWords(said []byte) string {
	words := strings.Join(strings.Fields(strings.ToValidUTF8(string(said), "?")), " ")
	if words == "" {
		return ""
	}
	if r := []rune(words); len(r) > 200 {
		words = string(r[:200]) + "…"
	}
	return ": " + words
}
