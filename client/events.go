package client

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"capri"
	"capri/api/wire"
)

// EventFilter narrows the stream of events; empty fields do not. Several values have commas between them.
type EventFilter struct{ Task, State, Kind string }

// resumeAfter is how long a stream that broke off is left alone.
const resumeAfter = time.Second

// Events follows changes from now on until ctx ends or each stops it. Where the connection is lost it resumes, at the next
// server if need be.
func (c *Client) Events(ctx context.Context, f EventFilter, each func(wire.StreamEvent) error) error {
	patient := *c.http // a stream takes as long as it takes
	patient.Timeout = 0
	last := ""
	for {
		header := http.Header{"Accept": {"text/event-stream"}}
		if last != "" {
			header.Set("Last-Event-ID", last)
		}
		resp, err := c.ask(ctx, &patient, get, "/events", values("task", f.Task, "state", f.State, "kind", f.Kind), header, nil)
		if err != nil && (last == "" || !errors.Is(err, capri.ErrUnavailable)) {
			return err
		}
		if err == nil {
			err = readEvents(resp.Body, func(e wire.StreamEvent) error {
				last = cmp.Or(e.ID, last)
				if e.Kind == "" {
					return nil
				}
				return each(e)
			})
			resp.Body.Close()
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(resumeAfter):
		}
	}
}

// readEvents reads until the connection ends; what is cut off in the middle is no event.
func readEvents(r io.Reader, each func(wire.StreamEvent) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var e wire.StreamEvent
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if e.Kind != "" || e.ID != "" {
				if err := each(e); err != nil {
					return err
				}
			}
			e = wire.StreamEvent{}
		case name == "event":
			e.Kind = value
		case name == "id":
			e.ID = value
		case name == "data":
			e.Data = append(e.Data, value...)
		}
	}
	return nil
}
