package lease

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// newMember has a clock that moves only while it waits; meanwhile happens in each of its pauses.
func newMember(s *store.Store, name string, meanwhile func()) *Member {
	m := NewMember(MemberOptions{Store: s, Name: name, Host: "h", Log: slog.New(slog.DiscardHandler)})
	clock := time.Unix(0, 0)
	m.now = func() time.Time { return clock }
	m.pause = func(ctx context.Context, d time.Duration) bool {
		clock = clock.Add(d)
		if meanwhile != nil {
			meanwhile()
		}
		return ctx.Err() == nil
	}
	return m
}

func masterRow(t *testing.T, s *store.Store, name string) store.Master {
	t.Helper()
	all, err := s.Masters(t.Context())
	require.NoError(t, err)
	for _, m := range all {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("there is no master %s", name)
	return store.Master{}
}

func TestAName_whose_owner_beats_is_refused(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		first := newMember(db.Store, "m", nil)
		require.NoError(t, first.Register(t.Context()))
		pauses := 0
		second := newMember(db.Again(t), "m", func() {
			if pauses++; pauses%5 == 0 { // once in five seconds
				require.NoError(t, first.beat(t.Context()))
			}
		})
		err := second.Register(t.Context())
		require.ErrorIs(t, err, capri.ErrConflict)
		require.ErrorContains(t, err, "--name")
		require.Equal(t, first.me.Instance, masterRow(t, db.Store, "m").Instance)
	})
}

func TestAName_whose_owner_says_nothing_is_taken_after_three_beats(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		first := newMember(db.Store, "m", nil)
		require.NoError(t, first.Register(t.Context()))
		second := newMember(db.Again(t), "m", nil)
		began := second.now()
		require.NoError(t, second.Register(t.Context()))
		require.InDelta(t, (missedBeats * BeatEvery).Seconds(), second.now().Sub(began).Seconds(), 1.5)
		require.Equal(t, second.me.Instance, masterRow(t, db.Store, "m").Instance)
		require.NotEqual(t, first.Holder(), second.Holder())
		err := first.beat(t.Context())
		require.ErrorIs(t, err, capri.ErrConflict, "it was only frozen, and ends")
		require.NoError(t, second.beat(t.Context()))
	})
}

func TestAName_is_free_at_once_where_its_owner_signed_off_or_its_process_is_gone(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		first := newMember(db.Store, "m", nil)
		require.NoError(t, first.Register(t.Context()))
		require.False(t, gone(masterRow(t, db.Store, "m")), "it is this process")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, first.Run(done))
		require.True(t, masterRow(t, db.Store, "m").Stopped)

		second := newMember(db.Again(t), "m", func() { t.Error("it waits for nobody") })
		require.NoError(t, second.Register(t.Context()))
		require.False(t, masterRow(t, db.Store, "m").Stopped)

		ended := exec.Command("true")
		require.NoError(t, ended.Run())
		_, err := db.Store.DB().ExecContext(t.Context(), "UPDATE capri_master SET pid = ?", ended.Process.Pid)
		require.NoError(t, err)
		third := newMember(db.Again(t), "m", func() { t.Error("it waits for nobody") })
		require.NoError(t, third.Register(t.Context()))
		require.Equal(t, os.Getpid(), masterRow(t, db.Store, "m").PID)

		// The same number on another machine, or in another container, says nothing.
		_, err = db.Store.DB().ExecContext(t.Context(), "UPDATE capri_master SET pid = ?, instance = ?", ended.Process.Pid, "elsewhere-1")
		require.NoError(t, err)
		require.False(t, gone(masterRow(t, db.Store, "m")))
	})
}

func TestTwoThatWait_for_one_name_get_it_once(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		require.NoError(t, newMember(db.Store, "m", nil).Register(t.Context()))
		// The second one registers while the third waits: the third then watches it, sees it beat, and is refused.
		second := newMember(db.Again(t), "m", nil)
		pauses := 0
		third := newMember(db.Again(t), "m", func() {
			if pauses++; pauses == 3 {
				require.NoError(t, second.Register(t.Context()))
			} else if pauses > 3 {
				require.NoError(t, second.beat(t.Context()))
			}
		})
		require.ErrorIs(t, third.Register(t.Context()), capri.ErrConflict)
		require.Equal(t, second.me.Instance, masterRow(t, db.Store, "m").Instance)
	})
}

func TestARegistration_that_somebody_deleted_is_made_again(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		m := newMember(db.Store, "m", nil)
		require.NoError(t, m.Register(t.Context()))
		_, err := db.Store.DB().ExecContext(t.Context(), "DELETE FROM capri_master")
		require.NoError(t, err)
		require.NoError(t, m.beat(t.Context()))
		require.Equal(t, m.me.Instance, masterRow(t, db.Store, "m").Instance)
	})
}

func TestRegistering_waits_for_a_database_that_is_away(t *testing.T) {
	db := sqltest.MySQL(t)
	s := db.Again(t)
	require.NoError(t, s.Close())
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	m := newMember(s, "m", func() {
		if tries++; tries == 3 {
			cancel()
		}
	})
	require.ErrorIs(t, m.Register(ctx), context.Canceled)
	require.Equal(t, 3, tries)
}

func TestWhoLives_is_told_by_counters_that_move(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a, b, c := newMember(db.Store, "a", nil), newMember(db.Store, "b", nil), newMember(db.Store, "c", nil)
		for _, m := range []*Member{a, b, c} {
			require.NoError(t, m.Register(t.Context()))
		}
		clock := time.Unix(1000, 0)
		a.now = func() time.Time { return clock }
		live := func() int {
			require.NoError(t, a.look(t.Context()))
			n, _ := a.count()
			return n
		}
		require.Equal(t, 3, live())
		clock = clock.Add(BeatEvery)
		require.Equal(t, 3, live())
		clock = clock.Add(BeatEvery)
		require.NoError(t, b.beat(t.Context()))
		require.Equal(t, 3, live())
		_, stable := a.count()
		require.Equal(t, 2*BeatEvery, stable)
		clock = clock.Add(BeatEvery)
		require.Equal(t, 2, live(), "c stood still for three beats")
		_, stable = a.count()
		require.Zero(t, stable)
		a.lapsed(b.Holder())
		require.Equal(t, 1, live(), "who lets a lease lapse is not waited for")
		require.NoError(t, b.beat(t.Context()))
		require.Equal(t, 2, live())
		require.NoError(t, db.Store.StopMaster(t.Context(), "b", b.me.Instance))
		require.Equal(t, 1, live())
	})
}
