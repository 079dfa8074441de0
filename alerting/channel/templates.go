package channel

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode/utf8"

	"capri"
	"capri/alerting"
)

// A place is where a template's text goes: which functions make a value harmless there, and whether the whole is well
// formed. A template that puts a value anywhere without one of them is refused when it is read, so nobody can forget
// it; and what was read is tried with values that would break out if they could.
type place struct {
	name   string
	escape []string
	check  func(text string) error
}

var (
	inAddress = place{"an address", []string{"query"}, func(text string) error {
		_, err := url.Parse(text)
		return err
	}}
	inHeader = place{"a header", []string{"query", "secret"}, func(text string) error {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return errors.New("it holds a control character")
		}
		return nil
	}}
	inJSON = place{"a JSON body", []string{"json"}, func(text string) error {
		if !json.Valid([]byte(text)) {
			return errors.New("it is no JSON; {{json …}} writes the quotes around a text itself")
		}
		return nil
	}}
	inForm = place{"a form", []string{"query"}, func(text string) error {
		_, err := url.ParseQuery(text)
		return err
	}}
	inXML = place{"an XML body", []string{"xml"}, func(text string) error {
		d := xml.NewDecoder(strings.NewReader(text))
		for {
			if _, err := d.Token(); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
		}
	}}
)

// placeOf a body is told by its content type.
func placeOf(contentType string) (place, bool) {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		return inJSON, true
	case kind == "application/x-www-form-urlencoded":
		return inForm, true
	case kind == "application/xml" || kind == "text/xml" || strings.HasSuffix(kind, "+xml"):
		return inXML, true
	}
	return place{}, false
}

// functions are what templates may call besides those of text/template.
func functions(secrets map[string]string) template.FuncMap {
	return template.FuncMap{
		"json": func(v any) (string, error) {
			text, err := json.Marshal(v)
			return string(text), err
		},
		"query": func(v any) string { return url.QueryEscape(strings.ToValidUTF8(fmt.Sprint(v), "\uFFFD")) },
		"xml":   func(v any) string { return escapeXML(fmt.Sprint(v)) },
		"cut":   cut,
		"slack": strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace,
		"secret": func(name string) (string, error) {
			s, ok := secrets[name]
			if !ok {
				return "", fmt.Errorf("the secret %q is not among the gateway's secrets", name)
			}
			return s, nil
		},
	}
}

func escapeXML(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}

// cut shortens text to so many bytes, at a character: some services refuse what is longer.
func cut(most int, text string) string {
	if len(text) <= most {
		return text
	}
	most = max(most-len("…"), 0)
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// compile reads a template of p. wrong is what is wrong with it, or nothing; it never shows the text, which may hold a key.
func compile(text string, p place, secrets map[string]string) (t *template.Template, wrong string) {
	t, err := template.New("it").Funcs(functions(secrets)).Parse(text)
	if err != nil {
		return nil, "a template: " + err.Error()
	}
	if bad := unescaped(t.Root, p.escape); bad != nil {
		f := p.escape[0]
		return nil, fmt.Sprintf("each value in %s to be written by %s, as in {{%s .Text}}, {{%s (printf \"%%s %%s\" .Subject .Text)}}; not %s", p.name, f, f, f, bad)
	}
	for _, m := range samples {
		got, err := render(t, m)
		if err == nil {
			err = p.check(got)
		}
		if err != nil {
			var u *url.Error
			if errors.As(err, &u) {
				err = u.Err
			}
			return nil, fmt.Sprintf("a template that gives %s for every message; for one with odd characters, or for an empty one: %v", p.name, err)
		}
	}
	return t, ""
}

// unescaped finds the first node that writes a value that has not passed one of the functions.
func unescaped(list *parse.ListNode, functions []string) parse.Node {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		var branch *parse.BranchNode
		switch n := n.(type) {
		case *parse.TextNode, *parse.CommentNode, *parse.BreakNode, *parse.ContinueNode:
			continue
		case *parse.ActionNode:
			if len(n.Pipe.Decl) == 0 && !endsIn(n.Pipe, functions) { // a declaration writes nothing
				return n
			}
			continue
		case *parse.IfNode:
			branch = &n.BranchNode
		case *parse.RangeNode:
			branch = &n.BranchNode
		case *parse.WithNode:
			branch = &n.BranchNode
		default: // another template, whose values nobody has looked at
			return n
		}
		for _, l := range []*parse.ListNode{branch.List, branch.ElseList} {
			if bad := unescaped(l, functions); bad != nil {
				return bad
			}
		}
	}
	return nil
}

func endsIn(pipe *parse.PipeNode, functions []string) bool {
	last := pipe.Cmds[len(pipe.Cmds)-1]
	f, ok := last.Args[0].(*parse.IdentifierNode)
	return ok && slices.Contains(functions, f.Ident)
}

func render(t *template.Template, m alerting.Message) (string, error) {
	var b strings.Builder
	err := t.Execute(&b, m)
	return b.String(), err
}

// samples are the messages with which each template is tried: nothing at all, and what breaks out where it can.
var samples = func() []alerting.Message {
	const odd = "a\"'`\\ \r\n\t\x00\x1b\x7f&<>;=+%%41?#/..{{}}[]]>--><!--\u2028\u202e数据\xff\\"
	return []alerting.Message{{}, {Key: odd, Incident: 1, To: odd, Name: odd, Level: capri.Severe, Stage: odd, Subject: odd, Text: odd, HTML: odd, Link: odd}}
}()
