package job

import (
	"maps"
	"slices"
	"strings"

	"capri"
)

// Type is how commands of one job type are run.
type Type interface {
	// Argv is the command line for a command whose time templates are expanded. files are the names of the
	// task's files, which lie in the job's directory.
	Argv(command string, files []string) []string
	// Env is what jobs of the type need besides; the task's own env comes after it.
	Env() []string
}

var types = map[string]Type{
	"shell":   shell{},
	"command": shell{}, // as older definitions call it
	"python":  python{},
}

// TypeOf finds a job type by its name in the task file.
func TypeOf(name string) (Type, error) {
	if t, ok := types[name]; ok {
		return t, nil
	}
	return nil, capri.Invalid("job.type", name, "one of "+strings.Join(slices.Sorted(maps.Keys(types)), ", "))
}

// shell runs the command by /bin/sh -c.
type shell struct{}

func (shell) Argv(command string, _ []string) []string { return []string{"/bin/sh", "-c", command} }
func (shell) Env() []string                            { return nil }

// python runs one of the task's files, if that is what the command begins with ("etl.py --full $PARAM_DAY", split by
// the shell as any command line), and else the command itself as a program. python3 is found on the job's PATH by the
// shell, whose "not found" is then in the job's log like any other mistake.
type python struct{}

func (python) Argv(command string, files []string) []string {
	if fields := strings.Fields(command); len(fields) > 0 && slices.Contains(files, strings.TrimPrefix(fields[0], "./")) {
		return []string{"/bin/sh", "-c", "exec python3 " + command}
	}
	return []string{"/bin/sh", "-c", `exec python3 -c "$1"`, "python", command}
}

// Env: a log that is read while the job runs should not lag behind by a full buffer.
func (python) Env() []string { return []string{"PYTHONUNBUFFERED=1"} }
