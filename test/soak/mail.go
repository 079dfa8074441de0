package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/mail"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// mailbox is the mail server of the run. It notes what it takes and when, calls each mail by its number, so that the
// account of a message leads to its arrival, and misbehaves where a fault says so.
type mailbox struct {
	server *smtp.Server
	link   *link // the masters' way to it

	mu    sync.Mutex
	mails []arrival
	mood  mood
}

// arrival is one mail that was taken whole.
type arrival struct {
	at int64  // real epoch milliseconds
	id string // the Message-ID, the same for the same message
}

// mood is how a server answers for a mail that it has been given.
type mood int

const (
	takes mood = iota
	putsOff
	vanishes // it has taken the mail, and the connection ends before it says so
)

func newMailbox(ctx context.Context) (*mailbox, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &mailbox{}
	b.server = smtp.NewServer(b)
	b.server.ErrorLog = quiet{} // what it says of connections that faults have ended
	go b.server.Serve(l)        //nolint:errcheck // until it is closed
	b.link, err = newLink("mail", "127.0.0.1", l.Addr().String())
	return b, err
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

func (b *mailbox) be(m mood) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mood = m
}

// NewSession begins one connection.
func (b *mailbox) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &session{mailbox: b, conn: c.Conn()}, nil
}

type session struct {
	*mailbox
	conn net.Conn
}

func (*session) Reset()                               {}
func (*session) Logout() error                        { return nil }
func (*session) Mail(string, *smtp.MailOptions) error { return nil }
func (*session) Rcpt(string, *smtp.RcptOptions) error { return nil }

// Data takes a mail.
func (s *session) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m, err := mail.ReadMessage(bytes.NewReader(text))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mood == putsOff {
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "try later"}
	}
	s.mails = append(s.mails, arrival{time.Now().UnixMilli(), m.Header.Get("Message-ID")})
	if s.mood == vanishes {
		s.conn.Close()
		return errors.New("gone")
	}
	return &smtp.SMTPError{Code: 250, EnhancedCode: smtp.EnhancedCode{2, 0, 0}, Message: fmt.Sprintf("queued as %d", len(s.mails)-1)}
}

func (b *mailbox) close() {
	b.server.Close()
	_ = b.link.cut() // it is the end
}

// telling is what the report says of alerts that leave.
type telling struct {
	Timeouts figures `json:"timeout_alert_leaves"` // due → its mail has been taken
	Attached int     `json:"timeouts_of_known_incidents"`
	Mails    int     `json:"mails"`
	Doubles  int     `json:"doubles_by_key"`
	GivenUp  int     `json:"given_up"`
	Expired  int     `json:"expired"`
	Lost     int     `json:"neither_delivered_nor_accounted_for"`
}

func (t telling) String() string {
	return fmt.Sprintf("%d mails taken, %d of them again under their key; %d messages given up, %d expired; %d alerts neither delivered nor accounted for", t.Mails, t.Doubles, t.GivenUp, t.Expired, t.Lost)
}

// mailed are messages by mail; the others have no channel here, and are in the account as such.
const mailed = "d.channel = 'mail'"

// awaitTold waits until each alert raised before an instant of business time is in an incident, and each message of before
// has an end. It gives what is left.
func (c *cluster) awaitTold(ctx context.Context, before int64, within time.Duration) (left int, err error) {
	for deadline := time.Now().Add(within); ; pause(ctx, 300*time.Millisecond) {
		err = c.db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM alert WHERE incident_id = 0 AND created_at < ?) +
			(SELECT COUNT(*) FROM alert_delivery WHERE state = 0 AND created_at < ?)`, before, before).Scan(&left)
		if err == nil && left == 0 || ctx.Err() != nil || time.Now().After(deadline) {
			return left, err
		}
	}
}

var queued = regexp.MustCompile(`queued as (\d+)`)

// limitsOf reads a task's time-outs from its definition.
func limitsOf(all []task) map[string]map[string]int64 {
	limits := map[string]map[string]int64{}
	for _, t := range all {
		limits[t.name] = map[string]int64{}
		for _, kind := range []string{"dependency_timeout", "output_timeout"} {
			if _, rest, ok := strings.Cut(t.yaml, kind+"_minutes: "); ok {
				n, _ := strconv.ParseInt(rest[:strings.IndexAny(rest, ",}")], 10, 64) // we wrote it
				limits[t.name][kind] = n
			}
		}
	}
	return limits
}

// leaves is how long after it was due a time-out's mail was there. The service looks at a fixed second of each minute; that
// wait is of the clock on the wall, and counted as it is. What comes after it happens in real time, however fast the wall's clock runs.
func (c *cluster) leaves(due, arrived int64) int64 {
	const minute, second = 60_000, 10_000
	look := (due-second+minute-1)/minute*minute + second
	return look - due + arrived - c.real(look)
}

// told reads what became of alerts that were raised before an instant of business time.
func (r *report) told(ctx context.Context, c *cluster, all []task, before int64) error {
	t := &r.Telling
	mails := c.mail.mails
	first := map[string]int64{} // of a Message-ID
	for _, m := range mails {
		if at, ok := first[m.id]; !ok || m.at < at {
			first[m.id] = m.at
		}
	}
	t.Mails, t.Doubles = len(mails), len(mails)-len(first)
	ask := func(text string, row func(scan func(...any) error) error, args ...any) error {
		rows, err := c.db.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := row(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	lost := map[int64]bool{}      // incidents of which a message has no end, or none that is true
	arrived := map[int64]int64{}  // by incident: the first mail about it
	accounted := map[int64]bool{} // incidents with messages, or with a reason for none
	err := ask("SELECT d.incident_id, d.state, d.receipt, "+mailed+" FROM alert_delivery d WHERE d.created_at < ?", func(scan func(...any) error) error {
		var incident int64
		var state int
		var receipt string
		var byMail bool
		if err := scan(&incident, &state, &receipt, &byMail); err != nil {
			return err
		}
		accounted[incident] = true
		switch state {
		case 0:
			lost[incident] = true
		case 1:
			n := len(mails)
			if found := queued.FindStringSubmatch(receipt); found != nil {
				n, _ = strconv.Atoi(found[1])
			}
			if n >= len(mails) {
				lost[incident] = true
				return nil
			}
			if at := first[mails[n].id]; arrived[incident] == 0 || at < arrived[incident] {
				arrived[incident] = at
			}
		case 2:
			if byMail {
				t.GivenUp++
			}
		case 3:
			t.Expired++
		}
		return nil
	}, before)
	if err != nil {
		return err
	}
	limits := limitsOf(all)
	opened := map[int64]bool{} // incidents whose first alert was seen
	var times []int64
	err = ask(`SELECT a.kind, a.incident_id, COALESCE(i.silenced, ''), COALESCE(t.name, ''), COALESCE(CASE w.origin WHEN 0 THEN w.schedule_time ELSE w.create_time END, 0)
		FROM alert a LEFT JOIN incident i ON i.id = a.incident_id LEFT JOIN task t ON t.id = a.task_id LEFT JOIN task_work w ON w.id = a.batch_id
		WHERE a.created_at < ? ORDER BY a.id`, func(scan func(...any) error) error {
		var kind, silenced, name string
		var incident, from int64
		if err := scan(&kind, &incident, &silenced, &name, &from); err != nil {
			return err
		}
		if incident == 0 || lost[incident] || !accounted[incident] && silenced == "" {
			t.Lost++
			return nil
		}
		known := opened[incident]
		opened[incident] = true
		minutes := limits[name][kind]
		switch at := arrived[incident]; {
		case minutes == 0 || from == 0 || at == 0:
		case known:
			t.Attached++
		default:
			times = append(times, c.leaves(from+minutes*60_000, at))
		}
		return nil
	}, before)
	t.Timeouts = figuresOf(times)
	if t.Lost > 0 {
		r.wrong("%d alerts were neither delivered nor accounted for", t.Lost)
	}
	return err
}
