//go:build failpoint

package alert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/alerting"
	"capri/alerting/channel"
	"capri/conf"
	"capri/internal/failpoint"
	"capri/services"
	"capri/sql/store"
)

// The process of a leader, which a failpoint ends, is this test binary, started again with what it is to do here.
const envLeader = "CAPRI_TEST_ALERT_LEADER"

// leader is what it is told.
type leader struct {
	Path, DSN string // of the database
	Now       capri.Instant
	Mail      string // the address of the server
}

func init() {
	asLeader = func() bool {
		told := os.Getenv(envLeader)
		if told != "" {
			lead(told)
		}
		return told != ""
	}
}

// end is what a leader's process does when something fails.
type end struct{}

func (end) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format, args...) }
func (end) FailNow()                          { os.Exit(1) }

func lead(told string) {
	var t end
	var l leader
	require.NoError(t, json.Unmarshal([]byte(told), &l))
	ctx := context.Background()
	s, err := store.Open(ctx, store.Options{Path: l.Path, DSN: l.DSN, Now: func() capri.Instant { return l.Now }})
	require.NoError(t, err)
	defer s.Close()
	c, err := conf.Load("none", false, map[string]string{"alerting.mail_server": l.Mail, "alerting.mail_tls": "none", "alerting.mail_from": "capri@example.org"})
	require.NoError(t, err)
	senders, err := channel.FromConfig(c)
	require.NoError(t, err)
	filing := &Filing{Store: s, People: PeopleOf(s)}
	sending := &Sending{Store: s, Channel: alerting.Mail, People: PeopleOf(s), Zone: time.UTC, Log: slog.New(slog.DiscardHandler), Limits: Limits{Retries: 3, Parallel: 2},
		Compose: func(_ string, f alerting.Facts) alerting.Message {
			return alerting.Message{Subject: f.Title, Text: strings.Join(append([]string{f.Title}, f.Others...), "\n")}
		}}
	sending.Send = func(ctx context.Context, m alerting.Message) (string, error) {
		return channel.Send(ctx, senders[alerting.Mail], m)
	}
	locks, err := s.Locks(ctx)
	require.NoError(t, err)
	var lease capri.Lease
	for _, lock := range locks {
		if lock.Service == "alert" {
			lease, _, err = s.AcquireLease(ctx, "alert", "test", lock)
			require.NoError(t, err)
		}
	}
	for range 6 {
		for _, service := range []services.Service{filing, sending} {
			_, err := service.Run(ctx, services.Turn{Now: l.Now, Lease: lease})
			require.NoError(t, err)
		}
	}
}

// inbox is an SMTP server that numbers what it takes.
type inbox struct {
	mu    sync.Mutex
	mails []letter
}

type letter struct{ to, id, text string }

func (b *inbox) NewSession(*smtp.Conn) (smtp.Session, error) { return &delivery{inbox: b}, nil }

// delivery is one connection.
type delivery struct {
	*inbox
	to string
}

func (d *delivery) Reset()                                    {}
func (d *delivery) Logout() error                             { return nil }
func (d *delivery) Mail(string, *smtp.MailOptions) error      { return nil }
func (d *delivery) Rcpt(to string, _ *smtp.RcptOptions) error { d.to = to; return nil }
func (d *delivery) Data(r io.Reader) error {
	m, err := mail.ReadMessage(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mails = append(d.mails, letter{d.to, m.Header.Get("Message-ID"), string(text)})
	return &smtp.SMTPError{Code: 250, EnhancedCode: smtp.EnhancedCode{2, 0, 0}, Message: fmt.Sprintf("queued as <%d>", len(d.mails)-1)}
}

// A leader may end at each step of an alert's way, and before and after each COMMIT of it. Whoever takes over does the
// rest: each message arrives, and one that arrives twice has the same Message-ID.
func TestA_crash_at_any_step_of_delivery_loses_no_message(t *testing.T) {
	each(t, func(w *world) {
		t := w.T
		box := &inbox{}
		server := smtp.NewServer(box)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go server.Serve(l) //nolint:errcheck // until Close
		t.Cleanup(func() { server.Close() })
		w.Write(func(tx *store.Tx) error {
			return errors.Join(tx.SaveUser(store.User{Name: "ops", Mail: "ops@x.org", Enabled: true, Admin: true}), tx.SaveUser(store.User{Name: "pat", Mail: "pat@x.org", Enabled: true, Admin: true}),
				tx.SaveUser(store.User{Name: "alice", Mail: "alice@x.org", Enabled: true}))
		})
		task := w.Task(t, func(s *capri.Spec) { s.Owner, s.Alert = "alice", capri.AlertRules{OwnerOnly: true} })
		rules := filepath.Join(t.TempDir(), "rules")
		run := func(rule string) int {
			require.NoError(t, os.WriteFile(rules, []byte(rule), 0o600))
			told, err := json.Marshal(leader{w.Options.Path, w.Options.DSN, w.Clock.Now(), l.Addr().String()})
			require.NoError(t, err)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envLeader+"="+string(told), "CAPRI_FAILPOINT_FILE="+rules)
			out, err := cmd.CombinedOutput()
			if err != nil {
				require.Equal(t, failpoint.ExitCode, cmd.ProcessState.ExitCode(), "%s: %s", rule, out)
			}
			return cmd.ProcessState.ExitCode()
		}
		for _, p := range []failpoint.Point{failpoint.AlertTaken, failpoint.AlertFiled, failpoint.AlertComposed, failpoint.AlertSent, failpoint.AlertNoted, failpoint.BeforeCommit, failpoint.AfterCommit} {
			crashes := 0
			for ; crashes < 100; crashes++ {
				rule := fmt.Sprintf("%s exit skip=%d", p, crashes)
				// Two digests, and a message by itself.
				alerts := make([]capri.Alert, 12)
				for i := range alerts {
					alerts[i] = capri.Alert{Key: fmt.Sprintf("raised:%s %d", rule, i), Level: capri.Attention, Kind: "raised", Title: fmt.Sprintf("%s, alert %d.", rule, i)}
				}
				w.raise(append(alerts, capri.Alert{Key: "own:" + rule, Level: capri.Severe, Kind: "own " + rule, Task: task.ID, Title: rule + ", of alice."})...)
				before := len(box.mails)
				died := run(rule) != 0
				require.Zero(t, run(""), "the next leader")
				w.accounted()
				require.Equal(t, 0, w.Count("alert_delivery WHERE state <> ?", int(store.Sent)), rule)
				received := box.mails[before:]
				w.arrived(rule, box.mails)
				ids := map[string]bool{}
				for _, m := range received {
					ids[m.to+" "+m.id] = true
				}
				require.Len(t, ids, 3, "%s: a double is known by its Message-ID", rule)
				if p == failpoint.AlertSent && died {
					require.Greater(t, len(received), len(ids), "%s: what was sent and not noted is sent again", rule)
				}
				if !died {
					break
				}
			}
			require.Positive(t, crashes, "%s was never passed", p)
			t.Logf("%s: %d crashes", p, crashes)
		}
	})
}

// arrived checks for each message of alerts with that title that the mail by which it was sent was taken, and tells of it.
func (w *world) arrived(title string, mails []letter) {
	w.T.Helper()
	n := 0
	for _, i := range w.incidents(false) {
		if !strings.HasPrefix(i.Title, title+",") {
			continue
		}
		for _, d := range w.deliveries(i.ID) {
			var at int
			_, err := fmt.Sscanf(d.Receipt[strings.Index(d.Receipt, "<"):], "<%d>", &at)
			require.NoError(w.T, err, d.Receipt)
			require.Equal(w.T, d.Address, mails[at].to)
			require.Contains(w.T, mails[at].text, i.Title)
			n++
		}
	}
	require.Equal(w.T, 12*2+1, n)
}
