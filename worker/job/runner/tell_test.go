package runner

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestAn_application_is_told_to_the_server_until_it_has_heard(t *testing.T) {
	heard := make(chan string, 10)
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var body struct{ ID string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		heard <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") + " " + body.ID
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	t.Setenv("CAPRI_SERVER", server.URL+"/")
	t.Setenv("CAPRI_ATTEMPT_TOKEN", "capri_attempt_x")
	w := &watcher{remote: remotes["spark"], to: t.Output(), over: map[string]bool{}, tell: teller(t.Context())}
	for _, line := range []string{"nothing", "INFO Client: Submitted application application_17_0042", "INFO Client: Application report for application_17_0042 (state: RUNNING)"} {
		if _, err := w.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case got := <-heard:
		if want := "POST /api/v1/attempt/application Bearer capri_attempt_x application_17_0042"; got != want {
			t.Errorf("the server heard %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server has heard nothing")
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("it was called %d times", n)
	}
}

func TestWithout_a_server_nobody_is_told(t *testing.T) {
	t.Setenv("CAPRI_SERVER", "")
	t.Setenv("CAPRI_ATTEMPT_TOKEN", "x")
	if teller(t.Context()) != nil {
		t.Error("there is nobody to tell")
	}
}
