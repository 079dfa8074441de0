package wake

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"capri/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start makes a waker with short times and runs it for the test's life.
func start(t *testing.T, addr string) *Redis {
	t.Helper()
	r := NewRedis(RedisOptions{Addr: addr}, slog.New(slog.DiscardHandler))
	r.silent, r.retry = time.Second, 10*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

func isUp(t *testing.T, r *Redis, want bool) {
	t.Helper()
	require.Eventually(t, func() bool { return r.Up() == want }, time.Minute, time.Millisecond)
}

func woken(t *testing.T, ch <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(time.Minute):
		t.Fatal("nobody was woken: ", why)
	}
}

func eachRedis(t *testing.T, fn func(t *testing.T, addr string)) {
	t.Run("miniredis", func(t *testing.T) { fn(t, miniredis.RunT(t).Addr()) })
	t.Run("redis", func(t *testing.T) { fn(t, testenv.Redis(t)) })
}

func TestRedis_wakes_other_processes_and_its_own_once(t *testing.T) {
	eachRedis(t, func(t *testing.T, addr string) {
		a, b := start(t, addr), start(t, addr)
		isUp(t, a, true)
		isUp(t, b, true)
		mine := Node(rand.Text()) // others use the same server
		atA, stopA := a.Listen(mine)
		defer stopA()
		atB, stopB := b.Listen(mine)
		defer stopB()
		after, stopAfter := b.Listen(mine + "/after")
		defer stopAfter()
		a.Wake(mine)
		require.True(t, pending(atA), "within the process at once")
		woken(t, atB, "over Redis")
		a.Wake(mine + "/after") // messages keep their order: when this one is there, the first has come back to a as well
		woken(t, after, "over Redis")
		require.False(t, pending(atA), "what it sent came back and did not wake it twice")
		require.False(t, pending(atB))

		many := make([]string, 250)
		for i := range many {
			many[i] = mine
		}
		a.Wake(many...)
		woken(t, atB, "more topics than fit one message")
	})
}

func TestRedis_that_dies_blocks_nobody_and_wakes_everybody_when_it_is_back(t *testing.T) {
	m := miniredis.RunT(t)
	r := start(t, m.Addr())
	isUp(t, r, true)
	ch, stop := r.Listen(Dispatch)
	defer stop()
	m.Close()
	isUp(t, r, false)
	began := time.Now()
	for range 10_000 {
		r.Wake(Dispatch, Dependency)
	}
	require.Less(t, time.Since(began), 10*time.Second, "waking never waits for Redis")
	require.True(t, pending(ch), "it goes on within the process")
	require.NoError(t, m.Restart())
	isUp(t, r, true)
	woken(t, ch, "something may have been said while nobody listened")
	require.False(t, pending(ch))
}

func TestRedis_that_was_away_for_a_blink_wakes_everybody_as_well(t *testing.T) {
	m := miniredis.RunT(t)
	proxy := newProxy(t, m.Addr())
	r := start(t, proxy.addr)
	isUp(t, r, true)
	ch, stop := r.Listen(Dispatch)
	defer stop()
	require.False(t, pending(ch))
	proxy.cut()
	woken(t, ch, "what was said between the two connections is lost")
	isUp(t, r, true)
}

// A Redis that is stopped (SIGSTOP, a cut cable) keeps its connections and takes what is written to them.
func TestRedis_that_falls_silent_is_not_up(t *testing.T) {
	m := miniredis.RunT(t)
	proxy := newProxy(t, m.Addr())
	r := start(t, proxy.addr)
	isUp(t, r, true)
	time.Sleep(2 * r.silent) // nobody says anything for a while, and it answers when it is asked
	require.True(t, r.Up())
	proxy.freeze(true)
	isUp(t, r, false)
	ch, stop := r.Listen(Dispatch)
	defer stop()
	r.Wake(Dispatch)
	require.True(t, pending(ch))
	proxy.freeze(false)
	isUp(t, r, true)
	woken(t, ch, "it is back")
}

func TestRedis_that_was_never_there_keeps_nobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	l.Close()
	r := start(t, addr)
	ch, stop := r.Listen(Dispatch)
	defer stop()
	r.Wake(Dispatch)
	require.True(t, pending(ch))
	require.False(t, r.Up())
}

func TestRedis_stops_at_once(t *testing.T) {
	m := miniredis.RunT(t)
	for range 3 {
		r := NewRedis(RedisOptions{Addr: m.Addr()}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		isUp(t, r, true)
		began := time.Now()
		cancel()
		<-done
		require.Less(t, time.Since(began), r.silent, "before it is even asked for a word")
	}
}

// proxy stands between a client and a server and can be cut or frozen.
type proxy struct {
	addr   string
	server string
	mu     sync.Mutex
	frozen *sync.Cond
	is     bool
	conns  []net.Conn
}

func newProxy(t *testing.T, server string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{addr: l.Addr().String(), server: server}
	p.frozen = sync.NewCond(&p.mu)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", p.server)
			if err != nil {
				c.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, c, s)
			p.mu.Unlock()
			running.Go(func() { p.copy(s, c) })
			running.Go(func() { p.copy(c, s) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.freeze(false)
		p.cut()
		running.Wait()
	})
	return p
}

func (p *proxy) copy(to io.WriteCloser, from io.Reader) {
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		for p.is {
			p.frozen.Wait()
		}
		p.mu.Unlock()
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) freeze(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.is = is
	p.frozen.Broadcast()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
