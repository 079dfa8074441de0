package main

import (
	"capri/action"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
	"capri/watch"
)

func TestWatchOnce_says_by_its_exit_code_whether_something_is_silent(t *testing.T) {
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer srv.Close()
	t.Setenv("CAPRI_WATCH_API", srv.URL)
	r := capriIn(t, nil, "", "watch", "--once", "--config", write(t, "c.yaml", ""))
	assert.Equal(t, result{exitDone, "ok      api " + srv.URL + ": 200 OK\n", ""}, r)

	status = http.StatusServiceUnavailable
	r = capriIn(t, nil, "", "watch", "--once", "-o", "json", "--config", write(t, "c.yaml", ""))
	assert.Equal(t, exitFailed, r.code)
	var found []watch.Finding
	require.NoError(t, json.Unmarshal([]byte(r.out), &found), r.out)
	assert.Equal(t, []watch.Finding{{Check: "api " + srv.URL, Detail: "503 Service Unavailable"}}, found)

	t.Setenv("CAPRI_WATCH_DSN", "capri:geheim@tcp(127.0.0.1:1)/capri")
	r = capriIn(t, nil, "", "watch", "--once", "--config", write(t, "c.yaml", ""))
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.out, "SILENT  database: ")
	assert.NotContains(t, r.out+r.err, "geheim")
}

func TestWatch_refuses_to_watch_nothing_or_to_tell_nobody(t *testing.T) {
	file := write(t, "c.yaml", "")
	r := capriIn(t, nil, "", "watch", "--config", file)
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.err, "watch.dsn")
	t.Setenv("CAPRI_WATCH_API", "http://127.0.0.1:1")
	r = capriIn(t, nil, "", "watch", "--config", file)
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.err, "watch.webhook")
}

func TestQuality_opens_a_gate_by_hand(t *testing.T) {
	c := newCluster(t, actiontest.SQLite(t))
	c.Apply("tasks:\n- {name: gated, owner: alice, period: day, quality_gate: true, job: {command: x}}")
	b, err := c.Actions.Execute(c.Ctx, actiontest.Who, action.ExecuteRequest{Task: "gated"})
	require.NoError(t, err)
	id := strconv.FormatInt(int64(b.ID), 10)
	for _, line := range [][]string{{"quality"}, {"quality", id}, {"quality", id, "--runnable", "--blocked"}, {"quality", "x", "--runnable"}} {
		assert.Equal(t, exitUsage, c.capri(line...).code, "%v", line)
	}
	assert.Equal(t, exitNotFound, c.capri("quality", "999999", "--runnable").code)
	assert.Equal(t, exitRefused, c.capri("quality", id, "--runnable", "--ask", "7").code, "nobody asked that")
	r := c.capri("quality", id, "--blocked", "--reason", "too few rows")
	assert.Equal(t, result{exitDone, "batch " + id + ": blocked\n", ""}, r)
	assert.Contains(t, c.capri("why", id).out, "its quality gate says blocked: too few rows")
	assert.Equal(t, exitDone, c.capri("quality", id, "--runnable").code)
	assert.NotContains(t, c.capri("why", id).out, "quality")
}
