package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/emersion/go-smtp"
)

// post is a mail server and the gateways of SMS and phone.
type post struct {
	t       *testing.T
	address string
	server  *smtp.Server
	http    *httptest.Server

	mu    sync.Mutex
	mails map[string][]string // by receiver: the subjects
	calls map[string][]string // by "sms +1": the texts
}

func newPost(t *testing.T) *post {
	p := &post{t: t, address: "127.0.0.1:0", mails: map[string][]string{}, calls: map[string][]string{}}
	p.open()
	p.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct{ To, Text string }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Errorf("a gateway was told %v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		key := strings.Trim(r.URL.Path, "/") + " " + m.To
		p.calls[key] = append(p.calls[key], m.Text)
	}))
	t.Cleanup(func() {
		p.shut()
		p.http.Close()
	})
	return p
}

// open lets the mail server answer, at the same address as before.
func (p *post) open() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.address = l.Addr().String()
	p.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{post: p}, nil }))
	go p.server.Serve(l)
}

// shut takes it away.
func (p *post) shut() { p.server.Close() }

func (p *post) mailsTo(receiver string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.mails[receiver], "\n")
}

func (p *post) callsTo(key string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[key]
}

type session struct {
	post *post
	to   []string
}

func (s *session) Mail(string, *smtp.MailOptions) error      { return nil }
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error { s.to = append(s.to, to); return nil }
func (s *session) Reset()                                    { s.to = nil }
func (s *session) Logout() error                             { return nil }

func (s *session) Data(r io.Reader) error {
	m, err := mail.ReadMessage(r)
	if err != nil {
		return err
	}
	s.post.mu.Lock()
	defer s.post.mu.Unlock()
	for _, to := range s.to {
		s.post.mails[to] = append(s.post.mails[to], m.Header.Get("Subject"))
	}
	return nil
}

// configured is an installation that sends by a post, with an admin on duty and two owners.
func (in *installation) configured(p *post) {
	in.t.Helper()
	file := filepath.Join(in.home, "gateways.yaml")
	text := fmt.Sprintf("gateways:\n- {name: sms, preset: generic-sms, url: %[1]q}\n- {name: phone, preset: generic-phone, url: %[2]q}\n", p.http.URL+"/sms", p.http.URL+"/phone")
	duty := filepath.Join(in.home, "duty.yaml")
	for name, content := range map[string]string{file: text, duty: "rotas:\n- {department: \"\", primary: {people: [ops], start: 2020-01-06}}\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			in.t.Fatal(err)
		}
	}
	in.stop()
	in.env = append(in.env, "CAPRI_ALERTING_MAIL_SERVER="+p.address, "CAPRI_ALERTING_MAIL_TLS=none", "CAPRI_ALERTING_MAIL_FROM=capri@example.org", "CAPRI_ALERTING_GATEWAYS_FILE="+file)
	in.start()
	in.capri("department", "set", "dw").ok()
	in.capri("user", "set", "ops", "--mail", "ops@example.org", "--phone", "+1", "--admin").ok()
	in.capri("user", "set", "alice", "--mail", "alice@example.org", "--phone", "+2", "--department", "dw").ok()
	in.capri("duty", "set", duty).ok()
}

func TestAlerts_reach_people_although_the_mail_server_is_away_and_capri_is_killed(t *testing.T) {
	each(t, 8, func(t *testing.T, in *installation) {
		p := newPost(t)
		in.configured(p)
		in.apply(`tasks:
  - {name: first, owner: alice, period: manual, priority: 5, retry: {failed: 0}, job: {command: "echo no luck >&2; exit 3"}}
  - {name: second, owner: alice, period: manual, priority: 5, retry: {failed: 0}, job: {command: "exit 4"}}
  - {name: good, owner: alice, period: manual, job: {command: "true"}, alert: {notify_on: [success]}}
`)
		arrives := func(receiver, subject string) {
			t.Helper()
			wait(t, patience, func() string {
				if strings.Contains(p.mailsTo(receiver), subject) {
					return ""
				}
				return fmt.Sprintf("a mail to %s about %q; there are %q", receiver, subject, p.mailsTo(receiver))
			})
		}
		in.capri("execute", "first").ok()
		arrives("alice@example.org", "first")
		in.capri("execute", "good").ok()
		arrives("alice@example.org", "Notice: good")

		// The mail server goes away, and with it, at any moment, Capri.
		p.shut()
		in.capri("execute", "second").ok()
		in.ended("second", "failed")
		in.capri("alert", "raise", "the disk array is degraded", "--level", "severe").ok()
		wait(t, patience, func() string {
			if len(p.callsTo("phone +1")) > 0 && len(p.callsTo("sms +1")) > 0 {
				return ""
			}
			return "a call and an SMS, which need no mail server"
		})
		in.parts[0].signal(syscall.SIGKILL)
		for _, other := range in.parts[1:] {
			other.stop()
		}
		in.start()
		p.open()
		arrives("alice@example.org", "second")
		arrives("ops@example.org", "disk array")
		for _, text := range p.callsTo("phone +1") {
			if !strings.Contains(text, "disk array") {
				t.Errorf("somebody was called because of %q", text)
			}
		}

		// Everything is in the account, and what was said can be acknowledged.
		var incidents []struct {
			ID    int64
			Title string
		}
		in.capri("alert", "list", "-o", "json").json(&incidents)
		for _, i := range incidents {
			if !strings.Contains(i.Title, "disk array") {
				continue
			}
			in.capri("alert", "show", fmt.Sprint(i.ID)).ends(0, "primary duty of the system")
			in.capri("alert", "ack", fmt.Sprint(i.ID)).ok()
			in.capri("alert", "list").ends(0, "with ")
		}
		in.capri("alert", "test", "sms", "--to", "+3").ok()
		if got := p.callsTo("sms +3"); len(got) != 1 {
			t.Errorf("a test sent %q", got)
		}
		in.capri("alert", "test", "mail", "--to", "nobody at all").ends(1, "not sent by mail")
		in.stop()
	})
}
