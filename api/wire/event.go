package wire

import (
	"encoding/json"
	"time"

	"capri"
)

// Kinds of events of the stream.
const (
	EventBatch   = "batch"   // BatchEvent: a batch has changed
	EventNode    = "node"    // NodeEvent: a node came, left, was lost, drained, or is short of something
	EventService = "service" // ServiceEvent: a service has another leader, or dispatch was paused or resumed
	EventReset   = "reset"   // too much has happened since Last-Event-ID: read the lists anew
)

// BatchEvent is a change of a batch.
type BatchEvent struct {
	ID          int64         `json:"id" doc:"of the history; one may come twice after a connection was lost"`
	At          time.Time     `json:"at"`
	BatchID     capri.BatchID `json:"batch_id"`
	Task        string        `json:"task"`
	BatchNo     capri.BatchNo `json:"batch_no"`
	RunNo       int           `json:"run_no"`
	State       string        `json:"state"`
	FinishState string        `json:"finish_state"`
	Attempt     int           `json:"attempt"`
	Node        string        `json:"node"`
	Held        bool          `json:"held"`
	KillRequest bool          `json:"kill_request"`
	Who         string        `json:"who"`
	Why         string        `json:"why"`
}

// NodeEvent is how a node stands now.
type NodeEvent struct {
	Host    string `json:"host"`
	State   string `json:"state" doc:"up, lost, stopped, draining, short, removed"`
	ShortOf string `json:"short_of"`
}

// ServiceEvent is how a service lease stands now.
type ServiceEvent struct {
	Service string `json:"service"`
	Leader  string `json:"leader"`
	Epoch   int64  `json:"epoch"`
	Paused  bool   `json:"paused"`
	Reason  string `json:"reason"`
}

// StreamEvent is one event, as a client reads it.
type StreamEvent struct {
	ID   string          `json:"id" doc:"to resume from; empty: as the one before"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}
