package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/alerting/duty"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func rotaOf(t *testing.T, s duty.Spec) duty.Rota {
	t.Helper()
	r, wrong := duty.Parse(s, time.UTC)
	require.Empty(t, wrong)
	return r
}

func dutyOf(t *testing.T, department string) duty.Rota {
	t.Helper()
	return rotaOf(t, duty.Spec{Department: department, Timezone: "Asia/Shanghai", HandOver: "18:30",
		Primary:   duty.SpecRotation{People: []string{"alice", "鲍勃"}, Days: 14, Start: "2026-11-16"},
		Secondary: duty.SpecRotation{Weeks: []duty.SpecWeek{{From: "2026-11-16", User: "carol"}, {From: "2026-11-30", User: "dave"}}}})
}

func TestRotas_come_back_as_they_were_saved_the_systems_first(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		system := rotaOf(t, duty.Spec{Primary: duty.SpecRotation{People: []string{"erin"}, Start: "2026-11-16"}})
		write(t, db, func(tx *store.Tx) error { return errors.Join(tx.SaveRota(dutyOf(t, "dw")), tx.SaveRota(system)) })
		got, err := db.Store.Rotas(ctx)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, system.Spec(), got[0].Spec())
		require.Equal(t, dutyOf(t, "dw").Spec(), got[1].Spec())
		require.Empty(t, got[1].Broken)

		// A new rota takes the old one's place, with a place less.
		alone := rotaOf(t, duty.Spec{Department: "dw", Primary: duty.SpecRotation{People: []string{"erin"}, Start: "2026-12-01"}})
		write(t, db, func(tx *store.Tx) error { return tx.SaveRota(alone) })
		got, err = db.Store.Rotas(ctx)
		require.NoError(t, err)
		require.Equal(t, alone.Spec(), got[1].Spec())
	})
}

func TestARota_is_refused_where_it_would_not_fit_or_not_be_read_again(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		odd := dutyOf(t, "dw")
		odd.Primary.People = []string{"a,b"}
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.SaveRota(odd) }, "primary.people[0]")
		long := dutyOf(t, "dw")
		long.Primary.People = nil
		for range 200 {
			long.Primary.People = append(long.Primary.People, strings.Repeat("n", 128))
		}
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.SaveRota(long) }, "primary.people", "16000")
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { return tx.DeleteRota("dw") }, "dw", "capri duty set")
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { return tx.DeleteRota("") }, "the system")
	})
}

func TestARota_that_somebody_broke_by_hand_says_so_and_leaves_the_others_alone(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.SaveRota(dutyOf(t, "dw")), tx.SaveRota(dutyOf(t, "bi")))
		})
		o := duty.Override{Department: "bi", Place: duty.Primary, User: "erin", From: sqltest.Start, To: sqltest.Start.Add(time.Hour)}
		write(t, db, func(tx *store.Tx) error { _, err := tx.AddOverride(o); return err })
		for _, text := range []string{"UPDATE duty SET timezone = 'Mars/Base' WHERE department = 'bi'", "UPDATE duty SET place = 'third' WHERE department = 'bi' AND place = 'secondary'"} {
			_, err := db.Store.DB().ExecContext(ctx, text)
			require.NoError(t, err)
			got, err := db.Store.Rotas(ctx)
			require.NoError(t, err)
			require.Len(t, got, 2)
			require.NotEmpty(t, got[0].Broken)
			require.Empty(t, got[1].Broken)
			require.Equal(t, duty.Duty{Primary: "erin"}, duty.At(got[0], sqltest.Start), "overrides still count")
		}
	})
}

func TestOverrides_belong_to_a_rota_and_the_last_one_made_counts(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		o := duty.Override{Department: "dw", Place: duty.Primary, User: "erin", From: sqltest.Start, To: sqltest.Start.Add(time.Hour), Reason: "swap"}
		add := func(o duty.Override) (made duty.Override) {
			t.Helper()
			write(t, db, func(tx *store.Tx) (err error) { made, err = tx.AddOverride(o); return err })
			return made
		}
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { _, err := tx.AddOverride(o); return err }, "dw has no duty rota")
		write(t, db, func(tx *store.Tx) error { return tx.SaveRota(dutyOf(t, "dw")) })
		first := add(o)
		require.Equal(t, []any{"alice", sqltest.Start}, []any{first.By, first.CreatedAt})
		other := o
		other.User = "frank"
		second := add(other)
		require.Greater(t, second.ID, first.ID)
		who := func() string {
			rotas, err := db.Store.Rotas(ctx)
			require.NoError(t, err)
			return duty.At(rotas[0], sqltest.Start).Primary
		}
		require.Equal(t, "frank", who())
		again := add(o) // doing it again makes it the last one, and no second one
		require.Equal(t, "erin", who())
		all, err := db.Store.DutyOverrides(ctx)
		require.NoError(t, err)
		require.Equal(t, []duty.Override{second, again}, all)

		var deleted duty.Override
		write(t, db, func(tx *store.Tx) (err error) { deleted, err = tx.DeleteOverride(again.ID); return err })
		require.Equal(t, again, deleted)
		require.Equal(t, "frank", who())
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { _, err := tx.DeleteOverride(again.ID); return err }, "override")
		o.Reason = strings.Repeat("r", 256)
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { _, err := tx.AddOverride(o); return err }, "reason", "255")
		o.To = o.From
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { _, err := tx.AddOverride(o); return err }, "to")

		write(t, db, func(tx *store.Tx) error { return tx.DeleteRota("dw") })
		all, err = db.Store.DutyOverrides(ctx)
		require.NoError(t, err)
		require.Empty(t, all, "they go with their rota")
	})
}

func TestAlertGrants_are_two_rights_of_a_user_to_a_task(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		bob := store.AlertGrant{TaskID: 7, User: "bob", SMS: true, Mail: true}
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.GrantAlert(bob), tx.GrantAlert(store.AlertGrant{TaskID: 7, User: "ann", Mail: true}), tx.GrantAlert(store.AlertGrant{TaskID: 8, User: "bob", SMS: true}))
		})
		db.Clock.Advance(time.Hour)
		bob.Mail = false
		write(t, db, func(tx *store.Tx) error { return tx.GrantAlert(bob) })
		got, err := db.Store.AlertGrants(ctx, 7)
		require.NoError(t, err)
		bob.CreatedAt = sqltest.Start
		require.Equal(t, []store.AlertGrant{{TaskID: 7, User: "ann", Mail: true, CreatedAt: sqltest.Start}, bob}, got)
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.GrantAlert(store.AlertGrant{TaskID: 7, User: "x"}) }, "sms, mail or both")
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.GrantAlert(store.AlertGrant{TaskID: 7, SMS: true}) }, "user")

		write(t, db, func(tx *store.Tx) error { return tx.RevokeAlert(7, "orders", "ann") })
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { return tx.RevokeAlert(7, "orders", "ann") }, "ann", "orders")
		write(t, db, func(tx *store.Tx) error { return tx.RevokeAlertsOf("bob") })
		got, err = db.Store.AlertGrants(ctx)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}
