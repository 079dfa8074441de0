package words

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What an alert says may be what a job printed: by accident or on purpose it may hold anything.

var (
	// escape is what a terminal would obey: colours, titles of windows, and whatever else follows an ESC.
	escape = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?|[PX^_][^\x1b\n]*(?:\x1b\\\\)?|[ -/]*[0-~])")
	// secret is how keys of ours look, as in worker/logs.
	secret = regexp.MustCompile(`capri_(?:attempt_[0-9]+\.[0-9]+_[0-9a-f]{64}|[A-Za-z0-9_-]{43})`)
	// address is a URL; other text may follow it without a space.
	address = regexp.MustCompile(`(?:[A-Za-z][A-Za-z0-9+.-]*://|[Ww]{3}\.)[!#-&(-;=?-\[\]_a-z~]*`)
	longID  = regexp.MustCompile(`\p{Nd}{9,}`)
)

// plain leaves lines of characters that can be seen.
func plain(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = escape.ReplaceAllString(s, "")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\u0085', r == '\u2028', r == '\u2029':
			return '\n'
		case r == '\t':
			return ' '
		case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', r == '\ufeff':
			return -1 // the middle ones change the direction of what follows, so that it reads as something else
		}
		return r
	}, s)
}

// cleanText is plain, with keys covered. It must be asked for the whole text, before anything is cut: half a key does not
// look like one.
func cleanText(s string) string {
	return secret.ReplaceAllStringFunc(plain(s), func(key string) string {
		return "capri_" + strings.Repeat("*", len(key)-len("capri_"))
	})
}

// oneLine is cleanText as a single line of at most so many characters.
func oneLine(s string, most int) string { return shorten(line(cleanText(s)), most) }

func line(s string) string { return strings.Join(strings.Fields(s), " ") }

// paragraphs is plain text as it is sent: no line too long, no more than one line empty.
func paragraphs(s string) string {
	var out []string
	empty := true // nothing stands before the first line
	for l := range strings.SplitSeq(plain(s), "\n") {
		if l = strings.TrimRight(l, " "); l == "" && empty {
			continue
		}
		empty = l == ""
		if len(l) > mostLine {
			l = cutBytes(l, mostLine-len("…")) + "…"
		}
		out = append(out, l)
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// cutBytes gives the beginning of s, in whole characters.
func cutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// cutText cuts a text to so many bytes, and says so.
func (l *language) cutText(s string, n int) string {
	if len(s) <= n || n == 0 {
		return s[:min(len(s), n)]
	}
	kept := cutBytes(s, n-len(l.cutNote)-len("\n")-16) // the numbers are longer than their verbs
	return kept + "\n" + fmt.Sprintf(l.cutNote, len(kept), len(s))
}

// shorten keeps beginning and end of what has more than so many characters: names of tasks differ at both. A URL of
// which a part is missing leads to the wrong place, so URLs go first.
func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	s = line(withoutURLs(s))
	if runes := utf8.RuneCountInString(s); runes <= most {
		return s
	}
	if long := 16 * most; len(s) > 4*long { // the middle will not be seen
		s = strings.ToValidUTF8(s[:long], "") + strings.ToValidUTF8(s[len(s)-long:], "")
	}
	c := clusters(s)
	room := max(most-1, 0) // of the …
	head, tail := 0, len(c)
	var front, back string
	for half := (room + 1) / 2; head < tail; head++ {
		n := utf8.RuneCountInString(c[head])
		if n > half {
			break
		}
		front, half, room = front+c[head], half-n, room-n
	}
	for ; tail > head; tail-- {
		n := utf8.RuneCountInString(c[tail-1])
		if n > room {
			break
		}
		back, room = c[tail-1]+back, room-n
	}
	return strings.TrimSpace(front) + "…" + strings.TrimSpace(back)
}

// end cuts a text of more than so many characters at its end.
func end(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	var b strings.Builder
	room := most - 1
	for _, c := range clusters(cutBytes(s, 16*most)) {
		if room -= utf8.RuneCountInString(c); room < 0 {
			break
		}
		b.WriteString(c)
	}
	return strings.TrimSpace(b.String()) + "…"
}

func withoutURLs(s string) string {
	if !strings.Contains(s, "://") && !strings.ContainsAny(s, "Ww") { // the expression is slow with a megabyte
		return s
	}
	return address.ReplaceAllString(s, "")
}

// link is an address that can be shown and followed, or nothing.
func link(s string) string {
	if len(s) > 900 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'<>\\^`{|}", r) }) {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return s
}

// clusters parts a text into what people see as one character: a letter with its accents, a family of emoji, a flag. It
// knows the cases that occur and not all of Unicode's; whoever stacks hundreds of accents gets them parted.
func clusters(s string) []string {
	const joiner = '\u200d'
	var out []string
	start, size, flags := 0, 0, 0
	var before rune
	for i, r := range s {
		flag := r >= 0x1f1e6 && r <= 0x1f1ff
		joins := unicode.IsMark(r) || r == joiner || before == joiner ||
			r >= 0x1f3fb && r <= 0x1f3ff || // colours of skin
			r >= 0xe0020 && r <= 0xe007f || // of flags
			flag && flags%2 == 1
		if i > 0 && (!joins || size >= 16) {
			out = append(out, s[start:i])
			start, size = i, 0
		}
		if flags++; !flag {
			flags = 0
		}
		size++
		before = r
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// spoken leaves what a voice can say: no addresses, no long numbers, and spaces for signs.
func spoken(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) || strings.ContainsRune(".,:;!?%()'’，。：；！？（）、", r) {
			return r
		}
		return ' '
	}, withoutURLs(line(plain(s))))
	s = line(longID.ReplaceAllString(s, " ")) // a space, so that what stood on both sides makes nothing new
	if last, _ := utf8.DecodeLastRuneInString(s); unicode.IsLetter(last) || unicode.IsDigit(last) {
		s += "."
	}
	return s
}
