package checker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// What a run leaves behind beside its database: the run file, the witness log and the nemesis log. Whoever makes a run
// writes them by the types here; the checker reads them.

// Run is the run file: what cannot be read from the database.
type Run struct {
	Zone string `json:"zone"` // business time
	Seed uint64 `json:"seed"`

	// Business time: marks in (From, To] must have their batches. End is when everything was stopped and the database
	// holds still. All three are epoch milliseconds of business time, as the tables hold them.
	From int64 `json:"from_ms"`
	To   int64 `json:"to_ms"`
	End  int64 `json:"end_ms"`

	// Business time runs from BaseBusiness at the real instant BaseReal, Speed times as fast. All zero: it is real time.
	Speed        float64 `json:"speed"`
	BaseReal     int64   `json:"base_real_ms"`
	BaseBusiness int64   `json:"base_business_ms"`

	// Settled tells that faults were healed and the system left alone before End, for SettledMS of real time: what then
	// still waits needs a cause that can be named.
	Settled   bool  `json:"settled"`
	SettledMS int64 `json:"settled_ms"`

	Nodes       map[string]Capacity `json:"nodes"`       // what was configured, by name of the node
	MaxRunning  *int                `json:"max_running"` // nil, -1: no limit
	Unwitnessed []string            `json:"unwitnessed"` // tasks whose jobs write no witness log

	// SlackMS is how long, in real time, a transaction may stay open: an edit that is closer to a mark than this may be
	// seen or not seen by its generation. Default 3000.
	SlackMS int64 `json:"slack_ms"`
}

// Capacity is what a node may hold at once. MemoryMB 0: not looked at.
type Capacity struct {
	Slots    int `json:"slots"`
	MemoryMB int `json:"memory_mb"`
}

// ReadRun reads a run file.
func ReadRun(path string) (Run, error) {
	var r Run
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, fmt.Errorf("run file %s: %w", path, err)
	}
	return r, nil
}

// Write writes a run file.
func (r Run) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// business is a real instant in business time. The tables hold business time, the witness and the nemesis write real
// time.
func (r Run) business(real int64) int64 {
	if r.Speed == 0 {
		return real
	}
	return r.BaseBusiness + int64(float64(real-r.BaseReal)*r.Speed)
}

// slack is SlackMS in business time.
func (r Run) slack() int64 {
	ms := r.SlackMS
	if ms == 0 {
		ms = 3000
	}
	return r.stretch(ms)
}

// stretch is a real duration in business time.
func (r Run) stretch(ms int64) int64 {
	if r.Speed == 0 {
		return ms
	}
	return int64(float64(ms) * r.Speed)
}

// Fault is one line of the nemesis log: what was broken, and when it was whole again. Times are real epoch
// milliseconds; Healed 0: it was not healed by itself (a kill), or not yet.
type Fault struct {
	At     int64             `json:"at_ms"`
	Healed int64             `json:"healed_ms,omitempty"`
	Kind   string            `json:"fault"`
	Target string            `json:"target"`         // the process, or "database", "redis"
	Role   string            `json:"role,omitempty"` // why this target: "leader of dispatch"
	Args   map[string]string `json:"args,omitempty"`
}

// PauseHost is the one kind the checker must know: a worker and its shim were both stopped, as when a whole host
// sleeps. Nobody can end its jobs then, so an overlap that it causes is told apart (design §5.2). Target is the node.
const PauseHost = "pause_host"

// WriteFault appends one line.
func WriteFault(w io.Writer, f Fault) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// ReadFaults reads a nemesis log.
func ReadFaults(path string) ([]Fault, error) {
	var all []Fault
	err := lines(path, func(line string) error {
		var f Fault
		err := json.Unmarshal([]byte(line), &f)
		all = append(all, f)
		return err
	})
	return all, err
}

// What a job says of itself.
const (
	Start   = "start"   // it holds the lock of its task and batch_no
	End     = "end"     // it lets go of it now
	Overlap = "overlap" // it started, and another process holds the lock
)

// Witness is one line of the witness log, written by the job itself and never through Capri:
//
//	<real epoch ms> start|end|overlap <task> <batch_no> <run_no> <batch id>.<attempt> <node> <pid> <kernel boot>/<uptime ms>
//
// Times of one kernel boot are compared by their uptime, which no clock change moves. The node is "-" where the job
// does not know it: the history of the attempt tells.
type Witness struct {
	Real    int64
	What    string
	Task    string
	BatchNo string
	RunNo   int
	Batch   int64
	Attempt int
	Node    string
	PID     int
	Boot    string
	Uptime  int64 // ms
}

func (w Witness) String() string {
	return fmt.Sprintf("%d %s %s %s %d %d.%d %s %d %s/%d", w.Real, w.What, w.Task, w.BatchNo, w.RunNo, w.Batch, w.Attempt, w.Node, w.PID, w.Boot, w.Uptime)
}

// ParseWitness reads what String wrote.
func ParseWitness(line string) (Witness, error) {
	var w Witness
	f := strings.Fields(line)
	if len(f) != 9 {
		return w, fmt.Errorf("witness line %q: want 9 fields, found %d", line, len(f))
	}
	var err error
	number := func(s string) int64 {
		n, e := strconv.ParseInt(s, 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("witness line %q: %w", line, e)
		}
		return n
	}
	batch, attempt, _ := strings.Cut(f[5], ".")
	boot, uptime, _ := strings.Cut(f[8], "/")
	w = Witness{Real: number(f[0]), What: f[1], Task: f[2], BatchNo: f[3], RunNo: int(number(f[4])), Batch: number(batch), Attempt: int(number(attempt)),
		Node: f[6], PID: int(number(f[7])), Boot: boot, Uptime: number(uptime)}
	if err == nil && w.What != Start && w.What != End && w.What != Overlap {
		err = fmt.Errorf("witness line %q: %q is none of start, end, overlap", line, w.What)
	}
	return w, err
}

// ReadWitness reads every *.log file of a witness directory.
func ReadWitness(dir string) ([]Witness, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("witness directory %s holds no *.log file", dir)
	}
	var all []Witness
	for _, file := range files {
		err := lines(file, func(line string) error {
			w, err := ParseWitness(line)
			all = append(all, w)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// lines hands each line to each. A last line without its end is a write that a kill cut off, and is left out.
func lines(path string, each func(string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := each(line); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
}
