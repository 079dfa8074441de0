package store

import (
	"fmt"
	"slices"

	"capri"
)

// Notices of ends, for owners who asked for them (alert.notify_on; seed 001): by how a batch ended.
var notices = map[capri.FinishState]struct {
	on    string // as the task file says it
	words string
	alert capri.Alert
}{
	capri.Success: {"success", "has succeeded", capri.Alert{Kind: "ended_success"}},
	capri.Failed:  {"failed", "has failed", capri.Alert{Kind: "ended_failed"}},
	capri.Killed:  {"killed", "was killed", capri.Alert{Kind: "ended_killed"}},
	capri.Skipped: {"skipped", "was skipped", capri.Alert{Kind: "ended_skipped"}},
}

// noticeEnds tells owners of batches that end in this transaction. Nearly none asks for it, which the row itself says.
func (tx *Tx) noticeEnds(rows []locked, how any) error {
	state, ok := how.(int)
	if !ok {
		return nil
	}
	var ends []notified
	for _, r := range rows {
		if r.Kinds&kindNotifies != 0 {
			ends = append(ends, notified{r.ID, VersionKey{r.TaskID, r.TaskVersion}, r.BatchNo})
		}
	}
	return tx.notice(ends, capri.FinishState(state))
}

// noticeBorn is noticeEnds for batches that are born skipped.
func (tx *Tx) noticeBorn(batches []*capri.NewBatch) error {
	var ends []notified
	for _, b := range batches {
		if b.Notifies && b.State == capri.Finished && b.FinishState == capri.Skipped {
			ends = append(ends, notified{b.ID, VersionKey{b.TaskID, b.TaskVersion}, b.BatchNo})
		}
	}
	return tx.notice(ends, capri.Skipped)
}

type notified struct {
	id   capri.BatchID
	task VersionKey
	no   capri.BatchNo
}

func (tx *Tx) notice(ends []notified, how capri.FinishState) error {
	n, ok := notices[how]
	if !ok || len(ends) == 0 {
		return nil
	}
	keys := make([]VersionKey, len(ends))
	for i, e := range ends {
		keys[i] = e.task
	}
	tasks, err := taskVersions(tx.ctx, tx.tx, tx.s.d.ChunkRows, keys)
	if err != nil {
		return err
	}
	var alerts []capri.Alert
	for _, e := range ends {
		t := tasks[e.task]
		if t == nil || t.Broken != "" || !slices.Contains(t.Alert.NotifyOn, n.on) {
			continue
		}
		a := n.alert
		a.Key, a.Level, a.Task, a.Batch = fmt.Sprintf("%s:%d:%d", a.Kind, e.id, tx.Now), capri.Attention, t.ID, e.id
		a.Title = fmt.Sprintf("%s %s %s (batch %d)", t.Name, e.no, n.words, e.id)
		alerts = append(alerts, a)
	}
	return tx.Alerts(alerts)
}

// IsNotice tells whether alerts of a kind are notices to an owner, and not of trouble.
func IsNotice(kind string) bool {
	for _, n := range notices {
		if n.alert.Kind == kind {
			return true
		}
	}
	return false
}
