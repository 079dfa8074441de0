package lease

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"capri/internal/testenv"
	"capri/sql/sqltest"
	"capri/wake"
)

func front(t *testing.T, addr, holder string) *Redis {
	r := NewRedis(wake.RedisOptions{Addr: addr}, holder, TTL, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { r.Close() })
	return r
}

func through(t *testing.T, addr, holder string) func(*Options) {
	return func(o *Options) { o.Redis = front(t, addr, holder) }
}

// silent takes connections and never answers.
func silent(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		var conns []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			conns = append(conns, c)
		}
		for _, c := range conns {
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return l.Addr().String()
}

func TestRedis_lets_one_go_first(t *testing.T) {
	for name, addr := range map[string]func(*testing.T) string{
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
		"redis":     func(t *testing.T) string { return testenv.Redis(t) },
	} {
		t.Run(name, func(t *testing.T) {
			at, service := addr(t), t.Name()
			a, b := front(t, at, "a"), front(t, at, "b")
			require.False(t, a.taken(t.Context(), service))
			require.True(t, b.taken(t.Context(), service))
			b.unlock(t.Context(), service)
			require.True(t, b.taken(t.Context(), service), "nobody unlocks what is another's")
			require.True(t, b.ask(), "taken is an answer")
			a.extend(t.Context(), service)
			stopped, cancel := context.WithCancel(t.Context())
			cancel()
			a.unlock(stopped, service)
			require.False(t, b.taken(t.Context(), service), "also by a process that stops")
			// What was flushed away is there again after the next renewal.
			require.NoError(t, b.client.Del(t.Context(), "capri:lease:"+service).Err())
			b.extend(t.Context(), service)
			require.True(t, a.taken(t.Context(), service))
			b.unlock(t.Context(), service)
		})
	}
}

func TestRedis_that_is_away_or_says_nothing_keeps_nobody(t *testing.T) {
	closed := miniredis.RunT(t)
	away := closed.Addr()
	closed.Close()
	for name, addr := range map[string]string{"away": away, "silent": silent(t)} {
		t.Run(name, func(t *testing.T) {
			sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
				many := []string{"generate", "dependency", "quality", "dispatch", "timeout", "attempts"}
				a := start(t, db.Store, "a", through(t, addr, "a"), many...)
				began := time.Now()
				a.look(a.ctx)
				require.Equal(t, many, a.all())
				require.Less(t, time.Since(began), 2*time.Second, "six leases must not cost six time-outs")
				a.renewAll()
				a.release(a.ctx)
			})
		})
	}
}

func TestWhoIsTold_that_somebody_goes_first_waits_two_looks_and_then_goes(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		m := miniredis.RunT(t)
		b := start(t, db.Store, "b", through(t, m.Addr(), "b"), "dispatch")
		require.False(t, front(t, m.Addr(), "a").taken(t.Context(), "dispatch")) // a goes first, and dies on the way
		b.later(0)
		require.False(t, b.holds("dispatch"))
		b.later(Look)
		require.False(t, b.holds("dispatch"))
		b.later(Look)
		require.True(t, b.holds("dispatch"))
	})
}

// Some masters reach Redis, others do not, and it is flushed in between: the row decides.
func TestMasters_that_do_not_see_the_same_Redis_share_one_truth(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		m := miniredis.RunT(t)
		a := start(t, db.Store, "a", through(t, m.Addr(), "a"), "dispatch")
		b := start(t, db.Again(t), "b", nil, "dispatch")
		c := start(t, db.Again(t), "c", through(t, m.Addr(), "c"), "dispatch")
		a.later(0)
		b.later(0)
		m.FlushAll()
		c.later(0)
		require.True(t, a.holds("dispatch"))
		require.False(t, b.holds("dispatch") || c.holds("dispatch"))
		a.renewAll() // makes its sign again
		require.True(t, c.o.Redis.taken(c.ctx, "dispatch"))
		// a dies. b, which does not ask Redis, goes by the row alone.
		b.later(0)
		c.later(0)
		b.later(TTL)
		require.True(t, b.holds("dispatch"))
		c.later(TTL)
		require.False(t, c.holds("dispatch"))
		require.Equal(t, b.o.Holder, row(t, db.Store, "dispatch").Holder)
	})
}

func TestALeaseThatIsGivenBack_can_be_taken_at_once_by_who_asks_Redis(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		m := miniredis.RunT(t)
		a := start(t, db.Store, "a", through(t, m.Addr(), "a"), "dispatch")
		b := start(t, db.Again(t), "b", through(t, m.Addr(), "b"), "dispatch")
		a.later(0)
		b.later(0)
		a.release(a.ctx)
		b.later(0)
		require.True(t, b.holds("dispatch"))
	})
}
