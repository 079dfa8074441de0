package watch

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"gopkg.in/gomail.v2"

	channels "capri/alerting/channel" // watch has a word channel of its own
)

// Webhook posts messages as JSON documents.
func Webhook(address string) Channel {
	// Redirects are not followed: they would hand the message, and the key in the address, to somebody else.
	c := &http.Client{Timeout: lookLimit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return Channel{Name: "webhook", Send: func(ctx context.Context, m Message) error {
		body, err := json.Marshal(m)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("call the webhook: %w", withoutAddress(err))
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(req)
		if err != nil {
			return fmt.Errorf("call the webhook: %w", withoutAddress(err))
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
		if resp.StatusCode < 200 || resp.StatusCode > 299 {
			return fmt.Errorf("the webhook answers %s", resp.Status)
		}
		return nil
	}}
}

// withoutAddress keeps the key that a webhook's address holds out of the log.
func withoutAddress(err error) error {
	if u, ok := err.(*url.Error); ok { //nolint:errorlint // as net/http returns it
		return u.Err
	}
	return err
}

// Mail is one SMTP server and who gets its mails.
type Mail struct {
	Server         string // host:port
	TLS            string // none, starttls (required), tls
	From           string
	To             []string
	User, Password string

	roots *x509.CertPool // nil: the machine's
}

// Channel sends messages as mails.
func (m Mail) Channel() Channel { return Channel{Name: "mail", Send: m.send} }

func (m Mail) send(ctx context.Context, msg Message) error {
	letter := gomail.NewMessage()
	letter.SetHeader("From", m.From)
	letter.SetHeader("To", slices.Clone(m.To)...) // it encodes them in place
	letter.SetHeader("Subject", subject(msg))
	letter.SetDateHeader("Date", msg.At)
	letter.SetBody("text/plain", text(msg))
	server := channels.SMTP{Address: m.Server, TLS: m.TLS, User: m.User, Password: m.Password, Roots: m.roots}
	return server.Deliver(ctx, m.From, m.To, letter) // gomail composes; its own transport knows neither time limits nor a TLS that is required
}

func subject(m Message) string {
	bad, over := 0, 0
	for _, i := range m.Items {
		if i.State == Over {
			over++
		} else {
			bad++
		}
	}
	what := m.Items[0].Check
	if len(m.Items) > 1 {
		what = fmt.Sprintf("%s and %d more", what, len(m.Items)-1)
	}
	switch {
	case bad == 0:
		return "[capri watch] over: " + what
	case over == 0:
		return "[capri watch] SILENT: " + what
	}
	return "[capri watch] changed: " + what
}

func text(m Message) string {
	words := map[string]string{Wrong: "SILENT", StillWrong: "STILL SILENT", Over: "over"}
	var b strings.Builder
	for _, i := range m.Items {
		fmt.Fprintf(&b, "%s: %s, since %s\n    %s\n", words[i.State], i.Check, i.Since.UTC().Format(time.RFC3339), i.Detail)
	}
	fmt.Fprintf(&b, "\nSeen from %s at %s.\n", m.Host, m.At.UTC().Format(time.RFC3339))
	return b.String()
}
