package words

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/alerting"
	"capri/internal/testenv"
)

// folder holds templates: name, text, name, text …
func folder(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		file := filepath.Join(dir, files[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(files[i+1]), 0o644))
	}
	return dir
}

func TestA_template_in_the_folder_replaces_the_built_in_one(t *testing.T) {
	dir := folder(t, "zh/mail.subject.tmpl", "出事了：{{.Task}}，{{plural .Waiting \"批\" \"批\"}}", "en/sms.tmpl", "Only in English", "zh/notes.txt", "{{ of no account", "zh/sms.tmpl~", "{{ an editor's copy")
	f := night(t, alerting.New)
	zh := words(t, "zh", dir)
	require.Equal(t, "出事了：dwd_orders，37 批", zh.Message(alerting.Mail, f).Subject)
	require.Equal(t, words(t, "zh", "").Message(alerting.Mail, f).Text, zh.Message(alerting.Mail, f).Text)
	require.Equal(t, words(t, "zh", "").Message(alerting.SMS, f), zh.Message(alerting.SMS, f))
	require.Equal(t, "Only in English", words(t, "en", dir).Message(alerting.SMS, f).Text)
}

func TestCommon_pieces_in_the_folder_are_used_by_all_templates(t *testing.T) {
	text := strings.Replace(builtInText("en", common), "{{define \"stage\" -}}\n", `{{define "stage"}}(dw) `, 1)
	w := words(t, "en", folder(t, "en/common.tmpl", text))
	m := w.Message(alerting.Mail, night(t, alerting.New))
	require.Contains(t, m.Subject, "(dw) Severe: ")
	require.Contains(t, m.Text, "(dw) Severe: ")
	require.Contains(t, m.HTML, "(dw) Severe</span>")
}

func TestA_template_of_the_folder_is_held_to_the_rules_of_its_channel(t *testing.T) {
	dir := folder(t, "en/sms.tmpl", "{{.Title}} {{.Text}} {{.Link}}\n\n{{.Others}}", "en/phone.tmpl", "{{.Level}} {{.Link}} {{.Text}} {{.Text}} {{.Text}}{{.Text}}{{.Text}}{{.Text}}", "en/mail.subject.tmpl", "{{.Text}}{{.Title}}",
		"en/webhook.tmpl", "{{.What}} {{.Text}} {{.Text}} {{.Text}}", "en/mail.text.tmpl", "{{.What}} {{.Acknowledge}} {{.Text}}\u202e\x1b[31m{{.Text}}", "en/mail.html.tmpl", "<p title=\"x\">{{.Text}}</p>")
	w := words(t, "en", dir)
	for _, piece := range fragments {
		for _, n := range []int{1, 3000} {
			f := night(t, alerting.New)
			f.Text = "it said " + strings.Repeat(piece+" ", n)
			for _, channel := range everyChannel {
				hold(t, w, channel, f, w.Message(channel, f))
			}
		}
		if t.Failed() {
			return
		}
	}
}

func TestA_template_that_fits_in_no_shape_is_cut_without_half_a_URL(t *testing.T) {
	long := strings.Repeat("words and ", 12) + "https://capri.example.com/incidents/{{.Incident}} " + strings.Repeat(strings.Repeat("批次", 50)+"\n", 20)
	w := words(t, "en", folder(t, "en/sms.tmpl", long, "en/webhook.tmpl", long, "en/phone.tmpl", "{{.Level}} "+long, "en/mail.subject.tmpl", long, "en/mail.text.tmpl", "{{.Acknowledge}} "+strings.Repeat(long+"\n", 3)))
	for _, channel := range everyChannel {
		f := night(t, alerting.New)
		m := w.Message(channel, f)
		hold(t, w, channel, f, m)
		require.NotContains(t, strings.NewReplacer(f.Acknowledge, "", f.Link, "").Replace(m.Text+m.Subject), "http", "whole ones are well")
		require.Contains(t, m.Text, "words and words and")
	}
}

func TestA_broken_template_is_refused_with_file_line_and_cure(t *testing.T) {
	for _, c := range []struct{ sentence, file, text, where, what string }{
		{"syntax", "zh/mail.subject.tmpl", "one\n{{if .Task}}\nthree", "zh/mail.subject.tmpl:3", "unexpected EOF"},
		{"a function that there is not", "en/sms.tmpl", "{{upper .Task}}", "en/sms.tmpl:1", `function \"upper\" not defined`},
		{"a field that there is not", "en/phone.tmpl", "one\n\n{{.Tsk}}", "en/phone.tmpl:3", "can't evaluate field Tsk"},
		{"a field that there is not, at one stage alone", "en/phone.tmpl", "one\n{{if eq .Stage \"digest\"}}{{.Tsk}}{{end}}", "en/phone.tmpl:2", "can't evaluate field Tsk"},
		{"a piece that there is not", "en/webhook.tmpl", "{{template \"head\" .}}", "en/webhook.tmpl:1", `\"head\"`},
		{"HTML that cannot be escaped", "en/mail.html.tmpl", "<p>\n<a href=\"{{if .Task}}x\"{{end}}>", "en/mail.html.tmpl:2", "end in different contexts"},
		{"silence", "zh/sms.tmpl", "{{if eq .Stage \"new\"}}{{.What}}{{end}}", "zh/sms.tmpl", "it writes nothing at stage again"},
		{"syntax of the common pieces", "en/common.tmpl", "{{define \"stage\"}}", "en/common.tmpl:1", "unexpected EOF"},
		{"a field in the common pieces", "en/common.tmpl", strings.Replace(builtInText("en", common), ".Task", ".Tsk", 1), "en/common.tmpl:14", "can't evaluate field Tsk"},
		{"a name that means nothing", "zh/mail.subjct.tmpl", "x", "zh", "did you mean mail.subject.tmpl?"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			dir := folder(t, c.file, c.text)
			_, err := New(Options{Language: "en", Dir: dir}) // whichever language is used
			require.ErrorIs(t, err, capri.ErrInvalid)
			require.ErrorContains(t, err, filepath.Join(dir, c.where))
			require.ErrorContains(t, err, c.what)
			if c.sentence != "a name that means nothing" {
				require.ErrorContains(t, err, ".UrgentBy")
				require.ErrorContains(t, err, "take the file away")
			}
		})
	}
}

func TestAll_that_is_wrong_is_told_at_once_and_common_pieces_once(t *testing.T) {
	_, err := New(Options{Language: "zh", Dir: folder(t, "en/common.tmpl", "{{define \"stage\"}}", "zh/sms.tmpl", "{{", "zh/phone.tmpl", "{{.No}}")})
	var all capri.FieldErrors
	require.ErrorAs(t, err, &all)
	require.Len(t, all, 3)
}

func TestLanguages_and_folders_that_do_not_exist_are_refused(t *testing.T) {
	_, err := New(Options{Language: "fr"})
	require.EqualError(t, err, `language: "fr": want en or zh`)
	_, err = New(Options{Language: "en", Dir: filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, capri.ErrInvalid)
}

func TestA_template_that_fails_later_is_replaced_and_the_text_says_so(t *testing.T) {
	const fails = `{{if eq .Task "dwd_orders"}}{{if eq .BatchNo "20261118"}}{{index .Others 99}}{{end}}{{end}}well {{.Task}}`
	const silent = `{{if ne .BatchNo "20261118"}}well{{end}}`
	for _, name := range languageNames() {
		for _, text := range []string{fails, silent} {
			dir := folder(t, name+"/mail.subject.tmpl", text, name+"/mail.html.tmpl", fails, name+"/sms.tmpl", text, name+"/phone.tmpl", text, name+"/webhook.tmpl", text)
			w, plain := words(t, name, dir), words(t, name, "")
			f := night(t, alerting.New)
			require.Contains(t, w.Message(alerting.Mail, f).Subject, "well")
			require.NotContains(t, w.Message(alerting.Mail, f).Text, w.note)
			f.BatchNo = "20261118"
			for _, channel := range everyChannel {
				m, builtIn := w.Message(channel, f), plain.Message(channel, f)
				if channel != alerting.Mail { // its page has one paragraph more
					hold(t, w, channel, f, m)
				}
				require.Equal(t, builtIn.Subject, m.Subject)
				note := w.note
				if channel == alerting.SMS || channel == alerting.Phone {
					note = map[string]string{"en": "own template failed", "zh": "模板出错"}[name]
				}
				require.Contains(t, m.Text, note, channel)
				require.NotContains(t, m.Text, "well")
			}
			m := w.Message(alerting.Mail, f)
			require.Contains(t, m.Text, name+"/mail.subject.tmpl: ")
			require.Contains(t, m.Text, name+"/mail.html.tmpl: ")
			require.Contains(t, m.Text, f.Acknowledge)
			require.Contains(t, m.HTML, w.note)
			require.True(t, strings.HasSuffix(m.HTML, "</html>"))
		}
	}
}

func TestThe_note_on_a_template_that_failed_is_worth_more_than_detail(t *testing.T) {
	w := words(t, "en", folder(t, "en/mail.subject.tmpl", `{{if eq .BatchNo "20261118"}}{{index .Others 99}}{{end}}well`))
	for n := 60; n <= 160; n += 5 { // somewhere there is room for all but the note
		f := night(t, alerting.New)
		f.BatchNo, f.Why, f.Text, f.Others = "20261118", strings.Repeat("why ", 75), strings.Repeat("detail\n", 2000), slices.Repeat([]string{strings.Repeat("o", n)}, 10)
		m := w.Message(alerting.Mail, f)
		hold(t, words(t, "en", ""), alerting.Mail, f, alerting.Message{Text: m.Text, HTML: words(t, "en", "").Message(alerting.Mail, f).HTML})
		require.Contains(t, m.Text, w.note)
	}
}

func TestA_page_may_be_empty_for_mails_of_text_alone(t *testing.T) {
	m := words(t, "en", folder(t, "en/mail.html.tmpl", "")).Message(alerting.Mail, night(t, alerting.New))
	require.Empty(t, m.HTML)
	require.NotEmpty(t, m.Text)
}

func TestExported_templates_are_the_built_in_ones(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Export(dir))
	for _, name := range languageNames() {
		for _, p := range append([]*part{{file: common}}, parts...) {
			text, err := os.ReadFile(filepath.Join(dir, name, p.file))
			require.NoError(t, err)
			require.Equal(t, builtInText(name, p.file), string(text))
		}
		own, builtIn := words(t, name, dir), words(t, name, "")
		for _, stage := range stages {
			for _, channel := range everyChannel {
				require.Equal(t, builtIn.Message(channel, night(t, stage)), own.Message(channel, night(t, stage)))
			}
		}
	}
	require.ErrorIs(t, Export(dir), capri.ErrConflict, "nothing that people changed is overwritten")
}

func TestThe_documentation_names_each_template_and_each_field(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "alerting.md"))
	require.NoError(t, err)
	for _, p := range parts {
		require.Contains(t, string(page), "`"+p.file+"`")
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Data]()) {
		require.Contains(t, string(page), "`."+f.Name+"`")
	}
}
