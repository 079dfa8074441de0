package conf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"capri"
)

// Probe is one thing outside Capri that the monitor looks after: exactly one of Command, URL and Task is set. Probes
// are a list, which keys and variables cannot hold, so they have a file of their own (monitor.probes_file):
//
//	probes:
//	  - name: name_node                       # unique
//	    url: http://name-node:9870/jmx        # well with a 2xx answer; or
//	    command: [/usr/local/bin/check, -q]   # well with exit code 0; a program and its arguments, never a shell's text; or
//	    task: dwd_orders                      # well when its newest batch succeeded, at most max_age ago
//	    max_age: 26h
//	    interval: 1m                          # from here on: what is built in
//	    timeout: 10s
//	    level: important                      # attention, important, severe
//	    text: ""                              # for who reads the alert: what it means, what to do
type Probe struct {
	Name     string
	Command  []string
	URL      string
	Task     string
	MaxAge   time.Duration
	Interval time.Duration
	Timeout  time.Duration
	Level    capri.Level
	Text     string
}

// probeLine is a probe as the file writes it.
type probeLine struct {
	Name     string   `yaml:"name"`
	Command  []string `yaml:"command"`
	URL      string   `yaml:"url"`
	Task     string   `yaml:"task"`
	MaxAge   string   `yaml:"max_age"`
	Interval string   `yaml:"interval"`
	Timeout  string   `yaml:"timeout"`
	Level    string   `yaml:"level"`
	Text     string   `yaml:"text"`
}

// Bounds of a probe. The time limit is short because a turn of the monitor's probes lasts as long as its slowest.
const (
	probeTimeoutMost   = 30 * time.Second
	probeIntervalLeast = 10 * time.Second
	probeAgeMost       = 100 * 24 * time.Hour
)

// readProbes reads the file; everything that is wrong is said at once.
func readProbes(file string) ([]Probe, capri.FieldErrors) {
	fail := func(value, want string) ([]Probe, capri.FieldErrors) {
		return nil, capri.FieldErrors{{Field: "monitor.probes_file", Value: value, Want: want}}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return fail(file, "a file that can be read: "+reason(err))
	}
	var doc struct {
		Probes []probeLine `yaml:"probes"`
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true) // a mistyped key would be a probe that does something else
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return fail(file, "a list of probes: "+strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
	}
	var probes []Probe
	var wrong capri.FieldErrors
	names := map[string]bool{}
	for i, l := range doc.Probes {
		say := func(field, value, want string) {
			wrong = append(wrong, &capri.FieldError{Field: fmt.Sprintf("probes[%d].%s", i, field), Value: value, Want: want, Where: filepath.ToSlash(file)})
		}
		if !validName(l.Name) {
			say("name", l.Name, nameRule)
		} else if names[l.Name] {
			say("name", l.Name, "a name that no other probe has")
		}
		names[l.Name] = true
		kinds := 0
		for _, is := range []bool{len(l.Command) > 0, l.URL != "", l.Task != ""} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			say("name", l.Name, "exactly one of command, url and task")
		}
		if u, err := url.Parse(l.URL); l.URL != "" && (err != nil || u.Host == "" || !oneOf(u.Scheme, "http", "https")) {
			say("url", l.URL, "http://HOST… or https://HOST…")
		}
		if (l.Task == "") != (l.MaxAge == "") {
			say("max_age", l.MaxAge, "to be there with task, and only then")
		}
		duration := func(field, text string, otherwise, least, most time.Duration) time.Duration {
			if text == "" {
				return otherwise
			}
			d, err := time.ParseDuration(text)
			if err != nil || d < least || d > most {
				say(field, text, fmt.Sprintf("a duration from %s to %s", least, most))
			}
			return d
		}
		p := Probe{Name: l.Name, Command: l.Command, URL: l.URL, Task: l.Task, Text: l.Text, Level: capri.Important,
			MaxAge:   duration("max_age", l.MaxAge, 0, time.Minute, probeAgeMost),
			Interval: duration("interval", l.Interval, time.Minute, probeIntervalLeast, 24*time.Hour),
			Timeout:  duration("timeout", l.Timeout, 10*time.Second, 100*time.Millisecond, probeTimeoutMost)}
		switch l.Level {
		case "", capri.Important.String():
		case capri.Attention.String():
			p.Level = capri.Attention
		case capri.Severe.String():
			p.Level = capri.Severe
		default:
			say("level", l.Level, "attention, important or severe")
		}
		probes = append(probes, p)
	}
	return probes, wrong
}
