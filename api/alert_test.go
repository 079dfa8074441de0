package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/alerting"
	"capri/api"
	"capri/api/wire"
	"capri/auth"
	"capri/services"
	"capri/services/alert"
	"capri/sql/store"
)

// alerted is a rig in which ops is an admin and on duty.
func alerted(t *testing.T, w *actiontest.World) *rig {
	t.Helper()
	r := newRig(t, w)
	require.NoError(t, w.Actions.SaveUser(w.Ctx, actiontest.Who, store.User{Name: "ops", Mail: "ops@x", Phone: "+1", Enabled: true, Admin: true}))
	require.Equal(t, 200, r.ask(auth.Admin, "PUT", wire.Prefix+"/duty", `{"rotas":[{"primary":{"people":["ops"],"start":"2026-11-16"}}]}`).Code)
	return r
}

// file does what the service alert does with what is new.
func (r *rig) file() {
	r.t.Helper()
	f := &alert.Filing{Store: r.Store, People: alert.PeopleOf(r.Store)}
	_, err := f.Run(r.Ctx, services.Turn{Now: r.Clock.Now(), Lease: r.Lease(r.t, "alert")})
	require.NoError(r.t, err)
}

// incident raises a severe alert and gives the number of its incident.
func (r *rig) incident(title string) int64 {
	r.t.Helper()
	body, err := json.Marshal(wire.NewAlert{Level: "severe", Title: title, Text: "look at it"})
	require.NoError(r.t, err)
	rec := r.ask(auth.Member, "POST", wire.Prefix+"/alerts", string(body))
	require.Equal(r.t, 204, rec.Code, rec.Body.String())
	r.file()
	open := items[wire.Incident](r, "/incidents")
	for _, i := range open {
		if i.Title == title {
			return i.ID
		}
	}
	r.t.Fatalf("no incident %q", title)
	return 0
}

func (r *rig) detail(id int64) wire.IncidentDetail {
	r.t.Helper()
	var x wire.IncidentDetail
	r.read(&x, auth.ReadOnly, fmt.Sprint("/incidents/", id))
	return x
}

func TestARaisedAlert_becomes_an_incident_with_an_account_of_who_is_told(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := alerted(t, w)
		r.Apply(some)
		none := items[wire.Incident](r, "/incidents")
		assert.NotNil(t, none, "none is [] and never null")
		id := r.incident("HDFS is full")
		x := r.detail(id)
		assert.Equal(t, []any{"severe", "raised", "", capri.BatchID(0), 1}, []any{x.Level, x.Kind, x.Task, x.BatchID, x.Alerts})
		assert.NotNil(t, x.NextAt, "it is told again")
		require.Len(t, x.First, 1)
		assert.Equal(t, []any{"HDFS is full", "look at it", id}, []any{x.First[0].Title, x.First[0].Body, x.First[0].IncidentID})
		var told []string
		for _, m := range x.Messages {
			told = append(told, strings.Join([]string{m.Channel, m.Person, m.Address, m.State, m.Why}, " "))
		}
		assert.Equal(t, []string{"phone ops +1 due severe: primary duty of the system", "sms ops +1 due severe: primary duty of the system", "mail ops ops@x due severe: all admins"}, told)

		// The same again is the same; with a task it is told by the task's rules.
		assert.Equal(t, id, r.incident("HDFS is full"))
		assert.Equal(t, 1, r.detail(id).Alerts, "once an hour")
		require.Equal(t, 204, r.ask(auth.Member, "POST", wire.Prefix+"/alerts", `{"level":"attention","title":"odd figures","task":"day","key":"k"}`).Code)
		r.file()
		alerts := items[wire.Alert](r, "/alerts?limit=1")
		require.Len(t, alerts, 1)
		assert.Equal(t, []any{"attention", "raised", "day", "odd figures"}, []any{alerts[0].Level, alerts[0].Kind, alerts[0].Task, alerts[0].Title})
		for _, m := range r.detail(alerts[0].IncidentID).Messages {
			assert.NotContains(t, m.Why, "duty of the system")
		}
		log, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 1})
		require.NoError(t, err)
		assert.Equal(t, []string{"alert_raise", "k", "app_member"}, []string{log[0].Action, log[0].Target, log[0].Who})
	})
}

func TestWhatIsWrongWithAnAlertOrASilence_is_named_with_its_cure(t *testing.T) {
	r := alerted(t, actiontest.SQLite(t))
	id := r.incident("x")
	for _, c := range []struct {
		method, path, body string
		code               int
		says               string
	}{
		{"POST", "/alerts", `{"level":"loud","title":"x"}`, 422, "level"},
		{"POST", "/alerts", `{"level":"severe","title":" "}`, 422, "one line of at most 255 bytes"},
		{"POST", "/alerts", `{"level":"severe","title":"a\nb"}`, 422, "one line of at most 255 bytes"},
		{"POST", "/alerts", `{"level":"severe","title":"` + strings.Repeat("x", 256) + `"}`, 422, "title"},
		{"POST", "/alerts", `{"level":"severe","title":"x","text":"` + strings.Repeat("x", 16_001) + `"}`, 422, "at most 16000 bytes"},
		{"POST", "/alerts", `{"level":"severe","title":"x","key":"` + strings.Repeat("x", 129) + `"}`, 422, "at most 128 bytes"},
		{"POST", "/alerts", `{"level":"severe","title":"x","task":"nobody"}`, 404, "nobody"},
		{"POST", "/alerts", `{"level":"severe","title":"x","to":"ops"}`, 422, "to"},
		{"GET", "/incidents/4711", "", 404, "there is no incident 4711"},
		{"GET", "/incidents/0", "", 422, "id"},
		{"GET", "/incidents?limit=0", "", 422, "limit"},
		{"POST", "/incidents/4711/ack", "", 404, "there is no incident 4711"},
		{"POST", "/silences", `{"reason":"x","until":"2026-11-21"}`, 422, "everything cannot be silenced"},
		{"POST", "/silences", `{"task":"*","reason":"x","until":"2026-11-21"}`, 422, "something besides *"},
		{"POST", "/silences", `{"group":"[","reason":"x","until":"2026-11-21"}`, 422, "in which * stands for anything"},
		{"POST", "/silences", `{"kind":"batch_faild","reason":"x","until":"2026-11-21"}`, 422, "is it batch_failed?"},
		{"POST", "/silences", `{"kind":"everything","reason":"x","until":"2026-11-21"}`, 422, "capri alert list --single shows"},
		{"POST", "/silences", `{"task":"nobody","reason":"x","until":"2026-11-21"}`, 404, "nobody"},
		{"POST", "/silences", `{"kind":"big_task","reason":" ","until":"2026-11-21"}`, 422, "why nobody is told"},
		{"POST", "/silences", `{"kind":"big_task","reason":"x","until":"soon"}`, 422, "until"},
		{"POST", "/silences", `{"kind":"big_task","reason":"x","until":"2026-11-01"}`, 422, "a time to come"},
		{"DELETE", "/silences/4711", "", 404, "there is no silence 4711"},
		{"POST", "/alerts/test", `{"channel":"pigeon"}`, 422, "there are none"},
	} {
		rec := r.ask(auth.Admin, c.method, wire.Prefix+c.path, c.body)
		assert.Equal(t, c.code, rec.Code, "%s %s %.80s: %s", c.method, c.path, c.body, rec.Body)
		assert.Contains(t, rec.Body.String(), c.says, "%s %s %.80s", c.method, c.path, c.body)
	}
	assert.Equal(t, 1, r.detail(id).Alerts, "nothing was raised")
	var silences []wire.Silence
	r.read(&silences, auth.ReadOnly, "/silences")
	assert.Empty(t, silences)
}

func TestAlertOperations_need_their_roles(t *testing.T) {
	r := alerted(t, actiontest.SQLite(t))
	r.Apply(some)
	ack := fmt.Sprintf("/incidents/%d/ack", r.incident("x"))
	for _, c := range []struct {
		role               auth.Role
		method, path, body string
		want               int
	}{
		{auth.ReadOnly, "POST", "/alerts", `{"level":"severe","title":"y"}`, 403},
		{auth.ReadOnly, "POST", ack, "", 403},
		{auth.ReadOnly, "POST", "/silences", `{"kind":"big_task","reason":"x","until":"2026-11-21"}`, 403},
		{auth.ReadOnly, "DELETE", "/silences/1", "", 403},
		{auth.Member, "POST", "/alerts/test", `{"channel":"mail"}`, 403},
		{"", "GET", "/incidents", "", 401},
		{auth.Member, "POST", "/silences", `{"kind":"big_task","reason":"x","until":"2026-11-21"}`, 403}, // of everybody's tasks
		{auth.Member, "POST", "/silences", `{"task":"*y","reason":"x","until":"2026-11-21"}`, 404},
		{auth.Member, "POST", "/silences", `{"group":"no*","reason":"x","until":"2026-11-21"}`, 403},
		{auth.Member, "POST", "/silences", `{"task":"day","reason":"x","until":"2026-11-21"}`, 201},
		{auth.Member, "POST", "/silences", `{"group":"g","kind":"big_task","reason":"x","until":"2026-11-21"}`, 201},
		{auth.Member, "DELETE", "/silences/1", "", 204},
		{auth.Admin, "POST", "/silences", `{"kind":"big_task","reason":"x","until":"2026-11-21"}`, 201},
		{auth.Member, "DELETE", "/silences/3", "", 403},
		{auth.Member, "DELETE", "/silences/4", "", 404},
		{auth.Member, "POST", ack, "", 204},
	} {
		rec := r.ask(c.role, c.method, wire.Prefix+c.path, c.body)
		assert.Equal(t, c.want, rec.Code, "%s %s as %q: %s", c.method, c.path, c.role, rec.Body)
	}
}

func TestAnIncident_is_acknowledged_by_whoever_is_first_and_not_once_it_is_over(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := alerted(t, w)
		id := r.incident("x")
		ack := wire.Prefix + fmt.Sprintf("/incidents/%d/ack", id)
		require.Equal(t, 204, r.ask(auth.Member, "POST", ack, "").Code)
		require.Equal(t, 204, r.ask(auth.Admin, "POST", ack, "").Code, "somebody was first, and that is as good")
		x := r.detail(id)
		assert.Equal(t, "app_member", x.AckedBy)
		assert.NotNil(t, x.AckedAt)
		assert.Nil(t, x.NextAt, "nobody is told again")

		over := r.incident("y")
		w.Clock.Advance(2 * time.Hour)
		r.file()
		rec := r.ask(auth.Member, "POST", wire.Prefix+fmt.Sprintf("/incidents/%d/ack", over), "")
		assert.Equal(t, 409, rec.Code)
		assert.Contains(t, r.problem(rec).Detail, "is over: nothing came for 1h0m0s")
		open, all := items[wire.Incident](r, "/incidents"), items[wire.Incident](r, "/incidents?all=true")
		assert.Empty(t, open)
		require.Len(t, all, 2)
		assert.Equal(t, over, all[0].ID, "newest first")
		assert.NotNil(t, all[0].ClosedAt)
	})
}

func TestASilence_says_who_made_it_and_ends(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := alerted(t, w)
		rec := r.ask(auth.Admin, "POST", wire.Prefix+"/silences", `{"id":77,"group":"night*","kind":"big_task","reason":"we know","until":"2026-11-21 12:00","created_by":"somebody else"}`)
		require.Equal(t, 201, rec.Code, rec.Body.String())
		var made wire.Silence
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &made))
		assert.Equal(t, []any{int64(1), "night*", "big_task", "2026-11-21T12:00:00Z", "app_admin"}, []any{made.ID, made.Group, made.Kind, made.Until, made.CreatedBy})
		var list []wire.Silence
		r.read(&list, auth.ReadOnly, "/silences")
		require.Len(t, list, 1)
		assert.NotNil(t, list[0].CreatedAt)
		list[0].CreatedAt = nil
		assert.Equal(t, made, list[0])

		require.Equal(t, 201, r.ask(auth.Admin, "POST", wire.Prefix+"/silences", `{"kind":"raised","reason":"a test","until":"2026-11-21"}`).Code)
		x := r.detail(r.incident("quiet"))
		assert.Equal(t, "a test", x.Silenced)
		assert.Empty(t, x.Messages)
		require.Equal(t, 204, r.ask(auth.Admin, "DELETE", wire.Prefix+"/silences/1", "").Code)
		assert.Equal(t, 404, r.ask(auth.Admin, "DELETE", wire.Prefix+"/silences/1", "").Code)
	})
}

func TestAChannel_is_tried_and_what_was_said_is_shown(t *testing.T) {
	w := actiontest.SQLite(t)
	r := newRig(t, w)
	var sent []alerting.Message
	r.handler = api.New(api.Options{Store: w.Store, Actions: w.Actions, Channels: api.Channels{Names: []string{"mail", "sms"},
		Compose: func(channel string, f alerting.Facts) alerting.Message {
			return alerting.Message{Stage: f.Stage, Text: channel + ": " + f.Title + ", " + f.Why}
		},
		Talk: func(_ context.Context, channel string, m alerting.Message) (string, error) {
			sent = append(sent, m)
			if channel == "sms" {
				return "> POST\n< 500\n", errors.New("500 try later")
			}
			return "> MAIL\n< 250\n", nil
		}}})
	ask := func(body string) (out wire.ChannelTestResult) {
		t.Helper()
		rec := r.ask(auth.Admin, "POST", wire.Prefix+"/alerts/test", body)
		require.Equal(t, 200, rec.Code, rec.Body.String())
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &out))
		return out
	}
	assert.Equal(t, wire.ChannelTestResult{Channel: "mail", Sent: true, Conversation: "> MAIL\n< 250\n"}, ask(`{"channel":"mail","to":"ops@x"}`))
	assert.Equal(t, wire.ChannelTestResult{Channel: "sms", Error: "500 try later", Conversation: "> POST\n< 500\n"}, ask(`{"channel":"sms","to":"+1"}`))
	require.Len(t, sent, 2)
	assert.Equal(t, []any{"ops@x", alerting.Test, "mail: This is a test, app_admin has asked for it"}, []any{sent[0].To, sent[0].Stage, sent[0].Text})
	assert.NotEmpty(t, sent[0].Key)
	rec := r.ask(auth.Admin, "POST", wire.Prefix+"/alerts/test", `{"channel":"phone"}`)
	assert.Equal(t, 422, rec.Code)
	assert.Contains(t, rec.Body.String(), "mail, sms")
}

// link is the token of a message's link.
func (r *rig) link(incident int64, until time.Duration) string {
	r.t.Helper()
	secret, err := r.Store.ClusterSecret(r.Ctx)
	require.NoError(r.t, err)
	return auth.AckToken(secret, incident, "ops", r.Clock.Now().Add(until))
}

// page asks for /ack as a browser does, without a key.
func (r *rig) page(method, token string) *httptest.ResponseRecorder {
	form := url.Values{"t": {token}}.Encode()
	req := httptest.NewRequest(method, "/ack?"+form, nil)
	if method == "POST" {
		req = httptest.NewRequest(method, "/ack", strings.NewReader(form))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, req)
	return rec
}

func TestTheLinkOfAMessage_asks_first_and_acknowledges_by_its_button(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := alerted(t, w)
		id := r.incident("HDFS is full")
		token := r.link(id, time.Hour)
		for range 3 { // a mail program looks at it, too
			rec := r.page("GET", token)
			require.Equal(t, 200, rec.Code)
			assert.Contains(t, rec.Body.String(), `<form method="post" action="ack">`)
			assert.Contains(t, rec.Body.String(), `value="`+token+`"`)
			assert.Contains(t, rec.Body.String(), "HDFS is full")
			require.Nil(t, r.detail(id).AckedAt, "looking changes nothing")
		}
		rec := r.page("POST", token)
		require.Equal(t, 200, rec.Code)
		assert.Contains(t, rec.Body.String(), "Thank you")
		x := r.detail(id)
		assert.Equal(t, "ops", x.AckedBy)
		assert.Nil(t, x.NextAt)
		log, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 1})
		require.NoError(t, err)
		assert.Equal(t, []string{"incident_ack", "ops"}, []string{log[0].Action, log[0].Who})
		for _, method := range []string{"GET", "POST"} {
			rec = r.page(method, token)
			require.Equal(t, 200, rec.Code)
			assert.Contains(t, rec.Body.String(), "ops looks after it since 20")
			assert.NotContains(t, rec.Body.String(), "<form")
		}
		again, err := w.Store.Actions(w.Ctx, store.ActionFilter{Limit: 1})
		require.NoError(t, err)
		assert.Equal(t, log[0].At, again[0].At)
		assert.Equal(t, log[0].Target, again[0].Target, "it is not written twice")

		over := r.incident("gone soon")
		late := r.link(over, 3*time.Hour)
		w.Clock.Advance(2 * time.Hour)
		r.file()
		rec = r.page("POST", late)
		assert.Equal(t, 200, rec.Code)
		assert.Contains(t, rec.Body.String(), "It is over: nothing came for 1h0m0s.")
		assert.Nil(t, r.detail(over).AckedAt)
	})
}

func TestALinkThatIsWrongOrOld_acknowledges_nothing_and_tells_nothing(t *testing.T) {
	r := alerted(t, actiontest.SQLite(t))
	id := r.incident("secret matters")
	good := r.link(id, time.Hour)
	for what, c := range map[string]struct{ token, says string }{
		"none":         {"", "copy it whole"},
		"half of one":  {good[:len(good)/2], "copy it whole"},
		"another's":    {auth.AckToken([]byte("guessed"), id, "ops", r.Clock.Now().Add(time.Hour)), "copy it whole"},
		"an old one":   {r.link(id, -time.Second), "too old: use capri alert ack"},
		"markup":       {`"><script>alert(1)</script>`, "copy it whole"},
		"of no number": {r.link(4711, time.Hour), "there is no incident 4711"},
	} {
		for _, method := range []string{"GET", "POST"} {
			rec := r.page(method, c.token)
			assert.Equal(t, 403, rec.Code, "%s, %s", what, method)
			assert.Contains(t, rec.Body.String(), c.says, "%s, %s", what, method)
			assert.NotContains(t, rec.Body.String(), "secret matters")
			assert.NotContains(t, rec.Body.String(), "<form")
			assert.NotContains(t, rec.Body.String(), "<script")
		}
	}
	assert.Nil(t, r.detail(id).AckedAt)
	assert.Equal(t, 405, r.page("PUT", good).Code)
	assert.Nil(t, r.detail(id).AckedAt)
	assert.NotContains(t, r.log.String(), good, "tokens are in no log")
}

func TestThePageOfALink_shows_titles_as_text_and_leaves_browsers_nothing_to_guess(t *testing.T) {
	r := alerted(t, actiontest.SQLite(t))
	id := r.incident(`<script>alert("x")</script> & 'more' <img src=x onerror=y>`)
	rec := r.page("GET", r.link(id, time.Hour))
	require.Equal(t, 200, rec.Code)
	assert.NotContains(t, rec.Body.String(), "<script")
	assert.NotContains(t, rec.Body.String(), "<img")
	assert.Contains(t, rec.Body.String(), "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; &amp; &#39;more&#39; &lt;img")
	for _, rec := range []*httptest.ResponseRecorder{rec, r.page("POST", "wrong")} {
		h := rec.Header()
		assert.Equal(t, "text/html; charset=utf-8", h.Get("Content-Type"))
		assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		assert.Equal(t, "DENY", h.Get("X-Frame-Options"))
		assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"), "the token is in the address")
		assert.Equal(t, "no-store", h.Get("Cache-Control"))
		assert.Equal(t, "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'", h.Get("Content-Security-Policy"))
	}
	// A body without end is cut off.
	rec = r.page("POST", strings.Repeat("A", 1<<20))
	assert.Equal(t, 403, rec.Code)
}
