package capri

// CampaignID identifies a campaign.
type CampaignID int64

// CampaignKind is what somebody asked for.
type CampaignKind int

const (
	CampaignRerun     CampaignKind = 1
	CampaignColdStart CampaignKind = 2
)

// CampaignState is where a campaign is on its way:
//
//	planning ─▶ previewed ─▶ creating ─▶ running ⇄ paused ─▶ done
//	                            │           │         │
//	                            └───────────┴─────────┴──▶ cancelling ─▶ cancelled, or refused
type CampaignState int

const (
	CampaignPlanning   CampaignState = 0 // its items are being written
	CampaignPreviewed  CampaignState = 1
	CampaignCreating   CampaignState = 2 // its set is blocked, runs and revocations are made
	CampaignRunning    CampaignState = 3
	CampaignPaused     CampaignState = 4
	CampaignCancelling CampaignState = 5 // what has not started is being undone
	CampaignDone       CampaignState = 6
	CampaignCancelled  CampaignState = 7
	CampaignRefused    CampaignState = 8 // something had changed since the preview, at the last moment: all of it was undone
)

// ItemAction says what a campaign does with a batch_no.
type ItemAction int

const (
	ItemNew             ItemAction = 1  // there is no batch: its first run is made
	ItemNewRun          ItemAction = 2  // its latest run has finished: the next one is made
	ItemKillFirst       ItemAction = 3  // it runs: it is killed, then the next run is made
	ItemLeftWaiting     ItemAction = 4  // it has not started: it waits again, and runs once
	ItemInTheWay        ItemAction = 5  // it runs, or belongs to another campaign: nothing runs until it is dropped
	ItemLeftAlone       ItemAction = 6  // it has not finished, and is not touched
	ItemExists          ItemAction = 7  // it has finished, and that is enough
	ItemNotInDefinition ItemAction = 8  // there is a batch, and the definition has no such interval any more
	ItemDisabled        ItemAction = 9  // its task is disabled: a run would never start
	ItemRefused         ItemAction = 10 // it cannot be made
)

// ItemState is where an item of a campaign is.
type ItemState int

const (
	ItemPlanned  ItemState = 0
	ItemClaimed  ItemState = 1 // no other campaign may have it
	ItemHeldBack ItemState = 2 // its batch exists, and does not start
	ItemReleased ItemState = 3
	ItemEnded    ItemState = 4
	ItemUndone   ItemState = 5
)

var (
	campaignKinds  = []string{"", "rerun", "cold_start"}
	campaignStates = []string{"planning", "previewed", "creating", "running", "paused", "cancelling", "done", "cancelled", "refused"}
	itemActions    = []string{"", "new", "new_run", "kill_first", "left_waiting", "in_the_way", "left_alone", "exists", "not_in_definition", "disabled", "refused"}
	itemStates     = []string{"planned", "claimed", "held_back", "released", "ended", "undone"}
)

func (k CampaignKind) String() string  { return name(campaignKinds, int(k)) }
func (s CampaignState) String() string { return name(campaignStates, int(s)) }
func (a ItemAction) String() string    { return name(itemActions, int(a)) }
func (s ItemState) String() string     { return name(itemStates, int(s)) }

// Runs tells whether something runs for such an item.
func (a ItemAction) Runs() bool { return a >= ItemNew && a <= ItemLeftWaiting }

// ParseCampaignState reads a state's name.
func ParseCampaignState(s string) (CampaignState, bool) {
	for i, n := range campaignStates {
		if n == s {
			return CampaignState(i), true
		}
	}
	return 0, false
}

// Campaign is a set of batches that somebody wants run.
type Campaign struct {
	ID          CampaignID
	Kind        CampaignKind
	State       CampaignState
	Target      string // what it is about, for people
	Request     string // as it was asked for, JSON
	Who, Reason string
	Limit       int  // of batches at once; 0: none
	NewestFirst bool // in the order of marks; the oldest else
	Items       int
	Minutes     int64  // what it costs, from history
	Unknown     int    // items of which no cost is known
	KillRunning bool   // cancelled with everything that runs
	Refused     bool   // it is being undone, since something had changed
	Message     string // what it waits for; how it ended

	CreatedAt, StartedAt, ReleasedAt, FinishedAt Instant
}

// CampaignEstimate is what a campaign takes by itself, where nothing else runs: each of its batches starts as soon as what it
// waits for in the campaign has ended and its task, its pool and the campaign have room. What costs nobody knows what counts
// as nothing.
type CampaignEstimate struct {
	Batches      int            `json:"batches" doc:"that run"`
	ChainMinutes int            `json:"chain_minutes" doc:"of the longest chain of batches that wait for one another: it takes so long however much there is to run on"`
	ChainBatches int            `json:"chain_batches" doc:"how many they are"`
	Chain        []string       `json:"chain" doc:"them, as task batch_no; of a long one the first and the last few"`
	EndsMinutes  int            `json:"ends_minutes" doc:"after its start the last one ends"`
	Limit        int            `json:"limit" doc:"how many batches at once that is with; 0: no limit"`
	Slots        int            `json:"slots" doc:"of live nodes that take work, in the pools that it uses"`
	NoRoom       int            `json:"no_room" doc:"batches that need more slots than their pool has"`
	Stuck        int            `json:"stuck" doc:"batches that wait for such"`
	Load         []CampaignLoad `json:"load" doc:"slots in use over time; without what has no room"`
}

// CampaignLoad is how many slots a campaign uses on the mean during a stretch of time.
type CampaignLoad struct {
	From    int     `json:"from_minutes" doc:"after the campaign's start"`
	Minutes int     `json:"minutes" doc:"how long the stretch is"`
	Slots   float64 `json:"slots"`
}

// CampaignItem is what a campaign does with one batch_no.
type CampaignItem struct {
	Campaign    CampaignID
	Seq         int // topological: whatever it waits for in the same campaign has a smaller one
	State       ItemState
	Action      ItemAction
	Dropped     bool
	Task        TaskID
	TaskVersion int
	Interval    // batch_no, data, mark
	Priority    int
	Via         int    // the item that brought it in; -1: it was asked for
	Why         string // it is in
	Note        string // what is to be known beside

	Old       BatchID // the run that counted when it was previewed; 0: there was none
	OldRunNo  int
	OldState  State
	OldFinish FinishState

	Batch       BatchID // what runs for it; 0: nothing yet
	FinishState FinishState
	Minutes     int // what it is expected to take; -1: not known
}
