package channel

import (
	"encoding/json"
	"encoding/xml"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capri/alerting"
)

// FuzzBodies puts two values into each kind of place, reads the whole as its receiver would, and wants the two values
// back, and nothing beside them.
func FuzzBodies(f *testing.F) {
	for _, s := range []string{"", "plain", `a"b'c\`, "a\r\nb\tc", "&<>;=+%41?#/", "]]>--><!--", "\x00\x1b\x7f", "数据 ", "\xff\xfe", "{{.To}}${x}", `\u0022`, "\u202e\ufeff\ufffe"} {
		f.Add(s, "text")
		f.Add("+86", s)
	}
	compiled := func(text string, p place) func(t *testing.T, m alerting.Message) string {
		compiled, wrong := compile(text, p, nil)
		require.Empty(f, wrong)
		return func(t *testing.T, m alerting.Message) string {
			t.Helper()
			got, err := render(compiled, m)
			require.NoError(t, err)
			return got
		}
	}
	inJSONBody := compiled(`{"to": {{json .To}}, "text": {{json .Text}}}`, inJSON)
	inFormBody := compiled(`to={{query .To}}&text={{.Text | query}}`, inForm)
	inXMLBody := compiled(`<sms to="{{xml .To}}" also='{{xml .To}}'>{{xml .Text}}</sms>`, inXML)
	inURL := compiled(`https://h/send?to={{query .To}}&text={{query .Text}}#end`, inAddress)
	inName := compiled(`to {{query .To}}`, inHeader)
	f.Fuzz(func(t *testing.T, to, text string) {
		m := alerting.Message{To: to, Text: text}
		var doc map[string]string
		require.NoError(t, json.Unmarshal([]byte(inJSONBody(t, m)), &doc))
		require.Equal(t, map[string]string{"to": string([]rune(to)), "text": string([]rune(text))}, doc)

		valid := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
		want := url.Values{"to": {valid(to)}, "text": {valid(text)}}
		form, err := url.ParseQuery(inFormBody(t, m))
		require.NoError(t, err)
		require.Equal(t, want, form)
		u, err := url.Parse(inURL(t, m))
		require.NoError(t, err)
		require.Equal(t, want, u.Query())
		require.Equal(t, []string{"https", "h", "/send", "end"}, []string{u.Scheme, u.Host, u.Path, u.Fragment})

		var element struct {
			XMLName xml.Name
			Attrs   []xml.Attr `xml:",any,attr"`
			Text    string     `xml:",chardata"`
			Inner   []struct{} `xml:",any"`
			Remark  string     `xml:",comment"`
		}
		require.NoError(t, xml.Unmarshal([]byte(inXMLBody(t, m)), &element))
		require.Equal(t, "sms", element.XMLName.Local)
		require.Equal(t, []xml.Attr{{Name: xml.Name{Local: "to"}, Value: inXMLRange(to)}, {Name: xml.Name{Local: "also"}, Value: inXMLRange(to)}}, element.Attrs)
		require.Equal(t, inXMLRange(text), element.Text)
		require.Empty(t, element.Inner)
		require.Empty(t, element.Remark)

		require.NoError(t, inHeader.check(inName(t, m)))
		require.Equal(t, inName(t, m), headerLine(inName(t, m) + "x")[:len(inName(t, m))])
	})
}

// inXMLRange is s with what no XML document may hold replaced.
func inXMLRange(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000 {
			b.WriteRune(r)
		} else {
			b.WriteRune('\uFFFD')
		}
	}
	return b.String()
}

// FuzzTemplates: whatever somebody writes as a template is taken or refused, and a body that is taken is JSON.
func FuzzTemplates(f *testing.F) {
	for _, s := range []string{"", `{"to": {{json .To}}}`, `{{define "it"}}{{.To}}{{end}}`, `{{block "x" .}}1{{end}}`, `{{with $x := .To}}{{json $x}}{{else}}0{{end}}`,
		`{{/* c */}}[{{range $i, $c := .Text}}{{if $i}},{{end}}{{json $c}}{{end}}]`, `{{break}}`, `"{{"a"}}"`} {
		f.Add(s, "a\"\n")
	}
	f.Fuzz(func(t *testing.T, template, text string) {
		if strings.Contains(template, "printf") || strings.Contains(template, "range") && strings.ContainsAny(template, "0123456789") {
			return // it may count for very long, which who writes the configuration may
		}
		compiled, wrong := compile(template, inJSON, nil)
		if wrong != "" {
			return
		}
		if body, err := render(compiled, alerting.Message{Text: text}); err == nil {
			require.True(t, json.Valid([]byte(body)), "%q gives %q", template, body)
		}
	})
}
