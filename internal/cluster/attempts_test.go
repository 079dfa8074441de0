package cluster_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/internal/cluster"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// short are limits with which a silent node is called lost within seconds: its own are over long before.
func short(o cluster.Options) cluster.Options {
	o.BeatInterval, o.KillAfter, o.KillGrace, o.LostAfter, o.Hurry = 200*time.Millisecond, 8*time.Second, time.Second, 10*time.Second, 2
	return o
}

// witnessed is a job that waits for root/go, and writes to root/twice when another one of its task is alive: whatever it
// starts holds the lock, until the last of its processes has ended.
func witnessed(root string) string {
	return `exec 9>>` + root + `/lock.$CAPRI_TASK; flock -n 9 || echo "$CAPRI_TASK $CAPRI_ATTEMPT" >>` + root + `/twice
until [ -e ` + root + `/go ]; do sleep 0.05; done`
}

// noneTwice fails if two attempts of one task were alive at once.
func noneTwice(t *testing.T, root string) {
	t.Helper()
	text, err := os.ReadFile(root + "/twice")
	if !os.IsNotExist(err) {
		t.Errorf("these attempts began while another was alive (%v):\n%s", err, text)
	}
}

// Design §5.2.
func TestOne_at_a_time_when_a_worker_is_cut_off_and_comes_back(t *testing.T) {
	sqltest.EachAtOnce(t, func(t *testing.T, db *sqltest.DB) {
		c := cluster.Start(t, db, short(cluster.Options{Masters: 1, Workers: 2}))
		var specs []capri.Spec
		for i := range 6 {
			specs = append(specs, cluster.Spec(fmt.Sprintf("w%d", i), witnessed(c.Root), nil))
		}
		c.Apply(specs...)
		c.Wait(func() string {
			nodes, err := db.Store.Nodes(t.Context())
			require.NoError(t, err)
			if len(nodes) < 2 {
				return "both nodes"
			}
			return ""
		})
		c.ColdStart(capri.Day, day)
		off := c.Workers[0]
		var cut []string
		for i := range 6 {
			name := fmt.Sprintf("w%d", i)
			if c.UntilStarted(name, dayNo).Node == off.Name {
				cut = append(cut, name)
			}
		}
		require.NotEmpty(t, cut, "both nodes got some")
		off.Cut(true)
		for _, name := range cut {
			b := c.Until(name, dayNo, "running on the other node", func(b store.BatchRow) bool {
				return b.State == capri.Running && b.StartTime != 0 && b.Node != off.Name
			})
			assert.GreaterOrEqual(t, b.Losses, 1)
		}
		off.Cut(false)
		c.Wait(func() string {
			nodes, err := db.Store.Nodes(t.Context())
			require.NoError(t, err)
			for _, n := range nodes {
				if n.Name == off.Name && !n.Lost {
					return ""
				}
			}
			return "the node's new registration"
		})
		require.NoError(t, os.WriteFile(c.Root+"/go", nil, 0o644))
		for i := range 6 {
			c.UntilFinished(fmt.Sprintf("w%d", i), dayNo, capri.Success)
		}
		noneTwice(t, c.Root)
		c.Check()
		var lost []store.AlertRow
		alerts, err := db.Store.Alerts(t.Context(), nil, 0, 100)
		require.NoError(t, err)
		for _, a := range alerts {
			if a.Kind == "node_lost" && strings.Contains(a.Title, off.Name) {
				lost = append(lost, a)
			}
		}
		require.Len(t, lost, 1)
		for _, name := range cut {
			assert.Contains(t, lost[0].Text, name)
		}
	})
}

// Design §5.3. The worker is stopped in order, and its shim goes on until the node's lease is over.
func TestNothing_is_lost_with_a_worker_that_never_comes_back(t *testing.T) {
	sqltest.EachAtOnce(t, func(t *testing.T, db *sqltest.DB) {
		c := cluster.Start(t, db, short(cluster.Options{Masters: 2, Workers: 2, Slots: 2}))
		const n = 10
		var specs []capri.Spec
		for i := range n {
			specs = append(specs, cluster.Spec(fmt.Sprintf("w%d", i), witnessed(c.Root), nil))
		}
		c.Apply(specs...)
		c.ColdStart(capri.Day, day)
		gone := c.Workers[1]
		held := map[capri.BatchID]bool{}
		c.Wait(func() string {
			running, err := db.Store.Batches(t.Context(), store.BatchFilter{States: []capri.State{capri.Running}})
			require.NoError(t, err)
			clear(held)
			for _, b := range running {
				if b.Node == gone.Name && b.StartTime != 0 {
					held[b.ID] = true
				}
			}
			if len(held) == 2 {
				return ""
			}
			return "two jobs on " + gone.Name
		})
		gone.Stop()
		c.Wait(func() string {
			for id := range held {
				b, err := db.Store.Batch(t.Context(), id)
				require.NoError(t, err)
				if b.Losses == 0 {
					return fmt.Sprintf("the loss of batch %d", id)
				}
			}
			return ""
		})
		require.NoError(t, os.WriteFile(c.Root+"/go", nil, 0o644))
		c.UntilAllFinished()
		noneTwice(t, c.Root)
		h := c.Check()
		// A placer that had read the node's row just before it was lost, and its free slots just after, gives it more: that is
		// taken from it again, and nothing of it was claimed there.
		again := maps.Clone(held)
		for _, e := range h.Events {
			switch {
			case e.Node != gone.Name || held[e.Batch]:
			case e.State == capri.Assigned:
				again[e.Batch] = true
			default:
				require.NotEqual(t, capri.Running, e.State, e.String())
			}
		}
		require.NoError(t, h.OnceEach(again))
		assert.Len(t, h.Batches, n)
	})
}
