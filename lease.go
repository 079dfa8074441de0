package capri

import "strings"

// Epoch numbers the grants of one service lease; it only grows.
type Epoch int64

// Lease is the right to run a service, as granted: every write transaction of the service proves that Epoch
// is still the newest.
type Lease struct {
	Service string
	Holder  string
	Epoch   Epoch
}

// ServiceLeases are the rows of capri_service_lock, in the order of a batch's way. Services that must not run at once
// share one: there is one placer (dispatch, reschedule) and one judge of attempts (lost-nodes, zombie). The rows are
// made by the migration and never by a master: a row that vanished and came back would begin its epochs anew, and a
// master that slept through it would hold a valid one.
var ServiceLeases = []string{"generate", "dependency", "quality", "dispatch", "campaign", "timeout", "attempts", "monitor", "bigtask", "cleanup", "alert"}

// ServiceName is a service as people name it, with the lease that it runs under.
type ServiceName struct{ Name, Lease string }

// Services are the names of `capri service list` and `capri service trigger`, in the order of a batch's way.
var Services = []ServiceName{
	{"generate", "generate"}, {"dependency", "dependency"}, {"quality", "quality"}, {"dispatch", "dispatch"}, {"reschedule", "dispatch"}, {"campaign", "campaign"},
	{"timeout", "timeout"}, {"lost-nodes", "attempts"}, {"zombie", "attempts"}, {"monitor", "monitor"}, {"bigtask", "bigtask"}, {"cleanup", "cleanup"}, {"alert", "alert"},
}

// ServiceNames lists them for a message.
func ServiceNames() string {
	names := make([]string, len(Services))
	for i, s := range Services {
		names[i] = s.Name
	}
	return strings.Join(names, " ")
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
