// Package wire is what goes over the wire between the API and its clients: one Go type per JSON document,
// shared by both sides so that they cannot differ. Keys are the column names of the tables plus `task`; a task
// has the names of its task file. Times are RFC 3339 in the business zone, null where not set; states by name.
//
// It imports the words (package capri) and the standard library only: a client that wants to speak to Capri
// takes this package and nothing else.
package wire

import (
	"encoding/json"
	"time"

	"capri"
)

// Prefix stands before every path of the API.
const Prefix = "/api/v1"

// MaxBody is the largest request that the server reads.
const MaxBody = 16 << 20

// HeaderIdempotencyKey names a POST, so that it may be sent again and is done once.
const HeaderIdempotencyKey = "Idempotency-Key"

// Headers that come with a piece of a log.
const (
	HeaderNextOffset = "Capri-Next-Offset" // where the next piece begins
	HeaderComplete   = "Capri-Complete"    // "true": no more will come
)

// Page is a part of a list that can grow.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next" doc:"the cursor of the next page; empty: this was the last"`
}

// At writes an instant in the business zone; nil where it is not set.
func At(i capri.Instant, zone *time.Location) *time.Time {
	if i == 0 {
		return nil
	}
	t := i.In(zone)
	return &t
}

// Status is what the server says about itself and the work in hand.
type Status struct {
	Version  string    `json:"version"`
	Zone     string    `json:"zone"`
	Now      time.Time `json:"now" doc:"the database's clock, in the business zone"`
	Database string    `json:"database" doc:"sqlite or mysql"`
	Nodes    int       `json:"nodes" doc:"nodes that are not lost"`
	Waiting  int       `json:"waiting"`
	Ready    int       `json:"ready" doc:"those of the waiting whose conditions are met and that nobody holds"`
	Running  int       `json:"running" doc:"assigned or running"`
	Paused   bool      `json:"paused" doc:"nothing new is dispatched"`

	MaxRunning int    `json:"max_running" doc:"-1 no limit, 0 none at all"`
	Stops      []Stop `json:"stops" doc:"pauses and open breakers"`
}

// ProblemType stands before the kind of a problem.
const ProblemType = "urn:capri:problem:"

// Problem is an error (RFC 9457).
type Problem struct {
	Type    string       `json:"type" doc:"urn:capri:problem: and its kind, which does not change"`
	Title   string       `json:"title"`
	Status  int          `json:"status"`
	Detail  string       `json:"detail"`
	Errors  []FieldError `json:"errors,omitempty"`
	Changes []Change     `json:"changes,omitempty" doc:"what somebody else has changed since (412)"`
	Names   []string     `json:"names,omitempty" doc:"what stands in the way: the tasks that would be deleted"`

	RequestID string `json:"request_id,omitempty" doc:"as in X-Request-Id: the server's log and the log of actions have it"`
}

// FieldError is one thing that is wrong with the input.
type FieldError struct {
	Field string `json:"field"`
	Value string `json:"value,omitempty"`
	Want  string `json:"want,omitempty"`
	Where string `json:"where,omitempty"`
}

// Action is a row of the log of actions.
type Action struct {
	ID         int64           `json:"id"`
	At         time.Time       `json:"at"`
	Who        string          `json:"who"`
	Kind       string          `json:"kind" doc:"of caller: user, app, worker, job; link of a message; empty: Capri itself"`
	Address    string          `json:"address" doc:"from where"`
	RequestID  string          `json:"request_id"`
	Action     string          `json:"action"`
	Target     string          `json:"target"`
	Task       string          `json:"task" doc:"where it is about one"`
	Department string          `json:"department" doc:"whose it was, where it is about no task"`
	Detail     string          `json:"detail"`
	Before     json.RawMessage `json:"before" doc:"the fields that differ, as they were; null: it was not there. Secrets are ***"`
	After      json.RawMessage `json:"after" doc:"as they are; null: it is gone"`
}

// Alert is a row of the outbox.
type Alert struct {
	ID         int64         `json:"id"`
	Level      string        `json:"level"`
	Kind       string        `json:"kind"`
	Task       string        `json:"task"`
	TaskID     capri.TaskID  `json:"task_id"`
	BatchID    capri.BatchID `json:"batch_id"`
	Title      string        `json:"title"`
	Body       string        `json:"body"`
	CreatedAt  time.Time     `json:"created_at"`
	IncidentID int64         `json:"incident_id"` // 0: nobody has looked at it yet
}
