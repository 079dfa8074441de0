package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestWho_calls_is_found_by_keys_alone(t *testing.T) {
	each(t, func(w *world) {
		require.NoError(t, w.Store.Write(w.ctx, "many", "test", func(tx *store.Tx) error {
			for i := range 200 {
				name := fmt.Sprintf("u%d", i)
				if err := errors.Join(tx.SaveUser(store.User{Name: name, Enabled: true}), tx.SetRole(name, "member"),
					tx.AddCredential(store.Credential{Kind: store.UserToken, Holder: name}, name)); err != nil {
					return err
				}
			}
			return nil
		}))
		text, args := store.IdentityText("u7")
		for _, line := range w.plan(text, args) {
			assert.NotContains(t, line, "SCAN", "%s", line)
			assert.NotContains(t, line, "join buffer", "%s", line)
		}
		i, err := w.Store.Identity(w.ctx, "u7")
		require.NoError(t, err)
		assert.Equal(t, []any{"u7", "member", true, w.Clock.Now()}, []any{i.Holder, i.Role, i.Enabled, i.Now})
		_, err = w.Store.Identity(w.ctx, "nobody's")
		assert.ErrorIs(t, err, capri.ErrNotFound)
	})
}

func TestWhat_has_ended_of_credentials_and_failures_is_forgotten_and_nothing_else(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				tx.AddCredential(store.Credential{Kind: store.UserSession, Holder: "a", ExpiresAt: tx.Now.Add(time.Hour)}, "1"),
				tx.AddCredential(store.Credential{Kind: store.UserToken, Holder: "a", ExpiresAt: tx.Now.Add(72 * time.Hour)}, "2"),
				tx.AddCredential(store.Credential{Kind: store.AppKey, Holder: "a"}, "3"))
		})
		count := func(subject string) (wait time.Duration) {
			write(t, db, func(tx *store.Tx) (err error) {
				wait, err = tx.CountLogin([]store.LoginSubject{{Subject: subject, Free: 1, Most: time.Minute, Memory: time.Hour}})
				return err
			})
			return wait
		}
		count("old")
		db.Clock.Advance(48 * time.Hour)
		count("new")
		lease := db.Lease(t, "cleanup")
		before := db.Clock.Now().Add(-24 * time.Hour)
		n, err := db.Store.ForgetCredentials(ctx, lease, before, 100)
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		n, err = db.Store.ForgetCredentials(ctx, lease, before, 100)
		require.NoError(t, err)
		assert.Zero(t, n)
		for hash, there := range map[string]bool{"1": false, "2": true, "3": true} {
			_, err := db.Store.Identity(ctx, hash)
			assert.Equal(t, there, err == nil, hash)
		}
		count("new")
		assert.Equal(t, time.Second, count("new"), "its failures are still counted")
	})
}

func TestACluster_secret_that_somebody_made_short_is_refused(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		db.Set(t, "cluster_secret", "geheim")
		_, err := db.Store.ClusterSecret(ctx)
		require.ErrorIs(t, err, capri.ErrInvalid)
		assert.Contains(t, err.Error(), "cluster_secret")
		assert.NotContains(t, err.Error(), "geheim")
	})
}
