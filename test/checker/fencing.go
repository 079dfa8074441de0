package checker

// leaseOf names the lease of services that share one.
var leaseOf = map[string]string{"reschedule": "dispatch", "lost-nodes": "attempts", "zombie": "attempts"}

func lockOf(service string) string {
	if l, ok := leaseOf[service]; ok {
		return l
	}
	return service
}

// fencing needs no order of commits. A service's transaction holds a shared lock on its lease's row from its begin to
// its commit, and a grant writes that row: so every transaction of an epoch has committed before the grant of the next,
// and every transaction of the next begins after it. An event takes its id, and the database's time, between its
// transaction's begin and commit. So over one lease, in the order of ids, epochs never go down, although the ids of two
// transactions of the same epoch say nothing of their commits; and no event of an old epoch is later than the first turn
// of a newer one, which catches a stale write that came before the new leader's first event.
func fencing(h *History, r *Result) {
	highest := map[string]event{}
	turns := map[string][]turn{}
	for _, t := range h.turns {
		turns[lockOf(t.service)] = append(turns[lockOf(t.service)], t)
	}
	// newer gives the first turn of any newer epoch; asked once for each grant.
	type grant struct {
		lease string
		epoch int64
	}
	known := map[grant]turn{}
	newer := func(g grant) (turn, bool) {
		first, ok := known[g]
		if !ok {
			for _, t := range turns[g.lease] {
				if t.epoch > g.epoch && (first.epoch == 0 || t.startedAt < first.startedAt) {
					first = t
				}
			}
			known[g] = first
		}
		return first, first.epoch != 0
	}
	for _, e := range h.events {
		if e.epoch == 0 {
			continue
		}
		r.Checked++
		l := lockOf(e.who)
		if high, ok := highest[l]; ok && high.epoch > e.epoch {
			r.violated("event %d of %s (batch %d, %q) has epoch %d, and event %d before it has %d", e.id, l, e.batch, e.why, e.epoch, high.id, high.epoch)
		} else {
			highest[l] = e
		}
		lock, ok := h.leases[l]
		switch {
		case !ok:
			r.violated("event %d is of a service %q that has no lease", e.id, e.who)
			continue
		case e.epoch > lock.epoch:
			r.violated("event %d of %s has epoch %d; the newest grant is %d", e.id, l, e.epoch, lock.epoch)
		}
		if t, ok := newer(grant{l, e.epoch}); ok && e.at > t.startedAt {
			r.violated("event %d of %s (batch %d, %q) under epoch %d is from %s, and a turn of epoch %d had begun at %s", e.id, l, e.batch, e.why, e.epoch, h.when(e.at), t.epoch, h.when(t.startedAt))
		}
	}
}
