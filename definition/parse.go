package definition

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"capri"
	"capri/definition/nearest"
)

// Item is one definition with the place where it was written.
type Item struct {
	capri.Spec
	Where string // file:line of its first field

	name   string          // of the file
	node   *yaml.Node      // what it was read from, to find the line of a field
	broken map[string]bool // fields that Parse complained about; Validate does not do so again
}

// Parse reads task files: any number of documents each, `tasks:` with a list in each document. Defaults are
// filled in. An error is capri.FieldErrors with everything that is wrong; the items then hold what could be
// read, for Check to go on with, and nothing of them may be applied.
func Parse(sources []Source) ([]Item, error) {
	items, wrong, _ := parse(sources)
	return items, wrong.OrNil()
}

// Check is Parse and Validate in one, with the mistakes of both. Where a whole document could not be read the
// second half is left out: the tasks in it would all be reported as missing.
func Check(sources []Source, known Known) (items []Item, warnings []string, err error) {
	items, wrong, complete := parse(sources)
	if complete {
		more, said := validate(items, known)
		wrong, warnings = append(wrong, more...), said
	}
	return items, warnings, wrong.OrNil()
}

// parse also tells whether every document could be read, well or badly.
func parse(sources []Source) (items []Item, wrong capri.FieldErrors, complete bool) {
	complete = true
	for _, src := range sources {
		d := decoder{file: src.Name}
		if !d.source(src.Data) {
			complete = false
		}
		items = append(items, d.items...)
		wrong = append(wrong, d.wrong...)
	}
	return items, wrong, complete
}

// yamlLine finds the line in yaml's own messages ("yaml: line 3: mapping values are not allowed here").
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parserText are the messages that yaml counts lines from 0 for.
var parserText = regexp.MustCompile(`^did not find expected (<|node content|'-' indicator|key$|',' or)`)

// unknownAnchor is a message that comes without a line.
var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.+)' referenced`)

// explain gives yaml's message and the line it speaks of. That is where the block begins in which the reader
// got stuck, so the slip is there or some lines further down.
func explain(err error, data []byte) (line int, text string) {
	text = err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	if parserText.MatchString(text) {
		line++
	}
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		if at := bytes.Index(data, []byte("*"+m[1])); at >= 0 {
			line = lineOf(data, at)
		}
	}
	return min(line, lineOf(data, len(bytes.TrimSpace(data)))), text // not behind the end
}

// source reads one file, and tells whether it could be read to its end.
func (d *decoder) source(data []byte) bool {
	fail := func(line int, field, value, want string) bool {
		where := d.file
		if line > 0 {
			where += ":" + strconv.Itoa(line)
		}
		d.wrong = append(d.wrong, &capri.FieldError{Field: field, Value: value, Want: want, Where: where})
		return false
	}
	if len(data) > MaxSource {
		return fail(0, "file", "", tooLarge)
	}
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, size := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && size <= 1 {
				break
			}
			at += size
		}
		return fail(lineOf(data, at), "file", fmt.Sprintf("byte %#02x", data[at]), "text in UTF-8")
	}
	stream := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := stream.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			line, text := explain(err, data)
			return fail(line, "YAML", text, "valid YAML; look from this line on (indent with spaces, close what is opened, quote texts that hold `: ` or begin with * & ! % @ { [)")
		}
		if len(doc.Content) == 1 && doc.Content[0].Tag != "!!null" {
			d.document(doc.Content[0])
		}
	}
}

// document reads one `tasks:` document.
func (d *decoder) document(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, "document", n.Value, "`tasks:` with a list of tasks below it")
		return
	}
	found := false
	for _, p := range d.pairs(n, "") {
		if p.name != "tasks" {
			want := "`tasks:`, the only field at the top"
			if field := nearest.Word(p.name, []string{"tasks"}); field == "" && shapes[specType].has(p.name) {
				want = "`tasks:` at the top, and this in an item of the list below it"
			}
			d.fail(p.key, p.name, "", want)
			found = true // one message is enough
			continue
		}
		found = true
		list := d.resolve(p.value)
		switch {
		case list.Tag == "!!null":
		case list.Kind != yaml.SequenceNode:
			d.fail(list, "tasks", list.Value, "a list of tasks, each beginning with `- name:`")
		default:
			for _, n := range list.Content {
				d.task(n)
			}
		}
		d.leave(p.value)
	}
	if !found {
		d.fail(n, "document", "", "`tasks:` with a list of tasks below it")
	}
}

// task reads one definition.
func (d *decoder) task(n *yaml.Node) {
	defer d.leave(n)
	if n = d.resolve(n); !d.spend(n) {
		return
	}
	item := Item{Spec: Default(), name: d.file, node: n, Where: d.file + ":" + strconv.Itoa(n.Line)}
	first := len(d.wrong)
	d.broken = nil
	if n.Kind != yaml.MappingNode {
		d.fail(n, "tasks", n.Value, "a task with its fields, such as {name: …, period: day, job: {command: …}}")
		return
	}
	d.into(n, valueOf(&item.Spec), "")
	normalize(&item.Spec)
	// The name is known only now; a message that names the task is worth more than one that names a line.
	for _, e := range d.wrong[first:] {
		e.Where = where(e.Where, item.Name)
	}
	item.broken = d.broken
	d.items = append(d.items, item)
}

// where joins a place in a file and a task's name, as far as they are known.
func where(place, task string) string {
	switch {
	case task == "":
		return place
	case place == "":
		return "task " + task
	}
	return place + ": task " + task
}
