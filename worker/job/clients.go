package job

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"capri"
)

// Clients finds the programs of a worker that job types need.
type Clients struct {
	Path       string            // directories with : between them, where they are looked for (worker.path)
	Configured map[string]string // by name, the paths that are configured (worker.clients); they are not looked for
}

// ClientNames are the clients there are, in the order in which people read of them.
var ClientNames = []string{"python", "java", "hive", "spark", "trino", "hadoop", "yarn"}

// clients says how their programs are called, and what for they are needed.
var clients = map[string]struct {
	programs []string
	use      string
}{
	"python": {[]string{"python3", "python"}, "jobs of type python"},
	"java":   {[]string{"java"}, "jobs of type java"},
	"hive":   {[]string{"hive", "beeline"}, "jobs of type hive"},
	"spark":  {[]string{"spark-submit"}, "jobs of type spark"},
	"trino":  {[]string{"trino", "presto"}, "jobs of type trino"},
	"hadoop": {[]string{"hadoop"}, "jobs of type mapreduce"},
	"yarn":   {[]string{"yarn"}, "killing what hive, spark and mapreduce have started"},
}

// Find gives the path of a client. An error says what cannot be done here, and how to cure that.
func (c Clients) Find(name string) (string, error) {
	client := clients[name]
	if path := c.Configured[name]; path != "" {
		if err := unix.Access(path, unix.X_OK); err != nil {
			return "", capri.Invalid("worker.clients."+name, path, "a program that can be executed ("+err.Error()+"), for "+client.use)
		}
		return path, nil
	}
	// The task's own PATH and directory have no say: which interpreter runs a job is the operator's choice.
	for _, program := range client.programs {
		for _, dir := range strings.Split(c.Path, ":") {
			path := filepath.Join(dir, program)
			var st unix.Stat_t
			if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(path, unix.X_OK) == nil {
				return path, nil
			}
		}
	}
	return "", capri.NotFound("there is no %s in %s on this node, for %s: install it, or set worker.clients.%s",
		strings.Join(client.programs, " or "), c.Path, client.use, name)
}

// Use says what a client is for.
func (c Clients) Use(name string) string { return clients[name].use }

// IsConfigured tells whether somebody has said where the client is, so that its absence is a fault.
func (c Clients) IsConfigured(name string) bool {
	return slices.Contains(ClientNames, name) && c.Configured[name] != ""
}
