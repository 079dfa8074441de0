package wire

import (
	"time"

	"capri"
)

// Incident is alerts of one cause, as people are told of them.
type Incident struct {
	ID        int64         `json:"id"`
	Level     string        `json:"level"`
	Kind      string        `json:"kind"`
	Title     string        `json:"title"`
	Cause     string        `json:"cause"`
	Task      string        `json:"task"`
	BatchID   capri.BatchID `json:"batch_id"`
	Alerts    int           `json:"alerts"`
	OpenedAt  time.Time     `json:"opened_at"`
	LastAt    time.Time     `json:"last_at"`
	NextAt    *time.Time    `json:"next_at"`
	AckedAt   *time.Time    `json:"acked_at"`
	AckedBy   string        `json:"acked_by"`
	Silenced  string        `json:"silenced"`
	ClosedAt  *time.Time    `json:"closed_at"`
	ClosedWhy string        `json:"closed_why"`
}

// IncidentDetail is one incident with its first alerts and everybody who was told.
type IncidentDetail struct {
	Incident
	First    []Alert    `json:"first_alerts"`
	Messages []Delivery `json:"messages"`
}

// Delivery is one message to one address.
type Delivery struct {
	ID        int64      `json:"id"`
	Stage     string     `json:"stage"`
	Channel   string     `json:"channel"`
	Person    string     `json:"person"`
	Address   string     `json:"address"`
	Why       string     `json:"why"`
	State     string     `json:"state"`
	Tries     int        `json:"tries"`
	NextAt    *time.Time `json:"next_at"`
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Error     string     `json:"error"`
	Receipt   string     `json:"receipt" doc:"what the channel calls it"`
}

// NewAlert is an alert that somebody raises.
type NewAlert struct {
	Level string `json:"level" enum:"attention,important,severe"`
	Title string `json:"title"`
	Text  string `json:"text,omitempty" required:"false"`
	Key   string `json:"key,omitempty" required:"false" doc:"the same again within the hour is the same alert; default: the title"`
	Task  string `json:"task,omitempty" required:"false" doc:"whose people are told; default: admins"`
	Node  string `json:"node,omitempty" maxLength:"128" doc:"of which node it is; left out with a worker's key: its own, and it may speak of no other"`
}

// Silence keeps people from being told.
type Silence struct {
	ID        int64      `json:"id,omitempty" required:"false"`
	Task      string     `json:"task,omitempty" required:"false" doc:"a name, or a pattern with *"`
	Group     string     `json:"group,omitempty" required:"false" doc:"a name, or a pattern with *"`
	Kind      string     `json:"kind,omitempty" required:"false" doc:"of alerts, such as output_timeout"`
	Reason    string     `json:"reason"`
	Until     string     `json:"until"`
	CreatedBy string     `json:"created_by,omitempty" required:"false"`
	CreatedAt *time.Time `json:"created_at,omitempty" required:"false"`
}

// ChannelTest asks for a message by a channel, to see whether it arrives.
type ChannelTest struct {
	Channel string `json:"channel" doc:"mail, sms, phone, or the name of a webhook"`
	To      string `json:"to,omitempty" required:"false" doc:"a mail address or phone number; of a webhook: nothing"`
}

// ChannelTestResult is what was said.
type ChannelTestResult struct {
	Channel      string `json:"channel"`
	Sent         bool   `json:"sent"`
	Error        string `json:"error"`
	Conversation string `json:"conversation"`
}
