package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// task is one definition as its file has it, and what people may do with it.
type task struct {
	name, period string
	yaml         string
	third        string // the code it waits for
}

// shape is one kind of task; share is how many of a hundred.
type shape struct {
	name  string
	share int
	write func(m *maker) string
}

// shapes are what a soak consists of. Each takes part in what the guarantees are about: something to wait for,
// something that limits it, some way to end.
var shapes = []shape{
	{"hour", 20, func(m *maker) string { return m.as("hour", m.sleep(100, 1500)) }},
	{"child", 16, func(m *maker) string {
		one, other := m.any("hour", "child"), m.any("hour")
		for other == one {
			other = m.any("hour")
		}
		policy := []string{"ALL", "LASTONE"}[m.r.IntN(2)]
		return m.as("hour", m.sleep(50, 800), fmt.Sprintf("parents: [{task: %s}, {task: %s, policy: %s}]", one, other, policy))
	}},
	{"fires", 8, func(m *maker) string {
		return m.as("cron", m.sleep(50, 600), fmt.Sprintf(`cron: "%d 0/%d * * * ?"`, m.r.IntN(60), m.oneOf(5, 6, 10, 15)))
	}},
	{"crowd", 5, func(m *maker) string { // longer than its period: only the limit holds it
		return m.as("cron", m.sleep(4000, 9000), `cron: "0 0/2 * * * ?"`, fmt.Sprintf("limits: {concurrency: %d, skip_after_minutes: 30}", 1+m.r.IntN(3)))
	}},
	{"day", 9, func(m *maker) string { return m.as("day", m.sleep(300, 3000)) }},
	{"collect", 7, func(m *maker) string { // a day from its last hours, in all the ways that there are
		policy := []string{"ALL", "ANYONE", "LASTONE"}[m.r.IntN(3)]
		name := m.any("hour")
		return m.as("day", m.sleep(200, 1000), fmt.Sprintf("parents: [{task: %s, from: end-%d, to: end, policy: %s}]", name, 1+m.r.IntN(4), policy))
	}},
	{"chain", 4, func(m *maker) string { // waits for its own interval before
		return m.as("hour", m.sleep(100, 500), fmt.Sprintf("parents: [{task: %s, from: -1, to: -1}]", m.name))
	}},
	{"week", 2, func(m *maker) string { return m.as("week", m.sleep(500, 1000)) }},
	{"month", 4, func(m *maker) string {
		return m.as("month", m.sleep(500, 2000), "parents: [{task: "+m.any("day")+"}]")
	}},
	{"made", 6, func(m *maker) string { // makes a path
		check := []string{"exit_code", "output_path"}[m.r.IntN(2)]
		path := m.path(m.name)
		return m.as("hour", fmt.Sprintf(`sh -c "sleep 0.2; mkdir -p %s && touch %s/_SUCCESS"`, path, path), fmt.Sprintf(`outputs: [{path: "%s"}]`, path), "check: "+check)
	}},
	{"reads", 5, func(m *maker) string { // waits for one
		return m.as("hour", m.sleep(50, 500), fmt.Sprintf(`inputs: [{path: "%s"}]`, m.path(m.any("made"))))
	}},
	{"third", 5, func(m *maker) string {
		m.third = "code_" + m.name
		return m.as("hour", m.sleep(50, 500), "third_party: [{code: "+m.third+"}]",
			fmt.Sprintf("limits: {dependency_timeout_minutes: %d}", 4+len(m.made)%10*5)) // their alerts are spread over the hour
	}},
	{"fails", 3, func(m *maker) string { // for good
		return m.as("hour", `sh -c "sleep 0.2; exit 3"`, "retry: {failed: 1, failed_interval_s: 90}")
	}},
	{"shaky", 5, func(m *maker) string { // about every third time
		return m.as("hour", `sh -c 'sleep 0.3; test $(($$ % 3)) -ne 0'`, "retry: {failed: 4, failed_interval_s: 60}", "limits: {dependency_timeout_minutes: 20, output_timeout_minutes: 40}")
	}},
	{"long", 2, func(m *maker) string { // outlives every lease of the soak
		return m.as("hour", m.sleep(14000, 26000), "limits: {output_timeout_minutes: 300}")
	}},
	// Outlives a node's loss and the start elsewhere, and does not end when asked to: whoever does not kill it in time
	// is seen. Their fires are spread over the hour, so that on one worker or another such a job is a few seconds old.
	{lastingShape, 7, func(m *maker) string {
		ms := 54000 + m.r.IntN(14000)
		m.lasting++
		return m.as("cron", fmt.Sprintf(`sh -c "trap '' TERM; sleep %d.%03d"`, ms/1000, ms%1000), fmt.Sprintf(`cron: "%d %d * * * ?"`, m.r.IntN(60), m.lasting*15/2%60), "limits: {concurrency: 2, skip_after_minutes: 30}")
	}},
}

// lastingShape begins the names of those tasks: faults aim at their jobs, and people leave them alone.
const lastingShape = "lasting"

// maker writes one task after the other; those before are there to be waited for.
type maker struct {
	r            *rand.Rand
	witness, dir string
	name, third  string
	lasting      int // how many of them there are
	made         []task
	shapeOf      map[string]string
}

// tasks makes n of them: the same for the same seed.
func tasks(seed uint64, n int, witness, dir string) []task {
	m := &maker{r: rand.New(rand.NewPCG(seed, 1)), witness: witness, dir: dir, shapeOf: map[string]string{}}
	for _, s := range shapes {
		for i := range max(1, n*s.share/100) {
			m.name, m.third = fmt.Sprintf("%s_%02d", s.name, i), ""
			text := s.write(m)
			period, _, _ := strings.Cut(strings.SplitAfter(text, "period: ")[1], "\n")
			m.made = append(m.made, task{name: m.name, period: period, yaml: text, third: m.third})
			m.shapeOf[m.name] = s.name
		}
	}
	return m.made
}

// as writes the task. A job may not be given names of Capri's own, so its node comes under another: its period, what its witness runs, and further lines.
func (m *maker) as(period, command string, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - name: %s\n    group: soak\n    owner: soak\n    period: %s\n    priority: %d\n", m.name, period, m.r.IntN(10))
	fmt.Fprintf(&b, "    job:\n      command: |\n        export CAPRI_NODE=$SOAK_NODE\n        exec %s -dir %s/witness -- %s\n", m.witness, m.dir, command)
	for _, line := range more {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	return b.String()
}

func (m *maker) sleep(least, most int) string {
	ms := least + m.r.IntN(most-least)
	return fmt.Sprintf("sleep %d.%03d", ms/1000, ms%1000)
}

func (m *maker) oneOf(n ...int) int { return n[m.r.IntN(len(n))] }

// isLasting says whether its jobs outlive a node's loss.
func (t task) isLasting() bool { return strings.HasPrefix(t.name, lastingShape) }

// any is a task made before, of one of these shapes.
func (m *maker) any(shapes ...string) string {
	var fit []string
	for _, t := range m.made {
		for _, s := range shapes {
			if m.shapeOf[t.name] == s {
				fit = append(fit, t.name)
			}
		}
	}
	return fit[m.r.IntN(len(fit))]
}

// path is where a task puts what it makes in an hour. The offset tells the two equal hours of the night apart.
func (m *maker) path(name string) string {
	return m.dir + "/paths/" + name + "/${yyyyMMdd}/${HH}${Z}"
}

// file is the task file of these.
func file(tasks ...task) string {
	var b strings.Builder
	b.WriteString("tasks:\n")
	for _, t := range tasks {
		b.WriteString(t.yaml)
	}
	return b.String()
}
