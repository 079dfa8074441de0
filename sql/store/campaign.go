package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	sq "github.com/Masterminds/squirrel"
	"golang.org/x/sync/errgroup"

	"capri"
)

// A campaign's rows, and what the service of that name does to them, step by step:
//
//	SaveCampaign ──▶ StartCampaign ──▶ ClaimItems ──▶ MakeItems ──▶ OpenCampaign ──▶ ReleaseItems ──▶ EndItems ──▶ CloseCampaign
//	 previewed         creating        set blocked    all runs       running                                         done
//	                                                                   HoldItems (paused)   UndoItems (cancelling)
//
// Each step takes some hundred items in one transaction, compares what they are, and may be taken again by anybody: what
// has been done is known by the items' states. Items move forward alone, so a step that finds none of its state is over.

// itemChunk is how many items one transaction moves; a quick one keeps SQLite's single writer free for others.
const itemChunk = 500

// claimedAtOnce is how many are claimed in one: mostly nothing but their own rows changes.
const claimedAtOnce = 2000

// madeAtOnce is how many are made in one: as many as generation makes, and pages that several of them change are written once.
const madeAtOnce = 1000

var campaignColumns = []string{"id", "kind", "state", "target", "request", "who", "reason", "batch_limit", "newest_first", "items", "minutes", "unknown", "kill_running",
	"refused", "message", "created_at", "started_at", "released_at", "finished_at"}

func scanCampaign(r *sql.Rows, more ...any) (c capri.Campaign, err error) {
	err = r.Scan(append([]any{&c.ID, &c.Kind, &c.State, &c.Target, &c.Request, &c.Who, &c.Reason, &c.Limit, &c.NewestFirst, &c.Items, &c.Minutes, &c.Unknown, &c.KillRunning,
		&c.Refused, &c.Message, &c.CreatedAt, instant{&c.StartedAt}, instant{&c.ReleasedAt}, instant{&c.FinishedAt}}, more...)...)
	return c, err
}

var itemColumns = []string{"i.campaign_id", "i.seq", "i.state", "i.action", "i.dropped", "i.task_id", "i.task_version", "i.batch_no", "i.mark", "i.data_start", "i.data_end", "i.priority", "i.via", "i.why", "i.note",
	"i.old_batch_id", "i.old_run_no", "i.old_state", "i.old_finish", "i.batch_id", "i.finish_state", "i.minutes"}

func scanItem(r *sql.Rows, more ...any) (i capri.CampaignItem, err error) {
	err = r.Scan(append([]any{&i.Campaign, &i.Seq, &i.State, &i.Action, &i.Dropped, &i.Task, &i.TaskVersion, &i.BatchNo, &i.Mark, &i.Start, &i.End, &i.Priority, &i.Via, &i.Why, &i.Note,
		&i.Old, &i.OldRunNo, &i.OldState, &i.OldFinish, &i.Batch, &i.FinishState, &i.Minutes}, more...)...)
	return i, err
}

// movedColumns are what a step has to know of an item, in the order of scanMoved: reading all of a hundred thousand costs as
// much as making a tenth of their batches.
var movedColumns = []string{"i.campaign_id", "i.seq", "i.action", "i.task_id", "i.task_version", "i.batch_no", "i.mark", "i.data_start", "i.data_end", "i.old_batch_id", "i.batch_id"}

func scanMoved(r *sql.Rows, i *capri.CampaignItem) error {
	return r.Scan(&i.Campaign, &i.Seq, &i.Action, &i.Task, &i.TaskVersion, &i.BatchNo, &i.Mark, &i.Start, &i.End, &i.Old, &i.Batch)
}

// savedAtOnce is how many items one transaction stores.
const savedAtOnce = 2000

// SaveCampaign stores a campaign with its items, in their order, and gives it its id. While the items are being written
// nobody sees it; one that is left in the middle is forgotten like an old preview.
func (s *Store) SaveCampaign(ctx context.Context, who string, c *capri.Campaign, e *capri.CampaignEstimate, items []capri.CampaignItem, note func(*Tx) error) error {
	id, err := s.reserve(ctx, "campaign", 1)
	if err != nil {
		return err
	}
	c.ID, c.Items, c.Who, c.State = capri.CampaignID(id), len(items), who, capri.CampaignPlanning
	parts := chunks(items, savedAtOnce)
	if len(parts) == 0 {
		parts = append(parts, nil)
	}
	last := len(parts) - 1
	save := func(n int) error {
		return s.Write(ctx, "save a campaign", who, func(tx *Tx) error {
			if n == 0 {
				c.CreatedAt = tx.Now
				if err := tx.insertCampaign(c, e); err != nil {
					return err
				}
			}
			if err := tx.insertItems(c.ID, n*savedAtOnce, parts[n]); err != nil || n < last {
				return err
			}
			if _, err := tx.exec(sq.Update("campaign").Set("state", int(capri.CampaignPreviewed)).Where(sq.Eq{"id": id})); err != nil {
				return err
			}
			return note(tx)
		})
	}
	// The first part makes the campaign and the last one shows it; those between are written beside each other.
	if err := save(0); err != nil {
		return err
	}
	if last > 0 {
		var eg errgroup.Group
		eg.SetLimit(s.d.Writers)
		for n := 1; n < last; n++ {
			eg.Go(func() error { return save(n) })
		}
		if err := eg.Wait(); err != nil {
			return err
		}
		if err := save(last); err != nil {
			return err
		}
	}
	c.State = capri.CampaignPreviewed
	for i := range items {
		items[i].Campaign, items[i].Seq = c.ID, i
	}
	return nil
}

func (tx *Tx) insertCampaign(c *capri.Campaign, e *capri.CampaignEstimate) error {
	estimate, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = tx.exec(sq.Insert("campaign").Columns("id", "kind", "state", "target", "request", "who", "reason", "batch_limit", "newest_first", "items", "minutes", "unknown", "estimate", "message", "created_at").
		Values(int64(c.ID), int(c.Kind), int(c.State), cut(c.Target, 255), c.Request, cut(c.Who, 190), cut(c.Reason, 1000), c.Limit, bit(c.NewestFirst), c.Items, c.Minutes, c.Unknown, string(estimate), "", int64(c.CreatedAt)))
	return err
}

// EstimateCampaign writes what a preview costs, after its items or its limit have changed; n items are to be left of it that
// run. capri.ErrConflict: there are others, somebody was at it at this moment.
func (tx *Tx) EstimateCampaign(c *capri.Campaign, e *capri.CampaignEstimate, n int) error {
	if _, err := tx.lockCampaign(c.ID, capri.CampaignPreviewed); err != nil {
		return err
	}
	left := 0
	if _, err := one(tx.ctx, tx.tx, sq.Select("COUNT(*)").From("campaign_item i").Where(sq.Eq{"i.campaign_id": int64(c.ID)}).Where(runningItems), &left); err != nil {
		return err
	}
	if left != n {
		return capri.Conflict("somebody else has changed campaign %d at this moment: look at it again", c.ID)
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = tx.exec(sq.Update("campaign").SetMap(sq.Eq{"minutes": c.Minutes, "unknown": c.Unknown, "estimate": string(text)}).Where(sq.Eq{"id": int64(c.ID)}))
	return err
}

// CampaignEstimate reads what a campaign was estimated to take before it began; nil: an older one, of which nobody did.
func (s *Store) CampaignEstimate(ctx context.Context, id capri.CampaignID) (e *capri.CampaignEstimate, err error) {
	text := sql.NullString{}
	if _, err = one(ctx, s.read, sq.Select("estimate").From("campaign").Where(sq.Eq{"id": int64(id)}), &text); err == nil && text.Valid {
		err = json.Unmarshal([]byte(text.String), &e)
	}
	return e, s.fault("read the estimate of a campaign", err)
}

func (tx *Tx) insertItems(id capri.CampaignID, seq int, items []capri.CampaignItem) error {
	return tx.bulk("campaign_item", []string{"campaign_id", "seq", "state", "action", "task_id", "task_version", "batch_no", "mark", "data_start", "data_end", "priority", "via", "why", "note",
		"old_batch_id", "old_run_no", "old_state", "old_finish", "minutes"}, len(items), func(n int, a []any) []any {
		i := &items[n]
		return append(a, int64(id), seq+n, int(capri.ItemPlanned), int(i.Action), int64(i.Task), i.TaskVersion, string(i.BatchNo), int64(i.Mark), int64(i.Start), int64(i.End), i.Priority, i.Via,
			cut(i.Why, 500), cut(i.Note, 500), int64(i.Old), i.OldRunNo, int(i.OldState), int(i.OldFinish), i.Minutes)
	})
}

// Campaign reads one.
func (s *Store) Campaign(ctx context.Context, id capri.CampaignID) (capri.Campaign, error) {
	all, err := s.campaigns(ctx, sq.Select(campaignColumns...).From("campaign").Where(sq.Eq{"id": int64(id)}).Where("state > 0"))
	switch {
	case err != nil:
		return capri.Campaign{}, err
	case len(all) == 0:
		return capri.Campaign{}, capri.NotFound("there is no campaign %d", id)
	}
	return all[0], nil
}

// CampaignFilter chooses campaigns for a list. Zero fields choose all.
type CampaignFilter struct {
	State    capri.CampaignState
	From, To capri.Instant // made in [From, To)
	Before   capri.CampaignID
	Limit    int
}

// Campaigns lists them, the newest first.
func (s *Store) Campaigns(ctx context.Context, f CampaignFilter) ([]capri.Campaign, error) {
	q := sq.Select(campaignColumns...).From("campaign").Where("state > 0").OrderBy("id DESC").Limit(uint64(max(f.Limit, 0)))
	if f.State != 0 {
		q = q.Where(sq.Eq{"state": int(f.State)})
	}
	if f.From != 0 {
		q = q.Where("created_at >= ?", int64(f.From))
	}
	if f.To != 0 {
		q = q.Where("created_at < ?", int64(f.To))
	}
	if f.Before != 0 {
		q = q.Where(sq.Lt{"id": int64(f.Before)})
	}
	return s.campaigns(ctx, q)
}

// liveCampaignsQuery is asked all the time: a walk on the index of states that ends at once where none lives.
var liveCampaignsQuery = sq.Select(campaignColumns...).From("campaign").Where("state IN (2, 3, 4, 5)").OrderBy("id")

// LiveCampaigns are those of which something may have to be done, the oldest first.
func (s *Store) LiveCampaigns(ctx context.Context) ([]capri.Campaign, error) {
	return s.campaigns(ctx, liveCampaignsQuery)
}

func (s *Store) campaigns(ctx context.Context, q sq.SelectBuilder) ([]capri.Campaign, error) {
	var out []capri.Campaign
	err := query(ctx, s.read, q, func(r *sql.Rows) error {
		c, err := scanCampaign(r)
		out = append(out, c)
		return err
	})
	return out, s.fault("read campaigns", err)
}

// ItemRow is an item with what people read of it.
type ItemRow struct {
	capri.CampaignItem
	TaskName   string
	BatchState capri.State // of the batch that runs for it
}

// CampaignItems reads a page of items, in their order: those after a seq (-1: from the first).
func (s *Store) CampaignItems(ctx context.Context, id capri.CampaignID, actions []capri.ItemAction, after, limit int) ([]ItemRow, error) {
	q := sq.Select(itemColumns...).Columns("t.name", "COALESCE(w.state, CASE WHEN i.batch_id = 0 THEN 0 ELSE 3 END)").From("campaign_item i").Join("task t ON t.id = i.task_id").LeftJoin("task_work w ON w.id = i.batch_id").
		Where(sq.Eq{"i.campaign_id": int64(id)}).Where(sq.Gt{"i.seq": after}).OrderBy("i.seq").Limit(uint64(limit))
	if len(actions) > 0 {
		q = q.Where(sq.Eq{"i.action": ints(actions)})
	}
	var out []ItemRow
	err := query(ctx, s.read, q, func(r *sql.Rows) error {
		var row ItemRow
		var err error
		row.CampaignItem, err = scanItem(r, &row.TaskName, &row.BatchState)
		out = append(out, row)
		return err
	})
	return out, s.fault("read the items of a campaign", err)
}

// ItemCount is how many items of a campaign are alike.
type ItemCount struct {
	Action      capri.ItemAction
	Dropped     bool
	State       capri.ItemState
	FinishState capri.FinishState
	BatchState  capri.State
	Ready       bool // its batch waits for nothing but to be released, or a place
	N           int
}

// CampaignCounts counts a campaign's items by what they are.
func (s *Store) CampaignCounts(ctx context.Context, id capri.CampaignID) ([]ItemCount, error) {
	var out []ItemCount
	err := query(ctx, s.read, sq.Select("i.action", "i.dropped", "i.state", "i.finish_state", "COALESCE(w.state, CASE WHEN i.batch_id = 0 THEN 0 ELSE 3 END) AS bs",
		"COALESCE(w.unmet <= "+byHold+", 0) AS ready", "COUNT(*)").
		From("campaign_item i").LeftJoin("task_work w ON w.id = i.batch_id").Where(sq.Eq{"i.campaign_id": int64(id)}).
		GroupBy("i.action", "i.dropped", "i.state", "i.finish_state", "bs", "ready"), func(r *sql.Rows) error {
		var c ItemCount
		err := r.Scan(&c.Action, &c.Dropped, &c.State, &c.FinishState, &c.BatchState, &c.Ready, &c.N)
		out = append(out, c)
		return err
	})
	return out, s.fault("count the items of a campaign", err)
}

// runningItems are the actions of which something runs, as in capri.ItemAction.Runs, of items that were not dropped.
const runningItems = "i.dropped = 0 AND i.action BETWEEN 1 AND 4"

// Difference is something that is not any more as it was previewed.
type Difference struct {
	Item capri.CampaignItem
	Task string
	What string
}

// CampaignDifferences compares what was previewed with what is, for the items in [from, to), and gives at most limit
// differences.
func (s *Store) CampaignDifferences(ctx context.Context, id capri.CampaignID, from, to, limit int) ([]Difference, error) {
	out, err := collect(ctx, s.read, differencesQuery(id, from, to, limit), scanDifference)
	return out, s.fault("compare a campaign with its preview", err)
}

// DifferencesNamed is how many differences a refusal names.
const DifferencesNamed = 20

func differencesQuery(id capri.CampaignID, first, end, limit int) sq.SelectBuilder {
	// The archive is asked about what task_work does not have, and about nothing else.
	const counts = "COALESCE(w.id, (SELECT a.id FROM " + archiveTable + " a WHERE a.task_id = i.task_id AND a.batch_no = i.batch_no AND a.latest = 1), 0)"
	return sq.Select(itemColumns...).Columns("t.name", "t.version", "t.enabled", "t.deleted_at", counts, "COALESCE(w.state, 3)", "COALESCE(o.campaign_id, 0)").
		From("campaign_item i").Join("task t ON t.id = i.task_id").
		LeftJoin("task_work w ON w.task_id = i.task_id AND w.batch_no = i.batch_no AND w.latest = 1").
		LeftJoin("campaign_item o ON o.task_id = i.task_id AND o.batch_no = i.batch_no AND o.campaign_id <> i.campaign_id AND "+stillHas("o")).
		Where(sq.Eq{"i.campaign_id": int64(id)}).Where("i.seq >= ? AND i.seq < ?", first, end).Where(runningItems).
		Where("(t.version <> i.task_version OR t.enabled = 0 OR t.deleted_at IS NOT NULL OR o.campaign_id IS NOT NULL OR " + counts + " <> i.old_batch_id" +
			" OR (w.id IS NOT NULL AND CASE WHEN w.state = 1 THEN 0 ELSE w.state END <> CASE WHEN i.old_state = 1 THEN 0 ELSE i.old_state END AND NOT (i.action = 3 AND w.state = 3)))").
		OrderBy("i.seq").Limit(uint64(limit))
}

func scanDifference(r *sql.Rows, d *Difference) error {
	var version int
	var enabled bool
	var deleted capri.Instant
	var batch capri.BatchID
	var state capri.State
	var other capri.CampaignID
	var err error
	if d.Item, err = scanItem(r, &d.Task, &version, &enabled, instant{&deleted}, &batch, &state, &other); err != nil {
		return err
	}
	switch {
	case deleted != 0:
		d.What = "its task was deleted"
	case !enabled:
		d.What = "its task was disabled"
	case version != d.Item.TaskVersion:
		d.What = fmt.Sprintf("its task was edited: version %d then, %d now", d.Item.TaskVersion, version)
	case other != 0:
		d.What = fmt.Sprintf("campaign %d is about to run it, or does", other)
	case d.Item.Old == 0:
		d.What = fmt.Sprintf("there was no batch, and now there is batch %d", batch)
	case batch != d.Item.Old:
		d.What = fmt.Sprintf("batch %d counted then, batch %d does now", d.Item.Old, batch)
	default:
		d.What = fmt.Sprintf("batch %d was %s, and is %s now", batch, d.Item.OldState, state)
	}
	return nil
}

// stillHas is the comparison of items that are in the way of other campaigns: claimed, or held back. What was released is
// a batch like any other; so is one that is about to be, and one that has ended, though its campaign has not noted it yet.
func stillHas(i string) string {
	return i + ".state IN (1, 2) AND NOT EXISTS (SELECT 1 FROM campaign goes WHERE goes.id = " + i + ".campaign_id AND goes.state = 3 AND goes.batch_limit = 0) AND NOT EXISTS (SELECT 1 FROM task_work ended WHERE ended.id = " + i + ".batch_id AND ended.state = 3)"
}

// OtherCampaigns tells of some batch_nos which live campaign has them.
func (s *Store) OtherCampaigns(ctx context.Context, tasks []capri.TaskID) (map[LatestKey]capri.CampaignID, error) {
	out := map[LatestKey]capri.CampaignID{}
	// Mostly none lives, and the items of those that are over need not be looked at.
	if live, err := s.LiveCampaigns(ctx); err != nil || len(live) == 0 {
		return out, err
	}
	for _, part := range chunks(tasks, s.d.ChunkRows) {
		err := query(ctx, s.read, sq.Select("task_id", "batch_no", "campaign_id").From("campaign_item i").Where(idIn("task_id", part)).Where(stillHas("i")), func(r *sql.Rows) error {
			var k LatestKey
			var id capri.CampaignID
			err := r.Scan(&k.Task, &k.No, &id)
			out[k] = id
			return err
		})
		if err != nil {
			return nil, s.fault("look for other campaigns", err)
		}
	}
	return out, nil
}

// LatestRun is what a plan has to know of the run that counts.
type LatestRun struct {
	ID          capri.BatchID
	RunNo       int
	State       capri.State
	FinishState capri.FinishState
	Node        string
	start, end  capri.Instant
}

// Minutes is what it took, if it succeeded; 0: not known.
func (r LatestRun) Minutes() int {
	if r.FinishState != capri.Success || r.start == 0 {
		return 0
	}
	return int((r.end.Sub(r.start) + time.Minute - 1) / time.Minute)
}

// LatestRunsOf reads the runs that count of some batch_nos, archived ones too.
func (s *Store) LatestRunsOf(ctx context.Context, keys []LatestKey) (map[LatestKey]LatestRun, error) {
	out := make(map[LatestKey]LatestRun, len(keys))
	byNo := map[capri.BatchNo][]capri.TaskID{}
	var nos []capri.BatchNo
	byTask := map[capri.TaskID][]capri.BatchNo{}
	for _, k := range keys {
		if byNo[k.No] == nil {
			nos = append(nos, k.No)
		}
		byNo[k.No] = append(byNo[k.No], k.Task)
		byTask[k.Task] = append(byTask[k.Task], k.No)
	}
	for _, table := range []string{"task_work", archiveTable} {
		ask := func(tasks []capri.TaskID, nos []capri.BatchNo) error {
			q := sq.Select("w.task_id", "w.batch_no", "w.id", "w.run_no", "w.state", "w.finish_state", "w.node", "w.start_time", "w.finish_time").
				From(table + " w").Where(idIn("w.task_id", tasks)).Where(sq.Eq{"w.batch_no": texts(nos), "w.latest": 1})
			return query(ctx, s.read, q, func(r *sql.Rows) error {
				var k LatestKey
				var b LatestRun
				err := r.Scan(&k.Task, &k.No, &b.ID, &b.RunNo, &b.State, &b.FinishState, &b.Node, instant{&b.start}, instant{&b.end})
				out[k] = b
				return err
			})
		}
		// Many tasks of few intervals, or few tasks of many: whichever takes fewer queries.
		if len(nos) <= len(byTask) {
			for _, no := range nos {
				for _, part := range chunks(byNo[no], s.d.ChunkRows) {
					if err := ask(part, []capri.BatchNo{no}); err != nil {
						return nil, s.fault("read latest runs", err)
					}
				}
			}
			continue
		}
		for task, nos := range byTask {
			for _, part := range chunks(nos, s.d.ChunkRows) {
				if err := ask([]capri.TaskID{task}, part); err != nil {
					return nil, s.fault("read latest runs", err)
				}
			}
		}
	}
	return out, nil
}

// lockCampaign reads a campaign for change and proves that it is in one of some states.
func (tx *Tx) lockCampaign(id capri.CampaignID, states ...capri.CampaignState) (c capri.Campaign, err error) {
	return tx.campaignIn(id, tx.s.d.ForUpdate, states)
}

// keepCampaign proves that a campaign is in a state, and stays there until commit. Others may do the same beside it.
func (tx *Tx) keepCampaign(id capri.CampaignID, state capri.CampaignState) error {
	_, err := tx.campaignIn(id, tx.s.d.ForShare, []capri.CampaignState{state})
	return err
}

func (tx *Tx) campaignIn(id capri.CampaignID, lock string, states []capri.CampaignState) (c capri.Campaign, err error) {
	found := false
	err = tx.query(sq.Select(campaignColumns...).From("campaign").Where(sq.Eq{"id": int64(id)}).Where("state > 0").Suffix(lock), func(r *sql.Rows) (err error) {
		found = true
		c, err = scanCampaign(r)
		return err
	})
	switch {
	case err != nil:
		return c, err
	case !found:
		return c, capri.NotFound("there is no campaign %d", id)
	case !slices.Contains(states, c.State):
		return c, capri.Conflict("campaign %d is %s", id, c.State)
	}
	return c, nil
}

// MoveCampaign brings a campaign from one of some states to another, with what else is to be set.
func (tx *Tx) MoveCampaign(id capri.CampaignID, to capri.CampaignState, from []capri.CampaignState, set map[string]any) (capri.Campaign, error) {
	c, err := tx.lockCampaign(id, from...)
	if err != nil {
		return c, err
	}
	_, err = tx.exec(sq.Update("campaign").SetMap(set).Set("state", int(to)).Where(sq.Eq{"id": int64(id)}))
	c.State = to
	return c, err
}

// StartCampaign makes a previewed one run, with a limit of batches at once (0: none) and its order.
func (tx *Tx) StartCampaign(id capri.CampaignID, limit int, newest bool) (capri.Campaign, error) {
	return tx.MoveCampaign(id, capri.CampaignCreating, []capri.CampaignState{capri.CampaignPreviewed},
		map[string]any{"batch_limit": limit, "newest_first": bit(newest), "started_at": int64(tx.Now)})
}

// LimitCampaign changes how many batches of a campaign run at once.
func (tx *Tx) LimitCampaign(id capri.CampaignID, limit int) error {
	if _, err := tx.lockCampaign(id, capri.CampaignPreviewed, capri.CampaignCreating, capri.CampaignRunning, capri.CampaignPaused); err != nil {
		return err
	}
	_, err := tx.exec(sq.Update("campaign").Set("batch_limit", limit).Where(sq.Eq{"id": int64(id)}))
	return err
}

// CancelCampaign undoes what has not started; kill: and ends what runs. A preview is just over.
func (tx *Tx) CancelCampaign(id capri.CampaignID, kill bool, why string) (capri.Campaign, error) {
	c, err := tx.lockCampaign(id, capri.CampaignPreviewed, capri.CampaignCreating, capri.CampaignRunning, capri.CampaignPaused, capri.CampaignCancelling)
	if err != nil {
		return c, err
	}
	set := map[string]any{"state": int(capri.CampaignCancelling), "message": cut(why, 4000), "kill_running": bit(kill || c.KillRunning)}
	if c.State == capri.CampaignPreviewed {
		set["state"], set["finished_at"] = int(capri.CampaignCancelled), int64(tx.Now)
	}
	_, err = tx.exec(sq.Update("campaign").SetMap(set).Where(sq.Eq{"id": int64(id)}))
	c.State = capri.CampaignState(set["state"].(int))
	return c, err
}

// DropItems takes batch_nos of a task out of a preview (none: all of them), and says of what they brought in that they
// did. It returns how many were taken out.
func (tx *Tx) DropItems(id capri.CampaignID, task capri.TaskID, name string, nos []capri.BatchNo) (int, error) {
	if _, err := tx.lockCampaign(id, capri.CampaignPreviewed); err != nil {
		return 0, err
	}
	which := sq.And{sq.Eq{"campaign_id": int64(id), "task_id": int64(task), "dropped": 0}}
	if len(nos) > 0 {
		which = append(which, sq.Eq{"batch_no": texts(nos)})
	}
	var seqs []int
	err := tx.query(sq.Select("seq").From("campaign_item").Where(which), func(r *sql.Rows) error {
		var seq int
		err := r.Scan(&seq)
		seqs = append(seqs, seq)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, part := range chunks(seqs, tx.s.d.ChunkRows) {
		if _, err := tx.exec(sq.Update("campaign_item").Set("dropped", 1).Where(sq.Eq{"campaign_id": int64(id)}).Where(sq.Eq{"seq": part})); err != nil {
			return 0, err
		}
		// What they brought in stays: it may be wanted for itself, and whoever does not want it drops it, too.
		if _, err := tx.exec(sq.Update("campaign_item").Set("note", cut("it is in because of "+name+", which was dropped", 500)).
			Where(sq.Eq{"campaign_id": int64(id), "dropped": 0, "via": part})); err != nil {
			return 0, err
		}
	}
	return len(seqs), nil
}

// items reads the next items of a campaign in a state, in their order: those with seq in [from, to), so that nobody walks over
// what is done.
func (s *Store) items(ctx context.Context, id capri.CampaignID, from, to, n int, state capri.ItemState, where string) ([]capri.CampaignItem, error) {
	out, err := collect(ctx, s.read, itemsQuery(id, from, to, n, state, where), scanMoved)
	return out, s.fault("read the items of a campaign", err)
}

func itemsQuery(id capri.CampaignID, from, to, n int, state capri.ItemState, where string) sq.SelectBuilder {
	q := sq.Select(movedColumns...).From("campaign_item i").Where(sq.Eq{"i.campaign_id": int64(id), "i.state": int(state)}).Where("i.seq >= ? AND i.seq < ?", from, to).OrderBy("i.seq").Limit(uint64(n))
	if where != "" {
		q = q.Where(where)
	}
	return q
}

// moveItems is the comparison under which items change; errItemsMoved says that somebody was there before.
func (tx *Tx) moveItems(id capri.CampaignID, items []capri.CampaignItem, from capri.ItemState, set sq.Eq) error {
	most := tx.s.d.ChunkRows
	if inRow(items) {
		most = len(items)
	}
	for _, part := range chunks(items, most) {
		n, err := tx.exec(sq.Update("campaign_item" + tx.s.d.ByKey).SetMap(set).Where(sq.Eq{"campaign_id": int64(id), "state": int(from)}).Where(seqIn(part)))
		if err != nil {
			return err
		}
		if n != len(part) {
			return errItemsMoved
		}
	}
	return nil
}

var errItemsMoved = errors.New("somebody else has moved these items")

// inRow tells whether no seq is left out between the first item and the last.
func inRow(items []capri.CampaignItem) bool {
	for i := range items {
		if items[i].Seq != items[0].Seq+i {
			return false
		}
	}
	return true
}

func seqIn(items []capri.CampaignItem) sq.Sqlizer {
	if inRow(items) {
		return sq.Expr("seq BETWEEN ? AND ?", items[0].Seq, items[len(items)-1].Seq)
	}
	seqs := make([]int64, len(items))
	for i, it := range items {
		seqs[i] = int64(it.Seq)
	}
	return idIn("seq", seqs)
}

// placeWeight parts the priorities in the order of release; marks are smaller for some thousand years.
const placeWeight = 1_000_000_000_000_000

// ClaimItems takes the next items of a campaign with seq in [from, to) for it alone: nothing of them starts any more. What has
// not started is held back, what is to be killed first is killed. It returns those that it took, or what is in its way, and
// then it took none. That the rest is as it was previewed is proved as it is made.
func (s *Store) ClaimItems(ctx context.Context, lease capri.Lease, c capri.Campaign, from, to int) (claimed []capri.CampaignItem, differ []Difference, err error) {
	items, err := s.items(ctx, c.ID, from, to, claimedAtOnce, capri.ItemPlanned, runningItems)
	if err != nil || len(items) == 0 {
		return nil, nil, err
	}
	why := fmt.Sprintf("campaign %d (%s) by %s", c.ID, c.Kind, c.Who)
	place := "priority * ? + mark"
	if c.NewestFirst {
		place = "priority * ? - mark"
	}
	var waiting, running []capri.BatchID
	of := map[capri.BatchID]*capri.CampaignItem{}
	for i := range items {
		it := &items[i]
		switch it.Action {
		case capri.ItemLeftWaiting:
			waiting = append(waiting, it.Old)
		case capri.ItemKillFirst:
			running = append(running, it.Old)
		}
		of[it.Old] = it
	}
	err = s.WriteAs(ctx, "claim the batches of a campaign", lease, func(tx *Tx) error {
		differ = nil
		if err := tx.keepCampaign(c.ID, capri.CampaignCreating); err != nil {
			return err
		}
		rows, err := tx.lock(slices.Concat(waiting, running))
		if err != nil {
			return err
		}
		var hold, kill []locked
		for _, r := range rows {
			it := of[r.ID]
			switch {
			case it.Action == capri.ItemLeftWaiting && r.State <= capri.Assigned && r.Latest:
				hold = append(hold, r)
			case it.Action == capri.ItemLeftWaiting:
				differ = append(differ, Difference{Item: *it, Task: tx.taskName(it.Task), What: fmt.Sprintf("batch %d has started", r.ID)})
			case r.State != capri.Finished:
				kill = append(kill, r)
			}
		}
		if len(differ) > 0 {
			return errItemsMoved
		}
		err = tx.moveItems(c.ID, items, capri.ItemPlanned, sq.Eq{"state": int(capri.ItemClaimed), "active": 1, "place": sq.Expr(place, placeWeight)})
		if err != nil {
			return err
		}
		if err := tx.holdBack(hold, why+" holds it back"); err != nil {
			return err
		}
		if len(hold) > 0 {
			var held []capri.CampaignItem
			for _, r := range hold {
				held = append(held, *of[r.ID])
			}
			if err := tx.moveItems(c.ID, held, capri.ItemClaimed, sq.Eq{"state": int(capri.ItemHeldBack), "batch_id": sq.Expr("old_batch_id")}); err != nil {
				return err
			}
		}
		return tx.killLocked(kill, "killed by "+why+": it runs again")
	})
	switch {
	case len(differ) > 0:
		return nil, differ, nil
	case s.d.IsDuplicate(err):
		if differ, err = s.CampaignDifferences(ctx, c.ID, items[0].Seq, items[len(items)-1].Seq+1, DifferencesNamed); err == nil && len(differ) == 0 {
			differ = []Difference{{Item: items[0], What: "another campaign has claimed a batch of it at this moment"}}
		}
		return nil, differ, err
	case err != nil && !errors.Is(err, errItemsMoved): // moved: our own commit had got through, and its answer had not
		return nil, nil, err
	}
	return items, nil, nil
}

// byHold is what being held back adds to a batch's unmet: one that waits for nothing else stands at exactly that.
const byHold = "CASE WHEN w.kinds & 64 = 0 THEN 0 ELSE 1 END"

func (r locked) byHold() int { return bit(r.Kinds&kindHeldBack != 0) }

// holdBack makes locked, unstarted batches wait for the campaign: one condition more. No condition counts for a batch of
// which somebody said "run now": it goes, and the campaign around it.
func (tx *Tx) holdBack(rows []locked, why string) error {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r locked) bool { return r.RunNow })
	if len(rows) == 0 {
		return nil
	}
	err := tx.changeLocked(rows, change{why: why, set: sq.Eq{"state": int(capri.Waiting), "node": "", "assign_time": nil, "kinds": sq.Expr(fmt.Sprintf("kinds | %d", kindHeldBack))}})
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Kinds |= kindHeldBack
	}
	return tx.recount(rows)
}

// letGo ends a campaign's holdBack of locked batches, except where another campaign holds them back as well: the last one
// lets go.
func (tx *Tx) letGo(id capri.CampaignID, rows []locked, why string) error {
	if len(rows) == 0 {
		return nil
	}
	others := map[capri.BatchID]bool{}
	for _, part := range chunks(rows, tx.s.d.ChunkRows) {
		ids, err := tx.ids(sq.Select("batch_id").From("campaign_item").Where(idIn("batch_id", idsOf(part))).Where("state = 2 AND campaign_id <> ?", int64(id)).Suffix(tx.s.d.ForShare))
		if err != nil {
			return err
		}
		for _, b := range ids {
			others[b] = true
		}
	}
	// What held them back was exactly one of what they wait for.
	rows = slices.DeleteFunc(slices.Clone(rows), func(r locked) bool { return others[r.ID] || r.Kinds&kindHeldBack == 0 })
	return tx.changeLocked(rows, change{why: why, set: sq.Eq{"kinds": sq.Expr(fmt.Sprintf("kinds & ~%d", kindHeldBack)), "unmet": sq.Expr("unmet - 1")}})
}

// killLocked ends locked batches that run nowhere, and asks the workers of the others.
func (tx *Tx) killLocked(rows []locked, why string) error {
	here := func(r locked) bool { return r.State == capri.Waiting || r.State == capri.Assigned }
	if err := tx.changeLocked(slices.DeleteFunc(slices.Clone(rows), func(r locked) bool { return !here(r) }), tx.ending(capri.Killed, why)); err != nil {
		return err
	}
	return tx.changeLocked(slices.DeleteFunc(slices.Clone(rows), func(r locked) bool { return here(r) || r.State != capri.Running || r.KillRequest }),
		change{set: sq.Eq{"kill_request": 1}, why: why})
}

// ToMake bounds the items of a campaign whose runs do not exist yet: they are in [from, to). waits names a batch that has to
// end before: what it stands before is not made before it.
func (s *Store) ToMake(ctx context.Context, id capri.CampaignID) (from, to int, waits capri.BatchID, err error) {
	claimed := sq.Select().From("campaign_item i").Where(sq.Eq{"i.campaign_id": int64(id), "i.state": int(capri.ItemClaimed)})
	if _, err = one(ctx, s.read, claimed.Columns("COALESCE(MIN(i.seq), 0)", "COALESCE(MAX(i.seq) + 1, 0)"), &from, &to); err == nil {
		_, err = one(ctx, s.read, claimed.Columns("i.seq", "w.id").Join("task_work w ON w.id = i.old_batch_id").
			Where(sq.Eq{"i.action": int(capri.ItemKillFirst)}).Where("w.state <> 3").OrderBy("i.seq").Limit(1), &to, &waits)
	}
	return from, to, waits, s.fault("look for what a campaign makes", err)
}

// ItemsToMake reads the next of the items that ToMake bounds.
func (s *Store) ItemsToMake(ctx context.Context, id capri.CampaignID, from, to int) ([]capri.CampaignItem, error) {
	return s.items(ctx, id, from, to, madeAtOnce, capri.ItemClaimed, "")
}

// FirstMarks are the earliest marks of the batches that a campaign makes, by task: what is made from now on waits for them.
func (s *Store) FirstMarks(ctx context.Context, id capri.CampaignID) (map[capri.TaskID]capri.Instant, error) {
	out := map[capri.TaskID]capri.Instant{}
	err := query(ctx, s.read, sq.Select("i.task_id", "MIN(i.mark)").From("campaign_item i").Where(sq.Eq{"i.campaign_id": int64(id)}).Where(runningItems).GroupBy("i.task_id"), func(r *sql.Rows) error {
		var task capri.TaskID
		var mark capri.Instant
		err := r.Scan(&task, &mark)
		out[task] = mark
		return err
	})
	return out, s.fault("read the first marks of a campaign", err)
}

// MakeItems makes the runs of claimed items, held back, and revokes what rested on those they take the places of, in one
// transaction. batches are in the order of the items; the ids that are reserved for them are base and an item's seq.
// capri.ErrConflict: something is not any more as it was claimed.
func (s *Store) MakeItems(ctx context.Context, lease capri.Lease, c capri.Campaign, items []capri.CampaignItem, batches []*capri.NewBatch, base capri.BatchID, first map[capri.Instant][]capri.TaskID) error {
	for i, b := range batches {
		b.ID, b.HeldBack = base+capri.BatchID(items[i].Seq), true
	}
	err := s.WriteAs(ctx, "make the batches of a campaign", lease, func(tx *Tx) error {
		if err := tx.keepCampaign(c.ID, capri.CampaignCreating); err != nil {
			return err
		}
		if err := tx.moveItems(c.ID, items, capri.ItemClaimed, sq.Eq{"state": int(capri.ItemHeldBack), "batch_id": sq.Expr("seq + ?", int64(base))}); err != nil {
			return err
		}
		var again []Again
		var fresh []*capri.NewBatch
		for i, it := range items {
			if it.Old == 0 {
				fresh = append(fresh, batches[i])
			} else {
				again = append(again, Again{it.Old, batches[i]})
			}
		}
		if err := tx.refuseArchived(fresh); err != nil {
			return capri.Conflict("%v", err)
		}
		// All that was read here until now was locked, so the snapshot begins when the old runs are. A lock would wait for
		// the children that are being made of another part of the campaign, and they for this one's.
		if err := tx.newRuns(again, fresh, ""); err != nil {
			return err
		}
		for _, mark := range slices.Sorted(maps.Keys(first)) {
			if err := tx.LowerFirstMark(mark, first[mark]...); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errItemsMoved) {
		return nil
	}
	return err
}

// OpenCampaign releases a campaign whose runs and revocations exist: one row.
func (s *Store) OpenCampaign(ctx context.Context, lease capri.Lease, id capri.CampaignID) error {
	return s.WriteAs(ctx, "release a campaign", lease, func(tx *Tx) error {
		_, err := tx.MoveCampaign(id, capri.CampaignRunning, []capri.CampaignState{capri.CampaignCreating}, map[string]any{"released_at": int64(tx.Now), "message": ""})
		return err
	})
}

// NoteCampaign writes what a campaign waits for.
func (s *Store) NoteCampaign(ctx context.Context, lease capri.Lease, c capri.Campaign, message string) error {
	return s.WriteAs(ctx, "note a campaign", lease, func(tx *Tx) error {
		_, err := tx.exec(sq.Update("campaign").Set("message", cut(message, 4000)).Where(sq.Eq{"id": int64(c.ID), "state": int(c.State)}))
		return err
	})
}

// RefuseCampaign undoes a campaign that cannot run as it was previewed.
func (s *Store) RefuseCampaign(ctx context.Context, lease capri.Lease, id capri.CampaignID, why string) error {
	return s.WriteAs(ctx, "refuse a campaign", lease, func(tx *Tx) error {
		_, err := tx.MoveCampaign(id, capri.CampaignCancelling, []capri.CampaignState{capri.CampaignCreating}, map[string]any{"refused": 1, "message": cut(why, 4000)})
		return err
	})
}

// InHand counts the released batches of a campaign that have not ended.
func (s *Store) InHand(ctx context.Context, id capri.CampaignID) (n int, err error) {
	_, err = one(ctx, s.read, inHandQuery(id), &n)
	return n, s.fault("count what a campaign has in hand", err)
}

func inHandQuery(id capri.CampaignID) sq.SelectBuilder {
	return sq.Select("COUNT(*)").From("campaign_item i").Join("task_work w ON w.id = i.batch_id").
		Where(sq.Eq{"i.campaign_id": int64(id), "i.state": int(capri.ItemReleased)}).Where("w.state <> 3")
}

// ReleaseItems releases the next batches of a campaign that are held back: with a room, as many as fit of those that wait
// for nothing else, in the campaign's order. It returns how many, and whether there may be more.
func (s *Store) ReleaseItems(ctx context.Context, lease capri.Lease, c capri.Campaign, now capri.Instant, room int) (released int, more bool, err error) {
	n, ready := itemChunk, room > 0
	if ready {
		n = min(n, room)
	}
	items, err := collect(ctx, s.read, releaseQuery(c.ID, now, n, ready), scanMoved)
	if err != nil || len(items) == 0 {
		return 0, false, s.fault("look for what a campaign releases", err)
	}
	err = s.changeItems(ctx, lease, "release batches of a campaign", c, capri.CampaignRunning, items, func(tx *Tx, rows map[capri.BatchID]locked) error {
		var going []capri.CampaignItem
		var free []locked
		for _, it := range items {
			r, ok := rows[it.Batch]
			if ready && ok && (r.State != capri.Waiting || r.Unmet != r.byHold()) && r.State != capri.Finished {
				continue // it changed since it was chosen
			}
			going = append(going, it)
			if ok && r.State == capri.Waiting {
				free = append(free, r)
			}
		}
		released = len(going)
		if err := tx.moveItems(c.ID, going, capri.ItemHeldBack, sq.Eq{"state": int(capri.ItemReleased), "active": nil}); err != nil {
			return err
		}
		return tx.letGo(c.ID, free, fmt.Sprintf("released by campaign %d", c.ID))
	})
	return released, len(items) == n, err
}

func releaseQuery(id capri.CampaignID, now capri.Instant, n int, ready bool) sq.SelectBuilder {
	q := sq.Select(movedColumns...).From("campaign_item i").Where(sq.Eq{"i.campaign_id": int64(id), "i.state": int(capri.ItemHeldBack)}).OrderBy("i.place", "i.seq").Limit(uint64(n))
	if ready {
		q = q.Join("task_work w ON w.id = i.batch_id").Where("w.state = 0 AND w.unmet = "+byHold+" AND w.held = 0 AND w.kill_request = 0 AND w.not_before <= ?", int64(now))
	}
	return q
}

// changeItems locks a campaign in a state, the items' batches in the order of their ids, and changes them. Where somebody
// was there before nothing is done.
func (s *Store) changeItems(ctx context.Context, lease capri.Lease, what string, c capri.Campaign, in capri.CampaignState, items []capri.CampaignItem, do func(*Tx, map[capri.BatchID]locked) error) error {
	ids := make([]capri.BatchID, 0, len(items))
	for _, it := range items {
		if it.Batch != 0 {
			ids = append(ids, it.Batch)
		}
	}
	err := s.WriteAs(ctx, what, lease, func(tx *Tx) error {
		if _, err := tx.lockCampaign(c.ID, in); err != nil {
			return err
		}
		rows, err := tx.lock(ids)
		if err != nil {
			return err
		}
		by := make(map[capri.BatchID]locked, len(rows))
		for _, r := range rows {
			by[r.ID] = r
		}
		return do(tx, by)
	})
	if errors.Is(err, errItemsMoved) || errors.Is(err, capri.ErrConflict) { // paused or cancelled at this moment
		return nil
	}
	return err
}

// HoldItems holds released batches back again: all that have not started, or only those whose conditions were revoked
// since, which would keep the place of others that could run.
func (s *Store) HoldItems(ctx context.Context, lease capri.Lease, c capri.Campaign, all bool) (held int, err error) {
	items, err := collect(ctx, s.read, holdQuery(c.ID, all), scanMoved)
	if err != nil || len(items) == 0 {
		return 0, s.fault("look for what a campaign holds back", err)
	}
	err = s.changeItems(ctx, lease, "hold batches of a campaign back", c, c.State, items, func(tx *Tx, rows map[capri.BatchID]locked) error {
		var back []capri.CampaignItem
		var hold []locked
		for _, it := range items {
			if r, ok := rows[it.Batch]; ok && (r.State == capri.Waiting && (all || r.Unmet > r.byHold()) || r.State == capri.Assigned && all) {
				back, hold = append(back, it), append(hold, r)
			}
		}
		held = len(back)
		slices.SortFunc(hold, func(a, b locked) int { return int(a.ID - b.ID) })
		if err := tx.moveItems(c.ID, back, capri.ItemReleased, sq.Eq{"state": int(capri.ItemHeldBack)}); err != nil {
			return err
		}
		return tx.holdBack(hold, fmt.Sprintf("campaign %d holds it back", c.ID))
	})
	return held, err
}

func holdQuery(id capri.CampaignID, all bool) sq.SelectBuilder {
	which := "w.state IN (0, 1)"
	if !all {
		which = "w.state = 0 AND w.unmet > " + byHold
	}
	return sq.Select(movedColumns...).From("campaign_item i").Join("task_work w ON w.id = i.batch_id").
		Where(sq.Eq{"i.campaign_id": int64(id), "i.state": int(capri.ItemReleased)}).Where(which).OrderBy("i.place", "i.seq").Limit(uint64(itemChunk))
}

// endedAtOnce is how much of what has ended is looked for at once: each look goes over all that waits.
const endedAtOnce = 20 * itemChunk

// EndItems notes what has ended of a campaign's batches.
func (s *Store) EndItems(ctx context.Context, lease capri.Lease, c capri.Campaign) (ended int, err error) {
	type item struct{ seq, finish int64 }
	for {
		items, err := collect(ctx, s.read, endedQuery(c.ID), func(r *sql.Rows, i *item) error { return r.Scan(&i.seq, &i.finish) })
		if err != nil {
			return ended, s.fault("look for what has ended of a campaign", err)
		}
		for _, part := range chunks(items, itemChunk) {
			how := map[int64][]int64{}
			for _, i := range part {
				how[i.finish] = append(how[i.finish], i.seq)
			}
			err := s.WriteAs(ctx, "note what has ended of a campaign", lease, func(tx *Tx) error {
				for finish, seqs := range how {
					if _, err := tx.exec(sq.Update("campaign_item").SetMap(sq.Eq{"state": int(capri.ItemEnded), "active": nil, "finish_state": finish}).
						Where(sq.Eq{"campaign_id": int64(c.ID), "state": []int{int(capri.ItemHeldBack), int(capri.ItemReleased)}}).Where(idIn("seq", seqs))); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return ended, err
			}
			ended += len(part)
		}
		if len(items) < endedAtOnce {
			return ended, nil
		}
	}
}

func endedQuery(id capri.CampaignID) sq.SelectBuilder {
	return sq.Select("i.seq", "COALESCE(w.finish_state, a.finish_state, 0)").From("campaign_item i").LeftJoin("task_work w ON w.id = i.batch_id").LeftJoin(archiveTable + " a ON a.id = i.batch_id").
		Where(sq.Eq{"i.campaign_id": int64(id), "i.state": []int{int(capri.ItemHeldBack), int(capri.ItemReleased)}}).
		Where("(w.id IS NULL OR w.state = 3)").Limit(uint64(endedAtOnce)) // NOT EXISTS has MariaDB look at everything that waits
}

// Open counts the items of a campaign that have not ended, by state.
func (s *Store) OpenItems(ctx context.Context, id capri.CampaignID) (map[capri.ItemState]int, error) {
	out := map[capri.ItemState]int{}
	err := query(ctx, s.read, sq.Select("state", "COUNT(*)").From("campaign_item").Where(sq.Eq{"campaign_id": int64(id), "state": []int{1, 2, 3}}).GroupBy("state"), func(r *sql.Rows) error {
		var state capri.ItemState
		n := 0
		err := r.Scan(&state, &n)
		out[state] = n
		return err
	})
	return out, s.fault("count the open items of a campaign", err)
}

// UndoItems undoes the next items of a cancelled campaign that have not started, the last first: a new run ends as killed
// and the run before it counts again, with all that rested on it; what was there before waits on by itself. What has
// started goes on, or is killed where that was asked for. Whoever asks again says before which seq (c.Items at first), so
// that nobody walks over what is undone. It returns how many it undid, and 0 where nothing is left to, and down to which
// seq it looked.
func (s *Store) UndoItems(ctx context.Context, lease capri.Lease, c capri.Campaign, before int) (undone, down int, err error) {
	items, err := collect(ctx, s.read, undoQuery(c.ID, before), scanMoved)
	if err != nil || len(items) == 0 {
		return 0, before, s.fault("look for what is to be undone", err)
	}
	why := fmt.Sprintf("campaign %d was cancelled", c.ID)
	if c.Refused {
		why = fmt.Sprintf("campaign %d was refused", c.ID)
	}
	if c.Message != "" {
		why += ": " + c.Message
	}
	err = s.changeItems(ctx, lease, "undo batches of a campaign", c, capri.CampaignCancelling, items, func(tx *Tx, rows map[capri.BatchID]locked) error {
		undone = 0
		var gone, back []locked
		var old []capri.BatchID
		var done []capri.CampaignItem
		for _, it := range items {
			r, ok := rows[it.Batch]
			switch {
			case it.Batch == 0:
				done = append(done, it)
			case !ok, r.State > capri.Assigned: // it started at this moment
				continue
			case it.Action == capri.ItemLeftWaiting:
				done, back = append(done, it), append(back, r)
			case r.Failures+r.Losses > 0, r.RunNow:
				continue
			default:
				done, gone = append(done, it), append(gone, r)
				if it.Old != 0 {
					old = append(old, it.Old)
				}
			}
		}
		if undone = len(done); undone == 0 {
			return nil
		}
		sorted := func(rows []locked) []locked {
			slices.SortFunc(rows, func(a, b locked) int { return int(a.ID - b.ID) })
			return rows
		}
		if err := tx.letGo(c.ID, sorted(back), why); err != nil {
			return err
		}
		if err := tx.changeLocked(sorted(gone), tx.ending(capri.Killed, why)); err != nil {
			return err
		}
		if err := tx.handBack(gone, old, why); err != nil {
			return err
		}
		for _, part := range chunks(done, tx.s.d.ChunkRows) {
			if _, err := tx.exec(sq.Update("campaign_item").SetMap(sq.Eq{"state": int(capri.ItemUndone), "active": nil}).Where(sq.Eq{"campaign_id": int64(c.ID)}).Where(seqIn(part))); err != nil {
				return err
			}
		}
		return nil
	})
	return undone, items[len(items)-1].Seq, err
}

// undoable: what has started once is not undone, though it waits for another attempt: it may have written half of its
// output. Nor is what somebody said is to run now, whatever is in its way.
const undoable = "w.state IN (0, 1) AND (i.action = 4 OR w.failures + w.losses + w.run_now = 0)"

func undoQuery(id capri.CampaignID, before int) sq.SelectBuilder {
	return sq.Select(movedColumns...).From("campaign_item i").LeftJoin("task_work w ON w.id = i.batch_id").
		Where(sq.Eq{"i.campaign_id": int64(id), "i.state": []int{1, 2, 3}}).Where(sq.Lt{"i.seq": before}).
		Where("(w.id IS NULL AND i.batch_id = 0 OR " + undoable + ")").OrderBy("i.seq DESC").Limit(uint64(itemChunk))
}

// handBack makes earlier runs count again in the places of runs that were undone, and lets the dependency service look at
// what rested on them.
func (tx *Tx) handBack(gone []locked, old []capri.BatchID, why string) error {
	if len(old) == 0 {
		return nil
	}
	// A first run that was undone stays the one that counts: there is no other.
	earlier, err := tx.lock(old)
	if err != nil {
		return err
	}
	if len(earlier) < len(old) {
		for _, part := range chunks(old, tx.s.d.ChunkRows) {
			err := tx.query(sq.Select("id", "task_id", "batch_no", "finish_state").From(archiveTable).Where(idIn("id", part)).OrderBy("id").Suffix(tx.s.d.ForUpdate), func(r *sql.Rows) error {
				o := locked{Kinds: -1} // archived
				err := r.Scan(&o.ID, &o.TaskID, &o.BatchNo, &o.FinishState)
				earlier = append(earlier, o)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	of := map[LatestKey]bool{}
	for _, o := range earlier {
		of[LatestKey{o.TaskID, o.BatchNo}] = true
	}
	replaced := slices.DeleteFunc(slices.Clone(gone), func(r locked) bool { return !of[LatestKey{r.TaskID, r.BatchNo}] })
	for _, part := range chunks(replaced, tx.s.d.ChunkRows) {
		if err := tx.changeLocked(part, change{set: sq.Eq{"latest": nil}, why: why}); err != nil {
			return err
		}
	}
	for table, archived := range map[string]bool{"task_work": false, archiveTable: true} {
		rows := slices.DeleteFunc(slices.Clone(earlier), func(r locked) bool { return (r.Kinds == -1) != archived })
		for _, part := range chunks(rows, tx.s.d.ChunkRows) {
			if _, err := tx.exec(sq.Update(table).Set("latest", 1).Where(idIn("id", idsOf(part)))); err != nil {
				return err
			}
			if err := tx.eventsFrom(table, part, "counts again: "+why); err != nil {
				return err
			}
		}
	}
	stands := slices.DeleteFunc(earlier, func(r locked) bool { return r.FinishState != capri.Success })
	return tx.bulk("dependency_change", []string{"kind", "task_id", "batch_no"}, len(stands), func(i int, args []any) []any {
		return append(args, changedParent, int64(stands[i].TaskID), string(stands[i].BatchNo))
	})
}

// KillItems asks for the end of the next batches of a campaign that are not undone: those after a seq (-1: from the first).
// It returns of how many, and up to which seq it looked.
func (s *Store) KillItems(ctx context.Context, lease capri.Lease, c capri.Campaign, after int) (asked, up int, err error) {
	items, err := collect(ctx, s.read, killQuery(c.ID, after), scanMoved)
	if err != nil || len(items) == 0 {
		return 0, after, s.fault("look for what runs of a campaign", err)
	}
	ids := make([]capri.BatchID, len(items))
	for i, it := range items {
		ids[i] = it.Batch
	}
	err = s.WriteAs(ctx, "kill batches of a campaign", lease, func(tx *Tx) error {
		killed, told, err := tx.RequestKill(ids, fmt.Sprintf("campaign %d was cancelled: %s", c.ID, c.Message))
		asked = len(killed) + len(told)
		return err
	})
	return asked, items[len(items)-1].Seq, err
}

func killQuery(id capri.CampaignID, after int) sq.SelectBuilder {
	return sq.Select(movedColumns...).From("campaign_item i").Join("task_work w ON w.id = i.batch_id").
		Where(sq.Eq{"i.campaign_id": int64(id), "i.state": []int{2, 3}, "w.kill_request": 0}).Where(sq.Gt{"i.seq": after}).
		Where("w.state <> 3 AND NOT (" + undoable + ")").OrderBy("i.seq").Limit(uint64(itemChunk))
}

// CloseCampaign ends a campaign of which nothing is left to do, with its report and the alert about it, if people are to
// be told.
func (s *Store) CloseCampaign(ctx context.Context, lease capri.Lease, c capri.Campaign, to capri.CampaignState, report string, told *capri.Alert) error {
	return s.WriteAs(ctx, "close a campaign", lease, func(tx *Tx) error {
		if _, err := tx.lockCampaign(c.ID, c.State); err != nil {
			if errors.Is(err, capri.ErrConflict) {
				return nil
			}
			return err
		}
		left := 0
		if _, err := one(tx.ctx, tx.tx, sq.Select("COUNT(*)").From("campaign_item").Where(sq.Eq{"campaign_id": int64(c.ID), "state": []int{1, 2, 3}}), &left); err != nil || left > 0 {
			return err
		}
		if _, err := tx.exec(sq.Update("campaign").SetMap(sq.Eq{"state": int(to), "finished_at": int64(tx.Now), "message": cut(report, 16_000)}).Where(sq.Eq{"id": int64(c.ID)})); err != nil {
			return err
		}
		if told == nil {
			return nil
		}
		return tx.Alert(*told)
	})
}

// HoldingCampaigns tells which campaign holds which batch back.
func (s *Store) HoldingCampaigns(ctx context.Context, ids []capri.BatchID) (map[capri.BatchID]capri.Campaign, error) {
	out := map[capri.BatchID]capri.Campaign{}
	for _, part := range chunks(ids, s.d.ChunkRows) {
		err := query(ctx, s.read, holdingQuery(part), func(r *sql.Rows) error {
			var id capri.BatchID
			c, err := scanCampaign(r, &id)
			out[id] = c
			return err
		})
		if err != nil {
			return nil, s.fault("look for campaigns that hold batches back", err)
		}
	}
	return out, nil
}

func holdingQuery(ids []capri.BatchID) sq.SelectBuilder {
	columns := make([]string, len(campaignColumns))
	for i, c := range campaignColumns {
		columns[i] = "c." + c
	}
	return sq.Select(columns...).Column("i.batch_id").From("campaign_item i").Join("campaign c ON c.id = i.campaign_id").Where(sq.Eq{"i.state": int(capri.ItemHeldBack)}).Where(idIn("i.batch_id", ids))
}

// ForgetCampaigns deletes previews that nobody ran, and what is over since long, with their items; at most limit.
func (s *Store) ForgetCampaigns(ctx context.Context, lease capri.Lease, previews, over capri.Instant, limit int) (int, error) {
	var ids []int64
	err := query(ctx, s.read, sq.Select("id").From("campaign").Where(fmt.Sprintf("(state IN (0, 1) AND created_at < %d OR state IN (6, 7, 8) AND finished_at < %d)", previews, over)).OrderBy("id").Limit(uint64(limit)), func(r *sql.Rows) error {
		var id int64
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	})
	if err != nil || len(ids) == 0 {
		return 0, s.fault("look for old campaigns", err)
	}
	for _, id := range ids {
		gone := false
		for !gone && err == nil {
			err = s.WriteAs(ctx, "forget old campaigns", lease, func(tx *Tx) error {
				// First nobody sees it any more: a preview that somebody runs at this moment stays, or goes as a whole.
				_, err := tx.exec(sq.Update("campaign").Set("state", int(capri.CampaignPlanning)).Where(sq.Eq{"id": id, "state": []int{0, 1, 6, 7, 8}}))
				if err != nil {
					return err
				}
				state := 0
				found, err := one(tx.ctx, tx.tx, sq.Select("state").From("campaign").Where(sq.Eq{"id": id}), &state)
				if gone = !found || state != 0; err != nil || gone {
					return err
				}
				var seqs []int64
				if err := tx.query(sq.Select("seq").From("campaign_item").Where(sq.Eq{"campaign_id": id}).OrderBy("seq").Limit(2000), func(r *sql.Rows) error {
					var seq int64
					err := r.Scan(&seq)
					seqs = append(seqs, seq)
					return err
				}); err != nil {
					return err
				}
				for _, part := range chunks(seqs, tx.s.d.ChunkRows) {
					if _, err := tx.exec(sq.Delete("campaign_item").Where(sq.Eq{"campaign_id": id}).Where(idIn("seq", part))); err != nil {
						return err
					}
				}
				if gone = len(seqs) == 0; gone {
					_, err = tx.exec(sq.Delete("campaign").Where(sq.Eq{"id": id, "state": 0}))
				}
				return err
			})
		}
		if err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// UnsuccessfulItems lists what a report names: items that ended otherwise than well, and unfinished ones that were left.
func (s *Store) UnsuccessfulItems(ctx context.Context, id capri.CampaignID, limit int) ([]ItemRow, error) {
	q := sq.Select(itemColumns...).Columns("t.name").From("campaign_item i").Join("task t ON t.id = i.task_id").Where(sq.Eq{"i.campaign_id": int64(id), "i.dropped": 0}).
		Where("(i.state = 4 AND i.finish_state <> 1 OR i.action IN (5, 6, 9, 10))").OrderBy("i.seq").Limit(uint64(limit))
	var out []ItemRow
	err := query(ctx, s.read, q, func(r *sql.Rows) error {
		var row ItemRow
		var err error
		row.CampaignItem, err = scanItem(r, &row.TaskName)
		out = append(out, row)
		return err
	})
	return out, s.fault("list what did not succeed of a campaign", err)
}

// MeanMinutes is what tasks took on the mean since an instant's batches, for those that have succeeded since then.
func (s *Store) MeanMinutes(ctx context.Context, tasks []capri.TaskID, since capri.Instant) (map[capri.TaskID]int, error) {
	// batch_no begins with its year, month and day, or week, so the newest are a walk at the end of the task's key.
	first := time.UnixMilli(int64(since)).UTC().Format("20060102")
	out := map[capri.TaskID]int{}
	for _, part := range chunks(tasks, s.d.ChunkRows) {
		err := query(ctx, s.read, sq.Select("task_id", "AVG(finish_time - start_time)").From("task_work").Where(idIn("task_id", part)).
			Where("batch_no >= ? AND state = 3 AND finish_state = 1 AND start_time IS NOT NULL", first).GroupBy("task_id"), func(r *sql.Rows) error {
			var id capri.TaskID
			var ms float64
			err := r.Scan(&id, &ms)
			out[id] = int((ms + 59_999) / 60_000)
			return err
		})
		if err != nil {
			return nil, s.fault("read what tasks took", err)
		}
	}
	return out, nil
}
