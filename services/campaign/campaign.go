// Package campaign does what campaigns ask for: it is the only one that makes, releases and undoes their batches. People
// write what they want (package action); a turn brings each living campaign as far as it comes.
//
//	creating    claim the set, holding back what waits and killing what was to be killed
//	            make the runs, held back; what rested on the runs before waits again
//	            then one row releases the campaign
//	running     note what has ended, release what may go: all, or what is ready up to the limit
//	paused      hold back what was released and has not started
//	cancelling  undo what has not started, the last first
//
// Whatever is done stands in the items' states, so a turn that ends in the middle is gone on with by anybody.
package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"capri"
	"capri/birth"
	"capri/calendar"
	"capri/services"
	"capri/sql/store"
	"capri/wake"
)

const (
	// chunksATurn bounds a turn, so that its lease is asked for now and then.
	chunksATurn = 100
	// lookCost is what it costs to look at an item: a campaign of which nothing could be done is looked at again after as
	// many of it as it has open items, so that a hundred thousand that wait cost a few hundredths of a core.
	lookCost = 50 * time.Microsecond
	// namedItems is how many a report names.
	namedItems = 100
)

// Service is a row of the timetable. Make it with New.
type Service struct {
	store    *store.Store
	calendar calendar.Calendar
	log      *slog.Logger
	idle     map[capri.CampaignID]idle
}

// idle is a campaign of which nothing could be done when it was last looked at. Nothing but a look is lost with it.
type idle struct {
	state capri.CampaignState
	limit int
	until capri.Instant
}

// New makes the service.
func New(s *store.Store, c calendar.Calendar, log *slog.Logger) *Service {
	return &Service{store: s, calendar: c, log: log, idle: map[capri.CampaignID]idle{}}
}

// Run brings each living campaign on.
func (s *Service) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	res := services.Result{Counts: map[string]int{}}
	live, err := s.store.LiveCampaigns(ctx)
	if err != nil || len(live) == 0 {
		clear(s.idle)
		return res, err
	}
	var failed []error
	if slices.ContainsFunc(live, func(c capri.Campaign) bool { return c.State == capri.CampaignCreating }) {
		for _, c := range live { // what has ended of the others is in nobody's way
			if _, err := s.store.EndItems(ctx, t.Lease, c); err != nil {
				return res, err
			}
		}
	}
	for _, c := range live {
		if i, is := s.idle[c.ID]; is && i.state == c.State && i.limit == c.Limit && t.Now.Before(i.until) && !t.Woken {
			continue
		}
		turn := &turn{Service: s, t: t, c: c, counts: map[string]int{}, chunks: chunksATurn}
		if err := turn.step(ctx); err != nil {
			if errors.Is(err, capri.ErrStaleEpoch) || errors.Is(err, capri.ErrUnavailable) || ctx.Err() != nil {
				return res, err
			}
			failed = append(failed, fmt.Errorf("campaign %d: %w", c.ID, err)) // the others go on
		}
		delete(s.idle, c.ID)
		if len(turn.counts) == 0 && turn.open > 0 {
			s.idle[c.ID] = idle{c.State, c.Limit, t.Now.Add(time.Duration(turn.open) * lookCost)}
		}
		for what, n := range turn.counts {
			res.Counts[what] += n
		}
		res.Again = res.Again || turn.chunks <= 0
	}
	for what, topics := range map[string][]string{"made": {wake.Dependency}, "released": {wake.Dispatch, wake.Dependency}, "undone": {wake.Dependency, wake.Dispatch}, "killed": {wake.Worker}, "claimed": {wake.Worker}} {
		if res.Counts[what] > 0 {
			res.Wake = append(res.Wake, topics...)
		}
	}
	return res, errors.Join(failed...)
}

// turn is one campaign's part of a turn.
type turn struct {
	*Service
	t      services.Turn
	c      capri.Campaign
	counts map[string]int
	chunks int // how many are left to it
	open   int // items that have not ended
}

func (u *turn) step(ctx context.Context) error {
	if u.c.State == capri.CampaignCreating {
		if err := u.create(ctx); err != nil {
			return err
		}
		c, err := u.store.Campaign(ctx, u.c.ID) // released, refused or cancelled by now
		if err != nil || c.State == capri.CampaignCreating {
			return err
		}
		u.c = c
	}
	if err := u.repeat("ended", func() (int, error) { return u.store.EndItems(ctx, u.t.Lease, u.c) }); err != nil {
		return err
	}
	var err error
	switch u.c.State {
	case capri.CampaignRunning:
		err = u.release(ctx)
	case capri.CampaignPaused:
		err = u.repeat("held_back", func() (int, error) { return u.store.HoldItems(ctx, u.t.Lease, u.c, true) })
	case capri.CampaignCancelling:
		err = u.cancel(ctx)
	}
	if err != nil || u.chunks <= 0 {
		return err
	}
	open, err := u.store.OpenItems(ctx, u.c.ID)
	for _, n := range open {
		u.open += n
	}
	if err != nil || u.open > 0 {
		return err
	}
	return u.close(ctx)
}

// cancel undoes from the last item to the first. What it has passed when it comes back to waiting is the next turn's.
func (u *turn) cancel(ctx context.Context) error {
	before, after := u.c.Items, -1
	err := u.repeat("undone", func() (n int, err error) {
		n, before, err = u.store.UndoItems(ctx, u.t.Lease, u.c, before)
		return n, err
	})
	if err != nil || !u.c.KillRunning {
		return err
	}
	return u.repeat("killed", func() (n int, err error) {
		n, after, err = u.store.KillItems(ctx, u.t.Lease, u.c, after)
		return n, err
	})
}

// repeat takes a step of some hundred items until there is nothing left for it.
func (u *turn) repeat(what string, step func() (int, error)) error {
	for ; u.chunks > 0; u.chunks-- {
		n, err := step()
		if err != nil || n == 0 {
			return err
		}
		u.counts[what] += n
	}
	return nil
}

// A campaign that is not small is claimed and made in two parts at once: while one writes the other works out, and a server
// writes for both. They are its halves, since neighbours wait for each other's rows.
const (
	parts = 2
	small = 500
)

// inParts takes a step through the items in [from, to) again and again, part by part. A step does the next items of its part,
// and says where the part goes on, and how many they were. all: every part is at its end.
func (u *turn) inParts(ctx context.Context, what string, from, to int, step func(ctx context.Context, part, from, to int) (next, n int, err error)) (all bool, err error) {
	many := parts
	if to-from <= small {
		many = 1
	}
	var at, end, done, left [parts]int
	eg, ctx := errgroup.WithContext(ctx)
	for i := range many {
		at[i], end[i], left[i] = from+(to-from)*i/many, from+(to-from)*(i+1)/many, u.chunks/many
		eg.Go(func() error {
			for ; at[i] < end[i] && left[i] > 0; left[i]-- {
				next, n, err := step(ctx, i, at[i], end[i])
				if err != nil {
					return err
				}
				at[i], done[i] = next, done[i]+n
			}
			return nil
		})
	}
	err = eg.Wait()
	u.chunks = 0
	for i := range many {
		u.chunks += left[i]
		if done[i] > 0 {
			u.counts[what] += done[i]
		}
	}
	return err == nil && at == end, err
}

// create claims the set and makes its runs. That all of it is as it was previewed was proved when it was started, and is
// proved under locks as it is made; what is not has all of it undone.
func (u *turn) create(ctx context.Context) error {
	made, inTheWay, err := u.claim(ctx)
	switch {
	case err != nil:
		return stopped(err)
	case len(inTheWay) > 0:
		return u.refuse(ctx, Differences(inTheWay))
	case made == nil:
		return nil
	}
	waits, all, err := made.all(ctx)
	switch {
	case errors.Is(err, capri.ErrConflict) || errors.Is(err, capri.ErrInvalid):
		return u.differs(ctx, err)
	case err != nil:
		return err
	case waits != 0:
		u.open = 1
		return u.note(ctx, fmt.Sprintf("it waits for batch %d to end, which is being killed", waits))
	case all:
		return stopped(u.store.OpenCampaign(ctx, u.t.Lease, u.c.ID))
	}
	return nil
}

// claim takes the set, and reads meanwhile what it takes to make batches of it.
func (u *turn) claim(ctx context.Context) (made *making, inTheWay []store.Difference, err error) {
	eg, reading := errgroup.WithContext(ctx)
	eg.Go(func() (err error) {
		made, err = u.newMaking(reading)
		return err
	})
	differ := [parts][]store.Difference{}
	all, err := u.inParts(ctx, "claimed", 0, u.c.Items, func(ctx context.Context, part, from, to int) (next, n int, err error) {
		items, some, err := u.store.ClaimItems(ctx, u.t.Lease, u.c, from, to)
		if differ[part] = some; err != nil || len(items) == 0 {
			return to, 0, err
		}
		return items[len(items)-1].Seq + 1, len(items), nil
	})
	if err = cmp.Or(err, eg.Wait()); err != nil || !all {
		made = nil // more is to be claimed
	}
	return made, slices.Concat(differ[:]...), err
}

// differs refuses a campaign of which something could not be made, and says what has changed where that can be seen.
func (u *turn) differs(ctx context.Context, why error) error {
	c, err := u.store.Campaign(ctx, u.c.ID)
	if err != nil || c.State != capri.CampaignCreating { // cancelled at this moment
		return err
	}
	from, to, _, err := u.store.ToMake(ctx, u.c.ID)
	if err != nil {
		return err
	}
	differ, err := u.store.CampaignDifferences(ctx, u.c.ID, from, to, store.DifferencesNamed)
	switch {
	case err != nil:
		return err
	case len(differ) > 0:
		return u.refuse(ctx, Differences(differ))
	}
	return u.refuse(ctx, why.Error())
}

// stopped: a campaign that somebody has cancelled at this moment is no error.
func stopped(err error) error {
	if errors.Is(err, capri.ErrConflict) {
		return nil
	}
	return err
}

func (u *turn) note(ctx context.Context, message string) error {
	if u.c.Message == message {
		return nil
	}
	return u.store.NoteCampaign(ctx, u.t.Lease, u.c, message)
}

func (u *turn) refuse(ctx context.Context, why string) error {
	u.counts["refused"]++
	u.log.Info("a campaign is refused: something had changed since its preview", "campaign", u.c.ID, "what", why)
	return stopped(u.store.RefuseCampaign(ctx, u.t.Lease, u.c.ID, why))
}

// Differences says for people what is not any more as it was previewed.
func Differences(all []store.Difference) string {
	lines := make([]string, len(all))
	for i, d := range all {
		lines[i] = fmt.Sprintf("%s %s: %s", d.Task, d.Item.BatchNo, d.What)
	}
	return strings.Join(lines, "; ")
}

// making makes batches of items against one state of the definitions.
type making struct {
	*turn
	maker  *birth.Maker
	former *birth.Former
	first  map[capri.TaskID]capri.Instant // that are earlier than any there was: whatever waits for a task waits for these, too
	tasks  map[capri.TaskID]*birth.Task
}

func (u *turn) newMaking(ctx context.Context) (*making, error) {
	first, err := u.store.FirstMarks(ctx, u.c.ID)
	if err != nil {
		return nil, err
	}
	rows, err := u.store.ParentRefs(ctx)
	if err != nil {
		return nil, err
	}
	for id, mark := range first {
		r, ok := rows[id]
		if !ok || r.FirstMark <= mark {
			delete(first, id)
			continue
		}
		r.FirstMark = mark
		rows[id] = r
	}
	m := birth.New(u.calendar, birth.Refs(rows))
	return &making{u, m, birth.NewFormer(u.store, m), first, map[capri.TaskID]*birth.Task{}}, nil
}

// all makes the runs of what is claimed. waits is a batch that stands before the rest, and has to end.
func (m *making) all(ctx context.Context) (waits capri.BatchID, all bool, err error) {
	from, to, waits, err := m.store.ToMake(ctx, m.c.ID)
	if err != nil {
		return 0, false, err
	}
	if from == to {
		return waits, waits == 0, nil
	}
	// The ids of a part follow one another, and when it runs again its rows are no neighbours of the other's either.
	reserved, err := m.store.ReserveBatchIDs(ctx, to-from)
	if err != nil {
		return 0, false, err
	}
	base := reserved - capri.BatchID(from)
	makers := [parts]making{}
	for i := range makers {
		makers[i] = *m
		makers[i].tasks, makers[i].former = map[capri.TaskID]*birth.Task{}, birth.NewFormer(m.store, m.maker)
	}
	all, err = m.inParts(ctx, "made", from, to, func(ctx context.Context, part, from, to int) (next, n int, err error) {
		items, err := m.store.ItemsToMake(ctx, m.c.ID, from, to)
		if err != nil || len(items) == 0 {
			return to, 0, err
		}
		return items[len(items)-1].Seq + 1, len(items), makers[part].write(ctx, items, base)
	})
	return waits, all && waits == 0, err
}

// write works out the runs of items, and makes them in one transaction.
func (m *making) write(ctx context.Context, items []capri.CampaignItem, base capri.BatchID) error {
	batches, first, err := m.workOut(ctx, items)
	if err != nil {
		return err
	}
	return m.store.MakeItems(ctx, m.t.Lease, m.c, items, batches, base, first)
}

// workOut gives the batches of items, and the tasks that have none earlier by their marks.
func (m *making) workOut(ctx context.Context, items []capri.CampaignItem) (batches []*capri.NewBatch, first map[capri.Instant][]capri.TaskID, err error) {
	if err := m.read(ctx, items); err != nil {
		return nil, nil, err
	}
	var ids []capri.BatchID
	for _, it := range items {
		if it.Old != 0 {
			ids = append(ids, it.Old)
		}
	}
	olds, err := m.store.ArchivedByID(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	origin := map[capri.CampaignKind]capri.Origin{capri.CampaignRerun: capri.OriginRerun, capri.CampaignColdStart: capri.OriginColdStart}[m.c.Kind]
	batches = make([]*capri.NewBatch, len(items))
	first = map[capri.Instant][]capri.TaskID{}
	for i, it := range items {
		if batches[i], err = m.maker.Batch(m.tasks[it.Task], it.Interval, origin, 0, m.t.Now); err != nil {
			return nil, nil, err
		}
		if batches[i].Former, err = m.former.Outputs(ctx, olds[it.Old].Batch); err != nil {
			return nil, nil, err
		}
		if mark, ok := m.first[it.Task]; ok && it.Mark <= mark {
			first[mark] = append(first[mark], it.Task)
		}
	}
	return batches, first, nil
}

// read compiles the tasks of items that were not seen yet. They are made by the version that was previewed or not at all.
func (m *making) read(ctx context.Context, items []capri.CampaignItem) error {
	var ids []capri.TaskID
	for _, it := range items {
		if m.tasks[it.Task] == nil {
			ids = append(ids, it.Task)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := m.store.TasksByID(ctx, ids)
	if err != nil {
		return err
	}
	for _, it := range items {
		switch t := found[it.Task]; {
		case m.tasks[it.Task] != nil:
		case t == nil || t.DeletedAt != 0 || !t.Enabled || t.Version != it.TaskVersion:
			return capri.Conflict("task %d was edited at this moment", it.Task)
		default:
			if m.tasks[it.Task], err = birth.Compile(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// release lets go what may: without a limit all, else what is ready, as much as there is room for. What is released under
// a limit and has to wait again, since something it rests on was revoked, gives its place to others: were it to keep it, a
// campaign could wait for itself.
func (u *turn) release(ctx context.Context) error {
	if u.c.Limit == 0 {
		return u.repeat("released", func() (int, error) {
			n, _, err := u.store.ReleaseItems(ctx, u.t.Lease, u.c, u.t.Now, 0)
			return n, err
		})
	}
	if err := u.repeat("held_back", func() (int, error) { return u.store.HoldItems(ctx, u.t.Lease, u.c, false) }); err != nil {
		return err
	}
	inHand, err := u.store.InHand(ctx, u.c.ID)
	for room := u.c.Limit - inHand; err == nil && room > 0 && u.chunks > 0; u.chunks-- {
		n, more := 0, false
		if n, more, err = u.store.ReleaseItems(ctx, u.t.Lease, u.c, u.t.Now, room); n > 0 {
			u.counts["released"] += n
		}
		if room -= n; !more {
			break
		}
	}
	return err
}

// close ends a campaign of which nothing is open, with its report; of a cold start it is mailed.
func (u *turn) close(ctx context.Context) error {
	to := capri.CampaignDone
	switch {
	case u.c.Refused:
		to = capri.CampaignRefused
	case u.c.State == capri.CampaignCancelling:
		to = capri.CampaignCancelled
	}
	report, err := Report(ctx, u.store, u.c)
	if err != nil {
		return err
	}
	if u.c.Message != "" && to != capri.CampaignDone {
		report = u.c.Message + "; " + report
	}
	var told *capri.Alert
	if u.c.Kind == capri.CampaignColdStart && to != capri.CampaignRefused {
		told = &capri.Alert{Key: fmt.Sprintf("cold_start_done:%d", u.c.ID), Level: capri.Attention, Kind: "cold_start_done",
			Title: fmt.Sprintf("Cold start %s by %s is %s", u.c.Target, u.c.Who, to), Text: report}
	}
	u.counts["closed"]++
	return u.store.CloseCampaign(ctx, u.t.Lease, u.c, to, report, told)
}

// Report says how a campaign stands: how many ended how, and which did not succeed.
func Report(ctx context.Context, s *store.Store, c capri.Campaign) (string, error) {
	counts, err := s.CampaignCounts(ctx, c.ID)
	if err != nil {
		return "", err
	}
	n := map[string]int{}
	for _, k := range counts {
		switch {
		case k.Dropped:
			n["dropped"] += k.N
		case !k.Action.Runs():
			n[k.Action.String()] += k.N
		case k.State == capri.ItemEnded:
			n[k.FinishState.String()] += k.N
		default:
			n[k.State.String()] += k.N
		}
	}
	var parts []string
	for _, w := range []struct{ key, text string }{{"success", "succeeded"}, {"failed", "failed"}, {"killed", "were killed"}, {"skipped", "were skipped"}, {"undone", "were undone"},
		{"planned", "were not begun"}, {"exists", "were there already"}, {"left_alone", "had not finished and were left alone"}, {"in_the_way", "were in the way"},
		{"not_in_definition", "are not in the definition any more"}, {"disabled", "are of disabled tasks"}, {"refused", "could not be made"}, {"dropped", "were taken out"}} {
		if n[w.key] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[w.key], w.text))
		}
	}
	if len(parts) == 0 {
		return "nothing was to be done", nil
	}
	text := strings.Join(parts, ", ")
	bad, err := s.UnsuccessfulItems(ctx, c.ID, namedItems+1)
	if err != nil || len(bad) == 0 {
		return text, err
	}
	lines := []string{text}
	for i, it := range bad {
		if i == namedItems {
			lines = append(lines, "…")
			break
		}
		what := it.FinishState.String()
		if it.State != capri.ItemEnded {
			what = strings.ReplaceAll(it.Action.String(), "_", " ")
			if it.Note != "" {
				what += ": " + it.Note
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s", it.TaskName, it.BatchNo, what))
	}
	return strings.Join(lines, "\n"), nil
}
