package channel

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"capri/alerting"
	"capri/conf"
)

// What a script's function may answer besides lines.
const (
	stall = "stall" // nothing more, and the connection stays
	drop  = "drop"  // the connection is closed
)

// script serves SMTP as answer says; the greeting is the answer to "", the end of the mail is ".". It gives the address
// and what was said to it.
func script(t *testing.T, host string, answer func(line string) string) (address string, heard func() []string) {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	require.NoError(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	var lines []string
	serve := func(conn net.Conn) {
		defer conn.Close()
		r := bufio.NewReader(conn)
		data := false
		for line := ""; ; {
			if !data || line == "." {
				said, silent := strings.CutSuffix(answer(line), stall)
				if said == drop {
					return
				}
				if data = strings.HasPrefix(said, "354"); said != "" {
					_, _ = io.WriteString(conn, strings.ReplaceAll(said, "\n", "\r\n")+"\r\n")
				}
				if silent {
					_, _ = io.Copy(io.Discard, r)
					return
				}
			}
			var err error
			if line, err = r.ReadString('\n'); err != nil {
				return
			}
			line = strings.TrimRight(line, "\r\n")
			mu.Lock()
			lines = append(lines, line)
			mu.Unlock()
		}
	}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String(), func() []string { mu.Lock(); defer mu.Unlock(); return lines }
}

// usual answers as servers do, but for what odd says of a line's first word.
func usual(odd map[string]string) func(string) string {
	return func(line string) string {
		verb, _, _ := strings.Cut(line, " ")
		if said, ok := odd[verb]; ok {
			return said
		}
		switch verb {
		case "":
			return "220-mail.example.org\n220 at your service"
		case "EHLO":
			return "250-mail.example.org\n250-8BITMIME\n250 SIZE 1000000"
		case "DATA":
			return "354 go on"
		case ".":
			return "250 2.0.0 Ok: queued as 4F3A"
		case "QUIT":
			return "221 bye"
		}
		return "250 ok"
	}
}

func mailTo(address, mode string) *mailer {
	return &mailer{smtp: SMTP{Address: address, TLS: mode}, from: "capri@example.org", limit: 20 * time.Second, now: func() time.Time { return noon }}
}

func TestARefusal_is_for_good_and_everything_else_can_be_tried_again(t *testing.T) {
	for _, c := range []struct {
		step  string
		final bool
	}{{"", false}, {"EHLO", false}, {"MAIL", true}, {"RCPT", true}, {"DATA", true}, {".", true}} {
		for code, answer := range map[byte]string{'4': "451-try\n451 later", '5': "550-no\n550 never"} {
			odd := map[string]string{c.step: answer}
			if c.step == "EHLO" {
				odd["HELO"] = answer
			}
			address, _ := script(t, "127.0.0.1", usual(odd))
			err := mailTo(address, "none").Send(t.Context(), told)
			require.ErrorContains(t, err, address)
			require.ErrorContains(t, err, answer[:3])
			var refusal *alerting.Refusal
			require.Equal(t, c.final && code == '5', errors.As(err, &refusal), "%q answered with %s: %v", c.step, answer, err)
		}
	}
}

func TestAServerThatDropsTheConnection_has_taken_the_mail_only_after_its_answer(t *testing.T) {
	for _, step := range []string{"", "EHLO", "MAIL", "RCPT", "DATA", "."} {
		address, _ := script(t, "127.0.0.1", usual(map[string]string{step: drop}))
		err := mailTo(address, "none").Send(t.Context(), told)
		require.Error(t, err, "dropped at %q", step)
		var refusal *alerting.Refusal
		require.NotErrorAs(t, err, &refusal, "dropped at %q", step)
	}
	address, _ := script(t, "127.0.0.1", usual(map[string]string{"QUIT": drop}))
	receipt, err := Send(t.Context(), mailTo(address, "none"), told)
	require.NoError(t, err, "it was answered for")
	require.Equal(t, "2.0.0 Ok: queued as 4F3A", receipt)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	require.ErrorContains(t, mailTo(l.Addr().String(), "none").Send(t.Context(), told), "refused")
}

func TestAServerThatStaysSilent_costs_no_more_than_the_time_limit(t *testing.T) {
	for _, step := range []string{"", "EHLO", "MAIL", "RCPT", "DATA", "."} {
		address, _ := script(t, "127.0.0.1", usual(map[string]string{step: stall}))
		s := mailTo(address, "none")
		s.limit = 100 * time.Millisecond
		require.ErrorIs(t, s.Send(t.Context(), told), context.DeadlineExceeded, "silent at %q", step)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		require.ErrorIs(t, mailTo(address, "none").Send(ctx, told), context.Canceled, "silent at %q", step)
	}
	address, _ := script(t, "127.0.0.1", usual(map[string]string{"QUIT": stall}))
	require.NoError(t, mailTo(address, "none").Send(t.Context(), told), "nobody waits for a farewell")

	for _, mode := range []string{"tls", "starttls"} { // no handshake
		address, _ := script(t, "127.0.0.1", func(line string) string {
			if mode == "tls" {
				return stall
			}
			return usual(map[string]string{"EHLO": "250-x\n250 STARTTLS", "STARTTLS": "220 go on" + stall})(line)
		})
		s := mailTo(address, mode)
		s.limit = 100 * time.Millisecond
		require.ErrorIs(t, s.Send(t.Context(), told), context.DeadlineExceeded, mode)
	}
	address, _ = script(t, "127.0.0.1", usual(map[string]string{"EHLO": "250-" + strings.Repeat("x", answersMost+10)}))
	require.Error(t, mailTo(address, "none").Send(t.Context(), told), "an answer without end")
}

func TestTLSThatIsRequired_is_not_done_without(t *testing.T) {
	address, heard := script(t, "127.0.0.1", usual(nil))
	require.ErrorContains(t, mailTo(address, "starttls").Send(t.Context(), told), "does not offer STARTTLS")
	require.ErrorContains(t, mailTo(address, "tls").Send(t.Context(), told), "TLS")
	require.NotContains(t, strings.Join(heard(), "\n"), "MAIL")

	address, heard = script(t, "127.0.0.1", usual(map[string]string{"EHLO": "250-x\n250 STARTTLS", "STARTTLS": "454 not now"}))
	require.ErrorContains(t, mailTo(address, "starttls").Send(t.Context(), told), "454")
	require.NotContains(t, strings.Join(heard(), "\n"), "MAIL")

	address, heard = script(t, "127.0.0.1", usual(map[string]string{"MAIL": "530 5.7.0 Must issue a STARTTLS command first"}))
	require.ErrorContains(t, mailTo(address, "none").Send(t.Context(), told), "STARTTLS", "the server demands it")
	require.NotContains(t, strings.Join(heard(), "\n"), "RCPT")
}

func TestAPassword_goes_only_over_TLS_or_to_this_machine(t *testing.T) {
	offer := usual(map[string]string{"EHLO": "250-x\n250 AUTH LOGIN PLAIN", "AUTH": "235 welcome"})
	address, heard := script(t, "127.0.0.2", offer)
	s := mailTo(address, "none")
	s.smtp.User, s.smtp.Password = "capri", "s3cret"
	require.ErrorContains(t, s.Send(t.Context(), told), "a password goes only over TLS")
	require.NotContains(t, strings.Join(heard(), "\n"), "AUTH")

	s.smtp.Address, heard = script(t, "127.0.0.1", offer)
	require.NoError(t, s.Send(t.Context(), told))
	require.Contains(t, heard(), "AUTH PLAIN AGNhcHJpAHMzY3JldA==")

	step := 0
	s.smtp.Address, heard = script(t, "127.0.0.1", func(line string) string {
		switch {
		case strings.HasPrefix(line, "EHLO"):
			return "250-x\n250 AUTH LOGIN"
		case step < 3 && line != "":
			step++
			return []string{"334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6", "235 welcome"}[step-1]
		}
		return usual(nil)(line)
	})
	require.NoError(t, s.Send(t.Context(), told))
	require.Equal(t, []string{"AUTH LOGIN", "Y2Fwcmk=", "czNjcmV0"}, heard()[1:4])

	s.smtp.Address, _ = script(t, "127.0.0.1", usual(nil))
	require.ErrorContains(t, s.Send(t.Context(), told), "neither AUTH PLAIN nor AUTH LOGIN")
	s.smtp.Address, _ = script(t, "127.0.0.1", usual(map[string]string{"EHLO": "250-x\n250 AUTH PLAIN", "AUTH": "535 no: AGNhcHJpAHMzY3JldA== is not s3cret"}))
	err := s.Send(t.Context(), told)
	require.ErrorContains(t, err, "535 no: **** is not ****")
	var refusal *alerting.Refusal
	require.NotErrorAs(t, err, &refusal, "a wrong password says nothing about the mail")
}

func TestAServerFromBeforeEHLO_is_spoken_to(t *testing.T) {
	address, heard := script(t, "127.0.0.1", usual(map[string]string{"EHLO": "500 what?"}))
	require.NoError(t, mailTo(address, "none").Send(t.Context(), told))
	require.True(t, strings.HasPrefix(heard()[1], "HELO "), heard()[1])
}

func TestAddresses_in_other_letters_need_a_server_that_takes_them(t *testing.T) {
	m := told
	m.To = "李雷@example.org"
	address, _ := script(t, "127.0.0.1", usual(nil))
	var refusal *alerting.Refusal
	require.ErrorAs(t, mailTo(address, "none").Send(t.Context(), m), &refusal)
	address, heard := script(t, "127.0.0.1", usual(map[string]string{"EHLO": "250-x\n250 SMTPUTF8"}))
	require.NoError(t, mailTo(address, "none").Send(t.Context(), m))
	require.Contains(t, heard(), "MAIL FROM:<capri@example.org> SMTPUTF8")
	require.Contains(t, heard(), "RCPT TO:<李雷@example.org>")
}

// postOffice is a real server.
type postOffice struct {
	mails chan posted
}

type posted struct {
	user, from string
	to         []string
	data       string
}

type counter struct {
	office *postOffice
	mail   posted
}

func (o *postOffice) NewSession(*smtp.Conn) (smtp.Session, error) { return &counter{office: o}, nil }

func (c *counter) AuthMechanisms() []string { return []string{sasl.Plain} }
func (c *counter) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "capri" || password != "s3cret" {
			return errors.New("no")
		}
		c.mail.user = user
		return nil
	}), nil
}
func (c *counter) Reset()        {}
func (c *counter) Logout() error { return nil }
func (c *counter) Mail(from string, _ *smtp.MailOptions) error {
	c.mail.from = from
	return nil
}

func (c *counter) Rcpt(to string, _ *smtp.RcptOptions) error {
	c.mail.to = append(c.mail.to, to)
	return nil
}

func (c *counter) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err == nil { // all of it came
		c.mail.data = string(data)
		c.office.mails <- c.mail
	}
	return err
}

// open starts the server. implicit: TLS from the first byte.
func open(t *testing.T, config *tls.Config, implicit bool) (*postOffice, string) {
	t.Helper()
	o := &postOffice{mails: make(chan posted, 10)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	s := smtp.NewServer(o)
	s.Domain, s.TLSConfig = "mail.example.org", config
	s.ErrorLog = log.New(io.Discard, "", 0)
	if implicit {
		l, s.TLSConfig = tls.NewListener(l, config), nil
	}
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Close(); served.Wait() })
	return o, address
}

// read takes a mail apart.
func read(t *testing.T, data string) (header mail.Header, parts map[string]string) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(data))
	require.NoError(t, err)
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	require.NoError(t, err)
	parts = map[string]string{}
	if kind == "text/plain" {
		body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
		require.NoError(t, err)
		parts[kind] = string(body)
		return m.Header, parts
	}
	require.Equal(t, "multipart/alternative", kind)
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := r.NextPart() // it undoes quoted-printable
		if errors.Is(err, io.EOF) {
			return m.Header, parts
		}
		require.NoError(t, err)
		body, err := io.ReadAll(p)
		require.NoError(t, err)
		parts[p.Header.Get("Content-Type")] = string(body)
	}
}

func TestAMail_arrives_as_it_was_written(t *testing.T) {
	cert, roots := certificate(t)
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	for mode, implicit := range map[string]bool{"starttls": false, "tls": true} {
		office, address := open(t, config, implicit)
		s := mailTo(address, mode)
		s.smtp.User, s.smtp.Password, s.smtp.Roots = "capri", "s3cret", roots
		require.NoError(t, s.Send(t.Context(), told))
		got := <-office.mails
		require.Equal(t, "capri", got.user)
		require.Equal(t, "capri@example.org", got.from)
		require.Equal(t, []string{told.To}, got.to)
		header, parts := read(t, got.data)
		decoder := mime.WordDecoder{}
		subject, err := decoder.DecodeHeader(header.Get("Subject"))
		require.NoError(t, err)
		require.Equal(t, told.Subject, subject)
		to, err := header.AddressList("To")
		require.NoError(t, err)
		require.Equal(t, []*mail.Address{{Name: told.Name, Address: told.To}}, to)
		require.Equal(t, map[string]string{"text/plain; charset=UTF-8": strings.ReplaceAll(told.Text, "\n", "\r\n"), "text/html; charset=UTF-8": told.HTML}, parts)
		require.Equal(t, "auto-generated", header.Get("Auto-Submitted"))
		date, err := header.Date()
		require.NoError(t, err)
		require.True(t, date.Equal(noon))
		require.Regexp(t, `^<[0-9a-f]{32}@example.org>$`, header.Get("Message-ID"))
		for line := range strings.Lines(got.data) {
			require.LessOrEqual(t, len(line), 1000, "longer lines are not allowed in mails")
		}

		require.NoError(t, s.Send(t.Context(), told))
		again, _ := read(t, (<-office.mails).data)
		require.Equal(t, header.Get("Message-ID"), again.Get("Message-ID"), "who gets it twice can see that it is one")
		other := told
		other.Key, other.HTML = "18-mail-1", ""
		require.NoError(t, s.Send(t.Context(), other))
		plain, parts := read(t, (<-office.mails).data)
		require.NotEqual(t, header.Get("Message-ID"), plain.Get("Message-ID"))
		require.Equal(t, strings.ReplaceAll(told.Text, "\n", "\r\n"), strings.TrimSuffix(parts["text/plain"], "\r\n"))

		s.smtp.Roots = nil
		require.ErrorContains(t, s.Send(t.Context(), told), "certificate", "nobody vouches for it")
		s.smtp.Roots, s.smtp.Password = roots, "wrong"
		require.ErrorContains(t, s.Send(t.Context(), told), "AUTH")
		require.Empty(t, office.mails)
	}
}

func TestNothingOfAMessage_begins_a_header_or_a_command(t *testing.T) {
	office, address := open(t, nil, false)
	s := mailTo(address, "none")
	m := told
	m.Subject, m.Name, m.Key = "a\r\nBcc: x@example.org\nX-Evil: 1\x00", "li\r\nBcc: y@example.org", "k>\r\nX-Evil: 2"
	m.Text = "a\r\n.\r\nMAIL FROM:<x@example.org>\r\n"
	require.NoError(t, s.Send(t.Context(), m))
	got := <-office.mails
	require.Equal(t, []string{told.To}, got.to)
	header, parts := read(t, got.data)
	require.Empty(t, header.Get("Bcc"))
	require.Empty(t, header.Get("X-Evil"))
	require.Equal(t, "a  Bcc: x@example.org X-Evil: 1", header.Get("Subject"))
	require.Equal(t, m.Text, parts["text/plain; charset=UTF-8"])

	var refusal *alerting.Refusal
	for _, to := range []string{"", "li", "a@example.org\r\nRCPT TO:<x@example.org>", "a@example.org>\r\nDATA", "a@example.org, b@example.org", "Li <a@example.org>", "<a@example.org>",
		"a b@example.org", `"a\"> b"@example.org`, "a@example.org\x00"} {
		m.To = to
		require.ErrorAs(t, s.Send(t.Context(), m), &refusal, "%q", to)
	}
	for _, to := range []string{"", "a@example.org\nDATA", "a>b@example.org", "a b@example.org"} {
		require.ErrorAs(t, s.smtp.Deliver(t.Context(), "c@example.org", []string{to}, strings.NewReader("x")), &refusal, "%q", to)
	}
	require.Empty(t, office.mails)
}

// brokenLetter fails in the middle.
type brokenLetter struct{}

func (brokenLetter) WriteTo(w io.Writer) (int64, error) {
	n, _ := io.WriteString(w, "Subject: half\r\n\r\nha")
	return int64(n), errors.New("out of words")
}

func TestHalfALetter_is_not_delivered(t *testing.T) {
	office, address := open(t, nil, false)
	require.ErrorContains(t, SMTP{Address: address, TLS: "none"}.Deliver(t.Context(), "c@example.org", []string{"a@example.org"}, brokenLetter{}), "out of words")
	require.NoError(t, SMTP{Address: address, TLS: "none"}.Deliver(t.Context(), "c@example.org", []string{"a@example.org"}, strings.NewReader("Subject: whole\r\n\r\n")))
	require.Contains(t, (<-office.mails).data, "whole")
	require.Empty(t, office.mails)
}

func TestTalk_shows_a_conversation_by_SMTP_without_its_secrets(t *testing.T) {
	cert, roots := certificate(t)
	_, address := open(t, &tls.Config{Certificates: []tls.Certificate{cert}}, false)
	s := mailTo(address, "starttls")
	s.smtp.User, s.smtp.Password, s.smtp.Roots = "capri", "s3cret", roots
	said, err := Talk(t.Context(), s, told)
	require.NoError(t, err)
	var verbs []string
	for line := range strings.Lines(said) {
		if word := strings.Fields(line); word[0] == ">" || word[0] == "*" {
			verbs = append(verbs, word[1])
		}
	}
	require.Equal(t, []string{"connected", "EHLO", "STARTTLS", "TLS", "EHLO", "AUTH", "MAIL", "RCPT", "DATA", "(the", ".", "QUIT", "taken"}, verbs)
	require.Contains(t, said, "> AUTH PLAIN ****\n< 235 ")
	require.Contains(t, said, "\n> RCPT TO:<li.lei@example.org>\n< 250 ")
	for _, secret := range []string{"s3cret", s.smtp.plain(), "czNjcmV0"} {
		require.NotContains(t, said, secret)
	}
	s.smtp.Password = "wrong"
	said, err = Talk(t.Context(), s, told)
	require.Error(t, err)
	require.True(t, strings.HasSuffix(said, "* "+err.Error()+"\n"), said)

	s.smtp.Address, _ = script(t, "127.0.0.1", usual(map[string]string{"": "220 \x1b[2Jhello \xff"}))
	s.smtp.TLS, s.smtp.User = "none", ""
	said, err = Talk(t.Context(), s, told)
	require.NoError(t, err)
	require.Contains(t, said, "< 220 ?[2Jhello ?\n", "a terminal may show it")
}

func TestAMessageWithoutAKey_is_not_taken_for_another(t *testing.T) {
	office, address := open(t, nil, false)
	m := told
	m.Key = ""
	require.NoError(t, mailTo(address, "none").Send(t.Context(), m))
	header, _ := read(t, (<-office.mails).data)
	require.Empty(t, header.Get("Message-ID"), "a server gives it one of its own")
}

func TestASender_sends_many_at_once(t *testing.T) {
	f := newFar(t)
	office, address := open(t, nil, false)
	hook, mail := one(t, sms(f.URL, "")), mailTo(address, "none")
	var all sync.WaitGroup
	wrong := make(chan error, 40)
	for i := range 20 {
		for _, s := range []alerting.Sender{hook, mail} {
			all.Go(func() {
				m := told
				m.Key = strconv.Itoa(i)
				said, err := Talk(t.Context(), s, m)
				if err == nil && strings.Count(said, "* connected to ")+strings.Count(said, "> POST ") != 1 {
					err = errors.New("two conversations in one: " + said)
				}
				wrong <- err
			})
		}
		if i%8 == 7 { // the office has room for ten
			all.Wait()
			for len(office.mails) > 0 {
				<-office.mails
			}
		}
	}
	all.Wait()
	for range 40 {
		require.NoError(t, <-wrong)
	}
	keys := map[string]bool{}
	for _, r := range f.got {
		keys[r.key] = true
	}
	require.Len(t, keys, 20)
}

func TestFromConfig_makes_what_is_configured_and_nothing_else(t *testing.T) {
	c, err := conf.Load("none", false, nil)
	require.NoError(t, err)
	senders, err := FromConfig(c)
	require.NoError(t, err)
	require.Empty(t, senders)
	require.Empty(t, LimitsFromConfig(c))

	office, address := open(t, nil, false)
	c, err = conf.Load("none", false, map[string]string{"alerting.mail_server": address, "alerting.mail_tls": "none", "alerting.mail_from": "capri@example.org", "alerting.mail_tries": "1"})
	require.NoError(t, err)
	senders, err = FromConfig(c)
	require.NoError(t, err)
	require.Len(t, senders, 1)
	require.Equal(t, map[string]conf.Limits{alerting.Mail: {Timeout: 10 * time.Second, Tries: 1, Parallel: 4}}, LimitsFromConfig(c))
	require.NoError(t, senders[alerting.Mail].Send(t.Context(), told))
	require.Equal(t, []string{told.To}, (<-office.mails).to)
}
