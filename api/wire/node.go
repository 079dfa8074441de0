package wire

import (
	"time"

	"capri"
)

// Node is a row of capri_schedul_cluster.
type Node struct {
	Host          string     `json:"host"`
	IP            string     `json:"ip"`
	Port          int        `json:"port"`
	Pool          string     `json:"pool"`
	Slots         int        `json:"slots"`
	BootID        string     `json:"boot_id"`
	Beat          int64      `json:"beat"`
	LastCheckTime *time.Time `json:"last_check_time"`
	CheckInterval int        `json:"check_interval"`
	Lost          bool       `json:"lost"`
	Left          bool       `json:"left" doc:"its worker stopped in order and has not come back"`
	IsStop        bool       `json:"is_stop" doc:"draining: takes nothing new"`
	Clients       string     `json:"clients" doc:"programs for job types that it has, with commas between them; -: none; ?: it did not say"`
	ShortOf       string     `json:"short_of" doc:"why it takes nothing new by itself"`
	StopTime      *time.Time `json:"stop_time"`
	StartTime     *time.Time `json:"start_time"`
	Memory        int        `json:"memory" doc:"MB"`
	CPULoad       float64    `json:"cpu_load"`
	MemoryLoad    float64    `json:"memory_load"`
	DiskFree      int64      `json:"disk_free" doc:"MB"`
	TaskNum       int        `json:"task_num"`
}

// NodeOf writes a stored node.
func NodeOf(n *capri.Node, zone *time.Location) Node {
	return Node{
		Host: n.Name, IP: n.IP, Port: n.Port, Pool: n.Pool, Slots: n.Slots, BootID: n.BootID, Beat: n.Beat,
		LastCheckTime: At(n.LastCheckTime, zone), CheckInterval: n.CheckInterval, Lost: n.Lost, Left: n.Left, IsStop: n.Draining, ShortOf: n.ShortOf, Clients: n.Clients,
		StopTime: At(n.StopTime, zone), StartTime: At(n.StartTime, zone), Memory: n.MemoryMB, CPULoad: n.CPULoad,
		MemoryLoad: n.MemoryLoad, DiskFree: n.DiskFreeMB, TaskNum: n.TaskNum,
	}
}

// Master is a row of capri_master.
type Master struct {
	Name          string     `json:"name"`
	Instance      string     `json:"instance" doc:"new with each life of the process"`
	Host          string     `json:"host"`
	PID           int        `json:"pid"`
	Listen        string     `json:"listen"`
	Version       string     `json:"version"`
	Beat          int64      `json:"beat"`
	LastCheckTime *time.Time `json:"last_check_time"`
	StartTime     *time.Time `json:"start_time"`
	ClockOffsetMS int64      `json:"clock_offset_ms" doc:"its clock minus the database's"`
	Stopped       bool       `json:"stopped" doc:"it left in order"`
}

// Service is a service of the masters with who leads it and how its last run went.
type Service struct {
	Service    string         `json:"service"`
	Leader     string         `json:"leader" doc:"the name of the master that leads it"`
	Lease      string         `json:"lease" doc:"the row of capri_service_lock; some services share one"`
	Holder     string         `json:"holder"`
	Epoch      int64          `json:"epoch"`
	AcquiredAt *time.Time     `json:"acquired_at"`
	Paused     bool           `json:"paused"`
	Reason     string         `json:"paused_reason"`
	Until      *time.Time     `json:"paused_until"`
	MaxRunning int            `json:"max_running" doc:"-1 no limit"`
	Triggered  *time.Time     `json:"triggered_at"`
	LastRun    *time.Time     `json:"last_run"`
	DurationMS int64          `json:"duration_ms"`
	NextRun    *time.Time     `json:"next_run"`
	Counts     map[string]int `json:"counts"`
	Error      string         `json:"error"`
}

// ServiceRun is a turn of a service in which it did something, or failed.
type ServiceRun struct {
	ID         int64          `json:"id"`
	Service    string         `json:"service"`
	Leader     string         `json:"leader" doc:"the name of the master that ran it"`
	Epoch      int64          `json:"epoch"`
	StartedAt  time.Time      `json:"started_at"`
	DurationMS int64          `json:"duration_ms"`
	Counts     map[string]int `json:"counts" doc:"what it did"`
	Error      string         `json:"error"`
}

// Pause stops dispatch: of everything, or of one group, or on one node.
type Pause struct {
	Group  string `json:"group,omitempty" maxLength:"128"`
	Node   string `json:"node,omitempty" maxLength:"190"`
	Reason string `json:"reason" minLength:"1" maxLength:"200"`
	Until  string `json:"until,omitempty" doc:"business time or RFC 3339; empty: until somebody resumes it"`
}

// Resume ends a pause.
type Resume struct {
	Group  string `json:"group,omitempty" maxLength:"128"`
	Node   string `json:"node,omitempty" maxLength:"190"`
	Reason string `json:"reason,omitempty" maxLength:"1000"`
}

// Breaker opens or closes the circuit breaker of one task or one group.
type Breaker struct {
	Task   string `json:"task,omitempty" maxLength:"200"`
	Group  string `json:"group,omitempty" maxLength:"128"`
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"has to be there to open one"`
	Until  string `json:"until,omitempty" doc:"business time or RFC 3339; empty: until somebody closes it"`
}

// StopOf is what a pause or a breaker is of.
type StopOf struct{ Task, Group, Node string }

// Stop is a pause or an open breaker.
type Stop struct {
	Kind   string     `json:"kind" enum:"pause,breaker"`
	Scope  string     `json:"scope" enum:"all,group,node,task"`
	Name   string     `json:"name"`
	Reason string     `json:"reason"`
	By     string     `json:"created_by"`
	Since  *time.Time `json:"created_at"`
	Until  *time.Time `json:"ends_at"`
}

// Dispatch is what people have said about the placing of batches.
type Dispatch struct {
	MaxRunning int    `json:"max_running" doc:"-1 no limit, 0 none at all"`
	Stops      []Stop `json:"stops"`
}

// DispatchLimit says how many batches may be assigned or run at once.
type DispatchLimit struct {
	MaxRunning int    `json:"max_running" minimum:"-1" maximum:"1000000" doc:"-1 no limit, 0 none at all"`
	Reason     string `json:"reason,omitempty" maxLength:"1000"`
}

// Reason is why somebody does something; it stands in the log of actions.
type Reason struct {
	Reason string `json:"reason,omitempty" maxLength:"1000"`
}

// Said is what a third party reports for one interval.
type Said struct {
	Said    string       `json:"said" enum:"ready,fail,withdraw"`
	Period  capri.Period `json:"period"`
	BatchNo string       `json:"batch_no"`
	Reason  string       `json:"reason,omitempty" maxLength:"1000"`
}
