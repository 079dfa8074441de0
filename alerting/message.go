package alerting

import (
	"context"

	"capri"
)

// The channels that the rules know (seed 002 §1.10.3.1). A webhook is a channel of its own, under the name that the
// configuration gives it; no rule names it.
const (
	Phone = "phone"
	SMS   = "sms"
	Mail  = "mail"
)

// Message is what one address is sent.
type Message struct {
	Key      string // the same at each try, so that a channel that can may drop what it has sent already
	Incident int64
	To       string // a mail address or a phone number; of a webhook: nothing
	Name     string // whose it is; may be empty
	Level    capri.Level
	Stage    Stage
	Subject  string // one line; of SMS and phone: nothing
	Text     string // all of it as plain text; of an SMS at most one segment, of a phone call what is spoken
	HTML     string // of a mail, beside Text; may be empty
	Link     string // where it can be looked at; may be empty
}

// Stage is where an incident stands as it is told of.
type Stage string

const (
	New       Stage = "new"
	Again     Stage = "again"     // it goes on
	Escalated Stage = "escalated" // nobody has acknowledged it
	Over      Stage = "over"
	Digest    Stage = "digest" // of many at once
	Notice    Stage = "notice" // not of trouble: a batch has ended, and its owner asked to be told
	Test      Stage = "test"
)

// Sender sends messages by one channel. It is safe for concurrent use.
type Sender interface {
	// Send hands a message over, within ctx's time. nil: somebody else has taken it. A *Refusal is for good.
	Send(ctx context.Context, m Message) error
}

// Refusal is an answer that another try will not change: an address that does not exist, a message that is too long.
type Refusal struct{ Reason string } //nolint:errname // it is an answer that came, and no fault

func (r *Refusal) Error() string { return r.Reason }
