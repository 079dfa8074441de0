package wire

import "time"

// SystemDuty stands for the system where a path or a query names a department. No department can have this name.
const SystemDuty = "~"

// Rota is who is on duty for a department by turns, as the duty file writes it.
type Rota struct {
	Department string    `json:"department" yaml:"department,omitempty" required:"false" doc:"left out: the system's"`
	Timezone   string    `json:"timezone,omitempty" yaml:"timezone,omitempty" doc:"by whose clock shifts change hands; left out: the business zone"`
	HandOver   string    `json:"hand_over,omitempty" yaml:"hand_over,omitempty" doc:"the time of day at which they do; left out: 09:00"`
	Primary    *Rotation `json:"primary,omitempty" yaml:"primary,omitempty"`
	Secondary  *Rotation `json:"secondary,omitempty" yaml:"secondary,omitempty" doc:"left out: nobody is wanted there"`
	Broken     string    `json:"broken,omitempty" yaml:"broken,omitempty" doc:"in answers: why the stored rota cannot be read"`
}

// Rotation is people who take turns, or weeks one by one.
type Rotation struct {
	People []string   `json:"people,omitempty" yaml:"people,omitempty,flow" doc:"in their order"`
	Days   int        `json:"days,omitempty" yaml:"days,omitempty" doc:"of a shift; left out: 7"`
	Start  string     `json:"start,omitempty" yaml:"start,omitempty" doc:"the date on which the first of the people begins"`
	Weeks  []DutyWeek `json:"weeks,omitempty" yaml:"weeks,omitempty" doc:"instead of people"`
}

// DutyWeek is seven days from the hand-over of a date on.
type DutyWeek struct {
	From string `json:"from" yaml:"from" doc:"a date"`
	User string `json:"user" yaml:"user"`
}

// SetDuty asks to make or replace the rotas of some departments: all or none.
type SetDuty struct {
	Rotas  []Rota `json:"rotas"`
	DryRun bool   `json:"dry_run,omitempty" doc:"say what it would come to, and change nothing"`
}

// DutyNow is who is on duty now; an empty name is nobody.
type DutyNow struct {
	Department   string     `json:"department" doc:"empty: the system's"`
	Primary      string     `json:"primary"`
	Secondary    string     `json:"secondary"`
	NextHandOver *time.Time `json:"next_hand_over" doc:"null: never"`
	Broken       string     `json:"broken,omitempty" doc:"why the stored rota cannot be read: only overrides count"`
}

// DutyPlan is who is on duty when.
type DutyPlan struct {
	Department string      `json:"department" doc:"empty: the system's"`
	Shifts     []DutyShift `json:"shifts"`
	Holes      []DutyHole  `json:"holes" doc:"when an alert would reach nobody, or fewer than it should"`
}

// DutyShift is a time in which one person fills a place. It is whole, also where it began before the range.
type DutyShift struct {
	Place    string     `json:"place" enum:"primary,secondary"`
	User     string     `json:"user" doc:"empty: nobody"`
	From     *time.Time `json:"from" doc:"null: it has no beginning"`
	To       *time.Time `json:"to" doc:"excluded; null: it has no end"`
	Override int64      `json:"override,omitempty" doc:"the override that makes it so"`
	Reason   string     `json:"reason,omitempty" doc:"of the override"`
	Hole     string     `json:"hole,omitempty" doc:"why an alert would not reach him, in a part of the shift at least"`
}

// DutyHole is a time in which an alert would reach nobody, or fewer than it should.
type DutyHole struct {
	Place string     `json:"place" doc:"primary or secondary; empty: both"`
	User  string     `json:"user" doc:"empty: nobody"`
	Why   string     `json:"why"`
	From  *time.Time `json:"from" doc:"null: it has no beginning"`
	To    *time.Time `json:"to" doc:"excluded; null: it has no end"`
}

// DutyOverride is somebody on duty instead, for a while.
type DutyOverride struct {
	ID         int64      `json:"id"`
	Department string     `json:"department" doc:"empty: the system's"`
	Place      string     `json:"place"`
	User       string     `json:"user"`
	From       *time.Time `json:"from"`
	To         *time.Time `json:"to" doc:"excluded"`
	Reason     string     `json:"reason"`
	CreatedBy  string     `json:"created_by"`
	CreatedAt  *time.Time `json:"created_at"`
}

// NewDutyOverride asks for one. Of those that overlap the one that was made last counts.
type NewDutyOverride struct {
	Department string `json:"department" required:"false" doc:"left out: the system's"`
	Place      string `json:"place" enum:"primary,secondary"`
	User       string `json:"user"`
	From       string `json:"from" doc:"business time, or with an offset"`
	To         string `json:"to" doc:"excluded; a bare date is the end of that day"`
	Reason     string `json:"reason,omitempty" maxLength:"255"`
}

// AlertGrant is somebody's right to be told of a task's alerts.
type AlertGrant struct {
	User      string     `json:"user" required:"false"`
	SMS       bool       `json:"sms" required:"false"`
	Mail      bool       `json:"mail" required:"false"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
}
