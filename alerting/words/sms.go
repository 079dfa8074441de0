package words

import (
	"strings"
	"unicode/utf16"
)

// An SMS of more than one segment costs more, and some phones show its parts in any order. A segment holds 160 septets of
// the GSM alphabet (3GPP TS 23.038); one character beyond it, and it holds 70 UTF-16 units.
const (
	segmentGSM  = 160
	segmentUCS2 = 70
)

const (
	gsmBasic = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
	gsmTwice = "^{}\\[~]|€\f" // behind an escape: two septets
)

// septets counts how much of a GSM segment a text takes; ok is false where a character is not of that alphabet.
func septets(s string) (n int, ok bool) {
	for _, r := range s {
		switch {
		case strings.ContainsRune(gsmBasic, r):
			n++
		case strings.ContainsRune(gsmTwice, r):
			n += 2
		default:
			return 0, false
		}
	}
	return n, true
}

func oneSegment(s string) bool {
	if n, ok := septets(s); ok {
		return n <= segmentGSM
	}
	return len(utf16.Encode([]rune(s))) <= segmentUCS2
}

// likeGSM has what typographers write, as typewriters did: one curly quote would more than halve the room.
var likeGSM = strings.NewReplacer("…", "...", "’", "'", "‘", "'", "“", `"`, "”", `"`, "–", "-", "—", "-", "\u00a0", " ", "`", "'", "·", "-", "×", "x")

// smsLine is a text as an SMS is sent.
func smsLine(raw string) string {
	s := line(plain(raw))
	if typed := likeGSM.Replace(s); typed != s {
		if _, ok := septets(typed); ok {
			return typed
		}
	}
	return s
}

// cutSegment keeps of a text what fits into one segment. Half a URL leads nowhere, so there is none.
func cutSegment(raw string) string {
	s := smsLine(withoutURLs(plain(raw)))
	if oneSegment(s) {
		return s
	}
	kept := ""
	for _, c := range clusters(s) {
		if !oneSegment(smsLine(kept + c + "…")) {
			break
		}
		kept += c
	}
	return smsLine(strings.TrimSpace(kept) + "…")
}
