package lease

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"capri/wake"
)

// Redis decides who tries first for a free lease, and nothing else: a mutex per service stands in front of the row,
// so that of many masters one goes to the database and the others wait a moment for it. Whoever is told anything else
// than "taken" goes on, and who was told that waits a little and then goes on as well: it may be flushed, lie, or be
// seen by some masters only.
//
//	try ─▶ first ─────────▶ the row
//	   └─▶ taken ── wait ──▶ the row, by and by
//	   └─▶ away ───────────▶ the row
type Redis struct {
	client *redis.Client
	sync   *redsync.Redsync
	ttl    time.Duration
	holder string
	log    *slog.Logger
	now    func() time.Time

	mu        sync.Mutex
	awayUntil time.Time // it did not answer: not asked again before
}

// patience with Redis, for everything that is asked of it here. A master that waits for Redis does not lead.
const redisPatience = 200 * time.Millisecond

// redisRest is how long Redis is left alone after it did not answer: nine free leases must not cost nine time-outs.
const redisRest = 2 * time.Second

// NewRedis makes the front of a holder's leases; close it when the Keeper has ended.
func NewRedis(o wake.RedisOptions, holder string, ttl time.Duration, log *slog.Logger) *Redis {
	client := wake.NewClient(o, redisPatience, log)
	return &Redis{client: client, sync: redsync.New(goredis.NewPool(client)), ttl: ttl, holder: holder, log: log, now: time.Now}
}

// Close ends its connections.
func (r *Redis) Close() error { return r.client.Close() }

// mutex of a service. Its value is the holder, which is unique for each life, so that nothing has to be kept between
// two calls; extending one that vanished (Redis was flushed, or away when the lease was taken) makes it again.
func (r *Redis) mutex(service string) *redsync.Mutex {
	return r.sync.NewMutex("capri:lease:"+service, redsync.WithExpiry(r.ttl), redsync.WithTries(1), redsync.WithSetNXOnExtend(),
		redsync.WithValue(r.holder), redsync.WithGenValueFunc(func() (string, error) { return r.holder, nil }),
		redsync.WithTimeoutFactor(float64(redisPatience)/float64(r.ttl)))
}

// taken reports whether somebody else is to go first for a lease. Otherwise the caller goes: as the first, or because
// Redis cannot say.
func (r *Redis) taken(ctx context.Context, service string) bool {
	if !r.ask() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	err := r.mutex(service).TryLockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) {
		return true
	}
	r.heard(err)
	return false
}

// extend keeps the mutex of a lease that is held. It is only a sign to others, so a failure changes nothing.
func (r *Redis) extend(ctx context.Context, service string) {
	if !r.ask() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	if _, err := r.mutex(service).ExtendContext(ctx); err != nil {
		var taken *redsync.ErrTaken
		if !errors.As(err, &taken) && !errors.Is(err, redsync.ErrExtendFailed) {
			r.heard(err)
		}
	}
}

// unlock lets the next one go at once. The process may be stopping: the context it runs under has ended then.
func (r *Redis) unlock(ctx context.Context, service string) {
	if !r.ask() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, err := r.mutex(service).UnlockContext(ctx)
	var taken *redsync.ErrTaken
	if err != nil && !errors.As(err, &taken) && !errors.Is(err, redsync.ErrLockAlreadyExpired) {
		r.heard(err)
	}
}

func (r *Redis) ask() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.now().Before(r.awayUntil)
}

func (r *Redis) heard(err error) {
	if err == nil {
		return
	}
	r.log.Debug("Redis does not answer: leases go by the database alone", "err", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awayUntil = r.now().Add(redisRest)
}
