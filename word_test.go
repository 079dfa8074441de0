package capri_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"capri"
)

// The forms written as expressions, which say the same and are too large for every process to hold.
func TestWords_are_what_the_expressions_say(t *testing.T) {
	forms := map[string]func(string) bool{
		`^[A-Za-z0-9_.-]{1,128}$`:            func(s string) bool { return capri.IsWord(s, "_.-") },
		`^[A-Za-z0-9_]{1,128}$`:              func(s string) bool { return capri.IsWord(s, "_") },
		`^[\p{L}\p{N}_.@-]{1,128}$`:          func(s string) bool { return capri.IsName(s, "_.@-") },
		`^[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?$`: capri.IsAccount,
	}
	texts := []string{"", "$", "a", "a$", "a$$", "$a", "_", "_$", "0", "9a", ".a", "-a", "a.b-c_d", "a b", "a\n", "a@b", "é", "日本", "²", "Ⅷ", "a\xff", "\uFFFD", "a\x00", "ａ", "٣", "_٣"}
	for _, n := range []int{63, 64, 65, 127, 128, 129} {
		texts = append(texts, strings.Repeat("a", n), strings.Repeat("a", n)+"$", strings.Repeat("日", n))
	}
	for form, is := range forms {
		expression := regexp.MustCompile(form)
		for _, s := range texts {
			assert.Equal(t, expression.MatchString(s), is(s), "%s: %q", form, s)
		}
	}
}
