package cleanup_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/services"
	"capri/services/cleanup"
	"capri/sql/sqltest"
	"capri/sql/store"
)

const day = 24 * time.Hour

type world struct {
	*sqltest.DB
	t       *testing.T
	ctx     context.Context
	lease   capri.Lease
	service *cleanup.Service
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		w := &world{DB: db, t: t, ctx: context.Background()}
		w.lead()
		fn(w)
	})
}

// lead makes another leader.
func (w *world) lead() {
	w.lease, w.service = w.Lease(w.t, "cleanup"), cleanup.New(w.Store)
}

// finished makes n batches that end now.
func (w *world) finished(n int) {
	w.t.Helper()
	task := w.Task(w.t, nil)
	batches := make([]*capri.NewBatch, n)
	for i := range batches {
		batches[i] = &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: 1, Period: capri.Day, BatchNo: capri.BatchNo(fmt.Sprint(i)), ScheduleTime: w.Clock.Now(),
			DataStart: w.Clock.Now().Add(-day), DataEnd: w.Clock.Now(), Pool: "default", State: capri.Finished, FinishState: capri.Skipped}}
	}
	_, err := w.Store.InsertBatches(w.ctx, store.ByPerson("test"), batches, nil)
	require.NoError(w.t, err)
}

func (w *world) turn() services.Result {
	w.t.Helper()
	res, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: w.lease})
	require.NoError(w.t, err)
	return res
}

func (w *world) archived() (n int) {
	w.t.Helper()
	require.NoError(w.t, w.Store.DB().QueryRowContext(w.ctx, "SELECT COUNT(*) FROM task_work_archive").Scan(&n))
	return n
}

func TestOldBatches_are_archived_by_the_setting(t *testing.T) {
	each(t, func(w *world) {
		w.finished(10)
		w.Clock.Advance(40 * day)
		w.finished(5)
		w.Clock.Advance(51 * day)
		w.Set(t, store.ArchiveDays, "0")
		require.Empty(t, w.turn().Counts, "never")
		w.Set(t, store.ArchiveDays, "200000")
		require.Empty(t, w.turn().Counts, "in five hundred years")
		w.Set(t, store.ArchiveDays, "ninety")
		require.Equal(t, map[string]int{"archived": 10}, w.turn().Counts, "what is no number is the default")
		w.Set(t, store.ArchiveDays, "50")
		require.Equal(t, map[string]int{"archived": 5}, w.turn().Counts)
		res := w.turn()
		require.Empty(t, res.Counts, "nothing to do leaves no trace")
		require.False(t, res.Again)
	})
}

func TestMuchToArchive_is_done_in_several_turns_also_by_several_leaders(t *testing.T) {
	each(t, func(w *world) {
		const n = 5_300 // more than a turn moves
		w.finished(n)
		w.Clock.Advance(91 * day)
		first := w.turn()
		require.True(t, first.Again, "others work in between")
		require.Equal(t, 5_000, first.Counts["archived"])
		w.lead() // the first dies
		for w.turn().Again {
			require.LessOrEqual(t, w.archived(), n)
		}
		require.Equal(t, n, w.archived())
	})
}

func TestBatchesThatStay_do_not_keep_the_walk_from_those_behind_them(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, nil)
		var waiting []*capri.NewBatch
		for i := range 5100 { // more than a turn looks at
			waiting = append(waiting, &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: 1, Period: capri.Day, BatchNo: capri.BatchNo(fmt.Sprint(i)), Pool: "default"}})
		}
		_, err := w.Store.InsertBatches(w.ctx, store.ByPerson("test"), waiting, nil)
		require.NoError(t, err)
		w.finished(10)
		w.Clock.Advance(91 * day)
		require.True(t, w.turn().Again)
		require.Equal(t, 10, w.turn().Counts["archived"])
	})
}

func TestAlertsOfMoreThanAYear_are_forgotten(t *testing.T) {
	each(t, func(w *world) {
		require.NoError(t, w.Store.Write(w.ctx, "alert", "test", func(tx *store.Tx) error {
			return tx.Alert(capri.Alert{Key: "k", Level: capri.Important, Kind: "k", Title: "t"})
		}))
		w.Clock.Advance(365 * day)
		require.Empty(t, w.turn().Counts)
		w.Clock.Advance(2 * day)
		require.Equal(t, map[string]int{"alerts": 1}, w.turn().Counts)
	})
}

func TestAStaleLeader_cleans_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.finished(1)
		w.Clock.Advance(91 * day)
		stale := w.lease
		w.Lease(t, "cleanup")
		_, err := w.service.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: stale})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Zero(t, w.archived())
	})
}
