package hdfs

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"

	lib "github.com/colinmarc/hdfs/v2"

	"capri/conf"
)

// Health is how one name-node is.
type Health struct {
	NameService string
	NameNode    string
	Active      bool
	SafeMode    bool
	Err         error // it is neither active nor standby
}

// Check asks each name-node by itself. Nothing is changed.
func (h *HDFS) Check(ctx context.Context) []Health {
	var all []Health
	for _, s := range h.services {
		for _, node := range s.addresses() {
			all = append(all, Health{NameService: s.name, NameNode: node})
		}
	}
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			one := newNameService(h.o, conf.NameService{Name: all[i].NameService, NameNodes: []string{all[i].NameNode}})
			defer one.dropIdle()
			all[i].check(ctx, one)
		})
	}
	wg.Wait()
	return all
}

func (s *Health) check(ctx context.Context, one *nameService) {
	standby := false
	err := one.call(ctx, one.o.User, func(c *client) error {
		if _, err := c.Stat("/"); err != nil {
			standby = plain(err) == plainStandby
			return err
		}
		// Safe mode is not told to clients, but it comes before the question whether the file is there, and this one is not.
		err := c.Chmod("/.capri-doctor-"+rand.Text(), 0o600)
		s.SafeMode = safeMode(err)
		if s.SafeMode || answered(err) {
			return nil
		}
		return err
	})
	switch {
	case err == nil:
		s.Active = true
	case !standby:
		s.Err = errors.New(plain(err))
	}
}

// safeMode: with several name-nodes the refusal comes inside another one that says "try again".
func safeMode(err error) bool {
	var remote lib.Error
	return errors.As(err, &remote) && (remote.Exception() == exceptionSafeMode || strings.Contains(remote.Message(), "SafeModeException"))
}
