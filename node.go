package capri

import (
	"slices"
	"strings"
	"time"
)

// Node is a worker's registration: a row of capri_schedul_cluster. It is one data directory; BootID is new
// with every life of the process that holds that directory's lock.
type Node struct {
	Name          string
	Host          string
	IP            string
	Port          int
	BootID        string
	Pool          string
	Slots         int
	LastCheckTime Instant // database time of the newest beat
	CheckInterval int     // seconds between beats
	Beat          int64   // counter of beats; observers watch it move
	Lost          bool
	Draining      bool   // is_stop: takes nothing new
	ShortOf       string // why it takes nothing new by itself ("its disk has 12 MB left"); "": it does
	Left          bool   // its worker stopped in order (boot_id is empty) and has not come back
	Clients       string // of job types, those that it has, with commas between them; "-": none; "?": it did not say
	StopTime      Instant
	StartTime     Instant
	MemoryMB      int // total
	CPULoad       float64
	MemoryLoad    float64 // used share, 0..1
	DiskFreeMB    int64
	TaskNum       int // jobs it runs now

	// What it does by itself when its beats are not acknowledged (design §5.2). Masters wait longer than that.
	KillAfter   time.Duration // its jobs are told to end; 0: never (standalone, whose directory's lock is the lease)
	KillGrace   time.Duration // and are killed at most this much later
	LeaseWait   bool          // on_lease_lost: wait; its jobs are left alone on both sides until it answers or a person acts
	ClockOffset time.Duration // its clock minus the database's
	LostAt      Instant       // when it was called lost; 0: it is not
}

// Load is what a node has in hand: assigned, preparing and running batches together.
type Load struct {
	Batches  int
	Slots    int
	MemoryMB int
}

// HasClient tells whether a node has a client of JobClients. One that did not say may have it.
func (n *Node) HasClient(name string) bool {
	return n.Clients == "?" || slices.Contains(strings.Split(n.Clients, ","), name)
}
