package channel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"capri/alerting"
)

// SMTP is a server that takes mails.
type SMTP struct {
	Address        string // HOST:PORT
	TLS            string // none, starttls (required, not merely tried), tls
	User, Password string // "": it asks for none

	Roots *x509.CertPool // who may vouch for it; nil: whom this machine trusts
}

const (
	answersMost = 1 << 20     // bytes of all answers of a server together
	farewell    = time.Second // for the answer to QUIT, which changes nothing any more
)

// Deliver hands a letter over within ctx's time: when ctx ends, the connection is closed. nil means that the server has
// answered for the whole letter; a connection that is lost before that is an error, so a letter may arrive twice and
// is never thought delivered when it is not. A refusal of the sender, of a receiver or of the letter with 5xx is a
// *alerting.Refusal; one receiver that is refused is one for all.
//
// The package net/smtp is not used, because it hides at which step a server stopped, and what was said under TLS.
func (s SMTP) Deliver(ctx context.Context, from string, to []string, letter io.WriterTo) error {
	d := &delivery{smtp: s, trace: traceOf(ctx), cover: newCover(s.Password, base64.StdEncoding.EncodeToString([]byte(s.Password)), s.plain())}
	err := d.deliver(ctx, from, to, letter)
	if err == nil {
		return nil
	}
	var answer *textproto.Error
	var refusal *alerting.Refusal
	switch {
	case errors.As(err, &refusal):
		err = &alerting.Refusal{Reason: fmt.Sprintf("send a mail by %s: %s", s.Address, refusal.Reason)}
	case errors.As(err, &answer):
		text := fmt.Sprintf("send a mail by %s: %s is answered with %d %s", s.Address, d.step, answer.Code, firstWords(d.cover.Replace(answer.Msg)))
		err = errors.New(text)
		if answer.Code >= 500 && slices.Contains([]string{"MAIL", "RCPT", "DATA", "the mail"}, d.step) {
			err = &alerting.Refusal{Reason: text}
		}
	default:
		if ctx.Err() != nil { // that is why the connection was closed
			err = context.Cause(ctx)
		}
		err = fmt.Errorf("send a mail by %s: %s: %w", s.Address, d.step, err)
	}
	d.trace.add("*", err.Error())
	return err
}

// plain is what AUTH PLAIN says.
func (s SMTP) plain() string {
	return base64.StdEncoding.EncodeToString([]byte("\x00" + s.User + "\x00" + s.Password))
}

// delivery is one connection to a server.
type delivery struct {
	smtp   SMTP
	trace  *trace
	cover  *strings.Replacer
	step   string // what we are at, for errors
	conn   net.Conn
	text   *textproto.Conn
	secure bool
	offers map[string]string // what EHLO listed, names in capitals
}

func (d *delivery) deliver(ctx context.Context, from string, to []string, letter io.WriterTo) error {
	d.step = "addresses"
	international := false
	for _, a := range append([]string{from}, to...) {
		if a == "" || strings.ContainsFunc(a, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '<' || r == '>' }) {
			return &alerting.Refusal{Reason: fmt.Sprintf("%q is no mail address", printable(a))}
		}
		international = international || strings.ContainsFunc(a, func(r rune) bool { return r > unicode.MaxASCII })
	}

	d.step = "connect"
	host, _, err := net.SplitHostPort(d.smtp.Address)
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", d.smtp.Address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	d.trace.add("*", "connected to "+conn.RemoteAddr().String())
	d.speakOver(conn)
	if d.smtp.TLS == "tls" {
		if err := d.encrypt(ctx, host); err != nil {
			return err
		}
	}
	d.step = "greeting"
	if _, err := d.answer(220); err != nil {
		return err
	}
	if err := d.hello(); err != nil {
		return err
	}
	if d.smtp.TLS == "starttls" {
		d.step = "STARTTLS"
		if _, offered := d.offers["STARTTLS"]; !offered {
			return errors.New("the server does not offer STARTTLS, which mail_tls: starttls requires")
		}
		if _, err := d.ask(220, "STARTTLS", "STARTTLS"); err != nil {
			return err
		}
		if err := d.encrypt(ctx, host); err != nil {
			return err
		}
		if err := d.hello(); err != nil { // what was said in the clear does not count any more
			return err
		}
	}
	if d.smtp.User != "" {
		if err := d.authenticate(host); err != nil {
			return err
		}
	}
	return d.hand(from, to, international, letter)
}

// speakOver goes on over conn. What the old one had sent ahead is dropped: under TLS it could be anybody's.
func (d *delivery) speakOver(conn net.Conn) {
	d.conn = conn
	d.text = textproto.NewConn(struct {
		io.Reader
		io.Writer
		io.Closer
	}{io.LimitReader(conn, answersMost), conn, conn})
}

func (d *delivery) encrypt(ctx context.Context, host string) error {
	d.step = "TLS"
	conn := tls.Client(d.conn, &tls.Config{ServerName: host, RootCAs: d.smtp.Roots, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	d.trace.add("*", tls.VersionName(conn.ConnectionState().Version))
	d.secure = true
	d.speakOver(conn)
	return nil
}

func (d *delivery) hello() error {
	name, err := os.Hostname()
	if err != nil || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		name = "localhost"
	}
	d.step, d.offers = "EHLO", map[string]string{}
	said, err := d.ask(250, "EHLO "+name, "EHLO "+name)
	var answer *textproto.Error
	if errors.As(err, &answer) && answer.Code >= 500 { // from before 1995: it offers nothing
		d.step = "HELO"
		_, err = d.ask(250, "HELO "+name, "HELO "+name)
		return err
	}
	for i, line := range strings.Split(said, "\n") {
		if i > 0 { // the first is its name
			key, value, _ := strings.Cut(line, " ")
			d.offers[strings.ToUpper(key)] = value
		}
	}
	return err
}

// authenticate says who we are: only under TLS, or to this machine itself.
func (d *delivery) authenticate(host string) error {
	d.step = "AUTH"
	if !d.secure && !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host) {
		return errors.New("a password goes only over TLS: set mail_tls to starttls or tls, or leave mail_user out")
	}
	methods := strings.Fields(strings.ToUpper(d.offers["AUTH"]))
	switch {
	case slices.Contains(methods, "PLAIN"):
		_, err := d.ask(235, "AUTH PLAIN "+d.smtp.plain(), "AUTH PLAIN "+covered)
		return err
	case slices.Contains(methods, "LOGIN"):
		if _, err := d.ask(334, "AUTH LOGIN", "AUTH LOGIN"); err != nil {
			return err
		}
		if _, err := d.ask(334, base64.StdEncoding.EncodeToString([]byte(d.smtp.User)), covered); err != nil {
			return err
		}
		_, err := d.ask(235, base64.StdEncoding.EncodeToString([]byte(d.smtp.Password)), covered)
		return err
	}
	return errors.New("the server offers neither AUTH PLAIN nor AUTH LOGIN here: leave mail_user out, or ask who runs it")
}

// hand gives the letter over.
func (d *delivery) hand(from string, to []string, international bool, letter io.WriterTo) error {
	d.step = "MAIL"
	line := "MAIL FROM:<" + from + ">"
	if international {
		if _, offered := d.offers["SMTPUTF8"]; !offered {
			return &alerting.Refusal{Reason: "the server takes only addresses in ASCII (it does not offer SMTPUTF8)"}
		}
		line += " SMTPUTF8"
	}
	if _, err := d.ask(250, line, line); err != nil {
		return err
	}
	d.step = "RCPT"
	for _, address := range to {
		line := "RCPT TO:<" + address + ">"
		if _, err := d.ask(25, line, line); err != nil {
			return err
		}
	}
	d.step = "DATA"
	if _, err := d.ask(354, "DATA", "DATA"); err != nil {
		return err
	}
	d.step = "the mail"
	w := d.text.DotWriter()
	n, err := letter.WriteTo(w)
	d.trace.add(">", fmt.Sprintf("(the mail, %d bytes)", n))
	if err != nil {
		return err // without the final dot, so that no half of it is delivered
	}
	d.trace.add(">", ".")
	if err := w.Close(); err != nil {
		return err
	}
	said, err := d.answer(250)
	if err != nil {
		return err
	}
	// It is the server's now: whatever happens to the farewell is no reason to send the mail again.
	d.trace.receipt = firstWords(d.cover.Replace(said))
	d.conn.SetDeadline(time.Now().Add(farewell))
	_, _ = d.ask(221, "QUIT", "QUIT")
	return nil
}

// ask says a line, of which a conversation shows shown, and reads the answer.
func (d *delivery) ask(want int, line, shown string) (string, error) {
	d.trace.add(">", shown)
	if err := d.text.PrintfLine("%s", line); err != nil {
		return "", err
	}
	return d.answer(want)
}

// answer reads an answer whose code begins with want.
func (d *delivery) answer(want int) (string, error) {
	code, said, err := d.text.ReadResponse(want)
	if code != 0 {
		for _, line := range strings.Split(said, "\n") {
			d.trace.add("<", fmt.Sprintf("%d %s", code, d.cover.Replace(line)))
		}
	}
	return said, err
}
