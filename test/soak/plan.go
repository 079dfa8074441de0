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
	deck        string // within its lane; see lanes
	least, most time.Duration
	roles       []string // whom; one is chosen
}

// long says whether it outlasts what makes a node lost, so that its batches are given away while it lasts.
func (k kind) long() bool { return k.deck == shimAlone || k.deck == long }

// The decks of a lane, from which its kinds are drawn in turn.
const (
	brief     = "brief"
	long      = "long"
	shimAlone = "shim alone" // long, and the worker cannot end its jobs: its shim has to
)

var (
	leaders = []string{"leader of dispatch", "leader of dispatch", "leader of dependency", "leader of generate", leaderOfAttempts, anyMaster}
	busy    = []string{"busiest worker", "busiest worker", "any worker"}
	lasting = []string{lastingJob}
)

const (
	leaderOfAttempts = "leader of attempts"
	anyMaster        = "any master"
	lastingJob       = "worker with a lasting job"

	second = time.Second
)

// kinds are all of them. The limits of the soak are behind the times: a lease lapses after 5 s; a node's jobs end after
// 9 + 7 s, and it is lost after 31 s, which the look each 5 s sees 35 to 40 s after its last beat.
var kinds = []kind{
	{"master_kill", "master", brief, 3 * second, 9 * second, leaders},
	{"master_freeze", "master", brief, 7 * second, 13 * second, leaders}, // beyond its lease, then it goes on
	{"master_freeze_in_turn", "master", brief, 7 * second, 9 * second, []string{"leader of dispatch"}},
	{"master_freeze_before_write", "master", brief, 7 * second, 9 * second, []string{"leader of dispatch"}}, // outside any transaction
	{"master_blind", "master", brief, 7 * second, 9 * second, []string{"leader of dispatch", "leader of dependency"}},
	{"master_cut", "master", brief, 4 * second, 10 * second, leaders},
	{"master_silent", "master", brief, 6 * second, 10 * second, leaders},
	{"master_reset", "master", brief, 2 * second, 5 * second, leaders},
	{"master_slow", "master", brief, 5 * second, 10 * second, leaders},
	{"master_clock", "master", brief, 8 * second, 15 * second, leaders}, // an hour forward or back
	{"commit_cut", "master", brief, 5 * second, 10 * second, leaders},
	{"alert_crash", "master", brief, 5 * second, 10 * second, []string{"leader of alert"}}, // when a message is sent, and not noted yet
	{"plan_slow", "master", brief, 5 * second, 10 * second, []string{"leader of dispatch"}},

	{"worker_kill_long", "worker", shimAlone, 43 * second, 48 * second, lasting},
	{"worker_freeze_long", "worker", shimAlone, 43 * second, 48 * second, lasting},
	{"worker_gone", "worker", long, 43 * second, 48 * second, lasting},
	{"pause_host", "worker", long, 43 * second, 48 * second, lasting}, // worker and shim frozen: nobody can end the jobs
	{"worker_cut", "worker", long, 43 * second, 48 * second, lasting},
	{"worker_cut_shim_frozen", "worker", long, 43 * second, 48 * second, lasting}, // the worker alone can end the jobs
	{"worker_silent", "worker", long, 43 * second, 48 * second, lasting},
	{"worker_kill", "worker", brief, 1 * second, 9 * second, busy},  // its shim holds the jobs until it is back
	{"worker_crash", "worker", brief, 1 * second, 5 * second, busy}, // worker, shim, jobs; back at once
	{"worker_freeze", "worker", brief, 13 * second, 18 * second, busy},
	{"worker_reset", "worker", brief, 2 * second, 6 * second, busy},
	{"worker_commit_cut", "worker", brief, 5 * second, 10 * second, busy},
	{"shim_kill", "worker", brief, 1 * second, 2 * second, busy},
	{"shim_freeze", "worker", brief, 13 * second, 16 * second, busy},
	{"start_slow", "worker", brief, 6 * second, 12 * second, busy}, // beyond start_within

	{"redis_kill", "server", brief, 5 * second, 15 * second, []string{"redis"}},
	{"redis_flush", "server", brief, 1 * second, 1 * second, []string{"redis"}},
	{"redis_slow", "server", brief, 5 * second, 10 * second, []string{"redis"}},
	{databaseKill, "server", brief, 1 * second, 5 * second, []string{"database"}},
	{"deadlocks", "server", brief, 5 * second, 12 * second, []string{"database"}},
	{"mail_gone", "server", brief, 3 * second, 8 * second, []string{"mail"}},
	{"mail_silent", "server", brief, 3 * second, 8 * second, []string{"mail"}},
	{"mail_later", "server", brief, 2 * second, 5 * second, []string{"mail"}},
	{"mail_drops", "server", brief, 2 * second, 5 * second, []string{"mail"}}, // takes a mail and does not say so
}

const databaseKill = "database_kill"

// fault is one of the plan.
type fault struct {
	kind
	At, For time.Duration
	Role    string
	Steady  bool   // long: attempts keeps its leader meanwhile, since a new one counts every silence anew
	Spare   bool   // it may not hit the leader of attempts: a steady one is on
	Dice    uint64 // for what is decided when it happens, such as which of two equally busy workers
}

func (f fault) String() string { return fmt.Sprintf("%s %s at %s for %s", f.name, f.Role, f.At, f.For) }

// lanes are planned in this order: where masters and servers have to leave the leader of attempts alone depends on
// what happens to workers.
var lanes = []struct {
	name        string
	decks       []string      // drawn from in turn
	least, most time.Duration // of peace between two faults
}{
	{"worker", []string{shimAlone, brief, long, brief}, 2 * second, 6 * second},
	{"master", []string{brief}, 4 * second, 11 * second},
	{"server", []string{brief}, 8 * second, 25 * second},
}

// plan decides everything that can be decided before: the same seed gives the same plan. No kind comes again from its
// deck before all others have come, so that a short run meets many.
func plan(seed uint64, length time.Duration) []fault {
	var all []fault
	for i, lane := range lanes {
		r := rand.New(rand.NewPCG(seed, uint64(100+i)))
		between := func(least, most time.Duration) time.Duration {
			return (least + time.Duration(r.Int64N(int64(most-least)+1))).Round(time.Millisecond)
		}
		decks := map[string][]kind{}
		drawn, longs := 0, 0
		for t := between(second, lane.most); ; t += between(lane.least, lane.most) {
			name := lane.decks[drawn%len(lane.decks)]
			drawn++
			if len(decks[name]) == 0 {
				for _, k := range kinds {
					if k.lane == lane.name && k.deck == name {
						decks[name] = append(decks[name], k)
					}
				}
				r.Shuffle(len(decks[name]), func(i, j int) { decks[name][i], decks[name][j] = decks[name][j], decks[name][i] })
			}
			k := decks[name][0]
			decks[name] = decks[name][1:]
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
			if f.long() {
				f.Steady = longs%3 != 1 // two of three, the first among them; the others meet every change of leader
				longs++
			}
			if f.Spare = nearSteady(f, all); f.Spare {
				if f.name == databaseKill { // whoever leads, it costs him his lease; later
					decks[name] = append(decks[name], k)
					continue
				}
				if f.Role == leaderOfAttempts {
					f.Role = anyMaster
				}
			}
			all = append(all, f)
			t += f.For
		}
	}
	slices.SortStableFunc(all, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return all
}

// aftermath is how long a lease may still change hands when what hit its holder is over.
const aftermath = 8 * second

// nearSteady says whether a fault of masters or servers could change the leader of attempts during a steady one.
func nearSteady(f fault, all []fault) bool {
	return f.lane != "worker" && slices.ContainsFunc(all, func(w fault) bool {
		return w.Steady && f.At < w.At+w.For && f.At+f.For+aftermath > w.At
	})
}
