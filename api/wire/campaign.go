package wire

import (
	"encoding/json"
	"time"

	"capri"
)

// Campaign is a set of batches that somebody wants run: a rerun, its cascade, or a cold start.
type Campaign struct {
	ID          capri.CampaignID `json:"id"`
	Kind        string           `json:"kind" enum:"rerun,cold_start"`
	State       string           `json:"state" enum:"previewed,creating,running,paused,cancelling,done,cancelled,refused" doc:"refused: something had changed since the preview, at the last moment, and all of it was undone"`
	Target      string           `json:"target"`
	Request     json.RawMessage  `json:"request" doc:"as it was asked for"`
	Who         string           `json:"who"`
	Reason      string           `json:"reason"`
	Limit       int              `json:"limit" doc:"how many batches at once; 0: no limit"`
	Order       string           `json:"order" enum:"oldest,newest" doc:"which marks go first, where both may"`
	Size        int              `json:"size" doc:"how many items it has"`
	Hours       float64          `json:"hours" doc:"what it costs, from history"`
	UnknownCost int              `json:"unknown_cost" doc:"items of which no cost is known; they count as nothing"`
	Message     string           `json:"message" doc:"what it waits for; how it ended"`
	CreatedAt   *time.Time       `json:"created_at"`
	StartedAt   *time.Time       `json:"started_at"`
	ReleasedAt  *time.Time       `json:"released_at" doc:"since when all of its runs exist"`
	FinishedAt  *time.Time       `json:"finished_at"`
}

// CampaignDetail is a campaign with how far it has come.
type CampaignDetail struct {
	Campaign
	Actions  map[string]int          `json:"actions" doc:"how many items of each action, and how many were dropped"`
	Estimate *capri.CampaignEstimate `json:"estimate" doc:"what it takes by itself, as it was when it was previewed, changed or run; null: it is too old for one"`
	Progress CampaignProgress        `json:"progress"`
}

// CampaignProgress counts what runs in a campaign.
type CampaignProgress struct {
	Total    int `json:"total" doc:"items that run, or ran"`
	ToMake   int `json:"to_make" doc:"whose run does not exist yet"`
	Waiting  int `json:"waiting" doc:"that wait for conditions"`
	Ready    int `json:"ready" doc:"that wait for their release, or for a place"`
	Running  int `json:"running"`
	Success  int `json:"success"`
	Failed   int `json:"failed"`
	Killed   int `json:"killed"`
	Skipped  int `json:"skipped"`
	Undone   int `json:"undone"`
	Finished int `json:"finished" doc:"all that have ended or were undone"`
}

// CampaignPlan is a campaign with the first of its items. Made is what it makes, 0 in a preview.
type CampaignPlan struct {
	Campaign
	Actions  map[string]int          `json:"actions" doc:"how many items of each action"`
	Estimate *capri.CampaignEstimate `json:"estimate" doc:"what it takes by itself"`
	Made     int                     `json:"made" doc:"new batches and new runs, once it has been done; 0 in a preview"`
	Items    []CampaignItem          `json:"items" doc:"the first ten thousand; /campaigns/{id}/items has all"`
}

// CampaignItem is what a campaign does with one batch_no.
type CampaignItem struct {
	Seq          int           `json:"seq" doc:"the order in which they can run"`
	Task         string        `json:"task"`
	BatchNo      capri.BatchNo `json:"batch_no"`
	ScheduleTime *time.Time    `json:"schedule_time" doc:"null where the task is refused as a whole"`
	DataStart    *time.Time    `json:"data_start"`
	DataEnd      *time.Time    `json:"data_end"`
	Action       string        `json:"action" enum:"new,new_run,kill_first,left_waiting,in_the_way,left_alone,exists,not_in_definition,disabled,refused"`
	Reason       string        `json:"reason" doc:"of the action"`
	Why          string        `json:"why" doc:"why it is in"`
	Dropped      bool          `json:"dropped"`
	State        string        `json:"state" enum:"planned,claimed,held_back,released,ended,undone"`
	OldBatchID   capri.BatchID `json:"old_batch_id" doc:"the run that counted when it was previewed; 0: none"`
	BatchID      capri.BatchID `json:"batch_id" doc:"what runs for it; 0: nothing yet"`
	BatchState   string        `json:"batch_state,omitempty"`
	FinishState  string        `json:"finish_state"`
	Minutes      *int          `json:"minutes" doc:"what it is expected to take; null: not known"`
}

// CampaignRun says how a previewed campaign is to run; what is left out stays as it was previewed.
type CampaignRun struct {
	Limit *int   `json:"limit,omitempty" minimum:"0" maximum:"1000000"`
	Order string `json:"order,omitempty" enum:"oldest,newest"`
}

// CampaignDrop takes items out of a preview.
type CampaignDrop struct {
	Items []string `json:"items" minItems:"1" maxItems:"10000" doc:"task, or task:batch_no"`
}

// Dropped is how many items were taken out.
type Dropped struct {
	Dropped int `json:"dropped"`
}

// CampaignChange pauses, resumes or cancels.
type CampaignChange struct {
	Reason string `json:"reason,omitempty" maxLength:"1000"`
	Kill   bool   `json:"kill,omitempty" doc:"cancel: and kill what runs"`
}

// CampaignLimit changes how many batches of a campaign run at once.
type CampaignLimit struct {
	Limit int `json:"limit" minimum:"0" maximum:"1000000"`
}
