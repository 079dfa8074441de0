package lease

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/sqltest"
	"capri/wake"
)

// actor is a master in the random test: what it does next, and whether it is frozen or cut off.
type actor struct {
	*process
	look, renewal, beat time.Time
	frozen              bool // does nothing, while its clock runs
	cut                 bool // its renewals do not come through
}

// Four masters, of which one does not reach Redis, are frozen, cut off and woken at random, while Redis is killed, flushed
// and started. At no time is an epoch granted twice or do two believe to lead, and when all is well again every lease
// is soon held, and shared evenly.
func TestAtNoTimeDoTwoHoldOneLease_whatever_happens(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		random := rand.New(rand.NewPCG(seed, 0))
		redis := miniredis.RunT(t)
		addr := redis.Addr()
		now := time.Unix(0, 0)
		var all []*actor
		for _, name := range []string{"a", "b", "c", "d"} {
			p := start(t, db.Again(t), "", func(o *Options) {
				member(t, o.Store, name)(o)
				if name != "d" {
					o.Redis = NewRedis(wake.RedisOptions{Addr: addr}, o.Holder, TTL, o.Log)
					t.Cleanup(func() { o.Redis.Close() })
				}
			}, capri.ServiceLeases...)
			all = append(all, &actor{process: p, look: now, renewal: now, beat: now})
		}
		granted := map[capri.Lease]bool{}
		newest := map[string]capri.Epoch{}
		// step lets 250 ms pass for everybody, and then looks for what must never be.
		step := func() {
			now = now.Add(250 * time.Millisecond)
			redis.FastForward(250 * time.Millisecond)
			for _, i := range random.Perm(len(all)) {
				p := all[i]
				p.clock = now
				if p.frozen {
					continue
				}
				p.expire()
				if !p.cut && !now.Before(p.renewal) {
					p.renewAll()
					p.renewal = now.Add(Renew)
				}
				if !p.cut && !now.Before(p.beat) {
					require.NoError(t, p.o.Member.beat(p.ctx))
					p.beat = now.Add(BeatEvery)
				}
				if !p.cut && !now.Before(p.look) {
					p.Keeper.look(p.ctx)
					p.look = now.Add(p.untilLook())
				}
			}
			for _, service := range capri.ServiceLeases {
				leaders := 0
				for _, p := range all {
					l, ok := p.Held(service)
					if !ok {
						continue
					}
					leaders++
					if granted[l] {
						continue
					}
					granted[l] = true
					require.Greater(t, l.Epoch, newest[service], "%s was granted an epoch that was there before", service)
					newest[service] = l.Epoch
				}
				require.LessOrEqual(t, leaders, 1, "%s has %d leaders", service, leaders)
			}
		}
		held := func() (n int) {
			for _, p := range all {
				if !p.frozen {
					n += len(p.all())
				}
			}
			return n
		}
		up := true
		for range 5 {
			for range 80 { // 20 s of trouble
				switch p := all[random.IntN(len(all))]; random.IntN(15) {
				case 0:
					p.frozen = !p.frozen
				case 1:
					p.cut = !p.cut
				case 2:
					redis.FlushAll()
				case 3:
					if up {
						redis.Close()
					} else {
						require.NoError(t, redis.Restart())
					}
					up = !up
				case 4:
					p.frozen = true
				}
				step()
			}
			for _, p := range all {
				p.frozen, p.cut = false, false
			}
			dead := all[random.IntN(len(all))] // all is well again, but for one that has died this moment
			dead.frozen = true
			healed, took := now, time.Duration(0)
			for held() < len(capri.ServiceLeases) {
				step()
				took = now.Sub(healed)
				require.LessOrEqual(t, took, TTL+3*time.Second, "%d leases are held", held())
			}
			t.Logf("all held after %s", took)
			dead.frozen = false
		}
		for range 4 * 90 {
			step()
		}
		for _, p := range all {
			require.LessOrEqual(t, len(p.all()), 3)
		}
		require.Equal(t, len(capri.ServiceLeases), held())
	})
}
