package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/action"
	"capri/alerting"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

// Channels tries the channels by which alerts leave, for people who set them up.
type Channels struct {
	Names []string
	// Talk sends a message and gives what was said, without its secrets.
	Talk func(ctx context.Context, channel string, m alerting.Message) (conversation string, err error)
	// Compose writes one.
	Compose func(channel string, f alerting.Facts) alerting.Message
}

func (s *server) alertOperations() {
	gone := status(http.StatusNoContent)
	register(s, auth.AlertRead, http.MethodGet, "/alerts", "list-alerts", "Alerts, newest first", s.alerts)
	register(s, auth.AlertRaise, http.MethodPost, "/alerts", "raise-alert", "Raise an alert, which goes the way of all others", s.raise, gone)
	register(s, auth.AlertRead, http.MethodGet, "/incidents", "list-incidents", "Incidents, newest first: alerts of one cause", s.incidents)
	register(s, auth.AlertRead, http.MethodGet, "/incidents/{id}", "get-incident", "An incident, and who was told of it by which rule", s.incident)
	register(s, auth.IncidentAck, http.MethodPost, "/incidents/{id}/ack", "ack-incident", "Say that somebody looks after it: nobody is told again", s.acknowledge, gone)
	register(s, auth.AlertRead, http.MethodGet, "/silences", "list-silences", "Silences that stand", s.silences)
	register(s, auth.SilenceEdit, http.MethodPost, "/silences", "create-silence", "Keep people from being told, until a time", s.silence, status(http.StatusCreated))
	register(s, auth.SilenceEdit, http.MethodDelete, "/silences/{id}", "end-silence", "End a silence now", s.endSilence, gone)
	register(s, auth.ChannelTest, http.MethodPost, "/alerts/test", "test-channel", "Send a message by a channel, and see what was said", s.testChannel)
}

type raiseInput struct{ Body wire.NewAlert }

func (s *server) raise(ctx context.Context, in *raiseInput) (*none, error) {
	if in.Body.Task != "" {
		if err := s.mayTasks(ctx, auth.AlertRaise, in.Body.Task); err != nil {
			return nil, err
		}
	}
	x := action.AlertSpec{Level: in.Body.Level, Title: in.Body.Title, Text: in.Body.Text, Key: in.Body.Key, Task: in.Body.Task, Node: in.Body.Node}
	if p := auth.From(ctx); p.Kind == auth.Worker {
		x.Node, x.Pool = cmp.Or(x.Node, p.Node), p.Pool
		if err := p.May(auth.AlertRaise, auth.Object{What: "an alert of node " + x.Node, Node: x.Node}); err != nil {
			return nil, err
		}
	}
	return nil, s.Actions.RaiseAlert(ctx, who(ctx), x)
}

type incidentsInput struct {
	Paging
	All bool `query:"all" doc:"those that are over, too"`
}

func (s *server) incidents(ctx context.Context, in *incidentsInput) (*pageOutput[wire.Incident], error) {
	before, err := after[int64](&in.Paging)
	if err != nil {
		return nil, err
	}
	rows, err := s.Store.Incidents(ctx, seen(ctx, auth.AlertRead), !in.All, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return paged(&in.Paging, rows, func(i store.Incident) any { return i.ID }, func(rows []store.Incident) ([]wire.Incident, error) { return s.wireIncidents(ctx, rows) })
}

func (s *server) wireIncidents(ctx context.Context, rows []store.Incident) ([]wire.Incident, error) {
	names, err := taskNames(ctx, s, rows, func(i store.Incident) capri.TaskID { return i.Task })
	if err != nil {
		return nil, err
	}
	out := make([]wire.Incident, len(rows))
	for n, i := range rows {
		out[n] = wire.Incident{ID: i.ID, Level: i.Level.String(), Kind: i.Kind, Title: i.Title, Cause: i.Cause, Task: names[i.Task], BatchID: i.Batch, Alerts: i.Alerts,
			OpenedAt: i.OpenedAt.In(s.Zone), LastAt: i.LastAt.In(s.Zone), NextAt: wire.At(i.NextAt, s.Zone), AckedAt: wire.At(i.AckedAt, s.Zone), AckedBy: i.AckedBy,
			Silenced: i.Silenced, ClosedAt: wire.At(i.ClosedAt, s.Zone), ClosedWhy: i.Closed}
	}
	return out, nil
}

type incidentInput struct {
	ID int64 `path:"id" minimum:"1"`
}

func (s *server) incident(ctx context.Context, in *incidentInput) (*body[wire.IncidentDetail], error) {
	row, err := s.mayIncident(ctx, auth.AlertRead, in.ID)
	if err != nil {
		return nil, err
	}
	heads, err := s.wireIncidents(ctx, []store.Incident{row})
	if err != nil {
		return nil, err
	}
	out := wire.IncidentDetail{Incident: heads[0], First: []wire.Alert{}, Messages: []wire.Delivery{}}
	alerts, err := s.Store.AlertsOf(ctx, []int64{in.ID}, 20)
	if err != nil {
		return nil, err
	}
	first, err := s.seenAlerts(ctx, alerts[in.ID])
	if err != nil {
		return nil, err
	}
	if out.First, err = s.wireAlerts(ctx, first); err != nil {
		return nil, err
	}
	messages, err := s.Store.DeliveriesOf(ctx, in.ID)
	for _, d := range messages {
		m := wire.Delivery{ID: d.ID, Stage: d.Stage, Channel: d.Channel, Person: d.Person, Address: d.Address, Why: d.Why, State: d.State.String(), Tries: d.Tries,
			CreatedAt: d.CreatedAt.In(s.Zone), EndedAt: wire.At(d.EndedAt, s.Zone), Error: d.Error, Receipt: d.Receipt}
		if d.State == store.Due {
			m.NextAt = wire.At(d.NextAt, s.Zone)
		}
		out.Messages = append(out.Messages, m)
	}
	return answer(out), err
}

// mayIncident finds an incident that the caller may do something with. One of the whole system is everybody's.
func (s *server) mayIncident(ctx context.Context, act auth.Act, id int64) (store.Incident, error) {
	row, err := s.Store.Incident(ctx, id)
	if err != nil {
		return row, err
	}
	return row, s.mayTaskOf(ctx, act, row.Task, fmt.Sprintf("incident %d", id))
}

// seenAlerts leaves out what the caller may not see: an incident of one cause may hold alerts of many tasks.
func (s *server) seenAlerts(ctx context.Context, rows []store.AlertRow) ([]store.AlertRow, error) {
	p := auth.From(ctx)
	if p.Everywhere(auth.AlertRead) {
		return rows, nil
	}
	ids := make([]capri.TaskID, len(rows))
	for i, r := range rows {
		ids[i] = r.Task
	}
	whose, err := s.Store.WhoseTaskIDs(ctx, ids)
	return slices.DeleteFunc(rows, func(r store.AlertRow) bool {
		return r.Task != 0 && p.May(auth.AlertRead, auth.TaskObject(whose[r.Task])) != nil
	}), err
}

func (s *server) acknowledge(ctx context.Context, in *incidentInput) (*none, error) {
	if _, err := s.mayIncident(ctx, auth.IncidentAck, in.ID); err != nil {
		return nil, err
	}
	return nil, s.Actions.AcknowledgeIncident(ctx, who(ctx), in.ID)
}

func (s *server) silences(ctx context.Context, _ *none) (*body[[]wire.Silence], error) {
	now, err := s.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := s.Store.Silences(ctx, now)
	if err != nil {
		return nil, err
	}
	if p := auth.From(ctx); !p.Everywhere(auth.AlertRead) {
		names := make([]string, len(rows))
		for i, x := range rows {
			names[i] = x.Task
		}
		whose, err := s.Store.WhoseTasks(ctx, names)
		if err != nil {
			return nil, err
		}
		rows = slices.DeleteFunc(rows, func(x store.Silence) bool {
			w, named := whose[x.Task]
			return named && p.May(auth.AlertRead, auth.TaskObject(w)) != nil
		})
	}
	return listOf(rows, nil, func(x store.Silence) wire.Silence {
		return wire.Silence{ID: x.ID, Task: x.Task, Group: x.Group, Kind: x.Kind, Reason: x.Reason, Until: x.Until.In(s.Zone).Format(time.RFC3339), CreatedBy: x.CreatedBy,
			CreatedAt: wire.At(x.CreatedAt, s.Zone)}
	})
}

type silenceInput struct{ Body wire.Silence }

func (s *server) silence(ctx context.Context, in *silenceInput) (*body[wire.Silence], error) {
	until, err := s.instant("until", in.Body.Until)
	if err != nil {
		return nil, err
	}
	if err := s.maySilence(ctx, store.Silence{Task: in.Body.Task, Group: in.Body.Group, Kind: in.Body.Kind}); err != nil {
		return nil, err
	}
	x := in.Body
	// What is answered is what stands, and not what somebody says of it.
	x.Until, x.CreatedBy, x.CreatedAt = until.In(s.Zone).Format(time.RFC3339), who(ctx), nil
	x.ID, err = s.Actions.Silence(ctx, x.CreatedBy, store.Silence{Task: x.Task, Group: x.Group, Kind: x.Kind, Reason: x.Reason, Until: until})
	return answer(x), err
}

func (s *server) endSilence(ctx context.Context, in *incidentInput) (*none, error) {
	x, err := s.Store.Silence(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if x.CreatedBy != who(ctx) {
		if err := s.maySilence(ctx, x); err != nil {
			return nil, err
		}
	}
	return nil, s.Actions.EndSilence(ctx, who(ctx), in.ID)
}

type channelTestInput struct{ Body wire.ChannelTest }

func (s *server) testChannel(ctx context.Context, in *channelTestInput) (*body[wire.ChannelTestResult], error) {
	name := in.Body.Channel
	if !slices.Contains(s.Channels.Names, name) {
		return nil, capri.Invalid("channel", name, "one that alerting in the configuration describes: "+cmp.Or(strings.Join(s.Channels.Names, ", "), "there are none"))
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	m := s.Channels.Compose(name, alerting.Facts{Stage: alerting.Test, Level: capri.Attention, Kind: "test", Title: "This is a test", Text: "Somebody wants to see whether messages arrive.",
		Since: now, Now: now, Zone: s.Zone, Why: who(ctx) + " has asked for it"})
	m.To, m.Key = in.Body.To, "capri-test-"+now.In(time.UTC).Format("20060102150405.000")
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out := wire.ChannelTestResult{Channel: name}
	out.Conversation, err = s.Channels.Talk(ctx, name, m)
	if out.Sent = err == nil; err != nil {
		out.Error = err.Error()
	}
	return answer(out), nil
}

// The page behind a message's link. It asks before it does anything: programs that look at mails open links, too. Whoever
// opens it has just been woken: what it is about, one button, both languages.
var ackPage = template.Must(template.New("ack").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{{.Title}}</title>
<style>
body { font: 1.0625rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 0 auto; padding: 1.5rem 1.25rem; }
h1 { font-size: 1.375rem; line-height: 1.3; margin: .5rem 0 1rem; overflow-wrap: anywhere; }
p { margin: 0 0 .5rem; }
.level { display: inline-block; padding: .15rem .6rem; border-radius: 4px; background: #1d4ed8; color: #fff; font-size: .875rem; font-weight: bold; }
.important { background: #b45309; }
.severe { background: #b91c1c; }
.about { color: GrayText; }
button { font: inherit; font-weight: bold; width: 100%; margin: 1.25rem 0; padding: 1rem; border: 0; border-radius: 6px; background: #1d4ed8; color: #fff; cursor: pointer; }
button:focus-visible { outline: 3px solid #93c5fd; outline-offset: 2px; }
</style>
</head>
<body>
{{with .Level}}<span class="level {{.}}">{{.}}</span>
{{end}}<h1>{{.Title}}</h1>
{{with .About}}<p class="about">{{.}}</p>
{{end}}{{if .Token}}<form method="post" action="ack"><input type="hidden" name="t" value="{{.Token}}">
<button>I look after it · 我来处理</button></form>
{{end}}<p>{{.Text}}</p>
{{with .Chinese}}<p lang="zh">{{.}}</p>
{{end}}</body>
</html>
`))

type ackView struct{ Title, Level, About, Text, Chinese, Token string }

func (v *ackView) says(text, chinese string) { v.Text, v.Chinese, v.Token = text, chinese, "" }

// ack shows the page, and takes its answer.
func (s *server) ack(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	token := r.FormValue("t")
	view, code := ackView{Title: "Capri"}, http.StatusOK
	incident, person, err := s.ackToken(r.Context(), token)
	var row store.Incident
	if err == nil {
		row, err = s.Store.Incident(r.Context(), incident)
	}
	if err == nil {
		view.Title, view.Level = row.Title, row.Level.String()
		view.About = fmt.Sprintf("Incident %d, since %s", incident, row.OpenedAt.In(s.Zone).Format("2006-01-02 15:04 MST"))
		view.says("Nobody is told of it again while you look after it.", "确认后，不再重复通知，也不再升级。")
		view.Token = token
		if row.AckedAt != 0 {
			at := row.AckedAt.In(s.Zone).Format(time.DateTime)
			view.says(row.AckedBy+" looks after it since "+at+".", row.AckedBy+" 已于 "+at+" 开始处理。")
		}
		if row.ClosedAt != 0 {
			view.says("It is over: "+row.Closed+".", "事件已结束。")
		}
		if r.Method == http.MethodPost && view.Token != "" {
			by := store.RequestOf(r.Context())
			by.Kind = "link" // whoever has the message: not as good as a key
			err = s.Actions.AcknowledgeIncident(store.WithRequest(r.Context(), by), person, incident)
			view.says("Thank you, "+person+". Nobody is told of it again.", "谢谢，不再重复通知。")
		}
	}
	if err != nil {
		view, code = ackView{Title: "Capri"}, http.StatusServiceUnavailable
		view.says("This did not work. Try it again, or use capri alert ack.", "操作失败，请重试，或使用 capri alert ack。")
		if errors.Is(err, capri.ErrForbidden) || errors.Is(err, capri.ErrNotFound) || errors.Is(err, capri.ErrConflict) {
			view.says(err.Error(), "链接无效或已过期。")
			code = http.StatusForbidden
		} else {
			s.Log.Warn("acknowledge by a link", "incident", incident, "err", err)
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer") // the address is a key
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'")
	w.WriteHeader(code)
	_ = ackPage.Execute(w, view)
}

func (s *server) ackToken(ctx context.Context, token string) (incident int64, person string, err error) {
	secret, err := s.Store.ClusterSecret(ctx)
	if err != nil {
		return 0, "", err
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return 0, "", err
	}
	return auth.ParseAckToken(secret, token, now)
}
