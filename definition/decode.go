package definition

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"capri"
	"capri/definition/nearest"
)

// decoder reads YAML nodes into definitions. yaml's own decoding would stop short of what people need: it gives
// no path of the field, knows no word for a field that does not exist, and merges duplicate aliases silently.
type decoder struct {
	file   string
	items  []Item
	wrong  capri.FieldErrors
	broken map[string]bool

	aliases int // how many we are inside of
	copied  int // what aliases have cost so far
}

// maxCopied bounds what aliases may multiply, per file: 10 lines of YAML can otherwise stand for more tasks than
// there is memory. Sharing a block among a few thousand tasks stays far below it.
const maxCopied = 1_000_000

// resolve follows an alias; leave is called when its target has been read.
func (d *decoder) resolve(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode {
		return n
	}
	d.aliases++
	return n.Alias
}

func (d *decoder) leave(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		d.aliases--
	}
}

// spend counts a node that is read by way of an alias, and complains once when it is too much.
func (d *decoder) spend(n *yaml.Node) bool {
	if d.aliases == 0 {
		return true
	}
	if d.copied > maxCopied {
		return false
	}
	if d.copied += 1 + len(n.Value)/64 + len(n.Content)/2; d.copied > maxCopied {
		d.fail(n, "file", "", "fewer repetitions by aliases (*name); write the tasks out")
		return false
	}
	return true
}

func (d *decoder) fail(n *yaml.Node, path, value, want string) {
	if d.broken == nil {
		d.broken = map[string]bool{}
	}
	d.broken[path] = true
	d.wrong = append(d.wrong, &capri.FieldError{Field: path, Value: value, Want: want, Where: d.file + ":" + strconv.Itoa(n.Line)})
}

// pair is a field of a mapping.
type pair struct {
	name       string
	key, value *yaml.Node
}

// pairs lists the fields of a mapping, each once: its own, then those that `<<: *base` brings in.
func (d *decoder) pairs(n *yaml.Node, path string) []pair {
	list := make([]pair, 0, len(n.Content)/2)
	line := map[string]int{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Tag == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode:
			d.fail(key, join(path, "?"), "", "the name of a field")
		case line[key.Value] != 0:
			d.fail(key, join(path, key.Value), "", fmt.Sprintf("to be there once; it is on line %d already", line[key.Value]))
		default:
			line[key.Value] = key.Line
			list = append(list, pair{key.Value, key, value})
		}
	}
	for len(merged) > 0 {
		m := merged[0]
		merged = merged[1:]
		base := m
		if m.Kind == yaml.AliasNode {
			base = m.Alias
		}
		d.aliases++ // whatever is merged counts as copied
		ok := d.spend(base)
		d.aliases--
		switch {
		case !ok:
			return list
		case base.Kind == yaml.SequenceNode:
			merged = append(slices.Clone(base.Content), merged...)
		case base.Kind != yaml.MappingNode:
			d.fail(m, join(path, "<<"), base.Value, "an alias of a block of fields, such as *base")
		default:
			for i := 0; i+1 < len(base.Content); i += 2 {
				key, value := base.Content[i], base.Content[i+1]
				if key.Tag == "!!merge" {
					merged = append(merged, value)
				} else if key.Kind == yaml.ScalarNode && line[key.Value] == 0 {
					line[key.Value] = key.Line
					list = append(list, pair{key.Value, key, value})
				}
			}
		}
	}
	return list
}

// into reads n into v, which holds its default. What is wrong is noted, and v keeps the default.
func (d *decoder) into(n *yaml.Node, v reflect.Value, path string) {
	target := d.resolve(n)
	defer d.leave(n)
	n = target
	if !d.spend(n) || n.Tag == "!!null" {
		return // "owner:" with nothing after it says nothing
	}
	if p, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if text, ok := d.scalar(n, path, "a single value"); ok {
			d.unmarshal(n, p, text, path)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		before := len(d.wrong)
		if d.into(n, p.Elem(), path); len(d.wrong) == before {
			v.Set(p)
		}
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fail(n, path, n.Value, "a list, such as [a, b]")
			return
		}
		list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			if def, ok := itemDefaults[v.Type().Elem()]; ok {
				list.Index(i).Set(def)
			}
			d.into(item, list.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
		if len(n.Content) > 0 {
			v.Set(list)
		}
	case reflect.Map:
		d.textMap(n, v, path)
	case reflect.String:
		if text, ok := d.scalar(n, path, "a text"); ok {
			v.SetString(text)
		}
	case reflect.Int:
		if text, ok := d.scalar(n, path, "a whole number"); ok {
			// Written back it must look the same: 010 is eight to some readers of YAML and ten to others.
			if i, err := strconv.Atoi(text); err == nil && strconv.Itoa(i) == text {
				v.SetInt(int64(i))
			} else {
				d.fail(n, path, text, "a whole number")
			}
		}
	case reflect.Bool:
		if text, ok := d.scalar(n, path, "true or false"); ok {
			switch strings.ToLower(text) {
			case "true":
				v.SetBool(true)
			case "false":
				v.SetBool(false)
			default: // "yes" and "on" are texts in YAML 1.2 and booleans in 1.1
				d.fail(n, path, text, "true or false")
			}
		}
	default:
		panic("definition: " + path + " has a type that nobody reads: " + v.Type().String())
	}
}

// scalar gives the text of a single value as it was written. The date 2026-01-01 and the number 1.10 are texts
// where a text is wanted; YAML's own reading of them would change them.
func (d *decoder) scalar(n *yaml.Node, path, want string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!binary" {
		value := ""
		if n.Kind == yaml.MappingNode {
			value = "{…}"
		} else if n.Kind == yaml.SequenceNode {
			value = "[…]"
		}
		d.fail(n, path, value, want)
		return "", false
	}
	return n.Value, true
}

func (d *decoder) unmarshal(n *yaml.Node, p encoding.TextUnmarshaler, text, path string) {
	err := p.UnmarshalText([]byte(text))
	if err == nil {
		return
	}
	var fe *capri.FieldError
	if errors.As(err, &fe) {
		d.fail(n, path, fe.Value, fe.Want)
	} else {
		d.fail(n, path, text, err.Error())
	}
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, n.Value, "fields, such as {"+strings.Join(shapes[v.Type()].names, ": …, ")+": …}")
		return
	}
	shape := shapes[v.Type()]
	for _, p := range d.pairs(n, path) {
		i := slices.Index(shape.names, p.name)
		if i < 0 {
			want := "one of " + strings.Join(shape.names, ", ")
			near := nearest.Word(p.name, shape.names)
			if near != "" {
				want = "a field that exists; did you mean " + near + "?"
			}
			d.fail(p.key, join(path, p.name), "", want)
			// Whoever wrote comand meant to give a command: do not complain of its absence, too.
			d.broken[join(path, near)] = true
			continue
		}
		d.into(p.value, v.Field(shape.index[i]), join(path, p.name))
	}
}

func (d *decoder) textMap(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, n.Value, "names and values, such as {KEY: value}")
		return
	}
	m := map[string]string{}
	for _, p := range d.pairs(n, path) {
		value := d.resolve(p.value)
		if d.spend(value) {
			if value.Tag == "!!null" {
				m[p.name] = "" // "KEY:" sets it to nothing
			} else if text, ok := d.scalar(value, join(path, p.name), "a text"); ok {
				m[p.name] = text
			}
		}
		d.leave(p.value)
	}
	if len(m) > 0 {
		v.Set(reflect.ValueOf(m))
	}
}

// join makes a field's path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// line finds where a field of the item is written, as far down as it is written at all.
func (it *Item) line(field string) int {
	if it.node == nil {
		return 0
	}
	n := it.node
	line := n.Line
	for _, step := range strings.FieldsFunc(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		next := (*yaml.Node)(nil)
		switch n.Kind {
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
				next = n.Content[i]
				line = next.Line
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == step {
					next = n.Content[i+1]
					line = n.Content[i].Line
				}
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line
}

// shape lists the fields of a struct by their names in a task file.
type shape struct {
	names []string
	index []int
}

func (s shape) has(name string) bool { return slices.Contains(s.names, name) }

var (
	specType = reflect.TypeFor[capri.Spec]()
	shapes   = shapesOf(specType, map[reflect.Type]shape{})

	itemDefaults = map[reflect.Type]reflect.Value{
		reflect.TypeFor[capri.Input]():  reflect.ValueOf(defaultInput),
		reflect.TypeFor[capri.Output](): reflect.ValueOf(defaultOutput),
		reflect.TypeFor[capri.Parent](): reflect.ValueOf(defaultParent),
	}
)

// shapesOf reads the yaml tags, which are the one list of names.
func shapesOf(t reflect.Type, all map[reflect.Type]shape) map[reflect.Type]shape {
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer:
		return shapesOf(t.Elem(), all)
	case reflect.Struct:
		if t == reflect.TypeFor[capri.Offset]() { // read as a text
			return all
		}
		var s shape
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
			if name == "" || name == "-" {
				continue
			}
			s.names, s.index = append(s.names, name), append(s.index, i)
			shapesOf(t.Field(i).Type, all)
		}
		all[t] = s
	}
	return all
}

func valueOf(s *capri.Spec) reflect.Value { return reflect.ValueOf(s).Elem() }
