package capri

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// HTTP is how a job of type http calls the address that is its command, and what makes the call a success.
// Durations of 0 and an empty Method or Status stand for the defaults that package definition fills in.
type HTTP struct {
	Method   string            `yaml:"method,omitempty" json:"method,omitempty"`
	Headers  map[string]string `yaml:"headers,omitempty" json:"headers,omitempty"`
	Body     string            `yaml:"body,omitempty" json:"body,omitempty"`
	TimeoutS int               `yaml:"timeout_s,omitempty" json:"timeout_s,omitempty"` // of one request
	Status   string            `yaml:"status,omitempty" json:"status,omitempty"`       // such as 200-299 or 200,202
	Success  HTTPRule          `yaml:"success,omitempty" json:"success,omitzero"`      // of the last answer
	Poll     HTTPPoll          `yaml:"poll,omitempty" json:"poll,omitzero"`
}

// HTTPPoll asks again and again what became of the call. Without a URL the call's own answer is the end.
type HTTPPoll struct {
	URL          string   `yaml:"url,omitempty" json:"url,omitempty"`    // may hold HTTPID, and be relative to the call's
	ID           string   `yaml:"id,omitempty" json:"id,omitempty"`      // where the call's answer has what HTTPID stands for
	Until        HTTPRule `yaml:"until,omitempty" json:"until,omitzero"` // it asks no more
	EveryS       int      `yaml:"every_s,omitempty" json:"every_s,omitempty"`
	LimitMinutes int      `yaml:"limit_minutes,omitempty" json:"limit_minutes,omitempty"`
}

// HTTPID stands in a poll's URL for the value that the call's answer has at HTTPPoll.ID.
const HTTPID = "{id}"

// HTTPRule holds for a JSON answer whose value at Path is one of In: `{path: "data.jobs[0].state", in: [DONE]}`.
// That is the whole language: names joined by dots, [n] for an item of a list; a text, number, true, false or null is
// compared by how it is written. A rule without a path says nothing.
type HTTPRule struct {
	Path string   `yaml:"path,omitempty" json:"path,omitempty"`
	In   []string `yaml:"in,omitempty" json:"in,omitempty"`
}

var jsonPath = regexp.MustCompile(`^[^.\[\]]+(\.[^.\[\]]+|\[[0-9]{1,6}\])*$`)

// IsJSONPath tells whether p can be the path of a rule.
func IsJSONPath(p string) bool { return len(p) <= 500 && jsonPath.MatchString(p) }

// Holds tells whether the rule holds for an answer; found is the value that it has at the path.
func (r HTTPRule) Holds(answer []byte) (holds bool, found string) {
	found, ok := JSONAt(answer, r.Path)
	return ok && slices.Contains(r.In, found), found
}

// JSONAt gives the text, number, boolean or null at a path of a JSON document, as it is written there. Lists and objects
// have no such text.
func JSONAt(document []byte, path string) (value string, ok bool) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber() // 12345678901234567890 is an id, and no float
	var at any
	if d.Decode(&at) != nil {
		return "", false
	}
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		switch v := at.(type) {
		case map[string]any:
			if at, ok = v[step]; !ok {
				return "", false
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(v) || i < 0 {
				return "", false
			}
			at = v[i]
		default:
			return "", false
		}
	}
	switch v := at.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	case nil:
		return "null", true
	}
	return "", false
}

// StatusIn tells whether an HTTP status is one of those that list names, such as "200-299" or "200,202"; ok is false
// where list cannot be read.
func StatusIn(list string, status int) (in, ok bool) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}
		least, err1 := strconv.Atoi(from)
		most, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || least < 100 || most > 599 || least > most {
			return false, false
		}
		in = in || least <= status && status <= most
	}
	return in, true
}
