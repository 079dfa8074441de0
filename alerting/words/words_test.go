package words

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of the tests, whatever the machine has
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/alerting"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

func at(z *time.Location, y int, m time.Month, d, hour, minute int) capri.Instant {
	return capri.InstantOf(time.Date(y, m, d, hour, minute, 0, 0, z))
}

// night is what people are told at 04:10 of a batch that failed at 02:05.
func night(t testing.TB, stage alerting.Stage) alerting.Facts {
	z := zone(t, "Asia/Shanghai")
	return alerting.Facts{
		Incident: 42, Stage: stage, Level: capri.Severe, Kind: "batch_failed",
		Title: "dwd_orders 20261119 failed (batch 4711)", Text: "exit code 1 after 3 tries\n\nTraceback (most recent call last):\n  File \"clean.py\", line 7\nKeyError: 'amount'",
		Since: at(z, 2026, 11, 20, 2, 5), Now: at(z, 2026, 11, 20, 4, 10), Zone: z,
		Task: "dwd_orders", Owner: "alice", Department: "dw", Batch: 4711, BatchNo: "20261119",
		Alerts: 14, Others: []string{"dws_sales 20261119 still waits: dependency timeout (batch 4720)", "ads_report 20261119 has not succeeded yet: output timeout (batch 4731)"},
		Waiting: 37, Urgent: 4, UrgentBy: at(z, 2026, 11, 20, 8, 0),
		OnDuty: []string{"bob", "carol"}, Why: "department dw: enabled users",
		Link: "https://capri.example.com/incidents/42", Acknowledge: "https://capri.example.com/ack?incident=42&signature=8f3a",
	}
}

func words(t testing.TB, language, dir string) *Words {
	t.Helper()
	w, err := New(Options{Language: language, Dir: dir})
	require.NoError(t, err)
	return w
}

var everyChannel = []string{alerting.Mail, alerting.SMS, alerting.Phone, "dingtalk"}

func TestEach_template_says_what_its_golden_file_holds(t *testing.T) {
	for _, name := range languageNames() {
		w := words(t, name, "")
		got := map[string]string{}
		for _, stage := range stages {
			f := night(t, stage)
			got["mail.subject"] += "--- " + string(stage) + "\n" + w.Message(alerting.Mail, f).Subject + "\n"
			for file, channel := range map[string]string{"sms": alerting.SMS, "phone": alerting.Phone, "webhook": "dingtalk"} {
				got[file] += "--- " + string(stage) + "\n" + w.Message(channel, f).Text + "\n"
			}
		}
		m := w.Message(alerting.Mail, night(t, alerting.Escalated))
		got["mail.text"], got["mail.html"] = m.Text, m.HTML+"\n"
		for file, text := range got {
			golden := filepath.Join("testdata", name, file+".golden")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
				require.NoError(t, os.WriteFile(golden, []byte(text), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err, "run the tests with -update")
			require.Equal(t, string(want), text, golden)
		}
	}
}

func TestA_message_carries_what_the_facts_say_of_it(t *testing.T) {
	f := night(t, alerting.Again)
	m := words(t, "en", "").Message(alerting.Mail, f)
	m.Subject, m.Text, m.HTML = "", "", ""
	require.Equal(t, alerting.Message{Incident: 42, Level: capri.Severe, Stage: alerting.Again, Link: f.Link}, m)
}

func TestOnly_mails_have_HTML_and_only_mails_and_webhooks_a_subject(t *testing.T) {
	w := words(t, "zh", "")
	for channel, want := range map[string][2]bool{alerting.Mail: {true, true}, alerting.SMS: {}, alerting.Phone: {}, "dingtalk": {true, false}} {
		m := w.Message(channel, night(t, alerting.New))
		require.Equal(t, want, [2]bool{m.Subject != "", m.HTML != ""}, channel)
	}
}

func TestA_system_alert_is_told_by_its_title(t *testing.T) {
	f := alerting.Facts{Stage: alerting.New, Level: capri.Important, Kind: "node_lost", Title: "Node w3 is lost (12 batches)"}
	require.Equal(t, "Important: Node w3 is lost (12 batches).", words(t, "en", "").Message(alerting.SMS, f).Text)
	require.Equal(t, "重要：节点失联：Node w3 is lost (12 batches)。", words(t, "zh", "").Message(alerting.SMS, f).Text)
}

func TestA_kind_that_is_not_ours_is_told_by_its_title(t *testing.T) {
	for _, name := range languageNames() {
		f := alerting.Facts{Stage: alerting.New, Kind: "disk_of_the_warehouse", Title: "The warehouse is full"}
		require.Contains(t, words(t, name, "").Message("dingtalk", f).Text, "The warehouse is full")
		f.Title = ""
		require.Contains(t, words(t, name, "").Message("dingtalk", f).Text, "disk of the warehouse")
	}
}

func TestNothing_known_is_still_a_message(t *testing.T) {
	for _, name := range languageNames() {
		for _, channel := range everyChannel {
			m := words(t, name, "").Message(channel, alerting.Facts{})
			hold(t, words(t, name, ""), channel, alerting.Facts{}, m)
			require.Contains(t, m.Text, languages[name].unknown)
		}
	}
}

func TestMore_than_thirty_others_are_counted(t *testing.T) {
	f := night(t, alerting.New)
	f.Others, f.Alerts = nil, 60
	for range 45 {
		f.Others = append(f.Others, "something else")
	}
	text := words(t, "en", "").Message(alerting.Mail, f).Text
	require.Equal(t, 30, strings.Count(text, "- something else\n"))
	require.Contains(t, text, "- and 29 more\n")
}

func TestA_zone_is_named_and_the_two_equal_hours_differ(t *testing.T) {
	z := zone(t, "America/New_York")
	first := at(z, 2026, 11, 1, 1, 30)
	en, zh := languages["en"], languages["zh"]
	require.Equal(t, "1 November 2026, 01:30 EDT (America/New_York)", en.fullTime(first, z))
	require.Equal(t, "1 November 2026, 01:30 EST (America/New_York)", en.fullTime(first.Add(time.Hour), z))
	require.Equal(t, "2026年11月1日 01:30 EST（America/New_York）", zh.fullTime(first.Add(time.Hour), z))
	require.Equal(t, "1 November 2026, 05:30 UTC", en.fullTime(first, time.UTC))
	require.Equal(t, "1 November 2026, 02:30 UTC-03 (America/Sao_Paulo)", en.fullTime(first, zone(t, "America/Sao_Paulo")))
	require.Empty(t, en.fullTime(0, z))
}

func TestA_time_of_another_day_has_its_date(t *testing.T) {
	z := zone(t, "Asia/Shanghai")
	evening, midnight := at(z, 2026, 11, 19, 23, 50), at(z, 2026, 11, 20, 0, 10)
	for name, want := range map[string]string{"en": "19 Nov 23:50", "zh": "11月19日 23:50"} {
		l := languages[name]
		require.Equal(t, want, l.time(evening, midnight, z, l.day))
		require.Equal(t, "23:50", l.time(evening, evening.Add(5*time.Minute), z, l.day))
		require.Equal(t, "00:10", l.time(midnight, midnight, z, l.day))
	}
}

func TestDurations_are_their_two_largest_units(t *testing.T) {
	for _, c := range []struct {
		d      time.Duration
		en, zh string
	}{
		{0, "0 s", "0 秒"}, {45 * time.Second, "45 s", "45 秒"}, {time.Minute, "1 min", "1 分钟"}, {119 * time.Second, "1 min", "1 分钟"},
		{2*time.Hour + 5*time.Minute, "2 h 5 min", "2 小时 5 分钟"}, {2 * time.Hour, "2 h", "2 小时"},
		{51 * time.Hour, "2 d 3 h", "2 天 3 小时"}, {48*time.Hour + time.Minute, "2 d", "2 天"}, {-time.Second, "", ""},
	} {
		require.Equal(t, c.en, languages["en"].duration(c.d))
		require.Equal(t, c.zh, languages["zh"].duration(c.d))
	}
}

func TestNumbers_of_one_are_singular(t *testing.T) {
	f := night(t, alerting.New)
	f.Waiting, f.Urgent = 1, 1
	require.Contains(t, words(t, "en", "").Message(alerting.Mail, f).Subject, "1 batch waits for it, 1 with a deadline before 08:00")
}

func TestA_long_name_is_shortened_in_the_middle(t *testing.T) {
	f := night(t, alerting.New)
	f.Task = "dwd_" + strings.Repeat("warehouse_", 9) + "orders_final"
	for _, name := range languageNames() {
		m := words(t, name, "").Message(alerting.SMS, f)
		hold(t, words(t, name, ""), alerting.SMS, f, m)
		require.Contains(t, m.Text, "dwd_ware")
		require.Contains(t, m.Text, "_final")
		require.NotContains(t, m.Text, f.Task)
	}
	m := words(t, "en", "").Message(alerting.Mail, f)
	require.Contains(t, m.Subject, "Severe: dwd_warehouse_warehouse_")
	require.Contains(t, m.Subject, "warehouse_orders_final 20261119")
	require.Contains(t, m.Text, f.Task, "there it has room")
}

func TestA_link_that_does_not_fit_into_an_SMS_is_left_out(t *testing.T) {
	f := night(t, alerting.New)
	require.True(t, strings.HasSuffix(words(t, "en", "").Message(alerting.SMS, f).Text, " "+f.Link))
	f.Link = "https://capri.example.com/" + strings.Repeat("a", 120)
	for _, name := range languageNames() {
		require.NotContains(t, words(t, name, "").Message(alerting.SMS, f).Text, "http")
	}
}

func TestOne_segment_is_160_septets_or_70_units(t *testing.T) {
	for _, c := range []struct {
		sentence, unit string
		fits           int
	}{
		{"letters", "a", 160}, {"letters of the alphabet that are not ASCII", "é", 160}, {"an underscore is one", "_", 160},
		{"characters of the extension count two", "[", 80}, {"the euro sign, too", "€", 80},
		{"Chinese", "批", 70}, {"Cyrillic", "ж", 70}, {"a letter that is nearly of the alphabet", "ê", 70}, {"surrogates count two", "🙂", 35},
	} {
		require.True(t, oneSegment(strings.Repeat(c.unit, c.fits)), c.sentence)
		require.False(t, oneSegment(strings.Repeat(c.unit, c.fits+1)), c.sentence)
	}
	require.True(t, oneSegment(strings.Repeat("a", 69)+"批"))
	require.False(t, oneSegment(strings.Repeat("a", 70)+"批"), "one character beyond the alphabet costs 90")
}

func TestBytes_that_are_no_text_cost_no_SMS(t *testing.T) {
	f := alerting.Facts{Level: capri.Severe, Title: "It said \xff\xfe" + strings.Repeat(" and more", 10)}
	require.Contains(t, words(t, "en", "").Message(alerting.SMS, f).Text, "It said ? and more")
}

func TestTypographers_signs_cost_no_SMS(t *testing.T) {
	require.Equal(t, `"it's" - so...`, smsLine("“it’s” – so…"))
	require.Equal(t, "“批次”…", smsLine("“批次”…"), "where the alphabet is left anyway they are shorter")
}

func TestShorten_keeps_both_ends_and_whole_characters(t *testing.T) {
	family, flag, accent := "👨‍👩‍👧‍👦", "🇨🇳", "e\u0301"
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"abcdefghij", 10, "abcdefghij"},
		{"abcdefghijk", 10, "abcde…hijk"},
		{"一二三四五六七", 5, "一二…六七"},
		{"ab" + family + "cdefgh", 7, "ab…efgh"},
		{"a" + family + "bcdefghijk", 9, "a…efghijk"},
		{"a" + flag + flag + "bcdef", 6, "a" + flag + "…ef"},
		{"a" + flag + "bcdef", 5, "a…def"},
		{"a" + accent + accent + "bcdef", 6, "a" + accent + "…ef"},
		{"see https://capri.example.com/a/very/long/way at once", 20, "see at once"},
		{"see https://capri.example.com/a/very/long/way and then do what it says", 12, "see an…says"},
	} {
		require.Equal(t, c.want, shorten(c.in, c.most), c.in)
	}
}

func TestA_phone_says_no_signs_no_addresses_and_no_long_numbers(t *testing.T) {
	for in, want := range map[string]string{
		"dwd_orders-v2 failed":                     "dwd orders v2 failed.",
		"see https://capri.example.com/x, please.": "see please.",
		"application_1700000000000_0001":           "application 0001.",
		"www_.example.com":                         "www .example.com.",
		"id 12345678":                              "id 12345678.",
		"批次失败。详见https://capri.example.com/x。":      "批次失败。详见。",
	} {
		require.Equal(t, want, spoken(in))
	}
	f := night(t, alerting.New)
	f.BatchNo = "2026111923"
	text := words(t, "en", "").Message(alerting.Phone, f).Text
	require.Contains(t, text, "Task dwd orders, batch 2026 11 19 23: the batch failed. Since 02:05.")
	for in, want := range map[string]string{"20261119": "2026 11 19", "2026111923": "2026 11 19 23", "2026W47": "2026W47", "202611": "2026 11", "2026110101-0400": "2026 11 01 01-0400", "": ""} {
		require.Equal(t, want, spokenBatch(in))
	}
}

func TestKeys_are_covered_wherever_they_stand(t *testing.T) {
	app := "capri_" + strings.Repeat("Ab9-_", 9)[:43]
	attempt := "capri_attempt_4711.2_" + strings.Repeat("0af9", 16)
	for _, key := range []string{app, attempt, app[:20] + "\x1b[31m" + app[20:], app[:20] + "\x00" + app[20:], app[:9] + "\u202e" + app[9:]} {
		f := night(t, alerting.New)
		f.Title, f.Text, f.Others, f.Why = "token "+key, strings.Repeat("x", 6<<10-150)+" "+key, []string{key}, key
		f.Task, f.Owner, f.BatchNo, f.OnDuty, f.Kind = key, key, key, []string{key}, key
		for _, name := range languageNames() {
			for _, channel := range everyChannel {
				m := words(t, name, "").Message(channel, f)
				hold(t, words(t, name, ""), channel, f, m)
				for _, half := range []string{app[20:], attempt[40:]} {
					require.NotContains(t, m.Subject+m.Text+m.HTML, half, channel)
				}
			}
		}
	}
}

func TestA_link_that_is_none_is_not_shown(t *testing.T) {
	for _, bad := range []string{"javascript:alert(1)", "https://", "capri.example.com", "https://a.example/\r\nBcc: x", "https://a.example/ b", "ftp://a.example/", `https://a.example/"onclick=`, "https://a.example/" + strings.Repeat("a", 900)} {
		require.Empty(t, link(bad))
		f := night(t, alerting.New)
		f.Link, f.Acknowledge = bad, bad
		m := words(t, "en", "").Message(alerting.Mail, f)
		require.Empty(t, m.Link)
		require.NotContains(t, m.HTML, "<a ")
		require.NotContains(t, m.Text, "Acknowledge")
	}
	for _, good := range []string{"http://10.0.0.1:8680/incidents/1", "https://capri.example.com/ack?i=1&s=a%2Fb#x"} {
		require.Equal(t, good, link(good))
	}
}

func TestA_megabyte_is_cut_with_a_note_and_the_rest_stays(t *testing.T) {
	for _, name := range languageNames() {
		f := night(t, alerting.New)
		f.Text = strings.Repeat("批次失败 <b>\n", 1<<20/18)
		f.Title = strings.Repeat("长", 1<<19)
		f.Others = []string{strings.Repeat("x", 1<<20)}
		m := words(t, name, "").Message(alerting.Mail, f)
		hold(t, words(t, name, ""), alerting.Mail, f, m)
		require.Greater(t, len(m.Text), 2<<10)
		for _, text := range []string{m.Text, m.HTML} {
			require.Contains(t, text, f.Why)
			require.Contains(t, text, regexp.MustCompile(`%d.*`).ReplaceAllString(languages[name].cutNote, ""))
		}
		require.Contains(t, m.Text, f.Acknowledge)
	}
}

func TestA_line_is_cut_at_998_bytes(t *testing.T) {
	f := night(t, alerting.New)
	f.Text = "first\n" + strings.Repeat("批", 900) + "\nlast"
	text := words(t, "zh", "").Message(alerting.Mail, f).Text
	require.Contains(t, text, "\n"+strings.Repeat("批", 331)+"…\nlast\n")
}

// fragments are what no text may hold, or what it holds with difficulty: joined at random, and seeds of the fuzzer.
var fragments = []string{
	"dwd_orders", "批次失败", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\u202egnp.exe", "\u2066x\u2069", "<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`,
	"{{.Text}}", "{{define \"x\"}}", "</pre></body>", "<!--", "]]>", "javascript:alert(1)", "https://capri.example.com/a?b=c", "hdfs://nn/warehouse/ods", "www.example.com",
	"\x00\x01\x7f", "\r\nBcc: all@example.com", "\n.\n", "\xff\xfe", "\u2028", "\u0085", "😀👨‍👩‍👧‍👦🇨🇳", "e\u0301\u0301", "[]{}\\^~|€", "“’…–", "1234567890123", "a_b-c",
	"capri_0123456789012345678901234567890123456789012", "capri_attempt_1.1_" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", " ", "\t", "'", "&amp;",
}

func random(r *rand.Rand, most int) string {
	var b strings.Builder
	for range r.IntN(most + 1) {
		b.WriteString(strings.Repeat(fragments[r.IntN(len(fragments))], 1+r.IntN(3)))
	}
	return b.String()
}

func TestWhatever_the_facts_hold_the_limits_hold(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		most := []int{0, 1, 3, 12, 60}[r.IntN(5)]
		f := night(t, stages[r.IntN(len(stages))])
		f.Title, f.Text, f.Why = random(r, most), random(r, 20*most), random(r, most)
		f.Level, f.Alerts, f.Waiting = capri.Level(r.IntN(6)-1), r.IntN(50)-5, r.IntN(2_000_000)
		f.Urgent = r.IntN(1 + f.Waiting)
		f.Others = nil
		for range r.IntN(20) {
			f.Others = append(f.Others, random(r, most))
		}
		if r.IntN(2) == 0 {
			f.Task, f.Owner, f.Department, f.BatchNo, f.Kind = random(r, most), random(r, most), random(r, most), random(r, most), random(r, most)
		}
		if r.IntN(4) == 0 {
			f.Task = ""
		}
		if r.IntN(3) == 0 {
			f.Link = "https://capri.example.com/" + strings.Repeat("i", r.IntN(200))
		}
		for _, name := range languageNames() {
			w := words(t, name, "")
			for _, channel := range everyChannel {
				hold(t, w, channel, f, w.Message(channel, f))
			}
		}
		if t.Failed() {
			return
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, s := range fragments {
		f.Add(s, s, s, uint8(0))
		f.Add(strings.Repeat(s, 40), "dwd_orders", "", uint8(1))
	}
	f.Fuzz(func(t *testing.T, title, task, text string, which uint8) {
		facts := night(t, stages[int(which)%len(stages)])
		facts.Title, facts.Task, facts.Text, facts.Others = title, task, text, []string{text, title}
		for _, name := range languageNames() {
			w := words(t, name, "")
			for _, channel := range everyChannel {
				hold(t, w, channel, facts, w.Message(channel, facts))
			}
		}
	})
}

var tag = regexp.MustCompile(`<[A-Za-z/!][^>]*>`)

// hold fails where a message breaks a rule of its channel.
func hold(t testing.TB, w *Words, channel string, f alerting.Facts, m alerting.Message) {
	t.Helper()
	broken := func(rule, text string) {
		t.Helper()
		t.Errorf("%s, %s: %s: %q\nfacts: %#v", w.name, channel, rule, text, f)
	}
	for _, text := range []string{m.Subject, m.Text, m.HTML} {
		switch {
		case !utf8.ValidString(text):
			broken("not UTF-8", text)
		case strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }):
			broken("control characters", text)
		case strings.ContainsAny(text, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"):
			broken("bidi overrides", text)
		case secret.MatchString(text):
			broken("a key", text)
		}
	}
	runes := utf8.RuneCountInString(m.Text)
	switch {
	case strings.TrimSpace(m.Text) == "":
		broken("empty", m.Text)
	case strings.Contains(m.Subject, "\n") || utf8.RuneCountInString(m.Subject) > 180:
		broken("a subject that is no line", m.Subject)
	case len(m.Text) > 8<<10:
		broken("long", m.Text)
	}
	for l := range strings.SplitSeq(m.Text, "\n") {
		if len(l) > 998 {
			broken("a long line", l)
		}
	}
	clean := cleanFacts(f)
	switch channel {
	case alerting.Mail:
		if f.Acknowledge != "" && !strings.Contains(m.Text, f.Acknowledge) {
			broken("no way to acknowledge it", m.Text)
		}
		if got, want := tag.FindAllString(m.HTML, -1), tag.FindAllString(w.Message(channel, harmless(clean)).HTML, -1); strings.Join(got, "") != strings.Join(want, "") {
			broken("other tags than those of the template", m.HTML)
		}
	case alerting.SMS:
		if !oneSegment(m.Text) || strings.Contains(m.Text, "\n") {
			broken("more than a segment", m.Text)
		}
		whole := map[string]bool{}
		bare := func(s string) string { return strings.TrimRight(s, ".,;:!?)") }
		for _, s := range append([]string{clean.Title, clean.Task, clean.BatchNo, clean.Link, clean.Kind, strings.ReplaceAll(clean.Kind, "_", " ")}, clean.Others...) {
			for _, u := range address.FindAllString(s, -1) {
				whole[bare(u)] = true
			}
		}
		for _, u := range address.FindAllString(m.Text, -1) {
			if !whole[bare(u)] {
				broken("half a URL, "+u, m.Text)
			}
		}
	case alerting.Phone:
		first, second, twice := strings.Cut(m.Text, " "+w.repeat+" ")
		switch {
		case runes > 400:
			broken("long", m.Text)
		case !twice || first != second:
			broken("not said twice", m.Text)
		case !strings.HasPrefix(m.Text, w.level(f.Level)):
			broken("the level is not first", m.Text)
		case address.MatchString(m.Text) || strings.ContainsAny(m.Text, "_-/<>{}"):
			broken("cannot be spoken", m.Text)
		case regexp.MustCompile(`\d{9}`).MatchString(m.Text):
			broken("a long number", m.Text)
		}
	default:
		if runes > 1000 {
			broken("long", m.Text)
		}
	}
}

// harmless replaces what may be hostile in facts, and leaves empty what is empty.
func harmless(f *alerting.Facts) alerting.Facts {
	out := *f
	for _, s := range []*string{&out.Title, &out.Text, &out.Task, &out.Owner, &out.Department, &out.BatchNo, &out.Why} {
		if *s != "" {
			*s = "x" + *s
			*s = strings.Map(func(r rune) rune {
				if unicode.IsLetter(r) || unicode.IsDigit(r) {
					return r
				}
				return '_'
			}, *s)
		}
	}
	if kinds["en"][out.Kind] == "" && out.Kind != "" {
		out.Kind = "x"
	}
	out.Others = nil
	for range f.Others {
		out.Others = append(out.Others, "x")
	}
	return out
}

func TestA_digest_says_how_many_incidents_it_is_about_and_where_the_rest_is(t *testing.T) {
	f := alerting.Facts{Stage: alerting.Digest, Level: capri.Severe, Kind: "raised", Title: "disk full", Alerts: 50, Zone: time.UTC}
	for range 49 {
		f.Others = append(f.Others, "something else")
	}
	for name, want := range map[string][]string{"en": {"Severe, 50 incidents: disk full and others", "The others (50 incidents in all):", "and 19 more: capri alert list"},
		"zh": {"严重·共 50 个事件：", "其他事件（共 50 个）：", "另有 19 个：capri alert list"}} {
		m := words(t, name, "").Message(alerting.Mail, f)
		require.Contains(t, m.Subject, want[0])
		for _, text := range []string{want[1], want[2]} {
			require.Contains(t, m.Text, text)
		}
	}
}
