//go:build failpoint

package failpoint

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Enabled says whether this build has failpoints.
const Enabled = true

// What steers them.
const (
	envClock = "CAPRI_FAILPOINT_CLOCK"
	envFile  = "CAPRI_FAILPOINT_FILE"
)

var (
	business = must(parseClock(os.Getenv(envClock)))
	rules    = &file{path: os.Getenv(envFile)}
)

// Wait passes a point that may be slow.
func Wait(p Point) {
	if r, ok := rules.hit(p); ok {
		time.Sleep(r.delay)
	}
}

// Cut passes a point at which the connection may be lost. The error is what the driver gives when a reply ends in the
// middle, so the caller does what it does then.
func Cut(p Point) error {
	r, ok := rules.hit(p)
	if !ok {
		return nil
	}
	time.Sleep(r.delay)
	if r.exit {
		os.Exit(ExitCode)
	}
	if r.cut {
		return fmt.Errorf("failpoint %s: %w", p, io.ErrUnexpectedEOF)
	}
	return nil
}

// On says whether something is to be done wrong.
func On(p Point) bool {
	_, ok := rules.hit(p)
	return ok
}

// Clock is the SQL expression of business time, made of that of the database's clock.
func Clock(expression string) string {
	if business.speed == 0 {
		return expression
	}
	return fmt.Sprintf("(%d + (%s - %d) * %d)", business.business, expression, business.real, business.speed)
}

// Real is how long a stretch of business time takes.
func Real(d time.Duration) time.Duration {
	if business.speed == 0 {
		return d
	}
	return d / time.Duration(business.speed)
}

// Now is this machine's clock, for what compares it with the database's: business time too, and shifted by local-clock.
func Now() time.Time {
	now := time.Now()
	if business.speed != 0 {
		now = time.UnixMilli(business.business).Add(now.Sub(time.UnixMilli(business.real)) * time.Duration(business.speed))
	}
	if r, ok := rules.hit(LocalClock); ok {
		now = now.Add(r.shift)
	}
	return now
}

// clock says what business time is; speed 0 leaves it alone.
type clock struct{ real, business, speed int64 }

func parseClock(text string) (clock, error) {
	if text == "" {
		return clock{}, nil
	}
	var c clock
	var rest string
	if n, _ := fmt.Sscan(text+" .", &c.real, &c.business, &c.speed, &rest); n != 4 || rest != "." || c.speed < 1 {
		return c, fmt.Errorf("%s is %q: want REAL BUSINESS SPEED, two epoch milliseconds and a factor of at least 1", envClock, text)
	}
	return c, nil
}

// rule is what happens at a point.
type rule struct {
	delay time.Duration
	shift time.Duration
	cut   bool
	exit  bool
	share float64
	skip  int // passes that go by first
}

// lookEvery bounds how often the file is looked at: the points lie on hot paths.
const lookEvery = 100 * time.Millisecond

// file is the control file; it need not be there.
type file struct {
	path string

	mu     sync.Mutex
	looked time.Time
	text   string
	rules  map[Point]rule
}

// hit throws the dice for one pass of a point.
func (f *file) hit(p Point) (rule, bool) {
	if f.path == "" {
		return rule{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.looked) >= lookEvery {
		f.looked = now
		f.read()
	}
	r, ok := f.rules[p]
	if r.skip > 0 {
		r.skip--
		f.rules[p] = r
		return r, false
	}
	return r, ok && (r.share >= 1 || rand.Float64() < r.share)
}

func (f *file) read() {
	data, err := os.ReadFile(f.path)
	if err != nil && !os.IsNotExist(err) {
		must(0, err)
	}
	if string(data) == f.text {
		return
	}
	f.text = string(data)
	f.rules = must(parseRules(f.text))
}

// takes says what each point understands.
var takes = map[Point][]string{
	BeforeCommit:  {"cut", "delay", "exit", "share", "skip"},
	AfterCommit:   {"cut", "delay", "exit", "share", "skip"},
	ClaimStart:    {"delay", "share"},
	PlanAssign:    {"delay", "share"},
	LeaseBlind:    {"share"},
	LeaseStay:     {"share"},
	LocalClock:    {"shift"},
	AlertTaken:    {"cut", "exit", "share", "skip"},
	AlertFiled:    {"cut", "exit", "share", "skip"},
	AlertComposed: {"cut", "exit", "share", "skip"},
	AlertSent:     {"cut", "exit", "share", "skip"},
	AlertNoted:    {"cut", "exit", "share", "skip"},
}

func parseRules(text string) (map[Point]rule, error) {
	all := map[Point]rule{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		p := Point(words[0])
		if takes[p] == nil {
			return nil, fmt.Errorf("failpoints: there is no point %q", p)
		}
		r := rule{share: 1}
		for _, w := range words[1:] {
			if err := r.set(p, w); err != nil {
				return nil, fmt.Errorf("failpoint %s: %q: %w", p, w, err)
			}
		}
		all[p] = r
	}
	return all, nil
}

func (r *rule) set(p Point, word string) (err error) {
	name, value, _ := strings.Cut(word, "=")
	known := false
	for _, t := range takes[p] {
		known = known || t == name
	}
	if !known {
		return fmt.Errorf("it understands %s", strings.Join(takes[p], ", "))
	}
	switch name {
	case "cut":
		r.cut = true
	case "exit":
		r.exit = true
	case "skip":
		r.skip, err = strconv.Atoi(value)
	case "delay":
		r.delay, err = time.ParseDuration(value)
	case "shift":
		r.shift, err = time.ParseDuration(value)
	case "share":
		r.share, err = strconv.ParseFloat(value, 64)
	}
	return err
}

// must ends the process where a test has asked for something that cannot be done.
func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, "capri:", err)
		os.Exit(2)
	}
	return v
}
