package alerting

import (
	"time"

	"capri"
)

// Facts is what is known of an incident as people are told of it.
type Facts struct {
	Incident int64
	Stage    Stage
	Level    capri.Level
	Kind     string // "batch_failed", "dependency_timeout" …, as in docs/alerts.md
	Title    string // of the first alert, in English, one line
	Text     string // its detail; may hold anything, job output too
	Since    capri.Instant
	Now      capri.Instant
	Zone     *time.Location // in which times are written

	Task, Owner, Department string // of whom it is; empty: it concerns the system
	Batch                   capri.BatchID
	BatchNo                 string

	Alerts      int      // of this incident so far
	Others      []string // titles of some of them, without the first
	Waiting     int      // batches that wait for it
	Urgent      int      // of them, those whose deadline is before UrgentBy
	UrgentBy    capri.Instant
	OnDuty      []string // names; of an escalation: who did not acknowledge
	Why         string   // the rule that chose the receiver, such as "department dw: enabled users"
	Link        string   // of the console
	Acknowledge string   // a link that acknowledges it, signed; empty: there is none
}
