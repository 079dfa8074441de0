package words

import (
	"html"
	"strings"
	"unicode/utf8"

	"capri/alerting"
)

// A part is one text of a message: which template writes it, and what the channel makes of it.
type part struct {
	file       string
	html       bool
	mayBeEmpty bool
	shapes     []shape // from wide to narrow
	finish     func(l *language, raw string) string
	fits       func(text string) bool
	cut        func(l *language, raw string) string      // what remains where no shape fits
	note       func(l *language, failed []string) string // of templates that failed; nil: it is told elsewhere
	mustNote   bool                                      // the note is worth more than the detail
	join       func(raw, note string) string             // nil: one line more
}

// A shape is how much of the facts a template is given.
type shape struct {
	name   int  // characters of a task's name; a title has twice as many
	detail int  // bytes of the detail
	others int  // titles of other alerts
	link   bool // whether links are told
}

const (
	most        = 8 << 10  // bytes of a text
	mostHTML    = 90 << 10 // mail programs hide what is beyond 100 KB
	mostLine    = 998      // bytes of a line, by RFC 5322
	mostSubject = 180
	mostSpoken  = 400
	mostWebhook = 1000
	mostOthers  = 30
	mostPeople  = 10
)

// Of a mail everything but the detail stays.
var mailShapes = []shape{
	{name: 200, detail: 6 << 10, others: mostOthers, link: true},
	{name: 200, detail: 2 << 10, others: mostOthers, link: true},
	{name: 100, detail: 500, others: 10, link: true},
	{name: 60, others: 3, link: true},
}

// One line of at most so many characters.
var lineShapes = []shape{{name: 128}, {name: 96}, {name: 80}, {name: 64}, {name: 48}, {name: 32}, {name: 24}, {name: 16}}

var (
	subject = &part{
		file: "mail.subject.tmpl", shapes: lineShapes,
		finish: func(_ *language, raw string) string { return line(plain(raw)) },
		fits:   func(text string) bool { return utf8.RuneCountInString(text) <= mostSubject },
		cut:    func(_ *language, raw string) string { return shorten(line(plain(raw)), mostSubject) },
	}
	mailText = &part{
		file: "mail.text.tmpl", shapes: mailShapes,
		finish: func(_ *language, raw string) string { return paragraphs(raw) + "\n" },
		fits:   func(text string) bool { return len(text) <= most },
		cut:    func(l *language, raw string) string { return l.cutText(paragraphs(raw), most-1) + "\n" },
		note:   longNote, mustNote: true,
	}
	mailHTML = &part{
		file: "mail.html.tmpl", html: true, mayBeEmpty: true, shapes: mailShapes,
		finish: func(_ *language, raw string) string { return strings.TrimSpace(raw) },
		fits:   func(text string) bool { return len(text) <= mostHTML },
		cut:    func(*language, string) string { return "" }, // half a page is none; the text is there
		note:   longNote, mustNote: true, join: beforeTheEnd,
	}
	sms = &part{
		file: "sms.tmpl",
		// A name may become short before the link goes; without it there is room again.
		shapes: []shape{{name: 128, link: true}, {name: 64, link: true}, {name: 48, link: true}, {name: 32, link: true},
			{name: 128}, {name: 64}, {name: 48}, {name: 32}, {name: 24}, {name: 20}, {name: 16}, {name: 12}},
		finish: func(_ *language, raw string) string { return smsLine(raw) },
		fits:   oneSegment,
		cut:    func(_ *language, raw string) string { return cutSegment(raw) },
		note:   shortNote,
	}
	phone = &part{
		file: "phone.tmpl", shapes: lineShapes,
		finish: func(l *language, raw string) string { return l.twice(spoken(raw)) },
		fits:   func(text string) bool { return utf8.RuneCountInString(text) <= mostSpoken },
		cut: func(l *language, raw string) string {
			room := (mostSpoken - utf8.RuneCountInString(l.twice(""))) / 2
			return l.twice(end(spoken(raw), room))
		},
		note: shortNote,
	}
	webhookText = &part{
		file:   "webhook.tmpl",
		shapes: []shape{{name: 128, detail: 400, others: 3, link: true}, {name: 128, detail: 200, link: true}, {name: 128, link: true}, {name: 48, link: true}, {name: 48}},
		finish: func(_ *language, raw string) string { return paragraphs(raw) },
		fits:   func(text string) bool { return utf8.RuneCountInString(text) <= mostWebhook },
		cut:    func(_ *language, raw string) string { return end(paragraphs(withoutURLs(raw)), mostWebhook) },
		note:   longNote, mustNote: true,
	}
)

// parts is every template that there is, besides common.tmpl.
var parts = []*part{subject, mailText, mailHTML, sms, phone, webhookText}

// said is the parts of a channel; nil: it has none.
type said struct{ subject, text, html *part }

var (
	webhook  = said{subject: subject, text: webhookText}
	channels = map[string]said{
		alerting.Mail:  {subject: subject, text: mailText, html: mailHTML},
		alerting.SMS:   {text: sms},
		alerting.Phone: {text: phone},
	}
)

// with adds a note to what a template wrote.
func (p *part) with(raw, note string) string {
	switch {
	case note == "":
		return raw
	case p.join != nil:
		return p.join(raw, note)
	}
	return strings.TrimRight(raw, " \n") + "\n\n" + note
}

func shortNote(l *language, _ []string) string { return l.noteShort }

func longNote(l *language, failed []string) string {
	return l.note + " " + strings.Join(failed, "; ")
}

// beforeTheEnd puts a note into a page.
func beforeTheEnd(page, note string) string {
	if strings.TrimSpace(page) == "" {
		return "" // no page is wanted, and the text tells it
	}
	note = `<p style="margin:16px 0;">` + html.EscapeString(note) + "</p>\n"
	if i := strings.LastIndex(page, "</body>"); i >= 0 {
		return page[:i] + note + page[i:]
	}
	return page + "\n" + note
}

// twice says a text, and says it again.
func (l *language) twice(text string) string { return text + " " + l.repeat + " " + text }
