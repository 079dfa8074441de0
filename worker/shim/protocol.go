package shim

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Version is what this shim can do. A worker may meet a shim that is older or newer than itself (upgrades
// happen while jobs run), so fields and messages are added and never change their meaning: inventory, kill,
// exits and acks of any version can be spoken by any other. Only new jobs go to a shim of the same version.
//
// Since version 2 it knows the node's lease: an older one leaves the lease's end to its worker.
const Version = 2

// Message is one frame on the socket, in either direction; what is set is meant. A frame is a length of four
// bytes (big endian) and that much JSON.
type Message struct {
	// worker → shim
	Greet *Greeting `json:"greet,omitempty"` // first frame of a connection
	Start []Job     `json:"start,omitempty"`
	Kill  []Kill    `json:"kill,omitempty"`
	Ack   []string  `json:"ack,omitempty"`   // these exits are in the database
	Ask   uint64    `json:"ask,omitempty"`   // asks for an Inventory of this number
	Leave bool      `json:"leave,omitempty"` // take nothing more, and leave when the last job has ended
	Lease *Lease    `json:"lease,omitempty"` // the node's right to run jobs was renewed

	// shim → worker
	Hello     *Hello     `json:"hello,omitempty"` // the answer to Greet
	Exits     []Exit     `json:"exits,omitempty"` // they are on disk already
	Inventory *Inventory `json:"inventory,omitempty"`
}

// Greeting says who calls.
type Greeting struct {
	Version int `json:"version"`
}

// Hello says who answers, and all that a worker which knows nothing needs to know. It is one snapshot: an
// attempt that the shim took is in Running or in Exits, or was acknowledged.
type Hello struct {
	Life
	Running []Running `json:"running,omitempty"`
	Exits   []Exit    `json:"exits,omitempty"` // not acknowledged yet
}

// Life names one process beyond doubt: pids repeat, and start times repeat after a reboot.
type Life struct {
	Version    int    `json:"version"`
	Pid        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"` // as in /proc/<pid>/stat
	BootID     string `json:"boot_id"`
	Program    string `json:"program"`          // identity of the file it runs; see ProgramID
	Cgroup     string `json:"cgroup,omitempty"` // directory in which its jobs have their groups; see RemoveCgroup
}

// Inventory is what the shim holds now.
type Inventory struct {
	Ask     uint64    `json:"ask"`
	Running []Running `json:"running,omitempty"`
}

// Running is one attempt that has not ended, as far as the disk knows. Pid is 0 while it waits for its fork.
type Running struct {
	Attempt    string `json:"attempt"`
	Pid        int    `json:"pid,omitempty"` // of its main process, and of its process group and session
	StartTicks uint64 `json:"start_ticks,omitempty"`
	Started    int64  `json:"started,omitempty"`   // epoch milliseconds
	MemoryMB   int    `json:"memory_mb,omitempty"` // of all its processes together, the most that was seen
	Processes  int    `json:"processes,omitempty"` // the most that were seen
}

// Job is one command to run. The shim adds nothing but MarkName: what is not in Env is not there.
type Job struct {
	Attempt    string        `json:"attempt"` // "<batch id>.<attempt>"; the shim only compares it
	Argv       []string      `json:"argv"`    // Argv[0] is a path, not searched for
	Env        []string      `json:"env,omitempty"`
	Dir        string        `json:"dir"`
	Stdout     string        `json:"stdout"` // must not exist yet
	Stderr     string        `json:"stderr"` // may be the same path
	Credential *Credential   `json:"credential,omitempty"`
	KillGrace  time.Duration `json:"kill_grace,omitempty"`  // between SIGTERM and SIGKILL; 0: DefaultGrace
	RunTimeout time.Duration `json:"run_timeout,omitempty"` // 0: none

	EndOverMB int `json:"end_over_mb,omitempty"` // it is ended when its processes have more memory together; 0: it is not

	// StartBy is the reading of Now after which it is not started any more, 0: never mind. It belongs to the lease
	// under which the database said "started", so a newer lease does not make a job young that was held up on its way.
	StartBy time.Duration `json:"start_by,omitempty"`
}

// Lease is the node's right to run jobs. A shim that hears of no newer one ends its jobs when it has run out, whatever
// has become of its worker. Without any it runs them for ever.
type Lease struct {
	At        time.Duration `json:"at"`         // reading of Now, taken before the beat was sent that the database acknowledged
	KillAfter time.Duration `json:"kill_after"` // how long it lasts; 0: without end
	Grace     time.Duration `json:"grace"`      // between SIGTERM and SIGKILL then
}

// Credential is whom the job runs as. Without one it runs as the shim's own user, who must not be root.
type Credential struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// DefaultGrace is what a job gets between SIGTERM and SIGKILL when nothing else is said.
const DefaultGrace = 10 * time.Second

// Kill ends one attempt.
type Kill struct {
	Attempt string        `json:"attempt"`
	Grace   time.Duration `json:"grace,omitempty"`  // 0: the job's own; negative: SIGKILL at once
	Lapsed  bool          `json:"lapsed,omitempty"` // the node may not run it any longer; nobody asked for its end
}

// Exit is how an attempt ended. With Error there was no process, or nothing is known of its end.
type Exit struct {
	Attempt      string        `json:"attempt"`
	Code         int           `json:"code,omitempty"`
	Signal       int           `json:"signal,omitempty"` // it died of this; Code is then 0 and means nothing
	Error        string        `json:"error,omitempty"`
	NodeFault    bool          `json:"node_fault,omitempty"` // Error is the machine's fault, and would have met any job
	Started      int64         `json:"started,omitempty"`    // epoch milliseconds
	Ended        int64         `json:"ended"`
	PeakMemoryMB int           `json:"peak_memory_mb,omitempty"`
	Processes    int           `json:"processes,omitempty"` // the most that were seen; 0: it ended before anybody looked
	CPU          time.Duration `json:"cpu,omitempty"`       // user and system
	TimedOut     bool          `json:"timed_out,omitempty"`
	Killed       bool          `json:"killed,omitempty"`      // somebody asked for it
	Lapsed       bool          `json:"lapsed,omitempty"`      // the node might not run it any longer
	OverMemory   bool          `json:"over_memory,omitempty"` // it had more than Job.EndOverMB, and was ended
}

// maxFrame bounds what a broken peer can make us allocate.
const maxFrame = 256 << 20

// WriteFrame sends m with one write.
func WriteFrame(w io.Writer, m *Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if len(body) > maxFrame {
		return fmt.Errorf("encode frame: %d bytes are more than %d", len(body), maxFrame)
	}
	frame := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	_, err = w.Write(append(frame, body...))
	return err
}

// ReadFrame receives one frame; io.EOF means that the peer closed between two frames.
func ReadFrame(r io.Reader) (*Message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("read frame: %d bytes are more than %d", n, maxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("read frame of %d bytes: %w", n, err)
	}
	m := new(Message)
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("decode frame of %d bytes: %w", n, err)
	}
	return m, nil
}
