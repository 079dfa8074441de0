package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
	"capri/alerting"
	"capri/api"
	"capri/api/wire"
	"capri/services"
	"capri/services/alert"
)

// alertCluster has an admin on duty and a task of alice.
func alertCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply(tasks)
	require.Zero(t, c.capri(strings.Fields("user set ops --mail ops@x --phone +1 --admin")...).code)
	require.Zero(t, c.capri("duty", "set", write(t, "duty.yaml", "rotas: [{primary: {people: [ops], start: 2026-11-16}}]")).code)
	return c
}

// file does what the service alert does with what is new.
func (c *cluster) file() {
	c.t.Helper()
	f := &alert.Filing{Store: c.Store, People: alert.PeopleOf(c.Store)}
	_, err := f.Run(c.Ctx, services.Turn{Now: c.Clock.Now(), Lease: c.Lease(c.t, "alert")})
	require.NoError(c.t, err)
}

func TestAlerts_are_raised_listed_shown_and_acknowledged_by_command(t *testing.T) {
	c := alertCluster(t)
	assert.Contains(t, c.capri("alert", "list").out, "no incidents")
	assert.Contains(t, c.capri("alert", "list", "--single").out, "no alerts")
	r := c.capri("alert", "raise", "HDFS is full", "--level", "severe", "--text", "first line\nsecond \x1b[31mline", "--key", "hdfs")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "raised, severe: HDFS is full")
	require.Zero(t, c.capri("alert", "raise", "odd figures", "--task", "orders").code)
	c.file()

	var incidents []wire.Incident
	c.json(&incidents, "alert", "list")
	require.Len(t, incidents, 2)
	assert.Equal(t, []any{"severe", "HDFS is full", "attention", "odd figures", "orders"}, []any{incidents[1].Level, incidents[1].Title, incidents[0].Level, incidents[0].Title, incidents[0].Task})
	var alerts []wire.Alert
	c.json(&alerts, "alert", "list", "--single", "--limit", "1")
	require.Len(t, alerts, 1)
	r = c.capri("alert", "list")
	for _, line := range strings.Split(r.out, "\n") {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 110, line)
		assert.Equal(t, strings.TrimRight(line, " "), line)
	}
	assert.Contains(t, r.out, "open")

	id := fmt.Sprint(incidents[1].ID)
	assert.Contains(t, c.capri("__complete", "alert", "ack", "").out, id+"\tHDFS is full\n")
	r = c.capri("alert", "show", id)
	require.Zero(t, r.code, r.err)
	for _, says := range []string{"incident " + id + ", severe, open, 1 alerts since 2026-", "HDFS is full", "    first line\n", "unless somebody acknowledges: capri alert ack " + id, "phone", "ops@x", "severe: all admins", "due"} {
		assert.Contains(t, r.out, says)
	}
	assert.NotContains(t, r.out, "\x1b", "the terminal is not steered by what an alert says")
	var detail wire.IncidentDetail
	c.json(&detail, "alert", "show", id)
	assert.Len(t, detail.Messages, 3)

	r = c.capri("alert", "ack", id)
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "incident "+id+" is acknowledged")
	assert.Contains(t, c.capri("alert", "list").out, "with cli")
	assert.NotContains(t, c.capri("alert", "show", id).out, "told again")
}

func TestSilences_by_command(t *testing.T) {
	c := alertCluster(t)
	assert.Contains(t, c.capri("alert", "silence", "list").out, "no silences")
	r := c.capri("alert", "silence", "add", "--task", "ord*", "--kind", "raised", "--reason", "we know of it", "--until", "2026-11-21 12:00")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "silence 1 stands until 2026-11-21T12:00:00Z")
	r = c.capri("alert", "silence", "list")
	for _, says := range []string{"ord*", "raised", "cli", "we know of it"} {
		assert.Contains(t, r.out, says)
	}
	require.Zero(t, c.capri("alert", "raise", "odd figures", "--task", "orders").code)
	c.file()
	assert.Contains(t, c.capri("alert", "list").out, "silenced")
	show := c.capri("alert", "show", "1")
	assert.Contains(t, show.out, "silenced: we know of it")
	assert.Contains(t, show.out, "nobody was told")
	r = c.capri("alert", "silence", "end", "1")
	require.Zero(t, r.code, r.err)
	assert.Equal(t, exitNotFound, c.capri("alert", "silence", "end", "1").code)
	assert.Contains(t, c.capri("alert", "silence", "list").out, "no silences")
}

func TestAlertCommands_say_what_is_wrong(t *testing.T) {
	c := alertCluster(t)
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"alert", "show", "4711"}, exitNotFound, "there is no incident 4711"},
		{[]string{"alert", "ack", "4711"}, exitNotFound, "there is no incident 4711"},
		{[]string{"alert", "ack", "x"}, exitUsage, "as capri alert list shows it"},
		{[]string{"alert", "show", "0"}, exitUsage, "as capri alert list shows it"},
		{[]string{"alert", "show"}, exitUsage, "the number of an incident"},
		{[]string{"alert", "list", "--limit", "-1"}, exitUsage, "0 for all"},
		{[]string{"alert", "raise"}, exitUsage, "in one line"},
		{[]string{"alert", "raise", "x", "--level", "loud"}, exitUsage, "level"},
		{[]string{"alert", "raise", "a\nb"}, exitUsage, "one line of at most 255 bytes"},
		{[]string{"alert", "raise", "x", "--task", "nobody"}, exitNotFound, "nobody"},
		{[]string{"alert", "silence", "add", "--reason", "x", "--until", "2026-11-21"}, exitUsage, "everything cannot be silenced"},
		{[]string{"alert", "silence", "add", "--kind", "raised", "--until", "2026-11-21"}, exitUsage, "why nobody is told"},
		{[]string{"alert", "silence", "add", "--kind", "raised", "--reason", "x"}, exitUsage, "until"},
		{[]string{"alert", "silence", "add", "--kind", "raised", "--reason", "x", "--until", "2026-11-01"}, exitUsage, "a time to come"},
		{[]string{"alert", "silence", "end", "x"}, exitUsage, "as capri alert silence list shows it"},
		{[]string{"alert", "test", "pigeon"}, exitUsage, "there are none"},
		{[]string{"alert", "wat"}, exitUsage, "wat"},
	} {
		r := c.capri(tt.args...)
		assert.Equal(t, tt.code, r.code, "%v: %s%s", tt.args, r.out, r.err)
		assert.Contains(t, r.err, tt.says, "%v", tt.args)
		assert.Empty(t, r.out, "%v", tt.args)
	}
	assert.Contains(t, c.capri("alert", "list", "--all").out, "no incidents", "nothing was raised")
}

func TestAChannelIsTried_by_command(t *testing.T) {
	c := alertCluster(t)
	fails := false
	srv := httptest.NewServer(api.New(api.Options{Store: c.Store, Actions: c.Actions, Version: "test", Channels: api.Channels{Names: []string{"mail"},
		Compose: func(string, alerting.Facts) alerting.Message { return alerting.Message{} },
		Talk: func(_ context.Context, _ string, m alerting.Message) (string, error) {
			if fails {
				return "> RCPT TO:<" + m.To + ">\n< 550 no such user\n", errors.New("550 no such user")
			}
			return "> RCPT TO\n< 250\n", nil
		}}}))
	t.Cleanup(srv.Close)
	c.env["CAPRI_SERVER"] = srv.URL
	r := c.capri("alert", "test", "mail", "--to", "ops@x")
	require.Zero(t, r.code, r.err)
	assert.Equal(t, "sent by mail\n", r.out)
	fails = true
	r = c.capri("alert", "test", "mail", "--to", "ops@x")
	assert.Equal(t, exitFailed, r.code, "scripts can ask")
	assert.Equal(t, "not sent by mail: 550 no such user\n\n> RCPT TO:<ops@x>\n< 550 no such user\n", r.out)
	var out wire.ChannelTestResult
	fails = false
	c.json(&out, "alert", "test", "mail")
	assert.True(t, out.Sent)
}

func TestTemplates_are_written_to_begin_with(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "templates")
	r := capriIn(t, nil, "", "alert", "templates", dir)
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, dir)
	for _, name := range []string{"en/sms.tmpl", "zh/mail.html.tmpl"} {
		assert.FileExists(t, filepath.Join(dir, name))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	assert.NotZero(t, capriIn(t, nil, "", "alert", "templates", filepath.Join(dir, "file")).code)
}
