package definition

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capri"
	"capri/calendar"
)

func specsOf(items []Item) []capri.Spec {
	specs := make([]capri.Spec, len(items))
	for i := range items {
		specs[i] = items[i].Spec
	}
	return specs
}

func TestExportIsStableAndAppliesBackToNoChange(t *testing.T) {
	sources, err := Load([]string{"testdata/everything.yaml"})
	require.NoError(t, err)
	items, err := Parse(sources)
	require.NoError(t, err)
	out, err := Export(specsOf(items))
	require.NoError(t, err)
	golden(t, "testdata/everything.export", string(out))

	again, err := Parse([]Source{{Name: "export.yaml", Data: out}})
	require.NoError(t, err)
	for i := range again {
		assert.Nil(t, Diff(&items[i].Spec, &again[i].Spec))
	}
	// Another order of the same gives the same bytes.
	reversed := []capri.Spec{items[2].Spec, items[1].Spec, items[0].Spec}
	other, err := Export(reversed)
	require.NoError(t, err)
	assert.Equal(t, string(out), string(other))

	empty, err := Export(nil)
	require.NoError(t, err)
	items, err = Parse([]Source{{Name: "empty", Data: empty}})
	assert.NoError(t, err)
	assert.Empty(t, items)
}

func TestDiffNamesEachFieldOnce(t *testing.T) {
	old, changed := Default(), Default()
	at := func(n int) *capri.Offset { return &capri.Offset{N: n} }
	old.Name, changed.Name = "a", "a"
	old.Title = "old title"
	old.Period, changed.Period = capri.Day, capri.Cron
	changed.Cron = "0 0 3 * * ?"
	old.Job = capri.Job{Type: "shell", Command: "x", Env: map[string]string{"GONE": "1", "SAME": "s", "CHANGED": "a"}}
	changed.Job = capri.Job{Type: "shell", Command: "y", Env: map[string]string{"NEW": "", "SAME": "s", "CHANGED": "b"}, Files: []string{"/a", "/b"}}
	old.Parents = []capri.Parent{{Task: "p1", Policy: capri.All}, {Task: "p2", Policy: capri.All, TaskID: 7}, {Task: "p3", Policy: capri.All}}
	changed.Parents = []capri.Parent{{Task: "p0", Policy: capri.Anyone}, {Task: "p2", Policy: capri.All}, {Task: "p3", Policy: capri.All, From: at(-1), To: at(-1)}}
	old.Inputs = []capri.Input{{Path: "/a/${yyyyMMdd}", Flag: "_SUCCESS"}, {Path: "/a/${yyyyMMdd}", Flag: "_DONE"}}
	changed.Inputs = []capri.Input{{Path: "/a/${yyyyMMdd}", Flag: "_SUCCESS"}, {Path: "/a/${yyyyMMdd}", Flag: "none"}}
	changed.Enabled = false
	old.ThirdParty = []capri.ThirdParty{{Code: "x"}, {Code: "y"}}
	changed.ThirdParty = []capri.ThirdParty{{Code: "y"}, {Code: "x"}}

	var lines []string
	for _, c := range Diff(&old, &changed) {
		lines = append(lines, c.String())
	}
	assert.Equal(t, []string{
		"title: - old title",
		"period: day → cron",
		"cron: + 0 0 3 * * ?",
		"job.command: x → y",
		"job.files: + [/a, /b]",
		"job.env.CHANGED: a → b",
		"job.env.GONE: - 1",
		`job.env.NEW: + ""`,
		"inputs[/a/${yyyyMMdd} #2]: {path: '/a/${yyyyMMdd}', flag: _DONE} → {path: '/a/${yyyyMMdd}', flag: none}",
		"third_party: [x, y] → [y, x]",
		"parents[p1]: - {task: p1}",
		"parents[p3]: {task: p3} → {task: p3, from: -1, to: -1}",
		"parents[p0]: + {task: p0, policy: ANYONE}",
		"enabled: true → false",
	}, lines)

	created := Diff(nil, &old)
	assert.Equal(t, "name: + a", created[0].String(), "a new task lists what is not a default")
}

func TestEqualIgnoresHowNothingIsSpeltAndWhatTheStoreAdds(t *testing.T) {
	a, b := Default(), Default()
	a.Job.Files, a.Job.Env = []string{}, map[string]string{}
	a.Parents = []capri.Parent{{Task: "p", TaskID: 9}}
	b.Parents = []capri.Parent{{Task: "p"}}
	assert.True(t, Equal(&a, &b))
	assert.Nil(t, Diff(&a, &b))
	b.Parents[0].From = &capri.Offset{}
	assert.False(t, Equal(&a, &b), "a window from 0 is not the absence of a window")
}

// drawSpec makes definitions that need not be valid, only expressible.
func drawSpec(t *rapid.T) capri.Spec {
	text := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "a b", "yes", "null", "~", "007", "1e3", "a: b", "#x", "<<", "- x", "line\nline", "line\n\nend\n", "\ttab\n x", " lead", "trail ", "x\n\n", "é\u2028\x01\uFEFF", "'\"\\", "{a}", "[", "${yyyyMMdd}", "a,b", "2026-01-01", "*a", "&a", "!t", "|", "x #y"}), rapid.String())
	texts := rapid.SliceOfN(text, 0, 3)
	offset := rapid.SampledFrom([]*capri.Offset{nil, {}, {N: -3}, {End: true}, {End: true, N: 4}, {End: true, N: -1}})
	number := rapid.IntRange(-2, 12)
	period := rapid.SampledFrom([]capri.Period{capri.Hour, capri.Day, capri.Week, capri.Month, capri.Manual})
	s := capri.Spec{
		Name: text.Draw(t, "name"), Title: text.Draw(t, "title"), Group: text.Draw(t, "group"), Owner: text.Draw(t, "owner"),
		Period: period.Draw(t, "period"), Priority: number.Draw(t, "priority"),
		Job: capri.Job{Type: rapid.SampledFrom([]string{"shell", "python", "", "x"}).Draw(t, "type"), Command: text.Draw(t, "command"), Account: text.Draw(t, "account"),
			MainClass: text.Draw(t, "main_class"), Options: texts.Draw(t, "options"),
			HTTP: capri.HTTP{Method: text.Draw(t, "method"), Headers: rapid.MapOfN(text, text, 0, 2).Draw(t, "headers"), Body: text.Draw(t, "body"), TimeoutS: number.Draw(t, "timeout"),
				Success: capri.HTTPRule{Path: text.Draw(t, "success"), In: texts.Draw(t, "in")},
				Poll:    capri.HTTPPoll{URL: text.Draw(t, "poll"), ID: text.Draw(t, "id"), Until: capri.HTTPRule{In: texts.Draw(t, "until")}, EveryS: number.Draw(t, "every")}},
			Files: texts.Draw(t, "files"), Env: rapid.MapOfN(text, text, 0, 3).Draw(t, "env"), Params: rapid.MapOfN(text, text, 0, 3).Draw(t, "params")},
		Worker: capri.Placement{Pool: text.Draw(t, "pool"), Nodes: texts.Draw(t, "nodes"), Strategy: text.Draw(t, "strategy"), MemoryMB: number.Draw(t, "memory"), Slots: number.Draw(t, "slots")},
		Limits: capri.Limits{Concurrency: number.Draw(t, "concurrency"), BeginMinutes: number.Draw(t, "begin"), ExpireAtDayEnd: rapid.Bool().Draw(t, "expire")},
		Retry:  capri.Retry{Failed: number.Draw(t, "failed"), FailedIntervalS: number.Draw(t, "interval"), Rejected: number.Draw(t, "rejected"), RejectedIntervalS: number.Draw(t, "rejected interval")},
		Check:  capri.Check(text.Draw(t, "check")), QualityGate: rapid.Bool().Draw(t, "gate"), Cascade: rapid.Bool().Draw(t, "cascade"), Enabled: rapid.Bool().Draw(t, "enabled"),
		Alert: capri.AlertRules{Phone: rapid.Bool().Draw(t, "phone"), PhoneTo: texts.Draw(t, "phone_to"), DefaultRules: rapid.Bool().Draw(t, "default_rules"), NotifyOn: texts.Draw(t, "notify_on")},
		Valid: capri.Validity{From: rapid.SampledFrom([]string{"", "2026-01-01 00:00:00", "nonsense"}).Draw(t, "from")},
	}
	for range rapid.IntRange(0, 3).Draw(t, "inputs") {
		s.Inputs = append(s.Inputs, capri.Input{Path: text.Draw(t, "path"), Flag: text.Draw(t, "flag"), Unit: rapid.SampledFrom([]capri.Period{0, capri.Hour}).Draw(t, "unit"), From: offset.Draw(t, "from"), To: offset.Draw(t, "to")})
	}
	for range rapid.IntRange(0, 3).Draw(t, "parents") {
		s.Parents = append(s.Parents, capri.Parent{Task: text.Draw(t, "task"), Policy: capri.Policy(text.Draw(t, "policy")), From: offset.Draw(t, "from"), To: offset.Draw(t, "to"), TaskID: 3})
	}
	for range rapid.IntRange(0, 2).Draw(t, "outputs") {
		s.Outputs = append(s.Outputs, capri.Output{Path: text.Draw(t, "path"), Flag: text.Draw(t, "flag")})
	}
	if rapid.Bool().Draw(t, "code") {
		s.ThirdParty = []capri.ThirdParty{{Code: text.Draw(t, "code")}}
	}
	return s
}

func TestAnyDefinitionSurvivesExportAndJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		out, err := Export([]capri.Spec{s, s})
		require.NoError(t, err)
		items, err := Parse([]Source{{Name: "x", Data: out}})
		require.NoError(t, err, "export must parse:\n%s", out)
		require.Len(t, items, 2)
		for _, it := range items {
			if d := Diff(&s, &it.Spec); d != nil {
				t.Fatalf("export lost something: %v\n%s", d, out)
			}
		}
		// The store keeps definitions as plain JSON.
		data, err := json.Marshal(s)
		require.NoError(t, err)
		var back capri.Spec
		require.NoError(t, json.Unmarshal(data, &back))
		if d := Diff(&s, &back); d != nil {
			t.Fatalf("JSON lost something: %v\n%s", d, data)
		}
	})
}

func TestDiffIsEmptyExactlyWhenEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSpec(t), drawSpec(t)
		if rapid.Bool().Draw(t, "nearly the same") {
			p := b.Parents
			b = a
			b.Parents = p
		}
		if Equal(&a, &b) != (Diff(&a, &b) == nil) {
			t.Fatalf("Equal says %v, Diff says %v", Equal(&a, &b), Diff(&a, &b))
		}
		for _, c := range Diff(&a, &b) {
			if c.Old == c.New {
				t.Fatalf("a change that changes nothing: %+v", c)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	sources, err := Load([]string{"testdata"})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range sources {
		f.Add(s.Data)
	}
	k := known()
	f.Fuzz(func(t *testing.T, data []byte) {
		items, _, err := Check([]Source{{Name: "f.yaml", Data: data}}, k)
		if err != nil {
			return
		}
		out, err := Export(specsOf(items))
		if err != nil {
			t.Fatal(err)
		}
		again, warnings, err := Check([]Source{{Name: "again.yaml", Data: out}}, k)
		if err != nil {
			t.Fatalf("an accepted file is refused after export: %v %v\n%s", err, warnings, out)
		}
		byName := map[string]*capri.Spec{}
		for i := range again {
			byName[again[i].Name] = &again[i].Spec
		}
		for i := range items {
			if d := Diff(&items[i].Spec, byName[items[i].Name]); d != nil {
				t.Fatalf("export changed something: %v\n%s", d, out)
			}
		}
	})
}

// thousands makes a file of n tasks, each with three parents.
func thousands(n int) []Source {
	var b strings.Builder
	b.WriteString("tasks:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: t%d, period: day, job: {command: 'run.sh ${yyyyMMdd}'}, outputs: [{path: '/w/t%d/${yyyyMMdd}'}], parents: [", i, i)
		for p := 1; p <= 3 && i-p*7 >= 0; p++ {
			fmt.Fprintf(&b, "{task: t%d},", i-p*7)
		}
		b.WriteString("]}\n")
	}
	return []Source{{Name: "many.yaml", Data: []byte(b.String())}}
}

func BenchmarkCheck10k(b *testing.B) {
	sources, k := thousands(10_000), Known{Calendar: calendar.New(time.UTC)}
	for b.Loop() {
		if _, _, err := Check(sources, k); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExport10k(b *testing.B) {
	items, err := Parse(thousands(10_000))
	if err != nil {
		b.Fatal(err)
	}
	specs := specsOf(items)
	for b.Loop() {
		if _, err := Export(specs); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEqual10k(b *testing.B) {
	items, err := Parse(thousands(10_000))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for i := range items {
			if !Equal(&items[i].Spec, &items[i].Spec) {
				b.Fatal("a definition differs from itself")
			}
		}
	}
}
