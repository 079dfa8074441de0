package capri

// Epoch numbers the grants of one service lease; it only grows.
type Epoch int64

// Lease is the right to run a service, as granted: every write transaction of the service proves that Epoch
// is still the newest.
type Lease struct {
	Service string
	Holder  string
	Epoch   Epoch
}

// Level of an alert (seed 002 §1.10.3.2.1) and how it travels later.
type Level int

const (
	Attention Level = 1 // 关注: mail to admins
	Important Level = 2 // 重要: SMS to duty, mail to admins
	Severe    Level = 3 // 严重: phone and SMS to duty, mail to admins
)

func (l Level) String() string { return name([]string{"", "attention", "important", "severe"}, int(l)) }

// Alert is a row of the outbox, written in the transaction of the change that caused it. Key makes it one
// alert however often the same thing is seen.
type Alert struct {
	Key   string
	Level Level
	Kind  string // "generate_failed", "batch_failed" …
	Task  TaskID // 0: it concerns admins
	Batch BatchID
	Title string
	Text  string
}
