package worker

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"capri"
	"capri/files"
	"capri/sql/store"
	"capri/worker/job"
	"capri/worker/logs"
)

// phase is how far an attempt has come here.
type phase int

const (
	preparing phase = iota
	starting        // its Start is under way
	running         // the shim has it
	ended           // its end is on its way to the database
)

// attempt is one claimed batch. What is not marked otherwise is written before anybody else can see it.
type attempt struct {
	id     capri.Attempt
	batch  capri.Batch
	task   *capri.Task
	inputs []capri.PathCondition
	slots  int
	memory int

	account *job.Account // nil: our own user
	process job.Process
	dir     string // "" until it was made
	outputs []capri.PathCondition
	before  []files.Stamp // how the outputs looked before; as many as outputs
	startBy time.Duration // reading of shim.Now after which it may not start; 0: never mind

	// Guarded by table.mu.
	phase    phase
	cancel   context.CancelFunc // ends preparing; nil where that does not wait for anything
	killing  bool               // the shim was told to end it because somebody asked for that
	released bool               // its slots and memory are free again
}

func newAttempt(c store.Claimed) *attempt {
	return &attempt{
		id: capri.Attempt{Batch: c.ID, Number: c.Attempt}, batch: c.Batch, task: c.Task, inputs: c.Inputs,
		slots: max(1, c.Task.Worker.Slots), memory: max(0, c.Task.Worker.MemoryMB),
	}
}

// byOutput: its success is judged by what it wrote.
func (a *attempt) byOutput() bool { return a.task.Check == capri.CheckOutputPath }

// owner of its directory.
func (a *attempt) owner() int {
	if a.account == nil {
		return os.Geteuid()
	}
	return int(a.account.UID)
}

// logs names what it writes to.
func (a *attempt) logs() []string {
	var names []string
	for _, s := range []logs.Stream{logs.Out, logs.Err} {
		if name, err := logs.Name(a.task.Name, a.id, s); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// table is what the worker has in hand.
type table struct {
	slots, memory int // of the node; memory 0: not limited

	mu          sync.Mutex
	attempts    map[capri.Attempt]*attempt
	takenSlots  int
	takenMemory int
}

func newTable(slots, memory int) *table {
	return &table{slots: slots, memory: memory, attempts: map[capri.Attempt]*attempt{}}
}

// free is how many slots are.
func (t *table) free() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slots - t.takenSlots
}

// admit takes the attempt up; a reason says that the node is short of something for it. Dispatch counted the same
// slots and memory; they run short when a node was started again with fewer.
func (t *table) admit(a *attempt) (short string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attempts[a.id] = a
	var reasons []string
	if t.takenSlots+a.slots > t.slots {
		reasons = append(reasons, fmt.Sprintf("%d slots, and %d of %d are free", a.slots, max(0, t.slots-t.takenSlots), t.slots))
	}
	if a.memory > 0 && t.memory > 0 && t.takenMemory+a.memory > t.memory {
		reasons = append(reasons, fmt.Sprintf("%d MB, and %d of %d are free", a.memory, max(0, t.memory-t.takenMemory), t.memory))
	}
	if len(reasons) > 0 {
		a.released = true
		return "it needs " + strings.Join(reasons, "; ")
	}
	t.takenSlots += a.slots
	t.takenMemory += a.memory
	return ""
}

// adopt takes up an attempt that an earlier process started, whether there is room or not: it runs.
func (t *table) adopt(a *attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.phase = running
	t.attempts[a.id] = a
	t.takenSlots += a.slots
	t.takenMemory += a.memory
}

// advance moves attempts to a phase.
func (t *table) advance(to phase, attempts ...*attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range attempts {
		a.phase = to
	}
}

// end notes that an attempt's process is no more: what it took is free at once, before the database knows. asked:
// the shim was told to end it.
func (t *table) end(id capri.Attempt) (a *attempt, asked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a = t.attempts[id]; a == nil {
		return nil, false
	}
	a.phase = ended
	t.release(a)
	return a, a.killing
}

// remove forgets attempts.
func (t *table) remove(ids ...capri.Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if a := t.attempts[id]; a != nil {
			t.release(a)
			delete(t.attempts, id)
		}
	}
}

func (t *table) release(a *attempt) {
	if !a.released {
		a.released = true
		t.takenSlots -= a.slots
		t.takenMemory -= a.memory
	}
}

func (t *table) get(id capri.Attempt) *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attempts[id]
}

// inPhase lists the attempts that are in it.
func (t *table) inPhase(p phase) []capri.Attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []capri.Attempt
	for id, a := range t.attempts {
		if a.phase == p {
			ids = append(ids, id)
		}
	}
	return ids
}

// running lists the attempts that the shim has.
func (t *table) running() []*attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*attempt
	for _, a := range t.attempts {
		if a.phase == running {
			all = append(all, a)
		}
	}
	return all
}

// all lists everything in hand, whatever its phase.
func (t *table) all() []capri.Attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.attempts))
}

func (t *table) isIn(id capri.Attempt, p phase) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.attempts[id]
	return a != nil && a.phase == p
}

func (t *table) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.attempts) == 0
}

// jobs counts what runs.
func (t *table) jobs() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, a := range t.attempts {
		if a.phase == running {
			n++
		}
	}
	return n
}
