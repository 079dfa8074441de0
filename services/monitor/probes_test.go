package monitor

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/services"
)

// probe runs one probe once.
func probe(t *testing.T, x Probe) error {
	t.Helper()
	if x.Timeout == 0 {
		x.Timeout = 10 * time.Second
	}
	p := NewProbes(nil, nil, slog.New(slog.DiscardHandler))
	ctx := t.Context()
	return p.probe(ctx, 0, x)
}

func TestCommandProbes(t *testing.T) {
	t.Setenv("CAPRI_DATABASE_DSN", "geheim")
	for _, c := range []struct {
		sentence string
		argv     []string
		want     string // of the error; "" none
	}{
		{"well with exit code 0", []string{"true"}, ""},
		{"not well with another", []string{"sh", "-c", "echo the disk is full; exit 3"}, "sh: exit status 3\nIt said: the disk is full"},
		{"arguments are no shell's text", []string{"sh", "-c", `test "$1" = '$(exit 1); x'`, "x", "$(exit 1); x"}, ""},
		{"a program that is not there", []string{"/no/such/program"}, "no such file"},
		{"it does not see our secrets", []string{"sh", "-c", `test -z "$CAPRI_DATABASE_DSN"`}, ""},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			err := probe(t, Probe{Command: c.argv})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
	err := probe(t, Probe{Command: []string{"sh", "-c", "yes | head -c 1000000; exit 1"}})
	require.Error(t, err)
	require.Less(t, len(err.Error()), outputMost+100, "its output is cut")
	require.True(t, strings.HasSuffix(err.Error(), " …"))
}

func TestURLProbes(t *testing.T) {
	code := http.StatusNoContent
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
		if code >= 300 {
			fmt.Fprint(w, "in safe mode")
		}
	}))
	defer srv.Close()
	require.NoError(t, probe(t, Probe{URL: srv.URL}))
	code = http.StatusServiceUnavailable
	require.ErrorContains(t, probe(t, Probe{URL: srv.URL}), "503 Service Unavailable\nIt said: in safe mode")
	code = http.StatusFound
	require.ErrorContains(t, probe(t, Probe{URL: srv.URL}), "302", "a redirect is no 2xx")
	srv.Close()
	require.Error(t, probe(t, Probe{URL: srv.URL}))
}

// turnOf runs a turn of probes a while after the last one.
func (w *world) turnOf(p *Probes, after time.Duration) services.Result {
	w.t.Helper()
	res, err := p.Run(w.ctx, services.Turn{Now: w.Clock.Advance(after), Lease: w.lease})
	require.NoError(w.t, err)
	return res
}

func TestAFailingProbe_is_alerted_once_and_so_is_its_recovery(t *testing.T) {
	each(t, func(w *world) {
		flag := filepath.Join(t.TempDir(), "well")
		p := NewProbes(w.Store, []Probe{{Name: "disk", Command: []string{"test", "-e", flag}, Interval: time.Minute, Timeout: 10 * time.Second, Level: capri.Severe, Text: "call the storage team"}}, slog.New(slog.DiscardHandler))
		require.Equal(t, map[string]int{"probes": 1, "failing": 1}, w.turnOf(p, 0).Counts)
		require.Empty(t, w.turnOf(p, 30*time.Second).Counts, "it is not due")
		require.Equal(t, 1, w.turnOf(p, 30*time.Second).Counts["failing"])
		require.Equal(t, []string{"probe_failed severe: Probe disk fails"}, w.alerts())
		var text string
		require.NoError(t, w.Store.DB().QueryRowContext(w.ctx, "SELECT body FROM alert").Scan(&text))
		require.Equal(t, "test: exit status 1\n\ncall the storage team", text)

		require.NoError(t, os.WriteFile(flag, nil, 0o600))
		require.Equal(t, map[string]int{"probes": 1}, w.turnOf(p, time.Minute).Counts)
		w.turnOf(p, time.Minute)
		require.Equal(t, []string{"probe_failed severe: Probe disk fails", "probe_over attention: Probe disk is well again"}, w.alerts())

		require.NoError(t, os.Remove(flag))
		w.turnOf(p, time.Minute)
		require.Len(t, w.alerts(), 3, "the next episode")
	})
}

func TestATaskProbe_looks_at_the_batch_that_ended_last(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, func(s *capri.Spec) { s.Name = "daily" })
		p := NewProbes(w.Store, nil, slog.New(slog.DiscardHandler))
		is := func() string {
			if err := p.probe(w.ctx, w.Clock.Now(), Probe{Task: "daily", MaxAge: 26 * time.Hour}); err != nil {
				return err.Error()
			}
			return ""
		}
		require.Contains(t, is(), "no batch of task daily has ended")
		ended := func(no string, how capri.FinishState) {
			w.Clock.Advance(time.Hour)
			w.batch(task, no, func(b *capri.NewBatch) { b.State, b.FinishState = capri.Finished, how })
		}
		ended("20261118", capri.Failed)
		require.Contains(t, is(), "ended as failed")
		ended("20261119", capri.Success)
		require.Empty(t, is())
		w.batch(task, "20261120", nil)
		require.Empty(t, is(), "what waits has not ended")
		w.Clock.Advance(26*time.Hour + time.Second)
		require.Contains(t, is(), "which is more than 26h0m0s ago")
	})
}

func TestProbesThatHang_end_with_their_time_limit_side_by_side(t *testing.T) {
	each(t, func(w *world) {
		release := make(chan struct{})
		var asked atomic.Int32
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}))
		defer srv.Close()
		defer close(release)
		pid := filepath.Join(t.TempDir(), "pid")
		var probes []Probe
		for i := range 5 {
			probes = append(probes, Probe{Name: fmt.Sprint("u", i), URL: srv.URL, Interval: time.Minute, Timeout: 2 * time.Second, Level: capri.Important})
		}
		probes = append(probes, Probe{Name: "c", Command: []string{"sh", "-c", "sleep 300 & echo $! > " + pid + "; wait"}, Interval: time.Minute, Timeout: 2 * time.Second, Level: capri.Important})
		p := NewProbes(w.Store, probes, slog.New(slog.DiscardHandler))
		began := time.Now()
		require.Equal(t, 6, w.turnOf(p, 0).Counts["failing"])
		require.Less(t, time.Since(began), 30*time.Second)
		require.EqualValues(t, 5, asked.Load())
		require.Len(t, w.alerts(), 6)

		// The whole tree has ended with it.
		data, err := os.ReadFile(pid)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(data)) + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ") // nobody has collected it yet
		}, time.Minute, 10*time.Millisecond)
	})
}

func TestAProbesAlertThatCouldNotBeWritten_is_found_again(t *testing.T) {
	each(t, func(w *world) {
		p := NewProbes(w.Store, []Probe{{Name: "x", Command: []string{"false"}, Interval: time.Hour, Timeout: 10 * time.Second, Level: capri.Important}}, slog.New(slog.DiscardHandler))
		stale := w.lease
		w.lease = w.Lease(t, "monitor")
		_, err := p.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: stale})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		w.turnOf(p, time.Second)
		require.Len(t, w.alerts(), 1)
	})
}
