package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/internal/cluster"
	"capri/internal/testenv"
	"capri/sql/sqltest"
)

// leading tells which leases each master holds, by its name; "" are those that nobody holds.
func leading(t *testing.T, db *sqltest.DB) map[string][]string {
	t.Helper()
	all, err := db.Store.Locks(t.Context())
	require.NoError(t, err)
	by := map[string][]string{}
	for _, l := range all {
		name, _, _ := strings.Cut(l.Holder, "/")
		by[name] = append(by[name], l.Service)
	}
	return by
}

func TestThreeMasters_share_the_services_and_two_take_over_from_one_that_dies(t *testing.T) {
	t.Parallel() // they wait most of the time
	for name, redis := range map[string]func(*testing.T) string{"with Redis": func(t *testing.T) string { return testenv.Redis(t) }, "without": func(*testing.T) string { return "" }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := sqltest.MySQL(t)
			c := cluster.Start(t, db, cluster.Options{Masters: 3, Redis: redis(t), Deaf: true, LeaseStable: 3 * time.Second})
			began := time.Now()
			c.Wait(func() string {
				by, led := leading(t, db), 0
				for _, m := range c.Masters {
					led += len(by[m.Name])
					if len(by[m.Name]) > (len(capri.ServiceLeases)+2)/3 {
						return fmt.Sprintf("an equal share: %v", by)
					}
				}
				if led != len(capri.ServiceLeases) {
					return fmt.Sprintf("a leader for each: %v", by)
				}
				return ""
			})
			t.Logf("each leads his part after %s", time.Since(began).Round(100*time.Millisecond))

			dead := c.Masters[0]
			orphans := leading(t, db)[dead.Name]
			began = time.Now()
			dead.Crash()
			c.Wait(func() string {
				by := leading(t, db)
				if len(by[dead.Name]) > 0 || len(by[""]) > 0 {
					return fmt.Sprintf("a leader for each: %v", by)
				}
				return ""
			})
			t.Logf("%v were taken over after %s", orphans, time.Since(began).Round(100*time.Millisecond))
			for _, m := range c.Masters[1:] {
				require.LessOrEqual(t, len(leading(t, db)[m.Name]), (len(capri.ServiceLeases)+1)/2)
			}

			// One that stops in order is not waited for.
			began = time.Now()
			c.Masters[1].Stop()
			c.Wait(func() string {
				if by := leading(t, db); len(by[c.Masters[2].Name]) != len(capri.ServiceLeases) {
					return fmt.Sprintf("all with the last one: %v", by)
				}
				return ""
			})
			t.Logf("handed over after %s", time.Since(began).Round(100*time.Millisecond))
		})
	}
}
