package lineage

import (
	"math"
	"slices"
	"strings"

	"capri"
	"capri/calendar"
	"capri/cron"
)

// Outputs are the paths that the task's batch for iv makes: what Conditions says of them, without the rest.
func (t *Compiled) Outputs(c calendar.Calendar, iv capri.Interval) ([]capri.PathCondition, error) {
	var notes []string
	return t.paths(c, t.outputs, iv, &notes)
}

// Readers finds who waits for a path: the inverse of a batch's inputs, as Children is of its parents. It never changes
// once all tasks are added, and may then be shared.
//
// Tasks that read the same template in the same way are one pattern, so what thousands of children wait for is worked
// out once. A path leads to the few patterns that may give it by its outline, in which the digits that can be times are
// left out; read backwards, each of these names some intervals; expanding proves them.
//
//	/dwd/t0042/20261120 ─▶ /dwd/t0042/# ─▶ pattern /dwd/t0042/${yyyyMMdd-1d}, day ─▶ 20261121 ─▶ tasks 7, 12, 90 …
type Readers struct {
	c        calendar.Calendar
	masks    map[string][]uint64 // by outline of everything: which digits are times, in one pattern or another
	outlines map[outlineKey][]*pattern
	patterns map[patternKey]*pattern
	odd      []*pattern
}

type outlineKey struct{ outline, flag string }

// pattern is one way to read a path.
type pattern struct {
	patternKey
	template *calendar.Template // of the canonical paths
	odd      bool               // not canonical: walked, and each expansion made so
	field    string             // of the first task that has it, for errors
	tasks    []int
	rank     int // patterns in the order in which they were added
}

type patternKey struct {
	text, flag string
	windowed   bool
	unit       capri.Period
	window     window
	period     capri.Period
	cron       *cron.Expression // shared by equal ones
}

// NewReaders makes an index to which tasks are added.
func NewReaders(c calendar.Calendar) *Readers {
	return &Readers{c: c, masks: map[string][]uint64{}, outlines: map[outlineKey][]*pattern{}, patterns: map[patternKey]*pattern{}}
}

// Add adds a task under a number of the caller's. A manual task is on nobody's way.
func (r *Readers) Add(task int, t *Compiled, ref Ref) {
	if ref.series(r.c).none() {
		return
	}
	for i := range t.inputs {
		in := &t.inputs[i]
		key := patternKey{in.template.String(), in.flag, in.windowed, in.unit, in.window, ref.Period, ref.Cron}
		p := r.patterns[key]
		if p == nil {
			p = &pattern{patternKey: key, field: in.field + " of task " + t.name, rank: len(r.patterns)}
			r.index(p, in.template)
			r.patterns[key] = p
		}
		if n := len(p.tasks); n == 0 || p.tasks[n-1] != task {
			p.tasks = append(p.tasks, task)
		}
	}
}

// index finds the place of a new pattern.
func (r *Readers) index(p *pattern, template *calendar.Template) {
	canonical, err := canonicalTemplate(template)
	if err != nil {
		p.template, p.odd = template, true
		r.odd = append(r.odd, p)
		return
	}
	p.template = canonical
	outline, times := canonical.Outline()
	all := calendar.Outline(outline, math.MaxUint64)
	if !slices.Contains(r.masks[all], times) {
		r.masks[all] = append(r.masks[all], times)
	}
	at := outlineKey{outline, p.flag}
	r.outlines[at] = append(r.outlines[at], p)
}

// canonicalTemplate is the template of the canonical paths. What stands in ${…} keeps its letters, so a host's name that
// has a time in it, whose other letters do not, has none.
func canonicalTemplate(t *calendar.Template) (*calendar.Template, error) {
	text := t.String()
	if head, _ := splitAuthority(text); strings.Contains(head, "${") {
		return nil, capri.Invalid("path", text, "a host without a time in its name")
	}
	canonical, err := CanonicalPath(text)
	if err != nil || canonical == text {
		return t, err
	}
	return calendar.ParseTemplate(canonical, calendar.PathTemplate)
}

// Reading is one answer: each of these tasks waits for the path with each of these intervals, the earliest first.
type Reading struct {
	Tasks     []int
	Intervals []capri.Interval
}

// Finder answers for many paths. It remembers, so it is for one question and one goroutine.
type Finder struct {
	r     *Readers
	until capri.Instant
	since func(task int) capri.Instant
	walks map[*pattern]map[string][]capri.Interval
	known map[capri.PathCondition][]Reading
	left  int
}

// maxWalk bounds what is looked through, over all paths of one question, for paths that do not say of which day they are.
const maxWalk = 2_000_000

// Find prepares to look for intervals with marks not after until. A path without a date can be of any interval there is:
// since says where a task's begin. It bounds the search, and the answer may have earlier ones all the same.
func (r *Readers) Find(until capri.Instant, since func(task int) capri.Instant) *Finder {
	return &Finder{r: r, until: until, since: since, left: maxWalk,
		walks: map[*pattern]map[string][]capri.Interval{}, known: map[capri.PathCondition][]Reading{}}
}

// Of lists who waits for the path, which must be canonical.
func (f *Finder) Of(path capri.PathCondition) ([]Reading, error) {
	if known, ok := f.known[path]; ok {
		return known, nil
	}
	var candidates []*pattern
	for _, times := range f.r.masks[calendar.Outline(path.Path, math.MaxUint64)] {
		candidates = append(candidates, f.r.outlines[outlineKey{calendar.Outline(path.Path, times), path.Flag}]...)
	}
	for _, p := range f.r.odd {
		if p.flag == path.Flag {
			candidates = append(candidates, p)
		}
	}
	slices.SortFunc(candidates, func(a, b *pattern) int { return a.rank - b.rank })
	var found []Reading
	for _, p := range candidates {
		ivs, err := f.intervals(p, path.Path)
		if err != nil {
			return nil, err
		}
		if len(ivs) > 0 {
			found = append(found, Reading{p.tasks, ivs})
		}
	}
	f.known[path] = found
	return found, nil
}

func (f *Finder) intervals(p *pattern, path string) ([]capri.Interval, error) {
	if p.odd {
		walk, err := f.walk(p)
		return walk[path], err
	}
	var ivs []capri.Interval
	for _, m := range p.template.Match(f.r.c, path) {
		switch {
		case m.Start.Bounded() && p.windowed:
			ivs = append(ivs, f.byInstance(p, m.Start, path)...)
		case m.Start.Bounded():
			ivs = append(ivs, f.byStart(p, m.Start, path)...)
		case m.Mark.Bounded():
			ivs = append(ivs, f.byMark(p, m.Mark, path)...)
		default:
			walk, err := f.walk(p)
			if err != nil {
				return nil, err
			}
			ivs = append(ivs, walk[path]...)
		}
	}
	slices.SortFunc(ivs, func(a, b capri.Interval) int { return int(a.End - b.End) })
	return slices.CompactFunc(ivs, func(a, b capri.Interval) bool { return a.End == b.End }), nil
}

func (p *pattern) ref() Ref {
	return Ref{Period: p.period, Cron: p.cron}
}

// byStart looks among the intervals that start within r.
func (f *Finder) byStart(p *pattern, r calendar.Range, path string) (ivs []capri.Interval) {
	row := p.ref().series(f.r.c)
	iv, ok := row.endingAfter(r.From - 1)
	for left := 0; ok && left == 0 && iv.Start < r.To && iv.Mark <= f.until; iv, left = row.move(iv, 1) {
		if p.gives(f.r.c, iv, path) {
			ivs = append(ivs, iv)
		}
	}
	return ivs
}

// byInstance looks among the intervals whose windows hold an instance that starts within r.
func (f *Finder) byInstance(p *pattern, r calendar.Range, path string) (ivs []capri.Interval) {
	of := Ref{Period: p.unit}
	row := of.series(f.r.c)
	dep := capri.Parent{From: &p.window.from, To: &p.window.to}
	marked := p.template.Marked()
	instance, _ := row.endingAfter(r.From - 1)
	for ; instance.Start < r.To; instance, _ = row.move(instance, 1) {
		if !marked && p.template.Expand(f.r.c, instance.Start, 0) != path {
			continue
		}
		for _, iv := range Children(f.r.c, of, instance, p.ref(), dep, f.until) {
			if !marked || p.template.Expand(f.r.c, instance.Start, iv.Mark) == path {
				ivs = append(ivs, iv)
			}
		}
	}
	return ivs
}

// longestDelay is further after an interval's end than any mark: a few minutes, or a day that a zone leaves out.
const longestDelay = 2 * 86_400_000

// byMark looks among the intervals whose marks are within r.
func (f *Finder) byMark(p *pattern, r calendar.Range, path string) (ivs []capri.Interval) {
	row := p.ref().series(f.r.c)
	iv, ok := row.endingAfter(r.From - longestDelay)
	for left := 0; ok && left == 0 && iv.End < r.To && iv.Mark <= f.until; iv, left = row.move(iv, 1) {
		if iv.Mark >= r.From && p.gives(f.r.c, iv, path) {
			ivs = append(ivs, iv)
		}
	}
	return ivs
}

// gives reports whether the batch for iv waits for path by this pattern.
func (p *pattern) gives(c calendar.Calendar, iv capri.Interval, path string) bool {
	if !p.windowed {
		return p.template.Expand(c, iv.Start, iv.Mark) == path
	}
	found := false
	of := series{c: c, p: p.unit}
	p.window.span(p.period, iv, of).each(of, func(instance capri.Interval) {
		found = found || p.template.Expand(c, instance.Start, iv.Mark) == path
	})
	return found
}

// walk goes through all intervals that the pattern's tasks have, for paths that say no date. Once is enough for all.
func (f *Finder) walk(p *pattern) (map[string][]capri.Interval, error) {
	if walk, ok := f.walks[p]; ok {
		return walk, nil
	}
	since := f.until
	for _, task := range p.tasks {
		since = min(since, f.since(task))
	}
	walk := map[string][]capri.Interval{}
	row := p.ref().series(f.r.c)
	iv, ok := row.endingAfter(since - longestDelay)
	for left := 0; ok && left == 0 && iv.Mark <= f.until; iv, left = row.move(iv, 1) {
		add := func(start capri.Instant) {
			f.left--
			path := p.template.Expand(f.r.c, start, iv.Mark)
			if p.odd {
				path, _ = CanonicalPath(path) // Compile has read the text, so it is a good one
			}
			if ivs := walk[path]; len(ivs) == 0 || ivs[len(ivs)-1].End != iv.End {
				walk[path] = append(ivs, iv)
			}
		}
		of := series{c: f.r.c, p: p.unit}
		switch {
		case !p.windowed:
			add(iv.Start)
		case p.template.Constant():
			if s := p.window.span(p.period, iv, of); !s.empty {
				add(iv.Start)
			}
		default:
			p.window.span(p.period, iv, of).each(of, func(instance capri.Interval) { add(instance.Start) })
		}
		if f.left < 0 {
			return nil, capri.Conflict("%s: %q does not say of which day it is, and there are too many intervals since %s to look through; give it a date, or the task a later valid.from",
				p.field, p.text, since.In(f.r.c.Zone()).Format("2006-01-02"))
		}
	}
	f.walks[p] = walk
	return walk, nil
}
