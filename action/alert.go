package action

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/alerting/words"
	"capri/definition/nearest"
	"capri/sql/store"
)

// raised is the kind of alerts that people, scripts and outside monitors raise (seed 002 §2.3).
const raised = "raised"

// AlertSpec is an alert as somebody asks for it.
type AlertSpec struct {
	Level string // attention, important, severe
	Key   string // the same again belongs to the same incident while that is open; empty: the title
	Task  string // whose people are told by the task's rules; empty: admins
	Title string
	Text  string
	Node  string // on which it was seen; empty: on none in particular
	Pool  string // to which the tasks belong of which the caller may speak; empty: all
}

// RaiseAlert puts an alert into the outbox, from where it goes the way of all others. The same key within the hour is the
// same alert.
func (a *Actions) RaiseAlert(ctx context.Context, who string, x AlertSpec) error {
	level, ok := map[string]capri.Level{"attention": capri.Attention, "important": capri.Important, "severe": capri.Severe}[x.Level]
	title := strings.TrimSpace(x.Title)
	switch {
	case !ok:
		return capri.Invalid("level", x.Level, "attention, important or severe")
	case title == "" || len(title) > 255 || strings.ContainsAny(title, "\r\n"):
		return capri.Invalid("title", x.Title, "one line of at most 255 bytes that says what has happened")
	case len(x.Text) > 16_000:
		return capri.Invalid("text", fmt.Sprintf("%d bytes", len(x.Text)), "at most 16000 bytes")
	case len(x.Key) > 128:
		return capri.Invalid("key", x.Key, "at most 128 bytes")
	}
	var task capri.TaskID
	if x.Task != "" {
		t, err := a.store.TaskByName(ctx, x.Task)
		if err != nil {
			return err
		}
		if x.Pool != "" && t.Worker.Pool != x.Pool {
			return capri.Forbidden("task %s runs in the pool %s, and this key is for %s", x.Task, t.Worker.Pool, x.Pool)
		}
		task = t.ID
	}
	key := x.Key
	if key == "" {
		key = title
	}
	if x.Node != "" {
		key = x.Node + ": " + key // the same of two nodes is two things
		x.Text = strings.TrimSpace("Node " + x.Node + "\n\n" + x.Text)
	}
	return a.store.Write(ctx, "raise an alert", who, func(tx *store.Tx) error {
		// The hour is in the key: what happens again tomorrow is another alert, and a loop that raises one each second is not.
		err := tx.Alert(capri.Alert{Key: fmt.Sprintf("%s:%s:%s", raised, key, tx.Now.In(time.UTC).Format("2006010215")), Level: level, Kind: raised, Task: task, Title: title, Text: x.Text})
		if err != nil {
			return err
		}
		return tx.LogChanges(store.Change{Action: "alert_raise", Target: key, Detail: title, Task: task})
	})
}

// AcknowledgeIncident says that somebody looks after it: nobody is told again until it is over.
func (a *Actions) AcknowledgeIncident(ctx context.Context, who string, id int64) error {
	return a.logged(ctx, who, "incident_ack", fmt.Sprintf("incident %d", id), "", func(tx *store.Tx) error { return tx.Acknowledge(id, who) })
}

// Silence keeps people from being told of a task, a group, a kind of alerts, or all three together, until a time.
func (a *Actions) Silence(ctx context.Context, who string, x store.Silence) (id int64, err error) {
	if x.Task == "" && x.Group == "" && x.Kind == "" {
		return 0, capri.Invalid("task", "", "a task, a group or a kind of alerts: everything cannot be silenced")
	}
	for field, pattern := range map[string]string{"task": x.Task, "group": x.Group} {
		if strings.Trim(pattern, "*") == "" && pattern != "" {
			return 0, capri.Invalid(field, pattern, "a name, or a pattern with something besides *")
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return 0, capri.Invalid(field, pattern, "a name in which * stands for anything")
		}
	}
	if x.Task != "" && !strings.Contains(x.Task, "*") {
		if _, err := a.store.TaskByName(ctx, x.Task); err != nil {
			return 0, err
		}
	}
	if kinds := words.Kinds(); x.Kind != "" && !slices.Contains(kinds, x.Kind) { // it would silence nothing, and nobody would notice
		want := "a kind of alerts, as capri alert list --single shows it"
		if near := nearest.Word(x.Kind, kinds); near != "" {
			want += "; is it " + near + "?"
		}
		return 0, capri.Invalid("kind", x.Kind, want)
	}
	if x.ID, err = a.store.NewSilenceID(ctx); err != nil {
		return 0, err
	}
	what := strings.Join(strings.Fields(x.Task+" "+x.Group+" "+x.Kind), ", ")
	return x.ID, a.logged(ctx, who, "silence", what, x.Reason, func(tx *store.Tx) error { return tx.AddSilence(x) })
}

// EndSilence ends a silence now; what is still open is told of then.
func (a *Actions) EndSilence(ctx context.Context, who string, id int64) error {
	return a.logged(ctx, who, "silence_end", fmt.Sprintf("silence %d", id), "", func(tx *store.Tx) error { return tx.EndSilence(id) })
}
