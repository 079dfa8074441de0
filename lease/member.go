package lease

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"capri"
	"capri/sql/store"
)

// BeatEvery is the rhythm of a master's beats. One whose counter stood still for three of them is not counted any more.
const BeatEvery = 5 * time.Second

const missedBeats = 3

// Member is this process among the masters: its row in capri_master, and what it sees of the other rows.
//
//	Register: the name is free ───────────────────────────────▶ ours
//	          its owner stopped in order, or its process is gone ▶ ours
//	          its counter moves within three beats ─────────────▶ refused
//	          it stands still ──────────────────────────────────▶ ours
type Member struct {
	store   *store.Store
	me      store.Master
	sole    bool
	log     *slog.Logger
	every   time.Duration
	now     func() time.Time                                              // monotonic
	measure func(context.Context) (offset, took time.Duration, err error) // of the clocks
	gone    func(m store.Master) bool                                     // its process has ended, as far as can be seen from here
	pause   func(ctx context.Context, d time.Duration) bool               // false: ctx has ended

	mu       sync.Mutex
	offset   time.Duration
	limit    time.Duration // how far a clock may be off; 0: as far as it likes
	others   map[string]*other
	lookedAt time.Time // at them
	last     []string  // the holders of those that live
	stable   time.Time // since when they are the same
}

// other is another master as last seen.
type other struct {
	store.Master
	moved time.Time // when its counter was last seen to move
	dead  bool      // its lease lapsed, and it has not beaten since
}

// MemberOptions say who this is.
type MemberOptions struct {
	Store   *store.Store
	Name    string // of the master, the same in each of its lives
	Host    string
	Listen  string // the address of its API
	Version string
	Sole    bool // nobody else can be there (standalone): the name is taken at once
	Every   time.Duration
	Log     *slog.Logger
}

// NewMember makes a member with an identity of its own; nothing is written before Register.
func NewMember(o MemberOptions) *Member {
	if o.Every <= 0 {
		o.Every = BeatEvery
	}
	m := &Member{store: o.Store, sole: o.Sole, log: o.Log, every: o.Every, now: time.Now, measure: o.Store.ClockOffset, gone: gone, pause: pause, others: map[string]*other{}}
	m.me = store.Master{Name: o.Name, Instance: machine() + "-" + rand.Text()[:12], Host: o.Host, PID: os.Getpid(), Listen: o.Listen, Version: o.Version}
	m.stable = m.now()
	return m
}

// Holder is the name under which this life holds leases. No other process uses it, nor an earlier life of this one.
func (m *Member) Holder() string { return m.me.Holder() }

// Register takes the name, or says who has it. It waits for a database that is away, and as long as it takes to see
// whether an owner who said nothing is still there: three beats.
func (m *Member) Register(ctx context.Context) error {
	var seen *store.Master
	var since time.Time
	for tries := 0; ; tries++ {
		m.clock(ctx)
		done, err := m.tryRegister(ctx, &seen, &since)
		switch {
		case done:
			m.log.Info("registered as a master", "name", m.me.Name, "instance", m.me.Instance)
			return nil
		case errors.Is(err, capri.ErrConflict), errors.Is(err, capri.ErrInvalid):
			return err
		case err != nil && ctx.Err() == nil && tries%60 == 0:
			m.log.Warn("the registration as a master has to wait", "err", err)
		}
		if !m.pause(ctx, min(time.Second, m.every/4)) {
			return ctx.Err()
		}
	}
}

func (m *Member) tryRegister(ctx context.Context, seen **store.Master, since *time.Time) (bool, error) {
	all, err := m.store.Masters(ctx)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(all, func(x store.Master) bool { return x.Name == m.me.Name })
	if i < 0 {
		return m.store.RegisterMaster(ctx, m.me, nil)
	}
	owner := all[i]
	switch {
	case owner.Instance == m.me.Instance:
		return true, nil // an answer was lost
	case m.sole, owner.Stopped, m.gone(owner):
		return m.store.RegisterMaster(ctx, m.me, &owner)
	case *seen == nil || (*seen).Instance != owner.Instance:
		*seen, *since = &owner, m.now()
		m.log.Info("a master of this name was there: waiting to see whether it lives", "name", owner.Name, "host", owner.Host, "pid", owner.PID)
	case (*seen).Beat != owner.Beat:
		return false, capri.Conflict("master %s runs already, on %s as process %d: stop it first, or start this one under another --name", owner.Name, owner.Host, owner.PID)
	case m.now().Sub(*since) >= missedBeats*m.every:
		return m.store.RegisterMaster(ctx, m.me, &owner)
	}
	return false, nil
}

// Run beats until ctx ends, then signs off. It ends with an error where another life took the name over: this one was
// silent for so long that it was taken for dead, and two masters of one name are one too many.
func (m *Member) Run(ctx context.Context) error {
	for m.pause(ctx, m.every) {
		if err := m.beat(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := m.store.StopMaster(ctx, m.me.Name, m.me.Instance); err != nil {
		m.log.Warn("the master could not sign off: its name is free when its beat has stood still", "err", err)
	}
	return nil
}

func (m *Member) beat(ctx context.Context) error {
	m.clock(ctx)
	m.mu.Lock()
	offset := m.offset
	m.mu.Unlock()
	ok, err := m.store.BeatMaster(ctx, m.me.Name, m.me.Instance, offset)
	if err != nil || ok {
		if err != nil && ctx.Err() == nil {
			m.log.Warn("a beat of this master was not written", "err", err)
		}
		return nil
	}
	all, err := m.store.Masters(ctx)
	for _, x := range all {
		if x.Name == m.me.Name && x.Instance != m.me.Instance {
			return capri.Conflict("master %s was silent for so long that another process took its name over, on %s as process %d: it ends", x.Name, x.Host, x.PID)
		}
	}
	if err == nil { // somebody cleaned the table
		_, err = m.store.RegisterMaster(ctx, m.me, nil)
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("this master could not register anew", "err", err)
	}
	return nil
}

// slowMeasure is a round trip too long to tell anything about clocks that may be two seconds apart.
const slowMeasure = time.Second

// clock measures how far this process's clock is from the database's, and reads how far it may be.
func (m *Member) clock(ctx context.Context) {
	offset, took, err := m.measure(ctx)
	if err != nil || took > slowMeasure {
		return
	}
	limit, err := m.store.SettingInt(ctx, store.ClockOffsetMS, 0)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offset, m.limit, m.me.ClockOffset = offset, time.Duration(limit)*time.Millisecond, offset
}

// look reads the other masters.
func (m *Member) look(ctx context.Context) error {
	all, err := m.store.Masters(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if gap := now.Sub(m.lookedAt); !m.lookedAt.IsZero() && gap > m.every {
		for _, o := range m.others { // nobody could beat, or we did not see it
			o.moved = o.moved.Add(gap)
		}
	}
	m.lookedAt = now
	seen := map[string]bool{}
	for _, x := range all {
		if x.Name == m.me.Name {
			continue
		}
		seen[x.Name] = true
		o := m.others[x.Name]
		switch {
		case o == nil:
			// Who is seen for the first time counts: a share that is too small for a while costs a moment, no more.
			m.others[x.Name] = &other{Master: x, moved: now}
			continue
		case o.Instance != x.Instance || o.Beat != x.Beat:
			o.moved, o.dead = now, false
		}
		o.Master = x
	}
	for name := range m.others {
		if !seen[name] {
			delete(m.others, name)
		}
	}
	if now := m.living(); !slices.Equal(m.last, now) {
		m.last, m.stable = now, m.now()
	}
	return nil
}

// living lists the holders of the other masters that live, sorted.
func (m *Member) living() []string {
	var all []string
	for _, o := range m.others {
		if !o.Stopped && !o.dead && m.now().Sub(o.moved) < missedBeats*m.every {
			all = append(all, o.Holder())
		}
	}
	slices.Sort(all)
	return all
}

// lapsed notes that a holder let a lease lapse: it does not live, until its counter moves again.
func (m *Member) lapsed(holder string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.others {
		if o.Holder() == holder {
			o.dead = true
		}
	}
}

// count tells how many masters live, this one included, and for how long they have been the same.
func (m *Member) count() (n int, stable time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return 1 + len(m.living()), m.now().Sub(m.stable)
}

// clockWrong reports whether this master's clock is so far from the database's that another one should lead generate.
// Where no master has a better one, or most clocks of the cluster are off, the database's own is to blame and all go on.
func (m *Member) clockWrong(ctx context.Context) (bool, error) {
	m.mu.Lock()
	limit := m.limit
	wrong := func(offset time.Duration) bool { return limit > 0 && offset.Abs() > limit }
	if !wrong(m.offset) {
		m.mu.Unlock()
		return false, nil
	}
	all, off, better := 1, 1, false
	living := m.living()
	for _, o := range m.others {
		if !slices.Contains(living, o.Holder()) {
			continue
		}
		all++
		if wrong(o.ClockOffset) {
			off++
		} else {
			better = true
		}
	}
	m.mu.Unlock()
	if !better {
		return false, nil
	}
	nodes, err := m.store.Nodes(ctx)
	if err != nil {
		return false, err
	}
	for _, n := range nodes {
		if n.Lost {
			continue
		}
		all++
		if wrong(n.ClockOffset) {
			off++
		}
	}
	return 2*off <= all, nil
}

// gone reports whether a master ran on this machine and its process has ended. What cannot be known is not gone.
func gone(m store.Master) bool {
	at, _, _ := strings.Cut(m.Instance, "-")
	return at == machine() && m.PID > 0 && errors.Is(syscall.Kill(m.PID, 0), syscall.ESRCH)
}

// machine names what process numbers belong to: this boot of this machine and, in containers, this namespace. Host
// names would not do: two containers may share one and count their processes apart.
var machine = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, err2 := os.Readlink("/proc/self/ns/pid")
	if err != nil || err2 != nil {
		return rand.Text()[:12] // like no other
	}
	sum := sha256.Sum256([]byte(string(boot) + space))
	return hex.EncodeToString(sum[:6])
})

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
