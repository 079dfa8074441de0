package words

import (
	"embed"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"capri"
	"capri/alerting"
	"capri/definition/nearest"
)

//go:embed templates
var embedded embed.FS

// common holds pieces that the other templates of its language use.
const common = "common.tmpl"

// executor is a template of either kind: an HTML one escapes what it is given.
type executor interface {
	Execute(w io.Writer, data any) error
}

// builtIn reads the templates of a language that are part of the program.
func builtIn(name string) map[string]executor {
	all := map[string]executor{}
	for _, p := range parts {
		t, err := parse(p, name, builtInText(name, common), builtInText(name, p.file))
		if err != nil {
			panic(err) // each test would show it
		}
		all[p.file] = t
	}
	return all
}

func builtInText(language, file string) string {
	text, err := fs.ReadFile(embedded, path.Join("templates", language, file))
	if err != nil {
		panic(err) // each test would show it
	}
	return string(text)
}

var errEmpty = errors.New("it writes nothing")

var functions = map[string]any{
	// plural writes a number of things: {{plural .Waiting "batch waits" "batches wait"}}
	"plural": func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", n, many)
	},
}

// parse makes a template that knows the common pieces. Their names are those of the files, for errors to tell.
func parse(p *part, language, commonText, text string) (executor, error) {
	if p.html {
		t, err := htmltemplate.New(language + "/" + common).Funcs(functions).Parse(commonText)
		if err == nil {
			t, err = t.New(language + "/" + p.file).Parse(text)
		}
		return t, err
	}
	t, err := template.New(language + "/" + common).Funcs(functions).Parse(commonText)
	if err == nil {
		t, err = t.New(language + "/" + p.file).Parse(text)
	}
	return t, err
}

func execute(t executor, d *Data) (string, error) {
	var b strings.Builder
	err := t.Execute(&b, d)
	return b.String(), err
}

// readDir reads the operator's templates of all languages, tries each, and tells everything that is wrong with them.
func readDir(dir string) (map[string]map[string]executor, error) {
	if dir == "" {
		return nil, nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, capri.Invalid("templates", dir, "a folder; leave it empty for the built-in templates")
	}
	own := map[string]map[string]executor{}
	var wrong capri.FieldErrors
	for _, name := range languageNames() {
		var errs capri.FieldErrors
		var err error
		own[name], errs, err = readLanguage(dir, name)
		if err != nil {
			return nil, fmt.Errorf("read the templates of %s: %w", dir, err)
		}
		wrong = append(wrong, errs...)
	}
	return own, wrong.OrNil()
}

func readLanguage(dir, name string) (own map[string]executor, wrong capri.FieldErrors, err error) {
	texts, wrong, err := readFiles(dir, name)
	if err != nil {
		return nil, nil, err
	}
	own = map[string]executor{}
	shared, sharedIsOwn := texts[common]
	if !sharedIsOwn {
		shared = builtInText(name, common)
	}
	for _, p := range parts {
		text, isOwn := texts[p.file]
		switch {
		case !isOwn && !sharedIsOwn:
			continue
		case !isOwn:
			text = builtInText(name, p.file)
		}
		t, err := parse(p, name, shared, text)
		if err == nil {
			err = try(p, t, languages[name])
		}
		if err == nil {
			own[p.file] = t
			continue
		}
		broken := refusal(dir, path.Join(name, p.file), err)
		if !slices.ContainsFunc(wrong, func(e *capri.FieldError) bool { return *e == *broken }) { // what is wrong with the common pieces shows in each
			wrong = append(wrong, broken)
		}
	}
	return own, wrong, nil
}

// readFiles reads the templates of a language. A file with a name that means nothing would be left out in silence, so it
// is refused.
func readFiles(dir, name string) (texts map[string]string, wrong capri.FieldErrors, err error) {
	files, err := os.ReadDir(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	names := []string{common}
	for _, p := range parts {
		names = append(names, p.file)
	}
	texts = map[string]string{}
	for _, f := range files {
		if path.Ext(f.Name()) != ".tmpl" {
			continue // an editor's copy, a note
		}
		if !slices.Contains(names, f.Name()) {
			want := "one of " + strings.Join(names, ", ")
			if near := nearest.Word(f.Name(), names); near != "" {
				want += " (did you mean " + near + "?)"
			}
			wrong = append(wrong, &capri.FieldError{Where: filepath.Join(dir, name), Field: "template", Value: f.Name(), Want: want})
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name, f.Name()))
		if err != nil {
			return nil, nil, err
		}
		texts[f.Name()] = string(text)
	}
	return texts, wrong, nil
}

// try executes a template with much and with little to tell, at every stage: a field that does not exist shows only then.
func try(p *part, t executor, l *language) error {
	for _, stage := range stages {
		for _, f := range []alerting.Facts{sample, {Title: "a title alone"}} {
			f.Stage = stage
			text, err := execute(t, l.data(cleanFacts(f), mailShapes[0]))
			if err == nil && strings.TrimSpace(text) == "" && !p.mayBeEmpty {
				err = fmt.Errorf("%w at stage %s where the facts are: %s", errEmpty, stage, f.Title)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

var stages = []alerting.Stage{alerting.New, alerting.Again, alerting.Escalated, alerting.Over, alerting.Digest, alerting.Notice, alerting.Test}

// sample has a value in each field.
var sample = alerting.Facts{
	Incident: 42, Level: capri.Severe, Kind: "batch_failed", Title: "dwd_orders 20261119 failed (batch 4711)", Text: "exit code 1",
	Since: 1_795_188_300_000, Now: 1_795_195_800_000, Task: "dwd_orders", Owner: "alice", Department: "dw", Batch: 4711, BatchNo: "20261119",
	Alerts: 3, Others: []string{"dws_sales 20261119 still waits"}, Waiting: 37, Urgent: 4, UrgentBy: 1_795_209_600_000, OnDuty: []string{"bob"},
	Why: "department dw: enabled users", Link: "https://capri.example.com/incidents/42", Acknowledge: "https://capri.example.com/ack/42",
}

// position is how both packages of templates begin an error: template: zh/sms.tmpl:3:5: executing "…" at <.Foo>: …
var position = regexp.MustCompile(`(?s)^(?:html/)?template: ?([^\s:]+):(\d+)(?::\d+)?: (?:executing "[^"]*" )?(.*)$`)

// refusal says what is wrong with a template, where, and what it would have to be.
func refusal(dir, file string, err error) *capri.FieldError {
	where, what := filepath.Join(dir, file), err.Error()
	if m := position.FindStringSubmatch(what); m != nil {
		where, what = filepath.Join(dir, m[1])+":"+m[2], m[3]
	}
	what, _, _ = strings.Cut(what, ": {state") // html/template goes on with its innards
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Data]()) {
		fields = append(fields, "."+f.Name)
	}
	return &capri.FieldError{Where: where, Field: "template", Value: what,
		Want: "a Go template that writes something at each stage, of the function plural and the fields " + strings.Join(fields, " ") +
			"; mend it, or take the file away, and the built-in one speaks"}
}

// Export writes the built-in templates into a folder, for people to begin with. It overwrites nothing.
func Export(dir string) error {
	err := fs.WalkDir(embedded, "templates", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(name, "templates")))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := fs.ReadFile(embedded, name)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			return capri.Conflict("%s is there already: name an empty folder, or move the file away", to)
		}
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return fmt.Errorf("export the templates: %w", err)
	}
	return nil
}
