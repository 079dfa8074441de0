package conf

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is one key as `capri config check` shows it.
type Value struct {
	Key    string `json:"key"`
	Value  string `json:"value"`  // secrets are masked
	Source string `json:"source"` // file:line, "environment CAPRI_LISTEN", "command line"; "built-in"
}

// Values lists the effective configuration in the order of capri.yaml, secrets masked.
func (c *Config) Values() []Value {
	var list []Value
	for _, f := range fieldsOf(c) {
		source := c.origin[f.key]
		if source == "" {
			source = "built-in"
		}
		list = append(list, Value{Key: f.key, Value: f.shown(f.text()), Source: source})
	}
	return list
}

// Print writes the effective configuration as a file that Load reads (but for the masked secrets), each line
// with the place that its value came from.
func (c *Config) Print(w io.Writer) error {
	var b strings.Builder
	section := ""
	for _, v := range c.Values() {
		indent, key := "", v.Key
		if place, leaf, nested := strings.Cut(v.Key, "."); nested {
			if place != section {
				b.WriteString(place + ":\n")
			}
			section, indent, key = place, "  ", leaf
		}
		line := fmt.Sprintf("%s%s: %s", indent, key, scalar(v.Value))
		fmt.Fprintf(&b, "%-50s # %s\n", line, v.Source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// scalar quotes where YAML needs it.
func scalar(s string) string {
	if s == "" {
		return `""`
	}
	out, err := yaml.Marshal(s)
	if text := strings.TrimSuffix(string(out), "\n"); err == nil && !strings.Contains(text, "\n") {
		if unquoted := strings.Trim(text, `"`); unquoted == s && strings.IndexFunc(s, notDigit) < 0 {
			return s // a number: quotes that Marshal puts around it would only puzzle
		}
		return text
	}
	return fmt.Sprintf("%q", s)
}

func notDigit(r rune) bool { return r < '0' || r > '9' }
