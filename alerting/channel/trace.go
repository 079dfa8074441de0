package channel

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"capri/alerting"
)

// trace is what a sending leaves beside its error: what was said on the wire, and by which id the other side knows the
// message. It travels in the context, so that the interface of senders stays one method.
type trace struct {
	lines   []string
	receipt string
}

type traceKey struct{}

// traceOf gives the trace that somebody asked for, or one that nobody reads.
func traceOf(ctx context.Context) *trace {
	if t, ok := ctx.Value(traceKey{}).(*trace); ok {
		return t
	}
	return &trace{}
}

// Send sends, and gives the id by which the other side knows the message; "" where it names none.
func Send(ctx context.Context, s alerting.Sender, m alerting.Message) (receipt string, err error) {
	t := &trace{}
	err = s.Send(context.WithValue(ctx, traceKey{}, t), m)
	return t.receipt, err
}

// Talk sends, and gives what was said on the wire, line by line: "> " is what we said, "< " what was answered, "* " a
// remark. Secrets in it are covered.
func Talk(ctx context.Context, s alerting.Sender, m alerting.Message) (conversation string, err error) {
	t := &trace{}
	err = s.Send(context.WithValue(ctx, traceKey{}, t), m)
	if t.receipt != "" {
		t.add("*", "taken as "+t.receipt)
	}
	return strings.Join(t.lines, "\n") + "\n", err
}

// add notes each line of text. Control characters are replaced: it is for terminals.
func (t *trace) add(mark, text string) {
	for _, line := range strings.Split(text, "\n") {
		t.lines = append(t.lines, strings.TrimRight(mark+" "+printable(strings.TrimRight(line, "\r")), " "))
	}
}

// printable replaces what would act on a terminal or break a line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// firstWords of an answer, on one line, for an error.
func firstWords(answer string) string {
	words := printable(strings.Join(strings.Fields(answer), " "))
	if r := []rune(words); len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return words
}

// covered is what stands in the place of a secret.
const covered = "****"

// newCover makes what replaces secrets, in whichever way they are escaped.
func newCover(secrets ...string) *strings.Replacer {
	var forms []string
	for _, s := range secrets {
		if s == "" {
			continue
		}
		quoted, _ := json.Marshal(s) //nolint:errchkjson // a string can always be written
		forms = append(forms, s, url.QueryEscape(s), url.PathEscape(s), strings.Trim(string(quoted), `"`), escapeXML(s))
	}
	// The longest first: a secret may hold another.
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var pairs []string
	for _, f := range slices.Compact(forms) {
		pairs = append(pairs, f, covered)
	}
	return strings.NewReplacer(pairs...)
}
