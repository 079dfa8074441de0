package job

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"capri"
	"capri/worker/job/runner"
)

// Type is how commands of one job type are run: a row of types.
//
// What every job has besides is not the type's: its directory and files are made before (prepare), the shim starts it,
// keeps its output and ends its process group (run, kill), and the directory is removed after it (cleanup). What else has
// to happen around a job of the type, package runner does, as the job.
type Type struct {
	client string                    // which of the worker's clients it needs; "" is none
	argv   func(c *command) []string // nil: the runner calls an address instead
	env    []string                  // what jobs of the type see besides; the task's own env comes after it
	remote string                    // how the runner finds what the client has started elsewhere; "": the shim starts argv itself
	kill   func(c *command) []string // how the runner ends that; nil: with the yarn client

	priority func(engines int) []string // options that hand the task's priority on; engines run 10 first and 1 last
}

// command is what a type makes a command line of. Its times are expanded.
type command struct {
	client    string // the path of the type's client
	text      string
	files     []string // names of the task's files, which lie in the job's directory
	options   []string
	mainClass string
	params    map[string]string
}

// A log that is read while the job runs should not lag behind by a full buffer.
var unbuffered = []string{"PYTHONUNBUFFERED=1"}

var types = map[string]Type{
	"shell":     {argv: func(c *command) []string { return []string{"/bin/sh", "-c", c.text} }},
	"python":    {client: "python", argv: python, env: unbuffered},
	"java":      {client: "java", argv: java},
	"http":      {},
	"hive":      {client: "hive", argv: hive, remote: "hive"},
	"spark":     {client: "spark", argv: spark, env: unbuffered, remote: "spark", priority: func(p int) []string { return []string{"--conf", "spark.yarn.priority=" + strconv.Itoa(p)} }},
	"trino":     {client: "trino", argv: trino, remote: "trino", kill: killQuery, priority: func(p int) []string { return []string{"--session", "query_priority=" + strconv.Itoa(p)} }},
	"mapreduce": {client: "hadoop", argv: mapreduce, remote: "mapreduce"},
}

// TypeOf finds a job type by its name in the task file.
func TypeOf(name string) (Type, error) {
	if of, ok := capri.JobTypeAliases[name]; ok { // of older definitions
		name = of
	}
	if t, ok := types[name]; ok {
		return t, nil
	}
	return Type{}, capri.Invalid("job.type", name, "one of "+strings.Join(slices.Sorted(maps.Keys(types)), ", "))
}

// The command of python (with a file), java, spark and mapreduce is a line of words that the shell reads, so that an
// argument may be "$PARAM_DAY". What Capri adds to the line never becomes part of its text: it is handed to the shell as
// $0 (the client) and $@ (the options).

// python runs one of the task's files, if that is what the command begins with ("etl.py --full $PARAM_DAY"), and else the
// command itself as a program.
func python(c *command) []string {
	if slices.Contains(c.files, strings.TrimPrefix(firstWord(c.text), "./")) {
		return line(c, `exec "$0" "$@" `+c.text)
	}
	return append(append([]string{c.client}, c.options...), "-c", c.text)
}

// java runs a jar, or a class with the command's first word as the class path.
func java(c *command) []string {
	if c.mainClass == "" {
		return line(c, `exec "$0" "$@" -jar `+c.text)
	}
	first, rest := cutWord(c.text)
	return line(c, `exec "$0" "$@" -cp `+first+` `+quoted(c.mainClass)+rest)
}

// spark submits a jar or a python file.
func spark(c *command) []string {
	if c.mainClass == "" {
		return line(c, `exec "$0" "$@" `+c.text)
	}
	return line(c, `exec "$0" --class `+quoted(c.mainClass)+` "$@" `+c.text)
}

// mapreduce runs a jar by `hadoop jar`. Hadoop reads options (-D name=value) where a program's own arguments begin.
func mapreduce(c *command) []string {
	first, rest := cutWord(c.text)
	main := ""
	if c.mainClass != "" {
		main = " " + quoted(c.mainClass)
	}
	return line(c, `exec "$0" jar `+first+main+` "$@"`+rest)
}

// hive hands the statements to hive or beeline, or the name of the file that holds them. The text sees parameters as
// ${hivevar:name}.
func hive(c *command) []string {
	argv := append([]string{c.client}, c.options...)
	for _, name := range slices.Sorted(maps.Keys(c.params)) {
		argv = append(argv, "--hivevar", name+"="+c.params[name])
	}
	return append(argv, statements(c, "-e", "-f")...)
}

func trino(c *command) []string {
	return append(append([]string{c.client}, c.options...), statements(c, "--execute", "--file")...)
}

// killQuery ends a query by the same client: where it runs, and who may end it, is what the options say.
func killQuery(c *command) []string {
	return append(append([]string{c.client}, c.options...), "--execute",
		"CALL system.runtime.kill_query(query_id => '"+runner.RemoteID+"', message => 'ended by Capri')")
}

func statements(c *command, text, file string) []string {
	if name := strings.TrimPrefix(strings.TrimSpace(c.text), "./"); slices.Contains(c.files, name) {
		return []string{file, name}
	}
	if strings.HasPrefix(c.text, "-") { // a comment, which clients would take for an option
		return []string{text, "\n" + c.text}
	}
	return []string{text, c.text}
}

// line has the shell read a command line, in which $0 is the client and $@ the options.
func line(c *command, script string) []string {
	return append([]string{"/bin/sh", "-c", script, c.client}, c.options...)
}

func firstWord(text string) string {
	first, _ := cutWord(text)
	return first
}

// cutWord cuts the first word off; rest begins with what stood behind it.
func cutWord(text string) (first, rest string) {
	text = strings.TrimSpace(text)
	if i := strings.IndexAny(text, " \t\r\n"); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

// quoted is for the name of a class, whose $ the shell would read; definition lets no ' into it.
func quoted(name string) string { return "'" + name + "'" }
