package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"capri"
	"capri/worker/logs"
)

// shipEvery bounds what of a log is lost with its machine.
const (
	shipEvery = 3 * time.Second
	lastShip  = 5 * time.Second // how long a stop waits for the rest
)

// shipper copies logs into the log store while their jobs run, and what is left when they have ended. Nothing waits for it:
// a store that hangs holds up this one goroutine, and no job, beat or end.
type shipper struct {
	w *Worker

	mu    sync.Mutex
	ended map[string]bool // logs that are done here and not yet there
	wake  chan struct{}
}

func newShipper(w *Worker) *shipper {
	return &shipper{w: w, ended: map[string]bool{}, wake: make(chan struct{}, 1)}
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
	var store *logs.Dir
	defer func() {
		if store != nil {
			store.Close()
		}
	}()
	said := ""
	for over := false; !over; {
		select {
		case <-ctx.Done():
			over = true
		case <-s.wake:
			over = !sleep(ctx, 200*time.Millisecond) // ends come in groups
		case <-time.After(shipEvery):
		}
		var err error
		if store == nil {
			if store, err = logs.OpenStore(s.w.o.LogStore, s.w.node); err == nil {
				err = s.find(store)
			}
		}
		if err == nil {
			err = s.round(store)
		}
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			s.w.log.Warn("logs do not get into the log store; tried again", "store", s.w.o.LogStore, "err", err)
		case err == nil && said != "":
			said = ""
			s.w.log.Info("logs get into the log store again", "store", s.w.o.LogStore)
		}
	}
}

// find notes what an earlier process has begun and not ended.
func (s *shipper) find(store *logs.Dir) error {
	names, err := store.Unfinished()
	s.put(names)
	return err
}

func (s *shipper) round(store *logs.Dir) error {
	limit := s.w.o.LogLimitMB << 20
	var wrong error // the last: one is enough to say
	for _, a := range s.w.table.running() {
		for _, name := range a.logs() {
			if _, err := s.w.logs.Ship(store, name, limit); err != nil && !errors.Is(err, capri.ErrNotFound) {
				wrong = err
			}
		}
	}
	s.mu.Lock()
	ended := slices.Collect(maps.Keys(s.ended))
	s.mu.Unlock()
	for _, name := range ended {
		complete, err := s.w.logs.Ship(store, name, limit)
		if err != nil && !errors.Is(err, capri.ErrNotFound) { // it was never made, or was cleaned up
			wrong = err
			continue
		}
		if complete || err != nil {
			s.mu.Lock()
			delete(s.ended, name)
			s.mu.Unlock()
		}
	}
	return wrong
}

// clean removes what is old from the store; the directory in it is this node's alone.
func (s *shipper) clean(before time.Time, held func(capri.Attempt) bool) {
	store, err := logs.OpenStore(s.w.o.LogStore, s.w.node)
	if err == nil {
		defer store.Close()
		_, err = store.Clean(before, held)
	}
	if err != nil {
		s.w.log.Warn("clean up the log store", "err", err)
	}
}
