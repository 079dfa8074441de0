// Package watch is capri watch: it stands outside and tells people when the masters, who would alert them otherwise,
// cannot. It shares nothing with them but the database, which it only reads, and has channels of its own.
//
//	each interval:  database answers? ─┬─▶ masters beat? monitor completes turns?
//	                each API answers?  │
//	                                   ▼
//	        silent for longer than its limit, on our own monotonic clock: an episode
//	                                   ▼
//	        told at once, again after 10 minutes, 30, an hour … and when it is over, on each channel
//
// What cannot be seen says nothing: while the database does not answer, nobody knows whether masters beat.
package watch

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"capri"
	"capri/sql/store"
)

// Options say what is watched and who is told.
type Options struct {
	Store    *store.Store // nil: the database is not looked at
	API      []string     // addresses, without a path
	TLS      *tls.Config  // for those at https; nil: by the authorities that this machine trusts
	Channels []Channel
	Limits   Limits
	Interval time.Duration
	Host     string           // named in messages: who says so
	Now      func() time.Time // the monotonic clock; nil: time.Now
	Log      *slog.Logger
	Told     func(Message) // called with every message that is due, whether or not a channel takes it; may be nil
}

// Limits are how long each may be silent.
type Limits struct{ Database, API, Masters, Monitor time.Duration }

// Finding is how one thing looks.
type Finding struct {
	Check  string `json:"check"` // database, masters, monitor, api ADDRESS
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`

	limit   time.Duration
	unknown bool // it could not be looked at
}

// States of an item.
const (
	Wrong      = "wrong"
	StillWrong = "still_wrong"
	Over       = "over"
)

// Item is one thing that people are told.
type Item struct {
	Check  string    `json:"check"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
	Detail string    `json:"detail"`
}

// Message is what a channel carries, and the JSON document that a webhook gets.
type Message struct {
	Source string    `json:"source"` // "capri watch"
	Host   string    `json:"host"`
	At     time.Time `json:"at"`
	Items  []Item    `json:"items"`
}

// Channel carries messages to people.
type Channel struct {
	Name string
	Send func(context.Context, Message) error
}

// Watcher watches. Make it with New.
type Watcher struct {
	o        Options
	now      func() time.Time
	http     *http.Client
	episodes map[string]*episode
	beats    map[string]int64 // of the masters when last seen
	monitor  capri.Instant    // the monitor's newest completed turn when last seen
}

// episode follows one check.
type episode struct {
	good   time.Time // when it was last well, or could last not be seen
	wrong  bool
	since  time.Time
	detail string
	told   []telling // by channel
}

// telling is what one channel has been told of an episode.
type telling struct {
	times int
	next  time.Time
}

// lookLimit bounds each look and each sending: whoever does not answer must not keep others from being told of.
const lookLimit = 10 * time.Second

// again is how long after the n-th telling the next one comes; the last one repeats.
var again = []time.Duration{10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour}

// New makes a watcher.
func New(o Options) *Watcher {
	w := &Watcher{o: o, now: o.Now, episodes: map[string]*episode{}}
	if w.now == nil {
		w.now = time.Now
	}
	if w.o.Log == nil {
		w.o.Log = slog.New(slog.DiscardHandler)
	}
	// No connection is kept: one that stands open since yesterday says nothing about who can connect today.
	w.http = &http.Client{Timeout: lookLimit, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: o.TLS}}
	return w
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(w.o.Interval)
	defer tick.Stop()
	for {
		w.Round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Once looks one time, for a cron job or a monitoring system that keeps count itself. Nothing can be seen to stand
// still in one look; so how old the newest beat and turn are is judged by the database's clock, which wrote both.
func (w *Watcher) Once(ctx context.Context) []Finding {
	return w.look(ctx, func(now, last capri.Instant, _ bool, limit time.Duration) bool {
		return last != 0 && now.Sub(last) <= limit
	})
}

// Round looks once, and tells what is due.
func (w *Watcher) Round(ctx context.Context) {
	found := w.look(ctx, func(_, _ capri.Instant, moved bool, _ time.Duration) bool { return moved })
	if ctx.Err() != nil {
		return // we are being stopped, and that is why nobody answered
	}
	now := w.now()
	for _, f := range found {
		e := w.episodes[f.Check]
		if e == nil {
			e = &episode{good: now, told: make([]telling, len(w.o.Channels))}
			w.episodes[f.Check] = e
		}
		switch {
		case f.unknown:
			e.good = now
		case f.OK:
			e.good, e.wrong, e.detail = now, false, f.Detail
		case now.Sub(e.good) >= f.limit:
			if !e.wrong {
				e.wrong, e.since = true, e.good
			}
			e.detail = f.Detail
		}
	}
	w.tell(ctx, now)
}

// look makes every check at once. well judges what is counted rather than asked: by the database's time now and that of
// the newest sign of life, or by whether that has moved since the look before.
func (w *Watcher) look(ctx context.Context, well func(now, last capri.Instant, moved bool, limit time.Duration) bool) []Finding {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	apis := make([]Finding, len(w.o.API))
	var all sync.WaitGroup
	for i, address := range w.o.API {
		all.Go(func() { apis[i] = w.api(ctx, address) })
	}
	var found []Finding
	if w.o.Store != nil {
		found = w.database(ctx, well)
	}
	all.Wait()
	return append(found, apis...)
}

func (w *Watcher) database(ctx context.Context, well func(now, last capri.Instant, moved bool, limit time.Duration) bool) []Finding {
	database := Finding{Check: "database", limit: w.o.Limits.Database}
	masters := Finding{Check: "masters", limit: w.o.Limits.Masters}
	monitor := Finding{Check: "monitor", limit: w.o.Limits.Monitor}
	now, rows, state, err := w.read(ctx)
	if err != nil {
		database.Detail = err.Error()
		masters.unknown, masters.Detail = true, "not known: the database does not answer"
		monitor.unknown, monitor.Detail = true, masters.Detail
		return []Finding{database, masters, monitor}
	}
	database.OK, database.Detail = true, "it answers"

	beats := map[string]int64{}
	var newest capri.Instant
	for _, m := range rows {
		if !m.Stopped {
			beats[m.Holder()] = m.Beat
			newest = max(newest, m.LastCheckTime)
		}
	}
	masters.OK = well(now, newest, len(beats) > 0 && !maps.Equal(beats, w.beats), masters.limit)
	switch {
	case masters.OK:
		masters.Detail = "at least one beats"
	case len(beats) == 0:
		masters.Detail = "no master is registered that has not left in order: nothing is generated or dispatched"
	default:
		masters.Detail = fmt.Sprintf("none beats of %s: nothing is generated or dispatched; the newest beat was at %s", strings.Join(slices.Sorted(maps.Keys(beats)), ", "), newest)
	}
	w.beats = beats

	monitor.OK = well(now, state.CompletedAt, state.CompletedAt != w.monitor, monitor.limit)
	if monitor.Detail = "it completes its turns"; !monitor.OK {
		monitor.Detail = fmt.Sprintf("its newest completed turn was at %s: what goes wrong among the services is not noticed", state.CompletedAt)
	}
	w.monitor = state.CompletedAt
	return []Finding{database, masters, monitor}
}

func (w *Watcher) read(ctx context.Context) (now capri.Instant, masters []store.Master, monitor store.ServiceState, err error) {
	if now, err = w.o.Store.Now(ctx); err == nil {
		if masters, err = w.o.Store.Masters(ctx); err == nil {
			monitor, _, err = w.o.Store.ServiceState(ctx, "monitor")
		}
	}
	return now, masters, monitor, err
}

// api asks for /readyz, which answers 503 while that server's database does not.
func (w *Watcher) api(ctx context.Context, address string) Finding {
	f := Finding{Check: "api " + address, limit: w.o.Limits.API}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(address, "/")+"/readyz", nil)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	resp, err := w.http.Do(req)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
	f.OK, f.Detail = resp.StatusCode == http.StatusOK, resp.Status
	if words := strings.TrimSpace(strings.ToValidUTF8(string(said), "?")); words != "" && !f.OK {
		f.Detail += ": " + words
	}
	return f
}

// tell sends each channel one message with all that is due to it. What a channel does not take is due again in the
// next round.
func (w *Watcher) tell(ctx context.Context, now time.Time) {
	var all sync.WaitGroup
	defer all.Wait()
	for c, channel := range w.o.Channels {
		var items []Item
		var due []*telling
		for _, check := range slices.Sorted(maps.Keys(w.episodes)) {
			e := w.episodes[check]
			t := &e.told[c]
			item := Item{Check: check, Since: e.since, Detail: e.detail}
			switch {
			case e.wrong && t.times == 0:
				item.State = Wrong
			case e.wrong && !now.Before(t.next):
				item.State = StillWrong
			case !e.wrong && t.times > 0:
				item.State = Over
			default:
				continue
			}
			items, due = append(items, item), append(due, t)
		}
		if len(items) == 0 {
			continue
		}
		m := Message{Source: "capri watch", Host: w.o.Host, At: now, Items: items}
		if w.o.Told != nil {
			w.o.Told(m)
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, lookLimit)
			defer cancel()
			if err := channel.Send(ctx, m); err != nil {
				w.o.Log.Error("people could not be told; it is tried again", "channel", channel.Name, "items", len(m.Items), "err", err)
				return
			}
			for i, t := range due {
				if items[i].State == Over {
					*t = telling{}
					continue
				}
				t.next = now.Add(again[min(t.times, len(again)-1)])
				t.times++
			}
		})
	}
}
