package channel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/mail"
	"strings"
	"time"
	"unicode"

	"gopkg.in/gomail.v2"

	"capri/alerting"
)

// mailer sends messages as mails.
type mailer struct {
	smtp  SMTP
	from  string
	limit time.Duration
	now   func() time.Time
}

func (s *mailer) Send(ctx context.Context, m alerting.Message) error {
	if a, err := mail.ParseAddress(m.To); err != nil || a.Address != m.To {
		return &alerting.Refusal{Reason: fmt.Sprintf("%q is no mail address", printable(m.To))}
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.smtp.Deliver(ctx, s.from, []string{m.To}, s.letter(m))
}

// letter composes m. Mail programs show its HTML where there is one, and its text otherwise.
func (s *mailer) letter(m alerting.Message) *gomail.Message {
	letter := gomail.NewMessage()
	letter.SetHeader("From", s.from)
	letter.SetAddressHeader("To", m.To, headerLine(m.Name))
	letter.SetHeader("Subject", headerLine(m.Subject))
	letter.SetDateHeader("Date", s.now())
	if m.Key != "" {
		letter.SetHeader("Message-ID", messageID(m.Key, s.from))
	}
	letter.SetHeader("Auto-Submitted", "auto-generated") // so that no absence note answers it
	letter.SetBody("text/plain", strings.ToValidUTF8(m.Text, "\uFFFD"))
	if m.HTML != "" {
		letter.AddAlternative("text/html", strings.ToValidUTF8(m.HTML, "\uFFFD"))
	}
	return letter
}

// messageID is the same for the same key: who gets a mail twice can see that it is one.
func messageID(key, from string) string {
	sum := sha256.Sum256([]byte(key))
	_, domain, _ := strings.Cut(from, "@")
	return "<" + hex.EncodeToString(sum[:16]) + "@" + domain + ">"
}

// headerLine makes one line of s, so that it cannot begin another header.
func headerLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}
