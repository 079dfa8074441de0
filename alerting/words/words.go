// Package words writes what people are told: the facts of an incident become a mail, an SMS, a phone call or a post to a
// webhook, in English or Chinese.
//
//	facts ──▶ clean ──▶ data ──────────────────▶ template ───────▶ the first shape that fits ──▶ message
//	          nothing   times, durations and     templates/, or    a mail 8 KB, an SMS one
//	          runs,     kinds in words           the operator's    segment, a call 400 characters …
//	          hides or  (language.go)            own
//	          floods                             (templates.go)    (parts.go)
//	          (clean.go)
//
// An alert is never lost for its words: whatever the facts hold there is a text, and where an operator's template fails
// the built-in one speaks, and says so.
package words

import (
	"strings"
	"sync"

	"capri"
	"capri/alerting"
)

// Options say how people are spoken to.
type Options struct {
	Language string // "en" or "zh"
	Dir      string // a folder with templates that take the place of built-in ones, as Export writes it; "": none
}

// Words writes messages. It is safe for concurrent use.
type Words struct {
	*language
	own     map[string]executor // by the part's file
	builtIn func() map[string]executor
}

// New reads the templates of o.Dir and refuses those that cannot be used: of both languages, so that a change of the
// language brings no surprise.
func New(o Options) (*Words, error) {
	l, known := languages[o.Language]
	if !known {
		return nil, capri.Invalid("language", o.Language, strings.Join(languageNames(), " or "))
	}
	own, err := readDir(o.Dir)
	if err != nil {
		return nil, err
	}
	// Most processes never tell anybody anything: the templates are read for the first message.
	return &Words{language: l, own: own[o.Language], builtIn: sync.OnceValue(func() map[string]executor { return builtIn(l.name) })}, nil
}

// Message writes what a channel carries: alerting.Mail, alerting.SMS, alerting.Phone; anything else is a webhook. Key, To
// and Name are the caller's.
func (w *Words) Message(channel string, f alerting.Facts) alerting.Message {
	clean := cleanFacts(f)
	m := alerting.Message{Incident: f.Incident, Level: f.Level, Stage: f.Stage, Link: clean.Link}
	var failed []string // templates of the operator
	parts, known := channels[channel]
	if !known {
		parts = webhook
	}
	// The text comes last: it tells what failed before.
	if parts.subject != nil {
		m.Subject = w.say(parts.subject, clean, &failed)
	}
	if parts.html != nil {
		m.HTML = w.say(parts.html, clean, &failed)
	}
	m.Text = w.say(parts.text, clean, &failed)
	return m
}

// say writes one part, by the operator's template if there is one and it works.
func (w *Words) say(p *part, f *alerting.Facts, failed *[]string) string {
	if t := w.own[p.file]; t != nil {
		text, err := w.fit(p, t, f, *failed)
		if err == nil {
			return text
		}
		*failed = append(*failed, w.name+"/"+p.file+": "+oneLine(err.Error(), 300))
	}
	text, err := w.fit(p, w.builtIn()[p.file], f, *failed)
	if err != nil { // a fault of ours; a plain title is still better than silence
		return p.cut(w.language, w.level(f.Level)+": "+f.Title)
	}
	return text
}

// fit executes a template in one shape after the other until the text fits; one that fits in no shape is cut.
func (w *Words) fit(p *part, t executor, f *alerting.Facts, failed []string) (string, error) {
	notes := []string{""}
	if len(failed) > 0 && p.note != nil {
		if notes = []string{p.note(w.language, failed), ""}; p.mustNote {
			notes = notes[:1]
		}
	}
	narrowest := ""
	for _, s := range p.shapes {
		raw, err := execute(t, w.data(f, s))
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(raw) == "" && !p.mayBeEmpty {
			return "", errEmpty
		}
		for _, note := range notes {
			if text := p.finish(w.language, p.with(raw, note)); p.fits(text) {
				return text, nil
			}
		}
		narrowest = p.with(raw, notes[0])
	}
	return p.cut(w.language, narrowest), nil
}
