package definition

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"capri"
)

// Change is one field that differs. An empty Old or New means that it is not there on that side, or empty.
type Change struct {
	Field string `json:"field"` // as in the task file: "job.command", "job.env.K", "parents[ods_orders]"
	Old   string `json:"old"`
	New   string `json:"new"`
}

func (c Change) String() string {
	switch {
	case c.Old == "":
		return c.Field + ": + " + c.New
	case c.New == "":
		return c.Field + ": - " + c.Old
	}
	return c.Field + ": " + c.Old + " → " + c.New
}

// Equal tells whether two definitions say the same. Absent and empty lists are the same, and so are a parent
// whose id the store has filled in and the same parent as written.
func Equal(a, b *capri.Spec) bool { return same(valueOf(a), valueOf(b)) }

// Diff lists field by field what differs, in the order of a task file; nil when the two are equal. old may be
// nil, for a new task: all that is not a default is then listed.
func Diff(old, new *capri.Spec) []Change {
	if old == nil {
		d := Default()
		old = &d
	}
	var changes []Change
	diff(&changes, "", valueOf(old), valueOf(new))
	return changes
}

func diff(changes *[]Change, path string, old, new reflect.Value) {
	if same(old, new) {
		return
	}
	add := func(field, o, n string) { *changes = append(*changes, Change{field, o, n}) }
	switch old.Kind() {
	case reflect.Struct:
		shape := shapes[old.Type()]
		for i, name := range shape.names {
			diff(changes, join(path, name), old.Field(shape.index[i]), new.Field(shape.index[i]))
		}
	case reflect.Map:
		o, n := old.Interface().(map[string]string), new.Interface().(map[string]string)
		keys := maps.Clone(o)
		if keys == nil {
			keys = map[string]string{}
		}
		maps.Copy(keys, n)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			ov, inOld := o[k]
			nv, inNew := n[k]
			if inOld != inNew || ov != nv {
				add(join(path, k), quoteEmpty(ov, inOld), quoteEmpty(nv, inNew))
			}
		}
	case reflect.Slice:
		if old.Type().Elem().Kind() == reflect.Struct {
			diffList(changes, path, old, new)
			return
		}
		add(path, listText(old), listText(new))
	default:
		add(path, plain(old), plain(new))
	}
}

// diffList compares items by what they are about (a parent's task, a path, a code), so that one inserted at the
// front does not make every later one look changed.
func diffList(changes *[]Change, path string, old, new reflect.Value) {
	oldKeys, o := keyed(old)
	newKeys, n := keyed(new)
	before := len(*changes)
	for _, k := range slices.Concat(oldKeys, newKeys) {
		ov, inOld := o[k]
		nv, inNew := n[k]
		if inOld && inNew && same(ov, nv) || !inOld && !inNew {
			continue
		}
		c := Change{Field: path + "[" + k + "]"}
		if inOld {
			c.Old = flow(ov)
		}
		if inNew {
			c.New = flow(nv)
		}
		*changes = append(*changes, c)
		delete(o, k) // listed: do not list it again as one of the new
		delete(n, k)
	}
	if len(*changes) == before { // the same items in another order
		*changes = append(*changes, Change{path, "[" + strings.Join(oldKeys, ", ") + "]", "[" + strings.Join(newKeys, ", ") + "]"})
	}
}

// keyed gives each item of a list its first field as a key; the second with equal keys is "key #2".
func keyed(list reflect.Value) (keys []string, items map[string]reflect.Value) {
	items = map[string]reflect.Value{}
	for i := range list.Len() {
		base := list.Index(i).Field(0).String()
		key := base
		for n := 2; items[key].IsValid(); n++ {
			key = base + " #" + strconv.Itoa(n)
		}
		keys, items[key] = append(keys, key), list.Index(i)
	}
	return keys, items
}

// same is equality of what is written: see Equal.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Struct:
		shape, ok := shapes[a.Type()]
		if !ok { // capri.Offset
			return a.Interface() == b.Interface()
		}
		for _, i := range shape.index {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		return maps.Equal(a.Interface().(map[string]string), b.Interface().(map[string]string))
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return same(a.Elem(), b.Elem())
	}
	return a.Equal(b)
}

// plain is a single value as people read it.
func plain(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return v.String() // capri.Check and capri.Policy, too
	}
	if p, ok := v.Interface().(capri.Period); ok {
		text, _ := p.MarshalText() // the zero period is empty
		return string(text)
	}
	return fmt.Sprint(v.Interface())
}

func listText(v reflect.Value) string {
	if v.Len() == 0 {
		return ""
	}
	return "[" + strings.Join(v.Interface().([]string), ", ") + "]"
}

func quoteEmpty(s string, there bool) string {
	if there && s == "" {
		return `""` // set to nothing, which is not the same as not set
	}
	return s
}

// flow writes an item of a list on one line, without its defaults.
func flow(v reflect.Value) string {
	n := encodeStruct(v, itemDefaultOf(v.Type()))
	n.Style = yaml.FlowStyle
	out, err := yaml.Marshal(n)
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	return strings.TrimSuffix(string(out), "\n")
}

func byName(a, b capri.Spec) int { return cmp.Compare(a.Name, b.Name) }
