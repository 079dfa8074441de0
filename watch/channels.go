package watch

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"net/url"
	"os"
	"strings"
	"time"

	"gopkg.in/gomail.v2"
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
	letter.SetHeader("To", m.To...)
	letter.SetHeader("Subject", subject(msg))
	letter.SetDateHeader("Date", msg.At)
	letter.SetBody("text/plain", text(msg))
	// gomail composes; its own transport knows neither time limits nor a TLS that is required. It also writes the
	// transport's error into a text, so that is taken from here.
	var failed error
	err := gomail.Send(gomail.SendFunc(func(from string, to []string, body io.WriterTo) error {
		failed = m.deliver(ctx, from, to, body)
		return failed
	}), letter)
	if failed != nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("send a mail by %s: %w", m.Server, err)
	}
	return nil
}

// deliver speaks SMTP within ctx's time: a server that accepts and stays silent costs no more than that.
func (m Mail) deliver(ctx context.Context, from string, to []string, body io.WriterTo) error {
	host, _, err := net.SplitHostPort(m.Server)
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", m.Server)
	if err != nil {
		return err
	}
	defer conn.Close()
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return err
		}
	}
	raw := conn
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	secure := &tls.Config{ServerName: host, RootCAs: m.roots, MinVersion: tls.VersionTLS12}
	if m.TLS == "tls" {
		conn = tls.Client(conn, secure)
	}
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return err
	}
	if name, err := os.Hostname(); err == nil && !strings.ContainsAny(name, " \r\n") {
		if err := c.Hello(name); err != nil {
			return err
		}
	}
	if m.TLS == "starttls" {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return errors.New("it does not offer STARTTLS, which watch.mail_tls: starttls requires")
		}
		if err := c.StartTLS(secure); err != nil {
			return err
		}
	}
	if m.User != "" {
		if err := c.Auth(smtp.PlainAuth("", m.User, m.Password, host)); err != nil { // it refuses to without TLS
			return err
		}
	}
	if err := c.Mail(from); err != nil {
		return err
	}
	for _, address := range to {
		if err := c.Rcpt(address); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := body.WriteTo(w); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_ = c.Quit() // the server has taken the mail: a lost farewell is no reason to send it twice
	return nil
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
