package watch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri/sql/sqltest"
	"capri/sql/store"
)

// clock is a monotonic clock that stands still unless it is moved.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// channel remembers what it carried, and fails while it is told to.
type channel struct {
	got  []string // "state check"
	last Message
	err  error
}

func (c *channel) send(_ context.Context, m Message) error {
	if c.err != nil {
		return c.err
	}
	for _, i := range m.Items {
		c.got = append(c.got, i.State+" "+i.Check)
	}
	c.last = m
	return nil
}

func (c *channel) take() []string {
	got := c.got
	c.got = nil
	return got
}

// rig watches a database and an API that may be switched off.
type rig struct {
	*sqltest.DB
	t      *testing.T
	w      *Watcher
	clock  *clock
	a, b   *channel
	api    *httptest.Server
	health int // status of /readyz
	beats  bool
	turns  bool
}

var limits = Limits{Database: 30 * time.Second, API: 30 * time.Second, Masters: time.Minute, Monitor: 5 * time.Minute}

func each(t *testing.T, fn func(r *rig)) {
	t.Helper()
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		r := &rig{DB: db, t: t, clock: &clock{at: time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)}, a: &channel{}, b: &channel{}, health: 200, beats: true, turns: true}
		r.api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			require.Equal(t, "/readyz", req.URL.Path)
			w.WriteHeader(r.health)
			fmt.Fprintln(w, "status", r.health)
		}))
		t.Cleanup(r.api.Close)
		ok, err := db.Store.RegisterMaster(t.Context(), store.Master{Name: "m1", Instance: "1"}, nil)
		require.NoError(t, err)
		require.True(t, ok)
		r.watch(db.Store)
		fn(r)
	})
}

func (r *rig) watch(s *store.Store) {
	r.w = New(Options{Store: s, API: []string{r.api.URL}, Limits: limits, Host: "outside", Now: r.clock.now,
		Channels: []Channel{{Name: "a", Send: r.a.send}, {Name: "b", Send: r.b.send}}})
}

// pass lets time pass, with a round each 15 seconds.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	for range d / (15 * time.Second) {
		r.clock.at = r.clock.at.Add(15 * time.Second)
		now := r.Clock.Advance(15 * time.Second)
		if r.beats {
			_, err := r.Store.BeatMaster(r.t.Context(), "m1", "1", 0)
			require.NoError(r.t, err)
		}
		if r.turns {
			require.NoError(r.t, r.Store.SaveServiceState(r.t.Context(), store.ServiceState{Service: "monitor", Holder: "m1/1", Epoch: 1, StartedAt: now, CompletedAt: now}))
		}
		r.w.Round(r.t.Context())
	}
}

func TestWhileAllIsWell_nobody_is_told(t *testing.T) {
	each(t, func(r *rig) {
		r.pass(10 * time.Minute)
		require.Empty(t, r.a.take())
	})
}

func TestMastersThatAllFallSilent_are_told_once_then_more_and_more_rarely_and_when_it_is_over(t *testing.T) {
	each(t, func(r *rig) {
		r.pass(time.Minute)
		r.beats = false
		r.pass(45 * time.Second)
		require.Empty(t, r.a.take(), "a minute is allowed")
		r.pass(15 * time.Second)
		require.Equal(t, []string{"wrong masters"}, r.a.take())
		require.Equal(t, []string{"wrong masters"}, r.b.take())
		require.Contains(t, r.a.last.Items[0].Detail, "none beats of m1/1")
		require.Equal(t, "outside", r.a.last.Host)
		since := r.a.last.Items[0].Since
		require.Equal(t, r.clock.at.Add(-time.Minute), since, "since it was last seen to move")

		r.pass(9*time.Minute + 45*time.Second)
		require.Empty(t, r.a.take())
		r.pass(15 * time.Second)
		require.Equal(t, []string{"still_wrong masters"}, r.a.take())
		r.pass(29 * time.Minute)
		require.Empty(t, r.a.take(), "the next one comes after half an hour")
		r.pass(time.Minute)
		require.Equal(t, []string{"still_wrong masters"}, r.a.take())
		require.Equal(t, since, r.a.last.Items[0].Since)

		r.beats = true
		r.pass(15 * time.Second)
		require.Equal(t, []string{"over masters"}, r.a.take())
		r.pass(time.Hour)
		require.Empty(t, r.a.take())
	})
}

func TestMastersThatLeftInOrder_are_missed_as_well(t *testing.T) {
	each(t, func(r *rig) {
		r.pass(time.Minute)
		r.beats = false
		require.NoError(t, r.Store.StopMaster(t.Context(), "m1", "1"))
		r.pass(75 * time.Second)
		require.Equal(t, []string{"wrong masters"}, r.a.take())
		require.Contains(t, r.a.last.Items[0].Detail, "no master is registered")
	})
}

func TestAMonitorThatCompletesNoTurn_is_told(t *testing.T) {
	each(t, func(r *rig) {
		r.pass(time.Minute)
		r.turns = false
		r.pass(4*time.Minute + 45*time.Second)
		require.Empty(t, r.a.take())
		r.pass(15 * time.Second)
		require.Equal(t, []string{"wrong monitor"}, r.a.take())
	})
}

func TestAnAPIThatDoesNotAnswer_is_told(t *testing.T) {
	each(t, func(r *rig) {
		r.pass(time.Minute)
		r.health = 503
		r.pass(30 * time.Second)
		require.Equal(t, []string{"wrong api " + r.api.URL}, r.a.take())
		require.Equal(t, "503 Service Unavailable: status 503", r.a.last.Items[0].Detail)
		r.api.Close()
		r.pass(15 * time.Minute)
		require.Equal(t, []string{"still_wrong api " + r.api.URL}, r.a.take())
		require.Contains(t, r.a.last.Items[0].Detail, "refused")
	})
}

func TestOneBadLook_is_no_silence(t *testing.T) {
	each(t, func(r *rig) {
		for range 20 {
			r.health = 503
			r.pass(15 * time.Second)
			r.health = 200
			r.pass(15 * time.Second)
		}
		require.Empty(t, r.a.take())
	})
}

// closedPort is an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestADatabaseThatDoesNotAnswer_is_told_and_says_nothing_of_masters(t *testing.T) {
	db := sqltest.SQLite(t)
	gone, err := store.Open(t.Context(), store.Options{DSN: "capri:geheim@tcp(" + closedPort(t) + ")/capri", MaxConns: 1, BeatConns: 1})
	require.NoError(t, err)
	defer gone.Close()
	r := &rig{DB: db, t: t, clock: &clock{at: time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)}, a: &channel{}, b: &channel{}, health: 200}
	r.api = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer r.api.Close()
	r.watch(gone)
	r.pass(15 * time.Second)
	require.Empty(t, r.a.take())
	r.pass(30 * time.Second)
	require.Equal(t, []string{"wrong database"}, r.a.take())
	require.NotContains(t, r.a.last.Items[0].Detail, "geheim")
	r.pass(9 * time.Minute)
	require.Empty(t, r.a.take(), "whether masters live nobody knows")

	found := r.w.Once(t.Context())
	require.Equal(t, []string{"database false", "masters false", "monitor false"}, oks(found)[:3])
	require.Contains(t, found[1].Detail, "not known")
}

func TestAfterAnOutageOfTheDatabase_masters_get_their_time_again(t *testing.T) {
	each(t, func(r *rig) {
		r.pass(time.Minute)
		gone, err := store.Open(t.Context(), store.Options{DSN: "capri@tcp(" + closedPort(t) + ")/capri", MaxConns: 1, BeatConns: 1})
		require.NoError(t, err)
		defer gone.Close()
		r.w.o.Store, r.beats, r.turns = gone, false, false
		r.pass(10 * time.Minute)
		require.Equal(t, []string{"wrong database"}, r.a.take())
		r.w.o.Store = r.Store
		r.pass(30 * time.Second)
		require.Equal(t, []string{"over database"}, r.a.take(), "masters that only begin to beat again are not called silent")
		r.pass(30 * time.Second)
		require.Equal(t, []string{"wrong masters"}, r.a.take(), "those that do not are")
	})
}

func TestAChannelThatFails_is_tried_again_and_does_not_hold_up_the_other(t *testing.T) {
	each(t, func(r *rig) {
		r.pass(time.Minute)
		r.health, r.a.err = 500, errors.New("no route")
		r.pass(time.Minute)
		require.Empty(t, r.a.take())
		require.Equal(t, []string{"wrong api " + r.api.URL}, r.b.take())
		r.a.err = nil
		r.pass(15 * time.Second)
		require.Equal(t, []string{"wrong api " + r.api.URL}, r.a.take(), "for it, it is the first telling")
		require.Empty(t, r.b.take())

		r.health, r.a.err = 200, errors.New("no route")
		r.pass(time.Minute)
		require.Equal(t, []string{"over api " + r.api.URL}, r.b.take())
		r.a.err = nil
		r.pass(15 * time.Second)
		require.Equal(t, []string{"over api " + r.api.URL}, r.a.take())
	})
}

func TestWhatGoesWrongTogether_comes_in_one_message(t *testing.T) {
	each(t, func(r *rig) {
		r.pass(time.Minute)
		sent := 0
		r.w.o.Told = func(Message) { sent++ }
		r.health = 500
		r.pass(15 * time.Second)
		r.beats = false
		r.pass(90 * time.Second)
		require.Equal(t, []string{"wrong api " + r.api.URL, "wrong masters"}, r.a.take())
		require.Equal(t, 4, sent, "two for each channel: they became silent at different times")
		r.health, r.beats = 200, true
		r.pass(15 * time.Second)
		require.Equal(t, []string{"over api " + r.api.URL, "over masters"}, r.a.take())
		require.Equal(t, 6, sent, "one for each channel")
	})
}

func oks(found []Finding) []string {
	var out []string
	for _, f := range found {
		out = append(out, fmt.Sprint(strings.Fields(f.Check)[0], " ", f.OK))
	}
	return out
}

func TestOnce_judges_by_the_databases_clock(t *testing.T) {
	each(t, func(r *rig) {
		r.pass(15 * time.Second)
		once := func() []string { return oks(New(r.w.o).Once(t.Context())) }
		require.Equal(t, []string{"database true", "masters true", "monitor true", "api true"}, once())
		r.Clock.Advance(61 * time.Second)
		require.Equal(t, []string{"database true", "masters false", "monitor true", "api true"}, once())
		r.Clock.Advance(4 * time.Minute)
		r.health = 503
		require.Equal(t, []string{"database true", "masters false", "monitor false", "api false"}, once())
	})
}

func TestADatabaseWithoutOurTables_does_not_answer_either(t *testing.T) {
	sqltest.Empty(t, func(t *testing.T, db *sqltest.DB) {
		w := New(Options{Store: db.Store, Limits: limits})
		require.False(t, w.Once(t.Context())[0].OK)
	})
}

func TestRun_ends_when_it_is_told_to(t *testing.T) {
	db := sqltest.SQLite(t)
	ctx, stop := context.WithCancel(t.Context())
	told := 0
	w := New(Options{Store: db.Store, Limits: Limits{}, Interval: time.Millisecond, Channels: []Channel{{Name: "a", Send: func(context.Context, Message) error {
		told++
		stop()
		return nil
	}}}})
	require.NoError(t, w.Run(ctx))
	require.Equal(t, 1, told, "no master, no monitor: one message, and then the end")
}
