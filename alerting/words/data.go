package words

import (
	"strconv"
	"strings"
	"time"

	"capri/alerting"
)

// Data is what a template is given. All of it is clean: no control characters, no keys, no more than fits. What is not
// known is empty.
type Data struct {
	Stage    string // new, again, escalated, over, digest, notice, test
	Level    string // in the language: "Severe"
	LevelNo  int    // 1 attention, 2 important, 3 severe
	Incident int64

	Kind  string // "batch_failed"
	What  string // the kind in the language: "the batch failed"
	Title string // of the first alert, in English
	Text  string // its detail

	Task, Owner, Department string
	Batch                   string // its id
	BatchNo                 string
	BatchSpoken             string // BatchNo with spaces: "2026 11 20 09"

	Since       string // "02:05 CST"; with the date if it is not today
	SinceFull   string // "20 November 2026, 02:05 CST (Asia/Shanghai)"
	SinceSpoken string // "02:05"
	For         string // how long: "2 h 5 min"
	Now         string // in full

	Alerts   int      // so far
	Others   []string // titles of other alerts of the incident
	More     int      // how many there are besides
	Waiting  int      // batches that wait for it
	Urgent   int      // of them, with a deadline before UrgentBy
	UrgentBy string   // "08:00"
	OnDuty   string   // names; of an escalation: who did not acknowledge

	Why         string // why the receiver gets it
	Link        string
	Acknowledge string
}

// data makes of clean facts what a template is given.
func (l *language) data(f *alerting.Facts, s shape) *Data {
	d := &Data{
		Stage: string(f.Stage), Level: l.level(f.Level), LevelNo: int(f.Level), Incident: f.Incident,
		Kind: f.Kind, What: l.what(f.Kind, shorten(f.Title, 2*s.name)), Title: shorten(f.Title, 2*s.name), Text: l.cutText(f.Text, s.detail),
		Task: shorten(f.Task, s.name), Owner: f.Owner, Department: f.Department, BatchNo: f.BatchNo, BatchSpoken: spokenBatch(f.BatchNo),
		Since: l.time(f.Since, f.Now, f.Zone, l.day), SinceFull: l.fullTime(f.Since, f.Zone), SinceSpoken: l.time(f.Since, f.Now, f.Zone, l.spokenDay),
		Now:    l.fullTime(f.Now, f.Zone),
		Alerts: f.Alerts, Others: f.Others[:min(len(f.Others), s.others)],
		Waiting: f.Waiting, Urgent: f.Urgent, UrgentBy: l.time(f.UrgentBy, f.Now, f.Zone, l.day),
		OnDuty: strings.Join(f.OnDuty, l.comma), Why: f.Why,
	}
	switch f.Stage {
	case alerting.Over, alerting.Notice, alerting.Test:
		d.Waiting, d.Urgent = 0, 0 // nothing waits for what is no trouble
	}
	if f.Batch != 0 {
		d.Batch = strconv.FormatInt(int64(f.Batch), 10)
	}
	if f.Since != 0 {
		d.Since += " " + zoneName(f.Since.In(f.Zone))
		d.For = l.duration(f.Now.Sub(f.Since))
	}
	if len(d.Others) > 0 {
		d.More = max(0, f.Alerts-1-len(d.Others))
	}
	if s.link {
		d.Link, d.Acknowledge = f.Link, f.Acknowledge
	}
	return d
}

// spokenBatch parts the digits of a batch_no as a date is read: 2026112009 is "2026 11 20 09".
func spokenBatch(no string) string {
	rest := strings.TrimLeft(no, "0123456789") // an offset, or a week: 2026W47
	digits := no[:len(no)-len(rest)]
	if len(digits) < 6 {
		return no
	}
	var b strings.Builder
	b.WriteString(digits[:4])
	for i := 4; i < len(digits); i += 2 {
		b.WriteString(" " + digits[i:min(i+2, len(digits))])
	}
	return b.String() + rest
}

// cleanFacts copies facts, and leaves in them what may be shown.
func cleanFacts(f alerting.Facts) *alerting.Facts {
	for text, runes := range map[*string]int{&f.Title: 500, &f.Kind: 64, &f.Task: 200, &f.Owner: 64, &f.Department: 64, &f.BatchNo: 40, &f.Why: 300} {
		*text = oneLine(*text, runes)
	}
	f.Text = strings.TrimSpace(cleanText(f.Text))
	all := len(f.Others)
	f.Others = cleanList(f.Others, mostOthers, 160)
	f.Alerts = max(f.Alerts, 1+all)
	f.OnDuty = cleanList(f.OnDuty, mostPeople, 64)
	f.Link, f.Acknowledge = link(f.Link), link(f.Acknowledge)
	f.Waiting, f.Urgent = max(f.Waiting, 0), max(f.Urgent, 0)
	if f.Zone == nil {
		f.Zone = time.UTC
	}
	return &f
}

// cleanList gives the first of a list.
func cleanList(list []string, most, runes int) []string {
	var out []string
	for _, x := range list[:min(len(list), most)] {
		if x = oneLine(x, runes); x != "" {
			out = append(out, x)
		}
	}
	return out
}
