package capri

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxWord is how many characters a name may have.
const MaxWord = 128

// IsWord tells whether a text is 1 to 128 characters, each a letter or digit of ASCII or one of others. It is no regular expression
// since one that counts to 128 holds its class 128 times, in every process.
func IsWord(s, others string) bool {
	return isWord(s, others, func(r rune) bool { return r <= unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) })
}

// IsName is IsWord with letters and digits of any script.
func IsName(s, others string) bool {
	return isWord(s, others, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
}

func isWord(s, others string, letter func(rune) bool) bool {
	strange := func(r rune) bool { return !letter(r) && !strings.ContainsRune(others, r) }
	return s != "" && utf8.RuneCountInString(s) <= MaxWord && !strings.ContainsFunc(s, strange)
}

// IsAccount tells whether a text can be the name of a system account: up to 64 letters, digits, "_", "." and "-" that begin
// with a letter or "_", and a "$" behind them if it is a machine's.
func IsAccount(s string) bool {
	s = strings.TrimSuffix(s, "$")
	return len(s) <= 64 && IsWord(s, "_.-") && !strings.ContainsRune("0123456789.-", rune(s[0]))
}
