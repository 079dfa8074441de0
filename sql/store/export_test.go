package store

import (
	"context"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// IdentityText is asked for each request.
func IdentityText(hash string) (string, []any) {
	text, args, _ := identityQuery("0", hash).ToSql()
	return text, args
}

// ReadyText and RecountText are statements whose plans a test looks at.
func ReadyText(now capri.Instant, limit int) (string, []any) {
	text, args, _ := readyQuery(now, 0, ReadyAfter{}, limit).ToSql()
	return text, args
}

func RecountText(ids []capri.BatchID) (string, []any) {
	text, args, _ := sq.Update("task_work").Set("unmet", sq.Expr(unmetNow)).Where(idIn("id", ids)).ToSql()
	return text, args
}

// ActionsText is the list of actions of somebody who may not read all.
func ActionsText(f ActionFilter) (string, []any) {
	text, args, _ := actions(f).ToSql()
	return text, args
}

// ServiceRunsText is a page of a service's runs.
func ServiceRunsText(f RunFilter) (string, []any) {
	text, args, _ := serviceRuns(f).ToSql()
	return text, args
}

// DueText, EndedText and FirstEvent are those of deadlines and durations.
func DueText(now capri.Instant, after DueDeadline, limit int) (string, []any) {
	text, args, _ := dueQuery(now, after, limit).ToSql()
	return text, args
}

func EndedText() []string {
	in := span{from: 1, to: 2, first: 10, beyond: 20}
	return []string{sq.DebugSqlizer(longestSuccesses(in)), sq.DebugSqlizer(longestOver(in, time.Hour))}
}

func (s *Store) FirstEvent(ctx context.Context, at capri.Instant) (int64, error) {
	return s.firstEvent(ctx, at)
}

func GatedText(limit int) (string, []any) {
	text, args, _ := gatedQuery(ReadyAfter{}, limit).ToSql()
	return text, args
}

// ArchivedColumns are the columns that move to the archive.
func ArchivedColumns() (batches, events []string) { return archivedColumns, archivedEventColumns }

// OldBatchesText, MeetText and MissingText are statements around the archive.
func OldBatchesText(after capri.BatchID, before capri.Instant, limit int) (string, []any) {
	text, args, _ := oldBatchesQuery(after, before, limit).ToSql()
	return text, args
}

func MeetText(ids []capri.BatchID) (string, []any) {
	text, args, _ := idIn("batch_id", ids).ToSql()
	return "UPDATE tparent_data SET state = 1 WHERE state = 0 AND " + text + " AND " + parentSucceeded("tparent_data"), args
}

func MissingText(p capri.Period, mark capri.Instant, no capri.BatchNo, limit int) (string, []any) {
	text, args, _ := missingBatches(p, mark, no, limit).ToSql()
	return text, args
}

// AlertTexts are the statements that the alert service asks each second or so.
func (s *Store) AlertTexts(now capri.Instant) map[string]sq.SelectBuilder {
	return map[string]sq.SelectBuilder{"alert_incident": s.newAlerts(500), "alert_delivery_due": dueDeliveries("mail", now, 8), "incident_next": dueIncidents(now, 500)}
}

// GaugeTexts are the statements that monitoring asks, by the index that each is to walk on.
func GaugeTexts(now capri.Instant) map[string]sq.SelectBuilder {
	return map[string]sq.SelectBuilder{"task_work_ready": countQuery(), "task_work_ready ": oldestReady(3, now), " task_work_ready": countReadyQuery(), "alert_delivery_due": queueQuery("mail"), "alert_incident": filingQuery()}
}

// BatchesOfFew lists as Batches does, with another number of entries that are few.
func (s *Store) BatchesOfFew(ctx context.Context, f BatchFilter, few int) ([]BatchRow, error) {
	return s.batches(ctx, f, few)
}

// ListTexts are the statements of a list by each of its accesses, and of the one that walks schedule_time.
func (s *Store) ListTexts(ctx context.Context, f BatchFilter) (map[string][]sq.Sqlizer, error) {
	l := &batchList{BatchFilter: f, s: s, few: few}
	if err := l.where(ctx); err != nil {
		return nil, err
	}
	out := map[string][]sq.Sqlizer{}
	all := l.accesses()
	if f.Order.Of == BySchedule {
		all = append(all, l.inTime())
	}
	for _, a := range all {
		out[a.index] = []sq.Sqlizer{l.page("task_work", &a)}
		for _, some := range a.counted {
			out[a.index] = append(out[a.index], l.counting(a, some, few))
		}
	}
	return out, nil
}

// CampaignListText is the statement of a list of a campaign's batches.
func (s *Store) CampaignListText(ctx context.Context, f BatchFilter) sq.Sqlizer {
	l := &batchList{BatchFilter: f, s: s, few: few}
	if err := l.where(ctx); err != nil {
		panic(err)
	}
	return l.page("task_work", nil)
}

// ChangesText is what a process asks once a second while somebody follows along.
func ChangesText(after int64) sq.SelectBuilder { return changesQuery(after, 5000) }

// Among is the condition by which batches are changed together.
func Among(ids ...capri.BatchID) string {
	rows := make([]locked, len(ids))
	for i, id := range ids {
		rows[i].ID = id
	}
	return (*Tx)(nil).amongText("id", rows)
}

// Born are changes that say that batches were made, by ranges of their ids.
func Born(ranges ...[2]capri.BatchID) []DependencyChange {
	changes := make([]DependencyChange, len(ranges))
	for i, r := range ranges {
		changes[i] = DependencyChange{kind: changedBatches, from: r[0], to: r[1]}
	}
	return changes
}

// BornTexts are what is asked about batches that were made.
func BornTexts(changes []DependencyChange) (texts []sq.SelectBuilder) {
	for _, b := range born(changes, "d.batch_id") {
		texts = append(texts, bornPaths(b))
	}
	return append(texts, candidatesOf(changes)...)
}

// UnmetTexts are what is asked about batches that wait, level by level.
func UnmetTexts(ids ...capri.BatchID) []sq.SelectBuilder {
	return []sq.SelectBuilder{unmetInputsQuery(ids), unmetThirdPartyQuery(ids), unmetParentsQuery(ids), unmetGroupedQuery(ids)}
}

// CampaignTexts are the statements of which a living campaign asks one or the other each half second.
func CampaignTexts(id capri.CampaignID, now capri.Instant) map[string]sq.SelectBuilder {
	return map[string]sq.SelectBuilder{
		"live": liveCampaignsQuery, "to claim": itemsQuery(id, 3000, 90_000, claimedAtOnce, capri.ItemPlanned, runningItems), "to make": itemsQuery(id, 3000, 90_000, madeAtOnce, capri.ItemClaimed, ""),
		"differences": differencesQuery(id, 3000, 3500, 20), "released": releaseQuery(id, now, itemChunk, false), "released up to a limit": releaseQuery(id, now, itemChunk, true),
		"in hand": inHandQuery(id), "held back": holdQuery(id, false), "held back by a pause": holdQuery(id, true), "ended": endedQuery(id), "undone": undoQuery(id, 1500), "killed": killQuery(id, 1000),
		"holding": holdingQuery([]capri.BatchID{1, 2, 3}),
	}
}
