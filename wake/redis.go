package wake

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// channel is one for all topics: a message is its sender and the topics, separated by spaces. Every process hears every message,
// which is a few hundred bytes a second, and no subscription has to be changed while it runs.
const channel = "capri:wake"

// Redis wakes over Redis, and always within this process too. With Redis away it goes on within the process alone, and
// other processes learn at their next poll.
type Redis struct {
	*Local
	client *redis.Client
	log    *slog.Logger
	out    chan string
	id     string // the first word of what this process sends, so that it does not wake itself twice
	up     atomic.Bool
	silent time.Duration // after so long without a word Redis is asked for one, and is given as long again to answer
	retry  time.Duration
}

// RedisOptions name the server.
type RedisOptions struct {
	Addr     string
	Password string
	DB       int
	TLS      *tls.Config // nil: without
}

// The client library has one logger for the whole process, and no lock around it.
var setLogger sync.Once

// NewRedis makes the waker; Run connects it.
func NewRedis(o RedisOptions, log *slog.Logger) *Redis {
	return &Redis{Local: NewLocal(), log: log, out: make(chan string, 256), id: rand.Text(), silent: 5 * time.Second, retry: time.Second,
		client: NewClient(o, time.Second, log)}
}

// NewClient makes a client of Redis that fails when it has waited that long for an answer, and at once where nobody
// listens.
func NewClient(o RedisOptions, patience time.Duration, log *slog.Logger) *redis.Client {
	setLogger.Do(func() { redis.SetLogger(quiet{log}) })
	return redis.NewClient(&redis.Options{
		Addr: o.Addr, Password: o.Password, DB: o.DB, TLSConfig: o.TLS,
		// A Redis that is down has to fail at once: by default one command took three seconds.
		MaxRetries: -1, DialerRetries: 1, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		// Notices of a hosted Redis's upgrades are not for us, and the library's goroutine for them outlives the client.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Up tells whether Redis answers; pollers look more often while it does not.
func (r *Redis) Up() bool { return r.up.Load() }

// Wake wakes within the process at once and sends the rest on its way.
func (r *Redis) Wake(topics ...string) {
	if len(topics) == 0 {
		return
	}
	r.Local.Wake(topics...)
	for len(topics) > 0 {
		n := min(len(topics), 100)
		select {
		case r.out <- strings.Join(topics[:n], " "):
		default: // Redis is slow or away; the polls will do
		}
		topics = topics[n:]
	}
}

// Run sends and receives until ctx ends, and connects again whenever the connection is lost.
func (r *Redis) Run(ctx context.Context) {
	var sending sync.WaitGroup
	sending.Go(func() { r.send(ctx) })
	defer r.client.Close()
	defer sending.Wait()
	for ctx.Err() == nil {
		r.receive(ctx)
		if ctx.Err() != nil {
			return // what is left is still sent
		}
		if r.up.Swap(false) {
			r.log.Warn("Redis does not answer: wake-ups wait for the polls until it does")
		}
		select {
		case <-ctx.Done():
		case <-time.After(r.retry):
		}
	}
}

func (r *Redis) send(ctx context.Context) {
	publish := func(ctx context.Context, topics string) {
		if r.up.Load() {
			r.client.Publish(ctx, channel, r.id+" "+topics)
		}
	}
	for {
		select {
		case topics := <-r.out:
			publish(context.WithoutCancel(ctx), topics) // both may be ready
		case <-ctx.Done():
			// The last words of a process are that it has given its leases back.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 200*time.Millisecond)
			defer cancel()
			for ctx.Err() == nil {
				select {
				case topics := <-r.out:
					publish(ctx, topics)
				default:
					return
				}
			}
			return
		}
	}
}

// receive subscribes and hands on what it hears until the connection fails or Redis falls silent.
func (r *Redis) receive(ctx context.Context) {
	sub := r.client.Subscribe(ctx, channel)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })() // reading looks at ctx only before and after
	if _, err := sub.ReceiveTimeout(ctx, r.silent); err != nil {
		return
	}
	r.up.Store(true)
	// Something may have been said while nobody listened.
	r.Local.wakeAll()
	asked := false
	for {
		m, err := sub.ReceiveTimeout(ctx, r.silent)
		var silence net.Error
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &silence) && silence.Timeout():
			// A Redis that was stopped keeps its connections: that the question can be sent says nothing.
			if asked || sub.Ping(ctx) != nil {
				return
			}
			asked = true
			continue
		case err != nil:
			return
		}
		asked = false
		switch m := m.(type) {
		case *redis.Message:
			if from, topics, _ := strings.Cut(m.Payload, " "); from != r.id {
				r.Local.Wake(strings.Fields(topics)...)
			}
		case *redis.Subscription: // the library has connected anew on its own
			r.Local.wakeAll()
		}
	}
}

// quiet keeps the client's own messages out of stderr: a Redis that is away is said once, by Run.
type quiet struct{ log *slog.Logger }

func (q quiet) Printf(_ context.Context, format string, v ...any) {
	q.log.Debug("redis client", "message", format, "args", v)
}
