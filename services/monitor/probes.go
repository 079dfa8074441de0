package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"capri"
	"capri/services"
	"capri/sql/store"
)

// Probe is one thing outside Capri that is looked after: exactly one of Command, URL and Task is set.
type Probe struct {
	Name     string
	Command  []string // a program and its arguments, never a shell's text: well with exit code 0
	URL      string   // well with a 2xx answer
	Task     string   // well when the batch that ended last succeeded, at most MaxAge ago
	MaxAge   time.Duration
	Interval time.Duration
	Timeout  time.Duration
	Level    capri.Level
	Text     string // of the operator, into the alert
}

// Probes runs what is due of them, at once, in a rhythm of its own: a turn lasts as long as its slowest probe's time
// limit at most, and the checks do not wait for it. Make it with NewProbes.
type Probes struct {
	store  *store.Store
	log    *slog.Logger
	probes []Probe
	client *http.Client

	epoch   capri.Epoch
	ran     map[string]capri.Instant // when each was last begun
	failing map[string]capri.Instant // since when
}

// NewProbes makes the service.
func NewProbes(s *store.Store, probes []Probe, log *slog.Logger) *Probes {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // an old connection says nothing about who can connect now
	// Redirects are no 2xx: whether the place that a probe was sent to is well is not what was asked.
	return &Probes{store: s, log: log, probes: probes,
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

const (
	probesAtOnce = 8
	outputMost   = 2000 // bytes of what a probe says that are kept
)

// Run is one turn.
func (p *Probes) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	if p.epoch != t.Lease.Epoch || p.ran == nil {
		p.epoch, p.ran, p.failing = t.Lease.Epoch, map[string]capri.Instant{}, map[string]capri.Instant{}
	}
	var due []Probe
	for _, x := range p.probes {
		ran, before := p.ran[x.Name]
		if passed := t.Now.Sub(ran); !before || passed < 0 || passed >= x.Interval {
			due = append(due, x)
			p.ran[x.Name] = t.Now
		}
	}
	if len(due) == 0 {
		return services.Result{}, nil
	}
	errs := make([]error, len(due))
	var eg errgroup.Group
	eg.SetLimit(probesAtOnce)
	for i, x := range due {
		eg.Go(func() error {
			within, cancel := context.WithTimeout(ctx, x.Timeout)
			defer cancel()
			if errs[i] = p.probe(within, t.Now, x); errs[i] != nil && within.Err() != nil {
				errs[i] = fmt.Errorf("no answer within %s: %w", x.Timeout, errs[i])
			}
			return nil
		})
	}
	_ = eg.Wait() // errors are in errs
	if ctx.Err() != nil {
		return services.Result{}, ctx.Err() // we were stopped, which is no fault of the probes
	}

	failed := 0
	since := map[string]capri.Instant{} // of those that fail now
	var alerts []capri.Alert
	for i, x := range due {
		began, was := p.failing[x.Name]
		if errs[i] == nil {
			if was {
				alerts = append(alerts, capri.Alert{Key: fmt.Sprintf("probe_over:%s:%d", x.Name, began), Level: capri.Attention, Kind: "probe_over",
					Title: "Probe " + x.Name + " is well again", Text: fmt.Sprintf("It failed since %s.", began)})
			}
			continue
		}
		failed++
		if since[x.Name] = began; !was {
			since[x.Name] = t.Now
			alerts = append(alerts, capri.Alert{Key: fmt.Sprintf("probe_failed:%s:%d", x.Name, t.Now), Level: x.Level, Kind: "probe_failed",
				Title: "Probe " + x.Name + " fails", Text: strings.TrimSpace(fmt.Sprintf("%v\n\n%s", errs[i], x.Text))})
			p.log.Warn("a probe fails", "probe", x.Name, "err", errs[i])
		}
	}
	res := services.Result{Counts: map[string]int{"probes": len(due)}}
	if failed > 0 {
		res.Counts["failing"] = failed
	}
	if len(alerts) > 0 {
		err := p.store.WriteAs(ctx, "write the probes' alerts", t.Lease, func(tx *store.Tx) error {
			for _, a := range alerts {
				if err := tx.Alert(a); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			for _, x := range due { // what was found is not told: find it again
				delete(p.ran, x.Name)
			}
			return res, err
		}
	}
	for _, x := range due {
		delete(p.failing, x.Name)
	}
	for name, at := range since {
		p.failing[name] = at
	}
	return res, nil
}

func (p *Probes) probe(ctx context.Context, now capri.Instant, x Probe) error {
	switch {
	case x.Task != "":
		return p.task(ctx, now, x)
	case x.URL != "":
		return p.get(ctx, x.URL)
	}
	return command(ctx, x.Command)
}

func (p *Probes) task(ctx context.Context, now capri.Instant, x Probe) error {
	how, at, found, err := p.store.LastEnded(ctx, x.Task)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("no batch of task %s has ended, or there is no such task", x.Task)
	case how != capri.Success:
		return fmt.Errorf("the batch of task %s that ended last, at %s, ended as %s", x.Task, at, how)
	case now.Sub(at) > x.MaxAge:
		return fmt.Errorf("task %s last succeeded at %s, which is more than %s ago", x.Task, at, x.MaxAge)
	}
	return nil
}

func (p *Probes) get(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return nil
	}
	said, _ := io.ReadAll(io.LimitReader(resp.Body, outputMost)) // what cannot be read is not said
	return withOutput(fmt.Errorf("%s answers %s", address, resp.Status), said)
}

// command runs a program in a process group of its own, all of which ends with the time limit.
func command(ctx context.Context, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Env = environment()     // ours holds the database's password
	cmd.WaitDelay = time.Second // a grandchild that left the group and holds the output must not hold the turn
	var out cappedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well; only its output was held open
		err = nil
	}
	if err == nil {
		return nil
	}
	return withOutput(fmt.Errorf("%s: %w", argv[0], err), out.b)
}

// environment is what a program needs to find others and to write its messages.
func environment() []string {
	env := []string{}
	for _, name := range []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// cappedBuffer keeps the beginning of what is written and takes the rest without keeping it.
type cappedBuffer struct{ b []byte }

func (c *cappedBuffer) Write(p []byte) (int, error) {
	c.b = append(c.b, p[:min(len(p), outputMost-len(c.b))]...)
	return len(p), nil
}

func withOutput(err error, said []byte) error {
	text := strings.TrimSpace(strings.ToValidUTF8(string(said), "?"))
	if text == "" {
		return err
	}
	if len(said) >= outputMost {
		text += " …"
	}
	return fmt.Errorf("%w\nIt said: %s", err, text)
}
