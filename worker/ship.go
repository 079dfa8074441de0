package worker

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"capri"
	"capri/worker/logs"
)

// shipEvery bounds what of a log is lost with its machine.
const (
	shipEvery = 3 * time.Second
	lastShip  = 5 * time.Second // how long a stop waits for the rest
	shipping  = 8               // logs at once
	noteEvery = 10 * time.Second
)

// shipper copies logs into the log store while their jobs run, and what is left when they have ended. Nothing waits for it:
// a store that hangs holds up its goroutines, and no job, beat or end.
type shipper struct {
	w    *Worker
	kept *logs.Kept

	mu    sync.Mutex
	ended map[string]bool // logs that are done here and not yet there
	wake  chan struct{}
}

func newShipper(w *Worker) (*shipper, error) {
	if w.o.LogStore == nil {
		return nil, nil
	}
	kept, err := logs.NewKept(w.o.LogStore, w.node, w.o.LogLimitMB<<20)
	return &shipper{w: w, kept: kept, ended: map[string]bool{}, wake: make(chan struct{}, 1)}, err
}

// put notes logs that are done.
func (s *shipper) put(names []string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	for _, name := range names {
		s.ended[name] = true
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// start ships in the background until the function that it gives is called, which waits for what has just ended, but
// not for a store that hangs.
func (s *shipper) start() (stop func()) {
	if s == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(ctx)
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(lastShip):
			s.w.log.Warn("stops without the last of the logs in the log store, which hangs; the next start brings them", "store", s.w.o.LogStore)
		}
	}
}

// run ships until ctx ends, and then once more what has just ended.
func (s *shipper) run(ctx context.Context) {
	var err error
	if names, e := s.w.logs.DoneSince(s.shippedBefore()); e != nil {
		err = e
	} else {
		s.put(names) // an earlier process ended them, and may not have shipped them
	}
	said := ""
	var noted time.Time
	for over := false; !over; {
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			s.w.log.Warn("logs do not get into the log store; tried again", "store", s.w.o.LogStore, "err", err)
		case err == nil && said != "":
			said = ""
			s.w.log.Info("logs get into the log store again", "store", s.w.o.LogStore)
		}
		select {
		case <-ctx.Done():
			over = true
		case <-s.wake:
			over = !sleep(ctx, 200*time.Millisecond) // ends come in groups
		case <-time.After(shipEvery):
		}
		began := time.Now()
		err = s.round()
		if err == nil && (over || began.Sub(noted) >= noteEvery) {
			noted = began
			s.note(began)
		}
	}
}

// shippedBefore is a time before which all logs that were done had been shipped: now, if there never was a log store.
func (s *shipper) shippedBefore() time.Time {
	text, err := os.ReadFile(s.w.directory.in(shippedFile))
	if errors.Is(err, fs.ErrNotExist) {
		now := time.Now()
		s.note(now)
		return now
	}
	ms, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.UnixMilli(ms).Add(-time.Minute) // what ended just before the round began may have been noted just after it
}

func (s *shipper) note(at time.Time) {
	if err := os.WriteFile(s.w.directory.in(shippedFile), []byte(strconv.FormatInt(at.UnixMilli(), 10)+"\n"), 0o600); err != nil {
		s.w.log.Warn("note what was shipped", "err", err)
	}
}

// round ships what there is to ship. Its error is the last one: one is enough to say.
func (s *shipper) round() error {
	s.mu.Lock()
	due := maps.Clone(s.ended)
	s.mu.Unlock()
	for _, a := range s.w.table.running() {
		for _, name := range a.logs() {
			due[name] = true
		}
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var wrong error
	next := make(chan string)
	for range min(shipping, len(due)) {
		group.Go(func() {
			for name := range next {
				complete, err := s.kept.Ship(context.Background(), s.w.logs, name)
				gone := errors.Is(err, capri.ErrNotFound) // it was never made, or was cleaned up
				if err != nil && !gone {
					mu.Lock()
					wrong = err
					mu.Unlock()
				}
				if complete || gone {
					s.mu.Lock()
					delete(s.ended, name)
					s.mu.Unlock()
				}
			}
		})
	}
	for name := range due {
		next <- name
	}
	close(next)
	group.Wait()
	return wrong
}

// clean removes what is old from the store; the directory in it is this node's alone.
func (s *shipper) clean(before time.Time, held func(capri.Attempt) bool) {
	if _, err := s.kept.Clean(context.Background(), before, held); err != nil {
		s.w.log.Warn("clean up the log store", "err", err)
	}
}
