package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// kind is something that can go wrong. A lane has one fault at a time, so that at most one master, one worker and one
// server are hurt at once and the others have a chance; that is also what the guarantees are about.
type kind struct {
	name        string
	lane        string // master, worker, server
	least, most time.Duration
	roles       []string // whom; one is chosen
}

var (
	leaders = []string{"leader of dispatch", "leader of dispatch", "leader of dependency", "leader of generate", "leader of attempts", "any master"}
	busy    = []string{"busiest worker", "busiest worker", "any worker"}
)

const second = time.Second

// kinds are all of them. The limits of the soak are behind the times: a lease lapses after 5 s, a node's jobs end after
// 10 + 2 s and it is lost after 30 s.
var kinds = []kind{
	{"master_kill", "master", 3 * second, 9 * second, leaders},
	{"master_freeze", "master", 7 * second, 13 * second, leaders}, // beyond its lease, then it goes on
	{"master_freeze_in_turn", "master", 7 * second, 9 * second, []string{"leader of dispatch"}},
	{"master_blind", "master", 7 * second, 9 * second, []string{"leader of dispatch", "leader of dependency"}},
	{"master_cut", "master", 4 * second, 10 * second, leaders},
	{"master_silent", "master", 6 * second, 10 * second, leaders},
	{"master_reset", "master", 2 * second, 5 * second, leaders},
	{"master_slow", "master", 5 * second, 10 * second, leaders},
	{"master_clock", "master", 8 * second, 15 * second, leaders}, // an hour forward or back
	{"commit_cut", "master", 5 * second, 10 * second, leaders},
	{"plan_slow", "master", 5 * second, 10 * second, []string{"leader of dispatch"}},

	{"worker_kill", "worker", 1 * second, 9 * second, busy}, // its shim holds the jobs until it is back
	{"worker_gone", "worker", 38 * second, 46 * second, busy},
	{"worker_crash", "worker", 1 * second, 5 * second, busy}, // worker, shim, jobs; back at once
	{"worker_freeze", "worker", 13 * second, 18 * second, busy},
	{"pause_host", "worker", 36 * second, 42 * second, busy}, // worker and shim frozen: nobody can end the jobs
	{"worker_cut", "worker", 36 * second, 44 * second, busy},
	{"worker_silent", "worker", 36 * second, 44 * second, busy},
	{"worker_reset", "worker", 2 * second, 6 * second, busy},
	{"worker_commit_cut", "worker", 5 * second, 10 * second, busy},
	{"shim_kill", "worker", 1 * second, 2 * second, busy},
	{"shim_freeze", "worker", 13 * second, 16 * second, busy},
	{"start_slow", "worker", 6 * second, 12 * second, busy}, // beyond start_within

	{"redis_kill", "server", 5 * second, 15 * second, []string{"redis"}},
	{"redis_flush", "server", 1 * second, 1 * second, []string{"redis"}},
	{"redis_slow", "server", 5 * second, 10 * second, []string{"redis"}},
	{"database_kill", "server", 1 * second, 6 * second, []string{"database"}},
	{"deadlocks", "server", 5 * second, 12 * second, []string{"database"}},
}

// fault is one of the plan.
type fault struct {
	kind
	At, For time.Duration
	Role    string
	Dice    uint64 // for what is decided when it happens, such as which of two equally busy workers
}

func (f fault) String() string { return fmt.Sprintf("%s %s at %s for %s", f.name, f.Role, f.At, f.For) }

// plan decides everything that can be decided before: the same seed gives the same plan. No kind comes again in its lane
// before all others have come, so that a short run meets many.
func plan(seed uint64, length time.Duration) []fault {
	var all []fault
	for i, lane := range []struct {
		name        string
		least, most time.Duration // of peace between two faults
	}{{"master", 4 * second, 11 * second}, {"worker", 3 * second, 9 * second}, {"server", 8 * second, 25 * second}} {
		r := rand.New(rand.NewPCG(seed, uint64(100+i)))
		between := func(least, most time.Duration) time.Duration {
			return (least + time.Duration(r.Int64N(int64(most-least)+1))).Round(time.Millisecond)
		}
		var deck []kind
		for t := between(second, lane.most); ; t += between(lane.least, lane.most) {
			if len(deck) == 0 {
				for _, k := range kinds {
					if k.lane == lane.name {
						deck = append(deck, k)
					}
				}
				r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			}
			k := deck[0]
			deck = deck[1:]
			f := fault{kind: k, At: t, For: between(k.least, k.most), Role: k.roles[r.IntN(len(k.roles))], Dice: r.Uint64()}
			if f.At >= length {
				break
			}
			if f.At+f.For > length { // not the whole of it fits; a shorter one of its lane may
				if length-f.At < 2*second {
					break
				}
				continue
			}
			all = append(all, f)
			t += f.For
		}
	}
	slices.SortStableFunc(all, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return all
}
