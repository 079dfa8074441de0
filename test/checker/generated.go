package checker

import (
	"maps"
	"math"
	"slices"

	"capri/test/checker/oracle"
)

// calendarPeriods are those whose marks come from the calendar.
var calendarPeriods = []oracle.Period{oracle.Month, oracle.Week, oracle.Day, oracle.Hour}

// expected is what the oracle says of a run.
type expected struct {
	walk  *oracle.Walk
	to    int64 // for what may be there: the newest mark that any row has
	byNo  map[oracle.Period]map[string]oracle.Interval
	fires map[string]map[int64]oracle.Interval // by expression, then by fire
	from  int64
	runs0 map[key]int
}

// expect asks the oracle, once.
func (h *History) expect() (*expected, error) {
	if h.expected != nil {
		return h.expected, nil
	}
	const farBack = 3 * 366 * 86_400_000 // a walk of more would take minutes
	e := &expected{from: h.Run.From, to: h.Run.To, byNo: map[oracle.Period]map[string]oracle.Interval{},
		fires: map[string]map[int64]oracle.Interval{}, runs0: map[key]int{}}
	for _, b := range h.batches {
		if b.start > h.Run.From-farBack {
			e.from = min(e.from, b.start)
		}
		e.to = max(e.to, b.schedule, b.end)
		if b.run == 0 {
			e.runs0[b.key()]++
		}
	}
	var err error
	if e.walk, err = oracle.NewWalk(h.Run.Zone, e.from, e.to); err != nil {
		return nil, err
	}
	for _, p := range calendarPeriods {
		e.byNo[p] = map[string]oracle.Interval{}
		for _, iv := range e.walk.Marks(p, e.from-1, math.MaxInt64) {
			e.byNo[p][iv.BatchNo] = iv
		}
	}
	h.expected = e
	return e, nil
}

// firesOf gives the fires of an expression, by their time; none where the oracle cannot read it.
func (e *expected) firesOf(text string, r *Result) map[int64]oracle.Interval {
	if found, ok := e.fires[text]; ok {
		return found
	}
	e.fires[text] = map[int64]oracle.Interval{}
	x, err := oracle.ParseCron(text)
	if err != nil {
		r.violated("the oracle cannot read an expression that was accepted: %v", err)
		return nil
	}
	for _, iv := range e.walk.Fires(x, e.from-1, e.to) {
		e.fires[text][iv.Mark] = iv
	}
	return e.fires[text]
}

// takesPart tells whether a version that is in force at a mark has a batch there.
func (v version) takesPart(p oracle.Period, mark int64) bool {
	return v.alive(p) && v.validFrom <= mark && (v.validTo == 0 || v.validTo > mark)
}

func (v version) alive(p oracle.Period) bool { return v.enabled && !v.deleted && v.period == p }

// around gives the versions that were in force at some time in [from, to].
func (t *task) around(from, to int64) []version {
	var out []version
	for i, v := range t.versions {
		if v.changedAt <= to && (i+1 == len(t.versions) || t.versions[i+1].changedAt >= from) {
			out = append(out, v)
		}
	}
	return out
}

// must tells whether the task has to have a batch at the mark, whoever looked when: what was in force at the mark and a
// moment before took part, and until the batch was made the task was neither disabled nor deleted. An edit as
// close to the mark as a transaction is long may have been seen or not, so it decides nothing.
func (h *History) must(t *task, p oracle.Period, mark, madeBy int64) bool {
	before := t.around(mark-h.Run.slack(), mark)
	if len(before) == 0 || before[0].number == 1 && before[0].changedAt > mark-h.Run.slack() {
		return false
	}
	for _, v := range before {
		if !v.takesPart(p, mark) || v.cron != before[0].cron {
			return false
		}
	}
	for _, v := range t.around(mark, madeBy+h.Run.slack()) {
		if !v.alive(p) {
			return false
		}
	}
	return true
}

// may tells whether anybody could have seen the task take part in the mark, and with which expressions.
func (h *History) may(t *task, p oracle.Period, mark int64) (crons []string, ok bool) {
	for _, v := range t.around(mark-h.Run.slack(), mark+h.Run.slack()) {
		if v.takesPart(p, mark) {
			crons, ok = append(crons, v.cron), true
		}
	}
	return crons, ok
}

func generated(h *History, r *Result) {
	e, err := h.expect()
	if err != nil {
		r.violated("the oracle cannot work: %v", err)
		return
	}
	h.missing(e, r)
	for k, n := range e.runs0 {
		if n > 1 {
			r.violated("%d runs 0 of %s", n, h.keyName(k))
		}
	}
	for _, b := range h.batches {
		r.Checked++
		h.named(e, b, r)
	}
	if n := len(h.failures); n > 0 {
		r.noted("%d generations failed and stand in the ledger", n)
	}
}

// missing looks for batches that have to be there.
func (h *History) missing(e *expected, r *Result) {
	lacks := func(t *task, p oracle.Period, iv oracle.Interval, madeBy int64) {
		r.Checked++
		if !h.must(t, p, iv.Mark, madeBy) || e.runs0[key{t.id, iv.BatchNo}] > 0 {
			return
		}
		if _, failed := h.failures[failureKey{p, iv.Mark, t.id}]; failed {
			return
		}
		r.violated("no run 0 of %s %s, whose mark was %s", t.name, iv.BatchNo, h.when(iv.Mark))
	}
	for _, p := range calendarPeriods {
		begins, completed := h.markLog(p)
		for _, iv := range e.walk.Marks(p, max(begins, h.Run.From), h.Run.To) {
			madeBy := completed[iv.Mark]
			if madeBy == 0 {
				madeBy = h.Run.End
			}
			for _, id := range slices.Sorted(maps.Keys(h.tasks)) {
				lacks(h.tasks[id], p, iv, madeBy)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(h.tasks)) {
		t, seen := h.tasks[id], map[string]bool{}
		for _, v := range t.versions {
			if v.period != oracle.Cron || seen[v.cron] {
				continue
			}
			seen[v.cron] = true
			for _, iv := range e.firesOf(v.cron, r) {
				if iv.Mark <= h.Run.From || iv.Mark > h.Run.To {
					continue
				}
				if before := t.around(iv.Mark, iv.Mark); len(before) > 0 && before[len(before)-1].cron == v.cron {
					lacks(t, oracle.Cron, iv, h.fireMadeBy(iv.Mark))
				}
			}
		}
	}
}

// markLog tells when the log of a period begins, and when each mark was completed.
func (h *History) markLog(p oracle.Period) (begins int64, completed map[int64]int64) {
	completed = map[int64]int64{}
	for _, m := range h.marks {
		if m.period != p {
			continue
		}
		if len(completed) == 0 {
			begins = m.mark
		}
		completed[m.mark] = m.completedAt
	}
	return begins, completed
}

// fireMadeBy is when a fire's batch was made at the latest: a turn of generate that began after the fire makes it.
func (h *History) fireMadeBy(fire int64) int64 {
	by := h.Run.End
	for _, t := range h.turns {
		if t.service == "generate" && !t.failed && t.startedAt >= fire {
			by = min(by, t.startedAt+h.Run.stretch(t.tookMS))
		}
	}
	return by
}

// named looks whether a batch is one that a mark named or, if somebody asked for it, one of an interval that exists.
func (h *History) named(e *expected, b *batch, r *Result) {
	t := h.tasks[b.task]
	if t == nil {
		r.violated("%s is of a task that does not exist", h.name(b))
		return
	}
	if b.start < e.from {
		r.noted("%s begins at %s, further back than the oracle looks", h.name(b), h.when(b.start))
		return
	}
	byMark := b.origin == originMark || b.origin == originCatchUp
	var iv oracle.Interval
	found := false
	switch b.period {
	case oracle.Manual:
		iv, found = oracle.Interval{Mark: b.start, Start: b.start, End: b.start, BatchNo: e.walk.FireNo(b.start)}, b.start%1000 == 0 && !byMark
	case oracle.Cron:
		crons, _ := h.may(t, oracle.Cron, b.end)
		for _, v := range t.versions {
			if !byMark && v.number == b.version {
				crons = []string{v.cron}
			}
		}
		for _, text := range crons {
			if fire, ok := e.firesOf(text, r)[b.end]; ok && (!found || fire.Start == b.start) {
				iv, found = fire, true
			}
		}
	default:
		iv, found = e.byNo[b.period][b.no]
	}
	switch {
	case !found:
		r.violated("%s is of no interval that the oracle knows", h.name(b))
		return
	case iv.BatchNo != b.no || iv.Start != b.start || iv.End != b.end:
		r.violated("%s covers %s to %s; the oracle says %s, %s to %s", h.name(b), h.when(b.start), h.when(b.end), iv.BatchNo, h.when(iv.Start), h.when(iv.End))
	case b.origin != originExecute && b.schedule != iv.Mark:
		r.violated("%s has the schedule_time %s; its mark is %s", h.name(b), h.when(b.schedule), h.when(iv.Mark))
	}
	if !byMark {
		return
	}
	if b.run != 0 {
		r.violated("%s was made by its mark and is not run 0", h.name(b))
	}
	if _, ok := h.may(t, b.period, iv.Mark); !ok {
		r.violated("%s was made, and its task took no part in the mark %s", h.name(b), h.when(iv.Mark))
	}
}

func (h *History) keyName(k key) string {
	if t := h.tasks[k.task]; t != nil {
		return t.name + " " + k.no
	}
	return k.no
}
