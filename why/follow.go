package why

import (
	"cmp"
	"fmt"
	"strings"

	"capri"
	"capri/sql/store"
)

// conditions follows each unmet condition of a batch to its root.
func (f *finder) conditions(b store.BatchRow) []Cause {
	var causes []Cause
	for _, c := range f.unmet[b.ID] {
		cause := f.follow(b, c)
		cause.Detail = along(cause.Chain, cause.Detail)
		cause.Until = f.metAt(c)
		causes = append(causes, cause)
	}
	return causes
}

// along puts the way to a root before what is to be said of it.
func along(chain []Link, detail string) string {
	waits := func(l Link, how string) string { return fmt.Sprintf("batch %d (%s) waits%s: ", l.Batch, l.Name, how) }
	switch n := len(chain); n {
	case 0:
		return detail
	case 1:
		return waits(chain[0], "") + detail
	case 2:
		return waits(chain[0], "") + waits(chain[1], "") + detail
	default:
		return waits(chain[0], fmt.Sprintf(", behind %d more", n-2)) + waits(chain[n-1], "") + detail
	}
}

// follow says why one condition of a waiting batch is unmet.
func (f *finder) follow(b store.BatchRow, c store.ConditionRow) Cause {
	switch {
	case c.Kind == "third_party":
		return f.thirdParty(b, c)
	case c.ParentBatchID != 0 && c.ParentState == capri.Waiting:
		deeper := f.rootOf(c)
		cause := *deeper
		cause.Chain = append([]Link{{c.ParentBatchID, name(c.Parent, c.BatchNo)}}, deeper.Chain...)
		return cause
	case c.Kind == "input" && (c.ParentBatchID == 0 || c.Succeeded()):
		return f.path(b, c)
	case c.ParentBatchID == 0:
		return f.missing(b, c)
	}

	row := f.rows[c.ParentBatchID]
	parent := name(c.Parent, c.BatchNo)
	cause := Cause{Root: Root{Kind: "batch", Name: parent, Batch: c.ParentBatchID}, Owner: f.owner(c.Parent)}
	makes := ""
	if c.Kind == "input" {
		makes = ", which makes " + c.Path + ","
	}
	switch {
	case c.Succeeded():
		cause.Kind, cause.Detail, cause.Since = ParentRunning, fmt.Sprintf("batch %d (%s) has just succeeded: it is noticed in a moment", c.ParentBatchID, parent), row.FinishTime
	case c.ParentState == capri.Finished:
		cause.Kind, cause.Since = ParentFailed, row.FinishTime
		cause.Detail = fmt.Sprintf("batch %d (%s)%s ended as %s%s", c.ParentBatchID, parent, makes, c.ParentFinish, anyOne(c))
		if row.Message != "" {
			cause.Detail += ": " + row.Message
		}
	default:
		cause.Kind, cause.Since = ParentRunning, cmp.Or(row.StartTime, row.AssignTime)
		cause.Detail = fmt.Sprintf("batch %d (%s)%s has not finished: %s%s", c.ParentBatchID, parent, makes, notWaiting(f.c, row.Batch), anyOne(c))
	}
	return cause
}

func anyOne(c store.ConditionRow) string {
	if c.Policy == string(capri.Anyone) {
		return " (any one of its batches is enough)"
	}
	return ""
}

func (f *finder) path(b store.BatchRow, c store.ConditionRow) Cause {
	detail := "path " + c.Path + " is not there"
	if c.Flag != "" {
		detail = "flag " + c.Flag + " is not in " + c.Path
	}
	cause := Cause{Kind: Path, Detail: detail, Root: Root{Kind: "path", Name: c.Path}, Owner: f.owner(b.Task), Since: b.CreateTime}
	if c.ParentBatchID != 0 {
		cause.Owner = f.owner(c.Parent)
		cause.Detail += fmt.Sprintf(", though batch %d (%s), which makes it, has succeeded", c.ParentBatchID, name(c.Parent, c.BatchNo))
	}
	return cause
}

func (f *finder) thirdParty(b store.BatchRow, c store.ConditionRow) Cause {
	of := fmt.Sprintf("%s %s %s", c.Code, c.Period, c.BatchNo)
	detail := ""
	switch c.Said {
	case "":
		detail = "the third party has not reported " + of
	case "ready":
		detail = "the third party has reported " + of + " just now: it is noticed in a moment"
	case "fail":
		detail = "the third party has reported " + of + " as failed"
	default:
		detail = "the third party has withdrawn " + of
	}
	return Cause{Kind: ThirdParty, Detail: detail, Root: Root{Kind: "third_party", Name: of}, Owner: f.owner(b.Task), Since: cmp.Or(c.SaidAt, b.CreateTime)}
}

// missing explains a parent's batch that does not exist.
func (f *finder) missing(b store.BatchRow, c store.ConditionRow) Cause {
	reason, _ := f.madeAt(c)
	return Cause{Kind: ParentMissing, Detail: fmt.Sprintf("there is no batch %s%s: %s", name(c.Parent, c.BatchNo), anyOne(c), reason),
		Root: Root{Kind: "task", Name: c.Parent}, Owner: f.owner(c.Parent), Since: b.CreateTime}
}

// madeAt says why a parent's batch does not exist, and when it will; 0: not by itself.
func (f *finder) madeAt(c store.ConditionRow) (reason string, at capri.Instant) {
	switch t := f.tasks[c.Parent]; {
	case t == nil || t.DeletedAt != 0:
		return "the task is deleted", 0
	case !t.Enabled:
		return "the task is disabled", 0
	case t.Period.Calendar():
		if iv, err := f.c.Parse(t.Period, c.BatchNo); err == nil && iv.Mark > f.now {
			return "it will be made at " + f.at(iv.Mark), iv.Mark
		}
	}
	return "nobody has made it (capri plan, execute or cold-start it)", 0
}

// rootOf is the first cause of a waiting batch that others wait for. One that is met on the way to its own root, which a
// definition cannot cause but two edits might have left behind, ends the search.
func (f *finder) rootOf(c store.ConditionRow) *Cause {
	id := c.ParentBatchID
	if found := f.roots[id]; found != nil {
		return found
	}
	row, read := f.rows[id]
	here := &Cause{Kind: ParentWaiting, Detail: fmt.Sprintf("more than can be followed here (capri why %d)", id),
		Root: Root{Kind: "batch", Name: name(c.Parent, c.BatchNo), Batch: id}, Owner: f.owner(c.Parent), Since: row.CreateTime}
	f.roots[id] = here // also stops a cycle
	if own := f.own(row); read && len(own) > 0 {
		*here = own[0]
		return here
	}
	unmet, known := f.unmet[id]
	switch {
	case !known:
	case len(unmet) == 0:
		here.Detail = "it is ready and waits to be placed"
		if row.Message != "" && !bornWith(row.Message) {
			here.Detail += ": " + row.Message
		}
	default:
		worst, _ := store.Worst(unmet)
		*here = f.follow(row, worst)
		if len(unmet) > 1 {
			here.Detail += fmt.Sprintf(" (and %d more)", len(unmet)-1)
		}
	}
	return here
}

// metAt estimates when a condition is met; 0: nobody can know. What nobody has measured counts as short, so it is a time
// before which it will not be.
func (f *finder) metAt(c store.ConditionRow) capri.Instant {
	from := capri.Instant(0)
	switch {
	case c.Kind == "third_party":
		if c.Said == "ready" {
			return f.now
		}
		return 0
	case c.Succeeded():
		if c.Kind == "parent" {
			return f.now
		}
		return 0
	case c.ParentBatchID == 0:
		if c.Kind == "parent" {
			_, from = f.madeAt(c)
		}
	case c.ParentState == capri.Finished:
	case c.ParentState == capri.Waiting:
		from = f.startsAt(f.rows[c.ParentBatchID])
	default:
		from = cmp.Or(f.rows[c.ParentBatchID].StartTime, f.now)
	}
	if from == 0 {
		return 0
	}
	return max(f.now, from.Add(f.takes(c.Parent)))
}

// startsAt estimates when a waiting batch starts; 0: nobody can know.
func (f *finder) startsAt(b store.BatchRow) capri.Instant {
	if at, known := f.starts[b.ID]; known {
		return at
	}
	f.starts[b.ID] = 0 // also stops a cycle
	unmet, known := f.unmet[b.ID]
	if !known {
		return 0
	}
	at := f.now
	for _, c := range f.own(b) {
		if c.Until == 0 {
			return 0
		}
		at = max(at, c.Until)
	}
	anyone := map[int]capri.Instant{} // by group: the first of them is enough
	for _, c := range unmet {
		met := f.metAt(c)
		if c.Policy == string(capri.Anyone) {
			if was, seen := anyone[c.Group]; !seen || was == 0 || met != 0 && met < was {
				anyone[c.Group] = met
			}
			continue
		}
		if met == 0 {
			return 0
		}
		at = max(at, met)
	}
	for _, met := range anyone {
		if met == 0 {
			return 0
		}
		at = max(at, met)
	}
	f.starts[b.ID] = at
	return at
}

// bornWith tells the notes that a batch is made with, on what it does not wait for, from what dispatch says of it.
func bornWith(message string) bool {
	for _, field := range []string{"parents[", "inputs[", "outputs["} {
		if strings.HasPrefix(message, field) {
			return true
		}
	}
	return false
}
