package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// people use Capri while it is hurt: a command line each, against some master, with an answer that is written down.
type people struct {
	c     *cluster
	n     *nemesis
	tasks []task
	r     *rand.Rand
	log   *os.File

	disabled map[string]bool
	held     map[string]bool
	paused   bool

	Calls   map[string]int `json:"calls"`
	Codes   map[int]int    `json:"exit_codes"`
	Longest time.Duration  `json:"-"`
	Wrong   []string       `json:"wrong,omitempty"` // an internal error, or no answer while nothing was hurt
}

func newPeople(c *cluster, n *nemesis, all []task, seed uint64, log *os.File) *people {
	all = slices.DeleteFunc(slices.Clone(all), task.isLasting) // their jobs are to be there when a fault comes
	return &people{c: c, n: n, tasks: all, r: rand.New(rand.NewPCG(seed, 2)), log: log, disabled: map[string]bool{}, held: map[string]bool{}, Calls: map[string]int{}, Codes: map[int]int{}}
}

// habit is what people do, and how often of a hundred times.
type habit struct {
	name  string
	share int
	args  func(p *people, ctx context.Context) []string // none: there is nothing to do it to
}

var habits = []habit{
	{"execute", 8, func(p *people, _ context.Context) []string { return []string{"execute", p.task().name} }},
	{"cold-start", 4, func(p *people, _ context.Context) []string {
		now := time.UnixMilli(p.c.business(time.Now().UnixMilli()))
		return []string{"cold-start", "--period", "hour", "--task", p.taskOf("hour").name, "--only", []string{"missing", "failed", "all"}[p.r.IntN(3)], "--yes",
			"--from", now.Add(-3 * time.Hour).Format(time.RFC3339), "--to", now.Format(time.RFC3339)}
	}},
	{"rerun", 5, func(p *people, _ context.Context) []string {
		now := time.UnixMilli(p.c.business(time.Now().UnixMilli()))
		return []string{"rerun", p.task().name, "--yes", "--no-wait", "--only", []string{"all", "failed", "missing"}[p.r.IntN(3)], "--on-running", []string{"fail", "skip", "kill"}[p.r.IntN(3)], "--from", now.Add(-3 * time.Hour).Format(time.RFC3339), "--to", now.Format(time.RFC3339)}
	}},
	{"kill", 10, func(p *people, ctx context.Context) []string {
		return p.batch(ctx, "state IN (1, 2) AND task_id NOT IN (SELECT id FROM task WHERE name LIKE '"+lastingShape+"%')", "kill", "--yes")
	}},
	{"hold", 6, func(p *people, ctx context.Context) []string {
		args := p.batch(ctx, "state = 0 AND held = 0", "hold")
		if args != nil {
			p.held[args[1]] = true
		}
		return args
	}},
	{"release", 5, func(p *people, _ context.Context) []string {
		for id := range p.held {
			delete(p.held, id)
			return []string{"release", id}
		}
		return nil
	}},
	{"apply", 7, func(p *people, _ context.Context) []string {
		t := p.task()
		if p.disabled[t.name] { // the file would enable it again
			return nil
		}
		t.yaml = strings.Replace(t.yaml, "    owner: soak\n", fmt.Sprintf("    owner: soak\n    title: Edited %d\n", p.r.IntN(1000)), 1)
		name := filepath.Join(p.c.dir, "edit.yaml")
		if err := os.WriteFile(name, []byte(file(t)), 0o644); err != nil {
			return nil
		}
		return []string{"task", "apply", "-f", name}
	}},
	{"disable", 3, func(p *people, _ context.Context) []string {
		t := p.task()
		p.disabled[t.name] = true
		return []string{"task", "disable", t.name}
	}},
	{"enable", 4, func(p *people, _ context.Context) []string {
		for name := range p.disabled {
			delete(p.disabled, name)
			return []string{"task", "enable", name}
		}
		return nil
	}},
	{"third-party", 12, func(p *people, ctx context.Context) []string {
		var code, no string
		if p.c.db.QueryRowContext(ctx, "SELECT t.code, t.batch_no FROM tthird_data t JOIN task_work b ON b.id = t.batch_id WHERE t.state = 0 AND b.state = 0 ORDER BY RAND() LIMIT 1").Scan(&code, &no) != nil {
			return nil
		}
		return []string{"third-party", []string{"ready", "ready", "ready", "fail", "withdraw"}[p.r.IntN(5)], code, "--interval", no, "--period", "hour"}
	}},
	{"pause", 2, func(p *people, _ context.Context) []string { // for ten minutes of business time
		p.paused = true
		return []string{"pause", "--reason", "somebody wants to look", "--until", time.UnixMilli(p.c.business(time.Now().UnixMilli())).Add(10 * time.Minute).Format(time.RFC3339)}
	}},
	{"resume", 5, func(p *people, _ context.Context) []string {
		if !p.paused {
			return nil
		}
		p.paused = false
		return []string{"resume"}
	}},
	{"pause-some", 1, func(p *people, _ context.Context) []string { // a group or a node
		what := []string{"--group", "soak"}
		if p.r.IntN(3) > 0 {
			what = []string{"--node", p.c.workers[p.r.IntN(len(p.c.workers))].name}
		}
		return append([]string{"pause", "--reason", "somebody wants to look", "--until", p.in(5 * time.Minute)}, what...)
	}},
	{"breaker", 2, func(p *people, _ context.Context) []string {
		if name := p.task().name; p.r.IntN(3) > 0 {
			return []string{"breaker", "open", "--reason", "it does harm", "--until", p.in(15 * time.Minute), "--task", name}
		} else if p.r.IntN(2) == 0 {
			return []string{"breaker", "close", "--task", name}
		}
		return []string{"breaker", "close", "--group", "soak"}
	}},
	{"run-now", 2, func(p *people, ctx context.Context) []string {
		if p.r.IntN(4) == 0 {
			return []string{"run-now", p.task().name}
		}
		return p.batch(ctx, "state = 0", "run-now")
	}},
	{"force-success", 2, func(p *people, ctx context.Context) []string {
		args := p.batch(ctx, "(state = 0 OR state = 3 AND finish_state <> 1) AND latest = 1", "force-success", "--yes")
		if args != nil {
			args = append(args, "--reason", "known to be right")
		}
		return args
	}},
	{"cascade", 2, func(p *people, _ context.Context) []string {
		return []string{"rerun", p.task().name, "--yes", "--no-wait", "--cascade", []string{"data", "logic", "both"}[p.r.IntN(3)], "--on-running", []string{"skip", "kill"}[p.r.IntN(2)],
			"--limit", strconv.Itoa(p.r.IntN(4)), "--from", p.in(-2 * time.Hour), "--to", p.in(0)}
	}},
	{"campaign", 4, func(p *people, ctx context.Context) []string {
		var id string
		if p.c.db.QueryRowContext(ctx, "SELECT id FROM campaign WHERE state IN (2, 3, 4) ORDER BY RAND() LIMIT 1").Scan(&id) != nil {
			return nil
		}
		return [][]string{{"campaign", "pause", id}, {"campaign", "resume", id}, {"campaign", "resume", id}, {"campaign", "cancel", id, "--yes"}, {"campaign", "cancel", id, "--yes", "--kill"}}[p.r.IntN(5)]
	}},
	{"trigger", 3, func(p *people, _ context.Context) []string {
		return []string{"service", "trigger", []string{"generate", "dependency", "dispatch", "reschedule", "timeout", "lost-nodes"}[p.r.IntN(6)]}
	}},
	{"why", 5, func(p *people, ctx context.Context) []string { return p.batch(ctx, "state = 0", "why") }},
	{"show", 4, func(p *people, ctx context.Context) []string { return p.batch(ctx, "state = 3", "batch", "show") }},
	{"list", 4, func(*people, context.Context) []string { return []string{"batch", "list", "-o", "json"} }},
}

// in is a moment from now, in business time.
func (p *people) in(d time.Duration) string {
	return time.UnixMilli(p.c.business(time.Now().UnixMilli())).Add(d).Format(time.RFC3339)
}

// over tells whether the end that a call named has passed by now: whoever waited so long for a frozen master is told so.
func (p *people) over(args []string) bool {
	i := slices.Index(args, "--until")
	return i >= 0 && args[i+1] <= p.in(0)
}

// task is any of them.
func (p *people) task() task { return p.tasks[p.r.IntN(len(p.tasks))] }

func (p *people) taskOf(period string) task {
	for {
		if t := p.task(); t.period == period {
			return t
		}
	}
}

// batch asks for some batch and puts its id behind the first words of a command.
func (p *people) batch(ctx context.Context, where string, words ...string) []string {
	var id string
	if p.c.db.QueryRowContext(ctx, "SELECT id FROM task_work WHERE "+where+" ORDER BY RAND() LIMIT 1").Scan(&id) != nil {
		return nil
	}
	at := len(words)
	if at > 1 && strings.HasPrefix(words[1], "--") {
		at = 1
	}
	return append(append(append([]string{}, words[:at]...), id), words[at:]...)
}

// run does something every now and then until ctx ends, then puts back what would keep batches from ever ending.
func (p *people) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(200+p.r.IntN(1400))*time.Millisecond)
		dice := p.r.IntN(100)
		for _, h := range habits {
			if dice -= h.share; dice < 0 {
				p.do(ctx, h)
				break
			}
		}
	}
}

// tidy releases, resumes and enables everything, and kills the lasting jobs, for which nobody has to wait; it is done when
// nothing is hurt any more.
func (p *people) tidy(ctx context.Context) error {
	var wrong []error
	undo := func(args ...string) {
		if out, err := p.c.api(ctx, p.c.masters[0], args...); err != nil {
			wrong = append(wrong, fmt.Errorf("capri %s: %w: %s", strings.Join(args, " "), err, out))
		}
	}
	undo("resume")
	for _, q := range []struct{ ask, word, more string }{
		{"SELECT id FROM task_work WHERE held = 1 AND state < 3", "release", ""},
		{"SELECT name FROM task WHERE enabled = 0 AND deleted_at IS NULL", "task", "enable"},
		{"SELECT id FROM campaign WHERE state = 4", "campaign", "resume"},
		{"SELECT name FROM dispatch_stop WHERE kind = 1 AND scope = 1", "resume", "--group"},
		{"SELECT name FROM dispatch_stop WHERE kind = 1 AND scope = 2", "resume", "--node"},
		{"SELECT name FROM dispatch_stop WHERE kind = 2 AND scope = 3 AND ends_at IS NOT NULL", "breaker", "close --task"}, // those that opened by themselves stay
	} {
		names, err := p.c.column(ctx, q.ask)
		if err != nil {
			return err
		}
		for _, name := range names {
			undo(append(append([]string{q.word}, strings.Fields(q.more)...), name)...)
		}
	}
	return errors.Join(append(wrong, p.endLasting(ctx))...)
}

// endLasting kills what there is of the lasting tasks. One may end by itself just then, and its kill be refused: what is
// left is asked for again.
func (p *people) endLasting(ctx context.Context) error {
	var out string
	for try := 0; ; try++ {
		ids, err := p.c.column(ctx, "SELECT b.id FROM task_work b JOIN task t ON t.id = b.task_id WHERE t.name LIKE '"+lastingShape+"%' AND b.state < 3 AND b.kill_request = 0")
		if err != nil || len(ids) == 0 {
			return err
		}
		if try == 3 {
			return fmt.Errorf("%d lasting batches cannot be killed: %s", len(ids), out)
		}
		out, _ = p.c.api(ctx, p.c.masters[0], append([]string{"kill", "--yes"}, ids...)...)
	}
}

// answerWithin is how long somebody waits in front of a terminal.
const answerWithin = 20 * time.Second

// call is a line of the log.
type call struct {
	At     int64    `json:"at_ms"`
	Took   int64    `json:"took_ms"`
	Master string   `json:"master"`
	Args   []string `json:"args"`
	Code   int      `json:"exit_code"` // -1: no answer within answerWithin
	Said   string   `json:"said,omitempty"`
}

func (p *people) do(ctx context.Context, h habit) {
	args := h.args(p, ctx)
	if args == nil {
		return
	}
	m := p.c.masters[p.r.IntN(len(p.c.masters))]
	hurt := p.n.hurt(m.name) || p.n.hurt("database")
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, answerWithin)
	out, err := p.c.api(within, m, args...)
	silent := within.Err() != nil
	cancel()
	hurt = hurt || p.n.hurt(m.name) || p.n.hurt("database")
	if ctx.Err() != nil { // our own end
		return
	}
	l := call{At: began.UnixMilli(), Took: time.Since(began).Milliseconds(), Master: m.name, Args: args, Said: strings.TrimSpace(out[max(0, len(out)-300):])}
	var exit *exec.ExitError
	switch {
	case silent:
		l.Code = -1
	case errors.As(err, &exit):
		l.Code = exit.ExitCode()
	case err != nil:
		l.Code, l.Said = -2, err.Error()
	default:
		l.Said = ""
	}
	p.Calls[h.name]++
	p.Codes[l.Code]++
	if !hurt {
		p.Longest = max(p.Longest, time.Since(began))
	}
	// Refused, not found, not reachable are answers. An internal error never is, nor bad usage, which is ours; silence is one only of a master, or a
	// database, that was hurt meanwhile.
	if l.Code == 1 || l.Code == 2 && !p.over(args) || l.Code == -2 || l.Code == -1 && !hurt {
		p.Wrong = append(p.Wrong, fmt.Sprintf("capri %s against %s after %d ms: exit code %d: %s", strings.Join(args, " "), m.name, l.Took, l.Code, l.Said))
	}
	if err := json.NewEncoder(p.log).Encode(l); err != nil {
		p.Wrong = append(p.Wrong, err.Error())
	}
}
