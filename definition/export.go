package definition

import (
	"bytes"
	"encoding"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"capri"
)

// Export writes definitions as a task file that applies back to no change: sorted by name, fields in the order
// of the documentation, defaults left out. The same definitions always give the same bytes, so that a file kept
// under version control changes only where a definition did.
func Export(specs []capri.Spec) ([]byte, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	sorted := slices.Clone(specs)
	slices.SortStableFunc(sorted, byName)
	def := Default()
	for i := range sorted {
		task := encodeStruct(valueOf(&sorted[i]), valueOf(&def))
		for k := 0; k < len(task.Content); k += 2 {
			arrange(task.Content[k].Value, task.Content[k+1])
		}
		list.Content = append(list.Content, task)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	doc := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("tasks"), list}}
	if err := enc.Encode(doc); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	// An empty line between tasks. Only a task can begin in this column: whatever is inside one stands further right.
	spaced := bytes.ReplaceAll(out.Bytes(), []byte("\n  - name: "), []byte("\n\n  - name: "))
	return bytes.Replace(spaced, []byte("tasks:\n\n"), []byte("tasks:\n"), 1), nil
}

// arrange chooses how a field is laid out: short things on one line, a job and lists of items on lines of their own.
func arrange(name string, n *yaml.Node) {
	switch {
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			item.Style = yaml.FlowStyle
		}
	case name == "job":
		for i := 1; i < len(n.Content); i += 2 {
			if n.Content[i].Kind == yaml.SequenceNode {
				n.Content[i].Style = yaml.FlowStyle
			}
		}
	case n.Kind == yaml.MappingNode:
		n.Style = yaml.FlowStyle
	}
}

// encodeStruct writes the fields of v that differ from def. The name of a thing (its first field) is always there.
func encodeStruct(v, def reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	shape := shapes[v.Type()]
	for i, name := range shape.names {
		fv, fd := v.Field(shape.index[i]), def.Field(shape.index[i])
		if same(fv, fd) && !(i == 0 && fv.Kind() == reflect.String && fd.String() == "") {
			continue
		}
		n.Content = append(n.Content, text(name), encode(fv, fd))
	}
	return n
}

func encode(v, def reflect.Value) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		return encode(v.Elem(), reflect.Zero(v.Type().Elem()))
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		b, err := m.MarshalText()
		if err != nil {
			panic("definition: a period or window that cannot be written: " + err.Error()) // they have no errors
		}
		n := text(string(b))
		if _, isOffset := v.Interface().(capri.Offset); isOffset {
			n.Tag = "" // 0 and -1 look better without quotes, and are read as texts anyway
		}
		return n
	}
	switch v.Kind() {
	case reflect.Struct:
		return encodeStruct(v, def)
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, encode(v.Index(i), itemDefaultOf(v.Type().Elem())))
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		m := v.Interface().(map[string]string)
		for _, k := range slices.Sorted(maps.Keys(m)) {
			n.Content = append(n.Content, text(k), text(m[k]))
		}
		return n
	case reflect.String:
		return text(v.String())
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: plain(v)}
	}
}

// text is a string node; the encoder quotes it where it would be read as something else.
func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	switch {
	case scriptLike(s):
		n.Style = yaml.LiteralStyle
	case strings.ContainsFunc(s, unusual) || strings.ContainsRune(s, '\n') || s == "<<":
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// scriptLike tells whether s reads best, and safely, as a literal block: lines of ordinary characters, ending
// with one newline or none.
func scriptLike(s string) bool {
	body := strings.TrimSuffix(s, "\n")
	if !strings.Contains(body, "\n") || strings.HasSuffix(body, "\n") || strings.ContainsFunc(s, unusual) {
		return false
	}
	// A block's indentation is read off its first line.
	return !strings.HasPrefix(s, " ") && !strings.HasPrefix(s, "\n") && !strings.HasPrefix(s, "\t")
}

// unusual are the characters that plain and block texts cannot hold, or that nobody sees.
func unusual(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) || r == '\uFEFF' }

func itemDefaultOf(t reflect.Type) reflect.Value {
	if d, ok := itemDefaults[t]; ok {
		return d
	}
	return reflect.Zero(t)
}
